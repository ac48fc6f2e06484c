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
    memory,
    process::{
        self,
        debug, //
    },
    queue,
    sched::NodeQueues,
    svm, //
};
use kernel::{
    c_str,
    debugfs::{
        Dir,
        File, //
    },
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
fn each_node(
    f: &mut fmt::Formatter<'_>,
    show: fn(&NodeQueues, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let nodes = gpu::nodes().map_err(|_| fmt::Error)?;
    for node in nodes.iter() {
        writeln!(f, "GPU {:x}:", node.id().raw())?;
        show(node.queues(), f)?;
    }
    Ok(())
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

/// The directory and its files.
#[pin_data(PinnedDrop)]
pub(crate) struct Debugfs {
    #[pin]
    counts: File<()>,
    #[pin]
    rls: File<()>,
    #[pin]
    mqds: File<()>,
    #[pin]
    hqds: File<()>,
    #[pin]
    mem_limit: File<()>,
    #[pin]
    hang_hws: File<()>,
    #[pin]
    queues: File<()>,
    #[pin]
    svm: File<()>,
}

impl Debugfs {
    /// Makes the directory; where there is no debugfs this does nothing.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        let dir = Dir::new(c_str!("amdkfd"));
        debug::show_in(Some(dir.subdir(c_str!("proc"))));
        KBox::pin_init(
            try_pin_init!(Self {
                counts <- dir.read_callback_file(c_str!("counts"), (), &|(), f| {
                    GAUGES.iter().try_for_each(|(name, gauge)| {
                        writeln!(f, "{name} {}", gauge.count())
                    })
                }),
                rls <- dir.read_callback_file(c_str!("rls"), (), &|(), f| {
                    each_node(f, NodeQueues::show_run_list)
                }),
                mqds <- dir.read_callback_file(c_str!("mqds"), (), &|(), f| {
                    each_node(f, NodeQueues::show_descriptors)
                }),
                hqds <- dir.read_callback_file(c_str!("hqds"), (), &|(), f| {
                    each_node(f, NodeQueues::show_slots)
                }),
                mem_limit <- dir.read_callback_file(c_str!("mem_limit"), (), &|(), f| {
                    show_memory_limits(f)
                }),
                hang_hws <- dir.read_write_callback_file(
                    c_str!("hang_hws"),
                    (),
                    &|(), f| f.write_str("echo gpu_id > hang_hws\n"),
                    &|(), reader| hang(reader),
                ),
                queues <- dir.read_callback_file(c_str!("queues"), (), &|(), f| {
                    let processes = process::all().map_err(|_| fmt::Error)?;
                    processes.iter().try_for_each(|process| {
                        // Who has read this finds the same in sysfs.
                        process.files().settle();
                        process.show_queues(f)
                    })
                }),
                svm <- dir.read_callback_file(c_str!("svm"), (), &|(), f| {
                    let processes = process::all().map_err(|_| fmt::Error)?;
                    processes.iter().try_for_each(|process| process.show_svm(f))
                }),
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[pinned_drop]
impl PinnedDrop for Debugfs {
    fn drop(self: Pin<&mut Self>) {
        debug::show_in(None);
    }
}
