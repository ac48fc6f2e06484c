// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory that two processes share by a dma-buf: one exports VRAM, the other imports it, reads it
//! with its own copy queue and writes to it, and the first sees what was written.

use crate::bench::Bench;
use crate::raw::ioctl;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Share VRAM with another process, which copies out of it and into it.
#[derive(Args)]
pub struct Ipc {
    /// Be the other process: this is the file to import.
    #[arg(long)]
    import: Option<i32>,
}

const BYTES: usize = 64 << 10;
const WORDS: usize = BYTES / 4;

fn pattern(seed: u32) -> Vec<u32> {
    (0..WORDS as u32)
        .map(|index| index.wrapping_mul(0x9e37_79b9) ^ seed)
        .collect()
}

impl Ipc {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
        match self.import {
            None => exporter(&device),
            // SAFETY: the parent left it open for this process.
            Some(fd) => importer(&device, &unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    }
}

fn exporter(device: &Arc<Device>) -> Result<()> {
    let memory = Memory::vram(device, BYTES)?;
    memory.write(0, &pattern(1));
    let mut args = uapi::kfd_ioctl_export_dmabuf_args {
        handle: memory.handle(),
        // Children inherit it.
        flags: 0,
        dmabuf_fd: 0,
    };
    ioctl(device.kfd().as_fd(), uapi::IOC_EXPORT_DMABUF, &mut args)?;
    // SAFETY: the kernel has just made it for this process.
    let file = unsafe { OwnedFd::from_raw_fd(args.dmabuf_fd as i32) };
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(["ipc", "--import", &file.as_raw_fd().to_string()])
        .status()?;
    ensure!(status.success(), "the importer failed: {status}");
    let same = memory.read::<u32>(0, WORDS) == pattern(2);
    println!("the exporter sees what the importer wrote: {same}");
    Ok(())
}

fn importer(device: &Arc<Device>, file: &OwnedFd) -> Result<()> {
    let kfd = device.kfd().as_fd();
    let mut info = uapi::kfd_ioctl_get_dmabuf_info_args {
        dmabuf_fd: file.as_raw_fd() as u32,
        ..Default::default()
    };
    ioctl(kfd, uapi::IOC_GET_DMABUF_INFO, &mut info)?;
    let own = info.gpu_id == device.gpu_id();
    println!(
        "{} bytes, flags {:#x}, of the same GPU: {own}",
        info.size, info.flags
    );
    // SAFETY: new address space, which stays until the program ends.
    let place =
        unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::empty(), MapFlags::PRIVATE)? };
    let mut import = uapi::kfd_ioctl_import_dmabuf_args {
        va_addr: place as u64,
        handle: 0,
        gpu_id: device.gpu_id(),
        dmabuf_fd: file.as_raw_fd() as u32,
    };
    ioctl(kfd, uapi::IOC_IMPORT_DMABUF, &mut import)?;
    let gpu_id = device.gpu_id();
    let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: import.handle,
        device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
        n_devices: 1,
        n_success: 0,
    };
    ioctl(kfd, uapi::IOC_MAP_MEMORY_TO_GPU, &mut map)?;
    let bench = Bench::new(device)?;
    let copies = CopyQueue::new(&bench)?;
    let own = Memory::gtt(device, BYTES)?;
    copies.copy(place as u64, own.address(), 1)?;
    println!(
        "the importer reads it: {}",
        own.read::<u32>(0, WORDS) == pattern(1)
    );
    own.write(0, &pattern(2));
    copies.copy(own.address(), place as u64, 2)?;
    Ok(())
}

/// A queue of a copy engine.
struct CopyQueue<'a> {
    bench: &'a Bench,
    doorbell: *mut u64,
    queue_id: u32,
}

/// Dwords of a linear copy, `SDMA_PKT_COPY_LINEAR` of `vega10_sdma_pkt_open.h`.
const COPY_DWORDS: usize = 7;
/// `SDMA_OP_COPY`
const COPY: u32 = 1;

impl<'a> CopyQueue<'a> {
    fn new(bench: &'a Bench) -> Result<Self> {
        let mut args = bench.queue();
        args.queue_type = uapi::KFD_IOC_QUEUE_TYPE_SDMA;
        ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut args)?;
        let inside = args.doorbell_offset as usize & 0x1fff;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let pages = args.doorbell_offset & !0x1fff;
        // SAFETY: a new mapping where the kernel likes; the doorbell lies inside its 8 KiB.
        let doorbell = unsafe {
            mmap(
                null_mut(),
                8192,
                access,
                MapFlags::SHARED,
                bench.kfd(),
                pages,
            )?
            .cast::<u8>()
            .add(inside)
            .cast()
        };
        Ok(Self {
            bench,
            doorbell,
            queue_id: args.queue_id,
        })
    }

    /// Copies `BYTES` bytes as the `number`-th thing that the queue does.
    fn copy(&self, from: u64, to: u64, number: usize) -> Result<()> {
        let packet = [
            COPY,
            BYTES as u32 - 1,
            0,
            from as u32,
            (from >> 32) as u32,
            to as u32,
            (to >> 32) as u32,
        ];
        let start = (number - 1) * COPY_DWORDS * 4;
        let end = (number * COPY_DWORDS * 4) as u64;
        self.bench.ring.write(start, &packet);
        // Where `Bench::queue` puts the write and the read index.
        self.bench.indices.write(56, &[end]);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: the mapping stays until the program ends.
        unsafe { self.doorbell.write_volatile(end) };
        let begin = Instant::now();
        while self.bench.indices.read::<u64>(128, 1)[0] != end {
            ensure!(
                begin.elapsed() < Duration::from_secs(60),
                "the copy engine does nothing"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for CopyQueue<'_> {
    fn drop(&mut self) {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id: self.queue_id,
            ..Default::default()
        };
        // What it leaves behind ends with the process.
        let _ = ioctl(self.bench.kfd(), uapi::IOC_DESTROY_QUEUE, &mut args);
    }
}
