// SPDX-License-Identifier: GPL-2.0-only

//! The topology: what user space is told of processors, memory, caches and the links between them.
//!
//! One topology. It has a node for each group of CPUs that shares memory (NUMA node), and after
//! those a node for each GPU, in the order in which amdgpu brought them up. A node is data and
//! nothing else; [`sysfs`] shows it below `/sys/devices/virtual/kfd/kfd/topology`, a file for each
//! thing, a line for each number. This file says how every thing reads there: names, order and
//! format are user ABI, and the fields here carry the names of the lines.
//!
//! Core-only, as are [`cpu`], [`gpu`], [`cache`], [`link`] and [`identity`], which compute the data
//! from what is known of the machine.

pub(crate) mod cache;
pub(crate) mod cpu;
pub(crate) mod gpu;
pub(crate) mod identity;
pub(crate) mod link;

#[cfg(CONFIG_RUST)]
mod facts;
#[cfg(CONFIG_RUST)]
mod given;
#[cfg(CONFIG_RUST)]
mod sysfs;
#[cfg(CONFIG_RUST)]
mod tree;

#[cfg(CONFIG_RUST)]
pub(crate) use facts::{
    is_memory_public,
    may_use,
    properties, //
};
#[cfg(CONFIG_RUST)]
pub(crate) use given::GivenId;
#[cfg(CONFIG_RUST)]
pub(crate) use tree::{
    add,
    exit,
    give_id,
    init,
    num_nodes,
    prepare,
    remove, //
};

use core::fmt;

/// Writes one line `name value` for each field, in the given order.
macro_rules! lines {
    ($f:ident, $from:expr, $($name:ident)*) => {
        $( writeln!($f, concat!(stringify!($name), " {}"), $from.$name)?; )*
    };
}

/// The whole machine: file `system_properties`. Comes from the ACPI table `DSDT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) platform_oem: u64,
    pub(crate) platform_id: u64,
    pub(crate) platform_rev: u64,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines!(f, self, platform_oem platform_id platform_rev);
        Ok(())
    }
}

/// What a node calls itself: file `name`. Lower case, empty for CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeName([u8; 31]);

impl NodeName {
    /// From a C string, or from text without an end.
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut name = Self::default();
        let text = text.iter().take_while(|&&byte| byte != 0);
        for (to, from) in name.0.iter_mut().zip(text) {
            *to = from.to_ascii_lowercase();
        }
        name
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0);
        let text = self.0.get(..end.unwrap_or(self.0.len())).unwrap_or(&[]);
        writeln!(f, "{}", core::str::from_utf8(text).unwrap_or("?"))
    }
}

/// What every node has: file `properties`. A CPU node's GPU numbers are 0, and the other way round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeProperties {
    pub(crate) cpu_cores_count: u32,
    pub(crate) simd_count: u32,
    pub(crate) mem_banks_count: u32,
    pub(crate) caches_count: u32,
    pub(crate) io_links_count: u32,
    pub(crate) p2p_links_count: u32,
    pub(crate) cpu_core_id_base: u32,
    pub(crate) simd_id_base: u32,
    pub(crate) max_waves_per_simd: u32,
    pub(crate) lds_size_in_kb: u32,
    pub(crate) gds_size_in_kb: u32,
    pub(crate) num_gws: u32,
    pub(crate) wave_front_size: u32,
    /// Shader arrays of all XCCs (accelerator core complexes) together.
    pub(crate) array_count: u32,
    pub(crate) simd_arrays_per_engine: u32,
    pub(crate) cu_per_simd_array: u32,
    pub(crate) simd_per_cu: u32,
    pub(crate) max_slots_scratch_cu: u32,
    pub(crate) gfx_target_version: u32,
    pub(crate) vendor_id: u32,
    pub(crate) device_id: u32,
    /// PCI bus, device and function.
    pub(crate) location_id: u32,
    /// PCI domain.
    pub(crate) domain: u32,
    pub(crate) drm_render_minor: u32,
    pub(crate) hive_id: u64,
    pub(crate) num_sdma_engines: u32,
    pub(crate) num_sdma_xgmi_engines: u32,
    pub(crate) num_sdma_queues_per_engine: u32,
    pub(crate) num_cp_queues: u32,
    pub(crate) cwsr_size: u32,
    pub(crate) ctl_stack_size: u32,
    /// The lines that only a GPU's node has.
    pub(crate) gpu: Option<GpuProperties>,
}

