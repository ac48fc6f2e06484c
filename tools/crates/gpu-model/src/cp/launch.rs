// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A dispatch in flight on one XCC: which work-groups have started, which are live, and running
//! them in turn. One per queue slot.
//!
//! A group runs until it ends or uses up its turn; then another one starts, as long as the compute
//! units have room. So short groups come and go one by one, and groups that wait for each other all
//! get to run. The first slice is the calling thread's own; what lives longer is run by all of the
//! [`Crew`].

pub mod place;
mod settle;
pub mod shape;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gcn::wave::status;
use gcn::{CodeCache, Dispatch, GwsRequest, Scratch, Target, Workgroup};

use super::crew::Crew;
use super::debug::Control;
use super::layout::{sh_mem_alignment_mode, sh_mem_config};
use super::queue::Queue;
use crate::limited::warn_limited;
use place::Places;

pub use settle::{message_of, settle, Turn, MSG_SAVEWAVE};
pub use shape::{Shape, Share};

/// Instructions of a group's turn.
const TURN: u64 = 4096;
/// Instructions of a slice, for each thread that runs it.
const SLICE: u64 = 32 * 1024;
/// A turn of no more instructions than this was spent on asking for pages.
const MANY_WAVES: u64 = 16;

/// Scratch backing of a dispatch: a slot for each wave in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScratchRing {
    /// Where it is.
    pub base: u64,
    /// Bytes of a wave.
    pub wave_bytes: u64,
    /// Waves it has room for; 0 if the dispatch has no scratch.
    pub waves: u32,
}

/// A group that has started and not ended.
pub struct Live {
    /// The group.
    pub group: Workgroup,
    /// Its place: a number below [`Places::slots`].
    pub slot: u32,
    /// Its compute unit.
    pub unit: u16,
    /// Waves that wait for the global wave sync: which, what for, and their tickets.
    pub gws: Vec<(usize, GwsRequest, u64)>,
    /// Its waves were launched to restore themselves, and may not have done with it.
    pub restoring: bool,
}

impl Live {
    /// Whether waves of it still read what was saved of them: in the trap handler, where restored
    /// waves begin.
    pub fn is_restoring(&mut self) -> bool {
        let in_handler = |wave: &gcn::Wave| {
            wave.state != gcn::WaveState::Ended && wave.status & status::PRIV != 0
        };
        self.restoring &= self.group.waves.iter().any(in_handler);
        self.restoring
    }
}

/// A group whose waves are in the context save area; the order is that of the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Its place.
    pub slot: u32,
    /// Numbers of its waves that had not ended.
    pub waves: Vec<u32>,
}

/// What a slice of a dispatch came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All groups have ended.
    Done,
    /// There is more to run.
    Running,
    /// All groups that have started wait for pages.
    Waiting,
    /// All groups that have started are halted, and there is no room for others.
    Halted,
    /// It cannot go on.
    Hung(String),
}

/// What is where.
#[derive(Default)]
struct Board {
    /// Groups of the XCC's share that have started.
    started: u64,
    live: VecDeque<Live>,
    free: VecDeque<u32>,
    /// Turns in a row that found nothing but halted groups.
    halted: usize,
    /// Turns in a row that found nothing but waves that wait for pages.
    waiting: usize,
    hung: Option<String>,
}

/// A dispatch to be made.
pub struct Order {
    /// Code and registers.
    pub dispatch: Dispatch,
    /// The whole grid.
    pub shape: Shape,
    /// Its part that this XCC runs.
    pub share: Share,
    /// Scratch.
    pub scratch: ScratchRing,
    /// Where the packet is in the ring (AQL: packets), for the debugger's TTMP11.
    pub packet: u64,
    /// COMPUTE_STATIC_THREAD_MGMT_SE0 to 3: the compute units it may use.
    pub cu_masks: [u32; 4],
}

/// Counts a process whose waves would not do on hardware what they do here: unaligned accesses
/// work in any mode, and the 8-bit floats of gfx942 are always those of F8_MODE. Drivers set both
/// for all processes (`amdkfd/kfd_device_queue_manager_v9.c`, update_qpd_v9).
fn tell_settings(queue: &Queue) {
    let (shared, config) = (&queue.shared, queue.process.sh_mem_config);
    let is_aligned = sh_mem_config::ALIGNMENT_MODE.pick(config) != sh_mem_alignment_mode::UNALIGNED;
    let has_f8_mode = shared.bus.cores().target == Target::Gfx942;
    if queue.space.vmid != 0 && is_aligned {
        shared
            .stats
            .count("dispatch with SH_MEM_CONFIG.ALIGNMENT_MODE other than UNALIGNED");
    }
    if queue.space.vmid != 0 && has_f8_mode && sh_mem_config::F8_MODE.pick(config) == 0 {
        shared.stats.count("dispatch without SH_MEM_CONFIG.F8_MODE");
    }
}

