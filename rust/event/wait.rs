// SPDX-License-Identifier: GPL-2.0-only

//! WAIT_EVENTS: from the user's records to an answer.
//!
//! A wait goes over its events up to three times. It *looks* at each once, which is all if the
//! condition holds already or there is no time to wait. Otherwise it *joins* the lists of those who
//! wait for the events, sleeps, and *leaves* the lists that it is still in. Every walk lets the
//! lock go after each [`BATCH`] events.

use super::{
    latch::{
        Mode,
        Tally, //
    },
    page,
    table::EventKind,
    waits::{
        NewRoom,
        NoRoom,
        Wait,
        WaitId, //
        WaitLink,
    },
    Events,
    Inner, //
};
use crate::{
    linux::{
        spinlock::IrqGuard,
        wait::{
            sleep,
            Timeout, //
        },
    },
    uapi::{
        kfd_event_data,
        user_slice,
        EventRecord,
        HwException,
        MemoryException, //
    },
};
use core::{
    mem::offset_of,
    ops::{
        Deref,
        DerefMut, //
    },
};
use kernel::{
    prelude::*,
    sync::aref::ARef,
    transmute::AsBytes, //
};

/// Events that are handled in one go under the lock, and copied from the user in one go.
const BATCH: usize = 32;

/// Waits for so few events are served without an allocation, unless they sleep.
const FEW: usize = 2;

/// How a wait ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What was waited for has happened.
    Complete,
    /// The time is up.
    TimedOut,
}

/// What WAIT_EVENTS asks for.
#[derive(Clone, Copy)]
pub(crate) struct WaitRequest {
    /// User address of the records, one for each event.
    pub(crate) records: u64,
    pub(crate) count: u32,
    /// Wait for all of them rather than for any.
    pub(crate) all: bool,
}

/// What a wait knows of one of its events before, or without, sleeping.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The age that the waiter saw last; 0 if it did not say.
    last_age: u64,
    event: u32,
    /// The event was signalled.
    fired: bool,
    /// If it fired, the waiter is told more than that.
    has_detail: bool,
}

/// Where a wait keeps what it knows of its events: those that it has looked at.
trait SeenList: DerefMut<Target = [Seen]> {
    /// One more. `ENOMEM`: there is no room for it.
    fn put(&mut self, seen: Seen) -> Result;
}

impl SeenList for KVVec<Seen> {
    #[inline]
    fn put(&mut self, seen: Seen) -> Result {
        Ok(self.push_within_capacity(seen)?)
    }
}

/// Room for [`FEW`] events.
#[derive(Default)]
struct Few {
    room: [Seen; FEW],
    count: usize,
}

impl SeenList for Few {
    #[inline]
    fn put(&mut self, seen: Seen) -> Result {
        *self.room.get_mut(self.count).ok_or(ENOMEM)? = seen;
        self.count += 1;
        Ok(())
    }
}

impl Deref for Few {
    type Target = [Seen];

    fn deref(&self) -> &[Seen] {
        self.room.get(..self.count).unwrap_or_default()
    }
}

impl DerefMut for Few {
    fn deref_mut(&mut self) -> &mut [Seen] {
        self.room.get_mut(..self.count).unwrap_or_default()
    }
}

impl Inner {
    /// A wait begins to look at an event. `EINVAL` if there is none.
    #[inline]
    fn look(&mut self, record: &EventRecord) -> Result<Seen> {
        let id = record.event_id();
        let event = self.tables.get_mut(id).ok_or(EINVAL)?;
        let age = record.last_event_age();
        let (last_age, has_detail) = match event.kind {
            EventKind::Signal => (age, age != 0),
            EventKind::Memory(_) | EventKind::HwException(_) => (0, true),
            EventKind::Debug | EventKind::Other(_) => (0, false),
        };
        Ok(Seen {
            last_age,
            event: id,
            fired: event.latch.take() | event.latch.missed(last_age),
            has_detail,
        })
    }

