// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Local memory as the GPU sees it behind the host data path (HDP): what a CPU writes through BAR0
//! stays there until the driver flushes the HDP, or until it leaves by itself. One [`Hdp`] per GPU,
//! in the place of its local memory.
//!
//! The guest's CPUs write the memory without asking anybody. So the GPU has copies of the pages
//! that it used last, and reads those: they are made anew by a flush and after a while. What the
//! GPU writes goes to both; CPUs see it at once, for this HDP has no read cache (`hdp_v4_0.c` has
//! nothing to invalidate on 4.4.2). A page that the GPU has not used lately is read as it is.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Hostile;
use crate::memory::{BusError, PhysicalMemory};

const PAGE: u64 = 0x1000;
/// Pages that the GPU has copies of: a flush makes all anew.
const ROOM: usize = 512;
/// A write leaves the HDP by itself after this time at the latest.
const LONGEST: Duration = Duration::from_millis(100);
/// Or at one look in so many.
const LEAVES: u64 = 256;

/// What the GPU believes to be in a page, until when.
struct Copy {
    bytes: Box<[u8; PAGE as usize]>,
    until: Instant,
}

#[derive(Default)]
struct Copies {
    pages: HashMap<u64, Copy>,
    /// The order in which they came.
    order: VecDeque<u64>,
}

/// The memory and the copies.
pub struct Hdp {
    memory: Arc<dyn PhysicalMemory>,
    hostile: Arc<Hostile>,
    copies: Mutex<Copies>,
}

