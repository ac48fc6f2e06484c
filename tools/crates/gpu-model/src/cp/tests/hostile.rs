// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Hostile mode on queues: dispatches without the barrier bit, late doorbells. Each program that is
//! wrong has one beside it that is right.

use super::aql::{self, map, rig_in, send, signal, value, BASE};
use super::kernels::{dispatch, load, out, OUT, STORE_42, WAIT_THEN_STORE};
use super::runlist;
use crate::flat::Rig;
use crate::hostile::Hostile;
use crate::processor::runner::Mode;

const BARRIER: u32 = 1 << 8;
/// A second kernel: code, descriptor and arguments of its own.
const CODE: u32 = 0x6_4000;
const DESCRIPTOR: u32 = 0x6_9000;
const KERNARG: u32 = 0x7_1000;

/// Two dispatches in the ring before the queue is mapped: `first`, and one that stores 43 at
/// `second`.
fn two(mode: Mode, seed: Option<u64>, first: &[u32], second: u32, header: u32) -> (Rig, [u32; 2]) {
    let rig = rig_in(mode);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    if let Some(seed) = seed {
        assert!(rig.flat.hostile.set(Hostile::new(seed).into()).is_ok());
    }
    load(&rig, first);
    let mut code = STORE_42.to_vec();
    code[3] = 0x7e02_02ab; // v_mov_b32 v1, 43
    rig.write(BASE + u64::from(CODE), &code);
    let mut descriptor = [0; 16];
    descriptor[4] = CODE.wrapping_sub(DESCRIPTOR);
    descriptor[5] = u32::MAX;
    descriptor[12..15].copy_from_slice(&[0x00af_0001, 2 << 1, 1 << 3]);
    rig.write(BASE + u64::from(DESCRIPTOR), &descriptor);
    rig.write64(BASE + u64::from(KERNARG), second.into());
    let done = [0, 1].map(|n| signal(&rig, n, false));
    send(&rig, dispatch(1, done[0]));
    let mut packet = dispatch(1, done[1]);
    packet[0] = packet[0] & !BARRIER | header;
    (packet[8], packet[10]) = (DESCRIPTOR, KERNARG);
    send(&rig, packet);
    map(&rig);
    (rig, done)
}

/// What two stores to one place leave there, by 20 seeds.
fn last_stores(hostile: bool, header: u32) -> Vec<u32> {
    let one = |seed| {
        let (rig, done) = two(Mode::Sync, hostile.then_some(seed), STORE_42, OUT, header);
        rig.wait("both", |rig| done.iter().all(|done| value(rig, *done) == 0));
        assert_eq!(aql::read_index(&rig), 2);
        out(&rig, 0)
    };
    (0..20).map(one).collect()
}

#[test]
fn a_missing_barrier_is_found() {
    assert!(last_stores(false, 0).iter().all(|last| *last == 43));
    assert!(last_stores(true, BARRIER).iter().all(|last| *last == 43));
    let wrong = last_stores(true, 0);
    assert!(wrong.contains(&42) && wrong.contains(&43), "{wrong:?}");
}

/// The first waits for what the second stores. Preempted all the time, both end.
#[test]
fn dispatches_that_overtake_run_at_the_same_time_and_outlive_preemption() {
    let overtaken = |seed| {
        let flag = OUT + 0x1000;
        let (rig, done) = two(Mode::Threads(2), Some(seed), WAIT_THEN_STORE, flag, 0);
        rig.wait("a wave", |rig| rig.stats.done("waves launched") > 0);
        if rig.stats.done("dispatches that overtook another") == 0 {
            rig.cp.reset();
            rig.runner.stop();
            return false;
        }
        for _ in 0..3 {
            runlist::unmap(&rig, 2, 0, 0);
            rig.wait("the HIQ", |rig| rig.runner.is_idle());
            map(&rig);
        }
        rig.wait("both", |rig| done.iter().all(|done| value(rig, *done) == 0));
        rig.wait("the slot", |rig| aql::read_index(rig) == 2);
        assert_eq!(out(&rig, 0), 42);
        true
    };
    assert!((0..8).any(overtaken));
}

#[test]
fn late_doorbells_are_heard_in_the_end() {
    let rig = rig_in(Mode::Threads(2));
    assert!(rig.flat.hostile.set(Hostile::new(5).into()).is_ok());
    load(&rig, STORE_42);
    for n in 0..40 {
        let done = signal(&rig, n, false);
        send(&rig, dispatch(1, done));
        rig.wait("the dispatch", |rig| value(rig, done) == 0);
    }
}
