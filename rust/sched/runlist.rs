// SPDX-License-Identifier: GPL-2.0

//! The scheduler that hands all queues to the firmware: HWS, the hardware scheduler.
//!
//! One per node. The firmware reads a run list of processes and queues and time-slices them over
//! VMIDs and hardware queues on its own. It takes orders from a queue of ours ([`hiq`](super::hiq)).
//! To change the list everything is taken off first: UNMAP_QUEUES, a fence, and RUN_LIST with the new
//! list.
//!
//! While the scheduler is stopped (the device sleeps, is being reset, or goes away) it only keeps
//! books: queues may come, go and change, and what is to run then does when it is started again.
//!
//! # Locking
//!
//! `inner` is the `Scheduler.inner` of the lock order. It is held while the hardware preempts its
//! queues, so that a list is never rewritten while it may be read. Nothing under it allocates, and
//! nothing sleeps but the wait for the fence, which is bounded.

use super::{
    hiq::{
        timed_out,
        Cursor,
        Hiq, //
    },
    image::{
        Capacity,
        Census,
        Full,
        Image,
        Oversubscription, //
    },
    memory::NodeMemory,
    Entry,
    Key,
    NewEntry,
    NewSeat,
    Scheduler,
    Seat, //
};
use crate::{
    gfx::{
        Engine,
        Generation,
        MapProcess,
        Packet,
        RunList,
        RunlistFormat, //
    },
    kgd::{
        Kgd,
        ResetGuard, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{
        Arc,
        Mutex, //
    },
};

/// What a scheduler is started with.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// The node's logical XCCs.
    pub(crate) xcc_mask: u32,
    /// The node's VMIDs.
    pub(crate) vmid_mask: u32,
}

/// The scheduler.
#[pin_data(PinnedDrop)]
pub(crate) struct Runlist {
    kgd: Arc<dyn Kgd>,
    generation: &'static Generation,
    memory: Arc<NodeMemory>,
    hiq: Hiq,
    capacity: Capacity,
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    /// Nothing may be on the hardware until it is unpaused.
    paused: bool,
    hiq: Cursor,
    oversubscription: Oversubscription,
    seats: RBTree<Key, Seat>,
}

/// What is on the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Idle,
    /// The run list in memory.
    Listed,
    /// Nobody knows: it stopped to answer, and amdgpu was asked to reset the GPU. Or it could not be
    /// started.
    Hung,
    /// Nothing, not even the HIQ: the device sleeps, is being reset, or goes away.
    Stopped,
}

impl Entry {
    fn is_compute(&self) -> bool {
        self.queue.engine == Engine::Compute
    }
}

impl Seat {
    /// The queues that are to be on the hardware, the newest first.
    fn running(&self) -> impl Iterator<Item = &Entry> {
        let evicted = self.evicted;
        self.queues
            .values()
            .filter(move |entry| entry.runs && !evicted)
    }

    /// MAP_PROCESS: it counts the queues that do not run as well.
    fn packet(&self, format: &dyn RunlistFormat, wave_sync: u32) -> Packet {
        let syncs = self.running().any(|entry| entry.queue.wave_sync);
        format.map_process(&MapProcess {
            queues: self.queues.values().count() as u32,
            wave_sync: if syncs { wave_sync } else { 0 },
            ..self.process
        })
    }
}

impl Inner {
    fn census(&self) -> Census {
        let mut census = Census::default();
        for seat in self.seats.values() {
            census.processes += 1;
            for entry in seat.running() {
                census.queues += 1;
                census.compute_queues += u32::from(entry.is_compute());
                census.wave_sync_queues += u32::from(entry.queue.wave_sync);
            }
        }
        census
    }

    fn has_xnack(&self, mode: bool) -> bool {
        self.seats.values().any(|seat| seat.xnack == mode)
    }

    fn seat(&mut self, key: Key) -> Result<&mut Seat> {
        self.seats.get_mut(&key).ok_or(ENOENT)
    }

    /// Is anything of this seat on the hardware, or would be?
    fn seat_runs(&self, key: Key) -> bool {
        let seat = self.seats.get(&key);
        seat.is_some_and(|seat| seat.running().next().is_some())
    }

    /// Is this queue on the hardware, or would be?
    fn queue_runs(&self, seat: Key, queue: Key) -> bool {
        let seat = self.seats.get(&seat).filter(|seat| !seat.evicted);
        seat.and_then(|seat| seat.queues.get(&queue))
            .is_some_and(|entry| entry.runs)
    }
}

