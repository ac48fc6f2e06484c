// SPDX-License-Identifier: GPL-2.0-only

//! Tables of the firmware (`include/acpi/acpixf.h`).

use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    bindings,
    prelude::*, //
};

/// A table, mapped until dropped.
pub(crate) struct AcpiTable(NonNull<bindings::acpi_table_header>);

impl AcpiTable {
    /// The first table of this signature.
    pub(crate) fn get(signature: &'static CStr) -> Option<Self> {
        let mut table = null_mut();
        // SAFETY: The signature is a string that is only read; `table` is ours to write to.
        let status =
            unsafe { bindings::acpi_get_table(signature.as_char_ptr().cast_mut(), 0, &mut table) };
        if status != 0 {
            return None;
        }
        NonNull::new(table).map(Self)
    }

    /// The whole table, header and all.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: A table that was got is mapped in its whole length, which its header states,
        // until it is put. Nobody writes to it.
        unsafe {
            let length = (*self.0.as_ptr()).length as usize;
            core::slice::from_raw_parts(self.0.as_ptr().cast(), length)
        }
    }
}

impl Drop for AcpiTable {
    fn drop(&mut self) {
        // SAFETY: `get` got it.
        unsafe { bindings::acpi_put_table(self.0.as_ptr()) };
    }
}
