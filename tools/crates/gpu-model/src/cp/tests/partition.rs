// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Several XCCs that work on one AQL queue: shares, completion, preemption, and PM4 packets for
//! some of them.

use super::runlist;
use crate::cp::mqd::dw;
use crate::cp::packet::op;
use crate::engine::Progress;
use crate::flat::{pkt, Rig, Setup};
use crate::processor::runner::{Job, Mode};

const XCCS: u8 = 4;
const BASE: u64 = 3 << 20;
const STRIDE: u32 = 0x2000;
const CODE: u32 = 0x6_0000;
const DESCRIPTOR: u32 = 0x6_8000;
const KERNARG: u32 = 0x7_0000;
const OUT: u32 = 0x8_0000;
const IB: u32 = 0x9_0000;
const SIGNALS: u64 = 0x3_0000;
const AMD_QUEUE: u64 = 0x2_0000;
const QUEUE: Setup = Setup {
    mqd: 0xe3_0000,
    ring: 0x1_0000,
    order: 10,
    doorbell: 0x1300,
    aql: true,
    privileged: false,
    rptr: AMD_QUEUE + 128,
    wptr: AMD_QUEUE + 56,
    silent: false,
};

/// Stores XCC_ID at out + 4 * group.
const STORE_XCC: &[u32] = &[
    0xc006_0100,
    0,           // s_load_dwordx2 s[4:5], s[0:1], 0
    0xb886_f814, // s_getreg_b32 s6, hwreg(HW_REG_XCC_ID)
    0x7e02_0206, // v_mov_b32 v1, s6
    0x8e07_8202, // s_lshl_b32 s7, s2, 2
    0x7e00_0207, // v_mov_b32 v0, s7
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xdc70_8000, // global_store_dword v0, v1, s[4:5]
    0x0004_0100,
    0xbf81_0000, // s_endpgm
];
/// The same, after the dword at out + 0x1000 has become other than 0.
const WAIT_AND_STORE_XCC: &[u32] = &[
    0xc006_0100,
    0,           // s_load_dwordx2 s[4:5], s[0:1], 0
    0xb886_f814, // s_getreg_b32 s6, hwreg(HW_REG_XCC_ID)
    0x7e02_0206, // v_mov_b32 v1, s6
    0x8e07_8202, // s_lshl_b32 s7, s2, 2
    0x7e00_0207, // v_mov_b32 v0, s7
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xc003_0202, // wait: s_load_dword s8, s[4:5], 0x1000 glc
    0x1000,
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xbf07_8008, // s_cmp_lg_u32 s8, 0
    0xbf84_fffb, // s_cbranch_scc0 wait
    0xdc70_8000, // global_store_dword v0, v1, s[4:5]
    0x0004_0100,
    0xbf81_0000, // s_endpgm
];

fn rig(mode: Mode, code: &[u32]) -> Rig {
    let rig = Rig::new(mode, XCCS);
    runlist::start(&rig, XCCS);
    for xcc in 0..u32::from(XCCS) {
        let mqd = QUEUE.mqd + u64::from(xcc * STRIDE);
        rig.write_mqd(Setup { mqd, ..QUEUE });
        // The driver begins with another XCC for each queue.
        let first = (xcc + 1) % u32::from(XCCS);
        rig.write(mqd + 4 * dw::COMPUTE_CURRENT_LOGIC_XCC_ID as u64, &[first]);
        rig.write(mqd + 4 * dw::CP_MQD_STRIDE_SIZE as u64, &[STRIDE]);
    }
    rig.write(BASE + AMD_QUEUE + 136, &[128]);
    (0..64).for_each(|slot| rig.write(BASE + QUEUE.ring + 64 * slot, &[1]));
    rig.write(BASE + u64::from(CODE), code);
    let mut descriptor = [0; 16];
    descriptor[4] = CODE.wrapping_sub(DESCRIPTOR);
    descriptor[5] = u32::MAX;
    descriptor[12] = 0x00af_0001;
    descriptor[13] = 2 << 1 | 1 << 7;
    descriptor[14] = 1 << 3;
    rig.write(BASE + u64::from(DESCRIPTOR), &descriptor);
    rig.write64(BASE + u64::from(KERNARG), OUT.into());
    map(&rig);
    rig
}

