// SPDX-License-Identifier: GPL-2.0

//! The queues of one process on one GPU: which there are, and whether they may run.
//!
//! One [`Queues`] for each `ProcessDevice`, embedded in it. It holds the process's seat at the node's
//! scheduler for as long as there is a queue, and its doorbells from the first need on.

use super::{
    node::Active,
    properties::Properties,
    Queue, //
};
use crate::{
    doorbell::ProcessDoorbells,
    ids::QueueId,
    process::ProcessDevice,
    sched::{
        Key,
        NewEntry,
        NewSeat,
        Scheduler, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Mutex,
        SetOnce, //
    },
};

/// A queue that the scheduler knows.
pub(super) struct Scheduled {
    key: Key,
    queue: Queue,
}

/// All that a new queue needs from the scheduler's side, allocated before anything is locked.
pub(super) struct New {
    /// For the process's first queue.
    pub(super) seat: Option<(NewSeat, Active)>,
    pub(super) entry: NewEntry,
    pub(super) room: RBTreeNodeReservation<QueueId, Scheduled>,
    pub(super) id: QueueId,
    pub(super) queue: Queue,
}

/// The queues of one process on one GPU.
#[pin_data]
pub(crate) struct Queues {
    doorbells: SetOnce<ProcessDoorbells>,
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    /// The process has ended here: no queue comes any more.
    closed: bool,
    /// How many reasons there are to keep the queues off the hardware.
    evicted: u32,
    /// A reset of the GPU took what they worked on: they never run again.
    lost: bool,
    /// The process's place at the scheduler, while it has queues.
    seat: Option<(Key, Active)>,
    queues: RBTree<QueueId, Scheduled>,
}

