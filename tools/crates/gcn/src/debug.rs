// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a debugger asks of the hardware around waves: address watches, and memory operations that
//! report what went wrong with them at once. Plain; one of [`struct@Debug`] per work-group, which
//! its owner fills.

/// Accesses that a watch looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Loads.
    Read,
    /// Stores and atomics.
    NonRead,
    /// Atomics.
    Atomic,
    /// All.
    All,
}

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An atomic.
    Atomic,
}

/// An address watch. Blocks are of 128 bytes: lower bits of addresses do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The address.
    pub address: u64,
    /// Bits of addresses that are compared.
    pub mask: u64,
    /// Which accesses.
    pub mode: WatchMode,
}

/// Bits of an address within a block.
const BLOCK: u64 = 127;

impl Watch {
    /// Whether it sees an access to `size` bytes, 1 to 128.
    pub fn sees(&self, kind: Kind, address: u64, size: u64) -> bool {
        let wanted = match self.mode {
            WatchMode::Read => kind == Kind::Load,
            WatchMode::NonRead => kind != Kind::Load,
            WatchMode::Atomic => kind == Kind::Atomic,
            WatchMode::All => true,
        };
        let hit = |at: u64| (at ^ self.address) & self.mask & !BLOCK == 0;
        wanted && (hit(address) || hit(address.wrapping_add(size - 1)))
    }
}

/// For all waves of a work-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Debug {
    /// Address watches 0 to 3.
    pub watches: [Option<Watch>; 4],
    /// A wave waits after each memory operation, so that its exceptions trap right after it.
    pub precise: bool,
}

impl Debug {
    /// Instructions that a wave still issues after a memory operation with an exception, unless one
    /// of them waits for it: hardware says no more than that they are few.
    const LATE: u32 = 4;

    /// Whether a watch is set.
    pub(crate) fn is_watching(&self) -> bool {
        self.watches.iter().any(Option::is_some)
    }

    /// Instructions that issue between a memory operation and the trap for its exceptions.
    pub(crate) fn lateness(&self) -> u32 {
        match self.precise {
            true => 0,
            false => Self::LATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_blocks_under_its_mask() {
        let watch = Watch {
            address: 0x7000_1080,
            mask: !0xff,
            mode: WatchMode::NonRead,
        };
        assert!(watch.sees(Kind::Store, 0x7000_1000, 4), "bit 7 is masked");
        assert!(watch.sees(Kind::Atomic, 0x7000_10fc, 4));
        assert!(watch.sees(Kind::Store, 0x7000_0ff8, 16), "its end");
        assert!(!watch.sees(Kind::Store, 0x7000_1100, 4));
        assert!(!watch.sees(Kind::Load, 0x7000_1000, 4));
        let seen = |mode| {
            let watch = Watch { mode, ..watch };
            [Kind::Load, Kind::Store, Kind::Atomic].map(|kind| watch.sees(kind, 0x7000_1000, 1))
        };
        assert_eq!(seen(WatchMode::Read), [true, false, false]);
        assert_eq!(seen(WatchMode::NonRead), [false, true, true]);
        assert_eq!(seen(WatchMode::Atomic), [false, false, true]);
        assert_eq!(seen(WatchMode::All), [true; 3]);
    }
}
