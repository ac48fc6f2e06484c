// SPDX-License-Identifier: GPL-2.0-only

//! Gates: whether processes may get GPUs. The module has one for all of them, and each device one
//! for those processes that may use it.
//!
//! Who closes one learns from [`Gpu::processes`](super::Gpu::processes), read with the nodes locked
//! ([`with_nodes`](super::with_nodes)), whether somebody was faster: a process takes its nodes
//! under the same lock, and looks at the gates there.

use crate::compat::smp_mb;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Release, //
            },
            Atomic, //
        },
        Arc, //
    },
};

/// How many reasons there are to refuse every process: devices are changing hands.
static CLOSED: Atomic<i32> = Atomic::new(0);

/// Gates of devices that are closed.
static CLOSED_DEVICES: Atomic<i32> = Atomic::new(0);

/// From now on opening fails with `EAGAIN`, until as many calls of [`open`]. Those already inside
/// are not affected.
pub(crate) fn close() {
    let _: i32 = CLOSED.fetch_add(1, Release);
    // Pairs with the one in `settle`: either that finds the gate closed, or we find its process.
    smp_mb();
}

/// Undoes one [`close`].
pub(crate) fn open() {
    let _: i32 = CLOSED.fetch_sub(1, Release);
}

/// Whether it is closed for all.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Acquire) > 0
}

/// Whether that of some device is, which may have no nodes for the time.
pub(crate) fn is_any_closed() -> bool {
    CLOSED_DEVICES.load(Acquire) > 0
}

/// For whoever has become a process that others find, before it looks at gates once more.
pub(crate) fn settle() {
    // Pairs with those in `close` and `Gate::close`.
    smp_mb();
}

/// One device's. It outlives what is served of the device, which ends and begins anew when the
/// device is partitioned.
pub(crate) struct Gate(Atomic<i32>);

impl Gate {
    /// An open one.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }

    /// The device is being reset or partitioned: from now on opening fails with `EAGAIN` for who
    /// may use it, until as many calls of [`Gate::open`]. Never sleeps.
    pub(crate) fn close(&self) {
        let _: i32 = CLOSED_DEVICES.fetch_add(1, Release);
        let _: i32 = self.0.fetch_add(1, Release);
        // Pairs with the one in `settle`.
        smp_mb();
    }

    /// Undoes one [`Gate::close`].
    pub(crate) fn open(&self) {
        let _: i32 = self.0.fetch_sub(1, Release);
        let _: i32 = CLOSED_DEVICES.fetch_sub(1, Release);
    }

    /// Whether it is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Acquire) > 0
    }
}
