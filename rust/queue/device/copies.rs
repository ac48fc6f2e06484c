// SPDX-License-Identifier: GPL-2.0-only

//! How long a process's copy queues on one GPU have been busy. Each counts that in its process's
//! memory.

use super::{
    Queues,
    Scheduled, //
};
use crate::{
    ids::QueueId,
    sched::Key, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// A copy queue that counts how long it has been busy.
pub(crate) struct SdmaCounter {
    pub(super) queue: (QueueId, Key),
    /// Where, in its process's memory.
    pub(crate) address: u64,
    /// What was read there, in ticks; 0 if nothing could be.
    pub(crate) counted: u64,
}

impl Queues {
    /// The copy queues that there are, and where they count. What they have counted is to be read
    /// with nothing locked, and then asked for ([`Queues::sdma_total`]).
    pub(crate) fn sdma_counters(&self) -> Result<KVec<SdmaCounter>> {
        let mut counters = KVec::with_capacity(self.count(), GFP_KERNEL)?;
        let inner = self.inner.lock();
        for (id, Scheduled { key, queue, .. }) in inner.queues.iter() {
            // More queues than a moment ago: they have hardly counted anything.
            if counters.len() == counters.capacity() {
                break;
            }
            if let Some(address) = queue.sdma_counter() {
                let counter = SdmaCounter {
                    queue: (*id, *key),
                    address,
                    counted: 0,
                };
                // There is room: nothing is allocated.
                counters.push(counter, GFP_ATOMIC)?;
            }
        }
        Ok(counters)
    }

    /// What they have counted, and those that are gone. Of one that has gone since it was read the
    /// latter says more.
    pub(crate) fn sdma_total(&self, counters: &[SdmaCounter]) -> u64 {
        let inner = self.inner.lock();
        let is_there = |counter: &&SdmaCounter| {
            let (id, key) = counter.queue;
            inner.queues.get(&id).is_some_and(|known| known.key == key)
        };
        let present = counters.iter().filter(is_there);
        let past = self.past_sdma.load(Relaxed);
        present.fold(past, |sum, it| sum.wrapping_add(it.counted))
    }

    /// Where a copy queue counts; `Some(None)`: it is another one. `None`: there is no such queue
    /// here.
    pub(crate) fn sdma_counter(&self, id: QueueId) -> Option<Option<u64>> {
        let inner = self.inner.lock();
        Some(inner.queues.get(&id)?.queue.sdma_counter())
    }
}
