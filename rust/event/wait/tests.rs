// SPDX-License-Identifier: GPL-2.0-only

//! Tests of waits.

#[kernel::macros::kunit_tests(amdkfd_event_wait)]
mod tests {
    use super::super::{
        super::{
            page::Hint,
            waits::FEW_WAITERS, //
        },
        *,
    };
    use crate::linux::workqueue::OwnedQueue;
    use kernel::{
        bindings,
        task::Task, //
    };

    // `include/linux/signal.h`, `include/linux/sched/signal.h`
    #[allow(improper_ctypes)]
    unsafe extern "C" {
        fn kernel_sigaction(signal: c_int, action: usize);
        fn send_sig(signal: c_int, task: *mut bindings::task_struct, privileged: c_int) -> c_int;
        fn flush_signals(task: *mut bindings::task_struct);
    }

    /// `SIG_IGN`, and `SIG_KTHREAD`: a kernel thread asks for the signal.
    const ACTIONS: [usize; 2] = [1, 2];

    /// So many waits of this thread for an automatic event of `events`, and its id.
    fn waiters(events: &Events, count: usize) -> (u32, KVec<WaitId>) {
        let id = events
            .create(crate::uapi::KFD_IOC_EVENT_SIGNAL, Mode::Auto)
            .unwrap()
            .id;
        let mut waits = KVec::new();
        for _ in 0..count {
            waits.push(join(events, id), GFP_KERNEL).unwrap();
        }
        (id, waits)
    }

    fn join(events: &Events, event: u32) -> WaitId {
        let seen = Seen {
            event,
            ..Seen::default()
        };
        let wait = Wait {
            task: ARef::from(&**kernel::current!()),
            links: links(&[seen]).unwrap(),
            tally: Tally::new(1, false),
            broken: false,
        };
        let (mut inner, id) = events.enter(wait).unwrap();
        inner.join(id, 0);
        id
    }

    /// How many of the waits are over.
    fn over(events: &Events, waits: &[WaitId]) -> usize {
        let mut inner = events.inner.lock();
        let mut complete = |id| {
            inner
                .waits
                .get_mut(id)
                .is_some_and(|wait| wait.tally.complete())
        };
        waits.iter().filter(|id| complete(**id)).count()
    }

    fn is_signalled(events: &Events, id: u32) -> bool {
        let mut inner = events.inner.lock();
        inner
            .tables
            .get_mut(id)
            .is_some_and(|event| event.latch.take())
    }

    #[test]
    fn sorting_puts_keys_in_order() {
        let mut state = 1u64;
        for len in 0..100 {
            let mut keys = KVVec::new();
            for _ in 0..len {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                keys.push(state >> 60, GFP_KERNEL).unwrap();
            }
            let sum = keys.iter().sum::<u64>();
            sort(&mut keys);
            assert!(keys.is_sorted());
            assert_eq!(keys.iter().sum::<u64>(), sum);
        }
    }

    #[test]
    fn of_many_waiters_an_interrupt_tells_a_few_and_a_worker_the_others() {
        let events = Events::with_page(256).unwrap();
        let (id, waits) = waiters(&events, 3 * FEW_WAITERS);
        events.write_slot(id, 1);
        assert!(!events.signal_hinted(Hint::new(id, 32)));
        assert_eq!(over(&events, &waits), FEW_WAITERS);
        let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
        Events::search_on(events.as_arc_borrow(), &queue);
        drop(queue);
        assert_eq!(over(&events, &waits), 3 * FEW_WAITERS);
        assert!(!is_signalled(&events, id));
        // A few need no worker; nor do many where nobody is interrupted.
        let (id, waits) = waiters(&events, FEW_WAITERS);
        events.write_slot(id, 1);
        assert!(events.signal_hinted(Hint::new(id, 32)));
        assert_eq!(over(&events, &waits), FEW_WAITERS);
        let (id, waits) = waiters(&events, 3 * FEW_WAITERS);
        events.set(id).unwrap();
        assert_eq!(over(&events, &waits), 3 * FEW_WAITERS);
        // Nor does another one's worker, or a reset, tell many.
        let (_, waits) = waiters(&events, 3 * FEW_WAITERS);
        events.signal_all(None);
        assert_eq!(over(&events, &waits), FEW_WAITERS);
        let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
        events.signal_all(Some(&queue));
        drop(queue);
        assert_eq!(over(&events, &waits), 3 * FEW_WAITERS);
    }

