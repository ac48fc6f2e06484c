// SPDX-License-Identifier: GPL-2.0-only

//! User queues: rings in a process's memory from which a GPU takes work without asking us.
//!
//! A [`Queue`] is its checked [`QueueProperties`] and what it has taken for them: an id, a
//! doorbell, room for its descriptor or a slot of a copy engine, and the user's buffers, which must
//! stay where they are. It exists from CREATE_QUEUE to DESTROY_QUEUE or the end of its process, and
//! owns all of that; dropping it gives everything back. Whether it is on the hardware is the
//! scheduler's to know: the firmware needs nothing more of a queue that runs than of one that
//! waits.
//!
//! A process has one [`Queues`] per GPU, embedded in its `ProcessDevice`.
//!
//! # Locking
//!
//! Requests of one process that concern queues take turns (`Process::memory_lock`). Beneath it lies
//! `Queues.inner`, which eviction and the end of the process take as well: nothing under it
//! allocates or waits for anything but the scheduler. Order: `Process.memory` → `Process.inner` →
//! `Queues.inner` → `Scheduler.inner`.

mod device;
mod new;
pub(crate) mod properties;
mod saved;

pub(crate) use device::{
    await_obedience,
    work_elsewhere,
    Named,
    QueueSnapshot,
    Queues,
    PATIENCE, //
};
pub(crate) use new::{
    mapped,
    Given,
    NewQueue, //
};
pub(crate) use saved::{
    QueueIdentity,
    SavedQueue, //
};

use crate::{
    doorbell::DoorbellSlot,
    gauge::{
        Gauge,
        Held, //
    },
    gfx::{
        ComputeFormat,
        ComputeQueue,
        CuMask,
        Engine,
        HwQueue,
        SavedWaves,
        SdmaQueue,
        XccMqd, //
    },
    gpu::Node,
    ids::{
        DoorbellIndex,
        QueueId, //
    },
    kgd::{
        gpu_err,
        QueueBuffers,
        Vm, //
    },
    sched::{
        memory::BoWindow,
        mqd_pool::MqdSlot,
        node::{
            QueueCount,
            SdmaSlot, //
        },
        slots::{
            SlotGuard,
            Slots, //
        },
        Descriptor,
        Key,
        NodeQueues, //
    },
    svm::PinnedPages,
};
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};
use properties::{
    QueueKind,
    QueueProperties, //
    QueueSettings,
};

/// All queues of all processes.
pub(crate) static QUEUES: Gauge = Gauge::new();

/// Ids of a process's queues, on all GPUs together.
pub(crate) type QueueIds = Slots<{ MAX_IDS / 64 }>;

/// How many there are (`KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`).
pub(crate) const MAX_IDS: usize = 1024;

/// What the queues of a process on a GPU need to know of the two.
pub(crate) trait Site {
    /// The GPU.
    fn node(&self) -> &Arc<Node>;
    /// The process's VM there. `ENODEV`: it has none yet.
    fn vm(&self) -> Result<&Arc<Vm>>;
}

/// What executes a queue, and what it took there.
enum Placement {
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

/// What sysfs shows of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFacts {
    pub(crate) ring_bytes: u32,
    /// `enum kfd_queue_type` (kfd_priv.h), which the file shows.
    pub(crate) kind: u32,
}

/// A user queue.
pub(crate) struct Queue {
    node: Arc<NodeQueues>,
    properties: QueueProperties,
    place: Placement,
    trap_handler: bool,
    /// Whether performance counters shall count it, if somebody has them or has said so.
    counts: Option<bool>,
    /// The user's buffers. The first is the ring; UPDATE_QUEUE may bring another.
    buffers: QueueBuffers,
    /// Its save area, if that is shared virtual memory.
    saved: Option<PinnedPages>,
    /// It was restored, and its save area is not kept yet: that is no buffer.
    awaits_area: bool,
    _counted: QueueCount,
    _gauge: Held,
    id: SlotGuard<Arc<QueueIds>, { MAX_IDS / 64 }>,
}

impl Queue {
    /// Takes another ring instead of its own, which is returned in `ring`.
    pub(crate) fn swap_ring(&mut self, ring: &mut QueueBuffers) {
        self.buffers.swap_first(ring);
    }

