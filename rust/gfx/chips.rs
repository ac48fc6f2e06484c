// SPDX-License-Identifier: GPL-2.0-only

//! The graphics cores that this driver knows: each with its formats, its numbers and policies, and
//! what speaks for them. This is the one place where an IP version chooses code; a core of known
//! formats is an entry here and nothing else. [`Chip`] says what each number means.
//!
//! A version that is not here is refused: near relatives differ in descriptors and packets, and a
//! guess corrupts memory.

use super::{
    gfx10::{
        GFX10_1,
        GFX10_3, //
    },
    gfx9::{
        GFX9,
        GFX9_4_2,
        GFX9_4_3,
        GFX9_5_0, //
    },
    ApertureBases,
    CacheLines,
    CacheSizes,
    Chip,
    ChipFacts,
    Coherence,
    ContextSave,
    Evidence,
    Formats,
    Generation,
    MqdDomain,
    SystemMemory,
    WaveSync, //
};
use crate::ids::IpVersion;

/// A graphics core.
pub(super) struct Core {
    pub(super) evidence: Evidence,
    formats: &'static Formats,
    chip: fn(&ChipFacts) -> Chip,
}

impl Core {
    /// What a GPU with this core and these facts is.
    pub(super) fn generation(&self, facts: &ChipFacts) -> Generation {
        Generation {
            chip: (self.chip)(facts),
            formats: self.formats,
            evidence: self.evidence,
        }
    }
}

/// From versions, evidence, formats and chips to the match of them, and to a text that names those
/// which somebody has run.
macro_rules! cores {
    (
        run: $first:literal $(, $run:literal)*;
        $($major:literal $minor:literal $revision:literal:
            $evidence:ident, $formats:ident, $chip:expr;)*
    ) => {
        /// The core of this version.
        pub(super) fn core(gc: IpVersion) -> Option<Core> {
            match (gc.major, gc.minor, gc.revision) {
                $(($major, $minor, $revision) => Some(Core {
                    evidence: Evidence::$evidence,
                    formats: &$formats,
                    chip: $chip,
                }),)*
                (_, _, _) => None,
            }
        }
        /// Those that are served without being asked to.
        pub(super) const RUN_ON_MODEL: &str = concat!($first $(, ", ", $run)*);
    };
}

cores! {
    run: "9.4.2", "9.4.3", "9.5.0";
    9 0 1: FormatsCompared, GFX9, |facts| small(facts, "gfx9.0.1", 90000, (4096, 16));
    9 1 0: FormatsCompared, GFX9, |facts| small(facts, "gfx9.1.0", 90002, (1024, 11));
    9 2 1: FormatsCompared, GFX9, |facts| small(facts, "gfx9.2.1", 90004, (2048, 5));
    9 2 2: FormatsCompared, GFX9, |facts| small(facts, "gfx9.2.2", 90002, (1024, 11));
    9 3 0: FormatsCompared, GFX9, |facts| small(facts, "gfx9.3.0", 90012, (1024, 8));
    9 4 0: FormatsCompared, GFX9, |facts| named(gfx9(facts), "gfx9.4.0", 90006);
    9 4 1: FormatsCompared, GFX9, |facts| Chip {
        context_save: WIDE_REGISTERS,
        ..named(gfx9(facts), "gfx9.4.1", 90008)
    };
    9 4 2: RunOnModel, GFX9_4_2, gfx9_4_2;
    9 4 3: RunOnModel, GFX9_4_3, gfx9_4_3;
    9 4 4: Compared, GFX9_4_3, |facts| named(gfx9_4_3(facts), "gfx9.4.4", 90402);
    9 5 0: RunOnModel, GFX9_5_0, gfx9_5_0;
    10 1 1: FormatsCompared, GFX10_1, |facts| gfx10(facts, "gfx10.1.1", 100102);
    10 1 2: FormatsCompared, GFX10_1, |facts| gfx10(facts, "gfx10.1.2", 100101);
    10 1 3: FormatsCompared, GFX10_1, |facts| gfx10(facts, "gfx10.1.3", 100103);
    10 1 4: FormatsCompared, GFX10_1, |facts| gfx10(facts, "gfx10.1.4", 100103);
    10 1 10: FormatsCompared, GFX10_1, |facts| gfx10(facts, "gfx10.1.10", 100100);
    10 3 0: FormatsCompared, GFX10_3, |facts| gfx10(facts, "gfx10.3.0", 100300);
    10 3 1: FormatsCompared, GFX10_3, |facts| small10(facts, "gfx10.3.1", 100303);
    10 3 2: FormatsCompared, GFX10_3, |facts| gfx10(facts, "gfx10.3.2", 100301);
    10 3 3: FormatsCompared, GFX10_3, |facts| small10(facts, "gfx10.3.3", 100305);
    10 3 4: FormatsCompared, GFX10_3, |facts| gfx10(facts, "gfx10.3.4", 100302);
    10 3 5: FormatsCompared, GFX10_3, |facts| gfx10(facts, "gfx10.3.5", 100304);
    10 3 6: FormatsCompared, GFX10_3, |facts| small10(facts, "gfx10.3.6", 100306);
    10 3 7: FormatsCompared, GFX10_3, |facts| small10(facts, "gfx10.3.7", 100306);
}

