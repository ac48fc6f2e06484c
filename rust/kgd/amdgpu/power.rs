// SPDX-License-Identifier: GPL-2.0-only

//! Resets and sleep, and what becomes of amdgpu's copy engines.

use super::{
    c,
    to_result,
    Amdgpu, //
};
use crate::kgd::Power;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::prelude::*;

/// amdgpu's queues for clearing and moving the memory of a device.
///
/// # Invariants
///
/// The pointer came from `bridge_engines_begin`, and is given back by drop alone.
pub(super) struct Engines(NonNull<c::bridge_engines>);

// SAFETY: the C side locks what it keeps.
unsafe impl Send for Engines {}
// SAFETY: as above.
unsafe impl Sync for Engines {}

impl Engines {
    /// # Safety
    ///
    /// `adev` is a `struct amdgpu_device` that stays valid until the result is dropped.
    pub(super) unsafe fn new(adev: NonNull<c_void>) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: `adev` by this function's contract; `raw` is ours.
        to_result(unsafe { c::bridge_engines_begin(adev.as_ptr().cast(), &mut raw) })?;
        // INVARIANT: it has just been made.
        NonNull::new(raw).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; nobody uses `self` after drop.
        unsafe { c::bridge_engines_end(self.0.as_ptr()) };
    }
}

impl Power for Amdgpu {
    fn try_lock_reset(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_reset_trylock(self.adev()) }
    }

    fn unlock_reset(&self) {
        // SAFETY: By the type invariant, the device is valid, and locked by the caller (trait).
        unsafe { c::bridge_reset_unlock(self.adev()) };
    }

    fn in_reset(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_in_reset(self.adev()) }
    }

    fn has_fatal_error(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_has_fatal_error(self.adev()) }
    }

    fn request_reset(&self) {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_request_reset(self.adev()) };
    }

    fn is_suspending(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_is_suspending(self.adev()) }
    }

    fn resets_copy_engine(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_resets_copy_engine(self.adev()) }
    }

    fn halts_on_hang(&self) -> bool {
        // SAFETY: it reads one of amdgpu's variables, and amdgpu is loaded as long as there is a
        // device.
        unsafe { c::bridge_halts_on_hang() }
    }

    fn isolates(&self, partition: u32) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_isolates(self.adev(), partition) }
    }

    fn power_get(&self) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_power_get(self.adev()) })
    }

    fn power_put(&self) {
        // SAFETY: By the type invariant, the device is valid, and held awake by the caller (trait).
        unsafe { c::bridge_power_put(self.adev()) };
    }

    fn heal_engines(&self, wait: bool) -> u64 {
        // SAFETY: By the type invariant of `Engines`.
        unsafe { c::bridge_engines_heal(self.engines.0.as_ptr(), wait) }
    }

    fn heal_engines_soon(&self) {
        // SAFETY: By the type invariant of `Engines`.
        unsafe { c::bridge_engines_heal_soon(self.engines.0.as_ptr()) };
    }

    fn mark_moves(&self) -> u64 {
        // SAFETY: By the type invariant of `Engines`.
        unsafe { c::bridge_engines_mark(self.engines.0.as_ptr()) }
    }
}
