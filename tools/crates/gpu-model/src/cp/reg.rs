// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The command processor's registers: their names, and where packets find them. What they do is in
//! [`super::registers`].

use crate::registers;
use crate::regs::RegisterSet;

registers! {
    /// The command processor's, the shader launcher's and the shaders' registers of one XCC. Those
    /// that [`super::registers`] does nothing with are only stored.
    pub enum CpRegister from "gc/gc_9_4_3" {
        GRBM_STATUS2 = 0 @ 0x0002;
        GRBM_STATUS = 0 @ 0x0004;
        GRBM_SOFT_RESET = 0 @ 0x0008;
        GRBM_GFX_CNTL = 0 @ 0x0022;
        CP_CPC_STATUS = 0 @ 0x0084;
        CP_CPC_BUSY_STAT = 0 @ 0x0085;
        CP_CPC_STALLED_STAT1 = 0 @ 0x0086;
        CP_CPF_STATUS = 0 @ 0x0087;
        CP_CPF_BUSY_STAT = 0 @ 0x0088;
        CP_CPF_STALLED_STAT1 = 0 @ 0x0089;
        CP_MEC_CNTL = 0 @ 0x008d;
        /// Last packets of each micro engine, for the driver's dump after a hang.
        CP_MEC_ME1_HEADER_DUMP = 0 @ 0x008e;
        CP_MEC_ME2_HEADER_DUMP = 0 @ 0x008f;
        CP_STAT = 0 @ 0x01a0;
        CP_RB_WPTR_POLL_CNTL = 0 @ 0x01c2;
        SQ_CONFIG = 0 @ 0x0300;
        /// Banked by GRBM_GFX_CNTL.VMID.
        SH_MEM_BASES = 0 @ 0x030a;
        SQ_TIMEOUT_CONFIG = 0 @ 0x030b;
        /// Banked by GRBM_GFX_CNTL.VMID.
        SH_MEM_CONFIG = 0 @ 0x030d;
        /// Banked by GRBM_GFX_CNTL.VMID: SQ_SHADER_TBA_LO, _HI, SQ_SHADER_TMA_LO, _HI.
        SQ_SHADER_TBA_LO[4] = 0 @ 0x031c;
        SQ_IND_INDEX = 0 @ 0x0378;
        SQ_IND_DATA = 0 @ 0x0379;
        SQ_CMD = 0 @ 0x037b;
        SPI_CSQ_WF_ACTIVE_STATUS = 0 @ 0x04db;
        SPI_CSQ_WF_ACTIVE_COUNT_0[8] = 0 @ 0x04dc;
        CP_MEC_DOORBELL_RANGE_LOWER = 0 @ 0x105c;
        CP_MEC_DOORBELL_RANGE_UPPER = 0 @ 0x105d;
        CP_INT_CNTL_RING0 = 0 @ 0x106a;
        CP_MEM_SLP_CNTL = 0 @ 0x1079;
        CP_CPC_DEBUG = 0 @ 0x1081;
        CP_PQ_WPTR_POLL_CNTL = 0 @ 0x1083;
        CP_PQ_WPTR_POLL_CNTL1 = 0 @ 0x1084;
        CP_ME1_PIPE0_INT_CNTL[4] = 0 @ 0x1085;
        CP_IQ_WAIT_TIME1 = 0 @ 0x10af;
        CP_IQ_WAIT_TIME2 = 0 @ 0x10b0;
        /// Banked by GRBM_GFX_CNTL: the selected pipe's.
        CPC_INT_CNTL = 0 @ 0x10b4;
        CPC_INT_STATUS = 0 @ 0x10b5;
        CP_PQ_STATUS = 0 @ 0x10b8;
        CP_CPC_IC_BASE_LO = 0 @ 0x10b9;
        CP_CPC_IC_BASE_HI = 0 @ 0x10ba;
        CP_CPC_IC_BASE_CNTL = 0 @ 0x10bb;
        SPI_WCL_PIPE_PERCENT_GFX = 0 @ 0x11c7;
        SPI_WCL_PIPE_PERCENT_CS0[4] = 0 @ 0x11c9;
        /// Banked by GRBM_GFX_CNTL.VMID.
        SPI_GDBG_PER_VMID_CNTL = 0 @ 0x11d3;
        SPI_COMPUTE_QUEUE_RESET = 0 @ 0x11db;
        /// Banked by GRBM_GFX_CNTL: CP_MQD_BASE_ADDR to CP_HQD_AQL_DISPATCH_ID_HI.
        CP_MQD_BASE_ADDR[59] = 0 @ 0x1245;
        /// Address watches: four of each.
        TCP_WATCH0_ADDR_H[4; 3] = 0 @ 0x12a0;
        TCP_WATCH0_ADDR_L[4; 3] = 0 @ 0x12a1;
        TCP_WATCH0_CNTL[4; 3] = 0 @ 0x12a2;
        SCRATCH_REG0[8] = 1 @ 0x2040;
        GRBM_GFX_INDEX = 1 @ 0x2200;
        SPI_CONFIG_CNTL = 1 @ 0x2440;
        RLC_CP_SCHEDULERS = 1 @ 0x4caa;
        CP_MEC_ME1_UCODE_ADDR = 1 @ 0x581a;
        CP_MEC_ME1_UCODE_DATA = 1 @ 0x581b;
        /// The XCC in its partition: `VIRTUAL_XCC_ID` 2:0, `NUM_XCC_IN_XCP` 6:3.
        CP_HYP_XCP_CTL = 1 @ 0x5828;
    }
}

