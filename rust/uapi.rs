// SPDX-License-Identifier: GPL-2.0-only

//! Structures that user space and the module share: the one bridge between a user's bytes and them.
//!
//! The layouts come from the kernel's own `<linux/kfd_ioctl.h>` through bindgen. A [`UserStruct`]
//! may be made of any bytes, so a handler works on the very buffer that came from the user and goes
//! back to it; nothing is converted, and the bytes of padding are the user's own or zero.

use core::mem::{
    align_of,
    offset_of,
    size_of, //
};
use kernel::{
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceReader, //
    },
};

pub(crate) use crate::uapi_bindings::*;

/// A structure of the user ABI.
///
/// # Safety
///
/// Every bit pattern is a valid value, and the alignment is at most 8.
pub(crate) unsafe trait UserStruct: Sized {}

/// Declares structures of the uapi headers as [`UserStruct`]s.
macro_rules! user_structs {
    ($($name:ident)*) => {
        $(
            const _: () = assert!(align_of::<$name>() <= 8);
            // SAFETY: A uapi structure consists of integers, of arrays and unions of integers, and
            // of structures of these; the alignment is checked above.
            unsafe impl UserStruct for $name {}
        )*
    };
}

user_structs! {
    kfd_ioctl_get_version_args
    kfd_ioctl_create_queue_args
    kfd_ioctl_destroy_queue_args
    kfd_ioctl_set_memory_policy_args
    kfd_ioctl_get_clock_counters_args
    kfd_ioctl_get_process_apertures_args
    kfd_ioctl_update_queue_args
    kfd_ioctl_create_event_args
    kfd_ioctl_destroy_event_args
    kfd_ioctl_set_event_args
    kfd_ioctl_reset_event_args
    kfd_ioctl_wait_events_args
    kfd_ioctl_dbg_register_args
    kfd_ioctl_dbg_unregister_args
    kfd_ioctl_dbg_address_watch_args
    kfd_ioctl_dbg_wave_control_args
    kfd_ioctl_set_scratch_backing_va_args
    kfd_ioctl_get_tile_config_args
    kfd_ioctl_set_trap_handler_args
    kfd_ioctl_get_process_apertures_new_args
    kfd_ioctl_acquire_vm_args
    kfd_ioctl_alloc_memory_of_gpu_args
    kfd_ioctl_free_memory_of_gpu_args
    kfd_ioctl_map_memory_to_gpu_args
    kfd_ioctl_unmap_memory_from_gpu_args
    kfd_ioctl_set_cu_mask_args
    kfd_ioctl_get_queue_wave_state_args
    kfd_ioctl_get_dmabuf_info_args
    kfd_ioctl_import_dmabuf_args
    kfd_ioctl_alloc_queue_gws_args
    kfd_ioctl_smi_events_args
    kfd_ioctl_svm_args
    kfd_ioctl_set_xnack_mode_args
    kfd_ioctl_criu_args
    kfd_ioctl_get_available_memory_args
    kfd_ioctl_export_dmabuf_args
    kfd_ioctl_runtime_enable_args
    kfd_ioctl_dbg_trap_enable_args
    kfd_ioctl_dbg_trap_send_runtime_event_args
    kfd_ioctl_dbg_trap_set_exceptions_enabled_args
    kfd_ioctl_dbg_trap_set_wave_launch_override_args
    kfd_ioctl_dbg_trap_set_wave_launch_mode_args
    kfd_ioctl_dbg_trap_suspend_queues_args
    kfd_ioctl_dbg_trap_resume_queues_args
    kfd_ioctl_dbg_trap_set_node_address_watch_args
    kfd_ioctl_dbg_trap_clear_node_address_watch_args
    kfd_ioctl_dbg_trap_set_flags_args
    kfd_ioctl_dbg_trap_query_debug_event_args
    kfd_ioctl_dbg_trap_query_exception_info_args
    kfd_ioctl_dbg_trap_queue_snapshot_args
    kfd_ioctl_dbg_trap_device_snapshot_args
    kfd_process_device_apertures
}

const _: () = assert!(size_of::<kfd_process_device_apertures>() == 7 * size_of::<u64>());

