// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Hostile mode on a whole GPU without a guest: drivers' mistakes that it shows, each beside what
//! is right. Queues have theirs in `cp/tests/hostile.rs`.

use std::time::{Duration, Instant};

use crate::gmc::pte::Entry;
use crate::gmc::{Access, Hub};
use crate::ih::{client, Interrupt};
use crate::rig::{Rig, FB};

/// GC's VM_CONTEXT8_CNTL, VM_CONTEXT8_PAGE_TABLE_END_ADDR_LO32, VM_INVALIDATE_ENG0_REQ, and the
/// MMHUB's of the last.
const CNTL: u64 = 0x2868;
const END: u64 = 0x291b;
const REQ: u64 = 0x2883;
const MM_REQ: u64 = 0x1_8000 + 0x340 + 0x883;
const FOUR_LEVELS: u32 = 1 | 2 << 1 | 9 << 3;
/// INVALIDATE_L2_PTES and _L1_PTES.
const PAGES: u32 = 1 << 18 | 1 << 22;
const ROOT: u64 = 0x10_0000;
const TABLE: u64 = 0x20_0000;
const RWX: u64 = Entry::VALID | Entry::READABLE | Entry::WRITEABLE | Entry::LEAF;

const SYSTEM: u64 = Entry::SYSTEM | Entry::SNOOPED | RWX;

/// A process in VMID 8.
fn process(rig: &Rig) {
    rig.write(CNTL, FOUR_LEVELS);
    rig.write(END, u32::MAX);
    rig.write(END + 1, 0xf);
    rig.vram().write_u64(ROOT, TABLE | Entry::VALID).unwrap();
    rig.chip().bind_vmid(0, 8, 33, ROOT | Entry::VALID);
}

/// In how many of 100 changes of a page the hub still leads to where it led before, if `after`
/// follows each.
fn stale(rig: Rig, after: impl Fn(&Rig)) -> usize {
    process(&rig);
    let look = |rig: &Rig| {
        let found = rig
            .chip()
            .gmc
            .translate(rig.chip(), Hub::Gc(0), 8, 0x1000, Access::Read);
        found.unwrap().at.address - 0x1000
    };
    let is_stale = |n: &u64| {
        let place = n << 30;
        rig.vram().write_u64(TABLE, place | SYSTEM).unwrap();
        after(&rig);
        look(&rig) != place
    };
    (1..=100).filter(is_stale).count()
}

#[test]
fn a_missing_tlb_flush_and_one_of_a_wrong_vmid_are_found() {
    let request = |register, value| move |rig: &Rig| rig.write(register, value);
    let right = request(REQ, 1 << 8 | PAGES);
    assert_eq!(stale(Rig::hostile(1), right), 0);
    assert_eq!(stale(Rig::hostile(1), request(REQ, 0xffff | PAGES)), 0);
    for seed in 1..=3 {
        assert!(stale(Rig::hostile(seed), |_| ()) > 80, "no flush");
        for (register, value, what) in [
            (REQ, 1 << 9 | PAGES, "another VMID"),
            (REQ, 1 << 8, "no pages"),
            (MM_REQ, 1 << 8 | PAGES, "another hub"),
        ] {
            let wrong = stale(Rig::hostile(seed), request(register, value));
            assert!(wrong > 80, "{what}: {wrong}");
        }
    }
    // Off, each of these goes unseen, if only a register is written.
    assert_eq!(stale(Rig::new(), request(REQ, 1 << 9)), 0);
}

#[test]
fn a_vmid_that_another_process_gets_is_empty_and_one_that_stays_is_not() {
    let rebind = |pasid| move |rig: &Rig| rig.chip().bind_vmid(0, 8, pasid, ROOT | Entry::VALID);
    assert!(stale(Rig::hostile(1), rebind(33)) > 80);
    let turns = std::cell::Cell::new(40);
    let another = |rig: &Rig| {
        turns.set(turns.get() + 1);
        rebind(turns.get())(rig);
    };
    assert_eq!(stale(Rig::hostile(1), another), 0);
}

