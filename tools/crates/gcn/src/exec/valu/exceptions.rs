// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Which floating point exceptions a vector ALU instruction raises: TRAPSTS.EXCP by the IEEE 754
//! rules, from the operands alone, so that who enables none pays nothing.
//!
//! Rounding says what is lost: a result that differs between rounding up and down is inexact.
//! Approximations (reciprocals, roots, logarithms) raise what their operands mean, and not that
//! they are inexact. Packed, dot product and matrix instructions raise nothing.

use super::{Machine, Wide};
use crate::exec::lds::lanes;
use crate::float::{divide, soft, Format, Fp, Round, F16, F32, F64};
use crate::inst::{Body, Inst, Valu, ValuOp};
use crate::op::vopc::Condition;
use crate::op::{Ty, Vop1, Vop2, Vop3};
use crate::wave::{mode, trapsts};

/// What an instruction does with its operands, as far as exceptions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Add,
    Subtract,
    /// Source 1 minus source 0.
    Reverse,
    Multiply,
    /// Rounded once.
    Fuse,
    /// Rounded twice.
    MultiplyAdd,
    Reciprocal,
    /// The same, for a division of integers.
    IntegerReciprocal,
    SquareRoot,
    /// 1/√x, log2(x): infinite at 0, nothing below.
    RootBelow,
    /// The end of a division: quotient, denominator, numerator.
    Divide,
    /// To a float of this format.
    Narrow(Format),
    /// To an integer from `.0` to `.1`.
    Integer(i64, i64),
    /// An integer to an f32: signed?
    FromInteger(bool),
    /// Nothing but signalling NaNs is wrong.
    Quiet,
}

impl Work {
    fn is_approximation(self) -> bool {
        matches!(
            self,
            Work::Reciprocal | Work::IntegerReciprocal | Work::SquareRoot | Work::RootBelow
        )
    }
}

fn one(op: Vop1) -> Work {
    use Vop1::*;
    const I32: Work = Work::Integer(i32::MIN as i64, i32::MAX as i64);
    const U32: Work = Work::Integer(0, u32::MAX as i64);
    match op {
        v_rcp_f32 | v_rcp_f64 | v_rcp_f16 => Work::Reciprocal,
        v_rcp_iflag_f32 => Work::IntegerReciprocal,
        v_sqrt_f32 | v_sqrt_f64 | v_sqrt_f16 => Work::SquareRoot,
        v_rsq_f32 | v_rsq_f64 | v_rsq_f16 | v_log_f32 | v_log_f16 | v_log_legacy_f32 => {
            Work::RootBelow
        }
        v_cvt_f32_f64 => Work::Narrow(F32),
        v_cvt_f16_f32 => Work::Narrow(F16),
        v_cvt_i32_f32 | v_cvt_i32_f64 => I32,
        v_cvt_u32_f32 | v_cvt_u32_f64 => U32,
        v_cvt_i16_f16 => Work::Integer(-32768, 32767),
        v_cvt_u16_f16 => Work::Integer(0, 65535),
        v_cvt_f32_i32 => Work::FromInteger(true),
        v_cvt_f32_u32 => Work::FromInteger(false),
        _ => Work::Quiet,
    }
}

fn two(op: Vop2) -> Work {
    use Vop2::*;
    match op {
        v_add_f32 | v_add_f16 => Work::Add,
        v_sub_f32 | v_sub_f16 => Work::Subtract,
        v_subrev_f32 | v_subrev_f16 => Work::Reverse,
        v_mul_f32 | v_mul_f16 => Work::Multiply,
        v_fmac_f32 | v_fmac_f64 | v_fmamk_f32 | v_fmaak_f32 => Work::Fuse,
        v_mac_f16 | v_madmk_f16 | v_madak_f16 => Work::MultiplyAdd,
        v_mac_f32 | v_madmk_f32 | v_madak_f32 => Work::MultiplyAdd,
        _ => Work::Quiet,
    }
}

fn three(op: Vop3) -> Work {
    use Vop3::*;
    match op {
        v_add_f64 => Work::Add,
        v_mul_f64 => Work::Multiply,
        v_fma_f32 | v_fma_f64 | v_fma_f16 | v_fma_legacy_f16 => Work::Fuse,
        v_mad_f16 | v_mad_legacy_f16 | v_mad_f32 | v_mad_legacy_f32 => Work::MultiplyAdd,
        v_div_fixup_f32 | v_div_fixup_f64 | v_div_fixup_f16 | v_div_fixup_legacy_f16 => {
            Work::Divide
        }
        _ => Work::Quiet,
    }
}

