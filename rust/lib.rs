// SPDX-License-Identifier: GPL-2.0-only

//! The core-only half of the module: every file here compiles without the kernel.
//!
//! The root of a crate for the host (see `Cargo.toml` beside it), so that the tests at the foot of
//! each file run under cargo as well as under KUnit. The module's own root is `amdkfd_main.rs`.

// Whatever only the other half of the module calls.
#![allow(dead_code)]

mod bits;
/// Our formats against those of the C amdkfd.
#[cfg(test)]
#[path = "../tests/oracle/compare.rs"]
mod compare;
mod gfx;
mod ids;
mod mmap;
mod topology;

mod event {
    pub(crate) mod latch;
    pub(crate) mod page;
}

mod process {
    pub(crate) mod apertures;
}

mod memory {
    pub(crate) mod handle;
    pub(crate) mod request;
}

mod queue {
    pub(crate) mod properties;
}

mod sched {
    pub(crate) mod image;
    pub(crate) mod ring;
    pub(crate) mod slots;
}

mod svm {
    pub(crate) mod attributes;
    pub(crate) mod page_bits;
    pub(crate) mod pages;
}
