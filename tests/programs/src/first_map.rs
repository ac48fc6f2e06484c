// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The first MAP of a buffer locks the root of the address space and the buffer. It is interrupted
//! (somebody else has to: SIGSTOP, once the module hold_locks.ko says `root`) while it has the one
//! and waits for the other; nothing may stay locked.

use crate::raw::{ioctl, Outcome};
use crate::running::PATIENCE;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::fs;
use std::time::{Duration, Instant};

/// Of hold_locks.ko.
const HOLD_LOCKS: &str = "/sys/kernel/debug/hold_locks";

pub fn run() -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    let mut buffer = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: 1 << 40,
        size: 1 << 16,
        gpu_id: device.gpu_id(),
        flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
        ..Default::default()
    };
    ioctl(device.kfd(), uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut buffer)?;
    let handle = buffer.handle;
    let mut export = uapi::kfd_ioctl_export_dmabuf_args {
        handle,
        ..Default::default()
    };
    ioctl(device.kfd(), uapi::IOC_EXPORT_DMABUF, &mut export)?;
    // SAFETY: the kernel has just made it for this process.
    let file = unsafe { OwnedFd::from_raw_fd(export.dmabuf_fd as i32) };
    // Threads of their own: this one gets the signals.
    let (held, mapped) = std::thread::scope(|scope| {
        let (file, node) = (file.as_raw_fd(), device.render().as_raw_fd());
        let holder = scope.spawn(move || fs::write(HOLD_LOCKS, format!("{file} {node}")));
        let begin = Instant::now();
        while fs::read_to_string(HOLD_LOCKS).is_ok_and(|stage| stage.is_empty())
            && begin.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mapped = scope.spawn(|| map(&device, handle)).join();
        (holder.join(), mapped)
    });
    let failed = |_| anyhow::anyhow!("a thread failed");
    held.map_err(failed)?.context("nothing was held")?;
    println!("MAP: {:?}", mapped.map_err(failed)?);
    let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
    let freed = ioctl(device.kfd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut free);
    ensure!(freed.is_ok(), "FREE: {freed:?}");
    Ok(())
}

/// Maps and unmaps it.
fn map(device: &Device, handle: u64) -> Outcome {
    let gpu = device.gpu_id();
    let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle,
        device_ids_array_ptr: &raw const gpu as u64,
        n_devices: 1,
        n_success: 0,
    };
    ioctl(device.kfd(), uapi::IOC_MAP_MEMORY_TO_GPU, &mut map)?;
    let mut unmap = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
        handle,
        device_ids_array_ptr: &raw const gpu as u64,
        n_devices: 1,
        n_success: 0,
    };
    ioctl(device.kfd(), uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut unmap)
}
