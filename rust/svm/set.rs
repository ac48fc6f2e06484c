// SPDX-License-Identifier: GPL-2.0-only

//! What user space says and asks of areas: SET_ATTR, GET_ATTR.

use super::{
    attributes::{
        Attribute,
        Attributes,
        Common,
        GpuSet,
        Location, //
    },
    map::{
        Place,
        Wanted, //
    },
    migrate::{
        Target,
        Why, //
    },
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    ranges::{
        Spare,
        Update, //
    },
    region::{
        RegionUse,
        REGION_PAGES, //
    },
    Book, Changing, Svm, SETTLE,
};
use crate::{
    linux::{
        errno,
        hmm::Reason,
        task::is_killed, //
    },
    uapi::{
        KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_PREFETCH,
        KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_UNMAP_FROM_CPU,
    },
};
use kernel::{
    bindings,
    mm::{
        virt::flags,
        MmWithUser,
        MmapReadGuard, //
    },
    prelude::*,
    sync::{
        atomic::ordering::{
            Acquire,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    workqueue::WorkItem,
};

/// Mappings of a device's memory: no page of theirs can be shared.
const DEVICE_MEMORY: bindings::vm_flags_t = flags::IO | flags::PFNMAP | flags::MIXEDMAP;

/// Whether a mapping shows a device's memory.
pub(super) fn is_device_memory(vma: &kernel::mm::virt::VmaRef) -> bool {
    vma.flags() & DEVICE_MEMORY != 0
}

impl Book {
    /// Pages in an area that GPUs may use.
    fn usable(&mut self, pages: Pages) -> u64 {
        let mut usable = 0;
        self.ranges.each(pages, |range, attributes| {
            usable += attributes.usable(range)
        });
        usable
    }
}

impl Svm {
    /// SET_ATTR. Without XNACK, and where it was asked for, all GPUs that may access the area see
    /// it when this returns; if not all could be done, the first error counts.
    ///
    /// `EFAULT`: not all of it is mapped, or within the GPUs' reach, or it is a device's memory.
    /// `EADDRINUSE`: there is a buffer. `ENOMEM`: more than all processes may have. `EINVAL`: no
    /// GPU has a VM.
    pub(crate) fn set(self: &Arc<Self>, pages: Pages, change: &[Attribute]) -> Result {
        self.check_vm()?;
        self.check_reach(pages)?;
        let mm = self.users_mm()?;
        if self.give(pages, change, &mm)? || self.matters(change) {
            self.apply_all(pages, change, &mm)?;
        }
        Ok(())
    }

    /// Whether a GPU of the process has a VM. `EINVAL` if not.
    pub(crate) fn check_vm(&self) -> Result {
        match self.gpus.iter().any(|gpu| gpu.vm().is_ok()) {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }

    /// Whether GPUs have page tables for all of these pages. `EFAULT` if not: amdgpu does not ask
    /// when it writes an entry.
    pub(super) fn check_reach(&self, pages: Pages) -> Result {
        match self.reach.covers(pages) {
            true => Ok(()),
            false => Err(EFAULT),
        }
    }

    /// Makes what GPUs see of an area what its attributes say. The first error counts. It takes as
    /// long as the area is large where GPUs see it or it goes to one; `EINTR`: the task is killed.
    fn apply_all(self: &Arc<Self>, pages: Pages, change: &[Attribute], mm: &MmWithUser) -> Result {
        let goes_to_gpu = change
            .iter()
            .any(|attribute| matches!(attribute, Attribute::Prefetch(Location::Gpu(_))));
        let mut result = Ok(());
        for piece in pages.pieces(REGION_PAGES) {
            if is_killed() {
                return Err(EINTR);
            }
            // It goes when all of it has been unmapped.
            let Some(region) = self.region_of(piece.start) else {
                continue;
            };
            let everywhere = goes_to_gpu || self.is_shown(piece);
            if !everywhere && region.has_no_granules() {
                continue;
            }
            for piece in piece.pieces(GRANULE_PAGES) {
                if is_killed() {
                    return Err(EINTR);
                }
                if everywhere || region.granule(piece.start).is_some() {
                    result = result.and(self.apply(&region, piece, change, mm));
                }
            }
        }
        result
    }

    /// Whether GPUs see any of an area as soon as it has attributes.
    fn is_shown(&self, pages: Pages) -> bool {
        let mut shown = false;
        self.book.lock().ranges.each(pages, |_, attributes| {
            shown |= !attributes.shown_at_once(self.xnack()).is_empty();
        });
        shown
    }

    /// Gives an area other attributes, and watches all of it. Whether part of it had none, as
    /// [`Self::change`] says.
    fn give(self: &Arc<Self>, pages: Pages, change: &[Attribute], mm: &MmWithUser) -> Result<bool> {
        let mut watched = None;
        let given = loop {
            match self.try_give(pages, change, mm) {
                Ok(Some(new)) => break Ok(new),
                Ok(None) => (),
                Err(error) => break Err(error),
            }
            // Kept, so that nobody finds them without attributes and watches them no longer.
            match self.watch(pages, mm) {
                Ok(regions) => watched = Some(regions),
                Err(error) => {
                    watched = Some(KVec::new());
                    break Err(error);
                }
            }
        };
        let failed = given.is_err() && watched.is_some();
        drop(watched);
        if failed {
            // What has no attributes is not watched.
            let _changing = self.changing.lock();
            for piece in pages.pieces(REGION_PAGES) {
                self.retire(piece.start / REGION_PAGES);
            }
        }
        given
    }

    /// The same if all of it is watched. `None`: it is not, and else nothing speaks against it.
    fn try_give(
        self: &Arc<Self>,
        pages: Pages,
        change: &[Attribute],
        mm: &MmWithUser,
    ) -> Result<Option<bool>> {
        // Before `changing`: for this lock one may have to wait for a program.
        let lock = mm.mmap_read_lock();
        let changing = self.changing.lock();
        let watched = self.settle_watched(&changing, pages)?;
        self.check(&lock, pages)?;
        self.check_buffers(pages)?;
        // What is unmapped from here on is told of, and forgotten.
        if watched {
            return self.change(pages, change).map(Some);
        }
        self.check_charge(&changing, pages)?;
        Ok(None)
    }

    /// Watches all of an area, at least as long as what is returned is kept. `EINTR`: the task is
    /// killed.
    fn watch(self: &Arc<Self>, pages: Pages, mm: &MmWithUser) -> Result<KVec<RegionUse>> {
        let mut regions = KVec::new();
        for piece in pages.pieces(REGION_PAGES) {
            if is_killed() {
                return Err(EINTR);
            }
            regions.push(self.make_region(piece.start, mm)?, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(regions)
    }

    /// Whether there is a region wherever an area is. They stay while nobody else changes
    /// attributes.
    fn is_watched(&self, pages: Pages) -> bool {
        let regions = self.regions.lock();
        pages
            .pieces(REGION_PAGES)
            .all(|piece| regions.get(&(piece.start / REGION_PAGES)).is_some())
    }

    /// GET_ATTR: what the ranges of an area have in common, if that `can_be_told`. Errors as for
    /// [`Svm::set`], but that GPUs need not reach it; `EINVAL`: it cannot.
    pub(crate) fn get(
        self: &Arc<Self>,
        pages: Pages,
        can_be_told: impl FnOnce() -> bool,
    ) -> Result<Common> {
        let mm = self.users_mm()?;
        // Before `changing`: for this lock one may have to wait for a program.
        let lock = mm.mmap_read_lock();
        let changing = self.changing.lock();
        self.settle(&changing)?;
        self.check(&lock, pages)?;
        drop(lock);
        self.check_buffers(pages)?;
        if !can_be_told() {
            return Err(EINVAL);
        }
        let mut common = Common::new(self.default_attributes());
        let mut book = self.book.lock();
        book.ranges
            .each(pages, |_, attributes| common.add(attributes));
        Ok(common)
    }

    /// Whether any page of an area has attributes.
    pub(crate) fn has_ranges(self: &Arc<Self>, pages: Pages) -> Result<bool> {
        let changing = self.changing.lock();
        self.settle(&changing)?;
        let mut found = false;
        self.book.lock().ranges.each(pages, |_, _| found = true);
        Ok(found)
    }

    /// SET_XNACK_MODE. `ENOMEM`: without it more than all processes may have would be charged.
    pub(crate) fn set_xnack(&self, xnack: bool) -> Result {
        let _changing = self.changing.lock();
        let mut book = self.book.lock();
        let charged = if xnack { 0 } else { book.usable(Pages::ALL) };
        self.charge(&mut book, charged)?;
        self.xnack.store(xnack, Release);
        Ok(())
    }

    /// Charges that many pages, in all. `ENOMEM`: it is too many, and nothing has changed.
    fn charge(&self, book: &mut Book, pages: u64) -> Result {
        let kgd = self.gpus.first().ok_or(ENODEV)?.node().kgd();
        let more = pages.saturating_sub(book.charged);
        if more > 0 {
            kgd.reserve_memory(more << PAGE_SHIFT)?;
        }
        let less = book.charged.saturating_sub(pages);
        if less > 0 {
            kgd.unreserve_memory(less << PAGE_SHIFT);
        }
        book.charged = pages;
        Ok(())
    }

    /// The same, without XNACK; with it nothing is charged.
    fn charge_new(&self, book: &mut Book, pages: u64) -> Result {
        match self.xnack() {
            true => Ok(()),
            false => self.charge(book, pages),
        }
    }

    /// Whether all of an area could be charged, before anything is made for it. `ENOMEM` if not.
    fn check_charge(&self, _changing: &Changing<'_>, pages: Pages) -> Result {
        // Of one region there is not much to be made.
        if self.xnack() || pages.len() <= REGION_PAGES {
            return Ok(());
        }
        let mut book = self.book.lock();
        let charged = book.charged;
        let others = charged.saturating_sub(book.usable(pages));
        self.charge(&mut book, others + pages.len())?;
        // Not more than that.
        self.charge(&mut book, charged)
    }

    /// Nothing has attributes any more.
    pub(super) fn forget_all(&self) {
        let mut book = self.book.lock();
        // Nothing is charged anew.
        let _ = self.charge(&mut book, 0);
        book.ranges = super::Ranges::new();
    }

    /// Whether all of an area is mapped, and no device's memory. `EFAULT` if not.
    pub(super) fn check(&self, lock: &MmapReadGuard<'_>, pages: Pages) -> Result {
        let mut rest = pages;
        while !rest.is_empty() {
            // CAST: an address of this kernel's size.
            let vma = lock.vma_lookup(rest.address() as usize).ok_or(EFAULT)?;
            if is_device_memory(vma) {
                return Err(EFAULT);
            }
            rest.start = vma.end() as u64 >> PAGE_SHIFT;
        }
        Ok(())
    }

    /// Whether no GPU shows a buffer in an area, or is about to. `EADDRINUSE` if one does. The
    /// caller has `changing`.
    pub(super) fn check_buffers(&self, pages: Pages) -> Result {
        let is_claimed = |claims: &[Pages]| claims.iter().any(|claim| claim.overlaps(pages));
        if is_claimed(&self.book.lock().claims) {
            return Err(errno::address_in_use());
        }
        for vm in self.gpus.iter().filter_map(|gpu| gpu.vm().ok()) {
            if vm.has_buffer(pages.start, pages.len())? {
                return Err(errno::address_in_use());
            }
        }
        Ok(())
    }

    /// Gives an area other attributes. Whether part of it had none, unless all of it had none and
    /// no GPU is to see it for that.
    fn change(&self, pages: Pages, change: &[Attribute]) -> Result<bool> {
        let default = self.default_attributes();
        let mut book = self.book.lock();
        let changed = |before: Option<&Attributes>| {
            let mut after = before.copied().unwrap_or(default);
            after.apply(change);
            after
        };
        let same_charge =
            |one: &Attributes, other: &Attributes| one.usable(pages) == other.usable(pages);
        match book.ranges.update(pages, changed, same_charge) {
            Update::Done => return Ok(false),
            Update::New(attributes) => {
                let spare = Spare::new()?;
                let others = book.charged;
                self.charge_new(&mut book, others + pages.len())?;
                book.ranges.add(pages, attributes, spare);
                // Less than what is charged.
                let _ = self.charge_new(&mut book, others + attributes.usable(pages));
                return Ok(!attributes.shown_at_once(self.xnack()).is_empty());
            }
            Update::Not => (),
        }
        let plan = book.ranges.plan(pages, changed)?;
        let new = plan.known != pages.len();
        if self.xnack() {
            book.ranges.commit(plan);
            return Ok(new);
        }
        // As if all of it were used first: nothing is changed if that is too much.
        let others = book.charged.saturating_sub(plan.used);
        let now = others + plan.will_use;
        self.charge(&mut book, others + pages.len())?;
        book.ranges.commit(plan);
        // Less than what is charged.
        let _ = self.charge(&mut book, now);
        Ok(new)
    }

    /// Whether a change has to be done at once. What a GPU may access with XNACK, it fetches.
    fn matters(&self, change: &[Attribute]) -> bool {
        change.iter().any(|attribute| match attribute {
            Attribute::SetFlags(_) | Attribute::ClearFlags(_) | Attribute::NoAccess(_) => true,
            Attribute::Prefetch(_) => true,
            Attribute::Access(_) | Attribute::InPlace(_) => !self.xnack(),
            _ => false,
        })
    }

    /// Makes what GPUs see of pages, which lie in one granule, what their attributes say.
    fn apply(
        self: &Arc<Self>,
        region: &RegionUse,
        pages: Pages,
        change: &[Attribute],
        mm: &MmWithUser,
    ) -> Result {
        loop {
            let granule = region.make_granule(pages.start)?;
            let Some(turn) = granule.turn() else {
                continue;
            };
            let place = Place {
                region,
                granule: &granule,
                mm,
                _turn: &turn,
            };
            let result = self.apply_at(&place, pages, change);
            // Nothing may be there to be seen: an area can be far larger than memory.
            region.drop_if_idle(&granule, turn);
            return result;
        }
    }

    fn apply_at(self: &Arc<Self>, place: &Place<'_>, pages: Pages, change: &[Attribute]) -> Result {
        let granule = place.granule;
        if pages == granule.pages() {
            // What cannot be touched is noted again, if it is to be seen.
            place.region.forget_absent(pages);
        }
        let ranges = self.ranges_in(pages)?;
        let flags = |attribute: &Attribute| {
            matches!(attribute, Attribute::SetFlags(_) | Attribute::ClearFlags(_))
        };
        let otherwise = change.iter().any(flags);
        let prefetch = change.iter().rev().find_map(|attribute| match attribute {
            Attribute::Prefetch(to) => Some(*to),
            _ => None,
        });
        let mut result = Ok(());
        for (pages, attributes) in ranges {
            let accessible = attributes.accessible();
            let may_not = |gpu: usize| !accessible.contains(gpu);
            self.take_from(granule, pages, true, may_not);
            let mut gpus = attributes.shown_at_once(self.xnack());
            if let Some(to) = prefetch {
                let target = self.target_of_prefetch(to, &attributes);
                let around = self.book.lock().ranges.at(pages.start);
                let range = around.map_or(pages, |(range, _)| range);
                // If they cannot be moved they are used where they are.
                let why = Why {
                    range,
                    attributes,
                    trigger: KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_PREFETCH,
                };
                if let Err(error) = self.move_to(place, pages, &why, target) {
                    pr_debug!("pages are not prefetched: {error:?}\n");
                }
                if let Target::Gpu(gpu) = target {
                    gpus = gpus.union(accessible.intersection(GpuSet::EMPTY.with(gpu)));
                }
            }
            if gpus.is_empty() && otherwise {
                // They come for it again.
                self.take_from(granule, pages, false, |_| true);
            }
            if !gpus.is_empty() && otherwise {
                self.part(granule, pages);
            }
            let wanted = Wanted {
                pages,
                gpus,
                again: otherwise,
            };
            result = result.and(self.map(place, &wanted));
        }
        result
    }

    /// Pages are about to be seen otherwise than those beside them: GPUs do not see them together
    /// any more.
    fn part(self: &Arc<Self>, granule: &super::Granule, pages: Pages) {
        let (seen, _) = granule.seen(pages, |_| true);
        for beside in seen.minus(PageBits::of(pages)).runs(granule.first) {
            self.take(granule, beside, Reason::Other);
        }
    }

    /// Takes pages from those GPUs of which `from` is true, for good; who listens hears of it if
    /// `told`.
    fn take_from(
        self: &Arc<Self>,
        granule: &super::Granule,
        pages: Pages,
        told: bool,
        from: impl Fn(usize) -> bool,
    ) {
        const TRIGGER: u32 = KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_UNMAP_FROM_CPU;
        let tell = |gpu, run| {
            if told {
                self.tell_unmapped(gpu, run, TRIGGER);
            }
        };
        // What a GPU sees together with them it sees again.
        let (seen, always) = granule.seen(pages, &from);
        let missed = if self.xnack() { always } else { seen };
        let missed = missed.minus(PageBits::of(pages));
        let eviction = (!missed.is_empty()).then(|| self.evict());
        let taken = granule.take(&self.gpus, pages, missed, from, tell);
        let failed = (!taken).then(|| self.evict());
        if eviction.is_some() || failed.is_some() {
            self.lost.store(true, Release);
        }
    }

    /// One more region has unmapped pages that may have attributes. May run under reclaim.
    pub(super) fn add_unmapped(self: &Arc<Self>) {
        let _: usize = self.unmapped.fetch_add(1, Release);
        self.settle_soon();
    }

    /// A worker forgets the attributes of what was unmapped. May run under reclaim.
    pub(super) fn settle_soon(self: &Arc<Self>) {
        // If it is queued already it sees to this one, too.
        let _ = self.workers.pages.enqueue::<_, SETTLE>(self.clone());
    }

    /// One less.
    pub(super) fn take_unmapped(&self) {
        let _: usize = self.unmapped.fetch_sub(1, Relaxed);
    }

    /// The next region from that index on, with its index.
    pub(super) fn region_from(&self, from: u64) -> Option<(u64, super::RegionUse)> {
        let regions = self.regions.lock();
        let next = regions.cursor_lower_bound(&from)?;
        let (index, region) = next.current();
        Some((*index, super::RegionUse::new(region)))
    }

    /// Forgets the attributes of what was unmapped.
    pub(super) fn settle(self: &Arc<Self>, _changing: &Changing<'_>) -> Result {
        let mut from = 0;
        while self.unmapped.load(Acquire) > 0 {
            let Some((index, region)) = self.region_from(from) else {
                break;
            };
            let mut any = false;
            while let Some(pages) = region.unmapped() {
                let spare = Spare::new()?;
                any = true;
                self.forget(pages, spare);
                // Not before: with these attributes nobody is to be shown what is there now. What
                // was unmapped once more since has none: nobody gives it any meanwhile.
                region.settle(pages);
            }
            drop(region);
            if any {
                self.retire(index);
            }
            from = index + 1;
        }
        Ok(())
    }

    /// The same for who has mmap_lock, and is about to give an area attributes. Whether there is a
    /// region wherever it is ([`Self::is_watched`]).
    pub(super) fn settle_watched(
        self: &Arc<Self>,
        changing: &Changing<'_>,
        pages: Pages,
    ) -> Result<bool> {
        // A region that comes only now may have heard of what was unmapped there before this lock
        // was taken: that would be forgotten after the attributes are given.
        let watched = self.unmapped.load(Acquire) == 0 || self.is_watched(pages);
        self.settle(changing)?;
        Ok(watched && self.is_watched(pages))
    }

    /// The same for who does not change attributes. Not under mmap_lock.
    pub(super) fn settle_now(self: &Arc<Self>) -> Result {
        let changing = self.changing.lock();
        self.settle(&changing)
    }

    /// An area has no attributes any more.
    fn forget(&self, pages: Pages, spare: Spare) {
        let mut book = self.book.lock();
        let before = if self.xnack() { 0 } else { book.usable(pages) };
        book.ranges.remove(pages, spare);
        let charged = book.charged.saturating_sub(before);
        // Less than before.
        let _ = self.charge(&mut book, charged);
    }

    /// Watches a region no longer, if nothing in it has attributes, and no GPU sees any of it.
    pub(super) fn retire(&self, index: u64) {
        let pages = Pages::new(index * REGION_PAGES, (index + 1) * REGION_PAGES);
        let mut used = false;
        self.book.lock().ranges.each(pages, |_, _| used = true);
        if used {
            return;
        }
        let idle = |region: &super::Watched<super::Region>| {
            region.try_leave() && !region.has_unmapped() && region.drop_idle()
        };
        let (node, region) = {
            let mut regions = self.regions.lock();
            let Some(region) = regions.get(&index).filter(|region| idle(region)) else {
                return;
            };
            let region = Arc::clone(region);
            (regions.remove_node(&index), region)
        };
        // Not under the lock: it waits for notifiers.
        drop(node);
        // A notifier may have noted an area until then.
        region.forget_unmapped();
    }
}

impl WorkItem<SETTLE> for Svm {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        const PAUSE: Msecs = 10;
        if this.has_ended() {
            return;
        }
        let pause = match this.place() {
            Ok(_place) => match this.settle_now() {
                Ok(()) => return,
                Err(error) => {
                    pr_debug!("what was unmapped keeps its attributes for now: {error:?}\n");
                    PAUSE
                }
            },
            Err(pause) => pause,
        };
        let jiffies = msecs_to_jiffies(pause);
        // If it is queued already it is tried again, too.
        // SAFETY: `end` flushes it, before the process is gone.
        let _ = unsafe {
            let queue = this.workers.pages;
            queue.enqueue_delayed::<_, SETTLE>(this.clone(), jiffies)
        };
    }
}

impl Attributes {
    /// Which GPUs see the range as soon as it has attributes: without XNACK all that may.
    pub(super) fn shown_at_once(&self, xnack: bool) -> GpuSet {
        if !xnack || self.is_always_mapped() {
            self.accessible()
        } else {
            GpuSet::EMPTY
        }
    }
}
