// SPDX-License-Identifier: GPL-2.0-only

//! A process that computes: one [`Process`] for each address space that has opened /dev/kfd.
//!
//! It lives in two states. While it is *alive* it may have queues. It is *quiesced* when its
//! address space ends: from then on it has none, and nothing of it is on any GPU as soon as the
//! hardware has obeyed ([`leaving`]). Its memory goes later, when the last file, mapping or worker
//! has let go of it, and then on a workqueue: dropping a [`ProcessRef`] is legal in any context.
//!
//! Locks, outer to inner: `memory`, then that of debugging (`Debugging::state`) or the buffers'
//! (`Buffers::table`), which are never held together, `inner`, the queues', the scheduler's, the
//! events' (Documentation/locking.md). `memory` serialises what gives the process
//! VMs or a signal page, changes its queues or depends on there being none. What allocates, maps
//! and frees buffers takes their lock alone. Under either amdgpu's memory management is called,
//! which may sleep and reclaim; so whatever reclaim can end up in (`quiesce_mm`, the mm notifier)
//! and `mmap` take neither.

pub(crate) mod apertures;
pub(crate) mod checkpoint;
pub(crate) mod debug;
pub(crate) mod debugger;
pub(crate) mod device;
mod devices;
pub(crate) mod doorbells;
mod ends;
mod eviction;
pub(crate) mod files;
mod leaving;
pub(crate) mod memory;
mod moves;
pub(crate) mod open_file;
mod pasids;
pub(crate) mod power;
pub(crate) mod queues;
mod registry;
mod shared;
pub(crate) mod telling;
mod tensor_limit;
mod trap;
mod turns;
pub(crate) mod wave_state;

use debugger::Debugging;
pub(crate) use device::ProcessDevice;
use devices::Devices;
use registry::open_context;
pub(crate) use registry::{
    count_performance,
    each,
    evict_mm,
    eviction_queue,
    exception_queue,
    hurry,
    interrupt_queue,
    open,
    page_fault,
    restore_mm,
    restore_postponed,
    schedule_eviction,
    with_pasid,
    Processes, //
};

use crate::{
    event::Events,
    gauge::{
        Gauge,
        Held, //
    },
    gpu::{
        self,
        Node,
        Profiler, //
    },
    ids::{
        GpuId,
        Pasid,
        QueueId,
        Serial, //
    },
    kgd::{
        gpu_err,
        MemoryContext, //
    },
    linux::{
        mmu_notifier::{
            AddressSpaceUser,
            Notifier, //
        },
        module::ModuleRef,
        task::{
            answerable_user,
            capable,
            system_thread_group_id,
            thread_group_id,
            Capability, //
        },
        workqueue::{
            Deferrable,
            DeferredArc, //
        },
    },
    queue::{
        QueueIds,
        MAX_IDS, //
    },
    smi::{
        SmiEvent,
        Trigger, //
    },
    svm::Svm,
    uapi::MemoryException,
};
use ends::Ending;
use eviction::Evictor;
use files::ProcessFiles;
use kernel::{
    fmt,
    fs::LocalFile,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            ordering::{
                Acquire,
                Release, //
            },
            Atomic, //
        },
        lock::mutex::MutexGuard,
        Arc,
        Mutex,
        SetOnce, //
    },
    task::Task,
    time::Instant,
};
use telling::Errands;

/// Processes that are not yet gone: those on their way through the teardown included.
pub(crate) static PROCESSES: Gauge = Gauge::new();

/// `KFD_CONTEXT_ID_PRIMARY`: the context that opening /dev/kfd makes.
const PRIMARY_CONTEXT: u16 = 0xffff;

/// A shared process.
pub(crate) type ProcessRef = DeferredArc<Process>;

/// Names an address space. Never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MmId(usize);

impl MmId {
    /// The name of the address space at this address.
    pub(crate) fn new(mm: *const kernel::bindings::mm_struct) -> Self {
        Self(mm as usize)
    }
}

/// Names a process that can be found: its address space, and which context of it. The next one may
/// have the same name.
type ProcessName = (MmId, u16);

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    /// It may have queues.
    Alive,
    /// It has no queue, nor ever will.
    Quiesced,
}

/// What `Process::inner` protects.
struct Inner {
    lifecycle: Lifecycle,
    /// Faulting accesses are retried (XNACK).
    xnack: bool,
}

