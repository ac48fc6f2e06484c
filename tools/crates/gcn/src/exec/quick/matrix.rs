// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms of the matrix core: dense products of singles, doubles, bytes, halves, bfloat16 and
//! XF32 without broadcasts and lane groups.
//!
//! As lanes hold the factors, those of one k are neighbours: of B a run of lanes that are N
//! columns, of A a lane. So N sums at a time take one element of A and a run of B for each k. NaNs,
//! infinities and factors of 2^64 and more are left to the reference: who meets one stores nothing.

use super::lanes::{fused, INFINITY};
use super::{Aligned, Lanes, Reg, Row};
use crate::exec::valu::matrix::{Element, Shape};
use crate::float::format::Format;
use crate::inst::Valu;
use crate::op::Vop3p;
use crate::wave::{Vgpr, Wave, LANES};
use host_simd::Level;
use std::sync::OnceLock;

/// Runs of columns in a wave's lanes, at most.
const RUNS: usize = 16;
/// Elements of C, or registers, that a lane has at most.
const ITEMS: usize = 32;
/// Elements of A or B that a lane has at most.
const FACTORS: usize = 16;

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Single,
    Double,
    Byte,
    Narrow(Narrow),
}

/// A float whose products are added in groups: see [`crate::float::fused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Narrow {
    Half,
    Bfloat,
    /// Of a single the upper bits.
    Xf32,
}

/// Bits after the point that aligned products keep.
const PRODUCT_BITS: i32 = 24;

impl Narrow {
    fn bits(self) -> usize {
        match self {
            Narrow::Xf32 => 32,
            Narrow::Half | Narrow::Bfloat => 16,
        }
    }

    /// Bits of fraction.
    fn fraction(self) -> u32 {
        match self {
            Narrow::Half | Narrow::Xf32 => 10,
            Narrow::Bfloat => 7,
        }
    }

    /// Products that are added at once.
    fn group(self) -> usize {
        match self {
            Narrow::Xf32 => 4,
            Narrow::Half | Narrow::Bfloat => 8,
        }
    }
}

/// A product's shape and registers.
#[derive(Debug)]
pub(super) struct Matrix {
    kind: Kind,
    /// Columns, and rows, of a block.
    n: usize,
    /// Elements of each factor in a lane.
    factors: usize,
    /// Lanes that hold the factors of one k: each lane's are neighbours in k.
    span: usize,
    /// Length of a sum.
    k: usize,
    /// Elements of D in a lane.
    items: usize,
    a: Reg,
    b: Reg,
    /// The low and the high dwords, if it is a constant double.
    c: [Lanes; 2],
    dst: Reg,
    /// For each element and run of lanes: where its row of A and its columns of B begin.
    places: &'static [[(u8, u8); RUNS]],
}

impl Matrix {
    /// The quick form of an instruction whose C is `c`, if it has one.
    pub(super) fn new(v: &Valu, op: Vop3p, [a, b, dst]: [Reg; 3], c: [Lanes; 2]) -> Option<Matrix> {
        if op.is_mixed() || v.mods.abs != 0 || v.mods.neg != 0 || v.scales.is_some() {
            return None;
        }
        let shape = Shape::parse(op.mnemonic()).filter(Shape::is_dense)?;
        let kind = match shape.a {
            Element::F64 => Kind::Double,
            Element::I8 => Kind::Byte,
            Element::Xf32 => Kind::Narrow(Narrow::Xf32),
            Element::Float(Format::F32) => Kind::Single,
            Element::Float(Format::F16) => Kind::Narrow(Narrow::Half),
            Element::Float(Format::Bf16) => Kind::Narrow(Narrow::Bfloat),
            Element::Float(_) => return None,
        };
        let span = shape.n * shape.blocks;
        let factors = span * shape.k / LANES;
        let items = shape.m * span / LANES;
        let fits = (1..=FACTORS).contains(&factors) && items <= ITEMS && span <= LANES;
        if shape.m != shape.n || !fits {
            return None;
        }
        Some(Matrix {
            kind,
            n: shape.n,
            factors,
            span,
            k: shape.k,
            items,
            a,
            b,
            c,
            dst,
            places: places(&shape)?,
        })
    }

