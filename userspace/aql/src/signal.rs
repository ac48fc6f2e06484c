// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Signal`]: a 64-bit value that a GPU decrements, and the event for it.
//!
//! The layout is `amd_signal_t` of ROCr's `amd_hsa_signal.h`, which the command processor knows.

use crate::{Error, Result};
use kfd::{Device, Event, EventKind, Events, Memory, Wait};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SIZE: usize = 64;
const KIND: usize = 0;
const VALUE: usize = 8;
const MAILBOX: usize = 16;
const EVENT_ID: usize = 24;
const START: usize = 32;
/// `AMD_SIGNAL_KIND_USER`.
const KIND_USER: u64 = 1;

/// A page of signals and the process's events. One per process, since the kernel takes one event
/// page.
#[derive(Debug)]
pub struct Signals {
    memory: Memory,
    events: Arc<Events>,
    free: Mutex<Vec<usize>>,
}

impl Signals {
    /// Room for `count` signals that are live at the same time.
    pub fn new(device: &Arc<Device>, count: usize) -> Result<Arc<Self>> {
        Self::of(device, count, Events::new(device)?)
    }

    /// The same for another GPU of a process, which raises the events of its first one's page.
    pub fn with_events(
        device: &Arc<Device>,
        count: usize,
        events: Arc<Events>,
    ) -> Result<Arc<Self>> {
        events.share_with(device)?;
        Self::of(device, count, events)
    }

    fn of(device: &Arc<Device>, count: usize, events: Arc<Events>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            memory: Memory::gtt(device, count * SIZE)?,
            events,
            free: Mutex::new((0..count).rev().collect()),
        }))
    }

    /// The process's events.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// A signal of value `initial` whose completion raises an interrupt.
    pub fn signal(self: &Arc<Self>, initial: i64) -> Result<Signal> {
        let event = Event::new(&self.events, EventKind::Signal, true)?;
        let slot = self.lock_free().pop();
        let slot = slot.ok_or(Error::NoSignal(self.memory.size() / SIZE))?;
        let signal = Signal {
            pool: self.clone(),
            slot,
            event,
        };
        signal.put(KIND, KIND_USER);
        signal.put(MAILBOX, signal.event.mailbox());
        signal.put(EVENT_ID, u64::from(signal.event.trigger()));
        signal.put(START, 0);
        signal.put(START + 8, 0);
        signal.store(initial);
        Ok(signal)
    }

    fn lock_free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a wait came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How many interrupts of this signal the kernel has counted so far.
    pub interrupts: u64,
    /// When the GPU began and ended, in ticks of its clock; 0 where it does not tell.
    pub ticks: (u64, u64),
}

/// A value in memory that both sides see, with an event that the GPU raises when it changes it.
#[derive(Debug)]
pub struct Signal {
    pool: Arc<Signals>,
    slot: usize,
    event: Event,
}

impl Signal {
    /// The address that packets name.
    pub fn address(&self) -> u64 {
        self.pool.memory.address() + self.offset() as u64
    }

    /// Where the value itself lies.
    pub(crate) fn value_address(&self) -> u64 {
        self.address() + VALUE as u64
    }

    /// Where the GPU writes the event's number, which is the other, before it interrupts.
    pub(crate) fn mailbox(&self) -> (u64, u32) {
        (self.event.mailbox(), self.event.trigger())
    }

    /// The value now.
    pub fn load(&self) -> i64 {
        self.value().load(Ordering::Acquire)
    }

    /// Sets the value; before the packet that names this signal is submitted.
    pub fn store(&self, value: i64) {
        self.value().store(value, Ordering::Release);
    }

    /// The event behind it.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Sleeps in the kernel until the GPU's interrupt says that the value is 0 or less.
    ///
    /// The value is looked at only after the kernel has reported the event: nothing is polled.
    pub fn wait(&self, timeout: Duration) -> Result<Completion> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let came = self
                .event
                .events()
                .wait(&[&self.event], Wait::All, Some(left))?;
            if came && self.load() <= 0 {
                let words = self.pool.memory.read::<u64>(self.offset() + START, 2);
                return Ok(Completion {
                    interrupts: self.event.age() - 1,
                    ticks: (words[0], words[1]),
                });
            }
            if left.is_zero() {
                return Err(Error::Timeout(timeout));
            }
        }
    }

    /// Looks at the value again and again until it is 0 or less: no system call, and a core for
    /// itself.
    pub fn wait_busy(&self, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            // The clock is asked now and then only: it costs more than a look.
            for _ in 0..256 {
                if self.load() <= 0 {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= timeout {
                return Err(Error::Timeout(timeout));
            }
        }
    }

    fn offset(&self) -> usize {
        self.slot * SIZE
    }

    fn put(&self, field: usize, value: u64) {
        self.pool.memory.write(self.offset() + field, &[value]);
    }

    fn value(&self) -> &AtomicI64 {
        // SAFETY: within the pool's memory, aligned to 8, and only ever used as an atomic by this
        // process.
        unsafe {
            AtomicI64::from_ptr(
                self.pool
                    .memory
                    .as_ptr()
                    .as_ptr()
                    .add(self.offset() + VALUE)
                    .cast(),
            )
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.pool.lock_free().push(self.slot);
    }
}
