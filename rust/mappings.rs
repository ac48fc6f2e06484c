// SPDX-License-Identifier: GPL-2.0-only

//! What users have mapped of /dev/kfd, to be taken from all of them at once, or from one. There is
//! some while /dev/kfd is published.

use crate::{
    linux::chrdev::Mappings,
    mmap::MmapTarget, //
};
use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::{
        global_lock,
        Arc, //
    },
};

global_lock! {
    // SAFETY: `init` below runs before anything else in the module.
    unsafe(uninit) static MAPPINGS: Mutex<Option<Arc<Mappings>>> = None;
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn init() {
    // SAFETY: By this function's own contract.
    unsafe { MAPPINGS.init() };
}

/// From now on it is these; `None`: there are none.
pub(crate) fn set(mappings: Option<Arc<Mappings>>) {
    let old = core::mem::replace(&mut *MAPPINGS.lock(), mappings);
    drop(old);
}

/// Takes so many bytes of a thing of ours from all who have mapped it: until they touch it again,
/// if it can be had then. Waits for what their users have others wait for (`Mappings::zap`).
pub(crate) fn zap(target: MmapTarget, bytes: usize) {
    let mappings = MAPPINGS.lock().clone();
    if let Some(mappings) = mappings {
        mappings.zap(target.to_offset(), bytes as u64);
    }
}

/// Takes doorbells from all who have mapped them in one address space: until they touch them
/// again. Waits for its own user alone. `EAGAIN`: its mmap_lock is taken.
pub(crate) fn zap_doorbells_in(mm: &MmWithUser) -> Result {
    let is_doorbell = |offset| {
        let target = MmapTarget::from_offset(offset);
        matches!(target, Ok(MmapTarget::Doorbell(_)))
    };
    let mappings = MAPPINGS.lock().clone();
    mappings.map_or(Ok(()), |mappings| mappings.zap_in(mm, is_doorbell))
}
