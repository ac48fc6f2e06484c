// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The parts of an accelerator core complex (XCC) that are neither command processor nor page-table
//! walker: run-list controller (RLC), GDS partitions, shader array configuration. One [`Gc`] per
//! XCC.

use crate::bus::Block;
use crate::chip::Chip;
use crate::preset::{ip, Preset};
use crate::registers;
use crate::regs::{name_of, place, Key, Placed, RegisterFile};

registers! {
    /// Registers of the graphics core that the driver sets up.
    pub enum GcRegister from "gc/gc_9_4_3" {
        /// `INACTIVE_CUS` 31:16: compute units of the selected shader engine (`GRBM_GFX_INDEX`)
        /// that do not work.
        CC_GC_SHADER_ARRAY_CONFIG = 0 @ 0x026f;
        /// The same, by the user's choice.
        GC_USER_SHADER_ARRAY_CONFIG = 0 @ 0x0270;
        TA_CNTL = 0 @ 0x0541;
        DB_DEBUG2 = 0 @ 0x060d;
        CC_RB_BACKEND_DISABLE = 0 @ 0x063d;
        GB_ADDR_CONFIG = 0 @ 0x063e;
        GB_ADDR_CONFIG_READ = 0 @ 0x0642;
        GC_USER_RB_BACKEND_DISABLE = 0 @ 0x06df;
        TCP_CNTL = 0 @ 0x0b02;
        TCP_UTCL1_CNTL1 = 0 @ 0x12b5;
        TCP_UTCL1_CNTL2 = 0 @ 0x12b6;
        /// Global data share of each VMID: none on this chip.
        GDS_VMID0_BASE[16; 2] = 0 @ 0x1300;
        GDS_VMID0_SIZE[16; 2] = 0 @ 0x1301;
        /// Global wave sync of each VMID.
        GDS_GWS_VMID0[16] = 0 @ 0x1320;
        /// Ordered append of each VMID.
        GDS_OA_VMID0[16] = 0 @ 0x1330;
        /// Bit 0: the controller runs.
        RLC_CNTL = 1 @ 0x4c00;
        RLC_STAT = 1 @ 0x4c04;
        /// `CMD` 0: request; the controller clears it when safe mode is entered or left.
        RLC_SAFE_MODE = 1 @ 0x4c05;
        RLC_MEM_SLP_CNTL = 1 @ 0x4c06;
        RLC_LB_CNTL = 1 @ 0x4c19;
        /// Reference clock, latched by RLC_CAPTURE_GPU_CLOCK_COUNT.
        RLC_GPU_CLOCK_COUNT_LSB = 1 @ 0x4c24;
        RLC_GPU_CLOCK_COUNT_MSB = 1 @ 0x4c25;
        RLC_CAPTURE_GPU_CLOCK_COUNT = 1 @ 0x4c26;
        RLC_GPM_STAT = 1 @ 0x4c40;
        RLC_PG_CNTL = 1 @ 0x4c43;
        RLC_CGTT_MGCG_OVERRIDE = 1 @ 0x4c48;
        RLC_CGCG_CGLS_CTRL = 1 @ 0x4c49;
        /// Nothing to wait for: 0.
        RLC_SERDES_CU_MASTER_BUSY = 1 @ 0x4c61;
        RLC_SERDES_NONCU_MASTER_BUSY = 1 @ 0x4c62;
        RLC_SPM_MC_CNTL = 1 @ 0x4c71;
        RLC_SRM_CNTL = 1 @ 0x4c80;
        RLC_SRM_ARAM_ADDR = 1 @ 0x4c83;
        RLC_SRM_ARAM_DATA = 1 @ 0x4c84;
        RLC_CSIB_ADDR_LO = 1 @ 0x4ca2;
        RLC_CSIB_ADDR_HI = 1 @ 0x4ca3;
        RLC_CSIB_LENGTH = 1 @ 0x4ca4;
        RLC_GPM_UCODE_ADDR = 1 @ 0x583c;
        RLC_GPM_UCODE_DATA = 1 @ 0x583d;
        // What the driver dumps after a hang (gfx_v9_4_3.c, gc_reg_list_9_4_3): nothing is stalled,
        // 0.
        GRBM_STATUS_SE0 = 0 @ 0x0005;
        GRBM_STATUS_SE1 = 0 @ 0x0006;
        GRBM_STATUS_SE2 = 0 @ 0x000e;
        GRBM_STATUS_SE3 = 0 @ 0x000f;
        CP_STALLED_STAT1 = 0 @ 0x019d;
        CP_STALLED_STAT2 = 0 @ 0x019e;
        CP_BUSY_STAT = 0 @ 0x019f;
        CP_MEC1_INSTR_PNTR = 0 @ 0x01a8;
        CP_MEC2_INSTR_PNTR = 0 @ 0x01a9;
        WD_UTCL1_STATUS = 0 @ 0x0244;
        SQ_UTCL1_STATUS = 0 @ 0x0319;
        SQC_ICACHE_UTCL1_STATUS = 0 @ 0x03d7;
        SQC_DCACHE_UTCL1_STATUS = 0 @ 0x03d8;
        GDS_PROTECTION_FAULT = 0 @ 0x05c3;
        GDS_VM_PROTECTION_FAULT = 0 @ 0x05c4;
        RMI_UTCL1_STATUS = 0 @ 0x0797;
        CP_GFX_ERROR = 0 @ 0x103b;
        CP_DEBUG = 0 @ 0x107f;
        CPG_UTCL1_STATUS = 0 @ 0x11b4;
        CPC_UTCL1_STATUS = 0 @ 0x11b5;
        CPF_UTCL1_STATUS = 0 @ 0x11b6;
        CP_HQD_GFX_STATUS = 0 @ 0x123f;
        TCP_UTCL1_STATUS = 0 @ 0x12b7;
        SMU_RLC_RESPONSE = 1 @ 0x4c07;
        RLC_SMU_SAFE_MODE = 1 @ 0x4c09;
        RLC_INT_STAT = 1 @ 0x4c18;
        RLC_GPM_GENERAL_6 = 1 @ 0x4c69;
        RLC_SMU_MESSAGE = 1 @ 0x4c76;
        RLC_SMU_COMMAND = 1 @ 0x4ca9;
        RLC_SMU_ARGUMENT_1 = 1 @ 0x4cab;
        RLC_SMU_ARGUMENT_2 = 1 @ 0x4cac;
        RLC_UTCL1_STATUS = 1 @ 0x4cd4;
    }
}

