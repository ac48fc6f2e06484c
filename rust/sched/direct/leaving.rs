// SPDX-License-Identifier: GPL-2.0-only

//! What is to leave the hardware, and whether it has.

use super::{
    Binding,
    Direct,
    Inner,
    Phase,
    VMIDS, //
};
use crate::{
    kgd::Preempt,
    sched::{
        preemption::Preemption,
        Key,
        SchedProcess,
        SchedQueue, //
    }, //
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNode, //
};

impl Inner {
    /// Nothing is on the hardware that has not left it.
    pub(super) fn trust(&mut self) {
        self.behind = false;
        for process in self.processes.values_mut() {
            process.stranded = false;
        }
        self.withheld = Default::default();
    }

    /// Forgets a process. Its VMID stays nobody else's for as long as its queues may be at work:
    /// on another node they would find the memory of whoever has it next.
    pub(super) fn take_process(&mut self, process: Key) -> Option<RBTreeNode<Key, SchedProcess>> {
        let at = self.processes.get_mut(&process)?;
        let vmid = at.binding.as_mut().filter(|_| at.stranded);
        if let Some(place) = vmid.and_then(Binding::withhold) {
            // PANIC: it is below `VMIDS`.
            let index = place.index() % VMIDS;
            self.withheld[index] = Some(place);
        }
        self.processes.remove_node(&process)
    }

    /// What is to go and was not taken off the hardware yet: queues, and processes without them.
    pub(super) fn leaving(&self) -> impl Iterator<Item = (Key, Option<Key>)> + '_ {
        self.processes.iter().filter_map(|(&key, process)| {
            let mut queues = process.queues.iter();
            let queue = queues.find(|(_, entry)| entry.kept & SchedQueue::LEAVING != 0);
            match queue {
                Some((&queue, _)) => Some((key, Some(queue))),
                None => process.leaving.then_some((key, None)),
            }
        })
    }
}

impl Direct {
    /// Notes whether something is on the hardware that was to leave it.
    pub(super) fn look(&self, inner: &Inner) {
        match inner.behind || inner.processes.values().any(stays) {
            true => self.patience.begin(),
            false => self.patience.end(),
        }
    }

    /// Takes a queue off the hardware and from its process for good; one that amdgpu keeps from
    /// leaving now goes later. What is returned beside the outcome is to be dropped when nothing is
    /// locked.
    pub(super) fn take_out(
        &self,
        inner: &mut Inner,
        process: Key,
        queue: Key,
    ) -> Result<(Preemption, Option<RBTreeNode<Key, SchedQueue>>)> {
        let Inner {
            phase,
            behind,
            processes,
            ..
        } = inner;
        let at = processes.get_mut(&process).ok_or(ENOENT)?;
        let vmid = at.binding.as_ref().map(Binding::vmid);
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        let off = self.take_off(phase, vmid, entry, Preempt::Reset);
        if entry.hqd.loaded && *phase == Phase::Runs {
            entry.keep(SchedQueue::LEAVING, true);
            return Ok((off, None));
        }
        if off.result().is_err() {
            // Nobody asks it again.
            (*behind, at.stranded) = (true, true);
        }
        Ok((off, at.queues.remove_node(&queue)))
    }
}

/// Whether queues of a process may be on the hardware that were to leave it.
pub(super) fn stays(process: &SchedProcess) -> bool {
    let all = process.evicted || process.leaving;
    let stays = |entry: &SchedQueue| {
        entry.hqd.loaded && (all || entry.kept & SchedQueue::LEAVING != 0)
    };
    process.stranded || process.queues.values().any(stays)
}
