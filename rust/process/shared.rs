// SPDX-License-Identifier: GPL-2.0-only

//! A process's shared virtual memory: there is none before it is needed.

use super::{
    registry::{
        self,
        Registry, //
    },
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
        Svm,
        Workers, //
    },
};
use kernel::{
    fmt,
    mm::MmWithUser,
    prelude::*,
    sync::Arc,
    task::Kuid, //
};

/// Who works on the shared virtual memory of a user's process.
fn workers(registry: &'static Registry, user: Kuid) -> Result<Workers> {
    Ok(Workers {
        pages: registry.pages(),
        blocks: registry.blocks(),
        member: registry.places().join(user)?,
    })
}

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
                workers(registry::get()?, self.ending.user())?,
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

#[kernel::macros::kunit_tests(amdkfd_process_shared)]
mod tests {
    use super::*;
    use crate::linux::users::user_of;
    use core::ptr::null_mut;
    use kernel::{
        sync::atomic::{
            ordering::{
                Acquire,
                Release, //
            },
            Atomic, //
        },
        time::{
            delay::fsleep,
            Delta, //
        },
    };

    // SAFETY: Null is no module, as for code that is built in.
    static NOBODY: ThisModule = unsafe { ThisModule::from_ptr(null_mut()) };

    /// Whether it is so within 2 s.
    fn comes(flag: &Atomic<bool>) -> bool {
        (0..200).any(|_| {
            fsleep(Delta::from_millis(10));
            flag.load(Acquire)
        })
    }

    #[test]
    fn blocks_do_not_wait_for_the_ends_of_processes() {
        let registry = KBox::pin_init(Registry::new(&NOBODY), GFP_KERNEL).unwrap();
        // SAFETY: It stays where it is until it is a pinned box again.
        let registry = KBox::into_raw(unsafe { Pin::into_inner_unchecked(registry) });
        // SAFETY: It is freed below, when nobody uses it any more.
        let shared: &'static Registry = unsafe { &*registry };
        let flag = || Arc::new(Atomic::new(false), GFP_KERNEL).unwrap();
        let (end, over, emptied) = (flag(), flag(), flag());
        // As many end as have a place.
        shared.teardown().limit(1);
        let (begun, may_end) = (end.clone(), over.clone());
        let lasts = move || {
            begun.store(true, Release);
            let _ = (0..10).any(|_| comes(&may_end));
        };
        shared.teardown().try_spawn(GFP_KERNEL, lasts).unwrap();
        assert!(comes(&end));
        let blocks = workers(shared, user_of(1)).unwrap().blocks;
        let done = emptied.clone();
        let empties = move || done.store(true, Release);
        blocks.try_spawn(GFP_KERNEL, empties).unwrap();
        assert!(comes(&emptied));
        over.store(true, Release);
        // SAFETY: It is the box above, which was pinned; its queues end their work first.
        drop(unsafe { Pin::new_unchecked(KBox::from_raw(registry)) });
    }
}
