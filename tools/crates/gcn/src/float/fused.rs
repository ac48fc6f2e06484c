// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The matrix core's sums of products. Stateless.
//!
//! For inputs narrower than f32 the hardware does not chain fused multiply-adds: it aligns a group
//! of products to their largest exponent, cuts them off there, and adds the group and the
//! accumulator with a few more bits, rounding down; only the end is rounded to nearest. The widths
//! are those that Xie et al. measured on an MI300X ("MMA-Sim: Bit-Accurate Reference Model of
//! Tensor Cores and Matrix Cores", 2025, the CDNA3 part). Subnormals count, MODE does not matter.
//! Not known, and chosen here: the payload of NaN results (the default NaN), and that the sparse
//! instructions group the products that they make as the dense ones do.

/// A factor of a product: `significand · 2^(exponent - fraction)`, where `fraction` belongs to its
/// format and is told to [`dot_add`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Factor {
    significand: i32,
    exponent: i32,
    value: f32,
}

/// What [`Factor`]s of one format have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bits of the fraction.
    pub fraction: u32,
    /// Exponent of subnormals.
    pub lowest: i32,
}

/// Exponent that zeros count with.
const ZERO_EXPONENT: i32 = -126;
/// Bits after the point that aligned products keep.
const PRODUCT_BITS: u32 = 24;
/// Bits after the point that the sum of a group keeps when the accumulator is added.
const SUM_BITS: u32 = 31;

impl Factor {
    /// The value it was made of.
    pub fn value(self) -> f32 {
        self.value
    }

    /// The factor of this value, which must be one of the format's.
    pub fn new(value: f32, layout: Layout) -> Factor {
        let bits = value.to_bits();
        let field = (bits >> 23 & 0xff) as i32;
        let hidden = if field == 0 { 0 } else { 1 << 23 };
        let magnitude = i64::from(bits & 0x7f_ffff | hidden);
        let own = field.max(1) - 127;
        // Subnormals of the narrow format are normal as f32.
        let exponent = own.max(layout.lowest);
        let shift = 23 - layout.fraction as i32 + exponent - own;
        let significand = (magnitude >> shift.clamp(0, 63)) as i32;
        Factor {
            significand: if bits >> 31 != 0 {
                -significand
            } else {
                significand
            },
            exponent: if significand == 0 {
                ZERO_EXPONENT
            } else {
                exponent
            },
            value,
        }
    }
}

/// A sum of aligned products: `significand · 2^(exponent - PRODUCT_BITS)`.
#[derive(Clone, Copy)]
struct Sum {
    significand: i64,
    exponent: i32,
}

/// Right shift that may be by any distance; rounds down.
fn shift(value: i64, by: i32) -> i64 {
    value >> by.clamp(0, 63)
}

/// Products aligned to the largest exponent, cut off towards zero and added.
fn aligned<'a>(pairs: impl Iterator<Item = (&'a Factor, &'a Factor)> + Clone, up: u32) -> Sum {
    let exponent = pairs
        .clone()
        .map(|(a, b)| a.exponent + b.exponent)
        .fold(i32::MIN, i32::max);
    let significand = pairs
        .map(|(a, b)| {
            let product = i64::from(a.significand) * i64::from(b.significand);
            let distance = exponent - (a.exponent + b.exponent);
            shift(product.abs() << up, distance) * product.signum()
        })
        .sum();
    Sum {
        significand,
        exponent,
    }
}

/// c + Σ aᵢ·bᵢ over one group of products, rounded to f32. `fractions` are the bits of fraction of
/// both formats; `halves` splits the group into even and odd products, as 8-bit floats are.
pub fn dot_add(a: &[Factor], b: &[Factor], c: f32, fractions: [u32; 2], halves: bool) -> f32 {
    if let Some(special) = special(a, b, c) {
        return special;
    }
    let up = PRODUCT_BITS - fractions[0] - fractions[1];
    let pairs = a.iter().zip(b);
    let sum = if halves {
        let even = aligned(pairs.clone().step_by(2), up);
        let odd = aligned(pairs.skip(1).step_by(2), up);
        let exponent = even.exponent.max(odd.exponent);
        let part = |sum: Sum| shift(sum.significand, exponent - sum.exponent);
        Sum {
            significand: part(even) + part(odd),
            exponent,
        }
    } else {
        aligned(pairs, up)
    };
    accumulate(sum, c, halves)
}

