// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Queue`]: a ring that a GPU reads, with the buffers it needs and the doorbell that wakes it.

use crate::ioctl::call;
use crate::owner::Owner;
use crate::{Device, Error, Event, Memory, Result, Runtime};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;

/// A process's doorbells on one GPU: two pages since gfx9, one 64-bit doorbell per queue.
const DOORBELL_SLICE: usize = 8192;
const EOP_BUFFER: usize = 4096;

/// What the ring holds, and which engine reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueKind {
    /// Architected queuing language packets, for compute.
    Aql,
    /// PM4 packets, for compute.
    Pm4,
    /// Packets of the copy engine.
    Sdma,
}

/// Where the ring and its two indices lie. The queue keeps these buffers for as long as it lives.
#[derive(Clone, Debug)]
pub struct QueueMemory {
    /// The ring, from the buffer's first byte on.
    pub ring: Arc<Memory>,
    /// The ring's size in bytes, a power of two.
    pub ring_size: u32,
    /// The buffer of the indices; it may be the ring's.
    pub indices: Arc<Memory>,
    /// Where in it the producer's index stands, in bytes; a multiple of 8.
    pub write_index: usize,
    /// Where in it the GPU puts the consumer's index.
    pub read_index: usize,
}

impl QueueMemory {
    /// Whether ring and indices lie within their buffers.
    fn check(&self) -> Result<()> {
        let holds = |at: usize| at % 8 == 0 && at.saturating_add(8) <= self.indices.size();
        if self.ring_size as usize > self.ring.size() {
            let (ring, size) = (self.ring_size, self.ring.size());
            return Err(Error::Invalid(format!(
                "a ring of {ring} bytes in a buffer of {size}"
            )));
        }
        if !holds(self.write_index) || !holds(self.read_index) {
            let (write, read) = (self.write_index, self.read_index);
            return Err(Error::Invalid(format!(
                "indices at {write:#x} and {read:#x} of a buffer of {} bytes",
                self.indices.size()
            )));
        }
        Ok(())
    }
}

/// A queue; dropping it takes it off the hardware before its buffers go.
#[derive(Debug)]
pub struct Queue {
    // Dropped in this order, after `drop` has destroyed the queue itself.
    doorbells: Doorbells,
    doorbell: usize,
    id: u32,
    /// It was asked to be destroyed.
    gone: bool,
    device: Arc<Device>,
    context: Option<Memory>,
    _eop: Option<Memory>,
    memory: QueueMemory,
    /// Where the kernel tells of its exceptions.
    told: Option<Arc<Memory>>,
}

impl Queue {
    /// Creates a queue of priority 7 (0 to 15) with all of its share of time.
    ///
    /// Its memory is buffers that it shares, so that they can't go before it does:
    ///
    /// ```compile_fail,E0308
    /// # fn of(device: &std::sync::Arc<kfd::Device>, ring: kfd::Memory) -> kfd::Result<()> {
    /// let memory = kfd::QueueMemory {
    ///     ring: ring.address(),
    ///     ring_size: 4096,
    ///     indices: ring.address(),
    ///     write_index: 0,
    ///     read_index: 64,
    /// };
    /// let queue = kfd::Queue::create(device, kfd::QueueKind::Aql, memory)?;
    /// drop(ring);
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(device: &Arc<Device>, kind: QueueKind, memory: QueueMemory) -> Result<Self> {
        memory.check()?;
        let mut args = uapi::kfd_ioctl_create_queue_args {
            ring_base_address: memory.ring.address(),
            write_pointer_address: memory.indices.address() + memory.write_index as u64,
            read_pointer_address: memory.indices.address() + memory.read_index as u64,
            ring_size: memory.ring_size,
            gpu_id: device.gpu_id(),
            queue_type: kind.raw(),
            queue_percentage: uapi::KFD_MAX_QUEUE_PERCENTAGE,
            queue_priority: 7,
            ..Default::default()
        };
        let (context, eop) = match kind {
            QueueKind::Sdma => (None, None),
            QueueKind::Aql | QueueKind::Pm4 => (
                Some(context_area(device, &mut args)?),
                Some(Memory::gtt(device, EOP_BUFFER)?),
            ),
        };
        if let Some(eop) = &eop {
            args.eop_buffer_address = eop.address();
            args.eop_buffer_size = EOP_BUFFER as u64;
        }
        let named = || format!("{kind:?} queue, {} byte ring, {device}", memory.ring_size);
        // SAFETY: the addresses are of buffers that the queue keeps.
        unsafe { call(device.kfd().as_ref(), named, &mut args)? };
        let offset = args.doorbell_offset as usize % DOORBELL_SLICE;
        let doorbells = Doorbells::map(device, args.doorbell_offset - offset as u64);
        // The queue must not stay behind when its doorbell can't be mapped.
        let doorbells = doorbells.inspect_err(|_| {
            let _ = destroy(device, args.queue_id);
        })?;
        Ok(Self {
            doorbells,
            doorbell: offset,
            id: args.queue_id,
            gone: false,
            device: device.clone(),
            context,
            _eop: eop,
            memory,
            told: None,
        })
    }

