// SPDX-License-Identifier: GPL-2.0-only

//! What a debugger does with the queues of a process on one GPU: it hears of their exceptions,
//! looks at them, suspends them, and says how their waves behave.

use super::{
    Queue,
    Queues,
    Scheduled,
    Site, //
};
use crate::{
    gfx::WaveControl,
    ids::{
        GpuId,
        QueueId, //
    },
    queue::properties::QueueKind,
    sched::{
        Key,
        Suspension, //
    },
    uapi::{
        kfd_queue_snapshot_entry,
        EC_QUEUE_NEW, //
    },
};
use kernel::{
    prelude::*,
    sync::CondVar, //
};

/// `KFD_DBG_QUEUE_ERROR_MASK`: the hardware did not obey, or cannot be looked at.
const FAILED: u32 = 1 << 30;
/// `KFD_DBG_QUEUE_INVALID_MASK`: there is no such queue, or it cannot be suspended now.
const INVALID: u32 = 1 << 31;

/// What a debugger knows of a queue, and has done with it.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Debugged {
    /// `KFD_EC_MASK` of what happened to it and was not taken note of: one word with the rest, for
    /// each new queue has it copied.
    exceptions: u32,
    suspended: bool,
    /// DESTROY_QUEUE waits until it is not suspended any more.
    ending: bool,
}

/// Those of a mask that can happen to a queue: `EC_QUEUE_NEW` is the last.
const fn of_queue(exceptions: u64) -> u32 {
    // CAST: below bit 31.
    (exceptions & (2 * EC_QUEUE_NEW - 1)) as u32
}

impl Debugged {
    /// A queue that no debugger has seen.
    pub(in crate::queue) const NEW: Self = Self {
        exceptions: of_queue(EC_QUEUE_NEW),
        suspended: false,
        ending: false,
    };

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Suspends it. False: it is too new for that, or is about to go.
    fn suspend(&mut self) -> bool {
        let may = !self.ending && self.exceptions & of_queue(EC_QUEUE_NEW) == 0;
        self.suspended |= may;
        self.suspended
    }
}

/// What a debugger named for SUSPEND_QUEUES or RESUME_QUEUES, and what came of it.
pub(crate) struct Named<'a> {
    ids: &'a mut [u32],
}

impl<'a> Named<'a> {
    /// As they came from the user: so far they name no queue.
    pub(crate) fn new(ids: &'a mut [u32]) -> Self {
        ids.iter_mut().for_each(|id| *id |= INVALID);
        Self { ids }
    }

    /// Where a queue is named first.
    fn find(&mut self, id: QueueId) -> Option<&mut u32> {
        let mut all = self.ids.iter_mut();
        all.find(|named| **named & !INVALID == id.raw())
    }

    /// Suspends a queue if it is named. False: it is not, or cannot be suspended.
    fn suspend(&mut self, id: QueueId, debugged: &mut Debugged) -> bool {
        let Some(place) = self.find(id) else {
            return false;
        };
        let suspended = debugged.suspend();
        if suspended {
            *place &= !INVALID;
        }
        suspended
    }
}

/// What has happened to a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The newest queue comes first.
    pub(crate) key: Key,
    pub(crate) queue: QueueId,
    pub(crate) exceptions: u64,
}

/// A queue as a debugger sees it.
pub(crate) struct QueueSnapshot {
    /// The newest queue comes first.
    pub(crate) key: Key,
    pub(crate) entry: kfd_queue_snapshot_entry,
}

impl Queues {
    /// Something happened to the queue with this doorbell of the process's.
    pub(crate) fn raise_at(&self, doorbell: usize, exceptions: u64) {
        let mut inner = self.inner.lock();
        let mut all = inner.queues.values_mut();
        if let Some(found) = all.find(|it| it.queue.doorbell_id() == doorbell) {
            found.debugged.exceptions |= of_queue(exceptions);
        }
    }

    /// All that has happened to queues.
    pub(crate) fn exceptions(&self) -> u64 {
        let inner = self.inner.lock();
        let all = inner
            .queues
            .values()
            .map(|it| u64::from(it.debugged.exceptions));
        all.fold(0, |all, one| all | one)
    }

    /// What has happened to a queue. `None`: there is no such queue here.
    pub(crate) fn exceptions_of(&self, id: QueueId) -> Option<u64> {
        let inner = self.inner.lock();
        Some(inner.queues.get(&id)?.debugged.exceptions.into())
    }

    /// The newest queue to which one of these has happened.
    pub(crate) fn pending(&self, wanted: u64) -> Option<Pending> {
        let inner = self.inner.lock();
        let all = inner
            .queues
            .iter()
            .filter(|(_, it)| it.debugged.exceptions & of_queue(wanted) != 0);
        let newest = all.min_by_key(|(_, it)| it.key);
        newest.map(|(id, it)| Pending {
            key: it.key,
            queue: *id,
            exceptions: it.debugged.exceptions.into(),
        })
    }

