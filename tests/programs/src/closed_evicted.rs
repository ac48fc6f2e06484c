// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A buffer that the program has mapped by the render node (as HIP's virtual memory does), and
//! closes while its page tables are evicted. When they come back the entries must be gone, as the
//! memory is somebody else's.

use crate::opener::{reads_at, MIB, OWN};
use crate::raw::ioctl;
use crate::running::{vram_and_ticks, wrong_pages_at, PATIENCE};
use crate::waves::Gpu;
use anyhow::{anyhow, ensure, Context, Result};
use kfd::{Device, Memory};
use kfd_uapi as uapi;
use rustix::fd::AsRawFd;
use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
use std::fs;
use std::thread;
use std::time::Duration;

/// What the buffer has that is mapped in its place.
const NEXT: u32 = 0x5eed_0013;
/// Of hold_info.ko: while it is held nobody brings the process back.
const HOLD_INFO: &str = "/sys/kernel/debug/hold_info";
/// Reading it has all that is in VRAM leave it.
const EVICT_VRAM: &str = "/sys/kernel/debug/dri/0/amdgpu_evict_vram";
/// The lock has been taken by then.
const HELD: Duration = Duration::from_millis(500);
/// `AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE`.
const READ_WRITE: u32 = 2 | 4;

#[derive(clap::Args)]
pub struct ClosedEvicted {
    /// Another buffer is mapped in the place of what is closed, before the tables come back.
    #[arg(long)]
    again: bool,
}

impl ClosedEvicted {
    pub fn run(&self) -> Result<()> {
        let gpu = Gpu::open(4)?;
        let device = gpu.device();
        let (memory, _) = vram_and_ticks(device, MIB, OWN)?;
        let (next, _) = vram_and_ticks(device, MIB, NEXT)?;
        let [handle, next] = [handle_of(device, &memory)?, handle_of(device, &next)?];
        let place = find_place(memory.size())?;
        map(device, handle, place)?;
        drop(memory);
        let wrong = wrong_pages_at(&gpu, place, OWN, PATIENCE)?;
        ensure!(wrong == 0, "{wrong} pages are wrong before");
        let render = device.render().as_raw_fd().to_string();
        let holder = thread::spawn(move || fs::write(HOLD_INFO, render));
        thread::sleep(HELD);
        ensure!(!holder.is_finished(), "nothing is held");
        fs::read(EVICT_VRAM).context("amdgpu_evict_vram")?;
        let closed = ioctl(device.render(), uapi::IOC_DRM_GEM_CLOSE, &mut [handle, 0]);
        let mapped = self.again.then(|| map(device, next, place)).transpose();
        fs::write(HOLD_INFO, "-1")?;
        holder.join().map_err(|_| anyhow!("a thread failed"))??;
        closed.context("GEM_CLOSE")?;
        mapped?;
        if !self.again {
            return reads_at(&gpu, place);
        }
        let wrong = wrong_pages_at(&gpu, place, NEXT, PATIENCE)?;
        ensure!(wrong == 0, "{wrong} pages are wrong of the one that came");
        Ok(())
    }
}

/// The render node's handle of a buffer of the KFD's.
fn handle_of(device: &Device, memory: &Memory) -> Result<u32> {
    let file = memory.export()?;
    let mut share = uapi::drm_prime_handle {
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    ioctl(
        device.render(),
        uapi::IOC_DRM_PRIME_FD_TO_HANDLE,
        &mut share,
    )
    .context("PRIME_FD_TO_HANDLE")?;
    Ok(share.handle)
}

/// Where nothing else is: address and size.
fn find_place(size: usize) -> Result<[u64; 2]> {
    let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE);
    // SAFETY: the kernel finds the place, and nobody uses it.
    let place = unsafe { mmap_anonymous(std::ptr::null_mut(), size, none, private) }?;
    Ok([place as u64, size as u64])
}

fn map(device: &Device, handle: u32, [va_address, map_size]: [u64; 2]) -> Result<()> {
    let mut args = uapi::drm_amdgpu_gem_va {
        handle,
        operation: uapi::AMDGPU_VA_OP_MAP,
        flags: READ_WRITE,
        va_address,
        map_size,
        ..Default::default()
    };
    ioctl(device.render(), uapi::IOC_DRM_GEM_VA, &mut args).context("GEM_VA")
}
