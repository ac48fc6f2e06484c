// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Hostile mode's caches by the fences of AQL packets and the cache actions of PM4 ones. Each
//! program that is wrong has one beside it that is right.

use super::aql::{rig, send, signal, value, BASE};
use super::kernels::{dispatch, load, out, CODE, KERNARG, OUT, STORE_42};
use super::runlist;
use crate::cp::packet::op;
use crate::flat::{pkt, Rig};
use crate::hostile::caches::Caches;
use crate::hostile::Hostile;

const NONE: u32 = 0;
const AGENT: u32 = 1;
const SYSTEM: u32 = 2;

/// With caches, if there is a seed.
fn hostile(seed: Option<u64>) -> Rig {
    let rig = rig();
    load(&rig, STORE_42);
    if let Some(seed) = seed {
        let hostile = std::sync::Arc::new(Hostile::new(seed));
        let memory = rig.flat.memory.clone();
        let caches = Caches::new(hostile, memory.clone(), memory, 1);
        assert!(rig.flat.caches.set(caches).is_ok());
    }
    rig
}

/// Runs the kernel with these fences.
fn run(rig: &Rig, acquire: u32, release: u32) {
    let done = signal(rig, 0, false);
    let mut packet = dispatch(1, done);
    packet[0] = packet[0] & !(0xf << 9) | acquire << 9 | release << 11;
    send(rig, packet);
    assert_eq!(value(rig, done), 0);
}

/// By how many of 20 seeds a program goes wrong.
fn wrong(program: impl Fn(&Rig) -> bool) -> usize {
    assert!(!program(&hostile(None)), "without caches it is right");
    (1..=20)
        .filter(|seed| program(&hostile(Some(*seed))))
        .count()
}

#[test]
fn a_missing_release_is_found() {
    let unseen = |release| {
        wrong(|rig| {
            run(rig, SYSTEM, release);
            out(rig, 0) != 42
        })
    };
    assert_eq!(unseen(SYSTEM), 0);
    assert!(unseen(NONE) > 15);
    assert!(unseen(AGENT) > 15, "the CPU is another agent");
}

#[test]
fn a_missing_acquire_is_found_in_the_scalar_cache() {
    let elsewhere = |acquire| {
        wrong(|rig| {
            run(rig, acquire, SYSTEM);
            rig.write64(BASE + u64::from(KERNARG), u64::from(OUT) + 0x1000);
            run(rig, acquire, SYSTEM);
            out(rig, 0x400) != 42
        })
    };
    assert_eq!([elsewhere(SYSTEM), elsewhere(AGENT)], [0; 2]);
    assert!(elsewhere(NONE) > 15);
}

/// A PM4 queue runs the kernel twice, the second time with other arguments, and ends each with a
/// fence. `acquire`: COHER_CNTL of an ACQUIRE_MEM before each; `release`: EVENT_CNTL of
/// RELEASE_MEM. Whether each time all is where it should be.
fn by_pm4(rig: &Rig, acquire: u32, release: u32) -> bool {
    rig.write_mqd(runlist::setup(3, 1));
    runlist::run(rig, &runlist::process(3, &[1]));
    let set = |offset: u32, values: &[u32]| {
        let count = 1 + values.len() as u32;
        let mut packet = vec![pkt(op::SET_SH_REG.into(), count), 0x200 + offset];
        packet.extend(values);
        packet
    };
    let fence = |value| {
        let header = pkt(op::RELEASE_MEM.into(), 7);
        vec![header, release, 1 << 29, 0x4000, 0, value, 0, 0]
    };
    let acquire = [
        pkt(op::ACQUIRE_MEM.into(), 6),
        acquire,
        !0,
        0xff_ffff,
        0,
        0,
        10,
    ];
    let packets = |value| {
        [
            acquire.to_vec(),
            set(0x0c, &[CODE >> 8, 0]),
            set(0x12, &[0x00af_0001, 2 << 1]),
            set(0x07, &[64, 1, 1]),
            set(0x40, &[KERNARG, 0]),
            vec![pkt(op::DISPATCH_DIRECT.into(), 4), 1, 1, 1, 1 | 1 << 2],
            fence(value),
        ]
        .concat()
    };
    runlist::submit(rig, 3, 1, &packets(7));
    assert_eq!(rig.read(BASE + 0x4000), 7);
    let first = out(rig, 0) == 42;
    rig.write64(BASE + u64::from(KERNARG), u64::from(OUT) + 0x1000);
    runlist::submit(rig, 3, 1, &packets(8));
    assert_eq!(rig.read(BASE + 0x4000), 8);
    first && out(rig, 0x400) == 42
}

#[test]
fn missing_cache_actions_of_pm4_packets_are_found() {
    /// As amdgpu has them: `gfx_v9_4_3_emit_mem_sync`, `gfx_v9_4_3_ring_emit_fence`.
    const ACQUIRE: u32 = 1 << 29 | 1 << 27 | 1 << 23 | 1 << 22 | 1 << 18;
    const RELEASE: u32 = 0x514 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 21;
    let count = |acquire, release| wrong(|rig| !by_pm4(rig, acquire, release));
    assert_eq!(count(ACQUIRE, RELEASE), 0);
    assert!(
        count(ACQUIRE & !(1 << 27), RELEASE) > 15,
        "SH_KCACHE_ACTION_ENA"
    );
    assert!(
        count(ACQUIRE, RELEASE & !(1 << 15)) > 15,
        "EOP_TC_WB_ACTION_EN"
    );
}

/// Code that changes: the second kernel stores 43.
fn changed(rig: &Rig, acquire: u32) -> bool {
    run(rig, SYSTEM, SYSTEM);
    let mut code = STORE_42.to_vec();
    code[3] = 0x7e02_02ab; // v_mov_b32 v1, 43
    load(rig, &code);
    run(rig, acquire, SYSTEM);
    out(rig, 0) == 43
}

#[test]
fn a_missing_acquire_is_found_in_the_instruction_cache() {
    for seed in 1..=10 {
        assert!(changed(&hostile(Some(seed)), AGENT));
        assert!(!changed(&hostile(Some(seed)), NONE));
    }
}
