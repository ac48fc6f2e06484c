// SPDX-License-Identifier: GPL-2.0

//! The memory of the signal page: one for each process with signal events, owned by its events.

use super::page;
use crate::{kgd::KernelMapping, linux::shared_pages::SharedPages};
use kernel::prelude::*;

/// The memory of the signal page.
pub(crate) enum SignalPage {
    /// Ours; user space maps it through /dev/kfd.
    Own(SharedPages),
    /// A buffer that user space made and handed over.
    Buffer(KernelMapping),
}

impl SignalPage {
    /// How large a buffer must be.
    pub(crate) const BYTES: usize = page::PAGE_BYTES;

    /// A page of our own, all slots unsignalled.
    pub(super) fn own() -> Result<Self> {
        let page = Self::Own(SharedPages::new(page::PAGE_BYTES)?);
        page.clear();
        Ok(page)
    }

    /// A buffer of the user's. `EINVAL` if it is too small.
    pub(crate) fn buffer(mapping: KernelMapping) -> Result<Self> {
        if mapping.size() < page::PAGE_BYTES {
            return Err(EINVAL);
        }
        let page = Self::Buffer(mapping);
        page.clear();
        Ok(page)
    }

    fn clear(&self) {
        for id in 0..page::SLOTS {
            self.acknowledge(id);
        }
    }

    /// Whether whoever signals has written the slot of event `id`.
    pub(super) fn is_signalled(&self, id: u32) -> bool {
        let slot = match self {
            Self::Own(pages) => pages.read(id as usize),
            Self::Buffer(mapping) => mapping.read_u64(id as usize * 8).ok(),
        };
        slot.is_some_and(|slot| slot != page::UNSIGNALLED)
    }

    /// The signal of event `id` has been seen.
    pub(super) fn acknowledge(&self, id: u32) {
        match self {
            Self::Own(pages) => pages.write(id as usize, page::UNSIGNALLED),
            // Cannot fail: `buffer` checked the size.
            Self::Buffer(mapping) => {
                let _ = mapping.write_u64(id as usize * 8, page::UNSIGNALLED);
            }
        }
    }

    /// Slots that user space sees before it maps the page.
    pub(super) fn slots(&self) -> u32 {
        match self {
            Self::Own(_) => (page::DEFAULT_MAPPED_BYTES / 8) as u32,
            // CAST: At most 4096.
            Self::Buffer(mapping) => (mapping.size() / 8).min(page::SLOTS as usize) as u32,
        }
    }
}
