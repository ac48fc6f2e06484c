// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stream`]: work in order on a queue of its own, and [`Marker`]s by which streams wait for each
//! other.

use crate::{BarrierAnd, Launch, Queue, Result, Signal, Signals};
use kfd::Device;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PACKETS: u32 = 256;

/// A queue whose work is done in the order in which it was given; it keeps what the GPU still
/// needs.
#[derive(Debug)]
pub struct Stream {
    queue: Queue,
    signals: Arc<Signals>,
    /// What was given since the last time that all was done.
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    launches: Vec<Arc<Launch>>,
    markers: Vec<Marker>,
}

/// A place in a stream's work: reached when all before it is done.
#[derive(Clone, Debug)]
pub struct Marker(Arc<Place>);

#[derive(Debug)]
struct Place {
    signal: Signal,
    /// One waits in the kernel at a time: the first to see the event takes it.
    waiting: Mutex<()>,
}

impl Stream {
    /// A stream whose kernels have `scratch` bytes for each work-item, 0 for none.
    pub fn new(device: &Arc<Device>, signals: &Arc<Signals>, scratch: u32) -> Result<Self> {
        Ok(Self {
            queue: Queue::with_scratch(device, PACKETS, scratch)?,
            signals: signals.clone(),
            given: Mutex::default(),
        })
    }

    /// The queue below it.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Runs a kernel after all that was given before.
    ///
    /// `Launch`: the kernel needs more scratch than the stream has.
    pub fn launch(&self, launch: &Arc<Launch>) -> Result<()> {
        launch.put(&self.queue, 0)?;
        self.lock().launches.push(launch.clone());
        Ok(())
    }

    /// A marker behind all that was given so far.
    pub fn mark(&self) -> Result<Marker> {
        let marker = Marker(Arc::new(Place {
            signal: self.signals.signal(1)?,
            waiting: Mutex::new(()),
        }));
        self.queue.submit(BarrierAnd {
            completion: marker.0.signal.address(),
            ..Default::default()
        })?;
        self.lock().markers.push(marker.clone());
        Ok(marker)
    }

    /// Does nothing of what is given from now on before `marker`, of whatever stream, is reached.
    pub fn wait_for(&self, marker: &Marker) -> Result<()> {
        self.queue
            .submit(BarrierAnd::on(&[marker.0.signal.address()])?)?;
        self.lock().markers.push(marker.clone());
        Ok(())
    }

    /// Sleeps until all that was given is done, and lets go of what was kept for it. Errors as
    /// [`Queue::wait`].
    pub fn finish(&self, timeout: Duration) -> Result<()> {
        // What is given while this waits is kept until the next time.
        let given = std::mem::take(&mut *self.lock());
        let done = self.mark().and_then(|marker| {
            let _one = marker.0.waiting.lock();
            self.queue.wait(&marker.0.signal, timeout)
        });
        if done.is_err() {
            let mut now = self.lock();
            now.launches.extend(given.launches);
            now.markers.extend(given.markers);
        }
        done
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Marker {
    /// Whether it is reached.
    pub fn is_reached(&self) -> bool {
        self.0.signal.load() <= 0
    }

    /// Sleeps until it is reached; behind others who wait for it, as long as their time lasts.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let _one = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_reached() {
            return Ok(());
        }
        self.0.signal.wait(timeout).map(drop)
    }
}
