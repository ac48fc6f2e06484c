// SPDX-License-Identifier: GPL-2.0-only

//! amdkfd: AMD's compute driver, attached to a stock amdgpu. The module's root: what there is, and
//! in which order it starts and ends.

use kernel::prelude::*;

mod bits;
mod compat;
mod debugfs;
mod doorbell;
mod event;
mod exception;
mod file;
mod gauge;
mod gfx;
mod gpu;
mod ids;
mod interrupt;
mod ioctl;
mod kfd;
mod kgd;
mod kgd2kfd;
mod linux;
mod mappings;
mod memory;
mod mmap;
mod oracle;
mod process;
mod queue;
mod sched;
mod served;
mod smi;
mod svm;
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

/// The module. Fields are dropped from top to bottom: first we let go of amdgpu.
struct Amdkfd {
    _debugfs: Option<debugfs::Debugfs>,
    _attachment: kgd2kfd::Attachment,
    _processes: process::Processes,
    _remains: kgd::amdgpu::vram::Remains,
}

impl kernel::Module for Amdkfd {
    fn init(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: first of all, and once: the module is initialised once.
        unsafe {
            gpu::init();
            kfd::init();
            mappings::init();
            kgd2kfd::init();
            process::files::prepare();
            process::debug::prepare();
            svm::block::prepare();
            topology::prepare();
        }
        file::prepare(module);
        smi::prepare(module);
        linux::debugfs::prepare(module);
        // SAFETY: once. It is dropped after the attachment, and each process pins the module.
        let processes = unsafe { process::Processes::new(module) }?;
        Ok(Self {
            // From then on /dev/kfd may be open, and nothing may fail any more.
            _attachment: kgd2kfd::Attachment::new()?,
            _debugfs: debugfs::Debugfs::new()
                .inspect_err(|error| pr_warn!("not shown in debugfs: {error:?}\n"))
                .ok(),
            _processes: processes,
            _remains: kgd::amdgpu::vram::Remains::new(),
        })
    }
}
