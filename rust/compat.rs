// SPDX-License-Identifier: GPL-2.0-only

//! What differs between the kernels that the module is built for: one name for each, whatever this
//! kernel's crate calls it. `compat/features` lists them and tells how the build finds out.

use kernel::{
    bindings,
    prelude::*,
    sync::barrier, //
};

/// `smp_mb()` of C: all accesses before it come before all after it, for every processor.
#[inline]
pub(crate) fn smp_mb() {
    #[cfg(typed_barriers)]
    barrier::smp_mb(barrier::Full);
    #[cfg(not(typed_barriers))]
    barrier::smp_mb();
}

/// Initialises `slot` with `value`.
///
/// # Safety
///
/// `slot` is valid for writes and never moves until it is dropped; after an error it holds nothing.
pub(crate) unsafe fn pinned_init<T, E>(value: impl PinInit<T, E>, slot: *mut T) -> Result<(), E> {
    #[cfg(pin_init_is_init)]
    // SAFETY: By this function's contract.
    return unsafe { value.__init(slot) };
    #[cfg(not(pin_init_is_init))]
    // SAFETY: By this function's contract.
    unsafe {
        value.__pinned_init(slot)
    }
}

/// A function that shows an attribute of sysfs.
type ShowFn = unsafe extern "C" fn(
    *mut bindings::kobject,
    *mut bindings::kobj_attribute,
    *mut c_char,
) -> isize;

/// A read-only attribute of a kobject.
pub(crate) fn kobj_attribute(attr: bindings::attribute, show: ShowFn) -> bindings::kobj_attribute {
    #[cfg(const_attributes)]
    return bindings::kobj_attribute {
        attr,
        __bindgen_anon_1: bindings::kobj_attribute__bindgen_ty_1 { show: Some(show) },
        __bindgen_anon_2: bindings::kobj_attribute__bindgen_ty_2 { store: None },
    };
    #[cfg(not(const_attributes))]
    bindings::kobj_attribute {
        attr,
        show: Some(show),
        store: None,
    }
}
