// SPDX-License-Identifier: GPL-2.0-only

//! What a scheduler knows of the partition of a device that its node is, and of the slots there.

use super::slots::Slots;
use crate::{
    bits::set_bits,
    kgd::{
        GpuFacts,
        HqdPosition, //
    }, //
};

/// The VMIDs of a device's compute queues, each free or some process's. One set for all nodes: the
/// page directory of a VMID is written for the whole device.
pub(crate) type Vmids = Slots<1>;

/// Those of a device that nobody has.
pub(crate) fn free_vmids(facts: &GpuFacts) -> Vmids {
    let mask = u64::from(facts.compute_vmid_bitmap);
    Vmids::with(|vmid| mask >> vmid & 1 != 0)
}

/// What a scheduler is started with.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// The node's logical XCCs.
    pub(crate) xcc_mask: u32,
    /// The device's VMIDs that the node's processes may have.
    pub(crate) vmid_mask: u32,
    /// Which partition of its device it is.
    pub(crate) partition: u32,
    /// The device's number for the node's first copy engine.
    pub(crate) first_engine: u32,
}

/// The logical XCCs of `mask`, each with its number within the node.
pub(super) fn xccs(mask: u32) -> impl Iterator<Item = (u32, u32)> {
    set_bits(mask.into()).zip(0..)
}

/// Where slot `index` of the micro engine is: the slots of a pipe follow each other.
#[inline]
pub(super) fn slot_at(facts: &GpuFacts, index: u32) -> HqdPosition {
    let each = facts.num_queue_per_pipe.max(1);
    HqdPosition {
        pipe: index / each,
        queue: index % each,
    }
}

/// The slots that compute queues can be in.
pub(super) fn compute_slots(facts: &GpuFacts) -> impl Iterator<Item = HqdPosition> + '_ {
    set_bits(facts.compute_queue_bitmap).map(|index| slot_at(facts, index))
}

#[kernel::macros::kunit_tests(amdkfd_sched_partition)]
mod tests {
    use super::*;

    #[test]
    fn xccs_are_numbered_within_the_node() {
        assert!(xccs(0b1101_0000).eq([(4, 0), (6, 1), (7, 2)]));
    }

    #[test]
    fn slots_are_numbered_pipe_by_pipe() {
        let facts = GpuFacts {
            num_queue_per_pipe: 4,
            compute_queue_bitmap: 1 << 3 | 1 << 4 | 1 << 63,
            ..GpuFacts::default()
        };
        let slots = compute_slots(&facts).map(|slot| (slot.pipe, slot.queue));
        assert!(slots.eq([(0, 3), (1, 0), (15, 3)]));
    }
}
