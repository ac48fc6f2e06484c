// SPDX-License-Identifier: GPL-2.0-only

//! What user space asks of queues: CREATE_QUEUE, DESTROY_QUEUE, UPDATE_QUEUE, SET_CU_MASK.
//!
//! Each takes and allocates all that it needs before it locks anything that eviction needs too.
//! What was taken is owned by what is being made: an error on the way gives it back.

use super::{
    Process,
    ProcessDevice, //
};
use crate::{
    gfx::{
        cu_mask::{
            self,
            ShaderEngines,
            Share, //
        },
        HwProcess,
        SdmaChoice,
        ShMemOptions, //
    },
    ids::{
        GpuId,
        QueueId, //
    },
    kgd::{
        gpu_err,
        QueueBuffers, //
    },
    linux::{
        ratelimit::may_complain,
        trace::{
            self,
            QueueChange, //
        },
    },
    queue::{
        mapped,
        properties::{
            QueueKind,
            QueueProperties, //
            QueueSettings,
        },
        Given,
        NewQueue,
        SavedQueue, //
    },
    sched::{
        node::ActiveProcess,
        NewSchedProcess, //
    },
    uapi::user_slice,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What CREATE_QUEUE tells user space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreatedQueue {
    pub(crate) gpu: GpuId,
    pub(crate) id: QueueId,
    /// Bytes from the start of the process's doorbell mapping to the queue's doorbell.
    pub(crate) doorbell_offset: u64,
}

/// CREATE_QUEUE on the GPU `gpu_id`.
///
/// The errors are those of the ABI, and so is their order.
pub(crate) fn create(
    process: &Process,
    gpu_id: u32,
    properties: &QueueProperties,
) -> Result<CreatedQueue> {
    let _turn = process.memory_lock();
    let device = process.device(gpu_id)?;
    device.vm().map_err(|_| ESRCH)?;
    let node = device.node().queues();
    if let QueueKind::Sdma(SdmaChoice::Engine(engine)) = properties.kind() {
        if !node.has_engine(engine) {
            let (pid, name) = (process.lead().pid(), device.node().pci_name());
            if may_complain() {
                gpu_err!(name, "process {pid}: there is no SDMA engine {engine}\n");
            }
            return Err(EINVAL);
        }
    }
    make(process, device, properties, None)
}

/// Makes a queue of a checkpoint again. The caller holds the process's memory lock. `EINVAL`: it
/// does not fit this GPU; `ENOSPC`, `EINVAL` or `EBUSY`: its name, its doorbell, or its slot of a
/// copy engine is another queue's.
pub(super) fn restore(
    process: &Process,
    device: &Arc<ProcessDevice>,
    properties: &QueueProperties,
    saved: &SavedQueue<'_>,
) -> Result {
    device.vm()?;
    make(process, device, properties, Some(saved)).map(drop)
}

/// Makes a queue, new or `saved`, on a GPU where the process has a VM. Its memory lock is held.
fn make(
    process: &Process,
    device: &Arc<ProcessDevice>,
    properties: &QueueProperties,
    saved: Option<&SavedQueue<'_>>,
) -> Result<CreatedQueue> {
    let doorbells = device.queues().doorbells(&**device)?;
    // Only the end of the process changes this count meanwhile: `memory_lock` is held.
    let present = device.queues().count();
    let given = Given {
        doorbells,
        present,
        ids: process.queue_ids()?,
        trap_handler: device.trap_handler().tba != 0,
        svm: process.svm().zip(process.place_of(device)),
        saved,
    };
    let new = NewQueue::make(&**device, properties, given)?;
    let created = CreatedQueue {
        gpu: device.gpu_id(),
        id: new.id(),
        doorbell_offset: doorbells.offset(new.doorbell_id()),
    };
    let mut sched_process = if present == 0 {
        Some(sched_process(process, device)?)
    } else {
        None
    };
    // What is left of queues that are gone goes now: its buffers wait for whoever has page tables
    // locked, who may wait for an eviction of this process, and that for `alive`.
    device.queues().give_back(&**device);
    let inserted = {
        let _alive = process.alive()?;
        let inserted = device.queues().insert(&**device, &mut sched_process, new);
        device.node().notify_resets();
        inserted
    };
    inserted.map_err(|refused| refused.error)?;
    process.queue_came();
    process.files().changed();
    trace_queue(QueueChange::Create, device, created.id, &Ok(()));
    Ok(created)
}

/// Tells whoever traces the module what became of a queue.
fn trace_queue(change: QueueChange, device: &ProcessDevice, id: QueueId, result: &Result) {
    trace::queue(change, device.gpu_id().raw(), id.raw(), result);
}

/// The process for the scheduler of `device`'s node.
fn sched_process(
    process: &Process,
    device: &ProcessDevice,
) -> Result<(NewSchedProcess, ActiveProcess)> {
    let (vm, node) = (device.vm()?, device.node().queues());
    let apertures = device.apertures();
    let xnack = process.xnack();
    let trap = device.trap_handler();
    let options = ShMemOptions {
        lds_base: apertures.lds.base,
        scratch_base: apertures.scratch.base,
        xnack,
        precise: device.is_precise(),
    };
    let described = HwProcess {
        pasid: vm.pasid(),
        page_table_base: vm.page_directory(),
        sh_mem: (node.generation().formats.sh_mem)(options),
        trap: (trap.tba != 0).then_some((trap.tba, trap.tma)),
        // The device's queues know, and say so when they take the process in.
        control: None,
    };
    let new = NewSchedProcess::new(described, xnack, Some(vm.clone()))?;
    Ok((new, node.activate()))
}

/// The process's queue that user space calls `id`, and the device that it is on.
pub(super) fn find(process: &Process, id: u32) -> Option<(QueueId, &Arc<ProcessDevice>)> {
    let id = QueueId::new(id)?;
    let mut devices = process.devices().iter();
    Some((id, devices.find(|device| device.queues().has(id))?))
}

/// DESTROY_QUEUE. A queue that a debugger has suspended goes when that lets it run again. `EINVAL`:
/// the process has no such queue. `EBUSY`: somebody else waits for that; `ERESTARTSYS`: a signal
/// came first. After any other error it is gone all the same, but the hardware did not confirm that
/// it has let go.
pub(crate) fn destroy(process: &Process, id: u32) -> Result {
    loop {
        match destroy_now(process, id) {
            Err(error) if error == EAGAIN => {}
            result => return result,
        }
        let (id, device) = find(process, id).ok_or(EINVAL)?;
        let resumed = process.debugging.resumed();
        device.queues().await_resume(id, resumed)?;
    }
}

/// The same of a queue that is not suspended; of one that is, `EAGAIN`.
fn destroy_now(process: &Process, id: u32) -> Result {
    let _turn = process.memory_lock();
    destroy_locked(process, id)
}

/// The same under the process's memory lock.
fn destroy_locked(process: &Process, id: u32) -> Result {
    let id = QueueId::new(id).ok_or(EINVAL)?;
    end(process, id, |device, counted| {
        device.queues().destroy(&**device, id, counted)
    })
}

/// Destroys a queue, suspended or not. The caller holds the process's memory lock. Errors: see
/// [`destroy`].
pub(super) fn discard(process: &Process, id: QueueId) -> Result {
    let resumed = process.debugging.resumed();
    end(process, id, |device, counted| {
        device.queues().discard(&**device, (id, counted), resumed)
    })
}

/// What DESTROY_QUEUE does; `how` takes the queue from its GPU, after it has counted so much.
fn end(
    process: &Process,
    id: QueueId,
    how: impl FnOnce(&Arc<ProcessDevice>, u64) -> Result,
) -> Result {
    let mut devices = process.devices().iter();
    let found = devices.find_map(|device| Some((device, device.queues().sdma_counter(id)?)));
    let (device, counter) = found.ok_or(EINVAL)?;
    let counted = counter.and_then(|address| user_slice(address, 8).reader().read::<u64>().ok());
    let result = how(device, counted.unwrap_or(0));
    if result == Err(EAGAIN) {
        return result;
    }
    process.queue_went(device);
    // Once this returns, its save area is the user's to free.
    drop(process.telling());
    device.node().notify_resets();
    process.files().changed();
    trace_queue(QueueChange::Destroy, device, id, &result);
    result
}

/// UPDATE_QUEUE. `EFAULT`: the process has no such queue, or the new ring is not mapped; `EACCES`:
/// a queue of the process was reset.
pub(crate) fn update(process: &Process, id: u32, settings: QueueSettings) -> Result {
    let _turn = process.memory_lock();
    let id = QueueId::new(id).ok_or(EFAULT)?;
    let (device, kept) = process
        .devices()
        .iter()
        .find_map(|device| Some((device, device.queues().settings(id)?)))
        .ok_or(EFAULT)?;
    let same_ring = settings.ring() == kept.ring() && settings.ring_bytes() == kept.ring_bytes();
    let mut ring = match settings.ring().raw() {
        // A queue without a ring stops; it keeps the buffer of the one it had.
        0 => None,
        // The ring that it has cannot be unmapped meanwhile.
        _ if same_ring => None,
        _ => {
            let properties = device.queues().properties(id)?;
            let ring = [mapped(properties.ring(&settings)).map_err(|_| EFAULT)?];
            let vm = device.vm()?.clone();
            let buffers = QueueBuffers::get(vm, &ring);
            Some(buffers.map_err(|error| if error == EINVAL { EFAULT } else { error })?)
        }
    };
    if settings.is_like(&kept) {
        return device.queues().check_changeable(id);
    }
    let result = if settings.is_described_like(&kept) {
        device.queues().set_runs(id, settings)
    } else {
        // With another ring the old one is let go when the hardware no longer reads it; if it still
        // may, the new one is.
        device.queues().rewrite(id, &mut |queue| {
            queue.apply_settings(settings);
            if let Some(ring) = &mut ring {
                queue.swap_ring(ring);
            }
        })
    };
    device.node().notify_resets();
    trace_queue(QueueChange::Change, device, id, &result);
    result
}

/// SET_CU_MASK: one mask for each XCC of a compute queue; for a copy queue they mean nothing.
/// `EFAULT`: the process has no such queue. `EINVAL`: half a pair of compute units, where those
/// work together; as in C also for a copy queue, and beyond the units that there are.
pub(crate) fn set_cu_mask(process: &Process, id: u32, user: &[u32]) -> Result {
    let _turn = process.memory_lock();
    let (id, device) = find(process, id).ok_or(EFAULT)?;
    let node = device.node();
    let facts = node.facts();
    let engines = ShaderEngines {
        count: facts.max_shader_engines,
        arrays: facts.max_sh_per_se,
        pairs: node.generation().chip.cu_pairs,
    };
    if engines.pairs && !cu_mask::has_whole_pairs(user) {
        return Err(EINVAL);
    }
    let cus = facts.cu_count / facts.num_partitions.max(1);
    let first = node.xcc_mask().trailing_zeros();
    let mut masks = KVec::with_capacity(node.num_xcc() as usize, GFP_KERNEL)?;
    for xcc in 0..node.num_xcc() {
        let share = Share {
            xcc,
            xccs: node.num_xcc(),
            cus,
        };
        let bitmap = facts.cu_bitmap.get((first + xcc) as usize).ok_or(EINVAL)?;
        masks.push(cu_mask::spread(user, bitmap, engines, share), GFP_KERNEL)?;
    }
    let mut masks = Some(masks);
    let result = device
        .queues()
        .rewrite(id, &mut |queue| queue.swap_cu_masks(&mut masks));
    node.notify_resets();
    trace_queue(QueueChange::Change, device, id, &result);
    result
}