/// Moves bits or chooses by them: a float is as good as an integer to it.
fn is_no_arithmetic(op: ValuOp) -> bool {
    match op {
        ValuOp::Two(Vop2::v_cndmask_b32) | ValuOp::Packed(_) => true,
        ValuOp::Compare(op) => op.condition == Condition::Class,
        _ => false,
    }
}

fn format(ty: Ty) -> Option<Format> {
    match ty {
        Ty::F16 => Some(F16),
        Ty::F32 => Some(F32),
        Ty::F64 => Some(F64),
        _ => None,
    }
}

impl Machine<'_> {
    /// Bits of TRAPSTS.EXCP that the instruction's active lanes raise. Before it is executed.
    pub(crate) fn arithmetic(&self, inst: &Inst) -> u32 {
        let Body::Valu(valu) = &inst.body else {
            return 0;
        };
        if self.wave.mode & mode::VSKIP != 0 || is_no_arithmetic(valu.op) {
            return 0;
        }
        if self.wave.mode & mode::GPR_IDX_EN != 0 {
            return self.raised(&self.gpr_indexed(valu));
        }
        self.raised(valu)
    }

    fn raised(&self, v: &Valu) -> u32 {
        let work = match v.op {
            ValuOp::One(op) => one(op),
            ValuOp::Two(op) => two(op),
            ValuOp::Three(op) => three(op),
            ValuOp::Compare(_) | ValuOp::Packed(_) => Work::Quiet,
        };
        let is_float = |ty: &Ty| format(*ty).is_some();
        let Some(from) = v.types[1..].iter().find(|ty| is_float(ty)) else {
            return self.rounded_integers(v, work);
        };
        // The addend may be the destination, which has no type of its own.
        let adds = matches!(work, Work::Fuse | Work::MultiplyAdd);
        let ty = |index: usize| match index {
            2 if adds => *from,
            _ => v.types[index + 1],
        };
        let sources: [Option<Wide>; 3] =
            std::array::from_fn(|index| self.float(v, index, ty(index)));
        let from = format(*from).unwrap_or(F32);
        let raised = lanes(self.wave.exec()).fold(0, |raised, lane| {
            let operands = sources.map(|source| source.map(|lanes| lanes[lane]));
            raised | self.of_lane(work, from, operands)
        });
        // The ISA guide: "INEXACT exceptions are enabled for this conversion iff CLAMP == 1".
        match work {
            Work::Integer(..) if !v.mods.clamp => raised & !trapsts::INEXACT,
            _ => raised,
        }
    }

    /// Source `index`, if it is a float.
    fn float(&self, v: &Valu, index: usize, ty: Ty) -> Option<Wide> {
        let mut hold = [0; crate::wave::LANES];
        match ty {
            Ty::F32 => Some(self.src32(v, index, &mut hold).map(u64::from)),
            Ty::F16 => Some(self.src16(v, index).map(u64::from)),
            Ty::F64 => Some(self.src64(v, index)),
            _ => None,
        }
    }

    fn rounded_integers(&self, v: &Valu, work: Work) -> u32 {
        let Work::FromInteger(signed) = work else {
            return 0;
        };
        let mut hold = [0; crate::wave::LANES];
        let values = self.src32(v, 0, &mut hold);
        lanes(self.wave.exec()).fold(0, |raised, lane| {
            let value = match signed {
                true => i64::from(values[lane] as i32),
                false => i64::from(values[lane]),
            };
            let exact = value as f32 as i64 == value;
            raised | if exact { 0 } else { trapsts::INEXACT }
        })
    }

    fn of_lane(&self, work: Work, from: Format, operands: [Option<u64>; 3]) -> u32 {
        let mut fp = match from {
            F32 => Fp::single(self.wave.mode),
            _ => Fp::other(self.wave.mode),
        };
        // These know no subnormal singles.
        fp.denorm_in &= from != F32 || !work.is_approximation();
        // What a division has come to so far may be NaN, and says nothing.
        let first = usize::from(work == Work::Divide);
        let given = || operands[first..].iter().copied().flatten();
        let mut raised = 0;
        if given().any(|bits| from.is_snan(bits)) {
            raised |= trapsts::INVALID;
        }
        if fp.denorm_in && given().any(|bits| from.is_subnormal(bits)) {
            raised |= trapsts::INPUT_DENORM;
        }
        if given().any(|bits| from.is_nan(bits)) {
            return raised | not_a_number(work);
        }
        let flushed = |bits| if fp.denorm_in { bits } else { from.flush(bits) };
        let [a, b, c] = operands.map(|bits| flushed(bits.unwrap_or(0)));
        raised | self.of_numbers(work, from, fp, [a, b, c])
    }

    fn of_numbers(&self, work: Work, from: Format, fp: Fp, [a, b, c]: [u64; 3]) -> u32 {
        let infinite = [a, b, c].into_iter().any(|bits| from.is_infinite(bits));
        let rounded = |f: &dyn Fn(Fp) -> u64| of_rounding(from, fp, infinite, f);
        let minus = |bits: u64| bits ^ from.sign();
        match work {
            Work::Add => rounded(&|fp| soft::add(from, fp, a, b)),
            Work::Subtract => rounded(&|fp| soft::add(from, fp, a, minus(b))),
            Work::Reverse => rounded(&|fp| soft::add(from, fp, b, minus(a))),
            Work::Multiply => rounded(&|fp| soft::mul(from, fp, a, b)),
            Work::Fuse => rounded(&|fp| soft::fma(from, fp, a, b, c)),
            Work::MultiplyAdd => {
                let product = soft::mul(from, fp, a, b);
                rounded(&|fp| soft::mul(from, fp, a, b))
                    | rounded(&|fp| soft::add(from, fp, product, c))
            }
            Work::Reciprocal if from.is_zero(a) => trapsts::DIV0,
            Work::IntegerReciprocal if from.is_zero(a) => trapsts::INT_DIV0,
            Work::RootBelow if from.is_zero(a) => trapsts::DIV0,
            Work::RootBelow | Work::SquareRoot if a & from.sign() != 0 && !from.is_zero(a) => {
                trapsts::INVALID
            }
            Work::Divide => of_division(from, [a, b, c]),
            Work::Narrow(to) => {
                // f16 has the rounding of f64, f32 its own.
                let fp = match to {
                    F32 => Fp::single(self.wave.mode),
                    _ => Fp::other(self.wave.mode),
                };
                of_rounding(to, fp, infinite, &|fp| soft::convert(from, to, fp, a))
            }
            Work::Integer(least, most) => {
                let whole = value(from, a).trunc();
                match whole {
                    _ if whole < least as f64 || whole > most as f64 => trapsts::INVALID,
                    _ if whole != value(from, a) => trapsts::INEXACT,
                    _ => 0,
                }
            }
            _ => 0,
        }
    }
}

