// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`World`]: what one run of abi-diff works on: a process with a GPU, what it has made so far, and
//! the source of its choices. One per run.

use crate::bench::{name, Bench};
use crate::raw::{self, Outcome};
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
use std::fmt;
use std::sync::Arc;

/// Bytes of address space for buffers.
const SPACE: usize = 64 << 20;
/// Bytes of a place in it.
pub const PLACE: u64 = 256 << 10;

/// A value for a call and how the lines name it.
#[derive(Clone)]
pub struct Arg {
    pub value: u64,
    label: String,
}

impl Arg {
    pub fn new(value: u64, label: impl Into<String>) -> Self {
        Self {
            value,
            label: label.into(),
        }
    }

    /// A number that is the same on every run.
    pub fn number(value: u64) -> Self {
        Self::new(value, format!("{value:#x}"))
    }

    pub fn u32(&self) -> u32 {
        self.value as u32
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// A buffer that this run has allocated.
pub struct Buffer {
    pub handle: u64,
    /// It shows a device's pages and is no memory.
    pub shows_device: bool,
    pub name: String,
}

/// A queue that this run has created.
pub struct Queue {
    pub id: u32,
    pub name: String,
    pub ring: u64,
}

pub struct World {
    pub bench: Bench,
    pub buffers: Vec<Buffer>,
    pub queues: Vec<Queue>,
    pub events: Vec<u32>,
    /// The queue that has the GPU's global wave sync.
    pub wave_sync: Option<u32>,
    pub dmabufs: Vec<OwnedFd>,
    pub smi: Vec<OwnedFd>,
    /// The render node again: another file than the one whose VM the process has.
    pub other_render: OwnedFd,
    /// Address space that nothing is mapped to.
    pub space: u64,
    /// Memory of this process.
    pub memory: u64,
    made: u32,
    state: u64,
    lines: u32,
}

/// Bytes of [`World::memory`].
pub const MEMORY: usize = 1 << 20;

impl World {
    pub fn new(seed: u64) -> Result<Self> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        ensure!(!nodes.is_empty(), "no GPU");
        let device: Arc<Device> = Device::acquire(&kfd, &nodes[0])?;
        let render = format!("/dev/dri/renderD{}", nodes[0].property("drm_render_minor"));
        let other_render = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&render)
            .with_context(|| render.clone())?;
        let map = |size, access| {
            // SAFETY: a new mapping where the kernel likes, which stays until the program ends.
            unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) }
        };
        Ok(Self {
            bench: Bench::new(&device)?,
            buffers: Vec::new(),
            queues: Vec::new(),
            events: Vec::new(),
            wave_sync: None,
            dmabufs: Vec::new(),
            smi: Vec::new(),
            other_render: other_render.into(),
            space: map(SPACE, ProtFlags::empty())? as u64,
            memory: map(MEMORY, ProtFlags::READ | ProtFlags::WRITE)? as u64,
            made: 0,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            lines: 0,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bench.kfd()
    }

    /// The next number of Marsaglia's xorshift: the same on both drivers.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit.max(1)
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these numbers.
    pub fn pick(&mut self, from: &[u64]) -> Arg {
        Arg::number(from[self.below(from.len())])
    }

    /// The first of these numbers, `percent` times of a hundred; else one of the others.
    pub fn mostly(&mut self, percent: usize, good: Arg, others: &[u64]) -> Arg {
        if self.chance(percent) {
            good
        } else {
            self.pick(others)
        }
    }

    /// A GPU, mostly the one that there is.
    pub fn gpu(&mut self) -> Arg {
        let gpu = Arg::new(self.bench.gpu_id().into(), "GPU");
        self.mostly(85, gpu, &[0, 1, 0xffff, 0xffff_ffff])
    }

    /// A buffer's handle: of one of this run's, of the bench's, or of nothing.
    pub fn handle(&mut self) -> Arg {
        let gpu = u64::from(self.bench.gpu_id()) << 32;
        match self.below(10) {
            0 => self.pick(&[0, 1, 1 << 32, u64::MAX]),
            1 => Arg::new(gpu | 0x7777, "GPU:0x7777"),
            2 => Arg::new(self.bench.indices.handle(), "indices"),
            _ if self.buffers.is_empty() => Arg::new(gpu | 0x7778, "GPU:0x7778"),
            _ => {
                let index = self.below(self.buffers.len());
                let buffer = &self.buffers[index];
                Arg::new(buffer.handle, buffer.name.clone())
            }
        }
    }

    /// A queue, mostly one of this run's.
    pub fn queue(&mut self) -> Arg {
        if self.queues.is_empty() || !self.chance(85) {
            return self.pick(&[77, 1023, 1024, 0x8000_0000, 0xffff_ffff]);
        }
        let index = self.below(self.queues.len());
        let queue = &self.queues[index];
        Arg::new(queue.id.into(), queue.name.clone())
    }

    /// An event, mostly one of this run's.
    pub fn event(&mut self) -> Arg {
        if self.events.is_empty() || !self.chance(85) {
            return self.pick(&[0, 255, 4095, 4096, 0x8000_0000, 0xffff_ffff]);
        }
        let index = self.below(self.events.len());
        Arg::number(self.events[index].into())
    }

    /// A place for a buffer that the GPU can see; sometimes one where none can be.
    pub fn place(&mut self) -> Arg {
        let slot = self.below(SPACE / PLACE as usize) as u64;
        match self.below(20) {
            0 => self.pick(&[0, 4096, 1 << 47, 0xffff_8000_0000_0000]),
            1 => Arg::new(self.space + slot * PLACE + 8, format!("place {slot} + 8")),
            _ => Arg::new(self.space + slot * PLACE, format!("place {slot}")),
        }
    }

    /// A name for a new object.
    pub fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    /// Calls `request` with `args`.
    pub fn call<T>(&self, request: u32, args: &mut T) -> Outcome {
        raw::ioctl(self.fd(), request, args)
    }

    /// Prints a case: what was called with what, what it came to, and what it wrote back.
    pub fn say(&mut self, call: &str, args: &[&Arg], outcome: Outcome, written: &str) {
        self.lines += 1;
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let result = match outcome {
            Ok(()) => "0".into(),
            Err(errno) => name(errno),
        };
        let arrow = if written.is_empty() { "" } else { " -> " };
        println!("{call}({}): {result}{arrow}{written}", args.join(", "));
    }

    /// Gives back what the run has made, and prints how that went.
    pub fn tidy(&mut self) {
        for queue in std::mem::take(&mut self.queues) {
            let mut args = uapi::kfd_ioctl_destroy_queue_args {
                queue_id: queue.id,
                ..Default::default()
            };
            let outcome = self.call(uapi::IOC_DESTROY_QUEUE, &mut args);
            self.say(&format!("tidy {}", queue.name), &[], outcome, "");
        }
        for event_id in std::mem::take(&mut self.events) {
            let mut args = uapi::kfd_ioctl_destroy_event_args {
                event_id,
                ..Default::default()
            };
            let outcome = self.call(uapi::IOC_DESTROY_EVENT, &mut args);
            self.say(&format!("tidy event {event_id}"), &[], outcome, "");
        }
        self.dmabufs.clear();
        self.smi.clear();
        for buffer in std::mem::take(&mut self.buffers) {
            self.unmap_all(&buffer);
            let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args {
                handle: buffer.handle,
            };
            let outcome = self.call(uapi::IOC_FREE_MEMORY_OF_GPU, &mut args);
            self.say(&format!("tidy {}", buffer.name), &[], outcome, "");
        }
    }

    fn unmap_all(&self, buffer: &Buffer) {
        let gpu_id = self.bench.gpu_id();
        let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle: buffer.handle,
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        // It need not be mapped; whether it still is shows when it is freed.
        let _ = self.call(uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut args);
    }

    /// A handle as the lines name it: whose it is, and which.
    pub fn relative(&self, handle: u64) -> String {
        let owner = if handle >> 32 == u64::from(self.bench.gpu_id()) {
            "GPU"
        } else {
            "other"
        };
        format!("{owner}:{:#x}", handle as u32)
    }

    /// The GPU's device file as the calls want it.
    pub fn render(&self) -> BorrowedFd<'_> {
        self.other_render.as_fd()
    }
}
