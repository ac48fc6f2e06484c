// SPDX-License-Identifier: GPL-2.0-only

//! Making room: amdgpu wants to move a process's buffers. One [`Evictor`] for each process.
//!
//! amdgpu waits for the process's eviction fence and says so where nothing may sleep. A worker then
//! takes the queues off the GPUs and signals the fence; where the hardware does not obey it comes
//! again until it does, or somebody else has signalled the fence. Another one, a little later,
//! brings the buffers back, which arms a new fence, and restores the queues; it comes again as long
//! as there is no room. A process that has only just been restored runs for a moment first, so that
//! two of them cannot keep each other from working; and users take turns ([`super::turns`]).
//!
//! When the machine goes to sleep amdgpu moves all buffers out of VRAM before it tells us. Whoever
//! brought them back meanwhile would keep it awake for ever, so nothing is restored from the moment
//! at which tasks are frozen.

use super::{
    leaving,
    registry,
    turns::Refused,
    MmId,
    Process,
    ProcessRef, //
};
use crate::{
    linux::workqueue::flush_delayed,
    smi::Trigger, //
};
use kernel::{
    new_delayed_work,
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Relaxed,
                Release, //
            },
            Atomic, //
        },
        Arc, //
    },
    task::Kuid,
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};

/// `PROCESS_ACTIVE_TIME_MS` (kfd_priv.h): how long a restored process runs undisturbed.
const ACTIVE: Delta = Delta::from_millis(10);
/// `PROCESS_RESTORE_TIME_MS` (kfd_priv.h): how long the others may use the room.
const RESTORE: Msecs = 100;
/// `PROCESS_BACK_OFF_TIME_MS` (kfd_priv.h): the pause after a restore that found no room, and after
/// an eviction that failed.
const BACK_OFF: Msecs = 100;

/// How often that pause doubles while evictions fail: each takes all queues of GPUs that do obey
/// off them, and others' queues too.
const DOUBLINGS: u32 = 5;

/// How soon is looked again whether a GPU has let go that does not obey.
const LEAVING: Msecs = 1000;

/// Evicts and restores a process.
#[pin_data]
pub(super) struct Evictor {
    #[pin]
    evicting: DelayedWork<Evictor, EVICT>,
    #[pin]
    restoring: DelayedWork<Evictor, RESTORE_LATER>,
    /// The process is found by its address space, so that nothing here keeps it.
    mm: MmId,
    context: u16,
    /// Whose process it is: who takes turns.
    user: Kuid,
    /// That process is gone; another one may have its name.
    ended: Atomic<bool>,
    /// The process has ended, but for what a GPU that does not obey may use.
    leaving: Atomic<bool>,
    /// So many evictions have failed since the last that did not.
    failed: Atomic<u32>,
    /// The fence that was asked for last.
    fence: Atomic<u64>,
}

/// Names the work that evicts.
const EVICT: u64 = 0;
/// Names the work that restores.
const RESTORE_LATER: u64 = 1;

/// What an eviction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evicted {
    /// The queues are off, and are to be restored.
    Now,
    /// Nothing: nobody waits any more.
    Before,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, EVICT> for Evictor { self.evicting }
    impl HasDelayedWork<Self, RESTORE_LATER> for Evictor { self.restoring }
}

impl Evictor {
    pub(super) fn new(mm: MmId, context: u16, user: Kuid) -> Result<Arc<Self>> {
        let evictor = pin_init!(Self {
            evicting <- new_delayed_work!("amdkfd::Evictor::evicting"),
            restoring <- new_delayed_work!("amdkfd::Evictor::restoring"),
            mm,
            context,
            user,
            ended: Atomic::new(false),
            leaving: Atomic::new(false),
            failed: Atomic::new(0),
            fence: Atomic::new(0),
        });
        Arc::pin_init(evictor, GFP_KERNEL)
    }

    /// Somebody waits for this fence. Legal in any context. Asking twice changes nothing.
    pub(super) fn request(self: &Arc<Self>, fence: u64) {
        if self.fence.xchg(fence, Relaxed) == fence {
            return;
        }
        if let Ok(registry) = registry::get() {
            // If it is queued already, it will see to this fence too: at once, if it waits because
            // an order before has failed.
            let _ = registry.evictions().hasten::<_, EVICT>(self.clone());
        }
    }

    /// An eviction failed, as many have before, and somebody waits for the fence still: it is tried
    /// again after a while.
    fn evict_later(self: &Arc<Self>, before: u32) {
        let wait = BACK_OFF << before.min(DOUBLINGS);
        if let Ok(registry) = registry::get() {
            let (queue, wait) = (registry.evictions(), msecs_to_jiffies(wait));
            // If it is queued already, it was asked for anew.
            // SAFETY: `end` flushes it, before the process is gone.
            let _ = unsafe { queue.enqueue_delayed::<_, EVICT>(self.clone(), wait) };
        }
    }

