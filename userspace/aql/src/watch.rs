// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Watch`]: what puts an end to the work of a process's queues, and waiting that ends with it.

use crate::signal::Deadline;
use crate::{Error, Result, Signal};
use kfd::{Device, Faults, Resets, Woken};
use std::sync::Arc;

/// Resets and faults from the making of this on. Whoever waits for what a queue was given has one
/// that was made before the queue.
#[derive(Debug)]
pub(crate) struct Watch {
    resets: Resets,
    faults: Faults,
}

impl Watch {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            resets: Resets::watch(device)?,
            faults: Faults::watch(device)?,
        }))
    }

    /// As [`crate::Queue::check`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.resets.look()?.is_some() {
            return Err(Error::Lost);
        }
        self.faults
            .look()?
            .map_or(Ok(()), |it| Err(Error::Fault(it)))
    }

    /// As [`crate::Queue::wait`].
    pub(crate) fn wait(&self, done: &Signal, deadline: Deadline) -> Result<()> {
        self.wait_unless(done, || false, deadline)
    }

    /// The same, and `Lost` from when on `never` says that it can no longer be. Who has `never` say
    /// so sets the event of `done` afterwards.
    pub(crate) fn wait_unless(
        &self,
        done: &Signal,
        never: impl Fn() -> bool,
        deadline: Deadline,
    ) -> Result<()> {
        loop {
            // Before both looks: an event that is set behind them is not slept through then.
            let (event, age) = (done.event(), done.event().age());
            if done.load() <= 0 {
                return Ok(());
            }
            if never() {
                return Err(Error::Lost);
            }
            let left = deadline.left();
            match event.wait_or(age, &self.resets, &self.faults, left)? {
                // What was done before that counts.
                Woken::Reset(_) | Woken::Fault(_) if done.load() <= 0 => return Ok(()),
                Woken::Reset(_) => return Err(Error::Lost),
                Woken::Fault(fault) => return Err(Error::Fault(fault)),
                Woken::Event => {}
                Woken::TimeIsOver => {}
            }
            if left.is_some_and(|left| left.is_zero()) && done.load() > 0 {
                return Err(deadline.error());
            }
        }
    }
}
