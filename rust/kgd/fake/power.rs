// SPDX-License-Identifier: GPL-2.0-only

//! Resets and sleep of the fake: a test says what there is of them.

use super::*;

/// What amdgpu_bridge_engines.c keeps of moves, of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    last: u64,
    marked: u64,
    clock: u64,
    failed_until: u64,
}

impl Moves {
    fn mark(&mut self) -> u64 {
        if self.marked != self.last {
            self.marked = self.last;
            self.clock += 1;
        }
        self.clock
    }

    fn fail(&mut self) {
        self.failed_until = self.mark();
    }
}

impl Fake {
    /// From now on the device is being reset, or no longer.
    pub(crate) fn set_in_reset(&self, in_reset: bool) {
        self.live.lock().in_reset = in_reset;
    }

    /// From now on amdgpu has the reset lock for something that is no reset, or no longer.
    pub(crate) fn hold_reset_lock(&self, held: bool) {
        self.live.lock().lock_held = held;
    }

    /// From now on the task is neither the kernel's nor a process's with copy queues, or it is.
    pub(crate) fn set_foreign(&self, is_foreign: bool) {
        self.live.lock().is_foreign = is_foreign;
    }

    /// From now on a reset waits for whoever keeps it from beginning.
    pub(crate) fn begin_reset(&self) {
        self.live.lock().reset_waits = true;
    }

    /// From now on the hardware has a fatal error.
    pub(crate) fn fail_fatally(&self) {
        self.live.lock().fatal_error = true;
    }

    /// The hardware has nothing on it any more: a reset.
    pub(crate) fn reset_hardware(&self) {
        let mut live = self.live.lock();
        (live.slots, live.hiq_slots, live.hiqs, live.copy_queues) = (0, 0, 0, 0);
        live.stuck_copy = None;
    }

    /// amdgpu suspends or resumes the device from now on, or no longer.
    pub(crate) fn set_suspending(&self, suspending: bool) {
        self.live.lock().suspending = suspending;
    }

    /// Whoever asks resets a copy engine for amdgpu from now on, or no longer.
    pub(crate) fn set_resets_copy_engine(&self, resets: bool) {
        self.live.lock().resets_copy_engine = resets;
    }

    /// An engine gets amdgpu's next move.
    pub(crate) fn begin_move(&self) {
        self.live.lock().moves.last += 1;
    }

    /// The last move that an engine has got has failed, and is found to have: once or more often.
    pub(crate) fn fail_move(&self) {
        self.live.lock().moves.fail();
    }

    /// How often amdgpu's engines were to be healed soon.
    pub(crate) fn heals(&self) -> u32 {
        self.live.lock().heals
    }
}

impl Power for Fake {
    fn try_lock_reset(&self) -> bool {
        let mut live = self.live.lock();
        let free = !live.in_reset && !live.lock_held;
        live.reset_locks += u32::from(free);
        free
    }

    fn unlock_reset(&self) {
        self.live.lock().reset_locks -= 1;
    }

    fn in_reset(&self) -> bool {
        let live = self.live.lock();
        live.in_reset || live.reset_waits
    }

    fn has_fatal_error(&self) -> bool {
        self.live.lock().fatal_error
    }

    fn request_reset(&self) {
        let mut live = self.live.lock();
        live.in_reset = true;
        live.resets_asked += 1;
    }

    fn is_suspending(&self) -> bool {
        self.live.lock().suspending
    }

    fn resets_copy_engine(&self) -> bool {
        self.live.lock().resets_copy_engine
    }

    fn halts_on_hang(&self) -> bool {
        false
    }

    fn isolates(&self, _partition: u32) -> bool {
        self.live.lock().isolates
    }

    fn heal_engines(&self, _wait: bool) -> u64 {
        self.live.lock().moves.failed_until
    }

    fn heal_engines_soon(&self) {
        self.live.lock().heals += 1;
    }

    fn mark_moves(&self) -> u64 {
        self.live.lock().moves.mark()
    }

    fn power_get(&self) -> Result {
        self.live.lock().awake += 1;
        Ok(())
    }

    fn power_put(&self) {
        self.live.lock().awake -= 1;
    }
}
