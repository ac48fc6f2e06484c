// SPDX-License-Identifier: GPL-2.0-only

//! The functions of `helpers.c`, declared as `helpers.h` has them.

use kernel::{
    bindings,
    prelude::*, //
};

// How a structure of the kernel's is made does not matter behind a pointer; in some configurations
// it has members of no size.
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub(super) fn amdkfd_map_io(
        vma: *mut bindings::vm_area_struct,
        address: bindings::phys_addr_t,
    ) -> c_int;
    pub(super) fn amdkfd_map_uncached(vma: *mut bindings::vm_area_struct);
    pub(super) fn amdkfd_in_compat_syscall() -> bool;
    pub(super) safe fn amdkfd_fatal_signal_pending() -> bool;
    pub(super) fn amdkfd_jiffies_to_msecs(jiffies: c_ulong) -> c_uint;
    pub(super) fn amdkfd_mm_lock_killable(mm: *mut bindings::mm_struct) -> c_int;
    pub(super) fn amdkfd_mm_unlock(mm: *mut bindings::mm_struct);
    pub(super) fn amdkfd_anon_inode(name: *const c_char) -> *mut bindings::inode;
    pub(super) fn amdkfd_signal_group(task: *mut bindings::task_struct, number: c_int);
    pub(super) fn amdkfd_signal_users(mm: *const bindings::mm_struct, number: c_int);
    pub(super) fn amdkfd_thread_group_id(task: *mut bindings::task_struct) -> bindings::pid_t;
    pub(super) fn amdkfd_system_thread_group_id(
        task: *mut bindings::task_struct,
    ) -> bindings::pid_t;
    pub(super) fn amdkfd_answerable_user(task: *mut bindings::task_struct) -> bindings::uid_t;
    pub(super) fn amdkfd_faults_alone(vma: *mut bindings::vm_area_struct) -> bool;
    pub(super) fn amdkfd_read_present(
        vma: *mut bindings::vm_area_struct,
        address: c_ulong,
        to: *mut c_void,
        bytes: c_int,
    ) -> c_int;
    pub(super) fn amdkfd_get_leader(task: *mut bindings::task_struct)
        -> *mut bindings::task_struct;
    pub(super) fn amdkfd_current_traces(task: *mut bindings::task_struct) -> bool;
    pub(super) fn amdkfd_is_frozen(task: *mut bindings::task_struct) -> bool;
    pub(super) fn amdkfd_check_nowait(file: *mut bindings::file) -> c_int;
    pub(super) fn amdkfd_write_nowait(file: *mut bindings::file, byte: u8) -> c_int;
    pub(super) safe fn amdkfd_mb();
    pub(super) safe fn amdkfd_may_complain() -> bool;
}

// Those of `chrdev.c`, declared as `chrdev.h` has them.
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub(super) fn amdkfd_cdev_add(
        first: bindings::dev_t,
        minors: c_uint,
        ops: *const bindings::file_operations,
        cdev: *mut *mut bindings::cdev,
    ) -> c_int;
    pub(super) fn amdkfd_cdev_end(cdev: *mut bindings::cdev);
}

// Those of `hmm.c`, declared as `hmm.h` has them.
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub(super) fn amdkfd_hmm_fault(
        notifier: *mut bindings::mmu_interval_notifier,
        seq: c_ulong,
        start: c_ulong,
        end: c_ulong,
        write: bool,
        owner: *mut c_void,
        pfns: *mut c_ulong,
    ) -> c_int;
    pub(super) fn amdkfd_is_device_page(pfn: c_ulong) -> bool;
    pub(super) fn amdkfd_hmm_mark_dirty(pfns: *const c_ulong, count: u32);
    pub(super) fn amdkfd_hmm_look(
        notifier: *mut bindings::mmu_interval_notifier,
        seq: c_ulong,
        start: c_ulong,
        end: c_ulong,
        owner: *mut c_void,
        pfns: *mut c_ulong,
    ) -> c_int;
    pub(super) fn amdkfd_noreclaim_save() -> c_uint;
    pub(super) fn amdkfd_noreclaim_restore(flags: c_uint);
    pub(super) fn amdkfd_may_have_pages(vma: *mut bindings::vm_area_struct) -> bool;
    pub(super) fn amdkfd_is_supplied_by_user(vma: *mut bindings::vm_area_struct) -> bool;
    pub(super) fn amdkfd_is_heap_or_stack(vma: *mut bindings::vm_area_struct) -> bool;
}

