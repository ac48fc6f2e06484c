// SPDX-License-Identifier: GPL-2.0

//! A process's buffer as the kernel sees it: mapped while the [`KernelMapping`] lives.
//!
//! User space and the GPU may write it at the same time, so every access is one volatile load or
//! store, and there is never a reference into it.

use super::owned::Memory;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The mapping of a buffer in system memory. It keeps the buffer.
pub(crate) struct KernelMapping {
    base: NonNull<u8>,
    size: usize,
    memory: Arc<Memory>,
}

// SAFETY: The mapping is the kernel's, and any thread may access it word by word.
unsafe impl Send for KernelMapping {}
// SAFETY: As above.
unsafe impl Sync for KernelMapping {}

impl KernelMapping {
    /// Maps `memory`. `EINVAL` if it is not in system memory.
    pub(crate) fn new(memory: Arc<Memory>) -> Result<Self> {
        let (base, size) = memory.map_kernel()?;
        Ok(Self { base, size, memory })
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The buffer.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The word at byte `offset`, a multiple of 8. `EINVAL` beyond the end.
    #[inline]
    pub(crate) fn read_u64(&self, offset: usize) -> Result<u64> {
        let word = self.at(offset)?;
        // SAFETY: `at` checked range and alignment; the mapping lives as long as `self`.
        Ok(unsafe { word.read_volatile() })
    }

    /// Sets the word at byte `offset`, a multiple of 8. `EINVAL` beyond the end.
    #[inline]
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result {
        let word = self.at(offset)?;
        // SAFETY: `at` checked range and alignment; the mapping lives as long as `self`.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    #[inline]
    fn at(&self, offset: usize) -> Result<NonNull<u64>> {
        let fits = offset.checked_add(size_of::<u64>()).is_some_and(|end| end <= self.size);
        if !fits || offset % align_of::<u64>() != 0 {
            return Err(EINVAL);
        }
        // SAFETY: The word lies inside the mapping, which begins at a page.
        Ok(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for KernelMapping {
    fn drop(&mut self) {
        self.memory.unmap_kernel();
    }
}
