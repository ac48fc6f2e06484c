// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Instructions that compilers hardly ever emit, against tables worked out by hand, and where LLVM
//! can compute them itself against LLVM.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/toolchain.rs"]
mod toolchain;

use bench::{after, Bench};
use gcn::wave::mode;
use gcn::Outcome;
use machine::{Arguments, Program, Ram};
use std::path::Path;
use toolchain::Toolchain;

#[test]
fn sums_of_masked_differences_slide_by_bytes() {
    let text = "v_mqsad_u32_u8 v[8:11], v[2:3], v4, v[12:15]\n\
                v_mqsad_pk_u16_u8 v[16:17], v[2:3], v4, v[18:19]\n\
                v_mqsad_pk_u16_u8 v[20:21], v[2:3], v4, v[18:19] clamp\n\
                v_qsad_pk_u16_u8 v[22:23], v[2:3], v4, v[18:19]";
    let set = |wave: &mut gcn::Wave| {
        wave.vgpr[2] = [0x0403_0201; 64];
        wave.vgpr[3] = [0x0807_0605; 64];
        // The third byte does not count.
        wave.vgpr[4] = [0x0a00_0a0a; 64];
        for register in 12..16 {
            wave.vgpr[register] = [100 * register as u32; 64];
        }
        wave.vgpr[18] = [0xfff0_0001; 64];
    };
    after("masked differences", text, set, |wave| {
        // Windows 1 2 . 4, 2 3 . 5, 3 4 . 6, 4 5 . 7 against 10 10 . 10.
        for (index, sum) in [9 + 8 + 6, 8 + 7 + 5, 7 + 6 + 4, 6 + 5 + 3]
            .into_iter()
            .enumerate()
        {
            assert_eq!(wave.vgpr[8 + index][63], sum + 100 * (12 + index as u32));
        }
        // Sums of 16 bits are truncated, with CLAMP they saturate.
        assert_eq!(wave.vgpr[16][0], 24 | 4 << 16);
        assert_eq!(wave.vgpr[17][0], 17 | 14 << 16);
        assert_eq!(wave.vgpr[20][0], 24 | 0xffff << 16);
        assert_eq!(wave.vgpr[21][0], 17 | 14 << 16);
        // The third bytes are 3, 4, 5, 6.
        assert_eq!(wave.vgpr[22][0], 27 | 8 << 16);
        assert_eq!(wave.vgpr[23][0], 22 | 20 << 16);
    });
}

#[test]
fn eight_bit_floats_go_where_op_sel_says() {
    let text = "v_cvt_pk_fp8_f32 v1, v8, v9\n v_cvt_pk_fp8_f32 v1, v9, v8 op_sel:[0,0,1]\n\
                v_cvt_pk_bf8_f32 v2, v8, -v9\n\
                v_cvt_sr_fp8_f32 v3, v8, v10 op_sel:[0,0,1,1]\n\
                v_cvt_sr_bf8_f32 v4, v8, v10 op_sel:[0,0,1,0]\n\
                v_cvt_pk_fp8_f32 v5, v11, v11";
    let set = |ovfl: u32| {
        move |wave: &mut gcn::Wave| {
            wave.mode |= ovfl;
            wave.vgpr[1] = [0x1111_1111; 64];
            wave.vgpr[2] = [0x2222_2222; 64];
            wave.vgpr[3] = [0x3333_3333; 64];
            wave.vgpr[4] = [0x4444_4444; 64];
            // 1 and a sixteenth: half a step of FP8; 2; and more than FP8 has.
            wave.vgpr[8] = [1.0625f32.to_bits(); 64];
            wave.vgpr[9] = [2f32.to_bits(); 64];
            wave.vgpr[10] = std::array::from_fn(|lane| (lane as u32) << 26);
            wave.vgpr[11] = [1000f32.to_bits(); 64];
        }
    };
    after("8-bit floats", text, set(0), |wave| {
        assert_eq!(wave.vgpr[1][0], 0x4048_4840);
        assert_eq!(wave.vgpr[2][0], 0x2222_c440);
        // Random numbers from one half on carry a half upwards; a quarter needs three quarters.
        for lane in 0..64 {
            assert_eq!(
                wave.vgpr[3][lane] >> 24,
                if lane < 32 { 0x40 } else { 0x41 },
                "{lane}"
            );
            assert_eq!(
                wave.vgpr[4][lane] >> 16 & 0xff,
                0x44,
                "the other bytes stay"
            );
            assert_eq!(
                wave.vgpr[4][lane] >> 8 & 0xff,
                if lane < 48 { 0x40 } else { 0x41 }
            );
        }
        assert_eq!(wave.vgpr[5][0] & 0xffff, 0x8080, "NaN without FP16_OVFL");
    });
    after(
        "8-bit floats saturated",
        text,
        set(mode::FP16_OVFL),
        |wave| {
            assert_eq!(wave.vgpr[5][0] & 0xffff, 0x7f7f);
        },
    );
}

