// SPDX-License-Identifier: GPL-2.0

//! Events: what a process waits for. One [`Events`] for each process; the process and the table of
//! pasids own it together, because an interrupt finds it without finding the process.
//!
//! Everything is under one interrupt-safe lock, the innermost of the driver: beneath it nothing
//! sleeps, allocates or faults. User memory is copied, and memory allocated, before the lock is
//! taken; long walks let it go after every [`BATCH`] events.

mod latch;
mod page;
mod table;
mod waits;

pub(crate) use latch::Mode;
pub(crate) use page::Hint;

use crate::{
    kgd::KernelMapping,
    linux::{
        mmap::Vma,
        shared_pages::SharedPages,
        spinlock::{
            new_irq_spinlock,
            IrqGuard,
            IrqSpinLock, //
        },
        wait::{
            sleep,
            Timeout, //
        },
    },
    uapi::{
        user_slice,
        EventRecord,
        HwException,
        MemoryException, //
    },
};
use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    transmute::AsBytes,
};
use latch::Tally;
use table::{
    Chunk,
    Event,
    Full,
    Kind,
    Table, //
};
use waits::{
    Link,
    Wait,
    WaitId,
    Waits, //
};

/// Events that are handled in one go under the lock, and copied from the user in one go.
const BATCH: usize = 16;

const _: () = assert!(page::SLOTS == crate::uapi::KFD_SIGNAL_EVENT_LIMIT);

/// The memory of the signal page.
pub(crate) enum SignalPage {
    /// Ours; user space maps it through /dev/kfd.
    Own(SharedPages),
    /// A buffer that user space made and handed over.
    Buffer(KernelMapping),
}

impl SignalPage {
    /// A page of our own, all slots unsignalled.
    fn own() -> Result<Self> {
        let page = Self::Own(SharedPages::new(page::PAGE_BYTES)?);
        page.clear();
        Ok(page)
    }

    /// A buffer of the user's. `EINVAL` if it is too small.
    pub(crate) fn buffer(mapping: KernelMapping) -> Result<Self> {
        if mapping.size() < page::PAGE_BYTES {
            return Err(EINVAL);
        }
        let page = Self::Buffer(mapping);
        page.clear();
        Ok(page)
    }

    fn clear(&self) {
        for id in 0..page::SLOTS {
            self.acknowledge(id);
        }
    }

    /// Whether whoever signals has written the slot of event `id`.
    fn is_signalled(&self, id: u32) -> bool {
        let slot = match self {
            Self::Own(pages) => pages.read(id as usize),
            Self::Buffer(mapping) => mapping.read_u64(id as usize * 8).ok(),
        };
        slot.is_some_and(|slot| slot != page::UNSIGNALLED)
    }

    /// The signal of event `id` has been seen.
    fn acknowledge(&self, id: u32) {
        match self {
            Self::Own(pages) => pages.write(id as usize, page::UNSIGNALLED),
            // Cannot fail: `buffer` checked the size.
            Self::Buffer(mapping) => {
                let _ = mapping.write_u64(id as usize * 8, page::UNSIGNALLED);
            }
        }
    }

    /// Slots that user space sees before it maps the page.
    fn slots(&self) -> u32 {
        match self {
            Self::Own(_) => (page::DEFAULT_MAPPED_BYTES / 8) as u32,
            Self::Buffer(mapping) => page::SLOTS.min((mapping.size() / 8) as u32),
        }
    }
}

/// A new event, as user space learns of it.
pub(crate) struct Created {
    pub(crate) id: u32,
    /// It has a slot in the signal page, with its id as number.
    pub(crate) has_slot: bool,
}

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

/// The events of a process.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    inner: IrqSpinLock<Inner>,
}

struct Inner {
    signals: Table,
    others: Table,
    page: Option<SignalPage>,
    /// Slots of the signal page that user space can see, and so signal events it can have.
    slots: u32,
    waits: Waits,
}

