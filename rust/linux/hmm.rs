// SPDX-License-Identifier: GPL-2.0-only

//! Pages of an address space that a device uses without pinning them (`include/linux/hmm.h`,
//! `struct mmu_interval_notifier` of `include/linux/mmu_notifier.h`).
//!
//! An [`Interval`] watches a part of an address space: before any of its pages are taken away,
//! [`IntervalUser::invalidate`] runs. Who gives pages to a device notes the interval's
//! [`Sequence`], brings them in ([`fault`]), and then, under the lock that `invalidate` takes for
//! them too, asks whether the sequence still [holds](Interval::holds): if so, `invalidate` comes
//! for them afterwards.

use super::{
    ffi,
    migrate::{
        PageOwner,
        LARGE_PAGES, //
    },
};
use core::ops::Deref;
use kernel::{
    bindings,
    error::to_result,
    mm::{
        virt::VmaRef,
        MmWithUser,
        MmapReadGuard, //
    },
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// Why pages are taken away. The numbers are those of `amdkfd_svm_invalidate` in trace.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// Their addresses are not the process's any more, or show something else: munmap, mremap.
    Unmap,
    /// The address space ends: nothing runs in it any more.
    Release,
    /// They go elsewhere: migration.
    Migrate,
    /// Anything else: the addresses stay, and the pages can be brought in again.
    Other,
    /// What may be done with them changes (mprotect). Else as `Other`.
    Protect,
}

/// Pages are about to be taken away.
pub(crate) struct Invalidation {
    /// The first byte, and that behind the last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) reason: Reason,
    /// If not, whoever would have to wait says so by returning false, and has done nothing.
    pub(crate) may_sleep: bool,
}

/// What watches an interval.
///
/// # Safety
///
/// At `INTERVAL` there is an [`Interval`].
pub(crate) unsafe trait IntervalUser: Send + Sync + Sized + 'static {
    /// Where the interval is, in bytes.
    const INTERVAL: usize;

    /// When this returns true the device does not use the pages any more, and will not before it
    /// asks for them again. May run under reclaim; false only if it may not sleep.
    fn invalidate(&self, what: &Invalidation) -> bool;
}

/// The moment since which nothing of an interval has been taken away.
#[derive(Clone, Copy)]
pub(crate) struct Sequence(c_ulong);

/// A part of an address space, embedded in what watches it.
pub(crate) struct Interval(Opaque<bindings::mmu_interval_notifier>);

// SAFETY: Only the kernel reads and writes it but for the sequence, which is accessed atomically.
unsafe impl Send for Interval {}
// SAFETY: As above.
unsafe impl Sync for Interval {}

impl Interval {
    /// Watches nothing yet.
    pub(crate) fn new() -> Self {
        Self(Opaque::new(pin_init::zeroed()))
    }

    fn sequence(&self) -> &Atomic<c_ulong> {
        // SAFETY: The interval is there; the kernel accesses the field with READ_ONCE() and
        // WRITE_ONCE().
        unsafe { Atomic::from_ptr(&raw mut (*self.0.get()).invalidate_seq) }
    }

    /// Waits until nothing of the interval is being taken away.
    ///
    /// # Safety
    ///
    /// The interval is watched: its [`Watched`] is there until this returns.
    pub(crate) unsafe fn begin(&self) -> Sequence {
        // SAFETY: By this function's contract it is registered.
        Sequence(unsafe { bindings::mmu_interval_read_begin(self.0.get()) })
    }

    /// This moment, even if something is being taken away: for who only has a look.
    pub(crate) fn now(&self) -> Sequence {
        Sequence(self.sequence().load(Relaxed))
    }

    /// Whether nothing has been taken away since.
    pub(crate) fn holds(&self, since: Sequence) -> bool {
        self.sequence().load(Relaxed) == since.0
    }
}

/// Something that watches an interval, until this is dropped.
///
/// # Invariants
///
/// The interval of the value is registered with the kernel.
pub(crate) struct Watched<T: IntervalUser>(Arc<T>);

