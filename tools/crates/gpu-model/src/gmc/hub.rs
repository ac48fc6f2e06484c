// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The registers of one page-table walker ("VM L2"). One block per XCC (GC) and one for the MMHUB,
//! owned by [`super::Gmc`].
//!
//! Both kinds have the same registers in the same order; in the MMHUB they lie 0x340 dwords further
//! (`mmhub_1_8_0_offset.h` against `gc_9_4_3_offset.h`). MI200 has them somewhat further in either.

use super::{writes, Access, FaultReason, Hub, Reach, Refusal};
use crate::bus::Block;
use crate::chip::Chip;
use crate::preset::{ip, Generation, Preset};
use crate::registers;
use crate::regs::{moved, name_of, place, place_rows, Key, Placed, RegisterFile, RegisterInfo};

registers! {
    /// `VM_*` and `MC_VM_*` as the graphics hub has them.
    pub enum VmRegister from "gc/gc_9_4_3" {
        /// L2 cache control; the model has no L2 to control.
        VM_L2_CNTL = 0 @ 0x0820;
        VM_L2_CNTL2 = 0 @ 0x0821;
        VM_L2_CNTL3 = 0 @ 0x0822;
        /// Which kinds of fault interrupt; bit 0 clears the latched fault.
        VM_L2_PROTECTION_FAULT_CNTL = 0 @ 0x0827;
        VM_L2_PROTECTION_FAULT_CNTL2 = 0 @ 0x0828;
        VM_L2_PROTECTION_FAULT_MM_CNTL3 = 0 @ 0x0829;
        VM_L2_PROTECTION_FAULT_MM_CNTL4 = 0 @ 0x082a;
        /// First fault since the last clear: kind, VMID, direction.
        VM_L2_PROTECTION_FAULT_STATUS = 0 @ 0x082b;
        /// Its page number.
        VM_L2_PROTECTION_FAULT_ADDR_LO32 = 0 @ 0x082c;
        VM_L2_PROTECTION_FAULT_ADDR_HI32 = 0 @ 0x082d;
        VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32 = 0 @ 0x082e;
        VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32 = 0 @ 0x082f;
        VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32 = 0 @ 0x0831;
        VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32 = 0 @ 0x0832;
        VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32 = 0 @ 0x0833;
        VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_HI32 = 0 @ 0x0834;
        VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32 = 0 @ 0x0835;
        VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_HI32 = 0 @ 0x0836;
        VM_L2_CNTL4 = 0 @ 0x0837;
        /// Per VMID: `ENABLE_CONTEXT` 0, `PAGE_TABLE_DEPTH` 2:1, `PAGE_TABLE_BLOCK_SIZE` 6:3, fault
        /// kinds above.
        VM_CONTEXT0_CNTL[16] = 0 @ 0x0860;
        VM_CONTEXTS_DISABLE = 0 @ 0x0870;
        /// Lock around an invalidation: reading 1 takes it.
        VM_INVALIDATE_ENG0_SEM[18] = 0 @ 0x0871;
        /// Bits 15:0 name the VMIDs whose translations go; `INVALIDATE_L2_PTES` 18 and `_L1_PTES`
        /// 22 say that pages are meant.
        VM_INVALIDATE_ENG0_REQ[18] = 0 @ 0x0883;
        /// Bits 15:0 name the VMIDs that are done.
        VM_INVALIDATE_ENG0_ACK[18] = 0 @ 0x0895;
        VM_INVALIDATE_ENG0_ADDR_RANGE_LO32[18; 2] = 0 @ 0x08a7;
        VM_INVALIDATE_ENG0_ADDR_RANGE_HI32[18; 2] = 0 @ 0x08a8;
        /// Root of the page table, a page-directory entry.
        VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32[16; 2] = 0 @ 0x08cb;
        VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32[16; 2] = 0 @ 0x08cc;
        /// First page of the context.
        VM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32[16; 2] = 0 @ 0x08eb;
        VM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32[16; 2] = 0 @ 0x08ec;
        /// Last page of the context.
        VM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32[16; 2] = 0 @ 0x090b;
        VM_CONTEXT0_PAGE_TABLE_END_ADDR_HI32[16; 2] = 0 @ 0x090c;
        /// Where local memory begins in the data fabric, in units of 16 MiB: 0 here.
        MC_VM_FB_OFFSET = 0 @ 0x0947;
        MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB = 0 @ 0x0948;
        MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB = 0 @ 0x0949;
        /// Place in a hive: `PF_LFB_REGION` 3:0, the node; `PF_MAX_REGION` 7:4, the last one, 0:
        /// alone.
        MC_VM_XGMI_LFB_CNTL = 0 @ 0x0957;
        /// `PF_LFB_SIZE` 16:0: from one node's memory to the next one's, in units of 16 MiB.
        MC_VM_XGMI_LFB_SIZE = 0 @ 0x0958;
        /// First address of local memory (in a hive: the first node's) as VMID 0 sees it, in units
        /// of 16 MiB.
        MC_VM_FB_LOCATION_BASE = 0 @ 0x095c;
        /// Last such unit.
        MC_VM_FB_LOCATION_TOP = 0 @ 0x095d;
        MC_VM_AGP_TOP = 0 @ 0x095e;
        MC_VM_AGP_BOT = 0 @ 0x095f;
        MC_VM_AGP_BASE = 0 @ 0x0960;
        MC_VM_SYSTEM_APERTURE_LOW_ADDR = 0 @ 0x0961;
        MC_VM_SYSTEM_APERTURE_HIGH_ADDR = 0 @ 0x0962;
        MC_VM_MX_L1_TLB_CNTL = 0 @ 0x0963;
    }
}

