// SPDX-License-Identifier: GPL-2.0-only

//! What others hear of shared virtual memory: SMI events, and counters in sysfs.

use super::{attributes::Location, pages::Pages, Fault, Gpu, Svm};
use crate::{
    ids::Serial,
    linux::trace::{
        self,
        Area, //
    },
    smi::{
        Listeners,
        MemoryEvent,
        SmiEvent, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
};

/// What happened to a process's memory on one GPU, since it has begun.
pub(crate) struct Counters {
    /// Retry faults that were served, or refused.
    faults: Atomic<u64>,
    /// Pages that came into the GPU's memory, and that left it again.
    page_in: Atomic<u64>,
    page_out: Atomic<u64>,
    /// Bytes of the GPU's memory that blocks have.
    vram: Atomic<u64>,
    /// The process has ended: another one may have its number.
    ended: Atomic<bool>,
}

impl Counters {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        Self {
            faults: Atomic::new(0),
            page_in: Atomic::new(0),
            page_out: Atomic::new(0),
            vram: Atomic::new(0),
            ended: Atomic::new(false),
        }
    }

    /// The process ends: nobody hears of it any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    pub(super) fn add_fault(&self) {
        self.faults.add(1, Relaxed);
    }

    pub(super) fn add_in(&self, pages: u32) {
        self.page_in.add(pages.into(), Relaxed);
    }

    pub(super) fn add_out(&self, pages: u32) {
        self.page_out.add(pages.into(), Relaxed);
    }

    /// Retry faults that were served, or refused.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Pages that came into the GPU's memory.
    pub(crate) fn page_in(&self) -> u64 {
        self.page_in.load(Relaxed)
    }

    /// Pages that left it.
    pub(crate) fn page_out(&self) -> u64 {
        self.page_out.load(Relaxed)
    }

    /// Bytes of the GPU's memory that are the process's as shared virtual memory.
    pub(crate) fn vram(&self) -> u64 {
        self.vram.load(Relaxed)
    }
}

/// Memory in VRAM that is counted as the process's until this is dropped.
pub(super) struct Usage {
    counters: Arc<Counters>,
    bytes: u64,
}

impl Drop for Usage {
    fn drop(&mut self) {
        let _: u64 = self.counters.vram.fetch_sub(self.bytes, Relaxed);
    }
}

/// The process that events are about, as its own pid namespace calls it and as the whole system
/// does.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) pid: i32,
    pub(crate) tgid: i32,
    /// Whom events may be shown to.
    pub(crate) of: Serial,
}

/// A migration, as events tell of it.
#[derive(Clone, Copy)]
pub(super) struct Told {
    pub(super) pages: Pages,
    /// The ids of GPUs; 0: the system.
    pub(super) from: u32,
    pub(super) to: u32,
    /// `KFD_MIGRATE_TRIGGER_*`.
    pub(super) trigger: u32,
}

/// Who hears of a block, whose process may have ended.
pub(super) struct Audience {
    listeners: Arc<Listeners>,
    subject: Subject,
    /// The id of the GPU whose memory it is.
    gpu: u32,
    counters: Arc<Counters>,
    /// The ids of the GPUs where its range was to be prefetched to, and is preferred.
    prefetch: Atomic<u32>,
    preferred: Atomic<u32>,
}

impl Audience {
    /// Nobody, for tests.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn nobody() -> Result<Self> {
        Ok(Self {
            listeners: Listeners::new()?,
            subject: Subject {
                pid: 1,
                tgid: 1,
                of: Serial::next(),
            },
            gpu: 1,
            counters: Arc::new(Counters::new(), GFP_KERNEL)?,
            prefetch: Atomic::new(0),
            preferred: Atomic::new(0),
        })
    }

    /// The locations of the range whose pages are put into the block.
    pub(super) fn set_locations(&self, (prefetch, preferred): (u32, u32)) {
        self.prefetch.store(prefetch, Relaxed);
        self.preferred.store(preferred, Relaxed);
    }

    /// Counts so many pages as the process's.
    pub(super) fn count(&self, pages: Pages) -> Usage {
        let bytes = pages.bytes();
        let _: u64 = self.counters.vram.fetch_add(bytes, Relaxed);
        Usage {
            counters: self.counters.clone(),
            bytes,
        }
    }

    fn tell(&self, event: MemoryEvent) {
        // Its number may be somebody else's, who is not to hear of a child's memory.
        if self.counters.ended.load(Relaxed) {
            return;
        }
        self.listeners.notify(SmiEvent::Memory {
            pid: self.subject.pid,
            of: self.subject.of,
            event,
        });
    }

    /// Calls `act`, which moves pages of the block into system memory and returns how many have
    /// moved. `trigger`: `KFD_MIGRATE_TRIGGER_*`.
    pub(super) fn watch_return(
        &self,
        pages: Pages,
        trigger: u32,
        act: impl FnOnce() -> Result<u32>,
    ) -> Result<u32> {
        self.tell(MemoryEvent::MigrationBegins {
            page: pages.start,
            count: pages.len(),
            from: self.gpu,
            to: 0,
            prefetch: self.prefetch.load(Relaxed),
            preferred: self.preferred.load(Relaxed),
            trigger,
        });
        let moved = act();
        let error = moved.map_or_else(Error::to_errno, |_| 0);
        let (pid, way) = (self.subject.tgid, (self.gpu, 0));
        trace::svm_migrate(pid, pages.into(), way, trigger, error);
        self.tell(MemoryEvent::MigrationEnds {
            page: pages.start,
            count: pages.len(),
            from: self.gpu,
            to: 0,
            trigger,
            error,
        });
        if let Ok(count) = moved {
            self.counters.add_out(count);
        }
        moved
    }
}

