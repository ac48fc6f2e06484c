// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What can be wrong with an AQL packet, and telling the runtime and the driver about it. One per
//! bad packet.

use super::dispatch::AmdQueue;
use super::{notify, Pending};
use crate::cp::queue::{Body, Queue};
use crate::cp::signal::Signal;
use crate::cp::SOURCE_BAD_OPCODE;
use crate::limited::warn_limited;
use crate::processor::bus::Fault;

/// A packet that the queue cannot execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The dispatch needs more scratch than the queue has: the runtime adds some and lets the queue
    /// go on.
    ScratchInsufficient,
    /// Dimensions out of range.
    DimensionsInvalid,
    /// More LDS than there is.
    GroupSegmentInvalid,
    /// No kernel object.
    CodeInvalid,
    /// Type or format unknown.
    PacketUnsupported,
    /// Work-group too large.
    WorkgroupInvalid,
    /// AMD packet format unknown.
    VendorUnsupported,
}

impl PacketError {
    /// The bit of the queue's inactive signal (ROCr, AqlQueue::DynamicQueueEventsHandler).
    const fn signal_value(self) -> i64 {
        match self {
            PacketError::ScratchInsufficient => 1,
            PacketError::DimensionsInvalid => 2,
            PacketError::GroupSegmentInvalid => 4,
            PacketError::CodeInvalid => 8,
            PacketError::PacketUnsupported => 32,
            PacketError::WorkgroupInvalid => 64,
            PacketError::VendorUnsupported => 256,
        }
    }

    /// `kfd_ioctl.h`, enum kfd_dbg_trap_exception_code; None: no exception.
    const fn exception_code(self) -> Option<u32> {
        match self {
            PacketError::ScratchInsufficient => None,
            PacketError::DimensionsInvalid => Some(16),
            PacketError::GroupSegmentInvalid => Some(17),
            PacketError::CodeInvalid => Some(18),
            PacketError::PacketUnsupported => Some(20),
            PacketError::WorkgroupInvalid => Some(21),
            PacketError::VendorUnsupported => Some(23),
        }
    }

    /// Stops the queue at the packet: stores the error in its inactive signal and interrupts. It
    /// goes on when the runtime sets the signal to 0. A packet that is refused once more is not
    /// told again: a runtime that leaves errors to the driver's exceptions sets the signal to 0 at
    /// once, and interrupts would come without end.
    pub fn raise(self, queue: &Queue, body: &mut Body) -> Result<(), Fault> {
        let again = body.flight.refused.replace(body.rptr) == Some(body.rptr);
        if again && self.exception_code().is_some() {
            body.flight.hung = Some(format!("{self:?}, and the packet is still the same"));
            return Ok(());
        }
        let (stats, slot, index) = (&queue.shared.stats, queue.slot, body.rptr);
        stats.count("AQL packet refused");
        let whose = slot.number();
        warn_limited!(stats.limited, whose, ?slot, error = ?self, index, "AQL packet refused");
        let inactive = AmdQueue::load(queue)?.and_then(|amd| Signal::of(amd.inactive_signal()));
        if let Some(code) = self.exception_code() {
            let context = queue.hqd.doorbell_id() | code << 10;
            queue.shared.raise_error(queue, SOURCE_BAD_OPCODE, context);
        }
        let Some(signal) = inactive else {
            body.flight.hung = Some(format!("{self:?} and no inactive signal"));
            return Ok(());
        };
        signal.store(queue.view(), self.signal_value())?;
        notify(queue, signal)?;
        body.flight.aql = Some(Pending {
            signal: None,
            start: 0,
            inactive: Some(signal),
            shared: false,
            header: 0,
        });
        Ok(())
    }
}
