// SPDX-License-Identifier: GPL-2.0-only

//! Tests of a process's queues on one GPU.

#[kernel::macros::kunit_tests(amdkfd_queues)]
mod tests {
    use super::super::*;
    use crate::{
        event::Events,
        gfx::{
            testing::hw_process,
            Interrupt, //
        },
        gpu::{
            self,
            gate::Gate,
            Again,
            Gpu,
            NoSink,
            Node,
            Registration,
            Sink, //
        },
        ids::{
            Pasid,
            Serial,
            UserVa, //
        },
        kgd::{
            fake::Fake,
            TlbFlush,
            Vm, //
        },
        linux::{
            errno,
            users::user_of,
            workqueue::OwnedQueue, //
        },
        queue::{
            device::copies::SdmaCounter,
            properties::QueueRequest,
            Given,
            QueueIds,
            SavedQueue, //
        },
        sched::{
            memory::NodeMemory,
            slots::Slots, //
        },
        uapi::EC_QUEUE_NEW,
    };
    use core::cell::Cell;
    use kernel::{
        new_condvar,
        sync::{
            atomic::Atomic,
            Arc, //
        },
        time::Delta, //
    };

    struct FakeSite {
        node: Arc<Node>,
        vm: Arc<Vm>,
        ids: Arc<QueueIds>,
    }

    impl Site for FakeSite {
        fn node(&self) -> &Arc<Node> {
            &self.node
        }

        fn vm(&self) -> Result<&Arc<Vm>> {
            Ok(&self.vm)
        }
    }

    /// The process has not acquired a VM there.
    struct WithoutVm(FakeSite);

    impl Site for WithoutVm {
        fn node(&self) -> &Arc<Node> {
            &self.0.node
        }

        fn vm(&self) -> Result<&Arc<Vm>> {
            Err(ESRCH)
        }
    }

    #[test]
    fn only_what_could_run_is_evicted_for_a_time() {
        fn evicted_for(queues: &Queues, site: &impl Site) -> u64 {
            (0..2).for_each(|_| queues.evict(site).unwrap());
            queues.restore(site).unwrap();
            kernel::time::delay::fsleep(Delta::from_millis(20));
            queues.restore(site).unwrap();
            queues.evicted_ms()
        }
        let (_fake, site, queues) = silent();
        let time = evicted_for(&queues, &site);
        // Ticks that come late all at once make a sleep shorter than it is asked to be.
        assert!((1..20_000).contains(&time));
        let site = WithoutVm(site);
        assert_eq!(evicted_for(&queues, &site), time);
    }

    /// A process on a GPU whose firmware answers nothing that needs an answer.
    fn silent() -> (Arc<Fake>, FakeSite, Pin<KBox<Queues>>) {
        on(Fake::with(|facts| facts.queue_preemption_timeout_ms = 20).unwrap())
    }

    fn on(fake: Arc<Fake>) -> (Arc<Fake>, FakeSite, Pin<KBox<Queues>>) {
        with_sink(fake, Arc::new(NoSink, GFP_KERNEL).unwrap())
    }

    fn with_sink(fake: Arc<Fake>, sink: Arc<dyn Sink>) -> (Arc<Fake>, FakeSite, Pin<KBox<Queues>>) {
        let gpu = Gpu::new(fake.clone(), Gate::new().unwrap()).unwrap();
        let site = FakeSite {
            node: Node::new(gpu, 0, GpuId::new(1).unwrap(), sink).unwrap(),
            vm: fake.vm().unwrap(),
            ids: Arc::new(Slots::new(8), GFP_KERNEL).unwrap(),
        };
        let queues = KBox::pin_init(Queues::new(user_of(1)), GFP_KERNEL).unwrap();
        (fake, site, queues)
    }

    /// The process ends, and the hardware obeys: its buffers' reservations are not waited for
    /// before it is known to be off.
    fn end(fake: &Fake, site: &FakeSite, queues: &Queues) {
        let before = held(fake);
        queues.quiesce(site);
        assert!(queues.are_off(site) && held(fake) == before);
        queues.give_back(site);
        assert_eq!(held(fake), 0);
    }

