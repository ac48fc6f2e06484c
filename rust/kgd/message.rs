// SPDX-License-Identifier: GPL-2.0-only

//! Messages about a device: each begins with the PCI name of the device, as those of C's `dev_err`.

use core::fmt;
use kernel::prelude::*;

/// The name of a device on the PCI bus, as the kernel's own messages have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PciName {
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) devfn: u32,
}

impl fmt::Display for PciName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, function) = (self.devfn >> 3, self.devfn & 7);
        write!(
            f,
            "{:04x}:{:02x}:{device:02x}.{function}",
            self.domain, self.bus
        )
    }
}

impl kernel::fmt::Display for PciName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What [`gpu_err`] calls.
#[cold]
#[inline(never)]
pub(crate) fn error(name: PciName, text: fmt::Arguments<'_>) {
    pr_err!("{name}: {text}");
}

/// What [`gpu_warn`] calls.
#[cold]
#[inline(never)]
pub(crate) fn warning(name: PciName, text: fmt::Arguments<'_>) {
    pr_warn!("{name}: {text}");
}

/// What [`gpu_info`] calls.
#[cold]
#[inline(never)]
pub(crate) fn info(name: PciName, text: fmt::Arguments<'_>) {
    pr_info!("{name}: {text}");
}

/// An error of a device: like `pr_err!`, with the device's name (a [`PciName`]) in front.
macro_rules! gpu_err {
    ($name:expr, $($text:tt)+) => {
        $crate::kgd::error($name, ::kernel::prelude::fmt!($($text)+))
    };
}

/// A warning about a device, as [`gpu_err`].
macro_rules! gpu_warn {
    ($name:expr, $($text:tt)+) => {
        $crate::kgd::warning($name, ::kernel::prelude::fmt!($($text)+))
    };
}

/// A message about a device, as [`gpu_err`].
macro_rules! gpu_info {
    ($name:expr, $($text:tt)+) => {
        $crate::kgd::info($name, ::kernel::prelude::fmt!($($text)+))
    };
}

pub(crate) use {
    gpu_err,
    gpu_info,
    gpu_warn, //
};

#[kernel::macros::kunit_tests(amdkfd_kgd_message)]
mod tests {
    use super::*;
    use kernel::str::CString;

    #[test]
    fn a_name_reads_as_lspci_has_it() {
        let name = PciName {
            domain: 1,
            bus: 0xc3,
            devfn: 5 << 3 | 2,
        };
        let text = CString::try_from_fmt(fmt!("{name}")).unwrap();
        assert_eq!(text.to_bytes(), b"0001:c3:05.2");
    }
}