impl<T: IntervalUser> Watched<T> {
    const OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        ..pin_init::zeroed()
    };

    /// Begins. `start` and `bytes` are multiples of the page size. May take the lock of the address
    /// space.
    ///
    /// # Safety
    ///
    /// `user` is watched once.
    pub(crate) unsafe fn new(
        user: Arc<T>,
        mm: &MmWithUser,
        start: u64,
        bytes: u64,
    ) -> Result<Self> {
        // CAST: A 64-bit kernel.
        let (start, bytes) = (start as c_ulong, bytes as c_ulong);
        let interval = Self::interval(&user);
        // SAFETY: `interval` is on no list, by this function's contract, and stays where it is, for
        // `Arc` keeps it, until `drop` takes it off. The address space has users because the caller
        // holds one.
        to_result(unsafe {
            bindings::mmu_interval_notifier_insert(interval, mm.as_raw(), start, bytes, &Self::OPS)
        })?;
        // INVARIANT: It was just registered.
        Ok(Self(user))
    }

    fn interval(user: &Arc<T>) -> *mut bindings::mmu_interval_notifier {
        // No reference to the field alone: the callback goes from it to the whole value.
        (&raw const **user)
            .wrapping_byte_add(T::INTERVAL)
            .cast_mut()
            .cast()
    }

    /// # Safety
    ///
    /// `interval` is a registered one of a `T`; `range` is valid for the time of the call.
    unsafe extern "C" fn invalidate(
        interval: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        sequence: c_ulong,
    ) -> bool {
        // SAFETY: The `Watched` keeps the value until it has taken the interval off, which waits
        // for this function.
        let user = unsafe { &*interval.wrapping_byte_sub(T::INTERVAL).cast::<T>() };
        // SAFETY: By this function's own contract.
        let range = unsafe { &*range };
        // SAFETY: As above; what the interval covers does not change.
        let (first, last) = unsafe {
            let node = &(*interval).interval_tree;
            (node.start, node.last)
        };
        // SAFETY: At `INTERVAL` there is an `Interval`, by the trait's contract.
        let interval = unsafe { &*interval.cast::<Interval>() };
        // Before the lock that `invalidate` takes: who holds it does not find the sequence changed,
        // and is found by `invalidate`; who takes it afterwards finds it changed.
        interval.sequence().store(sequence, Relaxed);
        let reason = match range.event {
            bindings::mmu_notifier_event_MMU_NOTIFY_UNMAP => Reason::Unmap,
            bindings::mmu_notifier_event_MMU_NOTIFY_RELEASE => Reason::Release,
            bindings::mmu_notifier_event_MMU_NOTIFY_MIGRATE => Reason::Migrate,
            bindings::mmu_notifier_event_MMU_NOTIFY_PROTECTION_VMA => Reason::Protect,
            _ => Reason::Other,
        };
        user.invalidate(&Invalidation {
            start: range.start.max(first) as u64,
            end: range.end.min(last.saturating_add(1)) as u64,
            reason,
            may_sleep: range.flags & bindings::MMU_NOTIFIER_RANGE_BLOCKABLE != 0,
        })
    }
}

impl<T: IntervalUser> Deref for Watched<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: IntervalUser> Drop for Watched<T> {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant it is registered. Returns when nobody is in `invalidate`.
        unsafe { bindings::mmu_interval_notifier_remove(Self::interval(&self.0)) };
    }
}

/// What HMM says of a page: its number, and whether it may be written.
pub(crate) type HmmPfn = c_ulong;

/// The page's number.
pub(crate) fn page_number(pfn: HmmPfn) -> usize {
    /// `HMM_PFN_ORDER_SHIFT`
    const FLAGS: u32 = c_ulong::BITS - 11;
    pfn & ((1 << FLAGS) - 1)
}

/// Whether it may be written.
pub(crate) fn is_writable(pfn: HmmPfn) -> bool {
    /// `HMM_PFN_WRITE`
    const WRITE: u32 = c_ulong::BITS - 2;
    pfn & 1 << WRITE != 0
}

/// Whether it is a device's, of whatever device, or of a file in persistent memory: then another
/// [`fault`], without an owner, leaves it where it is. `pfn` is one that [`fault`] has filled in.
pub(crate) fn is_device_page(pfn: HmmPfn) -> bool {
    // SAFETY: `fault` has found the page: its number has a `struct page`, which is looked at only.
    unsafe { ffi::amdkfd_is_device_page(pfn) }
}

/// A device may write to those of these pages that may be written: reclaim keeps what it writes.
///
/// # Safety
///
/// [`fault`] has filled `pfns` in, its sequence [holds](Interval::holds), and the lock is held that
/// `invalidate` takes: the pages stay mapped until this returns.
pub(crate) unsafe fn mark_dirty(pfns: &[HmmPfn]) {
    // CAST: one call of `fault` brings in less than 2^32 pages.
    let count = pfns.len() as u32;
    // SAFETY: By this function's contract; there are `count` of them.
    unsafe { ffi::amdkfd_hmm_mark_dirty(pfns.as_ptr(), count) };
}

