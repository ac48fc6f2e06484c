// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The command processor (CP): queue slots, scheduling firmware, PM4 and AQL packets. One [`Cp`]
//! per GPU, for all XCCs.
//!
//! ```text
//! MMIO ──reg_write──▶ register banks ──CP_HQD_ACTIVE──▶ Queue ─┐
//! BAR2 ──doorbell───▶ KIQ, HIQ: executed at once (sched) ──────┼─▶ Queue
//!                                                              │
//!                     runner threads ◀─────────────────────────┘
//!                           └─▶ pm4 / aql ──▶ gcn
//! ```
//!
//! Locks, outer to inner: `serial` (one scheduling packet at a time) → a queue's body → `state` or
//! any other of the small ones here, which are leaves. Nobody waits for a body while holding
//! `state`.

pub mod aql;
pub mod crew;
pub mod cwsr;
pub mod debug;
pub mod gws;
pub mod launch;
pub mod layout;
pub mod mqd;
pub mod packet;
pub mod pm4;
pub mod queue;
pub mod reg;
pub mod registers;
pub mod saved;
pub mod sched;
pub mod signal;
pub mod team;
#[cfg(test)]
mod tests;
pub mod waves;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use crew::Crew;
use gws::Gws;
use layout::sq_wave_ctxid;
use queue::{Flight, Kind, Queue, SlotId};
use reg::CpRegister;
use registers::Bank;
use sched::Hws;
use team::{Member, Team};

use crate::engine::Progress;
use crate::hostile::leftovers::Leftovers;
use crate::ih::client;
use crate::limited::warn_limited;
use crate::processor::bus::{Binding, Bus, Fault, Hub, Interrupt, Space, View};
use crate::processor::copy::CopyEngines;
use crate::processor::lock;
use crate::processor::runner::{Job, Runner, Task};
use crate::processor::saved::Saved;
use crate::processor::stats::Stats;

/// GFX_9_0__SRCID__CP_EOP_INTERRUPT.
pub const SOURCE_END_OF_PIPE: u8 = layout::source::CP_EOP_INTERRUPT;
/// GFX_9_0__SRCID__CP_BAD_OPCODE_ERROR.
pub const SOURCE_BAD_OPCODE: u8 = layout::source::CP_BAD_OPCODE_ERROR;
/// GFX_9_0__SRCID__CP_PRIV_REG_FAULT.
pub const SOURCE_PRIV_REG: u8 = layout::source::CP_PRIV_REG_FAULT;
/// GFX_9_0__SRCID__CP_COMPUTE_QUERY_STATUS.
pub const SOURCE_QUERY_STATUS: u8 = layout::source::CP_COMPUTE_QUERY_STATUS;
/// GFX_9_0__SRCID__SQ_INTERRUPT_ID.
const SOURCE_SQ: u8 = layout::source::SQ_INTERRUPT_ID;

/// Interrupts that shaders raise (SQ_INTERRUPT_WORD_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqInterrupt {
    /// s_sendmsg(MSG_INTERRUPT).
    Wave {
        /// From the trap handler.
        privileged: bool,
    },
    /// The hardware's error.
    Error,
}

/// A mapped queue and its place in the runner.
#[derive(Clone)]
pub struct Mapped {
    /// The queue.
    pub queue: Arc<Queue>,
    task: Arc<Task>,
}

/// What is mapped, and the register banks.
pub struct State {
    banks: Vec<Bank>,
    mapped: HashMap<SlotId, Mapped>,
    doorbells: HashMap<u32, Vec<SlotId>>,
    /// By doorbell: AQL queues that several XCCs work on.
    teams: HashMap<u32, Weak<Team>>,
}

/// What all queues share.
pub struct Shared {
    /// The GPU around.
    pub bus: Arc<dyn Bus>,
    /// What was met and not modelled, and more.
    pub stats: Arc<Stats>,
    /// Who runs work-groups together; None in synchronous mode.
    pub crew: Option<Crew>,
    runner: Arc<Runner>,
    sdma: Arc<dyn CopyEngines>,
    xccs: u8,
    serial: Mutex<()>,
    hws: Mutex<Hws>,
    saved: Mutex<Saved<Flight>>,
    gws: Mutex<Gws>,
    leftovers: Leftovers,
    state: Mutex<State>,
    /// CP_MEn_PIPEn_INT_CNTL, 16 per XCC.
    int_cntl: Vec<AtomicU32>,
}

/// The command processor.
pub struct Cp {
    shared: Arc<Shared>,
}

