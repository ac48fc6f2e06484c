// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Run lists: processes and their queues, and mapping as many of them as there are VMIDs and slots.
//! One per XCC.
//!
//! When not all fit, the list is rotated: after each quantum everything is unmapped, and mapping
//! starts at the process after the first one that had its turn. Firmware does so with a list that
//! is chained to its beginning; what does not fit of another one never runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{map_compute, EngineSel, Hws, Keep, MapQueue};
use crate::cp::layout::{map_process as process, run_list};
use crate::cp::mqd::{dw, Mqd};
use crate::cp::packet::{self, op, Header};
use crate::cp::queue::{self, Queue};
use crate::cp::Shared;
use crate::engine::Progress;
use crate::processor::bus::{Binding, DebugWords, Fault, OnFault, View};
use crate::processor::copy::{Filter, RlcQueue, RINGS};
use crate::processor::lock;
use crate::processor::runner::{Job, Task};

/// Time that a process has its VMID for when others wait. MAP_PROCESS.PROCESS_QUANTUM is in 8
/// µs·1000 steps on hardware; the driver always says 10.
const QUANTUM: Duration = Duration::from_millis(10);
/// A turn is at least so many times as long as the change before it.
const SWITCHES_IN_TURN: u32 = 8;
/// Dwords of all indirect buffers of a run list together.
const MAX_DWORDS: u64 = 1 << 20;

/// A process of a run list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    binding: Binding,
    queues: Vec<MapQueue>,
}

/// A run list as the driver gave it.
pub struct Runlist {
    copy: u8,
    processes: Vec<Process>,
    /// The process that is mapped first.
    first: usize,
    /// The queue of it that is mapped first.
    first_queue: usize,
    since: Instant,
    /// How long a turn is: longer where taking waves off and putting them back takes long.
    quantum: Duration,
    /// Chained to its beginning: it is to be begun anew when it is through.
    chained: bool,
    /// Not all of it is mapped, and the others are to have their turns.
    partial: bool,
}

impl Runlist {
    /// Reads the run list that the RUN_LIST packet `body` names.
    pub fn load(shared: &Shared, view: View<'_>, copy: u8, body: &[u32]) -> Result<Self, Fault> {
        let mut processes = Vec::new();
        let start = buffer(body);
        let mut next = Some(start);
        let mut chained = false;
        let mut total = 0;
        while let Some((address, dwords)) = next.take() {
            total += dwords;
            if total > MAX_DWORDS {
                break;
            }
            let ib = view.dwords(address, dwords as usize)?;
            // A run list may be longer than one buffer.
            next = parse(shared, &ib, &mut processes);
            chained = next.is_some_and(|(address, _)| address == start.0);
            if chained {
                break;
            }
        }
        Ok(Runlist {
            copy,
            processes,
            first: 0,
            first_queue: 0,
            since: Instant::now(),
            quantum: QUANTUM,
            chained,
            partial: false,
        })
    }

    /// Counts processes that firmware does not map at once, so that the list would have to be
    /// chained (`amdkfd/kfd_packet_manager.c`, pm_calc_rlib_size). The model maps them.
    pub fn tell_conflicts(&self, shared: &Shared, checks_xnack: bool) {
        if self.chained {
            return;
        }
        let bindings = || self.processes.iter().map(|process| process.binding);
        if bindings().filter(|binding| binding.gws != 0).count() > 1 {
            shared
                .stats
                .count("run list of several processes with GWS that is not chained");
        }
        let has = |wanted: OnFault| bindings().any(|binding| binding.on_fault() == wanted);
        if checks_xnack && has(OnFault::Ends) && has(OnFault::Repeats) {
            shared
                .stats
                .count("run list of both XNACK modes that is not chained");
        }
    }

    /// Whether it has more processes than there are VMIDs, or more compute queues than slots.
    fn exceeds(&self, vmids: u16, slots: u64) -> bool {
        let queues = self.processes.iter().flat_map(|process| &process.queues);
        let compute = queues
            .filter(|map| map.engine == EngineSel::Compute)
            .count();
        self.processes.len() > vmids.count_ones() as usize || compute > slots.count_ones() as usize
    }

    /// Whether it has more SDMA queues of an engine than that has rings for them. A list that is
    /// chained is so for its processes and compute queues (pm_calc_rlib_size): it is none of those.
    fn exceeds_rings(&self) -> bool {
        let mut taken = HashMap::new();
        let queues = self.processes.iter().flat_map(|process| &process.queues);
        queues.for_each(|map| {
            if let EngineSel::Sdma(engine) = map.engine {
                *taken.entry(engine).or_insert(0) += 1;
            }
        });
        taken.into_values().any(|queues| queues > RINGS)
    }

    /// Drops a process.
    pub fn forget(&mut self, pasid: u16) {
        self.processes
            .retain(|process| process.binding.pasid != pasid);
        (self.first, self.first_queue) = (0, 0);
    }

