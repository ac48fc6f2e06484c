// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Watch`]: what puts an end to the work of a process's queues, and waiting that ends with it.

use crate::signal::Deadline;
use crate::stop::Stop;
use crate::{Error, Result, Signal};
use kfd::{Device, Faults, Memory, Resets, Woken};
use std::sync::Arc;

/// Resets and faults from the making of this on. Whoever waits for what a queue was given has one
/// that was made before the queue.
#[derive(Debug)]
pub(crate) struct Watch {
    resets: Resets,
    faults: Faults,
    /// Of one queue, if that tells of itself.
    stop: Option<Stop>,
}

impl Watch {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Self::with(device, None).map(Arc::new)
    }

    /// The same, and whether the AQL queue of this descriptor has stopped.
    pub(crate) fn of_queue(device: &Arc<Device>, descriptor: &Arc<Memory>) -> Result<Arc<Self>> {
        let stop = Stop::new(device, descriptor)?;
        Self::with(device, Some(stop)).map(Arc::new)
    }

    fn with(device: &Arc<Device>, stop: Option<Stop>) -> Result<Self> {
        Ok(Self {
            resets: Resets::watch(device)?,
            faults: Faults::watch(device)?,
            stop,
        })
    }

    /// What the queue tells of itself.
    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// As [`crate::Queue::check`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.resets.look()?.is_some() {
            return Err(Error::Lost);
        }
        if let Some(fault) = self.faults.look()? {
            return Err(Error::Fault(fault));
        }
        self.stop().map_or(Ok(()), Stop::look)
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
            // Before all looks: an event that is set behind them is not slept through then.
            let own = (done.event(), done.event().age());
            let events: Vec<_> = [own]
                .into_iter()
                .chain(self.stop().map(Stop::event))
                .collect();
            if done.load() <= 0 {
                return Ok(());
            }
            if never() {
                return Err(Error::Lost);
            }
            if let Err(stopped) = self.stop().map_or(Ok(()), Stop::look) {
                // What was done before that counts.
                return if done.load() <= 0 {
                    Ok(())
                } else {
                    Err(stopped)
                };
            }
            let (left, all) = (deadline.left(), done.event().events());
            match all.wait_or(&events, &self.resets, &self.faults, left)? {
                // As above.
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
