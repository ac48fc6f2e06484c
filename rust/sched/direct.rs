// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler that does without the firmware's (NO_HWS, `sched_policy=2`): each process has a
//! VMID and each queue a hardware queue descriptor (HQD) from its first to its last moment.
//!
//! One per node. Nothing takes turns: a queue that finds no free place is refused. The driver
//! itself loads queues into the registers of their slots and takes them off again.
//!
//! # Locking
//!
//! `inner` is the `Scheduler.inner` of the lock order. It is held while a queue leaves the
//! hardware, which takes at most `GpuFacts::unmap_latency_ms`. Nothing under it allocates.

mod hardware;
mod leaving;
mod owing;

pub(super) use hardware::{
    Binding,
    HqdSlot, //
};

use super::{
    partition::{
        slot_at,
        Config,
        Vmids, //
    },
    preemption::{
        check_available,
        Preemption, //
    },
    patience::Patience,
    pause::{
        Pause,
        Pauses, //
    },
    resets::{
        ResetProcesses,
        WantedReset, //
    },
    slots::{
        SlotGuard,
        Slots, //
    },
    Key,
    Meanwhile,
    NewSchedProcess,
    NewSchedQueue,
    SchedProcess, //
    SchedQueue,
    Scheduler,
};
use crate::{
    gfx::{
        Engine,
        Formats,
        HwProcess, //
    },
    ids::{
        Pasid,
        Vmid, //
    },
    kgd::{
        gpu_err,
        gpu_info,
        HqdPosition,
        Kgd,
        PciName,
        Preempt,
        ResetGuard, //
    },
    linux::{
        errno,
        ratelimit::may_complain, //
    },
};
use hardware::{
    DirectHardware,
    Places,
    VmidPlace,
    VMIDS, //
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
};
use leaving::stays;

/// The scheduler.
#[pin_data(PinnedDrop)]
pub(crate) struct Direct {
    hardware: Arc<DirectHardware>,
    slots: Arc<Places>,
    resets: ResetProcesses,
    wanted: WantedReset,
    patience: Patience,
    /// As of the other scheduler: amdgpu has kept an order from the hardware.
    kept: Atomic<bool>,
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    /// A queue that was to leave for good did not.
    behind: bool,
    /// While it is stopped: the hardware goes, and with it what has not left it.
    left: bool,
    /// Nothing may be on the hardware until it is unpaused.
    paused: Pauses,
    /// The pipe that the next compute queue gets a slot of, if it has one.
    next_pipe: usize,
    processes: RBTree<Key, SchedProcess>,
    /// VMIDs of processes that are gone, whose queues may be at work.
    withheld: [Option<VmidPlace>; VMIDS],
}

/// Whether the hardware can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Runs,
    /// A queue did not stop, and amdgpu was asked to reset the GPU.
    Hung,
    /// The device sleeps, is being reset, or goes away.
    Stopped,
}

