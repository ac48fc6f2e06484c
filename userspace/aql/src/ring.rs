// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Ring`]: the producers' side of a ring of AQL packets. Each [`crate::Queue`] has one.
//!
//! # The protocol
//!
//! A producer takes places by moving the write index on, which nothing else does, and only when all
//! of them are free: the read index has come within one ring of them. The body is written with
//! plain stores, the header last with release order: the consumer, which reads headers with acquire
//! order, sees a whole packet or one that is [`INVALID`]. The doorbell comes after. Neither locks
//! nor system calls nor memory are needed, and any number of threads may do it at a time.
//!
//! So each place that is taken is filled: a producer that gives up has taken none, and nothing that
//! others put into the ring stays behind a place that nobody fills.
//!
//! [`submit`] is the protocol; it is generic over the memory, so that `loom` checks that very code
//! (`cargo test` runs it) and not a copy.

use crate::signal::Deadline;
use crate::{Error, Packet, Result};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A header that a consumer takes for "not filled yet": packet type 1.
pub const INVALID: u32 = 1;

/// What producers and the consumer share, with the orders that the protocol asks for.
trait Shared {
    /// How many packets the ring holds, a power of two.
    fn capacity(&self) -> u64;
    /// Takes places if the write index still is `index`.
    fn take_if(&self, index: u64, count: u64, order: Ordering) -> std::result::Result<u64, u64>;
    /// The write index.
    fn written(&self, order: Ordering) -> u64;
    /// The read index.
    fn read(&self, order: Ordering) -> u64;
    /// Writes all of a packet but its header.
    ///
    /// # Safety
    /// The caller has taken `place`, the consumer has left it, and it is not published yet.
    unsafe fn fill(&self, place: u64, packet: &Packet);
    /// Writes the header.
    fn publish(&self, place: u64, header: u32, order: Ordering);
    /// Tells the consumer that there is something up to `index`.
    fn ring(&self, index: u64);
}

/// Puts packets into the ring, one after the other, as soon as there is room for all. The last
/// one's index; nothing when `pause`, which lets others run, says that it is not worth waiting any
/// more: then nothing was put.
fn submit<S: Shared>(
    shared: &S,
    packets: &[Packet],
    mut pause: impl FnMut() -> bool,
) -> Option<u64> {
    loop {
        if let Some(last) = try_submit(shared, packets) {
            return Some(last);
        }
        if !pause() {
            return None;
        }
    }
}

#[inline]
fn is_full<S: Shared>(shared: &S, index: u64) -> bool {
    index.wrapping_sub(shared.read(Ordering::Acquire)) >= shared.capacity()
}

/// Puts packets into the ring, one after the other, if there is room for all. The last one's index.
#[inline]
fn try_submit<S: Shared>(shared: &S, packets: &[Packet]) -> Option<u64> {
    let count = packets.len() as u64;
    let mut first = shared.written(Ordering::Relaxed);
    loop {
        let last = first + count - 1;
        // Acquire: the consumer's last look at the place came before it moved its index on. It goes
        // on only: where there is room now there is when the places are taken.
        if is_full(shared, last) {
            // Of an index that others have moved on the consumer may be ahead.
            let now = shared.written(Ordering::Relaxed);
            if now == first {
                return None;
            }
            first = now;
            continue;
        }
        // Relaxed: the places have different numbers; what is in them is ordered below.
        match shared.take_if(first, count, Ordering::Relaxed) {
            Ok(_) => {
                for (index, packet) in (first..).zip(packets) {
                    put(shared, index, packet);
                }
                shared.ring(last);
                return Some(last);
            }
            Err(now) => first = now,
        }
    }
}

#[inline]
fn put<S: Shared>(shared: &S, index: u64, packet: &Packet) {
    let place = index & (shared.capacity() - 1);
    // SAFETY: `index` was taken by this caller alone, and the read index has passed what was there.
    unsafe { shared.fill(place, packet) };
    // Release: whoever sees the header sees the body.
    shared.publish(place, packet.0[0], Ordering::Release);
}

