// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Pieces of assembly on single waves and small work-groups: what compilers seldom write, and every
//! way to stop.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/toolchain.rs"]
mod toolchain;

use bench::{after, Bench};
use gcn::wave::{mode, sreg, status};
use gcn::{CodeCache, Fault, GwsOp, GwsRequest, Outcome, Wave, WaveState};
use machine::BASE;
use toolchain::Toolchain;

#[test]
fn dpp_shifts_rows_and_keeps_what_it_may_not_write() {
    let text = "v_mov_b32 v1, 77\n v_mov_b32_dpp v1, v0 row_shr:1 row_mask:0xf bank_mask:0xf\n\
                v_mov_b32_dpp v2, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0\n\
                v_mov_b32 v3, 5\n\
                v_add_u32_dpp v3, v0, v0 quad_perm:[3,2,1,0] row_mask:0x2 bank_mask:0x1\n\
                v_mov_b32_dpp v4, v0 row_bcast:15 row_mask:0xa bank_mask:0xf";
    after(
        "dpp",
        text,
        |_| {},
        |wave| {
            for lane in 0..64u32 {
                let at = lane as usize;
                let edge = lane % 16 == 0;
                assert_eq!(wave.vgpr[1][at], if edge { 77 } else { lane - 1 });
                assert_eq!(wave.vgpr[2][at], if edge { 0 } else { lane - 1 });
                let added = (16..20).contains(&lane);
                assert_eq!(wave.vgpr[3][at], if added { (lane ^ 3) + lane } else { 5 });
                let rows = [0, 15, 0, 47];
                assert_eq!(wave.vgpr[4][at], rows[at / 16]);
            }
        },
    );
}

#[test]
fn sdwa_takes_and_places_parts() {
    let text = "v_mov_b32 v1, 0x80ff1234\n v_mov_b32 v2, 0x11111111\n\
                v_add_u32_sdwa v2, sext(v1), v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE \
                src0_sel:BYTE_3 src1_sel:BYTE_0\n\
                v_cvt_f32_ubyte0_sdwa v3, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2\n\
                v_cmp_eq_u32_sdwa s[4:5], v1, v0 src0_sel:BYTE_1 src1_sel:DWORD";
    after(
        "sdwa",
        text,
        |_| {},
        |wave| {
            assert_eq!(wave.vgpr[2][3], 0xff83_1111);
            assert_eq!(f32::from_bits(wave.vgpr[3][0]), 255.0);
            assert_eq!(wave.scalar64(4), 1 << 0x12);
        },
    );
}

#[test]
fn lanes_exchange_values() {
    let text = "v_lshlrev_b32 v1, 2, v0\n v_xor_b32 v1, 0xfc, v1\n ds_bpermute_b32 v2, v1, v0\n\
                ds_permute_b32 v3, v1, v0\n ds_swizzle_b32 v4, v0 offset:swizzle(SWAP,16)\n\
                ds_swizzle_b32 v5, v0 offset:swizzle(QUAD_PERM,1,2,3,0)\n\
                v_readlane_b32 s4, v0, 37\n v_writelane_b32 v6, s4, 2\n\
                v_readfirstlane_b32 s5, v0\n\
                v_mbcnt_lo_u32_b32 v7, -1, 0\n v_mbcnt_hi_u32_b32 v7, -1, v7";
    after(
        "lanes",
        text,
        |_| {},
        |wave| {
            for lane in 0..64u32 {
                let at = lane as usize;
                assert_eq!(wave.vgpr[2][at], 63 - lane);
                assert_eq!(wave.vgpr[3][at], 63 - lane);
                assert_eq!(wave.vgpr[4][at], lane ^ 16);
                assert_eq!(wave.vgpr[5][at], lane & !3 | (lane + 1) & 3);
                assert_eq!(wave.vgpr[6][at], if lane == 2 { 37 } else { 0 });
                assert_eq!(wave.vgpr[7][at], lane);
            }
            assert_eq!(wave.scalar[5], 0);
        },
    );
}

