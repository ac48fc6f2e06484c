// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Queue`]: a ring of AQL packets that any number of threads fill and one GPU empties.
//!
//! The indices lie in an `amd_queue_t` (ROCr's `amd_hsa_queue.h`), from which the command processor
//! takes more than the indices: apertures and the ring's description.

mod scratch;

use self::scratch::Scratch;
use crate::ring::PATIENCE;
use crate::signal::Deadline;
use crate::watch::Watch;
use crate::{Error, Packet, Pm4Buffer, Result, Ring, Signal};
use kfd::{Device, Memory, QueueKind, QueueMemory};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

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
/// Where in the descriptor's page, behind the `amd_queue_t`, the packets that invalidate lie.
const INVALIDATE: usize = 2048;
/// ACQUIRE_MEM of all addresses, with `SH_ICACHE_ACTION_ENA` and `SH_KCACHE_ACTION_ENA` of
/// `CP_COHER_CNTL`: instructions and constants come from memory afterwards.
const ACQUIRE_MEM: [u32; 7] = [
    3 << 30 | 5 << 16 | 0x58 << 8,
    1 << 29 | 1 << 27,
    u32::MAX,
    0xff_ffff,
    0,
    0,
    10,
];
/// `AMD_QUEUE_PROPERTIES_IS_PTR64`.
const IS_PTR64: u32 = 1 << 1;
/// `AMD_QUEUE_PROPERTIES_ENABLE_PROFILING`.
const ENABLE_PROFILING: u32 = 1 << 3;

/// A queue for compute. Submitting costs no system call and no allocation.
#[derive(Debug)]
pub struct Queue {
    ring: Ring,
    /// Until it is destroyed, before what it reads goes.
    queue: Option<kfd::Queue>,
    packets: Arc<Memory>,
    descriptor: Arc<Memory>,
    scratch: Option<Scratch>,
    watch: Arc<Watch>,
    /// Up to which generation of code its instruction caches have forgotten.
    forgotten: AtomicU64,
}

impl Queue {
    /// A ring of `packets` packets, a power of two from 64 to 2^25, for kernels that need no
    /// scratch.
    pub fn new(device: &Arc<Device>, packets: u32) -> Result<Self> {
        Self::with_scratch(device, packets, 0)
    }

    /// The same, with memory for `bytes` of scratch for each work-item that can be in flight: so
    /// many are on a GPU at a time that a few hundred bytes for each may be gigabytes.
    pub fn with_scratch(device: &Arc<Device>, packets: u32, bytes: u32) -> Result<Self> {
        let ring_size = ring_size(packets)?;
        let ring = Arc::new(Memory::gtt(device, ring_size as usize)?);
        let descriptor = Arc::new(Memory::gtt(device, 4096)?);
        for packet in 0..packets as usize {
            ring.write(packet * PACKET, &[crate::INVALID]);
        }
        describe(&descriptor, &ring, packets, device);
        let scratch = (bytes != 0)
            .then(|| Scratch::new(device, bytes))
            .transpose()?;
        if let Some(scratch) = &scratch {
            scratch.describe(&descriptor);
        }
        let memory = QueueMemory {
            ring: ring.clone(),
            ring_size,
            indices: descriptor.clone(),
            write_index: WRITE_DISPATCH_ID,
            read_index: READ_DISPATCH_ID,
        };
        descriptor.write(INVALIDATE, &ACQUIRE_MEM);
        let watch = Watch::of_queue(device, &descriptor)?;
        let queue = kfd::Queue::create(device, QueueKind::Aql, memory)?;
        let (write, read) = (
            index(&descriptor, WRITE_DISPATCH_ID),
            index(&descriptor, READ_DISPATCH_ID),
        );
        // SAFETY: ring, indices and doorbell belong to this value; only its drop, after which
        // nobody uses the `Ring`, lets them go.
        let producers = unsafe {
            let doorbell = queue.doorbell().cast();
            Ring::new(ring.as_ptr().cast(), packets.into(), write, read, doorbell)
        };
        let watched = watch.clone();
        let producers = producers.watched(PATIENCE, move || watched.check().is_ok());
        Ok(Self {
            ring: producers,
            queue: Some(queue),
            packets: ring,
            descriptor,
            scratch,
            watch,
            forgotten: AtomicU64::new(0),
        })
    }

