// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One SDMA ring: its registers, its pointers and running its packets. Ten per engine, there from
//! the start.
//!
//! Locks: `exec` (held while a slice runs) → `registers` (a leaf). Pointers are in bytes and never
//! wrap.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::layout::{
    context, context_status, doorbell, doorbell_offset, minor_ptr_update, rb_cntl, source,
};
use super::packet::{self, Flow};
use super::{context_of_mqd, Common, CONTEXT, FIRST_RLC};
use crate::engine::Progress;
use crate::inject::rule::{OnUnmap, QueueAt, QueueKind};
use crate::limited::warn_limited;
use crate::processor::bus::{wide, Bus, Fault, Hub, Interrupt, OnFault, Space, Verdict, View};
use crate::processor::copy::{Filter, RlcQueue};
use crate::processor::runner::Job;
use crate::processor::{in_page, lock};

/// Packets of one slice.
const SLICE_PACKETS: usize = 256;
/// No more parts of packets that are done in several.
const SLICE_PARTS: usize = 64;

/// An indirect buffer being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ib {
    /// Address space of the buffer and of its packets' accesses.
    pub space: Space,
    /// Where it is.
    pub address: u64,
    /// Its size in dwords.
    pub dwords: u64,
    /// The next packet.
    pub at: u64,
}

/// What the ring is in the middle of: kept over preemption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    /// The indirect buffer. They do not nest.
    pub ib: Option<Ib>,
    /// Bytes that the packet at the read pointer has moved.
    pub moved: u64,
    /// Bytes of the ring's packet in flight, added to the read pointer when it is done.
    pub advance: u64,
    /// It hangs so that it cannot even be unmapped (fault injection).
    pub stuck: bool,
    /// Why it will not go on.
    pub hung: Option<String>,
}

impl Flight {
    /// Whether there is nothing worth keeping.
    pub fn is_empty(&self) -> bool {
        *self == Flight::default()
    }
}

#[derive(Default)]
struct Exec {
    flight: Flight,
    reported: Option<u64>,
}

/// Who a mapped user queue belongs to.
#[derive(Clone, Copy, Default)]
struct Owner {
    mqd: u64,
    pasid: u16,
    xcc: u8,
    by_scheduler: bool,
}

struct Registers {
    context: [u32; CONTEXT as usize],
    owner: Owner,
    /// The doorbell that it listens to.
    listening: Option<u32>,
}

impl Registers {
    fn doorbell(&self) -> Option<u32> {
        let is_enabled = doorbell::ENABLE.pick(self.context[context::DOORBELL]) != 0;
        is_enabled.then(|| self.doorbell_offset())
    }

    fn doorbell_offset(&self) -> u32 {
        doorbell_offset::OFFSET.pick(self.context[context::DOORBELL_OFFSET])
    }

    fn is_enabled(&self) -> bool {
        rb_cntl::RB_ENABLE.pick(self.context[context::RB_CNTL]) != 0
    }

    /// After a change of the context.
    fn listen(&mut self, bus: &dyn Bus) {
        let (old, new) = (self.listening, self.doorbell());
        if old == new {
            return;
        }
        if let Some(dword) = old {
            bus.ignore(dword);
        }
        if let Some(dword) = new {
            bus.listen(dword);
        }
        self.listening = new;
    }
}

/// A ring.
pub struct Ring {
    common: Arc<Common>,
    engine: u8,
    number: u8,
    registers: Mutex<Registers>,
    wptr: AtomicU64,
    rptr: AtomicU64,
    stop: AtomicBool,
    halted: AtomicBool,
    traps: AtomicBool,
    /// A user's ring was disabled in the middle of something, and is not idle before that is done.
    drains: AtomicBool,
    /// Of its engine: the user's ring that does not give way to others (fault injection).
    held_by: Arc<AtomicU8>,
    exec: Mutex<Exec>,
}

/// No ring holds the engine.
const NOBODY: u8 = u8::MAX;

/// What the rings of an engine know of each other.
pub(super) fn unheld() -> Arc<AtomicU8> {
    Arc::new(AtomicU8::new(NOBODY))
}

/// What a slice needs to know of the registers.
#[derive(Clone, Copy)]
pub struct Setup {
    base: u64,
    bytes: u64,
    /// The ring's address space.
    pub space: Space,
    pasid: u16,
    report: Option<u64>,
}

