// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The user interface of AMD's compute driver (KFD) as the kernel's headers define it: argument
//! structs, flags and ioctl numbers of `<linux/kfd_ioctl.h>`, property bits of
//! `<linux/kfd_sysfs.h>`.
//!
//! Nothing here is written by hand but the table of names in [`IOCTLS`]: bindgen has read the
//! headers of Linux 7.3 (KFD 1.23), and a test of the project compares what is here with what it
//! reads in those of the kernel that the project runs on. No header and no bindgen is needed to
//! build the crate.

/// The header's own types and constants, named as there; ioctl numbers are `IOC_*`.
#[allow(
    missing_docs,
    non_snake_case,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#[allow(unsafe_op_in_unsafe_fn)]
mod bindings;
pub use bindings::*;

pub mod reflect;

/// One ioctl of the KFD: its number and its name without the `AMDKFD_IOC_` prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl {
    /// The whole request number as `ioctl(2)` takes it: direction, size, type `'K'` and number.
    pub request: u32,
    /// The header's name, such as `CREATE_QUEUE`.
    pub name: &'static str,
    /// The header's name of the argument struct; `()` where there is none.
    pub arguments: &'static str,
}

impl Ioctl {
    /// The number within the KFD's range, 0x01 to 0x28.
    pub const fn nr(self) -> u8 {
        (self.request & 0xff) as u8
    }

    /// The size of the argument struct in bytes.
    pub const fn size(self) -> usize {
        ((self.request >> 16) & 0x3fff) as usize
    }
}

macro_rules! ioctls {
    ($($name:literal = $request:ident, $arguments:ty;)*) => {
        /// Every ioctl of the KFD, in the order of their numbers.
        pub const IOCTLS: &[Ioctl] =
            &[$(Ioctl { request: $request, name: $name, arguments: stringify!($arguments) }),*];
        $(const _: () = assert!(($request >> 16 & 0x3fff) as usize == size_of::<$arguments>());)*
    };
}