    /// The kernel's id, unique in this process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where its waves are saved when it is preempted; an SDMA queue has none.
    pub fn save_area(&self) -> Option<&Memory> {
        self.context.as_ref()
    }

    /// Has the kernel tell of the queue's exceptions, of waves and packets, as it does for who has
    /// enabled the `runtime`: it sets bits of [`crate::Exceptions`] in the 8 bytes at `offset` of
    /// `word`, and then `event`. The queue keeps `word`. Before anything is submitted.
    ///
    /// `Invalid`: the queue has no save area, as those of the copy engine, or `word` no such bytes.
    pub fn tell_exceptions(
        &mut self,
        _runtime: &Runtime,
        word: &Arc<Memory>,
        offset: usize,
        event: &Event,
    ) -> Result<()> {
        type Header = uapi::kfd_context_save_area_header;
        let holds = offset % 8 == 0 && offset.saturating_add(8) <= word.size();
        let area = self.context.as_ref().filter(|_| holds);
        let area = area.ok_or_else(|| {
            let size = word.size();
            Error::Invalid(format!("exceptions at {offset:#x} of {size} bytes"))
        })?;
        let (payload, id) = (word.address() + offset as u64, event.id());
        area.write(offset_of!(Header, err_event_id), &[id]);
        area.write(offset_of!(Header, err_payload_addr), &[payload]);
        self.told = Some(word.clone());
        Ok(())
    }

    /// The ring and its indices.
    pub fn memory(&self) -> &QueueMemory {
        &self.memory
    }

    /// The GPU it runs on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Changes its share of time (0 to 100; 0 stops it) and priority (0 to 15).
    pub fn update(&self, percentage: u32, priority: u32) -> Result<()> {
        let mut args = uapi::kfd_ioctl_update_queue_args {
            ring_base_address: self.memory.ring.address(),
            queue_id: self.id,
            ring_size: self.memory.ring_size,
            queue_percentage: percentage,
            queue_priority: priority,
        };
        // SAFETY: the ring is the one that it has.
        unsafe { self.call(&mut args) }
    }

    /// Leaves the queue only the compute units whose bits are set; whole words of 32.
    pub fn set_cu_mask(&self, mask: &[u32]) -> Result<()> {
        let mut args = uapi::kfd_ioctl_set_cu_mask_args {
            queue_id: self.id,
            num_cu_mask: mask.len() as u32 * 32,
            cu_mask_ptr: mask.as_ptr() as u64,
        };
        // SAFETY: the pointer is to `num_cu_mask` bits, which live until after the call.
        unsafe { self.call(&mut args) }
    }

    /// Bytes used of the control stack and of the save area, where the queue is stopped; the
    /// control stack is copied to `control_stack`, which must be as large as the node's
    /// `ctl_stack_size`.
    ///
    /// # Safety
    /// `control_stack` must point to that many writable bytes.
    pub unsafe fn wave_state(&self, control_stack: NonNull<u8>) -> Result<(u32, u32)> {
        let mut args = uapi::kfd_ioctl_get_queue_wave_state_args {
            ctl_stack_address: control_stack.as_ptr() as u64,
            queue_id: self.id,
            ..Default::default()
        };
        // SAFETY: by this function's own contract.
        unsafe { self.call(&mut args)? };
        Ok((args.ctl_stack_used_size, args.save_area_used_size))
    }