/// As LLVM's `getInlineEncodingV216` has it, which clang counts on.
#[test]
fn float_constants_of_16_bit_integers_are_those_of_singles() {
    let text = "v_pk_add_u16 v1, v8, 2.0 op_sel:[0,1] op_sel_hi:[1,0]\n\
                v_pk_add_u16 v2, v8, 2.0\n\
                v_pk_add_f16 v3, v9, 2.0 op_sel_hi:[1,0]\n\
                v_pk_add_f16 v4, v9, 2.0 op_sel:[0,1] op_sel_hi:[1,0]";
    let set = |wave: &mut gcn::Wave| {
        wave.vgpr[8] = [0x0002_0001; 64];
        wave.vgpr[9] = [0x4400_3c00; 64];
    };
    after("inline constants", text, set, |wave| {
        assert_eq!(wave.vgpr[1][5], 0x0002_4001);
        assert_eq!(wave.vgpr[2][5], 0x4002_0001);
        // 4 + 2 and 1 + 2; the constant's upper half is zero.
        assert_eq!(wave.vgpr[3][5], 0x4600_4200);
        assert_eq!(wave.vgpr[4][5], 0x4600_3c00);
    });
}

/// As LLVM has it, which makes 0x3c00 of 1.0 there: 2^15360.
#[test]
fn float_constants_of_an_exponent_of_halves_are_halves() {
    let text = "v_ldexp_f16_e64 v1, v8, 1.0\n v_ldexp_f16_e64 v2, v8, -1.0\n\
                v_ldexp_f16_e64 v3, v8, 3";
    let set = |wave: &mut gcn::Wave| wave.vgpr[8] = [0x3c00; 64];
    after("exponents", text, set, |wave| {
        // -1.0 is -0x4400.
        let found = [1, 2, 3].map(|register| wave.vgpr[register][5]);
        assert_eq!(found, [0x7c00, 0, 0x4800]);
    });
}

#[test]
fn a_half_that_signals_becomes_a_quiet_single() {
    let text = "v_cvt_f32_f16 v1, v8\n v_max_f32 v2, 2.0, v1";
    let set = |wave: &mut gcn::Wave| wave.vgpr[8] = [0xfd01; 64];
    after("conversion", text, set, |wave| {
        assert_eq!(wave.vgpr[1][5], 0xffe0_2000);
        assert_eq!(wave.vgpr[2][5], 0x4000_0000);
    });
}

