// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who gets doorbells of a GPU: a user who takes as many as may be, another one, and one who asks
//! amdgpu.

use crate::opener::render_node;
use crate::running::say;
use crate::same_gpu::create_in;
use crate::stale_doorbells::ring;
use anyhow::{Context, Result};
use clap::Subcommand;
use kfd::topology;
use kfd::Kfd;
use kfd_uapi as uapi;
use rustix::mm::{mmap, MapFlags, ProtFlags};

/// A process's doorbells on a GPU.
const BYTES: usize = 8192;

#[derive(Subcommand)]
pub enum Doorbells {
    /// Make contexts that map doorbells until one is refused; say how many there are, and keep
    /// them until stdin ends.
    Take,
    /// Compute with a queue.
    Compute,
    /// Ask amdgpu for a page.
    Create,
}

impl Doorbells {
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Take => take(),
            Self::Compute => ring(),
            Self::Create => create(),
        }
    }
}

fn take() -> Result<()> {
    let nodes = topology::gpus()?;
    let node = nodes.first().context("no GPU")?;
    // As the driver names them to mmap: KFD_MMAP_TYPE_DOORBELL, and the GPU.
    let offset = 3 << 62 | u64::from(node.gpu_id) << 46;
    let mut contexts = Vec::new();
    let refused = loop {
        let kfd = Kfd::open_secondary()?;
        let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::WRITE);
        // SAFETY: a new mapping.
        let mapped = unsafe { mmap(nowhere, BYTES, access, MapFlags::SHARED, &*kfd, offset) };
        match mapped {
            Ok(_) => contexts.push(kfd),
            Err(error) => break error,
        }
    };
    say(&format!("{} contexts, then {refused:?}", contexts.len()))?;
    while std::io::stdin().read_line(&mut String::new())? != 0 {}
    Ok(())
}

fn create() -> Result<()> {
    let nodes = topology::gpus()?;
    let render = render_node(nodes.first().context("no GPU")?)?;
    create_in(&render, uapi::AMDGPU_GEM_DOMAIN_DOORBELL, 4096)?;
    Ok(())
}