/// `struct amdkfd_migration` of `migrate.h`.
#[repr(C)]
pub(super) struct RawMigration(c_void);

// Those of `merged.c`, declared as `merged.h` has them.
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub(super) fn amdkfd_may_be_collected(vma: *const bindings::vm_area_struct) -> bool;
    pub(super) fn amdkfd_next_run(
        vma: *mut bindings::vm_area_struct,
        start: *mut c_ulong,
        end: *mut c_ulong,
        stopped: *mut bool,
    ) -> bool;
    pub(super) fn amdkfd_end_runs(stopped: bool);
}

// Those of `migrate.c`, declared as `migrate.h` has them.
#[allow(improper_ctypes)]
unsafe extern "C" {
    pub(super) fn amdkfd_migration_collect(
        vma: *mut bindings::vm_area_struct,
        start: c_ulong,
        end: c_ulong,
        what: u32,
        owner: *mut c_void,
        fault: *mut bindings::vm_fault,
        out: *mut *mut RawMigration,
    ) -> c_int;
    pub(super) fn amdkfd_migration_collect_pages(
        pfns: *const c_ulong,
        count: u32,
        out: *mut *mut RawMigration,
    ) -> c_int;
    pub(super) fn amdkfd_migration_count(migration: *const RawMigration) -> u32;
    pub(super) fn amdkfd_migration_source(
        migration: *const RawMigration,
        index: u32,
        pfn: *mut c_ulong,
    ) -> u32;
    pub(super) fn amdkfd_migration_size(migration: *const RawMigration, index: u32) -> u32;
    pub(super) fn amdkfd_migration_target(migration: *const RawMigration, index: u32) -> c_ulong;
    pub(super) fn amdkfd_migration_allocate(migration: *mut RawMigration, index: u32) -> c_ulong;
    pub(super) fn amdkfd_migration_take(
        migration: *mut RawMigration,
        index: u32,
        pfn: c_ulong,
        owner: *mut c_void,
    ) -> c_int;
    pub(super) fn amdkfd_large_reserve(pfn: c_ulong) -> c_int;
    pub(super) fn amdkfd_large_forget(pfn: c_ulong);
    pub(super) fn amdkfd_large_is_possible() -> bool;
    pub(super) fn amdkfd_large_is_allowed(vma: *mut bindings::vm_area_struct) -> bool;
    pub(super) fn amdkfd_large_split(pfn: c_ulong) -> c_int;
    pub(super) fn amdkfd_large_is_leaving(pfn: c_ulong) -> bool;
    pub(super) fn amdkfd_fault_wait(fault: *const bindings::vm_fault) -> c_int;
    pub(super) fn amdkfd_fault_split(fault: *const bindings::vm_fault) -> c_int;
    pub(super) fn amdkfd_migration_commit(migration: *mut RawMigration) -> u32;
    pub(super) fn amdkfd_migration_end(migration: *mut RawMigration);
    pub(super) fn amdkfd_fault_pause(milliseconds: c_uint) -> bool;
    pub(super) fn amdkfd_fault_owner(
        fault: *const bindings::vm_fault,
        pfn: *mut c_ulong,
    ) -> *mut c_void;
    pub(super) fn amdkfd_folio_owner(
        folio: *const bindings::folio,
        pfn: *mut c_ulong,
        count: *mut u32,
    ) -> *mut c_void;
    pub(super) fn amdkfd_fault_is_part(fault: *const bindings::vm_fault) -> bool;
    pub(super) fn amdkfd_fault_place(fault: *const bindings::vm_fault, large: *mut bool)
        -> c_ulong;
    pub(super) fn amdkfd_migration_owner(
        migration: *const RawMigration,
        index: u32,
        pfn: *mut c_ulong,
    ) -> *mut c_void;
    pub(super) fn amdkfd_clear_page(pfn: c_ulong);
    pub(super) safe fn amdkfd_zero_page() -> c_ulong;
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn amdkfd_copy_page(pfn: c_ulong, memory: *mut c_void, from_page: bool);
}

// Exported by the kernel; its bindings lack them.
#[allow(improper_ctypes)]
unsafe extern "C" {
    /// `include/linux/anon_inodes.h`
    pub(super) fn anon_inode_getfd(
        name: *const c_char,
        operations: *const bindings::file_operations,
        private: *mut c_void,
        flags: c_int,
    ) -> c_int;
}
