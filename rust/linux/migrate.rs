// SPDX-License-Identifier: GPL-2.0-only

//! Moving pages between system memory and device pages (`include/linux/migrate.h`).
//!
//! A [`Migration`] holds the pages that were collected: locked, and mapped nowhere, so that whoever
//! touches one waits. Each may be given a target, into which the caller copies it. Committed, what
//! has a target moves there; dropped without that, everything stays where it was.
//!
//! A place is a page, or a large folio of [`LARGE_PAGES`]: then the places behind it are empty, and
//! its target is as large.
//!
//! Collecting invalidates the pages in the notifiers of the address space, with the given owner.
//! Whoever is in there must not wait for a lock that the caller holds.

use super::ffi;
use core::{
    marker::PhantomData,
    ops::Range,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    bindings,
    error::to_result,
    mm::virt::VmaRef,
    prelude::*,
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
    time::Msecs, //
};

/// Whose device pages: those of a device, or of all devices of a hive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageOwner(usize);

impl PageOwner {
    /// From the `owner` of a `struct dev_pagemap`, which is compared only.
    pub(crate) fn new(owner: *const c_void) -> Self {
        Self(owner as usize)
    }

    pub(super) fn as_ptr(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// A device page, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DevicePage(pub(crate) usize);

/// Pages of a large folio.
pub(crate) const LARGE_PAGES: usize = 512;

/// Where the owner of a large folio is noted, from its first page on.
///
/// # Invariants
///
/// While `is_there`, there is such a place, and it is this one's to forget.
pub(crate) struct LargePlace {
    first: DevicePage,
    is_there: Atomic<bool>,
}

impl LargePlace {
    /// Whether this kernel has what large folios of device pages need.
    pub(crate) fn is_possible() -> bool {
        // SAFETY: It only reads.
        unsafe { ffi::amdkfd_large_is_possible() }
    }

    /// For the folio that begins with a page, a multiple of [`LARGE_PAGES`]. May sleep. `EBUSY`:
    /// somebody else has a place there.
    pub(crate) fn new(first: DevicePage) -> Result<Self> {
        // SAFETY: Any number is good.
        to_result(unsafe { ffi::amdkfd_large_reserve(first.0) })?;
        // INVARIANT: Just made, where there was none.
        Ok(Self {
            first,
            is_there: Atomic::new(true),
        })
    }

    /// No page of the folio's is in use, nor will be: somebody else may have the memory from now
    /// on, and a place there. Never sleeps.
    pub(crate) fn forget(&self) {
        if self.is_there.xchg(false, Relaxed) {
            // SAFETY: By the type invariant: it was there, and nobody else forgets it.
            unsafe { ffi::amdkfd_large_forget(self.first.0) };
        }
    }
}

impl Drop for LargePlace {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A page in system memory that a migration keeps as long as this.
#[derive(Clone, Copy)]
pub(crate) struct SystemPage<'a>(usize, PhantomData<&'a ()>);

/// What is in system memory at a place: a page, or those of a large folio.
#[derive(Clone, Copy)]
pub(crate) struct SystemPages<'a> {
    first: SystemPage<'a>,
    count: u32,
    /// Not several times the same one.
    differ: bool,
}

impl<'a> SystemPages<'a> {
    /// So many times the kernel's page of zeros, which stays and is only read.
    fn zeros(count: u32) -> Self {
        Self {
            first: SystemPage(ffi::amdkfd_zero_page(), PhantomData),
            count,
            differ: false,
        }
    }

    /// One after the other.
    pub(crate) fn iter(self) -> impl Iterator<Item = SystemPage<'a>> {
        let step = usize::from(self.differ);
        // CAST: Less than `count`.
        (0..self.count).map(move |at| SystemPage(self.first.0 + step * at as usize, PhantomData))
    }
}

impl SystemPage<'_> {
    /// Its number.
    pub(crate) fn number(self) -> usize {
        self.0
    }
}