/// The lines of `properties` that only a GPU's node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuProperties {
    pub(crate) max_engine_clk_fcompute: u32,
    /// Always 0: the memory banks tell.
    pub(crate) local_mem_size: u64,
    pub(crate) fw_version: u32,
    pub(crate) capability: u32,
    pub(crate) capability2: u32,
    pub(crate) debug_prop: u64,
    pub(crate) sdma_fw_version: u32,
    pub(crate) unique_id: u64,
    pub(crate) num_xcc: u32,
}

impl fmt::Display for NodeProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines!(f, self, cpu_cores_count simd_count mem_banks_count caches_count io_links_count
            p2p_links_count cpu_core_id_base simd_id_base max_waves_per_simd lds_size_in_kb
            gds_size_in_kb num_gws wave_front_size array_count simd_arrays_per_engine
            cu_per_simd_array simd_per_cu max_slots_scratch_cu gfx_target_version vendor_id
            device_id location_id domain drm_render_minor hive_id num_sdma_engines
            num_sdma_xgmi_engines num_sdma_queues_per_engine num_cp_queues cwsr_size
            ctl_stack_size);
        if let Some(gpu) = &self.gpu {
            lines!(f, gpu, max_engine_clk_fcompute local_mem_size fw_version capability
                capability2 debug_prop sdma_fw_version unique_id num_xcc);
        }
        Ok(())
    }
}

/// The last line of `properties`: the CPU's highest clock in MHz, asked for at each read.
pub(crate) struct CpuClock(pub(crate) u32);

impl fmt::Display for CpuClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "max_engine_clk_ccompute {}", self.0)
    }
}

/// Whose memory it is, and who sees it: `HSA_MEM_HEAP_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heap {
    /// The CPU's.
    System = 0,
    /// The GPU's, all of it in the CPU's sight.
    Public = 1,
    /// The GPU's, some or none of it in the CPU's sight.
    Private = 2,
}

/// Memory of a node: file `mem_banks/<n>/properties`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemBank {
    pub(crate) heap: Heap,
    pub(crate) size_in_bytes: u64,
    /// Bits.
    pub(crate) width: u32,
    /// MHz.
    pub(crate) mem_clk_max: u32,
}

impl fmt::Display for MemBank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // CAST: a field-less enum.
        writeln!(f, "heap_type {}", self.heap as u32)?;
        writeln!(f, "size_in_bytes {}\nflags 0", self.size_in_bytes)?;
        lines!(f, self, width mem_clk_max);
        Ok(())
    }
}

/// Some compute units, one bit for each, as a cache's file lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiblingMap {
    words: [u32; Self::MAX],
    len: usize,
}

impl SiblingMap {
    /// Words of the longest map: 8 XCCs of 4 shader arrays, 32 compute units each.
    pub(crate) const MAX: usize = 32;

    /// As many of `words` as a map can hold.
    pub(crate) fn new(words: impl Iterator<Item = u32>) -> Self {
        let mut map = Self {
            words: [0; Self::MAX],
            len: 0,
        };
        for (to, from) in map.words.iter_mut().zip(words) {
            *to = from;
            map.len += 1;
        }
        map
    }

    /// The words.
    pub(crate) fn words(&self) -> &[u32] {
        self.words.get(..self.len).unwrap_or(&[])
    }
}

impl fmt::Display for SiblingMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self
            .words()
            .iter()
            .flat_map(|word| (0..32).map(move |bit| word >> bit & 1));
        for (index, bit) in bits.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{bit}")?;
        }
        Ok(())
    }
}

/// `HSA_CACHE_TYPE_DATA`.
pub(crate) const CACHE_DATA: u32 = 1;
/// `HSA_CACHE_TYPE_INSTRUCTION`.
pub(crate) const CACHE_INSTRUCTION: u32 = 2;
/// `HSA_CACHE_TYPE_HSACU`: a GPU's.
pub(crate) const CACHE_GPU: u32 = 8;

/// A cache: file `caches/<n>/properties`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    /// The first compute unit that uses it.
    pub(crate) processor_id_low: u32,
    pub(crate) level: u32,
    /// KiB.
    pub(crate) size: u32,
    pub(crate) cache_line_size: u32,
    /// `HSA_CACHE_TYPE_*`.
    pub(crate) kind: u32,
    /// Who uses it, counted from the first.
    pub(crate) sibling_map: SiblingMap,
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines!(f, self, processor_id_low level size cache_line_size);
        writeln!(f, "cache_lines_per_tag 0\nassociation 0\nlatency 0")?;
        writeln!(f, "type {}\nsibling_map {}", self.kind, self.sibling_map)
    }
}

/// What carries a link: `HSA_IOLINK_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// HyperTransport: between AMD's CPUs, whatever carries it today.
    HyperTransport = 1,
    PciExpress = 2,
    /// QuickPath: between other CPUs.
    Qpi = 5,
    /// AMD's link between GPUs, and between GPU and CPU on one package.
    Xgmi = 11,
}

