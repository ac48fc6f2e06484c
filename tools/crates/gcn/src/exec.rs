// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Executing one instruction for one wave. A [`Machine`] lives for one slice of a wave's run and
//! borrows all it needs.

mod atomic;
mod branch;
mod buffer;
mod hwreg;
mod lds;
mod memory;
mod places;
mod quick;
mod salu;
mod scalar_atomic;
mod smem;
mod typed;
mod valu;
mod watch;

pub(crate) use quick::{Quick, Room, Run};

use crate::dispatch::Apertures;
use crate::inst::{Body, Inst, Special, Src};
use crate::memory::{Fault, Memory};
use crate::wave::{mode, sreg, status, Wave};
use crate::workgroup::{ExecError, GwsRequest};
use crate::Target;

/// What comes after an instruction.
#[derive(Debug)]
pub(crate) enum Flow {
    /// The next instruction.
    Next,
    /// The instruction at this address.
    Jump(u64),
    /// The next instruction, but other waves may go first.
    Yield,
    /// The next instruction, decoded anew.
    Refetch,
    /// Something for the caller.
    Stop(Stop),
}

/// Why a wave stops. For all but the last four its PC is past the instruction.
#[derive(Debug)]
pub(crate) enum Stop {
    /// `s_endpgm`.
    Ended,
    /// `s_barrier`.
    Barrier,
    /// `s_sethalt` or `s_sendmsghalt`.
    Halted,
    /// `s_sendmsg`.
    Message(u16),
    /// `s_trap` without a handler.
    Trap(u8),
    /// `ds_gws_*`, not granted yet.
    Gws(GwsRequest),
    /// Memory refused.
    Fault(Fault),
    /// An atomic at an address that is no multiple of its size.
    Misaligned(u64),
    /// Not executable.
    Error(ExecError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl Stop {
    /// Whether the instruction was executed.
    pub(crate) fn is_past(&self) -> bool {
        !matches!(
            self,
            Stop::Gws(_) | Stop::Fault(_) | Stop::Misaligned(_) | Stop::Error(_)
        )
    }
}

/// How a block ended.
pub(crate) enum Ended {
    /// The wave's PC is where it goes on.
    Jumped,
    /// The same, but others may go first.
    Yielded,
    /// The same, but code may have changed.
    Refetch,
    /// The wave stopped.
    Stopped(Stop),
}

/// Moves the PC as the instruction has it. None: the next one follows.
#[inline(always)]
pub(crate) fn go_on(wave: &mut Wave, inst: &Inst, flow: Flow) -> Option<Ended> {
    match flow {
        Flow::Next => {
            wave.pc = inst.next();
            None
        }
        Flow::Jump(pc) => {
            wave.pc = pc;
            Some(Ended::Jumped)
        }
        Flow::Yield => {
            wave.pc = inst.next();
            Some(Ended::Yielded)
        }
        Flow::Refetch => {
            wave.pc = inst.next();
            Some(Ended::Refetch)
        }
        Flow::Stop(stop) => {
            if stop.is_past() {
                wave.pc = inst.next();
            }
            Some(Ended::Stopped(stop))
        }
    }
}

/// Result of an instruction that always falls through.
type Done = Result<(), Stop>;

/// All that an instruction can touch.
pub(crate) struct Machine<'a> {
    /// The wave.
    pub wave: &'a mut Wave,
    /// Its work-group's LDS.
    pub lds: &'a mut [u8],
    /// Its work-group's apertures.
    pub apertures: Apertures,
    /// What executes it.
    pub target: Target,
    /// Its address space.
    pub memory: &'a mut dyn Memory,
}

impl Machine<'_> {
    /// Executes `inst`. The PC is at it and stays there; the caller moves it as the [`Flow`] says.
    pub fn step(&mut self, inst: &Inst) -> Flow {
        let done = match &inst.body {
            Body::Valu(valu) => self.valu(inst, valu),
            Body::Sop2 { op, dst, src } => self.sop2(inst, *op, *dst, *src),
            Body::Sopc { op, src } => self.sopc(*op, *src),
            Body::Sopk {
                op,
                dst,
                imm,
                literal,
            } => return self.sopk(inst, *op, *dst, *imm, *literal),
            Body::Sop1 { op, dst, src } => return self.sop1(inst, *op, *dst, *src),
            Body::Sopp { op, imm } => return self.sopp(inst, *op, *imm),
            Body::Smem(smem) => self.smem(inst, smem),
            Body::Mem(_) | Body::Ds(_) if self.wave.mode & mode::VSKIP != 0 => Ok(()),
            Body::Mem(mem) => self.vector_memory(inst, mem),
            Body::Ds(ds) => self.ds(inst, ds),
        };
        match done {
            Ok(()) => Flow::Next,
            Err(stop) => Flow::Stop(stop),
        }
    }

