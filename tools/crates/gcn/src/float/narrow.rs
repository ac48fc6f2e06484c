// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Rounding an exact value to a format of at most 32 bits: what gfx950's conversions with a scale
//! do. Stateless.
//!
//! The value comes as an f64, which holds every single, half and bfloat16 times any scale exactly.
//! Subnormal results stay, whatever MODE says.
//!
//! Sources: "AMD Instinct CDNA4 Instruction Set Architecture", 7.3 (what overflows and what NaN
//! becomes; that random rounding adds and truncates); AMD's emulation on the host (HIP's
//! amd_hip_ocp_host.hpp) for what the document leaves open: the random number's upper bits are
//! aligned below the last place that is kept, of subnormal results too, and a NaN in a format
//! without one is the largest magnitude. Chosen here: NaN results keep the sign, and are the quiet
//! NaN without payload.

use super::small::{Small, Tiny};

/// Bits of an f64's fraction.
const FRACTION: i32 = 52;

/// How to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// By adding this number's upper bits below the last place and cutting off.
    Random(u32),
}

/// What is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// All bits.
    pub bits: u32,
    /// Bits of fraction.
    pub fraction: u32,
    /// Exponent bias.
    pub bias: i32,
    /// The largest finite magnitude.
    pub largest: u32,
    /// What stands for larger ones, and for infinities.
    pub overflow: u32,
    /// What stands for NaNs.
    pub nan: u32,
}

impl Narrow {
    /// Single precision.
    pub const F32: Self = Self::ieee(32, 23);
    /// Half precision.
    pub const F16: Self = Self::ieee(16, 10);
    /// bfloat16.
    pub const BF16: Self = Self::ieee(16, 7);

    const fn ieee(bits: u32, fraction: u32) -> Self {
        let infinity = ((1 << (bits - 1 - fraction)) - 1) << fraction;
        Self {
            bits,
            fraction,
            bias: (1 << (bits - 2 - fraction)) - 1,
            largest: infinity - 1,
            overflow: infinity,
            nan: infinity | 1 << (fraction - 1),
        }
    }

    /// An 8-bit float; what is too large becomes the largest if `saturate`.
    pub const fn small(kind: Small, saturate: bool) -> Self {
        let (nan, overflow) = kind.beyond(0);
        Self {
            bits: 8,
            fraction: kind.fraction,
            bias: kind.bias,
            largest: kind.largest as u32,
            overflow: if saturate {
                kind.largest as u32
            } else {
                overflow as u32
            },
            nan: nan as u32,
        }
    }

    /// A float of less than eight bits: all that does not fit becomes the largest.
    pub const fn tiny(kind: Tiny) -> Self {
        let largest = (1 << (kind.bits - 1)) - 1;
        Self {
            bits: kind.bits,
            fraction: kind.fraction,
            bias: kind.bias,
            largest,
            overflow: largest,
            nan: largest,
        }
    }

    /// The same where finite values that are too large become the largest, infinities do not.
    pub fn saturating(self, value: f64) -> Self {
        Self {
            overflow: if value.is_finite() {
                self.largest
            } else {
                self.overflow
            },
            ..self
        }
    }