/// `chip` of this name, whose instruction set user space calls `target`.
fn named(chip: Chip, name: &'static str, gfx_target_version: u32) -> Chip {
    Chip {
        name,
        gfx_target_version,
        ..chip
    }
}

/// The first ones of this generation, and APUs: their copy engines have two queues. `second`: their
/// second-level cache.
fn small(
    facts: &ChipFacts,
    name: &'static str,
    gfx_target_version: u32,
    second: (u32, u32),
) -> Chip {
    Chip {
        sdma_queues_per_engine: 2,
        cache_sizes: stated_nowhere(3, second),
        ..named(gfx9(facts), name, gfx_target_version)
    }
}

/// Caches before discovery tables: of a sequencer for so many CUs, and with a second level of so
/// many KiB, listed with so many CUs.
const fn stated_nowhere(cus_per_sequencer: u32, second: (u32, u32)) -> Option<CacheSizes> {
    Some(CacheSizes {
        vector: 16,
        instruction: 32,
        scalar: 16,
        cus_per_sequencer,
        second: second.0,
        cus_of_second: second.1,
        last: 0,
        memory_partitions: 0,
    })
}

/// What graphics cores up to 9.4.1 have in common.
fn gfx9(facts: &ChipFacts) -> Chip {
    Chip {
        debugger_firmware: facts.mec_firmware >= debugger_firmware(facts.gc),
        // The tables of `kfd_get_gpu_cache_info`.
        cache_sizes: stated_nowhere(3, (8192, 16)),
        cache_lines: CacheLines {
            vector: 64,
            second: 64,
            ..PLAIN.cache_lines
        },
        ..PLAIN
    }
}

/// The firmware that reports exceptions to a debugger (`kfd_topology_set_dbg_firmware_support`).
fn debugger_firmware(gc: IpVersion) -> u32 {
    match (gc.minor, gc.revision) {
        // Counted anew where a hypervisor hands out parts of a GPU.
        (0, 1) => 459 + 32768,
        (4, 1) => 60,
        (4, 2) => 51,
        (_, _) => 459,
    }
}

fn gfx9_4_2(facts: &ChipFacts) -> Chip {
    Chip {
        xnack_per_process: true,
        mqds: on_vram(facts),
        system_memory: SystemMemory::NonCoherent,
        precise_memory_operations: true,
        // `kfd_gws_init`; both of its micro engines run the same firmware.
        wave_sync: if facts.mec_firmware >= 0x28 {
            WaveSync::Kept
        } else {
            WaveSync::None
        },
        // `kfd_dbg_has_ttmps_always_setup`
        dispatch_info_always_valid: false,
        context_save: WIDE_REGISTERS,
        cache_sizes: stated_nowhere(2, (8192, 14)),
        cache_lines: CacheLines {
            vector: 64,
            ..PLAIN.cache_lines
        },
        ..named(gfx9(facts), "gfx9.4.2", 90010)
    }
}

fn gfx9_4_3(facts: &ChipFacts) -> Chip {
    Chip {
        queues_per_process: 255,
        sdma_doorbell_granularity: 4,
        xnack_per_process: true,
        mqds: on_vram(facts),
        system_memory: if facts.is_apu {
            SystemMemory::Own
        } else {
            SystemMemory::Uncached
        },
        coherence: Coherence::Extended,
        wave_sync: WaveSync::Free,
        // `kfd_topology_set_capabilities`
        per_queue_reset: !facts.virtual_function,
        precise_memory_operations: true,
        traps_at_ends: true,
        watch_mask_bits: (7, 30),
        context_save: WIDE_REGISTERS,
        ..named(PLAIN, "gfx9.4.3", 90402)
    }
}

