// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The operations of the quick forms: for each an expression on one lane's operands. The tables
//! make an enum of their names, and of each a type whose function has one loop over the lanes: it
//! is compiled for the host's vector units where it is inlined.
//!
//! The expressions are other ones than those in `valu`, which are the reference.

use super::{Ints, Runner, Singles, Steps, Wides};
use crate::float::special::COARSE;
use crate::float::{fma32, settle32, settle64};
use crate::inst::ValuOp;
use crate::op::{Vop1, Vop2, Vop3, Vop3p};
use crate::wave::{Vgpr, LANES};
use host_simd::{Host, Level};

/// A double-width register: the low and the high dwords.
pub(super) type Pair<'a> = [&'a Vgpr; 2];

/// A table of operations: of which the first argument is the type of operands and results.
macro_rules! operations {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($kind:ident $table:ident $op:ident |$a:ident, $b:ident, $c:ident| $value:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[expect(non_camel_case_types, reason = "the names are the mnemonics'")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($op),* }

        impl $name {
            /// The operation of an opcode, if it is one of these.
            pub(super) fn of(op: ValuOp) -> Option<Self> {
                match op {
                    $(ValuOp::$kind($table::$op) => Some(Self::$op),)*
                    _ => None,
                }
            }
        }
    };
}

/// Which of its operands an operation looks at: those whose names do not begin with `_`.
macro_rules! uses {
    ($($name:ident)*) => {
        [$(stringify!($name).as_bytes()[0] != b'_'),*]
    };
}

/// An operation on dwords: integers, or singles rounded to nearest where subnormals are kept.
pub(super) trait Operation {
    /// Which operands it has.
    const USES: [bool; 3];

    /// All lanes' results; `ieee`: MODE's.
    fn run<L: Level>(level: L, ieee: bool, operands: [&Vgpr; 3], d: &mut Vgpr);
}

/// An operation whose operands and results are of two registers.
pub(super) trait WideOperation {
    /// Which operands it has.
    const USES: [bool; 3];
    /// Whether MODE's rounding and subnormals matter.
    const IS_FLOAT: bool;

    /// All lanes' results.
    fn run(operands: [Pair; 3], d: &mut [Vgpr; 2]);
}

/// Operations on dwords.
macro_rules! ints {
    ($($kind:ident $table:ident $op:ident |$a:ident, $b:ident, $c:ident| $value:expr;)*) => {
        operations! {
            /// What has 32-bit integers as operands and as result.
            Int { $($kind $table $op |$a, $b, $c| $value;)* }
        }

        /// A type for each.
        #[expect(non_camel_case_types, reason = "the names are the mnemonics'")]
        mod int {
            use super::*;

            $(
                pub(super) struct $op;

                impl Operation for $op {
                    const USES: [bool; 3] = uses!($a $b $c);

                    #[inline(always)]
                    fn run<L: Level>(_level: L, _i: bool, [x, y, z]: [&Vgpr; 3], d: &mut Vgpr) {
                        for i in 0..LANES {
                            let ($a, $b, $c) = (x[i], y[i], z[i]);
                            d[i] = $value;
                        }
                    }
                }
            )*
        }

        impl Int {
            /// What executes it; `direct`: all its operands and its result are VGPRs.
            pub(super) fn runner(self, host: Host, direct: bool) -> Runner {
                match (self, direct) {
                    $((Int::$op, false) => host.function::<Steps, Ints<int::$op, false>>(),)*
                    $((Int::$op, true) => host.function::<Steps, Ints<int::$op, true>>(),)*
                }
            }

            /// Which operands it has.
            pub(super) fn uses(self) -> [bool; 3] {
                match self {
                    $(Int::$op => int::$op::USES,)*
                }
            }
        }
    };
}

/// Sign-extends the low 24 bits.
#[inline(always)]
fn low24(value: u32) -> i32 {
    (value << 8) as i32 >> 8
}

#[inline(always)]
fn field(value: u32, offset: u32, width: u32) -> u32 {
    value >> (offset & 31) & (1u32 << (width & 31)).wrapping_sub(1)
}

#[inline(always)]
fn signed_field(value: u32, offset: u32, width: u32) -> u32 {
    let spare = 32u32.wrapping_sub(width & 31) & 31;
    let kept = ((value as i32 >> (offset & 31)) << spare >> spare) as u32;
    match width & 31 {
        0 => 0,
        _ => kept,
    }
}

