// SPDX-License-Identifier: GPL-2.0-only

//! A block: video memory for pages of a granule.
//!
//! The page at some place of an area always goes to the same place of its block, so that a page
//! that comes back needs no search. A block's memory is freed when the last of its pages has left,
//! which may be in another process: a child's. amdgpu may want it before; then a worker moves all
//! pages into system memory. Nothing here needs the process that made the block.

use super::{
    home::{
        bring_home,
        TOO_LARGE, //
    },
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    told::{
        Audience,
        Usage, //
    },
};
use crate::{
    gauge::{
        Gauge,
        Held, //
    },
    kgd::{
        gpu_err,
        gpu_warn,
        Copies,
        DeviceHandle,
        Direction,
        FaultEnd,
        Kgd,
        NewVram,
        Vram,
        VramOwner, //
    },
    linux::{
        errno,
        migrate::{
            Fault,
            Migration,
            Source,
            SystemPage,
            LARGE_PAGES, //
        },
        spinlock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
        workqueue::{
            DeferredArc,
            OwnedQueue, //
        },
    },
    uapi::{
        KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU,
        KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_TTM_EVICTION, //
    },
};
use kernel::{
    new_delayed_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        global_lock, Arc,
    },
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};

/// Blocks of all processes, and of those that have ended.
pub(crate) static BLOCKS: Gauge = Gauge::new();

/// A block's name in [`ALL`]: its device, and its address.
type Key = (DeviceHandle, usize);

global_lock! {
    // SAFETY: `prepare` below runs before anything else in the module.
    unsafe(uninit) static ALL: Mutex<Option<RBTree<Key, Arc<Block>>>> = None;
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn prepare() {
    // SAFETY: By this function's own contract.
    unsafe { ALL.init() };
}

/// Why pages leave: amdgpu wants their memory, or the processor has touched one.
const EVICTED: u32 = KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_TTM_EVICTION;
const TOUCHED: u32 = KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_PAGEFAULT_CPU;

/// Where a block is to be, and what for.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// The partition of the device whose memory is used; -1: there are none.
    pub(super) partition: i32,
    /// Its memory partition; `None`: the device has one.
    pub(super) memory: Option<i32>,
    /// For these pages of one granule.
    pub(super) pages: Pages,
}

/// What is under a block's lock.
struct Memory {
    /// Until the last page has left.
    vram: Option<DeferredArc<Vram>>,
    /// As long.
    usage: Option<Usage>,
    /// Who is about to put pages into it.
    movers: u32,
    /// amdgpu wants it: no page comes any more.
    wanted: bool,
}

/// A block.
#[pin_data]
pub(crate) struct Block {
    kgd: Arc<dyn Kgd>,
    queue: &'static OwnedQueue,
    /// The memory partition that it is in, if there are several.
    partition: Option<i32>,
    /// Whose place in it is which.
    pages: Pages,
    /// Who hears of it.
    audience: Audience,
    /// How often not all pages could be moved.
    failures: Atomic<u32>,
    #[pin]
    memory: IrqSpinLock<Memory>,
    #[pin]
    emptying: DelayedWork<Block>,
    _held: Held,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Block { self.emptying }
}

/// Puts pages into a block. Its memory stays until this is dropped.
pub(super) struct Mover {
    block: Arc<Block>,
    vram: DeferredArc<Vram>,
}

impl Drop for Mover {
    fn drop(&mut self) {
        let unused = {
            let mut memory = self.block.memory.lock();
            memory.movers -= 1;
            memory.take_if_unused()
        };
        self.block.let_go(unused);
    }
}

impl Memory {
    /// The memory, if nobody uses it or is about to.
    fn take_if_unused(&mut self) -> Option<DeferredArc<Vram>> {
        let unused = self.movers == 0 && self.vram.as_ref()?.taken() == 0;
        if unused {
            self.usage = None;
            self.vram.take()
        } else {
            None
        }
    }
}

