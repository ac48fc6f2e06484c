// SPDX-License-Identifier: GPL-2.0-only

//! Orders that the hardware is still to be given, because amdgpu had it for itself.

use super::{
    Direct,
    DirectHardware,
    HqdSlot,
    Inner,
    Phase, //
};
use crate::{
    kgd::ResetGuard,
    sched::{
        SchedProcess,
        SchedQueue, //
    }, //
};
use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::atomic::ordering::Relaxed, //
};

impl Inner {
    /// Whether there are such orders.
    pub(super) fn owes(&self) -> bool {
        let paused = self.paused.any();
        let owes = |process| owes(process, paused);
        self.phase == Phase::Runs
            && (self.leaving().next().is_some() || self.processes.values().any(owes))
    }
}

impl Direct {
    /// Keeps resets away from an order. `EIO`: amdgpu has the hardware, and the order is noted to
    /// be kept from it. The caller has `inner` locked.
    pub(super) fn keep_resets_away(&self) -> Result<ResetGuard<'_>> {
        let guard = ResetGuard::try_new(&*self.hardware.kgd);
        guard.inspect_err(|_| self.kept.store(true, Relaxed))
    }

    /// Whether there are such orders. Only if one was kept since there were none is `inner` taken.
    pub(super) fn owes_still(&self) -> bool {
        if !self.kept.load(Relaxed) {
            return false;
        }
        let inner = self.inner.lock();
        let owes = inner.owes();
        self.kept.store(owes, Relaxed);
        owes
    }

    /// Gives them: queues that are to go for good first.
    pub(super) fn order_again(&self) {
        let (mut queues, mut processes) = (RBTree::new(), RBTree::new());
        let mut inner = self.inner.lock();
        loop {
            let next = inner.leaving().next();
            let Some((process, queue)) = next else {
                break;
            };
            let gone = match queue {
                None => inner.take_process(process).map(|gone| {
                    processes.insert(gone);
                }),
                Some(queue) => match self.take_out(&mut inner, process, queue) {
                    Ok((_, Some(gone))) => {
                        queues.insert(gone);
                        Some(())
                    }
                    _ => None,
                },
            };
            if gone.is_none() {
                break;
            }
        }
        if inner.owes() {
            // Who owes still is asked again.
            let _ = self.settle(&mut inner);
        }
        self.look(&inner);
        drop(inner);
        drop((queues, processes));
    }

    /// Takes off what must not run, and loads what is to; the first error counts. What is as it
    /// should be is not touched.
    pub(super) fn settle(&self, inner: &mut Inner) -> Result {
        Self::each(inner, |phase, paused, process| {
            match paused || process.evicted {
                true => self.clear(phase, process, self.preempt()),
                false => self.run(*phase, paused, process),
            }
        })
    }

    /// Tells a process's VMID of its page directory if that has moved. The caller keeps resets
    /// away.
    pub(super) fn move_directory(&self, process: &mut SchedProcess) {
        let DirectHardware { kgd, xcc_mask, .. } = &*self.hardware;
        if let (true, Some(binding)) = (process.moved, &process.binding) {
            let directory = process.described.page_table_base;
            kgd.move_page_directory(binding.vmid(), directory, *xcc_mask);
        }
        process.moved = false;
    }
}

/// Whether queues of a process are on the hardware that must not be there, or are not though they
/// are to run, or run, or will, with the page directory that it had. One that the hardware has
/// refused is not owed: its engine may be stuck, amdgpu waits seconds for that, and all other
/// orders wait behind it. As with C it comes with the next order that concerns its process.
fn owes(process: &SchedProcess, paused: bool) -> bool {
    let waits = |entry: &SchedQueue| {
        let HqdSlot {
            loaded,
            reset,
            refused,
            ..
        } = entry.hqd;
        entry.runs() && !loaded && !reset && !refused
    };
    let mut queues = process.queues.values();
    match paused || process.evicted {
        true => queues.any(|entry| entry.hqd.loaded),
        // It gets its VMID with its first queue.
        false => process.binding.is_some() && (process.moved || queues.any(waits)),
    }
}
