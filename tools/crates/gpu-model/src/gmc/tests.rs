// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Page tables, hubs and faults.

use super::*;
use crate::rig::{Rig, FB};
use pte::Entry as E;

/// GC's VM_CONTEXT0_CNTL and _PAGE_TABLE_BASE_ADDR_LO32, _START_, _END_ (gc_9_4_3_offset.h).
const CNTL: u64 = 0x2860;
const BASE: u64 = 0x28cb;
const END: u64 = 0x290b;
/// Four levels of 512 entries, the last directory with leaves of 2 MiB: depth 2, block size 9.
const FOUR_LEVELS: u32 = 1 | 2 << 1 | 9 << 3;
const RWX: u64 = E::VALID | E::READABLE | E::WRITEABLE | E::EXECUTABLE;
const ROOT: u64 = 0x10_0000;
const VA: u64 = 0x7f12_3456_7000;

/// A process with a page table at `ROOT` in VMID 8.
fn process() -> Rig {
    let rig = Rig::new();
    rig.write(CNTL + 8, FOUR_LEVELS);
    rig.write(END + 16, u32::MAX);
    rig.write(END + 17, 0xf);
    rig.chip().bind_vmid(0, 8, 33, ROOT | E::VALID);
    rig
}

/// Puts an entry into the table at `table` for the level that `shift` selects.
fn put(rig: &Rig, table: u64, shift: u32, entry: u64) {
    rig.vram()
        .write_u64(table + (VA >> shift & 0x1ff) * 8, entry)
        .unwrap();
}

fn ask(rig: &Rig, va: u64, access: Access) -> Result<Translation, FaultReason> {
    let chip = rig.chip();
    chip.gmc
        .translate(chip, Hub::Gc(0), 8, va, access)
        .map_err(|fault| fault.reason)
}

#[test]
fn four_levels_lead_to_a_page() {
    let rig = process();
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 30, 0x30_0000 | E::VALID);
    put(
        &rig,
        0x30_0000,
        21,
        0x40_0000 | E::VALID | E::TRANSLATE_FURTHER,
    );
    put(&rig, 0x40_0000, 12, 0x12_3000 | E::SYSTEM | RWX);
    let found = ask(&rig, VA + 0x18, Access::Read).unwrap();
    assert_eq!(
        found.at,
        Physical {
            memory: Memory::System,
            address: 0x12_3018
        }
    );
    assert_eq!(found.length, 0x1000 - 0x18);
    assert_eq!(
        ask(&rig, VA + 0x1000, Access::Read),
        Err(FaultReason::Invalid)
    );
}

#[test]
fn a_depth_that_has_no_table_for_pages_ends_the_walk() {
    let rig = process();
    // One level above blocks of two tables: shifts of 22, 13 and then none.
    rig.write(CNTL + 8, 1 | 1 << 1 | 1 << 3);
    put(&rig, ROOT, 22, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 13, 0x30_0000 | E::VALID);
    put(&rig, 0x30_0000, 4, 0x40_0000 | E::VALID);
    assert_eq!(ask(&rig, VA, Access::Read), Err(FaultReason::Invalid));
}

#[test]
fn a_fault_without_directories_is_told_too() {
    let rig = process();
    rig.write(CNTL + 8, 0);
    let chip = rig.chip();
    let fault = chip.gmc.translate(chip, Hub::Gc(0), 8, VA, Access::Read);
    let path = chip.gmc.path(chip, &fault.unwrap_err());
    assert!(path.starts_with("root ") && !path.contains('['), "{path}");
}

#[test]
fn leaves_of_2_mib_and_1_gib_stop_the_walk() {
    let rig = process();
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 30, 0x30_0000 | E::VALID);
    put(&rig, 0x30_0000, 21, 0x60_0000 | RWX);
    let found = ask(&rig, VA, Access::Write).unwrap();
    assert_eq!(found.at.address, 0x60_0000 + (VA & 0x1f_ffff));
    assert_eq!(found.length, (2 << 20) - (VA & 0x1f_ffff));

    put(&rig, 0x20_0000, 30, E::LEAF | E::SYSTEM | RWX);
    let found = ask(&rig, VA, Access::Write).unwrap();
    assert_eq!(
        found.at,
        Physical {
            memory: Memory::System,
            address: VA & 0x3fff_ffff
        }
    );
}

