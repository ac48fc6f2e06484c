// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ioctls about memory.

use super::{plain, Operation};
use crate::faults::stage::{Call, Stage, SPACE};
use anyhow::Result;
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

const GTT: u32 = uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT;
const WRITABLE: u32 = uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE;
/// Bytes of a buffer: more than one page, so that lists are.
const SIZE: u64 = 256 << 10;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = buffers();
    all.extend(dmabufs());
    all.push(
        plain("SVM", |stage| {
            stage.ioctl(uapi::IOC_SVM, [stage.memory, SIZE, 0])
        })
        .renewed(),
    );
    all
}

fn buffers() -> Vec<Operation> {
    vec![
        plain("ALLOC_MEMORY_OF_GPU GTT", |stage| {
            stage.ioctl(uapi::IOC_ALLOC_MEMORY_OF_GPU, buffer(stage, GTT, SIZE))
        })
        .over(free_allocated),
        plain("ALLOC_MEMORY_OF_GPU VRAM", |stage| {
            let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM;
            stage.ioctl(uapi::IOC_ALLOC_MEMORY_OF_GPU, buffer(stage, flags, SIZE))
        })
        .over(free_allocated),
        plain("ALLOC_MEMORY_OF_GPU USERPTR", |stage| {
            let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR;
            stage.ioctl(uapi::IOC_ALLOC_MEMORY_OF_GPU, buffer(stage, flags, SIZE))
        })
        .over(free_allocated),
        plain("ALLOC_MEMORY_OF_GPU doorbells", |stage| {
            let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL;
            stage.ioctl(uapi::IOC_ALLOC_MEMORY_OF_GPU, buffer(stage, flags, 8192))
        })
        .over(free_allocated),
        plain("ALLOC_MEMORY_OF_GPU registers", |stage| {
            let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP;
            stage.ioctl(uapi::IOC_ALLOC_MEMORY_OF_GPU, buffer(stage, flags, 4096))
        })
        .over(free_allocated),
        plain("FREE_MEMORY_OF_GPU", |stage| {
            allocate(stage)?;
            stage.ioctl(
                uapi::IOC_FREE_MEMORY_OF_GPU,
                uapi::kfd_ioctl_free_memory_of_gpu_args { handle: stage.made },
            )
        }),
        plain("MAP_MEMORY_TO_GPU", |stage| {
            allocate(stage)?;
            stage.ioctl(uapi::IOC_MAP_MEMORY_TO_GPU, mapping(stage))
        })
        .over(unmap_and_free),
        plain("MAP_MEMORY_TO_GPU USERPTR", |stage| {
            allocate_kind(stage, uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR)?;
            stage.ioctl(uapi::IOC_MAP_MEMORY_TO_GPU, mapping(stage))
        })
        .over(unmap_and_free),
        plain("UNMAP_MEMORY_FROM_GPU", |stage| {
            allocate(stage)?;
            stage.make(uapi::IOC_MAP_MEMORY_TO_GPU, mapping(stage))?;
            stage.ioctl(uapi::IOC_UNMAP_MEMORY_FROM_GPU, unmapping(stage))
        })
        .again(Errno::INVAL)
        .over(|stage, _, _| free(stage)),
        plain("AVAILABLE_MEMORY", |stage| {
            let args = uapi::kfd_ioctl_get_available_memory_args {
                gpu_id: stage.gpu_id(),
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_AVAILABLE_MEMORY, args)
        }),
    ]
}

fn dmabufs() -> Vec<Operation> {
    vec![
        plain("EXPORT_DMABUF", |stage| {
            allocate(stage)?;
            stage.ioctl(uapi::IOC_EXPORT_DMABUF, exported(stage))
        })
        .over(|stage, call, answer| {
            if answer.is_some() {
                drop(dmabuf(&call.argument()?));
            }
            free(stage)
        }),
        plain("GET_DMABUF_INFO", |stage| {
            let dmabuf_fd = export(stage)?;
            let args = uapi::kfd_ioctl_get_dmabuf_info_args {
                metadata_ptr: stage.memory,
                metadata_size: 256,
                dmabuf_fd,
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_GET_DMABUF_INFO, args)
        })
        .over(close_and_free),
        plain("IMPORT_DMABUF", |stage| {
            let dmabuf_fd = export(stage)?;
            let (va_addr, gpu_id) = (stage.place + SIZE, stage.gpu_id());
            let args = uapi::kfd_ioctl_import_dmabuf_args {
                va_addr,
                handle: 0,
                gpu_id,
                dmabuf_fd,
            };
            stage.ioctl(uapi::IOC_IMPORT_DMABUF, args)
        })
        .over(|stage, call, answer| {
            if answer.is_some() {
                let args: uapi::kfd_ioctl_import_dmabuf_args = call.argument()?;
                free_handle(stage, args.handle)?;
            }
            close_and_free(stage, call, answer)
        }),
    ]
}

