// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The matrix core: `v_mfma_*` (D = A·B + C, up to 16 small matrices at once) and `v_smfmac_*` (A
//! has two of every four elements, D is also C).
//!
//! An instruction's name says its shape, so the shape is read off the name. Which lane and register
//! hold which element: AMD's matrix instruction calculator. EXEC does not matter.

use super::{Done, Machine};
use crate::exec::unsupported;
use crate::float::format::Format;
use crate::float::fused::{dot_add, Factor, Layout};
use crate::float::{fma32, settle32, settle64};
use crate::inst::{Dst, Inst, Src, Valu, ValuOp};
use crate::op::Vop3p;
use crate::wave::{Vgpr, LANES};
use crate::Target;

/// What the matrices' elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum Element {
    F64,
    /// f32, of which 10 bits of fraction count.
    Xf32,
    I8,
    Float(Format),
}

impl Element {
    fn parse(name: &str) -> Option<Element> {
        Some(match name {
            "f64" => Element::F64,
            "xf32" => Element::Xf32,
            "i8" => Element::I8,
            _ => Element::Float(Format::parse(name)?),
        })
    }

    fn bits(self) -> usize {
        match self {
            Element::F64 => 64,
            Element::Xf32 => 32,
            Element::I8 => 8,
            Element::Float(format) => format.bits(),
        }
    }

    /// How its products are taken apart.
    fn layout(self, target: Target) -> Layout {
        let (fraction, lowest) = match (self, target) {
            (Element::Float(Format::Fp8), Target::Gfx950) => (3, -6),
            (Element::Float(Format::Bf8), Target::Gfx950) => (2, -14),
            (kind, _) => kind.old_layout(),
        };
        Layout { fraction, lowest }
    }

    /// gfx942's bits of fraction, and lowest exponent; the narrow ones are gfx950's alone.
    fn old_layout(self) -> (u32, i32) {
        match self {
            Element::Float(Format::Fp6) => (3, 0),
            Element::Float(Format::Bf6) => (2, -2),
            Element::Float(Format::Fp4) => (1, 0),
            Element::Float(Format::F16) => (10, -14),
            Element::Float(Format::Bf16) => (7, -126),
            Element::Float(Format::Fp8) => (3, -7),
            Element::Float(Format::Bf8) => (2, -15),
            _ => (10, -126),
        }
    }

    fn factor(self, target: Target, bits: u64) -> Factor {
        let value = match self {
            Element::Float(format) => format.value(target, bits as u32),
            _ => truncated(bits as u32),
        };
        let layout = self.layout(target);
        let value = match target {
            Target::Gfx90a if value.abs() < 2f32.powi(layout.lowest) => 0f32.copysign(value),
            _ => value,
        };
        Factor::new(value, layout)
    }

    /// Products that are added at once.
    fn group(self) -> usize {
        match self {
            Element::Xf32 => 4,
            Element::Float(format) if format.bits() <= 8 => 16,
            _ => 8,
        }
    }
}

/// The bits of one element.
fn mask_of(element: Element) -> u64 {
    (1 << element.bits()) - 1
}

/// An XF32 operand of an f32's bits. A NaN stays one.
fn truncated(bits: u32) -> f32 {
    let value = f32::from_bits(bits);
    if value.is_nan() {
        return value;
    }
    f32::from_bits(bits & !0x1fff)
}

/// An instruction's shape: `blocks` products of M × K by K × N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub blocks: usize,
    pub a: Element,
    b: Element,
    sparse: bool,
    /// A lane's elements of B are in two runs: the second half of them belongs to the second half
    /// of k. Of the mixed formats FP8 and BF8 are, in A, too.
    split: bool,
}

