// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Exact floating point in integers, for the rounding modes that the host's arithmetic does not
//! offer. Slow and simple; also what the fast paths are tested against.

use super::{Format, Fp, Round};

/// A finite non-zero number: significand · 2^exponent, with a sign.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Negative.
    pub negative: bool,
    /// Integer significand. Its lowest bit may stand for "and a bit more" (sticky).
    pub significand: u128,
    /// Power of two.
    pub exponent: i32,
}

/// What a bit pattern holds.
#[derive(Clone, Copy, Debug)]
enum Value {
    Zero(bool),
    Infinity(bool),
    Nan,
    Finite(Number),
}

/// The first NaN among the operands, made quiet.
pub fn nan_of(format: Format, operands: &[u64]) -> Option<u64> {
    operands
        .iter()
        .find(|bits| format.is_nan(**bits))
        .map(|bits| bits | format.quiet())
}

fn unpack(format: Format, bits: u64) -> Value {
    let negative = bits & format.sign() != 0;
    let fraction = bits & format.fraction();
    let exponent = format.exponent_of(bits);
    let lowest = 1 - format.bias() - (format.precision as i32 - 1);
    match exponent {
        0 if fraction == 0 => Value::Zero(negative),
        0 => Value::Finite(Number {
            negative,
            significand: fraction.into(),
            exponent: lowest,
        }),
        top if top == format.top() && fraction == 0 => Value::Infinity(negative),
        top if top == format.top() => Value::Nan,
        _ => Value::Finite(Number {
            negative,
            significand: (fraction | (format.fraction() + 1)).into(),
            exponent: lowest + exponent as i32 - 1,
        }),
    }
}

/// Rounds to `format`, with FP16_OVFL and flushing of subnormal results as `fp` says.
pub fn pack(format: Format, fp: Fp, number: Number) -> u64 {
    let sign = if number.negative { format.sign() } else { 0 };
    let length = 128 - number.significand.leading_zeros() as i32;
    let lowest = 1 - format.bias() - (format.precision as i32 - 1);
    let quantum = (number.exponent + length - format.precision as i32).max(lowest);
    let mut significand = round(number, quantum - number.exponent, fp.round);
    let mut quantum = quantum;
    if significand >> format.precision != 0 {
        significand >>= 1;
        quantum += 1;
    }
    if significand <= u128::from(format.fraction()) {
        return sign | if fp.denorm_out { significand as u64 } else { 0 };
    }
    let exponent = (quantum - lowest + 1) as u64;
    if exponent >= format.top() {
        return sign | overflow(format, fp, number.negative);
    }
    sign | exponent << (format.precision - 1) | significand as u64 & format.fraction()
}

fn overflow(format: Format, fp: Fp, negative: bool) -> u64 {
    let to_infinity = match fp.round {
        Round::Nearest => true,
        Round::Up => !negative,
        Round::Down => negative,
        Round::Zero => false,
    };
    let saturate = fp.fp16_ovfl && format == super::F16;
    if to_infinity && !saturate {
        format.infinity()
    } else {
        format.infinity() - 1
    }
}

/// The significand in units of 2^shift, rounded.
fn round(number: Number, shift: i32, mode: Round) -> u128 {
    if shift <= 0 {
        return number.significand << -shift;
    }
    if shift >= 128 {
        // Less than half a unit: only the direction matters.
        let away = matches!(
            (mode, number.negative),
            (Round::Up, false) | (Round::Down, true)
        );
        return u128::from(away);
    }
    let kept = number.significand >> shift;
    let rest = number.significand & ((1 << shift) - 1);
    let half = 1u128 << (shift - 1);
    let away = match mode {
        Round::Nearest => rest > half || rest == half && kept & 1 != 0,
        Round::Up => rest != 0 && !number.negative,
        Round::Down => rest != 0 && number.negative,
        Round::Zero => false,
    };
    kept + u128::from(away)
}

/// Leading one at bit 125, so that a sum of two fits.
fn normalise(number: Number) -> Number {
    let shift = number.significand.leading_zeros() as i32 - 2;
    if shift >= 0 {
        Number {
            significand: number.significand << shift,
            exponent: number.exponent - shift,
            ..number
        }
    } else {
        shift_right(number, -shift)
    }
}

/// Moves right, keeping "something was lost" in the lowest bit.
fn shift_right(number: Number, by: i32) -> Number {
    let significand = match by {
        0 => number.significand,
        1..=127 => {
            let lost = number.significand & ((1 << by) - 1) != 0;
            number.significand >> by | u128::from(lost)
        }
        _ => 1,
    };
    Number {
        significand,
        exponent: number.exponent + by,
        ..number
    }
}

