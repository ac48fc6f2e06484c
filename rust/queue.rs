// SPDX-License-Identifier: GPL-2.0

//! User queues: rings in a process's memory from which a GPU takes work without asking us.
//!
//! A [`Queue`] is its checked [`Properties`](properties::Properties) and what it has taken for them:
//! an id, a doorbell, room for its descriptor or a slot of a copy engine, and the user's buffers,
//! which must stay where they are. It exists from CREATE_QUEUE to DESTROY_QUEUE or the end of its
//! process, and owns all of that; dropping it gives everything back.
//!
//! A process has one [`Queues`] per GPU, embedded in its `ProcessDevice`.
//!
//! # Locking
//!
//! Ioctls of one process that concern queues take turns (`Process::memory_lock`). Beneath it lies
//! `Queues.inner`, which eviction and the end of the process take as well: nothing under it
//! allocates or waits for anything but the scheduler. Order: `Process::memory_lock` →
//! `Process.inner` → `Queues.inner` → `Scheduler.inner`.

mod mqd_pool;
mod node;
pub(crate) mod properties;

pub(crate) use node::NodeQueues;

use crate::{
    doorbell::{
        DoorbellSlot,
        ProcessDoorbells, //
    },
    gfx::{
        ComputeFormat,
        ComputeQueue,
        CuMask,
        Engine,
        MapProcess,
        MapQueue,
        SdmaQueue,
        ShMemOptions,
        XccMqd, //
    },
    ids::{
        DoorbellIndex,
        GpuVa,
        QueueId,
        UserVa, //
    },
    kgd::{
        QueueBuffer,
        QueueBuffers, //
    },
    process::{
        Process,
        ProcessDevice, //
    },
    sched::{
        slots::{
            SlotGuard,
            Slots, //
        },
        Key,
        NewEntry,
        NewSeat, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    },
};
use mqd_pool::MqdSlot;
use node::{
    Active,
    Counted,
    SdmaSlot, //
};
use properties::{
    Drive,
    Extent,
    Kind,
    Properties,
    SdmaChoice, //
};

/// Ids of a process's queues, on all GPUs together.
pub(crate) type QueueIds = Slots<{ MAX_IDS / 64 }>;

/// How many there are (`KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`).
pub(crate) const MAX_IDS: usize = 1024;

/// What executes a queue, and what it took there.
enum Place {
    /// Shaders: its own descriptors, one for each XCC, and any doorbell.
    Compute {
        format: ComputeFormat,
        mqd: MqdSlot,
        doorbell: DoorbellSlot,
        cu_masks: Option<KVec<CuMask>>,
    },
    /// A copy engine: a slot with descriptor and doorbell.
    Sdma {
        slot: SdmaSlot,
        doorbell: DoorbellIndex,
        doorbell_id: usize,
    },
}

/// A user queue.
struct Queue {
    node: Arc<NodeQueues>,
    properties: Properties,
    place: Place,
    trap_handler: bool,
    /// The user's ring; UPDATE_QUEUE may bring another.
    ring: QueueBuffers,
    /// The user's other buffers.
    _buffers: QueueBuffers,
    _counted: Counted,
    id: SlotGuard<Arc<QueueIds>, { MAX_IDS / 64 }>,
}

/// A queue that the scheduler knows.
struct Scheduled {
    key: Key,
    queue: Queue,
}

/// What CREATE_QUEUE tells user space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Created {
    pub(crate) id: QueueId,
    /// Bytes from the start of the process's doorbell mapping to the queue's doorbell.
    pub(crate) doorbell_offset: u64,
}

impl Queue {
    fn id(&self) -> Result<QueueId> {
        // CAST: less than `MAX_IDS`.
        QueueId::new(self.id.index() as u32).ok_or(EINVAL)
    }

    fn doorbell_id(&self) -> usize {
        match &self.place {
            Place::Compute { doorbell, .. } => doorbell.id(),
            Place::Sdma { doorbell_id, .. } => *doorbell_id,
        }
    }

    fn compute(&self, format: ComputeFormat, doorbell: DoorbellIndex) -> ComputeQueue {
        let drive = self.properties.drive();
        let saves = self.node.kgd().facts().cwsr_enable;
        ComputeQueue {
            format,
            ring: drive.ring(),
            ring_bytes: drive.ring_bytes(),
            read_pointer: self.properties.read_pointer(),
            write_pointer: self.properties.write_pointer(),
            doorbell,
            eop: self.properties.eop(),
            save_area: self.properties.save_area().filter(|_| saves),
            trap_handler: self.trap_handler,
            priority: drive.priority(),
        }
    }

