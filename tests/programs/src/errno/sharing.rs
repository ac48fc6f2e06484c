// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cases of dma-bufs, and of the profiler.

use super::show;
use crate::bench::Bench;
use crate::raw::ioctl;
use anyhow::{Context, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};

/// An address of the kernel's.
const KERNEL: u64 = 0xffff_8000_0000_0000;

pub(super) fn sharing(bench: &Bench) -> Result<()> {
    let shared = bench.ring.export()?;
    let files = [
        ("no file", u32::MAX),
        ("/dev/kfd", bench.kfd().as_raw_fd() as u32),
        ("a buffer", shared.as_raw_fd() as u32),
    ];
    for (of, file) in files {
        info(bench, of, file);
        import(bench, of, file);
    }
    for (case, handle, flags) in [
        ("of no buffer", 0, 0),
        ("of no buffer of the GPU's", bench.ring.handle() | 0xffff, 0),
        ("with flags that nobody knows", bench.ring.handle(), 1 << 30),
    ] {
        let mut args = uapi::kfd_ioctl_export_dmabuf_args {
            handle,
            flags,
            ..Default::default()
        };
        show(
            &format!("EXPORT_DMABUF {case}"),
            ioctl(bench.kfd(), uapi::IOC_EXPORT_DMABUF, &mut args),
        );
    }
    Ok(())
}

/// Buffers of the render node's, with what its driver says of them.
pub(super) fn graphics(bench: &Bench) -> Result<()> {
    let minor = bench.device.node().property("drm_render_minor");
    let render = open(
        format!("/dev/dri/renderD{minor}"),
        OFlags::RDWR,
        Mode::empty(),
    )?;
    for (of, domain) in [
        ("a graphics buffer", uapi::AMDGPU_GEM_DOMAIN_VRAM),
        ("one of no GPU's", uapi::AMDGPU_GEM_DOMAIN_CPU),
    ] {
        let file = graphics_buffer(&render, domain).context(of)?;
        info(bench, of, file.as_raw_fd() as u32);
        import(bench, of, file.as_raw_fd() as u32);
    }
    Ok(())
}

/// A page of `domain`, with 16 bytes of metadata.
fn graphics_buffer(render: &OwnedFd, domain: u32) -> Result<OwnedFd> {
    let mut create = uapi::drm_amdgpu_gem_create::default();
    create.in_ = uapi::drm_amdgpu_gem_create_in {
        bo_size: 4096,
        alignment: 4096,
        domains: domain.into(),
        domain_flags: 0,
    };
    ioctl(render, uapi::IOC_DRM_GEM_CREATE, &mut create)?;
    // SAFETY: the call has written this member.
    let handle = unsafe { create.out.handle };
    let mut metadata = uapi::drm_amdgpu_gem_metadata {
        handle,
        op: uapi::AMDGPU_GEM_METADATA_OP_SET_METADATA,
        ..Default::default()
    };
    metadata.data.data_size_bytes = 16;
    metadata.data.data[..4].copy_from_slice(&[1, 2, 3, 4]);
    ioctl(render, uapi::IOC_DRM_GEM_METADATA, &mut metadata)?;
    let mut share = uapi::drm_prime_handle {
        handle,
        ..Default::default()
    };
    ioctl(render, uapi::IOC_DRM_PRIME_HANDLE_TO_FD, &mut share)?;
    // SAFETY: the call has made the file for us.
    Ok(unsafe { OwnedFd::from_raw_fd(share.fd) })
}

fn info(bench: &Bench, of: &str, file: u32) {
    let mut words = [0u64; 8];
    let own = words.as_mut_ptr() as u64;
    for (room, metadata_ptr, metadata_size) in [
        ("no room", 0, 0),
        ("room for 8 bytes", own, 8),
        ("room for 64 bytes", own, 64),
        ("room for 64 bytes nowhere", 0, 64),
        ("room at the kernel's", KERNEL, 64),
    ] {
        let mut args = uapi::kfd_ioctl_get_dmabuf_info_args {
            metadata_ptr,
            metadata_size,
            dmabuf_fd: file,
            ..Default::default()
        };
        let outcome = ioctl(bench.kfd(), uapi::IOC_GET_DMABUF_INFO, &mut args);
        let case = format!(
            "GET_DMABUF_INFO of {of}, {room}: {} bytes and {} of metadata, flags {:#x}, of the GPU \
            {}",
            args.size,
            args.metadata_size,
            args.flags,
            args.gpu_id == bench.gpu_id()
        );
        show(&case, outcome);
    }
    println!("GET_DMABUF_INFO of {of} has told {words:x?}");
}

fn import(bench: &Bench, of: &str, file: u32) {
    let va = bench.ring.address() + (1 << 32);
    for (case, gpu_id, va_addr) in [
        ("to no GPU", 1, va),
        ("to the kernel's", bench.gpu_id(), KERNEL),
        ("", bench.gpu_id(), va),
    ] {
        let mut args = uapi::kfd_ioctl_import_dmabuf_args {
            gpu_id,
            va_addr,
            dmabuf_fd: file,
            ..Default::default()
        };
        let outcome = ioctl(bench.kfd(), uapi::IOC_IMPORT_DMABUF, &mut args);
        show(&format!("IMPORT_DMABUF of {of} {case}"), outcome);
        if outcome.is_ok() {
            let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
                handle: args.handle,
            };
            show(
                &format!("FREE_MEMORY_OF_GPU of what {of} gave"),
                ioctl(bench.kfd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut free),
            );
        }
    }
}

/// `struct kfd_ioctl_profiler_args` as words: the operation, and a union.
pub(super) fn profiler(bench: &Bench) {
    const COUNTERS: u32 = 0;
    for (case, words) in [
        ("that nobody knows", [77, 0, 0, 0]),
        ("counters of no GPU", [COUNTERS, 1, 1, 0]),
        (
            "counters given back before",
            [COUNTERS, bench.gpu_id(), 0, 0],
        ),
        (
            "counters neither taken nor given",
            [COUNTERS, bench.gpu_id(), 2, 0],
        ),
        ("counters", [COUNTERS, bench.gpu_id(), 1, 1]),
        ("counters twice", [COUNTERS, bench.gpu_id(), 1, 0]),
        ("counters given back", [COUNTERS, bench.gpu_id(), 0, 0]),
    ] {
        let mut args = [0u32; 32];
        args[..4].copy_from_slice(&words);
        show(
            &format!("PROFILER {case}"),
            ioctl(bench.kfd(), uapi::IOC_PROFILER, &mut args),
        );
    }
}
