// SPDX-License-Identifier: GPL-2.0-only

//! From a decoded interrupt to what it means for a process.
//!
//! Signals for events are delivered on the spot, in the hard interrupt; only the search through
//! many events that a useless hint asks for is a worker's. What needs to sleep is left on the
//! node's [`Faults`], which a worker handles: taking a faulting process's queues off the hardware,
//! above all.

use crate::{
    event::{
        Events,
        Hint, //
    },
    exception::{
        Exception,
        Exceptions, //
    },
    gfx::Interrupt,
    gpu::{
        Again,
        Registration,
        Sink, //
    },
    ids::Pasid,
    kgd::PciName,
    linux::{
        backlog::{
            Backlog,
            Deferred, //
        },
        rcu_table::RcuTable,
        workqueue::OwnedQueue, //
    },
    process,
    smi::SmiEvent,
    uapi::{
        HwException,
        MemoryException,
        KFD_HW_EXCEPTION_GPU_HANG, //
    },
};
use kernel::{
    new_work,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc,
        ArcBorrow, //
    },
};

/// Delivers the interrupts of a node: one for each [`Node`](crate::gpu::Node), which has it as its
/// [`Sink`].
pub(crate) struct Interrupts {
    /// The processes that use the node, by the pasid of their VM there.
    recipients: Arc<RcuTable<Recipient>>,
    faults: Arc<Faults>,
    /// The device.
    name: PciName,
    /// Whether a memory fault takes its process off, and is told: see
    /// `no_queue_eviction_on_vm_fault`.
    evict_on_fault: bool,
    /// Bits of what a wave sends.
    message_bits: u32,
}

/// Where the interrupts for a VM go.
struct Recipient {
    /// Of its process.
    events: Arc<Events>,
    /// What the process calls the node.
    gpu_id: Arc<Atomic<u32>>,
    exceptions: Exceptions,
}

impl Interrupts {
    /// Nobody yet. `name` is the device's, and its waves send so many bits.
    pub(crate) fn new(name: PciName, evict_on_fault: bool, message_bits: u32) -> Result<Self> {
        Ok(Self {
            recipients: RcuTable::new()?,
            faults: Faults::new((), new_work!("amdkfd::Faults"))?,
            name,
            evict_on_fault,
            message_bits,
        })
    }

    /// The low `bits` bits of an event's id came with an interrupt. A process that is gone is not
    /// told.
    fn signal(&self, pasid: Pasid, id: u32, bits: u32) {
        let hint = Hint::new(id, bits);
        let _notified: Option<()> = self.recipients.with(pasid.raw(), |recipient| {
            if !recipient.events.signal_hinted(hint) {
                if let Some(queue) = process::interrupt_queue() {
                    Events::search_on(recipient.events.as_arc_borrow(), queue);
                }
            }
        });
    }

    /// A queue of a process has an exception. One that is gone is not told. False: too many wait to
    /// be told of, and this one is lost.
    fn raise(&self, exception: Exception) -> bool {
        let add = |recipient: ArcBorrow<'_, Recipient>| recipient.exceptions.add(exception);
        let noted = self.recipients.with(exception.pasid().raw(), add);
        noted.unwrap_or(true)
    }
}

impl Sink for Interrupts {
    fn register(
        &self,
        pasid: Pasid,
        (events, gpu_id): (Arc<Events>, Arc<Atomic<u32>>),
    ) -> Result<Registration> {
        let recipient = Recipient {
            events,
            gpu_id,
            exceptions: Exceptions::new(self.name)?,
        };
        let recipient = Arc::new(recipient, GFP_KERNEL)?;
        let entry = self.recipients.insert(pasid.raw(), recipient)?;
        Ok(KBox::new(entry, GFP_KERNEL)?)
    }

