// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! 8-bit floats, FP8 (E4M3) and BF8 (E5M2). Stateless.
//!
//! gfx942 has the "FNUZ" kind: no infinity, no negative zero, 0x80 is the only NaN, and the bias is
//! one more than IEEE's would be. gfx950 has the kind of the Open Compute Project's "8-bit Floating
//! Point Specification": BF8 is as IEEE 754 would have it; FP8 has no infinity, and the largest
//! magnitude is its only NaN.

use crate::Target;

/// A kind of 8-bit float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    /// Bits of fraction.
    pub fraction: u32,
    /// Exponent bias.
    pub bias: i32,
    /// The largest finite magnitude.
    pub largest: u8,
    /// The Open Compute Project's kind, which has a negative zero.
    pub signed_zero: bool,
}

/// FP8: 4 bits of exponent, 3 of fraction.
pub const FP8: Small = Small {
    fraction: 3,
    bias: 8,
    largest: 0x7f,
    signed_zero: false,
};
/// BF8: 5 bits of exponent, 2 of fraction.
pub const BF8: Small = Small {
    fraction: 2,
    bias: 16,
    largest: 0x7f,
    signed_zero: false,
};
/// FP8 of gfx950.
pub const OCP_FP8: Small = Small {
    fraction: 3,
    bias: 7,
    largest: 0x7e,
    signed_zero: true,
};
/// BF8 of gfx950.
pub const OCP_BF8: Small = Small {
    fraction: 2,
    bias: 15,
    largest: 0x7b,
    signed_zero: true,
};

/// FP6 (E2M3), BF6 (E3M2) and FP4 (E2M1) of gfx950: no infinity and no NaN.
pub const FP6: Tiny = Tiny {
    bits: 6,
    fraction: 3,
    bias: 1,
};
pub const BF6: Tiny = Tiny {
    bits: 6,
    fraction: 2,
    bias: 3,
};
pub const FP4: Tiny = Tiny {
    bits: 4,
    fraction: 1,
    bias: 1,
};

/// A kind of float of less than eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiny {
    /// All bits.
    pub bits: u32,
    /// Bits of fraction.
    pub fraction: u32,
    /// Exponent bias.
    pub bias: i32,
}

impl Tiny {
    /// The value; higher bits do not count.
    pub fn to_f32(self, bits: u8) -> f32 {
        let sign = 1 << (self.bits - 1);
        let magnitude = bits & (sign - 1);
        let fraction = i32::from(magnitude) & ((1 << self.fraction) - 1);
        let (significand, exponent) = match i32::from(magnitude) >> self.fraction {
            0 => (fraction, 1),
            exponent => (fraction | 1 << self.fraction, exponent),
        };
        let value = significand as f32 * 2f32.powi(exponent - self.bias - self.fraction as i32);
        if bits & sign != 0 {
            -value
        } else {
            value
        }
    }
}

const NAN: u8 = 0x80;

impl Small {
    /// A processor's FP8.
    pub const fn fp8(target: Target) -> Self {
        match target {
            Target::Gfx90a | Target::Gfx942 => FP8,
            Target::Gfx950 => OCP_FP8,
        }
    }

    /// A processor's BF8.
    pub const fn bf8(target: Target) -> Self {
        match target {
            Target::Gfx90a | Target::Gfx942 => BF8,
            Target::Gfx950 => OCP_BF8,
        }
    }

    /// A NaN, and what is too large.
    pub(super) const fn beyond(self, sign: u8) -> (u8, u8) {
        match (self.signed_zero, self.largest) {
            (false, _) => (NAN, NAN),
            // Infinity.
            (true, 0x7b) => (0x7f, 0x7c | sign),
            (true, _) => (0x7f, 0x7f | sign),
        }
    }

