// SPDX-License-Identifier: GPL-2.0-only

//! What becomes of processes when a GPU sleeps, is reset or goes away. Called for a device by
//! [`Served`](crate::served::Served); the state here is one for the module.
//!
//! - A GPU that sleeps takes all processes off all GPUs: their buffers are about to be moved out of
//!   its memory. The last GPU that wakes up lets them go on.
//! - A GPU that is reset takes those off for good that have a VM on it, for their memory there is
//!   lost. All processes that know the GPU hear of it.
//! - Before a GPU goes away, the processes that know it must end. They are taken off all GPUs
//!   before, and the others go on while they do.
//!
//! Nothing here takes `Process.memory`: whoever holds that may be waiting for the GPU, that is, for
//! us.

use super::{
    eviction::Evictor,
    registry,
    Process, //
};
use crate::{
    kgd::{
        gpu_err,
        DeviceHandle, //
    },
    linux::task::{
        address_space_of,
        is_frozen,
        signal,
        signal_users,
        Signal, //
    },
    queue::work_elsewhere,
    smi::Trigger,
    svm,
    uapi::{
        HwException,
        MemoryException,
        KFD_HW_EXCEPTION_ECC,
        KFD_HW_EXCEPTION_GPU_HANG,
        KFD_MEM_ERR_SRAM_ECC, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
};

/// GPUs that sleep. Raised under the lock of the registry's table.
static SUSPENDED: Atomic<i32> = Atomic::new(0);

/// Those of them whose memory may be lost. Changed under `Registry.power`.
static ASLEEP: Atomic<i32> = Atomic::new(0);

/// Why a GPU is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It did not answer, or somebody asked for it.
    Hang,
    /// Its memory had an error that could not be corrected.
    Ecc,
}

/// Whether processes must stay off the GPUs: there can be no new ones.
pub(crate) fn is_suspended() -> bool {
    SUSPENDED.load(Relaxed) > 0
}

/// A GPU goes to sleep. When this returns no process runs on any GPU, and none waits for its
/// buffers to stay where they are. `loses`: what its memory has may be lost; no page of shared
/// virtual memory begins to go into the memory of a GPU then, and the caller waits for those on
/// their way, with nothing locked ([`svm::sleep::settle`]).
pub(crate) fn suspend(loses: bool) {
    let Ok(registry) = registry::get() else {
        return;
    };
    let _turn = registry.power.lock();
    let mut others = 0;
    registry.between(|| others = SUSPENDED.fetch_add(1, Relaxed));
    if others == 0 {
        registry.each(|process| {
            process.sleeps.store(true, Relaxed);
            process.leave_gpus(|_| loses);
        });
    }
    // Afterwards: who has begun may be waiting for buffers that are to move.
    if loses {
        keep_pages_away();
    }
}

/// A GPU that sleeps already is about to lose what its memory has. The caller waits as after
/// [`suspend`].
pub(crate) fn begin_loss() {
    if let Ok(registry) = registry::get() {
        let _turn = registry.power.lock();
        keep_pages_away();
    }
}

/// The caller holds `Registry.power`.
fn keep_pages_away() {
    if ASLEEP.fetch_add(1, Relaxed) == 0 {
        // The first suspend may have been a copy engine's reset, in which those keep their fences
        // whose queues have not left.
        if let Ok(registry) = registry::get() {
            registry.each(|process| {
                if process.sleeps.load(Relaxed) {
                    process.let_buffers_move();
                }
            });
        }
        svm::sleep::begin();
    }
}

/// Undoes one [`suspend`]; `loses`: and what it, or [`begin_loss`], did to pages. The last one has
/// the processes restored, as soon as tasks run again and there is room. Those that were made in
/// the meantime are left alone: tasks need not be frozen, and a process may be evicted for another
/// reason, which is not over.
pub(crate) fn resume(loses: bool) {
    let Ok(registry) = registry::get() else {
        return;
    };
    let _turn = registry.power.lock();
    if loses && ASLEEP.fetch_sub(1, Relaxed) == 1 {
        svm::sleep::end();
    }
    if SUSPENDED.fetch_sub(1, Relaxed) == 1 {
        registry.each(|process| {
            if process.sleeps.xchg(false, Relaxed) {
                Evictor::restore_soon(process);
            }
        });
    }
}