    /// The process goes: nothing of this is done for it any more when this returns. May sleep,
    /// until the machine is awake.
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
        flush_delayed(&self.evicting);
        flush_delayed(&self.restoring);
    }

    /// The process has ended, but a GPU may still use what it had: it is looked after until that
    /// has obeyed. Nothing is restored any more.
    pub(super) fn outlast(self: &Arc<Self>) {
        self.leaving.store(true, Release);
        self.look_later();
    }

    /// Whether it is looked after already.
    pub(super) fn outlasts(&self) -> bool {
        self.leaving.load(Acquire)
    }

    /// The caller holds the process: its end waits for this then.
    fn look_later(self: &Arc<Self>) {
        if let Ok(registry) = registry::get() {
            let (queue, wait) = (registry.restoring(), msecs_to_jiffies(LEAVING));
            // One that waits for its time looks then.
            // SAFETY: As in `evict_later`.
            let _ = unsafe { queue.enqueue_delayed::<_, RESTORE_LATER>(self.clone(), wait) };
        }
    }

    /// The process, while it is alive.
    fn process(&self) -> Option<ProcessRef> {
        self.found().filter(|process| process.is_alive())
    }

    /// The process, while it can be found.
    fn found(&self) -> Option<ProcessRef> {
        if self.ended.load(Relaxed) {
            return None;
        }
        // The number of a context that was closed is given to the next one.
        let own = |process: &ProcessRef| {
            process
                .evictor()
                .is_some_and(|evictor| core::ptr::eq(&raw const **evictor, self))
        };
        registry::of_context(self.mm, self.context).filter(own)
    }

    /// Takes the queues off and lets the buffers go.
    fn evict(process: &Process) -> Result<Evicted> {
        if process.context().is_none() {
            return Ok(Evicted::Before);
        }
        if let Err(error) = process.evict(Trigger::TTM) {
            if !process.is_off_what_is_left() {
                let _ = process.restore();
                return Err(error);
            }
            // It never runs again, and its buffers do not come back.
            process.let_buffers_move();
            let _ = process.restore();
            return Ok(Evicted::Before);
        }
        let signalled_before = process.let_buffers_move();
        if signalled_before {
            // Somebody else took care of this fence, and will restore.
            let _ = process.restore();
            return Ok(Evicted::Before);
        }
        Ok(Evicted::Now)
    }

    /// Undoes one eviction of the process, and brings its buffers back, as soon as tasks run again.
    pub(super) fn restore_soon(process: &Process) {
        match process.evictor() {
            Some(evictor) => evictor.restore_later(0, process),
            // Without a VM it has nothing to bring back.
            None => drop(process.restore()),
        }
    }

    /// Undoes one eviction of the process, and brings its buffers back, after a while. The caller
    /// holds the process, and so it does not end meanwhile.
    fn restore_later(self: &Arc<Self>, wait: Msecs, process: &Process) {
        let later = registry::get().is_ok_and(|registry| {
            let (queue, wait) = (registry.restoring(), msecs_to_jiffies(wait));
            // SAFETY: As in `evict_later`.
            let queued = unsafe { queue.enqueue_delayed::<_, RESTORE_LATER>(self.clone(), wait) };
            queued.is_ok()
        });
        if !later {
            // The one that waits for its time undoes another eviction. What is left of the error
            // has been said.
            let _ = process.restore();
        }
    }

    /// Brings the buffers back and lets the queues run. Fails if there is no room yet; `EBUSY`: a
    /// call of the process's is at its buffers. Those of who has lost a GPU stay where they are: it
    /// never runs again, and amdgpu would wait for copies of that GPU, whose reset may have failed.
    fn restore(process: &Process) -> Result {
        // Without a VM there is no buffer.
        if let Some(context) = process.context().filter(|_| !process.has_lost()) {
            process.bring_buffers_back(context)?;
        }
        if let Err(error) = process.restore() {
            let pid = process.lead().pid();
            pr_err!("process {pid}: cannot restore its queues: {error:?}\n");
        }
        Ok(())
    }
}

impl WorkItem<EVICT> for Evictor {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.ended.load(Relaxed) {
            return;
        }
        // The restore before this request may have been only now.
        fsleep(ACTIVE);
        let Some(process) = this.process() else {
            return;
        };
        match Self::evict(&process) {
            Ok(evicted) => {
                this.failed.store(0, Relaxed);
                if evicted == Evicted::Now {
                    this.restore_later(RESTORE, &process);
                }
            }
            Err(error) => {
                // Once: it comes again until the hardware obeys, or has been reset.
                let before = this.failed.load(Relaxed);
                this.failed.store(before.saturating_add(1), Relaxed);
                if before == 0 {
                    let pid = process.lead().pid();
                    pr_err!("process {pid}: cannot unmap its queues for an eviction: {error:?}\n");
                }
                this.evict_later(before);
            }
        }
    }
}

impl WorkItem<RESTORE_LATER> for Evictor {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.outlasts() {
            let process = this.found();
            if process.as_ref().is_some_and(|it| !leaving::is_over(it)) {
                this.look_later();
            }
            return;
        }
        // It comes again until the process ends: without its buffers that can do nothing else.
        let Some(process) = this.process() else {
            return;
        };
        let Ok(registry) = registry::get() else {
            return;
        };
        // Not waited for here: the machine could not go to sleep before.
        let turn = match registry.restore_turns().take(this.user) {
            Ok(turn) => turn,
            Err(Refused::Others(wait)) => return this.restore_later(wait, &process),
            Err(Refused::Own) => return this.restore_later(BACK_OFF, &process),
        };
        let room = match process.must_stay_away() {
            true => Err(EBUSY),
            false => Self::restore(&process),
        };
        drop(turn);
        if let Err(error) = room {
            let pid = process.lead().pid();
            pr_debug!("process {pid}: its buffers cannot be restored yet: {error:?}\n");
            this.restore_later(BACK_OFF, &process);
        }
    }
}
