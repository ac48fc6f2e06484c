// SPDX-License-Identifier: GPL-2.0-only

//! Queues that did not leave the hardware and were reset, each for itself.
//!
//! [`reset_stuck`] and [`reset_copies`] do that for the run-list scheduler. Who is to be told of it
//! stands in a [`ResetProcesses`], one per scheduler: telling is the business of others, who ask
//! when they have called the scheduler.

use super::{
    copy_slots::CopySlots,
    partition::{
        compute_slots,
        xccs, //
    },
    preemption::Preemption, //
    runlist_state::RunlistState,
};
use crate::{
    gfx::{
        Formats,
        SdmaPlace, //
    },
    ids::Pasid,
    kgd::{
        gpu_err,
        gpu_warn,
        HqdPosition,
        Kgd, //
    },
    linux::errno,
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};
use kernel::prelude::*;

/// Processes that are to be told: as many as can have a queue on the hardware at a time.
pub(super) struct ResetProcesses {
    places: [AtomicU32; Self::MAX],
    /// How many places are taken, once no change is in progress: asking in vain, which
    /// each call of the scheduler does, is one load.
    taken: AtomicU32,
}

impl ResetProcesses {
    const MAX: usize = 64;

    /// None.
    pub(super) fn new() -> Self {
        Self {
            places: core::array::from_fn(|_| AtomicU32::new(0)),
            taken: AtomicU32::new(0),
        }
    }

