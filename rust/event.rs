// SPDX-License-Identifier: GPL-2.0-only

//! Events: what a process waits for. One [`Events`] for each process; the process and the table of
//! pasids own it together, because an interrupt finds it without finding the process.
//!
//! Everything is under one interrupt-safe lock, the innermost of the driver: beneath it nothing
//! sleeps, allocates or faults. User memory is copied, and memory allocated, before the lock is
//! taken; long walks let it go now and then. What an interrupt would have to look for long, and
//! waiters that are more than a few, it leaves to a worker.

mod latch;
mod page;
mod saved;
mod signal_page;
mod table;
mod wait;
mod waits;

pub(crate) use latch::Mode;
pub(crate) use page::Hint;
pub(crate) use saved::SavedEvent;
pub(crate) use signal_page::SignalPage;
pub(crate) use table::EVENTS;
pub(crate) use wait::{
    Outcome,
    WaitRequest, //
};

use crate::{
    linux::{
        spinlock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
        trace::{
            self,
            EventChange, //
        },
        workqueue::OwnedQueue, //
    },
    uapi::{
        HwException,
        MemoryException, //
    },
};
use kernel::{
    new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};
use table::{
    Event,
    EventKind,
    NewChunk,
    TableFull,
    Tables, //
};
use waits::Waits;

const _: () = assert!(page::SLOTS == crate::uapi::KFD_SIGNAL_EVENT_LIMIT);

/// How many events are looked at in one go, interrupts off.
const BATCH: usize = 32;

/// A new event, as user space learns of it.
pub(crate) struct CreatedEvent {
    pub(crate) id: u32,
    /// It has a slot in the signal page, with its id as number.
    pub(crate) has_slot: bool,
}

/// The events of a process.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    inner: IrqSpinLock<Inner>,
    /// Looks at all slots of the signal page, and tells waiters who are late.
    #[pin]
    search: Work<Events>,
}

impl_has_work! {
    impl HasWork<Self> for Events { self.search }
}

struct Inner {
    tables: Tables,
    page: Option<SignalPage>,
    /// The handle of the buffer that it is.
    page_handle: u64,
    /// Slots of the signal page, and so signal events that the process can have.
    slots: u32,
    waits: Waits,
    /// Some waiters have yet to be told of a signal: see [`Events::fire_late`].
    late: bool,
}

