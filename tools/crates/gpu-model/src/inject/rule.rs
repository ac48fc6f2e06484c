// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a fault-injection rule can say. Rules are made by [`super::parse`], once per script, and do
//! not change.

use std::time::Duration;

use crate::gmc::Access;

/// A line of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub what: What,
    pub when: When,
}

/// When a rule applies to what it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Only while this bit of the flags register is set.
    pub flag: Option<u8>,
    /// Matches that pass unharmed first.
    pub skip: u64,
    /// Matches that it applies to after those; `None`: all.
    pub times: Option<u64>,
    /// How long it applies, from the first match that it applied to.
    pub lasts: Option<Duration>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A message to the SMU.
    Smu { message: Option<u32>, fate: SmuFate },
    /// An interrupt on its way into the ring.
    Irq {
        client: Option<u8>,
        source: Option<u8>,
        fate: IrqFate,
    },
    /// A fence on its way to memory.
    Fence {
        of: Option<FenceKind>,
        fate: FenceFate,
    },
    /// A queue stops at its next packet.
    Hang(Hang),
    /// Addresses that do not translate.
    Fault(FaultRange),
    /// An interrupt out of nowhere, when the flag rises.
    Raise(Raise),
    /// A register reads as this.
    Register { dword: u64, value: u32 },
    /// The device is off the bus: registers read as ones, writes go nowhere.
    Lost,
}

/// What becomes of a message to the SMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmuFate {
    /// It is run and answered so much later.
    Delay(Duration),
    /// It is neither run nor answered.
    Silent,
    /// It is not run, and answered with this result code.
    Fail(u32),
}

/// What becomes of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqFate {
    Drop,
    /// It comes so many times more.
    Repeat(u32),
    Delay(Duration),
}

/// Who writes a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// PM4 QUERY_STATUS: the HIQ's.
    QueryStatus,
    /// PM4 RELEASE_MEM.
    ReleaseMem,
    /// SDMA FENCE.
    Sdma,
    /// An AQL packet's completion signal.
    Signal,
}

impl FenceKind {
    pub const NAMES: [(&'static str, Self); 4] = [
        ("query-status", Self::QueryStatus),
        ("release-mem", Self::ReleaseMem),
        ("sdma", Self::Sdma),
        ("signal", Self::Signal),
    ];
}

/// What becomes of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceFate {
    /// It is never written.
    Withhold,
    /// Its bits are flipped by this.
    Corrupt(u64),
    Delay(Duration),
}

/// Kinds of queues, as rules name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    Kiq,
    Hiq,
    Pm4,
    Aql,
    Sdma,
}

impl QueueKind {
    pub const NAMES: [(&'static str, Self); 5] = [
        ("kiq", Self::Kiq),
        ("hiq", Self::Hiq),
        ("pm4", Self::Pm4),
        ("aql", Self::Aql),
        ("sdma", Self::Sdma),
    ];
}

/// A queue at a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAt {
    pub kind: QueueKind,
    /// Dword index.
    pub doorbell: u32,
    pub pasid: u16,
    /// Of the kernel's address space.
    pub vmid: u8,
}

/// Which queues hang, and how badly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hang {
    pub kind: Option<QueueKind>,
    pub doorbell: Option<u32>,
    pub pasid: Option<u16>,
    /// Only queues of processes.
    pub user: bool,
    /// A copy queue: it waits for as long as the rule applies, and goes on.
    pub passes: bool,
    pub on_unmap: OnUnmap,
}

/// What becomes of an order to take a hanging queue off its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnmap {
    /// UNMAP_QUEUES and run lists wait for it for ever.
    #[default]
    Waits,
    /// The scheduler gives up on this queue, names its doorbell in the HIQ's MQD and goes on with
    /// the others.
    Reported,
    /// The same, but no reset of its slot takes it off.
    ReportedForGood,
    /// It leaves.
    Works,
    /// A copy queue: the scheduler says that it has left, and it is where it was.
    Confirmed,
}

impl Hang {
    pub fn matches(&self, queue: &QueueAt) -> bool {
        self.kind.is_none_or(|kind| kind == queue.kind)
            && self.doorbell.is_none_or(|dword| dword == queue.doorbell)
            && self.pasid.is_none_or(|pasid| pasid == queue.pasid)
            && (!self.user || queue.vmid != 0)
    }
}

/// Where a range of addresses begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    At(u64),
    /// At what the argument register holds.
    Argument,
}

/// Addresses that do not translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRange {
    pub first: First,
    pub length: u64,
    /// `None`: any but the kernel's.
    pub vmid: Option<u8>,
    pub pasid: Option<u16>,
    pub access: Option<Access>,
}

/// An interrupt as a rule gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raise {
    pub client: u8,
    pub source: u8,
    pub ring: u8,
    pub vmid: u8,
    pub node: u8,
    pub pasid: Option<u16>,
    pub data: [u32; 4],
    pub count: u32,
}