impl Direct {
    /// Starts the scheduler.
    pub(crate) fn start(
        kgd: Arc<dyn Kgd>,
        formats: &'static Formats,
        config: Config,
        vmids: Arc<Vmids>,
    ) -> Result<Arc<Self>> {
        let mask = kgd.facts().compute_queue_bitmap;
        let slots = Arc::new(Places::with(|bit| mask >> bit & 1 != 0), GFP_KERNEL)?;
        let hardware = DirectHardware::new(kgd, formats, config, vmids)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                hardware,
                slots,
                resets: ResetProcesses::new(),
                wanted: WantedReset::new(),
                patience: Patience::new(),
                kept: Atomic::new(false),
                inner <- new_mutex!(Inner {
                    phase: Phase::Stopped,
                    behind: false,
                    left: false,
                    paused: Pauses::default(),
                    next_pipe: 0,
                    processes: RBTree::new(),
                    withheld: Default::default(),
                }, "Scheduler.inner"),
            }),
            GFP_KERNEL,
        )?;
        gpu_info!(
            this.pci_name(),
            "the driver schedules queues itself (amdgpu.sched_policy=2)\n"
        );
        Scheduler::start(&*this)?;
        Ok(this)
    }

    fn pci_name(&self) -> PciName {
        self.hardware.kgd.facts().pci_name()
    }

    /// A slot for a compute queue: pipe by pipe. `EBUSY`: there is none.
    fn take_slot(&self, next_pipe: &mut usize) -> Result<SlotGuard<Arc<Places>, 1>> {
        let facts = self.hardware.kgd.facts();
        let each = facts.num_queue_per_pipe as usize;
        let pipes = (facts.num_pipe_per_mec as usize).max(1);
        for step in 0..pipes {
            let pipe = (*next_pipe + step) % pipes;
            if let Some(place) = Slots::take_within(self.slots.clone(), pipe * each, each) {
                *next_pipe = (pipe + 1) % pipes;
                return Ok(place);
            }
        }
        Err(EBUSY)
    }

    /// A VMID for a process. `ENOSPC`: there is none.
    fn take_vmid(&self, process: &HwProcess, phase: Phase) -> Result<Binding> {
        let binding = Binding::take(self.hardware.clone()).inspect_err(|_| {
            if may_complain() {
                gpu_err!(
                    self.pci_name(),
                    "no VMID is free: no more processes can have queues\n"
                );
            }
        })?;
        if phase == Phase::Runs {
            let _guard = ResetGuard::try_new(&*self.hardware.kgd)?;
            binding.program(process)?;
        }
        Ok(binding)
    }

    /// Gives a new queue of a process all that it needs, and runs it if it is to run.
    fn admit(&self, inner: &mut Inner, process: Key, queue: Key) -> Result {
        let Inner {
            phase,
            paused,
            next_pipe,
            processes,
            ..
        } = inner;
        let at = processes.get_mut(&process).ok_or(ENOENT)?;
        if at.binding.is_none() {
            at.binding = Some(self.take_vmid(&at.described, *phase)?);
        }
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if entry.described.engine == Engine::Compute {
            entry.hqd.place = Some(self.take_slot(next_pipe)?);
        }
        self.run(*phase, paused.any(), at)
    }

    fn position(&self, entry: &SchedQueue) -> HqdPosition {
        // CAST: less than 64. A copy queue has no slot of a pipe.
        let index = entry.hqd.place.as_ref().map_or(0, |place| place.index()) as u32;
        slot_at(self.hardware.kgd.facts(), index)
    }

    /// Loads what of a process is to run and does not, but for what a kernel thread has to load
    /// (`Again`). The caller keeps resets away.
    fn put_on(&self, phase: Phase, paused: bool, process: &mut SchedProcess) -> Result {
        match phase {
            Phase::Hung => {
                self.wanted.ask(&*self.hardware.kgd);
                return Err(EIO);
            }
            Phase::Stopped => return Ok(()),
            Phase::Runs if paused || process.evicted => return Ok(()),
            Phase::Runs => {}
        }
        let Some(vmid) = process.binding.as_ref().map(Binding::vmid) else {
            return Ok(());
        };
        let mut result = Ok(());
        for entry in process.queues.values_mut() {
            if entry.runs() && !entry.hqd.loaded && !entry.hqd.reset {
                let position = self.position(entry);
                let vm = process.vm.as_deref();
                let loaded = self.hardware.load(vmid, vm, entry, position);
                entry.hqd.refused = loaded.is_err() && loaded != Err(EAGAIN);
                if loaded == Err(EAGAIN) {
                    self.kept.store(true, Relaxed);
                    continue;
                }
                result = result.and(loaded);
            }
        }
        result
    }

    /// The same; a reset is an error.
    fn run(&self, phase: Phase, paused: bool, process: &mut SchedProcess) -> Result {
        match phase {
            Phase::Runs => {
                let _guard = self.keep_resets_away()?;
                self.move_directory(process);
                self.put_on(phase, paused, process)
            }
            Phase::Hung | Phase::Stopped => self.put_on(phase, paused, process),
        }
    }

    /// Takes a queue off the hardware. If it may still be at work, the node is given up on, or a
    /// reset comes.
    fn take_off(
        &self,
        phase: &mut Phase,
        vmid: Option<Vmid>,
        entry: &mut SchedQueue,
        preempt: Preempt,
    ) -> Preemption {
        entry.hqd.refused = false;
        if !entry.hqd.loaded {
            return Preemption::Complete;
        }
        match phase {
            Phase::Hung => return Preemption::Unavailable,
            Phase::Stopped => return Preemption::Complete,
            Phase::Runs => {}
        }
        let Ok(_guard) = self.keep_resets_away() else {
            return Preemption::Unavailable;
        };
        let position = self.position(entry);
        let asked = check_available(&*self.hardware.kgd);
        match Preemption::of(asked.and_then(|()| self.hardware.unload(entry, position, preempt))) {
            // It stays loaded, and is asked again.
            Preemption::Unavailable => return Preemption::Unavailable,
            Preemption::Failed => entry.hqd.loaded = false,
            off => {
                entry.hqd.loaded = false;
                return off;
            }
        }
        self.reset(phase, vmid, entry, position)
    }

    /// Resets a queue that does not stop, or has amdgpu reset the GPU.
    fn reset(
        &self,
        phase: &mut Phase,
        vmid: Option<Vmid>,
        entry: &mut SchedQueue,
        position: HqdPosition,
    ) -> Preemption {
        entry.hqd.reset = true;
        let doorbell = entry.described.doorbell.raw();
        let name = self.pci_name();
        gpu_err!(name, "the queue at doorbell {doorbell:#x} does not stop\n");
        let left = match (entry.described.engine, vmid) {
            (Engine::Compute, Some(vmid)) => self.hardware.reset(vmid, position),
            _ => false,
        };
        if !left {
            gpu_err!(name, "the queue cannot be reset; requesting a GPU reset\n");
            self.hardware.kgd.request_reset();
            *phase = Phase::Hung;
            return Preemption::Failed;
        }
        gpu_err!(name, "the queue was reset\n");
        if let Some(pasid) = vmid.and_then(|vmid| self.pasid_of(vmid)) {
            self.resets.add(&*self.hardware.kgd, pasid);
        }
        Preemption::AfterReset
    }

    /// Takes all queues of a process off the hardware; the first error counts. One that had to be
    /// reset for it is off. `EIO`: one that did not stop before may be there still.
    fn clear(&self, phase: &mut Phase, process: &mut SchedProcess, preempt: Preempt) -> Result {
        let vmid = process.binding.as_ref().map(Binding::vmid);
        let mut result = Ok(());
        for entry in process.queues.values_mut() {
            let off = self.take_off(phase, vmid, entry, preempt);
            // It does not count as loaded any more.
            process.stranded |= off == Preemption::Failed;
            result = result.and(off.result());
        }
        match *phase {
            Phase::Runs | Phase::Hung if process.stranded => result.and(Err(EIO)),
            _ => result,
        }
    }

    /// How a queue leaves that will come back.
    fn preempt(&self) -> Preempt {
        match self.hardware.kgd.facts().cwsr_enable {
            true => Preempt::Save,
            false => Preempt::Drain,
        }
    }

    /// Calls `act` for each process; the first error counts.
    fn each(
        inner: &mut Inner,
        act: impl Fn(&mut Phase, bool, &mut SchedProcess) -> Result,
    ) -> Result {
        let Inner {
            phase,
            paused,
            processes,
            ..
        } = inner;
        let mut result = Ok(());
        for process in processes.values_mut() {
            result = result.and(act(phase, paused.any(), process));
        }
        result
    }

    /// Changes a queue that is off the hardware.
    fn rewrite_in(
        &self,
        inner: &mut Inner,
        process: Key,
        queue: Key,
        change: &mut dyn FnMut() -> bool,
    ) -> Result {
        let paused = inner.paused.any();
        let Inner {
            phase,
            left,
            processes,
            ..
        } = inner;
        let at = processes.get_mut(&process).ok_or(ENOENT)?;
        let vmid = at.binding.as_ref().map(Binding::vmid);
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if *phase == Phase::Stopped && at.stranded && !*left && !self.hardware.kgd.in_reset() {
            return Err(errno::timer_expired());
        }
        let off = self.take_off(phase, vmid, entry, self.preempt());
        at.stranded |= off == Preemption::Failed;
        let off = off.undisturbed();
        if entry.hqd.reset {
            return Err(off.err().unwrap_or(EACCES));
        }
        off?;
        let runs = change();
        entry.keep(SchedQueue::STOPPED, !runs);
        self.run(*phase, paused, at)
    }
}

