// SPDX-License-Identifier: GPL-2.0-only

//! What checkpoints of a process, and who restores one, need of its buffers.

use super::{
    MemoryHandle,
    ProcessHandle,
    VmHandle, //
};
use kernel::{
    fs::File,
    prelude::*,
    sync::aref::ARef, //
};

/// What a buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryFacts {
    /// Where GPUs see it.
    pub(crate) address: u64,
    /// Bytes of its memory. A ring of AQL packets is mapped twice in a row, and counts once.
    pub(crate) size: u64,
    /// `KFD_IOC_ALLOC_MEM_FLAGS_*`.
    pub(crate) flags: u32,
    /// For mmap on the DRM file.
    pub(crate) mmap_offset: u64,
    /// What the user's own memory (`USERPTR`) shows.
    pub(crate) user_address: u64,
}

/// Checkpoints of buffers.
pub(crate) trait Checkpoints {
    /// What a buffer is.
    fn describe_memory(&self, memory: &MemoryHandle) -> Result<MemoryFacts>;
    /// Whether it is mapped into this device's VM.
    fn is_mapped(&self, vm: &VmHandle, memory: &MemoryHandle) -> bool;
    /// A dma-buf of it.
    fn export_file(&self, memory: &MemoryHandle) -> Result<ARef<File>>;
    /// What the process's own memory (`USERPTR`) shows may not be there yet. The process's queues
    /// have to be off until it is trusted.
    fn distrust_pages(&self, process: &ProcessHandle);
    /// A worker of amdgpu's looks at all those pages, and then has the queues restored once.
    /// Whether that is for the caller: else amdgpu has stopped them before, does it for that, and
    /// the caller ends its own eviction. `EINVAL`: they are trusted, or the process has no VM.
    fn trust_pages(&self, process: &ProcessHandle) -> Result<bool>;
}
