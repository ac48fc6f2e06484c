// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! RESTORE comes between an eviction of the process's own memory and its end, and fails: the
//! process's queues are on again, and not off for good. Needs two GPUs: the second one is read from
//! a page that is not there until memory of the first has gone.

use super::image::Read_;
use super::restored::{in_children, is_balanced, open_devices, own_memory};
use crate::raw::{ioctl, ioctl_at};
use crate::svm::supply;
use anyhow::{ensure, Context, Result};
use kfd::Kfd;
use kfd_uapi as uapi;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const BUCKET: usize = size_of::<uapi::kfd_criu_device_bucket>();
/// How often: what is waited for need not be under way when RESTORE ends.
const ROUNDS: usize = 5;

pub fn run(file: &Path) -> Result<()> {
    in_children((0..ROUNDS).map(|round| (format!("round {round}"), || once(file))))
}

fn pages(count: usize) -> Result<u64> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping replaces nothing.
    let at = unsafe { mmap_anonymous(null_mut(), count * PAGE, access, MapFlags::PRIVATE)? };
    Ok(at as u64)
}

/// The devices of a checkpoint, the first at the end of a page, and the others in one that is not
/// there.
struct Devices {
    at: u64,
    missing: u64,
    others: Vec<u32>,
    fault: OwnedFd,
}

impl Devices {
    fn new(read: &Read_) -> Result<Self> {
        let words = |it: &uapi::kfd_criu_device_bucket| {
            [it.user_gpu_id, it.actual_gpu_id, it.drm_fd, it.pad]
        };
        let mut words = read.saved.checkpoint.devices.iter().map(words);
        let first = words.next().context("no GPU")?;
        let mut others: Vec<u32> = words.flatten().collect();
        ensure!(!others.is_empty(), "it takes two GPUs");
        others.resize(PAGE / 4, 0);
        let start = pages(2)?;
        let missing = start + PAGE as u64;
        let at = missing - BUCKET as u64;
        // SAFETY: it is in the first of the two pages.
        unsafe { (at as *mut [u32; 4]).write(first) };
        Ok(Self {
            at,
            missing,
            others,
            fault: supply::expect([missing, PAGE as u64])?,
        })
    }

    fn bring(&self) -> Result<()> {
        Ok(supply::bring(&self.fault, self.missing, &self.others)?)
    }
}

/// Pages of the process's own that a GPU knows go until `ended`, as fast as they can; `begun` is
/// called when they have begun to.
fn come_and_go(
    kfd: &Arc<Kfd>,
    gpu_id: u32,
    ended: &AtomicBool,
    begun: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let page = pages(1)?;
    let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: page,
        size: PAGE as u64,
        mmap_offset: page,
        gpu_id,
        flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
        ..Default::default()
    };
    // Until there is a VM.
    while ioctl(kfd.as_fd(), uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut args).is_err() {
        ensure!(!ended.load(Ordering::Acquire), "there was no VM");
    }
    let goes = || -> Result<()> {
        // SAFETY: it is this function's own.
        unsafe { madvise(page as *mut _, PAGE, Advice::LinuxDontNeed)? };
        Ok(())
    };
    goes()?;
    begun()?;
    while !ended.load(Ordering::Acquire) {
        goes()?;
    }
    let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
        handle: args.handle,
    };
    Ok(ioctl(kfd.as_fd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut free)?)
}

fn once(file: &Path) -> Result<()> {
    let mut read = Read_::read(file)?;
    own_memory(&read)?;
    let kfd = Kfd::open()?;
    let _files = open_devices(&mut read)?;
    let devices = Devices::new(&read)?;
    let kept = &mut read.saved.checkpoint;
    // It fails at the first buffer.
    kept.buffers.first_mut().context("no buffer")?.gpu_id = 1;
    let gpu_id = kept.devices.first().context("no GPU")?.user_gpu_id;
    let mut args = uapi::kfd_ioctl_criu_args {
        devices: devices.at,
        ..kept.args(uapi::KFD_CRIU_OP_RESTORE)
    };
    let ended = AtomicBool::new(false);
    let (restored, came) = std::thread::scope(|scope| {
        let coming = scope.spawn(|| come_and_go(&kfd, gpu_id, &ended, || devices.bring()));
        // SAFETY: what it points to lives until after the call.
        let restored = unsafe { ioctl_at(kfd.as_fd(), uapi::IOC_CRIU_OP, &raw mut args as u64) };
        ended.store(true, Ordering::Release);
        (restored, coming.join())
    });
    came.map_err(|_| anyhow::anyhow!("a thread failed"))??;
    ensure!(
        restored == Err(rustix::io::Errno::NODEV),
        "RESTORE: {restored:?}"
    );
    let begin = Instant::now();
    while !is_balanced(&kfd)? {
        ensure!(
            begin.elapsed() < Duration::from_secs(5),
            "the process's queues stay off"
        );
    }
    Ok(())
}