/// BAR0, and the memory that the host has for it, are a power of two; local memory need not be.
#[test]
fn there_is_nothing_behind_the_end_of_local_memory() {
    let rig = process();
    let end = rig.chip().vram_size;
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 30, 0x30_0000 | E::VALID);
    let leaf = |at: u64| put(&rig, 0x30_0000, 21, at | RWX);
    leaf(end);
    assert_eq!(ask(&rig, VA, Access::Write), Err(FaultReason::Bus));
    leaf(end | E::SYSTEM);
    assert!(ask(&rig, VA, Access::Write).is_ok());
    // A leaf of 2 MiB of which a page is there.
    let inside = VA & 0x1f_ffff;
    leaf(end - 0x1000 - inside);
    assert_eq!(ask(&rig, VA, Access::Write).unwrap().length, 0x1000);
    assert_eq!(ask(&rig, VA + 0x1000, Access::Write), Err(FaultReason::Bus));
    put(&rig, ROOT, 39, end | E::VALID);
    assert_eq!(ask(&rig, VA, Access::Read), Err(FaultReason::Bus));
}

#[test]
fn the_context_and_the_entry_say_whether_to_try_again() {
    let rig = process();
    let chip = rig.chip();
    let retries = |access| {
        let fault = chip.gmc.translate(chip, Hub::Gc(0), 8, VA, access);
        chip.gmc.retries(chip, &fault.unwrap_err())
    };
    assert!(!retries(Access::Read), "the context says no");
    rig.write(CNTL + 8, FOUR_LEVELS | 1 << 7);
    assert!(retries(Access::Read), "no directory");
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 30, 0x30_0000 | E::VALID);
    let further = 0x40_0000 | E::VALID | E::TRANSLATE_FURTHER;
    put(&rig, 0x30_0000, 21, further);
    assert!(retries(Access::Write), "no entry");
    put(&rig, 0x40_0000, 12, E::VALID | E::READABLE | E::SYSTEM);
    assert!(retries(Access::Write), "not permitted");
    put(&rig, 0x40_0000, 12, E::VALID | E::SYSTEM | E::PRT);
    assert!(!retries(Access::Write), "amdgpu gave up");
    put(
        &rig,
        0x30_0000,
        21,
        E::EXECUTABLE | E::LEAF | E::TRANSLATE_FURTHER,
    );
    assert!(!retries(Access::Read), "amdgpu gave up, higher up");
    rig.write(END + 17, 0);
    assert!(!retries(Access::Read), "out of range");
}

/// OSSSYS: IH_RB_CNTL, _BASE, _WPTR, IH_DOORBELL_RETRY_CAM, IH_RETRY_INT_CAM_CNTL.
const IH_CNTL: u64 = 0x1120;
const IH_WPTR: u64 = 0x1124;
const IH_CAM_DOORBELL: u64 = 0x1128;
const IH_CAM_CNTL: u64 = 0x118a;

#[test]
fn a_retry_fault_is_told_once_until_the_driver_acknowledges_it() {
    let rig = process();
    rig.write(CNTL + 8, FOUR_LEVELS | 1 << 7);
    rig.write(IH_CNTL + 1, 0x10_0000 >> 8);
    rig.write(IH_CNTL, 1 | 6 << 1 | 1 << 17);
    rig.write(IH_CAM_DOORBELL, 1 << 28 | 0x346);
    rig.write(IH_CAM_CNTL, 1 << 16);
    let chip = rig.chip();
    let again = || {
        let fault = chip.gmc.translate(chip, Hub::Gc(0), 8, VA, Access::Write);
        chip.gmc.report_retry(chip, &fault.unwrap_err(), None);
        rig.read(IH_WPTR) / 32
    };
    assert_eq!([again(), again(), again()], [1; 3]);
    let data = |at: u64| rig.system().read_u32(0x10_0000 + 16 + at).unwrap();
    let page = VA >> 12;
    assert_eq!(u64::from(data(0)), page & 0xffff_ffff);
    assert_eq!(u64::from(data(4)), 0x80 | 0x20 | page >> 32);
    let index = data(8);
    // VM_L2_PROTECTION_FAULT_STATUS is of faults that are final.
    assert_eq!(chip.gmc.gc[0].fault_status(), 0);
    rig.model.doorbell_write(0x346 * 4, &index.to_le_bytes());
    assert_eq!([again(), again()], [2; 2]);
    // Off: no filter.
    rig.write(IH_CAM_CNTL, 0);
    assert_eq!([again(), again()], [3, 4]);
}

#[test]
fn permissions_are_per_access() {
    let rig = process();
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(
        &rig,
        0x20_0000,
        30,
        E::LEAF | E::SYSTEM | E::VALID | E::READABLE,
    );
    assert!(ask(&rig, VA, Access::Read).is_ok());
    assert_eq!(ask(&rig, VA, Access::Write), Err(FaultReason::Permission));
    assert_eq!(ask(&rig, VA, Access::Fetch), Err(FaultReason::Permission));
}

