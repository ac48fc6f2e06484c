// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the fault injection does to queues: they hang, with and without letting themselves be
//! unmapped, and fences stay unwritten. SDMA's fences and rings are asked the same way.

use super::runlist::{process, run, setup, start, submit, unmap, HIQ};
use crate::cp::mqd::dw;
use crate::cp::packet::op;
use crate::cp::reg::CpRegister;
use crate::flat::{pkt, Rig};
use crate::inject::rule::{FenceKind, Hang, OnUnmap, QueueKind};
use crate::processor::lock;
use crate::processor::runner::Mode;

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

fn hang(rig: &Rig, on_unmap: OnUnmap) {
    *lock(&rig.flat.hang) = Some(Hang {
        kind: Some(QueueKind::Pm4),
        pasid: Some(3),
        on_unmap,
        ..Hang::default()
    });
    submit(rig, 3, 0, &write_at(0x4000, 1));
    submit(rig, 4, 0, &write_at(0x4000, 1));
    *lock(&rig.flat.hang) = None;
    assert_eq!([rig.read(0x30_4000), rig.read(0x40_4000)], [0, 1]);
}

#[test]
fn a_queue_that_hangs_for_good_holds_up_the_scheduler_until_a_reset() {
    let rig = rig();
    hang(&rig, OnUnmap::Waits);
    assert!(!unmap(&rig, 2, 0, 0));
    rig.runner.poll();
    assert!(!unmap(&rig, 2, 1, 0), "not even without saving");
    rig.cp.reset();
    let rig = self::rig();
    assert!(unmap(&rig, 2, 0, 0));
}

#[test]
fn a_queue_that_hangs_politely_leaves_and_still_hangs_when_it_returns() {
    let rig = rig();
    hang(&rig, OnUnmap::Works);
    assert!(unmap(&rig, 2, 0, 0));
    run(&rig, &process(3, &[0]));
    rig.runner.poll();
    assert_eq!(rig.read(0x30_4000), 0);
}

#[test]
fn a_queue_that_the_scheduler_gives_up_on_is_named_and_can_be_reset_alone() {
    let rig = rig();
    hang(&rig, OnUnmap::Reported);
    let named = HIQ.mqd + 4 * dw::QUEUE_DOORBELL_ID0 as u64;
    assert!(unmap(&rig, 2, 0, 0), "the others have left");
    assert_eq!(rig.read(named), setup(3, 0).doorbell);
    rig.write(named, &[0]);
    // The driver finds it where it still is: the first of the scheduler's slots, pipe 2 of MEC 1.
    rig.cp
        .reg_write(0, CpRegister::GRBM_GFX_CNTL, 0, 2 | 1 << 2);
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 1);
    rig.cp
        .reg_write(0, CpRegister::SPI_COMPUTE_QUEUE_RESET, 0, 1);
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 0);
    run(&rig, &process(4, &[0]));
    submit(&rig, 4, 0, &write_at(0x4004, 2));
    assert_eq!(rig.read(0x40_4004), 2);
    assert!(unmap(&rig, 2, 0, 0));
    assert_eq!(rig.read(named), 0, "nobody is named any more");
}

#[test]
fn a_queue_that_resists_stays_in_its_slot() {
    let rig = rig();
    hang(&rig, OnUnmap::ReportedForGood);
    assert!(unmap(&rig, 2, 0, 0), "the others have left");
    rig.cp
        .reg_write(0, CpRegister::GRBM_GFX_CNTL, 0, 2 | 1 << 2);
    rig.cp
        .reg_write(0, CpRegister::SPI_COMPUTE_QUEUE_RESET, 0, 1);
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 1);
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
