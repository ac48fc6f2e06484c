// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A queue mapped to a hardware slot (HQD). One per MAP_QUEUES or CP_HQD_ACTIVE write; it ends at
//! unmap.
//!
//! What does not change while it is mapped is in [`Queue`] itself; what its packets change is in
//! [`Body`], behind a lock that one slice of execution holds for a few milliseconds at most.
//! [`Flight`] is what outlives an unmap.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::aql;
use super::cwsr;
use super::debug::Control;
use super::launch::{Launch, State};
use super::layout::pgm_rsrc2;
use super::mqd::{self, dw, Hqd, Mqd, SH_DWORDS};
use super::pm4;
use super::sched::Keep;
use super::team::{Member, Team};
use super::Shared;
use crate::engine::Progress;
use crate::hostile::caches::Client;
use crate::hostile::wave::WaveView;
use crate::ih::{client, Node};
use crate::inject::rule::{OnUnmap, QueueAt, QueueKind};
use crate::limited::warn_limited;
use crate::processor::bus::{Binding, Fault, Hub, Interrupt, OnFault, Space, View};
use crate::processor::runner::{Job, Task};
use crate::processor::{in_page, lock};

/// A queue slot: micro engine 1 or 2, 4 pipes, 8 queues a pipe, in each XCC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    /// XCC.
    pub xcc: u8,
    /// Micro engine (MEC), 1 or 2; 0 is the graphics one.
    pub me: u8,
    /// Pipe.
    pub pipe: u8,
    /// Queue of the pipe.
    pub queue: u8,
}

impl SlotId {
    /// RING_ID in interrupt entries.
    pub const fn ring_id(self) -> u8 {
        self.queue << 4 | self.me << 2 | self.pipe
    }

    /// One number for it.
    pub const fn number(self) -> u32 {
        u32::from_be_bytes([self.xcc, self.me, self.pipe, self.queue])
    }
}

/// What kind of packets a queue takes, and who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kernel interface queue: amdgpu's; runs on the doorbell write.
    Kiq,
    /// HSA interface queue: amdkfd's; runs on the doorbell write.
    Hiq,
    /// PM4 packets.
    Pm4,
    /// AQL packets.
    Aql,
    /// The copy of a PM4 queue that another XCC runs: bookkeeping only.
    Follower,
}

/// An indirect buffer being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ib {
    /// Address space of the buffer and of its packets' accesses.
    pub space: Space,
    /// Where it is.
    pub address: u64,
    /// Its size.
    pub dwords: u64,
    /// The next packet.
    pub at: u64,
    /// Whether its packets may write registers.
    pub privileged: bool,
}

/// What a queue is in the middle of: kept over preemption, dropped by a reset.
#[derive(Default)]
pub struct Flight {
    /// Indirect buffers, innermost last.
    pub ibs: Vec<Ib>,
    /// The running dispatch.
    pub launch: Option<Box<Launch>>,
    /// Ring dwords (PM4) that the packet in flight takes, to be added to the read pointer when it
    /// is done.
    pub advance: u64,
    /// The AQL packet in flight.
    pub aql: Option<aql::Pending>,
    /// The AQL dispatch after it that has overtaken it (hostile mode).
    pub ahead: Option<Box<aql::overtake::Ahead>>,
    /// The AQL packet that was refused last; none once one has completed.
    pub refused: Option<u64>,
    /// Why the queue will not go on, ever.
    pub hung: Option<String>,
}

impl Flight {
    /// Whether there is nothing worth keeping.
    pub fn is_empty(&self) -> bool {
        let Flight {
            ibs,
            launch,
            advance,
            aql,
            ahead,
            refused,
            hung,
        } = self;
        let packet = launch.is_some() || *advance != 0 || aql.is_some() || refused.is_some();
        ibs.is_empty() && ahead.is_none() && !packet && hung.is_none()
    }
}

