// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the fault injection does to queues: they hang, with and without letting themselves be unmapped, and fences
//! stay unwritten. SDMA's fences and rings are asked the same way.

use super::rig::{pkt, Rig};
use super::runlist::{process, run, setup, start, submit, unmap};
use crate::cp::engine::Mode;
use crate::cp::lock;
use crate::cp::packet::op;
use crate::inject::rule::{FenceKind, Hang, QueueKind};

fn rig() -> Rig {
    let rig = Rig::new(Mode::Sync, 1);
    start(&rig, 1);
    for n in [3, 4] {
        rig.write_mqd(setup(n, 0));
    }
    run(&rig, &[process(3, &[0]), process(4, &[0])].concat());
    rig
}

fn write_at(address: u32, value: u32) -> [u32; 5] {
    [pkt(op::WRITE_DATA.into(), 4), 5 << 8, address, 0, value]
}

fn hang(rig: &Rig, preempts: bool) {
    *lock(&rig.flat.hang) = Some(Hang {
        kind: Some(QueueKind::Pm4),
        pasid: Some(3),
        doorbell: None,
        preempts,
    });
    submit(rig, 3, 0, &write_at(0x4000, 1));
    submit(rig, 4, 0, &write_at(0x4000, 1));
    *lock(&rig.flat.hang) = None;
    assert_eq!([rig.read(0x30_4000), rig.read(0x40_4000)], [0, 1]);
}

#[test]
fn a_queue_that_hangs_for_good_holds_up_the_scheduler_until_a_reset() {
    let rig = rig();
    hang(&rig, false);
    assert!(!unmap(&rig, 2, 0, 0));
    rig.engine.poll();
    assert!(!unmap(&rig, 2, 1, 0), "not even without saving");
    rig.cp.reset();
    let rig = self::rig();
    assert!(unmap(&rig, 2, 0, 0));
}

#[test]
fn a_queue_that_hangs_politely_leaves_and_still_hangs_when_it_returns() {
    let rig = rig();
    hang(&rig, true);
    assert!(unmap(&rig, 2, 0, 0));
    run(&rig, &process(3, &[0]));
    rig.engine.poll();
    assert_eq!(rig.read(0x30_4000), 0);
}

#[test]
fn fences_stay_unwritten() {
    let rig = rig();
    *lock(&rig.flat.withheld) = Some(FenceKind::QueryStatus);
    assert!(!unmap(&rig, 2, 0, 0));
    *lock(&rig.flat.withheld) = Some(FenceKind::ReleaseMem);
    assert!(unmap(&rig, 2, 0, 0), "another kind");
    run(&rig, &process(3, &[0]));
    let release = [
        pkt(op::RELEASE_MEM.into(), 7),
        0x514,
        1 << 29,
        0x4000,
        0,
        5,
        0,
        0,
    ];
    submit(&rig, 3, 0, &release);
    assert_eq!(rig.read(0x30_4000), 0);
    *lock(&rig.flat.withheld) = None;
    submit(&rig, 3, 0, &release);
    assert_eq!(rig.read(0x30_4000), 5);
}
