// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Floating point as the MODE register asks for it. Stateless.
//!
//! Rounding to nearest uses the host's IEEE arithmetic; other rounding modes go through `soft`,
//! which is exact. Operations that the hardware approximates (reciprocal, square root, exponential,
//! logarithm, sine) are correctly rounded here as far as the host's libm is, or nearly so, and so
//! never worse than the hardware's 1 ULP. Not so the reciprocal and the roots of doubles, of which
//! the ISA guide says "(2**29)ULP accuracy" and which compilers refine by Newton's method: they
//! have 25 bits here, so that code without these steps is as wrong as on a GPU. Of singles the
//! reciprocal, the roots, the exponential and the logarithm know no subnormal numbers, whatever
//! MODE says: LLVM scales around each of them although MODE keeps subnormals ("The rcp instruction
//! doesn't support denormals", AMDGPUCodeGenPrepare), and folds `amdgcn.log` and `amdgcn.exp2` of a
//! subnormal to -∞ and 1 ("f32 instruction doesn't handle denormals, f16 does",
//! AMDGPUInstCombineIntrinsic).

pub mod divide;
pub mod format;
pub mod fused;
pub mod graphics;
pub mod half;
pub mod narrow;
pub mod small;
pub mod soft;
pub mod special;

use crate::wave::mode;

/// FP_ROUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// Towards +∞.
    Up,
    /// Towards -∞.
    Down,
    /// Towards zero.
    Zero,
}

/// What MODE says for one width of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fp {
    /// Rounding.
    pub round: Round,
    /// Subnormal inputs count (otherwise they are zero).
    pub denorm_in: bool,
    /// Subnormal results stay (otherwise they become zero).
    pub denorm_out: bool,
    /// Signalling NaNs are quieted.
    pub ieee: bool,
    /// Clamp makes NaN zero.
    pub dx10_clamp: bool,
    /// f16 overflow saturates.
    pub fp16_ovfl: bool,
}

impl Fp {
    /// For f32.
    pub fn single(mode: u32) -> Fp {
        Fp::new(mode, mode & 3, mode >> 4 & 3)
    }

    /// For f16 and f64.
    pub fn other(mode: u32) -> Fp {
        Fp::new(mode, mode >> 2 & 3, mode >> 6 & 3)
    }

    fn new(mode: u32, round: u32, denorm: u32) -> Fp {
        Fp {
            round: match round {
                0 => Round::Nearest,
                1 => Round::Up,
                2 => Round::Down,
                _ => Round::Zero,
            },
            denorm_in: denorm & 1 != 0,
            denorm_out: denorm & 2 != 0,
            ieee: mode & mode::IEEE != 0,
            dx10_clamp: mode & mode::DX10_CLAMP != 0,
            fp16_ovfl: mode & mode::FP16_OVFL != 0,
        }
    }

    /// Round to nearest, subnormals kept, IEEE: what compilers ask for.
    pub const PLAIN: Fp = Fp {
        round: Round::Nearest,
        denorm_in: true,
        denorm_out: true,
        ieee: true,
        dx10_clamp: true,
        fp16_ovfl: false,
    };
}

/// One of the three IEEE formats, as bits in a u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the significand, with the hidden one.
    pub precision: u32,
    /// Bits of the exponent field.
    pub exponent: u32,
}

/// Half.
pub const F16: Format = Format {
    precision: 11,
    exponent: 5,
};
/// Single.
pub const F32: Format = Format {
    precision: 24,
    exponent: 8,
};
/// Double.
pub const F64: Format = Format {
    precision: 53,
    exponent: 11,
};

impl Format {
    /// Mask of the fraction field.
    pub const fn fraction(self) -> u64 {
        (1 << (self.precision - 1)) - 1
    }

    /// Largest exponent field: infinities and NaNs.
    pub const fn top(self) -> u64 {
        (1 << self.exponent) - 1
    }

    /// +∞.
    pub const fn infinity(self) -> u64 {
        self.top() << (self.precision - 1)
    }

