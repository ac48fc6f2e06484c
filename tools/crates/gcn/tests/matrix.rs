// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Every instruction of the matrix core against a plain matrix product. Where elements lie is
//! written down here the other way round than in the interpreter: from element to register, as
//! AMD's matrix instruction calculator prints it.

#[path = "support/numbers.rs"]
mod numbers;

use gcn::inst::{Body, ValuOp};
use gcn::op::Vop3p;
use gcn::{
    Access, Apertures, CodeCache, Fault, Memory, Outcome, Target, Wave, WaveState, Workgroup,
};
use numbers::numbers;

/// Code only.
struct Code(Vec<u8>);

impl Memory for Code {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = address as usize;
        let code = self.0.get(at..at + bytes.len()).ok_or(Fault {
            address,
            access: Access::Fetch,
        })?;
        bytes.copy_from_slice(code);
        Ok(())
    }
    fn read(&mut self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault {
            address,
            access: Access::Read,
        })
    }
    fn write(&mut self, address: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault {
            address,
            access: Access::Write,
        })
    }
    fn update32(&mut self, address: u64, _: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        Err(Fault {
            address,
            access: Access::Atomic,
        })
    }
    fn update64(&mut self, address: u64, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        Err(Fault {
            address,
            access: Access::Atomic,
        })
    }
    fn realtime(&mut self) -> u64 {
        0
    }
}

/// What an instruction multiplies, as its name says it.
struct Product {
    op: Vop3p,
    m: usize,
    n: usize,
    k: usize,
    blocks: usize,
    a: String,
    b: String,
    sparse: bool,
}

fn product(op: Vop3p) -> Product {
    let name = op.mnemonic();
    let words: Vec<&str> = name.split('_').collect();
    let sizes: Vec<usize> = words[3]
        .split('x')
        .map(|size| size.parse().unwrap())
        .collect();
    let count = words[4]
        .strip_suffix('b')
        .and_then(|count| count.parse().ok());
    let kinds = &words[if count.is_some() { 5 } else { 4 }..];
    Product {
        op,
        m: sizes[0],
        n: sizes[1],
        k: sizes[2],
        blocks: count.unwrap_or(1),
        a: kind(op, kinds[0]),
        b: kind(op, kinds.last().unwrap()),
        sparse: words[1] == "smfmac",
    }
}

/// What an instruction calls a format: gfx950's 8-bit floats are the Open Compute Project's.
fn kind(op: Vop3p, name: &str) -> String {
    match (op.is_on(Target::Gfx942), name) {
        (false, "fp8" | "bf8") => format!("ocp {name}"),
        _ => name.to_string(),
    }
}

fn width(kind: &str) -> usize {
    match kind {
        "f64" => 64,
        "f32" | "xf32" => 32,
        "f16" | "bf16" => 16,
        _ => 8,
    }
}

impl Product {
    /// Lane and number in the lane of a factor's element. `size` is M or N, `length` K.
    fn factor(
        &self,
        size: usize,
        length: usize,
        block: usize,
        row: usize,
        k: usize,
    ) -> (usize, usize) {
        if self.a == "f64" && size == 4 {
            return (16 * k + 4 * block + row, 0);
        }
        if self.blocks > 1 {
            return (size * block + row, k);
        }
        let items = size * length / 64;
        // Where B has eight registers, both have two runs of k in a lane.
        if self.sparse && self.n * self.k * width(&self.b) == 8 * 32 * 64 {
            let (part, k) = (k / (length / 2), k % (length / 2));
            let run = items / 2;
            return (size * (k / run) + row, part * run + k % run);
        }
        (size * (k / items) + row, k % items)
    }

    /// Lane and number in the lane of an element of C and D.
    fn result(&self, block: usize, i: usize, j: usize) -> (usize, usize) {
        match (self.a.as_str(), self.m) {
            ("f64", 4) => (16 * i + 4 * block + j, 0),
            ("f64", _) => (16 * (i % 4) + j, i / 4),
            (_, 32) => (32 * (i / 4) % 64 + j, 16 * block + 4 * (i / 8) + i % 4),
            (_, 16) => (16 * (i / 4) + j, 4 * block + i % 4),
            _ => (4 * block + j, i),
        }
    }

    fn depth(&self) -> usize {
        if self.sparse {
            self.k / 2
        } else {
            self.k
        }
    }
}

