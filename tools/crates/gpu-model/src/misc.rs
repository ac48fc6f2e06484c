// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Small blocks whose registers the driver only sets and reads back: host data path (HDP), SMU I/O
//! (SMUIO), the arbiters of the multimedia hub. One each per GPU.

use std::sync::Arc;

use crate::bus::Block;
use crate::chip::Chip;
use crate::plain::Plain;
use crate::preset::{ip, Preset};
use crate::registers;
use crate::regs::{Key, Placed};

registers! {
    /// Host data path: how the CPU reaches local memory. BAR0 is that memory itself here, so there
    /// is nothing to flush, except in hostile mode.
    pub enum HdpRegister from "hdp/hdp_4_4_2" {
        HDP_NONSURFACE_BASE = 0 @ 0x0040;
        HDP_NONSURFACE_BASE_HI = 0 @ 0x0042;
        HDP_HOST_PATH_CNTL = 0 @ 0x00cc;
        HDP_MISC_CNTL = 0 @ 0x00d3;
    }
}

registers! {
    /// The flush registers again, in a page of BAR5 that user processes may map
    /// (`MMIO_REG_HOLE_OFFSET`, byte 0x1a000).
    pub enum RemapRegister from "none" {
        /// `KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL`.
        HDP_MEM_FLUSH_CNTL = 0 @ 0x6800;
        /// `KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL`.
        HDP_REG_FLUSH_CNTL = 0 @ 0x6801;
    }
}

registers! {
    /// MP1's public registers, which have no header (`MP1_Public`, byte 0x3b00000).
    pub enum Mp1PublicRegister from "none" {
        /// `smnMP1_FIRMWARE_FLAGS` (byte 0x3b10028): bit 0, `INTERRUPTS_ENABLED`, the firmware
        /// runs.
        MP1_FIRMWARE_FLAGS = 0 @ 0xec400a;
    }
}

registers! {
    /// SMU I/O.
    pub enum SmuioRegister from "smuio/smuio_13_0_3" {
        /// Package type: 0 a card, 2 an APU.
        SMUIO_MCM_CONFIG = 1 @ 0x0023;
    }
}

registers! {
    /// The multimedia hub's arbiters.
    pub enum DagbRegister from "mmhub/mmhub_1_8_0" {
        DAGB0_WRCLI_GPU_SNOOP_OVERRIDE[5; 0x80] = 0 @ 0x0060;
        DAGB0_WRCLI_GPU_SNOOP_OVERRIDE_VALUE[5; 0x80] = 0 @ 0x0061;
    }
}

/// The registers whose writes flush the HDP.
struct HdpFlush(Plain<RemapRegister>);

impl Block for HdpFlush {
    fn name(&self) -> String {
        self.0.name()
    }

    fn registers(&self) -> Vec<Placed> {
        self.0.registers()
    }

    fn register_name(&self, key: Key) -> String {
        self.0.register_name(key)
    }

    fn read(&self, chip: &Chip, key: Key) -> u32 {
        self.0.read(chip, key)
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        chip.flush_hdp();
        self.0.write(chip, key, value);
    }

    fn reset(&self, chip: &Chip) {
        self.0.reset(chip);
    }
}

/// All of them.
pub fn blocks(preset: &Preset) -> Vec<Arc<dyn Block>> {
    vec![
        Arc::new(Plain::<HdpRegister>::new(
            "HDP",
            preset.bases(ip::HDP, 0),
            &[],
            &[],
        )),
        Arc::new(HdpFlush(Plain::new("REMAP", &[0], &[], &[]))),
        Arc::new(Plain::<Mp1PublicRegister>::new(
            "MP1",
            &[0],
            &[(Mp1PublicRegister::MP1_FIRMWARE_FLAGS, 1)],
            &[Mp1PublicRegister::MP1_FIRMWARE_FLAGS],
        )),
        Arc::new(Plain::<SmuioRegister>::new(
            "SMUIO",
            preset.bases(ip::SMUIO, 0),
            &[(SmuioRegister::SMUIO_MCM_CONFIG, preset.package)],
            &[SmuioRegister::SMUIO_MCM_CONFIG],
        )),
        Arc::new(Plain::<DagbRegister>::new(
            "MMHUB",
            preset.bases(ip::MMHUB, 0),
            &[],
            &[],
        )),
    ]
}
