// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Kernels through PM4 and AQL: launching, faults, endless loops, preemption with live waves.

use super::aql::{self, map, read_index, rig_in, send, signal, value, BASE};
use super::runlist;
use crate::cp::packet::op;
use crate::flat::{pkt, Rig};
use crate::processor::runner::Mode;

pub const CODE: u32 = 0x6_0000;
const DESCRIPTOR: u32 = 0x6_8000;
pub const KERNARG: u32 = 0x7_0000;
pub const OUT: u32 = 0x8_0000;

const S_ENDPGM: u32 = 0xbf81_0000;
/// Stores 42 at (pointer in kernarg) + 4 * work-item.
pub const STORE_42: &[u32] = &[
    0xc006_0080,
    0,           // s_load_dwordx2 s[2:3], s[0:1], 0
    0x2400_0082, // v_lshlrev_b32 v0, 2, v0
    0x7e02_02aa, // v_mov_b32 v1, 42
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xdc70_8000,
    0x0002_0100, // global_store_dword v0, v1, s[2:3]
    0xbf8c_0000, // s_waitcnt 0
    S_ENDPGM,
];
/// Stores bits 8 to 14 of HW_ID (CU_ID and SE_ID) at out + 4 * group.
const STORE_CU: &[u32] = &[
    0xc006_0100,
    0,           // s_load_dwordx2 s[4:5], s[0:1], 0
    0xb886_3204, // s_getreg_b32 s6, hwreg(HW_REG_HW_ID, 8, 7)
    0x7e02_0206, // v_mov_b32 v1, s6
    0x8e07_8202, // s_lshl_b32 s7, s2, 2
    0x7e00_0207, // v_mov_b32 v0, s7
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xdc70_8000, // global_store_dword v0, v1, s[4:5]
    0x0004_0100,
    S_ENDPGM,
];
/// Loops until the dword at (pointer in kernarg) is not 0, then stores 42 as above.
pub const WAIT_THEN_STORE: &[u32] = &[
    0xc006_0080,
    0,           // s_load_dwordx2 s[2:3], s[0:1], 0
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xc003_0101,
    0x1000,      // s_load_dword s4, s[2:3], 0x1000 glc
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xbf07_8004, // s_cmp_lg_u32 s4, 0
    0xbf84_fffb, // s_cbranch_scc0 back to the load
    0x2400_0082, // v_lshlrev_b32 v0, 2, v0
    0x7e02_02aa, // v_mov_b32 v1, 42
    0xdc70_8000,
    0x0002_0100, // global_store_dword v0, v1, s[2:3]
    S_ENDPGM,
];
const ENDLESS: &[u32] = &[0xbf82_ffff];

/// Puts a kernel and its descriptor into process 3: kernarg pointer in s[0:1], work-group id x in
/// s2.
pub fn load(rig: &Rig, code: &[u32]) {
    rig.write(BASE + u64::from(CODE), code);
    let mut descriptor = [0; 16];
    descriptor[4] = CODE.wrapping_sub(DESCRIPTOR);
    descriptor[5] = u32::MAX;
    descriptor[12] = 0x00af_0000 | 1; // 16 VGPRs, default float mode
    descriptor[13] = 2 << 1;
    descriptor[14] = 1 << 3;
    rig.write(BASE + u64::from(DESCRIPTOR), &descriptor);
    rig.write64(BASE + u64::from(KERNARG), OUT.into());
}

pub fn dispatch(groups: u32, done: u32) -> [u32; 16] {
    let mut packet = [0; 16];
    packet[0] = 2 | 1 << 8 | 2 << 9 | 2 << 11 | 1 << 16;
    packet[1] = 1 << 16 | 64;
    packet[2] = 1;
    packet[3..6].copy_from_slice(&[64 * groups, 1, 1]);
    packet[8] = DESCRIPTOR;
    packet[10] = KERNARG;
    packet[14] = done;
    packet
}

pub fn out(rig: &Rig, item: u64) -> u32 {
    rig.read(BASE + u64::from(OUT) + 4 * item)
}

#[test]
fn an_aql_dispatch_stores_and_completes() {
    let rig = aql::rig();
    load(&rig, STORE_42);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(5, done));
    assert_eq!(value(&rig, done), 0);
    assert_eq!([out(&rig, 0), out(&rig, 63), out(&rig, 64)], [42, 42, 0]);
    assert_eq!(rig.stats.all(), []);
}