// SAFETY: Six 64-bit integers and two 32-bit ones: there is no padding (see the size above).
unsafe impl AsBytes for kfd_process_device_apertures {}

// SAFETY: For the ioctl without arguments.
unsafe impl UserStruct for () {}

/// Sees the beginning of `words` as a structure. `EINVAL` if they are too few.
pub(crate) fn view<T: UserStruct>(words: &mut [u64]) -> Result<&mut T> {
    if size_of_val(words) < size_of::<T>() {
        return Err(EINVAL);
    }
    // SAFETY: The words are enough bytes, aligned to 8 and so to `T`, borrowed exclusively; and any
    // bit pattern is a `T`.
    Ok(unsafe { &mut *words.as_mut_ptr().cast() })
}

/// Sees the beginning of `words` as a structure of whole words, and what follows as they are.
/// `EINVAL` if they are too few.
pub(crate) fn view_with_array<T: UserStruct>(words: &mut [u64]) -> Result<(&mut T, &mut [u64])> {
    let (first, rest) = words
        .split_at_mut_checked(size_of::<T>() / size_of::<u64>())
        .ok_or(EINVAL)?;
    Ok((view(first)?, rest))
}

/// The user's memory at `address`, which an ioctl argument carries as an integer. An address that
/// is none faults when it is used.
pub(crate) fn user_slice(address: u64, bytes: usize) -> UserSlice {
    // CAST: A 64-bit kernel.
    UserSlice::new(UserPtr::from_addr(address as usize), bytes)
}

/// The arguments of PROFILER: `struct kfd_ioctl_profiler_args`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ProfilerArgs {
    /// `enum kfd_profiler_ops`
    pub(crate) op: u32,
    /// What it needs, or answers; the version is in the first word.
    pub(crate) words: [u32; 3],
}

const _: () = {
    assert!(size_of::<ProfilerArgs>() == size_of::<kfd_ioctl_profiler_args>());
    assert!(size_of::<[u32; 3]>() == size_of::<kfd_ioctl_pmc_settings>());
    assert!(offset_of!(kfd_ioctl_pmc_settings, lock) == 4);
    assert!(offset_of!(kfd_ioctl_pmc_settings, perfcount_enable) == 8);
    assert!(offset_of!(kfd_ioctl_ptl_control, enable) == 4);
};

// SAFETY: Integers; the alignment is 4.
unsafe impl UserStruct for ProfilerArgs {}

/// The arguments of DBG_TRAP: `struct kfd_ioctl_dbg_trap_args`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DebugTrapArgs {
    /// Whose process, as the caller numbers tasks.
    pub(crate) pid: u32,
    /// `enum kfd_dbg_trap_operations`
    pub(crate) op: u32,
    /// Of the operation: see [`view`].
    pub(crate) words: [u64; 3],
}

const _: () = {
    assert!(size_of::<DebugTrapArgs>() == size_of::<kfd_ioctl_dbg_trap_args>());
    assert!(offset_of!(DebugTrapArgs, op) == offset_of!(kfd_ioctl_dbg_trap_args, op));
    assert!(size_of::<kfd_ioctl_dbg_trap_args__bindgen_ty_1>() == size_of::<[u64; 3]>());
};

// SAFETY: Integers without padding.
unsafe impl UserStruct for DebugTrapArgs {}

const _: () = {
    assert!(size_of::<kfd_runtime_info>() == 2 * size_of::<u64>());
    assert!(size_of::<kfd_queue_snapshot_entry>() == size_of::<[u64; 8]>());
    assert!(size_of::<kfd_dbg_device_info_entry>() == 16 * size_of::<u64>());
};

// SAFETY: A 64-bit integer and two 32-bit ones: there is no padding (see the size above).
unsafe impl AsBytes for kfd_runtime_info {}
// SAFETY: Five 64-bit integers and six 32-bit ones, as above.
unsafe impl AsBytes for kfd_queue_snapshot_entry {}
// SAFETY: Seven 64-bit integers and eighteen 32-bit ones, as above.
unsafe impl AsBytes for kfd_dbg_device_info_entry {}