/// A GPU goes away, and no process gets it any more. When this returns the processes that know it
/// are off all GPUs, for good, and no page of shared virtual memory is on its way into the memory
/// of a GPU: what wants to go into this one's from here on is `ENODEV`. The others go on.
pub(crate) fn leave(gpu: DeviceHandle) {
    let Ok(registry) = registry::get() else {
        return;
    };
    // Who has got it just now and is on its way into the table is there now, or was refused.
    registry.settle_creation();
    let turn = registry.power.lock();
    registry.each(|process| {
        if process.devices_on(gpu).next().is_some() {
            process.is_leaving.store(true, Relaxed);
            process.leave_gpus(|process| !process.works_elsewhere(gpu));
        }
    });
    svm::sleep::begin();
    drop(turn);
    // Another device that wakes up may end it meanwhile. Who begins then finds that this one is
    // gone.
    svm::sleep::settle();
    let _turn = registry.power.lock();
    if ASLEEP.load(Relaxed) == 0 {
        svm::sleep::end();
    }
}

/// The device is being reset, and its schedulers are stopped: what processes have on it is lost.
pub(crate) fn lose(gpu: DeviceHandle, cause: Cause) {
    let Ok(registry) = registry::get() else {
        return;
    };
    registry.each(|process| process.lose(gpu, cause));
}

/// Asks the processes that know the device to end: everybody who waits for a signal wakes up, and
/// the process gets a SIGBUS, or what cannot be refused. Returns how many they are.
pub(crate) fn end(gpu: DeviceHandle, how: Signal) -> usize {
    let Ok(registry) = registry::get() else {
        return 0;
    };
    let mut asked = 0;
    registry.each(|process| {
        if let Some(device) = process.devices_on(gpu).next() {
            let (pid, name) = (process.lead().pid(), device.node().pci_name());
            pr_notice!("{name}: is removed: sending {how:?} to process {pid}\n");
            // First: who wakes up finds the signal.
            process.signal(how);
            process.events().signal_all(registry::interrupt_queue());
            asked += 1;
        }
    });
    asked
}

/// How many of the processes that know the device are frozen: they do not end before they are
/// thawed.
pub(crate) fn count_frozen(gpu: DeviceHandle) -> usize {
    let mut frozen = 0;
    if let Ok(registry) = registry::get() {
        registry.each(|process| {
            let knows = process.devices_on(gpu).next().is_some();
            frozen += usize::from(knows && is_frozen(process.lead()));
        });
    }
    frozen
}

impl Process {
    /// The process's devices on one GPU, of which each partition is one.
    fn devices_on(&self, gpu: DeviceHandle) -> impl Iterator<Item = &super::ProcessDevice> {
        let all = self.devices().iter().map(|device| &**device);
        all.filter(move |device| device.node().kgd().handle() == gpu)
    }

    /// Sends a signal to who has it. SIGBUS is for the thread group that opened /dev/kfd, or, where
    /// its leader runs another program by now or has ended, for those who share the process's
    /// address space. The process lasts as long as any of these, so SIGKILL is for them all.
    fn signal(&self, how: Signal) {
        let space = self.address_space();
        let its = address_space_of(self.lead());
        let is_its = its.is_some_and(|its| its.as_raw() == space.as_raw());
        match how {
            Signal::Bus if is_its => signal(self.lead(), how),
            Signal::Bus | Signal::Kill => signal_users(space, how),
        }
    }

    /// Takes its queues off all GPUs, and lets its buffers move. `for_good`: even if a GPU does not
    /// obey, for its power goes, or itself does.
    fn leave_gpus(&self, for_good: impl Fn(&Self) -> bool) {
        let evicted = self.evict(Trigger::SUSPEND);
        if let Err(error) = evicted {
            let pid = self.lead().pid();
            pr_err!("process {pid}: cannot take its queues off all GPUs: {error:?}\n");
        }
        if evicted.is_ok() || for_good(self) {
            self.let_buffers_move();
        }
    }

