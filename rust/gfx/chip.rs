// SPDX-License-Identifier: GPL-2.0-only

//! What is fixed for one GPU and is not a format: numbers of its generation, and policies that
//! follow from what amdgpu says of the device.

use super::PAGE_BYTES;
use crate::ids::IpVersion;

/// What a chip is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChipFacts {
    /// The graphics core.
    pub(crate) gc: IpVersion,
    /// An APU: what would be in VRAM elsewhere is in system memory (`apu_prefer_gtt`).
    pub(crate) prefers_gtt: bool,
    /// An APU: the system's memory is its own.
    pub(crate) is_apu: bool,
    /// A part of a GPU that a hypervisor hands out (SR-IOV).
    pub(crate) virtual_function: bool,
    /// Version of the compute engine's (MEC) firmware.
    pub(crate) mec_firmware: u32,
}

/// What speaks for a graphics core's formats and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Programs have run on a model of it.
    RunOnModel,
    /// All is there, and what it writes and reads is the C driver's to the byte; nobody has run it.
    Compared,
    /// The same of its formats, but other things that it needs are missing.
    FormatsCompared,
}

/// The numbers and policies of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chip {
    /// The generation's name in messages.
    pub(crate) name: &'static str,
    /// What user space calls the instruction set: major * 10000 + minor * 100 + stepping.
    pub(crate) gfx_target_version: u32,
    /// Bytes of one doorbell.
    pub(crate) doorbell_bytes: usize,
    /// Queues that one process may have on one device (`max_queues` of `pqm_create_queue`).
    pub(crate) queues_per_process: usize,
    /// Queues of one copy engine.
    pub(crate) sdma_queues_per_engine: u32,
    /// A copy engine's doorbells start at a multiple of this many indices
    /// (`KFD_SDMA_SHADER_DOORBELL_GRANULARITY`).
    pub(crate) sdma_doorbell_granularity: u32,
    /// Pipe and queue where the hardware scheduler's own queue (HIQ) lives
    /// (`KFD_CIK_HIQ_PIPE`, `KFD_CIK_HIQ_QUEUE`).
    pub(crate) hiq_slot: (u32, u32),
    /// Processes choose one by one whether a faulting access is retried (XNACK).
    pub(crate) xnack_per_process: bool,
    /// Where descriptors of compute queues lie.
    pub(crate) mqds: MqdDomain,
    /// How it caches pages of the system's memory.
    pub(crate) system_memory: SystemMemory,
    /// How it caches pages of shared virtual memory for ranges that ask for coherence.
    pub(crate) coherence: Coherence,
    /// Whether queues may have global wave sync (GWS).
    pub(crate) wave_sync: WaveSync,
    /// Address watch points for a debugger.
    pub(crate) watch_points: u32,
    /// Queues may be reset one at a time (`HSA_CAP_PER_QUEUE_RESET_SUPPORTED`).
    pub(crate) per_queue_reset: bool,
    /// Precise memory operations can be switched on for a debugger.
    pub(crate) precise_memory_operations: bool,
    /// The firmware reports exceptions to a debugger (`HSA_CAP_TRAP_DEBUG_FIRMWARE_SUPPORTED`).
    pub(crate) debugger_firmware: bool,
    /// Trap temporaries always hold dispatch information (`HSA_DBG_DISPATCH_INFO_ALWAYS_VALID`).
    pub(crate) dispatch_info_always_valid: bool,
    /// Waves can be made to trap before they begin and before they end.
    pub(crate) traps_at_ends: bool,
    /// Lowest and highest address bit that a watch point can mask, as sysfs codes them.
    pub(crate) watch_mask_bits: (u32, u32),
    /// Work-groups run on pairs of CUs (WGP: work-group processors), which a CU mask does not part.
    pub(crate) cu_pairs: bool,
    /// Smallest end-of-pipe buffer a queue may bring (`eop_buffer_size`).
    pub(crate) eop_buffer_bytes: u32,
    /// What a wave needs to be saved when its queue is taken off the hardware.
    pub(crate) context_save: ContextSave,
    /// Line sizes of the caches.
    pub(crate) cache_lines: CacheLines,
    /// Sizes of the caches, where the discovery table does not state them.
    pub(crate) cache_sizes: Option<CacheSizes>,
    /// Where a process's LDS and scratch apertures begin.
    pub(crate) apertures: ApertureBases,
}

/// The memory of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MqdDomain {
    /// The GPU's own.
    Vram,
    /// The system's, mapped for the GPU (GTT: graphics translation table).
    Gtt,
}

/// Global wave sync (GWS): counters by which a kernel's waves wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaveSync {
    /// Queues have none.
    None,
    /// They have it for the asking.
    Free,
    /// amdgpu has to keep it for compute.
    Kept,
}

/// How a GPU caches pages of the system's memory (`svm_range_get_pte_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemMemory {
    /// Not at all.
    Uncached,
    /// Without keeping what others write from being stale, unless it is asked to.
    NonCoherent,
    /// As its own memory, if there is one NUMA node; page by page, if there are more.
    Own,
}

/// What ranges of shared virtual memory ask for that others write as well
/// (`svm_range_get_pte_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coherence {
    /// `COHERENT` is what the hardware does anyway, `EXT_COHERENT` more.
    Extended,
    /// Both ask for the same. The GPU's own memory is snooped only where the CPU caches it.
    Plain,
}

