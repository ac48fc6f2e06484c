// SPDX-License-Identifier: GPL-2.0-only

//! Areas of an address space, in pages.
//!
//! Core-only.

use core::iter;

/// Bytes of a page, as a power of two.
pub(crate) const PAGE_SHIFT: u32 = 12;

/// Pages of an address space, by number: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Pages {
    /// All there can be.
    pub(super) const ALL: Self = Self::new(0, u64::MAX >> PAGE_SHIFT);

    /// From `start` up to, not including, `end`.
    pub(crate) const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// `size` bytes at an address. `None`: not whole pages, empty, or beyond the last address.
    pub(crate) const fn of_bytes(address: u64, size: u64) -> Option<Self> {
        let unaligned = (address | size) & ((1 << PAGE_SHIFT) - 1) != 0;
        match address.checked_add(size) {
            Some(end) if !unaligned && size != 0 => {
                Some(Self::new(address >> PAGE_SHIFT, end >> PAGE_SHIFT))
            }
            _ => None,
        }
    }

    /// Those of bytes at an address, whole or not. At the last address they end.
    pub(crate) const fn around_bytes(address: u64, size: u64) -> Self {
        let end = address.saturating_add(size).div_ceil(1 << PAGE_SHIFT);
        Self::new(address >> PAGE_SHIFT, end)
    }

    /// `count` pages from number `first` on. `None`: none, or beyond the last address.
    pub(crate) const fn of_numbers(first: u64, count: u64) -> Option<Self> {
        match first.checked_add(count) {
            Some(end) if count != 0 && end <= u64::MAX >> PAGE_SHIFT => Some(Self::new(first, end)),
            _ => None,
        }
    }

    /// How many.
    pub(crate) const fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether a page is one of them.
    pub(crate) const fn contains(&self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// Whether all of `other` are among them.
    pub(crate) const fn covers(&self, other: Pages) -> bool {
        other.is_empty() || self.start <= other.start && other.end <= self.end
    }

    /// Whether any of `other` is among them.
    pub(crate) const fn overlaps(&self, other: Pages) -> bool {
        !self.is_empty() && !other.is_empty() && self.start < other.end && other.start < self.end
    }

    /// Those that are in `other` too. `None`: there is none.
    pub(crate) fn intersection(&self, other: Pages) -> Option<Pages> {
        let both = Self::new(self.start.max(other.start), self.end.min(other.end));
        (!both.is_empty()).then_some(both)
    }

    /// Of the first byte.
    pub(crate) const fn address(&self) -> u64 {
        self.start << PAGE_SHIFT
    }

    /// How many bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.len() << PAGE_SHIFT
    }

    /// Cuts them at multiples of `size` pages, a power of two.
    pub(crate) fn pieces(self, size: u64) -> impl Iterator<Item = Pages> {
        let mut rest = self;
        iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let last = rest.start | size.saturating_sub(1);
            let piece = Self::new(rest.start, last.saturating_add(1).min(rest.end));
            rest.start = piece.end;
            Some(piece)
        })
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_svm_pages))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn only_whole_pages_count() {
        let pages = Pages::of_bytes(0x3000, 0x2000);
        assert_eq!(pages, Some(Pages::new(3, 5)));
        assert_eq!(pages.map(|pages| pages.address()), Some(0x3000));
        assert_eq!(pages.map(|pages| pages.bytes()), Some(0x2000));
        assert_eq!(Pages::of_bytes(0x3001, 0x2000), None);
        assert_eq!(Pages::of_bytes(0x3000, 0x2001), None);
        assert_eq!(Pages::of_bytes(0x3000, 0), None);
    }

    #[test]
    fn bytes_have_all_the_pages_that_they_touch() {
        let pages = |address, size| Pages::around_bytes(address, size);
        assert_eq!(pages(0x3000, 0x2000), Pages::new(3, 5));
        assert_eq!(pages(0x3fff, 2), Pages::new(3, 5));
        assert!(pages(0x3000, 0).is_empty());
        assert_eq!(pages(!0xfff, u64::MAX).end, 1 << (64 - PAGE_SHIFT));
    }

    #[test]
    fn an_area_ends_before_the_last_address() {
        assert_eq!(Pages::of_bytes(!0xfff, 0x1000), None);
        assert_eq!(Pages::of_bytes(0x1000, !0xfff), None);
        let most = Pages::of_bytes(0, !0xfff);
        assert_eq!(most, Some(Pages::ALL));
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let pages = Pages::new(2, 5);
        assert!(pages.overlaps(Pages::new(4, 9)) && pages.overlaps(Pages::new(0, 3)));
        assert!(!pages.overlaps(Pages::new(5, 9)) && !pages.overlaps(Pages::new(0, 2)));
        assert_eq!(pages.intersection(Pages::new(4, 9)), Some(Pages::new(4, 5)));
        assert_eq!(pages.intersection(Pages::new(5, 9)), None);
        assert!(pages.contains(2) && pages.contains(4));
        assert!(!pages.contains(1) && !pages.contains(5));
    }

    #[test]
    fn nothing_is_everywhere_and_overlaps_nothing() {
        let (pages, nothing) = (Pages::new(2, 5), Pages::new(3, 3));
        assert!(nothing.is_empty() && Pages::new(4, 3).is_empty());
        assert_eq!(
            (nothing.len(), Pages::new(4, 3).len(), pages.len()),
            (0, 0, 3)
        );
        assert!(pages.covers(nothing) && !nothing.covers(pages));
        assert!(!pages.overlaps(nothing) && !nothing.overlaps(pages));
        assert!(pages.covers(pages) && pages.covers(Pages::new(3, 5)));
        assert!(!pages.covers(Pages::new(3, 6)) && !pages.covers(Pages::new(1, 3)));
    }

    #[test]
    fn pieces_end_at_multiples() {
        let cuts = [(3, 4), (4, 8), (8, 10)];
        let pieces = cuts.map(|(start, end)| Pages::new(start, end));
        assert!(Pages::new(3, 10).pieces(4).eq(pieces));
        assert!(Pages::new(3, 10).pieces(16).eq([Pages::new(3, 10)]));
        assert!(Pages::new(4, 8).pieces(4).eq([Pages::new(4, 8)]));
        assert_eq!(Pages::new(7, 7).pieces(4).count(), 0);
        assert_eq!(Pages::new(7, 10).pieces(1).count(), 3);
        let end = Pages::new(u64::MAX - 1, u64::MAX);
        assert!(end.pieces(4).eq([end]));
    }
}
