// SPDX-License-Identifier: GPL-2.0-only

//! The state of one event, and what a set, a reset and a wait do to it. Pure.
//!
//! An event latches: a signal that finds nobody waiting is kept until somebody does. A manual event
//! stays signalled until it is reset, an automatic one lets one wait through. Its age counts the
//! signals; a waiter that names the age it saw last learns of signals it slept through, even if
//! the event was reset in between (`last_event_age`, KFD 1.14).

/// Whether a wait takes the signal away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The signal stays until RESET_EVENT.
    Manual,
    /// The first wait that sees the signal consumes it.
    Auto,
}

/// The latch of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latch {
    age: u64,
    signalled: bool,
    mode: Mode,
}

impl Latch {
    /// The age of an event that was never signalled. 0 is no age: a waiter says it when it does
    /// not care.
    const NEVER: u64 = 1;

    /// A latch that was not signalled yet.
    pub(crate) const fn new(mode: Mode) -> Self {
        Self {
            age: Self::NEVER,
            signalled: false,
            mode,
        }
    }

    /// The same, which may be signalled already.
    pub(crate) const fn restored(mode: Mode, signalled: bool) -> Self {
        Self {
            age: Self::NEVER,
            signalled,
            mode,
        }
    }

    /// Whether a signal is kept.
    pub(crate) const fn is_signalled(&self) -> bool {
        self.signalled
    }

    /// How many signals there were, plus one.
    pub(crate) const fn age(&self) -> u64 {
        self.age
    }

    /// Whether a wait consumes the signal.
    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    /// A signal arrives. If somebody waits, an automatic event hands it over and keeps nothing.
    pub(crate) fn set(&mut self, someone_waits: bool) {
        self.signalled = self.mode == Mode::Manual || !someone_waits;
        // 2^64 signals do not happen; were they to, the ages with a meaning of their own are
        // skipped.
        self.age = self.age.checked_add(1).unwrap_or(Self::NEVER + 1);
    }

    /// The user takes the signal back.
    pub(crate) fn reset(&mut self) {
        self.signalled = false;
    }

    /// A wait begins: is the event signalled? Consumes the signal of an automatic event.
    pub(crate) fn take(&mut self) -> bool {
        let signalled = self.signalled;
        if signalled && self.mode == Mode::Auto {
            self.signalled = false;
        }
        signalled
    }

    /// Whether a waiter that saw `last_age` (0: it does not say) has missed a signal.
    pub(crate) const fn missed(&self, last_age: u64) -> bool {
        last_age != 0 && last_age != self.age
    }
}

/// How far one WAIT_EVENTS call has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    missing: u32,
    all: bool,
    fired: bool,
}

impl Tally {
    /// A wait for `count` events: for all of them, or for any.
    pub(crate) const fn new(count: u32, all: bool) -> Self {
        Self {
            missing: count,
            all,
            fired: false,
        }
    }

    /// One more event is signalled.
    pub(crate) fn fire(&mut self) {
        self.fire_many(1);
    }

    /// So many more are.
    pub(crate) fn fire_many(&mut self, events: u32) {
        self.missing = self.missing.saturating_sub(events);
        self.fired |= events > 0;
    }

    /// Whether the wait is over. A wait for nothing is over before it begins.
    pub(crate) const fn complete(&self) -> bool {
        self.missing == 0 || (self.fired && !self.all)
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_event_latch))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn a_manual_event_stays_signalled_until_reset() {
        let mut latch = Latch::new(Mode::Manual);
        latch.set(false);
        assert!(latch.take());
        assert!(latch.take());
        latch.reset();
        assert!(!latch.take());
    }

    #[test]
    fn a_manual_event_stays_signalled_under_a_waiter_too() {
        let mut latch = Latch::new(Mode::Manual);
        latch.set(true);
        assert!(latch.take());
    }

    #[test]
    fn an_automatic_event_lets_one_wait_through() {
        let mut latch = Latch::new(Mode::Auto);
        latch.set(false);
        assert!(latch.take());
        assert!(!latch.take());
    }

    #[test]
    fn an_automatic_event_keeps_nothing_when_somebody_waits() {
        let mut latch = Latch::new(Mode::Auto);
        latch.set(true);
        assert!(!latch.take());
        assert_eq!(latch.age(), 2);
    }

    #[test]
    fn signals_without_a_waiter_do_not_add_up() {
        let mut latch = Latch::new(Mode::Auto);
        latch.set(false);
        latch.set(false);
        assert!(latch.take());
        assert!(!latch.take());
    }

    #[test]
    fn the_age_begins_at_one_and_counts_signals_only() {
        let mut latch = Latch::new(Mode::Manual);
        assert_eq!(latch.age(), 1);
        latch.set(false);
        latch.reset();
        latch.set(true);
        assert_eq!(latch.age(), 3);
    }

    #[test]
    fn the_age_never_wraps_into_the_reserved_values() {
        let mut latch = Latch {
            age: u64::MAX,
            ..Latch::new(Mode::Manual)
        };
        latch.set(false);
        assert_eq!(latch.age(), 2);
    }

    #[test]
    fn an_old_age_means_a_missed_signal_even_after_a_reset() {
        let mut latch = Latch::new(Mode::Manual);
        latch.set(false);
        latch.reset();
        assert!(latch.missed(1));
        assert!(!latch.missed(2));
    }

    #[test]
    fn a_waiter_without_an_age_misses_nothing() {
        let mut latch = Latch::new(Mode::Auto);
        latch.set(true);
        assert!(!latch.missed(0));
    }

    #[test]
    fn any_is_over_with_the_first() {
        let mut tally = Tally::new(3, false);
        assert!(!tally.complete());
        tally.fire();
        assert!(tally.complete());
    }

    #[test]
    fn all_is_over_with_the_last() {
        let mut tally = Tally::new(2, true);
        tally.fire();
        assert!(!tally.complete());
        tally.fire();
        assert!(tally.complete());
    }

    #[test]
    fn a_wait_for_nothing_is_complete() {
        assert!(Tally::new(0, true).complete());
        assert!(Tally::new(0, false).complete());
    }
}
