// SPDX-License-Identifier: GPL-2.0-only

//! Exceptions of queues, told to the debugger of the process or else to its runtime: a wave that
//! trapped, a packet that the command processor refused.
//!
//! One [`Exceptions`] for each VM, which the node's [`Interrupts`](crate::interrupt::Interrupts)
//! know; interrupts add to it and a worker, which may sleep, empties it. The worker waits for no
//! program: a runtime that keeps its word where a userfaultfd or the server of a file would have to
//! bring it in is not told. Where the process keeps its mmap_lock, 0.1 s are lost with each; nobody
//! else loses them, since each VM has a worker of its own.

use crate::{
    event::Hint,
    ids::Pasid,
    kgd::PciName,
    linux::{
        backlog::{
            Backlog,
            Deferred, //
        },
        workqueue::OwnedQueue, //
    },
    process::{
        self,
        Process,
        ProcessDevice, //
    },
};
use kernel::{
    new_work,
    pr_warn_once,
    prelude::*,
    sync::Arc, //
};

/// `EC_QUEUE_PACKET_DISPATCH_DIM_INVALID` to `EC_QUEUE_PACKET_VENDOR_UNSUPPORTED`: codes of
/// packets.
const PACKET_CODES: core::ops::RangeInclusive<u32> = 16..=23;
/// `EC_QUEUE_WAVE_ABORT` to `EC_QUEUE_WAVE_APERTURE_VIOLATION`, as `KFD_EC_MASK` has them.
const WAVE_CODES: u32 = 0x3f;
/// What a trap handler sends: the queue's doorbell, and above it the mask of codes.
const DOORBELL_BITS: u32 = 10;

/// What happened to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    pasid: Pasid,
    /// The number of the queue's doorbell in its process.
    doorbell: u32,
    /// `KFD_EC_MASK` of all that happened.
    codes: u64,
    /// What a wave sent: it is taken for an event where no runtime wants it.
    message: Message,
}

/// What a wave sent beside the exception's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    None,
    One(u32),
    /// Several different ones: which, is lost.
    Many,
}

impl Message {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, message) | (message, Self::None) => message,
            (one, another) if one == another => one,
            _ => Self::Many,
        }
    }

    /// The event that it is for, if it is for one.
    fn hint(self) -> Option<Hint> {
        match self {
            Self::None => None,
            Self::One(message) => Some(Hint::new(message, 24)),
            Self::Many => Some(Hint::new(0, 0)),
        }
    }
}

impl Exception {
    /// The VM whose queue it is of.
    pub(crate) fn pasid(&self) -> Pasid {
        self.pasid
    }

    /// What a wave's privileged message means. None: it is an event, and nothing else.
    pub(crate) fn of_wave(pasid: Pasid, data: u32) -> Option<Self> {
        let codes = data >> DOORBELL_BITS & WAVE_CODES;
        (codes != 0).then_some(Self {
            pasid,
            doorbell: data & ((1 << DOORBELL_BITS) - 1),
            codes: codes.into(),
            message: Message::One(data),
        })
    }

    /// A packet was refused. None: the code is none of a packet's.
    pub(crate) fn of_packet(pasid: Pasid, doorbell: u32, code: u32) -> Option<Self> {
        PACKET_CODES.contains(&code).then(|| Self {
            pasid,
            doorbell,
            codes: 1 << (code - 1),
            message: Message::None,
        })
    }

    /// Tells the debugger of what it wants to hear of, and the runtime of the rest: several waves
    /// may have sent what came together here. An error if nobody was told: `ENOENT`: the process
    /// has neither, or no such queue; `EFAULT`: the runtime has not said where, or that is not
    /// there; `ETIMEDOUT`: it cannot be looked at.
    fn tell(&self, process: &Process, device: &ProcessDevice) -> Result {
        let left = process.queue_exception(device, self.doorbell, self.codes);
        if left == 0 {
            return Ok(());
        }
        let told = if process.has_runtime() {
            let area = || device.queues().save_area_at(self.doorbell as usize);
            process.tell_runtime(area, left)
        } else {
            Err(ENOENT)
        };
        match told {
            Err(error) if left == self.codes => Err(error),
            _ => Ok(()),
        }
    }
}