#[test]
fn a_pm4_dispatch_runs_before_the_fence_after_it() {
    let rig = aql::rig();
    load(&rig, STORE_42);
    rig.write_mqd(runlist::setup(3, 1));
    runlist::run(&rig, &runlist::process(3, &[1]));
    let set = |offset: u32, values: &[u32]| {
        let mut packet = vec![
            pkt(op::SET_SH_REG.into(), 1 + values.len() as u32),
            0x200 + offset,
        ];
        packet.extend(values);
        packet
    };
    let packets = [
        set(0x0c, &[CODE >> 8, 0]),
        set(0x12, &[0x00af_0001, 2 << 1]),
        set(0x07, &[64, 1, 1]),
        set(0x40, &[KERNARG, 0]),
        vec![pkt(op::DISPATCH_DIRECT.into(), 4), 1, 1, 1, 1 | 1 << 2],
        vec![
            pkt(op::RELEASE_MEM.into(), 7),
            0x514,
            1 << 29,
            0x4000,
            0,
            7,
            0,
            0,
        ],
    ];
    runlist::submit(&rig, 3, 1, &packets.concat());
    assert_eq!(
        [out(&rig, 0), out(&rig, 63), rig.read(BASE + 0x4000)],
        [42, 42, 7]
    );
}

#[test]
fn a_faulting_kernel_stops_its_queue_only() {
    let rig = aql::rig();
    load(&rig, STORE_42);
    rig.write64(BASE + u64::from(KERNARG), 0x7f00_0000);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(1, done));
    let faults = rig.faults();
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].1, faults[0].2.address), (3, 0x7f00_0000));
    assert_eq!((value(&rig, done), read_index(&rig)), (1, 0));
    // It can still be taken off, and reset: what hung is gone with its waves.
    assert!(runlist::unmap(&rig, 2, 1, 0));
    rig.write64(BASE + u64::from(KERNARG), OUT.into());
    map(&rig);
    assert_eq!((value(&rig, done), read_index(&rig)), (0, 1));
}

#[test]
fn an_endless_kernel_is_preempted_in_bounded_time_and_killed() {
    let rig = rig_in(Mode::Threads(1));
    load(&rig, ENDLESS);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(2, done));
    std::thread::sleep(std::time::Duration::from_millis(20));
    for _ in 0..3 {
        let start = std::time::Instant::now();
        assert!(runlist::unmap(&rig, 2, 0, 0));
        // TIMEOUT: a wave that is not taken off goes on for ever.
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
        map(&rig);
    }
    assert!(!rig.runner.is_idle(), "its waves go on");
    // RESET_QUEUES kills them; the packet is begun anew, with a kernel that ends.
    assert!(runlist::unmap(&rig, 2, 1, 0));
    load(&rig, STORE_42);
    map(&rig);
    rig.wait("the new kernel ends", |rig| value(rig, done) == 0);
    assert_eq!((read_index(&rig), out(&rig, 63)), (1, 42));
}

#[test]
fn preempted_waves_go_on_where_they_were() {
    let rig = rig_in(Mode::Threads(2));
    load(&rig, WAIT_THEN_STORE);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(1, done));
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(runlist::unmap(&rig, 2, 0, 0));
        map(&rig);
    }
    assert_eq!(value(&rig, done), 1);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    // Were the kernel started anew it would take this pointer; its waves have the old one.
    rig.write64(BASE + u64::from(KERNARG), 0);
    rig.write(BASE + u64::from(OUT) + 0x1000, &[1]);
    map(&rig);
    rig.wait("the kernel ends", |rig| value(rig, done) == 0);
    assert_eq!([out(&rig, 0), out(&rig, 63)], [42, 42]);
}

#[test]
fn groups_go_round_the_compute_units() {
    let rig = aql::rig();
    load(&rig, STORE_CU);
    // COMPUTE_PGM_RSRC2: two user SGPRs and the group's number.
    rig.write(BASE + u64::from(DESCRIPTOR) + 52, &[2 << 1 | 1 << 7]);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(8, done));
    assert_eq!(value(&rig, done), 0);
    // Each has ended before the next begins: all could have run on the first.
    let units: Vec<u32> = (0..8).map(|group| out(&rig, group)).collect();
    let different: std::collections::BTreeSet<_> = units[..4].iter().collect();
    assert_eq!(different.len(), 4, "{units:?}");
}

#[test]
fn scratch_that_is_too_small_is_asked_for() {
    let rig = aql::rig();
    load(&rig, STORE_42);
    let done = signal(&rig, 0, false);
    let mut packet = dispatch(1, done);
    packet[6] = 16;
    send(&rig, packet);
    let inactive = BASE + 0x2_1000 + 8;
    assert_eq!(rig.read64(inactive), 1);
    // The runtime gives some: 8 waves of 4 KiB, 64 bytes a lane.
    rig.write(BASE + aql::AMD_QUEUE + 140, &[8 | 4 << 12]);
    rig.write64(BASE + aql::AMD_QUEUE + 160, 0x9_0000);
    rig.write(BASE + aql::AMD_QUEUE + 176, &[64]);
    rig.write64(inactive, 0);
    rig.runner.poll();
    assert_eq!(value(&rig, done), 0);
}

