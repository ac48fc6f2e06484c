// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Doorbells in memory: what lies behind the part of BAR2 that the guest writes without asking
//! anybody, and who looks there. One [`Doorbells`] per GPU, shared through [`crate::chip::Chip`].
//!
//! A write through the socket makes the guest's CPU wait for several threads of the host to wake
//! each other. So the doorbells of user queues are cells of shared memory instead, each of 8 bytes,
//! and a thread looks at those that a mapped queue listens to: closely after a ring, less and less
//! often when none comes. As with hardware, a doorbell without a mapped queue is lost; who maps a
//! queue reads its write pointer from memory for that.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::DoorbellIndex;
use crate::memory::PhysicalMemory;

/// Bytes at the start of the aperture that are not in memory: amdgpu's own doorbells
/// (`amdgpu_doorbell.h`, AMDGPU_DOORBELL_LAYOUT1 ends at 0x1c0 quadwords), whose queues run while
/// the CPU waits.
pub const TRAPPED: u64 = 0x1000;

/// A cell that has not been rung. No queue's write pointer gets there; the upper half stays when 32
/// bits are written.
const SILENT: u64 = u64::MAX;

/// So long after a ring the next one is waited for without a pause, then with short pauses, then
/// with long ones. Giving way (sched_yield) instead of spinning costs a hundred times the time: the
/// thread is late at the next ring.
const CLOSE: Duration = Duration::from_micros(100);
const NEAR: Duration = Duration::from_millis(20);
const SHORT_PAUSE: Duration = Duration::from_micros(20);
const LONG_PAUSE: Duration = Duration::from_micros(500);

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub index: DoorbellIndex,
    pub value: u64,
}

/// Which cells there are, and who listens.
pub struct Doorbells {
    /// None: every doorbell is written through the socket.
    cells: Option<Arc<dyn PhysicalMemory>>,
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    /// How many queues listen to a doorbell that is a cell: one for each XCC.
    listeners: BTreeMap<u32, usize>,
    /// Those doorbells, for who looks at them without the lock.
    wanted: Arc<[u32]>,
    stopped: bool,
}