    fn sdma(&self, slot: &SdmaSlot, doorbell: DoorbellIndex) -> SdmaQueue {
        let drive = self.properties.drive();
        SdmaQueue {
            ring: drive.ring(),
            ring_bytes: drive.ring_bytes(),
            read_pointer: self.properties.read_pointer(),
            doorbell,
            place: slot.place(),
        }
    }

    /// Writes the descriptors of a queue that the hardware has not seen yet.
    fn write_new(&self) -> Result {
        let generation = self.node.generation();
        match &self.place {
            Place::Compute { format, mqd, doorbell, .. } => {
                let queue = self.compute(*format, doorbell.index());
                let first = self.node.next_xcc();
                for xcc in 0..self.node.xccs() {
                    let (words, address) = mqd.mqd(xcc)?;
                    let at = XccMqd {
                        xcc,
                        address,
                        stride: mqd.stride(),
                        logical_xcc: first.wrapping_add(xcc) % self.node.xccs(),
                    };
                    generation.mqd.compute(&words, at, &queue);
                }
                self.flush();
            }
            Place::Sdma { slot, doorbell, .. } => {
                let (words, _) = self.node.memory().sdma_mqd(slot.place(), true)?;
                generation.sdma.encode(&words, &self.sdma(slot, *doorbell));
            }
        }
        Ok(())
    }

    /// Writes into the descriptors of a queue that is off the hardware what has changed.
    fn write_changes(&self) -> Result {
        let generation = self.node.generation();
        match &self.place {
            Place::Compute { format, mqd, doorbell, cu_masks } => {
                let queue = self.compute(*format, doorbell.index());
                for xcc in 0..self.node.xccs() {
                    let (words, _) = mqd.mqd(xcc)?;
                    generation.mqd.update(&words, xcc, &queue);
                    let masks = cu_masks.as_ref();
                    if let Some(mask) = masks.and_then(|masks| masks.get(xcc as usize)) {
                        generation.mqd.set_cu_mask(&words, *mask);
                    }
                }
                self.flush();
            }
            Place::Sdma { slot, doorbell, .. } => {
                let (words, _) = self.node.memory().sdma_mqd(slot.place(), false)?;
                generation.sdma.encode(&words, &self.sdma(slot, *doorbell));
            }
        }
        Ok(())
    }

    /// What was written into the GPU's memory reaches it before the GPU looks.
    fn flush(&self) {
        if self.node.mqds().in_vram() {
            self.node.kgd().flush_hdp();
        }
    }

    /// What the scheduler is to know.
    fn map_queue(&self) -> Result<MapQueue> {
        let (engine, doorbell, mqd) = match &self.place {
            Place::Compute { mqd, doorbell, .. } => {
                (Engine::Compute, doorbell.index(), mqd.mqd(0)?.1)
            }
            Place::Sdma { slot, doorbell, .. } => {
                let (_, mqd) = self.node.memory().sdma_mqd(slot.place(), false)?;
                (Engine::Sdma(slot.place().engine), *doorbell, mqd)
            }
        };
        Ok(MapQueue {
            engine,
            doorbell,
            mqd,
            write_pointer: self.properties.write_pointer(),
        })
    }
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
                seat: None,
                queues: RBTree::new(),
            }, "Queues.inner"),
        })
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
                pr_err!("queues of a process that ended may still run: {:?}\n", error);
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
            Some((key, _)) if inner.evicted == 1 => {
                device.node().queues().scheduler().evict(*key)
            }
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

    /// Hands a queue to the scheduler. The first one brings the process's seat.
    fn insert(&self, new: New) -> Result {
        let New { seat, entry, node, queue } = new;
        let station = queue.node.clone();
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(ESRCH);
        }
        let scheduler = station.scheduler();
        if inner.seat.is_none() {
            let (seat, active) = seat.ok_or(EAGAIN)?;
            seat.set_evicted(inner.evicted > 0);
            inner.seat = Some((scheduler.add(seat), active));
        }
        Ok(())
    }
}
