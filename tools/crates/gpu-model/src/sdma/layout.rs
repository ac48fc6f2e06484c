// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fields of SDMA packets and of a ring's registers. [`crate::layout`] says how they are checked.

use crate::layout::Source::{Offset, Register};
use crate::layout::{layouts, places, values};

/// Packets.
const SDMA: &str = "amdgpu/vega10_sdma_pkt_open.h";
/// Register fields.
const MASKS: &str = "include/asic_reg/sdma/sdma_4_4_2_sh_mask.h";

layouts! {
    header from [Offset(SDMA, "SDMA_PKT_NOP"), Offset(SDMA, "SDMA_PKT_COPY_LINEAR"),
        Offset(SDMA, "SDMA_PKT_TIMESTAMP_GET")] after 0 {
        OP = 0: 0, 8;
        SUB_OP = 0: 8, 8;
    }
    nop from [Offset(SDMA, "SDMA_PKT_NOP")] after 0 {
        COUNT = 0: 16, 14;
    }
    copy_linear from [Offset(SDMA, "SDMA_PKT_COPY_LINEAR"),
        Offset(SDMA, "SDMA_PKT_COPY_BROADCAST_LINEAR")] after 0 {
        BROADCAST = 0: 27, 1;
        COUNT = 1: 0, 30 unlike "22 bits in vega10's header; sdma_v4_4_2.c has 2^30 bytes a \
            packet (copy_max_bytes)";
        SRC_ADDR_31_0 = 3: 0, 32;
        DST_ADDR_31_0 = 5: 0, 32;
        DST2_ADDR_31_0 = 7: 0, 32;
    }
    copy_window from [Offset(SDMA, "SDMA_PKT_COPY_LINEAR_SUBWIN")] after 0 {
        ELEMENTSIZE = 0: 29, 3;
        SRC_ADDR_31_0 = 1: 0, 32;
        SRC_X = 3: 0, 14;
        SRC_Y = 3: 16, 14;
        SRC_Z = 4: 0, 11;
        SRC_PITCH = 4: 13, 19;
        SRC_SLICE_PITCH = 5: 0, 28;
        DST_ADDR_31_0 = 6: 0, 32;
        DST_X = 8: 0, 14;
        DST_Y = 8: 16, 14;
        DST_Z = 9: 0, 11;
        DST_PITCH = 9: 13, 19;
        DST_SLICE_PITCH = 10: 0, 28;
        RECT_X = 11: 0, 14;
        RECT_Y = 11: 16, 14;
        RECT_Z = 12: 0, 11;
    }
    write from [Offset(SDMA, "SDMA_PKT_WRITE_UNTILED")] after 0 {
        DST_ADDR_31_0 = 1: 0, 32;
        COUNT = 3: 0, 20;
        DATA0 = 4: 0, 32;
    }
    indirect from [Offset(SDMA, "SDMA_PKT_INDIRECT")] after 0 {
        VMID = 0: 16, 4;
        IB_BASE_31_0 = 1: 0, 32;
        IB_SIZE = 3: 0, 20;
    }
    fence from [Offset(SDMA, "SDMA_PKT_FENCE")] after 0 {
        ADDR_31_0 = 1: 0, 32;
        DATA = 3: 0, 32;
    }
    trap from [Offset(SDMA, "SDMA_PKT_TRAP")] after 0 {
        INT_CONTEXT = 1: 0, 28;
    }
    poll_regmem from [Offset(SDMA, "SDMA_PKT_POLL_REGMEM")] after 0 {
        HDP_FLUSH = 0: 26, 1;
        FUNC = 0: 28, 3;
        MEM_POLL = 0: 31, 1;
        ADDR_31_0 = 1: 0, 32;
        ADDR_63_32 = 2: 0, 32;
        VALUE = 3: 0, 32;
        MASK = 4: 0, 32;
    }
    poll_reg_write_mem from [Offset(SDMA, "SDMA_PKT_POLL_REG_WRITE_MEM")] after 0 {
        ADDR_31_2 = 1: 2, 30;
        ADDR_31_0 = 2: 0, 32;
    }
    cond_exe from [Offset(SDMA, "SDMA_PKT_COND_EXE")] after 0 {
        ADDR_31_0 = 1: 0, 32;
        REFERENCE = 3: 0, 32;
        EXEC_COUNT = 4: 0, 14;
    }
    atomic from [Offset(SDMA, "SDMA_PKT_ATOMIC")] after 0 {
        LOOP = 0: 16, 1;
        ATOMIC_OP = 0: 25, 7;
        ADDR_31_0 = 1: 0, 32;
        SRC_DATA_31_0 = 3: 0, 32;
        CMP_DATA_31_0 = 5: 0, 32;
    }
    constant_fill from [Offset(SDMA, "SDMA_PKT_CONSTANT_FILL")] after 0 {
        FILLSIZE = 0: 30, 2;
        DST_ADDR_31_0 = 1: 0, 32;
        SRC_DATA_31_0 = 3: 0, 32;
        COUNT = 4: 0, 30 unlike "22 bits in vega10's header; sdma_v4_4_2.c has 2^30 bytes a \
            packet (fill_max_bytes)";
    }
    write_incr from [Offset(SDMA, "SDMA_PKT_WRITE_INCR")] after 0 {
        DST_ADDR_31_0 = 1: 0, 32;
        MASK_DW0 = 3: 0, 32;
        INIT_DW0 = 5: 0, 32;
        INCR_DW0 = 7: 0, 32;
        COUNT = 9: 0, 19;
    }
    ptepde_copy from [Offset(SDMA, "SDMA_PKT_PTEPDE_COPY")] after 0 {
        SRC_ADDR_31_0 = 1: 0, 32;
        DST_ADDR_31_0 = 3: 0, 32;
        MASK_DW0 = 5: 0, 32;
        COUNT = 7: 0, 19;
    }
    timestamp_get from [Offset(SDMA, "SDMA_PKT_TIMESTAMP_GET"),
        Offset(SDMA, "SDMA_PKT_TIMESTAMP_GET_GLOBAL")] after 0 {
        WRITE_ADDR_31_3 = 1: 3, 29;
    }
    srbm_write from [Offset(SDMA, "SDMA_PKT_SRBM_WRITE")] after 0 {
        BYTE_EN = 0: 28, 4;
        ADDR = 1: 0, 18;
        DATA = 2: 0, 32;
    }
    rb_cntl from [Register(MASKS, "SDMA_RLC0_RB_CNTL"), Register(MASKS, "SDMA_GFX_RB_CNTL")]
        after 0 {
        RB_ENABLE = 0: 0, 1;
        RB_SIZE = 0: 1, 5;
        RPTR_WRITEBACK_ENABLE = 0: 12, 1;
        RB_VMID = 0: 24, 4;
    }
    doorbell from [Register(MASKS, "SDMA_RLC0_DOORBELL"), Register(MASKS, "SDMA_GFX_DOORBELL")]
        after 0 {
        ENABLE = 0: 28, 1;
    }
    doorbell_offset from [Register(MASKS, "SDMA_RLC0_DOORBELL_OFFSET"),
        Register(MASKS, "SDMA_GFX_DOORBELL_OFFSET")] after 0 {
        OFFSET = 0: 2, 26;
    }
    context_status from [Register(MASKS, "SDMA_RLC0_CONTEXT_STATUS")] after 0 {
        SELECTED = 0: 0, 1;
        IDLE = 0: 2, 1;
    }
    minor_ptr_update from [Register(MASKS, "SDMA_RLC0_MINOR_PTR_UPDATE")] after 0 {
        ENABLE = 0: 0, 1;
    }
    cntl from [Register(MASKS, "SDMA_CNTL")] after 0 {
        TRAP_ENABLE = 0: 0, 1;
    }
    f32_cntl from [Register(MASKS, "SDMA_F32_CNTL")] after 0 {
        HALT = 0: 0, 1;
    }
    status_reg from [Register(MASKS, "SDMA_STATUS_REG")] after 0 {
        IDLE = 0: 0, 1;
    }
}

