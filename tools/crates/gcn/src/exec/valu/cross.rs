// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Vector instructions that cross lanes without DPP: lane reads and writes, counts of the lanes
//! below.

use super::{Done, Machine};
use crate::inst::{Dst, Valu};
use crate::op::Vop3;
use crate::wave::LANES;

impl Machine<'_> {
    /// The first active lane's value, or lane 0's if none is.
    pub(super) fn read_first_lane(&mut self, v: &Valu) -> Done {
        let exec = self.wave.exec();
        let lane = if exec == 0 {
            0
        } else {
            exec.trailing_zeros() as usize
        };
        self.lane_to_scalar(v, lane)
    }

    pub(super) fn read_lane(&mut self, v: &Valu) -> Done {
        let lane = self.scalar32(v.src[1]) as usize % LANES;
        self.lane_to_scalar(v, lane)
    }

    fn lane_to_scalar(&mut self, v: &Valu, lane: usize) -> Done {
        let mut hold = [0; LANES];
        let value = self.raw32(v.src[0], &mut hold)[lane];
        if let Dst::Scalar(dst) = v.dst {
            self.set32(dst, value);
        }
        Ok(())
    }

    /// Writes one lane, active or not.
    pub(super) fn write_lane(&mut self, v: &Valu) -> Done {
        let (value, lane) = (
            self.scalar32(v.src[0]),
            self.scalar32(v.src[1]) as usize % LANES,
        );
        if let Dst::Vgpr(dst) = v.dst {
            self.wave.vgpr[usize::from(dst)][lane] = value;
        }
        Ok(())
    }

    /// `v_mbcnt`: how many bits of a mask are below the lane's own; the low and the high half
    /// apart.
    pub(super) fn masked_count(&mut self, v: &Valu, op: Vop3) -> Done {
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        let first = if op == Vop3::v_mbcnt_hi_u32_b32 {
            32
        } else {
            0
        };
        let d = std::array::from_fn(|lane| {
            let below = match lane.saturating_sub(first) {
                below @ 0..=31 => (1 << below) - 1,
                _ => u32::MAX,
            };
            (a[lane] & below).count_ones().wrapping_add(b[lane])
        });
        self.put32(v, &d);
        Ok(())
    }
}
