// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! VOPC: compares whose results are lane masks.

use super::Machine;
use crate::float::{half, Format, F16, F32, F64};
use crate::inst::{Dst, Valu};
use crate::op::vopc::{Compared, Condition, Vopc};
use crate::wave::LANES;

impl Machine<'_> {
    pub(super) fn compare(&mut self, v: &Valu, op: Vopc) {
        let result = self.compared(v, op) & self.wave.exec();
        if let Dst::Scalar(dst) = v.dst {
            self.set64(dst, result);
        }
        if op.write_exec {
            self.wave.set_exec(result);
        }
    }

    fn compared(&self, v: &Valu, op: Vopc) -> u64 {
        if op.condition == Condition::Class {
            return self.classify(v, op.compared);
        }
        match op.compared {
            Compared::I32 => self.integers32(v, op.condition, |a| a as i32),
            Compared::U32 => self.integers32(v, op.condition, |a| a),
            Compared::I16 => self.integers16(v, op.condition, |a| a as i16),
            Compared::U16 => self.integers16(v, op.condition, |a| a as u16),
            Compared::I64 => self.integers64(v, op.condition, |a| a as i64),
            Compared::U64 => self.integers64(v, op.condition, |a| a),
            Compared::F32 => self.singles(v, op.condition),
            Compared::F64 => self.doubles(v, op.condition),
            Compared::F16 => self.halves(v, op.condition),
        }
    }

    #[inline(always)]
    fn integers32<T: Ord>(&self, v: &Valu, condition: Condition, f: impl Fn(u32) -> T) -> u64 {
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        ordered(condition, |i| (f(a[i]), f(b[i])))
    }

    fn integers16<T: Ord>(&self, v: &Valu, condition: Condition, f: impl Fn(u32) -> T) -> u64 {
        let (a, b) = (self.src16(v, 0), self.src16(v, 1));
        ordered(condition, |i| (f(a[i]), f(b[i])))
    }

    fn integers64<T: Ord>(&self, v: &Valu, condition: Condition, f: impl Fn(u64) -> T) -> u64 {
        let (a, b) = (self.src64(v, 0), self.src64(v, 1));
        ordered(condition, |i| (f(a[i]), f(b[i])))
    }

    fn singles(&self, v: &Valu, condition: Condition) -> u64 {
        let fp = self.single();
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (
            self.float_src(v, 0, hold_a, fp),
            self.float_src(v, 1, hold_b, fp),
        );
        floats(condition, |i| (f32::from_bits(a[i]), f32::from_bits(b[i])))
    }

    fn doubles(&self, v: &Valu, condition: Condition) -> u64 {
        let fp = self.other();
        let (a, b) = (self.double_src(v, 0, fp), self.double_src(v, 1, fp));
        floats(condition, |i| (f64::from_bits(a[i]), f64::from_bits(b[i])))
    }

    fn halves(&self, v: &Valu, condition: Condition) -> u64 {
        let fp = self.other();
        let (a, b) = (self.half_src(v, 0, fp), self.half_src(v, 1, fp));
        floats(condition, |i| {
            (half::to_f32(a[i] as u16), half::to_f32(b[i] as u16))
        })
    }

    fn classify(&self, v: &Valu, compared: Compared) -> u64 {
        let format: Format = match compared {
            Compared::F16 => F16,
            Compared::F64 => F64,
            _ => F32,
        };
        let mut hold = [0; LANES];
        let classes = self.src32(v, 1, &mut hold);
        let values = match compared {
            Compared::F16 => self.src16(v, 0).map(u64::from),
            _ => self.src_any(v, 0),
        };
        lane_mask(|i| format.in_class(values[i], classes[i]))
    }
}

/// A mask from a predicate on lanes: eight at a time, by a multiplication that gathers their bits.
#[inline(always)]
fn lane_mask(f: impl Fn(usize) -> bool) -> u64 {
    let mut flags = [0u8; LANES];
    for (i, flag) in flags.iter_mut().enumerate() {
        *flag = u8::from(f(i));
    }
    let mut mask = 0;
    for (index, eight) in flags.chunks_exact(8).enumerate() {
        let bytes = eight
            .iter()
            .rev()
            .fold(0u64, |bytes, flag| bytes << 8 | u64::from(*flag));
        mask |= (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * index);
    }
    mask
}

#[inline(always)]
fn ordered<I: Ord>(condition: Condition, lanes: impl Fn(usize) -> (I, I)) -> u64 {
    let lane = |i| lanes(i);
    match condition {
        Condition::Lt => lane_mask(|i| lane(i).0 < lane(i).1),
        Condition::Eq => lane_mask(|i| lane(i).0 == lane(i).1),
        Condition::Le => lane_mask(|i| lane(i).0 <= lane(i).1),
        Condition::Gt => lane_mask(|i| lane(i).0 > lane(i).1),
        Condition::Ne => lane_mask(|i| lane(i).0 != lane(i).1),
        Condition::Ge => lane_mask(|i| lane(i).0 >= lane(i).1),
        Condition::T => u64::MAX,
        _ => 0,
    }
}

/// Comparisons are false for unordered operands, their negations true.
#[inline(always)]
fn floats<F: PartialOrd>(condition: Condition, lanes: impl Fn(usize) -> (F, F)) -> u64 {
    use Condition::*;
    let lane = |i| lanes(i);
    let less = || lane_mask(|i| lane(i).0 < lane(i).1);
    let equal = || lane_mask(|i| lane(i).0 == lane(i).1);
    let at_most = || lane_mask(|i| lane(i).0 <= lane(i).1);
    let greater = || lane_mask(|i| lane(i).0 > lane(i).1);
    let at_least = || lane_mask(|i| lane(i).0 >= lane(i).1);
    match condition {
        F | Class => 0,
        Lt => less(),
        Eq => equal(),
        Le => at_most(),
        Gt => greater(),
        Lg => less() | greater(),
        Ge => at_least(),
        O => at_most() | greater(),
        U => !(at_most() | greater()),
        Nge => !at_least(),
        Nlg => !(less() | greater()),
        Ngt => !greater(),
        Nle => !at_most(),
        Neq | Ne => !equal(),
        Nlt => !less(),
        T => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_has_one_bit_for_each_lane() {
        let pattern = 0x8421_0f0f_1234_5679u64;
        assert_eq!(lane_mask(|i| pattern >> i & 1 != 0), pattern);
    }

    #[test]
    fn negated_conditions_hold_for_unordered_operands() {
        use Condition::*;
        for condition in [Nge, Nlg, Ngt, Nle, Neq, Nlt, U, T] {
            assert_eq!(
                floats(condition, |_| (f32::NAN, 1.0)),
                u64::MAX,
                "{condition:?}"
            );
        }
        for condition in [F, Lt, Eq, Le, Gt, Lg, Ge, O] {
            assert_eq!(floats(condition, |_| (f32::NAN, 1.0)), 0, "{condition:?}");
        }
        assert_eq!(floats(Nlt, |_| (1.0, 1.0)), u64::MAX);
        assert_eq!(floats(O, |_| (1.0, 2.0)), u64::MAX);
    }
}
