// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Kernels compiled by clang for gfx942, run in the interpreter and compared with the host's
//! results.

#[path = "support/machine.rs"]
mod machine;
#[path = "support/toolchain.rs"]
mod toolchain;

use half::f16;
use machine::{Arguments, Program, Ram};
use std::path::Path;
use std::sync::OnceLock;
use toolchain::{Numbers, Toolchain};

const ITEMS: usize = 1000;

/// The linked code objects of both optimisation levels, once for all tests.
fn objects() -> &'static [Vec<u8>] {
    static OBJECTS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let toolchain = Toolchain::new();
        ["-O0", "-O1", "-O3"]
            .map(|level| compile(&toolchain, level))
            .to_vec()
    })
}

fn compile(toolchain: &Toolchain, level: &str) -> Vec<u8> {
    let source = include_str!("kernels/kernels.cl");
    // One for each process: a test runner may have one for each test, at the same time.
    let name = format!("kernels{level}-{}.so", std::process::id());
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output_name = output.to_str().expect("the path is UTF-8");
    let options = ["-x", "cl", "-cl-std=CL2.0", "-nogpulib"];
    // As the host computes: no contraction, exact division.
    let floats = [
        "-ffp-contract=off",
        "-cl-fp32-correctly-rounded-divide-sqrt",
    ];
    let target = [
        "-target",
        "amdgcn-amd-amdhsa",
        "-mcpu=gfx942",
        level,
        "-",
        "-o",
        output_name,
    ];
    let command: Vec<&str> = std::iter::once("clang")
        .chain(options)
        .chain(floats)
        .chain(target)
        .collect();
    let (_, messages) = toolchain.run(&command, source);
    let program = std::fs::read(&output);
    let _ = std::fs::remove_file(&output);
    program.unwrap_or_else(|_| panic!("clang made no output: {messages}"))
}

/// Runs `test` on each code object.
fn each(test: impl Fn(&mut Ram, &Program)) {
    for object in objects() {
        let mut ram = Ram::new(32 << 20);
        let program = Program::load(object, &mut ram);
        test(&mut ram, &program);
    }
}

fn line(items: usize) -> [u32; 3] {
    [items as u32, 1, 1]
}

fn integers(seed: u64) -> Vec<i32> {
    let mut numbers = Numbers::new(seed);
    let special = [0, 1, -1, i32::MIN, i32::MAX, 2, -7, 255, 65536];
    (0..ITEMS)
        .map(|i| match i % 4 {
            0 => special[numbers.below(9) as usize],
            1 => numbers.below(100) as i32,
            _ => numbers.next() as i32,
        })
        .collect()
}

fn floats(seed: u64) -> Vec<f32> {
    let mut numbers = Numbers::new(seed);
    let special = [
        0.0,
        -0.0,
        1.0,
        f32::INFINITY,
        f32::MIN_POSITIVE,
        1e-42,
        f32::MAX,
        -1.5,
        f32::NAN,
    ];
    (0..ITEMS)
        .map(|i| match i % 4 {
            0 => special[numbers.below(9) as usize],
            1 => numbers.below(1000) as f32 / 8.0 - 60.0,
            _ => f32::from_bits(numbers.next() as u32),
        })
        .collect()
}

/// Bits, with all NaNs alike.
fn bits(value: f32) -> u32 {
    if value.is_nan() {
        0x7fc0_0000
    } else {
        value.to_bits()
    }
}

