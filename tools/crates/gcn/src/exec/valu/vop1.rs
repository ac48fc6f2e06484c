// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! VOP1: one source.

use super::{convert, Done, Machine};
use crate::exec::unsupported;
use crate::float::{half, special, F16, F32, F64};
use crate::inst::{Dst, Inst, Src, Valu};
use crate::op::Vop1;
use crate::wave::LANES;

impl Machine<'_> {
    pub(super) fn vop1(&mut self, inst: &Inst, v: &Valu, op: Vop1) -> Done {
        use Vop1::*;
        match op {
            v_nop | v_clrexcp => Ok(()),
            v_mov_b32 | v_accvgpr_mov_b32 => self.map1(v, |a| a),
            v_mov_b64 => self.wide1(v, |a| a),
            v_not_b32 => self.map1(v, |a| !a),
            v_bfrev_b32 => self.map1(v, u32::reverse_bits),
            v_ffbh_u32 => self.map1(v, |a| if a == 0 { u32::MAX } else { a.leading_zeros() }),
            v_ffbl_b32 => self.map1(v, |a| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
            v_ffbh_i32 => self.map1(v, |a| {
                let run = (a ^ (a as i32 >> 31) as u32).leading_zeros();
                if run == 32 {
                    u32::MAX
                } else {
                    run
                }
            }),
            v_readfirstlane_b32 => self.read_first_lane(v),
            v_swap_b32 => self.swap(v),
            v_prng_b32 => self.map1(v, prng),
            v_permlane16_swap_b32 => self.swap_rows(v, 16),
            v_permlane32_swap_b32 => self.swap_rows(v, 32),
            v_sat_pk_u8_i16 => self.map1(v, |a| {
                let byte = |half: u32| (half as i16).clamp(0, 255) as u32;
                byte(a) | byte(a >> 16) << 8
            }),
            v_screen_partition_4se_b32 => Err(unsupported(inst)),
            _ if convert::is_conversion(op) => self.convert(inst, v, op),
            _ => self.vop1_float(inst, v, op),
        }
    }

    fn vop1_float(&mut self, inst: &Inst, v: &Valu, op: Vop1) -> Done {
        use Vop1::*;
        match op {
            v_fract_f32 => self.float1(v, special::fract32),
            v_trunc_f32 => self.float1(v, f32::trunc),
            v_ceil_f32 => self.float1(v, f32::ceil),
            v_rndne_f32 => self.float1(v, f32::round_ties_even),
            v_floor_f32 => self.float1(v, f32::floor),
            v_exp_f32 | v_exp_legacy_f32 => self.approximate(v, |a| f64::from(a).exp2() as f32),
            v_log_f32 | v_log_legacy_f32 => self.approximate(v, |a| special::log2(a.into()) as f32),
            v_rcp_f32 | v_rcp_iflag_f32 => self.approximate(v, |a| 1.0 / a),
            v_rsq_f32 => self.approximate(v, |a| special::rsq(a.into()) as f32),
            v_sqrt_f32 => self.approximate(v, f32::sqrt),
            v_sin_f32 => self.float1(v, |a| special::sin_turns(a.into()) as f32),
            v_cos_f32 => self.float1(v, |a| special::cos_turns(a.into()) as f32),
            v_frexp_mant_f32 => self.float_bits(v, |_, a, _, _| special::frexp_mantissa(F32, a)),
            v_frexp_exp_i32_f32 => self.map1(v, |a| special::frexp_exponent(F32, a.into()) as u32),
            _ => self.vop1_double(inst, v, op),
        }
    }

    /// What knows no subnormal f32, as source or as result, whatever MODE says; see
    /// [`crate::float`].
    #[inline(always)]
    fn approximate(&mut self, v: &Valu, f: impl Fn(f32) -> f32) -> Done {
        let flush = |value: f32| f32::from_bits(F32.flush(value.to_bits().into()) as u32);
        self.float1(v, |a| flush(f(flush(a))))
    }

    fn vop1_double(&mut self, inst: &Inst, v: &Valu, op: Vop1) -> Done {
        use Vop1::*;
        match op {
            v_trunc_f64 => self.double1(v, f64::trunc),
            v_ceil_f64 => self.double1(v, f64::ceil),
            v_rndne_f64 => self.double1(v, f64::round_ties_even),
            v_floor_f64 => self.double1(v, f64::floor),
            v_fract_f64 => self.double1(v, special::fract64),
            v_rcp_f64 => self.double1(v, |a| special::coarse(1.0 / a)),
            v_rsq_f64 => self.double1(v, |a| special::coarse(special::rsq(a))),
            v_sqrt_f64 => self.double1(v, |a| special::coarse(a.sqrt())),
            v_frexp_mant_f64 => self.double_bits(v, |_, a, _, _| special::frexp_mantissa(F64, a)),
            v_frexp_exp_i32_f64 => self.narrow(v, |a| special::frexp_exponent(F64, a) as u32),
            _ => self.vop1_half(inst, v, op),
        }
    }

    fn vop1_half(&mut self, inst: &Inst, v: &Valu, op: Vop1) -> Done {
        use Vop1::*;
        match op {
            v_rcp_f16 => self.half1(v, |a| 1.0 / a),
            v_sqrt_f16 => self.half1(v, f32::sqrt),
            v_rsq_f16 => self.half1(v, |a| special::rsq(a.into()) as f32),
            v_log_f16 => self.half1(v, |a| special::log2(a.into()) as f32),
            v_exp_f16 => self.half1(v, |a| f64::from(a).exp2() as f32),
            v_floor_f16 => self.half1(v, f32::floor),
            v_ceil_f16 => self.half1(v, f32::ceil),
            v_trunc_f16 => self.half1(v, f32::trunc),
            v_rndne_f16 => self.half1(v, f32::round_ties_even),
            v_fract_f16 => self.half1(v, |a| {
                // Below one in f16 too.
                special::fract32(a).min(half::to_f32(0x3bff))
            }),
            v_sin_f16 => self.half1(v, |a| special::sin_turns(a.into()) as f32),
            v_cos_f16 => self.half1(v, |a| special::cos_turns(a.into()) as f32),
            v_frexp_mant_f16 => self.half_bits(v, |_, a, _, _| special::frexp_mantissa(F16, a)),
            v_frexp_exp_i16_f16 => {
                self.map16(v, |a, _, _| special::frexp_exponent(F16, a.into()) as u32)
            }
            _ => Err(unsupported(inst)),
        }
    }

    /// Both registers are VGPRs; each gets the other's active lanes.
    fn swap(&mut self, v: &Valu) -> Done {
        let mut hold = [0; LANES];
        let source = *self.src32(v, 0, &mut hold);
        let mut hold = [0; LANES];
        let crate::inst::Dst::Vgpr(first) = v.dst else {
            return Ok(());
        };
        let old = *self.raw32(crate::inst::Src::Vgpr(first), &mut hold);
        self.put32(v, &source);
        if let crate::inst::Src::Vgpr(second) = v.src[0] {
            let mask = self.wave.exec();
            super::operand::merge(&mut self.wave.vgpr[usize::from(second)], &old, mask);
        }
        Ok(())
    }

    /// `v_permlane16_swap_b32` and `v_permlane32_swap_b32`: of the destination's rows of so many
    /// lanes the odd ones change places with the even ones of the source. FI: lanes that EXEC
    /// leaves out are read, too; else they keep what they have, and so do their partners, unless
    /// BOUND_CTRL has those read 0.
    fn swap_rows(&mut self, v: &Valu, row: usize) -> Done {
        let (Dst::Vgpr(first), Src::Vgpr(second)) = (v.dst, v.src[0]) else {
            return Ok(());
        };
        let exec = self.wave.exec();
        let active = |lane: usize| exec >> lane & 1 != 0;
        let (fetch, zero) = (v.mods.op_sel & 1 != 0, v.mods.op_sel & 2 != 0);
        let [first, second] = [first, second].map(usize::from);
        let (a, b) = (self.wave.vgpr[first], self.wave.vgpr[second]);
        let take = |value: u32, from: usize, old: u32| match active(from) || fetch {
            true => value,
            false if zero => 0,
            false => old,
        };
        for lane in (0..LANES).filter(|lane| lane / row % 2 == 1) {
            let partner = lane - row;
            if active(lane) {
                self.wave.vgpr[first][lane] = take(b[partner], partner, a[lane]);
            }
            if active(partner) {
                self.wave.vgpr[second][partner] = take(a[lane], lane, b[partner]);
            }
        }
        Ok(())
    }
}

/// The next number of `v_prng_b32`: a shift register with the taps of 0xc5.
pub(super) fn prng(seed: u32) -> u32 {
    let feedback = if seed >> 31 != 0 { 0xc5 } else { 0 };
    seed << 1 ^ feedback
}
