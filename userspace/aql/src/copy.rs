// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`CopyQueue`]: a ring of packets for a copy engine (SDMA 4.4.2), which copies and fills memory.
//!
//! Layouts: `linux:drivers/gpu/drm/amd/amdgpu/vega10_sdma_pkt_open.h`. Indices count bytes and
//! never start again; a packet does not go around the end of the ring, NOPs fill what is left
//! there.

use crate::signal::Deadline;
use crate::watch::Watch;
use crate::{Error, Result, Signal, PATIENCE};
use kfd::{Device, Memory, QueueKind, QueueMemory};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const RING_BYTES: u64 = 64 << 10;
/// Opcodes: `SDMA_OP_*`.
const COPY_LINEAR: u32 = 1;
const FENCE: u32 = 5;
const TRAP: u32 = 6;
const POLL_REGMEM: u32 = 8;
const ATOMIC: u32 = 10;
const CONST_FILL: u32 = 11;
/// ATOMIC_OP in bits 31:25: `TC_OP_ATOMIC_ADD_RTN_64`.
const ADD_64: u32 = 0x2f << 25;
/// FILLSIZE in bits 31:30: whole words.
const FILL_WORDS: u32 = 2 << 30;
/// What a POLL_REGMEM has in its third word to mean "flush the host data path" (as ROCr sends it).
const HDP_FLUSH: u32 = 0x8000_0000;
/// The most bytes of one packet: its count has 22 bits on all SDMA 4.
const MOST_BYTES: u64 = 1 << 22;
/// How often a producer that waits asks whether the GPU is still there.
const ASK: Duration = Duration::from_millis(100);
const READ_INDEX: usize = 0;
const WRITE_INDEX: usize = 64;

/// A queue for a copy engine. Copies of one queue are done one after the other.
#[derive(Debug)]
pub struct CopyQueue {
    queue: kfd::Queue,
    ring: Arc<Memory>,
    indices: Arc<Memory>,
    watch: Arc<Watch>,
    places: Places,
}

impl CopyQueue {
    /// A queue on one of the GPU's copy engines; the kernel chooses which.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let ring = Arc::new(Memory::gtt(device, RING_BYTES as usize)?);
        let indices = Arc::new(Memory::gtt(device, 4096)?);
        let memory = QueueMemory {
            ring: ring.clone(),
            ring_size: RING_BYTES as u32,
            indices: indices.clone(),
            write_index: WRITE_INDEX,
            read_index: READ_INDEX,
        };
        let watch = Watch::new(device)?;
        let queue = kfd::Queue::create(device, QueueKind::Sdma, memory)?;
        Ok(Self {
            queue,
            ring,
            indices,
            watch,
            places: Places::default(),
        })
    }

    /// The kernel's id of this queue.
    pub fn id(&self) -> u32 {
        self.queue.id()
    }

    /// Copies `bytes` from one address to another; `done` is decremented when they are there.
    ///
    /// The buffers must live until then, and not overlap. `Lost`: the ring is full, and the GPU was
    /// reset or has taken nothing for a minute. `Kfd`: what the CPU has written cannot be flushed
    /// now ([`Device::flush_writes`]).
    pub fn copy(&self, from: u64, to: u64, bytes: u64, done: &Signal) -> Result<()> {
        let mut packets = flush();
        for part in (0..bytes).step_by(MOST_BYTES as usize) {
            let count = (bytes - part).min(MOST_BYTES) as u32 - 1;
            packets.push(packet(
                COPY_LINEAR,
                &[count, 0],
                &[from + part, to + part],
                &[],
            ));
        }
        packets.push(completion(done));
        done.for_completion();
        self.submit(&packets).inspect_err(|_| done.not_completed())
    }

    /// Fills `bytes` from an address on with one word again and again; `done` is decremented when
    /// they are there. Whole words only. The buffer must live until then. `Lost` and `Kfd` as
    /// [`CopyQueue::copy`].
    pub fn fill(&self, to: u64, word: u32, bytes: u64, done: &Signal) -> Result<()> {
        if (to | bytes) % 4 != 0 {
            return Err(Error::Copy(format!(
                "{bytes} bytes at {to:#x} are no whole words"
            )));
        }
        // Without the last word: the count has 22 bits, and must be a multiple of words less one
        // byte.
        let most = MOST_BYTES - 4;
        let mut packets = flush();
        for part in (0..bytes).step_by(most as usize) {
            let count = (bytes - part).min(most) as u32 - 4;
            packets.push(packet(
                CONST_FILL | FILL_WORDS,
                &[],
                &[to + part],
                &[word, count],
            ));
        }
        packets.push(completion(done));
        done.for_completion();
        self.submit(&packets).inspect_err(|_| done.not_completed())
    }

    /// Puts packets into the ring one after the other and rings the doorbell.
    fn submit(&self, packets: &[Vec<u32>]) -> Result<()> {
        if !self.queue.is_own() {
            return Err(Error::Lost);
        }
        // Those in other GPUs' host data paths; the packets flush that of this one.
        self.queue.device().flush_writes()?;
        let alive = || self.watch.check().is_ok();
        let put = self.places.submit(self, packets, PATIENCE, alive);
        put.map_err(|error| self.watch.check().err().unwrap_or(error))
    }

    /// Sleeps until `done`, of something that this queue was given, is 0 or less; or until that can
    /// no longer be, as [`crate::Queue::wait`] does and [`Signal::wait`] does not.
    pub fn wait(&self, done: &Signal, timeout: Duration) -> Result<()> {
        self.watch.wait(done, Deadline::after(timeout))
    }
}

