// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fields of PM4 packets and of the registers that an MQD holds, and their values. Dwords of
//! packets are counted after the header. [`crate::layout`] says how they are checked.

use crate::layout::Source::{Place, Register, Struct};
use crate::layout::{layouts, values};

/// Packets of amdgpu.
const SOC15D: &str = "amdgpu/soc15d.h";
/// Packets of amdkfd.
const KFD: &str = "amdkfd/kfd_pm4_headers_ai.h";
/// The one that is different on Aldebaran and MI300.
const ALDEBARAN: &str = "amdkfd/kfd_pm4_headers_aldebaran.h";
/// Register fields.
const GC: &str = "include/asic_reg/gc/gc_9_4_3_sh_mask.h";

layouts! {
    set_resources from [Struct(KFD, "pm4_mes_set_resources"),
        Place(SOC15D, "PACKET3_SET_RESOURCES")] after 1 {
        VMID_MASK = 0: 0, 16;
        ENB_XNACK_RETRY_DISABLE_CHECK = 0: 28, 1;
        QUEUE_TYPE = 0: 29, 3;
        QUEUE_MASK_LO = 1: 0, 32;
    }
    run_list from [Struct(KFD, "pm4_mes_runlist")] after 1 {
        IB_BASE_LO = 0: 2, 30;
        IB_SIZE = 2: 0, 20;
        VALID = 2: 23, 1;
    }
    map_process from [Struct(KFD, "pm4_mes_map_process"),
        Struct(ALDEBARAN, "pm4_mes_map_process_aldebaran")] after 1 {
        PASID = 0: 0, 16;
        SINGLE_MEMOPS = 0: 16, 1;
        EXEC_CLEANER_SHADER = 0: 17, 1;
        VM_CONTEXT_PAGE_TABLE_BASE_ADDR_LO32 = 1: 0, 32;
        SH_MEM_BASES = 3: 0, 32;
        SH_MEM_CONFIG = 4: 0, 32;
        SQ_SHADER_TBA_LO = 5: 0, 32;
        SQ_SHADER_TMA_LO = 7: 0, 32;
        NUM_GWS = 12: 0, 7;
        SPI_GDBG_PER_VMID_CNTL = 13: 0, 32;
        TCP_WATCH_CNTL = 14: 0, 32;
    }
    map_queues from [Struct(KFD, "pm4_mes_map_queues"),
        Place(SOC15D, "PACKET3_MAP_QUEUES")] after 1 {
        EXTENDED_ENGINE_SEL = 0: 2, 2;
        QUEUE = 0: 13, 3;
        PIPE = 0: 16, 2;
        ME = 0: 18, 3;
        QUEUE_TYPE = 0: 21, 3;
        ENGINE_SEL = 0: 26, 3;
        DOORBELL_OFFSET = 1: 2, 26;
        MQD_ADDR_LO = 2: 0, 32;
        WPTR_ADDR_LO = 4: 0, 32;
    }
    unmap_queues from [Struct(KFD, "pm4_mes_unmap_queues"),
        Place(SOC15D, "PACKET3_UNMAP_QUEUES")] after 1 {
        ACTION = 0: 0, 2;
        QUEUE_SEL = 0: 4, 2;
        NUM_QUEUES = 0: 29, 3;
        PASID = 1: 0, 16;
        DOORBELL_OFFSET0 = 1: 2, 26;
        DOORBELL_OFFSET1 = 2: 2, 26;
        DOORBELL_OFFSET2 = 3: 2, 26;
        DOORBELL_OFFSET3 = 4: 2, 26;
    }
    query_status from [Struct(KFD, "pm4_mes_query_status"),
        Place(SOC15D, "PACKET3_QUERY_STATUS")] after 1 {
        CONTEXT_ID = 0: 0, 28;
        COMMAND = 0: 30, 2;
        ADDR_LO = 2: 0, 32;
        DATA_LO = 4: 0, 32;
    }
    invalidate_tlbs from [Place(SOC15D, "PACKET3_INVALIDATE_TLBS")] after 1 {
        DST_SEL = 0: 0, 4;
        ALL_HUB = 0: 4, 1;
        PASID = 0: 5, 16;
    }
    write_data from [Struct(KFD, "pm4_mec_write_data_mmio"),
        Place(SOC15D, "PACKET3_WRITE_DATA")] after 1 {
        DST_SEL = 0: 8, 4;
        ADDR_INCR = 0: 16, 1;
        DST_MMREG_ADDR = 1: 0, 18;
        DST_MEM_ADDR_LO = 1: 2, 30;
    }
    copy_data from [Place(SOC15D, "PACKET3_COPY_DATA")] after 1 {
        SRC_SEL = 0: 0, 4;
        DST_SEL = 0: 8, 4;
        COUNT_SEL = 0: 16, 1;
        SRC_REG_OFFSET = 1: 0, 18;
        SRC_32B_ADDR_LO = 1: 2, 30;
        SRC_64B_ADDR_LO = 1: 3, 29;
        DST_REG_OFFSET = 3: 0, 18;
        DST_32B_ADDR_LO = 3: 2, 30;
        DST_64B_ADDR_LO = 3: 3, 29;
    }
    wait_reg_mem from [Place(SOC15D, "PACKET3_WAIT_REG_MEM")] after 1 {
        FUNCTION = 0: 0, 3;
        MEM_SPACE = 0: 4, 2;
        OPERATION = 0: 6, 2;
        REG_POLL_ADDR = 1: 0, 18;
        MEM_POLL_ADDR_LO = 1: 2, 30;
        REG_WRITE_ADDR1 = 1: 0, 18;
        REG_WRITE_ADDR2 = 2: 0, 18;
    }
    release_mem from [Struct(KFD, "pm4_mec_release_mem")] after 1 {
        TC_WB_ACTION_ENA = 0: 15, 1;
        TCL1_ACTION_ENA = 0: 16, 1;
        INT_SEL = 1: 24, 3;
        DATA_SEL = 1: 29, 3;
        ADDRESS_LO_32B = 2: 2, 30;
        ADDRESS_LO_64B = 2: 3, 29;
        DATA_LO = 4: 0, 32;
        INT_CTXID = 6: 0, 32;
    }
    acquire_mem from [Place(SOC15D, "PACKET3_ACQUIRE_MEM_CP_COHER_CNTL")] after 1 {
        TC_WB_ACTION_ENA = 0: 18, 1;
        TCL1_ACTION_ENA = 0: 22, 1;
        SH_KCACHE_ACTION_ENA = 0: 27, 1;
        SH_ICACHE_ACTION_ENA = 0: 29, 1;
    }
    atomic_mem from [Place(SOC15D, "PACKET3_ATOMIC_MEM")] after 1 {
        ATOMIC = 0: 0, 7 unlike "TC_OP (vega10_enum.h) has 7 bits, and so has this field in \
            AMD's PAL (gfx9_f32_mec_pm4_packets.h)";
        COMMAND = 0: 8, 4;
    }
    dma_data from [Place(SOC15D, "PACKET3_DMA_DATA")] after 1 {
        DST_SEL = 0: 20, 2;
        SRC_SEL = 0: 29, 2;
    }
    indirect_buffer from [Place(SOC15D, "PACKET3_INDIRECT_BUFFER")] after 1 {
        IB_BASE_LO = 0: 2, 30;
        IB_SIZE = 2: 0, 20;
        CHAIN = 2: 20, 1;
        VMID = 2: 24, 4;
    }
    pred_exec from [Place(SOC15D, "PACKET3_PRED_EXEC")] after 1 {
        EXEC_COUNT = 0: 0, 14;
        VIRTUAL_XCC_ID_SELECT = 0: 24, 8;
    }
    set_sh_reg from [Place(SOC15D, "PACKET3_SET_SH_REG")] after 1 {
        REG_OFFSET = 0: 0, 16;
    }
    set_uconfig_reg from [Place(SOC15D, "PACKET3_SET_UCONFIG_REG")] after 1 {
        REG_OFFSET = 0: 0, 16;
    }
    /// Of MQDs and slots.
    vmid from [Register(GC, "CP_HQD_VMID")] after 0 {
        VMID = 0: 0, 4;
    }
    pq_control from [Register(GC, "CP_HQD_PQ_CONTROL")] after 0 {
        QUEUE_SIZE = 0: 0, 6;
        NO_UPDATE_RPTR = 0: 27, 1;
        PRIV_STATE = 0: 30, 1;
    }
    doorbell_control from [Register(GC, "CP_HQD_PQ_DOORBELL_CONTROL")] after 0 {
        DOORBELL_OFFSET = 0: 2, 26;
        DOORBELL_EN = 0: 30, 1;
    }
    rptr_report from [Register(GC, "CP_HQD_PQ_RPTR_REPORT_ADDR")] after 0 {
        RPTR_REPORT_ADDR = 0: 2, 30;
    }
    wptr_poll from [Register(GC, "CP_HQD_PQ_WPTR_POLL_ADDR")] after 0 {
        WPTR_ADDR = 0: 3, 29;
    }
    grbm_gfx_cntl from [Register(GC, "GRBM_GFX_CNTL")] after 0 {
        PIPEID = 0: 0, 2;
        MEID = 0: 2, 2;
        VMID = 0: 4, 4;
        QUEUEID = 0: 8, 3;
    }
    sh_mem_config from [Register(GC, "SH_MEM_CONFIG")] after 0 {
        ALIGNMENT_MODE = 0: 3, 2;
        F8_MODE = 0: 8, 1;
    }
    spi_gdbg from [Register(GC, "SPI_GDBG_PER_VMID_CNTL")] after 0 {
        STALL_VMID = 0: 0, 1;
        LAUNCH_MODE = 0: 1, 2;
        TRAP_EN = 0: 3, 1;
        EXCP_EN = 0: 4, 9;
        EXCP_REPLACE = 0: 13, 1;
        TRAP_ON_START = 0: 14, 1;
        TRAP_ON_END = 0: 15, 1;
    }
    tcp_watch_addr_h from [Register(GC, "TCP_WATCH0_ADDR_H"), Register(GC, "TCP_WATCH3_ADDR_H")]
        after 0 {
        ADDR = 0: 0, 16;
    }
    tcp_watch_addr_l from [Register(GC, "TCP_WATCH0_ADDR_L"), Register(GC, "TCP_WATCH3_ADDR_L")]
        after 0 {
        ADDR = 0: 7, 25;
    }
    tcp_watch_cntl from [Register(GC, "TCP_WATCH0_CNTL"), Register(GC, "TCP_WATCH3_CNTL")]
        after 0 {
        MASK = 0: 0, 24;
        VMID = 0: 24, 4;
        MODE = 0: 29, 2;
        VALID = 0: 31, 1;
    }
    sq_cmd from [Register(GC, "SQ_CMD")] after 0 {
        CMD = 0: 0, 3;
        MODE = 0: 4, 3;
        CHECK_VMID = 0: 7, 1;
        DATA = 0: 8, 4;
        WAVE_ID = 0: 16, 4;
        SIMD_ID = 0: 20, 2;
        QUEUE_ID = 0: 24, 3;
        VM_ID = 0: 28, 4;
    }
    dispatch_initiator from [Register(GC, "COMPUTE_DISPATCH_INITIATOR")] after 0 {
        COMPUTE_SHADER_EN = 0: 0, 1;
        PARTIAL_TG_EN = 0: 1, 1;
        FORCE_START_AT_000 = 0: 2, 1;
        USE_THREAD_DIMENSIONS = 0: 5, 1;
    }
    num_thread from [Register(GC, "COMPUTE_NUM_THREAD_X"), Register(GC, "COMPUTE_NUM_THREAD_Y"),
        Register(GC, "COMPUTE_NUM_THREAD_Z")] after 0 {
        NUM_THREAD_FULL = 0: 0, 16;
        NUM_THREAD_PARTIAL = 0: 16, 16;
    }
    pgm_rsrc2 from [Register(GC, "COMPUTE_PGM_RSRC2")] after 0 {
        TRAP_PRESENT = 0: 6, 1;
        LDS_SIZE = 0: 15, 9;
    }
    tmpring_size from [Register(GC, "COMPUTE_TMPRING_SIZE")] after 0 {
        WAVES = 0: 0, 12;
        WAVESIZE = 0: 12, 13;
    }
    /// The first context word of an interrupt by a wave.
    sq_wave_ctxid from [Register("amdkfd/kfd_int_process_v9.c", "SQ_INTERRUPT_WORD_WAVE_CTXID")]
        after 0 {
        DATA = 0: 0, 12;
        PRIV = 0: 13, 1;
        ENCODING = 0: 26, 2;
    }
}

