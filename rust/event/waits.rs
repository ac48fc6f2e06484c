// SPDX-License-Identifier: GPL-2.0-only

//! Who waits for which event: the threads inside WAIT_EVENTS that found nothing signalled.
//!
//! A [`Wait`] is one such thread; it has a [`WaitLink`] for each event it waits for. The links of
//! one event form a list that starts in the event. They refer to each other by number rather than
//! by address, so that all of this is plain data under one lock. A signal takes the whole list off
//! its event and costs nothing for events that nobody waits for.
//!
//! A wait is in an event's list once, however often it names the event: its links are sorted by
//! event, and those of one event follow one of them, their leader, which alone is in the list.
//!
//! A signal tells the first few of a list, and marks the others as late: they are told in further
//! steps, as many at a time. Who joins meanwhile stands before them, and waits for the next signal.
//! Those who wait for an event that is destroyed are told in such steps too.

use super::latch::Tally;
use kernel::{
    alloc::kvec::PushError,
    prelude::*,
    sync::aref::ARef,
    task::Task, //
};

/// Bits of a [`LinkRef`] that number the link within its wait: one call names at most as many
/// events as there are signal slots.
const LINK_BITS: u32 = super::page::SLOTS.trailing_zeros();

/// How many waiters are told in one go, interrupts off.
pub(super) const FEW_WAITERS: usize = 8;

/// Names a link: which wait, and which of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkRef(u32);

impl LinkRef {
    /// The highest number a wait can have.
    const MAX_WAIT: usize = (u32::MAX >> LINK_BITS) as usize;

    fn new(wait: WaitId, link: usize) -> Self {
        // CAST: `Waits::insert` keeps waits, `Events::wait` links within their bits.
        Self((wait.0 as u32) << LINK_BITS | link as u32)
    }

    fn wait(self) -> usize {
        (self.0 >> LINK_BITS) as usize
    }

    fn link(self) -> usize {
        (self.0 & ((1 << LINK_BITS) - 1)) as usize
    }
}

/// The leader of a link that has not joined yet.
const NO_LEADER: u32 = u32::MAX;

/// One event of a WAIT_EVENTS call.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLink {
    pub(super) event: u32,
    /// The age that the waiter saw last; 0 if it did not say.
    pub(super) last_age: u64,
    /// Where the user's records have the event.
    index: u32,
    /// The event was signalled.
    pub(super) fired: bool,
    linked: bool,
    /// Which link of the wait is in the event's list for this one: perhaps itself.
    leader: u32,
    /// For how many links it is in the list.
    followers: u32,
    /// The event's age when it joined: if that is another one, a signal came, and is this link's.
    age: u64,
    next: Option<LinkRef>,
    prev: Option<LinkRef>,
}

impl WaitLink {
    /// A link to `event`, which the user named at `index`, that is in no list.
    pub(super) const fn new(event: u32, index: u32, last_age: u64, fired: bool) -> Self {
        Self {
            event,
            last_age,
            index,
            fired,
            linked: false,
            leader: NO_LEADER,
            followers: 0,
            age: 0,
            next: None,
            prev: None,
        }
    }
}

/// Who waits for one event, those who came last first.
#[derive(Default)]
pub(super) struct Waiters {
    head: Option<LinkRef>,
    /// From this one on they have yet to be told of a signal.
    late: Option<LinkRef>,
}

impl Waiters {
    /// Whether some have yet to be told of a signal.
    pub(super) fn are_late(&self) -> bool {
        self.late.is_some()
    }
}

/// Names a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitId(usize);

/// One thread inside WAIT_EVENTS.
pub(super) struct Wait {
    pub(super) task: ARef<Task>,
    /// Those of one event stand next to each other.
    pub(super) links: KVVec<WaitLink>,
    pub(super) tally: Tally,
    /// One of the events was destroyed.
    pub(super) broken: bool,
}

