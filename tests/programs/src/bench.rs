// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Bench`]: what tests of single calls work on. One per test program.

use anyhow::Result;
use kfd::{Device, Event, EventKind, Events, Memory};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// A process with one GPU and the buffers of a queue.
pub struct Bench {
    /// The GPU.
    pub device: Arc<Device>,
    /// Room for a ring of 64 KiB.
    pub ring: Memory,
    /// A page for its two indices.
    pub indices: Memory,
    /// A page for what the GPU notes at the end of its work.
    pub eop: Memory,
    /// Where waves are saved to.
    pub context: Memory,
    /// Its events; a process can have one page of them.
    pub events: Arc<Events>,
}

impl Bench {
    /// All of it, for `device`.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let node = device.node();
        let arrays = node.property("array_count") / node.property("simd_arrays_per_engine").max(1);
        let waves = (node.compute_units() / node.xccs() * 40).min(arrays * 512);
        let debugger = (waves * 32).next_multiple_of(64);
        let context = (node.property("cwsr_size") + debugger) * node.xccs();
        let events = Events::new(device)?;
        // The process has its signal page from the first event on. The C driver of older kernels
        // made one itself if an event came before.
        match Event::new(&events, EventKind::Signal, false) {
            Ok(event) => drop(event),
            Err(error) if error.errno() == Some(kfd::Errno::EINVAL) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self {
            device: device.clone(),
            ring: Memory::gtt(device, 64 << 10)?,
            indices: Memory::gtt(device, 4096)?,
            eop: Memory::gtt(device, 4096)?,
            context: Memory::gtt(device, context as usize)?,
            events,
        })
    }

    /// What the calls go to.
    pub fn kfd(&self) -> BorrowedFd<'_> {
        self.device.kfd().as_fd()
    }

    /// The GPU as the calls name it.
    pub fn gpu_id(&self) -> u32 {
        self.device.gpu_id()
    }

    /// A queue that can be created.
    pub fn queue(&self) -> uapi::kfd_ioctl_create_queue_args {
        uapi::kfd_ioctl_create_queue_args {
            ring_base_address: self.ring.address(),
            ring_size: self.ring.size() as u32,
            write_pointer_address: self.indices.address() + 56,
            read_pointer_address: self.indices.address() + 128,
            gpu_id: self.gpu_id(),
            queue_type: uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
            queue_percentage: 100,
            queue_priority: 7,
            eop_buffer_address: self.eop.address(),
            eop_buffer_size: self.eop.size() as u64,
            ctx_save_restore_address: self.context.address(),
            ctx_save_restore_size: self.device.node().property("cwsr_size") as u32,
            ctl_stack_size: self.device.node().property("ctl_stack_size") as u32,
            ..Default::default()
        }
    }
}

/// An errno as the tests print it: the number and the words.
pub fn name(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    text.rsplit_once(" (os error ")
        .map_or(text.clone(), |(words, number)| {
            format!("{} {words}", number.trim_end_matches(')'))
        })
}
