// SPDX-License-Identifier: GPL-2.0-only

//! Where a buffer is about to be mapped. Attributes and buffers exclude each other: whoever gives
//! attributes looks at what page tables show of buffers, and whoever maps a buffer looks for
//! attributes. amdgpu maps it with nothing of ours locked that SET_ATTR waits for, since that may
//! take long; so an area is claimed before.
//!
//! Pages that a GPU could not be made to forget outlive their attributes: whoever tries that again
//! would unmap what is there by then. So a GPU forgets them before a buffer is mapped in their
//! place ([`Claim::clear`]).

use super::{
    granule::Granule,
    page_bits::GRANULE_PAGES,
    pages::Pages,
    region::{
        Region,
        REGION_PAGES, //
    },
    sleep, Gpu, Svm,
};
use crate::{
    kgd::Vm,
    linux::errno, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// An area where a buffer is about to be mapped, until this is dropped: it gets no attributes.
pub(crate) struct Claim {
    svm: Arc<Svm>,
    pages: Pages,
}

impl Svm {
    /// Claims the pages of a buffer. `EADDRINUSE`: some have attributes, or a GPU that missed one
    /// has just given them some. Takes `changing`.
    pub(crate) fn claim(self: &Arc<Self>, pages: Pages) -> Result<Claim> {
        let changing = self.changing.lock();
        self.settle(&changing)?;
        let mut book = self.book.lock();
        let mut in_use = false;
        book.ranges.each(pages, |_, _| in_use = true);
        if in_use {
            return Err(errno::address_in_use());
        }
        book.claims.push(pages, GFP_KERNEL_ACCOUNT)?;
        drop(book);
        let svm = self.clone();
        Ok(Claim { svm, pages })
    }
}

impl Claim {
    /// The GPU of that VM sees nothing at these pages any more when this returns, and nothing is
    /// left to be unmapped there afterwards. `EAGAIN`: it may still, for it is about to be reset,
    /// or a signal has come, or the machine goes to sleep; the caller comes again. `EIO`: it does
    /// not answer. `ENOMEM`: there is no room for the page tables.
    ///
    /// Takes what a granule's state needs, and for a moment the page tables' reservation: not to be
    /// called under `changing`.
    pub(crate) fn clear(&self, vm: &Arc<Vm>) -> Result {
        let is_it = |gpu: &Gpu| gpu.vm().is_ok_and(|own| Arc::ptr_eq(own, vm));
        // Others see nothing of shared memory.
        let Some(place) = self.svm.gpus.iter().position(is_it) else {
            return Ok(());
        };
        for piece in self.pages.pieces(REGION_PAGES) {
            let Some(region) = self.svm.region_of(piece.start) else {
                continue;
            };
            for piece in piece.pieces(GRANULE_PAGES) {
                if let Some(granule) = region.granule(piece.start) {
                    self.clear_granule((place, &**vm), &region, &granule, piece)?;
                }
            }
        }
        Ok(())
    }

    fn clear_granule(
        &self,
        (place, vm): (usize, &Vm),
        region: &Region,
        granule: &Granule,
        pages: Pages,
    ) -> Result {
        // None is mapped: they have no attributes.
        let is_stale = || granule.is_stale(place, pages);
        if !is_stale() {
            return Ok(());
        }
        // A flush that a reset has cut short is made again after it. Any other one that fails does
        // so again.
        let retry = || match granule.retry_on(&self.svm.gpus, place) {
            Err(error) if error != EAGAIN => Err(EIO),
            other => other,
        };
        if !retry()? {
            // As amdgpu does for the buffer.
            sleep::bring_tables_back(vm)?;
            retry()?;
        }
        if granule.is_idle() {
            // Whoever would have tried it again finds nothing to do.
            region.look_again();
        }
        match is_stale() {
            true => Err(EAGAIN),
            false => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut book = self.svm.book.lock();
        let place = book.claims.iter().position(|pages| *pages == self.pages);
        if let Some(place) = place {
            // It is there: `remove` fails for places beyond the end only.
            let _ = book.claims.remove(place);
        }
    }
}