/// Brings pages in: one entry of `pfns` for each, from `start` on, which lies in a mapping that may
/// be read, and if `write` written. Device pages of `owner` stay where they are; others come into
/// system memory. `EBUSY`: some were taken away meanwhile; `EFAULT`: one cannot
/// be had.
///
/// # Safety
///
/// The interval is [watched](Interval::begin), and the lock is that of its address space.
pub(crate) unsafe fn fault(
    _lock: &MmapReadGuard<'_>,
    (interval, since): (&Interval, Sequence),
    start: u64,
    write: bool,
    owner: Option<PageOwner>,
    pfns: &mut [HmmPfn],
) -> Result {
    // CAST: A 64-bit kernel.
    let start = start as c_ulong;
    let end = start + ((pfns.len() as c_ulong) << bindings::PAGE_SHIFT);
    let owner = owner.map_or(core::ptr::null_mut(), PageOwner::as_ptr);
    // SAFETY: The lock of the address space is held, and the interval registered, by this
    // function's contract; `pfns` has as many entries as there are pages.
    to_result(unsafe {
        ffi::amdkfd_hmm_fault(
            interval.0.get(),
            since.0,
            start,
            end,
            write,
            owner,
            pfns.as_mut_ptr(),
        )
    })
}

/// Looks at pages without bringing any in: one entry of `pfns` for each, from `start` on, which is
/// [there](is_there) if the page is, be it a device page of `owner`. `EBUSY`: some were taken away
/// meanwhile.
///
/// # Safety
///
/// As for [`fault`].
pub(crate) unsafe fn look(
    _lock: &MmapReadGuard<'_>,
    (interval, since): (&Interval, Sequence),
    start: u64,
    owner: Option<PageOwner>,
    pfns: &mut [HmmPfn],
) -> Result {
    // CAST: A 64-bit kernel.
    let start = start as c_ulong;
    let end = start + ((pfns.len() as c_ulong) << bindings::PAGE_SHIFT);
    let owner = owner.map_or(core::ptr::null_mut(), PageOwner::as_ptr);
    let interval = interval.0.get();
    // SAFETY: As for `fault`.
    to_result(unsafe {
        ffi::amdkfd_hmm_look(interval, since.0, start, end, owner, pfns.as_mut_ptr())
    })
}

/// Whether a page that was [looked](look) at is there.
pub(crate) fn is_there(pfn: HmmPfn) -> bool {
    /// `HMM_PFN_VALID`
    const VALID: u32 = c_ulong::BITS - 1;
    pfn & 1 << VALID != 0
}

/// Whether a page that was [looked](look) at is one of 2 MiB that are mapped as a whole.
pub(crate) fn is_of_large_mapping(pfn: HmmPfn) -> bool {
    /// `HMM_PFN_ORDER_SHIFT`
    const ORDER: u32 = c_ulong::BITS - 11;
    is_there(pfn) && 1 << (pfn >> ORDER & 0x1f) == LARGE_PAGES
}

/// Whether there may be pages in a mapping: false of a private one that nobody has touched yet.
pub(crate) fn may_have_pages(vma: &VmaRef) -> bool {
    // SAFETY: The mapping is valid as long as the reference.
    unsafe { ffi::amdkfd_may_have_pages(vma.as_ptr()) }
}

/// Whether a program brings the mapping's missing pages in (userfaultfd), for whom [`fault`] does
/// not wait: `EFAULT` of such a page says that it is not there yet.
pub(crate) fn is_supplied_by_user(vma: &VmaRef) -> bool {
    // SAFETY: The mapping is valid as long as the reference.
    unsafe { ffi::amdkfd_is_supplied_by_user(vma.as_ptr()) }
}

/// Whether a mapping is the heap that the program began with, or its first stack.
pub(crate) fn is_heap_or_stack(vma: &VmaRef) -> bool {
    // SAFETY: The mapping is valid as long as the reference.
    unsafe { ffi::amdkfd_is_heap_or_stack(vma.as_ptr()) }
}

/// While it lives, the current task's allocations reclaim nothing: it holds a lock that reclaim may
/// take.
pub(crate) struct NoReclaim(c_uint, kernel::types::NotThreadSafe);

impl NoReclaim {
    /// Begins; ends in the opposite order of others.
    pub(crate) fn new() -> Self {
        // SAFETY: It changes a flag of the current task.
        let flags = unsafe { ffi::amdkfd_noreclaim_save() };
        Self(flags, kernel::types::NotThreadSafe)
    }
}

impl Drop for NoReclaim {
    fn drop(&mut self) {
        // SAFETY: The flags are those of this task, by `NotThreadSafe`.
        unsafe { ffi::amdkfd_noreclaim_restore(self.0) };
    }
}
