// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Faults that are over, and pages that say what caches keep.

use super::*;
use crate::gmc::pte::Entry;
use crate::hostile::caches::Client;
use crate::hostile::wave::WaveView;
use crate::preset::Generation;
use crate::processor::bus::View;
use crate::rig::Rig;

/// GC's VM_CONTEXT8_CNTL, and VM_CONTEXT8_PAGE_TABLE_END_ADDR_LO32 and _HI32
/// (gc_9_4_3_offset.h).
const CNTL: u64 = 0x2868;
const END: u64 = 0x291b;
/// Four levels, faults repeated (RETRY_PERMISSION_OR_INVALID_PAGE_FAULT).
const FOUR_LEVELS: u32 = 1 | 2 << 1 | 9 << 3;
const RETRY: u32 = 1 << 7;
const VM_L2_PROTECTION_FAULT_STATUS: u64 = 0x282b;
const SPACE: Space = Space {
    hub: Hub::Gc(0),
    vmid: 8,
};

fn bus_of(chip: Arc<Chip>) -> GpuBus {
    let stats = Arc::default();
    GpuBus { chip, stats }
}

/// What becomes of a read whose page leads to `at` by the time that the fault is looked at.
fn late(control: u32, at: u64) -> (Verdict, u32) {
    let rig = Rig::new();
    rig.write(CNTL, control);
    rig.write(END, u32::MAX);
    rig.write(END + 1, 0xf);
    let chip = rig.model.shared_chip();
    chip.bind_vmid(0, 8, 33, 0x10_0000 | Entry::VALID);
    let access = Entry::VALID | Entry::READABLE | Entry::SNOOPED;
    let vram = rig.vram();
    vram.write_u64(0x10_0000, 0x20_0000 | Entry::VALID).unwrap();
    vram.write_u64(0x20_0000, at | Entry::LEAF | access)
        .unwrap();
    let fault = Fault {
        address: 0x1000,
        access: Access::Read,
    };
    let verdict = bus_of(chip).fault(SPACE, 33, fault, OnFault::Repeats);
    (verdict, rig.read(VM_L2_PROTECTION_FAULT_STATUS) & 0xfe)
}

/// For how many of 20 seeds a CPU does not find a wave's store through a page of this MTYPE.
fn unseen(mtype: u64, after: impl Fn(&Rig)) -> usize {
    let is_unseen = |seed: &u64| {
        let rig = Rig::hostile(*seed);
        rig.write(CNTL, FOUR_LEVELS);
        rig.write(END, u32::MAX);
        rig.write(END + 1, 0xf);
        let access = Entry::VALID | Entry::READABLE | Entry::WRITEABLE | Entry::LEAF;
        let vram = rig.vram();
        vram.write_u64(0x10_0000, 0x20_0000 | Entry::VALID).unwrap();
        vram.write_u64(0x20_0000, access | Entry::SNOOPED | mtype << 57)
            .unwrap();
        let chip = rig.model.shared_chip();
        chip.bind_vmid(0, 8, 33, 0x10_0000 | Entry::VALID);
        let bus = bus_of(chip.clone());
        let view = View {
            bus: &bus,
            space: SPACE,
        };
        let by = Client {
            xcc: 0,
            unit: 0,
            shared: true,
        };
        let mut wave = WaveView::new(view, chip.caches.as_ref().unwrap(), by);
        gcn::Memory::write(&mut wave, 0x40_1000, &7u64.to_le_bytes()).unwrap();
        after(&rig);
        rig.cpu().read_u64(0x40_1000) != Ok(7)
    };
    (1..=20).filter(is_unseen).count()
}

#[test]
fn the_page_table_says_which_stores_stay_in_the_l2() {
    // MTYPE 58:57 (AMDGPU_PTE_MTYPE_VG10): NC, RW, CC, UC.
    assert!(unseen(0, |_| ()) > 15 && unseen(1, |_| ()) > 15);
    assert_eq!((unseen(2, |_| ()), unseen(3, |_| ())), (0, 0));
}

/// A GPU on which the first GiB of a VMID is a page with these bits in its entry.
fn mapped(rig: &Rig, vmid: u8, bits: u64) -> (GpuBus, Space) {
    let (context, end) = (u64::from(vmid), END - 16 + 2 * u64::from(vmid));
    rig.write(CNTL - 8 + context, FOUR_LEVELS);
    rig.write(end, u32::MAX);
    rig.write(end + 1, 0xf);
    let chip = rig.model.shared_chip();
    let vram = rig.vram();
    vram.write_u64(0x10_0000, 0x20_0000 | Entry::VALID).unwrap();
    let access = Entry::VALID | Entry::READABLE | Entry::LEAF;
    vram.write_u64(0x20_0000, access | bits).unwrap();
    let base = 0x10_0000 | Entry::VALID;
    chip.gmc.set_page_table(Hub::Gc(0), vmid, base);
    (bus_of(chip), Space { vmid, ..SPACE })
}