    /// Makes a compute queue.
    fn create(site: &FakeSite, queues: &Queues) -> Result<QueueId> {
        queues.give_back(site);
        create_beside(site, queues)
    }

    /// The same, beside what may be left of others.
    fn create_beside(site: &FakeSite, queues: &Queues) -> Result<QueueId> {
        create_while(site, queues, || ())
    }

    /// The same; `meanwhile` comes before it is taken in.
    fn create_while(site: &FakeSite, queues: &Queues, meanwhile: impl FnOnce()) -> Result<QueueId> {
        make(site, queues, None, meanwhile)
    }

    /// The same, or the one that was saved.
    fn make(
        site: &FakeSite,
        queues: &Queues,
        saved: Option<&SavedQueue<'_>>,
        meanwhile: impl FnOnce(),
    ) -> Result<QueueId> {
        let node = site.node.queues();
        let request = QueueRequest {
            ring_base_address: 0x7f12_3450_0000,
            write_pointer_address: 0x7f12_3460_0038,
            read_pointer_address: 0x7f12_3460_0080,
            ring_size: 0x10000,
            queue_type: 2,
            queue_percentage: 100,
            queue_priority: 7,
            ctx_save_restore_address: 0x7f12_3500_0000,
            ctx_save_restore_size: node.save_sizes().area,
            ctl_stack_size: node.save_sizes().control_stack,
            ..QueueRequest::default()
        };
        let limit = UserVa::new((1 << 47) - 4096).ok_or(EINVAL)?;
        let properties = QueueProperties::new(&request, limit).map_err(|_| EINVAL)?;
        let given = Given {
            doorbells: queues.doorbells(site)?,
            present: queues.count(),
            ids: &site.ids,
            trap_handler: false,
            svm: None,
            saved,
        };
        let new = NewQueue::make(site, &properties, given)?;
        let id = new.id();
        let process = NewSchedProcess::new(hw_process(1), false, None)?;
        let mut process = Some((process, node.activate()));
        meanwhile();
        let inserted = queues.insert(site, &mut process, new);
        inserted.map_err(|refused| refused.error)?;
        Ok(id)
    }

    /// Buffers that queues hold.
    fn held(fake: &Fake) -> u32 {
        fake.live().queue_buffers
    }

