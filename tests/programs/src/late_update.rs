// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Page tables of a process without a queue are changed when a tester says so: while copy engines,
//! which write them, stand still, that never ends.

use crate::raw::ioctl;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::io::Errno;
use std::io::Write;
use std::path::PathBuf;
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
}

fn map(memory: &Memory) -> Result<(), Errno> {
    let gpu = memory.device().gpu_id();
    let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: memory.handle(),
        device_ids_array_ptr: &raw const gpu as u64,
        n_devices: 1,
        n_success: 0,
    };
    ioctl(
        memory.device().kfd(),
        uapi::IOC_MAP_MEMORY_TO_GPU,
        &mut args,
    )
}

fn unmap(memory: &Memory) -> Result<(), Errno> {
    let gpu = memory.device().gpu_id();
    let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
        handle: memory.handle(),
        device_ids_array_ptr: &raw const gpu as u64,
        n_devices: 1,
        n_success: 0,
    };
    ioctl(
        memory.device().kfd(),
        uapi::IOC_UNMAP_MEMORY_FROM_GPU,
        &mut args,
    )
}

impl LateUpdate {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
        let memory = Memory::gtt(&device, 4096)?;
        let mut beside = Vec::new();
        for _ in 0..self.beside {
            beside.push(Memory::gtt(&device, 4096)?);
        }
        if self.change == Change::Map {
            unmap(&memory)?;
        }
        println!("waiting");
        std::io::stdout().flush()?;
        while !self.go.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = match self.change {
            Change::Map => map(&memory),
            Change::Unmap => unmap(&memory),
        };
        println!("changed: {said:?}");
        drop(beside);
        Ok(())
    }
}
