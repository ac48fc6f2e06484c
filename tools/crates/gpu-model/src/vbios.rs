// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The VBIOS of presets whose driver asks one: an image of our own, of what amdgpu reads of it and
//! nothing else. It lies in the ROM behind SMUIO ([`crate::misc`]). Pure.
//!
//! Tables as in `linux:drivers/gpu/drm/amd/include/atomfirmware.h`, read as `amdgpu/atom.c` and
//! `amdgpu_atomfirmware.c` do. The two command tables end at once: there is nothing to set up.
//! `firmware_capability` 0 says that memory has no error correction, so drivers do without RAS.

use crate::chip::Clock;
use crate::preset::{ip, Preset};
use crate::smu::aldebaran as limits;

/// `atom_rom_header_v2_2`, the master tables, and where others begin.
const ROM_HEADER: usize = 0x100;
const COMMANDS: usize = 0x140;
const DATA: usize = 0x200;
const TABLES: usize = 0x280;
/// What the strings begin at (`OFFSET_TO_GET_ATOMBIOS_STRINGS_START`).
const STRINGS: usize = 0xa0;
/// An image has whole blocks.
const BLOCK: usize = 512;

/// Indices in `atom_master_list_of_data_tables_v2_1`.
mod data {
    pub const SMC_DPM_INFO: usize = 2;
    pub const FIRMWAREINFO: usize = 4;
    pub const SMU_INFO: usize = 8;
    pub const GFX_INFO: usize = 14;
    pub const POWERPLAYINFO: usize = 15;
    pub const INDIRECTIOACCESS: usize = 23;
    pub const UMC_INFO: usize = 24;
    pub const VRAM_INFO: usize = 28;
    pub const COUNT: usize = 35;
}

/// Indices in `atom_master_list_of_command_functions_v2_1`.
mod command {
    pub const ASIC_INIT: usize = 0;
    pub const COUNT: usize = 81;
}

/// `ATOM_OP_EOT`.
const END_OF_TABLE: u8 = 91;
/// `ATOM_DGPU_VRAM_TYPE_HBM2E`.
const HBM2E: u8 = 0x61;

/// A table: `atom_common_table_header` and fields by their byte offsets.
struct Table(Vec<u8>);

impl Table {
    fn new(bytes: usize, (format, content): (u8, u8)) -> Self {
        let mut table = vec![0; bytes];
        table[..2].copy_from_slice(&(bytes as u16).to_le_bytes());
        table[2..4].copy_from_slice(&[format, content]);
        Self(table)
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn u8(self, at: usize, value: u8) -> Self {
        self.put(at, &[value])
    }

    fn u16(self, at: usize, value: u16) -> Self {
        self.put(at, &value.to_le_bytes())
    }

    fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_le_bytes())
    }
}

/// Clocks in tables count 10 kHz.
const fn megahertz(value: u32) -> u32 {
    value * 100
}

/// `atom_firmware_info_v3_4`.
fn firmware_info(preset: &Preset) -> Table {
    // BIOS_SCRATCH_0 of NBIF.
    let scratch = preset.base(ip::NBIF, 0, 1) + 0x38;
    Table::new(108, (3, 4))
        .u32(4, 0x0101_0000) // firmware_revision
        .u32(8, megahertz(limits::MIN_GFXCLK)) // bootup_sclk_in10khz
        .u32(12, megahertz(limits::UCLK[0])) // bootup_mclk_in10khz
        .u32(24, scratch) // bios_scratch_reg_startaddr
        .u16(28, 800) // bootup_vddc_mv
}

/// `atom_smu_info_v3_6`.
fn smu_info() -> Table {
    Table::new(240, (3, 6))
        .u32(16, (Clock::FREQUENCY / 10_000) as u32) // core_refclk_10khz
        .u32(40, megahertz(limits::SOCCLK[0])) // bootup_socclk_10khz
        .u32(72, megahertz(limits::FCLK[0])) // bootup_fclk_10khz
        .u32(176, megahertz(limits::VCLK[0])) // bootup_vclk_10khz
        .u32(180, megahertz(limits::DCLK[0])) // bootup_dclk_10khz
}

/// `atom_gfx_info_v2_7`: CDNA2's numbers.
fn gfx_info(preset: &Preset) -> Table {
    Table::new(112, (2, 7))
        .u8(6, preset.shader_engines as u8) // max_shader_engines
        .u8(8, preset.cus_per_engine as u8) // max_cu_per_sh
        .u8(9, 1) // max_sh_per_se
        .u8(10, 4) // max_backends_per_se
        .u8(11, 16) // max_texture_channel_caches
        .u16(48, 512) // gc_num_gprs
        .u16(50, 1792) // gc_gsprim_buff_depth
        .u16(54, 64) // gc_wave_size
        .u16(56, 8) // gc_max_waves_per_simd
        .u16(58, (preset.target.lds_bytes() >> 10) as u16) // gc_lds_size
        .u8(60, 32) // gc_num_max_gs_thds
        .u8(61, 32) // gc_gs_table_depth
        .u8(62, 0) // gc_double_offchip_lds_buffer: 256 does not fit
        .u8(63, 32) // gc_max_scratch_slots_per_cu
}

/// `atom_vram_info_header_v2_6` with one `atom_vram_module_v9`: 32 channels of 128 bits.
fn vram_info() -> Table {
    const MODULE: usize = 24;
    Table::new(856, (2, 6))
        .u8(20, 1) // vram_module_num
        .u16(MODULE + 20, 52) // vram_module_size
        .u8(MODULE + 23, HBM2E) // memory_type
        .u8(MODULE + 24, 32) // channel_num
        .u8(MODULE + 25, 7) // channel_width, a power of two
        .u8(MODULE + 28, 1) // vender_rev_id: Samsung
}

