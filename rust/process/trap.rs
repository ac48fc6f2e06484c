// SPDX-License-Identifier: GPL-2.0-only

//! The driver's trap handler in a process's address space: one [`TrapMemory`] for each process and
//! GPU with wave save and restore (CWSR: compute wave save and restore).
//!
//! Waves of a queue that leaves the hardware enter it and save themselves. A trap that is none of
//! its business it passes on to the user's handler, whose addresses it finds in its memory. It lies
//! at the top of the address space, where no allocation of the user's can be.

use super::device::TrapHandler;
use crate::{
    kgd::{
        gpu_err,
        KernelMapping,
        Memory,
        Vm, //
    },
    uapi::{
        KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE,
        KFD_IOC_ALLOC_MEM_FLAGS_GTT,
        KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// `AMDGPU_GPU_PAGE_SIZE`: what the code may fill.
const PAGE: usize = 4096;
/// `KFD_CWSR_TBA_TMA_SIZE`: a page of code, a page of data.
const BYTES: usize = 2 * PAGE;
/// `KFD_CWSR_TMA_OFFSET`: where the data begins.
const DATA: usize = PAGE + 2048;

/// Code and data of the trap handler.
pub(super) struct TrapMemory {
    /// `None` only while dropping: the kernel's mapping goes before the GPU's.
    mapping: Option<KernelMapping>,
    memory: Arc<Memory>,
    vm: Arc<Vm>,
    address: u64,
}

impl TrapMemory {
    /// Puts `code` at `address` in the VM. `EINVAL` if it is more than a page.
    pub(super) fn new(vm: &Arc<Vm>, address: u64, code: &[u32]) -> Result<Self> {
        if size_of_val(code) > PAGE {
            return Err(EINVAL);
        }
        let flags = KFD_IOC_ALLOC_MEM_FLAGS_GTT
            | KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
            | KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE;
        let bytes = BYTES as u64;
        let memory = Memory::alloc(vm.clone(), (address, bytes), bytes, 0, flags)?;
        let memory = Arc::new(memory, GFP_KERNEL)?;
        vm.map(&memory)?;
        // From here on, dropping it unmaps it.
        let mut this = Self {
            mapping: None,
            memory,
            vm: vm.clone(),
            address,
        };
        this.memory.sync(true)?;
        let mapping = KernelMapping::new(this.memory.clone())?;
        for (index, pair) in code.chunks(2).enumerate() {
            let [low, high] = [pair.first(), pair.get(1)].map(|word| word.map_or(0, |word| *word));
            mapping.write_u64(index * 8, u64::from(high) << 32 | u64::from(low))?;
        }
        this.mapping = Some(mapping);
        Ok(this)
    }

    /// The handler for the hardware.
    pub(super) fn handler(&self) -> TrapHandler {
        TrapHandler {
            tba: self.address,
            tma: self.address + DATA as u64,
        }
    }

    /// Tells the handler of the user's.
    pub(super) fn set_second_level(&self, user: TrapHandler) {
        let Some(mapping) = &self.mapping else {
            return;
        };
        // Cannot fail: the offsets lie inside.
        let _ = mapping.write_u64(DATA, user.tba);
        let _ = mapping.write_u64(DATA + 8, user.tma);
    }

    /// Tells the handler whether there is a debugger, for which it keeps dispatch information and
    /// stops waves.
    pub(super) fn set_debug_flag(&self, on: bool) {
        if let Some(mapping) = &self.mapping {
            // Cannot fail: the offset lies inside.
            let _ = mapping.write_u64(DATA + 16, on.into());
        }
    }
}

impl Drop for TrapMemory {
    fn drop(&mut self) {
        drop(self.mapping.take());
        // It goes on where something else could not be had for its VM.
        if let Err(error) = self.vm.unmap_at_end(&self.memory, false) {
            let (pid, name) = (self.vm.task().pid, self.vm.pci_name());
            gpu_err!(
                name,
                "process {pid}: cannot unmap the trap handler: {error:?}\n"
            );
        }
    }
}
