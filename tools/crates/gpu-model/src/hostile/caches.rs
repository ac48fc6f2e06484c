// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Caches that keep what was not invalidated, and do not show what was not written back. One
//! [`Caches`] per GPU, in its [`Chip`](crate::chip::Chip); each XCC has an L2, a scalar and an
//! instruction cache, and a vector L1 for each compute unit.
//!
//! All are tagged with physical addresses. The rules, and where they are from: Documentation/
//! model.md, "Caches".

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use gcn::{CacheControl, Scope};

use super::lines::{pieces, split, Dirty, Lines, LINE};
use super::Hostile;
use crate::gmc::pte::Mtype;
use crate::memory::{BusError, Memory, Physical, PhysicalMemory};
use crate::processor::lock;

/// One look in so many finds that a line had to give way to another.
const EVICTED: u64 = 64;
/// One store in so many makes the L2 write a line back.
const WRITTEN: u64 = 64;
/// Lines that the L2 has to write back at most.
const ROOM: usize = 4096;

/// Where an address leads.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub at: Physical,
    /// Bytes from here that lie together.
    pub length: u64,
    pub mtype: Mtype,
}

/// A flush of TLBs came between a translation and its use: to be translated again.
#[derive(Debug)]
pub struct Outdated;

/// A wave.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub xcc: u8,
    /// Its compute unit.
    pub unit: u16,
    /// Its partition has other XCCs.
    pub shared: bool,
}

/// Which cache a load looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    Code,
    Scalar,
    Vector,
}

#[derive(Default)]
struct Xcc {
    code: Lines,
    scalar: Lines,
    units: HashMap<u16, Lines>,
    l2: Dirty,
}

impl Xcc {
    fn cache(&mut self, of: Through, unit: u16) -> &mut Lines {
        match of {
            Through::Code => &mut self.code,
            Through::Scalar => &mut self.scalar,
            Through::Vector => self.units.entry(unit).or_default(),
        }
    }
}

/// A GPU's.
pub struct Caches {
    hostile: Arc<Hostile>,
    vram: Arc<dyn PhysicalMemory>,
    system: Arc<dyn PhysicalMemory>,
    xccs: Box<[Mutex<Xcc>]>,
}

impl Caches {
    pub fn new(
        hostile: Arc<Hostile>,
        vram: Arc<dyn PhysicalMemory>,
        system: Arc<dyn PhysicalMemory>,
        xccs: u8,
    ) -> Self {
        Self {
            hostile,
            vram,
            system,
            xccs: (0..xccs).map(|_| Mutex::default()).collect(),
        }
    }

    fn memory(&self, at: Physical) -> &dyn PhysicalMemory {
        match at.memory {
            Memory::Vram => &*self.vram,
            Memory::System => &*self.system,
        }
    }

