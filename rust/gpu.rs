// SPDX-License-Identifier: GPL-2.0-only

//! Gpu and Node: the devices that this KFD serves.
//!
//! One [`Gpu`] per amdgpu device and one [`Node`] per partition of it, which is what userspace
//! calls a GPU (`gpu_id`). The registry owns the nodes, a node owns its share of the `Gpu`; both go
//! when amdgpu takes the device away, which is after the last process has let go of them.

mod again;
pub(crate) mod gate;
mod profiler;
mod resets;
mod users;
mod watch;

pub(crate) use again::Again;
pub(crate) use users::NodeUser;

use crate::{
    event::Events,
    gfx::{
        ChipFacts,
        Generation,
        IhFormat,
        IhSource,
        Interrupt,
        UnknownGeneration,
        WaveSync, //
    },
    ids::{
        GpuId,
        IpVersion,
        Pasid, //
    },
    kgd::{
        DeviceHandle,
        GpuFacts,
        Kgd,
        LocalMemory,
        Partition,
        PciName,
        WaveSyncCounters, //
    },
    linux::trace,
    sched::{
        doorbells::DoorbellPool,
        partition::{
            free_vmids,
            Vmids, //
        },
        pause::Pause,
        NodeQueues, //
    },
    smi::Listeners, //
};
use gate::Gate;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Full, //
            },
            Atomic, //
        },
        global_lock,
        Arc, //
    },
};
pub(crate) use profiler::Profiler;
pub(crate) use resets::Quiet;
use resets::Resets;
use users::Users;
pub(crate) use watch::WatchPoint;
use watch::WatchPoints;

/// Where a node's interrupts and resets go. A layer above implements it: a device knows no
/// processes.
pub(crate) trait Sink: Send + Sync {
    /// Lets the process know of an interrupt. Legal in a hard interrupt.
    fn deliver(&self, interrupt: Interrupt);
    /// From now on interrupts for `pasid` go to a process's events, until what is returned is
    /// dropped. The number is what the process calls the node.
    fn register(&self, pasid: Pasid, user: (Arc<Events>, Arc<Atomic<u32>>))
        -> Result<Registration>;
    /// Lets the process know that a queue of it was reset, and what that worked on is lost.
    fn queue_was_reset(&self, pasid: Pasid);
    /// Queues the node's [`Again`] ([`Again::enqueue_on`]), where it may wait for preemptions, and
    /// is not frozen. May run under reclaim.
    fn order_later(&self, again: &Arc<Again>);
}

/// Interrupts go to a process as long as this lives. Its drop may sleep.
pub(crate) type Registration = KBox<dyn Send + Sync>;

/// One amdgpu device.
pub(crate) struct Gpu {
    kgd: Arc<dyn Kgd>,
    generation: Generation,
    /// For nodes without the firmware's scheduler.
    vmids: Arc<Vmids>,
    doorbells: Arc<DoorbellPool>,
    /// [`WaveSync::Kept`]
    wave_sync: Option<WaveSyncCounters>,
    users: Arc<Users>,
    profiler: Arc<Profiler>,
    resets: Resets,
    gate: Arc<Gate>,
}

impl Gpu {
    /// The device that `kgd` stands for. `ENODEV`: a generation that we do not drive.
    pub(crate) fn new(kgd: Arc<dyn Kgd>, gate: Arc<Gate>) -> Result<Arc<Self>> {
        let generation = Generation::of(&chip_facts(kgd.facts())).map_err(|_| ENODEV)?;
        let keeps = generation.chip.wave_sync == WaveSync::Kept && kgd.facts().gws_size > 0;
        let gpu = Self {
            wave_sync: keeps
                .then(|| WaveSyncCounters::new(kgd.clone()))
                .transpose()?,
            vmids: Arc::new(free_vmids(kgd.facts()), GFP_KERNEL)?,
            doorbells: DoorbellPool::new(kgd.clone(), &generation.chip)?,
            kgd,
            generation,
            users: Users::new()?,
            profiler: Profiler::new()?,
            resets: Resets::new(),
            gate,
        };
        Ok(Arc::new(gpu, GFP_KERNEL)?)
    }

    /// What stands under it.
    pub(crate) fn kgd(&self) -> &Arc<dyn Kgd> {
        &self.kgd
    }

    /// What does not change while it is up.
    pub(crate) fn facts(&self) -> &GpuFacts {
        self.kgd.facts()
    }

