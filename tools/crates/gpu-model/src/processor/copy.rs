// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The copy engines as the command processor's scheduler sees them: places to map user queues to.

use super::bus::Fault;

/// Rings of an engine for user queues (`amdkfd/kfd_device.c`, num_sdma_queues_per_engine).
pub const RINGS: usize = 8;

/// A user queue to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RlcQueue {
    /// Address of its MQD, in VMID 0.
    pub mqd: u64,
    /// Where its write pointer is, in its own address space.
    pub wptr: u64,
    /// Doorbell in dwords.
    pub doorbell: u32,
    /// VMID that it gets.
    pub vmid: u8,
    /// Its process.
    pub pasid: u16,
    /// The XCC whose scheduler maps it.
    pub xcc: u8,
}

/// Which user queues to unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All that the hardware scheduler mapped.
    All,
    /// A process's.
    Pasid(u16),
    /// One.
    Doorbell(u32),
}

/// All copy engines of a GPU.
pub trait CopyEngines: Send + Sync {
    /// How many there are.
    fn engines(&self) -> u32;

    /// Maps a user queue to a free ring of an engine. False: there is none.
    fn map(&self, engine: u8, queue: RlcQueue) -> Result<bool, Fault>;

    /// Unmaps user queues that one XCC's scheduler mapped (None: any), each within a slice; their
    /// pointers go to their MQDs. `keep`: what is in flight goes on when they are mapped again.
    fn unmap(&self, xcc: Option<u8>, filter: Filter, keep: bool);

    /// Whether a user queue that this XCC's scheduler mapped does not stop (fault injection).
    fn has_stuck(&self, xcc: u8) -> bool;
}
