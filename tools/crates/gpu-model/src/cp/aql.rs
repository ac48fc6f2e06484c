// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Executing AQL packets of a user's queue: one at a time and in order, whatever the barrier bit
//! allows, except in hostile mode ([`overtake`]).
//!
//! On several XCCs the partition's first one is the master: it goes through the packets, and all
//! run their shares of a dispatch ([`super::team`]). A packet is done when its kernel has ended:
//! then its slot is handed back (header INVALID, read index), and its completion signal goes down
//! by one. Packet layouts: HSA runtime specification 1.2, chapter 2.8, and ROCr's vendor packets
//! (`hsa_ven_amd_aqlprofile.h`, `hsa_ext_amd.h`).

mod dispatch;
mod error;
mod fences;
pub mod overtake;

use std::sync::Arc;

use super::packet::Header;
use super::pm4;
use super::queue::{Body, Ib, Queue};
use super::signal::Signal;
use super::team::Team;
use super::SOURCE_END_OF_PIPE;
use crate::engine::Progress;
use crate::processor::bus::{wide, Fault};
use crate::processor::packet::{compare, field};
pub use error::PacketError;

/// Dwords of a packet.
pub const PACKET_DWORDS: u64 = 16;
/// The vendor's format that points to PM4 packets (AMD_AQL_FORMAT_PM4_IB).
const FORMAT_PM4: u32 = 1;
/// Packets of one slice.
const SLICE_PACKETS: usize = 256;

/// Packet types (header 7:0).
mod kind {
    pub const VENDOR_SPECIFIC: u32 = 0;
    pub const INVALID: u32 = 1;
    pub const KERNEL_DISPATCH: u32 = 2;
    pub const BARRIER_AND: u32 = 3;
    pub const BARRIER_OR: u32 = 5;
}

/// A packet being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its completion signal.
    signal: Option<Signal>,
    /// When it began.
    start: u64,
    /// The queue stopped at it with an error that the runtime may lift: wait for this signal to be
    /// 0.
    inactive: Option<Signal>,
    /// The partition's other XCCs have a part in it.
    shared: bool,
    /// Its header, for what it releases.
    header: u32,
}

/// What a packet asks for.
enum Action {
    /// Nothing (more): it is complete.
    Complete,
    /// It waits for signals or to be written.
    Wait,
    /// A kernel or an indirect buffer was put in flight.
    Started,
}

/// Runs a slice of an AQL queue.
pub fn step(queue: &Queue, body: &mut Body) -> Progress {
    for _ in 0..SLICE_PACKETS {
        if body.flight.hung.is_some() {
            return Progress::Idle;
        }
        match overtake::step(queue, body) {
            Ok(None) => {}
            Ok(Some(progress)) => return progress,
            Err(fault) => {
                queue.fault(body, fault);
                continue;
            }
        }
        if let Some(progress) = pm4::step_flight(queue, body) {
            return progress;
        }
        if queue.should_stop() {
            return Progress::Busy;
        }
        let stepped = match &queue.team {
            Some(team) if queue.xcc.is_follower() => follow(queue, body, team),
            _ => step_packet(queue, body),
        };
        match stepped {
            Ok(None) => {}
            Ok(Some(progress)) => return progress,
            Err(fault) => queue.fault(body, fault),
        }
    }
    Progress::Busy
}

/// Barrier packets that a doorbell's own thread executes.
const QUICK_PACKETS: usize = 16;

/// Executes the barriers that are next, for who rings the doorbell: they take less time than waking
/// another thread. False: there is more to do.
pub fn quick(queue: &Queue, body: &mut Body) -> bool {
    for _ in 0..QUICK_PACKETS {
        if body.flight.hung.is_some() {
            return true;
        }
        if queue.should_stop() || body.flight.launch.is_some() || !body.flight.ibs.is_empty() {
            return false;
        }
        if body.flight.aql.is_none() {
            if body.rptr >= queue.wptr() {
                return true;
            }
            match queue.view().read32(address(queue, body.rptr)) {
                Ok(header) if matches!(header & 0xff, kind::BARRIER_AND | kind::BARRIER_OR) => {}
                _ => return false,
            }
        }
        match step_packet(queue, body) {
            Ok(None) => {}
            Ok(Some(Progress::Idle)) => return true,
            Ok(Some(_)) => return false,
            Err(fault) => queue.fault(body, fault),
        }
    }
    false
}