    /// Computes it. False: it has to go through the reference.
    #[inline(always)]
    pub(super) fn run<L: Level>(&self, wave: &mut Wave, room: &mut Room) -> bool {
        match self.n {
            32 => self.of_columns::<L, 32>(wave, room),
            16 => self.of_columns::<L, 16>(wave, room),
            4 => self.of_columns::<L, 4>(wave, room),
            _ => false,
        }
    }

    #[inline(always)]
    fn of_columns<L: Level, const N: usize>(&self, wave: &mut Wave, room: &mut Room) -> bool {
        let registers = match self.kind {
            Kind::Double => 2 * self.items,
            _ => self.items,
        };
        let Room { d, a, b } = room;
        for (index, d) in d[..registers].iter_mut().enumerate() {
            let half = match self.kind {
                Kind::Double => index % 2,
                _ => 0,
            };
            *d = match (self.c[0], self.c[half]) {
                (Lanes::Vgpr(first), _) => wave.vgpr[usize::from(first) + index],
                (Lanes::Acc(first), _) => wave.acc[usize::from(first) + index],
                (_, Lanes::Row(Row::Zeros)) => [0; LANES],
                (_, Lanes::Constant(value)) => [value; LANES],
                _ => return false,
            };
        }
        let done = match self.kind {
            Kind::Single => self.singles::<L, N>(wave, d),
            Kind::Double => self.doubles::<N>(wave, d),
            Kind::Byte => self.bytes::<N>(wave, &mut a.exponent, &mut b.exponent, d),
            Kind::Narrow(narrow) => self.narrow::<N>(wave, narrow, (a, b), d),
        };
        if done {
            for (index, d) in d[..registers].iter().enumerate() {
                *self.dst.of(wave, index) = *d;
            }
        }
        done
    }

