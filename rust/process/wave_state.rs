// SPDX-License-Identifier: GPL-2.0-only

//! GET_QUEUE_WAVE_STATE and ALLOC_QUEUE_GWS: what a process may ask of a queue that it stopped.
//!
//! When waves leave an XCC, the command processor writes a control stack, which says what there is
//! to restore, behind the queue's descriptor, and their state into the user's area. A debugger
//! wants both: [`wave_state`] puts the control stack where it belongs in the area, below a header.
//! SUSPEND_QUEUES does so for all compute queues of a process on a GPU where it suspends some:
//! there is room for them before it begins ([`SavedQueues`]); when the hardware has let go of them
//! it looks at one after the other, and all is written when nothing is locked any more. Stacks may
//! be long, so that nothing is locked across looking at two of them.

use super::{
    queues,
    telling::{
        Errand,
        ErrandTurn, //
    },
    Process,
    ProcessDevice,
    ProcessRef, //
};
use crate::{
    gfx::{
        SaveArea,
        SavedWaves,
        Words, //
    },
    ids::QueueId,
    linux::task::in_address_space,
    queue::Queue,
    sched::Key,
    uapi::user_slice, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};

/// What XCC 0 has saved, in bytes.
pub(crate) struct WaveState {
    pub(crate) control_stack: u32,
    pub(crate) save_area: u32,
}

/// What one XCC has saved of a queue.
struct Saved {
    waves: SavedWaves,
    /// Room for the control stack; what is in use stands at its end.
    stack: KVVec<u32>,
}

