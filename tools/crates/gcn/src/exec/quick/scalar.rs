// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms of the scalar ALU's usual instructions and of branches.

use super::{Context, Form, Next, Runner};
use crate::exec::branch::target;
use crate::inst::{Body, Inst, Src};
use crate::op::{Sop1, Sop2, Sopc, Sopk, Sopp};
use crate::wave::Wave;

/// Where a scalar operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// It is in a register, or in the pair from this one of [`Wave::scalar`] on.
    is_register: bool,
    register: u8,
    /// Else it is this.
    value: u64,
}

impl Source {
    fn register(register: u8) -> Source {
        Source {
            is_register: true,
            register,
            value: 0,
        }
    }

    fn value(value: u64) -> Source {
        Source {
            is_register: false,
            register: 0,
            value,
        }
    }

    /// The operand of 32 or 64 bits, unless it is a rare one.
    fn new(src: Src, wide: bool) -> Option<Source> {
        match src {
            Src::Scalar(code) => Some(Source::register(code & if wide { 0x7e } else { 0x7f })),
            Src::Inline(_, bits) | Src::Literal(_, bits) => Some(Source::value(bits)),
            Src::None => Some(Source::value(0)),
            Src::Special(_) | Src::Vgpr(_) | Src::Acc(_) => None,
        }
    }

    #[inline(always)]
    fn narrow(self, wave: &Wave) -> u32 {
        match self.is_register {
            true => self.narrow_as::<true>(wave),
            false => self.narrow_as::<false>(wave),
        }
    }

    /// The operand, which is in a register or not.
    #[inline(always)]
    fn narrow_as<const IS_REGISTER: bool>(self, wave: &Wave) -> u32 {
        match IS_REGISTER {
            true => wave.scalar[usize::from(self.register & 0x7f)],
            false => self.value as u32,
        }
    }

    #[inline(always)]
    fn wide(self, wave: &Wave) -> u64 {
        match self.is_register {
            true => wave.scalar64(usize::from(self.register & 0x7e)),
            false => self.value,
        }
    }
}

/// What makes a result and SCC of two operands and SCC.
trait Operation<T> {
    fn run(a: T, b: T, scc: bool) -> (T, bool);
}