    /// The registers of a factor.
    #[inline(always)]
    fn registers<'a>(&self, wave: &'a Wave, from: Reg, count: usize) -> &'a [Vgpr] {
        match from {
            Reg::Vgpr(first) => &wave.vgpr[usize::from(first)..][..count],
            Reg::Acc(first) => &wave.acc[usize::from(first)..][..count],
        }
    }

    /// Where the elements of `k` are: which of a lane's, and from which lane on.
    #[inline(always)]
    fn at(&self, k: usize) -> (usize, usize) {
        let shift = self.factors.trailing_zeros();
        (k & (self.factors - 1), (k >> shift).wrapping_mul(self.span))
    }

    #[inline(always)]
    fn singles<L: Level, const N: usize>(&self, wave: &Wave, d: &mut [Vgpr; ITEMS]) -> bool {
        let a = self.registers(wave, self.a, self.factors);
        let b = self.registers(wave, self.b, self.factors);
        let mut most = 0;
        for (item, places) in self.places.iter().enumerate() {
            for run in 0..LANES / N {
                let (row, columns) = places[run];
                let out = &mut d[item][run * N..][..N];
                let mut sums = [0f32; N];
                for j in 0..N {
                    sums[j] = f32::from_bits(out[j]);
                }
                for k in 0..self.k {
                    let (index, lane) = self.at(k);
                    let x = f32::from_bits(a[index][lane + usize::from(row)]);
                    let y = &b[index][lane + usize::from(columns)..][..N];
                    for j in 0..N {
                        sums[j] = fused::<L>(x, f32::from_bits(y[j]), sums[j]);
                    }
                }
                for j in 0..N {
                    out[j] = sums[j].to_bits();
                    most = most.max(out[j] & 0x7fff_ffff);
                }
            }
        }
        most <= INFINITY
    }

    #[inline(always)]
    fn doubles<const N: usize>(&self, wave: &Wave, d: &mut [Vgpr; ITEMS]) -> bool {
        // Each lane has one element of each factor.
        if self.factors != 1 {
            return false;
        }
        let load = |from| {
            let registers = self.registers(wave, from, 2);
            let mut values = [0f64; LANES];
            for i in 0..LANES {
                let bits = u64::from(registers[0][i]) | u64::from(registers[1][i]) << 32;
                values[i] = f64::from_bits(bits);
            }
            values
        };
        let (a, b) = (load(self.a), load(self.b));
        let mut most = 0;
        for (item, places) in self.places.iter().enumerate() {
            let (low, high) = d.split_at_mut(2 * item + 1);
            let (low, high) = (&mut low[2 * item], &mut high[0]);
            for run in 0..LANES / N {
                let (row, columns) = places[run];
                let low = &mut low[run * N..][..N];
                let high = &mut high[run * N..][..N];
                let mut sums = [0f64; N];
                for j in 0..N {
                    sums[j] = f64::from_bits(u64::from(low[j]) | u64::from(high[j]) << 32);
                }
                for k in 0..self.k {
                    let lane = k * self.span;
                    let x = a[lane + usize::from(row)];
                    let y = &b[lane + usize::from(columns)..][..N];
                    for j in 0..N {
                        sums[j] = x.mul_add(y[j], sums[j]);
                    }
                }
                for j in 0..N {
                    let bits = sums[j].to_bits();
                    low[j] = bits as u32;
                    high[j] = (bits >> 32) as u32;
                    most = most.max(high[j] & 0x7fff_ffff);
                }
            }
        }
        most < 0x7ff0_0000
    }

    #[inline(always)]
    fn bytes<const N: usize>(
        &self,
        wave: &Wave,
        a: &mut Elements,
        b: &mut Elements,
        d: &mut [Vgpr; ITEMS],
    ) -> bool {
        for (from, to) in [(self.a, &mut *a), (self.b, &mut *b)] {
            let registers = self.registers(wave, from, self.factors.div_ceil(4));
            for (index, to) in to.iter_mut().enumerate().take(self.factors) {
                let shift = 24 - 8 * (index as u32 & 3);
                for i in 0..LANES {
                    to[i] = (registers[index / 4][i] << shift) as i32 >> 24;
                }
            }
        }
        for (item, places) in self.places.iter().enumerate() {
            for run in 0..LANES / N {
                let (row, columns) = places[run];
                let out = &mut d[item][run * N..][..N];
                let mut sums = [0i32; N];
                for j in 0..N {
                    sums[j] = out[j] as i32;
                }
                for k in 0..self.k {
                    let (index, lane) = self.at(k);
                    let x = a[index][lane + usize::from(row)];
                    let y = &b[index][lane + usize::from(columns)..][..N];
                    for j in 0..N {
                        sums[j] = sums[j].wrapping_add(x.wrapping_mul(y[j]));
                    }
                }
                for j in 0..N {
                    out[j] = sums[j] as u32;
                }
            }
        }
        true
    }

    #[inline(always)]
    fn narrow<const N: usize>(
        &self,
        wave: &Wave,
        kind: Narrow,
        (a, b): (&mut Parts, &mut Parts),
        d: &mut [Vgpr; ITEMS],
    ) -> bool {
        let count = (self.factors * kind.bits()).div_ceil(32);
        let up = PRODUCT_BITS as u32 - 2 * kind.fraction();
        let tame = a.take(kind, self.registers(wave, self.a, count), self.factors, up)
            & b.take(kind, self.registers(wave, self.b, count), self.factors, 0);
        if !tame {
            return false;
        }
        let group = self.k.min(kind.group());
        for first in (0..self.k).step_by(group) {
            match group {
                8 => self.add_group::<N, 8>(a, b, first, d),
                4 => self.add_group::<N, 4>(a, b, first, d),
                _ => return false,
            }
        }
        // What is not finite stays so.
        largest(&d[..self.items]) < INFINITY
    }

    /// Adds G products, from `first` on, to each sum.
    #[inline(always)]
    fn add_group<const N: usize, const G: usize>(
        &self,
        a: &Parts,
        b: &Parts,
        first: usize,
        d: &mut [Vgpr; ITEMS],
    ) {
        let mut places = [(0, 0); G];
        for g in 0..G {
            places[g] = self.at(first + g);
        }
        // All items and runs of the same columns follow each other, or nearly.
        let mut last = None;
        let (mut powers, mut sizes, mut signs) = ([&[0; N]; G], [&[0; N]; G], [&[0; N]; G]);
        for (out, runs) in d.iter_mut().zip(self.places) {
            for (out, (row, columns)) in out.chunks_exact_mut(N).zip(runs) {
                if last != Some(*columns) {
                    last = Some(*columns);
                    for g in 0..G {
                        let from = places[g].1 + usize::from(*columns);
                        powers[g] = part(&b.exponent[places[g].0], from);
                        sizes[g] = part(&b.size[places[g].0], from);
                        signs[g] = part(&b.sign[places[g].0], from);
                    }
                }
                let (mut own, mut size, mut sign) = ([0; G], [0; G], [0; G]);
                for g in 0..G {
                    let (index, lane) = places[g];
                    let at = lane.wrapping_add((*row).into()) % LANES;
                    own[g] = a.exponent[index % FACTORS][at];
                    size[g] = a.size[index % FACTORS][at];
                    sign[g] = a.sign[index % FACTORS][at];
                }
                let Some(out) = out.first_chunk_mut() else {
                    continue;
                };
                add_products((own, size, sign), (powers, sizes, signs), out);
            }
        }
    }
}

