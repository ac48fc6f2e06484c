// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the traced programs put into their AQL rings: a thread looks at the rings' indices all the
//! time. So it works on any driver and any GPU, and its times are those of its looks.

use super::kernels::Kernels;
use crate::clocks::monotonic_ns;
use crate::queues::Memory;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause between two looks.
pub const PAUSE: Duration = Duration::from_micros(500);
/// TIMEOUT: a code object is read in some milliseconds; a program is not held up for longer.
const LONGEST: Duration = Duration::from_secs(2);
const PACKET: u64 = 64;
const INVALID: u32 = 1;
const KERNEL_DISPATCH: u32 = 2;

/// A packet of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Its place in the order of the queue.
    pub index: u64,
    /// When it was first seen, in nanoseconds of CLOCK_MONOTONIC.
    pub seen: u64,
    /// When it was first seen that the GPU is done with it; nothing: it never was.
    pub done: Option<u64>,
    /// What it is.
    pub name: &'static str,
    /// The address of the kernel's descriptor; 0: it is no dispatch.
    pub kernel: u64,
    /// Work-items in each direction.
    pub grid: [u32; 3],
    /// Those of a work-group.
    pub group: [u32; 3],
}

/// A queue that is looked at.
#[derive(Debug)]
pub struct Queue {
    /// Whose it is.
    pub pid: i32,
    /// On which GPU.
    pub gpu_id: u32,
    /// The id that CREATE_QUEUE gave.
    pub id: u32,
    /// The ring, and how many packets it has room for.
    pub ring: (u64, u64),
    /// Where the indices lie.
    pub indices: (u64, u64),
    /// What was seen.
    pub dispatches: Vec<Dispatch>,
    /// How many came and went between two looks.
    pub missed: u64,
    /// The index that comes next.
    next: u64,
    /// The first in `dispatches` that was not done.
    open: usize,
    is_gone: bool,
}

impl Queue {
    /// A new queue: read and write pointer in `indices`.
    pub fn new(pid: i32, gpu_id: u32, id: u32, ring: (u64, u64), indices: (u64, u64)) -> Self {
        Self {
            pid,
            gpu_id,
            id,
            ring: (ring.0, ring.1 / PACKET),
            indices,
            dispatches: Vec::new(),
            missed: 0,
            next: 0,
            open: 0,
            is_gone: false,
        }
    }

    /// Looks once; the kernels of new dispatches are told to `unnamed`.
    fn look(&mut self, memory: &Memory, mut unnamed: impl FnMut(u64)) -> Option<()> {
        let read = memory.u64(self.indices.0)?;
        let write = memory.u64(self.indices.1)?;
        let now = monotonic_ns();
        if write.saturating_sub(self.next) > self.ring.1 {
            self.missed += write - self.next - self.ring.1;
            self.next = write - self.ring.1;
        }
        while self.next < write {
            let mut bytes = [0; PACKET as usize];
            let at = self.ring.0 + self.next % self.ring.1 * PACKET;
            memory.read(at, &mut bytes)?;
            let found = dispatch(&bytes, self.next < read);
            // It is not written to its end yet.
            let Some(found) = found else { break };
            if found.kernel != 0 {
                unnamed(found.kernel);
            }
            let (index, seen) = (self.next, now);
            self.dispatches.push(Dispatch {
                index,
                seen,
                ..found
            });
            self.next += 1;
        }
        while let Some(open) = self.dispatches.get_mut(self.open) {
            if open.index >= read {
                break;
            }
            open.done = Some(now);
            self.open += 1;
        }
        Some(())
    }
}

