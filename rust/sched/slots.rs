// SPDX-License-Identifier: GPL-2.0-only

//! Places that queues take and give back: queue ids, doorbells, queue slots of copy engines, room
//! for descriptors.
//!
//! A [`Slots`] is a bitmap of free places, without a lock and without allocation once built. Taking
//! a place gives a [`SlotGuard`], and dropping the guard gives the place back: a hardware slot
//! cannot be forgotten on an error path.

use core::ops::Deref;
use core::sync::atomic::{
    AtomicU64,
    Ordering, //
};

/// Up to `64 * WORDS` numbered places, each free or taken.
pub(crate) struct Slots<const WORDS: usize> {
    /// Bit n of the row: place n is free.
    free: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Slots<WORDS> {
    /// The places below `count`, all free.
    pub(crate) fn new(count: usize) -> Self {
        let word = |word: usize| match count.saturating_sub(word * 64) {
            0 => 0,
            bits @ 1..64 => (1u64 << bits) - 1,
            _ => u64::MAX,
        };
        Self {
            free: core::array::from_fn(|index| AtomicU64::new(word(index))),
        }
    }

    /// The places for which `usable` holds.
    pub(crate) fn with(usable: impl Fn(usize) -> bool) -> Self {
        Self {
            free: core::array::from_fn(|word| AtomicU64::new(bits(word, &usable))),
        }
    }

    /// Takes the lowest free place.
    pub(crate) fn take<P>(pool: P) -> Option<SlotGuard<P, WORDS>>
    where
        P: Deref<Target = Self>,
    {
        Self::take_among(pool, |_| u64::MAX)
    }

    /// Takes the lowest free place of `start`, `start + step`, …
    pub(crate) fn take_every<P>(pool: P, start: usize, step: usize) -> Option<SlotGuard<P, WORDS>>
    where
        P: Deref<Target = Self>,
    {
        Self::take_where(pool, |index| {
            index >= start && (index - start) % step.max(1) == 0
        })
    }

    /// Takes the lowest free place of `start` to `start + count - 1`.
    pub(crate) fn take_within<P>(pool: P, start: usize, count: usize) -> Option<SlotGuard<P, WORDS>>
    where
        P: Deref<Target = Self>,
    {
        Self::take_where(pool, |index| (start..start + count).contains(&index))
    }

    /// Takes the lowest free place for which `wanted` holds.
    pub(crate) fn take_where<P>(
        pool: P,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<SlotGuard<P, WORDS>>
    where
        P: Deref<Target = Self>,
    {
        Self::take_among(pool, |word| bits(word, &wanted))
    }

    /// Takes that place, if it is there and free.
    pub(crate) fn take_at<P>(pool: P, place: usize) -> Option<SlotGuard<P, WORDS>>
    where
        P: Deref<Target = Self>,
    {
        Self::take_among(pool, |word| bits(word, |index| index == place))
    }

    /// Takes the lowest free place that is set in `mask` of its word.
    fn take_among<P>(pool: P, mask: impl Fn(usize) -> u64) -> Option<SlotGuard<P, WORDS>>
    where
        P: Deref<Target = Self>,
    {
        let taken = pool.free.iter().enumerate().find_map(|(index, word)| {
            let mask = mask(index);
            let clear_lowest = |free: u64| match free & mask {
                0 => None,
                left => Some(free & !(left & left.wrapping_neg())),
            };
            // Acquire pairs with the release of whoever had the place before.
            word.fetch_update(Ordering::Acquire, Ordering::Relaxed, clear_lowest)
                .ok()
                .map(|before| index * 64 + (before & mask).trailing_zeros() as usize)
        })?;
        Some(SlotGuard { pool, index: taken })
    }

    /// Whether a place is free.
    pub(crate) fn is_free(&self, index: usize) -> bool {
        let word = self.free.get(index / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (index % 64) != 0)
    }

    /// How many places are free.
    pub(crate) fn count_free(&self) -> usize {
        let words = self.free.iter();
        words
            .map(|word| word.load(Ordering::Relaxed).count_ones() as usize)
            .sum()
    }

    fn put(&self, index: usize) {
        if let Some(word) = self.free.get(index / 64) {
            word.fetch_or(1 << (index % 64), Ordering::Release);
        }
    }
}

/// The bits of the places in word number `word` for which `wanted` holds.
fn bits(word: usize, wanted: impl Fn(usize) -> bool) -> u64 {
    (0..64)
        .filter(|bit| wanted(word * 64 + bit))
        .fold(0, |bits, bit| bits | 1 << bit)
}

/// A taken place of a [`Slots`]; dropping it gives the place back.
pub(crate) struct SlotGuard<P, const WORDS: usize>
where
    P: Deref<Target = Slots<WORDS>>,
{
    pool: P,
    index: usize,
}

impl<P, const WORDS: usize> SlotGuard<P, WORDS>
where
    P: Deref<Target = Slots<WORDS>>,
{
    /// The place's number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl<P, const WORDS: usize> Drop for SlotGuard<P, WORDS>
where
    P: Deref<Target = Slots<WORDS>>,
{
    fn drop(&mut self) {
        self.pool.put(self.index);
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_sched_slots))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn a_place_can_be_asked_for() {
        let slots = Slots::<2>::new(70);
        let taken = Slots::take_at(&slots, 66).map(|slot| slot.index());
        assert_eq!(taken, Some(66));
        let held = Slots::take_at(&slots, 66);
        assert!(held.is_some() && Slots::take_at(&slots, 66).is_none());
        for place in [70, 128, usize::MAX] {
            assert!(Slots::take_at(&slots, place).is_none());
        }
    }

    #[test]
    fn lowest_place_first_and_none_twice() {
        let pool = Slots::<2>::new(66);
        let places: [_; 66] = core::array::from_fn(|_| Slots::take(&pool));
        assert!(places
            .iter()
            .enumerate()
            .all(|(n, place)| place.as_ref().map(|p| p.index()) == Some(n)));
        assert!(Slots::take(&pool).is_none());
        assert!(!pool.is_free(65) && !pool.is_free(66));
    }

    #[test]
    fn dropping_gives_the_place_back() {
        let pool = Slots::<1>::new(2);
        let first = Slots::take(&pool);
        let second = Slots::take(&pool);
        drop(first);
        assert!(pool.is_free(0) && !pool.is_free(1));
        assert_eq!(pool.count_free(), 1);
        assert_eq!(Slots::take(&pool).map(|p| p.index()), Some(0));
        assert_eq!(second.map(|p| p.index()), Some(1));
        assert!(pool.is_free(0) && pool.is_free(1));
    }

    #[test]
    fn holes_are_never_given_out() {
        let pool = Slots::<1>::with(|index| index == 3 || index == 5);
        let first = Slots::take(&pool);
        let second = Slots::take(&pool);
        assert_eq!(first.as_ref().map(|p| p.index()), Some(3));
        assert_eq!(second.as_ref().map(|p| p.index()), Some(5));
        assert!(Slots::take(&pool).is_none());
    }

    #[test]
    fn places_within_a_row() {
        let pool = Slots::<1>::with(|index| index % 8 > 5);
        let of_row_one = |_| Slots::take_within(&pool, 8, 8).map(|p| (p.index(), p));
        let first = of_row_one(0);
        let second = of_row_one(1);
        assert_eq!(first.as_ref().map(|p| p.0), Some(14));
        assert_eq!(second.as_ref().map(|p| p.0), Some(15));
        assert!(of_row_one(2).is_none() && pool.is_free(6) && pool.is_free(22));
    }

    #[test]
    fn every_nth_place() {
        let pool = Slots::<1>::new(8);
        let engine_one = |_| Slots::take_every(&pool, 1, 4).map(|p| (p.index(), p));
        let first = engine_one(0);
        let second = engine_one(1);
        assert_eq!(first.as_ref().map(|p| p.0), Some(1));
        assert_eq!(second.as_ref().map(|p| p.0), Some(5));
        assert!(engine_one(2).is_none());
        assert!((0..8).all(|index| pool.is_free(index) == (index % 4 != 1)));
    }
}