/// The dword `by` bits up in `high:low`, `by` below 32.
#[inline(always)]
fn funnel(high: u32, low: u32, by: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> by) as u32
}

ints! {
    One Vop1 v_mov_b32 |a, _b, _c| a;
    One Vop1 v_accvgpr_mov_b32 |a, _b, _c| a;
    Packed Vop3p v_accvgpr_read_b32 |a, _b, _c| a;
    Packed Vop3p v_accvgpr_write_b32 |a, _b, _c| a;
    One Vop1 v_not_b32 |a, _b, _c| !a;
    One Vop1 v_bfrev_b32 |a, _b, _c| a.reverse_bits();
    One Vop1 v_ffbh_u32 |a, _b, _c| if a == 0 { u32::MAX } else { a.leading_zeros() };
    One Vop1 v_ffbl_b32 |a, _b, _c| if a == 0 { u32::MAX } else { a.trailing_zeros() };
    Two Vop2 v_and_b32 |a, b, _c| a & b;
    Two Vop2 v_or_b32 |a, b, _c| a | b;
    Two Vop2 v_xor_b32 |a, b, _c| a ^ b;
    Two Vop2 v_xnor_b32 |a, b, _c| !(a ^ b);
    Two Vop2 v_lshlrev_b32 |a, b, _c| b << (a & 31);
    Two Vop2 v_lshrrev_b32 |a, b, _c| b >> (a & 31);
    Two Vop2 v_ashrrev_i32 |a, b, _c| (b as i32 >> (a & 31)) as u32;
    Two Vop2 v_min_i32 |a, b, _c| (a as i32).min(b as i32) as u32;
    Two Vop2 v_max_i32 |a, b, _c| (a as i32).max(b as i32) as u32;
    Two Vop2 v_min_u32 |a, b, _c| a.min(b);
    Two Vop2 v_max_u32 |a, b, _c| a.max(b);
    Two Vop2 v_add_u32 |a, b, _c| a.wrapping_add(b);
    Two Vop2 v_sub_u32 |a, b, _c| a.wrapping_sub(b);
    Two Vop2 v_subrev_u32 |a, b, _c| b.wrapping_sub(a);
    Two Vop2 v_mul_i32_i24 |a, b, _c| low24(a).wrapping_mul(low24(b)) as u32;
    Two Vop2 v_mul_hi_i32_i24 |a, b, _c| {
        ((i64::from(low24(a)).wrapping_mul(i64::from(low24(b)))) >> 32) as u32
    };
    Two Vop2 v_mul_u32_u24 |a, b, _c| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff);
    Two Vop2 v_mul_hi_u32_u24 |a, b, _c| {
        (u64::from(a & 0xff_ffff).wrapping_mul(u64::from(b & 0xff_ffff)) >> 32) as u32
    };
    Three Vop3 v_add_i32 |a, b, _c| a.wrapping_add(b);
    Three Vop3 v_sub_i32 |a, b, _c| a.wrapping_sub(b);
    Three Vop3 v_mul_lo_u32 |a, b, _c| a.wrapping_mul(b);
    Three Vop3 v_mul_hi_u32 |a, b, _c| (u64::from(a).wrapping_mul(u64::from(b)) >> 32) as u32;
    Three Vop3 v_mul_hi_i32 |a, b, _c| {
        (i64::from(a as i32).wrapping_mul(i64::from(b as i32)) >> 32) as u32
    };
    Three Vop3 v_lshl_add_u32 |a, b, c| (a << (b & 31)).wrapping_add(c);
    Three Vop3 v_add_lshl_u32 |a, b, c| a.wrapping_add(b) << (c & 31);
    Three Vop3 v_add3_u32 |a, b, c| a.wrapping_add(b).wrapping_add(c);
    Three Vop3 v_lshl_or_b32 |a, b, c| a << (b & 31) | c;
    Three Vop3 v_and_or_b32 |a, b, c| a & b | c;
    Three Vop3 v_or3_b32 |a, b, c| a | b | c;
    Three Vop3 v_xad_u32 |a, b, c| (a ^ b).wrapping_add(c);
    Three Vop3 v_bfe_u32 |a, b, c| field(a, b, c);
    Three Vop3 v_bfe_i32 |a, b, c| signed_field(a, b, c);
    Three Vop3 v_bfi_b32 |a, b, c| (b ^ c) & a ^ c;
    Three Vop3 v_bfm_b32 |a, b, _c| (1u32 << (a & 31)).wrapping_sub(1) << (b & 31);
    Three Vop3 v_alignbit_b32 |a, b, c| funnel(a, b, c & 31);
    Three Vop3 v_alignbyte_b32 |a, b, c| funnel(a, b, 8 * (c & 3));
    Three Vop3 v_bcnt_u32_b32 |a, b, _c| a.count_ones().wrapping_add(b);
    // Their third operand is the mask of lanes below.
    Three Vop3 v_mbcnt_lo_u32_b32 |a, b, c| (a & c).count_ones().wrapping_add(b);
    Three Vop3 v_mbcnt_hi_u32_b32 |a, b, c| (a & c).count_ones().wrapping_add(b);
    Three Vop3 v_mad_u32_u24 |a, b, c| {
        (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(c)
    };
    Three Vop3 v_mad_i32_i24 |a, b, c| {
        (low24(a).wrapping_mul(low24(b)) as u32).wrapping_add(c)
    };
    Three Vop3 v_mad_u32_u16 |a, b, c| (a & 0xffff).wrapping_mul(b & 0xffff).wrapping_add(c);
    Three Vop3 v_mad_i32_i16 |a, b, c| {
        (i32::from(a as i16).wrapping_mul(i32::from(b as i16)) as u32).wrapping_add(c)
    };
    Three Vop3 v_min3_i32 |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32;
    Three Vop3 v_max3_i32 |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32;
    Three Vop3 v_min3_u32 |a, b, c| a.min(b).min(c);
    Three Vop3 v_max3_u32 |a, b, c| a.max(b).max(c);
    Three Vop3 v_med3_i32 |a, b, c| {
        let (a, b, c) = (a as i32, b as i32, c as i32);
        a.min(b).max(a.max(b).min(c)) as u32
    };
    Three Vop3 v_med3_u32 |a, b, c| a.min(b).max(a.max(b).min(c));
}

