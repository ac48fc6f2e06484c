// SPDX-License-Identifier: GPL-2.0-only

//! Watch points of a node: their addresses are in registers that the waves of all its processes
//! share, so that a process takes one before it says which of its accesses are caught there. One
//! [`WatchPoints`] for each node; a [`WatchPoint`] is one that somebody has.

use super::Node;
use crate::{
    bits::set_bits,
    gfx::WATCH_POINTS,
    kgd::ResetGuard, //
};
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

/// Which are taken.
pub(super) struct WatchPoints([Atomic<bool>; WATCH_POINTS]);

impl WatchPoints {
    /// None.
    pub(super) fn new() -> Result<Arc<Self>> {
        let free = [const { Atomic::new(false) }; WATCH_POINTS];
        Ok(Arc::new(Self(free), GFP_KERNEL)?)
    }

    /// The lowest that nobody has.
    fn take(self: &Arc<Self>) -> Option<WatchPoint> {
        let number = self.0.iter().position(|taken| !taken.xchg(true, Acquire))?;
        Some(WatchPoint {
            all: self.clone(),
            number,
        })
    }
}

/// A watch point that somebody has. Dropped: it is free, and must be in nobody's packet then.
pub(crate) struct WatchPoint {
    all: Arc<WatchPoints>,
    number: usize,
}

impl WatchPoint {
    /// Its number, below [`WATCH_POINTS`].
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for WatchPoint {
    fn drop(&mut self) {
        if let Some(taken) = self.all.0.get(self.number) {
            taken.store(false, Release);
        }
    }
}

impl Node {
    /// A watch point at `address`, for nobody's waves as yet. `ENOMEM`: all are taken. `EIO`: the
    /// GPU is being reset.
    pub(crate) fn watch(&self, address: u64) -> Result<WatchPoint> {
        let point = self.watch_points.take().ok_or(ENOMEM)?;
        let kgd = &**self.kgd();
        let _guard = ResetGuard::try_new(kgd)?;
        for xcc in set_bits(self.xcc_mask().into()) {
            // CAST: below 4.
            kgd.set_watch_address(point.number() as u32, address, xcc)?;
        }
        Ok(point)
    }
}

#[kernel::macros::kunit_tests(amdkfd_gpu_watch)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once() {
        let all = WatchPoints::new().unwrap();
        let mut taken = KVec::new();
        for number in 0..WATCH_POINTS {
            let point = all.take().unwrap();
            assert_eq!(point.number(), number);
            taken.push(point, GFP_KERNEL).unwrap();
        }
        assert!(all.take().is_none());
        drop(taken.remove(2).unwrap());
        assert_eq!(all.take().map(|point| point.number()), Some(2));
    }
}
