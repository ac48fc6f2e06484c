// SPDX-License-Identifier: GPL-2.0-only

//! A region: 256 MiB of an address space that one interval notifier watches.
//!
//! There is a region wherever there are attributes. Before pages are taken away, or show something
//! else, the notifier takes them from the GPUs, granule by granule.

use super::{
    granule::{
        Granule,
        Turn, //
    },
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    unmapped::Unmapped,
    Svm, //
};
use crate::{
    gauge::{
        Gauge,
        Held, //
    },
    linux::hmm::{
        Interval,
        IntervalUser,
        Invalidation,
        Reason,
        Watched, //
    },
};
use core::ops::Deref;
use kernel::{
    mm::MmWithUser,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Full,
                Relaxed, //
            },
            Atomic, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Regions of all processes.
pub(crate) static REGIONS: Gauge = Gauge::new();

/// Granules of a region.
pub(super) const GRANULES_EACH: u64 = 128;
/// Pages of a region.
pub(super) const REGION_PAGES: u64 = GRANULES_EACH * GRANULE_PAGES;

/// What is in a region.
struct Contents {
    /// One for each, or none at all.
    granules: KVec<Option<Arc<Granule>>>,
    unmapped: Unmapped,
    /// Granules, a bit for each, with pages that GPUs would see if the process could touch them
    /// itself (`PROT_NONE`); and those of which that may have changed since.
    absent: u128,
    regained: u128,
}

/// A region.
#[pin_data]
pub(super) struct Region {
    svm: Arc<Svm>,
    index: u64,
    pub(super) interval: Interval,
    users: Atomic<usize>,
    /// It would be watched no longer, if nobody used it.
    leaving: Atomic<bool>,
    #[pin]
    contents: Mutex<Contents>,
    _held: Held,
}

/// A region that stays watched until this is dropped.
pub(super) struct RegionUse(Arc<Region>);

impl RegionUse {
    /// Under the lock of the process's regions, which has this one.
    pub(super) fn new(region: &Watched<Region>) -> Self {
        let _: usize = region.users.fetch_add(1, Relaxed);
        Self(Arc::clone(region))
    }
}

impl Deref for RegionUse {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl Drop for RegionUse {
    fn drop(&mut self) {
        // As `try_leave` has it the other way round, one of the two sees the other.
        let last = self.0.users.fetch_sub(1, Full) == 1;
        if last && self.0.leaving.xchg(false, Full) {
            self.0.look_again();
        }
    }
}

impl Region {
    /// Watches the region of that number.
    pub(super) fn new(svm: Arc<Svm>, index: u64, mm: &MmWithUser) -> Result<Watched<Self>> {
        let contents = Contents {
            granules: KVec::new(),
            unmapped: Unmapped::new(index * REGION_PAGES)?,
            absent: 0,
            regained: 0,
        };
        let region = try_pin_init!(Self {
            svm,
            index,
            interval: Interval::new(),
            users: Atomic::new(0),
            leaving: Atomic::new(false),
            contents <- new_mutex!(contents, "amdkfd::Region::contents"),
            _held: REGIONS.hold(),
        });
        let region = Arc::pin_init(region, GFP_KERNEL_ACCOUNT)?;
        let start = index * REGION_PAGES << PAGE_SHIFT;
        // SAFETY: It is new.
        unsafe { Watched::new(region, mm, start, REGION_PAGES << PAGE_SHIFT) }
    }

    /// Its pages.
    pub(super) fn pages(&self) -> Pages {
        let first = self.index * REGION_PAGES;
        Pages::new(first, first + REGION_PAGES)
    }

    /// Whether somebody uses it.
    pub(super) fn is_used(&self) -> bool {
        self.users.load(Acquire) > 0
    }

    /// Whether nobody uses it; if not, who uses it last has it looked at again.
    pub(super) fn try_leave(&self) -> bool {
        let _ = self.leaving.xchg(true, Full);
        // Who used it until now may have seen that, and is about to note it.
        !self.is_used() && self.leaving.xchg(false, Full)
    }

    /// Waits until nobody uses it. Nobody can begin to.
    ///
    /// TIMEOUT: none. Whoever uses it maps pages, which is bounded but for faults of the process's,
    /// and these end when it is killed.
    pub(super) fn wait_for_users(&self) {
        while self.is_used() {
            fsleep(Delta::from_millis(1));
        }
    }

    fn place(page: u64) -> usize {
        // CAST: less than `GRANULES_EACH`.
        (page % REGION_PAGES / GRANULE_PAGES) as usize
    }

    /// The granule that a page is in, if there is one.
    pub(super) fn granule(&self, page: u64) -> Option<Arc<Granule>> {
        let contents = self.contents.lock();
        contents.granules.get(Self::place(page))?.clone()
    }

