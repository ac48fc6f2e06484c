// SPDX-License-Identifier: GPL-2.0-only

//! Clocks that the kernel crate does not read (`include/linux/timekeeping.h`).

use kernel::bindings;

/// `CLOCK_MONOTONIC_RAW` in nanoseconds.
pub(crate) fn raw_nanoseconds() -> u64 {
    // SAFETY: May be called in any context. The clock is never negative.
    unsafe { bindings::ktime_get_raw() }.unsigned_abs()
}

/// `CLOCK_MONOTONIC` in nanoseconds: stands still while the machine sleeps.
pub(crate) fn monotonic_nanoseconds() -> u64 {
    // SAFETY: As above, but not while timekeeping is suspended, where nobody of ours runs.
    unsafe { bindings::ktime_get() }.unsigned_abs()
}

/// `CLOCK_BOOTTIME` in nanoseconds.
pub(crate) fn boot_nanoseconds() -> u64 {
    // SAFETY: As above.
    unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_BOOT) }.unsigned_abs()
}
