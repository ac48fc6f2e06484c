// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process whose parent has opened the render node, and is killed. What the process unmaps then
//! must be gone from its page tables, as its memory is somebody else's afterwards.

use crate::running::{fill, pattern, vram_and_ticks, wrong_pages, wrong_pages_at, PATIENCE};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd, Memory, MemoryFlags};
use nix::libc;
use nix::unistd::{getpid, getppid, Pid};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const MIB: usize = 1;
/// What the memory has while it is this process's, and afterwards.
pub(crate) const OWN: u32 = 0x5eed_0011;
pub(crate) const OTHERS: u32 = 0x5eed_0012;

/// A kernel that faults does not end: so long one is waited for.
pub(crate) const TO_FAULT: Duration = Duration::from_secs(10);

/// The parent is killed; the child says what came of it.
#[derive(clap::Args)]
pub struct OpenerKilled {
    /// The parent is killed before the child acquires the VM, while others close the file.
    #[arg(long)]
    early: bool,
}

impl OpenerKilled {
    pub fn run(&self) -> Result<()> {
        run(self.early)
    }
}

fn run(early: bool) -> Result<()> {
    let nodes = topology::gpus()?;
    let node = nodes.first().context("no GPU")?;
    let render = render_node(node)?;
    let (read, write) = rustix::pipe::pipe()?;
    let opener = getpid();
    // SAFETY: there is no other thread.
    match unsafe { libc::fork() } {
        0 => {
            drop(read);
            let result = child(node, render, write, opener, early);
            if let Err(error) = &result {
                println!("{error:#}");
            }
            std::process::exit(i32::from(result.is_err()));
        }
        child => {
            ensure!(child > 0, "fork: {}", std::io::Error::last_os_error());
            drop(write);
            let mut byte = [0];
            rustix::io::read(read.as_fd(), &mut byte)?;
            nix::sys::signal::kill(opener, nix::sys::signal::Signal::SIGKILL)?;
            unreachable!("it is killed")
        }
    }
}

/// A new file of the GPU's render node.
pub(crate) fn render_node(node: &Node) -> Result<OwnedFd> {
    let path = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(path.as_str(), flags, Mode::empty())?)
}

fn child(node: &Node, render: OwnedFd, ready: OwnedFd, opener: Pid, early: bool) -> Result<()> {
    let kfd = Kfd::open()?;
    let mut ready = Some(ready);
    let device = if early {
        drop(ready.take());
        await_end(opener)?;
        acquire_beside_closers(&kfd, node, render)?
    } else {
        Device::acquire_by(&kfd, node, render)?
    };
    let gpu = Gpu::on(device.clone(), 4)?;
    let (memory, _) = vram_and_ticks(&device, MIB, OWN)?;
    let wrong = wrong_pages(&gpu, &memory, OWN)?;
    ensure!(wrong == 0, "{wrong} pages are wrong before");
    drop(ready);
    await_end(opener)?;
    reads_on(&gpu, memory)
}

/// The parent has closed its files when this returns.
fn await_end(opener: Pid) -> Result<()> {
    let begin = Instant::now();
    while getppid() == opener {
        ensure!(begin.elapsed() < PATIENCE, "the parent lives");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// While other threads close descriptors of the file, which looks at the VM's entities.
fn acquire_beside_closers(kfd: &Arc<Kfd>, node: &Node, render: OwnedFd) -> Result<Arc<Device>> {
    let file = render.try_clone()?;
    let acquired = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !acquired.load(Ordering::Relaxed) {
                    drop(file.try_clone());
                }
            });
        }
        // Until they are at it.
        std::thread::sleep(Duration::from_millis(100));
        let device = Device::acquire_by(kfd, node, render);
        acquired.store(true, Ordering::Relaxed);
        Ok(device?)
    })
}

/// Unmaps and frees the memory, has others fill it, and says what a queue reads at its place.
pub(crate) fn reads_on(gpu: &Gpu, memory: Memory) -> Result<()> {
    let (address, size) = (memory.address(), memory.size());
    drop(memory);
    keep_free(address, size)?;
    reads_at(gpu, [address, size as u64])
}

/// Has nothing put at an address from which memory has gone.
pub(crate) fn keep_free(address: u64, size: usize) -> Result<()> {
    // SAFETY: nothing is there, or it fails; so nothing is put there afterwards.
    unsafe {
        mmap_anonymous(
            address as *mut _,
            size,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
        )
        .context("its place")?;
    }
    Ok(())
}

/// Fills the memory that is free with a pattern, and says what a queue reads at an address where
/// nothing is any more. Nothing is unmapped before that.
pub(crate) fn reads_at(gpu: &Gpu, place: [u64; 2]) -> Result<()> {
    reads_beside(gpu, place).map(drop)
}

/// The same. Returns that memory.
pub(crate) fn reads_beside(gpu: &Gpu, place: [u64; 2]) -> Result<Vec<Memory>> {
    // What was freed is the first that is given away.
    let flags = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
    let others: Vec<_> = (0..16)
        .map(|_| Memory::allocate(gpu.device(), MIB << 20, flags))
        .collect::<Result<_, _>>()?;
    others.iter().for_each(|memory| fill(memory, OTHERS));
    ensure!(others[0].read::<u32>(0, 1)[0] == pattern(0, OTHERS));
    match wrong_pages_at(gpu, place, OTHERS, TO_FAULT) {
        Ok(wrong) => println!("it reads memory: {wrong} pages are not another's"),
        Err(error) => println!("it faults: {error:#}"),
    }
    Ok(others)
}