    fn deliver(&self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::EndOfPipe { pasid, context_id } => self.signal(pasid, context_id, 32),
            Interrupt::SdmaTrap { pasid, context_id } => self.signal(pasid, context_id, 28),
            Interrupt::WaveMessage {
                pasid,
                data,
                privileged,
            } => {
                // It may be an event whatever it says: one that is lost as an exception still is.
                let exception = Exception::of_wave(pasid, data).filter(|_| privileged);
                if exception.is_none_or(|exception| !self.raise(exception)) {
                    self.signal(pasid, data, self.message_bits);
                }
            }
            Interrupt::WaveError { pasid, data, .. } | Interrupt::SqAuto { pasid, data, .. } => {
                self.signal(pasid, data, self.message_bits)
            }
            Interrupt::VmFault { .. } if !self.evict_on_fault => {}
            Interrupt::VmFault {
                pasid,
                va,
                not_present,
                write,
                ..
            } => {
                // One that finds no room comes again.
                let _noted: bool = self.faults.add(Fault {
                    pasid,
                    va,
                    not_present,
                    read_only: write,
                });
            }
            Interrupt::BadPacket {
                pasid,
                doorbell,
                exception,
            } => {
                if let Some(exception) = Exception::of_packet(pasid, doorbell, exception) {
                    let _noted: bool = self.raise(exception);
                }
            }
            // Nothing is done about poison, and nobody waits until interrupts have come.
            Interrupt::Poison { .. } | Interrupt::Fence { .. } => {}
        }
    }

    fn queue_was_reset(&self, pasid: Pasid) {
        let _notified: Option<()> = self.recipients.with(pasid.raw(), |recipient| {
            let reset = HwException {
                reset_cause: KFD_HW_EXCEPTION_GPU_HANG,
                memory_lost: 1,
                gpu_id: recipient.gpu_id.load(Relaxed),
                ..HwException::default()
            };
            let queue = process::interrupt_queue();
            recipient.events.hw_exception(reset, queue);
        });
    }

    fn order_later(&self, again: &Arc<Again>) {
        if let Some(queue) = process::eviction_queue() {
            again.enqueue_on(queue);
        }
    }
}

/// A memory access that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    pasid: Pasid,
    va: u64,
    not_present: bool,
    read_only: bool,
}

/// Faults of different processes that wait for the worker at a time.
const MAX_FAULTS: usize = 32;

/// Faults that a worker has yet to look at. When there are too many processes at fault, the fault
/// of one is noted when it faults again.
type Faults = Backlog<Fault, MAX_FAULTS>;

impl Deferred for Fault {
    type Context = ();

    /// A process has one at a time: its first, which stops its queues.
    #[inline]
    fn join(&mut self, new: &Self) -> bool {
        self.pasid == new.pasid
    }

    #[inline]
    fn queue() -> Option<&'static OwnedQueue> {
        process::interrupt_queue()
    }

    /// Takes the process off the GPU, where it would fault for ever, and tells it why.
    fn handle(self, (): &()) {
        let told = process::with_pasid(self.pasid, |process, device| {
            device.add_fault();
            if let Ok(task) = device.vm_task() {
                device.node().listeners().notify(SmiEvent::VmFault {
                    of: process.space(),
                    task: &task,
                });
            }
            let exception = MemoryException {
                va: self.va,
                gpu_id: device.user_id(),
                not_present: self.not_present.into(),
                read_only: self.read_only.into(),
                ..MemoryException::default()
            };
            // What becomes of it is the debugger's to say.
            if !process.memory_violation(device, exception) {
                process::report_fault(process, device, exception);
            }
        });
        if told.is_none() {
            pr_debug!("a memory fault of a process that is gone: {self:?}\n");
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_interrupt)]
mod tests {
    use super::*;
    use crate::linux::backlog::List;

    fn fault(pasid: u32, va: u64) -> Fault {
        Fault {
            pasid: Pasid::new(pasid).unwrap(),
            va,
            not_present: true,
            read_only: false,
        }
    }

