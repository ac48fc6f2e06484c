// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler that hands all queues to the firmware: HWS, the hardware scheduler.
//!
//! One per node. The firmware reads a run list of processes and queues and time-slices them over
//! VMIDs and hardware queues on its own. It takes orders from a queue of ours
//! ([`hiq`](super::hiq)). To change the list everything is taken off first: UNMAP_QUEUES, a fence,
//! and RUN_LIST with the new list. What is to run, and the list made of it, stands in the
//! [`runlist_state`](super::runlist_state).
//!
//! While the scheduler is stopped (the device sleeps, is being reset, or goes away) only its state
//! changes: queues may come, go and change, and what is to run then does when it is started again.
//!
//! # Locking
//!
//! `inner` is the `Scheduler.inner` of the lock order. It is held while the hardware preempts its
//! queues, so that a list is never rewritten while it may be read. Nothing under it allocates, and
//! nothing sleeps but the wait for the fence, which is bounded.

use super::{
    copy_slots::CopySlots,
    doorbells::OwnDoorbells,
    hiq::{
        Cursor,
        Hiq, //
    },
    image::{
        Capacity,
        Counts,
        ListTarget, //
        Oversubscription,
    },
    memory::NodeMemory,
    partition::Config,
    patience::Patience,
    pause::{
        Pause,
        Pauses, //
    },
    preemption::{
        hold_still,
        Preemption, //
    },
    resets::{
        reset_copies,
        reset_stuck,
        CopyEngines,
        ResetProcesses, //
        StuckDoorbells,
        WantedReset, //
    },
    runlist_state::RunlistState,
    Key,
    Meanwhile,
    NewSchedProcess,
    NewSchedQueue,
    Scheduler, //
    Suspension,
};
use crate::{
    gfx::{
        Formats,
        Generation,
        Packet,
        RunList, //
        WaveControl,
    },
    ids::Pasid,
    kgd::{
        gpu_err,
        gpu_warn,
        Kgd,
        PciName,
        ResetGuard, //
    },
    linux::{
        errno,
        ratelimit::may_complain, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
};

/// The scheduler.
#[pin_data(PinnedDrop)]
pub(crate) struct Runlist {
    kgd: Arc<dyn Kgd>,
    formats: &'static Formats,
    memory: Arc<NodeMemory>,
    hiq: Hiq,
    capacity: Capacity,
    /// No more may be to run than the GPU holds at once.
    strict: bool,
    resets: ResetProcesses,
    wanted: WantedReset,
    patience: Patience,
    /// amdgpu has kept an order from the hardware since [`Scheduler::owes`] last said no. Written
    /// with `inner` locked, and read without: whoever has given an order asks.
    kept: Atomic<bool>,
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    /// The hardware did not obey when something was to change: those that were in the list then may
    /// be at work still ([`RunlistState::is_stranded`]).
    behind: bool,
    /// While it is stopped: the hardware goes, and with it what has not left it.
    left: bool,
    /// Nothing may be on the hardware until it is unpaused.
    paused: Pauses,
    hiq: Cursor,
    oversubscription: Oversubscription,
    /// Slots of the copy queues in the list that the hardware had last: what is to run may have
    /// changed since.
    mapped: CopySlots,
    state: RunlistState,
}

/// What is on the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Idle,
    /// The run list in memory.
    Listed,
    /// Unknown: it stopped to answer, and amdgpu was asked to reset the GPU. Or it could not
    /// be started.
    Hung,
    /// Nothing, not even the HIQ: the device sleeps, is being reset, or goes away.
    Stopped,
}

