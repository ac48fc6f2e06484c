// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Accesses that are repeated until their page is there (XNACK), and what ends those whose page
//! never comes.

use super::aql::{self, map, read_index, rig_in, send, signal, value, BASE};
use super::kernels::{dispatch, load, out, OUT, STORE_42};
use super::{cwsr, runlist};
use crate::cp::reg::CpRegister;
use crate::flat::Rig;
use crate::processor::bus::{Access, Binding, OnFault};
use crate::processor::lock;
use crate::processor::runner::Mode;

/// Adds 1 to the dword at (pointer in kernarg) + 4 * work-item.
const ADD_1: &[u32] = &[
    0xc006_0080,
    0,           // s_load_dwordx2 s[2:3], s[0:1], 0
    0x2600_00ff, // v_and_b32 v0, 0x3ff, v0
    0x3ff,
    0x2400_0082, // v_lshlrev_b32 v0, 2, v0
    0x7e02_0281, // v_mov_b32 v1, 1
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xdd08_8000, // global_atomic_add v0, v1, s[2:3]
    0x0002_0100,
    0xbf81_0000, // s_endpgm
];

/// Takes the pages of some of the output away, of processes whose hubs retry.
fn take(rig: &Rig, first: u64, last: u64) {
    *lock(&rig.flat.retries) = true;
    *lock(&rig.flat.missing) = u64::from(OUT) + first..u64::from(OUT) + last;
}

fn bring(rig: &Rig) {
    *lock(&rig.flat.missing) = 0..0;
}

/// Waits until memory has refused `count` more times.
fn refused(rig: &Rig, count: usize) {
    rig.faults();
    rig.wait("accesses are repeated", |rig| {
        lock(&rig.flat.faults).len() >= count
    });
}

#[test]
fn a_wave_waits_for_its_page_and_goes_on() {
    for mode in [Mode::Sync, Mode::Threads(2)] {
        let rig = rig_in(mode);
        load(&rig, STORE_42);
        take(&rig, 0, 0x1000);
        let done = signal(&rig, 0, false);
        send(&rig, dispatch(3, done));
        refused(&rig, 5);
        let (space, pasid, fault) = rig.faults()[0];
        assert_eq!((space.vmid, pasid, fault.access), (8, 3, Access::Write));
        assert_eq!((value(&rig, done), out(&rig, 0)), (1, 0));
        bring(&rig);
        rig.wait("the kernel ends", |rig| value(rig, done) == 0);
        assert_eq!([out(&rig, 0), out(&rig, 63)], [42, 42]);
        assert_eq!(rig.stats.all(), []);
    }
}

#[test]
fn without_xnack_the_first_fault_is_final() {
    let rig = aql::rig();
    load(&rig, STORE_42);
    take(&rig, 0, 0x1000);
    let mut list = runlist::process(3, &[]);
    list[5] |= 1 << 12; // SH_MEM_CONFIG.RETRY_DISABLE
    list.extend(aql::map_packet());
    assert!(runlist::unmap(&rig, 2, 0, 0));
    runlist::run(&rig, &list);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(1, done));
    assert_eq!(rig.faults().len(), 1);
    bring(&rig);
    rig.runner.poll();
    assert_eq!((value(&rig, done), rig.faults().len()), (1, 0));
    let config = |sh_mem_config| Binding {
        sh_mem_config,
        ..Binding::default()
    };
    assert_eq!(config(1 << 12).on_fault(), OnFault::Ends);
    assert_eq!(config(!(1 << 12)).on_fault(), OnFault::Repeats);
}

/// A wave that waits is preempted like any other, reset with its queue, and killed by SQ_CMD.
#[test]
fn waiting_waves_can_be_taken_off() {
    let rig = rig_in(Mode::Threads(2));
    load(&rig, STORE_42);
    take(&rig, 0, 0x1000);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(2, done));
    for _ in 0..5 {
        refused(&rig, 3);
        assert!(runlist::unmap(&rig, 2, 0, 0));
        rig.faults();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(rig.faults(), [], "it is not on the hardware");
        map(&rig);
    }
    refused(&rig, 3);
    assert!(runlist::unmap(&rig, 2, 1, 0), "reset");
    rig.write64(BASE + 0x7_0000, u64::from(OUT) + 0x2000);
    map(&rig);
    rig.wait("the packet is begun anew", |rig| value(rig, done) == 0);
    assert_eq!(rig.read(BASE + u64::from(OUT) + 0x2000), 42);
    // Kill.
    rig.write64(BASE + 0x7_0000, OUT.into());
    let killed = signal(&rig, 1, false);
    send(&rig, dispatch(3, killed));
    refused(&rig, 3);
    rig.cp.reg_write(0, CpRegister::SQ_CMD, 0, 1 << 4 | 3);
    rig.wait("they are gone", |rig| value(rig, killed) == 0);
    assert_eq!((read_index(&rig), out(&rig, 0)), (2, 0));
}

#[test]
fn a_gpu_reset_ends_a_waiting_wave() {
    let rig = rig_in(Mode::Threads(2));
    load(&rig, STORE_42);
    take(&rig, 0, 0x1000);
    send(&rig, dispatch(2, signal(&rig, 0, false)));
    refused(&rig, 3);
    rig.cp.reset();
    rig.faults();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(rig.faults(), []);
    assert!(rig.runner.is_idle());
}

#[test]
fn an_atomic_is_done_once_for_each_lane() {
    let rig = rig_in(Mode::Threads(2));
    load(&rig, ADD_1);
    take(&rig, 4 * 20, 4 * 40);
    let done = signal(&rig, 0, false);
    send(&rig, dispatch(1, done));
    refused(&rig, 5);
    let so_far: u32 = (0..64).map(|item| out(&rig, item)).sum();
    assert_eq!(so_far, 20, "lanes before the page, once");
    bring(&rig);
    rig.wait("the kernel ends", |rig| value(rig, done) == 0);
    let all: Vec<u32> = (0..64).map(|item| out(&rig, item)).collect();
    assert_eq!(all, [1; 64]);
}

/// The driver's trap handler saves which lanes are left: XNACK_MASK.
#[test]
fn an_atomic_is_done_once_for_each_lane_though_it_is_saved_in_between() {
    let rig = cwsr::rig(Mode::Threads(2));
    rig.write(BASE + u64::from(cwsr::CODE), ADD_1);
    cwsr::map_with_handler(&rig);
    take(&rig, 4 * 30, 4 * 100);
    let done = cwsr::start(&rig);
    rig.wait("all waves run", |rig| rig.stats.done("waves launched") == 8);
    for round in 1..=3 {
        refused(&rig, 20);
        assert!(runlist::unmap(&rig, 2, 0, 0));
        assert_eq!(rig.stats.done("waves saved"), round * 8);
        cwsr::map_with_handler(&rig);
    }
    refused(&rig, 20);
    bring(&rig);
    rig.wait("the kernel ends", |rig| value(rig, done) == 0);
    let all: Vec<u32> = (0..128).map(|item| out(&rig, item)).collect();
    assert_eq!(all, [4; 128], "one for each group");
    assert_eq!(rig.stats.all(), []);
}
