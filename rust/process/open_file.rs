// SPDX-License-Identifier: GPL-2.0-only

//! The state of an open file of /dev/kfd: whose it is. One [`OpenFile`] for each open file, owned
//! by it.

use super::{
    leaving::close_context,
    open_context,
    ProcessRef, //
};
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

/// Which of a file's two processes something was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The one that opened it.
    Opener,
    /// That of CREATE_PROCESS.
    Context,
}

/// One open file.
pub(crate) struct OpenFile {
    /// The process that CREATE_PROCESS made for this file: from then on the file is that one's.
    context: SetOnce<ProcessRef>,
    opener: ProcessRef,
}

impl OpenFile {
    /// A file that `opener` has opened.
    pub(crate) fn new(opener: ProcessRef) -> Self {
        Self {
            context: SetOnce::new(),
            opener,
        }
    }

    /// Whose the file is.
    pub(crate) fn process(&self) -> &ProcessRef {
        self.process_of(self.owner())
    }

    /// The same, to be remembered: what has been mapped stays whose it was.
    pub(crate) fn owner(&self) -> Owner {
        match self.context.as_ref() {
            Some(_) => Owner::Context,
            None => Owner::Opener,
        }
    }

    /// The process of that name.
    pub(crate) fn process_of(&self, owner: Owner) -> &ProcessRef {
        match owner {
            Owner::Opener => &self.opener,
            Owner::Context => self.context.as_ref().unwrap_or(&self.opener),
        }
    }

    /// CREATE_PROCESS. `EINVAL`: it was called on this file before.
    pub(crate) fn create_context(&self) -> Result {
        if self.context.as_ref().is_some() {
            return Err(EINVAL);
        }
        let context = open_context(&self.opener)?;
        if self.context.populate(context.clone()) {
            return Ok(());
        }
        // Another thread was faster.
        close_context(&context);
        Err(EINVAL)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(context) = self.context.as_ref() {
            close_context(context);
        }
    }
}