#[test]
fn carries_and_masks_are_for_active_lanes_only() {
    let text = "s_mov_b64 exec, 0xff\n v_mov_b32 v1, -1\n v_add_co_u32 v2, vcc, v1, v0\n\
                v_mov_b32 v3, 10\n v_addc_co_u32 v3, vcc, v3, v3, vcc\n\
                v_cmp_lt_u32 s[4:5], v0, 4\n\
                v_cmpx_gt_u32 vcc, 6, v0\n v_mov_b32 v4, 9";
    after(
        "carries",
        text,
        |_| {},
        |wave| {
            assert_eq!(wave.vgpr[2][5], 4);
            assert_eq!(
                (wave.vgpr[3][0], wave.vgpr[3][1], wave.vgpr[3][8]),
                (20, 21, 0)
            );
            assert_eq!(wave.scalar64(4), 0xf);
            assert_eq!((wave.exec(), wave.vcc()), (0x3f, 0x3f));
            assert_eq!((wave.vgpr[4][5], wave.vgpr[4][6]), (9, 0));
        },
    );
}

#[test]
fn mode_rounds_and_flushes() {
    let text = "v_add_f32 v1, 1.0, v8\n v_cvt_f16_f32 v2, v9\n v_mul_f32 v3, 0.5, v10\n\
                s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5\n v_add_f32 v4, 1.0, v8\n\
                v_cvt_f16_f32 v5, v9\n s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n\
                v_mul_f32 v6, 0.5, v10\n s_getreg_b32 s4, hwreg(HW_REG_MODE, 0, 8)";
    let set = |wave: &mut Wave| {
        wave.vgpr[8] = [1e-20f32.to_bits(); 64];
        wave.vgpr[9] = [2049f32.to_bits(); 64];
        wave.vgpr[10] = [f32::MIN_POSITIVE.to_bits(); 64];
    };
    after("mode", text, set, |wave| {
        assert_eq!(wave.vgpr[1][0], 1f32.to_bits());
        assert_eq!(wave.vgpr[2][0], 0x6800); // 2048
        assert_eq!(wave.vgpr[3][0], 0x0040_0000);
        assert_eq!(wave.vgpr[4][0], 1f32.to_bits() + 1);
        assert_eq!(wave.vgpr[5][0], 0x6801); // 2050
        assert_eq!(wave.vgpr[6][0], 0);
        assert_eq!(wave.scalar[4], 0xc5);
    });
}

#[test]
fn vgprs_are_indexed_by_m0() {
    let text = "v_mov_b32 v5, 55\n v_mov_b32 v6, 66\n s_mov_b32 s4, 2\n\
                s_set_gpr_idx_on s4, gpr_idx(SRC0)\n v_mov_b32 v1, v4\n s_set_gpr_idx_off\n\
                s_set_gpr_idx_on s4, gpr_idx(DST)\n v_mov_b32 v8, v5\n s_set_gpr_idx_off\n\
                v_mov_b32 v2, v5";
    after(
        "index",
        text,
        |_| {},
        |wave| {
            assert_eq!(
                (wave.vgpr[1][0], wave.vgpr[10][0], wave.vgpr[2][0]),
                (66, 55, 55)
            );
            assert_eq!(wave.mode & mode::GPR_IDX_EN, 0);
        },
    );
}

/// What lies outside of a file is its first registers to read, and nothing to write.
#[test]
fn an_index_may_lead_out_of_the_registers() {
    // A product of matrices adds to its result, which is out of the 16 accumulators, and one takes
    // its addend from there. The source that is not indexed is v[0:1].
    let text = "s_mov_b32 s4, 200\n v_accvgpr_write_b32 a0, 7\n\
                s_set_gpr_idx_on s4, gpr_idx(DST)\n\
                v_smfmac_f32_16x16x32_bf16 a[8:11], v[0:1], v[2:5], v30\n\
                s_set_gpr_idx_off\n s_set_gpr_idx_on s4, gpr_idx(SRC2)\n\
                v_mfma_f32_32x32x8_f16 a[0:15], v[6:7], v[6:7], a[0:15]\n s_set_gpr_idx_off\n\
                v_accvgpr_read_b32 v1, a0";
    after(
        "out of the registers",
        text,
        |_| {},
        |wave| {
            assert_eq!(wave.acc[8][0], 0);
            assert_eq!(wave.vgpr[1][5], 7);
        },
    );
}

