// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms: instructions without rare modifiers, taken apart when their block is decoded, run
//! by loops that are compiled for the host's vector units. The rest of a block, and what MODE makes
//! rare, goes through [`Machine::step`], which is the reference: both must leave the same bits.
#![expect(
    clippy::needless_range_loop,
    reason = "the loops over lanes are all of one form, the one that is vectorised"
)]

mod compare;
mod decode;
mod lanes;
mod lds;
mod matrix;
mod memory;
mod operands;
mod scalar;

use super::places::WINDOW;
use super::{go_on, Ended, Machine, Stop};
use crate::code::Block;
use crate::float::{Fp, Round};
use crate::inst::Inst;
use crate::memory::Fault;
use crate::wave::{mode, Vgpr, Wave, LANES};
use compare::Compare;
use host_simd::{Host, Level, Work};
use lanes::{Int, Pair, Single, Wide};
use lds::Share;
use matrix::Matrix;
use memory::Access;
use operands::{fetch, gather, operands, put, signed, with_signs, write};
use scalar::Scalar;

/// Where a vector operand's dwords come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    Vgpr(u8),
    Acc(u8),
    /// One of [`Wave::scalar`], for all lanes.
    Scalar(u8),
    /// This, for all lanes.
    Constant(u32),
    /// A row that all programs share.
    Row(Row),
}

/// Constant rows, which need not be made when they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// Zeros: also what stands for an operand that there is not.
    Zeros,
    /// Of the low and of the high half of a mask: the bits of the lanes below each lane.
    BelowLow,
    BelowHigh,
}

/// Where a vector result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reg {
    Vgpr(u8),
    Acc(u8),
}

impl Reg {
    #[inline(always)]
    fn of(self, wave: &mut Wave, index: usize) -> &mut Vgpr {
        match self {
            Reg::Vgpr(number) => &mut wave.vgpr[usize::from(number) + index],
            Reg::Acc(number) => &mut wave.acc[usize::from(number) + index],
        }
    }
}

/// Signs of float operands: bit `n` of each mask is source `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signs {
    negated: u8,
    magnitude: u8,
}

/// An instruction's quick form.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// It has none.
    None,
    /// Nothing to do.
    Nop,
    Scalar(Scalar),
    Int {
        op: Int,
        dst: Reg,
        src: [Lanes; 3],
    },
    Single {
        op: Single,
        dst: Reg,
        src: [Lanes; 3],
        signs: Signs,
    },
    /// The same for the low and the high registers of pairs.
    Packed {
        op: Single,
        dst: Reg,
        src: [[Lanes; 3]; 2],
        signs: [Signs; 2],
    },
    Wide {
        op: Wide,
        dst: Reg,
        src: [[Lanes; 2]; 3],
        signs: Signs,
    },
    /// Source 1 where the mask in the scalar registers has its bit set, else source 0.
    Select {
        dst: Reg,
        src: [Lanes; 2],
        mask: u8,
    },
    /// `src[0] ± src[1]`, with a carry or borrow into the scalar registers `out`, and one from
    /// there.
    Carry {
        subtracts: bool,
        dst: Reg,
        src: [Lanes; 2],
        from: Option<u8>,
        out: u8,
    },
    /// 32 × 32 + 64 bits.
    Multiply {
        dst: Reg,
        src: [Lanes; 2],
        addend: [Lanes; 2],
        out: u8,
    },
    Compare(Compare),
    /// One of the block's matrix products.
    Matrix(u16),
    Memory(Access),
    Share(Share),
    /// The first active lane of a VGPR to a scalar register.
    FirstLane {
        dst: u8,
        src: u8,
    },
}

/// A block's quick forms.
#[derive(Debug, Default)]
pub(crate) struct Quick {
    /// One for each of its instructions.
    forms: Vec<Form>,
    matrices: Vec<Matrix>,
}

impl Quick {
    /// The quick forms of a block.
    pub(crate) fn of(insts: &[Inst]) -> Quick {
        let mut quick = Quick {
            forms: Vec::with_capacity(insts.len()),
            matrices: Vec::new(),
        };
        for inst in insts {
            let form = quick.decode(inst).unwrap_or(Form::None);
            quick.forms.push(form);
        }
        quick.matrices.shrink_to_fit();
        quick
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Form>() * self.forms.capacity() + size_of::<Matrix>() * self.matrices.capacity()
    }

    /// Matrix products among them.
    #[cfg(test)]
    pub(crate) fn products(&self) -> usize {
        self.matrices.len()
    }

