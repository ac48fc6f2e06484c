// SPDX-License-Identifier: GPL-2.0-only

//! The books of the run-list scheduler: which processes and queues there are, and the list they make.
//!
//! One [`Books`] per scheduler, under its lock. Each change is made in the list at once, and only there
//! where it is: a queue that comes or goes costs the same however many others there are, but for the
//! words of newer ones, which move. What the hardware reads is a copy ([`Books::copy`]).

use super::{
    image::{
        Census,
        Full,
        Image,
        Target, //
    },
    Entry,
    Key,
    NewEntry,
    NewSeat,
    Part,
    Seat, //
};
use crate::{
    gfx::{
        Engine,
        MapProcess,
        MqdFormat,
        RunlistFormat, //
    },
    ids::{
        GpuVa,
        Pasid, //
    },
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
};

/// The books.
pub(super) struct Books {
    format: &'static dyn RunlistFormat,
    /// The node's global wave sync: it goes to the process of the queue that has it.
    wave_sync: u32,
    /// Processes are kept apart: each packet says that what the one before left is cleared.
    isolated: bool,
    seats: RBTree<Key, Seat>,
    image: Image<KVVec<u32>>,
    census: Census,
}

impl From<Full> for Error {
    fn from(_: Full) -> Self {
        ENOMEM
    }
}

impl Entry {
    fn has_ring(&self, ring: GpuVa, format: &dyn MqdFormat) -> bool {
        let words = self.hold.first_mqd();
        self.queue.engine == Engine::Compute
            && words.is_some_and(|words| format.ring(&words) == Some(ring))
    }

    /// What it adds to a census while it runs.
    fn census(&self) -> Census {
        Census {
            processes: 0,
            queues: 1,
            compute_queues: u32::from(self.queue.engine == Engine::Compute),
            wave_sync_queues: u32::from(self.queue.wave_sync),
        }
    }
}

impl Seat {
    /// The queues that are to be on the hardware, the newest first.
    fn running(&mut self) -> impl Iterator<Item = &mut Entry> {
        let evicted = self.evicted;
        let all = self.queues.values_mut();
        all.filter(move |entry| entry.runs && !evicted)
    }

    /// Whether the process's packet gives it the wave sync; `None`: it is not in the list yet.
    fn listed_syncs(&self) -> Option<bool> {
        (self.part.head > 0).then_some(self.census.wave_sync_queues > 0)
    }

    /// Words of the list behind where `queue` is, or would be.
    fn behind(&self, queue: Key) -> usize {
        let newer = self.queues.iter().take_while(|(key, _)| **key <= queue);
        let in_front: usize = newer.map(|(_, entry)| entry.listed).sum();
        self.part.behind + self.part.dwords - self.part.head - in_front
    }
}

impl Books {
    /// Empty ones, with room for a list of `dwords`.
    pub(super) fn new(
        format: &'static dyn RunlistFormat,
        wave_sync: u32,
        dwords: usize,
    ) -> Result<Self> {
        Ok(Self {
            format,
            wave_sync,
            isolated: false,
            seats: RBTree::new(),
            image: Image::new(KVVec::from_elem(0, dwords, GFP_KERNEL)?),
            census: Census::default(),
        })
    }

    /// Whether processes are kept apart.
    pub(super) fn isolated(&self) -> bool {
        self.isolated
    }

    /// Whether they are from now on.
    pub(super) fn set_isolated(&mut self, isolated: bool) -> Result {
        if core::mem::replace(&mut self.isolated, isolated) == isolated {
            return Ok(());
        }
        let mut from = Key(0);
        while let Some(seat) = self.seats.cursor_lower_bound(&from) {
            let (&key, seat) = seat.current();
            if seat.part.head > 0 {
                self.write_head(key)?;
            }
            let Some(next) = key.0.checked_add(1) else {
                break;
            };
            from = Key(next);
        }
        Ok(())
    }

    /// What the list has.
    pub(super) fn census(&self) -> &Census {
        &self.census
    }

    /// Words of the processes without XNACK: they are the last.
    fn without_xnack(&self) -> usize {
        let first = self.seats.cursor_lower_bound(&Key(Key::NO_XNACK));
        first.map_or(0, |seat| {
            let part = seat.current().1.part;
            part.behind + part.dwords
        })
    }

    /// Whether the list has processes with XNACK and processes without.
    pub(super) fn mixes_xnack(&self) -> bool {
        (1..self.image.dwords()).contains(&self.without_xnack())
    }

