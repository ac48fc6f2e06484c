// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What gfx950 has beyond gfx942: its conversions with a scale against tables of all values of the
//! small formats, and its transposing reads of LDS as kernels use them, before a matrix product.
//!
//! Sources: "AMD Instinct CDNA4 Instruction Set Architecture"; AMD's HIP guide, "CDNA4 MFMA
//! transpose load intrinsics" (which k each of a pair of reads brings).

#[path = "support/machine.rs"]
mod machine;
#[path = "support/numbers.rs"]
mod numbers;

use gcn::op::{Ds, Ty, Vop3};
use gcn::{CodeCache, Outcome, Target, Wave, Workgroup};
use machine::{Ram, APERTURES};
use numbers::numbers;

/// Runs some dwords of code, with all of LDS set.
fn run(dwords: &[u32], lds: &[u8], set: impl FnOnce(&mut Wave)) -> Result<Wave, String> {
    let mut ram = Ram::new(1 << 16);
    let mut code = dwords.to_vec();
    code.push(0xbf81_0000); // s_endpgm
    let entry = ram.place(&code);
    let mut wave = Wave::new(entry, 256, 32);
    set(&mut wave);
    let mut group = Workgroup::new(vec![wave], lds.len(), APERTURES);
    group.lds.as_mut_slice()[..lds.len()].copy_from_slice(lds);
    let cache = &mut CodeCache::of(Target::Gfx950);
    match group.run(&mut ram, cache, 1000) {
        Outcome::Done => Ok(group.waves.remove(0)),
        other => Err(format!("{other:?}")),
    }
}

/// A floating-point format: bits of exponent and of fraction, and its largest finite magnitude.
struct Format {
    exponent: i32,
    fraction: i32,
    largest: u32,
}

fn format(name: &str) -> Format {
    let [exponent, fraction, largest] = match name {
        "fp4" => [2, 1, 7],
        "fp6" => [2, 3, 0x1f],
        "bf6" => [3, 2, 0x1f],
        "fp8" => [4, 3, 0x7e],
        "bf8" => [5, 2, 0x7b],
        "f16" => [5, 10, 0x7bff],
        "bf16" => [8, 7, 0x7f7f],
        _ => [8, 23, 0x7f7f_ffff],
    };
    Format {
        exponent,
        fraction,
        largest: largest as u32,
    }
}

impl Format {
    fn bits(&self) -> usize {
        (1 + self.exponent + self.fraction) as usize
    }

    /// The value of a magnitude that is finite.
    fn value(&self, magnitude: u32) -> f64 {
        let bias = (1 << (self.exponent - 1)) - 1;
        let field = (magnitude >> self.fraction) as i32;
        let fraction = f64::from(magnitude & ((1 << self.fraction) - 1));
        let unit = 2f64.powi(field.max(1) - bias - self.fraction);
        let hidden = if field == 0 {
            0.0
        } else {
            2f64.powi(self.fraction)
        };
        (hidden + fraction) * unit
    }

    /// The value of any bits.
    fn decode(&self, bits: u32) -> f64 {
        let magnitude = bits & ((1 << (self.bits() - 1)) - 1);
        let all_ones = ((1 << self.exponent) - 1) << self.fraction;
        let size = match magnitude {
            finite if finite <= self.largest => self.value(finite),
            infinite if infinite == all_ones && self.fraction != 3 => f64::INFINITY,
            _ => f64::NAN,
        };
        if bits >> (self.bits() - 1) & 1 != 0 {
            -size
        } else {
            size
        }
    }