/// Completes the packet in flight or begins the next one. None: go on.
fn step_packet(queue: &Queue, body: &mut Body) -> Result<Option<Progress>, Fault> {
    if let Some(pending) = body.flight.aql {
        if let Some(signal) = pending.inactive {
            if signal.value(queue.view())? != 0 {
                return Ok(Some(Progress::Polling));
            }
            body.flight.aql = None;
            return Ok(None);
        }
        if pending.shared && !is_done_by_all(queue, body.rptr) {
            return Ok(Some(Progress::Polling));
        }
        complete(queue, body, pending)?;
        return Ok(None);
    }
    if body.rptr >= queue.wptr() {
        return Ok(Some(Progress::Idle));
    }
    let packet = fetch(queue, body.rptr)?;
    let pending = Pending {
        signal: Signal::of(wide(packet[14], packet[15])),
        start: queue.shared.bus.realtime(),
        inactive: None,
        shared: is_shared(&packet),
        header: packet[0],
    };
    match begin(queue, body, &packet)? {
        Ok(Action::Wait) => Ok(Some(Progress::Polling)),
        Ok(Action::Complete | Action::Started) => {
            fences::acquire(queue, body, packet[0]);
            body.flight.aql = Some(pending);
            if let (true, Some(team)) = (pending.shared, &queue.team) {
                // Doorbells reach the followers first, and whether they find the master here yet is
                // a matter of time.
                team.wake(queue.xcc, queue.shared.runner());
            }
            overtake::consider(queue, body)?;
            Ok(None)
        }
        Err(error) => {
            error.raise(queue, body)?;
            Ok(None)
        }
    }
}

/// Whether each XCC of a partition has a part in the packet.
fn is_shared(packet: &[u32]) -> bool {
    match packet[0] & 0xff {
        kind::KERNEL_DISPATCH => true,
        kind::VENDOR_SPECIFIC => field(packet[0], 16, 8) == FORMAT_PM4,
        _ => false,
    }
}

/// Whether the partition's other XCCs are done with their parts of the packet.
fn is_done_by_all(queue: &Queue, packet: u64) -> bool {
    let done = |team: &Arc<Team>| team.is_done(queue.xcc.of, packet);
    queue.team.as_ref().is_none_or(done)
}

/// A follower's step: does its part of the packet that the master is at. None: go on.
fn follow(queue: &Queue, body: &mut Body, team: &Team) -> Result<Option<Progress>, Fault> {
    if body.flight.aql.take().is_some() {
        tracing::trace!(target: "aql", "{:?} {} done", queue.slot, body.rptr);
        let next = body.rptr + 1;
        queue.advance(body, next);
        team.report(queue.xcc, next);
        team.wake(queue.xcc, queue.shared.runner());
        return Ok(None);
    }
    let Some(completed) = team.completed() else {
        return Ok(Some(Progress::Idle));
    };
    if body.rptr < completed {
        queue.advance(body, completed);
        team.report(queue.xcc, completed);
    }
    // The master wakes it when it begins another packet.
    if body.rptr > completed || body.rptr >= queue.wptr() {
        return Ok(Some(Progress::Idle));
    }
    let packet = fetch(queue, body.rptr)?;
    if team.completed() != Some(body.rptr) {
        // The slot may have been used again while it was read.
        return Ok(None);
    }
    if packet[0] & 0xff == kind::INVALID {
        return Ok(Some(Progress::Polling));
    }
    if !is_shared(&packet) {
        return Ok(Some(Progress::Idle));
    }
    match begin(queue, body, &packet)? {
        Ok(_) => {
            fences::acquire(queue, body, packet[0]);
            body.flight.aql = Some(Pending {
                signal: None,
                start: 0,
                inactive: None,
                shared: true,
                header: packet[0],
            });
            Ok(None)
        }
        // The master says so, and comes back to the packet when the runtime has seen to it.
        Err(_) => Ok(Some(Progress::Polling)),
    }
}

fn fetch(queue: &Queue, packet: u64) -> Result<Vec<u32>, Fault> {
    queue
        .view()
        .dwords(address(queue, packet), PACKET_DWORDS as usize)
}

/// Address of a packet.
fn address(queue: &Queue, index: u64) -> u64 {
    let place = index % queue.hqd.ring_packets() * PACKET_DWORDS * 4;
    queue.hqd.ring_base().wrapping_add(place)
}

/// Begins the packet at the read index.
fn begin(
    queue: &Queue,
    body: &mut Body,
    packet: &[u32],
) -> Result<Result<Action, PacketError>, Fault> {
    let header = packet[0];
    tracing::trace!(target: "aql", "{:?} {} {packet:x?}", queue.slot, body.rptr);
    match header & 0xff {
        kind::INVALID => Ok(Ok(Action::Wait)),
        // The packet stays where it is, as one that never ends.
        kind::KERNEL_DISPATCH if queue.hangs(body) => Ok(Ok(Action::Wait)),
        kind::KERNEL_DISPATCH => {
            let at = address(queue, body.rptr);
            Ok(dispatch::launch(queue, body, at, packet)?.map(|launch| {
                body.flight.launch = Some(launch);
                Action::Started
            }))
        }
        kind::BARRIER_AND => barrier(queue, packet, true).map(Ok),
        kind::BARRIER_OR => barrier(queue, packet, false).map(Ok),
        kind::VENDOR_SPECIFIC => vendor(queue, body, packet),
        // AGENT_DISPATCH is for agents with software behind them; a GPU queue does not take it.
        _ => Ok(Err(PacketError::PacketUnsupported)),
    }
}