    #[test]
    fn a_queue_that_was_saved_is_made_again_by_its_name() {
        let (fake, site, queues) = on(Fake::with(|facts| facts.cwsr_enable = true).unwrap());
        queues.evict(&site).unwrap();
        let ids = [0, 1].map(|_| create(&site, &queues).unwrap());
        let identity = queues.identity(ids[1]).unwrap();
        let words = |count| KVec::from_elem(0u32, count, GFP_KERNEL).unwrap();
        let mut descriptors = words(identity.descriptor_words);
        let mut stacks = words(identity.stack_words);
        assert!(identity.copies.is_none() && !stacks.is_empty());
        // Where the ring was read up to, and where XCC 0 has saved waves from.
        let stack_bytes = site.node.queues().save_sizes().control_stack;
        let first = stack_bytes as usize / 4 - 64;
        let change = |descriptors: &mut [u32]| {
            assert_eq!(descriptors[174], stack_bytes);
            (descriptors[138], descriptors[174]) = (0x40, stack_bytes - 256);
        };
        assert_eq!(
            queues.save(ids[1], &mut descriptors[1..], &mut stacks),
            Err(EINVAL)
        );
        queues.save(ids[1], &mut descriptors, &mut stacks).unwrap();
        assert_eq!(descriptors[0], 0xc031_0800);
        change(&mut descriptors);
        assert!(stacks.iter().all(|word| *word == 0));
        (stacks[5], stacks[first - 1], stacks[first]) = (7, 8, 9);
        let saved = SavedQueue {
            id: ids[1],
            doorbell_id: identity.doorbell_id,
            sdma_number: 0,
            descriptors: &descriptors,
            stacks: &stacks,
        };
        let large = words(identity.stack_words + 1);
        let again = |saved: &SavedQueue<'_>| make(&site, &queues, Some(saved), || ());
        let before = held(&fake);
        // Its name, and its doorbell, are another's.
        assert_eq!(again(&saved), Err(ENOSPC));
        let id = QueueId::new(5).unwrap();
        assert_eq!(again(&SavedQueue { id, ..saved }), Err(EINVAL));
        queues.destroy(&site, ids[1], 0).unwrap();
        for spoilt in [
            SavedQueue {
                doorbell_id: 1 << 20,
                ..saved
            },
            SavedQueue {
                descriptors: &descriptors[1..],
                ..saved
            },
            SavedQueue {
                descriptors: &[],
                ..saved
            },
            SavedQueue {
                stacks: &large,
                ..saved
            },
        ] {
            assert_eq!(again(&spoilt), Err(EINVAL));
        }
        assert_eq!(again(&saved), Ok(ids[1]));
        assert_eq!(held(&fake), before);
        assert_eq!(
            queues.identity(ids[1]).unwrap().doorbell_id,
            identity.doorbell_id
        );
        let mut same = (words(descriptors.len()), words(stacks.len()));
        queues.save(ids[1], &mut same.0, &mut same.1).unwrap();
        assert_eq!((same.0[138], same.1[first]), (0x40, 9));
        assert_eq!(same.0[139..145], descriptors[139..145]);
        // What is not in use is nobody's.
        assert!(same.1[..first].iter().all(|word| *word == 0));
        queues.destroy(&site, ids[1], 0).unwrap();
        let next = create(&site, &queues).unwrap();
        same.1.fill(1);
        queues.save(next, &mut same.0, &mut same.1).unwrap();
        assert!(same.1.iter().all(|word| *word == 0));
        end(&fake, &site, &queues);
    }

    #[test]
    fn a_queue_that_is_destroyed_but_does_not_stop_keeps_what_it_uses() {
        let (fake, site, queues) = silent();
        let first = create(&site, &queues).unwrap();
        let of_one = held(&fake);
        let second = create(&site, &queues);
        // The second one could not be put beside the first, which runs still.
        assert_eq!(second.err(), Some(errno::timer_expired()));
        assert_eq!(held(&fake), 2 * of_one);
        assert_eq!(queues.destroy(&site, first, 0), Err(EIO));
        assert_eq!((held(&fake), queues.count()), (2 * of_one, 0));
        // amdgpu is not told that its buffers may move, nor is the process forgotten.
        assert_eq!(queues.evict(&site), Err(errno::timer_expired()));
        assert_eq!(create(&site, &queues).err(), Some(EIO));
        queues.quiesce(&site);
        assert!(!queues.are_off(&site));
        assert_eq!(held(&fake), 2 * of_one);
        // The reset begins, and is over.
        let scheduler = site.node.queues().scheduler();
        scheduler.stop().unwrap();
        assert!(!queues.are_off(&site));
        fake.reset_hardware();
        assert_eq!(site.node.queues().check_reset(true), Ok(()));
        fake.set_in_reset(false);
        end(&fake, &site, &queues);
    }

    #[test]
    fn a_queue_that_does_not_stop_is_not_changed() {
        let (fake, site, queues) = silent();
        let id = create(&site, &queues).unwrap();
        let mut changes = 0;
        let mut change = |queues: &Queues| queues.rewrite(id, &mut |_| changes += 1);
        assert!(!queues.are_at_work(&site));
        // Its ring would be given back while it reads it.
        assert_eq!(change(&queues), Err(errno::timer_expired()));
        assert!(queues.are_at_work(&site));
        assert_eq!(change(&queues), Err(EIO));
        let scheduler = site.node.queues().scheduler();
        scheduler.stop().unwrap();
        fake.set_in_reset(false);
        // It is stopped, and nobody knows that it was reset.
        assert_eq!(change(&queues), Err(errno::timer_expired()));
        // The hardware goes, and with it what has not left it.
        scheduler.leave();
        assert_eq!(change(&queues), Ok(()));
        assert_eq!(changes, 1);
        queues.quiesce(&site);
        queues.quiesce(&site);
    }