/// Adds the accumulator. With 8-bit floats, one that is too small does not even round down.
fn accumulate(sum: Sum, c: f32, drops: bool) -> f32 {
    let addend = Factor::new(
        c,
        Layout {
            fraction: 23,
            lowest: -126,
        },
    );
    let exponent = sum.exponent.max(addend.exponent);
    let own = shift(
        sum.significand << (SUM_BITS - PRODUCT_BITS),
        exponent - sum.exponent,
    );
    let distance = exponent - addend.exponent;
    let other = match drops && distance > 25 {
        true => 0,
        false => shift(i64::from(addend.significand) << 1, distance),
    };
    let total = own + (other << (SUM_BITS - PRODUCT_BITS));
    // Exact in f64, so that the one rounding is that to f32.
    (total as f64 * power_of_two(exponent - SUM_BITS as i32)) as f32
}

/// The result if infinities, NaNs or products beyond f32 take part.
fn special(a: &[Factor], b: &[Factor], c: f32) -> Option<f32> {
    const LARGE: f32 = 1.844_674_4e19; // 2^64
    let tame = |x: &Factor| x.value.abs() < LARGE;
    if c.is_finite() && a.iter().all(tame) && b.iter().all(tame) {
        return None;
    }
    let product = |(a, b): (&Factor, &Factor)| f64::from(a.value) * f64::from(b.value);
    let sum = a.iter().zip(b).map(product).sum::<f64>() + f64::from(c);
    if sum.is_nan() {
        return Some(f32::NAN);
    }
    if sum.is_infinite() {
        return Some(sum as f32);
    }
    let limit = power_of_two(128);
    let beyond = |sign: f64| a.iter().zip(b).any(|pair| product(pair) * sign >= limit);
    match (beyond(1.0), beyond(-1.0)) {
        (true, true) => Some(f32::NAN),
        (true, false) => Some(f32::INFINITY),
        (false, true) => Some(f32::NEG_INFINITY),
        (false, false) => None,
    }
}

/// 2^power for normal results.
fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Layout = Layout {
        fraction: 10,
        lowest: -14,
    };

    fn halves(values: &[f32]) -> Vec<Factor> {
        values
            .iter()
            .map(|value| Factor::new(*value, HALF))
            .collect()
    }

    #[test]
    fn a_factor_is_what_it_was_made_from() {
        for value in [1.0, -1.5, 65504.0, 6.103_515_6e-5, 5.960_464_5e-8, 0.0] {
            let factor = Factor::new(value, HALF);
            let back = factor.significand as f32 * 2f32.powi(factor.exponent - 10);
            assert_eq!(back, value);
        }
    }

    #[test]
    fn small_products_are_cut_off_and_the_end_rounds_to_nearest() {
        let one = halves(&[1.0, 2f32.powi(-13)]);
        // 1 + 2^-26: beyond the 24 bits that aligned products keep.
        assert_eq!(dot_add(&one, &one, 0.0, [10, 10], false), 1.0);
        let a = halves(&[1.0, 2f32.powi(-12)]);
        // 1 + 2^-24 is a tie, to even.
        assert_eq!(dot_add(&a, &a, 0.0, [10, 10], false), 1.0);
        // A small negative accumulator is rounded down to -2^-24, a tie that goes to even.
        let unit = halves(&[1.0]);
        let result = dot_add(&unit, &unit, -2f32.powi(-40), [10, 10], false);
        assert_eq!(result, 1.0 - 2f32.powi(-24));
    }

    #[test]
    fn infinities_and_nans_go_through() {
        let infinite = halves(&[f32::INFINITY, 1.0]);
        let zero = halves(&[0.0, 1.0]);
        assert_eq!(
            dot_add(&infinite, &halves(&[1.0, 1.0]), 1.0, [10, 10], false),
            f32::INFINITY
        );
        assert!(dot_add(&infinite, &zero, 1.0, [10, 10], false).is_nan());
        assert!(dot_add(&zero, &zero, f32::NAN, [10, 10], false).is_nan());
    }
}
