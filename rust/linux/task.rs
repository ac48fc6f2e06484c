// SPDX-License-Identifier: GPL-2.0

//! What the current task is and may do (`include/linux/{compat,capability,ptrace}.h`).

use super::ffi;
use kernel::{
    bindings,
    prelude::*,
    task::Task, //
};

/// Whether the current system call was made in 32-bit mode.
pub(crate) fn in_compat_syscall() -> bool {
    // SAFETY: Reads the current task only.
    unsafe { ffi::amdkfd_in_compat_syscall() }
}

/// Whether the current task traces `task`.
pub(crate) fn current_traces(task: &Task) -> bool {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_current_traces(task.as_ptr()) }
}

/// The id of the task's thread group, as its own pid namespace numbers it.
pub(crate) fn thread_group_id(task: &Task) -> i32 {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_thread_group_id(task.as_ptr()) }
}

/// A word of another task's memory. `EFAULT`: it has none there, or none any more. May sleep.
pub(crate) fn read_memory(task: &Task, address: u64) -> Result<u64> {
    let mut word = 0;
    access_memory(task, address, &mut word, 0)?;
    Ok(word)
}

/// Writes a word of another task's memory. `EFAULT`: it has none there, or none any more, or may not
/// write to it. May sleep.
pub(crate) fn write_memory(task: &Task, address: u64, mut word: u64) -> Result {
    access_memory(task, address, &mut word, bindings::FOLL_WRITE)
}

/// Reads `word` from there, or writes it (`FOLL_WRITE`): all of it, or `EFAULT`.
fn access_memory(task: &Task, address: u64, word: &mut u64, flags: c_uint) -> Result {
    let word: *mut u64 = word;
    // CAST: A 64-bit kernel; a word's size.
    let (address, size) = (address as c_ulong, size_of::<u64>() as c_int);
    // SAFETY: The task is valid and `word` is as large as said; any address may be asked for.
    let bytes = unsafe {
        bindings::access_process_vm(task.as_ptr(), address, word.cast(), size, flags)
    };
    if bytes == size {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// What a task may be allowed beyond the ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `CAP_CHECKPOINT_RESTORE`
    CheckpointRestore,
    /// `CAP_SYS_ADMIN`
    SysAdmin,
    /// `CAP_PERFMON`
    PerfMon,
}

/// Whether the current task has this capability. Using it is recorded.
pub(crate) fn capable(capability: Capability) -> bool {
    let number = match capability {
        Capability::CheckpointRestore => bindings::CAP_CHECKPOINT_RESTORE,
        Capability::SysAdmin => bindings::CAP_SYS_ADMIN,
        Capability::PerfMon => bindings::CAP_PERFMON,
    };
    // SAFETY: The number is a capability's. CAST: They are below 64.
    unsafe { bindings::capable(number as c_int) }
}

/// Signals that the kernel sends on our account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// What it used is gone.
    Bus,
    /// It must end.
    Kill,
}

/// Sends a signal to the thread group that `task` leads. Never sleeps.
pub(crate) fn signal(task: &Task, signal: Signal) {
    let number = match signal {
        Signal::Bus => bindings::SIGBUS,
        Signal::Kill => bindings::SIGKILL,
    };
    // SAFETY: The task is valid. CAST: a signal's number is below 65.
    unsafe { ffi::amdkfd_signal_group(task.as_ptr(), number as c_int) };
}

/// Whether there is a task with this id, as the current task numbers them.
pub(crate) fn process_exists(id: i32) -> bool {
    // SAFETY: Any number may be asked for. The reference is given back below.
    let pid = unsafe { bindings::find_get_pid(id) };
    // SAFETY: A task may be asked for of any pid, also of none.
    let task = unsafe { bindings::get_pid_task(pid, bindings::pid_type_PIDTYPE_PID) };
    if !task.is_null() {
        // SAFETY: `get_pid_task` took the reference.
        unsafe { bindings::put_task_struct(task) };
    }
    // SAFETY: `find_get_pid` took the reference, if it found one.
    unsafe { bindings::put_pid(pid) };
    !task.is_null()
}
