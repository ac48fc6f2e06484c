// SPDX-License-Identifier: GPL-2.0-only

//! Files without a name (`include/linux/anon_inodes.h`) that are read, written and polled.
//!
//! Each open file owns one [`AnonFile`]; [`Operations`] are shared by all of a kind and live for
//! ever. An open file pins the module.

use super::ffi;
use core::marker::PhantomData;
use kernel::{
    bindings,
    fs::File,
    prelude::*,
    sync::{
        poll::{
            PollCondVar,
            PollTable, //
        },
        Arc, //
    },
    types::ForeignOwnable,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// What such a file does.
pub(crate) trait AnonFile: Send + Sync + 'static {
    /// Takes at most `bytes` bytes for a reader. May sleep.
    fn read(&self, bytes: usize) -> Result<KVec<u8>>;
    /// Somebody wrote a word: the first eight bytes of a write.
    fn write(&self, word: u64);
    /// Who polls waits for this.
    fn waits_on(&self) -> &PollCondVar;
    /// Whether there is something to read.
    fn is_readable(&self) -> bool;
}

/// The `file_operations` of a kind of files.
pub(crate) struct Operations<T> {
    raw: bindings::file_operations,
    _kind: PhantomData<fn() -> T>,
}

// SAFETY: The table is never written after construction; its functions may run on any thread.
unsafe impl<T: AnonFile> Send for Operations<T> {}
// SAFETY: As above.
unsafe impl<T: AnonFile> Sync for Operations<T> {}

impl<T: AnonFile> Operations<T> {
    /// The table. While a file is open, `module` cannot be unloaded.
    pub(crate) fn new(module: &'static ThisModule) -> Self {
        Self {
            raw: bindings::file_operations {
                owner: module.as_ptr(),
                read: Some(Self::read),
                write: Some(Self::write),
                poll: Some(Self::poll),
                release: Some(Self::release),
                ..pin_init::zeroed()
            },
            _kind: PhantomData,
        }
    }

    /// # Safety
    ///
    /// `file` must be an open file made by [`open`] with a `T`.
    unsafe fn data<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: `open` stored the `Arc`, and `release` cannot run during a call on the file.
        let data = unsafe { Arc::<T>::borrow((*file).private_data) };
        // SAFETY: As above: it lives as long as the call, which is what `'a` stands for.
        unsafe { &*core::ptr::from_ref::<T>(&data) }
    }

    /// # Safety
    ///
    /// `file` as for `data`; the user's memory is checked here.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        user: *mut c_char,
        bytes: usize,
        _: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: By this function's own contract.
        let data = unsafe { Self::data(file) };
        let result = data.read(bytes).and_then(|taken| {
            let user = UserSlice::new(UserPtr::from_addr(user as usize), taken.len());
            user.writer().write_slice(&taken)?;
            Ok(taken.len())
        });
        match result {
            // CAST: less than a page or two.
            Ok(count) => count as isize,
            // CAST: an errno fits every integer.
            Err(error) => error.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// As for `read`.
    unsafe extern "C" fn write(
        file: *mut bindings::file,
        user: *const c_char,
        bytes: usize,
        _: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: By this function's own contract.
        let data = unsafe { Self::data(file) };
        if bytes < size_of::<u64>() {
            // CAST: an errno fits every integer.
            return EFAULT.to_errno() as isize;
        }
        let user = UserSlice::new(UserPtr::from_addr(user as usize), size_of::<u64>());
        match user.reader().read::<u64>() {
            Ok(word) => {
                data.write(word);
                // CAST: 8.
                size_of::<u64>() as isize
            }
            // CAST: an errno fits every integer.
            Err(error) => error.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// `file` as for `data`; `table` is null or that of a poll that runs.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: By this function's own contract.
        let data = unsafe { Self::data(file) };
        // SAFETY: The file is open for the time of the call, and nobody has its position.
        let file = unsafe { File::from_raw_file(file) };
        // SAFETY: By this function's own contract.
        unsafe { PollTable::from_raw(table) }.register_wait(file, data.waits_on());
        if data.is_readable() {
            bindings::POLLIN | bindings::POLLRDNORM
        } else {
            0
        }
    }

    /// # Safety
    ///
    /// `file` as for `data`, with its last descriptor closed.
    unsafe extern "C" fn release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` stored the `Arc`, and nobody uses this file any more.
        drop(unsafe { Arc::<T>::from_foreign((*file).private_data) });
        0
    }
}

/// Opens a file for the current process, which may read and write it. Returns its descriptor.
pub(crate) fn open<T: AnonFile>(
    name: &'static CStr,
    operations: &'static Operations<T>,
    data: Arc<T>,
) -> Result<i32> {
    let data = data.into_foreign();
    // SAFETY: The name and the operations live for ever; `data` is what they expect.
    let fd = unsafe {
        ffi::anon_inode_getfd(
            name.as_char_ptr(),
            &raw const operations.raw,
            data,
            bindings::O_RDWR as c_int,
        )
    };
    if fd < 0 {
        // SAFETY: No file was made, so `data` is still ours.
        drop(unsafe { Arc::<T>::from_foreign(data) });
        return Err(Error::from_errno(fd));
    }
    Ok(fd)
}
