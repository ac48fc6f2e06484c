// SPDX-License-Identifier: GPL-2.0-only

//! Whether hardware has obeyed that queues were to leave.

use super::{
    Inner,
    Queues,
    Site, //
};
use kernel::sync::atomic::ordering::Relaxed;

impl Queues {
    /// Whether queues that were evicted, or are gone, may be at work on hardware that did not obey,
    /// which is asked once more. False until it is known not to have: then this costs next to
    /// nothing.
    pub(crate) fn are_at_work(&self, site: &impl Site) -> bool {
        if !self.disobeyed.load(Relaxed) {
            return false;
        }
        let inner = self.inner.lock();
        if let (Some((key, _)), 1..) = (&inner.process, inner.evicted) {
            // What comes of it is looked at below.
            let _ = site.node().queues().scheduler().evict(*key);
            site.node().notify_resets();
        }
        let _ = inner.check_remains(site);
        self.note_obedience(&inner, site)
    }

    /// Notes whether such queues may be at work, and returns it. Those of a process that is not
    /// evicted any more count, too: what they did not leave they are still on.
    pub(super) fn note_obedience(&self, inner: &Inner, site: &impl Site) -> bool {
        let scheduler = site.node().queues().scheduler();
        let process = inner.process.as_ref();
        let works = process.is_some_and(|(key, _)| scheduler.may_work_for(*key))
            || inner.remains.is_some() && !scheduler.has_let_go();
        self.disobeyed.store(works, Relaxed);
        works
    }
}
