// SPDX-License-Identifier: GPL-2.0-only

//! A process on one GPU: a [`ProcessDevice`] for each process and node that may be used together.
//!
//! It begins empty. ACQUIRE_VM gives it a VM, once and for good, and with that a trap handler, a
//! pasid and the right to have queues. What the scheduler tells the hardware of a process
//! (MAP_PROCESS) is read from here without a lock.

use super::{
    apertures::Apertures,
    memory::Unflushed,
    moves::Moves,
    pasids::PasidName,
    tensor_limit::TensorLimit,
    trap::TrapMemory,
    ProcessName, //
};
use crate::{
    event::Events,
    gauge::{
        Gauge,
        Held, //
    },
    gpu::{
        Node,
        NodeUser,
        Quiet,
        Registration, //
    },
    ids::{
        GpuId,
        Serial, //
    },
    kgd::{
        trap_handler,
        MemoryContext,
        PowerGuard,
        Vm,
        VmTask, //
    },
    memory::Buffers,
    queue::{
        Queues,
        Site, //
    },
    smi::{
        Listeners,
        SmiEvent, //
    },
    svm::Counters,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Relaxed,
                Release, //
            },
            Atomic, //
        },
        Arc,
        Mutex,
        SetOnce,
        UniqueArc, //
    },
    task::Kuid, //
};

/// Processes on GPUs.
pub(crate) static DEVICES: Gauge = Gauge::new();

/// Where waves go when they trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrapHandler {
    /// Trap base address: the code. 0 if there is none. Not sign-extended.
    pub(crate) tba: u64,
    /// Trap memory address: the code's data.
    pub(crate) tma: u64,
}

/// What comes with a VM. Fields are dropped from top to bottom.
struct DeviceVm {
    /// Interrupts find the events of the process by its pasid.
    _interrupts: Registration,
    /// And faults the process.
    _name: PasidName,
    trap: Option<TrapMemory>,
    _started: Started,
    vm: Arc<Vm>,
    _power: PowerGuard,
}

/// A VM that an ACQUIRE_VM has acquired, which has not come to its end yet, or failed: then the VM
/// stays for the next one. Given back, it could not be acquired a second time (see
/// `bridge_vm_release`). Fields are dropped from top to bottom.
struct AcquiredVm {
    vm: Arc<Vm>,
    /// A moment before it was acquired.
    since: Quiet,
    power: PowerGuard,
}

impl AcquiredVm {
    fn new(node: &Node, context: Arc<MemoryContext>, drm_fd: i32, since: Quiet) -> Result<Self> {
        let kgd = node.kgd();
        let power = PowerGuard::new(kgd.clone())?;
        // First: the VM would be given back, were there no memory for it afterwards.
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let vm = place.write(Vm::acquire(kgd.clone(), context, drm_fd)?);
        Ok(Self {
            vm: vm.into(),
            since,
            power,
        })
    }
}

/// Who listens to the node knows that the process has a VM there; dropped: that it has none any
/// more.
struct Started {
    listeners: Arc<Listeners>,
    of: Serial,
    task: VmTask,
}

impl Started {
    fn new(node: &Node, of: Serial, task: VmTask) -> Self {
        let listeners = node.listeners().clone();
        listeners.notify(SmiEvent::Process {
            ends: false,
            of,
            task: &task,
        });
        Self {
            listeners,
            of,
            task,
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.listeners.notify(SmiEvent::Process {
            ends: true,
            of: self.of,
            task: &self.task,
        });
    }
}

impl Site for ProcessDevice {
    fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn vm(&self) -> Result<&Arc<Vm>> {
        self.vm()
    }
}

/// A process on one GPU. Fields are dropped from top to bottom.
#[pin_data]
pub(crate) struct ProcessDevice {
    #[pin]
    queues: Queues,
    #[pin]
    buffers: Buffers,
    vm: SetOnce<DeviceVm>,
    #[pin]
    unfinished: Mutex<Option<AcquiredVm>>,
    apertures: Apertures,
    /// The user's trap handler, where the driver has none of its own.
    user_tba: Atomic<u64>,
    user_tma: Atomic<u64>,
    /// Matrix operations shall be as precise as they can be.
    precise: Atomic<bool>,
    /// How often its waves touched memory that they may not.
    faults: Atomic<u64>,
    /// What the process calls the GPU: one that was restored may have known another one before.
    user_id: Arc<Atomic<u32>>,
    unflushed: Unflushed,
    is_lost: Atomic<bool>,
    moves: Moves,
    #[pin]
    tensor_limit: TensorLimit,
    shared_counters: Arc<Counters>,
    held: Held,
    /// Last: the device may go when all have let go of it.
    node: NodeUser,
}

impl ProcessDevice {
    /// A process of that user's on `node`, without a VM.
    pub(super) fn new(node: Arc<Node>, user: Kuid) -> Result<Arc<Self>> {
        let facts = node.facts();
        let bases = node.generation().chip.apertures;
        let apertures = Apertures::new(bases, facts.gpuvm_size, facts.max_pfn);
        let device = try_pin_init!(Self {
            queues <- Queues::new(user),
            buffers <- Buffers::new(),
            vm: SetOnce::new(),
            unfinished <- new_mutex!(None, "amdkfd::ProcessDevice::unfinished"),
            apertures,
            user_tba: Atomic::new(0),
            precise: Atomic::new(false),
            user_tma: Atomic::new(0),
            faults: Atomic::new(0),
            user_id: Arc::new(Atomic::new(node.id().raw()), GFP_KERNEL_ACCOUNT)?,
            unflushed: Unflushed::new(),
            is_lost: Atomic::new(false),
            moves: Moves::new(),
            tensor_limit <- TensorLimit::new(node.clone()),
            shared_counters: Arc::new(Counters::new(), GFP_KERNEL_ACCOUNT)?,
            held: DEVICES.hold(),
            node: NodeUser::process(node),
        });
        Arc::pin_init(device, GFP_KERNEL_ACCOUNT)
    }

