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
        cu_mask::{
            self,
            ShaderEngines,
            Share, //
        },
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
        GpuId,
        GpuVa,
        QueueId, //
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
    pub(crate) gpu: GpuId,
    pub(crate) id: QueueId,
    /// Bytes from the start of the process's doorbell mapping to the queue's doorbell.
    pub(crate) doorbell_offset: u64,
}

impl Queue {
    /// Takes what UPDATE_QUEUE set.
    fn set_drive(&mut self, drive: Drive) {
        self.properties.set_drive(drive);
        if let (Place::Compute { format, .. }, Some(new)) =
            (&mut self.place, self.properties.compute_format())
        {
            *format = new;
        }
    }

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

    /// How many queues the process has here.
    fn count(&self) -> usize {
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

    /// Hands a queue to the scheduler; the process's first one brings its seat.
    fn insert(&self, new: New) -> Result {
        let New { seat, entry, id, queue, room } = new;
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
                inner.queues.insert(room.into_node(id, Scheduled { key, queue }));
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
    fn destroy(&self, id: QueueId) -> Result {
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

    fn has(&self, id: QueueId) -> bool {
        self.inner.lock().queues.get(&id).is_some()
    }

    /// What a queue is. `EFAULT`: there is no such queue here.
    fn properties(&self, id: QueueId) -> Result<Properties> {
        let inner = self.inner.lock();
        let scheduled = inner.queues.get(&id).ok_or(EFAULT)?;
        Ok(scheduled.queue.properties)
    }

    /// Changes a queue with `change`, and its descriptor while it is off the hardware.
    fn rewrite<T>(&self, id: QueueId, change: impl FnOnce(&mut Queue) -> T) -> Result<T> {
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
        queue.node.scheduler().rewrite(*seat, *key, runs, &rewrite)?;
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

/// All that a new queue needs from the scheduler's side, allocated before anything is locked.
struct New {
    /// For the process's first queue.
    seat: Option<(NewSeat, Active)>,
    entry: NewEntry,
    room: RBTreeNodeReservation<QueueId, Scheduled>,
    id: QueueId,
    queue: Queue,
}

/// CREATE_QUEUE on the GPU `gpu_id`.
///
/// The errors are those of the ABI, and so is their order.
pub(crate) fn create(process: &Process, gpu_id: u32, properties: Properties) -> Result<Created> {
    let _turn = process.lock_memory();
    let device = process.device(gpu_id)?;
    device.vm().map_err(|_| ESRCH)?;
    let node = device.node().queues();
    if let Kind::Sdma(SdmaChoice::Engine(engine)) = properties.kind() {
        if !node.has_engine(engine) {
            pr_err!("there is no copy engine {}\n", engine);
            return Err(EINVAL);
        }
    }
    let queue = make(process, device, properties)?;
    queue.write_new()?;
    let created = Created {
        gpu: device.gpu_id(),
        id: queue.id()?,
        doorbell_offset: device.queues().doorbells(device)?.offset(queue.doorbell_id()),
    };
    let first = device.queues().is_empty();
    let seat = if first { Some(seat(process, device)?) } else { None };
    let new = New {
        seat,
        entry: NewEntry::new(queue.map_queue()?, properties.drive().runs())?,
        room: RBTreeNodeReservation::new(GFP_KERNEL)?,
        id: created.id,
        queue,
    };
    let _alive = process.alive()?;
    device.queues().insert(new)?;
    Ok(created)
}

/// A queue with all that it needs to have taken.
fn make(process: &Process, device: &ProcessDevice, properties: Properties) -> Result<Queue> {
    let node = device.node().queues().clone();
    let doorbells = device.queues().doorbells(device)?;
    let (ring, buffers) = pin(device, &node, &properties)?;
    let features = &node.generation().features;
    if device.queues().count() >= features.queues_per_process {
        return Err(ENOSPC);
    }
    let id = Slots::take(process.queue_ids().clone()).ok_or(ENOMEM)?;
    let counted = node.count()?;
    let place = match (properties.kind(), properties.compute_format()) {
        (Kind::Sdma(choice), _) => {
            let slot = node.take_sdma(choice)?;
            let base = node.sdma_doorbells(slot.place().engine)?;
            let (doorbell_id, doorbell) = doorbells.sdma(base, slot.place(), features)?;
            Place::Sdma { slot, doorbell, doorbell_id }
        }
        (_, format) => Place::Compute {
            format: format.ok_or(EINVAL)?,
            doorbell: doorbells.take()?,
            mqd: node.mqds().take()?,
            cu_masks: None,
        },
    };
    Ok(Queue {
        trap_handler: device.trap_handler().tba != 0,
        node,
        properties,
        place,
        ring,
        _buffers: buffers,
        _counted: counted,
        id,
    })
}

fn wanted(extent: Extent) -> Result<QueueBuffer> {
    Ok(QueueBuffer {
        address: GpuVa::new(extent.address).ok_or(EINVAL)?,
        size: extent.bytes,
    })
}

/// Keeps the user's buffers of a queue where they are: its ring, and all others.
fn pin(
    device: &ProcessDevice,
    node: &NodeQueues,
    properties: &Properties,
) -> Result<(QueueBuffers, QueueBuffers)> {
    let eop = node.generation().features.eop_buffer_bytes;
    let buffers = properties.buffers(node.save_sizes(), node.xccs(), eop);
    let buffers = buffers.ok_or(EINVAL)?;
    let others = [
        Some(buffers.write_pointer),
        Some(buffers.read_pointer),
        buffers.eop,
        buffers.save_area,
    ];
    let mut pinned = KVec::with_capacity(others.len(), GFP_KERNEL)?;
    for extent in others.into_iter().flatten() {
        pinned.push(wanted(extent)?, GFP_KERNEL)?;
    }
    let vm = device.vm()?;
    Ok((
        QueueBuffers::get(vm.clone(), &[wanted(buffers.ring)?])?,
        QueueBuffers::get(vm.clone(), &pinned)?,
    ))
}

/// The process's seat at the scheduler of `device`'s node.
fn seat(process: &Process, device: &ProcessDevice) -> Result<(NewSeat, Active)> {
    let (vm, node) = (device.vm()?, device.node().queues());
    let apertures = device.apertures();
    let xnack = process.xnack();
    let trap = device.trap_handler();
    let options = ShMemOptions {
        lds_base: apertures.lds.base,
        scratch_base: apertures.scratch.base,
        xnack,
    };
    let map_process = MapProcess {
        pasid: vm.pasid(),
        page_table_base: vm.page_directory(),
        sh_mem: node.generation().runlist.sh_mem(options),
        trap: (trap.tba != 0).then_some((trap.tba, trap.tma)),
        queues: 0,
    };
    Ok((NewSeat::new(map_process, xnack)?, node.activate()))
}

/// The device on which the process has queue `id`.
fn device_with(process: &Process, id: QueueId) -> Option<&Arc<ProcessDevice>> {
    process.devices().iter().find(|device| device.queues().has(id))
}

/// DESTROY_QUEUE. `EINVAL`: the process has no such queue. After any other error it is gone all the
/// same, but the hardware did not confirm that it has let go.
pub(crate) fn destroy(process: &Process, id: u32) -> Result {
    let _turn = process.lock_memory();
    let id = QueueId::new(id).ok_or(EINVAL)?;
    let device = device_with(process, id).ok_or(EINVAL)?;
    device.queues().destroy(id)
}

/// UPDATE_QUEUE. `EFAULT`: the process has no such queue, or the new ring is not mapped.
pub(crate) fn update(process: &Process, id: u32, drive: Drive) -> Result {
    let _turn = process.lock_memory();
    let id = QueueId::new(id).ok_or(EFAULT)?;
    let device = device_with(process, id).ok_or(EFAULT)?;
    let before = device.queues().properties(id)?;
    let ring = match drive.ring().raw() {
        // A queue without a ring stops; it keeps the buffer of the one it had.
        0 => None,
        _ => {
            let ring = [wanted(before.ring(&drive)).map_err(|_| EFAULT)?];
            let vm = device.vm()?.clone();
            Some(QueueBuffers::get(vm, &ring).map_err(|_| EFAULT)?)
        }
    };
    if drive.is_like(before.drive()) {
        return Ok(());
    }
    let old = device.queues().rewrite(id, |queue| {
        queue.set_drive(drive);
        ring.map(|ring| core::mem::replace(&mut queue.ring, ring))
    })?;
    drop(old);
    Ok(())
}

/// SET_CU_MASK: one mask for each XCC of a compute queue; for a copy queue they mean nothing.
/// `EFAULT`: the process has no such queue.
pub(crate) fn set_cu_mask(process: &Process, id: u32, user: &[u32]) -> Result {
    let _turn = process.lock_memory();
    let id = QueueId::new(id).ok_or(EFAULT)?;
    let device = device_with(process, id).ok_or(EFAULT)?;
    let node = device.node();
    let facts = node.facts();
    let engines = ShaderEngines {
        count: facts.max_shader_engines,
        arrays: facts.max_sh_per_se,
    };
    let cus = facts.cu_count / facts.num_partitions.max(1);
    let first = node.xcc_mask().trailing_zeros();
    let mut masks = KVec::with_capacity(node.num_xcc() as usize, GFP_KERNEL)?;
    for xcc in 0..node.num_xcc() {
        let share = Share { xcc, xccs: node.num_xcc(), cus };
        let bitmap = facts.cu_bitmap.get((first + xcc) as usize).ok_or(EINVAL)?;
        masks.push(cu_mask::spread(user, bitmap, engines, share), GFP_KERNEL)?;
    }
    let mut masks = Some(masks);
    let old = device.queues().rewrite(id, |queue| match &mut queue.place {
        Place::Compute { cu_masks, .. } => core::mem::replace(cu_masks, masks.take()),
        Place::Sdma { .. } => None,
    })?;
    drop((old, masks));
    Ok(())
}