/// A table of operations that make a result and SCC of two operands and SCC.
macro_rules! operations {
    (
        $(#[$doc:meta])*
        $name:ident $type:ident $module:ident $run:ident
        { $($kind:ident $table:ident $op:ident |$a:ident, $b:ident, $scc:ident| $value:expr;)* }
    ) => {
        $(#[$doc])*
        #[expect(non_camel_case_types, reason = "the names are the mnemonics'")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($op),* }

        impl $name {
            fn of(op: Op) -> Option<Self> {
                match op {
                    $(Op::$kind($table::$op) => Some(Self::$op),)*
                    _ => None,
                }
            }

            /// What executes it; `src`: its operands.
            fn runner(self, src: [Source; 2]) -> Runner {
                match self {
                    $(Self::$op => Runner::new($run::<$module::$op>(src)),)*
                }
            }
        }

        /// A type for each.
        #[expect(non_camel_case_types, reason = "the names are the mnemonics'")]
        mod $module {
            use super::*;

            $(
                pub(super) struct $op;

                impl Operation<$type> for $op {
                    #[inline(always)]
                    fn run($a: $type, $b: $type, $scc: bool) -> ($type, bool) {
                        $value
                    }
                }
            )*
        }
    };
}

/// An opcode of the scalar ALU.
#[derive(Clone, Copy)]
enum Op {
    One(Sop1),
    Two(Sop2),
    Constant(Sopk),
}

#[inline(always)]
fn truth(value: u32) -> (u32, bool) {
    (value, value != 0)
}

#[inline(always)]
fn truth64(value: u64) -> (u64, bool) {
    (value, value != 0)
}

#[inline(always)]
fn shifted_sum(a: u32, by: u32, b: u32) -> (u32, bool) {
    let sum = (u64::from(a) << by).wrapping_add(b.into());
    (sum as u32, sum >> 32 != 0)
}

operations! {
    /// On dwords.
    Narrow u32 narrow narrows {
        Two Sop2 s_add_u32 |a, b, _s| a.overflowing_add(b);
        Two Sop2 s_sub_u32 |a, b, _s| a.overflowing_sub(b);
        Two Sop2 s_add_i32 |a, b, _s| {
            (a.wrapping_add(b), (a as i32).checked_add(b as i32).is_none())
        };
        Two Sop2 s_sub_i32 |a, b, _s| {
            (a.wrapping_sub(b), (a as i32).checked_sub(b as i32).is_none())
        };
        Two Sop2 s_addc_u32 |a, b, scc| {
            let (part, first) = a.overflowing_add(b);
            let (sum, second) = part.overflowing_add(scc.into());
            (sum, first | second)
        };
        Two Sop2 s_subb_u32 |a, b, scc| {
            let (part, first) = a.overflowing_sub(b);
            let (rest, second) = part.overflowing_sub(scc.into());
            (rest, first | second)
        };
        Two Sop2 s_min_i32 |a, b, _s| if (a as i32) < b as i32 { (a, true) } else { (b, false) };
        Two Sop2 s_min_u32 |a, b, _s| if a < b { (a, true) } else { (b, false) };
        Two Sop2 s_max_i32 |a, b, _s| if a as i32 >= b as i32 { (a, true) } else { (b, false) };
        Two Sop2 s_max_u32 |a, b, _s| if a >= b { (a, true) } else { (b, false) };
        Two Sop2 s_cselect_b32 |a, b, scc| (if scc { a } else { b }, scc);
        Two Sop2 s_and_b32 |a, b, _s| truth(a & b);
        Two Sop2 s_or_b32 |a, b, _s| truth(a | b);
        Two Sop2 s_xor_b32 |a, b, _s| truth(a ^ b);
        Two Sop2 s_andn2_b32 |a, b, _s| truth(a & !b);
        Two Sop2 s_lshl_b32 |a, b, _s| truth(a << (b & 31));
        Two Sop2 s_lshr_b32 |a, b, _s| truth(a >> (b & 31));
        Two Sop2 s_ashr_i32 |a, b, _s| truth((a as i32 >> (b & 31)) as u32);
        Two Sop2 s_mul_i32 |a, b, scc| (a.wrapping_mul(b), scc);
        Two Sop2 s_mul_hi_u32 |a, b, scc| {
            ((u64::from(a).wrapping_mul(b.into()) >> 32) as u32, scc)
        };
        Two Sop2 s_lshl1_add_u32 |a, b, _s| shifted_sum(a, 1, b);
        Two Sop2 s_lshl2_add_u32 |a, b, _s| shifted_sum(a, 2, b);
        Two Sop2 s_lshl3_add_u32 |a, b, _s| shifted_sum(a, 3, b);
        Two Sop2 s_lshl4_add_u32 |a, b, _s| shifted_sum(a, 4, b);
        One Sop1 s_mov_b32 |a, _b, scc| (a, scc);
        One Sop1 s_not_b32 |a, _b, _s| truth(!a);
        One Sop1 s_sext_i32_i8 |a, _b, scc| (a as i8 as u32, scc);
        One Sop1 s_sext_i32_i16 |a, _b, scc| (a as i16 as u32, scc);
        Constant Sopk s_movk_i32 |_a, b, scc| (b, scc);
        Constant Sopk s_addk_i32 |a, b, _s| {
            (a.wrapping_add(b), (a as i32).checked_add(b as i32).is_none())
        };
        Constant Sopk s_mulk_i32 |a, b, scc| (a.wrapping_mul(b), scc);
    }
}

operations! {
    /// On quadwords.
    Double u64 double doubles {
        Two Sop2 s_cselect_b64 |a, b, scc| (if scc { a } else { b }, scc);
        Two Sop2 s_and_b64 |a, b, _s| truth64(a & b);
        Two Sop2 s_or_b64 |a, b, _s| truth64(a | b);
        Two Sop2 s_xor_b64 |a, b, _s| truth64(a ^ b);
        Two Sop2 s_andn2_b64 |a, b, _s| truth64(a & !b);
        Two Sop2 s_orn2_b64 |a, b, _s| truth64(a | !b);
        Two Sop2 s_lshl_b64 |a, b, _s| truth64(a << (b & 63));
        Two Sop2 s_lshr_b64 |a, b, _s| truth64(a >> (b & 63));
        Two Sop2 s_ashr_i64 |a, b, _s| truth64((a as i64 >> (b & 63)) as u64);
        One Sop1 s_mov_b64 |a, _b, scc| (a, scc);
        One Sop1 s_not_b64 |a, _b, _s| truth64(!a);
        // Of these the second operand is EXEC, and the result goes there.
        One Sop1 s_and_saveexec_b64 |a, b, _s| truth64(a & b);
        One Sop1 s_or_saveexec_b64 |a, b, _s| truth64(a | b);
        One Sop1 s_xor_saveexec_b64 |a, b, _s| truth64(a ^ b);
        One Sop1 s_andn2_saveexec_b64 |a, b, _s| truth64(a & !b);
    }
}

/// What SCC is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Different,
    Greater,
    AtLeast,
    Less,
    AtMost,
}

impl Relation {
    #[inline(always)]
    fn holds<T: Ord>(self, a: T, b: T) -> bool {
        match self {
            Relation::Equal => a == b,
            Relation::Different => a != b,
            Relation::Greater => a > b,
            Relation::AtLeast => a >= b,
            Relation::Less => a < b,
            Relation::AtMost => a <= b,
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Signed,
    Unsigned,
    Double,
}

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// SCC is this.
    Scc(bool),
    /// VCC is zero: this.
    VccZero(bool),
    ExecZero(bool),
}

/// A quick form of the scalar ALU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    Narrow {
        op: Narrow,
        dst: u8,
        src: [Source; 2],
    },
    Double {
        op: Double,
        dst: u8,
        src: [Source; 2],
    },
    /// An operation on EXEC; `dst` keeps what it was.
    Save { op: Double, dst: u8, src: Source },
    Compare {
        relation: Relation,
        width: Width,
        src: [Source; 2],
    },
    /// Ends its block.
    Branch { when: When, to: u64, next: u64 },
}