impl Scheduler for Direct {
    fn add(&self, process: NewSchedProcess, meanwhile: Option<&Meanwhile>) -> Key {
        // It gets a VMID with its first queue.
        process.insert(&mut self.inner.lock().processes, meanwhile, 0)
    }

    fn remove(&self, process: Key) -> Result {
        let mut inner = self.inner.lock();
        let Inner {
            phase,
            behind,
            processes,
            ..
        } = &mut *inner;
        let at = processes.get_mut(&process).ok_or(ENOENT)?;
        let result = self.clear(phase, at, Preempt::Reset);
        if *phase == Phase::Runs && at.queues.values().any(|entry| entry.hqd.loaded) {
            at.leaving = true;
            for entry in at.queues.values_mut() {
                entry.keep(SchedQueue::LEAVING, true);
            }
            self.look(&inner);
            return result;
        }
        *behind |= result.is_err();
        at.stranded |= result.is_err();
        let gone = inner.take_process(process);
        self.look(&inner);
        drop(inner);
        drop(gone);
        result
    }

    fn map(&self, process: Key, queue: NewSchedQueue) -> Result {
        let NewSchedQueue { key, node } = queue;
        let mut inner = self.inner.lock();
        let at = inner.processes.get_mut(&process).ok_or(ENOENT)?;
        at.queues.insert(node);
        let Err(error) = self.admit(&mut inner, process, key) else {
            return Ok(());
        };
        // Some of its XCCs may have it. What does not stop says so.
        let gone = self.take_out(&mut inner, process, key);
        self.look(&inner);
        drop(inner);
        drop(gone);
        Err(error)
    }

