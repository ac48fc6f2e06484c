// SPDX-License-Identifier: GPL-2.0-only

//! AMD's own headers, asked whether our layouts are theirs. Checked when the module is built;
//! nothing here runs.

use super::{
    mqd,
    sdma, //
};
use crate::oracle::{
    pm4_mec_write_data_mmio,
    pm4_mes_map_process,
    pm4_mes_map_queues,
    pm4_mes_query_status,
    pm4_mes_runlist,
    pm4_mes_set_resources,
    pm4_mes_unmap_queues,
    v9_mqd,
    v9_sdma_mqd, //
};
use core::mem::offset_of;
use kernel::prelude::*;

/// Our index of a word against the header's offset of the field of that name.
macro_rules! same_offset {
    ($structure:ident: $($dword:expr => $field:ident),* $(,)?) => {
        $(static_assert!($dword * size_of::<u32>() == offset_of!($structure, $field));)*
    };
}

static_assert!(mqd::BYTES == size_of::<v9_mqd>());
static_assert!(sdma::BYTES == size_of::<v9_sdma_mqd>());

same_offset! { v9_mqd:
    mqd::dword::HEADER => header,
    mqd::dword::COMPUTE_PIPELINESTAT_ENABLE => compute_pipelinestat_enable,
    mqd::dword::COMPUTE_PERFCOUNT_ENABLE => compute_perfcount_enable,
    mqd::dword::COMPUTE_PGM_RSRC2 => compute_pgm_rsrc2,
    mqd::dword::COMPUTE_RESOURCE_LIMITS => compute_resource_limits,
    mqd::dword::COMPUTE_STATIC_THREAD_MGMT_SE[0] => compute_static_thread_mgmt_se0,
    mqd::dword::COMPUTE_STATIC_THREAD_MGMT_SE[1] => compute_static_thread_mgmt_se1,
    mqd::dword::COMPUTE_STATIC_THREAD_MGMT_SE[2] => compute_static_thread_mgmt_se2,
    mqd::dword::COMPUTE_STATIC_THREAD_MGMT_SE[3] => compute_static_thread_mgmt_se3,
    mqd::dword::COMPUTE_STATIC_THREAD_MGMT_SE[4] => __bindgen_anon_1,
    mqd::dword::COMPUTE_CURRENT_LOGIC_XCC_ID => __bindgen_anon_1,
    mqd::dword::CP_MQD_BASE_ADDR_LO => cp_mqd_base_addr_lo,
    mqd::dword::CP_HQD_VMID => cp_hqd_vmid,
    mqd::dword::CP_HQD_PERSISTENT_STATE => cp_hqd_persistent_state,
    mqd::dword::CP_HQD_PIPE_PRIORITY => cp_hqd_pipe_priority,
    mqd::dword::CP_HQD_QUANTUM => cp_hqd_quantum,
    mqd::dword::CP_HQD_PQ_BASE_LO => cp_hqd_pq_base_lo,
    mqd::dword::CP_HQD_PQ_RPTR_REPORT_ADDR_LO => cp_hqd_pq_rptr_report_addr_lo,
    mqd::dword::CP_HQD_PQ_WPTR_POLL_ADDR_LO => cp_hqd_pq_wptr_poll_addr_lo,
    mqd::dword::CP_HQD_PQ_DOORBELL_CONTROL => cp_hqd_pq_doorbell_control,
    mqd::dword::CP_HQD_PQ_CONTROL => cp_hqd_pq_control,
    mqd::dword::CP_HQD_IB_CONTROL => cp_hqd_ib_control,
    mqd::dword::CP_HQD_IQ_TIMER => cp_hqd_iq_timer,
    mqd::dword::CP_HQD_HQ_STATUS0 => cp_hqd_hq_status0,
    mqd::dword::CP_MQD_CONTROL => cp_mqd_control,
    mqd::dword::CP_HQD_EOP_BASE_ADDR_LO => cp_hqd_eop_base_addr_lo,
    mqd::dword::CP_HQD_EOP_CONTROL => cp_hqd_eop_control,
    mqd::dword::CP_HQD_CTX_SAVE_BASE_ADDR_LO => cp_hqd_ctx_save_base_addr_lo,
    mqd::dword::CP_HQD_CTX_SAVE_CONTROL => cp_hqd_ctx_save_control,
    mqd::dword::CP_HQD_CNTL_STACK_OFFSET => cp_hqd_cntl_stack_offset,
    mqd::dword::CP_HQD_CNTL_STACK_SIZE => cp_hqd_cntl_stack_size,
    mqd::dword::CP_HQD_WG_STATE_OFFSET => cp_hqd_wg_state_offset,
    mqd::dword::CP_HQD_CTX_SAVE_SIZE => cp_hqd_ctx_save_size,
    mqd::dword::CP_HQD_AQL_CONTROL => cp_hqd_aql_control,
    mqd::dword::PM4_TARGET_XCC_IN_XCP => __bindgen_anon_2,
    mqd::dword::QUEUE_DOORBELL_ID0 => queue_doorbell_id0,
}
// The two words of the second union follow each other.
static_assert!(mqd::dword::CP_MQD_STRIDE_SIZE == mqd::dword::PM4_TARGET_XCC_IN_XCP + 1);

same_offset! { v9_sdma_mqd:
    sdma::dword::SDMAX_RLCX_RB_CNTL => sdmax_rlcx_rb_cntl,
    sdma::dword::SDMAX_RLCX_RB_BASE => sdmax_rlcx_rb_base,
    sdma::dword::SDMAX_RLCX_RB_BASE_HI => sdmax_rlcx_rb_base_hi,
    sdma::dword::SDMAX_RLCX_RB_RPTR_ADDR_HI => sdmax_rlcx_rb_rptr_addr_hi,
    sdma::dword::SDMAX_RLCX_RB_RPTR_ADDR_LO => sdmax_rlcx_rb_rptr_addr_lo,
    sdma::dword::SDMAX_RLCX_IB_CNTL => sdmax_rlcx_ib_cntl,
    sdma::dword::SDMAX_RLCX_DOORBELL_OFFSET => sdmax_rlcx_doorbell_offset,
    sdma::dword::SDMAX_RLCX_DUMMY_REG => sdmax_rlcx_dummy_reg,
    sdma::dword::SDMA_ENGINE_ID => sdma_engine_id,
    sdma::dword::SDMA_QUEUE_ID => sdma_queue_id,
}

// MAP_PROCESS has five words more, for debuggers, than the form that this header has.
static_assert!(size_of::<pm4_mes_set_resources>() == 4 * 8);
static_assert!(size_of::<pm4_mes_map_process>() == 4 * (21 - 5));
static_assert!(size_of::<pm4_mes_map_queues>() == 4 * 7);
static_assert!(size_of::<pm4_mes_runlist>() == 4 * 4);
static_assert!(size_of::<pm4_mes_unmap_queues>() == 4 * 6);
static_assert!(size_of::<pm4_mes_query_status>() == 4 * 7);
static_assert!(size_of::<pm4_mec_write_data_mmio>() == 4 * 5);
