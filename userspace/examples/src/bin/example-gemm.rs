// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Multiplies matrices twice: with tiles in local memory, and with the matrix core (MFMA). Compares
//! both with the CPU. `example-gemm [N]`, a multiple of 32; 128 if it is not said.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let n: usize = std::env::args().nth(1).map_or(Ok(128), |n| n.parse())?;
    ensure!(
        n > 0 && n <= 4096 && n % 32 == 0,
        "{n} is not a multiple of 32 up to 4096"
    );
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let queue = Queue::new(&device, 64)?;
    let done = Signals::new(&device, 64)?.signal(1)?;

    // Small whole numbers: every sum is exact, in whatever order it is made.
    let left: Vec<f32> = (0..n * n).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
    let right: Vec<f32> = (0..n * n).map(|i| (i * 5 % 11) as f32 - 5.0).collect();
    let right_answer = product(&left, &right, n);
    let [a, b, c] = [0, 1, 2].map(|_| Memory::vram(&device, n * n * 4));
    let (a, b, c) = (a?, b?, c?);
    a.write(0, &left);
    b.write(0, &right);
    let arguments = Arguments::default()
        .u64(a.address())
        .u64(b.address())
        .u64(c.address())
        .u32(n as u32);

    // Work-items: one for each element, or a wave of 64 for each tile of 32 x 32.
    for (kernel, items, group) in [
        ("gemm_tiled", n * n, 256),
        ("gemm_mfma", n * n / (32 * 32) * 64, 64),
    ] {
        let grid = [items as u32, 1, 1];
        let launch = Launch::new(
            &device,
            &code,
            kernel,
            grid,
            [group, 1, 1],
            arguments.bytes(),
        )?;
        c.write(0, &vec![f32::NAN; n * n]);
        done.store(1);
        let start = Instant::now();
        launch.submit(&queue, &done)?;
        done.wait(Duration::from_secs(600))?;
        let time = start.elapsed();
        let answer = c.read::<f32>(0, n * n);
        let wrong = answer
            .iter()
            .zip(&right_answer)
            .filter(|(got, want)| got != want);
        let wrong = wrong.count();
        println!(
            "{kernel}: {n}x{n}x{n}, {wrong} wrong, {:.1} s",
            time.as_secs_f64()
        );
        ensure!(wrong == 0, "{kernel} is wrong");
    }
    Ok(())
}

fn product(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let mut c = vec![0.0; n * n];
    for (row, sums) in c.chunks_mut(n).enumerate() {
        for k in 0..n {
            let factor = a[row * n + k];
            for (sum, element) in sums.iter_mut().zip(&b[k * n..]) {
                *sum += factor * element;
            }
        }
    }
    c
}