fn bits64(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

#[test]
fn vadd_adds_and_respects_the_bound() {
    each(|ram, program| {
        let (a, b) = (integers(1), integers(2));
        let (pa, pb) = (ram.place(&a), ram.place(&b));
        let pc = ram.place(&vec![77i32; ITEMS]);
        let n = ITEMS - 13;
        let arguments = Arguments::new().with(pa).with(pb).with(pc).with(n as i32);
        program.run(ram, "vadd", arguments.bytes(), line(ITEMS), line(256));
        let c: Vec<i32> = ram.take(pc, ITEMS);
        for i in 0..ITEMS {
            assert_eq!(
                c[i],
                if i < n { a[i].wrapping_add(b[i]) } else { 77 },
                "{i}"
            );
        }
    });
}

#[test]
fn saxpy_rounds_like_the_host() {
    each(|ram, program| {
        let (x, y) = (floats(3), floats(4));
        let (px, py) = (ram.place(&x), ram.place(&y));
        let arguments = Arguments::new()
            .with(1.25f32)
            .with(px)
            .with(py)
            .with(ITEMS as i32);
        program.run(ram, "saxpy", arguments.bytes(), line(ITEMS), line(64));
        let result: Vec<f32> = ram.take(py, ITEMS);
        for i in 0..ITEMS {
            assert_eq!(
                bits(result[i]),
                bits(1.25 * x[i] + y[i]),
                "{i}: {} {}",
                x[i],
                y[i]
            );
        }
    });
}

#[test]
fn a_reduction_goes_through_lds_and_barriers() {
    each(|ram, program| {
        let x: Vec<u32> = integers(5)[..768].iter().map(|v| *v as u32).collect();
        let (px, psum) = (ram.place(&x), ram.place(&[5u32]));
        let arguments = Arguments::new().with(px).with(psum);
        program.run(ram, "reduce", arguments.bytes(), line(768), line(256));
        let expected = x.iter().fold(5u32, |sum, v| sum.wrapping_add(*v));
        assert_eq!(ram.take::<u32>(psum, 1), [expected]);
    });
}

#[test]
fn divergent_loops_end_for_each_lane_on_its_own() {
    each(|ram, program| {
        let x: Vec<u32> = (0..320).map(|i| i * 37 + 1).collect();
        let (px, pn) = (ram.place(&x), ram.place(&vec![0u32; 320]));
        let arguments = Arguments::new().with(px).with(pn);
        program.run(ram, "collatz", arguments.bytes(), line(320), line(128));
        let steps = |start: u32| {
            let (mut v, mut n) = (u64::from(start), 0);
            while v > 1 && n < 1000 {
                v = if v & 1 != 0 { 3 * v + 1 } else { v >> 1 };
                n += 1;
            }
            n
        };
        let expected: Vec<u32> = x.iter().map(|v| steps(*v)).collect();
        assert_eq!(ram.take::<u32>(pn, 320), expected);
    });
}

fn integer_results(x: i32, y: i32) -> [i32; 24] {
    let (ux, uy) = (x as u32, y as u32);
    let (lx, ly) = (
        (i64::from(x) << 20) ^ i64::from(y),
        i64::from(y) * 12345 + 1,
    );
    let q = lx.checked_div(ly).unwrap_or(0);
    // i32::MIN / -1 is undefined in C: the quotient wraps here and is not compared.
    [
        if y != 0 { x.wrapping_div(y) } else { 0 },
        if y != 0 { x.wrapping_rem(y) } else { 0 },
        ux.checked_div(uy).unwrap_or(0) as i32,
        ux.checked_rem(uy).unwrap_or(0) as i32,
        ((i64::from(x) * i64::from(y)) >> 32) as i32,
        ((u64::from(ux) * u64::from(uy)) >> 32) as i32,
        x << (y & 31),
        x >> (y & 31),
        (ux >> (y & 31)) as i32,
        ux.leading_zeros() as i32,
        ux.count_ones() as i32,
        ux.rotate_left(uy & 31) as i32,
        x.saturating_add(y),
        ux.saturating_sub(uy) as i32,
        x.abs_diff(y) as i32,
        x.min(y).max(-1000),
        i32::from(x as i16) * i32::from(y as i16),
        i32::from(x as i8) + i32::from(y as u8),
        q as i32,
        (q >> 32) as i32,
        (lx as u64 >> (y & 63)) as i32,
        (lx.wrapping_mul(ly) >> 32) as i32,
        (x & y) + ((x ^ y) >> 1),
        i32::from(lx < ly) + 2 * i32::from((lx as u64) < ly as u64),
    ]
}

#[test]
fn integer_operations_agree_with_the_host() {
    each(|ram, program| {
        let (a, b) = (integers(6), integers(7));
        let (pa, pb) = (ram.place(&a), ram.place(&b));
        let po = ram.place(&vec![0i32; 24 * ITEMS]);
        let arguments = Arguments::new().with(pa).with(pb).with(po);
        program.run(ram, "integers", arguments.bytes(), line(ITEMS), line(100));
        let out: Vec<i32> = ram.take(po, 24 * ITEMS);
        for i in 0..ITEMS {
            let undefined = a[i] == i32::MIN && b[i] == -1;
            let expected = integer_results(a[i], b[i]);
            for (index, expected) in expected
                .iter()
                .enumerate()
                .skip(if undefined { 2 } else { 0 })
            {
                assert_eq!(
                    out[24 * i + index],
                    *expected,
                    "o[{index}] of {} {}",
                    a[i],
                    b[i]
                );
            }
        }
    });
}

#[test]
fn float_operations_agree_with_the_host() {
    each(|ram, program| {
        let (a, b) = (floats(8), floats(9));
        let (pa, pb) = (ram.place(&a), ram.place(&b));
        let po = ram.place(&vec![0f32; 12 * ITEMS]);
        let arguments = Arguments::new().with(pa).with(pb).with(po);
        program.run(ram, "floats", arguments.bytes(), line(ITEMS), line(64));
        let out: Vec<f32> = ram.take(po, 12 * ITEMS);
        for i in 0..ITEMS {
            let (x, y) = (a[i], b[i]);
            let expected = [
                x / y,
                x.abs().sqrt(),
                x.mul_add(y, 1.5),
                x.floor() + y.ceil(),
                x.trunc() - y.round_ties_even(),
                x.min(y),
                x.max(y),
                x as i32 as f32 + y.abs() as u32 as f32,
                (f64::from(x) * f64::from(y)) as f32,
                if x < y { x } else { -y },
                x.copysign(y),
                f16::from_f32(x).to_f32(),
            ];
            for (index, expected) in expected.iter().enumerate() {
                let zeros = matches!(index, 5 | 6) && x == 0.0 && y == 0.0;
                // Out of an integer's range the conversion is undefined in C.
                let undefined = index == 7 && !(x.abs() < 2e9 && y.abs() < 4e9);
                if !zeros && !undefined {
                    let got = out[12 * i + index];
                    assert_eq!(
                        bits(got),
                        bits(*expected),
                        "o[{index}] of {x} {y}: {got} {expected}"
                    );
                }
            }
        }
    });
}

#[test]
fn double_operations_agree_with_the_host() {
    each(|ram, program| {
        let mut numbers = Numbers::new(10);
        let special = [0.0, -1.0, 1e300, 5e-324, 2.5e-308, f64::INFINITY, 3.0];
        let mut values = || -> Vec<f64> {
            (0..ITEMS)
                .map(|i| match i % 3 {
                    0 => special[numbers.below(7) as usize],
                    1 => numbers.below(10_000) as f64 / 64.0 - 50.0,
                    _ => f64::from_bits(numbers.next()),
                })
                .collect()
        };
        let (a, b) = (values(), values());
        let (pa, pb) = (ram.place(&a), ram.place(&b));
        let po = ram.place(&vec![0f64; 8 * ITEMS]);
        let arguments = Arguments::new().with(pa).with(pb).with(po);
        program.run(ram, "doubles", arguments.bytes(), line(ITEMS), line(64));
        let out: Vec<f64> = ram.take(po, 8 * ITEMS);
        for i in 0..ITEMS {
            let (x, y) = (a[i], b[i]);
            let expected = [
                x + y,
                x * y,
                x / y,
                x.mul_add(y, -1.0),
                x.abs().sqrt(),
                x.floor(),
                f64::from(x as i32),
                x.max(y),
            ];
            for (index, expected) in expected.iter().enumerate() {
                let undefined = index == 6 && x.abs() >= 2e9;
                if !undefined {
                    let got = out[8 * i + index];
                    assert_eq!(
                        bits64(got),
                        bits64(*expected),
                        "o[{index}] of {x} {y}: {got} {expected}"
                    );
                }
            }
        }
    });
}

#[test]
fn bytes_shorts_and_halves_agree_with_the_host() {
    each(|ram, program| {
        let mut numbers = Numbers::new(11);
        let bytes: Vec<u8> = (0..ITEMS).map(|_| numbers.next() as u8).collect();
        let shorts: Vec<i16> = (0..ITEMS).map(|_| (numbers.next() as i16) / 16).collect();
        let halves: Vec<u16> = (0..ITEMS)
            .map(|_| f16::from_f32(numbers.below(1000) as f32 / 7.0).to_bits())
            .collect();
        let (pb, ps, ph) = (ram.place(&bytes), ram.place(&shorts), ram.place(&halves));
        let po = ram.place(&vec![0u8; ITEMS]);
        let arguments = Arguments::new().with(pb).with(ps).with(ph).with(po);
        program.run(ram, "narrow", arguments.bytes(), line(ITEMS), line(64));
        let (out, sums): (Vec<u8>, Vec<u16>) = (ram.take(po, ITEMS), ram.take(ph, ITEMS));
        for i in 0..ITEMS {
            assert_eq!(out[i], bytes[i].wrapping_add((shorts[i] >> 3) as u8), "{i}");
            let h = f16::from_f32(f16::from_f32(shorts[i].into()).to_f32() * 0.125);
            let sum = f16::from_f32(h.to_f32() + f16::from_bits(halves[i]).to_f32());
            assert_eq!(
                sums[i],
                sum.to_bits(),
                "{i}: {h} {}",
                f16::from_bits(halves[i])
            );
        }
    });
}

#[test]
fn packed_operations_agree_with_the_host() {
    each(|ram, program| {
        let mut numbers = Numbers::new(12);
        let count = 2 * ITEMS;
        let half = |n: &mut Numbers| f16::from_f32(n.below(4000) as f32 / 100.0 - 20.0).to_bits();
        let a: Vec<u16> = (0..count).map(|_| half(&mut numbers)).collect();
        let b: Vec<u16> = (0..count).map(|_| half(&mut numbers)).collect();
        let s: Vec<i16> = (0..count).map(|_| numbers.next() as i16).collect();
        let f: Vec<f32> = (0..count)
            .map(|_| numbers.below(1000) as f32 / 3.0)
            .collect();
        let (pa, pb, ps, pf) = (ram.place(&a), ram.place(&b), ram.place(&s), ram.place(&f));
        let (po, pt) = (ram.place(&vec![0u16; count]), ram.place(&vec![0i16; count]));
        let pg = ram.place(&vec![0f32; count]);
        let arguments = Arguments::new()
            .with(pa)
            .with(pb)
            .with(po)
            .with(ps)
            .with(pt)
            .with(pf)
            .with(pg);
        program.run(ram, "packed", arguments.bytes(), line(ITEMS), line(64));
        let (out, t, g): (Vec<u16>, Vec<i16>, Vec<f32>) = (
            ram.take(po, count),
            ram.take(pt, count),
            ram.take(pg, count),
        );
        for i in 0..count {
            let [x, y] = [a[i], b[i]].map(|bits| f16::from_bits(bits).to_f32());
            let product = f16::from_f32(x * y).to_f32();
            assert_eq!(out[i], f16::from_f32(product + x).to_bits(), "{i}: {x} {y}");
            let add = if i % 2 == 0 { 3 } else { -5 };
            assert_eq!(t[i], s[i].wrapping_mul(s[i]).wrapping_add(add), "{i}");
            assert_eq!(g[i], f[i] * f[i] + f[i], "{i}");
        }
    });
}

#[test]
fn chosen_halves_have_nothing_above_them() {
    each(|ram, program| {
        let mut numbers = Numbers::new(13);
        let mut half = || f16::from_f32(numbers.below(4000) as f32 / 8.0 - 250.0);
        let input: Vec<[f16; 4]> = (0..ITEMS)
            .map(|_| [half(), half(), half(), half()])
            .collect();
        let bits: Vec<u16> = input.as_flattened().iter().map(|x| x.to_bits()).collect();
        let (pi, po) = (ram.place(&bits), ram.place(&vec![0u32; 3 * ITEMS]));
        let arguments = Arguments::new().with(pi).with(po);
        program.run(ram, "widened", arguments.bytes(), line(ITEMS), line(64));
        let out: Vec<u32> = ram.take(po, 3 * ITEMS);
        for (found, [x, y, z, _]) in out.chunks(3).zip(input) {
            let mut sorted = [x, y, z];
            sorted.sort_by(f16::total_cmp);
            let [low, middle, high] = sorted.map(|x| u32::from(x.to_bits()));
            assert_eq!(found, [middle, low, high], "{x} {y} {z}");
        }
    });
}

#[test]
fn private_arrays_live_in_scratch() {
    each(|ram, program| {
        let x: Vec<u32> = integers(13).iter().map(|v| *v as u32).collect();
        let (px, po) = (ram.place(&x), ram.place(&vec![0u32; ITEMS]));
        let arguments = Arguments::new().with(px).with(po);
        program.run(ram, "scratch", arguments.bytes(), line(ITEMS), line(256));
        let expected = |i: usize| {
            (0..8).fold(0u32, |sum, k| {
                let entry = x[i].wrapping_mul(x[i] >> k & 31).wrapping_add(i as u32);
                sum.wrapping_mul(3).wrapping_add(entry)
            })
        };
        let out: Vec<u32> = ram.take(po, ITEMS);
        for (i, got) in out.iter().enumerate() {
            assert_eq!(*got, expected(i), "{i}");
        }
    });
}

#[test]
fn generic_pointers_find_lds_scratch_and_memory() {
    each(|ram, program| {
        let x: Vec<u32> = integers(14)[..192].iter().map(|v| *v as u32).collect();
        let (px, po) = (ram.place(&x), ram.place(&vec![0u32; 192]));
        let arguments = Arguments::new().with(px).with(po);
        program.run(
            ram,
            "generic_pointers",
            arguments.bytes(),
            line(192),
            line(64),
        );
        let sum = |values: &[u32]| values.iter().fold(0u32, |sum, v| sum.wrapping_add(*v));
        let out: Vec<u32> = ram.take(po, 192);
        for (i, got) in out.iter().enumerate() {
            let shared = sum(&x[i / 64 * 64..i / 64 * 64 + 64]);
            let own = sum(&[x[i], x[i] ^ 1, x[i] ^ 2, x[i] ^ 3]);
            let memory = sum(&x[..3]);
            let expected = shared
                .wrapping_add(own.wrapping_mul(3))
                .wrapping_add(memory.wrapping_mul(5));
            assert_eq!(*got, expected, "{i}");
        }
    });
}

#[test]
fn atomics_lose_nothing() {
    each(|ram, program| {
        let cells = ram.place(&[0i32, 0, -100, 100, 0, -1, 0, 0, 0]);
        let log = ram.place(&vec![0u32; ITEMS]);
        let arguments = Arguments::new().with(cells).with(log);
        program.run(ram, "atomics", arguments.bytes(), line(ITEMS), line(256));
        let n = ITEMS as i32;
        let xor = (0..n).fold(0, |value, i| value ^ (i * 77));
        let expected = [
            n * (n - 1) / 2,
            -2 * n,
            n - 11,
            11 - n,
            -1,
            0,
            xor,
            n,
            3 * n,
        ];
        assert_eq!(ram.take::<i32>(cells, 9), expected);
        let mut seen: Vec<u32> = ram.take(log, ITEMS);
        seen.sort_unstable();
        assert_eq!(seen, (0..ITEMS as u32).collect::<Vec<_>>());
    });
}

#[test]
fn grids_have_three_dimensions_and_ragged_edges() {
    each(|ram, program| {
        let [width, height, depth] = [19u32, 7, 5];
        let out = ram.place(&vec![0u32; (width * height * depth) as usize]);
        let arguments = Arguments::new().with(out).with(width).with(height);
        program.run(
            ram,
            "grid",
            arguments.bytes(),
            [width, height, depth],
            [8, 3, 2],
        );
        let got: Vec<u32> = ram.take(out, (width * height * depth) as usize);
        for (i, got) in got.iter().enumerate() {
            let i = i as u32;
            let (x, y, z) = (i % width, i / width % height, i / width / height);
            assert_eq!(
                *got,
                x | y << 8 | z << 16 | (z / 2) << 24 | (y % 3) << 28,
                "{x} {y} {z}"
            );
        }
    });
}
