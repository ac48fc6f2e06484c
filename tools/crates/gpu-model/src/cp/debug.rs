// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What registers say about debugging the waves of a VMID: how they are launched, with which
//! exceptions, and which addresses are watched. Pure; one [`WatchRegisters`] per XCC.
//!
//! Sources: SPI_GDBG_PER_VMID_CNTL and TCP_WATCHn_* of `gc_9_4_3_sh_mask.h`; what they mean, from
//! `amdgpu/amdgpu_amdkfd_gc_9_4_3.c`.

use gcn::wave::{mode, sreg, status, trapsts};
use gcn::{Debug, Target, Watch, WatchMode, Wave, WaveState};

use super::layout::{spi_gdbg, tcp_watch_addr_h, tcp_watch_addr_l, tcp_watch_cntl};
use crate::processor::bus::wide;

/// SPI_GDBG_PER_VMID_CNTL.LAUNCH_MODE; 0 is as ever. HALT and DEBUG are those of `uapi/kfd_ioctl.h`
/// (KFD_DBG_TRAP_WAVE_LAUNCH_MODE_*); older ones had KILL.
mod launch_mode {
    pub const HALT: u32 = 1;
    pub const KILL: u32 = 2;
    pub const DEBUG: u32 = 3;
}

/// Of a VMID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Control {
    /// SPI_GDBG_PER_VMID_CNTL.
    pub spi: u32,
    /// What goes to its work-groups.
    pub debug: Debug,
}

impl Control {
    /// Whether waves have a trap handler, whatever their dispatch says, and trap temporaries with
    /// what debuggers want to know.
    pub const fn has_traps(&self) -> bool {
        spi_gdbg::TRAP_EN.pick(self.spi) != 0
    }

    /// Whether no wave is launched.
    pub const fn is_stalled(&self) -> bool {
        spi_gdbg::STALL_VMID.pick(self.spi) != 0
    }

    /// Launches a wave as it says; `group` and `packet` are what the SPI leaves for debuggers in
    /// TTMP8 to 11: the work-group's id, and the packet's index in the ring.
    pub fn launch(&self, wave: &mut Wave, group: [u32; 3], packet: u32) {
        if self.has_traps() {
            const TTMP8: usize = sreg::TTMP0 + 8;
            wave.scalar[TTMP8..TTMP8 + 3].copy_from_slice(&group);
            wave.scalar[TTMP8 + 3] = (packet & 0x1ff_ffff) << 6 | wave.number & 0x3f;
        }
        let enabled = spi_gdbg::EXCP_EN.pick(self.spi) << mode::EXCP_EN_SHIFT;
        if spi_gdbg::EXCP_REPLACE.pick(self.spi) != 0 {
            wave.mode &= !mode::EXCP_EN;
        }
        wave.mode |= enabled;
        if spi_gdbg::TRAP_ON_END.pick(self.spi) != 0 {
            wave.mode |= mode::TRAP_ON_END;
        }
        match spi_gdbg::LAUNCH_MODE.pick(self.spi) {
            launch_mode::HALT => return wave.status |= status::HALT,
            launch_mode::KILL => return wave.state = WaveState::Ended,
            launch_mode::DEBUG => wave.mode |= mode::DEBUG_EN,
            _ => {}
        }
        if spi_gdbg::TRAP_ON_START.pick(self.spi) != 0 {
            wave.except(trapsts::WAVE_BEGIN, 0);
        }
    }
}

/// A watch's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WatchRegister {
    /// TCP_WATCHn_ADDR_H.
    pub high: u32,
    /// TCP_WATCHn_ADDR_L.
    pub low: u32,
    /// TCP_WATCHn_CNTL.
    pub control: u32,
}

/// Those of all watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WatchRegisters(pub [WatchRegister; 4]);

/// The lowest bit of an address that is watched, of MASK as well (TCP_WATCH0_ADDR_L.ADDR, in
/// `gc_9_4_2_sh_mask.h` and `gc_9_4_3_sh_mask.h`).
fn lowest_bit(target: Target) -> u32 {
    match target {
        Target::Gfx90a => 6,
        Target::Gfx942 | Target::Gfx950 => tcp_watch_addr_l::ADDR.mask().trailing_zeros(),
    }
}

/// Bits of an address that no mask covers: those above MASK's 24.
fn compared(lowest: u32) -> u64 {
    0xffff_ffff_ffff & !0 << (lowest + 24)
}

impl WatchRegisters {
    /// MAP_PROCESS gives a VMID these TCP_WATCHn_CNTL. A watch of another VMID stays if the process
    /// does not use it.
    pub fn bind(&mut self, vmid: u8, controls: [u32; 4]) {
        for (watch, control) in self.0.iter_mut().zip(controls) {
            let own = tcp_watch_cntl::VMID.pick(watch.control) == u32::from(vmid);
            if own || tcp_watch_cntl::VALID.pick(control) != 0 {
                watch.control = tcp_watch_cntl::VMID.replace(control, vmid.into());
            }
        }
    }