/// Bits of a value that the format has.
fn encode(kind: &str, value: f64) -> u64 {
    match kind {
        "f64" => value.to_bits(),
        "f32" | "xf32" => (value as f32).to_bits().into(),
        "f16" => half::f16::from_f64(value).to_bits().into(),
        "bf16" => half::bf16::from_f64(value).to_bits().into(),
        "i8" => u64::from(value as i8 as u8),
        kind => (0..=255u8)
            .filter(|bits| *bits != 0x80)
            .find(|bits| decode(kind, (*bits).into()) == value)
            .expect("a value of the format")
            .into(),
    }
}

/// The value of a format's bits.
fn decode(kind: &str, bits: u64) -> f64 {
    let small = |fraction: i32, bias: i32| {
        let magnitude = (bits & 0x7f) as i32;
        let (field, rest) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
        let unit = 2f64.powi(field.max(1) - bias - fraction);
        let hidden = if field > 0 { 1 << fraction } else { 0 };
        f64::from(rest + hidden) * unit * if bits & 0x80 != 0 { -1.0 } else { 1.0 }
    };
    match kind {
        "f64" => f64::from_bits(bits),
        "f32" => f32::from_bits(bits as u32).into(),
        "xf32" => f32::from_bits(bits as u32 & !0x1fff).into(),
        "f16" => half::f16::from_bits(bits as u16).to_f64(),
        "bf16" => half::bf16::from_bits(bits as u16).to_f64(),
        "i8" => f64::from(bits as u8 as i8),
        "fp8" => small(3, 8),
        "ocp fp8" => small(3, 7),
        "ocp bf8" => small(2, 15),
        _ => small(2, 16),
    }
}

/// One instruction's operands and result.
struct Case {
    product: Product,
    wave: Wave,
    /// Where A, B, C (or the sparse index) and D begin.
    first: [usize; 4],
    cbsz: u32,
    abid: u32,
    blgp: u32,
    /// Operands and result in accumulation registers.
    acc: bool,
}

const FIRST: [usize; 4] = [0, 8, 16, 64];

impl Case {
    fn new(op: Vop3p) -> Case {
        let mut wave = Wave::new(0, 128, 128);
        // It does not matter.
        wave.set_exec(0x1234);
        Case {
            product: product(op),
            wave,
            first: FIRST,
            cbsz: 0,
            abid: 0,
            blgp: 0,
            acc: false,
        }
    }

    fn register(&mut self, index: usize) -> &mut [u32; 64] {
        if self.acc {
            &mut self.wave.acc[index]
        } else {
            &mut self.wave.vgpr[index]
        }
    }

    /// Puts the `item`th element of `bits` bits of operand `which` into a lane.
    fn put(&mut self, which: usize, bits: usize, lane: usize, item: usize, value: u64) {
        let first = self.first[which];
        if bits == 64 {
            self.register(first + 2 * item)[lane] = value as u32;
            self.register(first + 2 * item + 1)[lane] = (value >> 32) as u32;
            return;
        }
        let at = item * bits;
        let mask = ((1u64 << bits) - 1) << (at % 32);
        let register = &mut self.register(first + at / 32)[lane];
        *register = *register & !mask as u32 | ((value << (at % 32)) & mask) as u32;
    }

    fn take(&mut self, bits: usize, lane: usize, item: usize) -> u64 {
        let first = self.first[3];
        if bits == 64 {
            let low = u64::from(self.register(first + 2 * item)[lane]);
            return low | u64::from(self.register(first + 2 * item + 1)[lane]) << 32;
        }
        self.register(first + item)[lane].into()
    }

    fn run(&mut self) {
        let [a, b, c, d] = self.first.map(|first| first as u32);
        let acc = u32::from(self.acc);
        let first =
            0xd380_0000 | (self.product.op as u32 & 0x7f) << 16 | acc << 15 | self.abid << 11;
        let second = (256 + a) | (256 + b) << 9 | (256 + c) << 18 | (acc * 3) << 27;
        let code = [
            first | self.cbsz << 8 | d,
            second | self.blgp << 29,
            0xbf81_0000,
        ];
        let target = target(self.product.op);
        let inst = gcn::decode::decode_for(target, 0, &code).unwrap();
        let Body::Valu(valu) = &inst.body else {
            panic!("{inst}")
        };
        assert_eq!(valu.op, ValuOp::Packed(self.product.op));
        let mut bytes: Vec<u8> = code.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        bytes.resize(64, 0);
        (self.wave.pc, self.wave.state) = (0, WaveState::Ready);
        let mut group = Workgroup::new(vec![self.wave.clone()], 0, Apertures::default());
        let outcome = group.run(&mut Code(bytes), &mut CodeCache::of(target), 100);
        assert_eq!(outcome, Outcome::Done, "{inst}");
        self.wave = group.waves.remove(0);
    }
}

