// SPDX-License-Identifier: GPL-2.0-only

//! Pages that are taken away, and come back.
//!
//! Where GPUs do not retry accesses, the process's queues leave the hardware first, and come back
//! when all pages have: a worker brings them, again and again if it must. If they are taken as fast
//! as they come, or soon afterwards, it rests in between, in proportion to what that has cost. So
//! an idle process that has no room costs next to no time. Who rings a doorbell meanwhile is not
//! kept waiting: the doorbells are taken away while the worker rests for long
//! ([`super::Host::doze`]), and touching them ends the rest ([`Svm::hurry`]).
//!
//! A page that cannot be had, although something is mapped, is waited for with the queues off: as
//! long as it takes where a program is to supply it (userfaultfd), else for some seconds. Then who
//! uses it misses it.

use super::{
    granule::Granule,
    map::{
        self,
        Wanted, //
    },
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    places::Place,
    region::RegionUse,
    Evicting, Svm, RESTORE, RETRY,
};
use crate::{
    linux::{
        hmm::{
            is_supplied_by_user,
            Reason, //
        },
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
/// The longest after failures, as a power of two of the first.
const LONGEST_PAUSE: u32 = 10;
/// The longest in terms of what it takes to bring pages back, as a power of two.
const MOST_TIMES: u32 = 6;
/// The longest while work may wait that could go on.
const LONGEST_WAIT: Msecs = 10_000;
/// The longest while pages are taken as fast as they come, so that no work could go on.
const LONGEST_REST: Msecs = 300_000;
/// So long pages are waited for that cannot be had. What goes wrong for a moment has passed by
/// then, be it that there is no memory, or that a file is shorter than it was and will be again.
const PATIENCE: Delta = Delta::from_secs(10);
/// From so long a pause on, whoever rings a doorbell ends it.
const DOZE: Msecs = 500;

/// The process's queues are off the hardware, and stay so until this is dropped and all pages are
/// back.
pub(super) struct Eviction<'a>(&'a Arc<Svm>);

impl Drop for Eviction<'_> {
    fn drop(&mut self) {
        self.0.evicting.lock().busy -= 1;
        // The worker rests if it is to.
        self.0.restore_after(FIRST_PAUSE);
    }
}

impl Evicting {
    /// Nothing was taken away yet.
    pub(super) fn new() -> Self {
        Self {
            evicted: false,
            busy: 0,
            restored: None,
            again: 0,
            due: None,
            dozing: false,
        }
    }

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
        let took = self.restored.map_or(Delta::ZERO, |(_, took)| took);
        self.rest(match self.again {
            0 => FIRST_PAUSE,
            again => times(took, again).min(LONGEST_WAIT),
        });
    }

    /// Pages were taken away as fast as they came, for so long. `much`: that was no accident.
    fn note_struggle(&mut self, much: bool, took: Delta) {
        self.restored = Some((Instant::now(), took));
        self.again = match much {
            true => MOST_TIMES,
            false => self.again.saturating_add(1),
        };
        self.rest(times(took, self.again));
    }

    /// Pages could not be brought back, so often in a row; the last time it took so long.
    fn note_failure(&mut self, failures: u32, took: Delta) {
        let pause = FIRST_PAUSE << failures.min(LONGEST_PAUSE);
        self.rest(pause.max(times(took, failures)));
    }

    fn rest(&mut self, pause: Msecs) {
        self.due = Some(Instant::now() + Delta::from_millis(pause.into()));
    }

    /// How long it is until pages are brought back.
    fn left(&self) -> Msecs {
        let left = self
            .due
            .map_or(0, |due| (due - Instant::now()).as_micros_ceil());
        let left = (left + 999) / 1000;
        // CAST: at most `LONGEST_REST`.
        left.clamp(0, LONGEST_REST.into()) as Msecs
    }
}

/// A pause of so many times, as a power of two, of what something took.
fn times(took: Delta, power: u32) -> Msecs {
    let pause = took.as_millis().saturating_mul(1 << power.min(MOST_TIMES));
    // CAST: at most `LONGEST_REST`.
    pause.clamp(FIRST_PAUSE.into(), LONGEST_REST.into()) as Msecs
}

