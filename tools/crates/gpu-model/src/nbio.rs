// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! North bridge I/O (NBIF 7.9): the chip's face to PCIe. Identity straps, local memory size,
//! windows to registers and memory outside BAR5, doorbell routing set-up, HDP flush. One per GPU.

pub mod layout;

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::bus::Block;
use crate::chip::Chip;
use crate::preset::{ip, Generation, Preset};
use crate::registers;
use crate::regs::{moved, name_of, place, place_rows, Key, Placed, RegisterFile, RegisterInfo};

/// BIF_BX_PF0_GPU_HDP_FLUSH_REQ, where packets find it.
pub const GPU_HDP_FLUSH_REQ: u32 = 0xe26;

registers! {
    /// What the driver uses of NBIF.
    pub enum NbioRegister from "nbio/nbio_7_9_0" {
        /// Address for [`Self::BIF_BX_PF0_MM_DATA`]: bit 31 set, bytes of local memory; clear,
        /// bytes of register space.
        BIF_BX_PF0_MM_INDEX = 0 @ 0x0000;
        BIF_BX_PF0_MM_DATA = 0 @ 0x0001;
        /// Address bits from 31 up.
        BIF_BX_PF0_MM_INDEX_HI = 0 @ 0x0006;
        /// Byte address, low half, for [`Self::BIF_BX0_PCIE_DATA2`].
        BIF_BX0_PCIE_INDEX2 = 0 @ 0x000e;
        BIF_BX0_PCIE_DATA2 = 0 @ 0x000f;
        BIF_BX0_PCIE_INDEX2_HI = 0 @ 0x0011;
        BIF_BX0_BIOS_SCRATCH_0[16] = 1 @ 0x0038;
        /// `STRAP_ATI_REV_ID_DEV0_F0` 31:28 and the revision 27:24.
        RCC_STRAP0_RCC_DEV0_EPF0_STRAP0 = 2 @ 0x0016;
        RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN = 2 @ 0x00c0;
        /// Local memory in MiB.
        RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE = 2 @ 0x00c3;
        /// SR-IOV: 0, not a virtual function.
        RCC_DEV0_EPF0_RCC_IOV_FUNC_IDENTIFIER = 2 @ 0x00c5;
        BIF_BX0_INTERRUPT_CNTL = 2 @ 0x00f1;
        BIF_BX0_INTERRUPT_CNTL2 = 2 @ 0x00f2;
        BIF_BX_PF0_DOORBELL_SELFRING_GPA_APER_BASE_HIGH = 2 @ 0x00f3;
        BIF_BX_PF0_DOORBELL_SELFRING_GPA_APER_BASE_LOW = 2 @ 0x00f4;
        BIF_BX_PF0_DOORBELL_SELFRING_GPA_APER_CNTL = 2 @ 0x00f5;
        /// One bit per engine that wants the host data path flushed.
        BIF_BX_PF0_GPU_HDP_FLUSH_REQ = 2 @ 0x0106;
        /// The bits that are done.
        BIF_BX_PF0_GPU_HDP_FLUSH_DONE = 2 @ 0x0107;
        BIF_BX0_BACO_CNTL = 2 @ 0x010b;
        /// Where in BAR5 (bytes) the HDP flush registers appear, for user mappings.
        BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL = 2 @ 0x012d;
        BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL = 2 @ 0x012e;
        /// Memory partition modes: bit 0, NPS1 only.
        BIF_BX_PF0_PARTITION_MEM_CAP = 2 @ 0x0162;
        /// `PARTITION_MODE` 7:4: `enum amdgpu_gfx_partition`.
        BIF_BX_PF0_PARTITION_COMPUTE_STATUS = 2 @ 0x0163;
        /// `NPS_MODE` 11:4: bit 0, NPS1.
        BIF_BX_PF0_PARTITION_MEM_STATUS = 2 @ 0x0164;
        XCC_DOORBELL_FENCE = 5 @ 0x740c;
        S2A_DOORBELL_ENTRY_0_CTRL[16] = 5 @ 0x7a80;
        /// Entry 1 and on: which doorbells are the copy engines'.
        DOORBELL0_CTRL_ENTRY_0[17] = 8 @ 0xcd00;
        BIFC_DOORBELL_ACCESS_EN_PF = 8 @ 0xcf6e;
        BIFC_GFX_INT_MONITOR_MASK = 8 @ 0xe8ad;
    }
}

use layout::{doorbell_entry, sdma_doorbell_range};
use NbioRegister::*;