impl Scalar {
    /// The quick form of an instruction, if it has one.
    pub(super) fn of(inst: &Inst) -> Option<Scalar> {
        match inst.body {
            Body::Sop2 { op, dst, src } => two(op, dst, src),
            Body::Sop1 { op, dst, src } => one(op, dst, src),
            Body::Sopc { op, src } => compare(op, src),
            Body::Sopk { op, dst, imm, .. } => constant(op, dst, imm),
            Body::Sopp { op, imm } => {
                let when = match op {
                    Sopp::s_branch => When::Always,
                    Sopp::s_cbranch_scc0 => When::Scc(false),
                    Sopp::s_cbranch_scc1 => When::Scc(true),
                    Sopp::s_cbranch_vccz => When::VccZero(true),
                    Sopp::s_cbranch_vccnz => When::VccZero(false),
                    Sopp::s_cbranch_execz => When::ExecZero(true),
                    Sopp::s_cbranch_execnz => When::ExecZero(false),
                    _ => return None,
                };
                let (to, next) = (target(inst, imm), inst.next());
                Some(Scalar::Branch { when, to, next })
            }
            _ => None,
        }
    }

    /// What executes it.
    pub(super) fn runner(&self) -> Runner {
        match self {
            Scalar::Narrow { op, src, .. } => op.runner(*src),
            Scalar::Double { op, src, .. } => op.runner(*src),
            Scalar::Save { op, .. } => Runner::new(match op {
                Double::s_or_saveexec_b64 => saves::<double::s_or_saveexec_b64>,
                Double::s_xor_saveexec_b64 => saves::<double::s_xor_saveexec_b64>,
                Double::s_andn2_saveexec_b64 => saves::<double::s_andn2_saveexec_b64>,
                _ => saves::<double::s_and_saveexec_b64>,
            }),
            Scalar::Compare { .. } => Runner::new(compares),
            Scalar::Branch { .. } => Runner::new(branches),
        }
    }
}

