// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A fault of the model costs what it shows in, on whichever thread that is.

use super::kiq::RING_TEST;
use super::runlist::{self, process, setup};
use super::{aql, runlist::submit};
use crate::cp::packet::op;
use crate::flat::{pkt, Rig};
use crate::processor::lock;
use crate::processor::runner::Mode;

const AT: u32 = 0x7_0000;

fn breaks(rig: &Rig, at: u64) {
    *lock(&rig.flat.breaks) = at..at + u64::from(at != 0);
}

fn panics(rig: &Rig) -> u64 {
    rig.stats.get("steps of a queue that panicked")
}

fn write_at(address: u32, value: u32) -> [u32; 5] {
    let header = pkt(op::WRITE_DATA.into(), 4);
    [header, 5 << 8, address, 0, value]
}

#[test]
fn the_kernels_queues_run_on_the_doorbells_thread() {
    let rig = Rig::sync();
    breaks(&rig, AT.into());
    rig.kiq(0, &write_at(AT, 1));
    assert_eq!(panics(&rig), 1);
    breaks(&rig, 0);
    rig.kiq(0, &RING_TEST);
    assert_eq!(rig.read(AT.into()), 1);
}

#[test]
fn so_do_short_packets_of_users() {
    let rig = aql::rig_in(Mode::Threads(1));
    let done = aql::signal(&rig, 0, false);
    rig.wait("no thread is at it", |rig| rig.runner.is_idle());
    breaks(&rig, AT.into());
    aql::send(&rig, aql::barrier(3, &[AT - 8], done));
    rig.wait("it panics", |rig| panics(rig) != 0);
    breaks(&rig, 0);
    aql::send(&rig, aql::barrier(3, &[], 0));
    rig.wait("it goes on", |rig| aql::value(rig, done) == 0);
}

#[test]
fn run_lists_are_rotated_after_it() {
    let rig = Rig::sync();
    runlist::start(&rig, 1);
    (3..14).for_each(|n| rig.write_mqd(setup(n, 0)));
    let list: Vec<u32> = (3..14).flat_map(|n| process(n, &[0])).collect();
    // Not among the first that get a VMID.
    breaks(&rig, setup(13, 0).mqd);
    runlist::run_chained(&rig, &list);
    rig.wait("its turn", |rig| panics(rig) != 0);
    breaks(&rig, 0);
    runlist::run_chained(&rig, &list);
    (3..14).for_each(|n| submit(&rig, n, 0, &write_at(0x4000, n)));
    let base = |n: u32| (u64::from(n) << 20) + 0x4000;
    rig.wait("all have had a turn", |rig| {
        (3..14).all(|n| rig.read(base(n)) == n)
    });
}