/// What `Process::memory` protects, beside turns.
pub(crate) struct MemoryState {
    /// The queues are off for a checkpoint (PROCESS_INFO).
    paused: bool,
    /// Shared virtual memory that is restored when the process is resumed.
    ranges: checkpoint::Owed<checkpoint::SavedRange>,
}

/// What a process has from its first VM on.
struct ComputeState {
    /// What its VMs share.
    context: Arc<MemoryContext>,
    evictor: Arc<Evictor>,
    queue_ids: Arc<QueueIds>,
}

/// A process. Fields are dropped from top to bottom, after `drop` has emptied them.
#[pin_data(PinnedDrop)]
pub(crate) struct Process {
    events: Arc<Events>,
    /// Made with the first VM, under `memory`. Eviction and a reset read it without a lock: who
    /// holds `memory` may be waiting for just them.
    compute: SetOnce<KBox<ComputeState>>,
    #[pin]
    memory: Mutex<MemoryState>,
    /// Made under `memory`, with the first VM at the latest, if processes have SVM.
    svm: SetOnce<Arc<Svm>>,
    /// See [`Process::telling`].
    #[pin]
    telling: Mutex<()>,
    /// See [`Process::errand`].
    #[pin]
    errands: Errands,
    #[pin]
    debugging: Debugging,
    #[pin]
    inner: Mutex<Inner>,
    /// With the devices, the leader and the address space.
    files: Arc<ProcessFiles>,
    #[pin]
    notifier: Notifier,
    /// Nothing of it is on a GPU, nor ever will be, and nobody waits for its buffers.
    is_off: Atomic<bool>,
    /// A GPU that it knows goes away: it must end, and its queues never run again.
    is_leaving: Atomic<bool>,
    /// A suspend has evicted it, which its end undoes.
    sleeps: Atomic<bool>,
    /// The notifier is registered: the end of the address space will not be missed.
    watched: Atomic<bool>,
    /// The address space, which `files` keep: no other one has its name meanwhile.
    mm: MmId,
    /// The id of its thread group as itself sees it.
    pid: i32,
    /// The same for the whole system.
    tgid: i32,
    context: u16,
    serial: Serial,
    /// The process beside which this one is another context of the address space.
    primary: Option<ProcessRef>,
    /// What is above has been given back.
    ending: Ending,
    held: Held,
    module: ModuleRef,
}

impl Process {
    /// The process of the thread group that `lead` leads, whose address space `mm` is, with a
    /// device for each node that the current task may use. `beside`: another context of that
    /// number. `ENOSPC`: for that its user has too many ([`Ends`](ends::Ends)).
    fn new(lead: &Task, mm: &Mm, beside: Option<(ProcessRef, u16)>) -> Result<ProcessRef> {
        let registry = registry::get()?;
        let context = beside
            .as_ref()
            .map_or(PRIMARY_CONTEXT, |(_, number)| *number);
        let events = Events::new()?;
        let lead = ARef::from(lead);
        let user = answerable_user(&lead);
        let devices = gpu::with_nodes(|nodes| Devices::choose(nodes, user))?;
        let xnack = devices.xnack_by_default();
        let shown = beside.as_ref().map(|(primary, _)| primary.files());
        let is_exempt = || context == PRIMARY_CONTEXT || capable(Capability::SysAdmin);
        let ending = registry.ends().add(user, is_exempt)?;
        let (pid, tgid) = (thread_group_id(&lead), system_thread_group_id(&lead));
        let files = ProcessFiles::new(devices, (lead, mm.into()), context, shown)?;
        let inner = Inner {
            lifecycle: Lifecycle::Alive,
            xnack,
        };
        let process = try_pin_init!(Self {
            events,
            compute: SetOnce::new(),
            memory <- new_mutex!(
                MemoryState {
                    paused: false,
                    ranges: checkpoint::Owed::new(),
                },
                "amdkfd::Process::memory"
            ),
            svm: SetOnce::new(),
            telling <- new_mutex!((), "amdkfd::Process::telling"),
            errands <- Errands::new(),
            debugging <- Debugging::new(),
            inner <- new_mutex!(inner, "amdkfd::Process::inner"),
            files,
            mm: MmId::new(mm.as_raw()),
            notifier <- Notifier::new::<Self>(),
            is_off: Atomic::new(false),
            is_leaving: Atomic::new(false),
            sleeps: Atomic::new(false),
            watched: Atomic::new(false),
            pid,
            tgid,
            context,
            serial: Serial::next(),
            primary: beside.map(|(primary, _)| primary),
            ending,
            held: PROCESSES.hold(),
            module: ModuleRef::new(registry.module())?,
        }? Error);
        DeferredArc::new(registry.teardown(), process)
    }