impl Runlist {
    /// Starts the scheduler: the HIQ is on the hardware when this returns.
    pub(crate) fn start(
        kgd: Arc<dyn Kgd>,
        generation: &'static Generation,
        memory: Arc<NodeMemory>,
        config: Config,
    ) -> Result<Arc<Self>> {
        let facts = kgd.facts();
        let vmids = config.vmid_mask.count_ones();
        let capacity = Capacity {
            // A negative limit is none.
            processes: u32::try_from(facts.hws_max_conc_proc).map_or(vmids, |max| max.min(vmids)),
            compute_queues: facts.set_resources_queue_mask.count_ones(),
        };
        let hiq = Hiq::new(kgd.clone(), generation, memory.clone(), config)?;
        let cursor = hiq.start()?;
        Arc::pin_init(
            pin_init!(Self {
                kgd,
                generation,
                memory,
                hiq,
                capacity,
                inner <- new_mutex!(Inner {
                    phase: Phase::Idle,
                    paused: false,
                    hiq: cursor,
                    oversubscription: Oversubscription::default(),
                    seats: RBTree::new(),
                }, "Scheduler.inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes everything off the hardware. With an error nothing changed, or the node is given up on.
    fn take_off(&self, inner: &mut Inner) -> Result {
        match inner.phase {
            Phase::Idle | Phase::Stopped => return Ok(()),
            Phase::Hung => return Err(EIO),
            Phase::Listed => {}
        }
        let order = self.generation.runlist.unmap_all();
        let result = self.hiq.execute(&mut inner.hiq, order);
        let result = result.and_then(|()| self.check_preemption());
        inner.phase = match result {
            Ok(()) => Phase::Idle,
            Err(_) => self.give_up(),
        };
        self.memory.set_listed(0);
        result
    }

    /// Whether every queue has let go of the hardware.
    fn check_preemption(&self) -> Result {
        let mut result = Ok(());
        self.hiq.take_stuck(|xcc, doorbell| {
            pr_err!("XCC {xcc}: the queue at doorbell {doorbell:#x} does not stop\n");
            result = Err(timed_out());
        })?;
        result
    }

    /// The hardware may still read what its queues name, so amdgpu is asked to reset the GPU. It stops
    /// the node for that, and starts it again.
    fn give_up(&self) -> Phase {
        pr_err!("the command processor does not take its queues off: no more queues on this GPU\n");
        self.kgd.request_reset();
        Phase::Hung
    }

    /// Puts what is to run onto the idle hardware.
    fn put_on(&self, inner: &mut Inner) -> Result {
        match inner.phase {
            Phase::Stopped | Phase::Listed => return Ok(()),
            Phase::Hung => return Err(EIO),
            Phase::Idle if inner.paused => return Ok(()),
            Phase::Idle => {}
        }
        let census = inner.census();
        if census.queues == 0 {
            return Ok(());
        }
        let mut over = self.capacity.exceeded_by(&census);
        over.xnack = self.hiq.xnack_chain() && inner.has_xnack(true) && inner.has_xnack(false);
        let list = self.build(inner, &census, over)?;
        self.report(over, inner.oversubscription);
        inner.oversubscription = over;
        let order = self.generation.runlist.run_list(&list);
        self.hiq.submit(&mut inner.hiq, &[order])?;
        self.memory.set_listed(list.dwords as usize);
        inner.phase = Phase::Listed;
        Ok(())
    }

    /// Builds the run list: the newest process first, those with its XNACK mode before the others.
    fn build(&self, inner: &Inner, census: &Census, over: Oversubscription) -> Result<RunList> {
        let format = self.generation.runlist;
        let (words, address, room) = self.memory.run_list()?;
        let mut image = Image::new(&words, address, room);
        let mut push = |packet: &Packet| image.push(packet).map_err(|Full| ENOMEM);
        let first = inner.seats.values().next().is_some_and(|seat| seat.xnack);
        for mode in [first, !first] {
            for seat in inner.seats.values().filter(|seat| seat.xnack == mode) {
                push(&seat.packet(format, self.kgd.facts().gws_size))?;
                for entry in seat.running() {
                    push(&format.map_queue(&entry.queue))?;
                }
            }
        }
        let concurrent = census.processes.min(self.capacity.processes);
        let list = image.finish(format, over.any(), concurrent);
        list.map_err(|Full| ENOMEM)
    }

    fn report(&self, now: Oversubscription, before: Oversubscription) {
        if now.any() && !before.any() {
            pr_warn!(
                "more to run than the GPU holds at once:{}{}{}{}; it will be slower\n",
                if now.processes { " processes" } else { "" },
                if now.queues { " queues" } else { "" },
                if now.wave_sync { " queues with wave sync" } else { "" },
                if now.xnack { " XNACK modes" } else { "" },
            );
        }
    }

    /// Changes what is to run: off with everything, `change`, on with what is left. The change
    /// happens even if the hardware is not to be had; then the error says so.
    fn reschedule(&self, inner: &mut Inner, change: impl FnOnce(&mut Inner)) -> Result {
        if inner.phase == Phase::Stopped {
            change(inner);
            return Ok(());
        }
        let off = match ResetGuard::try_new(self.kgd.clone()) {
            Ok(guard) => self.take_off(inner).map(|()| guard),
            Err(error) => Err(error),
        };
        change(inner);
        let _guard = off?;
        self.put_on(inner)
    }
}

impl Scheduler for Runlist {
    fn add(&self, seat: NewSeat) -> Key {
        // A process without queues is on no list yet: the hardware learns of it with its first one.
        let NewSeat { key, seat, room } = seat;
        self.inner.lock().seats.insert(room.into_node(key, seat));
        key
    }

    fn remove(&self, seat: Key) -> Result {
        let mut inner = self.inner.lock();
        let mut gone = None;
        let result = if inner.seat_runs(seat) {
            self.reschedule(&mut inner, |inner| gone = inner.seats.remove_node(&seat))
        } else {
            gone = inner.seats.remove_node(&seat);
            Ok(())
        };
        drop(inner);
        drop(gone);
        result
    }

    fn map(&self, seat: Key, queue: NewEntry) -> Result<Key> {
        let NewEntry { key, node } = queue;
        let mut inner = self.inner.lock();
        inner.seat(seat)?.queues.insert(node);
        if !inner.queue_runs(seat, key) {
            return Ok(key);
        }
        if let Err(error) = self.reschedule(&mut inner, |_| ()) {
            let gone = inner.seat(seat)?.queues.remove_node(&key);
            drop(inner);
            drop(gone);
            return Err(error);
        }
        Ok(key)
    }

    fn unmap(&self, seat: Key, queue: Key) -> Result {
        let mut inner = self.inner.lock();
        let mut gone = None;
        let mut take = |inner: &mut Inner| {
            gone = inner
                .seat(seat)
                .ok()
                .and_then(|s| s.queues.remove_node(&queue));
        };
        let result = if inner.queue_runs(seat, queue) {
            self.reschedule(&mut inner, take)
        } else {
            take(&mut inner);
            Ok(())
        };
        drop(inner);
        drop(gone);
        result
    }

    fn rewrite(&self, seat: Key, queue: Key, runs: bool, rewrite: &dyn Fn()) -> Result {
        let mut inner = self.inner.lock();
        let change = |inner: &mut Inner| {
            rewrite();
            if let Some(entry) = inner.seat(seat).ok().and_then(|s| s.queues.get_mut(&queue)) {
                entry.runs = runs;
            }
        };
        if inner.queue_runs(seat, queue) {
            return self.reschedule(&mut inner, change);
        }
        change(&mut inner);
        if inner.queue_runs(seat, queue) {
            self.reschedule(&mut inner, |_| ())
        } else {
            Ok(())
        }
    }

    fn set_wave_sync(&self, seat: Key, queue: Key, on: bool) -> Result {
        let mut inner = self.inner.lock();
        let mark = |inner: &mut Inner| {
            if let Some(entry) = inner.seat(seat).ok().and_then(|s| s.queues.get_mut(&queue)) {
                entry.queue.wave_sync = on;
            }
        };
        if inner.queue_runs(seat, queue) {
            self.reschedule(&mut inner, mark)
        } else {
            mark(&mut inner);
            Ok(())
        }
    }

    fn evict(&self, seat: Key) -> Result {
        let mut inner = self.inner.lock();
        let runs = inner.seat_runs(seat);
        let mark = |inner: &mut Inner| {
            if let Ok(seat) = inner.seat(seat) {
                seat.evicted = true;
            }
        };
        if runs {
            self.reschedule(&mut inner, mark)
        } else {
            mark(&mut inner);
            Ok(())
        }
    }

    fn restore(&self, seat: Key, page_table_base: u64) -> Result {
        let mut inner = self.inner.lock();
        let back = inner.seat(seat)?;
        back.evicted = false;
        back.process.page_table_base = page_table_base;
        if inner.seat_runs(seat) {
            self.reschedule(&mut inner, |_| ())
        } else {
            Ok(())
        }
    }

    fn pause(&self, pause: bool) -> Result {
        let mut inner = self.inner.lock();
        inner.paused = pause;
        match inner.phase {
            Phase::Hung | Phase::Stopped => Ok(()),
            Phase::Idle | Phase::Listed => self.reschedule(&mut inner, |_| ()),
        }
    }

    fn stop(&self) -> Result {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Stopped {
            return Ok(());
        }
        // During a reset there is nothing on the hardware to take off.
        let result = match ResetGuard::try_new(self.kgd.clone()) {
            Ok(_guard) => self.take_off(&mut inner).and(self.hiq.stop()),
            Err(_) => Ok(()),
        };
        inner.phase = Phase::Stopped;
        self.memory.set_listed(0);
        result
    }

    fn start(&self) -> Result {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Stopped {
            return Ok(());
        }
        let started = self.hiq.start().and_then(|cursor| {
            inner.hiq = cursor;
            inner.phase = Phase::Idle;
            self.put_on(&mut inner)
        });
        if started.is_err() {
            inner.phase = Phase::Hung;
        }
        started
    }
}

#[pinned_drop]
impl PinnedDrop for Runlist {
    fn drop(self: Pin<&mut Self>) {
        // What does not stop has said so.
        let _ = self.stop();
    }
}