    /// A wait that will sleep looks at the event of one of its links again, and joins its list.
    fn join(&mut self, id: WaitId, index: usize) {
        let Some(wait) = self.waits.get_mut(id) else {
            return;
        };
        wait.follow(index);
        let Some(link) = wait.links.get_mut(index).filter(|link| !link.fired) else {
            return;
        };
        let event = link.event;
        let Some(event) = self.tables.get_mut(event) else {
            wait.broken = true;
            return;
        };
        if event.latch.take() | event.latch.missed(link.last_age) {
            link.fired = true;
            wait.tally.fire();
        } else {
            let age = event.latch.age();
            self.waits.attach(&mut event.waiters, id, index, age);
        }
    }

    /// A wait that slept leaves the list of one of its links.
    fn leave(&mut self, id: WaitId, index: usize) {
        let link = self
            .waits
            .get_mut(id)
            .and_then(|wait| wait.links.get(index));
        let Some(event) = link.map(|link| link.event) else {
            return;
        };
        if let Some(event) = self.tables.listed_mut(event) {
            let age = event.latch.age();
            self.waits.leave(&mut event.waiters, id, index, age);
        }
    }

    /// What the user learns of an event that fired. `EINVAL` if it is gone.
    fn detail(&mut self, seen: &Seen) -> Result<EventDetail> {
        let event = self.tables.get_mut(seen.event).ok_or(EINVAL)?;
        Ok(match event.kind {
            EventKind::Memory(data) => EventDetail::Memory(data),
            EventKind::HwException(data) => EventDetail::HwException(data),
            EventKind::Signal if seen.last_age != 0 => EventDetail::Age(event.latch.age()),
            EventKind::Signal | EventKind::Debug | EventKind::Other(_) => EventDetail::None,
        })
    }
}

/// What WAIT_EVENTS writes into a record.
#[derive(Clone, Copy)]
enum EventDetail {
    None,
    Age(u64),
    Memory(MemoryException),
    HwException(HwException),
}

impl EventDetail {
    /// Writes it to the union at the head of the record at user address `record`.
    fn write(&self, record: u64) -> Result {
        fn copy<T: AsBytes>(record: u64, value: &T) -> Result {
            user_slice(record, size_of::<T>()).writer().write(value)
        }
        match self {
            Self::None => Ok(()),
            Self::Age(age) => copy(record, age),
            Self::Memory(data) => copy(record, data),
            Self::HwException(data) => copy(record, data),
        }
    }
}

const _: () = assert!(offset_of!(kfd_event_data, __bindgen_anon_1) == 0);

impl Events {
    /// Waits. `timeout` is what is left of the time when a signal interrupts the wait.
    ///
    /// `EINVAL`: no such event. `EIO`: an event was destroyed meanwhile. `ERESTARTSYS`: a signal.
    pub(crate) fn wait(&self, request: WaitRequest, timeout: &mut Timeout) -> Result<Outcome> {
        if request.count > page::SLOTS {
            return Err(ENOMEM);
        }
        let count = request.count as usize;
        if count <= FEW {
            return self.wait_with::<FEW>(&request, &mut Few::default(), timeout);
        }
        let mut seen = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        self.wait_with::<BATCH>(&request, &mut seen, timeout)
    }

    /// Waits, with room for what is known of each event. Records are copied `N` at a time.
    fn wait_with<const N: usize>(
        &self,
        request: &WaitRequest,
        seen: &mut impl SeenList,
        timeout: &mut Timeout,
    ) -> Result<Outcome> {
        let mut tally = Tally::new(request.count, request.all);
        let mut has_detail = false;
        let result = match self.look::<N>(request, seen, &mut tally, &mut has_detail) {
            Err(error) => Err(error),
            Ok(()) if tally.complete() && !has_detail => return Ok(Outcome::Complete),
            Ok(()) if tally.complete() => Ok(Outcome::Complete),
            Ok(()) => match given_up(*timeout) {
                Some(result) => result,
                None => self.park(seen, tally, timeout),
            },
        };
        match result {
            Ok(Outcome::Complete) => self.report(request, seen).map(|()| Outcome::Complete),
            Ok(Outcome::TimedOut) => Ok(Outcome::TimedOut),
            Err(error) => Err(self.failed(seen, error)),
        }
    }

