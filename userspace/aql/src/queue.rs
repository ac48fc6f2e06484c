// SPDX-License-Identifier: GPL-2.0 OR MIT

//! [`Queue`]: a ring of AQL packets that any number of threads fill and one GPU empties.
//!
//! The indices lie in an `amd_queue_t` (ROCr's `amd_hsa_queue.h`), from which the command processor
//! takes more than the indices: apertures and the ring's description.

use crate::{Packet, Result};
use kfd::{Device, Memory, QueueKind, QueueMemory};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

const PACKET: usize = size_of::<Packet>();
/// `amd_queue_t` fields by their byte offsets.
const BASE_ADDRESS: usize = 8;
const SIZE: usize = 24;
const WRITE_DISPATCH_ID: usize = 56;
const GROUP_APERTURE_HI: usize = 64;
const PRIVATE_APERTURE_HI: usize = 68;
const READ_DISPATCH_ID: usize = 128;
const READ_DISPATCH_ID_OFFSET: usize = 136;
const QUEUE_PROPERTIES: usize = 180;
/// `AMD_QUEUE_PROPERTIES_IS_PTR64`.
const IS_PTR64: u32 = 1 << 1;
/// A header that the command processor takes for "not filled yet": packet type 1.
const INVALID: u32 = 1;

/// A queue for compute. Submitting costs no system call and no allocation.
#[derive(Debug)]
pub struct Queue {
    // The queue goes before what it reads.
    queue: kfd::Queue,
    ring: Memory,
    descriptor: Memory,
    packets: u64,
}

impl Queue {
    /// A ring of `packets` packets, a power of two of at least 64.
    pub fn new(device: &Arc<Device>, packets: u32) -> Result<Self> {
        if !packets.is_power_of_two() || packets < 64 {
            return Err(kfd::Error::Invalid(format!(
                "a ring of {packets} packets: not a power of two from 64 on"
            ))
            .into());
        }
        let bytes = packets as usize * PACKET;
        let (ring, descriptor) = (Memory::gtt(device, bytes)?, Memory::gtt(device, 4096)?);
        for packet in 0..packets as usize {
            ring.write(packet * PACKET, &[INVALID]);
        }
        describe(&descriptor, &ring, packets, device);
        let memory = QueueMemory {
            ring: ring.address(),
            ring_size: bytes as u32,
            write_index: descriptor.address() + WRITE_DISPATCH_ID as u64,
            read_index: descriptor.address() + READ_DISPATCH_ID as u64,
        };
        let queue = kfd::Queue::create(device, QueueKind::Aql, memory)?;
        Ok(Self {
            queue,
            ring,
            descriptor,
            packets: packets.into(),
        })
    }

    /// The kernel's id of this queue.
    pub fn id(&self) -> u32 {
        self.queue.id()
    }

    /// The kernel's queue below it.
    pub fn kfd_queue(&self) -> &kfd::Queue {
        &self.queue
    }

    /// Its packets.
    pub fn ring(&self) -> &Memory {
        &self.ring
    }

    /// The GPU it runs on.
    pub fn device(&self) -> &Arc<Device> {
        self.queue.device()
    }

    /// How many packets have been taken for writing, and how many the GPU has taken out.
    pub fn indices(&self) -> (u64, u64) {
        (
            self.index(WRITE_DISPATCH_ID).load(Ordering::Acquire),
            self.index(READ_DISPATCH_ID).load(Ordering::Acquire),
        )
    }

    /// Puts `packet` into the ring and tells the GPU; waits while the ring is full. Returns its index.
    pub fn submit(&self, packet: impl Into<Packet>) -> u64 {
        let index = self.index(WRITE_DISPATCH_ID).fetch_add(1, Ordering::AcqRel);
        while index - self.index(READ_DISPATCH_ID).load(Ordering::Acquire) >= self.packets {
            std::thread::yield_now();
        }
        self.fill(index, packet.into());
        self.queue.ring_doorbell(index);
        index
    }

    /// Body first, header last with release order: the GPU sees a whole packet or none.
    fn fill(&self, index: u64, Packet(words): Packet) {
        let offset = (index % self.packets) as usize * PACKET;
        self.ring.write(offset + 4, &words[1..]);
        // SAFETY: within the ring, aligned to 64, and only ever used as an atomic while the queue lives.
        let header = unsafe { AtomicU32::from_ptr(self.ring.as_ptr().as_ptr().add(offset).cast()) };
        header.store(words[0], Ordering::Release);
    }

    fn index(&self, field: usize) -> &AtomicU64 {
        // SAFETY: within the descriptor, aligned to 8, and only ever used as an atomic while the queue lives.
        unsafe { AtomicU64::from_ptr(self.descriptor.as_ptr().as_ptr().add(field).cast()) }
    }
}

fn describe(descriptor: &Memory, ring: &Memory, packets: u32, device: &Device) {
    let apertures = device.apertures();
    descriptor.write(BASE_ADDRESS, &[ring.address()]);
    descriptor.write(SIZE, &[packets]);
    descriptor.write(GROUP_APERTURE_HI, &[(apertures.lds_base >> 32) as u32]);
    descriptor.write(
        PRIVATE_APERTURE_HI,
        &[(apertures.scratch_base >> 32) as u32],
    );
    descriptor.write(READ_DISPATCH_ID_OFFSET, &[READ_DISPATCH_ID as u32]);
    descriptor.write(QUEUE_PROPERTIES, &[IS_PTR64]);
}