impl Shape {
    /// What CBSZ and BLGP make of the mixed formats' instructions.
    fn mixed(v: &Valu, op: Vop3p) -> Option<Shape> {
        let format = |code: u8| {
            Some(Element::Float(match code {
                0 => Format::Fp8,
                1 => Format::Bf8,
                2 => Format::Fp6,
                3 => Format::Bf6,
                4 => Format::Fp4,
                _ => return None,
            }))
        };
        let (a, b) = (format(v.mods.abs)?, format(v.mods.neg)?);
        let (size, k) = match op {
            Vop3p::v_mfma_f32_16x16x128_f8f6f4 => (16, 128),
            _ => (32, 64),
        };
        Some(Shape {
            m: size,
            n: size,
            k,
            blocks: 1,
            a,
            b,
            sparse: false,
            split: false,
        })
    }

    /// From a name like `v_mfma_f32_32x32x4_2b_f16`.
    pub fn parse(name: &str) -> Option<Shape> {
        let mut parts = name.split('_').skip(1);
        let sparse = parts.next()? == "smfmac";
        let _result = parts.next()?;
        let mut sizes = parts.next()?.split('x').map(|size| size.parse().ok());
        let (m, n, k) = (sizes.next()??, sizes.next()??, sizes.next()??);
        let mut next = parts.next()?;
        let mut blocks = 1;
        if let Some(count) = next.strip_suffix('b').and_then(|count| count.parse().ok()) {
            blocks = count;
            next = parts.next()?;
        }
        let a = Element::parse(next)?;
        let b = parts.next().map_or(Some(a), Element::parse)?;
        Some(Shape {
            m,
            n,
            k,
            blocks,
            a,
            b,
            sparse,
            // Eight registers.
            split: sparse && n * k * b.bits() == 8 * 32 * LANES,
        })
    }

    /// Whether A has all its elements, and B's are of the same type.
    pub fn is_dense(&self) -> bool {
        !self.sparse && self.a == self.b
    }

    /// Whether CBSZ and ABID broadcast blocks of A.
    fn broadcasts(&self) -> bool {
        self.blocks > 1 && self.a != Element::F64
    }

    /// Whether BLGP moves B's lanes: the instructions that gfx908 had already.
    fn permutes(&self) -> bool {
        self.broadcasts() || self.a == Element::Float(Format::F32)
    }

    /// Registers of C and D.
    fn registers(&self) -> usize {
        let wide = if self.a == Element::F64 { 2 } else { 1 };
        self.m * self.n * self.blocks / LANES * wide
    }

    /// Block, row and column of C's and D's `item`th element in `lane`.
    pub fn place(&self, lane: usize, item: usize) -> (usize, usize, usize) {
        // Rows come in runs of four to a lane, but for f64.
        let run = if self.a == Element::F64 { 1 } else { 4 };
        // 4 × 4 blocks lie side by side in the lanes, larger ones in other registers.
        let side = if self.n == 4 { self.blocks } else { 1 };
        // All sizes are powers of two.
        let split =
            |value: usize, size: usize| (value >> size.trailing_zeros(), value & (size - 1));
        let (rest, column) = split(lane, self.n);
        let (turn, beside) = split(rest, side);
        let turns = split(LANES >> self.n.trailing_zeros(), side).0;
        let (behind, item) = split(item, split(self.m, turns).0);
        let row = item / run * run * turns + turn * run + item % run;
        (beside + behind * side, row, column)
    }
}

/// A factor matrix: `rows` of `length` for each block.
struct Factors<T> {
    values: Vec<T>,
    rows: usize,
    length: usize,
}

impl<T> Factors<T> {
    fn row(&self, block: usize, row: usize) -> &[T] {
        let first = (block * self.rows + row) * self.length;
        &self.values[first..first + self.length]
    }
}

/// The lane whose data `lane` of B takes.
fn lane_group(pattern: u8, lane: usize) -> usize {
    match pattern {
        1 => lane & 31,
        2 => lane | 32,
        3 => (lane + 16) & 63,
        4..=7 => usize::from(pattern - 4) * 16 + (lane & 15),
        _ => lane,
    }
}

impl Valu {
    /// Whether it is a product whose subnormal numbers are zero.
    pub(in crate::exec) fn flushes(&self, target: Target) -> bool {
        let narrow = |op: Vop3p| op.is_matrix() && op.mnemonic().ends_with("f16");
        target == Target::Gfx90a && matches!(self.op, ValuOp::Packed(op) if narrow(op))
    }
}

