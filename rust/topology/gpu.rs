// SPDX-License-Identifier: GPL-2.0-only

//! A GPU node's numbers, from what is known of the GPU.
//!
//! Core-only.

use super::{
    cache::ComputeUnits,
    identity::Identity,
    GpuProperties,
    Heap,
    MemBank,
    NodeName,
    NodeProperties, //
};
use crate::gfx::{
    CacheSizes,
    Chip, //
};

/// The number of the first compute unit of the first GPU: CPUs have the numbers below.
pub(crate) const FIRST_COMPUTE_UNIT: u32 = 0x8000_1000;

/// What the topology needs to know of a GPU node (a partition of a device).
#[derive(Clone, Copy)]
pub(crate) struct Description<'a> {
    pub(crate) name: NodeName,
    pub(crate) identity: Identity,
    pub(crate) vendor: u32,
    pub(crate) asic_revision: u32,
    pub(crate) unique_id: u64,
    pub(crate) render_minor: u32,
    /// Partitions of the device, and which of them this is.
    pub(crate) partitions: u32,
    pub(crate) partition: u32,
    pub(crate) chip: Chip,
    pub(crate) compute: ComputeFacts,
    pub(crate) units: ComputeUnits<'a>,
    pub(crate) caches: CacheSizes,
    pub(crate) memory: LocalMemory,
    pub(crate) copy: CopyEngines,
    pub(crate) links: Links,
    pub(crate) errors: ErrorCorrection,
    pub(crate) mec_firmware: u32,
    pub(crate) sdma_firmware: u32,
    pub(crate) driver: Driver,
}

/// The graphics core's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ComputeFacts {
    /// Working compute units of the whole device.
    pub(crate) units: u32,
    pub(crate) simd_per_unit: u32,
    pub(crate) waves_per_simd: u32,
    pub(crate) wave_size: u32,
    pub(crate) scratch_slots_per_unit: u32,
    /// Local data share, KiB.
    pub(crate) lds_kib: u32,
    /// MHz.
    pub(crate) max_clock: u32,
    /// Hardware queues that the scheduler may use.
    pub(crate) queues: u32,
}

/// The node's share of VRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalMemory {
    /// Bytes that the CPU sees.
    pub(crate) public: u64,
    /// Bytes that it does not.
    pub(crate) private: u64,
    /// Bits.
    pub(crate) width: u32,
    /// MHz.
    pub(crate) clock: u32,
    /// amdgpu's `debug_mask` says that the CPU sees everything.
    pub(crate) pretend_public: bool,
    /// The memory is the CPU's own (an APU run as an accelerator).
    pub(crate) shared_with_cpu: bool,
}

impl LocalMemory {
    /// The CPU sees all of it ("large BAR").
    pub(crate) fn is_public(&self) -> bool {
        self.pretend_public
            || self.private == 0 && self.public > 0
            || self.public == 0 && self.shared_with_cpu
    }

    /// How the topology lists it. `pretend_public` keeps the size of what is really in sight.
    pub(crate) fn bank(&self) -> MemBank {
        let all = self.private == 0 || self.pretend_public;
        let (heap, size_in_bytes) = if all {
            (Heap::Public, self.public)
        } else {
            (Heap::Private, self.public.wrapping_add(self.private))
        };
        MemBank {
            heap,
            size_in_bytes,
            width: self.width,
            mem_clk_max: self.clock,
        }
    }
}

/// The copy engines (SDMA) of the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyEngines {
    pub(crate) pcie: u32,
    /// Those for traffic between GPUs.
    pub(crate) xgmi: u32,
    pub(crate) per_queue_reset: bool,
}

/// What the GPU is linked to, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// The GPUs that xGMI connects; 0: none.
    pub(crate) hive: u64,
    /// Its place among the GPUs of the hive.
    pub(crate) hive_position: u32,
    pub(crate) hive_size: u32,
    /// The device's CPU (NUMA node); `None`: not known.
    pub(crate) numa: Option<u32>,
    /// How GPU and CPU are connected.
    pub(crate) host: HostLink,
    /// The CPU's caches see what the GPU does.
    pub(crate) coherent: bool,
    /// The GPU may make atomic accesses to the CPU's memory.
    pub(crate) atomics: bool,
    /// Others may make atomic accesses to the GPU's memory (PCIe AtomicOp completer).
    pub(crate) atomic_completer: bool,
    /// The device is made of active interposer dies and is neither virtual nor an APU: xGMI copies
    /// have a best engine.
    pub(crate) engine_map: bool,
}

