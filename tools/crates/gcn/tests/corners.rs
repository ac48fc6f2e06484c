// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Corners of usual instructions that compilers know and count on: addresses that wrap, numbers
//! that are too small, results that are too large. Each on all engines.

#[path = "support/all.rs"]
mod all;
#[path = "support/bench.rs"]
mod bench;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/toolchain.rs"]
mod toolchain;

use all::{after, on_all, results};
use bench::Bench;
use gcn::wave::{mode, sreg, status};
use gcn::{CodeCache, Engine, ExecError, Fault, Memory, Outcome, Target, Wave};
use toolchain::Toolchain;

/// LLVM puts a positive offset beside an index that may be negative (`ds-sub-offset.ll`).
#[test]
fn addresses_in_lds_wrap_at_32_bits() {
    let text = "v_lshlrev_b32 v1, 2, v0\n v_sub_u32 v1, -4, v1\n\
                ds_write_b32 v1, v0 offset:256\n ds_write_b8 v1, v0 offset:512\n\
                ds_write2st64_b32 v1, v0, v0 offset0:2 offset1:3\n\
                v_sub_u32 v2, 0xfc, v0\n v_lshlrev_b32 v3, 2, v0\n v_sub_u32 v3, 0xfc, v3\n\
                ds_read_b32 v4, v3\n ds_read_b32 v5, v3 offset:256\n\
                ds_read_b32 v6, v3 offset:512\n\
                ds_read_b32 v7, v1 offset:256\n ds_read_u8 v8, v1 offset:512\n\
                ds_read2st64_b32 v[10:11], v1 offset0:1 offset1:3\n\
                ds_read2_b32 v[12:13], v1 offset0:64 offset1:128\n\
                ds_add_u32 v1, v0 offset:256\n ds_add_rtn_u32 v14, v1, v0 offset:256\n\
                ds_read_b32 v15, v3\n\
                v_lshlrev_b32 v1, 3, v0\n v_sub_u32 v1, -8, v1\n\
                v_mov_b32 v16, v0\n v_mov_b32 v17, 7\n ds_write_b64 v1, v[16:17] offset:512\n\
                ds_read_b64 v[18:19], v1 offset:512";
    let set = |wave: &mut Wave| wave.vgpr[9] = [0; 64];
    after(text, set, |wave| {
        for lane in [0, 1, 62, 63] {
            let number = lane as u32;
            for register in [4, 5, 6, 7, 8, 10, 11, 12, 13] {
                assert_eq!(wave.vgpr[register][lane], number, "v{register}, {lane}");
            }
            assert_eq!(wave.vgpr[14][lane], 2 * number);
            assert_eq!(wave.vgpr[15][lane], 3 * number);
            assert_eq!((wave.vgpr[18][lane], wave.vgpr[19][lane]), (number, 7));
        }
    });
}

