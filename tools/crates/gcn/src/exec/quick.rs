// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms: instructions without rare modifiers, taken apart when their block is decoded, run
//! by loops that are compiled for the host's vector units. The rest of a block, and what MODE makes
//! rare, goes through [`Machine::step`], which is the reference: both must leave the same bits.
#![expect(
    clippy::needless_range_loop,
    reason = "the loops over lanes are all of one form, the one that is vectorised"
)]

mod carry;
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
use carry::carrying;
use compare::{Compare, Kind, Related};
use host_simd::{Function, Host, Job, Level, Task, TABLE};
use lanes::{single, Int, Operation, Pair, Single, Wide, WideOperation};
use lds::Share;
use matrix::Matrix;
use memory::Access;
use operands::{are_vgprs, fetch, operands, signed, vgprs, with_signs, write};
use scalar::Scalar;
use std::marker::PhantomData;

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

    /// So many registers from this one on.
    #[inline(always)]
    fn rows<const D: usize>(self, wave: &Wave) -> [&Vgpr; D] {
        let (file, first) = match self {
            Reg::Vgpr(number) => (&wave.vgpr[..], usize::from(number)),
            Reg::Acc(number) => (&wave.acc[..], usize::from(number)),
        };
        let mut rows = [&file[first]; D];
        for index in 1..D {
            rows[index] = &file[first + index];
        }
        rows
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

/// What executes a form.
type Runner = Function<Steps>;

/// The functions that execute forms.
struct Steps;

impl Task for Steps {
    type Context<'a> = Context<'a>;
    type Form = Form;
    type Output = Next;
}

/// A form and what executes it.
#[derive(Clone, Copy, Debug)]
struct Step {
    run: Runner,
    form: Form,
}

/// A block's quick forms.
#[derive(Debug, Default)]
pub(crate) struct Quick {
    /// One for each of its instructions.
    steps: Vec<Step>,
    matrices: Vec<Matrix>,
}

impl Quick {
    /// The quick forms of a block, for the vector units of `host`.
    pub(crate) fn of(insts: &[Inst], host: Host) -> Quick {
        let mut quick = Quick {
            steps: Vec::with_capacity(insts.len()),
            matrices: Vec::new(),
        };
        for inst in insts {
            let form = quick.decode(inst).unwrap_or(Form::None);
            let run = form.runner(host);
            quick.steps.push(Step { run, form });
        }
        quick.matrices.shrink_to_fit();
        quick
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Step>() * self.steps.capacity() + size_of::<Matrix>() * self.matrices.capacity()
    }

    /// Matrix products among them.
    #[cfg(test)]
    pub(crate) fn products(&self) -> usize {
        self.matrices.len()
    }

    /// No quick forms.
    pub(crate) fn none(insts: &[Inst]) -> Quick {
        let (run, form) = (Runner::new(slow), Form::None);
        Quick {
            steps: vec![Step { run, form }; insts.len()],
            ..Quick::default()
        }
    }
}

impl Form {
    /// What executes it on the vector units of `host`.
    fn runner(&self, host: Host) -> Runner {
        match self {
            Form::None => Runner::new(slow),
            Form::Nop => Runner::new(nothing),
            Form::Scalar(scalar) => scalar.runner(),
            Form::Int { op, dst, src } => op.runner(host, are_vgprs(*dst, src, op.uses())),
            Form::Single { op, dst, src, .. } => op.runner(host, are_vgprs(*dst, src, op.uses())),
            Form::Packed { op, .. } => match op {
                Single::v_pk_add_f32 => host.function::<Steps, Packed<single::v_pk_add_f32>>(),
                Single::v_pk_mul_f32 => host.function::<Steps, Packed<single::v_pk_mul_f32>>(),
                Single::v_pk_fma_f32 => host.function::<Steps, Packed<single::v_pk_fma_f32>>(),
                _ => Runner::new(slow),
            },
            Form::Wide { op, .. } => op.runner(host),
            Form::Select { .. } => host.function::<Steps, Selects>(),
            Form::FirstLane { .. } => Runner::new(first_lane),
            Form::Carry { .. } | Form::Multiply { .. } => host.function::<Steps, Carries>(),
            Form::Compare(compare) => compare.runner(host),
            Form::Memory(_) => host.function::<Steps, Accesses>(),
            Form::Share(_) => host.function::<Steps, Shares>(),
            Form::Matrix(_) => host.function::<Steps, Products>(),
        }
    }

    /// Whether MODE's rules for vector instructions do not concern it.
    fn is_scalar(&self) -> bool {
        matches!(self, Form::None | Form::Nop | Form::Scalar(_))
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
                words: [[0; TABLE]; WINDOW / 4 / TABLE],
            },
            product: matrix::Room::default(),
        }
    }
}