impl Events {
    /// No events.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let inner = Inner {
            signals: Table::signals(),
            others: Table::others(),
            page: None,
            slots: 0,
            waits: Waits::new(),
        };
        let events = pin_init!(Self { inner <- new_irq_spinlock!(inner, "amdkfd::Events") });
        Arc::pin_init(events, GFP_KERNEL)
    }

    /// CREATE_EVENT. `ENOSPC` if there are too many.
    pub(crate) fn create(&self, event_type: u32, mode: Mode) -> Result<Created> {
        let kind = Kind::from_type(event_type);
        let has_slot = kind.has_slot();
        if has_slot {
            self.ensure_page()?;
        }
        let id = loop {
            match self.inner.lock().insert(Event::new(kind, mode)) {
                Ok(id) => break id,
                Err(Full::Exhausted) => return Err(ENOSPC),
                Err(Full::NeedsChunk) => {}
            }
            let chunk = Chunk::new()?;
            let surplus = self.inner.lock().table_of(&kind).grow(chunk);
            drop(surplus);
        };
        Ok(Created { id, has_slot })
    }

    /// DESTROY_EVENT: those who wait for it fail. `EINVAL` if there is no such event.
    pub(crate) fn destroy(&self, id: u32) -> Result {
        self.inner.lock().remove(id).ok_or(EINVAL)
    }

    /// SET_EVENT. `EINVAL` if there is no such event, or user space must not signal it.
    pub(crate) fn set(&self, id: u32) -> Result {
        let mut inner = self.inner.lock();
        inner.user_event(id)?;
        inner.signal(id);
        Ok(())
    }

    /// RESET_EVENT. `EINVAL` as for [`Events::set`].
    pub(crate) fn reset(&self, id: u32) -> Result {
        self.inner.lock().user_event(id)?.latch.reset();
        Ok(())
    }

    /// Takes the user's buffer as signal page. `EINVAL` if there is a page already.
    pub(crate) fn set_page(&self, page: SignalPage) -> Result {
        let mut inner = self.inner.lock();
        if inner.page.is_some() {
            drop(inner);
            return Err(EINVAL);
        }
        inner.slots = page.slots();
        inner.page = Some(page);
        Ok(())
    }

    /// Whether there is a signal page.
    pub(crate) fn has_page(&self) -> bool {
        self.inner.lock().page.is_some()
    }

    /// Takes the signal page away, when nobody signals any more.
    pub(crate) fn take_page(&self) -> Option<SignalPage> {
        self.inner.lock().page.take()
    }

    /// Maps the signal page to user space. `EINVAL` if it is not ours, or the mapping is larger.
    pub(crate) fn mmap(&self, vma: &Vma) -> Result {
        if vma.size() > page::PAGE_BYTES {
            return Err(EINVAL);
        }
        let address = match &self.inner.lock().page {
            Some(SignalPage::Own(pages)) => pages.physical_address(),
            Some(SignalPage::Buffer(_)) | None => return Err(EINVAL),
        };
        vma.map_memory(address)?;
        // CAST: At most 4096.
        self.inner.lock().slots = (vma.size() / 8) as u32;
        Ok(())
    }

    /// The GPU raised an interrupt for one of the signal events. Legal in a hard interrupt.
    pub(crate) fn signal_hinted(&self, hint: Hint) {
        let mut inner = self.inner.lock();
        let found = hint.candidates().find(|id| inner.answer(*id));
        if found.is_none() {
            // The hint was of no use: look at all of them.
            let mut last = None;
            while let Some(id) = inner.signals.next_id(last) {
                inner.answer(id);
                last = Some(id);
            }
        }
    }

    /// A memory access of the process failed.
    pub(crate) fn memory_exception(&self, data: MemoryException) {
        self.raise(|kind| matches!(kind, Kind::Memory(_)).then_some(Kind::Memory(data)));
    }

    /// A GPU of the process was reset.
    pub(crate) fn hw_exception(&self, data: HwException) {
        self.raise(|kind| matches!(kind, Kind::HwException(_)).then_some(Kind::HwException(data)));
    }

    /// Signals all events for whose kind `news` has something to tell.
    fn raise(&self, news: impl Fn(&Kind) -> Option<Kind>) {
        let mut inner = self.inner.lock();
        let mut last = None;
        while let Some(id) = inner.others.next_id(last) {
            last = Some(id);
            let Some(event) = inner.others.get_mut(id) else {
                continue;
            };
            if let Some(kind) = news(&event.kind) {
                event.kind = kind;
                inner.signal(id);
            }
        }
    }

    /// The process ends: nothing will be signalled any more, and whoever waits wakes up and fails.
    pub(crate) fn shut_down(&self) {
        self.inner.lock().waits.break_all();
    }

    fn ensure_page(&self) -> Result {
        if self.has_page() {
            return Ok(());
        }
        let page = SignalPage::own()?;
        let mut inner = self.inner.lock();
        if inner.page.is_none() {
            inner.slots = page.slots();
            inner.page = Some(page);
            return Ok(());
        }
        // Another thread was faster; the page goes after the lock.
        drop(inner);
        drop(page);
        Ok(())
    }
}

