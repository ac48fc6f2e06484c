// SPDX-License-Identifier: GPL-2.0-only

//! The one topology there is: which nodes, in which order, and what changes when a GPU comes or
//! goes.
//!
//! A node's number is its place in the list, and links name nodes by number: when a GPU goes, the
//! nodes behind it move up.

use super::{
    cache,
    cpu,
    facts,
    given::{
        self,
        GivenId, //
    },
    gpu::{
        Description,
        FIRST_COMPUTE_UNIT, //
    },
    link::{
        self,
        Pair,
        PeerPosition,
        XgmiPath, //
    },
    sysfs::{
        self,
        PublishedTopology, //
    },
    Cache,
    Link,
    MemBank,
    NodeName,
    NodeProperties, //
};
use crate::{
    gpu::Node,
    kgd::{
        gpu_err,
        GpuFacts,
        LocalMemory,
        Partition, //
    },
    linux::platform,
};
use kernel::{
    device::Device,
    prelude::*,
    sync::{
        global_lock,
        Arc, //
    },
};

/// A node.
pub(super) struct NodeEntry {
    pub(super) name: NodeName,
    properties: NodeProperties,
    pub(super) mem_banks: KVec<MemBank>,
    pub(super) caches: KVVec<Cache>,
    pub(super) io_links: KVec<Link>,
    pub(super) p2p_links: KVec<Link>,
    /// The CPUs' NUMA node; `None` for a GPU.
    numa: Option<u32>,
    /// The GPU; `None` for CPUs.
    pub(super) node: Option<Arc<Node>>,
}

impl NodeEntry {
    fn new(name: NodeName, properties: NodeProperties) -> Self {
        Self {
            name,
            properties,
            mem_banks: KVec::new(),
            caches: KVVec::new(),
            io_links: KVec::new(),
            p2p_links: KVec::new(),
            numa: None,
            node: None,
        }
    }

    /// CPUs, without links as yet.
    fn cpus(numa: &cpu::CpuNode, modules: cpu::MemoryModules) -> Result<Self> {
        let mut entry = Self::new(NodeName::default(), numa.properties());
        entry.mem_banks.push(numa.bank(modules), GFP_KERNEL)?;
        entry.numa = Some(numa.id);
        Ok(entry)
    }

    /// A GPU, without links as yet. Its first unit has the number `base`.
    fn gpu(node: Arc<Node>, gpu: &Description<'_>, base: u32) -> Result<Self> {
        let mut entry = Self::new(gpu.name, gpu.properties(base));
        entry.mem_banks.push(gpu.memory.bank(), GFP_KERNEL)?;
        cache::caches(
            &gpu.units,
            (&gpu.caches, &gpu.chip.cache_lines),
            base,
            |cache| entry.caches.push(cache, GFP_KERNEL),
        )?;
        entry.node = Some(node);
        Ok(entry)
    }

    /// 0 for CPUs.
    pub(super) fn gpu_id(&self) -> u32 {
        self.node.as_ref().map_or(0, |node| node.id().raw())
    }

    /// The file `properties`, counts and all.
    pub(super) fn properties(&self) -> NodeProperties {
        // CAST: a handful each.
        NodeProperties {
            mem_banks_count: self.mem_banks.len() as u32,
            caches_count: self.caches.len() as u32,
            io_links_count: self.io_links.len() as u32,
            p2p_links_count: self.p2p_links.len() as u32,
            ..self.properties
        }
    }

    /// Forgets node `gone`, whose successors move up.
    fn forget(&mut self, gone: u32) {
        for links in [&mut self.io_links, &mut self.p2p_links] {
            links.retain(|link| link.node_from != gone && link.node_to != gone);
            for link in links.iter_mut() {
                link.node_from -= u32::from(link.node_from > gone);
                link.node_to -= u32::from(link.node_to > gone);
            }
        }
    }
}

/// All nodes: CPUs first.
struct Tree {
    entries: KVec<NodeEntry>,
    /// The number of the next GPU's first compute unit. It only grows.
    next_unit: u32,
    published: PublishedTopology,
}

global_lock! {
    // SAFETY: `init` below runs before anything else of this file.
    unsafe(uninit) static TREE: Mutex<Option<Tree>> = None;
}

