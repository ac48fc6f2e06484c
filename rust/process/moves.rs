// SPDX-License-Identifier: GPL-2.0-only

//! Whether a process's buffers have, when they come back, what they had when they left.
//!
//! From the signal of its eviction fence until they are restored, copy engines move them, and its
//! page tables. A move that fails, as in a reset of an engine, nobody is told of: the buffer is in
//! its new place, with the contents of that. Which one it was cannot be known, but when an engine
//! got it: moves wait for the fences of what they move. So who was evicted before an engine got the
//! last move of the GPU's that failed has lost what it has there, as in a reset of the GPU.

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

/// When the process's buffers began to move, by the GPU's clock of moves: those that are away, and
/// those that are just being brought back.
pub(super) struct Moves {
    away: Atomic<u64>,
    coming: Atomic<u64>,
}

/// The buffers stay where they are: no failure concerns them.
const NONE: u64 = u64::MAX;

impl Moves {
    pub(super) const fn new() -> Self {
        Self {
            away: Atomic::new(NONE),
            coming: Atomic::new(NONE),
        }
    }

    /// The buffers may move when this returns. May run under reclaim.
    fn begin(&self, kgd: &dyn Kgd) {
        let _ = kgd.heal_engines(false);
        let now = kgd.mark_moves();
        // Where they may already, the older time stays.
        let _ = self.away.cmpxchg(NONE, now, Relaxed);
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

    /// They are back, and may have left again. False: a move may have failed on the way. May sleep
    /// for some ms.
    fn arrive(&self, kgd: &dyn Kgd) -> bool {
        let failed_until = kgd.heal_engines(true);
        self.coming.xchg(NONE, Relaxed) >= failed_until
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

    impl Moves {
        fn comes_back(&self, fake: &Fake) -> bool {
            self.come(fake);
            self.arrive(fake)
        }
    }

    /// An engine gets a move, which fails.
    fn fail_young(fake: &Fake) {
        fake.begin_move();
        fake.fail_move();
    }

    #[test]
    fn a_move_that_fails_on_the_way_counts_once() {
        let fake = Fake::new().unwrap();
        let moves = Moves::new();
        fail_young(&fake);
        // They have not moved.
        assert!(moves.comes_back(&fake));
        moves.begin(&*fake);
        assert!(moves.comes_back(&fake));
        moves.begin(&*fake);
        fail_young(&fake);
        // Somebody else lets them move, too, and they find no room before they are back.
        moves.begin(&*fake);
        moves.come(&*fake);
        moves.turn_back();
        assert!(!moves.comes_back(&fake));
        assert!(moves.comes_back(&fake));
    }

    #[test]
    fn a_move_that_an_engine_had_before_concerns_who_left_before_that() {
        let fake = Fake::new().unwrap();
        let (first, second, third) = (Moves::new(), Moves::new(), Moves::new());
        fake.begin_move();
        first.begin(&*fake);
        fake.begin_move();
        second.begin(&*fake);
        fake.fail_move();
        // It stays in failure, which is seen again.
        third.begin(&*fake);
        fake.fail_move();
        assert!(second.comes_back(&fake));
        assert!(third.comes_back(&fake));
        assert!(!first.comes_back(&fake));
        // The next one is cancelled by it: who has left may be concerned, who comes later is not.
        first.begin(&*fake);
        fail_young(&fake);
        second.begin(&*fake);
        assert!(second.comes_back(&fake));
        assert!(!first.comes_back(&fake));
    }

    #[test]
    fn who_leaves_again_at_once_is_told_of_what_fails_then() {
        let fake = Fake::new().unwrap();
        let moves = Moves::new();
        moves.begin(&*fake);
        moves.come(&*fake);
        moves.begin(&*fake);
        assert!(moves.arrive(&*fake));
        fail_young(&fake);
        moves.come(&*fake);
        assert!(!moves.arrive(&*fake));
    }
}