impl Inner {
    fn table_of(&mut self, kind: &Kind) -> &mut Table {
        if kind.has_slot() {
            &mut self.signals
        } else {
            &mut self.others
        }
    }

    #[inline]
    fn table_with(&mut self, id: u32) -> &mut Table {
        if id < table::FIRST_OTHER_ID {
            &mut self.signals
        } else {
            &mut self.others
        }
    }

    fn insert(&mut self, event: Event) -> Result<u32, Full> {
        if !event.kind.has_slot() {
            return self.others.insert(event, page::SLOTS);
        }
        let id = self.signals.insert(event, self.slots)?;
        if let Some(page) = &self.page {
            page.acknowledge(id);
        }
        Ok(id)
    }

    fn remove(&mut self, id: u32) -> Option<()> {
        let mut event = self.table_with(id).remove(id)?;
        self.waits.abandon(&mut event.waiters);
        Some(())
    }

    /// An event that user space may set and reset.
    fn user_event(&mut self, id: u32) -> Result<&mut Event> {
        let event = self.table_with(id).get_mut(id).ok_or(EINVAL)?;
        matches!(event.kind, Kind::Signal).then_some(event).ok_or(EINVAL)
    }

    /// Signals an event, if it is there.
    fn signal(&mut self, id: u32) {
        let table = if id < table::FIRST_OTHER_ID { &mut self.signals } else { &mut self.others };
        if let Some(event) = table.get_mut(id) {
            event.latch.set(event.waiters.is_some());
            self.waits.fire(&mut event.waiters);
        }
    }

    /// Signals a signal event if its slot says so. Returns whether it did.
    fn answer(&mut self, id: u32) -> bool {
        let Some(page) = &self.page else {
            return false;
        };
        if !page.is_signalled(id) || self.signals.get_mut(id).is_none() {
            return false;
        }
        page.acknowledge(id);
        self.signal(id);
        true
    }