/// How a GPU and its CPU are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostLink {
    /// Least and most MB/s.
    PciExpress { bandwidth: (u32, u32) },
    /// xGMI, of least and most MB/s.
    Xgmi { bandwidth: (u32, u32) },
    /// Both are on one package.
    Package,
}

impl Default for HostLink {
    fn default() -> Self {
        Self::PciExpress { bandwidth: (0, 0) }
    }
}

/// Error detection and correction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorCorrection {
    /// Of the graphics core's memories.
    pub(crate) graphics: bool,
    /// Of VRAM.
    pub(crate) memory: bool,
    /// Errors are told as events.
    pub(crate) events: bool,
}

/// What this driver can do, as user space is told: nothing is promised that it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// DBG_TRAP, address watch points, wave launch modes.
    pub(crate) debugger: bool,
    /// A compute queue can be reset alone.
    pub(crate) queue_reset: bool,
    /// A copy queue can.
    pub(crate) copy_queue_reset: bool,
    /// Shared virtual memory.
    pub(crate) svm: bool,
    /// Global wave sync (ALLOC_QUEUE_GWS): how many. 0: none.
    pub(crate) global_wave_sync: u32,
}

/// `HSA_CAP_*` (linux/kfd_sysfs.h).
mod cap {
    pub(super) const WATCH_POINTS_SUPPORTED: u32 = 0x80;
    pub(super) const WATCH_POINTS_TOTALBITS_SHIFT: u32 = 8;
    pub(super) const WATCH_POINTS_TOTALBITS_MASK: u32 = 0xf00;
    pub(super) const DOORBELL_TYPE_TOTALBITS_SHIFT: u32 = 12;
    pub(super) const DOORBELL_TYPE_2_0: u32 = 2;
    pub(super) const TRAP_DEBUG_SUPPORT: u32 = 0x8000;
    pub(super) const TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED: u32 = 0x1_0000;
    pub(super) const TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED: u32 = 0x2_0000;
    pub(super) const TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED: u32 = 0x4_0000;
    pub(super) const MEM_EDCSUPPORTED: u32 = 0x10_0000;
    pub(super) const RASEVENTNOTIFY: u32 = 0x20_0000;
    pub(super) const ASIC_REVISION_SHIFT: u32 = 22;
    pub(super) const ASIC_REVISION_MASK: u32 = 0x3c0_0000;
    pub(super) const SRAM_EDCSUPPORTED: u32 = 0x400_0000;
    pub(super) const SVMAPI_SUPPORTED: u32 = 0x800_0000;
    pub(super) const FLAGS_COHERENTHOSTACCESS: u32 = 0x1000_0000;
    pub(super) const TRAP_DEBUG_FIRMWARE_SUPPORTED: u32 = 0x2000_0000;
    pub(super) const PER_QUEUE_RESET_SUPPORTED: u32 = 0x8000_0000;
    /// `HSA_CAP2_PER_SDMA_QUEUE_RESET_SUPPORTED`.
    pub(super) const PER_SDMA_QUEUE_RESET_SUPPORTED: u32 = 1;
    /// `HSA_DBG_WATCH_ADDR_MASK_HI_BIT_SHIFT`.
    pub(super) const WATCH_ADDR_MASK_HI_BIT_SHIFT: u32 = 4;
    /// `HSA_DBG_DISPATCH_INFO_ALWAYS_VALID`.
    pub(super) const DISPATCH_INFO_ALWAYS_VALID: u64 = 0x400;
}

fn capability2(copy_queue_reset: bool) -> u32 {
    when(copy_queue_reset, cap::PER_SDMA_QUEUE_RESET_SUPPORTED)
}