impl Wait {
    /// Has a link follow the leader of the one before it, if both are of one event.
    pub(super) fn follow(&mut self, link: usize) {
        let before = link
            .checked_sub(1)
            .and_then(|before| self.links.get(before))
            .map(|before| (before.event, before.leader));
        if let Some(entry) = self.links.get_mut(link) {
            entry.leader = match before {
                Some((event, leader)) if event == entry.event => leader,
                // CAST: `Events::wait` keeps links within their bits.
                _ => link as u32,
            };
        }
    }

    /// The event of a link in a list was signalled: the link has fired, and who follows it.
    fn fire(&mut self, link: usize) {
        if let Some(link) = self.links.get_mut(link) {
            link.fired = true;
            self.tally.fire_many(core::mem::take(&mut link.followers));
        }
    }

    /// Where the user named each event, and whether it was signalled.
    pub(super) fn fired(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let leads = |link: &WaitLink| self.links.get(link.leader as usize);
        let links = self.links.iter();
        links.map(move |link| {
            let fired = link.fired || leads(link).is_some_and(|leader| leader.fired);
            (link.index as usize, fired)
        })
    }
}

/// Places of a chunk.
const CHUNK: usize = 64;

/// How many chunks the shortest list has place for.
const FEW: usize = 4;

/// Room for a wait.
enum Place {
    /// Nobody's; the next one is free, too, if there is one.
    Free(Option<u32>),
    Taken(Wait),
}

/// Room for 64 waits.
struct Chunk {
    places: [Place; CHUNK],
}

/// Room for 64 more waits.
pub(super) struct NewRoom {
    chunk: KBox<Chunk>,
    /// A longer list of chunks, where there is no place for this one.
    list: KVVec<KBox<Chunk>>,
}

impl NewRoom {
    /// What [`NoRoom`] asks for. Call it before the lock.
    pub(super) fn new(list: usize) -> Result<Self> {
        let chunk = pin_init::init!(Chunk {
            places <- pin_init::init_array_from_fn(|_| Place::Free(None)),
        });
        Ok(Self {
            chunk: KBox::init(chunk, GFP_KERNEL_ACCOUNT)?,
            list: KVVec::with_capacity(list, GFP_KERNEL_ACCOUNT)?,
        })
    }
}

/// A wait for which there is no place.
pub(super) struct NoRoom {
    pub(super) wait: Wait,
    /// [`Waits::grow`], then again: for how many chunks it takes a list, 0 if the one that there is
    /// is long enough. `None`: there is no place at all.
    pub(super) list: Option<usize>,
}

/// All waits of a process. What is done to one of them takes as long however many there are: they
/// stay where they are, and a list of free places names the next one.
pub(super) struct Waits {
    chunks: KVVec<KBox<Chunk>>,
    free: Option<u32>,
    /// All places from this one on are free, and not in the list.
    used: usize,
    /// As many as there can be.
    pub(super) limit: usize,
}

impl Waits {
    /// No waits, and no room for any.
    pub(super) fn new() -> Self {
        Self {
            chunks: KVVec::new(),
            free: None,
            used: 0,
            limit: LinkRef::MAX_WAIT + 1,
        }
    }

    /// Adds room. What is not needed comes back, to be freed outside the lock.
    pub(super) fn grow(&mut self, room: NewRoom) -> impl Sized {
        let NewRoom { chunk, mut list } = room;
        if list.capacity() > self.chunks.capacity() {
            for chunk in self.chunks.drain_all() {
                // Cannot fail: there is more room than before.
                let _ = list.push_within_capacity(chunk);
            }
            core::mem::swap(&mut self.chunks, &mut list);
        }
        // Another thread may have made room; with what there is then nobody is in want.
        let refused = match self.used < self.chunks.len() * CHUNK {
            true => Some(chunk),
            false => {
                let refused = self.chunks.push_within_capacity(chunk).err();
                refused.map(|PushError(chunk)| chunk)
            }
        };
        (refused, list)
    }

