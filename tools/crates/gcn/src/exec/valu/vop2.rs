// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! VOP2: two sources, with VCC or the destination as an implicit third.

use super::{Done, Machine};
use crate::exec::unsupported;
use crate::float::{fma32, min_max, soft, F16, F32};
use crate::inst::{Inst, Valu};
use crate::op::Vop2;
use crate::wave::LANES;

impl Machine<'_> {
    pub(super) fn vop2(&mut self, inst: &Inst, v: &Valu, op: Vop2) -> Done {
        use Vop2::*;
        match op {
            v_and_b32 => self.map2(v, |a, b| a & b),
            v_or_b32 => self.map2(v, |a, b| a | b),
            v_xor_b32 => self.map2(v, |a, b| a ^ b),
            v_xnor_b32 => self.map2(v, |a, b| !(a ^ b)),
            v_lshlrev_b32 => self.map2(v, |a, b| b << (a & 31)),
            v_lshrrev_b32 => self.map2(v, |a, b| b >> (a & 31)),
            v_ashrrev_i32 => self.map2(v, |a, b| (b as i32 >> (a & 31)) as u32),
            v_min_i32 => self.map2(v, |a, b| (a as i32).min(b as i32) as u32),
            v_max_i32 => self.map2(v, |a, b| (a as i32).max(b as i32) as u32),
            v_min_u32 => self.map2(v, u32::min),
            v_max_u32 => self.map2(v, u32::max),
            v_add_u32 if v.mods.clamp => self.map2(v, u32::saturating_add),
            v_sub_u32 if v.mods.clamp => self.map2(v, u32::saturating_sub),
            v_subrev_u32 if v.mods.clamp => self.map2(v, |a, b| b.saturating_sub(a)),
            v_add_u32 => self.map2(v, u32::wrapping_add),
            v_sub_u32 => self.map2(v, u32::wrapping_sub),
            v_subrev_u32 => self.map2(v, |a, b| b.wrapping_sub(a)),
            v_cndmask_b32 => self.conditional(v),
            v_add_co_u32 => self.carry(v, false, |a, b, _| u64::from(a) + u64::from(b)),
            v_addc_co_u32 => self.carry(v, true, |a, b, c| u64::from(a) + u64::from(b) + c),
            v_sub_co_u32 => self.carry(v, false, |a, b, _| borrow(a, b, 0)),
            v_subrev_co_u32 => self.carry(v, false, |a, b, _| borrow(b, a, 0)),
            v_subb_co_u32 => self.carry(v, true, borrow),
            v_subbrev_co_u32 => self.carry(v, true, |a, b, c| borrow(b, a, c)),
            // What CLAMP makes of these nobody says.
            v_mul_i32_i24 | v_mul_hi_i32_i24 | v_mul_u32_u24 | v_mul_hi_u32_u24 if v.mods.clamp => {
                Err(unsupported(inst))
            }
            v_mul_i32_i24 => self.map2(v, |a, b| signed24(a).wrapping_mul(signed24(b)) as u32),
            v_mul_hi_i32_i24 => self.map2(v, |a, b| ((signed24(a) * signed24(b)) >> 32) as u32),
            v_mul_u32_u24 => self.map2(v, |a, b| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
            v_mul_hi_u32_u24 => self.map2(v, |a, b| {
                ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> 32) as u32
            }),
            _ => self.vop2_float(inst, v, op),
        }
    }

    fn vop2_float(&mut self, inst: &Inst, v: &Valu, op: Vop2) -> Done {
        use Vop2::*;
        match op {
            v_add_f32 => self.float2(v, soft::add, |a, b| a + b),
            v_sub_f32 => self.float2(v, exact_sub, |a, b| a - b),
            v_subrev_f32 => self.float2(v, exact_subrev, |a, b| b - a),
            v_mul_f32 => self.float2(v, soft::mul, |a, b| a * b),
            v_min_f32 => self.float_bits(v, |fp, a, b, _| min_max(F32, fp.ieee, false, a, b)),
            v_max_f32 => self.float_bits(v, |fp, a, b, _| min_max(F32, fp.ieee, true, a, b)),
            v_fmac_f32 | v_fmamk_f32 | v_fmaak_f32 => self.float3(v, soft::fma, fma32),
            v_mac_f32 | v_madmk_f32 | v_madak_f32 => self.single_mad(v, soft::mul),
            v_fmac_f64 => self.double_fma(v),
            v_add_f16 => self.half2(v, soft::add, |a, b| a + b),
            v_sub_f16 => self.half2(v, exact_sub, |a, b| a - b),
            v_subrev_f16 => self.half2(v, exact_subrev, |a, b| b - a),
            v_mul_f16 => self.half2(v, soft::mul, |a, b| a * b),
            v_min_f16 => self.half_bits(v, |fp, a, b, _| min_max(F16, fp.ieee, false, a, b)),
            v_max_f16 => self.half_bits(v, |fp, a, b, _| min_max(F16, fp.ieee, true, a, b)),
            v_mac_f16 | v_madmk_f16 | v_madak_f16 => self.half_mad(v),
            v_ldexp_f16 => self.half_bits(v, |fp, a, b, _| {
                soft::scale(F16, fp, a, i32::from(b as i16))
            }),
            _ => self.vop2_short(inst, v, op),
        }
    }

    fn vop2_short(&mut self, inst: &Inst, v: &Valu, op: Vop2) -> Done {
        use Vop2::*;
        let clamp = v.mods.clamp;
        match op {
            v_add_u16 => self.map16(v, |a, b, _| saturate16(a + b, clamp)),
            v_sub_u16 => self.map16(v, |a, b, _| difference16(a, b, clamp)),
            v_subrev_u16 => self.map16(v, |a, b, _| difference16(b, a, clamp)),
            v_mul_lo_u16 => self.map16(v, |a, b, _| a.wrapping_mul(b)),
            v_lshlrev_b16 => self.map16(v, |a, b, _| b << (a & 15)),
            v_lshrrev_b16 => self.map16(v, |a, b, _| b >> (a & 15)),
            v_ashrrev_i16 => self.map16(v, |a, b, _| (b as i16 >> (a & 15)) as u32),
            v_max_u16 => self.map16(v, |a, b, _| a.max(b)),
            v_min_u16 => self.map16(v, |a, b, _| a.min(b)),
            v_max_i16 => self.map16(v, |a, b, _| (a as i16).max(b as i16) as u32),
            v_min_i16 => self.map16(v, |a, b, _| (a as i16).min(b as i16) as u32),
            v_dot2c_f32_f16 | v_dot2c_f32_bf16 | v_dot2c_i32_i16 | v_dot4c_i32_i8
            | v_dot8c_i32_i4 | v_pk_fmac_f16 => self.dot_accumulate(inst, v, op),
            _ => Err(crate::exec::unsupported(inst)),
        }
    }

    /// Source 1 where the mask's bit is set, else source 0.
    fn conditional(&mut self, v: &Valu) -> Done {
        let mask = self.scalar64(v.src[2]);
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let mut d = *self.src32(v, 0, hold_a);
        super::operand::merge(&mut d, self.src32(v, 1, hold_b), mask);
        self.put32(v, &d);
        Ok(())
    }

    /// Sums whose bit 32 goes to a lane mask; inactive lanes' bits are cleared.
    #[inline(always)]
    fn carry(&mut self, v: &Valu, with: bool, f: impl Fn(u32, u32, u64) -> u64) -> Done {
        let carry_in = if with { self.scalar64(v.src[2]) } else { 0 };
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        let mut d = [0; LANES];
        let mut carry_out = 0;
        for i in 0..LANES {
            let sum = f(a[i], b[i], carry_in >> i & 1);
            let carry = sum >> 32 & 1;
            carry_out |= carry << i;
            d[i] = sum as u32;
        }
        if v.mods.clamp {
            // Saturates: a sum to all ones, a difference to zero.
            let subtracts = f(0, 1, 0) >> 32 != 0 || f(1, 0, 0) >> 32 != 0;
            let limit = if subtracts { 0 } else { u32::MAX };
            for (i, d) in d.iter_mut().enumerate() {
                *d = if carry_out >> i & 1 != 0 { limit } else { *d };
            }
        }
        let exec = self.wave.exec();
        self.put32(v, &d);
        self.set64(v.sdst, carry_out & exec);
        Ok(())
    }
}

#[inline(always)]
fn signed24(value: u32) -> i64 {
    i64::from((value << 8) as i32 >> 8)
}

/// a - b - c; bit 32 is the borrow.
#[inline(always)]
fn borrow(a: u32, b: u32, c: u64) -> u64 {
    u64::from(a).wrapping_sub(u64::from(b)).wrapping_sub(c)
}

#[inline(always)]
fn saturate16(sum: u32, clamp: bool) -> u32 {
    if clamp {
        sum.min(0xffff)
    } else {
        sum
    }
}

#[inline(always)]
fn difference16(a: u32, b: u32, clamp: bool) -> u32 {
    if clamp {
        a.saturating_sub(b)
    } else {
        a.wrapping_sub(b)
    }
}

fn exact_sub(format: crate::float::Format, fp: crate::float::Fp, a: u64, b: u64) -> u64 {
    // A NaN keeps its sign.
    let b = if format.is_nan(b) {
        b
    } else {
        b ^ format.sign()
    };
    soft::add(format, fp, a, b)
}

fn exact_subrev(format: crate::float::Format, fp: crate::float::Fp, a: u64, b: u64) -> u64 {
    exact_sub(format, fp, b, a)
}