/// What executing packets changes.
pub struct Body {
    /// Read pointer: dwords in the ring (PM4, wrapped) or packets (AQL, 64-bit).
    pub rptr: u64,
    /// The packet in flight.
    pub flight: Flight,
    /// COMPUTE_* registers, as packets set them.
    pub sh: Box<[u32; SH_DWORDS]>,
    /// Decoded code of the kernels it runs, for each thread that runs them.
    pub codes: Vec<gcn::CodeCache>,
    /// Read pointer last written to memory.
    pub reported: Option<u64>,
}

impl Body {
    /// Code may have changed.
    pub fn invalidate_code(&mut self) {
        self.codes.iter_mut().for_each(gcn::CodeCache::invalidate);
    }

    /// Goes on with the dispatch in flight. None: there is none (any more).
    pub fn step_launch(&mut self, queue: &Queue) -> Option<Progress> {
        let mut launch = self.flight.launch.take()?;
        if !launch.parked().is_empty() {
            if let Err(failure) = cwsr::restore(queue, &mut launch) {
                self.flight.launch = Some(launch);
                queue.give_up(self, &failure);
                return Some(Progress::Idle);
            }
        }
        let state = launch.step(queue, &mut self.codes);
        queue.show_waves(launch.waves());
        let progress = match state {
            State::Done => return None,
            State::Running => Progress::Busy,
            State::Waiting => Progress::Polling,
            State::Halted => Progress::Idle,
            State::Hung(why) => {
                self.flight.hung = Some(why);
                Progress::Idle
            }
        };
        self.flight.launch = Some(launch);
        Some(progress)
    }
}

/// A mapped queue.
pub struct Queue {
    /// The GPU's shared state.
    pub shared: Arc<Shared>,
    /// Its slot.
    pub slot: SlotId,
    /// Its kind.
    pub kind: Kind,
    /// Registers as they were when it was mapped.
    pub hqd: Hqd,
    /// Address of its MQD, in VMID 0.
    pub mqd: u64,
    /// Its address space.
    pub space: Space,
    /// The process it belongs to; default for the kernel's queues.
    pub process: Binding,
    /// MAP_QUEUES said it is a static queue: UNMAP_QUEUES of the dynamic ones leaves it.
    pub is_static: bool,
    /// Mapped through the HIQ.
    pub by_hiq: bool,
    /// Its XCC in the partition.
    pub xcc: Member,
    /// Its copies in the partition's other XCCs (AQL).
    pub team: Option<Arc<Team>>,
    /// COMPUTE_CURRENT_LOGIC_XCC_ID and COMPUTE_TG_CHUNK_SIZE: its share of each grid.
    pub share: (u32, u32),
    /// The driver says by TRAP_PRESENT in the MQD that the process has a trap handler.
    has_traps: bool,
    /// Write pointer: dwords (PM4) or packets (AQL).
    wptr: AtomicU64,
    /// Read pointer, for registers.
    rptr: AtomicU64,
    /// Somebody wants it to return soon.
    stop: AtomicBool,
    /// Unmapped: never run again.
    gone: AtomicBool,
    /// Translations of its VMID changed.
    stale_code: AtomicBool,
    /// Waves in flight on each shader engine, as of the last slice.
    waves: [AtomicU32; 4],
    /// It hangs so that it cannot even be unmapped (fault injection).
    stuck: AtomicBool,
    /// It hangs so that the scheduler gives up on unmapping it, and says so (fault injection).
    abandoned: AtomicBool,
    /// No reset of its slot takes it off either (fault injection).
    resists: AtomicBool,
    body: Mutex<Body>,
}