/// Matrices by block, row (of A) or column (of B), and k; C and the expected D by block, i and j.
type Blocks = Vec<Vec<Vec<f64>>>;

struct Filled {
    a: Blocks,
    b: Blocks,
    c: Blocks,
    /// The k of each element of A, by row; sparse only.
    columns: Vec<Vec<usize>>,
}

/// Fills a case's operands with values that `value` makes for a format.
fn fill(
    case: &mut Case,
    value: &mut dyn FnMut(&str) -> f64,
    pick: &mut dyn FnMut() -> u64,
) -> Filled {
    let (m, n, k, blocks) = {
        let p = &case.product;
        (p.m, p.n, p.k, p.blocks)
    };
    let depth = case.product.depth();
    let (kind_a, kind_b) = (case.product.a.clone(), case.product.b.clone());
    let kind_c = result_kind(&case.product);
    let mut filled = Filled {
        a: vec![vec![vec![0.0; depth]; m]; blocks],
        b: vec![vec![vec![0.0; k]; n]; blocks],
        c: vec![vec![vec![0.0; n]; m]; blocks],
        columns: vec![vec![0; depth]; m],
    };
    for block in 0..blocks {
        for i in 0..m {
            for at in 0..depth {
                filled.a[block][i][at] = value(&kind_a);
                let (lane, item) = case.product.factor(m, depth, block, i, at);
                let bits = encode(&kind_a, filled.a[block][i][at]);
                case.put(0, width(&kind_a), lane, item, bits);
                if case.product.sparse {
                    filled.columns[i][at] = at / 2 * 4 + sparse_index(case, lane, item, at, pick);
                }
            }
        }
        for j in 0..n {
            for at in 0..k {
                filled.b[block][j][at] = value(&kind_b);
                let (lane, item) = case.product.factor(n, k, block, j, at);
                let bits = encode(&kind_b, filled.b[block][j][at]);
                case.put(1, width(&kind_b), lane, item, bits);
            }
        }
        for i in 0..m {
            for j in 0..n {
                filled.c[block][i][j] = value(kind_c);
                let (lane, item) = case.product.result(block, i, j);
                let bits = match kind_c {
                    "i32" => filled.c[block][i][j] as i32 as u32 as u64,
                    kind => encode(kind, filled.c[block][i][j]),
                };
                let which = if case.product.sparse { 3 } else { 2 };
                case.put(
                    which,
                    if kind_c == "f64" { 64 } else { 32 },
                    lane,
                    item,
                    bits,
                );
            }
        }
    }
    filled
}

/// Chooses and stores which of four columns an element of A stands for: the two of a pair differ.
fn sparse_index(
    case: &mut Case,
    lane: usize,
    item: usize,
    at: usize,
    pick: &mut dyn FnMut() -> u64,
) -> usize {
    let items = case.product.m * case.product.depth() / 64;
    let set = if case.cbsz == 0 {
        case.abid as usize
    } else {
        0
    };
    // Even elements are in the lower two columns, odd ones in the upper two.
    let index = (pick() % 2) as usize + 2 * (at % 2);
    // Always in an architectural register.
    let at = 2 * (item + set * items);
    let register = &mut case.wave.vgpr[case.first[2]][lane];
    *register = *register & !(3 << at) | (index as u32) << at;
    index
}

fn result_kind(product: &Product) -> &'static str {
    match product.a.as_str() {
        "f64" => "f64",
        "i8" => "i32",
        _ => "f32",
    }
}

