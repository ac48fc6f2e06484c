// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Page tables of a process without a queue are changed when a tester says so: while copy engines,
//! which write them, stand still, that never ends.

use crate::raw::change_mapping;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kfd::{topology, Device, Kfd, Memory, SvmAttribute};
use kfd_uapi::{self as uapi, IOC_MAP_MEMORY_TO_GPU as MAP, IOC_UNMAP_MEMORY_FROM_GPU as UNMAP};
use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};
use std::io::Write;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Change {
    Map,
    Unmap,
}

/// Wait for a file, map or unmap a buffer, and say what came of it.
#[derive(Args)]
pub struct LateUpdate {
    change: Change,
    /// The file; it says "waiting" before.
    #[arg(long)]
    go: PathBuf,
    /// Have so many other buffers mapped.
    #[arg(long, default_value_t = 0)]
    beside: u32,
    /// Share so many pages with the GPU, far from each other.
    #[arg(long, default_value_t = 0)]
    pages: usize,
}

const PAGE: usize = 4096;

/// What a page table has entries for, of which the driver writes neighbours together.
pub(crate) const APART: usize = 2 << 20;

/// The first page of each part of new memory, which nobody else touches: the address of the first.
pub(crate) fn share(device: &Device, pages: usize) -> Result<u64> {
    if pages == 0 {
        return Ok(0);
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping where the kernel likes.
    let memory = unsafe { mmap_anonymous(null_mut(), pages * APART, access, flags)? };
    // SAFETY: it says how to back what nobody has a reference to.
    unsafe { madvise(memory, pages * APART, Advice::LinuxNoHugepage)? };
    let attribute = SvmAttribute {
        type_: uapi::KFD_IOCTL_SVM_ATTR_ACCESS,
        value: device.gpu_id(),
    };
    for page in 0..pages {
        let start = memory as u64 + (page * APART) as u64;
        // SAFETY: nobody has a reference to it.
        unsafe { device.kfd().set_svm(start, PAGE as u64, &[attribute])? };
    }
    Ok(memory as u64)
}

impl LateUpdate {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
        let memory = Memory::gtt(&device, PAGE)?;
        let mut beside = Vec::new();
        for _ in 0..self.beside {
            beside.push(Memory::gtt(&device, PAGE)?);
        }
        share(&device, self.pages)?;
        let change = |request| change_mapping(request, &memory, device.gpu_id());
        if self.change == Change::Map {
            change(UNMAP)?;
        }
        println!("waiting");
        std::io::stdout().flush()?;
        while !self.go.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = match self.change {
            Change::Map => change(MAP),
            Change::Unmap => change(UNMAP),
        };
        println!("changed: {said:?}");
        drop(beside);
        Ok(())
    }
}