    /// The device that the process calls so. `EINVAL` if there is none, or the process may not use
    /// it.
    pub(crate) fn device(&self, gpu_id: u32) -> Result<&Arc<ProcessDevice>> {
        self.devices()
            .iter()
            .find(|device| device.user_id() == gpu_id)
            .ok_or(EINVAL)
    }

    /// The process's view of a node.
    pub(crate) fn device_of(&self, gpu: GpuId) -> Option<&Arc<ProcessDevice>> {
        self.devices().iter().find(|device| device.gpu_id() == gpu)
    }

    /// The device's place among all.
    pub(crate) fn place_of(&self, device: &Arc<ProcessDevice>) -> Option<usize> {
        let mut devices = self.devices().iter();
        devices.position(|known| Arc::ptr_eq(known, device))
    }

    /// The device whose VM has this pasid.
    pub(crate) fn device_with(&self, pasid: Pasid) -> Option<&Arc<ProcessDevice>> {
        self.devices()
            .iter()
            .find(|device| device.vm().is_ok_and(|vm| vm.pasid() == pasid))
    }

    /// All devices, in topology order.
    pub(crate) fn devices(&self) -> &[Arc<ProcessDevice>] {
        self.files.devices()
    }

    /// Shows the process on each GPU where it has queues: its memory there, and each queue.
    pub(crate) fn show_queues(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, context) = (self.lead().pid(), self.context);
        match context {
            PRIMARY_CONTEXT => self.show_queues_as(format_args!("pid {pid}"), f),
            // It counts its queues from 0, too.
            _ => self.show_queues_as(format_args!("pid {pid} context {context}"), f),
        }
    }

    fn show_queues_as(&self, owner: fmt::Arguments<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for device in self
            .devices()
            .iter()
            .filter(|device| !device.queues().is_empty())
        {
            let gpu_id = device.gpu_id().raw();
            let (vram, faults) = (device.vram_usage(), device.faults());
            writeln!(f, "{owner} gpu_id {gpu_id} vram {vram} faults {faults}")?;
            device.queues().show(owner, device.gpu_id(), f)?;
        }
        Ok(())
    }

    /// What the process waits for.
    pub(crate) fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The names of the process's queues, over all GPUs. `ENODEV` before its first VM.
    pub(crate) fn queue_ids(&self) -> Result<&Arc<QueueIds>> {
        let compute = self.compute.as_ref().ok_or(ENODEV)?;
        Ok(&compute.queue_ids)
    }

    /// The leader of the thread group that opened /dev/kfd.
    pub(crate) fn lead(&self) -> &Task {
        self.files.lead()
    }

    /// The process's address space. It may have ended.
    pub(crate) fn address_space(&self) -> &Mm {
        self.files.address_space()
    }

    /// Whether the current task belongs to the thread group that opened /dev/kfd, and is still in
    /// the address space in which it did: execve keeps the group's leader.
    pub(crate) fn is_current(&self) -> bool {
        let current = kernel::current!();
        let same_space = |mm: &MmWithUser| MmId::new(mm.as_raw()) == self.mm;
        core::ptr::eq::<Task>(current.group_leader(), self.lead())
            && current.mm().is_some_and(same_space)
    }

    /// The lock of ioctls that change the process's VMs or its queues, or look whether there are
    /// any.
    pub(crate) fn memory_lock(&self) -> MutexGuard<'_, MemoryState> {
        self.memory.lock()
    }

    /// Held by who writes into the save area of one of the process's queues: a queue that is gone
    /// when somebody had the lock is written for no more. Its holder waits for no program.
    pub(crate) fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock()
    }

    /// Proof that the process is alive, for as long as it is held; queues are made under it.
    /// `ESRCH` if the process is quiesced.
    pub(crate) fn alive(&self) -> Result<Alive<'_>> {
        let inner = self.inner.lock();
        match inner.lifecycle {
            Lifecycle::Alive => Ok(Alive(inner)),
            Lifecycle::Quiesced => Err(ESRCH),
        }
    }

    /// Whether faulting accesses are retried.
    pub(crate) fn xnack(&self) -> bool {
        self.inner.lock().xnack
    }

    /// Whether the process has a queue of this name.
    pub(crate) fn has_queue(&self, id: QueueId) -> bool {
        self.devices().iter().any(|device| device.queues().has(id))
    }

    /// Whether the process has a queue on any GPU.
    pub(crate) fn has_queues(&self) -> bool {
        self.devices()
            .iter()
            .any(|device| !device.queues().is_empty())
    }

    /// ACQUIRE_VM: the VM of an open render node becomes the process's on `device`.
    ///
    /// `EBUSY` if the device has another one; `EINVAL` if that is no file at all; `EAGAIN` while
    /// the GPU is reset. Of a reset that begins meanwhile the process is as if it had come
    /// afterwards.
    pub(crate) fn acquire_vm(&self, device: &Arc<ProcessDevice>, drm_fd: i32) -> Result {
        // CAST: a number that is no file's is found out here.
        LocalFile::fget(drm_fd as u32).map_err(|_| EINVAL)?;
        let _turn = self.memory.lock();
        self.acquire_vm_locked(device, drm_fd)
    }

    /// The same of a file, under `memory`.
    fn acquire_vm_locked(&self, device: &Arc<ProcessDevice>, drm_fd: i32) -> Result {
        if let Ok(vm) = device.vm() {
            return if vm.is_file(drm_fd) {
                Ok(())
            } else {
                Err(EBUSY)
            };
        }
        if self.compute.as_ref().is_none() {
            let kgd = device.node().kgd().clone();
            let compute = ComputeState {
                context: Arc::new(MemoryContext::new(kgd, self.context)?, GFP_KERNEL_ACCOUNT)?,
                evictor: Evictor::new(self.mm, self.context, self.ending.user())?,
                queue_ids: Arc::new(QueueIds::new(MAX_IDS), GFP_KERNEL_ACCOUNT)?,
            };
            self.compute
                .populate(KBox::new(compute, GFP_KERNEL_ACCOUNT)?);
        }
        let context = self.context().ok_or(ENODEV)?.clone();
        let svm = self.make_svm_locked()?;
        let name = (self.mm, self.context);
        let since = device.acquire_vm(context, drm_fd, &self.events, (name, self.space()))?;
        self.tell_waves(device);
        if let Some(svm) = svm {
            self.tell_svm(svm);
        }
        // Who reset the GPU may not have seen the VM, whose page tables are gone. Who asks for the
        // process's buffers finds it evicted, and they do not come back.
        if device.node().resets().has_begun_since(since) {
            self.lose_queues();
            device.set_lost();
        }
        Ok(())
    }

    /// Takes the process's queues off all GPUs until as many calls of [`Process::restore`] follow.
    ///
    /// It counts even if a GPU does not obey, which the error says: that GPU is being reset, or
    /// will be, and the queues do not come back before they are restored.
    pub(crate) fn evict(&self, trigger: Trigger) -> Result {
        let mut result = Ok(());
        if self
            .devices()
            .iter()
            .any(|device| device.node().facts().debug_evictions)
        {
            pr_warn!("evicting process {}: {trigger:?}\n", self.pid);
        }
        for device in self.devices() {
            self.notify_eviction(device, trigger);
            result = result.and(device.queues().evict(&**device));
        }
        result
    }

    /// Tells who listens that the queues leave a GPU.
    fn notify_eviction(&self, device: &ProcessDevice, trigger: Trigger) {
        device.node().listeners().notify(SmiEvent::Eviction {
            pid: self.pid,
            of: self.space(),
            gpu: device.gpu_id().raw(),
            trigger,
        });
    }

    /// Tells who listens that the queues come back, or cannot yet.
    fn notify_restore(&self, postponed: bool) {
        for device in self.devices() {
            device.node().listeners().notify(SmiEvent::Restore {
                pid: self.pid,
                of: self.space(),
                gpu: device.gpu_id().raw(),
                postponed,
            });
        }
    }

    /// The id of its thread group, as itself sees it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// What tells it from all others.
    pub(crate) fn serial(&self) -> Serial {
        self.serial
    }

    /// What tells it and its other contexts from all others: whom SMI events may be shown to.
    pub(crate) fn space(&self) -> Serial {
        let primary = self.primary.as_ref();
        primary.map_or(self.serial, |primary| primary.serial)
    }

    /// The process gives these performance counters back: queues count no more on the nodes of
    /// that GPU that it has, but for one.
    pub(crate) fn stop_counting(&self, profiler: &Profiler, but: Option<GpuId>) {
        for device in self.devices() {
            let node = device.node();
            if core::ptr::eq(node.profiler(), profiler) && but != Some(device.gpu_id()) {
                registry::count_performance(node, false);
            }
        }
    }

    /// Its files in sysfs.
    pub(crate) fn files(&self) -> &Arc<ProcessFiles> {
        &self.files
    }

    /// Whether opening /dev/kfd made it, and not CREATE_PROCESS.
    pub(crate) fn is_primary(&self) -> bool {
        self.context == PRIMARY_CONTEXT
    }

    /// Whether the end of its address space will be told of.
    fn is_watched(&self) -> bool {
        self.watched.load(Acquire)
    }

    /// From now on it will.
    fn set_watched(&self) {
        self.watched.store(true, Release);
    }

    /// Whether it is alive at the moment.
    fn is_alive(&self) -> bool {
        self.inner.lock().lifecycle == Lifecycle::Alive
    }

    /// What the VMs of the process share, if it has one.
    fn context(&self) -> Option<&Arc<MemoryContext>> {
        self.compute.as_ref().map(|compute| &compute.context)
    }

    /// What makes room in VRAM for others, if the process has a VM.
    fn evictor(&self) -> Option<&Arc<Evictor>> {
        self.compute.as_ref().map(|compute| &compute.evictor)
    }

    /// Undoes [`Process::evict`]. Tries all GPUs, and returns the first error.
    pub(crate) fn restore(&self) -> Result {
        self.notify_restore(false);
        let mut result = Ok(());
        for device in self.devices() {
            result = result.and(device.queues().restore(&**device));
        }
        result
    }
}

