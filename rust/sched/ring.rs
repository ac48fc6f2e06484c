// SPDX-License-Identifier: GPL-2.0-only

//! The write side of the hardware scheduler's queue (HIQ): where the next packets go.
//!
//! One `Ring` per scheduler, next to the memory that it is about. It counts words as the hardware
//! does: the write pointer never wraps, the read pointer is reported within the ring.

/// Where packets are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first of the words at the ring's end that must be filled with no-operations …
    pub(crate) fill_from: usize,
    /// … and how many there are.
    pub(crate) fill: usize,
    /// Where the packets start.
    pub(crate) start: usize,
}

/// A ring of `DWORDS` words with one writer, us, and one reader, the hardware.
pub(crate) struct Ring<const DWORDS: u64> {
    written: u64,
}

impl<const DWORDS: u64> Ring<DWORDS> {
    /// An empty ring.
    pub(crate) const fn new() -> Self {
        Self { written: 0 }
    }

    /// The write pointer: words written since the beginning.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Makes room for `len` words in one piece, if the reader, at word `read` of the ring, has left
    /// enough. One word always stays free: a full ring would look empty.
    pub(crate) fn reserve(&mut self, read: u32, len: usize) -> Option<Place> {
        let (at, len) = (self.written % DWORDS, len as u64);
        let to_end = DWORDS - at;
        let fill = if len > to_end { to_end } else { 0 };
        let used = (at + DWORDS - u64::from(read) % DWORDS) % DWORDS;
        if used + fill + len >= DWORDS {
            return None;
        }
        self.written += fill + len;
        Some(Place {
            fill_from: at as usize,
            fill: fill as usize,
            start: ((at + fill) % DWORDS) as usize,
        })
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_sched_ring))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    fn place(fill_from: usize, fill: usize, start: usize) -> Option<Place> {
        Some(Place {
            fill_from,
            fill,
            start,
        })
    }

    #[test]
    fn packets_follow_each_other() {
        let mut ring = Ring::<16>::new();
        assert_eq!(ring.reserve(0, 6), place(0, 0, 0));
        assert_eq!(ring.reserve(0, 7), place(6, 0, 6));
        assert_eq!(ring.written(), 13);
    }

    #[test]
    fn a_packet_is_never_torn_at_the_end() {
        let mut ring = Ring::<16>::new();
        assert_eq!(ring.reserve(0, 13), place(0, 0, 0));
        assert_eq!(ring.reserve(13, 7), place(13, 3, 0));
        assert_eq!(ring.written(), 23);
        assert_eq!(ring.reserve(7, 1), place(7, 0, 7));
    }

    #[test]
    fn a_packet_may_end_where_the_ring_ends() {
        let mut ring = Ring::<16>::new();
        assert_eq!(ring.reserve(0, 10), place(0, 0, 0));
        assert_eq!(ring.reserve(10, 6), place(10, 0, 10));
        assert_eq!(ring.reserve(10, 6), place(0, 0, 0));
    }

    #[test]
    fn a_reader_that_hangs_is_not_overrun() {
        let mut ring = Ring::<16>::new();
        assert_eq!(ring.reserve(0, 13), place(0, 0, 0));
        assert_eq!(ring.reserve(0, 3), None);
        assert_eq!(ring.reserve(0, 2), place(13, 0, 13));
        assert_eq!(ring.reserve(0, 1), None);
        assert_eq!(ring.written(), 15);
    }
}
