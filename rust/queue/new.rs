// SPDX-License-Identifier: GPL-2.0-only

//! A queue that is being made: it takes all that it needs, and writes its descriptors.
//!
//! What was taken is owned by what is being made: an error on the way gives it back.

use super::{
    device::{
        Debugged,
        Scheduled, //
    },
    properties::{
        Extent,
        QueueProperties, //
    },
    Placement,
    Queue,
    QueueIds,
    SavedQueue,
    Site,
    QUEUES, //
};
use crate::{
    doorbell::ProcessDoorbells,
    ids::{
        GpuVa,
        QueueId, //
    },
    kgd::{
        QueueBuffer,
        QueueBuffers,
        MAX_QUEUE_BUFFERS, //
    },
    sched::{
        slots::Slots,
        Key,
        NewSchedQueue,
        NodeQueues, //
    },
    svm::{
        Pages,
        PinnedPages,
        Svm, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    rbtree::RBTreeNode,
    sync::Arc, //
};

/// What a new queue gets of its process, beside the buffers that its properties name.
pub(crate) struct Given<'a> {
    pub(crate) doorbells: &'a ProcessDoorbells,
    /// Queues that the process has on the GPU.
    pub(crate) present: usize,
    pub(crate) ids: &'a Arc<QueueIds>,
    /// Whether waves that trap go to a handler.
    pub(crate) trap_handler: bool,
    /// The process's shared virtual memory, and the GPU's place there.
    pub(crate) svm: Option<(&'a Arc<Svm>, usize)>,
    /// The queue is restored of this one.
    pub(crate) saved: Option<&'a SavedQueue<'a>>,
}

/// A queue that no scheduler knows yet, with what taking it in needs: nothing is allocated then.
pub(crate) struct NewQueue {
    id: QueueId,
    doorbell_id: usize,
    pub(super) entry: NewSchedQueue,
    pub(super) node: RBTreeNode<QueueId, Scheduled>,
}

impl NewQueue {
    /// Makes a queue of a process on a GPU. The errors are those of the ABI, and so is their order.
    pub(crate) fn make(
        site: &impl Site,
        properties: &QueueProperties,
        given: Given<'_>,
    ) -> Result<Self> {
        let saved = given.saved;
        let scheduled = make(site, properties, given)?;
        let Scheduled { key, queue, .. } = &scheduled;
        queue.write_descriptors(true)?;
        if let Some(saved) = saved {
            queue.take_over(saved)?;
        }
        let (id, doorbell_id) = (queue.id()?, queue.doorbell_id());
        let runs = queue.properties.settings().runs();
        let entry = NewSchedQueue::new(*key, queue.map_queue()?, runs, queue.descriptor())?;
        Ok(Self {
            id,
            doorbell_id,
            entry,
            node: RBTreeNode::new(id, scheduled, GFP_KERNEL)?,
        })
    }

    /// Its name.
    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// The number of its doorbell in the process's pages.
    pub(crate) fn doorbell_id(&self) -> usize {
        self.doorbell_id
    }
}

/// A queue with all that it needs to have taken. Inlined: it is large, and copied when it returns.
#[inline(always)]
fn make(site: &impl Site, properties: &QueueProperties, given: Given<'_>) -> Result<Scheduled> {
    let Given {
        doorbells,
        present,
        ids,
        trap_handler,
        svm,
        saved,
    } = given;
    let node = site.node().queues().clone();
    let svm = svm.filter(|_| saved.is_none());
    let Pinned {
        buffers,
        area,
        awaits_area,
    } = pin(site, &node, properties, (svm, saved.is_some()))?;
    let features = &node.generation().chip;
    if present >= features.queues_per_process {
        return Err(ENOSPC);
    }
    let id = match saved {
        Some(saved) => Slots::take_at(ids.clone(), saved.id.raw() as usize).ok_or(ENOSPC)?,
        None => Slots::take(ids.clone()).ok_or(ENOMEM)?,
    };
    let counted = node.count()?;
    let place = match (properties.kind().choice(), properties.compute_format()) {
        (Some(choice), _) => {
            let slot = match saved {
                Some(saved) => node.take_sdma_at(choice, saved.sdma_number)?,
                None => node.take_sdma(choice)?,
            };
            let base = node.sdma_doorbells(slot.place().engine)?;
            let (doorbell_id, doorbell) = doorbells.sdma(base, slot.place(), features)?;
            // It is wired to the engine.
            if saved.is_some_and(|saved| saved.doorbell_id != doorbell_id) {
                return Err(EINVAL);
            }
            Placement::Sdma {
                slot,
                doorbell,
                doorbell_id,
            }
        }
        (None, format) => Placement::Compute {
            format: format.ok_or(EINVAL)?,
            doorbell: match saved {
                Some(saved) => doorbells.take_at(saved.doorbell_id)?,
                None => doorbells.take()?,
            },
            mqd: node.mqds().take()?,
            cu_masks: None,
        },
    };
    // Copy queues have no counters.
    let counted_too =
        matches!(place, Placement::Compute { .. }) && site.node().profiler().is_taken();
    Ok(Scheduled {
        key: Key::next(),
        debugged: Debugged::NEW,
        queue: Queue {
            trap_handler,
            counts: counted_too.then_some(true),
            node,
            properties: *properties,
            place,
            buffers,
            saved: area,
            awaits_area,
            _counted: counted,
            _gauge: QUEUES.hold(),
            id,
        },
    })
}

/// The mapping that a queue needs there.
pub(crate) fn mapped(extent: Extent) -> Result<QueueBuffer> {
    Ok(QueueBuffer {
        address: GpuVa::new(extent.address).ok_or(EINVAL)?,
        size: extent.bytes,
    })
}

/// What a queue needs to stay where it is.
struct Pinned {
    buffers: QueueBuffers,
    /// Its save area, if that is shared virtual memory.
    area: Option<PinnedPages>,
    /// It is none, and no buffer either.
    awaits_area: bool,
}

/// Keeps the user's buffers of a queue where they are: its ring first. Its save area may be shared
/// virtual memory; that of a queue which is `restored` has yet to become it then. What the ring of
/// such a queue is for beside its packets (`metadata_ring_size`) is not known any more, and it has
/// none if UPDATE_QUEUE has taken it: that may bring one.
fn pin(
    site: &impl Site,
    node: &NodeQueues,
    properties: &QueueProperties,
    (svm, restored): (Option<(&Arc<Svm>, usize)>, bool),
) -> Result<Pinned> {
    let eop = node.generation().chip.eop_buffer_bytes;
    let buffers = properties.buffers(node.save_sizes(), node.xccs(), eop);
    let buffers = buffers.ok_or(EINVAL)?;
    let mut ring = mapped(buffers.ring)?;
    if restored {
        ring.size = 0;
    }
    let others = [
        Some(buffers.write_pointer),
        Some(buffers.read_pointer),
        buffers.eop,
        buffers.save_area,
    ];
    let mut all = [ring; MAX_QUEUE_BUFFERS];
    let mut count = 1;
    for (place, extent) in all.iter_mut().skip(1).zip(others.into_iter().flatten()) {
        *place = mapped(extent)?;
        count += 1;
    }
    let vm = site.vm()?;
    let has_ring = !restored || properties.settings().ring().raw() != 0;
    let get = |count: usize| -> Result<QueueBuffers> {
        let wanted = all.get(..count).ok_or(EINVAL)?;
        match wanted {
            [_, others @ ..] if !has_ring => QueueBuffers::get_others(vm.clone(), others),
            _ => QueueBuffers::get(vm.clone(), wanted),
        }
    };
    // Without the last one, which is the save area.
    let others = || get(count - 1);
    let (buffers, area, awaits_area) = match (get(count), svm, buffers.save_area) {
        (Err(error), Some((svm, gpu)), Some(area)) if error == EINVAL => {
            let others = others()?;
            (
                others,
                Some(PinnedPages::new(svm, gpu, area.pages()?)?),
                false,
            )
        }
        (Err(error), None, Some(_)) if error == EINVAL && restored => (others()?, None, true),
        (buffers, ..) => (buffers?, None, false),
    };
    Ok(Pinned {
        buffers,
        area,
        awaits_area,
    })
}

impl Extent {
    /// Its pages.
    pub(crate) fn pages(self) -> Result<Pages> {
        let page = PAGE_SIZE as u64;
        let end = self.address.checked_add(self.bytes).ok_or(EINVAL)?;
        Ok(Pages::new(self.address / page, end.div_ceil(page)))
    }
}
