// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Queues at work: a kernel from its packet to the program that waits for it, and user memory that
//! is taken while queues use it.

use super::queue::Other;
use super::{call, Meter};
use crate::bench::Bench;
use crate::waves::{Gpu, GROUP};
use anyhow::{Context, Result};
use kfd::Memory;
use kfd_aql::Queue;
use kfd_uapi as uapi;
use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};
use std::ptr::null_mut;
use std::time::Duration;

/// TIMEOUT: a kernel of one group is done at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Queues come back a few milliseconds after they were evicted.
const BACK: Duration = Duration::from_millis(50);
const PAGE: usize = 4096;

pub(super) fn all(meter: &Meter, bench: &Bench) -> Result<()> {
    dispatches(meter, bench)?;
    evictions(meter, bench)
}

/// Of one work-group, waited for by its signal's event.
fn dispatches(meter: &Meter, bench: &Bench) -> Result<()> {
    let gpu = Gpu::with_events(bench.device.clone(), 1, bench.events.clone())?;
    let queue = Queue::new(&bench.device, 64)?;
    let out = Memory::gtt(&bench.device, 4 * GROUP as usize)?;
    let mut arguments = out.address().to_le_bytes().to_vec();
    arguments.extend(7u32.to_le_bytes());
    arguments.extend(1u32.to_le_bytes());
    let mut row = meter.row("dispatch of a work-group, and the wait for it");
    for _ in 0..30 {
        let launch = gpu.launch("churn", GROUP, &arguments)?;
        let done = gpu.signal()?;
        row.sample(|| {
            launch.submit(&queue, &done)?;
            done.wait(PATIENCE)?;
            Ok(())
        })?;
    }
    row.print();
    Ok(())
}

/// A page of user memory that the GPU sees, with queues live.
fn evictions(meter: &Meter, bench: &Bench) -> Result<()> {
    const FLAGS: u32 =
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE;
    let (kfd, gpu_id) = (bench.device.kfd(), bench.gpu_id());
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel likes.
    let page = unsafe { mmap_anonymous(null_mut(), PAGE, access, MapFlags::PRIVATE)? };
    // SAFETY: in the mapping just made.
    let touch = || unsafe { page.cast::<u8>().write_volatile(1) };
    touch();
    let mut alloc = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: page as u64,
        size: PAGE as u64,
        mmap_offset: page as u64,
        gpu_id,
        flags: FLAGS,
        ..Default::default()
    };
    call(kfd, uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut alloc)?;
    let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: alloc.handle,
        device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
        n_devices: 1,
        n_success: 0,
    };
    call(kfd, uapi::IOC_MAP_MEMORY_TO_GPU, &mut map)?;
    let queues: Vec<Other> = (0..8).map(|_| Other::new(bench)).collect::<Result<_>>()?;
    let mut row = meter.row("user memory is taken: 8 queues are evicted");
    for _ in 0..20 {
        row.sample(|| {
            // SAFETY: the page is this function's, and nobody has a reference to it.
            unsafe { madvise(page, PAGE, Advice::LinuxDontNeed) }.context("madvise")
        })?;
        touch();
        std::thread::sleep(BACK);
    }
    row.print();
    drop(queues);
    let mut unmap = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
        handle: alloc.handle,
        device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
        n_devices: 1,
        n_success: 0,
    };
    call(kfd, uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut unmap)?;
    let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
        handle: alloc.handle,
    };
    call(kfd, uapi::IOC_FREE_MEMORY_OF_GPU, &mut free)
}
