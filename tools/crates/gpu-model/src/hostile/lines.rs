// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What caches are made of: lines that are as memory was ([`Lines`]: instruction, scalar and vector
//! L1), and bytes that memory does not have yet ([`Dirty`]: L2). Each XCC owns its own, in
//! [`Caches`](super::caches::Caches).

use std::collections::{BTreeMap, HashMap};

use crate::memory::{BusError, Physical, PhysicalMemory};

/// Bytes of a line of the vector L1 and the L2; the others have it here, too.
pub const LINE: u64 = 128;

pub type Bytes = [u8; LINE as usize];

/// Where a line begins, and where in it a place is.
pub const fn split(at: Physical) -> (Physical, usize) {
    let inside = at.address % LINE;
    let line = Physical {
        memory: at.memory,
        address: at.address - inside,
    };
    (line, inside as usize)
}

/// The parts of `length` bytes from `at` on that lie in one line each: their places, and which of
/// the bytes they are.
pub fn pieces(
    at: Physical,
    length: usize,
) -> impl Iterator<Item = (Physical, std::ops::Range<usize>)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let place = Physical {
            memory: at.memory,
            address: at.address + next as u64,
        };
        let room = LINE as usize - split(place).1;
        let range = next..length.min(next + room);
        next = range.end;
        (!range.is_empty()).then_some((place, range))
    })
}

/// Lines as they were when they were read.
#[derive(Default)]
pub struct Lines(HashMap<Physical, Box<Bytes>>);

impl Lines {
    /// Lines of the vector L1 (32 KiB); the instruction cache (64 KiB for two compute units) and
    /// the scalar cache (16 KiB) have as many here.
    const ROOM: usize = 256;

    pub fn get(&self, line: Physical) -> Option<&Bytes> {
        self.0.get(&line).map(|bytes| &**bytes)
    }

    /// When there is no room, all that were there go.
    pub fn put(&mut self, line: Physical, bytes: Bytes) {
        if self.0.len() >= Self::ROOM {
            self.0.clear();
        }
        self.0.insert(line, Box::new(bytes));
    }

    /// Changes bytes of one line, if it is there.
    pub fn write(&mut self, at: Physical, data: &[u8]) {
        let (line, inside) = split(at);
        if let Some(bytes) = self.0.get_mut(&line) {
            bytes[inside..inside + data.len()].copy_from_slice(data);
        }
    }

    pub fn remove(&mut self, line: Physical) {
        self.0.remove(&line);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Bytes that were stored and not written back.
struct Stored {
    bytes: Bytes,
    /// Memory below them when they were stored, behind the HDP. Where it differs by now somebody
    /// else has written, whose probe has taken the byte from the cache.
    below: Bytes,
    /// Which bytes.
    mask: u128,
}

/// What an L2 has to write back.
#[derive(Default)]
pub struct Dirty(BTreeMap<Physical, Stored>);

impl Dirty {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Stores into one line.
    pub fn store(
        &mut self,
        memory: &dyn PhysicalMemory,
        at: Physical,
        data: &[u8],
    ) -> Result<(), BusError> {
        let (line, inside) = split(at);
        let mut now = [0; LINE as usize];
        memory.newest(line.address, &mut now)?;
        let stored = self.0.entry(line).or_insert_with(|| Stored {
            bytes: now,
            below: now,
            mask: 0,
        });
        stored.settle(&now);
        for (index, byte) in (inside..).zip(data) {
            stored.bytes[index] = *byte;
            stored.below[index] = now[index];
            stored.mask |= 1 << index;
        }
        Ok(())
    }

    /// Lays what is stored in one line over `out`, which is what a reader finds in memory at `at`.
    pub fn overlay(&mut self, memory: &dyn PhysicalMemory, at: Physical, out: &mut [u8]) {
        let (line, inside) = split(at);
        let Some(stored) = self.0.get_mut(&line) else {
            return;
        };
        let mut now = [0; LINE as usize];
        if memory.newest(line.address, &mut now).is_ok() {
            stored.settle(&now);
        }
        for (index, byte) in (inside..).zip(out) {
            if stored.mask >> index & 1 != 0 {
                *byte = stored.bytes[index];
            }
        }
        if stored.mask == 0 {
            self.0.remove(&line);
        }
    }

    /// Whether some of the bytes of one line are stored.
    pub fn holds(&self, at: Physical, length: usize) -> bool {
        let (line, inside) = split(at);
        let wanted = mask_of(inside, length);
        self.0.get(&line).is_some_and(|it| it.mask & wanted != 0)
    }

    /// Forgets bytes of one line.
    pub fn forget(&mut self, at: Physical, length: usize) {
        let (line, inside) = split(at);
        if let Some(stored) = self.0.get_mut(&line) {
            stored.mask &= !mask_of(inside, length);
            if stored.mask == 0 {
                self.0.remove(&line);
            }
        }
    }

    /// Writes the line of `at` back.
    pub fn write_back(&mut self, memory: &dyn PhysicalMemory, at: Physical) {
        let (line, _) = split(at);
        let Some(mut stored) = self.0.remove(&line) else {
            return;
        };
        let mut now = [0; LINE as usize];
        if memory.newest(line.address, &mut now).is_ok() {
            stored.settle(&now);
            stored.write(memory, line.address);
        }
    }

    /// All lines.
    pub fn lines(&self) -> Vec<Physical> {
        self.0.keys().copied().collect()
    }

    /// Those from `first` to `end`.
    pub fn lines_in(&self, first: Physical, end: u64) -> Vec<Physical> {
        let end = Physical {
            address: end.max(first.address),
            ..first
        };
        self.0.range(first..end).map(|(line, _)| *line).collect()
    }

    /// One of the lines, by a random number.
    pub fn any(&self, number: u64) -> Option<Physical> {
        let (first, last) = (self.0.keys().next()?, self.0.keys().next_back()?);
        let (from, until) = (
            first.address.min(last.address),
            first.address.max(last.address),
        );
        let address = from + number % (until - from + 1);
        let after = self.0.range(Physical { address, ..*first }..).next();
        Some(*after.map_or(first, |(line, _)| line))
    }
}

const fn mask_of(inside: usize, length: usize) -> u128 {
    let ones = match length as u64 {
        LINE.. => u128::MAX,
        length => (1 << length) - 1,
    };
    ones << inside
}

impl Stored {
    /// Drops what others have written over.
    fn settle(&mut self, now: &Bytes) {
        for (index, (now, below)) in now.iter().zip(&self.below).enumerate() {
            if now != below {
                self.mask &= !(1 << index);
            }
        }
    }

    /// Writes the bytes that are left, a run of them at a time.
    fn write(&self, memory: &dyn PhysicalMemory, address: u64) {
        let mut from = 0;
        while from < LINE as usize {
            let left = self.mask >> from;
            from += left.trailing_zeros() as usize;
            if from >= LINE as usize {
                return;
            }
            let count = (self.mask >> from).trailing_ones() as usize;
            let run = &self.bytes[from..from + count];
            // Where it was read from it can be written to.
            let _ = memory.write(address + from as u64, run);
            from += count;
        }
    }
}
