// SPDX-License-Identifier: GPL-2.0-only

//! Buffers of device pages, and the copies from and to them.
//!
//! A [`Vram`] is shared: its [owner](VramOwner) has it as long as it wants new pages in it, and
//! each page that is out, in an address space, refers to it. So it goes when the owner has let it
//! go and its pages are gone. Its owner stays as long as it does.

use super::super::{
    CopyHandle,
    CopyPage,
    Direction,
    Kgd,
    NewVram,
    VramHandle,
    MAX_PAGES, //
};
use crate::linux::{
    errno,
    migrate::{
        self,
        DevicePage,
        Fault,
        LargePlace,
        Migration,
        SystemPage,
        LARGE_PAGES, //
    },
    spinlock::{
        new_irq_spinlock,
        IrqSpinLock, //
    },
    workqueue::{
        Deferrable,
        DeferredArc,
        OwnedQueue, //
    },
};
use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// What became of a fault of the processor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEnd {
    /// The page is in system memory, or it is to be tried again.
    Done,
    /// There was no memory.
    NoMemory,
    /// What was in the page is lost.
    Lost,
}

/// Whose buffer it is.
pub(crate) trait VramOwner: Send + Sync {
    /// amdgpu wants the memory: the owner is to move all pages into system memory and then to say
    /// so ([`Vram::release`]). Interrupts are off and a fence's lock is held. At most once.
    ///
    /// Whoever wants it waits for that, 15 s at most, with amdgpu's reservation of the buffer held,
    /// and may hold mmap_lock and whatever else was held when memory was asked for.
    fn wanted(self: Arc<Self>);

    /// The processor has touched a page, of any address space. mmap_lock is held; the page is
    /// locked. [`Migration::from_fault`] moves it.
    fn fault(self: Arc<Self>, fault: &Fault<'_>, page: u32) -> FaultEnd;

    /// The last page that was out is free again: nobody refers to one, or only to what was taken
    /// since. Atomic, and anywhere: it may run in what the owner itself calls of a [`Migration`],
    /// its commit and its drop among it.
    fn freed(self: Arc<Self>);
}

/// Pages of a buffer that lie one after the other.
#[derive(Clone, Copy)]
struct Run {
    first: usize,
    index: u32,
    count: u32,
}

/// Which pages are out.
struct Taken {
    pages: [u64; MAX_PAGES / 64],
    count: u32,
    /// All were taken for a large folio, which nobody has had split since.
    whole: bool,
    /// No page is taken any more: the memory may be amdgpu's, or a copy into it was given up that
    /// goes on.
    closed: bool,
}

impl Taken {
    fn place(&mut self, page: u32) -> (&mut u64, u64) {
        let bit = 1 << (page % 64);
        (&mut self.pages[page as usize / 64 % (MAX_PAGES / 64)], bit)
    }

    /// Adds a page, or all. Whether it is the first.
    fn add(&mut self, page: u32, count: u32) -> Result<bool> {
        if self.closed {
            return Err(EBUSY);
        }
        let first = self.count == 0;
        if count > 1 {
            if !first {
                return Err(EEXIST);
            }
            self.pages = [!0; MAX_PAGES / 64];
            self.whole = true;
        } else {
            let (word, bit) = self.place(page);
            if *word & bit != 0 {
                return Err(EEXIST);
            }
            *word |= bit;
        }
        self.count += count;
        Ok(first)
    }

    /// Removes pages. Whether they were the last.
    fn remove(&mut self, page: u32, count: u32) -> bool {
        for page in page..page + count {
            let (word, bit) = self.place(page);
            *word &= !bit;
        }
        self.count -= count;
        self.whole &= self.count != 0;
        self.count == 0
    }
}

/// The buffer as the device made it.
///
/// # Invariants
///
/// amdgpu knows it by the address of `owner`, which is in its box for as long.
struct Buffer {
    // Given back by `drop`, before the owner goes.
    raw: ManuallyDrop<VramHandle>,
    kgd: Arc<dyn Kgd>,
    owner: KBox<Arc<dyn VramOwner>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `raw` is taken here only, and nobody uses `self` after drop.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        self.kgd.free_vram(raw);
    }
}

/// A buffer of device pages.
///
/// # Invariants
///
/// `runs` lists the buffer's pages, each once, and these are device pages of the device. A page
/// that is taken is out, and all that are have one reference of this buffer; another one is in
/// nobody's use. If there is a place for a large folio's owner the pages are those of one.
#[pin_data]
pub(crate) struct Vram {
    // Before the buffer: then the memory may be another one's.
    large: Option<LargePlace>,
    buffer: Buffer,
    runs: KVec<Run>,
    count: u32,
    first: usize,
    #[pin]
    taken: IrqSpinLock<Taken>,
}

impl Deferrable for Vram {}