/// What a NaN means to who makes an integer of it.
fn not_a_number(work: Work) -> u32 {
    match work {
        Work::Integer(..) => trapsts::INVALID,
        _ => 0,
    }
}

fn value(format: Format, bits: u64) -> f64 {
    f64::from_bits(soft::convert(format, F64, Fp::PLAIN, bits))
}

/// An operation that rounds as it is told. `infinite`: an operand is, so nothing is lost.
fn of_rounding(format: Format, fp: Fp, infinite: bool, f: &dyn Fn(Fp) -> u64) -> u32 {
    let result = f(fp);
    if format.is_nan(result) {
        return trapsts::INVALID;
    }
    if infinite {
        return 0;
    }
    let rounded = |round| {
        f(Fp {
            round,
            denorm_out: true,
            fp16_ovfl: false,
            ..fp
        })
    };
    let [low, high, nearest, short] =
        [Round::Down, Round::Up, Round::Nearest, Round::Zero].map(rounded);
    let is_zero = format.is_zero(low) && format.is_zero(high);
    let inexact = low != high && !is_zero;
    let tiny = format.exponent_of(short) == 0 && !is_zero;
    let flushed = tiny && !fp.denorm_out;
    let mut raised = 0;
    if format.is_infinite(result) || format.is_infinite(nearest) {
        raised |= trapsts::OVERFLOW;
    }
    if tiny && inexact || flushed {
        raised |= trapsts::UNDERFLOW;
    }
    if inexact || flushed {
        raised |= trapsts::INEXACT;
    }
    raised
}

/// `v_div_fixup`, which knows what is divided by what.
fn of_division(format: Format, [quotient, denominator, numerator]: [u64; 3]) -> u32 {
    let zero = format.is_zero(denominator);
    let infinite = format.is_infinite(denominator);
    if zero && format.is_zero(numerator) || infinite && format.is_infinite(numerator) {
        return trapsts::INVALID;
    }
    if format.is_infinite(numerator) || infinite {
        return 0;
    }
    if zero {
        return trapsts::DIV0;
    }
    match format.is_infinite(divide::fixup(format, quotient, denominator, numerator)) {
        true => trapsts::OVERFLOW | trapsts::INEXACT,
        false => 0,
    }
}
