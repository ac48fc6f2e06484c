// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stop`]: where a queue that has come to a stop tells so, and why: [`BadPacket`].

use crate::signal::{EVENT_ID, KIND, KIND_USER, MAILBOX, VALUE};
use crate::{Error, Result};
use kfd::{Device, Event, EventKind, Events, Exceptions, Memory};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// `amd_queue_t`: `queue_inactive_signal`, the address of a signal.
const INACTIVE_SIGNAL: usize = 192;
/// Where in the descriptor's page, behind the `amd_queue_t`, that signal lies.
const SIGNAL: usize = 1024;
/// And where the kernel sets the bits of exceptions.
const EXCEPTIONS: usize = 1152;

/// Why a queue stands still although its GPU goes on. It never goes on: what is in it is not known
/// to be right.
#[derive(Debug)]
pub(crate) struct Stop {
    descriptor: Arc<Memory>,
    event: Event,
}

impl Stop {
    /// Has the command processor tell when it stops the queue of this `descriptor`.
    pub(crate) fn new(device: &Arc<Device>, descriptor: &Arc<Memory>) -> Result<Self> {
        let event = Event::new(&Events::new(device)?, EventKind::Signal, true)?;
        descriptor.write(SIGNAL + KIND, &[KIND_USER]);
        descriptor.write(SIGNAL + VALUE, &[0u64]);
        descriptor.write(SIGNAL + MAILBOX, &[event.mailbox()]);
        descriptor.write(SIGNAL + EVENT_ID, &[u64::from(event.trigger())]);
        descriptor.write(INACTIVE_SIGNAL, &[descriptor.address() + SIGNAL as u64]);
        Ok(Self {
            descriptor: descriptor.clone(),
            event,
        })
    }

    /// Has the kernel tell, too.
    pub(crate) fn by(&self, runtime: &kfd::Runtime, queue: &mut kfd::Queue) -> Result<()> {
        Ok(queue.tell_exceptions(runtime, &self.descriptor, EXCEPTIONS, &self.event)?)
    }

    /// What is set when there is something to look at, and its age: before the look.
    pub(crate) fn event(&self) -> (&Event, u64) {
        (&self.event, self.event.age())
    }

    /// Whether the queue has stopped.
    pub(crate) fn look(&self) -> Result<()> {
        match (self.word(SIGNAL + VALUE), self.word(EXCEPTIONS)) {
            (0, 0) => Ok(()),
            (0, exceptions) => Err(Error::Exception(Exceptions::from_bits_retain(exceptions))),
            (code, _) => Err(Error::Packet(BadPacket(code))),
        }
    }

    fn word(&self, at: usize) -> u64 {
        let word = self.descriptor.as_ptr().as_ptr();
        // SAFETY: within the descriptor's page, aligned to 8, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(word.add(at).cast()) }.load(Ordering::Acquire)
    }
}

/// What is wrong with a packet, as the command processor says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPacket(u64);

impl BadPacket {
    /// The bits that it has set in the queue's inactive signal.
    pub fn code(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for BadPacket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [(u64, &str); 11] = [
            (1, "more scratch than the queue has"),
            (2, "dimensions"),
            (4, "more local memory than there is"),
            (8, "no kernel"),
            (0x20, "no packet that it knows"),
            (0x40, "a work-group that is too large"),
            (0x80, "too many registers"),
            (0x100, "no vendor's packet that it knows"),
            (0x2000_0000, "an address out of the aperture"),
            (0x4000_0000, "an illegal instruction"),
            (0x8000_0000, "a trap"),
        ];
        write!(f, "code {:#x}", self.0)?;
        for (_, name) in NAMES.iter().filter(|(bit, _)| self.0 & bit != 0) {
            write!(f, ", {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_a_name() {
        assert_eq!(BadPacket(8).to_string(), "code 0x8, no kernel");
        assert_eq!(
            BadPacket(0x42).to_string(),
            "code 0x42, dimensions, a work-group that is too large"
        );
        assert_eq!(BadPacket(1 << 40).to_string(), "code 0x10000000000");
    }
}
