// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A buffer whose user has said that it may be thrown away (`AMDGPU_GEM_CREATE_DISCARDABLE`), and
//! that is: its VRAM goes to others. No page table may lead there any more: neither the process's
//! nor the CPU's.

use crate::closed_evicted::{evict_vram, find_place, map};
use crate::opener::{reads_beside, MIB, OTHERS, OWN};
use crate::raw::ioctl;
use crate::running::{pattern, wrong_pages_at, PATIENCE};
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
}

impl Gutted {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let device = Device::acquire(&kfd, node)?;
        let size = MIB << 20;
        let flags = FLAGS | if self.always_valid { ALWAYS_VALID } else { 0 };
        let handle = create(device.render(), size, flags)?;
        let seen = map_for_cpu(device.render(), handle, size)?;
        for page in 0..size / 4096 {
            // SAFETY: within the mapping.
            unsafe { seen.add(page * 1024).write_volatile(pattern(page, OWN)) };
        }
        let gpu = Gpu::on(device.clone(), 4)?;
        let place = find_place(size)?;
        map(&device, handle, place)?;
        let wrong = wrong_pages_at(&gpu, place, OWN, PATIENCE)?;
        ensure!(wrong == 0, "{wrong} pages are wrong before");
        fs::read(evict_vram(node)).context("amdgpu_evict_vram")?;
        let others = reads_beside(&gpu, place)?;
        let shown = (0..size / 4096)
            // SAFETY: within the mapping.
            .filter(
                |&page| unsafe { seen.add(page * 1024).read_volatile() } == pattern(page, OTHERS),
            )
            .count();
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
fn map_for_cpu(render: impl AsFd, handle: u32, size: usize) -> Result<*mut u32> {
    let render = render.as_fd();
    // The handle; then the offset.
    let mut args = u64::from(handle);
    ioctl(render, GEM_MMAP, &mut args).context("GEM_MMAP")?;
    let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping.
    let place = unsafe { mmap(nowhere, size, access, MapFlags::SHARED, render, args)? };
    Ok(place.cast())
}