const _: () = {
    assert!(size_of::<kfd_criu_device_bucket>() == 2 * size_of::<u64>());
    assert!(size_of::<kfd_criu_bo_bucket>() == 6 * size_of::<u64>());
};

// SAFETY: Four 32-bit integers: there is no padding (see the size above).
unsafe impl AsBytes for kfd_criu_device_bucket {}
// SAFETY: As above.
unsafe impl FromBytes for kfd_criu_device_bucket {}
// SAFETY: Four 64-bit integers and four 32-bit ones, as above.
unsafe impl AsBytes for kfd_criu_bo_bucket {}
// SAFETY: As above.
unsafe impl FromBytes for kfd_criu_bo_bucket {}

/// One event of WAIT_EVENTS as the user describes it: `struct kfd_event_data`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct EventRecord {
    /// Begins with `last_event_age` when it goes in, and holds what happened when it comes out.
    data: [u64; 4],
    extension: u64,
    event_id: u32,
    pad: u32,
}

const _: () = {
    assert!(size_of::<EventRecord>() == size_of::<kfd_event_data>());
    assert!(offset_of!(EventRecord, event_id) == offset_of!(kfd_event_data, event_id));
};

// SAFETY: Integers without padding.
unsafe impl FromBytes for EventRecord {}
// SAFETY: As above.
unsafe impl AsBytes for EventRecord {}

impl EventRecord {
    /// Which event.
    pub(crate) fn event_id(&self) -> u32 {
        self.event_id
    }

    /// `kfd_hsa_signal_event_data.last_event_age`: only for signal events.
    pub(crate) fn last_event_age(&self) -> u64 {
        self.data[0]
    }

    /// Reads as many records as `records` has.
    pub(crate) fn read(from: &mut UserSliceReader, records: &mut [Self]) -> Result {
        from.read_slice(records.as_bytes_mut())
    }
}

/// Why an access failed: `struct kfd_hsa_memory_exception_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryException {
    pub(crate) not_present: u32,
    pub(crate) read_only: u32,
    pub(crate) no_execute: u32,
    pub(crate) imprecise: u32,
    pub(crate) va: u64,
    pub(crate) gpu_id: u32,
    pub(crate) error_type: u32,
}

const _: () = {
    assert!(size_of::<MemoryException>() == size_of::<kfd_hsa_memory_exception_data>());
    assert!(offset_of!(MemoryException, va) == offset_of!(kfd_hsa_memory_exception_data, va));
    assert!(
        offset_of!(MemoryException, imprecise)
            == offset_of!(kfd_memory_exception_failure, imprecise)
    );
    assert!(
        offset_of!(MemoryException, error_type)
            == offset_of!(kfd_hsa_memory_exception_data, ErrorType)
    );
};

// SAFETY: Integers without padding.
unsafe impl AsBytes for MemoryException {}

/// What a reset did: `struct kfd_hsa_hw_exception_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HwException {
    pub(crate) reset_type: u32,
    pub(crate) reset_cause: u32,
    pub(crate) memory_lost: u32,
    pub(crate) gpu_id: u32,
}

const _: () = {
    assert!(size_of::<HwException>() == size_of::<kfd_hsa_hw_exception_data>());
    assert!(offset_of!(HwException, gpu_id) == offset_of!(kfd_hsa_hw_exception_data, gpu_id));
};

// SAFETY: Integers without padding.
unsafe impl AsBytes for HwException {}

#[kernel::macros::kunit_tests(amdkfd_uapi)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_of_the_bytes_themselves() {
        let mut words = [7 << 32 | 3, 0];
        let args = view::<kfd_ioctl_set_event_args>(&mut words).unwrap();
        assert_eq!(args.event_id, 3);
        args.event_id = 4;
        assert_eq!(words[0], 7 << 32 | 4);
    }

    #[test]
    fn too_few_words_are_no_structure() {
        assert!(view::<kfd_ioctl_create_queue_args>(&mut [0; 11]).is_err());
        assert!(view::<kfd_ioctl_create_queue_args>(&mut [0; 12]).is_ok());
        assert!(view::<()>(&mut []).is_ok());
    }
}