/// How long a producer waits for a consumer that takes nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often it asks meanwhile whether the consumer is still there.
const ASK: Duration = Duration::from_millis(100);
/// From when on it sleeps between two looks, and for how long.
const AWAKE: Duration = Duration::from_millis(10);
const ASLEEP: Duration = Duration::from_millis(1);

/// Whether the consumer of a ring is still there.
type Alive = Box<dyn Fn() -> bool + Send + Sync>;

/// The producers' side of a ring of AQL packets in memory that a consumer sees.
pub struct Ring {
    packets: NonNull<Packet>,
    capacity: u64,
    write: NonNull<AtomicU64>,
    read: NonNull<AtomicU64>,
    doorbell: NonNull<AtomicU64>,
    patience: Duration,
    alive: Option<Alive>,
    /// `alive` has said no: it does not come back.
    gone: AtomicBool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("packets", &self.packets)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Since when a producer has waited, and how far the consumer was when it last looked.
struct Waited {
    read: u64,
    moved: Instant,
    asked: Instant,
}

// SAFETY: what the pointers lead to is shared by design: atomics, and packets under the protocol.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `capacity` packets, all of whose headers are made [`INVALID`].
    ///
    /// # Panics
    /// When `capacity` is not a power of two.
    ///
    /// # Safety
    /// The pointers must be valid as long as the ring; only rings and one consumer use what they
    /// lead to, and no other ring is made over it while this one is in use.
    pub unsafe fn new(
        packets: NonNull<Packet>,
        capacity: u64,
        write: NonNull<AtomicU64>,
        read: NonNull<AtomicU64>,
        doorbell: NonNull<AtomicU64>,
    ) -> Self {
        assert!(capacity.is_power_of_two(), "{capacity} is no power of two");
        let ring = Self {
            packets,
            capacity,
            write,
            read,
            doorbell,
            patience: PATIENCE,
            alive: None,
            gone: AtomicBool::new(false),
        };
        for place in 0..capacity {
            ring.header(place).store(INVALID, Ordering::Relaxed);
        }
        ring
    }

    /// The same ring whose producers wait so long for a consumer that takes nothing, instead of
    /// [`PATIENCE`], and give up at once when `alive` says that there is none any more.
    pub fn watched(
        mut self,
        patience: Duration,
        alive: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        self.patience = patience;
        self.alive = Some(Box::new(alive));
        self
    }

    /// Puts `packet` into the ring and rings the doorbell; waits while the ring is full. Its index.
    ///
    /// `Lost`: the consumer is gone, or has taken nothing for so long as one has patience. Then
    /// `packet` is not there, and the ring is as it was: another try is as good as the first one.
    #[inline]
    pub fn submit(&self, packet: &Packet) -> Result<u64> {
        self.submit_all(std::slice::from_ref(packet))
    }

    /// Puts `packets` into the ring one after the other, with nobody else's between, and tells the
    /// consumer once; more than the ring holds go in parts. The last one's index. `Lost` as for
    /// [`Ring::submit`]: none of the part is there.
    ///
    /// # Panics
    /// When there is no packet.
    #[inline]
    pub fn submit_all(&self, packets: &[Packet]) -> Result<u64> {
        assert!(!packets.is_empty(), "nothing to submit");
        try_submit(self, packets).map_or_else(|| self.submit_late(packets), Ok)
    }

    /// There was no room for all of them at once.
    #[cold]
    fn submit_late(&self, packets: &[Packet]) -> Result<u64> {
        let mut last = Err(Error::Lost);
        for part in packets.chunks(self.capacity as usize) {
            let mut waited = self.waited();
            let put = submit(self, part, || self.pause(&mut waited, self.patience));
            last = Ok(put.ok_or(Error::Lost)?);
        }
        last
    }

    /// Puts `packet` into the ring if there is room now. Its index.
    #[inline]
    pub fn try_submit(&self, packet: &Packet) -> Option<u64> {
        try_submit(self, std::slice::from_ref(packet))
    }

