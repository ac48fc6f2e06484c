// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! DBG_TRAP: who may debug whom, that there is one session, and what operations may return.
//!
//! A process other than the caller's may be asked of something only by a thread that traces it, or
//! by its debugger: who has enabled that, and not ended it.

use super::super::execute::place;
use super::{Fields, Request};
use kfd_uapi as uapi;
use std::collections::HashMap;

/// `KFD_EC_MASK_QUEUE`, `_DEVICE` and `_PROCESS`: what can happen to what.
pub const OF_QUEUES: u64 = 0x3f | 0xff << 15 | 3 << 29;
pub const OF_DEVICES: u64 = 0x1f << 31;
pub const OF_PROCESS: u64 = 3 << 47;
/// All that SET_WAVE_LAUNCH_OVERRIDE knows on gfx942.
const TRAPS: u64 = 0xc000_01ff;

/// What the caller is to the process that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stance {
    /// The process is the caller's own.
    pub own: bool,
    /// The calling thread traces it.
    pub traces: bool,
    /// Which one this call is of all that may change the process's session; 0: none of them.
    pub turn: u32,
    /// How many of these have begun.
    pub begun: u32,
}

/// What was known before a call: whether the caller may be the process's debugger, and how often it
/// has begun to become that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    mine: bool,
    begun: u32,
}

/// The caller's sessions, by the ids of the processes.
#[derive(Default)]
pub struct Sessions {
    known: HashMap<u64, Session>,
}

#[derive(Clone, Copy, Default)]
struct Session {
    /// ENABLE has begun so often, and so many of them are under way.
    begun: u32,
    running: u32,
    /// The session began with that turn.
    since: Option<u32>,
    /// It may be the caller's.
    mine: bool,
}

impl Sessions {
    /// A call is about to be made.
    pub fn begin(&mut self, request: &Request<'_>) -> Before {
        let session = self.of(request);
        let before = Before {
            mine: session.mine || session.running > 0,
            begun: session.begun,
        };
        if is(request, uapi::KFD_IOC_DBG_TRAP_ENABLE) {
            session.begun += 1;
            session.running += 1;
        }
        before
    }

    fn of(&mut self, request: &Request<'_>) -> &mut Session {
        let pid = request.fields.get("pid").unwrap_or(0);
        self.known.entry(pid).or_default()
    }

    /// It has come to `outcome`.
    pub fn end(
        &mut self,
        before: Before,
        request: &Request<'_>,
        answer: Fields<'_>,
        outcome: Result<u64, i32>,
    ) -> Vec<String> {
        let session = self.of(request);
        let enables = is(request, uapi::KFD_IOC_DBG_TRAP_ENABLE);
        if enables {
            session.running -= 1;
        }
        let Ok(value) = outcome else {
            return Vec::new();
        };
        let mut wrong = Vec::new();
        // None of another thread's either.
        let enabled_none = session.begun == before.begun + u32::from(enables);
        if let Some(stance) = request.stance {
            let stranger = !stance.own && !stance.traces && !before.mine && enabled_none;
            if stranger {
                wrong.push("a stranger debugs a process".to_owned());
            }
            // Nobody else began or ended a session since this call began.
            let alone = stance.begun == stance.turn;
            let before_this = stance.turn.checked_sub(1);
            if enables && alone && session.since.is_some() && session.since == before_this {
                wrong.push("a process has two sessions".to_owned());
            }
            if enables {
                session.since = alone.then_some(stance.turn);
            }
        }
        if enables {
            session.mine = true;
        }
        if is(request, uapi::KFD_IOC_DBG_TRAP_DISABLE) {
            session.since = None;
            session.mine = session.running > 0;
        }
        wrong.extend(look_at(request, answer, value));
        wrong
    }
}

fn is(request: &Request<'_>, operation: u32) -> bool {
    request.fields.get("op") == Some(operation.into())
}

/// Where a field of an operation lies: `suspend_queues.num_queues`.
fn get(fields: Fields<'_>, name: &str) -> Option<u64> {
    place(fields.known, name)?;
    fields.get(name)
}

