// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Events`], which GPUs signal through one page of a process, and [`Event`], one thing to wait
//! for.

use crate::ioctl::call;
use crate::memory::map;
use crate::range::Range;
use crate::{Device, Kfd, Memory, Result};
use kfd_uapi as uapi;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A GPU or a process signalled it.
    Signal,
    /// A GPU failed or was reset.
    HardwareException,
    /// A wave touched memory that it may not.
    Memory,
}

impl EventKind {
    pub(crate) fn raw(self) -> u32 {
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

/// Events of a process, which GPUs name by 8 bytes for each in a page that they and the process
/// see. The kernel takes one page for a context (a process, or [`Kfd::open_secondary`]) and keeps
/// it until that ends, so all `Events` of a context have the same one.
#[derive(Debug)]
pub struct Events {
    kfd: Arc<Kfd>,
    node: u32,
    page: Arc<Page>,
}

/// A context's event page. It stays allocated for as long as the context lasts.
#[derive(Debug)]
pub(crate) struct Page {
    range: Range,
    handle: u64,
    /// The GPUs that see it.
    gpus: Mutex<Vec<u32>>,
    /// Whether the kernel knows the page: it learns of it with the first event.
    announced: Mutex<bool>,
}

impl Page {
    fn new(device: &Arc<Device>) -> Result<Self> {
        let size = uapi::KFD_SIGNAL_EVENT_LIMIT as usize * size_of::<u64>();
        let (range, handle) = Memory::gtt(device, size)?.keep();
        Ok(Self {
            range,
            handle,
            gpus: Mutex::new(vec![device.gpu_id()]),
            announced: Mutex::new(false),
        })
    }

    fn show_to(&self, device: &Device) -> Result<()> {
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        if !gpus.contains(&device.gpu_id()) {
            let object = || format!("event page of {device}");
            map(device.kfd(), object, self.handle, device.gpu_id())?;
            gpus.push(device.gpu_id());
        }
        Ok(())
    }
}

impl Events {
    /// Events that `device` signals. The first of a context allocates the page there.
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let own = &device.kfd().context().event_page;
        let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match &*own {
            Some(page) => page.clone(),
            None => own.insert(Arc::new(Page::new(device)?)).clone(),
        };
        drop(own);
        page.show_to(device)?;
        Ok(Arc::new(Self {
            kfd: device.kfd().clone(),
            node: device.node().id,
            page,
        }))
    }

    /// Another GPU of the same context signals events of the page, too.
    pub fn share_with(&self, device: &Device) -> Result<()> {
        self.page.show_to(device)
    }

    /// Whether `other` belongs to the same context, so that one wait can have events of both.
    pub fn is_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.page, &other.page)
    }

    /// Waits for events. `None` waits without end; false means that the time is over.
    ///
    /// An event counts only once: one that came before the last wait that saw it does not end this
    /// one.
    pub fn wait(&self, events: &[&Event], wait: Wait, timeout: Option<Duration>) -> Result<bool> {
        let events: Vec<_> = events.iter().map(|event| (*event, event.age())).collect();
        self.wait_since(&events, wait, timeout)
    }

    /// The same for events that have come since they had these ages, whoever has seen them
    /// meanwhile. Who looks at something before it waits asks for the age before it looks: another
    /// thread's wait can't take the event away then.
    pub fn wait_since(
        &self,
        events: &[(&Event, u64)],
        wait: Wait,
        timeout: Option<Duration>,
    ) -> Result<bool> {
        let mut data: Vec<_> = events
            .iter()
            .map(|(event, age)| event.wait_data(*age))
            .collect();
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: data.len() as u32,
            wait_for_all: (wait == Wait::All).into(),
            timeout: milliseconds(timeout),
            wait_result: 0,
        };
        // SAFETY: the pointer is to `num_events` entries, which live until after the call.
        unsafe { call(self.kfd(), || format!("{} events", events.len()), &mut args)? };
        for ((event, _), data) in events.iter().zip(&data) {
            event.note(data);
        }
        Ok(args.wait_result == uapi::KFD_IOC_WAIT_RESULT_COMPLETE)
    }

    pub(crate) fn kfd(&self) -> &Kfd {
        &self.kfd
    }
}

