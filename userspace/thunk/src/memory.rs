// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Memory`]: a buffer that a GPU and this process see at the same address.
//!
//! The owner of a buffer is whoever holds the `Memory`. Dropping it takes it from the GPU, then
//! from the process, so nothing may still use it on the GPU: destroy the queue first, or wait for
//! it.

use crate::ioctl::call;
use crate::range::{page, Range};
use crate::{Device, Error, Kfd, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

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
    /// Whether the CPU's writes go to the GPU through its host data path.
    is_local: bool,
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
            .checked_next_multiple_of(page())
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
        memory.is_local = flags.contains(MemoryFlags::VRAM);
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
        // It may be anybody's memory.
        memory.is_local = true;
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
            is_local: false,
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

    /// Another GPU of the same process sees the buffer too, at the same address, until it goes. One
    /// that sees it already goes on to.
    pub fn share_with(&self, device: &Device) -> Result<()> {
        let gpu_id = device.gpu_id();
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        // The kernel unmaps each once, and fails at the second time.
        if gpu_id == self.device.gpu_id() || others.contains(&gpu_id) {
            return Ok(());
        }
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
        self.range.size()
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
    /// written there unless [`Memory::is_visible`]; what is written to VRAM there reaches the GPU
    /// for sure by [`Device::flush_hdp`].
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.range.as_ptr()
    }

    /// Whether this process sees the buffer: it does unless it is VRAM without
    /// [`MemoryFlags::PUBLIC`].
    pub fn is_visible(&self) -> bool {
        self.range.is_backed()
    }

    /// Copies `values` to byte `offset`. A value of 1, 2, 4 or 8 bytes that lies at a multiple of
    /// its size is never seen in part.
    ///
    /// # Panics
    /// When they don't fit, `offset` is not aligned for `T`, or the CPU does not see the buffer;
    /// and in a child of `fork`.
    ///
    /// No GPU may see in part what has values that Rust does not know, or bytes that are none's:
    ///
    /// ```compile_fail,E0277
    /// # fn of(memory: &kfd::Memory) {
    /// memory.write(0, &[(1u8, 2u32)]);
    /// # }
    /// ```
    pub fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        self.range.write(offset, values);
        if self.is_local {
            self.device.note_write();
        }
    }

    /// Copies `count` values from byte `offset`. A value of 1, 2, 4 or 8 bytes that lies at a
    /// multiple of its size is never seen in part.
    ///
    /// # Panics
    /// When there are not so many, `offset` is not aligned for `T`, or the CPU does not see the
    /// buffer; and in a child of `fork`.
    ///
    /// ```compile_fail,E0277
    /// # fn of(memory: &kfd::Memory) -> bool {
    /// memory.read::<bool>(0, 1)[0]
    /// # }
    /// ```
    pub fn read<T: Plain>(&self, offset: usize, count: usize) -> Vec<T> {
        self.range.read(offset, count)
    }

    /// The same into `values`.
    ///
    /// # Panics
    /// As for [`Memory::read`].
    pub fn read_into<T: Plain>(&self, offset: usize, values: &mut [T]) {
        self.range.read_into(offset, values);
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const LARGE_PAGE: usize = 2 << 20;

    /// Whether something is mapped there.
    fn is_mapped(address: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let mut starts = maps.lines().filter_map(|line| line.split_once('-'));
        starts.any(|(start, _)| u64::from_str_radix(start, 16) == Ok(address))
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
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
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_the_cpu_does_not_see_is_not_written() {
        let range = Range::reserve(PAGE).expect("addresses");
        Memory::owning(&Device::without_a_driver(), range, 1).write(0, &[1u32]);
    }

    #[test]
    #[should_panic(expected = "the CPU does not see this buffer")]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_the_cpu_does_not_see_is_not_read() {
        let range = Range::reserve(PAGE).expect("addresses");
        Memory::owning(&Device::without_a_driver(), range, 1).read::<u32>(0, 1);
    }
}