registers! {
    /// What NBIF 7.4 has besides: routing of doorbells.
    pub enum Nbio74Register from "nbio/nbio_7_4" {
        BIF_FB_EN = 2 @ 0x00ff;
        BIF_SDMA0_DOORBELL_RANGE = 2 @ 0x01d0;
        BIF_SDMA1_DOORBELL_RANGE = 2 @ 0x01d1;
        BIF_IH_DOORBELL_RANGE = 2 @ 0x01d2;
        BIF_MMSCH0_DOORBELL_RANGE = 2 @ 0x01d3;
    }
}

registers! {
    /// Those that only Aldebaran has there (`nbio_v7_4.c`, `*_ALDE`): no header has them.
    pub enum AldebaranNbioRegister from "none" {
        BIF_DOORBELL_INT_CNTL = 2 @ 0x00fe;
        BIF_INTR_CNTL = 2 @ 0x0101;
        BIF_SDMA2_DOORBELL_RANGE = 2 @ 0x01d6;
        BIF_SDMA3_DOORBELL_RANGE = 2 @ 0x01d7;
        BIF_MMSCH1_DOORBELL_RANGE = 2 @ 0x01d8;
        BIF_SDMA4_DOORBELL_RANGE = 2 @ 0x01d9;
    }
}

/// The doorbells that NBIF sends to a copy engine instead of the command processor, as the driver
/// set it up: dwords from the beginning of a page. None: nothing is set up.
pub fn sdma_doorbells(chip: &Chip, engine: u8) -> Option<Range<u32>> {
    let read = |segment: usize, offset: u32| {
        let at = chip.preset.base(ip::NBIF, 0, segment) + offset;
        chip.bus.peek(chip, at.into())
    };
    let (offset, size) = match chip.preset.generation {
        // `nbio_v7_9.c`, nbio_v7_9_sdma_doorbell_range: four engines of each die.
        Generation::Mi300 => {
            let value = read(8, 0xcd01 + u32::from(engine));
            (
                doorbell_entry::BIF_DOORBELL0_RANGE_OFFSET_ENTRY.pick(value),
                doorbell_entry::BIF_DOORBELL0_RANGE_SIZE_ENTRY.pick(value),
            )
        }
        Generation::Mi200 => {
            let places = [0x1d0, 0x1d1, 0x1d6, 0x1d7, 0x1d9];
            let value = read(2, *places.get(usize::from(engine))?);
            (
                sdma_doorbell_range::OFFSET.pick(value),
                sdma_doorbell_range::SIZE.pick(value),
            )
        }
    };
    (size != 0).then_some(offset..offset + size)
}

/// Where NBIF 7.4 has what both have, by names of its own (`nbio_7_4_offset.h`): all but one
/// register are where 7.9 has them, and some are not there.
pub fn of_mi200() -> Vec<RegisterInfo> {
    moved::<NbioRegister>(|info| match info.name {
        // mmRCC_DEV0_EPF0_STRAP0_ALDE, of `nbio_v7_4.c`.
        "RCC_STRAP0_RCC_DEV0_EPF0_STRAP0" => Some(RegisterInfo {
            offset: 0x15,
            ..info
        }),
        name if name.contains("_PARTITION_") || info.segment > 4 => None,
        _ => Some(info),
    })
}

/// Revision 1: the driver refuses revision 0 as an early sample.
const REVISION: u32 = 1 << 24;
const MM_INDEX_VRAM: u32 = 1 << 31;
/// `ATOM_S7_ASIC_INIT_COMPLETE_MASK` of the eighth scratch register: the VBIOS has run.
const INIT_COMPLETE: u32 = 0x200;

/// The block.
pub struct Nbio {
    generation: Generation,
    bases: Vec<u32>,
    vram_size: u64,
    registers: RegisterFile<NbioRegister>,
}

impl Nbio {
    pub fn new(preset: &Preset, vram_size: u64) -> Self {
        let bases = preset.bases(ip::NBIF, 0).to_vec();
        let block = Self {
            generation: preset.generation,
            bases,
            vram_size,
            registers: RegisterFile::new(),
        };
        block.power_on();
        block
    }

    fn power_on(&self) {
        let r = &self.registers;
        r.clear();
        r.set(RCC_STRAP0_RCC_DEV0_EPF0_STRAP0, REVISION);
        r.set(
            RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE,
            (self.vram_size >> 20) as u32,
        );
        if self.generation == Generation::Mi200 {
            r.set_at(BIF_BX0_BIOS_SCRATCH_0, 7, INIT_COMPLETE);
        }
        r.set(BIF_BX_PF0_PARTITION_MEM_CAP, 1);
        r.set(BIF_BX_PF0_PARTITION_MEM_STATUS, 1 << 4);
    }