/// How a queue is to be made.
pub struct Config {
    /// Slot.
    pub slot: SlotId,
    /// Kind.
    pub kind: Kind,
    /// Registers.
    pub hqd: Hqd,
    /// MQD address.
    pub mqd: u64,
    /// COMPUTE_* registers.
    pub sh: [u32; SH_DWORDS],
    /// Process.
    pub process: Binding,
    /// VMID.
    pub vmid: u8,
    /// Static.
    pub is_static: bool,
    /// By HIQ.
    pub by_hiq: bool,
    /// Its XCC in the partition.
    pub xcc: Member,
    /// Its copies in the partition's other XCCs.
    pub team: Option<Arc<Team>>,
    /// COMPUTE_CURRENT_LOGIC_XCC_ID and COMPUTE_TG_CHUNK_SIZE.
    pub share: (u32, u32),
    /// What was kept when it was last unmapped.
    pub flight: Flight,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.bus.ignore(self.hqd.doorbell());
    }
}

impl Queue {
    /// Makes a mapped queue. Its write pointer is what the HQD says until a doorbell or
    /// [`Queue::poll_wptr`].
    pub fn new(shared: Arc<Shared>, config: Config) -> Arc<Self> {
        let Config {
            slot,
            kind,
            hqd,
            mqd,
            sh,
            process,
            vmid,
            is_static,
            by_hiq,
            xcc,
            team,
            share,
            flight,
        } = config;
        let (rptr, wptr) = match kind {
            Kind::Aql => (hqd.dispatch_id(), hqd.wptr() / aql::PACKET_DWORDS),
            _ => (
                u64::from(hqd.get(dw::CP_HQD_PQ_RPTR)) % hqd.ring_dwords(),
                hqd.wptr(),
            ),
        };
        if !hqd.has_possible_ring() {
            shared.stats.count("ring of an impossible size");
            let size = hqd.get(dw::CP_HQD_PQ_CONTROL);
            tracing::warn!(
                ?slot,
                size,
                aql = hqd.is_aql(),
                "CP_HQD_PQ_CONTROL.QUEUE_SIZE"
            );
        }
        let engines = (0..shared.sdma.engines()).map(|engine| engine as u8);
        let mut taken = engines.filter_map(|engine| shared.bus.sdma_doorbells(engine));
        if vmid != 0 && taken.any(|range| range.contains(&in_page(hqd.doorbell()))) {
            shared
                .stats
                .count("compute queue with a copy engine's doorbell");
            tracing::warn!(
                ?slot,
                doorbell = hqd.doorbell(),
                "doorbell of a copy engine"
            );
        }
        let threads = shared.crew.as_ref().map_or(1, |crew| crew.size());
        let has_traps = pgm_rsrc2::TRAP_PRESENT.pick(sh[dw::COMPUTE_PGM_RSRC2 - 1]) != 0;
        let body = Body {
            rptr,
            flight,
            sh: Box::new(sh),
            codes: (0..threads)
                .map(|_| gcn::CodeCache::of(shared.bus.cores().target))
                .collect(),
            reported: None,
        };
        // Before the write pointer is read from memory: what is rung in between is heard.
        shared.bus.listen(hqd.doorbell());
        // Waves that are restored may have been elsewhere.
        if let Some(caches) = shared.bus.caches() {
            caches.invalidate(slot.xcc, [true; 3]);
        }
        Arc::new(Queue {
            shared,
            slot,
            kind,
            hqd,
            mqd,
            space: Space {
                hub: Hub::Gc(slot.xcc),
                vmid,
            },
            process,
            is_static,
            by_hiq,
            xcc,
            team,
            share,
            has_traps,
            wptr: wptr.into(),
            rptr: rptr.into(),
            stop: false.into(),
            gone: false.into(),
            stale_code: false.into(),
            waves: Default::default(),
            stuck: false.into(),
            abandoned: false.into(),
            resists: false.into(),
            body: Mutex::new(body),
        })
    }

    /// Locks the body; the holder of the lock runs the queue.
    pub fn body(&self) -> MutexGuard<'_, Body> {
        self.body
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn show_waves(&self, counts: [u32; 4]) {
        for (shown, count) in self.waves.iter().zip(counts) {
            shown.store(count, Ordering::Relaxed);
        }
    }

    /// Waves in flight on a shader engine.
    pub fn waves(&self, engine: usize) -> u32 {
        self.waves[engine % 4].load(Ordering::Relaxed)
    }