fn gfx9_5_0(facts: &ChipFacts) -> Chip {
    Chip {
        // `svm_range_get_pte_flags`
        system_memory: if facts.is_apu {
            SystemMemory::Own
        } else {
            SystemMemory::NonCoherent
        },
        watch_mask_bits: PLAIN.watch_mask_bits,
        // 160 KiB of LDS (`gfx_v9_4_3_get_cu_info`).
        context_save: ContextSave {
            lds_bytes_per_cu: 160 << 10,
            ..WIDE_REGISTERS
        },
        ..named(gfx9_4_3(facts), "gfx9.5.0", 90500)
    }
}

/// Graphics cores 10.1 and 10.3. What only a debugger or sysfs wants of them is not compared.
fn gfx10(facts: &ChipFacts, name: &'static str, gfx_target_version: u32) -> Chip {
    Chip {
        mqds: on_vram(facts),
        cu_pairs: true,
        context_save: ContextSave {
            vgpr_bytes_per_cu: 0x40000,
            control_stack_bytes_per_wave: 12,
            waves_per_cu: 32,
            waves_per_engine: u32::MAX,
            // `kfd_queue_ctx_save_restore_size`
            control_stack_limit: 0x7000,
            ..WIDE_REGISTERS
        },
        ..named(PLAIN, name, gfx_target_version)
    }
}

/// APUs of them: their copy engines have two queues.
fn small10(facts: &ChipFacts, name: &'static str, gfx_target_version: u32) -> Chip {
    Chip {
        sdma_queues_per_engine: 2,
        ..gfx10(facts, name, gfx_target_version)
    }
}

/// `mqd_on_vram`, since Linux 7.3 of all cores from 9.4.2 on.
fn on_vram(facts: &ChipFacts) -> MqdDomain {
    if facts.prefers_gtt {
        MqdDomain::Gtt
    } else {
        MqdDomain::Vram
    }
}

/// What most of the generation has.
const PLAIN: Chip = Chip {
    name: "gfx9",
    gfx_target_version: 90000,
    doorbell_bytes: 8,
    queues_per_process: 127,
    sdma_queues_per_engine: 8,
    sdma_doorbell_granularity: 1,
    hiq_slot: (4, 0),
    xnack_per_process: false,
    mqds: MqdDomain::Gtt,
    system_memory: SystemMemory::Uncached,
    coherence: Coherence::Plain,
    wave_sync: WaveSync::None,
    watch_points: 4,
    per_queue_reset: false,
    precise_memory_operations: false,
    debugger_firmware: true,
    dispatch_info_always_valid: true,
    traps_at_ends: false,
    // `HSA_DBG_WATCH_ADDR_MASK_LO_BIT_GFX9`, `HSA_DBG_WATCH_ADDR_MASK_HI_BIT`
    watch_mask_bits: (6, 29),
    cu_pairs: false,
    eop_buffer_bytes: 4096,
    context_save: ContextSave {
        vgpr_bytes_per_cu: 0x40000,
        ..WIDE_REGISTERS
    },
    // Its discovery table does not state line sizes (`kfd_fill_gpu_cache_info_from_gfx_config_v2`).
    cache_lines: CacheLines {
        vector: 128,
        instruction: 64,
        scalar: 64,
        second: 128,
        last: 64,
    },
    cache_sizes: None,
    // `MAKE_LDS_APP_BASE_V9`, `MAKE_SCRATCH_APP_BASE_V9` (kfd_flat_memory.c).
    apertures: ApertureBases {
        lds: 1 << 48,
        scratch: 2 << 48,
    },
};

/// Of cores with registers for matrix operations (`VGPR_SIZE_PER_CU`, kfd_queue.c).
const WIDE_REGISTERS: ContextSave = ContextSave {
    vgpr_bytes_per_cu: 0x80000,
    sgpr_bytes_per_cu: 0x4000,
    lds_bytes_per_cu: 0x10000,
    hardware_register_bytes_per_cu: 0x1000,
    control_stack_bytes_per_wave: 8,
    waves_per_cu: 40,
    waves_per_engine: 512,
    control_stack_limit: u32::MAX,
    debugger_bytes_per_wave: 32,
};