    /// Takes `count` global wave sync resources (GWS) for the queue; the first one's number.
    pub fn allocate_gws(&self, count: u32) -> Result<u32> {
        let mut args = uapi::kfd_ioctl_alloc_queue_gws_args {
            queue_id: self.id,
            num_gws: count,
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { self.call(&mut args)? };
        Ok(args.first_gws)
    }

    /// # Safety
    /// As for [`call`].
    unsafe fn call<T: crate::ioctl::Arguments>(&self, args: &mut T) -> Result<()> {
        let named = || format!("queue {} of {}", self.id, self.device);
        // SAFETY: passed on.
        unsafe { call(self.device.kfd().as_ref(), named, args) }
    }

    /// Whether it was created in this process, and not in one that has forked this one: the child
    /// has neither the queue nor its doorbell.
    pub fn is_own(&self) -> bool {
        self.doorbells.owner.is_here()
    }

    /// The doorbell: a 64-bit register that takes one store of 8 bytes, valid as long as the queue,
    /// in the process that has created it.
    pub fn doorbell(&self) -> NonNull<u64> {
        self.doorbells.at(self.doorbell)
    }

    /// Tells the GPU how far the ring is filled, after all that was written before.
    ///
    /// # Panics
    /// In a child of `fork`.
    pub fn ring_doorbell(&self, value: u64) {
        self.doorbells.write(self.doorbell, value);
    }
}

impl Queue {
    /// Ends the queue, as dropping it does, and says whether it is gone. After an error the GPU may
    /// still be at what was submitted, until the process ends: see [`Memory`] for its buffers.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.gone = true;
        destroy(&self.device, self.id).inspect_err(|_| {
            // The kernel may still write there.
            std::mem::forget(self.told.take());
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.gone {
            // A failure leaves the queue to the exit of the process.
            let _ = self.end();
        }
    }
}

fn destroy(device: &Device, id: u32) -> Result<()> {
    let mut args = uapi::kfd_ioctl_destroy_queue_args {
        queue_id: id,
        ..Default::default()
    };
    let named = || format!("queue {id} of {device}");
    // SAFETY: the struct holds no pointer.
    unsafe { call(device.kfd().as_ref(), named, &mut args) }
}

impl QueueKind {
    fn raw(self) -> u32 {
        match self {
            QueueKind::Aql => uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
            QueueKind::Pm4 => uapi::KFD_IOC_QUEUE_TYPE_COMPUTE,
            QueueKind::Sdma => uapi::KFD_IOC_QUEUE_TYPE_SDMA,
        }
    }
}

/// The area that waves are saved to when the queue is preempted, in the sizes that the node tells.
fn context_area(
    device: &Arc<Device>,
    args: &mut uapi::kfd_ioctl_create_queue_args,
) -> Result<Memory> {
    let node = device.node();
    let (size, stack) = (node.property("cwsr_size"), node.property("ctl_stack_size"));
    let missing = || {
        Error::Invalid(format!(
            "{device} does not tell its cwsr_size: the KFD is too old"
        ))
    };
    args.ctx_save_restore_size = u32::try_from(size)
        .ok()
        .filter(|size| *size != 0)
        .ok_or_else(missing)?;
    args.ctl_stack_size = u32::try_from(stack).map_err(|_| missing())?;
    let whole = (size + node.debug_memory_size()) * node.xccs();
    let area = Memory::gtt(device, whole as usize)?;
    args.ctx_save_restore_address = area.address();
    Ok(area)
}

/// This process's doorbells on one GPU. A child of `fork` does nothing with them.
#[derive(Debug)]
struct Doorbells {
    base: NonNull<c_void>,
    owner: Owner,
}

impl Doorbells {
    fn map(device: &Device, offset: u64) -> Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel picks.
        let base = unsafe {
            mmap(
                null_mut(),
                DOORBELL_SLICE,
                access,
                flags,
                device.kfd().as_fd(),
                offset,
            )
        }
        .map_err(Error::of("mmap", format!("doorbells of {device}")))?;
        // A mapping is never at address 0 here: no MAP_FIXED.
        let base = NonNull::new(base);
        let base = base.ok_or_else(|| Error::Invalid("doorbells at address 0".into()))?;
        let owner = Owner::here();
        Ok(Self { base, owner })
    }

    fn write(&self, offset: usize, value: u64) {
        assert!(
            self.owner.is_here(),
            "this process has only inherited the queue"
        );
        // What the GPU will read must be visible before the doorbell is.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        // SAFETY: within the mapping.
        unsafe { self.at(offset).as_ptr().write_volatile(value) };
    }

    fn at(&self, offset: usize) -> NonNull<u64> {
        // SAFETY: the offset is below the slice's size and a multiple of 8 (the kernel hands out
        // whole doorbells).
        unsafe { self.base.byte_add(offset & !7).cast() }
    }
}

// SAFETY: a doorbell is a register: one 64-bit store, from any thread.
unsafe impl Send for Doorbells {}
// SAFETY: as above.
unsafe impl Sync for Doorbells {}

impl Drop for Doorbells {
    fn drop(&mut self) {
        if self.owner.is_here() {
            // SAFETY: the mapping belongs to this value.
            let _ = unsafe { munmap(self.base.as_ptr(), DOORBELL_SLICE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn ring_and_indices_lie_within_their_buffers() {
        let buffer = |size| {
            let device = Device::without_a_driver();
            Arc::new(Memory::anonymous(&device, size).expect("memory"))
        };
        let of = |ring_size, write_index, read_index| {
            QueueMemory {
                ring: buffer(8192),
                ring_size,
                indices: buffer(4096),
                write_index,
                read_index,
            }
            .check()
        };
        assert!(of(8192, 0, 4088).is_ok());
        assert!(of(16384, 0, 64).is_err());
        assert!(of(4096, 4, 64).is_err());
        assert!(of(4096, 0, 4096).is_err());
        assert!(of(4096, usize::MAX - 7, 0).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_queue_that_cannot_be_made_lets_its_memory_go() {
        let device = Device::without_a_driver();
        let ring = Arc::new(Memory::anonymous(&device, 4096).expect("memory"));
        let memory = QueueMemory {
            ring: ring.clone(),
            ring_size: 4096,
            indices: ring.clone(),
            write_index: 0,
            read_index: 64,
        };
        assert!(Queue::create(&device, QueueKind::Sdma, memory).is_err());
        assert_eq!(Arc::strong_count(&ring), 1);
    }
}
