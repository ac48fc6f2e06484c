// SPDX-License-Identifier: GPL-2.0-only

//! What the run-list scheduler knows: which processes and queues there are, and the list they make.
//!
//! One [`RunlistState`] per scheduler, under its lock. Each change is made in the list at once, and
//! only there where it is: a queue that comes or goes costs the same however many others there are,
//! but for the words of newer ones, which move. What the hardware reads is a copy
//! ([`RunlistState::copy`]).
//!
//! A queue takes its place in the list with it when it comes, whether it is to run or not: whoever
//! is restored or started later finds it.

use super::{
    copy_slots::CopySlots,
    image::{
        Counts,
        Image,
        ListFull,
        ListTarget, //
    },
    Key,
    Meanwhile,
    NewSchedProcess,
    NewSchedQueue,
    Part,
    SchedProcess, //
    SchedQueue,
};
use crate::{
    gfx::{
        Engine,
        MapProcess,
        MqdFormat,
        RunlistFormat, //
        WaveControl,
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

/// The processes and queues of a run-list scheduler, and its run list.
pub(super) struct RunlistState {
    format: &'static dyn RunlistFormat,
    /// The node's global wave sync: it goes to the process of the queue that has it.
    wave_sync: u32,
    /// Processes are kept apart: each packet says that what the one before left is cleared.
    isolated: bool,
    processes: RBTree<Key, SchedProcess>,
    image: Image<KVVec<u32>>,
    /// Words of the list if all queues run.
    reserved: usize,
    /// Slots of the copy queues in the list.
    copy_slots: CopySlots,
    counts: Counts,
    /// Who the last list began with that did not fit the hardware, and whether this one does not.
    begin: Option<Key>,
    takes_turns: bool,
}

impl From<ListFull> for Error {
    fn from(_: ListFull) -> Self {
        ENOMEM
    }
}

impl SchedQueue {
    fn has_ring(&self, ring: GpuVa, format: &dyn MqdFormat) -> bool {
        let words = self.hqd.first_mqd();
        self.described.engine == Engine::Compute
            && words.is_some_and(|words| format.ring(&words) == Some(ring))
    }

    /// Whether it is in the list unless its process is evicted.
    fn wants_to_run(&self) -> bool {
        self.kept == 0
    }

    /// What it adds to a counts while it runs.
    fn counts(&self) -> Counts {
        Counts {
            processes: 0,
            queues: 1,
            compute_queues: u32::from(self.described.engine == Engine::Compute),
            wave_sync_queues: u32::from(self.described.wave_sync),
        }
    }
}

impl CopySlots {
    /// A queue is in the list from now on.
    fn list(&mut self, entry: &SchedQueue) {
        if let Some(place) = entry.hqd.copy_slot() {
            self.insert(place);
        }
    }

    /// It is not.
    fn unlist(&mut self, entry: &SchedQueue) {
        if let Some(place) = entry.hqd.copy_slot() {
            self.remove(place);
        }
    }
}

impl SchedProcess {
    /// The queues that are to be on the hardware, the newest first.
    fn running(&mut self) -> impl Iterator<Item = &mut SchedQueue> {
        let evicted = self.evicted;
        let all = self.queues.values_mut();
        all.filter(move |entry| entry.wants_to_run() && !evicted)
    }

    /// Whether the process's packet gives it the wave sync; `None`: it is not in the list yet.
    fn listed_syncs(&self) -> Option<bool> {
        (self.part.head > 0).then_some(self.counts.wave_sync_queues > 0)
    }

    /// Words of the list behind where `queue` is, or would be.
    fn behind(&self, queue: Key) -> usize {
        let newer = self.queues.iter().take_while(|(key, _)| **key <= queue);
        let in_front: usize = newer.map(|(_, entry)| entry.listed).sum();
        self.part.behind + self.part.dwords - self.part.head - in_front
    }
}

impl RunlistState {
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
            processes: RBTree::new(),
            image: Image::new(KVVec::from_elem(0, dwords, GFP_KERNEL)?),
            reserved: 0,
            copy_slots: CopySlots::default(),
            counts: Counts::default(),
            begin: None,
            takes_turns: false,
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
        while let Some(process) = self.processes.cursor_lower_bound(&from) {
            let (&key, process) = process.current();
            if process.part.head > 0 {
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
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Words of the processes without XNACK: they are the last.
    fn without_xnack(&self) -> usize {
        let first = self.processes.cursor_lower_bound(&Key(Key::NO_XNACK));
        first.map_or(0, |process| {
            let part = process.current().1.part;
            part.behind + part.dwords
        })
    }

    /// Whether the list has processes with XNACK and processes without.
    pub(super) fn mixes_xnack(&self) -> bool {
        (1..self.image.dwords()).contains(&self.without_xnack())
    }

    /// A list is to be copied; `over`: it does not fit the hardware, which begins at the front and
    /// may get no further until the next one comes. So each of these begins with the next process:
    /// who has lists made one after the other, some of which may fit, keeps nobody from the
    /// hardware.
    pub(super) fn take_turns(&mut self, over: bool) {
        let next = |behind: Option<Key>| {
            let mut running = self
                .processes
                .iter()
                .filter(|(_, its)| its.counts.queues > 0);
            let next = running.find(|(key, _)| behind.is_none_or(|behind| **key > behind));
            next.map(|(key, _)| *key)
        };
        self.takes_turns = over;
        if over {
            self.begin = next(self.begin).or_else(|| next(None));
        }
    }

    /// Copies the list to where the hardware will read it: the newest process first, or whose turn
    /// it is, and the newest of the same XNACK mode behind the oldest; those with its XNACK mode
    /// before the others.
    pub(super) fn copy(&self, to: &ListTarget<'_>) -> Result<usize, ListFull> {
        let newest = |from: Key| {
            let process = self.processes.cursor_lower_bound(&from);
            process.map_or(u64::MAX, |process| process.current().0.age())
        };
        let end = self.image.dwords();
        // Where those without XNACK begin.
        let border = end - self.without_xnack();
        let begin = self.begin.filter(|_| self.takes_turns);
        let begin = begin.and_then(|key| self.processes.get(&key));
        let first = match begin {
            Some(process) => end - (process.part.behind + process.part.dwords),
            None if newest(Key(Key::NO_XNACK)) < newest(Key(0)) => border,
            None => 0,
        };
        let pieces = match first < border {
            true => [first..border, 0..first, border..end],
            false => [first..end, border..first, 0..border],
        };
        self.image.copy(pieces, to)
    }

    fn process(&mut self, key: Key) -> Result<&mut SchedProcess> {
        self.processes.get_mut(&key).ok_or(ENOENT)
    }

    /// Is anything of this process in the list?
    pub(super) fn process_runs(&self, key: Key) -> bool {
        let process = self.processes.get(&key);
        process.is_some_and(|process| process.counts.queues > 0)
    }

    /// The hardware does not obey, and has the list as it is: notes who is in it. One of which a
    /// queue was reset may have that there still.
    pub(super) fn strand(&mut self) {
        for process in self.processes.values_mut() {
            process.stranded = process.counts.queues > 0 || process.has_reset;
        }
    }

    /// Whether this process was in the list when [`RunlistState::strand`] was called last.
    pub(super) fn is_stranded(&self, key: Key) -> bool {
        self.processes
            .get(&key)
            .is_some_and(|process| process.stranded)
    }

    /// Is this queue in the list?
    pub(super) fn queue_runs(&self, process: Key, queue: Key) -> bool {
        let process = self.processes.get(&process);
        process
            .and_then(|process| process.queues.get(&queue))
            .is_some_and(|entry| entry.listed > 0)
    }

    /// Takes a process in. It comes into the list with its first queue.
    pub(super) fn add(&mut self, new: NewSchedProcess, meanwhile: Option<&Meanwhile>) -> Key {
        let next = self.processes.cursor_lower_bound(&new.key);
        let behind = next.map_or(0, |next| {
            let part = next.current().1.part;
            part.behind + part.dwords
        });
        new.insert(&mut self.processes, meanwhile, behind)
    }

    /// Takes a process out with all its queues. What is returned is to be dropped when nothing is
    /// locked.
    pub(super) fn remove(&mut self, key: Key) -> Option<RBTreeNode<Key, SchedProcess>> {
        let process = self.processes.get(&key)?;
        let (part, counts, reserved) = (process.part, process.counts, process.reserved);
        for entry in process.queues.values() {
            self.copy_slots.unlist(entry);
        }
        // It is there, so it is within the list: nothing can fail.
        let _ = self.image.replace(part.behind, part.dwords, 0);
        self.counts -= counts;
        self.resized(key, part.dwords, 0);
        self.reserved -= reserved;
        self.processes.remove_node(&key)
    }

    /// A process's part of the list has another length: what is in front of it has more behind it,
    /// or less.
    #[inline]
    fn resized(&mut self, process: Key, old: usize, new: usize) {
        for (_, newer) in self
            .processes
            .iter_mut()
            .take_while(|(key, _)| **key < process)
        {
            newer.part.behind = newer.part.behind - old + new;
        }
    }

    /// Takes a queue in; returns its name, and whether it is in the list. On error it is taken in,
    /// but not in the list. `ENOMEM`: the list has no room for all queues that there are then.
    pub(super) fn insert(&mut self, process: Key, queue: NewSchedQueue) -> Result<(Key, bool)> {
        let NewSchedQueue { key, node } = queue;
        let format = self.format.words();
        let at = self.process(process)?;
        at.queues.insert(node);
        at.queue_count += 1;
        let mut words = format.queue;
        if at.reserved == 0 {
            // It has its packet in the list from its first queue on until it goes.
            words += format.process;
        }
        at.reserved += words;
        self.reserved += words;
        if self.reserved > self.image.room() {
            return Err(ENOMEM);
        }
        let listed = self.list(process, key)?;
        if let Err(full) = self.write_head(process) {
            // No queue is in the list without its process.
            self.unlist(process, key)?;
            return Err(full);
        }
        Ok((key, listed))
    }

    /// Takes a queue out. What is returned is to be dropped when nothing is locked.
    pub(super) fn take(&mut self, process: Key, queue: Key) -> Option<RBTreeNode<Key, SchedQueue>> {
        self.unlist(process, queue).ok()?;
        let at = self.processes.get_mut(&process)?;
        let words = self.format.words().queue;
        let gone = at.queues.remove_node(&queue)?;
        at.reserved -= words;
        self.reserved -= words;
        at.queue_count -= 1;
        if at.part.head > 0 {
            // The packet is as long as it was: nothing can fail.
            let _ = self.write_head(process);
        }
        Some(gone)
    }

    /// Changes a queue.
    pub(super) fn change(
        &mut self,
        process: Key,
        queue: Key,
        change: impl FnOnce(&mut SchedQueue),
    ) -> Result {
        let before = self.process(process)?.listed_syncs();
        self.unlist(process, queue)?;
        let at = self.process(process)?;
        change(at.queues.get_mut(&queue).ok_or(ENOENT)?);
        self.list(process, queue)?;
        let after = self.process(process)?.listed_syncs();
        if before.is_some() && before == after {
            // The process's packet says what it should.
            return Ok(());
        }
        self.write_head(process)
    }

    /// Whether a queue is meant to run from now on; returns whether it is in the list.
    pub(super) fn set_runs(&mut self, process: Key, queue: Key, runs: bool) -> Result<bool> {
        let at = self.process(process)?;
        let in_list = at.part.head > 0;
        let evicted = at.evicted;
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if !entry.keep(SchedQueue::STOPPED, !runs) {
            return Ok(entry.listed > 0);
        }
        // Without wave sync the process's packet says the same, with the queue and without.
        let same_head = in_list && !entry.described.wave_sync;
        let listed = entry.wants_to_run() && !evicted;
        if runs {
            self.list(process, queue)?;
        } else {
            self.unlist(process, queue)?;
        }
        if !same_head {
            self.write_head(process)?;
        }
        Ok(listed)
    }

    /// Whether a queue is suspended from now on.
    pub(super) fn set_suspended(&mut self, process: Key, queue: Key, suspended: bool) -> Result {
        let at = self.process(process)?;
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if !entry.keep(SchedQueue::SUSPENDED, suspended) {
            return Ok(());
        }
        if suspended {
            self.unlist(process, queue)?;
        } else {
            self.list(process, queue)?;
        }
        self.write_head(process)
    }

    /// What a debugger has set for the waves of a process is this from now on.
    pub(super) fn set_control(&mut self, process: Key, control: Option<WaveControl>) -> Result {
        let at = self.process(process)?;
        at.described.control = control;
        match at.part.head {
            // It is not in the list yet.
            0 => Ok(()),
            _ => self.write_head(process),
        }
    }

    /// A queue was reset: it never runs again, and its process's queues do not change any more.
    pub(super) fn set_reset(&mut self, process: Key, queue: Key) -> Result<Pasid> {
        self.set_runs(process, queue, false)?;
        let at = self.process(process)?;
        at.has_reset = true;
        Ok(at.described.pasid)
    }

    /// `EACCES`: a queue of the process was reset.
    pub(super) fn check_changeable(&self, process: Key) -> Result {
        match self.processes.get(&process) {
            Some(process) if process.has_reset => Err(EACCES),
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
        for (process, at) in self.processes.iter() {
            for (key, entry) in at
                .queues
                .iter()
                .filter(|(_, entry)| entry.has_ring(ring, format))
            {
                if doorbell == Some(entry.described.doorbell.raw()) {
                    return Some((*process, *key));
                }
                // Two processes may have theirs at the same place.
                let first = found.is_none();
                found = Some(first.then_some((*process, *key)));
            }
        }
        found.flatten()
    }

    /// The copy queue with this doorbell.
    pub(super) fn copy_owner_of(&self, doorbell: u32) -> Option<(Key, Key)> {
        let is_it = |entry: &SchedQueue| {
            matches!(entry.described.engine, Engine::Sdma(_))
                && entry.described.doorbell.raw() == doorbell
        };
        self.processes.iter().find_map(|(process, at)| {
            let mut queues = at.queues.iter();
            let (queue, _) = queues.find(|(_, entry)| is_it(entry))?;
            Some((*process, *queue))
        })
    }

    /// Slots of the copy queues in the list.
    pub(super) fn copy_slots(&self) -> &CopySlots {
        &self.copy_slots
    }

    /// Whether a process's queues may run from now on. On error nothing has changed; there is room.
    pub(super) fn set_evicted(&mut self, process: Key, evicted: bool) -> Result {
        let before = core::mem::replace(&mut self.process(process)?.evicted, evicted);
        if let Err(full) = self.relist(process) {
            self.process(process)?.evicted = before;
            return Err(full);
        }
        self.write_head(process)
    }

    /// A process has its page table elsewhere from now on.
    pub(super) fn set_page_table_base(&mut self, process: Key, base: u64) -> Result {
        self.process(process)?.described.page_table_base = base;
        Ok(())
    }

    /// Puts a queue that is to run into the list. False: it is not to run.
    fn list(&mut self, process: Key, queue: Key) -> Result<bool> {
        let at = self.processes.get_mut(&process).ok_or(ENOENT)?;
        let (behind, evicted) = (at.behind(queue), at.evicted);
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        if evicted || !entry.wants_to_run() {
            return Ok(false);
        }
        let packet = self.format.map_queue(&entry.described);
        let words = self.image.put(behind, 0, &packet)?;
        entry.listed = words;
        self.copy_slots.list(entry);
        let counts = entry.counts();
        let old = at.part.dwords;
        at.part.dwords += words;
        at.counts += counts;
        self.counts += counts;
        self.resized(process, old, old + words);
        Ok(true)
    }

    /// Takes a queue out of the list, if it is in it.
    fn unlist(&mut self, process: Key, queue: Key) -> Result {
        let at = self.processes.get_mut(&process).ok_or(ENOENT)?;
        let entry = at.queues.get_mut(&queue).ok_or(ENOENT)?;
        let words = core::mem::take(&mut entry.listed);
        if words == 0 {
            return Ok(());
        }
        self.copy_slots.unlist(entry);
        let counts = entry.counts();
        // It no longer counts itself: its words are behind where it would be.
        let behind = at.behind(queue) - words;
        self.image.replace(behind, words, 0)?;
        let old = at.part.dwords;
        at.part.dwords -= words;
        at.counts -= counts;
        self.counts -= counts;
        self.resized(process, old, old - words);
        Ok(())
    }

    /// Writes all queues of a process into the list anew. On error nothing has changed.
    fn relist(&mut self, key: Key) -> Result {
        let format = self.format;
        let process = self.processes.get_mut(&key).ok_or(ENOENT)?;
        let Part {
            head,
            dwords: old,
            behind,
        } = process.part;
        let mut counts = Counts {
            processes: process.counts.processes,
            ..Counts::default()
        };
        let mut words = 0;
        for entry in process.running() {
            words += format.words().queue;
            counts += entry.counts();
        }
        let mut room = self.image.replace(behind, old - head, words)?;
        for entry in process.queues.values_mut() {
            entry.listed = 0;
            self.copy_slots.unlist(entry);
        }
        for entry in process.running() {
            let packet = format.map_queue(&entry.described);
            let (place, rest) = room
                .split_at_mut_checked(packet.words().len())
                .ok_or(ENOMEM)?;
            place.copy_from_slice(packet.words());
            entry.listed = place.len();
            self.copy_slots.list(entry);
            room = rest;
        }
        self.counts -= core::mem::replace(&mut process.counts, counts);
        self.counts += counts;
        process.part.dwords = head + words;
        self.resized(key, old, head + words);
        Ok(())
    }

    /// Writes the packet of a process.
    fn write_head(&mut self, key: Key) -> Result {
        let process = self.processes.get_mut(&key).ok_or(ENOENT)?;
        let Part {
            behind,
            dwords: old,
            head,
        } = process.part;
        let syncs = process.counts.wave_sync_queues > 0;
        let packet = self.format.map_process(&MapProcess {
            process: &process.described,
            queues: process.queue_count,
            wave_sync: if syncs { self.wave_sync } else { 0 },
            cleans: self.isolated,
        });
        let words = self.image.put(behind + old - head, head, &packet)?;
        if words == head {
            return Ok(());
        }
        // It comes into the list.
        process.part.head = words;
        process.part.dwords = old + words;
        process.counts.processes += 1;
        self.counts.processes += 1;
        self.resized(key, old, old + words);
        Ok(())
    }
}

mod tests;
