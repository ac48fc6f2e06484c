// SPDX-License-Identifier: GPL-2.0-only

//! Checkpoints of the queues of a process on a GPU.

use super::Queues;
use crate::{
    ids::QueueId,
    queue::{
        properties::Extent,
        QueueIdentity, //
    },
    svm::PinnedPages, //
};
use kernel::prelude::*;

impl Queues {
    /// What a queue is called and where it is. `EINVAL`: there is no such queue here.
    pub(crate) fn identity(&self, id: QueueId) -> Result<QueueIdentity> {
        let inner = self.inner.lock();
        inner.queues.get(&id).ok_or(EINVAL)?.queue.identity()
    }

    /// Whether it is that queue that has the GPU's global wave sync.
    pub(crate) fn has_wave_sync(&self, id: QueueId) -> bool {
        self.inner.lock().wave_sync == Some(id)
    }

    /// Reads the descriptors and control stacks of a queue. `EINVAL`: it may run, or they are not
    /// of that size any more.
    pub(crate) fn save(&self, id: QueueId, descriptors: &mut [u32], stacks: &mut [u32]) -> Result {
        self.while_stopped(id, |queue| queue.save(descriptors, stacks))
    }

    /// A queue whose save area is still to be kept for it, and where that is.
    pub(crate) fn awaited_area(&self) -> Option<(QueueId, Extent)> {
        let inner = self.inner.lock();
        let mut queues = inner.queues.iter();
        queues.find_map(|(id, scheduled)| Some((*id, scheduled.queue.awaited_area()?)))
    }

    /// It is kept for it. What is returned is to be dropped when nothing is locked.
    pub(crate) fn give_area(&self, id: QueueId, pages: PinnedPages) -> Option<PinnedPages> {
        let mut inner = self.inner.lock();
        match inner.queues.get_mut(&id) {
            Some(scheduled) if scheduled.queue.awaits_area => {
                scheduled.queue.awaits_area = false;
                scheduled.queue.saved.replace(pages)
            }
            _ => Some(pages),
        }
    }
}
