// SPDX-License-Identifier: GPL-2.0-only

//! Whether hardware has obeyed that queues were to leave.

use super::{
    Queues,
    Site, //
};
use crate::kgd::{
    gpu_err,
    DeviceHandle, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// How long is waited for the reset of a GPU that does not obey, which takes some seconds on
/// hardware.
pub(crate) const PATIENCE: Delta = Delta::from_secs(10);

/// Queues have been evicted, and memory that they use is about to go: waits for hardware that did
/// not obey until it has, or has been reset. Not for long where nobody resets it, and not at all
/// for who does: the task that resets it may reclaim memory. `stops`: whether a signal came, and
/// the answer is `ERESTARTSYS`. Who can be called away so waits for a reset that runs to its end.
///
/// TIMEOUT: see above, from the moment on at which the hardware did not obey.
pub(crate) fn await_obedience<'a, S: Site + 'a>(
    queues: impl Iterator<Item = (&'a Queues, &'a S)> + Clone,
    mut stops: Option<impl FnMut() -> bool>,
) -> Result {
    const STEP: Delta = Delta::from_millis(10);
    let to_its_end = stops.is_some();
    let waits = |(queues, site): (&Queues, &S)| {
        let node = site.node();
        queues.are_at_work(site)
            && !node.is_reset_by_current()
            && (node.queues().patience().is_left(PATIENCE) || to_its_end && node.kgd().in_reset())
    };
    if !queues.clone().any(waits) {
        return Ok(());
    }
    while queues.clone().any(waits) {
        if stops.as_mut().is_some_and(|stops| stops()) {
            return Err(ERESTARTSYS);
        }
        fsleep(STEP);
    }
    for (_, site) in queues.filter(|(queues, site)| queues.are_at_work(*site)) {
        let pid = site.vm().map_or(0, |vm| vm.task().pid);
        let name = site.node().pci_name();
        gpu_err!(name, "process {pid}: memory that it may still use goes\n");
    }
    Ok(())
}

/// Whether queues of a process's that were to leave may be at work on another GPU than `gpu`, which
/// is being reset, or goes away. Those on GPUs that are being reset as well, such as others of a
/// hive, end with that: once it has stopped their schedulers, for amdgpu says that it resets a GPU
/// before it has the lock of that. May wait for a preemption.
pub(crate) fn work_elsewhere<'a, S: Site + 'a>(
    mut queues: impl Iterator<Item = (&'a Queues, &'a S)>,
    gpu: DeviceHandle,
) -> bool {
    queues.any(|(queues, site)| {
        let (node, kgd) = (site.node(), site.node().kgd());
        let is_reset = kgd.in_reset() && node.queues().scheduler().is_stopped();
        kgd.handle() != gpu && !is_reset && queues.are_at_work(site)
    })
}

impl Queues {
    /// The process gives memory back that the GPU may use still: whether it has forgotten that is
    /// not known. Waits until none of the queues is at work, which the end of the GPU's reset sees
    /// to if it does not obey ([`await_obedience`]), and calls `forget` while that is so. `stops`:
    /// whether a signal came, and the answer is `ERESTARTSYS`. Not under reclaim, nor in a reset.
    pub(crate) fn await_reset(
        &self,
        site: &impl Site,
        stops: impl FnMut() -> bool,
        forget: impl FnOnce(),
    ) -> Result {
        // What comes of it is looked at below. While amdgpu has the hardware for a reset, queues go
        // on that nothing is wrong with.
        let _ = self.evict(site);
        let result = await_obedience(core::iter::once((self, site)), Some(stops));
        if result.is_ok() {
            forget();
        }
        if let Err(error) = self.restore(site) {
            pr_debug!("queues do not come back: {error:?}\n");
        }
        result
    }

    /// Whether queues that were to leave, or are gone, may be at work on hardware that did not
    /// obey, which is asked once more. While it obeys, as far as anybody knows, this costs next to
    /// nothing. Those of a process that is not evicted any more count, too: what they did not leave
    /// they are still on.
    pub(crate) fn are_at_work(&self, site: &impl Site) -> bool {
        let queues = site.node().queues();
        if queues.patience().obeys() {
            return false;
        }
        let scheduler = queues.scheduler();
        let inner = self.inner.lock();
        if let (Some((key, _)), 1..) = (&inner.process, inner.evicted) {
            // What comes of it is looked at below.
            let _ = scheduler.evict(*key);
            site.node().notify_resets();
        }
        let _ = inner.check_remains(site);
        let process = inner.process.as_ref();
        process.is_some_and(|(key, _)| scheduler.may_work_for(*key))
            || inner.remains.is_some() && !inner.is_off && !scheduler.has_let_go()
    }
}
