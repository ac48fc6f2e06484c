// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The memory queue descriptor (MQD): what the scheduler reads of a compute queue at map and writes
//! back at unmap.
//!
//! One per queue and XCC, in memory that the driver owns. Dwords 128 to 186 are an image of the
//! queue slot's CP_HQD_* registers, 1 to 80 of COMPUTE_*. Source: `include/v9_structs.h`, struct
//! v9_mqd.

use super::aql::PACKET_DWORDS;
use super::layout::{doorbell_control, pq_control, rptr_report, vmid, wptr_poll};
use crate::layout::{places, Field};
use crate::processor::bus::{wide, Fault, View};

/// What every MQD has in [`dw::HEADER`].
pub const HEADER: u32 = 0xc031_0800;
/// Dwords of an MQD that the model reads (the rest is the firmware's).
pub const MQD_DWORDS: usize = 256;
/// First dword of the HQD image.
pub const HQD_FIRST: usize = 128;
/// Dwords of the HQD image: CP_MQD_BASE_ADDR to CP_HQD_AQL_DISPATCH_ID_HI.
pub const HQD_DWORDS: usize = 59;
/// COMPUTE_* registers: 0x2e00 to 0x2e7f, as SET_SH_REG and MQD dwords 1 and on have them.
pub const SH_DWORDS: usize = 128;
/// How many of them an MQD holds: up to COMPUTE_USER_DATA_15.
pub const SH_SAVED: usize = 80;
/// QUEUE_SIZE of a ring that takes all of an address space of 48 bits.
const MAX_QUEUE_SIZE: u32 = 45;

places! {
    /// Dword numbers, by field name of struct v9_mqd.
    dw, DWORDS:
    HEADER = 0;
    COMPUTE_PGM_RSRC2 = 20;
    COMPUTE_STATIC_THREAD_MGMT_SE0 = 23;
    COMPUTE_STATIC_THREAD_MGMT_SE1 = 24;
    COMPUTE_STATIC_THREAD_MGMT_SE2 = 26;
    COMPUTE_STATIC_THREAD_MGMT_SE3 = 27;
    COMPUTE_CURRENT_LOGIC_XCC_ID = 39;
    COMPUTE_TG_CHUNK_SIZE = 41;
    RESERVED_112 = 112;
    CP_MQD_BASE_ADDR_LO = 128;
    CP_MQD_BASE_ADDR_HI = 129;
    CP_HQD_ACTIVE = 130;
    CP_HQD_VMID = 131;
    CP_HQD_PQ_BASE_LO = 136;
    CP_HQD_PQ_BASE_HI = 137;
    CP_HQD_PQ_RPTR = 138;
    CP_HQD_PQ_RPTR_REPORT_ADDR_LO = 139;
    CP_HQD_PQ_RPTR_REPORT_ADDR_HI = 140;
    CP_HQD_PQ_WPTR_POLL_ADDR_LO = 141;
    CP_HQD_PQ_WPTR_POLL_ADDR_HI = 142;
    CP_HQD_PQ_DOORBELL_CONTROL = 143;
    CP_HQD_PQ_CONTROL = 145;
    CP_HQD_IB_CONTROL = 149;
    CP_HQD_DEQUEUE_REQUEST = 152;
    CP_HQD_EOP_RPTR = 168;
    CP_HQD_CTX_SAVE_BASE_ADDR_LO = 171;
    CP_HQD_CTX_SAVE_BASE_ADDR_HI = 172;
    CP_HQD_CNTL_STACK_OFFSET = 174;
    CP_HQD_CNTL_STACK_SIZE = 175;
    CP_HQD_WG_STATE_OFFSET = 176;
    CP_HQD_CTX_SAVE_SIZE = 177;
    CP_HQD_ERROR = 179;
    CP_HQD_AQL_CONTROL = 181;
    CP_HQD_PQ_WPTR_LO = 182;
    CP_HQD_PQ_WPTR_HI = 183;
    RESERVED_185 = 185;
    RESERVED_186 = 186;
    PM4_TARGET_XCC_IN_XCP = 225;
    CP_MQD_STRIDE_SIZE = 226;
    QUEUE_DOORBELL_ID0 = 240;
}

