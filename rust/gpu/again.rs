// SPDX-License-Identifier: GPL-2.0-only

//! Orders that amdgpu kept from a node's hardware, because it had that for itself: one [`Again`]
//! for each node gives them when it no longer has.
//!
//! amdgpu takes the lock of a device's resets for other things, too: debugfs' `amdgpu_test_ib`, for
//! one. An order to put queues back that comes then fails. No reset follows, which would put them
//! back, and on a GPU that is idle otherwise no other order either.
//!
//! While amdgpu does not let go this costs one attempt to take that lock each 3.2 s. What the
//! hardware itself refuses is not ordered again: a reset follows that, or the caller has heard.

use crate::linux::workqueue::{
    flush_delayed,
    OwnedQueue, //
};
use kernel::{
    new_delayed_work,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};

/// How soon orders are given again for the first time.
const WAIT: Msecs = 100;
/// How often that doubles while amdgpu keeps the hardware.
const DOUBLINGS: u32 = 5;

/// Gives a node's scheduler its orders again. It finds the node among those that are registered, so
/// that nothing here keeps it.
#[pin_data]
pub(crate) struct Again {
    #[pin]
    work: DelayedWork<Again>,
    /// So often in a row amdgpu had the hardware still.
    tries: Atomic<u32>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Again { self.work }
}

impl Again {
    pub(super) fn new() -> Result<Arc<Self>> {
        let again = pin_init!(Self {
            work <- new_delayed_work!("amdkfd::Again"),
            tries: Atomic::new(0),
        });
        Arc::pin_init(again, GFP_KERNEL)
    }

    /// It runs there in a while. The caller has the node, and the queue lasts as long as nodes do.
    pub(crate) fn enqueue_on(self: &Arc<Self>, queue: &OwnedQueue) {
        let wait = WAIT << self.tries.load(Relaxed).min(DOUBLINGS);
        // If it is queued already, it gives these orders too.
        // SAFETY: The drop of the node flushes it.
        let _ = unsafe { queue.enqueue_delayed(self.clone(), msecs_to_jiffies(wait)) };
    }

    /// The node goes, and nobody has it any more: waits for the last run, which does not find it.
    /// May sleep.
    pub(super) fn end(&self) {
        flush_delayed(&self.work);
    }
}

impl WorkItem for Again {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The end of the device waits for this user before it lets the node go.
        let Some(node) = super::find(|node| core::ptr::eq(&*node.again, &*this)) else {
            return;
        };
        let scheduler = node.queues().scheduler();
        scheduler.ask_again();
        let tries = match scheduler.owes() {
            true => this.tries.load(Relaxed).saturating_add(1),
            false => 0,
        };
        this.tries.store(tries, Relaxed);
        node.notify_resets();
    }
}
