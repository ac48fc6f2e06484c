// SPDX-License-Identifier: GPL-2.0-only

//! Safe wrappers of what the kernel offers and the kernel crate lacks. Each file is named after the
//! C header it wraps, but for `backlog`, which is made of two of them, and `users`, of the crate's
//! own; this module lies beneath all others and imports none of them.

pub(crate) mod acpi;
pub(crate) mod anon_file;
pub(crate) mod backlog;
pub(crate) mod barrier;
pub(crate) mod chrdev;
pub(crate) mod class;
pub(crate) mod completion;
pub(crate) mod debugfs;
pub(crate) mod errno;
mod ffi;
pub(crate) mod fs;
pub(crate) mod hmm;
pub(crate) mod kobject;

pub(crate) mod migrate;
pub(crate) mod mmap;
pub(crate) mod mmu_notifier;
pub(crate) mod module;
pub(crate) mod platform;
pub(crate) mod ratelimit;
pub(crate) mod rcu_table;
pub(crate) mod removable;
pub(crate) mod spinlock;
pub(crate) mod task;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod test_space;
pub(crate) mod timekeeping;
pub(crate) mod trace;
pub(crate) mod users;
pub(crate) mod wait;
pub(crate) mod workqueue;
