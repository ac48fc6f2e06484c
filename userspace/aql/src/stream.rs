// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stream`]: work in order on a queue of its own, and [`Marker`]s by which streams wait for each
//! other.

use crate::signal::Deadline;
use crate::watch::Watch;
use crate::{BarrierAnd, Launch, Packet, Queue, Result, Signal, Signals};
use kfd::Device;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    /// What was given since the last time that all was done, without what those that wait for it
    /// have taken.
    given: Given,
    /// How often anything was given, from the first time on.
    times: u64,
    /// A marker, and which time it was given. While that is the last one, all is before it.
    end: Option<(Marker, u64)>,
}

impl Work {
    /// A marker behind all that was given. `given` may be less than that: others wait, too.
    fn end(&self) -> Option<&(Marker, u64)> {
        self.end.as_ref().filter(|(_, time)| *time == self.times)
    }
}

#[derive(Debug, Default)]
struct Given {
    launches: Vec<Arc<Launch>>,
    /// Markers of this stream.
    own: Vec<Marker>,
    /// Those, of whatever stream, that its work waits for.
    awaited: Vec<Marker>,
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
    /// That queue was destroyed before.
    gone: AtomicBool,
}

impl Place {
    /// The queue that was to reach it is no more.
    fn lose(&self) {
        if self.signal.load() > 0 {
            self.gone.store(true, Ordering::Release);
            // It fails only after a fork, in a process that has no waiters.
            let _ = self.signal.event().set();
        }
    }
}

impl Stream {
    /// A stream whose kernels have `scratch` bytes for each work-item, 0 for none.
    pub fn new(device: &Arc<Device>, signals: &Arc<Signals>, scratch: u32) -> Result<Self> {
        Ok(Self {
            queue: Some(Queue::with_scratch(device, PACKETS, scratch)?),
            signals: signals.clone(),
            work: Mutex::default(),
        })
    }

    /// The queue below it.
    pub fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("it goes with the stream")
    }

    /// Runs a kernel after all that was given before.
    ///
    /// `Launch`: the kernel needs more scratch than the stream has. `Lost` and others as
    /// [`Queue::submit`]: a stream has room for 256 packets, and waits a minute for a GPU that
    /// takes none of them.
    pub fn launch(&self, launch: &Arc<Launch>) -> Result<()> {
        launch.put(self.queue(), 0)?;
        let mut work = self.lock();
        work.given.launches.push(launch.clone());
        work.times += 1;
        Ok(())
    }

    /// A marker behind all that was given so far.
    pub fn mark(&self) -> Result<Marker> {
        let put = self.put_marker(|barrier| self.queue().submit(barrier).map(drop));
        put.map(|(marker, _)| marker)
    }

    /// The marker, and which time it was given.
    fn put_marker(&self, put: impl FnOnce(Packet) -> Result<()>) -> Result<(Marker, u64)> {
        let marker = Marker(Arc::new(Place {
            signal: self.signals.signal(1)?,
            watch: self.queue().watch().clone(),
            gone: AtomicBool::new(false),
        }));
        let signal = &marker.0.signal;
        let barrier = BarrierAnd {
            completion: signal.for_completion(),
            ..Default::default()
        };
        // What others give until this is in the ring may come before or behind it: it counts as
        // behind.
        let before = self.lock().times;
        put(barrier.into()).inspect_err(|_| signal.not_completed())?;
        let mut work = self.lock();
        work.given.own.push(marker.clone());
        work.times += 1;
        Ok((marker, before + 1))
    }

    /// Does nothing of what is given from now on before `marker`, of whatever stream, is reached:
    /// nothing at all any more where that stream is dropped before, or its queue has stopped.
    pub fn wait_for(&self, marker: &Marker) -> Result<()> {
        self.queue()
            .submit(BarrierAnd::on(&[marker.0.signal.address()])?)?;
        let mut work = self.lock();
        work.given.awaited.push(marker.clone());
        work.times += 1;
        Ok(())
    }

    /// Sleeps until all that was given is done, and lets go of what was kept for it. Errors as
    /// [`Queue::wait`].
    pub fn finish(&self, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        // What is given while this waits is kept until the next time.
        let (mut given, end) = {
            let mut work = self.lock();
            (std::mem::take(&mut work.given), work.end().cloned())
        };
        let end = match end {
            // That of a try before.
            Some(end) => Ok(end),
            None => self.put_marker(|barrier| self.queue().submit_by(&[barrier], deadline)),
        };
        let done = match &end {
            Ok((marker, _)) => marker.wait_by(deadline),
            Err(_) => Ok(()),
        };
        let mut work = self.lock();
        if end.is_err() || done.is_err() {
            work.given.launches.append(&mut given.launches);
            work.given.own.append(&mut given.own);
            work.given.awaited.append(&mut given.awaited);
            if end.as_ref().is_ok_and(|(_, time)| *time == work.times) {
                work.end = end.as_ref().ok().cloned();
            }
        } else {
            work.end = None;
            given.settle();
        }
        drop(work);
        end.and(done)
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let gone = self.queue.take().map(Queue::destroy);
        let given = std::mem::take(&mut self.lock().given);
        match gone {
            Some(Ok(())) => {
                given.own.iter().for_each(|marker| marker.0.lose());
                given.settle();
            }
            _ => given.leave(&self.signals),
        }
    }
}

impl Marker {
    /// Whether it is reached.
    pub fn is_reached(&self) -> bool {
        self.0.signal.load() <= 0
    }

    /// Sleeps until it is reached, or until that can no longer be: errors as [`Queue::wait`], and
    /// `Lost` when its stream was dropped before.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_by(Deadline::after(timeout))
    }

    fn wait_by(&self, deadline: Deadline) -> Result<()> {
        let never = || self.0.gone.load(Ordering::Acquire);
        self.0.watch.wait_unless(&self.0.signal, never, deadline)
    }
}
