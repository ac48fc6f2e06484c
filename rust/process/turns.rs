// SPDX-License-Identifier: GPL-2.0-only

//! One at a time does something for a process, unless that does not come to an end.
//!
//! Buffers of two processes that are brought back at a time push each other out again. But amdgpu
//! brings them back under a lock of the process's (`process_info->lock`), under which it also
//! waits for memory of the process's own (USERPTR): for a program, if that memory is a file whose
//! server does not answer. So a turn that has lasted long is over for all others.

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex,
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Whose turn it is.
#[pin_data]
pub(super) struct Turns {
    limit: Delta,
    #[pin]
    last: Mutex<Last>,
}

/// The last turn that was taken.
struct Last {
    number: u64,
    /// Since when. `None`: it is over.
    since: Option<Instant<Monotonic>>,
}

/// A turn; it ends when this is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    /// It is nobody's turn. What lasts longer than `limit` keeps nobody waiting.
    pub(super) fn new(limit: Delta) -> impl PinInit<Self> {
        let last = Last {
            number: 0,
            since: None,
        };
        pin_init!(Self {
            limit,
            last <- new_mutex!(last, "amdkfd::Turns"),
        })
    }

    /// Takes a turn. `None`: it is somebody else's.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let mut last = self.last.lock();
        if last.since.is_some_and(|since| since.elapsed() < self.limit) {
            return None;
        }
        last.number += 1;
        last.since = Some(Instant::now());
        Some(Turn {
            turns: self,
            number: last.number,
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut last = self.turns.last.lock();
        // If not, it was over long ago, and another one's turn is not ours to end.
        if last.number == self.number {
            last.since = None;
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_turns)]
mod tests {
    use super::*;
    use kernel::time::delay::fsleep;

    #[test]
    fn nobody_waits_for_who_does_not_come_to_an_end() {
        const LIMIT: Delta = Delta::from_millis(50);
        let turns = KBox::pin_init(Turns::new(LIMIT), GFP_KERNEL).unwrap();
        let stuck = turns.take().unwrap();
        assert!(turns.take().is_none());
        fsleep(LIMIT);
        let other = turns.take().unwrap();
        assert!(turns.take().is_none());
        // It comes to an end after all: that of the other one goes on.
        drop(stuck);
        assert!(turns.take().is_none());
        drop(other);
        assert!(turns.take().is_some());
        assert!(turns.take().is_some());
    }
}
