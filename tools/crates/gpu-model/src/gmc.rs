// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Graphics memory controller: address translation per hub and VMID.
//!
//! A *hub* is one page-table walker with 16 contexts: each accelerator core complex (XCC) has one
//! for its shaders and command processor, and the multimedia hub (MMHUB) serves SDMA, IH and PSP.
//! One [`Gmc`] per GPU, shared through [`crate::chip::Chip`]; each hub's registers are a
//! [`hub::HubBlock`] on the bus.

pub mod hub;
pub mod pte;
mod vm;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub use gcn::Access;
pub use vm::Vm;

use crate::chip::Chip;
use crate::hive::Hive;
use crate::hostile::translations::Translations;
use crate::hostile::Hostile;
use crate::ih::layout::{fault_data, vmc_source};
use crate::ih::{client, Claim, Interrupt, Node};
use crate::limited::Limited;
use crate::memory::{Memory, Physical};
use crate::preset::{Generation, Preset};
use hub::HubBlock;
use pte::{Entry, Mtype};

/// Names one of the page-table walkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hub {
    /// The graphics hub of one XCC.
    Gc(u8),
    /// The multimedia hub.
    Mm,
}

impl Hub {
    /// One number for it.
    const fn number(self) -> u32 {
        match self {
            Hub::Gc(xcc) => xcc as u32,
            Hub::Mm => 0xff,
        }
    }
}

/// Whether an access needs of a page what a write does.
pub const fn writes(access: Access) -> bool {
    matches!(access, Access::Write | Access::Atomic)
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
pub struct Refusal {
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
    /// Its entry has `AMDGPU_PTE_SNOOPED`, or there is none.
    pub snooped: bool,
    pub mtype: Mtype,
}

impl Translation {
    /// What a driver got wrong who left `AMDGPU_PTE_SNOOPED` out of the page's entry. In VMIDs of
    /// users amdgpu sets it for all memory of the system on all chips, and on GC 9.4.3, 9.4.4 and
    /// 9.5.0, discrete or APU, for all local memory, its own or a peer's, too
    /// (`gmc_v9_0_get_coherence_flags`; the C amdkfd's `svm_range_get_pte_flags`). On 9.4.2 its own
    /// local memory has it only with `connected_to_cpu`, which the model is not.
    ///
    /// VMID 0 says nothing: the GART's entries have it if the CPU's mapping is `ttm_cached`
    /// (`amdgpu_ttm_tt_pde_flags`), and memory of kernel queues is not (`CPU_GTT_USWC`).
    pub fn lacks_snooping(&self, generation: Generation, vmid: u8) -> Option<&'static str> {
        if self.snooped || vmid == 0 {
            return None;
        }
        match (self.at.memory, generation) {
            (Memory::System, _) => Some("system page without SNOOPED"),
            (Memory::Vram, Generation::Mi300) => Some("local page without SNOOPED"),
            (Memory::Vram, Generation::Mi200) => None,
        }
    }

    /// Whether the page allows it.
    pub const fn permits(&self, access: Access) -> bool {
        match access {
            Access::Read => self.readable,
            Access::Write | Access::Atomic => self.writable,
            Access::Fetch => self.executable,
        }
    }
}

/// GPUs that this process has made so far. Each counts its generations from a number of its own, so
/// that a generation says whose it is.
static GPUS: AtomicU64 = AtomicU64::new(1);

/// All hubs of one GPU.
pub struct Gmc {
    gc: Vec<Arc<HubBlock>>,
    mm: Arc<HubBlock>,
    generation: AtomicU64,
    reach: Reach,
    /// What the hubs keep, in hostile mode.
    kept: Option<Kept>,
    limited: Limited,
}

/// What each XCC's hub and the multimedia hub keep.
struct Kept {
    gc: Vec<Translations>,
    mm: Translations,
}

impl Kept {
    fn new(preset: &Preset, hostile: &Arc<Hostile>) -> Self {
        let hub = || Translations::new(hostile.clone());
        Self {
            gc: (0..preset.xccs).map(|_| hub()).collect(),
            mm: hub(),
        }
    }

    fn of(&self, hub: Hub) -> Option<&Translations> {
        match hub {
            Hub::Gc(xcc) => self.gc.get(usize::from(xcc)),
            Hub::Mm => Some(&self.mm),
        }
    }
}

/// The local memories that a GPU reaches by their addresses: its own, or those of all nodes of its
/// hive.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Its own place among them, and how many there are.
    pub node: u8,
    pub nodes: u8,
    /// Bytes of each.
    pub segment: u64,
}

impl Reach {
    /// Its own.
    pub const fn alone(vram_size: u64) -> Self {
        Self {
            node: 0,
            nodes: 1,
            segment: vram_size,
        }
    }

    /// All nodes'.
    pub fn of(hive: &Hive) -> Self {
        Self {
            node: hive.node(),
            nodes: hive.nodes(),
            segment: hive.segment(),
        }
    }