/// A function of a form, as those of [`Runner`]s are.
type Plain = fn(&mut Context, &Form) -> Next;

/// Which function there is for these operands: where they are is asked here and not each time.
fn narrows<O: Operation<u32>>(src: [Source; 2]) -> Plain {
    match src.map(|src| src.is_register) {
        [false, false] => narrow_of::<O, false, false>,
        [false, true] => narrow_of::<O, false, true>,
        [true, false] => narrow_of::<O, true, false>,
        [true, true] => narrow_of::<O, true, true>,
    }
}

fn narrow_of<O: Operation<u32>, const A: bool, const B: bool>(
    context: &mut Context,
    form: &Form,
) -> Next {
    let wave = &mut *context.machine.wave;
    let Form::Scalar(Scalar::Narrow { dst, src, .. }) = form else {
        return Next::Slow;
    };
    let [a, b] = [src[0].narrow_as::<A>(wave), src[1].narrow_as::<B>(wave)];
    let (value, scc) = O::run(a, b, wave.scc);
    wave.scc = scc;
    wave.scalar[usize::from(dst & 0x7f)] = value;
    Next::Done
}

fn doubles<O: Operation<u64>>(_: [Source; 2]) -> Plain {
    double_of::<O>
}

fn double_of<O: Operation<u64>>(context: &mut Context, form: &Form) -> Next {
    let wave = &mut *context.machine.wave;
    let Form::Scalar(Scalar::Double { dst, src, .. }) = form else {
        return Next::Slow;
    };
    let (value, scc) = O::run(src[0].wide(wave), src[1].wide(wave), wave.scc);
    wave.scc = scc;
    wave.set_scalar64(usize::from(dst & 0x7e), value);
    Next::Done
}

fn saves<O: Operation<u64>>(context: &mut Context, form: &Form) -> Next {
    let wave = &mut *context.machine.wave;
    let Form::Scalar(Scalar::Save { dst, src, .. }) = form else {
        return Next::Slow;
    };
    let exec = wave.exec();
    let (value, scc) = O::run(src.wide(wave), exec, wave.scc);
    wave.scc = scc;
    wave.set_exec(value);
    wave.set_scalar64(usize::from(dst & 0x7e), exec);
    Next::Done
}

fn compares(context: &mut Context, form: &Form) -> Next {
    let wave = &mut *context.machine.wave;
    let Form::Scalar(Scalar::Compare {
        relation,
        width,
        src: [a, b],
    }) = form
    else {
        return Next::Slow;
    };
    wave.scc = match width {
        Width::Signed => relation.holds(a.narrow(wave) as i32, b.narrow(wave) as i32),
        Width::Unsigned => relation.holds(a.narrow(wave), b.narrow(wave)),
        Width::Double => relation.holds(a.wide(wave), b.wide(wave)),
    };
    Next::Done
}

fn branches(context: &mut Context, form: &Form) -> Next {
    let wave = &mut *context.machine.wave;
    let Form::Scalar(Scalar::Branch { when, to, next }) = form else {
        return Next::Slow;
    };
    let taken = match *when {
        When::Always => true,
        When::Scc(value) => wave.scc == value,
        When::VccZero(value) => (wave.vcc() == 0) == value,
        When::ExecZero(value) => (wave.exec() == 0) == value,
    };
    wave.pc = if taken { *to } else { *next };
    Next::Jumped
}

fn two(op: Sop2, dst: u8, src: [Src; 2]) -> Option<Scalar> {
    let types = op.types();
    if let Some(op) = Narrow::of(Op::Two(op)) {
        let src = [Source::new(src[0], false)?, Source::new(src[1], false)?];
        return Some(Scalar::Narrow { op, dst, src });
    }
    let op = Double::of(Op::Two(op))?;
    // Of a shift's distance the low bits count, which may be in an odd register.
    let second = match (types[2].dwords(), src[1]) {
        (1, Src::Scalar(code)) if code & 1 != 0 => return None,
        _ => Source::new(src[1], true)?,
    };
    let src = [Source::new(src[0], true)?, second];
    Some(Scalar::Double { op, dst, src })
}

