// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Two GPUs that xGMI connects: each reads and writes the other's memory, by a kernel and by a copy
//! engine.

use crate::raw::ioctl;
use crate::running::{fill, wrong_pages, PATIENCE};
use crate::waves::{churn, Gpu, GROUP};
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{CopyQueue, Queue};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::process::Command;
use std::sync::Arc;

/// Bytes of a buffer: a whole group of pages, as [`wrong_pages`] wants it.
const SIZE: usize = 1 << 20;
const WORDS: usize = SIZE / 4;
const GROUPS: u32 = 3;
const ROUNDS: u32 = 20;

/// Each GPU with the other's memory, each in a process of its own, which has one page of events.
#[derive(Args)]
pub struct Peer {
    /// The number of the GPU that uses the other's memory.
    #[arg(long)]
    user: Option<usize>,
}

impl Peer {
    pub fn run(&self) -> Result<()> {
        if let Some(user) = self.user {
            return uses_the_other(user);
        }
        for user in ["0", "1"] {
            println!("GPU {user}:");
            let status = Command::new(std::env::current_exe()?)
                .args(["peer", "--user", user])
                .status()?;
            ensure!(status.success(), "GPU {user}: {status}");
        }
        Ok(())
    }
}

/// The GPU of that number, 0 or 1, reads and writes memory of the other one.
fn uses_the_other(user: usize) -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let open = |number: usize| {
        let node = nodes.get(number).context("two GPUs are needed")?;
        Ok::<_, anyhow::Error>(Device::acquire(&kfd, node)?)
    };
    let (own, other) = (open(user)?, open(1 - user.min(1))?);
    one_way(&Gpu::on(own, 8)?, &other)
}

/// Memory of one GPU that another one reaches, too.
struct Shared<'a> {
    memory: Memory,
    user: &'a Arc<Device>,
}

impl<'a> Shared<'a> {
    fn new(owner: &Arc<Device>, user: &'a Gpu) -> Result<Self> {
        let memory = Memory::vram(owner, SIZE)?;
        let user = user.device();
        let gpu_id = user.gpu_id();
        let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
            handle: memory.handle(),
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        ioctl(user.kfd().as_fd(), uapi::IOC_MAP_MEMORY_TO_GPU, &mut map)
            .context("MAP_MEMORY_TO_GPU for the other GPU")?;
        Ok(Self { memory, user })
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let gpu_id = self.user.gpu_id();
        let mut unmap = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle: self.memory.handle(),
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        // What it leaves behind ends with the process.
        let _ = ioctl(
            self.user.kfd().as_fd(),
            uapi::IOC_UNMAP_MEMORY_FROM_GPU,
            &mut unmap,
        );
    }
}

/// `user` reads and writes memory of `owner`.
fn one_way(user: &Gpu, owner: &Arc<Device>) -> Result<()> {
    let seed = 7 * std::process::id();
    let theirs = Shared::new(owner, user)?;
    fill(&theirs.memory, seed);
    println!(
        "kernel reads: {} pages wrong",
        wrong_pages(user, &theirs.memory, seed)?
    );
    println!(
        "kernel writes: right {}",
        kernel_writes(user, &theirs.memory)?
    );
    let own = Memory::vram(user.device(), SIZE)?;
    let data: Vec<u32> = (0..WORDS as u32)
        .map(|word| word.wrapping_mul(seed))
        .collect();
    own.write(0, &data);
    let copies = CopyQueue::new(user.device())?;
    copy(user, &copies, &own, &theirs.memory)?;
    println!(
        "copied there: right {}",
        theirs.memory.read::<u32>(0, WORDS) == data
    );
    let back: Vec<u32> = data.iter().map(|word| !word).collect();
    theirs.memory.write(0, &back);
    copy(user, &copies, &theirs.memory, &own)?;
    println!("copied back: right {}", own.read::<u32>(0, WORDS) == back);
    println!("imported: {}", import(user.device(), &theirs.memory)?);
    Ok(())
}

/// What IMPORT_DMABUF says of memory of another GPU of the hive, which is mapped without.
fn import(device: &Arc<Device>, theirs: &Memory) -> Result<String> {
    let file = theirs.export()?;
    Ok(match Memory::import(device, file.as_fd()) {
        Ok(_) => "done".into(),
        Err(error) => error.to_string(),
    })
}

fn copy(gpu: &Gpu, queue: &CopyQueue, from: &Memory, to: &Memory) -> Result<()> {
    let done = gpu.signal()?;
    queue.copy(from.address(), to.address(), SIZE as u64, &done)?;
    done.wait(PATIENCE)?;
    Ok(())
}

/// A kernel computes into memory of another GPU.
fn kernel_writes(gpu: &Gpu, out: &Memory) -> Result<bool> {
    let seed = std::process::id();
    let items = GROUPS * GROUP;
    let mut arguments = out.address().to_le_bytes().to_vec();
    arguments.extend(seed.to_le_bytes());
    arguments.extend(ROUNDS.to_le_bytes());
    let launch = gpu.launch("churn", items, &arguments)?;
    let queue = Queue::new(gpu.device(), 64)?;
    let done = gpu.signal()?;
    launch.submit(&queue, &done)?;
    done.wait(PATIENCE)?;
    let got = out.read::<u32>(0, items as usize);
    let right: Vec<u32> = (0..GROUPS)
        .flat_map(|group| churn(group, seed, ROUNDS))
        .collect();
    ensure!(got.len() == right.len(), "results of another size");
    Ok(got == right)
}