#[test]
fn scratch_at_the_end_of_the_address_space_does_no_harm() {
    let rig = aql::rig();
    load(&rig, STORE_42);
    let done = signal(&rig, 0, false);
    let mut packet = dispatch(2, done);
    packet[6] = 16;
    rig.write(BASE + aql::AMD_QUEUE + 140, &[8 | 4 << 12]);
    rig.write64(BASE + aql::AMD_QUEUE + 160, u64::MAX - 0xfff);
    rig.write(BASE + aql::AMD_QUEUE + 176, &[64]);
    send(&rig, packet);
    assert_eq!(value(&rig, done), 0, "it does not use its scratch");
    assert_eq!(rig.stats.all(), []);
}

#[test]
fn a_read_pointer_too_low_for_a_runtimes_structure_has_none() {
    let rig = aql::rig();
    assert!(runlist::unmap(&rig, 2, 0, 0));
    // The process's memory from 0 on: a read pointer at 64, and beside it what the structure has.
    let queue = aql::QUEUE;
    rig.write_mqd(crate::flat::Setup { rptr: 64, ..queue });
    rig.write(BASE + 72, &[128]);
    map(&rig);
    let done = signal(&rig, 0, true);
    send(&rig, aql::barrier(3, &[], done));
    assert_eq!(value(&rig, done), 0);
    assert_eq!(rig.stats.all(), []);
}

/// The waves of all queues, as a driver counts them for cu_occupancy.
fn occupancy(rig: &Rig) -> u32 {
    use crate::cp::reg::CpRegister::*;
    let slotted = rig.cp.reg_read(0, SPI_CSQ_WF_ACTIVE_STATUS, 0);
    assert_ne!(slotted, Some(0), "the queue is in a slot");
    let mut waves = 0;
    for bit in (0..32).filter(|bit| slotted.is_some_and(|map| map >> bit & 1 != 0)) {
        for engine in 0..4 {
            rig.cp.reg_write(0, GRBM_GFX_INDEX, 0, engine << 16);
            rig.cp.reg_write(0, GRBM_GFX_CNTL, 0, (bit / 8) | (1 << 2));
            let count = rig
                .cp
                .reg_read(0, SPI_CSQ_WF_ACTIVE_COUNT_0, bit as usize % 8);
            waves += count.unwrap_or(0);
        }
    }
    waves
}

#[test]
fn waves_are_halted_resumed_and_killed_by_command() {
    use crate::cp::reg::CpRegister::SQ_CMD;
    let rig = rig_in(Mode::Threads(2));
    load(&rig, WAIT_THEN_STORE);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(2, done));
    rig.wait("the waves run", |rig| rig.stats.done("waves launched") == 2);
    rig.wait("they are counted", |rig| occupancy(rig) == 2);
    // SETHALT of VMID 9 (not theirs), then of theirs.
    rig.cp
        .reg_write(0, SQ_CMD, 0, 9 << 28 | 1 << 8 | 1 << 7 | 1 << 4 | 1);
    assert_eq!(rig.stats.done("waves controlled by SQ_CMD"), 0);
    rig.cp
        .reg_write(0, SQ_CMD, 0, 8 << 28 | 1 << 8 | 1 << 7 | 1 << 4 | 1);
    assert_eq!(rig.stats.done("waves controlled by SQ_CMD"), 2);
    rig.write(BASE + u64::from(OUT) + 0x1000, &[1]);
    rig.wait("the queue is idle", |rig| rig.runner.is_idle());
    assert_eq!(value(&rig, done), 1, "halted waves do nothing");
    rig.cp
        .reg_write(0, SQ_CMD, 0, 8 << 28 | 1 << 7 | 1 << 4 | 1);
    rig.wait("they go on", |rig| value(rig, done) == 0);
    assert_eq!(out(&rig, 63), 42);
    // KILL: the dispatch ends.
    load(&rig, ENDLESS);
    let killed = signal(&rig, 1, false);
    send(&rig, dispatch(3, killed));
    rig.wait("the waves run", |rig| rig.stats.done("waves launched") == 5);
    rig.cp.reg_write(0, SQ_CMD, 0, 1 << 4 | 3);
    rig.wait("they are gone", |rig| value(rig, killed) == 0);
    assert_eq!(occupancy(&rig), 0);
    assert_eq!(rig.stats.all(), []);
}
