// SPDX-License-Identifier: GPL-2.0-only

//! AMD's own layouts (`v9_structs.h`, `kfd_pm4_headers_ai.h`) as bindgen sees them.
//!
//! Only for `static_assert!` and tests of our own encoders: nothing that runs uses these types.
//! Generated at build time from `uapi/oracle_helper.h` out of the kernel source.

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

include!("../uapi/oracle_generated.rs");
