// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The scalar ALU: SOP1, SOP2, SOPC and SOPK but what changes the flow of control (`branch`).

use super::{unsupported, Done, Flow, Machine};
use crate::inst::{Inst, Src};
use crate::op::{Sop1, Sop2, Sopc, Sopk};
use crate::wave::{mode, sreg};

impl Machine<'_> {
    /// Writes a result whose being non-zero is SCC.
    fn logic32(&mut self, dst: u8, value: u32) {
        self.wave.scc = value != 0;
        self.set32(dst, value);
    }

    fn logic64(&mut self, dst: u8, value: u64) {
        self.wave.scc = value != 0;
        self.set64(dst, value);
    }

    /// Writes a result and SCC apart.
    fn flagged(&mut self, dst: u8, value: u32, scc: bool) {
        self.wave.scc = scc;
        self.set32(dst, value);
    }

    pub(super) fn sop2(&mut self, inst: &Inst, op: Sop2, dst: u8, src: [Src; 2]) -> Done {
        let wide = op.types()[1].dwords() == 2;
        if wide || op == Sop2::s_cselect_b64 || op == Sop2::s_bfm_b64 {
            return self.sop2_wide(inst, op, dst, src);
        }
        let (a, b) = (self.scalar32(src[0]), self.scalar32(src[1]));
        if !self.sop2_arithmetic(op, dst, a, b) && !self.sop2_bits(op, dst, a, b) {
            return Err(unsupported(inst));
        }
        Ok(())
    }

    /// 32-bit integer arithmetic. False if `op` is none.
    fn sop2_arithmetic(&mut self, op: Sop2, dst: u8, a: u32, b: u32) -> bool {
        use Sop2::*;
        let (signed_a, signed_b) = (a as i32, b as i32);
        let carry = u32::from(self.wave.scc);
        let (value, scc) = match op {
            s_add_u32 => a.overflowing_add(b),
            s_sub_u32 => a.overflowing_sub(b),
            s_add_i32 => (a.wrapping_add(b), signed_a.overflowing_add(signed_b).1),
            s_sub_i32 => (a.wrapping_sub(b), signed_a.overflowing_sub(signed_b).1),
            s_addc_u32 => {
                let sum = u64::from(a) + u64::from(b) + u64::from(carry);
                (sum as u32, sum >> 32 != 0)
            }
            s_subb_u32 => {
                let sum = u64::from(b) + u64::from(carry);
                (a.wrapping_sub(b).wrapping_sub(carry), sum > u64::from(a))
            }
            s_min_i32 => (signed_a.min(signed_b) as u32, signed_a < signed_b),
            s_min_u32 => (a.min(b), a < b),
            // SCC: the first one is chosen, which of equal ones it is here and is not above.
            s_max_i32 => (signed_a.max(signed_b) as u32, signed_a >= signed_b),
            s_max_u32 => (a.max(b), a >= b),
            s_absdiff_i32 => {
                let value = signed_a.wrapping_sub(signed_b).wrapping_abs() as u32;
                (value, value != 0)
            }
            s_lshl1_add_u32 | s_lshl2_add_u32 | s_lshl3_add_u32 | s_lshl4_add_u32 => {
                let shift = op as u32 - s_lshl1_add_u32 as u32 + 1;
                let sum = (u64::from(a) << shift) + u64::from(b);
                (sum as u32, sum >> 32 != 0)
            }
            _ => return false,
        };
        self.flagged(dst, value, scc);
        true
    }

    /// 32-bit logic, shifts, fields, products and moves. False if `op` is none.
    fn sop2_bits(&mut self, op: Sop2, dst: u8, a: u32, b: u32) -> bool {
        use Sop2::*;
        let value = match op {
            s_cselect_b32 => {
                if self.wave.scc {
                    a
                } else {
                    b
                }
            }
            s_bfm_b32 => ((1u32 << (a & 31)) - 1) << (b & 31),
            s_mul_i32 => a.wrapping_mul(b),
            s_mul_hi_u32 => ((u64::from(a) * u64::from(b)) >> 32) as u32,
            s_mul_hi_i32 => ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32,
            s_pack_ll_b32_b16 => a & 0xffff | b << 16,
            s_pack_lh_b32_b16 => a & 0xffff | b & 0xffff_0000,
            s_pack_hh_b32_b16 => a >> 16 | b & 0xffff_0000,
            _ => return self.sop2_logic(op, dst, a, b),
        };
        self.set32(dst, value);
        true
    }

    fn sop2_logic(&mut self, op: Sop2, dst: u8, a: u32, b: u32) -> bool {
        use Sop2::*;
        let value = match op {
            s_and_b32 => a & b,
            s_or_b32 => a | b,
            s_xor_b32 => a ^ b,
            s_andn2_b32 => a & !b,
            s_orn2_b32 => a | !b,
            s_nand_b32 => !(a & b),
            s_nor_b32 => !(a | b),
            s_xnor_b32 => !(a ^ b),
            s_lshl_b32 => a << (b & 31),
            s_lshr_b32 => a >> (b & 31),
            s_ashr_i32 => (a as i32 >> (b & 31)) as u32,
            s_bfe_u32 => field(a.into(), b, 32) as u32,
            s_bfe_i32 => signed_field(i64::from(a as i32) as u64, b, 32) as u32,
            _ => return false,
        };
        self.logic32(dst, value);
        true
    }

    fn sop2_wide(&mut self, inst: &Inst, op: Sop2, dst: u8, src: [Src; 2]) -> Done {
        use Sop2::*;
        let (a, b) = (self.scalar64(src[0]), self.scalar64(src[1]));
        let shift = self.scalar32(src[1]);
        let value = match op {
            s_cselect_b64 => {
                self.set64(dst, if self.wave.scc { a } else { b });
                return Ok(());
            }
            s_bfm_b64 => {
                let (bits, at) = (self.scalar32(src[0]) & 63, shift & 63);
                self.set64(dst, ((1u64 << bits) - 1) << at);
                return Ok(());
            }
            s_and_b64 => a & b,
            s_or_b64 => a | b,
            s_xor_b64 => a ^ b,
            s_andn2_b64 => a & !b,
            s_orn2_b64 => a | !b,
            s_nand_b64 => !(a & b),
            s_nor_b64 => !(a | b),
            s_xnor_b64 => !(a ^ b),
            s_lshl_b64 => a << (shift & 63),
            s_lshr_b64 => a >> (shift & 63),
            s_ashr_i64 => (a as i64 >> (shift & 63)) as u64,
            s_bfe_u64 => field(a, shift, 64),
            s_bfe_i64 => signed_field(a, shift, 64),
            _ => return Err(unsupported(inst)),
        };
        self.logic64(dst, value);
        Ok(())
    }

    pub(super) fn sopc(&mut self, op: Sopc, src: [Src; 2]) -> Done {
        use Sopc::*;
        let (a, b) = (self.scalar32(src[0]), self.scalar32(src[1]));
        let (signed_a, signed_b) = (a as i32, b as i32);
        let (wide_a, wide_b) = (self.scalar64(src[0]), self.scalar64(src[1]));
        self.wave.scc = match op {
            s_cmp_eq_i32 | s_cmp_eq_u32 => a == b,
            s_cmp_lg_i32 | s_cmp_lg_u32 => a != b,
            s_cmp_gt_i32 => signed_a > signed_b,
            s_cmp_ge_i32 => signed_a >= signed_b,
            s_cmp_lt_i32 => signed_a < signed_b,
            s_cmp_le_i32 => signed_a <= signed_b,
            s_cmp_gt_u32 => a > b,
            s_cmp_ge_u32 => a >= b,
            s_cmp_lt_u32 => a < b,
            s_cmp_le_u32 => a <= b,
            s_bitcmp0_b32 => a >> (b & 31) & 1 == 0,
            s_bitcmp1_b32 => a >> (b & 31) & 1 == 1,
            s_bitcmp0_b64 => wide_a >> (b & 63) & 1 == 0,
            s_bitcmp1_b64 => wide_a >> (b & 63) & 1 == 1,
            s_cmp_eq_u64 => wide_a == wide_b,
            s_cmp_lg_u64 => wide_a != wide_b,
            s_set_gpr_idx_on => {
                self.set_gpr_index(a, b);
                self.wave.mode |= mode::GPR_IDX_EN;
                return Ok(());
            }
            s_setvskip => {
                let skip = a >> (b & 31) & 1 != 0;
                self.wave.mode = (self.wave.mode & !mode::VSKIP) | (u32::from(skip) * mode::VSKIP);
                return Ok(());
            }
        };
        Ok(())
    }

    /// M0 holds the VGPR index in 7:0 and which operands it is added to in 15:12.
    pub(super) fn set_gpr_index(&mut self, index: u32, modes: u32) {
        let m0 = self.wave.m0() & !0xf0ff;
        self.wave.scalar[sreg::M0] = m0 | index & 0xff | (modes & 0xf) << 12;
    }

    pub(super) fn sopk(&mut self, inst: &Inst, op: Sopk, dst: u8, imm: u16, literal: u32) -> Flow {
        use Sopk::*;
        let old = self.scalar32(Src::Scalar(dst));
        let (signed, extended) = (old as i32, i32::from(imm as i16));
        let unsigned = u32::from(imm);
        match op {
            s_movk_i32 => self.set32(dst, extended as u32),
            s_cmovk_i32 if self.wave.scc => self.set32(dst, extended as u32),
            s_cmovk_i32 => {}
            s_cmpk_eq_i32 => self.wave.scc = signed == extended,
            s_cmpk_lg_i32 => self.wave.scc = signed != extended,
            s_cmpk_gt_i32 => self.wave.scc = signed > extended,
            s_cmpk_ge_i32 => self.wave.scc = signed >= extended,
            s_cmpk_lt_i32 => self.wave.scc = signed < extended,
            s_cmpk_le_i32 => self.wave.scc = signed <= extended,
            s_cmpk_eq_u32 => self.wave.scc = old == unsigned,
            s_cmpk_lg_u32 => self.wave.scc = old != unsigned,
            s_cmpk_gt_u32 => self.wave.scc = old > unsigned,
            s_cmpk_ge_u32 => self.wave.scc = old >= unsigned,
            s_cmpk_lt_u32 => self.wave.scc = old < unsigned,
            s_cmpk_le_u32 => self.wave.scc = old <= unsigned,
            s_addk_i32 => {
                let (value, overflow) = signed.overflowing_add(extended);
                self.flagged(dst, value as u32, overflow);
            }
            s_mulk_i32 => self.set32(dst, signed.wrapping_mul(extended) as u32),
            s_getreg_b32 => {
                let value = self.getreg(imm);
                self.set32(dst, value);
            }
            s_setreg_b32 => return self.setreg(inst, imm, old),
            s_setreg_imm32_b32 => return self.setreg(inst, imm, literal),
            s_call_b64 => {
                self.set64(dst, inst.next());
                return Flow::Jump(super::branch::target(inst, imm));
            }
            s_cbranch_i_fork => return Flow::Stop(unsupported(inst)),
        }
        Flow::Next
    }

    /// SOP1 without jumps. False if `op` is not here.
    pub(super) fn sop1_value(&mut self, op: Sop1, dst: u8, src: Src) -> bool {
        let types = op.types();
        if types[1].dwords() == 2 {
            let value = self.scalar64(src);
            return self.sop1_wide(op, dst, value);
        }
        let value = self.scalar32(src);
        self.sop1_narrow(op, dst, value)
    }

    fn sop1_narrow(&mut self, op: Sop1, dst: u8, a: u32) -> bool {
        use Sop1::*;
        match op {
            s_mov_b32 => self.set32(dst, a),
            s_cmov_b32 if self.wave.scc => self.set32(dst, a),
            s_cmov_b32 => {}
            s_not_b32 => self.logic32(dst, !a),
            s_wqm_b32 => self.logic32(dst, whole_quads(a.into()) as u32),
            s_quadmask_b32 => self.logic32(dst, quad_mask(a.into()) as u32),
            s_brev_b32 => self.set32(dst, a.reverse_bits()),
            s_bcnt0_i32_b32 => self.logic32(dst, a.count_zeros()),
            s_bcnt1_i32_b32 => self.logic32(dst, a.count_ones()),
            s_ff0_i32_b32 => self.set32(dst, position(a.trailing_ones(), 32)),
            s_ff1_i32_b32 => self.set32(dst, position(a.trailing_zeros(), 32)),
            s_flbit_i32_b32 => self.set32(dst, position(a.leading_zeros(), 32)),
            s_flbit_i32 => self.set32(dst, position(sign_run(i64::from(a as i32)) - 32, 32)),
            s_sext_i32_i8 => self.set32(dst, a as i8 as u32),
            s_sext_i32_i16 => self.set32(dst, a as i16 as u32),
            s_bitset0_b32 | s_bitset1_b32 => {
                let (old, bit) = (self.scalar32(Src::Scalar(dst)), 1 << (a & 31));
                self.set32(
                    dst,
                    if op == s_bitset1_b32 {
                        old | bit
                    } else {
                        old & !bit
                    },
                );
            }
            s_bitset0_b64 | s_bitset1_b64 => {
                let (old, bit) = (self.scalar64(Src::Scalar(dst)), 1 << (a & 63));
                self.set64(
                    dst,
                    if op == s_bitset1_b64 {
                        old | bit
                    } else {
                        old & !bit
                    },
                );
            }
            s_abs_i32 => self.logic32(dst, (a as i32).wrapping_abs() as u32),
            s_bitreplicate_b64_b32 => self.set64(dst, replicate(a)),
            s_set_gpr_idx_idx => {
                let modes = self.wave.m0() >> 12;
                self.set_gpr_index(a, modes);
            }
            s_movreld_b32 => self.set32(dst.wrapping_add(self.wave.m0() as u8), a),
            _ => return false,
        }
        true
    }

    fn sop1_wide(&mut self, op: Sop1, dst: u8, a: u64) -> bool {
        use Sop1::*;
        let exec = self.wave.exec();
        let new_exec = match op {
            s_and_saveexec_b64 => a & exec,
            s_or_saveexec_b64 => a | exec,
            s_xor_saveexec_b64 => a ^ exec,
            s_andn2_saveexec_b64 | s_andn2_wrexec_b64 => a & !exec,
            s_orn2_saveexec_b64 => a | !exec,
            s_nand_saveexec_b64 => !(a & exec),
            s_nor_saveexec_b64 => !(a | exec),
            s_xnor_saveexec_b64 => !(a ^ exec),
            s_andn1_saveexec_b64 | s_andn1_wrexec_b64 => !a & exec,
            s_orn1_saveexec_b64 => !a | exec,
            _ => return self.sop1_wide_value(op, dst, a),
        };
        // "wrexec" keeps the new mask, "saveexec" the old one.
        let saved = if matches!(op, s_andn1_wrexec_b64 | s_andn2_wrexec_b64) {
            new_exec
        } else {
            exec
        };
        self.wave.set_exec(new_exec);
        self.set64(dst, saved);
        self.wave.scc = new_exec != 0;
        true
    }

    fn sop1_wide_value(&mut self, op: Sop1, dst: u8, a: u64) -> bool {
        use Sop1::*;
        match op {
            s_mov_b64 => self.set64(dst, a),
            s_cmov_b64 if self.wave.scc => self.set64(dst, a),
            s_cmov_b64 => {}
            s_not_b64 => self.logic64(dst, !a),
            s_wqm_b64 => self.logic64(dst, whole_quads(a)),
            s_quadmask_b64 => self.logic64(dst, quad_mask(a)),
            s_brev_b64 => self.set64(dst, a.reverse_bits()),
            s_bcnt0_i32_b64 => self.logic32(dst, a.count_zeros()),
            s_bcnt1_i32_b64 => self.logic32(dst, a.count_ones()),
            s_ff0_i32_b64 => self.set32(dst, position(a.trailing_ones(), 64)),
            s_ff1_i32_b64 => self.set32(dst, position(a.trailing_zeros(), 64)),
            s_flbit_i32_b64 => self.set32(dst, position(a.leading_zeros(), 64)),
            s_flbit_i32_i64 => self.set32(dst, position(sign_run(a as i64), 64)),
            s_movreld_b64 => self.set64(dst.wrapping_add(self.wave.m0() as u8), a),
            _ => return false,
        }
        true
    }
}