values! {
    set_resources_queue_type: u32 from "amdkfd/kfd_pm4_headers_ai.h"
        "queue_type__mes_set_resources__" {
        HSA_INTERFACE_QUEUE_HIQ = 1;
    }
    map_queues_queue_type: u32 from "amdkfd/kfd_pm4_headers_ai.h" "queue_type__mes_map_queues__" {
        NORMAL_LATENCY_STATIC_QUEUE_VI = 2;
    }
    map_queues_engine_sel: u32 from "amdkfd/kfd_pm4_headers_ai.h" "engine_sel__mes_map_queues__" {
        SDMA0_VI = 2;
        SDMA1_VI = 3;
    }
    map_queues_extended_engine_sel: u32 from "amdkfd/kfd_pm4_headers_ai.h"
        "extended_engine_sel__mes_map_queues__" {
        SDMA0_TO_7_SEL = 1;
        SDMA8_TO_15_SEL = 2;
    }
    sh_mem_alignment_mode: u32 from "include/vega10_enum.h" "SH_MEM_ALIGNMENT_MODE_" {
        UNALIGNED = 3;
    }
    unmap_queues_action: u32 from "amdkfd/kfd_pm4_headers_ai.h" "action__mes_unmap_queues__" {
        RESET_QUEUES = 1;
        RESERVED = 3;
    }
    unmap_queues_queue_sel: u32 from "amdkfd/kfd_pm4_headers_ai.h"
        "queue_sel__mes_unmap_queues__" {
        PERFORM_REQUEST_ON_SPECIFIED_QUEUES = 0;
        PERFORM_REQUEST_ON_PASID_QUEUES = 1;
        UNMAP_ALL_QUEUES = 2;
    }
    query_status_command: u32 from "amdkfd/kfd_pm4_headers_ai.h" "command__mes_query_status__" {
        INTERRUPT_ONLY = 0;
        FENCE_WAIT_FOR_WRITE_ACK_SEND_INTERRUPT = 3;
    }
    write_data_dst_sel: u32 from "amdgpu/soc15d.h" "PACKET3_WRITE_DATA__DST_SEL__" {
        MEM_MAPPED_REGISTER = 0;
        TC_L2 = 2;
        MEMORY = 5;
    }
    copy_data_src_sel: u32 from "amdgpu/soc15d.h" "PACKET3_COPY_DATA__SRC_SEL__" {
        MEM_MAPPED_REGISTER = 0;
        MEMORY = 1;
        TC_L2 = 2;
        PERFCOUNTERS = 4;
        IMMEDIATE_DATA = 5;
        GPU_CLOCK_COUNT = 9;
    }
    copy_data_dst_sel: u32 from "amdgpu/soc15d.h" "PACKET3_COPY_DATA__DST_SEL__" {
        MEM_MAPPED_REGISTER = 0;
        TC_L2 = 2;
        PERFCOUNTERS = 4;
        MEMORY = 5;
    }
    wait_reg_mem_mem_space: u32 from "amdgpu/soc15d.h" "PACKET3_WAIT_REG_MEM__MEM_SPACE__" {
        MEMORY_SPACE = 1;
    }
    wait_reg_mem_operation: u32 from "amdgpu/soc15d.h" "PACKET3_WAIT_REG_MEM__OPERATION__" {
        WR_WAIT_WR_REG = 1;
    }
    release_mem_int_sel: u32 from "amdkfd/kfd_pm4_headers_ai.h" "int_sel__mec_release_mem__" {
        SEND_INTERRUPT_ONLY = 1;
        SEND_INTERRUPT_AFTER_WRITE_CONFIRM = 2;
        UNCONDITIONALLY_SEND_INT_CTXID = 4;
        CONDITIONALLY_SEND_INT_CTXID_BASED_ON_32_BIT_COMPARE = 5;
        CONDITIONALLY_SEND_INT_CTXID_BASED_ON_64_BIT_COMPARE = 6;
    }
    release_mem_data_sel: u32 from "amdkfd/kfd_pm4_headers_ai.h" "data_sel__mec_release_mem__" {
        NONE = 0;
        SEND_32_BIT_LOW = 1;
        SEND_64_BIT_DATA = 2;
        SEND_GPU_CLOCK_COUNTER = 3;
        SEND_CP_PERFCOUNTER_HI_LO = 4;
    }
    atomic_mem_command: u32 from "amdgpu/soc15d.h" "PACKET3_ATOMIC_MEM__COMMAND__" {
        LOOP_UNTIL_COMPARE_SATISFIED = 1;
    }
    /// What register numbers of packets are counted from.
    register_space: u32 from "amdgpu/soc15d.h" "PACKET3_SET_" {
        CONFIG_REG_START = 0x2000;
        SH_REG_START = 0x2c00;
        UCONFIG_REG_START = 0xc000;
    }
    /// Registers, from the beginning of segment 0.
    compute: usize from "include/asic_reg/gc/gc_9_4_3_offset.h" "regCOMPUTE_" {
        DISPATCH_INITIATOR = 0xe00;
        START_X = 0xe04;
        NUM_THREAD_X = 0xe07;
        PGM_LO = 0xe0c;
        DISPATCH_SCRATCH_BASE_LO = 0xe10;
        PGM_RSRC1 = 0xe12;
        PGM_RSRC2 = 0xe13;
        TMPRING_SIZE = 0xe18;
        PGM_RSRC3 = 0xe2d;
        USER_DATA_0 = 0xe40;
    }
    source: u8 from "include/ivsrcid/gfx/irqsrcs_gfx_9_0.h" "GFX_9_0__SRCID__" {
        CP_EOP_INTERRUPT = 181;
        CP_BAD_OPCODE_ERROR = 183;
        CP_PRIV_REG_FAULT = 184;
        CP_COMPUTE_QUERY_STATUS = 199;
        SQ_INTERRUPT_ID = 239;
    }
}
