// SPDX-License-Identifier: GPL-2.0-only

//! The trap handlers that come with the kernel source, by graphics core.

#[cfg(CONFIG_KUNIT = "y")]
use super::bindings::bridge_has_hardware;
use crate::ids::IpVersion;
use core::ptr::NonNull;

unsafe extern "C" {
    fn amdkfd_trap_handler(gc_version: u32, words: *mut usize) -> *const u32;
}

/// A graphics core as C's switches have it.
fn packed(gc: IpVersion) -> u32 {
    u32::from_be_bytes([gc.major, gc.minor, gc.revision, 0])
}

/// Whether C has what it takes to drive this graphics core: amdgpu's hardware access, and a trap
/// handler.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn is_known_to_c(gc: IpVersion) -> bool {
    // SAFETY: the function reads nothing but its argument.
    let has_hardware = unsafe { bridge_has_hardware(packed(gc)) };
    assert_eq!(has_hardware, trap_handler(gc).is_some());
    has_hardware
}

/// The code of the trap handler that saves and restores waves of this graphics core.
pub(crate) fn trap_handler(gc: IpVersion) -> Option<&'static [u32]> {
    let packed = packed(gc);
    let mut words = 0;
    // SAFETY: `words` may be written.
    let code = unsafe { amdkfd_trap_handler(packed, &mut words) };
    let code = NonNull::new(code.cast_mut())?;
    // SAFETY: The function returns a static constant array and its length.
    Some(unsafe { core::slice::from_raw_parts(code.as_ptr(), words) })
}
