// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Context`]: what a context of the kernel's has, through whichever of its files one comes.

use crate::event::Page;
use crate::flush::Writes;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A process has one, which all its files of `/dev/kfd` share, and one more for each
/// [`crate::Kfd::open_secondary`]. Files come and go, the context stays.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Its event page, once it has one.
    pub(crate) event_page: Mutex<Option<Arc<Page>>>,
    /// Whether its mode was said by [`crate::Kfd::set_xnack`].
    pub(crate) chosen: AtomicBool,
    /// What its CPUs have written to its GPUs' memory.
    pub(crate) writes: Writes,
}

impl Context {
    /// This process's own.
    pub(crate) fn own() -> Arc<Self> {
        static OWN: LazyLock<Mutex<(u32, Arc<Context>)>> = LazyLock::new(Default::default);
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        // A child of fork has a context of its own.
        if own.0 != std::process::id() {
            *own = (std::process::id(), Arc::default());
        }
        own.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_process_have_one_context() {
        assert!(Arc::ptr_eq(&Context::own(), &Context::own()));
    }
}
