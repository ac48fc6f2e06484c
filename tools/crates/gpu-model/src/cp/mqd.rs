// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The memory queue descriptor (MQD): what the scheduler reads of a compute queue at map and writes
//! back at unmap.
//!
//! One per queue and XCC, in memory that the driver owns. Dwords 128 to 186 are an image of the
//! queue slot's CP_HQD_* registers, 1 to 80 of COMPUTE_*. Source: `include/v9_structs.h`, struct
//! v9_mqd.

use crate::processor::bus::{wide, Fault, View};
use crate::processor::packet::field;

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

/// Dword numbers, by field name of struct v9_mqd.
#[allow(missing_docs)] // The names are the documentation.
pub mod dw {
    pub const COMPUTE_PGM_RSRC2: usize = 20;
    /// Shader engines 0 to 3.
    pub const COMPUTE_STATIC_THREAD_MGMT: [usize; 4] = [23, 24, 26, 27];
    pub const COMPUTE_CURRENT_LOGIC_XCC_ID: usize = 39;
    pub const COMPUTE_TG_CHUNK_SIZE: usize = 41;
    /// A reserved dword: the model's name for what it kept of a preempted queue
    /// ([`super::super::saved`]).
    pub const SAVED_TOKEN: usize = 112;
    pub const CP_MQD_BASE_ADDR_LO: usize = 128;
    pub const CP_MQD_BASE_ADDR_HI: usize = 129;
    pub const CP_HQD_ACTIVE: usize = 130;
    pub const CP_HQD_VMID: usize = 131;
    pub const CP_HQD_PQ_BASE_LO: usize = 136;
    pub const CP_HQD_PQ_BASE_HI: usize = 137;
    pub const CP_HQD_PQ_RPTR: usize = 138;
    pub const CP_HQD_PQ_RPTR_REPORT_ADDR_LO: usize = 139;
    pub const CP_HQD_PQ_RPTR_REPORT_ADDR_HI: usize = 140;
    pub const CP_HQD_PQ_WPTR_POLL_ADDR_LO: usize = 141;
    pub const CP_HQD_PQ_WPTR_POLL_ADDR_HI: usize = 142;
    pub const CP_HQD_PQ_DOORBELL_CONTROL: usize = 143;
    pub const CP_HQD_PQ_CONTROL: usize = 145;
    pub const CP_HQD_IB_CONTROL: usize = 149;
    pub const CP_HQD_DEQUEUE_REQUEST: usize = 152;
    pub const CP_HQD_EOP_RPTR: usize = 168;
    pub const CP_HQD_CTX_SAVE_BASE_ADDR_LO: usize = 171;
    pub const CP_HQD_CTX_SAVE_BASE_ADDR_HI: usize = 172;
    pub const CP_HQD_CNTL_STACK_OFFSET: usize = 174;
    pub const CP_HQD_CNTL_STACK_SIZE: usize = 175;
    pub const CP_HQD_WG_STATE_OFFSET: usize = 176;
    pub const CP_HQD_CTX_SAVE_SIZE: usize = 177;
    pub const CP_HQD_ERROR: usize = 179;
    pub const CP_HQD_AQL_CONTROL: usize = 181;
    pub const CP_HQD_PQ_WPTR_LO: usize = 182;
    pub const CP_HQD_PQ_WPTR_HI: usize = 183;
    pub const CP_HQD_AQL_DISPATCH_ID_LO: usize = 185;
    pub const CP_HQD_AQL_DISPATCH_ID_HI: usize = 186;
    pub const PM4_TARGET_XCC_IN_XCP: usize = 225;
    pub const CP_MQD_STRIDE_SIZE: usize = 226;
    /// Doorbell of a queue that could not be preempted; 0 = none.
    pub const QUEUE_DOORBELL_ID0: usize = 240;
}

/// CP_HQD_PQ_DOORBELL_CONTROL.DOORBELL_EN.
pub const DOORBELL_EN: u32 = 1 << 30;
/// CP_HQD_PQ_CONTROL.NO_UPDATE_RPTR.
pub const NO_UPDATE_RPTR: u32 = 1 << 27;
/// CP_HQD_PQ_CONTROL.PRIV_STATE.
pub const PRIV_STATE: u32 = 1 << 30;

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

    /// Address of the MQD.
    pub const fn mqd_address(&self) -> u64 {
        self.pair(dw::CP_MQD_BASE_ADDR_LO) & !3
    }

    /// VMID of the queue.
    pub const fn vmid(&self) -> u8 {
        (self.get(dw::CP_HQD_VMID) & 0xf) as u8
    }

    /// Address of the ring.
    pub const fn ring_base(&self) -> u64 {
        self.pair(dw::CP_HQD_PQ_BASE_LO) << 8
    }

    /// Dwords of the ring: QUEUE_SIZE says 2^(n+1).
    pub const fn ring_dwords(&self) -> u64 {
        2 << field(self.get(dw::CP_HQD_PQ_CONTROL), 0, 6)
    }

    /// Where the read pointer is reported.
    pub const fn rptr_report(&self) -> u64 {
        self.pair(dw::CP_HQD_PQ_RPTR_REPORT_ADDR_LO) & 0xffff_ffff_ffff & !3
    }

    /// Where the write pointer is polled.
    pub const fn wptr_poll(&self) -> u64 {
        self.pair(dw::CP_HQD_PQ_WPTR_POLL_ADDR_LO) & 0xffff_ffff_ffff & !7
    }

    /// Doorbell in dwords of the doorbell aperture (DOORBELL_OFFSET).
    pub const fn doorbell(&self) -> u32 {
        field(self.get(dw::CP_HQD_PQ_DOORBELL_CONTROL), 2, 26)
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
        self.get(dw::CP_HQD_PQ_CONTROL) & PRIV_STATE != 0
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
        self.pair(dw::CP_HQD_AQL_DISPATCH_ID_LO)
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
    fn the_hqd_image_speaks_of_the_ring() {
        let mut hqd = Hqd::default();
        hqd.set(dw::CP_HQD_PQ_BASE_LO, 0x10);
        hqd.set(dw::CP_HQD_PQ_CONTROL, PRIV_STATE | 9);
        hqd.set(dw::CP_HQD_PQ_DOORBELL_CONTROL, DOORBELL_EN | 0x1002 << 2);
        assert_eq!(hqd.ring_base(), 0x1000);
        assert_eq!(hqd.ring_dwords(), 1024);
        assert_eq!(hqd.doorbell(), 0x1002);
        assert!(hqd.is_privileged() && !hqd.is_aql());
    }
}
