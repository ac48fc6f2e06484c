// SPDX-License-Identifier: GPL-2.0-only

//! What a checkpoint has of shared virtual memory: what was said of it.

use super::{
    attributes::{
        Attributes,
        Common, //
    },
    pages::Pages,
    Svm, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};

/// Pages of which something was said, all the same.
pub(crate) struct Stated {
    pages: Pages,
    attributes: Attributes,
}

impl Stated {
    /// Which pages.
    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    /// What GET_ATTR answers of them.
    pub(crate) fn common(&self) -> Common {
        Common::new(self.attributes)
    }
}

impl Svm {
    /// All that was said, but of what was unmapped since.
    pub(crate) fn stated(self: &Arc<Self>) -> Result<KVVec<Stated>> {
        let changing = self.changing.lock();
        self.settle(&changing)?;
        let mut stated = KVVec::new();
        let mut result = Ok(());
        self.book
            .lock()
            .ranges
            .each(Pages::ALL, |pages, attributes| {
                let attributes = *attributes;
                if result.is_ok() {
                    result = stated.push(Stated { pages, attributes }, GFP_KERNEL);
                }
            });
        result?;
        Ok(stated)
    }
}