/// A reserved dword: the model's name for what it kept of a preempted queue ([`super::saved`]).
pub const SAVED_TOKEN: usize = dw::RESERVED_112;
/// The image of CP_HQD_AQL_DISPATCH_ID and _HI by their place among the registers; struct v9_mqd
/// has them reserved.
pub const AQL_DISPATCH_ID_LO: usize = dw::RESERVED_185;
/// See [`AQL_DISPATCH_ID_LO`].
pub const AQL_DISPATCH_ID_HI: usize = dw::RESERVED_186;
/// Shader engines 0 to 3.
pub const STATIC_THREAD_MGMT: [usize; 4] = [
    dw::COMPUTE_STATIC_THREAD_MGMT_SE0,
    dw::COMPUTE_STATIC_THREAD_MGMT_SE1,
    dw::COMPUTE_STATIC_THREAD_MGMT_SE2,
    dw::COMPUTE_STATIC_THREAD_MGMT_SE3,
];

/// The CP_HQD_* registers of one queue slot, indexed by MQD dword minus [`HQD_FIRST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hqd(pub [u32; HQD_DWORDS]);

impl Default for Hqd {
    fn default() -> Self {
        Hqd([0; HQD_DWORDS])
    }
}

impl Hqd {
    /// The register that MQD dword `dword` images.
    pub const fn get(&self, dword: usize) -> u32 {
        self.0[dword - HQD_FIRST]
    }

    /// Sets it.
    pub fn set(&mut self, dword: usize, value: u32) {
        self.0[dword - HQD_FIRST] = value;
    }

    const fn pair(&self, dword: usize) -> u64 {
        wide(self.get(dword), self.get(dword + 1))
    }

    /// An address of 48 bits whose low register is `low`.
    const fn address(&self, dword: usize, low: Field) -> u64 {
        low.wide(&[self.get(dword), self.get(dword + 1) & 0xffff])
    }

    /// Address of the MQD.
    pub const fn mqd_address(&self) -> u64 {
        self.pair(dw::CP_MQD_BASE_ADDR_LO) & !3
    }

    /// VMID of the queue.
    pub const fn vmid(&self) -> u8 {
        vmid::VMID.pick(self.get(dw::CP_HQD_VMID)) as u8
    }

    /// Address of the ring.
    pub const fn ring_base(&self) -> u64 {
        self.pair(dw::CP_HQD_PQ_BASE_LO) << 8
    }

    /// Dwords of the ring: QUEUE_SIZE says 2^(n+1). What does not fit an address space is as large
    /// as one.
    pub const fn ring_dwords(&self) -> u64 {
        let size = self.queue_size();
        2 << if size < MAX_QUEUE_SIZE {
            size
        } else {
            MAX_QUEUE_SIZE
        }
    }

    const fn queue_size(&self) -> u32 {
        pq_control::QUEUE_SIZE.pick(self.get(dw::CP_HQD_PQ_CONTROL))
    }

    /// AQL packets of the ring; one where there is no room for any.
    pub const fn ring_packets(&self) -> u64 {
        let packets = self.ring_dwords() / PACKET_DWORDS;
        if packets == 0 {
            1
        } else {
            packets
        }
    }

    /// Whether QUEUE_SIZE can be meant: a driver that has no size gets 63 out of its logarithm, and
    /// AQL packets have 16 dwords.
    pub const fn has_possible_ring(&self) -> bool {
        let holds_one = !self.is_aql() || self.ring_dwords() >= PACKET_DWORDS;
        holds_one && self.queue_size() <= MAX_QUEUE_SIZE
    }

    /// Where the read pointer is reported.
    pub const fn rptr_report(&self) -> u64 {
        self.address(
            dw::CP_HQD_PQ_RPTR_REPORT_ADDR_LO,
            rptr_report::RPTR_REPORT_ADDR,
        )
    }

    /// Where the write pointer is polled.
    pub const fn wptr_poll(&self) -> u64 {
        self.address(dw::CP_HQD_PQ_WPTR_POLL_ADDR_LO, wptr_poll::WPTR_ADDR)
    }

    /// Doorbell in dwords of the doorbell aperture (DOORBELL_OFFSET).
    pub const fn doorbell(&self) -> u32 {
        doorbell_control::DOORBELL_OFFSET.pick(self.get(dw::CP_HQD_PQ_DOORBELL_CONTROL))
    }

    /// What interrupts and waves call it: its number among the 1024 doorbells, of 8 bytes each, of
    /// its process (`kfd_int_process_v9.c`, KFD_DEBUG_DOORBELL_ID; `kfd_device_queue_manager.c`,
    /// allocate_doorbell).
    pub const fn doorbell_id(&self) -> u32 {
        self.doorbell() >> 1 & 0x3ff
    }

