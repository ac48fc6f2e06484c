// SPDX-License-Identifier: GPL-2.0-only

//! Directories and read-only files of sysfs (`include/linux/kobject.h`, `include/linux/sysfs.h`).
//!
//! A [`Directory`] owns its files and its subdirectories. The kobjects are the kernel's own kind
//! (`kobject_create_and_add`): the kernel frees one with code of its own when the last user of the
//! directory is gone, so none of ours need wait for that. Our part, the files, is out of use as
//! soon as a directory is deleted: that waits for readers inside, and lets no other in.

use crate::compat::kobj_attribute;
use core::{
    fmt::{
        self,
        Write, //
    },
    ptr::NonNull, //
};
use kernel::{
    bindings,
    container_of,
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    str::CString, //
};

/// The content of a file.
pub(crate) trait Show: Send + Sync + 'static {
    /// Writes the content. May sleep. An error is what the reader gets.
    fn show(&self, out: &mut Output<'_>) -> Result;
}

/// Where a file's content goes: a page.
pub(crate) struct Output<'a> {
    page: &'a mut [u8],
    len: usize,
}

impl Write for Output<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.checked_add(text.len()).ok_or(fmt::Error)?;
        let to = self.page.get_mut(self.len..end).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// A file of a directory.
#[repr(C)]
struct File<T> {
    attribute: bindings::kobj_attribute,
    content: T,
    /// The name, if it is not a static one.
    _name: Option<CString>,
}

impl<T: Show> File<T> {
    fn new(name: &'static CStr, content: T) -> Self {
        Self {
            attribute: Self::attribute(name.as_char_ptr()),
            content,
            _name: None,
        }
    }

    fn named(name: CString, content: T) -> Self {
        Self {
            // The name's bytes lie in memory of their own, and stay there when the file moves.
            attribute: Self::attribute(name.as_char_ptr()),
            content,
            _name: Some(name),
        }
    }

    fn attribute(name: *const c_char) -> bindings::kobj_attribute {
        kobj_attribute(attribute(name), Self::show)
    }

    /// # Safety
    ///
    /// `attribute` must be that of a `File<T>`, and `page` a page to write to.
    unsafe extern "C" fn show(
        _: *mut bindings::kobject,
        attribute: *mut bindings::kobj_attribute,
        page: *mut c_char,
    ) -> isize {
        let file: *const Self = container_of!(attribute, Self, attribute);
        // SAFETY: By this function's contract it is a file's; the directory that owns it waits for
        // this call before it lets go of the file.
        let file = unsafe { &*file };
        // SAFETY: sysfs gives a page that is ours until we return; it is cleared before.
        let page = unsafe { core::slice::from_raw_parts_mut(page.cast(), PAGE_SIZE) };
        let mut output = Output { page, len: 0 };
        match file.content.show(&mut output) {
            // CAST: at most a page.
            Ok(()) => output.len as isize,
            // CAST: an errno fits every integer.
            Err(error) => error.to_errno() as isize,
        }
    }
}

/// A read-only attribute. Its lock class is one for all, as for static ones.
#[cfg_attr(
    not(CONFIG_DEBUG_LOCK_ALLOC),
    expect(
        clippy::needless_update,
        reason = "only lockdep's kernel has more fields"
    )
)]
fn attribute(name: *const c_char) -> bindings::attribute {
    bindings::attribute {
        name,
        mode: 0o444,
        #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
        key: kernel::static_lock_class!().as_ptr(),
        ..pin_init::zeroed()
    }
}

/// The files that a directory is to have.
pub(crate) struct Files<T>(KVec<File<T>>);

impl<T: Show> Files<T> {
    /// None.
    pub(crate) fn new() -> Self {
        Self(KVec::new())
    }

    /// One more.
    pub(crate) fn add(&mut self, name: &'static CStr, content: T) -> Result {
        Ok(self.0.push(File::new(name, content), GFP_KERNEL)?)
    }

