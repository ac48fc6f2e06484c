// SPDX-License-Identifier: GPL-2.0-only

//! Device pages of an amdgpu device.

use super::{
    super::{
        vram,
        CopyHandle,
        CopyPage,
        DeviceMemory,
        DevicePages,
        Direction,
        NewVram,
        VramHandle, //
    },
    *, //
};
use crate::linux::migrate::{
    self,
    DevicePage,
    LargePlace,
    PageOwner, //
};
use kernel::sync::atomic::ordering::{
    Acquire,
    Relaxed,
    Release, //
};

fn raw(handle: &VramHandle) -> *mut c::bridge_vram {
    handle.0.as_ptr().cast()
}

fn raw_copy(handle: &CopyHandle) -> *mut c::bridge_copy {
    handle.0.as_ptr().cast()
}

impl DeviceMemory for Amdgpu {
    fn has_pages(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_has_vram_pages(self.adev()) }
    }

    fn device_pages(&self) -> Result<DevicePages> {
        let mut out = c::bridge_vram_pages::default();
        // SAFETY: By the type invariant, the device is valid; `out` is ours.
        to_result(unsafe { c::bridge_vram_pages(self.adev(), &mut out) })?;
        Ok(DevicePages {
            first: DevicePage(out.first),
            count: out.count,
            owner: PageOwner::new(out.owner),
        })
    }

    fn alloc_vram(&self, new: NewVram, cookie: NonNull<c_void>) -> Result<VramHandle> {
        let (cookie, mut out) = (cookie.as_ptr(), null_mut());
        // SAFETY: By the type invariant, the device is valid; `out` is ours.
        to_result(unsafe {
            c::bridge_vram_alloc(self.adev(), new.partition, new.pages, cookie, &mut out)
        })?;
        let vram = VramHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?);
        self.vrams.add(1, Relaxed);
        Ok(vram)
    }

    fn vram_run(&self, handle: &VramHandle, index: u32) -> Option<(DevicePage, u32)> {
        let mut first = 0;
        // SAFETY: By its invariant, the handle is live; `first` is ours.
        let count = unsafe { c::bridge_vram_run(raw(handle), index, &mut first) };
        (count > 0).then_some((DevicePage(first), count))
    }

    fn empty_vram(&self, handle: &VramHandle) {
        // SAFETY: By its invariant, the handle is live.
        unsafe { c::bridge_vram_is_empty(raw(handle)) };
    }

    fn free_vram(&self, handle: VramHandle) {
        // SAFETY: the handle is consumed here.
        unsafe { c::bridge_vram_free(raw(&handle)) };
        // Whoever sees this sees all that was done with the buffer.
        let _: usize = self.vrams.fetch_sub(1, Release);
    }

    fn has_large_pages(&self) -> bool {
        LargePlace::is_possible()
    }

    unsafe fn split_page(&self, page: DevicePage) -> Result {
        // SAFETY: By this function's contract.
        unsafe { migrate::split(page) }
    }

    fn vrams(&self) -> usize {
        self.vrams.load(Acquire)
    }

    unsafe fn begin_copy(
        &self,
        handle: &VramHandle,
        (direction, wait): (Direction, bool),
        pages: &[CopyPage],
    ) -> Result<CopyHandle> {
        let to_vram = direction == Direction::ToDevice;
        let count = u32::try_from(pages.len())?;
        let mut out = null_mut();
        // SAFETY: By its invariant, the handle is live; there are `count` pages, whose contract is
        // this function's; `out` is ours.
        to_result(unsafe {
            c::bridge_copy_begin(raw(handle), to_vram, wait, pages.as_ptr(), count, &mut out)
        })?;
        Ok(CopyHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?))
    }

    fn wait_copy(&self, copy: &CopyHandle, timeout_ms: u32) -> Result {
        // SAFETY: By its invariant, the handle is live.
        to_result(unsafe { c::bridge_copy_wait(raw_copy(copy), timeout_ms) })
    }

    fn end_copy(&self, copy: CopyHandle) {
        // SAFETY: the handle is consumed here.
        unsafe { c::bridge_copy_end(raw_copy(&copy)) };
    }
}

/// amdgpu wants the memory of a buffer.
///
/// # Safety
///
/// Only for `amdgpu_bridge_vram.c`; the contract is in `bridge.h`.
#[no_mangle]
unsafe extern "C" fn amdkfd_vram_wanted(cookie: *mut c_void) {
    if let Some(cookie) = NonNull::new(cookie) {
        // SAFETY: It is the cookie of a buffer that is not freed yet (bridge.h).
        unsafe { vram::wanted(cookie) };
    }
}

const _: unsafe extern "C" fn(*mut c_void) = c::amdkfd_vram_wanted;

/// What is left of ours in amdgpu when all buffers are gone: fences, and copies that do not end.
/// Dropped, it waits until that is gone too.
pub(crate) struct Remains(());

impl Remains {
    /// To be dropped when the module goes, after everything that makes buffers.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        // SAFETY: All buffers are gone: each has kept the module.
        unsafe { c::bridge_vram_drain() };
    }
}
