// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Queues, with none and with many others of the process live.

use super::{call, Meter};
use crate::bench::Bench;
use anyhow::Result;
use kfd::{Kfd, Memory};
use kfd_uapi as uapi;
use std::sync::Arc;

pub(super) type Request = uapi::kfd_ioctl_create_queue_args;

pub(super) fn all(meter: &Meter, bench: &Bench) -> Result<()> {
    // Rings and save areas are shared: nothing is ever put into these queues.
    let mut others = Vec::new();
    for (count, samples) in [(0, 30), (8, 30), (32, 20), (250, 8)] {
        while others.len() < count {
            others.push(Other::new(bench)?);
        }
        aql(meter, bench, count, samples)?;
        sdma(meter, bench, count, samples)?;
    }
    Ok(())
}

/// A queue that is live while others are measured.
pub(super) struct Other {
    kfd: Arc<Kfd>,
    id: u32,
    _indices: Memory,
}

impl Other {
    pub(super) fn new(bench: &Bench) -> Result<Self> {
        let indices = Memory::gtt(&bench.device, 4096)?;
        let mut args = Request {
            write_pointer_address: indices.address(),
            read_pointer_address: indices.address() + 128,
            ..bench.queue()
        };
        let kfd = bench.device.kfd().clone();
        call(&kfd, uapi::IOC_CREATE_QUEUE, &mut args)?;
        Ok(Self {
            kfd,
            id: args.queue_id,
            _indices: indices,
        })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Err(error) = destroy(&self.kfd, self.id) {
            eprintln!("queue {}: {error:#}", self.id);
        }
    }
}

pub(super) fn destroy(kfd: &Kfd, queue_id: u32) -> Result<()> {
    let mut args = uapi::kfd_ioctl_destroy_queue_args { queue_id, pad: 0 };
    call(kfd, uapi::IOC_DESTROY_QUEUE, &mut args)
}

fn update(kfd: &Kfd, queue: &Request, queue_percentage: u32) -> Result<()> {
    let mut args = uapi::kfd_ioctl_update_queue_args {
        ring_base_address: queue.ring_base_address,
        queue_id: queue.queue_id,
        ring_size: queue.ring_size,
        queue_percentage,
        queue_priority: queue.queue_priority,
    };
    call(kfd, uapi::IOC_UPDATE_QUEUE, &mut args)
}

fn aql(meter: &Meter, bench: &Bench, others: usize, samples: usize) -> Result<()> {
    let kfd = bench.device.kfd();
    let mut rows = [
        "CREATE_QUEUE AQL",
        "UPDATE_QUEUE AQL, nothing changed",
        "UPDATE_QUEUE AQL to 0 %",
        "UPDATE_QUEUE AQL to 100 %",
        "DESTROY_QUEUE AQL",
    ]
    .map(|name| meter.row(format!("{name} others={others}")));
    for _ in 0..samples {
        let mut queue = bench.queue();
        rows[0].sample(|| call(kfd, uapi::IOC_CREATE_QUEUE, &mut queue))?;
        rows[1].sample(|| update(kfd, &queue, 100))?;
        rows[2].sample(|| update(kfd, &queue, 0))?;
        rows[3].sample(|| update(kfd, &queue, 100))?;
        rows[4].sample(|| destroy(kfd, queue.queue_id))?;
    }
    rows.into_iter().for_each(super::Row::print);
    Ok(())
}

fn sdma(meter: &Meter, bench: &Bench, others: usize, samples: usize) -> Result<()> {
    let kfd = bench.device.kfd();
    let mut rows = ["CREATE_QUEUE SDMA", "DESTROY_QUEUE SDMA"]
        .map(|name| meter.row(format!("{name} others={others}")));
    for _ in 0..samples {
        let mut queue = Request {
            queue_type: uapi::KFD_IOC_QUEUE_TYPE_SDMA,
            ..bench.queue()
        };
        rows[0].sample(|| call(kfd, uapi::IOC_CREATE_QUEUE, &mut queue))?;
        rows[1].sample(|| destroy(kfd, queue.queue_id))?;
    }
    rows.into_iter().for_each(super::Row::print);
    Ok(())
}
