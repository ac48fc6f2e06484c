// SPDX-License-Identifier: GPL-2.0-only

//! The user ABI as bindgen sees the kernel's own `<linux/kfd_ioctl.h>` and `<linux/kfd_sysfs.h>`.
//!
//! Generated at build time from `uapi/uapi_helper.h`: one copy, owned by the kernel's headers. The
//! ioctl numbers appear under their C names (`AMDKFD_IOC_*`).

#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;
use pin_init::MaybeZeroable;

include!("../uapi/uapi_generated.rs");