/// What a packet is. The command processor marks what it has taken as INVALID and leaves the rest.
fn dispatch(bytes: &[u8; PACKET as usize], is_taken: bool) -> Option<Dispatch> {
    let word = |at: usize| {
        let word = bytes[at * 4..].first_chunk();
        u32::from_le_bytes(word.copied().unwrap_or_default())
    };
    let kind = word(0) & 0xff;
    if kind == INVALID && !is_taken {
        return None;
    }
    let kernel = u64::from(word(8)) | u64::from(word(9)) << 32;
    let is_dispatch = kind == KERNEL_DISPATCH
        || kind == INVALID && word(1) & 0xffff != 0 && word(3) != 0 && kernel != 0;
    let name = match kind {
        _ if is_dispatch => "KERNEL_DISPATCH",
        0 => "vendor packet",
        3 => "BARRIER_AND",
        5 => "BARRIER_OR",
        _ => "packet",
    };
    let is = |value| if is_dispatch { value } else { 0 };
    Some(Dispatch {
        index: 0,
        seen: 0,
        done: None,
        name,
        kernel: if is_dispatch { kernel } else { 0 },
        grid: [3, 4, 5].map(|at| is(word(at))),
        group: [word(1) & 0xffff, word(1) >> 16, word(2) & 0xffff].map(is),
    })
}

/// All that is looked at.
struct Rings {
    queues: Vec<Queue>,
    memories: HashMap<i32, Memory>,
    ask: Sender<(i32, Ask)>,
    asked: HashSet<(i32, u64)>,
    /// How many kernels still have to be named.
    unnamed: Arc<AtomicUsize>,
    is_over: bool,
}

impl Rings {
    fn look(&mut self) {
        for queue in self.queues.iter_mut().filter(|queue| !queue.is_gone) {
            let memory = self.memories.entry(queue.pid);
            let memory = memory.or_insert_with(|| Memory::of(queue.pid as u32));
            let pid = queue.pid;
            let ask = |kernel| {
                if self.asked.insert((pid, kernel)) {
                    self.unnamed.fetch_add(1, Ordering::Relaxed);
                    // The other end lives as long as this one.
                    let _ = self.ask.send((pid, Ask::Kernel(kernel)));
                }
            };
            queue.is_gone = queue.look(memory, ask).is_none();
        }
    }
}

/// What the thread that knows names is told.
enum Ask {
    /// The loader's list is here.
    Loader(u64),
    /// A kernel has this address.
    Kernel(u64),
}

/// Names of kernels by process and address.
pub type Names = HashMap<(i32, u64), String>;

/// Finds names until nobody asks any more. That takes longer than the pause between two looks: a
/// code object has to be read.
fn names(asked: &Receiver<(i32, Ask)>, unnamed: &AtomicUsize) -> Names {
    let mut known: HashMap<i32, (Memory, Kernels)> = HashMap::new();
    let mut names = Names::new();
    for (pid, ask) in asked {
        match ask {
            Ask::Loader(r_debug) => {
                known.insert(pid, (Memory::of(pid as u32), Kernels::of(r_debug)));
            }
            Ask::Kernel(kernel) => {
                let name = known
                    .get_mut(&pid)
                    .and_then(|(memory, kernels)| kernels.name(kernel, memory));
                names.extend(name.map(|name| ((pid, kernel), name)));
                unnamed.fetch_sub(1, Ordering::Release);
            }
        }
    }
    names
}

/// The threads that look, and that know names.
pub struct Watcher {
    rings: Arc<Mutex<Rings>>,
    looking: JoinHandle<()>,
    naming: JoinHandle<Names>,
}

