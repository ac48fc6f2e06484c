// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Real dispatches, on a queue of the process's own beside those that the lines create.

use super::World;
use anyhow::Result;
use kfd::Memory;
use kfd_aql::{Launch, Queue, Signal};
use std::collections::VecDeque;
use std::time::Duration;

/// The most dispatches that are under way.
pub const MOST: u32 = 8;

/// The process's queue and what it has been given.
#[derive(Default)]
pub struct Launches {
    queue: Option<Queue>,
    running: VecDeque<(Launch, Signal, Memory)>,
}

impl World<'_> {
    pub fn launch(&self, groups: u32, rounds: u32) {
        // Another thread has it: that one launches.
        let Ok(mut launches) = self.launches.try_lock() else {
            return;
        };
        if launches.running.len() + 1 < MOST as usize {
            self.abi().others_begin();
            let begun = self.begin(&mut launches, groups.min(4), rounds.min(1000));
            self.abi().others_end();
            self.shared.tally.count("LAUNCH", begun.is_ok());
        }
    }

    fn begin(&self, launches: &mut Launches, groups: u32, rounds: u32) -> Result<()> {
        let Some(prepared) = self.prepared.get() else {
            return Ok(());
        };
        let gpu = &prepared.gpu;
        if launches.queue.is_none() {
            launches.queue = Some(Queue::new(gpu.device(), 64)?);
        }
        let items = groups * crate::waves::GROUP;
        let out = Memory::gtt(gpu.device(), 4 * items as usize)?;
        let mut arguments = out.address().to_le_bytes().to_vec();
        arguments.extend(7u32.to_le_bytes());
        arguments.extend(rounds.to_le_bytes());
        let launch = gpu.launch("churn", items, &arguments)?;
        let done = gpu.signal()?;
        if let Some(queue) = &launches.queue {
            launch.submit(queue, &done)?;
            launches.running.push_back((launch, done, out));
        }
        Ok(())
    }

    /// Waits for the oldest dispatch, not longer than `patience`. What is not done by then is given
    /// up: a line may have destroyed or stopped its queue.
    pub fn finish(&self, patience: Duration) {
        let Ok(mut launches) = self.launches.try_lock() else {
            return;
        };
        let Some((_, done, _)) = launches.running.front() else {
            return;
        };
        let ended = done.wait(patience).is_ok();
        self.shared.tally.count("AWAIT", ended);
        if ended {
            launches.running.pop_front();
        }
    }
}
