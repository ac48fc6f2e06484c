// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where the lanes of a vector memory instruction find their data, and which of them one access to
//! memory can serve: each access costs a translation.

use super::lds::lanes;
use crate::wave::LANES;

/// Where a lane's data is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// A GPU virtual address.
    Memory(u64),
    /// A byte of the work-group's LDS.
    Lds(u64),
    /// A byte of the lane's scratch.
    Scratch(u64),
    /// A GPU virtual address, and how many dwords from there on are in a buffer's bounds; those
    /// behind them are not.
    Part(u64, u8),
    /// Out of a buffer's bounds: reads 0, writes nothing.
    Nowhere,
}

/// Where all lanes' data is.
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack for one instruction"
)]
pub(super) enum Places {
    /// All in memory.
    Memory([u64; LANES]),
    /// Each in its own place.
    Mixed([Place; LANES]),
}

impl Places {
    pub(super) fn of(&self, lane: usize) -> Place {
        match self {
            Places::Memory(addresses) => Place::Memory(addresses[lane]),
            Places::Mixed(places) => places[lane],
        }
    }

    /// The offsets, if all active lanes are in scratch, at whole dwords.
    pub(super) fn scratch(&self, exec: u64) -> Option<[u64; LANES]> {
        let Places::Mixed(places) = self else {
            return None;
        };
        let mut offsets = [0; LANES];
        for lane in lanes(exec) {
            match places[lane] {
                Place::Scratch(offset) if offset % 4 == 0 => offsets[lane] = offset,
                _ => return None,
            }
        }
        Some(offsets)
    }

    /// The addresses, if all active lanes are in memory.
    pub(super) fn addresses(&self, exec: u64) -> Option<[u64; LANES]> {
        match self {
            Places::Memory(addresses) => Some(*addresses),
            Places::Mixed(places) => {
                let mut addresses = [0; LANES];
                for lane in lanes(exec) {
                    let Place::Memory(address) = places[lane] else {
                        return None;
                    };
                    addresses[lane] = address;
                }
                Some(addresses)
            }
        }
    }
}

/// Active lanes that are neighbours, with neighbouring addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first lane.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// The first lane's address.
    pub address: u64,
}

impl Run {
    /// The run from the lowest lane of `exec` on, which is not empty.
    pub(super) fn first(addresses: &[u64; LANES], exec: u64, size: u64) -> Run {
        let first = exec.trailing_zeros() as usize % LANES;
        let address = addresses[first];
        let most = (exec >> first).trailing_ones() as usize;
        // All at once, without branches, is the usual case.
        let offsets = addresses[first..first + most].iter().zip(0u64..);
        let differs = offsets.fold(0, |differs, (found, step)| {
            differs | (found ^ address.wrapping_add(size * step))
        });
        if differs == 0 && address.checked_add(size * most as u64).is_some() {
            return Run {
                first,
                count: most,
                address,
            };
        }
        let follows = |step: &usize| {
            let offset = size * *step as u64;
            address.checked_add(offset + size - 1).is_some()
                && addresses[first + step] == address + offset
        };
        let count = 1 + (1..most).take_while(follows).count();
        Run {
            first,
            count,
            address,
        }
    }

    /// `exec` without the run's lanes.
    pub(super) fn rest(&self, exec: u64) -> u64 {
        let lanes = u64::MAX >> (LANES - self.count);
        exec & !(lanes << self.first)
    }
}

/// The bytes that all active lanes' data lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub length: usize,
}

/// The longest window. It reaches into no page in which no lane has data, so what no lane asks for
/// cannot fault.
pub(super) const WINDOW: usize = 1024;
/// How many times longer than the data a window may be.
pub(super) const SPARSE: u64 = 8;

impl Window {
    /// The window for lanes of `size` bytes, unless they lie too far apart.
    pub(super) fn find(addresses: &[u64; LANES], exec: u64, size: u64) -> Option<Window> {
        let (mut low, mut high) = (u64::MAX, 0);
        for (lane, address) in addresses.iter().enumerate() {
            let active = exec >> lane & 1 != 0;
            low = low.min(if active { *address } else { u64::MAX });
            high = high.max(if active { *address } else { 0 });
        }
        let end = high.checked_add(size)?;
        let length = end.checked_sub(low)?;
        let asked = u64::from(exec.count_ones()) * size;
        (length <= (SPARSE * asked).min(WINDOW as u64)).then_some(Window {
            address: low,
            length: length as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_lanes_or_addresses_do() {
        let addresses = std::array::from_fn(|lane| 0x1000 + 4 * lane as u64);
        let run = Run::first(&addresses, 0xff0, 4);
        assert_eq!((run.first, run.count, run.address), (4, 8, 0x1010));
        assert_eq!(run.rest(0xff0), 0);
        let run = Run::first(&addresses, 0xf0f, 4);
        assert_eq!((run.count, run.rest(0xf0f)), (4, 0xf00));
        assert_eq!(Run::first(&addresses, u64::MAX, 8).count, 1);
        let all = Run::first(&addresses, u64::MAX, 4);
        assert_eq!((all.count, all.rest(u64::MAX)), (64, 0));
    }

    #[test]
    fn windows_hold_all_lanes_and_are_not_too_thin() {
        let strided = std::array::from_fn(|lane| 0x1000 + 12 * lane as u64);
        let window = Window::find(&strided, u64::MAX, 4);
        assert_eq!(
            window,
            Some(Window {
                address: 0x1000,
                length: 63 * 12 + 4
            })
        );
        assert_eq!(Window::find(&strided, 1 | 1 << 63, 4), None);
        let one = Window::find(&strided, 4, 4).unwrap();
        assert_eq!((one.address, one.length), (0x1018, 4));
        let block = std::array::from_fn(|lane| 0x1f80 + 4 * lane as u64);
        assert_eq!(Window::find(&block, u64::MAX, 4).unwrap().length, 256);
    }
}
