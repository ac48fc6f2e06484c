// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `cargo fuzz` on [`gpu_fuzz::engines`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpu_fuzz::engines(data));
