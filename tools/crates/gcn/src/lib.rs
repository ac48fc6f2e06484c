// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The instruction sets gfx942 (CDNA3, MI300) and gfx950 (CDNA4, MI350): a decoder, a disassembler
//! and an interpreter of waves. Where they differ a [`Target`] says which.
//!
//! Pure: the crate knows no device, no queue and no page table. Who dispatches fills a
//! [`Dispatch`], asks it for a [`Workgroup`] for each work-group of the grid and calls
//! [`Workgroup::run`] until it says [`Outcome::Done`]. A work-group can be kept between two calls
//! for as long as one likes; all its state is plain data.
//!
//! ```text
//! Dispatch --workgroup(id)--> Workgroup { waves: Vec<Wave>, lds }
//!                             Workgroup --run(&mut Memory, &mut CodeCache, budget)--> Outcome
//! ```
//!
//! What most programs consist of has two implementations: the reference, which knows all modifiers
//! and modes, and quick forms for the host's vector units; [`Engine`] says which of them runs.
//!
//! Known but not interpreted, with [`ExecError::Unsupported`]: GDS, `s_setkill`,
//! `v_screen_partition_4se_b32` and the fork instructions; of gfx950 the scaled and the random
//! conversions and the transposing LDS reads. What the hardware makes of a fault or an
//! unknown instruction (trap handler, interrupt) is the caller's business: see
//! [`Workgroup::violate`] and [`Wave::except_here`].
//!
//! Sources: AMD's public "AMD Instinct MI300 Instruction Set Architecture" and "AMD Instinct CDNA4
//! Instruction Set Architecture" guides and the answers of LLVM's assembler.
#![forbid(unsafe_code)]

pub mod code;
pub mod debug;
pub mod decode;
pub mod disasm;
pub mod dispatch;
mod exec;
pub mod float;
pub mod inst;
pub mod memory;
pub mod op;
pub mod target;
pub mod wave;
pub mod workgroup;

pub use code::{CodeCache, Engine};
pub use debug::{Debug, Watch, WatchMode};
pub use dispatch::{Apertures, Dispatch, Scratch};
pub use memory::{Access, CacheControl, Fault, Memory, Scope};
pub use target::Target;
pub use wave::{Wave, WaveState};
pub use workgroup::{ExecError, GwsOp, GwsRequest, Outcome, Workgroup};