impl Queues {
    /// No queues.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            doorbells: SetOnce::new(),
            inner <- new_mutex!(Inner {
                closed: false,
                evicted: 0,
                lost: false,
                seat: None,
                queues: RBTree::new(),
            }, "Queues.inner"),
        })
    }

    /// How many queues the process has here.
    pub(super) fn count(&self) -> usize {
        self.inner.lock().queues.keys().count()
    }

    /// Whether the process has no queue here.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().queues.is_empty()
    }

    /// The process's doorbells here, made if they are not yet.
    pub(crate) fn doorbells(&self, device: &ProcessDevice) -> Result<&ProcessDoorbells> {
        if let Some(doorbells) = self.doorbells.as_ref() {
            return Ok(doorbells);
        }
        let node = device.node();
        let features = &node.queues().generation().features;
        // Of two that meet here one is dropped again.
        let new = ProcessDoorbells::new(node.kgd().clone(), features)?;
        self.doorbells.populate(new);
        self.doorbells.as_ref().ok_or(EAGAIN)
    }

    /// Ends all queues: they are off the hardware when this returns. Calling it again does nothing.
    pub(crate) fn quiesce(&self, device: &ProcessDevice) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let seat = inner.seat.take();
        if let Some((key, _)) = &seat {
            if let Err(error) = device.node().queues().scheduler().remove(*key) {
                pr_err!(
                    "queues of a process that ended may still run: {:?}\n",
                    error
                );
            }
        }
        let gone = core::mem::replace(&mut inner.queues, RBTree::new());
        drop(inner);
        drop(gone);
        drop(seat);
    }

    /// Keeps all queues off the hardware until as many [`Queues::restore`]. If the hardware fails
    /// this counts nevertheless, and they are off its list.
    pub(crate) fn evict(&self, device: &ProcessDevice) -> Result {
        let mut inner = self.inner.lock();
        inner.evicted += 1;
        match &inner.seat {
            Some((key, _)) if inner.evicted == 1 => device.node().queues().scheduler().evict(*key),
            _ => Ok(()),
        }
    }

    /// Takes back one [`Queues::evict`].
    pub(crate) fn restore(&self, device: &ProcessDevice) -> Result {
        let mut inner = self.inner.lock();
        let was = inner.evicted;
        inner.evicted = was.saturating_sub(1);
        match &inner.seat {
            Some((key, _)) if was == 1 => {
                let page_table_base = device.vm()?.page_directory();
                let scheduler = device.node().queues().scheduler();
                scheduler.restore(*key, page_table_base)
            }
            _ => Ok(()),
        }
    }

    /// The GPU is reset: nothing that the process has there runs again. The scheduler is stopped.
    pub(crate) fn lose(&self, device: &ProcessDevice) -> Result {
        let lost = core::mem::replace(&mut self.inner.lock().lost, true);
        if lost {
            return Ok(());
        }
        self.evict(device)
    }

    /// Hands a queue to the scheduler; the process's first one brings its seat.
    pub(super) fn insert(&self, new: New) -> Result {
        let New {
            seat,
            entry,
            id,
            queue,
            room,
        } = new;
        let node = queue.node.clone();
        let scheduler = node.scheduler();
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(ESRCH);
        }
        let key = match (&inner.seat, seat) {
            (Some((key, _)), _) => *key,
            (None, Some((seat, active))) => {
                let key = scheduler.add(seat.evicted(inner.evicted > 0));
                inner.seat = Some((key, active));
                key
            }
            // Nobody else ends the process's last queue while this one is made.
            (None, None) => return Err(EAGAIN),
        };
        match scheduler.map(key, entry) {
            Ok(key) => {
                inner
                    .queues
                    .insert(room.into_node(id, Scheduled { key, queue }));
                Ok(())
            }
            Err(error) => {
                let seat = inner.give_up_seat(scheduler);
                drop(inner);
                drop((seat, queue));
                Err(error)
            }
        }
    }

    /// Takes a queue from the scheduler and gives back all that it had. `EINVAL`: there is no such
    /// queue here. Any other error: it is gone nevertheless.
    pub(super) fn destroy(&self, id: QueueId) -> Result {
        let mut inner = self.inner.lock();
        let gone = inner.queues.remove_node(&id).ok_or(EINVAL)?;
        let (_, Scheduled { key, queue }) = gone.to_key_value();
        let scheduler = queue.node.scheduler();
        let result = match &inner.seat {
            Some((seat, _)) => scheduler.unmap(*seat, key),
            None => Ok(()),
        };
        let seat = inner.give_up_seat(scheduler);
        drop(inner);
        drop(seat);
        result
    }

    pub(super) fn has(&self, id: QueueId) -> bool {
        self.inner.lock().queues.get(&id).is_some()
    }

    /// What a queue is. `EFAULT`: there is no such queue here.
    pub(super) fn properties(&self, id: QueueId) -> Result<Properties> {
        let inner = self.inner.lock();
        let scheduled = inner.queues.get(&id).ok_or(EFAULT)?;
        Ok(scheduled.queue.properties)
    }

    /// Looks at a queue that nothing brings onto the hardware meanwhile. `EFAULT`: there is no such
    /// queue here; `EINVAL`: it may run.
    pub(super) fn while_stopped(
        &self,
        id: QueueId,
        look: impl FnOnce(&Queue) -> Result,
    ) -> Result {
        let inner = self.inner.lock();
        let Scheduled { queue, .. } = inner.queues.get(&id).ok_or(EFAULT)?;
        if queue.properties.drive().runs() && inner.evicted == 0 {
            return Err(EINVAL);
        }
        look(queue)
    }

    /// Changes a queue with `change`, and its descriptor while it is off the hardware.
    pub(super) fn rewrite<T>(
        &self,
        id: QueueId,
        change: impl FnOnce(&mut Queue) -> T,
    ) -> Result<T> {
        let mut inner = self.inner.lock();
        let Inner { seat, queues, .. } = &mut *inner;
        let Scheduled { key, queue } = queues.get_mut(&id).ok_or(EFAULT)?;
        let (seat, _) = seat.as_ref().ok_or(EFAULT)?;
        let changed = change(queue);
        let runs = queue.properties.drive().runs();
        let rewrite = || {
            if let Err(error) = queue.write_changes() {
                pr_err!("a queue's descriptor is incomplete: {:?}\n", error);
            }
        };
        queue
            .node
            .scheduler()
            .rewrite(*seat, *key, runs, &rewrite)?;
        Ok(changed)
    }
}

impl Inner {
    /// Gives up the process's seat after its last queue. What is returned is to be dropped when
    /// nothing is locked.
    fn give_up_seat(&mut self, scheduler: &dyn Scheduler) -> Option<Active> {
        if !self.queues.is_empty() {
            return None;
        }
        let (key, active) = self.seat.take()?;
        // There is nothing on the hardware to take off, hence nothing that can fail.
        let _ = scheduler.remove(key);
        Some(active)
    }
}