/// AMDGPUCodeGenPrepare: "The rcp instruction doesn't support denormals"; `amdgcn.exp2` and
/// `amdgcn.log` of a subnormal are folded to 1 and -∞; the f16 forms keep them.
#[test]
fn approximations_of_singles_know_no_subnormal_numbers() {
    const TINY: u32 = 0x0001_0000;
    const INFINITY: u32 = 0x7f80_0000;
    const MINUS: u32 = 1 << 31;
    let huge = 0x7f00_0000;
    let one = |text, operand, result| (text, [operand, 0, 0], result);
    results(&[
        one("v_rcp_f32 v1, v2", TINY, INFINITY),
        one("v_rcp_f32 v1, v2", MINUS | TINY, MINUS | INFINITY),
        one("v_rcp_f32 v1, v2", huge, 0),
        one("v_rcp_f32 v1, -v2", huge, MINUS),
        one("v_rcp_iflag_f32 v1, v2", TINY, INFINITY),
        one("v_rcp_iflag_f32 v1, v2", huge, 0),
        one("v_rcp_f32 v1, v2", 0x7e80_0000, 0x0080_0000),
        one("v_rsq_f32 v1, v2", TINY, INFINITY),
        one("v_rsq_f32 v1, v2", MINUS | TINY, MINUS | INFINITY),
        one("v_sqrt_f32 v1, v2", TINY, 0),
        one("v_sqrt_f32 v1, v2", MINUS | TINY, MINUS),
        one("v_log_f32 v1, v2", TINY, MINUS | INFINITY),
        one("v_log_legacy_f32 v1, v2", TINY, MINUS | INFINITY),
        one("v_exp_f32 v1, v2", TINY, 1f32.to_bits()),
        one("v_exp_f32 v1, v2", (-130f32).to_bits(), 0),
        one("v_exp_legacy_f32 v1, v2", (-130f32).to_bits(), 0),
        one("v_exp_f32 v1, v2", (-126f32).to_bits(), 0x0080_0000),
        // -24; 2^-24; and an operation that is exact.
        one("v_log_f16 v1, v2", 1, 0xce00),
        one("v_exp_f16 v1, v2", 0xce00, 1),
        one("v_mul_f32 v1, 1.0, v2", TINY, TINY),
    ]);
}

#[test]
fn mad_of_16_bits_takes_the_half_that_op_sel_says() {
    let (a, b) = (0xffff_0003, 0x0007_0005);
    let case = |text, result| (text, [a, b, 100], result);
    results(&[
        case("v_mad_u32_u16 v1, v2, v3, v4", 115),
        case(
            "v_mad_u32_u16 v1, v2, v3, v4 op_sel:[1,0,0,0]",
            5 * 0xffff + 100,
        ),
        case("v_mad_u32_u16 v1, v2, v3, v4 op_sel:[0,1,0,0]", 121),
        case(
            "v_mad_u32_u16 v1, v2, v3, v4 op_sel:[1,1,0,0]",
            7 * 0xffff + 100,
        ),
        case("v_mad_i32_i16 v1, v2, v3, v4 op_sel:[1,0,0,0]", 95),
        case("v_mad_i32_i16 v1, v2, v3, v4 op_sel:[0,1,0,0]", 121),
        case("v_mad_i32_i16 v1, v2, v3, v4 op_sel:[1,1,0,0]", 93),
    ]);
}

/// What CLAMP does to these no document says, and of M0 each says something else.
#[test]
fn what_nobody_knows_is_refused() {
    for text in [
        "s_movk_i32 m0, 0x100\n ds_append v1",
        "s_movk_i32 m0, 0x100\n ds_consume v1 offset:4",
        "v_mul_u32_u24_e64 v1, v2, v3 clamp",
        "v_mul_i32_i24_e64 v1, v2, v3 clamp",
        "v_pk_mul_lo_u16 v1, v2, v3 clamp",
    ] {
        for engine in Engine::all() {
            let mut bench = Bench::new(&format!("{text}\ns_endpgm\n"));
            bench.code = CodeCache::with(Target::Gfx942, engine);
            let outcome = bench.run();
            let Outcome::Error {
                error: ExecError::Unsupported { .. },
                ..
            } = outcome
            else {
                panic!("{text}: {outcome:?}");
            };
        }
    }
}

