// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Constants, flushing and CLAMP of packed and mixed instructions, and of their like. Each on all
//! engines.

#[path = "support/all.rs"]
mod all;
#[path = "support/bench.rs"]
mod bench;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/toolchain.rs"]
mod toolchain;

use all::{after, results};
use gcn::wave::mode;
use gcn::Wave;

/// LLVM: "The inline immediate values are really f16 converted to f32, so we treat these as f16
/// operands" (`VOP3P_Mix_Profile`).
#[test]
fn constants_of_mixed_multiply_adds_are_halves_where_their_source_is_one() {
    const CONSTANTS: [(&str, f32); 9] = [
        ("0.5", 0.5),
        ("-0.5", -0.5),
        ("1.0", 1.0),
        ("-1.0", -1.0),
        ("2.0", 2.0),
        ("-2.0", -2.0),
        ("4.0", 4.0),
        ("-4.0", -4.0),
        // 1/(2π) as a half; what a single is of it LLVM does not say.
        ("0.15915494", 0.15917969),
    ];
    let others = [3f32, 7.0, 5.0];
    let set = |wave: &mut Wave| {
        for (register, other) in (2..).zip(others) {
            wave.vgpr[register] = [other.to_bits(); 64];
        }
    };
    for source in 0..3 {
        let one = |(index, half): (usize, usize)| {
            let mut operands = ["v2", "v3", "v4"];
            operands[source] = CONSTANTS[index].0;
            let mut halves = [0; 3];
            halves[source] = half;
            let ([a, b, c], to) = (operands, 5 + 9 * half + index);
            format!("v_fma_mix_f32 v{to}, {a}, {b}, {c} op_sel_hi:{halves:?}\n ")
        };
        let all = (0..9).flat_map(|index| [(index, 0), (index, 1)]);
        after(&all.map(one).collect::<String>(), set, |wave| {
            let found = |register: usize| f32::from_bits(wave.vgpr[register][9]);
            for (index, (name, value)) in CONSTANTS.into_iter().enumerate() {
                let mut operands = others;
                operands[source] = value;
                let wanted = operands[0].mul_add(operands[1], operands[2]);
                assert_eq!(found(14 + index), wanted, "half {name}, source {source}");
                if index < 8 {
                    assert_eq!(found(5 + index), wanted, "single {name}, source {source}");
                }
            }
        });
    }
    let text = "v_mov_b32 v8, 0x4000\n v_mov_b32 v9, 0x4200\n\
                v_fma_mix_f32 v10, v8, 1.0, v9 op_sel_hi:[1,1,1]\n\
                v_fma_mix_f32 v11, v8, -1.0, v9 op_sel_hi:[1,1,1]\n\
                v_mov_b32 v12, -1\n v_fma_mixlo_f16 v12, v2, 0.5, 2.0 op_sel_hi:[0,1,1]\n\
                v_mov_b32 v13, -1\n v_fma_mixhi_f16 v13, v2, 0.5, 2.0 op_sel_hi:[0,1,1]";
    after(text, set, |wave| {
        let found = [10, 11, 12, 13].map(|register| wave.vgpr[register][9]);
        let [sum, difference] = [5f32, 1.0].map(f32::to_bits);
        assert_eq!(found, [sum, difference, 0xffff_4300, 0x4300_ffff]);
    });
}

/// LLVM's V_MOV_B64_PSEUDO of 0x3f800000_3f800000 is `v_pk_mov_b32 v[0:1], 1.0, 1.0`.
#[test]
fn constants_of_a_packed_move_are_singles() {
    let text = "v_pk_mov_b32 v[6:7], 1.0, 2.0\n v_pk_mov_b32 v[8:9], 0.15915494, -4.0\n\
                v_pk_mov_b32 v[10:11], -1, 5\n v_pk_mov_b32 v[12:13], 1.0, v[4:5] op_sel:[0,1]\n\
                v_pk_mov_b32 v[14:15], v[2:3], v[4:5] op_sel:[0,1]\n\
                v_pk_mov_b32 v[16:17], v[2:3], v[4:5] op_sel:[1,0]";
    let set = |wave: &mut Wave| {
        for register in 2..6 {
            wave.vgpr[register] = [100 + register as u32; 64];
        }
    };
    after(text, set, |wave| {
        let found: Vec<u32> = wave.vgpr[6..18].iter().map(|lanes| lanes[63]).collect();
        let [one, two, minus_four] = [1f32, 2.0, -4.0].map(f32::to_bits);
        let wanted = [
            [one, two],
            [0x3e22_f983, minus_four],
            [u32::MAX, 5],
            [one, 105],
            [102, 105],
            [103, 104],
        ];
        assert_eq!(found, wanted.concat());
    });
}

