// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the hardware approximates: reciprocal, roots, exponential, logarithm, sine; and taking
//! floats apart. f32 results are computed in f64 and rounded once, so they are within half an ULP
//! and a hair.

use super::{soft, Format, Fp};
use std::f64::consts::TAU;

/// sin(2πx) for x in turns; 0 outside ±256, as the hardware defines it.
pub fn sin_turns(turns: f64) -> f64 {
    if turns.is_infinite() {
        return f64::NAN;
    }
    if turns.abs() > 256.0 {
        0.0
    } else {
        (turns.fract() * TAU).sin()
    }
}

/// cos(2πx) for x in turns; 1 outside ±256.
pub fn cos_turns(turns: f64) -> f64 {
    if turns.is_infinite() {
        return f64::NAN;
    }
    if turns.abs() > 256.0 {
        1.0
    } else {
        (turns.fract() * TAU).cos()
    }
}

/// 1/√x; -∞ for -0.
pub fn rsq(value: f64) -> f64 {
    1.0 / value.sqrt()
}

/// Bits of an approximated double that say nothing.
pub const COARSE: u32 = 28;

/// A reciprocal or a root of doubles, as the hardware has it: the first bits of its significand.
pub fn coarse(value: f64) -> f64 {
    match value.is_normal() {
        true => f64::from_bits(value.to_bits() & !((1 << COARSE) - 1)),
        false => value,
    }
}

/// log2, with -∞ at zeros.
pub fn log2(value: f64) -> f64 {
    value.log2()
}

/// x - floor(x), kept below one.
pub fn fract32(value: f32) -> f32 {
    if value.is_infinite() {
        return f32::NAN;
    }
    (value - value.floor()).min(f32::from_bits(0x3f7f_ffff))
}

/// x - floor(x), kept below one.
pub fn fract64(value: f64) -> f64 {
    if value.is_infinite() {
        return f64::NAN;
    }
    (value - value.floor()).min(f64::from_bits(0x3fef_ffff_ffff_ffff))
}

/// The exponent e of x = m · 2^e with 0.5 <= |m| < 1; 0 for zeros, infinities and NaNs.
pub fn frexp_exponent(format: Format, bits: u64) -> i32 {
    if format.is_zero(bits) || format.exponent_of(bits) == format.top() {
        return 0;
    }
    let fraction = bits & format.fraction();
    let exponent = match format.exponent_of(bits) {
        0 => (64 - fraction.leading_zeros()) as i32 - (format.precision as i32 - 1),
        exponent => exponent as i32,
    };
    exponent - format.bias() + 1
}

/// The m of x = m · 2^e; zeros, infinities and NaNs are themselves.
pub fn frexp_mantissa(format: Format, bits: u64) -> u64 {
    if format.is_zero(bits) || format.exponent_of(bits) == format.top() {
        return if format.is_snan(bits) {
            bits | format.quiet()
        } else {
            bits
        };
    }
    soft::scale(format, Fp::PLAIN, bits, -frexp_exponent(format, bits))
}

#[cfg(test)]
mod tests {
    use super::super::{F32, F64};
    use super::*;

    #[test]
    fn frexp_takes_normals_and_subnormals_apart() {
        for value in [1.0f64, -0.75, 1e300, 5e-324, 2.2e-308] {
            let bits = value.to_bits();
            let mantissa = f64::from_bits(frexp_mantissa(F64, bits));
            let exponent = frexp_exponent(F64, bits);
            assert!((0.5..1.0).contains(&mantissa.abs()), "{value}: {mantissa}");
            assert_eq!(
                mantissa * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2),
                value
            );
        }
        assert_eq!(frexp_exponent(F32, 0x7f80_0000), 0);
    }

    #[test]
    fn turns_and_fractions_have_their_edges() {
        assert_eq!(sin_turns(0.25), 1.0);
        assert_eq!(sin_turns(300.0), 0.0);
        assert_eq!(cos_turns(-300.0), 1.0);
        assert!(fract32(-1e-10) < 1.0);
        assert_eq!(fract64(1.25), 0.25);
    }
}
