// SPDX-License-Identifier: GPL-2.0-only

//! Processes on their way out, for who begins another one.
//!
//! What a process still holds is given back before the next one of its user asks for more: that is
//! what a program expects that is started after another one. But how long the end of a process
//! takes is its user's choice, who may have a million buffers. So another user's end is waited for
//! only for a moment, and one's own for so long that no program does better to wait on; whoever
//! waits can be killed. Nobody who waits looks at processes that live, or at other users'.
//!
//! A process lasts as long as a file of it, which another process may keep. So a user who has many
//! of them gets no further contexts, whatever limits there are to live ones.

use crate::linux::{
    completion::Completion,
    spinlock::{
        new_irq_spinlock,
        IrqSpinLock, //
    },
    task::is_killed,
    users::{
        Share,
        Users, //
    },
    workqueue::Deferrable, //
};
use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        AtomicTracker,
        List,
        ListArc,
        ListLinks,
        TryNewListArc, //
    },
    prelude::*,
    static_lock_class,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
    task::Kuid,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Processes of a user, contexts among them, from which on one who is not privileged
/// (CAP_SYS_ADMIN) gets no further context. Each takes some 10 KiB, and some for each GPU, charged
/// to who makes it. Who opens /dev/kfd is not refused: a uid may be that of many containers.
const MAX_OF_A_USER: usize = 8192;

/// How long the ends of one's own user's processes are waited for.
const OWN: Delta = Delta::from_secs(30);

/// How long those of others'.
const OTHERS: Delta = Delta::from_millis(100);

/// Which processes there are of whom, and their ends.
pub(super) struct Ends {
    users: Arc<Users<User>>,
    /// Ends that have begun and are not over.
    begun: Atomic<usize>,
}

/// What the processes of a user share.
type User = IrqSpinLock<Begun>;

/// Ends that have begun and are not over.
struct Begun {
    ends: List<End>,
    count: usize,
}

/// The end of a process.
#[pin_data]
struct End {
    #[pin]
    over: Completion,
    #[pin]
    tracker: AtomicTracker,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for End { tracked_by tracker: AtomicTracker; }
}
impl_list_item! {
    impl ListItem<0> for End { using ListLinks { self.links }; }
}

/// Owned by a process: dropped when it has given back what it had.
pub(super) struct Ending {
    end: Arc<End>,
    user: Share<User>,
    ends: Arc<Ends>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut begun = self.user.lock();
        // SAFETY: It is in no list but this one, if in any.
        let listed = unsafe { begun.ends.remove(&self.end) };
        if listed.is_some() {
            begun.count -= 1;
            self.ends.begun.fetch_sub(1, Relaxed);
        }
        drop(begun);
        self.end.over.complete_all();
    }
}

impl Deferrable for Ending {
    fn leaves(&self) {
        let Ok(end) = ListArc::try_from_arc(self.end.clone()) else {
            return;
        };
        let mut begun = self.user.lock();
        begun.ends.push_back(end);
        begun.count += 1;
        self.ends.begun.fetch_add(1, Relaxed);
    }
}

impl Ending {
    /// The user whose process it is, as it was when the process began.
    pub(super) fn user(&self) -> Kuid {
        self.user.user()
    }
}

impl Ends {
    /// None.
    pub(super) fn new() -> Result<Arc<Self>> {
        let class = static_lock_class!();
        let ends = Self {
            users: Users::new(c"amdkfd::Ends::users", class, MAX_OF_A_USER, ENOSPC)?,
            begun: Atomic::new(0),
        };
        Ok(Arc::new(ends, GFP_KERNEL)?)
    }

    /// For a new process of that user's. `ENOSPC`: the user has [`MAX_OF_A_USER`], those included
    /// that somebody keeps a file of, unless `is_exempt` says that this does not matter.
    pub(super) fn add(
        self: &Arc<Self>,
        user: Kuid,
        is_exempt: impl Fn() -> bool,
    ) -> Result<Ending> {
        let begun = Begun {
            ends: List::new(),
            count: 0,
        };
        let new = new_irq_spinlock!(begun, "amdkfd::Ends::begun");
        let user = self.users.share(user, new, is_exempt)?;
        let end = pin_init!(End {
            over <- Completion::new(),
            tracker <- AtomicTracker::new(),
            links <- ListLinks::new(),
        });
        let end = Arc::pin_init(end, GFP_KERNEL_ACCOUNT)?;
        let ends = self.clone();
        Ok(Ending { end, user, ends })
    }

