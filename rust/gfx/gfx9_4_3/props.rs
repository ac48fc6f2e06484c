// SPDX-License-Identifier: GPL-2.0-only

//! What graphics core 9.4.3 has, as data. Constants only; `Features` and `ContextSave` say what
//! each number means.

use crate::gfx::{
    ContextSave,
    Features, //
};

/// The features of this generation.
pub(super) const FEATURES: Features = Features {
    gfx_target_version: 90402,
    doorbell_bytes: 8,
    queues_per_process: 255,
    sdma_queues_per_engine: 8,
    sdma_doorbell_granularity: 4,
    hiq_slot: (4, 0),
    xnack_per_process: true,
    nop: super::pm4::NOP,
    mqds_in_vram: true,
    watch_points: 4,
    per_queue_reset: true,
    precise_memory_operations: true,
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
};
