// SPDX-License-Identifier: GPL-2.0

//! Pages of the kernel's that somebody else writes at the same time: a user mapping, or a device.
//!
//! Contiguous in physical memory, so that they can be mapped to user space in one go. Every access
//! is one volatile load or store of a 64-bit word; there is never a reference into the pages.

use core::ptr::NonNull;
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*, //
};

/// A power of two of pages, zeroed when made.
pub(crate) struct SharedPages {
    base: NonNull<u64>,
    order: u32,
}

// SAFETY: The pages belong to this value, and any thread may access them word by word.
unsafe impl Send for SharedPages {}
// SAFETY: As above.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Pages for at least `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let order = bytes
            .div_ceil(PAGE_SIZE)
            .next_power_of_two()
            .trailing_zeros();
        let flags = bindings::GFP_KERNEL | bindings::__GFP_ZERO;
        // SAFETY: Any flags and order may be asked for.
        let address = unsafe { bindings::get_free_pages_noprof(flags, order) };
        let base = NonNull::new(address as *mut u64).ok_or(ENOMEM)?;
        Ok(Self { base, order })
    }

    /// Bytes there are.
    pub(crate) fn size(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// Where they lie in physical memory.
    pub(crate) fn physical_address(&self) -> u64 {
        // SAFETY: Pages of the page allocator lie in the direct map.
        unsafe { super::ffi::amdkfd_virt_to_phys(self.base.as_ptr().cast()) }
    }

    /// Word `index`, or `None` beyond the end.
    #[inline]
    pub(crate) fn read(&self, index: usize) -> Option<u64> {
        // SAFETY: `at` checks the range; the pages live as long as `self`.
        self.at(index).map(|word| unsafe { word.read_volatile() })
    }

    /// Sets word `index`; beyond the end it does nothing.
    #[inline]
    pub(crate) fn write(&self, index: usize, value: u64) {
        if let Some(word) = self.at(index) {
            // SAFETY: `at` checks the range; the pages live as long as `self`.
            unsafe { word.write_volatile(value) };
        }
    }

    #[inline]
    fn at(&self, index: usize) -> Option<NonNull<u64>> {
        // SAFETY: The word lies inside the pages.
        (index < self.size() / size_of::<u64>()).then(|| unsafe { self.base.add(index) })
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: `new` took them; mappings of them are gone (see the owner).
        unsafe { bindings::free_pages(self.base.as_ptr() as usize, self.order) };
    }
}