/// `struct smu_13_0_powerplay_table` of `smu_v13_0_pptable.h`, which ends in the `PPTable_t` of
/// `smu13_driver_if_aldebaran.h`.
fn powerplay_info() -> Table {
    const BYTES: u16 = 1242;
    const SMC: usize = 482;
    Table::new(BYTES.into(), (1, 0))
        .u16(5, SMC as u16) // table_size
        .u16(32, 110) // software_shutdown_temp
        .u16(SMC + 12, limits::POWER as u16) // PptLimit
        .u16(SMC + 20, limits::TEMPERATURE as u16) // ThotspotLimit
        .u16(SMC + 22, limits::TEMPERATURE as u16) // TmemLimit
        .u16(SMC + 24, limits::TEMPERATURE as u16) // Tvr_gfxLimit
        .u16(SMC + 324, limits::MAX_GFXCLK as u16) // GfxclkFmax
        .u16(SMC + 326, limits::MIN_GFXCLK as u16) // GfxclkFmin
}

/// The data tables by their indices.
fn data_tables(preset: &Preset) -> Vec<(usize, Table)> {
    vec![
        (data::SMC_DPM_INFO, Table::new(172, (4, 10))),
        (data::FIRMWAREINFO, firmware_info(preset)),
        (data::SMU_INFO, smu_info()),
        (data::GFX_INFO, gfx_info(preset)),
        (data::POWERPLAYINFO, powerplay_info()),
        // No methods.
        (data::INDIRECTIOACCESS, Table::new(8, (1, 1))),
        (
            data::UMC_INFO,
            // atom_umc_info_v3_3: mem_refclk_10khz.
            Table::new(68, (3, 3)).u32(28, (Clock::FREQUENCY / 10_000) as u32),
        ),
        (data::VRAM_INFO, vram_info()),
    ]
}

/// Puts `tables` at the end of `image`, and their places into the master table at `master`.
fn put(image: &mut Vec<u8>, master: usize, tables: Vec<(usize, Table)>) {
    for (index, Table(bytes)) in tables {
        image.resize(image.len().next_multiple_of(4), 0);
        let entry = master + 4 + 2 * index;
        let place = image.len() as u16;
        image[entry..entry + 2].copy_from_slice(&place.to_le_bytes());
        image.extend(bytes);
    }
}

/// The whole image.
pub fn build(preset: &Preset) -> Vec<u8> {
    let mut image = vec![0; TABLES];
    let mut write = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let short = |value: usize| (value as u16).to_le_bytes();
    write(0, &[0x55, 0xaa]);
    // OFFSET_TO_GET_ATOMBIOS_NUMBER_OF_STRINGS.
    write(0x2f, &[1]);
    // ATOM_ATI_MAGIC (atom.h).
    write(0x30, b" 761295520");
    // OFFSET_TO_ATOM_ROM_HEADER_POINTER.
    write(0x48, &short(ROM_HEADER));
    // OFFSET_TO_VBIOS_DATE: of no real image.
    write(0x50, b"01/01/00 00:00");
    // OFFSET_TO_GET_ATOMBIOS_STRINGS_START.
    write(0x6e, &short(STRINGS));
    write(STRINGS, b"AMDKFD-RS-MODEL\0\r\nGPU model of amdkfd-rs\0");
    let header = Table::new(40, (2, 2))
        .put(4, b"ATOM")
        .u16(0xc, STRINGS as u16)
        .u16(0x1e, COMMANDS as u16)
        .u16(0x20, DATA as u16);
    write(ROM_HEADER, &header.0);
    write(COMMANDS, &Table::new(4 + 2 * command::COUNT, (2, 1)).0);
    write(DATA, &Table::new(4 + 2 * data::COUNT, (2, 1)).0);
    let init = Table::new(8, (2, 1)).u8(6, END_OF_TABLE);
    put(&mut image, COMMANDS, vec![(command::ASIC_INIT, init)]);
    put(&mut image, DATA, data_tables(preset));
    image.resize(image.len().next_multiple_of(BLOCK), 0);
    image[2] = (image.len() / BLOCK) as u8;
    // All bytes add up to 0.
    let sum = image.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    image[0x21] = sum.wrapping_neg();
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(image: &[u8], at: usize) -> usize {
        usize::from(u16::from_le_bytes([image[at], image[at + 1]]))
    }

    #[test]
    fn tables_are_found_as_the_driver_looks_for_them() {
        let image = build(&Preset::mi250x());
        assert_eq!(image.len(), usize::from(image[2]) * BLOCK);
        assert_eq!(image.iter().fold(0, |s: u8, b| s.wrapping_add(*b)), 0);
        let header = word(&image, 0x48);
        assert_eq!(&image[header + 4..header + 8], b"ATOM");
        let master = word(&image, header + 0x20);
        for (index, Table(bytes)) in data_tables(&Preset::mi250x()) {
            let at = word(&image, master + 4 + 2 * index);
            assert_eq!(word(&image, at), bytes.len(), "table {index}");
            assert_eq!(&image[at..at + bytes.len()], bytes, "table {index}");
        }
        let init = word(&image, word(&image, header + 0x1e) + 4);
        assert_eq!(image[init + 6], END_OF_TABLE);
    }

    #[test]
    fn the_initialization_is_not_asked_for_after_power_on() {
        let rig = crate::rig::Rig::of(Preset::mi250x());
        let image = build(&Preset::mi250x());
        let header = word(&image, 0x48);
        let master = word(&image, header + 0x20);
        let firmware = word(&image, master + 4 + 2 * data::FIRMWAREINFO);
        let scratch = word(&image, firmware + 24) as u64;
        assert_eq!(rig.read(scratch + 7) & 0x200, 0x200);
    }
}
