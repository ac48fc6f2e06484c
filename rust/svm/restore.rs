// SPDX-License-Identifier: GPL-2.0-only

//! Pages that are taken away, and come back.
//!
//! Where GPUs do not retry accesses, the process's queues leave the hardware first, and come back
//! when all pages have: a worker brings them, again and again if it must, at longer and longer
//! intervals.

use super::{
    granule::Granule,
    map::{
        Place,
        Wanted, //
    },
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::Pages,
    region::RegionUse,
    Svm, RESTORE,
};
use crate::{
    linux::hmm::Reason,
    uapi::{
        KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY,
        KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY_MIGRATE,
        KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_UNMAP_FROM_CPU, //
    },
};
use kernel::{
    mm::MmWithUser,
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

/// The first pause before pages are brought back (`AMDGPU_SVM_RANGE_RESTORE_DELAY_MS`).
const FIRST_PAUSE: Msecs = 1;
/// The longest, as a power of two of the first.
const LONGEST_PAUSE: u32 = 10;

/// The process's queues are off the hardware, and stay so until this is dropped and all pages are
/// back.
pub(super) struct Eviction<'a>(&'a Arc<Svm>);

impl Drop for Eviction<'_> {
    fn drop(&mut self) {
        self.0.evicting.lock().busy -= 1;
        self.0.restore_later(0);
    }
}

impl Svm {
    /// Takes the process's queues off the hardware, if they are not yet. May run under reclaim.
    pub(super) fn evict(self: &Arc<Self>) -> Eviction<'_> {
        let mut evicting = self.evicting.lock();
        if !evicting.evicted {
            self.host.evict();
            evicting.evicted = true;
        }
        evicting.busy += 1;
        drop(evicting);
        Eviction(self)
    }

    /// Pages of a granule are taken away. When this returns no GPU uses them. May run under
    /// reclaim.
    pub(super) fn take(self: &Arc<Self>, granule: &Granule, pages: Pages, reason: Reason) {
        let (seen, always) = granule.seen(pages, |_| true);
        if seen.is_empty() {
            return;
        }
        let missed = if self.xnack() { always } else { seen };
        let missed = match reason {
            // But what a GPU sees together with them is.
            Reason::Unmap => missed.minus(PageBits::of(pages)),
            _ => missed,
        };
        let comes_back = !missed.is_empty() && !self.has_ended();
        let eviction = comes_back.then(|| self.evict());
        let trigger = match reason {
            Reason::Unmap => KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_UNMAP_FROM_CPU,
            Reason::Migrate => KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY_MIGRATE,
            _ => KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY,
        };
        let tell = |gpu, run| {
            // What comes back is told of by the eviction.
            if !comes_back || reason == Reason::Unmap {
                self.tell_unmapped(gpu, run, trigger);
            }
        };
        let taken = granule.take(&self.gpus, pages, missed, |_| true, tell);
        if comes_back {
            self.lost.store(true, Release);
        }
        if !taken && !self.has_ended() {
            let eviction = self.evict();
            self.lost.store(true, Release);
            drop(eviction);
        }
        drop(eviction);
    }

    /// Brings pages back after a pause, which grows with the failures.
    fn restore_later(self: &Arc<Self>, failures: u32) {
        let pause = FIRST_PAUSE << failures.min(LONGEST_PAUSE);
        let jiffies = msecs_to_jiffies(pause).max(1);
        // If it waits already, it sees to this too.
        let _ = self
            .queue
            .enqueue_delayed::<_, RESTORE>(self.clone(), jiffies);
    }

    /// Brings back what was taken away. Fails if not all could be.
    fn bring_back(self: &Arc<Self>) -> Result {
        let mm = self.users_mm()?;
        let mut result = Ok(());
        let mut from = 0;
        loop {
            let region = {
                let regions = self.regions.lock();
                let next = regions.cursor_lower_bound(&from);
                next.map(|next| (*next.current().0, RegionUse::new(next.current().1)))
            };
            let Some((index, region)) = region else {
                return result;
            };
            region.each_granule(|granule| {
                result = result.and(self.bring_granule_back(&region, granule, &mm));
            });
            from = index + 1;
        }
    }

    fn bring_granule_back(
        self: &Arc<Self>,
        region: &RegionUse,
        granule: &Granule,
        mm: &MmWithUser,
    ) -> Result {
        if !granule.retry(&self.gpus) {
            return Err(EBUSY);
        }
        if granule.state().lost.is_empty() {
            return Ok(());
        }
        let Some(turn) = granule.turn() else {
            return Ok(());
        };
        let lost = core::mem::replace(&mut granule.state().lost, PageBits::NONE);
        let place = Place {
            region,
            granule,
            mm,
            _turn: &turn,
        };
        let pages = Pages::new(granule.first, granule.first + GRANULE_PAGES);
        let ranges = self.ranges_in(pages);
        let mut result = ranges.as_ref().map(|_| ()).map_err(|error| *error);
        for (pages, attributes) in ranges.into_iter().flatten() {
            let here = PageBits::of(pages).intersection(lost);
            for pages in here.runs(granule.first) {
                let wanted = Wanted {
                    pages,
                    attributes,
                    gpus: attributes.shown_at_once(self.xnack()),
                    again: false,
                };
                // What cannot be had is missed by who uses it.
                match self.map(&place, &wanted) {
                    Err(error) if error != EFAULT => result = result.and(Err(error)),
                    _ => (),
                }
            }
        }
        if result.is_err() {
            let mut state = granule.state();
            state.lost = state.lost.union(lost);
        }
        result
    }

    /// Lets the queues run again, if nobody needs them off, and nothing is missing.
    fn resume(self: &Arc<Self>) {
        let mut evicting = self.evicting.lock();
        if !evicting.evicted || evicting.busy > 0 || self.lost.load(Acquire) {
            return;
        }
        evicting.evicted = false;
        drop(evicting);
        self.host.restore();
    }
}

impl WorkItem<RESTORE> for Svm {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.has_ended() {
            return;
        }
        // Before it is looked: what is lost from here on is seen to again.
        if this.lost.xchg(false, kernel::sync::atomic::ordering::Full) {
            if let Err(error) = this.bring_back() {
                pr_debug!("not all pages can be brought back yet: {error:?}\n");
                this.lost.store(true, Release);
                if error != ESRCH {
                    this.host.restore_postponed();
                    let failures = this.failures.fetch_add(1, Relaxed);
                    this.restore_later(failures + 1);
                }
                return;
            }
        }
        this.failures.store(0, Relaxed);
        this.resume();
    }
}
