// SPDX-License-Identifier: MIT

// Made by `cargo run -p kfd-uapi --example generate` of the kernel's headers kfd_ioctl.h,
// kfd_sysfs.h and amdgpu_drm.h, which are copyright 2014 and 2021 Advanced Micro Devices, Inc., and
// under the MIT licence. Not to be edited.

#[repr(C)]
#[derive(Default)]
pub struct __IncompleteArrayField<T>(::core::marker::PhantomData<T>, [T; 0]);
impl<T> __IncompleteArrayField<T> {
    #[inline]
    pub const fn new() -> Self {
        __IncompleteArrayField(::core::marker::PhantomData, [])
    }
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        self as *const _ as *const T
    }
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self as *mut _ as *mut T
    }
    #[inline]
    pub unsafe fn as_slice(&self, len: usize) -> &[T] {
        ::core::slice::from_raw_parts(self.as_ptr(), len)
    }
    #[inline]
    pub unsafe fn as_mut_slice(&mut self, len: usize) -> &mut [T] {
        ::core::slice::from_raw_parts_mut(self.as_mut_ptr(), len)
    }
}
impl<T> ::core::fmt::Debug for __IncompleteArrayField<T> {
    fn fmt(&self, fmt: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        fmt.write_str("__IncompleteArrayField")
    }
}
pub const IOC_IN: u32 = 1073741824;
pub const IOC_OUT: u32 = 2147483648;
pub const IOC_INOUT: u32 = 3221225472;
pub const KFD_IOCTL_MAJOR_VERSION: u32 = 1;
pub const KFD_IOCTL_MINOR_VERSION: u32 = 23;
pub const KFD_IOC_QUEUE_TYPE_COMPUTE: u32 = 0;
pub const KFD_IOC_QUEUE_TYPE_SDMA: u32 = 1;
pub const KFD_IOC_QUEUE_TYPE_COMPUTE_AQL: u32 = 2;
pub const KFD_IOC_QUEUE_TYPE_SDMA_XGMI: u32 = 3;
pub const KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID: u32 = 4;
pub const KFD_MAX_QUEUE_PERCENTAGE: u32 = 100;
pub const KFD_MAX_QUEUE_PRIORITY: u32 = 15;
pub const KFD_MIN_QUEUE_RING_SIZE: u32 = 1024;
pub const KFD_IOC_CACHE_POLICY_COHERENT: u32 = 0;
pub const KFD_IOC_CACHE_POLICY_NONCOHERENT: u32 = 1;
pub const KFD_PROC_FLAG_MFMA_HIGH_PRECISION: u32 = 1;
pub const KFD_INVALID_FD: u32 = 4294967295;
pub const KFD_IOC_EVENT_SIGNAL: u32 = 0;
pub const KFD_IOC_EVENT_NODECHANGE: u32 = 1;
pub const KFD_IOC_EVENT_DEVICESTATECHANGE: u32 = 2;
pub const KFD_IOC_EVENT_HW_EXCEPTION: u32 = 3;
pub const KFD_IOC_EVENT_SYSTEM_EVENT: u32 = 4;
pub const KFD_IOC_EVENT_DEBUG_EVENT: u32 = 5;
pub const KFD_IOC_EVENT_PROFILE_EVENT: u32 = 6;
pub const KFD_IOC_EVENT_QUEUE_EVENT: u32 = 7;
pub const KFD_IOC_EVENT_MEMORY: u32 = 8;
pub const KFD_IOC_WAIT_RESULT_COMPLETE: u32 = 0;
pub const KFD_IOC_WAIT_RESULT_TIMEOUT: u32 = 1;
pub const KFD_IOC_WAIT_RESULT_FAIL: u32 = 2;
pub const KFD_SIGNAL_EVENT_LIMIT: u32 = 4096;
pub const KFD_HW_EXCEPTION_WHOLE_GPU_RESET: u32 = 0;
pub const KFD_HW_EXCEPTION_PER_ENGINE_RESET: u32 = 1;
pub const KFD_HW_EXCEPTION_GPU_HANG: u32 = 0;
pub const KFD_HW_EXCEPTION_ECC: u32 = 1;
pub const KFD_MEM_ERR_NO_RAS: u32 = 0;
pub const KFD_MEM_ERR_SRAM_ECC: u32 = 1;
pub const KFD_MEM_ERR_POISON_CONSUMED: u32 = 2;
pub const KFD_MEM_ERR_GPU_HANG: u32 = 3;
pub const KFD_IOC_ALLOC_MEM_FLAGS_VRAM: u32 = 1;
pub const KFD_IOC_ALLOC_MEM_FLAGS_GTT: u32 = 2;
pub const KFD_IOC_ALLOC_MEM_FLAGS_USERPTR: u32 = 4;
pub const KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL: u32 = 8;
pub const KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP: u32 = 16;
pub const KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE: u32 = 2147483648;
pub const KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE: u32 = 1073741824;
pub const KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC: u32 = 536870912;
pub const KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE: u32 = 268435456;
pub const KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM: u32 = 134217728;
pub const KFD_IOC_ALLOC_MEM_FLAGS_COHERENT: u32 = 67108864;
pub const KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED: u32 = 33554432;
pub const KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT: u32 = 16777216;
pub const KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS: u32 = 8388608;
pub const KFD_SMI_EVENT_MSG_SIZE: u32 = 96;
pub const KFD_IOCTL_SVM_FLAG_HOST_ACCESS: u32 = 1;
pub const KFD_IOCTL_SVM_FLAG_COHERENT: u32 = 2;
pub const KFD_IOCTL_SVM_FLAG_HIVE_LOCAL: u32 = 4;
pub const KFD_IOCTL_SVM_FLAG_GPU_RO: u32 = 8;
pub const KFD_IOCTL_SVM_FLAG_GPU_EXEC: u32 = 16;
pub const KFD_IOCTL_SVM_FLAG_GPU_READ_MOSTLY: u32 = 32;
pub const KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED: u32 = 64;
pub const KFD_IOCTL_SVM_FLAG_EXT_COHERENT: u32 = 128;
pub const KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK: u32 = 1;
pub const KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK: u32 = 2;
pub const KFD_DBG_QUEUE_ERROR_BIT: u32 = 30;
pub const KFD_DBG_QUEUE_INVALID_BIT: u32 = 31;
pub const KFD_DBG_QUEUE_ERROR_MASK: u32 = 1073741824;
pub const KFD_DBG_QUEUE_INVALID_MASK: u32 = 2147483648;
pub const KFD_IOC_PROFILER_VERSION_NUM: u32 = 1;
pub const HSA_CAP_HOT_PLUGGABLE: u32 = 1;
pub const HSA_CAP_ATS_PRESENT: u32 = 2;
pub const HSA_CAP_SHARED_WITH_GRAPHICS: u32 = 4;
pub const HSA_CAP_QUEUE_SIZE_POW2: u32 = 8;
pub const HSA_CAP_QUEUE_SIZE_32BIT: u32 = 16;
pub const HSA_CAP_QUEUE_IDLE_EVENT: u32 = 32;
pub const HSA_CAP_VA_LIMIT: u32 = 64;
pub const HSA_CAP_WATCH_POINTS_SUPPORTED: u32 = 128;
pub const HSA_CAP_WATCH_POINTS_TOTALBITS_MASK: u32 = 3840;
pub const HSA_CAP_WATCH_POINTS_TOTALBITS_SHIFT: u32 = 8;
pub const HSA_CAP_DOORBELL_TYPE_TOTALBITS_MASK: u32 = 12288;
pub const HSA_CAP_DOORBELL_TYPE_TOTALBITS_SHIFT: u32 = 12;
pub const HSA_CAP_DOORBELL_TYPE_PRE_1_0: u32 = 0;
pub const HSA_CAP_DOORBELL_TYPE_1_0: u32 = 1;
pub const HSA_CAP_DOORBELL_TYPE_2_0: u32 = 2;
pub const HSA_CAP_AQL_QUEUE_DOUBLE_MAP: u32 = 16384;
pub const HSA_CAP_TRAP_DEBUG_SUPPORT: u32 = 32768;
pub const HSA_CAP_TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED: u32 = 65536;
pub const HSA_CAP_TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED: u32 = 131072;
pub const HSA_CAP_TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED: u32 = 262144;
pub const HSA_CAP_RESERVED_WAS_SRAM_EDCSUPPORTED: u32 = 524288;
pub const HSA_CAP_MEM_EDCSUPPORTED: u32 = 1048576;
pub const HSA_CAP_RASEVENTNOTIFY: u32 = 2097152;
pub const HSA_CAP_ASIC_REVISION_MASK: u32 = 62914560;
pub const HSA_CAP_ASIC_REVISION_SHIFT: u32 = 22;
pub const HSA_CAP_SRAM_EDCSUPPORTED: u32 = 67108864;
pub const HSA_CAP_SVMAPI_SUPPORTED: u32 = 134217728;
pub const HSA_CAP_FLAGS_COHERENTHOSTACCESS: u32 = 268435456;
pub const HSA_CAP_TRAP_DEBUG_FIRMWARE_SUPPORTED: u32 = 536870912;
pub const HSA_CAP_TRAP_DEBUG_PRECISE_ALU_OPERATIONS_SUPPORTED: u32 = 1073741824;
pub const HSA_CAP_PER_QUEUE_RESET_SUPPORTED: u32 = 2147483648;
pub const HSA_CAP_RESERVED: u32 = 1015808;
pub const HSA_CAP2_PER_SDMA_QUEUE_RESET_SUPPORTED: u32 = 1;
pub const HSA_CAP2_TRAP_DEBUG_LDS_OUT_OF_ADDR_RANGE_SUPPORTED: u32 = 2;
pub const HSA_CAP2_RESERVED: u32 = 4294967292;
pub const HSA_DBG_WATCH_ADDR_MASK_LO_BIT_MASK: u32 = 15;
pub const HSA_DBG_WATCH_ADDR_MASK_LO_BIT_SHIFT: u32 = 0;
pub const HSA_DBG_WATCH_ADDR_MASK_HI_BIT_MASK: u32 = 1008;
pub const HSA_DBG_WATCH_ADDR_MASK_HI_BIT_SHIFT: u32 = 4;
pub const HSA_DBG_DISPATCH_INFO_ALWAYS_VALID: u32 = 1024;
pub const HSA_DBG_WATCHPOINTS_EXCLUSIVE: u32 = 2048;
pub const HSA_DBG_RESERVED: i32 = -4096;
pub const HSA_MEM_HEAP_TYPE_SYSTEM: u32 = 0;
pub const HSA_MEM_HEAP_TYPE_FB_PUBLIC: u32 = 1;
pub const HSA_MEM_HEAP_TYPE_FB_PRIVATE: u32 = 2;
pub const HSA_MEM_HEAP_TYPE_GPU_GDS: u32 = 3;
pub const HSA_MEM_HEAP_TYPE_GPU_LDS: u32 = 4;
pub const HSA_MEM_HEAP_TYPE_GPU_SCRATCH: u32 = 5;
pub const HSA_MEM_FLAGS_HOT_PLUGGABLE: u32 = 1;
pub const HSA_MEM_FLAGS_NON_VOLATILE: u32 = 2;
pub const HSA_MEM_FLAGS_RESERVED: u32 = 4294967292;
pub const HSA_CACHE_TYPE_DATA: u32 = 1;
pub const HSA_CACHE_TYPE_INSTRUCTION: u32 = 2;
pub const HSA_CACHE_TYPE_CPU: u32 = 4;
pub const HSA_CACHE_TYPE_HSACU: u32 = 8;
pub const HSA_CACHE_TYPE_RESERVED: u32 = 4294967280;
pub const HSA_IOLINK_TYPE_UNDEFINED: u32 = 0;
pub const HSA_IOLINK_TYPE_HYPERTRANSPORT: u32 = 1;
pub const HSA_IOLINK_TYPE_PCIEXPRESS: u32 = 2;
pub const HSA_IOLINK_TYPE_AMBA: u32 = 3;
pub const HSA_IOLINK_TYPE_MIPI: u32 = 4;
pub const HSA_IOLINK_TYPE_QPI_1_1: u32 = 5;
pub const HSA_IOLINK_TYPE_RESERVED1: u32 = 6;
pub const HSA_IOLINK_TYPE_RESERVED2: u32 = 7;
pub const HSA_IOLINK_TYPE_RAPID_IO: u32 = 8;
pub const HSA_IOLINK_TYPE_INFINIBAND: u32 = 9;
pub const HSA_IOLINK_TYPE_RESERVED3: u32 = 10;
pub const HSA_IOLINK_TYPE_XGMI: u32 = 11;
pub const HSA_IOLINK_TYPE_XGOP: u32 = 12;
pub const HSA_IOLINK_TYPE_GZ: u32 = 13;
pub const HSA_IOLINK_TYPE_ETHERNET_RDMA: u32 = 14;
pub const HSA_IOLINK_TYPE_RDMA_OTHER: u32 = 15;
pub const HSA_IOLINK_TYPE_OTHER: u32 = 16;
pub const HSA_IOLINK_FLAGS_ENABLED: u32 = 1;
pub const HSA_IOLINK_FLAGS_NON_COHERENT: u32 = 2;
pub const HSA_IOLINK_FLAGS_NO_ATOMICS_32_BIT: u32 = 4;
pub const HSA_IOLINK_FLAGS_NO_ATOMICS_64_BIT: u32 = 8;
pub const HSA_IOLINK_FLAGS_NO_PEER_TO_PEER_DMA: u32 = 16;
pub const HSA_IOLINK_FLAGS_RESERVED: u32 = 4294967264;
pub const AMDGPU_GEM_DOMAIN_CPU: u32 = 1;
pub const AMDGPU_GEM_DOMAIN_GTT: u32 = 2;
pub const AMDGPU_GEM_DOMAIN_VRAM: u32 = 4;
pub const AMDGPU_GEM_DOMAIN_GDS: u32 = 8;
pub const AMDGPU_GEM_DOMAIN_GWS: u32 = 16;
pub const AMDGPU_GEM_DOMAIN_OA: u32 = 32;
pub const AMDGPU_GEM_DOMAIN_DOORBELL: u32 = 64;
pub const AMDGPU_GEM_DOMAIN_MASK: u32 = 127;
pub const AMDGPU_CTX_OP_ALLOC_CTX: u32 = 1;
pub const AMDGPU_GEM_METADATA_OP_SET_METADATA: u32 = 1;
pub const AMDGPU_VA_OP_MAP: u32 = 1;
pub const AMDGPU_VM_PAGE_PRT: u32 = 16;
pub const AMDGPU_HW_IP_COMPUTE: u32 = 1;
pub const AMDGPU_CHUNK_ID_IB: u32 = 1;
pub const AMDGPU_CHUNK_ID_BO_HANDLES: u32 = 6;
pub type __s32 = ::core::ffi::c_int;
pub type __u32 = ::core::ffi::c_uint;
pub type __u64 = ::core::ffi::c_ulonglong;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_gem_close {
    pub handle: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_prime_handle {
    pub handle: __u32,
    pub flags: __u32,
    pub fd: __s32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_version_args {
    pub major_version: __u32,
    pub minor_version: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_create_queue_args {
    pub ring_base_address: __u64,
    pub write_pointer_address: __u64,
    pub read_pointer_address: __u64,
    pub doorbell_offset: __u64,
    pub ring_size: __u32,
    pub gpu_id: __u32,
    pub queue_type: __u32,
    pub queue_percentage: __u32,
    pub queue_priority: __u32,
    pub queue_id: __u32,
    pub eop_buffer_address: __u64,
    pub eop_buffer_size: __u64,
    pub ctx_save_restore_address: __u64,
    pub ctx_save_restore_size: __u32,
    pub ctl_stack_size: __u32,
    pub sdma_engine_id: __u32,
    pub metadata_ring_size: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_destroy_queue_args {
    pub queue_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_update_queue_args {
    pub ring_base_address: __u64,
    pub queue_id: __u32,
    pub ring_size: __u32,
    pub queue_percentage: __u32,
    pub queue_priority: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_set_cu_mask_args {
    pub queue_id: __u32,
    pub num_cu_mask: __u32,
    pub cu_mask_ptr: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_queue_wave_state_args {
    pub ctl_stack_address: __u64,
    pub ctl_stack_used_size: __u32,
    pub save_area_used_size: __u32,
    pub queue_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_available_memory_args {
    pub available: __u64,
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_dbg_device_info_entry {
    pub exception_status: __u64,
    pub lds_base: __u64,
    pub lds_limit: __u64,
    pub scratch_base: __u64,
    pub scratch_limit: __u64,
    pub gpuvm_base: __u64,
    pub gpuvm_limit: __u64,
    pub gpu_id: __u32,
    pub location_id: __u32,
    pub vendor_id: __u32,
    pub device_id: __u32,
    pub revision_id: __u32,
    pub subsystem_vendor_id: __u32,
    pub subsystem_device_id: __u32,
    pub fw_version: __u32,
    pub gfx_target_version: __u32,
    pub simd_count: __u32,
    pub max_waves_per_simd: __u32,
    pub array_count: __u32,
    pub simd_arrays_per_engine: __u32,
    pub num_xcc: __u32,
    pub capability: __u32,
    pub debug_prop: __u32,
    pub capability2: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_set_memory_policy_args {
    pub alternate_aperture_base: __u64,
    pub alternate_aperture_size: __u64,
    pub gpu_id: __u32,
    pub default_policy: __u32,
    pub alternate_policy: __u32,
    pub misc_process_flag: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_clock_counters_args {
    pub gpu_clock_counter: __u64,
    pub cpu_clock_counter: __u64,
    pub system_clock_counter: __u64,
    pub system_clock_freq: __u64,
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_process_device_apertures {
    pub lds_base: __u64,
    pub lds_limit: __u64,
    pub scratch_base: __u64,
    pub scratch_limit: __u64,
    pub gpuvm_base: __u64,
    pub gpuvm_limit: __u64,
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_process_apertures_args {
    pub process_apertures: [kfd_process_device_apertures; 7usize],
    pub num_of_nodes: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_process_apertures_new_args {
    pub kfd_process_device_apertures_ptr: __u64,
    pub num_of_nodes: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_register_args {
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_unregister_args {
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_address_watch_args {
    pub content_ptr: __u64,
    pub gpu_id: __u32,
    pub buf_size_in_bytes: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_wave_control_args {
    pub content_ptr: __u64,
    pub gpu_id: __u32,
    pub buf_size_in_bytes: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_create_event_args {
    pub event_page_offset: __u64,
    pub event_trigger_data: __u32,
    pub event_type: __u32,
    pub auto_reset: __u32,
    pub node_id: __u32,
    pub event_id: __u32,
    pub event_slot_index: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_destroy_event_args {
    pub event_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_set_event_args {
    pub event_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_reset_event_args {
    pub event_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_memory_exception_failure {
    pub NotPresent: __u32,
    pub ReadOnly: __u32,
    pub NoExecute: __u32,
    pub imprecise: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_hsa_memory_exception_data {
    pub failure: kfd_memory_exception_failure,
    pub va: __u64,
    pub gpu_id: __u32,
    pub ErrorType: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_hsa_hw_exception_data {
    pub reset_type: __u32,
    pub reset_cause: __u32,
    pub memory_lost: __u32,
    pub gpu_id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_hsa_signal_event_data {
    pub last_event_age: __u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct kfd_event_data {
    pub __bindgen_anon_1: kfd_event_data__bindgen_ty_1,
    pub kfd_event_data_ext: __u64,
    pub event_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union kfd_event_data__bindgen_ty_1 {
    pub memory_exception_data: kfd_hsa_memory_exception_data,
    pub hw_exception_data: kfd_hsa_hw_exception_data,
    pub signal_event_data: kfd_hsa_signal_event_data,
}
impl Default for kfd_event_data__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for kfd_event_data {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_wait_events_args {
    pub events_ptr: __u64,
    pub num_events: __u32,
    pub wait_for_all: __u32,
    pub timeout: __u32,
    pub wait_result: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_set_scratch_backing_va_args {
    pub va_addr: __u64,
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_tile_config_args {
    pub tile_config_ptr: __u64,
    pub macro_tile_config_ptr: __u64,
    pub num_tile_configs: __u32,
    pub num_macro_tile_configs: __u32,
    pub gpu_id: __u32,
    pub gb_addr_config: __u32,
    pub num_banks: __u32,
    pub num_ranks: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_set_trap_handler_args {
    pub tba_addr: __u64,
    pub tma_addr: __u64,
    pub gpu_id: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_acquire_vm_args {
    pub drm_fd: __u32,
    pub gpu_id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_alloc_memory_of_gpu_args {
    pub va_addr: __u64,
    pub size: __u64,
    pub handle: __u64,
    pub mmap_offset: __u64,
    pub gpu_id: __u32,
    pub flags: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_free_memory_of_gpu_args {
    pub handle: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_map_memory_to_gpu_args {
    pub handle: __u64,
    pub device_ids_array_ptr: __u64,
    pub n_devices: __u32,
    pub n_success: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_unmap_memory_from_gpu_args {
    pub handle: __u64,
    pub device_ids_array_ptr: __u64,
    pub n_devices: __u32,
    pub n_success: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_alloc_queue_gws_args {
    pub queue_id: __u32,
    pub num_gws: __u32,
    pub first_gws: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_get_dmabuf_info_args {
    pub size: __u64,
    pub metadata_ptr: __u64,
    pub metadata_size: __u32,
    pub gpu_id: __u32,
    pub flags: __u32,
    pub dmabuf_fd: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_import_dmabuf_args {
    pub va_addr: __u64,
    pub handle: __u64,
    pub gpu_id: __u32,
    pub dmabuf_fd: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_export_dmabuf_args {
    pub handle: __u64,
    pub flags: __u32,
    pub dmabuf_fd: __u32,
}
pub const KFD_SMI_EVENT_NONE: kfd_smi_event = 0;
pub const KFD_SMI_EVENT_VMFAULT: kfd_smi_event = 1;
pub const KFD_SMI_EVENT_THERMAL_THROTTLE: kfd_smi_event = 2;
pub const KFD_SMI_EVENT_GPU_PRE_RESET: kfd_smi_event = 3;
pub const KFD_SMI_EVENT_GPU_POST_RESET: kfd_smi_event = 4;
pub const KFD_SMI_EVENT_MIGRATE_START: kfd_smi_event = 5;
pub const KFD_SMI_EVENT_MIGRATE_END: kfd_smi_event = 6;
pub const KFD_SMI_EVENT_PAGE_FAULT_START: kfd_smi_event = 7;
pub const KFD_SMI_EVENT_PAGE_FAULT_END: kfd_smi_event = 8;
pub const KFD_SMI_EVENT_QUEUE_EVICTION: kfd_smi_event = 9;
pub const KFD_SMI_EVENT_QUEUE_RESTORE: kfd_smi_event = 10;
pub const KFD_SMI_EVENT_UNMAP_FROM_GPU: kfd_smi_event = 11;
pub const KFD_SMI_EVENT_PROCESS_START: kfd_smi_event = 12;
pub const KFD_SMI_EVENT_PROCESS_END: kfd_smi_event = 13;
pub const KFD_SMI_EVENT_ALL_PROCESS: kfd_smi_event = 64;
pub type kfd_smi_event = ::core::ffi::c_uint;
pub const KFD_QUEUE_EVICTION_TRIGGER_SVM: KFD_QUEUE_EVICTION_TRIGGERS = 0;
pub const KFD_QUEUE_EVICTION_TRIGGER_USERPTR: KFD_QUEUE_EVICTION_TRIGGERS = 1;
pub const KFD_QUEUE_EVICTION_TRIGGER_TTM: KFD_QUEUE_EVICTION_TRIGGERS = 2;
pub const KFD_QUEUE_EVICTION_TRIGGER_SUSPEND: KFD_QUEUE_EVICTION_TRIGGERS = 3;
pub const KFD_QUEUE_EVICTION_CRIU_CHECKPOINT: KFD_QUEUE_EVICTION_TRIGGERS = 4;
pub const KFD_QUEUE_EVICTION_CRIU_RESTORE: KFD_QUEUE_EVICTION_TRIGGERS = 5;
pub type KFD_QUEUE_EVICTION_TRIGGERS = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_smi_events_args {
    pub gpuid: __u32,
    pub anon_fd: __u32,
}
pub const KFD_CRIU_OP_PROCESS_INFO: kfd_criu_op = 0;
pub const KFD_CRIU_OP_CHECKPOINT: kfd_criu_op = 1;
pub const KFD_CRIU_OP_UNPAUSE: kfd_criu_op = 2;
pub const KFD_CRIU_OP_RESTORE: kfd_criu_op = 3;
pub const KFD_CRIU_OP_RESUME: kfd_criu_op = 4;
pub type kfd_criu_op = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_criu_args {
    pub devices: __u64,
    pub bos: __u64,
    pub priv_data: __u64,
    pub priv_data_size: __u64,
    pub num_devices: __u32,
    pub num_bos: __u32,
    pub num_objects: __u32,
    pub pid: __u32,
    pub op: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_criu_device_bucket {
    pub user_gpu_id: __u32,
    pub actual_gpu_id: __u32,
    pub drm_fd: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_criu_bo_bucket {
    pub addr: __u64,
    pub size: __u64,
    pub offset: __u64,
    pub restored_offset: __u64,
    pub gpu_id: __u32,
    pub alloc_flags: __u32,
    pub dmabuf_fd: __u32,
    pub pad: __u32,
}
pub const KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL: kfd_mmio_remap = 0;
pub const KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL: kfd_mmio_remap = 4;
pub type kfd_mmio_remap = ::core::ffi::c_uint;
pub const KFD_IOCTL_SVM_OP_SET_ATTR: kfd_ioctl_svm_op = 0;
pub const KFD_IOCTL_SVM_OP_GET_ATTR: kfd_ioctl_svm_op = 1;
pub type kfd_ioctl_svm_op = ::core::ffi::c_uint;
pub const KFD_IOCTL_SVM_LOCATION_SYSMEM: kfd_ioctl_svm_location = 0;
pub const KFD_IOCTL_SVM_LOCATION_UNDEFINED: kfd_ioctl_svm_location = 4294967295;
pub type kfd_ioctl_svm_location = ::core::ffi::c_uint;
pub const KFD_IOCTL_SVM_ATTR_PREFERRED_LOC: kfd_ioctl_svm_attr_type = 0;
pub const KFD_IOCTL_SVM_ATTR_PREFETCH_LOC: kfd_ioctl_svm_attr_type = 1;
pub const KFD_IOCTL_SVM_ATTR_ACCESS: kfd_ioctl_svm_attr_type = 2;
pub const KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE: kfd_ioctl_svm_attr_type = 3;
pub const KFD_IOCTL_SVM_ATTR_NO_ACCESS: kfd_ioctl_svm_attr_type = 4;
pub const KFD_IOCTL_SVM_ATTR_SET_FLAGS: kfd_ioctl_svm_attr_type = 5;
pub const KFD_IOCTL_SVM_ATTR_CLR_FLAGS: kfd_ioctl_svm_attr_type = 6;
pub const KFD_IOCTL_SVM_ATTR_GRANULARITY: kfd_ioctl_svm_attr_type = 7;
pub type kfd_ioctl_svm_attr_type = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_svm_attribute {
    pub type_: __u32,
    pub value: __u32,
}
#[repr(C)]
#[derive(Debug, Default)]
pub struct kfd_ioctl_svm_args {
    pub start_addr: __u64,
    pub size: __u64,
    pub op: __u32,
    pub nattr: __u32,
    pub attrs: __IncompleteArrayField<kfd_ioctl_svm_attribute>,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_set_xnack_mode_args {
    pub xnack_enabled: __s32,
}
pub const KFD_DBG_TRAP_OVERRIDE_OR: kfd_dbg_trap_override_mode = 0;
pub const KFD_DBG_TRAP_OVERRIDE_REPLACE: kfd_dbg_trap_override_mode = 1;
pub type kfd_dbg_trap_override_mode = ::core::ffi::c_uint;
pub const KFD_DBG_TRAP_MASK_FP_INVALID: kfd_dbg_trap_mask = 1;
pub const KFD_DBG_TRAP_MASK_FP_INPUT_DENORMAL: kfd_dbg_trap_mask = 2;
pub const KFD_DBG_TRAP_MASK_FP_DIVIDE_BY_ZERO: kfd_dbg_trap_mask = 4;
pub const KFD_DBG_TRAP_MASK_FP_OVERFLOW: kfd_dbg_trap_mask = 8;
pub const KFD_DBG_TRAP_MASK_FP_UNDERFLOW: kfd_dbg_trap_mask = 16;
pub const KFD_DBG_TRAP_MASK_FP_INEXACT: kfd_dbg_trap_mask = 32;
pub const KFD_DBG_TRAP_MASK_INT_DIVIDE_BY_ZERO: kfd_dbg_trap_mask = 64;
pub const KFD_DBG_TRAP_MASK_DBG_ADDRESS_WATCH: kfd_dbg_trap_mask = 128;
pub const KFD_DBG_TRAP_MASK_DBG_MEMORY_VIOLATION: kfd_dbg_trap_mask = 256;
pub const KFD_DBG_TRAP_MASK_TRAP_ON_WAVE_START: kfd_dbg_trap_mask = 1073741824;
pub const KFD_DBG_TRAP_MASK_TRAP_ON_WAVE_END: kfd_dbg_trap_mask = -2147483648;
pub type kfd_dbg_trap_mask = ::core::ffi::c_int;
pub const KFD_DBG_TRAP_WAVE_LAUNCH_MODE_NORMAL: kfd_dbg_trap_wave_launch_mode = 0;
pub const KFD_DBG_TRAP_WAVE_LAUNCH_MODE_HALT: kfd_dbg_trap_wave_launch_mode = 1;
pub const KFD_DBG_TRAP_WAVE_LAUNCH_MODE_DEBUG: kfd_dbg_trap_wave_launch_mode = 3;
pub type kfd_dbg_trap_wave_launch_mode = ::core::ffi::c_uint;
pub const KFD_DBG_TRAP_ADDRESS_WATCH_MODE_READ: kfd_dbg_trap_address_watch_mode = 0;
pub const KFD_DBG_TRAP_ADDRESS_WATCH_MODE_NONREAD: kfd_dbg_trap_address_watch_mode = 1;
pub const KFD_DBG_TRAP_ADDRESS_WATCH_MODE_ATOMIC: kfd_dbg_trap_address_watch_mode = 2;
pub const KFD_DBG_TRAP_ADDRESS_WATCH_MODE_ALL: kfd_dbg_trap_address_watch_mode = 3;
pub type kfd_dbg_trap_address_watch_mode = ::core::ffi::c_uint;
pub const KFD_DBG_TRAP_FLAG_SINGLE_MEM_OP: kfd_dbg_trap_flags = 1;
pub const KFD_DBG_TRAP_FLAG_SINGLE_ALU_OP: kfd_dbg_trap_flags = 2;
pub const KFD_DBG_TRAP_FLAG_LDS_OUT_OF_ADDR_RANGE: kfd_dbg_trap_flags = 4;
pub type kfd_dbg_trap_flags = ::core::ffi::c_uint;
pub const EC_NONE: kfd_dbg_trap_exception_code = 0;
pub const EC_QUEUE_WAVE_ABORT: kfd_dbg_trap_exception_code = 1;
pub const EC_QUEUE_WAVE_TRAP: kfd_dbg_trap_exception_code = 2;
pub const EC_QUEUE_WAVE_MATH_ERROR: kfd_dbg_trap_exception_code = 3;
pub const EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION: kfd_dbg_trap_exception_code = 4;
pub const EC_QUEUE_WAVE_MEMORY_VIOLATION: kfd_dbg_trap_exception_code = 5;
pub const EC_QUEUE_WAVE_APERTURE_VIOLATION: kfd_dbg_trap_exception_code = 6;
pub const EC_QUEUE_PACKET_DISPATCH_DIM_INVALID: kfd_dbg_trap_exception_code = 16;
pub const EC_QUEUE_PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID: kfd_dbg_trap_exception_code = 17;
pub const EC_QUEUE_PACKET_DISPATCH_CODE_INVALID: kfd_dbg_trap_exception_code = 18;
pub const EC_QUEUE_PACKET_RESERVED: kfd_dbg_trap_exception_code = 19;
pub const EC_QUEUE_PACKET_UNSUPPORTED: kfd_dbg_trap_exception_code = 20;
pub const EC_QUEUE_PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID: kfd_dbg_trap_exception_code = 21;
pub const EC_QUEUE_PACKET_DISPATCH_REGISTER_INVALID: kfd_dbg_trap_exception_code = 22;
pub const EC_QUEUE_PACKET_VENDOR_UNSUPPORTED: kfd_dbg_trap_exception_code = 23;
pub const EC_QUEUE_PREEMPTION_ERROR: kfd_dbg_trap_exception_code = 30;
pub const EC_QUEUE_NEW: kfd_dbg_trap_exception_code = 31;
pub const EC_DEVICE_QUEUE_DELETE: kfd_dbg_trap_exception_code = 32;
pub const EC_DEVICE_MEMORY_VIOLATION: kfd_dbg_trap_exception_code = 33;
pub const EC_DEVICE_RAS_ERROR: kfd_dbg_trap_exception_code = 34;
pub const EC_DEVICE_FATAL_HALT: kfd_dbg_trap_exception_code = 35;
pub const EC_DEVICE_NEW: kfd_dbg_trap_exception_code = 36;
pub const EC_PROCESS_RUNTIME: kfd_dbg_trap_exception_code = 48;
pub const EC_PROCESS_DEVICE_REMOVE: kfd_dbg_trap_exception_code = 49;
pub const EC_MAX: kfd_dbg_trap_exception_code = 50;
pub type kfd_dbg_trap_exception_code = ::core::ffi::c_uint;
pub const DEBUG_RUNTIME_STATE_DISABLED: kfd_dbg_runtime_state = 0;
pub const DEBUG_RUNTIME_STATE_ENABLED: kfd_dbg_runtime_state = 1;
pub const DEBUG_RUNTIME_STATE_ENABLED_BUSY: kfd_dbg_runtime_state = 2;
pub const DEBUG_RUNTIME_STATE_ENABLED_ERROR: kfd_dbg_runtime_state = 3;
pub type kfd_dbg_runtime_state = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_runtime_info {
    pub r_debug: __u64,
    pub runtime_state: __u32,
    pub ttmp_setup: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_runtime_enable_args {
    pub r_debug: __u64,
    pub mode_mask: __u32,
    pub capabilities_mask: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_queue_snapshot_entry {
    pub exception_status: __u64,
    pub ring_base_address: __u64,
    pub write_pointer_address: __u64,
    pub read_pointer_address: __u64,
    pub ctx_save_restore_address: __u64,
    pub queue_id: __u32,
    pub gpu_id: __u32,
    pub ring_size: __u32,
    pub queue_type: __u32,
    pub ctx_save_restore_area_size: __u32,
    pub reserved: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_context_save_area_header {
    pub wave_state: kfd_context_save_area_header__bindgen_ty_1,
    pub debug_offset: __u32,
    pub debug_size: __u32,
    pub err_payload_addr: __u64,
    pub err_event_id: __u32,
    pub reserved1: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_context_save_area_header__bindgen_ty_1 {
    pub control_stack_offset: __u32,
    pub control_stack_size: __u32,
    pub wave_state_offset: __u32,
    pub wave_state_size: __u32,
}
pub const KFD_IOC_DBG_TRAP_ENABLE: kfd_dbg_trap_operations = 0;
pub const KFD_IOC_DBG_TRAP_DISABLE: kfd_dbg_trap_operations = 1;
pub const KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT: kfd_dbg_trap_operations = 2;
pub const KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED: kfd_dbg_trap_operations = 3;
pub const KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE: kfd_dbg_trap_operations = 4;
pub const KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE: kfd_dbg_trap_operations = 5;
pub const KFD_IOC_DBG_TRAP_SUSPEND_QUEUES: kfd_dbg_trap_operations = 6;
pub const KFD_IOC_DBG_TRAP_RESUME_QUEUES: kfd_dbg_trap_operations = 7;
pub const KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH: kfd_dbg_trap_operations = 8;
pub const KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH: kfd_dbg_trap_operations = 9;
pub const KFD_IOC_DBG_TRAP_SET_FLAGS: kfd_dbg_trap_operations = 10;
pub const KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT: kfd_dbg_trap_operations = 11;
pub const KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO: kfd_dbg_trap_operations = 12;
pub const KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT: kfd_dbg_trap_operations = 13;
pub const KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT: kfd_dbg_trap_operations = 14;
pub type kfd_dbg_trap_operations = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_enable_args {
    pub exception_mask: __u64,
    pub rinfo_ptr: __u64,
    pub rinfo_size: __u32,
    pub dbg_fd: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_send_runtime_event_args {
    pub exception_mask: __u64,
    pub gpu_id: __u32,
    pub queue_id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_set_exceptions_enabled_args {
    pub exception_mask: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_set_wave_launch_override_args {
    pub override_mode: __u32,
    pub enable_mask: __u32,
    pub support_request_mask: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_set_wave_launch_mode_args {
    pub launch_mode: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_suspend_queues_args {
    pub exception_mask: __u64,
    pub queue_array_ptr: __u64,
    pub num_queues: __u32,
    pub grace_period: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_resume_queues_args {
    pub queue_array_ptr: __u64,
    pub num_queues: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_set_node_address_watch_args {
    pub address: __u64,
    pub mode: __u32,
    pub mask: __u32,
    pub gpu_id: __u32,
    pub id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_clear_node_address_watch_args {
    pub gpu_id: __u32,
    pub id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_set_flags_args {
    pub flags: __u32,
    pub pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_query_debug_event_args {
    pub exception_mask: __u64,
    pub gpu_id: __u32,
    pub queue_id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_query_exception_info_args {
    pub info_ptr: __u64,
    pub info_size: __u32,
    pub source_id: __u32,
    pub exception_code: __u32,
    pub clear_exception: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_queue_snapshot_args {
    pub exception_mask: __u64,
    pub snapshot_buf_ptr: __u64,
    pub num_queues: __u32,
    pub entry_size: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_device_snapshot_args {
    pub exception_mask: __u64,
    pub snapshot_buf_ptr: __u64,
    pub num_devices: __u32,
    pub entry_size: __u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct kfd_ioctl_dbg_trap_args {
    pub pid: __u32,
    pub op: __u32,
    pub __bindgen_anon_1: kfd_ioctl_dbg_trap_args__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union kfd_ioctl_dbg_trap_args__bindgen_ty_1 {
    pub enable: kfd_ioctl_dbg_trap_enable_args,
    pub send_runtime_event: kfd_ioctl_dbg_trap_send_runtime_event_args,
    pub set_exceptions_enabled: kfd_ioctl_dbg_trap_set_exceptions_enabled_args,
    pub launch_override: kfd_ioctl_dbg_trap_set_wave_launch_override_args,
    pub launch_mode: kfd_ioctl_dbg_trap_set_wave_launch_mode_args,
    pub suspend_queues: kfd_ioctl_dbg_trap_suspend_queues_args,
    pub resume_queues: kfd_ioctl_dbg_trap_resume_queues_args,
    pub set_node_address_watch: kfd_ioctl_dbg_trap_set_node_address_watch_args,
    pub clear_node_address_watch: kfd_ioctl_dbg_trap_clear_node_address_watch_args,
    pub set_flags: kfd_ioctl_dbg_trap_set_flags_args,
    pub query_debug_event: kfd_ioctl_dbg_trap_query_debug_event_args,
    pub query_exception_info: kfd_ioctl_dbg_trap_query_exception_info_args,
    pub queue_snapshot: kfd_ioctl_dbg_trap_queue_snapshot_args,
    pub device_snapshot: kfd_ioctl_dbg_trap_device_snapshot_args,
}
impl Default for kfd_ioctl_dbg_trap_args__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for kfd_ioctl_dbg_trap_args {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const KFD_IOC_PROFILER_PMC: kfd_profiler_ops = 0;
pub const KFD_IOC_PROFILER_VERSION: kfd_profiler_ops = 2;
pub const KFD_IOC_PROFILER_PTL_CONTROL: kfd_profiler_ops = 3;
pub type kfd_profiler_ops = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_pmc_settings {
    pub gpu_id: __u32,
    pub lock: __u32,
    pub perfcount_enable: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct kfd_ioctl_ptl_control {
    pub gpu_id: __u32,
    pub enable: __u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct kfd_ioctl_profiler_args {
    pub op: __u32,
    pub __bindgen_anon_1: kfd_ioctl_profiler_args__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union kfd_ioctl_profiler_args__bindgen_ty_1 {
    pub pmc: kfd_ioctl_pmc_settings,
    pub ptl: kfd_ioctl_ptl_control,
    pub version: __u32,
}
impl Default for kfd_ioctl_profiler_args__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for kfd_ioctl_profiler_args {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_create_in {
    pub bo_size: __u64,
    pub alignment: __u64,
    pub domains: __u64,
    pub domain_flags: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_create_out {
    pub handle: __u32,
    pub _pad: __u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_gem_create {
    pub in_: drm_amdgpu_gem_create_in,
    pub out: drm_amdgpu_gem_create_out,
}
impl Default for drm_amdgpu_gem_create {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_bo_list_in {
    pub operation: __u32,
    pub list_handle: __u32,
    pub bo_number: __u32,
    pub bo_info_size: __u32,
    pub bo_info_ptr: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_bo_list_entry {
    pub bo_handle: __u32,
    pub bo_priority: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_bo_list_out {
    pub list_handle: __u32,
    pub _pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_in {
    pub op: __u32,
    pub flags: __u32,
    pub ctx_id: __u32,
    pub priority: __s32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_ctx_out {
    pub alloc: drm_amdgpu_ctx_out__bindgen_ty_1,
    pub state: drm_amdgpu_ctx_out__bindgen_ty_2,
    pub pstate: drm_amdgpu_ctx_out__bindgen_ty_3,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_out__bindgen_ty_1 {
    pub ctx_id: __u32,
    pub _pad: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_out__bindgen_ty_2 {
    pub flags: __u64,
    pub hangs: __u32,
    pub reset_status: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_ctx_out__bindgen_ty_3 {
    pub flags: __u32,
    pub _pad: __u32,
}
impl Default for drm_amdgpu_ctx_out {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_ctx {
    pub in_: drm_amdgpu_ctx_in,
    pub out: drm_amdgpu_ctx_out,
}
impl Default for drm_amdgpu_ctx {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct drm_amdgpu_gem_metadata {
    pub handle: __u32,
    pub op: __u32,
    pub data: drm_amdgpu_gem_metadata__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct drm_amdgpu_gem_metadata__bindgen_ty_1 {
    pub flags: __u64,
    pub tiling_info: __u64,
    pub data_size_bytes: __u32,
    pub data: [__u32; 64usize],
}
impl Default for drm_amdgpu_gem_metadata__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for drm_amdgpu_gem_metadata {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_wait_idle_in {
    pub handle: __u32,
    pub flags: __u32,
    pub timeout: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_wait_idle_out {
    pub status: __u32,
    pub domain: __u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_gem_wait_idle {
    pub in_: drm_amdgpu_gem_wait_idle_in,
    pub out: drm_amdgpu_gem_wait_idle_out,
}
impl Default for drm_amdgpu_gem_wait_idle {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_wait_cs_in {
    pub handle: __u64,
    pub timeout: __u64,
    pub ip_type: __u32,
    pub ip_instance: __u32,
    pub ring: __u32,
    pub ctx_id: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_wait_cs_out {
    pub status: __u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_wait_cs {
    pub in_: drm_amdgpu_wait_cs_in,
    pub out: drm_amdgpu_wait_cs_out,
}
impl Default for drm_amdgpu_wait_cs {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_gem_va {
    pub handle: __u32,
    pub _pad: __u32,
    pub operation: __u32,
    pub flags: __u32,
    pub va_address: __u64,
    pub offset_in_bo: __u64,
    pub map_size: __u64,
    pub vm_timeline_point: __u64,
    pub vm_timeline_syncobj_out: __u32,
    pub num_syncobj_handles: __u32,
    pub input_fence_syncobj_handles: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk {
    pub chunk_id: __u32,
    pub length_dw: __u32,
    pub chunk_data: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_in {
    pub ctx_id: __u32,
    pub bo_list_handle: __u32,
    pub num_chunks: __u32,
    pub flags: __u32,
    pub chunks: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_out {
    pub handle: __u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_cs {
    pub in_: drm_amdgpu_cs_in,
    pub out: drm_amdgpu_cs_out,
}
impl Default for drm_amdgpu_cs {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_ib {
    pub _pad: __u32,
    pub flags: __u32,
    pub va_start: __u64,
    pub ib_bytes: __u32,
    pub ip_type: __u32,
    pub ip_instance: __u32,
    pub ring: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_dep {
    pub ip_type: __u32,
    pub ip_instance: __u32,
    pub ring: __u32,
    pub ctx_id: __u32,
    pub handle: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_fence {
    pub handle: __u32,
    pub offset: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_sem {
    pub handle: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_syncobj {
    pub handle: __u32,
    pub flags: __u32,
    pub point: __u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_data {
    pub __bindgen_anon_1: drm_amdgpu_cs_chunk_data__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union drm_amdgpu_cs_chunk_data__bindgen_ty_1 {
    pub ib_data: drm_amdgpu_cs_chunk_ib,
    pub fence_data: drm_amdgpu_cs_chunk_fence,
}
impl Default for drm_amdgpu_cs_chunk_data__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for drm_amdgpu_cs_chunk_data {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct drm_amdgpu_cs_chunk_cp_gfx_shadow {
    pub shadow_va: __u64,
    pub csa_va: __u64,
    pub gds_va: __u64,
    pub flags: __u64,
}
pub const IOC_GET_VERSION: __u32 = 2148027137;
pub const IOC_CREATE_QUEUE: __u32 = 3227536130;
pub const IOC_DESTROY_QUEUE: __u32 = 3221768963;
pub const IOC_SET_MEMORY_POLICY: __u32 = 1075858180;
pub const IOC_GET_CLOCK_COUNTERS: __u32 = 3223866117;
pub const IOC_GET_PROCESS_APERTURES: __u32 = 2173717254;
pub const IOC_UPDATE_QUEUE: __u32 = 1075333895;
pub const IOC_CREATE_EVENT: __u32 = 3223341832;
pub const IOC_DESTROY_EVENT: __u32 = 1074285321;
pub const IOC_SET_EVENT: __u32 = 1074285322;
pub const IOC_RESET_EVENT: __u32 = 1074285323;
pub const IOC_WAIT_EVENTS: __u32 = 3222817548;
pub const IOC_DBG_REGISTER_DEPRECATED: __u32 = 1074285325;
pub const IOC_DBG_UNREGISTER_DEPRECATED: __u32 = 1074285326;
pub const IOC_DBG_ADDRESS_WATCH_DEPRECATED: __u32 = 1074809615;
pub const IOC_DBG_WAVE_CONTROL_DEPRECATED: __u32 = 1074809616;
pub const IOC_SET_SCRATCH_BACKING_VA: __u32 = 3222293265;
pub const IOC_GET_TILE_CONFIG: __u32 = 3223866130;
pub const IOC_SET_TRAP_HANDLER: __u32 = 1075333907;
pub const IOC_GET_PROCESS_APERTURES_NEW: __u32 = 3222293268;
pub const IOC_ACQUIRE_VM: __u32 = 1074285333;
pub const IOC_ALLOC_MEMORY_OF_GPU: __u32 = 3223866134;
pub const IOC_FREE_MEMORY_OF_GPU: __u32 = 1074285335;
pub const IOC_MAP_MEMORY_TO_GPU: __u32 = 3222817560;
pub const IOC_UNMAP_MEMORY_FROM_GPU: __u32 = 3222817561;
pub const IOC_SET_CU_MASK: __u32 = 1074809626;
pub const IOC_GET_QUEUE_WAVE_STATE: __u32 = 3222817563;
pub const IOC_GET_DMABUF_INFO: __u32 = 3223341852;
pub const IOC_IMPORT_DMABUF: __u32 = 3222817565;
pub const IOC_ALLOC_QUEUE_GWS: __u32 = 3222293278;
pub const IOC_SMI_EVENTS: __u32 = 3221768991;
pub const IOC_SVM: __u32 = 3222817568;
pub const IOC_SET_XNACK_MODE: __u32 = 3221506849;
pub const IOC_CRIU_OP: __u32 = 3224914722;
pub const IOC_AVAILABLE_MEMORY: __u32 = 3222293283;
pub const IOC_EXPORT_DMABUF: __u32 = 3222293284;
pub const IOC_RUNTIME_ENABLE: __u32 = 3222293285;
pub const IOC_DBG_TRAP: __u32 = 3223341862;
pub const IOC_CREATE_PROCESS: __u32 = 19239;
pub const IOC_PROFILER: __u32 = 3222293288;
pub const IOC_DRM_GEM_CREATE: __u32 = 3223348288;
pub const IOC_DRM_GEM_METADATA: __u32 = 3240125510;
pub const IOC_DRM_GEM_WAIT_IDLE: __u32 = 3222299719;
pub const IOC_DRM_GEM_VA: __u32 = 1077961800;
pub const IOC_DRM_CTX: __u32 = 3222299714;
pub const IOC_DRM_CS: __u32 = 3222824004;
pub const IOC_DRM_WAIT_CS: __u32 = 3223348297;
pub const IOC_DRM_GEM_CLOSE: __u32 = 1074291721;
pub const IOC_DRM_PRIME_HANDLE_TO_FD: __u32 = 3222037549;
pub const IOC_DRM_PRIME_FD_TO_HANDLE: __u32 = 3222037550;