/// What was collected at some place.
pub(crate) enum Source<'a> {
    /// Nothing that could be moved.
    Stays,
    /// No page: the place reads as zeros, which these are.
    Empty(SystemPages<'a>),
    /// In system memory.
    System(SystemPages<'a>),
    /// A device page of the owner's, whoever uses it; of a large folio the first.
    Device(DevicePage),
}

/// The processor has touched a device page.
///
/// # Invariants
///
/// `raw` is valid for `'a`: the fault is being handled, mmap_lock is held, and its page is locked
/// and referenced.
pub(crate) struct Fault<'a> {
    raw: NonNull<bindings::vm_fault>,
    _fault: PhantomData<&'a bindings::vm_fault>,
}

impl<'a> Fault<'a> {
    /// # Safety
    ///
    /// `raw` is the argument of `migrate_to_ram`, which does not return before `'a` is over.
    pub(crate) unsafe fn new(raw: *mut bindings::vm_fault) -> Option<Self> {
        // INVARIANT: By this function's contract.
        Some(Self {
            raw: NonNull::new(raw)?,
            _fault: PhantomData,
        })
    }

    /// Where the page is that [`Fault::owner`] tells of, and whether its large folio is mapped as a
    /// whole.
    pub(crate) fn place(&self) -> (usize, bool) {
        let mut large = false;
        // SAFETY: By the type invariant; `large` is ours.
        let address = unsafe { ffi::amdkfd_fault_place(self.raw.as_ptr(), &mut large) };
        (address, large)
    }

    /// Whether the page is of a large folio that is mapped page by page, which has to be split
    /// before [`Migration::from_fault`] can collect it.
    pub(crate) fn is_part(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { ffi::amdkfd_fault_is_part(self.raw.as_ptr()) }
    }

    /// Makes single pages of the folio that the page is in. The page stays locked. `EAGAIN`: not
    /// at the moment. Does nothing to a single page.
    pub(crate) fn split(&self) -> Result {
        // SAFETY: By the type invariant.
        to_result(unsafe { ffi::amdkfd_fault_split(self.raw.as_ptr()) })
    }

    /// Waits while the page is of a large folio that is being copied to where it goes. True: it
    /// was, and whoever has touched it is to do that again. `EINTR`: the task is being killed.
    pub(crate) fn wait(&self) -> Result<bool> {
        // SAFETY: By the type invariant; the page is locked again when this returns.
        let waited = unsafe { ffi::amdkfd_fault_wait(self.raw.as_ptr()) };
        to_result(waited).map(|()| waited > 0)
    }

    /// Where it is mapped.
    pub(crate) fn vma(&self) -> &VmaRef {
        // SAFETY: By the type invariant: the VMA is the fault's, and mmap_lock is held.
        unsafe { VmaRef::from_raw((*self.raw.as_ptr()).__bindgen_anon_1.vma) }
    }

    /// Before whoever has touched the page is to try again: sleeps. False: the task is being
    /// killed, and must not: where it is in the kernel, nothing else would stop it.
    pub(crate) fn pause(&self, time: Msecs) -> bool {
        // SAFETY: A fault may sleep, with mmap_lock held for reading.
        unsafe { ffi::amdkfd_fault_pause(time) }
    }

    /// What was given to [`Migration::take`] for the page, and the page, of a large folio that is
    /// mapped as a whole the first one. `None`: another driver's.
    pub(crate) fn owner(&self) -> Option<(NonNull<c_void>, DevicePage)> {
        let mut number = 0;
        // SAFETY: By the type invariant; `number` is ours.
        let owner = unsafe { ffi::amdkfd_fault_owner(self.raw.as_ptr(), &mut number) };
        Some((NonNull::new(owner)?, DevicePage(number)))
    }
}

/// Whether large pages may be made in a mapping: neither it nor its process forbids them.
pub(crate) fn may_be_large(vma: &VmaRef) -> bool {
    // SAFETY: The mapping is valid as long as the reference, and is only read.
    unsafe { ffi::amdkfd_large_is_allowed(vma.as_ptr()) }
}

/// Whether a mapping may have pages that can be collected to go to a device.
pub(crate) fn may_be_collected(vma: &VmaRef) -> bool {
    // SAFETY: The mapping is valid as long as the reference, and is only read.
    unsafe { ffi::amdkfd_may_be_collected(vma.as_ptr()) }
}

/// Pages of a mapping that may be collected to go to a device, as long as its [`Runs`] live.
#[derive(Clone)]
pub(crate) struct Run<'a> {
    vma: &'a VmaRef,
    addresses: Range<usize>,
}

