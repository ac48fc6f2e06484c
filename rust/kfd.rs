// SPDX-License-Identifier: GPL-2.0-only

//! Kfd: what userspace sees of this driver as a whole, /dev/kfd and the topology. One, from
//! amdgpu's `kgd2kfd_init` to its `kgd2kfd_exit`, owned by the static here.

use crate::{
    file,
    linux::chrdev::Registration,
    mappings,
    process,
    topology, //
};
use kernel::{
    prelude::*,
    sync::global_lock, //
};

struct Kfd {
    device: Registration,
}

impl Drop for Kfd {
    fn drop(&mut self) {
        // The topology hangs under the device.
        topology::exit();
        process::files::exit();
    }
}

global_lock! {
    // SAFETY: `init` below runs before anything else in the module.
    unsafe(uninit) static KFD: Mutex<Option<Kfd>> = None;
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn init() {
    // SAFETY: by this function's own contract.
    unsafe { KFD.init() };
}

/// Publishes /dev/kfd and a topology without GPUs.
pub(crate) fn publish() -> Result {
    let device = file::publish()?;
    topology::init(device.device())?;
    // The topology hangs under the device, which goes.
    process::files::init(device.device()).inspect_err(|_| topology::exit())?;
    mappings::set(Some(device.mappings().clone()));
    *KFD.lock() = Some(Kfd { device });
    Ok(())
}

/// The major number of /dev/kfd; 0 while it is not published.
pub(crate) fn major() -> u32 {
    KFD.lock().as_ref().map_or(0, |kfd| kfd.device.major())
}

/// Retracts both.
pub(crate) fn retract() {
    mappings::set(None);
    let kfd = KFD.lock().take();
    drop(kfd);
}
