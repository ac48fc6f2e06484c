// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The messages of MI200's SMU (MP1 13.0.2), and its metrics table.
//!
//! Messages as in `linux:drivers/gpu/drm/amd/pm/swsmu/inc/pmfw_if/aldebaran_ppsmc.h`
//! (`PPSMC_MSG_*`), the table is `SmuMetrics_t` of `smu13_driver_if_aldebaran.h`.

use super::{metrics, Smu, CLOCK_LEVELS, FAILED, MODE_1_RESET, UNKNOWN_COMMAND};
use crate::chip::Chip;
use metrics::Load;
pub use metrics::{DCLK, FCLK, SOCCLK, UCLK, VCLK};

/// Shader clock range in MHz.
pub const MIN_GFXCLK: u32 = 500;
pub const MAX_GFXCLK: u32 = 1700;
/// Watts.
pub const POWER: u32 = 560;
/// Degrees Celsius.
pub const TEMPERATURE: u32 = 105;

/// `SMU13_DRIVER_IF_VERSION_ALDE`.
const DRIVER_IF_VERSION: u32 = 8;
/// `FEATURE_DATA_CALCULATIONS`; `_DPM_GFXCLK`, `_UCLK`, `_SOCCLK`, `_FCLK`, `_LCLK`, `_XGMI`;
/// `_DPM_VCN`; `_PPT`, `_THERMAL`. Without one of these the driver says that DPM is off.
const FEATURES: u32 = 1 | 0x3f << 1 | 1 << 13 | 1 << 16 | 1 << 21;
/// `TABLE_PPTABLE` and `TABLE_SMU_METRICS`.
const PPTABLE: u32 = 0;
const METRICS: u32 = 4;

mod message {
    pub const TEST: u32 = 0x1;
    pub const GET_SMU_VERSION: u32 = 0x2;
    pub const GFX_DRIVER_RESET: u32 = 0x3;
    pub const GET_DRIVER_IF_VERSION: u32 = 0x4;
    pub const ENABLE_ALL_FEATURES: u32 = 0x7;
    pub const DISABLE_ALL_FEATURES: u32 = 0x8;
    pub const GET_FEATURES_LOW: u32 = 0xd;
    pub const GET_FEATURES_HIGH: u32 = 0xe;
    pub const SET_DRIVER_ADDRESS_HIGH: u32 = 0xf;
    pub const SET_DRIVER_ADDRESS_LOW: u32 = 0x10;
    pub const SET_TOOLS_ADDRESS_HIGH: u32 = 0x11;
    pub const SET_TOOLS_ADDRESS_LOW: u32 = 0x12;
    pub const TRANSFER_TO_DRAM: u32 = 0x13;
    pub const TRANSFER_TO_SMU: u32 = 0x14;
    pub const SET_SOFT_MIN_BY_FREQ: u32 = 0x18;
    pub const SET_HARD_MAX_BY_FREQ: u32 = 0x1b;
    pub const GET_MIN_DPM_FREQ: u32 = 0x1c;
    pub const GET_MAX_DPM_FREQ: u32 = 0x1d;
    pub const GET_DPM_FREQ_BY_INDEX: u32 = 0x1e;
    pub const SET_WORKLOAD_MASK: u32 = 0x1f;
    pub const SET_PPT_LIMIT: u32 = 0x22;
    pub const GET_PPT_LIMIT: u32 = 0x23;
    pub const PREPARE_FOR_UNLOAD: u32 = 0x24;
    pub const RUN_DC_BTC: u32 = 0x27;
    pub const DRAM_LOG_SET_ADDRESS_HIGH: u32 = 0x28;
    pub const DRAM_LOG_SET_SIZE: u32 = 0x2a;
    pub const SET_NUM_BAD_PAGES: u32 = 0x2f;
    pub const DF_CSTATE_CONTROL: u32 = 0x32;
    pub const GMI_PWR_DN_CONTROL: u32 = 0x35;
    pub const ENABLE_DETERMINISM: u32 = 0x39;
    pub const DISABLE_DETERMINISM: u32 = 0x3a;
    pub const SET_UCLK_DPM_MODE: u32 = 0x3b;
    pub const BOARD_POWER_CALIBRATION: u32 = 0x43;
    pub const HEAVY_SBR: u32 = 0x45;
}

/// Frequency in MHz of a clock's level, by `PPCLK_*`.
fn clock(id: u32, level: u32) -> Option<u32> {
    // The others are as 13.0.6 counts them, after the shaders'.
    match id {
        0 => {
            let range = [MIN_GFXCLK, 900, 1300, MAX_GFXCLK];
            range.get(level as usize).copied()
        }
        _ => metrics::clock(id - 1, level),
    }
}

