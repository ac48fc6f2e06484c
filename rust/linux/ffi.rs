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
    pub(super) fn amdkfd_in_compat_syscall() -> bool;
    pub(super) fn amdkfd_jiffies_to_msecs(jiffies: c_ulong) -> c_uint;
    pub(super) fn amdkfd_anon_inode(name: *const c_char) -> *mut bindings::inode;
    pub(super) fn amdkfd_signal_group(task: *mut bindings::task_struct, number: c_int);
    pub(super) fn amdkfd_thread_group_id(task: *mut bindings::task_struct) -> bindings::pid_t;
    pub(super) fn amdkfd_system_thread_group_id(
        task: *mut bindings::task_struct,
    ) -> bindings::pid_t;
    pub(super) fn amdkfd_faults_alone(vma: *mut bindings::vm_area_struct) -> bool;
    pub(super) fn amdkfd_current_traces(task: *mut bindings::task_struct) -> bool;
    pub(super) safe fn amdkfd_mb();
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