/// Makes the topology usable. Once, before all else.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn prepare() {
    // SAFETY: By this function's own contract.
    unsafe { TREE.init() };
    // SAFETY: As above.
    unsafe { given::prepare() };
}

/// Publishes the topology with its CPUs below the directory of `device`, which must stay until
/// [`exit`].
pub(crate) fn init(device: &Device) -> Result {
    let mut tree = Tree {
        entries: cpu_entries()?,
        next_unit: FIRST_COMPUTE_UNIT,
        published: PublishedTopology::new(device, facts::system())?,
    };
    tree.publish()?;
    *TREE.lock() = Some(tree);
    Ok(())
}

/// Takes the topology away.
pub(crate) fn exit() {
    let tree = TREE.lock().take();
    drop(tree);
}

/// How many nodes there are, CPUs and GPUs.
pub(crate) fn num_nodes() -> usize {
    TREE.lock().as_ref().map_or(0, |tree| tree.entries.len())
}

/// The number by which user space shall know a partition. `ENOSPC`: all 65535 are taken.
pub(crate) fn give_id(
    facts: &GpuFacts,
    memory: &LocalMemory,
    partition: &Partition,
) -> Result<GivenId> {
    GivenId::new(&facts::identity(facts, memory, partition))
}

/// Adds a GPU node. `ENODEV`: the topology is gone.
pub(crate) fn add(node: &Arc<Node>) -> Result {
    let gpu = facts::describe(node);
    let mut tree = TREE.lock();
    let tree = tree.as_mut().ok_or(ENODEV)?;
    let number = tree.count();
    let result = tree.add(node, &gpu).and_then(|()| tree.publish());
    if result.is_err() {
        tree.forget(number);
        // What was there before. If that fails too, there is no memory at all and no node is shown.
        let _ = tree.publish();
    }
    result
}

/// Removes a GPU node, if it is there.
pub(crate) fn remove(node: &Node) {
    let mut tree = TREE.lock();
    let Some(tree) = tree.as_mut() else { return };
    let is_it = |entry: &NodeEntry| {
        let of_entry = entry.node.as_deref();
        of_entry.is_some_and(|known| core::ptr::eq(known, node))
    };
    let Some(number) = tree.entries.iter().position(is_it) else {
        return;
    };
    // CAST: a handful.
    tree.forget(number as u32);
    if tree.publish().is_err() {
        gpu_err!(
            node.pci_name(),
            "no memory to show the topology without it\n"
        );
    }
}

/// A node for each NUMA node with CPUs, each linked to all others.
fn cpu_entries() -> Result<KVec<NodeEntry>> {
    let (width, speed) = platform::memory_modules();
    let mut modules = cpu::MemoryModules { width, speed };
    let mut entries = KVec::new();
    for numa in platform::numa_nodes() {
        let numa = cpu::CpuNode {
            id: numa.id,
            cpus: numa.cpus,
            first_apic_id: numa.first_apic_id,
            memory: numa.memory,
        };
        entries.push(NodeEntry::cpus(&numa, modules)?, GFP_KERNEL)?;
        // The firmware does not say which module is whose: C tells the first node alone.
        modules = cpu::MemoryModules::default();
    }
    link_cpus(&mut entries)?;
    Ok(entries)
}

fn link_cpus(entries: &mut KVec<NodeEntry>) -> Result {
    let amd = platform::cpu_is_amd();
    let mut nodes = KVec::new();
    for (number, entry) in (0u32..).zip(entries.iter()) {
        nodes.push((number, entry.numa.unwrap_or(0)), GFP_KERNEL)?;
    }
    for (&(from, here), entry) in nodes.iter().zip(entries.iter_mut()) {
        for &(to, there) in nodes.iter().filter(|&&(to, _)| to != from) {
            let distance = platform::numa_distance(here, there);
            entry
                .io_links
                .push(cpu::link(from, to, distance, amd), GFP_KERNEL)?;
        }
    }
    Ok(())
}

impl Tree {
    /// How many nodes.
    fn count(&self) -> u32 {
        // CAST: a handful.
        self.entries.len() as u32
    }

    /// Shows the nodes as they are now.
    fn publish(&mut self) -> Result {
        self.published.set_nodes(&self.entries)?;
        sysfs::count_change();
        Ok(())
    }

