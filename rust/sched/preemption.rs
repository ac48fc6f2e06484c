// SPDX-License-Identifier: GPL-2.0-only

//! What comes of taking queues off the hardware: one answer for compute and copy queues, whichever
//! scheduler asks.

use crate::{
    kgd::{
        gpu_err,
        Kgd, //
    },
    linux::errno, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Whether queues that were to leave the hardware have left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preemption {
    /// They have.
    Complete,
    /// Some did not by themselves and were reset, each alone: they have left it now, and what they
    /// worked on is lost.
    AfterReset,
    /// Nobody knows, and nobody can be asked: amdgpu is resetting the GPU, or has to for a fatal
    /// error, or was asked to before.
    Unavailable,
    /// Some may still be at work: only a reset of the GPU ends that.
    Failed,
}

impl Preemption {
    /// What an order to leave came to, as the hardware has answered it.
    pub(super) fn of(answer: Result) -> Self {
        match answer {
            Ok(()) => Self::Complete,
            Err(error) if error == EIO => Self::Unavailable,
            Err(_) => Self::Failed,
        }
    }

    /// What comes of this and of `next`, which is not done if queues may be at work already.
    pub(super) fn and(self, next: impl FnOnce() -> Self) -> Self {
        match (self, self.result().map(|()| next())) {
            (Self::AfterReset, Ok(Self::Complete)) => Self::AfterReset,
            (_, Ok(next)) => next,
            (failed, Err(_)) => failed,
        }
    }

    /// Whether nothing of them is on the hardware. `EIO`: the hardware is not to be had; `ETIME`:
    /// something may still be at work.
    pub(super) fn result(self) -> Result {
        match self {
            Self::Complete | Self::AfterReset => Ok(()),
            Self::Unavailable => Err(EIO),
            Self::Failed => Err(errno::timer_expired()),
        }
    }

    /// The same for whoever needs what the queues worked on: `ETIME`, too, if one was reset.
    pub(super) fn undisturbed(self) -> Result {
        match self {
            Self::AfterReset => Err(errno::timer_expired()),
            other => other.result(),
        }
    }
}

/// Whether the hardware is to be had. `EIO`: amdgpu is about to reset the GPU, or has to for a
/// fatal error, and what was asked is not answered any more.
pub(super) fn check_available(kgd: &dyn Kgd) -> Result {
    match kgd.in_reset() || kgd.has_fatal_error() {
        true => Err(EIO),
        false => Ok(()),
    }
}

/// Touches nothing that hangs as long as the user wants to look at it
/// (`amdgpu.halt_if_hws_hang`).
pub(super) fn hold_still(kgd: &dyn Kgd) {
    /// How soon the user's change of mind is seen.
    const LOOK: Delta = Delta::from_millis(20);
    if !kgd.halts_on_hang() {
        return;
    }
    // TIMEOUT: none. It is the user's to end, as in C; whoever needs the scheduler waits for
    // that.
    gpu_err!(
        kgd.facts().pci_name(),
        "nothing is reset until amdgpu.halt_if_hws_hang is 0\n"
    );
    while kgd.halts_on_hang() {
        fsleep(LOOK);
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_preemption)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts() {
        use Preemption::*;

        let all = [Complete, AfterReset, Unavailable, Failed];
        for (first, one) in all.into_iter().enumerate() {
            for (second, other) in all.into_iter().enumerate() {
                // What comes after a failure is not tried.
                let worst = match first {
                    0 | 1 => all[first.max(second)],
                    _ => one,
                };
                assert_eq!(one.and(|| other), worst);
            }
        }
        assert_eq!(AfterReset.result(), Ok(()));
        assert_eq!(AfterReset.undisturbed(), Err(errno::timer_expired()));
        assert_eq!(Preemption::of(Err(EIO)).undisturbed(), Err(EIO));
        assert_eq!(Preemption::of(Err(ENOMEM)), Failed);
    }
}
