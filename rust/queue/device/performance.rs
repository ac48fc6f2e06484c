// SPDX-License-Identifier: GPL-2.0-only

//! Queues that performance counters count, which one process at a time has
//! ([`Profiler`](crate::gpu::Profiler)).

use super::{
    Inner,
    Queues,
    Scheduled,
    Site, //
};
use crate::ids::QueueId;
use kernel::prelude::*;

impl Queues {
    /// Performance counters count all queues, or do not.
    pub(crate) fn count_performance(&self, count: bool) -> Result {
        let mut inner = self.inner.lock();
        let Inner {
            process, queues, ..
        } = &mut *inner;
        let Some((process, _)) = process.as_ref() else {
            return Ok(());
        };
        let mut result = Ok(());
        for Scheduled { key, queue, .. } in queues.values_mut() {
            // Copies are not counted.
            if queue.compute_doorbell().is_none() {
                continue;
            }
            let changed = queue.rewrite(*process, *key, &mut |queue| queue.counts = Some(count));
            result = result.and(changed);
        }
        result
    }
}

impl Inner {
    /// Has performance counters count a compute queue if a process has them, and only then. Who
    /// takes them, or gives them back, has said so before it looks at the queues that there are: it
    /// comes here afterwards, or that is seen here.
    pub(super) fn follow_profiler(&mut self, site: &impl Site, id: QueueId) -> Result {
        let counts = site.node().profiler().is_taken();
        let (process, key, queue) = self.get_mut(id).ok_or(EFAULT)?;
        let is_compute = queue.compute_doorbell().is_some();
        if !is_compute || queue.counts.unwrap_or(false) == counts {
            return Ok(());
        }
        queue.rewrite(process, key, &mut |queue| queue.counts = Some(counts))
    }
}
