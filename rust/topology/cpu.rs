// SPDX-License-Identifier: GPL-2.0

//! CPU nodes: one for each NUMA node that has CPUs, numbered in their order.
//!
//! Core-only. CPU caches are not listed: the kernel does not tell modules about them, and the C
//! driver lists none either.

use super::{
    Heap,
    Link,
    LinkKind,
    MemBank,
    Properties,
    System, //
};

/// What is known of a NUMA node with CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumaNode {
    /// The kernel's number of it.
    pub(crate) id: u32,
    /// CPUs that are online.
    pub(crate) cpus: u32,
    /// The APIC id of the first.
    pub(crate) first_apic_id: u32,
    /// Bytes that the page allocator manages.
    pub(crate) memory: u64,
}

/// What firmware tables (DMI) say of the memory modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryModules {
    /// Bits; 0: not told.
    pub(crate) width: u32,
    /// MT/s; 0: not told.
    pub(crate) speed: u32,
}

impl NumaNode {
    /// The file `properties`, but for the counts of lists.
    pub(crate) fn properties(&self) -> Properties {
        Properties {
            cpu_cores_count: self.cpus,
            cpu_core_id_base: self.first_apic_id,
            ..Properties::default()
        }
    }

    /// Its memory. Modules are described for the first node only (`modules`), as in C.
    pub(crate) fn bank(&self, modules: MemoryModules) -> MemBank {
        MemBank {
            heap: Heap::System,
            size_in_bytes: self.memory,
            width: modules.width,
            mem_clk_max: modules.speed,
        }
    }
}

/// The link between two CPU nodes, one way. `distance` is the firmware's (SLIT).
pub(crate) fn link(node_from: u32, node_to: u32, distance: u32, amd: bool) -> Link {
    Link {
        kind: if amd { LinkKind::HyperTransport } else { LinkKind::Qpi },
        node_from,
        node_to,
        weight: distance,
        min_bandwidth: 0,
        max_bandwidth: 0,
        recommended_sdma_engine_id_mask: 0,
        flags: 0,
    }
}

/// The machine's maker, from the header of the ACPI table `DSDT`.
pub(crate) fn system(oem: [u8; 6], table: [u8; 8], revision: u8) -> System {
    let mut id = [0; 8];
    for (to, from) in id.iter_mut().zip(oem) {
        *to = from;
    }
    System {
        platform_oem: u64::from_le_bytes(table),
        platform_id: u64::from_le_bytes(id),
        platform_rev: revision.into(),
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology_cpu))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn the_maker_reads_as_numbers() {
        let system = system(*b"BOCHS ", *b"BXPC    ", 1);
        assert_eq!(system.platform_id, 0x2053_4843_4f42);
        assert_eq!(system.platform_oem, 0x2020_2020_4350_5842);
        assert_eq!(system.platform_rev, 1);
    }

    #[test]
    fn a_cpu_node_has_cpus_and_nothing_of_a_gpu() {
        let node = NumaNode { id: 0, cpus: 2, first_apic_id: 4, memory: 1 << 30 };
        let properties = node.properties();
        assert_eq!((properties.cpu_cores_count, properties.cpu_core_id_base), (2, 4));
        assert_eq!((properties.simd_count, properties.gpu), (0, None));
        let bank = node.bank(MemoryModules { width: 64, speed: 3200 });
        assert_eq!((bank.heap, bank.size_in_bytes, bank.width), (Heap::System, 1 << 30, 64));
    }

    #[test]
    fn cpus_are_as_far_apart_as_the_firmware_says() {
        assert_eq!(link(0, 1, 21, false).kind, LinkKind::Qpi);
        let link = link(1, 0, 32, true);
        assert_eq!((link.kind, link.weight, link.flags), (LinkKind::HyperTransport, 32, 0));
    }
}