/// The terms of one element of D.
fn terms(case: &Case, filled: &Filled, block: usize, i: usize, j: usize) -> Vec<(f64, f64)> {
    let p = &case.product;
    let mut from = block;
    if !p.sparse && case.cbsz > 0 {
        from = block >> case.cbsz << case.cbsz | case.abid as usize;
    }
    let row = &filled.a[from][i];
    let column = &filled.b[block][j];
    if p.sparse {
        return row
            .iter()
            .zip(&filled.columns[i])
            .map(|(x, k)| (*x, column[*k]))
            .collect();
    }
    row.iter().zip(column).map(|(x, y)| (*x, *y)).collect()
}

/// Compares all of D with what `expect` makes of an element's terms and C.
fn check(case: &mut Case, filled: &Filled, expect: impl Fn(&[(f64, f64)], f64) -> u64) {
    let (m, n, blocks) = (case.product.m, case.product.n, case.product.blocks);
    let bits = if case.product.a == "f64" { 64 } else { 32 };
    for block in 0..blocks {
        for i in 0..m {
            for j in 0..n {
                let terms = terms(case, filled, block, i, j);
                let (lane, item) = case.product.result(block, i, j);
                let got = case.take(bits, lane, item);
                let c = filled.c[block][i][j];
                let expected = expect(&terms, c);
                let name = case.product.op.mnemonic();
                assert_eq!(
                    got, expected,
                    "{name} block {block} [{i}][{j}] {c} + {terms:?}"
                );
            }
        }
    }
}

/// All that gfx942 has.
fn all() -> impl Iterator<Item = Vop3p> {
    let all = Vop3p::ALL.iter().copied();
    all.filter(|op| op.is_matrix() && op.is_on(Target::Gfx942))
}

/// What gfx950 alone has, but for the mixed formats.
fn newer() -> impl Iterator<Item = Vop3p> {
    let all = Vop3p::ALL.iter().copied();
    all.filter(|op| op.is_matrix() && !op.is_on(Target::Gfx942) && !op.is_mixed())
        .filter(|op| op.is_on(Target::Gfx950))
}

/// What gfx90a has and gfx942 lacks.
fn older() -> impl Iterator<Item = Vop3p> {
    let all = Vop3p::ALL.iter().copied();
    all.filter(|op| op.is_on(Target::Gfx90a) && !op.is_on(Target::Gfx942))
}

fn target(op: Vop3p) -> Target {
    let all = [Target::Gfx942, Target::Gfx950, Target::Gfx90a];
    let has = all.into_iter().find(|target| op.is_on(*target));
    has.expect("a processor has it")
}

/// The bits of a sum that every order of adding makes.
fn exact(kind: &str, value: f64) -> u64 {
    match kind {
        "f64" => value.to_bits(),
        "i32" => u64::from(value as i64 as u32),
        _ => (value as f32).to_bits().into(),
    }
}

fn sum(terms: &[(f64, f64)], c: f64) -> f64 {
    terms.iter().map(|(x, y)| x * y).sum::<f64>() + c
}

#[test]
fn small_integers_multiply_exactly_in_every_instruction() {
    assert_eq!(multiply_small_integers(all()), 2 * 46, "those of gfx942");
    assert_eq!(multiply_small_integers(newer()), 2 * 20, "those of gfx950");
    assert_eq!(multiply_small_integers(older()), 2 * 7, "those of gfx90a");
}

fn multiply_small_integers(ops: impl Iterator<Item = Vop3p>) -> usize {
    let mut count = 0;
    for op in ops {
        for acc in [false, true] {
            let mut case = Case::new(op);
            case.acc = acc;
            let (mut next, mut pick) = (numbers(op as u64), numbers(99));
            let mut value = |_: &str| (next() % 9) as f64 - 4.0;
            let filled = fill(&mut case, &mut value, &mut pick);
            case.run();
            let kind = result_kind(&case.product);
            // -0 never comes of these: sums begin at a C that is no -0.
            check(&mut case, &filled, |terms, c| exact(kind, sum(terms, c)));
            count += 1;
        }
    }
    count
}

#[test]
fn i8_takes_all_values_and_wraps() {
    for op in all().filter(|op| op.mnemonic().ends_with("i8")) {
        let mut case = Case::new(op);
        let (mut next, mut pick) = (numbers(3), numbers(5));
        let mut value = |kind: &str| match kind {
            "i32" => f64::from(i32::MAX),
            _ => f64::from(next() as u8 as i8),
        };
        let filled = fill(&mut case, &mut value, &mut pick);
        case.run();
        check(&mut case, &filled, |terms, c| exact("i32", sum(terms, c)));
    }
}

