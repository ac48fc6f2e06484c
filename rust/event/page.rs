// SPDX-License-Identifier: GPL-2.0-only

//! The signal page: one 64-bit slot for each signal event, shared by user space, GPU and kernel.
//! Here is the search in it; the memory itself is the caller's. Pure.
//!
//! Whoever signals writes the event's slot and then raises an interrupt. The interrupt carries the
//! event's id, or as many bits of it as it has room for; the slots tell which of the candidates it
//! was. A slot that holds [`UNSIGNALLED`] has nothing to tell.

/// Slots of a page, and so signal events of a process: `KFD_SIGNAL_EVENT_LIMIT` (kfd_ioctl.h).
pub(crate) const SLOTS: u32 = 4096;

/// Bytes of the page.
pub(crate) const PAGE_BYTES: usize = SLOTS as usize * 8;

/// `UNSIGNALED_EVENT_SLOT` (kfd_events.h). No event has this id.
pub(crate) const UNSIGNALLED: u64 = u64::MAX;

/// What an interrupt says about the event it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    id: u32,
    bits: u32,
}

impl Hint {
    /// The low `bits` bits of `id` are an event's.
    pub(crate) const fn new(id: u32, bits: u32) -> Self {
        Self { id, bits }
    }

    /// Whether the hint names one slot and no other.
    const fn exact(self) -> bool {
        self.bits > 31 || (1 << self.bits) >= SLOTS
    }

    /// The slots that the hint may mean. None if it says nothing, or something impossible.
    pub(crate) fn candidates(self) -> impl Iterator<Item = u32> {
        let step = if self.exact() { SLOTS } else { 1 << self.bits };
        let end = if self.bits == 0 { 0 } else { SLOTS };
        (self.id..end.max(self.id)).step_by(step as usize)
    }
}

/// The first free id of a bitmap of taken ones, counted from bit 0 of word `from`.
pub(crate) fn first_free(taken: impl Iterator<Item = u64>, from: usize) -> Option<usize> {
    taken
        .enumerate()
        .skip(from)
        .find(|(_, word)| *word != u64::MAX)
        .map(|(index, word)| index * 64 + word.trailing_ones() as usize)
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_event_page))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn a_whole_id_names_one_slot() {
        for bits in [12, 24, 28, 32] {
            let mut found = Hint::new(77, bits).candidates();
            assert_eq!(found.next(), Some(77));
            assert_eq!(found.next(), None);
        }
    }

    #[test]
    fn a_partial_id_names_every_slot_with_these_low_bits() {
        let mut found = Hint::new(5, 10).candidates();
        for id in [5, 1029, 2053, 3077] {
            assert_eq!(found.next(), Some(id));
        }
        assert_eq!(found.next(), None);
    }

    #[test]
    fn one_bit_names_half_of_the_slots() {
        assert_eq!(Hint::new(1, 1).candidates().count(), SLOTS as usize / 2);
    }

    #[test]
    fn an_id_beyond_the_page_names_nothing() {
        assert_eq!(Hint::new(SLOTS, 32).candidates().count(), 0);
        assert_eq!(Hint::new(u32::MAX, 32).candidates().count(), 0);
        assert_eq!(Hint::new(SLOTS, 8).candidates().count(), 0);
    }

    #[test]
    fn no_valid_bits_name_nothing() {
        assert_eq!(Hint::new(0, 0).candidates().count(), 0);
        assert_eq!(Hint::new(9, 0).candidates().count(), 0);
    }

    #[test]
    fn the_lowest_free_id_is_found() {
        assert_eq!(first_free([0b1011, 0].into_iter(), 0), Some(2));
        assert_eq!(first_free([u64::MAX, 1].into_iter(), 0), Some(65));
        assert_eq!(first_free([u64::MAX, u64::MAX].into_iter(), 0), None);
        assert_eq!(first_free(core::iter::empty(), 0), None);
    }

    #[test]
    fn the_search_begins_where_it_is_told() {
        assert_eq!(first_free([0, 0b1].into_iter(), 1), Some(65));
        assert_eq!(first_free([0].into_iter(), 1), None);
    }
}
