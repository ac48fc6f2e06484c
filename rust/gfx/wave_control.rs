// SPDX-License-Identifier: GPL-2.0-only

//! What a debugger may set for the waves of one process on one GPU, as generations have it in
//! common. How it reads in a packet is for each generation's
//! [`RunlistFormat`](super::RunlistFormat) to say.

use core::num::NonZero;

/// Watch points that a GPU has (`MAX_WATCH_ADDRESSES` of kfd_debug.c).
pub(crate) const WATCH_POINTS: usize = 4;

/// How a wave begins (`enum kfd_dbg_trap_wave_launch_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LaunchMode {
    /// It runs.
    #[default]
    Normal = 0,
    /// It is halted.
    Halt = 1,
    /// It traps before each instruction.
    Debug = 3,
}

impl LaunchMode {
    /// The mode of this number.
    pub(crate) const fn new(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Normal),
            1 => Some(Self::Halt),
            3 => Some(Self::Debug),
            _ => None,
        }
    }
}

/// What makes a wave trap (`enum kfd_dbg_trap_mask`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrapMask(u32);

impl TrapMask {
    /// `KFD_DBG_TRAP_MASK_FP_INVALID` to `KFD_DBG_TRAP_MASK_DBG_MEMORY_VIOLATION`: what an
    /// instruction comes to.
    const EXCEPTIONS: u32 = 0x1ff;
    /// `KFD_DBG_TRAP_MASK_TRAP_ON_WAVE_START`
    const ON_START: u32 = 1 << 30;
    /// `KFD_DBG_TRAP_MASK_TRAP_ON_WAVE_END`
    const ON_END: u32 = 1 << 31;
    /// All that there is.
    pub(crate) const ALL: Self = Self(Self::EXCEPTIONS | Self::ON_START | Self::ON_END);

    /// Those of `bits` that there are.
    pub(crate) const fn new(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits of the user ABI.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Bit n: exception n.
    pub(crate) const fn exceptions(self) -> u32 {
        self.0 & Self::EXCEPTIONS
    }

    /// A wave traps before its first instruction.
    pub(crate) const fn on_start(self) -> bool {
        self.0 & Self::ON_START != 0
    }

    /// A wave traps before it ends.
    pub(crate) const fn on_end(self) -> bool {
        self.0 & Self::ON_END != 0
    }

    /// As `values` says for the bits of `chosen`, and as it is for the others.
    pub(crate) const fn with(self, values: u32, chosen: u32) -> Self {
        Self::new(values & chosen | self.0 & !chosen)
    }
}

/// Which accesses a watch point catches, and where. The address itself is in registers of its own.
///
/// One word (bits 31 to 6: the mask; 2 to 1: the mode; 0: set), for every process has four of these
/// at a scheduler, used or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch(NonZero<u32>);

impl Watch {
    /// Bits of a mask that do not count on any generation.
    const BELOW: u32 = 0x3f;

    /// `mode`, of which two bits count (`enum kfd_dbg_trap_address_watch_mode`): 0: reads; 1:
    /// writes and atomics; 2: atomics; 3: all. `mask`: bits of the address that count.
    pub(crate) const fn new(mode: u32, mask: u32) -> Self {
        let word = mask & !Self::BELOW | (mode & 3) << 1;
        Self(NonZero::<u32>::MIN.saturating_add(word))
    }

    pub(crate) const fn mode(self) -> u32 {
        self.0.get() >> 1 & 3
    }

    pub(crate) const fn mask(self) -> u32 {
        self.0.get() & !Self::BELOW
    }
}

/// What a debugger has set for the waves of a process on a GPU. The default is what waves without a
/// debugger have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaveControl {
    pub(crate) launch_mode: LaunchMode,
    /// Waves keep dispatch information in their trap temporaries, on a GPU where they do not always
    /// (`Chip::dispatch_info_always_valid`).
    pub(crate) dispatch_info: bool,
    pub(crate) traps: TrapMask,
    /// They replace what the wave's program asks for, rather than adding to it.
    pub(crate) replaces_traps: bool,
    pub(crate) watches: [Option<Watch>; WATCH_POINTS],
    /// Each memory operation has ended before the next instruction begins: it is the one that a
    /// fault is reported for.
    pub(crate) single_memory_operations: bool,
}

impl WaveControl {
    /// `None`: it is what waves without a debugger have.
    pub(crate) fn set(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx_wave_control))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_the_header() {
        for number in 0..=u32::from(u8::MAX) + 1 {
            let known = LaunchMode::new(number).map(|mode| mode as u32);
            assert_eq!(known, [0, 1, 3].contains(&number).then_some(number));
        }
        assert_eq!(LaunchMode::default(), LaunchMode::Normal);
    }

    #[test]
    fn a_watch_point_is_one_word() {
        for mode in 0..4 {
            for mask in [0, 0x40, 0x7fff_ff80, u32::MAX] {
                let watch = Watch::new(mode, mask);
                assert_eq!((watch.mode(), watch.mask()), (mode, mask & !0x3f));
            }
        }
        assert_eq!(Watch::new(5, 0), Watch::new(1, 0));
        assert_eq!(size_of::<Option<WaveControl>>(), 24);
    }

    #[test]
    fn only_chosen_traps_change() {
        let before = TrapMask::new(0x41);
        assert_eq!(before.with(0x2, 0x3).bits(), 0x42);
        assert_eq!(before.with(u32::MAX, 0), before);
        assert_eq!(TrapMask::default().with(u32::MAX, u32::MAX), TrapMask::ALL);
        assert_eq!(TrapMask::new(u32::MAX).bits(), 0xc000_01ff);
    }

    #[test]
    fn a_mask_has_exceptions_and_the_ends_of_waves() {
        let mask = TrapMask::new(1 << 30 | 0x101);
        assert_eq!(
            (mask.exceptions(), mask.on_start(), mask.on_end()),
            (0x101, true, false)
        );
        assert!(TrapMask::new(1 << 31).on_end());
    }
}