/// What is counted of 100 looks at a page with these bits in its entry, and of a long read.
fn counted(vmid: u8, bits: u64) -> Vec<(&'static str, u64)> {
    let rig = Rig::new();
    let (bus, space) = mapped(&rig, vmid, bits);
    for _ in 0..100 {
        bus.place(space, 0x40_1000, Access::Read).unwrap();
    }
    // A look that the page refuses counts no mistake.
    assert!(bus.place(space, 0x40_2000, Access::Write).is_err());
    if bits & Entry::SYSTEM == 0 {
        bus.read(space, 0x40_0000, &mut [0; 8192]).unwrap();
    }
    bus.stats.all()
}

#[test]
fn pages_of_users_that_are_not_snooped_count_as_mistakes() {
    let snooped = Entry::SNOOPED;
    assert_eq!(
        counted(8, Entry::SYSTEM),
        [("system page without SNOOPED", 1)]
    );
    assert_eq!(counted(8, 0), [("local page without SNOOPED", 2)]);
    for (vmid, bits) in [
        (8, Entry::SYSTEM | snooped),
        (8, snooped),
        (0, Entry::SYSTEM),
    ] {
        assert_eq!(counted(vmid, bits), [], "VMID {vmid}, {bits:#x}");
    }
}

#[test]
fn atomics_that_pcie_has_not_count_and_hostile_mode_drops_them() {
    let uncached = Entry::SNOOPED | Entry::WRITEABLE | 3 << 57;
    for (rig, is_done) in [(Rig::new(), true), (Rig::hostile(1), false)] {
        let (bus, space) = mapped(&rig, 8, Entry::SYSTEM | uncached);
        assert_eq!(bus.goes_beyond_pcie(space, 0x40_1000), Ok(is_done));
        assert_eq!(bus.stats.all(), [("atomic operation that PCIe has not", 1)]);
        // Local memory, and what an L2 caches.
        for bits in [uncached, uncached ^ Entry::SYSTEM ^ 1 << 57] {
            let (bus, space) = mapped(&rig, 9, bits);
            assert_eq!(bus.goes_beyond_pcie(space, 0x40_1000), Ok(true));
            assert_eq!(bus.stats.all(), []);
        }
    }
}

#[test]
fn mi200_does_not_snoop_its_own_memory() {
    let page = |memory| Translation {
        at: Physical { memory, address: 0 },
        length: 0x1000,
        readable: true,
        writable: true,
        executable: true,
        snooped: false,
        mtype: Mtype::Rw,
    };
    let lacks = |memory| page(memory).lacks_snooping(Generation::Mi200, 8);
    assert_eq!(lacks(Memory::Vram), None);
    assert_eq!(lacks(Memory::System), Some("system page without SNOOPED"));
}

#[test]
fn a_flush_of_the_graphics_hub_writes_the_l2_back() {
    // VM_INVALIDATE_ENG17_REQ of GC and of MMHUB (gc_9_4_3_offset.h, mmhub_1_8_0_offset.h):
    // VMID 8, FLUSH_TYPE 2.
    const REQUEST: u32 = 1 << 8 | 2 << 16 | 1 << 18 | 1 << 22;
    assert_eq!(unseen(1, |rig| rig.write(0x2883, REQUEST)), 0);
    assert!(unseen(1, |rig| rig.write(0x1_8000 + 0x340 + 0x883, REQUEST)) > 15);
}

#[test]
fn the_driver_says_which_doorbells_are_the_copy_engines() {
    for (preset, registers, set) in [
        // BIF_DOORBELL0_RANGE_OFFSET_ENTRY 9:0, _SIZE_ENTRY 14:10.
        (Preset::mi300x(), (8, [0xcd01, 0xcd02]), 0x214 | 20 << 10),
        // OFFSET 11:2, SIZE 20:16.
        (Preset::mi250x(), (2, [0x1d0, 0x1d1]), 0x214 << 2 | 20 << 16),
    ] {
        let (segment, offsets) = registers;
        let base = preset.base(ip::NBIF, 0, segment);
        let rig = Rig::of(preset);
        let bus = bus_of(rig.model.shared_chip());
        assert_eq!(bus.sdma_doorbells(1), None);
        rig.write(u64::from(base + offsets[1]), set);
        assert_eq!(bus.sdma_doorbells(1), Some(0x214..0x228));
        assert_eq!(bus.sdma_doorbells(0), None);
    }
}

#[test]
fn a_page_that_came_meanwhile_is_no_fault() {
    assert_eq!(late(FOUR_LEVELS | RETRY, 0), (Verdict::Retry, 0));
    // Who cannot repeat it has met a page that was not valid (PERMISSION_FAULTS 7:4).
    assert_eq!(late(FOUR_LEVELS, 0), (Verdict::Final, 3 << 4));
    // A page outside memory stays one (WALKER_ERROR 3:1).
    assert_eq!(late(FOUR_LEVELS | RETRY, 1 << 40), (Verdict::Final, 2 << 1));
}
