// SPDX-License-Identifier: GPL-2.0-only

//! A process's shared virtual memory: there is none before it is needed.

use super::{
    registry,
    xnack_is_a_choice,
    MmId,
    Process,
    ProcessDevice,
    ProcessRef, //
};
use crate::{
    mappings,
    smi::Trigger,
    svm::{
        self,
        Subject,
        Svm, //
    },
};
use kernel::{
    fmt,
    mm::MmWithUser,
    prelude::*,
    sync::Arc, //
};

impl Process {
    /// Its shared virtual memory, if processes have that, and it has a VM or has asked for it.
    pub(crate) fn svm(&self) -> Option<&Arc<Svm>> {
        self.svm.as_ref()
    }

    /// Its shared virtual memory. `EPERM`: processes have none.
    pub(crate) fn make_svm(&self) -> Result<&Arc<Svm>> {
        if let Some(svm) = self.svm() {
            return Ok(svm);
        }
        let _turn = self.memory.lock();
        self.make_svm_locked()?.ok_or(EPERM)
    }

    /// The same under `memory`. `None`: processes have none.
    pub(super) fn make_svm_locked(&self) -> Result<Option<&Arc<Svm>>> {
        if self.svm().is_none() && svm::is_enabled() {
            let host = SvmHost {
                mm: self.mm,
                context: self.context,
            };
            let subject = Subject {
                pid: self.pid,
                tgid: self.tgid,
                of: self.space(),
            };
            let svm = Svm::new(
                self.devices()
                    .iter()
                    .map(|device| (device.node(), device.shared_counters())),
                (self.address_space().into(), subject),
                self.xnack(),
                KBox::new(host, GFP_KERNEL)?,
                (registry::get()?.pages(), registry::get()?.teardown()),
            )?;
            self.svm.populate(svm);
        }
        Ok(self.svm())
    }

    /// Whether faulting accesses are retried from now on. The caller holds the process's memory
    /// lock, and there is no queue. `EPERM`: not all GPUs can.
    pub(crate) fn choose_xnack(&self, wanted: bool) -> Result {
        let before = self.alive()?.xnack();
        let possible = |device: &ProcessDevice| {
            xnack_is_a_choice(device.node()) || !device.node().facts().noretry
        };
        if wanted && !before && !self.devices().iter().all(|device| possible(device)) {
            return Err(EPERM);
        }
        if let Some(svm) = self.svm() {
            svm.set_xnack(wanted)?;
        }
        // Not before: evictions, of whatever process, wait for who holds this.
        self.alive()?.set_xnack(wanted);
        Ok(())
    }

    /// Shows its shared virtual memory, if it has any.
    pub(crate) fn show_svm(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.svm().map_or(Ok(()), |svm| svm.list(f))
    }

    /// Tells of the VMs that there are.
    pub(super) fn tell_svm(&self, svm: &Svm) {
        for (place, device) in self.devices().iter().enumerate() {
            if let Ok(vm) = device.vm() {
                svm.set_vm(place, vm);
            }
        }
    }
}

/// A process, for its shared virtual memory, which does not keep it.
struct SvmHost {
    mm: MmId,
    context: u16,
}

impl SvmHost {
    fn process(&self) -> Option<ProcessRef> {
        registry::of_context(self.mm, self.context)
    }
}

impl svm::Host for SvmHost {
    fn evict(&self) {
        if let Some(process) = self.process() {
            if let Err(error) = process.evict(Trigger::SVM) {
                pr_debug!(
                    "process {}: cannot unmap its queues: {error:?}\n",
                    process.pid
                );
            }
        }
    }

    fn await_eviction(&self) {
        if let Some(process) = self.process() {
            process.await_eviction();
        }
    }

    fn doze(&self, mm: &MmWithUser) -> Result {
        mappings::zap_doorbells_in(mm)
    }

    fn restore_postponed(&self) {
        if let Some(process) = self.process() {
            process.notify_restore(true);
        }
    }

    fn restore(&self) {
        if let Some(process) = self.process() {
            if let Err(error) = process.restore() {
                pr_err!(
                    "process {}: cannot restore its queues: {error:?}\n",
                    process.pid
                );
            }
        }
    }
}
