// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Context`]: what a context of the kernel's has, through whichever of its files one comes.

use crate::event::Page;
use crate::flush::Writes;
use crate::owner::Owner;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

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
        static OWN: Own = Own(Mutex::new(None));
        OWN.of(Owner::here())
    }
}

/// The context of the process that asked last. A child of fork has one of its own, also where its
/// number is its parent's, as in a new PID namespace.
struct Own(Mutex<Option<(Owner, Arc<Context>)>>);

impl Own {
    fn of(&self, here: Owner) -> Arc<Context> {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*own {
            Some((owner, context)) if *owner == here => context.clone(),
            _ => own.insert((here, Arc::default())).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_process_have_one_context() {
        assert!(Arc::ptr_eq(&Context::own(), &Context::own()));
    }

    /// Whatever its number is.
    #[test]
    fn another_process_has_another_context() {
        let own = Own(Mutex::new(None));
        let parents = own.of(Owner::here());
        assert!(Arc::ptr_eq(&parents, &own.of(Owner::here())));
        let childs = own.of(Owner::elsewhere());
        assert!(!Arc::ptr_eq(&parents, &childs));
        assert!(Arc::ptr_eq(&childs, &own.of(Owner::elsewhere())));
    }
}