    /// Notes a process, once.
    pub(super) fn add(&self, kgd: &dyn Kgd, pasid: Pasid) {
        let raw = pasid.raw();
        let known = |place: &AtomicU32| place.load(Ordering::Relaxed) == raw;
        if self.places.iter().any(known) {
            return;
        }
        let free = |place: &AtomicU32| {
            place
                .compare_exchange(0, raw, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        if self.places.iter().any(free) {
            self.taken.fetch_add(1, Ordering::Release);
        } else {
            let name = kgd.facts().pci_name();
            gpu_warn!(
                name,
                "too many queues were reset: pasid {raw} is not notified\n"
            );
        }
    }

    /// Takes one.
    pub(super) fn take(&self) -> Option<Pasid> {
        if self.taken.load(Ordering::Acquire) == 0 {
            return None;
        }
        let taken = |place: &AtomicU32| Pasid::new(place.swap(0, Ordering::Relaxed));
        let found = self.places.iter().find_map(taken)?;
        self.taken.fetch_sub(1, Ordering::Relaxed);
        Some(found)
    }
}

/// A reset of a GPU whose scheduler could not be started. amdgpu cannot do that before it has
/// resumed the device, of whose end it does not tell: what is asked of the scheduler afterwards
/// asks.
pub(super) struct WantedReset(AtomicBool);

impl WantedReset {
    /// None is wanted.
    pub(super) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// It is wanted.
    pub(super) fn want(&self, kgd: &dyn Kgd) {
        self.0.store(true, Ordering::Relaxed);
        self.ask(kgd);
    }

    /// Asks for it, once, if it is wanted and can be had.
    pub(super) fn ask(&self, kgd: &dyn Kgd) {
        if self.0.load(Ordering::Relaxed) && !kgd.is_suspending() {
            self.forget();
            kgd.request_reset();
        }
    }

    /// It is not wanted any more.
    pub(super) fn forget(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The doorbells that the firmware named as those of queues that do not stop, by logical XCC.
pub(super) struct StuckDoorbells([Option<u32>; Self::XCCS]);

impl StuckDoorbells {
    const XCCS: usize = 32;

    /// None.
    pub(super) const fn new() -> Self {
        Self([None; Self::XCCS])
    }

    /// One more.
    pub(super) fn add(&mut self, xcc: u32, doorbell: u32) {
        if let Some(place) = self.0.get_mut(xcc as usize) {
            *place = Some(doorbell);
        }
    }

    fn of(&self, xcc: u32) -> Option<u32> {
        self.0.get(xcc as usize).copied().flatten()
    }
}

/// Resets the compute queues that are still in their slots although everything was to leave. It
/// fails if not all of them could be reset, or the owner of one is unknown.
pub(super) fn reset_stuck(
    kgd: &dyn Kgd,
    formats: &Formats,
    xcc_mask: u32,
    named: &StuckDoorbells,
    state: &mut RunlistState,
    resets: &ResetProcesses,
) -> Preemption {
    match try_reset_stuck(kgd, formats, xcc_mask, named, state, resets) {
        // What the firmware named must be somewhere.
        Ok(0) | Err(_) => Preemption::Failed,
        Ok(_) => Preemption::AfterReset,
    }
}

/// A slot that shows no ring has no queue. `ETIME`: it has one whose ring is below 1 TiB, where its
/// user chose to have it: amdgpu can neither tell whose it is nor reset it.
pub(super) fn check_empty(kgd: &dyn Kgd, position: HqdPosition, xcc: u32) -> Result {
    if !kgd.slot_is_active(position, xcc) {
        return Ok(());
    }
    let HqdPosition { pipe, queue } = position;
    gpu_err!(
        kgd.facts().pci_name(),
        "XCC {xcc}: queue {queue} of pipe {pipe} does not stop, and cannot be reset alone\n"
    );
    Err(errno::timer_expired())
}

/// Returns how many.
fn try_reset_stuck(
    kgd: &dyn Kgd,
    formats: &Formats,
    xcc_mask: u32,
    named: &StuckDoorbells,
    state: &mut RunlistState,
    resets: &ResetProcesses,
) -> Result<u32> {
    let facts = kgd.facts();
    if !facts.queue_reset {
        gpu_err!(
            facts.pci_name(),
            "amdgpu's parameters forbid to reset single queues\n"
        );
        return Err(errno::timer_expired());
    }
    let mut found = 0;
    for position in compute_slots(facts) {
        for (xcc, _) in xccs(xcc_mask) {
            let Some(ring) = kgd.ring_in_slot(position, xcc) else {
                check_empty(kgd, position, xcc)?;
                continue;
            };
            found += 1;
            let owner = state.owner_of(ring, named.of(xcc), formats.mqd);
            let (process, queue) = owner.ok_or_else(errno::timer_expired)?;
            // Whether it can be or not: what it worked on is lost.
            let pasid = state.set_reset(process, queue)?;
            if kgd.reset_slot(position, xcc) != Some(ring) {
                return Err(errno::timer_expired());
            }
            resets.add(kgd, pasid);
        }
    }
    Ok(found)
}

/// A node's copy engines.
pub(super) struct CopyEngines<'a> {
    /// The number of its first one on the device.
    pub(super) first: u32,
    /// How many user queues each has slots for.
    pub(super) slots: u32,
    /// The queues that the firmware had.
    pub(super) mapped: &'a CopySlots,
}

/// Resets the copy queues that are still on their engines although firmware has confirmed that
/// everything left: of copy queues it does not say so. All slots are looked at of the engines that
/// the list had queues of: which one a queue is in the firmware decides, and tells nobody. It fails
/// if one cannot be reset, or nobody knows whose it is. `hold_still` is called before anything is
/// touched.
pub(super) fn reset_copies(
    kgd: &dyn Kgd,
    engines: CopyEngines<'_>,
    state: &mut RunlistState,
    resets: &ResetProcesses,
    hold_still: impl FnOnce(),
) -> Preemption {
    let first_engine = engines.first;
    let on_engine = |place: &SdmaPlace| kgd.copy_doorbell(first_engine + place.engine, place.queue);
    let slots_of = |engine| (0..engines.slots).map(move |queue| SdmaPlace { engine, queue });
    let mut stuck = CopySlots::default();
    for place in engines.mapped.engines().flat_map(slots_of) {
        if let Some(doorbell) = on_engine(&place) {
            let engine = first_engine + place.engine;
            gpu_err!(
                kgd.facts().pci_name(),
                "SDMA engine {engine}: the queue at doorbell {doorbell:#x} does not stop\n"
            );
            stuck.insert(place);
        }
    }
    if stuck.is_empty() {
        return Preemption::Complete;
    }
    hold_still();
    if !kgd.facts().queue_reset {
        gpu_err!(
            kgd.facts().pci_name(),
            "amdgpu's parameters forbid to reset single engines\n"
        );
        return Preemption::Failed;
    }
    for doorbell in stuck.iter().filter_map(|place| on_engine(&place)) {
        let owner = state.copy_owner_of(doorbell);
        let lost = owner.and_then(|(process, queue)| state.set_reset(process, queue).ok());
        let Some(pasid) = lost else {
            gpu_err!(
                kgd.facts().pci_name(),
                "doorbell {doorbell:#x} is nobody's\n"
            );
            return Preemption::Failed;
        };
        resets.add(kgd, pasid);
    }
    for engine in stuck.engines() {
        if let Err(error) = kgd.reset_copy_engine(first_engine + engine) {
            gpu_err!(
                kgd.facts().pci_name(),
                "SDMA engine {engine} cannot be reset alone ({error:?})\n"
            );
            return Preemption::Failed;
        }
    }
    let stays = stuck.iter().any(|place| on_engine(&place).is_some());
    if stays {
        Preemption::Failed
    } else {
        Preemption::AfterReset
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_resets)]
mod tests {
    use super::*;
    use crate::kgd::fake::Fake;

    #[test]
    fn each_process_is_told_once() {
        let fake = Fake::new().unwrap();
        let resets = ResetProcesses::new();
        let [a, b] = [1, 2].map(|raw| Pasid::new(raw).unwrap());
        resets.add(&*fake, a);
        resets.add(&*fake, b);
        resets.add(&*fake, a);
        assert_eq!(resets.take(), Some(a));
        assert_eq!(resets.take(), Some(b));
        assert_eq!(resets.take(), None);
    }

    #[test]
    fn no_slot_is_empty_that_is_at_work() {
        let fake = Fake::with(|facts| facts.compute_queue_bitmap = 1 << 5).unwrap();
        let facts = crate::kgd::Device::facts(&*fake);
        let position = compute_slots(facts).next().unwrap();
        assert_eq!(check_empty(&*fake, position, 0), Ok(()));
        fake.occupy(1 << 5);
        let timeout = Err(errno::timer_expired());
        assert_eq!(check_empty(&*fake, position, 0), timeout);
    }

    #[test]
    fn doorbells_are_named_by_xcc() {
        let mut named = StuckDoorbells::new();
        named.add(3, 0x1200);
        assert_eq!(
            (named.of(3), named.of(0), named.of(99)),
            (Some(0x1200), None, None)
        );
    }
}
