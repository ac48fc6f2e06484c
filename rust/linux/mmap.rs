// SPDX-License-Identifier: GPL-2.0-only

//! A user mapping under construction, and what a driver may put into it.
//!
//! One [`Vma`] exists during one `mmap` call (`struct file_operations`). It is of device memory,
//! and always has the flags that keep the mapping out of forks, core dumps and `mremap` growth. It
//! is empty at first: pages come when they are touched (`CharDevice::touched`), and come back so
//! when they were taken away. So nothing is in a mapping that cannot be found yet by who takes it
//! away.

use kernel::{
    bindings,
    error::to_result,
    mm::virt::VmaNew,
    prelude::*, //
};

/// A user mapping that is being set up.
#[repr(transparent)]
pub(crate) struct Vma(VmaNew);

impl Vma {
    /// The `VM_*` flags of a mapping that has no `struct page` behind it (`include/linux/mm.h`).
    const FLAGS: bindings::vm_flags_t = bindings::VM_IO
        | bindings::VM_DONTCOPY
        | bindings::VM_DONTEXPAND
        | bindings::VM_NORESERVE
        | bindings::VM_DONTDUMP
        | bindings::VM_PFNMAP;

    /// Takes the mapping that an `mmap` file operation was given.
    ///
    /// # Safety
    ///
    /// `vma` must be the argument of an `mmap` file operation that runs for the whole of `'a`.
    pub(super) unsafe fn from_raw<'a>(vma: *mut bindings::vm_area_struct) -> &'a Self {
        // SAFETY: `Vma` is transparent over `VmaNew`; the contracts are the same.
        unsafe { &*core::ptr::from_ref(VmaNew::from_raw(vma)).cast() }
    }

    /// The size of the mapping in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.end().wrapping_sub(self.0.start())
    }

    /// The `offset` argument of `mmap`, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: The mapping is under construction and ours alone (invariant of `VmaNew`).
        let pages = unsafe { (*self.0.as_ptr()).vm_pgoff };
        (pages as u64) << bindings::PAGE_SHIFT
    }

    /// Makes it as if that had been the `offset` argument, in bytes.
    pub(crate) fn set_offset(&self, offset: u64) {
        // SAFETY: The mapping is under construction and ours alone (invariant of `VmaNew`).
        // CAST: A 64-bit kernel.
        unsafe { (*self.0.as_ptr()).vm_pgoff = (offset >> bindings::PAGE_SHIFT) as c_ulong };
    }

    /// Whether writes go to a copy (`is_cow_mapping`): nobody rings a doorbell so.
    pub(super) fn is_copied_on_write(&self) -> bool {
        // CAST: Each fits.
        let both = (bindings::VM_SHARED | bindings::VM_MAYWRITE) as bindings::vm_flags_t;
        // SAFETY: The mapping is under construction and ours alone.
        let flags = unsafe { (*self.0.as_ptr()).__bindgen_anon_2.vm_flags };
        flags & both == bindings::VM_MAYWRITE as bindings::vm_flags_t
    }

    /// Makes it a mapping of device memory at bus address `phys`, uncached. `mark`: what
    /// [`super::chrdev::CharDevice::touched`] is to know of it.
    ///
    /// One that is copied on write is filled here, since pages cannot come one by one. It keeps
    /// them whatever is taken away; what is written to it reaches no device.
    pub(crate) fn map_io(&self, phys: u64, mark: u64) -> Result {
        let vma = self.0.as_ptr();
        // SAFETY: The mapping is under construction and ours alone, and this combination of flags
        // is the one of a device mapping.
        unsafe {
            (*vma).__bindgen_anon_2.vm_flags |= Self::FLAGS;
            // CAST: A 64-bit kernel.
            (*vma).vm_private_data = core::ptr::without_provenance_mut(mark as usize);
            super::ffi::amdkfd_map_uncached(vma);
        }
        if !self.is_copied_on_write() {
            return Ok(());
        }
        // SAFETY: The mapping is under construction, and its flags say PFNMAP.
        to_result(unsafe { super::ffi::amdkfd_map_io(vma, phys) })
    }
}
