// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the run list's state.

#[kernel::macros::kunit_tests(amdkfd_sched_runlist_state)]
mod tests {
    use super::super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                hw_queue,
                known,
                mi300x,
                TestWords, //
            },
            HwQueue,
            LaunchMode,
            Packet, //
        },
        ids::GpuVa,
    };

    fn format() -> &'static dyn RunlistFormat {
        mi300x().formats.runlist
    }

    fn state() -> RunlistState {
        RunlistState::new(format(), 64, 512).unwrap()
    }

    fn process(number: u32, xnack: bool) -> NewSchedProcess {
        NewSchedProcess::new(hw_process(number + 1), xnack, None).unwrap()
    }

    fn map_queue(number: u32) -> HwQueue {
        let engine = match number % 3 {
            0 => Engine::Sdma(0),
            _ => Engine::Compute,
        };
        hw_queue(engine, number)
    }

    fn queue(number: u32, runs: bool) -> NewSchedQueue {
        NewSchedQueue::undescribed(map_queue(number), runs).unwrap()
    }

    fn copied(state: &RunlistState, words: &TestWords) -> usize {
        let target = ListTarget {
            words,
            address: known(GpuVa::new(0x1000)),
            capacity: 512,
        };
        state.copy(&target).unwrap()
    }

    /// The list and the counts as they come out when they are made from scratch.
    fn from_scratch(state: &mut RunlistState) -> (KVec<u32>, Counts) {
        let (mut words, mut counts) = (KVec::new(), Counts::default());
        let mut push = |packet: Packet| {
            let row = packet.words();
            words.extend_from_slice(row, GFP_KERNEL).unwrap();
        };
        let cleans = state.isolated;
        let ages = state.processes.keys().map(|key| (key.age(), *key));
        let newest = ages.min().is_some_and(|(_, key)| key < Key(Key::NO_XNACK));
        for xnack in [newest, !newest] {
            for (key, process) in state.processes.iter_mut() {
                if (*key < Key(Key::NO_XNACK)) != xnack || process.queue_count == 0 {
                    continue;
                }
                counts.processes += 1;
                let syncs = process.running().any(|entry| entry.described.wave_sync);
                push(format().map_process(&MapProcess {
                    process: &process.described,
                    queues: process.queue_count,
                    wave_sync: if syncs { 64 } else { 0 },
                    cleans,
                }));
                for entry in process.running() {
                    counts += entry.counts();
                    push(format().map_queue(&entry.described));
                }
            }
        }
        (words, counts)
    }

    fn check(state: &mut RunlistState) {
        let words = TestWords::new();
        let len = copied(state, &words);
        let (expected, counts) = from_scratch(state);
        assert_eq!(len, expected.len());
        for (index, word) in expected.iter().enumerate() {
            assert_eq!(crate::gfx::Words::get(&words, index), *word);
        }
        assert_eq!(*state.counts(), counts);
    }

    #[test]
    fn suspended_queues_are_off_the_list_whatever_else_they_are() {
        let mut state = state();
        let owner = state.add(process(0, false), None);
        let other = state.add(process(1, true), None);
        let queues = [1, 2, 3].map(|number| state.insert(owner, queue(number, true)).unwrap().0);
        state.insert(other, queue(4, true)).unwrap();
        let [first, second, third] = queues;
        for suspended in [true, true, false, true] {
            for queue in [first, third] {
                state.set_suspended(owner, queue, suspended).unwrap();
                assert_eq!(state.queue_runs(owner, queue), !suspended);
                check(&mut state);
            }
        }
        assert!(state.queue_runs(owner, second));
        assert_eq!(state.set_runs(owner, first, false), Ok(false));
        assert_eq!(state.set_runs(owner, first, true), Ok(false));
        for evicted in [true, false] {
            state.set_evicted(owner, evicted).unwrap();
            assert!(!state.queue_runs(owner, first) && !state.queue_runs(owner, third));
            assert_eq!(state.queue_runs(owner, second), !evicted);
            check(&mut state);
        }
        // One that stopped meanwhile does not run when it is let go.
        state.set_runs(owner, third, false).unwrap();
        for queue in queues {
            state.set_suspended(owner, queue, false).unwrap();
            check(&mut state);
        }
        assert!(state.queue_runs(owner, first) && !state.queue_runs(owner, third));
    }

    #[test]
    fn what_a_debugger_sets_is_in_one_processs_packet() {
        let mut state = state();
        let control = WaveControl {
            launch_mode: LaunchMode::Halt,
            single_memory_operations: true,
            ..WaveControl::default()
        };
        let [early, late] = [0, 1].map(|number| state.add(process(number, false), None));
        // Before it has a queue, and afterwards.
        state.set_control(early, control.set()).unwrap();
        for process in [early, late] {
            state.insert(process, queue(1, true)).unwrap();
            check(&mut state);
        }
        state.set_control(late, control.set()).unwrap();
        check(&mut state);
        state.set_control(early, None).unwrap();
        check(&mut state);
        let controls = [early, late].map(|key| state.process(key).unwrap().described.control);
        assert_eq!(controls, [None, Some(control)]);
    }

    #[test]
    fn processes_are_kept_apart_from_then_on() {
        let mut state = state();
        let processes = [0, 1, 2].map(|number| state.add(process(number, number == 1), None));
        for (number, process) in (0..).zip(&processes[..2]) {
            state.insert(*process, queue(number, true)).unwrap();
        }
        for isolated in [true, true, false] {
            state.set_isolated(isolated).unwrap();
            assert_eq!(state.isolated(), isolated);
            check(&mut state);
        }
        state.set_isolated(true).unwrap();
        state.insert(processes[2], queue(7, true)).unwrap();
        check(&mut state);
    }

    #[test]
    fn a_kept_list_is_the_one_made_from_scratch() {
        let mut state = state();
        let mut processes = KVec::new();
        for number in 0..5 {
            let key = state.add(process(number, number % 2 == 0), None);
            let mut queues = KVec::new();
            for queue_number in 0..4 {
                let new = queue(number * 4 + queue_number, queue_number != 1);
                queues
                    .push(state.insert(key, new).unwrap().0, GFP_KERNEL)
                    .unwrap();
                check(&mut state);
            }
            processes.push((key, queues), GFP_KERNEL).unwrap();
        }
        for round in 0..4 {
            for (number, (key, queues)) in processes.iter().enumerate() {
                let at = queues[(number + round) % queues.len()];
                state.set_runs(*key, at, round % 2 == 1).unwrap();
                check(&mut state);
                state.set_evicted(*key, round % 2 == 0).unwrap();
                check(&mut state);
                state
                    .change(*key, at, |entry| entry.described.wave_sync = round % 2 == 0)
                    .unwrap();
                check(&mut state);
            }
        }
        for (key, queues) in &processes {
            assert!(state.take(*key, queues[2]).is_some());
            check(&mut state);
            assert!(state.take(*key, queues[2]).is_none());
        }
        for (key, _) in &processes {
            assert!(state.remove(*key).is_some());
            check(&mut state);
        }
        assert_eq!(state.image.dwords(), 0);
    }

    #[test]
    fn lists_that_do_not_fit_begin_with_one_process_after_the_other() {
        let mut state = state();
        let keys = [0, 1, 2, 3].map(|number| {
            let key = state.add(process(number, false), None);
            // The second one has nothing that runs.
            state.insert(key, queue(number, number != 1)).unwrap();
            key
        });
        let (newest, _) = from_scratch(&mut state);
        // The list, from the words on that it begins with.
        let begin = |state: &RunlistState| {
            let words = TestWords::new();
            let len = copied(state, &words);
            let word = |index| crate::gfx::Words::get(&words, index);
            assert_eq!(len, newest.len());
            (0..len)
                .find(|&first| (0..len).all(|index| word(index) == newest[(first + index) % len]))
        };
        let queue = format().words().process + format().words().queue;
        let idle = format().words().process;
        assert_eq!(begin(&state), Some(0));
        let turns = [0, queue, 2 * queue + idle, 0, queue];
        for first in turns {
            state.take_turns(true);
            assert_eq!(begin(&state), Some(first));
        }
        // Whose turn it was goes: the next one's it is.
        state.set_evicted(keys[2], true).unwrap();
        state.take_turns(true);
        state.set_evicted(keys[2], false).unwrap();
        assert_eq!(begin(&state), Some(2 * queue + idle));
        // One that fits begins with the newest, and changes nothing of that.
        state.take_turns(false);
        assert_eq!(begin(&state), Some(0));
        for first in [0, queue] {
            state.take_turns(true);
            assert_eq!(begin(&state), Some(first));
            state.take_turns(false);
        }
    }

    #[test]
    fn of_both_xnack_modes_everybody_has_a_turn() {
        let mut state = state();
        // The third one has XNACK, and so has the fifth one, of which nothing runs.
        for number in 0..5 {
            let key = state.add(process(number, number == 2 || number == 4), None);
            state.insert(key, queue(number, number != 4)).unwrap();
        }
        // The second word of a list is of the first process's packet.
        let begins = [(); 5].map(|()| {
            let words = TestWords::new();
            state.take_turns(true);
            assert_eq!(copied(&state, &words), state.image.dwords());
            crate::gfx::Words::get(&words, 1)
        });
        let [turns @ .., again] = begins;
        assert_eq!(again, turns[0]);
        for (at, turn) in turns.iter().enumerate() {
            assert!(!turns[at + 1..].contains(turn));
        }
    }

    #[test]
    fn what_there_is_no_room_for_changes_nothing() {
        let mut state = RunlistState::new(format(), 64, 40).unwrap();
        let key = state.add(process(0, false), None);
        state.insert(key, queue(1, true)).unwrap();
        state.insert(key, queue(2, true)).unwrap();
        let third = queue(3, true);
        let name = third.key;
        assert_eq!(state.insert(key, third).err(), Some(ENOMEM));
        assert!(!state.queue_runs(key, name));
        assert!(state.take(key, name).is_some());
        check(&mut state);
    }

    /// Fills a process with queues that run until no more fits.
    fn fill(state: &mut RunlistState, process: Key) {
        for number in 5..32 {
            let new = queue(number, true);
            let name = new.key;
            if let Err(error) = state.insert(process, new) {
                assert_eq!(error, ENOMEM);
                assert!(state.take(process, name).is_some());
                return;
            }
        }
        panic!("there is no end of it");
    }

    #[test]
    fn who_is_evicted_keeps_the_room() {
        let mut state = RunlistState::new(format(), 64, 99).unwrap();
        let key = state.add(process(0, false), None);
        let (old, _) = state.insert(key, queue(1, true)).unwrap();
        let (stopped, listed) = state.insert(key, queue(2, false)).unwrap();
        assert!(!listed);
        state.set_evicted(key, true).unwrap();
        // Another takes what is left.
        let other = state.add(process(1, false), None);
        state.insert(other, queue(4, true)).unwrap();
        fill(&mut state, other);
        check(&mut state);
        // Its queues can come and go meanwhile.
        state.set_runs(key, old, false).unwrap();
        state.set_runs(key, old, true).unwrap();
        state.set_evicted(key, false).unwrap();
        state.set_runs(key, stopped, true).unwrap();
        assert!(state.queue_runs(key, old) && state.queue_runs(key, stopped));
        check(&mut state);
        assert!(state.take(key, old).is_some());
        // What it gave back another gets, and then no more.
        fill(&mut state, other);
        check(&mut state);
        assert!(state.remove(other).is_some());
        assert!(state.remove(key).is_some());
        assert_eq!((state.reserved, state.image.dwords()), (0, 0));
    }

    #[test]
    fn a_queue_is_not_in_the_list_without_its_process() {
        let words = format().map_queue(&map_queue(1)).words().len();
        let mut state = RunlistState::new(format(), 64, words + 3).unwrap();
        let key = state.add(process(0, false), None);
        let first = queue(1, true);
        let name = first.key;
        assert_eq!(state.insert(key, first).err(), Some(ENOMEM));
        assert_eq!(state.image.dwords(), 0);
        assert!(state.take(key, name).is_some());
        assert_eq!(state.image.dwords(), 0);
        check(&mut state);
    }

    #[test]
    fn modes_of_xnack_are_told_apart() {
        let mut state = state();
        for xnack in [true, false] {
            assert!(!state.mixes_xnack());
            let key = state.add(process(0, xnack), None);
            state.insert(key, queue(1, true)).unwrap();
        }
        assert!(state.mixes_xnack());
    }
}