    /// The sign bit.
    pub const fn sign(self) -> u64 {
        1 << (self.precision + self.exponent - 1)
    }

    /// The bit that makes a NaN quiet.
    pub const fn quiet(self) -> u64 {
        1 << (self.precision - 2)
    }

    /// The NaN that invalid operations give.
    pub const fn nan(self) -> u64 {
        self.infinity() | self.quiet()
    }

    /// Exponent bias.
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The exponent field.
    pub const fn exponent_of(self, bits: u64) -> u64 {
        bits >> (self.precision - 1) & self.top()
    }

    /// Whether it is a NaN.
    pub const fn is_nan(self, bits: u64) -> bool {
        bits & !self.sign() > self.infinity()
    }

    /// Whether it is a signalling NaN.
    pub const fn is_snan(self, bits: u64) -> bool {
        self.is_nan(bits) && bits & self.quiet() == 0
    }

    /// Whether it is ±0.
    pub const fn is_zero(self, bits: u64) -> bool {
        bits & !self.sign() == 0
    }

    /// Whether it is ±∞.
    pub const fn is_infinite(self, bits: u64) -> bool {
        bits & !self.sign() == self.infinity()
    }

    /// Whether it is subnormal.
    pub const fn is_subnormal(self, bits: u64) -> bool {
        self.exponent_of(bits) == 0 && bits & self.fraction() != 0
    }

    /// Zero of the same sign if it is subnormal.
    pub const fn flush(self, bits: u64) -> u64 {
        if self.exponent_of(bits) == 0 {
            bits & self.sign()
        } else {
            bits
        }
    }

    /// `v_cmp_class`: whether the value is in one of the classes of `mask`.
    pub fn in_class(self, bits: u64, mask: u32) -> bool {
        let negative = bits & self.sign() != 0;
        let class = if self.is_nan(bits) {
            if self.is_snan(bits) {
                0
            } else {
                1
            }
        } else {
            // Distance from the middle pair (-0, +0 are 5 and 6).
            let away = match self.exponent_of(bits) {
                top if top == self.top() => 3,
                0 if self.is_zero(bits) => 0,
                0 => 1,
                _ => 2,
            };
            if negative {
                5 - away
            } else {
                6 + away
            }
        };
        mask >> class & 1 != 0
    }
}

/// f32 fused multiply-add, rounded once, without needing the host's FMA unit.
///
/// The product is exact in f64; the sum is rounded to odd there, so that the final rounding to f32
/// is the only one that counts.
#[inline(always)]
pub fn fma32(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let addend = f64::from(c);
    let sum = product + addend;
    // The sum's rounding error, exactly (Knuth's two-sum).
    let virtual_addend = sum - product;
    let error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
    let bits = sum.to_bits();
    let adjust = error != 0.0 && bits & 1 == 0 && sum.is_finite();
    let outward = (error.to_bits() ^ bits) >> 63 == 0;
    let odd = if outward {
        bits.wrapping_add(1)
    } else {
        bits.wrapping_sub(1)
    };
    f64::from_bits(if adjust { odd } else { bits }) as f32
}

/// The result's bits, or for a NaN the first NaN operand made quiet, or the default NaN.
#[inline(always)]
pub fn settle32(result: f32, operands: [u32; 3]) -> u32 {
    let is_nan = |bits: u32| bits & 0x7fff_ffff > 0x7f80_0000;
    let [a, b, c] = operands;
    let nan = if is_nan(a) {
        a | 0x0040_0000
    } else if is_nan(b) {
        b | 0x0040_0000
    } else if is_nan(c) {
        c | 0x0040_0000
    } else {
        0x7fc0_0000
    };
    if result.is_nan() {
        nan
    } else {
        result.to_bits()
    }
}

/// Like [`settle32`] for f64.
#[inline(always)]
pub fn settle64(result: f64, operands: [u64; 3]) -> u64 {
    let is_nan = |bits: u64| bits & !F64.sign() > F64.infinity();
    let [a, b, c] = operands;
    let nan = if is_nan(a) {
        a | F64.quiet()
    } else if is_nan(b) {
        b | F64.quiet()
    } else if is_nan(c) {
        c | F64.quiet()
    } else {
        F64.nan()
    };
    if result.is_nan() {
        nan
    } else {
        result.to_bits()
    }
}