impl Run<'_> {
    /// Where it begins.
    pub(crate) fn start(&self) -> usize {
        self.addresses.start
    }
}

/// All of them in an area: between them are pages that KSM has merged, or that may be such. As long
/// as it lives KSM merges no page of theirs that another process has as well.
pub(crate) struct Runs<'a> {
    vma: &'a VmaRef,
    rest: Range<usize>,
    /// Whether this has KSM's lock.
    stopped: bool,
}

impl<'a> Runs<'a> {
    /// Those in `area`, which lies in the mapping.
    pub(crate) fn new(vma: &'a VmaRef, area: Range<usize>) -> Self {
        Self {
            vma,
            rest: area,
            stopped: false,
        }
    }

    /// The next one. May sleep: pages may be copied.
    pub(crate) fn next_run(&mut self) -> Option<Run<'_>> {
        let Range { mut start, mut end } = self.rest.clone();
        let (vma, stopped) = (self.vma.as_ptr(), &mut self.stopped);
        // SAFETY: mmap_lock is held as long as the reference; the area is checked. A reference to a
        // mapping stays with its task, and so does the lock.
        let is_one = unsafe { ffi::amdkfd_next_run(vma, &mut start, &mut end, stopped) };
        self.rest.start = if is_one { end } else { self.rest.end };
        is_one.then_some(Run {
            vma: self.vma,
            addresses: start..end,
        })
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        // SAFETY: It is said whether this has the lock, and no run is left.
        unsafe { ffi::amdkfd_end_runs(self.stopped) };
    }
}

/// Makes single pages of the large folio that this page is in. Waits for the folio's lock.
/// `EAGAIN`: not at the moment. Does nothing if there is none.
///
/// # Safety
///
/// It is a device page.
pub(crate) unsafe fn split(page: DevicePage) -> Result {
    // SAFETY: By this function's contract.
    to_result(unsafe { ffi::amdkfd_large_split(page.0) })
}

/// Whether the large folio that a device page is in is being copied to where it goes: no device may
/// be shown it until it is there. Never sleeps.
pub(crate) fn is_leaving(page: DevicePage) -> bool {
    // SAFETY: Any number is good.
    unsafe { ffi::amdkfd_large_is_leaving(page.0) }
}

/// What was given to [`Migration::take`] for pages that nobody refers to any more, the first of
/// them, and how many. `None`: another driver's.
///
/// # Safety
///
/// `folio` is the argument of `folio_free`.
pub(crate) unsafe fn freed_by(
    folio: *const bindings::folio,
) -> Option<(NonNull<c_void>, DevicePage, u32)> {
    let (mut number, mut count) = (0, 0);
    // SAFETY: By this function's contract; `number` and `count` are ours.
    let owner = unsafe { ffi::amdkfd_folio_owner(folio, &mut number, &mut count) };
    Some((NonNull::new(owner)?, DevicePage(number), count))
}

/// What is collected: `AMDKFD_MIGRATE_*` of `migrate.h`.
const FROM_DEVICE: u32 = 1;
const LARGE: u32 = 2;

/// Whether large folios are collected as such.
const fn large_if(large: bool) -> u32 {
    if large {
        LARGE
    } else {
        0
    }
}

/// Pages that are being moved. Not to be kept: programs wait for them.
///
/// # Invariants
///
/// `raw` has `count` places, and is this one's to end. While it lives, the VMA that it is about
/// stays, and mmap_lock is held.
pub(crate) struct Migration<'a> {
    raw: NonNull<ffi::RawMigration>,
    count: u32,
    _vma: PhantomData<&'a VmaRef>,
}

impl<'a> Migration<'a> {
    /// Collects what of a run is in system memory, and places without a page. Under mmap_lock.
    /// `owner`: whose notifiers know of it. `large`: large folios, and as much without a page, are
    /// one place; else the kernel splits these. `EINVAL`: not memory that can be moved.
    pub(crate) fn from_system(run: Run<'a>, owner: PageOwner, large: bool) -> Result<Self> {
        Self::collect(run.vma, run.addresses, large_if(large), owner, null_mut())
    }

