// SPDX-License-Identifier: GPL-2.0

//! The scheduler that hands all queues to the firmware: HWS, the hardware scheduler.
//!
//! One per node. The firmware reads a run list of processes and queues and time-slices them over
//! VMIDs and hardware queues on its own. It takes orders from a queue of ours, the HIQ (hardware
//! interface queue). To change the list everything is taken off first: UNMAP_QUEUES, a fence, and
//! RUN_LIST with the new list.
//!
//! # Locking
//!
//! `inner` is the `Scheduler.inner` of the lock order. It is held while the hardware preempts its
//! queues, so that a list is never rewritten while it may be read. Nothing under it allocates, and
//! nothing sleeps but the wait for the fence, which is bounded.

use super::{
    image::{
        Capacity,
        Census,
        Full,
        Image,
        Oversubscription, //
    },
    memory::{
        NodeMemory,
        RING_BYTES, //
    },
    ring::Ring,
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
        HiqQueue,
        MapProcess,
        Packet,
        Resources,
        RunList,
        RunlistFormat,
        Words,
        XccMqd,
        PAGE_BYTES, //
    },
    ids::DoorbellIndex,
    kgd::{
        Doorbells,
        HqdPosition,
        Kgd,
        ResetGuard, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{
        barrier::smp_mb,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
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
    doorbells: Doorbells,
    config: Config,
    capacity: Capacity,
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    ring: Ring,
    /// The value that the fence had, or will have, last.
    fence: u64,
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
    /// Nothing, and nothing may be until it is unpaused.
    Paused,
    /// Nobody knows: it stopped to answer, and the GPU is being reset or was.
    Hung,
}

/// ETIME, for which the kernel crate has no name.
fn timed_out() -> Error {
    Error::from_errno(-(kernel::bindings::ETIME as i32))
}

/// The logical XCCs of `mask`, each with its number within the node.
fn xccs(mask: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..u32::BITS)
        .filter(move |xcc| mask & 1 << xcc != 0)
        .zip(0..)
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
    fn packet(&self, format: &dyn RunlistFormat) -> Packet {
        format.map_process(&MapProcess {
            queues: self.queues.values().count() as u32,
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
        let doorbells = Doorbells::new(kgd.clone(), PAGE_BYTES as usize, true)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                kgd,
                generation,
                memory,
                doorbells,
                config,
                capacity,
                inner <- new_mutex!(Inner {
                    phase: Phase::Idle,
                    ring: Ring::new(RING_BYTES / size_of::<u32>()),
                    fence: 0,
                    oversubscription: Oversubscription::default(),
                    seats: RBTree::new(),
                }, "Scheduler.inner"),
            }),
            GFP_KERNEL,
        )?;
        this.load_hiq()?;
        this.introduce()?;
        Ok(this)
    }

    /// The HIQ has the first doorbell of the node's page.
    fn doorbell(&self) -> DoorbellIndex {
        self.doorbells.first()
    }

    /// Writes the HIQ's descriptors and loads them, one for each XCC.
    fn load_hiq(&self) -> Result {
        let (read_pointer, write_pointer, eop) = self.memory.pointers()?;
        let queue = HiqQueue {
            ring: self.memory.ring().1,
            ring_bytes: RING_BYTES as u32,
            read_pointer,
            write_pointer,
            eop: (eop, PAGE_BYTES),
            doorbell: self.doorbell(),
        };
        let (pipe, slot) = self.generation.features.hiq_slot;
        let position = HqdPosition { pipe, queue: slot };
        for (_, within) in xccs(self.config.xcc_mask) {
            let (_, words, address) = self.memory.hiq_mqd(within)?;
            let at = XccMqd {
                xcc: within,
                address,
                stride: self.generation.mqd.bytes() as u32,
                logical_xcc: 0,
            };
            self.generation.mqd.hiq(&words, at, &queue);
        }
        let _guard = ResetGuard::try_new(self.kgd.clone())?;
        for (logical, within) in xccs(self.config.xcc_mask) {
            let (offset, _, _) = self.memory.hiq_mqd(within)?;
            let bo = self.memory.bo();
            bo.load_hiq(offset, position, self.doorbell(), logical)?;
        }
        Ok(())
    }

    /// Tells the firmware what is its to use, and the hardware whom to interrupt.
    fn introduce(&self) -> Result {
        let facts = self.kgd.facts();
        let resources = Resources {
            vmid_mask: self.config.vmid_mask,
            queue_mask: facts.set_resources_queue_mask,
            // Nine tenths of the time we wait, for two engines one after the other.
            unmap_latency: self.timeout_ms() * 9 / 20 / 100,
            xnack_chain: self.xnack_chain(),
        };
        let mut wait_times = 0;
        for (logical, _) in xccs(self.config.xcc_mask) {
            if wait_times == 0 {
                wait_times = self.kgd.iq_wait_times(logical);
            }
            for pipe in (0..8).filter(|pipe| resources.queue_mask >> (8 * pipe) & 0xff != 0) {
                self.kgd.init_interrupts(pipe, logical)?;
            }
        }
        // On an APU a queue is given up sooner; on all, an idle one is asked again after 1 µs.
        let grace = u32::from(facts.is_app_apu && !facts.emulation);
        let wait = self.kgd.dequeue_wait_counts(wait_times, grace, 1);
        let format = self.generation.runlist;
        let mut inner = self.inner.lock();
        self.submit(&mut inner, &[format.set_resources(&resources)])?;
        self.submit(
            &mut inner,
            &[format.write_register(wait.offset, wait.value)],
        )
    }

    fn timeout_ms(&self) -> u32 {
        self.kgd.facts().queue_preemption_timeout_ms
    }

    /// Whether processes with and without XNACK must not be on the hardware together.
    fn xnack_chain(&self) -> bool {
        /// `AMDGPU_GMC_XNACK_FLAG_CHAIN`
        const CHAIN: u16 = 1 << 0;
        self.kgd.facts().xnack_flags & CHAIN != 0
    }

    /// Puts `packets` into the HIQ, in one piece, and rings its doorbell.
    fn submit(&self, inner: &mut Inner, packets: &[Packet]) -> Result {
        let len = packets.iter().map(|packet| packet.words().len()).sum();
        let read = self.memory.read_pointer()?;
        let place = inner.ring.reserve(read, len).ok_or(ENOMEM)?;
        let (ring, _) = self.memory.ring();
        for dword in place.fill_from..place.fill_from + place.fill {
            ring.set(dword, self.generation.features.nop);
        }
        let mut at = place.start;
        for packet in packets {
            ring.set_row(at, packet.words());
            at += packet.words().len();
        }
        // The packets are in memory before the pointer, and the pointer before the doorbell.
        smp_mb();
        self.memory.set_write_pointer(inner.ring.written())?;
        smp_mb();
        self.doorbells.ring(0, inner.ring.written())
    }

    /// Waits until the fence has `value`.
    fn wait(&self, value: u64) -> Result {
        // TIMEOUT: amdgpu.queue_preemption_timeout_ms, which the firmware's own limit is part of.
        let timeout = Delta::from_millis(self.timeout_ms().into());
        let start = Instant::<Monotonic>::now();
        let mut pause_us = 10;
        while self.memory.fence()? != value {
            if start.elapsed() > timeout {
                return Err(timed_out());
            }
            fsleep(Delta::from_micros(pause_us));
            pause_us = (pause_us * 2).min(1000);
        }
        Ok(())
    }

    /// Takes everything off the hardware. With an error nothing changed, or the node is given up on.
    fn take_off(&self, inner: &mut Inner) -> Result {
        match inner.phase {
            Phase::Idle | Phase::Paused => return Ok(()),
            Phase::Hung => return Err(EIO),
            Phase::Listed => {}
        }
        let value = inner.fence + 1;
        let format = self.generation.runlist;
        let confirm = format.query_status(self.memory.fence_va()?, value);
        self.submit(inner, &[format.unmap_all(), confirm])?;
        inner.fence = value;
        let result = self.wait(value).and_then(|()| self.check_preemption());
        inner.phase = match result {
            Ok(()) => Phase::Idle,
            Err(_) => self.give_up(),
        };
        self.memory.set_listed(0);
        result
    }

    /// The firmware confirms an UNMAP_QUEUES even if a queue did not let go; it leaves the queue's
    /// doorbell in the HIQ's descriptor then.
    fn check_preemption(&self) -> Result {
        let mut result = Ok(());
        for (_, within) in xccs(self.config.xcc_mask) {
            let (_, words, _) = self.memory.hiq_mqd(within)?;
            if let Some(doorbell) = self.generation.mqd.take_failed_doorbell(&words) {
                pr_err!(
                    "XCC {}: the queue at doorbell {:#x} does not stop\n",
                    within,
                    doorbell
                );
                result = Err(timed_out());
            }
        }
        result
    }

    /// The hardware may still read what its queues name, so amdgpu is asked to reset the GPU. The
    /// node stays given up afterwards: taking it back into service is not implemented.
    fn give_up(&self) -> Phase {
        pr_err!("the command processor does not take its queues off: no more queues on this GPU\n");
        self.kgd.request_reset();
        Phase::Hung
    }

    /// Puts what is to run onto the idle hardware.
    fn put_on(&self, inner: &mut Inner) -> Result {
        match inner.phase {
            Phase::Paused | Phase::Listed => return Ok(()),
            Phase::Hung => return Err(EIO),
            Phase::Idle => {}
        }
        let census = inner.census();
        if census.queues == 0 {
            return Ok(());
        }
        let mut over = self.capacity.exceeded_by(&census);
        over.xnack = self.xnack_chain() && inner.has_xnack(true) && inner.has_xnack(false);
        let list = self.build(inner, &census, over)?;
        self.report(over, inner.oversubscription);
        inner.oversubscription = over;
        self.submit(inner, &[self.generation.runlist.run_list(&list)])?;
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
                push(&seat.packet(format))?;
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
                "more to run than the GPU holds at once:{}{}{}; it will be slower\n",
                if now.processes { " processes" } else { "" },
                if now.queues { " queues" } else { "" },
                if now.xnack { " XNACK modes" } else { "" },
            );
        }
    }

    /// Changes what is to run: off with everything, `change`, on with what is left. The change
    /// happens even if the hardware is not to be had; then the error says so.
    fn reschedule(&self, inner: &mut Inner, change: impl FnOnce(&mut Inner)) -> Result {
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
        match (inner.phase, pause) {
            (Phase::Hung, _) | (Phase::Paused, true) | (Phase::Idle | Phase::Listed, false) => {
                Ok(())
            }
            (Phase::Idle | Phase::Listed, true) => {
                let _guard = ResetGuard::try_new(self.kgd.clone())?;
                self.take_off(&mut inner)?;
                inner.phase = Phase::Paused;
                Ok(())
            }
            (Phase::Paused, false) => {
                inner.phase = Phase::Idle;
                self.reschedule(&mut inner, |_| ())
            }
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Runlist {
    fn drop(self: Pin<&mut Self>) {
        // During a reset, or after one failed, there is nothing on the hardware to take off.
        let Ok(_guard) = ResetGuard::try_new(self.kgd.clone()) else {
            return;
        };
        let off = self.take_off(&mut self.inner.lock());
        for (logical, _) in xccs(self.config.xcc_mask) {
            let hiq = self.kgd.unmap_hiq(self.doorbell(), logical);
            if let Err(error) = off.and(hiq) {
                pr_err!(
                    "XCC {}: the scheduler's queue does not stop: {:?}\n",
                    logical,
                    error
                );
            }
        }
    }
}
