// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Calls about debugging: processes of the program trace others, debug them or themselves, and try
//! what is not theirs to do.

use super::super::program::Value;
use super::calls::{number, prepared, KERNEL};
use super::Writer;
use kfd_uapi as uapi;

/// `KFD_EC_MASK`
const fn mask(code: u32) -> u64 {
    1 << (code - 1)
}

const RUNTIME: u64 = mask(uapi::EC_PROCESS_RUNTIME);
const NEW: u64 = mask(uapi::EC_QUEUE_NEW);
const VIOLATION: u64 = mask(uapi::EC_DEVICE_MEMORY_VIOLATION);
const DELETE: u64 = mask(uapi::EC_DEVICE_QUEUE_DELETE);
const TRAP: u64 = mask(uapi::EC_QUEUE_WAVE_TRAP);
const MASKS: &[u64] = &[u64::MAX, u64::MAX, u64::MAX, NEW, RUNTIME, VIOLATION, 0];

type Fields = Vec<(&'static str, Value)>;
type Operation = fn(&mut Writer) -> (u32, Fields);

/// What a debugger asks for, and how often.
const OPERATIONS: &[(usize, Operation)] = &[
    (2, disable),
    (5, send),
    (3, exceptions),
    (3, launch_override),
    (3, launch_mode),
    (9, suspend),
    (6, resume),
    (5, watch),
    (3, unwatch),
    (2, flags),
    (8, query),
    (4, info),
    (7, queues),
    (3, devices),
    (1, none),
];

/// What a process's runtime does first: with one there is more for a debugger to do.
pub fn runtime(w: &mut Writer, p: u8) {
    let mode = w.pick(&[1, 3, 3]);
    w.first(p, "RUNTIME_ENABLE", &|line| {
        line.with("r_debug", prepared("memory"))
            .with("mode_mask", mode.clone())
    });
}

/// One operation on a process that is debugged, which it is by then if it may be.
pub fn debug(w: &mut Writer, p: u8) {
    if w.random.chance(6) {
        return let_go(w, p);
    }
    let target = whom(w, p);
    if w.random.chance(93) && !w.labels[usize::from(p)].sessions.contains(&target) {
        begin(w, p, target);
    }
    let mut left = w
        .random
        .below(OPERATIONS.iter().map(|(weight, _)| weight).sum());
    let found = OPERATIONS
        .iter()
        .find(|(weight, _)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
    let Some((_, operation)) = found else {
        return;
    };
    let (op, fields) = operation(w);
    // Of a queue that is new its debugger has to take note first.
    if op == uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES && w.random.chance(60) {
        let (op, fields) = noted(w);
        ask(w, p, target, op, fields);
    }
    if op == uapi::KFD_IOC_DBG_TRAP_DISABLE {
        w.labels[usize::from(p)].sessions.retain(|it| *it != target);
    }
    ask(w, p, target, op, fields);
}

/// Mostly one that is debugged already; else itself, or another one.
fn whom(w: &mut Writer, p: u8) -> u8 {
    let known = w.labels[usize::from(p)].sessions.clone();
    if !known.is_empty() && w.random.chance(75) {
        return w.random.pick(&known);
    }
    match w.random.chance(25) {
        true => p,
        false => w.random.below(w.labels.len()) as u8,
    }
}

fn pid(target: u8) -> Value {
    prepared(&format!("pid{target}"))
}

/// Traces it, and enables debugging.
fn begin(w: &mut Writer, p: u8, target: u8) {
    if target != p {
        w.first(p, "TRACE", &|line| {
            line.with("process", number(target.into()))
        });
    }
    let own = w.memory();
    let fields = vec![
        ("enable.exception_mask", w.pick(MASKS)),
        ("enable.rinfo_ptr", w.mostly(92, own, &[0, KERNEL])),
        ("enable.rinfo_size", w.mostly(90, number(16), &[0, 8, 4096])),
        (
            "enable.dbg_fd",
            w.mostly(96, prepared("notice"), &[0x7777, 0xffff_ffff]),
        ),
    ];
    ask(w, p, target, uapi::KFD_IOC_DBG_TRAP_ENABLE, fields);
    w.labels[usize::from(p)].sessions.push(target);
}

/// Traces it no more. Its debugger it may stay.
fn let_go(w: &mut Writer, p: u8) {
    let target = whom(w, p);
    w.first(p, "UNTRACE", &|line| {
        line.with("process", number(target.into()))
    });
}

/// Adds the line: mostly of the thread that traces, which alone may ask before it is the debugger.
fn ask(w: &mut Writer, p: u8, target: u8, op: u32, fields: Fields) {
    let whom = w.mostly(96, pid(target), &[0, 1, 2, 4_194_303, u64::MAX]);
    let mut all = vec![("pid", whom), ("op", number(op.into()))];
    all.extend(fields);
    if w.random.chance(88) {
        w.first(p, "DBG_TRAP", &|line| {
            let with =
                |line: super::Line, (name, value): &(&str, Value)| line.with(name, value.clone());
            all.iter().fold(line, with)
        });
    } else {
        w.ioctl(p, "DBG_TRAP", all);
    }
}

fn disable(_: &mut Writer) -> (u32, Fields) {
    (uapi::KFD_IOC_DBG_TRAP_DISABLE, vec![])
}

fn send(w: &mut Writer) -> (u32, Fields) {
    let gpu = w.gpu();
    let exceptions = [
        RUNTIME,
        RUNTIME,
        RUNTIME,
        VIOLATION,
        TRAP,
        TRAP | RUNTIME,
        0,
    ];
    let fields = vec![
        ("send_runtime_event.exception_mask", w.pick(&exceptions)),
        ("send_runtime_event.gpu_id", gpu),
        ("send_runtime_event.queue_id", w.pick(&[0, 0, 1, 2, 77])),
    ];
    (uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT, fields)
}

fn exceptions(w: &mut Writer) -> (u32, Fields) {
    let mask = w.pick(MASKS);
    (
        uapi::KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED,
        vec![("set_exceptions_enabled.exception_mask", mask)],
    )
}

fn launch_override(w: &mut Writer) -> (u32, Fields) {
    let bits = [0, 4, 0x80, 0x100, 0x180, 1 << 30, 1 << 31, 0x1ff];
    let chosen = w.random.pick(&bits);
    let fields = vec![
        ("launch_override.override_mode", w.pick(&[0, 0, 0, 1, 1, 7])),
        (
            "launch_override.enable_mask",
            w.mostly(60, number(chosen), &[0, 0xffff_ffff]),
        ),
        (
            "launch_override.support_request_mask",
            w.mostly(92, number(chosen), &[0x200, 0xffff_ffff]),
        ),
    ];
    (uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE, fields)
}

fn launch_mode(w: &mut Writer) -> (u32, Fields) {
    let mode = w.pick(&[0, 0, 0, 0, 1, 3, 2, 77]);
    (
        uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE,
        vec![("launch_mode.launch_mode", mode)],
    )
}

/// A list of some of the first queues.
fn list(w: &mut Writer) -> (Value, u64) {
    let count = w.random.pick(&[1, 1, 2, 3, 0]);
    let ids = (0..count).map(|_| w.pick(&[0, 0, 1, 1, 2, 3, 1023, 1 << 31]));
    let ids = Value::Words(ids.collect());
    let list = w.mostly(95, ids, &[0, KERNEL]);
    (list, count)
}

fn suspend(w: &mut Writer) -> (u32, Fields) {
    let (list, count) = list(w);
    let fields = vec![
        ("suspend_queues.exception_mask", w.pick(&[0, 0, TRAP, NEW])),
        ("suspend_queues.queue_array_ptr", list),
        (
            "suspend_queues.num_queues",
            w.mostly(95, number(count), &[0, 1, 1025, 0xffff_ffff]),
        ),
        (
            "suspend_queues.grace_period",
            w.pick(&[0, 0, 1, 255, 0xffff_ffff]),
        ),
    ];
    (uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES, fields)
}

fn resume(w: &mut Writer) -> (u32, Fields) {
    let (list, count) = list(w);
    let fields = vec![
        ("resume_queues.queue_array_ptr", list),
        (
            "resume_queues.num_queues",
            w.mostly(95, number(count), &[0, 1, 1025]),
        ),
    ];
    (uapi::KFD_IOC_DBG_TRAP_RESUME_QUEUES, fields)
}

fn watch(w: &mut Writer) -> (u32, Fields) {
    let gpu = w.gpu();
    let address = w.place();
    let fields = vec![
        ("set_node_address_watch.address", address),
        (
            "set_node_address_watch.mode",
            w.pick(&[0, 1, 2, 3, 3, 3, 77]),
        ),
        (
            "set_node_address_watch.mask",
            w.pick(&[0xffff_ff80, 0xffff_ff80, 0xffff_f000, 0, 0xffff_ffff]),
        ),
        ("set_node_address_watch.gpu_id", gpu),
    ];
    (uapi::KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH, fields)
}

fn unwatch(w: &mut Writer) -> (u32, Fields) {
    let gpu = w.gpu();
    let fields = vec![
        ("clear_node_address_watch.gpu_id", gpu),
        (
            "clear_node_address_watch.id",
            w.pick(&[0, 0, 1, 2, 3, 4, 31, 32, 0xffff_ffff]),
        ),
    ];
    (uapi::KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH, fields)
}

fn flags(w: &mut Writer) -> (u32, Fields) {
    let flags = w.pick(&[0, 0, 1, 1, 2, 4, 8, 0xffff_ffff]);
    (
        uapi::KFD_IOC_DBG_TRAP_SET_FLAGS,
        vec![("set_flags.flags", flags)],
    )
}

fn query(w: &mut Writer) -> (u32, Fields) {
    let clear = w.pick(&[u64::MAX, u64::MAX, 0, NEW, RUNTIME]);
    (
        uapi::KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT,
        vec![("query_debug_event.exception_mask", clear)],
    )
}

fn info(w: &mut Writer) -> (u32, Fields) {
    let (gpu, own) = (w.gpu(), w.memory());
    let (code, source) = match w.random.below(4) {
        0 => (uapi::EC_PROCESS_RUNTIME, number(0)),
        1 => (uapi::EC_DEVICE_QUEUE_DELETE, gpu),
        2 => (uapi::EC_DEVICE_MEMORY_VIOLATION, gpu),
        _ => (uapi::EC_QUEUE_NEW, w.pick(&[0, 1, 2])),
    };
    let fields = vec![
        (
            "query_exception_info.info_ptr",
            w.mostly(93, own, &[0, KERNEL]),
        ),
        (
            "query_exception_info.info_size",
            w.pick(&[0, 8, 16, 32, 4096]),
        ),
        ("query_exception_info.source_id", source),
        (
            "query_exception_info.exception_code",
            w.mostly(95, number(code.into()), &[0, 7, 64, 0xffff_ffff]),
        ),
        ("query_exception_info.clear_exception", w.pick(&[0, 1])),
    ];
    (uapi::KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO, fields)
}

fn queues(w: &mut Writer) -> (u32, Fields) {
    let (own, clear) = (w.memory(), w.pick(&[0, NEW, u64::MAX]));
    let fields = vec![
        ("queue_snapshot.exception_mask", clear),
        (
            "queue_snapshot.snapshot_buf_ptr",
            w.mostly(95, own, &[0, KERNEL]),
        ),
        (
            "queue_snapshot.num_queues",
            w.pick(&[0, 1, 8, 64, 0x7fff_ffff]),
        ),
        (
            "queue_snapshot.entry_size",
            w.pick(&[64, 64, 64, 0, 1, 63, 4096]),
        ),
    ];
    (uapi::KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT, fields)
}

/// A look at all queues, which are not new any more.
fn noted(w: &mut Writer) -> (u32, Fields) {
    let own = w.memory();
    let fields = vec![
        ("queue_snapshot.exception_mask", number(NEW)),
        ("queue_snapshot.snapshot_buf_ptr", own),
        ("queue_snapshot.num_queues", number(64)),
        ("queue_snapshot.entry_size", number(64)),
    ];
    (uapi::KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT, fields)
}

fn devices(w: &mut Writer) -> (u32, Fields) {
    let (own, clear) = (w.memory(), w.pick(&[0, DELETE, u64::MAX]));
    let fields = vec![
        ("device_snapshot.exception_mask", clear),
        (
            "device_snapshot.snapshot_buf_ptr",
            w.mostly(95, own, &[0, KERNEL]),
        ),
        ("device_snapshot.num_devices", w.pick(&[0, 1, 2, 64])),
        (
            "device_snapshot.entry_size",
            w.pick(&[128, 128, 128, 0, 1, 127, 4096]),
        ),
    ];
    (uapi::KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT, fields)
}

/// One that there is not.
fn none(w: &mut Writer) -> (u32, Fields) {
    (w.random.pick(&[15, 77, u32::MAX]), vec![])
}
