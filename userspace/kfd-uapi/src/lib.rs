// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The KFD's user interface as the running kernel's source defines it: argument structs, flags and
//! ioctl numbers of `<linux/kfd_ioctl.h>`, property bits of `<linux/kfd_sysfs.h>`.
//!
//! Nothing here is written by hand but the table of names in [`IOCTLS`]: bindgen reads the header
//! at build time, so that a struct can't differ from the kernel's.

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
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
pub use bindings::*;

/// One ioctl of the KFD: its number and its name without the `AMDKFD_IOC_` prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl {
    /// The whole request number as `ioctl(2)` takes it: direction, size, type `'K'` and number.
    pub request: u32,
    /// The header's name, such as `CREATE_QUEUE`.
    pub name: &'static str,
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
    ($($name:literal = $request:ident),* $(,)?) => {
        /// Every ioctl of the KFD, in the order of their numbers.
        pub const IOCTLS: &[Ioctl] = &[$(Ioctl { request: $request, name: $name }),*];
    };
}

ioctls! {
    "GET_VERSION" = IOC_GET_VERSION,
    "CREATE_QUEUE" = IOC_CREATE_QUEUE,
    "DESTROY_QUEUE" = IOC_DESTROY_QUEUE,
    "SET_MEMORY_POLICY" = IOC_SET_MEMORY_POLICY,
    "GET_CLOCK_COUNTERS" = IOC_GET_CLOCK_COUNTERS,
    "GET_PROCESS_APERTURES" = IOC_GET_PROCESS_APERTURES,
    "UPDATE_QUEUE" = IOC_UPDATE_QUEUE,
    "CREATE_EVENT" = IOC_CREATE_EVENT,
    "DESTROY_EVENT" = IOC_DESTROY_EVENT,
    "SET_EVENT" = IOC_SET_EVENT,
    "RESET_EVENT" = IOC_RESET_EVENT,
    "WAIT_EVENTS" = IOC_WAIT_EVENTS,
    "DBG_REGISTER_DEPRECATED" = IOC_DBG_REGISTER_DEPRECATED,
    "DBG_UNREGISTER_DEPRECATED" = IOC_DBG_UNREGISTER_DEPRECATED,
    "DBG_ADDRESS_WATCH_DEPRECATED" = IOC_DBG_ADDRESS_WATCH_DEPRECATED,
    "DBG_WAVE_CONTROL_DEPRECATED" = IOC_DBG_WAVE_CONTROL_DEPRECATED,
    "SET_SCRATCH_BACKING_VA" = IOC_SET_SCRATCH_BACKING_VA,
    "GET_TILE_CONFIG" = IOC_GET_TILE_CONFIG,
    "SET_TRAP_HANDLER" = IOC_SET_TRAP_HANDLER,
    "GET_PROCESS_APERTURES_NEW" = IOC_GET_PROCESS_APERTURES_NEW,
    "ACQUIRE_VM" = IOC_ACQUIRE_VM,
    "ALLOC_MEMORY_OF_GPU" = IOC_ALLOC_MEMORY_OF_GPU,
    "FREE_MEMORY_OF_GPU" = IOC_FREE_MEMORY_OF_GPU,
    "MAP_MEMORY_TO_GPU" = IOC_MAP_MEMORY_TO_GPU,
    "UNMAP_MEMORY_FROM_GPU" = IOC_UNMAP_MEMORY_FROM_GPU,
    "SET_CU_MASK" = IOC_SET_CU_MASK,
    "GET_QUEUE_WAVE_STATE" = IOC_GET_QUEUE_WAVE_STATE,
    "GET_DMABUF_INFO" = IOC_GET_DMABUF_INFO,
    "IMPORT_DMABUF" = IOC_IMPORT_DMABUF,
    "ALLOC_QUEUE_GWS" = IOC_ALLOC_QUEUE_GWS,
    "SMI_EVENTS" = IOC_SMI_EVENTS,
    "SVM" = IOC_SVM,
    "SET_XNACK_MODE" = IOC_SET_XNACK_MODE,
    "CRIU_OP" = IOC_CRIU_OP,
    "AVAILABLE_MEMORY" = IOC_AVAILABLE_MEMORY,
    "EXPORT_DMABUF" = IOC_EXPORT_DMABUF,
    "RUNTIME_ENABLE" = IOC_RUNTIME_ENABLE,
    "DBG_TRAP" = IOC_DBG_TRAP,
    "CREATE_PROCESS" = IOC_CREATE_PROCESS,
    "PROFILER" = IOC_PROFILER,
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