/// The guide, 9.1.5.1: dwords are checked each for itself, without SOFFSET; without an index
/// NUM_RECORDS counts bytes.
#[test]
fn bounds_of_buffers_are_those_of_each_dword() {
    let text = "s_mov_b64 s[4:5], s[2:3]\n s_movk_i32 s6, 40\n s_mov_b32 s7, 0x27000\n\
                s_movk_i32 s12, 64\n v_lshlrev_b32 v1, 4, v0\n\
                v_mov_b32 v4, 7\n v_mov_b32 v5, 7\n v_mov_b32 v6, 7\n v_mov_b32 v7, 7\n\
                buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen\n\
                buffer_load_dword v12, v1, s[4:7], s12 offen\n\
                buffer_store_dwordx4 v[4:7], v1, s[4:7], 0 offen offset:16\n\
                s_or_b32 s5, s5, 0x100000\n\
                buffer_load_dword v13, v1, s[4:7], 0 offen offset:8\n\
                s_mov_b32 s6, 2\n\
                buffer_load_dwordx4 v[16:19], v0, s[4:7], 0 idxen offset:64";
    let set = |bench: &mut Bench| {
        let data = bench.wave().scalar64(2);
        let words: Vec<u8> = (0u32..256).flat_map(u32::to_le_bytes).collect();
        bench.ram.write(data, &words).unwrap();
    };
    on_all(Target::Gfx942, text, set, |bench| {
        let wave = bench.wave();
        let row = |first: usize, lane: usize| [0, 1, 2, 3].map(|i| wave.vgpr[first + i][lane]);
        assert_eq!(
            [1, 2, 3].map(|lane| row(8, lane)),
            [[4, 5, 6, 7], [8, 9, 0, 0], [0; 4]]
        );
        assert_eq!([0, 2, 3].map(|lane| wave.vgpr[12][lane]), [16, 24, 0]);
        // Bytes, whatever the stride.
        assert_eq!([0, 1, 2, 3].map(|lane| wave.vgpr[13][lane]), [2, 7, 0, 0]);
        assert_eq!([0, 1, 2].map(|lane| row(16, lane)[1]), [17, 21, 0]);
        let found: Vec<u32> = bench.ram.take(wave.scalar64(2), 12);
        assert_eq!(found, [0, 1, 2, 3, 7, 7, 7, 7, 7, 7, 10, 11]);
    });
}

/// The guide: "(2**29)ULP accuracy and supports denormals".
#[test]
fn reciprocals_and_roots_of_doubles_are_coarse() {
    let text = "v_rcp_f64 v[8:9], v[2:3]\n v_rsq_f64 v[10:11], v[2:3]\n\
                v_sqrt_f64 v[12:13], v[2:3]\n v_rcp_f64 v[14:15], v[4:5]\n\
                v_sqrt_f64 v[16:17], v[4:5]\n v_rcp_f64 v[18:19], v[6:7]\n\
                v_sqrt_f64 v[20:21], -v[2:3]";
    // The last one's reciprocal is subnormal.
    let operands = [3.0, 4.0, f64::MAX];
    let set = |wave: &mut Wave| {
        for (register, value) in [2, 4, 6].into_iter().zip(operands) {
            let bits = value.to_bits();
            wave.vgpr[register] = [bits as u32; 64];
            wave.vgpr[register + 1] = [(bits >> 32) as u32; 64];
        }
    };
    after(text, set, |wave| {
        let result = |register: usize| {
            let [low, high] = [0, 1].map(|half| u64::from(wave.vgpr[register + half][63]));
            low | high << 32
        };
        for (register, exact) in [(8, 1.0 / 3.0), (10, 1.0 / 3f64.sqrt()), (12, 3f64.sqrt())] {
            let off = result(register).abs_diff(exact.to_bits());
            assert!((1 << 20..1 << 29).contains(&off), "v{register}: {off:#x}");
        }
        let exact = [0.25, 2.0, 1.0 / f64::MAX].map(f64::to_bits);
        assert_eq!([14, 16, 18].map(result), exact);
        assert!(f64::from_bits(result(20)).is_nan());
    });
}

/// The guide: "unsupported shift counts as a shift of zero".
#[test]
fn addresses_are_scaled_by_up_to_sixteen() {
    for (shift, scaled) in [
        (0, 1),
        (3, 8),
        (4, 16),
        (5, 1),
        (6, 1),
        (7, 1),
        (8, 1),
        (12, 16),
    ] {
        let text = "v_lshl_add_u64 v[8:9], v[2:3], v4, v[6:7]";
        let set = |wave: &mut Wave| {
            for (register, value) in [(2, 9), (3, 1), (4, shift), (6, 100), (7, 2)] {
                wave.vgpr[register] = [value; 64];
            }
        };
        after(text, set, |wave| {
            let found = [8, 9].map(|register| wave.vgpr[register][3]);
            assert_eq!(found, [9 * scaled + 100, scaled + 2], "{shift}");
        });
    }
}

