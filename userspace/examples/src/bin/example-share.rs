// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Two processes with one buffer: the first computes into it and hands it on as a dma-buf, the
//! second computes with what it finds there.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::FdFlags;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const COUNT: usize = 1024;

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    match std::env::args().nth(1) {
        None => first(&device),
        Some(fd) => second(&device, fd.parse()?),
    }
}

/// Makes the buffer and leaves 1 in it, starts the second, and looks at what it left.
fn first(device: &Arc<Device>) -> Result<()> {
    let buffer = Memory::vram(device, COUNT * 4)?;
    buffer.write(0, &[0.0f32; COUNT]);
    add(device, &buffer, 1.0)?;
    let file = buffer.export()?;
    // The second inherits the file, and nothing else of the GPU.
    rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
    let status = Command::new(std::env::current_exe()?)
        .arg(file.as_raw_fd().to_string())
        .status()?;
    ensure!(status.success(), "the second process failed");
    let all = buffer.read::<f32>(0, COUNT);
    ensure!(all.iter().all(|value| *value == 3.0), "{} is not 3", all[0]);
    println!(
        "process {} sees what the other left: {}",
        std::process::id(),
        all[0]
    );
    Ok(())
}

/// Adds 2 to what the first left.
fn second(device: &Arc<Device>, fd: i32) -> Result<()> {
    // SAFETY: the first process passes an open descriptor that nothing else here knows.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let buffer = Memory::import(device, file)?;
    let found = buffer.read::<f32>(0, COUNT);
    ensure!(
        found.iter().all(|value| *value == 1.0),
        "{} is not 1",
        found[0]
    );
    println!(
        "process {} finds {} and adds 2",
        std::process::id(),
        found[0]
    );
    add(device, &buffer, 2.0)
}

/// Adds `value` to every element, on the GPU.
fn add(device: &Arc<Device>, buffer: &Memory, value: f32) -> Result<()> {
    let ones = Memory::vram(device, COUNT * 4)?;
    ones.write(0, &[1.0f32; COUNT]);
    let arguments = Arguments::default()
        .f32(value)
        .u64(ones.address())
        .u64(buffer.address())
        .u32(COUNT as u32);
    let code = CodeObject::load_one_of(device, &kfd_examples::KERNELS)?;
    let (grid, group) = ([COUNT as u32, 1, 1], [256, 1, 1]);
    let launch = Launch::new(device, &code, "saxpy", grid, group, arguments.bytes())?;
    let queue = Queue::new(device, 64)?;
    let done = Signals::new(device, 64)?.signal(1)?;
    launch.submit(&queue, &done)?;
    done.wait(Duration::from_secs(10))?;
    Ok(())
}