    /// Its memory.
    pub fn view(&self) -> View<'_> {
        View {
            bus: &*self.shared.bus,
            space: self.space,
        }
    }

    /// The XCCs of its partition.
    pub fn partition(&self) -> std::ops::Range<u8> {
        let first = self.slot.xcc.saturating_sub(self.xcc.index);
        first..first + self.xcc.of
    }

    /// How its process's waves are debugged now.
    pub fn control(&self) -> Control {
        let state = lock(&self.shared.state);
        let target = self.shared.bus.cores().target;
        state.banks[usize::from(self.slot.xcc)].debug(self.space.vmid, target)
    }

    /// Whether its waves have the process's trap handler.
    pub fn has_handler(&self) -> bool {
        self.has_traps || self.control().has_traps()
    }

    /// Runs something with its memory as waves on a compute unit see it.
    pub fn as_wave<R>(&self, unit: u16, run: impl FnOnce(&mut dyn gcn::Memory) -> R) -> R {
        let Some(caches) = self.shared.bus.caches() else {
            return run(&mut self.view());
        };
        let client = Client {
            xcc: self.slot.xcc,
            unit,
            shared: self.xcc.of > 1,
        };
        run(&mut WaveView::new(self.view(), caches, client))
    }

    /// A work-group begins on a compute unit. In hostile mode it finds what the last one has left.
    pub fn find_left(&self, unit: u16, group: &mut gcn::Workgroup) {
        if let Some(hostile) = self.shared.bus.hostile() {
            let place = (self.slot.xcc, unit);
            self.shared.leftovers.find(place, group, hostile);
        }
    }

    /// It goes: it has ended, was saved or killed.
    pub fn leave(&self, unit: u16, group: &gcn::Workgroup) {
        if self.shared.bus.hostile().is_some() {
            let place = (self.slot.xcc, unit);
            self.shared.leftovers.keep(place, self.process.pasid, group);
        }
    }

    /// The kernel's memory of its XCC: where MQDs are.
    pub fn kernel_view(&self) -> View<'_> {
        self.shared.kernel_view(self.slot.xcc)
    }

    /// The write pointer.
    pub fn wptr(&self) -> u64 {
        self.wptr.load(Ordering::Acquire)
    }

    /// The read pointer as the register shows it.
    pub fn rptr_register(&self) -> u32 {
        let rptr = self.rptr.load(Ordering::Acquire);
        match self.kind {
            Kind::Aql => (rptr.wrapping_mul(aql::PACKET_DWORDS) % self.hqd.ring_dwords()) as u32,
            _ => rptr as u32,
        }
    }

    /// The write pointer as the registers show it.
    pub fn wptr_register(&self) -> u64 {
        match self.kind {
            Kind::Aql => self.wptr().wrapping_mul(aql::PACKET_DWORDS),
            _ => self.wptr(),
        }
    }

    /// Whether somebody waits for the running slice to end.
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A doorbell write. AQL doorbells name the last packet, PM4 ones the dword after it. AQL
    /// producers ring in any order, so theirs never goes back.
    pub fn ring(&self, value: u64) {
        match self.kind {
            Kind::Aql => {
                self.wptr.fetch_max(value.wrapping_add(1), Ordering::AcqRel);
            }
            _ => self.wptr.store(value, Ordering::Release),
        }
    }

    /// Reads the write pointer from memory: rings that were missed while the queue was not mapped.
    /// It can be rung by now, so that none falls between the two: a ring meanwhile counts, for it
    /// is newer.
    pub fn poll_wptr(&self, address: u64) -> Result<(), Fault> {
        let before = self.wptr();
        let value = self.view().read64(address)?;
        match self.kind {
            Kind::Aql => self.wptr.fetch_max(value, Ordering::AcqRel),
            _ => self
                .wptr
                .compare_exchange(before, value, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|rung| rung),
        };
        Ok(())
    }

    /// Code may have changed in its address space.
    pub fn invalidate_code(&self) {
        self.stale_code.store(true, Ordering::Release);
    }

    /// Sets the read pointer and reports it to memory unless another XCC's copy does.
    pub fn advance(&self, body: &mut Body, rptr: u64) {
        body.rptr = rptr;
        self.rptr.store(rptr, Ordering::Release);
    }

    /// Whether somebody polls the read pointer. Firmware of MI200 reports that of every AQL queue:
    /// the driver sets NO_UPDATE_RPTR for all of them, and ROCr waits for packets to be taken. All
    /// copies of a PM4 queue have one place to report to, and a follower's never moves.
    fn reports_rptr(&self) -> bool {
        let always =
            self.kind == Kind::Aql && self.shared.bus.cores().target == gcn::Target::Gfx90a;
        self.kind != Kind::Follower && (always || !self.hqd.hides_rptr())
    }

    /// Writes the read pointer where the queue's owner polls it.
    pub fn report_rptr(&self, body: &mut Body) {
        let address = self.hqd.rptr_report();
        if body.reported == Some(body.rptr) || address == 0 || !self.reports_rptr() {
            return;
        }
        let written = match self.kind {
            Kind::Aql => self.view().write64(address, body.rptr),
            _ => self.view().write32(address, body.rptr as u32),
        };
        match written {
            Ok(()) => body.reported = Some(body.rptr),
            Err(fault) => self.fault(body, fault),
        }
    }

    /// The queue met memory that refused: report it and hang, as the hardware's CP does.
    pub fn fault(&self, body: &mut Body, fault: Fault) {
        let (limited, slot, space) = (&self.shared.stats.limited, self.slot, self.space);
        warn_limited!(limited, slot.number(), ?slot, ?space, %fault, "queue stopped");
        let (bus, pasid) = (&self.shared.bus, self.process.pasid);
        bus.fault(self.space, pasid, fault, OnFault::Ends);
        body.flight.hung.get_or_insert_with(|| fault.to_string());
    }

    /// Whether it holds up everybody who wants to take it off the hardware.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// Whether the scheduler cannot take it off the hardware and goes on without that.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Whether it is the HIQ of an XCC that is not its partition's master, whose alone reports its
    /// read pointer (`kfd_mqd_manager_v9.c`, init_mqd_hiq_v9_4_3).
    pub fn follows(&self) -> bool {
        self.kind == Kind::Hiq && self.hqd.hides_rptr()
    }

    /// Whether no reset of its slot takes it off.
    pub fn resists_reset(&self) -> bool {
        self.resists.load(Ordering::Acquire)
    }

    /// Asks the fault injection before a packet; true: the queue hangs here.
    pub fn hangs(&self, body: &mut Body) -> bool {
        let kind = match self.kind {
            Kind::Kiq => QueueKind::Kiq,
            Kind::Hiq => QueueKind::Hiq,
            Kind::Pm4 => QueueKind::Pm4,
            Kind::Aql => QueueKind::Aql,
            Kind::Follower => return false,
        };
        let at = QueueAt {
            kind,
            doorbell: self.hqd.doorbell(),
            pasid: self.process.pasid,
            vmid: self.space.vmid,
        };
        let Some(hang) = self.shared.bus.hangs(&at) else {
            return false;
        };
        body.flight.hung = Some("fault injection".into());
        let (stuck, abandoned, resists) = match hang.on_unmap {
            OnUnmap::Waits => (true, false, true),
            OnUnmap::Reported => (false, true, false),
            OnUnmap::ReportedForGood => (false, true, true),
            // Confirmed is a copy queue's.
            OnUnmap::Works | OnUnmap::Confirmed => (false, false, false),
        };
        self.stuck.store(stuck, Ordering::Release);
        self.abandoned.store(abandoned, Ordering::Release);
        self.resists.store(resists, Ordering::Release);
        true
    }

    /// Does something to each of its waves, between two slices.
    pub fn with_waves(&self, change: &mut dyn FnMut(&mut gcn::Wave)) {
        self.stop.store(true, Ordering::Release);
        let mut body = self.body();
        if !self.gone.load(Ordering::Acquire) {
            self.stop.store(false, Ordering::Release);
        }
        let Flight { launch, ahead, .. } = &mut body.flight;
        let ahead = ahead.as_mut().and_then(|ahead| ahead.launch());
        for launch in launch.as_deref_mut().into_iter().chain(ahead) {
            let groups = launch.live().iter_mut().map(|live| &mut live.group);
            groups
                .flat_map(|group| &mut group.waves)
                .for_each(&mut *change);
        }
    }

    /// How many AQL packets it is done with.
    pub fn packets(&self) -> u64 {
        self.rptr.load(Ordering::Acquire)
    }

    /// Waves could not be saved or restored: the queue hangs.
    fn give_up(&self, body: &mut Body, failure: &cwsr::Failure) {
        tracing::error!(slot = ?self.slot, %failure, "context save and restore failed");
        if let cwsr::Failure::Fault(fault) = failure {
            let (bus, pasid) = (&self.shared.bus, self.process.pasid);
            bus.fault(self.space, pasid, *fault, OnFault::Ends);
        }
        self.shared
            .stats
            .count("context save or restore that failed");
        body.flight.hung.get_or_insert_with(|| failure.to_string());
    }

    /// An interrupt that names this queue.
    pub fn interrupt(&self, source: u8, data: [u32; 4]) -> Interrupt {
        Interrupt {
            client: client::GRBM_CP,
            source,
            ring_id: self.slot.ring_id(),
            vmid: self.space.vmid,
            from_mm: false,
            pasid: Some(self.process.pasid),
            node: Node::of(self.space.hub).0,
            data,
        }
    }

    /// Does what takes no time, if no thread runs the queue. False: there is more to do.
    pub fn quick(&self) -> bool {
        if self.kind != Kind::Aql || self.xcc.is_follower() {
            return false;
        }
        let mut body = match self.body.try_lock() {
            Ok(body) => body,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.gone.load(Ordering::Acquire) || aql::quick(self, &mut body)
    }

    /// Takes it off the hardware: stops it within a slice, saves waves (to be kept) and pointers
    /// where its MQD says, and returns what else was in flight. Nothing runs it afterwards.
    pub fn retire(&self, keep: Keep) -> Flight {
        self.stop.store(true, Ordering::Release);
        let mut body = self.body();
        self.gone.store(true, Ordering::Release);
        if let Some(team) = &self.team {
            team.leave(self.xcc);
        }
        if keep != Keep::Forgotten {
            self.count_done(&mut body);
        }
        let marks = match keep {
            Keep::Flight => self.save_waves(&mut body),
            _ => cwsr::empty(self),
        };
        let Flight { launch, ahead, .. } = &mut body.flight;
        let ahead = ahead.as_mut().and_then(|ahead| ahead.launch());
        for launch in launch.as_deref_mut().into_iter().chain(ahead) {
            launch.leave(self);
        }
        if let Some(caches) = self.shared.bus.caches() {
            // Nobody may tell the caches when the pages of a process go that has no VMID.
            caches.flush(self.slot.xcc);
        }
        if keep != Keep::Forgotten {
            if let Err(fault) = self.save_pointers(&mut body, marks) {
                tracing::warn!(slot = ?self.slot, %fault, "MQD not saved");
            }
        }
        std::mem::take(&mut body.flight)
    }

    /// Counts a PM4 packet that the last slice ended with, and its read pointer with it: a new
    /// mapping begins at what the MQD says.
    fn count_done(&self, body: &mut Body) {
        let Flight {
            ibs, launch, hung, ..
        } = &body.flight;
        if !ibs.is_empty() || launch.is_some() || hung.is_some() {
            return;
        }
        let advance = std::mem::take(&mut body.flight.advance);
        if advance != 0 {
            let rptr = (body.rptr + advance) % self.hqd.ring_dwords();
            self.advance(body, rptr);
            self.report_rptr(body);
        }
    }

    /// Saves the waves in flight to the context save area; what that holds then. Without the means
    /// for it they stay in the flight.
    fn save_waves(&self, body: &mut Body) -> Option<cwsr::Marks> {
        let empty = cwsr::empty(self);
        let Some(launch) = body
            .flight
            .launch
            .as_mut()
            .filter(|_| body.flight.hung.is_none())
        else {
            return empty;
        };
        match cwsr::save(self, launch, &mut body.codes) {
            Ok(marks) => Some(marks),
            Err(cwsr::Failure::Without) => {
                self.shared.stats.work("preemptions without a save area", 1);
                empty
            }
            Err(failure @ (cwsr::Failure::Room(_) | cwsr::Failure::Unmapped(_))) => {
                tracing::warn!(slot = ?self.slot, %failure, "waves kept by the model");
                self.shared
                    .stats
                    .count("waves that could not be saved in memory");
                empty
            }
            Err(failure) => {
                self.give_up(body, &failure);
                empty
            }
        }
    }

    fn save_pointers(&self, body: &mut Body, marks: Option<cwsr::Marks>) -> Result<(), Fault> {
        let wptr = self.wptr_register();
        let mut dwords = vec![
            (dw::CP_HQD_PQ_RPTR, self.rptr_register()),
            (dw::CP_HQD_PQ_WPTR_LO, wptr as u32),
            (dw::CP_HQD_PQ_WPTR_HI, (wptr >> 32) as u32),
        ];
        dwords.extend(marks.into_iter().flatten());
        if self.kind == Kind::Aql {
            dwords.push((mqd::AQL_DISPATCH_ID_LO, body.rptr as u32));
            dwords.push((mqd::AQL_DISPATCH_ID_HI, (body.rptr >> 32) as u32));
        }
        if self.kind == Kind::Pm4 {
            // MQD dword n is register n - 1; the scheduler keeps the first 80.
            self.kernel_view()
                .write_dwords(self.mqd + 4, &body.sh[..mqd::SH_SAVED])?;
        }
        mqd::save(self.kernel_view(), self.mqd, &dwords)
    }

    /// Its task for the runner.
    pub fn task(self: &Arc<Self>) -> Arc<Task> {
        Task::new(self.clone())
    }
}

