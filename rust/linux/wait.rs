// SPDX-License-Identifier: GPL-2.0-only

//! Sleeping until the owner of an [`IrqSpinLock`] wakes this thread.
//!
//! A waiter that waits for many things at once does not join a wait queue for each of them: it
//! leaves a reference to its task where the waker finds it, and the waker calls
//! [`wake`](kernel::task::Task::wake_up) under the lock. Both sides use the same lock, so no
//! wake-up is lost: the sleeper declares itself asleep before it lets the lock go.

use super::spinlock::{
    IrqGuard,
    IrqSave, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::lock::Lock,
    task::Task, //
};

/// How long to sleep, in jiffies; [`Timeout::FOREVER`] ends only with a wake-up or a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeout(c_long);

impl Timeout {
    /// `MAX_SCHEDULE_TIMEOUT` (`include/linux/sched.h`).
    pub(crate) const FOREVER: Self = Self(c_long::MAX);
    /// Do not sleep at all.
    pub(crate) const NONE: Self = Self(0);

    /// At least `ms` milliseconds: rounded up, and one tick more because the current one is
    /// already under way.
    pub(crate) fn from_millis(ms: u32) -> Self {
        // The kernel takes everything above `i32::MAX` for "for ever"; to us it is a finite time.
        let ms = ms.min(i32::MAX as u32);
        // SAFETY: A pure function of its argument.
        let jiffies = unsafe { bindings::__msecs_to_jiffies(ms) };
        Self(c_long::try_from(jiffies).map_or(c_long::MAX, |j| j.saturating_add(1)))
    }

    /// The milliseconds left, without the tick that [`Timeout::from_millis`] added.
    pub(crate) fn to_millis(self) -> u32 {
        let jiffies = c_ulong::try_from(self.0.saturating_sub(1)).unwrap_or(0);
        // SAFETY: A pure function of its argument.
        unsafe { super::ffi::amdkfd_jiffies_to_msecs(jiffies) }
    }

    /// Whether no time is left.
    pub(crate) fn expired(self) -> bool {
        self.0 <= 0
    }
}

/// Lets the lock go, sleeps until woken, signalled or timed out, and takes the lock again.
///
/// Returns the time left. It may return early for no reason, so the caller checks its condition
/// in a loop.
pub(crate) fn sleep<'a, T>(guard: IrqGuard<'a, T>, timeout: Timeout) -> (IrqGuard<'a, T>, Timeout) {
    let lock: &'a Lock<T, IrqSave> = guard.lock_ref();
    // SAFETY: `current` is this task, and only a task itself leaves the running state. A waker
    // reads the state after it has taken the lock that we still hold, so for it a plain store is
    // ordered. Who sends a signal does not take that lock: `__schedule` has a full barrier between
    // this store and its look at pending signals (`signal_pending_state`), and the sender one
    // between the signal and the state.
    unsafe {
        (&raw mut (*Task::current_raw()).__state).write_volatile(bindings::TASK_INTERRUPTIBLE)
    };
    drop(guard);
    // SAFETY: Called from process context with no spinlock held. Returns with the task running.
    let left = unsafe { bindings::schedule_timeout(timeout.0) };
    let left = if timeout == Timeout::FOREVER {
        timeout
    } else {
        Timeout(left)
    };
    (lock.lock(), left)
}