fn map(rig: &Rig) {
    let mut list = runlist::process(3, &[]);
    let (mqd, wptr) = (QUEUE.mqd as u32, QUEUE.wptr as u32);
    let control = 1 << 4 | 1 << 29;
    list.extend([pkt(0xa2, 6), control, QUEUE.doorbell << 2, mqd, 0, wptr, 0]);
    runlist::run(rig, &list);
}

fn signal(rig: &Rig, n: u32) -> u32 {
    let at = SIGNALS + 64 * u64::from(n);
    rig.write64(BASE + at + 8, 1);
    at as u32
}

fn value(rig: &Rig, signal: u32) -> u64 {
    rig.read64(BASE + u64::from(signal) + 8)
}

fn put(rig: &Rig, index: u64, packet: [u32; 16]) {
    let slot = BASE + QUEUE.ring + 64 * (index % 64);
    rig.write(slot + 4, &packet[1..]);
    rig.write(slot, &packet[..1]);
}

fn send(rig: &Rig, packet: [u32; 16]) {
    let index = rig.read64(BASE + QUEUE.wptr);
    rig.write64(BASE + QUEUE.wptr, index + 1);
    put(rig, index, packet);
    rig.cp.doorbell(u64::from(QUEUE.doorbell) * 4, index, 8);
}

fn dispatch(groups: u32, done: u32) -> [u32; 16] {
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

fn barrier(done: u32) -> [u32; 16] {
    let mut packet = [0; 16];
    packet[0] = 3 | 1 << 8;
    packet[14] = done;
    packet
}

fn ran_on(rig: &Rig, groups: u32) -> Vec<u32> {
    let at = |group: u32| rig.read(BASE + u64::from(OUT + 4 * group));
    (0..groups).map(at).collect()
}

#[test]
fn groups_go_round_the_xccs_and_the_packet_completes_once() {
    for mode in [Mode::Sync, Mode::Threads(3)] {
        let rig = rig(mode, STORE_XCC);
        for round in 0..20 {
            let (first, second) = (signal(&rig, 0), signal(&rig, 1));
            send(&rig, barrier(first));
            send(&rig, dispatch(10, second));
            rig.wait("both are done", |rig| {
                value(rig, first) == 0 && value(rig, second) == 0
            });
            // XCC n has chunk n + 1: group 0 is XCC 3's.
            assert_eq!(ran_on(&rig, 10), [3, 0, 1, 2, 3, 0, 1, 2, 3, 0], "{round}");
            assert_eq!(rig.read64(BASE + AMD_QUEUE + 128), 2 * round + 2);
        }
        // Fewer groups than XCCs.
        rig.write(BASE + u64::from(OUT), &[9, 9]);
        let done = signal(&rig, 2);
        send(&rig, dispatch(1, done));
        rig.wait("it is done", |rig| value(rig, done) == 0);
        assert_eq!(ran_on(&rig, 2), [3, 9]);
        assert_eq!(rig.stats.all(), []);
    }
}

/// A doorbell reaches the followers, then the master completes the packet before, then the doorbell
/// reaches the master.
#[test]
fn a_follower_that_is_rung_before_the_master_is_ready_is_not_forgotten() {
    let rig = rig(Mode::Sync, STORE_XCC);
    let copies = rig.cp.shared.at_doorbell(QUEUE.doorbell);
    let (master, followers) = copies.split_first().unwrap();
    assert!(!master.queue.xcc.is_follower() && followers.len() == 3);
    let [first, second] = [0, 1].map(|n| signal(&rig, n));
    put(&rig, 0, dispatch(8, first));
    put(&rig, 1, dispatch(8, second));
    copies.iter().for_each(|copy| copy.queue.ring(0));
    master.queue.step();
    followers.iter().for_each(|copy| _ = copy.queue.step());
    for copy in followers {
        copy.queue.ring(1);
        assert_eq!(copy.queue.step(), Progress::Idle, "the master is behind");
    }
    rig.runner.poll();
    assert_eq!([value(&rig, first), value(&rig, second)], [0, 1]);
    master.queue.ring(1);
    rig.runner.wake(&master.task);
    (0..10).for_each(|_| rig.runner.poll());
    assert_eq!(value(&rig, second), 0);
}

#[test]
fn shares_are_preempted_and_go_on() {
    let rig = rig(Mode::Threads(2), WAIT_AND_STORE_XCC);
    let done = signal(&rig, 0);
    send(&rig, dispatch(9, done));
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(runlist::unmap(&rig, 2, 0, 0));
        map(&rig);
    }
    assert_eq!(value(&rig, done), 1);
    rig.write(BASE + u64::from(OUT) + 0x1000, &[1]);
    rig.wait("it is done", |rig| value(rig, done) == 0);
    assert_eq!(ran_on(&rig, 9), [3, 0, 1, 2, 3, 0, 1, 2, 3]);
    let after = signal(&rig, 1);
    send(&rig, dispatch(9, after));
    rig.wait("the next is done", |rig| value(rig, after) == 0);
}

