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
pub(crate) struct Resets {
    count: Atomic<u32>,
    /// The task that resets the device, as a number; 0: none does.
    by: Atomic<usize>,
}

/// A moment between two resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet(u32);

impl Resets {
    pub(super) fn new() -> Self {
        Self {
            count: Atomic::new(0),
            by: Atomic::new(0),
        }
    }

    /// The current task resets the device, from now until the end of that.
    pub(crate) fn prepare(&self) {
        self.by.store(current_task(), Relaxed);
    }

    /// The current task has begun the last reset that is not over. If that has failed nobody was
    /// told so, and the task may be another one by now: see `Node::is_reset_by_current`.
    pub(super) fn are_by_current(&self) -> bool {
        self.by.load(Relaxed) == current_task()
    }

    /// A reset begins, perhaps anew. Who looks for what is lost comes after this.
    pub(crate) fn begin(&self) {
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(1 + count % 2), Relaxed);
        // Pairs with the one in `has_begun_since`: either that sees the reset, or we see what has
        // begun.
        smp_mb();
    }

    /// It was none, or is not to go on: the next one is, whose task is not known yet.
    pub(crate) fn give_up(&self) {
        self.by.store(0, Relaxed);
    }

    /// It is over.
    pub(crate) fn end(&self) {
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(count % 2), Relaxed);
        self.give_up();
    }

    /// This moment. `EAGAIN`: there is a reset.
    pub(crate) fn quiet(&self) -> Result<Quiet> {
        let count = self.count.load(Relaxed);
        match count % 2 {
            0 => Ok(Quiet(count)),
            _ => Err(EAGAIN),
        }
    }

    /// Whether a reset has begun since, for whoever can be seen by now.
    pub(crate) fn has_begun_since(&self, quiet: Quiet) -> bool {
        // Pairs with the one in `begin`.
        smp_mb();
        self.count.load(Relaxed) != quiet.0
    }
}

/// Names the current task, while it runs.
fn current_task() -> usize {
    kernel::current!().as_ptr().addr()
}

#[kernel::macros::kunit_tests(amdkfd_gpu_resets)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_not_missed() {
        let resets = Resets::new();
        let before = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(before) && !resets.are_by_current());
        resets.prepare();
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        assert!(resets.are_by_current() && resets.has_begun_since(before));
        // It did not help, and is tried again.
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        resets.give_up();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        assert!(!resets.are_by_current());
        resets.prepare();
        resets.end();
        assert!(!resets.are_by_current());
        assert!(resets.has_begun_since(before));
        let after = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(after));
        resets.end();
        assert_eq!(resets.quiet(), Ok(after));
    }
}
