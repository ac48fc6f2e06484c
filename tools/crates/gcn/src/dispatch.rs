// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! From the COMPUTE_PGM_* registers to waves: what the hardware's workgroup manager (SPI) puts into
//! registers at launch.
//!
//! One [`Dispatch`] per kernel launch; the caller owns it and asks it for each work-group.

use crate::target::Target;
use crate::wave::{mode, sreg, status, Wave, LANES};
use crate::workgroup::Workgroup;

/// Where the flat address space holds LDS and scratch: 4 GiB windows at these bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Apertures {
    /// SH_MEM_BASES.SHARED_BASE << 48: LDS. 0 = no window.
    pub shared: u64,
    /// SH_MEM_BASES.PRIVATE_BASE << 48: scratch. 0 = no window.
    pub private: u64,
}

/// Scratch backing of one work-group: wave `n` has `wave_bytes` bytes at `base + n * wave_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Scratch {
    /// GPU virtual address of wave 0's part.
    pub base: u64,
    /// Bytes of one wave, all 64 lanes.
    pub wave_bytes: u64,
    /// Where the backing of the whole queue begins: what waves of processors without architected
    /// flat scratch count their offsets from.
    pub ring: u64,
}

/// A kernel launch, in terms of the hardware's registers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Dispatch {
    /// The processor.
    pub target: Target,
    /// Address of the first instruction (COMPUTE_PGM_LO/HI << 8).
    pub entry: u64,
    /// COMPUTE_PGM_RSRC1.
    pub pgm_rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub pgm_rsrc2: u32,
    /// COMPUTE_PGM_RSRC3.
    pub pgm_rsrc3: u32,
    /// COMPUTE_USER_DATA_*: as many as RSRC2.USER_SGPR says are loaded, from s0 on.
    pub user_sgprs: Vec<u32>,
    /// Work-items of a work-group.
    pub workgroup_size: [u32; 3],
    /// LDS bytes of a work-group (the caller's sum of static and dynamic LDS).
    pub lds_bytes: u32,
    /// The flat windows.
    pub apertures: Apertures,
    /// Trap handler (TBA) and its memory (TMA); 0 = none. RSRC2.TRAP_PRESENT or a TBA enables
    /// traps.
    pub tba: u64,
    /// TMA.
    pub tma: u64,
}

impl Dispatch {
    /// VGPRs a wave has: architectural ones and accumulation ones (RSRC1.VGPRS,
    /// RSRC3.ACCUM_OFFSET).
    pub fn vgprs(&self) -> (usize, usize) {
        let total = ((self.pgm_rsrc1 & 0x3f) as usize + 1) * 8;
        let arch = ((self.pgm_rsrc3 & 0x3f) as usize + 1) * 4;
        if arch < total {
            (arch, total - arch)
        } else {
            (total, 0)
        }
    }

