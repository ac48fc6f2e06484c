// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`CopyQueue`]: a ring of packets for a copy engine (SDMA 4.4.2), which copies and fills memory.
//!
//! Layouts: `linux:drivers/gpu/drm/amd/amdgpu/vega10_sdma_pkt_open.h`. Indices count bytes and
//! never start again; a packet does not go around the end of the ring, NOPs fill what is left
//! there.

use crate::{Error, Result, Signal};
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
/// How long a full ring is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const READ_INDEX: usize = 0;
const WRITE_INDEX: usize = 64;

/// A queue for a copy engine. Copies of one queue are done one after the other.
#[derive(Debug)]
pub struct CopyQueue {
    queue: kfd::Queue,
    ring: Arc<Memory>,
    indices: Arc<Memory>,
    /// Up to where the ring is written, in bytes.
    written: Mutex<u64>,
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
        let queue = kfd::Queue::create(device, QueueKind::Sdma, memory)?;
        let written = Mutex::new(0);
        Ok(Self {
            queue,
            ring,
            indices,
            written,
        })
    }

    /// The kernel's id of this queue.
    pub fn id(&self) -> u32 {
        self.queue.id()
    }

    /// Copies `bytes` from one address to another; `done` is decremented when they are there.
    ///
    /// The buffers must live until then, and not overlap.
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
        packets.extend(completion(done));
        self.submit(&packets)
    }

    /// Fills `bytes` from an address on with one word again and again; `done` is decremented when
    /// they are there. Whole words only. The buffer must live until then.
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
        packets.extend(completion(done));
        self.submit(&packets)
    }

    /// Puts packets into the ring one after the other and rings the doorbell.
    fn submit(&self, packets: &[Vec<u32>]) -> Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in packets {
            let bytes = packet.len() as u64 * 4;
            let left = RING_BYTES - *written % RING_BYTES;
            if left < bytes {
                self.put(&mut written, &vec![0; left as usize / 4])?;
            }
            self.put(&mut written, packet)?;
        }
        self.ring_to(*written);
        Ok(())
    }

    /// One packet, or the NOPs up to the ring's end; waits while there is no room.
    fn put(&self, written: &mut u64, words: &[u32]) -> Result<()> {
        let end = *written + words.len() as u64 * 4;
        let start = Instant::now();
        while end - self.index(READ_INDEX).load(Ordering::Acquire) > RING_BYTES {
            // The engine must know of what it is waited for.
            self.ring_to(*written);
            if start.elapsed() >= PATIENCE {
                return Err(Error::Timeout(PATIENCE));
            }
            std::thread::yield_now();
        }
        self.ring.write((*written % RING_BYTES) as usize, words);
        *written = end;
        Ok(())
    }

    fn ring_to(&self, written: u64) {
        self.index(WRITE_INDEX).store(written, Ordering::Release);
        self.queue.ring_doorbell(written);
    }

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

/// Subtracts 1 from the signal, and raises its event.
fn completion(done: &Signal) -> [Vec<u32>; 3] {
    let (mailbox, event) = done.mailbox();
    [
        packet(
            ATOMIC | ADD_64,
            &[],
            &[done.value_address(), u64::MAX, 0],
            &[0],
        ),
        packet(FENCE, &[], &[mailbox], &[event]),
        packet(TRAP, &[event], &[], &[]),
    ]
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

    #[test]
    fn an_address_is_two_words() {
        assert_eq!(
            packet(FENCE, &[], &[0x1_2345_6789], &[9]),
            [FENCE, 0x2345_6789, 1, 9]
        );
    }
}