/// MODE's FP_DENORM: 0 flushes sources, however results are rounded.
#[test]
fn mixed_multiply_adds_flush_singles_as_others_do() {
    let text = "v_fma_mix_f32 v9, v2, v3, 0\n v_fma_f32 v10, v2, v3, 0\n\
                v_fma_mix_f32 v11, v3, -v2, 0\n v_fma_f32 v12, v3, -v2, 0\n\
                v_fma_mix_f32 v13, v4, 1.0, v2\n v_fma_f32 v14, v4, 1.0, v2\n\
                v_mov_b32 v15, 0\n v_fma_mixlo_f16 v15, v2, v5, 0";
    const SINGLES: u32 = 3 << 4;
    let [subnormal, large, least, huge] = [0x0008_0000, 0x4980_0000, 0x0080_0000, 0x7f00_0000];
    for round in [0, 3] {
        // 2^-130 * ±2^20, 2^-126 + 2^-130, 2^-130 * 2^127.
        let flushed = [0, 0, 0x8000_0000, 0x8000_0000, least, least, 0];
        let product = 0x0880_0000;
        let minus = product | 0x8000_0000;
        let sum = 0x0088_0000;
        let kept = [product, product, minus, minus, sum, sum, 0x3000];
        for (denorm, wanted) in [(0, flushed), (SINGLES, kept)] {
            let set = |wave: &mut Wave| {
                wave.mode = wave.mode & !(mode::FP_ROUND | SINGLES) | round | round << 2 | denorm;
                for (register, value) in (2..).zip([subnormal, large, least, huge]) {
                    wave.vgpr[register] = [value; 64];
                }
            };
            after(text, set, |wave| {
                let found: Vec<u32> = wave.vgpr[9..16].iter().map(|lanes| lanes[5]).collect();
                // The sum of -0 and 0 is not the matter here.
                let sign = |bits: u32| if bits << 1 == 0 { 0 } else { bits };
                let [found, wanted] = [found, wanted.to_vec()]
                    .map(|all| all.into_iter().map(sign).collect::<Vec<u32>>());
                assert_eq!(found, wanted, "{round} {denorm:#x}: {found:x?}");
            });
        }
    }
}