impl Ring {
    pub(super) fn new(common: Arc<Common>, engine: u8, number: u8, held_by: Arc<AtomicU8>) -> Self {
        let registers = Registers {
            context: [0; CONTEXT as usize],
            owner: Owner::default(),
            listening: None,
        };
        Ring {
            common,
            engine,
            number,
            registers: Mutex::new(registers),
            wptr: 0.into(),
            rptr: 0.into(),
            stop: false.into(),
            halted: false.into(),
            traps: false.into(),
            drains: false.into(),
            held_by,
            exec: Mutex::default(),
        }
    }

    /// The write pointer in bytes.
    pub fn wptr(&self) -> u64 {
        self.wptr.load(Ordering::Acquire)
    }

    /// The read pointer in bytes.
    pub fn rptr(&self) -> u64 {
        self.rptr.load(Ordering::Acquire)
    }

    /// A doorbell write.
    pub fn ring(&self, value: u64) {
        tracing::trace!(target: "sdma", "{}.{} wptr {value:#x}", self.engine, self.number);
        self.wptr.store(value & !3, Ordering::Release);
    }

    /// Whether a doorbell is its own.
    pub fn listens(&self, dword: u32) -> bool {
        lock(&self.registers).doorbell() == Some(dword)
    }

    /// RB_ENABLE.
    pub fn is_enabled(&self) -> bool {
        lock(&self.registers).is_enabled()
    }

    /// Nothing to do.
    pub fn is_idle(&self) -> bool {
        !self.drains() && (!self.is_enabled() || self.rptr() == self.wptr())
    }

    /// Whether the engine is its for good (fault injection).
    fn holds(&self) -> bool {
        self.held_by.load(Ordering::Acquire) == self.number
    }

    /// Whether the engine is another ring's for good: the firmware switches users' rings only when
    /// the one that runs lets it.
    fn is_held_up(&self) -> bool {
        self.is_users() && !matches!(self.held_by.load(Ordering::Acquire), NOBODY) && !self.holds()
    }

    fn drains(&self) -> bool {
        self.drains.load(Ordering::Acquire)
    }

    fn is_users(&self) -> bool {
        usize::from(self.number) >= FIRST_RLC
    }

    /// Whether it fetches packets: a user's ring does while it has a doorbell.
    fn fetches(&self) -> bool {
        let registers = lock(&self.registers);
        registers.is_enabled() && (!self.is_users() || registers.doorbell().is_some())
    }

    /// SDMA_CNTL.TRAP_ENABLE.
    pub fn enable_traps(&self, enable: bool) {
        self.traps.store(enable, Ordering::Release);
    }

    /// SDMA_F32_CNTL.HALT.
    pub fn halt(&self, halt: bool) {
        self.halted.store(halt, Ordering::Release);
    }

    /// Whether somebody waits for the slice to end.
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A register as MMIO reads it.
    pub fn reg_read(&self, at: usize) -> u32 {
        match at {
            context::RB_RPTR => self.rptr() as u32,
            context::RB_RPTR_HI => (self.rptr() >> 32) as u32,
            context::RB_WPTR => self.wptr() as u32,
            context::RB_WPTR_HI => (self.wptr() >> 32) as u32,
            context::CONTEXT_STATUS => {
                match (self.holds(), self.is_idle()) {
                    (true, _) => context_status::SELECTED.mask(),
                    (_, true) => context_status::IDLE.mask(),
                    // Work, and an engine that is another's.
                    _ if self.is_held_up() => 0,
                    _ => context_status::SELECTED.mask(),
                }
            }
            _ => lock(&self.registers).context[at],
        }
    }

    /// A register write. True: there may be something to do now.
    pub fn reg_write(&self, at: usize, value: u32) -> bool {
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match at {
            context::RB_RPTR => self.rptr.store(low(self.rptr()), Ordering::Release),
            context::RB_RPTR_HI => self.rptr.store(high(self.rptr()), Ordering::Release),
            context::RB_WPTR => self.wptr.store(low(self.wptr()), Ordering::Release),
            context::RB_WPTR_HI => self.wptr.store(high(self.wptr()), Ordering::Release),
            context::RB_CNTL if rb_cntl::RB_ENABLE.pick(value) == 0 => {
                let drains = self.stopped(|registers, exec| {
                    registers.context[at] = value;
                    if self.is_users() && !self.is_between(exec) {
                        return true;
                    }
                    *exec = Exec::default();
                    false
                });
                self.drains.store(drains, Ordering::Release);
                return drains;
            }
            _ => {}
        }
        let registers = &mut *lock(&self.registers);
        registers.context[at] = value;
        registers.listen(&*self.common.bus);
        if at == context::RB_CNTL {
            self.drains.store(false, Ordering::Release);
            if let Some(doorbell) = registers.doorbell().filter(|_| self.is_users()) {
                self.tell_doorbell(doorbell);
            }
        }
        // Between the writes that set both halves, MINOR_PTR_UPDATE is 1.
        let halves = minor_ptr_update::ENABLE.pick(registers.context[context::MINOR_PTR_UPDATE]);
        registers.is_enabled() && halves == 0
    }

