// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Graphics memory controller: address translation per hub and VMID.
//!
//! A *hub* is one page-table walker with 16 contexts: each accelerator die (XCC) has one for its shaders and command
//! processor, and the multimedia hub (MMHUB) serves SDMA, IH and PSP. One [`Gmc`] per GPU, shared through
//! [`crate::chip::Chip`]; each hub's registers are a [`hub::HubBlock`] on the bus.

pub mod hub;
pub mod pte;
mod vm;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub use vm::Vm;

use crate::chip::Chip;
use crate::ih::{client, Interrupt};
use crate::memory::{Physical, Space};
use crate::preset::Preset;
use hub::HubBlock;
use pte::Entry;

/// Names one of the page-table walkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hub {
    /// The graphics hub of one XCC.
    Gc(u8),
    /// The multimedia hub.
    Mm,
}

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// Why an address did not translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultReason {
    #[error("no valid page-table entry")]
    Invalid,
    #[error("the page does not allow it")]
    Permission,
    #[error("the VMID's context is off or the address outside its range")]
    Range,
    #[error("a page table or the page itself lies where there is no memory")]
    Bus,
}

/// A failed translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{hub:?} VMID {vmid}: {access:?} at {va:#x}: {reason}")]
pub struct Fault {
    pub hub: Hub,
    pub vmid: u8,
    pub va: u64,
    pub access: Access,
    pub reason: FaultReason,
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    pub at: Physical,
    /// Bytes from here to the end of the contiguous page.
    pub length: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
}

/// All hubs of one GPU.
pub struct Gmc {
    gc: Vec<Arc<HubBlock>>,
    mm: Arc<HubBlock>,
    generation: AtomicU64,
    vram_size: u64,
}

/// Addresses are 48 bits wide.
const VA_MASK: u64 = 0xffff_ffff_ffff;

impl Gmc {
    pub fn new(preset: &Preset, vram_size: u64) -> Self {
        let gc = (0..preset.xccs).map(|xcc| Arc::new(HubBlock::gc(preset, xcc, vram_size)));
        let mm = Arc::new(HubBlock::mm(preset, vram_size));
        Self {
            gc: gc.collect(),
            mm,
            generation: AtomicU64::new(1),
            vram_size,
        }
    }