/// The flat windows of a process.
pub fn apertures(process: &Binding) -> gcn::Apertures {
    gcn::Apertures {
        private: u64::from(process.sh_mem_bases & 0xffff) << 48,
        shared: u64::from(process.sh_mem_bases >> 16) << 48,
    }
}

impl Cp {
    /// A command processor for so many XCCs, with nothing mapped.
    pub fn new(
        bus: Arc<dyn Bus>,
        runner: Arc<Runner>,
        sdma: Arc<dyn CopyEngines>,
        stats: Arc<Stats>,
        xccs: u8,
    ) -> Self {
        let banks = (0..xccs).map(|xcc| Bank::new(xcc, xccs)).collect();
        let int_cntl = (0..usize::from(xccs) * 16)
            .map(|_| AtomicU32::new(0))
            .collect();
        let state = State {
            banks,
            mapped: HashMap::new(),
            doorbells: HashMap::new(),
            teams: HashMap::new(),
        };
        let crew = match runner.is_synchronous() {
            true => None,
            false => Crew::new()
                .inspect_err(|error| tracing::error!(%error, "waves run on one thread"))
                .ok(),
        };
        let shared = Shared {
            bus,
            stats,
            crew,
            runner,
            sdma,
            xccs,
            serial: Mutex::new(()),
            hws: Mutex::new(Hws::new(xccs)),
            saved: Mutex::new(Saved::default()),
            gws: Mutex::default(),
            leftovers: Leftovers::new(xccs),
            state: Mutex::new(state),
            int_cntl,
        };
        Cp {
            shared: Arc::new(shared),
        }
    }

    /// A write of `value` to the doorbell aperture at `offset` bytes; `bytes` is 4 or 8. False if
    /// no queue listens.
    pub fn doorbell(&self, offset: u64, value: u64, bytes: usize) -> bool {
        let dword = (offset / 4) as u32;
        let listeners = self.shared.at_doorbell(dword);
        let found = !listeners.is_empty();
        // Of a partition's HIQs the master's comes last.
        let late = self.lateness().filter(|_| listeners.len() == 1);
        // The master XCC comes last: when it writes a fence, the others have done their part.
        for Mapped { queue, task } in listeners.into_iter().rev() {
            let value = if bytes == 4 {
                queue.wptr() & !0xffff_ffff | value
            } else {
                value
            };
            queue.ring(value);
            let at_once = !self.shared.runner.is_synchronous();
            match (late, queue.kind) {
                (Some(late), _) => self.shared.runner.wake_later(&task, late),
                (None, Kind::Kiq | Kind::Hiq) => self.run_now(&queue, &task),
                _ if at_once && self.is_done_quickly(&queue) => {}
                _ => self.shared.runner.wake(&task),
            }
        }
        self.shared.runner.poll();
        found
    }

    /// Whether the doorbell's own thread could do all that the queue has to do.
    fn is_done_quickly(&self, queue: &Queue) -> bool {
        let quick = || match queue.quick() {
            true => Progress::Idle,
            false => Progress::Busy,
        };
        self.shared.runner.guard(quick) == Progress::Idle
    }

    /// How late a doorbell is heard, if it is (hostile mode): it is a posted write.
    fn lateness(&self) -> Option<Duration> {
        const LATEST: Duration = Duration::from_millis(3);
        let hostile = self.shared.bus.hostile()?;
        hostile.one_in(2).then(|| hostile.time(LATEST))
    }

    /// Slices that a kernel's queue may run before the guest's CPU goes on.
    const STEPS_NOW: usize = 64;

    fn run_now(&self, queue: &Arc<Queue>, task: &Arc<Task>) {
        for _ in 0..Self::STEPS_NOW {
            match self.shared.runner.guard(|| queue.step()) {
                Progress::Busy => {}
                Progress::Idle => return,
                // It waits for a register or memory: let the runner look again.
                Progress::Polling => break,
            }
        }
        // So does one that has no end: the guest's CPU waits for this call.
        self.shared.runner.wake(task);
    }

    /// A register as MMIO reads it. None: it is only stored.
    pub fn reg_read(&self, xcc: u8, register: CpRegister, index: usize) -> Option<u32> {
        registers::read(&self.shared, xcc, register, index)
    }

    /// A register written through MMIO. False: it is only stored.
    pub fn reg_write(&self, xcc: u8, register: CpRegister, index: usize, value: u32) -> bool {
        registers::write(&self.shared, xcc, register, index, value)
    }