    #[test]
    fn the_last_queue_that_is_destroyed_keeps_its_process() {
        let (fake, site, queues) = silent();
        let only = create(&site, &queues).unwrap();
        let timeout = Err(errno::timer_expired());
        assert_eq!(queues.destroy(&site, only, 0), timeout);
        // Whoever takes memory from it waits, without an order of its own.
        assert!(queues.are_at_work(&site));
        assert!(held(&fake) != 0 && queues.evict(&site) == timeout);
        let scheduler = site.node.queues().scheduler();
        scheduler.stop().unwrap();
        fake.reset_hardware();
        fake.set_in_reset(false);
        scheduler.start().unwrap();
        assert_eq!(queues.evict(&site), Ok(()));
        // It is over. Who makes the next one has locked what freeing buffers must not wait for.
        let before = held(&fake);
        assert_eq!(create_beside(&site, &queues).err(), Some(EIO));
        assert_eq!(held(&fake), before);
        create(&site, &queues).unwrap();
        assert_eq!(queues.count(), 1);
        scheduler.stop().unwrap();
        end(&fake, &site, &queues);
    }

    /// Has a queue of its own for what is to be done again.
    struct Later(OwnedQueue);

    impl Sink for Later {
        fn deliver(&self, _: Interrupt) {}

        fn register(&self, _: Pasid, _: (Arc<Events>, Arc<Atomic<u32>>)) -> Result<Registration> {
            Err(ENODEV)
        }

        fn queue_was_reset(&self, _: Pasid) {}

        fn order_later(&self, again: &Arc<Again>) {
            again.enqueue_on(&self.0);
        }
    }

    #[test]
    fn who_comes_back_while_amdgpu_has_the_hardware_does_so_afterwards() {
        let later = Later(OwnedQueue::unbound(c"amdkfd_again").unwrap());
        let later = Arc::new(later, GFP_KERNEL).unwrap();
        let fake = Fake::with(|facts| facts.sched_policy = 2).unwrap();
        let (fake, site, queues) = with_sink(fake, later.clone());
        create(&site, &queues).unwrap();
        gpu::register(site.node.clone()).unwrap();
        queues.evict(&site).unwrap();
        fake.hold_reset_lock(true);
        assert!(queues.restore(&site).is_err());
        kernel::time::delay::fsleep(Delta::from_millis(150));
        assert_eq!(fake.live().slots, 0);
        // It was no reset.
        fake.hold_reset_lock(false);
        let comes_back = |_: &u32| {
            kernel::time::delay::fsleep(Delta::from_millis(10));
            fake.live().slots != 0
        };
        assert!((0..500).find(comes_back).is_some());
        // The node goes while there is something left to do.
        fake.hold_reset_lock(true);
        assert!(queues.evict(&site).is_err());
        gpu::unregister(&[site.node.clone()]);
        later.0.settle();
        fake.hold_reset_lock(false);
        queues.quiesce(&site);
    }

    #[test]
    fn who_loses_one_gpu_may_be_at_work_on_another() {
        let [(one, there, lost), (other, here, queues)] = [0, 1].map(|_| {
            let (fake, site, queues) = on(Fake::with(|facts| facts.sched_policy = 2).unwrap());
            create(&site, &queues).unwrap();
            (fake, site, queues)
        });
        let work = || {
            let both = [(&*lost, &there), (&*queues, &here)];
            work_elsewhere(both.into_iter(), there.node.kgd().handle())
        };
        other.hold_reset_lock(true);
        one.set_in_reset(true);
        there.node.queues().scheduler().stop().unwrap();
        assert!(lost.lose(&there).is_ok() && queues.lose(&here).is_err());
        assert!(work());
        // A reset waits for whoever has its lock, and goes on elsewhere.
        other.set_in_reset(true);
        assert!(work());
        other.set_in_reset(false);
        assert!(work());
        // It was no reset.
        other.hold_reset_lock(false);
        assert!(!work());
        assert_eq!(other.live().slots, 0);
        one.reset_hardware();
        one.set_in_reset(false);
        there.node.queues().start().unwrap();
        [(&lost, &there), (&queues, &here)].map(|(queues, site)| queues.quiesce(site));
    }

