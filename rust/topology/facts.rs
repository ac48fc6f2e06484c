// SPDX-License-Identifier: GPL-2.0-only

//! From what amdgpu and the firmware's tables say to what the topology computes with.

use super::{
    cache::ComputeUnits,
    cpu,
    gpu::{
        ComputeFacts,
        CopyEngines,
        Description,
        Driver,
        ErrorCorrection,
        HostLink,
        Links,
        LocalMemory, //
    },
    identity::Identity,
    NodeName,
    NodeProperties,
    System, //
};
use crate::{
    gfx::CacheSizes,
    gpu::Node,
    ids::IpVersion,
    kgd::{
        self,
        Bandwidth,
        GpuFacts,
        Partition, //
    },
    linux::{
        acpi::AcpiTable,
        platform, //
    },
    svm,
};
use kernel::prelude::*;

/// What this driver can do. A bit follows when the code behind it does.
const DRIVER: Driver = Driver {
    debugger: true,
    queue_reset: true,
    copy_queue_reset: true,
    // If processes have it: `describe`.
    svm: false,
    // As many slots as the GPU has.
    global_wave_sync: 0,
};

/// `AMDGPU_SPX_PARTITION_MODE`: the device is one partition. Below: it knows no partitions.
const UNDIVIDED: i32 = 0;

/// What the `gpu_id` of a partition is made of.
pub(super) fn identity(
    facts: &GpuFacts,
    memory: &kgd::LocalMemory,
    partition: &Partition,
) -> Identity {
    Identity {
        devfn: facts.pci_devfn,
        subsystem_vendor: facts.subsystem_vendor,
        subsystem_device: facts.subsystem_device,
        domain: facts.pci_domain,
        device: facts.device,
        bus: facts.pci_bus,
        local_memory: memory.size_private.wrapping_add(memory.size_public),
        xcc_mask: partition.xcc_mask,
    }
}

/// What the topology needs to know of a GPU node.
pub(super) fn describe(node: &Node) -> Description<'_> {
    let facts = node.facts();
    let partition = node.partition();
    let (pcie, xgmi) = node.queues().copy_engines();
    let chip = node.generation().chip;
    Description {
        name: NodeName::new(&facts.asic_name),
        identity: identity(facts, node.local_memory(), partition),
        vendor: facts.vendor,
        asic_revision: facts.revision,
        unique_id: if facts.partition_mode > UNDIVIDED {
            partition.unique_id
        } else {
            facts.unique_id
        },
        render_minor: partition.render_minor,
        partitions: facts.num_partitions,
        partition: node.index(),
        chip,
        compute: compute(facts),
        units: ComputeUnits {
            bitmap: &facts.cu_bitmap,
            xcc_mask: partition.xcc_mask,
            engines: facts.max_shader_engines,
            arrays_per_engine: facts.max_sh_per_se,
            cus_per_array: facts.max_cu_per_sh,
        },
        caches: chip.cache_sizes.unwrap_or_else(|| cache_sizes(facts)),
        memory: local_memory(facts, node.local_memory()),
        copy: CopyEngines {
            pcie,
            xgmi,
            per_queue_reset: node.kgd().can_reset_copy_engines(),
        },
        links: links(node),
        errors: errors(facts),
        mec_firmware: facts.mec_fw_version,
        sdma_firmware: facts.sdma_fw_version,
        driver: Driver {
            global_wave_sync: node.wave_sync_slots(),
            svm: has_svm(node),
            ..DRIVER
        },
    }
}

/// What the file `properties` of a GPU says, but for numbers that other nodes have a part in.
pub(crate) fn properties(node: &Node) -> NodeProperties {
    describe(node).properties(0)
}

fn compute(facts: &GpuFacts) -> ComputeFacts {
    ComputeFacts {
        units: facts.cu_count,
        simd_per_unit: facts.simd_per_cu,
        waves_per_simd: facts.max_waves_per_simd,
        wave_size: facts.wave_front_size,
        scratch_slots_per_unit: facts.max_scratch_slots_per_cu,
        lds_kib: facts.lds_size,
        max_clock: facts.max_engine_clock,
        queues: facts.set_resources_queue_mask.count_ones(),
    }
}

