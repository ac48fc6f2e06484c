// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Range`]: addresses of this process's, and memory behind them that is read and written by
//! relaxed atomic accesses only.

use crate::owner::Owner;
use crate::{Error, Plain, Result};
use rustix::mm::{mmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};
use zerocopy::IntoBytes;

/// GPU page tables hold 2 MiB leaves: large buffers are aligned for them.
const LARGE_PAGE: usize = 2 << 20;

/// Bytes of a page of the system's, which is what the kernel allocates and maps.
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}

/// A range of this process's addresses, given back when dropped. A child of `fork` does nothing
/// with it.
#[derive(Debug)]
pub(crate) struct Range {
    base: NonNull<c_void>,
    size: usize,
    /// Whole addresses of this are where it begins.
    align: usize,
    /// Whether there is memory that can be read and written.
    backed: bool,
    owner: Owner,
}

// SAFETY: the mapping belongs to the value; all access is atomic or through raw pointers.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl Range {
    /// Takes `size` bytes of addresses that nothing else uses, aligned for the GPU's page tables.
    pub(crate) fn reserve(size: usize) -> Result<Self> {
        let align = if size >= LARGE_PAGE {
            LARGE_PAGE
        } else {
            page()
        };
        let too_large = || Error::Invalid(format!("{size} bytes are beyond the address space"));
        let whole = size.checked_add(align - page()).ok_or_else(too_large)?;
        let base = sys::reserve(size, whole, align)?;
        Ok(Self {
            base,
            size,
            align,
            backed: false,
            owner: Owner::here(),
        })
    }

    /// Has the process's ordinary memory there, which its children do not get.
    pub(crate) fn back_with_memory(&mut self) -> Result<()> {
        // SAFETY: replaces the reservation, which this value owns.
        unsafe { sys::back_with_memory(self.base, self.size)? };
        self.backed = true;
        Ok(())
    }

    /// Has a file's memory there.
    pub(crate) fn back_with_file(
        &mut self,
        fd: rustix::fd::BorrowedFd<'_>,
        offset: u64,
    ) -> Result<()> {
        let (access, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED,
        );
        // SAFETY: replaces the reservation, which this value owns.
        unsafe { mmap(self.base.as_ptr(), self.size, access, flags, fd, offset) }.map_err(
            Error::of("mmap", format!("buffer at {offset:#x} of its file")),
        )?;
        self.backed = true;
        Ok(())
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Its bytes, whole pages.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The first byte.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.base.cast()
    }

    /// Whether it can be read and written.
    pub(crate) fn is_backed(&self) -> bool {
        self.backed
    }

    /// As [`Memory::write`].
    pub(crate) fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        let to = self.at::<T>(offset, values.len());
        // SAFETY: `at` has checked that as many bytes are there.
        unsafe { store(to, values.as_bytes()) };
    }

    /// As [`Memory::read`].
    pub(crate) fn read<T: Plain>(&self, offset: usize, count: usize) -> Vec<T> {
        // Before there is memory for so many.
        self.at::<T>(offset, count);
        let mut values = vec![T::new_zeroed(); count];
        self.read_into(offset, &mut values);
        values
    }

    /// As [`Memory::read_into`].
    pub(crate) fn read_into<T: Plain>(&self, offset: usize, values: &mut [T]) {
        let from = self.at::<T>(offset, values.len());
        // SAFETY: `at` has checked that as many bytes are there.
        unsafe { load(from, values.as_mut_bytes()) };
    }

    /// Where `count` values lie from byte `offset` on.
    fn at<T>(&self, offset: usize, count: usize) -> *mut u8 {
        assert!(
            self.backed,
            "the CPU does not see this buffer: it is not PUBLIC"
        );
        assert!(
            self.owner.is_here(),
            "this process has only inherited the buffer"
        );
        let bytes = count
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_add(offset));
        assert!(
            bytes.is_some_and(|end| end <= self.size),
            "beyond the buffer's {} bytes",
            self.size
        );
        assert_eq!(
            offset % align_of::<T>(),
            0,
            "offset {offset} is not aligned"
        );
        // SAFETY: `offset` is within the mapping.
        unsafe { self.base.as_ptr().cast::<u8>().add(offset) }
    }
}

/// The widest access at `address` for the next of `left` bytes, at least one: 8, 4, 2 or 1.
fn width(address: *const u8, left: usize) -> usize {
    let aligned = 1 << (address as usize).trailing_zeros().min(3);
    let fits = 1 << left.ilog2().min(3);
    aligned.min(fits)
}