    /// The value.
    pub fn to_f32(self, bits: u8) -> f32 {
        let size = bits & 0x7f;
        match (self.signed_zero, self.largest) {
            (false, _) if bits == NAN => return f32::NAN,
            (true, 0x7b) if size == 0x7c => return f32::INFINITY.copysign(sign_of(bits)),
            (true, largest) if size > largest => return f32::NAN,
            _ => {}
        }
        let fraction = i32::from(bits) & ((1 << self.fraction) - 1);
        let exponent = i32::from(bits & 0x7f) >> self.fraction;
        let (significand, exponent) = if exponent == 0 {
            (fraction, 1)
        } else {
            (fraction | 1 << self.fraction, exponent)
        };
        let power = exponent - self.bias - self.fraction as i32;
        let magnitude = significand as f32 * f32::from_bits(((power + 127) as u32) << 23);
        if bits & 0x80 != 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// The nearest value (ties to even). What is too large saturates if `saturate`, else becomes
    /// NaN.
    pub fn from_f32(self, value: f32, saturate: bool) -> u8 {
        self.round(value, saturate, |rest, unit, odd| {
            2 * rest > unit || 2 * rest == unit && odd
        })
    }

    /// Rounded at random: `random`'s upper bits are added to the f32's fraction, below the last
    /// place that a normal result keeps, and the sum is cut off.
    pub fn from_f32_stochastic(self, value: f32, saturate: bool, random: u32) -> u8 {
        if !value.is_finite() {
            return self.from_f32(value, saturate);
        }
        let added = value.to_bits() + (random >> (9 + self.fraction));
        self.round(f32::from_bits(added), saturate, |_, _, _| false)
    }

    fn round(self, value: f32, saturate: bool, up: impl Fn(u64, u64, bool) -> bool) -> u8 {
        if value.is_nan() {
            return self.beyond(0).0;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let overflow = if saturate {
            self.largest | sign
        } else {
            self.beyond(sign).1
        };
        if value.is_infinite() {
            return overflow;
        }
        let bits = value.to_bits() & 0x7fff_ffff;
        let field = (bits >> 23) as i32;
        let significand = u64::from(if field == 0 {
            bits & 0x7f_ffff
        } else {
            bits & 0x7f_ffff | 1 << 23
        });
        // Exponent field in the small format; subnormals share the lowest.
        let own = field.max(1) - 127 + self.bias;
        let places = 23 - self.fraction as i32 + (1 - own).max(0);
        let (kept, rest, unit) = match places {
            places @ 0..=62 => (
                significand >> places,
                significand & ((1 << places) - 1),
                1 << places,
            ),
            _ => (0, significand.min(1), 1 << 62),
        };
        // Adding the significand to the exponent's place carries as it should.
        let base = (own.max(1) as u64 - 1) << self.fraction;
        let magnitude = base + kept + u64::from(rest != 0 && up(rest, unit, kept & 1 != 0));
        match magnitude {
            0 if !self.signed_zero => 0,
            magnitude if magnitude <= self.largest.into() => magnitude as u8 | sign,
            _ => overflow,
        }
    }
}

/// 1 with the sign of an 8-bit float.
fn sign_of(bits: u8) -> f32 {
    if bits & 0x80 != 0 {
        -1.0
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(FP8.to_f32(0x40), 1.0);
        assert_eq!(FP8.to_f32(0x7f), 240.0);
        assert_eq!(FP8.to_f32(0x01), 2f32.powi(-10));
        assert_eq!(BF8.to_f32(0x40), 1.0);
        assert_eq!(BF8.to_f32(0x7f), 57344.0);
        assert!(BF8.to_f32(0x80).is_nan());
        assert_eq!(FP8.to_f32(0xc0), -1.0);
    }

    #[test]
    fn every_value_comes_back_and_neighbours_round_to_the_nearest() {
        for kind in [FP8, BF8] {
            for bits in (0..=255u8).filter(|bits| *bits != NAN) {
                assert_eq!(kind.from_f32(kind.to_f32(bits), true), bits);
            }
            for bits in 0..0x7e {
                let (low, high) = (kind.to_f32(bits), kind.to_f32(bits + 1));
                let middle = (low + high) / 2.0;
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                assert_eq!(kind.from_f32(middle, true), even);
                assert_eq!(kind.from_f32(middle.next_up(), true), bits + 1);
                assert_eq!(kind.from_f32(middle.next_down(), true), bits);
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates_or_is_nan() {
        assert_eq!(FP8.from_f32(1e9, true), 0x7f);
        assert_eq!(FP8.from_f32(-1e9, true), 0xff);
        assert_eq!(FP8.from_f32(1e9, false), NAN);
        assert_eq!(FP8.from_f32(-0.0, true), 0);
        assert_eq!(BF8.from_f32(-1e-30, true), 0);
    }

    #[test]
    fn tiny_floats_have_their_extremes() {
        // "AMD Instinct CDNA4 Instruction Set Architecture", Small Float Data Formats.
        let extremes = [
            (FP6, 0x1f, 7.5, 0.125),
            (BF6, 0x1f, 28.0, 0.0625),
            (FP4, 7, 6.0, 0.5),
        ];
        for (kind, most, largest, least) in extremes {
            assert_eq!((kind.to_f32(most), kind.to_f32(1)), (largest, least));
            assert_eq!(kind.to_f32(most + 1).to_bits(), (-0f32).to_bits());
        }
        assert_eq!(FP4.to_f32(2), 1.0);
        assert_eq!(FP6.to_f32(8), 1.0);
        assert_eq!(BF6.to_f32(0x0c), 1.0);
    }

    #[test]
    fn the_open_kinds_have_their_extremes() {
        assert_eq!(OCP_FP8.to_f32(0x38), 1.0);
        assert_eq!(OCP_FP8.to_f32(0x7e), 448.0);
        assert_eq!(OCP_FP8.to_f32(0x01), 2f32.powi(-9));
        assert!(OCP_FP8.to_f32(0x7f).is_nan() && OCP_FP8.to_f32(0xff).is_nan());
        assert_eq!(OCP_BF8.to_f32(0x3c), 1.0);
        assert_eq!(OCP_BF8.to_f32(0x7b), 57344.0);
        assert_eq!(OCP_BF8.to_f32(0xfc), f32::NEG_INFINITY);
        assert!(OCP_BF8.to_f32(0x7d).is_nan());
        for kind in [OCP_FP8, OCP_BF8] {
            for bits in (0..=255u8).filter(|bits| bits & 0x7f <= kind.largest) {
                assert_eq!(kind.from_f32(kind.to_f32(bits), true), bits);
            }
            for bits in 0..kind.largest {
                let (low, high) = (kind.to_f32(bits), kind.to_f32(bits + 1));
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                assert_eq!(kind.from_f32((low + high) / 2.0, true), even);
            }
        }
        assert_eq!(OCP_FP8.from_f32(1e9, false), 0x7f);
        assert_eq!(OCP_FP8.from_f32(-1e9, true), 0xfe);
        assert_eq!(OCP_BF8.from_f32(-1e9, false), 0xfc);
        assert_eq!(OCP_BF8.from_f32(-0.0, false), 0x80);
    }

    #[test]
    fn stochastic_rounding_goes_up_as_often_as_the_rest_says() {
        // 1.25 of FP8's unit steps of 1/8: 1.03125 is a quarter of the way.
        let ups = (0..256u32)
            .filter(|part| FP8.from_f32_stochastic(1.03125, true, part << 24) == 0x41)
            .count();
        assert_eq!(ups, 64);
        assert_eq!(FP8.from_f32_stochastic(1.0, true, u32::MAX), 0x40);
    }
}