    /// Work-items of a full work-group.
    pub fn items(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    /// Waves of a full work-group.
    pub fn waves(&self) -> u32 {
        self.items().div_ceil(LANES as u32)
    }

    /// The work-group `id` of the grid, ready to run. `size` is [`Dispatch::workgroup_size`] or
    /// less at the grid's far edges.
    pub fn workgroup(&self, id: [u32; 3], size: [u32; 3], scratch: Scratch) -> Workgroup {
        let items: u32 = size.iter().product();
        let count = items.div_ceil(LANES as u32);
        let waves = (0..count)
            .map(|index| self.wave(index, count, id, size, scratch))
            .collect();
        Workgroup::new(waves, self.lds_bytes as usize, self.apertures)
    }

    fn wave(&self, index: u32, count: u32, id: [u32; 3], size: [u32; 3], scratch: Scratch) -> Wave {
        let (arch, acc) = self.vgprs();
        let mut wave = Wave::new(self.entry, arch, acc);
        wave.mode = self.mode();
        wave.tba = self.tba;
        wave.tma = self.tma;
        if self.tba != 0 || self.pgm_rsrc2 & RSRC2_TRAP_PRESENT != 0 {
            wave.status |= status::TRAP_EN;
        }
        let offset = u64::from(index).wrapping_mul(scratch.wave_bytes);
        let backing = scratch.base.wrapping_add(offset);
        let next = self.set_sgprs(&mut wave, index, count, id);
        if self.target.has_architected_scratch() {
            wave.set_scalar64(sreg::FLAT_SCRATCH, backing);
        } else if self.pgm_rsrc2 & RSRC2_SCRATCH_EN != 0 {
            wave.scalar[next] = backing.wrapping_sub(scratch.ring) as u32;
        }
        set_work_items(&mut wave, index, size);
        wave
    }

    /// MODE from RSRC1: FLOAT_MODE 19:12, DX10_CLAMP 21, IEEE_MODE 23, FP16_OVFL 26; EXCP_EN from
    /// RSRC2.
    fn mode(&self) -> u32 {
        let rsrc1 = self.pgm_rsrc1;
        let flag = |bit: u32, set: u32| if rsrc1 >> bit & 1 != 0 { set } else { 0 };
        (rsrc1 >> 12 & 0xff)
            | flag(21, mode::DX10_CLAMP)
            | flag(23, mode::IEEE)
            | flag(26, mode::FP16_OVFL)
            | (self.pgm_rsrc2 >> 24 & 0x7f) << 12
    }

    /// Fills SGPRs, and says which is the first that it leaves alone.
    fn set_sgprs(&self, wave: &mut Wave, index: u32, count: u32, id: [u32; 3]) -> usize {
        let user = (self.pgm_rsrc2 >> 1 & 0x1f) as usize;
        let mut next = user;
        for (to, from) in wave.scalar[..user].iter_mut().zip(&self.user_sgprs) {
            *to = *from;
        }
        let mut push = |bit: u32, value: u32| {
            if self.pgm_rsrc2 & bit != 0 {
                wave.scalar[next] = value;
                next += 1;
            }
        };
        push(RSRC2_TGID_X_EN, id[0]);
        push(RSRC2_TGID_Y_EN, id[1]);
        push(RSRC2_TGID_Z_EN, id[2]);
        // TG_SIZE: first wave in bit 31, waves in the group 5:0, ordered count not modelled.
        push(
            RSRC2_TG_SIZE_EN,
            u32::from(index == 0) << 31 | index << 6 | count,
        );
        next
    }
}

const RSRC2_SCRATCH_EN: u32 = 1;
const RSRC2_TRAP_PRESENT: u32 = 1 << 6;
const RSRC2_TGID_X_EN: u32 = 1 << 7;
const RSRC2_TGID_Y_EN: u32 = 1 << 8;
const RSRC2_TGID_Z_EN: u32 = 1 << 9;
const RSRC2_TG_SIZE_EN: u32 = 1 << 10;

/// v0 holds the packed work-item id (x 9:0, y 19:10, z 29:20), as on all of gfx90a and gfx94x; EXEC
/// the lanes that exist.
fn set_work_items(wave: &mut Wave, index: u32, size: [u32; 3]) {
    let items: u32 = size.iter().product();
    let mut exec = 0;
    for lane in 0..LANES as u32 {
        let item = index * LANES as u32 + lane;
        if item >= items {
            break;
        }
        let (x, y, z) = (
            item % size[0],
            item / size[0] % size[1],
            item / size[0] / size[1],
        );
        wave.vgpr[0][lane as usize] = x | y << 10 | z << 20;
        exec |= 1 << lane;
    }
    wave.set_exec(exec);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_wave_has_packed_ids_and_a_short_exec() {
        let dispatch = Dispatch {
            pgm_rsrc2: 2 << 1 | RSRC2_TGID_X_EN | RSRC2_TGID_Z_EN,
            user_sgprs: vec![7, 8],
            workgroup_size: [10, 7, 1],
            ..Dispatch::default()
        };
        let group = dispatch.workgroup(
            [3, 4, 5],
            [10, 7, 1],
            Scratch {
                base: 0x1000,
                wave_bytes: 256,
                ring: 0x800,
            },
        );
        assert_eq!(group.waves.len(), 2);
        assert_eq!(group.waves[0].exec(), !0);
        assert_eq!(group.waves[1].exec(), 0x3f);
        assert_eq!(group.waves[1].vgpr[0][0], 4 | 6 << 10);
        assert_eq!(group.waves[0].scalar[..4], [7, 8, 3, 5]);
        assert_eq!(group.waves[1].scratch_base(), 0x1100);
    }

    #[test]
    fn waves_of_gfx90a_learn_their_offset_in_scratch() {
        let mut dispatch = Dispatch {
            target: Target::Gfx90a,
            pgm_rsrc2: RSRC2_SCRATCH_EN | 2 << 1 | RSRC2_TGID_X_EN,
            user_sgprs: vec![7, 8],
            workgroup_size: [128, 1, 1],
            ..Dispatch::default()
        };
        let scratch = Scratch {
            base: 0x1000,
            wave_bytes: 256,
            ring: 0x800,
        };
        let sgprs = |dispatch: &Dispatch| {
            let group = dispatch.workgroup([3, 4, 5], [128, 1, 1], scratch);
            assert_eq!(group.waves[1].scratch_base(), 0);
            [0, 1].map(|wave: usize| group.waves[wave].scalar[2..4].to_vec())
        };
        assert_eq!(sgprs(&dispatch), [[3, 0x800], [3, 0x900]]);
        dispatch.pgm_rsrc2 &= !RSRC2_SCRATCH_EN;
        assert_eq!(sgprs(&dispatch), [[3, 0], [3, 0]]);
    }
}