/// Exponents, significands and signs of one factor of G products, for each of N sums.
type Columns<'a, const N: usize, const G: usize> =
    ([&'a [i32; N]; G], [&'a [u32; N]; G], [&'a [i32; N]; G]);

/// Adds G products to each of N sums: exponents, significands and signs of the one factor, and for
/// each sum those of the other.
#[inline(always)]
fn add_products<const N: usize, const G: usize>(
    (own, size, sign): ([i32; G], [u32; G], [i32; G]),
    (powers, sizes, signs): Columns<N, G>,
    sums: &mut [u32; N],
) {
    let (mut tops, mut totals) = ([0; N], [0; N]);
    // All products of a lane in one turn: short loops would be unrolled and not vectorised.
    for j in 0..N {
        let mut top = i32::MIN;
        let mut exponents = [0; G];
        for g in 0..G {
            exponents[g] = own[g].wrapping_add(powers[g][j]);
            top = top.max(exponents[g]);
        }
        let mut total = 0i32;
        for g in 0..G {
            let distance = top.wrapping_sub(exponents[g]) as u32;
            let product = size[g].wrapping_mul(sizes[g][j]) >> distance.min(31);
            let sign = sign[g] ^ signs[g][j];
            total = total.wrapping_add((product as i32 ^ sign).wrapping_sub(sign));
        }
        tops[j] = top;
        totals[j] = total;
    }
    for j in 0..N {
        sums[j] = accumulate(totals[j], tops[j], f32::from_bits(sums[j])).to_bits();
    }
}

/// A shape's [`Matrix::places`], which all its products share: none, if it has another form than
/// those that there are.
fn places(shape: &Shape) -> Option<&'static [[(u8, u8); RUNS]]> {
    /// Sizes of blocks, numbers of blocks, and doubles apart: all powers of two.
    const SIZES: usize = 6;
    const BLOCKS: usize = 5;
    type Table = OnceLock<Box<[[(u8, u8); RUNS]]>>;
    static TABLES: [[[Table; BLOCKS]; SIZES]; 2] =
        [const { [const { [const { OnceLock::new() }; BLOCKS] }; SIZES] }; 2];

    let is_known = shape.m == shape.n && shape.n.is_power_of_two();
    if !is_known || !shape.blocks.is_power_of_two() {
        return None;
    }
    let table = TABLES[usize::from(shape.a == Element::F64)]
        .get(shape.n.trailing_zeros() as usize)?
        .get(shape.blocks.trailing_zeros() as usize)?;
    let place = |item: usize, run: usize| {
        let (block, row, column) = shape.place(run * shape.n % LANES, item);
        let first = block * shape.n;
        debug_assert_eq!(column, 0);
        ((first + row) as u8, first as u8)
    };
    Some(table.get_or_init(|| {
        (0..shape.m * shape.n * shape.blocks / LANES)
            .map(|item| std::array::from_fn(|run| place(item, run)))
            .collect()
    }))
}

/// The largest of all lanes, without its sign.
#[inline(always)]
fn largest(rows: &[Vgpr]) -> u32 {
    let mut lanes = Aligned::ZEROS;
    let lanes = &mut lanes.0;
    for rows in rows.chunks(2) {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            continue;
        };
        for i in 0..LANES {
            let most = u32::max(first[i] & 0x7fff_ffff, last[i] & 0x7fff_ffff);
            lanes[i] = u32::max(lanes[i], most);
        }
    }
    let mut most = 0;
    for i in 0..LANES {
        most = most.max(lanes[i]);
    }
    most
}

