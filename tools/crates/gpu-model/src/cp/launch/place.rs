// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where work-groups run: the compute units that a queue may use, how many groups each holds, and
//! the hardware ids that their waves read. One [`Places`] per dispatch and XCC.
//!
//! Sources: COMPUTE_STATIC_THREAD_MGMT_SE* of the MQD, SQ_WAVE_HW_ID of `gc_9_4_3_sh_mask.h`; the
//! limits of a compute unit are those of "AMD Instinct MI300 Instruction Set Architecture".

use super::super::queue::SlotId;
use crate::processor::bus::Cores;
use gcn::{Dispatch, Target};

/// SIMDs of a compute unit.
const SIMDS: u32 = 4;
/// Waves of a SIMD.
const SIMD_WAVES: u32 = 8;
/// VGPRs of a SIMD's lane, accumulation ones included.
const SIMD_VGPRS: u32 = 512;

/// A compute unit: shader engine and number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cu {
    /// Shader engine of the XCC.
    pub engine: u8,
    /// Compute unit of the engine.
    pub unit: u8,
}

/// The compute units of a dispatch, and how many slots for groups they have together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    units: Vec<Cu>,
    per_unit: u32,
}

impl Places {
    /// The units that the masks (one per shader engine, CU_EN 15:0) leave of an XCC's. None: they
    /// leave none.
    pub fn new(cores: Cores, masks: [u32; 4], dispatch: &Dispatch) -> Option<Self> {
        let mut units = Vec::new();
        // Neighbouring groups go to different engines.
        for unit in 0..16 {
            for engine in 0..cores.engines {
                let at = usize::from(engine) % 4;
                if unit < cores.units[at] && masks[at] >> unit & 1 != 0 {
                    units.push(Cu { engine, unit });
                }
            }
        }
        let per_unit = groups_of_unit(cores.target, dispatch);
        (!units.is_empty()).then_some(Places { units, per_unit })
    }

    /// One compute unit, whatever the masks say.
    pub fn one(target: Target, dispatch: &Dispatch) -> Self {
        Places {
            units: vec![Cu { engine: 0, unit: 0 }],
            per_unit: groups_of_unit(target, dispatch),
        }
    }

    /// Slots for groups.
    pub fn slots(&self) -> u32 {
        self.units.len() as u32 * self.per_unit
    }

    fn cu(&self, slot: u32) -> Cu {
        self.units[slot as usize % self.units.len()]
    }

    /// A number for the compute unit of a slot.
    pub fn unit(&self, slot: u32) -> u16 {
        let Cu { engine, unit } = self.cu(slot);
        u16::from(engine) << 8 | u16::from(unit)
    }

    /// HW_ID of a group's wave: WAVE_ID 3:0, SIMD_ID 5:4, PIPE_ID 7:6, CU_ID 11:8, SE_ID 14:13,
    /// TG_ID 19:16, VM_ID 23:20, QUEUE_ID 26:24, ME_ID 31:30.
    pub fn hw_id(&self, of: SlotId, vmid: u8, slot: u32, wave: u32, waves: u32) -> u32 {
        let count = self.units.len() as u32;
        let cu = self.cu(slot);
        let group = slot / count;
        let place = group * waves + wave;
        ((place / SIMDS) & 0xf)
            | (place % SIMDS) << 4
            | u32::from(of.pipe & 3) << 6
            | u32::from(cu.unit & 0xf) << 8
            | u32::from(cu.engine & 3) << 13
            | (group & 0xf) << 16
            | u32::from(vmid & 0xf) << 20
            | u32::from(of.queue & 7) << 24
            | u32::from(of.me & 3) << 30
    }
}

/// How many groups of a dispatch a compute unit holds at a time: at least one.
fn groups_of_unit(target: Target, dispatch: &Dispatch) -> u32 {
    let (vgprs, accs) = dispatch.vgprs();
    let by_vgprs = SIMD_VGPRS / ((vgprs + accs) as u32).max(1);
    let waves = SIMDS * by_vgprs.clamp(1, SIMD_WAVES);
    let by_waves = waves / dispatch.waves().max(1);
    let by_lds = target.lds_bytes() / dispatch.lds_bytes.max(1);
    by_waves.min(by_lds).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORES: Cores = Cores {
        engines: 4,
        units: [5; 4],
        target: Target::Gfx942,
    };

    fn dispatch(items: u32, lds_bytes: u32) -> Dispatch {
        Dispatch {
            workgroup_size: [items, 1, 1],
            lds_bytes,
            pgm_rsrc1: 15, // 128 VGPRs
            ..Dispatch::default()
        }
    }

    #[test]
    fn masks_and_limits_decide_how_many_groups_fit() {
        let all = Places::new(CORES, [!0; 4], &dispatch(64, 0)).unwrap();
        assert_eq!(all.slots(), 20 * 16);
        let lds = Places::new(CORES, [!0; 4], &dispatch(64, 32 << 10)).unwrap();
        assert_eq!(lds.slots(), 20 * 2);
        let cores = Cores {
            target: Target::Gfx950,
            ..CORES
        };
        let lds = Places::new(cores, [!0; 4], &dispatch(64, 32 << 10)).unwrap();
        assert_eq!(lds.slots(), 20 * 5, "160 KiB");
        let masked = Places::new(CORES, [2, 0, 0, 2], &dispatch(1024, 0)).unwrap();
        assert_eq!(masked.slots(), 2);
        assert!(Places::new(CORES, [0; 4], &dispatch(64, 0)).is_none());
    }

    #[test]
    fn waves_read_where_they_are() {
        let places = Places::new(CORES, [0, 0, 4, 0], &dispatch(64, 0)).unwrap();
        let slot = SlotId {
            xcc: 0,
            me: 1,
            pipe: 2,
            queue: 3,
        };
        let id = places.hw_id(slot, 8, 6, 0, 1);
        let field = |at: u32, width: u32| id >> at & ((1 << width) - 1);
        assert_eq!((field(0, 4), field(4, 2)), (1, 2), "wave 6 of the unit");
        assert_eq!((field(8, 4), field(13, 2)), (2, 2));
        assert_eq!((field(20, 4), field(24, 3), field(30, 2)), (8, 3, 1));
    }
}
