// SPDX-License-Identifier: GPL-2.0 OR MIT

//! [`Queue`]: a ring of AQL packets that any number of threads fill and one GPU empties.
//!
//! The indices lie in an `amd_queue_t` (ROCr's `amd_hsa_queue.h`), from which the command processor
//! takes more than the indices: apertures and the ring's description.

use crate::{Packet, Result, Ring};
use kfd::{Device, Memory, QueueKind, QueueMemory};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
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

/// A queue for compute. Submitting costs no system call and no allocation.
#[derive(Debug)]
pub struct Queue {
    // The queue goes before what it reads.
    ring: Ring,
    queue: kfd::Queue,
    packets: Memory,
    _descriptor: Memory,
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
            ring.write(packet * PACKET, &[crate::INVALID]);
        }
        describe(&descriptor, &ring, packets, device);
        let memory = QueueMemory {
            ring: ring.address(),
            ring_size: bytes as u32,
            write_index: descriptor.address() + WRITE_DISPATCH_ID as u64,
            read_index: descriptor.address() + READ_DISPATCH_ID as u64,
        };
        let queue = kfd::Queue::create(device, QueueKind::Aql, memory)?;
        let (write, read) = (
            index(&descriptor, WRITE_DISPATCH_ID),
            index(&descriptor, READ_DISPATCH_ID),
        );
        // SAFETY: ring, indices and doorbell belong to this value, which drops the `Ring` first.
        let producers = unsafe {
            let doorbell = queue.doorbell().cast();
            Ring::new(ring.as_ptr().cast(), packets.into(), write, read, doorbell)
        };
        Ok(Self {
            ring: producers,
            queue,
            packets: ring,
            _descriptor: descriptor,
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

    /// The buffer that its packets lie in.
    pub fn packets(&self) -> &Memory {
        &self.packets
    }

    /// The GPU it runs on.
    pub fn device(&self) -> &Arc<Device> {
        self.queue.device()
    }

    /// How many packets have been taken for writing, and how many the GPU has taken out.
    pub fn indices(&self) -> (u64, u64) {
        self.ring.indices()
    }

    /// The ring, for what this type has no method for.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Puts `packet` into the ring and tells the GPU; waits while the ring is full. Returns its index.
    #[inline]
    pub fn submit(&self, packet: impl Into<Packet>) -> u64 {
        self.ring.submit(&packet.into())
    }
}

/// One of the descriptor's indices.
fn index(descriptor: &Memory, field: usize) -> NonNull<AtomicU64> {
    // SAFETY: both fields lie within the descriptor's page, aligned to 8.
    unsafe { descriptor.as_ptr().add(field).cast() }
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
