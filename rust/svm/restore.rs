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
    Evicting, Svm, RESTORE,
};
use crate::{
    linux::{
        hmm::Reason,
        trace, //
    },
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
        Delta,
        Instant,
        Monotonic,
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
        let pause = {
            let mut evicting = self.0.evicting.lock();
            evicting.busy -= 1;
            evicting.pause()
        };
        self.0.restore_after(pause);
    }
}

impl Evicting {
    /// The queues leave: if soon after they came, pages are taken away as fast as they are brought
    /// back.
    fn note_eviction(&mut self) {
        /// So many times as long as it took to bring them back.
        const SOON: i64 = 10;
        let soon = |(when, took): (Instant<Monotonic>, Delta)| {
            when.elapsed().as_nanos() < took.as_nanos().saturating_mul(SOON)
        };
        self.again = match self.restored.is_some_and(soon) {
            true => self.again.saturating_add(1),
            false => 0,
        };
    }

    /// The pause before pages are brought back: longer and longer, while they are soon taken again,
    /// in terms of what that costs. So a process that has no room costs no time, and one whose
    /// memory changes all the time waits for a moment only.
    fn pause(&self) -> Msecs {
        /// The longest, as a power of two of what it takes, and at all.
        const MOST: u32 = 6;
        const LONGEST: i64 = 10_000;
        if self.again == 0 {
            return FIRST_PAUSE;
        }
        let took = self.restored.map_or(0, |(_, took)| took.as_millis());
        let pause = took.saturating_mul(1 << self.again.min(MOST)).min(LONGEST);
        // CAST: at most `LONGEST`.
        pause.max(FIRST_PAUSE.into()) as Msecs
    }
}

impl Svm {
    /// Takes the process's queues off the hardware, if they are not yet. May run under reclaim.
    pub(super) fn evict(self: &Arc<Self>) -> Eviction<'_> {
        let mut evicting = self.evicting.lock();
        if !evicting.evicted {
            self.host.evict();
            evicting.evicted = true;
            evicting.note_eviction();
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
        trace::svm_invalidate(self.tgid(), pages.into(), reason, comes_back);
        let trigger = match reason {
            Reason::Unmap => KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_UNMAP_FROM_CPU,
            Reason::Migrate => KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY_MIGRATE,
            _ => KFD_SVM_UNMAP_TRIGGERS_KFD_SVM_UNMAP_TRIGGER_MMU_NOTIFY,
        };
        // Of the end of an address space nobody is told.
        let told = match reason {
            Reason::Unmap => self.users_mm().is_ok(),
            // What comes back is told of by the eviction.
            _ => !comes_back,
        };
        let tell = |gpu, run| {
            if told {
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
        self.restore_after(FIRST_PAUSE << failures.min(LONGEST_PAUSE));
    }

    fn restore_after(self: &Arc<Self>, pause: Msecs) {
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

    /// Lets the queues run again, if nobody needs them off, and nothing is missing. `took`: so long
    /// it took to bring pages back.
    fn resume(self: &Arc<Self>, took: Delta) {
        let mut evicting = self.evicting.lock();
        if !evicting.evicted || evicting.busy > 0 || self.lost.load(Acquire) {
            return;
        }
        evicting.evicted = false;
        evicting.restored = Some((Instant::now(), took));
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
        let begun = Instant::<Monotonic>::now();
        // Before it is looked: what is lost from here on is seen to again.
        if this.lost.xchg(false, kernel::sync::atomic::ordering::Full) {
            let back = this.bring_back();
            trace::svm_restore(this.tgid(), this.failures.load(Relaxed), &back);
            if let Err(error) = back {
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
        this.resume(begun.elapsed());
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_restore)]
mod tests {
    use super::*;

    fn after(took: Delta, times: u32) -> Msecs {
        let mut evicting = Evicting {
            evicted: false,
            busy: 0,
            restored: Some((Instant::now(), took)),
            again: 0,
        };
        (0..times).for_each(|_| evicting.note_eviction());
        evicting.pause()
    }

    #[test]
    fn pages_that_are_taken_again_at_once_come_back_later_and_later() {
        let minute = Delta::from_secs(60);
        assert_eq!(after(Delta::from_millis(100), 0), FIRST_PAUSE);
        assert_eq!(after(Delta::from_secs(2), 1), 4000);
        assert_eq!(after(Delta::from_secs(2), 2), 8000);
        assert_eq!((after(minute, 1), after(minute, 100)), (10_000, 10_000));
    }

    #[test]
    fn what_cost_nothing_comes_back_at_once() {
        assert_eq!(after(Delta::from_nanos(0), 3), FIRST_PAUSE);
        assert_eq!(after(Delta::from_nanos(-1), 100), FIRST_PAUSE);
    }
}