    #[test]
    fn a_signal_is_of_those_who_waited_when_it_came() {
        let events = Events::with_page(256).unwrap();
        let (id, waits) = waiters(&events, FEW_WAITERS + 2);
        events.inner.lock().signal(id);
        // Who joined first is told last. One leaves before that, and has its signal.
        events.inner.lock().leave(waits[0], 0);
        assert_eq!(over(&events, &waits), FEW_WAITERS + 1);
        // Who joins now waits for the next one.
        let last = join(&events, id);
        events.fire_late();
        assert_eq!(over(&events, &waits), FEW_WAITERS + 2);
        assert_eq!(over(&events, &[last]), 0);
        events.inner.lock().signal(id);
        assert_eq!(over(&events, &[last]), 1);
        assert!(!is_signalled(&events, id));
        // A signal while only those are left who are late is nobody's, and kept.
        let (id, waits) = waiters(&events, FEW_WAITERS + 1);
        (0..2).for_each(|_| events.inner.lock().signal(id));
        assert_eq!(over(&events, &waits), FEW_WAITERS + 1);
        assert!(is_signalled(&events, id));
    }

    #[test]
    fn of_many_waiters_a_destroyed_event_tells_a_few_at_a_time() {
        let events = Events::with_page(256).unwrap();
        let (id, waits) = waiters(&events, 2 * FEW_WAITERS + 2);
        let broken = |events: &Events| {
            let mut inner = events.inner.lock();
            let mut is_broken = |id| inner.waits.get_mut(id).is_some_and(|wait| wait.broken);
            waits.iter().filter(|id| is_broken(**id)).count()
        };
        events.inner.lock().tables.condemn(id).unwrap();
        assert!(events.inner.lock().abandon(id));
        assert_eq!(broken(&events), FEW_WAITERS);
        // In between nobody finds it, and its id is nobody else's.
        assert_eq!(events.set(id), Err(EINVAL));
        assert_eq!(events.destroy(id), Err(EINVAL));
        events.write_slot(id, 1);
        events.signal_written();
        assert_eq!(over(&events, &waits), 0);
        let (other, _) = waiters(&events, 0);
        assert_ne!(other, id);
        // Who joined first is told last. One leaves before that.
        events.inner.lock().leave(waits[0], 0);
        assert!(events.inner.lock().abandon(id));
        assert!(!events.inner.lock().abandon(id));
        assert_eq!(broken(&events), 2 * FEW_WAITERS + 1);
        let (next, waits) = waiters(&events, 3 * FEW_WAITERS);
        assert_eq!(next, id);
        events.destroy(id).unwrap();
        assert_eq!(over(&events, &waits), 0);
        assert_eq!(waiters(&events, 0).0, id);
    }

    #[test]
    fn a_wait_without_memory_leaves_signals() {
        let events = Events::with_page(256).unwrap();
        let [one, other] = [(); 2].map(|()| waiters(&events, 0).0);
        events.set(one).unwrap();
        let mut tally = Tally::new(2, true);
        // As a look at both finds it, which takes the signal.
        assert!(is_signalled(&events, one));
        let mut seen = [(one, true), (other, false)].map(|(event, fired)| Seen {
            event,
            fired,
            ..Seen::default()
        });
        tally.fire_many(1);
        events.inner.lock().waits.limit = 0;
        let mut timeout = Timeout::FOREVER;
        assert_eq!(events.park(&mut seen, tally, &mut timeout), Err(ENOMEM));
        assert_eq!(events.failed(&seen, ENOMEM), ENOMEM);
        assert!(is_signalled(&events, one));
    }

    #[test]
    fn a_signal_ends_a_wait_that_has_no_time() {
        assert_eq!(given_up(Timeout::NONE), Some(Ok(Outcome::TimedOut)));
        assert_eq!(given_up(Timeout::FOREVER), None);
        let (current, signal) = (Task::current_raw(), bindings::SIGBUS as c_int);
        // SAFETY: The current task is a kernel thread, and its signals are its own.
        unsafe {
            kernel_sigaction(signal, ACTIONS[1]);
            send_sig(signal, current, 1);
        }
        let interrupted = [Timeout::NONE, Timeout::FOREVER].map(given_up);
        // SAFETY: As above.
        unsafe {
            flush_signals(current);
            kernel_sigaction(signal, ACTIONS[0]);
        }
        assert_eq!(interrupted, [Some(Err(ERESTARTSYS)); 2]);
        assert_eq!(given_up(Timeout::FOREVER), None);
    }
}
