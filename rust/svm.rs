// SPDX-License-Identifier: GPL-2.0-only

//! Shared virtual memory (SVM): a process's own address space, as its GPUs see it.
//!
//! One [`Svm`] for each process. User space gives areas attributes ([`ranges`]): who may access
//! them, and how. With XNACK a GPU that misses a page faults, and gets it then ([`fault`]);
//! without, all GPUs that may access an area see it from SET_ATTR on ([`set`]), and when the system
//! takes pages away ([`region`]) the process's queues stop until they are back ([`restore`]). Pages
//! may be in a GPU's memory ([`migrate`], [`block`]).
//!
//! The address space is cut into granules of 2 MiB ([`granule`]), in which all of this happens side
//! by side, and into regions of 256 MiB, which watch it. Both are made when they are needed.
//!
//! Locks, outer to inner: a granule's turn, `mmap_lock`, `changing`, a VM's page tables, `regions`,
//! a region's contents, a granule's state, `book`. Notifiers run under reclaim: what they take,
//! a region's contents, a granule's state, `evicting` and `pins`, is never held across an
//! allocation that reclaims. `changing` is the lock of ioctls that change attributes; nothing is
//! mapped under it, and who holds it waits for no program.

pub(crate) mod attributes;
pub(crate) mod block;
mod claim;
mod fault;
mod granule;
mod home;
mod map;
mod migrate;
pub(crate) mod page_bits;
pub(crate) mod pages;
mod pin;
pub(crate) mod places;
mod ranges;
mod region;
mod restore;
mod saved;
mod set;
mod show;
pub(crate) mod sleep;
mod tests;
mod told;
mod unmapped;

pub(crate) use attributes::{
    Attribute,
    Common,
    MAX_GPUS, //
};
pub(crate) use fault::Fault;
pub(crate) use granule::GRANULES;
pub(crate) use pages::Pages;
pub(crate) use pin::Pin as PinnedPages;
pub(crate) use region::REGIONS;
pub(crate) use saved::Stated;
pub(crate) use told::{
    Counters,
    Subject, //
};

use crate::{
    gpu::{
        Node,
        NodeUser, //
    },
    kgd::{
        Kgd,
        Vm, //
    },
    linux::{
        hmm::Watched,
        workqueue::{
            flush_delayed,
            OwnedQueue, //
        },
    },
    uapi::{
        KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED,
        KFD_IOCTL_SVM_FLAG_GPU_EXEC,
        KFD_IOCTL_SVM_FLAG_GPU_RO, //
    },
};
use attributes::{
    Attributes,
    GpuSet, //
};
use granule::Granule;
use kernel::{
    mm::{
        Mm,
        MmWithUser,
        MmWithUserAsync, //
    },
    new_delayed_work, new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            ordering::{
                Acquire,
                Relaxed,
                Release, //
            },
            Atomic, //
        },
        lock::mutex::MutexGuard,
        Arc,
        Mutex,
        SetOnce, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        impl_has_delayed_work,
        DelayedWork, //
    },
};
use pages::PAGE_SHIFT;
use places::Member;
use ranges::Ranges;
use region::{
    Region,
    RegionUse,
    REGION_PAGES, //
};

/// Whether processes have it: the module parameter `svm`.
static ENABLED: Atomic<bool> = Atomic::new(false);

/// Says whether processes have it, before there are any.
pub(crate) fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Relaxed);
}

/// Whether processes have it.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// Whether a GPU can have a part in it (`KFD_IS_SVM_API_SUPPORTED`): amdgpu has made pages of its
/// memory, or its memory is the system's. That is known when amdgpu is done with the device. Pages
/// move only to where the CPU does not reach them (`Gpu::memory`).
pub(crate) fn is_supported(kgd: &dyn Kgd) -> bool {
    kgd.facts().prefers_gtt || kgd.has_pages()
}

/// One of the process's GPUs.
struct Gpu {
    /// From ACQUIRE_VM on.
    vm: SetOnce<Arc<Vm>>,
    /// Retry faults up to this time stamp were there before pages were taken away; 0: none were.
    checkpoint: Atomic<u64>,
    counters: Arc<Counters>,
    /// It can have a part in shared virtual memory.
    is_supported: bool,
    /// Last: the device may go when all have let go of it.
    node: NodeUser,
}

