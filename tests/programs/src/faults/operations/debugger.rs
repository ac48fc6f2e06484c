// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! DBG_TRAP, by a process that debugs itself.

use super::{plain, Operation};
use crate::faults::stage::{Call, Stage};
use anyhow::{ensure, Result};
use kfd_uapi as uapi;
use rustix::fd::AsRawFd;
use uapi::kfd_ioctl_dbg_trap_args__bindgen_ty_1 as Arguments;

/// `KFD_EC_MASK(EC_QUEUE_NEW)`
const QUEUE_NEW: u64 = 1 << (uapi::EC_QUEUE_NEW - 1);

/// Arguments that are all 0.
const NONE: Arguments = Arguments {
    query_exception_info: uapi::kfd_ioctl_dbg_trap_query_exception_info_args {
        info_ptr: 0,
        info_size: 0,
        source_id: 0,
        exception_code: 0,
        clear_exception: 0,
    },
};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        plain("DBG_TRAP", |stage| {
            trap(stage, uapi::KFD_IOC_DBG_TRAP_ENABLE, NONE)
        }),
        // One that can be suspended, and a new one, of which the debugger takes note with that.
        plain("DBG_TRAP, SUSPEND_QUEUES", |stage| {
            begin(stage)?;
            let known = create(stage)?;
            take_note(stage)?;
            set_queues(stage, [known, create(stage)?]);
            let suspend_queues = uapi::kfd_ioctl_dbg_trap_suspend_queues_args {
                exception_mask: QUEUE_NEW,
                queue_array_ptr: stage.memory,
                num_queues: 2,
                grace_period: 0,
            };
            let op = uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES;
            trap(stage, op, Arguments { suspend_queues })
        })
        .intact(|stage| {
            let new = queues(stage)[1];
            let seen = event(stage, 0)?;
            ensure!(
                seen.queue_id == new && seen.exception_mask & QUEUE_NEW != 0,
                "what the debugger was to take note of is lost"
            );
            Ok(())
        })
        .over(|stage, _, _| end(stage)),
    ]
}

fn trap(stage: &Stage, op: u32, arguments: Arguments) -> Result<Call> {
    let args = uapi::kfd_ioctl_dbg_trap_args {
        pid: std::process::id(),
        op,
        __bindgen_anon_1: arguments,
    };
    stage.ioctl(uapi::IOC_DBG_TRAP, args)
}

/// An operation that must succeed.
fn done(stage: &Stage, op: u32, arguments: Arguments) -> Result<Arguments> {
    let mut call = trap(stage, op, arguments)?;
    call.make()?;
    let args: uapi::kfd_ioctl_dbg_trap_args = call.argument()?;
    Ok(args.__bindgen_anon_1)
}

/// The process has a runtime, and debugs itself.
fn begin(stage: &mut Stage) -> Result<()> {
    let runtime = uapi::kfd_ioctl_runtime_enable_args {
        mode_mask: uapi::KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK,
        ..Default::default()
    };
    stage.make(uapi::IOC_RUNTIME_ENABLE, runtime)?;
    let (reader, writer) = rustix::pipe::pipe()?;
    let enable = uapi::kfd_ioctl_dbg_trap_enable_args {
        exception_mask: QUEUE_NEW,
        rinfo_ptr: stage.memory,
        rinfo_size: size_of::<uapi::kfd_runtime_info>() as u32,
        dbg_fd: writer.as_raw_fd() as u32,
    };
    stage.files.extend([reader, writer]);
    done(stage, uapi::KFD_IOC_DBG_TRAP_ENABLE, Arguments { enable })?;
    Ok(())
}

fn create(stage: &Stage) -> Result<u32> {
    let mut args = stage.bench()?.queue();
    args.queue_type = uapi::KFD_IOC_QUEUE_TYPE_COMPUTE;
    Ok(stage.make(uapi::IOC_CREATE_QUEUE, args)?.queue_id)
}

/// What has happened, of which the debugger takes note as far as `cleared` goes.
fn event(stage: &Stage, cleared: u64) -> Result<uapi::kfd_ioctl_dbg_trap_query_debug_event_args> {
    let query_debug_event = uapi::kfd_ioctl_dbg_trap_query_debug_event_args {
        exception_mask: cleared,
        ..Default::default()
    };
    let op = uapi::KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT;
    let answer = done(stage, op, Arguments { query_debug_event })?;
    // SAFETY: the operation's own part of the union, which is plain numbers.
    Ok(unsafe { answer.query_debug_event })
}

/// A queue is not new any more.
fn take_note(stage: &Stage) -> Result<()> {
    event(stage, QUEUE_NEW).map(drop)
}

/// Where the two queues are named: at the beginning of the process's own memory.
fn set_queues(stage: &Stage, queues: [u32; 2]) {
    // SAFETY: it is this process's own memory.
    unsafe { (stage.memory as *mut [u32; 2]).write(queues) };
}

/// Their ids, without what a call has said of them.
fn queues(stage: &Stage) -> [u32; 2] {
    // SAFETY: as above; plain numbers.
    let named = unsafe { (stage.memory as *const [u32; 2]).read() };
    named.map(|id| id & !(uapi::KFD_DBG_QUEUE_ERROR_MASK | uapi::KFD_DBG_QUEUE_INVALID_MASK))
}

/// All queues go, and the debugger, and the runtime.
fn end(stage: &mut Stage) -> Result<()> {
    let resume_queues = uapi::kfd_ioctl_dbg_trap_resume_queues_args::default();
    let op = uapi::KFD_IOC_DBG_TRAP_RESUME_QUEUES;
    done(stage, op, Arguments { resume_queues })?;
    for queue_id in queues(stage) {
        let args = uapi::kfd_ioctl_destroy_queue_args { queue_id, pad: 0 };
        stage.make(uapi::IOC_DESTROY_QUEUE, args)?;
    }
    done(stage, uapi::KFD_IOC_DBG_TRAP_DISABLE, NONE)?;
    let off = uapi::kfd_ioctl_runtime_enable_args::default();
    stage.make(uapi::IOC_RUNTIME_ENABLE, off)?;
    stage.files.clear();
    Ok(())
}
