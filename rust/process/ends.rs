// SPDX-License-Identifier: GPL-2.0-only

//! Processes on their way out, for who begins another one.
//!
//! What a process still holds is given back before the next one of its user asks for more: that is
//! what a program expects that is started after another one. But how long the end of a process
//! takes is its user's choice, who may have a million buffers. So another user's end is waited for
//! only for a moment.

use crate::linux::workqueue::Deferrable;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc,
        Completion,
        Mutex, //
    },
    task::Kuid,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// The ends of all processes that there are.
#[pin_data]
pub(super) struct Ends {
    #[pin]
    all: Mutex<KVec<Arc<End>>>,
}

/// The end of a process.
#[pin_data]
struct End {
    user: Kuid,
    /// Nobody has the process any more.
    begun: Atomic<bool>,
    #[pin]
    over: Completion,
}

impl End {
    fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }
}

/// Owned by a process: dropped when it has given back what it had.
pub(super) struct Ending {
    ends: Arc<Ends>,
    end: Arc<End>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ends
            .all
            .lock()
            .retain(|other| !Arc::ptr_eq(other, &self.end));
        self.end.over.complete_all();
    }
}

impl Deferrable for Ending {
    fn leaves(&self) {
        self.end.begun.store(true, Relaxed);
    }
}

impl Ends {
    /// None.
    pub(super) fn new() -> Result<Arc<Self>> {
        let ends = pin_init!(Self {
            all <- new_mutex!(KVec::new(), "amdkfd::Ends"),
        });
        Arc::pin_init(ends, GFP_KERNEL)
    }

    /// For a new process of that user's.
    pub(super) fn add(self: &Arc<Self>, user: Kuid) -> Result<Ending> {
        let end = pin_init!(End {
            user,
            begun: Atomic::new(false),
            over <- Completion::new(),
        });
        let end = Arc::pin_init(end, GFP_KERNEL)?;
        self.all.lock().push(end.clone(), GFP_KERNEL)?;
        Ok(Ending {
            ends: self.clone(),
            end,
        })
    }

    /// The first end that has begun, of all or of a user's processes.
    fn begun(&self, user: Option<&Kuid>) -> Option<Arc<End>> {
        let all = self.all.lock();
        let mut begun = all.iter().filter(|end| end.has_begun());
        begun
            .find(|end| user.is_none_or(|user| end.user == *user))
            .cloned()
    }

    /// Waits for the ends that have begun: of that user's processes until they are over, of others'
    /// for 0.1 s. Nothing may be locked.
    ///
    /// TIMEOUT: none for what is the user's own.
    pub(super) fn settle(&self, user: &Kuid) {
        const STEP: Delta = Delta::from_millis(1);
        const STEPS: u32 = 100;
        // More may begin meanwhile.
        let many = self.all.lock().len();
        for _ in 0..many {
            match self.begun(Some(user)) {
                Some(end) => end.over.wait_for_completion(),
                None => break,
            }
        }
        for _ in 0..STEPS {
            if self.begun(None).is_none() {
                return;
            }
            fsleep(STEP);
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_ends)]
mod tests {
    use super::*;
    use crate::linux::workqueue::OwnedQueue;
    use kernel::{
        sync::atomic::ordering::{
            Acquire,
            Release, //
        },
        time::{
            Instant,
            Monotonic, //
        },
    };

    /// A user by number.
    fn user(id: u32) -> Kuid {
        let raw = kernel::bindings::kuid_t { val: id };
        Kuid::from_raw(raw)
    }

    fn seconds(ends: &Ends, id: u32) -> i64 {
        let begin = Instant::<Monotonic>::now();
        ends.settle(&user(id));
        begin.elapsed().as_millis() / 1000
    }

    #[test]
    fn the_end_of_another_users_process_is_waited_for_a_moment() {
        let ends = Ends::new().unwrap();
        let slow = ends.add(user(1)).unwrap();
        // It lives: nobody waits for it.
        assert_eq!(seconds(&ends, 1), 0);
        slow.leaves();
        let begin = Instant::<Monotonic>::now();
        ends.settle(&user(2));
        let waited = begin.elapsed();
        assert!(waited >= Delta::from_millis(50) && waited < Delta::from_secs(1));
        drop(slow);
        assert!(ends.begun(None).is_none());
    }

    #[test]
    fn the_end_of_ones_own_process_is_waited_for() {
        let ends = Ends::new().unwrap();
        let (slow, alive) = (ends.add(user(1)).unwrap(), ends.add(user(1)).unwrap());
        slow.leaves();
        let over = Arc::new(Atomic::new(false), GFP_KERNEL).unwrap();
        let done = over.clone();
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let end = move || {
            fsleep(Delta::from_millis(300));
            done.store(true, Release);
            drop(slow);
        };
        queue.try_spawn(GFP_KERNEL, end).unwrap();
        ends.settle(&user(1));
        assert!(over.load(Acquire));
        drop((alive, queue));
    }
}