#[test]
fn integers_are_not_flushed_as_subnormal_numbers() {
    let text = "v_mov_b32 v8, 3\n v_mov_b32 v9, 4\n v_mov_b32 v10, 5\n\
                v_ldexp_f32 v1, 1.0, v8\n v_ldexp_f32 v2, v8, v8\n\
                v_mov_b32 v11, 0x3c00\n v_ldexp_f16 v3, v11, v9\n\
                v_cvt_f16_u16 v4, v10\n v_cvt_f16_i16 v5, v10\n\
                v_ldexp_f64 v[6:7], 1.0, v8\n v_add_f16 v12, v10, v10";
    for (bits, kept) in [(0, [0, 0]), (mode::FP_DENORM, [24, 10])] {
        let set = move |wave: &mut gcn::Wave| wave.mode = wave.mode & !mode::FP_DENORM | bits;
        after("integers", text, set, |wave| {
            let found = [1, 2, 3, 4, 5, 7, 12].map(|register| wave.vgpr[register][7]);
            let (single, double) = (8f32.to_bits(), (8f64.to_bits() >> 32) as u32);
            // Subnormal sources are.
            let [scaled, sum] = kept;
            let wanted = [single, scaled, 0x4c00, 0x4500, 0x4500, double, sum];
            assert_eq!(found, wanted, "{bits:#x}: {found:x?}");
        });
    }
}

/// The guide: of v_mad_f16 "denormals are flushed", of v_fma_f16 "denormals are supported".
#[test]
fn a_multiply_add_of_halves_knows_no_subnormal_numbers() {
    let text = "v_mov_b32 v8, 0x3c00\n v_mov_b32 v9, 3\n v_mov_b32 v10, 0\n\
                v_mov_b32 v11, 0x3800\n v_mov_b32 v12, 0x0400\n\
                v_mad_f16 v1, v8, v9, v10\n v_mad_f16 v2, v11, v12, v10\n\
                v_mad_f16 v3, v8, v8, v10\n v_fma_f16 v4, v8, v9, v10";
    after(
        "multiply-add",
        text,
        |_| (),
        |wave| {
            let found = [1, 2, 3, 4].map(|register| wave.vgpr[register][7]);
            assert_eq!(found, [0, 0, 0x3c00, 3], "{found:x?}");
        },
    );
}

#[test]
fn an_output_scale_makes_no_subnormal_number() {
    let text = "v_mul_f32 v1, 1.0, v8 div:2\n v_mul_f32 v2, 1.0, v8 mul:2\n\
                v_mul_f16 v3, 1.0, v9 div:2\n v_mul_f64 v[4:5], 1.0, v[10:11] div:2\n\
                v_mul_f64 v[6:7], 1.0, v[10:11] mul:2";
    let set = |wave: &mut gcn::Wave| {
        wave.mode &= !(mode::FP_DENORM | mode::IEEE);
        for (register, value) in [(8, 0x00c0_0000), (9, 0x0600), (10, 0), (11, 0x0018_0000)] {
            wave.vgpr[register] = [value; 64];
        }
    };
    after("output scale", text, set, |wave| {
        let found = [1, 2, 3, 5, 7].map(|register| wave.vgpr[register][7]);
        assert_eq!(found, [0, 0x0140_0000, 0, 0, 0x0028_0000], "{found:x?}");
    });
}

/// The guide: "Input denormals are not flushed but output flushing is allowed."
#[test]
fn the_end_of_a_division_takes_subnormal_numbers() {
    let text = "s_mov_b64 vcc, 0\n v_div_fmas_f32 v1, v8, v9, 0\n\
                v_div_fmas_f64 v[2:3], v[10:11], v[12:13], 0\n\
                v_div_fmas_f32 v4, v8, 1.0, 0\n v_fma_f32 v5, v8, v9, 0";
    let set = |wave: &mut gcn::Wave| {
        wave.mode &= !mode::FP_DENORM;
        // The least numbers, and powers of two that make them normal.
        let powers = [
            (9, 2f32.powi(100).to_bits()),
            (13, (2f64.powi(900).to_bits() >> 32) as u32),
        ];
        for (register, value) in [(8, 1), (10, 1), (11, 0), (12, 0)]
            .into_iter()
            .chain(powers)
        {
            wave.vgpr[register] = [value; 64];
        }
    };
    after("division", text, set, |wave| {
        let found = [1, 3, 4, 5].map(|register| wave.vgpr[register][7]);
        let double = 2f64.powi(900 - 1074).to_bits() >> 32;
        let wanted = [2f32.powi(100 - 149).to_bits(), double as u32, 0, 0];
        assert_eq!(found, wanted, "{found:x?}");
    });
}