impl Doorbells {
    pub fn new(cells: Option<Arc<dyn PhysicalMemory>>) -> Self {
        Self {
            cells,
            heard: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue is being mapped that listens to `dword`. Call it before its write pointer is read
    /// from memory: what was rung earlier is forgotten.
    pub fn listen(&self, dword: u32) {
        let Some(cells) = self.cells.as_deref().filter(|_| is_cell(dword)) else {
            return;
        };
        let mut heard = self.heard();
        let count = heard.listeners.entry(dword).or_default();
        *count += 1;
        if *count == 1 {
            take(cells, dword);
            heard.wanted = heard.listeners.keys().copied().collect();
            self.changed.notify_all();
        }
    }

    /// A queue that listened to it is unmapped.
    pub fn ignore(&self, dword: u32) {
        let mut heard = self.heard();
        let Some(count) = heard.listeners.get_mut(&dword) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            heard.listeners.remove(&dword);
            heard.wanted = heard.listeners.keys().copied().collect();
        }
    }

    /// Looks at the cells until [`Doorbells::stop`], and passes on what was rung.
    pub fn watch(&self, mut pass_on: impl FnMut(Ring)) {
        let Some(cells) = self.cells.as_deref() else {
            return;
        };
        let mut last = Instant::now();
        while let Some(wanted) = self.wanted() {
            let mut rang = false;
            for ring in wanted.iter().filter_map(|dword| take(cells, *dword)) {
                rang = true;
                pass_on(ring);
            }
            if rang {
                last = Instant::now();
            }
            match last.elapsed() {
                quiet if quiet < CLOSE => std::hint::spin_loop(),
                quiet if quiet < NEAR => std::thread::sleep(SHORT_PAUSE),
                _ => std::thread::sleep(LONG_PAUSE),
            }
        }
    }

    /// The cells to look at, as soon as there are any. None: it is over.
    fn wanted(&self) -> Option<Arc<[u32]>> {
        let heard = self.heard();
        let none = |heard: &mut Heard| heard.wanted.is_empty() && !heard.stopped;
        let heard = self.changed.wait_while(heard, none);
        let heard = heard.unwrap_or_else(PoisonError::into_inner);
        (!heard.stopped).then(|| heard.wanted.clone())
    }

    /// Ends [`Doorbells::watch`].
    pub fn stop(&self) {
        self.heard().stopped = true;
        self.changed.notify_all();
    }
}

const fn is_cell(dword: u32) -> bool {
    dword % 2 == 0 && dword as u64 * 4 >= TRAPPED
}

/// What was rung at a cell since it was last asked.
fn take(cells: &dyn PhysicalMemory, dword: u32) -> Option<Ring> {
    let address = u64::from(dword) * 4;
    // Most of the time there is nothing, and a look costs less than an exchange.
    if cells.read_u64(address).ok()? == SILENT {
        return None;
    }
    let value = cells.update64(address, &mut |_| SILENT).ok()?;
    // Of a ring of 32 bits the upper half still is that of silence.
    let is_short = value >> 32 == SILENT >> 32;
    Some(Ring {
        index: DoorbellIndex(dword),
        value: if is_short { value & 0xffff_ffff } else { value },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HeapMemory;

    const AT: u32 = 0x402;

    fn cells() -> Arc<HeapMemory> {
        Arc::new(HeapMemory::new(0x4000))
    }

    fn ring(value: u64) -> Ring {
        Ring {
            index: DoorbellIndex(AT),
            value,
        }
    }

    #[test]
    fn a_ring_is_heard_once_also_if_it_says_the_same_as_the_last() {
        let memory = cells();
        let doorbells = Doorbells::new(Some(memory.clone()));
        // Rung while no queue was mapped to it.
        memory.write_u64(4 * u64::from(AT), 7).unwrap();
        doorbells.listen(AT);
        assert_eq!(take(&*memory, AT), None);
        for _ in 0..2 {
            memory.write_u64(4 * u64::from(AT), 7).unwrap();
            assert_eq!(take(&*memory, AT), Some(ring(7)));
            assert_eq!(take(&*memory, AT), None);
        }
        memory.write_u32(4 * u64::from(AT), 9).unwrap();
        assert_eq!(take(&*memory, AT), Some(ring(9)));
    }

    #[test]
    fn a_second_listener_loses_nothing_and_the_last_one_ends_the_looking() {
        let memory = cells();
        let doorbells = Doorbells::new(Some(memory.clone()));
        doorbells.listen(AT);
        memory.write_u64(4 * u64::from(AT), 1).unwrap();
        doorbells.listen(AT);
        assert_eq!(take(&*memory, AT), Some(ring(1)));
        doorbells.ignore(AT);
        assert_eq!(doorbells.wanted().as_deref(), Some(&[AT][..]));
        doorbells.ignore(AT);
        doorbells.ignore(AT);
        doorbells.listen(TRAPPED as u32 / 4 - 2);
        assert!(doorbells.heard().wanted.is_empty());
    }

    #[test]
    fn the_watcher_passes_on_what_is_rung_and_stops() {
        let memory = cells();
        let doorbells = Doorbells::new(Some(memory.clone()));
        let heard = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| doorbells.watch(|ring| heard.lock().unwrap().push(ring)));
            doorbells.listen(AT);
            for value in [3, 3, 5] {
                let before = heard.lock().unwrap().len();
                memory.write_u64(4 * u64::from(AT), value).unwrap();
                while heard.lock().unwrap().len() == before {
                    std::thread::yield_now();
                }
            }
            doorbells.stop();
        });
        let values = [3, 3, 5].map(ring);
        assert_eq!(*heard.lock().unwrap(), values);
    }
}