    /// Waits for the ends that have begun: of that user's processes until they are over, of others'
    /// for 0.1 s. Nothing may be locked. `EBUSY`: after 30 s the user's own are not over. `EINTR`:
    /// the task is being killed.
    pub(super) fn settle(&self, user: &Kuid) -> Result {
        self.settle_within(user, OWN)
    }

    fn settle_within(&self, user: &Kuid, limit: Delta) -> Result {
        const STEP: Delta = Delta::from_millis(1);
        if let Some(own) = self.users.find(*user) {
            settle_own(&own, limit)?;
        }
        let begin = Instant::<Monotonic>::now();
        while self.begun.load(Relaxed) != 0 && begin.elapsed() < OTHERS {
            if is_killed() {
                return Err(EINTR);
            }
            fsleep(STEP);
        }
        Ok(())
    }
}

/// The end that has begun first of those that are not over.
fn first(user: &User) -> Option<Arc<End>> {
    let begun = user.lock();
    let mut ends = begun.ends.iter();
    ends.next().map(Arc::from)
}

fn settle_own(user: &User, limit: Delta) -> Result {
    // More may begin meanwhile.
    let many = user.lock().count;
    let begin = Instant::<Monotonic>::now();
    for _ in 0..many {
        let Some(end) = first(user) else {
            break;
        };
        if !end.over.wait_killable(limit - begin.elapsed())? {
            return Err(EBUSY);
        }
    }
    Ok(())
}

#[kernel::macros::kunit_tests(amdkfd_process_ends)]
mod tests {
    use super::*;
    use crate::linux::{
        users::user_of as user,
        workqueue::OwnedQueue, //
    };
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

    fn add(ends: &Arc<Ends>, id: u32) -> Result<Ending> {
        ends.add(user(id), || false)
    }

    fn seconds(ends: &Ends, id: u32) -> i64 {
        let begin = Instant::<Monotonic>::now();
        ends.settle(&user(id)).unwrap();
        begin.elapsed().as_millis() / 1000
    }

    #[test]
    fn the_end_of_another_users_process_is_waited_for_a_moment() {
        let ends = Ends::new().unwrap();
        let slow = add(&ends, 1).unwrap();
        // It lives: nobody waits for it.
        assert_eq!(seconds(&ends, 1), 0);
        slow.leaves();
        let begin = Instant::<Monotonic>::now();
        ends.settle(&user(2)).unwrap();
        let waited = begin.elapsed();
        assert!(waited >= Delta::from_millis(50) && waited < Delta::from_secs(10));
        drop(slow);
        assert_eq!(ends.begun.load(Relaxed), 0);
        assert_eq!(ends.users.counts(), (0, 0));
    }

    #[test]
    fn the_end_of_ones_own_process_is_waited_for() {
        let ends = Ends::new().unwrap();
        let (slow, alive) = (add(&ends, 1).unwrap(), add(&ends, 1).unwrap());
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
        let slow = add(&ends, 1).unwrap();
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
        let slow = add(&ends, 1).unwrap();
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
        assert!(begin.elapsed() < Delta::from_secs(5));
        drop(slow);
    }

    #[test]
    fn a_user_has_so_many_processes_and_others_have_theirs() {
        let ends = Ends::new().unwrap();
        let mut kept = KVVec::new();
        for _ in 0..MAX_OF_A_USER {
            kept.push(add(&ends, 1).unwrap(), GFP_KERNEL).unwrap();
        }
        assert_eq!(add(&ends, 1).err(), Some(ENOSPC));
        let others = (add(&ends, 2).unwrap(), ends.add(user(1), || true).unwrap());
        drop((kept.pop(), kept.pop()));
        let again = add(&ends, 1).unwrap();
        assert!(add(&ends, 1).is_err());
        drop((kept, others, again));
        assert_eq!(ends.users.counts(), (0, 0));
    }

    #[test]
    fn nobody_waits_for_how_many_processes_others_have() {
        let ends = Ends::new().unwrap();
        let mut alive = KVVec::new();
        for _ in 0..200_000 {
            let process = ends.add(user(1), || true).unwrap();
            alive.push(process, GFP_KERNEL).unwrap();
        }
        let slow = ends.add(user(1), || true).unwrap();
        slow.leaves();
        let is_quick = || {
            let begin = Instant::<Monotonic>::now();
            ends.settle(&user(2)).unwrap();
            begin.elapsed() < Delta::from_millis(500)
        };
        assert!((0..3).any(|_| is_quick()));
        drop((slow, alive));
    }
}
