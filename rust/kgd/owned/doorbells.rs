// SPDX-License-Identifier: GPL-2.0-only

//! [`Doorbells`]: the kernel's part of the doorbells' aperture.

use super::super::{
    Kgd,
    RawDoorbells, //
};
use crate::ids::DoorbellIndex;
use core::mem::ManuallyDrop;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Doorbells of the aperture.
pub(crate) struct Doorbells {
    kgd: Arc<dyn Kgd>,
    raw: ManuallyDrop<RawDoorbells>,
    size: usize,
}

impl Doorbells {
    /// Allocates `size` bytes of doorbells, a multiple of the page size.
    pub(crate) fn new(kgd: Arc<dyn Kgd>, size: usize, map: bool) -> Result<Self> {
        let raw = kgd.alloc_doorbells(size, map)?;
        Ok(Self {
            kgd,
            raw: ManuallyDrop::new(raw),
            size,
        })
    }

    /// Bytes of them.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The first one's place on the BAR.
    pub(crate) fn first(&self) -> DoorbellIndex {
        self.raw.index
    }

    /// Where the CPU finds the first one: a physical address.
    pub(crate) fn physical_address(&self) -> u64 {
        self.kgd.facts().doorbell_address + u64::from(self.first().raw()) * 4
    }

    /// Rings the one at `offset` bytes. Never sleeps.
    pub(crate) fn ring(&self, offset: usize, value: u64) -> Result {
        if offset % size_of::<u64>() != 0 || offset >= self.size {
            return Err(EINVAL);
        }
        // CAST: less than `size`, which is at most the 32-bit doorbell aperture.
        self.kgd.ring_doorbell(&self.raw, offset as u32, value)
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        // SAFETY: `raw` is taken here only, and nobody uses `self` after drop.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        self.kgd.free_doorbells(raw);
    }
}
