// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! System management unit (MP1 13.0.6, or 13.0.2: [`aldebaran`]): a mailbox for power management.
//! One per GPU.
//!
//! Clocks, power and temperatures it reports follow how busy the queues are; requests to change
//! them are taken and have no effect. Messages as in
//! `linux:drivers/gpu/drm/amd/pm/swsmu/inc/pmfw_if/smu_v13_0_6_ppsmc.h` (`PPSMC_MSG_*`).

pub mod aldebaran;
mod metrics;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::bus::Block;
use crate::chip::Chip;
use crate::gmc::Hub;
use crate::inject::rule::SmuFate;
use crate::preset::{ip, Generation, Preset};
use crate::registers;
use crate::regs::{name_of, place, Key, Placed, RegisterFile};

registers! {
    /// The mailbox of MP1 and the little else the driver uses.
    pub enum SmuRegister from "mp/mp_13_0_2" {
        /// The message; writing it runs it.
        MP1_SMN_C2PMSG_66 = 0 @ 0x0282;
        /// Argument and answer.
        MP1_SMN_C2PMSG_82 = 0 @ 0x0292;
        /// Result, `PPSMC_Result_*`; 0 while busy.
        MP1_SMN_C2PMSG_90 = 0 @ 0x029a;
        MP1_SMN_IH_SW_INT = 0 @ 0x02c2;
        MP1_SMN_IH_SW_INT_CTRL = 0 @ 0x02c3;
    }
}

use SmuRegister::*;

/// `PPSMC_MSG_*` the model knows.
mod message {
    pub const TEST: u32 = 0x1;
    pub const GET_SMU_VERSION: u32 = 0x2;
    pub const GFX_DRIVER_RESET: u32 = 0x3;
    pub const GET_DRIVER_IF_VERSION: u32 = 0x4;
    pub const ENABLE_ALL_FEATURES: u32 = 0x5;
    pub const DISABLE_ALL_FEATURES: u32 = 0x6;
    pub const REQUEST_I2C_TRANSACTION: u32 = 0x7;
    pub const GET_METRICS_VERSION: u32 = 0x8;
    pub const GET_METRICS_TABLE: u32 = 0x9;
    pub const GET_FEATURES_LOW: u32 = 0xb;
    pub const GET_FEATURES_HIGH: u32 = 0xc;
    pub const SET_DRIVER_ADDRESS_HIGH: u32 = 0xd;
    pub const SET_DRIVER_ADDRESS_LOW: u32 = 0xe;
    pub const SET_TOOLS_ADDRESS_HIGH: u32 = 0xf;
    pub const SET_TOOLS_ADDRESS_LOW: u32 = 0x10;
    pub const SET_SOFT_MIN_BY_FREQ: u32 = 0x13;
    pub const SET_SOFT_MAX_BY_FREQ: u32 = 0x14;
    pub const GET_MIN_DPM_FREQ: u32 = 0x15;
    pub const GET_MAX_DPM_FREQ: u32 = 0x16;
    pub const GET_DPM_FREQ_BY_INDEX: u32 = 0x17;
    pub const SET_PPT_LIMIT: u32 = 0x18;
    pub const GET_PPT_LIMIT: u32 = 0x19;
    pub const SET_NUM_BAD_PAGES: u32 = 0x1f;
    pub const DF_CSTATE_CONTROL: u32 = 0x20;
    pub const GMI_PWR_DN_CONTROL: u32 = 0x23;
    pub const ENABLE_DETERMINISM: u32 = 0x26;
    pub const DISABLE_DETERMINISM: u32 = 0x27;
    pub const SET_SOFT_MIN_GFXCLK: u32 = 0x30;
    pub const SET_SOFT_MAX_GFXCLK: u32 = 0x31;
    pub const GET_MIN_GFX_FREQ: u32 = 0x32;
    pub const GET_MAX_GFX_FREQ: u32 = 0x33;
    pub const PREPARE_FOR_UNLOAD: u32 = 0x34;
    pub const READ_THROTTLER_LIMIT: u32 = 0x35;
    pub const QUERY_VALID_MCA_COUNT: u32 = 0x36;
    pub const GET_CTF_LIMIT: u32 = 0x38;
    pub const CLEAR_MCA_ON_READ: u32 = 0x39;
    pub const QUERY_VALID_MCA_CE_COUNT: u32 = 0x3a;
    pub const SELECT_PLPD_MODE: u32 = 0x40;
    pub const SET_THROTTLING_POLICY: u32 = 0x44;
    pub const RESET_SDMA: u32 = 0x4d;
}