impl GpuProperties {
    /// Says whether copy queues can be reset one at a time.
    pub(crate) fn set_copy_queue_reset(&mut self, can: bool) {
        self.capability2 = capability2(can);
    }

    /// Says whether there is shared virtual memory.
    pub(crate) fn set_svm(&mut self, has: bool) {
        self.capability &= !cap::SVMAPI_SUPPORTED;
        self.capability |= when(has, cap::SVMAPI_SUPPORTED);
    }
}

impl Description<'_> {
    /// Compute units of one XCC, working or not: how many numbers the node takes.
    pub(crate) fn numbers(&self) -> u32 {
        self.arrays().wrapping_mul(self.units.cus_per_array)
    }

    /// Shader arrays of one XCC.
    fn arrays(&self) -> u32 {
        self.units
            .arrays_per_engine
            .wrapping_mul(self.units.engines)
    }

    /// SIMDs of the node.
    fn simds(&self) -> u32 {
        let units = self.compute.units / self.partitions.max(1);
        self.compute.simd_per_unit.wrapping_mul(units)
    }

    fn xccs(&self) -> u32 {
        self.units.xcc_mask.count_ones()
    }

    /// PCI bus, device and function, and the partition where there are several.
    fn location(&self) -> u32 {
        let slot = self.identity.bus << 8 | self.identity.devfn;
        if self.partitions > 1 {
            slot | self.partition
        } else {
            slot
        }
    }

    /// The file `properties`, but for the counts of lists. The first unit has the number `base`.
    pub(crate) fn properties(&self, base: u32) -> NodeProperties {
        let ComputeFacts { simd_per_unit, .. } = self.compute;
        let units_per_xcc = self.simds() / simd_per_unit.max(1) / self.xccs().max(1);
        let save = self
            .chip
            .context_save
            .sizes(units_per_xcc, self.units.engines);
        NodeProperties {
            simd_count: self.simds(),
            simd_id_base: base,
            max_waves_per_simd: self.compute.waves_per_simd,
            lds_size_in_kb: self.compute.lds_kib,
            num_gws: self.driver.global_wave_sync,
            wave_front_size: self.compute.wave_size,
            array_count: self.arrays().wrapping_mul(self.xccs()),
            simd_arrays_per_engine: self.units.arrays_per_engine,
            cu_per_simd_array: self.units.cus_per_array,
            simd_per_cu: simd_per_unit,
            max_slots_scratch_cu: self.compute.scratch_slots_per_unit,
            gfx_target_version: self.chip.gfx_target_version,
            vendor_id: self.vendor,
            device_id: self.identity.device,
            location_id: self.location(),
            domain: self.identity.domain,
            drm_render_minor: self.render_minor,
            hive_id: self.hive(),
            num_sdma_engines: self.copy.pcie,
            num_sdma_xgmi_engines: self.copy.xgmi,
            num_sdma_queues_per_engine: self.chip.sdma_queues_per_engine,
            num_cp_queues: self.compute.queues,
            cwsr_size: save.area,
            ctl_stack_size: save.control_stack,
            gpu: Some(self.gpu_properties()),
            ..NodeProperties::default()
        }
    }

    fn gpu_properties(&self) -> GpuProperties {
        GpuProperties {
            max_engine_clk_fcompute: self.compute.max_clock,
            local_mem_size: 0,
            fw_version: self.mec_firmware,
            capability: self.capability(),
            capability2: self.capability2(),
            debug_prop: self.debug_properties(),
            sdma_fw_version: self.sdma_firmware,
            unique_id: self.unique_id,
            num_xcc: self.xccs(),
        }
    }

    /// The hive's number. A GPU without one that xGMI connects to its CPU makes a hive with it.
    pub(crate) fn hive(&self) -> u64 {
        match self.links.host {
            HostLink::PciExpress { .. } => self.links.hive,
            _ if self.links.hive != 0 => self.links.hive,
            HostLink::Xgmi { .. } | HostLink::Package => {
                u64::from(self.identity.bus << 8 | self.identity.devfn)
            }
        }
    }

    fn capability(&self) -> u32 {
        let errors = self.errors;
        let reset = self.driver.queue_reset && self.chip.per_queue_reset;
        cap::DOORBELL_TYPE_2_0 << cap::DOORBELL_TYPE_TOTALBITS_SHIFT
            | self.asic_revision << cap::ASIC_REVISION_SHIFT & cap::ASIC_REVISION_MASK
            | when(errors.graphics, cap::SRAM_EDCSUPPORTED)
            | when(errors.memory, cap::MEM_EDCSUPPORTED)
            | when(errors.events, cap::RASEVENTNOTIFY)
            | when(self.links.coherent, cap::FLAGS_COHERENTHOSTACCESS)
            | when(self.driver.svm, cap::SVMAPI_SUPPORTED)
            | when(reset, cap::PER_QUEUE_RESET_SUPPORTED)
            | when(
                self.chip.debugger_firmware,
                cap::TRAP_DEBUG_FIRMWARE_SUPPORTED,
            )
            | when(self.driver.debugger, self.debugger())
    }

    /// What a debugger can do.
    fn debugger(&self) -> u32 {
        let log2 = self.chip.watch_points.checked_ilog2().unwrap_or(0);
        let watch = cap::WATCH_POINTS_SUPPORTED
            | log2 << cap::WATCH_POINTS_TOTALBITS_SHIFT & cap::WATCH_POINTS_TOTALBITS_MASK;
        let precise = cap::TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED;
        cap::TRAP_DEBUG_SUPPORT
            | cap::TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED
            | cap::TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED
            | when(self.chip.precise_memory_operations, precise)
            | when(log2 != 0, watch)
    }

    fn capability2(&self) -> u32 {
        capability2(self.driver.copy_queue_reset && self.copy.per_queue_reset)
    }

    fn debug_properties(&self) -> u64 {
        let (lowest, highest) = self.chip.watch_mask_bits;
        let bits = lowest | highest << cap::WATCH_ADDR_MASK_HI_BIT_SHIFT;
        let dispatch = if self.chip.dispatch_info_always_valid {
            cap::DISPATCH_INFO_ALWAYS_VALID
        } else {
            0
        };
        if self.driver.debugger {
            u64::from(bits) | dispatch
        } else {
            0
        }
    }
}