/// Sizes in KiB, 0 if the graphics core has no such cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheSizes {
    /// Vector data cache (TCP) of a CU.
    pub(crate) vector: u32,
    /// Instruction cache of a sequencer (SQC).
    pub(crate) instruction: u32,
    /// Scalar data cache of a sequencer.
    pub(crate) scalar: u32,
    /// CUs that share a sequencer's two caches.
    pub(crate) cus_per_sequencer: u32,
    /// Second-level cache (TCC).
    pub(crate) second: u32,
    /// CUs of a shader array that are listed with it; 0: all.
    pub(crate) cus_of_second: u32,
    /// Memory-attached last level (MALL), of the whole device.
    pub(crate) last: u32,
    /// Into how many parts the last level is split with the memory (NPS mode); 0: not known.
    pub(crate) memory_partitions: u32,
}

/// Bytes of a line, of each kind of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheLines {
    /// Vector data cache (TCP).
    pub(crate) vector: u32,
    /// Instruction cache of a sequencer (SQC).
    pub(crate) instruction: u32,
    /// Scalar data cache of a sequencer.
    pub(crate) scalar: u32,
    /// Second level (TCC).
    pub(crate) second: u32,
    /// Memory-attached last level (MALL).
    pub(crate) last: u32,
}

/// First addresses of the apertures that SH_MEM_BASES names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApertureBases {
    pub(crate) lds: u64,
    pub(crate) scratch: u64,
}

/// Sizes from which the context-save area of a queue is computed (CWSR: compute wave save and
/// restore). User space computes the same and its answer has to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextSave {
    pub(crate) vgpr_bytes_per_cu: u32,
    pub(crate) sgpr_bytes_per_cu: u32,
    pub(crate) lds_bytes_per_cu: u32,
    pub(crate) hardware_register_bytes_per_cu: u32,
    pub(crate) control_stack_bytes_per_wave: u32,
    pub(crate) waves_per_cu: u32,
    /// An upper bound for the waves of one shader engine, beside that of its CUs.
    pub(crate) waves_per_engine: u32,
    /// Bytes of a control stack, at most.
    pub(crate) control_stack_limit: u32,
    pub(crate) debugger_bytes_per_wave: u32,
}

/// The context-save sizes of one node, of each XCC (accelerator core complex).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextSaveSizes {
    /// `ctl_stack_size` of sysfs and CREATE_QUEUE.
    pub(crate) control_stack: u32,
    /// `cwsr_size`: control stack and wave state.
    pub(crate) area: u32,
    /// `debug_memory_size`: what follows the areas, for a debugger.
    pub(crate) debug: u32,
}

/// Bytes of the header that user space keeps at the start of a context-save area
/// (`SIZEOF_HSA_USER_CONTEXT_SAVE_AREA_HEADER`).
const SAVE_AREA_HEADER_BYTES: u32 = 40;

impl ContextSave {
    /// The sizes for `cus` compute units in `engines` shader engines, both of one XCC.
    pub(crate) fn sizes(&self, cus: u32, engines: u32) -> ContextSaveSizes {
        let of_engines = engines.saturating_mul(self.waves_per_engine);
        let waves = (cus * self.waves_per_cu).min(of_engines);
        let per_cu = self.vgpr_bytes_per_cu
            + self.sgpr_bytes_per_cu
            + self.lds_bytes_per_cu
            + self.hardware_register_bytes_per_cu;
        let stack = SAVE_AREA_HEADER_BYTES + waves * self.control_stack_bytes_per_wave + 8;
        let control_stack = stack.next_multiple_of(PAGE_BYTES);
        let control_stack = control_stack.min(self.control_stack_limit);
        ContextSaveSizes {
            control_stack,
            area: control_stack + (cus * per_cu).next_multiple_of(PAGE_BYTES),
            debug: (waves * self.debugger_bytes_per_wave).next_multiple_of(64),
        }
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx_chip))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;
    use crate::gfx::testing::{
        mi300x,
        mi300x_as,
        MI300X, //
    };

    #[test]
    fn save_areas_follow_the_compute_units() {
        let sizes = |cus, engines| mi300x().chip.context_save.sizes(cus, engines);
        // 38 units an XCC: an MI300X.
        let expected = ContextSaveSizes {
            control_stack: 0x3000,
            area: 0x3000 + 38 * 0x95000,
            debug: 1520 * 32,
        };
        assert_eq!(sizes(38, 4), expected);
        // More waves than the engines can count.
        assert_eq!(sizes(60, 4).debug, 2048 * 32);
    }

    #[test]
    fn descriptors_lie_where_the_memory_is() {
        let mqds = |prefers_gtt| {
            let facts = ChipFacts {
                prefers_gtt,
                ..MI300X
            };
            mi300x_as(&facts).chip.mqds
        };
        assert_eq!(mqds(false), MqdDomain::Vram);
        assert_eq!(mqds(true), MqdDomain::Gtt);
    }

    #[test]
    fn a_virtual_function_has_less() {
        let facts = ChipFacts {
            virtual_function: true,
            ..MI300X
        };
        let (whole, part) = (mi300x().chip, mi300x_as(&facts).chip);
        assert!(whole.per_queue_reset && !part.per_queue_reset);
        // C takes the choice from virtual functions of 9.4.2 only (`amdgpu_sriov_xnack_support`).
        assert!(whole.xnack_per_process && part.xnack_per_process);
    }
}
