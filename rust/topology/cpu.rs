// SPDX-License-Identifier: GPL-2.0-only

//! CPU nodes: one for each NUMA node that has CPUs, numbered in their order.
//!
//! Core-only. CPU caches are not listed: the kernel does not tell modules about them, and the C
//! driver lists none either.

use super::{
    Heap,
    Link,
    LinkKind,
    MemBank,
    NodeProperties,
    System, //
};

/// What is known of a NUMA node with CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuNode {
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

impl CpuNode {
    /// The file `properties`, but for the counts of lists.
    pub(crate) fn properties(&self) -> NodeProperties {
        NodeProperties {
            cpu_cores_count: self.cpus,
            cpu_core_id_base: self.first_apic_id,
            ..NodeProperties::default()
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
        kind: if amd {
            LinkKind::HyperTransport
        } else {
            LinkKind::Qpi
        },
        node_from,
        node_to,
        weight: distance,
        min_bandwidth: 0,
        max_bandwidth: 0,
        recommended_sdma_engine_id_mask: 0,
        flags: 0,
    }
}

/// Some bytes of a table.
fn field<const N: usize>(table: &[u8], offset: usize) -> Option<[u8; N]> {
    table.get(offset..)?.first_chunk().copied()
}

/// The machine's maker, from the header of the ACPI table `DSDT`. `None`: that is cut short.
pub(crate) fn system(table: &[u8]) -> Option<System> {
    let [revision] = field(table, 8)?;
    let maker: [u8; 6] = field(table, 10)?;
    let mut platform_id = [0; 8];
    for (to, from) in platform_id.iter_mut().zip(maker) {
        *to = from;
    }
    Some(System {
        platform_oem: u64::from_le_bytes(field(table, 16)?),
        platform_id: u64::from_le_bytes(platform_id),
        platform_rev: revision.into(),
    })
}

/// The proximity domain of a PCI device in the ACPI table `SRAT`: that of its Generic Initiator
/// structure. `slot` is bus, device and function.
pub(crate) fn affinity(table: &[u8], segment: u32, slot: u32) -> Option<u32> {
    /// Bytes before the first structure.
    const HEADER: usize = 48;
    /// Type of the structure, and of a device handle that names a PCI device.
    const GENERIC_INITIATOR: u8 = 5;
    const PCI_HANDLE: u8 = 1;

    let mut rest = table.get(HEADER..)?;
    while let [kind, length, ..] = *rest {
        let structure = rest.get(..usize::from(length))?;
        if kind == GENERIC_INITIATOR && field(structure, 3)? == [PCI_HANDLE] {
            let found = (field(structure, 8)?, field(structure, 10)?);
            let found = (u16::from_le_bytes(found.0), u16::from_le_bytes(found.1));
            if (u32::from(found.0), u32::from(found.1)) == (segment, slot) {
                return Some(u32::from_le_bytes(field(structure, 4)?));
            }
        }
        // A structure has a length, or the table is broken.
        rest = rest.get(usize::from(length).max(2)..)?;
    }
    None
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology_cpu))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn the_maker_reads_as_numbers() {
        let header = *b"DSDT\x24\0\0\0\x01\0BOCHS BXPC    \x01\0\0\0BXPC\x01\0\0\0";
        let system = system(&header).unwrap();
        assert_eq!(system.platform_id, 0x2053_4843_4f42);
        assert_eq!(system.platform_oem, 0x2020_2020_4350_5842);
        assert_eq!(system.platform_rev, 1);
        assert_eq!(super::system(&header[..20]), None);
    }

    /// An affinity table with one structure of another kind before the device's.
    fn affinities() -> [u8; 48 + 16 + 32] {
        let mut table = [0; 48 + 16 + 32];
        table[48] = 0;
        table[49] = 16;
        let structure = [5, 32, 0, 1, 3, 0, 0, 0, 0, 0, 0x08, 0x43];
        table[64..64 + structure.len()].copy_from_slice(&structure);
        table
    }

    #[test]
    fn a_device_is_found_in_the_table_of_affinities() {
        assert_eq!(affinity(&affinities(), 0, 0x4308), Some(3));
        assert_eq!(affinity(&affinities(), 0, 0x4300), None);
        assert_eq!(affinity(&affinities(), 1, 0x4308), None);
    }

    #[test]
    fn a_broken_table_of_affinities_names_nothing() {
        let mut table = affinities();
        table[49] = 0;
        assert_eq!(affinity(&table, 0, 0x1234), None);
        table[49] = 255;
        assert_eq!(affinity(&table, 0, 0x4308), None);
        assert_eq!(affinity(&table[..40], 0, 0x4308), None);
    }

    #[test]
    fn a_cpu_node_has_cpus_and_nothing_of_a_gpu() {
        let node = CpuNode {
            id: 0,
            cpus: 2,
            first_apic_id: 4,
            memory: 1 << 30,
        };
        let properties = node.properties();
        assert_eq!(
            (properties.cpu_cores_count, properties.cpu_core_id_base),
            (2, 4)
        );
        assert_eq!((properties.simd_count, properties.gpu), (0, None));
        let bank = node.bank(MemoryModules {
            width: 64,
            speed: 3200,
        });
        assert_eq!(
            (bank.heap, bank.size_in_bytes, bank.width),
            (Heap::System, 1 << 30, 64)
        );
    }

    #[test]
    fn cpus_are_as_far_apart_as_the_firmware_says() {
        assert_eq!(link(0, 1, 21, false).kind, LinkKind::Qpi);
        let link = link(1, 0, 32, true);
        assert_eq!(
            (link.kind, link.weight, link.flags),
            (LinkKind::HyperTransport, 32, 0)
        );
    }
}
