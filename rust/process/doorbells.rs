// SPDX-License-Identifier: GPL-2.0-only

//! The doorbells of a process on a GPU, as its user sees them: a mapping of /dev/kfd, or a buffer.

use super::ProcessDevice;
use crate::{
    doorbell,
    linux::mmap::Vma, //
};
use kernel::prelude::*;

/// Where the CPU finds the process's doorbells on `device`; they are made if they are not yet.
pub(crate) fn physical_address(device: &ProcessDevice) -> Result<u64> {
    Ok(device.queues().doorbells(device)?.physical_address())
}

/// Bytes of them.
pub(crate) fn bytes(device: &ProcessDevice) -> usize {
    doorbell::bytes(&device.node().generation().chip)
}

/// Maps the process's doorbells on `device`: all of them or `EINVAL`.
pub(crate) fn mmap(device: &ProcessDevice, vma: &Vma) -> Result {
    if vma.size() != bytes(device) {
        return Err(EINVAL);
    }
    vma.map_io(physical_address(device)?)
}