impl Gpu {
    fn vm(&self) -> Result<&Arc<Vm>> {
        self.vm.as_ref().ok_or(ENODEV)
    }

    fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The pages that its page tables have entries for, and the driver leaves to user space.
    fn reach(&self) -> Pages {
        let facts = self.node().facts();
        let left = facts.gpuvm_size >> PAGE_SHIFT;
        Pages::new(0, left.min(facts.max_pfn))
    }
}

/// The process whose memory it is.
pub(crate) trait Host: Send + Sync {
    /// Takes its queues off the GPUs, until as many calls of `restore` follow. May run under
    /// reclaim.
    fn evict(&self);
    /// Waits for a GPU that did not obey that, though not for ever. May run under reclaim.
    fn await_eviction(&self);
    /// Undoes one eviction.
    fn restore(&self);
    /// That has to wait: not all pages are back.
    fn restore_postponed(&self);
    /// Has whoever rings a doorbell of its call [`Svm::hurry`]. `EAGAIN`: not now, the lock of the
    /// address space (mmap_lock) is taken.
    fn doze(&self, mm: &MmWithUser) -> Result;
}

/// What user space has said of the address space.
struct Book {
    ranges: Ranges,
    /// Where buffers are about to be mapped ([`claim`]).
    claims: KVec<Pages>,
    /// Pages that are charged to what all processes may have.
    charged: u64,
}

impl Book {
    fn new() -> Self {
        Self {
            ranges: Ranges::new(),
            claims: KVec::new(),
            charged: 0,
        }
    }
}

/// Why the queues are off the hardware.
struct Evicting {
    /// They are.
    evicted: bool,
    /// Notifiers that need them off at the moment.
    busy: usize,
    /// When all pages were back last, and how long that took.
    restored: Option<(Instant<Monotonic>, Delta)>,
    /// How often in a row pages were taken soon after that.
    again: u32,
    /// Pages are not brought back before, unless somebody needs them.
    due: Option<Instant<Monotonic>>,
    /// Whoever needs them says so.
    dozing: bool,
}

/// Names the work that forgets attributes of what was unmapped.
const SETTLE: u64 = 0;
/// Names the work that brings pages back.
const RESTORE: u64 = 1;
/// Names the work that takes pages from GPUs that could not be taken when they should have been.
const RETRY: u64 = 2;

/// By whom work is done for an address space.
pub(crate) struct Workers {
    /// Rests while the machine sleeps, or is about to.
    pub(crate) pages: &'static OwnedQueue,
    /// Empties blocks, also then.
    pub(crate) blocks: &'static OwnedQueue,
    /// How many of the first the user has.
    pub(crate) member: Member,
}

/// Proof that nobody else changes attributes.
type Changing<'a> = MutexGuard<'a, ()>;

/// The shared virtual memory of a process.
#[pin_data]
pub(crate) struct Svm {
    gpus: KVec<Gpu>,
    mm: ARef<Mm>,
    subject: Subject,
    host: KBox<dyn Host>,
    workers: Workers,
    /// How often in a row there was no place for a worker.
    refused: Atomic<u32>,
    /// How many pages move together where user space has not said, as a power of two.
    granularity: u8,
    /// The pages that can have attributes: those that all GPUs reach that can have a part in it.
    reach: Pages,
    /// Faulting accesses are retried.
    xnack: Atomic<bool>,
    /// The process ends: nothing is mapped any more.
    ended: Atomic<bool>,
    /// Pages have to come back, or could not be taken away: there is something to restore.
    lost: Atomic<bool>,
    /// How often in a row not all could be brought back.
    failures: Atomic<u32>,
    /// Pages that the system took away since they began to be brought back.
    taken: Atomic<u64>,
    #[pin]
    changing: Mutex<()>,
    #[pin]
    book: Mutex<Book>,
    #[pin]
    regions: Mutex<RBTree<u64, Watched<Region>>>,
    #[pin]
    evicting: Mutex<Evicting>,
    #[pin]
    pins: Mutex<KVec<Pages>>,
    /// Regions of which pages were unmapped that may have attributes still.
    unmapped: Atomic<usize>,
    #[pin]
    settling: DelayedWork<Svm, SETTLE>,
    #[pin]
    restoring: DelayedWork<Svm, RESTORE>,
    #[pin]
    retrying: DelayedWork<Svm, RETRY>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, SETTLE> for Svm { self.settling }
    impl HasDelayedWork<Self, RESTORE> for Svm { self.restoring }
    impl HasDelayedWork<Self, RETRY> for Svm { self.retrying }
}

