// SPDX-License-Identifier: GPL-2.0

//! Gpu and Node: the devices that this KFD serves.
//!
//! One [`Gpu`] per amdgpu device and one [`Node`] per partition of it, which is what userspace calls
//! a GPU (`gpu_id`). The registry owns the nodes, a node owns its share of the `Gpu`; both go when
//! amdgpu takes the device away, which is after the last process has let go of them.

use crate::{
    ids::{
        GpuId,
        IpVersion, //
    },
    interrupt::Interrupts,
    kgd::{
        DeviceHandle,
        GpuFacts,
        Kgd,
        LocalMemory,
        Partition, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        global_lock,
        Arc, //
    },
};

/// One amdgpu device.
pub(crate) struct Gpu {
    kgd: Arc<dyn Kgd>,
}

impl Gpu {
    /// The device that `kgd` stands for.
    pub(crate) fn new(kgd: Arc<dyn Kgd>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { kgd }, GFP_KERNEL)?)
    }

    /// What stands under it.
    pub(crate) fn kgd(&self) -> &Arc<dyn Kgd> {
        &self.kgd
    }

    /// What does not change while it is up.
    pub(crate) fn facts(&self) -> &GpuFacts {
        self.kgd.facts()
    }
}

/// One partition of a device: a GPU as userspace sees it.
pub(crate) struct Node {
    gpu: Arc<Gpu>,
    id: GpuId,
    partition: Partition,
    index: u32,
    local_memory: LocalMemory,
    interrupts: Interrupts,
}

impl Node {
    /// Partition `index` of `gpu`, under the name `id`. `ENODEV`: there is no such partition.
    pub(crate) fn new(gpu: Arc<Gpu>, index: u32, id: GpuId) -> Result<Arc<Self>> {
        let partition = *gpu.facts().partitions().get(index as usize).ok_or(ENODEV)?;
        let local_memory = gpu.kgd.local_memory(index);
        let node = Self {
            gpu,
            id,
            partition,
            index,
            local_memory,
            interrupts: Interrupts::new(id)?,
        };
        Ok(Arc::new(node, GFP_KERNEL)?)
    }

    /// Userspace's name for it.
    pub(crate) fn id(&self) -> GpuId {
        self.id
    }

    /// The device it is part of.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// What stands under it.
    pub(crate) fn kgd(&self) -> &Arc<dyn Kgd> {
        &self.gpu.kgd
    }

    /// What does not change while its device is up.
    pub(crate) fn facts(&self) -> &GpuFacts {
        self.gpu.facts()
    }

    /// Which partition of the device, from 0.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its share of the device.
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The logical XCCs (accelerator complex dies) that run its waves.
    pub(crate) fn xcc_mask(&self) -> u32 {
        self.partition.xcc_mask
    }

    /// How many there are.
    pub(crate) fn num_xcc(&self) -> u32 {
        self.partition.xcc_mask.count_ones()
    }

    /// Who is interrupted by it.
    pub(crate) fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// The sizes of its memory.
    pub(crate) fn local_memory(&self) -> &LocalMemory {
        &self.local_memory
    }
}

/// Do we drive this generation, natively or (not yet at all) as a virtual function?
pub(crate) fn supports(version: IpVersion, virtual_function: bool) -> bool {
    version == IpVersion::new(9, 4, 3) && !virtual_function
}

/// A device that is up: what amdgpu's calls about it reach. Dropped, its nodes are unknown again.
pub(crate) struct Served {
    gpu: Arc<Gpu>,
    nodes: KVec<Arc<Node>>,
}

impl Served {
    /// Brings a device up, and makes its nodes known.
    pub(crate) fn new(kgd: Arc<dyn Kgd>) -> Result<Self> {
        let gpu = Gpu::new(kgd)?;
        Ok(Self {
            gpu,
            nodes: KVec::new(),
        })
    }

    /// An entry of the interrupt ring. Hard IRQ.
    pub(crate) fn interrupt(&self, _entry: &[u32; 8]) {}
}

impl Drop for Served {
    fn drop(&mut self) {
        unregister(self.gpu.kgd.handle());
    }
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

/// Makes a device's nodes unknown, and returns the last one that was.
pub(crate) fn unregister(device: DeviceHandle) {
    let mut nodes = NODES.lock();
    nodes.retain(|node| node.kgd().handle() != device);
}

/// The node of that name.
pub(crate) fn node(id: GpuId) -> Option<Arc<Node>> {
    NODES.lock().iter().find(|node| node.id == id).cloned()
}

/// The node on partition `index` of a device.
pub(crate) fn node_of(device: DeviceHandle, index: u32) -> Option<Arc<Node>> {
    let nodes = NODES.lock();
    let mut found = nodes.iter().filter(|node| node.kgd().handle() == device);
    found.find(|node| node.index == index).cloned()
}

/// All nodes there are, in topology order.
pub(crate) fn nodes() -> Result<KVec<Arc<Node>>> {
    let nodes = NODES.lock();
    let mut all = KVec::with_capacity(nodes.len(), GFP_KERNEL)?;
    for node in nodes.iter() {
        all.push(node.clone(), GFP_KERNEL)?;
    }
    Ok(all)
}