    #[test]
    fn the_first_fault_of_a_process_is_the_one_that_counts() {
        let mut list = List::<Fault, MAX_FAULTS>::new();
        assert!(list.add(fault(1, 0x1000)));
        assert!(list.add(fault(1, 0x2000)));
        assert!(list.add(fault(2, 0x3000)));
        assert_eq!(list.take(), Some(fault(1, 0x1000)));
        assert_eq!(list.take(), Some(fault(2, 0x3000)));
        assert_eq!(list.take(), None);
    }

    #[test]
    fn a_full_list_keeps_what_it_has() {
        let mut list = List::<Fault, MAX_FAULTS>::new();
        for pasid in 1..=MAX_FAULTS as u32 + 5 {
            assert_eq!(list.add(fault(pasid, 0)), pasid <= MAX_FAULTS as u32);
        }
        assert_eq!(core::iter::from_fn(|| list.take()).count(), MAX_FAULTS);
    }

    fn for_tests() -> Interrupts {
        Interrupts::new(PciName::default(), true, 24).unwrap()
    }

    fn register(interrupts: &Interrupts, pasid: Pasid, events: &Arc<Events>) -> Registration {
        let gpu_id = Arc::new(Atomic::new(1), GFP_KERNEL).unwrap();
        interrupts
            .register(pasid, (events.clone(), gpu_id))
            .unwrap()
    }

    #[test]
    fn each_vm_has_exceptions_of_its_own() {
        let interrupts = for_tests();
        let events = Events::with_page(256).unwrap();
        let pasids = [7, 8].map(|pasid| Pasid::new(pasid).unwrap());
        // Both of one process.
        let registered = pasids.map(|pasid| register(&interrupts, pasid, &events));
        let place = |pasid: Pasid| {
            let place =
                |recipient: ArcBorrow<'_, Recipient>| (&raw const recipient.exceptions).addr();
            interrupts.recipients.with(pasid.raw(), place)
        };
        let [one, other] = pasids.map(place);
        assert!(one.is_some() && other.is_some() && one != other);
        drop(registered);
        assert_eq!(pasids.map(place), [None; 2]);
    }

    #[test]
    fn an_interrupt_signals_the_event_of_the_process_it_names() {
        let interrupts = for_tests();
        let events = Events::with_page(256).unwrap();
        let pasid = Pasid::new(0x8001).unwrap();
        let entry = register(&interrupts, pasid, &events);
        let id = events.create(crate::uapi::KFD_IOC_EVENT_SIGNAL, crate::event::Mode::Auto);
        let id = id.unwrap().id;
        let age = |events: &Events| events.age(id);
        events.write_slot(id, id.into());
        let stranger = Pasid::new(0x8002).unwrap();
        interrupts.deliver(Interrupt::EndOfPipe {
            pasid: stranger,
            context_id: id,
        });
        assert_eq!(age(&events), Some(1));
        interrupts.deliver(Interrupt::EndOfPipe {
            pasid,
            context_id: id,
        });
        assert_eq!(age(&events), Some(2));
        // The slot was acknowledged, so the same interrupt again says nothing new.
        interrupts.deliver(Interrupt::EndOfPipe {
            pasid,
            context_id: id,
        });
        assert_eq!(age(&events), Some(2));
        drop(entry);
    }

    #[test]
    fn a_message_that_finds_no_room_among_exceptions_is_an_event_still() {
        let interrupts = for_tests();
        let events = Events::with_page(256).unwrap();
        let pasid = Pasid::new(0x8003).unwrap();
        let entry = register(&interrupts, pasid, &events);
        let id = events.create(crate::uapi::KFD_IOC_EVENT_SIGNAL, crate::event::Mode::Auto);
        let id = id.unwrap().id;
        events.write_slot(id, id.into());
        let send = |doorbell: u32| {
            interrupts.deliver(Interrupt::WaveMessage {
                pasid,
                data: 1 << 10 | doorbell,
                privileged: true,
            });
        };
        send(0);
        assert_eq!(events.age(id), Some(1));
        // More than there is room for, if a worker takes some of them meanwhile, too.
        (1..1024).for_each(send);
        assert_eq!(events.age(id), Some(2));
        drop(entry);
    }
}
