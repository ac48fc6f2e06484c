// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What changes the flow of control: branches, calls, traps, barriers, messages, the end of the
//! program.

use super::{unsupported, Flow, Machine, Stop};
use crate::inst::{Inst, Src};
use crate::op::{Sop1, Sopp};
use crate::wave::{mode, status, trapsts};

/// Where a branch with this SIMM16 goes: dwords from the next instruction.
pub(super) fn target(inst: &Inst, imm: u16) -> u64 {
    inst.next().wrapping_add_signed(i64::from(imm as i16) * 4)
}

impl Machine<'_> {
    fn branch_if(&self, condition: bool, inst: &Inst, imm: u16) -> Flow {
        if condition {
            Flow::Jump(target(inst, imm))
        } else {
            Flow::Next
        }
    }

    pub(super) fn sopp(&mut self, inst: &Inst, op: Sopp, imm: u16) -> Flow {
        use Sopp::*;
        match op {
            s_branch => Flow::Jump(target(inst, imm)),
            s_cbranch_scc0 => self.branch_if(!self.wave.scc, inst, imm),
            s_cbranch_scc1 => self.branch_if(self.wave.scc, inst, imm),
            s_cbranch_vccz => self.branch_if(self.wave.vcc() == 0, inst, imm),
            s_cbranch_vccnz => self.branch_if(self.wave.vcc() != 0, inst, imm),
            s_cbranch_execz => self.branch_if(self.wave.exec() == 0, inst, imm),
            s_cbranch_execnz => self.branch_if(self.wave.exec() != 0, inst, imm),
            s_cbranch_cdbgsys => self.branch_if(self.is_set(status::COND_DBG_SYS), inst, imm),
            s_cbranch_cdbguser => self.branch_if(self.is_set(status::COND_DBG_USER), inst, imm),
            s_cbranch_cdbgsys_or_user => {
                let either = status::COND_DBG_SYS | status::COND_DBG_USER;
                self.branch_if(self.wave.status & either != 0, inst, imm)
            }
            s_cbranch_cdbgsys_and_user => {
                let both = status::COND_DBG_SYS | status::COND_DBG_USER;
                self.branch_if(self.is_set(both), inst, imm)
            }
            s_endpgm | s_endpgm_saved | s_endpgm_ordered_ps_done => Flow::Stop(Stop::Ended),
            s_barrier => Flow::Stop(Stop::Barrier),
            s_sleep | s_wakeup => Flow::Yield,
            s_icache_inv => Flow::Refetch,
            s_sendmsg => Flow::Stop(Stop::Message(imm)),
            s_sendmsghalt => {
                self.wave.status |= status::HALT;
                Flow::Stop(Stop::Message(imm))
            }
            s_sethalt => self.set_halt(imm),
            s_trap => self.trap(imm as u8),
            s_set_gpr_idx_off => {
                self.wave.mode &= !mode::GPR_IDX_EN;
                Flow::Next
            }
            s_set_gpr_idx_mode => {
                let index = self.wave.m0();
                self.set_gpr_index(index, imm.into());
                Flow::Next
            }
            // Memory is always up to date here: there is nothing to wait for.
            s_nop | s_waitcnt | s_setprio | s_incperflevel | s_decperflevel | s_ttracedata => {
                Flow::Next
            }
            s_setkill => Flow::Stop(unsupported(inst)),
        }
    }

    /// Whether all of these bits of STATUS are set.
    fn is_set(&self, bits: u32) -> bool {
        self.wave.status & bits == bits
    }

    fn set_halt(&mut self, imm: u16) -> Flow {
        if imm & 1 == 0 {
            self.wave.status &= !status::HALT;
            return Flow::Next;
        }
        self.wave.status |= status::HALT;
        Flow::Stop(Stop::Halted)
    }

    /// TTMP1:TTMP0 take the address of the `s_trap` itself; handlers skip it.
    fn trap(&mut self, id: u8) -> Flow {
        if self.wave.enter_trap(id, false) {
            return Flow::Jump(self.wave.pc);
        }
        Flow::Stop(Stop::Trap(id))
    }

    pub(super) fn sop1(&mut self, inst: &Inst, op: Sop1, dst: u8, src: Src) -> Flow {
        use Sop1::*;
        const PC: u64 = 0xffff_ffff_ffff;
        match op {
            s_getpc_b64 => self.set64(dst, inst.next()),
            s_setpc_b64 => return Flow::Jump(self.scalar64(src) & PC),
            s_swappc_b64 => {
                let to = self.scalar64(src) & PC;
                self.set64(dst, inst.next());
                return Flow::Jump(to);
            }
            s_rfe_b64 => {
                // TTMPs, mostly.
                self.wave.pc = self.scalar64(src) & PC;
                self.wave.status &= !status::PRIV;
                // A context save that was asked for meanwhile comes now.
                if self.wave.trapsts & trapsts::SAVECTX != 0 {
                    self.wave.except_here(0);
                }
                return Flow::Jump(self.wave.pc);
            }
            s_movrels_b32 => {
                let value = self.scalar32(self.relative(src));
                self.set32(dst, value);
            }
            s_movrels_b64 => {
                let value = self.scalar64(self.relative(src));
                self.set64(dst, value);
            }
            _ if self.sop1_value(op, dst, src) => {}
            _ => return Flow::Stop(unsupported(inst)),
        }
        Flow::Next
    }

    /// The SGPR that lies M0 further on.
    fn relative(&self, src: Src) -> Src {
        match src {
            Src::Scalar(code) => Src::Scalar(code.wrapping_add(self.wave.m0() as u8) & 0x7f),
            other => other,
        }
    }
}
