// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the run-list scheduler.

#[kernel::macros::kunit_tests(amdkfd_sched_runlist)]
mod tests {
    use super::super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                hw_queue,
                mi300x, //
            },
            Engine,
            SdmaPlace, //
        },
        kgd::fake::Fake,
        sched::{
            doorbells::DoorbellPool,
            memory::Needs, //
        },
    };
    use core::ptr::NonNull;

    fn confirm(_: &Fake, memory: NonNull<u8>, written: u64) {
        NodeMemory::confirm(memory, written);
    }

    fn memory(fake: &Arc<Fake>) -> Arc<NodeMemory> {
        let generation = mi300x();
        let needs = Needs {
            xccs: 1,
            sdma_engines: 2,
            queues: 8,
        };
        NodeMemory::new(fake.clone(), generation, needs).unwrap()
    }

    fn runlist(fake: &Arc<Fake>, memory: Arc<NodeMemory>) -> Arc<Runlist> {
        let generation = mi300x();
        let config = Config {
            xcc_mask: 1,
            vmid_mask: 0xff00,
            partition: 1,
            first_engine: 2,
        };
        fake.set_firmware(confirm);
        let pool = DoorbellPool::new(fake.clone(), &generation.chip).unwrap();
        let own = pool.own(0).unwrap();
        Runlist::start(fake.clone(), generation, memory, config, own).unwrap()
    }

    fn process(number: u32) -> NewSchedProcess {
        NewSchedProcess::new(hw_process(number), false, None).unwrap()
    }

    /// Takes a process in with a compute queue that runs.
    fn mapped(runlist: &Runlist, number: u32) -> (Key, Key) {
        let process = runlist.add(process(number), None);
        let new = NewSchedQueue::undescribed(hw_queue(Engine::Compute, 1), true).unwrap();
        let key = new.key();
        runlist.map(process, new).unwrap();
        (process, key)
    }

    #[test]
    fn firmware_takes_queues_off() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, queue) = mapped(&runlist, 1);
        assert!(runlist.may_run(process, queue));
        runlist.evict(process).unwrap();
        assert!(!runlist.may_run(process, queue));
        runlist.restore(process, 0x1000).unwrap();
        runlist.unmap(process, queue).unwrap();
        assert_eq!(runlist.take_reset(), None);
        assert!(!fake.live().in_reset);
    }

    /// Takes a process in with a copy queue that runs, in slot 3 of the node's second engine.
    fn copying(runlist: &Runlist, memory: &NodeMemory, number: u32) -> (Key, Key) {
        let process = runlist.add(process(number), None);
        let place = SdmaPlace {
            engine: 1,
            queue: 3,
        };
        let key = Key::next();
        let queue = hw_queue(Engine::Sdma(place.engine), DOORBELL);
        let new = NewSchedQueue::new(key, queue, true, memory.sdma_descriptor(place)).unwrap();
        runlist.map(process, new).unwrap();
        (process, key)
    }

    /// Where the firmware puts it on the device, which is not where the driver counts it.
    const SLOT: (u32, u32) = (3, 0);
    /// The queue's doorbell.
    const DOORBELL: u32 = 0x1234;

    #[test]
    fn a_copy_queue_that_stays_is_reset_with_its_engine() {
        let fake = Fake::new().unwrap();
        let memory = memory(&fake);
        let runlist = runlist(&fake, memory.clone());
        let (other, _) = mapped(&runlist, 1);
        let (process, queue) = copying(&runlist, &memory, 2);
        fake.set_stuck_copy(SLOT, DOORBELL, true);
        runlist.evict(other).unwrap();
        assert_eq!(
            (fake.live().copy_resets, fake.live().in_reset),
            (1 << SLOT.0, false)
        );
        assert_eq!(
            (runlist.take_reset(), runlist.take_reset()),
            (Pasid::new(2), None)
        );
        assert_eq!(runlist.check_changeable(process, queue), Err(EACCES));
        assert!(!runlist.may_run(process, queue));
        // It is not in the list any more.
        let looks = fake.live().copy_looks;
        runlist.restore(other, 0x1000).unwrap();
        runlist.evict(other).unwrap();
        assert_eq!(fake.live().copy_looks, looks);
    }

    #[test]
    fn a_copy_queue_that_is_out_of_the_list_before_the_hardware_is_told_is_looked_for() {
        let fake = Fake::new().unwrap();
        let memory = memory(&fake);
        let runlist = runlist(&fake, memory.clone());
        let (process, _) = copying(&runlist, &memory, 2);
        fake.hold_reset_lock(true);
        assert_eq!(runlist.evict(process), Err(EIO));
        fake.hold_reset_lock(false);
        fake.set_stuck_copy(SLOT, DOORBELL, true);
        Scheduler::ask_again(&*runlist);
        assert_eq!(fake.live().copy_resets, 1 << SLOT.0);
        assert_eq!(runlist.take_reset(), Pasid::new(2));
        assert!(runlist.has_let_go());
    }

    #[test]
    fn a_copy_queue_that_stays_has_the_gpu_reset() {
        let allowed = |allowed| Fake::with(|facts| facts.queue_reset = allowed).unwrap();
        // The engine cannot be reset; it must not be; and a queue of nobody's is on it.
        for (fake, doorbell, resettable) in [
            (allowed(true), DOORBELL, false),
            (allowed(false), DOORBELL, true),
            (allowed(true), 1, true),
        ] {
            let memory = memory(&fake);
            let runlist = runlist(&fake, memory.clone());
            let (process, queue) = copying(&runlist, &memory, 2);
            fake.set_stuck_copy(SLOT, doorbell, resettable);
            let timeout = Some(errno::timer_expired());
            assert_eq!(runlist.evict(process).err(), timeout);
            assert_eq!((fake.live().copy_resets, fake.live().in_reset), (0, true));
            assert_eq!(runlist.check_changeable(process, queue), Err(EIO));
        }
    }

    #[test]
    fn only_engines_with_copy_queues_that_run_are_looked_at() {
        let fake = Fake::new().unwrap();
        let memory = memory(&fake);
        let runlist = runlist(&fake, memory.clone());
        let (compute, _) = mapped(&runlist, 1);
        let looks = |change: &dyn Fn() -> Result| {
            let before = fake.live().copy_looks;
            change().unwrap();
            fake.live().copy_looks - before
        };
        assert_eq!(looks(&|| runlist.evict(compute)), 0);
        let (process, queue) = copying(&runlist, &memory, 2);
        let each = memory.slots_per_engine();
        assert_eq!(looks(&|| runlist.restore(compute, 0x1000)), each);
        assert_eq!(
            looks(&|| runlist.rewrite(process, queue, &mut || false)),
            each
        );
        assert_eq!(looks(&|| runlist.evict(compute)), 0);
        runlist.rewrite(process, queue, &mut || true).unwrap();
        runlist.evict(process).unwrap();
        assert_eq!(looks(&|| runlist.restore(compute, 0x1000)), 0);
        runlist.restore(process, 0x1000).unwrap();
        assert_eq!(looks(&|| runlist.remove(process)), each);
        assert_eq!(looks(&|| runlist.evict(compute)), 0);
    }

    #[test]
    fn firmware_that_does_not_answer_has_the_gpu_reset() {
        let fake = Fake::with(|facts| facts.queue_preemption_timeout_ms = 20).unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, queue) = mapped(&runlist, 1);
        fake.set_firmware(|_, _, _| ());
        let timeout = Some(errno::timer_expired());
        assert_eq!(runlist.evict(process).err(), timeout);
        assert!(fake.live().in_reset);
        assert_eq!(runlist.check_changeable(process, queue), Err(EIO));
        // It may run as long as that lasts, whoever asks.
        assert_eq!(runlist.evict(process), Err(EIO));
        assert_eq!(runlist.rewrite(process, queue, &mut || false), Err(EIO));
        assert_eq!(runlist.unmap(process, queue), Err(EIO));
        runlist.stop().unwrap();
        assert_eq!(runlist.evict(process), Ok(()));
    }

    #[test]
    fn hardware_that_hangs_keeps_those_who_were_on_it() {
        let fake = Fake::with(|facts| facts.queue_preemption_timeout_ms = 20).unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (on, _) = mapped(&runlist, 1);
        let (off, queue) = mapped(&runlist, 2);
        let (gone, _) = mapped(&runlist, 3);
        runlist.evict(off).unwrap();
        runlist.evict(gone).unwrap();
        assert!(runlist.has_let_go());
        fake.set_firmware(|_, _, _| ());
        assert!(runlist.evict(on).is_err() && !runlist.has_let_go());
        // Who was off before is off, however often that is asked for.
        assert_eq!(runlist.evict(off), Ok(()));
        assert_eq!(runlist.unmap(off, queue), Ok(()));
        assert_eq!(runlist.remove(gone), Ok(()));
        assert_eq!(runlist.remove(on), Err(EIO));
        runlist.stop().unwrap();
        assert!(!runlist.has_let_go() && fake.live().in_reset);
        fake.set_firmware(confirm);
        Scheduler::start(&*runlist).unwrap();
        assert!(runlist.has_let_go());
    }

    #[test]
    fn a_gpu_that_is_left_has_let_go() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, _) = mapped(&runlist, 1);
        // It was pulled out.
        fake.set_in_reset(true);
        assert!(runlist.remove(process).is_err() && !runlist.has_let_go());
        runlist.stop().unwrap();
        fake.set_in_reset(false);
        assert!(!runlist.has_let_go());
        runlist.leave();
        assert!(runlist.has_let_go());
    }

    #[test]
    fn what_could_not_be_taken_off_is_asked_to_go_again() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, _) = mapped(&runlist, 1);
        fake.set_in_reset(true);
        let rings = fake.live().rings;
        assert!(runlist.evict(process).is_err() && runlist.evict(process).is_err());
        assert_eq!(fake.live().rings, rings);
        fake.set_in_reset(false);
        assert_eq!(runlist.evict(process), Ok(()));
        let after = fake.live().rings;
        assert!(after > rings);
        assert_eq!(runlist.evict(process), Ok(()));
        assert_eq!(fake.live().rings, after);
    }

    #[test]
    fn a_process_that_ends_while_amdgpu_has_the_hardware_leaves_afterwards() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, _) = mapped(&runlist, 1);
        fake.set_in_reset(true);
        assert!(runlist.remove(process).is_err());
        runlist.ask_again();
        assert!(!runlist.has_let_go());
        // It was no reset.
        fake.set_in_reset(false);
        let rings = fake.live().rings;
        runlist.ask_again();
        assert!(runlist.has_let_go() && fake.live().rings > rings);
        let rings = fake.live().rings;
        runlist.ask_again();
        assert_eq!((fake.live().rings, fake.live().resets_asked), (rings, 0));
    }

    #[test]
    fn an_order_to_come_back_is_not_lost() {
        let fake = Fake::new().unwrap();
        let memory = memory(&fake);
        let runlist = runlist(&fake, memory.clone());
        let listed = || memory.listed().1 > 0;
        let (first, _) = mapped(&runlist, 1);
        runlist.evict(first).unwrap();
        fake.hold_reset_lock(true);
        assert_eq!(runlist.restore(first, 0x1000), Err(EIO));
        let rings = fake.live().rings;
        runlist.ask_again();
        assert!(runlist.owes() && fake.live().rings == rings);
        // It was no reset.
        fake.hold_reset_lock(false);
        runlist.ask_again();
        assert!(!runlist.owes() && listed());
        runlist.ask_again();
        assert_eq!(fake.live().rings, rings + 1);
        // The same beside another one.
        mapped(&runlist, 2);
        runlist.evict(first).unwrap();
        let alone = memory.listed().1;
        fake.hold_reset_lock(true);
        assert_eq!(runlist.restore(first, 0x1000), Err(EIO));
        assert!(runlist.owes() && !runlist.has_let_go());
        fake.hold_reset_lock(false);
        runlist.ask_again();
        assert!(!runlist.owes() && runlist.has_let_go() && runlist.patience().obeys());
        assert!(memory.listed().1 > alone);
        // What is paused owes nothing, until it is to go on.
        runlist.pause(Pause::Isolation, true).unwrap();
        assert!(!runlist.owes());
        fake.hold_reset_lock(true);
        assert_eq!(runlist.pause(Pause::Isolation, false), Err(EIO));
        assert!(runlist.owes());
        // The end of a reset, or a sleep, sees to it as well.
        runlist.stop().unwrap();
        assert!(!runlist.owes());
        fake.reset_hardware();
        fake.hold_reset_lock(false);
        Scheduler::start(&*runlist).unwrap();
        assert!(!runlist.owes() && listed());
        assert_eq!(fake.live().resets_asked, 0);
    }

    #[test]
    fn suspended_queues_have_been_saved_and_stay_off() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, queue) = mapped(&runlist, 1);
        let suspend = |suspension| {
            let mut queues = [queue].into_iter();
            runlist.suspend(process, &mut queues, suspension)
        };
        // At once means the shortest time there is.
        let begin = |grace| Suspension::Begin { grace };
        assert_eq!(suspend(begin(Some(0))), Ok(true));
        assert_eq!(fake.live().graces, 1 << 1 | 1);
        assert!(!runlist.may_run(process, queue));
        runlist.rewrite(process, queue, &mut || false).unwrap();
        runlist.rewrite(process, queue, &mut || true).unwrap();
        runlist.evict(process).unwrap();
        runlist.restore(process, 0x1000).unwrap();
        assert!(!runlist.may_run(process, queue));
        assert_eq!(suspend(Suspension::End), Ok(true));
        assert!(runlist.may_run(process, queue));
        // What does not answer has not been saved, and does not come back.
        fake.fail_fatally();
        assert_eq!(suspend(begin(None)), Err(EIO));
        assert!(!runlist.may_run(process, queue));
    }

    #[test]
    fn the_hardware_is_told_what_a_debugger_sets() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, _) = mapped(&runlist, 1);
        let empty = runlist.add(self::process(2), None);
        let control = WaveControl {
            single_memory_operations: true,
            ..WaveControl::default()
        };
        let rings = || fake.live().rings;
        let before = rings();
        runlist.set_control(empty, control.set()).unwrap();
        assert_eq!(rings(), before);
        runlist.set_control(process, control.set()).unwrap();
        assert!(rings() > before);
        fake.fail_fatally();
        assert_eq!(runlist.set_control(process, control.set()), Err(EIO));
    }

    #[test]
    fn nobody_waits_for_firmware_that_is_to_be_reset() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, _) = mapped(&runlist, 1);
        // While the fence is waited for.
        fake.set_firmware(|fake, _, _| fake.begin_reset());
        assert_eq!(runlist.evict(process).err(), Some(EIO));
    }

    #[test]
    fn nobody_asks_firmware_after_a_fatal_error() {
        let fake = Fake::new().unwrap();
        let runlist = runlist(&fake, memory(&fake));
        let (process, _) = mapped(&runlist, 1);
        let rings = fake.live().rings;
        fake.fail_fatally();
        assert_eq!(runlist.evict(process).err(), Some(EIO));
        assert_eq!(fake.live().rings, rings);
    }
}