    /// The granule that a page is in, made if there is none.
    pub(super) fn make_granule(&self, page: u64) -> Result<Arc<Granule>> {
        if let Some(granule) = self.granule(page) {
            return Ok(granule);
        }
        let first = page - page % GRANULE_PAGES;
        let new = Granule::new(first, self.svm.gpus.len())?;
        let mut room = KVec::new();
        if self.has_no_granules() {
            room = KVec::with_capacity(GRANULES_EACH as usize, GFP_KERNEL_ACCOUNT)?;
            for _ in 0..GRANULES_EACH {
                room.push(None, GFP_KERNEL_ACCOUNT)?;
            }
        }
        let mut contents = self.contents.lock();
        if contents.granules.is_empty() {
            core::mem::swap(&mut contents.granules, &mut room);
        }
        let place = contents.granules.get_mut(Self::place(page)).ok_or(EINVAL)?;
        let granule = place.get_or_insert(new).clone();
        drop(contents);
        Ok(granule)
    }

    /// Whether it never had any.
    pub(super) fn has_no_granules(&self) -> bool {
        self.contents.lock().granules.is_empty()
    }

    /// Drops a granule whose turn it is, if it shows nothing and has no memory in VRAM: whoever
    /// waits for its turn looks for another one.
    pub(super) fn drop_if_idle(&self, granule: &Arc<Granule>, mut turn: Turn<'_>) {
        if !granule.is_idle() || granule.has_blocks() {
            return;
        }
        let gone = {
            let mut contents = self.contents.lock();
            let slot = contents.granules.get_mut(Self::place(granule.first));
            slot.and_then(Option::take)
        };
        *turn = false;
        drop(turn);
        drop(gone);
    }

    /// All granules, one after the other.
    pub(super) fn each_granule(&self, mut act: impl FnMut(&Arc<Granule>)) {
        if self.has_no_granules() {
            return;
        }
        for place in 0..GRANULES_EACH {
            if let Some(granule) = self.granule(self.pages().start + place * GRANULE_PAGES) {
                act(&granule);
            }
        }
    }

    /// Those of which pages are lost or stale now, one after the other.
    pub(super) fn each_incomplete(&self, mut act: impl FnMut(&Arc<Granule>)) {
        let mut rest = 0u128;
        for (place, granule) in self.contents.lock().granules.iter().enumerate() {
            let incomplete = granule.as_ref().is_some_and(|it| it.is_incomplete());
            rest |= u128::from(incomplete) << place;
        }
        while rest != 0 {
            let place = u64::from(rest.trailing_zeros());
            rest &= rest - 1;
            if let Some(granule) = self.granule(self.pages().start + place * GRANULE_PAGES) {
                act(&granule);
            }
        }
    }

    /// No GPU sees any of its pages when this returns. The process's queues are off, for good.
    pub(super) fn take_all(&self) {
        self.each_granule(|granule| {
            let pages = Pages::new(granule.first, granule.first + GRANULE_PAGES);
            granule.take(&self.svm.gpus, pages, PageBits::NONE, |_| true, |_, _| ());
            granule.end(&self.svm.gpus);
        });
    }

    /// Drops granules that show nothing. Whether none is left. Nobody else may use the region.
    pub(super) fn drop_idle(&self) -> bool {
        let mut left = false;
        for place in 0..GRANULES_EACH {
            let page = self.pages().start + place * GRANULE_PAGES;
            let idle = self.granule(page).is_none_or(|granule| granule.is_idle());
            left |= !idle;
            if idle {
                let mut contents = self.contents.lock();
                let slot = contents.granules.get_mut(Self::place(page));
                let gone = slot.and_then(Option::take);
                drop(contents);
                drop(gone);
            }
        }
        !left
    }

    /// The granules that an area of the region lies in, a bit for each.
    fn bits_of(pages: Pages) -> u128 {
        let ends = (pages.start, pages.end - 1);
        let (first, last) = (Self::place(ends.0), Self::place(ends.1));
        u128::MAX >> (GRANULES_EACH as usize - 1 - (last - first)) << first
    }

    /// GPUs would see these pages if they could be touched. Under mmap_lock.
    pub(super) fn note_absent(&self, pages: Pages) {
        self.contents.lock().absent |= Self::bits_of(pages);
    }

    /// Of a granule's pages none is to be seen.
    pub(super) fn forget_absent(&self, pages: Pages) {
        self.contents.lock().absent &= !Self::bits_of(pages);
    }

    /// Whether there are pages among these, or near them, that could not be touched: perhaps they
    /// can from now on. May run under reclaim.
    fn note_regained(&self, pages: Pages) -> bool {
        let mut contents = self.contents.lock();
        let regained = contents.absent & Self::bits_of(pages);
        contents.absent &= !regained;
        contents.regained |= regained;
        regained != 0
    }

