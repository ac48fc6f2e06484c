// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Context save and restore with the trap handler of the kernel source that the module is built
//! with.

#[path = "../../../tests/support/kernel_tree.rs"]
mod kernel_tree;

use super::aql::{self, map, rig_in, send, signal, value, BASE, QUEUE};
use super::runlist;
use crate::cp::cwsr::waves_in_stack;
use crate::cp::mqd::dw;
use crate::flat::Rig;
use crate::processor::runner::Mode;
use gcn::Target;
use kernel_tree::kernel_tree;

pub const CODE: u32 = 0x6_0000;
pub const DESCRIPTOR: u32 = 0x6_8000;
pub const KERNARG: u32 = 0x7_0000;
pub const OUT: u32 = 0x8_0000;
pub const HANDLER: u32 = 0xa_0000;
pub const HANDLER_MEMORY: u32 = 0xb_0000;
pub const AREA: u64 = 0xc_0000;
const AREA_BYTES: u32 = 0x3_0000;
pub const STACK_BYTES: u32 = 0x1000;
const GROUPS: u32 = 4;
const ITEMS: u32 = 128;

/// Puts values into VGPRs, accumulation VGPRs, SGPRs, VCC and LDS, waits for the dword at out +
/// 0x1000, and then stores for item i of group g: lds[i ^ 64] + acc + vgpr + sgpr + vcc.
const KERNEL: &[u32] = &[
    0xc006_0100,
    0,           // s_load_dwordx2 s[4:5], s[0:1], 0
    0x2602_00ff, // v_and_b32 v1, 0x3ff, v0
    0x3ff,
    0x1004_0287, // v_mul_u32_u24 v2, 7, v1
    0x6804_0402, // v_add_u32 v2, s2, v2
    0xd3d9_4003, // v_accvgpr_write_b32 a3, v2
    0x1800_0102,
    0x2406_0282, // v_lshlrev_b32 v3, 2, v1
    0xd81a_0000, // ds_write_b32 v3, v2
    0x0000_0203,
    0x9214_9102, // s_mul_i32 s20, s2, 17
    0x7e28_0302, // v_mov_b32 v20, v2
    0xbeea_00ff, // s_mov_b32 vcc_lo, 0x1234
    0x1234,
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xbf8a_0000, // s_barrier
    0x7e2a_0502, // v_readfirstlane_b32 s21, v2
    0xc003_0182, // wait: s_load_dword s6, s[4:5], 0x1000 glc
    0x1000,
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xbf07_8006, // s_cmp_lg_u32 s6, 0
    0xbf84_fffb, // s_cbranch_scc0 wait
    0xbf8a_0000, // s_barrier
    0x2a08_02c0, // v_xor_b32 v4, 64, v1
    0x2408_0882, // v_lshlrev_b32 v4, 2, v4
    0xd86c_0000, // ds_read_b32 v5, v4
    0x0500_0004,
    0xd3d8_4006, // v_accvgpr_read_b32 v6, a3
    0x1800_0103,
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0x680a_0d05, // v_add_u32 v5, v5, v6
    0x680a_2905, // v_add_u32 v5, v5, v20
    0x680a_0a14, // v_add_u32 v5, s20, v5
    0x680a_0a6a, // v_add_u32 v5, vcc_lo, v5
    0x8e07_8902, // s_lshl_b32 s7, s2, 9
    0x8004_0704, // s_add_u32 s4, s4, s7
    0x8205_8005, // s_addc_u32 s5, s5, 0
    0xdc70_8000, // global_store_dword v3, v5, s[4:5]
    0x0004_0503,
    0xbf81_0000, // s_endpgm
];

/// The words of cwsr_trap_gfx9_4_3_hex and its like in the kernel source.
fn handler(target: Target) -> Vec<u32> {
    let file = "drivers/gpu/drm/amd/amdkfd/cwsr_trap_handler.h";
    let text = std::fs::read_to_string(kernel_tree().join(file)).expect("handlers");
    let core = match target {
        Target::Gfx90a => "aldebaran",
        Target::Gfx942 => "gfx9_4_3",
        Target::Gfx950 => "gfx9_5_0",
    };
    let (_, after) = text
        .split_once(&format!("cwsr_trap_{core}_hex[] = {{"))
        .expect("the handler");
    let (words, _) = after.split_once("};").expect("its end");
    let word = |text: &str| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    words.split(',').filter_map(word).collect()
}

/// Process 3 with a handler, a save area and the kernel; its queue is not mapped.
pub fn rig(mode: Mode) -> Rig {
    rig_of(mode, Target::Gfx942)
}