    /// Copies the list to where the hardware will read it: the newest process first, those with its
    /// XNACK mode before the others.
    pub(super) fn copy(&self, to: &Target<'_>) -> Result<usize, Full> {
        let newest = |from: Key| {
            let seat = self.seats.cursor_lower_bound(&from);
            seat.map_or(u64::MAX, |seat| seat.current().0.age())
        };
        let swapped = newest(Key(Key::NO_XNACK)) < newest(Key(0));
        self.image
            .copy(if swapped { self.without_xnack() } else { 0 }, to)
    }

    fn seat(&mut self, key: Key) -> Result<&mut Seat> {
        self.seats.get_mut(&key).ok_or(ENOENT)
    }

    /// Is anything of this seat in the list?
    pub(super) fn seat_runs(&self, key: Key) -> bool {
        let seat = self.seats.get(&key);
        seat.is_some_and(|seat| seat.census.queues > 0)
    }

    /// Is this queue in the list?
    pub(super) fn queue_runs(&self, seat: Key, queue: Key) -> bool {
        let seat = self.seats.get(&seat);
        seat.and_then(|seat| seat.queues.get(&queue))
            .is_some_and(|entry| entry.listed > 0)
    }

    /// Takes a process in. It comes into the list with its first queue.
    pub(super) fn add(&mut self, new: NewSeat) -> Key {
        let NewSeat {
            key,
            mut seat,
            room,
        } = new;
        let next = self.seats.cursor_lower_bound(&key);
        seat.part.behind = next.map_or(0, |next| {
            let part = next.current().1.part;
            part.behind + part.dwords
        });
        self.seats.insert(room.into_node(key, seat));
        key
    }

    /// Takes a process out with all its queues. What is returned is to be dropped when nothing is
    /// locked.
    pub(super) fn remove(&mut self, key: Key) -> Option<RBTreeNode<Key, Seat>> {
        let seat = self.seats.get(&key)?;
        let (part, census) = (seat.part, seat.census);
        // It is there, so it is within the list: nothing can fail.
        let _ = self.image.replace(part.behind, part.dwords, 0);
        self.census -= census;
        self.resized(key, part.dwords, 0);
        self.seats.remove_node(&key)
    }

    /// A seat's part of the list has another length: what is in front of it has more behind it, or less.
    fn resized(&mut self, seat: Key, old: usize, new: usize) {
        for (_, newer) in self.seats.iter_mut().take_while(|(key, _)| **key < seat) {
            newer.part.behind = newer.part.behind - old + new;
        }
    }

    /// Takes a queue in. On error it is taken in, but not in the list.
    pub(super) fn insert(&mut self, seat: Key, queue: NewEntry) -> Result<Key> {
        let NewEntry { key, node } = queue;
        let at = self.seat(seat)?;
        at.queues.insert(node);
        at.process.queues += 1;
        self.list(seat, key)?;
        if let Err(full) = self.write_head(seat) {
            // No queue is in the list without its process.
            self.unlist(seat, key)?;
            return Err(full);
        }
        Ok(key)
    }

    /// Takes a queue out. What is returned is to be dropped when nothing is locked.
    pub(super) fn take(&mut self, seat: Key, queue: Key) -> Option<RBTreeNode<Key, Entry>> {
        self.unlist(seat, queue).ok()?;
        let at = self.seats.get_mut(&seat)?;
        let gone = at.queues.remove_node(&queue)?;
        at.process.queues -= 1;
        if at.part.head > 0 {
            // The packet is as long as it was: nothing can fail.
            let _ = self.write_head(seat);
        }
        Some(gone)
    }

    /// Changes a queue.
    pub(super) fn change(
        &mut self,
        seat: Key,
        queue: Key,
        change: impl FnOnce(&mut Entry),
    ) -> Result {
        let before = self.seat(seat)?.listed_syncs();
        self.unlist(seat, queue)?;
        let at = self.seat(seat)?;
        change(at.queues.get_mut(&queue).ok_or(ENOENT)?);
        self.list(seat, queue)?;
        let after = self.seat(seat)?.listed_syncs();
        if before.is_some() && before == after {
            // The process's packet says what it should.
            return Ok(());
        }
        self.write_head(seat)
    }

    /// Whether a queue is meant to run from now on; returns whether it is in the list.
    pub(super) fn set_runs(&mut self, seat: Key, queue: Key, runs: bool) -> Result<bool> {
        let at = self.seat(seat)?;
        let in_list = at.part.head > 0;
        let evicted = at.evicted;
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if core::mem::replace(&mut entry.runs, runs) == runs {
            return Ok(entry.listed > 0);
        }
        // Without wave sync the process's packet says the same, with the queue and without.
        let same_head = in_list && !entry.queue.wave_sync;
        if runs {
            self.list(seat, queue)?;
        } else {
            self.unlist(seat, queue)?;
        }
        if !same_head {
            self.write_head(seat)?;
        }
        Ok(runs && !evicted)
    }

