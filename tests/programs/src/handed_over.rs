// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A thread has copy engines write an entry into the page tables of a render node's VM, and another
//! one makes the VM the KFD's meanwhile, whose page tables the CPU writes. The engines stand still:
//! when they go on, what they write must not come behind what the CPU has taken out.

use crate::closed_evicted::{await_said, find_place, map, HOLD_INFO};
use crate::left_mapped::{await_file, say};
use crate::opener::render_node;
use crate::raw::ioctl;
use crate::render_job::Job;
use crate::svm::pieces::{Userptr, USERPTR};
use anyhow::{anyhow, ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MARK: u32 = 0x5eed_0049;
/// So long a thread takes at most to come to a lock, or past it.
const AT_ONCE: Duration = Duration::from_millis(500);
/// A job with a page fault has ended by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// Anonymous memory, looked for at once, for as long as it stays where it is.
const FLAGS: u32 = 2 | 4 | 8;

pub fn run() -> Result<()> {
    let nodes = topology::gpus()?;
    let node = nodes.first().context("no GPU")?;
    let job = Job::prepare(render_node(node)?)?;
    let (word, handle) = own_page(&job.render)?;
    // In a table that is there.
    let [first, size] = find_place(2 * PAGE)?;
    map(&job.render, handle, [first, size / 2])?;
    let place = [first + size / 2, size / 2];

    let number = job.render.as_raw_fd().to_string();
    let holder = thread::spawn(move || fs::write(HOLD_INFO, number));
    await_said(&["held"])?;
    let render = job.render.try_clone()?;
    let mapper = thread::spawn(move || map(&render, handle, place));
    await_said(&["waited for"])?;
    let (kfd, render, own) = (Kfd::open()?, job.render.try_clone()?, node.clone());
    let acquirer = thread::spawn(move || Device::acquire_by(&kfd, &own, render));
    thread::sleep(AT_ONCE);
    say("waiting")?;
    await_file("/tmp/go-late");
    fs::write(HOLD_INFO, "-1")?;
    holder.join().map_err(|_| anyhow!("the holder failed"))??;
    mapper.join().map_err(|_| anyhow!("the mapper failed"))??;
    thread::sleep(AT_ONCE);
    match acquirer.is_finished() {
        true => say("not ok - the VM is acquired before")?,
        false => say("ok - the VM is acquired behind what engines write")?,
    }
    // What engines are to write as the VM is acquired is waited for by who has them do it.
    let render = job.render.try_clone()?;
    let closer = thread::spawn(move || {
        let mut args = uapi::drm_gem_close { handle, pad: 0 };
        ioctl(&render, uapi::IOC_DRM_GEM_CLOSE, &mut args).context("GEM_CLOSE")
    });
    thread::sleep(AT_ONCE);
    say("closing")?;
    let begin = Instant::now();
    let device = acquirer.join().map_err(|_| anyhow!("acquiring failed"))??;
    println!("acquired {:.1?} later", begin.elapsed());
    closer.join().map_err(|_| anyhow!("the closer failed"))??;
    let _memory = Memory::gtt(&device, PAGE)?;

    let submitted = job.submit(job.own_word(), MARK)?;
    ensure!(job.ends(submitted, PATIENCE)?, "a job does not end");
    ensure!(job.read_own_word() == MARK, "a job has not run");
    let submitted = job.submit(place[0], MARK)?;
    let _ = job.ends(submitted, PATIENCE);
    // SAFETY: within the mapping, which nobody but a GPU writes.
    match unsafe { word.read_volatile() } {
        MARK => say("not ok - a job has written to a page that is closed"),
        _ => say("ok - a job does not reach a page that is closed"),
    }
}

/// A page of the program's own, until it ends, and the render node's handle of it.
fn own_page(render: impl AsFd) -> Result<(*mut u32, u32)> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping.
    let place = unsafe {
        let nowhere = std::ptr::null_mut();
        let place = mmap_anonymous(nowhere, PAGE, access, MapFlags::PRIVATE)?.cast::<u32>();
        place.write_volatile(0);
        place
    };
    let mut args = Userptr {
        address: place as u64,
        size: PAGE as u64,
        flags: FLAGS,
        handle: 0,
    };
    ioctl(render, USERPTR, &mut args).context("GEM_USERPTR")?;
    Ok((place, args.handle))
}
