// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Buffers of each kind, from their making to their end.

use super::{call, Meter};
use anyhow::Result;
use kfd::Device;
use kfd_uapi as uapi;
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::ptr::null_mut;
use std::sync::Arc;

const GTT: u32 = uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT;
const VRAM: u32 = uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM;
const USERPTR: u32 = uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR;

pub(super) fn all(meter: &Meter, device: &Arc<Device>) -> Result<()> {
    for (name, flags, size, count) in [
        ("GTT 4K", GTT, 4 << 10, 50),
        ("GTT 2M", GTT, 2 << 20, 20),
        ("VRAM 4K", VRAM, 4 << 10, 50),
        ("VRAM 2M", VRAM, 2 << 20, 20),
        ("VRAM 64M", VRAM, 64 << 20, 10),
        ("USERPTR 4K", USERPTR, 4 << 10, 50),
        ("USERPTR 2M", USERPTR, 2 << 20, 10),
    ] {
        life(meter, device, name, flags, size, count)?;
    }
    Ok(())
}

fn life(
    meter: &Meter,
    device: &Arc<Device>,
    name: &str,
    flags: u32,
    size: usize,
    count: usize,
) -> Result<()> {
    let (kfd, gpu_id) = (device.kfd(), device.gpu_id());
    let mut rows = [
        "ALLOC_MEMORY_OF_GPU",
        "MAP_MEMORY_TO_GPU",
        "UNMAP_MEMORY_FROM_GPU",
        "FREE_MEMORY_OF_GPU",
    ]
    .map(|call| meter.row(format!("{call} {name}")));
    // SAFETY: a new mapping. With 2 MiB to spare, so that it can be aligned.
    let room = unsafe {
        mmap_anonymous(
            null_mut(),
            size + (2 << 20),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?
    };
    let place = (room as usize).next_multiple_of(2 << 20);
    if flags == USERPTR {
        for page in (place..place + size).step_by(4096) {
            // SAFETY: in the mapping just made.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
    }
    for _ in 0..count {
        let mut alloc = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr: place as u64,
            size: size as u64,
            mmap_offset: if flags == USERPTR { place as u64 } else { 0 },
            gpu_id,
            flags: flags | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
            ..Default::default()
        };
        rows[0].sample(|| call(kfd, uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut alloc))?;
        let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
            handle: alloc.handle,
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        rows[1].sample(|| call(kfd, uapi::IOC_MAP_MEMORY_TO_GPU, &mut map))?;
        let mut unmap = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle: alloc.handle,
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        rows[2].sample(|| call(kfd, uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut unmap))?;
        let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
            handle: alloc.handle,
        };
        rows[3].sample(|| call(kfd, uapi::IOC_FREE_MEMORY_OF_GPU, &mut free))?;
    }
    rows.into_iter().for_each(super::Row::print);
    // SAFETY: the mapping made above; nothing refers to it any more.
    unsafe { munmap(room, size + (2 << 20))? };
    Ok(())
}
