// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The metrics table of the SMU: `MetricsTableV0_t` of `linux:.../pmfw_if/smu_v13_0_6_pmfw.h`, 2268
//! bytes, packed. Made afresh for each request.
//!
//! Clocks, power and temperatures follow how busy the queues keep the model, between the numbers of
//! an idle card and of a fully used one, in 22.10 fixed point; accumulating fields follow the
//! reference clock.

use crate::chip::Clock;
use crate::preset::Preset;

/// Shader clock range in MHz.
pub const MIN_GFXCLK: u32 = 132;
pub const MAX_GFXCLK: u32 = 2100;
/// Watts.
pub const POWER_LIMIT: u32 = 750;
/// Degrees Celsius.
pub const TEMPERATURE_LIMIT: u32 = 105;

pub const FCLK: [u32; 4] = [1200, 1600, 1800, 2000];
pub const UCLK: [u32; 4] = [900, 1000, 1200, 1300];
pub const SOCCLK: [u32; 4] = [800, 900, 1000, 1143];
pub const VCLK: [u32; 4] = [600, 800, 1000, 1200];
pub const DCLK: [u32; 4] = [500, 700, 850, 1000];
pub const LCLK: [u32; 4] = [400, 500, 600, 700];

/// Frequency in MHz of a clock's level, by `PPCLK_*` (`smu_v13_0_6_pmfw.h`).
pub fn clock(id: u32, level: u32) -> Option<u32> {
    let table = match id {
        0 => VCLK,
        1 => DCLK,
        2 => SOCCLK,
        3 => UCLK,
        4 => FCLK,
        5 => LCLK,
        _ => return None,
    };
    table.get(level as usize).copied()
}

/// How busy the GPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Percent of the last while.
    pub percent: u32,
    /// Used so far, in units of 2^-16 J.
    pub energy: u64,
    /// Ticks and busy nanoseconds at the last look.
    seen: (u64, u64),
}

impl Load {
    /// A shorter while says little.
    const WHILE: u64 = Clock::FREQUENCY / 20;

    /// Looks again.
    pub fn update(&mut self, ticks: u64, busy: u64) {
        let passed = ticks.saturating_sub(self.seen.0);
        if passed < Self::WHILE {
            return;
        }
        let nanoseconds = passed.saturating_mul(1_000_000_000 / Clock::FREQUENCY);
        let busy_share = busy.saturating_sub(self.seen.1).saturating_mul(100) / nanoseconds.max(1);
        self.percent = busy_share.min(100) as u32;
        self.energy += (passed / 1000).saturating_mul(u64::from(self.power()) << 16)
            / (Clock::FREQUENCY / 1000);
        self.seen = (ticks, busy);
    }

    /// Something that is `idle` at rest and `full` under full load.
    pub fn of(&self, idle: u32, full: u32) -> u32 {
        idle + (full - idle) * self.percent / 100
    }

    /// Watts.
    fn power(&self) -> u32 {
        self.of(130, 610)
    }
}

/// Collects the fields in order.
#[derive(Default)]
struct Table(Vec<u8>);

impl Table {
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A number in 22.10 fixed point.
    fn fixed(&mut self, value: u32) -> &mut Self {
        self.u32(value << 10)
    }

    fn fixed_all(&mut self, values: &[u32]) -> &mut Self {
        for &value in values {
            self.fixed(value);
        }
        self
    }

    fn zeros32(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count * 4, 0);
        self
    }

    fn zeros64(&mut self, count: usize) -> &mut Self {
        self.zeros32(count * 2)
    }
}

/// Lanes and Gbit/s of a link (`amdgpu_xgmi_early_init` has the same).
const XGMI_LINK: (u32, u32) = (16, 32);

