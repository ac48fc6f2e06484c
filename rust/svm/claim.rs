// SPDX-License-Identifier: GPL-2.0-only

//! Where a buffer is about to be mapped. Attributes and buffers exclude each other: whoever gives
//! attributes looks at what page tables show of buffers, and whoever maps a buffer looks for
//! attributes. amdgpu maps it with nothing of ours locked that SET_ATTR waits for, since that may
//! take long; so an area is claimed before.

use super::{
    pages::Pages,
    Svm, //
};
use crate::linux::errno;
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
