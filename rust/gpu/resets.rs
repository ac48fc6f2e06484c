// SPDX-License-Identifier: GPL-2.0-only

//! The resets of a device: what begins on it can find out that it missed none.

use crate::compat::smp_mb;
use kernel::{
    prelude::*,
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
};

/// The resets of a device, for what would be lost in one and must not begin unseen. One for each
/// `Gpu`.
///
/// Odd while there is one: begins and ends are counted. Changed by one task at a time.
pub(crate) struct Resets(Atomic<u32>);

/// A moment between two resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet(u32);

impl Resets {
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// A reset begins, perhaps anew. Who looks for what is lost comes after this.
    pub(crate) fn begin(&self) {
        let count = self.0.load(Relaxed);
        self.0.store(count.wrapping_add(1 + count % 2), Relaxed);
        // Pairs with the one in `has_begun_since`: either that sees the reset, or we see what has
        // begun.
        smp_mb();
    }

    /// It is over.
    pub(crate) fn end(&self) {
        let count = self.0.load(Relaxed);
        self.0.store(count.wrapping_add(count % 2), Relaxed);
    }

    /// This moment. `EAGAIN`: there is a reset.
    pub(crate) fn quiet(&self) -> Result<Quiet> {
        let count = self.0.load(Relaxed);
        match count % 2 {
            0 => Ok(Quiet(count)),
            _ => Err(EAGAIN),
        }
    }

    /// Whether a reset has begun since, for whoever can be seen by now.
    pub(crate) fn has_begun_since(&self, quiet: Quiet) -> bool {
        // Pairs with the one in `begin`.
        smp_mb();
        self.0.load(Relaxed) != quiet.0
    }
}

#[kernel::macros::kunit_tests(amdkfd_gpu_resets)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_not_missed() {
        let resets = Resets::new();
        let before = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(before));
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        assert!(resets.has_begun_since(before));
        // It did not help, and is tried again.
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        resets.end();
        assert!(resets.has_begun_since(before));
        let after = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(after));
        resets.end();
        assert_eq!(resets.quiet(), Ok(after));
    }
}
