// SPDX-License-Identifier: GPL-2.0-only

//! Which pages of a granule something holds for.
//!
//! Core-only.

use super::pages::Pages;

/// Pages of a granule: what a last-level page table shows, 2 MiB.
pub(crate) const GRANULE_PAGES: u64 = 512;

const WORDS: usize = GRANULE_PAGES as usize / 64;

/// Some of the pages of a granule, by their place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageBits([u64; WORDS]);

impl PageBits {
    /// None.
    pub(crate) const NONE: Self = Self([0; WORDS]);

    /// Those of `pages`, which lie in one granule.
    pub(crate) fn of(pages: Pages) -> Self {
        let first = pages.start % GRANULE_PAGES;
        let mut bits = Self::NONE;
        for place in first..(first + pages.len()).min(GRANULE_PAGES) {
            bits.0[(place / 64) as usize] |= 1 << (place % 64);
        }
        bits
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether the page of that number is one of them.
    pub(crate) fn contains(&self, page: u64) -> bool {
        let place = page % GRANULE_PAGES;
        self.0[(place / 64) as usize] & 1 << (place % 64) != 0
    }

    fn with(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        let mut bits = self;
        for (word, other) in bits.0.iter_mut().zip(other.0) {
            *word = both(*word, other);
        }
        bits
    }

    /// Those in either.
    pub(crate) fn union(self, other: Self) -> Self {
        self.with(other, |one, other| one | other)
    }

    /// Those in both.
    pub(crate) fn intersection(self, other: Self) -> Self {
        self.with(other, |one, other| one & other)
    }

    /// Those not in `other`.
    pub(crate) fn minus(self, other: Self) -> Self {
        self.with(other, |one, other| one & !other)
    }

    /// The first place from `from` on where the bit is `set`, or the end.
    fn next(&self, from: u64, set: bool) -> u64 {
        let mut place = from;
        while place < GRANULE_PAGES {
            let word = self.0[(place / 64) as usize];
            let rest = (if set { word } else { !word }) >> (place % 64);
            if rest != 0 {
                return place + u64::from(rest.trailing_zeros());
            }
            place = (place | 63) + 1;
        }
        GRANULE_PAGES
    }

    /// Pages next to each other, in order; `first`: of the granule.
    pub(crate) fn runs(self, first: u64) -> impl Iterator<Item = Pages> {
        let mut place = 0;
        core::iter::from_fn(move || {
            let start = self.next(place, true);
            place = self.next(start, false);
            (start < GRANULE_PAGES).then(|| Pages::new(first + start, first + place))
        })
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_svm_page_bits))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        let bits = PageBits::of(Pages::new(512 + 60, 512 + 70))
            .union(PageBits::of(Pages::new(512 + 511, 1024)))
            .union(PageBits::of(Pages::new(512, 513)));
        let mut runs = bits.runs(512);
        assert_eq!(runs.next(), Some(Pages::new(512, 513)));
        assert_eq!(runs.next(), Some(Pages::new(572, 582)));
        assert_eq!(runs.next(), Some(Pages::new(1023, 1024)));
        assert_eq!(runs.next(), None);
        assert!(bits.contains(572) && !bits.contains(582) && bits.contains(1023));
    }

    #[test]
    fn all_pages_are_one_run() {
        let all = PageBits::of(Pages::new(1024, 1536));
        assert!(all.runs(1024).eq([Pages::new(1024, 1536)]));
        assert!(all.minus(all).is_empty());
        assert_eq!(PageBits::NONE.runs(0).next(), None);
        let half = PageBits::of(Pages::new(1024, 1280));
        assert_eq!(all.intersection(half), half);
        assert!(all.minus(half).runs(1024).eq([Pages::new(1280, 1536)]));
    }
}
