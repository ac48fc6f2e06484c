// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Memory`]: a buffer that a GPU and this process see at the same address.
//!
//! The owner of a buffer is whoever holds the `Memory`. Dropping it takes it from the GPU, then
//! from the process, so nothing may still use it on the GPU: destroy the queue first, or wait for
//! it.

use crate::ioctl::call;
use crate::{Device, Error, Kfd, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const PAGE: usize = 4096;
/// GPU page tables hold 2 MiB leaves: large buffers are aligned for them.
const LARGE_PAGE: usize = 2 << 20;

bitflags::bitflags! {
    /// Where a buffer lies and how it may be used: `KFD_IOC_ALLOC_MEM_FLAGS_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemoryFlags: u32 {
        /// The GPU's own memory.
        const VRAM = uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM;
        /// System memory that the kernel allocates.
        const GTT = uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT;
        /// System memory of this process, pinned while the GPU maps it.
        const USERPTR = uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR;
        /// The GPU may write.
        const WRITABLE = uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE;
        /// Waves may execute it.
        const EXECUTABLE = uapi::KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE;
        /// The CPU may map it.
        const PUBLIC = uapi::KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC;
        /// Take this kind of memory or none.
        const NO_SUBSTITUTE = uapi::KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE;
        /// The GPU's caches keep it coherent with the CPU.
        const COHERENT = uapi::KFD_IOC_ALLOC_MEM_FLAGS_COHERENT;
        /// The GPU does not cache it.
        const UNCACHED = uapi::KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED;
    }
}

/// Types whose every bit pattern is a value and that have no padding, so that a GPU may write them
/// and its reads see nothing of this process. Numbers, arrays of them, and structs that derive
/// zerocopy's traits.
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + 'static> Plain for T {}

/// A buffer that its GPU and this process see at the same address.
#[derive(Debug)]
pub struct Memory {
    device: Arc<Device>,
    /// Given back only when the kernel has freed the buffer: see `drop`.
    range: ManuallyDrop<Range>,
    handle: u64,
    /// Other GPUs that see it too.
    others: Mutex<Vec<u32>>,
}

impl Memory {
    /// VRAM that the CPU sees through the GPU's BAR, for data and code.
    pub fn vram(device: &Arc<Device>, size: usize) -> Result<Self> {
        let flags = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
        Self::allocate(
            device,
            size,
            flags | MemoryFlags::EXECUTABLE | MemoryFlags::NO_SUBSTITUTE,
        )
    }

    /// System memory that the kernel allocates, coherent: for signals, arguments, ring buffers.
    pub fn gtt(device: &Arc<Device>, size: usize) -> Result<Self> {
        let flags = MemoryFlags::GTT | MemoryFlags::WRITABLE | MemoryFlags::EXECUTABLE;
        Self::allocate(
            device,
            size,
            flags | MemoryFlags::COHERENT | MemoryFlags::NO_SUBSTITUTE,
        )
    }

    /// Memory of this process that the GPU may use.
    pub fn userptr(device: &Arc<Device>, size: usize) -> Result<Self> {
        let flags = MemoryFlags::USERPTR | MemoryFlags::WRITABLE | MemoryFlags::EXECUTABLE;
        Self::allocate(
            device,
            size,
            flags | MemoryFlags::COHERENT | MemoryFlags::NO_SUBSTITUTE,
        )
    }

