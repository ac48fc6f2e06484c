// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Global wave sync: counters that waves of one process, and of different groups, wait at. One
//! [`Gws`] per GPU.
//!
//! The scheduler gives a process 64 or none (MAP_PROCESS.NUM_GWS); without it, GDS_GWS_VMIDn says
//! what a VMID has. Semantics of `ds_gws_*`: "AMD Instinct MI300 Instruction Set Architecture".

use std::collections::HashMap;

use gcn::{GwsOp, GwsRequest};

use super::queue::Queue;
use super::reg::offset;
use super::Shared;
use crate::gc::GcRegister;
use crate::processor::lock;

/// Counters that exist at a time, of all processes; a guest cannot make more. They are of 1024
/// processes at least, each on one XCC.
const MAX_COUNTERS: usize = 1 << 16;
/// Counters of a process on an XCC.
const OF_PROCESS: u32 = 64;

/// Whose counters: XCC, process.
type Owner = (u8, u16);
/// A counter's owner and number.
type Key = (Owner, u32);

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// The semaphore, or how many waves are still to come to the barrier after the next one.
    value: u32,
    /// Goes up when waiting waves are released.
    generation: u64,
}

/// The answer for a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Granted,
    /// Ask again, with this ticket.
    Wait(u64),
    /// There is no such counter.
    Refused,
}

/// All counters.
#[derive(Default)]
pub struct Gws {
    counters: HashMap<Key, Counter>,
    /// When an owner last used one, or was mapped.
    used: HashMap<Owner, u64>,
    clock: u64,
}

impl Gws {
    fn request(&mut self, key: Key, request: GwsRequest, ticket: Option<u64>) -> Answer {
        self.make_room(key);
        self.clock += 1;
        self.used.insert(key.0, self.clock);
        let counter = self.counters.entry(key).or_default();
        let released = ticket.is_some_and(|ticket| ticket != counter.generation);
        match request.op {
            GwsOp::Init => {
                counter.value = request.value;
                counter.generation += 1;
            }
            GwsOp::SemaV => counter.value = counter.value.saturating_add(1),
            GwsOp::SemaBr => counter.value = counter.value.saturating_add(request.value),
            GwsOp::SemaP if released => {}
            GwsOp::SemaP if counter.value > 0 => counter.value -= 1,
            GwsOp::SemaP => return Answer::Wait(counter.generation),
            GwsOp::SemaReleaseAll => counter.generation += 1,
            GwsOp::Barrier if released => {}
            GwsOp::Barrier if ticket.is_some() => return Answer::Wait(counter.generation),
            GwsOp::Barrier if counter.value == 0 => {
                counter.value = request.value;
                counter.generation += 1;
            }
            GwsOp::Barrier => {
                counter.value -= 1;
                return Answer::Wait(counter.generation);
            }
        }
        Answer::Granted
    }

    /// A wave that waits at a barrier goes away, to come back later. `resource`: where it waits.
    fn leave(&mut self, key: Key, ticket: u64) {
        if let Some(counter) = self
            .counters
            .get_mut(&key)
            .filter(|at| at.generation == ticket)
        {
            counter.value = counter.value.saturating_add(1);
        }
    }

    /// A process is mapped: others are forgotten before it.
    pub fn keep(&mut self, xcc: u8, pasid: u16) {
        if let Some(used) = self.used.get_mut(&(xcc, pasid)) {
            self.clock += 1;
            *used = self.clock;
        }
    }

    /// Nobody says when a process is gone, and its PASID does not come again soon: when there is no
    /// room for another counter, those of the owner go that has been idle for longest.
    fn make_room(&mut self, key: Key) {
        if self.counters.len() < MAX_COUNTERS || self.counters.contains_key(&key) {
            return;
        }
        let others = self.used.iter().filter(|(owner, _)| **owner != key.0);
        if let Some((&oldest, _)) = others.min_by_key(|(_, used)| **used) {
            self.used.remove(&oldest);
            for number in 0..OF_PROCESS {
                self.counters.remove(&(oldest, number));
            }
        }
    }
}

impl Shared {
    /// A wave's request. `ticket`: of its last answer to it.
    pub fn gws(&self, queue: &Queue, request: GwsRequest, ticket: Option<u64>) -> Answer {
        match self.gws_key(queue, request) {
            Some(key) => lock(&self.gws).request(key, request, ticket),
            None => Answer::Refused,
        }
    }

    /// A wave that waits is preempted.
    pub fn gws_leave(&self, queue: &Queue, request: GwsRequest, ticket: u64) {
        if let (GwsOp::Barrier, Some(key)) = (request.op, self.gws_key(queue, request)) {
            lock(&self.gws).leave(key, ticket);
        }
    }

