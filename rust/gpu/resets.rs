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

    /// The current task resets the device, from now until the end of that; it may have said so
    /// before.
    pub(crate) fn prepare(&self) {
        self.by.store(current_task(), Relaxed);
    }

    /// The current task resets the device. `has_hardware`: amdgpu has it for a reset. If not, the
    /// last one that the task has begun has come to no good end, of which nobody was told, and the
    /// task counts no more for the next one's.
    pub(super) fn are_by_current(&self, has_hardware: impl FnOnce() -> bool) -> bool {
        let current = current_task();
        if self.by.load(Relaxed) != current {
            return false;
        }
        if has_hardware() {
            return true;
        }
        // Unless another task has begun one meanwhile.
        let _ = self.by.cmpxchg(current, 0, Relaxed);
        false
    }

    /// A reset begins, perhaps anew. Who looks for what is lost comes after this.
    pub(crate) fn begin(&self) {
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(1 + count % 2), Relaxed);
        // Pairs with the one in `has_begun_since`: either that sees the reset, or we see what has
        // begun.
        smp_mb();
    }

    /// It is over.
    pub(crate) fn end(&self) {
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(count % 2), Relaxed);
        self.by.store(0, Relaxed);
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
        let by_current = || resets.are_by_current(|| true);
        assert!(!resets.has_begun_since(before) && !by_current());
        resets.prepare();
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        assert!(by_current() && resets.has_begun_since(before));
        // It did not help, and is tried again.
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        assert!(by_current());
        // That has failed, and another task begins the next one.
        assert!(!resets.are_by_current(|| false));
        assert!(!by_current());
        assert_eq!(resets.quiet(), Err(EAGAIN));
        resets.prepare();
        resets.end();
        assert!(!by_current());
        assert!(resets.has_begun_since(before));
        let after = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(after));
        resets.end();
        assert_eq!(resets.quiet(), Ok(after));
    }
}
