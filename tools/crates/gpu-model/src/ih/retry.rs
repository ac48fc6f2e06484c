// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The retry CAM: pages of reported retry faults, until the driver acknowledges them. It keeps
//! accesses that are repeated all the time from flooding the ring. One per interrupt handler.
//!
//! amdgpu acknowledges by a doorbell with the entry's index (`amdgpu_gmc_handle_retry_fault`),
//! whatever it did about the page; an access that fails after that makes a new fault.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Interrupt;

/// Entries: what `AMDGPU_GMC9_FAULT_SOURCE_DATA` has room for (9:0 of the third dword;
/// IH_RETRY_CAM_ACK.INDEX).
const ENTRIES: usize = 1024;

/// What becomes of a retry fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is reported to the driver, with this index.
    New(u16),
    /// The page is reported already and not acknowledged, or there is no free entry.
    Pending,
    /// The CAM is off: every fault is reported.
    Off,
}

/// Which page an entry is about: client, node, VMID, PASID, address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    client: u8,
    node: u8,
    vmid: u8,
    pasid: u16,
    number: u64,
}

/// The CAM.
#[derive(Default)]
pub struct RetryCam {
    entries: Mutex<Vec<Option<Page>>>,
}

impl RetryCam {
    fn entries(&self) -> MutexGuard<'_, Vec<Option<Page>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry for the page of a fault.
    pub fn claim(&self, fault: &Interrupt, pasid: u16) -> Claim {
        let page = Page {
            client: fault.client,
            node: fault.node,
            vmid: fault.vmid,
            pasid,
            number: u64::from(fault.data[0]) | u64::from(fault.data[1] & 0xf) << 32,
        };
        let mut entries = self.entries();
        if entries.contains(&Some(page)) {
            return Claim::Pending;
        }
        let free = entries.iter().position(Option::is_none);
        let at = match free {
            Some(at) => at,
            None if entries.len() == ENTRIES => return Claim::Pending,
            None => {
                entries.push(None);
                entries.len() - 1
            }
        };
        entries[at] = Some(page);
        Claim::New(at as u16)
    }

    /// The driver is done with an entry.
    pub fn release(&self, index: u32) {
        let at = index as usize % ENTRIES;
        if let Some(entry) = self.entries().get_mut(at) {
            *entry = None;
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.entries().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(page: u32, vmid: u8) -> Interrupt {
        Interrupt {
            client: super::super::client::UTCL2,
            source: 0,
            ring_id: 0,
            vmid,
            from_mm: false,
            pasid: None,
            node: 1,
            data: [page, 0x80, 0, 0],
        }
    }

    #[test]
    fn a_page_is_told_once_until_it_is_acknowledged() {
        let cam = RetryCam::default();
        assert_eq!(cam.claim(&fault(7, 8), 33), Claim::New(0));
        assert_eq!(cam.claim(&fault(7, 8), 33), Claim::Pending);
        assert_eq!(cam.claim(&fault(8, 8), 33), Claim::New(1));
        assert_eq!(cam.claim(&fault(7, 9), 34), Claim::New(2));
        cam.release(0);
        assert_eq!(cam.claim(&fault(8, 8), 33), Claim::Pending);
        assert_eq!(cam.claim(&fault(7, 8), 33), Claim::New(0));
    }

    #[test]
    fn it_has_an_end_and_takes_any_index() {
        let cam = RetryCam::default();
        for page in 0..ENTRIES as u32 {
            assert_eq!(cam.claim(&fault(page, 8), 33), Claim::New(page as u16));
        }
        assert_eq!(cam.claim(&fault(5000, 8), 33), Claim::Pending);
        cam.release(u32::MAX);
        assert_eq!(cam.claim(&fault(5000, 8), 33), Claim::New(1023));
        cam.clear();
        cam.release(12);
        assert_eq!(cam.claim(&fault(1, 8), 33), Claim::New(0));
    }
}