impl Machine<'_> {
    pub(super) fn matrix(&mut self, inst: &Inst, v: &Valu, op: Vop3p) -> Done {
        if op.is_mixed() {
            let shape = Shape::mixed(v, op).ok_or_else(|| unsupported(inst))?;
            return self.multiply_mixed(v, shape);
        }
        let shape = Shape::parse(op.mnemonic()).ok_or_else(|| unsupported(inst))?;
        match shape.a {
            Element::F64 => {
                let signed = |operand: u8| {
                    let sign = u64::from(v.mods.neg >> operand & 1) << 63;
                    move |bits: u64| f64::from_bits(bits ^ sign)
                };
                self.multiply(v, shape, [signed(0), signed(1)], double)
            }
            Element::Float(Format::F32) => self.multiply_singles(v, shape),
            Element::I8 => {
                let byte = |bits| i32::from(bits as u8 as i8);
                self.multiply(v, shape, [byte; 2], integers)
            }
            _ => self.multiply_small(v, shape),
        }
    }

    fn multiply_small(&mut self, v: &Valu, shape: Shape) -> Done {
        let (a, b) = (shape.a, shape.b);
        let target = self.target;
        let fractions = [a.layout(target).fraction, b.layout(target).fraction];
        let halves = a.bits() == 8;

        let convert: [&dyn Fn(u64) -> Factor; 2] = [&|bits| a.factor(target, bits), &|bits| {
            b.factor(target, bits)
        }];
        self.multiply(v, shape, convert, |x, y, c| {
            let groups = x.chunks(a.group()).zip(y.chunks(a.group()));
            // MI200 takes and leaves no subnormal numbers.
            let flushed = |value: f32| match target {
                Target::Gfx90a if value.is_subnormal() => 0f32.copysign(value),
                _ => value,
            };
            let start = flushed(f32::from_bits(c as u32));
            let sum = groups.fold(start, |c, (x, y)| dot_add(x, y, c, fractions, halves));
            flushed(sum).to_bits().into()
        })
    }

    /// FP8, BF8, FP6, BF6 and FP4 in any combination, with a scale for 32 elements of a row of A
    /// and of a column of B. How the hardware rounds these sums nobody has published: each 32
    /// products are added exactly here, and the sum is rounded with the accumulator.
    fn multiply_mixed(&mut self, v: &Valu, shape: Shape) -> Done {
        /// Elements that share a scale.
        const BLOCK: usize = 32;
        let target = self.target;
        let value = |element: Element| {
            move |bits: u64| f64::from(element.factor(target, bits & mask_of(element)).value())
        };
        let is_split = |element: Element| element.bits() == 8;
        let (rows, columns) = ([shape.m, shape.k, 1], [shape.n, shape.k, 1]);
        let a = self.factors(
            v.src[0],
            shape.a,
            rows,
            |l| l,
            value(shape.a),
            is_split(shape.a),
        );
        let b = self.factors(
            v.src[1],
            shape.b,
            columns,
            |l| l,
            value(shape.b),
            is_split(shape.b),
        );
        let scales = |which: usize, rows: usize| {
            let scale = v.scales.map(|scales| scales[which]);
            move |machine: &Self, row: usize, block: usize| match scale {
                None => 1.0,
                Some((src, byte)) => {
                    let lane = row + rows * block;
                    // Of a constant, a single, the exponent counts.
                    let bits = match src {
                        Src::Vgpr(_) | Src::Acc(_) => machine.element(src, 32, 0, lane),
                        Src::Inline(..) => u64::from(machine.scalar32(src) >> 23),
                        scalar => u64::from(machine.scalar32(scalar)),
                    };
                    let byte = if matches!(src, Src::Inline(..)) {
                        0
                    } else {
                        byte
                    };
                    let bits = bits >> (8 * byte) & 0xff;
                    match bits {
                        0xff => f64::NAN,
                        exponent => 2f64.powi(exponent as i32 - 127),
                    }
                }
            }
        };
        let (scale_a, scale_b) = (scales(0, shape.m), scales(1, shape.n));
        let registers = shape.registers();
        let mut d = [[0; LANES]; 32];
        for (item, register) in d[..registers].iter_mut().enumerate() {
            *register = std::array::from_fn(|lane| {
                let (_, row, column) = shape.place(lane, item);
                let pairs = a
                    .row(0, row)
                    .chunks(BLOCK)
                    .zip(b.row(0, column).chunks(BLOCK));
                let start = f64::from(f32::from_bits(self.addend(v, shape, item, lane) as u32));
                let sum = pairs.enumerate().fold(start, |sum, (block, (x, y))| {
                    let products: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                    let scale = scale_a(self, row, block) * scale_b(self, column, block);
                    f64::from((sum + products * scale) as f32)
                });
                match sum.is_nan() {
                    true => f32::NAN.to_bits(),
                    false => (sum as f32).to_bits(),
                }
            });
        }
        self.put_matrix(v.dst, &d[..registers]);
        Ok(())
    }

    /// All lanes' elements at a time, by fused multiply-adds, k upwards.
    fn multiply_singles(&mut self, v: &Valu, shape: Shape) -> Done {
        let pattern = v.mods.neg;
        let convert = |bits| bits as u32;
        let sizes = [
            [shape.m, shape.k, shape.blocks],
            [shape.n, shape.k, shape.blocks],
        ];
        let a = self.factors(v.src[0], shape.a, sizes[0], |lane| lane, convert, false);
        let b = self.factors(
            v.src[1],
            shape.b,
            sizes[1],
            |l| lane_group(pattern, l),
            convert,
            false,
        );
        let registers = shape.registers();
        let mut d = [[0; LANES]; 32];
        for (item, sums) in d[..registers].iter_mut().enumerate() {
            let rows: [(usize, usize); LANES] = std::array::from_fn(|lane| {
                let (block, row, column) = shape.place(lane, item);
                let from = source_block(v, shape, block);
                let first = (from * shape.m + row) * shape.k;
                (first, (block * shape.n + column) * shape.k)
            });
            *sums = std::array::from_fn(|lane| self.addend(v, shape, item, lane) as u32);
            for k in 0..shape.k {
                let x: Vgpr = std::array::from_fn(|lane| a.values[rows[lane].0 + k]);
                let y: Vgpr = std::array::from_fn(|lane| b.values[rows[lane].1 + k]);
                for lane in 0..LANES {
                    let (p, q) = (f32::from_bits(x[lane]), f32::from_bits(y[lane]));
                    let sum = fma32(p, q, f32::from_bits(sums[lane]));
                    sums[lane] = settle32(sum, [x[lane], y[lane], sums[lane]]);
                }
            }
        }
        self.put_matrix(v.dst, &d[..registers]);
        Ok(())
    }

    /// All elements of D: `sum` takes a row of A, a column of B and the element of C.
    fn multiply<T: Copy + Default>(
        &mut self,
        v: &Valu,
        shape: Shape,
        convert: [impl Fn(u64) -> T; 2],
        sum: impl Fn(&[T], &[T], u64) -> u64,
    ) -> Done {
        let pattern = if shape.permutes() { v.mods.neg } else { 0 };
        let lane = |lane| lane_group(pattern, lane);
        let [first, second] = &convert;
        let b = self.factors(
            v.src[1],
            shape.b,
            [shape.n, shape.k, shape.blocks],
            lane,
            second,
            shape.split,
        );
        let depth = if shape.sparse { shape.k / 2 } else { shape.k };
        let a = self.factors(
            v.src[0],
            shape.a,
            [shape.m, depth, shape.blocks],
            |l| l,
            first,
            false,
        );
        let columns = shape.sparse.then(|| self.sparse_columns(v, shape));
        let mut picked = [T::default(); 64];
        let mut element = |item: usize, lane: usize| {
            let (block, row, column) = shape.place(lane, item);
            let (x, mut y) = (
                a.row(source_block(v, shape, block), row),
                b.row(block, column),
            );
            if let Some(columns) = &columns {
                for (to, from) in picked.iter_mut().zip(columns.row(0, row)) {
                    *to = y[usize::from(*from)];
                }
                y = &picked[..depth];
            }
            sum(x, y, self.addend(v, shape, item, lane))
        };
        let registers = shape.registers();
        let mut d = [[0; LANES]; 32];
        if shape.a == Element::F64 {
            for (item, pair) in d[..registers].chunks_exact_mut(2).enumerate() {
                let results: [u64; LANES] = std::array::from_fn(|lane| element(item, lane));
                pair[0] = results.map(|result| result as u32);
                pair[1] = results.map(|result| (result >> 32) as u32);
            }
        } else {
            for (item, register) in d[..registers].iter_mut().enumerate() {
                *register = std::array::from_fn(|lane| element(item, lane) as u32);
            }
        }
        self.put_matrix(v.dst, &d[..registers]);
        Ok(())
    }

    /// A or B: rows of A, or columns of B, with their elements by k. `size` is how many rows, how
    /// long, and how many blocks; `split`: a lane's elements are two runs of k.
    fn factors<T: Copy + Default>(
        &self,
        src: Src,
        element: Element,
        size: [usize; 3],
        from: impl Fn(usize) -> usize,
        convert: impl Fn(u64) -> T,
        split: bool,
    ) -> Factors<T> {
        let [rows, length, blocks] = size;
        let mut values = vec![T::default(); rows * length * blocks];
        let items = rows * length * blocks / LANES;
        for lane in 0..LANES {
            let (row, rest) = (lane % rows, lane / rows);
            let (block, turn) = (rest % blocks, rest / blocks);
            for item in 0..items {
                let bits = self.element(src, element.bits(), item, from(lane));
                let k = place_of(item, turn, items, length, split);
                values[(block * rows + row) * length + k] = convert(bits);
            }
        }
        Factors {
            values,
            rows,
            length,
        }
    }

    /// For each element that A has: which k it stands for. Source 2 holds two bits for each, of
    /// which CBSZ and ABID choose a set.
    fn sparse_columns(&self, v: &Valu, shape: Shape) -> Factors<u8> {
        let length = shape.k / 2;
        let mut values = vec![0; shape.m * length];
        let items = shape.m * length / LANES;
        let set = match v.mods.abs & 3 {
            0 => usize::from(v.mods.op_sel) % (16 / items),
            _ => 0,
        };
        for lane in 0..LANES {
            let (row, turn) = (lane % shape.m, lane / shape.m);
            let indices = self.element(v.src[2], 32, 0, lane) >> (2 * items * set);
            for item in 0..items {
                let of_four = indices >> (2 * item) & 3;
                // Each element of A stands for one of two of B.
                let run = if shape.split { items / 2 } else { items };
                let (part, at) = (item / run, item % run);
                let first = part * shape.k / 2 + turn * 2 * run;
                let k = first + at / 2 * 4 + of_four as usize;
                values[row * length + turn * items + item] = k as u8;
            }
        }
        Factors {
            values,
            rows: shape.m,
            length,
        }
    }

    /// An element of C: of D's registers where the instruction accumulates, and negated where NEG
    /// says so (f64 only).
    fn addend(&self, v: &Valu, shape: Shape, item: usize, lane: usize) -> u64 {
        let wide = shape.a == Element::F64;
        let src = match (shape.sparse, v.dst) {
            (true, Dst::Acc(number)) => Src::Acc(number),
            (true, Dst::Vgpr(number)) => Src::Vgpr(number),
            // GPR indexing has moved D out of the registers: the result goes nowhere.
            (true, Dst::None | Dst::Scalar(_)) => Src::None,
            (false, _) => v.src[2],
        };
        let sign = if wide {
            u64::from(v.mods.neg >> 2 & 1) << 63
        } else {
            0
        };
        self.element(src, if wide { 64 } else { 32 }, item, lane) ^ sign
    }

    /// The `item`th element of `bits` bits from a register on, or a constant.
    fn element(&self, src: Src, bits: usize, item: usize, lane: usize) -> u64 {
        let register = |index: usize| match src {
            Src::Vgpr(number) => self.wave.vgpr[usize::from(number) + index][lane],
            Src::Acc(number) => self.wave.acc[usize::from(number) + index][lane],
            _ => 0,
        };
        match src {
            Src::Vgpr(_) | Src::Acc(_) if bits == 64 => {
                u64::from(register(2 * item)) | u64::from(register(2 * item + 1)) << 32
            }
            Src::Vgpr(_) | Src::Acc(_) => {
                let at = item * bits;
                let low = u64::from(register(at / 32) >> (at % 32));
                // Six bits may lie in two registers.
                match at % 32 + bits > 32 {
                    true => low | u64::from(register(at / 32 + 1)) << (32 - at % 32),
                    false => low,
                }
            }
            constant => self.scalar64(constant),
        }
    }

    fn put_matrix(&mut self, dst: Dst, values: &[Vgpr]) {
        let (file, first) = match dst {
            Dst::Vgpr(number) => (&mut self.wave.vgpr, usize::from(number)),
            Dst::Acc(number) => (&mut self.wave.acc, usize::from(number)),
            Dst::None | Dst::Scalar(_) => return,
        };
        file[first..first + values.len()].copy_from_slice(values);
    }
}

