// SPDX-License-Identifier: GPL-2.0-only

//! `gpu_id`: the number by which user space names a GPU. One for each GPU node.
//!
//! Core-only. The number is a hash over what tells a GPU from its neighbours, so that it survives a
//! reboot and, here, a change from the C driver to this one and back.

/// What the hash goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// PCI device and function.
    pub(crate) devfn: u32,
    pub(crate) subsystem_vendor: u32,
    pub(crate) subsystem_device: u32,
    /// PCI domain.
    pub(crate) domain: u32,
    /// PCI device id.
    pub(crate) device: u32,
    pub(crate) bus: u32,
    /// Bytes of local memory, seen by the CPU or not.
    pub(crate) local_memory: u64,
    /// XCCs of the partition.
    pub(crate) xcc_mask: u32,
}

impl Identity {
    /// The GPU's number, given that others may be taken. It is in `1..=0xffff`; 0 is returned only
    /// if all of those are taken.
    pub(crate) fn gpu_id(&self, taken: impl Fn(u32) -> bool) -> u32 {
        let hash = u32::from(self.hash());
        let candidates = (hash..=0xffff).chain(1..hash).filter(|&id| id != 0);
        candidates.into_iter().find(|&id| !taken(id)).unwrap_or(0)
    }

    fn hash(&self) -> u16 {
        let xccs = self.xcc_mask.trailing_zeros() | self.xcc_mask.count_ones() << 16;
        let words = [
            self.devfn,
            self.subsystem_vendor | self.subsystem_device << 16,
            self.domain,
            self.device,
            self.bus,
            // CAST: the two halves.
            self.local_memory as u32,
            (self.local_memory >> 32) as u32,
            xccs,
        ];
        words
            .iter()
            .fold(0, |crc, word| crc16(crc, &word.to_le_bytes()))
    }
}

/// The cyclic redundancy check CRC-16/ARC: polynomial 0x8005, least significant bit first.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| {
            (crc >> 1) ^ (crc & 1) * 0xa001
        })
    })
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology_identity))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    const GPU: Identity = Identity {
        devfn: 0,
        subsystem_vendor: 0x1002,
        subsystem_device: 0x74a1,
        domain: 0,
        device: 0x74a1,
        bus: 1,
        local_memory: 2 << 30,
        xcc_mask: 1,
    };

    #[test]
    fn the_check_is_arc() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(crc16(crc16(0, b"1234"), b"56789"), 0xbb3d);
    }

    #[test]
    fn twins_differ_by_their_slot() {
        let twin = Identity { bus: 2, ..GPU };
        assert_ne!(GPU.gpu_id(|_| false), twin.gpu_id(|_| false));
    }

    #[test]
    fn a_taken_number_moves_on_and_never_to_zero() {
        let first = GPU.gpu_id(|_| false);
        assert_eq!(GPU.gpu_id(|id| id == first), first + 1);
        assert_eq!(GPU.gpu_id(|id| id >= first), 1);
        assert_eq!(GPU.gpu_id(|_| true), 0);
    }

    #[test]
    fn partitions_of_one_gpu_differ() {
        let ids = [1, 2, 4, 8].map(|xcc_mask| Identity { xcc_mask, ..GPU }.gpu_id(|_| false));
        assert!((0..4).all(|i| (0..i).all(|j| ids[i] != ids[j])));
    }
}
