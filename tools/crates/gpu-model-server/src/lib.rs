// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What `gpu-model-server` is made of: the backend of vfio-user and the memory shared with QEMU.

pub mod backend;
pub mod memory;