/// N lanes from `from` on.
#[inline(always)]
fn part<T, const N: usize>(lanes: &[T; LANES], from: usize) -> &[T; N] {
    lanes[from..]
        .first_chunk()
        .expect("a run of columns lies in a wave's lanes")
}

/// A group's sum, in units of 2^(`exponent` - 24), and an accumulator: aligned to the larger
/// exponent, the one cut off 31 bits below it and the other 24, both downwards, and rounded.
#[inline(always)]
fn accumulate(sum: i32, exponent: i32, c: f32) -> f32 {
    let field = (c.to_bits() >> 23 & 0xff) as i32;
    // Zeros and subnormals have the same.
    let own = field.max(1).wrapping_sub(127);
    let top = exponent.max(own);
    let fine = power_of_two(exponent.wrapping_sub(top).wrapping_add(31 - PRODUCT_BITS));
    let part = (f64::from(sum) * fine).floor();
    let other = (f64::from(c) * power_of_two(24i32.wrapping_sub(top))).floor();
    let total = part + other * 128.0;
    (total * power_of_two(top.wrapping_sub(31))) as f32
}

/// 2^power for powers of doubles.
#[inline(always)]
fn power_of_two(power: i32) -> f64 {
    f64::from_bits(u64::from(power.wrapping_add(1023) as u32) << 52)
}

/// Room for a product.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Room {
    d: [Vgpr; ITEMS],
    a: Parts,
    b: Parts,
}

impl Default for Room {
    fn default() -> Self {
        let parts = || Parts {
            size: [[0; LANES]; FACTORS],
            exponent: [[0; LANES]; FACTORS],
            sign: [[0; LANES]; FACTORS],
        };
        Room {
            d: [[0; LANES]; ITEMS],
            a: parts(),
            b: parts(),
        }
    }
}

/// The same element of all lanes after the other.
type Elements = [[i32; LANES]; FACTORS];

/// Factors taken apart.
#[derive(Debug)]
struct Parts {
    /// Significands, as integers.
    size: [Vgpr; FACTORS],
    exponent: Elements,
    /// All ones for a negative one.
    sign: Elements,
}

impl Parts {
    /// Takes `count` elements of each lane; significands `up` bits up. False: one is too large.
    #[inline(always)]
    fn take(&mut self, kind: Narrow, registers: &[Vgpr], count: usize, up: u32) -> bool {
        // Infinity, and 2^64.
        let limit = if kind == Narrow::Half { 31 } else { 127 + 64 };
        let mut most = 0;
        for index in 0..count {
            let (size, exponent) = (&mut self.size[index], &mut self.exponent[index]);
            let sign = &mut self.sign[index];
            let from = &registers[index * kind.bits() / 32];
            let shift = (index * kind.bits() % 32) as u32;
            // All as the upper bits of a dword.
            let (up_by, fields) = match kind {
                Narrow::Half => (16 - shift, (10, 5, 15)),
                Narrow::Bfloat => (16 - shift, (7, 8, 127)),
                Narrow::Xf32 => (0, (10, 8, 127)),
            };
            let (fraction, width, bias) = fields;
            for i in 0..LANES {
                let bits = from[i] << up_by;
                sign[i] = bits as i32 >> 31;
                let field = bits << 1 >> (32 - width);
                let below = bits << (1 + width) >> (32 - fraction);
                let hidden = if field == 0 { 0 } else { 1 << fraction };
                let whole = below | hidden;
                size[i] = whole << up;
                let power = (field.max(1) as i32).wrapping_sub(bias);
                // Zeros count with this exponent.
                exponent[i] = if whole == 0 { -126 } else { power };
                most = most.max(field);
            }
        }
        most < limit
    }
}
