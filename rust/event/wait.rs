// SPDX-License-Identifier: GPL-2.0

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
    table::Kind,
    waits::{
        Link,
        Wait,
        WaitId, //
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
use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::aref::ARef,
    transmute::AsBytes, //
};

/// Events that are handled in one go under the lock, and copied from the user in one go.
const BATCH: usize = 16;

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

impl Inner {
    /// A wait begins to look at an event: the link to it, or `EINVAL` if there is none.
    #[inline]
    fn look(&mut self, record: &EventRecord) -> Result<Link> {
        let id = record.event_id();
        let event = self.tables.get_mut(id).ok_or(EINVAL)?;
        let age = match event.kind {
            Kind::Signal => record.last_event_age(),
            _ => 0,
        };
        let fired = event.latch.take() | event.latch.missed(age);
        Ok(Link::new(id, age, fired))
    }

    /// A wait that will sleep looks at the event of one of its links again, and joins its list.
    fn join(&mut self, id: WaitId, index: usize) {
        let Some(wait) = self.waits.get_mut(id) else {
            return;
        };
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
            self.waits.attach(&mut event.waiters, id, index);
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
        if let Some(event) = self.tables.get_mut(event) {
            self.waits.detach(&mut event.waiters, id, index);
        }
    }

    /// What the user learns of a link that fired. `EINVAL` if its event is gone.
    fn news(&mut self, link: &Link) -> Result<News> {
        let event = self.tables.get_mut(link.event).ok_or(EINVAL)?;
        Ok(match event.kind {
            Kind::Memory(data) => News::Memory(data),
            Kind::HwException(data) => News::HwException(data),
            Kind::Signal if link.last_age != 0 => News::Age(event.latch.age()),
            Kind::Signal | Kind::Debug | Kind::Other => News::None,
        })
    }
}

/// What WAIT_EVENTS writes into a record.
#[derive(Clone, Copy)]
enum News {
    None,
    Age(u64),
    Memory(MemoryException),
    HwException(HwException),
}

impl News {
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
        let mut links = KVVec::with_capacity(request.count as usize, GFP_KERNEL)?;
        let mut tally = Tally::new(request.count, request.all);
        let looked = self.look(&request, &mut links, &mut tally);
        let result = match looked {
            Err(error) => Err(error),
            Ok(()) if tally.complete() => Ok(Outcome::Complete),
            Ok(()) if timeout.expired() => Ok(Outcome::TimedOut),
            Ok(()) => self.park(&mut links, tally, timeout),
        };
        match result {
            Ok(Outcome::Complete) => self.report(&request, &links).map(|()| Outcome::Complete),
            Ok(Outcome::TimedOut) => Ok(Outcome::TimedOut),
            Err(error) => {
                self.put_back(&links);
                Err(error)
            }
        }
    }

    /// Looks at every event once and makes the links. Signals of automatic events are consumed.
    fn look(&self, request: &WaitRequest, links: &mut KVVec<Link>, tally: &mut Tally) -> Result {
        let count = request.count as usize;
        let bytes = count * size_of::<EventRecord>();
        let mut reader = user_slice(request.records, bytes).reader();
        let mut records = [EventRecord::default(); BATCH];
        while links.len() < count {
            let batch = records
                .get_mut(..BATCH.min(count - links.len()))
                .ok_or(EINVAL)?;
            EventRecord::read(&mut reader, batch)?;
            let mut inner = self.inner.lock();
            for record in batch.iter() {
                let link = inner.look(record)?;
                if link.fired {
                    tally.fire();
                }
                // Cannot fail: there is room for `count`.
                links.push_within_capacity(link)?;
            }
        }
        Ok(())
    }

    /// Sleeps until the wait is over.
    fn park(
        &self,
        links: &mut KVVec<Link>,
        tally: Tally,
        timeout: &mut Timeout,
    ) -> Result<Outcome> {
        let count = links.len();
        let task = ARef::from(&**kernel::current!());
        let wait = Wait {
            task,
            links: core::mem::take(links),
            tally,
            broken: false,
        };
        let (mut inner, id) = match self.enter(wait) {
            Ok(entered) => entered,
            Err((error, wait)) => {
                *links = wait.links;
                return Err(error);
            }
        };
        for index in 0..count {
            inner.join(id, index);
            inner = self.breathe(inner, index);
        }
        let (mut inner, mut result) = doze(inner, id, timeout);
        for index in 0..count {
            inner.leave(id, index);
            inner = self.breathe(inner, index);
        }
        match inner.waits.remove(id) {
            Some(wait) => *links = wait.links,
            None => result = Err(EIO),
        }
        result
    }

    /// Registers a wait.
    fn enter(&self, mut wait: Wait) -> Result<(IrqGuard<'_, Inner>, WaitId), (Error, Wait)> {
        loop {
            let mut inner = self.inner.lock();
            let capacity = inner.waits.capacity();
            match inner.waits.insert(wait) {
                Ok(id) => return Ok((inner, id)),
                Err(back) => wait = back,
            }
            drop(inner);
            let larger = match KVVec::with_capacity((capacity * 2).max(4), GFP_KERNEL) {
                Ok(larger) => larger,
                Err(error) => return Err((error.into(), wait)),
            };
            let surplus = self.inner.lock().waits.grow(larger);
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
    fn report(&self, request: &WaitRequest, links: &[Link]) -> Result {
        for (batch, links) in links.chunks(BATCH).enumerate() {
            let mut news = [News::None; BATCH];
            {
                let mut inner = self.inner.lock();
                for (news, link) in news.iter_mut().zip(links).filter(|(_, link)| link.fired) {
                    *news = inner.news(link)?;
                }
            }
            let first = batch * BATCH * size_of::<EventRecord>();
            for (index, news) in news.iter().enumerate() {
                let offset = first + index * size_of::<EventRecord>();
                news.write(request.records.wrapping_add(offset as u64))?;
            }
        }
        Ok(())
    }

    /// A wait failed: the signals that it consumed are there again.
    fn put_back(&self, links: &[Link]) {
        for link in links.iter().filter(|link| link.fired) {
            let mut inner = self.inner.lock();
            let event = inner.tables.get_mut(link.event);
            if event.is_some_and(|event| event.latch.mode() == Mode::Auto) {
                inner.signal(link.event);
            }
        }
    }
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
        if timeout.expired() {
            return (inner, Ok(Outcome::TimedOut));
        }
        if kernel::current!().signal_pending() {
            return (inner, Err(ERESTARTSYS));
        }
        (inner, *timeout) = sleep(inner, *timeout);
    }
}
