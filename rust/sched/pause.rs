// SPDX-License-Identifier: GPL-2.0-only

//! Why a node's queues are off the hardware for a while.
//!
//! amdgpu has several reasons, which come and go by themselves: the end of one does not end the
//! others. (C has one flag for all.) A scheduler has its [`Pauses`] under its own lock.

/// A reason.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Pause {
    /// A job of amdgpu's has the node for itself (`enforce_isolation`).
    Isolation = 1,
    /// The peak tensor limiter (PTL) changes.
    Limiter = 2,
    /// The machine is suspended to idle (s0ix).
    Idle = 4,
}

/// The reasons that there are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses(u8);

impl Pauses {
    /// That one is there from now on, or no more.
    pub(super) fn note(&mut self, why: Pause, pause: bool) {
        // CAST: a bit of the enumeration.
        let bit = why as u8;
        match pause {
            true => self.0 |= bit,
            false => self.0 &= !bit,
        }
    }

    /// Whether there is one.
    pub(super) fn any(self) -> bool {
        self.0 != 0
    }
}