impl Events {
    /// No events.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let inner = Inner {
            tables: Tables::new(),
            page: None,
            page_handle: 0,
            slots: 0,
            waits: Waits::new(),
            late: false,
        };
        let events = pin_init!(Self {
            inner <- new_irq_spinlock!(inner, "amdkfd::Events"),
            search <- new_work!("amdkfd::Events"),
        });
        Arc::pin_init(events, GFP_KERNEL_ACCOUNT)
    }

    /// CREATE_EVENT. `ENOSPC` if there are too many; `ENOMEM` for a signal event without a signal
    /// page.
    pub(crate) fn create(&self, event_type: u32, mode: Mode) -> Result<CreatedEvent> {
        let kind = EventKind::from_type(event_type);
        let has_slot = kind.has_slot();
        if has_slot && !self.has_page() {
            return Err(ENOMEM);
        }
        let id = loop {
            let list = match self.inner.lock().insert(Event::new(kind, mode)) {
                Ok(id) => {
                    trace::event(EventChange::Create, id);
                    break id;
                }
                Err(TableFull::Exhausted) => return Err(ENOSPC),
                Err(TableFull::NeedsRoom { list }) => list,
            };
            let chunk = NewChunk::new(list)?;
            let surplus = self.inner.lock().tables.grow(&kind, chunk);
            drop(surplus);
        };
        Ok(CreatedEvent { id, has_slot })
    }

    /// DESTROY_EVENT: those who wait for it fail. `EINVAL` if there is no such event. The lock is
    /// let go after each few of them.
    pub(crate) fn destroy(&self, id: u32) -> Result {
        let mut inner = self.inner.lock();
        inner.tables.condemn(id).ok_or(EINVAL)?;
        trace::event(EventChange::Destroy, id);
        while inner.abandon(id) {
            drop(inner);
            inner = self.inner.lock();
        }
        Ok(())
    }

    /// SET_EVENT. `EINVAL` if there is no such event, or user space must not signal it.
    pub(crate) fn set(&self, id: u32) -> Result {
        let mut inner = self.inner.lock();
        inner.user_event(id)?;
        inner.signal(id);
        let late = inner.late;
        drop(inner);
        if late {
            self.fire_late();
        }
        Ok(())
    }

    /// RESET_EVENT. `EINVAL` as for [`Events::set`].
    pub(crate) fn reset(&self, id: u32) -> Result {
        self.inner.lock().user_event(id)?.latch.reset();
        trace::event(EventChange::Reset, id);
        Ok(())
    }

    /// Takes the user's buffer of that handle as signal page. `EINVAL` if there is a page already.
    pub(crate) fn set_page(&self, page: SignalPage, handle: u64) -> Result {
        let mut inner = self.inner.lock();
        if inner.page.is_some() {
            drop(inner);
            return Err(EINVAL);
        }
        inner.slots = page.slots();
        inner.page_handle = handle;
        inner.page = Some(page);
        Ok(())
    }

    /// The user calls the signal page's buffer by this handle from now on.
    pub(crate) fn rename_page(&self, handle: u64) {
        self.inner.lock().page_handle = handle;
    }

    /// Whether there is a signal page.
    pub(crate) fn has_page(&self) -> bool {
        self.inner.lock().page.is_some()
    }

    /// Takes the signal page away. No interrupt signals any more.
    pub(crate) fn take_page(&self) -> Option<SignalPage> {
        self.inner.lock().page.take()
    }

    /// The GPU raised an interrupt for one of the signal events. Legal in a hard interrupt.
    ///
    /// False: the hint was of no use, and there are too many events to look at all of them here; or
    /// there are too many waiters. The caller sees to [`Events::signal_written`].
    pub(crate) fn signal_hinted(&self, hint: Hint) -> bool {
        let mut inner = self.inner.lock();
        let found = hint.candidates().any(|id| inner.answer(id));
        let all = inner.tables.signals.count() <= BATCH;
        (found || (all && inner.answer_batch())) && !inner.late
    }

    /// Signals every signal event whose slot says so, and tells all waiters.
    pub(crate) fn signal_written(&self) {
        let next = |inner: &Inner, last| inner.tables.signals.next_id(last);
        self.walk(next, |inner, id| {
            inner.answer(id);
        });
        self.fire_late();
    }

    /// Calls `act` for each of the events that `next` names one after the other. The lock is let go
    /// after each [`BATCH`].
    fn walk(
        &self,
        next: impl Fn(&Inner, Option<u32>) -> Option<u32>,
        act: impl Fn(&mut Inner, u32),
    ) {
        let mut last = None;
        loop {
            let mut inner = self.inner.lock();
            for _ in 0..BATCH {
                let Some(id) = next(&inner, last) else {
                    return;
                };
                act(&mut inner, id);
                last = Some(id);
            }
        }
    }

    /// Tells waiters whom a signal had no time for. The lock is let go after each few.
    fn fire_late(&self) {
        if !core::mem::take(&mut self.inner.lock().late) {
            return;
        }
        let mut last = None;
        while self.inner.lock().fire_late_batch(&mut last) {}
    }

    /// Leaves [`Events::signal_written`] to a worker of `queue`. Legal in a hard interrupt, where
    /// somebody else keeps the events.
    pub(crate) fn search_on(this: ArcBorrow<'_, Self>, queue: &OwnedQueue) {
        // If the worker is on its way already, it will see what is written now.
        let _ = queue.enqueue(Arc::from(this));
    }

    /// A memory access of the process failed. As after [`Events::hw_exception`] and
    /// [`Events::signal_all`], waiters that are more than a few are left to a worker of `queue`:
    /// whoever tells the process of such things has others to tell, who shall not wait for them.
    pub(crate) fn memory_exception(
        self: &Arc<Self>,
        data: MemoryException,
        queue: Option<&OwnedQueue>,
    ) {
        self.raise(|kind| matches!(kind, EventKind::Memory(_)).then_some(EventKind::Memory(data)));
        self.leave_late(queue);
    }

    /// A GPU of the process's was reset.
    pub(crate) fn hw_exception(self: &Arc<Self>, data: HwException, queue: Option<&OwnedQueue>) {
        self.raise(|kind| {
            matches!(kind, EventKind::HwException(_)).then_some(EventKind::HwException(data))
        });
        self.leave_late(queue);
    }

    /// Signals every signal event: whoever waits shall look around.
    pub(crate) fn signal_all(self: &Arc<Self>, queue: Option<&OwnedQueue>) {
        self.walk(
            |inner, last| inner.tables.signals.next_id(last),
            Inner::signal,
        );
        self.leave_late(queue);
    }

    fn leave_late(self: &Arc<Self>, queue: Option<&OwnedQueue>) {
        let late = self.inner.lock().late;
        if let Some(queue) = queue.filter(|_| late) {
            Self::search_on(self.as_arc_borrow(), queue);
        }
    }

    /// Signals all events for whose kind `detail` has something to tell.
    fn raise(&self, detail: impl Fn(&EventKind) -> Option<EventKind>) {
        let next = |inner: &Inner, last| inner.tables.others.next_id(last);
        self.walk(next, |inner, id| {
            let Some(event) = inner.tables.others.get_mut(id) else {
                return;
            };
            if let Some(kind) = detail(&event.kind) {
                event.kind = kind;
                inner.signal(id);
            }
        });
    }

    /// The process ends: nothing will be signalled any more, and whoever waits wakes up and fails.
    pub(crate) fn shut_down(&self) {
        // The lock is let go after each chunk. Nobody begins to wait any more.
        let mut chunks = 0..;
        while chunks
            .next()
            .is_some_and(|chunk| self.inner.lock().waits.break_chunk(chunk))
        {}
    }
}