/// What is impossible in the answer to an operation that succeeded with that value.
fn look_at(request: &Request<'_>, answer: Fields<'_>, value: u64) -> Option<String> {
    let asked = |name| get(request.fields, name);
    let told = |name| get(answer, name);
    match request.fields.get("op")? as u32 {
        uapi::KFD_IOC_DBG_TRAP_ENABLE => {
            let size = told("enable.rinfo_size")?;
            (size != 16).then(|| format!("runtime information of {size} bytes"))
        }
        uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES | uapi::KFD_IOC_DBG_TRAP_RESUME_QUEUES => {
            queues(request, value)
        }
        uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE => {
            let (mask, wanted) = (
                told("launch_override.support_request_mask")?,
                asked("launch_override.support_request_mask")?,
            );
            (mask != TRAPS || wanted & !TRAPS != 0).then(|| format!("traps {mask:#x}"))
        }
        uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE => {
            let mode = asked("launch_mode.launch_mode")?;
            (![0, 1, 3].contains(&mode)).then(|| format!("launch mode {mode}"))
        }
        uapi::KFD_IOC_DBG_TRAP_SET_FLAGS => {
            let flags = asked("set_flags.flags")?;
            (flags & 6 != 0).then(|| format!("flags {flags:#x}"))
        }
        uapi::KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH => {
            let id = told("set_node_address_watch.id")?;
            (id >= 4).then(|| format!("watch point {id}"))
        }
        uapi::KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH => {
            let id = asked("clear_node_address_watch.id")?;
            (id >= 4).then(|| format!("watch point {id} was there"))
        }
        uapi::KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT => event(
            told("query_debug_event.exception_mask")?,
            told("query_debug_event.gpu_id")?,
            told("query_debug_event.queue_id")?,
        ),
        uapi::KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO => {
            let size = told("query_exception_info.info_size")?;
            (![0, 16, 32].contains(&size)).then(|| format!("information of {size} bytes"))
        }
        uapi::KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT => {
            let size = told("queue_snapshot.entry_size")?;
            let (count, wanted) = (
                told("queue_snapshot.num_queues")?,
                asked("queue_snapshot.entry_size")?,
            );
            let right = count <= super::QUEUES && size == wanted.min(64);
            (!right).then(|| format!("{count} queues of {size} bytes"))
        }
        uapi::KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT => {
            let size = told("device_snapshot.entry_size")?;
            let wanted = asked("device_snapshot.entry_size")?;
            (size != wanted.min(128)).then(|| format!("GPUs of {size} bytes"))
        }
        uapi::KFD_IOC_DBG_TRAP_DISABLE
        | uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT
        | uapi::KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED => None,
        op => Some(format!("there is no operation {op}")),
    }
}

/// As many queues as have no mark, if the list was there to be marked.
fn queues(request: &Request<'_>, value: u64) -> Option<String> {
    let marks = uapi::KFD_DBG_QUEUE_ERROR_MASK | 1 << uapi::KFD_DBG_QUEUE_INVALID_BIT;
    let list = request.list?;
    let asked = ["suspend_queues.num_queues", "resume_queues.num_queues"];
    let suspends = is(request, uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES);
    if get(request.fields, asked[usize::from(!suspends)])? != list.len() as u64 {
        return None;
    }
    let unmarked = list.iter().filter(|id| **id & marks == 0).count() as u64;
    (unmarked != value).then(|| format!("{value} queues, {unmarked} of the list"))
}

/// What happened, and to what.
fn event(exceptions: u64, gpu: u64, queue: u64) -> Option<String> {
    let right = if exceptions & OF_QUEUES != 0 {
        exceptions & !OF_QUEUES == 0 && gpu != 0 && queue < super::QUEUES
    } else if exceptions & OF_DEVICES != 0 {
        exceptions & !OF_DEVICES == 0 && gpu != 0 && queue == 0
    } else {
        exceptions & OF_PROCESS != 0 && exceptions & !OF_PROCESS == 0 && gpu == 0 && queue == 0
    };
    (!right).then(|| format!("exceptions {exceptions:#x} of GPU {gpu}, queue {queue}"))
}
