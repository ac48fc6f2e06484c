// SPDX-License-Identifier: GPL-2.0-only

//! Pages of a process's own memory, on a device that is not there: they are counted.

use super::*;
use crate::{
    ids::MemoryType,
    linux::hmm::HmmPfn, //
};
use kernel::time::{
    delay::fsleep,
    Delta, //
};

impl Fake {
    /// amdgpu has page tables out of VRAM, until somebody locks them.
    pub(crate) fn put_tables_out(&self) {
        self.live.lock().tables_out = true;
    }

    /// amdgpu has the page tables to itself, or lets them go.
    pub(crate) fn keep_tables(&self, kept: bool) {
        let mut live = self.live.lock();
        (live.tables_kept, live.tables_wanted) = (kept, false);
    }

    /// Whether there are page tables for all of these pages. `EINVAL` if not.
    fn check_reach(&self, first: u64, count: u64) -> Result {
        match first.checked_add(count) {
            Some(end) if end <= self.facts.max_pfn => Ok(()),
            _ => Err(EINVAL),
        }
    }
}

impl SharedMemory for Fake {
    fn lock_tables(&self, _vm: &VmHandle) -> Result {
        let mut live = self.live.lock();
        while live.tables_kept {
            live.tables_wanted = true;
            drop(live);
            fsleep(Delta::from_millis(1));
            live = self.live.lock();
        }
        live.table_locks += 1;
        live.tables_out = false;
        Ok(())
    }

    fn unlock_tables(&self, _vm: &VmHandle) {
        self.live.lock().table_locks -= 1;
    }

    fn make_tables(&self, _vm: &VmHandle, first: u64, count: u64) -> Result {
        self.check_reach(first, count)?;
        self.live.lock().tables_made += 1;
        Ok(())
    }

    fn map_pages(&self, _vm: &VmHandle, entries: NewEntries, addresses: &mut [u64]) -> Result {
        self.check_reach(entries.first, addresses.len() as u64)?;
        self.live.lock().shared_pages += addresses.len() as u64;
        Ok(())
    }

    fn sync_tables(&self, _vm: &VmHandle) -> Result {
        Ok(())
    }

    fn unmap_pages(&self, _vm: &VmHandle, first: u64, count: u64) -> Result {
        self.check_reach(first, count)?;
        // Those that nothing shows can be unmapped, too.
        let mut live = self.live.lock();
        if live.tables_out {
            return Err(EBUSY);
        }
        live.shared_pages = live.shared_pages.saturating_sub(count);
        Ok(())
    }

    fn set_owes(&self, _vm: &VmHandle, owes: bool) {
        let mut live = self.live.lock();
        if owes && core::mem::take(&mut live.out_until_told) {
            (live.tables_out, live.was_told) = (false, true);
        }
        live.owing = match owes {
            true => live.owing + 1,
            false => live.owing - 1,
        };
    }

    fn note_pages(&self, _vm: &VmHandle, first: u64, count: u64) -> Result {
        self.check_reach(first, count)?;
        let mut live = self.live.lock();
        live.noted_pages = live.noted_pages.saturating_add(count);
        Ok(())
    }

    fn dma_map(&self, pfns: &[HmmPfn], addresses: &mut [u64]) -> Result<bool> {
        for (address, pfn) in addresses.iter_mut().zip(pfns) {
            *address = (*pfn as u64) << 12;
        }
        self.live.lock().dma_pages += pfns.len() as u64;
        Ok(true)
    }

    fn dma_unmap(&self, addresses: &[u64]) {
        self.live.lock().dma_pages -=
            addresses.iter().filter(|address| **address != 0).count() as u64;
    }

    fn has_buffer(&self, _vm: &VmHandle, _first: u64, _count: u64) -> Result<bool> {
        Ok(false)
    }

    fn has_userptr(&self, _vm: &VmHandle, _first: u64, _count: u64) -> Result<bool> {
        Ok(false)
    }

    fn reserve_memory(&self, bytes: u64) -> Result {
        self.live.lock().reserved += bytes;
        Ok(())
    }

    fn unreserve_memory(&self, bytes: u64) {
        self.live.lock().reserved -= bytes;
    }

    fn fault_checkpoint(&self) -> u64 {
        0
    }

    fn is_fault_before(&self, timestamp: u64, checkpoint: u64) -> bool {
        timestamp <= checkpoint
    }

    fn forget_fault(&self, _page: u64, _pasid: Pasid) {}

    fn memory_partition(&self, _offset: u64) -> Option<i32> {
        None
    }

    fn device_memory_base(&self) -> u64 {
        0
    }

    fn local_memory_type(&self) -> MemoryType {
        MemoryType::ReadWrite
    }

    fn has_numa(&self) -> bool {
        false
    }

    fn default_granularity(&self) -> u8 {
        9
    }
}