    /// The watches of a VMID.
    pub fn of(&self, vmid: u8, target: Target) -> [Option<Watch>; 4] {
        self.0.map(|it| it.of(vmid, lowest_bit(target)))
    }
}

impl WatchRegister {
    fn of(&self, vmid: u8, lowest: u32) -> Option<Watch> {
        let control = self.control;
        let own = tcp_watch_cntl::VMID.pick(control) == u32::from(vmid);
        (own && tcp_watch_cntl::VALID.pick(control) != 0).then(|| Watch {
            address: wide(
                self.low & !0 << lowest,
                tcp_watch_addr_h::ADDR.pick(self.high),
            ),
            mask: compared(lowest) | u64::from(tcp_watch_cntl::MASK.pick(control)) << lowest,
            mode: match tcp_watch_cntl::MODE.pick(control) {
                0 => WatchMode::Read,
                1 => WatchMode::NonRead,
                2 => WatchMode::Atomic,
                _ => WatchMode::All,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gcn::wave::mode::EXCP_EN_SHIFT;

    fn launched(spi: u32, excp_en: u32) -> Wave {
        let mut wave = Wave::new(0x1000, 1, 0);
        wave.tba = 0x4000;
        wave.status |= status::TRAP_EN;
        wave.mode |= excp_en << EXCP_EN_SHIFT;
        wave.number = 3;
        let debug = Debug::default();
        Control { spi, debug }.launch(&mut wave, [5, 6, 7], 9);
        wave
    }

    #[test]
    fn waves_are_launched_as_the_register_says() {
        let excp_en = |wave: &Wave| (wave.mode & mode::EXCP_EN) >> EXCP_EN_SHIFT;
        let plain = launched(0, 0x41);
        assert_eq!(plain.mode, Wave::new(0, 1, 0).mode | 0x41 << EXCP_EN_SHIFT);
        assert_eq!(plain.scalar[sreg::TTMP0..sreg::TTMP0 + 16], [0; 16]);
        let trapping = launched(1 << 3, 0);
        let ttmps = &trapping.scalar[sreg::TTMP0 + 8..sreg::TTMP0 + 12];
        assert_eq!(ttmps, [5, 6, 7, 9 << 6 | 3]);
        assert_eq!(excp_en(&launched(0x102 << 4, 0x41)), 0x143, "or");
        assert_eq!(excp_en(&launched(0x102 << 4 | 1 << 13, 0x41)), 0x102);
        assert_ne!(launched(1 << 1, 0).status & status::HALT, 0);
        assert_eq!(launched(2 << 1, 0).state, WaveState::Ended);
        assert_ne!(launched(3 << 1, 0).mode & mode::DEBUG_EN, 0);
        assert_ne!(launched(1 << 15, 0).mode & mode::TRAP_ON_END, 0);
        assert_eq!(launched(1 << 14, 0).pending.bits, trapsts::WAVE_BEGIN);
    }

    #[test]
    fn a_watch_is_the_vmids_that_uses_it() {
        let mut registers = WatchRegisters::default();
        (registers.0[1].high, registers.0[1].low) = (0xabcd_7fff, 0x1234_5fff);
        let control = 1 << 31 | 3 << 29 | 0xff_fff0;
        registers.bind(8, [0, control, 0, 0]);
        let watch = Watch {
            address: 0x7fff_1234_5f80,
            mask: 0xffff_8000_0000 | 0xff_fff0 << 7,
            mode: WatchMode::All,
        };
        assert_eq!(
            registers.of(8, Target::Gfx942),
            [None, Some(watch), None, None]
        );
        assert_eq!(registers.of(9, Target::Gfx942), [None; 4]);
        registers.bind(9, [0; 4]);
        assert_eq!(registers.of(8, Target::Gfx942)[1], Some(watch));
        registers.bind(8, [0; 4]);
        assert_eq!(registers.of(8, Target::Gfx942), [None; 4]);
        registers.bind(8, [0, control, 0, 0]);
        let watch = Watch {
            address: 0x7fff_1234_5fc0,
            mask: 0xffff_c000_0000 | 0xff_fff0 << 6,
            mode: WatchMode::All,
        };
        assert_eq!(registers.of(8, Target::Gfx90a)[1], Some(watch));
        let mode = |mode: u32| {
            let mut registers = WatchRegisters::default();
            registers.bind(8, [1 << 31 | mode << 29, 0, 0, 0]);
            registers.of(8, Target::Gfx942)[0].map(|watch| watch.mode)
        };
        use WatchMode::*;
        assert_eq!(
            [0, 1, 2].map(mode),
            [Some(Read), Some(NonRead), Some(Atomic)]
        );
    }
}