    /// Adds a wait without allocating. It comes back if there is no room.
    pub(super) fn insert(&mut self, wait: Wait) -> Result<WaitId, NoRoom> {
        // CAST: A number's size.
        let index = self.free.map_or(self.used, |free| free as usize);
        if index >= self.limit {
            return Err(NoRoom { wait, list: None });
        }
        let Some(place) = self.place_mut(index) else {
            let chunks = self.chunks.len();
            let list = match chunks < self.chunks.capacity() {
                true => 0,
                false => (2 * chunks).max(FEW),
            };
            return Err(NoRoom {
                wait,
                list: Some(list),
            });
        };
        if let Place::Free(next) = core::mem::replace(place, Place::Taken(wait)) {
            self.free = next;
        }
        self.used = self.used.max(index + 1);
        Ok(WaitId(index))
    }

    #[inline]
    fn place_mut(&mut self, index: usize) -> Option<&mut Place> {
        let chunk = self.chunks.get_mut(index / CHUNK)?;
        chunk.places.get_mut(index % CHUNK)
    }

    /// The wait of this name.
    #[inline]
    pub(super) fn get_mut(&mut self, id: WaitId) -> Option<&mut Wait> {
        match self.place_mut(id.0)? {
            Place::Taken(wait) => Some(wait),
            Place::Free(_) => None,
        }
    }

    /// Takes a wait out. None of its links is in a list any more.
    pub(super) fn remove(&mut self, id: WaitId) -> Option<Wait> {
        let next = self.free;
        let place = self.place_mut(id.0)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let place = core::mem::replace(place, Place::Free(next));
        // CAST: Below `limit`.
        self.free = Some(id.0 as u32);
        match place {
            Place::Taken(wait) => Some(wait),
            Place::Free(_) => None,
        }
    }

    /// Tells the waiters of chunk `number` that they wait in vain. False: there is no such chunk.
    pub(super) fn break_chunk(&mut self, number: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(number) else {
            return false;
        };
        for place in &mut chunk.places {
            if let Place::Taken(wait) = place {
                wait.broken = true;
                wait.task.wake_up();
            }
        }
        true
    }

    #[inline]
    fn link_mut(&mut self, at: LinkRef) -> Option<&mut WaitLink> {
        let wait = self.get_mut(WaitId(at.wait()))?;
        wait.links.get_mut(at.link())
    }

    /// Puts link `link` of wait `id` at the head of its event's list, unless its leader is in it.
    /// `age` is the event's.
    pub(super) fn attach(&mut self, list: &mut Waiters, id: WaitId, link: usize, age: u64) {
        let Some(wait) = self.get_mut(id) else {
            return;
        };
        let leader = wait.links.get(link).map(|entry| entry.leader as usize);
        if let Some(leader) = leader.filter(|leader| *leader != link) {
            if let Some(entry) = wait.links.get_mut(leader).filter(|entry| entry.linked) {
                entry.followers += 1;
                return;
            }
        }
        let (this, next) = (LinkRef::new(id, link), list.head);
        if let Some(entry) = wait.links.get_mut(link) {
            (entry.linked, entry.next, entry.prev) = (true, next, None);
            // CAST: `Events::wait` keeps links within their bits.
            (entry.leader, entry.followers, entry.age) = (link as u32, 1, age);
            list.head = Some(this);
        }
        if let Some(entry) = next.and_then(|next| self.link_mut(next)) {
            entry.prev = Some(this);
        }
    }

    /// Takes a link out of its event's list. Returns the event's age when it joined; `None`: it is
    /// in no list.
    fn detach(&mut self, list: &mut Waiters, this: LinkRef) -> Option<u64> {
        let entry = self.link_mut(this)?;
        if !core::mem::take(&mut entry.linked) {
            return None;
        }
        let (next, prev, age) = (entry.next, entry.prev, entry.age);
        match prev {
            None => list.head = next,
            Some(prev) => {
                if let Some(entry) = self.link_mut(prev) {
                    entry.next = next;
                }
            }
        }
        if let Some(entry) = next.and_then(|next| self.link_mut(next)) {
            entry.prev = prev;
        }
        if list.late == Some(this) {
            list.late = next;
        }
        Some(age)
    }