    /// Bits of the data that its waves send.
    pub(crate) fn message_bits(&self) -> u32 {
        self.generation.formats.ih.message_bits()
    }

    /// A share of it. `ENODEV`: there is no such partition.
    pub(crate) fn partition(&self, index: u32) -> Result<&Partition> {
        self.facts().partitions().get(index as usize).ok_or(ENODEV)
    }

    /// Processes and others that use its nodes.
    pub(crate) fn users(&self) -> i32 {
        self.users.count()
    }

    /// Processes that use its nodes, those that are ending included.
    pub(crate) fn processes(&self) -> i32 {
        self.users.processes()
    }

    /// Its resets.
    pub(crate) fn resets(&self) -> &Resets {
        &self.resets
    }

    /// Whether processes may get it.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// One partition of a device: a GPU as userspace sees it.
pub(crate) struct Node {
    // Dropped from top to bottom: the scheduler's queue leaves the hardware first.
    queues: Arc<NodeQueues>,
    again: Arc<Again>,
    sink: Arc<dyn Sink>,
    listeners: Arc<Listeners>,
    gpu: Arc<Gpu>,
    id: GpuId,
    partition: Partition,
    index: u32,
    local_memory: LocalMemory,
    watch_points: Arc<WatchPoints>,
    /// Its VMIDs: neighbours may have others on the same dies.
    vmids: u32,
    /// Bit n: interrupts of hardware node n are this node's.
    interrupt_nodes: u32,
    /// How often what users had mapped of it was taken away for good.
    cleared: Atomic<u32>,
}

impl Node {
    /// Partition `index` of `gpu`, called `id`, with its scheduler running. `ENODEV`: there is no
    /// such partition.
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        index: u32,
        id: GpuId,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<Self>> {
        let facts = gpu.facts();
        let partition = *gpu.partition(index)?;
        let local_memory = gpu.kgd.local_memory(index);
        let vmids = vmids(facts, index);
        let queues = NodeQueues::new(
            gpu.kgd.clone(),
            gpu.generation,
            (index, &partition),
            (vmids, gpu.vmids.clone()),
            &gpu.doorbells,
        )?;
        let node = Self {
            queues,
            again: Again::new()?,
            sink,
            listeners: Listeners::new()?,
            interrupt_nodes: interrupt_nodes(facts, &partition, gpu.generation.formats.ih),
            gpu,
            id,
            partition,
            index,
            local_memory,
            watch_points: WatchPoints::new()?,
            vmids,
            cleared: Atomic::new(0),
        };
        Ok(Arc::new(node, GFP_KERNEL)?)
    }

    /// An entry of the device's interrupt ring, perhaps for this node. Legal in a hard interrupt.
    pub(crate) fn interrupt(&self, entry: &[u32; 8]) {
        let ih = self.gpu.generation.formats.ih;
        let ours = ih
            .source(entry)
            .filter(|from| from.belongs_to(self.interrupt_nodes, self.vmids));
        let decode = |from: IhSource| {
            ih.decode(entry).or_else(|| {
                // Of a queue that we loaded ourselves the hardware may not know the process.
                let pasid = self.queues.pasid_of(from.vmid)?;
                ih.decode(&ih.with_pasid(entry, pasid)?)
            })
        };
        if let Some(interrupt) = ours.and_then(decode) {
            trace::interrupt(self.id.raw(), entry);
            self.sink.deliver(interrupt);
        }
    }

    /// Tells the processes of which a queue was reset, and sees to it that orders are given again
    /// that amdgpu has kept from the hardware. Whoever has called the scheduler calls this.
    pub(crate) fn notify_resets(&self) {
        while let Some(pasid) = self.queues.take_reset() {
            self.sink.queue_was_reset(pasid);
        }
        if self.queues.scheduler().owes() {
            self.sink.order_later(&self.again);
        }
    }

    /// Takes all queues off the hardware until called with `false` for the same reason.
    pub(crate) fn pause_queues(&self, why: Pause, pause: bool) -> Result {
        let result = self.queues.pause(why, pause);
        self.notify_resets();
        result
    }

    /// What users have mapped of it is about to be taken away for good: a reset.
    pub(crate) fn note_cleared(&self) {
        let _: u32 = self.cleared.fetch_add(1, Full);
    }

    /// How often that was.
    pub(crate) fn cleared(&self) -> u32 {
        self.cleared.load(Acquire)
    }

    /// What it has for queues.
    pub(crate) fn queues(&self) -> &Arc<NodeQueues> {
        &self.queues
    }

