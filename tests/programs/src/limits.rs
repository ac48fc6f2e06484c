// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How many queues a process gets, and which errno it gets when there are no more.

use crate::bench::{name, Bench};
use crate::raw::ioctl;
use anyhow::{Context, Result};
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;

/// Creates queues until one is refused, and prints how many there were and why there is no other.
pub fn queues() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let bench = Bench::new(&device)?;
    let mut count = 0;
    let refused = loop {
        match ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut bench.queue()) {
            Ok(()) => count += 1,
            Err(errno) => break errno,
        }
    };
    println!("{count} queues, then: {}", name(refused));
    Ok(())
}
