// SPDX-License-Identifier: GPL-2.0-only

//! Files of the user's (`include/linux/fs.h`) that the kernel writes to on its own account.

use super::ffi;
use kernel::{
    fs::LocalFile,
    prelude::*,
    sync::aref::ARef, //
};

/// A file that somebody has open, to be told by.
pub(crate) struct NoticeFile(ARef<LocalFile>);

// SAFETY: The file's position, which alone is not safe to share, is not used: what is written goes
// where the file's own rules say, or to its beginning.
unsafe impl Send for NoticeFile {}
// SAFETY: As above.
unsafe impl Sync for NoticeFile {}

impl NoticeFile {
    /// The current task's file of this number. None: it has no way of being written, as /dev/kfd,
    /// which libhsakmt names where nothing is to be told. `EBADF`: the task has none, or not for
    /// writing; `EINVAL`: whoever writes to the file may have to wait for its reader, or it has
    /// none.
    pub(crate) fn get(number: u32) -> Result<Option<Self>> {
        let file = LocalFile::fget(number)?;
        // SAFETY: The file is open as long as the reference is held.
        let is_written = unsafe { ffi::amdkfd_check_nowait(file.as_ptr()) };
        kernel::error::to_result(is_written)?;
        Ok((is_written != 0).then_some(Self(file)))
    }

    /// Writes one byte with the credentials of who opened the file, if that needs no waiting for a
    /// reader. `EAGAIN`: it would, so that there is something to read already; others: it cannot be
    /// written. May sleep.
    pub(crate) fn write(&self, byte: u8) -> Result {
        let file: *mut kernel::bindings::file = self.0.as_ptr();
        // SAFETY: The file is open as long as the reference is held, and `get` has checked it.
        kernel::error::to_result(unsafe { ffi::amdkfd_write_nowait(file, byte) })
    }
}
