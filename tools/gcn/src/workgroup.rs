// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A work-group: its waves, their shared LDS, and running them until something happens that concerns the caller.
//!
//! The dispatcher owns one [`Workgroup`] for each work-group in flight.

use crate::code::CodeCache;
use crate::dispatch::Apertures;
use crate::memory::{Fault, Memory};
use crate::wave::{Wave, WaveState};

/// Why a wave cannot go on: the program's fault or this interpreter's limit. The PC stays at the instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// No such instruction on gfx942.
    #[error("unknown {encoding} instruction {dwords:08x?}")]
    Unknown {
        /// Name of the encoding, e.g. "VOP3".
        encoding: &'static str,
        /// The instruction's dwords as far as they were read.
        dwords: Vec<u32>,
    },
    /// An instruction of gfx942 that is not interpreted.
    #[error("not implemented: {text} {dwords:08x?}")]
    Unsupported {
        /// Disassembly.
        text: String,
        /// The instruction's dwords.
        dwords: Vec<u32>,
    },
    /// A register beyond what the wave was given.
    #[error("{text}: register beyond the wave's {vgprs} VGPRs and {accs} accumulation VGPRs")]
    Register {
        /// Disassembly.
        text: String,
        /// VGPRs of the wave.
        vgprs: usize,
        /// Accumulation VGPRs of the wave.
        accs: usize,
    },
}

/// A global wave sync (GWS) operation, `ds_gws_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GwsOp {
    /// Sets the resource's count to `value`.
    Init,
    /// Releases one.
    SemaV,
    /// Releases `value`.
    SemaBr,
    /// Takes one, waiting.
    SemaP,
    /// Releases all.
    SemaReleaseAll,
    /// Waits for `value` + 1 waves.
    Barrier,
}

/// What a wave asks of the GWS block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GwsRequest {
    /// The operation.
    pub op: GwsOp,
    /// Resource: offset field plus M0[21:16], before the VMID's GWS base is added.
    pub resource: u32,
    /// First active lane's data.
    pub value: u32,
}

/// Why [`Workgroup::run`] returned. `wave` is an index into [`Workgroup::waves`].
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All waves have ended.
    Done,
    /// The budget is used up; call again to go on.
    Budget,
    /// No wave can issue: each has ended, is halted (STATUS.HALT) or waits at a barrier for a halted one.
    Halted,
    /// `s_sendmsg`; the PC is past it. Call again to go on.
    Message {
        /// Who.
        wave: usize,
        /// SIMM16: message in 3:0 (1 = MSG_INTERRUPT), operation, stream.
        message: u16,
        /// M0, the payload.
        m0: u32,
    },
    /// `s_trap` with no trap handler; the PC is past it, so calling again ignores it, as hardware does.
    Trap {
        /// Who.
        wave: usize,
        /// SIMM16\[7:0\].
        id: u8,
        /// Address of the `s_trap`.
        pc: u64,
    },
    /// `ds_gws_*`; the PC is at it. Call [`Workgroup::retire`] when it is granted; until then that wave asks again
    /// at each call.
    Gws {
        /// Who.
        wave: usize,
        /// What.
        request: GwsRequest,
    },
    /// Memory refused. The PC is at the instruction: calling again tries it again (all its lanes).
    Fault {
        /// Who.
        wave: usize,
        /// Address of the instruction.
        pc: u64,
        /// Where and what.
        fault: Fault,
    },
    /// The instruction cannot be executed; calling again says so again.
    Error {
        /// Who.
        wave: usize,
        /// Address of the instruction.
        pc: u64,
        /// Why.
        error: ExecError,
    },
}

/// One work-group in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Workgroup {
    /// Its waves.
    pub waves: Vec<Wave>,
    /// Its LDS.
    pub lds: Vec<u8>,
    /// Where flat addresses mean LDS and scratch.
    pub apertures: Apertures,
    /// Instructions executed so far, all waves.
    pub executed: u64,
}

impl Workgroup {
    /// A work-group of `waves` with `lds_bytes` of zeroed LDS.
    pub fn new(waves: Vec<Wave>, lds_bytes: usize, apertures: Apertures) -> Self {
        Workgroup {
            waves,
            lds: vec![0; lds_bytes],
            apertures,
            executed: 0,
        }
    }

    /// Runs until something concerns the caller, or about `budget` instructions of all waves together.
    pub fn run<M: Memory + ?Sized>(
        &mut self,
        memory: &mut M,
        code: &mut CodeCache,
        budget: u64,
    ) -> Outcome {
        let _ = (code, budget);
        let Some(wave) = self
            .waves
            .iter()
            .position(|wave| wave.state == WaveState::Ready)
        else {
            return Outcome::Done;
        };
        let pc = self.waves[wave].pc;
        let mut dword = [0; 4];
        match memory.fetch(pc, &mut dword) {
            Err(fault) => Outcome::Fault { wave, pc, fault },
            Ok(()) => Outcome::Error {
                wave,
                pc,
                error: ExecError::Unknown {
                    encoding: "any",
                    dwords: vec![u32::from_le_bytes(dword)],
                },
            },
        }
    }

    /// Steps `wave` over the instruction at its PC: a GWS request was granted, or a fault is to be skipped.
    pub fn retire(&mut self, wave: usize) {
        self.waves[wave].pc += 8;
    }

    /// Whether all waves have ended.
    pub fn is_done(&self) -> bool {
        self.waves.iter().all(|wave| wave.state == WaveState::Ended)
    }
}