    /// A wait begins to look at an event: the link to it, or `EINVAL` if there is none.
    #[inline]
    fn look(&mut self, record: &EventRecord) -> Result<Link> {
        let id = record.event_id();
        let event = self.table_with(id).get_mut(id).ok_or(EINVAL)?;
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
        let table =
            if event < table::FIRST_OTHER_ID { &mut self.signals } else { &mut self.others };
        let Some(event) = table.get_mut(event) else {
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
        let link = self.waits.get_mut(id).and_then(|wait| wait.links.get(index));
        let Some(event) = link.map(|link| link.event) else {
            return;
        };
        let table =
            if event < table::FIRST_OTHER_ID { &mut self.signals } else { &mut self.others };
        if let Some(event) = table.get_mut(event) {
            self.waits.detach(&mut event.waiters, id, index);
        }
    }

    /// What the user learns of a link that fired. `EINVAL` if its event is gone.
    fn news(&mut self, link: &Link) -> Result<News> {
        let event = self.table_with(link.event).get_mut(link.event).ok_or(EINVAL)?;
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

const _: () = assert!(offset_of!(crate::uapi::kfd_event_data, __bindgen_anon_1) == 0);

/// For tests, which have no GPU that signals and no user that waits.
#[cfg(CONFIG_KUNIT = "y")]
impl Events {
    /// How often an event was signalled, plus one.
    pub(crate) fn age(&self, id: u32) -> Option<u64> {
        self.inner.lock().table_with(id).get_mut(id).map(|event| event.latch.age())
    }

    /// Writes to the slot of an event as a GPU does.
    pub(crate) fn write_slot(&self, id: u32, value: u64) {
        if let Some(SignalPage::Own(pages)) = &self.inner.lock().page {
            pages.write(id as usize, value);
        }
    }
}

/// WAIT_EVENTS.
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
    fn look(
        &self,
        request: &WaitRequest,
        links: &mut KVVec<Link>,
        tally: &mut Tally,
    ) -> Result {
        let count = request.count as usize;
        let bytes = count * size_of::<EventRecord>();
        let mut reader = user_slice(request.records, bytes).reader();
        let mut records = [EventRecord::default(); BATCH];
        while links.len() < count {
            let batch = records.get_mut(..BATCH.min(count - links.len())).ok_or(EINVAL)?;
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
        let wait = Wait { task, links: core::mem::take(links), tally, broken: false };
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
        let mut result = loop {
            let over = inner.waits.get_mut(id).map(|wait| (wait.broken, wait.tally.complete()));
            match over {
                Some((false, false)) => {}
                Some((false, true)) => break Ok(Outcome::Complete),
                Some((true, _)) | None => break Err(EIO),
            }
            if timeout.expired() {
                break Ok(Outcome::TimedOut);
            }
            if kernel::current!().signal_pending() {
                break Err(ERESTARTSYS);
            }
            (inner, *timeout) = sleep(inner, *timeout);
        };
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
            let event = inner.table_with(link.event).get_mut(link.event);
            if event.is_some_and(|event| event.latch.mode() == Mode::Auto) {
                inner.signal(link.event);
            }
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_events)]
mod tests {
    use super::*;
    use crate::uapi::{
        KFD_IOC_EVENT_HW_EXCEPTION,
        KFD_IOC_EVENT_MEMORY,
        KFD_IOC_EVENT_SIGNAL, //
    };

    fn signal_event(events: &Events) -> u32 {
        events.create(KFD_IOC_EVENT_SIGNAL, Mode::Manual).unwrap().id
    }

    #[test]
    fn signal_events_have_slots_and_others_do_not() {
        let events = Events::new().unwrap();
        let signal = events.create(KFD_IOC_EVENT_SIGNAL, Mode::Auto).unwrap();
        let memory = events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).unwrap();
        assert!(signal.has_slot && signal.id == 1);
        assert!(!memory.has_slot && memory.id == table::FIRST_OTHER_ID);
    }

    #[test]
    fn user_space_signals_signal_events_only() {
        let events = Events::new().unwrap();
        let signal = signal_event(&events);
        let memory = events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).unwrap().id;
        assert!(events.set(signal).is_ok() && events.reset(signal).is_ok());
        assert_eq!(events.set(memory), Err(EINVAL));
        assert_eq!(events.reset(memory), Err(EINVAL));
        assert_eq!(events.set(0), Err(EINVAL));
        assert_eq!(events.set(77), Err(EINVAL));
    }

    #[test]
    fn a_destroyed_event_is_gone() {
        let events = Events::new().unwrap();
        let id = signal_event(&events);
        assert!(events.destroy(id).is_ok());
        assert_eq!(events.destroy(id), Err(EINVAL));
        assert_eq!(events.set(id), Err(EINVAL));
    }

    #[test]
    fn the_oldest_user_space_has_255_signal_events() {
        let events = Events::new().unwrap();
        for id in 1..256 {
            assert_eq!(signal_event(&events), id);
        }
        let full = events.create(KFD_IOC_EVENT_SIGNAL, Mode::Auto);
        assert_eq!(full.err(), Some(ENOSPC));
    }

    #[test]
    fn a_useless_hint_finds_every_signalled_slot() {
        let events = Events::new().unwrap();
        let ids = [(); 3].map(|()| signal_event(&events));
        events.write_slot(ids[0], 1);
        events.write_slot(ids[2], 1);
        events.signal_hinted(Hint::new(4000, 32));
        assert_eq!(ids.map(|id| events.age(id)), [Some(2), Some(1), Some(2)]);
    }

    #[test]
    fn exceptions_reach_the_events_of_their_kind() {
        let events = Events::new().unwrap();
        let memory = events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).unwrap().id;
        let reset = events.create(KFD_IOC_EVENT_HW_EXCEPTION, Mode::Auto).unwrap().id;
        events.memory_exception(MemoryException { va: 0x1000, ..MemoryException::default() });
        assert_eq!((events.age(memory), events.age(reset)), (Some(2), Some(1)));
        events.hw_exception(HwException::default());
        assert_eq!((events.age(memory), events.age(reset)), (Some(2), Some(2)));
    }

    #[test]
    fn waits_that_need_not_sleep_end_at_once() {
        let events = Events::new().unwrap();
        let nothing = WaitRequest { records: 0, count: 0, all: true };
        assert_eq!(events.wait(nothing, &mut { Timeout::NONE }), Ok(Outcome::Complete));
        let too_many = WaitRequest { count: page::SLOTS + 1, ..nothing };
        assert_eq!(events.wait(too_many, &mut { Timeout::NONE }), Err(ENOMEM));
    }
}