/// `PPSMC_Result_OK`, `_Failed`, `_UnknownCmd`.
const OK: u32 = 0x1;
const FAILED: u32 = 0xff;
const UNKNOWN_COMMAND: u32 = 0xfe;
/// `PPSMC_RESET_TYPE_DRIVER_MODE_1_RESET`.
const MODE_1_RESET: u32 = 0x1;

/// The first firmware that has `PPSMC_MSG_ResetSDMA` (`SMU_CAP(SDMA_RESET)`).
const FIRST_RESETS_SDMA: u32 = 0x0055_7900;
/// `SMU13_0_6_DRIVER_IF_VERSION`.
const DRIVER_IF_VERSION: u32 = 0x0804_2024;
/// `MetricsTableV0_t` is what version 0xb describes.
const METRICS_VERSION: u32 = 0xb;
/// `FEATURE_DATA_CALCULATION`; from 2 on `_DPM_FCLK`, `_GFXCLK`, `_LCLK`, `_SOCCLK`, `_UCLK`,
/// `_VCN`; `_PPT`, `_THERMAL`.
const FEATURES_LOW: u32 = 1 | 0x3f << 2 | 1 << 23 | 1 << 25;
/// Levels of each clock other than the shaders'.
const CLOCK_LEVELS: u32 = 4;

/// The block.
pub struct Smu {
    bases: Vec<u32>,
    registers: RegisterFile<SmuRegister>,
    /// The card's number.
    serial: u32,
    /// Features that are on, of those that there are.
    enabled: AtomicU32,
    /// Where the driver wants tables.
    driver_address: AtomicU64,
    /// How busy the GPU is, and what it used.
    load: Mutex<metrics::Load>,
    /// A message that the fault injection delays, and until when.
    pending: Mutex<Option<(Instant, u32)>>,
}

impl Smu {
    pub fn new(preset: &Preset, serial: u32) -> Self {
        let block = Self {
            bases: preset.bases(ip::MP1, 0).to_vec(),
            registers: RegisterFile::new(),
            serial,
            enabled: AtomicU32::new(u32::MAX),
            driver_address: AtomicU64::new(0),
            pending: Mutex::default(),
            load: Mutex::default(),
        };
        block.power_on();
        block
    }

    fn power_on(&self) {
        self.registers.clear();
        self.registers.set(MP1_SMN_C2PMSG_90, OK);
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.enabled.store(u32::MAX, Ordering::Release);
    }

    /// Runs one message, unless the fault injection wants it otherwise.
    fn message(&self, chip: &Chip, message: u32) {
        let answer_later = match chip.inject.smu(message) {
            None => return self.run(chip, message),
            Some(SmuFate::Fail(result)) => return self.registers.set(MP1_SMN_C2PMSG_90, result),
            Some(SmuFate::Silent) => None,
            Some(SmuFate::Delay(delay)) => Some((Instant::now() + delay, message)),
        };
        self.registers.set(MP1_SMN_C2PMSG_90, 0);
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = answer_later;
    }