/// Offset in 4:0 (5:0 for 64 bits), width in 22:16.
fn field(value: u64, control: u32, bits: u32) -> u64 {
    let (offset, width) = (control & (bits - 1), control >> 16 & 0x7f);
    let shifted = value >> offset;
    if width >= 64 {
        shifted
    } else {
        shifted & ((1 << width) - 1)
    }
}

fn signed_field(value: u64, control: u32, bits: u32) -> u64 {
    let (offset, width) = (control & (bits - 1), control >> 16 & 0x7f);
    let available = if bits == 32 { 32 - offset } else { 64 - offset };
    let width = width.min(available);
    if width == 0 {
        return 0;
    }
    let left = 64 - offset - width;
    ((value << left) as i64 >> (64 - width)) as u64
}

/// A bit position, or -1 if there was none.
fn position(count: u32, width: u32) -> u32 {
    if count >= width {
        u32::MAX
    } else {
        count
    }
}

/// How many bits from the top equal the sign, or 64 if all do.
fn sign_run(value: i64) -> u32 {
    (value ^ value >> 63).leading_zeros()
}

fn quad_mask(value: u64) -> u64 {
    (0..16)
        .filter(|quad| value >> (4 * quad) & 0xf != 0)
        .fold(0, |mask, quad| mask | 1 << quad)
}