    /// Collects what of `range` is in device pages of the owner's. Under mmap_lock. `large`: a
    /// large folio that is mapped as a whole, and is all of `range`, is one place; it stays where
    /// it is mapped until it goes. From [`Migration::allocate`] on no device is shown it. `E2BIG`:
    /// it cannot go as one. Others stay: they have to be [split] before.
    pub(crate) fn from_device(
        vma: &'a VmaRef,
        range: Range<usize>,
        owner: PageOwner,
        large: bool,
    ) -> Result<Self> {
        Self::collect(vma, range, FROM_DEVICE | large_if(large), owner, null_mut())
    }

    /// The same in a fault, whose page must be in `range`: of a large folio that is mapped as a
    /// whole that is where it is mapped. Of one that is [mapped page by page](Fault::is_part), or
    /// another's, nothing is collected, nor what lies behind it in the same page table.
    pub(crate) fn from_fault(
        fault: &'a Fault<'_>,
        range: Range<usize>,
        owner: PageOwner,
    ) -> Result<Self> {
        let what = FROM_DEVICE | large_if(fault.place().1);
        Self::collect(fault.vma(), range, what, owner, fault.raw.as_ptr())
    }

    fn collect(
        vma: &'a VmaRef,
        range: Range<usize>,
        what: u32,
        owner: PageOwner,
        fault: *mut bindings::vm_fault,
    ) -> Result<Self> {
        let (start, end) = (range.start, range.end);
        let (owner, mut raw) = (owner.as_ptr(), null_mut());
        // SAFETY: `vma` is one under mmap_lock; the kernel checks that the range is in it. `fault`
        // is null, or valid as its type says.
        to_result(unsafe {
            ffi::amdkfd_migration_collect(vma.as_ptr(), start, end, what, owner, fault, &mut raw)
        })?;
        // INVARIANT: It was made for `vma`, which is borrowed.
        Self::own(raw)
    }

