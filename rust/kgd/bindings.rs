// SPDX-License-Identifier: GPL-2.0-only

//! `bridge.h` as bindgen sees it. Generated at build time; nothing outside `kgd` and `attach` calls
//! these functions.

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

include!("bridge_generated.rs");
