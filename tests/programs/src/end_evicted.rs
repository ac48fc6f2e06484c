// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Processes that are killed while their VRAM is evicted, and while a child of theirs, which has
//! the ring of their queue mapped, waits for the ring to be moved, with its reservation. What the
//! end of such a process does with the ring must come after it has let its buffers move.

use crate::bench::Bench;
use crate::closed_evicted::evict_vram;
use crate::raw;
use anyhow::{anyhow, ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory, MemoryFlags};
use kfd_uapi as uapi;
use nix::libc;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{mmap, MapFlags, ProtFlags};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// So long an end may take on a loaded host. What goes wrong lasts as long as the child lives.
const PATIENCE: Duration = Duration::from_secs(30);

/// Times to kill at are spread over this one, as it takes the driver 10 ms to begin.
const SPREAD: Duration = Duration::from_millis(16);

/// How often.
#[derive(clap::Args)]
pub struct EndEvicted {
    #[arg(default_value_t = 32)]
    rounds: u32,
}

impl EndEvicted {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let file = evict_vram(nodes.first().context("no GPU")?);
        let mut longest = Duration::ZERO;
        for round in 0..self.rounds {
            let delay = SPREAD * round / self.rounds;
            let took = one(&file, delay).with_context(|| format!("killed after {delay:?}"))?;
            longest = longest.max(took);
        }
        println!("figure: the longest of {} ends: {longest:?}", self.rounds);
        Ok(())
    }
}

/// How long a process takes to end that is killed `delay` after an eviction has begun.
fn one(file: &str, delay: Duration) -> Result<Duration> {
    let (read, write) = rustix::pipe::pipe()?;
    let process = fork(|| {
        if let Err(error) = hold(&write) {
            println!("{error:#}");
        }
    })?;
    drop(write);
    let mut child = [0; 4];
    ensure!(rustix::io::read(&read, &mut child)? == 4, "it has no queue");
    let child = Pid::from_raw(i32::from_ne_bytes(child));
    std::thread::scope(|scope| {
        let eviction = scope.spawn(|| std::fs::read(file));
        std::thread::sleep(delay);
        let begin = Instant::now();
        kill(process, Signal::SIGKILL)?;
        let ended = ends(process);
        let took = begin.elapsed();
        // Nobody waits for the ring any more: all go on, whatever went wrong.
        kill(child, Signal::SIGKILL)?;
        let evicted = eviction.join().map_err(|_| anyhow!("a thread failed"))?;
        evicted.context("amdgpu_evict_vram")?;
        ensure!(ended?, "it does not end");
        Ok(took)
    })
}

fn ends(process: Pid) -> Result<bool> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if waitpid(process, Some(WaitPidFlag::WNOHANG))? != WaitStatus::StillAlive {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// A queue with its ring in VRAM, and a child that reads it; says the child's name, and stays.
fn hold(said: &OwnedFd) -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    let mut bench = Bench::new(&device)?;
    let flags = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
    bench.ring = Memory::allocate(&device, 64 << 10, flags)?;
    let (file, how) = (bench.ring.export()?, MapFlags::SHARED);
    // SAFETY: a mapping of its own.
    let ring = unsafe { mmap(null_mut(), 4096, ProtFlags::READ, how, &file, 0) }?;
    raw::ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut bench.queue())?;
    let child = fork(|| loop {
        // SAFETY: the child has it mapped until it is killed.
        let _ = unsafe { ring.cast::<u32>().read_volatile() };
    })?;
    rustix::io::write(said.as_fd(), &child.as_raw().to_ne_bytes())?;
    loop {
        std::thread::park();
    }
}

/// The child ends when `child` returns.
fn fork(child: impl FnOnce()) -> Result<Pid> {
    // SAFETY: it is not called while there is another thread.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: as a child ends that runs nothing of its parent's.
            unsafe { libc::_exit(1) }
        }
        pid => {
            ensure!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            Ok(Pid::from_raw(pid))
        }
    }
}