/// Operations on singles, and how their NaNs are made: `settled` from the operands, `ready` by the
/// expression itself.
macro_rules! singles {
    (
        settled {
            $($kind:ident $table:ident $op:ident |$a:ident, $b:ident, $c:ident| $value:expr;)*
        }
        ready {
            $($kind2:ident $table2:ident $op2:ident
                |$ieee:ident, $a2:ident, $b2:ident, $c2:ident| $value2:expr;)*
        }
    ) => {
        operations! {
            /// What has 32-bit floats as operands or as result, rounded to nearest, where
            /// subnormals are kept.
            Single {
                $($kind $table $op |$a, $b, $c| $value;)*
                $($kind2 $table2 $op2 |$a2, $b2, $c2| $value2;)*
            }
        }

        /// A type for each.
        #[expect(non_camel_case_types, reason = "the names are the mnemonics'")]
        pub(super) mod single {
            use super::*;

            $(
                pub(in super::super) struct $op;

                impl Operation for $op {
                    const USES: [bool; 3] = uses!($a $b $c);

                    #[inline(always)]
                    fn run<L: Level>(level: L, _i: bool, [x, y, z]: [&Vgpr; 3], d: &mut Vgpr) {
                        for i in 0..LANES {
                            let $a = f32::from_bits(x[i]);
                            let $b = f32::from_bits(y[i]);
                            let $c = f32::from_bits(z[i]);
                            d[i] = ($value).to_bits();
                        }
                        if level.any_nan(d) {
                            settle([x, y, z], d);
                        }
                    }
                }
            )*
            $(
                pub(super) struct $op2;

                impl Operation for $op2 {
                    const USES: [bool; 3] = uses!($a2 $b2 $c2);

                    #[inline(always)]
                    fn run<L: Level>(_level: L, ieee: bool, [x, y, z]: [&Vgpr; 3], d: &mut Vgpr) {
                        let $ieee = ieee;
                        for i in 0..LANES {
                            let ($a2, $b2, $c2) = (x[i], y[i], z[i]);
                            d[i] = $value2;
                        }
                    }
                }
            )*
        }

        impl Single {
            /// What executes it; `direct`: all its operands and its result are VGPRs.
            pub(super) fn runner(self, host: Host, direct: bool) -> Runner {
                match direct {
                    true => self.runner_of::<true>(host),
                    false => self.runner_of::<false>(host),
                }
            }

            fn runner_of<const DIRECT: bool>(self, host: Host) -> Runner {
                match self {
                    $(Single::$op => host.function::<Steps, Singles<single::$op, DIRECT>>(),)*
                    $(Single::$op2 => host.function::<Steps, Singles<single::$op2, DIRECT>>(),)*
                }
            }

            /// Which operands it has.
            pub(super) fn uses(self) -> [bool; 3] {
                match self {
                    $(Single::$op => single::$op::USES,)*
                    $(Single::$op2 => single::$op2::USES,)*
                }
            }
        }
    };
}