    /// Takes link `link` of wait `id` out of its event's list, if it is in it. A signal that it has
    /// yet to be told of is not lost: `age` is the event's.
    pub(super) fn leave(&mut self, list: &mut Waiters, id: WaitId, link: usize, age: u64) {
        let joined = self.detach(list, LinkRef::new(id, link));
        if joined.is_some_and(|joined| joined != age) {
            if let Some(wait) = self.get_mut(id) {
                wait.fire(link);
            }
        }
    }

    /// Whether somebody waits for the next signal of an event of that age: those who are late do
    /// not.
    pub(super) fn is_awaited(&mut self, list: &Waiters, age: u64) -> bool {
        let head = list.head.and_then(|head| self.link_mut(head));
        head.is_some_and(|link| link.age == age)
    }

    /// An event is signalled: the first few who wait for it learn so, and those whose wait is over
    /// wake up. True: there are more, for [`Waits::fire_late`].
    pub(super) fn fire(&mut self, list: &mut Waiters) -> bool {
        list.late = list.head;
        self.fire_late(list)
    }

    /// The next few who are late learn of the signal. True: there are more.
    pub(super) fn fire_late(&mut self, list: &mut Waiters) -> bool {
        for _ in 0..FEW_WAITERS {
            let Some(at) = list.late else {
                return false;
            };
            if self.detach(list, at).is_none() {
                list.late = None;
                return false;
            }
            if let Some(wait) = self.get_mut(WaitId(at.wait())) {
                wait.fire(at.link());
                if wait.tally.complete() {
                    wait.task.wake_up();
                }
            }
        }
        list.are_late()
    }

    /// An event of that age goes away: the next few who wait for it wake up and fail, but for those
    /// who have their signal. True: there are more.
    pub(super) fn abandon(&mut self, list: &mut Waiters, age: u64) -> bool {
        for _ in 0..FEW_WAITERS {
            let Some(at) = list.head else {
                return false;
            };
            let Some(joined) = self.detach(list, at) else {
                return false;
            };
            let Some(wait) = self.get_mut(WaitId(at.wait())) else {
                return false;
            };
            if joined != age {
                wait.fire(at.link());
            } else {
                wait.broken = true;
            }
            wait.task.wake_up();
        }
        list.head.is_some()
    }
}

#[kernel::macros::kunit_tests(amdkfd_event_waits)]
mod tests {
    use super::*;
    use kernel::time::{
        Delta,
        Instant,
        Monotonic, //
    };

    /// Of all events, at any time.
    const AGE: u64 = 1;

    /// A wait of this very thread for these events.
    fn wait_for(events: impl ExactSizeIterator<Item = u32>, all: bool) -> Wait {
        let count = events.len();
        let mut links = KVVec::with_capacity(count, GFP_KERNEL).unwrap();
        for (index, event) in (0u32..).zip(events) {
            let link = WaitLink::new(event, index, 0, false);
            assert!(links.push_within_capacity(link).is_ok());
        }
        let mut wait = Wait {
            task: ARef::from(&**kernel::current!()),
            links,
            tally: Tally::new(count as u32, all),
            broken: false,
        };
        (0..count).for_each(|link| wait.follow(link));
        wait
    }

    /// The same for `links` different events.
    fn wait(links: u32, all: bool) -> Wait {
        wait_for(0..links, all)
    }

    /// How many links are in a list.
    fn length(waits: &mut Waits, head: Option<LinkRef>) -> usize {
        let next = |at: &LinkRef| waits.link_mut(*at).and_then(|link| link.next);
        core::iter::successors(head, next).count()
    }