/// The published arithmetic of the MI300X's narrow floats, in floating point.
fn grouped(kinds: [&str; 2], terms: &[(f64, f64)], c: f64) -> f64 {
    let group = match kinds[0] {
        "xf32" => 4,
        "fp8" | "bf8" => 16,
        _ => 8,
    };
    let lowest = |kind: &str| match kind {
        "f16" => -14,
        "fp8" => -7,
        "bf8" => -15,
        _ => -126,
    };
    let exponent = |value: f64, lowest: i32| match value {
        0.0 => -126,
        _ => (value.abs().log2().floor() as i32).max(lowest),
    };
    let aligned = |terms: &[(f64, f64)]| {
        let products: Vec<(f64, i32)> = terms
            .iter()
            .map(|(x, y)| {
                (
                    x * y,
                    exponent(*x, lowest(kinds[0])) + exponent(*y, lowest(kinds[1])),
                )
            })
            .collect();
        let top = products.iter().map(|(_, e)| *e).max().unwrap();
        let unit = 2f64.powi(top - 24);
        (
            products
                .iter()
                .map(|(x, _)| (x / unit).trunc() * unit)
                .sum::<f64>(),
            top,
        )
    };
    let floor = |value: f64, unit: i32| (value / 2f64.powi(unit)).floor() * 2f64.powi(unit);
    let eight_bits = width(kinds[0]) == 8;
    terms.chunks(group).fold(c, |c, terms| {
        let (sum, top) = if eight_bits {
            let (even, odd): (Vec<_>, Vec<_>) =
                terms.iter().enumerate().partition(|(at, _)| at % 2 == 0);
            let strip = |part: Vec<(usize, &(f64, f64))>| -> Vec<(f64, f64)> {
                part.into_iter().map(|(_, term)| *term).collect()
            };
            let ((even, e), (odd, o)) = (aligned(&strip(even)), aligned(&strip(odd)));
            let top = e.max(o);
            (floor(even, top - 24) + floor(odd, top - 24), top)
        } else {
            aligned(terms)
        };
        let own = exponent(c, -126);
        let all = top.max(own);
        let addend = if eight_bits && own < all - 25 {
            0.0
        } else {
            floor(c, all - 24)
        };
        f64::from((floor(sum, all - 31) + addend) as f32)
    })
}

#[test]
fn random_floats_round_as_published() {
    for op in all() {
        let mut case = Case::new(op);
        let kinds = [case.product.a.clone(), case.product.b.clone()];
        if kinds[0] == "i8" {
            continue;
        }
        for round in 0..4 {
            let (mut next, mut pick) = (numbers(round * 77 + 1), numbers(round + 7));
            // Near exponents, far ones, and around the formats' subnormals.
            let mut value = |kind: &str| loop {
                let raw = next();
                let bits = match (kind, round) {
                    ("f64", _) => {
                        (1023 - next() % (8 << round)) << 52 | next() << 4 | (raw & 1) << 63
                    }
                    ("f32" | "xf32", _) => {
                        (127 - next() % (8 << round)) << 23 | next() & 0x7f_ffff | (raw & 1) << 31
                    }
                    ("bf16", 0..=2) => (127 - next() % (8 << round)) << 7 | next() & 0x807f,
                    ("f16" | "bf16", _) => raw & 0xffff,
                    _ => raw & 0xff,
                };
                let value = decode(kind, bits);
                if value.is_finite()
                    && (width(kind) > 8 || bits & 0xff != 0x80)
                    && value.abs() < 1e15
                {
                    break value;
                }
            };
            let filled = fill(&mut case, &mut value, &mut pick);
            case.run();
            check(&mut case, &filled, |terms, c| match kinds[0].as_str() {
                "f64" => terms.iter().fold(c, |c, (x, y)| x.mul_add(*y, c)).to_bits(),
                "f32" => {
                    let step = |c: f32, (x, y): &(f64, f64)| (*x as f32).mul_add(*y as f32, c);
                    terms.iter().fold(c as f32, step).to_bits().into()
                }
                _ => {
                    let got = grouped([&kinds[0], &kinds[1]], terms, c);
                    (got as f32).to_bits().into()
                }
            });
        }
    }
}