impl Inner {
    fn insert(&mut self, event: Event) -> Result<u32, TableFull> {
        if !event.kind.has_slot() {
            return self.tables.others.insert(event, page::SLOTS);
        }
        let id = self.tables.signals.insert(event, self.slots)?;
        if let Some(page) = &self.page {
            page.acknowledge(id);
        }
        Ok(id)
    }

    /// The next few who wait for a condemned event fail. True: there are more. Otherwise it goes,
    /// and its id is free again.
    fn abandon(&mut self, id: u32) -> bool {
        let Some(event) = self.tables.listed_mut(id) else {
            return false;
        };
        let age = event.latch.age();
        let more = self.waits.abandon(&mut event.waiters, age);
        if !more {
            self.tables.remove(id);
        }
        more
    }

    /// An event that user space may set and reset.
    fn user_event(&mut self, id: u32) -> Result<&mut Event> {
        let event = self.tables.get_mut(id).ok_or(EINVAL)?;
        matches!(event.kind, EventKind::Signal)
            .then_some(event)
            .ok_or(EINVAL)
    }

    /// Signals an event, if it is there.
    fn signal(&mut self, id: u32) {
        if let Some(event) = self.tables.get_mut(id) {
            trace::event(EventChange::Signal, id);
            let awaited = self.waits.is_awaited(&event.waiters, event.latch.age());
            event.latch.set(awaited);
            self.late |= self.waits.fire(&mut event.waiters);
        }
    }

    /// Signals a signal event if its slot says so. Returns whether it did.
    fn answer(&mut self, id: u32) -> bool {
        let Some(page) = &self.page else {
            return false;
        };
        if !page.is_signalled(id) || self.tables.signals.get_mut(id).is_none() {
            return false;
        }
        page.acknowledge(id);
        self.signal(id);
        true
    }

    /// The same for the first [`BATCH`] signal events. True: there are no more.
    fn answer_batch(&mut self) -> bool {
        let mut last = None;
        for _ in 0..BATCH {
            let Some(id) = self.tables.signals.next_id(last) else {
                return true;
            };
            self.answer(id);
            last = Some(id);
        }
        false
    }

    /// Tells a few waiters who are late, of events after `last`. False: there are none.
    fn fire_late_batch(&mut self, last: &mut Option<u32>) -> bool {
        for _ in 0..BATCH {
            let Some(id) = self.tables.next_id(*last) else {
                return false;
            };
            let event = self.tables.get_mut(id);
            if let Some(event) = event.filter(|event| event.waiters.are_late()) {
                if !self.waits.fire_late(&mut event.waiters) {
                    *last = Some(id);
                }
                return true;
            }
            *last = Some(id);
        }
        true
    }
}

impl WorkItem for Events {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.signal_written();
    }
}

/// For tests, which have no GPU that signals and no user that waits.
#[cfg(CONFIG_KUNIT = "y")]
impl Events {
    /// How often an event was signalled, plus one.
    pub(crate) fn age(&self, id: u32) -> Option<u64> {
        self.inner
            .lock()
            .tables
            .get_mut(id)
            .map(|event| event.latch.age())
    }

    /// No events, and a signal page of `slots` slots.
    pub(crate) fn with_page(slots: u32) -> Result<Arc<Self>> {
        let events = Self::new()?;
        events.set_page(SignalPage::of_test(slots)?, 0)?;
        Ok(events)
    }

    /// Writes to the slot of an event as a GPU does.
    pub(crate) fn write_slot(&self, id: u32, value: u64) {
        if let Some(page) = &self.inner.lock().page {
            page.write(id, value);
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_events)]
mod tests {
    use super::*;
    use crate::linux::wait::Timeout;
    use crate::uapi::{
        KFD_IOC_EVENT_HW_EXCEPTION,
        KFD_IOC_EVENT_MEMORY,
        KFD_IOC_EVENT_SIGNAL, //
    };

    fn signal_event(events: &Events) -> u32 {
        events
            .create(KFD_IOC_EVENT_SIGNAL, Mode::Manual)
            .unwrap()
            .id
    }