    /// Whether the program may not touch the register: a trap temporary, outside the trap handler.
    /// By the ISA guide it reads 0 there, and writes to it are dropped. (Addresses and descriptors
    /// of memory accesses are taken from it all the same.)
    fn is_barred(&self, code: u8) -> bool {
        is_trap_temporary(code) && self.wave.status & status::PRIV == 0
    }

    /// A scalar operand, 32 bits.
    fn scalar32(&self, src: Src) -> u32 {
        match src {
            Src::Scalar(code) if self.is_barred(code & 0x7f) => 0,
            Src::Scalar(code) => self.wave.scalar[usize::from(code & 0x7f)],
            Src::Inline(_, bits) | Src::Literal(_, bits) => bits as u32,
            Src::Special(special) => self.special(special) as u32,
            Src::Vgpr(_) | Src::Acc(_) | Src::None => 0,
        }
    }

    /// A scalar operand, 64 bits; register pairs are even.
    fn scalar64(&self, src: Src) -> u64 {
        match src {
            Src::Scalar(code) if self.is_barred(code & 0x7e) => 0,
            Src::Scalar(code) => self.wave.scalar64(usize::from(code & 0x7e)),
            Src::Inline(_, bits) | Src::Literal(_, bits) => bits,
            Src::Special(special) => self.special(special),
            Src::Vgpr(_) | Src::Acc(_) | Src::None => 0,
        }
    }

    fn special(&self, special: Special) -> u64 {
        match special {
            Special::SharedBase => self.apertures.shared,
            Special::SharedLimit => self.apertures.shared | 0xffff_ffff,
            Special::PrivateBase => self.apertures.private,
            Special::PrivateLimit => self.apertures.private | 0xffff_ffff,
            Special::PopsExitingWaveId => 0,
            Special::Vccz => u64::from(self.wave.vcc() == 0),
            Special::Execz => u64::from(self.wave.exec() == 0),
            Special::Scc => u64::from(self.wave.scc),
            Special::LdsDirect => u64::from(self.lds_dword(self.wave.m0() & 0xffff)),
        }
    }

    fn set32(&mut self, dst: u8, value: u32) {
        if !self.is_barred(dst & 0x7f) {
            self.wave.scalar[usize::from(dst & 0x7f)] = value;
        }
    }

    fn set64(&mut self, dst: u8, value: u64) {
        if !self.is_barred(dst & 0x7e) {
            self.wave.set_scalar64(usize::from(dst & 0x7e), value);
        }
    }
}

/// Whether an operand's code names a trap temporary.
const fn is_trap_temporary(code: u8) -> bool {
    matches!(code as usize, sreg::TTMP0..sreg::M0)
}

/// The stop for an instruction that is known but not interpreted.
fn unsupported(inst: &Inst) -> Stop {
    Stop::Error(ExecError::Unsupported {
        text: inst.to_string(),
        dwords: inst.dwords.clone(),
    })
}
