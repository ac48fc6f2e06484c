// SPDX-License-Identifier: GPL-2.0-only

//! The numbers and policies of graphics core 9.4.3; [`Chip`] says what each means.

use crate::gfx::{
    ApertureBases,
    CacheLines,
    Chip,
    ChipFacts,
    ContextSave,
    MqdDomain,
    SystemMemory, //
};

/// The chip with these facts.
pub(super) fn chip(facts: &ChipFacts) -> Chip {
    Chip {
        // `mqd_on_vram`
        mqds: if facts.prefers_gtt {
            MqdDomain::Gtt
        } else {
            MqdDomain::Vram
        },
        system_memory: if facts.is_apu {
            SystemMemory::Own
        } else {
            SystemMemory::Uncached
        },
        // `kfd_topology_set_capabilities`
        per_queue_reset: !facts.virtual_function,
        ..BARE_METAL
    }
}

/// A whole GPU with memory of its own.
const BARE_METAL: Chip = Chip {
    name: "gfx9.4.3",
    gfx_target_version: 90402,
    doorbell_bytes: 8,
    queues_per_process: 255,
    sdma_queues_per_engine: 8,
    sdma_doorbell_granularity: 4,
    hiq_slot: (4, 0),
    xnack_per_process: true,
    mqds: MqdDomain::Vram,
    system_memory: SystemMemory::Uncached,
    watch_points: 4,
    per_queue_reset: true,
    precise_memory_operations: true,
    debugger_firmware: true,
    dispatch_info_always_valid: true,
    watch_mask_bits: (7, 30),
    eop_buffer_bytes: 4096,
    context_save: ContextSave {
        vgpr_bytes_per_cu: 0x80000,
        sgpr_bytes_per_cu: 0x4000,
        lds_bytes_per_cu: 0x10000,
        hardware_register_bytes_per_cu: 0x1000,
        control_stack_bytes_per_wave: 8,
        waves_per_cu: 40,
        waves_per_engine: 512,
        debugger_bytes_per_wave: 32,
    },
    // Its discovery table does not state line sizes (`kfd_fill_gpu_cache_info_from_gfx_config_v2`).
    cache_lines: CacheLines {
        vector: 128,
        instruction: 64,
        scalar: 64,
        second: 128,
        last: 64,
    },
    // `MAKE_LDS_APP_BASE_V9`, `MAKE_SCRATCH_APP_BASE_V9` (kfd_flat_memory.c).
    apertures: ApertureBases {
        lds: 1 << 48,
        scratch: 2 << 48,
    },
};
