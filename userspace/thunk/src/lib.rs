// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A thunk for AMD's kernel fusion driver (KFD): what `libhsakmt` is to ROCm, in Rust, small.
//!
//! One type per kernel object, released when it is dropped: [`Kfd`] (the open `/dev/kfd`),
//! [`Device`] (a GPU whose address space this process has acquired), [`Memory`], [`Managed`],
//! [`Queue`], [`Events`] and [`Event`]. An error says which call failed, on what, with which errno.
//!
//! ```no_run
//! let kfd = kfd::Kfd::open()?;
//! let node = kfd::topology::gpus()?.remove(0);
//! let gpu = kfd::Device::acquire(&kfd, &node)?;
//! let memory = kfd::Memory::vram(&gpu, 4096)?;
//! memory.write(0, &[1u32, 2, 3]);
//! # Ok::<(), kfd::Error>(())
//! ```
//!
//! Kernels write where their addresses point. As long as only [`Memory`] and [`Managed`] are there
//! for GPUs that is memory which Rust reads and writes by atomic accesses. What shows GPUs any
//! other memory of the process's is `unsafe`: [`Kfd::set_svm`], [`Kfd::set_xnack`]; and so is what
//! has the kernel write where a wave may say: [`Kfd::enable_runtime`], [`Debugger::send`].

mod buffer;
mod checkpoint;
mod context;
mod debug;
mod device;
mod error;
mod event;
mod flush;
mod ioctl;
mod memory;
mod owner;
mod profiler;
mod queue;
mod range;
mod smi;
mod svm;
pub mod topology;
mod trouble;

pub use buffer::{Buffer, Slice};
pub use checkpoint::{Checkpoint, CheckpointSizes};
pub use debug::{Debugger, Exceptions, LaunchMode, QueueReport, Watch, WatchMode};
pub use device::{Apertures, CachePolicy, Clocks, Device, Kfd, Runtime, TileConfig};
pub use error::{Errno, Error, Result};
pub use event::{Event, EventKind, Events, Fault, Wait};
pub use memory::{Memory, MemoryFlags, Plain};
pub use profiler::ProfilerLock;
pub use queue::{Queue, QueueKind, QueueMemory};
pub use smi::{SmiEvent, SmiEvents};
pub use svm::{Location, Managed, ManagedFlags, SvmAttribute};
pub use trouble::{Faults, Reset, Resets, Woken};
