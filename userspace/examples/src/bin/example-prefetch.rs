// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Managed memory that moves: into the GPU's memory before a kernel needs it, back before the CPU
//! does, and by itself when the CPU touches it. Needs a driver with shared virtual memory.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Location, Managed};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use std::fs::read_to_string;
use std::path::Path;
use std::slice::from_ref;
use std::thread::sleep;
use std::time::{Duration, Instant};

const COUNT: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const PAGES: u64 = (COUNT * 4 / 4096) as u64;

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    let numbers = Managed::new(from_ref(&device), COUNT * 4)?;
    let sum = Managed::new(from_ref(&device), 4)?;
    numbers.write(0, &(0..COUNT as u32).collect::<Vec<_>>());

    // All of it goes to the GPU at once, instead of piece by piece as the kernel finds it missing.
    let before = moved(&device)?;
    numbers.prefetch(Location::Gpu(&device))?;
    let there = moved(&device)?;

    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let arguments = Arguments::default()
        .u64(numbers.address())
        .u64(sum.address())
        .u32(COUNT as u32);
    let grid = [COUNT as u32, 1, 1];
    let launch = Launch::new(
        &device,
        &code,
        "reduce",
        grid,
        [256, 1, 1],
        arguments.bytes(),
    )?;
    let queue = Queue::new(&device, 64)?;
    let done = Signals::new(&device, 64)?.signal(1)?;
    launch.submit(&queue, &done)?;
    done.wait(PATIENCE)?;
    let want = (0..COUNT as u32).fold(0u32, u32::wrapping_add);
    ensure!(sum.read::<u32>(0, 1)[0] == want, "the sum is wrong");

    // Whoever touches a page gets it, with those around it: the CPU the first one here.
    ensure!(numbers.read::<u32>(4, 1)[0] == 1, "a number is wrong");
    let touched = moved(&device)?;
    // The others are fetched before they are read.
    numbers.prefetch(Location::System)?;
    let back = moved(&device)?;
    let all = numbers.read::<u32>(0, COUNT);
    let wrong = (0..).zip(&all).filter(|(i, value)| i != *value).count();
    ensure!(wrong == 0, "{wrong} numbers are wrong");

    println!("{} of {PAGES} pages went to the GPU", there.0 - before.0);
    println!("{} came back when one was touched", touched.1 - there.1);
    println!("{} came back when they were fetched", back.1 - touched.1);
    println!("the sum is {want}");
    Ok(())
}

/// Pages that came into the GPU's memory and that left it, since the process has begun.
fn moved(device: &Device) -> Result<(u64, u64)> {
    let pid = std::process::id();
    let directory = format!("/sys/class/kfd/kfd/proc/{pid}/counters_{}", device.gpu_id());
    // A driver may show a process some milliseconds after it has begun.
    let begun = Instant::now();
    while !Path::new(&directory).exists() && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(1));
    }
    let count = |name: &str| -> Result<u64> {
        let path = format!("{directory}/{name}");
        let text = read_to_string(&path).with_context(|| path.clone())?;
        text.trim().parse().context(path)
    };
    Ok((count("page_in")?, count("page_out")?))
}