/// What came of it that pages were brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// All that was missing when it began is there, or is missing again.
    Over,
    /// About as much was taken meanwhile as came, and that was much.
    Struggle { much: bool },
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
            // What moves is there to be had.
            if reason != Reason::Migrate {
                let _: u64 = self.taken.fetch_add(missed.count(), Relaxed);
            }
            self.lost.store(true, Release);
        }
        if !taken && !self.has_ended() {
            let eviction = self.evict();
            self.lost.store(true, Release);
            drop(eviction);
        }
        // What a GPU forgets that hangs, and that it has forgotten, is not to be relied upon.
        self.host.await_eviction();
        drop(eviction);
    }

    /// Pages can be touched that GPUs were to see and could not: the queues wait until they do. May
    /// run under reclaim.
    pub(super) fn regain(self: &Arc<Self>) {
        if !self.has_ended() {
            let eviction = self.evict();
            self.lost.store(true, Release);
            drop(eviction);
        }
    }

    /// Somebody has work for the queues: if they are off, and their pages wait for their time, they
    /// are brought back now. Takes `evicting`.
    pub(crate) fn hurry(self: &Arc<Self>) {
        let waits = {
            let mut evicting = self.evicting.lock();
            evicting.dozing = false;
            evicting.due.take().is_some() && evicting.evicted
        };
        if waits && !self.has_ended() {
            pr_debug!(
                "process {} has work for its GPUs: its pages come back now\n",
                self.tgid()
            );
            let _ = self.workers.pages.hasten::<_, RESTORE>(self.clone());
        }
    }

    /// A job of the render node's would have pages that are to be gone: they are taken from GPUs
    /// now. Whoever brings pages back may wait for what the job has. Legal in any context.
    pub(crate) fn hurry_owed(self: &Arc<Self>) {
        if !self.has_ended() {
            let _ = self.workers.pages.enqueue::<_, RETRY>(self.clone());
        }
    }

    /// Nothing is brought back before its time. Whether there is time left.
    fn doze(self: &Arc<Self>) -> bool {
        /// When it is tried again to take doorbells away.
        const AGAIN: Msecs = 20;
        let (left, first) = {
            let mut evicting = self.evicting.lock();
            let left = evicting.left();
            let first = left >= DOZE && !evicting.dozing;
            evicting.dozing |= first;
            (left, first)
        };
        if left == 0 {
            return false;
        }
        let mut pause = left;
        if first {
            pr_debug!("pages of process {} come back in {left} ms\n", self.tgid());
            // Who has rung before is served by the one that comes then. Nobody rings in an address
            // space that has ended.
            let taken = self.place().and_then(|_place| {
                let taken = self.users_mm().map_or(Ok(()), |mm| self.host.doze(&mm));
                taken.map_err(|_| AGAIN)
            });
            if let Err(again) = taken {
                self.evicting.lock().dozing = false;
                pause = left.min(again);
            }
        }
        self.restore_after(pause);
        true
    }

    /// A place for a worker that may wait for others' programs ([`super::places`]). Else it comes
    /// again in so many milliseconds: ever later, as there may be many.
    pub(super) fn place(&self) -> Result<Place<'_>, Msecs> {
        const FIRST: Msecs = 4;
        const DOUBLINGS: u32 = 5;
        let Some(place) = self.workers.member.take() else {
            let before: u32 = self.refused.fetch_add(1, Relaxed);
            return Err(FIRST << before.min(DOUBLINGS));
        };
        self.refused.store(0, Relaxed);
        Ok(place)
    }

    fn restore_after(self: &Arc<Self>, pause: Msecs) {
        let jiffies = msecs_to_jiffies(pause).max(1);
        // If it waits already, it sees to this too.
        let queue = self.workers.pages;
        // SAFETY: `end` flushes it, before the process is gone.
        let _ = unsafe { queue.enqueue_delayed::<_, RESTORE>(self.clone(), jiffies) };
    }

    /// Brings back what was taken away. Fails if not all could be.
    fn bring_back(self: &Arc<Self>) -> Result<Pass> {
        /// Pages after which it is looked whether it is of use.
        const LEAST: u64 = 16 * GRANULE_PAGES;
        let mm = self.users_mm()?;
        self.taken.store(0, Relaxed);
        let struggles = |came: u64| self.taken.load(Relaxed) >= (came / 2).max(1);
        let (mut came, mut looked) = (0, LEAST);
        let mut result = Ok(());
        let mut from = 0;
        loop {
            let Some((index, region)) = self.region_from(from) else {
                return result.map(|()| match came > 0 && struggles(came) {
                    true => Pass::Struggle { much: false },
                    false => Pass::Over,
                });
            };
            result = result.and(region.lose_regained());
            let mut of_use = true;
            region.each_incomplete(|granule| {
                if !of_use {
                    return;
                }
                match self.bring_granule_back(&region, granule, &mm) {
                    Ok(pages) => came += pages,
                    Err(error) => result = result.and(Err(error)),
                }
                if came >= looked {
                    looked = came + LEAST;
                    of_use = !struggles(came);
                }
            });
            if !of_use {
                return Ok(Pass::Struggle { much: true });
            }
            from = index + 1;
        }
    }

    /// Takes those pages from GPUs that could not be taken when they should have been.
    fn retry(&self, region: &RegionUse, granule: &Granule) -> bool {
        let idle = granule.is_idle();
        let done = granule.retry(&self.gpus);
        if done && !idle && granule.is_idle() {
            region.look_again();
        }
        done
    }

    /// The same in all granules: whether all were. It waits for no program, nor for page tables: a
    /// job of the render node's may wait for it, which has these.
    fn retry_all(&self) -> bool {
        let (mut from, mut done) = (0, true);
        while let Some((index, region)) = self.region_from(from) {
            region.each_incomplete(|granule| done &= self.retry(&region, granule));
            from = index + 1;
        }
        done
    }

    /// Returns how many pages were missing.
    fn bring_granule_back(
        self: &Arc<Self>,
        region: &RegionUse,
        granule: &Arc<Granule>,
        mm: &MmWithUser,
    ) -> Result<u64> {
        if !self.retry(region, granule) {
            return Err(EBUSY);
        }
        if granule.state().lost.is_empty() {
            return Ok(0);
        }
        let Some(turn) = granule.turn() else {
            return Ok(0);
        };
        let lost = granule.state().begin_to_bring();
        let place = map::Place {
            region,
            granule,
            mm,
            _turn: &turn,
        };
        let pages = Pages::new(granule.first, granule.first + GRANULE_PAGES);
        let ranges = self.ranges_in(pages);
        let mut result = ranges.as_ref().map(|_| ()).map_err(|error| *error);
        let mut missing = PageBits::NONE;
        for (pages, attributes) in ranges.into_iter().flatten() {
            let gpus = attributes.shown_at_once(self.xnack());
            let here = PageBits::of(pages).intersection(lost);
            // Whoever has moved them has shown them, too.
            let here = here.minus(granule.seen_by_all(gpus));
            for pages in here.runs(granule.first) {
                let wanted = Wanted {
                    pages,
                    gpus,
                    again: false,
                };
                match self.map_those_there(&place, &wanted) {
                    Ok(not_there) => missing = missing.union(not_there),
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        if result.is_err() {
            let mut state = granule.state();
            state.lost = state.lost.union(lost);
        } else {
            let (mapped, supplied) = those_mapped(mm, missing, granule.first);
            if granule.lose_again(mapped, supplied, PATIENCE) {
                result = Err(EFAULT);
            }
        }
        granule.state().coming = PageBits::NONE;
        if granule.is_idle() {
            // What was missing has been unmapped, or cannot be touched.
            region.look_again();
            region.drop_if_idle(granule, turn);
        }
        result.map(|()| lost.count())
    }

    /// Not all pages could be brought back, which took so long: they are tried again.
    fn note_failure(self: &Arc<Self>, error: Error, took: Delta) {
        pr_debug!("not all pages can be brought back yet: {error:?}\n");
        self.lost.store(true, Release);
        if error != ESRCH {
            self.host.restore_postponed();
            let failures = self.failures.fetch_add(1, Relaxed);
            self.evicting.lock().note_failure(failures + 1, took);
            self.restore_after(FIRST_PAUSE);
        }
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

/// Those of a granule's pages that are mapped in an address space: of others nobody will have any.
/// And those of which a program says what is in them.
fn those_mapped(mm: &MmWithUser, pages: PageBits, first: u64) -> (PageBits, PageBits) {
    let (mut mapped, mut supplied) = (PageBits::NONE, PageBits::NONE);
    if pages.is_empty() {
        return (mapped, supplied);
    }
    let lock = mm.mmap_read_lock();
    for mut rest in pages.runs(first) {
        while !rest.is_empty() {
            // CAST: an address of this kernel's size.
            let Some(vma) = lock.vma_lookup(rest.address() as usize) else {
                rest.start += 1;
                continue;
            };
            let end = (vma.end() as u64 >> PAGE_SHIFT).min(rest.end);
            let here = PageBits::of(Pages::new(rest.start, end));
            mapped = mapped.union(here);
            if is_supplied_by_user(vma) {
                supplied = supplied.union(here);
            }
            rest.start = end;
        }
    }
    (mapped, supplied)
}

impl WorkItem<RETRY> for Svm {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if !this.has_ended() {
            // Who has work for the render node has some for the queues soon.
            if this.retry_all() {
                this.hurry();
            }
        }
    }
}

impl WorkItem<RESTORE> for Svm {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.has_ended() || this.doze() {
            return;
        }
        let begun = Instant::<Monotonic>::now();
        // It may be long until it is these granules' turn.
        if this.lost.load(Acquire) {
            let _: bool = this.retry_all();
        }
        let _place = match this.place() {
            Ok(place) => place,
            Err(pause) => return this.restore_after(pause),
        };
        let mut pass = Pass::Over;
        // Before it is looked: what is lost from here on is seen to again.
        if this.lost.xchg(false, kernel::sync::atomic::ordering::Full) {
            let back = this.bring_back();
            trace::svm_restore(this.tgid(), this.failures.load(Relaxed), &back.map(drop));
            match back {
                Ok(found) => pass = found,
                Err(error) => return this.note_failure(error, begun.elapsed()),
            }
        }
        this.failures.store(0, Relaxed);
        if let Pass::Struggle { much } = pass {
            this.lost.store(true, Release);
            this.host.restore_postponed();
            this.evicting.lock().note_struggle(much, begun.elapsed());
            this.restore_after(FIRST_PAUSE);
            return;
        }
        this.resume(begun.elapsed());
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_restore)]
mod tests {
    use super::*;

    /// What is left of the pause after queues left so often soon after they came.
    fn after(took: Delta, times: u32) -> Msecs {
        let mut evicting = Evicting::new();
        evicting.note_eviction();
        evicting.restored = Some((Instant::now(), took));
        (0..times).for_each(|_| evicting.note_eviction());
        evicting.left()
    }

    /// Some time may have passed since.
    fn is_about(left: Msecs, pause: Msecs) -> bool {
        left <= pause && left + 200 >= pause
    }

    #[test]
    fn pages_that_are_taken_again_at_once_come_back_later_and_later() {
        let minute = Delta::from_secs(60);
        assert!(is_about(after(Delta::from_millis(100), 0), FIRST_PAUSE));
        assert!(is_about(after(Delta::from_secs(2), 1), 4000));
        assert!(is_about(after(Delta::from_secs(2), 2), 8000));
        assert!(is_about(after(minute, 1), LONGEST_WAIT));
        assert!(is_about(after(minute, 100), LONGEST_WAIT));
    }

    #[test]
    fn what_cost_nothing_comes_back_at_once() {
        assert!(after(Delta::from_nanos(0), 3) <= FIRST_PAUSE);
        assert!(after(Delta::from_nanos(-1), 100) <= FIRST_PAUSE);
    }

    #[test]
    fn who_struggles_or_fails_rests_for_64_times_as_long() {
        let mut evicting = Evicting::new();
        evicting.note_struggle(false, Delta::from_secs(1));
        assert!(is_about(evicting.left(), 2000));
        evicting.note_struggle(true, Delta::from_secs(1));
        assert!(is_about(evicting.left(), 64_000));
        evicting.note_struggle(true, Delta::from_secs(60));
        assert!(is_about(evicting.left(), LONGEST_REST));
        evicting.note_failure(1, Delta::from_secs(1));
        assert!(is_about(evicting.left(), 2000));
        evicting.note_failure(100, Delta::from_secs(1));
        assert!(is_about(evicting.left(), 64_000));
        evicting.note_failure(10, Delta::from_nanos(0));
        assert!(is_about(evicting.left(), 1024));
    }
}