    /// One more, with a name that is made up.
    pub(crate) fn add_named(&mut self, name: fmt::Arguments<'_>, content: T) -> Result {
        let name = CString::try_from_fmt(name)?;
        Ok(self.0.push(File::named(name, content), GFP_KERNEL)?)
    }
}

/// A directory. Dropping it deletes it with all that is in it.
pub(crate) struct Directory<T> {
    kobject: NonNull<bindings::kobject>,
    /// Deleted before the directory itself.
    children: KVec<Directory<T>>,
    /// Never moved nor changed while the directory is there: sysfs points into it.
    files: Files<T>,
}

// SAFETY: The kernel does its own locking of kobjects; the rest is what `T` is.
unsafe impl<T: Send + Sync> Send for Directory<T> {}
// SAFETY: As above; there is nothing to do with a shared one.
unsafe impl<T: Send + Sync> Sync for Directory<T> {}

impl<T: Show> Directory<T> {
    /// A directory below that of a device, which the caller keeps until this one is dropped.
    pub(crate) fn below_device(
        device: &Device,
        name: fmt::Arguments<'_>,
        files: Files<T>,
    ) -> Result<Self> {
        // CAST: `Device` is a transparent wrapper of a `struct device` that C may change.
        let device = (&raw const *device).cast_mut().cast::<bindings::device>();
        // SAFETY: The device is valid, and so is the kobject in it.
        Self::below(unsafe { &raw mut (*device).kobj }, name, files)
    }

    /// A directory in this one.
    pub(crate) fn child(&mut self, name: fmt::Arguments<'_>, files: Files<T>) -> Result<&mut Self> {
        self.children.reserve(1, GFP_KERNEL)?;
        let child = Self::below(self.kobject.as_ptr(), name, files)?;
        // It cannot fail: there is room.
        self.children.push(child, GFP_KERNEL)?;
        self.children.last_mut().ok_or(ENOMEM)
    }

    /// A directory in this one that is the caller's. Whichever of the two goes first takes the
    /// other's entries along.
    pub(crate) fn own_child(&self, name: fmt::Arguments<'_>, files: Files<T>) -> Result<Self> {
        Self::below(self.kobject.as_ptr(), name, files)
    }

    /// The first directory in this one that is not the caller's.
    pub(crate) fn first_child(&mut self) -> Option<&mut Self> {
        self.children.first_mut()
    }

    /// Deletes all directories in this one.
    pub(crate) fn clear(&mut self) {
        self.children.clear();
    }

    /// `parent` must be a live kobject: only called with a device's or a directory's.
    fn below(
        parent: *mut bindings::kobject,
        name: fmt::Arguments<'_>,
        files: Files<T>,
    ) -> Result<Self> {
        let name = CString::try_from_fmt(name)?;
        // SAFETY: The parent is live (see above); the name is copied.
        let kobject = unsafe { bindings::kobject_create_and_add(name.as_char_ptr(), parent) };
        let kobject = NonNull::new(kobject).ok_or(ENOMEM)?;
        let directory = Self {
            kobject,
            children: KVec::new(),
            files,
        };
        for file in &directory.files.0 {
            directory.publish(file)?;
        }
        Ok(directory)
    }

    fn publish(&self, file: &File<T>) -> Result {
        let attribute = &raw const file.attribute.attr;
        let namespace = core::ptr::null();
        // SAFETY: The kobject is live; the attribute stays where it is until `drop` has deleted the
        // directory: it lies in the vector's heap memory, and the vector is not changed.
        kernel::error::to_result(unsafe {
            bindings::sysfs_create_file_ns(self.kobject.as_ptr(), attribute, namespace)
        })
    }
}

impl<T> Drop for Directory<T> {
    fn drop(&mut self) {
        self.children.clear();
        // SAFETY: `below` made it. Deleting waits until nobody is inside `File::show`.
        unsafe { bindings::kobject_del(self.kobject.as_ptr()) };
        // SAFETY: Our reference, the first and only one.
        unsafe { bindings::kobject_put(self.kobject.as_ptr()) };
    }
}