// SAFETY: `notifier` is one for this type.
unsafe impl AddressSpaceUser for Process {
    const NOTIFIER: usize = core::mem::offset_of!(Self, notifier);

    fn released(this: &ProcessRef) {
        let begin = Instant::now();
        leaving::end(this, begin);
        this.leave_debugging();
        // Its other contexts work on the same address space.
        registry::contexts_of(this.mm, |context| leaving::end(context, begin));
    }
}

impl Deferrable for Process {
    fn leaves(&self) {
        self.ending.leaves();
    }
}

#[pinned_drop]
impl PinnedDrop for Process {
    fn drop(self: Pin<&mut Self>) {
        // It is off already, unless it was never made known: then it has no queue.
        let _ = self.quiesce(Instant::now());
        if let Some(svm) = self.svm() {
            svm.end();
        }
        if let Some(evictor) = self.evictor() {
            evictor.end();
        }
        // Before what the files show.
        self.files.retract();
        for device in self.devices() {
            let profiler = device.node().profiler();
            // Most have none.
            let _ = profiler.release(self.serial(), || {
                self.stop_counting(profiler, None);
                Ok(())
            });
        }
        // Off the GPUs, buffers need no eviction before they go. A restore may have armed another
        // fence.
        self.let_buffers_move();
        // The signal page is the mapping of a buffer.
        drop(self.events.take_page());
        for device in self.devices() {
            let devices = self.devices().iter();
            device
                .buffers()
                .clear(|| devices.clone().filter_map(|device| device.vm().ok()));
        }
    }
}

/// The process is alive and stays so.
pub(crate) struct Alive<'a>(MutexGuard<'a, Inner>);

impl Alive<'_> {
    /// SET_XNACK_MODE.
    pub(crate) fn set_xnack(&mut self, xnack: bool) {
        self.0.xnack = xnack;
    }

    /// Whether faulting accesses are retried.
    pub(crate) fn xnack(&self) -> bool {
        self.0.xnack
    }
}

/// A process's memory access failed on a GPU, where it would fail for ever: takes its queues off
/// and tells it why. May sleep.
pub(crate) fn report_fault(process: &Process, device: &ProcessDevice, fault: MemoryException) {
    if let Err(error) = device.queues().evict(device) {
        let (pid, name) = (process.lead().pid(), device.node().pci_name());
        gpu_err!(
            name,
            "process {pid}: cannot unmap its queues after a fault: {error:?}\n"
        );
    }
    process.events().memory_exception(fault, interrupt_queue());
}

/// Whether `node` can run processes with and without retry side by side.
pub(crate) fn xnack_is_a_choice(node: &Node) -> bool {
    node.generation().chip.xnack_per_process
}