fn cache_sizes(facts: &GpuFacts) -> CacheSizes {
    CacheSizes {
        vector: facts.gc_tcp_size_per_cu,
        instruction: facts.gc_l1_instruction_cache_size_per_sqc,
        scalar: facts.gc_l1_data_cache_size_per_sqc,
        cus_per_sequencer: facts.gc_num_cu_per_sqc,
        second: facts.gc_tcc_size,
        cus_of_second: 0,
        // CAST: KiB of a cache.
        last: (facts.mall_size / 1024) as u32,
        memory_partitions: facts.memory_partition_mode,
    }
}

fn local_memory(facts: &GpuFacts, memory: &kgd::LocalMemory) -> LocalMemory {
    LocalMemory {
        public: memory.size_public,
        private: memory.size_private,
        width: memory.vram_width,
        clock: memory.mem_clk_max,
        pretend_public: facts.large_bar_debug,
        shared_with_cpu: facts.is_app_apu,
    }
}

/// Whether a copy queue of the node can be reset alone.
pub(super) fn resets_copy_queues(node: &Node) -> bool {
    DRIVER.copy_queue_reset && node.kgd().can_reset_copy_engines()
}

/// Processes have shared virtual memory, and the GPU can have a part in it.
pub(super) fn has_svm(node: &Node) -> bool {
    svm::is_enabled() && svm::is_supported(&**node.kgd())
}

/// The CPU sees all of the node's memory ("large BAR").
pub(crate) fn is_memory_public(node: &Node) -> bool {
    local_memory(node.facts(), node.local_memory()).is_public()
}

/// The current task's device cgroup lets it use the node.
pub(crate) fn may_use(node: &Node) -> bool {
    node.kgd()
        .cgroup_permission(node.partition().render_minor)
        .is_ok()
}

fn errors(facts: &GpuFacts) -> ErrorCorrection {
    ErrorCorrection {
        graphics: facts.ras_gfx,
        memory: facts.ras_umc,
        events: facts.ras_enabled != 0,
    }
}

fn links(node: &Node) -> Links {
    let facts = node.facts();
    let is_gfx943 = facts.gc() == IpVersion::new(9, 4, 3);
    let host = if is_gfx943 && (facts.connected_to_cpu || facts.package_is_apu) {
        HostLink::Package
    } else if facts.connected_to_cpu {
        let Bandwidth { min, max } = node.kgd().xgmi_link_bandwidth().unwrap_or_default();
        HostLink::Xgmi {
            bandwidth: (min, max),
        }
    } else {
        let Bandwidth { min, max } = node.kgd().pcie_bandwidth().unwrap_or_default();
        HostLink::PciExpress {
            bandwidth: (min, max),
        }
    };
    Links {
        hive: hive(facts),
        hive_position: facts.xgmi_physical_node_id,
        hive_size: facts.xgmi_num_physical_nodes,
        numa: numa_node(facts),
        host,
        coherent: facts.is_app_apu || facts.connected_to_cpu,
        atomics: facts.atomics,
        atomic_completer: facts.pcie_atomic_completer,
        engine_map: facts.aid_mask != 0 && !facts.is_vf && !facts.is_apu,
    }
}

/// The GPUs that xGMI connects, by the number of their hive; 0: none. Partitions of one device are
/// as good as connected.
pub(super) fn hive(facts: &GpuFacts) -> u64 {
    let connected = if facts.use_xgmi_p2p {
        facts.xgmi_hive_id
    } else {
        0
    };
    if connected == 0 && facts.num_partitions > 1 {
        return u64::from(facts.pci_bus << 8 | facts.pci_devfn);
    }
    connected
}

/// The NUMA node that the device is attached to: as the kernel has it, or as the firmware's table
/// of affinities (SRAT) says where the kernel does not know.
fn numa_node(facts: &GpuFacts) -> Option<u32> {
    if let Ok(node) = u32::try_from(facts.numa_node) {
        return Some(node);
    }
    let table = AcpiTable::get(c"SRAT")?;
    let slot = facts.pci_bus << 8 | facts.pci_devfn;
    let domain = cpu::affinity(table.bytes(), facts.pci_domain, slot)?;
    platform::proximity_node(domain)
}

/// The machine's maker; zeros if the firmware does not tell.
pub(super) fn system() -> System {
    let Some(table) = AcpiTable::get(c"DSDT") else {
        pr_warn!("the firmware has no table DSDT to tell the platform's maker\n");
        return System::default();
    };
    cpu::system(table.bytes()).unwrap_or_default()
}