    /// The node of the CPUs that a GPU is attached to.
    fn home(&self, gpu: &Description<'_>) -> u32 {
        let is_home = |entry: &NodeEntry| entry.numa.is_some() && entry.numa == gpu.links.numa;
        // CAST: a handful.
        self.entries.iter().position(is_home).unwrap_or(0) as u32
    }

    /// Adds a GPU as the last node. After an error it must be forgotten.
    fn add(&mut self, node: &Arc<Node>, gpu: &Description<'_>) -> Result {
        let number = self.count();
        let entry = NodeEntry::gpu(node.clone(), gpu, self.next_unit)?;
        self.next_unit = self.next_unit.wrapping_add(gpu.numbers());
        self.entries.push(entry, GFP_KERNEL)?;
        let to_cpu = link::to_cpu(gpu, number, self.home(gpu));
        self.link(to_cpu, |entry| &mut entry.io_links)?;
        self.join_hive(gpu, to_cpu.out);
        self.link_hive(node, gpu, number)?;
        self.link_indirectly(gpu, to_cpu.out)
    }

    /// Enters the two links where `list` says.
    fn link(&mut self, pair: Pair, list: impl Fn(&mut NodeEntry) -> &mut KVec<Link>) -> Result {
        for link in [Some(pair.out), pair.back].into_iter().flatten() {
            let entry = self
                .entries
                .get_mut(link.node_from as usize)
                .ok_or(EINVAL)?;
            list(entry).push(link, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// CPUs that xGMI connects to a GPU are in its hive.
    fn join_hive(&mut self, gpu: &Description<'_>, to_cpu: Link) {
        if to_cpu.kind == super::LinkKind::Xgmi {
            if let Some(cpus) = self.entries.get_mut(to_cpu.node_to as usize) {
                cpus.properties.hive_id = gpu.hive();
            }
        }
    }

    /// Links a new GPU with those of its hive that were there before.
    fn link_hive(&mut self, node: &Arc<Node>, gpu: &Description<'_>, number: u32) -> Result {
        if gpu.links.hive == 0 {
            return Ok(());
        }
        for peer in 0..number {
            let entry = self.entries.get(peer as usize).ok_or(EINVAL)?;
            let Some(other) = &entry.node else { continue };
            if facts::hive(other.facts()) != gpu.links.hive {
                continue;
            }
            let position = PeerPosition {
                node: peer,
                hive_position: other.facts().xgmi_physical_node_id,
            };
            let pair = link::to_peer(gpu, number, &position, path(node, other));
            self.link(pair, |entry| &mut entry.io_links)?;
        }
        Ok(())
    }

    /// Links a new GPU, through its own CPUs, with all other CPUs.
    fn link_indirectly(&mut self, gpu: &Description<'_>, direct: Link) -> Result {
        for cpus in 0..self.count() {
            let entry = self.entries.get(cpus as usize).ok_or(EINVAL)?;
            if entry.numa.is_none() || cpus == direct.node_to {
                continue;
            }
            let mut links = entry.io_links.iter();
            let onward = *links
                .find(|link| link.node_to == direct.node_to)
                .ok_or(EINVAL)?;
            let pair = link::indirect(gpu, &direct, &onward);
            self.link(pair, |entry| &mut entry.p2p_links)?;
        }
        Ok(())
    }

    /// Removes a node and every trace of it. Nothing happens if it is not there.
    fn forget(&mut self, number: u32) {
        if self.entries.remove(number as usize).is_ok() {
            self.entries
                .iter_mut()
                .for_each(|entry| entry.forget(number));
        }
    }
}

/// How xGMI connects two nodes of a hive.
fn path(node: &Node, peer: &Node) -> XgmiPath {
    if node.facts().num_partitions > 1 {
        let one_device = node.kgd().handle() == peer.kgd().handle();
        return XgmiPath::Partitions { one_device };
    }
    let link = node.kgd().xgmi_link(peer.kgd().handle());
    let (hops, bandwidth) = link.map_or((0, Default::default()), |it| (it.hops, it.bandwidth));
    XgmiPath::Devices {
        hops,
        bandwidth: (bandwidth.min, bandwidth.max),
    }
}