impl Runlist {
    /// Starts the scheduler: the HIQ is on the hardware when this returns.
    pub(crate) fn start(
        kgd: Arc<dyn Kgd>,
        generation: Generation,
        memory: Arc<NodeMemory>,
        config: Config,
        doorbells: OwnDoorbells,
    ) -> Result<Arc<Self>> {
        /// `KFD_SCHED_POLICY_HWS_NO_OVERSUBSCRIPTION`
        const NO_OVERSUBSCRIPTION: i32 = 1;
        let facts = kgd.facts();
        let strict = facts.sched_policy == NO_OVERSUBSCRIPTION;
        let vmids = config.vmid_mask.count_ones();
        let capacity = Capacity {
            // A negative limit is none.
            processes: u32::try_from(facts.hws_max_conc_proc).map_or(vmids, |max| max.min(vmids)),
            compute_queues: facts.set_resources_queue_mask.count_ones(),
        };
        let hiq = Hiq::new(kgd.clone(), generation, memory.clone(), config, doorbells);
        let room = memory.list_room();
        let state = RunlistState::new(generation.formats.runlist, facts.gws_size, room)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                kgd,
                formats: generation.formats,
                memory,
                hiq,
                capacity,
                strict,
                resets: ResetProcesses::new(),
                wanted: WantedReset::new(),
                patience: Patience::new(),
                kept: Atomic::new(false),
                inner <- new_mutex!(Inner {
                    phase: Phase::Stopped,
                    behind: false,
                    left: false,
                    paused: Pauses::default(),
                    hiq: Cursor::new(),
                    oversubscription: Oversubscription::default(),
                    mapped: CopySlots::default(),
                    state,
                }, "Scheduler.inner"),
            }),
            GFP_KERNEL,
        )?;
        // Last: what has begun to start is taken off again with the scheduler.
        Scheduler::start(&*this)?;
        Ok(this)
    }

    fn pci_name(&self) -> PciName {
        self.kgd.facts().pci_name()
    }

    /// Takes everything off the hardware. With an error nothing changed, or the node is given up
    /// on.
    fn take_off(&self, inner: &mut Inner) -> Result {
        self.take_off_within(inner, None)
    }

    /// The same; `grace`: how long waves have to end by themselves, if not as long as usual.
    fn take_off_within(&self, inner: &mut Inner, grace: Option<u32>) -> Result {
        match inner.phase {
            Phase::Idle | Phase::Stopped => return Ok(()),
            Phase::Hung => {
                self.wanted.ask(&*self.kgd);
                return Err(EIO);
            }
            Phase::Listed => {}
        }
        if let Some(grace) = grace {
            self.hiq.set_grace(&mut inner.hiq, Some(grace))?;
        }
        let preemption = self.preempt(inner);
        if grace.is_some() && preemption.result().is_ok() {
            if let Err(error) = self.hiq.set_grace(&mut inner.hiq, None) {
                gpu_err!(
                    self.pci_name(),
                    "waves keep a debugger's grace period: {error:?}\n"
                );
            }
        }
        inner.phase = match preemption {
            Preemption::Complete | Preemption::AfterReset => Phase::Idle,
            Preemption::Unavailable | Preemption::Failed => self.give_up(preemption),
        };
        self.memory.set_listed(0);
        preemption.result()
    }

    /// Has the firmware take everything off, and sees to it that every queue has let go: what does
    /// not stop is reset.
    fn preempt(&self, inner: &mut Inner) -> Preemption {
        let confirmed = Preemption::of(self.hiq.unmap_all(&mut inner.hiq));
        if confirmed == Preemption::Failed {
            hold_still(&*self.kgd);
        }
        let preemption = confirmed
            .and(|| self.check_compute(&mut inner.state))
            .and(|| self.check_copies(&inner.mapped, &mut inner.state));
        if preemption == Preemption::AfterReset {
            gpu_err!(self.pci_name(), "the queue was reset; the others go on\n");
        }
        preemption
    }

    /// Resets the compute queues that the firmware names as not having stopped.
    fn check_compute(&self, state: &mut RunlistState) -> Preemption {
        let mut named = None;
        let asked = self.hiq.take_stuck(|xcc, doorbell| {
            gpu_err!(
                self.pci_name(),
                "XCC {xcc}: the queue at doorbell {doorbell:#x} does not stop\n"
            );
            named
                .get_or_insert_with(StuckDoorbells::new)
                .add(xcc, doorbell);
        });
        let Some(named) = named else {
            return Preemption::of(asked);
        };
        hold_still(&*self.kgd);
        let (kgd, mask) = (&*self.kgd, self.hiq.xcc_mask());
        reset_stuck(kgd, self.formats, mask, &named, state, &self.resets)
    }

    /// Resets the copy queues that have not left their engines: the firmware says nothing of them.
    fn check_copies(&self, mapped: &CopySlots, state: &mut RunlistState) -> Preemption {
        let engines = CopyEngines {
            first: self.hiq.first_engine(),
            slots: self.memory.slots_per_engine(),
            mapped,
        };
        reset_copies(&*self.kgd, engines, state, &self.resets, || {
            hold_still(&*self.kgd)
        })
    }

    /// The hardware may still read what its queues name, so amdgpu is asked to reset the GPU. It
    /// stops the node for that, and starts it again. A reset that is about to begin makes that
    /// request useless: it drops the request.
    fn give_up(&self, preemption: Preemption) -> Phase {
        match preemption {
            Preemption::Unavailable => gpu_err!(
                self.pci_name(),
                "the GPU is about to be reset: its queues end with that\n"
            ),
            _ => gpu_err!(
                self.pci_name(),
                "the queues cannot be unmapped; requesting a GPU reset\n"
            ),
        }
        self.kgd.request_reset();
        Phase::Hung
    }

    /// Puts what is to run onto the idle hardware.
    fn put_on(&self, inner: &mut Inner) -> Result {
        match inner.phase {
            Phase::Stopped | Phase::Listed => return Ok(()),
            Phase::Hung => return Err(EIO),
            Phase::Idle if inner.paused.any() => return Ok(()),
            Phase::Idle => {}
        }
        if inner.state.counts().queues == 0 {
            return Ok(());
        }
        let mut over = self.capacity.exceeded_by(inner.state.counts());
        over.xnack = self.hiq.xnack_chain() && inner.state.mixes_xnack();
        let isolated = self.kgd.isolates(self.hiq.partition());
        inner.state.set_isolated(isolated)?;
        // Of those that are kept apart one is on the hardware at a time.
        let apart = isolated && inner.state.counts().processes > 1;
        inner.state.take_turns(over.any() || apart);
        let list = self.copy(&inner.state, over)?;
        self.report(over, inner.oversubscription);
        inner.oversubscription = over;
        let order = self.formats.runlist.run_list(&list);
        inner.mapped = *inner.state.copy_slots();
        self.hiq.submit(&mut inner.hiq, &order)?;
        self.memory.set_listed(list.dwords as usize);
        inner.phase = Phase::Listed;
        Ok(())
    }

    /// `EPERM`: the user wants no more to run than the GPU holds at once (`amdgpu.sched_policy=1`),
    /// and this is more.
    fn check_fits(&self, counts: &Counts) -> Result {
        let over = self.capacity.exceeded_by(counts);
        if self.strict && (over.processes || over.queues) {
            return Err(EPERM);
        }
        Ok(())
    }

    /// Copies the run list to where the idle hardware will read it.
    fn copy(&self, state: &RunlistState, over: Oversubscription) -> Result<RunList> {
        let (words, address, capacity) = self.memory.run_list()?;
        let target = ListTarget {
            words: &words,
            address,
            capacity,
        };
        let dwords = state.copy(&target)?;
        let concurrent = match state.isolated() {
            true => 1,
            false => state.counts().processes.min(self.capacity.processes),
        };
        Ok(target.finish(dwords, self.formats.runlist, over.any(), concurrent)?)
    }

    fn report(&self, now: Oversubscription, before: Oversubscription) {
        if now.any() && !before.any() && may_complain() {
            gpu_warn!(
                self.pci_name(),
                "more to run than the GPU holds at once:{}{}{}{}; it will be slower\n",
                if now.processes { " processes" } else { "" },
                if now.queues { " queues" } else { "" },
                if now.wave_sync {
                    " queues with wave sync"
                } else {
                    ""
                },
                if now.xnack { " XNACK modes" } else { "" },
            );
        }
    }
}