    /// No quick forms.
    pub(crate) fn none(insts: &[Inst]) -> Quick {
        Quick {
            forms: vec![Form::None; insts.len()],
            ..Quick::default()
        }
    }
}

/// What MODE lets run by quick forms.
#[derive(Clone, Copy)]
struct Plain {
    vector: bool,
    single: bool,
    double: bool,
    ieee: bool,
}

impl Plain {
    #[inline(always)]
    fn of(word: u32) -> Plain {
        let plain = |fp: Fp| fp.round == Round::Nearest && fp.denorm_in && fp.denorm_out;
        let vector = word & (mode::GPR_IDX_EN | mode::VSKIP) == 0;
        Plain {
            vector,
            single: vector && plain(Fp::single(word)),
            double: vector && plain(Fp::other(word)),
            ieee: word & mode::IEEE != 0,
        }
    }
}

/// A block to be run.
pub(crate) struct Run<'a, 'b> {
    pub machine: Machine<'a>,
    pub block: &'b Block,
    pub room: &'b mut Room,
    /// Counts instructions.
    pub executed: &'b mut u64,
}

impl Run<'_, '_> {
    /// Runs it on `host`.
    pub(crate) fn on(self, host: Host) -> Ended {
        host.run(self)
    }
}

/// Room for operands and results, which nobody has to clear: what is left in it means nothing.
/// Aligned as the widest vectors.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Room {
    hold: [Vgpr; 9],
    result: [Vgpr; 2],
    /// What goes to memory or comes from there.
    window: Bytes,
    product: matrix::Room,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            hold: [[0; LANES]; 9],
            result: [[0; LANES]; 2],
            window: Bytes {
                bytes: [0; WINDOW],
                words: [0; WINDOW / 4],
            },
            product: matrix::Room::default(),
        }
    }
}

/// A window of memory.
#[derive(Debug)]
struct Bytes {
    bytes: [u8; WINDOW],
    words: [u32; WINDOW / 4],
}

impl Work for Run<'_, '_> {
    type Output = Ended;

    #[inline(always)]
    fn run<L: Level>(self, level: L) -> Ended {
        let Run {
            mut machine,
            block,
            room,
            executed,
        } = self;
        let mut plain = Plain::of(machine.wave.mode);
        let before = *executed;
        for (index, (form, inst)) in block.quick.forms.iter().zip(&block.insts).enumerate() {
            match form_of(level, &mut machine, &block.quick, form, plain, room) {
                Next::Done => continue,
                Next::Jump(pc) => {
                    *executed = before.wrapping_add(index as u64 + 1);
                    machine.wave.pc = pc;
                    return Ended::Jumped;
                }
                Next::Refused(fault) => {
                    *executed = before.wrapping_add(index as u64 + 1);
                    machine.wave.pc = inst.pc;
                    return Ended::Stopped(Stop::Fault(fault));
                }
                Next::Slow => {}
            }
            machine.wave.pc = inst.pc;
            let flow = machine.step(inst);
            if let Some(ended) = go_on(machine.wave, inst, flow) {
                *executed = before.wrapping_add(index as u64 + 1);
                return ended;
            }
            plain = Plain::of(machine.wave.mode);
        }
        *executed = before.wrapping_add(block.insts.len() as u64);
        if let Some(last) = block.insts.last() {
            machine.wave.pc = last.next();
        }
        Ended::Jumped
    }
}

/// What a quick form came to.
enum Next {
    Done,
    /// Goes on here.
    Jump(u64),
    /// Memory refused, and what the instruction leaves then is done.
    Refused(Fault),
    /// Was not run.
    Slow,
}

/// What a quick form needs to run.
struct Context<'a, 'b> {
    machine: &'a mut Machine<'b>,
    quick: &'a Quick,
    form: &'a Form,
    plain: Plain,
    room: &'a mut Room,
}

/// Kinds of quick forms, each a function of its own: in one, the compiler would prepare for all of
/// them whenever a block begins.
macro_rules! parts {
    ($($name:ident $run:ident -> $output:ty;)*) => {
        $(
            struct $name<'a, 'b>(Context<'a, 'b>);

            impl Work for $name<'_, '_> {
                type Output = $output;

                #[inline(always)]
                fn run<L: Level>(self, level: L) -> $output {
                    $run(level, self.0)
                }
            }
        )*
    };
}

parts! {
    Ints ints -> bool;
    Singles singles -> bool;
    Packed packed -> bool;
    Wides wides -> bool;
    Carries carries -> bool;
    Compares compares -> bool;
    Accesses accesses -> Result<bool, Fault>;
    Shares shares -> bool;
    Products products -> bool;
}