#[test]
fn pm4_packets_of_an_aql_queue_run_on_every_xcc_that_they_name() {
    let rig = rig(Mode::Threads(2), STORE_XCC);
    // PRED_EXEC for one XCC each: it writes its number.
    let packets: Vec<u32> = (0..4u32)
        .flat_map(|xcc| {
            let write = [
                pkt(op::WRITE_DATA.into(), 4),
                5 << 8,
                OUT + 4 * xcc,
                0,
                50 + xcc,
            ];
            let only = [pkt(op::PRED_EXEC.into(), 1), 1 << (24 + xcc) | 5];
            [only.as_slice(), write.as_slice()].concat()
        })
        .collect();
    rig.write(BASE + u64::from(IB), &packets);
    // And all of them add one.
    let add = [
        pkt(op::ATOMIC_MEM.into(), 8),
        15,
        OUT + 64,
        0,
        1,
        0,
        0,
        0,
        0,
    ];
    rig.write(BASE + u64::from(IB) + 4 * packets.len() as u64, &add);
    let done = signal(&rig, 0);
    let mut packet = [0; 16];
    packet[0] = 1 << 8 | 1 << 16;
    let dwords = (packets.len() + add.len()) as u32;
    packet[1..5].copy_from_slice(&[pkt(op::INDIRECT_BUFFER.into(), 3), IB, 0, dwords | 1 << 23]);
    packet[14] = done;
    send(&rig, packet);
    rig.wait("it is done", |rig| value(rig, done) == 0);
    assert_eq!(ran_on(&rig, 4), [50, 51, 52, 53]);
    assert_eq!(rig.read(BASE + u64::from(OUT) + 64), 4);
}

/// All copies of it have one address for the read pointer.
#[test]
fn the_read_pointer_of_a_pm4_queue_is_reported_by_the_xcc_that_runs_it() {
    let rig = Rig::new(Mode::Sync, 2);
    runlist::start(&rig, 2);
    let setup = runlist::setup(3, 0);
    for copy in 0..2 {
        let mqd = setup.mqd + copy * u64::from(STRIDE);
        rig.write_mqd(Setup { mqd, ..setup });
        rig.write(mqd + 4 * dw::PM4_TARGET_XCC_IN_XCP as u64, &[1]);
        rig.write(mqd + 4 * dw::CP_MQD_STRIDE_SIZE as u64, &[STRIDE]);
    }
    runlist::run(&rig, &runlist::process(3, &[0]));
    // The doorbell reaches the highest XCC first.
    let write = [pkt(op::WRITE_DATA.into(), 4), 5 << 8, OUT, 0, 7];
    runlist::submit(&rig, 3, 0, &write);
    assert_eq!(rig.read(BASE + u64::from(OUT)), 7);
    assert_eq!(rig.read(BASE + setup.rptr), 5);
}
