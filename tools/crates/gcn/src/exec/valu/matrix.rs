// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The matrix core: `v_mfma_*` (D = A·B + C, up to 16 small matrices at once) and `v_smfmac_*` (A
//! has two of every four elements, D is also C).
//!
//! An instruction's name says its shape, so the shape is read off the name. Which lane and register
//! hold which element: AMD's matrix instruction calculator. EXEC does not matter.

use super::{Done, Machine};
use crate::exec::unsupported;
use crate::float::fused::{dot_add, Factor, Layout};
use crate::float::small::{BF8, FP8};
use crate::float::{fma32, half, settle32, settle64};
use crate::inst::{Dst, Inst, Src, Valu};
use crate::op::Vop3p;
use crate::wave::{Vgpr, LANES};

/// What the matrices' elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    F64,
    F32,
    /// f32, of which 10 bits of fraction count.
    Xf32,
    F16,
    Bf16,
    Fp8,
    Bf8,
    I8,
}

impl Element {
    fn parse(name: &str) -> Option<Element> {
        Some(match name {
            "f64" => Element::F64,
            "f32" => Element::F32,
            "xf32" => Element::Xf32,
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "fp8" => Element::Fp8,
            "bf8" => Element::Bf8,
            "i8" => Element::I8,
            _ => return None,
        })
    }

    fn bits(self) -> usize {
        match self {
            Element::F64 => 64,
            Element::F32 | Element::Xf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::Fp8 | Element::Bf8 | Element::I8 => 8,
        }
    }

    /// How its products are taken apart.
    fn layout(self) -> Layout {
        let (fraction, lowest) = match self {
            Element::F16 => (10, -14),
            Element::Bf16 => (7, -126),
            Element::Fp8 => (3, -7),
            Element::Bf8 => (2, -15),
            _ => (10, -126),
        };
        Layout { fraction, lowest }
    }

    fn factor(self, bits: u64) -> Factor {
        let value = match self {
            Element::F16 => half::to_f32(bits as u16),
            Element::Bf16 => half::bf16_to_f32(bits as u16),
            Element::Fp8 => FP8.to_f32(bits as u8),
            Element::Bf8 => BF8.to_f32(bits as u8),
            _ => truncated(bits as u32),
        };
        Factor::new(value, self.layout())
    }

    /// Products that are added at once.
    fn group(self) -> usize {
        match self {
            Element::Xf32 => 4,
            Element::Fp8 | Element::Bf8 => 16,
            _ => 8,
        }
    }
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
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    blocks: usize,
    a: Element,
    b: Element,
    sparse: bool,
}

impl Shape {
    /// From a name like `v_mfma_f32_32x32x4_2b_f16`.
    fn parse(name: &str) -> Option<Shape> {
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
        })
    }

    /// Whether CBSZ and ABID broadcast blocks of A.
    fn broadcasts(&self) -> bool {
        self.blocks > 1 && self.a != Element::F64
    }

    /// Whether BLGP moves B's lanes: the instructions that gfx908 had already.
    fn permutes(&self) -> bool {
        self.broadcasts() || self.a == Element::F32
    }

    /// Registers of C and D.
    fn registers(&self) -> usize {
        let wide = if self.a == Element::F64 { 2 } else { 1 };
        self.m * self.n * self.blocks / LANES * wide
    }

    /// Block, row and column of C's and D's `item`th element in `lane`.
    fn place(&self, lane: usize, item: usize) -> (usize, usize, usize) {
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

impl Machine<'_> {
    pub(super) fn matrix(&mut self, inst: &Inst, v: &Valu, op: Vop3p) -> Done {
        let shape = Shape::parse(op.mnemonic()).ok_or_else(|| unsupported(inst))?;
        match shape.a {
            Element::F64 => {
                let signed = |operand: u8| {
                    let sign = u64::from(v.mods.neg >> operand & 1) << 63;
                    move |bits: u64| f64::from_bits(bits ^ sign)
                };
                self.multiply(v, shape, [signed(0), signed(1)], double)
            }
            Element::F32 => self.multiply_singles(v, shape),
            Element::I8 => {
                let byte = |bits| i32::from(bits as u8 as i8);
                self.multiply(v, shape, [byte; 2], integers)
            }
            _ => self.multiply_small(v, shape),
        }
    }

    fn multiply_small(&mut self, v: &Valu, shape: Shape) -> Done {
        let (a, b) = (shape.a, shape.b);
        let fractions = [a.layout().fraction, b.layout().fraction];
        let halves = a.bits() == 8;

        let convert: [&dyn Fn(u64) -> Factor; 2] = [&|bits| a.factor(bits), &|bits| b.factor(bits)];
        self.multiply(v, shape, convert, |x, y, c| {
            let groups = x.chunks(a.group()).zip(y.chunks(a.group()));
            let start = f32::from_bits(c as u32);
            let sum = groups.fold(start, |c, (x, y)| dot_add(x, y, c, fractions, halves));
            sum.to_bits().into()
        })
    }

    /// All lanes' elements at a time, by fused multiply-adds, k upwards.
    fn multiply_singles(&mut self, v: &Valu, shape: Shape) -> Done {
        let pattern = v.mods.neg;
        let convert = |bits| bits as u32;
        let sizes = [
            [shape.m, shape.k, shape.blocks],
            [shape.n, shape.k, shape.blocks],
        ];
        let a = self.factors(v.src[0], shape.a, sizes[0], |lane| lane, convert);
        let b = self.factors(
            v.src[1],
            shape.b,
            sizes[1],
            |l| lane_group(pattern, l),
            convert,
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
        );
        let depth = if shape.sparse { shape.k / 2 } else { shape.k };
        let a = self.factors(
            v.src[0],
            shape.a,
            [shape.m, depth, shape.blocks],
            |l| l,
            first,
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
    /// long, and how many blocks.
    fn factors<T: Copy + Default>(
        &self,
        src: Src,
        element: Element,
        size: [usize; 3],
        from: impl Fn(usize) -> usize,
        convert: impl Fn(u64) -> T,
    ) -> Factors<T> {
        let [rows, length, blocks] = size;
        let mut values = vec![T::default(); rows * length * blocks];
        let items = rows * length * blocks / LANES;
        for lane in 0..LANES {
            let (row, rest) = (lane % rows, lane / rows);
            let (block, turn) = (rest % blocks, rest / blocks);
            for item in 0..items {
                let bits = self.element(src, element.bits(), item, from(lane));
                values[(block * rows + row) * length + turn * items + item] = convert(bits);
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
                let k = turn * 2 * items + item / 2 * 4 + of_four as usize;
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
            _ => v.src[2],
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
                u64::from(register(at / 32) >> (at % 32))
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
        for op in Vop3p::ALL.iter().filter(|op| op.is_matrix()) {
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