    /// As who finds no room for a wait makes some.
    fn add_room(waits: &mut Waits) {
        // What there is counts as used, or more would not be wanted.
        waits.used = waits.chunks.len() * CHUNK;
        let list = match waits.chunks.len() < waits.chunks.capacity() {
            true => 0,
            false => 2 * waits.chunks.len() + 1,
        };
        drop(waits.grow(NewRoom::new(list).unwrap()));
    }

    fn waits(room: usize) -> Waits {
        let mut waits = Waits::new();
        while waits.chunks.len() * CHUNK < room {
            add_room(&mut waits);
        }
        waits
    }

    fn fired(waits: &mut Waits, id: WaitId) -> usize {
        waits
            .get_mut(id)
            .map_or(0, |wait| wait.fired().filter(|(_, fired)| *fired).count())
    }

    /// Puts a wait for nothing in, as WAIT_EVENTS does.
    fn enter(waits: &mut Waits) -> Option<WaitId> {
        let mut wait = wait(0, false);
        loop {
            let refused = match waits.insert(wait) {
                Ok(id) => return Some(id),
                Err(refused) => refused,
            };
            drop(waits.grow(NewRoom::new(refused.list?).unwrap()));
            wait = refused.wait;
        }
    }

    #[test]
    fn without_room_a_wait_comes_back() {
        assert!(Waits::new().insert(wait(1, false)).is_err());
    }

    #[test]
    fn places_are_used_again() {
        let mut waits = Waits::new();
        let ids = [(); CHUNK].map(|()| enter(&mut waits).unwrap());
        for gone in [&ids[3..4], &ids[..], &ids[10..20]] {
            for id in gone {
                assert!(waits.remove(*id).is_some() && waits.remove(*id).is_none());
            }
            for id in gone.iter().rev() {
                assert_eq!(enter(&mut waits), Some(*id));
            }
        }
        assert_eq!(waits.chunks.len(), 1);
        assert!(enter(&mut waits).is_some_and(|id| id.0 == CHUNK));
    }

    #[test]
    fn growing_keeps_names() {
        let mut waits = Waits::new();
        let ids = [(); FEW * CHUNK + 1].map(|()| enter(&mut waits).unwrap());
        for id in ids {
            assert!(waits.get_mut(id).is_some());
        }
        // Of two threads that want room one makes some.
        let chunks = waits.chunks.len();
        drop(waits.grow(NewRoom::new(2 * chunks).unwrap()));
        assert_eq!(waits.chunks.len(), chunks);
        assert!(ids.iter().all(|id| waits.get_mut(*id).is_some()));
    }

    #[test]
    fn there_is_an_end_to_waits() {
        let mut waits = Waits {
            limit: CHUNK + 1,
            ..Waits::new()
        };
        let ids = [(); CHUNK + 1].map(|()| enter(&mut waits).unwrap());
        assert_eq!(enter(&mut waits), None);
        assert!(waits.remove(ids[7]).is_some());
        assert_eq!(enter(&mut waits), Some(ids[7]));
        assert_eq!(enter(&mut waits), None);
        let number = LinkRef::new(WaitId(LinkRef::MAX_WAIT), 0).wait();
        assert_eq!(number + 1, Waits::new().limit);
    }

    #[test]
    fn of_many_waits_one_more_takes_no_longer() {
        let mut waits = Waits::new();
        let mut last = enter(&mut waits).unwrap();
        for _ in 0..100_000 {
            last = enter(&mut waits).unwrap();
        }
        let begin = Instant::<Monotonic>::now();
        for _ in 0..10_000 {
            assert!(waits.remove(last).is_some());
            last = enter(&mut waits).unwrap();
        }
        // With a look at each of the others it would be a minute.
        assert!(begin.elapsed() < Delta::from_secs(20));
        let chunks = waits.chunks.len();
        assert!((0..chunks).all(|number| waits.break_chunk(number)));
        assert!(!waits.break_chunk(chunks));
        assert!(waits.get_mut(last).is_some_and(|wait| wait.broken));
    }