impl Block {
    /// A new block on a device. Others may be evicted for it. The caller is about to put pages into
    /// it. `ENOMEM`: there is no memory.
    pub(super) fn make(
        kgd: Arc<dyn Kgd>,
        room: Room,
        audience: Audience,
        queue: &'static OwnedQueue,
    ) -> Result<Mover> {
        let memory = Memory {
            vram: None,
            usage: None,
            movers: 1,
            wanted: false,
        };
        let own = kgd.clone();
        let block = pin_init!(Self {
            kgd: own,
            queue,
            partition: room.memory,
            pages: room.pages,
            audience,
            failures: Atomic::new(0),
            memory <- new_irq_spinlock!(memory, "amdkfd::Block::memory"),
            emptying <- new_delayed_work!("amdkfd::Block::emptying"),
            _held: BLOCKS.hold(),
        });
        let block = Arc::pin_init(block, GFP_KERNEL)?;
        let new = NewVram {
            partition: room.partition,
            // CAST: at most a granule.
            pages: room.pages.len() as u32,
        };
        let vram = Vram::alloc(kgd, queue, new, block.clone())?;
        if block.publish(&vram)? {
            block.empty_later(0);
        }
        Ok(Mover { block, vram })
    }

    fn key(&self) -> Key {
        (self.kgd.handle(), (&raw const *self).addr())
    }

    /// Without memory it need not be known any more.
    fn forget(&self) {
        let gone = {
            let mut all = ALL.lock();
            let all = all.as_mut().filter(|_| !self.is_live());
            all.and_then(|all| all.remove_node(&self.key()))
        };
        drop(gone);
    }

    /// Gives it its memory, and makes it known. Whether amdgpu wants that back already.
    fn publish(self: &Arc<Self>, vram: &DeferredArc<Vram>) -> Result<bool> {
        // Across both: a block that is known and has no memory is forgotten.
        let node = RBTreeNode::new(self.key(), self.clone(), GFP_KERNEL)?;
        let mut all = ALL.lock();
        // No other one has its address.
        let _ = all.get_or_insert_with(RBTree::new).insert(node);
        let mut memory = self.memory.lock();
        memory.vram = Some(vram.clone());
        memory.usage = Some(self.audience.count(self.pages));
        Ok(memory.wanted)
    }

    /// Whether it is on this device, in this memory partition if there are several, and has places
    /// for these pages.
    pub(super) fn is_for(
        &self,
        device: DeviceHandle,
        partition: Option<i32>,
        pages: Pages,
    ) -> bool {
        let is_there = self.kgd.handle() == device && self.partition == partition;
        is_there && self.pages.covers(pages)
    }

    /// Whether it has memory.
    pub(super) fn is_live(&self) -> bool {
        self.memory.lock().vram.is_some()
    }

