// SPDX-License-Identifier: GPL-2.0-only

//! The private data of a checkpoint, version 1: the C driver's structures (`kfd_criu_*_priv_data`
//! of kfd_priv.h), one behind the other.
//!
//! First the process, then its devices (8 bytes each, which mean nothing), then its buffers, then
//! the objects in any order, each of which begins with its type: queues, with their descriptors and
//! control stacks behind them, events, and ranges of shared virtual memory, with their attributes.

use crate::{
    event::{
        Mode,
        SavedEvent, //
    },
    svm::MAX_GPUS,
    uapi::{
        HwException,
        MemoryException,
        KFD_IOC_EVENT_HW_EXCEPTION,
        KFD_IOC_EVENT_MEMORY, //
    },
};
use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
};

/// `KFD_CRIU_PRIV_VERSION`.
pub(super) const VERSION: u32 = 1;

/// Bytes for each device.
pub(super) const DEVICE_BYTES: usize = 8;

/// `enum kfd_criu_object_type`.
pub(super) mod object {
    pub(crate) const QUEUE: u32 = 0;
    pub(crate) const EVENT: u32 = 1;
    pub(crate) const RANGE: u32 = 2;
}

/// Attributes of a range that are not of a GPU.
pub(super) const COMMON_ATTRIBUTES: usize = 4;

/// `struct kfd_criu_process_priv_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    pub(super) version: u32,
    pub(super) xnack: u32,
}

/// `struct kfd_criu_bo_priv_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    /// What the user's own memory shows.
    pub(super) user_address: u64,
    /// The low half of its handle.
    pub(super) number: u32,
    /// What the process calls the GPUs that see it; those behind are 0.
    pub(super) gpus: [u32; MAX_GPUS],
    pub(super) pad: u32,
}

/// `struct kfd_criu_queue_priv_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    pub(super) object: u32,
    pub(super) pad: u32,
    pub(super) ring: u64,
    pub(super) ring_bytes: u64,
    pub(super) read_pointer: u64,
    pub(super) write_pointer: u64,
    /// Not filled in.
    pub(super) doorbell_offset: u64,
    pub(super) eop: u64,
    pub(super) save_area: u64,
    pub(super) gpu_id: u32,
    /// `enum kfd_queue_type` of kfd_priv.h, which is not the ABI's.
    pub(super) kind: u32,
    /// `enum kfd_queue_format`.
    pub(super) format: u32,
    pub(super) id: u32,
    pub(super) priority: u32,
    pub(super) percentage: u32,
    pub(super) doorbell_id: u32,
    /// Whether it has the GPU's global wave sync.
    pub(super) wave_sync: u32,
    /// The number of its slot among those of copy engines of its kind.
    pub(super) sdma_number: u32,
    pub(super) eop_bytes: u32,
    /// Of an XCC.
    pub(super) save_area_bytes: u32,
    /// Of all XCCs together, as what follows.
    pub(super) stack_bytes: u32,
    pub(super) descriptor_bytes: u32,
    pub(super) pad2: u32,
}

/// `enum kfd_queue_type` of kfd_priv.h.
pub(super) mod queue_kind {
    pub(crate) const COMPUTE: u32 = 0;
    pub(crate) const SDMA: u32 = 1;
    pub(crate) const SDMA_XGMI: u32 = 3;
}

/// `enum kfd_queue_format`.
pub(super) mod queue_format {
    pub(crate) const PM4: u32 = 0;
    pub(crate) const AQL: u32 = 1;
}

/// `struct kfd_criu_event_priv_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    pub(super) object: u32,
    pub(super) pad: u32,
    /// The first event has the signal page's; 0: there is none.
    pub(super) page_handle: u64,
    pub(super) id: u32,
    pub(super) auto_reset: u32,
    pub(super) event_type: u32,
    pub(super) signalled: u32,
    /// What it has to tell, by its type.
    pub(super) data: [u32; 8],
}

/// `struct kfd_criu_svm_range_priv_data`, before its attributes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) object: u32,
    pub(super) pad: u32,
    /// The first page, by its number.
    pub(super) start: u64,
    /// Pages.
    pub(super) size: u64,
}