/// The guide: `{ D1.i1, D0.i64 } = 65'B(65'I(S0.i32) * 65'I(S1.i32) + 65'I(S2.i64))`.
#[test]
fn signed_products_carry_their_sign() {
    let top = i64::MAX;
    for (a, b, c, carry) in [
        (-1, 1, 0, 1),
        (1, 1, -1, 0),
        (1, 1, top, 0),
        (-1, 1, -top - 1, 1),
    ] {
        let text = "v_mad_i64_i32 v[8:9], s[10:11], v2, v3, v[4:5]";
        let set = |wave: &mut Wave| {
            let high = (c >> 32) as u32;
            let operands = [a as u32, b as u32, c as u32, high];
            for (register, value) in (2..).zip(operands) {
                wave.vgpr[register] = [value; 64];
            }
        };
        after(text, set, |wave| {
            let [low, high] = [8, 9].map(|register| u64::from(wave.vgpr[register][3]));
            let sum = i64::from(a * b).wrapping_add(c);
            assert_eq!((low | high << 32) as i64, sum, "{a} {b} {c}");
            assert_eq!(wave.scalar64(10) >> 3 & 1, carry, "{a} {b} {c}");
        });
    }
}

/// The guide, 9.2.2: sums of halves, and what is compared, as MODE has it.
#[test]
fn atomics_in_lds_flush_or_not() {
    const LEAST: u32 = 1 << 31;
    let text = "v_mov_b32 v1, 0\n ds_write_b32 v1, v2\n ds_pk_add_f16 v1, v3\n\
                ds_read_b32 v8, v1\n ds_write_b32 v1, v4\n ds_min_f32 v1, v5\n\
                ds_read_b32 v9, v1\n ds_write_b32 v1, v4\n ds_cmpst_f32 v1, v5, v6\n\
                ds_read_b32 v10, v1";
    let one = 1f32.to_bits();
    for (bits, wanted) in [
        (0, [0, LEAST | 5, one]),
        (mode::FP_DENORM, [0x0008_0002, LEAST | 9, LEAST | 5]),
    ] {
        let set = |wave: &mut Wave| {
            wave.mode = wave.mode & !mode::FP_DENORM | bits;
            wave.set_exec(1);
            let operands = [0x0005_0001, 0x0003_0001, LEAST | 5, LEAST | 9, one];
            for (register, value) in (2..).zip(operands) {
                wave.vgpr[register] = [value; 64];
            }
        };
        after(text, set, |wave| {
            let found = [8, 9, 10].map(|register| wave.vgpr[register][0]);
            assert_eq!(found, wanted, "{bits:#x}: {found:x?}");
        });
    }
}

#[test]
fn a_counter_in_lds_moves_by_the_active_lanes() {
    let text = "v_mov_b32 v1, 0\n v_mov_b32 v2, 10\n ds_write_b32 v1, v2 offset:256\n\
                s_mov_b32 m0, 0\n s_movk_i32 s4, 7\n s_mov_b32 s5, 0\n\
                s_mov_b64 s[6:7], exec\n s_mov_b64 exec, s[4:5]\n ds_append v3 offset:256\n\
                s_mov_b64 exec, s[6:7]\n ds_consume v4 offset:256\n\
                ds_read_b32 v5, v1 offset:256";
    after(
        text,
        |_| (),
        |wave| {
            let found = [3, 4, 5].map(|register| wave.vgpr[register][2]);
            assert_eq!(found, [10, 13, 13u32.wrapping_sub(64)]);
        },
    );
}