fn lock(rings: &Mutex<Rings>) -> MutexGuard<'_, Rings> {
    rings.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// Begins to look.
    pub fn start() -> std::io::Result<Self> {
        let (ask, asked) = channel();
        let unnamed = Arc::new(AtomicUsize::new(0));
        let rings = Arc::new(Mutex::new(Rings {
            queues: Vec::new(),
            memories: HashMap::new(),
            ask,
            asked: HashSet::new(),
            unnamed: unnamed.clone(),
            is_over: false,
        }));
        let watched = rings.clone();
        let look = move || loop {
            let mut rings = lock(&watched);
            if rings.is_over {
                return;
            }
            rings.look();
            drop(rings);
            std::thread::sleep(PAUSE);
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        Ok(Self {
            rings,
            looking: thread("rings").spawn(look)?,
            naming: thread("names").spawn(move || names(&asked, &unnamed))?,
        })
    }

    /// There is another queue.
    pub fn add(&self, queue: Queue) {
        let mut rings = lock(&self.rings);
        // Of what the process was before an exec nothing can be read.
        rings.memories.remove(&queue.pid);
        rings.queues.push(queue);
    }

    /// A process tells where its loader's list is.
    pub fn loader(&self, pid: i32, r_debug: u64) {
        let _ = lock(&self.rings).ask.send((pid, Ask::Loader(r_debug)));
    }

    /// A look while a program stands still at a call, until what it dispatched is named: it may be
    /// about to unload its code, or to end.
    pub fn settle(&self) {
        let mut rings = lock(&self.rings);
        rings.look();
        let unnamed = rings.unnamed.clone();
        drop(rings);
        let begun = Instant::now();
        while unnamed.load(Ordering::Acquire) > 0 && begun.elapsed() < LONGEST {
            std::thread::sleep(PAUSE);
        }
    }

    /// A queue is about to go.
    pub fn remove(&self, pid: i32, id: u32) {
        let mut rings = lock(&self.rings);
        let same = |queue: &&mut Queue| queue.pid == pid && queue.id == id;
        for queue in rings.queues.iter_mut().filter(same) {
            queue.is_gone = true;
        }
    }

    /// What the queues held, and the kernels' names.
    pub fn finish(self) -> (Vec<Queue>, Names) {
        let mut rings = lock(&self.rings);
        rings.is_over = true;
        let queues = std::mem::take(&mut rings.queues);
        drop(rings);
        let _ = self.looking.join();
        // With it goes what asks for names.
        drop(self.rings);
        (queues, self.naming.join().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dispatch's words.
    fn packet(header: u32, kernel: u32) -> [u32; 16] {
        let mut words = [0; 16];
        (words[0], words[1], words[3], words[8]) = (header, 64 | 1 << 16, 256, kernel);
        words
    }

    #[test]
    fn packets_are_seen_once_and_end_with_the_read_index() {
        let mut ring = [[0u32; 16]; 4];
        let mut indices = [0u64; 2];
        let at = (&raw mut indices).cast::<u64>() as u64;
        let place = (ring.as_ptr() as u64, 4 * PACKET);
        let mut queue = Queue::new(1, 77, 0, place, (at, at + 8));
        let memory = Memory::of(std::process::id());
        let mut asked = Vec::new();
        let mut look = |ring: &mut [[u32; 16]; 4], read, write, with: &[(usize, [u32; 16])]| {
            for (at, words) in with {
                // SAFETY: the ring is this test's; the look reads it through the kernel.
                unsafe { std::ptr::write_volatile(&mut ring[*at], *words) };
            }
            // SAFETY: as above, of the indices.
            unsafe { std::ptr::write_volatile(&mut indices, [read, write]) };
            queue
                .look(&memory, |kernel| asked.push(kernel))
                .expect("our own memory");
            queue.dispatches.clone()
        };
        // Two places are taken, one is written.
        let seen = look(&mut ring, 0, 2, &[(0, packet(2, 0x40)), (1, packet(1, 0))]);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].kernel, seen[0].done), (0x40, None));
        assert_eq!((seen[0].grid, seen[0].group), ([256, 0, 0], [64, 1, 0]));
        // The first is done, as it was before; a barrier comes.
        let with = [(0, packet(1, 0x40)), (1, packet(3, 0))];
        let seen = look(&mut ring, 1, 2, &with);
        assert_eq!((seen.len(), seen[1].name), (2, "BARRIER_AND"));
        assert!(seen[0].done.is_some() && seen[1].done.is_none());
        // More than fit came meanwhile.
        let with: Vec<_> = (0..4).map(|at| (at, packet(1, 0x80))).collect();
        let seen = look(&mut ring, 10, 10, &with);
        assert_eq!(seen.len(), 6);
        assert!(seen.iter().all(|dispatch| dispatch.done.is_some()));
        assert_eq!(queue.missed, 4);
        assert_eq!(asked, [0x40, 0x80, 0x80, 0x80, 0x80]);
    }
}
