// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A buffer that the program has mapped by the render node (as HIP's virtual memory does), and
//! closes while its page tables are evicted. When they come back the entries must be gone, as the
//! memory is somebody else's.

use crate::opener::{reads_at, MIB, OWN};
use crate::raw::ioctl;
use crate::running::{pattern, vram_and_ticks, wrong_pages_at, PATIENCE};
use crate::same_gpu::{create_in, export};
use crate::waves::Gpu;
use anyhow::{anyhow, ensure, Context, Result};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the buffer has that is mapped in its place.
const NEXT: u32 = 0x5eed_0013;
/// Of hold_info.ko: while it is held nobody brings the process back.
pub const HOLD_INFO: &str = "/sys/kernel/debug/hold_info";
/// `AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE`.
const READ_WRITE: u32 = 2 | 4;

/// `AMDGPU_VM_PAGE_PRT`.
const PRT: u32 = 1 << 4;
/// `AMDGPU_VA_OP_UNMAP`.
const OP_UNMAP: u32 = 2;

#[derive(clap::Args)]
pub struct ClosedEvicted {
    /// Another buffer is mapped in the place of what is closed, before the tables come back.
    #[arg(long)]
    again: bool,
    /// While somebody brings them back already: waits for the page tables of another GPU, the
    /// first, whose reservation hold_info.ko has (root=1).
    #[arg(long, requires = "again")]
    late: bool,
    /// It covers half of that place.
    #[arg(long, requires = "again")]
    half: bool,
    /// Another buffer, which stays where it is, is mapped elsewhere meanwhile, and nothing is
    /// closed.
    #[arg(long, conflicts_with = "again")]
    fresh: bool,
}

impl ClosedEvicted {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let node = |number: usize| nodes.get(number).context("no such GPU");
        let first = Device::acquire(&kfd, node(0)?)?;
        let number = usize::from(self.late);
        let device = match number {
            0 => first.clone(),
            number => Device::acquire(&kfd, node(number)?)?,
        };
        let gpu = Gpu::on(device, 4)?;
        let device = gpu.device();
        let (memory, _) = vram_and_ticks(device, MIB << u32::from(self.half), OWN)?;
        let (next, _) = vram_and_ticks(device, MIB, NEXT)?;
        let handle = handle_of(device, &memory)?;
        let second = match self.fresh {
            true => unmapped(device, next.size())?,
            false => handle_of(device, &next)?,
        };
        let [address, size] = find_place(memory.size())?;
        map(device.render(), handle, [address, size])?;
        drop(memory);
        let wrong = wrong_pages_at(&gpu, [address, size], OWN, PATIENCE)?;
        ensure!(wrong == 0, "{wrong} pages are wrong before");
        if self.fresh {
            map_nothing(device)?;
        }
        let third = Memory::gtt(device, 4096)?;
        let third = (handle_of(device, &third)?, find_place(third.size())?);
        let render = first.render().as_raw_fd().to_string();
        let holder = thread::spawn(move || fs::write(HOLD_INFO, render));
        await_said(&["held", "waited for"])?;
        fs::read(evict_vram(node(number)?)).context("amdgpu_evict_vram")?;
        if self.late {
            await_said(&["waited for"])?;
        }
        let mut place = [address, next.size() as u64];
        let closed = match self.fresh {
            true => {
                place = find_place(next.size())?;
                Ok(())
            }
            false => ioctl(device.render(), uapi::IOC_DRM_GEM_CLOSE, &mut [handle, 0]),
        };
        let mapped = (self.again || self.fresh)
            .then(|| map(device.render(), second, place))
            .transpose();
        if self.fresh {
            map_nothing(device)?;
        }
        let ended = Arc::new(AtomicBool::new(false));
        let busy = self.late.then(|| remap(device, third, &ended));
        fs::write(HOLD_INFO, "-1")?;
        holder.join().map_err(|_| anyhow!("a thread failed"))??;
        closed.context("GEM_CLOSE")?;
        mapped?;
        if !self.again && !self.fresh {
            return reads_at(&gpu, place);
        }
        let wrong = wrong_pages_at(&gpu, place, NEXT, PATIENCE)?;
        ended.store(true, Relaxed);
        if let Some(busy) = busy {
            busy.join().map_err(|_| anyhow!("a thread failed"))??;
        }
        ensure!(wrong == 0, "{wrong} pages are wrong of the one that came");
        if self.half {
            return reads_at(&gpu, [address + place[1], size - place[1]]);
        }
        Ok(())
    }
}

