// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A small runtime on top of [`kfd`]: it loads code objects and runs their kernels through queues
//! of the architected queuing language (AQL), as the HSA foundation's system architecture defines
//! it.
//!
//! [`Queue`] is a ring that any thread may fill without a lock or a system call; [`Signal`] is what
//! a dispatch decrements when it is done; [`CodeObject`] is an ELF file on the GPU; [`Launch`] is a
//! kernel with its arguments and sizes, ready to be submitted as often as wanted; [`CopyQueue`] has
//! the GPU's copy engine copy and fill; [`Printer`] has what kernels print. On top of these, thin:
//! [`Stream`] and [`Graph`].

mod arguments;
mod builder;
mod bundle;
mod code;
mod copy;
mod error;
mod graph;
mod launch;
mod packet;
mod pool;
mod print;
mod queue;
mod ring;
mod signal;
mod stop;
mod stream;
mod watch;

pub use arguments::Arguments;
pub use builder::{Extent, LaunchBuilder, Value};
pub use code::{Argument, CodeObject, Kernel};
pub use copy::CopyQueue;
pub use error::{Error, Result};
pub use graph::{Graph, Step};
pub use launch::Launch;
pub use packet::{BarrierAnd, BarrierOr, KernelDispatch, Packet, Pm4Buffer};
pub use print::{Printed, Printer};
pub use queue::Queue;
pub use ring::{Ring, INVALID, PATIENCE};
pub use signal::{Completion, Signal, Signals};
pub use stop::BadPacket;
pub use stream::{Marker, Stream};