#[test]
fn accumulators_are_a_file_of_their_own() {
    let text =
        "v_accvgpr_write_b32 a3, v0\n v_accvgpr_mov_b32 a4, a3\n v_accvgpr_read_b32 v1, a4\n\
                global_store_dword v2, a4, s[2:3]\n global_load_dword a5, v2, s[2:3]";
    let set = |wave: &mut Wave| wave.vgpr[2] = std::array::from_fn(|lane| 4 * lane as u32);
    after("accumulators", text, set, |wave| {
        assert_eq!(wave.vgpr[1], wave.vgpr[0]);
        assert_eq!(wave.acc[5], wave.vgpr[0]);
    });
}

#[test]
fn a_trap_handler_runs_and_returns() {
    let handler = "s_add_u32 ttmp0, ttmp0, 4\n s_addc_u32 ttmp1, ttmp1, 0\n\
                s_getreg_b32 s8, hwreg(HW_REG_STATUS)\n\
                   s_bfe_u32 s9, ttmp1, 0x80010\n s_and_b32 ttmp1, ttmp1, 0xffff\n\
                s_rfe_b64 ttmp[0:1]";
    let mut bench = Bench::new("s_mov_b32 s4, 1\n s_trap 7\n s_mov_b32 s5, 2\n s_endpgm");
    let toolchain = Toolchain::new();
    let tba = bench.ram.place(&toolchain.assemble(handler));
    bench.group.waves[0].tba = tba;
    bench.group.waves[0].status |= status::TRAP_EN;
    assert_eq!(bench.run(), Outcome::Done);
    let wave = bench.wave();
    assert_eq!((wave.scalar[4], wave.scalar[5], wave.scalar[9]), (1, 2, 7));
    assert_ne!(wave.scalar[8] & status::PRIV, 0);
    assert_eq!(wave.status & status::PRIV, 0);
}

#[test]
fn a_trap_without_handler_and_a_message_come_to_the_caller() {
    let text = "s_trap 2\n s_mov_b32 m0, 0x42\n s_sendmsg sendmsg(MSG_INTERRUPT)\n\
                s_mov_b32 s4, 1\n s_endpgm";
    let mut bench = Bench::new(text);
    let pc = bench.wave().pc;
    assert_eq!(bench.run(), Outcome::Trap { wave: 0, id: 2, pc });
    assert_eq!(
        bench.run(),
        Outcome::Message {
            wave: 0,
            message: 1,
            m0: 0x42
        }
    );
    assert_eq!(bench.wave().scalar[4], 0);
    assert_eq!(bench.run(), Outcome::Done);
    assert_eq!(bench.wave().scalar[4], 1);
}

#[test]
fn a_fault_names_address_and_pc_and_can_be_retried() {
    let text =
        "s_nop 0\n global_load_dword v1, v2, s[4:5] offset:8\n v_add_u32 v1, 1, v1\n s_endpgm";
    let mut bench = Bench::new(text);
    let pc = bench.wave().pc + 4;
    bench.group.waves[0].set_scalar64(4, 0x1000);
    let fault = Fault {
        address: 0x1008,
        access: gcn::Access::Read,
    };
    assert_eq!(bench.run(), Outcome::Fault { wave: 0, pc, fault });
    assert_eq!(bench.run(), Outcome::Fault { wave: 0, pc, fault });
    let data = bench.ram.place(&[0u32, 0, 41]);
    bench.group.waves[0].set_scalar64(4, data);
    assert_eq!(bench.run(), Outcome::Done);
    assert_eq!(bench.wave().vgpr[1], [42; 64]);
}

#[test]
fn a_barrier_waits_for_all_waves() {
    let text = "v_mov_b32 v1, 123\n v_mov_b32 v2, 0\n ds_write_b32 v2, v1\n s_barrier\n \
                v_mov_b32 v2, 0\n ds_read_b32 v3, v2\n s_endpgm";
    let mut bench = Bench::new(text);
    // The first wave begins at the barrier and must not read before the second one has written.
    let writer = bench.group.waves[0].clone();
    bench.group.waves.push(writer);
    bench.group.waves[0].pc += 4 * 5;
    assert_eq!(bench.run(), Outcome::Done);
    assert_eq!(bench.group.waves[0].vgpr[3], [123; 64]);
    assert_eq!(bench.group.waves[1].vgpr[3], [123; 64]);
}