/// Where segments 0 and 1 of the graphics core begin in XCC 0. Packets name an XCC's own registers
/// by these places, whichever XCC runs them.
pub const SEGMENTS: [u32; 2] = [0x2000, 0xa000];

/// The dword address that packets know a register of the graphics core by.
pub fn offset<R: RegisterSet>(register: R) -> u32 {
    let info = &R::TABLE[register.row()];
    SEGMENTS[usize::from(info.segment)] + info.offset
}

impl CpRegister {
    /// The register that packets know by a dword address, with its array index.
    pub fn at(dword: u32) -> Option<(Self, usize)> {
        let mut rows = (0..Self::TABLE.len()).filter_map(Self::from_row);
        rows.find_map(|register| {
            let info = &Self::TABLE[register.row()];
            let (beyond, step) = (dword.checked_sub(offset(register))?, u32::from(info.step));
            let index = beyond / step;
            let is_there = beyond % step == 0 && index < info.count.into();
            is_there.then_some((register, index as usize))
        })
    }

    /// Whether a write waits for queues to stop. A packet that reached such a register, through
    /// whatever window, would wait for its own queue.
    pub const fn stops_queues(self) -> bool {
        matches!(
            self,
            Self::CP_MQD_BASE_ADDR
                | Self::SPI_COMPUTE_QUEUE_RESET
                | Self::CP_MEC_CNTL
                | Self::SQ_CMD
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::GcRegister;

    #[test]
    fn packets_find_registers_at_xcc_0s_place() {
        assert_eq!(offset(CpRegister::CP_HYP_XCP_CTL), 0xf828);
        assert_eq!(offset(GcRegister::GDS_GWS_VMID0), 0x3320);
        for (dword, register) in [
            (0x2022, (CpRegister::GRBM_GFX_CNTL, 0)),
            (0x231f, (CpRegister::SQ_SHADER_TBA_LO, 3)),
            (0x327f, (CpRegister::CP_MQD_BASE_ADDR, 58)),
            (0xecaa, (CpRegister::RLC_CP_SCHEDULERS, 0)),
            (0x32a7, (CpRegister::TCP_WATCH0_ADDR_L, 2)),
        ] {
            assert_eq!(CpRegister::at(dword), Some(register), "{dword:#x}");
        }
        assert_eq!(CpRegister::at(0x3280), None);
    }
}
