// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Waves whose instructions are looked at one by one: stepped ones, those with exceptions enabled,
//! and those of a process that watches addresses.
//!
//! An exception traps at the earliest after its instruction, with the PC at the next one; one of a
//! memory operation comes when the operation is waited for, or a few instructions later, unless the
//! debugger asks for precise ones. An exception that does not trap leaves its bit in TRAPSTS; those
//! of arithmetic do so only while one of them is enabled, for nobody looks at them otherwise.

use super::{lacks_registers, Workgroup};
use crate::code::{Block, CodeCache};
use crate::exec::{go_on, Ended, Flow, Machine, Stop};
use crate::inst::{Body, Inst};
use crate::memory::{Access, Memory};
use crate::op::Sopp;
use crate::wave::{mode, status, trapsts, Wave};

/// Exceptions of arithmetic that trap.
const ARITHMETIC: u32 = trapsts::ARITHMETIC << mode::EXCP_EN_SHIFT;

fn sopp(inst: &Inst) -> Option<Sopp> {
    match inst.body {
        Body::Sopp { op, .. } => Some(op),
        _ => None,
    }
}

/// Whether it waits for memory operations, or another trap would come first.
fn waits(inst: &Inst) -> bool {
    use Sopp::*;
    let op = sopp(inst);
    matches!(op, Some(s_waitcnt | s_barrier | s_trap)) || ends(inst)
}

fn ends(inst: &Inst) -> bool {
    use Sopp::*;
    matches!(
        sopp(inst),
        Some(s_endpgm | s_endpgm_saved | s_endpgm_ordered_ps_done)
    )
}

/// Whether the wave traps instead of executing the instruction that it is at.
fn traps_before(wave: &mut Wave, inst: &Inst) -> bool {
    let due = wave.pending.bits != 0 && (wave.pending.after == 0 || waits(inst));
    // A wave that returns from that trap ends.
    let at_end = ends(inst) && wave.mode & mode::TRAP_ON_END != 0;
    if at_end {
        wave.mode &= !mode::TRAP_ON_END;
    }
    match (due, at_end) {
        (false, false) => false,
        (_, false) => wave.except_here(0),
        (_, true) => wave.except_here(trapsts::WAVE_END),
    }
}

impl Workgroup {
    /// Like [`Workgroup::run_block`], slower.
    #[inline(never)]
    pub(super) fn run_traced(
        &mut self,
        index: usize,
        memory: &mut dyn Memory,
        block: &Block,
    ) -> Ended {
        let wave = &mut self.waves[index];
        if let Some(error) = lacks_registers(wave, block) {
            return Ended::Stopped(Stop::Error(error));
        }
        let (lds, apertures) = (self.lds.as_mut_slice(), self.apertures);
        let mut machine = Machine {
            target: block.target,
            wave,
            lds,
            apertures,
            memory,
        };
        for inst in &block.insts {
            machine.wave.pc = inst.pc;
            if traps_before(machine.wave, inst) {
                return Ended::Jumped;
            }
            let watched = machine.watched(inst, &self.debug.watches);
            let arithmetic = match machine.wave.mode & ARITHMETIC {
                0 => 0,
                _ => machine.arithmetic(inst),
            };
            let steps = machine.wave.mode & mode::DEBUG_EN != 0;
            let flow = machine.step(inst);
            self.executed += 1;
            let wave = &mut *machine.wave;
            // In the handler by now: `s_trap` is no instruction that anything comes after.
            if is_done(&flow) && wave.status & status::PRIV == 0 {
                wave.pending.after = wave.pending.after.saturating_sub(1);
                wave.except(watched, self.debug.lateness());
                wave.except(arithmetic, 0);
                if steps {
                    wave.except(trapsts::TRAP_AFTER_INST, 0);
                }
            }
            if let Some(ended) = go_on(machine.wave, inst, flow) {
                return ended;
            }
        }
        Ended::Jumped
    }

    /// Memory refused a wave's access for good: it goes on without, and traps for `bits` of
    /// TRAPSTS. False: it cannot go on, for it has no handler or is in it.
    ///
    /// `access` is what [`Workgroup::run`] came back with, and the wave is still at its
    /// instruction.
    pub fn violate(
        &mut self,
        index: usize,
        access: Access,
        bits: u32,
        memory: &mut dyn Memory,
        code: &mut CodeCache,
    ) -> bool {
        let wave = &mut self.waves[index];
        wave.set_replay(0);
        // Nothing comes after an instruction that cannot be fetched.
        let stays = access == Access::Fetch || !wave.can_trap();
        if stays || !self.retire(index, memory, code) {
            return self.waves[index].except_here(bits);
        }
        let late = self.debug.lateness();
        let wave = &mut self.waves[index];
        wave.except(bits, late);
        if wave.mode & mode::DEBUG_EN != 0 {
            wave.except(trapsts::TRAP_AFTER_INST, 0);
        }
        true
    }
}

/// Whether the instruction was executed, and another one follows.
fn is_done(flow: &Flow) -> bool {
    match flow {
        Flow::Stop(Stop::Ended) => false,
        Flow::Stop(stop) => stop.is_past(),
        _ => true,
    }
}