/// The runs of so many pages. `run_at`: the page at a place, and how many follow each other from it
/// on.
fn runs_of(pages: u32, run_at: impl Fn(u32) -> Option<(DevicePage, u32)>) -> Result<KVec<Run>> {
    let mut runs: KVec<Run> = KVec::new();
    let mut index = 0;
    while index < pages {
        let (DevicePage(first), count) = run_at(index).ok_or(EINVAL)?;
        let count = count.clamp(1, pages - index);
        match runs.last_mut() {
            Some(run) if run.first + run.count as usize == first => run.count += count,
            _ => {
                let run = Run {
                    first,
                    index,
                    count,
                };
                runs.push(run, GFP_KERNEL)?;
            }
        }
        index += count;
    }
    Ok(runs)
}

impl Vram {
    /// Makes one. It is freed on `queue`, once nobody has it any more. Other buffers may be evicted
    /// for it: the caller holds nothing that their owners need for that, and no page that is being
    /// migrated. `ERESTARTSYS`: the calling task has a signal. `EOPNOTSUPP`: no device pages.
    pub(crate) fn alloc(
        kgd: Arc<dyn Kgd>,
        queue: &'static OwnedQueue,
        new: NewVram,
        owner: Arc<dyn VramOwner>,
    ) -> Result<DeferredArc<Self>> {
        let first = kgd.device_pages()?.first.0;
        let owner = KBox::new(owner, GFP_KERNEL)?;
        let cookie = NonNull::from(&*owner).cast();
        let raw = kgd.alloc_vram(new, cookie)?;
        // INVARIANT: The cookie is the owner's address.
        let buffer = Buffer {
            raw: ManuallyDrop::new(raw),
            kgd,
            owner,
        };
        let run_at = |index| buffer.kgd.vram_run(&buffer.raw, index);
        let runs = runs_of(new.pages, run_at)?;
        let taken = Taken {
            pages: [0; MAX_PAGES / 64],
            count: 0,
            whole: false,
            closed: false,
        };
        let large = match runs[..] {
            [Run { first, count, .. }]
                if count as usize == LARGE_PAGES
                    && first % LARGE_PAGES == 0
                    && buffer.kgd.has_large_pages() =>
            {
                // Without one its pages move singly.
                LargePlace::new(DevicePage(first)).ok()
            }
            _ => None,
        };
        // INVARIANT: The pages are those that the device has listed. None is out.
        let vram = pin_init!(Self {
            large,
            buffer,
            runs,
            count: new.pages,
            first,
            taken <- new_irq_spinlock!(taken, "amdkfd::Vram"),
        });
        DeferredArc::new(queue, vram)
    }

    /// How many pages it has.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// One of its pages.
    pub(crate) fn page(&self, index: u32) -> Option<DevicePage> {
        let run = self
            .runs
            .iter()
            .find(|run| index.wrapping_sub(run.index) < run.count)?;
        Some(DevicePage(run.first + (index - run.index) as usize))
    }

    /// Which of its pages that is. `None`: another one's.
    pub(crate) fn index_of(&self, page: DevicePage) -> Option<u32> {
        self.runs.iter().find_map(|run| {
            let offset = page.0.checked_sub(run.first)?;
            // CAST: Less than `count`.
            (offset < run.count as usize).then(|| run.index + offset as u32)
        })
    }

