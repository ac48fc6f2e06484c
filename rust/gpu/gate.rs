// SPDX-License-Identifier: GPL-2.0-only

//! The gate: whether processes may get GPUs. One for the module.
//!
//! Who closes it learns from [`Gpu::users`](super::Gpu::users), read with the nodes locked
//! ([`with_nodes`](super::with_nodes)), whether somebody was faster: a process takes its nodes
//! under the same lock, and looks at the gate there.

use crate::compat::smp_mb;
use kernel::sync::{
    atomic::{
        ordering::{
            Acquire,
            Release, //
        },
        Atomic, //
    }, //
};

/// How many reasons there are to refuse processes: the device is changing hands, or a GPU sleeps,
/// is being reset or partitioned.
static CLOSED: Atomic<i32> = Atomic::new(0);

/// From now on opening fails with `EAGAIN`, until as many calls of [`open`]. Those already inside
/// are not affected.
pub(crate) fn close() {
    let _: i32 = CLOSED.fetch_add(1, Release);
    // Pairs with the one in `is_closed_by_now`: either that finds the gate closed, or we find its
    // process.
    smp_mb();
}

/// Undoes one [`close`].
pub(crate) fn open() {
    let _: i32 = CLOSED.fetch_sub(1, Release);
}

/// Whether it is closed.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Acquire) > 0
}

/// The same, for whoever has become a process that others find.
pub(crate) fn is_closed_by_now() -> bool {
    // Pairs with the one in `close`.
    smp_mb();
    is_closed()
}