/// Copies bytes to memory that GPUs and other threads may look at and write meanwhile. Relaxed
/// atomics as wide as can be: no access is a data race, and what is aligned does not tear. (Where
/// accesses of different widths meet, each byte is one that somebody wrote.)
///
/// # Safety
/// As many bytes can be written at `to`.
unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        // SAFETY: within the bytes of `to` by the loop's condition and `width`, which also says
        // that the address is aligned for the access.
        unsafe {
            let to = to.add(at);
            let width = width(to, bytes.len() - at);
            let from = bytes.as_ptr().add(at);
            match width {
                8 => AtomicU64::from_ptr(to.cast())
                    .store(from.cast::<u64>().read_unaligned(), Relaxed),
                4 => AtomicU32::from_ptr(to.cast())
                    .store(from.cast::<u32>().read_unaligned(), Relaxed),
                2 => AtomicU16::from_ptr(to.cast())
                    .store(from.cast::<u16>().read_unaligned(), Relaxed),
                _ => AtomicU8::from_ptr(to).store(from.read(), Relaxed),
            }
            at += width;
        }
    }
}

/// The other way round.
///
/// # Safety
/// As many bytes can be read at `from`.
unsafe fn load(from: *mut u8, bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        // SAFETY: as in `store`.
        unsafe {
            let from = from.add(at);
            let width = width(from, bytes.len() - at);
            let to = bytes.as_mut_ptr().add(at);
            match width {
                8 => to
                    .cast::<u64>()
                    .write_unaligned(AtomicU64::from_ptr(from.cast()).load(Relaxed)),
                4 => to
                    .cast::<u32>()
                    .write_unaligned(AtomicU32::from_ptr(from.cast()).load(Relaxed)),
                2 => to
                    .cast::<u16>()
                    .write_unaligned(AtomicU16::from_ptr(from.cast()).load(Relaxed)),
                _ => to.write(AtomicU8::from_ptr(from).load(Relaxed)),
            }
            at += width;
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.owner.is_here() {
            // SAFETY: the range belongs to this value; its users are gone with it.
            unsafe { sys::release(self.base, self.size, self.align) };
        }
    }
}

/// The system's part.
#[cfg(not(miri))]
mod sys {
    use super::{Error, MapFlags, NonNull, ProtFlags, Result};
    use rustix::mm::{madvise, mmap_anonymous, munmap, Advice};
    use std::ffi::c_void;
    use std::ptr::null_mut;

    /// `size` bytes of addresses that nothing else uses, as a part of `whole` bytes.
    pub(super) fn reserve(size: usize, whole: usize, align: usize) -> Result<NonNull<c_void>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel picks.
        let start = unsafe { mmap_anonymous(null_mut(), whole, ProtFlags::empty(), flags) }
            .map_err(Error::of("mmap", format!("{whole} bytes of addresses")))?;
        let head = (start as usize).next_multiple_of(align) - start as usize;
        let tail = whole - head - size;
        // SAFETY: both ends belong to the mapping made above, and nobody else knows it.
        unsafe {
            let base = start.byte_add(head);
            if head > 0 {
                let _ = munmap(start, head);
            }
            if tail > 0 {
                let _ = munmap(base.byte_add(size), tail);
            }
            Ok(NonNull::new_unchecked(base))
        }
    }

    /// # Safety
    /// The bytes are a range's.
    pub(super) unsafe fn back_with_memory(base: NonNull<c_void>, size: usize) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: by this function's own contract.
        unsafe { mmap_anonymous(base.as_ptr(), size, access, flags) }
            .map_err(Error::of("mmap", format!("{size} bytes of memory")))?;
        // A child would share the pages copy-on-write and pull them from under the GPU.
        // SAFETY: as above.
        let _ = unsafe { madvise(base.as_ptr(), size, Advice::LinuxDontFork) };
        Ok(())
    }

    /// # Safety
    /// The bytes are a range's, which nobody uses after this.
    pub(super) unsafe fn release(base: NonNull<c_void>, size: usize, _align: usize) {
        // SAFETY: by this function's own contract.
        let _ = unsafe { munmap(base.as_ptr(), size) };
    }
}

/// The same from the allocator, for miri, which knows no reservations.
#[cfg(miri)]
mod sys {
    use super::{Error, NonNull, Result};
    use std::alloc::{alloc_zeroed, dealloc, Layout};
    use std::ffi::c_void;

    pub(super) fn reserve(size: usize, _whole: usize, align: usize) -> Result<NonNull<c_void>> {
        let invalid = || Error::Invalid(format!("{size} bytes"));
        let layout = Layout::from_size_align(size, align).map_err(|_| invalid())?;
        // SAFETY: a range has at least a page.
        NonNull::new(unsafe { alloc_zeroed(layout) }.cast()).ok_or_else(invalid)
    }