ioctls! {
    "GET_VERSION" = IOC_GET_VERSION, kfd_ioctl_get_version_args;
    "CREATE_QUEUE" = IOC_CREATE_QUEUE, kfd_ioctl_create_queue_args;
    "DESTROY_QUEUE" = IOC_DESTROY_QUEUE, kfd_ioctl_destroy_queue_args;
    "SET_MEMORY_POLICY" = IOC_SET_MEMORY_POLICY, kfd_ioctl_set_memory_policy_args;
    "GET_CLOCK_COUNTERS" = IOC_GET_CLOCK_COUNTERS, kfd_ioctl_get_clock_counters_args;
    "GET_PROCESS_APERTURES" = IOC_GET_PROCESS_APERTURES, kfd_ioctl_get_process_apertures_args;
    "UPDATE_QUEUE" = IOC_UPDATE_QUEUE, kfd_ioctl_update_queue_args;
    "CREATE_EVENT" = IOC_CREATE_EVENT, kfd_ioctl_create_event_args;
    "DESTROY_EVENT" = IOC_DESTROY_EVENT, kfd_ioctl_destroy_event_args;
    "SET_EVENT" = IOC_SET_EVENT, kfd_ioctl_set_event_args;
    "RESET_EVENT" = IOC_RESET_EVENT, kfd_ioctl_reset_event_args;
    "WAIT_EVENTS" = IOC_WAIT_EVENTS, kfd_ioctl_wait_events_args;
    "DBG_REGISTER_DEPRECATED" = IOC_DBG_REGISTER_DEPRECATED, kfd_ioctl_dbg_register_args;
    "DBG_UNREGISTER_DEPRECATED" = IOC_DBG_UNREGISTER_DEPRECATED, kfd_ioctl_dbg_unregister_args;
    "DBG_ADDRESS_WATCH_DEPRECATED" = IOC_DBG_ADDRESS_WATCH_DEPRECATED,
        kfd_ioctl_dbg_address_watch_args;
    "DBG_WAVE_CONTROL_DEPRECATED" = IOC_DBG_WAVE_CONTROL_DEPRECATED,
        kfd_ioctl_dbg_wave_control_args;
    "SET_SCRATCH_BACKING_VA" = IOC_SET_SCRATCH_BACKING_VA, kfd_ioctl_set_scratch_backing_va_args;
    "GET_TILE_CONFIG" = IOC_GET_TILE_CONFIG, kfd_ioctl_get_tile_config_args;
    "SET_TRAP_HANDLER" = IOC_SET_TRAP_HANDLER, kfd_ioctl_set_trap_handler_args;
    "GET_PROCESS_APERTURES_NEW" = IOC_GET_PROCESS_APERTURES_NEW,
        kfd_ioctl_get_process_apertures_new_args;
    "ACQUIRE_VM" = IOC_ACQUIRE_VM, kfd_ioctl_acquire_vm_args;
    "ALLOC_MEMORY_OF_GPU" = IOC_ALLOC_MEMORY_OF_GPU, kfd_ioctl_alloc_memory_of_gpu_args;
    "FREE_MEMORY_OF_GPU" = IOC_FREE_MEMORY_OF_GPU, kfd_ioctl_free_memory_of_gpu_args;
    "MAP_MEMORY_TO_GPU" = IOC_MAP_MEMORY_TO_GPU, kfd_ioctl_map_memory_to_gpu_args;
    "UNMAP_MEMORY_FROM_GPU" = IOC_UNMAP_MEMORY_FROM_GPU, kfd_ioctl_unmap_memory_from_gpu_args;
    "SET_CU_MASK" = IOC_SET_CU_MASK, kfd_ioctl_set_cu_mask_args;
    "GET_QUEUE_WAVE_STATE" = IOC_GET_QUEUE_WAVE_STATE, kfd_ioctl_get_queue_wave_state_args;
    "GET_DMABUF_INFO" = IOC_GET_DMABUF_INFO, kfd_ioctl_get_dmabuf_info_args;
    "IMPORT_DMABUF" = IOC_IMPORT_DMABUF, kfd_ioctl_import_dmabuf_args;
    "ALLOC_QUEUE_GWS" = IOC_ALLOC_QUEUE_GWS, kfd_ioctl_alloc_queue_gws_args;
    "SMI_EVENTS" = IOC_SMI_EVENTS, kfd_ioctl_smi_events_args;
    "SVM" = IOC_SVM, kfd_ioctl_svm_args;
    "SET_XNACK_MODE" = IOC_SET_XNACK_MODE, kfd_ioctl_set_xnack_mode_args;
    "CRIU_OP" = IOC_CRIU_OP, kfd_ioctl_criu_args;
    "AVAILABLE_MEMORY" = IOC_AVAILABLE_MEMORY, kfd_ioctl_get_available_memory_args;
    "EXPORT_DMABUF" = IOC_EXPORT_DMABUF, kfd_ioctl_export_dmabuf_args;
    "RUNTIME_ENABLE" = IOC_RUNTIME_ENABLE, kfd_ioctl_runtime_enable_args;
    "DBG_TRAP" = IOC_DBG_TRAP, kfd_ioctl_dbg_trap_args;
    "CREATE_PROCESS" = IOC_CREATE_PROCESS, ();
    "PROFILER" = IOC_PROFILER, kfd_ioctl_profiler_args;
}

/// The ioctl with number `nr`, if there is one.
pub fn ioctl_by_nr(nr: u8) -> Option<Ioctl> {
    IOCTLS.iter().copied().find(|ioctl| ioctl.nr() == nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_in_order() {
        for (index, ioctl) in IOCTLS.iter().enumerate() {
            assert_eq!(usize::from(ioctl.nr()), index + 1, "{}", ioctl.name);
            assert_eq!(
                (ioctl.request >> 8) & 0xff,
                u32::from(b'K'),
                "{}",
                ioctl.name
            );
        }
    }

    #[test]
    fn sizes_are_those_of_the_structs() {
        let size = |nr| ioctl_by_nr(nr).map(Ioctl::size);
        assert_eq!(size(0x02), Some(size_of::<kfd_ioctl_create_queue_args>()));
        assert_eq!(size(0x0c), Some(size_of::<kfd_ioctl_wait_events_args>()));
        assert_eq!(
            size(0x16),
            Some(size_of::<kfd_ioctl_alloc_memory_of_gpu_args>())
        );
        assert_eq!(size(0x27), Some(0));
        assert_eq!(size(0x29), None);
    }
}
