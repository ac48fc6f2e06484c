// SPDX-License-Identifier: GPL-2.0-only

//! Pages that a queue depends on: where its waves are saved (CWSR).

use super::{
    page_bits::GRANULE_PAGES,
    pages::Pages,
    Svm, //
};
use crate::linux::ratelimit::may_complain;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Pages that a queue depends on, until this is dropped. If they are unmapped before, the process's
/// queues never run again.
pub(crate) struct Pin {
    svm: Arc<Svm>,
    pages: Pages,
}

impl Pin {
    /// `EINVAL`: not all of these pages are always mapped on the GPU at that place of the list, and
    /// mapped now, or about to be again.
    pub(crate) fn new(svm: &Arc<Svm>, gpu: usize, pages: Pages) -> Result<Self> {
        svm.add_pin(pages)?;
        let pin = Self {
            svm: svm.clone(),
            pages,
        };
        // What is unmapped from here on is noticed.
        svm.check_mapped(gpu, pages)?;
        Ok(pin)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.svm.pins.lock();
        let place = pins.iter().position(|pages| *pages == self.pages);
        // Not if they were unmapped.
        if let Some(place) = place {
            // It is there: `remove` fails for places beyond the end only.
            let _ = pins.remove(place);
        }
    }
}

impl Svm {
    /// One pin more. Room is made without the lock, which notifiers take.
    fn add_pin(&self, pages: Pages) -> Result {
        let mut room = KVec::new();
        loop {
            let mut pins = self.pins.lock();
            if pins.len() == pins.capacity() && room.capacity() > pins.len() {
                for pin in pins.iter() {
                    room.push_within_capacity(*pin)?;
                }
                core::mem::swap(&mut *pins, &mut room);
            }
            if pins.push_within_capacity(pages).is_ok() {
                return Ok(());
            }
            let wanted = 2 * pins.len() + 4;
            drop(pins);
            room = KVec::with_capacity(wanted, GFP_KERNEL_ACCOUNT)?;
        }
    }

    /// Whether a GPU always sees all of these pages. `EINVAL` if not.
    fn check_mapped(self: &Arc<Self>, gpu: usize, pages: Pages) -> Result {
        let changing = self.changing.lock();
        self.settle(&changing)?;
        let mut covered = 0;
        self.book.lock().ranges.each(pages, |range, attributes| {
            if attributes.is_always_mapped() && attributes.accessible().contains(gpu) {
                covered += range.len();
            }
        });
        let shown = |piece: Pages| {
            let granule = self.region_of(piece.start)?.granule(piece.start)?;
            granule.shows(gpu, piece).then_some(())
        };
        let mut pieces = pages.pieces(GRANULE_PAGES);
        match covered == pages.len() && pieces.all(|piece| shown(piece).is_some()) {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }

    /// Pages are unmapped: if a queue depends on them, the process's queues never run again. That
    /// is noticed once: whoever goes on to unmap what is mapped there then does nothing to a queue.
    /// May run under reclaim.
    pub(super) fn check_pins(&self, pages: Pages) {
        let mut lost = None;
        self.pins.lock().retain(|pin| {
            let is_lost = pin.overlaps(pages);
            if is_lost {
                lost = Some(*pin);
            }
            !is_lost
        });
        let Some(lost) = lost else {
            return;
        };
        // Queues can be made again and again.
        if may_complain() {
            let (pid, address) = (self.tgid(), lost.address());
            pr_warn!(
                "process {pid}: the save area of a queue at {address:#x} is unmapped: \
                 queues evicted\n"
            );
        }
        self.host.evict();
    }
}
