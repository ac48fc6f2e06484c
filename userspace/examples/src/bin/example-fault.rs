// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A kernel that writes where nothing is mapped: the KFD tells the address through a memory event.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Event, EventKind, Kfd, Wait};
use kfd_aql::{Arguments, CodeObject, Launch, Queue, Signals};
use std::time::Duration;

/// Inside the process's addresses, and nobody's.
const NOWHERE: u64 = 0x1234_5000;

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let device = Device::acquire(&kfd, gpus.first().context("there is no GPU")?)?;
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let signals = Signals::new(&device, 64)?;
    let queue = Queue::new(&device, 64)?;
    let done = signals.signal(1)?;
    let faults = Event::new(done.event().events(), EventKind::Memory, true)?;

    let arguments = Arguments::default().u64(NOWHERE);
    let launch = Launch::new(
        &device,
        &code,
        "poke",
        [64, 1, 1],
        [64, 1, 1],
        arguments.bytes(),
    )?;
    let index = launch.submit(&queue, &done)?;
    // Whichever comes first: the end of the kernel, or its fault.
    let events = faults.events().clone();
    let timeout = Some(Duration::from_secs(20));
    let came = events.wait(&[&faults, done.event()], Wait::Any, timeout)?;
    ensure!(came, "neither an end nor a fault");
    let fault = faults.fault().context("the kernel ended without a fault")?;
    let reasons = [
        (fault.not_present, "nothing is mapped there"),
        (fault.read_only, "it may only be read"),
        (fault.no_execute, "it may not be executed"),
    ];
    let reason = reasons.iter().find(|(is, _)| *is);
    println!(
        "page fault at {:#x} on GPU {}: {}; by kernel poke (code at {:#x}), packet {index} of \
        queue {}",
        fault.address,
        fault.gpu_id,
        reason.map_or("the KFD does not say why", |(_, why)| why),
        code.kernel("poke")?.descriptor,
        queue.id(),
    );
    ensure!(fault.address == NOWHERE, "that is not where it wrote");
    Ok(())
}