impl Saved {
    fn new(stack_bytes: u32) -> Result<Self> {
        let words = stack_bytes as usize / size_of::<u32>();
        Ok(Self {
            waves: SavedWaves::default(),
            stack: KVVec::from_elem(0, words, GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Takes it from the `xcc`th descriptor of `queue` and from the control stack behind that.
    fn fill(&mut self, xcc: u32, queue: &Queue) -> Result {
        let (waves, behind) = queue.saved_waves(xcc)?;
        self.waves = waves;
        let first = self.first();
        // At once: it may lie in VRAM, where each access waits for the bus.
        if let Some(used) = self.stack.get_mut(first..) {
            behind.get_row(first, used);
        }
        Ok(())
    }

    /// The first word that is in use. The hardware wrote it: it may say anything.
    fn first(&self) -> usize {
        self.waves.first_word(self.stack.len())
    }

    fn used(&self) -> &[u32] {
        self.stack.get(self.first()..).unwrap_or(&[])
    }

    /// Writes the header (`kfd_context_save_area_header.wave_state`) and the stack to the area at
    /// `address`, with `write`.
    fn write(&self, address: u64, mut write: impl FnMut(u64, &[u32]) -> Result) -> Result {
        let waves = &self.waves;
        let header = [
            waves.control_stack_offset,
            self.stack_bytes(),
            waves.wave_state_offset,
            self.save_area_bytes(),
        ];
        write(address, &header)?;
        let offset = self.first() * size_of::<u32>();
        write(address.wrapping_add(offset as u64), self.used())
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
    let mut saved = room_for(device, area)?;
    device
        .queues()
        .while_stopped(id, |queue| fill(&mut saved, queue))?;
    for (xcc, saved) in (0u64..).zip(saved.iter()) {
        saved.write(user.wrapping_add(xcc * u64::from(area.bytes)), write_words)?;
    }
    let first = saved.first().ok_or(EINVAL)?;
    Ok(WaveState {
        // CAST: no more than the stack, whose size is a `u32`.
        control_stack: size_of_val(first.used()) as u32,
        save_area: first.save_area_bytes(),
    })
}

/// Room for what each XCC saves of a queue with this area.
fn room_for(device: &ProcessDevice, area: SaveArea) -> Result<KVec<Saved>> {
    let xccs = device.node().num_xcc();
    let mut saved = KVec::with_capacity(xccs as usize, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..xccs {
        saved.push(Saved::new(area.control_stack)?, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(saved)
}

fn fill(saved: &mut [Saved], queue: &Queue) -> Result {
    let mut xccs = (0..).zip(saved.iter_mut());
    xccs.try_for_each(|(xcc, saved): (u32, &mut Saved)| saved.fill(xcc, queue))
}

/// What all XCCs have saved of a queue.
struct SavedQueue {
    device: Arc<ProcessDevice>,
    id: QueueId,
    /// Which queue is meant: another one may have its `id` by now, and another area.
    key: Key,
    area: SaveArea,
    xccs: KVec<Saved>,
    /// It is to be looked at.
    wanted: bool,
    /// It has been looked at.
    seen: bool,
}

/// Room for what is saved of the compute queues that a process has.
fn room(process: &Process) -> Result<KVec<SavedQueue>> {
    let mut all = KVec::new();
    for device in process.devices().iter().filter(|it| it.saves_waves()) {
        for id in device.queues().ids()? {
            let Some((key, area)) = device.queues().key_and_save_area(id) else {
                continue;
            };
            let saved = SavedQueue {
                device: device.clone(),
                id,
                key,
                area,
                xccs: room_for(device, area)?,
                wanted: false,
                seen: false,
            };
            all.push(saved, GFP_KERNEL_ACCOUNT)?;
        }
    }
    Ok(all)
}

/// What is saved of a process's queues, and what it takes to write that into their save areas.
pub(super) struct SavedQueues {
    all: KVec<SavedQueue>,
    errand: Errand<KVec<SavedQueue>>,
}

impl SavedQueues {
    /// Room for the compute queues that the process has.
    pub(super) fn room(process: &ProcessRef) -> Result<Self> {
        Ok(Self {
            all: room(process)?,
            errand: Errand::new(process, write_all)?,
        })
    }

    /// Those on this device are to be looked at: the hardware has let go of them.
    pub(super) fn want(&mut self, device: &Arc<ProcessDevice>) {
        let all = self.all.iter_mut();
        all.filter(|it| Arc::ptr_eq(&it.device, device))
            .for_each(|it| it.wanted = true);
    }

    /// Takes what is saved of those. Nothing may be locked.
    pub(super) fn look(&mut self) {
        for saved in self.all.iter_mut().filter(|it| it.wanted) {
            let (xccs, queues) = (&mut saved.xccs, saved.device.queues());
            let result = queues.look_at(saved.id, saved.key, |queue| {
                queue.flush();
                fill(xccs, queue)
            });
            // A descriptor that cannot be read says nothing.
            saved.seen = result.is_ok();
        }
    }

    /// Writes it into the save areas, in the caller's turn. One that is not there is left out, and
    /// so are all when somebody keeps the process's memory locked. Nothing may be locked.
    pub(super) fn write(self, turn: &ErrandTurn<'_>) {
        self.errand.run(turn, self.all);
    }
}

/// For a kernel thread.
fn write_all(process: &Process, all: KVec<SavedQueue>) {
    for saved in all.iter().filter(|saved| saved.seen) {
        if let Err(error) = saved.write(process) {
            let id = saved.id.raw();
            pr_debug!("queue {id}: what was saved of it is not written: {error:?}\n");
            // Each of the others would wait as long for the same lock.
            if error == ETIMEDOUT {
                break;
            }
        }
    }
}

impl SavedQueue {
    /// For a kernel thread. `ENOENT`: the queue is gone; `EFAULT`, `ETIMEDOUT`: see
    /// [`LentMemory`](crate::linux::task::LentMemory).
    fn write(&self, process: &Process) -> Result {
        // DESTROY_QUEUE waits for this: afterwards the area may be something else.
        let _telling = process.telling();
        if !self.device.queues().has_key(self.id, self.key) {
            return Err(ENOENT);
        }
        in_address_space(process.address_space(), |memory| {
            let area = self.area.address.raw();
            for (xcc, saved) in (0u64..).zip(self.xccs.iter()) {
                let address = area.wrapping_add(xcc * u64::from(self.area.bytes));
                saved.write(address, |address, words| memory.write_words(address, words))?;
            }
            Ok(())
        })
    }
}

/// ALLOC_QUEUE_GWS. `EINVAL`: the process has no such queue, or none of its has what it gives back;
/// `ENODEV`: its GPU has no global wave sync; `EBUSY`: another of its queues has it; `EACCES`: a
/// queue of it was reset.
pub(crate) fn allocate_wave_sync(process: &Process, id: u32, slots: u32) -> Result {
    let _turn = process.memory_lock();
    let (id, device) = queues::find(process, id).ok_or(EINVAL)?;
    if device.node().wave_sync_slots() == 0 {
        return Err(ENODEV);
    }
    let result = match slots {
        0 => device.queues().take_wave_sync(),
        _ => device.queues().give_wave_sync(id),
    };
    device.node().notify_resets();
    result
}
