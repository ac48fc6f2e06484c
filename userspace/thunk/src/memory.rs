// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Memory`]: a buffer that a GPU and this process see at the same address.
//!
//! The owner of a buffer is whoever holds the `Memory`. Dropping it takes it from the GPU, then
//! from the process, so nothing may still use it on the GPU: destroy the queue first, or wait for
//! it.

use crate::ioctl::call;
use crate::{Device, Error, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Types whose every bit pattern is a value, so that a GPU may write them.
///
/// # Safety
/// No padding, no invalid bit pattern, no pointer that safe code follows.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($t:ty)*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Plain for $t {}
    )* };
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// A buffer that its GPU and this process see at the same address.
#[derive(Debug)]
pub struct Memory {
    device: Arc<Device>,
    range: Range,
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
        let range = Range::reserve(size)?;
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
        let memory = Self {
            device: device.clone(),
            range,
            handle: args.handle,
            others: Mutex::default(),
        };
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
        let memory = Self {
            device: device.clone(),
            range,
            handle: args.handle,
            others: Mutex::default(),
        };
        memory.range.back_with_file(file, 0)?;
        memory.map_to_gpu()?;
        Ok(memory)
    }

    fn map_to_gpu(&self) -> Result<()> {
        self.map_to(self.device.gpu_id())
    }

    fn map_to(&self, gpu_id: u32) -> Result<()> {
        let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
            handle: self.handle,
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        // SAFETY: the pointer is to one id, which lives until after the call.
        unsafe { call(self.device.kfd().as_ref(), || self.to_string(), &mut args) }
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

    /// The first byte, for atomics and for what this type has no method for.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.range.as_ptr()
    }

    /// Copies `values` to byte `offset`.
    ///
    /// # Panics
    /// When they don't fit, or `offset` is not aligned for `T`.
    pub fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        self.range.write(offset, values);
    }

    /// Copies `count` values from byte `offset`.
    ///
    /// # Panics
    /// When there are not so many, or `offset` is not aligned for `T`.
    pub fn read<T: Plain>(&self, offset: usize, count: usize) -> Vec<T> {
        self.range.read(offset, count)
    }
}

// SAFETY: the mapping belongs to the value; all access goes through raw or volatile pointers.
unsafe impl Send for Memory {}
// SAFETY: concurrent volatile accesses of plain numbers can tear, which `Plain` allows.
unsafe impl Sync for Memory {}

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
        // Nothing can be done about a failure here; the kernel frees what is left at process exit.
        let _ = self.unmap_from_gpus();
        let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args {
            handle: self.handle,
        };
        // SAFETY: the struct holds no pointer.
        let _ = unsafe { call(self.device.kfd().as_ref(), String::new, &mut args) };
    }
}

/// A range of this process's addresses, given back when dropped.
#[derive(Debug)]
pub(crate) struct Range {
    base: NonNull<c_void>,
    size: usize,
}

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
            })
        }
    }

    /// Has the process's ordinary memory there, which its children do not get.
    pub(crate) fn back_with_memory(&self) -> Result<()> {
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
        Ok(())
    }

    fn back_with_file(&self, fd: rustix::fd::BorrowedFd<'_>, offset: u64) -> Result<()> {
        let (access, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED,
        );
        // SAFETY: replaces the reservation, which this value owns.
        unsafe { mmap(self.base.as_ptr(), self.size, access, flags, fd, offset) }.map_err(
            Error::of("mmap", format!("buffer at {offset:#x} of its file")),
        )?;
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

    /// As [`Memory::write`]. Requires: the range is backed by memory that can be written.
    pub(crate) fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        let start = self.element::<T>(offset, values.len());
        for (index, value) in values.iter().enumerate() {
            // SAFETY: `element` checked range and alignment; volatile, since the GPU may look.
            unsafe { start.add(index).write_volatile(*value) };
        }
    }

    /// As [`Memory::read`]. Requires: the range is backed by memory that can be read.
    pub(crate) fn read<T: Plain>(&self, offset: usize, count: usize) -> Vec<T> {
        let start = self.element::<T>(offset, count);
        // SAFETY: `element` checked range and alignment; volatile, since the GPU may write.
        (0..count)
            .map(|index| unsafe { start.add(index).read_volatile() })
            .collect()
    }

    fn element<T>(&self, offset: usize, count: usize) -> *mut T {
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
        unsafe { self.base.as_ptr().cast::<u8>().add(offset).cast() }
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
        let large = Range::reserve(3 * LARGE_PAGE).expect("addresses");
        assert_eq!(small.address() as usize % PAGE, 0);
        assert_eq!(large.address() as usize % LARGE_PAGE, 0);
        large.back_with_memory().expect("memory");
        // SAFETY: just mapped readable and writable.
        unsafe { large.base.cast::<u64>().as_ptr().write_volatile(7) };
    }

    #[test]
    fn too_large_is_an_error() {
        assert!(Range::reserve(usize::MAX - PAGE).is_err());
    }
}