    /// Whether nothing is in flight, once the packet that is done has been counted.
    fn is_between(&self, exec: &mut Exec) -> bool {
        let flight = &mut exec.flight;
        if flight.ib.is_some_and(|ib| ib.at < ib.dwords) || flight.moved != 0 {
            return false;
        }
        if flight.hung.is_some() {
            return false;
        }
        flight.ib = None;
        let advance = std::mem::take(&mut flight.advance);
        self.rptr.fetch_add(advance, Ordering::AcqRel);
        true
    }

    /// Changes the ring while no thread runs it.
    fn stopped<T>(&self, change: impl FnOnce(&mut Registers, &mut Exec) -> T) -> T {
        self.stop.store(true, Ordering::Release);
        let mut exec = lock(&self.exec);
        self.stop.store(false, Ordering::Release);
        change(&mut lock(&self.registers), &mut exec)
    }

    /// Counts a doorbell that is sent to others than this engine. What shaders ring goes to where
    /// its block of 32 bytes begins (`amdkfd/kfd_priv.h`, KFD_SDMA_SHADER_DOORBELL_GRANULARITY; not
    /// on MI200).
    fn tell_doorbell(&self, doorbell: u32) {
        const BLOCK: u32 = 8;
        let bus = &self.common.bus;
        let Some(range) = bus.sdma_doorbells(self.engine) else {
            return;
        };
        let place = in_page(doorbell);
        let in_blocks = bus.cores().target != gcn::Target::Gfx90a;
        let is_ours = range.contains(&place);
        let is_ours_by_block = !in_blocks || range.contains(&(place / BLOCK * BLOCK));
        let told = match (is_ours, is_ours_by_block) {
            (true, true) => return,
            (true, false) => "SDMA queue whose doorbell shaders ring another engine with",
            (false, _) => "SDMA queue with a doorbell that is not its engine's",
        };
        self.common.stats.count(told);
        tracing::warn!(
            engine = self.engine,
            ring = self.number,
            doorbell,
            ?range,
            "{told}"
        );
    }

    /// Loads a user queue: registers from its MQD, VMID and doorbell from the scheduler.
    pub fn load(&self, queue: &RlcQueue, mqd: &[u32], flight: Flight) {
        self.stopped(|registers, exec| {
            let context = &mut registers.context;
            for (dword, value) in mqd.iter().enumerate() {
                context[context_of_mqd(dword)] = *value;
            }
            let cntl = rb_cntl::RB_VMID.replace(context[context::RB_CNTL], queue.vmid.into());
            context[context::RB_CNTL] = rb_cntl::RB_ENABLE.replace(cntl, 1);
            context[context::DOORBELL] = doorbell::ENABLE.mask();
            context[context::DOORBELL_OFFSET] = doorbell_offset::OFFSET.place(queue.doorbell);
            self.tell_doorbell(queue.doorbell);
            registers.listen(&*self.common.bus);
            let pair = |at: usize| wide(mqd[at], mqd[at + 1]);
            self.rptr
                .store(pair(context::RB_RPTR) & !3, Ordering::Release);
            self.wptr
                .store(pair(context::RB_WPTR) & !3, Ordering::Release);
            registers.owner = Owner {
                mqd: queue.mqd,
                pasid: queue.pasid,
                xcc: queue.xcc,
                by_scheduler: true,
            };
            *exec = Exec {
                flight,
                reported: None,
            };
        });
    }

    /// Reads the write pointer from memory: rings that were missed.
    pub fn poll_wptr(&self, address: u64) {
        let setup = self.setup();
        let view = View {
            bus: &*self.common.bus,
            space: setup.space,
        };
        let before = self.wptr();
        match view.read64(address) {
            // A ring meanwhile is newer.
            Ok(wptr) => {
                let (read, seen) = (Ordering::AcqRel, Ordering::Acquire);
                let _ = self.wptr.compare_exchange(before, wptr & !3, read, seen);
            }
            Err(fault) => self.fault(&mut lock(&self.exec), &setup, fault),
        }
    }