    /// The queues in the order of this turn, with their processes.
    fn order(&self) -> Vec<(Binding, Vec<MapQueue>)> {
        let count = self.processes.len();
        (0..count)
            .map(|at| {
                let Process { binding, queues } = &self.processes[(self.first + at) % count];
                let mut queues = queues.clone();
                if at == 0 && !queues.is_empty() {
                    let turn = self.first_queue % queues.len();
                    queues.rotate_left(turn);
                }
                (*binding, queues)
            })
            .collect()
    }

    /// The next turn begins with the next process; a single one's queues take turns.
    fn rotate(&mut self) {
        let count = self.processes.len().max(1);
        self.first = (self.first + 1) % count;
        if self.first == 0 || count == 1 {
            self.first_queue += 1;
        }
    }
}

/// Address and dwords of the buffer that a RUN_LIST packet names.
const fn buffer(body: &[u32]) -> (u64, u64) {
    let dwords = run_list::IB_SIZE.of(body) as u64;
    (run_list::IB_BASE_LO.wide(body), dwords)
}

/// Collects a buffer's processes; the chained buffer, if there is one.
fn parse(shared: &Shared, ib: &[u32], processes: &mut Vec<Process>) -> Option<(u64, u64)> {
    let mut rest = ib;
    while let [header, after @ ..] = rest {
        let Header::Type3 { op, body: count } = Header::decode(*header) else {
            rest = after;
            continue;
        };
        if count > after.len() {
            shared.stats.count("run list packet beyond its buffer");
            return None;
        }
        let (body, next) = after.split_at(count);
        rest = next;
        let known = packet::find(op);
        tracing::trace!(
            target: "pm4",
            "run list {} {body:x?}",
            known.map_or("illegal", |packet| packet.name)
        );
        let fits = known.is_some_and(|packet| packet.fits(body));
        match (op, processes.last_mut()) {
            (op::MAP_PROCESS, _) if fits => {
                processes.push(Process {
                    binding: binding(body),
                    queues: Vec::new(),
                });
            }
            (op::MAP_QUEUES, Some(process)) if fits => {
                process.queues.push(MapQueue::decode(body));
            }
            (op::RUN_LIST, _) if fits => {
                return run_list::VALID.is_set(body).then(|| buffer(body));
            }
            (op::NOP, _) => {}
            _ => {
                shared.stats.count("run list packet");
                tracing::warn!(header, "run list packet not modelled");
            }
        }
    }
    None
}

/// Bits of an address in units of 256 bytes: ADDR_HI 7:0 of SQ_SHADER_TBA_HI and _TMA_HI.
const ADDRESS: u64 = 0xff_ffff_ffff;

/// MAP_PROCESS: PASID 15:0, page table base, SH_MEM, TBA and TMA in units of 256 bytes, NUM_GWS,
/// what a debugger asks for.
fn binding(body: &[u32]) -> Binding {
    Binding {
        pasid: process::PASID.of(body) as u16,
        page_table_base: process::VM_CONTEXT_PAGE_TABLE_BASE_ADDR_LO32.wide(body),
        sh_mem_bases: process::SH_MEM_BASES.of(body),
        sh_mem_config: process::SH_MEM_CONFIG.of(body),
        tba: (process::SQ_SHADER_TBA_LO.wide(body) & ADDRESS) << 8,
        tma: (process::SQ_SHADER_TMA_LO.wide(body) & ADDRESS) << 8,
        gws: process::NUM_GWS.of(body) as u8,
        cleans: process::EXEC_CLEANER_SHADER.is_set(body),
        debug: DebugWords {
            spi: process::SPI_GDBG_PER_VMID_CNTL.of(body),
            watches: [0, 1, 2, 3].map(|watch| body[process::TCP_WATCH_CNTL.dword + watch]),
            single_memops: process::SINGLE_MEMOPS.is_set(body),
        },
    }
}

/// Maps what fits of the XCC's run list. If not all does, the runner will rotate it.
pub fn map(shared: &Arc<Shared>, hws: &mut Hws, xcc: u8) {
    let Some(runlist) = &hws.runlists[usize::from(xcc)] else {
        return;
    };
    let copy = runlist.copy;
    let mut partial = false;
    for (binding, queues) in runlist.order() {
        let Some(vmid) = hws.acquire(binding.pasid, xcc) else {
            partial = true;
            continue;
        };
        if binding.cleans {
            shared.leftovers.clean(xcc, Some(binding.pasid));
        }
        if binding.gws != 0 {
            lock(&shared.gws).keep(xcc, binding.pasid);
        }
        shared.bus.bind(xcc, vmid, &binding);
        lock(&shared.state).banks[usize::from(xcc)].bind(vmid, &binding);
        for map in queues {
            partial |= !map_queue(shared, hws, xcc, copy, vmid, &binding, &map);
        }
    }
    let at = usize::from(xcc);
    let (vmids, slots) = (hws.vmid_mask[at], hws.queue_mask[at]);
    if let Some(runlist) = &mut hws.runlists[at] {
        if partial && !runlist.chained && runlist.exceeds(vmids, slots) {
            shared
                .stats
                .count("run list that does not fit and is not chained");
            tracing::warn!(xcc, "run list that does not fit and is not chained");
            partial = false;
        } else if partial && !runlist.chained && runlist.exceeds_rings() {
            let what = "run list with more SDMA queues of an engine than it has rings";
            shared.stats.count(what);
            tracing::warn!(xcc, "{what}");
            partial = false;
        }
        runlist.partial = partial;
        runlist.since = Instant::now();
    }
    if partial && !hws.rotating {
        hws.rotating = true;
        shared.runner.wake(&Task::new(Arc::new(Rotate {
            shared: shared.clone(),
        })));
    }
}