/// The kernel's unit, rounded up; its largest value means for ever.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> u32 {
    let forever = u32::MAX;
    timeout.map_or(forever, |time| {
        time.as_micros().div_ceil(1000).min(u128::from(forever - 1)) as u32
    })
}

/// What a wave did that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

impl Fault {
    /// What the kernel told of a memory event; nothing when it did not come.
    pub(crate) fn of(data: &uapi::kfd_event_data) -> Option<Self> {
        // SAFETY: every member of the union is plain numbers; for memory events it is this one.
        let data = unsafe { data.__bindgen_anon_1.memory_exception_data };
        (data.gpu_id != 0).then_some(Self {
            address: data.va,
            gpu_id: data.gpu_id,
            not_present: data.failure.NotPresent != 0,
            read_only: data.failure.ReadOnly != 0,
            no_execute: data.failure.NoExecute != 0,
        })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "page fault at {:#x} on GPU {}",
            self.address, self.gpu_id
        )?;
        let whys = [
            (self.not_present, "nothing is mapped there"),
            (self.read_only, "it may only be read"),
            (self.no_execute, "it may not be executed"),
        ];
        for (_, why) in whys.iter().filter(|(is, _)| *is) {
            write!(f, ", {why}")?;
        }
        Ok(())
    }
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
            .page
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_page_offset: if *announced { 0 } else { events.page.handle },
            event_type: kind.raw(),
            auto_reset: auto_reset.into(),
            node_id: events.node,
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
        self.events.page.range.address() + u64::from(self.slot) * size_of::<u64>() as u64
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
        if let Some(fault) = Fault::of(data) {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        }
    }

    /// Keeps what a wait that had this event brought.
    pub(crate) fn note(&self, data: &uapi::kfd_event_data) {
        // SAFETY: every member of the union is plain numbers.
        let age = unsafe { data.__bindgen_anon_1.signal_event_data.last_event_age };
        match self.kind {
            // Another thread may have seen a later one.
            EventKind::Signal => drop(self.age.fetch_max(age, Ordering::Relaxed)),
            EventKind::Memory => self.note_fault(data),
            EventKind::HardwareException => {}
        }
    }

    /// What a wait for this event since `age` gives the kernel.
    pub(crate) fn wait_data(&self, age: u64) -> uapi::kfd_event_data {
        let mut data = uapi::kfd_event_data {
            event_id: self.id,
            ..Default::default()
        };
        if self.kind == EventKind::Signal {
            data.__bindgen_anon_1.signal_event_data.last_event_age = age;
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
        destroy(self.events.kfd(), self.id);
    }
}

pub(crate) fn destroy(kfd: &Kfd, id: u32) {
    let mut args = uapi::kfd_ioctl_destroy_event_args {
        event_id: id,
        ..Default::default()
    };
    // SAFETY: the struct holds no pointer. A failure leaves it to the exit of the process.
    let _ = unsafe { call(kfd, String::new, &mut args) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn all_events_of_a_context_have_one_page() {
        let device = Device::without_a_driver();
        // Nobody allocates it here; the next try is not worse for that.
        assert!(Events::new(&device).is_err());
        assert!(Events::new(&device).is_err());
        let (range, handle) = Memory::anonymous(&device, 4096).expect("memory").keep();
        let page = Page {
            range,
            handle,
            gpus: Mutex::new(vec![device.gpu_id()]),
            announced: Mutex::new(true),
        };
        *device.kfd().context().event_page.lock().expect("unused") = Some(Arc::new(page));
        let [one, two] = [Events::new(&device), Events::new(&device)];
        let (one, two) = (one.expect("the page is there"), two.expect("it still is"));
        assert!(Arc::ptr_eq(&one.page, &two.page));
        drop((one, two));
        let again = Events::new(&device).expect("it stays");
        assert_eq!(again.page.handle, handle);
        // A GPU that the page is not mapped on yet is no GPU of this driver's.
        again.page.gpus.lock().expect("unused").clear();
        assert!(Events::new(&device).is_err());
    }

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
