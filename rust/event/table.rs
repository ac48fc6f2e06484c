// SPDX-License-Identifier: GPL-2.0-only

//! The events of a process by id. A process has two tables: signal events, whose ids are slots of
//! the signal page, and the rest, whose ids begin at [`FIRST_OTHER_ID`].
//!
//! A table begins without any room and grows by chunks of 64 events. The chunk is made before the
//! lock of the table is taken, because under it nothing may allocate.

use super::{
    latch::{
        Latch,
        Mode, //
    },
    page,
    waits::Waiters, //
};
use crate::{
    bits::set_bits,
    gauge::{
        Gauge,
        Held, //
    },
    uapi::{
        HwException,
        MemoryException, //
    },
};
use kernel::{
    alloc::kvec::PushError,
    prelude::*, //
};

/// Ids of events that are not in the signal page begin here: `KFD_FIRST_NONSIGNAL_EVENT_ID`.
pub(super) const FIRST_OTHER_ID: u32 = 0x4000_0000;

/// Events of a chunk: as many as a word has bits.
const CHUNK: usize = 64;

/// Chunks of a table: it holds as many events as the signal page has slots.
const CHUNKS: usize = page::SLOTS as usize / CHUNK;

/// How many chunks the shortest list has place for.
const FEW: usize = 4;

/// Events of all processes.
pub(crate) static EVENTS: Gauge = Gauge::new();

/// What an event is for, and what it has to tell.
#[derive(Clone, Copy)]
pub(super) enum EventKind {
    /// `KFD_IOC_EVENT_SIGNAL`: user space, or a packet of a queue, says so.
    Signal,
    /// `KFD_IOC_EVENT_DEBUG_EVENT`: only packets say so.
    Debug,
    /// `KFD_IOC_EVENT_HW_EXCEPTION`: a GPU was reset.
    HwException(HwException),
    /// `KFD_IOC_EVENT_MEMORY`: an access failed.
    Memory(MemoryException),
    /// A type that the ABI reserves and nothing raises.
    Other(u32),
}

impl EventKind {
    /// The kind of event for an `event_type` of CREATE_EVENT. Every value makes an event.
    pub(super) fn from_type(event_type: u32) -> Self {
        match event_type {
            crate::uapi::KFD_IOC_EVENT_SIGNAL => Self::Signal,
            crate::uapi::KFD_IOC_EVENT_DEBUG_EVENT => Self::Debug,
            crate::uapi::KFD_IOC_EVENT_HW_EXCEPTION => Self::HwException(HwException::default()),
            crate::uapi::KFD_IOC_EVENT_MEMORY => Self::Memory(MemoryException::default()),
            other => Self::Other(other),
        }
    }

    /// The `event_type` that CREATE_EVENT has made it of.
    pub(super) fn event_type(&self) -> u32 {
        match self {
            Self::Signal => crate::uapi::KFD_IOC_EVENT_SIGNAL,
            Self::Debug => crate::uapi::KFD_IOC_EVENT_DEBUG_EVENT,
            Self::HwException(_) => crate::uapi::KFD_IOC_EVENT_HW_EXCEPTION,
            Self::Memory(_) => crate::uapi::KFD_IOC_EVENT_MEMORY,
            Self::Other(other) => *other,
        }
    }

    /// Whether the event has a slot in the signal page.
    pub(super) fn has_slot(&self) -> bool {
        matches!(self, Self::Signal | Self::Debug)
    }
}

/// An event.
pub(super) struct Event {
    pub(super) latch: Latch,
    pub(super) waiters: Waiters,
    pub(super) kind: EventKind,
    /// It is being destroyed: there for those who have yet to leave it, and for nobody else.
    condemned: bool,
    _held: Held,
}

impl Event {
    /// An event that was not signalled, without waiters.
    pub(super) fn new(kind: EventKind, mode: Mode) -> Self {
        Self {
            latch: Latch::new(mode),
            waiters: Waiters::default(),
            kind,
            condemned: false,
            _held: EVENTS.hold(),
        }
    }
}

