// SPDX-License-Identifier: GPL-2.0-only

//! Checkpoints of the buffers of a device that is not there. There is no file of one.

use super::*;
use crate::kgd::Checkpoints;
use kernel::{
    fs::File,
    sync::aref::ARef, //
};

impl Fake {
    /// The next buffer that is to be unmapped is not: a queue uses it.
    pub(crate) fn keep_mapped(&self) {
        self.live.lock().keeps_mapped = true;
    }

    /// The next buffer that is freed is not: a signal comes.
    pub(crate) fn interrupt_free(&self) {
        self.live.lock().interrupts_free = true;
    }

    /// The kernel needs it no more: it moves from now on, whoever sees it.
    pub(super) fn let_go(&self, memory: &MemoryHandle) {
        let mut live = self.live.lock();
        live.kernel_maps -= 1;
        // SAFETY: the owner's; `live` keeps others out.
        live.lost_fences += u32::from(unsafe { buffer(memory) }.mapped != 0);
    }
}

impl Checkpoints for Fake {
    fn describe_memory(&self, memory: &MemoryHandle) -> Result<MemoryFacts> {
        let _live = self.live.lock();
        // SAFETY: the owner's; `live` keeps others out.
        Ok(unsafe { buffer(memory) }.facts)
    }

    fn is_mapped(&self, _vm: &VmHandle, memory: &MemoryHandle) -> bool {
        let _live = self.live.lock();
        // SAFETY: the owner's; `live` keeps others out.
        unsafe { buffer(memory) }.mapped != 0
    }

    fn export_file(&self, _memory: &MemoryHandle) -> Result<ARef<File>> {
        Err(EBADF)
    }

    fn distrust_pages(&self, _process: &ProcessHandle) {
        self.live.lock().distrusts = true;
    }

    fn trust_pages(&self, _process: &ProcessHandle) -> Result<bool> {
        match core::mem::take(&mut self.live.lock().distrusts) {
            true => Ok(true),
            false => Err(EINVAL),
        }
    }
}
