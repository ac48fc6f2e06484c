// SPDX-License-Identifier: GPL-2.0-only

//! Queues that are gone: whether hardware has let go of them, and when what they had is given back.

use super::{
    trace_process,
    Inner,
    QueueNode,
    Queues,
    Scheduled,
    Site, //
};
use crate::{
    ids::QueueId,
    kgd::gpu_err,
    linux::{
        errno,
        trace::ProcessChange, //
    },
    sched::{
        node::ActiveProcess,
        Key,
        Scheduler, //
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTree, //
};

/// Queues that are gone for the process, and what told power management of them.
pub(super) struct Remains {
    /// Those that were destroyed, or not taken in. While they are here nobody gets their names.
    destroyed: RBTree<QueueId, Scheduled>,
    /// Those that ended with the process.
    ended: RBTree<QueueId, Scheduled>,
    process: Option<(Key, ActiveProcess)>,
}

/// Queues that ended with the process, and what told power management of them.
pub(super) type Ended = (RBTree<QueueId, Scheduled>, Option<(Key, ActiveProcess)>);

impl Remains {
    fn new() -> Self {
        Self {
            destroyed: RBTree::new(),
            ended: RBTree::new(),
            process: None,
        }
    }
}

impl Queues {
    /// Ends all queues, which is said here if the hardware does not obey: they are off it when
    /// [`Queues::are_off`] says so, and have what they had until [`Queues::give_back`]. Calling it
    /// again does nothing.
    pub(crate) fn quiesce(&self, site: &impl Site) {
        let scheduler = site.node().queues().scheduler();
        let mut inner = self.inner.lock();
        inner.closed = true;
        let process = inner.process.take();
        let mut obeyed = true;
        if let Some((key, _)) = &process {
            let stays = scheduler.may_work_for(*key);
            let result = scheduler.remove(*key);
            obeyed = has_obeyed(scheduler, stays, &result);
            trace_process(ProcessChange::Quiesce, site, inner.evicted, &result);
            site.node().notify_resets();
            if let Err(error) = result {
                let pid = site.vm().map_or(0, |vm| vm.task().pid);
                let name = site.node().pci_name();
                gpu_err!(
                    name,
                    "process {pid} ended: cannot unmap its queues: {error:?}\n"
                );
            }
        }
        let queues = core::mem::replace(&mut inner.queues, RBTree::new());
        inner.count = 0;
        if !obeyed {
            let remains = inner.remains.get_or_insert_with(Remains::new);
            (remains.ended, remains.process) = (queues, process);
        } else if process.is_some() {
            inner.ended = Some((queues, process));
        }
    }

    /// Whether nothing of queues that are gone is on the hardware.
    pub(crate) fn are_off(&self, site: &impl Site) -> bool {
        let mut inner = self.inner.lock();
        let are_off = inner.check_remains(site).is_ok();
        // For good: others may hang the hardware again before it is asked the next time.
        inner.is_off |= inner.closed && are_off;
        are_off
    }

    /// Gives back what queues had that are gone, if nothing of them is on the hardware. Waits for
    /// whoever has a buffer of theirs locked, or page tables, who may wait for an eviction of the
    /// process: one that has ended lets its buffers move before.
    pub(crate) fn give_back(&self, site: &impl Site) {
        let mut inner = self.inner.lock();
        let are_off = inner.check_remains(site).is_ok();
        let remains = inner.remains.take_if(|_| are_off);
        let ended = inner.ended.take();
        drop(inner);
        drop((remains, ended));
    }
}

impl Inner {
    /// `ETIME`: a queue that is gone may be on the hardware still, which was asked once more.
    pub(super) fn check_remains(&self, site: &impl Site) -> Result {
        if self.is_off || self.remains.is_none() {
            return Ok(());
        }
        let scheduler = site.node().queues().scheduler();
        scheduler.ask_again();
        site.node().notify_resets();
        match scheduler.has_let_go() {
            true => Ok(()),
            false => Err(errno::timer_expired()),
        }
    }

    /// Lets the scheduler forget the process after its last queue. `obeyed`: whether the queue that
    /// is gone has left the hardware; if not it is kept, and the process. What is returned, or left
    /// of the queue, is to be dropped when nothing is locked.
    pub(super) fn let_go(
        &mut self,
        scheduler: &dyn Scheduler,
        mut obeyed: bool,
        gone: &mut Option<QueueNode>,
    ) -> Option<ActiveProcess> {
        let mut process = None;
        if self.queues.is_empty() {
            process = self.process.take();
        }
        if let Some((key, _)) = &process {
            let stays = scheduler.may_work_for(*key);
            let removed = scheduler.remove(*key);
            obeyed &= has_obeyed(scheduler, stays, &removed);
        }
        if obeyed {
            return process.map(|(_, active)| active);
        }
        let remains = self.remains.get_or_insert_with(Remains::new);
        if let Some(gone) = gone.take() {
            remains.destroyed.insert(gone);
        }
        if process.is_some() {
            remains.process = process;
        }
        None
    }
}

/// Whether what an order concerned has left the hardware. The error may come of others' queues that
/// could not be put on again; and who has left the hardware to a reset has given it no order.
/// `stays`: whether hardware that had not obeyed might be at work for the process before the order,
/// which may have come in a reset that is over by now and was none.
pub(super) fn has_obeyed(scheduler: &dyn Scheduler, stays: bool, result: &Result) -> bool {
    scheduler.has_let_go() || result.is_ok() && !stays && !scheduler.is_stopped()
}