    /// Its numbers, and the formats of its engines.
    pub(crate) fn generation(&self) -> &Generation {
        &self.gpu.generation
    }

    /// Userspace's name for it.
    pub(crate) fn id(&self) -> GpuId {
        self.id
    }

    /// Its device's doorbells.
    pub(crate) fn doorbells(&self) -> &Arc<DoorbellPool> {
        &self.gpu.doorbells
    }

    /// What stands under it.
    pub(crate) fn kgd(&self) -> &Arc<dyn Kgd> {
        &self.gpu.kgd
    }

    /// What does not change while its device is up.
    pub(crate) fn facts(&self) -> &GpuFacts {
        self.gpu.facts()
    }

    /// Slots of global wave sync that its queues may have.
    pub(crate) fn wave_sync_slots(&self) -> u32 {
        match self.generation().chip.wave_sync {
            WaveSync::Free => self.facts().gws_size,
            WaveSync::Kept if self.gpu.wave_sync.is_some() => self.facts().gws_size,
            WaveSync::Kept | WaveSync::None => 0,
        }
    }

    /// Its device's name on the PCI bus, for messages.
    pub(crate) fn pci_name(&self) -> PciName {
        self.facts().pci_name()
    }

    /// Which partition of the device, from 0.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its share of the device.
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The logical XCCs (accelerator core complexes) that run its waves.
    pub(crate) fn xcc_mask(&self) -> u32 {
        self.partition.xcc_mask
    }

    /// How many there are.
    pub(crate) fn num_xcc(&self) -> u32 {
        self.partition.xcc_mask.count_ones()
    }

    /// Where its interrupts go.
    pub(crate) fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// The owner of its device's performance counters.
    pub(crate) fn profiler(&self) -> &Profiler {
        &self.gpu.profiler
    }

    /// Whether processes may get its device.
    pub(crate) fn gate(&self) -> &Gate {
        self.gpu.gate()
    }

    /// What begins on it must not miss them.
    pub(crate) fn resets(&self) -> &Resets {
        &self.gpu.resets
    }

    /// Whether the current task resets the GPU: whoever waits for that must not be it.
    pub(crate) fn is_reset_by_current(&self) -> bool {
        self.resets().are_by_current(|| self.kgd().in_reset())
    }

    /// The listeners to its SMI events.
    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.listeners
    }

    /// The sizes of its memory.
    pub(crate) fn local_memory(&self) -> &LocalMemory {
        &self.local_memory
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nobody has the node, so nobody queues it.
        self.again.end();
    }
}

/// What decides which chip a device is.
fn chip_facts(facts: &GpuFacts) -> ChipFacts {
    ChipFacts {
        gc: facts.gc(),
        prefers_gtt: facts.prefers_gtt,
        is_apu: facts.is_apu,
        virtual_function: facts.is_vf,
        mec_firmware: facts.mec_fw_version,
    }
}

/// Interrupts of these hardware nodes belong to a partition: to one without a partition manager,
/// all.
fn interrupt_nodes(facts: &GpuFacts, partition: &Partition, ih: &dyn IhFormat) -> u32 {
    if partition.id < 0 {
        return u32::MAX;
    }
    let logical = facts.logical_to_physical_xcc.iter().enumerate();
    let physical = logical.filter(|(xcc, _)| partition.xcc_mask >> xcc & 1 != 0);
    let mask = physical.fold(0, |mask, (_, &xcc)| {
        mask | 1u32.checked_shl(xcc).unwrap_or(0)
    });
    ih.node_bitmap(mask)
}

/// The VMIDs of a partition. Where each XCC is one (CPX), two share the memory hub that tells VMIDs
/// apart: they get one half of an even number of VMIDs each, the first the lower one.
fn vmids(facts: &GpuFacts, index: u32) -> u32 {
    /// `AMDGPU_CPX_PARTITION_MODE`
    const CPX: i32 = 4;
    let all = facts.compute_vmid_bitmap;
    if facts.partition_mode != CPX || facts.num_partitions <= 1 {
        return all;
    }
    let end = u32::BITS - all.leading_zeros();
    let half = end.saturating_sub(all.trailing_zeros()) / 2;
    let low_bits = |count: u32| 1u32.checked_shl(count).unwrap_or(0).wrapping_sub(1);
    low_bits(half) << (end - half * (2 - index % 2))
}

/// Why a GPU is not driven.
pub(crate) enum Unsupported {
    Generation(UnknownGeneration),
    /// None is driven at all yet.
    VirtualFunction,
}