/// The bits of +∞.
pub(super) const INFINITY: u32 = 0x7f80_0000;

#[inline(always)]
fn is_nan(bits: u32) -> bool {
    bits & 0x7fff_ffff > INFINITY
}

#[inline(always)]
fn is_snan(bits: u32) -> bool {
    is_nan(bits) && bits & 0x0040_0000 == 0
}

/// NaNs become what the hardware makes of the operands.
#[cold]
#[inline(never)]
fn settle([x, y, z]: [&Vgpr; 3], d: &mut Vgpr) {
    for i in 0..LANES {
        d[i] = settle32(f32::from_bits(d[i]), [x[i], y[i], z[i]]);
    }
}

/// Fused: one instruction, or made of doubles.
#[inline(always)]
pub(super) fn fused<L: Level>(a: f32, b: f32, c: f32) -> f32 {
    match L::FMA {
        true => a.mul_add(b, c),
        false => fma32(a, b, c),
    }
}

/// Zero of the same sign if it is subnormal.
#[inline(always)]
fn flushed(value: f32) -> f32 {
    let bits = value.to_bits();
    let kept = match bits & INFINITY {
        0 => 1 << 31,
        _ => u32::MAX,
    };
    f32::from_bits(bits & kept)
}

/// A key that sorts like the values, -0 before +0.
#[inline(always)]
fn order(bits: u32) -> i32 {
    (bits & 0x7fff_ffff) as i32 ^ (bits as i32 >> 31)
}

/// The lesser or the greater: see [`crate::float::min_max`].
#[inline(always)]
fn lesser(ieee: bool, maximum: bool, a: u32, b: u32) -> u32 {
    let first = (order(a) < order(b)) != maximum;
    let number = if first { a } else { b };
    let number = if is_nan(b) { a } else { number };
    let number = if is_nan(a) { b } else { number };
    let number = if ieee && is_snan(b) {
        b | 0x0040_0000
    } else {
        number
    };
    match ieee && is_snan(a) {
        true => a | 0x0040_0000,
        false => number,
    }
}

#[inline(always)]
fn byte(value: u32, index: u32) -> u32 {
    ((value >> (8 * index) & 0xff) as f32).to_bits()
}

singles! {
    settled {
        Two Vop2 v_add_f32 |a, b, _c| a + b;
        Two Vop2 v_sub_f32 |a, b, _c| a - b;
        Two Vop2 v_subrev_f32 |a, b, _c| b - a;
        Two Vop2 v_mul_f32 |a, b, _c| a * b;
        Two Vop2 v_fmac_f32 |a, b, c| fused::<L>(a, b, c);
        Two Vop2 v_fmamk_f32 |a, b, c| fused::<L>(a, b, c);
        Two Vop2 v_fmaak_f32 |a, b, c| fused::<L>(a, b, c);
        Three Vop3 v_fma_f32 |a, b, c| fused::<L>(a, b, c);
        One Vop1 v_rcp_f32 |a, _b, _c| flushed(1.0 / flushed(a));
        One Vop1 v_rcp_iflag_f32 |a, _b, _c| flushed(1.0 / flushed(a));
        One Vop1 v_sqrt_f32 |a, _b, _c| flushed(a).sqrt();
        One Vop1 v_rsq_f32 |a, _b, _c| (1.0 / f64::from(flushed(a)).sqrt()) as f32;
        One Vop1 v_trunc_f32 |a, _b, _c| a.trunc();
        One Vop1 v_ceil_f32 |a, _b, _c| a.ceil();
        One Vop1 v_floor_f32 |a, _b, _c| a.floor();
        One Vop1 v_rndne_f32 |a, _b, _c| a.round_ties_even();
        Packed Vop3p v_pk_add_f32 |a, b, _c| a + b;
        Packed Vop3p v_pk_mul_f32 |a, b, _c| a * b;
        Packed Vop3p v_pk_fma_f32 |a, b, c| fused::<L>(a, b, c);
    }
    ready {
        Two Vop2 v_min_f32 |ieee, a, b, _c| lesser(ieee, false, a, b);
        Two Vop2 v_max_f32 |ieee, a, b, _c| lesser(ieee, true, a, b);
        Three Vop3 v_min3_f32 |ieee, a, b, c| {
            lesser(ieee, false, lesser(ieee, false, a, b), c)
        };
        Three Vop3 v_max3_f32 |ieee, a, b, c| lesser(ieee, true, lesser(ieee, true, a, b), c);
        One Vop1 v_cvt_f32_i32 |_i, a, _b, _c| (a as i32 as f32).to_bits();
        One Vop1 v_cvt_f32_u32 |_i, a, _b, _c| (a as f32).to_bits();
        One Vop1 v_cvt_f32_ubyte0 |_i, a, _b, _c| byte(a, 0);
        One Vop1 v_cvt_f32_ubyte1 |_i, a, _b, _c| byte(a, 1);
        One Vop1 v_cvt_f32_ubyte2 |_i, a, _b, _c| byte(a, 2);
        One Vop1 v_cvt_f32_ubyte3 |_i, a, _b, _c| byte(a, 3);
        One Vop1 v_cvt_u32_f32 |_i, a, _b, _c| f32::from_bits(a) as u32;
        One Vop1 v_cvt_i32_f32 |_i, a, _b, _c| f32::from_bits(a) as i32 as u32;
    }
}

