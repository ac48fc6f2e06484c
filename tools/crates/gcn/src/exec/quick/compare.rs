// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick compares of 32 and 64 bits.

use super::lanes::{join, Pair};
use super::operands::{fetch, signed};
use super::{Aligned, Compares, Lanes, Row, Runner, Signs, Steps};
use crate::op::vopc::{Compared, Condition};
use crate::wave::{Vgpr, Wave, LANES};
use host_simd::{Host, Level};

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

/// A relation, as a type.
pub(super) trait Related {
    fn holds<T: PartialOrd>(a: T, b: T) -> bool;
}

/// Types for relations.
macro_rules! relations {
    ($($name:ident |$a:ident, $b:ident| $holds:expr;)*) => {
        mod related {
            $(pub(super) struct $name;)*
        }

        $(
            impl Related for related::$name {
                #[inline(always)]
                fn holds<T: PartialOrd>($a: T, $b: T) -> bool {
                    $holds
                }
            }
        )*

        impl Relation {
            /// What executes a compare.
            fn runner<K: Kind>(self, host: Host) -> Runner {
                match self {
                    $(Relation::$name => {
                        host.function::<Steps, Compares<K, related::$name>>()
                    })*
                }
            }
        }
    };
}

relations! {
    Never |_a, _b| false;
    Less |a, b| a < b;
    Equal |a, b| a == b;
    AtMost |a, b| a <= b;
    Apart |a, b| (a < b) | (a > b);
    Ordered |a, b| (a <= b) | (a > b);
}

/// What is compared: of one or two dwords.
pub(super) trait Kind: PartialOrd {
    const IS_WIDE: bool;

    fn of(pair: Pair, lane: usize) -> Self;
}

/// What lanes hold.
macro_rules! compared {
    ($($kind:ty: $is_wide:literal |$pair:ident, $lane:ident| $value:expr;)*) => {
        $(
            impl Kind for $kind {
                const IS_WIDE: bool = $is_wide;

                #[inline(always)]
                fn of($pair: Pair, $lane: usize) -> Self {
                    $value
                }
            }
        )*
    };
}

compared! {
    i32: false |pair, lane| pair[0][lane] as i32;
    u32: false |pair, lane| pair[0][lane];
    f32: false |pair, lane| f32::from_bits(pair[0][lane]);
    i64: true |pair, lane| join(pair, lane) as i64;
    u64: true |pair, lane| join(pair, lane);
    f64: true |pair, lane| f64::from_bits(join(pair, lane));
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

    /// What executes it: [`Compare::run`] for its kind and relation.
    pub(super) fn runner(&self, host: Host) -> Runner {
        match self.compared {
            Compared::I32 => self.relation.runner::<i32>(host),
            Compared::I64 => self.relation.runner::<i64>(host),
            Compared::U64 => self.relation.runner::<u64>(host),
            Compared::F32 => self.relation.runner::<f32>(host),
            Compared::F64 => self.relation.runner::<f64>(host),
            // The others have no quick form.
            _ => self.relation.runner::<u32>(host),
        }
    }

    #[inline(always)]
    pub(super) fn run<L: Level, K: Kind, R: Related>(
        &self,
        level: L,
        wave: &mut Wave,
        hold: &mut [Vgpr; 9],
    ) {
        let exec = wave.exec();
        let [a, b, c, d, signed_a, signed_b, ..] = hold;
        let mut a = [fetch(wave, self.src[0][0], a), Row::Zeros.lanes()];
        let mut b = [fetch(wave, self.src[1][0], b), Row::Zeros.lanes()];
        if K::IS_WIDE {
            a[1] = fetch(wave, self.src[0][1], c);
            b[1] = fetch(wave, self.src[1][1], d);
        }
        if self.signs != Signs::default() {
            let high = usize::from(K::IS_WIDE);
            a[high] = signed(a[high], self.signs, 0, signed_a);
            b[high] = signed(b[high], self.signs, 1, signed_b);
        }
        let mut flags = Aligned::ZEROS;
        let flags = &mut flags.0;
        for i in 0..LANES {
            let holds = R::holds(K::of(a, i), K::of(b, i));
            flags[i] = if holds { u32::MAX } else { 0 };
        }
        let found = level.mask(flags);
        let found = if self.negated { !found } else { found };
        wave.set_scalar64(usize::from(self.dst), found & exec);
        if self.write_exec {
            wave.set_exec(found & exec);
        }
    }
}
