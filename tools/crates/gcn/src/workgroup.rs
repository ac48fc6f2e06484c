// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A work-group: its waves, their shared LDS, and running them until something happens that
//! concerns the caller.
//!
//! The dispatcher owns one [`Workgroup`] for each work-group in flight.

mod traced;

use crate::code::{Block, CodeCache, CodeError};
use crate::debug::Debug;
use crate::dispatch::Apertures;
use crate::exec::{Ended, Machine, Room, Run, Stop};
use crate::inst::Inst;
use crate::memory::{CacheControl, Fault, Memory};
use crate::wave::{Wave, WaveState};

/// Why a wave cannot go on: the program's fault or this interpreter's limit. The PC stays at the
/// instruction.
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
    /// Resource: offset field plus M0\[21:16\], before the VMID's GWS base is added.
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
    /// No wave can issue: each has ended, is halted (STATUS.HALT) or waits at a barrier for a
    /// halted one.
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
    /// `s_trap` with no trap handler; the PC is past it, so calling again ignores it, as hardware
    /// does.
    Trap {
        /// Who.
        wave: usize,
        /// SIMM16\[7:0\].
        id: u8,
        /// Address of the `s_trap`.
        pc: u64,
    },
    /// `ds_gws_*`; the PC is at it. Call [`Workgroup::retire`] when it is granted; until then that
    /// wave asks again at each call.
    Gws {
        /// Who.
        wave: usize,
        /// What.
        request: GwsRequest,
    },
    /// Memory refused. The PC is at the instruction: calling again tries it again (all its lanes);
    /// [`Workgroup::violate`] gives it up.
    Fault {
        /// Who.
        wave: usize,
        /// Address of the instruction.
        pc: u64,
        /// Where and what.
        fault: Fault,
    },
    /// An atomic at an address that is no multiple of its size; nothing was done. The PC is at the
    /// instruction, as with a fault.
    Misaligned {
        /// Who.
        wave: usize,
        /// Address of the instruction.
        pc: u64,
        /// Where.
        address: u64,
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
    /// What a debugger asks for.
    pub debug: Debug,
    /// Instructions executed so far, all waves.
    pub executed: u64,
    /// Whose turn it is.
    turn: usize,
}

/// Instructions that a wave executes before the next one gets its turn.
const SLICE: u64 = 1024;

fn lacks_registers(wave: &Wave, block: &Block) -> Option<ExecError> {
    let (vgprs, accs) = (wave.vgpr.len(), wave.acc.len());
    if block.vgprs <= vgprs && block.accs <= accs {
        return None;
    }
    let lacking = |inst: &&Inst| usize::from(inst.vgprs) > vgprs || usize::from(inst.accs) > accs;
    let text = block
        .insts
        .iter()
        .find(lacking)
        .map_or_else(String::new, Inst::to_string);
    Some(ExecError::Register { text, vgprs, accs })
}

impl Workgroup {
    /// A work-group of `waves` with `lds_bytes` of zeroed LDS.
    pub fn new(waves: Vec<Wave>, lds_bytes: usize, apertures: Apertures) -> Self {
        Workgroup {
            waves,
            lds: vec![0; lds_bytes],
            apertures,
            debug: Debug::default(),
            executed: 0,
            turn: 0,
        }
    }

    /// Runs until something concerns the caller, or about `budget` instructions of all waves
    /// together.
    ///
    /// Waves take turns, so that one can wait for another in a loop.
    pub fn run(&mut self, memory: &mut dyn Memory, code: &mut CodeCache, budget: u64) -> Outcome {
        let end = self.executed.saturating_add(budget);
        loop {
            self.release_barrier();
            let Some(wave) = self.next_wave() else {
                return if self.is_done() {
                    Outcome::Done
                } else {
                    Outcome::Halted
                };
            };
            if self.executed >= end {
                return Outcome::Budget;
            }
            self.turn = (wave + 1) % self.waves.len();
            let slice = SLICE.min(end - self.executed);
            if let Some(outcome) = self.run_wave(wave, memory, code, slice) {
                return outcome;
            }
        }
    }

    /// The next wave, in turn, that can issue. It is still its turn if the budget is used up.
    fn next_wave(&self) -> Option<usize> {
        let count = self.waves.len();
        (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|index| self.waves[*index].can_issue())
    }