/// IEEE 754-2019's minimum (or maximum) of three: a NaN wins, quieted, the first of several; -0 is
/// less than +0.
#[inline(always)]
pub fn least(format: Format, maximum: bool, operands: [u64; 3]) -> u64 {
    if let Some(nan) = operands.into_iter().find(|bits| format.is_nan(*bits)) {
        return nan | format.quiet();
    }
    let [a, b, c] = operands;
    min_max(
        format,
        false,
        maximum,
        min_max(format, false, maximum, a, b),
        c,
    )
}

/// Minimum (or maximum) by the hardware's rules: a NaN loses against a number, -0 is less than +0,
/// and in IEEE mode a signalling NaN wins, quieted.
#[inline(always)]
pub fn min_max(format: Format, ieee: bool, maximum: bool, a: u64, b: u64) -> u64 {
    if ieee && format.is_snan(a) {
        return a | format.quiet();
    }
    if ieee && format.is_snan(b) {
        return b | format.quiet();
    }
    if format.is_nan(a) {
        return b;
    }
    if format.is_nan(b) {
        return a;
    }
    let a_first = order(format, a) < order(format, b);
    if a_first != maximum {
        a
    } else {
        b
    }
}

/// A key that sorts like the values, -0 before +0.
#[inline(always)]
fn order(format: Format, bits: u64) -> i64 {
    let magnitude = (bits & !format.sign()) as i64;
    if bits & format.sign() != 0 {
        -1 - magnitude
    } else {
        magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of odd bit patterns, so that tests need no crate.
    pub(crate) fn patterns(seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed | 1;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d)
        })
    }

    #[test]
    fn fma32_agrees_with_exact_arithmetic() {
        let mut source = patterns(7);
        for round in 0..200_000 {
            let mut next = || {
                let bits = source.next().unwrap();
                // Every other triple has near exponents, where cancellation and ties happen.
                let bits = bits as u32;
                if round & 1 == 0 {
                    bits
                } else {
                    bits & 0x80ff_f00f | 0x3f00_0000
                }
            };
            let (a, b, c) = (next(), next(), next());
            let fast = fma32(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let exact = soft::fma(F32, Fp::PLAIN, u64::from(a), u64::from(b), u64::from(c)) as u32;
            let fast = settle32(fast, [a, b, c]);
            assert_eq!(fast, exact, "fma({a:#x}, {b:#x}, {c:#x})");
        }
    }

    #[test]
    fn min_and_max_follow_the_nan_and_zero_rules() {
        let (nan, snan) = (0x7fc0_0001, 0x7f80_0001);
        assert_eq!(min_max(F32, true, false, nan, 0x3f80_0000), 0x3f80_0000);
        assert_eq!(min_max(F32, true, true, 0x3f80_0000, snan), 0x7fc0_0001);
        assert_eq!(min_max(F32, false, true, 0x3f80_0000, snan), 0x3f80_0000);
        assert_eq!(min_max(F32, true, false, 0, 0x8000_0000), 0x8000_0000);
        assert_eq!(min_max(F32, true, true, 0x8000_0000, 0), 0);
        assert_eq!(
            min_max(F32, true, true, 0xc000_0000, 0xbf80_0000),
            0xbf80_0000
        );
    }

    #[test]
    fn classes_are_the_ten_of_the_isa() {
        let members = [
            0x7f80_0001,
            0x7fc0_0000,
            0xff80_0000,
            0xbf80_0000,
            0x8000_0001,
            0x8000_0000,
            0,
            1,
            0x3f80_0000,
            0x7f80_0000,
        ];
        for (class, bits) in members.into_iter().enumerate() {
            for mask in 0..10 {
                assert_eq!(F32.in_class(bits, 1 << mask), mask == class, "{bits:#x}");
            }
        }
    }
}