    /// Runs a delayed message whose time has come: when somebody looks for its answer.
    fn run_pending(&self, chip: &Chip) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, message)) = pending.take_if(|(due, _)| *due <= Instant::now()) {
            drop(pending);
            self.run(chip, message);
        }
    }

    fn run(&self, chip: &Chip, message: u32) {
        let argument = self.registers.get(MP1_SMN_C2PMSG_82);
        let answer = match chip.preset.generation {
            Generation::Mi300 => self.answer(chip, message, argument),
            Generation::Mi200 => aldebaran::answer(self, chip, message, argument),
        };
        tracing::debug!(target: "smu", "message {message:#x}({argument:#x}) = {answer:x?}");
        if let Ok(value) = answer {
            self.registers.set(MP1_SMN_C2PMSG_82, value);
        }
        self.registers.set(
            MP1_SMN_C2PMSG_90,
            answer.map_or_else(|result| result, |_| OK),
        );
    }

    /// The message's value, or the result code of its failure.
    fn answer(&self, chip: &Chip, message: u32, argument: u32) -> Result<u32, u32> {
        use message::*;
        match message {
            TEST => Ok(argument.wrapping_add(1)),
            GET_SMU_VERSION => Ok(chip.preset.firmware.pmfw),
            GET_DRIVER_IF_VERSION => Ok(DRIVER_IF_VERSION),
            GET_METRICS_VERSION => Ok(METRICS_VERSION),
            GET_METRICS_TABLE => self.send_metrics(chip),
            GET_FEATURES_LOW => Ok(self.enabled() & FEATURES_LOW),
            GET_FEATURES_HIGH => Ok(0),
            ENABLE_ALL_FEATURES => Ok(self.enable(FEATURES_LOW)),
            DISABLE_ALL_FEATURES => Ok(self.enable(0)),
            SET_DRIVER_ADDRESS_HIGH => Ok(self.set_address(argument, 32)),
            SET_DRIVER_ADDRESS_LOW => Ok(self.set_address(argument, 0)),
            // Bit 16 says that it is for a fatal error.
            GFX_DRIVER_RESET if argument & 0xffff == MODE_1_RESET => {
                chip.request_reset();
                Ok(0)
            }
            GET_MIN_DPM_FREQ => metrics::clock(argument >> 16, 0).ok_or(FAILED),
            GET_MAX_DPM_FREQ => metrics::clock(argument >> 16, CLOCK_LEVELS - 1).ok_or(FAILED),
            // Level 0xff asks for the highest level's index.
            GET_DPM_FREQ_BY_INDEX if argument & 0xff == 0xff => Ok(CLOCK_LEVELS - 1),
            GET_DPM_FREQ_BY_INDEX => metrics::clock(argument >> 16, argument & 0xff).ok_or(FAILED),
            GET_MIN_GFX_FREQ => Ok(metrics::MIN_GFXCLK),
            GET_MAX_GFX_FREQ => Ok(metrics::MAX_GFXCLK),
            GET_PPT_LIMIT => Ok(metrics::POWER_LIMIT),
            GET_CTF_LIMIT | READ_THROTTLER_LIMIT => Ok(metrics::TEMPERATURE_LIMIT),
            QUERY_VALID_MCA_COUNT | QUERY_VALID_MCA_CE_COUNT => Ok(0),
            // The copy engines by their bits, as the chip has them.
            RESET_SDMA if chip.preset.firmware.pmfw >= FIRST_RESETS_SDMA => {
                chip.request_sdma_reset(argument);
                Ok(0)
            }
            // Nothing sits on the I2C bus: no address is acknowledged.
            REQUEST_I2C_TRANSACTION => Err(FAILED),
            _ => self.accepted(message),
        }
    }

    /// Requests that are fine and change nothing here.
    fn accepted(&self, message: u32) -> Result<u32, u32> {
        use message::*;
        match message {
            SET_TOOLS_ADDRESS_HIGH
            | SET_TOOLS_ADDRESS_LOW
            | SET_SOFT_MIN_BY_FREQ
            | SET_SOFT_MAX_BY_FREQ
            | SET_PPT_LIMIT
            | SET_NUM_BAD_PAGES
            | DF_CSTATE_CONTROL
            | GMI_PWR_DN_CONTROL
            | ENABLE_DETERMINISM
            | DISABLE_DETERMINISM
            | SET_SOFT_MIN_GFXCLK
            | SET_SOFT_MAX_GFXCLK
            | PREPARE_FOR_UNLOAD
            | CLEAR_MCA_ON_READ
            | SELECT_PLPD_MODE
            | SET_THROTTLING_POLICY => Ok(0),
            _ => {
                tracing::warn!(target: "smu", "message {message:#x} is not modelled");
                Err(UNKNOWN_COMMAND)
            }
        }
    }

    fn enabled(&self) -> u32 {
        self.enabled.load(Ordering::Acquire)
    }

    fn enable(&self, features: u32) -> u32 {
        self.enabled.store(features, Ordering::Release);
        0
    }

    fn set_address(&self, half: u32, shift: u32) -> u32 {
        let old = self.driver_address.load(Ordering::Acquire);
        let new = old & !(0xffff_ffff << shift) | u64::from(half) << shift;
        self.driver_address.store(new, Ordering::Release);
        0
    }

    /// Writes the metrics table where the driver wants it.
    fn send_metrics(&self, chip: &Chip) -> Result<u32, u32> {
        let (ticks, load) = self.load(chip);
        let linked = chip.hive.is_some();
        let table = metrics::table(&chip.preset, self.serial, linked, ticks, load);
        self.send(chip, &table)
    }

    /// The time, and how busy the GPU is now.
    fn load(&self, chip: &Chip) -> (u64, metrics::Load) {
        let ticks = chip.clock.ticks();
        let busy = chip.busy.get().map_or(0, |it| it.load(Ordering::Relaxed));
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.update(ticks, busy);
        (ticks, *load)
    }

    /// Writes a table where the driver wants it.
    fn send(&self, chip: &Chip, table: &[u8]) -> Result<u32, u32> {
        let address = self.driver_address.load(Ordering::Acquire);
        chip.vm(Hub::Mm, 0).write(address, table).map_err(|fault| {
            tracing::warn!(target: "smu", "table: {fault}");
            FAILED
        })?;
        Ok(0)
    }
}