impl kernel::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Generation(unknown) => core::fmt::Display::fmt(unknown, f),
            Self::VirtualFunction => f.write_str("a virtual function is not supported"),
        }
    }
}

/// Do we drive this generation? `allow_untested`: also if nobody has run it.
pub(crate) fn check_support(
    version: IpVersion,
    virtual_function: bool,
    allow_untested: bool,
) -> Result<(), Unsupported> {
    if virtual_function {
        return Err(Unsupported::VirtualFunction);
    }
    Generation::check(version, allow_untested).map_err(Unsupported::Generation)
}

global_lock! {
    // SAFETY: `init` below runs before anything else in the module.
    unsafe(uninit) static NODES: Mutex<KVec<Arc<Node>>> = KVec::new();
}

/// Makes the registry usable. Once, first of all.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn init() {
    // SAFETY: by this function's own contract.
    unsafe { NODES.init() };
}

/// Makes a node known. `EEXIST`: another has its name.
pub(crate) fn register(node: Arc<Node>) -> Result {
    let mut nodes = NODES.lock();
    if nodes.iter().any(|other| other.id == node.id) {
        return Err(EEXIST);
    }
    Ok(nodes.push(node, GFP_KERNEL)?)
}

/// Makes these nodes unknown. Others of the same device may have come meanwhile, and stay.
pub(crate) fn unregister(gone: &[Arc<Node>]) {
    let mut nodes = NODES.lock();
    nodes.retain(|node| !gone.iter().any(|gone| Arc::ptr_eq(node, gone)));
    if nodes.is_empty() {
        // A static is not dropped: its memory must not outlive the module.
        *nodes = KVec::new();
    }
}

/// The node of that name. Its device does not go before what is returned is dropped.
pub(crate) fn node(id: GpuId) -> Option<NodeUser> {
    let nodes = NODES.lock();
    let found = nodes.iter().find(|node| node.id == id);
    found.cloned().map(NodeUser::new)
}

/// Whether there is a node of that name.
pub(crate) fn exists(id: GpuId) -> bool {
    NODES.lock().iter().any(|node| node.id == id)
}

/// The first node, in topology order, that is meant. Its device does not go before what is returned
/// is dropped.
pub(crate) fn find(is_meant: impl Fn(&Node) -> bool) -> Option<NodeUser> {
    let nodes = NODES.lock();
    let found = nodes.iter().find(|node| is_meant(node));
    found.cloned().map(NodeUser::new)
}

/// The name of the node on partition `index` of a device.
pub(crate) fn id_of(device: DeviceHandle, index: u32) -> Option<GpuId> {
    let nodes = NODES.lock();
    let mut found = nodes.iter().filter(|node| node.kgd().handle() == device);
    found.find(|node| node.index == index).map(|node| node.id)
}

/// The name of the node that memory of a device's is of: of its partition, or, where it is of none
/// (negative), the first that may be used.
pub(crate) fn id_of_memory(
    device: DeviceHandle,
    partition: i32,
    may_use: impl Fn(&Node) -> bool,
) -> Option<GpuId> {
    if let Ok(index) = u32::try_from(partition) {
        return id_of(device, index);
    }
    let usable = find(|node| node.kgd().handle() == device && may_use(node));
    usable.map_or_else(|| id_of(device, 0), |node| Some(node.id))
}

/// Calls `act` with all nodes there are, in topology order. None comes or goes meanwhile.
pub(crate) fn with_nodes<R>(act: impl FnOnce(&[Arc<Node>]) -> R) -> R {
    act(&NODES.lock())
}

/// The same nodes, to keep for a while: their devices do not go before what is returned is dropped.
pub(crate) fn nodes() -> Result<KVec<NodeUser>> {
    let nodes = NODES.lock();
    let mut all = KVec::with_capacity(nodes.len(), GFP_KERNEL)?;
    for node in nodes.iter() {
        all.push(NodeUser::new(node.clone()), GFP_KERNEL)?;
    }
    Ok(all)
}

/// Takes nothing: for tests.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) struct NoSink;

#[cfg(CONFIG_KUNIT = "y")]
impl Sink for NoSink {
    fn deliver(&self, _: Interrupt) {}

    fn register(&self, _: Pasid, _: (Arc<Events>, Arc<Atomic<u32>>)) -> Result<Registration> {
        Err(ENODEV)
    }

    fn queue_was_reset(&self, _: Pasid) {}

    fn order_later(&self, _: &Arc<Again>) {}
}

mod tests;