impl Hdp {
    pub fn new(memory: Arc<dyn PhysicalMemory>, hostile: Arc<Hostile>) -> Self {
        Self {
            memory,
            hostile,
            copies: Mutex::default(),
        }
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that CPUs have written is seen from now on.
    pub fn flush(&self) {
        let mut copies = self.copies();
        copies.pages.retain(|page, copy| {
            let read = self.memory.read(page * PAGE, &mut copy.bytes[..]);
            copy.until = Instant::now() + self.hostile.time(LONGEST);
            read.is_ok()
        });
    }

    /// The page as it is now.
    fn look(&self, page: u64) -> Result<Copy, BusError> {
        let mut bytes = Box::new([0; PAGE as usize]);
        self.memory.read(page * PAGE, &mut bytes[..])?;
        let until = Instant::now() + self.hostile.time(LONGEST);
        Ok(Copy { bytes, until })
    }

    /// The copy of a page, as old as it may be.
    fn copy<'a>(&self, copies: &'a mut Copies, page: u64) -> Result<&'a mut Copy, BusError> {
        let is_over = |copy: &Copy| copy.until <= Instant::now() || self.hostile.one_in(LEAVES);
        let Copies { pages, order } = copies;
        if pages.get(&page).is_none_or(is_over) {
            let fresh = self.look(page)?;
            if pages.insert(page, fresh).is_none() {
                order.push_back(page);
            }
            while pages.len() > ROOM {
                order.pop_front().map(|oldest| pages.remove(&oldest));
            }
        }
        pages.get_mut(&page).ok_or(BusError {
            address: page * PAGE,
            length: PAGE as usize,
        })
    }

    /// Counts what is read though a CPU has overwritten it.
    fn compare(&self, address: u64, read: &[u8]) {
        let mut bytes = [0; PAGE as usize];
        let now = &mut bytes[..read.len()];
        if self.memory.read(address, now).is_ok() && now != read {
            tracing::debug!(target: "hostile", "local memory at {address:#x} is older than BAR0's");
            self.hostile.stale_reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What a write of the GPU changed in the pages that it has copies of; a page of which it has
    /// none is copied.
    fn written(&self, copies: &mut Copies, address: u64, data: &[u8]) {
        for (address, data) in pieces(address, data) {
            let inside = (address % PAGE) as usize;
            match copies.pages.get_mut(&(address / PAGE)) {
                Some(copy) => copy.bytes[inside..inside + data.len()].copy_from_slice(data),
                None => drop(self.copy(copies, address / PAGE)),
            }
        }
    }
}

/// The parts of a range that lie in one page each.
fn pieces(address: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = address;
    let mut left = data;
    std::iter::from_fn(move || {
        let room = (PAGE - at % PAGE) as usize;
        let (now, rest) = left.split_at(left.len().min(room));
        let piece = (!now.is_empty()).then_some((at, now));
        at += now.len() as u64;
        left = rest;
        piece
    })
}

impl PhysicalMemory for Hdp {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        let whole = BusError {
            address,
            length: out.len(),
        };
        let end = address.checked_add(out.len() as u64).ok_or(whole)?;
        let mut copies = self.copies();
        let mut at = address;
        let mut left = out;
        while at < end {
            let room = (PAGE - at % PAGE) as usize;
            let (now, rest) = left.split_at_mut(left.len().min(room));
            let copy = self.copy(&mut copies, at / PAGE).map_err(|_| whole)?;
            let inside = (at % PAGE) as usize;
            now.copy_from_slice(&copy.bytes[inside..inside + now.len()]);
            self.compare(at, now);
            at += now.len() as u64;
            left = rest;
        }
        Ok(())
    }

    fn newest(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.memory.newest(address, out)
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError> {
        let mut copies = self.copies();
        self.memory.write(address, data)?;
        self.written(&mut copies, address, data);
        Ok(())
    }

    fn update32(&self, address: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError> {
        let mut copies = self.copies();
        let mut new = 0;
        let old = self.memory.update32(address, &mut |old| {
            new = change(old);
            new
        })?;
        self.written(&mut copies, address, &new.to_le_bytes());
        Ok(old)
    }

    fn update64(&self, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError> {
        let mut copies = self.copies();
        let mut new = 0;
        let old = self.memory.update64(address, &mut |old| {
            new = change(old);
            new
        })?;
        self.written(&mut copies, address, &new.to_le_bytes());
        Ok(old)
    }

    fn zero(&self, address: u64, length: u64) -> Result<(), BusError> {
        let mut copies = self.copies();
        self.memory.zero(address, length)?;
        let pages = address / PAGE..address.saturating_add(length).div_ceil(PAGE);
        copies.pages.retain(|page, _| !pages.contains(page));
        copies.order.retain(|page| !pages.contains(page));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HeapMemory;

    fn hdp() -> (Arc<HeapMemory>, Hdp) {
        let memory = Arc::new(HeapMemory::new(4 << 20));
        let hdp = Hdp::new(memory.clone(), Arc::new(Hostile::new(1)));
        (memory, hdp)
    }

    /// How often the GPU reads what was there before, of many times that a CPU writes a page which
    /// the GPU knows.
    fn stale(flush: bool) -> u64 {
        let (memory, hdp) = hdp();
        let mut stale = 0;
        for value in 1..=200 {
            assert!(hdp.read_u64(0x2008).unwrap() < value);
            memory.write_u64(0x2008, value).unwrap();
            if flush {
                hdp.flush();
            }
            stale += u64::from(hdp.read_u64(0x2008).unwrap() != value);
        }
        stale
    }

    #[test]
    fn what_a_cpu_wrote_is_seen_after_a_flush_and_seldom_before() {
        assert_eq!(stale(true), 0);
        assert!(stale(false) > 150);
    }

    #[test]
    fn it_leaves_by_itself_in_the_end() {
        let (memory, hdp) = hdp();
        hdp.read_u64(0x1000).unwrap();
        memory.write_u64(0x1000, 7).unwrap();
        let start = Instant::now();
        while hdp.read_u64(0x1000).unwrap() != 7 {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn what_the_gpu_writes_everybody_sees_and_it_keeps_the_rest_of_the_page() {
        let (memory, hdp) = hdp();
        hdp.read_u64(0x1000).unwrap();
        let data: Vec<u8> = (0..=255).cycle().take(0x1800).collect();
        hdp.write(0x1800, &data).unwrap();
        for address in [0x1800, 0x1ff8, 0x2000, 0x2ff8] {
            assert_eq!(hdp.read_u64(address), memory.read_u64(address));
        }
        assert_eq!(hdp.update64(0x1800, &mut |_| 5), memory_value(&data, 0));
        assert_eq!(hdp.update32(0x1804, &mut |high| high + 1), Ok(0));
        assert_eq!(
            [memory.read_u64(0x1800), hdp.read_u64(0x1800)],
            [Ok(1 << 32 | 5); 2]
        );
        hdp.zero(0x1000, 0x2000).unwrap();
        assert_eq!(hdp.read_u64(0x1800), Ok(0));
        assert!(hdp.read_u64(4 << 20).is_err() && hdp.write_u64(u64::MAX, 1).is_err());
    }

    #[test]
    fn clearing_a_page_leaves_the_next_one_s_copy() {
        let (_, hdp) = hdp();
        hdp.read_u64(0x1000).unwrap();
        hdp.read_u64(0x2000).unwrap();
        hdp.zero(0x1000, 0x1000).unwrap();
        let copies = hdp.copies();
        assert_eq!(
            [1, 2].map(|page| copies.pages.contains_key(&page)),
            [false, true]
        );
    }

    fn memory_value(data: &[u8], at: usize) -> Result<u64, BusError> {
        Ok(u64::from_le_bytes(data[at..at + 8].try_into().unwrap()))
    }

    #[test]
    fn there_is_room_for_so_many_pages() {
        let (_, hdp) = hdp();
        for page in 0..2 * ROOM as u64 {
            hdp.read_u64(page % 1024 * PAGE).unwrap();
        }
        let copies = hdp.copies();
        assert_eq!((copies.pages.len(), copies.order.len()), (ROOM, ROOM));
    }
}