    #[test]
    fn a_signal_reaches_every_waiter_of_the_event_and_empties_its_list() {
        let mut waits = waits(8);
        let mut list = Waiters::default();
        let ids = [(); 3].map(|()| waits.insert(wait(1, false)).ok().unwrap());
        for id in ids {
            waits.attach(&mut list, id, 0, AGE);
        }
        assert!(!waits.fire(&mut list));
        assert!(list.head.is_none());
        for id in ids {
            assert_eq!(fired(&mut waits, id), 1);
            assert!(waits.get_mut(id).is_some_and(|wait| wait.tally.complete()));
        }
    }

    #[test]
    fn links_leave_a_list_from_any_place() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut waits = waits(8);
            let mut list = Waiters::default();
            let ids = [(); 3].map(|()| waits.insert(wait(1, false)).ok().unwrap());
            for id in ids {
                waits.attach(&mut list, id, 0, AGE);
            }
            waits.leave(&mut list, ids[order[0]], 0, AGE);
            waits.leave(&mut list, ids[order[1]], 0, AGE);
            assert!(!waits.fire(&mut list));
            assert_eq!(order.map(|index| fired(&mut waits, ids[index])), [0, 0, 1]);
        }
    }

    #[test]
    fn a_wait_that_names_an_event_often_is_in_its_list_once() {
        const TIMES: u32 = super::super::page::SLOTS;
        let mut waits = waits(1);
        let mut list = Waiters::default();
        let events = core::iter::repeat_n(7, TIMES as usize);
        let id = waits.insert(wait_for(events, true)).ok().unwrap();
        for link in 0..TIMES as usize {
            waits.get_mut(id).unwrap().follow(link);
            waits.attach(&mut list, id, link, AGE);
        }
        assert_eq!(length(&mut waits, list.head), 1);
        assert!(!waits.fire(&mut list));
        assert_eq!(fired(&mut waits, id), TIMES as usize);
        assert!(waits.get_mut(id).is_some_and(|wait| wait.tally.complete()));
    }

    #[test]
    fn who_joins_after_a_signal_follows_nobody() {
        let mut waits = waits(1);
        let mut list = Waiters::default();
        let events = core::iter::repeat_n(7, 3);
        let id = waits.insert(wait_for(events, true)).ok().unwrap();
        waits.attach(&mut list, id, 0, AGE);
        assert!(!waits.fire(&mut list));
        for link in [1, 2] {
            waits.get_mut(id).unwrap().follow(link);
            waits.attach(&mut list, id, link, AGE);
        }
        assert_eq!(
            (length(&mut waits, list.head), fired(&mut waits, id)),
            (1, 1)
        );
        assert!(!waits.fire(&mut list));
        assert!(waits.get_mut(id).is_some_and(|wait| wait.tally.complete()));
    }

    #[test]
    fn leaving_twice_or_after_a_signal_changes_nothing() {
        let mut waits = waits(2);
        let mut list = Waiters::default();
        let ids = [(); 2].map(|()| waits.insert(wait(1, false)).ok().unwrap());
        waits.attach(&mut list, ids[0], 0, AGE);
        assert!(!waits.fire(&mut list));
        waits.attach(&mut list, ids[1], 0, AGE);
        waits.leave(&mut list, ids[0], 0, AGE);
        assert!(list.head.is_some());
        waits.leave(&mut list, ids[1], 0, AGE);
        waits.leave(&mut list, ids[1], 0, AGE);
        assert!(list.head.is_none());
    }

    #[test]
    fn an_event_that_goes_away_breaks_its_waits() {
        let mut waits = waits(1);
        let mut list = Waiters::default();
        let id = waits.insert(wait(2, true)).ok().unwrap();
        waits.attach(&mut list, id, 1, AGE);
        assert!(!waits.abandon(&mut list, AGE));
        assert!(waits
            .get_mut(id)
            .is_some_and(|wait| wait.broken && !wait.tally.complete()));
        assert_eq!(fired(&mut waits, id), 0);
    }
}