    /// The same queue, which also says [`Error::Exception`] when one of its waves or packets has an
    /// exception that the kernel tells the `runtime` of: waits and all else end with it then.
    ///
    /// A wave's exception comes to the driver by a message that a trap handler of the program's own
    /// sends ([`Device::set_trap_handler`]). The driver's handler alone sends none: a wave goes on
    /// behind its `s_trap` then, and halts at an instruction that is illegal.
    pub fn with_exceptions(mut self, runtime: &kfd::Runtime) -> Result<Self> {
        if let (Some(stop), Some(queue)) = (self.watch.stop(), &mut self.queue) {
            stop.by(runtime, queue)?;
        }
        Ok(self)
    }

    /// Ends the queue, as dropping it does, and says whether it is gone: nothing that was submitted
    /// to it counts a signal down any more ([`Signal::settle`]). After an error the GPU may go on
    /// until the process ends: what kernels use must never be anything else's.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(queue) = self.queue.take() else {
            return Ok(());
        };
        let gone = queue.destroy();
        if gone.is_err() {
            // Waves may have variables there, and the kernel knows of no queue that has it.
            std::mem::forget(self.scratch.take());
        }
        Ok(gone?)
    }

    /// The kernel's id of this queue.
    pub fn id(&self) -> u32 {
        self.kfd_queue().id()
    }

    /// The kernel's queue below it.
    pub fn kfd_queue(&self) -> &kfd::Queue {
        self.queue.as_ref().expect("it goes with this one")
    }

    /// The buffer that its packets lie in. What is written there the GPU takes for packets.
    pub fn packets(&self) -> &Memory {
        &self.packets
    }

    /// The GPU it runs on.
    pub fn device(&self) -> &Arc<Device> {
        self.kfd_queue().device()
    }

    /// Whether the GPU says when what is submitted from now on began and ended:
    /// [`crate::Completion::ticks`].
    pub fn profile(&self, on: bool) {
        let more = if on { ENABLE_PROFILING } else { 0 };
        self.descriptor.write(QUEUE_PROPERTIES, &[IS_PTR64 | more]);
    }

    /// How many bytes of scratch a work-item can have.
    pub fn scratch(&self) -> u32 {
        self.scratch.as_ref().map_or(0, Scratch::lane_bytes)
    }

    /// How many packets have been taken for writing, and how many the GPU has taken out.
    pub fn indices(&self) -> (u64, u64) {
        self.ring.indices()
    }

    /// The ring, for what this type has no method for. A child of `fork` must not use it.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Puts `packet` into the ring and rings the doorbell; waits while the ring is full. Returns
    /// its index.
    ///
    /// The ring is full, and `Fault`: a wave of the process touched memory that it may not;
    /// `Packet`: the queue was stopped at one; `Lost`: the GPU was reset, or has taken nothing for
    /// a minute ([`crate::PATIENCE`]), as behind a kernel that runs for so long. The packet is not
    /// there then; another try is as good as the first one, unless [`Queue::check`] says that the
    /// queue is done for. `Lost` also in a child of `fork`, which has not inherited the queue.
    #[inline]
    pub fn submit(&self, packet: impl Into<Packet>) -> Result<u64> {
        self.check_own()?;
        let put = self.ring.submit(&packet.into());
        put.map_err(|error| self.why(error))
    }

    /// Why there is no room: the fault or the reset that was noticed, or `error` itself.
    fn why(&self, error: Error) -> Error {
        self.check().err().unwrap_or(error)
    }

    /// A child's doorbell may be anything.
    #[inline]
    pub(crate) fn check_own(&self) -> Result<()> {
        match self.kfd_queue().is_own() {
            true => Ok(()),
            false => Err(Error::Lost),
        }
    }

    /// The same for packets that come one after the other, and where there is room for all of them
    /// by the deadline, however long that is; more than the ring holds go in parts.
    pub(crate) fn submit_by(&self, packets: &[Packet], deadline: Deadline) -> Result<()> {
        self.check_own()?;
        for part in packets.chunks(self.ring.capacity() as usize) {
            let put = self.ring.submit_by(part, deadline);
            put.map_err(|error| self.why(error))?;
        }
        Ok(())
    }

    /// Sleeps until `done`, of something that this queue was given, is 0 or less; or until that can
    /// no longer be, which [`Signal::wait`] does not notice. [`Duration::MAX`] is without end.
    ///
    /// `Fault`: a wave of the process touched memory that it may not, and its queues stand still.
    /// `Lost`: the GPU was reset. `Packet`: the queue was stopped at one that the command processor
    /// does not take. `Timeout`: it is not done yet.
    ///
    /// A wave that halts, as for an illegal instruction, is not noticed, and neither is a trap:
    /// see [`Queue::with_exceptions`].
    pub fn wait(&self, done: &Signal, timeout: Duration) -> Result<()> {
        self.watch.wait(done, Deadline::after(timeout))
    }

    /// Whether something has put an end to the queue's work: as [`Queue::wait`] says it.
    pub fn check(&self) -> Result<()> {
        self.watch.check()
    }

    /// What puts an end to the queue's work.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Has the GPU forget instructions and constants that it keeps in caches, after all that was
    /// given before: for code that was written where other code has run. [`crate::Launch`] does it
    /// by itself where it is needed.
    pub fn invalidate_code(&self) -> Result<()> {
        self.submit(self.invalidation()).map(drop)
    }

    fn invalidation(&self) -> Pm4Buffer {
        Pm4Buffer {
            address: self.descriptor.address() + INVALIDATE as u64,
            words: ACQUIRE_MEM.len() as u32,
            completion: 0,
        }
    }

    /// The same, unless it was done for a code of this generation.
    pub(crate) fn forget_code(&self, generation: u64) -> Result<()> {
        if let Some(packet) = self.forgetting(generation) {
            self.submit(packet)?;
            self.has_forgotten(generation);
        }
        Ok(())
    }

    /// What invalidates, unless that was done for a code of this generation.
    pub(crate) fn forgetting(&self, generation: u64) -> Option<Pm4Buffer> {
        let is_new = self.forgotten.load(Ordering::Acquire) < generation;
        is_new.then(|| self.invalidation())
    }

    /// The packet is in the ring: whoever sees this comes behind it.
    pub(crate) fn has_forgotten(&self, generation: u64) {
        self.forgotten.fetch_max(generation, Ordering::AcqRel);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A failure leaves the queue to the exit of the process.
        let _ = self.end();
    }
}

/// The bytes of so many packets, as far as CREATE_QUEUE can say them: it has 32 bits for them.
fn ring_size(packets: u32) -> Result<u32> {
    let size = packets.checked_mul(PACKET as u32);
    let size = size.filter(|_| packets.is_power_of_two() && packets >= 64);
    size.ok_or_else(|| {
        let reason = format!("a ring of {packets} packets: not a power of two from 64 to 2^25");
        kfd::Error::Invalid(reason).into()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_a_size_that_can_be_said() {
        assert_eq!(ring_size(64).ok(), Some(4096));
        assert_eq!(ring_size(1 << 25).ok(), Some(1 << 31));
        for packets in [0, 1, 32, 65, 1 << 26, 1 << 31, u32::MAX] {
            let error = ring_size(packets).expect_err("refused").to_string();
            assert!(error.contains(&packets.to_string()), "{error}");
        }
    }
}