    /// Takes other masks of compute units, one for each XCC, and returns its own. A copy queue has
    /// none.
    pub(crate) fn swap_cu_masks(&mut self, masks: &mut Option<KVec<CuMask>>) {
        if let Placement::Compute { cu_masks, .. } = &mut self.place {
            core::mem::swap(cu_masks, masks);
        }
    }

    /// What the `xcc`th XCC has saved of a stopped queue, and the control stack that it has
    /// written. `EINVAL`: it is a copy queue.
    pub(crate) fn saved_waves(&self, xcc: u32) -> Result<(SavedWaves, BoWindow<'_>)> {
        let Placement::Compute { mqd, .. } = &self.place else {
            return Err(EINVAL);
        };
        let (descriptor, _) = mqd.mqd(xcc)?;
        let waves = self.node.generation().formats.mqd.saved_waves(&descriptor);
        Ok((waves, mqd.control_stack(xcc)))
    }

    /// Takes what UPDATE_QUEUE set.
    pub(crate) fn apply_settings(&mut self, settings: QueueSettings) {
        self.properties.apply_settings(settings);
        if let (Placement::Compute { format, .. }, Some(new)) =
            (&mut self.place, self.properties.compute_format())
        {
            *format = new;
        }
    }

    /// Shows it as `name value` pairs.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (properties, settings) = (&self.properties, self.properties.settings());
        let kind = match properties.kind() {
            QueueKind::Aql => "aql",
            QueueKind::Pm4 => "pm4",
            QueueKind::Sdma(_) => "sdma",
        };
        let (ring, bytes) = (settings.ring().raw(), settings.ring_bytes());
        write!(f, "type {kind} ring {ring:#x} bytes {bytes}")?;
        let read = properties.read_pointer().raw();
        let write = properties.write_pointer().raw();
        write!(f, " read_pointer {read:#x} write_pointer {write:#x}")?;
        let (doorbell, priority) = (self.doorbell_id(), settings.priority());
        let runs = u8::from(settings.runs());
        write!(f, " doorbell {doorbell} priority {priority} runs {runs}")
    }

    fn id(&self) -> Result<QueueId> {
        // CAST: less than `MAX_IDS`.
        QueueId::new(self.id.index() as u32).ok_or(EINVAL)
    }

    fn facts(&self) -> QueueFacts {
        let kind = match &self.place {
            Placement::Compute { .. } => 0,
            Placement::Sdma { slot, .. } if self.node.is_for_xgmi(slot.place().engine) => 3,
            Placement::Sdma { .. } => 1,
        };
        QueueFacts {
            ring_bytes: self.properties.settings().ring_bytes(),
            kind,
        }
    }

    /// Where the engine counts the time that it was busy with this queue: behind the read index.
    fn sdma_counter(&self) -> Option<u64> {
        let copies = matches!(self.place, Placement::Sdma { .. });
        copies.then_some(self.properties.read_pointer().raw().wrapping_add(8))
    }

    /// The doorbell of a compute queue, and whether its work is spread over all XCCs.
    fn compute_doorbell(&self) -> Option<(DoorbellIndex, bool)> {
        match &self.place {
            Placement::Compute {
                format, doorbell, ..
            } => Some((doorbell.index(), matches!(format, ComputeFormat::Aql))),
            Placement::Sdma { .. } => None,
        }
    }

    fn doorbell_id(&self) -> usize {
        match &self.place {
            Placement::Compute { doorbell, .. } => doorbell.id(),
            Placement::Sdma { doorbell_id, .. } => *doorbell_id,
        }
    }

    fn compute(&self, format: ComputeFormat, doorbell: DoorbellIndex) -> ComputeQueue {
        let settings = self.properties.settings();
        let saves = self.node.kgd().facts().cwsr_enable;
        ComputeQueue {
            format,
            ring: settings.ring(),
            ring_bytes: settings.ring_bytes(),
            read_pointer: self.properties.read_pointer(),
            write_pointer: self.properties.write_pointer(),
            doorbell,
            eop: self.properties.eop(),
            save_area: self.properties.save_area().filter(|_| saves),
            trap_handler: self.trap_handler,
            priority: settings.priority(),
        }
    }

    fn sdma(&self, slot: &SdmaSlot, doorbell: DoorbellIndex) -> SdmaQueue {
        let settings = self.properties.settings();
        SdmaQueue {
            ring: settings.ring(),
            ring_bytes: settings.ring_bytes(),
            read_pointer: self.properties.read_pointer(),
            doorbell,
            place: slot.place(),
        }
    }

    /// Writes the descriptors of a queue that is off the hardware: in full if the hardware has not
    /// seen it yet (`new`), and otherwise what has changed.
    fn write_descriptors(&self, new: bool) -> Result {
        let formats = self.node.generation().formats;
        match &self.place {
            Placement::Compute {
                format,
                mqd,
                doorbell,
                cu_masks,
            } => {
                let queue = self.compute(*format, doorbell.index());
                let xccs = self.node.xccs();
                let first = new.then(|| self.node.next_xcc());
                for xcc in 0..xccs {
                    let (_, address) = mqd.mqd(xcc)?;
                    let new = first.map(|first| XccMqd {
                        xcc,
                        address,
                        stride: mqd.stride(),
                        logical_xcc: first.wrapping_add(xcc) % xccs,
                    });
                    let masks = cu_masks.as_ref();
                    let mask = masks.and_then(|masks| masks.get(xcc as usize));
                    mqd.write(xcc, |words| {
                        match new {
                            Some(at) => formats.mqd.compute(words, at, &queue),
                            None => formats.mqd.update(words, xcc, &queue),
                        }
                        if let Some(counts) = self.counts {
                            formats.mqd.count_performance(words, counts);
                        }
                        if let Some(mask) = mask {
                            formats.mqd.set_cu_mask(words, *mask);
                        }
                    })?;
                }
                self.flush();
            }
            Placement::Sdma { slot, doorbell, .. } => {
                let (words, _) = self.node.memory().sdma_mqd(slot.place(), new)?;
                formats.sdma.encode(&words, &self.sdma(slot, *doorbell));
            }
        }
        Ok(())
    }

    /// Writes into the descriptors of a queue that is off the hardware whether it has the global
    /// wave sync.
    fn write_wave_sync(&self, on: bool) {
        let Placement::Compute { mqd, .. } = &self.place else {
            return;
        };
        let format = self.node.generation().formats.mqd;
        for xcc in 0..self.node.xccs() {
            let written = mqd.write(xcc, |words| format.spread_waves(words, on));
            if let Err(error) = written {
                self.report_incomplete(error);
            }
        }
        self.flush();
    }

    /// Changes the queue with `change`, and its descriptors, while it is off the hardware.
    /// `EACCES`: a queue of the process was reset; nothing changes.
    fn rewrite(&mut self, process: Key, key: Key, change: &mut dyn FnMut(&mut Self)) -> Result {
        let node = self.node.clone();
        node.scheduler().rewrite(process, key, &mut || {
            change(self);
            if let Err(error) = self.write_descriptors(false) {
                self.report_incomplete(error);
            }
            self.properties.settings().runs()
        })
    }

    fn report_incomplete(&self, error: Error) {
        let name = self.node.kgd().facts().pci_name();
        let id = self.id.index();
        gpu_err!(
            name,
            "queue {id}: its descriptor is incomplete: {error:?}\n"
        );
    }

    /// What was written into the GPU's memory reaches it before the GPU looks, or the processor.
    pub(crate) fn flush(&self) {
        if self.node.mqds().in_vram() {
            self.node.kgd().flush_hdp();
        }
    }

    /// What the scheduler is to know.
    fn map_queue(&self) -> Result<HwQueue> {
        let (engine, doorbell, mqd) = match &self.place {
            Placement::Compute { mqd, doorbell, .. } => {
                (Engine::Compute, doorbell.index(), mqd.mqd(0)?.1)
            }
            Placement::Sdma { slot, doorbell, .. } => {
                let (_, mqd) = self.node.memory().sdma_mqd(slot.place(), false)?;
                (Engine::Sdma(slot.place().engine), *doorbell, mqd)
            }
        };
        Ok(HwQueue {
            engine,
            doorbell,
            mqd,
            write_pointer: self.properties.write_pointer(),
            wave_sync: false,
        })
    }

    /// Where the CPU finds its descriptors.
    fn descriptor(&self) -> Descriptor {
        match &self.place {
            Placement::Compute { mqd, .. } => mqd.descriptor(),
            Placement::Sdma { slot, .. } => self.node.memory().sdma_descriptor(slot.place()),
        }
    }
}