    /// Puts `packets` into the ring as [`Ring::submit_all`] does, as many as it holds at most, and
    /// waits until the deadline, however long the consumer takes for what is there.
    ///
    /// `Timeout`: there was no room; `Lost`: the consumer is gone. None of them is there then.
    pub(crate) fn submit_by(&self, packets: &[Packet], deadline: Deadline) -> Result<u64> {
        let (mut waited, mut error) = (self.waited(), Error::Lost);
        let put = submit(self, packets, || {
            if deadline.is_over() {
                error = deadline.error();
                return false;
            }
            self.pause(&mut waited, Duration::MAX)
        });
        put.ok_or(error)
    }

    fn waited(&self) -> Waited {
        let now = Instant::now();
        Waited {
            read: Shared::read(self, Ordering::Relaxed),
            moved: now,
            asked: now,
        }
    }

    /// Lets others run, while the ring is full. Whether it is still worth waiting.
    fn pause(&self, waited: &mut Waited, patience: Duration) -> bool {
        if self.gone.load(Ordering::Relaxed) {
            return false;
        }
        if waited.moved.elapsed() < AWAKE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(ASLEEP);
        }
        let (read, now) = (Shared::read(self, Ordering::Relaxed), Instant::now());
        if waited.read != read {
            (waited.read, waited.moved) = (read, now);
        }
        if now - waited.asked < ASK {
            return true;
        }
        waited.asked = now;
        if self.alive.as_ref().is_some_and(|alive| !alive()) {
            self.gone.store(true, Ordering::Relaxed);
        }
        now - waited.moved < patience && !self.gone.load(Ordering::Relaxed)
    }

    /// How many packets have been taken for writing, and how many the consumer has taken out.
    pub fn indices(&self) -> (u64, u64) {
        (
            Shared::written(self, Ordering::Acquire),
            Shared::read(self, Ordering::Acquire),
        )
    }

    /// How many packets it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn header(&self, place: u64) -> &AtomicU32 {
        // SAFETY: `place` is below `capacity`; headers are only ever used as atomics.
        unsafe {
            &*self
                .packets
                .as_ptr()
                .add(place as usize)
                .cast::<AtomicU32>()
        }
    }
}

impl Shared for Ring {
    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn take_if(&self, index: u64, count: u64, order: Ordering) -> std::result::Result<u64, u64> {
        // SAFETY: valid by `new`.
        unsafe { self.write.as_ref() }.compare_exchange_weak(index, index + count, order, order)
    }

    #[inline]
    fn written(&self, order: Ordering) -> u64 {
        // SAFETY: valid by `new`.
        unsafe { self.write.as_ref() }.load(order)
    }

    #[inline]
    fn read(&self, order: Ordering) -> u64 {
        // SAFETY: valid by `new`.
        unsafe { self.read.as_ref() }.load(order)
    }

    #[inline]
    unsafe fn fill(&self, place: u64, packet: &Packet) {
        // Relaxed atomics, not plain stores: who looks at the ring's memory meanwhile is no data
        // race. The header's four bytes are left out.
        // SAFETY: within the ring, aligned to 64; the caller alone writes the place.
        unsafe {
            let to = self.packets.as_ptr().add(place as usize).cast::<u32>();
            AtomicU32::from_ptr(to.add(1)).store(packet.0[1], Ordering::Relaxed);
            let to = to.cast::<u64>();
            for (index, half) in (1..).zip(packet.0[2..].chunks_exact(2)) {
                let word = u64::from(half[0]) | u64::from(half[1]) << 32;
                AtomicU64::from_ptr(to.add(index)).store(word, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn publish(&self, place: u64, header: u32, order: Ordering) {
        self.header(place).store(header, order);
    }

    #[inline]
    fn ring(&self, index: u64) {
        // Release: the header is in memory before the doorbell rings.
        // SAFETY: valid by `new`.
        unsafe { self.doorbell.as_ref() }.store(index, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
