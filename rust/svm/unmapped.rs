// SPDX-License-Identifier: GPL-2.0-only

//! Which pages of a region were unmapped, and may have attributes still.
//!
//! There is a bit for each page, made with the region: whoever is told that pages are unmapped
//! allocates nothing, and what is unmapped and mapped again many times is noted once. That is 8 KiB
//! for 256 MiB of addresses. Anything smaller could be full: which pages will be unmapped nobody
//! knows before, and of those that are not the attributes stay.
//!
//! A page's bit is cleared when its attributes are gone, under the lock under which attributes are
//! given: if it was unmapped once more meanwhile, it had none that time.

use super::{
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::Pages,
    region::{
        GRANULES_EACH,
        REGION_PAGES, //
    },
};
use kernel::{
    alloc::KVVec,
    prelude::*, //
};

/// Pages of a region that were unmapped, and may have attributes still.
///
/// # Invariants
///
/// `granules` has the bit of a granule if and only if `bits` has a page of it.
pub(super) struct Unmapped {
    /// The region's first page.
    first: u64,
    /// The pages, granule by granule.
    bits: KVVec<PageBits>,
    granules: u128,
    /// Somebody is to look at the region, although there are none.
    look: bool,
}

impl Unmapped {
    /// None of the region with that first page.
    pub(super) fn new(first: u64) -> Result<Self> {
        let bits = KVVec::from_elem(PageBits::NONE, GRANULES_EACH as usize, GFP_KERNEL_ACCOUNT)?;
        // INVARIANT: there is none.
        Ok(Self {
            first,
            bits,
            granules: 0,
            look: false,
        })
    }

    /// Whether there is nothing to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.granules == 0 && !self.look
    }

    /// Notes pages of the region; if it is none, that somebody is to look at it. Whether there was
    /// nothing to be done before. Allocates nothing.
    pub(super) fn note(&mut self, pages: Pages) -> bool {
        let first = self.is_empty();
        // Who forgets others looks at it afterwards.
        self.look |= first && pages.is_empty();
        self.change(pages, PageBits::union);
        first
    }

    /// Any of them, next to each other. They stay noted until [`Unmapped::settle`]. Empty: there is
    /// none, and the region is to be looked at.
    pub(super) fn any(&self) -> Option<Pages> {
        let mut found = Pages::new(self.first, self.first);
        // CAST: at most the bits of a word.
        for place in self.granules.trailing_zeros() as usize..self.bits.len() {
            let start = self.first + place as u64 * GRANULE_PAGES;
            let bits = self.bits.get(place)?;
            match bits.runs(start).next() {
                Some(run) if found.is_empty() => found = run,
                Some(run) if run.start == found.end => found.end = run.end,
                _ => break,
            }
            if found.end < start + GRANULE_PAGES {
                break;
            }
        }
        (!self.is_empty()).then_some(found)
    }

    /// These have no attributes any more, and the region is about to be looked at. Whether nothing
    /// is left to be done, and something was.
    pub(super) fn settle(&mut self, pages: Pages) -> bool {
        if self.is_empty() {
            return false;
        }
        self.look = false;
        self.change(pages, PageBits::minus);
        self.is_empty()
    }

    /// Changes the bits of pages.
    fn change(&mut self, pages: Pages, to: impl Fn(PageBits, PageBits) -> PageBits) {
        for piece in pages.pieces(GRANULE_PAGES) {
            // CAST: less than `GRANULES_EACH`.
            let place = (piece.start % REGION_PAGES / GRANULE_PAGES) as usize;
            let Some(bits) = self.bits.get_mut(place) else {
                return;
            };
            *bits = to(*bits, PageBits::of(piece));
            // INVARIANT: as the granule has one.
            self.granules &= !(1 << place);
            self.granules |= u128::from(!bits.is_empty()) << place;
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_unmapped)]
mod tests {
    use super::*;

    const FIRST: u64 = 3 * REGION_PAGES;

