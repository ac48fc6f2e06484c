// SPDX-License-Identifier: GPL-2.0-only

//! A device class and the devices in it (`include/linux/device/class.h`).
//!
//! `/sys/class/<name>` and, for a device without a parent, `/sys/devices/virtual/<name>/<device>`.

use core::ptr::NonNull;
use kernel::{
    bindings,
    device,
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};

/// A registered class. The driver core owns its memory: it may look at a class for some time after
/// the last device and the registration are gone.
pub(crate) struct Class(NonNull<bindings::class>);

// SAFETY: The class is read-only after registration, and the driver core does its own locking.
unsafe impl Send for Class {}
// SAFETY: As above.
unsafe impl Sync for Class {}

impl Class {
    /// Registers class `name`.
    pub(crate) fn new(name: &'static CStr) -> Result<Arc<Self>> {
        // SAFETY: The name lives as long as the module. The class may outlive that, but all that
        // the driver core does with the name after `class_destroy` is to print it in debug
        // messages, where these are on.
        let raw = from_err_ptr(unsafe { bindings::class_create(name.as_char_ptr()) })?;
        let class = Self(NonNull::new(raw).ok_or(ENODEV)?);
        Ok(Arc::new(class, GFP_KERNEL)?)
    }

    /// Creates device `name` with number `number` and no parent.
    pub(crate) fn device(
        self: &Arc<Self>,
        number: bindings::dev_t,
        name: &'static CStr,
    ) -> Result<ClassDevice> {
        // SAFETY: The class is registered; the format takes one string, and `name` is one.
        let raw = from_err_ptr(unsafe {
            bindings::device_create(
                self.0.as_ptr(),
                core::ptr::null_mut(),
                number,
                core::ptr::null_mut(),
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENODEV)?;
        Ok(ClassDevice {
            raw,
            number,
            class: self.clone(),
        })
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`; every device holds a reference, so none is left.
        unsafe { bindings::class_destroy(self.0.as_ptr()) };
    }
}

/// A device of a [`Class`].
pub(crate) struct ClassDevice {
    raw: NonNull<bindings::device>,
    number: bindings::dev_t,
    class: Arc<Class>,
}

// SAFETY: The driver core does its own locking.
unsafe impl Send for ClassDevice {}
// SAFETY: As above.
unsafe impl Sync for ClassDevice {}

impl AsRef<device::Device> for ClassDevice {
    fn as_ref(&self) -> &device::Device {
        // SAFETY: The device lives until `drop`, and the borrow cannot outlive `self`.
        unsafe { device::Device::from_raw(self.raw.as_ptr()) }
    }
}

impl Drop for ClassDevice {
    fn drop(&mut self) {
        // SAFETY: `device` created this device in this class.
        unsafe { bindings::device_destroy(self.class.0.as_ptr(), self.number) };
    }
}
