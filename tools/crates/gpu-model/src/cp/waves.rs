// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Wave control from outside: SQ_CMD, by which a driver halts, resumes, traps or kills waves.
//! Nothing is kept here.
//!
//! Sources: SQ_CMD of `gc_9_4_3_sh_mask.h`; SQ_IND_CMD_CMD and SQ_IND_CMD_MODE of
//! `include/navi10_enum.h` (gfx9 has the same).

use std::sync::Arc;

use gcn::wave::status;
use gcn::{Wave, WaveState};

use super::layout::sq_cmd;
use super::queue::{Kind, Queue};
use super::Shared;

/// SQ_CMD.CMD.
mod command {
    pub const SETHALT: u32 = 1;
    pub const SAVECTX: u32 = 2;
    pub const KILL: u32 = 3;
    pub const TRAP: u32 = 5;
}

/// SQ_CMD.MODE: one wave, or all (of the VMID, if CHECK_VMID is set).
const MODE_SINGLE: u32 = 0;
const MODE_BROADCAST_QUEUE: u32 = 2;

/// A write to SQ_CMD.
#[derive(Clone, Copy)]
struct Command(u32);

impl Command {
    /// CMD 2:0.
    fn command(self) -> u32 {
        sq_cmd::CMD.pick(self.0)
    }

    /// DATA 11:8.
    fn data(self) -> u8 {
        sq_cmd::DATA.pick(self.0) as u8
    }

    /// CHECK_VMID 7, VM_ID 31:28; MODE 6:4, QUEUE_ID 26:24.
    fn means_queue(self, queue: &Queue) -> bool {
        let vmid = u32::from(queue.space.vmid);
        let by_queue = matches!(
            sq_cmd::MODE.pick(self.0),
            MODE_SINGLE | MODE_BROADCAST_QUEUE
        );
        (sq_cmd::CHECK_VMID.pick(self.0) == 0 || sq_cmd::VM_ID.pick(self.0) == vmid)
            && (!by_queue || sq_cmd::QUEUE_ID.pick(self.0) == u32::from(queue.slot.queue))
    }

    /// WAVE_ID 19:16, SIMD_ID 21:20, as the wave reads them in HW_ID.
    fn means_wave(self, wave: &Wave) -> bool {
        sq_cmd::MODE.pick(self.0) != MODE_SINGLE
            || (sq_cmd::WAVE_ID.pick(self.0), sq_cmd::SIMD_ID.pick(self.0))
                == (wave.hw_id & 0xf, wave.hw_id >> 4 & 3)
    }

    /// Does it to a wave. False: the model does not know the command.
    fn apply(self, wave: &mut Wave) -> bool {
        match self.command() {
            0 => {}
            command::SETHALT if self.data() & 1 != 0 => wave.status |= status::HALT,
            command::SETHALT => wave.status &= !status::HALT,
            command::SAVECTX => drop(wave.save_context()),
            command::KILL => wave.state = WaveState::Ended,
            command::TRAP => drop(wave.enter_trap(self.data(), true)),
            _ => return false,
        }
        true
    }
}

/// SQ_CMD was written.
pub fn wave_control(shared: &Arc<Shared>, xcc: u8, value: u32) {
    let command = Command(value);
    let schedules = |queue: &Queue| matches!(queue.kind, Kind::Kiq | Kind::Hiq);
    let slots = shared.mapped_slots(|queue| {
        queue.slot.xcc == xcc && !schedules(queue) && command.means_queue(queue)
    });
    let mut known = true;
    for at in slots.into_iter().filter_map(|slot| shared.mapped_at(slot)) {
        at.queue.with_waves(&mut |wave| {
            if command.means_wave(wave) && wave.state != WaveState::Ended {
                known &= command.apply(wave);
                shared.stats.work("waves controlled by SQ_CMD", 1);
            }
        });
        shared.runner.wake(&at.task);
    }
    if !known {
        shared.stats.count("SQ_CMD.CMD");
        tracing::warn!(xcc, value, "wave command not modelled");
    }
}
