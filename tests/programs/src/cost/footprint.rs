// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How much of the kernel's memory a process takes that has /dev/kfd open, what a VM adds, and what
//! a queue does: objects of the slab allocators, by their tracepoints, that are there when all has
//! settled. In bytes, where the other groups count instructions.

use super::{
    call,
    queue::{destroy, Request},
};
use crate::bench::Bench;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use std::collections::HashMap;
use std::fs::{read_dir, read_to_string, write};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// How many queues share what is measured.
const QUEUES: usize = 64;

/// For a process that has not opened /dev/kfd yet.
pub(super) fn all() -> Result<()> {
    let slab = Slab::new()?;
    let mut kfd = None;
    let bytes = slab.more(|| {
        kfd = Some(Kfd::open()?);
        Ok(())
    })?;
    row("bytes of a process with /dev/kfd open", bytes);
    let (kfd, nodes) = (kfd.context("not open")?, topology::gpus()?);
    let mut device = None;
    let bytes = slab.more(|| {
        device = Some(Device::acquire(&kfd, nodes.first().context("no GPU")?)?);
        Ok(())
    })?;
    row("bytes that a VM adds", bytes);
    let device = device.context("no device")?;
    row("bytes of a queue", queues(&slab, &Bench::new(&device)?)?);
    Ok(())
}

pub(super) fn row(operation: &str, bytes: u64) {
    println!(r#"{{"operation":"{operation}","n":1,"min":{bytes},"median":{bytes},"p90":{bytes}}}"#);
}

/// Bytes of a compute queue; its user's memory is there before.
fn queues(slab: &Slab, bench: &Bench) -> Result<u64> {
    let kfd = bench.device.kfd();
    let indices = (0..QUEUES)
        .map(|_| Memory::gtt(&bench.device, 4096))
        .collect::<Result<Vec<_>, _>>()?;
    let mut made = Vec::with_capacity(QUEUES);
    let bytes = slab.more(|| {
        for indices in &indices {
            let mut args = Request {
                write_pointer_address: indices.address(),
                read_pointer_address: indices.address() + 128,
                ..bench.queue()
            };
            call(kfd, kfd_uapi::IOC_CREATE_QUEUE, &mut args)?;
            made.push(args.queue_id);
        }
        Ok(())
    })?;
    made.into_iter().try_for_each(|id| destroy(kfd, id))?;
    Ok(bytes / QUEUES as u64)
}

/// The slab allocators, as tracefs shows them.
pub(super) struct Slab;

const TRACING: &str = "/sys/kernel/tracing";

impl Slab {
    pub(super) fn new() -> Result<Self> {
        let _ = Command::new("mount")
            .args(["-t", "tracefs", "none", TRACING])
            .status()?;
        for (file, text) in [("tracing_on", "0"), ("buffer_size_kb", "65536")] {
            write(format!("{TRACING}/{file}"), text)?;
        }
        for event in ["kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"] {
            write(format!("{TRACING}/events/kmem/{event}/enable"), "1")?;
        }
        Ok(Self)
    }

    /// Bytes of the objects that `act` leaves.
    pub(super) fn more(&self, act: impl FnOnce() -> Result<()>) -> Result<u64> {
        write(format!("{TRACING}/trace"), "")?;
        write(format!("{TRACING}/tracing_on"), "1")?;
        let result = act();
        // Workers show processes and queues in sysfs.
        sleep(Duration::from_secs(1));
        write(format!("{TRACING}/tracing_on"), "0")?;
        result?;
        let lost = lost_events()?;
        ensure!(lost == 0, "{lost} events did not fit into the trace");
        let mut live = HashMap::new();
        for line in read_to_string(format!("{TRACING}/trace"))?.lines() {
            let Some(object) = field(line, "ptr=") else {
                continue;
            };
            match field(line, "bytes_alloc=") {
                Some(bytes) => live.insert(object.to_owned(), bytes.parse::<u64>()?),
                None => live.remove(object),
            };
        }
        Ok(live.values().sum())
    }
}

/// Events that were overwritten by younger ones.
fn lost_events() -> Result<u64> {
    let mut lost = 0;
    for processor in read_dir(format!("{TRACING}/per_cpu"))? {
        let stats = read_to_string(processor?.path().join("stats"))?;
        let overrun = stats
            .lines()
            .find_map(|line| line.strip_prefix("overrun: "));
        lost += overrun.context("no overrun")?.trim().parse::<u64>()?;
    }
    Ok(lost)
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(name)?;
    rest.split_whitespace().next()
}