    /// Unloads it if `filter` names it: its MQD, and what was in flight.
    pub fn unload(&self, xcc: Option<u8>, filter: Filter) -> Option<(u64, Flight)> {
        self.is_wanted(xcc, filter).then(|| self.unload_now())
    }

    fn is_wanted(&self, xcc: Option<u8>, filter: Filter) -> bool {
        let registers = lock(&self.registers);
        let owner = registers.owner;
        let wanted = match filter {
            Filter::All => true,
            Filter::Pasid(pasid) => owner.pasid == pasid,
            Filter::Doorbell(dword) => registers.doorbell_offset() == dword,
        };
        let its = owner.by_scheduler && wanted && xcc.is_none_or(|xcc| xcc == owner.xcc);
        its && !self.stays()
    }

    /// Whether the scheduler believes that it took it off, and did not.
    fn stays(&self) -> bool {
        let stays = self.holds();
        if stays {
            let stats = &self.common.stats;
            stats.work(
                "SDMA queues that stayed after their unmapping was confirmed",
                1,
            );
        }
        stays
    }

    fn unload_now(&self) -> (u64, Flight) {
        self.drains.store(false, Ordering::Release);
        self.stopped(|registers, exec| {
            let mqd = registers.owner.mqd;
            registers.owner = Owner::default();
            registers.context = [0; CONTEXT as usize];
            registers.listen(&*self.common.bus);
            (mqd, std::mem::take(exec).flight)
        })
    }

    /// Back to nothing.
    pub fn reset(&self) {
        if self.holds() {
            self.held_by.store(NOBODY, Ordering::Release);
        }
        self.unload_now();
        self.rptr.store(0, Ordering::Release);
        self.wptr.store(0, Ordering::Release);
        self.enable_traps(false);
        self.halt(false);
    }

    fn setup(&self) -> Setup {
        let Registers { context, owner, .. } = &*lock(&self.registers);
        let cntl = context[context::RB_CNTL];
        let report = wide(
            context[context::RB_RPTR_ADDR_LO] & !3,
            context[context::RB_RPTR_ADDR_HI],
        );
        let writes_back = rb_cntl::RPTR_WRITEBACK_ENABLE.pick(cntl) != 0;
        let space = Space {
            hub: Hub::Mm,
            vmid: rb_cntl::RB_VMID.pick(cntl) as u8,
        };
        let pasid = match owner.by_scheduler {
            true => owner.pasid,
            false => self.common.bus.pasid(space),
        };
        Setup {
            base: wide(context[context::RB_BASE], context[context::RB_BASE + 1]) << 8,
            bytes: 4 << rb_cntl::RB_SIZE.pick(cntl).min(30),
            space,
            pasid,
            report: (writes_back && report != 0).then_some(report),
        }
    }

    fn report(&self, exec: &mut Exec, setup: &Setup) {
        let rptr = self.rptr();
        let Some(address) = setup.report.filter(|_| exec.reported != Some(rptr)) else {
            return;
        };
        let view = View {
            bus: &*self.common.bus,
            space: setup.space,
        };
        match view.write64(address, rptr) {
            Ok(()) => exec.reported = Some(rptr),
            Err(fault) => self.fault(exec, setup, fault),
        }
    }

    /// Memory refused a packet. True: it is executed again later, from where it was; else the ring
    /// hangs.
    fn waits(&self, exec: &mut Exec, setup: &Setup, fault: Fault) -> bool {
        let bus = &self.common.bus;
        let verdict = bus.fault(setup.space, setup.pasid, fault, OnFault::Repeats);
        if verdict == Verdict::Final {
            self.warn_stopped(fault);
            exec.flight.hung.get_or_insert_with(|| fault.to_string());
            return false;
        }
        self.common.stats.work("accesses repeated", 1);
        // Who disables the ring does not wait for a page.
        if self.drains() {
            *exec = Exec::default();
            self.drains.store(false, Ordering::Release);
        }
        true
    }

    fn warn_stopped(&self, fault: Fault) {
        let (engine, ring) = (self.engine, self.number);
        let (limited, whose) = (
            &self.common.stats.limited,
            u32::from(engine) << 8 | u32::from(ring),
        );
        warn_limited!(limited, whose, engine, ring, %fault, "SDMA ring stopped");
    }

