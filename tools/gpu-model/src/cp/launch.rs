// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A dispatch in flight: which work-groups have started, which are live, and running them in turn. One per queue.
//!
//! A group runs until it ends or uses up its turn; then another one starts, as long as the GPU could hold it. So
//! short groups come and go one by one, and groups that wait for each other all get to run.

use std::collections::VecDeque;

use gcn::{CodeCache, Dispatch, Outcome, Scratch, Workgroup};

use super::queue::Queue;

/// Instructions of a group's turn and of a slice.
const TURN: u64 = 4096;
const SLICE: u64 = 32 * 1024;
/// Waves in flight: 32 in each of 80 compute units.
const MAX_WAVES: u32 = 2560;
/// s_sendmsg messages of gfx9.
const MSG_INTERRUPT: u16 = 1;
const MSG_GET_DOORBELL: u16 = 10;

/// The grid in work-groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// First group of each dimension.
    pub start: [u32; 3],
    /// End (exclusive) of each dimension.
    pub end: [u32; 3],
    /// Work-items of a full group.
    pub size: [u32; 3],
    /// Work-items of the last group of each dimension.
    pub last: [u32; 3],
}

impl Shape {
    /// A grid of `items` work-items in groups of `size`; both at least 1 in each dimension.
    pub fn of_items(items: [u32; 3], size: [u32; 3]) -> Self {
        let groups = |d: usize| items[d].div_ceil(size[d]);
        let last = |d: usize| items[d] - (groups(d).max(1) - 1) * size[d];
        Shape {
            start: [0; 3],
            end: [0, 1, 2].map(groups),
            size,
            last: [0, 1, 2].map(last),
        }
    }

    /// How many groups there are.
    pub fn groups(&self) -> u64 {
        (0..3)
            .map(|d| u64::from(self.end[d].saturating_sub(self.start[d])))
            .product()
    }

    /// Id and size of the `index`-th group, x fastest.
    fn group(&self, index: u64) -> ([u32; 3], [u32; 3]) {
        let mut rest = index;
        let mut id = [0; 3];
        let mut size = self.size;
        for d in 0..3 {
            let count = u64::from((self.end[d] - self.start[d]).max(1));
            id[d] = self.start[d] + (rest % count) as u32;
            rest /= count;
            if id[d] + 1 == self.end[d] {
                size[d] = self.last[d];
            }
        }
        (id, size)
    }
}

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

struct Live {
    group: Workgroup,
    slot: u32,
}

/// What a slice of a dispatch came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All groups have ended.
    Done,
    /// There is more to run.
    Running,
    /// It cannot go on.
    Hung(String),
}

/// A dispatch in flight.
pub struct Launch {
    dispatch: Dispatch,
    shape: Shape,
    scratch: ScratchRing,
    started: u64,
    live: VecDeque<Live>,
    free: Vec<u32>,
}

impl Launch {
    /// Prepares to run `dispatch` over `shape`.
    pub fn new(dispatch: Dispatch, shape: Shape, scratch: ScratchRing) -> Self {
        let waves = dispatch.waves().max(1);
        let room = if scratch.waves == 0 {
            MAX_WAVES
        } else {
            scratch.waves.min(MAX_WAVES)
        };
        let slots = (room / waves).max(1);
        let free = (0..slots).rev().collect();
        Launch {
            dispatch,
            shape,
            scratch,
            started: 0,
            live: VecDeque::new(),
            free,
        }
    }

    /// Runs a slice.
    pub fn step(&mut self, queue: &Queue, code: &mut CodeCache) -> State {
        let mut left = SLICE;
        while left > 0 && !queue.should_stop() {
            let Some(mut live) = self.next(queue) else {
                return State::Done;
            };
            let before = live.group.executed;
            let outcome = live.group.run(&mut queue.view(), code, TURN.min(left));
            let spent = live.group.executed.saturating_sub(before).max(1);
            left = left.saturating_sub(spent);
            match settle(queue, &mut live.group, outcome) {
                Ok(true) => self.free.push(live.slot),
                Ok(false) => self.live.push_back(live),
                Err(why) => {
                    self.live.push_back(live);
                    return State::Hung(why);
                }
            }
        }
        State::Running
    }

    /// A new group if there is one and room for it, else the one whose turn it is.
    fn next(&mut self, queue: &Queue) -> Option<Live> {
        if self.started < self.shape.groups() {
            if let Some(slot) = self.free.pop() {
                return Some(self.start(queue, slot));
            }
        }
        self.live.pop_front()
    }

