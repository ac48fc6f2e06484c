// SPDX-License-Identifier: GPL-2.0-only

//! The topology's files: `/sys/devices/virtual/kfd/kfd/topology`.
//!
//! Each file holds a copy of the one thing that it shows, so that a reader needs no lock of ours.
//! When the topology changes, all nodes' directories are made anew, as the C driver does: who reads
//! in the meantime sees from `generation_id` that it must begin again.

use super::{
    facts,
    tree::NodeEntry,
    Cache,
    CpuClock,
    Link,
    MemBank,
    NodeName,
    NodeProperties,
    System, //
};
use crate::{
    gpu::Node,
    linux::{
        kobject::{
            Directory,
            Files,
            Output,
            Show, //
        },
        platform, //
    },
};
use core::fmt::{
    Display,
    Write, //
};
use kernel::{
    device::Device,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// How often the topology has changed: file `generation_id`. Like its predecessor it is never 0 for
/// a reader.
static GENERATION: Atomic<u32> = Atomic::new(0);

/// The topology has changed.
pub(super) fn count_change() {
    GENERATION.fetch_add(1, Relaxed);
}

/// What a file shows.
enum TopologyFile {
    Generation,
    System(System),
    GpuId(u32),
    Name(NodeName),
    Node(NodeProperties),
    MemBank(MemBank),
    Cache(Cache),
    Link(Link),
}

/// A file, and the GPU that a reader must be allowed to use.
pub(super) struct GuardedFile {
    content: TopologyFile,
    gpu: Option<Arc<Node>>,
}

/// Writes `text`. `EFBIG`: it is longer than a page.
fn put(out: &mut Output<'_>, text: impl Display) -> Result {
    write!(out, "{text}").map_err(|_| EFBIG)
}

/// The properties with what amdgpu learns only after it has told us of the GPU.
fn now(mut properties: NodeProperties, node: Option<&Node>) -> NodeProperties {
    if let (Some(gpu), Some(node)) = (&mut properties.gpu, node) {
        gpu.set_copy_queue_reset(facts::resets_copy_queues(node));
        gpu.set_svm(facts::has_svm(node));
    }
    properties
}

impl Show for GuardedFile {
    fn show(&self, out: &mut Output<'_>) -> Result {
        if let Some(gpu) = &self.gpu {
            gpu.kgd().cgroup_permission(gpu.partition().render_minor)?;
        }
        match &self.content {
            TopologyFile::Generation => put(out, format_args!("{}\n", GENERATION.load(Relaxed))),
            TopologyFile::System(system) => put(out, system),
            TopologyFile::GpuId(id) => put(out, format_args!("{id}\n")),
            TopologyFile::Name(name) => put(out, name),
            TopologyFile::Node(properties) => {
                put(out, now(*properties, self.gpu.as_deref()))?;
                put(out, CpuClock(platform::cpu_max_mhz()))
            }
            TopologyFile::MemBank(bank) => put(out, bank),
            TopologyFile::Cache(cache) => put(out, cache),
            TopologyFile::Link(link) => put(out, link),
        }
    }
}

/// The published topology. Dropped: gone.
pub(super) struct PublishedTopology(Directory<GuardedFile>);

impl PublishedTopology {
    /// Publishes the topology of a machine, without nodes as yet, below the device.
    pub(super) fn new(device: &Device, system: System) -> Result<Self> {
        let file = |content| GuardedFile { content, gpu: None };
        let mut files = Files::new();
        files.add(c"generation_id", file(TopologyFile::Generation))?;
        files.add(c"system_properties", file(TopologyFile::System(system)))?;
        let mut topology = Directory::below_device(device, format_args!("topology"), files)?;
        topology.child(format_args!("nodes"), Files::new())?;
        Ok(Self(topology))
    }

    /// Makes all nodes anew, in the same directory, which readers may have open. If that fails
    /// there are none.
    pub(super) fn set_nodes(&mut self, entries: &[NodeEntry]) -> Result {
        let nodes = self.0.first_child().ok_or(ENOENT)?;
        nodes.clear();
        let result = entries
            .iter()
            .enumerate()
            .try_for_each(|(index, entry)| publish_node(nodes, index, entry));
        if result.is_err() {
            nodes.clear();
        }
        result
    }
}

fn publish_node(nodes: &mut Directory<GuardedFile>, index: usize, entry: &NodeEntry) -> Result {
    let file = |content| GuardedFile {
        content,
        gpu: entry.node.clone(),
    };
    let mut files = Files::new();
    files.add(c"gpu_id", file(TopologyFile::GpuId(entry.gpu_id())))?;
    files.add(c"name", file(TopologyFile::Name(entry.name)))?;
    files.add(c"properties", file(TopologyFile::Node(entry.properties())))?;
    let node = nodes.child(format_args!("{index}"), files)?;
    let gpu = &entry.node;
    publish_list(node, "mem_banks", gpu, &entry.mem_banks, |&it| {
        TopologyFile::MemBank(it)
    })?;
    publish_list(node, "caches", gpu, &entry.caches, |&it| {
        TopologyFile::Cache(it)
    })?;
    publish_list(node, "io_links", gpu, &entry.io_links, |&it| {
        TopologyFile::Link(it)
    })?;
    publish_list(node, "p2p_links", gpu, &entry.p2p_links, |&it| {
        TopologyFile::Link(it)
    })?;
    // For performance counters. There are none: the C driver's were an IOMMU's that is no more.
    node.child(format_args!("perf"), Files::new())?;
    Ok(())
}

/// A directory `name` with a numbered directory for each thing of a node.
fn publish_list<T>(
    node: &mut Directory<GuardedFile>,
    name: &str,
    gpu: &Option<Arc<Node>>,
    things: &[T],
    content: impl Fn(&T) -> TopologyFile,
) -> Result {
    let list = node.child(format_args!("{name}"), Files::new())?;
    for (index, thing) in things.iter().enumerate() {
        let mut files = Files::new();
        files.add(
            c"properties",
            GuardedFile {
                content: content(thing),
                gpu: gpu.clone(),
            },
        )?;
        list.child(format_args!("{index}"), files)?;
    }
    Ok(())
}