fn buffer(stage: &Stage, kind: u32, size: u64) -> uapi::kfd_ioctl_alloc_memory_of_gpu_args {
    let user = kind & uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR != 0;
    uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: if user { stage.memory } else { stage.place },
        mmap_offset: if user { stage.memory } else { 0 },
        size,
        gpu_id: stage.gpu_id(),
        flags: kind | WRITABLE,
        ..Default::default()
    }
}

fn allocate_kind(stage: &mut Stage, kind: u32) -> Result<()> {
    let args = stage.make(uapi::IOC_ALLOC_MEMORY_OF_GPU, buffer(stage, kind, SIZE))?;
    stage.made = args.handle;
    Ok(())
}

fn allocate(stage: &mut Stage) -> Result<()> {
    allocate_kind(stage, GTT)
}

fn free_handle(stage: &Stage, handle: u64) -> Result<()> {
    let args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
    stage.make(uapi::IOC_FREE_MEMORY_OF_GPU, args).map(drop)
}

fn free(stage: &Stage) -> Result<()> {
    free_handle(stage, stage.made)
}

fn free_allocated(stage: &mut Stage, call: &Call, answer: Option<u64>) -> Result<()> {
    match answer {
        Some(_) => free_handle(
            stage,
            call.argument::<uapi::kfd_ioctl_alloc_memory_of_gpu_args>()?
                .handle,
        ),
        None => Ok(()),
    }
}

fn mapping(stage: &Stage) -> uapi::kfd_ioctl_map_memory_to_gpu_args {
    // SAFETY: it is this process's own memory, at its end, where nothing else is.
    unsafe { ((stage.memory + SPACE as u64 - 4096) as *mut u32).write(stage.gpu_id()) };
    uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: stage.made,
        device_ids_array_ptr: stage.memory + SPACE as u64 - 4096,
        n_devices: 1,
        n_success: 0,
    }
}

fn unmapping(stage: &Stage) -> uapi::kfd_ioctl_unmap_memory_from_gpu_args {
    let same = mapping(stage);
    uapi::kfd_ioctl_unmap_memory_from_gpu_args {
        handle: same.handle,
        device_ids_array_ptr: same.device_ids_array_ptr,
        n_devices: 1,
        n_success: 0,
    }
}

fn unmap_and_free(stage: &mut Stage, _: &Call, answer: Option<u64>) -> Result<()> {
    if answer.is_some() {
        stage.make(uapi::IOC_UNMAP_MEMORY_FROM_GPU, unmapping(stage))?;
    }
    free(stage)
}

fn exported(stage: &Stage) -> uapi::kfd_ioctl_export_dmabuf_args {
    let handle = stage.made;
    // O_CLOEXEC and O_RDWR.
    uapi::kfd_ioctl_export_dmabuf_args {
        handle,
        flags: 0o2_000_002,
        dmabuf_fd: 0,
    }
}

fn dmabuf(args: &uapi::kfd_ioctl_export_dmabuf_args) -> OwnedFd {
    // SAFETY: the kernel has just made it for this process.
    unsafe { OwnedFd::from_raw_fd(args.dmabuf_fd as i32) }
}

/// A buffer, and a dma-buf of it that `close_and_free` closes.
fn export(stage: &mut Stage) -> Result<u32> {
    allocate(stage)?;
    let file = dmabuf(&stage.make(uapi::IOC_EXPORT_DMABUF, exported(stage))?);
    let number = file.as_raw_fd() as u32;
    stage.files.push(file);
    Ok(number)
}

fn close_and_free(stage: &mut Stage, _: &Call, _: Option<u64>) -> Result<()> {
    stage.files.clear();
    free(stage)
}
