// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A ring that many other files have, too. A buffer has a list of the VMs that it is in, theirs
//! among them, which the driver goes along to let go of the ring, while others leave it.

use crate::bench::Bench;
use crate::raw::ioctl;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Let go of a ring, again and again, while other files get it and give it back.
#[derive(Args)]
pub struct Crowd {
    /// How many files.
    #[arg(long, default_value_t = 200)]
    files: usize,
    /// How many threads give it back.
    #[arg(long, default_value_t = 3)]
    threads: usize,
    /// For how long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

impl Crowd {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let bench = Bench::new(&Device::acquire(&kfd, node)?)?;
        let shared = bench.ring.export()?;
        let path = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
        let mut files = Vec::new();
        for _ in 0..self.files {
            let file = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            files.push(Member::new(file, &shared)?);
        }
        let is_over = AtomicBool::new(false);
        let share = self.files.div_ceil(self.threads.max(1)).max(1);
        let (let_go, changes) = thread::scope(|scope| -> Result<_> {
            let threads: Vec<_> = files
                .chunks_mut(share)
                .map(|members| scope.spawn(|| come_and_go(members, &shared, &is_over)))
                .collect();
            let let_go = let_go(&bench, Duration::from_secs(self.seconds));
            is_over.store(true, Ordering::Relaxed);
            let mut changes = 0;
            for thread in threads {
                changes += thread.join().expect("it does not panic")?;
            }
            Ok((let_go?, changes))
        })?;
        ensure!(let_go > 0 && changes > 0, "{let_go} rings, {changes} files");
        // A count that was lost keeps it mapped for good.
        let ids = [bench.gpu_id()];
        let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle: bench.ring.handle(),
            device_ids_array_ptr: ids.as_ptr() as u64,
            n_devices: 1,
            n_success: 0,
        };
        let unmapped = ioctl(bench.kfd(), uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut args);
        unmapped.context("UNMAP of the ring")?;
        println!("a ring that others have is let go of");
        Ok(())
    }
}

/// CREATE_QUEUE with a ring that is there, and an end-of-pipe buffer that is not.
fn let_go(bench: &Bench, time: Duration) -> Result<u64> {
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        let mut queue = bench.queue();
        queue.eop_buffer_address = 1 << 40;
        let refused = ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut queue);
        ensure!(refused == Err(Errno::INVAL), "CREATE_QUEUE: {refused:?}");
        count += 1;
    }
    Ok(count)
}

/// A file of the render node that has the buffer.
struct Member {
    file: OwnedFd,
    handle: u32,
}

impl Member {
    fn new(file: OwnedFd, shared: &OwnedFd) -> Result<Self> {
        let mut member = Self { file, handle: 0 };
        member.come(shared)?;
        Ok(member)
    }

    fn come(&mut self, shared: &OwnedFd) -> Result<()> {
        let mut args = uapi::drm_prime_handle {
            fd: shared.as_raw_fd(),
            ..Default::default()
        };
        ioctl(
            self.file.as_fd(),
            uapi::IOC_DRM_PRIME_FD_TO_HANDLE,
            &mut args,
        )?;
        self.handle = args.handle;
        Ok(())
    }

    fn go(&self) -> Result<()> {
        let handle = self.handle;
        let mut args = uapi::drm_gem_close { handle, pad: 0 };
        Ok(ioctl(
            self.file.as_fd(),
            uapi::IOC_DRM_GEM_CLOSE,
            &mut args,
        )?)
    }
}

fn come_and_go(members: &mut [Member], shared: &OwnedFd, is_over: &AtomicBool) -> Result<u64> {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        for member in &mut *members {
            member.go()?;
            member.come(shared)?;
            count += 1;
        }
    }
    Ok(count)
}