/// The message's value, or the result code of its failure.
pub fn answer(smu: &Smu, chip: &Chip, message: u32, argument: u32) -> Result<u32, u32> {
    use message::*;
    match message {
        TEST => Ok(argument.wrapping_add(1)),
        GET_SMU_VERSION => Ok(chip.preset.firmware.pmfw),
        GET_DRIVER_IF_VERSION => Ok(DRIVER_IF_VERSION),
        GFX_DRIVER_RESET if argument & 0xffff == MODE_1_RESET => {
            chip.request_reset();
            Ok(0)
        }
        ENABLE_ALL_FEATURES => Ok(smu.enable(FEATURES)),
        DISABLE_ALL_FEATURES => Ok(smu.enable(0)),
        GET_FEATURES_LOW => Ok(smu.enabled() & FEATURES),
        GET_FEATURES_HIGH => Ok(0),
        SET_DRIVER_ADDRESS_HIGH => Ok(smu.set_address(argument, 32)),
        SET_DRIVER_ADDRESS_LOW => Ok(smu.set_address(argument, 0)),
        TRANSFER_TO_DRAM if argument & 0xffff == METRICS => {
            let (ticks, load) = smu.load(chip);
            smu.send(chip, &table(smu.serial, ticks, load))
        }
        TRANSFER_TO_SMU if argument & 0xffff == PPTABLE => Ok(0),
        // Nothing sits on the I2C bus, and there are no other tables.
        TRANSFER_TO_DRAM | TRANSFER_TO_SMU => Err(FAILED),
        GET_MIN_DPM_FREQ => clock(argument >> 16, 0).ok_or(FAILED),
        GET_MAX_DPM_FREQ => clock(argument >> 16, CLOCK_LEVELS - 1).ok_or(FAILED),
        GET_DPM_FREQ_BY_INDEX if argument & 0xff == 0xff => Ok(CLOCK_LEVELS - 1),
        GET_DPM_FREQ_BY_INDEX => clock(argument >> 16, argument & 0xff).ok_or(FAILED),
        GET_PPT_LIMIT => Ok(POWER),
        // Requests that are fine and change nothing here.
        SET_TOOLS_ADDRESS_HIGH
        | SET_TOOLS_ADDRESS_LOW
        | SET_SOFT_MIN_BY_FREQ..=SET_HARD_MAX_BY_FREQ
        | SET_WORKLOAD_MASK
        | SET_PPT_LIMIT
        | PREPARE_FOR_UNLOAD
        | RUN_DC_BTC
        | DRAM_LOG_SET_ADDRESS_HIGH..=DRAM_LOG_SET_SIZE
        | SET_NUM_BAD_PAGES
        | DF_CSTATE_CONTROL
        | GMI_PWR_DN_CONTROL
        | ENABLE_DETERMINISM
        | DISABLE_DETERMINISM
        | SET_UCLK_DPM_MODE
        | BOARD_POWER_CALIBRATION
        | HEAVY_SBR => Ok(0),
        _ => {
            tracing::warn!(target: "smu", "message {message:#x} is not modelled");
            Err(UNKNOWN_COMMAND)
        }
    }
}

/// The metrics table.
fn table(serial: u32, ticks: u64, load: Load) -> Vec<u8> {
    const BYTES: usize = 120;
    let mut bytes = vec![0; BYTES];
    let mut short = |at: usize, value: u32| {
        bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    };
    let gfxclk = load.of(MIN_GFXCLK, MAX_GFXCLK);
    let clocks = [gfxclk, VCLK[0], DCLK[0], SOCCLK[0], UCLK[0], FCLK[0]];
    for (id, clock) in clocks.into_iter().enumerate() {
        short(2 * id, clock); // CurrClock
    }
    short(12, metrics::LCLK[0]);
    short(16, gfxclk); // AverageGfxclkFrequency
    short(18, SOCCLK[0]); // AverageSocclkFrequency
    short(20, UCLK[0]); // AverageUclkFrequency
    short(22, load.percent); // AverageGfxActivity
    short(30, load.of(90, POWER)); // AverageSocketPower
    short(32, load.of(36, 70)); // TemperatureEdge
    short(34, load.of(38, 74)); // TemperatureHotspot
    short(36, load.of(35, 55)); // TemperatureHBM
    short(38, load.of(40, 68)); // TemperatureVrGfx
    for stack in 0..4 {
        short(56 + 2 * stack, load.of(35, 55)); // TemperatureAllHBM
    }
    let mut long = |at: usize, value: u64| {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    long(48, 0x7408_0000_0000_0000 | u64::from(serial) << 8); // PublicSerialNum
    long(72, load.energy); // EnergyAcc64bit
    long(80, ticks); // TimeStamp
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{tests::send, OK};
    use super::*;
    use crate::preset::Preset;
    use crate::rig::{Rig, FB};

    #[test]
    fn messages_have_numbers_of_their_own() {
        let rig = Rig::of(Preset::mi250x());
        assert_eq!(send(&rig, message::GET_DRIVER_IF_VERSION, 0), (OK, 8));
        assert_eq!(send(&rig, message::GET_FEATURES_LOW, 0), (OK, FEATURES));
        // PPCLK_UCLK is 4.
        let uclk = 4 << 16 | 3;
        assert_eq!(
            send(&rig, message::GET_DPM_FREQ_BY_INDEX, uclk),
            (OK, UCLK[3])
        );
        assert_eq!(send(&rig, message::GET_MAX_DPM_FREQ, 0), (OK, MAX_GFXCLK));
        assert_eq!(send(&rig, 0x5, 0).0, UNKNOWN_COMMAND);
    }

    #[test]
    fn metrics_go_where_the_driver_says() {
        let rig = Rig::of(Preset::mi250x());
        send(&rig, message::SET_DRIVER_ADDRESS_HIGH, (FB >> 32) as u32);
        send(&rig, message::SET_DRIVER_ADDRESS_LOW, 0x40_0000);
        assert_eq!(send(&rig, message::TRANSFER_TO_DRAM, METRICS).0, OK);
        assert_eq!(
            rig.vram().read_u32(0x40_0000),
            Ok(MIN_GFXCLK | VCLK[0] << 16)
        );
        assert_eq!(send(&rig, message::TRANSFER_TO_DRAM, 7).0, FAILED);
    }
}