    /// Where a page is, in bytes from the begin of VRAM.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn offset(&self, index: u32) -> Option<u64> {
        let page = self.page(index)?;
        // CAST: A 64-bit kernel.
        Some(((page.0 - self.first) * kernel::page::PAGE_SIZE) as u64)
    }

    /// The buffer, and which of its pages that is, of a place of `migration`, if the page is
    /// `wanted`. `None`: there is no such device page of ours.
    pub(crate) fn of(
        migration: &Migration<'_>,
        place: u32,
        wanted: impl Fn(DevicePage) -> bool,
    ) -> Option<(DeferredArc<Self>, u32)> {
        let (vram, page) = migration.owner(place).filter(|(_, page)| wanted(*page))?;
        let vram = vram.cast::<Self>().as_ptr();
        // SAFETY: `take` named its buffer as the page's owner, of which those that are out have a
        // reference; the migration has one of the page.
        let vram = ManuallyDrop::new(unsafe { DeferredArc::from_raw(vram) });
        Some((DeferredArc::clone(&vram), vram.index_of(page)?))
    }

    /// How many pages are out.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.lock().count
    }

    /// Whether pages can be taken still. Once false it stays so.
    pub(crate) fn is_open(&self) -> bool {
        !self.taken.lock().closed
    }

    /// Whether a large folio can be taken: nothing is out.
    pub(crate) fn has_room_for_large(&self) -> bool {
        self.large.is_some() && self.taken() == 0
    }

    /// Takes a page as the target of a place of `migration`, or all pages for a large folio.
    /// `EEXIST`: it is out already, or the place has a target; `EBUSY`: no page can be taken any
    /// more. Never sleeps.
    pub(crate) fn take(
        this: &DeferredArc<Self>,
        migration: &Migration<'_>,
        place: u32,
        index: u32,
    ) -> Result {
        let page = this.page(index).ok_or(EINVAL)?;
        let count = migration.size(place);
        if count > 1 && (this.large.is_none() || index != 0) {
            return Err(EINVAL);
        }
        let first = this.taken.lock().add(index, count)?;
        let raw = match first {
            // The one reference of all that are out. Nobody gives it back before this page does.
            true => DeferredArc::into_raw(this.clone()),
            false => &raw const **this,
        };
        let owner = NonNull::new(raw.cast_mut().cast()).ok_or(EINVAL)?;
        // SAFETY: By the type invariant they are device pages, and nobody's until a moment ago. The
        // reference of those that are out is given back when the last is free.
        let result = unsafe { migration.take(place, page, owner) };
        if let Err(error) = result {
            let last = {
                let mut taken = this.taken.lock();
                // C's: the next one would meet it too. Of a large page one alone may be C's.
                taken.closed |= error == EBUSY && count == 1;
                taken.remove(index, count)
            };
            if last {
                // SAFETY: From `into_raw`: there is none out, and so nobody else gives it back.
                drop(unsafe { DeferredArc::from_raw(raw) });
            }
        }
        result
    }

    /// Collects all pages that are out, in whatever address spaces. Needs no lock of an address
    /// space, and takes those that lead to the pages.
    pub(crate) fn collect(&self) -> Result<Migration<'static>> {
        let mut pages = KVec::with_capacity(self.count as usize, GFP_KERNEL)?;
        let out = self.taken.lock().pages;
        let is_out = |index: u32| out[index as usize / 64] & 1 << (index % 64) != 0;
        for index in (0..self.count).filter(|index| is_out(*index)) {
            pages.push(self.page(index).ok_or(EINVAL)?, GFP_KERNEL)?;
        }
        // SAFETY: By the type invariant.
        unsafe { Migration::from_pages(&pages) }
    }

    /// Whether a large folio is out that was not [split](Vram::split): pages of it that nobody has
    /// any more are out as long as it is.
    pub(crate) fn is_whole(&self) -> bool {
        self.taken.lock().whole
    }

    /// Has the kernel make single pages of a large folio, if one is out: then those that nobody has
    /// are free. Waits for its lock. `EAGAIN`, `EBUSY`: it cannot at the moment.
    pub(crate) fn split(&self) -> Result {
        let Some(first) = self.page(0).filter(|_| self.large.is_some()) else {
            return Ok(());
        };
        // Before: one that comes meanwhile may be split, or not.
        let whole = core::mem::replace(&mut self.taken.lock().whole, false);
        // SAFETY: By the type invariant.
        let split = unsafe { self.buffer.kgd.split_page(first) };
        if whole && split.is_err() {
            let mut taken = self.taken.lock();
            taken.whole = taken.count > 0;
        }
        split
    }

    /// Lets amdgpu have the memory: no page can be taken any more. `EBUSY`: some are out. Never
    /// sleeps.
    pub(crate) fn release(&self) -> Result {
        {
            let mut taken = self.taken.lock();
            if taken.count != 0 {
                return Err(EBUSY);
            }
            taken.closed = true;
        }
        // None is out, nor will be.
        if let Some(large) = &self.large {
            large.forget();
        }
        self.buffer.kgd.empty_vram(&self.buffer.raw);
        Ok(())
    }
}

/// amdgpu wants the memory of the buffer with that cookie.
///
/// # Safety
///
/// The cookie is one that `alloc_vram` was given, and its buffer is not given back before this
/// returns.
pub(crate) unsafe fn wanted(cookie: NonNull<c_void>) {
    // SAFETY: By the invariant of `Buffer`, and this function's contract.
    let owner = unsafe { cookie.cast::<Arc<dyn VramOwner>>().as_ref() };
    // Not the last reference: the buffer has another.
    owner.clone().wanted();
}

/// The processor has touched a device page of ours: a `vm_fault_t`.
///
/// # Safety
///
/// `fault` is the argument of `migrate_to_ram`.
pub(crate) unsafe fn fault(fault: *mut bindings::vm_fault) -> c_uint {
    const BUS: c_uint = bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    // SAFETY: By this function's contract: it lasts until this returns.
    let Some(fault) = (unsafe { Fault::new(fault) }) else {
        return BUS;
    };
    let Some((vram, page)) = fault.owner() else {
        return BUS;
    };
    // SAFETY: `Vram::take` named its buffer as the page's owner, of which those that are out have a
    // reference; the fault has one of the page.
    let vram = unsafe { vram.cast::<Vram>().as_ref() };
    let Some(index) = vram.index_of(page) else {
        return BUS;
    };
    // Not the last reference: the buffer has another.
    match (*vram.buffer.owner).clone().fault(&fault, index) {
        FaultEnd::Done => 0,
        FaultEnd::NoMemory => bindings::vm_fault_reason_VM_FAULT_OOM,
        FaultEnd::Lost => BUS,
    }
}

