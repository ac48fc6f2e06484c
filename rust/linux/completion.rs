// SPDX-License-Identifier: GPL-2.0-only

//! Completions (`linux/completion.h`) that are waited for within a time, and by who can be killed
//! meanwhile; those of the kernel crate are not.

use kernel::{
    bindings,
    prelude::*,
    time::{
        msecs_to_jiffies,
        Delta, //
    },
    types::Opaque, //
};

/// Something that happens once.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A completion has its own lock, and belongs to no task.
unsafe impl Send for Completion {}
// SAFETY: As above.
unsafe impl Sync for Completion {}

impl Completion {
    /// It has not happened.
    pub(crate) fn new() -> impl PinInit<Self> {
        // SAFETY: The slot is one for a completion, which needs no more than this.
        let init = |slot: *mut bindings::completion| unsafe { bindings::init_completion(slot) };
        pin_init!(Self {
            inner <- Opaque::ffi_init(init),
        })
    }

    /// It has: whoever waits, now or later, goes on.
    pub(crate) fn complete_all(&self) {
        // SAFETY: It was initialised, and is pinned.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Waits until it has happened. False: the time is over. `EINTR`: the task is being killed.
    pub(crate) fn wait_killable(&self, limit: Delta) -> Result<bool> {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(0);
        let (completion, jiffies) = (self.inner.get(), msecs_to_jiffies(ms));
        // SAFETY: It was initialised, and is pinned; nothing is locked here that is not to sleep.
        match unsafe { bindings::wait_for_completion_killable_timeout(completion, jiffies) } {
            0 => Ok(false),
            left if left > 0 => Ok(true),
            _ => Err(EINTR),
        }
    }
}