/// The whole table; `linked`: the card is in a hive.
pub fn table(preset: &Preset, serial: u32, linked: bool, ticks: u64, load: Load) -> Vec<u8> {
    let mut t = Table::default();
    // AccumulationCounter: must not be 0.
    t.u32((ticks as u32).max(1));
    // MaxSocketTemperature, MaxVrTemperature, MaxHbmTemperature and their sums.
    t.fixed_all(&[load.of(38, 74), load.of(40, 68), load.of(35, 55)])
        .zeros64(3);
    // SocketPowerLimit, MaxSocketPowerLimit, SocketPower.
    t.fixed_all(&[POWER_LIMIT, POWER_LIMIT, load.power()]);
    // Timestamp; energy sums of socket, CCD, XCD, AID, HBM.
    t.u64(ticks).u64(load.energy).zeros64(4);
    // CclkFrequencyLimit, GfxclkFrequencyLimit, FclkFrequency, UclkFrequency.
    t.fixed_all(&[0, MAX_GFXCLK, FCLK[0], UCLK[0]]);
    // SocclkFrequency, VclkFrequency, DclkFrequency, LclkFrequency per die.
    t.fixed_all(&[SOCCLK[0]; 4])
        .fixed_all(&[VCLK[0]; 4])
        .fixed_all(&[DCLK[0]; 4]);
    t.fixed_all(&[LCLK[0]; 4]);
    // GfxclkFrequencyAcc, CclkFrequencyAcc.
    t.zeros64(8).zeros64(96);
    // MaxCclkFrequency, MinCclkFrequency, MaxGfxclkFrequency, MinGfxclkFrequency; the levels.
    t.fixed_all(&[0, 0, MAX_GFXCLK, MIN_GFXCLK]);
    for levels in [FCLK, UCLK, SOCCLK, VCLK, DCLK, LCLK] {
        t.fixed_all(&levels);
    }
    // MaxLclkDpmRange, MinLclkDpmRange.
    t.u32(3).u32(0);
    // XgmiWidth (lanes), XgmiBitrate (Gbit/s of a lane), and bandwidth sums: of the links of a
    // hive.
    let (width, rate) = if linked { XGMI_LINK } else { (0, 0) };
    t.u32(width).u32(rate).zeros64(16);
    // SocketC0Residency, SocketGfxBusy, DramBandwidthUtilization and sums; MaxDramBandwidth; more
    // sums; PcieBandwidthAcc.
    t.zeros32(1).fixed(load.percent).zeros32(1);
    t.zeros64(3).zeros32(1).zeros64(1).zeros64(4);
    // Throttler residencies (5), GfxLockXCDMak.
    t.zeros32(6);
    // GfxclkFrequency.
    t.fixed_all(&[load.of(MIN_GFXCLK, MAX_GFXCLK); 8]);
    // PublicSerialNumber_AID, _XCD, _CCD.
    serial_numbers(&mut t, preset, serial);
    // XgmiReadDataSizeAcc, XgmiWriteDataSizeAcc.
    t.zeros64(16);
    // PcieBandwidth, five PCIe error counts.
    t.zeros32(4 + 5);
    // VcnBusy, JpegBusy.
    t.zeros32(4 + 32);
    // PCIeLinkSpeed, PCIeLinkWidth.
    t.u32(5).u32(16);
    // GfxBusy, GfxBusyAcc, PCIeOtherEndRecoveryAcc, four sums per XCC of clocks below a limit.
    t.fixed_all(&[load.percent; 8]);
    t.zeros64(8).zeros32(1).zeros64(32);
    t.0
}

/// One per die that exists: device id, the card's number, the die's. No real card has them.
fn serial_numbers(t: &mut Table, preset: &Preset, card: u32) {
    let head = u64::from(preset.device_id) << 48 | u64::from(card) << 8;
    let serial = |unit: u64| head | unit;
    t.u64(serial(0)).zeros64(3);
    for xcc in 0..8 {
        t.u64(if xcc < preset.xccs {
            serial(u64::from(xcc) + 0x10)
        } else {
            0
        });
    }
    t.zeros64(12);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_size_of_the_drivers_struct() {
        assert_eq!(
            table(&Preset::mi300x(), 0, true, 7, Load::default()).len(),
            2268
        );
    }

    #[test]
    fn load_moves_with_busy_time_and_stays_within_bounds() {
        let mut load = Load::default();
        load.update(Clock::FREQUENCY, 500_000_000);
        assert_eq!(load.percent, 50);
        assert_eq!((load.power(), load.of(10, 20)), (370, 15));
        load.update(Clock::FREQUENCY + 10, 900_000_000);
        assert_eq!(load.percent, 50, "too soon to say");
        let energy = load.energy;
        load.update(2 * Clock::FREQUENCY, u64::MAX / 200);
        assert_eq!(load.percent, 100);
        assert_eq!((load.energy - energy) >> 16, 610);
        load.update(3 * Clock::FREQUENCY, 0);
        assert_eq!(load.percent, 0);
    }
}