/// LLVM: `fp16SrcZerosHighBits`.
#[test]
fn three_halves_leave_the_upper_half_zero() {
    let text = "v_min3_f16 v1, v8, v9, v10\n v_max3_f16 v2, v8, v9, v10\n\
                v_med3_f16 v3, v8, v9, v10\n v_fma_f16 v4, v8, v9, v10\n\
                v_med3_f16 v5, v8, v9, v10 op_sel:[0,0,0,1]";
    let set = |wave: &mut gcn::Wave| {
        for register in 1..6 {
            wave.vgpr[register] = [0xdead_beef; 64];
        }
        for (register, half) in [(8, 0x4000), (9, 0x3c00), (10, 0x4200)] {
            wave.vgpr[register] = [half; 64];
        }
    };
    after("three halves", text, set, |wave| {
        let found = [1, 2, 3, 4, 5].map(|register| wave.vgpr[register][7]);
        // 2 · 1 + 3 is 5.
        let wanted = [0x3c00, 0x4200, 0x4000, 0xdead_4500, 0x4000_beef];
        assert_eq!(found, wanted, "{found:x?}");
    });
}

/// LLVM makes these of `llvm.amdgcn.fmad.ftz.f16`, and masks nothing (`fp16SrcZerosHighBits`).
#[test]
fn multiply_adds_of_two_halves_flush_and_leave_the_upper_half_zero() {
    let text = "v_mac_f16 v1, v8, v9\n v_madmk_f16 v2, v8, 0x3c00, v9\n\
                v_madak_f16 v3, v8, v9, 0x3c00\n\
                v_mac_f16 v4, v10, v8\n v_madmk_f16 v5, v10, 0x3c00, v11\n\
                v_madak_f16 v6, v10, v8, 0\n v_mad_legacy_f16 v7, v10, v8, 0";
    let set = |wave: &mut gcn::Wave| {
        for register in 1..8 {
            wave.vgpr[register] = [0xdead_beef; 64];
        }
        // The addends of v_mac.
        wave.vgpr[1] = [0xdead_4200; 64];
        wave.vgpr[4] = [0xdead_0000; 64];
        for (register, half) in [(8, 0x3c00), (9, 0x4000), (10, 3), (11, 0)] {
            wave.vgpr[register] = [half; 64];
        }
    };
    after("multiply-adds of halves", text, set, |wave| {
        let found = [1, 2, 3, 4, 5, 6, 7].map(|register| wave.vgpr[register][7]);
        // 1 · 2 + 3, 1 · 1 + 2, 1 · 2 + 1; of the least numbers nothing is left.
        let wanted = [0x4500, 0x4200, 0x4200, 0, 0, 0, 0];
        assert_eq!(found, wanted, "{found:x?}");
    });
}

