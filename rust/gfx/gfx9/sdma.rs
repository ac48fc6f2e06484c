// SPDX-License-Identifier: GPL-2.0-only

//! Descriptors of copy queues: `struct v9_sdma_mqd` of `v9_structs.h`, for SDMA 4.0 to 4.4.
//!
//! One per queue slot of every copy engine; the scheduler keeps them in one buffer. The words are
//! an image of the registers `SDMA_RLC0_*` (`sdma_4_4_2_sh_mask.h`), and the last two are the
//! driver's own (`v9_structs.h`): which engine the queue belongs to, and its slot as the driver
//! counts them. Firmware picks another one.

use crate::gfx::{
    field::{hi, lo},
    SdmaFormat,
    SdmaPlace,
    SdmaQueue,
    Words, //
};
use crate::ids::Vmid;
use core::ops::RangeInclusive;

/// SDMA 4.
pub(super) const SDMA: &dyn SdmaFormat = &Sdma { is_gfx10: false };
/// SDMA 5.0 and 5.2: `struct v10_sdma_mqd` of `v10_structs.h`, which begins as the other does.
pub(in crate::gfx) const SDMA_5: &dyn SdmaFormat = &Sdma { is_gfx10: true };

/// Bytes of `struct v9_sdma_mqd`.
pub(super) const BYTES: usize = 512;

struct Sdma {
    /// Two more registers, and no switch inside of indirect buffers.
    is_gfx10: bool,
}

/// Indices of words in `struct v9_sdma_mqd`, by the names it gives them.
#[rustfmt::skip]
#[cfg_attr(CONFIG_RUST, expect(dead_code, reason = "some are used at build time only"))]
pub(super) mod dword {
    pub(crate) const SDMAX_RLCX_RB_CNTL: usize = 0;
    pub(crate) const SDMAX_RLCX_RB_BASE: usize = 1;
    pub(crate) const SDMAX_RLCX_RB_BASE_HI: usize = 2;
    pub(crate) const SDMAX_RLCX_RB_RPTR_ADDR_HI: usize = 8;
    pub(crate) const SDMAX_RLCX_RB_RPTR_ADDR_LO: usize = 9;
    pub(crate) const SDMAX_RLCX_IB_CNTL: usize = 10;
    pub(crate) const SDMAX_RLCX_DOORBELL_OFFSET: usize = 22;
    pub(crate) const SDMAX_RLCX_DUMMY_REG: usize = 27;
    pub(crate) const SDMA_ENGINE_ID: usize = 126;
    pub(crate) const SDMA_QUEUE_ID: usize = 127;
}

mod rb_cntl {
    use crate::gfx::field::Field;
    /// log2 of the ring's words.
    pub(super) const RB_SIZE: Field = Field::bits(6, 1);
    pub(super) const RPTR_WRITEBACK_ENABLE: Field = Field::bit(12);
    pub(super) const RPTR_WRITEBACK_TIMER: Field = Field::bits(20, 16);
    pub(super) const RB_VMID: Field = Field::bits(27, 24);
}

mod doorbell_offset {
    use crate::gfx::field::Field;
    pub(super) const OFFSET: Field = Field::bits(27, 2);
}

mod ib_cntl {
    use crate::gfx::field::Field;
    /// An indirect buffer is at work.
    pub(super) const IB_ENABLE: Field = Field::bit(0);
    /// A long indirect buffer does not keep other processes waiting.
    pub(super) const SWITCH_INSIDE_IB: Field = Field::bit(8);
}

/// Words of a saved queue that a restored one has: how far its ring and an indirect buffer were
/// read, and what was at work. All others are our own: whose queue it is and what that may do
/// (RB_VMID, RB_PRIV, CMD_VMID, IB_PRIV), and addresses that no packet has brought.
#[rustfmt::skip]
const KEPT: &[RangeInclusive<usize>] = &[
    3..=6,   // sdmax_rlcx_rb_rptr to sdmax_rlcx_rb_wptr_hi
    11..=16, // sdmax_rlcx_ib_rptr to sdmax_rlcx_skip_cntl
    25..=25, // sdmax_rlcx_ib_sub_remain
    32..=41, // sdmax_rlcx_midcmd_data0 to sdmax_rlcx_midcmd_cntl
    44..=45, // sdmax_rlcx_utilization
];

/// `SDMA_RLC0_DUMMY_REG`: what the hardware starts with (`SDMA_RLC_DUMMY_DEFAULT`).
const DUMMY_DEFAULT: u32 = 0xf;

// What is written in one go stands together.
const _: () = {
    use dword::*;
    assert!(SDMAX_RLCX_RB_BASE == SDMAX_RLCX_RB_CNTL + 1);
    assert!(SDMAX_RLCX_RB_BASE_HI == SDMAX_RLCX_RB_CNTL + 2);
    assert!(SDMAX_RLCX_RB_RPTR_ADDR_LO == SDMAX_RLCX_RB_RPTR_ADDR_HI + 1);
    assert!(SDMAX_RLCX_IB_CNTL == SDMAX_RLCX_RB_RPTR_ADDR_HI + 2);
    assert!(SDMA_QUEUE_ID == SDMA_ENGINE_ID + 1);
};

impl Sdma {
    /// Words before the last two that SDMA 4 lacks.
    fn more(&self) -> usize {
        if self.is_gfx10 {
            2
        } else {
            0
        }
    }
}

impl SdmaFormat for Sdma {
    fn bytes(&self) -> usize {
        BYTES + self.more() * size_of::<u32>()
    }