    fn gws_key(&self, queue: &Queue, request: GwsRequest) -> Option<Key> {
        let xcc = queue.slot.xcc;
        let resource = request.resource % OF_PROCESS;
        let (owner, size) = if queue.by_hiq {
            (queue.process.pasid, queue.process.gws.into())
        } else {
            // GDS_GWS_VMIDn: BASE 5:0, SIZE 22:16.
            let vmid = u32::from(queue.space.vmid);
            let given = self
                .bus
                .reg_read(xcc, offset(GcRegister::GDS_GWS_VMID0) + vmid);
            (queue.space.vmid.into(), given >> 16 & 0x7f)
        };
        (resource < size).then_some(((xcc, owner), resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = ((0, 1), 0);

    fn ask(gws: &mut Gws, op: GwsOp, value: u32, ticket: Option<u64>) -> Answer {
        let request = GwsRequest {
            op,
            resource: 0,
            value,
        };
        gws.request(KEY, request, ticket)
    }

    fn ticket(answer: Answer) -> Option<u64> {
        match answer {
            Answer::Wait(ticket) => Some(ticket),
            _ => None,
        }
    }

    #[test]
    fn a_barrier_lets_all_go_when_the_last_one_comes_again_and_again() {
        let mut gws = Gws::default();
        ask(&mut gws, GwsOp::Init, 2, None);
        for _ in 0..3 {
            let first = ticket(ask(&mut gws, GwsOp::Barrier, 2, None));
            let second = ticket(ask(&mut gws, GwsOp::Barrier, 2, None));
            assert!(first.is_some() && second.is_some());
            assert_eq!(ticket(ask(&mut gws, GwsOp::Barrier, 2, first)), first);
            assert_eq!(ask(&mut gws, GwsOp::Barrier, 2, None), Answer::Granted);
            assert_eq!(ask(&mut gws, GwsOp::Barrier, 2, first), Answer::Granted);
            assert_eq!(ask(&mut gws, GwsOp::Barrier, 2, second), Answer::Granted);
        }
    }

    #[test]
    fn a_wave_that_was_preempted_at_a_barrier_comes_to_it_again() {
        let mut gws = Gws::default();
        ask(&mut gws, GwsOp::Init, 1, None);
        let first = ticket(ask(&mut gws, GwsOp::Barrier, 1, None)).unwrap();
        gws.leave(KEY, first);
        let again = ticket(ask(&mut gws, GwsOp::Barrier, 1, None));
        assert!(again.is_some(), "the other one has not come");
        assert_eq!(ask(&mut gws, GwsOp::Barrier, 1, None), Answer::Granted);
        assert_eq!(ask(&mut gws, GwsOp::Barrier, 1, again), Answer::Granted);
    }

    /// A program chooses the value, and may use one counter as both.
    #[test]
    fn a_counter_that_is_full_stays_so_when_a_wave_leaves_its_barrier() {
        let mut gws = Gws::default();
        ask(&mut gws, GwsOp::Init, u32::MAX, None);
        let waits = ticket(ask(&mut gws, GwsOp::Barrier, 0, None)).unwrap();
        ask(&mut gws, GwsOp::SemaV, 0, None);
        gws.leave(KEY, waits);
        assert_eq!(gws.counters[&KEY].value, u32::MAX);
    }

    /// More processes than a GPU ever had until it was reset.
    #[test]
    fn processes_that_are_gone_are_forgotten_and_one_that_is_mapped_is_not() {
        let mut gws = Gws::default();
        ask(&mut gws, GwsOp::Init, 7, None);
        let request = GwsRequest {
            op: GwsOp::Init,
            resource: 0,
            value: 1,
        };
        for pasid in 2..3000 {
            for number in 0..64 {
                let key = ((0, pasid), number);
                assert_eq!(gws.request(key, request, None), Answer::Granted);
            }
            gws.keep(0, 1);
        }
        assert!(gws.counters.len() <= MAX_COUNTERS);
        assert_eq!(gws.counters[&KEY].value, 7);
        assert!(gws.used.len() <= 1 + MAX_COUNTERS / 64);
    }

    #[test]
    fn semaphores_count() {
        let mut gws = Gws::default();
        ask(&mut gws, GwsOp::Init, 1, None);
        assert_eq!(ask(&mut gws, GwsOp::SemaP, 0, None), Answer::Granted);
        let waits = ticket(ask(&mut gws, GwsOp::SemaP, 0, None));
        assert!(waits.is_some());
        ask(&mut gws, GwsOp::SemaV, 0, None);
        assert_eq!(ask(&mut gws, GwsOp::SemaP, 0, waits), Answer::Granted);
    }
}
