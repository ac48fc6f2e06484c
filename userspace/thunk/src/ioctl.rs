// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The one place that calls `ioctl(2)`: each argument struct knows its request.

use crate::{Error, Result};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;

/// An argument struct of the KFD's interface.
///
/// # Safety
/// `REQUEST` must be the request that the kernel's header defines with this struct.
pub(crate) unsafe trait Arguments {
    const REQUEST: u32;
    const NAME: &'static str;
}

macro_rules! arguments {
    ($($name:ident: $args:ident = $request:ident;)*) => {
        $(
            const _: () = {
                let size = (uapi::$request >> 16) & 0x3fff;
                assert!(size as usize == size_of::<uapi::$args>());
            };
            // SAFETY: the header's own pair; its size is checked above.
            unsafe impl Arguments for uapi::$args {
                const REQUEST: u32 = uapi::$request;
                const NAME: &'static str = stringify!($name);
            }
        )*
    };
}

arguments! {
    GET_VERSION: kfd_ioctl_get_version_args = IOC_GET_VERSION;
    CREATE_QUEUE: kfd_ioctl_create_queue_args = IOC_CREATE_QUEUE;
    DESTROY_QUEUE: kfd_ioctl_destroy_queue_args = IOC_DESTROY_QUEUE;
    GET_CLOCK_COUNTERS: kfd_ioctl_get_clock_counters_args = IOC_GET_CLOCK_COUNTERS;
    CREATE_EVENT: kfd_ioctl_create_event_args = IOC_CREATE_EVENT;
    DESTROY_EVENT: kfd_ioctl_destroy_event_args = IOC_DESTROY_EVENT;
    SET_EVENT: kfd_ioctl_set_event_args = IOC_SET_EVENT;
    RESET_EVENT: kfd_ioctl_reset_event_args = IOC_RESET_EVENT;
    WAIT_EVENTS: kfd_ioctl_wait_events_args = IOC_WAIT_EVENTS;
    GET_PROCESS_APERTURES_NEW: kfd_ioctl_get_process_apertures_new_args
        = IOC_GET_PROCESS_APERTURES_NEW;
    ACQUIRE_VM: kfd_ioctl_acquire_vm_args = IOC_ACQUIRE_VM;
    ALLOC_MEMORY_OF_GPU: kfd_ioctl_alloc_memory_of_gpu_args = IOC_ALLOC_MEMORY_OF_GPU;
    FREE_MEMORY_OF_GPU: kfd_ioctl_free_memory_of_gpu_args = IOC_FREE_MEMORY_OF_GPU;
    MAP_MEMORY_TO_GPU: kfd_ioctl_map_memory_to_gpu_args = IOC_MAP_MEMORY_TO_GPU;
    UNMAP_MEMORY_FROM_GPU: kfd_ioctl_unmap_memory_from_gpu_args = IOC_UNMAP_MEMORY_FROM_GPU;
    SET_MEMORY_POLICY: kfd_ioctl_set_memory_policy_args = IOC_SET_MEMORY_POLICY;
    GET_PROCESS_APERTURES: kfd_ioctl_get_process_apertures_args = IOC_GET_PROCESS_APERTURES;
    UPDATE_QUEUE: kfd_ioctl_update_queue_args = IOC_UPDATE_QUEUE;
    SET_SCRATCH_BACKING_VA: kfd_ioctl_set_scratch_backing_va_args = IOC_SET_SCRATCH_BACKING_VA;
    GET_TILE_CONFIG: kfd_ioctl_get_tile_config_args = IOC_GET_TILE_CONFIG;
    SET_TRAP_HANDLER: kfd_ioctl_set_trap_handler_args = IOC_SET_TRAP_HANDLER;
    SET_CU_MASK: kfd_ioctl_set_cu_mask_args = IOC_SET_CU_MASK;
    GET_QUEUE_WAVE_STATE: kfd_ioctl_get_queue_wave_state_args = IOC_GET_QUEUE_WAVE_STATE;
    GET_DMABUF_INFO: kfd_ioctl_get_dmabuf_info_args = IOC_GET_DMABUF_INFO;
    IMPORT_DMABUF: kfd_ioctl_import_dmabuf_args = IOC_IMPORT_DMABUF;
    EXPORT_DMABUF: kfd_ioctl_export_dmabuf_args = IOC_EXPORT_DMABUF;
    ALLOC_QUEUE_GWS: kfd_ioctl_alloc_queue_gws_args = IOC_ALLOC_QUEUE_GWS;
    SMI_EVENTS: kfd_ioctl_smi_events_args = IOC_SMI_EVENTS;
    SET_XNACK_MODE: kfd_ioctl_set_xnack_mode_args = IOC_SET_XNACK_MODE;
    CRIU_OP: kfd_ioctl_criu_args = IOC_CRIU_OP;
    RUNTIME_ENABLE: kfd_ioctl_runtime_enable_args = IOC_RUNTIME_ENABLE;
    AVAILABLE_MEMORY: kfd_ioctl_get_available_memory_args = IOC_AVAILABLE_MEMORY;
    DBG_TRAP: kfd_ioctl_dbg_trap_args = IOC_DBG_TRAP;
    PROFILER: kfd_ioctl_profiler_args = IOC_PROFILER;
}

/// A request with its argument, as rustix wants it.
struct Call<'a, T>(&'a mut T);

// SAFETY: the opcode belongs to the struct (`Arguments`), which the kernel reads and writes in
// place.
unsafe impl<T: Arguments> Ioctl for Call<'_, T> {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        T::REQUEST as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.0).cast()
    }

    // SAFETY: it looks at no memory.
    unsafe fn output_from_ptr(value: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(value)
    }
}

/// Calls the ioctl that `args` belongs to, once. Returns what the call does, 0 for most.
///
/// # Safety
/// Every pointer in `args` must be valid for what the kernel does with it.
pub(crate) unsafe fn call_once<T: Arguments>(
    kfd: impl AsFd,
    args: &mut T,
) -> rustix::io::Result<i32> {
    // SAFETY: `Arguments` ties request and struct together; the caller vouches for pointers.
    unsafe { rustix::ioctl::ioctl(kfd.as_fd(), Call(args)) }
}

/// Calls the ioctl that `args` belongs to; `object` says in an error what it was about.
///
/// A call that a signal interrupted is made again, with what the kernel left in `args`.
///
/// # Safety
/// Every pointer in `args` must be valid for what the kernel does with it.
pub(crate) unsafe fn call<T: Arguments>(
    kfd: impl AsFd,
    object: impl FnOnce() -> String,
    args: &mut T,
) -> Result<()> {
    loop {
        // SAFETY: the caller vouches for pointers.
        match unsafe { call_once(kfd.as_fd(), args) } {
            Ok(_) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(errno) => return Err(Error::of(T::NAME, object())(errno)),
        }
    }
}
