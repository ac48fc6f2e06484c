// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a processor needs that fetches packets from rings: the command processor ([`crate::cp`])
//! and the copy engines ([`crate::sdma`]) stand on this and do not know each other.
//!
//! - [`bus`]: the GPU around it: memory, registers, interrupts, faults
//! - [`runner`]: who runs its queues
//! - [`packet`], [`atomic`]: what packets of both have in common
//! - [`saved`]: what is kept of a preempted queue; [`stats`]: counts for the report
//! - [`copy`]: what the command processor's scheduler asks of the copy engines

use std::sync::{Mutex, MutexGuard};

pub mod atomic;
pub mod bus;
pub mod copy;
pub mod packet;
pub mod runner;
pub mod saved;
pub mod stats;

/// A doorbell's place in its page, in dwords: how far the GPU looks to send it to an engine.
pub(crate) const fn in_page(doorbell: u32) -> u32 {
    doorbell & 0x3ff
}

/// Locks; a panic elsewhere does not make the data less valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}