/// A link from one node to another, one way: file `io_links/<n>/properties` or `p2p_links/…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) kind: LinkKind,
    pub(crate) node_from: u32,
    pub(crate) node_to: u32,
    pub(crate) weight: u32,
    /// MB/s.
    pub(crate) min_bandwidth: u32,
    /// MB/s.
    pub(crate) max_bandwidth: u32,
    /// Copy engines that are best at using it, one bit for each.
    pub(crate) recommended_sdma_engine_id_mask: u32,
    /// `HSA_IOLINK_FLAGS_*`.
    pub(crate) flags: u32,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // CAST: a field-less enum.
        writeln!(
            f,
            "type {}\nversion_major 0\nversion_minor 0",
            self.kind as u32
        )?;
        lines!(f, self, node_from node_to weight);
        writeln!(f, "min_latency 0\nmax_latency 0")?;
        lines!(f, self, min_bandwidth max_bandwidth);
        writeln!(f, "recommended_transfer_size 0")?;
        lines!(f, self, recommended_sdma_engine_id_mask flags);
        Ok(())
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;
    use core::fmt::Write;

    /// Takes text as a sysfs page does, and compares it.
    struct Expected<'a>(&'a str);

    impl Write for Expected<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
            Ok(())
        }
    }

    fn reads(thing: &impl fmt::Display, text: &str) -> bool {
        let mut expected = Expected(text);
        write!(expected, "{thing}").is_ok() && expected.0.is_empty()
    }

    #[test]
    fn names_are_lower_case_lines() {
        assert!(reads(
            &NodeName::new(b"IP DISCOVERY\0junk"),
            "ip discovery\n"
        ));
        assert!(reads(&NodeName::default(), "\n"));
        assert!(reads(
            &NodeName::new(b"0123456789012345678901234567890123"),
            "0123456789012345678901234567890\n"
        ));
    }

    #[test]
    fn memory_reads_as_user_space_parses_it() {
        let bank = MemBank {
            heap: Heap::Private,
            size_in_bytes: 1 << 33,
            width: 8192,
            mem_clk_max: 1300,
        };
        let text = "heap_type 2\nsize_in_bytes 8589934592\nflags 0\nwidth 8192\nmem_clk_max 1300\n";
        assert!(reads(&bank, text));
    }

    #[test]
    fn a_cache_lists_a_bit_for_each_compute_unit() {
        let cache = Cache {
            processor_id_low: 0x8000_1002,
            level: 1,
            size: 32,
            cache_line_size: 128,
            kind: CACHE_DATA | CACHE_GPU,
            sibling_map: SiblingMap::new([0b101].into_iter()),
        };
        let text = "processor_id_low 2147487746\nlevel 1\nsize 32\ncache_line_size 128\n\
            cache_lines_per_tag 0\nassociation 0\nlatency 0\ntype 9\nsibling_map 1,0,1,0,0,0,0,0,\
            0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n";
        assert!(reads(&cache, text));
    }

    #[test]
    fn a_sibling_map_stops_at_what_it_holds() {
        let map = SiblingMap::new(core::iter::repeat(1));
        assert_eq!(map.words().len(), SiblingMap::MAX);
    }

    #[test]
    fn only_gpus_have_the_lines_of_gpus() {
        let mut node = NodeProperties {
            cpu_cores_count: 2,
            ..NodeProperties::default()
        };
        let mut lines = Lines(0);
        assert!(write!(lines, "{node}").is_ok());
        assert_eq!(lines.0, 31);
        node.gpu = Some(GpuProperties::default());
        assert!(write!(lines, "{node}").is_ok());
        assert_eq!(lines.0, 31 + 31 + 9);
    }

    /// Counts lines.
    struct Lines(usize);

    impl Write for Lines {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.bytes().filter(|&byte| byte == b'\n').count();
            Ok(())
        }
    }

    #[test]
    fn a_link_reads_as_user_space_parses_it() {
        let link = Link {
            kind: LinkKind::PciExpress,
            node_from: 1,
            node_to: 0,
            weight: 20,
            min_bandwidth: 312,
            max_bandwidth: 32000,
            recommended_sdma_engine_id_mask: 3,
            flags: 1,
        };
        let text = "type 2\nversion_major 0\nversion_minor 0\nnode_from 1\nnode_to 0\nweight 20\n\
            min_latency 0\nmax_latency 0\nmin_bandwidth 312\nmax_bandwidth 32000\n\
            recommended_transfer_size 0\nrecommended_sdma_engine_id_mask 3\nflags 1\n";
        assert!(reads(&link, text));
    }
}