places! {
    /// A ring's registers, from its RB_CNTL on.
    context, CONTEXT:
    RB_CNTL = 0x00;
    RB_BASE = 0x01;
    RB_RPTR = 0x03;
    RB_RPTR_HI = 0x04;
    RB_WPTR = 0x05;
    RB_WPTR_HI = 0x06;
    RB_RPTR_ADDR_HI = 0x08;
    RB_RPTR_ADDR_LO = 0x09;
    CONTEXT_STATUS = 0x11;
    DOORBELL = 0x12;
    DOORBELL_OFFSET = 0x2b;
    MINOR_PTR_UPDATE = 0x35;
}

values! {
    /// Registers, from an engine's first one.
    reg: u32 from "include/asic_reg/sdma/sdma_4_4_2_offset.h" "regSDMA_" {
        F32_CNTL = 0x02;
        STATUS_REG = 0x25;
        CNTL = 0x6d;
        /// The first register of each ring.
        GFX_RB_CNTL = 0x80;
        PAGE_RB_CNTL = 0xd8;
        RLC0_RB_CNTL = 0x130;
        RLC1_RB_CNTL = 0x188;
    }
    /// Those of SDMA 4.4.0 that are elsewhere.
    reg_4_4_0: u32 from "include/asic_reg/sdma/sdma_4_4_0_offset.h" "regSDMA0_" {
        CNTL = 0x1c;
        F32_CNTL = 0x2a;
    }
    op: u32 from "amdgpu/vega10_sdma_pkt_open.h" "SDMA_OP_" {
        NOP = 0;
        COPY = 1;
        WRITE = 2;
        INDIRECT = 4;
        FENCE = 5;
        TRAP = 6;
        POLL_REGMEM = 8;
        COND_EXE = 9;
        ATOMIC = 10;
        CONST_FILL = 11;
        PTEPDE = 12;
        TIMESTAMP = 13;
        SRBM_WRITE = 14;
        PRE_EXE = 15;
        DUMMY_TRAP = 16;
    }
    sub: u32 from "amdgpu/vega10_sdma_pkt_open.h" "SDMA_SUBOP_" {
        COPY_LINEAR = 0;
        COPY_LINEAR_SUB_WIND = 4;
        WRITE_LINEAR = 0;
        POLL_REG_WRITE_MEM = 1;
        PTEPDE_GEN = 0;
        PTEPDE_COPY = 1;
        TIMESTAMP_SET = 0;
    }
    source: u8 from "include/ivsrcid/sdma0/irqsrcs_sdma0_4_0.h" "SDMA0_4_0__SRCID__" {
        SDMA_TRAP = 224;
    }
}
