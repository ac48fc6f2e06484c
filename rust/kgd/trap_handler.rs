// SPDX-License-Identifier: GPL-2.0-only

//! The trap handlers that come with the kernel source, by graphics core.

use crate::ids::IpVersion;
use core::ptr::NonNull;

unsafe extern "C" {
    fn amdkfd_trap_handler(gc_version: u32, words: *mut usize) -> *const u32;
}

/// The code of the trap handler that saves and restores waves of this graphics core.
pub(crate) fn trap_handler(gc: IpVersion) -> Option<&'static [u32]> {
    let packed = u32::from_be_bytes([gc.major, gc.minor, gc.revision, 0]);
    let mut words = 0;
    // SAFETY: `words` may be written.
    let code = unsafe { amdkfd_trap_handler(packed, &mut words) };
    let code = NonNull::new(code.cast_mut())?;
    // SAFETY: The function returns a static constant array and its length.
    Some(unsafe { core::slice::from_raw_parts(code.as_ptr(), words) })
}