    fn xcc(&self, xcc: u8) -> MutexGuard<'_, Xcc> {
        lock(&self.xccs[usize::from(xcc) % self.xccs.len()])
    }

    /// What an XCC finds behind its first caches.
    fn read_l2(&self, xcc: &mut Xcc, at: Physical, out: &mut [u8]) -> Result<(), BusError> {
        self.memory(at).read(at.address, out)?;
        if xcc.l2.len() != 0 {
            for (place, range) in pieces(at, out.len()) {
                xcc.l2.overlay(self.memory(place), place, &mut out[range]);
            }
        }
        Ok(())
    }

    /// A wave's load, past the first cache from [`Scope::Device`] on. `current`: the translation
    /// that led here is still one; a flush waits for those that have been asked.
    pub fn load(
        &self,
        by: Client,
        (through, scope): (Through, Scope),
        (at, current): (Physical, impl Fn() -> bool),
        out: &mut [u8],
    ) -> Result<Result<(), Outdated>, BusError> {
        let mut xcc = self.xcc(by.xcc);
        if !current() {
            return Ok(Err(Outdated));
        }
        for (place, range) in pieces(at, out.len()) {
            let (line, inside) = split(place);
            let out = &mut out[range];
            if scope >= Scope::Device {
                xcc.cache(through, by.unit).remove(line);
                self.read_l2(&mut xcc, place, out)?;
                continue;
            }
            let kept = xcc.cache(through, by.unit).get(line);
            if let Some(bytes) = kept.filter(|_| !self.hostile.one_in(EVICTED)) {
                out.copy_from_slice(&bytes[inside..inside + out.len()]);
                self.compare(&mut xcc, through, place, out);
                continue;
            }
            let mut bytes = [0; LINE as usize];
            if self.read_l2(&mut xcc, line, &mut bytes).is_ok() {
                out.copy_from_slice(&bytes[inside..inside + out.len()]);
                xcc.cache(through, by.unit).put(line, bytes);
            } else {
                self.read_l2(&mut xcc, place, out)?;
            }
        }
        Ok(Ok(()))
    }

    /// Counts what is used though it is not so any more.
    fn compare(&self, xcc: &mut Xcc, through: Through, at: Physical, used: &[u8]) {
        let mut bytes = [0; LINE as usize];
        let now = &mut bytes[..used.len()];
        if self.read_l2(xcc, at, now).is_ok() && now != used {
            tracing::debug!(target: "hostile", "{through:?} cache: {at:x?} is older than memory");
            self.hostile.stale_lines.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A wave's store. The first cache writes through; the L2 keeps local memory (RW) until it is
    /// written back, unless others are to see it. `current` as for a load.
    pub fn store(
        &self,
        by: Client,
        scope: Scope,
        (to, current): (Place, impl Fn() -> bool),
        data: &[u8],
    ) -> Result<Result<(), Outdated>, BusError> {
        let stays = match scope {
            Scope::Wave | Scope::Group => true,
            Scope::Device => !by.shared,
            Scope::System => false,
        };
        let stays = stays && matches!(to.mtype, Mtype::Rw | Mtype::Nc);
        if !stays {
            self.probe(to.at, data.len() as u64);
        }
        let mut xcc = self.xcc(by.xcc);
        if !current() {
            return Ok(Err(Outdated));
        }
        for (at, range) in pieces(to.at, data.len()) {
            let data = &data[range];
            let memory = self.memory(at);
            if stays {
                xcc.l2.store(memory, at, data)?;
            } else {
                xcc.l2.forget(at, data.len());
                memory.write(at.address, data)?;
            }
            xcc.cache(Through::Vector, by.unit).write(at, data);
        }
        if self.hostile.one_in(WRITTEN) {
            self.write_one(&mut xcc);
        }
        while xcc.l2.len() > ROOM {
            self.write_one(&mut xcc);
        }
        Ok(Ok(()))
    }

    /// Writes some line back.
    fn write_one(&self, xcc: &mut Xcc) {
        if let Some(line) = xcc.l2.any(self.hostile.number()) {
            xcc.l2.write_back(self.memory(line), line);
        }
    }

    /// A scalar store: its own cache and the vector L1 do not know each other.
    pub fn store_scalar(
        &self,
        by: Client,
        (to, current): (Place, impl Fn() -> bool),
        data: &[u8],
    ) -> Result<Result<(), Outdated>, BusError> {
        let stored = self.store(by, Scope::Wave, (to, current), data)?;
        let mut xcc = self.xcc(by.xcc);
        pieces(to.at, data.len()).for_each(|(at, _)| xcc.scalar.remove(split(at).0));
        Ok(stored)
    }

    /// Before a wave's atomic operation, which memory does: what all XCCs have of it is there, and
    /// the wave's first cache has not.
    pub fn before_atomic(&self, by: Client, at: Physical, length: usize) {
        self.settle(at, length);
        self.after_atomic(by, at);
    }

    /// After it: what another wave of the compute unit has read meanwhile is too old for this one.
    pub fn after_atomic(&self, by: Client, at: Physical) {
        self.xcc(by.xcc)
            .cache(Through::Vector, by.unit)
            .remove(split(at).0);
    }

    /// Before another atomic operation.
    pub fn settle(&self, at: Physical, length: usize) {
        for xcc in &self.xccs {
            let mut xcc = lock(xcc);
            for (at, range) in pieces(at, length) {
                if xcc.l2.holds(at, range.len()) {
                    xcc.l2.write_back(self.memory(at), at);
                }
            }
        }
    }

    /// A read by a command processor, which goes through its XCC's L2, or (None) by others, which
    /// do not.
    pub fn read(&self, xcc: Option<u8>, at: Physical, out: &mut [u8]) -> Result<(), BusError> {
        if let Some(xcc) = xcc {
            return self.read_l2(&mut self.xcc(xcc), at, out);
        }
        let unwritten = |xcc: &Mutex<Xcc>| {
            let xcc = lock(xcc);
            let mut all = pieces(at, out.len()).take_while(|_| xcc.l2.len() != 0);
            all.any(|(at, range)| xcc.l2.holds(at, range.len()))
        };
        if self.xccs.iter().any(unwritten) {
            tracing::debug!(target: "hostile", "{at:x?}: an L2 has something newer");
            self.hostile.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        self.memory(at).read(at.address, out)
    }

    /// A write by others than waves: its probe takes the place from all L2s.
    pub fn probe(&self, at: Physical, length: u64) {
        let end = at.address.saturating_add(length);
        for xcc in &self.xccs {
            let mut xcc = lock(xcc);
            for line in xcc.l2.lines_in(split(at).0, end) {
                let from = line.address.max(at.address);
                let until = end.min(line.address + LINE);
                let at = Physical {
                    address: from,
                    ..line
                };
                xcc.l2.forget(at, (until - from) as usize);
            }
        }
    }

    /// What a wave asks for.
    pub fn control(&self, by: Client, control: CacheControl) {
        let mut xcc = self.xcc(by.xcc);
        match control {
            CacheControl::Invalidate(Scope::Wave) | CacheControl::WriteBack(Scope::Wave) => {}
            CacheControl::Invalidate(_) => xcc.cache(Through::Vector, by.unit).clear(),
            CacheControl::InvalidateScalar => xcc.scalar.clear(),
            CacheControl::InvalidateCode => xcc.code.clear(),
            CacheControl::WriteBack(scope) => {
                if scope == Scope::System || scope == Scope::Device && by.shared {
                    self.write_all(&mut xcc);
                }
            }
        }
    }

    fn write_all(&self, xcc: &mut Xcc) {
        for line in xcc.l2.lines() {
            xcc.l2.write_back(self.memory(line), line);
        }
    }

    /// Writes an XCC's L2 back.
    pub fn write_back(&self, xcc: u8) {
        self.write_all(&mut self.xcc(xcc));
    }

    /// Invalidates an XCC's caches by kind: vector, scalar, instructions.
    pub fn invalidate(&self, xcc: u8, [vector, scalar, code]: [bool; 3]) {
        let mut xcc = self.xcc(xcc);
        if vector {
            xcc.units.clear();
        }
        if scalar {
            xcc.scalar.clear();
        }
        if code {
            xcc.code.clear();
        }
    }

    /// Both, for all that an XCC has.
    pub fn flush(&self, xcc: u8) {
        self.write_back(xcc);
        self.invalidate(xcc, [true; 3]);
    }

    /// Power-on.
    pub fn reset(&self) {
        self.xccs.iter().for_each(|xcc| *lock(xcc) = Xcc::default());
    }
}

#[cfg(test)]
mod tests;