fn one(op: Sop1, dst: u8, src: Src) -> Option<Scalar> {
    use Sop1::*;
    if let Some(op) = Narrow::of(Op::One(op)) {
        let src = [Source::new(src, false)?, Source::value(0)];
        return Some(Scalar::Narrow { op, dst, src });
    }
    let saves = matches!(
        op,
        s_and_saveexec_b64 | s_or_saveexec_b64 | s_xor_saveexec_b64 | s_andn2_saveexec_b64
    );
    let op = Double::of(Op::One(op))?;
    let src = Source::new(src, true)?;
    Some(match saves {
        true => Scalar::Save { op, dst, src },
        false => Scalar::Double {
            op,
            dst,
            src: [src, Source::value(0)],
        },
    })
}

fn constant(op: Sopk, dst: u8, imm: u16) -> Option<Scalar> {
    use Sopk::*;
    let extended = Source::value(u64::from(i32::from(imm as i16) as u32));
    if let Some(op) = Narrow::of(Op::Constant(op)) {
        let src = [Source::register(dst & 0x7f), extended];
        return Some(Scalar::Narrow { op, dst, src });
    }
    let (relation, width) = match op {
        s_cmpk_eq_i32 => (Relation::Equal, Width::Signed),
        s_cmpk_lg_i32 => (Relation::Different, Width::Signed),
        s_cmpk_gt_i32 => (Relation::Greater, Width::Signed),
        s_cmpk_ge_i32 => (Relation::AtLeast, Width::Signed),
        s_cmpk_lt_i32 => (Relation::Less, Width::Signed),
        s_cmpk_le_i32 => (Relation::AtMost, Width::Signed),
        s_cmpk_eq_u32 => (Relation::Equal, Width::Unsigned),
        s_cmpk_lg_u32 => (Relation::Different, Width::Unsigned),
        s_cmpk_gt_u32 => (Relation::Greater, Width::Unsigned),
        s_cmpk_ge_u32 => (Relation::AtLeast, Width::Unsigned),
        s_cmpk_lt_u32 => (Relation::Less, Width::Unsigned),
        s_cmpk_le_u32 => (Relation::AtMost, Width::Unsigned),
        _ => return None,
    };
    let second = match width {
        Width::Signed => extended,
        _ => Source::value(imm.into()),
    };
    let src = [Source::register(dst & 0x7f), second];
    Some(Scalar::Compare {
        relation,
        width,
        src,
    })
}

fn compare(op: Sopc, src: [Src; 2]) -> Option<Scalar> {
    use Sopc::*;
    let (relation, width) = match op {
        s_cmp_eq_i32 | s_cmp_eq_u32 => (Relation::Equal, Width::Unsigned),
        s_cmp_lg_i32 | s_cmp_lg_u32 => (Relation::Different, Width::Unsigned),
        s_cmp_gt_i32 => (Relation::Greater, Width::Signed),
        s_cmp_ge_i32 => (Relation::AtLeast, Width::Signed),
        s_cmp_lt_i32 => (Relation::Less, Width::Signed),
        s_cmp_le_i32 => (Relation::AtMost, Width::Signed),
        s_cmp_gt_u32 => (Relation::Greater, Width::Unsigned),
        s_cmp_ge_u32 => (Relation::AtLeast, Width::Unsigned),
        s_cmp_lt_u32 => (Relation::Less, Width::Unsigned),
        s_cmp_le_u32 => (Relation::AtMost, Width::Unsigned),
        s_cmp_eq_u64 => (Relation::Equal, Width::Double),
        s_cmp_lg_u64 => (Relation::Different, Width::Double),
        _ => return None,
    };
    let wide = width == Width::Double;
    let src = [Source::new(src[0], wide)?, Source::new(src[1], wide)?];
    Some(Scalar::Compare {
        relation,
        width,
        src,
    })
}
