// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The XCCs of a partition that work on one AQL queue: each has the queue in a slot of its own and
//! runs its share of every dispatch. One [`Team`] per such queue, held by its copies.
//!
//! The master (the partition's first XCC) goes through all packets. The others look at the packet
//! that the master is at, run their share of it if it has one, and say so; the master completes the
//! packet when all have. A copy's read pointer says what it is done with, so a copy that is
//! preempted and mapped again is where it was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::processor::lock;
use crate::processor::runner::{Runner, Task};

/// XCCs of a partition at most.
pub const MAX: usize = 8;
/// The master is not mapped.
const NOBODY: u64 = u64::MAX;

/// An XCC in its partition. Source: CP_HYP_XCP_CTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// VIRTUAL_XCC_ID: 0 is the master.
    pub index: u8,
    /// NUM_XCC_IN_XCP.
    pub of: u8,
}

impl Member {
    /// As the register has it: VIRTUAL_XCC_ID 2:0, NUM_XCC_IN_XCP 6:3.
    pub const fn decode(register: u32) -> Self {
        let of = (register >> 3 & 0xf) as u8;
        Member {
            index: (register & 7) as u8,
            of: if of == 0 { 1 } else { of },
        }
    }

    /// The register.
    pub const fn encode(self) -> u32 {
        self.index as u32 | (self.of as u32) << 3
    }

    /// Whether it only takes part in what the master begins.
    pub const fn is_follower(self) -> bool {
        self.index != 0
    }
}

/// A queue's copies.
pub struct Team {
    /// Packets that the master is done with.
    completed: AtomicU64,
    /// Packets that each copy is done with.
    done: [AtomicU64; MAX],
    tasks: Mutex<[Option<Arc<Task>>; MAX]>,
}

impl Default for Team {
    fn default() -> Self {
        Team {
            completed: NOBODY.into(),
            done: Default::default(),
            tasks: Mutex::default(),
        }
    }
}

impl Team {
    /// A copy is mapped, and done with `packets` packets.
    pub fn join(&self, member: Member, packets: u64, task: &Arc<Task>) {
        if let Some(place) = lock(&self.tasks).get_mut(usize::from(member.index)) {
            *place = Some(task.clone());
        }
        self.report(member, packets);
    }

    /// A copy is unmapped.
    pub fn leave(&self, member: Member) {
        if !member.is_follower() {
            self.completed.store(NOBODY, Ordering::Release);
        }
        if let Some(place) = lock(&self.tasks).get_mut(usize::from(member.index)) {
            *place = None;
        }
    }

    /// A copy is done with `packets` packets.
    pub fn report(&self, member: Member, packets: u64) {
        match self.done.get(usize::from(member.index)) {
            Some(done) if member.is_follower() => done.store(packets, Ordering::Release),
            _ => self.completed.store(packets, Ordering::Release),
        }
    }

    /// How many packets are done. None: the master is not mapped.
    pub fn completed(&self) -> Option<u64> {
        Some(self.completed.load(Ordering::Acquire)).filter(|at| *at != NOBODY)
    }

    /// Whether all copies but the master's, of `of`, are done with the packet.
    pub fn is_done(&self, of: u8, packet: u64) -> bool {
        self.done
            .iter()
            .take(of.into())
            .skip(1)
            .all(|done| done.load(Ordering::Acquire) > packet)
    }

    /// Something has changed for the master (by a follower) or for the followers (by the master).
    pub fn wake(&self, by: Member, runner: &Runner) {
        let tasks = lock(&self.tasks);
        let wanted = |index: usize| by.is_follower() == (index == 0);
        for (_, task) in tasks.iter().enumerate().filter(|(at, _)| wanted(*at)) {
            task.iter().for_each(|task| runner.wake(task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_done_when_every_follower_is_past_it() {
        let team = Team::default();
        let member = |index| Member { index, of: 3 };
        assert_eq!(team.completed(), None);
        team.report(member(0), 5);
        assert_eq!(team.completed(), Some(5));
        team.report(member(1), 6);
        assert!(!team.is_done(3, 5));
        team.report(member(2), 6);
        assert!(team.is_done(3, 5) && !team.is_done(3, 6));
        team.leave(member(0));
        assert_eq!(team.completed(), None);
    }

    #[test]
    fn the_register_says_who_is_who() {
        let member = Member { index: 3, of: 4 };
        assert_eq!(Member::decode(member.encode()), member);
        assert_eq!(Member::decode(0), Member { index: 0, of: 1 });
    }
}
