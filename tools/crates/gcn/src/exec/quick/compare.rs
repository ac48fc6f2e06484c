// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick compares of 32 and 64 bits.

use super::lanes::{join, Pair};
use super::operands::{fetch, signed};
use super::{Lanes, Signs};
use crate::op::vopc::{Compared, Condition};
use crate::wave::{Vgpr, Wave, LANES};
use host_simd::Level;

/// What a condition comes down to, but for the order of its operands and a negation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Never,
    Less,
    Equal,
    AtMost,
    /// Less or greater.
    Apart,
    /// Neither is a NaN.
    Ordered,
}

/// Sets all lanes' flags.
macro_rules! relate {
    ($relation:expr, $flags:ident, |$i:ident| $a:expr, $b:expr) => {
        match $relation {
            Relation::Never => {}
            Relation::Less => relate!($flags, |$i| $a < $b),
            Relation::Equal => relate!($flags, |$i| $a == $b),
            Relation::AtMost => relate!($flags, |$i| $a <= $b),
            Relation::Apart => relate!($flags, |$i| ($a < $b) | ($a > $b)),
            Relation::Ordered => relate!($flags, |$i| ($a <= $b) | ($a > $b)),
        }
    };
    ($flags:ident, |$i:ident| $holds:expr) => {
        for $i in 0..LANES {
            $flags[$i] = if $holds { -1 } else { 0 };
        }
    };
}

/// A compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compare {
    compared: Compared,
    relation: Relation,
    negated: bool,
    /// Low and high dwords.
    src: [[Lanes; 2]; 2],
    signs: Signs,
    dst: u8,
    write_exec: bool,
}

impl Compare {
    /// The compare of these operands, if it has a quick form.
    pub(super) fn new(
        compared: Compared,
        condition: Condition,
        src: [[Lanes; 2]; 2],
        signs: Signs,
        (dst, write_exec): (u8, bool),
    ) -> Option<Self> {
        use Condition::*;
        use Relation::*;
        if matches!(compared, Compared::F16 | Compared::I16 | Compared::U16) {
            return None;
        }
        let (relation, swapped, negated) = match condition {
            F => (Never, false, false),
            T => (Never, false, true),
            Lt => (Less, false, false),
            Gt => (Less, true, false),
            Le => (AtMost, false, false),
            Ge => (AtMost, true, false),
            Eq => (Equal, false, false),
            Ne | Neq => (Equal, false, true),
            Lg => (Apart, false, false),
            Nlg => (Apart, false, true),
            O => (Ordered, false, false),
            U => (Ordered, false, true),
            Nlt => (Less, false, true),
            Ngt => (Less, true, true),
            Nle => (AtMost, false, true),
            Nge => (AtMost, true, true),
            Class => return None,
        };
        let [first, second] = src;
        let swap = |mask: u8| match swapped {
            true => mask >> 1 & 1 | (mask & 1) << 1,
            false => mask,
        };
        Some(Compare {
            compared,
            relation,
            negated,
            src: if swapped { [second, first] } else { src },
            signs: Signs {
                negated: swap(signs.negated),
                magnitude: swap(signs.magnitude),
            },
            dst,
            write_exec,
        })
    }

    pub(super) fn is_single(&self) -> bool {
        self.compared == Compared::F32
    }

    pub(super) fn is_double(&self) -> bool {
        self.compared == Compared::F64
    }

    #[inline(always)]
    pub(super) fn run<L: Level>(&self, level: L, wave: &mut Wave, hold: &mut [Vgpr; 9]) {
        let exec = wave.exec();
        let mut flags = [0; LANES];
        self.flags(wave, hold, &mut flags);
        let found = level.mask(&flags);
        let found = if self.negated { !found } else { found };
        wave.set_scalar64(usize::from(self.dst), found & exec);
        if self.write_exec {
            wave.set_exec(found & exec);
        }
    }

    #[inline(always)]
    fn flags(&self, wave: &Wave, hold: &mut [Vgpr; 9], flags: &mut [i8; LANES]) {
        let [a, b, c, d, signed_a, signed_b, ..] = hold;
        let mut a = fetch(wave, self.src[0][0], a);
        let mut b = fetch(wave, self.src[1][0], b);
        let is_wide = matches!(self.compared, Compared::I64 | Compared::U64 | Compared::F64);
        if !is_wide {
            if self.signs != Signs::default() {
                a = signed(a, self.signs, 0, signed_a);
                b = signed(b, self.signs, 1, signed_b);
            }
            return self.narrow(a, b, flags);
        }
        let mut high_a = fetch(wave, self.src[0][1], c);
        let mut high_b = fetch(wave, self.src[1][1], d);
        if self.signs != Signs::default() {
            high_a = signed(high_a, self.signs, 0, signed_a);
            high_b = signed(high_b, self.signs, 1, signed_b);
        }
        self.wide([a, high_a], [b, high_b], flags);
    }

    #[inline(always)]
    fn narrow(&self, a: &Vgpr, b: &Vgpr, flags: &mut [i8; LANES]) {
        match self.compared {
            Compared::I32 => relate!(self.relation, flags, |i| a[i] as i32, b[i] as i32),
            Compared::U32 => relate!(self.relation, flags, |i| a[i], b[i]),
            _ => relate!(
                self.relation,
                flags,
                |i| f32::from_bits(a[i]),
                f32::from_bits(b[i])
            ),
        }
    }

    #[inline(always)]
    fn wide(&self, a: Pair, b: Pair, flags: &mut [i8; LANES]) {
        match self.compared {
            Compared::I64 => {
                relate!(
                    self.relation,
                    flags,
                    |i| join(a, i) as i64,
                    join(b, i) as i64
                );
            }
            Compared::U64 => relate!(self.relation, flags, |i| join(a, i), join(b, i)),
            _ => relate!(
                self.relation,
                flags,
                |i| f64::from_bits(join(a, i)),
                f64::from_bits(join(b, i))
            ),
        }
    }
}
