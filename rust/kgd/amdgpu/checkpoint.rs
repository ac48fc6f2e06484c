// SPDX-License-Identifier: GPL-2.0-only

//! Checkpoints of the buffers of an amdgpu device.

use super::*;
use crate::kgd::{
    Checkpoints,
    MemoryFacts, //
};
use kernel::{
    fs::File,
    sync::aref::ARef, //
};

impl Checkpoints for Amdgpu {
    fn describe_memory(&self, memory: &MemoryHandle) -> Result<MemoryFacts> {
        let mut out = c::bridge_memory_facts::default();
        // SAFETY: By its invariant, the buffer is live; `out` is ours.
        to_result(unsafe { c::bridge_memory_describe(mem(memory), &mut out) })?;
        Ok(MemoryFacts {
            address: out.address,
            size: out.size,
            flags: out.flags,
            mmap_offset: out.mmap_offset,
            user_address: out.user_address,
        })
    }

    fn is_mapped(&self, handle: &VmHandle, memory: &MemoryHandle) -> bool {
        // SAFETY: By their invariants, VM and buffer are live.
        unsafe { c::bridge_memory_is_mapped(vm(handle), mem(memory)) }
    }

    fn export_file(&self, memory: &MemoryHandle) -> Result<ARef<File>> {
        let mut out = null_mut();
        // SAFETY: By its invariant, the buffer is live; `out` is ours.
        to_result(unsafe { c::bridge_memory_export_file(mem(memory), &mut out) })?;
        let file = NonNull::new(out).ok_or(ENOMEM)?;
        // SAFETY: The file's reference is ours, and nobody has a descriptor of it yet, so nobody
        // has looked it up without one. `File` is transparent.
        Ok(unsafe { ARef::from_raw(file.cast()) })
    }

    fn distrust_pages(&self, handle: &ProcessHandle) {
        // SAFETY: By its invariant, the handle is live.
        unsafe { c::bridge_process_distrust_pages(process(handle)) };
    }

    fn trust_pages(&self, handle: &ProcessHandle) -> Result<bool> {
        let mut restores = false;
        // SAFETY: By its invariant, the handle is live; `restores` is ours.
        to_result(unsafe { c::bridge_process_trust_pages(process(handle), &mut restores) })?;
        Ok(restores)
    }
}
