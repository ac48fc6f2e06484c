// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Signal`]: a 64-bit value that a GPU decrements, and the event for it.
//!
//! The layout is `amd_signal_t` of ROCr's `amd_hsa_signal.h`, which the command processor knows.

use crate::{Error, Result};
use kfd::{Device, Event, EventKind, Events, Memory, Wait};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SIZE: usize = 64;
pub(crate) const KIND: usize = 0;
pub(crate) const VALUE: usize = 8;
pub(crate) const MAILBOX: usize = 16;
pub(crate) const EVENT_ID: usize = 24;
const START: usize = 32;
/// `AMD_SIGNAL_KIND_USER`.
pub(crate) const KIND_USER: u64 = 1;

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
    free: VecDeque<usize>,
    /// Those of signals that were dropped while packets were still to count them down, and the
    /// value that they have when all have.
    late: Vec<(usize, i64)>,
}

impl Places {
    fn new(count: usize) -> Self {
        Self {
            free: (0..count).collect(),
            late: Vec::new(),
        }
    }

    /// A place that no packet counts down any more, the one that has been free for longest; `is`
    /// says whether a late one's value has come down so far.
    fn take(&mut self, is: impl Fn(usize, i64) -> bool) -> Option<usize> {
        self.free.pop_front().or_else(|| {
            let found = self.late.iter().position(|(slot, goal)| is(*slot, *goal))?;
            Some(self.late.swap_remove(found).0)
        })
    }

    fn give_back(&mut self, slot: usize, late: Option<i64>) {
        match late {
            None => self.free.push_back(slot),
            Some(goal) => self.late.push((slot, goal)),
        }
    }
}

/// How many packets are to count a signal down.
#[derive(Debug, Default)]
struct Packets {
    /// Those that were submitted and not yet taken into account by `store`.
    open: i64,
    /// The value that was stored last.
    stored: i64,
    /// Somebody has the address, so that packets of their own may name it.
    named: bool,
}

impl Packets {
    /// The value that the signal has when all packets have counted it down.
    fn goal(&self) -> i64 {
        self.stored.saturating_sub(self.open)
    }

    /// With the value `now`: which one it has when no packet counts it down any more, if that is
    /// still to come.
    fn late(&self, now: i64) -> Option<i64> {
        match self.goal() {
            goal if self.open > 0 && now > goal => Some(goal),
            // As far as is known.
            _ if self.named && now > 0 => Some(0),
            _ => None,
        }
    }