/// Reading it has all that is in the GPU's VRAM leave it.
pub(crate) fn evict_vram(node: &Node) -> String {
    let [domain, location] = ["domain", "location_id"].map(|name| node.property(name));
    let [bus, slot] = [location >> 8, location >> 3 & 0x1f];
    let name = format!("{domain:04x}:{bus:02x}:{slot:02x}.{}", location & 7);
    format!("/sys/kernel/debug/dri/{name}/amdgpu_evict_vram")
}

/// Has a thread of the program map and unmap something else in the same page tables until it ends:
/// whoever waits for them is the next who has them.
fn remap(
    device: &Arc<Device>,
    (handle, place): (u32, [u64; 2]),
    ended: &Arc<AtomicBool>,
) -> JoinHandle<Result<()>> {
    let (device, ended) = (device.clone(), ended.clone());
    thread::spawn(move || {
        while !ended.load(Relaxed) {
            map(device.render(), handle, place)?;
            unmap(device.render(), handle, place)?;
        }
        Ok(())
    })
}

/// How far hold_info.ko has come.
pub fn await_said(wanted: &[&str]) -> Result<()> {
    let start = Instant::now();
    loop {
        let said = fs::read_to_string(HOLD_INFO)?;
        if wanted.contains(&said.as_str()) {
            return Ok(());
        }
        ensure!(start.elapsed() < PATIENCE, "hold_info.ko says \"{said}\"");
        thread::sleep(Duration::from_millis(10));
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

/// The handle of a buffer in system memory with `NEXT`, which the GPU has nowhere.
fn unmapped(device: &Device, size: usize) -> Result<u32> {
    let render = device.render();
    let handle = create_in(render, uapi::AMDGPU_GEM_DOMAIN_GTT, size)?;
    let file = export(render, handle)?;
    // SAFETY: a new mapping, until the process ends.
    let place = unsafe {
        let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::WRITE);
        mmap(nowhere, size, access, MapFlags::SHARED, &file, 0)?.cast::<u32>()
    };
    for page in 0..size / 4096 {
        // SAFETY: within the mapping, which nobody else uses.
        unsafe { place.add(page * 1024).write_volatile(pattern(page, NEXT)) };
    }
    Ok(handle)
}

/// Where nothing else is: address and size.
pub(crate) fn find_place(size: usize) -> Result<[u64; 2]> {
    let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE);
    // SAFETY: the kernel finds the place, and nobody uses it.
    let place = unsafe { mmap_anonymous(std::ptr::null_mut(), size, none, private) }?;
    Ok([place as u64, size as u64])
}

pub(crate) fn map(render: impl AsFd, handle: u32, place: [u64; 2]) -> Result<()> {
    gem_va(render, uapi::AMDGPU_VA_OP_MAP, handle, place)
}

/// On purpose (PRT).
fn map_nothing(device: &Device) -> Result<()> {
    let [va_address, map_size] = find_place(MIB << 20)?;
    let mut args = uapi::drm_amdgpu_gem_va {
        operation: uapi::AMDGPU_VA_OP_MAP,
        flags: PRT,
        va_address,
        map_size,
        ..Default::default()
    };
    ioctl(device.render(), uapi::IOC_DRM_GEM_VA, &mut args).context("GEM_VA of nothing")
}

fn unmap(render: impl AsFd, handle: u32, place: [u64; 2]) -> Result<()> {
    gem_va(render, OP_UNMAP, handle, place)
}

fn gem_va(
    render: impl AsFd,
    operation: u32,
    handle: u32,
    [va_address, map_size]: [u64; 2],
) -> Result<()> {
    let mut args = uapi::drm_amdgpu_gem_va {
        handle,
        operation,
        flags: READ_WRITE,
        va_address,
        map_size,
        ..Default::default()
    };
    ioctl(render, uapi::IOC_DRM_GEM_VA, &mut args).context("GEM_VA")
}
