// SPDX-License-Identifier: GPL-2.0-only

//! Identities, addresses and versions: one type for each, so that none can stand for another.
//!
//! Pure: only `core`. A constructor returns `None` for a value that cannot name anything; the
//! caller knows which errno that is.

#![allow(dead_code)]

use core::sync::atomic::{
    AtomicU64,
    Ordering, //
};

/// Declares a newtype over an unsigned integer whose values lie in `$first..=$last`.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty): $first:expr, $last:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name($raw);

        impl $name {
            const FIRST: $raw = $first;
            /// The greatest value.
            pub(crate) const LAST: $raw = $last;

            /// `None` if `raw` is out of range.
            #[allow(clippy::int_plus_one)] // `$first` is 1 for some types only.
            pub(crate) const fn new(raw: $raw) -> Option<Self> {
                if matches!(raw, Self::FIRST..=Self::LAST) {
                    Some(Self(raw))
                } else {
                    None
                }
            }

            /// The number itself.
            pub(crate) const fn raw(self) -> $raw {
                self.0
            }
        }
    };
}

id! {
    /// What userspace calls a GPU node (sysfs `gpu_id`, ioctl `gpu_id`). A 16-bit hash that is
    /// never 0.
    GpuId(u32): 1, 0xffff
}

id! {
    /// The index of a topology node: `/sys/class/kfd/kfd/topology/nodes/<NodeId>`.
    NodeId(u32): 0, 0xffff
}

id! {
    /// A queue of one process; userspace sees it. C: `KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`.
    QueueId(u32): 0, 1023
}

id! {
    /// An event of one process. Signal events have the slots 0..4096 of the signal page
    /// (`KFD_SIGNAL_EVENT_LIMIT`); the other kinds lie above (`KFD_FIRST_NONSIGNAL_EVENT_ID`).
    EventId(u32): 0, 0x7fff_ffff
}

id! {
    /// Process address space id: names a process's VM to the GPU. amdgpu hands out 16 bits, never
    /// 0.
    Pasid(u32): 1, 0xffff
}

id! {
    /// One of the sixteen VM contexts of a hub. 0 is the kernel driver's.
    Vmid(u8): 0, 15
}

id! {
    /// The place of a doorbell on the doorbell BAR, in 32-bit units: what an MQD or a packet
    /// carries (`CP_HQD_PQ_DOORBELL_CONTROL.DOORBELL_OFFSET`, 26 bits).
    DoorbellIndex(u32): 0, (1 << 26) - 1
}

id! {
    /// An address in a user process's half of the CPU's address space.
    UserVa(u64): 0, (1 << 56) - 1
}

/// An address that the GPU translates: 48 bits, sign-extended as amdgpu does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GpuVa(u64);

impl GpuVa {
    /// `None` unless bits 63..=47 are all alike.
    pub(crate) const fn new(raw: u64) -> Option<Self> {
        if ((raw << 16) as i64 >> 16) as u64 == raw {
            Some(Self(raw))
        } else {
            None
        }
    }

    /// The number itself.
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// The low half, as register pairs `…_LO` want it.
    pub(crate) const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The high half, as register pairs `…_HI` want it.
    pub(crate) const fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The address `bytes` further on; `None` if that leaves the address space.
    pub(crate) const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(raw) => Self::new(raw),
            None => None,
        }
    }

    /// Is it a multiple of `alignment`, a power of two?
    pub(crate) const fn is_aligned(self, alignment: u64) -> bool {
        self.0 & alignment.wrapping_sub(1) == 0
    }
}

/// Tells a process from all that have been and will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial(u64);

impl Serial {
    /// One that no process has had.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Its number, which is not 0.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }
}

/// The version of a hardware block, as the IP discovery table states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IpVersion {
    /// The generation.
    pub(crate) major: u8,
    /// Within the generation.
    pub(crate) minor: u8,
    /// The stepping, which is often a product of its own: 9.4.3 is not 9.4.2.
    pub(crate) revision: u8,
}

impl IpVersion {
    /// 9.4.3 as `IpVersion::new(9, 4, 3)`.
    pub(crate) const fn new(major: u8, minor: u8, revision: u8) -> Self {
        Self {
            major,
            minor,
            revision,
        }
    }

    /// From amdgpu's packed form, `IP_VERSION(major, minor, revision)`; variant bits are dropped.
    pub(crate) const fn from_packed(packed: u32) -> Self {
        Self::new(
            (packed >> 24) as u8,
            (packed >> 16) as u8,
            (packed >> 8) as u8,
        )
    }
}

impl core::fmt::Display for IpVersion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.revision)
    }
}

#[cfg(CONFIG_RUST)]
impl kernel::fmt::Display for IpVersion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// How a GPU's caches may hold a page (`MTYPE`, in its page table entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryType {
    /// Not at all (UC).
    Uncached,
    /// Not coherent: until the end of a kernel (NC).
    NonCoherent,
    /// For reads, and writes go through (CC).
    CoherentlyCached,
    /// For reads and writes: nobody else caches the page (RW).
    ReadWrite,
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_ids))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert!(GpuId::new(0).is_none());
        assert!(GpuId::new(0x1_0000).is_none());
        assert_eq!(GpuId::new(35969).map(GpuId::raw), Some(35969));
        assert!(Vmid::new(16).is_none());
        assert!(Pasid::new(0).is_none());
        assert_eq!(QueueId::new(QueueId::LAST).map(QueueId::raw), Some(1023));
    }

    #[test]
    fn gpu_addresses_are_canonical() {
        assert!(GpuVa::new(0x7fff_ffff_f000).is_some());
        assert!(GpuVa::new(0x8000_0000_0000).is_none());
        assert!(GpuVa::new(0xffff_8000_0000_0000).is_some());
        assert!(GpuVa::new(0x1_0000_0000_0000).is_none());
    }

    #[test]
    fn versions_unpack_and_compare() {
        let version = IpVersion::from_packed(9 << 24 | 4 << 16 | 3 << 8);
        assert_eq!(version, IpVersion::new(9, 4, 3));
        assert!(version < IpVersion::new(9, 5, 0));
    }
}
