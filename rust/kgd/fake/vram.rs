// SPDX-License-Identifier: GPL-2.0-only

//! Device pages of the fake's: numbers of pages that are not there, and memory of the kernel's own
//! behind them. So they can be copied to and from, but not be in an address space.

use super::{
    super::{
        vram,
        CopyHandle,
        CopyPage,
        DeviceMemory,
        DevicePages,
        Direction,
        NewVram,
        VramHandle,
        MAX_PAGES, //
    },
    *, //
};
use crate::linux::migrate::{
    copy_page,
    DevicePage,
    PageOwner, //
};
use kernel::page::PAGE_SIZE;

/// The page at the begin of VRAM, a multiple of 2 MiB. Each buffer is at its begin.
const FIRST: usize = 1 << 40;

/// Whether a large folio begins there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Folio {
    #[default]
    None,
    /// One that somebody uses: it cannot be split.
    Used,
    Idle,
}

struct FakeVram {
    memory: VVec<u8>,
    pages: u32,
    /// Its pages lie one after the other.
    is_one: bool,
    cookie: NonNull<c_void>,
    wanted: bool,
}

impl Fake {
    /// Buffers can have large folios; whether one begins at the begin of VRAM.
    pub(crate) fn set_folio(&self, folio: Folio) {
        let mut live = self.live.lock();
        (live.has_large, live.folio) = (true, folio);
    }

    /// amdgpu wants the memory of a buffer, if its owner has not been told or has released it.
    pub(crate) fn want(&self, handle: &VramHandle) {
        // SAFETY: from `alloc_vram`, and not consumed yet; tests are of one thread.
        let vram = unsafe { handle.0.cast::<FakeVram>().as_mut() };
        if !core::mem::replace(&mut vram.wanted, true) {
            // SAFETY: the buffer is there.
            unsafe { vram::wanted(vram.cookie) };
        }
    }
}

impl DeviceMemory for Fake {
    fn has_pages(&self) -> bool {
        true
    }

    fn device_pages(&self) -> Result<DevicePages> {
        if self.facts().connected_to_cpu {
            return Err(EOPNOTSUPP);
        }
        Ok(DevicePages {
            first: DevicePage(FIRST),
            count: MAX_PAGES,
            owner: PageOwner::new(core::ptr::from_ref(self).cast()),
        })
    }

    fn alloc_vram(&self, new: NewVram, cookie: NonNull<c_void>) -> Result<VramHandle> {
        let pages = new.pages as usize;
        if pages == 0 || pages > MAX_PAGES {
            return Err(EINVAL);
        }
        let memory = VVec::from_elem(0, (pages + 1) * PAGE_SIZE, GFP_KERNEL)?;
        // Not under the lock, which notifiers take.
        let is_one = self.live.lock().has_large;
        let vram = VramHandle(own(FakeVram {
            memory,
            pages: new.pages,
            is_one,
            cookie,
            wanted: false,
        })?);
        self.live.lock().vrams += 1;
        Ok(vram)
    }

    fn vram_run(&self, handle: &VramHandle, index: u32) -> Option<(DevicePage, u32)> {
        // SAFETY: from `alloc_vram`, and not consumed yet; tests are of one thread.
        let vram = unsafe { handle.0.cast::<FakeVram>().as_ref() };
        let rest = vram.pages.checked_sub(index).filter(|rest| *rest > 0)?;
        // The last page is apart from the others, as it may be in VRAM.
        let is_apart = rest == 1 && !vram.is_one;
        let page = DevicePage(FIRST + index as usize + usize::from(is_apart));
        Some((
            page,
            if rest == 1 || vram.is_one {
                rest
            } else {
                rest - 1
            },
        ))
    }

    fn empty_vram(&self, handle: &VramHandle) {
        // SAFETY: from `alloc_vram`, and not consumed yet; tests are of one thread.
        unsafe { handle.0.cast::<FakeVram>().as_mut() }.wanted = true;
    }

    fn free_vram(&self, handle: VramHandle) {
        self.live.lock().vrams -= 1;
        // SAFETY: from `alloc_vram`, and consumed.
        drop(unsafe { take::<FakeVram>(handle.0) });
    }

    fn has_large_pages(&self) -> bool {
        self.live.lock().has_large
    }

    unsafe fn split_page(&self, page: DevicePage) -> Result {
        let mut live = self.live.lock();
        if page.0 != FIRST || live.folio == Folio::None {
            return Ok(());
        }
        if live.folio == Folio::Used {
            return Err(EAGAIN);
        }
        live.folio = Folio::None;
        Ok(())
    }

    fn vrams(&self) -> usize {
        self.live.lock().vrams as usize
    }

    unsafe fn begin_copy(
        &self,
        handle: &VramHandle,
        (direction, wait): (Direction, bool),
        pages: &[CopyPage],
    ) -> Result<CopyHandle> {
        let live = self.live();
        if live.late_copies > 0 {
            return Err(EIO);
        }
        if live.most_copies == live.copies && live.copies > 0 {
            // A test is one thread: nobody else ends one.
            return Err(if wait { EIO } else { EBUSY });
        }
        // SAFETY: from `alloc_vram`, and not consumed yet; tests are of one thread.
        let vram = unsafe { handle.0.cast::<FakeVram>().as_mut() };
        for page in pages {
            let start = page.device.wrapping_sub(FIRST).wrapping_mul(PAGE_SIZE);
            let memory = vram.memory.get_mut(start..).ok_or(EINVAL)?;
            let memory = memory.get_mut(..PAGE_SIZE).ok_or(EINVAL)?;
            let to_system = direction == Direction::ToSystem;
            // SAFETY: By this function's contract; the memory is a page's.
            unsafe { copy_page(page.system, memory.as_mut_ptr(), !to_system) };
        }
        let copy = CopyHandle(own(pages.len())?);
        self.live.lock().copies += 1;
        Ok(copy)
    }

    fn wait_copy(&self, _copy: &CopyHandle, _timeout_ms: u32) -> Result {
        if self.live.lock().stuck {
            return Err(errno::timer_expired());
        }
        Ok(())
    }

    fn end_copy(&self, copy: CopyHandle) {
        {
            let mut live = self.live.lock();
            live.copies -= 1;
            live.late_copies += u32::from(live.stuck);
        }
        // SAFETY: from `begin_copy`, and consumed.
        drop(unsafe { take::<usize>(copy.0) });
    }
}