use GcRegister::*;

/// One XCC's block.
pub struct Gc {
    xcc: u8,
    bases: Vec<u32>,
    /// `INACTIVE_CUS` of each shader engine.
    inactive_cus: [u32; 4],
    registers: RegisterFile<GcRegister>,
}

impl Gc {
    pub fn new(preset: &Preset, xcc: u8) -> Self {
        let all = (1u32 << preset.cus_per_engine) - 1;
        let inactive = |active: u8| (all & !((1u32 << active) - 1)) << 16;
        let block = Self {
            xcc,
            bases: preset.bases(ip::GC, xcc).to_vec(),
            inactive_cus: preset.active_cus.map(inactive),
            registers: RegisterFile::new(),
        };
        block.power_on();
        block
    }

    fn power_on(&self) {
        self.registers.clear();
    }

    /// SE_INDEX 23:16 of this XCC's GRBM_GFX_INDEX, which is the command processor's.
    fn selected_engine(&self, chip: &Chip) -> usize {
        const GRBM_GFX_INDEX: u32 = 0x2200;
        let base = self.bases.get(1).copied().unwrap_or(0);
        let selected = chip.bus.read(chip, u64::from(base + GRBM_GFX_INDEX));
        (selected >> 16 & 3) as usize
    }
}

impl Block for Gc {
    fn name(&self) -> String {
        format!("GC[{}]", self.xcc)
    }

    fn registers(&self) -> Vec<Placed> {
        place::<GcRegister>(&self.bases)
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<GcRegister>(key)
    }

    fn read(&self, chip: &Chip, key: Key) -> u32 {
        match key.of::<GcRegister>() {
            Some((CC_GC_SHADER_ARRAY_CONFIG, _)) => self.inactive_cus[self.selected_engine(chip)],
            Some((GB_ADDR_CONFIG_READ, _)) => self.registers.get(GB_ADDR_CONFIG),
            Some((register, index)) => self.registers.at(register, index),
            None => 0,
        }
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        let Some((register, index)) = key.of::<GcRegister>() else {
            return;
        };
        match register {
            RLC_SAFE_MODE => return self.registers.set(RLC_SAFE_MODE, value & !1),
            RLC_CAPTURE_GPU_CLOCK_COUNT if value & 1 != 0 => {
                let now = chip.clock.ticks();
                self.registers
                    .set_pair(RLC_GPU_CLOCK_COUNT_LSB, RLC_GPU_CLOCK_COUNT_MSB, 0, now);
                return;
            }
            CC_GC_SHADER_ARRAY_CONFIG
            | RLC_STAT
            | RLC_GPM_STAT
            | RLC_SERDES_CU_MASTER_BUSY
            | RLC_SERDES_NONCU_MASTER_BUSY
            | RLC_GPU_CLOCK_COUNT_LSB
            | RLC_GPU_CLOCK_COUNT_MSB => return,
            _ => {}
        }
        self.registers.set_at(register, index, value);
    }

    fn reset(&self, _chip: &Chip) {
        self.power_on();
    }
}