/// A row beside the registers, aligned as they are: what lies across lines of the host's cache is
/// not forwarded from a store to the next load.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned(Vgpr);

impl Aligned {
    const ZEROS: Aligned = Aligned([0; LANES]);
}

/// A window of memory.
#[derive(Debug)]
#[repr(align(64))]
struct Bytes {
    bytes: [u8; WINDOW],
    words: [[u32; TABLE]; WINDOW / 4 / TABLE],
}

impl<'a, 'b: 'a> Run<'a, 'b> {
    /// Runs it.
    pub(crate) fn on(self) -> Ended {
        let Run {
            machine,
            block,
            room,
            executed,
        } = self;
        let plain = Plain::of(machine.wave.mode);
        let mut context = Context {
            machine,
            matrices: &block.quick.matrices,
            plain,
            room,
            fault: None,
        };
        let (steps, insts) = (block.quick.steps.as_slice(), block.insts.as_slice());
        let before = *executed;
        let mut index = 0;
        let ended = loop {
            let (next, count) = context.quickly(&steps[index..]);
            index += count;
            match next {
                Next::Done => {
                    if let Some(last) = insts.last() {
                        context.machine.wave.pc = last.next();
                    }
                    break Ended::Jumped;
                }
                Next::Jumped => break Ended::Jumped,
                Next::Slow => {}
            }
            let inst = &insts[index - 1];
            let machine = &mut context.machine;
            machine.wave.pc = inst.pc;
            if let Some(fault) = context.fault {
                break Ended::Stopped(Stop::Fault(fault));
            }
            let flow = machine.step(inst);
            if let Some(ended) = go_on(machine.wave, inst, flow) {
                break ended;
            }
            context.plain = Plain::of(context.machine.wave.mode);
        };
        *executed = before.wrapping_add(index as u64);
        ended
    }
}

impl Context<'_> {
    /// Runs quick forms until there is none, one is not done, or all are, and says how many that
    /// were, with the one that was not done.
    #[inline(always)]
    fn quickly(&mut self, steps: &[Step]) -> (Next, usize) {
        let vector = self.plain.vector;
        let mut left = steps.iter();
        let mut next = Next::Done;
        for step in left.by_ref() {
            next = match vector || step.form.is_scalar() {
                true => step.run.call(self, &step.form),
                false => Next::Slow,
            };
            if next != Next::Done {
                break;
            }
        }
        (next, steps.len() - left.len())
    }
}

/// What a quick form came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Done,
    /// Goes on where the wave's PC is.
    Jumped,
    /// Was not run, or memory refused: [`Context::fault`].
    Slow,
}

impl Next {
    #[inline(always)]
    fn done(done: bool) -> Next {
        match done {
            true => Next::Done,
            false => Next::Slow,
        }
    }
}

/// What a quick form needs to run.
struct Context<'a> {
    machine: Machine<'a>,
    matrices: &'a [Matrix],
    plain: Plain,
    room: &'a mut Room,
    /// Memory refused, and what the instruction leaves then is done.
    fault: Option<Fault>,
}

/// For the reference.
fn slow(_: &mut Context, _: &Form) -> Next {
    Next::Slow
}

fn nothing(_: &mut Context, _: &Form) -> Next {
    Next::Done
}

