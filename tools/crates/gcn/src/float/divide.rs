// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The division helpers `v_div_scale`, `v_div_fmas` and `v_div_fixup`, which compilers wrap around
//! a Newton iteration. Rules: MI300 ISA guide, VOP3 instruction descriptions. Where the guide's
//! text cannot divide right, the reading that can is taken: a denominator whose reciprocal is
//! subnormal is scaled down, `v_div_fmas` scales back by the inverse of what `v_div_scale` applied
//! (up or down, as the quotient's size tells), and a quotient that overflowed on the way comes out
//! of `v_div_fixup` as an infinity.

use super::{soft, Format, Fp, F32, F64};

/// Thresholds of one format: exponent distance that needs scaling, scale, precision.
struct Limits {
    distance: i64,
    scale: i32,
    tiny: i64,
}

fn limits(format: Format) -> Limits {
    if format == F32 {
        Limits {
            distance: 96,
            scale: 64,
            tiny: 23,
        }
    } else {
        Limits {
            distance: 768,
            scale: 128,
            tiny: 53,
        }
    }
}

/// `v_div_scale`: `value` (which is the denominator or the numerator) scaled as the quotient needs
/// it, and whether the quotient must be scaled back.
pub fn scale(format: Format, value: u64, denominator: u64, numerator: u64) -> (u64, bool) {
    let limits = limits(format);
    if format.is_zero(numerator) || format.is_zero(denominator) {
        return (format.nan(), false);
    }
    let exponent = |bits| format.exponent_of(bits) as i64;
    let by = |power| soft::scale(format, Fp::PLAIN, value, power);
    let up_if = |yes: bool| if yes { by(limits.scale) } else { value };
    let reciprocal_tiny = subnormal_quotient(format, 1, denominator, true);
    let quotient_tiny = subnormal_quotient(format, numerator, denominator, false);
    if exponent(numerator) - exponent(denominator) >= limits.distance {
        (up_if(value == denominator), true)
    } else if format.is_subnormal(denominator) {
        (by(limits.scale), false)
    } else if reciprocal_tiny && quotient_tiny {
        (
            if value == denominator {
                by(-limits.scale)
            } else {
                value
            },
            true,
        )
    } else if reciprocal_tiny {
        (by(-limits.scale), false)
    } else if quotient_tiny {
        (up_if(value == numerator), true)
    } else if exponent(numerator) <= limits.tiny {
        (by(limits.scale), false)
    } else {
        (value, false)
    }
}

/// Whether numerator / denominator (or 1 / denominator) is subnormal.
fn subnormal_quotient(format: Format, numerator: u64, denominator: u64, one: bool) -> bool {
    if format == F64 {
        let numerator = if one { 1.0 } else { f64::from_bits(numerator) };
        let quotient = numerator / f64::from_bits(denominator);
        return F64.is_subnormal(quotient.to_bits());
    }
    let numerator = if one {
        1.0
    } else {
        f32::from_bits(numerator as u32)
    };
    let quotient = numerator / f32::from_bits(denominator as u32);
    F32.is_subnormal(quotient.to_bits().into())
}

/// `v_div_fmas`: fused multiply-add, scaled back where `v_div_scale` said so.
pub fn fmas(format: Format, fp: Fp, operands: [u64; 3], scale_back: bool) -> u64 {
    let power = match scale_back {
        false => 0,
        true if format.exponent_of(operands[2]) as i32 > format.bias() => limits(format).scale,
        true => -limits(format).scale,
    };
    soft::fma_scaled(format, fp, operands, power)
}

/// `v_div_fixup`: the computed quotient, or what special operands make of it.
pub fn fixup(format: Format, quotient: u64, denominator: u64, numerator: u64) -> u64 {
    let sign = (denominator ^ numerator) & format.sign();
    let exponent = |bits| format.exponent_of(bits) as i64;
    // Below this the quotient is zero: exponents of a subnormal result, and some.
    let underflow = -(format.bias() as i64 + i64::from(format.precision) - 1);
    if let Some(nan) = soft::nan_of(format, &[numerator, denominator]) {
        nan
    } else if format.is_zero(numerator) && format.is_zero(denominator)
        || format.is_infinite(numerator) && format.is_infinite(denominator)
    {
        format.nan() | format.sign()
    } else if format.is_zero(denominator) || format.is_infinite(numerator) {
        sign | format.infinity()
    } else if format.is_infinite(denominator)
        || format.is_zero(numerator)
        || exponent(numerator) - exponent(denominator) < underflow
    {
        sign
    } else if format.is_nan(quotient) {
        sign | format.infinity()
    } else {
        sign | quotient & !format.sign()
    }
}

