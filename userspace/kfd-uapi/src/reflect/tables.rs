// SPDX-License-Identifier: MIT

// Made by `cargo run -p kfd-uapi --example generate` of the kernel's headers kfd_ioctl.h,
// kfd_sysfs.h and amdgpu_drm.h, which are copyright 2014 and 2021 Advanced Micro Devices, Inc., and
// under the MIT licence. Not to be edited.

use super::{Constant, Field, Kind, Struct};

structs! {
    struct kfd_ioctl_get_version_args {
        major_version "major_version" Word;
        minor_version "minor_version" Word;
    }
    struct kfd_ioctl_create_queue_args {
        ring_base_address "ring_base_address" Long;
        write_pointer_address "write_pointer_address" Long;
        read_pointer_address "read_pointer_address" Long;
        doorbell_offset "doorbell_offset" Long;
        ring_size "ring_size" Word;
        gpu_id "gpu_id" Word;
        queue_type "queue_type" Word;
        queue_percentage "queue_percentage" Word;
        queue_priority "queue_priority" Word;
        queue_id "queue_id" Word;
        eop_buffer_address "eop_buffer_address" Long;
        eop_buffer_size "eop_buffer_size" Long;
        ctx_save_restore_address "ctx_save_restore_address" Long;
        ctx_save_restore_size "ctx_save_restore_size" Word;
        ctl_stack_size "ctl_stack_size" Word;
        sdma_engine_id "sdma_engine_id" Word;
        metadata_ring_size "metadata_ring_size" Word;
    }
    struct kfd_ioctl_destroy_queue_args {
        queue_id "queue_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_update_queue_args {
        ring_base_address "ring_base_address" Long;
        queue_id "queue_id" Word;
        ring_size "ring_size" Word;
        queue_percentage "queue_percentage" Word;
        queue_priority "queue_priority" Word;
    }
    struct kfd_ioctl_set_cu_mask_args {
        queue_id "queue_id" Word;
        num_cu_mask "num_cu_mask" Word;
        cu_mask_ptr "cu_mask_ptr" Long;
    }
    struct kfd_ioctl_get_queue_wave_state_args {
        ctl_stack_address "ctl_stack_address" Long;
        ctl_stack_used_size "ctl_stack_used_size" Word;
        save_area_used_size "save_area_used_size" Word;
        queue_id "queue_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_get_available_memory_args {
        available "available" Long;
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_dbg_device_info_entry {
        exception_status "exception_status" Long;
        lds_base "lds_base" Long;
        lds_limit "lds_limit" Long;
        scratch_base "scratch_base" Long;
        scratch_limit "scratch_limit" Long;
        gpuvm_base "gpuvm_base" Long;
        gpuvm_limit "gpuvm_limit" Long;
        gpu_id "gpu_id" Word;
        location_id "location_id" Word;
        vendor_id "vendor_id" Word;
        device_id "device_id" Word;
        revision_id "revision_id" Word;
        subsystem_vendor_id "subsystem_vendor_id" Word;
        subsystem_device_id "subsystem_device_id" Word;
        fw_version "fw_version" Word;
        gfx_target_version "gfx_target_version" Word;
        simd_count "simd_count" Word;
        max_waves_per_simd "max_waves_per_simd" Word;
        array_count "array_count" Word;
        simd_arrays_per_engine "simd_arrays_per_engine" Word;
        num_xcc "num_xcc" Word;
        capability "capability" Word;
        debug_prop "debug_prop" Word;
        capability2 "capability2" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_set_memory_policy_args {
        alternate_aperture_base "alternate_aperture_base" Long;
        alternate_aperture_size "alternate_aperture_size" Long;
        gpu_id "gpu_id" Word;
        default_policy "default_policy" Word;
        alternate_policy "alternate_policy" Word;
        misc_process_flag "misc_process_flag" Word;
    }
    struct kfd_ioctl_get_clock_counters_args {
        gpu_clock_counter "gpu_clock_counter" Long;
        cpu_clock_counter "cpu_clock_counter" Long;
        system_clock_counter "system_clock_counter" Long;
        system_clock_freq "system_clock_freq" Long;
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_process_device_apertures {
        lds_base "lds_base" Long;
        lds_limit "lds_limit" Long;
        scratch_base "scratch_base" Long;
        scratch_limit "scratch_limit" Long;
        gpuvm_base "gpuvm_base" Long;
        gpuvm_limit "gpuvm_limit" Long;
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_get_process_apertures_args {
        process_apertures "process_apertures" [(Struct kfd_process_device_apertures); 7usize];
        num_of_nodes "num_of_nodes" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_get_process_apertures_new_args {
        kfd_process_device_apertures_ptr "kfd_process_device_apertures_ptr" Long;
        num_of_nodes "num_of_nodes" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_register_args {
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_unregister_args {
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_address_watch_args {
        content_ptr "content_ptr" Long;
        gpu_id "gpu_id" Word;
        buf_size_in_bytes "buf_size_in_bytes" Word;
    }
    struct kfd_ioctl_dbg_wave_control_args {
        content_ptr "content_ptr" Long;
        gpu_id "gpu_id" Word;
        buf_size_in_bytes "buf_size_in_bytes" Word;
    }
    struct kfd_ioctl_create_event_args {
        event_page_offset "event_page_offset" Long;
        event_trigger_data "event_trigger_data" Word;
        event_type "event_type" Word;
        auto_reset "auto_reset" Word;
        node_id "node_id" Word;
        event_id "event_id" Word;
        event_slot_index "event_slot_index" Word;
    }
    struct kfd_ioctl_destroy_event_args {
        event_id "event_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_set_event_args {
        event_id "event_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_reset_event_args {
        event_id "event_id" Word;
        pad "pad" Word;
    }
    struct kfd_memory_exception_failure {
        NotPresent "NotPresent" Word;
        ReadOnly "ReadOnly" Word;
        NoExecute "NoExecute" Word;
        imprecise "imprecise" Word;
    }
    struct kfd_hsa_memory_exception_data {
        failure "failure" (Struct kfd_memory_exception_failure);
        va "va" Long;
        gpu_id "gpu_id" Word;
        ErrorType "ErrorType" Word;
    }
    struct kfd_hsa_hw_exception_data {
        reset_type "reset_type" Word;
        reset_cause "reset_cause" Word;
        memory_lost "memory_lost" Word;
        gpu_id "gpu_id" Word;
    }
    struct kfd_hsa_signal_event_data {
        last_event_age "last_event_age" Long;
    }
    struct kfd_event_data {
        __bindgen_anon_1 "" (Struct kfd_event_data__bindgen_ty_1);
        kfd_event_data_ext "kfd_event_data_ext" Long;
        event_id "event_id" Word;
        pad "pad" Word;
    }
    union kfd_event_data__bindgen_ty_1 {
        memory_exception_data "memory_exception_data" (Struct kfd_hsa_memory_exception_data);
        hw_exception_data "hw_exception_data" (Struct kfd_hsa_hw_exception_data);
        signal_event_data "signal_event_data" (Struct kfd_hsa_signal_event_data);
    }
    struct kfd_ioctl_wait_events_args {
        events_ptr "events_ptr" Long;
        num_events "num_events" Word;
        wait_for_all "wait_for_all" Word;
        timeout "timeout" Word;
        wait_result "wait_result" Word;
    }
    struct kfd_ioctl_set_scratch_backing_va_args {
        va_addr "va_addr" Long;
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_get_tile_config_args {
        tile_config_ptr "tile_config_ptr" Long;
        macro_tile_config_ptr "macro_tile_config_ptr" Long;
        num_tile_configs "num_tile_configs" Word;
        num_macro_tile_configs "num_macro_tile_configs" Word;
        gpu_id "gpu_id" Word;
        gb_addr_config "gb_addr_config" Word;
        num_banks "num_banks" Word;
        num_ranks "num_ranks" Word;
    }
    struct kfd_ioctl_set_trap_handler_args {
        tba_addr "tba_addr" Long;
        tma_addr "tma_addr" Long;
        gpu_id "gpu_id" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_acquire_vm_args {
        drm_fd "drm_fd" Word;
        gpu_id "gpu_id" Word;
    }
    struct kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr "va_addr" Long;
        size "size" Long;
        handle "handle" Long;
        mmap_offset "mmap_offset" Long;
        gpu_id "gpu_id" Word;
        flags "flags" Word;
    }
    struct kfd_ioctl_free_memory_of_gpu_args {
        handle "handle" Long;
    }
    struct kfd_ioctl_map_memory_to_gpu_args {
        handle "handle" Long;
        device_ids_array_ptr "device_ids_array_ptr" Long;
        n_devices "n_devices" Word;
        n_success "n_success" Word;
    }
    struct kfd_ioctl_unmap_memory_from_gpu_args {
        handle "handle" Long;
        device_ids_array_ptr "device_ids_array_ptr" Long;
        n_devices "n_devices" Word;
        n_success "n_success" Word;
    }
    struct kfd_ioctl_alloc_queue_gws_args {
        queue_id "queue_id" Word;
        num_gws "num_gws" Word;
        first_gws "first_gws" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_get_dmabuf_info_args {
        size "size" Long;
        metadata_ptr "metadata_ptr" Long;
        metadata_size "metadata_size" Word;
        gpu_id "gpu_id" Word;
        flags "flags" Word;
        dmabuf_fd "dmabuf_fd" Word;
    }
    struct kfd_ioctl_import_dmabuf_args {
        va_addr "va_addr" Long;
        handle "handle" Long;
        gpu_id "gpu_id" Word;
        dmabuf_fd "dmabuf_fd" Word;
    }
    struct kfd_ioctl_export_dmabuf_args {
        handle "handle" Long;
        flags "flags" Word;
        dmabuf_fd "dmabuf_fd" Word;
    }
    struct kfd_ioctl_smi_events_args {
        gpuid "gpuid" Word;
        anon_fd "anon_fd" Word;
    }
    struct kfd_ioctl_criu_args {
        devices "devices" Long;
        bos "bos" Long;
        priv_data "priv_data" Long;
        priv_data_size "priv_data_size" Long;
        num_devices "num_devices" Word;
        num_bos "num_bos" Word;
        num_objects "num_objects" Word;
        pid "pid" Word;
        op "op" Word;
    }
    struct kfd_criu_device_bucket {
        user_gpu_id "user_gpu_id" Word;
        actual_gpu_id "actual_gpu_id" Word;
        drm_fd "drm_fd" Word;
        pad "pad" Word;
    }
    struct kfd_criu_bo_bucket {
        addr "addr" Long;
        size "size" Long;
        offset "offset" Long;
        restored_offset "restored_offset" Long;
        gpu_id "gpu_id" Word;
        alloc_flags "alloc_flags" Word;
        dmabuf_fd "dmabuf_fd" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_svm_attribute {
        type_ "type" Word;
        value "value" Word;
    }
    struct kfd_ioctl_svm_args {
        start_addr "start_addr" Long;
        size "size" Long;
        op "op" Word;
        nattr "nattr" Word;
        attrs "attrs" Tail;
    }
    struct kfd_ioctl_set_xnack_mode_args {
        xnack_enabled "xnack_enabled" Word;
    }
    struct kfd_runtime_info {
        r_debug "r_debug" Long;
        runtime_state "runtime_state" Word;
        ttmp_setup "ttmp_setup" Word;
    }
    struct kfd_ioctl_runtime_enable_args {
        r_debug "r_debug" Long;
        mode_mask "mode_mask" Word;
        capabilities_mask "capabilities_mask" Word;
    }
    struct kfd_queue_snapshot_entry {
        exception_status "exception_status" Long;
        ring_base_address "ring_base_address" Long;
        write_pointer_address "write_pointer_address" Long;
        read_pointer_address "read_pointer_address" Long;
        ctx_save_restore_address "ctx_save_restore_address" Long;
        queue_id "queue_id" Word;
        gpu_id "gpu_id" Word;
        ring_size "ring_size" Word;
        queue_type "queue_type" Word;
        ctx_save_restore_area_size "ctx_save_restore_area_size" Word;
        reserved "reserved" Word;
    }
    struct kfd_context_save_area_header {
        wave_state "wave_state" (Struct kfd_context_save_area_header__bindgen_ty_1);
        debug_offset "debug_offset" Word;
        debug_size "debug_size" Word;
        err_payload_addr "err_payload_addr" Long;
        err_event_id "err_event_id" Word;
        reserved1 "reserved1" Word;
    }
    struct kfd_context_save_area_header__bindgen_ty_1 {
        control_stack_offset "control_stack_offset" Word;
        control_stack_size "control_stack_size" Word;
        wave_state_offset "wave_state_offset" Word;
        wave_state_size "wave_state_size" Word;
    }
    struct kfd_ioctl_dbg_trap_enable_args {
        exception_mask "exception_mask" Long;
        rinfo_ptr "rinfo_ptr" Long;
        rinfo_size "rinfo_size" Word;
        dbg_fd "dbg_fd" Word;
    }
    struct kfd_ioctl_dbg_trap_send_runtime_event_args {
        exception_mask "exception_mask" Long;
        gpu_id "gpu_id" Word;
        queue_id "queue_id" Word;
    }
    struct kfd_ioctl_dbg_trap_set_exceptions_enabled_args {
        exception_mask "exception_mask" Long;
    }
    struct kfd_ioctl_dbg_trap_set_wave_launch_override_args {
        override_mode "override_mode" Word;
        enable_mask "enable_mask" Word;
        support_request_mask "support_request_mask" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_trap_set_wave_launch_mode_args {
        launch_mode "launch_mode" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_trap_suspend_queues_args {
        exception_mask "exception_mask" Long;
        queue_array_ptr "queue_array_ptr" Long;
        num_queues "num_queues" Word;
        grace_period "grace_period" Word;
    }
    struct kfd_ioctl_dbg_trap_resume_queues_args {
        queue_array_ptr "queue_array_ptr" Long;
        num_queues "num_queues" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_trap_set_node_address_watch_args {
        address "address" Long;
        mode "mode" Word;
        mask "mask" Word;
        gpu_id "gpu_id" Word;
        id "id" Word;
    }
    struct kfd_ioctl_dbg_trap_clear_node_address_watch_args {
        gpu_id "gpu_id" Word;
        id "id" Word;
    }
    struct kfd_ioctl_dbg_trap_set_flags_args {
        flags "flags" Word;
        pad "pad" Word;
    }
    struct kfd_ioctl_dbg_trap_query_debug_event_args {
        exception_mask "exception_mask" Long;
        gpu_id "gpu_id" Word;
        queue_id "queue_id" Word;
    }
    struct kfd_ioctl_dbg_trap_query_exception_info_args {
        info_ptr "info_ptr" Long;
        info_size "info_size" Word;
        source_id "source_id" Word;
        exception_code "exception_code" Word;
        clear_exception "clear_exception" Word;
    }
    struct kfd_ioctl_dbg_trap_queue_snapshot_args {
        exception_mask "exception_mask" Long;
        snapshot_buf_ptr "snapshot_buf_ptr" Long;
        num_queues "num_queues" Word;
        entry_size "entry_size" Word;
    }
    struct kfd_ioctl_dbg_trap_device_snapshot_args {
        exception_mask "exception_mask" Long;
        snapshot_buf_ptr "snapshot_buf_ptr" Long;
        num_devices "num_devices" Word;
        entry_size "entry_size" Word;
    }
    struct kfd_ioctl_dbg_trap_args {
        pid "pid" Word;
        op "op" Word;
        __bindgen_anon_1 "" (Struct kfd_ioctl_dbg_trap_args__bindgen_ty_1);
    }
    union kfd_ioctl_dbg_trap_args__bindgen_ty_1 {
        enable "enable" (Struct kfd_ioctl_dbg_trap_enable_args);
        send_runtime_event "send_runtime_event" (Struct kfd_ioctl_dbg_trap_send_runtime_event_args);
        set_exceptions_enabled "set_exceptions_enabled"
            (Struct kfd_ioctl_dbg_trap_set_exceptions_enabled_args);
        launch_override "launch_override" (Struct kfd_ioctl_dbg_trap_set_wave_launch_override_args);
        launch_mode "launch_mode" (Struct kfd_ioctl_dbg_trap_set_wave_launch_mode_args);
        suspend_queues "suspend_queues" (Struct kfd_ioctl_dbg_trap_suspend_queues_args);
        resume_queues "resume_queues" (Struct kfd_ioctl_dbg_trap_resume_queues_args);
        set_node_address_watch "set_node_address_watch"
            (Struct kfd_ioctl_dbg_trap_set_node_address_watch_args);
        clear_node_address_watch "clear_node_address_watch"
            (Struct kfd_ioctl_dbg_trap_clear_node_address_watch_args);
        set_flags "set_flags" (Struct kfd_ioctl_dbg_trap_set_flags_args);
        query_debug_event "query_debug_event" (Struct kfd_ioctl_dbg_trap_query_debug_event_args);
        query_exception_info "query_exception_info"
            (Struct kfd_ioctl_dbg_trap_query_exception_info_args);
        queue_snapshot "queue_snapshot" (Struct kfd_ioctl_dbg_trap_queue_snapshot_args);
        device_snapshot "device_snapshot" (Struct kfd_ioctl_dbg_trap_device_snapshot_args);
    }
    struct kfd_ioctl_pmc_settings {
        gpu_id "gpu_id" Word;
        lock "lock" Word;
        perfcount_enable "perfcount_enable" Word;
    }
    struct kfd_ioctl_ptl_control {
        gpu_id "gpu_id" Word;
        enable "enable" Word;
    }
    struct kfd_ioctl_profiler_args {
        op "op" Word;
        __bindgen_anon_1 "" (Struct kfd_ioctl_profiler_args__bindgen_ty_1);
    }
    union kfd_ioctl_profiler_args__bindgen_ty_1 {
        pmc "pmc" (Struct kfd_ioctl_pmc_settings);
        ptl "ptl" (Struct kfd_ioctl_ptl_control);
        version "version" Word;
    }
}

constants! {
    IOC_IN
    IOC_OUT
    IOC_INOUT
    KFD_IOCTL_MAJOR_VERSION
    KFD_IOCTL_MINOR_VERSION
    KFD_IOC_QUEUE_TYPE_COMPUTE
    KFD_IOC_QUEUE_TYPE_SDMA
    KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
    KFD_IOC_QUEUE_TYPE_SDMA_XGMI
    KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID
    KFD_MAX_QUEUE_PERCENTAGE
    KFD_MAX_QUEUE_PRIORITY
    KFD_MIN_QUEUE_RING_SIZE
    KFD_IOC_CACHE_POLICY_COHERENT
    KFD_IOC_CACHE_POLICY_NONCOHERENT
    KFD_PROC_FLAG_MFMA_HIGH_PRECISION
    KFD_INVALID_FD
    KFD_IOC_EVENT_SIGNAL
    KFD_IOC_EVENT_NODECHANGE
    KFD_IOC_EVENT_DEVICESTATECHANGE
    KFD_IOC_EVENT_HW_EXCEPTION
    KFD_IOC_EVENT_SYSTEM_EVENT
    KFD_IOC_EVENT_DEBUG_EVENT
    KFD_IOC_EVENT_PROFILE_EVENT
    KFD_IOC_EVENT_QUEUE_EVENT
    KFD_IOC_EVENT_MEMORY
    KFD_IOC_WAIT_RESULT_COMPLETE
    KFD_IOC_WAIT_RESULT_TIMEOUT
    KFD_IOC_WAIT_RESULT_FAIL
    KFD_SIGNAL_EVENT_LIMIT
    KFD_HW_EXCEPTION_WHOLE_GPU_RESET
    KFD_HW_EXCEPTION_PER_ENGINE_RESET
    KFD_HW_EXCEPTION_GPU_HANG
    KFD_HW_EXCEPTION_ECC
    KFD_MEM_ERR_NO_RAS
    KFD_MEM_ERR_SRAM_ECC
    KFD_MEM_ERR_POISON_CONSUMED
    KFD_MEM_ERR_GPU_HANG
    KFD_IOC_ALLOC_MEM_FLAGS_VRAM
    KFD_IOC_ALLOC_MEM_FLAGS_GTT
    KFD_IOC_ALLOC_MEM_FLAGS_USERPTR
    KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL
    KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP
    KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
    KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
    KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC
    KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
    KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM
    KFD_IOC_ALLOC_MEM_FLAGS_COHERENT
    KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
    KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT
    KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS
    KFD_SMI_EVENT_MSG_SIZE
    KFD_IOCTL_SVM_FLAG_HOST_ACCESS
    KFD_IOCTL_SVM_FLAG_COHERENT
    KFD_IOCTL_SVM_FLAG_HIVE_LOCAL
    KFD_IOCTL_SVM_FLAG_GPU_RO
    KFD_IOCTL_SVM_FLAG_GPU_EXEC
    KFD_IOCTL_SVM_FLAG_GPU_READ_MOSTLY
    KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED
    KFD_IOCTL_SVM_FLAG_EXT_COHERENT
    KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK
    KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK
    KFD_DBG_QUEUE_ERROR_BIT
    KFD_DBG_QUEUE_INVALID_BIT
    KFD_DBG_QUEUE_ERROR_MASK
    KFD_DBG_QUEUE_INVALID_MASK
    KFD_IOC_PROFILER_VERSION_NUM
    HSA_CAP_HOT_PLUGGABLE
    HSA_CAP_ATS_PRESENT
    HSA_CAP_SHARED_WITH_GRAPHICS
    HSA_CAP_QUEUE_SIZE_POW2
    HSA_CAP_QUEUE_SIZE_32BIT
    HSA_CAP_QUEUE_IDLE_EVENT
    HSA_CAP_VA_LIMIT
    HSA_CAP_WATCH_POINTS_SUPPORTED
    HSA_CAP_WATCH_POINTS_TOTALBITS_MASK
    HSA_CAP_WATCH_POINTS_TOTALBITS_SHIFT
    HSA_CAP_DOORBELL_TYPE_TOTALBITS_MASK
    HSA_CAP_DOORBELL_TYPE_TOTALBITS_SHIFT
    HSA_CAP_DOORBELL_TYPE_PRE_1_0
    HSA_CAP_DOORBELL_TYPE_1_0
    HSA_CAP_DOORBELL_TYPE_2_0
    HSA_CAP_AQL_QUEUE_DOUBLE_MAP
    HSA_CAP_TRAP_DEBUG_SUPPORT
    HSA_CAP_TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED
    HSA_CAP_TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED
    HSA_CAP_TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED
    HSA_CAP_RESERVED_WAS_SRAM_EDCSUPPORTED
    HSA_CAP_MEM_EDCSUPPORTED
    HSA_CAP_RASEVENTNOTIFY
    HSA_CAP_ASIC_REVISION_MASK
    HSA_CAP_ASIC_REVISION_SHIFT
    HSA_CAP_SRAM_EDCSUPPORTED
    HSA_CAP_SVMAPI_SUPPORTED
    HSA_CAP_FLAGS_COHERENTHOSTACCESS
    HSA_CAP_TRAP_DEBUG_FIRMWARE_SUPPORTED
    HSA_CAP_TRAP_DEBUG_PRECISE_ALU_OPERATIONS_SUPPORTED
    HSA_CAP_PER_QUEUE_RESET_SUPPORTED
    HSA_CAP_RESERVED
    HSA_CAP2_PER_SDMA_QUEUE_RESET_SUPPORTED
    HSA_CAP2_TRAP_DEBUG_LDS_OUT_OF_ADDR_RANGE_SUPPORTED
    HSA_CAP2_RESERVED
    HSA_DBG_WATCH_ADDR_MASK_LO_BIT_MASK
    HSA_DBG_WATCH_ADDR_MASK_LO_BIT_SHIFT
    HSA_DBG_WATCH_ADDR_MASK_HI_BIT_MASK
    HSA_DBG_WATCH_ADDR_MASK_HI_BIT_SHIFT
    HSA_DBG_DISPATCH_INFO_ALWAYS_VALID
    HSA_DBG_WATCHPOINTS_EXCLUSIVE
    HSA_DBG_RESERVED
    HSA_MEM_HEAP_TYPE_SYSTEM
    HSA_MEM_HEAP_TYPE_FB_PUBLIC
    HSA_MEM_HEAP_TYPE_FB_PRIVATE
    HSA_MEM_HEAP_TYPE_GPU_GDS
    HSA_MEM_HEAP_TYPE_GPU_LDS
    HSA_MEM_HEAP_TYPE_GPU_SCRATCH
    HSA_MEM_FLAGS_HOT_PLUGGABLE
    HSA_MEM_FLAGS_NON_VOLATILE
    HSA_MEM_FLAGS_RESERVED
    HSA_CACHE_TYPE_DATA
    HSA_CACHE_TYPE_INSTRUCTION
    HSA_CACHE_TYPE_CPU
    HSA_CACHE_TYPE_HSACU
    HSA_CACHE_TYPE_RESERVED
    HSA_IOLINK_TYPE_UNDEFINED
    HSA_IOLINK_TYPE_HYPERTRANSPORT
    HSA_IOLINK_TYPE_PCIEXPRESS
    HSA_IOLINK_TYPE_AMBA
    HSA_IOLINK_TYPE_MIPI
    HSA_IOLINK_TYPE_QPI_1_1
    HSA_IOLINK_TYPE_RESERVED1
    HSA_IOLINK_TYPE_RESERVED2
    HSA_IOLINK_TYPE_RAPID_IO
    HSA_IOLINK_TYPE_INFINIBAND
    HSA_IOLINK_TYPE_RESERVED3
    HSA_IOLINK_TYPE_XGMI
    HSA_IOLINK_TYPE_XGOP
    HSA_IOLINK_TYPE_GZ
    HSA_IOLINK_TYPE_ETHERNET_RDMA
    HSA_IOLINK_TYPE_RDMA_OTHER
    HSA_IOLINK_TYPE_OTHER
    HSA_IOLINK_FLAGS_ENABLED
    HSA_IOLINK_FLAGS_NON_COHERENT
    HSA_IOLINK_FLAGS_NO_ATOMICS_32_BIT
    HSA_IOLINK_FLAGS_NO_ATOMICS_64_BIT
    HSA_IOLINK_FLAGS_NO_PEER_TO_PEER_DMA
    HSA_IOLINK_FLAGS_RESERVED
    AMDGPU_GEM_DOMAIN_CPU
    AMDGPU_GEM_DOMAIN_GTT
    AMDGPU_GEM_DOMAIN_VRAM
    AMDGPU_GEM_DOMAIN_GDS
    AMDGPU_GEM_DOMAIN_GWS
    AMDGPU_GEM_DOMAIN_OA
    AMDGPU_GEM_DOMAIN_DOORBELL
    AMDGPU_GEM_DOMAIN_MASK
    AMDGPU_CTX_OP_ALLOC_CTX
    AMDGPU_GEM_METADATA_OP_SET_METADATA
    AMDGPU_VA_OP_MAP
    AMDGPU_VM_PAGE_PRT
    AMDGPU_HW_IP_COMPUTE
    AMDGPU_CHUNK_ID_IB
    AMDGPU_CHUNK_ID_BO_HANDLES
    KFD_SMI_EVENT_NONE
    KFD_SMI_EVENT_VMFAULT
    KFD_SMI_EVENT_THERMAL_THROTTLE
    KFD_SMI_EVENT_GPU_PRE_RESET
    KFD_SMI_EVENT_GPU_POST_RESET
    KFD_SMI_EVENT_MIGRATE_START
    KFD_SMI_EVENT_MIGRATE_END
    KFD_SMI_EVENT_PAGE_FAULT_START
    KFD_SMI_EVENT_PAGE_FAULT_END
    KFD_SMI_EVENT_QUEUE_EVICTION
    KFD_SMI_EVENT_QUEUE_RESTORE
    KFD_SMI_EVENT_UNMAP_FROM_GPU
    KFD_SMI_EVENT_PROCESS_START
    KFD_SMI_EVENT_PROCESS_END
    KFD_SMI_EVENT_ALL_PROCESS
    KFD_QUEUE_EVICTION_TRIGGER_SVM
    KFD_QUEUE_EVICTION_TRIGGER_USERPTR
    KFD_QUEUE_EVICTION_TRIGGER_TTM
    KFD_QUEUE_EVICTION_TRIGGER_SUSPEND
    KFD_QUEUE_EVICTION_CRIU_CHECKPOINT
    KFD_QUEUE_EVICTION_CRIU_RESTORE
    KFD_CRIU_OP_PROCESS_INFO
    KFD_CRIU_OP_CHECKPOINT
    KFD_CRIU_OP_UNPAUSE
    KFD_CRIU_OP_RESTORE
    KFD_CRIU_OP_RESUME
    KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL
    KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL
    KFD_IOCTL_SVM_OP_SET_ATTR
    KFD_IOCTL_SVM_OP_GET_ATTR
    KFD_IOCTL_SVM_LOCATION_SYSMEM
    KFD_IOCTL_SVM_LOCATION_UNDEFINED
    KFD_IOCTL_SVM_ATTR_PREFERRED_LOC
    KFD_IOCTL_SVM_ATTR_PREFETCH_LOC
    KFD_IOCTL_SVM_ATTR_ACCESS
    KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE
    KFD_IOCTL_SVM_ATTR_NO_ACCESS
    KFD_IOCTL_SVM_ATTR_SET_FLAGS
    KFD_IOCTL_SVM_ATTR_CLR_FLAGS
    KFD_IOCTL_SVM_ATTR_GRANULARITY
    KFD_DBG_TRAP_OVERRIDE_OR
    KFD_DBG_TRAP_OVERRIDE_REPLACE
    KFD_DBG_TRAP_MASK_FP_INVALID
    KFD_DBG_TRAP_MASK_FP_INPUT_DENORMAL
    KFD_DBG_TRAP_MASK_FP_DIVIDE_BY_ZERO
    KFD_DBG_TRAP_MASK_FP_OVERFLOW
    KFD_DBG_TRAP_MASK_FP_UNDERFLOW
    KFD_DBG_TRAP_MASK_FP_INEXACT
    KFD_DBG_TRAP_MASK_INT_DIVIDE_BY_ZERO
    KFD_DBG_TRAP_MASK_DBG_ADDRESS_WATCH
    KFD_DBG_TRAP_MASK_DBG_MEMORY_VIOLATION
    KFD_DBG_TRAP_MASK_TRAP_ON_WAVE_START
    KFD_DBG_TRAP_MASK_TRAP_ON_WAVE_END
    KFD_DBG_TRAP_WAVE_LAUNCH_MODE_NORMAL
    KFD_DBG_TRAP_WAVE_LAUNCH_MODE_HALT
    KFD_DBG_TRAP_WAVE_LAUNCH_MODE_DEBUG
    KFD_DBG_TRAP_ADDRESS_WATCH_MODE_READ
    KFD_DBG_TRAP_ADDRESS_WATCH_MODE_NONREAD
    KFD_DBG_TRAP_ADDRESS_WATCH_MODE_ATOMIC
    KFD_DBG_TRAP_ADDRESS_WATCH_MODE_ALL
    KFD_DBG_TRAP_FLAG_SINGLE_MEM_OP
    KFD_DBG_TRAP_FLAG_SINGLE_ALU_OP
    KFD_DBG_TRAP_FLAG_LDS_OUT_OF_ADDR_RANGE
    EC_NONE
    EC_QUEUE_WAVE_ABORT
    EC_QUEUE_WAVE_TRAP
    EC_QUEUE_WAVE_MATH_ERROR
    EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION
    EC_QUEUE_WAVE_MEMORY_VIOLATION
    EC_QUEUE_WAVE_APERTURE_VIOLATION
    EC_QUEUE_PACKET_DISPATCH_DIM_INVALID
    EC_QUEUE_PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID
    EC_QUEUE_PACKET_DISPATCH_CODE_INVALID
    EC_QUEUE_PACKET_RESERVED
    EC_QUEUE_PACKET_UNSUPPORTED
    EC_QUEUE_PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID
    EC_QUEUE_PACKET_DISPATCH_REGISTER_INVALID
    EC_QUEUE_PACKET_VENDOR_UNSUPPORTED
    EC_QUEUE_PREEMPTION_ERROR
    EC_QUEUE_NEW
    EC_DEVICE_QUEUE_DELETE
    EC_DEVICE_MEMORY_VIOLATION
    EC_DEVICE_RAS_ERROR
    EC_DEVICE_FATAL_HALT
    EC_DEVICE_NEW
    EC_PROCESS_RUNTIME
    EC_PROCESS_DEVICE_REMOVE
    EC_MAX
    DEBUG_RUNTIME_STATE_DISABLED
    DEBUG_RUNTIME_STATE_ENABLED
    DEBUG_RUNTIME_STATE_ENABLED_BUSY
    DEBUG_RUNTIME_STATE_ENABLED_ERROR
    KFD_IOC_DBG_TRAP_ENABLE
    KFD_IOC_DBG_TRAP_DISABLE
    KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT
    KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED
    KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE
    KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE
    KFD_IOC_DBG_TRAP_SUSPEND_QUEUES
    KFD_IOC_DBG_TRAP_RESUME_QUEUES
    KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH
    KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH
    KFD_IOC_DBG_TRAP_SET_FLAGS
    KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT
    KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO
    KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT
    KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT
    KFD_IOC_PROFILER_PMC
    KFD_IOC_PROFILER_VERSION
    KFD_IOC_PROFILER_PTL_CONTROL
    IOC_GET_VERSION
    IOC_CREATE_QUEUE
    IOC_DESTROY_QUEUE
    IOC_SET_MEMORY_POLICY
    IOC_GET_CLOCK_COUNTERS
    IOC_GET_PROCESS_APERTURES
    IOC_UPDATE_QUEUE
    IOC_CREATE_EVENT
    IOC_DESTROY_EVENT
    IOC_SET_EVENT
    IOC_RESET_EVENT
    IOC_WAIT_EVENTS
    IOC_DBG_REGISTER_DEPRECATED
    IOC_DBG_UNREGISTER_DEPRECATED
    IOC_DBG_ADDRESS_WATCH_DEPRECATED
    IOC_DBG_WAVE_CONTROL_DEPRECATED
    IOC_SET_SCRATCH_BACKING_VA
    IOC_GET_TILE_CONFIG
    IOC_SET_TRAP_HANDLER
    IOC_GET_PROCESS_APERTURES_NEW
    IOC_ACQUIRE_VM
    IOC_ALLOC_MEMORY_OF_GPU
    IOC_FREE_MEMORY_OF_GPU
    IOC_MAP_MEMORY_TO_GPU
    IOC_UNMAP_MEMORY_FROM_GPU
    IOC_SET_CU_MASK
    IOC_GET_QUEUE_WAVE_STATE
    IOC_GET_DMABUF_INFO
    IOC_IMPORT_DMABUF
    IOC_ALLOC_QUEUE_GWS
    IOC_SMI_EVENTS
    IOC_SVM
    IOC_SET_XNACK_MODE
    IOC_CRIU_OP
    IOC_AVAILABLE_MEMORY
    IOC_EXPORT_DMABUF
    IOC_RUNTIME_ENABLE
    IOC_DBG_TRAP
    IOC_CREATE_PROCESS
    IOC_PROFILER
    IOC_DRM_GEM_CREATE
    IOC_DRM_GEM_METADATA
    IOC_DRM_GEM_WAIT_IDLE
    IOC_DRM_GEM_VA
    IOC_DRM_CTX
    IOC_DRM_CS
    IOC_DRM_WAIT_CS
    IOC_DRM_GEM_CLOSE
    IOC_DRM_PRIME_HANDLE_TO_FD
    IOC_DRM_PRIME_FD_TO_HANDLE
}