#[test]
fn blocks_of_a_are_broadcast_and_lanes_of_b_are_moved() {
    for op in all().filter(|op| product(*op).blocks > 1 && product(*op).a != "f64") {
        let blocks = product(op).blocks as u32;
        for cbsz in 0..=blocks.ilog2() {
            let mut case = Case::new(op);
            (case.cbsz, case.abid) = (cbsz, (1 << cbsz) - 1);
            let (mut next, mut pick) = (numbers(11), numbers(13));
            let mut value = |_: &str| (next() % 9) as f64 - 4.0;
            let filled = fill(&mut case, &mut value, &mut pick);
            case.run();
            let kind = result_kind(&case.product);
            check(&mut case, &filled, |terms, c| exact(kind, sum(terms, c)));
        }
    }
    // Lane 0's column takes the data of the lane that BLGP says: block 0 of 4 × 4.
    let op = Vop3p::v_mfma_f32_4x4x1_16b_f32;
    for (blgp, lane) in [
        (0, 0),
        (1, 0),
        (2, 32),
        (3, 16),
        (4, 0),
        (5, 16),
        (6, 32),
        (7, 48),
    ] {
        let mut case = Case::new(op);
        case.blgp = blgp;
        for at in 0..64 {
            case.put(0, 32, at, 0, 1f32.to_bits().into());
            case.put(1, 32, at, 0, (at as f32).to_bits().into());
        }
        case.run();
        assert_eq!(
            case.take(32, 0, 0),
            (lane as f32).to_bits().into(),
            "blgp {blgp}"
        );
    }
}

#[test]
fn sparse_indices_come_from_the_set_that_abid_names() {
    for op in all().filter(|op| product(*op).sparse) {
        let sets = if width(&product(op).a) == 8 { 2 } else { 4 };
        for (cbsz, abid) in (0..sets).map(|abid| (0, abid)).chain([(1, 1)]) {
            let mut case = Case::new(op);
            (case.cbsz, case.abid) = (cbsz, abid);
            let (mut next, mut pick) = (numbers(21), numbers(u64::from(abid) + 23));
            let mut value = |_: &str| (next() % 9) as f64 - 4.0;
            let filled = fill(&mut case, &mut value, &mut pick);
            case.run();
            let kind = result_kind(&case.product);
            check(&mut case, &filled, |terms, c| exact(kind, sum(terms, c)));
        }
    }
}

#[test]
fn f64_negates_where_its_modifier_says() {
    for op in [
        Vop3p::v_mfma_f64_16x16x4_f64,
        Vop3p::v_mfma_f64_4x4x4_4b_f64,
    ] {
        for neg in 0..8 {
            let mut case = Case::new(op);
            case.blgp = neg;
            let (mut next, mut pick) = (numbers(31), numbers(33));
            let mut value = |_: &str| (next() % 9) as f64 + 1.0;
            let filled = fill(&mut case, &mut value, &mut pick);
            case.run();
            let sign = |bit: u32| if neg >> bit & 1 != 0 { -1.0 } else { 1.0 };
            check(&mut case, &filled, |terms, c| {
                let product: f64 = terms.iter().map(|(x, y)| x * y).sum();
                (product * sign(0) * sign(1) + c * sign(2)).to_bits()
            });
        }
    }
}

/// Formats by CBSZ and BLGP: name, bits, bits of fraction, bias.
const MIXED: [(&str, usize, u32, i32); 5] = [
    ("FP8", 8, 3, 7),
    ("BF8", 8, 2, 15),
    ("FP6", 6, 3, 1),
    ("BF6", 6, 2, 3),
    ("FP4", 4, 1, 1),
];

/// The bits of a small integer.
fn encode_mixed(format: usize, value: i32) -> u64 {
    let (_, bits, fraction, bias) = MIXED[format];
    let sign = u64::from(value < 0) << (bits - 1);
    let size = value.unsigned_abs();
    if size == 0 {
        return sign;
    }
    let exponent = size.ilog2();
    let rest = u64::from(size - (1 << exponent)) << fraction >> exponent;
    sign | ((exponent as i32 + bias) as u64) << fraction | rest
}

/// Lane and number in the lane of the element (row, k), by the tables of "AMD Instinct CDNA4
/// Instruction Set Architecture", Dense Matrix Layouts: 8-bit and Smaller.
fn place_mixed(bits: usize, size: usize, length: usize, row: usize, k: usize) -> (usize, usize) {
    match bits {
        8 => {
            let (part, k) = (k / (length / 2), k % (length / 2));
            (row + size * (k / 16), 16 * part + k % 16)
        }
        _ => (row + size * (k / 32), k % 32),
    }
}