    /// The GPU.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The GPU's name.
    pub(crate) fn gpu_id(&self) -> GpuId {
        self.node.id()
    }

    /// What the process calls the GPU, where it names one: in ioctls, handles, and events.
    pub(crate) fn user_id(&self) -> u32 {
        self.user_id.load(Relaxed)
    }

    /// From now on it calls the GPU so.
    pub(super) fn set_user_id(&self, id: u32) {
        self.user_id.store(id, Relaxed);
    }

    /// Whether it has forgotten what was unmapped from it.
    pub(super) fn unflushed(&self) -> &Unflushed {
        &self.unflushed
    }

    /// What lies where in the process's view of the GPU.
    pub(crate) fn apertures(&self) -> &Apertures {
        &self.apertures
    }

    /// The queues of the process on this GPU.
    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The buffers of the process on this GPU.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// A reset of the GPU has begun while the process had a VM there, or it goes away: the process
    /// has lost its queues on all GPUs ([`Queues::lose`]).
    pub(super) fn set_lost(&self) {
        self.is_lost.store(true, Release);
    }

    /// Whether that has ever been so: the process never runs again, and what it has there does not
    /// matter any more, whatever becomes of the GPU.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Acquire)
    }

    /// Whether what amdgpu moves of the process's on the GPU gets there.
    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Bytes of the GPU's memory that the process has: in buffers, and as shared virtual memory.
    pub(crate) fn vram_usage(&self) -> u64 {
        self.buffers().vram_usage() + self.shared_counters().vram()
    }

    /// What happens to the process's shared virtual memory on this GPU.
    pub(crate) fn shared_counters(&self) -> &Arc<Counters> {
        &self.shared_counters
    }

    /// One more memory fault.
    pub(crate) fn add_fault(&self) {
        self.faults.add(1, Relaxed);
    }

    /// How many memory faults there were.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Whether waves can be saved when their queue leaves the hardware (CWSR): needs a handler of
    /// the driver's.
    pub(crate) fn saves_waves(&self) -> bool {
        self.vm.as_ref().is_some_and(|vm| vm.trap.is_some())
    }

    /// The VM. `ENODEV` before ACQUIRE_VM.
    pub(crate) fn vm(&self) -> Result<&Arc<Vm>> {
        self.vm.as_ref().map(|vm| &vm.vm).ok_or(ENODEV)
    }

    /// Takes over the VM of an open render node and sets up what comes with it. The caller holds
    /// the process's memory lock, and there is no VM yet.
    ///
    /// Returns a moment before the VM was acquired. `EAGAIN`: the GPU is being reset. `EINVAL`: an
    /// ACQUIRE_VM with that file failed before the last reset.
    pub(super) fn acquire_vm(
        &self,
        context: Arc<MemoryContext>,
        drm_fd: i32,
        events: &Arc<Events>,
        (process, of): (ProcessName, Serial),
    ) -> Result<Quiet> {
        let now = self.node.resets().quiet()?;
        let mut unfinished = self.unfinished.lock();
        // A reset has taken its page tables. amdgpu gives no file a second VM.
        if unfinished
            .as_ref()
            .is_some_and(|it| self.node.resets().has_begun_since(it.since))
        {
            *unfinished = None;
        }
        if !unfinished.as_ref().is_some_and(|it| it.vm.is_file(drm_fd)) {
            let other = AcquiredVm::new(&self.node, context, drm_fd, now)?;
            *unfinished = Some(other);
        }
        let vm = &unfinished.as_ref().ok_or(ENODEV)?.vm;
        let facts = self.node.facts();
        let code = trap_handler(facts.gc()).filter(|_| facts.cwsr_enable);
        let trap = code
            .map(|code| TrapMemory::new(vm, self.apertures.trap, code))
            .transpose()?;
        let name = PasidName::new(vm.pasid(), process)?;
        let user = (events.clone(), self.user_id.clone());
        let interrupts = self.node.sink().register(vm.pasid(), user)?;
        let AcquiredVm { vm, since, power } = unfinished.take().ok_or(ENODEV)?;
        self.vm.populate(DeviceVm {
            _interrupts: interrupts,
            _name: name,
            trap,
            _started: Started::new(&self.node, of, vm.task()),
            vm,
            _power: power,
        });
        Ok(since)
    }