    /// Whether its buffers must not be brought back now: into the memory of a GPU that sleeps, or
    /// that is gone.
    pub(super) fn must_stay_away(&self) -> bool {
        is_suspended() || self.is_leaving.load(Relaxed)
    }

    /// Amdgpu may move its buffers: its queues are off the GPUs. Returns whether it might before.
    pub(super) fn let_buffers_move(&self) -> bool {
        self.context().is_none_or(|context| {
            self.begin_moves();
            context.signal_eviction_fence()
        })
    }

    /// Whether queues of it that were to leave may be at work on another GPU than this one, which
    /// is being reset or goes away, and than those that it has lost.
    fn works_elsewhere(&self, gpu: DeviceHandle) -> bool {
        let left = self.left_devices();
        work_elsewhere(left.map(|device| (device.queues(), device)), gpu)
    }

    /// Whether it has lost a GPU, and its queues are off all others: its buffers may move whatever
    /// becomes of that one, which does not obey before its next reset if this one has failed. May
    /// wait for a preemption.
    pub(super) fn is_off_what_is_left(&self) -> bool {
        let mut left = self.left_devices();
        self.has_lost() && !left.any(|device| device.queues().are_at_work(device))
    }

    /// Whether it has lost a GPU: it never runs again, and what it has on that one does not come to
    /// an end before that is reset with success.
    pub(super) fn has_lost(&self) -> bool {
        self.devices().iter().any(|device| device.is_lost())
    }

    /// The GPUs that it has not lost.
    fn left_devices(&self) -> impl Iterator<Item = &super::ProcessDevice> {
        let all = self.devices().iter().map(|device| &**device);
        all.filter(|device| !device.is_lost())
    }

    /// Takes its queues off all GPUs for good: its memory on one is lost. They stay off if it is
    /// called again.
    pub(super) fn lose_queues(&self) {
        for device in self.devices() {
            self.notify_eviction(device, Trigger::SUSPEND);
            if let Err(error) = device.queues().lose(&**device) {
                let (pid, name) = (self.lead().pid(), device.node().pci_name());
                gpu_err!(name, "process {pid}: cannot unmap its queues: {error:?}\n");
            }
        }
    }

    /// The GPU is being reset, and its schedulers are stopped, or the process's queues are off and
    /// what it has there did not come back ([`super::moves`]). Where another one does not obey, the
    /// process's buffers do not move before that has: the [`Evictor`] sees to it when amdgpu asks
    /// for them.
    pub(super) fn lose(&self, gpu: DeviceHandle, cause: Cause) {
        if self.devices_on(gpu).any(|device| device.vm().is_ok()) {
            self.lose_queues();
            // Afterwards: who sees it may undo an eviction, and no queue runs again.
            self.devices_on(gpu).for_each(|device| device.set_lost());
            if !self.works_elsewhere(gpu) {
                self.let_buffers_move();
            }
        }
        for device in self.devices_on(gpu) {
            self.notify_reset(device.user_id(), cause);
        }
    }

    /// What the ABI tells of a reset of the whole GPU.
    pub(crate) fn notify_reset(&self, gpu_id: u32, cause: Cause) {
        let reset_cause = match cause {
            Cause::Hang => KFD_HW_EXCEPTION_GPU_HANG,
            Cause::Ecc => KFD_HW_EXCEPTION_ECC,
        };
        let queue = registry::interrupt_queue();
        let reset = HwException {
            reset_cause,
            memory_lost: 1,
            gpu_id,
            ..HwException::default()
        };
        self.events.hw_exception(reset, queue);
        if cause == Cause::Ecc {
            let error = MemoryException {
                imprecise: 1,
                gpu_id,
                error_type: KFD_MEM_ERR_SRAM_ECC,
                ..MemoryException::default()
            };
            self.events.memory_exception(error, queue);
        }
    }
}