/// A device page of ours is free. Atomic.
///
/// # Safety
///
/// `folio` is the argument of `folio_free`.
pub(crate) unsafe fn page_freed(folio: *const bindings::folio) {
    // SAFETY: By this function's contract.
    let Some((raw, page, count)) = (unsafe { migrate::freed_by(folio) }) else {
        return;
    };
    let raw = raw.cast::<Vram>();
    // SAFETY: `Vram::take` named its buffer as the page's owner, and all that are out have a
    // reference of that: until the lock below is let go this one is out.
    let vram = unsafe { raw.as_ref() };
    let Some(index) = vram.index_of(page) else {
        return;
    };
    // Who takes the lock after this, and finds that his are the last, may free it.
    if vram.taken.lock().remove(index, count) {
        // SAFETY: `Vram::take` leaked this reference, and it is given back once: here.
        let vram = unsafe { DeferredArc::from_raw(raw.as_ptr()) };
        // Not the last reference: the buffer has another.
        let owner: Arc<dyn VramOwner> = (*vram.buffer.owner).clone();
        owner.freed();
    }
}

/// How long a copy may take: longer than amdgpu gives a job of its copy engines before it resets
/// them.
const COPY_TIMEOUT_MS: u32 = 10_000;

/// Copies of one buffer's pages that go on. Dropped, they are waited for; and if one does not end,
/// what it uses is kept until it has.
pub(crate) struct Copies {
    vram: DeferredArc<Vram>,
    direction: Direction,
    copies: KVec<CopyHandle>,
}

impl Copies {
    /// None yet.
    pub(crate) fn new(vram: DeferredArc<Vram>, direction: Direction) -> Self {
        Self {
            vram,
            direction,
            copies: KVec::new(),
        }
    }

    /// Begins to copy pages: of system memory, and those of the buffer, at most [`MAX_PAGES`]. One
    /// call is one job for the device. Those that are read must not change until
    /// [`Copies::wait`]: the migration that they are from must not be committed before. `ENODEV`:
    /// the device sleeps, or is gone. `EIO`: a copy that was given up has not ended yet, or so
    /// many go on, for which this waits: who has others that are not over calls
    /// [`Copies::try_begin`]. Allocates.
    pub(crate) fn begin(&mut self, pages: &[(SystemPage<'_>, u32)]) -> Result {
        self.start(pages, true)
    }

    /// The same, but if many copies go on this says `EBUSY`.
    pub(crate) fn try_begin(&mut self, pages: &[(SystemPage<'_>, u32)]) -> Result {
        self.start(pages, false)
    }

    fn start(&mut self, pages: &[(SystemPage<'_>, u32)], wait: bool) -> Result {
        let mut list = KVec::with_capacity(pages.len(), GFP_KERNEL)?;
        for (system, index) in pages {
            let page = CopyPage {
                system: system.number(),
                device: self.vram.page(*index).ok_or(EINVAL)?.0,
            };
            list.push(page, GFP_KERNEL)?;
        }
        self.copies.reserve(1, GFP_KERNEL)?;
        let buffer = &self.vram.buffer;
        // SAFETY: The system pages are a migration's, which keeps them until this returns, and
        // which nobody else can reach.
        let copy = unsafe {
            let how = (self.direction, wait);
            buffer.kgd.begin_copy(&buffer.raw, how, &list)
        }?;
        // There is room.
        Ok(self.copies.push(copy, GFP_KERNEL)?)
    }

    /// Waits for all. `ETIME`: one has not ended in time (10 s): what it reads and writes is kept
    /// until it has, and no page of a buffer that it writes to can be taken any more. Another
    /// error: of one. Then nothing that was copied is good.
    pub(crate) fn wait(mut self) -> Result {
        self.finish()
    }

    fn finish(&mut self) -> Result {
        let vram = &self.vram;
        let kgd = &vram.buffer.kgd;
        let mut result = Ok(());
        // Who does not end is waited for once.
        let mut timeout = COPY_TIMEOUT_MS;
        for copy in self.copies.drain_all() {
            let ended = kgd.wait_copy(&copy, timeout);
            if ended == Err(errno::timer_expired()) {
                timeout = 1;
                if self.direction == Direction::ToDevice {
                    // It may yet write to pages that are free soon: nobody else gets them.
                    vram.taken.lock().closed = true;
                }
            }
            result = result.and(ended);
            kgd.end_copy(copy);
        }
        result
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

mod tests;
