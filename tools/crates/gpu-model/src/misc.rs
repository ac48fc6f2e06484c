// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Small blocks whose registers the driver only sets and reads back: host data path (HDP), SMU I/O
//! (SMUIO), the arbiters of the multimedia hub. One each per GPU.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::bus::Block;
use crate::chip::Chip;
use crate::mi200;
use crate::nbio::{AldebaranNbioRegister, Nbio74Register};
use crate::plain::Plain;
use crate::preset::{ip, Generation, Preset};
use crate::registers;
use crate::regs::{Key, Placed};
use crate::vbios;

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
        /// `smnMP1_FIRMWARE_FLAGS` of MP1 13.0.2 (byte 0x3b10024): bit 0, `INTERRUPTS_ENABLED`, the
        /// firmware runs.
        MP1_FIRMWARE_FLAGS_13_0_2 = 0 @ 0xec4009;
        /// The same of 13.0.6 (byte 0x3b10028).
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
    /// The same of MI200, and the way to its VBIOS.
    pub enum RomRegister from "smuio/smuio_13_0_2" {
        /// What the regulator tells of the graphics core. `SVI0_PLANE0_VDDCOR` 24:16: its voltage,
        /// 6.25 mV below 1.55 V for each.
        SMUSVI0_TEL_PLANE0 = 0 @ 0x0004;
        /// Topology 14:10: 0, a card whose host is at the other end of PCIe.
        SMUIO_MCM_CONFIG = 0 @ 0x0024;
        CGTT_ROM_CLK_CTRL0 = 0 @ 0x00e4;
        /// The next byte to read.
        ROM_INDEX = 0 @ 0x00e5;
        /// Four bytes; reading moves on.
        ROM_DATA = 0 @ 0x00e6;
    }
}

registers! {
    /// Fuses of a video block of MI200.
    pub enum VideoRegister from "vcn/vcn_2_6_0" {
        /// `UVD_DISABLE` 1: it is not there.
        CC_UVD_HARVESTING = 1 @ 0x0007;
    }
}

registers! {
    /// The first channel's memory controller of MI200.
    pub enum UmcRegister from "umc/umc_6_7_0" {
        /// `UCFatalEn` 8: an error that is not corrected is fatal, and poisons nothing; the data
        /// fabric, which reads as 0, says so, too.
        UMCCH0_0_EccCtrl = 0 @ 0x0053;
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

/// SMUIO of a preset with a VBIOS.
struct Rom {
    registers: Plain<RomRegister>,
    image: Vec<u8>,
    /// ROM_INDEX.
    next: AtomicU32,
}

impl Rom {
    fn new(preset: &Preset) -> Self {
        let read_only = [
            RomRegister::SMUSVI0_TEL_PLANE0,
            RomRegister::SMUIO_MCM_CONFIG,
            RomRegister::ROM_DATA,
        ];
        // 0.8 V.
        let values = [(RomRegister::SMUSVI0_TEL_PLANE0, 0x78 << 16)];
        Self {
            registers: Plain::new("SMUIO", preset.bases(ip::SMUIO, 0), &values, &read_only),
            image: vbios::build(preset),
            next: AtomicU32::new(0),
        }
    }

    /// The next four bytes; past the end what an empty ROM has.
    fn data(&self) -> u32 {
        let at = self.next.fetch_add(4, Ordering::AcqRel) as usize;
        let byte = |at| self.image.get(at).copied().unwrap_or(0xff);
        u32::from_le_bytes([0, 1, 2, 3].map(|offset| byte(at.saturating_add(offset))))
    }
}

impl Block for Rom {
    fn name(&self) -> String {
        self.registers.name()
    }

    fn registers(&self) -> Vec<Placed> {
        self.registers.registers()
    }

    fn register_name(&self, key: Key) -> String {
        self.registers.register_name(key)
    }

    fn read(&self, chip: &Chip, key: Key) -> u32 {
        match key.of() {
            Some((RomRegister::ROM_INDEX, _)) => self.next.load(Ordering::Acquire),
            Some((RomRegister::ROM_DATA, _)) => self.data(),
            _ => self.registers.read(chip, key),
        }
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        match key.of() {
            Some((RomRegister::ROM_INDEX, _)) => self.next.store(value, Ordering::Release),
            _ => self.registers.write(chip, key, value),
        }
    }

    fn reset(&self, chip: &Chip) {
        self.next.store(0, Ordering::Release);
        self.registers.reset(chip);
    }
}

/// All of them.
pub fn blocks(preset: &Preset) -> Vec<Arc<dyn Block>> {
    match preset.generation {
        Generation::Mi200 => of_mi200(preset),
        Generation::Mi300 => of_mi300(preset),
    }
}

/// Where the driver has its page of user-mappable registers: from RemapRegister's place on.
const MI200_REMAP: u32 = (0x8_0000 - 0x1000 - 0x1_a000) / 4;

/// Those of every generation; `remap`: how much further the flush registers appear, `flags`: where
/// the SMU's firmware says that it runs.
fn common(preset: &Preset, remap: u32, flags: Mp1PublicRegister) -> Vec<Arc<dyn Block>> {
    vec![
        Arc::new(Plain::<HdpRegister>::new(
            "HDP",
            preset.bases(ip::HDP, 0),
            &[],
            &[],
        )),
        Arc::new(HdpFlush(Plain::new("REMAP", &[remap], &[], &[]))),
        Arc::new(Plain::<Mp1PublicRegister>::new(
            "MP1",
            &[0],
            &[(flags, 1)],
            &[flags],
        )),
    ]
}

fn of_mi200(preset: &Preset) -> Vec<Arc<dyn Block>> {
    let nbif = preset.bases(ip::NBIF, 0);
    let mut blocks = common(
        preset,
        MI200_REMAP,
        Mp1PublicRegister::MP1_FIRMWARE_FLAGS_13_0_2,
    );
    blocks.extend(mi200::blocks(preset));
    blocks.extend([
        Arc::new(Rom::new(preset)) as Arc<dyn Block>,
        Arc::new(Plain::<Nbio74Register>::new("NBIO", nbif, &[], &[])),
        Arc::new(Plain::<AldebaranNbioRegister>::new("NBIO", nbif, &[], &[])),
    ]);
    const FATAL: u32 = 1 << 8;
    let control = UmcRegister::UMCCH0_0_EccCtrl;
    blocks.push(Arc::new(Plain::new(
        "UMC",
        preset.bases(ip::UMC, 0),
        &[(control, FATAL)],
        &[control],
    )));
    blocks.extend((0..2).map(|instance| {
        const DISABLED: u32 = 2;
        let harvested = VideoRegister::CC_UVD_HARVESTING;
        let bases = preset.bases(ip::UVD, instance);
        let fuses = [(harvested, DISABLED)];
        Arc::new(Plain::new("VCN", bases, &fuses, &[harvested])) as Arc<dyn Block>
    }));
    blocks
}

fn of_mi300(preset: &Preset) -> Vec<Arc<dyn Block>> {
    let mut blocks = common(preset, 0, Mp1PublicRegister::MP1_FIRMWARE_FLAGS);
    blocks.extend([
        Arc::new(Plain::<SmuioRegister>::new(
            "SMUIO",
            preset.bases(ip::SMUIO, 0),
            &[(SmuioRegister::SMUIO_MCM_CONFIG, preset.package)],
            &[SmuioRegister::SMUIO_MCM_CONFIG],
        )) as Arc<dyn Block>,
        Arc::new(Plain::<DagbRegister>::new(
            "MMHUB",
            preset.bases(ip::MMHUB, 0),
            &[],
            &[],
        )),
    ]);
    blocks
}