/// BARRIER_AND waits for all of its five signals to be 0, BARRIER_OR for one of them.
fn barrier(queue: &Queue, packet: &[u32], all: bool) -> Result<Action, Fault> {
    let signals = packet[2..12]
        .chunks_exact(2)
        .filter_map(|at| Signal::of(wide(at[0], at[1])));
    let mut any = false;
    for signal in signals {
        any = true;
        let is_zero = signal.value(queue.view())? == 0;
        if is_zero != all {
            return Ok(if all { Action::Wait } else { Action::Complete });
        }
    }
    Ok(if all || !any {
        Action::Complete
    } else {
        Action::Wait
    })
}

/// AMD's packets: format 1 is a jump to PM4 packets, 2 a barrier on a signal's value.
fn vendor(
    queue: &Queue,
    body: &mut Body,
    packet: &[u32],
) -> Result<Result<Action, PacketError>, Fault> {
    match field(packet[0], 16, 8) {
        FORMAT_PM4 => Ok(pm4_ib(queue, body, packet)),
        2 => {
            let Some(signal) = Signal::of(wide(packet[2], packet[3])) else {
                return Ok(Ok(Action::Complete));
            };
            let (reference, mask) = (wide(packet[4], packet[5]), wide(packet[6], packet[7]));
            let value = signal.value(queue.view())? as u64 & mask;
            // hsa_signal_condition32_t: EQ, NE, LT, GTE, signed.
            let flip = |value: u64| value ^ 1 << 63;
            let function = *[3, 4, 1, 5].get(packet[8] as usize).unwrap_or(&0);
            let holds = match function {
                1 | 5 => compare(function, flip(value), flip(reference)),
                _ => compare(function, value, reference),
            };
            Ok(Ok(if holds {
                Action::Complete
            } else {
                Action::Wait
            }))
        }
        _ => Ok(Err(PacketError::VendorUnsupported)),
    }
}

/// The packet's dwords 1 to 4 are an INDIRECT_BUFFER packet.
fn pm4_ib(queue: &Queue, body: &mut Body, packet: &[u32]) -> Result<Action, PacketError> {
    let jump = Header::Type3 {
        op: super::packet::op::INDIRECT_BUFFER,
        body: 3,
    };
    if Header::decode(packet[1]) != jump {
        return Err(PacketError::VendorUnsupported);
    }
    body.flight.ibs.push(Ib {
        space: queue.space,
        address: wide(packet[2], packet[3]) & !3,
        dwords: field(packet[4], 0, 20).into(),
        at: 0,
        privileged: queue.hqd.is_privileged(),
    });
    Ok(Action::Started)
}

/// Hands the slot back and signals completion.
fn complete(queue: &Queue, body: &mut Body, pending: Pending) -> Result<(), Fault> {
    tracing::trace!(target: "aql", "{:?} {} done", queue.slot, body.rptr);
    body.flight.aql = None;
    body.flight.refused = None;
    fences::release(queue, pending.header);
    complete_slot(queue, body.rptr)?;
    let next = body.rptr + 1;
    queue.advance(body, next);
    overtake::follow(queue, body);
    if let Some(team) = &queue.team {
        team.report(queue.xcc, next);
    }
    queue.report_rptr(body);
    tell(queue, pending)
}

/// Hands a packet's slot back.
fn complete_slot(queue: &Queue, packet: u64) -> Result<(), Fault> {
    let header = (kind::INVALID as u16).to_le_bytes();
    let view = queue.view();
    view.bus.write(view.space, address(queue, packet), &header)
}

/// Counts a packet's completion signal down.
fn tell(queue: &Queue, pending: Pending) -> Result<(), Fault> {
    let view = queue.view();
    let Some(signal) = pending.signal else {
        return Ok(());
    };
    let profiled = dispatch::AmdQueue::load(queue)?.is_some_and(|amd| amd.is_profiled());
    if profiled {
        signal.stamp(view, pending.start, queue.shared.bus.realtime())?;
    }
    if view.bus.withholds_signal() {
        return Ok(());
    }
    signal.decrement(view)?;
    notify(queue, signal)
}

/// Tells the process's event, if the signal has one.
fn notify(queue: &Queue, signal: Signal) -> Result<(), Fault> {
    if let Some(event) = signal.post(queue.view())? {
        queue.shared.end_of_pipe(queue, SOURCE_END_OF_PIPE, event);
    }
    Ok(())
}