/// The guide, 9.1.9.1. LDS has 1024 bytes.
#[test]
fn loads_to_lds_read_nothing_for_places_outside() {
    let text = "s_movk_i32 m0, 0x380\n global_load_lds_dword v[2:3], off\n s_waitcnt vmcnt(0)\n\
                v_lshlrev_b32 v1, 2, v0\n ds_read_b32 v4, v1 offset:896\n\
                s_movk_i32 m0, 8\n global_load_lds_dword v[6:7], off offset:-16\n\
                s_waitcnt vmcnt(0)\n ds_read_b32 v5, v1";
    let set = |bench: &mut Bench| {
        let data = bench.wave().scalar64(2);
        bench.ram.write(data, &7u32.to_le_bytes()).unwrap();
        let wave = &mut bench.group.waves[0];
        // The others' memory is not there.
        let base = |lane: usize| if lane < 32 { data } else { 0x1000 };
        wave.vgpr[2] = std::array::from_fn(|lane| base(lane) as u32);
        wave.vgpr[3] = std::array::from_fn(|lane| (base(lane) >> 32) as u32);
        let base = |lane: usize| if lane < 2 { 0x1000 } else { data + 16 };
        wave.vgpr[6] = std::array::from_fn(|lane| base(lane) as u32);
        wave.vgpr[7] = std::array::from_fn(|lane| (base(lane) >> 32) as u32);
    };
    on_all(Target::Gfx942, text, set, |bench| {
        let found = [0, 31, 32].map(|lane| bench.wave().vgpr[4][lane]);
        assert_eq!(found, [7, 7, 0]);
        let found = [0, 61, 62].map(|lane| bench.wave().vgpr[5][lane]);
        assert_eq!(found, [7, 7, 0]);
    });
}

/// LLVM: "offset applied to both global and LDS address" (`llvm.amdgcn.global.load.lds`).
#[test]
fn offsets_of_loads_to_lds_move_both_addresses_with_their_sign() {
    let set = |bench: &mut Bench| {
        let data = bench.wave().scalar64(2);
        let words: Vec<u8> = (1000..1256u32).flat_map(u32::to_le_bytes).collect();
        bench.ram.write(data, &words).unwrap();
        let from = |lane: usize| data + 64 + 4 * lane as u64;
        let wave = &mut bench.group.waves[0];
        wave.vgpr[2] = std::array::from_fn(|lane| from(lane) as u32);
        wave.vgpr[3] = std::array::from_fn(|lane| (from(lane) >> 32) as u32);
    };
    for target in [Target::Gfx90a, Target::Gfx942, Target::Gfx950] {
        let (name, lds) = match target {
            Target::Gfx90a => ("global_load_dword", "lds"),
            _ => ("global_load_lds_dword", ""),
        };
        let text = format!(
            "s_movk_i32 m0, 64\n {name} v[2:3], off offset:-16 {lds}\n\
             s_movk_i32 m0, 320\n {name} v[2:3], off offset:16 {lds}\n\
             s_waitcnt vmcnt(0)\n v_lshlrev_b32 v1, 2, v0\n ds_read_b32 v4, v1\n\
             ds_read_b32 v5, v1 offset:256\n ds_read_b32 v6, v1 offset:512"
        );
        on_all(target, &text, set, |bench| {
            // Dwords 12 to 75 are those from data + 48 on, 84 to 147 those from data + 80 on.
            let found: Vec<u32> = bench.wave().vgpr[4..7].concat();
            for (dword, found) in (0..).zip(found) {
                let wanted = match dword {
                    12..76 => 1012 + dword - 12,
                    84..148 => 1020 + dword - 84,
                    _ => 0,
                };
                assert_eq!(found, wanted, "{target:?}: dword {dword}");
            }
        });
    }
}

