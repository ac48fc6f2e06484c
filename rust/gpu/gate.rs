// SPDX-License-Identifier: GPL-2.0-only

//! Gates: whether processes may get GPUs. The module has one for all of them, and each device one
//! for those processes that may use it.
//!
//! Who closes one learns from [`Gpu::processes`](super::Gpu::processes), read with the nodes locked
//! ([`with_nodes`](super::with_nodes)), whether somebody was faster: a process takes its nodes
//! under the same lock, and looks at the gates there.

use crate::{
    compat::smp_mb,
    linux::timekeeping::boot_nanoseconds, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Relaxed,
                Release, //
            },
            Atomic, //
        },
        Arc, //
    },
    time::Delta,
};

/// How long a reset takes at most, on hardware some seconds.
const LONGEST: Delta = Delta::from_secs(60);

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
pub(crate) struct Gate {
    closed: Atomic<i32>,
    /// When it was closed last, in nanoseconds of [`boot_nanoseconds`].
    since: Atomic<u64>,
}

impl Gate {
    /// An open one.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let gate = Self {
            closed: Atomic::new(0),
            since: Atomic::new(0),
        };
        Ok(Arc::new(gate, GFP_KERNEL)?)
    }

    /// The device is being reset or partitioned: from now on opening fails with `EAGAIN` for who
    /// may use it, until as many calls of [`Gate::open`]. Never sleeps.
    pub(crate) fn close(&self) {
        self.since.store(boot_nanoseconds(), Relaxed);
        let _: i32 = CLOSED_DEVICES.fetch_add(1, Release);
        let _: i32 = self.closed.fetch_add(1, Release);
        // Pairs with the one in `settle`.
        smp_mb();
    }

    /// It is closed already, and is from now on for another reason: what waited for too long for
    /// the one before waits anew.
    pub(crate) fn again(&self) {
        self.since.store(boot_nanoseconds(), Relaxed);
    }

    /// Undoes one [`Gate::close`].
    pub(crate) fn open(&self) {
        let _: i32 = self.closed.fetch_sub(1, Release);
        let _: i32 = CLOSED_DEVICES.fetch_sub(1, Release);
    }

    /// Whether it is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire) > 0
    }

    /// Whether it is closed, and has not been for so long that nobody needs to wait for it: amdgpu
    /// tells of the end of a reset only if that came to a good one.
    pub(crate) fn opens_soon(&self) -> bool {
        self.opens_within(LONGEST)
    }

    fn opens_within(&self, limit: Delta) -> bool {
        let closed = boot_nanoseconds().saturating_sub(self.since.load(Relaxed));
        // CAST: Not negative.
        self.is_closed() && closed < limit.as_nanos() as u64
    }
}

#[kernel::macros::kunit_tests(amdkfd_gpu_gate)]
mod tests {
    use super::*;
    use kernel::time::delay::fsleep;

    #[test]
    fn a_gate_that_stays_closed_is_waited_for_within_bounds() {
        const LIMIT: Delta = Delta::from_millis(20);
        let gate = Gate::new().unwrap();
        assert!(!gate.opens_within(LIMIT));
        gate.close();
        assert!(gate.opens_within(Delta::from_secs(60)));
        // Twice: where ticks come late, jiffies are behind, and sleeps are shorter.
        fsleep(LIMIT * 2);
        assert!(gate.is_closed() && !gate.opens_within(LIMIT));
        gate.again();
        assert!(gate.opens_within(Delta::from_secs(60)));
        gate.open();
        assert!(!gate.is_closed() && !gate.opens_soon());
    }
}