fn rig_of(mode: Mode, target: Target) -> Rig {
    let handler = handler(target);
    assert!(handler.len() > 500, "{} words", handler.len());
    let rig = rig_in(mode);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    rig.flat.target.set(target).expect("nobody has set it");
    rig.write(BASE + u64::from(HANDLER), &handler);
    let set = |dword: usize, value: u32| rig.write(QUEUE.mqd + 4 * dword as u64, &[value]);
    set(dw::COMPUTE_PGM_RSRC2, 1 << 6);
    set(dw::CP_HQD_CTX_SAVE_BASE_ADDR_LO, AREA as u32);
    set(dw::CP_HQD_CTX_SAVE_SIZE, AREA_BYTES);
    set(dw::CP_HQD_CNTL_STACK_SIZE, STACK_BYTES);
    set(dw::CP_HQD_CNTL_STACK_OFFSET, STACK_BYTES);
    set(dw::CP_HQD_WG_STATE_OFFSET, STACK_BYTES);
    rig.write(BASE + u64::from(CODE), KERNEL);
    let mut descriptor = [0; 16];
    descriptor[4] = CODE.wrapping_sub(DESCRIPTOR);
    descriptor[5] = u32::MAX;
    descriptor[11] = 5; // 24 architectural VGPRs
    descriptor[12] = 0x00af_0000 | 3; // of 32
    descriptor[13] = 2 << 1 | 1 << 7;
    descriptor[14] = 1 << 3;
    rig.write(BASE + u64::from(DESCRIPTOR), &descriptor);
    rig.write64(BASE + u64::from(KERNARG), OUT.into());
    rig
}

/// Maps process 3's queue, with the handler.
pub fn map_with_handler(rig: &Rig) {
    let mut list = runlist::process(3, &[]);
    list[6] = HANDLER >> 8;
    list[8] = HANDLER_MEMORY >> 8;
    // TRAP_EN of SPI_GDBG_PER_VMID_CNTL: trap temporaries have what debuggers want.
    list[14] = 1 << 3;
    list.extend(aql::map_packet());
    runlist::run(rig, &list);
}

pub fn start(rig: &Rig) -> u32 {
    let done = signal(rig, 0, false);
    let mut packet = [0; 16];
    packet[0] = 2 | 1 << 8 | 2 << 9 | 2 << 11 | 1 << 16;
    packet[1] = 1 << 16 | ITEMS;
    packet[2] = 1;
    packet[3..6].copy_from_slice(&[ITEMS * GROUPS, 1, 1]);
    packet[7] = 4 * ITEMS;
    packet[8] = DESCRIPTOR;
    packet[10] = KERNARG;
    packet[14] = done;
    send(rig, packet);
    done
}

fn out(rig: &Rig, group: u32, item: u32) -> u32 {
    rig.read(BASE + u64::from(OUT + 4 * (group * ITEMS + item)))
}

fn expected(group: u32, item: u32) -> u32 {
    let own = 7 * item + group;
    7 * (item ^ 64) + group + 2 * own + 17 * group + 0x1234
}

fn assert_results(rig: &Rig) {
    for group in 0..GROUPS {
        for item in 0..ITEMS {
            assert_eq!(
                out(rig, group, item),
                expected(group, item),
                "{group}:{item}"
            );
        }
    }
}

fn let_go(rig: &Rig, done: u32) {
    rig.write(BASE + u64::from(OUT) + 0x1000, &[1]);
    rig.cp.doorbell(u64::from(QUEUE.doorbell) * 4, 0, 8);
    rig.wait("the kernel ends", |rig| value(rig, done) == 0);
}

/// Unmaps once all waves have started.
pub fn preempt(rig: &Rig) {
    rig.wait("all waves run", |rig| {
        rig.stats.done("waves launched") == u64::from(2 * GROUPS)
    });
    assert!(runlist::unmap(rig, 2, 0, 0));
}

pub fn mqd(rig: &Rig, dword: usize) -> u32 {
    rig.read(QUEUE.mqd + 4 * dword as u64)
}

#[test]
fn waves_are_saved_by_the_drivers_handler_and_come_back() {
    for mode in [Mode::Sync, Mode::Threads(2)] {
        let rig = rig(mode);
        map_with_handler(&rig);
        let done = start(&rig);
        for round in 1..=3 {
            preempt(&rig);
            assert_eq!(rig.stats.done("waves saved"), round * 8);
            map_with_handler(&rig);
            rig.wait("the waves are back", |rig| {
                rig.stats.done("waves restored") == round * 8
            });
            assert_eq!(value(&rig, done), 1);
        }
        let_go(&rig, done);
        assert_results(&rig);
        assert_eq!(rig.stats.all(), []);
        // Nothing is left in the area.
        assert!(runlist::unmap(&rig, 2, 0, 0));
        assert_eq!(mqd(&rig, dw::CP_HQD_CNTL_STACK_OFFSET), STACK_BYTES);
        assert_eq!(mqd(&rig, dw::CP_HQD_WG_STATE_OFFSET), STACK_BYTES);
    }
}