    pub(super) unsafe fn back_with_memory(_base: NonNull<c_void>, _size: usize) -> Result<()> {
        Ok(())
    }

    pub(super) unsafe fn release(base: NonNull<c_void>, size: usize, align: usize) {
        // SAFETY: it was allocated so, by this function's contract.
        unsafe {
            dealloc(
                base.as_ptr().cast(),
                Layout::from_size_align_unchecked(size, align),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::in_a_child;
    use rustix::mm::{mmap_anonymous, msync, MsyncFlags};

    const PAGE: usize = 4096;

    #[test]
    fn ranges_are_aligned_and_given_back() {
        let small = Range::reserve(PAGE).expect("addresses");
        let mut large = Range::reserve(3 * LARGE_PAGE).expect("addresses");
        assert_eq!(small.address() as usize % PAGE, 0);
        assert_eq!(large.address() as usize % LARGE_PAGE, 0);
        large.back_with_memory().expect("memory");
        large.write(8, &[7u64]);
        assert_eq!(large.read::<u64>(0, 2), [0, 7]);
    }

    #[test]
    fn values_of_all_sizes_come_back() {
        let mut range = Range::reserve(PAGE).expect("addresses");
        range.back_with_memory().expect("memory");
        for at in 0..16 {
            for count in 0..32u8 {
                let bytes: Vec<u8> = (1..=count).collect();
                range.write(0, &[0u8; 64]);
                range.write(at, &bytes);
                assert_eq!(range.read::<u8>(at, bytes.len()), bytes, "{count} at {at}");
                assert_eq!(range.read::<u8>(at + bytes.len(), 1), [0]);
                assert_eq!(range.read::<u8>(0, at), vec![0; at]);
            }
        }
        range.write(6, &[1u16, 2, 3, 4, 5]);
        assert_eq!(range.read::<u16>(6, 5), [1, 2, 3, 4, 5]);
        range.write(16, &[[1.5f32, 2.5, 3.5]; 2]);
        assert_eq!(range.read::<[f32; 3]>(16, 2), [[1.5, 2.5, 3.5]; 2]);
    }

    #[test]
    fn threads_that_write_at_once_do_not_tear_values() {
        let mut range = Range::reserve(PAGE).expect("addresses");
        range.back_with_memory().expect("memory");
        let range = &range;
        let rounds = if cfg!(miri) { 200 } else { 10_000 };
        std::thread::scope(|scope| {
            for value in [0u64, u64::MAX] {
                scope.spawn(move || (0..rounds).for_each(|_| range.write(8, &[value; 4])));
            }
            for _ in 0..rounds {
                let seen = range.read::<u64>(8, 4);
                assert!(
                    seen.iter().all(|value| [0, u64::MAX].contains(value)),
                    "{seen:x?}"
                );
            }
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_child_gives_back_nothing() {
        let mut range = Range::reserve(PAGE).expect("addresses");
        range.back_with_memory().expect("memory");
        let (access, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
        assert!(in_a_child(move || {
            // What the child has there is the first mapping of its own that fits.
            let (base, flags) = (range.base.as_ptr(), flags | MapFlags::FIXED);
            // SAFETY: it replaces nothing that the child has. (Of that valgrind is not convinced.)
            let own = unsafe { mmap_anonymous(base, PAGE, access, flags) };
            drop(range);
            // SAFETY: a mapping, or nothing that anybody has.
            own == Ok(base) && unsafe { msync(base, PAGE, MsyncFlags::ASYNC) }.is_ok()
        }));
    }

    #[test]
    #[should_panic(expected = "only inherited")]
    fn what_is_another_processes_is_not_written() {
        let mut range = Range::reserve(PAGE).expect("addresses");
        range.back_with_memory().expect("memory");
        let owner = std::mem::replace(&mut range.owner, Owner::elsewhere());
        let written = std::panic::catch_unwind(|| range.write(0, &[1u32]));
        range.owner = owner;
        written.unwrap_or_else(|why| std::panic::resume_unwind(why));
    }

    #[test]
    fn too_large_is_an_error() {
        assert!(Range::reserve(usize::MAX - PAGE).is_err());
    }

    #[test]
    #[ignore = "a data race on purpose: tools/miri wants it to be found"]
    fn plain_stores_are_a_race() {
        let mut range = Range::reserve(PAGE).expect("addresses");
        range.back_with_memory().expect("memory");
        let range = &range;
        std::thread::scope(|scope| {
            scope.spawn(|| range.read::<u64>(8, 4));
            // SAFETY: within the range; but the other thread reads it.
            unsafe { range.as_ptr().cast::<u64>().add(1).write(7) };
        });
    }
}