    /// Offset into local memory that the index pair points at, or else the register's dword
    /// address.
    fn window(&self) -> Result<u64, u64> {
        let low = self.registers.get(BIF_BX_PF0_MM_INDEX);
        let high = u64::from(self.registers.get(BIF_BX_PF0_MM_INDEX_HI));
        match low & MM_INDEX_VRAM {
            0 => Err(u64::from(low) >> 2),
            _ => Ok(u64::from(low & !MM_INDEX_VRAM & !3) | high << 31),
        }
    }

    fn read_window(&self, chip: &Chip) -> u32 {
        match self.window() {
            Ok(offset) => chip.vram.read_u32(offset).unwrap_or(u32::MAX),
            Err(dword) if self.is_window(dword) => 0,
            Err(dword) => chip.bus.read(chip, dword),
        }
    }

    fn write_window(&self, chip: &Chip, value: u32) {
        match self.window() {
            Ok(offset) => {
                if let Err(error) = chip.vram.write_u32(offset, value) {
                    tracing::warn!("write through MM_DATA: {error}");
                }
            }
            Err(dword) if self.is_window(dword) => {}
            Err(dword) => chip.bus.write(chip, dword, value),
        }
    }

    /// The data registers themselves: reaching them through each other would never end.
    fn is_window(&self, dword: u64) -> bool {
        let base = u64::from(self.bases.first().copied().unwrap_or(0));
        dword == base + 1 || dword == base + 0xf
    }

    /// Dword address of the index/data pair that reaches all of the register space.
    fn indirect(&self) -> u64 {
        self.registers
            .pair(BIF_BX0_PCIE_INDEX2, BIF_BX0_PCIE_INDEX2_HI, 0)
            >> 2
    }
}

/// `AMDGPU_SPX_PARTITION_MODE` and the others: one partition of all XCCs, one for each, or two,
/// three or four.
fn compute_mode(chip: &Chip) -> u32 {
    match chip.partitions.load(Ordering::Acquire) {
        0 | 1 => 0,
        count if count == chip.preset.xccs => 4,
        count => u32::from(count) - 1,
    }
}

impl Block for Nbio {
    fn name(&self) -> String {
        "NBIO".into()
    }

    fn registers(&self) -> Vec<Placed> {
        match self.generation {
            Generation::Mi300 => place::<NbioRegister>(&self.bases),
            Generation::Mi200 => place_rows(&of_mi200(), &self.bases),
        }
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<NbioRegister>(key)
    }

    fn read(&self, chip: &Chip, key: Key) -> u32 {
        match key.of::<NbioRegister>() {
            Some((BIF_BX_PF0_MM_DATA, _)) => self.read_window(chip),
            Some((BIF_BX0_PCIE_DATA2, _)) => match self.indirect() {
                dword if self.is_window(dword) => 0,
                dword => chip.bus.read(chip, dword),
            },
            // A flush is done at once.
            Some((BIF_BX_PF0_GPU_HDP_FLUSH_DONE, _)) => u32::MAX,
            Some((BIF_BX_PF0_PARTITION_COMPUTE_STATUS, _)) => compute_mode(chip) << 4,
            Some((register, index)) => self.registers.at(register, index),
            None => 0,
        }
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        let Some((register, index)) = key.of::<NbioRegister>() else {
            return;
        };
        match register {
            BIF_BX_PF0_MM_DATA => return self.write_window(chip, value),
            BIF_BX0_PCIE_DATA2 => {
                let dword = self.indirect();
                if !self.is_window(dword) {
                    chip.bus.write(chip, dword, value);
                }
                return;
            }
            BIF_BX_PF0_GPU_HDP_FLUSH_REQ => chip.flush_hdp(),
            // Read-only: straps and fuses.
            RCC_STRAP0_RCC_DEV0_EPF0_STRAP0
            | RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE
            | RCC_DEV0_EPF0_RCC_IOV_FUNC_IDENTIFIER
            | BIF_BX_PF0_PARTITION_MEM_CAP
            | BIF_BX_PF0_PARTITION_MEM_STATUS
            | BIF_BX_PF0_PARTITION_COMPUTE_STATUS
            | BIF_BX_PF0_GPU_HDP_FLUSH_DONE => return,
            _ => {}
        }
        self.registers.set_at(register, index, value);
    }

    fn reset(&self, chip: &Chip) {
        chip.partitions.store(1, Ordering::Release);
        self.power_on();
    }
}