/// Maps one queue. False: there is no slot for it.
fn map_queue(
    shared: &Arc<Shared>,
    hws: &Hws,
    xcc: u8,
    copy: u8,
    vmid: u8,
    process: &Binding,
    map: &MapQueue,
) -> bool {
    let engine = match map.engine {
        EngineSel::Compute => None,
        EngineSel::Sdma(engine) => Some(engine),
        EngineSel::Hiq | EngineSel::Gfx => {
            shared.stats.count("MAP_QUEUES of an unknown kind");
            return true;
        }
    };
    if let Some(engine) = engine {
        let MapQueue {
            doorbell,
            mqd,
            wptr,
            ..
        } = *map;
        let queue = RlcQueue {
            mqd,
            wptr,
            doorbell,
            vmid,
            pasid: process.pasid,
            xcc,
        };
        let engine = engine.saturating_add(first_engine(shared, xcc));
        // One of the partition's schedulers is enough.
        return copy != 0 || shared.map_sdma(engine, queue);
    }
    let Some(slot) = shared.free_slot(xcc, hws.queue_mask[usize::from(xcc)]) else {
        return false;
    };
    let mapped = stride(shared, xcc, map.mqd).and_then(|stride| {
        let address = map.mqd + u64::from(copy) * stride;
        map_compute(shared, slot, map, address, |mqd, config| {
            config.kind = queue::kind_of(mqd, copy);
            config.vmid = vmid;
            config.process = *process;
            config.xcc = shared.member(xcc);
            config.is_static = map.is_static;
            config.by_hiq = true;
        })
    });
    if let Err(fault) = mapped {
        tracing::warn!(?slot, %fault, "queue not mapped");
        let space = shared.kernel_view(xcc).space;
        shared.bus.fault(space, 0, fault, OnFault::Ends);
    }
    true
}

/// The first SDMA engine of an XCC's partition: packets count from there. Partitions that are more
/// than the engines share them.
fn first_engine(shared: &Shared, xcc: u8) -> u8 {
    let of = lock(&shared.state).banks[usize::from(xcc)].member().of;
    let first_xcc = u32::from(xcc / of.max(1) * of.max(1));
    (first_xcc * shared.sdma.engines() / u32::from(shared.xccs)) as u8
}

/// The packet names the master XCC's MQD; the others' follow at this distance.
fn stride(shared: &Shared, xcc: u8, mqd: u64) -> Result<u64, Fault> {
    let mqd = Mqd::load(shared.kernel_view(xcc), mqd)?;
    Ok(mqd.get(dw::CP_MQD_STRIDE_SIZE).into())
}

/// Gives the others their turn, for as long as a run list does not fit. At most one exists.
pub struct Rotate {
    shared: Arc<Shared>,
}

impl Job for Rotate {
    fn step(&self) -> Progress {
        // Also for what is done to the answer: who maps a run list holds it.
        let _serial = lock(&self.shared.serial);
        let progress = self.shared.runner.guard(|| self.turn());
        if progress == Progress::Idle {
            lock(&self.shared.hws).rotating = false;
        }
        progress
    }
}

impl Rotate {
    fn turn(&self) -> Progress {
        let mut hws = lock(&self.shared.hws);
        let is_partial = |runlist: &Option<Runlist>| runlist.as_ref().is_some_and(|at| at.partial);
        if !hws.runlists.iter().any(is_partial) {
            return Progress::Idle;
        }
        for xcc in 0..self.shared.xccs {
            let Some(runlist) = &mut hws.runlists[usize::from(xcc)] else {
                continue;
            };
            if !runlist.partial
                || runlist.since.elapsed() < runlist.quantum
                || self.shared.has_stuck(xcc)
            {
                continue;
            }
            runlist.rotate();
            let began = Instant::now();
            let dynamic = |queue: &Queue| {
                let ours = queue.by_hiq && queue.slot.xcc == xcc;
                ours && !queue.is_static && !queue.is_abandoned()
            };
            for slot in self.shared.mapped_slots(dynamic) {
                self.shared.unmap(slot, Keep::Flight);
            }
            self.shared.sdma.unmap(Some(xcc), Filter::All, true);
            hws.release(xcc, None);
            map(&self.shared, &mut hws, xcc);
            if let Some(runlist) = &mut hws.runlists[usize::from(xcc)] {
                runlist.quantum = QUANTUM.max(began.elapsed() * SWITCHES_IN_TURN);
            }
        }
        Progress::Polling
    }
}