#[cfg(test)]
mod tests {
    use super::super::special::coarse;
    use super::super::tests::patterns;
    use super::*;

    /// The instruction sequence that LLVM emits for an f32 division.
    fn divide(numerator: u32, denominator: u32) -> u32 {
        let (n, d) = (u64::from(numerator), u64::from(denominator));
        let (scaled_d, _) = scale(F32, d, d, n);
        let (scaled_n, back) = scale(F32, n, d, n);
        let neg = scaled_d ^ F32.sign();
        let rcp = u64::from((1.0 / f32::from_bits(scaled_d as u32)).to_bits());
        let one = u64::from(1f32.to_bits());
        let fma = |a, b, c| soft::fma(F32, Fp::PLAIN, a, b, c);
        let rcp = fma(fma(neg, rcp, one), rcp, rcp);
        let quotient = soft::mul(F32, Fp::PLAIN, scaled_n, rcp);
        let quotient = fma(fma(neg, quotient, scaled_n), rcp, quotient);
        let rest = fma(neg, quotient, scaled_n);
        fixup(F32, fmas(F32, Fp::PLAIN, [rest, rcp, quotient], back), d, n) as u32
    }

    /// The same of f64, whose reciprocal has few bits: one more step.
    fn divide64(n: u64, d: u64) -> u64 {
        let (scaled_d, _) = scale(F64, d, d, n);
        let (scaled_n, back) = scale(F64, n, d, n);
        let neg = scaled_d ^ F64.sign();
        let one = 1f64.to_bits();
        let fma = |a, b, c| soft::fma(F64, Fp::PLAIN, a, b, c);
        let first = coarse(1.0 / f64::from_bits(scaled_d)).to_bits();
        let second = fma(first, fma(neg, first, one), first);
        let rcp = fma(second, fma(neg, second, one), second);
        let quotient = soft::mul(F64, Fp::PLAIN, scaled_n, rcp);
        let rest = fma(neg, quotient, scaled_n);
        fixup(F64, fmas(F64, Fp::PLAIN, [rest, rcp, quotient], back), d, n)
    }

    fn each_with_each<T: Copy>(values: &[T]) -> impl Iterator<Item = (T, T)> + '_ {
        values.iter().flat_map(|a| values.iter().map(|b| (*a, *b)))
    }

    #[test]
    fn doubles_are_divided_correctly_by_a_coarse_reciprocal() {
        let mut source = patterns(6);
        let special = [
            0,
            1,
            1 << 63,
            F64.infinity(),
            F64.fraction(),
            1 << 52,
            F64.infinity() - 1,
        ];
        let mut pairs: Vec<(u64, u64)> = (0..50_000)
            .map(|_| (source.next().unwrap(), source.next().unwrap()))
            .collect();
        // Near each other, where quotients are normal.
        let near = |bits: u64| bits & 0x801f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000;
        pairs.extend_from_within(..25_000);
        for (a, b) in &mut pairs[50_000..] {
            (*a, *b) = (near(*a), near(*b));
        }
        pairs.extend(each_with_each(&special));
        for (a, b) in pairs {
            let (host, ours) = (
                f64::from_bits(a) / f64::from_bits(b),
                f64::from_bits(divide64(a, b)),
            );
            let same = host.to_bits() == ours.to_bits() || host.is_nan() && ours.is_nan();
            assert!(same, "{a:#x} / {b:#x}: {host} {ours}");
        }
    }

    #[test]
    fn the_compilers_sequence_divides_correctly() {
        let mut source = patterns(5);
        let special = [
            0,
            1,
            0x8000_0000,
            0x7f80_0000,
            0x007f_ffff,
            0x7f7f_ffff,
            0x0080_0000,
        ];
        let mut pairs: Vec<(u32, u32)> = (0..100_000)
            .map(|_| (source.next().unwrap() as u32, source.next().unwrap() as u32))
            .collect();
        pairs.extend(each_with_each(&special));
        for (a, b) in pairs {
            let (host, ours) = (
                f32::from_bits(a) / f32::from_bits(b),
                f32::from_bits(divide(a, b)),
            );
            let same = host.to_bits() == ours.to_bits() || host.is_nan() && ours.is_nan();
            assert!(same, "{a:#x} / {b:#x}: {host} {ours}");
        }
    }
}
