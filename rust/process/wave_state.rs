// SPDX-License-Identifier: GPL-2.0-only

//! GET_QUEUE_WAVE_STATE and ALLOC_QUEUE_GWS: what a process may ask of a queue that it stopped.
//!
//! When waves leave an XCC, the command processor writes a control stack, which says what there is
//! to restore, behind the queue's descriptor, and their state into the user's area. A debugger
//! wants both: [`wave_state`] puts the control stack where it belongs in the area, below a header.

use super::{
    queues,
    Process, //
};
use crate::{
    gfx::{
        SavedWaves,
        Words, //
    },
    queue::Queue,
    uapi::user_slice, //
};
use kernel::prelude::*;

/// What XCC 0 has saved, in bytes.
pub(crate) struct WaveState {
    pub(crate) control_stack: u32,
    pub(crate) save_area: u32,
}

/// What one XCC has saved of a queue.
struct Saved {
    waves: SavedWaves,
    /// Room for the control stack; what is in use stands at its end.
    stack: KVec<u32>,
}

impl Saved {
    fn new(stack_bytes: u32) -> Result<Self> {
        let words = stack_bytes as usize / size_of::<u32>();
        Ok(Self {
            waves: SavedWaves::default(),
            stack: KVec::from_elem(0, words, GFP_KERNEL)?,
        })
    }

    /// Takes it from the `xcc`th descriptor of `queue` and from the control stack behind that.
    fn fill(&mut self, xcc: u32, queue: &Queue) -> Result {
        let (waves, behind) = queue.saved_waves(xcc)?;
        self.waves = waves;
        let first = self.first();
        for (index, word) in self.stack.iter_mut().enumerate().skip(first) {
            *word = behind.get(index);
        }
        Ok(())
    }

    /// The first word that is in use. The hardware wrote it: it may say anything.
    fn first(&self) -> usize {
        let offset = self.waves.control_stack_offset;
        let offset = offset.min(self.waves.control_stack_size);
        (offset as usize / size_of::<u32>()).min(self.stack.len())
    }

    fn used(&self) -> &[u32] {
        self.stack.get(self.first()..).unwrap_or(&[])
    }

    /// Writes the header (`kfd_context_save_area_header.wave_state`) and the stack to the area at
    /// `address`.
    fn write(&self, address: u64) -> Result {
        let waves = &self.waves;
        let header = [
            waves.control_stack_offset,
            self.stack_bytes(),
            waves.wave_state_offset,
            self.save_area_bytes(),
        ];
        write_words(address, &header)?;
        let offset = self.first() * size_of::<u32>();
        write_words(address.wrapping_add(offset as u64), self.used())
    }

    fn stack_bytes(&self) -> u32 {
        let waves = &self.waves;
        waves
            .control_stack_size
            .wrapping_sub(waves.control_stack_offset)
    }

    fn save_area_bytes(&self) -> u32 {
        let waves = &self.waves;
        waves
            .wave_state_offset
            .wrapping_sub(waves.control_stack_size)
    }
}

fn write_words(address: u64, words: &[u32]) -> Result {
    let mut writer = user_slice(address, size_of_val(words)).writer();
    words.iter().try_for_each(|word| writer.write(word))
}

/// GET_QUEUE_WAVE_STATE: writes what all XCCs have saved of a stopped compute queue to a copy of
/// its save area at `user`. `EFAULT`: the process has no such queue, or nothing is mapped there;
/// `EINVAL`: the queue may run, or saves no waves.
pub(crate) fn wave_state(process: &Process, id: u32, user: u64) -> Result<WaveState> {
    let _turn = process.memory_lock();
    let (id, device) = queues::find(process, id).ok_or(EFAULT)?;
    let properties = device.queues().properties(id)?;
    properties.compute_format().ok_or(EINVAL)?;
    let area = properties.save_area().ok_or(EINVAL)?;
    if !device.saves_waves() {
        return Err(EINVAL);
    }
    let xccs = device.node().num_xcc();
    let mut saved = KVec::with_capacity(xccs as usize, GFP_KERNEL)?;
    for _ in 0..xccs {
        saved.push(Saved::new(area.control_stack)?, GFP_KERNEL)?;
    }
    device.queues().while_stopped(id, |queue| {
        (0..)
            .zip(saved.iter_mut())
            .try_for_each(|(xcc, saved): (u32, &mut Saved)| saved.fill(xcc, queue))
    })?;
    for (xcc, saved) in (0u64..).zip(saved.iter()) {
        saved.write(user.wrapping_add(xcc * u64::from(area.bytes)))?;
    }
    let first = saved.first().ok_or(EINVAL)?;
    Ok(WaveState {
        // CAST: no more than the stack, whose size is a `u32`.
        control_stack: size_of_val(first.used()) as u32,
        save_area: first.save_area_bytes(),
    })
}

/// ALLOC_QUEUE_GWS. `EINVAL`: the process has no such queue, or none of its has what it gives back;
/// `ENODEV`: its GPU has no global wave sync; `EBUSY`: another of its queues has it; `EACCES`: a
/// queue of it was reset.
pub(crate) fn allocate_wave_sync(process: &Process, id: u32, slots: u32) -> Result {
    let _turn = process.memory_lock();
    let (id, device) = queues::find(process, id).ok_or(EINVAL)?;
    if device.node().facts().gws_size == 0 {
        return Err(ENODEV);
    }
    let result = match slots {
        0 => device.queues().take_wave_sync(),
        _ => device.queues().give_wave_sync(id),
    };
    device.node().notify_resets();
    result
}