/// A group that is back must not be saved over one that is not: their places change.
#[test]
fn waves_may_be_preempted_while_they_come_back() {
    let rig = rig(Mode::Threads(2));
    map_with_handler(&rig);
    let done = start(&rig);
    preempt(&rig);
    for round in 1..200 {
        map_with_handler(&rig);
        rig.wait("the waves are launched", |rig| {
            rig.stats.done("waves restored") == round * 8
        });
        std::thread::sleep(std::time::Duration::from_micros(round % 20 * 10));
        assert!(runlist::unmap(&rig, 2, 0, 0));
        assert_eq!(rig.stats.all(), [], "round {round}");
        assert_eq!(rig.stats.done("waves saved"), (round + 1) * 8);
    }
    map_with_handler(&rig);
    let_go(&rig, done);
    assert_results(&rig);
    assert_eq!(rig.stats.all(), []);
}

#[test]
fn the_save_area_holds_registers_and_lds_where_debuggers_look() {
    [Target::Gfx90a, Target::Gfx942, Target::Gfx950]
        .into_iter()
        .for_each(save_and_restore);
}

fn save_and_restore(target: Target) {
    let granule = target.lds_granule();
    let rig = rig_of(Mode::Threads(2), target);
    map_with_handler(&rig);
    let done = start(&rig);
    preempt(&rig);
    let offset = mqd(&rig, dw::CP_HQD_CNTL_STACK_OFFSET);
    let end = mqd(&rig, dw::CP_HQD_WG_STATE_OFFSET);
    let words: Vec<u32> = (offset / 4..STACK_BYTES / 4)
        .map(|at| rig.read(QUEUE.mqd + 0x1000 + 4 * u64::from(at)))
        .collect();
    let waves = waves_in_stack(&words, end.into(), granule);
    assert_eq!(waves.len(), 8);
    // 32 VGPRs, 112 SGPRs, hardware registers and TTMPs; the first wave of a group has the LDS; a
    // gap after each.
    let bytes = |first: bool| 32 * 256 + 448 + 128 + u64::from(first) * u64::from(granule) + 64;
    let total: u64 = waves.iter().map(|(_, first)| bytes(*first)).sum();
    assert_eq!(u64::from(end - STACK_BYTES), total);
    for (at, first) in &waves {
        let record = BASE + AREA + at;
        let hardware = record + 32 * 256 + 448;
        let (group, number) = (
            rig.read(hardware + 64 + 4 * 8),
            rig.read(hardware + 64 + 4 * 11),
        );
        assert!(
            group < GROUPS && number & 0x3f == u32::from(!first),
            "{group} {number:#x}"
        );
        let item = 64 * u32::from(!first) + 5;
        let own = 7 * item + group;
        assert_eq!(rig.read(record + 20 * 256 + 4 * 5), own, "v20 of lane 5");
        assert_eq!(
            rig.read(record + (24 + 3) * 256 + 4 * 5),
            own,
            "a3 of lane 5"
        );
        assert_eq!(rig.read(record + 32 * 256 + 4 * 20), 17 * group, "s20");
        assert_eq!(rig.read(record + 32 * 256 + 4 * 106), 0x1234, "VCC");
        let pc = rig.read(hardware + 4);
        assert!(
            (CODE..CODE + 4 * KERNEL.len() as u32).contains(&pc),
            "{pc:#x}"
        );
        if *first {
            assert_eq!(rig.read(hardware + 128 + 4 * 100), 700 + group, "LDS");
        }
    }
    // What comes back is what lies there: a debugger may have changed it.
    let (at, first) = waves[0];
    let record = BASE + AREA + at;
    let group = rig.read(record + 32 * 256 + 448 + 64 + 4 * 8);
    rig.write(record + 20 * 256 + 4 * 9, &[1_000_000]);
    map_with_handler(&rig);
    let_go(&rig, done);
    let item = 64 * u32::from(!first) + 9;
    let own = 7 * item + group;
    assert_eq!(
        out(&rig, group, item),
        expected(group, item) - own + 1_000_000
    );
}

#[test]
fn a_corrupt_control_stack_hangs_the_queue_only() {
    let rig = rig(Mode::Threads(2));
    map_with_handler(&rig);
    let done = start(&rig);
    preempt(&rig);
    let offset = u64::from(mqd(&rig, dw::CP_HQD_CNTL_STACK_OFFSET));
    rig.write(QUEUE.mqd + 0x1000 + offset + 8, &[0, 0, 0]);
    map_with_handler(&rig);
    rig.wait("the queue hangs", |rig| {
        rig.stats.get("context save or restore that failed") == 1
    });
    assert_eq!(value(&rig, done), 1);
    assert!(runlist::unmap(&rig, 2, 1, 0), "it can be reset");
    map(&rig);
    let_go(&rig, done);
    assert_results(&rig);
}

#[test]
fn a_save_area_that_is_not_there_faults() {
    let rig = rig(Mode::Threads(2));
    rig.write(
        QUEUE.mqd + 4 * dw::CP_HQD_CTX_SAVE_BASE_ADDR_LO as u64,
        &[0x7f00_0000],
    );
    map_with_handler(&rig);
    start(&rig);
    preempt(&rig);
    let faults = rig.faults();
    assert!(!faults.is_empty() && faults[0].1 == 3, "{faults:?}");
    assert_eq!(rig.stats.done("waves saved"), 0);
}