    /// The largest magnitude whose value is no larger, by bisection.
    fn below(&self, size: f64) -> u32 {
        let (mut low, mut high) = (0, self.largest + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.value(middle) <= size {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The value rounded, to nearest or with a random number. None where the format has only NaN
    /// or infinity for it.
    fn encode(&self, value: f64, random: Option<u32>) -> Option<u32> {
        let sign = u32::from(value.is_sign_negative()) << (self.bits() - 1);
        let low = self.below(value.abs());
        let step = self.value(low + 1) - self.value(low);
        let rest = (value.abs() - self.value(low)) / step;
        let up = match random {
            None => rest > 0.5 || rest == 0.5 && low & 1 != 0,
            Some(number) => {
                let places = 2f64.powi(23 - self.fraction);
                let number = f64::from(number) / 2f64.powi(32);
                (rest * places).floor() + (number * places).floor() >= places
            }
        };
        let magnitude = low + u32::from(up);
        (magnitude <= self.largest && rest < 1e30).then_some(magnitude | sign)
    }
}

/// `bits` bits from bit `at` of some registers on, of one lane.
fn field(registers: &[[u32; 64]], at: usize, bits: usize, lane: usize) -> u32 {
    (0..bits).fold(0, |value, bit| {
        let at = at + bit;
        value | (registers[at / 32][lane] >> (at % 32) & 1) << bit
    })
}

/// What a mnemonic says: random or not, how many values, and their formats.
struct Conversion {
    op: Vop3,
    random: bool,
    count: usize,
    interleaved: bool,
    to: &'static str,
    from: &'static str,
}

fn conversions() -> impl Iterator<Item = Conversion> {
    let names = |op: &Vop3| op.mnemonic().starts_with("v_cvt_scalef32_");
    Vop3::ALL.iter().copied().filter(names).map(|op| {
        let words: Vec<&str> = op.mnemonic().split('_').collect();
        let [.., to, from] = words[..] else {
            unreachable!("it has words")
        };
        let has = |word| words.contains(&word);
        let pairs = has("pk") && from == "f32" && !has("sr");
        Conversion {
            op,
            random: has("sr"),
            count: match () {
                () if has("pk") => 2,
                () if has("pk32") || has("2xpk16") => 32,
                () => 1,
            },
            interleaved: has("2xpk16") || pairs,
            to,
            from,
        }
    })
}

const SOURCE: usize = 0;
const SECOND: usize = 32;
const SEED: usize = 64;
const SCALE: usize = 65;
const RESULT: usize = 96;

/// VOP3 with registers of the constants above.
fn encode(conversion: &Conversion, op_sel: u32, signs: u32) -> [u32; 2] {
    let register = |number: usize| 256 + number as u32;
    let mut sources = vec![register(SOURCE)];
    if conversion.interleaved {
        sources.push(register(SECOND));
    }
    if conversion.random {
        sources.push(register(SEED));
    }
    sources.push(register(SCALE));
    let second = sources
        .iter()
        .enumerate()
        .fold(signs << 29, |word, (index, source)| {
            word | source << (9 * index)
        });
    let first = 0x34 << 26 | (conversion.op as u32) << 16 | op_sel << 11 | RESULT as u32;
    [first, second]
}

/// The random numbers that follow one another in an instruction: `v_prng_b32`.
fn following(seed: u32) -> u32 {
    seed << 1 ^ (0xc5 & (seed as i32 >> 31) as u32)
}

/// Source registers whose values are near the scale, and now and then anything.
fn sources(conversion: &Conversion, next: &mut impl FnMut() -> u64) -> Vec<[u32; 64]> {
    let mut registers = vec![[0; 64]; 128];
    let values = registers.len();
    for register in &mut registers[..values] {
        *register = std::array::from_fn(|_| next() as u32);
    }
    let narrows = format(conversion.to).bits() < format(conversion.from).bits();
    let scales: [u32; 64] = std::array::from_fn(|_| 100 + next() as u32 % 50);
    registers[SCALE] = scales.map(|exponent| match next() % 16 {
        0 => next() as u32,
        _ => exponent << 23 | next() as u32 & 0x807f_ffff,
    });
    for register in registers[SOURCE..SECOND + 32]
        .iter_mut()
        .filter(|_| narrows)
    {
        for (word, exponent) in register.iter_mut().zip(scales) {
            let mut value = || {
                let size = (next() % 4096) as f32 / 128.0 * 2f32.powi(next() as i32 % 12 - 8);
                let sign = if next() & 1 != 0 { -1.0 } else { 1.0 };
                sign * size * 2f32.powi(exponent as i32 - 127)
            };
            let [first, second] = [value(), value()];
            *word = match (next() % 16, conversion.from) {
                (0, _) => *word,
                (_, "f32") => first.to_bits(),
                (_, from) => {
                    let bits = |value: f32| format(from).encode(value.into(), None).unwrap_or(0);
                    bits(first) | bits(second) << 16
                }
            };
        }
    }
    registers
}

/// Bits of element `index`, of one lane.
fn element(c: &Conversion, registers: &[[u32; 64]], op_sel: u32, index: usize, lane: usize) -> u32 {
    let bits = format(c.from).bits();
    let (first, item) = match (c.interleaved, index % 2) {
        (false, _) => (SOURCE, index),
        (true, 0) => (SOURCE, index / 2),
        (true, _) => (SECOND, index / 2),
    };
    let part = match (c.count, c.from) {
        (1, "fp8" | "bf8") | (2, "fp4") => 8 * (op_sel & 3),
        (2, "fp8" | "bf8") => 16 * (op_sel & 1),
        _ => 0,
    };
    field(&registers[first..], part as usize + item * bits, bits, lane)
}

/// All that can be told of a conversion's result: its bits where it is a number of the format,
/// else whether a NaN is.
fn expected(c: &Conversion, bits: u32, scale: u32, random: Option<u32>, ovfl: bool) -> Option<u32> {
    let (to, from) = (format(c.to), format(c.from));
    let exponent = (scale >> 23 & 0xff) as i32 - 127;
    let narrows = to.bits() < from.bits();
    let factor = match (exponent, narrows) {
        (128, _) => f64::NAN,
        (_, true) => 2f64.powi(-exponent),
        (_, false) => 2f64.powi(exponent),
    };
    let sign = bits >> (from.bits() - 1) << (to.bits() - 1);
    let value = from.decode(bits) * factor;
    let rounded = match value.is_nan() {
        true => None,
        false => to.encode(value, random),
    };
    match (rounded, c.to) {
        (Some(bits), _) => Some(bits),
        (None, "fp4" | "fp6" | "bf6") => Some(sign | to.largest),
        (None, "fp8" | "bf8") if ovfl && !value.is_nan() => Some(sign | to.largest),
        (None, "fp8") => None,
        (None, _) if value.is_nan() => None,
        (None, _) => Some(sign | (((1 << to.exponent) - 1) << to.fraction)),
    }
}

#[test]
fn conversions_with_a_scale_give_the_value_that_tables_give() {
    let mut next = numbers(950);
    let mut checked = 0;
    for conversion in conversions() {
        for round in 0..24 {
            checked += check(&conversion, round, &mut next);
        }
    }
    assert!(checked > 400_000, "{checked} values");
}

/// One instruction on all lanes; how many values were compared.
fn check(c: &Conversion, round: u32, next: &mut impl FnMut() -> u64) -> usize {
    let registers = sources(c, next);
    let (op_sel, ovfl, exec) = (next() as u32 & 15, round % 2 != 0, next() | 1);
    // Sources of 16 bits that are alone have their own OP_SEL bit: left out.
    let op_sel = match c.from {
        "f16" | "bf16" => op_sel & 12,
        _ => op_sel,
    };
    let wave = run(&encode(c, op_sel, 0), &[], |wave| {
        wave.vgpr[..128].copy_from_slice(&registers);
        wave.set_exec(exec);
        if ovfl {
            wave.mode |= gcn::wave::mode::FP16_OVFL;
        }
    });
    let name = c.op.mnemonic();
    let wave = wave.unwrap_or_else(|error| panic!("{name}: {error}"));
    let to = format(c.to);
    let width = c.count * to.bits();
    let part = match width {
        8 => 8 * (op_sel >> 2),
        16 => 16 * (op_sel >> 3),
        _ => 0,
    } as usize;
    for lane in 0..64 {
        let before = |at: usize, bits: usize| field(&registers[RESULT..], at, bits, lane);
        let after = |at: usize, bits: usize| field(&wave.vgpr[RESULT..128], at, bits, lane);
        let mut seed = registers[SEED][lane];
        for index in 0..c.count {
            let at = part + index * to.bits();
            let got = after(at, to.bits());
            if exec >> lane & 1 == 0 {
                assert_eq!(got, before(at, to.bits()), "{name}: EXEC");
                continue;
            }
            let bits = element(c, &registers, op_sel, index, lane);
            let scale = registers[SCALE][lane];
            let random = c.random.then_some(seed);
            seed = following(seed);
            let told = format!("{name} {bits:#x} scale {scale:#x} {random:x?}: {got:#x}");
            match expected(c, bits, scale, random, ovfl) {
                Some(bits) => assert_eq!(got, bits, "{told}"),
                None => assert!(to.decode(got).is_nan(), "{told}"),
            }
        }
        for at in (0..1024).filter(|at| *at < part || *at >= part + width) {
            assert_eq!(after(at, 1), before(at, 1), "{name}: bit {at} stays");
        }
    }
    exec.count_ones() as usize * c.count
}

#[test]
fn signs_of_single_sources_are_modifiers_and_of_packed_ones_nothing_is_known() {
    for conversion in conversions() {
        let types = conversion.op.types();
        let result = run(&encode(&conversion, 0, 1), &[], |wave| {
            wave.vgpr[SOURCE] = [match types[1] {
                Ty::F16 => 0x3c00,
                Ty::Bf16 => 0x3f80,
                _ => 1f32.to_bits(),
            }; 64];
            wave.vgpr[SCALE] = [1f32.to_bits(); 64];
        });
        match types[1] {
            Ty::PF16 | Ty::PBf16 | Ty::PF32 => assert!(result.is_err(), "{:?}", conversion.op),
            Ty::F32 | Ty::F16 | Ty::Bf16 => {
                let to = format(conversion.to);
                let minus_one = to.encode(-1.0, None).unwrap();
                let got = field(&result.unwrap().vgpr[RESULT..], 0, to.bits(), 5);
                assert_eq!(got, minus_one, "{:?}", conversion.op);
            }
            _ => assert!(result.is_ok(), "{:?}", conversion.op),
        }
    }
}

#[test]
fn subnormal_singles_count_as_mode_says() {
    for conversion in conversions().filter(|c| c.from == "f32") {
        for flushed in [false, true] {
            // The least normal, halved; its scale makes it one.
            let wave = run(&encode(&conversion, 0, 0), &[], |wave| {
                wave.vgpr[..64].fill([0x0040_0000; 64]);
                wave.vgpr[SCALE] = [0; 64];
                if flushed {
                    wave.mode &= !0x30;
                }
            });
            let to = format(conversion.to);
            let got = field(&wave.unwrap().vgpr[RESULT..], 0, to.bits(), 9);
            let value = if flushed { 0.0 } else { 1.0 };
            assert_eq!(to.decode(got), value, "{:?}", conversion.op);
        }
    }
}

#[test]
fn halves_are_rounded_by_random_numbers() {
    let mut next = numbers(678);
    for (op, name) in [
        (Vop3::v_cvt_sr_f16_f32, "f16"),
        (Vop3::v_cvt_sr_bf16_f32, "bf16"),
    ] {
        for round in 0..500 {
            let values: [u32; 64] = std::array::from_fn(|lane| match lane % 8 {
                0 => next() as u32,
                _ => next() as u32 & 0x807f_ffff | (96 + next() as u32 % 50) << 23,
            });
            let seeds: [u32; 64] = std::array::from_fn(|_| next() as u32);
            let op_sel = 8 * (round & 1);
            let code = [
                0x34 << 26 | (op as u32) << 16 | op_sel << 11 | RESULT as u32,
                (256 + SOURCE as u32) | (256 + SEED as u32) << 9,
            ];
            let wave = run(&code, &[], |wave| {
                wave.vgpr[SOURCE] = values;
                wave.vgpr[SEED] = seeds;
                wave.vgpr[RESULT] = [0x1234_5678; 64];
            });
            let wave = wave.unwrap();
            let (to, shift) = (format(name), 2 * op_sel);
            for lane in 0..64 {
                let word = wave.vgpr[RESULT][lane];
                let kept = 0x1234_5678 & !(0xffff << shift);
                assert_eq!(word & !(0xffff << shift), kept, "the other half stays");
                let got = word >> shift & 0xffff;
                let value = f64::from(f32::from_bits(values[lane]));
                let told = format!("{name} {value:e} {:#x}: {got:#x}", seeds[lane]);
                match to.encode(value, Some(seeds[lane])) {
                    Some(bits) => assert_eq!(got, bits, "{told}"),
                    None if value.is_nan() => assert!(to.decode(got).is_nan(), "{told}"),
                    None => assert_eq!(to.decode(got), value.signum() * f64::INFINITY, "{told}"),
                }
            }
        }
    }
}

/// `ds_read_*_tr_*` of v0's addresses into `to`.
fn transposed(op: Ds, to: u32, offset: u32) -> [u32; 2] {
    [0x36 << 26 | (op as u32) << 17 | offset, to << 24]
}

#[test]
fn transposing_reads_bring_columns() {
    // 16 lanes' data, one after the other, in rows of 16 elements: a lane gets its column.
    let mut next = numbers(224);
    let lds: Vec<u8> = (0..64 * 12 + 4).map(|_| next() as u8).collect();
    let bits_of = |at: usize, count: usize| {
        (0..count).fold(0u32, |value, bit| {
            let at = at + bit;
            value | u32::from(lds[at / 8] >> (at % 8) & 1) << bit
        })
    };
    for (op, bits, bytes) in [
        (Ds::ds_read_b64_tr_b4, 4, 8),
        (Ds::ds_read_b96_tr_b6, 6, 12),
        (Ds::ds_read_b64_tr_b8, 8, 8),
        (Ds::ds_read_b64_tr_b16, 16, 8),
    ] {
        let exec = !0 >> 1;
        let wave = run(&transposed(op, 2, 4), &lds, |wave| {
            wave.vgpr[0] = std::array::from_fn(|lane| lane as u32 * bytes);
            wave.set_exec(exec);
        });
        let wave = wave.unwrap();
        let rows = 8 * bytes as usize / bits;
        for lane in 0..63 {
            let group = lane / 16 * 16 * bytes as usize + 4;
            for row in 0..rows {
                let at = 16 * row + lane % 16;
                let hidden = lane / 16 == 3 && at / rows == 15;
                let element = match hidden {
                    true => 0,
                    false => bits_of(8 * group + at * bits, bits),
                };
                let got = field(&wave.vgpr[2..6], row * bits, bits, lane);
                assert_eq!(got, element, "{op:?} lane {lane} row {row}");
            }
        }
        assert_eq!(wave.vgpr[2][63], 0, "EXEC");
    }
}

/// A product as kernels make it: B lies in LDS row by row, transposing reads bring it into the
/// registers of the matrix instruction, each of 64 lanes four or less rows of 16 columns.
struct Product {
    read: Ds,
    bits: usize,
    format: &'static str,
    /// VOP3P's opcode and, for the mixed formats, CBSZ and BLGP.
    multiply: (u32, u32),
    /// Length of rows of A, and how many k a lane has of it.
    depth: usize,
    run: usize,
}

#[test]
fn transposing_reads_feed_the_matrix_core() {
    let products = [
        (Ds::ds_read_b64_tr_b16, 16, "f16", (84, 0), 32, 8),
        (Ds::ds_read_b64_tr_b8, 8, "fp8", (115, 0), 32, 8),
        (Ds::ds_read_b64_tr_b4, 4, "fp4", (45, 4), 128, 32),
        (Ds::ds_read_b96_tr_b6, 6, "fp6", (45, 2), 128, 32),
        (Ds::ds_read_b96_tr_b6, 6, "bf6", (45, 3), 128, 32),
    ];
    for (read, bits, format, multiply, depth, run) in products {
        multiply_transposed(&Product {
            read,
            bits,
            format,
            multiply,
            depth,
            run,
        });
    }
}

fn multiply_transposed(p: &Product) {
    let mut next = numbers(p.bits as u64);
    let mut small = |count: usize| -> Vec<f64> {
        let value = |number: u64| [-2.0, -1.0, 0.0, 1.0, 2.0][number as usize % 5];
        (0..count).map(|_| value(next())).collect()
    };
    let (a, b) = (small(16 * p.depth), small(16 * p.depth));
    let code = |value: f64| format(p.format).encode(value, None).unwrap();
    // Rows of 16 elements.
    let row = 2 * p.bits;
    let mut lds = vec![0u8; row * p.depth];
    let put = |bytes: &mut [u8], at: usize, value: u32| {
        for bit in (0..p.bits).filter(|bit| value >> bit & 1 != 0) {
            bytes[(at + bit) / 8] |= 1 << ((at + bit) % 8);
        }
    };
    for (at, value) in b.iter().enumerate() {
        put(&mut lds, at * p.bits, code(*value));
    }
    // A read brings a lane as many rows as its bits have elements.
    let bytes = if p.bits == 6 { 12 } else { 8 };
    let rows = 8 * bytes / p.bits;
    let mut text = Vec::new();
    for part in 0..p.run / rows {
        let registers = (bytes / 4 * part) as u32;
        text.extend(transposed(
            p.read,
            32 + registers,
            (part * rows * row) as u32,
        ));
    }
    let (op, kind) = p.multiply;
    let (first, second, result) = (64, 32, 96);
    text.push(0xd380_0000 | op << 16 | kind << 8 | result);
    text.push((256 + first) | (256 + second) << 9 | 128 << 18 | kind << 29);
    let wave = run(&text, &lds, |wave| {
        // A group of 16 lanes reads its rows of B, each lane a part of them.
        wave.vgpr[0] = std::array::from_fn(|lane| {
            let (group, lane) = (lane / 16, lane % 16);
            (group * p.run * row + lane * bytes) as u32
        });
        for lane in 0..64 {
            let mut bytes = [0u8; 32];
            for index in 0..p.run {
                let k = lane / 16 * p.run + index;
                put(&mut bytes, index * p.bits, code(a[lane % 16 * p.depth + k]));
            }
            for (index, dword) in bytes.chunks_exact(4).enumerate() {
                let dword = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
                wave.vgpr[first as usize + index][lane] = dword;
            }
        }
    });
    let wave = wave.unwrap();
    for (lane, index) in (0..64).flat_map(|lane| (0..4).map(move |index| (lane, index))) {
        let (i, j) = (lane / 16 * 4 + index, lane % 16);
        let sum: f64 = (0..p.depth)
            .map(|k| a[i * p.depth + k] * b[16 * k + j])
            .sum();
        let got = f32::from_bits(wave.vgpr[result as usize + index][lane]);
        assert_eq!(f64::from(got), sum, "{:?} {} at {i}, {j}", p.read, p.format);
    }
}

#[test]
fn scalar_registers_are_sources_and_scales() {
    // FP8 of 1 and 2 in s5, and their scale 4 in s7.
    let op = Vop3::v_cvt_scalef32_pk_f32_fp8 as u32;
    let code = [0x34 << 26 | op << 16 | 2, 5 | 7 << 9];
    let wave = run(&code, &[], |wave| {
        wave.scalar[4..8].copy_from_slice(&[0x1111_1111, 0x4038, 0x2222_2222, 4f32.to_bits()]);
    });
    let wave = wave.unwrap();
    assert_eq!(
        [wave.vgpr[2][7], wave.vgpr[3][7]].map(f32::from_bits),
        [4.0, 8.0]
    );
}

#[test]
fn constants_are_scales_by_their_exponent() {
    // FP4: rows and columns of 128 ones. Scales 2.0 and 0.25, which is no inline constant: a
    // register's third byte.
    let code = [
        0xd3ac_0000 | 1 << 12,
        244 | (256 + 8) << 9 | 1 << 28,
        0xd380_0000 | 45 << 16 | 1 << 11 | 4 << 8 | 32,
        256 | (256 + 4) << 9 | 128 << 18 | 4 << 29,
    ];
    let wave = run(&code, &[], |wave| {
        wave.vgpr[..8].fill([0x2222_2222; 64]);
        wave.vgpr[8] = [0x0011_2233 | 125 << 24; 64];
        wave.vgpr[8] = wave.vgpr[8].map(|word| word & !0x00ff_0000 | 125 << 16);
    });
    let wave = wave.unwrap();
    for lane in 0..64 {
        assert_eq!(f32::from_bits(wave.vgpr[32][lane]), 128.0 * 2.0 * 0.25);
    }
}

/// bfloat16 of a small number, low half and high half.
fn pair(low: f32, high: f32) -> u32 {
    low.to_bits() >> 16 | high.to_bits() & 0xffff_0000
}

#[test]
fn dot_products_of_bfloat16_take_halves_and_signs_as_they_are_told() {
    let (a, b, c) = ([2f32, 3.0], [5f32, 7.0], 100f32);
    let set = |wave: &mut Wave| {
        wave.vgpr[0] = [pair(a[0], a[1]); 64];
        wave.vgpr[1] = [pair(b[0], b[1]); 64];
        wave.vgpr[2] = [c.to_bits(); 64];
    };
    let mut next = numbers(26);
    for _ in 0..200 {
        let [op_sel, op_sel_hi, neg, neg_hi] = [(); 4].map(|()| next() as u32 & 7);
        let first = 0xd380_0000 | 26 << 16 | neg_hi << 8 | op_sel << 11 | (op_sel_hi >> 2) << 14;
        let sources = 256 | 257 << 9 | 258 << 18;
        let second = sources | (op_sel_hi & 3) << 27 | neg << 29;
        let wave = run(&[first | 3, second], &[], set).unwrap();
        let half = |values: [f32; 2], index: u32, select: u32, negate: u32| {
            let value = values[(select >> index & 1) as usize];
            if negate >> index & 1 != 0 {
                -value
            } else {
                value
            }
        };
        let product = |select, negate| half(a, 0, select, negate) * half(b, 1, select, negate);
        let sum = product(op_sel, neg) + product(op_sel_hi, neg_hi) + c;
        assert_eq!(
            f32::from_bits(wave.vgpr[3][40]),
            sum,
            "{first:x} {second:x}"
        );
        // The accumulating one in its long form: no OP_SEL, ABS for NEG_HI.
        let first = 0x34 << 26 | (0x100 + 22) << 16 | (neg_hi & 3) << 8 | 2;
        let wave = run(&[first, 256 | 257 << 9 | (neg & 3) << 29], &[], set).unwrap();
        let product = |at: usize, negate: u32| {
            let sign = |index: u32| if negate >> index & 1 != 0 { -1.0 } else { 1.0 };
            a[at] * sign(0) * b[at] * sign(1)
        };
        let sum = product(0, neg) + product(1, neg_hi) + c;
        assert_eq!(f32::from_bits(wave.vgpr[2][40]), sum, "{first:x} {neg}");
    }
}

#[test]
fn packed_halves_are_rounded_to_nearest_in_any_mode() {
    for (op, expected) in [
        (Vop3::v_cvt_pk_f16_f32, 0x3c01_3c00),
        (Vop3::v_cvt_pk_bf16_f32, 0x3f80_3f80),
    ] {
        let code = [0x34 << 26 | (op as u32) << 16 | 2, 256 | 257 << 9];
        for round in 0..4 {
            let wave = run(&code, &[], |wave| {
                // Below and above the middle of two halves.
                wave.vgpr[0] = [1.0004f32.to_bits(); 64];
                wave.vgpr[1] = [1.0006f32.to_bits(); 64];
                wave.mode = wave.mode & !15 | round | round << 2;
            });
            assert_eq!(wave.unwrap().vgpr[2][0], expected, "{op:?} {round}");
        }
    }
}

/// A plain instruction of each opcode of the vector encodings: VGPRs, no modifiers.
fn plain() -> Vec<Vec<u32>> {
    const SOURCES: u32 = (256 + 32) | (256 + 64) << 9 | (256 + 96) << 18;
    let mut all = Vec::new();
    for op in 0..256 {
        all.push(vec![0x7e00_0000 | 2 << 17 | op << 9 | 256]);
        all.push(vec![0x7c00_0000 | op << 17 | 4 << 9 | 256]);
        all.push(vec![0x36 << 26 | op << 17, 2 | 4 << 8 | 6 << 16 | 8 << 24]);
    }
    for op in 0..62 {
        all.push(vec![op << 25 | 2 << 17 | 4 << 9 | 256, 0]);
    }
    for op in 0..0x380 {
        all.push(vec![0x34 << 26 | op << 16 | 128, SOURCES]);
    }
    for op in 0..128 {
        // With the sources that scalar operands stand for, where there are fewer.
        all.push(vec![0xd380_0000 | op << 16 | 128, SOURCES]);
        for segment in 0..3 {
            all.push(vec![
                0x37 << 26 | op << 18 | segment << 14,
                2 | 4 << 8 | 0x7f << 16 | 6 << 24,
            ]);
        }
        all.push(vec![0x38 << 26 | op << 18, 4 << 8 | 1 << 16 | 128 << 24]);
    }
    all
}

#[test]
fn what_is_decoded_is_executed_but_for_a_few() {
    let mut refused = std::collections::BTreeSet::new();
    let mut executed = 0;
    for code in plain() {
        let Ok(inst) = gcn::decode::decode_for(Target::Gfx950, 0, &code) else {
            continue;
        };
        // The buffer has a format: 8_8_8_8 SINT.
        let set = |wave: &mut Wave| wave.scalar[7] = 0x0005_5fac;
        match run(&inst.dwords, &[0; 64], set) {
            Err(error) if error.contains("not implemented") || error.contains("Unsupported") => {
                refused.insert(inst.to_string().split(' ').next().unwrap_or("").to_string());
            }
            _ => executed += 1,
        }
    }
    assert!(executed > 900, "{executed}");
    // These gfx942 has, too.
    assert_eq!(
        refused.into_iter().collect::<Vec<_>>(),
        [
            "v_cvt_pkaccum_u8_f32",
            "v_screen_partition_4se_b32_e32",
            "v_screen_partition_4se_b32_e64"
        ]
    );
}
