// SPDX-License-Identifier: GPL-2.0-only

//! Gauges: how many objects of a kind the module has. A type that must not leak has a static
//! [`Gauge`], and each object of it a [`Held`]; `counts` in debugfs shows them.

use core::sync::atomic::{
    AtomicUsize,
    Ordering, //
};

/// How many there are of something, for the whole module.
pub(crate) struct Gauge(AtomicUsize);

/// One of what a [`Gauge`] counts.
pub(crate) struct Held(&'static Gauge);

impl Gauge {
    /// None.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// How many there are now.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, until what is returned is dropped.
    pub(crate) fn hold(&'static self) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Relaxed);
    }
}