#[test]
fn pages_that_come_need_no_flush() {
    let rig = Rig::hostile(1);
    process(&rig);
    let vram = rig.vram();
    let read = || {
        let chip = rig.chip();
        let found = chip.gmc.translate(chip, Hub::Gc(0), 8, 0, Access::Write);
        found.map(|it| it.at.address)
    };
    assert!(read().is_err());
    vram.write_u64(TABLE, RWX & !Entry::WRITEABLE).unwrap();
    rig.chip().gmc.changed();
    assert!(read().is_err(), "not writable");
    vram.write_u64(TABLE, SYSTEM | 1 << 30).unwrap();
    assert_eq!(read(), Ok(1 << 30), "a refusal is looked at again");
}

/// How often of 100 times the GPU does not see what a CPU wrote through BAR0.
fn unseen(after: impl Fn(&Rig)) -> usize {
    let rig = Rig::hostile(1);
    let gpu = || rig.chip().vm(Hub::Mm, 0).read_u64(FB + 0x40_0000).unwrap();
    let is_unseen = |n: &u64| {
        gpu();
        rig.cpu().write_u64(0x40_0000, *n).unwrap();
        after(&rig);
        gpu() != *n
    };
    (1..=100).filter(is_unseen).count()
}

#[test]
fn a_missing_hdp_flush_is_found() {
    // KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL, BIF_BX_PF0_GPU_HDP_FLUSH_REQ.
    for flush in [0x6800, 0xe26] {
        assert_eq!(unseen(|rig| rig.write(flush, 1)), 0);
    }
    assert!(unseen(|_| ()) > 80);
}

#[test]
fn the_report_counts_what_was_stale() {
    let rig = Rig::hostile(1);
    let vm = || rig.chip().vm(Hub::Mm, 0).read_u64(FB + 0x40_0000).unwrap();
    vm();
    rig.cpu().write_u64(0x40_0000, 7).unwrap();
    vm();
    let report = rig.model.report();
    assert!(
        report.contains(" 1 stale reads of local memory"),
        "{report}"
    );
    assert!(!Rig::new().model.report().contains("hostile"));
}

#[test]
fn interrupts_come_late_twice_and_in_bursts() {
    let rig = Rig::hostile(3);
    // IH_RB_BASE, IH_RB_CNTL: 4096 entries.
    rig.write(0x1121, 0x10_0000 >> 8);
    rig.write(0x1120, 1 | 15 << 1 | 1 << 17);
    let push = |client, source, n| {
        let entry = Interrupt {
            client,
            source,
            ring_id: 3,
            vmid: 9,
            from_mm: false,
            pasid: Some(1),
            node: 1,
            data: [n, 0, 0, 0],
        };
        rig.chip().ih.push(rig.chip(), entry);
    };
    // QUERY_STATUS and an error of another client say something themselves: late, and once. The end
    // of a pipe does not.
    for n in 0..200 {
        push(client::GRBM_CP, 199, n);
        push(client::UTCL2, 1, n);
        push(client::GRBM_CP, 181, n);
    }
    let entries = || {
        let wptr = u64::from(rig.read(0x1124));
        let entry = |at: u64| [0, 16].map(|field| rig.system().read_u32(0x10_0000 + at + field));
        let entries = (0..wptr / 32).map(|n| entry(32 * n).map(Result::unwrap));
        entries.collect::<Vec<_>>()
    };
    let of = |source: u32| {
        let entries = entries().into_iter();
        let data = entries.filter(move |it| it[0] >> 8 & 0xff == source);
        data.map(|it| it[1]).collect::<Vec<_>>()
    };
    let start = Instant::now();
    while of(199).len() < 200 || of(1).len() < 200 || of(181).len() < 220 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{}",
            of(181).len()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(30));
    let all: Vec<u32> = (0..200).collect();
    assert_eq!(
        [of(199), of(1)],
        [all.clone(), all],
        "one client's stay in order"
    );
    let both = entries().into_iter();
    let both = both.filter(|it| matches!(it[0] >> 8 & 0xff, 199 | 1));
    assert!(!both.is_sorted_by_key(|it| it[1]), "some came past others");
}
