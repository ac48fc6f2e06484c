// SPDX-License-Identifier: GPL-2.0-only

//! Pages of a process's own memory: locked page tables, and addresses for a device.

use super::Vm;
use crate::{
    ids::Pasid,
    kgd::{
        NewEntries,
        PageAccess, //
    },
    linux::hmm::HmmPfn, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The page tables of a VM, locked until this is dropped.
pub(crate) struct Tables<'a>(&'a Vm);

impl Tables<'_> {
    /// Makes page tables for pages, at most 256, which are not mapped afterwards.
    pub(crate) fn make(&self, first: u64, count: u64) -> Result {
        self.0.kgd.make_tables(&self.0.raw, first, count)
    }

    /// Maps as many pages as there are addresses, at most 256, from `first` on. `replaces`: some of
    /// them may be mapped already, and a flush of the TLB will follow. Where there are tables, it
    /// allocates nothing.
    pub(crate) fn map(
        &self,
        first: u64,
        access: PageAccess,
        replaces: bool,
        addresses: &mut [u64],
    ) -> Result {
        let pages = NewEntries {
            first,
            access,
            replaces,
        };
        self.0.kgd.map_pages(&self.0.raw, pages, addresses)
    }
}

impl Drop for Tables<'_> {
    fn drop(&mut self) {
        self.0.kgd.unlock_tables(&self.0.raw);
    }
}

impl Vm {
    /// Locks its page tables, if they are in VRAM or can be brought there. `EBUSY`: not now.
    pub(crate) fn tables(&self) -> Result<Tables<'_>> {
        self.kgd.lock_tables(&self.raw)?;
        Ok(Tables(self))
    }

    /// Waits until its page tables are as they shall be, after [`Tables::map`].
    pub(crate) fn sync_pages(&self) -> Result {
        self.kgd.sync_tables(&self.raw)
    }

    /// Unmaps pages that [`Tables::map`] mapped. The TLB is the caller's to flush. Legal under
    /// reclaim. After an error they may be mapped still.
    pub(crate) fn unmap_pages(&self, first: u64, count: u64) -> Result {
        self.kgd.unmap_pages(&self.raw, first, count)
    }

    /// Pages that were to be unmapped are mapped still, in one part more (`owes`) or less: jobs of
    /// the render node in the VM are refused as long as there is one. Legal in any context.
    pub(crate) fn set_owes(&self, owes: bool) {
        self.kgd.set_owes(&self.raw, owes);
    }

    /// The process ends, and these pages may be mapped still: whoever else has the VM's file does
    /// not use them any more once the VM has been dropped. `ENOMEM`: he may.
    pub(crate) fn note_pages(&self, first: u64, count: u64) -> Result {
        self.kgd.note_pages(&self.raw, first, count)
    }

    /// Ends what [`DmaPages::exchange`] handed out; 0 is none.
    pub(crate) fn dma_unmap_pages(&self, addresses: &[u64]) {
        self.kgd.dma_unmap(addresses);
    }

    /// Whether a buffer is mapped among these pages.
    pub(crate) fn has_buffer(&self, first: u64, count: u64) -> Result<bool> {
        self.kgd.has_buffer(&self.raw, first, count)
    }

    /// Whether a buffer that is mapped shows (`USERPTR`) any of these pages of the process's.
    pub(crate) fn has_userptr(&self, first: u64, count: u64) -> Result<bool> {
        self.kgd.has_userptr(&self.raw, first, count)
    }

    /// The next fault of that page is told of again.
    pub(crate) fn forget_fault(&self, page: u64) {
        let pasid: Pasid = self.pasid;
        self.kgd.forget_fault(page, pasid);
    }
}

/// System pages with addresses for a VM's device, until this is dropped.
pub(crate) struct DmaPages {
    vm: Arc<Vm>,
    addresses: KVec<u64>,
    undo: bool,
}

impl DmaPages {
    /// Gives each page an address.
    pub(crate) fn new(vm: Arc<Vm>, pfns: &[HmmPfn]) -> Result<Self> {
        let mut addresses = KVec::from_elem(0, pfns.len(), GFP_KERNEL)?;
        let undo = vm.kgd.dma_map(pfns, &mut addresses)?;
        Ok(Self {
            vm,
            addresses,
            undo,
        })
    }

    /// As if so many pages had none: for those that are not the system's.
    pub(crate) fn none(vm: Arc<Vm>, count: usize) -> Result<Self> {
        let addresses = KVec::from_elem(0, count, GFP_KERNEL)?;
        let undo = false;
        Ok(Self {
            vm,
            addresses,
            undo,
        })
    }

    /// The addresses, one for each page.
    pub(crate) fn addresses(&mut self) -> &mut [u64] {
        &mut self.addresses
    }

    /// The device may use the addresses still, for good: they are not given back.
    pub(crate) fn leave(&mut self) {
        if self.undo {
            pr_warn!("{} addresses of a device stay in use\n", self.addresses.len());
            self.undo = false;
        }
    }

    /// Whether the addresses have to be given back some day.
    pub(crate) fn must_be_undone(&self) -> bool {
        self.undo
    }

    /// Leaves the addresses to the caller, for whom [`Vm::dma_unmap_pages`] ends them, and takes
    /// those that were there before; 0 is none.
    pub(crate) fn exchange(&mut self, stored: &mut [u64]) {
        for (stored, own) in stored.iter_mut().zip(&mut self.addresses) {
            core::mem::swap(stored, own);
        }
        self.undo = true;
    }
}

impl Drop for DmaPages {
    fn drop(&mut self) {
        if self.undo {
            self.vm.dma_unmap_pages(&self.addresses);
        }
    }
}
