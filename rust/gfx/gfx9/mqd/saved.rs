// SPDX-License-Identifier: GPL-2.0-only

//! The descriptor of a queue that is restored of a checkpoint.
//!
//! It is a new queue's, and has of the saved one what the hardware has put there: how far the ring
//! and what it led to were read, and what was at work when the queue was preempted. The saved one
//! comes from a user. So which words these are is listed here, and all others are our own: none
//! that says whose queue it is and what that may do (VMID, PRIV_STATE, KMD_QUEUE), none with an
//! address that the firmware itself uses, and no packet for it. Addresses that are taken over are
//! the process's, and go through its page tables.

use super::{
    cp_hqd_hq_status0,
    dword,
    Mqd,
    Xccs, //
};
use crate::gfx::{
    ComputeQueue,
    Words, //
};
use core::ops::RangeInclusive;

/// Words that are taken over, by the names of `struct v9_mqd`.
#[rustfmt::skip]
const KEPT: &[RangeInclusive<usize>] = &[
    1..=10,    // compute_dispatch_initiator to compute_num_thread_z
    // compute_pgm, and what the structure calls compute_tba and compute_tma, by what gfx8 has
    // there: COMPUTE_DISPATCH_PKT_ADDR and COMPUTE_DISPATCH_SCRATCH_BASE (gc_9_4_3_offset.h)
    13..=18,
    22..=30,   // compute_resource_limits to compute_restart_z: with the masks of compute units
    33..=38,   // compute_dispatch_id to compute_wave_restore_control
    // reserved_43 to _64: COMPUTE_PGM_RSRC3 is one of them (gc_9_4_3_offset.h), as are the others
    // of the registers that packets of the queue's set; compute_user_data
    43..=80,
    81..=82,   // cp_compute_csinvoc_count
    86..=105,  // cp_mqd_query_time to cp_mqd_restore_end_time: what the queue has done when
    114..=119, // cp_pq_exe_status, cp_packet_id, cp_packet_exe_status
    138..=138, // cp_hqd_pq_rptr
    146..=148, // cp_hqd_ib_base_addr, cp_hqd_ib_rptr
    156..=159, // cp_hqd_atomic0_preop, cp_hqd_atomic1_preop
    163..=163, // cp_hqd_hq_status1
    168..=170, // cp_hqd_eop_rptr to cp_hqd_eop_done_events
    180..=180, // cp_hqd_eop_wptr_mem
    182..=183, // cp_hqd_pq_wptr
    185..=186, // CP_HQD_AQL_DISPATCH_ID and _HI, which the structure has no names for
];

/// Words of which some bits are taken over.
#[rustfmt::skip]
const PARTLY: &[(usize, u32)] = &[
    // But for PRIV: waves of a user's are never privileged.
    (19, !(1 << 20)),
    // But for TRAP_PRESENT, which says what this process has.
    (dword::COMPUTE_PGM_RSRC2, !(1 << 6)),
    // RESTORE_ACTIVE, RELAUNCH_WAVES, DISP_ACTIVE
    (dword::CP_HQD_PERSISTENT_STATE, 1 << 28 | 1 << 29 | 1 << 31),
    // WPTR_CARRY, RPTR_CARRY, PQ_EMPTY
    (dword::CP_HQD_PQ_CONTROL, 1 << 6 | 1 << 7 | 1 << 15),
    // IB_SIZE, PROCESSING_IB
    (dword::CP_HQD_IB_CONTROL, 0xf_ffff | 1 << 31),
    (dword::CP_HQD_HQ_STATUS0, !cp_hqd_hq_status0::DISPATCH_PTR.mask()),
];

/// Words that are another thing where a node has several XCCs: `compute_static_thread_mgmt_se4` to
/// `_se7`, or which share of a dispatch an XCC has.
const ENGINES: RangeInclusive<usize> = 39..=42;

impl Mqd {
    /// Takes over into the descriptor of `queue`, which is new, what `saved` has of another one's.
    pub(super) fn take_saved(
        &self,
        words: &dyn Words,
        queue: &ComputeQueue,
        saved: &[u32],
        xccs: u32,
    ) {
        let saved = |dword: usize| saved.get(dword).copied().unwrap_or(0);
        for dword in KEPT.iter().cloned().flatten() {
            words.set(dword, saved(dword));
        }
        for &(dword, mask) in PARTLY {
            let own = words.get(dword) & !mask;
            words.set(dword, own | saved(dword) & mask);
        }
        match self.xccs {
            Xccs::One => ENGINES.for_each(|dword| words.set(dword, saved(dword))),
            // How a dispatch goes on that was at work; a chunk is what the format says.
            Xccs::Many => {
                let first = dword::COMPUTE_CURRENT_LOGIC_XCC_ID;
                words.set(first, saved(first) % xccs.max(1));
                words.set(first + 1, saved(first + 1));
                words.set(first + 3, saved(first + 3));
            }
        }
        if let Some(area) = queue.save_area {
            let stack = area.control_stack;
            let offset = saved(dword::CP_HQD_CNTL_STACK_OFFSET) & !3;
            let state = saved(dword::CP_HQD_WG_STATE_OFFSET) & !3;
            words.set(dword::CP_HQD_CNTL_STACK_OFFSET, offset.min(stack));
            let state = state.min(area.bytes).max(stack);
            words.set(dword::CP_HQD_WG_STATE_OFFSET, state);
        }
    }
}