fn first_lane(context: &mut Context, form: &Form) -> Next {
    let wave = &mut *context.machine.wave;
    let Form::FirstLane { dst, src } = form else {
        return Next::Slow;
    };
    let lane = wave.exec().trailing_zeros() as usize % LANES;
    wave.scalar[usize::from(*dst)] = wave.vgpr[usize::from(*src)][lane];
    Next::Done
}

/// Kinds of quick forms, their parameters, and the functions that run them.
macro_rules! kinds {
    ($($name:ident [$($parameters:tt)*] [$($arguments:tt)*] ($($type:ident),*) $run:ident;)*) => {
        $(
            struct $name<$($parameters)*>(PhantomData<fn($($type),*)>);

            impl<$($parameters)*> Job<Steps> for $name<$($arguments)*> {
                #[inline(always)]
                fn run<L: Level>(level: L, context: &mut Context, form: &Form) -> Next {
                    $run::<L, $($arguments)*>(level, context, form)
                }
            }
        )*
    };
}

kinds! {
    Ints [O: Operation, const DIRECT: bool] [O, DIRECT] (O) ints;
    Singles [O: Operation, const DIRECT: bool] [O, DIRECT] (O) singles;
    Packed [O: Operation] [O] (O) packed;
    Wides [O: WideOperation] [O] (O) wides;
    Selects [] [] () selects;
    Carries [] [] () carries;
    Compares [K: Kind, R: Related] [K, R] (K, R) compares;
    Accesses [] [] () accesses;
    Shares [] [] () shares;
    Products [] [] () products;
}

/// An operation on dwords, to the lanes of EXEC; `DIRECT`: on VGPRs alone.
#[inline(always)]
fn narrow<L: Level, O: Operation, const DIRECT: bool>(
    level: L,
    context: &mut Context,
    (dst, src, signs): (Reg, &[Lanes; 3], Signs),
) -> Next {
    let (wave, room) = (&mut *context.machine.wave, &mut *context.room);
    let exec = wave.exec();
    let (hold, signed) = room.hold.split_at_mut(3);
    let src = (src, O::USES);
    let (to, operands) = match DIRECT {
        true => match vgprs(wave, dst, src, hold) {
            Some(found) => found,
            None => return Next::Slow,
        },
        false => operands(wave, dst, src, hold),
    };
    let operands = with_signs(operands, signs, signed);
    let [result, ..] = &mut room.result;
    let all = exec == u64::MAX;
    let out = if all { &mut *to } else { &mut *result };
    O::run(level, context.plain.ieee, operands, out);
    if !all {
        level.put(to, result, exec);
    }
    Next::Done
}

#[inline(always)]
fn ints<L: Level, O: Operation, const DIRECT: bool>(
    level: L,
    context: &mut Context,
    form: &Form,
) -> Next {
    match form {
        Form::Int { dst, src, .. } => {
            narrow::<L, O, DIRECT>(level, context, (*dst, src, Signs::default()))
        }
        _ => Next::Slow,
    }
}

#[inline(always)]
fn singles<L: Level, O: Operation, const DIRECT: bool>(
    level: L,
    context: &mut Context,
    form: &Form,
) -> Next {
    match form {
        Form::Single {
            dst, src, signs, ..
        } if context.plain.single => narrow::<L, O, DIRECT>(level, context, (*dst, src, *signs)),
        _ => Next::Slow,
    }
}

#[inline(always)]
fn selects<L: Level>(level: L, context: &mut Context, form: &Form) -> Next {
    let (wave, room) = (&mut *context.machine.wave, &mut *context.room);
    let Form::Select { dst, src, mask } = form else {
        return Next::Slow;
    };
    let mask = wave.scalar64(usize::from(*mask));
    let exec = wave.exec();
    let (to, [a, b, _]) = operands(
        wave,
        *dst,
        (
            &[src[0], src[1], Lanes::Row(Row::Zeros)],
            [true, true, false],
        ),
        &mut room.hold,
    );
    level.select(to, [a, b], mask, exec);
    Next::Done
}

