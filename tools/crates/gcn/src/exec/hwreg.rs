// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Hardware registers that a program reads and writes with `s_getreg` and `s_setreg`.
//! Numbers: LLVM's `hwreg` symbols for gfx942 and
//! linux:drivers/gpu/drm/amd/amdkfd/cwsr_trap_handler_gfx9.asm.

use super::{Flow, Machine};
use crate::inst::Inst;
use crate::wave::{status, WaveState};

const MODE: u16 = 1;
const STATUS: u16 = 2;
const TRAPSTS: u16 = 3;
const HW_ID: u16 = 4;
const GPR_ALLOC: u16 = 5;
const LDS_ALLOC: u16 = 6;
const SH_MEM_BASES: u16 = 15;
const TBA_LO: u16 = 16;
const TBA_HI: u16 = 17;
const TMA_LO: u16 = 18;
const TMA_HI: u16 = 19;
const XCC_ID: u16 = 20;

/// Register, lowest bit and width of a SIMM16.
fn parts(imm: u16) -> (u16, u32, u32) {
    (
        imm & 0x3f,
        u32::from(imm >> 6 & 0x1f),
        u32::from(imm >> 11) + 1,
    )
}

fn mask(width: u32) -> u32 {
    if width >= 32 {
        u32::MAX
    } else {
        (1 << width) - 1
    }
}

impl Machine<'_> {
    /// The field that `imm` names. Registers that are not modelled read 0.
    pub(super) fn getreg(&self, imm: u16) -> u32 {
        let (register, offset, width) = parts(imm);
        self.hwreg(register) >> offset & mask(width)
    }

    /// Writes the field that `imm` names. STATUS can be written in the trap handler only.
    pub(super) fn setreg(&mut self, inst: &Inst, imm: u16, value: u32) -> Flow {
        let before = self.wave.is_traced(false);
        self.set_field(imm, value);
        match self.wave.is_traced(false) == before {
            true => Flow::Next,
            // The next instruction is executed in another way.
            false => Flow::Jump(inst.next()),
        }
    }

    fn set_field(&mut self, imm: u16, value: u32) {
        let (register, offset, width) = parts(imm);
        let mask = mask(width) << offset;
        let new = self.hwreg(register) & !mask | value << offset & mask;
        match register {
            MODE => self.wave.mode = new,
            STATUS if self.wave.status & status::PRIV != 0 => {
                self.wave.scc = new & status::SCC != 0;
                self.wave.status = new & !COMPUTED;
            }
            TRAPSTS => self.wave.trapsts = new,
            _ => {}
        }
    }

    fn hwreg(&self, register: u16) -> u32 {
        let wave = &*self.wave;
        match register {
            MODE => wave.mode,
            STATUS => self.status(),
            TRAPSTS => wave.trapsts,
            HW_ID => wave.hw_id,
            // VGPR_SIZE 11:6 in eights with the accumulation registers, ACCV_OFFSET 17:12 in fours,
            // SGPR_SIZE 26:24 in sixteens: up to VCC and the trap handler's first four.
            GPR_ALLOC => {
                let vgprs = (wave.vgpr.len() + wave.acc.len()).div_ceil(8).max(1);
                let arch = wave.vgpr.len().div_ceil(4).max(1);
                (vgprs as u32 - 1) << 6 | (arch as u32 - 1) << 12 | SGPR_SIZE << 24
            }
            // LDS_SIZE 20:12 in 64 dwords.
            LDS_ALLOC => (self.lds.len().div_ceil(256) as u32) << 12,
            SH_MEM_BASES => {
                (self.apertures.private >> 48) as u32 | (self.apertures.shared >> 48 << 16) as u32
            }
            // In units of 256 bytes, as SQ_SHADER_TBA_* and _TMA_* hold them.
            TBA_LO => (wave.tba >> 8) as u32,
            TBA_HI => (wave.tba >> 40) as u32,
            TMA_LO => (wave.tma >> 8) as u32,
            TMA_HI => (wave.tma >> 40) as u32,
            XCC_ID => wave.xcc_id,
            _ => 0,
        }
    }

    fn status(&self) -> u32 {
        let wave = &*self.wave;
        let flag = |bit: u32, set: bool| if set { bit } else { 0 };
        wave.status & !COMPUTED
            | flag(status::SCC, wave.scc)
            | flag(EXECZ, wave.exec() == 0)
            | flag(VCCZ, wave.vcc() == 0)
            | flag(IN_BARRIER, wave.state == WaveState::Barrier)
    }
}

/// GPR_ALLOC.SGPR_SIZE of every wave: 112 registers.
const SGPR_SIZE: u32 = 6;
/// STATUS.EXECZ.
const EXECZ: u32 = 1 << 9;
/// STATUS.VCCZ.
const VCCZ: u32 = 1 << 10;
/// STATUS.IN_BARRIER.
const IN_BARRIER: u32 = 1 << 12;
/// What STATUS does not store.
const COMPUTED: u32 = status::SCC | EXECZ | VCCZ | IN_BARRIER;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_taken_apart() {
        // hwreg(HW_REG_TRAPSTS, 8, 2) assembles to 0x0a03.
        assert_eq!(parts(0x0a03), (TRAPSTS, 8, 2));
        assert_eq!(parts(0xf801), (MODE, 0, 32));
        assert_eq!(mask(32), u32::MAX);
    }
}