/// Room for 64 events.
pub(super) struct Chunk {
    /// Bit n: event n is there.
    taken: u64,
    events: [Option<Event>; CHUNK],
}

impl Chunk {
    /// An empty chunk. Call it before the lock.
    pub(super) fn new() -> Result<KBox<Self>> {
        KBox::init(
            pin_init::init!(Self {
                taken: 0,
                events <- pin_init::init_array_from_fn(|_| None),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

/// Room for 64 more events.
pub(super) struct NewChunk {
    chunk: KBox<Chunk>,
    /// A longer list of chunks, where the table's has no place for this one.
    list: KVec<KBox<Chunk>>,
}

impl NewChunk {
    /// What [`TableFull::NeedsRoom`] asks for. Call it before the lock.
    pub(super) fn new(list: usize) -> Result<Self> {
        Ok(Self {
            chunk: Chunk::new()?,
            list: KVec::with_capacity(list, GFP_KERNEL_ACCOUNT)?,
        })
    }
}

/// What a table had no use for: a chunk, and a list.
type Surplus = (Option<KBox<Chunk>>, KVec<KBox<Chunk>>);

/// Why no event could be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFull {
    /// The next free id lies in a chunk that is not there yet: [`EventTable::grow`], then again.
    NeedsRoom {
        /// For how many chunks it takes a list; 0 if the table's is long enough.
        list: usize,
    },
    /// Every id is taken.
    Exhausted,
}

/// Events by id, from `BASE` on. A constant, for it is looked at with each event of each wait.
pub(super) struct EventTable<const BASE: u32> {
    /// Every chunk below this one is full.
    first: usize,
    chunks: KVec<KBox<Chunk>>,
}

impl<const BASE: u32> EventTable<BASE> {
    /// Signal event 0 is never given: packets that name no event carry that id.
    const RESERVE_FIRST: bool = BASE == 0;

    /// No events, and no room for any.
    pub(super) fn new() -> Self {
        Self {
            first: 0,
            chunks: KVec::new(),
        }
    }

    /// Adds a chunk. What is not needed comes back, to be freed outside the lock.
    pub(super) fn grow(&mut self, room: NewChunk) -> Surplus {
        let NewChunk {
            mut chunk,
            mut list,
        } = room;
        if list.capacity() > self.chunks.capacity() {
            for chunk in self.chunks.drain_all() {
                // Cannot fail: there is more room than before.
                let _ = list.push_within_capacity(chunk);
            }
            core::mem::swap(&mut self.chunks, &mut list);
        }
        if self.chunks.len() >= CHUNKS {
            return (Some(chunk), list);
        }
        chunk.taken = u64::from(Self::RESERVE_FIRST && self.chunks.is_empty());
        let refused = self.chunks.push_within_capacity(chunk).err();
        (refused.map(|PushError(chunk)| chunk), list)
    }

    /// Puts `event` at the lowest free id, if that is below `BASE + limit`.
    pub(super) fn insert(&mut self, event: Event, limit: u32) -> Result<u32, TableFull> {
        let taken = self.chunks.iter().map(|chunk| chunk.taken);
        let Some(index) = page::first_free(taken, self.first) else {
            let exhausted = self.chunks.len() * CHUNK >= (limit as usize).min(CHUNKS * CHUNK);
            return Err(match (exhausted, self.chunks.len()) {
                (true, _) => TableFull::Exhausted,
                (false, chunks) if chunks < self.chunks.capacity() => {
                    TableFull::NeedsRoom { list: 0 }
                }
                (false, chunks) => TableFull::NeedsRoom {
                    list: (2 * chunks).max(FEW),
                },
            });
        };
        if index >= limit as usize {
            return Err(TableFull::Exhausted);
        }
        self.first = index / CHUNK;
        let Some(chunk) = self.chunks.get_mut(index / CHUNK) else {
            return Err(TableFull::Exhausted);
        };
        chunk.taken |= 1 << (index % CHUNK);
        if let Some(place) = chunk.events.get_mut(index % CHUNK) {
            *place = Some(event);
        }
        // CAST: The index is below 4096.
        Ok(BASE + index as u32)
    }

    /// Puts `event` at that id. `Exhausted`: it is taken, or there is no such id.
    pub(super) fn insert_at(&mut self, event: Event, id: u32) -> Result<(), TableFull> {
        let index = id.wrapping_sub(BASE) as usize;
        if index >= CHUNKS * CHUNK {
            return Err(TableFull::Exhausted);
        }
        let chunks = self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(index / CHUNK) else {
            let list = match chunks < self.chunks.capacity() {
                true => 0,
                false => (2 * chunks).max(FEW),
            };
            return Err(TableFull::NeedsRoom { list });
        };
        let bit = 1 << (index % CHUNK);
        let Chunk { taken, events } = &mut **chunk;
        match events.get_mut(index % CHUNK) {
            Some(place) if *taken & bit == 0 => {
                *taken |= bit;
                *place = Some(event);
                Ok(())
            }
            _ => Err(TableFull::Exhausted),
        }
    }

    /// The event with this id.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Event> {
        self.listed_mut(id).filter(|event| !event.condemned)
    }

    /// The same, condemned or not.
    #[inline]
    fn listed_mut(&mut self, id: u32) -> Option<&mut Event> {
        let index = id.wrapping_sub(BASE) as usize;
        self.chunks
            .get_mut(index / CHUNK)?
            .events
            .get_mut(index % CHUNK)?
            .as_mut()
    }

    /// Takes an event out; its id is free again.
    pub(super) fn remove(&mut self, id: u32) -> Option<Event> {
        let index = id.wrapping_sub(BASE) as usize;
        let chunk = self.chunks.get_mut(index / CHUNK)?;
        let event = chunk.events.get_mut(index % CHUNK)?.take()?;
        chunk.taken &= !(1 << (index % CHUNK));
        self.first = self.first.min(index / CHUNK);
        Some(event)
    }

    /// How many events there are; the first of the signal events, which is never given, counts.
    pub(super) fn count(&self) -> usize {
        let taken = self.chunks.iter().map(|chunk| chunk.taken.count_ones());
        // CAST: At most 4096.
        taken.sum::<u32>() as usize
    }

    /// The next id above `after` that has an event; from the beginning if `after` is `None`.
    pub(super) fn next_id(&self, after: Option<u32>) -> Option<u32> {
        let start = after.map_or(0, |id| id.wrapping_sub(BASE) as usize + 1);
        let present = self.chunks.iter().enumerate().skip(start / CHUNK);
        for (number, chunk) in present {
            let skipped = start.saturating_sub(number * CHUNK);
            let later = u64::MAX.checked_shl(skipped as u32).unwrap_or(0);
            let mut bits = set_bits(chunk.taken & later);
            let present = |bit: &u32| matches!(chunk.events.get(*bit as usize), Some(Some(_)));
            if let Some(bit) = bits.find(present) {
                return Some(BASE + (number * CHUNK) as u32 + bit);
            }
        }
        None
    }
}

/// The two tables of a process.
pub(super) struct Tables {
    pub(super) signals: EventTable<0>,
    pub(super) others: EventTable<FIRST_OTHER_ID>,
}

impl Tables {
    /// No events.
    pub(super) fn new() -> Self {
        Self {
            signals: EventTable::new(),
            others: EventTable::new(),
        }
    }

    /// [`EventTable::grow`] of the one for events of this kind.
    pub(super) fn grow(&mut self, kind: &EventKind, room: NewChunk) -> Surplus {
        if kind.has_slot() {
            self.signals.grow(room)
        } else {
            self.others.grow(room)
        }
    }

    /// The event with this id.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Event> {
        self.listed_mut(id).filter(|event| !event.condemned)
    }

    /// The event with this id, condemned or not: for who is in its list.
    #[inline]
    pub(super) fn listed_mut(&mut self, id: u32) -> Option<&mut Event> {
        if id < FIRST_OTHER_ID {
            self.signals.listed_mut(id)
        } else {
            self.others.listed_mut(id)
        }
    }

    /// From now on nobody finds the event, whose id is not free before it is removed.
    pub(super) fn condemn(&mut self, id: u32) -> Option<()> {
        self.get_mut(id)?.condemned = true;
        Some(())
    }

    /// [`EventTable::next_id`] over both.
    pub(super) fn next_id(&self, after: Option<u32>) -> Option<u32> {
        let other = after.filter(|id| *id >= FIRST_OTHER_ID);
        let signal = match other {
            None => self.signals.next_id(after),
            Some(_) => None,
        };
        signal.or_else(|| self.others.next_id(other))
    }

    /// Takes an event out; its id is free again.
    pub(super) fn remove(&mut self, id: u32) -> Option<Event> {
        if id < FIRST_OTHER_ID {
            self.signals.remove(id)
        } else {
            self.others.remove(id)
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_event_table)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::new(EventKind::Signal, Mode::Auto)
    }

    fn table(chunks: usize) -> EventTable<FIRST_OTHER_ID> {
        grown(chunks)
    }

    fn grown<const BASE: u32>(chunks: usize) -> EventTable<BASE> {
        let mut table = EventTable::new();
        for _ in 0..chunks {
            grow(&mut table);
        }
        table
    }

    /// One more chunk, which is taken.
    fn grow<const BASE: u32>(table: &mut EventTable<BASE>) {
        let list = 2 * table.chunks.len().max(1);
        assert!(table.grow(NewChunk::new(list).unwrap()).0.is_none());
    }

    #[test]
    fn ids_count_up_from_the_base() {
        let mut table = table(1);
        assert_eq!(table.insert(event(), 4096), Ok(FIRST_OTHER_ID));
        assert_eq!(table.insert(event(), 4096), Ok(FIRST_OTHER_ID + 1));
    }

    #[test]
    fn the_lowest_free_id_is_used_again() {
        let mut table = table(2);
        for _ in 0..100 {
            assert!(table.insert(event(), 4096).is_ok());
        }
        assert!(table.remove(FIRST_OTHER_ID + 3).is_some());
        assert!(table.remove(FIRST_OTHER_ID + 70).is_some());
        assert_eq!(table.insert(event(), 4096), Ok(FIRST_OTHER_ID + 3));
        assert_eq!(table.insert(event(), 4096), Ok(FIRST_OTHER_ID + 70));
        assert_eq!(table.insert(event(), 4096), Ok(FIRST_OTHER_ID + 100));
    }

    #[test]
    fn an_id_can_be_given() {
        let mut table = table(1);
        assert_eq!(table.insert_at(event(), FIRST_OTHER_ID + 2), Ok(()));
        let again = table.insert_at(event(), FIRST_OTHER_ID + 2);
        assert_eq!(again, Err(TableFull::Exhausted));
        let beyond = table.insert_at(event(), FIRST_OTHER_ID + 64);
        assert!(matches!(beyond, Err(TableFull::NeedsRoom { .. })));
        for id in [0, FIRST_OTHER_ID - 1, FIRST_OTHER_ID + 4096, u32::MAX] {
            assert_eq!(table.insert_at(event(), id), Err(TableFull::Exhausted));
        }
        for id in [0, 1, 3] {
            assert_eq!(table.insert(event(), 4096), Ok(FIRST_OTHER_ID + id));
        }
        let mut signals = grown::<0>(1);
        assert_eq!(signals.insert_at(event(), 0), Err(TableFull::Exhausted));
        assert_eq!(signals.insert_at(event(), 1), Ok(()));
    }

    #[test]
    fn a_full_chunk_asks_for_another_until_the_limit() {
        let mut table = table(1);
        for _ in 0..64 {
            assert!(table.insert(event(), 100).is_ok());
        }
        assert!(matches!(
            table.insert(event(), 100),
            Err(TableFull::NeedsRoom { .. })
        ));
        assert_eq!(table.insert(event(), 64), Err(TableFull::Exhausted));
        grow(&mut table);
        for _ in 64..100 {
            assert!(table.insert(event(), 100).is_ok());
        }
        assert_eq!(table.insert(event(), 100), Err(TableFull::Exhausted));
    }

    #[test]
    fn a_table_grows_to_all_its_ids() {
        let mut table = table(0);
        let (mut lists, mut chunks) = (0, 0);
        let full = loop {
            match table.insert(event(), 4096) {
                Ok(_) => {}
                Err(TableFull::NeedsRoom { list }) => {
                    chunks += 1;
                    lists += usize::from(list > 0);
                    let (chunk, old) = table.grow(NewChunk::new(list).unwrap());
                    assert!(chunk.is_none() && old.is_empty());
                }
                Err(full) => break full,
            }
        };
        // Lists for 4, 8, 16, 32 and 64 chunks.
        assert_eq!((full, lists, chunks), (TableFull::Exhausted, 5, 64));
        assert!(table.get_mut(FIRST_OTHER_ID + 4095).is_some());
        assert!(table.get_mut(FIRST_OTHER_ID + 4096).is_none());
    }

    #[test]
    fn what_another_was_faster_with_comes_back() {
        let mut table = table(0);
        let (chunk, _) = table.grow(NewChunk::new(FEW).unwrap());
        assert!(chunk.is_none());
        for _ in 1..FEW {
            assert!(table.grow(NewChunk::new(0).unwrap()).0.is_none());
        }
        // The list is full, and a shorter or equal one is of no use.
        let (chunk, list) = table.grow(NewChunk::new(FEW).unwrap());
        assert!(chunk.is_some() && list.capacity() == FEW);
    }

    #[test]
    fn signal_event_zero_is_never_given() {
        let mut table = grown::<0>(1);
        assert!(table.get_mut(0).is_none());
        assert!(table.remove(0).is_none());
        assert_eq!(table.insert(event(), 4096), Ok(1));
    }

    #[test]
    fn unknown_ids_find_nothing() {
        let mut table = table(1);
        assert!(table.insert(event(), 4096).is_ok());
        for id in [
            0,
            1,
            FIRST_OTHER_ID - 1,
            FIRST_OTHER_ID + 1,
            FIRST_OTHER_ID + 5000,
            u32::MAX,
        ] {
            assert!(table.get_mut(id).is_none());
        }
    }

    #[test]
    fn a_walk_visits_every_event_once() {
        let mut table = table(3);
        for _ in 0..150 {
            assert!(table.insert(event(), 4096).is_ok());
        }
        for id in [0, 63, 64, 100] {
            assert!(table.remove(FIRST_OTHER_ID + id).is_some());
        }
        let (mut count, mut last) = (0, None);
        while let Some(id) = table.next_id(last) {
            assert!(last.is_none_or(|last| last < id));
            assert!(table.get_mut(id).is_some());
            (count, last) = (count + 1, Some(id));
        }
        assert_eq!(count, 146);
    }

    #[test]
    fn a_walk_over_both_tables_begins_with_the_signals() {
        let mut tables = Tables {
            signals: grown(1),
            others: grown(1),
        };
        for _ in 0..2 {
            tables.signals.insert(event(), 4096).unwrap();
            tables.others.insert(event(), 4096).unwrap();
        }
        let all = core::iter::successors(tables.next_id(None), |id| tables.next_id(Some(*id)));
        assert!(all.eq([1, 2, FIRST_OTHER_ID, FIRST_OTHER_ID + 1]));
    }
}
