// SPDX-License-Identifier: GPL-2.0-only

//! For KUnit: an address space of the test's own thread, which it has until it ends
//! (`include/kunit/test.h`, `include/linux/mm.h`).

use core::ptr::null_mut;
use kernel::{
    bindings,
    prelude::*, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn kunit_attach_mm() -> c_int;
    fn vm_mmap(
        file: *mut bindings::file,
        address: c_ulong,
        length: c_ulong,
        protection: c_ulong,
        flags: c_ulong,
        offset: c_ulong,
    ) -> c_ulong;
    fn vm_munmap(start: c_ulong, length: usize) -> c_int;
}

/// `PROT_READ`, and with `PROT_WRITE`.
pub(crate) const READ_ONLY: c_ulong = 1;
pub(crate) const WRITABLE: c_ulong = 3;
/// `MAP_PRIVATE | MAP_ANONYMOUS`.
const FLAGS: c_ulong = 0x22;

/// Gives the thread an address space, if it has none yet. Panics if there is no memory.
pub(crate) fn attach() {
    // SAFETY: Only threads of tests come here.
    assert_eq!(unsafe { kunit_attach_mm() }, 0);
}

/// Maps new memory, which may be written, where [`map`] has returned memory that is unmapped now.
pub(crate) fn map_again(address: u64, bytes: usize) {
    /// And `MAP_FIXED`.
    const AT: c_ulong = FLAGS | 0x10;
    let (start, bytes) = (address as c_ulong, bytes as c_ulong);
    // SAFETY: Nothing lies there. CAST: addresses of this kernel's size.
    let found = unsafe { vm_mmap(null_mut(), start, bytes, WRITABLE, AT, 0) };
    assert_eq!(found, start);
}

/// Maps new memory, which nobody has touched; returns its address.
pub(crate) fn map(bytes: usize, protection: c_ulong) -> u64 {
    attach();
    // SAFETY: Nobody else maps anything in it. CAST: addresses of this kernel's size.
    unsafe { vm_mmap(null_mut(), 0, bytes as c_ulong, protection, FLAGS, 0) as u64 }
}

/// Unmaps pages that [`map`] has returned. Panics if the kernel refuses.
pub(crate) fn unmap(address: u64, bytes: usize) {
    // SAFETY: They are in the test's own address space, and nobody uses them. CAST: as above.
    assert_eq!(unsafe { vm_munmap(address as c_ulong, bytes) }, 0);
}
