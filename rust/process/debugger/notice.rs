// SPDX-License-Identifier: GPL-2.0-only

//! Telling a debugger that there is something to ask for: a byte in a file of its own. One
//! [`Notice`] for each session.
//!
//! A worker writes it, for the file may keep a writer waiting as long as its reader likes: who
//! reads a pipe into memory that a userfaultfd has to bring in holds the pipe's lock. One worker at
//! most waits for a session, and nobody for that worker.

use crate::{
    linux::fs::NoticeFile,
    process::registry, //
};
use kernel::{
    new_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// A debugger's file, and the work that writes to it.
#[pin_data]
pub(super) struct Notice {
    #[pin]
    work: Work<Notice>,
    file: NoticeFile,
}

impl_has_work! {
    impl HasWork<Self> for Notice { self.work }
}

impl Notice {
    /// `EBADF`: the current task has no file of this number.
    pub(super) fn new(file: u32) -> Result<Arc<Self>> {
        let file = NoticeFile::get(file)?;
        let notice = pin_init!(Self {
            work <- new_work!("amdkfd::Notice"),
            file,
        });
        Arc::pin_init(notice, GFP_KERNEL)
    }

    /// Something happened. Never sleeps.
    pub(super) fn send(self: &Arc<Self>) {
        if let Ok(registry) = registry::get() {
            // If it is on its way already, the debugger has still to ask.
            let _ = registry.notices().enqueue(self.clone());
        }
    }
}

impl WorkItem for Notice {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // One that is full says it already.
        if let Err(error) = this.file.write(b'.') {
            pr_debug!("a debugger's file was not written to: {error:?}\n");
        }
    }
}