/// The guide: SCC is S0 < S1 for a minimum, S0 >= S1 for a maximum.
#[test]
fn scc_says_whether_the_first_one_is_chosen() {
    let cases = [
        ("s_min_i32", [0, 1, 0, 1]),
        ("s_min_u32", [0, 1, 0, 0]),
        ("s_max_i32", [1, 0, 1, 0]),
        ("s_max_u32", [1, 0, 1, 1]),
    ];
    for (name, wanted) in cases {
        let one = |(index, [a, b]): (usize, [i32; 2])| {
            let to = 16 + index;
            format!("s_mov_b32 s8, {a}\n {name} s9, s8, {b}\n s_cselect_b32 s{to}, 1, 0\n")
        };
        let operands = [[7, 7], [7, 8], [8, 7], [-1, 1]];
        let text: String = operands.into_iter().enumerate().map(one).collect();
        after(
            &text,
            |_| (),
            |wave| assert_eq!(wave.scalar[16..20], wanted, "{name}"),
        );
    }
}

/// The guide: the two lowest bits of base and offset are each ignored.
#[test]
fn scalar_addresses_are_sums_of_whole_dwords() {
    let text = "s_load_dword s4, s[2:3], 0x2\n s_load_dword s5, s[2:3], 0x6\n\
                s_movk_i32 s6, 3\n s_load_dword s6, s[2:3], s6\n s_waitcnt lgkmcnt(0)";
    let set = |bench: &mut Bench| {
        let data = bench.wave().scalar64(2);
        let words = [11u32, 22, 33].map(u32::to_le_bytes).concat();
        gcn::Memory::write(&mut bench.ram, data, &words).unwrap();
        bench.group.waves[0].set_scalar64(2, data + 2);
    };
    on_all(Target::Gfx942, text, set, |bench| {
        assert_eq!(bench.wave().scalar[4..7], [11, 22, 11]);
    });
}

#[test]
fn only_the_trap_handler_has_trap_temporaries() {
    const TTMP11: usize = sreg::TTMP0 + 11;
    let text = "s_mov_b32 s4, ttmp11\n s_mov_b64 s[6:7], ttmp[10:11]\n v_mov_b32 v1, ttmp11\n\
                s_add_u32 s8, ttmp11, 1\n v_add_f64 v[2:3], ttmp[10:11], 0\n\
                s_mov_b32 ttmp11, 5\n s_mov_b64 ttmp[12:13], -1\n\
                s_load_dword ttmp11, s[2:3], 0x0\n\
                v_readfirstlane_b32 ttmp11, v0\n v_cmp_eq_u32_e64 ttmp[12:13], v0, v0";
    for privileged in [false, true] {
        let set = |wave: &mut Wave| {
            wave.scalar[TTMP11] = 7;
            wave.scalar[TTMP11 + 1] = 8;
            if privileged {
                wave.status |= status::PRIV;
            }
        };
        after(text, set, |wave| {
            let seen = if privileged { 7 } else { 0 };
            let found = [4, 7].map(|register| wave.scalar[register]);
            assert_eq!((found, wave.scalar[8]), ([seen; 2], seen + 1));
            assert_eq!((wave.vgpr[1][5], wave.vgpr[3][5]), (seen, seen));
            let left = [TTMP11, TTMP11 + 1].map(|register| wave.scalar[register]);
            assert_eq!(left, if privileged { [0, u32::MAX] } else { [7, 8] });
        });
    }
}

