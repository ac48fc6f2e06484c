// SPDX-License-Identifier: GPL-2.0-only

//! What a tester may look at: /sys/kernel/debug/amdkfd.
//!
//! `counts` says how many there are of what must not leak, one `name value` a line; `rls` and
//! `mqds` show run lists and descriptors as the hardware sees them, in the form in which the C
//! driver shows its own, `hqds` the registers of all queue slots, and `mem_limit` amdgpu's account
//! of the memory that processes may have. `proc/<pid>` has the pasids of a process, a file for each
//! GPU. Whoever writes a `gpu_id` to `hang_hws` hangs that GPU's scheduler, which is found out at
//! once and ends in a reset. `queues` tells of every queue whose it is and where its ring and
//! indices lie, for tools that watch programs (`kfdctl top`), and `svm` of every range of shared
//! virtual memory what is said of it and where its pages are (`kfdctl svm`). One [`Debugfs`], owned
//! by the module.

use crate::{
    doorbell,
    event,
    gauge::Gauge,
    gpu,
    ids::GpuId,
    linux::debugfs::{
        Directory,
        File, //
    },
    memory,
    process::{
        self,
        debug,
        ProcessRef, //
    },
    queue,
    sched::NodeQueues,
    svm, //
};
use kernel::{
    fmt,
    prelude::*,
    uaccess::UserSliceReader, //
};

/// What `counts` shows.
static GAUGES: [(&str, &Gauge); 9] = [
    ("processes", &process::PROCESSES),
    ("process_devices", &process::device::DEVICES),
    ("events", &event::EVENTS),
    ("queues", &queue::QUEUES),
    ("doorbells", &doorbell::TAKEN),
    ("buffers", &memory::BUFFERS),
    ("regions", &svm::REGIONS),
    ("granules", &svm::GRANULES),
    ("blocks", &svm::block::BLOCKS),
];

/// Shows something of the driver.
type Show = fn(&mut fmt::Formatter<'_>) -> fmt::Result;

/// Shows something of a node.
type ShowNode = fn(&NodeQueues, &mut fmt::Formatter<'_>) -> fmt::Result;

/// Hangs the scheduler of the GPU whose decimal `gpu_id` is written. `EINVAL`: there is none.
fn hang(reader: &mut UserSliceReader) -> Result {
    let mut text = [0u8; 16];
    let length = reader.len();
    reader.read_slice(text.get_mut(..length).ok_or(EINVAL)?)?;
    let text = core::str::from_utf8(text.get(..length).unwrap_or(&[])).map_err(|_| EINVAL)?;
    let id = text.trim().parse().map_err(|_| EINVAL)?;
    let node = GpuId::new(id).and_then(gpu::node).ok_or(EINVAL)?;
    node.queues().hang()
}

/// Calls `show` for each node, after a line with its name.
fn each_node(f: &mut fmt::Formatter<'_>, show: ShowNode) -> fmt::Result {
    let nodes = gpu::nodes().map_err(|_| fmt::Error)?;
    for node in nodes.iter() {
        writeln!(f, "GPU {:x}:", node.id().raw())?;
        show(node.queues(), f)?;
    }
    Ok(())
}

fn show_counts(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    GAUGES.iter().try_for_each(|(name, gauge)| writeln!(f, "{name} {}", gauge.count()))
}

/// Calls `show` with the processes one after the other: no others are kept from their ends.
fn each_process(mut show: impl FnMut(&ProcessRef) -> fmt::Result) -> fmt::Result {
    let mut result = Ok(());
    process::each(|process| {
        if result.is_ok() {
            result = show(process);
        }
    });
    result
}

fn show_queues(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    each_process(|process| {
        // Who has read this finds the same in sysfs.
        process.files().settle();
        process.show_queues(f)
    })
}

fn show_svm(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    each_process(|process| process.show_svm(f))
}

/// Amdgpu's account of the memory that processes may have.
fn show_memory_limits(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let nodes = gpu::nodes().map_err(|_| fmt::Error)?;
    let Some(node) = nodes.first() else {
        return Ok(());
    };
    let mut text = [0; 256];
    let length = node.kgd().memory_limits(&mut text);
    let text = core::str::from_utf8(text.get(..length).unwrap_or(&[]));
    f.write_str(text.map_err(|_| fmt::Error)?)
}

/// The files, and those of processes.
pub(crate) struct Debugfs {
    _files: KVec<File>,
}

impl Debugfs {
    /// Makes the directory; where there is no debugfs this does nothing. Nothing of the module's
    /// start may fail afterwards (`linux::debugfs`).
    pub(crate) fn new() -> Result<Self> {
        let directory = Directory::new(c"amdkfd", None)?;
        let mut files = KVec::new();
        let nodes: [(&CStr, ShowNode); 3] = [
            (c"rls", NodeQueues::show_run_list),
            (c"mqds", NodeQueues::show_descriptors),
            (c"hqds", NodeQueues::show_slots),
        ];
        for (name, show) in nodes {
            let file = directory.file(name, move |f| each_node(f, show))?;
            files.push(file, GFP_KERNEL)?;
        }
        let others: [(&CStr, Show); 4] = [
            (c"counts", show_counts),
            (c"mem_limit", show_memory_limits),
            (c"queues", show_queues),
            (c"svm", show_svm),
        ];
        for (name, show) in others {
            files.push(directory.file(name, show)?, GFP_KERNEL)?;
        }
        let usage = |f: &mut fmt::Formatter<'_>| f.write_str("echo gpu_id > hang_hws\n");
        let hang = directory.writable_file(c"hang_hws", usage, hang)?;
        files.push(hang, GFP_KERNEL)?;
        debug::show_in(Some(Directory::new(c"proc", Some(&directory))?));
        Ok(Self { _files: files })
    }
}

impl Drop for Debugfs {
    fn drop(&mut self) {
        debug::show_in(None);
    }
}