/// The ring and its consumer.
trait Engine {
    /// Up to where the consumer has read, in bytes since the beginning.
    fn read(&self) -> u64;
    /// Writes words at a byte of the ring.
    fn write(&self, at: u64, words: &[u32]);
    /// Tells the consumer up to where it is written.
    fn ring(&self, written: u64);
}

impl Engine for CopyQueue {
    fn read(&self) -> u64 {
        self.index(READ_INDEX).load(Ordering::Acquire)
    }

    fn write(&self, at: u64, words: &[u32]) {
        self.ring.write(at as usize, words);
    }

    fn ring(&self, written: u64) {
        self.index(WRITE_INDEX).store(written, Ordering::Release);
        self.queue.ring_doorbell(written);
    }
}

/// Up to where a ring is written, in bytes. The lock is held while packets are written, and not
/// while room for them is waited for.
#[derive(Debug, Default)]
struct Places {
    written: Mutex<u64>,
}

impl Places {
    /// As many of `packets` at a time as there is room for; others' may come between.
    fn submit(
        &self,
        engine: &impl Engine,
        packets: &[Vec<u32>],
        patience: Duration,
        alive: impl Fn() -> bool,
    ) -> Result<()> {
        let mut left = packets;
        let (mut moved, mut asked, mut seen) = (Instant::now(), Instant::now(), engine.read());
        loop {
            left = &left[self.put(engine, left)..];
            if left.is_empty() {
                return Ok(());
            }
            std::thread::yield_now();
            let (now, read) = (Instant::now(), engine.read());
            if read != seen {
                (moved, seen) = (now, read);
            }
            if now - asked >= ASK {
                asked = now;
                if now - moved >= patience || !alive() {
                    return Err(Error::Lost);
                }
            }
        }
    }

    /// Writes those packets that there is room for, and rings. How many.
    fn put(&self, engine: &impl Engine, packets: &[Vec<u32>]) -> usize {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for packet in packets {
            let bytes = packet.len() as u64 * 4;
            let left = RING_BYTES - *written % RING_BYTES;
            let nops = if left < bytes { left } else { 0 };
            // Never all of it: to an engine that compares the places within the ring, full is
            // empty. Waves may write anything as the read index.
            let used = written.wrapping_sub(engine.read());
            if used.saturating_add(nops + bytes) >= RING_BYTES {
                break;
            }
            if nops > 0 {
                engine.write(*written % RING_BYTES, &vec![0; nops as usize / 4]);
            }
            *written += nops;
            engine.write(*written % RING_BYTES, packet);
            *written += bytes;
            count += 1;
        }
        if count > 0 {
            engine.ring(*written);
        }
        count
    }
}

