// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Ring`]: the producers' side of a ring of AQL packets. Each [`crate::Queue`] has one.
//!
//! # The protocol
//!
//! A producer takes places by adding to the write index, which nothing else does. A place is free
//! when the read index has come within one ring of it. The body is written with plain stores, the
//! header last with release order: the consumer, which reads headers with acquire order, sees a
//! whole packet or one that is [`INVALID`]. The doorbell comes after. Neither locks nor system
//! calls nor memory are needed, and any number of threads may do it at a time.
//!
//! A consumer that stops for good, as a queue does when its GPU is reset, leaves a producer with a
//! place that it can't fill. Then the ring is lost: it says so to this producer and to all others.
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
    /// Adds to the write index; what it was before.
    fn take(&self, count: u64, order: Ordering) -> u64;
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
    /// What a producer knows of the time that it has waited.
    type Waited: Default;
    /// Lets others run, while the ring is full. Whether it is still worth waiting.
    fn pause(&self, waited: &mut Self::Waited) -> bool;
}

/// Puts packets into the ring, one after the other, and waits while it is full. The last one's
/// index; nothing when the waiting came to its end.
#[inline]
fn submit<S: Shared>(shared: &S, packets: &[Packet]) -> Option<u64> {
    // Relaxed: the places have different numbers; what is in them is ordered below.
    let first = shared.take(packets.len() as u64, Ordering::Relaxed);
    for (index, packet) in (first..).zip(packets) {
        // Acquire: the consumer's last look at the place came before it moved its index on.
        if is_full(shared, index) {
            // The consumer must know of what it is waited for.
            if index > first {
                shared.ring(index - 1);
            }
            wait_for_room(shared, index)?;
        }
        put(shared, index, packet);
    }
    let last = first + packets.len() as u64 - 1;
    shared.ring(last);
    Some(last)
}

#[inline]
fn is_full<S: Shared>(shared: &S, index: u64) -> bool {
    index.wrapping_sub(shared.read(Ordering::Acquire)) >= shared.capacity()
}

#[cold]
fn wait_for_room<S: Shared>(shared: &S, index: u64) -> Option<()> {
    let mut waited = S::Waited::default();
    while is_full(shared, index) {
        if !shared.pause(&mut waited) {
            return None;
        }
    }
    Some(())
}

/// Puts packets into the ring, one after the other, if there is room for all. The last one's index.
#[inline]
fn try_submit<S: Shared>(shared: &S, packets: &[Packet]) -> Option<u64> {
    let count = packets.len() as u64;
    let mut first = shared.written(Ordering::Relaxed);
    loop {
        let last = first + count - 1;
        if is_full(shared, last) {
            return None;
        }
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
    /// A producer has gone without filling its place: nothing behind it will ever be read.
    lost: AtomicBool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("packets", &self.packets)
            .field("capacity", &self.capacity)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// How long a producer has waited, and how far the consumer was when it last looked.
#[derive(Debug, Default)]
pub struct Waited(Option<Since>);

#[derive(Debug)]
struct Since {
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
            lost: AtomicBool::new(false),
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
    /// `Lost`: the consumer takes nothing more. So it is for all that comes after.
    #[inline]
    pub fn submit(&self, packet: &Packet) -> Result<u64> {
        self.submit_all(std::slice::from_ref(packet))
    }

    /// Puts `packets` into the ring one after the other, with nobody else's between, and tells the
    /// consumer once. The last one's index. `Lost` as for [`Ring::submit`].
    ///
    /// # Panics
    /// When there is no packet.
    #[inline]
    pub fn submit_all(&self, packets: &[Packet]) -> Result<u64> {
        assert!(!packets.is_empty(), "nothing to submit");
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::Lost);
        }
        submit(self, packets).ok_or_else(|| self.lose())
    }

    #[cold]
    fn lose(&self) -> Error {
        self.lost.store(true, Ordering::Relaxed);
        Error::Lost
    }

    /// Puts `packet` into the ring if there is room now, and the ring is not lost. Its index.
    #[inline]
    pub fn try_submit(&self, packet: &Packet) -> Option<u64> {
        if self.lost.load(Ordering::Relaxed) {
            return None;
        }
        try_submit(self, std::slice::from_ref(packet))
    }

    /// Puts `packets` into the ring as [`Ring::submit_all`] does, but takes no place before there
    /// is room for all: after an error none of them is there. The last one's index.
    ///
    /// `Timeout`: there was none. `Lost` as for [`Ring::submit`].
    pub(crate) fn submit_by(&self, packets: &[Packet], deadline: Deadline) -> Result<u64> {
        let mut waited = Waited::default();
        while !self.lost.load(Ordering::Relaxed) {
            if let Some(last) = try_submit(self, packets) {
                return Ok(last);
            }
            if deadline.is_over() {
                return Err(deadline.error());
            }
            if !self.pause(&mut waited) {
                break;
            }
        }
        Err(Error::Lost)
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
    fn take(&self, count: u64, order: Ordering) -> u64 {
        // SAFETY: valid by `new`.
        unsafe { self.write.as_ref() }.fetch_add(count, order)
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

    type Waited = Waited;

    #[cold]
    fn pause(&self, waited: &mut Waited) -> bool {
        std::thread::yield_now();
        let (read, now) = (Shared::read(self, Ordering::Relaxed), Instant::now());
        let since = waited.0.get_or_insert(Since {
            read,
            moved: now,
            asked: now,
        });
        if since.read != read {
            (since.read, since.moved) = (read, now);
        }
        if now - since.asked < ASK {
            return !self.lost.load(Ordering::Relaxed);
        }
        since.asked = now;
        now - since.moved < self.patience && self.alive.as_ref().is_none_or(|alive| alive())
    }
}

#[cfg(test)]
mod tests;
