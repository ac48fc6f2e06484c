// SPDX-License-Identifier: GPL-2.0-only

//! Checkpoints of a process (CRIU_OP): what it has on its GPUs, as data, and a process that is made
//! of it again.
//!
//! Who makes one stops the process's queues ([`pause`]), saves what there is ([`save`]), and lets
//! the queues go on ([`unpause`]). What VRAM and system memory hold is not saved here: the user
//! reads it through files of the buffers. A process of which nothing is on a GPU yet gets all of it
//! ([`restore`]), or nothing. Its queues wait until somebody has brought its memory back, and says
//! so ([`resume`]).
//!
//! The format is the C driver's ([`image`]), so that a process can be saved with the one driver and
//! made again with the other. What is restored comes from a user, and may say anything.
//!
//! All of it is done under `Process.memory`, but shared virtual memory is restored without, for
//! that may wait for a program.

mod image;
mod owed;
mod restore;
mod save;

pub(crate) use owed::Owed;
pub(crate) use restore::{
    restore,
    resume,
    SavedRange, //
};
pub(crate) use save::{
    pause,
    save,
    unpause, //
};

/// How much a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) devices: u32,
    pub(crate) buffers: u32,
    /// Queues, events, and ranges of shared virtual memory.
    pub(crate) objects: u32,
    /// Bytes of what only the driver understands.
    pub(crate) private: u64,
}

/// Where the user has it, or wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) devices: u64,
    pub(crate) buffers: u64,
    pub(crate) private: u64,
}