impl Block for Smu {
    fn name(&self) -> String {
        "MP1".into()
    }

    fn registers(&self) -> Vec<Placed> {
        place::<SmuRegister>(&self.bases)
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<SmuRegister>(key)
    }

    fn read(&self, chip: &Chip, key: Key) -> u32 {
        self.run_pending(chip);
        key.of::<SmuRegister>()
            .map_or(0, |(register, _)| self.registers.get(register))
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        match key.of::<SmuRegister>() {
            None => {}
            Some((register, _)) => {
                self.registers.set(register, value);
                if register == MP1_SMN_C2PMSG_66 {
                    self.message(chip, value);
                }
            }
        }
    }

    fn reset(&self, _chip: &Chip) {
        self.power_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, FB};

    /// MP1_SMN_C2PMSG_66, _82, _90.
    const MESSAGE: u64 = 0x1_6282;
    const ARGUMENT: u64 = 0x1_6292;
    const RESPONSE: u64 = 0x1_629a;

    pub fn send(rig: &Rig, message: u32, argument: u32) -> (u32, u32) {
        rig.write(RESPONSE, 0);
        rig.write(ARGUMENT, argument);
        rig.write(MESSAGE, message);
        (rig.read(RESPONSE), rig.read(ARGUMENT))
    }

    #[test]
    fn messages_answer_in_the_argument() {
        let rig = Rig::new();
        assert_eq!(send(&rig, message::TEST, 41), (OK, 42));
        assert_eq!(send(&rig, message::GET_SMU_VERSION, 0), (OK, 0x0055_4700));
        // PPCLK_UCLK is 3: the highest level, and that level's frequency.
        assert_eq!(
            send(&rig, message::GET_DPM_FREQ_BY_INDEX, 3 << 16 | 0xff),
            (OK, 3)
        );
        assert_eq!(
            send(&rig, message::GET_DPM_FREQ_BY_INDEX, 3 << 16 | 3),
            (OK, 1300)
        );
        assert_eq!(send(&rig, message::GET_MAX_DPM_FREQ, 99 << 16).0, FAILED);
    }

    #[test]
    fn unknown_messages_are_refused() {
        assert_eq!(send(&Rig::new(), 0x5a, 0).0, UNKNOWN_COMMAND);
    }

    #[test]
    fn features_follow_enable_and_disable() {
        let rig = Rig::new();
        send(&rig, message::DISABLE_ALL_FEATURES, 0);
        assert_eq!(send(&rig, message::GET_FEATURES_LOW, 0), (OK, 0));
        send(&rig, message::ENABLE_ALL_FEATURES, 0);
        assert_eq!(send(&rig, message::GET_FEATURES_LOW, 0), (OK, FEATURES_LOW));
    }

    #[test]
    fn metrics_go_where_the_driver_says() {
        let rig = Rig::new();
        send(&rig, message::SET_DRIVER_ADDRESS_HIGH, (FB >> 32) as u32);
        send(&rig, message::SET_DRIVER_ADDRESS_LOW, 0x40_0000);
        assert_eq!(send(&rig, message::GET_METRICS_TABLE, 0).0, OK);
        // SocketPowerLimit, after four dwords and three qwords.
        assert_eq!(
            rig.vram().read_u32(0x40_0000 + 40),
            Ok(metrics::POWER_LIMIT << 10)
        );
        send(&rig, message::SET_DRIVER_ADDRESS_HIGH, 0);
        assert_eq!(send(&rig, message::GET_METRICS_TABLE, 0).0, FAILED);
    }

    #[test]
    fn one_copy_engine_is_reset_by_firmware_that_can() {
        // RLC0_DOORBELL_OFFSET of either engine.
        let at = [0x1260, 0x1860].map(|base| base + 0x130 + 0x2b);
        for (preset, expected) in [
            (Preset::mi300x(), (UNKNOWN_COMMAND, [7, 7])),
            (Preset::mi300x_resets(), (OK, [7, 0])),
        ] {
            let rig = Rig::of(preset);
            at.iter().for_each(|at| rig.write(*at, 7));
            let result = send(&rig, message::RESET_SDMA, 1 << 1).0;
            assert_eq!((result, at.map(|at| rig.read(at))), expected);
        }
    }
}