    /// A queue was reset: it never runs again, and its process's queues do not change any more.
    pub(super) fn set_reset(&mut self, seat: Key, queue: Key) -> Result<Pasid> {
        self.set_runs(seat, queue, false)?;
        let at = self.seat(seat)?;
        at.has_reset = true;
        Ok(at.process.pasid)
    }

    /// `EACCES`: a queue of the process was reset.
    pub(super) fn check_changeable(&self, seat: Key) -> Result {
        match self.seats.get(&seat) {
            Some(seat) if seat.has_reset => Err(EACCES),
            _ => Ok(()),
        }
    }

    /// The compute queue whose ring this is: the one of that doorbell if several are there.
    pub(super) fn owner_of(
        &self,
        ring: GpuVa,
        doorbell: Option<u32>,
        format: &dyn MqdFormat,
    ) -> Option<(Key, Key)> {
        let mut found = None;
        for (seat, at) in self.seats.iter() {
            for (key, entry) in at
                .queues
                .iter()
                .filter(|(_, entry)| entry.has_ring(ring, format))
            {
                if doorbell == Some(entry.queue.doorbell.raw()) {
                    return Some((*seat, *key));
                }
                // Two processes may have theirs at the same place.
                let first = found.is_none();
                found = Some(first.then_some((*seat, *key)));
            }
        }
        found.flatten()
    }

    /// Whether a process's queues may run from now on. On error nothing has changed.
    pub(super) fn set_evicted(&mut self, seat: Key, evicted: bool) -> Result {
        let before = core::mem::replace(&mut self.seat(seat)?.evicted, evicted);
        if let Err(full) = self.relist(seat) {
            self.seat(seat)?.evicted = before;
            return Err(full);
        }
        self.write_head(seat)
    }

    /// A process has its page table elsewhere from now on.
    pub(super) fn set_page_table_base(&mut self, seat: Key, base: u64) -> Result {
        self.seat(seat)?.process.page_table_base = base;
        Ok(())
    }

    /// Puts a queue that is to run into the list.
    fn list(&mut self, seat: Key, queue: Key) -> Result {
        let at = self.seats.get_mut(&seat).ok_or(ENOENT)?;
        let (behind, evicted) = (at.behind(queue), at.evicted);
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if evicted || !entry.runs {
            return Ok(());
        }
        let packet = self.format.map_queue(&entry.queue);
        let words = self.image.put(behind, 0, &packet)?;
        entry.listed = words;
        let counts = entry.census();
        let old = at.part.dwords;
        at.part.dwords += words;
        at.census += counts;
        self.census += counts;
        self.resized(seat, old, old + words);
        Ok(())
    }

    /// Takes a queue out of the list, if it is in it.
    fn unlist(&mut self, seat: Key, queue: Key) -> Result {
        let at = self.seats.get_mut(&seat).ok_or(ENOENT)?;
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        let words = core::mem::take(&mut entry.listed);
        if words == 0 {
            return Ok(());
        }
        let counts = entry.census();
        // It no longer counts itself: its words are behind where it would be.
        let behind = at.behind(queue) - words;
        self.image.replace(behind, words, 0)?;
        let old = at.part.dwords;
        at.part.dwords -= words;
        at.census -= counts;
        self.census -= counts;
        self.resized(seat, old, old - words);
        Ok(())
    }

    /// Writes all queues of a seat into the list anew. On error nothing has changed.
    fn relist(&mut self, key: Key) -> Result {
        let format = self.format;
        let seat = self.seats.get_mut(&key).ok_or(ENOENT)?;
        let Part {
            head,
            dwords: old,
            behind,
        } = seat.part;
        let mut census = Census {
            processes: seat.census.processes,
            ..Census::default()
        };
        let mut words = 0;
        for entry in seat.running() {
            words += format.map_queue(&entry.queue).words().len();
            census += entry.census();
        }
        let mut room = self.image.replace(behind, old - head, words)?;
        seat.queues.values_mut().for_each(|entry| entry.listed = 0);
        for entry in seat.running() {
            let packet = format.map_queue(&entry.queue);
            let (place, rest) = room
                .split_at_mut_checked(packet.words().len())
                .ok_or(ENOMEM)?;
            place.copy_from_slice(packet.words());
            entry.listed = place.len();
            room = rest;
        }
        self.census -= core::mem::replace(&mut seat.census, census);
        self.census += census;
        seat.part.dwords = head + words;
        self.resized(key, old, head + words);
        Ok(())
    }

