// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A file that becomes another context's (CREATE_PROCESS) while a queue of the first one's rings
//! through a mapping of it.

use crate::raw::ioctl;
use anyhow::{Context, Result};
use kfd::{topology, Device, Kfd};
use kfd_aql::{BarrierAnd, Queue, Signals};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::time::Duration;

/// A queue has its doorbell mapped, and rings it only when the file is the other context's: prints
/// whether it was heard.
pub fn ring() -> Result<()> {
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    let device = Device::acquire(&Kfd::open()?, &node)?;
    let signals = Signals::new(&device, 1)?;
    let queue = Queue::new(&device, 64)?;
    let done = signals.signal(1)?;
    ioctl(
        device.kfd().as_fd(),
        uapi::IOC_CREATE_PROCESS,
        &mut [0u64; 1],
    )
    .context("CREATE_PROCESS")?;
    queue.submit(BarrierAnd {
        completion: done.address(),
        ..Default::default()
    })?;
    match done.wait_busy(Duration::from_secs(10)) {
        Ok(()) => println!("the queue was rung"),
        Err(error) => println!("the queue was not rung: {error}"),
    }
    // What ends here would be asked of the other context.
    std::process::exit(0)
}