#[test]
fn clamp_limits_multiply_adds_and_sums_of_differences() {
    let (top, least) = (i32::MAX as u32, i32::MIN as u32);
    results(&[
        (
            "v_mad_u32_u24 v1, v2, v3, v4",
            [0xff_ffff, 0xff_ffff, 1],
            0xfe00_0002,
        ),
        (
            "v_mad_u32_u24 v1, v2, v3, v4 clamp",
            [0xff_ffff, 0xff_ffff, 1],
            u32::MAX,
        ),
        ("v_mad_u32_u24 v1, v2, v3, v4 clamp", [2, 3, 4], 10),
        (
            "v_mad_i32_i24 v1, v2, v3, v4 clamp",
            [0x7f_ffff, 0x7f_ffff, 1],
            top,
        ),
        (
            "v_mad_i32_i24 v1, v2, v3, v4 clamp",
            [0x7f_ffff, 0x80_0000, 1],
            least,
        ),
        (
            "v_mad_u32_u16 v1, v2, v3, v4 clamp",
            [0xffff, 0xffff, u32::MAX],
            u32::MAX,
        ),
        (
            "v_mad_i32_i16 v1, v2, v3, v4 clamp",
            [0x7fff, 0x7fff, top],
            top,
        ),
        (
            "v_mad_i32_i16 v1, v2, v3, v4 clamp",
            [0x7fff, 0x8000, least],
            least,
        ),
        (
            "v_sad_u8 v1, v2, v3, v4 clamp",
            [9, 0, u32::MAX - 2],
            u32::MAX,
        ),
        (
            "v_sad_hi_u8 v1, v2, v3, v4 clamp",
            [9, 0, u32::MAX - 2],
            u32::MAX,
        ),
        (
            "v_sad_u16 v1, v2, v3, v4 clamp",
            [9, 0, u32::MAX - 2],
            u32::MAX,
        ),
        (
            "v_sad_u32 v1, v2, v3, v4 clamp",
            [9, 0, u32::MAX - 2],
            u32::MAX,
        ),
        (
            "v_msad_u8 v1, v2, v3, v4 clamp",
            [9, 1, u32::MAX - 2],
            u32::MAX,
        ),
        ("v_sad_u32 v1, v2, v3, v4", [9, 0, u32::MAX - 2], 6),
        // 2 and -1, to [0, 1].
        (
            "v_cvt_pkrtz_f16_f32 v1, v2, v3 clamp",
            [0x4000_0000, 0xbf80_0000, 0],
            0x3c00,
        ),
    ]);
    let wide = "v_mad_u64_u32 v[6:7], vcc, v2, v3, v[4:5] clamp\n\
                v_mad_i64_i32 v[8:9], vcc, v2, v3, v[10:11] clamp";
    let set = |wave: &mut Wave| {
        for (register, value) in [u32::MAX, 1, 1, u32::MAX, 0, 0, 0, 0, 0, least]
            .into_iter()
            .enumerate()
        {
            wave.vgpr[2 + register] = [value; 64];
        }
    };
    after(wide, set, |wave| {
        assert_eq!([6, 7].map(|register| wave.vgpr[register][9]), [u32::MAX; 2]);
        assert_eq!([8, 9].map(|register| wave.vgpr[register][9]), [0, least]);
    });
}

/// CLAMP is the larger one of 0 and the result: of zeros +0.
#[test]
fn clamp_leaves_no_negative_zero() {
    let text = "v_mul_f16_e64 v8, v2, v3 clamp\n v_pk_mul_f16 v9, v2, v3 clamp\n\
                v_pk_fma_f16 v10, v2, v3, v4 clamp\n v_pk_add_f16 v11, v4, v4 clamp\n\
                v_mul_f32_e64 v12, v6, v3 clamp\n v_fma_mix_f32 v13, v6, v3, v20 clamp\n\
                v_fma_mixlo_f16 v14, v6, v3, v20 clamp\n\
                v_fma_mixhi_f16 v15, v6, v3, v20 clamp\n\
                v_pk_mul_f32 v[16:17], v[6:7], v[22:23] clamp\n\
                v_pk_fma_f32 v[18:19], v[6:7], v[22:23], v[20:21] clamp\n\
                v_pk_mul_f16 v24, v25, v26 clamp";
    let set = |wave: &mut Wave| {
        // Halves of -1 and -0, singles of them, and 1 and 4 with halves.
        let halves = [(2, 0xbc00_bc00), (4, 0x8000_8000)];
        let singles = [6, 7].map(|register| (register, 0xbf80_0000));
        let zeros = [20, 21].map(|register| (register, 0x8000_0000));
        let others = [(25, 0x4400_3c00), (26, 0x3800_3800)];
        for (register, value) in [halves, singles, zeros, others].concat() {
            wave.vgpr[register] = [value; 64];
        }
    };
    after(text, set, |wave| {
        let found: Vec<u32> = wave.vgpr[8..20].iter().map(|lanes| lanes[3]).collect();
        assert_eq!(found, [0; 12], "{found:x?}");
        assert_eq!(wave.vgpr[24][3], 0x3c00_3800);
    });
}
