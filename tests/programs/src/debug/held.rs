// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A debugger's pipe whose lock its reader keeps for ever: it reads into memory that nobody brings
//! in. The debugger ends; the driver's worker goes on waiting for the pipe.

use crate::raw;
use crate::refused::missing_page;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory, Queue, QueueKind, QueueMemory};
use kfd_uapi as uapi;
use nix::libc;
use nix::unistd::{fork, ForkResult};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::pipe::{pipe_with, PipeFlags};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RING: usize = 0x4000;
/// TIMEOUT: what comes does so at once.
const COMES: Duration = Duration::from_secs(30);

/// Says who keeps the pipe, and ends.
pub fn run() -> Result<()> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // SAFETY: this process has one thread. The child has none of the driver's files.
    let reader = match unsafe { fork() }.context("fork")? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => keep(&read),
    };
    drop(read);
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    enable(&kfd, &write)?;
    let _first = queue(&device)?;
    let place = format!("/proc/{reader}/wchan");
    let begin = Instant::now();
    while !std::fs::read_to_string(&place)?.contains("userfault") {
        ensure!(begin.elapsed() < COMES, "nothing came through the pipe");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Of this one the driver tells in vain.
    let _second = queue(&device)?;
    std::thread::sleep(Duration::from_millis(300));
    println!("reader {reader}");
    Ok(())
}

/// Reads what comes into memory that never will be there.
fn keep(pipe: &OwnedFd) -> ! {
    if let Ok((page, _fault)) = missing_page() {
        let _ = poll(&mut [PollFd::new(pipe, PollFlags::IN)], None);
        // SAFETY: the page is this process's, and nobody uses it.
        unsafe { libc::read(pipe.as_raw_fd(), page as *mut _, 1) };
    }
    // SAFETY: it ends the child.
    unsafe { libc::_exit(1) }
}

/// The process debugs itself: of what happens `news` is told.
pub fn enable(kfd: &Kfd, news: &OwnedFd) -> Result<()> {
    let mut info = uapi::kfd_runtime_info::default();
    let enable = uapi::kfd_ioctl_dbg_trap_enable_args {
        exception_mask: u64::MAX,
        rinfo_ptr: std::ptr::from_mut(&mut info) as u64,
        rinfo_size: size_of_val(&info) as u32,
        dbg_fd: news.as_raw_fd() as u32,
    };
    let mut args = uapi::kfd_ioctl_dbg_trap_args {
        pid: std::process::id(),
        op: uapi::KFD_IOC_DBG_TRAP_ENABLE,
        __bindgen_anon_1: uapi::kfd_ioctl_dbg_trap_args__bindgen_ty_1 { enable },
    };
    raw::ioctl(kfd.as_fd(), uapi::IOC_DBG_TRAP, &mut args).context("ENABLE")
}

/// A queue, of which the debugger is told.
fn queue(device: &Arc<Device>) -> Result<Queue> {
    let memory = QueueMemory {
        ring: Memory::gtt(device, RING)?.into(),
        ring_size: RING as u32,
        indices: Memory::gtt(device, 4096)?.into(),
        write_index: 0,
        read_index: 0x80,
    };
    Ok(Queue::create(device, QueueKind::Aql, memory)?)
}
