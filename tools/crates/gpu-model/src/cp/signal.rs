// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! HSA signals in memory, as the command processor uses them. Many exist, all owned by user
//! processes.
//!
//! Layout: amd_signal_t of ROCr's `amd_hsa_signal.h` (the ABI between runtime and firmware).

use crate::processor::bus::{Fault, View};

const VALUE: u64 = 8;
const EVENT_MAILBOX_PTR: u64 = 16;
const EVENT_ID: u64 = 24;
const START_TS: u64 = 32;
const END_TS: u64 = 40;

/// A signal by its handle, which is its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u64);

impl Signal {
    /// The signal of a packet's handle; zero means none.
    pub const fn of(handle: u64) -> Option<Self> {
        if handle == 0 {
            None
        } else {
            Some(Signal(handle))
        }
    }

    /// The address of a field: a handle from nowhere may lie at the end of all addresses.
    const fn at(self, field: u64) -> u64 {
        self.0.wrapping_add(field)
    }

    /// Its value.
    pub fn value(self, view: View<'_>) -> Result<i64, Fault> {
        Ok(view.read64(self.at(VALUE))? as i64)
    }

    /// Stores a value.
    pub fn store(self, view: View<'_>, value: i64) -> Result<(), Fault> {
        view.bus
            .update64(view.space, self.at(VALUE), &mut |_| value as u64)
            .map(drop)
    }

    /// Takes one off its value.
    pub fn decrement(self, view: View<'_>) -> Result<(), Fault> {
        view.bus
            .update64(view.space, self.at(VALUE), &mut |old| old.wrapping_sub(1))
            .map(drop)
    }

    /// Writes when the work that it stands for began and ended.
    pub fn stamp(self, view: View<'_>, start: u64, end: u64) -> Result<(), Fault> {
        view.write64(self.at(START_TS), start)?;
        view.write64(self.at(END_TS), end)
    }

    /// If it has an event: writes its id to the mailbox. The id is for an interrupt.
    pub fn post(self, view: View<'_>) -> Result<Option<u32>, Fault> {
        let mailbox = view.read64(self.at(EVENT_MAILBOX_PTR))?;
        if mailbox == 0 {
            return Ok(None);
        }
        let event = view.read32(self.at(EVENT_ID))?;
        view.write64(mailbox, event.into())?;
        Ok(Some(event))
    }
}