    /// Lifts the GPU's tensor limiter for the process. `EOPNOTSUPP`: the GPU has none.
    pub(crate) fn lift_tensor_limit(&self) -> Result {
        self.tensor_limit.lift(true)
    }

    /// The same where there may be none.
    pub(crate) fn lift_tensor_limit_if_any(&self) -> Result {
        match self.node.kgd().has_tensor_limit() {
            true => self.lift_tensor_limit(),
            false => Ok(()),
        }
    }

    /// Takes that back.
    pub(crate) fn leave_tensor_limit(&self) -> Result {
        self.tensor_limit.lift(false)
    }

    /// The task that acquired the VM.
    pub(crate) fn vm_task(&self) -> Result<VmTask> {
        Ok(self.vm()?.task())
    }

    /// SET_MEMORY_POLICY: whether matrix operations are as precise as they can be. It counts for
    /// the process's next first queue on the device.
    pub(crate) fn set_precise(&self, precise: bool) {
        self.precise.store(precise, Relaxed);
    }

    /// Whether matrix operations shall be as precise as they can be.
    pub(crate) fn is_precise(&self) -> bool {
        self.precise.load(Relaxed)
    }

    /// SET_TRAP_HANDLER. The driver's own handler, if there is one, calls the user's.
    pub(crate) fn set_trap_handler(&self, user: TrapHandler) {
        match self.vm.as_ref().and_then(|vm| vm.trap.as_ref()) {
            Some(trap) => trap.set_second_level(user),
            None => {
                self.user_tba.store(user.tba, Relaxed);
                self.user_tma.store(user.tma, Relaxed);
            }
        }
    }

    /// Tells the driver's handler, if there is one, whether there is a debugger.
    pub(super) fn set_debug_flag(&self, on: bool) {
        if let Some(trap) = self.vm.as_ref().and_then(|vm| vm.trap.as_ref()) {
            trap.set_debug_flag(on);
        }
    }

    /// The trap handler that the hardware shall know.
    pub(crate) fn trap_handler(&self) -> TrapHandler {
        match self.vm.as_ref().and_then(|vm| vm.trap.as_ref()) {
            Some(trap) => trap.handler(),
            None => TrapHandler {
                tba: self.user_tba.load(Relaxed),
                tma: self.user_tma.load(Relaxed),
            },
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_device)]
mod tests {
    use super::*;
    use crate::{
        gpu::{
            gate::Gate,
            Gpu,
            NoSink, //
        },
        kgd::fake::Fake,
        linux::users::user_of,
        process::MmId, //
    };

    #[test]
    fn a_vm_that_was_acquired_before_a_reset_is_not_used_after_it() {
        let fake = Fake::new().unwrap();
        let gpu = Gpu::new(fake.clone(), Gate::new().unwrap()).unwrap();
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let node = Node::new(gpu, 0, GpuId::new(1).unwrap(), sink).unwrap();
        let device = ProcessDevice::new(node.clone(), user_of(1)).unwrap();
        let events = Events::new().unwrap();
        let context = MemoryContext::new(fake.clone(), 7).unwrap();
        let context = Arc::new(context, GFP_KERNEL).unwrap();
        // It fails behind the VM: nobody takes the node's interrupts.
        let since = || {
            let name = ((MmId::new(core::ptr::null()), 7), Serial::next());
            let acquired = device.acquire_vm(context.clone(), 3, &events, name);
            assert!(acquired.is_err());
            assert_eq!(fake.live().vms, 1);
            device.unfinished.lock().as_ref().map(|it| it.since)
        };
        let before = since();
        assert!(before.is_some() && since() == before);
        node.resets().begin();
        node.resets().end();
        let after = node.resets().quiet().ok();
        assert!(before != after && since() == after);
    }
}
