// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Managed memory: the CPU and the GPU work on the same vectors in turns, at the same addresses,
//! without a copy or a mapping by the program. Needs a driver with shared virtual memory.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Managed};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use std::slice::from_ref;
use std::time::Duration;

const COUNT: usize = 1 << 18;
const TURNS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;

    // Ordinary memory, which the GPU sees from here on; its pages are made when they are touched.
    let x = Managed::new(from_ref(&device), COUNT * 4)?;
    let y = Managed::new(from_ref(&device), COUNT * 4)?;
    x.write(0, &[1.0f32; COUNT]);

    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let arguments = Arguments::default()
        .f32(2.0)
        .u64(x.address())
        .u64(y.address())
        .u32(COUNT as u32);
    let grid = [COUNT as u32, 1, 1];
    let launch = Launch::new(
        &device,
        &code,
        "saxpy",
        grid,
        [256, 1, 1],
        arguments.bytes(),
    )?;
    let queue = Queue::new(&device, 64)?;
    let signals = Signals::new(&device, 64)?;

    // The GPU adds 2 x to y; the CPU looks, and makes x one more, which the GPU adds next.
    let mut want = 0.0f32;
    for turn in 0..TURNS {
        let done = signals.signal(1)?;
        launch.submit(&queue, &done)?;
        done.wait(PATIENCE)?;
        want += 2.0 * (turn + 1) as f32;
        let found = y.read::<f32>(0, COUNT);
        let wrong = found.iter().filter(|value| **value != want).count();
        ensure!(wrong == 0, "turn {turn}: {wrong} numbers are not {want}");
        x.write(0, &[(turn + 2) as f32; COUNT]);
    }
    println!("{TURNS} turns of GPU and CPU on {COUNT} numbers: {want}");
    Ok(())
}