    /// Somebody took note of these, of one queue or of all.
    pub(crate) fn clear_exceptions(&self, id: Option<QueueId>, exceptions: u64) {
        let mut inner = self.inner.lock();
        for (known, it) in inner.queues.iter_mut() {
            if id.is_none_or(|id| *known == id) {
                it.debugged.exceptions &= !of_queue(exceptions);
            }
        }
    }

    /// Shows all queues as far as there is room in `to`, which does not grow. Returns how many
    /// there are.
    pub(crate) fn snapshot(&self, gpu: GpuId, to: &mut KVec<QueueSnapshot>) -> usize {
        let inner = self.inner.lock();
        for (id, scheduled) in inner.queues.iter() {
            // One more than a moment ago is counted and not shown.
            let _ = to.push_within_capacity(scheduled.snapshot(*id, gpu));
        }
        inner.count
    }

    /// What a debugger has set for the process's waves is this from now on. After an error it is
    /// all the same, but the hardware does not know: it is being reset, or will be.
    pub(crate) fn set_control(&self, site: &impl Site, control: WaveControl) -> Result {
        let control = control.set();
        let mut inner = self.inner.lock();
        if core::mem::replace(&mut inner.control, control) == control {
            return Ok(());
        }
        let Some((process, _)) = &inner.process else {
            return Ok(());
        };
        let scheduler = site.node().queues().scheduler();
        scheduler.set_control(*process, control)
    }

    /// Suspends the named queues, and forgets `clear` of what happened to them. Those that are not
    /// suspended run again. Returns how many are suspended now; none if what is saved of them is
    /// not there, as while the GPU sleeps or is reset. They do not run then all the same.
    pub(crate) fn suspend(
        &self,
        site: &impl Site,
        named: &mut Named<'_>,
        (grace, clear): (Option<u32>, u64),
    ) -> u32 {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some((process, _)) = &inner.process else {
            return 0;
        };
        let mut count = 0;
        for (id, scheduled) in inner.queues.iter_mut() {
            count += u32::from(named.suspend(*id, &mut scheduled.debugged));
        }
        if count == 0 {
            return 0;
        }
        let queues = &inner.queues;
        let suspended = queues.values().filter(|it| it.debugged.suspended);
        let result = site.node().queues().scheduler().suspend(
            *process,
            &mut suspended.map(|it| it.key),
            Suspension::Begin { grace },
        );
        // A debugger takes what is in the save areas for what there is of the waves.
        let result = result.and_then(|saved| saved.then_some(()).ok_or(EAGAIN));
        for (id, scheduled) in inner.queues.iter_mut() {
            match (named.find(*id), result) {
                (Some(_), Ok(())) => scheduled.debugged.exceptions &= !of_queue(clear),
                (Some(place), Err(_)) => *place |= FAILED,
                (None, _) => {}
            }
        }
        result.map_or(0, |()| count)
    }

    /// Looks at the queue that has this key. What is saved of one that is suspended stays as it is
    /// meanwhile; of another it is what was saved last, and may change, as with C. `EINVAL`: there
    /// is none; `EIO`: what the hardware has saved of it is not there.
    pub(crate) fn look_at(
        &self,
        id: QueueId,
        key: Key,
        look: impl FnOnce(&Queue) -> Result,
    ) -> Result {
        let inner = self.inner.lock();
        let known = inner.queues.get(&id).filter(|it| it.key == key);
        let scheduled = known.ok_or(EINVAL)?;
        let (process, _) = inner.process.as_ref().ok_or(EINVAL)?;
        let queue = &scheduled.queue;
        match queue.node.scheduler().keeps_saved(*process) {
            true => look(queue),
            false => Err(EIO),
        }
    }

    /// Lets the named queues run again, or all; who waits in [`Queues::await_resume`] hears of it
    /// by `resumed`. Returns how many are not suspended any more.
    pub(crate) fn resume(
        &self,
        site: &impl Site,
        mut named: Option<&mut Named<'_>>,
        resumed: &CondVar,
    ) -> u32 {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some((process, _)) = &inner.process else {
            return 0;
        };
        let (mut count, mut changed) = (0, false);
        for (id, scheduled) in inner.queues.iter_mut() {
            if let Some(named) = &mut named {
                match named.find(*id) {
                    Some(place) => *place &= !INVALID,
                    None => continue,
                }
            }
            changed |= core::mem::take(&mut scheduled.debugged.suspended);
            count += 1;
        }
        if !changed {
            return count;
        }
        resumed.notify_all();
        let free = inner.queues.values().filter(|it| !it.debugged.suspended);
        let result = site.node().queues().scheduler().suspend(
            *process,
            &mut free.map(|it| it.key),
            Suspension::End,
        );
        if let (Err(_), Some(named)) = (result, named) {
            for id in inner.queues.keys() {
                if let Some(place) = named.find(*id) {
                    *place |= FAILED;
                }
            }
        }
        result.map_or(0, |_| count)
    }