#[test]
fn scalar_atomics_update_memory_once() {
    let text = "s_movk_i32 s4, 5\n s_atomic_add s4, s[2:3], 0x10 glc\n\
                s_movk_i32 s6, 7\n s_atomic_umax s6, s[2:3], 0x14\n\
                s_movk_i32 s8, 100\n s_movk_i32 s9, 21\n\
                s_atomic_cmpswap s[8:9], s[2:3], 0x18 glc\n\
                s_mov_b64 s[10:11], -1\n s_atomic_add_x2 s[10:11], s[2:3], 0x20 glc\n\
                s_mov_b64 s[16:17], s[2:3]\n s_movk_i32 s18, 16\n s_mov_b32 s19, 0\n\
                s_movk_i32 s20, 9\n s_buffer_atomic_or s20, s[16:19], 0xc glc\n\
                s_movk_i32 s21, 9\n s_buffer_atomic_or s21, s[16:19], 0x10 glc\n\
                s_endpgm";
    let mut bench = Bench::new(text);
    let data = bench.wave().scalar64(2);
    let words = [0u32, 0, 0, 6, 37, 3, 21, 0, 1, 5];
    gcn::Memory::write(
        &mut bench.ram,
        data,
        &words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
    .unwrap();
    assert_eq!(bench.run(), Outcome::Done);
    let wave = bench.wave();
    assert_eq!(
        (wave.scalar[4], wave.scalar[6], wave.scalar[8]),
        (37, 7, 21)
    );
    assert_eq!(wave.scalar64(10), 5 << 32 | 1);
    // Within and beyond the buffer's 16 bytes.
    assert_eq!((wave.scalar[20], wave.scalar[21]), (6, 0));
    let after: Vec<u32> = bench.ram.take(data, 10);
    assert_eq!(after, [0, 0, 0, 15, 42, 7, 100, 0, 0, 5]);
}

#[test]
fn lanes_swizzle_by_rotation_and_bit_reversal() {
    // Rotate by 3 within eights; reverse five bits; exchange halves of fours.
    let text = "ds_swizzle_b32 v1, v0 offset:0xc078\n ds_swizzle_b32 v2, v0 offset:0xe000\n\
                ds_swizzle_b32 v3, v0 offset:0xe010";
    after(
        "swizzle",
        text,
        |_| {},
        |wave| {
            for lane in 0..64u32 {
                let at = lane as usize;
                let (half, within) = (lane & 32, lane & 31);
                assert_eq!(wave.vgpr[1][at], half | within & 24 | (within + 3) & 7);
                let reversed = (0..5).fold(0, |bits, bit| bits | (within >> bit & 1) << (4 - bit));
                assert_eq!(wave.vgpr[2][at], half | reversed);
                assert_eq!(wave.vgpr[3][at], half | reversed >> 1 | within & 16);
            }
        },
    );
}

#[test]
fn conditional_exchange_writes_marked_dwords() {
    let text = "v_lshlrev_b32 v1, 3, v0\n v_mov_b32 v2, 7\n v_mov_b32 v3, 8\n\
                ds_write_b64 v1, v[2:3]\n v_bfrev_b32 v4, 1\n v_or_b32 v4, v4, v0\n\
                v_mov_b32 v5, 99\n\
                ds_condxchg32_rtn_b64 v[6:7], v1, v[4:5]\n ds_read_b64 v[8:9], v1";
    after(
        "conditional exchange",
        text,
        |_| {},
        |wave| {
            assert_eq!((wave.vgpr[6][9], wave.vgpr[7][9]), (7, 8));
            assert_eq!((wave.vgpr[8][9], wave.vgpr[9][9]), (9, 8));
        },
    );
}

#[test]
fn typed_buffers_convert() {
    // 64 elements of four bytes at data; the format is the instruction's, then the descriptor's.
    let text = "s_mov_b64 s[4:5], s[2:3]\n s_movk_i32 s6, 256\n s_mov_b32 s7, 0x00055fac\n\
                v_lshlrev_b32 v1, 2, v0\n v_mov_b32 v2, 0.5\n v_mov_b32 v3, 1.0\n\
                v_cvt_f32_u32 v4, v0\n\
                v_mov_b32 v5, 0\n\
                tbuffer_store_format_xyzw v[2:5], v1, s[4:7], 0 \
                format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_USCALED] offen\n\
                tbuffer_load_format_xyzw v[8:11], v1, s[4:7], 0 \
                format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_UINT] offen\n\
                buffer_load_format_xyz v[12:14], v1, s[4:7], 0 offen\n\
                buffer_load_format_d16_xy v15, v1, s[4:7], 0 offen\n\
                tbuffer_load_format_x v16, v1, s[4:7], 0 format:[BUF_DATA_FORMAT_32] offen \
                offset:8";
    after(
        "typed",
        text,
        |_| {},
        |wave| {
            for lane in [0, 5, 63] {
                let bytes = [0, 1, lane as u32, 0];
                for (index, byte) in bytes.into_iter().enumerate() {
                    assert_eq!(wave.vgpr[8 + index][lane], byte);
                }
                // 8_8_8_8 SINT, registers from components x, y, z as DST_SEL says.
                assert_eq!((wave.vgpr[12][lane], wave.vgpr[14][lane]), (0, lane as u32));
                assert_eq!(wave.vgpr[15][lane], 1 << 16);
            }
            // Two elements on, out of bounds for the last two lanes.
            let unorm = |bits: u32| (bits as f32 / u32::MAX as f32).to_bits();
            assert_eq!(wave.vgpr[16][0], unorm(0x0002_0100));
            assert_eq!((wave.vgpr[16][62], wave.vgpr[16][63]), (0, 0));
        },
    );
}

/// A kernel that computes at run time, and one in which clang has computed already.
fn against_clang(test: &str, ty: &str, call: &str, cases: &[String]) {
    let toolchain = Toolchain::new();
    let kernel = "__attribute__((amdgpu_kernel)) void";
    let mut text = format!("#define OUT __attribute__((address_space(1))) {ty}\n");
    let variable = |case: &String| case.replace("CONST", "*(volatile const OUT *)zero +");
    for (name, constant) in [("folded", true), ("computed", false)] {
        text += &format!("{kernel} {name}(OUT *out, OUT *zero) {{\n");
        for (index, case) in cases.iter().enumerate() {
            let case = if constant {
                case.replace("CONST", "")
            } else {
                variable(case)
            };
            text += &format!("out[{index}] = {};\n", call.replace("ARGUMENTS", &case));
        }
        text += "}\n";
    }
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.so"));
    let name = output.to_str().unwrap();
    let command = [
        "clang",
        "-x",
        "c",
        "-",
        "-O1",
        "-target",
        "amdgcn-amd-amdhsa",
        "-mcpu=gfx942",
        "-nogpulib",
        "-o",
        name,
    ];
    let (_, messages) = toolchain.run(&command, &text);
    let elf = std::fs::read(&output).unwrap_or_else(|_| panic!("{messages}"));
    let mut ram = Ram::new(4 << 20);
    let program = Program::load(&elf, &mut ram);
    let zero = ram.place(&[0u64]);
    let results = ["folded", "computed"].map(|kernel| {
        let out = ram.allocate(cases.len() * 8);
        let arguments = Arguments::new().with(out).with(zero);
        program.run(&mut ram, kernel, arguments.bytes(), [1; 3], [1; 3]);
        ram.take::<u32>(out, cases.len() * if ty == "double" { 2 } else { 1 })
    });
    let wide = if ty == "double" { 2 } else { 1 };
    let [folded, computed] = results.each_ref().map(|bits| bits.chunks(wide));
    for ((folded, computed), case) in folded.zip(computed).zip(cases) {
        assert_eq!(folded, computed, "{test}: {case}");
    }
    assert!(
        results[0].iter().any(|bits| *bits != 0),
        "something is computed"
    );
}

#[test]
fn cube_faces_are_those_that_clang_computes() {
    let mut cases = Vec::new();
    for x in ["-2.5f", "1.0f", "0.0f"] {
        for y in ["-2.5f", "1.0f", "4.0f"] {
            for z in ["-2.5f", "1.0f", "-7.0f"] {
                cases.push(format!("CONST {x}, CONST {y}, CONST {z}"));
            }
        }
    }
    for part in ["id", "sc", "tc", "ma"] {
        let call = format!("__builtin_amdgcn_cube{part}(ARGUMENTS)");
        against_clang(&format!("cube{part}"), "float", &call, &cases);
    }
}

#[test]
fn segments_of_two_by_pi_are_those_that_clang_computes() {
    let mut cases = Vec::new();
    for argument in [
        "1.0", "0x1p53", "0x1p54", "0x1.8p55", "0x1p200", "0x1p900", "0x1p945", "0x1p1023",
    ] {
        for segment in (0..32).step_by(3).chain([1, 22]) {
            cases.push(format!("CONST {argument}, {segment}"));
        }
    }
    against_clang(
        "trig_preop",
        "double",
        "__builtin_amdgcn_trig_preop(ARGUMENTS)",
        &cases,
    );
}
