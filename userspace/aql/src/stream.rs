// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stream`]: work in order on a queue of its own, and [`Marker`]s by which streams wait for each
//! other.

use crate::signal::Deadline;
use crate::watch::Watch;
use crate::{BarrierAnd, Launch, Packet, Queue, Result, Signal, Signals};
use kfd::Device;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PACKETS: u32 = 256;

/// A queue whose work is done in the order in which it was given. It keeps launches, and with them
/// code and arguments, until they are done; the buffers that those name are the caller's to keep.
/// Where its queue cannot be destroyed, what is not done is kept until the process ends.
#[derive(Debug)]
pub struct Stream {
    /// Until the stream is dropped.
    queue: Option<Queue>,
    signals: Arc<Signals>,
    /// What was given since the last time that all was done.
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    launches: Vec<Arc<Launch>>,
    /// Markers of this stream.
    own: Vec<Marker>,
    /// Those, of whatever stream, that its work waits for.
    awaited: Vec<Marker>,
    /// Behind all of it, if nothing was given since it was made.
    end: Option<Marker>,
}

impl Given {
    /// The stream's own markers are reached, or the queue is gone: nothing counts their signals
    /// down any more, which can be others' as soon as nobody has the markers.
    fn settle(&self) {
        self.own.iter().for_each(|marker| marker.0.signal.settle());
    }

    /// The queue may be at it until the process ends: what it reads stays what it is, and nothing
    /// else comes to lie there. Its own markers keep their places until they are reached.
    fn leave(self, signals: &Arc<Signals>) {
        std::mem::forget((self.launches, self.awaited, signals.clone()));
    }
}

/// A place in a stream's work: reached when all before it is done.
#[derive(Clone, Debug)]
pub struct Marker(Arc<Place>);

#[derive(Debug)]
struct Place {
    signal: Signal,
    /// Of the queue that reaches it.
    watch: Arc<Watch>,
}

impl Stream {
    /// A stream whose kernels have `scratch` bytes for each work-item, 0 for none.
    pub fn new(device: &Arc<Device>, signals: &Arc<Signals>, scratch: u32) -> Result<Self> {
        Ok(Self {
            queue: Some(Queue::with_scratch(device, PACKETS, scratch)?),
            signals: signals.clone(),
            given: Mutex::default(),
        })
    }

    /// The queue below it.
    pub fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("it goes with the stream")
    }

    /// Runs a kernel after all that was given before.
    ///
    /// `Launch`: the kernel needs more scratch than the stream has.
    pub fn launch(&self, launch: &Arc<Launch>) -> Result<()> {
        launch.put(self.queue(), 0)?;
        let mut given = self.lock();
        given.launches.push(launch.clone());
        given.end = None;
        Ok(())
    }

    /// A marker behind all that was given so far.
    pub fn mark(&self) -> Result<Marker> {
        self.put_marker(|barrier| self.queue().submit(barrier).map(drop))
    }

    fn put_marker(&self, put: impl FnOnce(Packet) -> Result<()>) -> Result<Marker> {
        let marker = Marker(Arc::new(Place {
            signal: self.signals.signal(1)?,
            watch: self.queue().watch().clone(),
        }));
        let signal = &marker.0.signal;
        let barrier = BarrierAnd {
            completion: signal.for_completion(),
            ..Default::default()
        };
        put(barrier.into()).inspect_err(|_| signal.not_completed())?;
        let mut given = self.lock();
        given.own.push(marker.clone());
        given.end = None;
        Ok(marker)
    }

    /// Does nothing of what is given from now on before `marker`, of whatever stream, is reached.
    pub fn wait_for(&self, marker: &Marker) -> Result<()> {
        self.queue()
            .submit(BarrierAnd::on(&[marker.0.signal.address()])?)?;
        let mut given = self.lock();
        given.awaited.push(marker.clone());
        given.end = None;
        Ok(())
    }

    /// Sleeps until all that was given is done, and lets go of what was kept for it. Errors as
    /// [`Queue::wait`].
    pub fn finish(&self, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        // What is given while this waits is kept until the next time.
        let mut given = std::mem::take(&mut *self.lock());
        let end = match given.end.clone() {
            // That of a try before, behind which nothing came.
            Some(end) => Ok(end),
            None => self.put_marker(|barrier| self.queue().submit_by(&[barrier], deadline)),
        };
        let done = end
            .as_ref()
            .map_or(Ok(()), |marker| marker.wait_by(deadline));
        let mut now = self.lock();
        if end.is_err() || done.is_err() {
            let is_end = |it: &Marker| end.as_ref().is_ok_and(|end| Arc::ptr_eq(&it.0, &end.0));
            let nothing_came =
                now.launches.is_empty() && now.awaited.is_empty() && now.own.iter().all(is_end);
            now.launches.append(&mut given.launches);
            now.own.append(&mut given.own);
            now.awaited.append(&mut given.awaited);
            now.end = end.as_ref().ok().filter(|_| nothing_came).cloned();
        } else {
            given.settle();
        }
        drop(now);
        end.and(done)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let gone = self.queue.take().map(Queue::destroy);
        let given = std::mem::take(&mut *self.lock());
        match gone {
            Some(Ok(())) => given.settle(),
            _ => given.leave(&self.signals),
        }
    }
}

impl Marker {
    /// Whether it is reached.
    pub fn is_reached(&self) -> bool {
        self.0.signal.load() <= 0
    }

    /// Sleeps until it is reached, or until that can no longer be: errors as [`Queue::wait`].
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_by(Deadline::after(timeout))
    }

    fn wait_by(&self, deadline: Deadline) -> Result<()> {
        self.0.watch.wait(&self.0.signal, deadline)
    }
}