/// A dispatch in flight.
pub struct Launch {
    order: Order,
    places: Places,
    /// Groups of the XCC's share.
    groups: u64,
    board: Board,
    /// Groups in the context save area.
    parked: Vec<Parked>,
    /// A slice has been run: it is not a short one.
    warm: bool,
}

impl Launch {
    /// Prepares to run `order` on the queue's XCC.
    pub fn new(queue: &Queue, mut order: Order) -> Self {
        tell_settings(queue);
        let lds = order.dispatch.lds_bytes;
        let cores = queue.shared.bus.cores();
        order.dispatch.lds_bytes = lds.next_multiple_of(cores.target.lds_granule());
        let places = Places::new(cores, order.cu_masks, &order.dispatch).unwrap_or_else(|| {
            let (stats, slot) = (&queue.shared.stats, queue.slot);
            stats.count("CU mask that leaves an XCC nothing");
            let masks = order.cu_masks;
            warn_limited!(
                stats.limited,
                slot.number(),
                ?slot,
                ?masks,
                "CU mask ignored"
            );
            Places::one(cores.target, &order.dispatch)
        });
        let waves = order.dispatch.waves().max(1);
        let room = match order.scratch.waves {
            0 => u32::MAX,
            waves_with_scratch => (waves_with_scratch / waves).max(1),
        };
        let free = (0..places.slots().min(room)).collect();
        let groups = count(&order.shape, order.share);
        Launch {
            order,
            places,
            groups,
            board: Board {
                free,
                ..Board::default()
            },
            parked: Vec::new(),
            warm: false,
        }
    }

    /// The dispatch.
    pub fn dispatch(&self) -> &Dispatch {
        &self.order.dispatch
    }

    /// Scratch.
    pub fn scratch(&self) -> ScratchRing {
        self.order.scratch
    }

    /// The compute unit of a place.
    pub fn unit(&self, slot: u32) -> u16 {
        self.places.unit(slot)
    }

    /// Groups that have started and not ended.
    pub fn live(&mut self) -> &mut VecDeque<Live> {
        &mut self.board.live
    }

    /// Groups in the context save area.
    pub fn parked(&self) -> &[Parked] {
        &self.parked
    }

    /// All live groups go from their compute units.
    pub fn leave(&self, queue: &Queue) {
        for live in &self.board.live {
            queue.leave(live.unit, &live.group);
        }
    }

    /// Drops groups that have ended since they ran last: somebody killed their waves.
    pub fn sweep(&mut self, queue: &Queue) {
        let Board { live, free, .. } = &mut self.board;
        live.retain(|live| {
            let ended = live.group.is_done();
            if ended {
                queue.leave(live.unit, &live.group);
                free.push_back(live.slot);
            }
            !ended
        });
    }

    /// All live groups are in the context save area now.
    pub fn park(&mut self, queue: &Queue, parked: Vec<Parked>) {
        self.leave(queue);
        self.parked = parked;
        self.board.live.clear();
    }

    /// They are back.
    pub fn unpark(&mut self, live: impl IntoIterator<Item = Live>) {
        self.parked.clear();
        self.board.live.extend(live);
        self.board.halted = 0;
    }

    /// Runs a slice.
    pub fn step(&mut self, queue: &Queue, codes: &mut [CodeCache]) -> State {
        self.board.halted = 0;
        self.board.waiting = 0;
        let together = match &queue.shared.crew {
            Some(crew) if self.warm && self.width() > 1 => Some(crew),
            _ => None,
        };
        let run = Run {
            queue,
            order: &self.order,
            places: &self.places,
            groups: self.groups,
            control: queue.control(),
            board: Mutex::new(std::mem::take(&mut self.board)),
        };
        match together {
            Some(crew) => run.together(crew, codes),
            None => run.slice(&mut codes[0]),
        }
        let stalled = run.control.is_stalled();
        self.board = run
            .board
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        self.warm = true;
        match &self.board.hung {
            Some(why) => State::Hung(why.clone()),
            None if self.width() == 0 && self.parked.is_empty() => State::Done,
            None if stalled && self.board.live.is_empty() => State::Waiting,
            None if self.board.is_halted() => State::Halted,
            None if self.board.is_waiting() => State::Waiting,
            None => State::Running,
        }
    }

    /// How many groups could run at the same time, up to two.
    fn width(&self) -> u64 {
        self.board.live.len() as u64 + (self.groups - self.board.started)
    }
}