    fn encode(&self, words: &dyn Words, queue: &SdmaQueue) {
        let ring_log2 = (queue.ring_bytes / 4).checked_ilog2().unwrap_or(0);
        let ring = queue.ring.raw() >> 8;
        let read_pointer = queue.read_pointer.raw();
        let ib_cntl = words.get(dword::SDMAX_RLCX_IB_CNTL);

        let rb_cntl = rb_cntl::RB_SIZE.of(ring_log2)
            | rb_cntl::RPTR_WRITEBACK_ENABLE.of(1)
            | rb_cntl::RPTR_WRITEBACK_TIMER.of(6);
        words.set_row(dword::SDMAX_RLCX_RB_CNTL, &[rb_cntl, lo(ring), hi(ring)]);
        words.set_row(
            dword::SDMAX_RLCX_RB_RPTR_ADDR_HI,
            &[
                hi(read_pointer),
                lo(read_pointer),
                ib_cntl | ib_cntl::SWITCH_INSIDE_IB.flag(!self.is_gfx10),
            ],
        );
        words.set(
            dword::SDMAX_RLCX_DOORBELL_OFFSET,
            doorbell_offset::OFFSET.of(queue.doorbell.raw()),
        );
        words.set(dword::SDMAX_RLCX_DUMMY_REG, DUMMY_DEFAULT);
        let SdmaPlace { engine, queue } = queue.place;
        words.set_row(dword::SDMA_ENGINE_ID + self.more(), &[engine, queue]);
    }

    fn take_over(&self, words: &dyn Words, saved: &[u32]) {
        let saved = |dword: usize| saved.get(dword).copied().unwrap_or(0);
        for dword in KEPT.iter().cloned().flatten() {
            words.set(dword, saved(dword));
        }
        let own = words.get(dword::SDMAX_RLCX_IB_CNTL);
        let enabled = saved(dword::SDMAX_RLCX_IB_CNTL) & ib_cntl::IB_ENABLE.mask();
        words.set(dword::SDMAX_RLCX_IB_CNTL, own | enabled);
    }

    fn set_vmid(&self, words: &dyn Words, vmid: Vmid, engine: u32) {
        let old = words.get(dword::SDMAX_RLCX_RB_CNTL);
        let new = rb_cntl::RB_VMID.replace(old, vmid.raw().into());
        words.set(dword::SDMAX_RLCX_RB_CNTL, new);
        words.set(dword::SDMA_ENGINE_ID + self.more(), engine);
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx9_sdma))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;
    use crate::{
        gfx::{
            testing::{known, TestWords},
            SdmaPlace, //
        },
        ids::{DoorbellIndex, GpuVa, UserVa},
    };

    fn queue() -> SdmaQueue {
        SdmaQueue {
            ring: known(GpuVa::new(0x7f00_0010_0000)),
            ring_bytes: 1 << 20,
            read_pointer: known(UserVa::new(0x7f00_0020_0040)),
            doorbell: known(DoorbellIndex::new(0x1c00)),
            place: SdmaPlace {
                engine: 1,
                queue: 5,
            },
        }
    }

    #[test]
    fn a_copy_queue_word_by_word() {
        let words = TestWords::new();
        SDMA.encode(&words, &queue());
        assert!(words.written().eq([
            (0, 0x0006_1024),
            (1, 0x1000),
            (2, 0x7f),
            (8, 0x7f00),
            (9, 0x0020_0040),
            (10, 0x100),
            (22, 0x7000),
            (27, 0xf),
            (126, 1),
            (127, 5),
        ]));
    }

    #[test]
    fn a_vmid_and_an_engine_change_nothing_else() {
        let words = TestWords::new();
        SDMA.encode(&words, &queue());
        SDMA.set_vmid(&words, known(Vmid::new(15)), 1);
        SDMA.set_vmid(&words, known(Vmid::new(9)), 3);
        assert_eq!(words.get(0), 0x0906_1024);
        assert_eq!([126, 127].map(|word| words.get(word)), [3, 5]);
    }

    #[test]
    fn a_restored_copy_queue_is_nobody_elses() {
        let words = TestWords::new();
        SDMA.encode(&words, &queue());
        SDMA.take_over(&words, &[u32::MAX; BYTES / 4]);
        // Its rights, its addresses and its place.
        assert_eq!(words.get(0), 0x0006_1024);
        assert_eq!(
            [words.get(1), words.get(9), words.get(23)],
            [0x1000, 0x0020_0040, 0]
        );
        assert_eq!(
            [words.get(22), words.get(126), words.get(127)],
            [0x7000, 1, 5]
        );
        assert_eq!(words.get(dword::SDMAX_RLCX_IB_CNTL), 0x101);
        assert_eq!([words.get(3), words.get(5), words.get(41)], [u32::MAX; 3]);
        // A short one has zeros.
        SDMA.take_over(&words, &[]);
        assert_eq!(words.get(3), 0);
    }

    #[test]
    fn an_update_keeps_the_pointers_of_the_hardware() {
        let words = TestWords::new();
        SDMA.encode(&words, &queue());
        words.set(3, 0x40);
        words.set(5, 0x80);
        words.set(dword::SDMAX_RLCX_IB_CNTL, 0x101);
        SDMA.encode(
            &words,
            &SdmaQueue {
                ring_bytes: 4096,
                ..queue()
            },
        );
        assert_eq!(words.get(0), 0x0006_1014);
        assert_eq!([words.get(3), words.get(5)], [0x40, 0x80]);
        assert_eq!(words.get(dword::SDMAX_RLCX_IB_CNTL), 0x101);
    }
}
