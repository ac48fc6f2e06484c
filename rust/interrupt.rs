// SPDX-License-Identifier: GPL-2.0-only

//! From a decoded interrupt to what it means for a process.
//!
//! Signals for events are delivered on the spot, in the hard interrupt; only the search through
//! many events that a useless hint asks for is a worker's. What needs to sleep is left on the
//! node's list of [`Faults`], which a worker empties: taking a faulting process's queues off the
//! hardware, above all.

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
    gpu::Sink,
    ids::{
        GpuId,
        Pasid, //
    },
    kgd::{gpu_err, PciName},
    linux::{
        rcu_table::{
            RcuEntry,
            RcuTable, //
        },
        spinlock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
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
    sync::Arc,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// Delivers the interrupts of a node: one for each [`Node`](crate::gpu::Node), which has it as its
/// [`Sink`].
pub(crate) struct Interrupts {
    /// The events of the processes that use the node, by the pasid of their VM there.
    events: Arc<RcuTable<Events>>,
    faults: Arc<Faults>,
    exceptions: Arc<Exceptions>,
    /// Whether a memory fault takes its process off, and is told: see
    /// `no_queue_eviction_on_vm_fault`.
    evict_on_fault: bool,
}

impl Interrupts {
    /// Nobody yet. `gpu` is the node's name, `name` its device's.
    pub(crate) fn new(gpu: GpuId, name: PciName, evict_on_fault: bool) -> Result<Self> {
        Ok(Self {
            events: RcuTable::new()?,
            faults: Faults::new(gpu)?,
            exceptions: Exceptions::new(name)?,
            evict_on_fault,
        })
    }

    /// The low `bits` bits of an event's id came with an interrupt. A process that is gone is not
    /// told.
    fn signal(&self, pasid: Pasid, id: u32, bits: u32) {
        let hint = Hint::new(id, bits);
        let _notified: Option<()> = self.events.with(pasid.raw(), |events| {
            if !events.signal_hinted(hint) {
                if let Some(queue) = process::work_queue() {
                    Events::search_on(events, queue);
                }
            }
        });
    }
}

impl Sink for Interrupts {
    fn register(&self, pasid: Pasid, events: Arc<Events>) -> Result<RcuEntry<Events>> {
        self.events.insert(pasid.raw(), events)
    }

    fn deliver(&self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::EndOfPipe { pasid, context_id } => self.signal(pasid, context_id, 32),
            Interrupt::SdmaTrap { pasid, context_id } => self.signal(pasid, context_id, 28),
            Interrupt::WaveMessage {
                pasid,
                data,
                privileged,
            } => match Exception::of_wave(pasid, data).filter(|_| privileged) {
                Some(exception) => self.exceptions.add(exception),
                None => self.signal(pasid, data, 24),
            },
            Interrupt::WaveError { pasid, data, .. } | Interrupt::SqAuto { pasid, data, .. } => {
                self.signal(pasid, data, 24)
            }
            Interrupt::VmFault { .. } if !self.evict_on_fault => {}
            Interrupt::VmFault {
                pasid,
                va,
                not_present,
                write,
                ..
            } => {
                self.faults.add(Fault {
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
                    self.exceptions.add(exception);
                }
            }
            // What a debugger, a reset or a drain would wait for: none of these exists yet.
            Interrupt::Poison { .. } | Interrupt::Fence { .. } => {}
        }
    }

    fn queue_was_reset(&self, pasid: Pasid) {
        let gpu_id = self.faults.gpu.raw();
        let _notified: Option<()> = self.events.with(pasid.raw(), |events| {
            events.hw_exception(HwException {
                reset_cause: KFD_HW_EXCEPTION_GPU_HANG,
                memory_lost: 1,
                gpu_id,
                ..HwException::default()
            });
        });
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

/// A short list without allocation.
struct FaultList([Option<Fault>; MAX_FAULTS]);

impl FaultList {
    /// Notes a fault. A process has one at a time: its first, which stops its queues. When there
    /// are too many processes at fault, theirs is noted when they fault again.
    fn add(&mut self, fault: Fault) {
        if self
            .0
            .iter()
            .flatten()
            .any(|known| known.pasid == fault.pasid)
        {
            return;
        }
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(fault);
        }
    }

    /// Takes one fault off the list.
    fn take(&mut self) -> Option<Fault> {
        self.0.iter_mut().find_map(Option::take)
    }
}

/// Faults that a worker has yet to look at. One list for each node.
#[pin_data]
struct Faults {
    #[pin]
    list: IrqSpinLock<FaultList>,
    #[pin]
    work: Work<Faults>,
    gpu: GpuId,
}

impl_has_work! {
    impl HasWork<Self> for Faults { self.work }
}

impl Faults {
    fn new(gpu: GpuId) -> Result<Arc<Self>> {
        let list = FaultList([None; MAX_FAULTS]);
        let faults = pin_init!(Self {
            list <- new_irq_spinlock!(list, "amdkfd::Faults"),
            work <- new_work!("amdkfd::Faults"),
            gpu,
        });
        Arc::pin_init(faults, GFP_KERNEL)
    }

    /// Leaves a fault to the worker. Legal in a hard interrupt.
    fn add(self: &Arc<Self>, fault: Fault) {
        self.list.lock().add(fault);
        if let Some(queue) = process::work_queue() {
            // If the worker is on its way already, it will see the fault too.
            let _ = queue.enqueue(self.clone());
        }
    }

    /// Takes the process off the GPU, where it would fault for ever, and tells it why.
    fn handle(&self, fault: Fault) {
        let told = process::with_pasid(fault.pasid, |process, device| {
            device.add_fault();
            if let Ok(task) = device.vm_task() {
                device.node().listeners().notify(SmiEvent::VmFault(&task));
            }
            if let Err(error) = device.queues().evict(&**device) {
                let (pid, name) = (process.lead().pid(), device.node().pci_name());
                gpu_err!(
                    name,
                    "process {pid}: cannot unmap its queues after a fault: {error:?}\n"
                );
            }
            process.events().memory_exception(MemoryException {
                va: fault.va,
                gpu_id: self.gpu.raw(),
                not_present: fault.not_present.into(),
                read_only: fault.read_only.into(),
                ..MemoryException::default()
            });
        });
        if told.is_none() {
            pr_debug!("a memory fault of a process that is gone: {:?}\n", fault);
        }
    }
}

impl WorkItem for Faults {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let fault = this.list.lock().take();
            match fault {
                Some(fault) => this.handle(fault),
                None => return,
            }
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_interrupt)]
mod tests {
    use super::*;

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
        let mut list = FaultList([None; MAX_FAULTS]);
        list.add(fault(1, 0x1000));
        list.add(fault(1, 0x2000));
        list.add(fault(2, 0x3000));
        assert_eq!(list.take(), Some(fault(1, 0x1000)));
        assert_eq!(list.take(), Some(fault(2, 0x3000)));
        assert_eq!(list.take(), None);
    }

    #[test]
    fn a_full_list_keeps_what_it_has() {
        let mut list = FaultList([None; MAX_FAULTS]);
        for pasid in 1..=MAX_FAULTS as u32 + 5 {
            list.add(fault(pasid, 0));
        }
        assert_eq!(core::iter::from_fn(|| list.take()).count(), MAX_FAULTS);
    }

    #[test]
    fn an_interrupt_signals_the_event_of_the_process_it_names() {
        let interrupts = Interrupts::new(GpuId::new(1).unwrap(), PciName::default(), true).unwrap();
        let events = Events::with_page(256).unwrap();
        let pasid = Pasid::new(0x8001).unwrap();
        let entry = interrupts.register(pasid, events.clone()).unwrap();
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
}
