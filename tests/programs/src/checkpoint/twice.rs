// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process that was restored is not restored once more, and goes on as it was.

use super::restored::{buffers_at, put};
use super::{again, outcome, restore};
use crate::raw;
use anyhow::{ensure, Context, Result};
use kfd::{Checkpoint, Kfd};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::sync::Arc;

/// Restores it once more, by the same checkpoint and by worse ones. It has its GPUs' names, its
/// buffers and its retry mode after that.
pub fn refused(kfd: &Arc<Kfd>, kept: &Checkpoint) -> Result<()> {
    let retry = kfd.xnack()?;
    refuses(restore(kfd, kept)).context("once more")?;
    let mut worse = again(kept);
    put(&mut worse, 0, 2);
    refuses(restore(kfd, &worse)).context("another version")?;
    // The other retry mode, of devices that cannot be read: the mode is not looked at.
    put(&mut worse, 0, 1);
    put(&mut worse, 4, u32::from(!retry));
    let came = unreadable(kfd, &mut worse);
    ensure!(
        came == Err(rustix::io::Errno::INVAL),
        "devices were looked for: {came:?}"
    );
    ensure!(kfd.xnack()? == retry, "the retry mode has changed");
    for device in &kept.devices {
        let id = device.user_gpu_id;
        kfd.clocks(id).context("a GPU has another name")?;
    }
    for (index, buffer) in kept.buffers.iter().enumerate() {
        let at = buffers_at(kept) + 272 * index + 8;
        let number = kept.private.get(at..at + 4).context("too short")?;
        let number = u32::from_le_bytes(number.try_into()?);
        let gpus = [buffer.gpu_id];
        let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
            handle: u64::from(buffer.gpu_id) << 32 | u64::from(number),
            device_ids_array_ptr: gpus.as_ptr() as u64,
            n_devices: 1,
            ..Default::default()
        };
        raw::ioctl(kfd.as_fd(), uapi::IOC_MAP_MEMORY_TO_GPU, &mut map)
            .with_context(|| format!("MAP of buffer {number}"))?;
    }
    Ok(())
}

/// It is `EINVAL`.
fn refuses<T>(result: kfd::Result<T>) -> Result<()> {
    let errno = result.as_ref().err().and_then(|it| it.errno());
    let errno = errno.map(|it| it.raw());
    ensure!(errno == Some(nix::libc::EINVAL), "{}", outcome(result));
    Ok(())
}

/// RESTORE of a checkpoint whose devices nobody can read.
fn unreadable(kfd: &Arc<Kfd>, kept: &mut Checkpoint) -> raw::Outcome {
    let mut args = uapi::kfd_ioctl_criu_args {
        devices: 8,
        ..kept.args(uapi::KFD_CRIU_OP_RESTORE)
    };
    raw::ioctl(kfd.as_fd(), uapi::IOC_CRIU_OP, &mut args)
}
