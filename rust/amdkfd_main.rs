// SPDX-License-Identifier: GPL-2.0

//! amdkfd: AMD's compute driver, attached to a stock amdgpu. The module's root: what there is, and
//! in which order it starts.

use kernel::prelude::*;

mod doorbell;
mod event;
mod gfx;
mod gpu;
mod ids;
mod kgd;
mod linux;
mod mmap;
mod oracle;
mod process;
mod queue;
mod sched;
mod uapi;
mod uapi_bindings;

module! {
    type: Amdkfd,
    name: "amdkfd",
    authors: ["amdkfd-rs"],
    description: "AMD compute driver in Rust, attached to a stock amdgpu",
    license: "GPL",
}

/// The module. Fields are made from top to bottom and dropped in the same order.
struct Amdkfd;

impl kernel::Module for Amdkfd {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: first of all, and once: the module is initialised once.
        unsafe { gpu::init() };
        Ok(Amdkfd)
    }
}