#[test]
fn short_turns_starve_no_wave() {
    let mut bench = Bench::new("spin: s_nop 0\n s_branch spin\n s_endpgm");
    let (spinning, last) = (bench.group.waves[0].clone(), 1);
    bench.group.waves.push(spinning);
    bench.group.waves[last].pc += 4 * 2;
    for _ in 0..4 {
        let outcome = bench.group.run(&mut bench.ram, &mut bench.code, 8);
        assert_eq!(outcome, Outcome::Budget);
    }
    assert_eq!(bench.group.waves[last].state, WaveState::Ended);
}

#[test]
fn gws_requests_wait_for_the_caller() {
    let text = "v_mov_b32 v2, 4\n s_mov_b32 m0, 0x20000\n ds_gws_init v2 offset:1 gds\n\
                ds_gws_sema_p offset:1 gds\n s_endpgm";
    let mut bench = Bench::new(text);
    let request = GwsRequest {
        op: GwsOp::Init,
        resource: 3,
        value: 4,
    };
    assert_eq!(bench.run(), Outcome::Gws { wave: 0, request });
    assert_eq!(bench.run(), Outcome::Gws { wave: 0, request });
    assert!(bench.group.retire(0, &mut bench.ram, &mut bench.code));
    let Outcome::Gws { request, .. } = bench.run() else {
        panic!("a second request")
    };
    assert_eq!((request.op, request.resource), (GwsOp::SemaP, 3));
    assert!(bench.group.retire(0, &mut bench.ram, &mut bench.code));
    assert_eq!(bench.run(), Outcome::Done);
}

#[test]
fn a_halted_wave_stays_until_it_is_let_go() {
    let mut bench = Bench::new("s_sethalt 1\n s_mov_b32 s4, 1\n s_endpgm");
    assert_eq!(bench.run(), Outcome::Halted);
    assert_eq!(bench.wave().scalar[4], 0);
    bench.group.waves[0].status &= !status::HALT;
    assert_eq!(bench.run(), Outcome::Done);
    assert_eq!(bench.wave().scalar[4], 1);
}

#[test]
fn budgets_cut_anywhere_and_kept_state_goes_on_elsewhere() {
    let text =
        "s_mov_b32 s4, 0\n s_add_u32 s4, s4, 3\n v_add_u32 v1, s4, v1\n s_cmp_lt_u32 s4, 300\n\
                s_cbranch_scc1 65531\n s_endpgm";
    let mut bench = Bench::new(text);
    let mut whole = bench.group.clone();
    assert_eq!(
        whole.run(&mut bench.ram, &mut bench.code, 100_000),
        Outcome::Done
    );
    let mut stops = 0;
    while bench.group.run(&mut bench.ram, &mut CodeCache::new(), 7) == Outcome::Budget {
        // What a save and a restore would do.
        bench.group = bench.group.clone();
        stops += 1;
        assert!(stops < 1000);
    }
    assert!(stops > 20);
    assert_eq!(bench.group.waves, whole.waves);
    assert_eq!(
        whole.waves[0].vgpr[1][0],
        (1..=100).map(|n| 3 * n).sum::<u32>()
    );
}

#[test]
fn what_cannot_be_executed_says_so() {
    let text = "v_mfma_f32_32x32x1_2b_f32 a[0:31], v0, v1, a[0:31]\n\
                v_screen_partition_4se_b32 v1, v0\n s_endpgm";
    let mut bench = Bench::new(text);
    let Outcome::Error { error, .. } = bench.run() else {
        panic!("16 accumulators are too few")
    };
    assert!(
        error.to_string().contains("16 accumulation VGPRs"),
        "{error}"
    );
    bench.group.waves[0].acc = gcn::wave::Rows::new(32);
    let Outcome::Error { error, .. } = bench.run() else {
        panic!("what the guide does not describe is not interpreted")
    };
    assert!(
        error
            .to_string()
            .contains("not implemented: v_screen_partition_4se_b32"),
        "{error}"
    );
    let unknown = bench.ram.place(&[0xffff_ffffu32, 0]);
    bench.group.waves[0].pc = unknown;
    let Outcome::Error { error, pc, .. } = bench.run() else {
        panic!("no such instruction")
    };
    assert_eq!(pc, unknown);
    assert!(error.to_string().contains("ffffffff"), "{error}");
    bench.group.waves[0].pc = BASE - 4;
    let Outcome::Fault { fault, .. } = bench.run() else {
        panic!("nothing there")
    };
    assert_eq!(fault.access, gcn::Access::Fetch);
}

