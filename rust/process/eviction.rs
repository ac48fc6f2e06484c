// SPDX-License-Identifier: GPL-2.0

//! Making room: amdgpu wants to move a process's buffers. One [`Evictor`] for each process.
//!
//! amdgpu waits for the process's eviction fence and says so where nothing may sleep. A worker then
//! takes the queues off the GPUs and signals the fence; a little later it brings the buffers back,
//! which arms a new fence, and restores the queues. A process that has only just been restored
//! runs for a moment first, so that two of them cannot keep each other from working.

use super::{
    power,
    registry,
    MmId,
    Process,
    ProcessRef, //
};
use crate::smi::Trigger;
use kernel::{
    new_work,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// `PROCESS_ACTIVE_TIME_MS` (kfd_priv.h): how long a restored process runs undisturbed.
const ACTIVE: Delta = Delta::from_millis(10);
/// `PROCESS_RESTORE_TIME_MS` (kfd_priv.h): how long the others may use the room.
const RESTORE: Delta = Delta::from_millis(100);
/// `PROCESS_BACK_OFF_TIME_MS` (kfd_priv.h): the pause after a restore that found no room.
const BACK_OFF: Delta = Delta::from_millis(100);

/// Evicts and restores a process.
#[pin_data]
pub(super) struct Evictor {
    #[pin]
    work: Work<Evictor>,
    /// The process is found by its address space, so that nothing here keeps it.
    mm: MmId,
    context: u16,
    /// The fence that was asked for last.
    fence: Atomic<u64>,
}

impl_has_work! {
    impl HasWork<Self> for Evictor { self.work }
}

impl Evictor {
    pub(super) fn new(mm: MmId, context: u16) -> Result<Arc<Self>> {
        let evictor = pin_init!(Self {
            work <- new_work!("amdkfd::Evictor"),
            mm,
            context,
            fence: Atomic::new(0),
        });
        Arc::pin_init(evictor, GFP_KERNEL)
    }

    /// Somebody waits for this fence. Legal in any context. Asking twice changes nothing.
    pub(super) fn request(self: &Arc<Self>, fence: u64) {
        if self.fence.xchg(fence, Relaxed) == fence {
            return;
        }
        if let Some(queue) = registry::work_queue() {
            // If it is queued already, it will see to this fence too.
            let _ = queue.enqueue(self.clone());
        }
    }

    /// The process, while it is alive.
    fn process(&self) -> Option<ProcessRef> {
        registry::of_context(self.mm, self.context).filter(|process| process.is_alive())
    }

    /// Takes the queues off and lets the buffers go. False if there is nothing to restore.
    fn evict(process: &Process) -> bool {
        let Some(context) = process.context() else {
            return false;
        };
        if let Err(error) = process.evict(Trigger::TTM) {
            let pid = process.lead().pid();
            pr_err!("process {pid} cannot be evicted: its queues stay on a GPU ({error:?})\n");
            // A reset of that GPU follows, and with it the fence is signalled.
            let _ = process.restore();
            return false;
        }
        let signalled_before = context.signal_eviction_fence();
        if signalled_before {
            // Somebody else took care of this fence, and will restore.
            let _ = process.restore();
        }
        !signalled_before
    }

    /// Brings the buffers back and lets the queues run. Fails if there is no room yet.
    pub(super) fn restore(process: &Process) -> Result {
        process.context().ok_or(ESRCH)?.restore()?;
        if let Err(error) = process.restore() {
            let pid = process.lead().pid();
            pr_err!("the queues of process {pid} cannot be restored ({error:?})\n");
        }
        Ok(())
    }
}

impl WorkItem for Evictor {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The restore before this request may have been only now.
        fsleep(ACTIVE);
        if !this.process().is_some_and(|process| Self::evict(&process)) {
            return;
        }
        fsleep(RESTORE);
        // TIMEOUT: Ends with the process: without its buffers it can do nothing else.
        while let Some(process) = this.process() {
            // Not into the memory of a GPU that is going to sleep.
            let room = match power::is_suspended() {
                true => Err(EBUSY),
                false => Self::restore(&process),
            };
            match room {
                Ok(()) => return,
                Err(error) => pr_debug!("no room to restore a process yet ({:?})\n", error),
            }
            drop(process);
            fsleep(BACK_OFF);
        }
    }
}