    #[test]
    fn queues_that_were_evicted_are_at_work_until_hardware_that_did_not_obey_is_reset() {
        let (fake, site, queues) = silent();
        create(&site, &queues).unwrap();
        assert!(!queues.are_at_work(&site));
        assert_eq!(queues.evict(&site), Err(errno::timer_expired()));
        assert!(queues.are_at_work(&site));
        let patience = site.node.queues().patience();
        assert!(!patience.is_left(Delta::ZERO));
        // Nor does it obey when they may run again.
        let _ = queues.restore(&site);
        assert!(queues.are_at_work(&site) && !patience.is_left(Delta::ZERO));
        assert!(queues.evict(&site).is_err());
        // A reset has begun, and what it will stop is still at work.
        let scheduler = site.node.queues().scheduler();
        scheduler.stop().unwrap();
        assert!(queues.are_at_work(&site));
        assert_eq!(queues.evict(&site), Ok(()));
        assert!(queues.are_at_work(&site));
        fake.reset_hardware();
        fake.set_in_reset(false);
        site.node.queues().start().unwrap();
        assert!(!queues.are_at_work(&site) && patience.is_left(Delta::ZERO));
        scheduler.stop().unwrap();
        queues.quiesce(&site);
    }

    #[test]
    fn memory_goes_when_a_gpu_that_is_reset_has_forgotten_it() {
        let (fake, site, queues) = silent();
        create(&site, &queues).unwrap();
        // Another's queue is the reason, and amdgpu has not told of it yet.
        fake.set_in_reset(true);
        let flush = || site.vm.flush_tlb(TlbFlush::Heavyweight, 1);
        assert_eq!(flush(), Err(EAGAIN));
        let (looks, forgotten) = (Cell::new(0), Cell::new(None));
        let forget = || forgotten.set(Some(flush()));
        // A signal comes: whoever comes again waits as well.
        assert_eq!(queues.await_reset(&site, || true, forget), Err(ERESTARTSYS));
        assert_eq!(forgotten.get(), None);
        let node = site.node.queues();
        let goes_on = || {
            assert_eq!(forgotten.get(), None);
            looks.set(looks.get() + 1);
            match looks.get() {
                2 => node.stop().unwrap(),
                4 => {
                    fake.reset_hardware();
                    fake.set_in_reset(false);
                    node.start().unwrap();
                }
                _ => (),
            }
            false
        };
        assert_eq!(queues.await_reset(&site, goes_on, forget), Ok(()));
        assert_eq!((looks.get(), forgotten.get()), (4, Some(Ok(()))));
        // Who has nothing there waits for nothing.
        fake.set_in_reset(true);
        node.stop().unwrap();
        queues.quiesce(&site);
        fake.reset_hardware();
        node.scheduler().trust();
        assert!(queues.are_off(&site));
        queues.give_back(&site);
        assert_eq!(queues.await_reset(&site, || true, forget), Ok(()));
    }

    #[test]
    fn queues_that_amdgpu_kept_from_leaving_leave_when_they_are_looked_at() {
        let fake = Fake::with(|facts| facts.sched_policy = 2).unwrap();
        for fake in [fake, Fake::new().unwrap()] {
            let (fake, site, queues) = on(fake);
            fake.set_firmware(|_, memory, written| {
                NodeMemory::confirm(memory, written);
            });
            create(&site, &queues).unwrap();
            // Somebody has the reset lock, and no reset follows.
            fake.set_in_reset(true);
            assert!(queues.evict(&site).is_err() && queues.are_at_work(&site));
            fake.set_in_reset(false);
            assert!(!queues.are_at_work(&site));
            end(&fake, &site, &queues);
        }
    }