    fn unmap(&self, process: Key, queue: Key) -> Result {
        let mut inner = self.inner.lock();
        let (off, gone) = self.take_out(&mut inner, process, queue)?;
        self.look(&inner);
        drop(inner);
        drop(gone);
        off.undisturbed()
    }

    fn rewrite(&self, process: Key, queue: Key, change: &mut dyn FnMut() -> bool) -> Result {
        let mut inner = self.inner.lock();
        let result = self.rewrite_in(&mut inner, process, queue, change);
        self.look(&inner);
        result
    }

    fn may_run(&self, process: Key, queue: Key) -> bool {
        let inner = self.inner.lock();
        let process = inner
            .processes
            .get(&process)
            .filter(|process| !process.evicted);
        process
            .and_then(|process| process.queues.get(&queue))
            .is_some_and(|entry| entry.runs() && !entry.hqd.reset)
    }

    fn check_changeable(&self, process: Key, queue: Key) -> Result {
        let inner = self.inner.lock();
        let process = inner.processes.get(&process).ok_or(ENOENT)?;
        let entry = process.queues.get(&queue).ok_or(ENOENT)?;
        match inner.phase {
            _ if entry.hqd.reset => Err(EACCES),
            Phase::Hung => Err(EIO),
            Phase::Runs | Phase::Stopped => Ok(()),
        }
    }

    fn evict(&self, process: Key) -> Result {
        let mut inner = self.inner.lock();
        let Inner {
            phase,
            left,
            processes,
            ..
        } = &mut *inner;
        let at = processes.get_mut(&process).ok_or(ENOENT)?;
        at.evicted = true;
        let result = self.clear(phase, at, self.preempt());
        // Nobody gives it an order; a reset settles it.
        let stays = *phase == Phase::Stopped && !*left && at.stranded;
        self.look(&inner);
        match stays && !self.hardware.kgd.in_reset() {
            true => result.and(Err(EIO)),
            false => result,
        }
    }

