// SPDX-License-Identifier: GPL-2.0-only

//! Tests of devices that are up.

#[kernel::macros::kunit_tests(amdkfd_served)]
mod tests {
    use super::super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                hw_queue, //
            },
            Engine,
            Words, //
        },
        gpu::NodeUser,
        kgd::fake::Fake,
        linux::{
            errno,
            workqueue::OwnedQueue, //
        },
        sched::{
            mqd_pool::MqdSlot,
            NewSchedProcess,
            NewSchedQueue, //
        },
    };
    use kernel::{
        sync::atomic::ordering::{
            Acquire,
            Release, //
        },
        time::Monotonic, //
    };

    fn two_partitions() -> Arc<Fake> {
        let fake = Fake::with(|facts| {
            facts.num_partitions = 2;
            facts.partitions[1] = facts.partitions[0];
        });
        fake.unwrap()
    }

    /// A device of two partitions with a node each, which nobody knows.
    fn two_nodes() -> Served {
        served(two_partitions())
    }

    fn served(fake: Arc<Fake>) -> Served {
        let gpu = Gpu::new(fake, Gate::new().unwrap()).unwrap();
        let mut nodes = KVec::new();
        for index in 0..2 {
            let id = GpuId::new(index + 1).unwrap();
            nodes
                .push(node(&gpu, index, id).unwrap(), GFP_KERNEL)
                .unwrap();
        }
        Served {
            gpu,
            nodes,
            ids: KVec::new(),
            sleep: Sleep::new().unwrap(),
            ecc: Atomic::new(false),
            retired: Atomic::new(false),
        }
    }

    impl Served {
        fn keeps_processes_off(&self) -> bool {
            self.sleep.processes.lock().count != 0
        }

        fn is_stopped(&self) -> bool {
            let mut nodes = self.nodes.iter();
            nodes.all(|node| node.queues().scheduler().is_stopped())
        }
    }

    /// Ticks that come late all at once make a sleep shorter than it is asked to be.
    fn settle() {
        fsleep(SETTLED);
        fsleep(Delta::from_millis(200));
    }

    #[test]
    fn a_partition_without_a_render_node_is_left_out() {
        let fake = Fake::with(|facts| {
            facts.num_partitions = 3;
            facts.partitions[1].no_render_node = true;
        });
        let fake = fake.unwrap();
        assert!(listed(crate::kgd::Device::facts(&*fake)).eq([0, 2]));
    }

    #[test]
    fn who_reads_the_topology_is_no_process() {
        let served = two_nodes();
        let reader = NodeUser::new(served.nodes[0].clone());
        assert!(!served.has_processes());
        let process = NodeUser::process(served.nodes[1].clone());
        assert!(served.has_processes());
        drop((reader, process));
        assert!(!served.has_processes());
    }

    #[test]
    fn one_that_does_not_wake_up_is_reset_and_the_others_go_on() {
        let fake = two_partitions();
        let served = served(fake.clone());
        served.suspend(true);
        assert!(served.keeps_processes_off());
        fake.refuse_hiq();
        assert_eq!(served.resume(true).err(), Some(errno::timer_expired()));
        assert!(fake.live().in_reset && !served.keeps_processes_off());
    }

    #[test]
    fn pages_stay_away_from_memory_that_may_be_lost() {
        let fake = two_partitions();
        let served = served(fake.clone());
        for sleeps in [false, true] {
            fake.set_suspending(sleeps);
            served.suspend(true);
            assert!(served.keeps_processes_off());
            assert_eq!(svm::sleep::is_asleep(), sleeps);
            // It may wake up for another reason.
            fake.set_suspending(false);
            served.resume(true).unwrap();
            assert!(!svm::sleep::is_asleep());
        }
    }

    #[test]
    fn one_that_wakes_up_is_not_reset_before_it_is_awake() {
        let fake = two_partitions();
        let served = served(fake.clone());
        fake.set_suspending(true);
        served.suspend(true);
        fake.refuse_hiq();
        assert_eq!(served.resume(true), Ok(()));
        assert_eq!(fake.live().resets_asked, 0);
        fake.set_suspending(false);
        let scheduler = served.nodes[0].queues().scheduler();
        let new = NewSchedProcess::new(hw_process(1), false, None).unwrap();
        let process = scheduler.add(new, None);
        for _ in 0..2 {
            let queue = NewSchedQueue::undescribed(hw_queue(Engine::Compute, 1), true);
            assert_eq!(scheduler.map(process, queue.unwrap()), Err(EIO));
            assert_eq!(fake.live().resets_asked, 1);
        }
    }

    #[test]
    fn one_that_sleeps_is_not_started_by_resets() {
        let fake = two_partitions();
        let served = served(fake.clone());
        let loads = fake.live().hiq_loads;
        fake.set_suspending(true);
        served.suspend(true);
        // A copy engine is reset, ...
        served.suspend(true);
        assert_eq!(served.resume(true), Ok(()));
        assert!(served.is_stopped() && served.keeps_processes_off() && svm::sleep::is_asleep());
        // ... and the whole device.
        fake.set_in_reset(true);
        served.pre_reset("");
        fake.reset_hardware();
        assert_eq!(served.post_reset(), Ok(()));
        fake.set_in_reset(false);
        assert!(!served.gpu.gate().is_closed() && served.gpu.resets().quiet().is_ok());
        assert!(served.is_stopped() && served.keeps_processes_off() && svm::sleep::is_asleep());
        assert_eq!((fake.live().hiqs, fake.live().hiq_loads), (0, loads));
        assert_eq!(served.resume(true), Ok(()));
        fake.set_suspending(false);
        assert_eq!((fake.live().hiqs, fake.live().hiq_loads), (1, loads + 2));
        assert!(!served.is_stopped() && !served.keeps_processes_off());
        assert!(!svm::sleep::is_asleep());
    }

    #[test]
    fn a_sleep_that_begins_while_a_copy_engine_is_reset_goes_on_after_it() {
        let fake = two_partitions();
        let served = served(fake.clone());
        served.suspend(true);
        assert!(!svm::sleep::is_asleep());
        fake.set_suspending(true);
        served.suspend(true);
        assert!(svm::sleep::is_asleep());
        served.resume(true).unwrap();
        assert!(served.is_stopped() && served.keeps_processes_off() && svm::sleep::is_asleep());
        served.resume(true).unwrap();
        fake.set_suspending(false);
        assert!(!served.is_stopped() && !served.keeps_processes_off());
        assert!(!svm::sleep::is_asleep());
    }

    #[test]
    fn one_that_wakes_up_during_a_reset_starts_after_it() {
        let fake = two_partitions();
        let served = served(fake.clone());
        served.suspend(true);
        fake.set_in_reset(true);
        served.pre_reset("");
        assert_eq!(served.resume(true), Ok(()));
        assert!(served.is_stopped());
        fake.reset_hardware();
        assert_eq!(served.post_reset(), Ok(()));
        fake.set_in_reset(false);
        assert!(!served.is_stopped());
    }

    #[test]
    fn a_reset_that_begins_during_a_wake_up_takes_what_that_has_started() {
        let fake = two_partitions();
        let served = served(fake.clone());
        served.suspend(true);
        fake.set_in_reset(true);
        served.pre_reset("");
        // The wake-up has looked before.
        served.sleep.stops.lock().count -= 1;
        served.nodes[1].queues().start().unwrap();
        assert!(!served.nodes[1].queues().scheduler().is_stopped());
        fake.reset_hardware();
        let loads = fake.live().hiq_loads;
        assert_eq!(served.post_reset(), Ok(()));
        fake.set_in_reset(false);
        served.resume_processes();
        assert_eq!((fake.live().hiqs, fake.live().hiq_loads), (1, loads + 2));
    }

    #[test]
    fn one_whose_queues_did_not_leave_is_not_started_beside_them() {
        let fake = Fake::with(|facts| {
            facts.num_partitions = 2;
            facts.partitions[1] = facts.partitions[0];
            facts.queue_preemption_timeout_ms = 20;
        });
        let fake = fake.unwrap();
        let served = served(fake.clone());
        let scheduler = served.nodes[0].queues().scheduler();
        let new = NewSchedProcess::new(hw_process(1), false, None).unwrap();
        let process = scheduler.add(new, None);
        let queue = NewSchedQueue::undescribed(hw_queue(Engine::Compute, 1), true);
        scheduler.map(process, queue.unwrap()).unwrap();
        fake.occupy(1 << 1);
        // A copy engine is reset: nothing else is, and the firmware does not answer.
        served.suspend(true);
        assert!(!scheduler.has_let_go() && fake.live().resets_asked == 1);
        fake.set_in_reset(false);
        assert!(scheduler.evict(process).is_err());
        assert_eq!(served.resume(true), Err(EBUSY));
        assert!(!scheduler.has_let_go());
        assert_eq!(scheduler.remove(process), Err(EIO));
        // Then the device goes to sleep, and wakes up with its power gone.
        fake.set_suspending(true);
        served.suspend(true);
        assert!(scheduler.has_let_go());
        fake.reset_hardware();
        assert_eq!(served.resume(true), Ok(()));
        fake.set_suspending(false);
        assert!(scheduler.has_let_go() && !served.is_stopped());
        fake.set_in_reset(false);
    }

    #[test]
    fn a_copy_engine_is_reset_while_a_sleep_waits_for_who_may_need_it() {
        let fake = two_partitions();
        let served = Arc::new(served(fake.clone()), GFP_KERNEL).unwrap();
        let mover = svm::sleep::enter().unwrap();
        fake.set_suspending(true);
        let (sleeper, over) = (
            served.clone(),
            Arc::new(Atomic::new(false), GFP_KERNEL).unwrap(),
        );
        let done = over.clone();
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let fall_asleep = move || {
            sleeper.suspend(true);
            done.store(true, Release);
        };
        queue.try_spawn(GFP_KERNEL, fall_asleep).unwrap();
        while !svm::sleep::is_asleep() {
            fsleep(Delta::from_millis(1));
        }
        // It would not come to an end before the mover does.
        served.suspend(true);
        assert_eq!(served.resume(true), Ok(()));
        assert!(!over.load(Acquire) && served.is_stopped() && svm::sleep::is_asleep());
        drop(mover);
        drop(queue);
        assert!(over.load(Acquire));
        assert_eq!(served.resume(true), Ok(()));
        fake.set_suspending(false);
        assert!(!served.is_stopped() && !svm::sleep::is_asleep());
    }

    #[test]
    fn a_sleep_that_amdgpu_gave_up_is_over_with_the_next_reset() {
        let fake = two_partitions();
        for whole in [true, false] {
            let served = served(fake.clone());
            fake.set_suspending(true);
            served.suspend(true);
            fake.set_suspending(false);
            assert!(served.is_stopped() && served.keeps_processes_off());
            if whole {
                fake.set_in_reset(true);
                served.pre_reset("");
                fake.reset_hardware();
                assert_eq!(served.post_reset(), Ok(()));
                fake.set_in_reset(false);
            } else {
                served.suspend(true);
                assert_eq!(served.resume(true), Ok(()));
            }
            assert!(!served.is_stopped() && !served.keeps_processes_off());
            assert!(!svm::sleep::is_asleep());
        }
    }

    #[test]
    fn a_sleep_that_amdgpu_gave_up_is_over_when_tasks_run_again() {
        let fake = two_partitions();
        let served = served(fake.clone());
        fake.set_suspending(true);
        served.suspend(true);
        assert!(!served.miss_resume());
        fake.set_suspending(false);
        // It may be a moment before the last of its resumes.
        assert!(served.miss_resume() && served.is_stopped());
        fake.set_suspending(true);
        served.suspend(true);
        assert!(!served.miss_resume());
        fake.set_suspending(false);
        assert!(served.miss_resume() && served.is_stopped());
        assert!(served.keeps_processes_off() && svm::sleep::is_asleep());
        settle();
        assert!(!served.miss_resume());
        assert!(!served.is_stopped() && !served.keeps_processes_off());
        assert!(!svm::sleep::is_asleep());
        // The device may have gone meanwhile, or amdgpu comes with it after all.
        assert!(!served.miss_resume());
        assert_eq!(served.resume(true), Ok(()));
        assert!(!served.is_stopped() && !svm::sleep::is_asleep());
    }

    #[test]
    fn a_sleep_within_another_keeps_what_was_made_since() {
        let fake = two_partitions();
        let served = served(fake.clone());
        let pool = served.nodes[0].queues().mqds();
        let made = |number| {
            let slot = pool.take().unwrap();
            slot.write(0, |words| words.set(7, number)).unwrap();
            slot
        };
        let mark = |slot: &MqdSlot| slot.mqd(0).unwrap().0.get(7);
        let (first, second) = (made(1), made(2));
        fake.set_suspending(true);
        served.suspend(true);
        pool.lose().unwrap();
        // A resume that fails before it comes here: tasks run, a queue goes, and others come.
        drop(first);
        let (third, fourth) = (made(3), made(4));
        served.suspend(true);
        pool.lose().unwrap();
        assert_eq!(served.resume(true), Ok(()));
        assert!(served.is_stopped());
        fake.set_suspending(false);
        assert!(served.miss_resume());
        settle();
        assert!(!served.miss_resume() && !served.is_stopped());
        assert_eq!([&second, &third, &fourth].map(mark), [2, 3, 4]);
    }

    #[test]
    fn a_reset_that_was_none_is_followed_by_another() {
        let fake = two_partitions();
        let served = served(fake.clone());
        fake.set_in_reset(true);
        served.pre_reset("");
        assert!(served.nodes[0].is_reset_by_current());
        assert_eq!(served.post_reset(), Err(EBUSY));
        assert_eq!(fake.heals(), 0);
        // amdgpu has the device for this one still, behind which the next one waits.
        assert!(served.nodes[0].is_reset_by_current());
        assert_eq!(fake.live().resets_asked, 1);
        assert!(served.gpu.gate().is_closed() && served.gpu.resets().quiet().is_err());
        // Who comes with that is not known.
        fake.set_in_reset(false);
        assert!(!served.nodes[0].is_reset_by_current());
        fake.set_in_reset(true);
        assert!(!served.nodes[0].is_reset_by_current());
        served.clear_mappings();
        assert!(served.nodes[0].is_reset_by_current());
        served.pre_reset("");
        fake.reset_hardware();
        assert_eq!(served.post_reset(), Ok(()));
        assert_eq!((fake.live().resets_asked, fake.live().hiqs), (1, 1));
        // What amdgpu had given its copy engines was cancelled.
        assert_eq!(fake.heals(), 1);
        assert!(!served.gpu.gate().is_closed() && served.gpu.resets().quiet().is_ok());
        fake.set_in_reset(false);
    }

    #[test]
    fn who_resets_a_hive_resets_each_of_it_from_the_beginning() {
        let fakes = [two_partitions(), two_partitions()];
        let [first, second] = fakes.each_ref().map(|fake| served(fake.clone()));
        fakes.each_ref().map(|fake| fake.set_in_reset(true));
        second.prepare_reset();
        first.clear_mappings();
        first.pre_reset("");
        // Whoever takes memory from a process does not wait for itself.
        assert!(second.nodes[0].is_reset_by_current());
        second.pre_reset("");
        for (fake, served) in fakes.iter().zip([&first, &second]) {
            fake.reset_hardware();
            served.post_reset().unwrap();
            fake.set_in_reset(false);
            assert!(!served.nodes[0].is_reset_by_current());
        }
    }

    #[test]
    fn of_a_reset_that_failed_nobody_is_told() {
        let fake = two_partitions();
        let served = served(fake.clone());
        fake.set_in_reset(true);
        served.pre_reset("");
        assert!(served.nodes[0].is_reset_by_current());
        fake.set_in_reset(false);
        assert!(!served.nodes[0].is_reset_by_current());
        fake.set_in_reset(true);
        assert!(!served.nodes[0].is_reset_by_current());
        fake.set_in_reset(false);
    }

    #[test]
    fn power_does_not_go_before_what_queues_have_is_kept() {
        let fake = two_partitions();
        let served = Arc::new(served(fake.clone()), GFP_KERNEL).unwrap();
        fake.set_suspending(true);
        let over = [(); 2].map(|()| Arc::new(Atomic::new(false), GFP_KERNEL).unwrap());
        let all_over = |is: bool| over.iter().all(|over| over.load(Acquire) == is);
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let busy = served.nodes[1].queues().mqds().keep_from_saving();
        for (count, over) in (1..).zip(&over) {
            let (sleeper, over) = (served.clone(), over.clone());
            let fall_asleep = move || {
                sleeper.suspend(false);
                over.store(true, Release);
            };
            queue.try_spawn(GFP_KERNEL, fall_asleep).unwrap();
            while served.sleep.stops.lock().count != count {
                fsleep(Delta::from_millis(1));
            }
        }
        fsleep(Delta::from_millis(50));
        assert!(all_over(false));
        drop(busy);
        drop(queue);
        assert!(all_over(true));
        assert!(served.sleep.stops.lock().saved == Some(Ok(())));
        for _ in 0..2 {
            assert_eq!(served.resume(false), Ok(()));
        }
        fake.set_suspending(false);
        assert!(!served.is_stopped());
    }

    #[test]
    fn the_reset_of_a_copy_engine_keeps_nothing_and_waits_for_nobody() {
        let fake = two_partitions();
        let served = Arc::new(served(fake.clone()), GFP_KERNEL).unwrap();
        let saved = || served.sleep.stops.lock().saved;
        let reset_engine = |processes: bool| {
            let begin = Instant::<Monotonic>::now();
            fake.set_resets_copy_engine(true);
            served.suspend(processes);
            fake.set_resets_copy_engine(false);
            assert!(begin.elapsed() < Delta::from_secs(5));
            assert!(served.is_stopped() && served.keeps_processes_off() == processes);
        };
        fake.set_suspending(true);
        // amdgpu has not told us of the sleep yet. Who moves pages may wait for the engine.
        let mover = svm::sleep::enter().unwrap();
        reset_engine(true);
        assert!(saved().is_none() && !svm::sleep::is_asleep());
        drop(mover);
        assert_eq!(served.resume(true), Ok(()));
        // It does while the engine is reset.
        reset_engine(false);
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let busy = served.nodes[1].queues().mqds().keep_from_saving();
        let sleeper = served.clone();
        let fall_asleep = move || sleeper.suspend(true);
        queue.try_spawn(GFP_KERNEL, fall_asleep).unwrap();
        while served.sleep.stops.lock().saving == 0 {
            fsleep(Delta::from_millis(1));
        }
        assert_eq!(served.resume(false), Ok(()));
        // And once more: who keeps what queues have may wait for the engine, too.
        reset_engine(false);
        assert_eq!(served.sleep.stops.lock().saving, 1);
        assert_eq!(served.resume(false), Ok(()));
        assert!(served.is_stopped());
        drop(busy);
        drop(queue);
        assert!(saved() == Some(Ok(())) && svm::sleep::is_asleep());
        assert_eq!(served.resume(true), Ok(()));
        fake.set_suspending(false);
        assert!(!served.is_stopped() && !served.keeps_processes_off());
        assert!(!svm::sleep::is_asleep());
    }

    #[test]
    fn who_is_about_to_sleep_is_not_given_up() {
        let fake = two_partitions();
        let served = Arc::new(served(fake.clone()), GFP_KERNEL).unwrap();
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let busy = served.nodes[1].queues().mqds().keep_from_saving();
        fake.set_suspending(true);
        let sleeper = served.clone();
        let fall_asleep = move || sleeper.suspend(true);
        queue.try_spawn(GFP_KERNEL, fall_asleep).unwrap();
        while served.sleep.stops.lock().saving == 0 {
            fsleep(Delta::from_millis(1));
        }
        // amdgpu gives its own sleep up, and something else begins and ends.
        fake.set_suspending(false);
        assert!(served.miss_resume());
        settle();
        assert!(served.miss_resume() && served.is_stopped());
        served.suspend(false);
        drop(busy);
        drop(queue);
        assert_eq!(served.resume(false), Ok(()));
        assert!(served.is_stopped() && served.keeps_processes_off() && svm::sleep::is_asleep());
        assert!(served.sleep.stops.lock().saved == Some(Ok(())));
        assert_eq!(served.resume(true), Ok(()));
        assert!(!served.is_stopped() && !served.keeps_processes_off());
        assert!(!svm::sleep::is_asleep());
    }

    #[test]
    fn the_first_node_tells_that_the_device_throttles() {
        let served = two_nodes();
        let reader = |index: usize| served.nodes[index].listeners().read_all_events().unwrap();
        let (first, second) = (reader(0), reader(1));
        served.throttled(0x20);
        assert!(first.has_read(b"2 20:0\n") && second.has_read(b""));
    }
}