    #[test]
    fn performance_counters_follow_their_owner_while_a_queue_is_made() {
        let fake = Fake::with(|facts| facts.sched_policy = 2).unwrap();
        let (fake, site, queues) = on(fake);
        let (profiler, owner) = (site.node.profiler(), Serial::next());
        let counted = |id| {
            let inner = queues.inner.lock();
            inner.queues.get(&id).map(|it| it.queue.counts)
        };
        // Who takes them tells the queues that there are.
        let tell = |count| queues.count_performance(count);
        let take = || profiler.take(owner, || tell(true)).unwrap();
        let taken = create_while(&site, &queues, take).unwrap();
        assert_eq!(counted(taken), Some(Some(true)));
        let release = || profiler.release(owner, || tell(false)).unwrap();
        let released = create_while(&site, &queues, release).unwrap();
        assert_eq!(counted(released), Some(Some(false)));
        assert_eq!(counted(taken), Some(Some(false)));
        end(&fake, &site, &queues);
    }

    #[test]
    fn a_process_that_ends_during_a_reset_keeps_what_it_uses_until_that_is_over() {
        let (fake, site, queues) = silent();
        create(&site, &queues).unwrap();
        fake.set_in_reset(true);
        site.node.queues().stop().unwrap();
        queues.quiesce(&site);
        assert!(!queues.are_off(&site) && held(&fake) != 0);
        fake.reset_hardware();
        fake.set_in_reset(false);
        site.node.queues().start().unwrap();
        end(&fake, &site, &queues);
    }

    #[test]
    fn an_order_that_came_in_a_reset_that_was_none_was_not_obeyed() {
        let (fake, site, queues) = silent();
        create(&site, &queues).unwrap();
        let node = site.node.queues();
        let key = queues.inner.lock().process.as_ref().unwrap().0;
        fake.set_in_reset(true);
        node.stop().unwrap();
        let stays = node.scheduler().may_work_for(key);
        let result = node.scheduler().evict(key);
        assert!(stays && result.is_ok());
        assert_eq!(node.check_reset(false), Err(EBUSY));
        assert!(!has_obeyed(node.scheduler(), stays, &result));
        // Another one follows.
        node.stop().unwrap();
        fake.reset_hardware();
        node.check_reset(true).unwrap();
        assert!(has_obeyed(node.scheduler(), stays, &result));
        fake.set_in_reset(false);
        end(&fake, &site, &queues);
    }

    /// A process whose firmware answers, with two queues that a debugger has seen.
    fn debugged() -> (Arc<Fake>, FakeSite, Pin<KBox<Queues>>, [QueueId; 2]) {
        let (fake, site, queues) = on(Fake::new().unwrap());
        fake.set_firmware(|_, memory, written| {
            NodeMemory::confirm(memory, written);
        });
        let ids = [(); 2].map(|()| create(&site, &queues).unwrap());
        queues.clear_exceptions(None, EC_QUEUE_NEW);
        (fake, site, queues, ids)
    }

    #[test]
    fn what_is_discarded_waits_for_no_debugger_and_for_what_is_on_the_hardware() {
        let (fake, site, queues, [suspended, other]) = debugged();
        let resumed = KBox::pin_init(new_condvar!("test"), GFP_KERNEL).unwrap();
        assert_eq!(suspend(&site, &queues, suspended), (1, 0));
        assert_eq!(queues.destroy(&site, suspended, 0), Err(EAGAIN));
        assert_eq!(queues.discard(&site, (suspended, 0), &resumed), Ok(()));
        assert_eq!(queues.discard(&site, (suspended, 0), &resumed), Err(EINVAL));
        assert_eq!(queues.count(), 1);
        // Another's queue hangs, and the GPU is being reset.
        let before = held(&fake);
        fake.set_in_reset(true);
        site.node.queues().stop().unwrap();
        assert_eq!(queues.discard(&site, (other, 0), &resumed), Ok(()));
        assert_eq!(queues.count(), 0);
        assert!(!queues.are_off(&site) && held(&fake) == before);
        fake.reset_hardware();
        fake.set_in_reset(false);
        site.node.queues().start().unwrap();
        end(&fake, &site, &queues);
    }