/// How many groups of a grid are in a share.
fn count(shape: &Shape, share: Share) -> u64 {
    let all = shape.groups();
    // Chunks go round: no share has more than the first, and each is found by bisection.
    let (mut low, mut high) = (0, all);
    while low < high {
        let middle = low + (high - low) / 2;
        if share.group(middle) < all {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Board {
    fn is_halted(&self) -> bool {
        !self.live.is_empty() && self.halted >= self.live.len()
    }

    /// Nothing to do but to ask for pages again, which the next slice does, after a pause.
    fn is_waiting(&self) -> bool {
        self.waiting > 0 && self.waiting + self.halted >= self.live.len()
    }
}

/// A slice being run.
struct Run<'a> {
    queue: &'a Queue,
    order: &'a Order,
    places: &'a Places,
    groups: u64,
    /// How its waves are debugged now.
    control: Control,
    board: Mutex<Board>,
}

impl Run<'_> {
    /// All threads of the crew run slices of it.
    fn together(&self, crew: &Crew, codes: &mut [CodeCache]) {
        crew.run(codes, |code| self.slice(code));
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One thread's slice: groups in turn until there is none for it, or it has run for long
    /// enough.
    fn slice(&self, code: &mut CodeCache) {
        let mut left = SLICE;
        while left > 0 && !self.queue.should_stop() {
            let Some(mut live) = self.next() else {
                return;
            };
            live.group.debug = self.control.debug;
            let before = live.group.executed;
            let outcome = self.queue.as_wave(live.unit, |memory| {
                live.group.run(memory, code, TURN.min(left))
            });
            let spent = live.group.executed.saturating_sub(before).max(1);
            left = left.saturating_sub(spent);
            live.is_restoring();
            let turn = match settle(self.queue, &mut live, code, outcome) {
                Turn::Waits if spent > MANY_WAVES => Turn::On,
                turn => turn,
            };
            self.put_back(live, turn);
        }
    }

    fn put_back(&self, live: Live, turn: Turn) {
        let mut board = self.board();
        if !matches!(turn, Turn::Halted | Turn::Waits) {
            (board.halted, board.waiting) = (0, 0);
        }
        match turn {
            Turn::Done => {
                self.queue.leave(live.unit, &live.group);
                tracing::trace!(target: "wave", "{:?} ends {} {}", self.queue.slot, live.unit,
                    live.slot);
                return board.free.push_back(live.slot);
            }
            Turn::On => {}
            Turn::Halted => board.halted += 1,
            Turn::Waits => board.waiting += 1,
            Turn::Hung(why) => drop(board.hung.get_or_insert(why)),
        }
        board.live.push_back(live);
    }

    /// A new group if there is one and room for it, else the one whose turn it is.
    fn next(&self) -> Option<Live> {
        let mut board = self.board();
        if board.hung.is_some() {
            return None;
        }
        if board.started < self.groups && !self.control.is_stalled() {
            if let Some(slot) = board.free.pop_front() {
                let index = board.started;
                board.started += 1;
                drop(board);
                return Some(self.start(index, slot));
            }
        }
        if board.is_halted() || board.is_waiting() {
            return None;
        }
        board.live.pop_front()
    }

    fn start(&self, index: u64, slot: u32) -> Live {
        let Order {
            dispatch,
            shape,
            share,
            scratch,
            packet,
            ..
        } = self.order;
        let (id, size) = shape.group(share.group(index));
        // A user writes where it lies: an address that wraps is one that faults.
        let group_bytes = u64::from(dispatch.waves()).wrapping_mul(scratch.wave_bytes);
        let scratch = Scratch {
            base: scratch
                .base
                .wrapping_add(u64::from(slot).wrapping_mul(group_bytes)),
            wave_bytes: scratch.wave_bytes,
            ring: scratch.base,
        };
        let mut group = dispatch.workgroup(id, size, scratch);
        let queue = self.queue;
        for (index, wave) in (0..).zip(&mut group.waves) {
            self.places
                .identify(queue, slot, index, dispatch.waves(), wave);
            self.control.launch(wave, id, *packet as u32);
        }
        let waves = group.waves.len();
        queue.shared.stats.work("waves launched", waves as u64);
        let unit = self.places.unit(slot);
        queue.find_left(unit, &mut group);
        tracing::trace!(target: "wave", "{:?} starts {unit} {slot} {id:?} {waves}", queue.slot);
        Live {
            group,
            slot,
            unit,
            gws: Vec::new(),
            restoring: false,
        }
    }
}

impl Launch {
    /// Waves in flight on each shader engine.
    pub fn waves(&self) -> [u32; 4] {
        let mut counts = [0; 4];
        for live in &self.board.live {
            let waves = live.group.waves.iter();
            let waves = waves.filter(|wave| wave.state != gcn::WaveState::Ended);
            counts[usize::from(live.unit >> 8) % 4] += waves.count() as u32;
        }
        counts
    }

    /// Makes a wave that is launched again read where it is now.
    pub fn identify(&self, queue: &Queue, slot: u32, index: u32, wave: &mut gcn::Wave) {
        let waves = self.order.dispatch.waves();
        self.places.identify(queue, slot, index, waves, wave);
    }
}

impl Places {
    fn identify(&self, queue: &Queue, slot: u32, index: u32, waves: u32, wave: &mut gcn::Wave) {
        wave.number = index;
        wave.xcc_id = queue.xcc.index.into();
        wave.hw_id = self.hw_id(queue.slot, queue.space.vmid, slot, index, waves);
    }
}
