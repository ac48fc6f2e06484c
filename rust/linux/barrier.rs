// SPDX-License-Identifier: GPL-2.0-only

//! Barriers between the processor and devices (`asm/barrier.h`); not every kernel's crate has them.

use super::ffi;

/// `mb()`: all accesses before it come before all after it, for devices too, and to memory that is
/// mapped write-combined.
pub(crate) fn mb() {
    ffi::amdkfd_mb();
}