fn whole_quads(value: u64) -> u64 {
    (0..16)
        .filter(|quad| value >> (4 * quad) & 0xf != 0)
        .fold(0, |mask, quad| mask | 0xf << (4 * quad))
}

/// Each bit twice.
fn replicate(value: u32) -> u64 {
    (0..32)
        .filter(|bit| value >> bit & 1 != 0)
        .fold(0, |wide, bit| wide | 3 << (2 * bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stop_at_the_top() {
        assert_eq!(field(0xabcd_1234, 8 << 16 | 4, 32), 0x23);
        assert_eq!(
            signed_field(0xffff_ffff_8000_0000, 31 | 8 << 16, 32) as u32,
            0xffff_ffff
        );
        assert_eq!(signed_field(0x70, 4 | 3 << 16, 64), u64::MAX);
        assert_eq!(signed_field(0x70, 4, 64), 0);
        assert_eq!(field(u64::MAX, 64 << 16, 64), u64::MAX);
    }

    #[test]
    fn searches_say_minus_one_for_nothing() {
        assert_eq!(position(0u32.trailing_zeros(), 32), u32::MAX);
        assert_eq!(position(sign_run(-1), 64), u32::MAX);
        assert_eq!(sign_run(i64::from(0x00ff_0000)) - 32, 8);
        assert_eq!(replicate(0b101), 0b110011);
        assert_eq!(whole_quads(0x10), 0xf0);
        assert_eq!(quad_mask(0x8001), 0b1001);
    }
}