    /// Memory refused a pointer: the ring hangs.
    fn fault(&self, exec: &mut Exec, setup: &Setup, fault: Fault) {
        self.warn_stopped(fault);
        let bus = &self.common.bus;
        bus.fault(setup.space, setup.pasid, fault, OnFault::Ends);
        exec.flight.hung.get_or_insert_with(|| fault.to_string());
    }

    /// The TRAP packet's interrupt.
    pub fn trap(&self, space: Space, pasid: u16, data: u32) {
        if !self.traps.load(Ordering::Acquire) {
            self.common.stats.work("SDMA TRAP while disabled", 1);
            return;
        }
        let of_die = self.common.places.engines_of_die;
        self.common.bus.interrupt(Interrupt {
            client: super::CLIENTS[usize::from(self.engine % of_die)],
            source: source::SDMA_TRAP,
            ring_id: self.number,
            vmid: space.vmid,
            from_mm: true,
            pasid: Some(pasid),
            node: self.engine / of_die * 4,
            data: [data, 0, 0, 0],
        });
    }

    fn dwords(&self, setup: &Setup, from: u64, count: u64) -> Result<Vec<u32>, Fault> {
        let view = View {
            bus: &*self.common.bus,
            space: setup.space,
        };
        let from = from % setup.bytes;
        let first = count.min((setup.bytes - from) / 4);
        let mut dwords = view.dwords(setup.base.wrapping_add(from), first as usize)?;
        if first < count {
            dwords.extend(view.dwords(setup.base, (count - first) as usize)?);
        }
        Ok(dwords)
    }

    /// Executes the next packet. None: go on.
    fn step_packet(&self, exec: &mut Exec, setup: &Setup) -> Result<Option<Progress>, Fault> {
        if let Some(ib) = exec.flight.ib {
            if ib.at < ib.dwords {
                return self.ib_packet(exec, setup, ib);
            }
            exec.flight.ib = None;
        }
        let advance = std::mem::take(&mut exec.flight.advance);
        self.rptr.fetch_add(advance, Ordering::AcqRel);
        let pending = self.wptr().wrapping_sub(self.rptr());
        // A write pointer from nowhere says at most a full ring.
        let pending = if pending > setup.bytes {
            pending % setup.bytes
        } else {
            pending
        } / 4;
        if pending == 0 {
            return Ok(Some(Progress::Idle));
        }
        if exec.flight.moved == 0 {
            if let Some(progress) = self.hangs(exec, setup) {
                return Ok(Some(progress));
            }
        }
        let rptr = self.rptr();
        let fetch = |from: u64, count: u64| self.dwords(setup, rptr.wrapping_add(4 * from), count);
        let Some((dwords, flow)) = self.execute(exec, setup, setup.space, pending, fetch)? else {
            return Ok(Some(Progress::Idle));
        };
        let done = match flow {
            Flow::Wait => return Ok(Some(Progress::Polling)),
            Flow::Partly(moved) => {
                exec.flight.moved = moved;
                return Ok(None);
            }
            Flow::Skip(more) => dwords + more.min(pending - dwords),
            _ => dwords,
        };
        exec.flight.moved = 0;
        exec.flight.advance = 4 * done;
        if let Flow::Call(ib) = flow {
            exec.flight.ib = Some(ib);
        }
        Ok(None)
    }

    /// Asks the fault injection before a packet of the ring: what there is instead, if it hangs
    /// here, or waits.
    fn hangs(&self, exec: &mut Exec, setup: &Setup) -> Option<Progress> {
        let at = QueueAt {
            kind: QueueKind::Sdma,
            doorbell: lock(&self.registers).doorbell_offset(),
            pasid: setup.pasid,
            vmid: setup.space.vmid,
        };
        let hang = self.common.bus.hangs(&at)?;
        if hang.passes {
            return Some(Progress::Polling);
        }
        exec.flight.hung = Some("fault injection".into());
        exec.flight.stuck = !matches!(hang.on_unmap, OnUnmap::Works | OnUnmap::Confirmed);
        if hang.on_unmap == OnUnmap::Confirmed && self.is_users() {
            self.held_by.store(self.number, Ordering::Release);
        }
        Some(Progress::Idle)
    }