    /// A wait came to `error`. If the call is made again, by the kernel or, as there was no memory,
    /// by the caller, it finds what this one has taken. After any other error that is lost, as in
    /// C, which needs no memory once it has looked at an event.
    fn failed(&self, seen: &[Seen], error: Error) -> Error {
        if error == ERESTARTSYS || error == ENOMEM {
            self.put_back(seen);
        }
        error
    }

    /// Looks at every event once. Signals of automatic events are consumed, also if there is an
    /// error at last. `has_detail`: one of them fired, and the waiter is told more than that.
    fn look<const N: usize>(
        &self,
        request: &WaitRequest,
        seen: &mut impl SeenList,
        tally: &mut Tally,
        has_detail: &mut bool,
    ) -> Result {
        let mut left = request.count as usize;
        let mut reader = user_slice(request.records, left * size_of::<EventRecord>()).reader();
        let mut records = [EventRecord::default(); N];
        while left > 0 {
            let batch = records.get_mut(..left.min(N)).unwrap_or_default();
            EventRecord::read(&mut reader, batch)?;
            left -= batch.len();
            let mut fired = 0;
            let mut inner = self.inner.lock();
            for record in &*batch {
                let new = inner.look(record)?;
                *has_detail |= new.fired & new.has_detail;
                fired += u32::from(new.fired);
                seen.put(new)?;
            }
            drop(inner);
            tally.fire_many(fired);
        }
        Ok(())
    }

    /// Sleeps until the wait is over.
    fn park(&self, seen: &mut [Seen], tally: Tally, timeout: &mut Timeout) -> Result<Outcome> {
        let wait = Wait {
            task: ARef::from(&**kernel::current!()),
            links: links(seen)?,
            tally,
            broken: false,
        };
        let (mut inner, id) = self.enter(wait)?;
        for index in 0..seen.len() {
            inner.join(id, index);
            inner = self.breathe(inner, index);
        }
        let (mut inner, mut result) = doze(inner, id, timeout);
        for index in 0..seen.len() {
            inner.leave(id, index);
            inner = self.breathe(inner, index);
        }
        let wait = inner.waits.remove(id);
        drop(inner);
        match wait {
            Some(wait) => {
                for (index, fired) in wait.fired() {
                    if let Some(seen) = seen.get_mut(index) {
                        seen.fired = fired;
                    }
                }
                // A signal that came before it left is its own.
                if wait.tally.complete() && result != Err(EIO) {
                    result = Ok(Outcome::Complete);
                }
            }
            None => result = Err(EIO),
        }
        result
    }

    /// Registers a wait. `ENOMEM`: so many threads wait that there is no number for one more.
    fn enter(&self, mut wait: Wait) -> Result<(IrqGuard<'_, Inner>, WaitId)> {
        loop {
            let mut inner = self.inner.lock();
            let NoRoom { wait: back, list } = match inner.waits.insert(wait) {
                Ok(id) => return Ok((inner, id)),
                Err(refused) => refused,
            };
            drop(inner);
            wait = back;
            let room = NewRoom::new(list.ok_or(ENOMEM)?)?;
            let surplus = self.inner.lock().waits.grow(room);
            drop(surplus);
        }
    }

    /// Lets others have the lock after every batch of a long walk.
    fn breathe<'a>(&'a self, inner: IrqGuard<'a, Inner>, index: usize) -> IrqGuard<'a, Inner> {
        if index % BATCH != BATCH - 1 {
            return inner;
        }
        drop(inner);
        self.inner.lock()
    }