#[test]
fn mixed_formats_multiply_with_and_without_scales() {
    let ops = [
        (Vop3p::v_mfma_f32_16x16x128_f8f6f4, 16, 128, 4),
        (Vop3p::v_mfma_f32_32x32x64_f8f6f4, 32, 64, 16),
    ];
    for (op, size, length, registers) in ops {
        for (a, b, scaled) in (0..50).map(|n| (n / 10, n / 2 % 5, n % 2 != 0)) {
            multiply_mixed(op, [size, length, registers], [a, b], scaled);
        }
    }
}

fn multiply_mixed(op: Vop3p, sizes: [usize; 3], formats: [usize; 2], scaled: bool) {
    const FIRST: [usize; 6] = [0, 8, 16, 32, 48, 49];
    let [size, length, registers] = sizes;
    let mut next = numbers(op as u64 * 100 + (formats[0] * 5 + formats[1]) as u64);
    let mut wave = Wave::new(0, 64, 0);
    let mut factors = [vec![], vec![]];
    let mut scales = [vec![], vec![]];
    for which in 0..2 {
        let bits = MIXED[formats[which]].1;
        for row in 0..size {
            for k in 0..length {
                let value = (next() % 9) as i32 - 4;
                factors[which].push(f64::from(value));
                let (lane, item) = place_mixed(bits, size, length, row, k);
                let encoded = encode_mixed(formats[which], value);
                for bit in 0..bits {
                    let at = item * bits + bit;
                    let register = &mut wave.vgpr[FIRST[which] + at / 32][lane];
                    *register |= ((encoded >> bit & 1) as u32) << (at % 32);
                }
            }
            for block in 0..length / 32 {
                let exponent = 125 + (next() % 5) as u32;
                scales[which].push(2f64.powi(exponent as i32 - 127));
                // Byte 1 of A's, byte 2 of B's.
                let shift = 8 * (1 + which);
                let register = &mut wave.vgpr[FIRST[4 + which]][row + size * block];
                *register = next() as u32 & !(0xff << shift) | exponent << shift;
            }
        }
    }
    let second =
        |a: usize, b: usize, c: usize| ((256 + a) | (256 + b) << 9 | (256 + c) << 18) as u32;
    let mut code = vec![
        0xd380_0000 | (op as u32) << 16 | (formats[0] as u32) << 8 | FIRST[3] as u32,
        second(FIRST[0], FIRST[1], FIRST[2]) | (formats[1] as u32) << 29,
        0xbf81_0000,
    ];
    if scaled {
        code[0] |= 1 << 11;
        let load = 0xd3ac_0000 | 1 << 11;
        code.splice(
            0..0,
            [load, second(FIRST[4], FIRST[5], 0) & 0x3ffff | 1 << 28],
        );
    }
    let mut bytes: Vec<u8> = code.iter().flat_map(|dword| dword.to_le_bytes()).collect();
    bytes.resize(64, 0);
    let mut group = Workgroup::new(vec![wave], 0, Apertures::default());
    let cache = &mut CodeCache::of(Target::Gfx950);
    assert_eq!(group.run(&mut Code(bytes), cache, 100), Outcome::Done);
    let names = formats.map(|format| MIXED[format].0);
    for (item, lane) in (0..registers).flat_map(|item| (0..64).map(move |lane| (item, lane))) {
        let (i, j) = match size {
            32 => (8 * (item / 4) + 4 * (lane / 32) + item % 4, lane % 32),
            _ => (4 * (lane / 16) + item, lane % 16),
        };
        let blocks = length / 32;
        let expected: f64 = (0..length)
            .map(|k| {
                let scale = scales[0][i * blocks + k / 32] * scales[1][j * blocks + k / 32];
                let product = factors[0][i * length + k] * factors[1][j * length + k];
                product * if scaled { scale } else { 1.0 }
            })
            .sum();
        let got = f32::from_bits(group.waves[0].vgpr[FIRST[3] + item][lane]);
        assert_eq!(
            f64::from(got),
            expected,
            "{op:?} {names:?} {scaled} [{i}][{j}]"
        );
    }
}