use VmRegister::*;

/// `VM_INVALIDATE_ENG0_REQ.INVALIDATE_L2_PTES` and `_L1_PTES`.
const INVALIDATE_PTES: u32 = 1 << 18 | 1 << 22;

/// Dwords from a graphics-hub register to its MMHUB twin, segment bases apart.
const MMHUB_SHIFT: u32 = 0x340;

/// Where local memory begins for VMID 0. Any place above the first terabytes will do; the driver
/// reads it.
const FRAME_BUFFER_BASE: u64 = 0x80_0000_0000;

/// Which unit's access failed, `CID` of VM_L2_PROTECTION_FAULT_STATUS (`gmc_v9_0.c`,
/// `gfxhub_client_ids`). The model distinguishes instruction fetches from data only.
mod client {
    pub const TCP: u32 = 8;
    pub const SQC_INSTRUCTION: u32 = 9;
}

/// One VMID's translation set-up, as its registers say.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub enabled: bool,
    /// `RETRY_PERMISSION_OR_INVALID_PAGE_FAULT`: the client repeats the access.
    pub retries: bool,
    /// Directory levels above the page-table block; 0: one flat table.
    pub depth: u32,
    /// log2 of tables per block.
    pub block_size: u32,
    /// The root as a directory entry.
    pub base: u64,
    /// First and last page.
    pub start: u64,
    pub end: u64,
}

impl Context {
    /// How far to shift an address for the root's index, where there are directories.
    pub fn root_shift(&self) -> u32 {
        12 + 9 + self.block_size.min(9) + 9 * (self.depth - 1)
    }
}

/// Where MI200's graphics hub has them (`gc_9_4_2_offset.h`; those of its MMHUB,
/// `mmhub_1_7_offset.h`, lie `MMHUB_SHIFT` further, too).
pub fn of_mi200() -> Vec<RegisterInfo> {
    moved::<VmRegister>(|info| {
        let shift = match info.name {
            "MC_VM_XGMI_LFB_CNTL" | "MC_VM_XGMI_LFB_SIZE" => 0x21,
            name if name.starts_with("MC_VM_") => 0x24,
            _ => 0x20,
        };
        let offset = info.offset + shift;
        Some(RegisterInfo { offset, ..info })
    })
}

/// One hub's registers.
pub struct HubBlock {
    hub: Hub,
    generation: Generation,
    base: u32,
    reach: Reach,
    registers: RegisterFile<VmRegister>,
}

impl HubBlock {
    pub fn gc(preset: &Preset, xcc: u8, reach: Reach) -> Self {
        Self::new(preset, Hub::Gc(xcc), preset.base(ip::GC, xcc, 0), reach)
    }

    pub fn mm(preset: &Preset, reach: Reach) -> Self {
        let base = preset.base(ip::MMHUB, 0, 0) + MMHUB_SHIFT;
        Self::new(preset, Hub::Mm, base, reach)
    }

    fn new(preset: &Preset, hub: Hub, base: u32, reach: Reach) -> Self {
        let block = Self {
            hub,
            generation: preset.generation,
            base,
            reach,
            registers: RegisterFile::new(),
        };
        block.power_on();
        block
    }

    fn power_on(&self) {
        let top = FRAME_BUFFER_BASE + self.reach.bytes() - 1;
        self.registers.clear();
        self.registers
            .set(MC_VM_FB_LOCATION_BASE, (FRAME_BUFFER_BASE >> 24) as u32);
        self.registers
            .set(MC_VM_FB_LOCATION_TOP, (top >> 24) as u32);
        let Reach {
            node,
            nodes,
            segment,
        } = self.reach;
        if nodes > 1 {
            let place = u32::from(node) | u32::from(nodes - 1) << 4;
            self.registers.set(MC_VM_XGMI_LFB_CNTL, place);
            self.registers
                .set(MC_VM_XGMI_LFB_SIZE, (segment >> 24) as u32);
        }
    }

    /// The VMID's set-up.
    pub fn context(&self, vmid: u8) -> Context {
        let (r, i) = (&self.registers, usize::from(vmid & 15));
        let control = r.at(VM_CONTEXT0_CNTL, i);
        let pair = |low, high| r.pair(low, high, i);
        Context {
            enabled: control & 1 != 0,
            retries: control >> 7 & 1 != 0,
            depth: control >> 1 & 3,
            block_size: control >> 3 & 15,
            base: pair(
                VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32,
                VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32,
            ),
            start: pair(
                VM_CONTEXT0_PAGE_TABLE_START_ADDR_LO32,
                VM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32,
            ),
            end: pair(
                VM_CONTEXT0_PAGE_TABLE_END_ADDR_LO32,
                VM_CONTEXT0_PAGE_TABLE_END_ADDR_HI32,
            ),
        }
    }

