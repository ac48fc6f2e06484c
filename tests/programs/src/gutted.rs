// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A buffer whose user has said that it may be thrown away (`AMDGPU_GEM_CREATE_DISCARDABLE`), and
//! that is: its VRAM goes to others. No page table may lead there any more: neither the process's
//! nor the CPU's.

use crate::closed_evicted::{evict_vram, find_place, map};
use crate::opener::{reads_beside, render_node, MIB, OTHERS, OWN};
use crate::raw::ioctl;
use crate::running::{pattern, say, wrong_pages_at, PATIENCE};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use kfd::topology;
use kfd::{Device, Kfd};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::mm::{mmap, MapFlags, ProtFlags};
use std::fs;

/// `AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_DISCARDABLE`.
const FLAGS: u64 = 1 | 1 << 12;
/// `AMDGPU_GEM_CREATE_VM_ALWAYS_VALID`.
const ALWAYS_VALID: u64 = 1 << 6;
/// `DRM_IOCTL_AMDGPU_GEM_MMAP`.
const GEM_MMAP: u32 = 0xc008_6441;

#[derive(clap::Args)]
pub struct Gutted {
    /// It belongs to the VM: who brings the page tables back brings it back as well.
    #[arg(long)]
    always_valid: bool,
    /// It is thrown away before compute has its VM: say so, and wait for a line before that.
    #[arg(long)]
    early: bool,
}

impl Gutted {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let render = render_node(node)?;
        let acquire = || {
            anyhow::Ok(Device::acquire_by(
                &Kfd::open()?,
                node,
                render.try_clone()?,
            )?)
        };
        let device = (!self.early).then(acquire).transpose()?;
        let size = MIB << 20;
        let flags = FLAGS | if self.always_valid { ALWAYS_VALID } else { 0 };
        let handle = create(&render, size, flags)?;
        let seen = map_for_cpu(&render, handle, size)?;
        for page in 0..size / 4096 {
            // SAFETY: within the mapping.
            unsafe { seen.add(page * 1024).write_volatile(pattern(page, OWN)) };
        }
        let place = find_place(size)?;
        map(&render, handle, place)?;
        let gpu = match device {
            Some(device) => {
                let gpu = Gpu::on(device, 4)?;
                let wrong = wrong_pages_at(&gpu, place, OWN, PATIENCE)?;
                ensure!(wrong == 0, "{wrong} pages are wrong before");
                fs::read(evict_vram(node)).context("amdgpu_evict_vram")?;
                gpu
            }
            None => {
                fs::read(evict_vram(node)).context("amdgpu_evict_vram")?;
                say("thrown away")?;
                std::io::stdin().read_line(&mut String::new())?;
                Gpu::on(acquire()?, 4)?
            }
        };
        let others = reads_beside(&gpu, place)?;
        // SAFETY: within the mapping.
        let read = |page: usize| unsafe { seen.add(page * 1024).read_volatile() };
        let shown = (0..size / 4096).filter(|&page| read(page) == pattern(page, OTHERS));
        let shown = shown.count();
        println!("the CPU sees {shown} pages of another's");
        drop(others);
        Ok(())
    }
}

/// A buffer in VRAM.
fn create(render: impl AsFd, size: usize, flags: u64) -> Result<u32> {
    let mut args = uapi::drm_amdgpu_gem_create::default();
    args.in_ = uapi::drm_amdgpu_gem_create_in {
        bo_size: size as u64,
        alignment: 4096,
        domains: uapi::AMDGPU_GEM_DOMAIN_VRAM.into(),
        domain_flags: flags,
    };
    ioctl(render, uapi::IOC_DRM_GEM_CREATE, &mut args).context("GEM_CREATE")?;
    // SAFETY: the call has written this member.
    Ok(unsafe { args.out.handle })
}

/// Where the CPU sees a buffer, until the process ends.
pub(crate) fn map_for_cpu(render: impl AsFd, handle: u32, size: usize) -> Result<*mut u32> {
    let render = render.as_fd();
    // The handle; then the offset.
    let mut args = u64::from(handle);
    ioctl(render, GEM_MMAP, &mut args).context("GEM_MMAP")?;
    let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping.
    let place = unsafe { mmap(nowhere, size, access, MapFlags::SHARED, render, args)? };
    Ok(place.cast())
}
