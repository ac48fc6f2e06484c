// SPDX-License-Identifier: GPL-2.0-only

//! Checkpoints of buffers.

use super::{
    Memory,
    MemoryContext,
    Vm, //
};
use crate::kgd::MemoryFacts;
use kernel::{
    fs::File,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        Arc, //
    },
};

impl MemoryContext {
    /// What the process's own memory (`USERPTR`) shows may not be there yet. The process's queues
    /// have to be off until it is trusted.
    pub(crate) fn distrust_pages(&self) {
        self.kgd.distrust_pages(&self.raw);
    }

    /// amdgpu looks at all those pages, and then has the queues restored once. Whether that is for
    /// the caller: else it does so for an eviction of its own, and the caller has to end the one
    /// that it has begun. `EINVAL`: they are trusted, or the process has no VM.
    pub(crate) fn trust_pages(&self) -> Result<bool> {
        self.kgd.trust_pages(&self.raw)
    }
}

impl Vm {
    /// Whether a buffer is mapped here.
    pub(crate) fn shows(&self, memory: &Memory) -> bool {
        self.kgd.is_mapped(&self.raw, &memory.raw)
    }
}

impl Memory {
    /// As [`Memory::alloc`], but the pages that the user's own memory shows need not be there
    /// before [`MemoryContext::trust_pages`].
    pub(crate) fn restore(
        vm: Arc<Vm>,
        place: (u64, u64),
        size: u64,
        offset: u64,
        flags: u32,
    ) -> Result<Self> {
        let kgd = &vm.kgd;
        let new = kgd.alloc_memory(&vm.raw, place.0, size, offset, flags, true)?;
        Ok(Self::own(vm, new, place, false))
    }

    /// What it is.
    pub(crate) fn facts(&self) -> Result<MemoryFacts> {
        self.vm.kgd.describe_memory(&self.raw)
    }

    /// A dma-buf of it. Nobody frees it meanwhile.
    pub(crate) fn export_file(&self) -> Result<ARef<File>> {
        self.may_have_another.store(true, Relaxed);
        self.vm.kgd.export_file(&self.raw)
    }
}
