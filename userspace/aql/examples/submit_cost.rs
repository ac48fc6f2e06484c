// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`kfd_aql::Ring`] for C, so that one program can count what a submission costs here and in ROCr:
//! see `tests/hip/submit_cost.cpp`.

use kfd_aql::{Packet, Ring};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A ring over the caller's memory, for ever.
///
/// # Safety
/// As for [`Ring::new`]; no pointer is null.
#[no_mangle]
pub unsafe extern "C" fn kfd_ring(
    packets: NonNull<Packet>,
    capacity: u64,
    write: NonNull<AtomicU64>,
    read: NonNull<AtomicU64>,
    doorbell: NonNull<AtomicU64>,
) -> *mut Ring {
    // SAFETY: by this function's own contract.
    Box::into_raw(Box::new(unsafe {
        Ring::new(packets, capacity, write, read, doorbell)
    }))
}

/// Puts `packet` into `ring`; its index, or -1 when nobody empties the ring.
#[no_mangle]
pub extern "C" fn kfd_submit(ring: &Ring, packet: &Packet) -> u64 {
    ring.submit(packet).unwrap_or(u64::MAX)
}