/// Exceptions of different queues of a VM that wait for the worker at a time.
const MAX_EXCEPTIONS: usize = 16;

impl Deferred for Exception {
    type Context = ();

    /// Those of one queue become one.
    #[inline]
    fn join(&mut self, new: &Self) -> bool {
        let same = (self.pasid, self.doorbell) == (new.pasid, new.doorbell);
        if same {
            self.codes |= new.codes;
            self.message = self.message.and(new.message);
        }
        same
    }

    #[inline]
    fn queue() -> Option<&'static OwnedQueue> {
        process::exception_queue()
    }

    fn handle(self, (): &()) {
        let told = process::with_pasid(self.pasid, |process, device| {
            let told = self.tell(process, device);
            if let (Err(_), Some(hint)) = (told, self.message.hint()) {
                if !process.events().signal_hinted(hint) {
                    process.events().signal_written();
                }
            }
            told
        });
        if told != Some(Ok(())) {
            pr_debug!("not reported: {self:?}: {told:?}\n");
        }
    }
}

/// Exceptions of a VM that a worker has yet to tell.
pub(crate) struct Exceptions {
    /// The device.
    name: PciName,
    backlog: Arc<Backlog<Exception, MAX_EXCEPTIONS>>,
}

impl Exceptions {
    /// None.
    pub(crate) fn new(name: PciName) -> Result<Self> {
        let backlog = Backlog::new((), new_work!("amdkfd::Exceptions"))?;
        Ok(Self { name, backlog })
    }

    /// Leaves an exception to the worker. False: there is no room, and it is lost. Legal in a hard
    /// interrupt.
    pub(crate) fn add(&self, exception: Exception) -> bool {
        let noted = self.backlog.add(exception);
        if !noted {
            pr_warn_once!(
                "{}: too many exceptions at a time: one is lost\n",
                self.name
            );
        }
        noted
    }
}

#[kernel::macros::kunit_tests(amdkfd_exception)]
mod tests {
    use super::*;
    use crate::linux::backlog::List;

    fn pasid() -> Pasid {
        Pasid::new(7).unwrap()
    }

    #[test]
    fn a_message_names_doorbell_and_codes() {
        assert_eq!(Exception::of_wave(pasid(), 0x3ff), None);
        let abort = Exception::of_wave(pasid(), 1 << 10 | 5).unwrap();
        assert_eq!((abort.doorbell, abort.codes), (5, 1));
        let packet = Exception::of_packet(pasid(), 5, 16).unwrap();
        assert_eq!((packet.doorbell, packet.codes), (5, 1 << 15));
        for code in [0, 15, 24, 66, u32::MAX] {
            assert_eq!(Exception::of_packet(pasid(), 5, code), None);
        }
    }

    #[test]
    fn those_of_one_queue_become_one() {
        let mut list = List::<Exception, MAX_EXCEPTIONS>::new();
        let abort = Exception::of_wave(pasid(), 1 << 10 | 5).unwrap();
        let trap = Exception::of_wave(pasid(), 2 << 10 | 5).unwrap();
        let other = Exception::of_wave(pasid(), 2 << 10 | 6).unwrap();
        assert!(list.add(abort) && list.add(trap) && list.add(other) && list.add(other));
        let both = Exception {
            codes: 3,
            message: Message::Many,
            ..abort
        };
        assert_eq!(list.take(), Some(both));
        assert_eq!(list.take(), Some(other));
        assert_eq!(list.take(), None);
    }

    #[test]
    fn a_vm_has_room_for_those_of_16_queues() {
        let mut list = List::<Exception, MAX_EXCEPTIONS>::new();
        let mut add = |doorbell| list.add(Exception::of_packet(pasid(), doorbell, 16).unwrap());
        assert_eq!((0..40).take_while(|doorbell| add(*doorbell)).count(), 16);
        assert!(add(0) && !add(500));
    }
}