    /// Lets the waves go on once all that have not ended are at the barrier.
    fn release_barrier(&mut self) {
        let alive = |wave: &&mut Wave| wave.state != WaveState::Ended;
        if self
            .waves
            .iter_mut()
            .filter(alive)
            .all(|wave| wave.state == WaveState::Barrier)
        {
            for wave in self.waves.iter_mut().filter(alive) {
                wave.state = WaveState::Ready;
            }
        }
    }

    /// Runs one wave for at most about `slice` instructions.
    fn run_wave(
        &mut self,
        index: usize,
        memory: &mut dyn Memory,
        code: &mut CodeCache,
        slice: u64,
    ) -> Option<Outcome> {
        let end = self.executed + slice;
        let watches = self.debug.is_watching();
        while self.executed < end {
            let pc = self.waves[index].pc;
            let (block, room) = match code.block(pc, memory) {
                Ok(found) => found,
                Err(CodeError::Fault(fault)) => {
                    return Some(Outcome::Fault {
                        wave: index,
                        pc,
                        fault,
                    })
                }
                Err(CodeError::Error(error)) => {
                    return Some(Outcome::Error {
                        wave: index,
                        pc,
                        error,
                    })
                }
            };
            let ended = match self.waves[index].is_traced(watches) {
                false => self.run_block(index, memory, (block, room)),
                true => self.run_traced(index, memory, block),
            };
            match ended {
                // `s_rfe` to a halted wave.
                Ended::Jumped if !self.waves[index].can_issue() => return None,
                Ended::Jumped => {}
                Ended::Yielded => return None,
                Ended::Refetch => {
                    memory.control(CacheControl::InvalidateCode);
                    code.invalidate();
                }
                Ended::Stopped(stop) => return self.stopped(index, stop),
            }
        }
        None
    }

    /// Runs a block of a wave that nobody looks at.
    fn run_block(
        &mut self,
        index: usize,
        memory: &mut dyn Memory,
        (block, room): (&Block, &mut Room),
    ) -> Ended {
        let wave = &mut self.waves[index];
        if let Some(error) = lacks_registers(wave, block) {
            return Ended::Stopped(Stop::Error(error));
        }
        let (lds, apertures) = (self.lds.as_mut_slice(), self.apertures);
        let machine = Machine {
            target: block.target,
            wave,
            lds,
            apertures,
            memory,
        };
        let executed = &mut self.executed;
        Run {
            machine,
            block,
            room,
            executed,
        }
        .on()
    }

    /// What a stop means for the wave, and whether it concerns the caller.
    fn stopped(&mut self, index: usize, stop: Stop) -> Option<Outcome> {
        let wave = &mut self.waves[index];
        let pc = wave.pc;
        match stop {
            Stop::Ended => wave.state = WaveState::Ended,
            Stop::Barrier => wave.state = WaveState::Barrier,
            Stop::Halted => {}
            Stop::Message(message) => {
                return Some(Outcome::Message {
                    wave: index,
                    message,
                    m0: wave.m0(),
                });
            }
            Stop::Trap(id) => {
                return Some(Outcome::Trap {
                    wave: index,
                    id,
                    pc: pc.wrapping_sub(4),
                })
            }
            Stop::Gws(request) => {
                return Some(Outcome::Gws {
                    wave: index,
                    request,
                })
            }
            Stop::Fault(fault) => {
                return Some(Outcome::Fault {
                    wave: index,
                    pc,
                    fault,
                })
            }
            Stop::Misaligned(address) => {
                return Some(Outcome::Misaligned {
                    wave: index,
                    pc,
                    address,
                })
            }
            Stop::Error(error) => {
                return Some(Outcome::Error {
                    wave: index,
                    pc,
                    error,
                })
            }
        }
        None
    }

    /// Steps `wave` over the instruction at its PC: a GWS request was granted, or a fault is to be
    /// skipped. False if there is no instruction to step over.
    pub fn retire(&mut self, wave: usize, memory: &mut dyn Memory, code: &mut CodeCache) -> bool {
        match code.block(self.waves[wave].pc, memory) {
            Ok((block, _)) => {
                self.waves[wave].pc = block.insts[0].next();
                true
            }
            Err(_) => false,
        }
    }

    /// Whether all waves have ended.
    pub fn is_done(&self) -> bool {
        self.waves.iter().all(|wave| wave.state == WaveState::Ended)
    }
}