    /// Bytes of all.
    pub const fn bytes(self) -> u64 {
        self.segment * self.nodes as u64
    }
}

/// Addresses are 48 bits wide.
const VA_MASK: u64 = 0xffff_ffff_ffff;

impl Gmc {
    pub fn new(preset: &Preset, reach: Reach, hostile: Option<&Arc<Hostile>>) -> Self {
        let gc = (0..preset.xccs).map(|xcc| Arc::new(HubBlock::gc(preset, xcc, reach)));
        let mm = Arc::new(HubBlock::mm(preset, reach));
        Self {
            gc: gc.collect(),
            mm,
            generation: AtomicU64::new(GPUS.fetch_add(1, Ordering::Relaxed) << 40),
            reach,
            kept: hostile.map(|hostile| Kept::new(preset, hostile)),
            limited: Limited::default(),
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

    /// Changes whenever cached translations must be dropped. No other GPU of the process has the
    /// same.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Drops all cached translations of all hubs: for changes that no driver makes.
    pub fn invalidate(&self) {
        if let Some(kept) = &self.kept {
            kept.gc
                .iter()
                .chain([&kept.mm])
                .for_each(|hub| hub.invalidate(u16::MAX));
        }
        self.changed();
    }

    /// Drops those of the VMIDs of `mask` in one hub. Only hostile mode keeps the others.
    pub fn invalidate_vmids(&self, hub: Hub, mask: u16) {
        if let Some(kept) = self.kept.as_ref().and_then(|kept| kept.of(hub)) {
            kept.invalidate(mask);
        }
        self.changed();
    }

    /// What a driver has to follow by an invalidation has changed. All but hostile mode does not
    /// wait for it.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives `vmid` of one hub a page table.
    pub fn set_page_table(&self, hub: Hub, vmid: u8, base: u64) {
        if let Some(hub) = self.hub(hub) {
            hub.set_page_table(vmid, base);
        }
        self.changed();
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
    ) -> Result<Translation, Refusal> {
        let fault = |reason| Refusal {
            hub,
            vmid,
            va,
            access,
            reason,
        };
        if chip.inject.watches_addresses() && self.is_refused(chip, hub, vmid, va, access) {
            return Err(fault(FaultReason::Invalid));
        }
        let walk = |va| self.walk(chip, hub, vmid, va);
        let found = match self.kept.as_ref().and_then(|kept| kept.of(hub)) {
            Some(kept) => kept.lookup(vmid, va & VA_MASK, access, walk),
            None => walk(va & VA_MASK),
        };
        let found = found.map_err(fault)?;
        if !found.permits(access) {
            return Err(fault(FaultReason::Permission));
        }
        Ok(found)
    }

    /// Whether the fault injection takes the page away.
    fn is_refused(&self, chip: &Chip, hub: Hub, vmid: u8, va: u64, access: Access) -> bool {
        let pasid = chip.ih.pasid(hub, vmid);
        chip.inject.faults(vmid, pasid, va & VA_MASK, access)
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
        let segment = self.reach.segment;
        let length = (offset < self.reach.bytes()).then(|| segment - offset % segment);
        Ok(Translation {
            at: Physical {
                memory: Memory::Vram,
                address: offset,
            },
            length: length.ok_or(FaultReason::Bus)?,
            readable: true,
            writable: true,
            executable: true,
            snooped: true,
            mtype: Mtype::Uc,
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
        let at = Physical {
            address: table.address + index * 8,
            ..table
        };
        self.left(at)?;
        let raw = chip
            .memory(at.memory)
            .read_u64(at.address)
            .map_err(|_| FaultReason::Bus)?;
        Ok(Entry(raw))
    }

    /// Descends the directories to the entry that maps `va`, and says how many address bits it
    /// covers.
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
            // Where a block covers more than one table, its entries are leaves unless they say
            // "further".
            let further = if shift == 21 && context.block_size > 0 {
                entry.translate_further()
            } else {
                !entry.is_leaf()
            };
            if !further {
                return Ok((entry, shift));
            }
            table = entry.table().ok_or(FaultReason::Invalid)?;
            shift = next_level(shift)?;
        }
    }

    /// The entries that lead to a fault, from the root on, as they are now.
    fn path(&self, chip: &Chip, fault: &Refusal) -> String {
        let Some(context) = self.hub(fault.hub).map(|hub| hub.context(fault.vmid)) else {
            return "no such hub".into();
        };
        let mut path = format!("root {:#x}", context.base);
        // One flat table, or none: a context that nobody has set up since a reset.
        if context.depth == 0 {
            return path;
        }
        let (mut entry, mut shift) = (Entry(context.base), context.root_shift());
        while let Some(table) = entry.table() {
            let index = (fault.va & VA_MASK) >> shift & 0x1ff;
            let Ok(next) = self.entry(chip, table, index) else {
                break;
            };
            path += &format!(", [{index:#x}] {:#x}", next.0);
            if shift == 12 || !next.valid() || next.is_leaf() {
                break;
            }
            let Ok(below) = next_level(shift) else {
                break;
            };
            (entry, shift) = (next, below);
        }
        path
    }

    /// Whether the hub answers a failed translation with "try again" instead of an error: its
    /// context says so, the page may still come, and its entry does not forbid it.
    pub fn retries(&self, chip: &Chip, fault: &Refusal) -> bool {
        let Some(context) = self.hub(fault.hub).map(|hub| hub.context(fault.vmid)) else {
            return false;
        };
        let may_come = matches!(fault.reason, FaultReason::Invalid | FaultReason::Permission);
        if !context.retries || !may_come || context.depth == 0 {
            return false;
        }
        match self.tree_entry(chip, &context, fault.va & VA_MASK) {
            Ok((entry, _)) => !entry.forbids_retry(),
            Err(reason) => reason == FaultReason::Invalid,
        }
    }

    /// Bytes of memory from there on. Local memory may be smaller than the BAR, and than what the
    /// host has behind it.
    fn left(&self, at: Physical) -> Result<u64, FaultReason> {
        match at.memory {
            Memory::System => Ok(u64::MAX),
            Memory::Vram => match self.reach.bytes().saturating_sub(at.address) {
                0 => Err(FaultReason::Bus),
                left => Ok(left),
            },
        }
    }

    fn leaf(&self, entry: Entry, shift: u32, va: u64) -> Result<Translation, FaultReason> {
        if !entry.valid() {
            return Err(FaultReason::Invalid);
        }
        let inside = va & ((1 << shift) - 1);
        let at = Physical {
            memory: entry.memory(),
            address: entry.address() + inside,
        };
        Ok(Translation {
            at,
            length: self.left(at)?.min((1 << shift) - inside),
            readable: entry.readable(),
            writable: entry.writable(),
            executable: entry.executable(),
            snooped: entry.snooped(),
            mtype: entry.mtype(),
        })
    }

    /// Tells the driver of a fault that is final: status registers and an interrupt.
    /// `pasid`: whose it was, if the reporter knows better than the interrupt handler's table.
    pub fn report(&self, chip: &Chip, fault: &Refusal, pasid: Option<u16>) {
        let whose = fault.hub.number() << 8 | u32::from(fault.vmid);
        let path = self.path(chip, fault);
        // What ends at the root is told by itself: a process whose root was cleared shows so.
        let site = match path.matches('[').count() {
            1 => "page fault at the root",
            _ => "page fault",
        };
        if let Some(times) = self.limited.next(site, whose) {
            tracing::warn!(target: "gmc", times, "page fault: {fault} ({path})");
        }
        if let Some(hub) = self.hub(fault.hub) {
            hub.latch_fault(fault);
        }
        chip.ih.push(chip, interrupt_of(fault, pasid));
    }

    /// Tells the driver of an access that is repeated until its page is there: an interrupt, unless
    /// the interrupt handler's retry CAM knows that the driver has yet to see to the same page. The
    /// status registers do not change.
    pub fn report_retry(&self, chip: &Chip, fault: &Refusal, pasid: Option<u16>) {
        let mut interrupt = interrupt_of(fault, pasid);
        interrupt.data[1] |= fault_data::RETRY;
        match chip.ih.claim_retry(&interrupt) {
            Claim::Pending => return,
            Claim::New(index) => interrupt.data[2] = index.into(),
            Claim::Off => {}
        }
        tracing::debug!(target: "gmc", "retry fault: {fault} ({})", self.path(chip, fault));
        chip.ih.push(chip, interrupt);
    }
}

/// The interrupt of a fault that is not retried.
/// The shift of the table below one with `shift`. The guest's root chooses depth and block size so
/// that there may be none: then a walk ends there.
fn next_level(shift: u32) -> Result<u32, FaultReason> {
    let below = shift.checked_sub(9).filter(|below| *below >= 12);
    below.ok_or(FaultReason::Invalid)
}

fn interrupt_of(fault: &Refusal, pasid: Option<u16>) -> Interrupt {
    let (client, from_mm) = match fault.hub {
        Hub::Gc(_) => (client::UTCL2, false),
        Hub::Mm => (client::VMC, true),
    };
    let write = if writes(fault.access) {
        fault_data::WRITE
    } else {
        0
    };
    let page = (fault.va & VA_MASK) >> 12;
    Interrupt {
        client,
        source: vmc_source::VM_FAULT,
        ring_id: 0,
        vmid: fault.vmid,
        from_mm,
        pasid,
        node: Node::of(fault.hub).0,
        data: [page as u32, (page >> 32) as u32 & 0xf | write, 0, 0],
    }
}

#[cfg(test)]
mod tests;
