// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the guest's processors have said to the GPU so far, counted: each access is a trap on the
//! model and an uncached round trip on hardware. One [`Traffic`] per GPU.

use std::sync::atomic::{AtomicU64, Ordering};

/// Accesses of the register and doorbell BARs. Those of packets and the memory window are not among
/// them.
#[derive(Default)]
pub struct Traffic {
    reads: AtomicU64,
    writes: AtomicU64,
    doorbells: AtomicU64,
}

impl Traffic {
    /// One read of BAR5.
    pub fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// One write of BAR5.
    pub fn write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// One write of BAR2.
    pub fn doorbell(&self) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads, writes and doorbells.
    pub fn counts(&self) -> [u64; 3] {
        [&self.reads, &self.writes, &self.doorbells].map(|count| count.load(Ordering::Relaxed))
    }
}
