// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Registers of MI200 that amdgpu sets or reads there and nowhere else, and that nothing in the
//! model depends on: they are stored only. One block for each IP.

use std::sync::Arc;

use crate::bus::Block;
use crate::plain::Plain;
use crate::preset::{ip, Preset};
use crate::registers;

registers! {
    /// The graphics core: caches and clocks.
    pub enum GraphicsRegister from "gc/gc_9_4_2" {
        GRBM_CNTL = 0 @ 0x0000;
        TA_CNTL_AUX = 0 @ 0x0542;
        TCP_CHAN_STEER_0 = 0 @ 0x0b03;
        TCP_CHAN_STEER_1 = 0 @ 0x0b04;
        TCP_ADDR_CONFIG = 0 @ 0x0b05;
        TCP_CHAN_STEER_2 = 0 @ 0x0b09;
        TCP_CHAN_STEER_3 = 0 @ 0x0b0a;
        TCP_CHAN_STEER_4 = 0 @ 0x0b0b;
        TCP_CHAN_STEER_5 = 0 @ 0x0b0c;
        TCI_CNTL_3 = 0 @ 0x0b5d;
        SPI_GDBG_TRAP_DATA0 = 0 @ 0x11d8;
        SPI_GDBG_TRAP_DATA1 = 0 @ 0x11d9;
        GC_THROTTLE_CTRL1 = 0 @ 0x1292;
        GC_THROTTLE_CTRL = 0 @ 0x129b;
        GC_CAC_IND_INDEX = 0 @ 0x129c;
        GC_CAC_IND_DATA = 0 @ 0x129d;
    }
}

registers! {
    /// The third interrupt ring, into which nothing is put.
    pub enum RingRegister from "oss/osssys_4_2_0" {
        IH_RB_CNTL_RING2 = 0 @ 0x0098;
        IH_RB_BASE_RING2 = 0 @ 0x0099;
        IH_RB_BASE_HI_RING2 = 0 @ 0x009a;
        IH_RB_RPTR_RING2 = 0 @ 0x009b;
        IH_RB_WPTR_RING2 = 0 @ 0x009c;
        IH_DOORBELL_RPTR_RING2 = 0 @ 0x009f;
    }
}

registers! {
    /// The data fabric: one memory, and no poison.
    pub enum FabricRegister from "df/df_3_6" {
        DF_GCM_AON0_DramMegaBaseAddress0 = 0 @ 0x0064;
        DF_CS_UMC_AON0_HardwareAssertMaskLow = 0 @ 0x067e;
        DF_NCS_PG0_HardwareAssertMaskHigh = 0 @ 0x067f;
    }
}

registers! {
    /// Thermal interrupts, which never come.
    pub enum ThermalRegister from "thm/thm_13_0_2" {
        THM_THERMAL_INT_ENA = 0 @ 0x000a;
        THM_THERMAL_INT_CTRL = 0 @ 0x000b;
    }
}

registers! {
    /// The multimedia hub's arbiters.
    pub enum ArbiterRegister from "mmhub/mmhub_1_7" {
        DAGB0_WRCLI_GPU_SNOOP_OVERRIDE[5; 0x80] = 0 @ 0x005e;
        DAGB0_WRCLI_GPU_SNOOP_OVERRIDE_VALUE[5; 0x80] = 0 @ 0x005f;
    }
}

registers! {
    /// The host data path's clocks.
    pub enum HostPathRegister from "hdp/hdp_4_0" {
        HDP_MEM_POWER_LS = 0 @ 0x00d4;
    }
}

registers! {
    /// 0: there is no discovery table.
    pub enum DiscoveryRegister from "smuio/smuio_13_0_2" {
        IP_DISCOVERY_VERSION = 1 @ 0x0000;
    }
}

registers! {
    /// Read before the driver knows what there is, by places that no header has.
    pub enum EarlyRegister from "none" {
        /// The VBIOS's scratch register 7, were the scratch registers at 0: whether it has run.
        SCRATCH_7_AT_0 = 0 @ 0x0007;
        /// Where the discovery table would be (`mmDRIVER_SCRATCH_2`): nowhere.
        DRIVER_SCRATCH_2 = 0 @ 0x0096;
    }
}

/// All of them.
pub fn blocks(preset: &Preset) -> Vec<Arc<dyn Block>> {
    let bases = |id| preset.bases(id, 0);
    vec![
        Arc::new(Plain::<GraphicsRegister>::new(
            "GC",
            bases(ip::GC),
            &[],
            &[],
        )),
        Arc::new(Plain::<RingRegister>::new(
            "IH",
            bases(ip::OSSSYS),
            &[],
            &[],
        )),
        Arc::new(Plain::<FabricRegister>::new("DF", bases(ip::DF), &[], &[])),
        Arc::new(Plain::<ThermalRegister>::new(
            "THM",
            bases(ip::THM),
            &[],
            &[],
        )),
        Arc::new(Plain::<ArbiterRegister>::new(
            "MMHUB",
            bases(ip::MMHUB),
            &[],
            &[],
        )),
        Arc::new(Plain::<HostPathRegister>::new(
            "HDP",
            bases(ip::HDP),
            &[],
            &[],
        )),
        Arc::new(Plain::<DiscoveryRegister>::new(
            "SMUIO",
            bases(ip::SMUIO),
            &[],
            &[],
        )),
        Arc::new(Plain::<EarlyRegister>::new("NBIO", &[0], &[], &[])),
    ]
}
