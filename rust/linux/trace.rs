// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints: `events/amdkfd` in tracefs. Each is one function here and one TRACE_EVENT in
//! `trace.h`.
//!
//! One that is off costs an instruction that does nothing. All are legal in any context.

use super::hmm::Reason;
use kernel::{
    bindings,
    jump_label::static_branch_unlikely,
    prelude::*, //
};

/// Declares the two symbols that `trace.c` makes for a tracepoint, and a function that calls it if
/// it is on. Pointers that are passed must be good for as long as the call takes.
macro_rules! tracepoint {
    ($name:ident($($argument:ident: $type:ty),*)) => { kernel::macros::paste! {
        // What a tracepoint has in it does not matter here.
        #[allow(improper_ctypes)]
        unsafe extern "C" {
            static [<__tracepoint_ $name>]: bindings::tracepoint;
            fn [<rust_do_trace_ $name>]($($argument: $type),*);
        }

        /// # Safety
        ///
        /// The types are those of `TP_PROTO`; pointers are good for the time of the call.
        #[inline(always)]
        unsafe fn $name($($argument: $type),*) {
            // SAFETY: The key is a tracepoint's, which lives as long as the module.
            let is_on = unsafe {
                static_branch_unlikely!([<__tracepoint_ $name>], bindings::tracepoint, key)
            };
            if is_on {
                // SAFETY: The types are those of `TP_PROTO` in trace.h; the rest is the caller's
                // promise.
                unsafe { [<rust_do_trace_ $name>]($($argument),*) };
            }
        }
    }};
}

tracepoint!(amdkfd_ioctl(name: *const u8, length: usize));
tracepoint!(amdkfd_ioctl_done(name: *const u8, length: usize, result: c_int));
tracepoint!(amdkfd_queue(change: c_uint, gpu_id: c_uint, queue_id: c_uint, result: c_int));
tracepoint!(amdkfd_process(
    change: c_uint,
    pid: c_int,
    gpu_id: c_uint,
    evicted: c_uint,
    result: c_int
));
tracepoint!(amdkfd_event(change: c_uint, event_id: c_uint));
tracepoint!(amdkfd_interrupt(gpu_id: c_uint, entry: *const u32));
tracepoint!(amdkfd_svm_set_attr(
    pid: c_int,
    start: u64,
    pages: u64,
    attributes: c_uint,
    result: c_int
));
tracepoint!(amdkfd_svm_fault(
    pid: c_int,
    gpu_id: c_uint,
    address: u64,
    write: bool,
    result: c_int
));
tracepoint!(amdkfd_svm_migrate(
    pid: c_int,
    start: u64,
    pages: u64,
    from: c_uint,
    to: c_uint,
    trigger: c_uint,
    result: c_int
));
tracepoint!(amdkfd_svm_invalidate(
    pid: c_int,
    start: u64,
    pages: u64,
    reason: c_uint,
    evict: bool
));
tracepoint!(amdkfd_svm_restore(pid: c_int, failures: c_uint, result: c_int));

/// What happens to a queue. The numbers are those of `amdkfd_queue` in trace.h.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum QueueChange {
    Create,
    Destroy,
    Change,
}

/// What happens to a process on a GPU. The numbers are those of `amdkfd_process`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum ProcessChange {
    Evict,
    Restore,
    Quiesce,
}

/// What happens to an event. The numbers are those of `amdkfd_event`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum EventChange {
    Create,
    Destroy,
    Reset,
    Signal,
}

fn errno(result: &Result) -> c_int {
    result.map_or_else(Error::to_errno, |()| 0)
}

/// The current task calls this ioctl.
#[inline(always)]
pub(crate) fn ioctl(name: &'static str) {
    // SAFETY: The name is there for good.
    unsafe { amdkfd_ioctl(name.as_ptr(), name.len()) }
}

/// That is what it came to.
#[inline(always)]
pub(crate) fn ioctl_done(name: &'static str, result: &Result) {
    // SAFETY: As above.
    unsafe { amdkfd_ioctl_done(name.as_ptr(), name.len(), errno(result)) }
}

/// A queue of the current process's comes, goes or changes.
#[inline(always)]
pub(crate) fn queue(change: QueueChange, gpu_id: u32, queue_id: u32, result: &Result) {
    // SAFETY: Numbers.
    unsafe { amdkfd_queue(change as c_uint, gpu_id, queue_id, errno(result)) }
}

/// A process's queues leave a GPU, or come back; `evicted` counts the reasons to be off.
#[inline(always)]
pub(crate) fn process(change: ProcessChange, pid: i32, gpu_id: u32, evicted: u32, result: &Result) {
    // SAFETY: Numbers.
    unsafe { amdkfd_process(change as c_uint, pid, gpu_id, evicted, errno(result)) }
}

/// An event comes, goes or changes.
#[inline(always)]
pub(crate) fn event(change: EventChange, event_id: u32) {
    // SAFETY: Numbers.
    unsafe { amdkfd_event(change as c_uint, event_id) }
}

/// A GPU's interrupt for one of the processes.
#[inline(always)]
pub(crate) fn interrupt(gpu_id: u32, entry: &[u32; 8]) {
    // SAFETY: Eight words, as many as `amdkfd_interrupt` copies.
    unsafe { amdkfd_interrupt(gpu_id, entry.as_ptr()) }
}

/// An area of a process's shared virtual memory: the address of its first page, and how many.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) pages: u64,
}

/// A process gives an area so many attributes.
#[inline(always)]
pub(crate) fn svm_set_attr(pid: i32, area: Area, attributes: usize, result: &Result) {
    // CAST: As many as fit into an ioctl's argument.
    let attributes = attributes as c_uint;
    // SAFETY: Numbers.
    unsafe { amdkfd_svm_set_attr(pid, area.start, area.pages, attributes, errno(result)) }
}

/// A GPU has missed a page at `address`, and got it or not.
#[inline(always)]
pub(crate) fn svm_fault(pid: i32, gpu_id: u32, address: u64, write: bool, result: &Result) {
    // SAFETY: Numbers.
    unsafe { amdkfd_svm_fault(pid, gpu_id, address, write, errno(result)) }
}

/// Pages of an area have moved, those that could, or have not, between the memories of two GPUs;
/// 0: the system's. `trigger`: `KFD_MIGRATE_TRIGGER_*` of linux/kfd_ioctl.h.
#[inline(always)]
pub(crate) fn svm_migrate(pid: i32, area: Area, (from, to): (u32, u32), trigger: u32, error: i32) {
    // SAFETY: Numbers.
    unsafe { amdkfd_svm_migrate(pid, area.start, area.pages, from, to, trigger, error) }
}

/// The system takes pages away that a GPU sees; `evict`: the process's queues have to leave the
/// hardware until they are back.
#[inline(always)]
pub(crate) fn svm_invalidate(pid: i32, area: Area, reason: Reason, evict: bool) {
    // SAFETY: Numbers.
    unsafe { amdkfd_svm_invalidate(pid, area.start, area.pages, reason as c_uint, evict) }
}

/// What was taken away has been brought back, or not yet, after so many failures in a row.
#[inline(always)]
pub(crate) fn svm_restore(pid: i32, failures: u32, result: &Result) {
    // SAFETY: Numbers.
    unsafe { amdkfd_svm_restore(pid, failures, errno(result)) }
}
