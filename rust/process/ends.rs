// SPDX-License-Identifier: GPL-2.0-only

//! Processes on their way out, for who begins another one.
//!
//! What a process still holds is given back before the next one of its user asks for more: that is
//! what a program expects that is started after another one. But how long the end of a process
//! takes is its user's choice, who may have a million buffers. So another user's end is waited for
//! only for a moment, and one's own for so long that no program does better to wait on; whoever
//! waits can be killed.

use crate::linux::{
    completion::Completion,
    task::is_killed,
    workqueue::Deferrable, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
    task::Kuid,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// How long the ends of one's own user's processes are waited for.
const OWN: Delta = Delta::from_secs(30);

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

impl Ending {
    /// The user whose process it is, as it was when the process began.
    pub(super) fn user(&self) -> Kuid {
        self.end.user
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
    /// for 0.1 s. Nothing may be locked. `EBUSY`: after 30 s the user's own are not over. `EINTR`:
    /// the task is being killed.
    pub(super) fn settle(&self, user: &Kuid) -> Result {
        self.settle_within(user, OWN)
    }

    fn settle_within(&self, user: &Kuid, limit: Delta) -> Result {
        const STEP: Delta = Delta::from_millis(1);
        const STEPS: u32 = 100;
        // More may begin meanwhile.
        let many = self.all.lock().len();
        let begin = Instant::<Monotonic>::now();
        for _ in 0..many {
            let Some(end) = self.begun(Some(user)) else {
                break;
            };
            if !end.over.wait_killable(limit - begin.elapsed())? {
                return Err(EBUSY);
            }
        }
        for _ in 0..STEPS {
            if self.begun(None).is_none() {
                break;
            }
            if is_killed() {
                return Err(EINTR);
            }
            fsleep(STEP);
        }
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_ends)]
mod tests {
    use super::*;
    use crate::linux::workqueue::OwnedQueue;
    use kernel::{
        bindings,
        sync::atomic::ordering::{
            Acquire,
            Release, //
        },
        task::Task,
    };

    // `include/linux/signal.h`, `include/linux/sched/signal.h`
    #[allow(improper_ctypes)]
    unsafe extern "C" {
        fn kernel_sigaction(signal: c_int, action: usize);
        fn send_sig(signal: c_int, task: *mut bindings::task_struct, privileged: c_int) -> c_int;
        fn flush_signals(task: *mut bindings::task_struct);
    }

    /// A user by number.
    fn user(id: u32) -> Kuid {
        let raw = kernel::bindings::kuid_t { val: id };
        Kuid::from_raw(raw)
    }

    fn seconds(ends: &Ends, id: u32) -> i64 {
        let begin = Instant::<Monotonic>::now();
        ends.settle(&user(id)).unwrap();
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
        ends.settle(&user(2)).unwrap();
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
        ends.settle(&user(1)).unwrap();
        assert!(over.load(Acquire));
        drop((alive, queue));
    }

    #[test]
    fn an_end_that_does_not_come_is_waited_for_within_bounds() {
        let ends = Ends::new().unwrap();
        let slow = ends.add(user(1)).unwrap();
        slow.leaves();
        let limit = Delta::from_millis(200);
        let begin = Instant::<Monotonic>::now();
        assert_eq!(ends.settle_within(&user(1), limit), Err(EBUSY));
        let waited = begin.elapsed();
        assert!(waited >= Delta::from_millis(150) && waited < Delta::from_secs(5));
        drop(slow);
        assert_eq!(ends.settle_within(&user(1), limit), Ok(()));
    }

    #[test]
    fn who_waits_for_an_end_can_be_killed() {
        let ends = Ends::new().unwrap();
        let slow = ends.add(user(1)).unwrap();
        slow.leaves();
        let (current, signal) = (Task::current_raw(), bindings::SIGKILL as c_int);
        // SAFETY: The current task is a kernel thread, and its signals are its own. 2 is
        // `SIG_KTHREAD`: it asks for the signal.
        unsafe {
            kernel_sigaction(signal, 2);
            send_sig(signal, current, 1);
        }
        let begin = Instant::<Monotonic>::now();
        let results = [user(1), user(2)].map(|user| ends.settle(&user));
        // SAFETY: As above; 1 is `SIG_IGN`.
        unsafe {
            flush_signals(current);
            kernel_sigaction(signal, 1);
        }
        assert_eq!(results, [Err(EINTR); 2]);
        assert!(begin.elapsed() < Delta::from_millis(50));
        drop(slow);
    }
}
