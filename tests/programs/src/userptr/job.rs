// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Jobs of the render node beside memory of the process's own: nobody stops them when the kernel
//! takes pages back. amdgpu's worker, which is to show the new ones, waits meanwhile, as it does
//! for a program that has to bring other pages in (hold_info.ko).

use crate::closed_evicted::{await_said, HOLD_INFO};
use crate::opener::render_node;
use crate::render_job::Job;
use crate::running::say;
use anyhow::{ensure, Context, Result};
use kfd::topology;
use kfd::{Device, Kfd, Memory};
use rustix::fd::AsRawFd;
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const BEFORE: u32 = 0x5eed_0041;
const AFTER: u32 = 0x5eed_0042;
/// Of a job, and of the worker.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has a job write to pages before and behind their end, at which another mapping looks.
pub fn write_to_gone_pages() -> Result<()> {
    let nodes = topology::gpus()?;
    let job = Job::prepare(render_node(nodes.first().context("no GPU")?)?)?;
    let kfd = Kfd::open()?;
    let device = Device::acquire_by(&kfd, &nodes[0], job.render.try_clone()?)?;
    let gone = Memory::userptr(&device, PAGE)?;
    let file = memfd_create("pages", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, PAGE as u64)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let place = gone.as_ptr().as_ptr().cast();
    // SAFETY: a new mapping, and one in the place of the buffer's own, which nobody else uses.
    let word = unsafe {
        mmap(
            place,
            PAGE,
            access,
            MapFlags::SHARED | MapFlags::FIXED,
            &file,
            0,
        )?;
        mmap(
            std::ptr::null_mut(),
            PAGE,
            access,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    // SAFETY: within that mapping, to which the GPU writes.
    let read = || unsafe { word.cast::<u32>().read_volatile() };
    // A job that misses a page ends with an error, when its time is over.
    let write = |value| -> Result<()> {
        let number = job.submit(gone.address(), value)?;
        let _ = job.ends(number, PATIENCE);
        Ok(())
    };
    let start = Instant::now();
    while read() != BEFORE {
        ensure!(start.elapsed() < PATIENCE, "the pages are not shown");
        // The worker shows the file's in the place of the buffer's first ones.
        thread::sleep(Duration::from_secs(1));
        write(BEFORE)?;
    }
    say("ok - a job writes to the pages")?;
    let descriptor = job.render.as_raw_fd().to_string();
    let held = thread::spawn(|| fs::write(HOLD_INFO, descriptor));
    await_said(&["held"])?;
    // SAFETY: in the place of the mapping above.
    unsafe {
        mmap_anonymous(
            place,
            PAGE,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::FIXED,
        )?
    };
    write(AFTER)?;
    match read() {
        BEFORE => say("ok - a job does not reach pages that have gone")?,
        _ => say("not ok - a job has written to pages that have gone")?,
    }
    fs::write(HOLD_INFO, "-1")?;
    held.join().unwrap().context("hold_info.ko")
}
