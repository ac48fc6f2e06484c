// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One product of matrices in half precision, launched over and over through one queue, as a
//! benchmark does it. `example-half-gemm [COUNT [N [GPU]]]`: 1000 products of N x N matrices, N a
//! multiple of 32, if it is not said 64, on the first GPU. Compares the last one with the CPU.
//!
//! While it computes it asks the kernel for nothing: launches are packets in memory.
//! `Documentation/many-launches.md` looks at it from outside.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let number =
        |at: usize, or: usize| std::env::args().nth(at).map_or(Ok(or), |word| word.parse());
    let (count, n, gpu): (usize, usize, usize) = (number(1, 1000)?, number(2, 64)?, number(3, 0)?);
    ensure!(count > 0, "nothing to launch");
    // Up to 1024, for the sums to be exact in half precision.
    ensure!(
        n > 0 && n <= 1024 && n % 32 == 0,
        "{n} is not a multiple of 32 up to 1024"
    );
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let node = gpus
        .get(gpu)
        .with_context(|| format!("there is no GPU {gpu}"))?;
    let device = Device::acquire(&kfd, node)?;
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let queue = Queue::new(&device, 1024)?;
    let done = Signals::new(&device, 64)?.signal(count as i64)?;

    let left: Vec<i32> = (0..n * n).map(|i| (i * 7 % 5) as i32 - 2).collect();
    let right: Vec<i32> = (0..n * n).map(|i| (i * 5 % 3) as i32 - 1).collect();
    let [a, b, c] = [0, 1, 2].map(|_| Memory::vram(&device, n * n * 2));
    let (a, b, c) = (a?, b?, c?);
    a.write(0, &left.iter().map(|x| half(*x)).collect::<Vec<u16>>());
    b.write(0, &right.iter().map(|x| half(*x)).collect::<Vec<u16>>());
    c.write(0, &vec![0x7e00u16; n * n]);
    let arguments = Arguments::default()
        .u64(a.address())
        .u64(b.address())
        .u64(c.address())
        .u32(n as u32);
    // A wave of 64 work-items for each tile of 32 x 32.
    let grid = [(n * n / (32 * 32) * 64) as u32, 1, 1];
    let launch = Launch::new(
        &device,
        &code,
        "gemm_half",
        grid,
        [64, 1, 1],
        arguments.bytes(),
    )?;

    let start = Instant::now();
    for _ in 0..count {
        launch.submit(&queue, &done)?;
    }
    queue.wait(&done, Duration::from_secs(600))?;
    let seconds = start.elapsed().as_secs_f64();
    // `right` lies by columns.
    let product = c.read::<u16>(0, n * n);
    let wrong = product.iter().enumerate().filter(|(at, got)| {
        let (row, column) = (&left[at / n * n..][..n], &right[at % n * n..][..n]);
        **got != half(row.iter().zip(column).map(|(x, y)| x * y).sum())
    });
    let wrong = wrong.count();
    println!(
        "{count} products of {n}x{n}x{n} through queue {} on GPU {}: {wrong} wrong, {seconds:.1} s",
        queue.id(),
        device.gpu_id()
    );
    ensure!(wrong == 0, "the product is wrong");
    Ok(())
}

/// A whole number up to 2048, or less than 0, as half-precision floating point.
fn half(value: i32) -> u16 {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let exponent = magnitude.ilog2();
    let fraction = (magnitude << (10 - exponent.min(10)) >> exponent.saturating_sub(10)) & 0x3ff;
    ((value < 0) as u16) << 15 | (((exponent + 15) << 10) | fraction) as u16
}