const _: () = {
    assert!(size_of::<Process>() == 8);
    assert!(size_of::<Buffer>() == 272);
    assert!(size_of::<Queue>() == 120);
    assert!(size_of::<Event>() == 64);
    assert!(size_of::<Range>() == 24);
    assert!(size_of::<MemoryException>() == 32 && size_of::<HwException>() == 16);
};

macro_rules! plain {
    ($($name:ident)*) => {$(
        // SAFETY: Integers without padding (see the sizes above).
        unsafe impl FromBytes for $name {}
        // SAFETY: As above.
        unsafe impl AsBytes for $name {}
    )*};
}

plain!(Process Buffer Queue Event Range);

/// A part of words that are no structure yet.
fn part<const N: usize>(words: &[u32; 8], first: usize) -> [u32; N] {
    core::array::from_fn(|index| words.get(first + index).copied().unwrap_or(0))
}

fn memory_exception(words: &[u32; 8]) -> MemoryException {
    let [not_present, read_only, no_execute, imprecise, low, high, gpu_id, error_type] = *words;
    MemoryException {
        not_present,
        read_only,
        no_execute,
        imprecise,
        va: u64::from(high) << 32 | u64::from(low),
        gpu_id,
        error_type,
    }
}

fn hw_exception(words: &[u32; 8]) -> HwException {
    let [reset_type, reset_cause, memory_lost, gpu_id] = part(words, 0);
    HwException {
        reset_type,
        reset_cause,
        memory_lost,
        gpu_id,
    }
}

impl Event {
    /// As it is saved.
    pub(super) fn new(event: &SavedEvent, page_handle: u64) -> Self {
        let data = match event.event_type {
            KFD_IOC_EVENT_MEMORY => {
                let it = event.memory;
                // CAST: the two halves.
                let (low, high) = (it.va as u32, (it.va >> 32) as u32);
                [
                    it.not_present,
                    it.read_only,
                    it.no_execute,
                    it.imprecise,
                    low,
                    high,
                    it.gpu_id,
                    it.error_type,
                ]
            }
            KFD_IOC_EVENT_HW_EXCEPTION => {
                let it = event.reset;
                [
                    it.reset_type,
                    it.reset_cause,
                    it.memory_lost,
                    it.gpu_id,
                    0,
                    0,
                    0,
                    0,
                ]
            }
            _ => [0; 8],
        };
        Self {
            object: object::EVENT,
            page_handle,
            id: event.id,
            auto_reset: (event.mode == Mode::Auto).into(),
            event_type: event.event_type,
            signalled: event.signalled.into(),
            data,
            ..Self::default()
        }
    }

    /// What it was.
    pub(super) fn saved(&self) -> SavedEvent {
        SavedEvent {
            id: self.id,
            event_type: self.event_type,
            mode: match self.auto_reset {
                0 => Mode::Manual,
                _ => Mode::Auto,
            },
            signalled: self.signalled != 0,
            memory: memory_exception(&self.data),
            reset: hw_exception(&self.data),
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_checkpoint_image)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_tells_is_kept() {
        let memory = SavedEvent {
            id: 0x4000_0001,
            event_type: KFD_IOC_EVENT_MEMORY,
            mode: Mode::Auto,
            signalled: true,
            memory: MemoryException {
                not_present: 1,
                va: 0x7f12_3456_7000,
                gpu_id: 35281,
                error_type: 3,
                ..MemoryException::default()
            },
            reset: HwException::default(),
        };
        let image = Event::new(&memory, 0x89d1_0000_0001);
        assert_eq!((image.page_handle, image.id), (0x89d1_0000_0001, memory.id));
        assert_eq!(image.data, [1, 0, 0, 0, 0x3456_7000, 0x7f12, 35281, 3]);
        let again = SavedEvent {
            reset: HwException::default(),
            ..image.saved()
        };
        assert_eq!(again, memory);
        let reset = SavedEvent {
            event_type: KFD_IOC_EVENT_HW_EXCEPTION,
            memory: MemoryException::default(),
            reset: HwException {
                reset_type: 1,
                memory_lost: 1,
                gpu_id: 7,
                ..HwException::default()
            },
            ..memory
        };
        let again = SavedEvent {
            memory: MemoryException::default(),
            ..Event::new(&reset, 0).saved()
        };
        assert_eq!(again, reset);
    }
}