    /// The hubs as blocks for the bus.
    pub fn blocks(&self) -> impl Iterator<Item = Arc<HubBlock>> + '_ {
        self.gc.iter().chain([&self.mm]).cloned()
    }

    fn hub(&self, hub: Hub) -> Option<&HubBlock> {
        match hub {
            Hub::Gc(xcc) => self.gc.get(usize::from(xcc)).map(|h| &**h),
            Hub::Mm => Some(&self.mm),
        }
    }

    /// Changes whenever cached translations must be dropped.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Drops cached translations (any hub, any VMID: the caches are small).
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives `vmid` a page table, in all hubs.
    pub fn set_page_table(&self, vmid: u8, base: u64) {
        for hub in self.gc.iter().chain([&self.mm]) {
            hub.set_page_table(vmid, base);
        }
        self.invalidate();
    }

    /// The page-table base of a VMID, as its register holds it.
    pub fn page_table(&self, hub: Hub, vmid: u8) -> u64 {
        self.hub(hub).map_or(0, |h| h.context(vmid).base)
    }

    /// Walks the page tables for one address.
    pub fn translate(
        &self,
        chip: &Chip,
        hub: Hub,
        vmid: u8,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        let fault = |reason| Fault {
            hub,
            vmid,
            va,
            access,
            reason,
        };
        let found = self.walk(chip, hub, vmid, va & VA_MASK).map_err(fault)?;
        let allowed = match access {
            Access::Read => found.readable,
            Access::Write => found.writable,
            Access::Execute => found.executable,
        };
        if !allowed {
            return Err(fault(FaultReason::Permission));
        }
        Ok(found)
    }

    fn walk(&self, chip: &Chip, hub: Hub, vmid: u8, va: u64) -> Result<Translation, FaultReason> {
        let hub = self.hub(hub).ok_or(FaultReason::Range)?;
        if vmid == 0 {
            if let Some(offset) = hub.frame_buffer_offset(va) {
                return self.in_vram(offset);
            }
        }
        let context = hub.context(vmid);
        let page = va >> 12;
        if !context.enabled || page < context.start || page > context.end {
            return Err(FaultReason::Range);
        }
        let (entry, shift) = match context.depth {
            0 => (self.flat_entry(chip, &context, page)?, 12),
            _ => self.tree_entry(chip, &context, va)?,
        };
        self.leaf(entry, shift, va)
    }

    /// A direct address into local memory, as VMID 0 has it.
    fn in_vram(&self, offset: u64) -> Result<Translation, FaultReason> {
        let length = self.vram_size.checked_sub(offset).filter(|&l| l > 0);
        Ok(Translation {
            at: Physical {
                space: Space::Vram,
                address: offset,
            },
            length: length.ok_or(FaultReason::Bus)?,
            readable: true,
            writable: true,
            executable: true,
        })
    }

    /// The entry of a one-level table (the kernel's GART).
    fn flat_entry(
        &self,
        chip: &Chip,
        context: &hub::Context,
        page: u64,
    ) -> Result<Entry, FaultReason> {
        let table = Entry(context.base).table().ok_or(FaultReason::Invalid)?;
        self.entry(chip, table, page - context.start)
    }

    fn entry(&self, chip: &Chip, table: Physical, index: u64) -> Result<Entry, FaultReason> {
        let address = table.address + index * 8;
        let raw = chip
            .memory(table.space)
            .read_u64(address)
            .map_err(|_| FaultReason::Bus)?;
        Ok(Entry(raw))
    }

    /// Descends the directories to the entry that maps `va`, and says how many address bits it covers.
    fn tree_entry(
        &self,
        chip: &Chip,
        context: &hub::Context,
        va: u64,
    ) -> Result<(Entry, u32), FaultReason> {
        let mut table = Entry(context.base).table().ok_or(FaultReason::Invalid)?;
        let mut shift = context.root_shift();
        loop {
            let entry = self.entry(chip, table, va >> shift & 0x1ff)?;
            if shift == 12 || !entry.valid() {
                return Ok((entry, shift));
            }
            // Where a block covers more than one table, its entries are leaves unless they say "further".
            let further = if shift == 21 && context.block_size > 0 {
                entry.translate_further()
            } else {
                !entry.is_leaf()
            };
            if !further {
                return Ok((entry, shift));
            }
            table = entry.table().ok_or(FaultReason::Invalid)?;
            shift -= 9;
        }
    }

    fn leaf(&self, entry: Entry, shift: u32, va: u64) -> Result<Translation, FaultReason> {
        if !entry.valid() {
            return Err(FaultReason::Invalid);
        }
        let inside = va & ((1 << shift) - 1);
        Ok(Translation {
            at: Physical {
                space: entry.space(),
                address: entry.address(shift) + inside,
            },
            length: (1 << shift) - inside,
            readable: entry.readable(),
            writable: entry.writable(),
            executable: entry.executable(),
        })
    }

    /// Tells the driver of a fault: status registers and an interrupt, as a context with retry off does.
    pub fn report(&self, chip: &Chip, fault: &Fault) {
        tracing::warn!(target: "gmc", "page fault: {fault}");
        if let Some(hub) = self.hub(fault.hub) {
            hub.latch_fault(fault);
        }
        let (client, node, from_mm) = match fault.hub {
            Hub::Gc(xcc) => (client::UTCL2, xcc * 2, false),
            Hub::Mm => (client::VMC, 0, true),
        };
        let write = u32::from(fault.access == Access::Write) << 5;
        let page = (fault.va & VA_MASK) >> 12;
        let data = [page as u32, (page >> 32) as u32 & 0xf | write, 0, 0];
        let vmid = fault.vmid;
        chip.ih.push(
            chip,
            Interrupt {
                client,
                source: 0,
                ring_id: 0,
                vmid,
                from_mm,
                pasid: None,
                node,
                data,
            },
        );
    }
}