    fn start(&mut self, queue: &Queue, slot: u32) -> Live {
        let (id, size) = self.shape.group(self.started);
        self.started += 1;
        let group_bytes = u64::from(self.dispatch.waves()) * self.scratch.wave_bytes;
        let scratch = Scratch {
            base: self.scratch.base + u64::from(slot) * group_bytes,
            wave_bytes: self.scratch.wave_bytes,
        };
        let mut group = self.dispatch.workgroup(id, size, scratch);
        for (index, wave) in (0..).zip(&mut group.waves) {
            wave.xcc_id = queue.slot.xcc.into();
            wave.hw_id = hw_id(queue, slot, index);
        }
        Live { group, slot }
    }
}

/// HW_ID: WAVE_ID 3:0, SIMD_ID 5:4, PIPE_ID 7:6, CU_ID 11:8, VM_ID 23:20, QUEUE_ID 26:24, ME_ID 31:30.
fn hw_id(queue: &Queue, slot: u32, wave: u32) -> u32 {
    let me = queue.slot;
    (wave >> 2 & 0xf)
        | (wave & 3) << 4
        | u32::from(me.pipe & 3) << 6
        | (slot & 0xf) << 8
        | u32::from(queue.space.vmid & 0xf) << 20
        | u32::from(me.queue & 7) << 24
        | u32::from(me.me & 3) << 30
}

/// Acts on what a turn came to. True: the group is done. Err: it can never go on.
fn settle(queue: &Queue, group: &mut Workgroup, outcome: Outcome) -> Result<bool, String> {
    match outcome {
        Outcome::Done => return Ok(true),
        Outcome::Budget => {}
        Outcome::Halted => return Err("all waves of a work-group are halted".into()),
        Outcome::Message { wave, message, m0 } => message_of(queue, group, wave, message, m0),
        // No trap handler: hardware goes on after the s_trap.
        Outcome::Trap { id, pc, .. } => {
            queue.shared.stats.count("s_trap without a trap handler");
            tracing::warn!(slot = ?queue.slot, id, pc, "s_trap ignored");
        }
        Outcome::Gws { request, .. } => {
            queue.shared.stats.count("GWS");
            return Err(format!("global wave sync is not modelled: {request:?}"));
        }
        Outcome::Fault { pc, fault, .. } => {
            tracing::warn!(slot = ?queue.slot, pc, %fault, "wave stopped");
            queue
                .shared
                .bus
                .fault(queue.space, queue.process.pasid, fault);
            return Err(fault.to_string());
        }
        Outcome::Error { wave, pc, error } => {
            queue
                .shared
                .stats
                .count("illegal or unmodelled instruction");
            tracing::error!(slot = ?queue.slot, pc, %error, "wave stopped");
            return illegal_instruction(queue, group, wave).ok_or_else(|| error.to_string());
        }
    }
    Ok(false)
}

fn message_of(queue: &Queue, group: &mut Workgroup, wave: usize, message: u16, m0: u32) {
    match message & 0xf {
        MSG_INTERRUPT => {
            let privileged = group.waves[wave].status & gcn::wave::status::PRIV != 0;
            queue
                .shared
                .sq_interrupt(queue, super::SqInterrupt::Wave { privileged }, m0);
        }
        // The answer comes in EXEC_LO, bit 31 clear: trap handlers wait for that.
        MSG_GET_DOORBELL => {
            group.waves[wave].scalar[gcn::wave::sreg::EXEC] = queue.hqd.doorbell() & 0x3ff;
        }
        _ => {
            queue.shared.stats.count("s_sendmsg");
            tracing::warn!(slot = ?queue.slot, message, m0, "message not modelled");
        }
    }
}

/// Tells the trap handler, if there is one (and it is not itself the culprit), else the driver.
fn illegal_instruction(queue: &Queue, group: &mut Workgroup, wave: usize) -> Option<bool> {
    let wave = &mut group.waves[wave];
    let in_handler = wave.status & gcn::wave::status::PRIV != 0;
    wave.trapsts |= gcn::wave::trapsts::ILLEGAL_INST;
    if !in_handler && wave.enter_trap(0, false) {
        return Some(false);
    }
    const ILLEGAL_INST: u32 = 1;
    queue
        .shared
        .sq_interrupt(queue, super::SqInterrupt::Error, ILLEGAL_INST << 20);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_edge_of_a_grid_has_smaller_groups() {
        let shape = Shape::of_items([130, 3, 1], [64, 2, 1]);
        assert_eq!(shape.groups(), 6);
        assert_eq!(shape.group(0), ([0, 0, 0], [64, 2, 1]));
        assert_eq!(shape.group(2), ([2, 0, 0], [2, 2, 1]));
        assert_eq!(shape.group(5), ([2, 1, 0], [2, 1, 1]));
    }
}