    /// A buffer of `size` bytes, rounded up to pages, of the kind that `flags` say; mapped on both
    /// sides.
    pub fn allocate(device: &Arc<Device>, size: usize, flags: MemoryFlags) -> Result<Self> {
        let size = size
            .checked_next_multiple_of(PAGE)
            .filter(|size| *size != 0);
        let size = size.ok_or_else(|| Error::Invalid("a buffer has at least one byte".into()))?;
        let mut range = Range::reserve(size)?;
        let user = flags.contains(MemoryFlags::USERPTR);
        if user {
            range.back_with_memory()?;
        }
        let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr: range.address(),
            size: size as u64,
            mmap_offset: if user { range.address() } else { 0 },
            gpu_id: device.gpu_id(),
            flags: flags.bits(),
            ..Default::default()
        };
        let object = || format!("{device}, {} KiB", size / 1024);
        // SAFETY: for USERPTR the range is this process's own memory until after FREE; otherwise no
        // pointer.
        unsafe { call(device.kfd().as_ref(), object, &mut args)? };
        // From here on dropping `memory` frees what the kernel gave.
        let mut memory = Self::owning(device, range, args.handle);
        if !user && flags.intersects(MemoryFlags::PUBLIC | MemoryFlags::GTT) {
            memory
                .range
                .back_with_file(device.render(), args.mmap_offset)?;
        }
        memory.map_to_gpu()?;
        Ok(memory)
    }

    /// A file through which another process, or another GPU, can have this buffer.
    pub fn export(&self) -> Result<OwnedFd> {
        let mut args = uapi::kfd_ioctl_export_dmabuf_args {
            handle: self.handle,
            flags: rustix::fs::OFlags::CLOEXEC.bits(),
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self.device.kfd().as_ref(), || self.to_string(), &mut args)? };
        // SAFETY: the kernel made the descriptor for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(args.dmabuf_fd as i32) })
    }

    /// The buffer behind `file`, which some process exported, mapped on `device` and for the CPU.
    pub fn import(device: &Arc<Device>, file: BorrowedFd<'_>) -> Result<Self> {
        let fd = file.as_raw_fd() as u32;
        let object = || format!("dma-buf {fd} on {device}");
        let mut info = uapi::kfd_ioctl_get_dmabuf_info_args {
            dmabuf_fd: fd,
            ..Default::default()
        };
        // SAFETY: no metadata is asked for, so there is no pointer.
        unsafe { call(device.kfd().as_ref(), object, &mut info)? };
        let range = Range::reserve(info.size as usize)?;
        let mut args = uapi::kfd_ioctl_import_dmabuf_args {
            va_addr: range.address(),
            gpu_id: device.gpu_id(),
            dmabuf_fd: fd,
            ..Default::default()
        };
        // SAFETY: the address is a reservation of this process, for the GPU's page tables only.
        unsafe { call(device.kfd().as_ref(), object, &mut args)? };
        let mut memory = Self::owning(device, range, args.handle);
        memory.range.back_with_file(file, 0)?;
        memory.map_to_gpu()?;
        Ok(memory)
    }

    fn owning(device: &Arc<Device>, range: Range, handle: u64) -> Self {
        Self {
            device: device.clone(),
            range: ManuallyDrop::new(range),
            handle,
            others: Mutex::default(),
        }
    }

    /// A buffer that no driver knows of.
    #[cfg(test)]
    pub(crate) fn anonymous(device: &Arc<Device>, size: usize) -> Result<Self> {
        let mut range = Range::reserve(size)?;
        range.back_with_memory()?;
        Ok(Self::owning(device, range, 1))
    }

    fn map_to_gpu(&self) -> Result<()> {
        self.map_to(self.device.gpu_id())
    }

    fn map_to(&self, gpu_id: u32) -> Result<()> {
        map(self.device.kfd(), || self.to_string(), self.handle, gpu_id)
    }

    /// Its addresses and its handle; from now on nobody frees it.
    pub(crate) fn keep(self) -> (Range, u64) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped after each of its fields that owns something
        // has been taken from it once.
        let (range, _device, _others) = unsafe {
            (
                ManuallyDrop::take(&mut this.range),
                std::ptr::read(&this.device),
                std::ptr::read(&this.others),
            )
        };
        (range, this.handle)
    }

    /// Another GPU of the same process sees the buffer too, at the same address, until it goes.
    pub fn share_with(&self, device: &Device) -> Result<()> {
        let gpu_id = device.gpu_id();
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        self.map_to(gpu_id)?;
        others.push(gpu_id);
        Ok(())
    }

    fn unmap_from_gpus(&self) -> Result<()> {
        let mut ids = vec![self.device.gpu_id()];
        ids.extend(&*self.others.lock().unwrap_or_else(PoisonError::into_inner));
        let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle: self.handle,
            device_ids_array_ptr: ids.as_ptr() as u64,
            n_devices: ids.len() as u32,
            n_success: 0,
        };
        // SAFETY: the pointer is to as many ids, which live until after the call.
        unsafe { call(self.device.kfd().as_ref(), || self.to_string(), &mut args) }
    }

    /// The address, for CPU and GPU alike.
    pub fn address(&self) -> u64 {
        self.range.address()
    }

    /// The size in bytes, whole pages.
    pub fn size(&self) -> usize {
        self.range.size
    }

    /// The kernel's handle, for the calls that take one.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// The GPU this was allocated for.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The first byte, for atomics and for what this type has no method for. Nothing may be read or
    /// written there unless [`Memory::is_visible`].
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.range.as_ptr()
    }

    /// Whether this process sees the buffer: it does unless it is VRAM without
    /// [`MemoryFlags::PUBLIC`].
    pub fn is_visible(&self) -> bool {
        self.range.is_backed()
    }

    /// Copies `values` to byte `offset`. A value of up to 8 bytes is never seen in part.
    ///
    /// # Panics
    /// When they don't fit, `offset` is not aligned for `T`, or the CPU does not see the buffer.
    pub fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        self.range.write(offset, values);
    }

    /// Copies `count` values from byte `offset`. A value of up to 8 bytes is never seen in part.
    ///
    /// # Panics
    /// When there are not so many, `offset` is not aligned for `T`, or the CPU does not see the
    /// buffer.
    pub fn read<T: Plain>(&self, offset: usize, count: usize) -> Vec<T> {
        self.range.read(offset, count)
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "buffer {:#x} (handle {:#x}) of {}",
            self.address(),
            self.handle,
            self.device
        )
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Nothing can be done about a failure; the kernel frees what is left at process exit.
        let _ = self.unmap_from_gpus();
        let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args {
            handle: self.handle,
        };
        // SAFETY: the struct holds no pointer.
        let freed = unsafe { call(self.device.kfd().as_ref(), String::new, &mut args) };
        if freed.is_ok() {
            // SAFETY: nobody uses the range after this.
            unsafe { ManuallyDrop::drop(&mut self.range) };
        }
        // Otherwise, such as EBUSY for a queue's ring, the GPU still has these addresses: whatever
        // this process had there next, a GPU would read and write.
    }
}