    #[test]
    fn what_a_copy_queue_has_counted_is_counted_once_at_any_time() {
        let (_fake, site, queues, [suspended, other]) = debugged();
        let counters = [suspended, other].map(|id| SdmaCounter {
            queue: (id, queues.inner.lock().queues.get(&id).unwrap().key),
            address: 0,
            counted: 5,
        });
        assert_eq!(queues.sdma_total(&counters), 10);
        assert_eq!(suspend(&site, &queues, suspended), (1, 0));
        assert_eq!(queues.destroy(&site, suspended, 7), Err(EAGAIN));
        assert_eq!(queues.sdma_total(&counters), 10);
        queues.destroy(&site, other, 7).unwrap();
        // It had counted on since it was read.
        assert_eq!(queues.sdma_total(&counters), 12);
        let resumed = KBox::pin_init(new_condvar!("test"), GFP_KERNEL).unwrap();
        queues.discard(&site, (suspended, 7), &resumed).unwrap();
        assert_eq!(queues.sdma_total(&counters), 14);
    }

    /// Names one queue. Returns how many are suspended, and what is said of it.
    fn suspend(site: &FakeSite, queues: &Queues, id: QueueId) -> (u32, u32) {
        let mut ids = [id.raw()];
        let count = queues.suspend(site, &mut Named::new(&mut ids), (None, u64::MAX));
        (count, ids[0] & !id.raw())
    }

    #[test]
    fn what_is_saved_of_queues_is_looked_at_one_by_one() {
        let (_, site, queues, [suspended, other]) = debugged();
        let key = |id| queues.inner.lock().queues.get(&id).unwrap().key;
        let looks = |id, key| {
            let mut looks = 0;
            let result = queues.look_at(id, key, |_| {
                looks += 1;
                Ok(())
            });
            assert_eq!(looks, u32::from(result.is_ok()));
            result
        };
        assert_eq!(suspend(&site, &queues, suspended), (1, 0));
        assert_eq!(looks(suspended, key(suspended)), Ok(()));
        assert_eq!(looks(other, key(other)), Ok(()));
        assert_eq!(looks(suspended, key(other)), Err(EINVAL));
        queues.quiesce(&site);
    }

    #[test]
    fn queues_are_suspended_if_what_is_saved_of_them_is_there() {
        const FAILED: u32 = 1 << 30;
        let (fake, site, queues, [id, _]) = debugged();
        let scheduler = site.node.queues().scheduler();
        let (key, doorbell) = {
            let inner = queues.inner.lock();
            let scheduled = inner.queues.get(&id).unwrap();
            (scheduled.key, scheduled.queue.doorbell_id())
        };
        let suspended = |fails: bool| {
            queues.raise_at(doorbell, 1);
            let expected = if fails { (0, FAILED) } else { (1, 0) };
            assert_eq!(suspend(&site, &queues, id), expected);
            // What happened to it is not forgotten if nobody was told of its waves.
            assert_eq!(queues.exceptions_of(id), Some(u64::from(fails)));
            let looked = queues.look_at(id, key, |_| Ok(()));
            assert_eq!(looked.is_err(), fails);
        };
        // All have left, and their memory is there: a copy engine is reset.
        scheduler.stop().unwrap();
        suspended(false);
        fake.set_suspending(true);
        suspended(true);
        fake.set_suspending(false);
        fake.set_in_reset(true);
        suspended(true);
        fake.set_in_reset(false);
        scheduler.leave();
        suspended(true);
        scheduler.start().unwrap();
        suspended(false);
        // It did not leave.
        let resumed = KBox::pin_init(new_condvar!("test"), GFP_KERNEL).unwrap();
        queues.resume(&site, None, &resumed);
        fake.set_in_reset(true);
        scheduler.stop().unwrap();
        fake.set_in_reset(false);
        suspended(true);
        scheduler.leave();
        queues.quiesce(&site);
    }
}