    /// A value is stored where `old` was.
    fn store(&mut self, old: i64, value: i64) {
        self.open -= self.stored.saturating_sub(old).min(self.open);
        self.stored = value;
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
            .take(|slot, goal| self.value(slot).load(Ordering::Acquire) <= goal);
        let slot = slot.ok_or(Error::NoSignal(self.memory.size() / SIZE))?;
        let signal = Signal {
            pool: self.clone(),
            slot,
            event,
            packets: Mutex::new(Packets {
                stored: initial,
                ..Packets::default()
            }),
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
    packets: Mutex<Packets>,
}

impl Signal {
    /// The address that packets name.
    ///
    /// Who names it in packets of its own keeps the signal until those are done: barriers that wait
    /// for it, and what counts it down. Of launches and copies the signal knows by itself: dropped
    /// before they are done, it keeps its place among the [`Signals`] until they are.
    pub fn address(&self) -> u64 {
        self.packets().named = true;
        self.place()
    }

    fn place(&self) -> u64 {
        self.pool.memory.address() + self.offset() as u64
    }

    /// The same for a packet that is about to be submitted, and that counts it down by 1.
    pub(crate) fn for_completion(&self) -> u64 {
        self.packets().open += 1;
        self.place()
    }

    /// The packet was not submitted after all.
    pub(crate) fn not_completed(&self) {
        self.packets().open -= 1;
    }

    /// Whether packets that were submitted are still to count it down.
    pub(crate) fn is_awaited(&self) -> bool {
        let packets = self.packets();
        packets.open > 0 && self.load() > packets.goal()
    }

    /// What was submitted with it does not count it down any more, since the queue is gone: its
    /// place can be another's when it is dropped.
    pub fn settle(&self) {
        let mut packets = self.packets();
        (packets.open, packets.named) = (0, false);
    }

    fn packets(&self) -> std::sync::MutexGuard<'_, Packets> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the value itself lies.
    pub(crate) fn value_address(&self) -> u64 {
        self.place() + VALUE as u64
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
        let mut packets = self.packets();
        let old = self.value().swap(value, Ordering::AcqRel);
        packets.store(old, value);
        drop(packets);
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
        let deadline = Deadline::after(timeout);
        loop {
            // Before the look: another thread that waits can't hide the event then.
            let age = self.event.age();
            if self.load() <= 0 {
                return Ok(self.completion());
            }
            let left = deadline.left();
            let events = self.event.events();
            let came = events.wait_since(&[(&self.event, age)], Wait::All, left)?;
            if !came && left.is_some_and(|left| left.is_zero()) {
                return Err(Error::Timeout(timeout));
            }
        }
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

    /// How it came to its end, when it has.
    pub(crate) fn completion(&self) -> Completion {
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
            let events = signals
                .iter()
                .map(|signal| (&signal.event, signal.event.age()));
            let events: Vec<_> = events.collect();
            if let Some(done) = signals.iter().position(|signal| signal.load() <= 0) {
                return Ok(done);
            }
            let left = deadline.left();
            let came = of.wait_since(&events, Wait::Any, left)?;
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
        let late = self.packets().late(self.load());
        self.pool.places().give_back(self.slot, late);
    }
}

/// When a wait ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// The end of so much time from now on; a time that no clock reaches has none.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self {
            end: Instant::now().checked_add(timeout),
            timeout,
        }
    }

    /// What is left of it, at least nothing; `None` where there is no end.
    pub(crate) fn left(self) -> Option<Duration> {
        self.end
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether it has come.
    pub(crate) fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// What a wait says that has come to it.
    pub(crate) fn error(self) -> Error {
        Error::Timeout(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_may_still_be_written_is_not_given_to_another() {
        let mut places = Places::new(2);
        let nothing_is_done = |_, _| false;
        let one = places.take(nothing_is_done).expect("two are free");
        let two = places.take(nothing_is_done).expect("one is free");
        assert_eq!(places.take(nothing_is_done), None);
        places.give_back(one, Some(-1));
        assert_eq!(
            places.take(nothing_is_done),
            None,
            "a GPU may count it down"
        );
        places.give_back(two, None);
        assert_eq!(places.take(nothing_is_done), Some(two));
        assert_eq!(places.take(|slot, goal| slot == one && goal == 0), None);
        let has_come = |slot, goal| slot == one && goal == -1;
        assert_eq!(places.take(has_come), Some(one), "it has been");
    }

    #[test]
    fn a_place_is_free_when_all_packets_have_counted_it_down() {
        let mut packets = Packets {
            stored: 1,
            ..Packets::default()
        };
        packets.open += 2;
        assert_eq!(packets.goal(), -1, "two packets count a 1 down");
        assert_eq!((packets.late(0), packets.late(-1)), (Some(-1), None));
        // One has, and the program begins anew.
        packets.store(0, 5);
        assert_eq!(packets.goal(), 4, "the other is still to come");
        packets.store(4, 1);
        assert_eq!(packets.goal(), 1);
        // Counts that nobody has submitted here: packets made by hand.
        packets.store(-3, 1);
        assert_eq!((packets.open, packets.goal()), (0, 1));
        assert_eq!(packets.late(1), None);
        packets.named = true;
        assert_eq!((packets.late(1), packets.late(0)), (Some(0), None));
    }

    #[test]
    fn the_longest_time_has_no_end() {
        let ends = |timeout| Deadline::after(timeout).is_over();
        assert!(ends(Duration::ZERO) && !ends(Duration::MAX));
        assert_eq!(Deadline::after(Duration::MAX).left(), None);
        assert_eq!(Deadline::after(Duration::ZERO).left(), Some(Duration::ZERO));
        let hour = Duration::from_secs(3600);
        assert!(Deadline::after(hour).left() > Some(hour / 2));
    }
}
