// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the scheduler without the firmware's.

#[kernel::macros::kunit_tests(amdkfd_sched_direct)]
mod tests {
    use super::super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                hw_queue,
                known,
                mi300x, //
            },
            SdmaPlace,
            Words, //
        },
        kgd::{
            fake::Fake,
            Device,
            Domain,
            KernelBo, //
        },
        linux::errno,
        sched::{
            memory::BoWindow,
            partition::free_vmids,
            Descriptor, //
        },
    };
    use kernel::time::Delta;

    fn direct(fake: &Arc<Fake>) -> Arc<Direct> {
        let [first] = nodes(fake, [0xff00]);
        first
    }

    /// The nodes of a device, of one XCC and one copy engine each, with these VMIDs.
    fn nodes<const N: usize>(fake: &Arc<Fake>, masks: [u32; N]) -> [Arc<Direct>; N] {
        let vmids = Arc::new(free_vmids(fake.facts()), GFP_KERNEL).unwrap();
        let mut partition = 0;
        masks.map(|vmid_mask| {
            let config = Config {
                xcc_mask: 1 << partition,
                vmid_mask,
                partition,
                first_engine: partition,
            };
            partition += 1;
            Direct::start(fake.clone(), mi300x().formats, config, vmids.clone()).unwrap()
        })
    }

    fn process(number: u32) -> NewSchedProcess {
        NewSchedProcess::new(hw_process(number + 1), false, None).unwrap()
    }

    fn page(fake: &Arc<Fake>) -> Arc<KernelBo> {
        let bo = KernelBo::new(fake.clone(), 4096, Domain::Gtt, false).unwrap();
        Arc::new(bo, GFP_KERNEL).unwrap()
    }

    fn queue(fake: &Arc<Fake>, runs: bool) -> NewSchedQueue {
        let queue = hw_queue(Engine::Compute, 0x1000);
        let descriptor = Descriptor {
            bo: page(fake),
            offset: 0,
            stride: 4096,
            copy_slot: None,
        };
        NewSchedQueue::new(Key::next(), queue, runs, descriptor).unwrap()
    }

    /// A copy queue that runs, described in `bo`.
    fn copy_queue(bo: Arc<KernelBo>) -> NewSchedQueue {
        let place = SdmaPlace {
            engine: 0,
            queue: 5,
        };
        let descriptor = Descriptor {
            bo,
            offset: 0,
            stride: 0,
            copy_slot: Some(place),
        };
        let queue = hw_queue(Engine::Sdma(0), 0x1000);
        NewSchedQueue::new(Key::next(), queue, true, descriptor).unwrap()
    }

    /// A new queue that runs.
    fn mapped(direct: &Direct, process: Key, fake: &Arc<Fake>) -> Key {
        let new = queue(fake, true);
        let key = new.key();
        direct.map(process, new).unwrap();
        key
    }

    #[test]
    fn a_process_has_a_vmid_as_long_as_it_has_queues() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let processes = [0, 1].map(|n| direct.add(process(n), None));
        assert_eq!(fake.live().vmids, 0);
        for process in processes {
            direct.map(process, queue(&fake, true)).unwrap();
            direct.map(process, queue(&fake, false)).unwrap();
        }
        assert_eq!(fake.live().vmids, 0x300);
        assert_eq!(direct.pasid_of(known(Vmid::new(9))), Pasid::new(2));
        // The pipes take turns, and what is not to run has a slot, but is not in it.
        assert_eq!(fake.live().slots, 1 << 1 | 1 << 17);
        direct.remove(processes[0]).unwrap();
        assert_eq!((fake.live().vmids, fake.live().slots), (0x200, 1 << 17));
        assert_eq!(direct.pasid_of(known(Vmid::new(8))), None);
        direct.remove(processes[1]).unwrap();
        assert_eq!((fake.live().vmids, fake.live().slots), (0, 0));
    }

    #[test]
    fn what_finds_no_place_is_refused() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        for n in 0..8 {
            let process = direct.add(process(n), None);
            direct.map(process, queue(&fake, true)).unwrap();
        }
        let ninth = direct.add(process(8), None);
        let refused = direct.map(ninth, queue(&fake, true));
        assert_eq!(refused.err(), Some(ENOSPC));
        direct.remove(ninth).unwrap();
        let first = direct.add(process(9), None);
        assert_eq!(direct.map(first, queue(&fake, true)).err(), Some(ENOSPC));
    }

    /// The VMID of a new process with a queue that runs.
    fn vmid_of_new(direct: &Direct, number: u32, fake: &Arc<Fake>) -> Result<u8> {
        let process = direct.add(process(number), None);
        direct.map(process, queue(fake, true))?;
        let vmid = (0..16).find(|&vmid| {
            let pasid = Vmid::new(vmid).and_then(|vmid| direct.pasid_of(vmid));
            pasid == Pasid::new(number + 1)
        });
        vmid.ok_or(ENOENT)
    }

    #[test]
    fn no_two_nodes_of_a_device_give_out_the_same_vmid() {
        let fake = Fake::new().unwrap();
        let mut numbers = 0..;
        let mut vmid_on = |node: &Direct| vmid_of_new(node, numbers.next().unwrap(), &fake);
        let both = nodes(&fake, [0xff00, 0xff00]);
        let given = [0, 1, 0, 1].map(|n| vmid_on(&both[n]));
        assert_eq!(given, [Ok(8), Ok(9), Ok(10), Ok(11)]);
        drop(both);
        assert_eq!(fake.live().vmids, 0);
        let halves = nodes(&fake, [0xf00, 0xf000, 0xf00]);
        let given = [0, 1, 2, 2, 0, 2].map(|n| vmid_on(&halves[n]));
        assert_eq!(given[..4], [Ok(8), Ok(12), Ok(9), Ok(10)]);
        assert_eq!(given[4..], [Ok(11), Err(ENOSPC)]);
    }

    #[test]
    fn the_vmid_of_what_may_be_at_work_is_nobody_elses() {
        let fake = Fake::new().unwrap();
        let [hangs, other] = nodes(&fake, [0xff00, 0xff00]);
        let process = hangs.add(process(0), None);
        mapped(&hangs, process, &fake);
        fake.set_stuck(true, false);
        assert!(hangs.remove(process).is_err() && !hangs.has_let_go());
        fake.set_stuck(false, false);
        // Nobody resets it.
        fake.set_in_reset(false);
        assert_eq!(vmid_of_new(&other, 1, &fake), Ok(9));
        for node in [&hangs, &other] {
            node.stop().unwrap();
            Scheduler::start(&**node).unwrap();
        }
        assert_eq!(vmid_of_new(&other, 2, &fake), Ok(8));
    }

    #[test]
    fn a_copy_queue_is_loaded_into_an_engine_of_its_node() {
        let fake = Fake::new().unwrap();
        let [_, second] = nodes(&fake, [0xff00, 0xff00]);
        let new = NewSchedProcess::new(hw_process(1), false, fake.vm().ok()).unwrap();
        let process = second.add(new, None);
        let bo = page(&fake);
        second.map(process, copy_queue(bo.clone())).unwrap();
        assert_eq!(fake.live().copy_queues, 1);
        // The word of `struct v9_sdma_mqd` that names the engine.
        assert_eq!(BoWindow::new(&bo, 0).get(126), 1);
        second.remove(process).unwrap();
        assert_eq!(fake.live().copy_queues, 0);
    }

    #[test]
    fn a_copy_queue_that_another_task_puts_back_comes_by_a_kernel_thread() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let new = NewSchedProcess::new(hw_process(1), false, fake.vm().ok()).unwrap();
        let process = direct.add(new, None);
        direct.map(process, copy_queue(page(&fake))).unwrap();
        direct.pause(Pause::Limiter, true).unwrap();
        assert!(fake.live().copy_queues == 0 && !direct.owes());
        fake.set_foreign(true);
        direct.pause(Pause::Limiter, false).unwrap();
        assert!(fake.live().copy_queues == 0 && direct.owes());
        fake.set_foreign(false);
        direct.ask_again();
        assert!(fake.live().copy_queues == 1 && !direct.owes());
    }

    #[test]
    fn slots_run_out_at_28() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        for _ in 0..28 {
            direct.map(process, queue(&fake, true)).unwrap();
        }
        assert_eq!(fake.live().slots, 0xfefe_fefe);
        assert_eq!(direct.map(process, queue(&fake, true)).err(), Some(EBUSY));
        direct.remove(process).unwrap();
        assert_eq!(fake.live().slots, 0);
    }

    #[test]
    fn who_is_restored_is_waited_for_no_more() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        mapped(&direct, process, &fake);
        for in_reset in [false, true] {
            // amdgpu has the hardware for itself, which need not end in a reset.
            fake.set_in_reset(true);
            assert!(direct.evict(process).is_err());
            assert!(direct.may_work_for(process) && !direct.patience().is_left(Delta::ZERO));
            fake.set_in_reset(in_reset);
            assert_eq!(direct.restore(process, 0).is_err(), in_reset);
            assert!(!direct.may_work_for(process) && direct.patience().is_left(Delta::ZERO));
        }
        fake.set_in_reset(false);
    }

    #[test]
    fn queues_leave_and_come_back() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        let key = mapped(&direct, process, &fake);
        let there = |there: bool| {
            let slots = fake.live().slots;
            assert_eq!(slots.count_ones(), u32::from(there));
        };
        direct.evict(process).unwrap();
        there(false);
        assert_eq!(fake.live().last_preempt, Some(Preempt::Drain));
        direct.rewrite(process, key, &mut || true).unwrap();
        there(false);
        direct.restore(process, 0x2000).unwrap();
        there(true);
        direct.rewrite(process, key, &mut || false).unwrap();
        there(false);
        direct.rewrite(process, key, &mut || true).unwrap();
        // One reason is gone, the other one is not.
        direct.pause(Pause::Isolation, true).unwrap();
        there(false);
        direct.pause(Pause::Limiter, true).unwrap();
        direct.pause(Pause::Limiter, false).unwrap();
        there(false);
        direct.restore(process, 0x2000).unwrap();
        there(false);
        direct.pause(Pause::Isolation, false).unwrap();
        there(true);
        direct.stop().unwrap();
        there(false);
        Scheduler::start(&*direct).unwrap();
        there(true);
        direct.unmap(process, key).unwrap();
        there(false);
        assert_eq!(fake.live().last_preempt, Some(Preempt::Reset));
    }

    #[test]
    fn a_queue_that_was_reset_does_not_change() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        let key = mapped(&direct, process, &fake);
        fake.set_stuck(true, true);
        for error in [errno::timer_expired(), EACCES] {
            let mut changed = false;
            let result = direct.rewrite(process, key, &mut || {
                changed = true;
                true
            });
            assert_eq!((result.err(), changed), (Some(error), false));
        }
        assert_eq!(fake.live().slots, 0);
    }

    #[test]
    fn who_is_evicted_is_off_when_its_queue_had_to_be_reset() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        let key = mapped(&direct, process, &fake);
        assert!(direct.may_run(process, key));
        fake.set_stuck(true, true);
        assert_eq!(direct.evict(process), Ok(()));
        assert_eq!(fake.live().slots, 0);
        assert_eq!(direct.take_reset(), Pasid::new(1));
        assert_eq!(direct.check_changeable(process, key), Err(EACCES));
        fake.set_stuck(false, false);
        direct.restore(process, 0).unwrap();
        assert!(!direct.may_run(process, key));
        assert_eq!(fake.live().slots, 0);
    }

    #[test]
    fn a_reset_or_a_fatal_error_is_not_the_queues_fault() {
        for interrupt in [Fake::begin_reset, Fake::fail_fatally] {
            let fake = Fake::new().unwrap();
            let direct = direct(&fake);
            let process = direct.add(process(0), None);
            let key = mapped(&direct, process, &fake);
            fake.set_stuck(true, true);
            interrupt(&fake);
            assert_eq!(direct.evict(process).err(), Some(EIO));
            assert_eq!((direct.take_reset(), fake.live().in_reset), (None, false));
            assert_eq!(direct.check_changeable(process, key), Ok(()));
        }
    }

    #[test]
    fn what_does_not_stop_is_reset_or_the_gpu_is() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        let key = mapped(&direct, process, &fake);
        let other = mapped(&direct, process, &fake);
        fake.set_stuck(true, true);
        assert_eq!(
            direct.unmap(process, key).err(),
            Some(errno::timer_expired())
        );
        assert!(!fake.live().in_reset);
        assert_eq!(direct.take_reset(), Pasid::new(1));
        fake.set_stuck(true, false);
        assert_eq!(
            direct.unmap(process, other).err(),
            Some(errno::timer_expired())
        );
        assert!(fake.live().in_reset);
        assert_eq!(direct.map(process, queue(&fake, true)).err(), Some(EIO));
        assert_eq!(direct.evict(process), Err(EIO));
        fake.set_in_reset(false);
    }

    #[test]
    fn hardware_that_hangs_keeps_those_who_are_on_it() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let [guilty, on, off] = [0, 1, 2].map(|n| direct.add(process(n), None));
        for process in [guilty, on, off] {
            mapped(&direct, process, &fake);
        }
        direct.evict(off).unwrap();
        fake.set_stuck(true, false);
        assert!(direct.evict(guilty).is_err() && !direct.has_let_go());
        // Once it is gone nobody asks it again.
        assert_eq!(direct.remove(guilty), Err(EIO));
        assert!(!direct.has_let_go());
        assert_eq!(direct.evict(off), Ok(()));
        assert_eq!(direct.evict(on), Err(EIO));
        direct.stop().unwrap();
        assert!(!direct.has_let_go() && fake.live().in_reset);
        assert_eq!(direct.evict(on), Ok(()));
        fake.set_stuck(false, false);
        fake.set_in_reset(false);
        Scheduler::start(&*direct).unwrap();
        assert!(direct.has_let_go());
    }

    #[test]
    fn what_a_pause_does_not_stop_is_at_work() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        mapped(&direct, process, &fake);
        fake.set_stuck(true, false);
        assert!(direct.pause(Pause::Isolation, true).is_err());
        assert!(direct.may_work_for(process) && !direct.patience().obeys());
        direct.stop().unwrap();
        fake.set_stuck(false, false);
        fake.set_in_reset(false);
        Scheduler::start(&*direct).unwrap();
        assert!(!direct.may_work_for(process) && direct.patience().obeys());
    }

    #[test]
    fn what_is_to_go_while_amdgpu_has_the_hardware_goes_afterwards() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let [ends, stays] = [0, 1].map(|n| direct.add(process(n), None));
        mapped(&direct, ends, &fake);
        let (key, other) = (mapped(&direct, stays, &fake), mapped(&direct, stays, &fake));
        let slots = fake.live().slots;
        fake.set_in_reset(true);
        assert!(direct.remove(ends).is_err() && direct.unmap(stays, key).is_err());
        direct.ask_again();
        assert!(!direct.has_let_go());
        assert_eq!(fake.live().slots, slots);
        // It was no reset.
        fake.set_in_reset(false);
        direct.ask_again();
        assert!(direct.has_let_go() && direct.may_run(stays, other));
        assert_eq!(fake.live().slots.count_ones(), 1);
        assert_eq!(direct.remove(ends), Err(ENOENT));
        assert_eq!(direct.evict(stays), Ok(()));
        assert_eq!((fake.live().slots, fake.live().resets_asked), (0, 0));
    }

    #[test]
    fn an_order_to_come_back_is_not_lost() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        mapped(&direct, process, &fake);
        direct.evict(process).unwrap();
        fake.hold_reset_lock(true);
        assert_eq!(direct.restore(process, 0x7000), Err(EIO));
        direct.ask_again();
        assert!(direct.owes());
        assert_eq!((fake.live().slots, fake.live().moved_to), (0, 0));
        // It was no reset.
        fake.hold_reset_lock(false);
        direct.ask_again();
        assert!(!direct.owes());
        let on = || (fake.live().slots.count_ones(), fake.live().moved_to);
        assert_eq!(on(), (1, 0x7000));
        // Nor is one to go: the queue is on the hardware until amdgpu lets it go.
        fake.hold_reset_lock(true);
        assert!(direct.pause(Pause::Isolation, true).is_err() && direct.owes());
        fake.hold_reset_lock(false);
        direct.ask_again();
        assert_eq!((on().0, direct.owes()), (0, false));
        fake.hold_reset_lock(true);
        assert!(direct.pause(Pause::Isolation, false).is_err() && direct.owes());
        fake.hold_reset_lock(false);
        direct.ask_again();
        assert_eq!((on().0, direct.owes()), (1, false));
        assert_eq!(fake.live().resets_asked, 0);
    }

    #[test]
    fn a_copy_queue_that_its_engine_refuses_is_not_owed() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        // Without a VM nothing loads it.
        let process = direct.add(process(0), None);
        direct.pause(Pause::Isolation, true).unwrap();
        direct.map(process, copy_queue(page(&fake))).unwrap();
        fake.hold_reset_lock(true);
        assert_eq!(direct.pause(Pause::Isolation, false), Err(EIO));
        assert!(direct.owes());
        fake.hold_reset_lock(false);
        direct.ask_again();
        assert!(!direct.owes());
        // It comes with the next order, which is not lost either.
        assert_eq!(direct.pause(Pause::Isolation, false), Err(EINVAL));
        direct.evict(process).unwrap();
        fake.hold_reset_lock(true);
        assert_eq!(direct.restore(process, 0x7000), Err(EIO));
        assert!(direct.owes());
        fake.hold_reset_lock(false);
        direct.ask_again();
        assert!(!direct.owes());
        assert_eq!(direct.restore(process, 0x7000), Err(EINVAL));
    }

    #[test]
    fn who_is_removed_during_a_reset_has_not_let_go_before_its_end() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        mapped(&direct, process, &fake);
        fake.set_in_reset(true);
        direct.stop().unwrap();
        assert_eq!(direct.remove(process), Ok(()));
        assert!(!direct.has_let_go());
        fake.set_in_reset(false);
        Scheduler::start(&*direct).unwrap();
        assert!(direct.has_let_go());
    }

    #[test]
    fn a_queue_that_cannot_be_seen_has_the_gpu_reset() {
        let fake = Fake::new().unwrap();
        let direct = direct(&fake);
        let process = direct.add(process(0), None);
        let key = mapped(&direct, process, &fake);
        fake.set_stuck(true, true);
        fake.set_low_rings(u64::MAX);
        assert_eq!(
            direct.unmap(process, key).err(),
            Some(errno::timer_expired())
        );
        assert!(fake.live().in_reset && fake.live().slots != 0);
        assert_eq!(direct.take_reset(), None);
        fake.set_in_reset(false);
    }
}