    /// Begins to put pages into it. `None`: its memory is gone, or about to, or something writes to
    /// it that was given up.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Mover> {
        let mut memory = self.memory.lock();
        if memory.wanted {
            return None;
        }
        let vram = memory.vram.clone()?;
        if !vram.is_open() {
            return None;
        }
        memory.movers += 1;
        drop(memory);
        Some(Mover {
            block: self.clone(),
            vram,
        })
    }

    /// Lets its memory go, if that is unused, and the block with it. Legal in any context.
    fn let_go(self: &Arc<Self>, unused: Option<DeferredArc<Vram>>) {
        if unused.is_some() {
            drop(unused);
            self.empty_later(0);
        }
    }

    /// Moves all pages into system memory, those that can be moved. An error: the device copies
    /// nothing.
    fn save(&self) -> Result {
        const TRIES: u32 = 20;
        const PAUSE: Delta = Delta::from_millis(5);
        self.memory.lock().wanted = true;
        for _ in 0..TRIES {
            match self.empty(false) {
                Ok(()) => break,
                // Of the system's memory, of one page, or of a large one.
                Err(error) if [EAGAIN, EBUSY, ENOMEM, TOO_LARGE].contains(&error) => fsleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn empty_later(self: &Arc<Self>, wait: Msecs) {
        let jiffies = msecs_to_jiffies(wait);
        // If it waits already, it sees to this too.
        // SAFETY: `settle` waits until there is none.
        let _ = unsafe { self.queue.enqueue_delayed(self.clone(), jiffies) };
    }

    /// Splits the large folio that its memory is, if it is one. One that somebody uses stays.
    pub(super) fn split(&self) {
        let vram = self.memory.lock().vram.clone();
        if let Some(vram) = vram.filter(|vram| vram.is_whole()) {
            let _ = vram.split();
        }
    }

    /// Moves all pages into system memory. `lossy`: those that cannot be copied become zeros.
    /// `EAGAIN`: some could not be moved; another error: of the memory, or of a copy.
    fn empty(&self, lossy: bool) -> Result {
        let Some(vram) = self.memory.lock().vram.clone() else {
            return Ok(());
        };
        let home = |migration| bring_home(migration, |_| true, lossy);
        let moved = self.audience.watch_return(self.pages, EVICTED, || {
            // Who collects passes over a page that is locked; to split it is to wait for its lock.
            if self.failures.load(Relaxed) > 0 {
                let _ = vram.split();
            }
            match vram.collect().and_then(home) {
                Err(error) if error == TOO_LARGE => {
                    vram.split()?;
                    vram.collect().and_then(home)
                }
                moved => moved,
            }
        });
        match vram.taken() {
            0 => Ok(()),
            left => {
                pr_debug!("{left} pages stay in VRAM for now: {moved:?}\n");
                Err(moved.err().unwrap_or(EAGAIN))
            }
        }
    }
}

impl Mover {
    /// Who hears of the block.
    pub(super) fn audience(&self) -> &Audience {
        &self.block.audience
    }

    pub(super) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Moves what of an area is in system memory, or nowhere, into the block: `first` is the page
    /// that it begins with, and `collect` collects it, large folios as such or split. Returns how
    /// many pages have moved.
    pub(super) fn take<'a>(
        &self,
        collect: impl Fn(bool) -> Result<Migration<'a>>,
        first: u64,
        large: bool,
    ) -> Result<u32> {
        let large = large && self.vram.has_room_for_large();
        let migration = collect(large)?;
        let is_large = migration.size(0) > 1;
        let taken = self.put(migration, first, true);
        match taken {
            Err(TOO_LARGE) => {}
            // The kernel did not want it as one: a cgroup's last memory is reclaimed for small
            // pages alone.
            Ok(0) if is_large => return self.put(collect(false)?, first, false),
            taken => return taken,
        }
        // Nothing is collected. If it cannot be split, what its pages are in the way of stays.
        let _ = self.vram.split();
        self.put(collect(false)?, first, false)
    }

    /// [`TOO_LARGE`]: nothing has moved, for there is no room for a large folio any more, or
    /// (`may_split`) one may be in the way that has pages which nobody has any more.
    fn put(&self, migration: Migration<'_>, first: u64, may_split: bool) -> Result<u32> {
        let count = migration.len() as usize;
        let mut list: KVec<(SystemPage<'_>, u32)> = KVec::with_capacity(count, GFP_KERNEL)?;
        for place in 0..migration.len() {
            let page = first + u64::from(place);
            // CAST: at most a granule.
            let index = (page - self.block.pages.start) as u32;
            let system = match migration.source(place) {
                Source::System(system) | Source::Empty(system) => system,
                _ => continue,
            };
            if let Err(error) = Vram::take(&self.vram, &migration, place, index) {
                let is_in_the_way = error == EEXIST && may_split && self.vram.is_whole();
                if migration.size(place) > 1 || is_in_the_way {
                    return Err(TOO_LARGE);
                }
                // A place that another one's page has: this one stays.
                continue;
            }
            for (page, index) in system.iter().zip(index..) {
                list.push((page, index), GFP_KERNEL)?;
            }
        }
        if !list.is_empty() {
            let mut copies = Copies::new(self.vram.clone(), Direction::ToDevice);
            copies.begin(&list)?;
            copies.wait()?;
        }
        drop(list);
        Ok(migration.commit())
    }
}

/// How long who has touched a page that cannot be copied now waits, with mmap_lock held to read.
const RETRY_AFTER: Msecs = 10;

/// Whether an error of a copy may pass, as it does when a reset is over: the device has not ended
/// another copy, or this one; it is being reset; it has dropped the copy.
fn passes(error: Error) -> bool {
    [EIO, EAGAIN, errno::timer_expired(), errno::canceled()].contains(&error)
}

/// Whoever has touched the page is to try again. Only who is about to die does not.
fn try_again(fault: &Fault<'_>) -> FaultEnd {
    match fault.pause(RETRY_AFTER) {
        true => FaultEnd::Done,
        false => FaultEnd::Lost,
    }
}

impl VramOwner for Block {
    fn wanted(self: Arc<Self>) {
        let live = {
            let mut memory = self.memory.lock();
            memory.wanted = true;
            memory.vram.is_some()
        };
        // If not, it is being made, and then emptied.
        if live {
            self.empty_later(0);
        }
    }

    fn fault(self: Arc<Self>, fault: &Fault<'_>, page: u32) -> FaultEnd {
        match fault.wait() {
            Ok(false) => {}
            Ok(true) => return FaultEnd::Done,
            Err(_) => return FaultEnd::Lost,
        }
        let Ok(memory) = self.kgd.device_pages() else {
            return FaultEnd::Lost;
        };
        // A part of it is unmapped, or was: it will not come home as one.
        if fault.is_part() && fault.split().is_err() {
            return try_again(fault);
        }
        let (vma, bytes) = (fault.vma(), 1usize << PAGE_SHIFT);
        let (address, large) = fault.place();
        // The block's pages around it, wherever they are now: mremap may have moved them.
        let before = page as usize * bytes;
        // CAST: at most a granule.
        let behind = (self.pages.len() as usize - page as usize) * bytes;
        let start = address.saturating_sub(before).max(vma.start());
        let end = address.saturating_add(behind).min(vma.end());
        let pages = Pages::new((start / bytes) as u64, end.div_ceil(bytes) as u64);
        let fetch = |range| {
            let migration = Migration::from_fault(fault, range, memory.owner)?;
            // Not those of other devices of the hive: one that is down must not cost ours.
            bring_home(migration, |page| memory.holds(page), false)
        };
        let moved = self
            .audience
            .watch_return(pages, TOUCHED, || match fetch(start..end)? {
                // There may be a large folio before it that is mapped page by page: mremap.
                0 => fetch(address..address + if large { LARGE_PAGES * bytes } else { bytes }),
                moved => Ok(moved),
            });
        let name = self.kgd.facts().pci_name();
        match moved {
            Ok(_) => FaultEnd::Done,
            Err(error) if error == ENOMEM => FaultEnd::NoMemory,
            // Nothing is collected, and the fault has the only reference: its pages come singly.
            Err(error) if error == TOO_LARGE => match fault.split() {
                Ok(()) => FaultEnd::Done,
                Err(_) => try_again(fault),
            },
            // The page is where it was: whoever touches it again may find that it can be copied.
            Err(error) if passes(error) => try_again(fault),
            Err(error) => {
                gpu_err!(name, "a page in VRAM is lost to the processor: {error:?}\n");
                FaultEnd::Lost
            }
        }
    }

    fn freed(self: Arc<Self>) {
        let unused = self.memory.lock().take_if_unused();
        self.let_go(unused);
    }
}

impl WorkItem for Block {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        const LONGEST_PAUSE: u32 = 6;
        if this.empty(false).is_err() {
            let failures = this.failures.fetch_add(1, Relaxed);
            this.empty_later(1 << failures.min(LONGEST_PAUSE));
            return;
        }
        let vram = this.memory.lock().vram.clone();
        if let Some(vram) = vram {
            // `EBUSY`: a page has come meanwhile, of a mover that had begun before.
            if vram.release().is_err() {
                this.empty_later(1);
                return;
            }
        }
        let unused = this.memory.lock().take_if_unused();
        drop(unused);
        this.forget();
    }
}

/// The first block of a device's behind an address. One without memory may be about to be
/// forgotten.
fn block_behind((device, address): Key) -> Option<Arc<Block>> {
    let all = ALL.lock();
    let next = all.as_ref()?.cursor_lower_bound(&(device, address + 1))?;
    let ((owner, _), block) = next.current();
    (*owner == device).then(|| block.clone())
}

/// A device is about to go, and works still: pages in its memory are brought into the system's.
/// Processes go on meanwhile: those of their pages that come later are not. If it copies nothing
/// any more, this ends after one copy's time.
pub(crate) fn save_device(device: DeviceHandle) {
    let mut key = (device, 0);
    while let Some(block) = block_behind(key) {
        key = block.key();
        let saved = block.save();
        let unused = block.memory.lock().take_if_unused();
        block.let_go(unused);
        if let Err(error) = saved {
            let name = block.kgd.facts().pci_name();
            gpu_warn!(
                name,
                "pages in its memory are lost: it copies nothing: {error:?}\n"
            );
            break;
        }
    }
}

/// A device goes, and the processes that used it have ended: its memory has no page of anybody's
/// any more when this returns, and nobody looks at one. What cannot be copied any more reads as
/// zeros.
pub(crate) fn empty_device(kgd: &dyn Kgd) {
    /// So often pages of one block are tried to be saved.
    const TRIES: u32 = 20;
    const PAUSE: Delta = Delta::from_millis(10);
    let mut tries = 0;
    // Once it copies nothing it never will: all that is left is lost.
    let mut lossy = false;
    while let Some(block) = live_block_of(kgd.handle()) {
        block.memory.lock().wanted = true;
        let emptied = block.empty(lossy);
        let unused = block.memory.lock().take_if_unused();
        drop(unused);
        if !block.is_live() {
            block.forget();
            tries = 0;
            continue;
        }
        tries += 1;
        if tries % 1000 == 0 {
            let name = kgd.facts().pci_name();
            gpu_warn!(
                name,
                "waiting for pages in the memory of a GPU that goes away\n"
            );
        }
        match emptied {
            Err(error) if !lossy && (copies_nothing(error) || tries > TRIES) => lossy = true,
            _ => fsleep(PAUSE),
        }
    }
    wait_for_buffers(kgd);
}

/// Whether an error of a copy says that the device is gone, or does not go on with what it has.
fn copies_nothing(error: Error) -> bool {
    [ENODEV, EIO, errno::timer_expired()].contains(&error)
}

/// A block of a device's that has memory.
fn live_block_of(device: DeviceHandle) -> Option<Arc<Block>> {
    loop {
        let block = block_behind((device, 0))?;
        if block.is_live() {
            return Some(block);
        }
        block.forget();
    }
}

/// Until nobody has a buffer of a device's any more: a worker that has just found no page out may
/// be about to look at their numbers. No block has one, so that none is made.
fn wait_for_buffers(kgd: &dyn Kgd) {
    const PAUSE: Delta = Delta::from_millis(2);
    let mut waits: u32 = 0;
    while kgd.vrams() != 0 {
        waits += 1;
        if waits % 5000 == 0 {
            let name = kgd.facts().pci_name();
            gpu_warn!(name, "waiting for {} buffers of pages\n", kgd.vrams());
        }
        fsleep(PAUSE);
    }
}

/// The module goes, and no page is out: no block waits for its time on a queue any more when this
/// returns.
pub(crate) fn settle() {
    const PAUSE: Delta = Delta::from_millis(2);
    // Each forgets itself.
    while BLOCKS.count() != 0 {
        fsleep(PAUSE);
    }
}

mod tests;
