// SPDX-License-Identifier: GPL-2.0-only

//! Pages of a process's own memory in the VMs of an amdgpu device.

use super::*;
use crate::{
    ids::MemoryType,
    linux::hmm::HmmPfn, //
};

const fn raw(memory_type: MemoryType) -> u32 {
    match memory_type {
        MemoryType::Uncached => c::BRIDGE_MEMORY_UC,
        MemoryType::NonCoherent => c::BRIDGE_MEMORY_NC,
        MemoryType::CoherentlyCached => c::BRIDGE_MEMORY_CC,
        MemoryType::ReadWrite => c::BRIDGE_MEMORY_RW,
    }
}

impl SharedMemory for Amdgpu {
    fn lock_tables(&self, handle: &VmHandle) -> Result {
        // SAFETY: By the invariants of this type and of handles, both are live.
        to_result(unsafe { c::bridge_pages_lock(self.adev(), vm(handle)) })
    }

    fn unlock_tables(&self, handle: &VmHandle) {
        // SAFETY: By its invariant, the handle is live; locked by the caller (trait).
        unsafe { c::bridge_pages_unlock(vm(handle)) };
    }

    fn make_tables(&self, handle: &VmHandle, first: u64, count: u64) -> Result {
        // SAFETY: By the invariants of this type and of handles, both are live; locked by the
        // caller (trait).
        to_result(unsafe { c::bridge_pages_make_tables(self.adev(), vm(handle), first, count) })
    }

    fn map_pages(
        &self,
        handle: &VmHandle,
        entries: NewEntries,
        addresses: &mut [u64],
    ) -> Result {
        let access = entries.access;
        let pages = c::bridge_pages {
            first: entries.first,
            count: u32::try_from(addresses.len())?,
            memory_type: raw(access.memory_type),
            system: access.system,
            snooped: access.snooped,
            writable: access.writable,
            executable: access.executable,
            replaces: entries.replaces,
        };
        let addresses = addresses.as_mut_ptr();
        // SAFETY: By the invariants of this type and of handles, both are live; locked by the
        // caller (trait); there are `pages.count` addresses.
        to_result(unsafe { c::bridge_pages_map(self.adev(), vm(handle), &pages, addresses) })
    }

    fn sync_tables(&self, handle: &VmHandle) -> Result {
        // SAFETY: By its invariant, the handle is live.
        to_result(unsafe { c::bridge_pages_sync(vm(handle)) })
    }

    fn unmap_pages(&self, handle: &VmHandle, first: u64, count: u64) -> Result {
        // SAFETY: By the invariants of this type and of handles, both are live.
        to_result(unsafe { c::bridge_pages_unmap(self.adev(), vm(handle), first, count) })
    }

    fn set_owes(&self, handle: &VmHandle, owes: bool) {
        // SAFETY: By its invariant, the handle is live.
        unsafe { c::bridge_pages_set_owes(vm(handle), owes) };
    }

    fn note_pages(&self, handle: &VmHandle, first: u64, count: u64) -> Result {
        // SAFETY: By its invariant, the handle is live.
        to_result(unsafe { c::bridge_pages_note(vm(handle), first, count) })
    }

    fn dma_map(&self, pfns: &[HmmPfn], addresses: &mut [u64]) -> Result<bool> {
        let addresses = addresses.get_mut(..pfns.len()).ok_or(EINVAL)?;
        let (count, mut undo) = (u32::try_from(pfns.len())?, false);
        let (from, to) = (pfns.as_ptr(), addresses.as_mut_ptr());
        // SAFETY: By the type invariant, the device is valid; there are `count` of both, and `undo`
        // is ours.
        to_result(unsafe { c::bridge_pages_dma_map(self.adev(), from, count, to, &mut undo) })?;
        Ok(undo)
    }

    fn dma_unmap(&self, addresses: &[u64]) {
        // CAST: at most as many as were mapped.
        let count = addresses.len() as u32;
        // SAFETY: By the type invariant, the device is valid; there are `count` addresses.
        unsafe { c::bridge_pages_dma_unmap(self.adev(), addresses.as_ptr(), count) };
    }

    fn has_buffer(&self, handle: &VmHandle, first: u64, count: u64) -> Result<bool> {
        // SAFETY: By its invariant, the handle is live.
        let found = unsafe { c::bridge_pages_have_buffer(vm(handle), first, count) };
        to_result(found.min(0))?;
        Ok(found != 0)
    }

    fn has_userptr(&self, handle: &VmHandle, first: u64, count: u64) -> Result<bool> {
        // SAFETY: By its invariant, the handle is live.
        let found = unsafe { c::bridge_pages_have_userptr(vm(handle), first, count) };
        to_result(found.min(0))?;
        Ok(found != 0)
    }

    fn reserve_memory(&self, bytes: u64) -> Result {
        // SAFETY: amdgpu is loaded as long as there is a device.
        to_result(unsafe { c::bridge_pages_reserve(bytes) })
    }

    fn unreserve_memory(&self, bytes: u64) {
        // SAFETY: As above; `bytes` were reserved (trait).
        unsafe { c::bridge_pages_unreserve(bytes) };
    }

    fn fault_checkpoint(&self) -> u64 {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_fault_checkpoint(self.adev()) }
    }

    fn is_fault_before(&self, timestamp: u64, checkpoint: u64) -> bool {
        // SAFETY: It compares numbers.
        unsafe { c::bridge_fault_is_before(timestamp, checkpoint) }
    }

    fn forget_fault(&self, page: u64, pasid: Pasid) {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_fault_forget(self.adev(), page, pasid.raw()) };
    }

    fn memory_partition(&self, offset: u64) -> Option<i32> {
        // SAFETY: By the type invariant, the device is valid.
        let partition = unsafe { c::bridge_memory_partition(self.adev(), offset) };
        (partition >= 0).then_some(partition)
    }

    fn device_memory_base(&self) -> u64 {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_device_memory_base(self.adev()) }
    }

    fn local_memory_type(&self) -> MemoryType {
        // SAFETY: It reads one of amdgpu's variables, and amdgpu is loaded as long as there is a
        // device.
        match unsafe { c::bridge_local_memory_type() } {
            c::BRIDGE_MEMORY_NC => MemoryType::NonCoherent,
            c::BRIDGE_MEMORY_CC => MemoryType::CoherentlyCached,
            _ => MemoryType::ReadWrite,
        }
    }

    fn has_numa(&self) -> bool {
        // SAFETY: It reads a variable of the kernel's.
        unsafe { c::bridge_has_numa() }
    }

    fn default_granularity(&self) -> u8 {
        // SAFETY: It reads one of amdgpu's variables, as above. CAST: It is at most 0x1b.
        unsafe { c::bridge_default_granularity() as u8 }
    }
}
