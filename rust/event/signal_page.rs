// SPDX-License-Identifier: GPL-2.0-only

//! The memory of the signal page: a buffer that user space made and handed over. One for each
//! process with signal events, owned by its events.

use super::page;
use crate::kgd::KernelMapping;
use kernel::prelude::*;

/// The memory of the signal page.
pub(crate) struct SignalPage(PageMemory);

enum PageMemory {
    Buffer(KernelMapping),
    #[cfg(CONFIG_KUNIT = "y")]
    Test(KVec<kernel::sync::atomic::Atomic<u64>>),
}

impl SignalPage {
    /// How large a buffer must be.
    pub(crate) const BYTES: usize = page::PAGE_BYTES;

    /// A buffer of the user's, all slots unsignalled from now on. `EINVAL` if it is too small.
    pub(crate) fn buffer(mapping: KernelMapping) -> Result<Self> {
        if mapping.size() < page::PAGE_BYTES {
            return Err(EINVAL);
        }
        let page = Self(PageMemory::Buffer(mapping));
        for id in 0..page::SLOTS {
            page.acknowledge(id);
        }
        Ok(page)
    }

    /// Whether whoever signals has written the slot of event `id`.
    pub(super) fn is_signalled(&self, id: u32) -> bool {
        self.read(id).is_some_and(|slot| slot != page::UNSIGNALLED)
    }

    /// The signal of event `id` has been seen.
    pub(super) fn acknowledge(&self, id: u32) {
        self.write(id, page::UNSIGNALLED);
    }

    fn read(&self, id: u32) -> Option<u64> {
        match &self.0 {
            PageMemory::Buffer(mapping) => mapping.read_u64(id as usize * 8).ok(),
            #[cfg(CONFIG_KUNIT = "y")]
            PageMemory::Test(slots) => slots
                .get(id as usize)
                .map(|slot| slot.load(kernel::sync::atomic::ordering::Relaxed)),
        }
    }

    /// Writes a slot of the page.
    pub(super) fn write(&self, id: u32, value: u64) {
        match &self.0 {
            // Cannot fail: `buffer` checked the size.
            PageMemory::Buffer(mapping) => {
                let _ = mapping.write_u64(id as usize * 8, value);
            }
            #[cfg(CONFIG_KUNIT = "y")]
            PageMemory::Test(slots) => {
                if let Some(slot) = slots.get(id as usize) {
                    slot.store(value, kernel::sync::atomic::ordering::Relaxed);
                }
            }
        }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> u32 {
        match &self.0 {
            // CAST: At most 4096.
            PageMemory::Buffer(mapping) => (mapping.size() / 8).min(page::SLOTS as usize) as u32,
            #[cfg(CONFIG_KUNIT = "y")]
            PageMemory::Test(slots) => slots.len() as u32,
        }
    }

    /// Memory without a GPU, all slots unsignalled.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn of_test(slots: u32) -> Result<Self> {
        let mut memory = KVec::with_capacity(slots as usize, GFP_KERNEL)?;
        for _ in 0..slots {
            let slot = kernel::sync::atomic::Atomic::new(page::UNSIGNALLED);
            memory.push(slot, GFP_KERNEL)?;
        }
        Ok(Self(PageMemory::Test(memory)))
    }
}
