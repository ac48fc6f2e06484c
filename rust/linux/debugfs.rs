// SPDX-License-Identifier: GPL-2.0-only

//! Files in debugfs (`include/linux/debugfs.h`).
//!
//! The kernel crate has such files, too, but the tables of their operations lie in the module that
//! makes them and name no owner: whoever has one open over an rmmod closes it by a function pointer
//! in memory that is free. An open [`File`] pins the module. Each must be made when the module's
//! start cannot fail any more: a start that fails frees the module, whoever pins it.
//!
//! Where the kernel has no debugfs, or makes no file, this does nothing, as is the custom.

use kernel::{
    bindings, fmt,
    prelude::*,
    seq_file::SeqFile,
    sync::{
        Arc,
        SetOnce, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceReader, //
    },
};

/// The operations of files that are read, and of those that are written as well.
struct Operations {
    read: bindings::file_operations,
    write: bindings::file_operations,
}

// SAFETY: The tables are never written after construction; their functions may run on any thread.
unsafe impl Send for Operations {}
// SAFETY: As above.
unsafe impl Sync for Operations {}

static OPERATIONS: SetOnce<Operations> = SetOnce::new();

/// Makes files possible, which pin `module` while they are open.
pub(crate) fn prepare(module: &'static ThisModule) {
    let read = || bindings::file_operations {
        owner: module.as_ptr(),
        open: Some(open),
        read: Some(bindings::seq_read),
        llseek: Some(bindings::seq_lseek),
        release: Some(bindings::single_release),
        ..pin_init::zeroed()
    };
    let _: bool = OPERATIONS.populate(Operations {
        read: read(),
        write: bindings::file_operations {
            write: Some(write),
            ..read()
        },
    });
}

/// An entry. When it is dropped it is removed: nobody is inside a function of its file any more but
/// `release`, nor will be.
struct Entry {
    /// Null, an error, or an entry that only this removes.
    raw: *mut bindings::dentry,
    /// What is in a directory goes before it does.
    _parent: Option<Arc<Self>>,
}

// SAFETY: An entry may be used and removed from any thread.
unsafe impl Send for Entry {}
// SAFETY: As above; what is in it is looked at by the kernel only.
unsafe impl Sync for Entry {}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: Nobody else removes it; null and errors are permitted.
        #[cfg(CONFIG_DEBUG_FS)]
        unsafe {
            bindings::debugfs_remove(self.raw);
        }
    }
}

/// What is made of these in a kernel without debugfs.
#[cfg(not(CONFIG_DEBUG_FS))]
fn no_entry<T>(_name: &CStr, _from: T) -> *mut bindings::dentry {
    core::ptr::null_mut()
}

/// A directory, which goes with its last owner. What is in it owns it.
#[derive(Clone)]
pub(crate) struct Directory(Arc<Entry>);

impl Directory {
    /// One in `parent`, or in debugfs itself.
    pub(crate) fn new(name: &CStr, parent: Option<&Self>) -> Result<Self> {
        let parent = parent.map(|parent| parent.0.clone());
        let of = parent.as_ref().map_or(core::ptr::null_mut(), |parent| parent.raw);
        // SAFETY: The name is copied; the parent is null, an error, or there.
        #[cfg(CONFIG_DEBUG_FS)]
        let raw = unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), of) };
        #[cfg(not(CONFIG_DEBUG_FS))]
        let raw = no_entry(name, of);
        let entry = Entry {
            raw,
            _parent: parent,
        };
        Ok(Self(Arc::new(entry, GFP_KERNEL)?))
    }

    /// A file that root may read.
    pub(crate) fn file(
        &self,
        name: &CStr,
        show: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> Result<File> {
        self.make(name, show, None)
    }

    /// A file that root may read and write. What is written comes to `write` at once.
    pub(crate) fn writable_file(
        &self,
        name: &CStr,
        show: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
        write: fn(&mut UserSliceReader) -> Result,
    ) -> Result<File> {
        self.make(name, show, Some(write))
    }

    fn make(
        &self,
        name: &CStr,
        show: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
        write: Option<fn(&mut UserSliceReader) -> Result>,
    ) -> Result<File> {
        let operations = OPERATIONS.as_ref().ok_or(ENODEV)?;
        let (operations, mode) = match write {
            None => (&operations.read, 0o400),
            Some(_) => (&operations.write, 0o600),
        };
        let show = KBox::new(show, GFP_KERNEL)?;
        let contents = KBox::new(Contents { show, write }, GFP_KERNEL)?;
        // SAFETY: The name is copied; the parent is an error or there. The contents are freed when
        // the entry is gone, and are what the operations expect. These live for ever.
        #[cfg(CONFIG_DEBUG_FS)]
        let raw = unsafe {
            bindings::debugfs_create_file_full(
                name.as_char_ptr(),
                mode,
                self.0.raw,
                (&raw const *contents).cast_mut().cast(),
                core::ptr::null(),
                operations,
            )
        };
        #[cfg(not(CONFIG_DEBUG_FS))]
        let raw = no_entry(name, (operations, mode));
        Ok(File {
            _entry: Entry {
                raw,
                _parent: Some(self.0.clone()),
            },
            _contents: contents,
        })
    }
}

/// What a file shows, and what is done with what somebody writes to it.
struct Contents {
    show: KBox<dyn Fn(&mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync>,
    write: Option<fn(&mut UserSliceReader) -> Result>,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.show)(f)
    }
}

/// A file. Fields are dropped from top to bottom: nobody reads it any more when its contents go.
pub(crate) struct File {
    _entry: Entry,
    _contents: KBox<Contents>,
}

/// # Safety
///
/// `inode` is that of a [`File`] that is not being removed, `file` one that is being opened.
unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: By this function's own contract. What `show` gets is what the inode has.
    unsafe { bindings::single_open(file, Some(show), (*inode).i_private) }
}

/// # Safety
///
/// `seq` is that of an open [`File`], which is not removed before this returns.
unsafe extern "C" fn show(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: By this function's own contract; `open` left the contents there.
    let contents = unsafe { &*(*seq).private.cast::<Contents>() };
    // SAFETY: By this function's own contract; one thread at a time is here with it.
    unsafe { SeqFile::from_raw(seq) }.call_printf(fmt!("{contents}"));
    0
}

/// # Safety
///
/// `file` is an open one of a [`File`], which is not removed before this returns; the user's memory
/// is checked here.
unsafe extern "C" fn write(
    file: *mut bindings::file,
    user: *const c_char,
    bytes: usize,
    _: *mut bindings::loff_t,
) -> isize {
    // SAFETY: By this function's own contract; `single_open` left a `seq_file` there.
    let seq = unsafe { (*file).private_data.cast::<bindings::seq_file>() };
    // SAFETY: As for `show`.
    let contents = unsafe { &*(*seq).private.cast::<Contents>() };
    let mut reader = UserSlice::new(UserPtr::from_addr(user as usize), bytes).reader();
    let written = contents.write.ok_or(EINVAL);
    match written.and_then(|write| write(&mut reader)) {
        // CAST: The kernel lets nobody write more than an `isize` can count.
        Ok(()) => bytes as isize,
        // CAST: an errno fits every integer.
        Err(error) => error.to_errno() as isize,
    }
}
