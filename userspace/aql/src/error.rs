// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The one error type of this crate.

use crate::BadPacket;

/// What a call of this crate can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused something.
    #[error(transparent)]
    Kfd(#[from] kfd::Error),
    /// The file is not a code object that can be loaded.
    #[error("code object: {0}")]
    CodeObject(String),
    /// The sizes or arguments do not fit the kernel.
    #[error("kernel {kernel}: {reason}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What does not fit.
        reason: String,
    },
    /// The GPU did not finish in time.
    #[error("no completion within {0:?}")]
    Timeout(std::time::Duration),
    /// The GPU takes nothing more from the queue: it was reset, and the queue is of no more use. Or
    /// it has taken nothing for a minute, and there is no room for what was to be submitted: that
    /// is not there, and the queue as it was.
    #[error("the GPU takes no more packets from the queue")]
    Lost,
    /// A wave touched memory that it may not. The process's queues stand still.
    #[error("{0}")]
    Fault(kfd::Fault),
    /// The command processor has stopped the queue at a packet that it does not take. What was
    /// submitted before may still come to its end, nothing behind it does; the queue is of no more
    /// use.
    #[error("the GPU has stopped the queue at a packet: {0}")]
    Packet(BadPacket),
    /// A wave or a packet of the queue has had exceptions: see [`crate::Queue::with_exceptions`].
    #[error("the queue has had exceptions: {0:?}")]
    Exception(kfd::Exceptions),
    /// Signals of two contexts, which nobody can wait for at once.
    #[error("signals of different contexts of /dev/kfd")]
    Contexts,
    /// A barrier packet has room for five signals.
    #[error("a barrier on {0} signals: one packet has room for 5")]
    Barrier(usize),
    /// So much scratch can't be had.
    #[error("{0} bytes of scratch for each work-item: there can be {1}")]
    Scratch(u32, u32),
    /// A copy or fill that the engine cannot do.
    #[error("copy queue: {0}")]
    Copy(String),
    /// A step of a graph names one that is not there before it.
    #[error("step {0} of a graph waits for step {1}, which is not before it")]
    Graph(usize, usize),
    /// There is no free place for another signal.
    #[error("all {0} signals are in use")]
    NoSignal(usize),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