    /// Collects those of some device pages that somebody has. Needs no lock; takes those that lead
    /// to where the pages are mapped. Of a large folio all are to be named, in order.
    ///
    /// # Safety
    ///
    /// Each is a device page.
    pub(crate) unsafe fn from_pages(pages: &[DevicePage]) -> Result<Migration<'static>> {
        let mut raw = null_mut();
        let count = u32::try_from(pages.len())?;
        let mut numbers = KVec::with_capacity(pages.len(), GFP_KERNEL)?;
        for page in pages {
            numbers.push(page.0, GFP_KERNEL)?;
        }
        // SAFETY: By this function's contract; there are `count` of them.
        to_result(unsafe {
            ffi::amdkfd_migration_collect_pages(numbers.as_ptr(), count, &mut raw)
        })?;
        // INVARIANT: There is no VMA.
        Migration::own(raw)
    }

    fn own(raw: *mut ffi::RawMigration) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        Ok(Self {
            // SAFETY: It was just made.
            count: unsafe { ffi::amdkfd_migration_count(raw.as_ptr()) },
            raw,
            _vma: PhantomData,
        })
    }

    /// How many places there are. The first is at the begin of the range.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    fn check(&self, index: u32) -> Result<*mut ffi::RawMigration> {
        if index < self.count {
            Ok(self.raw.as_ptr())
        } else {
            Err(EINVAL)
        }
    }

    /// What is at a place.
    pub(crate) fn source(&self, index: u32) -> Source<'_> {
        let Ok(raw) = self.check(index) else {
            return Source::Stays;
        };
        let mut number = 0;
        // SAFETY: By the type invariant, and there is such a place.
        let kind = unsafe { ffi::amdkfd_migration_source(raw, index, &mut number) };
        match kind {
            1 => Source::Empty(SystemPages::zeros(self.size(index))),
            2 => Source::System(self.system_pages(index, number)),
            3 => Source::Device(DevicePage(number)),
            _ => Source::Stays,
        }
    }

    /// How many pages what is at a place has.
    pub(crate) fn size(&self, index: u32) -> u32 {
        match self.check(index) {
            // SAFETY: By the type invariant, and there is such a place.
            Ok(raw) => unsafe { ffi::amdkfd_migration_size(raw, index) },
            Err(_) => 1,
        }
    }

    /// Those from that number on: as many as the place has.
    fn system_pages(&self, index: u32, first: usize) -> SystemPages<'_> {
        SystemPages {
            first: SystemPage(first, PhantomData),
            count: self.size(index),
            differ: true,
        }
    }

    /// The device page at a place, of a large folio the first, and what was given to
    /// [`Migration::take`] for it. `None`: there is none, or it is another driver's.
    pub(crate) fn owner(&self, index: u32) -> Option<(NonNull<c_void>, DevicePage)> {
        let raw = self.check(index).ok()?;
        let mut number = 0;
        // SAFETY: By the type invariant, and there is such a place; `number` is ours.
        let owner = unsafe { ffi::amdkfd_migration_owner(raw, index, &mut number) };
        Some((NonNull::new(owner)?, DevicePage(number)))
    }

    /// New pages in system memory as the target of a place, filled with zeros.
    pub(crate) fn allocate_zeros(&self, index: u32) -> Result<SystemPages<'_>> {
        let pages = self.allocate(index)?;
        for page in pages.iter() {
            // SAFETY: It was just allocated, and nobody knows it.
            unsafe { ffi::amdkfd_clear_page(page.0) };
        }
        Ok(pages)
    }

    /// The place, if it has no target yet.
    fn without_target(&self, index: u32) -> Result<*mut ffi::RawMigration> {
        let raw = self.check(index)?;
        // SAFETY: By the type invariant, and there is such a place.
        match unsafe { ffi::amdkfd_migration_target(raw, index) } {
            0 => Ok(raw),
            _ => Err(EEXIST),
        }
    }

    /// New pages in system memory as the target of a place, as many as it has. `ENOMEM`: there are
    /// none, or where they go no [large](may_be_large) page may be.
    pub(crate) fn allocate(&self, index: u32) -> Result<SystemPages<'_>> {
        let raw = self.without_target(index)?;
        // SAFETY: By the type invariant, and there is such a place; nobody uses another thread's
        // migration.
        match unsafe { ffi::amdkfd_migration_allocate(raw, index) } {
            0 => Err(ENOMEM),
            number => Ok(self.system_pages(index, number)),
        }
    }

    /// Device pages from `page` on as the target of a place, as many as it has. From now on they
    /// have an owner, for whom [`freed_by`] tells when they are free again. `EBUSY`: somebody else
    /// has one.
    ///
    /// # Safety
    ///
    /// They are device pages of memory that nobody else has. `owner` is aligned to 4 bytes and
    /// stays until then. For several there is a [`LargePlace`], which stays as long.
    pub(crate) unsafe fn take(
        &self,
        index: u32,
        page: DevicePage,
        owner: NonNull<c_void>,
    ) -> Result {
        let raw = self.without_target(index)?;
        // SAFETY: By the type invariant, and by this function's contract.
        to_result(unsafe { ffi::amdkfd_migration_take(raw, index, page.0, owner.as_ptr()) })
    }

    /// Moves what has a target. Everything must have been copied. Afterwards programs go on, with
    /// what has moved and with what has not. Returns how many pages have moved.
    pub(crate) fn commit(self) -> u32 {
        // SAFETY: By the type invariant; what is left of it ends with `self`.
        unsafe { ffi::amdkfd_migration_commit(self.raw.as_ptr()) }
    }
}

impl Drop for Migration<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, and nobody uses it any more.
        unsafe { ffi::amdkfd_migration_end(self.raw.as_ptr()) };
    }
}

/// Copies a page in system memory to (`from_page`) or from memory of a page's size.
///
/// # Safety
///
/// There is such a page, which stays and which nobody else accesses; `memory` is valid for it.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) unsafe fn copy_page(number: usize, memory: *mut u8, from_page: bool) {
    // SAFETY: By this function's contract.
    unsafe { ffi::amdkfd_copy_page(number, memory.cast(), from_page) };
}

#[kernel::macros::kunit_tests(amdkfd_linux_migrate)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_owners_until_he_forgets_it() {
        let first = DevicePage(LARGE_PAGES << 40);
        let place = LargePlace::new(first).unwrap();
        assert_eq!(LargePlace::new(first).err(), Some(EBUSY));
        place.forget();
        let next = LargePlace::new(first).unwrap();
        // It is not his any more.
        drop(place);
        assert_eq!(LargePlace::new(first).err(), Some(EBUSY));
        drop(next);
        assert!(LargePlace::new(first).is_ok());
    }
}
