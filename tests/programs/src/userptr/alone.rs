// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process whose leader has ended before its other threads, and one that is killed in the middle
//! of a search for its pages: amdgpu asks for the leader's memory where it means the process's.

use super::{Bench, PATIENCE};
use crate::raw::alloc_user;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Errno, Kfd, Memory};
use nix::libc::{syscall, SYS_exit};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use rustix::fd::OwnedFd;
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, mmap_anonymous, mprotect, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::fs;
use std::ptr::null_mut;
use std::sync::mpsc::{channel, Sender};
use std::time::{Duration, Instant};

/// Ends the leader's thread, and goes on in another one, which ends the process.
pub fn without_leader() -> Result<()> {
    let (ready, may_end) = channel();
    std::thread::spawn(move || {
        let code = match go_on(ready) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("kfd-tests: {error:#}");
                1
            }
        };
        std::process::exit(code);
    });
    may_end.recv().context("the other thread")?;
    // SAFETY: ends this thread alone, whose stack nobody uses.
    unsafe { syscall(SYS_exit, 0) };
    unreachable!("a thread that has ended")
}

fn go_on(ready: Sender<()>) -> Result<()> {
    let bench = Bench::new()?;
    let system = Memory::gtt(bench.gpu.device(), 4096)?;
    ready.send(())?;
    let deadline = Instant::now() + PATIENCE;
    while !leader_has_ended()? {
        ensure!(Instant::now() < deadline, "the leader does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = bench
        .memory
        .export()
        .map(drop)
        .map_err(|error| error.errno());
    println!("EXPORT_DMABUF of user pages: {refused:?}");
    ensure!(refused == Err(Some(Errno::EPERM)), "others may have them");
    system.export()?;
    bench.protect_for_a_while()?;
    bench.goes_on()
}

/// Whether its thread is a zombie, which `/proc` says of the process.
fn leader_has_ended() -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", std::process::id()))?;
    let state = stat.rsplit(") ").next().context("a line without a name")?;
    Ok(state.starts_with('Z'))
}

/// Bytes of the pages that are looked for, of which few are behind all.
const MANY: usize = 512 << 20;
const FEW: usize = 2 << 20;
/// After so long the first ones have been found, and the others are being looked for.
const SEARCH: Duration = Duration::from_secs(3);

/// Has many pages looked for, which takes a list of them, and then as many again, of which one is
/// invalidated before they are found: so the list stays for the next search. Is killed then.
pub fn killed() -> Result<()> {
    let kfd = Kfd::open()?;
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    let device = Device::acquire(&kfd, &node)?;
    let file = memfd_create("few", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, FEW as u64)?;
    let [first, second] = [many_pages(&file)?, many_pages(&file)?];
    for place in [first, second] {
        alloc_user(&**device.kfd(), device.gpu_id(), place as u64, MANY)?;
    }
    invalidate(first, MANY)?;
    let until = Instant::now() + SEARCH;
    while Instant::now() < until {
        invalidate(second, FEW)?;
    }
    kill(Pid::this(), Signal::SIGKILL)?;
    Ok(())
}

/// A place of `MANY` bytes with the file's pages over and over.
fn many_pages(file: &OwnedFd) -> Result<*mut c_void> {
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new place, which nobody looks at.
    let many = unsafe { mmap_anonymous(null_mut(), MANY, both, MapFlags::PRIVATE)? };
    for at in (0..MANY).step_by(FEW) {
        // SAFETY: within that place.
        unsafe {
            let at = many.cast::<u8>().add(at).cast();
            mmap(at, FEW, both, MapFlags::SHARED | MapFlags::FIXED, file, 0)?;
        }
    }
    Ok(many)
}

/// Has the kernel forget what it has found there.
fn invalidate(place: *mut c_void, size: usize) -> Result<()> {
    for access in [
        MprotectFlags::READ,
        MprotectFlags::READ | MprotectFlags::WRITE,
    ] {
        // SAFETY: nobody of this process looks there.
        unsafe { mprotect(place, size, access)? };
    }
    Ok(())
}