/// Operations on two registers, `floats` on doubles.
macro_rules! wides {
    (
        halves {
            $($kind3:ident $table3:ident $op3:ident
                |$a3:ident, $b3:ident, $c3:ident| $value3:expr;)*
        }
        ints { $($kind:ident $table:ident $op:ident |$a:ident, $b:ident, $c:ident| $value:expr;)* }
        floats {
            $($kind2:ident $table2:ident $op2:ident
                |$a2:ident, $b2:ident, $c2:ident| $value2:expr;)*
        }
    ) => {
        operations! {
            /// What has a result of two registers; of doubles, rounded to nearest, where subnormals
            /// are kept.
            Wide {
                $($kind3 $table3 $op3 |$a3, $b3, $c3| $value3;)*
                $($kind $table $op |$a, $b, $c| $value;)*
                $($kind2 $table2 $op2 |$a2, $b2, $c2| $value2;)*
            }
        }

        /// A type for each.
        #[expect(non_camel_case_types, reason = "the names are the mnemonics'")]
        mod wide {
            use super::*;

            $(
                pub(super) struct $op3;

                impl WideOperation for $op3 {
                    const USES: [bool; 3] = uses!($a3 $b3 $c3);
                    const IS_FLOAT: bool = false;

                    #[inline(always)]
                    fn run([x, y, z]: [Pair; 3], [low, high]: &mut [Vgpr; 2]) {
                        for i in 0..LANES {
                            let ($a3, $b3, $c3) = (halves(x, i), halves(y, i), halves(z, i));
                            (low[i], high[i]) = $value3;
                        }
                    }
                }
            )*
            $(
                pub(super) struct $op;

                impl WideOperation for $op {
                    const USES: [bool; 3] = uses!($a $b $c);
                    const IS_FLOAT: bool = false;

                    #[inline(always)]
                    fn run([x, y, z]: [Pair; 3], [low, high]: &mut [Vgpr; 2]) {
                        for i in 0..LANES {
                            let ($a, $b, $c) = (join(x, i), join(y, i), join(z, i));
                            let value: u64 = $value;
                            low[i] = value as u32;
                            high[i] = (value >> 32) as u32;
                        }
                    }
                }
            )*
            $(
                pub(super) struct $op2;

                impl WideOperation for $op2 {
                    const USES: [bool; 3] = uses!($a2 $b2 $c2);
                    const IS_FLOAT: bool = true;

                    #[inline(always)]
                    fn run([x, y, z]: [Pair; 3], d: &mut [Vgpr; 2]) {
                        let [low, high] = d;
                        for i in 0..LANES {
                            let $a2 = f64::from_bits(join(x, i));
                            let $b2 = f64::from_bits(join(y, i));
                            let $c2 = f64::from_bits(join(z, i));
                            let value = f64::to_bits($value2);
                            low[i] = value as u32;
                            high[i] = (value >> 32) as u32;
                        }
                        if has_wide_nan(d) {
                            settle_wide([x, y, z], d);
                        }
                    }
                }
            )*
        }

        impl Wide {
            /// Whether MODE's rounding and subnormals matter.
            pub(super) fn is_float(self) -> bool {
                matches!(self, $(Wide::$op2)|*)
            }

            /// What executes it.
            pub(super) fn runner(self, host: Host) -> Runner {
                match self {
                    $(Wide::$op3 => host.function::<Steps, Wides<wide::$op3>>(),)*
                    $(Wide::$op => host.function::<Steps, Wides<wide::$op>>(),)*
                    $(Wide::$op2 => host.function::<Steps, Wides<wide::$op2>>(),)*
                }
            }
        }
    };
}