impl Job for Queue {
    fn step(&self) -> Progress {
        let schedules = matches!(self.kind, Kind::Kiq | Kind::Hiq);
        let _serial = schedules.then(|| self.shared.serial());
        let mut body = self.body();
        if self.gone.load(Ordering::Acquire) {
            return Progress::Idle;
        }
        if self.stale_code.swap(false, Ordering::AcqRel) {
            body.invalidate_code();
        }
        let progress = match self.kind {
            Kind::Aql => aql::step(self, &mut body),
            Kind::Kiq | Kind::Hiq | Kind::Pm4 => pm4::step(self, &mut body),
            Kind::Follower => Progress::Idle,
        };
        self.report_rptr(&mut body);
        progress
    }
}

/// The kind of a user's queue or ring by its MQD, on the XCC that is this one of its partition.
pub fn kind_of(mqd: &Mqd, xcc_in_partition: u8) -> Kind {
    if mqd.hqd().is_aql() {
        Kind::Aql
    } else if mqd.get(dw::PM4_TARGET_XCC_IN_XCP) == u32::from(xcc_in_partition) {
        Kind::Pm4
    } else {
        Kind::Follower
    }
}

/// COMPUTE_CURRENT_LOGIC_XCC_ID and COMPUTE_TG_CHUNK_SIZE of an MQD.
pub fn share_of(mqd: &Mqd) -> (u32, u32) {
    (
        mqd.get(dw::COMPUTE_CURRENT_LOGIC_XCC_ID),
        mqd.get(dw::COMPUTE_TG_CHUNK_SIZE),
    )
}