    fn restore(&self, process: Key, page_table_base: u64) -> Result {
        let mut inner = self.inner.lock();
        let paused = inner.paused.any();
        let Inner {
            phase, processes, ..
        } = &mut *inner;
        let at = processes.get_mut(&process).ok_or(ENOENT)?;
        at.evicted = false;
        (at.described.page_table_base, at.moved) = (page_table_base, true);
        let restored = self.run(*phase, paused, at);
        self.look(&inner);
        restored
    }

    fn take_reset(&self) -> Option<Pasid> {
        self.resets.take()
    }

    fn pasid_of(&self, vmid: Vmid) -> Option<Pasid> {
        self.hardware.pasid_of(vmid)
    }

    fn pause(&self, why: Pause, pause: bool) -> Result {
        let mut inner = self.inner.lock();
        inner.paused.note(why, pause);
        if inner.phase == Phase::Hung {
            return Ok(());
        }
        let result = self.settle(&mut inner);
        self.look(&inner);
        result
    }

    fn is_stopped(&self) -> bool {
        self.inner.lock().phase == Phase::Stopped
    }

    fn has_let_go(&self) -> bool {
        let inner = self.inner.lock();
        match inner.phase {
            Phase::Stopped if inner.left => true,
            // A queue that did not stop when its process was evicted is taken for one that is off.
            _ => {
                let is_stranded = inner.processes.values().any(|process| process.stranded);
                !inner.behind && !is_stranded && inner.leaving().next().is_none()
            }
        }
    }

    fn may_work_for(&self, process: Key) -> bool {
        let inner = self.inner.lock();
        !inner.left && inner.processes.get(&process).is_some_and(stays)
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }

    fn ask_again(&self) {
        self.order_again();
    }

    fn owes(&self) -> bool {
        self.owes_still()
    }

    fn stop(&self) -> Result {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Stopped {
            return Ok(());
        }
        // During a reset there is nothing on the hardware to take off, nor without hardware.
        let in_reset = ResetGuard::try_new(&*self.hardware.kgd).is_err();
        let result = Self::each(&mut inner, |phase, _, process| {
            let off = match in_reset || *phase == Phase::Hung {
                true => Ok(()),
                false => self.clear(phase, process, self.preempt()),
            };
            for entry in process.queues.values_mut() {
                process.stranded |= core::mem::take(&mut entry.hqd.loaded);
            }
            off
        });
        let stranded = inner.processes.values().any(|process| process.stranded);
        inner.behind |= stranded;
        inner.phase = Phase::Stopped;
        self.look(&inner);
        self.wanted.forget();
        result
    }

    fn leave(&self) {
        let mut inner = self.inner.lock();
        inner.left = inner.phase == Phase::Stopped;
    }

    fn trust(&self) {
        let mut inner = self.inner.lock();
        inner.trust();
        self.look(&inner);
    }

    fn distrust(&self) {
        // Of what is loaded it is noted whose it is.
        let mut inner = self.inner.lock();
        inner.behind = true;
        self.look(&inner);
    }

    fn is_distrusted(&self) -> bool {
        let inner = self.inner.lock();
        inner.phase == Phase::Stopped && inner.behind
    }

    fn refuse(&self) {
        let mut inner = self.inner.lock();
        (inner.phase, inner.left) = (Phase::Hung, false);
    }

    fn want_reset(&self) {
        if self.inner.lock().phase == Phase::Hung {
            self.wanted.want(&*self.hardware.kgd);
        }
    }

    fn start(&self) -> Result {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Stopped {
            return Ok(());
        }
        inner.trust();
        self.look(&inner);
        (inner.phase, inner.left) = (Phase::Runs, false);
        let started = self.hardware.init_interrupts().and_then(|()| {
            Self::each(&mut inner, |phase, paused, process| {
                if let Some(binding) = &process.binding {
                    binding.program(&process.described)?;
                    process.moved = false;
                }
                self.put_on(*phase, paused, process)
            })
        });
        if started.is_err() {
            inner.phase = Phase::Hung;
        }
        started
    }
}

#[pinned_drop]
impl PinnedDrop for Direct {
    fn drop(self: Pin<&mut Self>) {
        // What does not stop has said so.
        let _ = self.stop();
    }
}

mod tests;