/// Runs a quick form, if it is one that MODE allows.
#[inline(always)]
fn form_of<L: Level>(
    level: L,
    machine: &mut Machine,
    quick: &Quick,
    form: &Form,
    plain: Plain,
    room: &mut Room,
) -> Next {
    match form {
        Form::Nop => return Next::Done,
        Form::Scalar(scalar) => return scalar.run(machine.wave),
        Form::None => return Next::Slow,
        _ if !plain.vector => return Next::Slow,
        _ => {}
    }
    let context = Context {
        machine,
        quick,
        form,
        plain,
        room,
    };
    let done = match form {
        Form::Int { .. } | Form::Select { .. } | Form::FirstLane { .. } => {
            level.call(Ints(context))
        }
        Form::Single { .. } => level.call(Singles(context)),
        Form::Packed { .. } => level.call(Packed(context)),
        Form::Wide { .. } => level.call(Wides(context)),
        Form::Carry { .. } | Form::Multiply { .. } => level.call(Carries(context)),
        Form::Compare(_) => level.call(Compares(context)),
        Form::Memory(_) => match level.call(Accesses(context)) {
            Ok(done) => done,
            Err(fault) => return Next::Refused(fault),
        },
        Form::Share(_) => level.call(Shares(context)),
        Form::Matrix(_) => level.call(Products(context)),
        Form::Nop | Form::Scalar(_) | Form::None => false,
    };
    match done {
        true => Next::Done,
        false => Next::Slow,
    }
}

#[inline(always)]
fn ints<L: Level>(_level: L, context: Context) -> bool {
    let (wave, room) = (&mut *context.machine.wave, context.room);
    match context.form {
        Form::Int { op, dst, src } => {
            let exec = wave.exec();
            let (to, operands) = operands(wave, *dst, src, &mut room.hold);
            let [result, ..] = &mut room.result;
            let all = exec == u64::MAX;
            op.run(operands, if all { &mut *to } else { &mut *result });
            if !all {
                put(to, result, exec);
            }
        }
        Form::Select { dst, src, mask } => {
            let [a, b, ..] = &mut room.hold;
            let [result, ..] = &mut room.result;
            *result = *fetch(wave, src[0], a);
            let mask = wave.scalar64(usize::from(*mask));
            put(result, fetch(wave, src[1], b), mask);
            write(wave, *dst, &room.result[..1]);
        }
        Form::FirstLane { dst, src } => {
            let lane = wave.exec().trailing_zeros() as usize % LANES;
            wave.scalar[usize::from(*dst)] = wave.vgpr[usize::from(*src)][lane];
        }
        _ => return false,
    }
    true
}

#[inline(always)]
fn singles<L: Level>(_level: L, context: Context) -> bool {
    let (wave, room) = (&mut *context.machine.wave, context.room);
    let Form::Single {
        op,
        dst,
        src,
        signs,
    } = context.form
    else {
        return false;
    };
    if !context.plain.single {
        return false;
    }
    let exec = wave.exec();
    let (hold, signed) = room.hold.split_at_mut(3);
    let (to, operands) = operands(wave, *dst, src, hold);
    let operands = with_signs(operands, *signs, signed);
    let [result, ..] = &mut room.result;
    let all = exec == u64::MAX;
    let out = if all { &mut *to } else { &mut *result };
    op.run::<L>(context.plain.ieee, operands, out);
    if !all {
        put(to, result, exec);
    }
    true
}

#[inline(always)]
fn packed<L: Level>(_level: L, context: Context) -> bool {
    let (wave, room) = (&mut *context.machine.wave, context.room);
    let Form::Packed {
        op,
        dst,
        src,
        signs,
    } = context.form
    else {
        return false;
    };
    if !context.plain.single {
        return false;
    }
    for half in 0..2 {
        let ([a, b, c, ..], signed) = room.hold.split_at_mut(3) else {
            return false;
        };
        let operands = [
            fetch(wave, src[half][0], a),
            fetch(wave, src[half][1], b),
            fetch(wave, src[half][2], c),
        ];
        let operands = with_signs(operands, signs[half], signed);
        op.run::<L>(context.plain.ieee, operands, &mut room.result[half]);
    }
    write(wave, *dst, &room.result);
    true
}

#[inline(always)]
fn wides<L: Level>(_level: L, context: Context) -> bool {
    let (wave, room) = (&mut *context.machine.wave, context.room);
    match context.form {
        Form::Wide {
            op,
            dst,
            src,
            signs,
        } if context.plain.double || !op.is_float() => {
            wide(wave, (*op, src, *signs), room);
            write(wave, *dst, &room.result);
            true
        }
        _ => false,
    }
}

