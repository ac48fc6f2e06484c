// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What ends the work of a process on a GPU: [`Resets`] and [`Faults`]; and waiting for an event
//! that then does not come any more.

use crate::event::{destroy, milliseconds};
use crate::ioctl::call;
use crate::{Device, Event, EventKind, Events, Fault, Result};
use kfd_uapi as uapi;
use std::sync::Arc;
use std::time::Duration;

/// Whether one of a process's GPUs fails or is reset, from the making of this on: the queues that
/// the process had then are lost.
///
/// The kernel takes the process's queues off all of its GPUs for the reset of any, and keeps the
/// last reset alone: of a GPU in partitions, which is reset as a whole, it names the last one.
///
/// Kept by whoever waits for a GPU without an event that its end would signal.
#[derive(Debug)]
pub struct Resets(Watch);

/// What became of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// Which one it was, by the kernel's id of it: that of the last reset.
    pub gpu_id: u32,
    /// Whether it lost what was in its memory.
    pub memory_lost: bool,
}

impl Resets {
    /// Begins to watch the process, by the context that `device` belongs to.
    pub fn watch(device: &Arc<Device>) -> Result<Self> {
        Watch::new(device, EventKind::HardwareException, "resets").map(Self)
    }

    /// What became of a GPU, if anything did. Does not wait.
    pub fn look(&self) -> Result<Option<Reset>> {
        Ok(self.0.look()?.and_then(|data| Reset::of(&data)))
    }
}

impl Reset {
    /// `None`: the kernel told of none.
    fn of(data: &uapi::kfd_event_data) -> Option<Self> {
        // SAFETY: every member of the union is plain numbers; for these events it is this one.
        let told = unsafe { data.__bindgen_anon_1.hw_exception_data };
        (told.gpu_id != 0).then_some(Self {
            gpu_id: told.gpu_id,
            memory_lost: told.memory_lost != 0,
        })
    }
}

/// Whether a wave of this process, on whatever GPU, touches memory that it may not, from the making
/// of this on. Then the process's queues stand still.
#[derive(Debug)]
pub struct Faults(Watch);

impl Faults {
    /// Begins to watch the process, by the context that `device` belongs to.
    pub fn watch(device: &Arc<Device>) -> Result<Self> {
        Watch::new(device, EventKind::Memory, "faults").map(Self)
    }

    /// The last fault, if there was any. Does not wait.
    pub fn look(&self) -> Result<Option<Fault>> {
        Ok(self.0.look()?.and_then(|data| Fault::of(&data)))
    }
}

/// How a wait with [`Event::wait_or`] came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// By the event, or by one of several.
    Event,
    /// A GPU of the process was lost, and with it the process's queues on all.
    Reset(Reset),
    /// The process's queues stand still.
    Fault(Fault),
    /// Nothing came.
    TimeIsOver,
}

impl Event {
    /// Waits for this event since it had `age`, a reset or a fault, whichever comes first or has
    /// come. See [`crate::Events::wait_since`].
    pub fn wait_or(
        &self,
        age: u64,
        resets: &Resets,
        faults: &Faults,
        timeout: Option<Duration>,
    ) -> Result<Woken> {
        self.events()
            .wait_or(&[(self, age)], resets, faults, timeout)
    }
}

impl Events {
    /// As [`Event::wait_or`], for the first of several events, each since it had its age.
    pub fn wait_or(
        &self,
        events: &[(&Event, u64)],
        resets: &Resets,
        faults: &Faults,
        timeout: Option<Duration>,
    ) -> Result<Woken> {
        let mut data: Vec<_> = events
            .iter()
            .map(|(event, age)| event.wait_data(*age))
            .chain([resets.0.data(), faults.0.data()])
            .collect();
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: data.len() as u32,
            wait_for_all: 0,
            timeout: milliseconds(timeout),
            wait_result: 0,
        };
        let object = || match events {
            [(event, _)] => event.to_string(),
            events => format!("{} events", events.len()),
        };
        // SAFETY: the pointer is to `num_events` entries, which live until after the call.
        unsafe { call(self.kfd(), object, &mut args)? };
        if args.wait_result != uapi::KFD_IOC_WAIT_RESULT_COMPLETE {
            return Ok(Woken::TimeIsOver);
        }
        // What the kernel does not tell of did not come: their data is still 0.
        let (told, troubles) = data.split_at(events.len());
        for ((event, _), data) in events.iter().zip(told) {
            event.note(data);
        }
        if let Some(reset) = Reset::of(&troubles[0]) {
            return Ok(Woken::Reset(reset));
        }
        Ok(Fault::of(&troubles[1]).map_or(Woken::Event, Woken::Fault))
    }
}

/// An event that stays once it has come, and needs no page.
#[derive(Debug)]
struct Watch {
    device: Arc<Device>,
    id: u32,
    what: &'static str,
}

impl Watch {
    fn new(device: &Arc<Device>, kind: EventKind, what: &'static str) -> Result<Self> {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_type: kind.raw(),
            node_id: device.node().id,
            ..Default::default()
        };
        let object = || format!("{what} of {device}");
        // SAFETY: the struct holds no pointer.
        unsafe { call(device.kfd().as_ref(), object, &mut args)? };
        Ok(Self {
            device: device.clone(),
            id: args.event_id,
            what,
        })
    }

    fn data(&self) -> uapi::kfd_event_data {
        uapi::kfd_event_data {
            event_id: self.id,
            ..Default::default()
        }
    }

    /// What the kernel tells of it, if it has come.
    fn look(&self) -> Result<Option<uapi::kfd_event_data>> {
        let mut data = [self.data()];
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: 1,
            wait_for_all: 1,
            timeout: 0,
            wait_result: 0,
        };
        let object = || format!("{} of {}", self.what, self.device);
        // SAFETY: the pointer is to one entry, which lives until after the call.
        unsafe { call(self.device.kfd().as_ref(), object, &mut args)? };
        let came = args.wait_result == uapi::KFD_IOC_WAIT_RESULT_COMPLETE;
        Ok(came.then_some(data[0]))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        destroy(self.device.kfd(), self.id);
    }
}