    /// The value's bits.
    pub fn round(self, value: f64, rounding: Rounding) -> u32 {
        let sign = u32::from(value.is_sign_negative()) << (self.bits - 1);
        if value.is_nan() {
            return sign | self.nan;
        }
        if value.is_infinite() {
            return sign | self.overflow;
        }
        if value == 0.0 {
            return sign;
        }
        let bits = value.to_bits() & (u64::MAX >> 1);
        // No single is so small that its product with a scale is subnormal.
        let significand = bits & ((1 << FRACTION) - 1) | 1 << FRACTION;
        let exponent = (bits >> FRACTION) as i32 - 1023;
        let lowest = 1 - self.bias;
        let place = exponent.max(lowest);
        let dropped = FRACTION - self.fraction as i32 + place - exponent;
        let (kept, rest) = match dropped {
            0..=63 => (significand >> dropped, significand & ((1 << dropped) - 1)),
            _ => (0, significand),
        };
        let up = match rounding {
            Rounding::Nearest => {
                let half = 1u64.checked_shl(dropped as u32 - 1).unwrap_or(u64::MAX);
                rest > half || rest == half && kept & 1 != 0
            }
            Rounding::Random(number) => {
                let below = 23 - self.fraction as i32;
                let cut = rest.checked_shr((dropped - below) as u32).unwrap_or(0);
                cut + u64::from(number >> (32 - below)) >= 1 << below
            }
        };
        // The significand's hidden bit adds one to the exponent, as a carry does.
        let base = ((place - lowest) as u64) << self.fraction;
        match base + kept + u64::from(up) {
            magnitude if magnitude <= self.largest.into() => magnitude as u32 | sign,
            _ => self.overflow | sign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::small::{BF6, FP4, FP6, OCP_BF8, OCP_FP8};
    use super::super::tests::patterns;
    use super::super::{half, soft, Fp, F16, F32};
    use super::*;

    #[test]
    fn formats_are_what_their_names_say() {
        assert_eq!(Narrow::F16.round(65504.0, Rounding::Nearest), 0x7bff);
        assert_eq!(Narrow::F16.round(65520.0, Rounding::Nearest), 0x7c00);
        assert_eq!(
            Narrow::F16.saturating(1e9).round(1e9, Rounding::Nearest),
            0x7bff
        );
        assert_eq!(Narrow::BF16.round(-1.0, Rounding::Nearest), 0xbf80);
        assert_eq!(Narrow::F32.round(f64::NAN, Rounding::Nearest), 0x7fc0_0000);
        assert_eq!(Narrow::tiny(FP4).round(-100.0, Rounding::Nearest), 0xf);
        assert_eq!(
            Narrow::small(OCP_FP8, false).round(465.0, Rounding::Nearest),
            0x7f
        );
        assert_eq!(
            Narrow::small(OCP_FP8, false).round(464.0, Rounding::Nearest),
            0x7e
        );
        assert_eq!(
            Narrow::small(OCP_BF8, false).round(-1e9, Rounding::Nearest),
            0xfc
        );
    }

    #[test]
    fn nearest_agrees_with_other_arithmetic() {
        for bits in patterns(5).take(200_000) {
            let single = bits as u32;
            let value = f32::from_bits(single);
            if value.is_nan() {
                continue;
            }
            let near = |format: Narrow| format.round(value.into(), Rounding::Nearest);
            let exact = soft::convert(F32, F16, Fp::PLAIN, single.into()) as u32;
            assert_eq!(near(Narrow::F16), exact, "{value}");
            if single << 1 >> 24 != 0 {
                assert_eq!(near(Narrow::F32), single);
                assert_eq!(near(Narrow::BF16), half::bf16_from_f32(value).into());
            }
            for kind in [OCP_FP8, OCP_BF8] {
                for saturate in [false, true] {
                    let small =
                        Narrow::small(kind, saturate).round(value.into(), Rounding::Nearest);
                    assert_eq!(small, kind.from_f32(value, saturate).into(), "{value}");
                }
            }
        }
    }

    #[test]
    fn tiny_formats_take_the_nearest_of_all_their_values() {
        for kind in [FP4, FP6, BF6] {
            let format = Narrow::tiny(kind);
            let values: Vec<f64> = (0..=format.largest)
                .map(|code| kind.to_f32(code as u8).into())
                .collect();
            for step in 0..=4096 {
                let value = f64::from(step) / 128.0;
                let distance = |code: u32| (values[code as usize] - value).abs();
                // Of two that are as near the even one.
                let nearest = (0..=format.largest)
                    .min_by(|x, y| {
                        distance(*x)
                            .total_cmp(&distance(*y))
                            .then((x & 1).cmp(&(y & 1)))
                    })
                    .unwrap();
                assert_eq!(format.round(value, Rounding::Nearest), nearest, "{value}");
            }
        }
    }

    #[test]
    fn random_numbers_decide_in_proportion() {
        // A quarter of the way from 1 to 1.5: a quarter of the numbers goes up.
        let format = Narrow::tiny(FP4);
        for number in 0..=255u32 {
            let up = format.round(1.125, Rounding::Random(number << 24));
            assert_eq!(up, if number < 192 { 2 } else { 3 }, "{number}");
            // Of subnormals it is the same.
            let up = format.round(-0.125, Rounding::Random(number << 24));
            assert_eq!(up, if number < 192 { 8 } else { 9 }, "{number}");
            assert_eq!(format.round(0.5, Rounding::Random(number << 24)), 1);
        }
        assert_eq!(format.round(1e-30, Rounding::Random(u32::MAX)), 0);
    }
}
