// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Adds two vectors on the first GPU: all that a dispatch needs.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use std::time::Duration;

const COUNT: usize = 1000;

fn main() -> Result<()> {
    // A GPU whose address space is this process's.
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;

    // Three vectors in its memory, at addresses that are the same here and there.
    let left: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let right: Vec<f32> = (0..COUNT).map(|i| 0.5 * i as f32).collect();
    let a = Memory::vram(&device, COUNT * 4)?;
    let b = Memory::vram(&device, COUNT * 4)?;
    let c = Memory::vram(&device, COUNT * 4)?;
    a.write(0, &left);
    b.write(0, &right);

    // The kernel, its arguments, and a grid of whole work-groups.
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let arguments = Arguments::default()
        .u64(a.address())
        .u64(b.address())
        .u64(c.address())
        .u32(COUNT as u32);
    let grid = [COUNT.next_multiple_of(256) as u32, 1, 1];
    let launch = Launch::new(&device, &code, "vadd", grid, [256, 1, 1], arguments.bytes())?;

    // A packet into a ring, and asleep until the GPU's interrupt.
    let queue = Queue::new(&device, 64)?;
    let done = Signals::new(&device, 64)?.signal(1)?;
    launch.submit(&queue, &done)?;
    done.wait(Duration::from_secs(10))?;

    let sums = c.read::<f32>(0, COUNT);
    let wrong = (0..COUNT).filter(|&i| sums[i] != left[i] + right[i]);
    ensure!(wrong.count() == 0, "the sums are wrong");
    println!("{COUNT} sums are right; the last is {}", sums[COUNT - 1]);
    Ok(())
}