    /// Writes the packet of a seat's process.
    fn write_head(&mut self, key: Key) -> Result {
        let seat = self.seats.get_mut(&key).ok_or(ENOENT)?;
        let Part {
            behind,
            dwords: old,
            head,
        } = seat.part;
        let syncs = seat.census.wave_sync_queues > 0;
        let packet = self.format.map_process(&MapProcess {
            wave_sync: if syncs { self.wave_sync } else { 0 },
            cleans: self.isolated,
            ..seat.process
        });
        let words = self.image.put(behind + old - head, head, &packet)?;
        if words == head {
            return Ok(());
        }
        // It comes into the list.
        seat.part.head = words;
        seat.part.dwords = old + words;
        seat.census.processes += 1;
        self.census.processes += 1;
        self.resized(key, old, old + words);
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_books)]
mod tests {
    use super::*;
    use crate::{
        gfx::{
            testing::{
                known,
                Memory, //
            },
            Generation,
            MapQueue,
            Packet,
            ShMem, //
        },
        ids::{
            DoorbellIndex,
            GpuVa,
            IpVersion,
            Pasid,
            UserVa, //
        },
    };

    fn format() -> &'static dyn RunlistFormat {
        known(Generation::of(IpVersion::new(9, 4, 3)).ok()).runlist
    }

    fn books() -> Books {
        Books::new(format(), 64, 512).unwrap()
    }

    fn seat(number: u32, xnack: bool) -> NewSeat {
        let process = MapProcess {
            pasid: known(Pasid::new(number + 1)),
            page_table_base: 0x1000,
            sh_mem: ShMem::default(),
            trap: None,
            queues: 0,
            wave_sync: 0,
            cleans: false,
        };
        NewSeat::new(process, xnack).unwrap()
    }

    fn map_queue(number: u32) -> MapQueue {
        MapQueue {
            engine: if number % 3 == 0 {
                Engine::Sdma(0)
            } else {
                Engine::Compute
            },
            doorbell: known(DoorbellIndex::new(number)),
            mqd: known(GpuVa::new(0x1000)),
            write_pointer: known(UserVa::new(0x2000)),
            wave_sync: false,
        }
    }

    fn queue(number: u32, runs: bool) -> NewEntry {
        NewEntry::undescribed(map_queue(number), runs).unwrap()
    }

    fn copied(books: &Books, words: &Memory) -> usize {
        let target = Target {
            words,
            address: known(GpuVa::new(0x1000)),
            capacity: 512,
        };
        books.copy(&target).unwrap()
    }

    /// The list and the census as they come out when they are made from scratch.
    fn from_scratch(books: &mut Books) -> (KVec<u32>, Census) {
        let (mut words, mut census) = (KVec::new(), Census::default());
        let mut push = |packet: Packet| {
            let row = packet.words();
            words.extend_from_slice(row, GFP_KERNEL).unwrap();
        };
        let cleans = books.isolated;
        let ages = books.seats.keys().map(|key| (key.age(), *key));
        let newest = ages.min().is_some_and(|(_, key)| key < Key(Key::NO_XNACK));
        for xnack in [newest, !newest] {
            for (key, seat) in books.seats.iter_mut() {
                if (*key < Key(Key::NO_XNACK)) != xnack || seat.process.queues == 0 {
                    continue;
                }
                census.processes += 1;
                let syncs = seat.running().any(|entry| entry.queue.wave_sync);
                push(format().map_process(&MapProcess {
                    wave_sync: if syncs { 64 } else { 0 },
                    cleans,
                    ..seat.process
                }));
                for entry in seat.running() {
                    census += entry.census();
                    push(format().map_queue(&entry.queue));
                }
            }
        }
        (words, census)
    }

    fn check(books: &mut Books) {
        let words = Memory::new();
        let len = copied(books, &words);
        let (expected, census) = from_scratch(books);
        assert_eq!(len, expected.len());
        for (index, word) in expected.iter().enumerate() {
            assert_eq!(crate::gfx::Words::get(&words, index), *word);
        }
        assert_eq!(*books.census(), census);
    }

    #[test]
    fn processes_are_kept_apart_from_then_on() {
        let mut books = books();
        let seats = [0, 1, 2].map(|number| books.add(seat(number, number == 1)));
        for (number, seat) in (0..).zip(&seats[..2]) {
            books.insert(*seat, queue(number, true)).unwrap();
        }
        for isolated in [true, true, false] {
            books.set_isolated(isolated).unwrap();
            assert_eq!(books.isolated(), isolated);
            check(&mut books);
        }
        books.set_isolated(true).unwrap();
        books.insert(seats[2], queue(7, true)).unwrap();
        check(&mut books);
    }

    #[test]
    fn a_kept_list_is_the_one_made_from_scratch() {
        let mut books = books();
        let mut seats = KVec::new();
        for number in 0..5 {
            let key = books.add(seat(number, number % 2 == 0));
            let mut queues = KVec::new();
            for queue_number in 0..4 {
                let new = queue(number * 4 + queue_number, queue_number != 1);
                queues
                    .push(books.insert(key, new).unwrap(), GFP_KERNEL)
                    .unwrap();
                check(&mut books);
            }
            seats.push((key, queues), GFP_KERNEL).unwrap();
        }
        for round in 0..4 {
            for (number, (key, queues)) in seats.iter().enumerate() {
                let at = queues[(number + round) % queues.len()];
                books.set_runs(*key, at, round % 2 == 1).unwrap();
                check(&mut books);
                books.set_evicted(*key, round % 2 == 0).unwrap();
                check(&mut books);
                books
                    .change(*key, at, |entry| entry.queue.wave_sync = round % 2 == 0)
                    .unwrap();
                check(&mut books);
            }
        }
        for (key, queues) in &seats {
            assert!(books.take(*key, queues[2]).is_some());
            check(&mut books);
            assert!(books.take(*key, queues[2]).is_none());
        }
        for (key, _) in &seats {
            assert!(books.remove(*key).is_some());
            check(&mut books);
        }
        assert_eq!(books.image.dwords(), 0);
    }

    #[test]
    fn what_there_is_no_room_for_changes_nothing() {
        let mut books = Books::new(format(), 64, 40).unwrap();
        let key = books.add(seat(0, false));
        books.insert(key, queue(1, true)).unwrap();
        books.insert(key, queue(2, true)).unwrap();
        let third = queue(3, true);
        let name = third.key;
        assert_eq!(books.insert(key, third).err(), Some(ENOMEM));
        assert!(!books.queue_runs(key, name));
        assert!(books.take(key, name).is_some());
        check(&mut books);
    }

    #[test]
    fn a_process_that_finds_no_room_stays_evicted() {
        let mut books = Books::new(format(), 64, 60).unwrap();
        let key = books.add(seat(0, false));
        let old = books.insert(key, queue(1, true)).unwrap();
        books.insert(key, queue(2, true)).unwrap();
        books.set_evicted(key, true).unwrap();
        // Another fills its place until nothing more fits.
        let other = books.add(seat(1, false));
        books.insert(other, queue(4, true)).unwrap();
        let mut last = None;
        for number in 5..32 {
            let new = queue(number, true);
            let name = new.key;
            if books.insert(other, new).is_err() {
                last = Some(name);
                break;
            }
        }
        assert!(books.take(other, last.unwrap()).is_some());
        assert_eq!(books.set_evicted(key, false).err(), Some(ENOMEM));
        check(&mut books);
        assert!(!books.queue_runs(key, old));
        // Its queues can come and go meanwhile.
        books.set_runs(key, old, false).unwrap();
        books.set_runs(key, old, true).unwrap();
        check(&mut books);
        assert!(books.remove(other).is_some());
        books.set_evicted(key, false).unwrap();
        assert!(books.queue_runs(key, old));
        assert!(books.take(key, old).is_some());
        check(&mut books);
    }

    #[test]
    fn a_queue_is_not_in_the_list_without_its_process() {
        let words = format().map_queue(&map_queue(1)).words().len();
        let mut books = Books::new(format(), 64, words + 3).unwrap();
        let key = books.add(seat(0, false));
        let first = queue(1, true);
        let name = first.key;
        assert_eq!(books.insert(key, first).err(), Some(ENOMEM));
        assert_eq!(books.image.dwords(), 0);
        assert!(books.take(key, name).is_some());
        assert_eq!(books.image.dwords(), 0);
        check(&mut books);
    }

    #[test]
    fn modes_of_xnack_are_told_apart() {
        let mut books = books();
        for xnack in [true, false] {
            assert!(!books.mixes_xnack());
            let key = books.add(seat(0, xnack));
            books.insert(key, queue(1, true)).unwrap();
        }
        assert!(books.mixes_xnack());
    }
}
