// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Events`], the page through which a GPU names the events it signals (one per process), and
//! [`Event`], one thing to wait for.

use crate::ioctl::call;
use crate::{Device, Kfd, Memory, Result};
use kfd_uapi as uapi;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A GPU or a process signalled it.
    Signal,
    /// A GPU failed or was reset.
    HardwareException,
    /// A wave touched memory that it may not.
    Memory,
}

impl EventKind {
    fn raw(self) -> u32 {
        match self {
            EventKind::Signal => uapi::KFD_IOC_EVENT_SIGNAL,
            EventKind::HardwareException => uapi::KFD_IOC_EVENT_HW_EXCEPTION,
            EventKind::Memory => uapi::KFD_IOC_EVENT_MEMORY,
        }
    }
}

/// Whether a wait ends with the first of its events or with the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// One is enough.
    Any,
    /// All must have come.
    All,
}

/// The process's event page, 8 bytes for each signal event. The kernel takes one page per process,
/// keeps it until the process exits, and refuses a second with EINVAL.
#[derive(Debug)]
pub struct Events {
    page: Memory,
    /// Whether the kernel knows the page: it learns of it with the first event.
    announced: Mutex<bool>,
}

impl Events {
    /// Allocates the page on `device`.
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let size = uapi::KFD_SIGNAL_EVENT_LIMIT as usize * size_of::<u64>();
        Ok(Arc::new(Self {
            page: Memory::gtt(device, size)?,
            announced: Mutex::new(false),
        }))
    }

    /// Another GPU of the same process signals events of the page, too.
    pub fn share_with(&self, device: &Device) -> Result<()> {
        self.page.share_with(device)
    }

    /// Waits for events. `None` waits without end; false means that the time is over.
    ///
    /// An event counts only once: one that came before the last wait that saw it does not end this
    /// one.
    pub fn wait(&self, events: &[&Event], wait: Wait, timeout: Option<Duration>) -> Result<bool> {
        let mut data: Vec<_> = events.iter().map(|event| event.wait_data()).collect();
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: data.len() as u32,
            wait_for_all: (wait == Wait::All).into(),
            timeout: milliseconds(timeout),
            wait_result: 0,
        };
        // SAFETY: the pointer is to `num_events` entries, which live until after the call.
        unsafe { call(self.kfd(), || format!("{} events", events.len()), &mut args)? };
        for (event, data) in events.iter().zip(&data) {
            // SAFETY: every member of the union is plain numbers.
            let age = unsafe { data.__bindgen_anon_1.signal_event_data.last_event_age };
            match event.kind {
                EventKind::Signal => event.age.store(age, Ordering::Relaxed),
                EventKind::Memory => event.note_fault(data),
                EventKind::HardwareException => {}
            }
        }
        Ok(args.wait_result == uapi::KFD_IOC_WAIT_RESULT_COMPLETE)
    }

    fn kfd(&self) -> &Kfd {
        self.page.device().kfd()
    }
}

/// The kernel's unit, rounded up; its largest value means for ever.
fn milliseconds(timeout: Option<Duration>) -> u32 {
    let forever = u32::MAX;
    timeout.map_or(forever, |time| {
        time.as_micros().div_ceil(1000).min(u128::from(forever - 1)) as u32
    })
}

/// What a wave did that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address, down to its page.
    pub address: u64,
    /// The GPU whose wave it was.
    pub gpu_id: u32,
    /// Nothing is mapped there.
    pub not_present: bool,
    /// It wrote to what may only be read.
    pub read_only: bool,
    /// It executed what may not be executed.
    pub no_execute: bool,
}

/// One event; destroyed when dropped. A thread that still waits for it then fails.
#[derive(Debug)]
pub struct Event {
    events: Arc<Events>,
    kind: EventKind,
    id: u32,
    slot: u32,
    trigger: u32,
    age: AtomicU64,
    fault: Mutex<Option<Fault>>,
}

impl Event {
    /// A new event; with `auto_reset` the first waiter that sees it takes it.
    pub fn new(events: &Arc<Events>, kind: EventKind, auto_reset: bool) -> Result<Self> {
        let mut announced = events
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_page_offset: if *announced { 0 } else { events.page.handle() },
            event_type: kind.raw(),
            auto_reset: auto_reset.into(),
            node_id: events.page.device().node().id,
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer; the page stays allocated while the process lives.
        unsafe { call(events.kfd(), || format!("{kind:?} event"), &mut args)? };
        *announced = true;
        drop(announced);
        Ok(Self {
            events: events.clone(),
            kind,
            id: args.event_id,
            slot: args.event_slot_index,
            trigger: args.event_trigger_data,
            // The kernel counts from 1: "nothing seen yet" is an age that no event has passed.
            age: AtomicU64::new(1),
            fault: Mutex::new(None),
        })
    }

    /// The page and table this event belongs to.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The kernel's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What a GPU writes to [`Event::mailbox`] and sends with its interrupt.
    pub fn trigger(&self) -> u32 {
        self.trigger
    }

    /// The address of this event's slot in the page, for signal events.
    pub fn mailbox(&self) -> u64 {
        self.events.page.address() + u64::from(self.slot) * size_of::<u64>() as u64
    }

    /// How often it was signalled, as of the last wait: 1 plus the number of signals seen.
    pub fn age(&self) -> u64 {
        self.age.load(Ordering::Relaxed)
    }

    /// Waits for this event alone; false means that the time is over.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        self.events.wait(&[self], Wait::All, timeout)
    }

    /// Signals it from this process.
    pub fn set(&self) -> Result<()> {
        let mut args = uapi::kfd_ioctl_set_event_args {
            event_id: self.id,
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self.events.kfd(), || self.to_string(), &mut args) }
    }

    /// Makes it unsignalled.
    pub fn reset(&self) -> Result<()> {
        let mut args = uapi::kfd_ioctl_reset_event_args {
            event_id: self.id,
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self.events.kfd(), || self.to_string(), &mut args) }
    }

    /// The last fault that a wait for this memory event brought.
    pub fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_fault(&self, data: &uapi::kfd_event_data) {
        // SAFETY: every member of the union is plain numbers; for memory events it is this one.
        let data = unsafe { data.__bindgen_anon_1.memory_exception_data };
        if data.gpu_id != 0 {
            let fault = Fault {
                address: data.va,
                gpu_id: data.gpu_id,
                not_present: data.failure.NotPresent != 0,
                read_only: data.failure.ReadOnly != 0,
                no_execute: data.failure.NoExecute != 0,
            };
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        }
    }

    fn wait_data(&self) -> uapi::kfd_event_data {
        let mut data = uapi::kfd_event_data {
            event_id: self.id,
            ..Default::default()
        };
        if self.kind == EventKind::Signal {
            data.__bindgen_anon_1.signal_event_data.last_event_age =
                self.age.load(Ordering::Relaxed);
        }
        data
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "event {}", self.id)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut args = uapi::kfd_ioctl_destroy_event_args {
            event_id: self.id,
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer. A failure leaves it to the exit of the process.
        let _ = unsafe { call(self.events.kfd(), String::new, &mut args) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_and_never_become_endless() {
        assert_eq!(milliseconds(None), u32::MAX);
        assert_eq!(milliseconds(Some(Duration::from_micros(1))), 1);
        assert_eq!(
            milliseconds(Some(Duration::from_secs(u64::MAX))),
            u32::MAX - 1
        );
    }
}
