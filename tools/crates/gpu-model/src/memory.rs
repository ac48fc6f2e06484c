// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Physical memory as the GPU reaches it: VRAM, and the guest's RAM over the bus.
//!
//! There are two of them per GPU, given to [`crate::model::GpuModel`] by whoever hosts it; the host
//! may map and unmap guest RAM behind the trait at any time. Both are read and written by the
//! guest's CPUs at the same time, so an aligned access of 1, 2, 4 or 8 bytes is one atomic access.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Nothing answers at a physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory at {address:#x}+{length:#x}")]
pub struct BusError {
    pub address: u64,
    pub length: usize,
}

/// A physical address space.
pub trait PhysicalMemory: Send + Sync {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError>;
    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError>;
    /// Atomically replaces the aligned dword by `change(old)` and returns the old value. `change`
    /// may run more than once.
    fn update32(&self, address: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError>;
    /// The same for an aligned qword.
    fn update64(&self, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError>;

    /// What the newest write left there, also where readers see an older copy.
    fn newest(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.read(address, out)
    }

    /// Clears a range. Worth overriding where clearing much is cheaper than writing zeros.
    fn zero(&self, address: u64, length: u64) -> Result<(), BusError> {
        let zeros = [0; 4096];
        let mut done = 0;
        while done < length {
            let now = (length - done).min(zeros.len() as u64);
            self.write(address + done, &zeros[..now as usize])?;
            done += now;
        }
        Ok(())
    }

    fn read_u32(&self, address: u64) -> Result<u32, BusError> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn read_u64(&self, address: u64) -> Result<u64, BusError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write_u32(&self, address: u64, value: u32) -> Result<(), BusError> {
        self.write(address, &value.to_le_bytes())
    }

    fn write_u64(&self, address: u64, value: u64) -> Result<(), BusError> {
        self.write(address, &value.to_le_bytes())
    }
}

/// Which of the two a physical address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// Local memory; addresses are offsets from its start, or, in a hive, from the start of the
    /// first node's.
    Vram,
    /// The guest's physical (or IOMMU) address space.
    System,
}

/// A place in physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical {
    pub memory: Memory,
    pub address: u64,
}

/// Memory in this process's heap, for tests and tools: no guest shares it. Chunks are made when
/// first written, so a large one costs nothing.
pub struct HeapMemory {
    size: usize,
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
}

/// Qwords of a chunk.
const CHUNK: usize = 8192;

impl HeapMemory {
    /// Zeroed memory of at least `size` bytes.
    pub fn new(size: usize) -> Self {
        let size = size.next_multiple_of(8);
        let chunks = size.div_ceil(CHUNK * 8);
        Self {
            size,
            chunks: std::iter::repeat_with(OnceLock::new).take(chunks).collect(),
        }
    }

    fn check(&self, address: u64, length: usize) -> Result<usize, BusError> {
        let start = usize::try_from(address).ok();
        start
            .filter(|s| s.checked_add(length).is_some_and(|end| end <= self.size))
            .ok_or(BusError { address, length })
    }

    /// The qword with this number.
    fn word(&self, number: usize) -> &AtomicU64 {
        let fill = || {
            std::iter::repeat_with(AtomicU64::default)
                .take(CHUNK)
                .collect()
        };
        &self.chunks[number / CHUNK].get_or_init(fill)[number % CHUNK]
    }
}

impl PhysicalMemory for HeapMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        let mut at = self.check(address, out.len())?;
        let mut left = out;
        while !left.is_empty() {
            let word = self.word(at / 8).load(Ordering::Acquire).to_le_bytes();
            let (now, rest) = left.split_at_mut(left.len().min(8 - at % 8));
            now.copy_from_slice(&word[at % 8..at % 8 + now.len()]);
            at += now.len();
            left = rest;
        }
        Ok(())
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError> {
        let mut at = self.check(address, data.len())?;
        let mut left = data;
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(8 - at % 8));
            let merge = |old: u64| {
                let mut bytes = old.to_le_bytes();
                bytes[at % 8..at % 8 + now.len()].copy_from_slice(now);
                Some(u64::from_le_bytes(bytes))
            };
            let _ = self
                .word(at / 8)
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, merge);
            at += now.len();
            left = rest;
        }
        Ok(())
    }

    fn update32(&self, address: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError> {
        let shift = (address % 8) * 8;
        let mut old_value = 0;
        self.update64(address & !7, &mut |old| {
            old_value = (old >> shift) as u32;
            let new = u64::from(change(old_value));
            old & !(0xffff_ffff << shift) | new << shift
        })?;
        Ok(old_value)
    }

    fn update64(&self, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError> {
        let at = self.check(address, 8)?;
        let word = self.word(at / 8);
        let mut old = word.load(Ordering::Acquire);
        loop {
            let new = change(old);
            match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) => return Ok(old),
                Err(now) => old = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_bytes_cross_words() {
        let memory = HeapMemory::new(32);
        memory
            .write(5, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
            .unwrap();
        let mut out = [0; 14];
        memory.read(4, &mut out).unwrap();
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0]);
    }

    #[test]
    fn outside_is_a_bus_error() {
        let memory = HeapMemory::new(16);
        assert_eq!(
            memory.read_u32(13),
            Err(BusError {
                address: 13,
                length: 4
            })
        );
        assert!(memory.write(u64::MAX, &[0]).is_err());
    }

    #[test]
    fn update_of_a_high_dword_keeps_the_low_one() {
        let memory = HeapMemory::new(8);
        memory.write_u64(0, 0x1111_1111_2222_2222).unwrap();
        assert_eq!(memory.update32(4, &mut |v| v + 1), Ok(0x1111_1111));
        assert_eq!(memory.read_u64(0), Ok(0x1111_1112_2222_2222));
    }
}
