// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Half precision and bfloat16 by way of the host's f32 and f64.

use super::{soft, Fp, Round, F16, F32};

/// The value of a half, exactly.
#[inline(always)]
pub fn to_f32(bits: u16) -> f32 {
    // Shift exponent and fraction into place and rebias by a multiplication, which is exact and
    // handles subnormals.
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000); // 2^112
    let special = magnitude >= 0x0f80_0000;
    let infinite = magnitude | 0x7f80_0000;
    let absolute = if special { infinite } else { scaled.to_bits() };
    f32::from_bits(absolute | u32::from(bits & 0x8000) << 16)
}

/// The nearest half (ties to even) of an f32.
#[inline(always)]
pub fn from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let absolute = if magnitude > 0x7f80_0000 {
        // NaN: keep the upper payload, quiet.
        0x7e00 | magnitude >> 13 & 0x3ff
    } else if magnitude >= 0x4780_0000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Subnormal half: adding 0.5 puts the rounding point at the end of the f32 fraction.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000
    } else {
        // Rebias and round; a carry into the exponent is right, up to infinity.
        (magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1)) >> 13
    };
    sign | absolute as u16
}

/// The half of an f32 as MODE asks.
#[inline(always)]
pub fn round_f32(value: f32, fp: Fp) -> u16 {
    if fp.round == Round::Nearest && fp.denorm_out && !fp.fp16_ovfl {
        return from_f32(value);
    }
    soft::convert(F32, F16, fp, value.to_bits().into()) as u16
}

/// The value of a bfloat16.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16.
#[inline(always)]
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::super::tests::patterns;
    use super::*;

    #[test]
    fn every_half_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let value = to_f32(bits);
            let back = from_f32(value);
            let quiet = if F16.is_snan(bits.into()) {
                bits | 0x200
            } else {
                bits
            };
            assert_eq!(back, quiet, "{bits:#x} {value}");
            let exact = soft::convert(F16, F32, Fp::PLAIN, bits.into()) as u32;
            assert!(value.to_bits() == exact || value.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn rounding_agrees_with_exact_arithmetic() {
        for bits in patterns(11).take(200_000) {
            // Spread over the exponents that matter for halves.
            let value =
                f32::from_bits((bits as u32 & 0x807f_ffff) | (96 + (bits >> 40) as u32 % 50) << 23);
            let exact = soft::convert(F32, F16, Fp::PLAIN, value.to_bits().into()) as u16;
            assert_eq!(from_f32(value), exact, "{value}");
        }
    }
}
