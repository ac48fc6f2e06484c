// SPDX-License-Identifier: GPL-2.0-only

//! The module as something that can go away (`include/linux/module.h`).
//!
//! A [`ModuleRef`] keeps it loaded. A [`Global`] is state of the module as a whole, which is there
//! from its start to its end and which code without a caller of ours (an interrupt, a notifier) can
//! find.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{
        ordering::{
            Acquire,
            Release, //
        },
        Atomic, //
    },
};

/// While one lives, the module cannot be unloaded.
pub(crate) struct ModuleRef(&'static ThisModule);

impl ModuleRef {
    /// `ENODEV` if the module is already on its way out.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: The module is this one, whose code is running.
        if unsafe { bindings::try_module_get(module.as_ptr()) } {
            Ok(Self(module))
        } else {
            Err(ENODEV)
        }
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: `new` took the reference.
        unsafe { bindings::module_put(self.0.as_ptr()) };
    }
}

/// State of the whole module, pinned in its memory.
pub(crate) struct Global<T> {
    ready: Atomic<bool>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: Only shared references to the value are handed out while it is there.
unsafe impl<T: Send + Sync> Sync for Global<T> {}

impl<T: Send + Sync> Global<T> {
    /// Not there yet.
    pub(crate) const fn new() -> Self {
        Self {
            ready: Atomic::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Makes the value.
    ///
    /// # Safety
    ///
    /// Nobody else calls `init` or `exit` at the same time, and the value is not there.
    pub(crate) unsafe fn init<E>(&'static self, value: impl PinInit<T, E>) -> Result<(), E> {
        let slot = self.value.get().cast::<T>();
        // SAFETY: The slot is static, so it never moves; nobody uses it before `ready` is set.
        unsafe { crate::compat::pinned_init(value, slot) }?;
        self.ready.store(true, Release);
        Ok(())
    }

    /// Drops the value.
    ///
    /// # Safety
    ///
    /// As for `init`, and nobody uses the value any more or can begin to.
    pub(crate) unsafe fn exit(&'static self) {
        self.ready.store(false, Release);
        // SAFETY: By this function's contract the value is there and unused.
        unsafe { self.value.get().cast::<T>().drop_in_place() };
    }

    /// The value, if it is there.
    #[inline]
    pub(crate) fn get(&'static self) -> Option<&'static T> {
        self.ready.load(Acquire).then(|| {
            // SAFETY: `init` has finished, and the contract of `exit` keeps the value for its
            // users.
            unsafe { &*self.value.get().cast::<T>() }
        })
    }
}
