// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Signal`]: a 64-bit value that a GPU decrements, and the event for it.
//!
//! The layout is `amd_signal_t` of ROCr's `amd_hsa_signal.h`, which the command processor knows.

use crate::{Error, Result};
use kfd::{Device, Event, EventKind, Events, Memory, Wait};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
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

/// A page of signals, and the process's events behind them.
#[derive(Debug)]
pub struct Signals {
    memory: Memory,
    events: Arc<Events>,
    places: Mutex<Places>,
}

/// Which places of the page a new signal may have.
#[derive(Debug)]
struct Places {
    free: Vec<usize>,
    /// Those of signals that were dropped while a packet might still count them down.
    late: Vec<usize>,
}

impl Places {
    fn new(count: usize) -> Self {
        Self {
            free: (0..count).rev().collect(),
            late: Vec::new(),
        }
    }

    /// A place that no GPU writes any more; `is_done` says so of one that was late.
    fn take(&mut self, is_done: impl Fn(usize) -> bool) -> Option<usize> {
        self.free.pop().or_else(|| {
            let found = self.late.iter().position(|slot| is_done(*slot))?;
            Some(self.late.swap_remove(found))
        })
    }

    fn give_back(&mut self, slot: usize, is_done: bool) {
        match is_done {
            true => self.free.push(slot),
            false => self.late.push(slot),
        }
    }
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
            places: Mutex::new(Places::new(count)),
        }))
    }

    /// Another GPU of the same context may count them down, and be waited for by them, too.
    pub fn share_with(&self, device: &Device) -> Result<()> {
        self.memory.share_with(device)?;
        Ok(self.events.share_with(device)?)
    }

    /// The process's events.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// A signal of value `initial` whose completion raises an interrupt.
    pub fn signal(self: &Arc<Self>, initial: i64) -> Result<Signal> {
        let event = Event::new(&self.events, EventKind::Signal, true)?;
        let slot = self
            .places()
            .take(|slot| self.value(slot).load(Ordering::Acquire) <= 0);
        let slot = slot.ok_or(Error::NoSignal(self.memory.size() / SIZE))?;
        let signal = Signal {
            pool: self.clone(),
            slot,
            event,
            named: AtomicBool::new(false),
        };
        signal.put(KIND, KIND_USER);
        signal.put(MAILBOX, signal.event.mailbox());
        signal.put(EVENT_ID, u64::from(signal.event.trigger()));
        signal.put(START, 0);
        signal.put(START + 8, 0);
        signal.value().store(initial, Ordering::Release);
        Ok(signal)
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of the signal at `slot`, which is below the page's number of them.
    fn value(&self, slot: usize) -> &AtomicI64 {
        // SAFETY: within the page, aligned to 8, and only ever used as an atomic by this process.
        unsafe {
            let page = self.memory.as_ptr().as_ptr();
            AtomicI64::from_ptr(page.add(slot * SIZE + VALUE).cast())
        }
    }
}

/// How a wait came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// How many interrupts of this signal the kernel had counted when one was last waited for.
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
    /// Whether somebody has its address, so that a packet may name it.
    named: AtomicBool,
}

impl Signal {
    /// The address that packets name.
    ///
    /// Who has asked for it once may have it counted down later: a signal that is dropped before
    /// its value is 0 or less keeps its place among the [`Signals`] until it is.
    pub fn address(&self) -> u64 {
        self.named.store(true, Ordering::Relaxed);
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

    /// Sets the value; before the packet that names this signal is submitted, or for those who wait
    /// for it: 0 or less wakes them.
    pub fn store(&self, value: i64) {
        self.value().store(value, Ordering::Release);
        if value <= 0 {
            // It fails only after a fork, in a process that has no waiters.
            let _ = self.event.set();
        }
    }

    /// The event behind it.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Sleeps until the value is 0 or less; it returns at once when it is, however often it was
    /// waited for before. [`Duration::MAX`] is without end.
    pub fn wait(&self, timeout: Duration) -> Result<Completion> {
        if self.load() <= 0 {
            return Ok(self.completion());
        }
        self.wait_interrupt(timeout)
    }

    /// Sleeps in the kernel until the GPU's interrupt, one that no wait has seen yet, says that the
    /// value is 0 or less.
    ///
    /// The value is looked at only after the kernel has reported the event: nothing is polled. For
    /// those who want to know that the interrupt comes; [`Signal::wait`] is for all others.
    pub fn wait_interrupt(&self, timeout: Duration) -> Result<Completion> {
        let deadline = Deadline::after(timeout);
        loop {
            let left = deadline.left();
            let came = self.event.wait(left)?;
            if came && self.load() <= 0 {
                return Ok(self.completion());
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::Timeout(timeout));
            }
        }
    }

    fn completion(&self) -> Completion {
        let words = self.pool.memory.read::<u64>(self.offset() + START, 2);
        Completion {
            interrupts: self.event.age() - 1,
            ticks: (words[0], words[1]),
        }
    }

    /// Sleeps until one of `signals`, of one context's, is 0 or less; its number among them, the
    /// first one's if there are several.
    ///
    /// `Timeout`: none is, and none will be if there is none. `Contexts`: they are of several.
    pub fn wait_any(signals: &[&Signal], timeout: Duration) -> Result<usize> {
        let events: Vec<_> = signals.iter().map(|signal| &signal.event).collect();
        let of = signals
            .first()
            .ok_or(Error::Timeout(timeout))?
            .pool
            .events();
        if !signals
            .iter()
            .all(|signal| signal.pool.events().is_with(of))
        {
            return Err(Error::Contexts);
        }
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(done) = signals.iter().position(|signal| signal.load() <= 0) {
                return Ok(done);
            }
            let left = deadline.left();
            let came = of.wait(&events, Wait::Any, left)?;
            if !came && left.is_some_and(|left| left.is_zero()) {
                return Err(Error::Timeout(timeout));
            }
        }
    }

    /// Sleeps until each of `signals` is 0 or less.
    pub fn wait_all(signals: &[&Signal], timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        for signal in signals {
            let left = deadline.left().unwrap_or(Duration::MAX);
            signal.wait(left)?;
        }
        Ok(())
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
        self.pool.value(self.slot)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let is_done = self.load() <= 0 || !self.named.load(Ordering::Relaxed);
        self.pool.places().give_back(self.slot, is_done);
    }
}

/// When a wait ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// The end of so much time from now on; a time that no clock reaches has none.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// What is left of it, at least nothing; `None` where there is no end.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_may_still_be_written_is_not_given_to_another() {
        let mut places = Places::new(2);
        let nothing_is_done = |_| false;
        let one = places.take(nothing_is_done).expect("two are free");
        let two = places.take(nothing_is_done).expect("one is free");
        assert_eq!(places.take(nothing_is_done), None);
        places.give_back(one, false);
        assert_eq!(
            places.take(nothing_is_done),
            None,
            "a GPU may count it down"
        );
        places.give_back(two, true);
        assert_eq!(places.take(nothing_is_done), Some(two));
        assert_eq!(places.take(|slot| slot == one), Some(one), "it has been");
    }

    #[test]
    fn the_longest_time_has_no_end() {
        assert_eq!(Deadline::after(Duration::MAX).left(), None);
        assert_eq!(Deadline::after(Duration::ZERO).left(), Some(Duration::ZERO));
        let hour = Duration::from_secs(3600);
        assert!(Deadline::after(hour).left() > Some(hour / 2));
    }
}
