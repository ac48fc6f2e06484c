// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Adds two vectors on the first GPU: all that a dispatch needs.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Buffer, Device, Kfd};
use kfd_aql::{CodeObject, Queue, Signals};
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
    let a = Buffer::from_slice(&device, &left)?;
    let b = Buffer::from_slice(&device, &right)?;
    let c = Buffer::<f32>::vram(&device, COUNT)?;

    // The kernel, its arguments, and a grid of whole work-groups.
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let launch = code
        .launch("vadd")?
        .grid(COUNT.next_multiple_of(256) as u32)
        .workgroup(256)
        .arg(&a)
        .arg(&b)
        .arg(&c)
        .arg(COUNT as u32)
        .build()?;

    // A packet into a ring, and asleep until the GPU's interrupt.
    let queue = Queue::new(&device, 64)?;
    let done = Signals::new(&device, 64)?.signal(1)?;
    launch.submit(&queue, &done)?;
    queue.wait(&done, Duration::from_secs(10))?;

    let sums = c.read();
    let wrong = (0..COUNT).filter(|&i| sums[i] != left[i] + right[i]);
    ensure!(wrong.count() == 0, "the sums are wrong");
    println!("{COUNT} sums are right; the last is {}", sums[COUNT - 1]);
    Ok(())
}
