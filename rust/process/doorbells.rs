// SPDX-License-Identifier: GPL-2.0-only

//! The doorbells of a process on a GPU, as its user sees them: a mapping of /dev/kfd, or a buffer.

use super::{
    Process,
    ProcessDevice, //
};
use crate::{
    linux::mmap::Vma,
    mmap::MmapTarget,
    sched::doorbells::slice_bytes, //
};
use kernel::prelude::*;

/// Where the CPU finds the process's doorbells on `device`; they are made if they are not yet.
pub(crate) fn physical_address(device: &ProcessDevice) -> Result<u64> {
    Ok(device.queues().doorbells(device)?.physical_address())
}

/// Bytes of them.
pub(crate) fn bytes(device: &ProcessDevice) -> usize {
    slice_bytes(&device.node().generation().chip)
}

/// Maps the process's doorbells on `device`: all of them or `EINVAL`. `mark`: see
/// [`Vma::map_io`].
pub(crate) fn mmap(device: &ProcessDevice, vma: &Vma, mark: u64) -> Result {
    if vma.size() != bytes(device) {
        return Err(EINVAL);
    }
    // Where it is found to be taken away, whatever the user has put into what is ignored.
    vma.set_offset(MmapTarget::Doorbell(device.node().id()).to_offset());
    vma.map_io(physical_address(device)?, mark)
}

/// Their page at that byte is touched for the first time, or was taken away: its bus address.
/// Whoever rings has work for the queues.
pub(crate) fn touched(process: &Process, device: &ProcessDevice, offset: u64) -> Result<u64> {
    // CAST: A size.
    if offset >= bytes(device) as u64 {
        return Err(EINVAL);
    }
    if let Some(svm) = process.svm() {
        svm.hurry();
    }
    Ok(physical_address(device)? + offset)
}