    /// Tells the user what happened.
    fn report(&self, request: &WaitRequest, seen: &[Seen]) -> Result {
        let tells = |seen: &Seen| seen.fired && seen.has_detail;
        for (batch, seen) in seen.chunks(BATCH).enumerate() {
            if !seen.iter().any(tells) {
                continue;
            }
            let mut detail = [EventDetail::None; BATCH];
            {
                let mut inner = self.inner.lock();
                for (detail, seen) in detail.iter_mut().zip(seen).filter(|(_, seen)| tells(seen)) {
                    *detail = inner.detail(seen)?;
                }
            }
            let first = batch * BATCH * size_of::<EventRecord>();
            for (index, detail) in detail.iter().enumerate() {
                let offset = first + index * size_of::<EventRecord>();
                detail.write(request.records.wrapping_add(offset as u64))?;
            }
        }
        Ok(())
    }

    /// A wait failed: the signals that it consumed are there again.
    fn put_back(&self, seen: &[Seen]) {
        for seen in seen.iter().filter(|seen| seen.fired) {
            let mut inner = self.inner.lock();
            let event = inner.tables.get_mut(seen.event);
            if event.is_some_and(|event| event.latch.mode() == Mode::Auto) {
                inner.signal(seen.event);
            }
        }
        self.fire_late();
    }
}

/// The links of a wait, sorted by event.
fn links(seen: &[Seen]) -> Result<KVVec<WaitLink>> {
    let mut few = [0; BATCH];
    let mut many = KVVec::new();
    let order = match few.get_mut(..seen.len()) {
        Some(order) => order,
        None => {
            many.resize(seen.len(), 0, GFP_KERNEL_ACCOUNT)?;
            &mut *many
        }
    };
    for ((index, seen), key) in (0u64..).zip(seen).zip(order.iter_mut()) {
        *key = u64::from(seen.event) << u32::BITS | index;
    }
    if !order.is_sorted() {
        sort(order);
    }
    let mut links = KVVec::with_capacity(seen.len(), GFP_KERNEL_ACCOUNT)?;
    for key in order {
        // CAST: the lower half, which is the index.
        let index = *key as u32;
        if let Some(seen) = seen.get(index as usize) {
            links.push_within_capacity(WaitLink::new(
                seen.event,
                index,
                seen.last_age,
                seen.fired,
            ))?;
        }
    }
    Ok(links)
}

/// Sorts in place. It is a heap sort: objtool takes the end of the library's quicksort, which
/// panics over a comparison that is no order, for one that falls through.
fn sort(keys: &mut [u64]) {
    for root in (0..keys.len() / 2).rev() {
        sift(keys, root);
    }
    for end in (1..keys.len()).rev() {
        keys.swap(0, end);
        if let Some(heap) = keys.get_mut(..end) {
            sift(heap, 0);
        }
    }
}

/// Moves the key at `at` down to where no key below it is greater.
fn sift(heap: &mut [u64], mut at: usize) {
    while let Some(left) = heap.get(2 * at + 1) {
        let right = heap.get(2 * at + 2).filter(|right| *right > left);
        let child = 2 * at + 1 + usize::from(right.is_some());
        if heap.get(at) >= heap.get(child) {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}

/// How a wait ends whose condition does not hold, if it must not sleep. A signal goes before the
/// time, as in C, also where no time was given.
fn given_up(timeout: Timeout) -> Option<Result<Outcome>> {
    if kernel::current!().signal_pending() {
        return Some(Err(ERESTARTSYS));
    }
    timeout.expired().then_some(Ok(Outcome::TimedOut))
}

/// Sleeps until a wait is over, the time is up or a signal comes.
fn doze<'a>(
    mut inner: IrqGuard<'a, Inner>,
    id: WaitId,
    timeout: &mut Timeout,
) -> (IrqGuard<'a, Inner>, Result<Outcome>) {
    loop {
        match inner.waits.get_mut(id) {
            Some(wait) if wait.broken => return (inner, Err(EIO)),
            Some(wait) if wait.tally.complete() => return (inner, Ok(Outcome::Complete)),
            Some(_) => {}
            None => return (inner, Err(EIO)),
        }
        if let Some(result) = given_up(*timeout) {
            return (inner, result);
        }
        (inner, *timeout) = sleep(inner, *timeout);
    }
}

mod tests;