    fn pages(start: u64, end: u64) -> Pages {
        Pages::new(FIRST + start, FIRST + end)
    }

    /// All of them, one after the other.
    fn all(unmapped: &mut Unmapped) -> KVec<Pages> {
        let mut all = KVec::new();
        while let Some(run) = unmapped.any() {
            all.push(run, GFP_KERNEL).unwrap();
            assert_eq!(unmapped.settle(run), unmapped.is_empty());
        }
        assert!(unmapped.granules == 0 && unmapped.bits.iter().all(PageBits::is_empty));
        all
    }

    #[test]
    fn pages_count_as_unmapped_until_their_attributes_are_gone() {
        let mut unmapped = Unmapped::new(FIRST).unwrap();
        let area = pages(8, 16);
        assert!(unmapped.any().is_none() && unmapped.note(area));
        // Whoever looks while they are being forgotten finds them.
        assert_eq!([(); 2].map(|()| unmapped.any()), [Some(area); 2]);
        // More of it, and again of the same, meanwhile: what is more has attributes still.
        assert!(!unmapped.note(pages(14, 20)) && !unmapped.note(pages(2, 4)));
        assert!(!unmapped.settle(area));
        assert!(all(&mut unmapped).iter().eq(&[pages(2, 4), pages(16, 20)]));
        // What was forgotten by now is noted anew.
        assert!(unmapped.note(area) && unmapped.settle(area) && !unmapped.settle(area));
    }

    #[test]
    fn a_region_is_looked_at_if_there_is_nothing_else_to_be_done() {
        let mut unmapped = Unmapped::new(FIRST).unwrap();
        let nothing = pages(0, 0);
        assert!(unmapped.note(nothing) && !unmapped.note(nothing));
        assert_eq!(unmapped.any(), Some(nothing));
        assert!(unmapped.settle(nothing) && unmapped.any().is_none());
        // Who forgets others looks at it.
        assert!(unmapped.note(nothing) && !unmapped.note(pages(4, 5)) && !unmapped.note(nothing));
        assert!(all(&mut unmapped).iter().eq(&[pages(4, 5)]));
    }

    #[test]
    fn what_is_unmapped_again_and_again_is_noted_once() {
        let mut unmapped = Unmapped::new(FIRST).unwrap();
        for time in 0..300_000 {
            let first = unmapped.note(pages(8, 9));
            assert!(first == (time == 0) && !unmapped.note(pages(64, 65)));
        }
        // Not what is between: nobody has unmapped that.
        assert!(all(&mut unmapped).iter().eq(&[pages(8, 9), pages(64, 65)]));
        // Every other page of the region.
        let others = || {
            (0..REGION_PAGES)
                .step_by(2)
                .map(|page| pages(page, page + 1))
        };
        for page in others() {
            let _ = unmapped.note(page);
        }
        assert!(all(&mut unmapped).iter().copied().eq(others()));
    }

    #[test]
    fn pages_next_to_each_other_are_one_area() {
        let mut unmapped = Unmapped::new(FIRST).unwrap();
        let whole = pages(0, REGION_PAGES);
        assert!(unmapped.note(whole) && !unmapped.note(whole));
        assert!(all(&mut unmapped).iter().eq(&[whole]));
        // Whatever the order is in which they come, and wherever granules end.
        for part in [
            (512, 600),
            (1024, 1536),
            (300, 512),
            (600, 1024),
            (1537, 1538),
        ] {
            let _ = unmapped.note(pages(part.0, part.1));
        }
        assert!(all(&mut unmapped)
            .iter()
            .eq(&[pages(300, 1536), pages(1537, 1538)]));
        let ends = [
            pages(0, 512),
            pages(513, 514),
            pages(REGION_PAGES - 1, REGION_PAGES),
        ];
        for end in ends.iter().rev() {
            let _ = unmapped.note(*end);
        }
        assert!(all(&mut unmapped).iter().eq(&ends));
    }
}
