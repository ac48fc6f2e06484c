// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a group's turn came to, and what the hardware around the waves does about it: messages,
//! traps, faults, the global wave sync. Called by whoever runs the group.

use gcn::wave::{sreg, status, trapsts};
use gcn::{Access, CodeCache, ExecError, Fault, GwsRequest, Outcome, Workgroup};

use super::super::gws::Answer;
use super::super::queue::Queue;
use super::super::SqInterrupt;
use super::Live;
use crate::limited::warn_limited;
use crate::processor::bus::Verdict;

/// s_sendmsg messages of gfx9.
const MSG_INTERRUPT: u16 = 1;
/// Asks the SPI where to save the wave; only a preemption answers.
pub const MSG_SAVEWAVE: u16 = 4;
const MSG_GET_DOORBELL: u16 = 10;
/// SQ_INTERRUPT_ERROR_TYPE_ILLEGAL_INST.
const ERROR_ILLEGAL_INST: u32 = 1;

/// What becomes of the group.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has ended.
    Done,
    /// It goes on at its next turn.
    On,
    /// It goes on at its next turn, and a wave of it waits for a page.
    Waits,
    /// None of its waves can go on by itself.
    Halted,
    /// It can never go on.
    Hung(String),
}

/// Acts on what a turn came to.
pub fn settle(queue: &Queue, live: &mut Live, code: &mut CodeCache, outcome: Outcome) -> Turn {
    let group = &mut live.group;
    match outcome {
        Outcome::Done => Turn::Done,
        Outcome::Budget => Turn::On,
        Outcome::Halted => Turn::Halted,
        Outcome::Message { wave, message, m0 } => {
            message_of(queue, group, wave, message, m0);
            Turn::On
        }
        // No trap handler: hardware goes on after the s_trap.
        Outcome::Trap { id, pc, .. } => {
            let stats = &queue.shared.stats;
            stats.count("s_trap without a trap handler");
            let whose = queue.slot.number();
            warn_limited!(stats.limited, whose, slot = ?queue.slot, id, pc, "s_trap ignored");
            Turn::On
        }
        Outcome::Gws { wave, request } => global_wave_sync(queue, live, code, wave, request),
        Outcome::Fault { wave, pc, fault } => memory_violation(queue, live, code, wave, pc, fault),
        Outcome::Misaligned { wave, pc, address } => {
            let fault = Fault {
                address,
                access: Access::Atomic,
            };
            violation(queue, live, code, (wave, pc), fault, trapsts::MEM_VIOL)
        }
        Outcome::Error { wave, pc, error } => illegal_instruction(queue, group, wave, pc, &error),
    }
}

/// s_sendmsg.
pub fn message_of(queue: &Queue, group: &mut Workgroup, wave: usize, message: u16, m0: u32) {
    match message & 0xf {
        MSG_INTERRUPT => {
            let privileged = group.waves[wave].status & status::PRIV != 0;
            queue.shared.stats.work("interrupts by waves", 1);
            queue
                .shared
                .sq_interrupt(queue, SqInterrupt::Wave { privileged }, m0);
        }
        // The answer comes in EXEC_LO, bit 31 clear: trap handlers wait for that.
        MSG_GET_DOORBELL => {
            group.waves[wave].scalar[sreg::EXEC] = queue.hqd.doorbell_id();
        }
        _ => {
            let (stats, slot) = (&queue.shared.stats, queue.slot);
            stats.count("s_sendmsg");
            let whose = slot.number();
            warn_limited!(
                stats.limited,
                whose,
                ?slot,
                message,
                m0,
                "message not modelled"
            );
        }
    }
}

/// Memory refused: the driver learns of it from the hub. With XNACK the wave repeats its
/// instruction; without, it learns of it from TRAPSTS.
fn memory_violation(
    queue: &Queue,
    live: &mut Live,
    code: &mut CodeCache,
    wave: usize,
    pc: u64,
    fault: Fault,
) -> Turn {
    let (bus, process) = (&queue.shared.bus, &queue.process);
    let verdict = bus.fault(queue.space, process.pasid, fault, process.on_fault());
    if verdict == Verdict::Retry {
        queue.shared.stats.work("accesses repeated", 1);
        return Turn::Waits;
    }
    let bits = trapsts::MEM_VIOL | trapsts::XNACK_ERROR;
    violation(queue, live, code, (wave, pc), fault, bits)
}

/// An access of the wave that is at `pc` will never be.
fn violation(
    queue: &Queue,
    live: &mut Live,
    code: &mut CodeCache,
    (wave, pc): (usize, u64),
    fault: Fault,
    bits: u32,
) -> Turn {
    let (limited, whose) = (&queue.shared.stats.limited, queue.slot.number());
    warn_limited!(limited, whose, slot = ?queue.slot, pc, %fault, "memory violation");
    let group = &mut live.group;
    let goes_on = queue.as_wave(live.unit, |memory| {
        group.violate(wave, fault.access, bits, memory, code)
    });
    if goes_on {
        return Turn::On;
    }
    Turn::Hung(fault.to_string())
}

/// The trap handler's business, or else the driver's.
fn illegal_instruction(
    queue: &Queue,
    group: &mut Workgroup,
    wave: usize,
    pc: u64,
    error: &ExecError,
) -> Turn {
    let stats = &queue.shared.stats;
    stats.count("illegal or unmodelled instruction");
    if let Some(times) = stats.limited.next("wave stopped", queue.slot.number()) {
        tracing::error!(times, slot = ?queue.slot, pc, %error, "wave stopped");
    }
    if group.waves[wave].except_here(trapsts::ILLEGAL_INST) {
        return Turn::On;
    }
    queue
        .shared
        .sq_interrupt(queue, SqInterrupt::Error, ERROR_ILLEGAL_INST << 20);
    Turn::Hung(error.to_string())
}

/// `ds_gws_*`: granted now, or asked for again at the wave's next turn.
fn global_wave_sync(
    queue: &Queue,
    live: &mut Live,
    code: &mut CodeCache,
    wave: usize,
    request: GwsRequest,
) -> Turn {
    let held = live.gws.iter().position(|(of, ..)| *of == wave);
    let ticket = held.map(|at| live.gws[at].2);
    match queue.shared.gws(queue, request, ticket) {
        Answer::Granted => {
            if let Some(at) = held {
                live.gws.swap_remove(at);
            }
            queue.as_wave(live.unit, |memory| live.group.retire(wave, memory, code));
        }
        Answer::Wait(ticket) if held.is_none() => live.gws.push((wave, request, ticket)),
        Answer::Wait(_) => {}
        Answer::Refused => {
            let (stats, slot) = (&queue.shared.stats, queue.slot);
            stats.count("GWS that the process does not have");
            let whose = slot.number();
            warn_limited!(
                stats.limited,
                whose,
                ?slot,
                ?request,
                "global wave sync refused"
            );
            return Turn::Hung(format!("global wave sync not allocated: {request:?}"));
        }
    }
    Turn::On
}