/// A lane's two dwords.
#[inline(always)]
pub(super) fn join(pair: Pair, lane: usize) -> u64 {
    u64::from(pair[0][lane]) | u64::from(pair[1][lane]) << 32
}

/// Whether any lane may be a NaN, or an infinity.
#[inline(always)]
fn has_wide_nan([_, high]: &[Vgpr; 2]) -> bool {
    let mut most = 0;
    for bits in high {
        most = most.max(bits & 0x7fff_ffff);
    }
    most >= 0x7ff0_0000
}

#[cold]
#[inline(never)]
fn settle_wide(operands: [Pair; 3], [low, high]: &mut [Vgpr; 2]) {
    for i in 0..LANES {
        let result = f64::from_bits(u64::from(low[i]) | u64::from(high[i]) << 32);
        let bits = settle64(result, operands.map(|pair| join(pair, i)));
        low[i] = bits as u32;
        high[i] = (bits >> 32) as u32;
    }
}

/// A lane's low and high dwords.
#[inline(always)]
fn halves(pair: Pair, lane: usize) -> (u32, u32) {
    (pair[0][lane], pair[1][lane])
}

/// Shifts up; by halves, as the lanes' registers have them, it needs no dwords joined.
#[inline(always)]
fn shifted_up((low, high): (u32, u32), by: u32) -> (u32, u32) {
    let few = by & 31;
    let over = low >> 1 >> (31 - few);
    match by & 32 {
        0 => (low << few, high << few | over),
        _ => (0, low << few),
    }
}

/// Shifts down, `sign` into the high half.
#[inline(always)]
fn shifted_down((low, high): (u32, u32), sign: u32, by: u32) -> (u32, u32) {
    let few = by & 31;
    let over = |value: u32| value << 1 << (31 - few);
    let top = high >> few | over(sign);
    match by & 32 {
        0 => (low >> few | over(high), top),
        _ => (top, sign),
    }
}

/// A shift of `v_lshl_add_u64`, which has up to 4.
#[inline(always)]
fn few(by: u32) -> u32 {
    match by {
        0..=4 => by,
        _ => 0,
    }
}

#[inline(always)]
fn sum(a: (u32, u32), b: (u32, u32)) -> (u32, u32) {
    let low = a.0.wrapping_add(b.0);
    (low, a.1.wrapping_add(b.1).wrapping_add((low < a.0).into()))
}

/// Without its last bits, unless it is subnormal: infinities have none, and of a NaN those left
/// tell that it is one.
#[inline(always)]
fn approximated(value: f64) -> f64 {
    let bits = value.to_bits();
    let kept = match bits >> 52 & 0x7ff {
        0 => u64::MAX,
        _ => u64::MAX << COARSE,
    };
    f64::from_bits(bits & kept)
}

wides! {
    halves {
        One Vop1 v_mov_b64 |a, _b, _c| a;
        Three Vop3 v_lshlrev_b64 |a, b, _c| shifted_up(b, a.0);
        Three Vop3 v_lshrrev_b64 |a, b, _c| shifted_down(b, 0, a.0);
        Three Vop3 v_ashrrev_i64 |a, b, _c| shifted_down(b, (b.1 as i32 >> 31) as u32, a.0);
        Three Vop3 v_lshl_add_u64 |a, b, c| sum(shifted_up(a, few(b.0 & 7)), c);
    }
    ints {
        One Vop1 v_cvt_f64_i32 |a, _b, _c| f64::from(a as i32).to_bits();
        One Vop1 v_cvt_f64_u32 |a, _b, _c| f64::from(a as u32).to_bits();
    }
    floats {
        Three Vop3 v_add_f64 |a, b, _c| a + b;
        Three Vop3 v_mul_f64 |a, b, _c| a * b;
        Three Vop3 v_fma_f64 |a, b, c| a.mul_add(b, c);
        Two Vop2 v_fmac_f64 |a, b, c| a.mul_add(b, c);
        One Vop1 v_rcp_f64 |a, _b, _c| approximated(1.0 / a);
        One Vop1 v_sqrt_f64 |a, _b, _c| approximated(a.sqrt());
    }
}
