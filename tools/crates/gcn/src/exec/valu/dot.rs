// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Dot products of short vectors packed into dwords.

use super::{Done, Machine};
use crate::exec::unsupported;
use crate::float::{half, Fp};
use crate::inst::{Inst, Mods, Valu};
use crate::op::{Vop2, Vop3p};
use crate::wave::LANES;

impl Machine<'_> {
    /// VOP2's: the destination accumulates.
    pub(super) fn dot_accumulate(&mut self, inst: &Inst, v: &Valu, op: Vop2) -> Done {
        use Vop2::*;
        let clamp = v.mods.clamp;
        match op {
            v_dot2c_f32_f16 if !clamp => self.map3(v, dot2_f16),
            v_dot2c_f32_bf16 if v.dpp.is_none() || v.mods.neg | v.mods.abs == 0 => {
                self.accumulate_bf16(v)
            }
            v_dot2c_i32_i16 => self.map3(v, |a, b, c| product_sum::<16>(a, b, c, true, clamp)),
            v_dot4c_i32_i8 => self.map3(v, |a, b, c| product_sum::<8>(a, b, c, true, clamp)),
            v_dot8c_i32_i4 => self.map3(v, |a, b, c| product_sum::<4>(a, b, c, true, clamp)),
            v_pk_fmac_f16 if !clamp => {
                let fp = self.other();
                self.map3(v, |a, b, c| {
                    let half = |shift: u32| {
                        let [a, b, c] = [a, b, c].map(|x| u64::from(x >> shift & 0xffff));
                        (super::half_fma(fp, a, b, c) as u32) << shift
                    };
                    half(0) | half(16)
                })
            }
            _ => Err(unsupported(inst)),
        }
    }

    /// VOP3P's. OP_SEL on those of integers is left to the parts as they are stored.
    pub(super) fn dot(&mut self, inst: &Inst, v: &Valu, op: Vop3p) -> Done {
        use Vop3p::*;
        let clamp = v.mods.clamp;
        match op {
            v_dot2_f32_f16 => self.dot_halves(v, half::to_f32),
            v_dot2_f32_bf16 => self.dot_halves(v, half::bf16_to_f32),
            v_dot2_i32_i16 => self.map3(v, |a, b, c| product_sum::<16>(a, b, c, true, clamp)),
            v_dot2_u32_u16 => self.map3(v, |a, b, c| product_sum::<16>(a, b, c, false, clamp)),
            v_dot4_i32_i8 => self.map3(v, |a, b, c| product_sum::<8>(a, b, c, true, clamp)),
            v_dot4_u32_u8 => self.map3(v, |a, b, c| product_sum::<8>(a, b, c, false, clamp)),
            v_dot8_i32_i4 => self.map3(v, |a, b, c| product_sum::<4>(a, b, c, true, clamp)),
            v_dot8_u32_u4 => self.map3(v, |a, b, c| product_sum::<4>(a, b, c, false, clamp)),
            _ => Err(unsupported(inst)),
        }
    }

    /// Halves of either kind, as OP_SEL and the negations choose them. Those do not concern source
    /// 2, and how subnormals count MODE does not say.
    fn dot_halves(&mut self, v: &Valu, value: fn(u16) -> f32) -> Done {
        let [a, b] = [0, 1].map(|index| self.packed_source(v, index, true));
        let mut hold = [0; LANES];
        let c = self.raw32(v.src[2], &mut hold);
        let mut d = std::array::from_fn(|i| {
            let products = [0, 1].map(|half| [a[half][i], b[half][i]]);
            dot2(products, c[i], value)
        });
        let fp = Fp {
            denorm_out: true,
            ..self.single()
        };
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    /// `v_dot2c_f32_bf16`, whose long form has negations of the low halves in NEG and of the high
    /// ones in ABS.
    fn accumulate_bf16(&mut self, v: &Valu) -> Done {
        let flips = [0, 1].map(|index: u32| {
            let bit = |mask: u8| u32::from(mask >> index & 1);
            bit(v.mods.neg) << 15 | bit(v.mods.abs) << 31
        });
        let plain = Valu {
            mods: Mods {
                neg: 0,
                abs: 0,
                ..v.mods
            },
            ..v.clone()
        };
        let mut hold = [[0; LANES]; 3];
        let [hold_a, hold_b, hold_c] = &mut hold;
        let a = self.src32(&plain, 0, hold_a);
        let b = self.src32(&plain, 1, hold_b);
        let c = self.raw32(v.src[2], hold_c);
        let mut d = std::array::from_fn(|i| {
            let (a, b) = (a[i] ^ flips[0], b[i] ^ flips[1]);
            let products = [[a & 0xffff, b & 0xffff], [a >> 16, b >> 16]];
            dot2(products, c[i], half::bf16_to_f32)
        });
        let fp = Fp {
            denorm_out: true,
            ..self.single()
        };
        self.finish32(v, &mut d, fp);
        Ok(())
    }
}

/// Rounded once: products of 16-bit floats are exact in f64, and so is their sum but for extreme
/// exponents.
fn dot2(products: [[u32; 2]; 2], c: u32, value: fn(u16) -> f32) -> u32 {
    let [first, second] = products.map(|[a, b]| {
        let [a, b] = [a, b].map(|bits| f64::from(value(bits as u16)));
        a * b
    });
    ((first + second + f64::from(f32::from_bits(c))) as f32).to_bits()
}

fn dot2_f16(a: u32, b: u32, c: u32) -> u32 {
    let products = [[a & 0xffff, b & 0xffff], [a >> 16, b >> 16]];
    dot2(products, c, half::to_f32)
}

/// Σ aᵢ·bᵢ + c over fields of `BITS` bits; saturates if `clamp`.
fn product_sum<const BITS: u32>(a: u32, b: u32, c: u32, signed: bool, clamp: bool) -> u32 {
    let field = |value: u32, index: u32| {
        let top = value << (32 - BITS * (index + 1));
        if signed {
            i64::from(top as i32 >> (32 - BITS))
        } else {
            i64::from(top >> (32 - BITS))
        }
    };
    let start = if signed {
        i64::from(c as i32)
    } else {
        i64::from(c)
    };
    let total = (0..32 / BITS).fold(start, |total, i| total + field(a, i) * field(b, i));
    match (clamp, signed) {
        (false, _) => total as u32,
        (true, true) => total.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
        (true, false) => total.clamp(0, u32::MAX.into()) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_signed_or_not() {
        assert_eq!(
            product_sum::<8>(0xff01_0203, 0x0101_0101, 10, true, false),
            15
        );
        assert_eq!(
            product_sum::<8>(0xff01_0203, 0x0101_0101, 10, false, false),
            271
        );
        assert_eq!(
            product_sum::<16>(0x7fff_7fff, 0x7fff_7fff, 0x7fff_ffff, true, true),
            0x7fff_ffff
        );
        assert_eq!(
            product_sum::<4>(0xffff_ffff, 0x1111_1111, 0, true, false) as i32,
            -8
        );
    }
}
