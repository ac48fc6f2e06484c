// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The metrics table of the SMU: `MetricsTableV0_t` of `linux:.../pmfw_if/smu_v13_0_6_pmfw.h`, 2268
//! bytes, packed. Made afresh for each request.
//!
//! Frequencies, powers and temperatures are fixed numbers of an idle card in 22.10 fixed point;
//! accumulating fields follow the reference clock.

use crate::preset::Preset;

/// Shader clock range in MHz.
pub const MIN_GFXCLK: u32 = 132;
pub const MAX_GFXCLK: u32 = 2100;
/// Watts.
pub const POWER_LIMIT: u32 = 750;
/// Degrees Celsius.
pub const TEMPERATURE_LIMIT: u32 = 105;

const FCLK: [u32; 4] = [1200, 1600, 1800, 2000];
const UCLK: [u32; 4] = [900, 1000, 1200, 1300];
const SOCCLK: [u32; 4] = [800, 900, 1000, 1143];
const VCLK: [u32; 4] = [600, 800, 1000, 1200];
const DCLK: [u32; 4] = [500, 700, 850, 1000];
const LCLK: [u32; 4] = [400, 500, 600, 700];

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

/// The whole table.
pub fn table(preset: &Preset, serial: u32, ticks: u64) -> Vec<u8> {
    let mut t = Table::default();
    // AccumulationCounter: must not be 0.
    t.u32((ticks as u32).max(1));
    // MaxSocketTemperature, MaxVrTemperature, MaxHbmTemperature and their sums.
    t.fixed_all(&[40, 40, 35]).zeros64(3);
    // SocketPowerLimit, MaxSocketPowerLimit, SocketPower.
    t.fixed_all(&[POWER_LIMIT, POWER_LIMIT, 130]);
    // Timestamp; energy sums of socket, CCD, XCD, AID, HBM.
    t.u64(ticks).zeros64(5);
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
    // XgmiWidth, XgmiBitrate, and bandwidth sums: no link.
    t.zeros32(2).zeros64(16);
    // SocketC0Residency, SocketGfxBusy, DramBandwidthUtilization and sums; MaxDramBandwidth; more
    // sums; PcieBandwidthAcc.
    t.zeros32(3).zeros64(3).zeros32(1).zeros64(1).zeros64(4);
    // Throttler residencies (5), GfxLockXCDMak.
    t.zeros32(6);
    // GfxclkFrequency.
    t.fixed_all(&[MIN_GFXCLK; 8]);
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
    t.zeros32(8).zeros64(8).zeros32(1).zeros64(32);
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
        assert_eq!(table(&Preset::mi300x(), 0, 7).len(), 2268);
    }
}