    #[test]
    fn signal_events_have_slots_and_others_do_not() {
        let events = Events::with_page(256).unwrap();
        let signal = events.create(KFD_IOC_EVENT_SIGNAL, Mode::Auto).unwrap();
        let memory = events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).unwrap();
        assert!(signal.has_slot && signal.id == 1);
        assert!(!memory.has_slot && memory.id == table::FIRST_OTHER_ID);
    }

    #[test]
    fn user_space_signals_signal_events_only() {
        let events = Events::with_page(256).unwrap();
        let signal = signal_event(&events);
        let memory = events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).unwrap().id;
        assert!(events.set(signal).is_ok() && events.reset(signal).is_ok());
        assert_eq!(events.set(memory), Err(EINVAL));
        assert_eq!(events.reset(memory), Err(EINVAL));
        assert_eq!(events.set(0), Err(EINVAL));
        assert_eq!(events.set(77), Err(EINVAL));
    }

    #[test]
    fn a_signal_event_needs_a_page() {
        let events = Events::new().unwrap();
        let signal = events.create(KFD_IOC_EVENT_SIGNAL, Mode::Auto);
        assert_eq!(signal.err(), Some(ENOMEM));
        assert!(events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).is_ok());
    }

    #[test]
    fn a_destroyed_event_is_gone() {
        let events = Events::with_page(256).unwrap();
        let id = signal_event(&events);
        assert!(events.destroy(id).is_ok());
        assert_eq!(events.destroy(id), Err(EINVAL));
        assert_eq!(events.set(id), Err(EINVAL));
    }

    #[test]
    fn there_are_as_many_signal_events_as_slots_but_for_the_first() {
        let events = Events::with_page(256).unwrap();
        for id in 1..256 {
            assert_eq!(signal_event(&events), id);
        }
        let full = events.create(KFD_IOC_EVENT_SIGNAL, Mode::Auto);
        assert_eq!(full.err(), Some(ENOSPC));
    }

    #[test]
    fn a_useless_hint_finds_every_signalled_slot() {
        let events = Events::with_page(256).unwrap();
        let ids = [(); 3].map(|()| signal_event(&events));
        events.write_slot(ids[0], 1);
        events.write_slot(ids[2], 1);
        assert!(events.signal_hinted(Hint::new(4000, 32)));
        assert_eq!(ids.map(|id| events.age(id)), [Some(2), Some(1), Some(2)]);
    }

    #[test]
    fn of_many_events_a_useless_hint_leaves_the_slots_to_a_worker() {
        let events = Events::with_page(256).unwrap();
        let ids = [(); 100].map(|()| signal_event(&events));
        for id in [ids[0], ids[70], ids[99]] {
            events.write_slot(id, 1);
        }
        let signalled =
            |events: &Events| ids.iter().filter(|id| events.age(**id) == Some(2)).count();
        // A hint that is of use needs nobody.
        assert!(events.signal_hinted(Hint::new(ids[70], 32)));
        assert_eq!(signalled(&events), 1);
        assert!(!events.signal_hinted(Hint::new(ids[70], 32)));
        assert!(!events.signal_hinted(Hint::new(4000, 32)));
        assert_eq!(signalled(&events), 1);
        let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
        Events::search_on(events.as_arc_borrow(), &queue);
        Events::search_on(events.as_arc_borrow(), &queue);
        drop(queue);
        assert_eq!(signalled(&events), 3);
    }

    #[test]
    fn exceptions_reach_the_events_of_their_kind() {
        let events = Events::new().unwrap();
        let memory = events.create(KFD_IOC_EVENT_MEMORY, Mode::Auto).unwrap().id;
        let reset = events
            .create(KFD_IOC_EVENT_HW_EXCEPTION, Mode::Auto)
            .unwrap()
            .id;
        let fault = MemoryException {
            va: 0x1000,
            ..MemoryException::default()
        };
        events.memory_exception(fault, None);
        assert_eq!((events.age(memory), events.age(reset)), (Some(2), Some(1)));
        let lost = HwException {
            memory_lost: 1,
            ..HwException::default()
        };
        events.hw_exception(lost, None);
        assert_eq!((events.age(memory), events.age(reset)), (Some(2), Some(2)));
    }

    #[test]
    fn waits_that_need_not_sleep_end_at_once() {
        let events = Events::new().unwrap();
        let nothing = WaitRequest {
            records: 0,
            count: 0,
            all: true,
        };
        assert_eq!(
            events.wait(nothing, &mut { Timeout::NONE }),
            Ok(Outcome::Complete)
        );
        let too_many = WaitRequest {
            count: page::SLOTS + 1,
            ..nothing
        };
        assert_eq!(events.wait(too_many, &mut { Timeout::NONE }), Err(ENOMEM));
    }
}