/// Has a GPU see the buffer of that handle, which `object` names in an error.
pub(crate) fn map(
    kfd: &Kfd,
    object: impl FnOnce() -> String,
    handle: u64,
    gpu_id: u32,
) -> Result<()> {
    let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle,
        device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
        n_devices: 1,
        n_success: 0,
    };
    // SAFETY: the pointer is to one id, which lives until after the call.
    unsafe { call(kfd, object, &mut args) }
}

/// A range of this process's addresses, given back when dropped.
#[derive(Debug)]
pub(crate) struct Range {
    base: NonNull<c_void>,
    size: usize,
    /// Whether there is memory that can be read and written.
    backed: bool,
}

// SAFETY: the mapping belongs to the value; all access is atomic or through raw pointers.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

impl Range {
    /// Takes `size` bytes of addresses that nothing else uses, aligned for the GPU's page tables.
    pub(crate) fn reserve(size: usize) -> Result<Self> {
        let align = if size >= LARGE_PAGE { LARGE_PAGE } else { PAGE };
        let too_large = || Error::Invalid(format!("{size} bytes are beyond the address space"));
        let whole = size.checked_add(align - PAGE).ok_or_else(too_large)?;
        // SAFETY: a new mapping at an address that the kernel picks.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                whole,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
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
            Ok(Self {
                base: NonNull::new_unchecked(base),
                size,
                backed: false,
            })
        }
    }

    /// Has the process's ordinary memory there, which its children do not get.
    pub(crate) fn back_with_memory(&mut self) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: replaces the reservation, which this value owns.
        unsafe {
            mmap_anonymous(
                self.base.as_ptr(),
                self.size,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }
        .map_err(Error::of("mmap", format!("{} bytes of memory", self.size)))?;
        // A child would share the pages copy-on-write and pull them from under the GPU.
        // SAFETY: the range is this value's own.
        let _ = unsafe {
            rustix::mm::madvise(
                self.base.as_ptr(),
                self.size,
                rustix::mm::Advice::LinuxDontFork,
            )
        };
        self.backed = true;
        Ok(())
    }

    fn back_with_file(&mut self, fd: rustix::fd::BorrowedFd<'_>, offset: u64) -> Result<()> {
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
        let from = self.at::<T>(offset, count);
        let mut values = vec![T::new_zeroed(); count];
        // SAFETY: `at` has checked that as many bytes are there.
        unsafe { load(from, values.as_mut_bytes()) };
        values
    }

    /// Where `count` values lie from byte `offset` on.
    fn at<T>(&self, offset: usize, count: usize) -> *mut u8 {
        assert!(
            self.backed,
            "the CPU does not see this buffer: it is not PUBLIC"
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
        // SAFETY: the range belongs to this value; its users are gone with it.
        let _ = unsafe { munmap(self.base.as_ptr(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Whether something is mapped there.
    fn is_mapped(address: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let mut starts = maps.lines().filter_map(|line| line.split_once('-'));
        starts.any(|(start, _)| u64::from_str_radix(start, 16) == Ok(address))
    }

    #[test]
    fn addresses_that_the_kernel_does_not_free_are_not_used_again() {
        let device = Device::without_a_driver();
        let memory = Memory::anonymous(&device, LARGE_PAGE).expect("memory");
        let address = memory.address();
        // What is no KFD frees nothing.
        drop(memory);
        assert!(is_mapped(address));
        let free = Range::reserve(LARGE_PAGE).expect("addresses");
        let address = free.address();
        drop(free);
        assert!(!is_mapped(address));
    }

    #[test]
    #[should_panic(expected = "the CPU does not see this buffer")]
    fn what_the_cpu_does_not_see_is_not_written() {
        let range = Range::reserve(PAGE).expect("addresses");
        Memory::owning(&Device::without_a_driver(), range, 1).write(0, &[1u32]);
    }

    #[test]
    #[should_panic(expected = "the CPU does not see this buffer")]
    fn what_the_cpu_does_not_see_is_not_read() {
        let range = Range::reserve(PAGE).expect("addresses");
        Memory::owning(&Device::without_a_driver(), range, 1).read::<u32>(0, 1);
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
        std::thread::scope(|scope| {
            for value in [0u64, u64::MAX] {
                scope.spawn(move || (0..10_000).for_each(|_| range.write(8, &[value; 4])));
            }
            for _ in 0..10_000 {
                let seen = range.read::<u64>(8, 4);
                assert!(
                    seen.iter().all(|value| [0, u64::MAX].contains(value)),
                    "{seen:x?}"
                );
            }
        });
    }

    #[test]
    fn too_large_is_an_error() {
        assert!(Range::reserve(usize::MAX - PAGE).is_err());
    }
}
