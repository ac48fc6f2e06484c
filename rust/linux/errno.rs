// SPDX-License-Identifier: GPL-2.0-only

//! Errors that the kernel crate has no names for (`include/uapi/asm-generic/errno.h`).

use kernel::{
    bindings,
    error::Error, //
};

/// `EALREADY`
pub(crate) fn already() -> Error {
    // CAST: Errnos are below 4096.
    Error::from_errno(-(bindings::EALREADY as i32))
}

/// `ENODATA`
pub(crate) fn no_data() -> Error {
    // CAST: As above.
    Error::from_errno(-(bindings::ENODATA as i32))
}

/// `EOPNOTSUPP`
pub(crate) fn unsupported() -> Error {
    // CAST: As above.
    Error::from_errno(-(bindings::EOPNOTSUPP as i32))
}

/// `EADDRINUSE`
pub(crate) fn address_in_use() -> Error {
    // CAST: As above.
    Error::from_errno(-(bindings::EADDRINUSE as i32))
}

/// `ETIME`
pub(crate) fn timer_expired() -> Error {
    // CAST: As above.
    Error::from_errno(-(bindings::ETIME as i32))
}

/// `ECANCELED`
pub(crate) fn canceled() -> Error {
    // CAST: As above.
    Error::from_errno(-(bindings::ECANCELED as i32))
}
