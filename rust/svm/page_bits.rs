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
        let mut place = pages.start % GRANULE_PAGES;
        let end = (place + pages.len()).min(GRANULE_PAGES);
        if place == 0 && end == GRANULE_PAGES {
            return Self([u64::MAX; WORDS]);
        }
        let mut bits = Self::NONE;
        while place < end {
            let behind = (place | 63) + 1;
            let unused = behind - behind.min(end) + place % 64;
            bits.0[(place / 64) as usize] |= (u64::MAX >> unused) << (place % 64);
            place = behind;
        }
        bits
    }

    /// Adds the page of that number.
    pub(crate) fn insert(&mut self, page: u64) {
        let place = page % GRANULE_PAGES;
        self.0[(place / 64) as usize] |= 1 << (place % 64);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
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

    /// These, and all that a GPU may translate together with one of them. `joined`: pages behind
    /// which the next one lies in the GPU's address space for memory, too. A translation stands for
    /// so many pages as a power of two says, up to 256, from a multiple of that on (the field
    /// fragment of page table entries: `AMDGPU_PTE_FRAG` of `amdgpu_vm.h`).
    pub(crate) fn with_blocks(self, joined: Self) -> Self {
        const LARGEST: u64 = 256;
        if joined.is_empty() {
            return self;
        }
        let mut all = self;
        let mut place = self.next(0, true);
        while place < GRANULE_PAGES {
            let alone = !joined.contains(place) && (place == 0 || !joined.contains(place - 1));
            let mut size = if alone { 1 } else { LARGEST };
            let whole = |size: u64| {
                let start = place & !(size - 1);
                joined.next(start, false) >= start + size - 1
            };
            while size > 1 && !whole(size) {
                size /= 2;
            }
            let block = Pages::new(place & !(size - 1), (place & !(size - 1)) + size);
            all = all.union(Self::of(block));
            place = self.next(block.end, true);
        }
        all
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
    fn an_area_has_the_bits_of_its_pages() {
        for (start, end) in [
            (0, 1),
            (3, 64),
            (63, 65),
            (0, 64),
            (5, 200),
            (128, 512),
            (0, 512),
        ] {
            let bits = PageBits::of(Pages::new(1024 + start, 1024 + end));
            let pages = (0..512).filter(|place| bits.contains(*place));
            assert!(pages.eq(start..end));
        }
    }

    #[test]
    fn pages_of_one_translation_go_together() {
        let one = |page| PageBits::of(Pages::new(page, page + 1));
        let all = |start, end| PageBits::of(Pages::new(start, end));
        assert_eq!(one(7).with_blocks(PageBits::NONE), one(7));
        // From 3 to 20: as 3, 4 to 7, 8 to 15, 16 to 19, 20.
        let joined = all(3, 20);
        assert_eq!(one(3).with_blocks(joined), one(3));
        assert_eq!(one(5).with_blocks(joined), all(4, 8));
        assert_eq!(one(15).with_blocks(joined), all(8, 16));
        assert_eq!(all(7, 9).with_blocks(joined), all(4, 16));
        assert_eq!(one(19).with_blocks(joined), all(16, 20));
        assert_eq!(one(20).with_blocks(joined), one(20));
        // One call maps at most 256 pages.
        assert_eq!(one(300).with_blocks(all(0, 511)), all(256, 512));
        assert_eq!(one(511).with_blocks(all(0, 511)), all(256, 512));
        assert_eq!(one(255).with_blocks(all(1, 511)), all(128, 256));
    }

    #[test]
    fn all_pages_are_one_run() {
        let all = PageBits::of(Pages::new(1024, 1536));
        assert!(all.runs(1024).eq([Pages::new(1024, 1536)]));
        assert!(all.minus(all).is_empty());
        assert_eq!(PageBits::NONE.runs(0).next(), None);
        let half = PageBits::of(Pages::new(1024, 1280));
        let mut pages = PageBits::NONE;
        (1024..1280).for_each(|page| pages.insert(page));
        assert_eq!(pages, half);
        assert_eq!(all.intersection(half), half);
        assert!(all.minus(half).runs(1024).eq([Pages::new(1280, 1536)]));
    }
}
