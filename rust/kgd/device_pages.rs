// SPDX-License-Identifier: GPL-2.0-only

//! A device's own memory as pages of processes: device pages, which the processor cannot reach.
//!
//! The pages are amdgpu's: there is one for each of VRAM, whoever uses it. A buffer of ours has
//! some of them, and the device copies between these and system memory. See
//! [`Vram`](super::Vram).

use super::{
    bindings::BRIDGE_MAX_COPY,
    CopyHandle,
    VramHandle, //
};
use crate::linux::migrate::{
    DevicePage,
    PageOwner, //
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// The most pages that a buffer has, and that are copied at once.
pub(crate) const MAX_PAGES: usize = BRIDGE_MAX_COPY as usize;

/// The device pages of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevicePages {
    /// That at the begin of VRAM.
    pub(crate) first: DevicePage,
    pub(crate) count: usize,
    /// Whose they are.
    pub(crate) owner: PageOwner,
}

/// A buffer that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVram {
    /// amdgpu's number of the partition; -1: the device has none.
    pub(crate) partition: i32,
    /// At most [`MAX_PAGES`].
    pub(crate) pages: u32,
}

/// Which way is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From system memory.
    ToDevice,
    /// To system memory.
    ToSystem,
}

pub(crate) use super::bindings::bridge_copy_page as CopyPage;

/// Memory of the device for pages of processes.
pub(crate) trait DeviceMemory {
    /// amdgpu has made pages of its memory, if only such as the CPU reaches: those of a device that
    /// xGMI connects with it (`MEMORY_DEVICE_COHERENT`), which nothing moves into here.
    fn has_pages(&self) -> bool;
    /// `EOPNOTSUPP`: there are none that the CPU cannot reach.
    fn device_pages(&self) -> Result<DevicePages>;
    /// Makes a buffer. In its pages is what somebody left there: each is copied to before anybody
    /// sees it. amdgpu may evict other such buffers for it. From now on, until the buffer is empty
    /// or freed, amdgpu may say that it wants the memory, by `cookie` (see [`Vram`](super::Vram)).
    /// `ERESTARTSYS`: the calling task has a signal.
    fn alloc_vram(&self, new: NewVram, cookie: NonNull<c_void>) -> Result<VramHandle>;
    /// The page of a buffer's at that place, and how many follow each other from it on. `None`: it
    /// has no such place.
    fn vram_run(&self, vram: &VramHandle, index: u32) -> Option<(DevicePage, u32)>;
    /// Nobody uses a page of it, nor will: amdgpu may have the memory. Never sleeps.
    fn empty_vram(&self, vram: &VramHandle);
    /// Gives it back. May be empty or not.
    fn free_vram(&self, vram: VramHandle);
    /// Whether device pages can be those of large folios.
    fn has_large_pages(&self) -> bool;
    /// Has the kernel make single pages of the large folio that begins with this page. Waits for
    /// the folio's lock. `EAGAIN`, `EBUSY`: it cannot at the moment. Does nothing if there is none.
    ///
    /// # Safety
    ///
    /// It is a page of the device's.
    unsafe fn split_page(&self, page: DevicePage) -> Result;
    /// How many buffers have not been given back. Once it is 0, nobody looks at a page of the
    /// device's any more, unless somebody makes a buffer.
    fn vrams(&self) -> usize;
    /// Begins to copy pages of a buffer, at most [`MAX_PAGES`]. System pages that are read must not
    /// change until the copy ends. Allocates; no lock of ours that reclaim takes may be held.
    /// Of one device so many go on at a time: then this waits (`wait`) until one has been
    /// [let go of](DeviceMemory::end_copy), or says `EBUSY`. `ENODEV`: the device sleeps, is gone,
    /// or takes no copies to its memory any more. `EAGAIN`: it is being reset. `EIO`: a copy of the
    /// device's that did not end in its time has not ended yet, or others have kept this one from
    /// beginning for 10 s.
    ///
    /// # Safety
    ///
    /// The system pages stay until this returns; it references them for as long as the copy goes
    /// on, and nobody else accesses those that are written to meanwhile.
    unsafe fn begin_copy(
        &self,
        vram: &VramHandle,
        how: (Direction, bool),
        pages: &[CopyPage],
    ) -> Result<CopyHandle>;
    /// Waits until a copy ends, but not longer. `ETIME`: it has not. Another error: it has, and
    /// what was copied is not good.
    fn wait_copy(&self, copy: &CopyHandle, timeout_ms: u32) -> Result;
    /// Lets go of a copy. If it has not ended, what it uses is kept until it has.
    fn end_copy(&self, copy: CopyHandle);
}