/// LLVM (`fpModeMatchesGlobalFPAtomicMode`): memory's have a mode of their own, in which gfx90a's
/// f32 has no subnormal numbers; those in LDS have MODE's.
#[test]
fn atomics_keep_subnormal_numbers_or_not() {
    let text = "v_mov_b32 v1, 0\n v_mov_b32 v2, 0x10000\n v_mov_b32 v3, 0\n\
                global_atomic_add_f32 v1, v2, s[2:3]\n\
                v_mov_b32 v4, 1\n global_atomic_pk_add_f16 v1, v4, s[2:3] offset:4\n\
                ds_write_b32 v3, v3\n ds_add_f32 v3, v2\n ds_read_b32 v5, v3";
    for (target, kept) in [(Target::Gfx90a, 0), (Target::Gfx942, 0x1_0000)] {
        for (bits, in_lds) in [(mode::FP_DENORM, 0x1_0000), (0, 0)] {
            let set = |bench: &mut Bench| {
                let wave = &mut bench.group.waves[0];
                wave.mode = wave.mode & !mode::FP_DENORM | bits;
                wave.set_exec(1);
            };
            on_all(target, text, set, |bench| {
                let data = bench.wave().scalar64(2);
                let found: Vec<u32> = bench.ram.take(data, 2);
                assert_eq!(found, [kept, 1], "{target:?}");
                assert_eq!(bench.wave().vgpr[5][0], in_lds, "{target:?}");
            });
        }
    }
}

/// Memory behind PCIe.
struct Far<'a>(&'a mut machine::Ram, u32);

impl Memory for Far<'_> {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.0.fetch(address, bytes)
    }
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.0.read(address, bytes)
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.0.write(address, bytes)
    }
    fn update32(&mut self, at: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        self.0.update32(at, update)
    }
    fn update64(&mut self, at: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        self.0.update64(at, update)
    }
    fn goes_beyond_pcie(&mut self, _address: u64) -> Result<bool, Fault> {
        self.1 += 1;
        Ok(false)
    }
    fn realtime(&mut self) -> u64 {
        0
    }
}

/// Each with a lane: the operation, whether memory is asked for what PCIe has not, and what it
/// leaves of 2 with an operand of 1.
#[test]
fn atomics_that_pcie_has_not_are_asked_for_at_system_scope() {
    let one = 1f32.to_bits();
    for (target, text, asked, left) in [
        (Target::Gfx942, "global_atomic_add v1, v2, s[2:3] sc1", 0, 3),
        (
            Target::Gfx942,
            "global_atomic_swap v1, v2, s[2:3] sc1",
            0,
            1,
        ),
        (
            Target::Gfx942,
            "global_atomic_umin v1, v2, s[2:3] sc1",
            1,
            2,
        ),
        (Target::Gfx942, "global_atomic_umin v1, v2, s[2:3]", 0, 1),
        (
            Target::Gfx942,
            "global_atomic_add_f32 v1, v3, s[2:3] sc1",
            1,
            2,
        ),
        (
            Target::Gfx942,
            "global_atomic_add_f32 v4, v1, v3, s[2:3] sc0 sc1",
            1,
            2,
        ),
        (
            Target::Gfx942,
            "global_atomic_add_f32 v1, v3, s[2:3]",
            0,
            one,
        ),
        (Target::Gfx90a, "global_atomic_umin v1, v2, s[2:3]", 0, 1),
        (Target::Gfx90a, "global_atomic_add_f32 v1, v3, s[2:3]", 1, 2),
    ] {
        let mut bench = Bench::of(&Toolchain::of(target), &format!("{text}\ns_endpgm\n"));
        bench.code = CodeCache::of(target);
        let data = bench.wave().scalar64(2);
        bench.ram.write(data, &2u32.to_le_bytes()).unwrap();
        let wave = &mut bench.group.waves[0];
        wave.set_exec(1);
        for (register, value) in [(1, 0), (2, 1), (3, one), (4, 9)] {
            wave.vgpr[register] = [value; 64];
        }
        let mut far = Far(&mut bench.ram, 0);
        let outcome = bench.group.run(&mut far, &mut bench.code, 1000);
        assert_eq!(
            (outcome, far.1),
            (Outcome::Done, asked),
            "{target:?}: {text}"
        );
        let found: Vec<u32> = bench.ram.take(data, 1);
        assert_eq!(found, [left], "{target:?}: {text}");
        let old = if text.contains("sc0") { 0 } else { 9 };
        assert_eq!(bench.wave().vgpr[4][0], old, "{target:?}: {text}");
    }
}