    pub fn set_page_table(&self, vmid: u8, base: u64) {
        let low = VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32;
        let high = VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32;
        self.registers
            .set_pair(low, high, usize::from(vmid & 15), base);
    }

    /// The offset into local memory if `va` lies in the frame-buffer window.
    pub fn frame_buffer_offset(&self, va: u64) -> Option<u64> {
        let base = u64::from(self.registers.get(MC_VM_FB_LOCATION_BASE)) << 24;
        let top = u64::from(self.registers.get(MC_VM_FB_LOCATION_TOP)) << 24 | 0xff_ffff;
        (base..=top).contains(&va).then(|| va - base)
    }

    /// Keeps the first fault in the status registers until the driver clears it.
    pub fn latch_fault(&self, fault: &Refusal) {
        if self.registers.get(VM_L2_PROTECTION_FAULT_STATUS) != 0 {
            return;
        }
        let permission = match (fault.reason, fault.access) {
            (FaultReason::Permission, Access::Read) => 1 << 4,
            (FaultReason::Permission, Access::Write | Access::Atomic) => 2 << 4,
            (FaultReason::Permission, Access::Fetch) => 4 << 4,
            // `PERMISSION_FAULTS` bits of an entry without any permission, `WALKER_ERROR` 0: no
            // entry.
            (FaultReason::Invalid, _) => 3 << 4,
            (FaultReason::Range, _) => 1 << 1,
            (FaultReason::Bus, _) => 2 << 1,
        };
        let write = u32::from(writes(fault.access)) << 18;
        let client = match (self.hub, fault.access) {
            (Hub::Gc(_), Access::Fetch) => client::SQC_INSTRUCTION,
            (Hub::Gc(_), _) => client::TCP,
            (Hub::Mm, _) => 0,
        };
        let status = permission | client << 9 | write | u32::from(fault.vmid) << 20;
        let page = (fault.va & super::VA_MASK) >> 12;
        let (low, high) = (
            VM_L2_PROTECTION_FAULT_ADDR_LO32,
            VM_L2_PROTECTION_FAULT_ADDR_HI32,
        );
        self.registers.set_pair(low, high, 0, page);
        self.registers.set(VM_L2_PROTECTION_FAULT_STATUS, status);
    }

    #[cfg(test)]
    pub fn fault_status(&self) -> u32 {
        self.registers.get(VM_L2_PROTECTION_FAULT_STATUS)
    }

    fn clear_fault(&self) {
        for register in [
            VM_L2_PROTECTION_FAULT_STATUS,
            VM_L2_PROTECTION_FAULT_ADDR_LO32,
            VM_L2_PROTECTION_FAULT_ADDR_HI32,
        ] {
            self.registers.set(register, 0);
        }
    }
}

impl Block for HubBlock {
    fn name(&self) -> String {
        match self.hub {
            Hub::Gc(xcc) => format!("GC[{xcc}]"),
            Hub::Mm => "MMHUB".into(),
        }
    }

    fn registers(&self) -> Vec<Placed> {
        match self.generation {
            Generation::Mi300 => place::<VmRegister>(&[self.base]),
            Generation::Mi200 => place_rows(&of_mi200(), &[self.base]),
        }
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<VmRegister>(key)
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        match key.of::<VmRegister>() {
            Some((VM_INVALIDATE_ENG0_SEM, _)) => 1,
            Some((register, index)) => self.registers.at(register, index),
            None => 0,
        }
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        let Some((register, index)) = key.of::<VmRegister>() else {
            return;
        };
        match register {
            VM_INVALIDATE_ENG0_REQ => {
                let pages = value & INVALIDATE_PTES == INVALIDATE_PTES;
                let vmids = if pages { value as u16 } else { 0 };
                chip.invalidate_vmids(self.hub, vmids);
                self.registers
                    .set_at(VM_INVALIDATE_ENG0_ACK, index, value & 0xffff);
            }
            VM_L2_PROTECTION_FAULT_CNTL if value & 1 != 0 => self.clear_fault(),
            VM_CONTEXT0_CNTL
            | VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32
            | VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_HI32 => {
                // Who walks in between must not remember the old root as of after the change.
                self.registers.set_at(register, index, value);
                return chip.gmc.changed();
            }
            // Read-only: status, and where local memory lies.
            VM_INVALIDATE_ENG0_ACK
            | VM_L2_PROTECTION_FAULT_STATUS
            | MC_VM_FB_LOCATION_BASE
            | MC_VM_FB_LOCATION_TOP
            | MC_VM_XGMI_LFB_CNTL
            | MC_VM_XGMI_LFB_SIZE
            | MC_VM_FB_OFFSET => return,
            _ => {}
        }
        self.registers.set_at(register, index, value);
    }

    fn reset(&self, chip: &Chip) {
        self.power_on();
        chip.gmc.invalidate();
    }
}