impl Svm {
    /// The memory of the address space `mm`, for GPUs in this order.
    pub(crate) fn new<'a>(
        nodes: impl Iterator<Item = (&'a Arc<Node>, &'a Arc<Counters>)>,
        (mm, subject): (ARef<Mm>, Subject),
        xnack: bool,
        host: KBox<dyn Host>,
        workers: Workers,
    ) -> Result<Arc<Self>> {
        let mut gpus = KVec::new();
        for (node, counters) in nodes.take(MAX_GPUS) {
            let gpu = Gpu {
                vm: SetOnce::new(),
                checkpoint: Atomic::new(0),
                counters: counters.clone(),
                is_supported: is_supported(&**node.kgd()),
                node: NodeUser::new(node.clone()),
            };
            gpus.push(gpu, GFP_KERNEL)?;
        }
        let first = gpus.first().ok_or(ENODEV)?;
        let granularity = first.node().kgd().default_granularity();
        let supported = gpus.iter().filter(|gpu| gpu.is_supported);
        let reach = supported.fold(Pages::ALL, |reach, gpu| {
            Pages::new(0, reach.end.min(gpu.reach().end))
        });
        let svm = try_pin_init!(Self {
            gpus,
            mm,
            subject,
            host,
            workers,
            refused: Atomic::new(0),
            granularity,
            reach,
            xnack: Atomic::new(xnack),
            ended: Atomic::new(false),
            lost: Atomic::new(false),
            failures: Atomic::new(0),
            taken: Atomic::new(0),
            changing <- new_mutex!((), "amdkfd::Svm::changing"),
            book <- new_mutex!(Book::new(), "amdkfd::Svm::book"),
            regions <- new_mutex!(RBTree::new(), "amdkfd::Svm::regions"),
            evicting <- new_mutex!(
                Evicting::new(),
                "amdkfd::Svm::evicting"
            ),
            pins <- new_mutex!(KVec::new(), "amdkfd::Svm::pins"),
            unmapped: Atomic::new(0),
            settling <- new_delayed_work!("amdkfd::Svm::settling"),
            restoring <- new_delayed_work!("amdkfd::Svm::restoring"),
            retrying <- new_delayed_work!("amdkfd::Svm::retrying"),
        });
        Arc::pin_init(svm, GFP_KERNEL)
    }

    /// The GPU at that place of the list has a VM now.
    pub(crate) fn set_vm(&self, place: usize, vm: &Arc<Vm>) {
        if let Some(gpu) = self.gpus.get(place) {
            gpu.vm.populate(vm.clone());
        }
    }

    /// The process ends, and its queues are off the GPUs: no GPU sees its pages any more, and no
    /// notifier runs, when this returns.
    pub(crate) fn end(&self) {
        self.ended.store(true, Release);
        self.gpus.iter().for_each(|gpu| gpu.counters.end());
        // Whoever maps has seen that, or is done.
        loop {
            let region = {
                let mut regions = self.regions.lock();
                let first = regions.cursor_front_mut();
                first.map(|first| first.remove_current().1)
            };
            let Some(region) = region else {
                break;
            };
            let (_, region) = region.to_key_value();
            region.wait_for_users();
            region.take_all();
        }
        // The first one may have waited for a run that asks for another one, which finds the end. A
        // run of `settling` may ask for `restoring`, too, and one of `retrying` for `settling`.
        flush_delayed(&self.retrying);
        flush_delayed(&self.settling);
        flush_delayed(&self.settling);
        flush_delayed(&self.restoring);
        flush_delayed(&self.restoring);
        self.forget_all();
    }

    /// Whether attributes may name the GPU at that place of the list.
    pub(crate) fn is_for(&self, place: usize) -> bool {
        self.gpus.get(place).is_some_and(|gpu| gpu.is_supported)
    }

    /// All GPUs that can have a part in it.
    fn all_gpus(&self) -> GpuSet {
        let all = GpuSet::first(self.gpus.len());
        let others = all.iter().filter(|place| !self.is_for(*place));
        others.fold(all, GpuSet::without)
    }

    fn xnack(&self) -> bool {
        self.xnack.load(Acquire)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// The address space, while somebody runs in it. `ESRCH`: nobody does any more. Whoever lets go
    /// of it last leaves its end to a worker.
    fn users_mm(&self) -> Result<ARef<MmWithUserAsync>> {
        let mm = self.mm.mmget_not_zero().ok_or(ESRCH)?;
        Ok(MmWithUser::into_mmput_async(mm))
    }

    /// What is said of a range of which nothing was said.
    fn default_attributes(&self) -> Attributes {
        let access = if self.xnack() {
            self.all_gpus()
        } else {
            GpuSet::EMPTY
        };
        Attributes::new(self.granularity, access)
    }

    /// The region that a page is in, if there is one.
    fn region_of(&self, page: u64) -> Option<RegionUse> {
        let regions = self.regions.lock();
        if self.has_ended() {
            return None;
        }
        Some(RegionUse::new(regions.get(&(page / REGION_PAGES))?))
    }

    /// The region that a page is in, made if there is none. `ESRCH`: the process ends.
    fn make_region(self: &Arc<Self>, page: u64, mm: &MmWithUser) -> Result<RegionUse> {
        if let Some(region) = self.region_of(page) {
            return Ok(region);
        }
        let index = page / REGION_PAGES;
        // First: what is noted of a region that is watched is to be forgotten if it goes again.
        let place = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let region = Region::new(self.clone(), index, mm)?;
        // Where something is being unmapped the kernel begins to tell of it later. Now it does.
        // SAFETY: `region` is what watches it.
        let _ = unsafe { region.interval.begin() };
        let known = Arc::clone(&region);
        let node = place.into_node(index, region);
        let (used, unused) = {
            let mut regions = self.regions.lock();
            let is_known = regions.get(&index).is_some();
            let unused = match self.has_ended() || is_known {
                true => Some(node),
                false => regions.insert(node),
            };
            // Used from here on: else who forgets what was unmapped could watch it no longer.
            let used = match self.has_ended() {
                true => None,
                false => regions.get(&index).map(RegionUse::new),
            };
            (used, unused)
        };
        if let Some(unused) = unused {
            // Not under the lock: it waits for notifiers.
            drop(unused);
            // Nobody was told of it but that region, which was not looked into.
            known.forget_unmapped();
        }
        let used = used.ok_or(ESRCH)?;
        if used.has_unmapped() {
            // Whoever was to see to it may not have found it.
            self.settle_soon();
        }
        Ok(used)
    }

    /// The granule that a page is in, with its region; both are made if they are not there.
    fn make_granule(
        self: &Arc<Self>,
        page: u64,
        mm: &MmWithUser,
    ) -> Result<(RegionUse, Arc<Granule>)> {
        let region = self.make_region(page, mm)?;
        let granule = region.make_granule(page)?;
        Ok((region, granule))
    }

    /// The ranges in an area, cut to it.
    fn ranges_in(&self, pages: Pages) -> Result<KVec<(Pages, Attributes)>> {
        let mut ranges = KVec::new();
        let mut result = Ok(());
        self.book.lock().ranges.each(pages, |pages, attributes| {
            if result.is_ok() {
                result = ranges.push((pages, *attributes), GFP_KERNEL);
            }
        });
        result?;
        Ok(ranges)
    }
}

impl Attributes {
    /// The GPUs that may access the range.
    fn accessible(&self) -> GpuSet {
        self.access.union(self.in_place)
    }

    fn is_read_only(&self) -> bool {
        self.flags & KFD_IOCTL_SVM_FLAG_GPU_RO != 0
    }

    fn is_executable(&self) -> bool {
        self.flags & KFD_IOCTL_SVM_FLAG_GPU_EXEC != 0
    }

    /// GPUs see the range always, also where they retry accesses.
    fn is_always_mapped(&self) -> bool {
        self.flags & KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED != 0
    }
}