#[inline(always)]
fn packed<L: Level, O: Operation>(level: L, context: &mut Context, form: &Form) -> Next {
    let (wave, room) = (&mut *context.machine.wave, &mut *context.room);
    let Form::Packed {
        dst, src, signs, ..
    } = form
    else {
        return Next::Slow;
    };
    if !context.plain.single {
        return Next::Slow;
    }
    for half in 0..2 {
        let ([a, b, c, ..], signed) = room.hold.split_at_mut(3) else {
            return Next::Slow;
        };
        let operands = [
            fetch(wave, src[half][0], a),
            fetch(wave, src[half][1], b),
            fetch(wave, src[half][2], c),
        ];
        let operands = with_signs(operands, signs[half], signed);
        O::run(level, context.plain.ieee, operands, &mut room.result[half]);
    }
    write(level, wave, *dst, &room.result);
    Next::Done
}

#[inline(always)]
fn wides<L: Level, O: WideOperation>(level: L, context: &mut Context, form: &Form) -> Next {
    let (wave, room) = (&mut *context.machine.wave, &mut *context.room);
    let Form::Wide {
        dst, src, signs, ..
    } = form
    else {
        return Next::Slow;
    };
    if O::IS_FLOAT && !context.plain.double {
        return Next::Slow;
    }
    wide::<O>(wave, (src, *signs), room);
    write(level, wave, *dst, &room.result);
    Next::Done
}

#[inline(always)]
fn carries<L: Level>(level: L, context: &mut Context, form: &Form) -> Next {
    carrying(level, context.machine.wave, form, context.room);
    Next::Done
}

#[inline(always)]
fn compares<L: Level, K: Kind, R: Related>(level: L, context: &mut Context, form: &Form) -> Next {
    let plain = context.plain;
    match form {
        Form::Compare(compare)
            if (!compare.is_single() || plain.single) && (!compare.is_double() || plain.double) =>
        {
            compare.run::<L, K, R>(level, context.machine.wave, &mut context.room.hold);
            Next::Done
        }
        _ => Next::Slow,
    }
}

#[inline(always)]
fn accesses<L: Level>(level: L, context: &mut Context, form: &Form) -> Next {
    let Form::Memory(access) = form else {
        return Next::Slow;
    };
    let Room { hold, window, .. } = &mut *context.room;
    match access.run(level, &mut context.machine, (window, hold)) {
        Ok(done) => Next::done(done),
        Err(fault) => {
            context.fault = Some(fault);
            Next::Slow
        }
    }
}

#[inline(always)]
fn shares<L: Level>(level: L, context: &mut Context, form: &Form) -> Next {
    match form {
        Form::Share(share) => {
            let room = &mut context.room.hold;
            Next::done(share.run(level, &mut context.machine, room))
        }
        _ => Next::Slow,
    }
}

#[inline(always)]
fn products<L: Level>(_level: L, context: &mut Context, form: &Form) -> Next {
    let Form::Matrix(number) = form else {
        return Next::Slow;
    };
    let matrix = &context.matrices[usize::from(*number)];
    Next::done(matrix.run::<L>(context.machine.wave, &mut context.room.product))
}

#[inline(always)]
fn wide<O: WideOperation>(wave: &Wave, (src, signs): (&[[Lanes; 2]; 3], Signs), room: &mut Room) {
    let [a, b, c, d, e, f, signed_a, signed_b, signed_c] = &mut room.hold;
    let zeros = Row::Zeros.lanes();
    let mut a: Pair = [fetch(wave, src[0][0], a), fetch(wave, src[0][1], b)];
    let [mut b, mut c]: [Pair; 2] = [
        match O::USES[1] {
            true => [fetch(wave, src[1][0], c), fetch(wave, src[1][1], d)],
            false => [zeros; 2],
        },
        match O::USES[2] {
            true => [fetch(wave, src[2][0], e), fetch(wave, src[2][1], f)],
            false => [zeros; 2],
        },
    ];
    if signs != Signs::default() {
        a[1] = signed(a[1], signs, 0, signed_a);
        b[1] = signed(b[1], signs, 1, signed_b);
        c[1] = signed(c[1], signs, 2, signed_c);
    }
    O::run([a, b, c], &mut room.result);
}