/// The exact sum, or the sign of an exact zero.
fn sum(a: Number, b: Number, round: Round) -> Result<Number, bool> {
    let (a, b) = (normalise(a), normalise(b));
    let (high, low) = if a.exponent >= b.exponent {
        (a, b)
    } else {
        (b, a)
    };
    let low = shift_right(low, high.exponent - low.exponent);
    if high.negative == low.negative {
        return Ok(Number {
            significand: high.significand + low.significand,
            ..high
        });
    }
    if high.significand == low.significand {
        return Err(round == Round::Down);
    }
    let swap = low.significand > high.significand;
    Ok(Number {
        significand: high.significand.abs_diff(low.significand),
        negative: high.negative != swap,
        ..high
    })
}

fn product(a: Number, b: Number) -> Number {
    Number {
        negative: a.negative != b.negative,
        significand: a.significand * b.significand,
        exponent: a.exponent + b.exponent,
    }
}

fn zero(format: Format, negative: bool) -> u64 {
    if negative {
        format.sign()
    } else {
        0
    }
}

fn flush(format: Format, fp: Fp, bits: u64) -> u64 {
    if fp.denorm_in {
        bits
    } else {
        format.flush(bits)
    }
}

/// a + b.
pub fn add(format: Format, fp: Fp, a: u64, b: u64) -> u64 {
    if let Some(nan) = nan_of(format, &[a, b]) {
        return nan;
    }
    let (a, b) = (flush(format, fp, a), flush(format, fp, b));
    match (unpack(format, a), unpack(format, b)) {
        (Value::Infinity(x), Value::Infinity(y)) if x != y => format.nan(),
        (Value::Infinity(_), _) => a,
        (_, Value::Infinity(_)) => b,
        (Value::Zero(x), Value::Zero(y)) => {
            zero(format, if x == y { x } else { fp.round == Round::Down })
        }
        (Value::Zero(_), Value::Finite(number)) | (Value::Finite(number), Value::Zero(_)) => {
            pack(format, fp, number)
        }
        (Value::Finite(x), Value::Finite(y)) => match sum(x, y, fp.round) {
            Ok(number) => pack(format, fp, number),
            Err(negative) => zero(format, negative),
        },
        (Value::Nan, _) | (_, Value::Nan) => format.nan(),
    }
}

/// a · b.
pub fn mul(format: Format, fp: Fp, a: u64, b: u64) -> u64 {
    if let Some(nan) = nan_of(format, &[a, b]) {
        return nan;
    }
    let (a, b) = (flush(format, fp, a), flush(format, fp, b));
    let negative = (a ^ b) & format.sign() != 0;
    match (unpack(format, a), unpack(format, b)) {
        (Value::Infinity(_), Value::Zero(_)) | (Value::Zero(_), Value::Infinity(_)) => format.nan(),
        (Value::Infinity(_), _) | (_, Value::Infinity(_)) => {
            format.infinity() | zero(format, negative)
        }
        (Value::Finite(x), Value::Finite(y)) => pack(format, fp, product(x, y)),
        _ => zero(format, negative),
    }
}

/// a · b + c, rounded once.
pub fn fma(format: Format, fp: Fp, a: u64, b: u64, c: u64) -> u64 {
    fma_scaled(format, fp, [a, b, c], 0)
}

/// (a · b + c) · 2^power, rounded once.
pub fn fma_scaled(format: Format, fp: Fp, operands: [u64; 3], power: i32) -> u64 {
    let [a, b, c] = operands;
    if let Some(nan) = nan_of(format, &[a, b, c]) {
        return nan;
    }
    let (a, b, c) = (
        flush(format, fp, a),
        flush(format, fp, b),
        flush(format, fp, c),
    );
    let negative = (a ^ b) & format.sign() != 0;
    let factor = match (unpack(format, a), unpack(format, b)) {
        (Value::Finite(x), Value::Finite(y)) => Some(product(x, y)),
        (Value::Infinity(_), Value::Zero(_)) | (Value::Zero(_), Value::Infinity(_)) => {
            return format.nan();
        }
        (Value::Infinity(_), _) | (_, Value::Infinity(_)) => {
            return add(format, fp, format.infinity() | zero(format, negative), c);
        }
        _ => None,
    };
    let scaled = |number: Number| {
        pack(
            format,
            fp,
            Number {
                exponent: number.exponent + power,
                ..number
            },
        )
    };
    match (factor, unpack(format, c)) {
        (None, _) => scale(
            format,
            fp,
            add(format, fp, zero(format, negative), c),
            power,
        ),
        (Some(_), Value::Infinity(_)) => c,
        (Some(product), Value::Finite(addend)) => match sum(product, addend, fp.round) {
            Ok(number) => scaled(number),
            Err(negative) => zero(format, negative),
        },
        (Some(product), _) => scaled(product),
    }
}

