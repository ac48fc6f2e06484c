// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A producer and a consumer on queues of their own, kept in step by barrier packets: the CPU puts
//! all of it in at once and sleeps until the end.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, BarrierAnd, CodeObject, Launch, Queue, Signals};
use std::time::Duration;

const COUNT: usize = 4096;
const ROUNDS: usize = 8;

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let signals = Signals::new(&device, 64)?;
    let (producer, consumer) = (Queue::new(&device, 64)?, Queue::new(&device, 64)?);
    let [one, item, sum] = [0, 1, 2].map(|_| Memory::vram(&device, COUNT * 4));
    let (one, item, sum) = (one?, item?, sum?);
    one.write(0, &[1.0f32; COUNT]);
    item.write(0, &[0.0f32; COUNT]);
    sum.write(0, &[0.0f32; COUNT]);

    // The producer counts `item` up; the consumer adds it to `sum`.
    let launch = |kernel: &str, arguments: Arguments| {
        let grid = [COUNT as u32, 1, 1];
        Launch::new(&device, &code, kernel, grid, [256, 1, 1], arguments.bytes())
    };
    let add = |to: &Memory, what: &Memory| {
        let (what, to) = (what.address(), to.address());
        let arguments = Arguments::default().f32(1.0).u64(what).u64(to);
        launch("saxpy", arguments.u32(COUNT as u32))
    };
    let (produce, consume) = (add(&item, &one)?, add(&sum, &item)?);

    let mut made = Vec::new();
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        made.push(signals.signal(1)?);
        taken.push(signals.signal(1)?);
        // The next item is made only when the last was taken, and taken only when it was made.
        if let Some(last) = round.checked_sub(1).map(|last| &taken[last]) {
            producer.submit(BarrierAnd::on(&[last.address()])?)?;
        }
        produce.submit(&producer, &made[round])?;
        consumer.submit(BarrierAnd::on(&[made[round].address()])?)?;
        consume.submit(&consumer, &taken[round])?;
    }
    taken[ROUNDS - 1].wait(Duration::from_secs(60))?;

    let want = (1..=ROUNDS).sum::<usize>() as f32;
    let right = sum.read::<f32>(0, COUNT).iter().all(|sum| *sum == want);
    ensure!(right, "the sum is not {want} everywhere");
    println!(
        "{ROUNDS} items went from queue {} to queue {}: sum {want}",
        producer.id(),
        consumer.id()
    );
    Ok(())
}