#[inline(always)]
fn carries<L: Level>(_level: L, context: Context) -> bool {
    carrying(context.machine.wave, context.form, context.room);
    true
}

#[inline(always)]
fn compares<L: Level>(_level: L, context: Context) -> bool {
    let plain = context.plain;
    match context.form {
        Form::Compare(compare)
            if (!compare.is_single() || plain.single) && (!compare.is_double() || plain.double) =>
        {
            compare.run(context.machine.wave, &mut context.room.hold);
            true
        }
        _ => false,
    }
}

#[inline(always)]
fn accesses<L: Level>(_level: L, context: Context) -> Result<bool, Fault> {
    match context.form {
        Form::Memory(access) => access.run(context.machine, &mut context.room.window),
        _ => Ok(false),
    }
}

#[inline(always)]
fn shares<L: Level>(_level: L, context: Context) -> bool {
    match context.form {
        Form::Share(share) => share.run(context.machine),
        _ => false,
    }
}

#[inline(always)]
fn products<L: Level>(_level: L, context: Context) -> bool {
    let Form::Matrix(number) = context.form else {
        return false;
    };
    let matrix = &context.quick.matrices[usize::from(*number)];
    matrix.run::<L>(context.machine.wave, &mut context.room.product)
}

#[inline(always)]
fn wide(wave: &Wave, (op, src, signs): (Wide, &[[Lanes; 2]; 3], Signs), room: &mut Room) {
    let [a, b, c, d, e, f, signed_a, signed_b, signed_c] = &mut room.hold;
    let mut a: Pair = [fetch(wave, src[0][0], a), fetch(wave, src[0][1], b)];
    let mut b: Pair = [fetch(wave, src[1][0], c), fetch(wave, src[1][1], d)];
    let mut c: Pair = [fetch(wave, src[2][0], e), fetch(wave, src[2][1], f)];
    if signs != Signs::default() {
        a[1] = signed(a[1], signs, 0, signed_a);
        b[1] = signed(b[1], signs, 1, signed_b);
        c[1] = signed(c[1], signs, 2, signed_c);
    }
    op.run([a, b, c], &mut room.result);
}

/// What writes lanes' carries to scalar registers.
#[inline(always)]
fn carrying(wave: &mut Wave, form: &Form, room: &mut Room) {
    let mut flags = [0u8; LANES];
    let [hold_a, hold_b, hold_c, hold_d, ..] = &mut room.hold;
    let [low, high] = &mut room.result;
    let exec = wave.exec();
    match form {
        Form::Carry {
            subtracts,
            dst,
            src,
            from,
            out,
        } => {
            let a = fetch(wave, src[0], hold_a);
            let b = fetch(wave, src[1], hold_b);
            *hold_c = [0; LANES];
            if let Some(from) = from {
                put(hold_c, &[1; LANES], wave.scalar64(usize::from(*from)));
            }
            if *subtracts {
                for i in 0..LANES {
                    let (part, first) = a[i].overflowing_sub(b[i]);
                    let (all, second) = part.overflowing_sub(hold_c[i]);
                    low[i] = all;
                    flags[i] = u8::from(first | second);
                }
            } else {
                for i in 0..LANES {
                    let (part, first) = a[i].overflowing_add(b[i]);
                    let (all, second) = part.overflowing_add(hold_c[i]);
                    low[i] = all;
                    flags[i] = u8::from(first | second);
                }
            }
            put(dst.of(wave, 0), low, exec);
            wave.set_scalar64(usize::from(*out), gather(&flags) & exec);
        }
        Form::Multiply {
            dst,
            src,
            addend,
            out,
        } => {
            let a = fetch(wave, src[0], hold_a);
            let b = fetch(wave, src[1], hold_b);
            let c = [
                fetch(wave, addend[0], hold_c),
                fetch(wave, addend[1], hold_d),
            ];
            for i in 0..LANES {
                let product = u64::from(a[i]).wrapping_mul(u64::from(b[i]));
                let addend = u64::from(c[0][i]) | u64::from(c[1][i]) << 32;
                let sum = product.wrapping_add(addend);
                low[i] = sum as u32;
                high[i] = (sum >> 32) as u32;
                flags[i] = u8::from(sum < product);
            }
            put(dst.of(wave, 0), low, exec);
            put(dst.of(wave, 1), high, exec);
            wave.set_scalar64(usize::from(*out), gather(&flags) & exec);
        }
        _ => {}
    }
}