    /// Whether packets are AQL (CP_HQD_AQL_CONTROL.CONTROL0).
    pub const fn is_aql(&self) -> bool {
        self.get(dw::CP_HQD_AQL_CONTROL) & 1 != 0
    }

    /// Whether its packets may touch registers (PRIV_STATE).
    pub const fn is_privileged(&self) -> bool {
        pq_control::PRIV_STATE.pick(self.get(dw::CP_HQD_PQ_CONTROL)) != 0
    }

    /// Whether its read pointer is not reported (NO_UPDATE_RPTR).
    pub const fn hides_rptr(&self) -> bool {
        pq_control::NO_UPDATE_RPTR.pick(self.get(dw::CP_HQD_PQ_CONTROL)) != 0
    }

    /// Where waves are saved, in the queue's own address space.
    pub const fn save_area(&self) -> u64 {
        self.pair(dw::CP_HQD_CTX_SAVE_BASE_ADDR_LO) & 0xffff_ffff_ffff
    }

    /// The 64-bit write pointer.
    pub const fn wptr(&self) -> u64 {
        self.pair(dw::CP_HQD_PQ_WPTR_LO)
    }

    /// The 64-bit AQL packet index.
    pub const fn dispatch_id(&self) -> u64 {
        self.pair(AQL_DISPATCH_ID_LO)
    }
}

/// An MQD as read from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mqd(pub Vec<u32>);

impl Mqd {
    /// Reads the MQD at `address`.
    pub fn load(view: View<'_>, address: u64) -> Result<Self, Fault> {
        Ok(Mqd(view.dwords(address, MQD_DWORDS)?))
    }

    /// Whether it begins as all MQDs do (`amdkfd/kfd_mqd_manager_v9.c`, init_mqd).
    pub fn has_header(&self) -> bool {
        self.get(dw::HEADER) == HEADER
    }

    /// Its HQD image.
    pub fn hqd(&self) -> Hqd {
        let mut hqd = Hqd::default();
        hqd.0
            .copy_from_slice(&self.0[HQD_FIRST..HQD_FIRST + HQD_DWORDS]);
        hqd
    }

    /// Its COMPUTE_* image: MQD dword n is register n - 1.
    pub fn sh(&self) -> [u32; SH_DWORDS] {
        let mut sh = [0; SH_DWORDS];
        sh[..SH_SAVED].copy_from_slice(&self.0[1..1 + SH_SAVED]);
        sh
    }

    /// A dword.
    pub fn get(&self, dword: usize) -> u32 {
        self.0.get(dword).copied().unwrap_or(0)
    }
}

/// Writes back single dwords of an MQD.
pub fn save(view: View<'_>, address: u64, dwords: &[(usize, u32)]) -> Result<(), Fault> {
    dwords
        .iter()
        .try_for_each(|(dword, value)| view.write32(address + 4 * *dword as u64, *value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_size_is_a_ring() {
        for size in 0..64 {
            let mut hqd = Hqd::default();
            hqd.set(dw::CP_HQD_PQ_CONTROL, pq_control::QUEUE_SIZE.place(size));
            assert!(hqd.ring_dwords().is_power_of_two() && hqd.ring_packets() > 0);
            assert!(hqd.ring_dwords().checked_mul(4).is_some());
            assert_eq!(hqd.has_possible_ring(), size <= 45, "{size}");
            hqd.set(dw::CP_HQD_AQL_CONTROL, 1);
            assert_eq!(hqd.has_possible_ring(), (3..46).contains(&size), "{size}");
        }
    }

    #[test]
    fn the_hqd_image_speaks_of_the_ring() {
        let mut hqd = Hqd::default();
        hqd.set(dw::CP_HQD_PQ_BASE_LO, 0x10);
        hqd.set(dw::CP_HQD_PQ_CONTROL, pq_control::PRIV_STATE.place(1) | 9);
        let doorbell = doorbell_control::DOORBELL_OFFSET.place(0x1002);
        hqd.set(dw::CP_HQD_PQ_DOORBELL_CONTROL, doorbell | 1 << 30);
        assert_eq!(hqd.ring_base(), 0x1000);
        assert_eq!(hqd.ring_dwords(), 1024);
        assert_eq!(hqd.doorbell(), 0x1002);
        assert!(hqd.is_privileged() && !hqd.is_aql());
    }
}
