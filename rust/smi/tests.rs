// SPDX-License-Identifier: GPL-2.0-only

//! Tests of SMI events.

#[kernel::macros::kunit_tests(amdkfd_smi)]
mod tests {
    use super::super::*;
    use crate::linux::users::user_of;
    use kernel::{
        bindings,
        sync::CondVar,
        task::Task, //
    };

    fn reads(event: SmiEvent<'_>, text: &str) -> bool {
        event.line().bytes() == text.as_bytes()
    }

    fn task(pid: i32, name: &str) -> VmTask {
        let mut task = VmTask {
            pid,
            ..VmTask::default()
        };
        for (to, from) in task.name.0.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        task
    }

    fn listener(of: Serial, privileged: bool, wanted: u64) -> Arc<Listener> {
        of_user(1000, of, privileged, wanted)
    }

    fn of_user(user: u32, of: Serial, privileged: bool, wanted: u64) -> Arc<Listener> {
        let inbox = Inbox {
            ring: KVec::from_elem(0, 64, GFP_KERNEL).unwrap(),
            first: 0,
            length: 0,
        };
        let listener = pin_init!(Listener {
            inbox <- new_irq_spinlock!(inbox, "test"),
            arrived <- new_poll_condvar!("test"),
            waking <- new_work!("test"),
            wanted: Atomic::new(wanted),
            of,
            user: user_of(user),
            privileged,
        });
        Arc::pin_init(listener, GFP_KERNEL).unwrap()
    }

