// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! VOP3P: two values in one operation. OP_SEL and OP_SEL_HI say which half of each source the low
//! and the high result take; `neg` and `abs` hold the negations of the low and the high operands.

use super::operand::clamp;
use super::{blank, half_fma, half_result, Done, Machine};
use crate::exec::unsupported;
use crate::float::{fma32, half, least, min_max, settle32, soft, Fp, Round, F16, F32};
use crate::inst::{Inst, Src, Valu};
use crate::op::Vop3p;
use crate::wave::{Vgpr, LANES};

impl Machine<'_> {
    pub(super) fn vop3p(&mut self, inst: &Inst, v: &Valu, op: Vop3p) -> Done {
        use Vop3p::*;
        match op {
            v_accvgpr_read_b32 | v_accvgpr_write_b32 => {
                let mut hold = [0; LANES];
                let lanes = *self.raw32(v.src[0], &mut hold);
                self.put32(v, &lanes);
                Ok(())
            }
            v_pk_mov_b32 => {
                let (a, b) = (self.raw64(v.src[0]), self.raw64(v.src[1]));
                let shift = |index: u32| 32 * u32::from(v.mods.op_sel >> index & 1);
                let d = std::array::from_fn(|i| {
                    a[i] >> shift(0) & 0xffff_ffff | b[i] >> shift(1) << 32
                });
                self.put64(v, &d);
                Ok(())
            }
            v_pk_fma_f32 => {
                self.singles_packed(v, |fp, [a, b, c]| soft::fma(F32, fp, a, b, c), fma32)
            }
            v_pk_mul_f32 => {
                self.singles_packed(v, |fp, [a, b, _]| soft::mul(F32, fp, a, b), |a, b, _| a * b)
            }
            v_pk_add_f32 => {
                self.singles_packed(v, |fp, [a, b, _]| soft::add(F32, fp, a, b), |a, b, _| a + b)
            }
            v_fma_mix_f32 | v_fma_mixlo_f16 | v_fma_mixhi_f16 => self.mix(v, op),
            _ if op.is_matrix() => self.matrix(inst, v, op),
            _ if op.mnemonic().starts_with("v_dot") => self.dot(inst, v, op),
            _ if op.mnemonic().ends_with("f16") => self.halves_packed(inst, v, op),
            _ => self.shorts_packed(inst, v, op),
        }
    }

    /// The two operands of 16 bits that each source gives: low results' and high results'.
    pub(super) fn packed_source(&self, v: &Valu, index: usize, float: bool) -> [Vgpr; 2] {
        let mut hold = [0; LANES];
        let lanes = self.raw32(v.src[index], &mut hold);
        [(v.mods.op_sel, v.mods.neg), (v.mods.op_sel_hi, v.mods.abs)].map(|(select, negate)| {
            let shift = 16 * u32::from(select >> index & 1);
            let flip = if float && negate >> index & 1 != 0 {
                0x8000
            } else {
                0
            };
            lanes.map(|value| value >> shift & 0xffff ^ flip)
        })
    }

    #[inline(always)]
    fn packed16(&mut self, v: &Valu, float: bool, f: impl Fn([u32; 3]) -> u32) -> Done {
        let [a, b, c] = [0, 1, 2].map(|index| self.packed_source(v, index, float));
        let mut d = [0; LANES];
        for i in 0..LANES {
            let low = f([a[0][i], b[0][i], c[0][i]]) & 0xffff;
            d[i] = low | f([a[1][i], b[1][i], c[1][i]]) << 16;
        }
        self.put32(v, &d);
        Ok(())
    }

    fn shorts_packed(&mut self, inst: &Inst, v: &Valu, op: Vop3p) -> Done {
        use Vop3p::*;
        let clamp = v.mods.clamp;
        let extend = |value: u32| i32::from(value as i16);
        let signed = |value: i32| {
            if clamp {
                value.clamp(-32768, 32767) as u32
            } else {
                value as u32
            }
        };
        let unsigned = |value: u64| {
            if clamp {
                value.min(0xffff) as u32
            } else {
                value as u32
            }
        };
        match op {
            v_pk_mad_i16 => self.packed16(v, false, |[a, b, c]| {
                signed(extend(a) * extend(b) + extend(c))
            }),
            v_pk_mad_u16 => self.packed16(v, false, |[a, b, c]| {
                unsigned(u64::from(a) * u64::from(b) + u64::from(c))
            }),
            // What CLAMP makes of it nobody says.
            v_pk_mul_lo_u16 if clamp => Err(unsupported(inst)),
            v_pk_mul_lo_u16 => self.packed16(v, false, |[a, b, _]| a.wrapping_mul(b)),
            v_pk_add_i16 => self.packed16(v, false, |[a, b, _]| signed(extend(a) + extend(b))),
            v_pk_sub_i16 => self.packed16(v, false, |[a, b, _]| signed(extend(a) - extend(b))),
            v_pk_add_u16 => self.packed16(v, false, |[a, b, _]| unsigned(u64::from(a + b))),
            v_pk_sub_u16 if clamp => self.packed16(v, false, |[a, b, _]| a.saturating_sub(b)),
            v_pk_sub_u16 => self.packed16(v, false, |[a, b, _]| a.wrapping_sub(b)),
            v_pk_lshlrev_b16 => self.packed16(v, false, |[a, b, _]| b << (a & 15)),
            v_pk_lshrrev_b16 => self.packed16(v, false, |[a, b, _]| b >> (a & 15)),
            v_pk_ashrrev_i16 => self.packed16(v, false, |[a, b, _]| (extend(b) >> (a & 15)) as u32),
            v_pk_max_i16 => self.packed16(v, false, |[a, b, _]| extend(a).max(extend(b)) as u32),
            v_pk_min_i16 => self.packed16(v, false, |[a, b, _]| extend(a).min(extend(b)) as u32),
            v_pk_max_u16 => self.packed16(v, false, |[a, b, _]| a.max(b)),
            v_pk_min_u16 => self.packed16(v, false, |[a, b, _]| a.min(b)),
            _ => Err(unsupported(inst)),
        }
    }

    fn halves_packed(&mut self, inst: &Inst, v: &Valu, op: Vop3p) -> Done {
        use Vop3p::*;
        let fp = self.other();
        match op {
            v_pk_fma_f16 => self.half_lanes(v, fp, |[a, b, c]| half_fma(fp, a, b, c)),
            v_pk_add_f16 => self.half_lanes(v, fp, |[a, b, _]| {
                half_pair(fp, soft::add, a, b, |a, b| a + b)
            }),
            v_pk_mul_f16 => self.half_lanes(v, fp, |[a, b, _]| {
                half_pair(fp, soft::mul, a, b, |a, b| a * b)
            }),
            v_pk_min_f16 => self.half_lanes(v, fp, |[a, b, _]| min_max(F16, fp.ieee, false, a, b)),
            v_pk_minimum3_f16 => self.half_lanes(v, fp, |[a, b, c]| least(F16, false, [a, b, c])),
            v_pk_maximum3_f16 => self.half_lanes(v, fp, |[a, b, c]| least(F16, true, [a, b, c])),
            v_pk_max_f16 => self.half_lanes(v, fp, |[a, b, _]| min_max(F16, fp.ieee, true, a, b)),
            _ => Err(unsupported(inst)),
        }
    }

    #[inline(always)]
    fn half_lanes(&mut self, v: &Valu, fp: Fp, f: impl Fn([u64; 3]) -> u64) -> Done {
        let clamp = v.mods.clamp;
        self.packed16(v, true, |operands| {
            let operands = operands.map(|bits| match fp.denorm_in {
                true => u64::from(bits),
                false => F16.flush(bits.into()),
            });
            let result = f(operands);
            let result = if fp.denorm_out {
                result
            } else {
                F16.flush(result)
            };
            if clamp {
                clamp_half(fp, result)
            } else {
                result as u32
            }
        })
    }

    /// The low or the high result's f32 operand of a source.
    #[inline]
    fn packed_single<'a>(
        &'a self,
        v: &Valu,
        index: usize,
        high: bool,
        hold: &'a mut Vgpr,
        fp: Fp,
    ) -> &'a Vgpr {
        let (select, negate) = match high {
            false => (v.mods.op_sel, v.mods.neg),
            true => (v.mods.op_sel_hi, v.mods.abs),
        };
        let takes_high = select >> index & 1 != 0;
        let flip = u32::from(negate >> index & 1) << 31;
        if flip == 0 && fp.denorm_in {
            return self.half_of(v.src[index], takes_high, hold);
        }
        let mut other = blank();
        let lanes = self.half_of(v.src[index], takes_high, &mut other);
        *hold = match fp.denorm_in {
            true => lanes.map(|bits| bits ^ flip),
            false => lanes.map(|bits| F32.flush((bits ^ flip).into()) as u32),
        };
        hold
    }

    /// The low or the high register of a pair.
    fn half_of<'a>(&'a self, src: Src, high: bool, hold: &'a mut Vgpr) -> &'a Vgpr {
        match src {
            Src::Vgpr(number) => &self.wave.vgpr[usize::from(number) + usize::from(high)],
            Src::Acc(number) => &self.wave.acc[usize::from(number) + usize::from(high)],
            Src::None => hold,
            scalar => {
                let value = self.scalar64(scalar) >> if high { 32 } else { 0 };
                *hold = [value as u32; LANES];
                hold
            }
        }
    }

    /// Operations with two sources have zeros as the third: it never is a NaN.
    #[inline(always)]
    fn singles_packed(
        &mut self,
        v: &Valu,
        exact: fn(Fp, [u64; 3]) -> u64,
        fast: impl Fn(f32, f32, f32) -> f32,
    ) -> Done {
        let fp = self.single();
        let mut d = [[0; LANES]; 2];
        for (high, d) in [false, true].into_iter().zip(&mut d) {
            let mut hold = [[0; LANES]; 3];
            let [hold_a, hold_b, hold_c] = &mut hold;
            let a = self.packed_single(v, 0, high, hold_a, fp);
            let b = self.packed_single(v, 1, high, hold_b, fp);
            let c = self.packed_single(v, 2, high, hold_c, fp);
            if fp.round == Round::Nearest {
                for i in 0..LANES {
                    let [x, y, z] = [a[i], b[i], c[i]].map(f32::from_bits);
                    d[i] = settle32(fast(x, y, z), [a[i], b[i], c[i]]);
                }
            } else {
                *d = std::array::from_fn(|i| exact(fp, [a[i], b[i], c[i]].map(u64::from)) as u32);
            }
            if !fp.denorm_out {
                *d = d.map(|bits| F32.flush(bits.into()) as u32);
            }
            if v.mods.clamp {
                *d = d.map(|bits| clamp_single(fp, bits));
            }
        }
        self.put_pair(v, &d);
        Ok(())
    }

    /// `v_fma_mix`: f32 fused multiply-add whose sources are f32, or a half of a register where
    /// OP_SEL_HI says so.
    fn mix(&mut self, v: &Valu, op: Vop3p) -> Done {
        let fp = self.single();
        let [a, b, c] = [0, 1, 2].map(|index| self.mix_source(v, index, fp));
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = exact_or(fp, soft::fma, [a[i], b[i], c[i]], fma32);
        }
        if op == Vop3p::v_fma_mix_f32 {
            self.finish32(v, &mut d, fp);
            return Ok(());
        }
        let other = self.other();
        let shift = if op == Vop3p::v_fma_mixhi_f16 { 16 } else { 0 };
        let crate::inst::Dst::Vgpr(dst) = v.dst else {
            return Ok(());
        };
        let old = self.wave.vgpr[usize::from(dst)];
        let placed = std::array::from_fn(|i| {
            let bits = half::round_f32(f32::from_bits(d[i]), other);
            let bits = if v.mods.clamp {
                clamp_half(other, bits.into())
            } else {
                bits.into()
            };
            old[i] & !(0xffff << shift) | bits << shift
        });
        self.put32(v, &placed);
        Ok(())
    }

    fn mix_source(&self, v: &Valu, index: usize, fp: Fp) -> Vgpr {
        let bit = |mask: u8| mask >> index & 1 != 0;
        let mut hold = [0; LANES];
        let lanes = self.raw32(v.src[index], &mut hold);
        let shift = if bit(v.mods.op_sel) { 16 } else { 0 };
        let (negate, magnitude) = (bit(v.mods.neg), bit(v.mods.abs));
        lanes.map(|value| {
            let bits = match bit(v.mods.op_sel_hi) {
                true => half::to_f32((value >> shift) as u16).to_bits(),
                false if fp.denorm_in => value,
                false => F32.flush(value.into()) as u32,
            };
            let bits = if magnitude { bits & 0x7fff_ffff } else { bits };
            if negate {
                bits ^ 0x8000_0000
            } else {
                bits
            }
        })
    }
}

#[inline(always)]
fn exact_or(
    fp: Fp,
    exact: super::Exact3,
    bits: [u32; 3],
    fast: impl Fn(f32, f32, f32) -> f32,
) -> u32 {
    let [a, b, c] = bits;
    if fp.round != Round::Nearest {
        return exact(F32, fp, a.into(), b.into(), c.into()) as u32;
    }
    settle32(
        fast(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c)),
        bits,
    )
}

#[inline(always)]
fn half_pair(fp: Fp, exact: super::Exact2, a: u64, b: u64, fast: impl Fn(f32, f32) -> f32) -> u64 {
    if fp.round != Round::Nearest {
        return exact(F16, fp, a, b);
    }
    half_result(
        fp,
        fast(half::to_f32(a as u16), half::to_f32(b as u16)),
        [a, b, 0],
    )
}

fn clamp_half(fp: Fp, bits: u64) -> u32 {
    clamp(half::to_f32(bits as u16).into(), bits, fp, 0x3c00) as u32
}

fn clamp_single(fp: Fp, bits: u32) -> u32 {
    clamp(f32::from_bits(bits).into(), bits.into(), fp, 0x3f80_0000) as u32
}
