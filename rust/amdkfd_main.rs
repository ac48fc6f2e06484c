// SPDX-License-Identifier: GPL-2.0

//! amdkfd: AMD's compute driver, attached to a stock amdgpu. The module's root: what there is, and
//! in which order it starts.

use kernel::prelude::*;

mod doorbell;
mod event;
mod file;
mod gfx;
mod gpu;
mod ids;
mod interrupt;
mod ioctl;
mod kgd;
mod kgd2kfd;
mod linux;
mod memory;
mod mmap;
mod oracle;
mod process;
mod queue;
mod sched;
mod topology;
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
struct Amdkfd {
    _attachment: kgd2kfd::Attachment,
    _processes: process::Processes,
}

impl kernel::Module for Amdkfd {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: first of all, and once: the module is initialised once.
        unsafe { gpu::init() };
        // SAFETY: as above.
        unsafe { kgd2kfd::init() };
        // SAFETY: as above; it is dropped after the attachment, and a process pins the module.
        let processes = unsafe { process::Processes::new() }?;
        Ok(Amdkfd {
            _attachment: kgd2kfd::Attachment::new()?,
            _processes: processes,
        })
    }
}
