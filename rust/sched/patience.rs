// SPDX-License-Identifier: GPL-2.0-only

//! Since when hardware does not obey: those who wait for it all wait from the same moment on, so
//! that a GPU that nobody resets keeps the machine waiting once, and not once for each page.

use crate::linux::timekeeping::boot_nanoseconds;
use kernel::{
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
    time::Delta,
};

/// One for each node, kept by its scheduler under its lock. In nanoseconds of
/// [`boot_nanoseconds`]; 0: it obeys, as far as anybody knows.
pub(crate) struct Patience(Atomic<u64>);

impl Patience {
    /// For hardware that obeys.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// It does not obey, from now on if not before.
    pub(super) fn begin(&self) {
        // An error: it has not for some time.
        let _ = self.0.cmpxchg(0, boot_nanoseconds().max(1), Relaxed);
    }

    /// It has obeyed, or was reset.
    pub(super) fn end(&self) {
        self.0.store(0, Relaxed);
    }

    /// Whether it obeys, as far as anybody knows.
    pub(crate) fn obeys(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Whether it has not obeyed for less time than `limit`, or does.
    pub(crate) fn is_left(&self, limit: Delta) -> bool {
        let since = self.0.load(Relaxed);
        // CAST: Not negative.
        since == 0 || boot_nanoseconds().saturating_sub(since) < limit.as_nanos() as u64
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_patience)]
mod tests {
    use super::*;
    use kernel::time::delay::fsleep;

    #[test]
    fn all_wait_from_the_same_moment_on() {
        const LIMIT: Delta = Delta::from_millis(20);
        let patience = Patience::new();
        assert!(patience.is_left(LIMIT) && patience.obeys());
        patience.begin();
        assert!(patience.is_left(Delta::from_secs(60)) && !patience.obeys());
        fsleep(LIMIT * 2);
        patience.begin();
        assert!(!patience.is_left(LIMIT));
        patience.end();
        assert!(patience.is_left(LIMIT));
        patience.begin();
        assert!(patience.is_left(Delta::from_secs(60)));
    }
}