/// Another format's value, e.g. f64 to f32.
pub fn convert(from: Format, to: Format, fp: Fp, bits: u64) -> u64 {
    let sign = if bits & from.sign() != 0 {
        to.sign()
    } else {
        0
    };
    match unpack(from, bits) {
        Value::Zero(_) => sign,
        Value::Infinity(_) => sign | to.infinity(),
        Value::Nan => {
            let fraction = bits & from.fraction();
            let shift = from.precision as i32 - to.precision as i32;
            let payload = if shift >= 0 {
                fraction >> shift
            } else {
                fraction << -shift
            };
            sign | to.nan() | payload
        }
        Value::Finite(number) => pack(to, fp, number),
    }
}

/// An integer's value.
pub fn from_integer(to: Format, fp: Fp, value: i64) -> u64 {
    if value == 0 {
        return 0;
    }
    let significand = u128::from(value.unsigned_abs());
    pack(
        to,
        fp,
        Number {
            negative: value < 0,
            significand,
            exponent: 0,
        },
    )
}

/// value · 2^power.
pub fn scale(format: Format, fp: Fp, bits: u64, power: i32) -> u64 {
    let bits = flush(format, fp, bits);
    match unpack(format, bits) {
        Value::Nan => bits | format.quiet(),
        Value::Finite(number) => {
            // Beyond this everything is zero or infinity anyway.
            let exponent = number.exponent + power.clamp(-5000, 5000);
            pack(format, fp, Number { exponent, ..number })
        }
        _ => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::patterns;
    use super::super::{F16, F32, F64};
    use super::*;

    #[test]
    fn nearest_agrees_with_the_host() {
        let mut source = patterns(3);
        for _ in 0..100_000 {
            let (a, b, c) = (
                source.next().unwrap(),
                source.next().unwrap(),
                source.next().unwrap(),
            );
            let near = |bits: u64| bits & 0x801f_ffff_ffff_ffff | 0x3fe0_0000_0000_0000;
            for (a, b, c) in [(a, b, c), (near(a), near(b), near(c))] {
                let [x, y, z] = [a, b, c].map(f64::from_bits);
                let check = |host: f64, soft: u64| {
                    let same = host.to_bits() == soft || host.is_nan() && F64.is_nan(soft);
                    assert!(
                        same,
                        "{a:#x} {b:#x} {c:#x}: {:#x} {soft:#x}",
                        host.to_bits()
                    );
                };
                check(x + y, add(F64, Fp::PLAIN, a, b));
                check(x * y, mul(F64, Fp::PLAIN, a, b));
                check(x.mul_add(y, z), fma(F64, Fp::PLAIN, a, b, c));
                let single = f64::from(x as f32);
                check(
                    single,
                    convert(F32, F64, Fp::PLAIN, convert(F64, F32, Fp::PLAIN, a)),
                );
            }
        }
    }

    #[test]
    fn directed_rounding_brackets_the_exact_sum() {
        let one = 1f32.to_bits().into();
        let tiny = 1e-30f32.to_bits().into();
        let with = |round| add(F32, Fp { round, ..Fp::PLAIN }, one, tiny);
        assert_eq!(with(Round::Up), one + 1);
        assert_eq!(with(Round::Down), one);
        assert_eq!(with(Round::Zero), one);
        assert_eq!(
            add(
                F32,
                Fp {
                    round: Round::Down,
                    ..Fp::PLAIN
                },
                one,
                one | F32.sign()
            ),
            F32.sign()
        );
    }

    #[test]
    fn overflow_follows_the_mode() {
        let big = 0x7bff; // 65504
        assert_eq!(add(F16, Fp::PLAIN, big, big), F16.infinity());
        assert_eq!(
            add(
                F16,
                Fp {
                    fp16_ovfl: true,
                    ..Fp::PLAIN
                },
                big,
                big
            ),
            big
        );
        assert_eq!(
            add(
                F16,
                Fp {
                    round: Round::Zero,
                    ..Fp::PLAIN
                },
                big,
                big
            ),
            big
        );
        assert_eq!(scale(F32, Fp::PLAIN, 1f32.to_bits().into(), -149), 1);
        assert_eq!(
            from_integer(F32, Fp::PLAIN, -16_777_217),
            u64::from((-16_777_216f32).to_bits())
        );
    }
}
