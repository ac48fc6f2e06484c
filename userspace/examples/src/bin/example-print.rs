// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A kernel that prints what is odd about its numbers; then one that prints more than there is room
//! for.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Buffer, Device, Kfd};
use kfd_aql::{CodeObject, Printed, Printer, Queue, Signals};
use std::time::Duration;

const COUNT: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    let code = CodeObject::load_one_of(&device, &kfd_examples::PRINTS)?;
    let queue = Queue::new(&device, 64)?;
    let done = Signals::new(&device, 1)?.signal(1)?;
    let inspect = |numbers: &[f32], limit: f32, room: usize| -> Result<Printed> {
        let buffer = Buffer::from_slice(&device, numbers)?;
        let printer = Printer::new(&code, room)?;
        let launch = code
            .launch("inspect")?
            .grid(COUNT.next_multiple_of(64))
            .printer(&printer)
            .arg(&buffer)
            .arg(COUNT)
            .arg(limit)
            .build()?;
        done.store(1);
        launch.submit(&queue, &done)?;
        queue.wait(&done, PATIENCE)?;
        let printed = printer.take();
        ensure!(printer.take().text.is_empty(), "it is there twice");
        Ok(printed)
    };

    let mut numbers = vec![1.0; COUNT as usize];
    (numbers[5], numbers[70], numbers[999]) = (10.5, f32::NAN, f32::INFINITY);
    let printed = inspect(&numbers, 10.0, 64 << 10)?;
    ensure!(!printed.lost, "something is lost");
    // Waves print in any order.
    let mut lines: Vec<_> = printed.text.lines().collect();
    lines.sort_by_key(|line| number(line));
    lines.iter().for_each(|line| println!("{line}"));
    println!("{} of {COUNT} numbers are odd", lines.len() - 1);

    // All are, and a page has room for some of them.
    let printed = inspect(&numbers, 0.0, 4000)?;
    let count = printed.text.lines().filter(|line| line.starts_with("x["));
    let count = count.count();
    ensure!(printed.lost, "there is room for everything");
    println!("{count} of {COUNT} lines are there, and the rest is lost");
    Ok(())
}

/// Whose line it is.
fn number(line: &str) -> Option<u32> {
    let (number, _) = line.strip_prefix("x[")?.split_once(']')?;
    number.parse().ok()
}
