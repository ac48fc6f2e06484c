// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Page tables of a process without a queue are changed when a tester says so: while copy engines,
//! which write them, stand still, that never ends.

use crate::raw::change_mapping;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi::{IOC_MAP_MEMORY_TO_GPU as MAP, IOC_UNMAP_MEMORY_FROM_GPU as UNMAP};
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

impl LateUpdate {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
        let memory = Memory::gtt(&device, 4096)?;
        let mut beside = Vec::new();
        for _ in 0..self.beside {
            beside.push(Memory::gtt(&device, 4096)?);
        }
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
