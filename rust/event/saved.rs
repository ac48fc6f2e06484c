// SPDX-License-Identifier: GPL-2.0-only

//! What a checkpoint has of a process's events, and events that are made of one.

use super::{
    latch::{
        Latch,
        Mode, //
    },
    page,
    table::{
        Event,
        EventKind,
        NewChunk,
        TableFull, //
    },
    Events,
    Inner,
    BATCH, //
};
use crate::uapi::{
    HwException,
    MemoryException,
    KFD_IOC_EVENT_HW_EXCEPTION,
    KFD_IOC_EVENT_MEMORY, //
};
use kernel::{
    alloc::KVVec,
    prelude::*, //
};

/// An event of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedEvent {
    pub(crate) id: u32,
    /// `event_type` of CREATE_EVENT.
    pub(crate) event_type: u32,
    pub(crate) mode: Mode,
    pub(crate) signalled: bool,
    /// What it has to tell; of other types it means nothing.
    pub(crate) memory: MemoryException,
    pub(crate) reset: HwException,
}

impl SavedEvent {
    fn new(id: u32, event: &Event) -> Self {
        let mut saved = Self {
            id,
            event_type: event.kind.event_type(),
            mode: event.latch.mode(),
            signalled: event.latch.is_signalled(),
            memory: MemoryException::default(),
            reset: HwException::default(),
        };
        match event.kind {
            EventKind::Memory(memory) => saved.memory = memory,
            EventKind::HwException(reset) => saved.reset = reset,
            EventKind::Signal | EventKind::Debug | EventKind::Other(_) => {}
        }
        saved
    }

    fn kind(&self) -> EventKind {
        match self.event_type {
            KFD_IOC_EVENT_MEMORY => EventKind::Memory(self.memory),
            KFD_IOC_EVENT_HW_EXCEPTION => EventKind::HwException(self.reset),
            other => EventKind::from_type(other),
        }
    }
}

impl Events {
    /// All events, in the order of their ids. The lock is let go of after each few.
    pub(crate) fn saved(&self) -> Result<KVVec<SavedEvent>> {
        let mut saved = KVVec::new();
        let mut last = None;
        loop {
            saved.reserve(BATCH, GFP_KERNEL)?;
            let mut inner = self.inner.lock();
            for _ in 0..BATCH {
                let Some(id) = inner.tables.next_id(last) else {
                    return Ok(saved);
                };
                if let Some(event) = inner.tables.get_mut(id) {
                    // Cannot fail: there is room for so many.
                    let _ = saved.push_within_capacity(SavedEvent::new(id, event));
                }
                last = Some(id);
            }
        }
    }

    /// The handle of the signal page; 0: there is none.
    pub(crate) fn page_handle(&self) -> u64 {
        let inner = self.inner.lock();
        inner.page.as_ref().map_or(0, |_| inner.page_handle)
    }

    /// Makes an event of a checkpoint again. `EINVAL`: none has that id or type. `ENOSPC`: the id
    /// is another event's. `ENOMEM`: a signal event without a signal page.
    pub(crate) fn restore(&self, saved: &SavedEvent) -> Result {
        let kind = saved.kind();
        let limit = if kind.has_slot() {
            0
        } else {
            super::table::FIRST_OTHER_ID
        };
        if matches!(kind, EventKind::Other(_)) || saved.id.wrapping_sub(limit) >= page::SLOTS {
            return Err(EINVAL);
        }
        if kind.has_slot() && !self.has_page() {
            return Err(ENOMEM);
        }
        loop {
            let mut event = Event::new(kind, saved.mode);
            event.latch = Latch::restored(saved.mode, saved.signalled);
            let list = match self.inner.lock().insert_at(event, saved.id) {
                Ok(()) => return Ok(()),
                Err(TableFull::Exhausted) => return Err(ENOSPC),
                Err(TableFull::NeedsRoom { list }) => list,
            };
            let chunk = NewChunk::new(list)?;
            let surplus = self.inner.lock().tables.grow(&kind, chunk);
            drop(surplus);
        }
    }
}

impl Inner {
    fn insert_at(&mut self, event: Event, id: u32) -> Result<(), TableFull> {
        if !event.kind.has_slot() {
            return self.tables.others.insert_at(event, id);
        }
        if id >= self.slots {
            return Err(TableFull::Exhausted);
        }
        self.tables.signals.insert_at(event, id)?;
        if let Some(page) = &self.page {
            page.acknowledge(id);
        }
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_events_saved)]
mod tests {
    use super::*;
    use crate::uapi::{
        KFD_IOC_EVENT_DEBUG_EVENT,
        KFD_IOC_EVENT_SIGNAL, //
    };

    fn saved(id: u32, event_type: u32) -> SavedEvent {
        SavedEvent {
            id,
            event_type,
            mode: Mode::Manual,
            signalled: true,
            memory: MemoryException::default(),
            reset: HwException::default(),
        }
    }

    #[test]
    fn what_is_saved_comes_back_by_its_ids() {
        let other = super::super::table::FIRST_OTHER_ID;
        let memory = SavedEvent {
            memory: MemoryException {
                va: 0x1234_5000,
                gpu_id: 7,
                ..MemoryException::default()
            },
            ..saved(other + 2, KFD_IOC_EVENT_MEMORY)
        };
        let all = [
            saved(1, KFD_IOC_EVENT_SIGNAL),
            SavedEvent {
                mode: Mode::Auto,
                signalled: false,
                ..saved(200, KFD_IOC_EVENT_DEBUG_EVENT)
            },
            memory,
            saved(other + 70, KFD_IOC_EVENT_HW_EXCEPTION),
        ];
        let events = Events::with_page(256).unwrap();
        for event in all.iter().rev() {
            assert_eq!(events.restore(event), Ok(()));
        }
        assert_eq!(events.saved().unwrap()[..], all);
        assert_eq!((events.page_handle(), events.has_page()), (0, true));
        events.rename_page(0x89d1_0000_0001);
        assert_eq!(events.page_handle(), 0x89d1_0000_0001);
        // They are events as any others.
        assert_eq!(events.restore(&all[0]), Err(ENOSPC));
        assert_eq!((events.reset(1), events.destroy(200)), (Ok(()), Ok(())));
        assert_eq!(
            events
                .create(KFD_IOC_EVENT_SIGNAL, Mode::Auto)
                .map(|it| it.id),
            Ok(2)
        );
    }

    #[test]
    fn an_event_that_cannot_be_is_refused() {
        let other = super::super::table::FIRST_OTHER_ID;
        let events = Events::new().unwrap();
        assert_eq!(events.restore(&saved(1, KFD_IOC_EVENT_SIGNAL)), Err(ENOMEM));
        let events = Events::with_page(256).unwrap();
        for (id, event_type, error) in [
            (0, KFD_IOC_EVENT_SIGNAL, ENOSPC),
            (256, KFD_IOC_EVENT_SIGNAL, ENOSPC),
            (4096, KFD_IOC_EVENT_SIGNAL, EINVAL),
            (u32::MAX, KFD_IOC_EVENT_SIGNAL, EINVAL),
            (other, KFD_IOC_EVENT_SIGNAL, EINVAL),
            (1, KFD_IOC_EVENT_MEMORY, EINVAL),
            (other + 4096, KFD_IOC_EVENT_MEMORY, EINVAL),
            (other, 1, EINVAL),
            (other, 99, EINVAL),
        ] {
            assert_eq!(events.restore(&saved(id, event_type)), Err(error));
        }
        assert!(events.saved().unwrap().is_empty());
    }
}
