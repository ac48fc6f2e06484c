// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Rust on both sides: launches the kernels of `userspace/rust-kernels`, whose code object is the
//! one argument, and computes the same on the CPU.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Buffer, Device, Kfd};
use kfd_aql::{CodeObject, Queue, Signals};
use std::time::Duration;

const WIDTH: u32 = 64;
const LIMIT: u32 = 48;
const GROUP: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("which code object?")?;
    let file = std::fs::read(&path).with_context(|| path.clone())?;
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    let code = CodeObject::load(&device, &file)?;
    let queue = Queue::new(&device, 64)?;
    let done = Signals::new(&device, 1)?.signal(1)?;

    let steps = Buffer::<u32>::vram(&device, (WIDTH * WIDTH) as usize)?;
    let launch = code
        .launch("mandelbrot")?
        .grid(WIDTH * WIDTH)
        .workgroup(GROUP);
    let launch = launch.arg(&steps).arg(WIDTH).arg(LIMIT).build()?;
    launch.submit(&queue, &done)?;
    queue.wait(&done, PATIENCE)?;
    let steps = steps.read();
    for row in steps.chunks(WIDTH as usize).step_by(2) {
        let ink = |steps: &u32| [' ', '.', ':', '+', '#', '@'][(*steps * 5 / LIMIT) as usize];
        println!("{}", row.iter().map(ink).collect::<String>().trim_end());
    }
    // Rounding may take a point on the rim another step; the CPU multiplies and adds apart, too.
    let wrong = (0..)
        .zip(&steps)
        .filter(|(index, steps)| on_cpu(*index).abs_diff(**steps) > 1);
    let wrong = wrong.count();

    let numbers: Vec<u32> = (0..1000).map(|number| number * 7919).collect();
    let sum = Buffer::<u32>::gtt(&device, 1)?;
    let memory = Buffer::from_slice(&device, &numbers)?;
    let launch = code.launch("add_up")?.grid(1024).workgroup(GROUP);
    // A slice is a pointer and a number; the work-items beyond its end do nothing.
    let launch = launch
        .arg(&memory)
        .arg(numbers.len() as u32)
        .arg(&sum)
        .build()?;
    done.store(1);
    launch.submit(&queue, &done)?;
    queue.wait(&done, PATIENCE)?;
    let wanted = numbers
        .iter()
        .fold(0u32, |sum, number| sum.wrapping_add(*number));
    ensure!(sum.get(0) == wanted, "{} instead of {wanted}", sum.get(0));
    println!(
        "mandelbrot: {} points, {wrong} wrong; add_up: {wanted}",
        steps.len()
    );
    // A handful on the rim may take many steps more or less.
    ensure!(wrong * 200 < steps.len(), "the set is another one");
    Ok(())
}

/// As the kernel does it, for the point of that number.
fn on_cpu(index: u32) -> u32 {
    let at = |pixel: u32| pixel as f32 * (3.0 / WIDTH as f32) - 1.5;
    let (x, y) = (at(index % WIDTH) - 0.5, at(index / WIDTH));
    let (mut re, mut im) = (x, y);
    for step in 0..LIMIT {
        if re * re + im * im > 4.0 {
            return step;
        }
        (re, im) = (re * re - im * im + x, 2.0 * re * im + y);
    }
    LIMIT
}