    /// Whether it is a user's and cannot be taken off the hardware.
    pub fn is_stuck(&self, xcc: u8) -> bool {
        let owner = lock(&self.registers).owner;
        owner.by_scheduler && owner.xcc == xcc && lock(&self.exec).flight.stuck
    }

    fn ib_packet(&self, exec: &mut Exec, setup: &Setup, ib: Ib) -> Result<Option<Progress>, Fault> {
        let view = View {
            bus: &*self.common.bus,
            space: ib.space,
        };
        let left = ib.dwords - ib.at;
        let fetch = |from: u64, count: u64| {
            view.dwords(ib.address.wrapping_add(4 * (ib.at + from)), count as usize)
        };
        let Some((dwords, flow)) = self.execute(exec, setup, ib.space, left, fetch)? else {
            exec.flight.hung = Some("SDMA packet reaches beyond its indirect buffer".into());
            return Ok(None);
        };
        let done = match flow {
            Flow::Wait => return Ok(Some(Progress::Polling)),
            Flow::Partly(moved) => {
                exec.flight.moved = moved;
                return Ok(None);
            }
            Flow::Call(_) => {
                exec.flight.hung = Some("SDMA indirect buffers do not nest".into());
                return Ok(None);
            }
            Flow::Skip(more) => dwords + more,
            Flow::Next => dwords,
        };
        exec.flight.moved = 0;
        exec.flight.ib = Some(Ib {
            at: (ib.at + done).min(ib.dwords),
            ..ib
        });
        Ok(None)
    }

    /// Fetches and executes one packet of at most `left` dwords: its size and what it came to.
    /// None: incomplete.
    fn execute(
        &self,
        exec: &mut Exec,
        setup: &Setup,
        space: Space,
        left: u64,
        fetch: impl Fn(u64, u64) -> Result<Vec<u32>, Fault>,
    ) -> Result<Option<(u64, Flow)>, Fault> {
        let head = fetch(0, left.min(4))?;
        let Some(kind) = packet::find(head[0]) else {
            exec.flight.hung = Some(format!("SDMA packet {:#x} unknown", head[0]));
            tracing::error!(
                engine = self.engine,
                ring = self.number,
                header = head[0],
                "illegal SDMA packet"
            );
            self.common.stats.count("illegal SDMA packet");
            return Ok(Some((1, Flow::Wait)));
        };
        let dwords = kind.dwords(&head);
        if dwords > left {
            return Ok(None);
        }
        let packet = fetch(0, dwords)?;
        let shown = &packet[..packet.len().min(10)];
        tracing::trace!(target: "sdma", "{}.{} {space:?} {shown:x?}", self.engine, self.number);
        let cx = packet::Cx {
            ring: self,
            bus: &*self.common.bus,
            stats: &self.common.stats,
            space,
            pasid: setup.pasid,
            privileged: setup.space.vmid == 0 && space.vmid == 0,
            moved: exec.flight.moved,
        };
        tracing::trace!(
            target: "sdma",
            "{}.{} vmid {} {:x?}",
            self.engine,
            self.number,
            space.vmid,
            &packet[..packet.len().min(13)]
        );
        Ok(Some((dwords, kind.execute(&cx, &packet)?)))
    }
}

impl Job for Ring {
    fn step(&self) -> Progress {
        let mut exec = lock(&self.exec);
        let halted = self.halted.load(Ordering::Acquire);
        if halted || self.is_held_up() || !(self.fetches() || self.drains()) {
            return Progress::Idle;
        }
        let setup = self.setup();
        let mut progress = Progress::Busy;
        let mut parts = 0;
        for _ in 0..SLICE_PACKETS {
            if exec.flight.hung.is_some() {
                progress = Progress::Idle;
                break;
            }
            if self.should_stop() {
                break;
            }
            if self.drains() && self.is_between(&mut exec) {
                self.drains.store(false, Ordering::Release);
                progress = Progress::Idle;
                break;
            }
            match self.step_packet(&mut exec, &setup) {
                Ok(None) => {
                    parts += usize::from(exec.flight.moved != 0);
                    if parts == SLICE_PARTS {
                        break;
                    }
                }
                Ok(Some(end)) => {
                    progress = end;
                    break;
                }
                Err(fault) if self.waits(&mut exec, &setup, fault) => {
                    progress = Progress::Polling;
                    break;
                }
                Err(_) => {}
            }
        }
        self.report(&mut exec, &setup);
        progress
    }
}
