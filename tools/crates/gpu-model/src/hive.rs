// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A hive: GPUs that xGMI connects, each with every other. Their local memories lie one after the
//! other, a segment for each node, in one address space that all of them have. One [`Hive`] per GPU
//! that is in one.

use std::sync::Arc;

use crate::memory::{BusError, PhysicalMemory};

/// Nodes at most (`gfxhub_v1_2_get_xgmi_info`).
pub const MAX_NODES: usize = 8;

/// Why a hive cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewError {
    #[error("a hive of {0} nodes: need 2 to {MAX_NODES}")]
    Nodes(usize),
    #[error("node {0} of {1}")]
    Node(u8, usize),
}

/// The hive as one of its GPUs sees it.
#[derive(Clone)]
pub struct Hive {
    node: u8,
    segment: u64,
    memories: Vec<Arc<dyn PhysicalMemory>>,
}

impl Hive {
    /// The hive of the GPU that is node `node`; `memories` are the local memories of all nodes, of
    /// `segment` bytes each.
    pub fn new(
        node: u8,
        segment: u64,
        memories: Vec<Arc<dyn PhysicalMemory>>,
    ) -> Result<Self, NewError> {
        let nodes = memories.len();
        if !(2..=MAX_NODES).contains(&nodes) {
            return Err(NewError::Nodes(nodes));
        }
        if usize::from(node) >= nodes {
            return Err(NewError::Node(node, nodes));
        }
        Ok(Self {
            node,
            segment,
            memories,
        })
    }

    /// This GPU's place: its physical node id.
    pub fn node(&self) -> u8 {
        self.node
    }

    /// This GPU's memory.
    pub fn own(&self) -> Arc<dyn PhysicalMemory> {
        self.memories[usize::from(self.node)].clone()
    }

    /// Nodes.
    pub fn nodes(&self) -> u8 {
        self.memories.len() as u8
    }

    /// Bytes from one node's memory to the next one's.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// The hive's number: the same for all nodes.
    pub fn id(&self) -> u64 {
        0x6869_7665_0000_0000
    }

    /// A node's number, the only one of its kind.
    pub fn node_id(&self, node: u8) -> u64 {
        self.id() + 1 + u64::from(node)
    }

    /// The node of that number.
    pub fn node_of(&self, id: u64) -> Option<u8> {
        (0..self.nodes()).find(|node| self.node_id(*node) == id)
    }

    /// Which memory an access is to, and where in it.
    fn at(&self, address: u64, length: usize) -> Result<(&dyn PhysicalMemory, u64), BusError> {
        let offset = address % self.segment;
        let node = usize::try_from(address / self.segment).ok();
        let memory = node.and_then(|node| self.memories.get(node));
        memory
            .filter(|_| length as u64 <= self.segment - offset)
            .map(|memory| (&**memory, offset))
            .ok_or(BusError { address, length })
    }
}

/// Addresses are those of all nodes' memories together.
impl PhysicalMemory for Hive {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        let (memory, offset) = self.at(address, out.len())?;
        memory.read(offset, out)
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError> {
        let (memory, offset) = self.at(address, data.len())?;
        memory.write(offset, data)
    }

    fn update32(&self, address: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError> {
        let (memory, offset) = self.at(address, 4)?;
        memory.update32(offset, change)
    }

    fn update64(&self, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError> {
        let (memory, offset) = self.at(address, 8)?;
        memory.update64(offset, change)
    }

    fn zero(&self, address: u64, length: u64) -> Result<(), BusError> {
        let whole = usize::try_from(length).unwrap_or(usize::MAX);
        let (memory, offset) = self.at(address, whole)?;
        memory.zero(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmc::{Access, Hub};
    use crate::memory::HeapMemory;
    use crate::rig::{Rig, FB, VRAM};

    fn memories(nodes: usize) -> Vec<Arc<dyn PhysicalMemory>> {
        (0..nodes)
            .map(|_| Arc::new(HeapMemory::new(VRAM as usize)) as Arc<dyn PhysicalMemory>)
            .collect()
    }

    #[test]
    fn an_address_names_a_node_and_a_place_in_its_memory() {
        let hive = Hive::new(1, VRAM, memories(3)).unwrap();
        hive.write(2 * VRAM + 0x100, &[7; 4]).unwrap();
        assert_eq!(hive.memories[2].read_u32(0x100), Ok(0x0707_0707));
        assert_eq!(hive.update32(2 * VRAM + 0x100, &mut |_| 5), Ok(0x0707_0707));
        assert_eq!(hive.memories[2].read_u32(0x100), Ok(5));
        assert!(hive.write(3 * VRAM, &[0]).is_err(), "no such node");
        assert!(hive.write(VRAM - 1, &[0; 2]).is_err(), "in two nodes");
        assert!(hive.zero(VRAM, u64::MAX).is_err());
        assert_eq!(hive.node_of(hive.node_id(2)), Some(2));
        assert_eq!(hive.node_of(0), None);
    }

    #[test]
    fn a_hive_has_two_to_eight_nodes() {
        let make = |node, nodes| Hive::new(node, VRAM, memories(nodes)).err();
        assert_eq!(make(0, 1), Some(NewError::Nodes(1)));
        assert_eq!(make(0, 9), Some(NewError::Nodes(9)));
        assert_eq!(make(2, 2), Some(NewError::Node(2, 2)));
    }

    /// GC's MC_VM_XGMI_LFB_CNTL, _SIZE and MC_VM_FB_LOCATION_TOP.
    const LFB_CNTL: u64 = 0x2957;
    const FB_TOP: u64 = 0x295d;

    #[test]
    fn the_registers_say_where_a_gpu_is_and_all_memories_are_in_its_reach() {
        let memories = memories(3);
        let hive = Hive::new(1, VRAM, memories.clone()).unwrap();
        let rig = Rig::in_hive(hive);
        assert_eq!(rig.read(LFB_CNTL), 1 | 2 << 4);
        assert_eq!(rig.read(LFB_CNTL + 1), (VRAM >> 24) as u32);
        assert_eq!(u64::from(rig.read(FB_TOP)), (FB + 3 * VRAM - 1) >> 24);
        let chip = rig.chip();
        for node in 0..3 {
            let at = FB + u64::from(node) * VRAM + 0x4000;
            let found = chip.gmc.translate(chip, Hub::Mm, 0, at, Access::Write);
            chip.write(found.unwrap().at, &[node as u8 + 1; 4]).unwrap();
            let value = 0x0101_0101 * (node + 1);
            assert_eq!(memories[node as usize].read_u32(0x4000), Ok(value));
        }
        let end = chip
            .gmc
            .translate(chip, Hub::Mm, 0, FB + VRAM - 4, Access::Read);
        assert_eq!(end.unwrap().length, 4, "memory ends where the next begins");
        // The window for the CPU is to the GPU's own memory.
        rig.write(0, 0x4000 | 1 << 31);
        rig.write(6, 0);
        assert_eq!(rig.read(1), 0x0202_0202);
        rig.model.reset();
        assert_eq!(rig.read(LFB_CNTL), 1 | 2 << 4);
    }
}