    /// Back to power-on: nothing mapped, nothing kept.
    pub fn reset(&self) {
        let _serial = lock(&self.shared.serial);
        for slot in self.shared.mapped_slots(|_| true) {
            // The memory behind its MQD may be gone already.
            self.shared.unmap(slot, sched::Keep::Forgotten);
        }
        *lock(&self.shared.hws) = Hws::new(self.shared.xccs);
        *lock(&self.shared.saved) = Saved::default();
        *lock(&self.shared.gws) = Gws::default();
        let xccs = self.shared.xccs;
        for (xcc, bank) in (0..).zip(&mut lock(&self.shared.state).banks) {
            *bank = Bank::new(xcc, xccs);
        }
        self.shared
            .int_cntl
            .iter()
            .for_each(|cntl| cntl.store(0, Ordering::Relaxed));
    }

    /// Translations changed: decoded code of that VMID (None: of all) is stale.
    pub fn tlb_invalidated(&self, vmid: Option<u8>) {
        self.shared.invalidate_code(vmid);
    }
}

impl Drop for Cp {
    fn drop(&mut self) {
        // Queues hold the shared state: part them.
        self.reset();
    }
}

impl Shared {
    /// The kernel's address space of an XCC.
    pub fn kernel_view(&self, xcc: u8) -> View<'_> {
        View {
            bus: &*self.bus,
            space: Space {
                hub: Hub::Gc(xcc),
                vmid: 0,
            },
        }
    }

    /// Taken before the body of a KIQ or HIQ: one scheduling packet at a time.
    fn serial(&self) -> MutexGuard<'_, ()> {
        lock(&self.serial)
    }

    fn at_doorbell(&self, dword: u32) -> Vec<Mapped> {
        let state = lock(&self.state);
        let slots = state.doorbells.get(&dword).map_or(&[][..], Vec::as_slice);
        slots
            .iter()
            .filter_map(|slot| state.mapped.get(slot).cloned())
            .collect()
    }

    fn mapped_slots(&self, wanted: impl Fn(&Queue) -> bool) -> Vec<SlotId> {
        let state = lock(&self.state);
        let mut slots: Vec<SlotId> = state
            .mapped
            .values()
            .filter(|at| wanted(&at.queue))
            .map(|at| at.queue.slot)
            .collect();
        slots.sort();
        slots
    }

    /// The threads that run queues.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// An XCC in its partition.
    fn member(&self, xcc: u8) -> Member {
        let state = lock(&self.state);
        let bank = state.banks.get(usize::from(xcc));
        bank.map_or(Member { index: 0, of: 1 }, Bank::member)
    }

    /// The copies of a queue, if it is one that several XCCs work on.
    fn team(&self, kind: Kind, xcc: Member, doorbell: u32) -> Option<Arc<Team>> {
        if kind != Kind::Aql || xcc.of <= 1 {
            return None;
        }
        let teams = &mut lock(&self.state).teams;
        teams.retain(|_, team| team.strong_count() != 0);
        if let Some(team) = teams.get(&doorbell).and_then(Weak::upgrade) {
            return Some(team);
        }
        let team = Arc::new(Team::default());
        teams.insert(doorbell, Arc::downgrade(&team));
        Some(team)
    }

    fn mapped_at(&self, slot: SlotId) -> Option<Mapped> {
        lock(&self.state).mapped.get(&slot).cloned()
    }

    /// Puts a queue into its slot and lets it run; `wptr` is where its write pointer lies in
    /// memory, if it is to be read there. An error of that does not keep the queue from being
    /// there.
    fn insert(self: &Arc<Self>, queue: &Arc<Queue>, wptr: Option<u64>) -> Result<(), Fault> {
        let mapped = Mapped {
            task: queue.task(),
            queue: queue.clone(),
        };
        let slot = mapped.queue.slot;
        {
            let mut state = lock(&self.state);
            let slots = state
                .doorbells
                .entry(mapped.queue.hqd.doorbell())
                .or_default();
            slots.push(slot);
            slots.sort();
            *state.banks[usize::from(slot.xcc)].hqd_mut(slot) = mapped.queue.hqd;
            state.mapped.insert(slot, mapped.clone());
        }
        // It listens to its doorbell by now.
        let polled = wptr.map_or(Ok(()), |address| queue.poll_wptr(address));
        if let Some(team) = &mapped.queue.team {
            let Mapped { queue, task } = &mapped;
            team.join(queue.xcc, queue.packets(), task);
            team.wake(queue.xcc, &self.runner);
        }
        if !matches!(mapped.queue.kind, Kind::Kiq | Kind::Hiq | Kind::Follower) {
            self.runner.wake(&mapped.task);
        }
        polled
    }

    /// Takes a queue off its slot, waiting for its slice to end.
    fn unmap(&self, slot: SlotId, keep: sched::Keep) {
        let Some(Mapped { queue, .. }) = self.mapped_at(slot) else {
            return;
        };
        let flight = queue.retire(keep);
        if keep == sched::Keep::Flight && !flight.is_empty() {
            saved::keep(self, &queue, flight);
        }
        let mut state = lock(&self.state);
        state.mapped.remove(&slot);
        if let Some(slots) = state.doorbells.get_mut(&queue.hqd.doorbell()) {
            slots.retain(|at| *at != slot);
        }
        state.banks[usize::from(slot.xcc)].retire(&queue);
    }

    fn invalidate_code(&self, vmid: Option<u8>) {
        for at in lock(&self.state).mapped.values() {
            if vmid.is_none_or(|vmid| vmid == at.queue.space.vmid) {
                at.queue.invalidate_code();
            }
        }
    }

    fn int_cntl(&self, slot: SlotId) -> &AtomicU32 {
        let at = usize::from(slot.xcc) * 16 + usize::from(slot.me & 3) * 4;
        &self.int_cntl[at + usize::from(slot.pipe & 3)]
    }

    fn enabled(&self, slot: SlotId, bit: u32) -> bool {
        self.int_cntl(slot).load(Ordering::Relaxed) >> bit & 1 != 0
    }

    /// A register write by a packet. Queue slots are out of its reach: hardware would deadlock,
    /// too.
    pub fn reg_write(&self, slot: SlotId, offset: u32, value: u32) {
        match CpRegister::at(offset) {
            Some((CpRegister::CPC_INT_STATUS, _)) => self.raise_status(slot, value),
            Some((register, _)) if register.stops_queues() => {
                self.stats.count("packet that writes queue slot registers");
                let (limited, whose) = (&self.stats.limited, slot.number());
                warn_limited!(
                    limited,
                    whose,
                    ?slot,
                    offset,
                    value,
                    "register write by packet refused"
                );
            }
            _ => self.bus.reg_write(slot.xcc, offset, value),
        }
    }

    /// CPC_INT_STATUS: GENERIC0 to 2 (bits 31 to 29) are interrupts 176 to 178.
    fn raise_status(&self, slot: SlotId, value: u32) {
        for (bit, source) in [(31, 176), (30, 177), (29, 178)] {
            if value >> bit & 1 == 0 {
                continue;
            }
            let Some(Mapped { queue, .. }) = self.mapped_at(slot) else {
                continue;
            };
            self.bus.interrupt(queue.interrupt(source, [0; 4]));
        }
    }

    /// The end-of-pipe interrupt, if the queue's pipe has it enabled (TIME_STAMP_INT_ENABLE).
    pub fn end_of_pipe(&self, queue: &Queue, source: u8, data: u32) {
        if self.enabled(queue.slot, 26) {
            self.bus.interrupt(queue.interrupt(source, [data, 0, 0, 0]));
        } else {
            self.stats.work("end-of-pipe interrupt while disabled", 1);
        }
    }

    /// An error interrupt, if enabled (OPCODE_ERROR_INT_ENABLE, PRIV_REG_INT_ENABLE).
    pub fn raise_error(&self, queue: &Queue, source: u8, data: u32) {
        let bit = if source == SOURCE_PRIV_REG { 23 } else { 24 };
        if self.enabled(queue.slot, bit) {
            self.bus.interrupt(queue.interrupt(source, [data, 0, 0, 0]));
        }
    }

    /// An interrupt by a shader: 24 bits of data, spread as SQ_INTERRUPT_WORD_WAVE_CTXID has them.
    pub fn sq_interrupt(&self, queue: &Queue, kind: SqInterrupt, data: u32) {
        let (encoding, privileged) = match kind {
            SqInterrupt::Wave { privileged } => (1, privileged),
            SqInterrupt::Error => (2, false),
        };
        // DATA has 12 bits; KFD_CONTEXT_ID_GET_SQ_INT_DATA (kfd_int_process_v9.c) has the others.
        let low = sq_wave_ctxid::DATA.place(data)
            | sq_wave_ctxid::PRIV.place(privileged.into())
            | sq_wave_ctxid::ENCODING.place(encoding)
            | (data >> 12 & 0xf) << 28;
        let context = [low, data >> 16 & 0xff, 0, 0];
        let interrupt = queue.interrupt(SOURCE_SQ, context);
        self.bus.interrupt(Interrupt {
            client: client::SE0SH,
            ring_id: 0,
            ..interrupt
        });
    }
}