#[test]
fn code_is_read_again_after_invalidation() {
    let mut bench = Bench::new("s_mov_b32 s4, 1\n s_endpgm");
    let entry = bench.wave().pc;
    assert_eq!(bench.run(), Outcome::Done);
    // s_mov_b32 s4, 2
    gcn::Memory::write(&mut bench.ram, entry, &0xbe84_0082u32.to_le_bytes()).expect("it is there");
    let mut restart = |invalidate: bool| {
        if invalidate {
            bench.code.invalidate();
        }
        bench.group.waves[0].pc = entry;
        bench.group.waves[0].state = WaveState::Ready;
        bench.group.run(&mut bench.ram, &mut bench.code, 100);
        bench.group.waves[0].scalar[4]
    };
    assert_eq!(restart(false), 1);
    assert_eq!(restart(true), 2);
}

#[test]
fn memory_operations_beyond_the_compilers_common_ones() {
    let text = "v_lshlrev_b32 v1, 4, v0\n v_mov_b32 v4, v0\n v_mov_b32 v5, 1\n\
                v_mov_b32 v6, 2\n v_mov_b32 v7, 3\n\
                global_store_dwordx4 v1, v[4:7], s[2:3]\n\
                global_load_dwordx3 v[8:10], v1, s[2:3] offset:4\n\
                v_mov_b32 v11, -1\n global_load_short_d16_hi v11, v1, s[2:3]\n\
                v_mov_b32 v16, -1\n global_load_sbyte_d16 v16, v1, s[2:3]\n\
                v_mov_b32 v17, -1\n v_mov_b32 v18, 0\n ds_read_u16_d16_hi v17, v18\n\
                v_mov_b32 v12, 7\n global_atomic_add v13, v1, v12, s[2:3] sc0\n\
                global_atomic_inc v1, v12, s[2:3] offset:4\n\
                s_load_dwordx4 s[8:11], s[2:3], 0x10\n s_mov_b32 s12, 0x42\n\
                s_store_dword s12, s[2:3], 0x40c\n\
                s_dcache_wb\n s_memrealtime s[14:15]\n v_mov_b32 v14, 0\n\
                global_load_dword v15, v14, s[2:3] offset:1036";
    after(
        "memory",
        text,
        |_| {},
        |wave| {
            assert_eq!(
                (wave.vgpr[8][9], wave.vgpr[9][9], wave.vgpr[10][9]),
                (1, 2, 3)
            );
            // The other half does not stay.
            assert_eq!(wave.vgpr[11][9], 0x0009_0000);
            assert_eq!((wave.vgpr[16][9], wave.vgpr[17][9]), (9, 0));
            assert_eq!(wave.vgpr[13][9], 9);
            assert_eq!(wave.scalar[8..12], [8, 2, 2, 3]);
            assert_eq!(wave.vgpr[15], [0x42; 64]);
            assert_ne!(wave.scalar64(14), 0);
            assert_eq!(wave.scalar[sreg::M0], 0);
        },
    );
}

#[test]
fn a_buffer_descriptor_bounds_its_accesses() {
    let text =
        "s_mov_b32 s8, s2\n s_mov_b32 s9, s3\n s_mov_b32 s10, 128\n s_mov_b32 s11, 0x27000\n\
                v_lshlrev_b32 v1, 2, v0\n v_mov_b32 v2, 9\n\
                buffer_store_dword v2, v1, s[8:11], 0 offen\n\
                v_mov_b32 v3, 1\n buffer_load_dword v3, v1, s[8:11], 0 offen\n\
                global_load_dword v4, v1, s[2:3]";
    after(
        "buffer",
        text,
        |_| {},
        |wave| {
            assert_eq!((wave.vgpr[3][31], wave.vgpr[3][32]), (9, 0));
            assert_eq!((wave.vgpr[4][31], wave.vgpr[4][32]), (9, 0));
        },
    );
}