    fn eviction(of: Serial) -> SmiEvent<'static> {
        SmiEvent::Eviction {
            pid: 7,
            of,
            gpu: 0x89d1,
            trigger: Trigger::TTM,
        }
    }

    #[test]
    fn lines_read_as_user_space_parses_them() {
        let (task, of) = (task(0x1a2, "name"), Serial::next());
        let fault = SmiEvent::VmFault { of, task: &task };
        assert!(reads(fault, "1 1a2:name\n"));
        let throttle = SmiEvent::Throttle {
            reasons: 0x20,
            count: 0x11,
        };
        assert!(reads(throttle, "2 20:11\n"));
        let reset = |over, cause| SmiEvent::Reset {
            over,
            number: 10,
            cause,
        };
        assert!(reads(reset(false, "job hang"), "3 a job hang\n"));
        assert!(reads(reset(true, ""), "4 a \n"));
        assert!(reads(
            SmiEvent::Process {
                ends: false,
                of,
                task: &task
            },
            "c 1a2 name\n"
        ));
        assert!(reads(
            SmiEvent::Process {
                ends: true,
                of,
                task: &task
            },
            "d 1a2 name\n"
        ));
        let line = eviction(of).line();
        assert!(line.bytes().starts_with(b"9 "));
        assert!(line.bytes().ends_with(b" -7 89d1 2\n"));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let cause = "0123456789012345678901234567890123456789012345678901234567890123456789\
            0123456789012345678901234567890123456789";
        let event = SmiEvent::Reset {
            over: false,
            number: 1,
            cause,
        };
        assert_eq!(event.line().bytes().len(), 95);
    }

    #[test]
    fn events_of_a_process_are_its_own_or_the_privileged_ones() {
        let all = u64::MAX;
        // The other one may have the first one's pid, after it or in another pid namespace.
        let (of, other) = (Serial::next(), Serial::next());
        assert!(!listener(of, true, 1 << 7).wants(&eviction(of)));
        assert!(listener(of, true, 1 << 8).wants(&eviction(of)));
        let task = task(7, "name");
        for event in [
            eviction(of),
            SmiEvent::VmFault { of, task: &task },
            SmiEvent::Process {
                ends: false,
                of,
                task: &task,
            },
        ] {
            assert!(listener(of, false, all).wants(&event));
            assert!(!listener(other, false, all).wants(&event));
            assert!(listener(other, true, all).wants(&event));
        }
        // Of whom amdgpu knows nothing nobody is told.
        let task = VmTask::default();
        for event in [
            SmiEvent::VmFault { of, task: &task },
            SmiEvent::Process {
                ends: true,
                of,
                task: &task,
            },
        ] {
            assert!(!listener(of, true, all).wants(&event));
        }
        let of_the_gpu = SmiEvent::Throttle {
            reasons: 0,
            count: 0,
        };
        assert!(listener(other, false, 2).wants(&of_the_gpu));
    }

    #[test]
    fn an_inbox_keeps_whole_lines_in_order() {
        let listener = listener(Serial::next(), true, 0);
        let mut inbox = listener.inbox.lock();
        let mut out = [0; 64];
        for round in 0..10u8 {
            assert!(inbox.put(&[round; 30]) && inbox.put(&[round + 1; 30]));
            assert!(!inbox.put(&[0; 5]));
            assert_eq!(inbox.take(&mut out[..40]), 40);
            assert!(out[..30] == [round; 30] && out[30..40] == [round + 1; 10]);
            assert_eq!(inbox.take(&mut out), 20);
            assert_eq!(inbox.take(&mut out), 0);
        }
    }

    #[test]
    fn a_user_has_only_so_many_and_monitors_have_more() {
        let listeners = Listeners::new().unwrap();
        let of = Serial::next();
        let greedy = of_user(1000, of, false, 0);
        for _ in 0..MAX_OF_A_USER {
            listeners.add(greedy.clone()).unwrap();
        }
        assert_eq!(listeners.add(greedy.clone()), Err(ENOSPC));
        assert_eq!(listeners.add(of_user(1001, of, false, 0)), Ok(()));
        for user in 2000..2000 + (MAX_OF_ALL_USERS / MAX_OF_A_USER) as u32 {
            let another = of_user(user, of, false, 0);
            while listeners.add(another.clone()).is_ok() {}
        }
        assert_eq!(listeners.count.load(Relaxed), MAX_OF_ALL_USERS);
        for _ in 0..2 {
            assert_eq!(listeners.add(of_user(0, of, true, 0)), Ok(()));
        }
        listeners.remove(&greedy);
        assert_eq!(listeners.add(greedy.clone()), Ok(()));
        assert_eq!(listeners.add(greedy), Err(ENOSPC));
    }

    #[test]
    fn the_lock_is_let_go_after_each_batch() {
        let listeners = Listeners::new().unwrap();
        let of = Serial::next();
        let reader = listener(of, true, u64::MAX);
        for _ in 0..2 * BATCH + 1 {
            listeners.add(reader.clone()).unwrap();
        }
        let line = eviction(of).line();
        let mut out = [0; 64];
        for (first, next) in [
            (0, Some(BATCH)),
            (BATCH, Some(2 * BATCH)),
            (2 * BATCH, None),
        ] {
            assert_eq!(listeners.notify_batch(first, &eviction(of), &line), next);
            assert!(reader.inbox.lock().take(&mut out) > 0);
        }
        assert_eq!(
            listeners.notify_batch(2 * BATCH + 2, &eviction(of), &line),
            None
        );
    }

    #[test]
    fn who_is_removed_is_not_told() {
        let listeners = Listeners::new().unwrap();
        let [first, second] = [(); 2].map(|()| listener(Serial::next(), true, u64::MAX));
        listeners.add(first.clone()).unwrap();
        listeners.add(second.clone()).unwrap();
        listeners.remove(&first);
        listeners.notify_reset(false, "x");
        assert_eq!(first.inbox.lock().length, 0);
        assert_eq!(second.inbox.lock().length, "3 1 x\n".len());
    }

    /// The task that has woken who polls; 0: none has.
    static WAKER: Atomic<usize> = Atomic::new(0);

    /// # Safety
    ///
    /// Any arguments will do.
    unsafe extern "C" fn woken(
        _: *mut bindings::wait_queue_entry,
        _: c_uint,
        _: c_int,
        _: *mut c_void,
    ) -> c_int {
        WAKER.store(Task::current_raw().addr(), Relaxed);
        0
    }

    #[test]
    fn who_polls_is_not_woken_by_who_tells() {
        assert_eq!(size_of::<CondVar>(), size_of::<bindings::wait_queue_head>());
        let listeners = Listeners::new().unwrap();
        let reader = listener(Serial::next(), true, u64::MAX);
        listeners.add(reader.clone()).unwrap();
        // CAST: It is a `wait_queue_head` and nothing else, which C changes.
        let queue = (&raw const *reader.arrived).cast_mut().cast();
        let mut entry = bindings::wait_queue_entry {
            func: Some(woken),
            ..pin_init::zeroed()
        };
        // SAFETY: The queue is the reader's, and the entry stays where it is until it is removed.
        unsafe { bindings::add_wait_queue(queue, &raw mut entry) };
        listeners.notify_reset(false, "x");
        assert_eq!(reader.inbox.lock().length, "3 1 x\n".len());
        listeners.wakers.settle();
        // SAFETY: It was added above.
        unsafe { bindings::remove_wait_queue(queue, &raw mut entry) };
        let waker = WAKER.load(Relaxed);
        assert!(waker != 0 && waker != Task::current_raw().addr());
    }
}
