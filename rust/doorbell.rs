// SPDX-License-Identifier: GPL-2.0-only

//! Doorbells: words of a PCI aperture that user space writes to tell a queue of new work.
//!
//! A process has one [`ProcessDoorbells`] per GPU, made when it is first needed and owned by the
//! process's `Queues` there: two pages of 8-byte doorbells, 1024 of them, which it maps as a whole.
//! A compute queue gets any that is free; the doorbells of copy queues are wired to their engines.
//! A doorbell's id counts within these pages; its index counts words on the whole aperture.

use crate::{
    gauge::{
        Gauge,
        Held, //
    },
    gfx::{
        Chip,
        SdmaPlace, //
    },
    ids::DoorbellIndex,
    kgd::GpuFacts,
    linux::task::{
        capable,
        Capability, //
    },
    sched::{
        doorbells::{
            DoorbellPool,
            DoorbellSlice,
            COUNT, //
        },
        slots::{
            SlotGuard,
            Slots, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    task::Kuid, //
};

/// Every other queue of a copy engine has its doorbell this much further
/// (`KFD_QUEUE_DOORBELL_MIRROR_OFFSET`), at the same place of the second page.
const MIRROR: usize = 512;

/// All doorbells that compute queues have.
pub(crate) static TAKEN: Gauge = Gauge::new();

/// The numbers of a process's doorbells on a GPU.
type Ids = Slots<{ COUNT / 64 }>;

/// A doorbell that a compute queue has taken.
pub(crate) struct DoorbellSlot {
    id: SlotGuard<Arc<Ids>, { COUNT / 64 }>,
    index: DoorbellIndex,
    _gauge: Held,
}

impl DoorbellSlot {
    /// Where it is on the aperture.
    pub(crate) fn index(&self) -> DoorbellIndex {
        self.index
    }

    /// Where it is in the process's pages.
    pub(crate) fn id(&self) -> usize {
        self.id.index()
    }
}

/// The doorbells of one process on one GPU.
pub(crate) struct ProcessDoorbells {
    slice: DoorbellSlice,
    ids: Arc<Ids>,
    doorbell_bytes: usize,
}

/// Whether a compute queue may have doorbell `id`: some of both pages belong to other engines.
fn is_for_compute(facts: &GpuFacts, id: usize) -> bool {
    let others = facts.non_cp_doorbells_start as usize..=facts.non_cp_doorbells_end as usize;
    !others.contains(&(id % MIRROR))
}

impl ProcessDoorbells {
    /// Takes pages of the aperture, for a process of that user's. `ENOMEM`: they are all taken, or
    /// the user, who has no CAP_SYS_RESOURCE, has half of them and no more than an eighth is free.
    pub(crate) fn new(
        pool: &Arc<DoorbellPool>,
        facts: &GpuFacts,
        chip: &Chip,
        user: Kuid,
    ) -> Result<Self> {
        let ids = Slots::with(|id| is_for_compute(facts, id));
        let ids = Arc::new(ids, GFP_KERNEL)?;
        let is_exempt = || capable(Capability::SysResource);
        Ok(Self {
            slice: pool.slice(user, is_exempt)?,
            ids,
            doorbell_bytes: chip.doorbell_bytes,
        })
    }

    /// The place of doorbell `id` on the aperture.
    fn index(&self, id: usize) -> Result<DoorbellIndex> {
        self.slice.index(id * self.doorbell_bytes)
    }

    /// Takes a doorbell for a compute queue. `EBUSY`: all are taken.
    pub(crate) fn take(&self) -> Result<DoorbellSlot> {
        self.slot(Slots::take(self.ids.clone()).ok_or(EBUSY)?)
    }

    /// Takes that one. `EINVAL`: it is taken, or not for compute queues.
    pub(crate) fn take_at(&self, id: usize) -> Result<DoorbellSlot> {
        self.slot(Slots::take_at(self.ids.clone(), id).ok_or(EINVAL)?)
    }

    fn slot(&self, id: SlotGuard<Arc<Ids>, { COUNT / 64 }>) -> Result<DoorbellSlot> {
        let index = self.index(id.index())?;
        let _gauge = TAKEN.hold();
        Ok(DoorbellSlot { id, index, _gauge })
    }

    /// The id and place of the doorbell of a copy queue at `place`, whose engine's doorbells begin
    /// at `base`.
    pub(crate) fn sdma(
        &self,
        base: usize,
        place: SdmaPlace,
        chip: &Chip,
    ) -> Result<(usize, DoorbellIndex)> {
        let base = base.next_multiple_of(chip.sdma_doorbell_granularity as usize);
        let (pair, odd) = (place.queue as usize / 2, place.queue as usize % 2);
        let id = base + pair + odd * MIRROR;
        if id >= COUNT {
            return Err(EINVAL);
        }
        Ok((id, self.index(id)?))
    }

    /// Bytes from the start of the pages to doorbell `id`: what user space adds to its mapping.
    pub(crate) fn offset(&self, id: usize) -> u64 {
        (id * self.doorbell_bytes) as u64
    }

    /// Where the CPU finds the pages.
    pub(crate) fn physical_address(&self) -> u64 {
        self.slice.physical_address()
    }
}