/// The k of a lane's `item`, where `turn` lanes before it have the same row.
fn place_of(item: usize, turn: usize, items: usize, length: usize, split: bool) -> usize {
    let run = if split { items / 2 } else { items };
    item / run * length / 2 * usize::from(split) + turn * run + item % run
}

/// The block of A that `block` takes.
fn source_block(v: &Valu, shape: Shape, block: usize) -> usize {
    if !shape.broadcasts() {
        return block;
    }
    let mask = (1 << v.mods.abs) - 1;
    (block & !mask | usize::from(v.mods.op_sel) & mask) & (shape.blocks - 1)
}

/// c + Σ aᵢ·bᵢ by fused multiply-adds, k upwards.
fn double(a: &[f64], b: &[f64], c: u64) -> u64 {
    let step = |c: u64, (x, y): (&f64, &f64)| {
        let sum = x.mul_add(*y, f64::from_bits(c));
        settle64(sum, [x.to_bits(), y.to_bits(), c])
    };
    a.iter().zip(b).fold(c, step)
}

/// Wraps.
fn integers(a: &[i32], b: &[i32], c: u64) -> u64 {
    let step = |c: i32, (x, y): (&i32, &i32)| c.wrapping_add(x * y);
    u64::from(a.iter().zip(b).fold(c as i32, step) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_matrix_instruction_has_a_shape() {
        for op in Vop3p::ALL
            .iter()
            .filter(|op| op.is_matrix() && !op.is_mixed())
        {
            let shape = Shape::parse(op.mnemonic()).unwrap();
            let types = op.types();
            assert_eq!(shape.registers(), usize::from(types[0].dwords()), "{op:?}");
            let depth = if shape.sparse { shape.k / 2 } else { shape.k };
            let a = shape.m * depth * shape.blocks * shape.a.bits() / 32 / LANES;
            assert_eq!(a, usize::from(types[1].dwords()), "{op:?}");
            let b = shape.n * shape.k * shape.blocks * shape.b.bits() / 32 / LANES;
            assert_eq!(b, usize::from(types[2].dwords()), "{op:?}");
        }
    }

    #[test]
    fn lane_groups_are_those_of_blgp() {
        assert_eq!(lane_group(1, 40), 8);
        assert_eq!(lane_group(2, 8), 40);
        assert_eq!((lane_group(3, 48), lane_group(3, 0)), (0, 16));
        assert_eq!((lane_group(5, 0), lane_group(7, 20)), (16, 52));
    }
}