/// `bits` or nothing.
const fn when(condition: bool, bits: u32) -> u32 {
    if condition {
        bits
    } else {
        0
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology_gpu))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
pub(super) mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;
    use crate::gfx::testing::mi300x;

    /// Four shader engines of ten working units.
    pub(in crate::topology) const BITMAP: [[[u32; 4]; 4]; 8] = [[[0x3ff, 0, 0, 0]; 4]; 8];

    /// A GPU as the model presents it: one XCC, 40 units, 16 copy engines.
    pub(in crate::topology) fn description(bitmap: &[[[u32; 4]; 4]]) -> Description<'_> {
        Description {
            name: NodeName::new(b"IP DISCOVERY"),
            identity: Identity {
                devfn: 0,
                subsystem_vendor: 0x1002,
                subsystem_device: 0x74a1,
                domain: 0,
                device: 0x74a1,
                bus: 3,
                local_memory: 2 << 30,
                xcc_mask: 1,
            },
            vendor: 0x1002,
            asic_revision: 1,
            unique_id: 0x1234,
            render_minor: 128,
            partitions: 1,
            partition: 0,
            chip: mi300x().chip,
            compute: ComputeFacts {
                units: 40,
                simd_per_unit: 4,
                waves_per_simd: 8,
                wave_size: 64,
                scratch_slots_per_unit: 32,
                lds_kib: 64,
                max_clock: 2100,
                queues: 24,
            },
            units: ComputeUnits {
                bitmap,
                xcc_mask: 1,
                engines: 4,
                arrays_per_engine: 1,
                cus_per_array: 10,
            },
            caches: CacheSizes::default(),
            memory: LocalMemory {
                public: 2 << 30,
                ..LocalMemory::default()
            },
            copy: CopyEngines {
                pcie: 4,
                xgmi: 0,
                per_queue_reset: true,
            },
            links: Links::default(),
            errors: ErrorCorrection::default(),
            mec_firmware: 80,
            sdma_firmware: 18,
            driver: Driver::default(),
        }
    }

    #[test]
    fn nothing_is_promised_that_the_driver_has_not() {
        let gpu = description(&BITMAP)
            .properties(FIRST_COMPUTE_UNIT)
            .gpu
            .unwrap();
        // The firmware's bit is the firmware's: ROCr calls RUNTIME_ENABLE where it is set.
        let firmware = cap::TRAP_DEBUG_FIRMWARE_SUPPORTED;
        assert_eq!(gpu.capability, 0x2000 | 1 << 22 | firmware);
        assert_eq!((gpu.capability2, gpu.debug_prop), (0, 0));
    }

    /// What the C driver, which has all of it, says of such a GPU (kfd_topology.c).
    #[test]
    fn a_driver_that_has_everything_says_what_c_says() {
        let mut gpu = description(&BITMAP);
        gpu.driver = Driver {
            debugger: true,
            queue_reset: true,
            copy_queue_reset: true,
            svm: true,
            global_wave_sync: 64,
        };
        let properties = gpu.properties(FIRST_COMPUTE_UNIT);
        let gpu = properties.gpu.unwrap();
        assert_eq!(gpu.capability & !cap::ASIC_REVISION_MASK, 0xa807_a280);
        assert_eq!((gpu.capability2, gpu.debug_prop), (1, 0x5e7));
        let mut gpu = gpu;
        for can in [false, true] {
            gpu.set_copy_queue_reset(can);
            assert_eq!(gpu.capability2, u32::from(can));
            gpu.set_svm(can);
            let bit = when(can, cap::SVMAPI_SUPPORTED);
            assert_eq!(gpu.capability & cap::SVMAPI_SUPPORTED, bit);
        }
        assert_eq!(properties.num_gws, 64);
    }

    #[test]
    fn error_correction_shows_bit_by_bit() {
        let mut gpu = description(&BITMAP);
        gpu.errors.graphics = true;
        assert_eq!(gpu.capability() & 0x430_0000, cap::SRAM_EDCSUPPORTED);
        gpu.errors.memory = true;
        gpu.errors.events = true;
        assert_eq!(gpu.capability() & 0x430_0000, 0x430_0000);
    }

    #[test]
    fn counts_are_of_the_partition() {
        let mut gpu = description(&BITMAP);
        gpu.compute.units = 304;
        gpu.units.xcc_mask = 0xff;
        let whole = gpu.properties(0);
        assert_eq!((whole.simd_count, whole.array_count), (1216, 32));
        assert_eq!((whole.num_sdma_engines, whole.location_id), (4, 0x300));
        gpu.partitions = 4;
        gpu.partition = 2;
        gpu.units.xcc_mask = 0x30;
        let quarter = gpu.properties(0);
        assert_eq!((quarter.simd_count, quarter.array_count), (304, 8));
        assert_eq!(quarter.location_id, 0x302);
    }

    /// `kfd_queue_ctx_save_restore_size` by hand: 40 units are 1600 waves, 0x95000 bytes each.
    #[test]
    fn the_save_area_is_what_user_space_computes() {
        let properties = description(&BITMAP).properties(0);
        assert_eq!(properties.ctl_stack_size, 0x4000);
        assert_eq!(properties.cwsr_size, 0x4000 + 40 * 0x95000);
    }

    #[test]
    fn memory_out_of_sight_makes_the_whole_private() {
        let mut memory = LocalMemory {
            public: 256 << 20,
            private: 768 << 20,
            ..Default::default()
        };
        assert!(!memory.is_public());
        assert_eq!(
            (memory.bank().heap, memory.bank().size_in_bytes),
            (Heap::Private, 1 << 30)
        );
        memory.pretend_public = true;
        assert!(memory.is_public());
        assert_eq!(
            (memory.bank().heap, memory.bank().size_in_bytes),
            (Heap::Public, 256 << 20)
        );
    }
}
