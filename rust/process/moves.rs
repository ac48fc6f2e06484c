// SPDX-License-Identifier: GPL-2.0-only

//! Whether a process's buffers have, when they come back, what they had when they left.
//!
//! From the signal of its eviction fence until they are restored, copy engines move them, and its
//! page tables. A move that fails, as in a reset of an engine, nobody is told of: the buffer is in
//! its new place, with the contents of that. Which one it was cannot be known, so who was evicted
//! while a move of the GPU's failed has lost what it has there, as in a reset of the GPU.

use super::{
    power::Cause,
    Process,
    ProcessDevice, //
};
use crate::kgd::{
    gpu_err,
    Kgd,
    MemoryContext, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
};

/// The GPU's count of moves that have failed, as it was when the process's buffers began to move:
/// those that are away, and those that are just being brought back.
pub(super) struct Moves {
    away: Atomic<u64>,
    coming: Atomic<u64>,
}

/// The buffers stay where they are.
const NONE: u64 = u64::MAX;

impl Moves {
    pub(super) const fn new() -> Self {
        Self {
            away: Atomic::new(NONE),
            coming: Atomic::new(NONE),
        }
    }

    /// The buffers may move from now on. May run under reclaim.
    fn begin(&self, kgd: &dyn Kgd) {
        let failed = kgd.heal_engines(false);
        // Where they may already, the older count stays.
        let _ = self.away.cmpxchg(NONE, failed, Relaxed);
    }

    /// They are about to be brought back: by engines that work. May sleep for some ms. One caller
    /// at a time.
    fn come(&self, kgd: &dyn Kgd) {
        let _ = kgd.heal_engines(true);
        self.coming.store(self.away.xchg(NONE, Relaxed), Relaxed);
    }

    /// Some of them could not be.
    fn turn_back(&self) {
        let before = self.coming.xchg(NONE, Relaxed);
        if before != NONE {
            self.away.store(before, Relaxed);
        }
    }

    /// They are back, and may have left again. False: a move has failed on the way. May sleep for
    /// some ms.
    fn arrive(&self, kgd: &dyn Kgd) -> bool {
        let failed = kgd.heal_engines(true);
        let before = self.coming.xchg(NONE, Relaxed);
        before == NONE || before == failed
    }
}

impl Process {
    /// The devices of which it may have buffers.
    fn devices_with_vm(&self) -> impl Iterator<Item = &ProcessDevice> {
        let all = self.devices().iter().map(|device| &**device);
        all.filter(|device| device.vm().is_ok())
    }

    /// Its buffers are about to be allowed to move.
    pub(super) fn begin_moves(&self) {
        for device in self.devices_with_vm() {
            device.moves().begin(&**device.node().kgd());
        }
    }

    /// Brings its buffers back. It has lost those GPUs afterwards on which a move has failed since
    /// they began to move. For one caller at a time. Fails as [`MemoryContext::restore`] does.
    pub(super) fn bring_buffers_back(&self, context: &MemoryContext) -> Result {
        for device in self.devices_with_vm() {
            device.moves().come(&**device.node().kgd());
        }
        if let Err(error) = context.restore() {
            for device in self.devices_with_vm() {
                device.moves().turn_back();
            }
            return Err(error);
        }
        for device in self.devices_with_vm() {
            let kgd = device.node().kgd();
            if !device.moves().arrive(&**kgd) {
                let (pid, name) = (self.lead().pid(), device.node().pci_name());
                gpu_err!(
                    name,
                    "process {pid}: its memory was not moved: it is lost\n"
                );
                self.lose(kgd.handle(), Cause::Hang);
            }
        }
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_moves)]
mod tests {
    use super::*;
    use crate::kgd::fake::Fake;

    #[test]
    fn a_move_that_fails_on_the_way_counts_once() {
        let fake = Fake::new().unwrap();
        let moves = Moves::new();
        let comes_back = || {
            moves.come(&*fake);
            moves.arrive(&*fake)
        };
        fake.fail_move();
        // They have not moved.
        assert!(comes_back());
        moves.begin(&*fake);
        assert!(comes_back());
        moves.begin(&*fake);
        fake.fail_move();
        // Somebody else lets them move, too, and they find no room before they are back.
        moves.begin(&*fake);
        moves.come(&*fake);
        moves.turn_back();
        assert!(!comes_back());
        assert!(comes_back());
    }

    #[test]
    fn who_leaves_again_at_once_is_told_of_what_fails_then() {
        let fake = Fake::new().unwrap();
        let moves = Moves::new();
        moves.begin(&*fake);
        moves.come(&*fake);
        moves.begin(&*fake);
        assert!(moves.arrive(&*fake));
        fake.fail_move();
        moves.come(&*fake);
        assert!(!moves.arrive(&*fake));
    }
}