impl Svm {
    /// Who hears of a block in a GPU's memory.
    pub(super) fn audience(&self, gpu: &Gpu) -> Audience {
        Audience {
            listeners: gpu.node().listeners().clone(),
            subject: self.subject,
            gpu: gpu.node().id().raw(),
            counters: gpu.counters.clone(),
            prefetch: Atomic::new(0),
            preferred: Atomic::new(0),
        }
    }

    /// The ids of the GPUs at two locations, as events have them.
    pub(super) fn ids_at(&self, locations: (Location, Location)) -> (u32, u32) {
        (self.id_at(locations.0), self.id_at(locations.1))
    }

    fn tell(&self, gpu: usize, event: MemoryEvent) {
        if let Some(gpu) = self.gpus.get(gpu) {
            gpu.node().listeners().notify(SmiEvent::Memory {
                pid: self.subject.pid,
                of: self.subject.of,
                event,
            });
        }
    }

    /// The id of the GPU at a place; 0: there is none.
    pub(super) fn id_of(&self, gpu: usize) -> u32 {
        self.gpus.get(gpu).map_or(0, |gpu| gpu.node().id().raw())
    }

    fn id_at(&self, location: Location) -> u32 {
        location.value(|gpu| Some(self.id_of(gpu)))
    }

    /// A fault begins to be served.
    pub(super) fn tell_fault(&self, gpu: usize, fault: Fault) {
        let event = MemoryEvent::FaultBegins {
            gpu: self.id_of(gpu),
            page: fault.page,
            write: fault.write,
        };
        self.tell(gpu, event);
    }

    /// It has been, and whether pages were moved for it.
    pub(super) fn tell_fault_end(&self, gpu: usize, fault: Fault, moved: bool) {
        let event = MemoryEvent::FaultEnds {
            gpu: self.id_of(gpu),
            page: fault.page,
            moved,
        };
        self.tell(gpu, event);
    }

    /// A GPU does not see pages any more.
    pub(super) fn tell_unmapped(&self, gpu: usize, pages: Pages, trigger: u32) {
        let event = MemoryEvent::Unmapped {
            gpu: self.id_of(gpu),
            page: pages.start,
            count: pages.len(),
            trigger,
        };
        self.tell(gpu, event);
    }

    /// Pages begin to move, of a range with these locations: those who listen to `gpu` hear of it.
    pub(super) fn tell_migration(&self, gpu: usize, told: Told, locations: (Location, Location)) {
        let event = MemoryEvent::MigrationBegins {
            page: told.pages.start,
            count: told.pages.len(),
            from: told.from,
            to: told.to,
            prefetch: self.id_at(locations.0),
            preferred: self.id_at(locations.1),
            trigger: told.trigger,
        };
        self.tell(gpu, event);
    }

    /// They have moved, or have not.
    pub(super) fn tell_migration_end(&self, gpu: usize, told: Told, result: Result) {
        let error = result.err().map_or(0, Error::to_errno);
        let way = (told.from, told.to);
        trace::svm_migrate(self.tgid(), told.pages.into(), way, told.trigger, error);
        let event = MemoryEvent::MigrationEnds {
            page: told.pages.start,
            count: told.pages.len(),
            from: told.from,
            to: told.to,
            trigger: told.trigger,
            error,
        };
        self.tell(gpu, event);
    }

    /// The process, as the whole system calls it.
    pub(super) fn tgid(&self) -> i32 {
        self.subject.tgid
    }
}

impl From<Pages> for Area {
    fn from(pages: Pages) -> Self {
        Self {
            start: pages.address(),
            pages: pages.len(),
        }
    }
}
