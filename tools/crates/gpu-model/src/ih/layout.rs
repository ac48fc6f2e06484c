// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Interrupt entries: eight dwords, and the clients and sources that the model names.
//! [`crate::layout`] says how they are checked.

use crate::layout::Source::{Entry, Register};
use crate::layout::{layouts, values};

layouts! {
    entry from [Entry("amdkfd/soc15_int.h", "SOC15")] after 0 {
        CLIENT_ID = 0: 0, 8;
        SOURCE_ID = 0: 8, 8;
        RING_ID = 0: 16, 8;
        VMID = 0: 24, 4;
        VMID_TYPE = 0: 31, 1;
        PASID = 3: 0, 16;
        NODEID = 3: 16, 8;
        CONTEXT_ID0 = 4: 0, 32;
        CONTEXT_ID1 = 5: 0, 32;
        CONTEXT_ID2 = 6: 0, 32;
        CONTEXT_ID3 = 7: 0, 32;
    }
    rb_cntl from [Register("include/asic_reg/oss/osssys_4_4_2_sh_mask.h", "IH_RB_CNTL")] after 0 {
        RB_ENABLE = 0: 0, 1;
        RB_SIZE = 0: 1, 5;
        WPTR_WRITEBACK_ENABLE = 0: 8, 1;
        WPTR_OVERFLOW_ENABLE = 0: 16, 1;
        ENABLE_INTR = 0: 17, 1;
        MC_SPACE = 0: 28, 3;
        WPTR_OVERFLOW_CLEAR = 0: 31, 1;
    }
    rb_wptr from [Register("include/asic_reg/oss/osssys_4_4_2_sh_mask.h", "IH_RB_WPTR")] after 0 {
        RB_OVERFLOW = 0: 0, 1;
    }
    doorbell_rptr from [
        Register("include/asic_reg/oss/osssys_4_4_2_sh_mask.h", "IH_DOORBELL_RPTR"),
        Register("include/asic_reg/oss/osssys_4_4_2_sh_mask.h", "IH_DOORBELL_RPTR_RING1"),
        Register("include/asic_reg/oss/osssys_4_4_2_sh_mask.h", "IH_DOORBELL_RETRY_CAM")] after 0 {
        OFFSET = 0: 0, 26;
        ENABLE = 0: 28, 1;
    }
    retry_int_cam_cntl from [
        Register("include/asic_reg/oss/osssys_4_4_2_sh_mask.h", "IH_RETRY_INT_CAM_CNTL")] after 0 {
        ENABLE = 0: 16, 1;
    }
}

values! {
    /// Who raised an interrupt.
    client: u8 from "include/soc15_ih_clientid.h" "SOC15_IH_CLIENTID_" {
        SDMA0 = 0x08;
        SDMA1 = 0x09;
        SDMA2 = 0x01;
        SDMA3 = 0x04;
        SDMA4 = 0x05;
        /// Waves of the first shader engine.
        SE0SH = 0x0a;
        /// The multimedia hub's page-table walker.
        VMC = 0x12;
        GRBM_CP = 0x14;
        /// A graphics hub's page-table walker.
        UTCL2 = 0x1b;
    }
    vmc_source: u8 from "include/ivsrcid/vmc/irqsrcs_vmc_1_0.h" "VMC_1_0__SRCID__" {
        VM_FAULT = 0;
    }
    /// The second context word of a fault.
    fault_data: u32 from "amdgpu/amdgpu_gmc.h" "AMDGPU_GMC9_FAULT_SOURCE_DATA_" {
        RETRY = 0x80;
        WRITE = 0x20;
    }
}
