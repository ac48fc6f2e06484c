// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Two GPUs of one process, with memory and signals that both see: one doubles numbers, the other
//! waits for it by a barrier packet and adds them up. The CPU sleeps until either of two is done.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Buffer, Device, Kfd};
use kfd_aql::{BarrierAnd, CodeObject, Queue, Signal, Signals};
use std::time::Duration;

const COUNT: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let open = |number: usize| -> Result<_> {
        let node = nodes.get(number).context("two GPUs are needed")?;
        Ok(Device::acquire(&kfd, node)?)
    };
    let (first, second) = (open(0)?, open(1)?);

    // Numbers in system memory, which both see at the same address; the signals as well.
    let numbers = Buffer::<f32>::gtt(&first, COUNT)?;
    let sums = Buffer::<f32>::gtt(&second, COUNT)?;
    numbers.write(&[1.5; COUNT]);
    sums.write(&[1.0; COUNT]);
    numbers.memory().share_with(&second)?;
    let signals = Signals::new(&first, 8)?;
    signals.share_with(&second)?;
    let (doubled, added) = (signals.signal(1)?, signals.signal(1)?);

    let saxpy = |device, to: &Buffer<f32>| -> Result<_> {
        let code = CodeObject::load_one_of(device, &kfd_examples::KERNELS)?;
        let launch = code.launch("saxpy")?.grid(COUNT as u32).workgroup(256);
        let launch = launch.arg(1.0f32).arg(&numbers).arg(to);
        Ok(launch.arg(COUNT as u32).build()?)
    };
    let (double, add) = (saxpy(&first, &numbers)?, saxpy(&second, &sums)?);
    let (one, other) = (Queue::new(&first, 64)?, Queue::new(&second, 64)?);
    // The second has its work before the first has.
    other.submit(BarrierAnd::on(&[doubled.address()])?)?;
    add.submit(&other, &added)?;
    double.submit(&one, &doubled)?;

    let came = Signal::wait_any(&[&added, &doubled], PATIENCE)?;
    other.wait(&added, PATIENCE)?;
    ensure!(
        doubled.load() == 0,
        "GPU {} was not waited for",
        first.gpu_id()
    );
    let right = sums.read().iter().all(|sum| *sum == 4.0);
    ensure!(right, "the sums are not 4 everywhere");
    println!(
        "GPU {} doubled, GPU {} added: 4 in all of {COUNT}; signal {came} woke the CPU",
        first.gpu_id(),
        second.gpu_id()
    );
    Ok(())
}
