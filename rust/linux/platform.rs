// SPDX-License-Identifier: GPL-2.0-only

//! CPUs and memory of the machine: the functions of `platform.h`.

use kernel::prelude::*;

mod c {
    use kernel::ffi::c_int;

    /// `struct amdkfd_numa_node`.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct NumaNode {
        pub(super) cpus: u32,
        pub(super) first_apic_id: u32,
        pub(super) memory: u64,
    }

    unsafe extern "C" {
        pub(super) fn amdkfd_next_numa_node(node: c_int) -> c_int;
        pub(super) fn amdkfd_numa_node(node: c_int, out: *mut NumaNode) -> bool;
        pub(super) safe fn amdkfd_numa_distance(from: u32, to: u32) -> u32;
        pub(super) safe fn amdkfd_proximity_node(domain: u32) -> c_int;
        pub(super) safe fn amdkfd_cpu_is_amd() -> bool;
        pub(super) safe fn amdkfd_cpu_max_khz() -> u32;
        pub(super) fn amdkfd_memory_modules(width: *mut u32, speed: *mut u32);
    }
}

/// A NUMA node with CPUs.
pub(crate) struct NumaNode {
    pub(crate) id: u32,
    /// Online.
    pub(crate) cpus: u32,
    /// Of the first CPU.
    pub(crate) first_apic_id: u32,
    /// Bytes that the page allocator manages.
    pub(crate) memory: u64,
}

/// The NUMA nodes with CPUs, in order.
pub(crate) fn numa_nodes() -> impl Iterator<Item = NumaNode> {
    online_nodes().filter_map(|id| {
        let mut node = c::NumaNode::default();
        // SAFETY: `id` is an online node; `node` is ours to write to.
        if !unsafe { c::amdkfd_numa_node(id, &mut node) } {
            return None;
        }
        Some(NumaNode {
            // CAST: never negative, see `online_nodes`.
            id: id as u32,
            cpus: node.cpus,
            first_apic_id: node.first_apic_id,
            memory: node.memory,
        })
    })
}

fn online_nodes() -> impl Iterator<Item = c_int> {
    // SAFETY: -1 and nodes that the function itself returned are what it takes.
    let next = |node| unsafe { c::amdkfd_next_numa_node(node) };
    core::iter::successors(Some(next(-1)), move |&node| Some(next(node)))
        .take_while(|&node| node >= 0)
}

/// How far apart two NUMA nodes are; 10 is oneself.
pub(crate) fn numa_distance(from: u32, to: u32) -> u32 {
    c::amdkfd_numa_distance(from, to)
}

/// The NUMA node of an ACPI proximity domain.
pub(crate) fn proximity_node(domain: u32) -> Option<u32> {
    u32::try_from(c::amdkfd_proximity_node(domain)).ok()
}

/// AMD made the CPUs.
pub(crate) fn cpu_is_amd() -> bool {
    c::amdkfd_cpu_is_amd()
}

/// Width in bits and speed in MT/s of the memory modules; 0 if the firmware does not tell.
pub(crate) fn memory_modules() -> (u32, u32) {
    let (mut width, mut speed) = (0, 0);
    // SAFETY: Both are ours to write to.
    unsafe { c::amdkfd_memory_modules(&mut width, &mut speed) };
    (width, speed)
}

/// The highest clock of the first CPU in MHz; 0 without frequency scaling.
pub(crate) fn cpu_max_mhz() -> u32 {
    c::amdkfd_cpu_max_khz() / 1000
}

#[kernel::macros::kunit_tests(amdkfd_linux_platform)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_numa_node_is_far_away() {
        assert_eq!(numa_distance(0, 0), 10);
        for no_node in [1 << 20, 1 << 31, u32::MAX] {
            assert_eq!(numa_distance(no_node, 0), 20);
            assert_eq!(numa_distance(0, no_node), 20);
        }
    }
}