impl CopyQueue {
    fn index(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the page, aligned to 8, and only ever used as an atomic by this process.
        unsafe { AtomicU64::from_ptr(self.indices.as_ptr().as_ptr().add(offset).cast()) }
    }
}

/// A packet: words, then addresses, then words.
fn packet(header: u32, before: &[u32], addresses: &[u64], after: &[u32]) -> Vec<u32> {
    let halves = addresses
        .iter()
        .flat_map(|address| [*address as u32, (*address >> 32) as u32]);
    let words = std::iter::once(header).chain(before.iter().copied());
    words.chain(halves).chain(after.iter().copied()).collect()
}

/// What the CPU wrote into VRAM must have come there before the engine reads it.
fn flush() -> Vec<Vec<u32>> {
    vec![packet(POLL_REGMEM, &[0, HDP_FLUSH, 0, 0, 0], &[], &[])]
}

/// Subtracts 1 from the signal, and raises its event. The three packets are put as one, all or none
/// of them: where there is no room for the last, the first must not be executed later.
fn completion(done: &Signal) -> Vec<u32> {
    let (mailbox, event) = done.mailbox();
    completion_of(done.value_address(), mailbox, event)
}

fn completion_of(value: u64, mailbox: u64, event: u32) -> Vec<u32> {
    let subtract = packet(ATOMIC | ADD_64, &[], &[value, u64::MAX, 0], &[0]);
    let raise = packet(FENCE, &[], &[mailbox], &[event]);
    [subtract, raise, packet(TRAP, &[event], &[], &[])].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_lengths_of_the_header() {
        assert_eq!(packet(COPY_LINEAR, &[1, 0], &[2, 3], &[]).len(), 7);
        assert_eq!(packet(CONST_FILL, &[], &[2], &[3, 4]).len(), 5);
        assert_eq!(packet(ATOMIC, &[], &[1, 2, 3], &[0]).len(), 8);
        assert_eq!(packet(FENCE, &[], &[1], &[2]).len(), 4);
        assert_eq!(packet(TRAP, &[1], &[], &[]).len(), 2);
        assert_eq!(flush()[0].len(), 6);
    }

    /// A ring that nobody empties but the test.
    struct Fake {
        words: Mutex<Vec<u32>>,
        read: AtomicU64,
        written: AtomicU64,
    }

    impl Fake {
        fn new() -> Self {
            Self {
                words: Mutex::new(vec![u32::MAX; RING_BYTES as usize / 4]),
                read: AtomicU64::new(0),
                written: AtomicU64::new(0),
            }
        }
    }

    impl Engine for Fake {
        fn read(&self) -> u64 {
            self.read.load(Ordering::Acquire)
        }

        fn write(&self, at: u64, words: &[u32]) {
            let at = at as usize / 4;
            self.words.lock().expect("no panic")[at..at + words.len()].copy_from_slice(words);
        }

        fn ring(&self, written: u64) {
            self.written.store(written, Ordering::Release);
        }
    }

    #[test]
    fn a_packet_does_not_go_around_the_end() {
        let (fake, places) = (Fake::new(), Places::default());
        let seven = vec![7; 7];
        let fit = RING_BYTES as usize / 28;
        assert_eq!(places.put(&fake, &vec![seven.clone(); fit + 1]), fit);
        fake.read.store(24, Ordering::Release);
        assert_eq!(
            places.put(&fake, std::slice::from_ref(&seven)),
            0,
            "4 words at the end, 7 at its start"
        );
        fake.read.store(28, Ordering::Release);
        assert_eq!(places.put(&fake, std::slice::from_ref(&seven)), 0, "full");
        fake.read.store(56, Ordering::Release);
        assert_eq!(places.put(&fake, &[seven]), 1);
        let nops = RING_BYTES as usize / 4 - fit * 7;
        assert!(nops > 0);
        let words = fake.words.lock().expect("no panic");
        assert_eq!(words[fit * 7..], vec![0; nops]);
        assert_eq!(fake.written.load(Ordering::Acquire), RING_BYTES + 28);
    }

    #[test]
    fn a_ring_is_never_full() {
        let (fake, places) = (Fake::new(), Places::default());
        let all = RING_BYTES as usize / 16;
        assert_eq!(places.put(&fake, &vec![vec![1; 4]; all]), all - 1);
        fake.read.store(16, Ordering::Release);
        assert_eq!(places.put(&fake, &vec![vec![1; 4]; all]), 1);
        // What no engine has read.
        fake.read.store(RING_BYTES + 16, Ordering::Release);
        assert_eq!(places.put(&fake, &[vec![1; 4]]), 0);
    }

    #[test]
    fn a_dead_engine_ends_all_waits_at_once() {
        let (fake, places) = (Fake::new(), Places::default());
        let most = RING_BYTES as usize / 16 - 1;
        assert_eq!(places.put(&fake, &vec![vec![1; 4]; most]), most);
        let patience = Duration::from_secs(2);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| places.submit(&fake, &[vec![2; 4]], patience, || true)))
                .collect();
            for wait in waits {
                let end = wait.join().expect("no panic");
                assert!(matches!(end, Err(Error::Lost)));
            }
        });
        // TIMEOUT: one after the other they would have taken four times as long.
        assert!(start.elapsed() < 3 * patience, "{:?}", start.elapsed());
        let gone = places.submit(&fake, &[vec![2; 4]], Duration::MAX, || false);
        assert!(matches!(gone, Err(Error::Lost)));
    }

    #[test]
    fn more_than_the_ring_holds_goes_in_parts() {
        let (fake, places) = (Fake::new(), Places::default());
        let packets = vec![vec![3; 8]; RING_BYTES as usize / 16];
        std::thread::scope(|scope| {
            let producer = scope.spawn(|| places.submit(&fake, &packets, PATIENCE, || true));
            while !producer.is_finished() {
                let written = fake.written.load(Ordering::Acquire);
                fake.read.store(written, Ordering::Release);
                std::thread::yield_now();
            }
            assert!(producer.join().expect("no panic").is_ok());
        });
        assert_eq!(fake.written.load(Ordering::Acquire), 2 * RING_BYTES);
    }

    #[test]
    fn a_completion_is_put_whole_or_not_at_all() {
        let (fake, places) = (Fake::new(), Places::default());
        let copy = packet(COPY_LINEAR, &[63, 0], &[1, 2], &[]);
        let patience = Duration::from_millis(200);
        let put = || {
            let mut packets = flush();
            packets.push(copy.clone());
            packets.push(completion_of(0x1000, 0x2000, 5));
            places.submit(&fake, &packets, patience, || true)
        };
        let bytes = 4 * (6 + 7 + 8 + 4 + 2);
        let fit = RING_BYTES / bytes;
        for _ in 0..fit {
            put().expect("there is room");
        }
        // Room for the subtraction, and not for what raises the event.
        let left = RING_BYTES % bytes;
        assert!(
            (4 * (6 + 7 + 8)..4 * (6 + 7 + 8 + 4)).contains(&left),
            "{left}"
        );
        assert!(matches!(put(), Err(Error::Lost)));
        let written = fake.written.load(Ordering::Acquire) as usize / 4;
        let words = fake.words.lock().expect("no panic");
        let told = &words[(fit * bytes) as usize / 4..written];
        assert_eq!(told, [flush()[0].clone(), copy.clone()].concat());
    }

    #[test]
    fn an_address_is_two_words() {
        assert_eq!(
            packet(FENCE, &[], &[0x1_2345_6789], &[9]),
            [FENCE, 0x2345_6789, 1, 9]
        );
    }
}
