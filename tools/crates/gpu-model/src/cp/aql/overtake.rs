// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A dispatch that overtakes the one before it (hostile mode). One per queue slot.
//!
//! A packet without the barrier bit may begin before those before it are done, and be done before
//! them (HSA runtime specification, the packet header's barrier bit). So the next dispatch gets
//! some slices ahead of the present one, and then they run in turn: neither may rely on the other
//! to wait or to go on.

use super::{complete_slot, dispatch, fences, fetch, kind, tell, Pending};
use crate::cp::launch::Launch;
use crate::cp::queue::{Body, Queue};
use crate::cp::signal::Signal;
use crate::engine::Progress;
use crate::processor::bus::{wide, Fault};
use crate::processor::packet::field;

/// Slices that it runs alone.
const HEAD_START: u32 = 64;

/// The dispatch in the next slot.
pub struct Ahead {
    pending: Pending,
    /// None: it is done.
    launch: Option<Box<Launch>>,
    slices: u32,
}

/// The barrier bit of a packet's header.
const fn has_barrier(packet: &[u32]) -> bool {
    field(packet[0], 8, 1) != 0
}

/// A dispatch begins: perhaps the next one overtakes it.
pub fn consider(queue: &Queue, body: &mut Body) -> Result<(), Fault> {
    let may = queue.shared.bus.hostile().is_some_and(|it| it.one_in(2));
    // Dispatches share the places of their scratch; sharing counters of the global wave sync and
    // grids with other XCCs needs an order.
    let scratch = |launch: &Launch| launch.scratch().waves != 0;
    let alone = queue.team.is_none() && queue.process.gws == 0;
    let present = body.flight.launch.as_deref().is_some_and(|it| !scratch(it));
    if !may || !alone || !present || body.rptr + 1 >= queue.wptr() {
        return Ok(());
    }
    let packet = fetch(queue, body.rptr + 1)?;
    if packet[0] & 0xff != kind::KERNEL_DISPATCH || has_barrier(&packet) {
        return Ok(());
    }
    body.rptr += 1;
    let at = super::address(queue, body.rptr);
    let launch = dispatch::launch(queue, body, at, &packet);
    body.rptr -= 1;
    let Some(launch) = launch?.ok().filter(|launch| !scratch(launch)) else {
        return Ok(());
    };
    fences::acquire(queue, body, packet[0]);
    queue
        .shared
        .stats
        .work("dispatches that overtook another", 1);
    let pending = Pending {
        signal: Signal::of(wide(packet[14], packet[15])),
        start: queue.shared.bus.realtime(),
        inactive: None,
        shared: false,
        header: packet[0],
    };
    body.flight.ahead = Some(Box::new(Ahead {
        pending,
        launch: Some(launch),
        slices: 0,
    }));
    Ok(())
}

/// Runs a slice of it if it is its turn. None: it is the other one's.
pub fn step(queue: &Queue, body: &mut Body) -> Result<Option<Progress>, Fault> {
    let Some(mut ahead) = body.flight.ahead.take() else {
        return Ok(None);
    };
    let its_turn = || {
        let hostile = queue.shared.bus.hostile();
        ahead.slices < HEAD_START || hostile.is_none_or(|it| it.one_in(2))
    };
    if ahead.launch.is_none() || !its_turn() {
        body.flight.ahead = Some(ahead);
        return Ok(None);
    }
    ahead.slices += 1;
    std::mem::swap(&mut body.flight.launch, &mut ahead.launch);
    let progress = body.step_launch(queue);
    std::mem::swap(&mut body.flight.launch, &mut ahead.launch);
    let (done, pending) = (progress.is_none(), ahead.pending);
    body.flight.ahead = Some(ahead);
    if done {
        fences::release(queue, pending.header);
        complete_slot(queue, body.rptr + 1)?;
        tell(queue, pending)?;
    }
    // A dispatch that waits lets the other one run.
    Ok(progress.filter(|progress| *progress == Progress::Busy))
}

/// The packet before it is done: it is the present one now, or done as well.
pub fn follow(queue: &Queue, body: &mut Body) {
    let Some(ahead) = body.flight.ahead.take() else {
        return;
    };
    match ahead.launch {
        Some(launch) => {
            body.flight.launch = Some(launch);
            body.flight.aql = Some(ahead.pending);
        }
        None => {
            let next = body.rptr + 1;
            queue.advance(body, next);
        }
    }
}

impl Ahead {
    /// Its dispatch, if it is not done.
    pub fn launch(&mut self) -> Option<&mut Launch> {
        self.launch.as_deref_mut()
    }
}