#[test]
fn a_context_that_is_off_or_too_short_refuses() {
    let rig = process();
    rig.write(END + 16, (VA >> 12) as u32 - 1);
    rig.write(END + 17, (VA >> 44) as u32);
    assert_eq!(ask(&rig, VA, Access::Read), Err(FaultReason::Range));
    rig.write(CNTL + 8, FOUR_LEVELS & !1);
    assert_eq!(ask(&rig, 0, Access::Read), Err(FaultReason::Range));
}

#[test]
fn a_table_outside_memory_is_a_bus_fault() {
    let rig = process();
    put(&rig, ROOT, 39, 0xffff_ffff_f000 | E::VALID);
    assert_eq!(ask(&rig, VA, Access::Read), Err(FaultReason::Bus));
}

#[test]
fn vmid_0_has_the_frame_buffer_window_and_a_flat_table() {
    let rig = Rig::new();
    let chip = rig.chip();
    let ask = |va| {
        chip.gmc
            .translate(chip, Hub::Gc(0), 0, va, Access::Write)
            .map(|t| t.at)
    };
    assert_eq!(
        ask(FB + 0x1234),
        Ok(Physical {
            memory: Memory::Vram,
            address: 0x1234
        })
    );
    assert!(ask(0x5000).is_err());
    rig.write(CNTL, 1);
    rig.write(BASE, 0x70_0000 | E::VALID as u32);
    rig.write(END, 0xff);
    rig.vram()
        .write_u64(0x70_0000 + 5 * 8, 0x3_0000 | E::SYSTEM | RWX)
        .unwrap();
    assert_eq!(
        ask(0x5678),
        Ok(Physical {
            memory: Memory::System,
            address: 0x3_0678
        })
    );
    assert!(ask(0x10_0000).is_err());
}

#[test]
fn cached_translations_last_until_invalidated() {
    let rig = process();
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 30, 0x30_0000 | E::VALID);
    put(&rig, 0x30_0000, 21, 0x60_0000 | RWX);
    let mut vm = rig.chip().vm(Hub::Gc(0), 8);
    vm.write_u32(VA & !0xfff, 7).unwrap();
    put(&rig, 0x30_0000, 21, 0);
    assert_eq!(vm.read_u32(VA & !0xfff), Ok(7));
    // VM_INVALIDATE_ENG17_REQ, _ACK.
    rig.write(0x2894, 1 << 8);
    assert_eq!(rig.read(0x28a6), 1 << 8);
    assert!(vm.read_u32(VA & !0xfff).is_err());
}

#[test]
fn accesses_cross_pages_and_fault_at_the_byte_they_fail_at() {
    let rig = process();
    put(&rig, ROOT, 39, 0x20_0000 | E::VALID);
    put(&rig, 0x20_0000, 30, 0x30_0000 | E::VALID);
    put(
        &rig,
        0x30_0000,
        21,
        0x40_0000 | E::VALID | E::TRANSLATE_FURTHER,
    );
    put(&rig, 0x40_0000, 12, 0x80_0000 | RWX);
    let next = 0x40_0000 + ((VA >> 12 & 0x1ff) + 1) * 8;
    rig.vram().write_u64(next, 0x50_0000 | RWX).unwrap();
    let mut vm = rig.chip().vm(Hub::Gc(0), 8);
    vm.write(VA + 0xffe, &[1, 2, 3, 4]).unwrap();
    assert_eq!(rig.vram().read_u32(0x80_0ffe).unwrap_or(0) & 0xffff, 0x201);
    assert_eq!(rig.vram().read_u32(0x50_0000), Ok(0x403));
    let fault = vm.read(VA + 0x1ffe, &mut [0; 4]).unwrap_err();
    assert_eq!(
        (fault.va, fault.reason),
        (VA + 0x2000, FaultReason::Invalid)
    );
}

#[test]
fn a_fault_is_latched_until_cleared() {
    let rig = process();
    let chip = rig.chip();
    for (va, access) in [(VA, Access::Write), (0x1000, Access::Read)] {
        let fault = chip
            .gmc
            .translate(chip, Hub::Gc(0), 8, va, access)
            .unwrap_err();
        chip.gmc.report(chip, &fault, None);
    }
    // VM_L2_PROTECTION_FAULT_STATUS: VMID 23:20, RW 18; the address as a page number.
    assert_eq!(rig.read(0x282b) >> 18, 1 | 8 << 2);
    assert_eq!(
        u64::from(rig.read(0x282d)) << 32 | u64::from(rig.read(0x282c)),
        VA >> 12
    );
    rig.write(0x2827, 1);
    assert_eq!(rig.read(0x282b), 0);
}