    /// Waits until a queue that is about to go is not suspended; it cannot be suspended any more
    /// then. `EINVAL`: there is no such queue here. `EBUSY`: somebody waits for it already.
    /// `ERESTARTSYS`: a signal; it can be suspended again.
    ///
    /// TIMEOUT: none but that. A debugger that has suspended a queue may look at it as long as it
    /// lives.
    pub(crate) fn await_resume(&self, id: QueueId, resumed: &CondVar) -> Result {
        let mut inner = self.inner.lock();
        let debugged = &mut inner.queues.get_mut(&id).ok_or(EINVAL)?.debugged;
        if core::mem::replace(&mut debugged.ending, true) {
            return Err(EBUSY);
        }
        loop {
            let waits = |it: &Scheduled| it.debugged.suspended;
            if !inner.queues.get(&id).is_some_and(waits) {
                return Ok(());
            }
            if resumed.wait_interruptible(&mut inner) {
                if let Some(it) = inner.queues.get_mut(&id) {
                    it.debugged.ending = false;
                }
                return Err(ERESTARTSYS);
            }
        }
    }
}

impl Scheduled {
    fn snapshot(&self, id: QueueId, gpu: GpuId) -> QueueSnapshot {
        let properties = &self.queue.properties;
        let settings = properties.settings();
        let (area, area_bytes) = properties
            .save_area()
            .map_or((0, 0), |area| (area.address.raw(), area.bytes));
        let entry = kfd_queue_snapshot_entry {
            exception_status: self.debugged.exceptions.into(),
            ring_base_address: settings.ring().raw(),
            write_pointer_address: properties.write_pointer().raw(),
            read_pointer_address: properties.read_pointer().raw(),
            ctx_save_restore_address: area,
            queue_id: id.raw(),
            gpu_id: gpu.raw(),
            ring_size: settings.ring_bytes(),
            queue_type: self.queue.user_type(),
            ctx_save_restore_area_size: area_bytes,
            reserved: 0,
        };
        QueueSnapshot {
            key: self.key,
            entry,
        }
    }
}

impl Queue {
    /// `KFD_IOC_QUEUE_TYPE_*`, as CREATE_QUEUE has them; a queue on a certain engine is one of its
    /// kind.
    fn user_type(&self) -> u32 {
        match self.properties.kind() {
            QueueKind::Aql => 2,
            // 0, or 1 or 3 for copies.
            QueueKind::Pm4 | QueueKind::Sdma(_) => self.facts().kind,
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_queue_debugger)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_suspended_when_it_was_seen_and_while_it_stays() {
        let mut queue = Debugged::NEW;
        assert!(!queue.suspend());
        queue.exceptions = 1;
        queue.ending = true;
        assert!(!queue.suspend());
        queue.ending = false;
        assert!(queue.suspend() && queue.is_suspended());
        // Once it is, nothing of that matters.
        queue.exceptions = of_queue(EC_QUEUE_NEW);
        assert!(queue.suspend());
    }

    #[test]
    fn who_names_queues_is_told_which_are_suspended() {
        let mut ids = [5, 7, 5, 8];
        let mut named = Named::new(&mut ids);
        let id = |raw| QueueId::new(raw).unwrap();
        let seen = || Debugged {
            exceptions: 0,
            ..Debugged::NEW
        };
        let mut before = Debugged {
            suspended: true,
            ..seen()
        };
        assert!(named.suspend(id(5), &mut before));
        assert!(named.suspend(id(7), &mut seen()));
        // Too new, and not named.
        let mut new = Debugged::NEW;
        assert!(!named.suspend(id(8), &mut new));
        let mut other = seen();
        assert!(!named.suspend(id(9), &mut other) && !other.is_suspended());
        assert_eq!(ids, [5, 7, 5 | INVALID, 8 | INVALID]);
    }

    #[test]
    fn a_queue_counts_where_it_is_named_first() {
        let mut ids = [5, 7 | INVALID, 5, 6 | FAILED];
        let mut named = Named::new(&mut ids);
        let id = |raw| QueueId::new(raw).unwrap();
        for raw in [5, 7] {
            *named.find(id(raw)).unwrap() &= !INVALID;
        }
        assert!(named.find(id(6)).is_none() && named.find(id(5)).is_some());
        assert_eq!(ids, [5, 7, 5 | INVALID, 6 | FAILED | INVALID]);
    }
}