impl Scheduler for Runlist {
    fn add(&self, process: NewSchedProcess, meanwhile: Option<&Meanwhile>) -> Key {
        // A process without queues is on no list yet: the hardware learns of it with its first one.
        self.inner.lock().state.add(process, meanwhile)
    }

    fn remove(&self, process: Key) -> Result {
        let mut inner = self.inner.lock();
        let runs = inner.state.process_runs(process);
        let mut gone = None;
        let result = self.reschedule_leaving(process, runs, &mut inner, |state| {
            gone = state.remove(process);
            Ok(())
        });
        drop(inner);
        drop(gone);
        result
    }

    fn map(&self, process: Key, queue: NewSchedQueue) -> Result {
        let key = queue.key;
        let mut inner = self.inner.lock();
        let result = match inner.state.insert(process, queue) {
            Ok((_, true)) => self
                .check_fits(inner.state.counts())
                .and_then(|()| self.reschedule(&mut inner, |_| Ok(()))),
            Ok((_, false)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            let gone = inner.state.take(process, key);
            drop(inner);
            drop(gone);
            return Err(error);
        }
        Ok(())
    }

    fn unmap(&self, process: Key, queue: Key) -> Result {
        let mut inner = self.inner.lock();
        let runs = inner.state.queue_runs(process, queue);
        let mut gone = None;
        let result = self.reschedule_leaving(process, runs, &mut inner, |state| {
            gone = state.take(process, queue);
            Ok(())
        });
        drop(inner);
        drop(gone);
        result
    }

    fn rewrite(&self, process: Key, queue: Key, change: &mut dyn FnMut() -> bool) -> Result {
        let mut inner = self.inner.lock();
        let ran = inner.state.queue_runs(process, queue);
        if !ran && !inner.behind {
            inner.state.check_changeable(process)?;
            let runs = inner.state.set_runs(process, queue, change())?;
            return self.reschedule_if(runs, &mut inner, |_| Ok(()));
        }
        // While it is stopped nothing of it is on the hardware, but for what did not leave then.
        let stays = inner.behind && inner.state.is_stranded(process);
        let stays = stays && !inner.left && !self.kgd.in_reset();
        let is_off = inner.phase == Phase::Stopped && !stays;
        self.reschedule_within(&mut inner, None, |state, off| {
            if !off && !is_off {
                return Err(errno::timer_expired());
            }
            state.check_changeable(process)?;
            state.set_runs(process, queue, change()).map(drop)
        })
    }

    fn set_wave_sync(
        &self,
        process: Key,
        queue: Key,
        on: bool,
        change: &mut dyn FnMut(),
    ) -> Result {
        let mut inner = self.inner.lock();
        let runs = inner.state.queue_runs(process, queue);
        self.reschedule_if(runs, &mut inner, |state| {
            state.check_changeable(process)?;
            change();
            state.change(process, queue, |entry| entry.described.wave_sync = on)
        })
    }

    fn set_control(&self, process: Key, control: Option<WaveControl>) -> Result {
        let mut inner = self.inner.lock();
        let runs = inner.state.process_runs(process);
        self.reschedule_if(runs, &mut inner, |state| {
            state.set_control(process, control)
        })
    }

    fn suspend(
        &self,
        process: Key,
        queues: &mut dyn Iterator<Item = Key>,
        suspension: Suspension,
    ) -> Result<bool> {
        let mut inner = self.inner.lock();
        let (suspend, grace) = match suspension {
            Suspension::Begin { grace } => (true, grace),
            Suspension::End => (false, None),
        };
        // Then they had left when it was stopped, or did not run.
        let kept = inner.phase == Phase::Stopped && self.keeps(&inner, process);
        let mut saved = false;
        self.reschedule_within(&mut inner, grace, |state, off| {
            let mut result = Ok(());
            for queue in queues {
                result = result.and(state.set_suspended(process, queue, suspend));
            }
            saved = off || kept;
            result
        })?;
        Ok(saved)
    }

    fn keeps_saved(&self, process: Key) -> bool {
        self.keeps(&self.inner.lock(), process)
    }

    fn may_run(&self, process: Key, queue: Key) -> bool {
        self.inner.lock().state.queue_runs(process, queue)
    }

    fn check_changeable(&self, process: Key, _queue: Key) -> Result {
        let inner = self.inner.lock();
        match inner.phase {
            Phase::Hung => Err(EIO),
            Phase::Idle | Phase::Listed | Phase::Stopped => inner.state.check_changeable(process),
        }
    }

    fn evict(&self, process: Key) -> Result {
        let mut inner = self.inner.lock();
        let runs = inner.state.process_runs(process);
        self.reschedule_leaving(process, runs, &mut inner, |state| {
            state.set_evicted(process, true)
        })
    }

    fn restore(&self, process: Key, page_table_base: u64) -> Result {
        let mut inner = self.inner.lock();
        inner.state.set_page_table_base(process, page_table_base)?;
        inner.state.set_evicted(process, false)?;
        let runs = inner.state.process_runs(process);
        self.reschedule_if(runs, &mut inner, |_| Ok(()))
    }

    fn hang(&self) -> Result {
        let mut inner = self.inner.lock();
        if matches!(inner.phase, Phase::Hung | Phase::Stopped) {
            return Err(EIO);
        }
        {
            let _guard = ResetGuard::try_new(&*self.kgd)?;
            // A header that is none (PM4 type 1), and more of it.
            let nonsense = Packet::new([0x5555_5555; 7]);
            self.hiq.submit(&mut inner.hiq, &nonsense)?;
        }
        gpu_warn!(
            self.pci_name(),
            "hanging the scheduler, as debugfs asked for\n"
        );
        // What is asked of it now is not answered any more.
        inner.phase = Phase::Listed;
        match self.reschedule(&mut inner, |_| Ok(())) {
            Err(error) if error == errno::timer_expired() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(EAGAIN),
        }
    }

    fn take_reset(&self) -> Option<Pasid> {
        self.resets.take()
    }

    fn pause(&self, why: Pause, pause: bool) -> Result {
        let mut inner = self.inner.lock();
        inner.paused.note(why, pause);
        match inner.phase {
            Phase::Hung | Phase::Stopped => Ok(()),
            Phase::Idle | Phase::Listed => self.reschedule(&mut inner, |_| Ok(())),
        }
    }

    fn is_stopped(&self) -> bool {
        self.inner.lock().phase == Phase::Stopped
    }

    fn has_let_go(&self) -> bool {
        let inner = self.inner.lock();
        !inner.behind || inner.left
    }

    fn may_work_for(&self, process: Key) -> bool {
        let inner = self.inner.lock();
        inner.behind && !inner.left && inner.state.is_stranded(process)
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }

    fn ask_again(&self) {
        let mut inner = self.inner.lock();
        if inner.owes() {
            let _ = self.reschedule(&mut inner, |_| Ok(()));
        }
    }

    fn owes(&self) -> bool {
        if !self.kept.load(Relaxed) {
            return false;
        }
        let inner = self.inner.lock();
        let owes = inner.owes();
        self.kept.store(owes, Relaxed);
        owes
    }

    fn stop(&self) -> Result {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Stopped {
            return Ok(());
        }
        let before = inner.phase;
        // During a reset there is nothing on the hardware to take off, nor without hardware.
        let result = match ResetGuard::try_new(&*self.kgd) {
            Ok(_guard) => self.take_off(&mut inner).and(self.hiq.stop()),
            Err(_) => Ok(()),
        };
        if inner.phase != Phase::Idle {
            self.fall_behind(&mut inner, before);
        }
        inner.phase = Phase::Stopped;
        self.wanted.forget();
        self.memory.set_listed(0);
        result
    }

    fn leave(&self) {
        let mut inner = self.inner.lock();
        inner.left = inner.phase == Phase::Stopped;
    }

    fn trust(&self) {
        self.catch_up(&mut self.inner.lock());
    }

    fn distrust(&self) {
        // Who was in the list is known to be there still.
        let mut inner = self.inner.lock();
        inner.behind = true;
        self.patience.begin();
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
            self.wanted.want(&*self.kgd);
        }
    }

    fn start(&self) -> Result {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Stopped {
            return Ok(());
        }
        self.catch_up(&mut inner);
        inner.left = false;
        let started = self.hiq.start().and_then(|cursor| {
            inner.hiq = cursor;
            inner.phase = Phase::Idle;
            self.put_on(&mut inner)
        });
        if started.is_err() {
            inner.phase = Phase::Hung;
        }
        started
    }
}

#[pinned_drop]
impl PinnedDrop for Runlist {
    fn drop(self: Pin<&mut Self>) {
        // What does not stop has said so.
        let _ = self.stop();
    }
}

mod reschedule;
mod tests;