    /// Pages that can perhaps be touched again are lost, as if they had been taken away.
    pub(super) fn lose_regained(&self) -> Result {
        let mut rest = core::mem::take(&mut self.contents.lock().regained);
        while rest != 0 {
            let place = u64::from(rest.trailing_zeros());
            let granule = self.make_granule(self.pages().start + place * GRANULE_PAGES);
            let granule = granule.inspect_err(|_| self.contents.lock().regained |= rest)?;
            // Else it was dropped meanwhile, and there is another one.
            let turn = granule.turn();
            if turn.is_some() {
                granule.lose_all();
                rest &= rest - 1;
            }
        }
        Ok(())
    }

    /// An area that was unmapped, and may have attributes still. It counts as such until
    /// [`Region::settle`]: whoever maps pages meanwhile waits for that, and finds no attributes.
    pub(super) fn unmapped(&self) -> Option<Pages> {
        self.contents.lock().unmapped.any()
    }

    /// Such an area has no attributes any more. What else was unmapped meanwhile may have some.
    pub(super) fn settle(&self, pages: Pages) {
        if self.contents.lock().unmapped.settle(pages) {
            self.svm.take_unmapped();
        }
    }

    /// Nothing of it has attributes, nor had.
    pub(super) fn forget_unmapped(&self) {
        self.settle(self.pages());
    }

    /// Whether there is such an area.
    pub(super) fn has_unmapped(&self) -> bool {
        !self.contents.lock().unmapped.is_empty()
    }

    /// Notes that an area was unmapped. May run under reclaim.
    fn note_unmapped(&self, pages: Pages) {
        let mut contents = self.contents.lock();
        // Under the lock: who finds it finds it counted.
        if contents.unmapped.note(pages) {
            self.svm.add_unmapped();
        }
    }

    /// It may have become one that nobody needs: as if nothing of it was unmapped. May run under
    /// reclaim.
    pub(super) fn look_again(&self) {
        let start = self.pages().start;
        self.note_unmapped(Pages::new(start, start));
    }

    /// Whether no GPU sees any of these pages; false if that cannot be told without waiting.
    fn is_free(&self, pages: Pages) -> bool {
        let Some(contents) = self.contents.try_lock() else {
            return false;
        };
        pages.pieces(GRANULE_PAGES).all(|piece| {
            let granule = contents.granules.get(Self::place(piece.start));
            let granule = granule.and_then(Option::as_ref);
            granule.is_none_or(|granule| granule.is_free(piece))
        })
    }
}

// SAFETY: `INTERVAL` is where the interval is.
unsafe impl IntervalUser for Region {
    const INTERVAL: usize = core::mem::offset_of!(Self, interval);

    fn invalidate(&self, what: &Invalidation) -> bool {
        // Its queues end in a moment, and its pages are unmapped afterwards, which is told again.
        if what.reason == Reason::Release {
            return true;
        }
        let bytes = 1 << PAGE_SHIFT;
        let pages = Pages::new(what.start >> PAGE_SHIFT, what.end.div_ceil(bytes));
        if !what.may_sleep {
            return self.is_free(pages);
        }
        if what.reason == Reason::Unmap {
            self.svm.note_checkpoints();
            self.note_unmapped(pages);
            self.svm.check_pins(pages);
        }
        if what.reason == Reason::Protect && self.note_regained(pages) {
            self.svm.regain();
        }
        let mut any = false;
        for piece in pages.pieces(GRANULE_PAGES) {
            if let Some(granule) = self.granule(piece.start) {
                any = true;
                self.svm.take(&granule, piece, what.reason);
                if what.reason == Reason::Unmap {
                    granule.forget_tables();
                }
            }
        }
        if any && what.reason == Reason::Unmap {
            // Who forgot the attributes meanwhile found that GPUs see pages still.
            self.look_again();
        }
        true
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_region)]
mod tests {
    use super::*;

    #[test]
    fn an_area_has_the_bits_of_its_granules() {
        let first = 3 * REGION_PAGES;
        let bits = |start, end| Region::bits_of(Pages::new(first + start, first + end));
        assert_eq!((bits(0, 1), bits(0, 512), bits(0, 513)), (1, 1, 3));
        assert_eq!((bits(511, 513), bits(512, 1024)), (3, 2));
        assert_eq!(bits(REGION_PAGES - 1, REGION_PAGES), 1 << 127);
        assert_eq!(bits(0, REGION_PAGES), u128::MAX);
        assert_eq!(bits(GRANULE_PAGES, REGION_PAGES), u128::MAX - 1);
    }
}
