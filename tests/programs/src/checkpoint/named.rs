// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A debugger knows a GPU by its own name, whatever the restored process calls it.

use crate::debug::debug_itself;
use crate::raw::{self, Outcome};
use anyhow::{ensure, Context, Result};
use kfd::{Checkpoint, Kfd};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};

/// Has the process's queues stopped, as after a memory violation on its first GPU that its debugger
/// passes on to it.
pub fn by_debugger(kfd: &Kfd, kept: &Checkpoint) -> Result<()> {
    let gpu = kept.devices.first().context("no GPU")?;
    let (_news, told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    debug_itself(kfd, &told)?;
    let own = violation(kfd, gpu.user_gpu_id);
    ensure!(
        gpu.user_gpu_id == gpu.actual_gpu_id || own == Err(Errno::NODEV),
        "by what the process calls it: {own:?}"
    );
    violation(kfd, gpu.actual_gpu_id).context("by its own name")
}

/// SEND_RUNTIME_EVENT of a memory violation there.
fn violation(kfd: &Kfd, gpu_id: u32) -> Outcome {
    let send_runtime_event = uapi::kfd_ioctl_dbg_trap_send_runtime_event_args {
        exception_mask: 1 << (uapi::EC_DEVICE_MEMORY_VIOLATION - 1),
        gpu_id,
        queue_id: 0,
    };
    let mut args = uapi::kfd_ioctl_dbg_trap_args {
        pid: std::process::id(),
        op: uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT,
        __bindgen_anon_1: uapi::kfd_ioctl_dbg_trap_args__bindgen_ty_1 { send_runtime_event },
    };
    raw::ioctl(kfd.as_fd(), uapi::IOC_DBG_TRAP, &mut args)
}
