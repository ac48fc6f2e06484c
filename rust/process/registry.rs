// SPDX-License-Identifier: GPL-2.0

//! All processes, by address space, and what they share. One for the module.
//!
//! The table is under an interrupt-safe spinlock, because an eviction fence asks for a process with
//! interrupts off and reclaim asks for one too. Nothing is allocated under it: the node of a new
//! process is made before. Making a process is serialised by `creation`, which is held across
//! allocations and which nobody takes that reclaim could wait for.

use super::{
    MmId,
    Process,
    ProcessDevice,
    ProcessRef, //
};
use crate::{
    ids::Pasid,
    linux::{
        mmu_notifier,
        module::Global,
        spinlock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
        workqueue::OwnedQueue, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    },
};

static REGISTRY: Global<Registry> = Global::new();

/// The processes of the module.
#[pin_data]
pub(super) struct Registry {
    #[pin]
    table: IrqSpinLock<RBTree<MmId, ProcessRef>>,
    #[pin]
    creation: Mutex<()>,
    /// Where processes are dropped.
    teardown: OwnedQueue,
}

impl Registry {
    fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            table <- new_irq_spinlock!(RBTree::new(), "amdkfd::Registry::table"),
            creation <- new_mutex!((), "amdkfd::Registry::creation"),
            teardown: OwnedQueue::unbound(c"amdkfd_teardown")?,
        })
    }

    /// Where processes are dropped.
    pub(super) fn teardown(&'static self) -> &'static OwnedQueue {
        &self.teardown
    }

    fn find(&self, mm: MmId) -> Option<ProcessRef> {
        self.table.lock().get(&mm).cloned()
    }
}

/// The registry. `ENODEV` before the module is up.
pub(super) fn get() -> Result<&'static Registry> {
    REGISTRY.get().ok_or(ENODEV)
}

/// The registry, as long as this lives. Dropping it waits for the processes that are on their way
/// out.
pub(crate) struct Processes(());

impl Processes {
    /// Makes the registry.
    ///
    /// # Safety
    ///
    /// Once. It is dropped when /dev/kfd is gone, no process is in the registry, and nobody calls
    /// into this room any more.
    pub(crate) unsafe fn new() -> Result<Self> {
        // SAFETY: By this function's own contract.
        unsafe { REGISTRY.init(Registry::new()) }?;
        Ok(Self(()))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        mmu_notifier::synchronize();
        // SAFETY: By the contract of `new`. Dropping the queue runs what is left on it.
        unsafe { REGISTRY.exit() };
    }
}

/// Where work for processes is done that must not be done on the spot; it is finished before the
/// module goes.
pub(crate) fn work_queue() -> Option<&'static OwnedQueue> {
    Some(&REGISTRY.get()?.teardown)
}

/// The current task's process, made if there is none. `EINVAL` if the task has no address space, or
/// there is no GPU.
pub(crate) fn open() -> Result<ProcessRef> {
    let registry = get()?;
    // As in C: what an ended process still holds is given back before the next one asks for more.
    registry.teardown.flush();
    let current = kernel::current!();
    let mm = current.mm().ok_or(EINVAL)?;
    let id = MmId::new(mm.as_raw());
    if let Some(process) = registry.find(id) {
        return Ok(process);
    }
    let creation = registry.creation.lock();
    if let Some(process) = registry.find(id) {
        return Ok(process);
    }
    if crate::gpu::nodes()?.is_empty() {
        pr_warn!("there is no GPU to compute on\n");
        return Err(EINVAL);
    }
    let process = Process::new(id)?;
    let node = RBTreeNode::new(id, process.clone(), GFP_KERNEL)?;
    let before = registry.table.lock().insert(node);
    // Creation is serialised, so nothing was there; if it was, it goes outside the lock.
    drop(before);
    if let Err(error) = mmu_notifier::watch(mm, process.clone()) {
        forget(&process);
        return Err(error);
    }
    drop(creation);
    Ok(process)
}

/// The process can no longer be found.
pub(super) fn forget(process: &ProcessRef) {
    let Some(registry) = REGISTRY.get() else {
        return;
    };
    let mut table = registry.table.lock();
    let same = table
        .get(&process.mm)
        .is_some_and(|found| Arc::ptr_eq(found, process));
    let node = if same {
        table.remove_node(&process.mm)
    } else {
        None
    };
    drop(table);
    drop(node);
}

/// All processes, as they were at one moment. `EAGAIN` if they come faster than room is made.
pub(crate) fn all() -> Result<KVec<ProcessRef>> {
    let registry = get()?;
    for _ in 0..8 {
        let count = registry.table.lock().keys().count();
        let mut all = KVec::with_capacity(count, GFP_KERNEL)?;
        let table = registry.table.lock();
        // Nothing is allocated under the lock: new ones that do not fit make it another round.
        if table.keys().count() <= all.capacity() {
            for process in table.values() {
                all.push_within_capacity(process.clone())
                    .map_err(|_| ENOMEM)?;
            }
            return Ok(all);
        }
    }
    Err(EAGAIN)
}

/// The process of an address space. Legal in any context.
pub(crate) fn of_mm(mm: MmId) -> Option<ProcessRef> {
    REGISTRY.get()?.find(mm)
}

/// amdgpu takes memory of `mm` away: its queues leave the GPUs before this returns. `ESRCH` if the
/// address space has no process. May run under reclaim.
pub(crate) fn evict_mm(mm: MmId) -> Result {
    of_mm(mm).ok_or(ESRCH)?.evict()
}

/// amdgpu wants to move buffers of the process, and waits until its eviction fence is signalled:
/// that is left to a worker. `ESRCH` if there is no such process. Legal in any context.
pub(crate) fn schedule_eviction(mm: MmId, context: u16, fence: u64) -> Result {
    let process = of_mm(mm)
        .filter(|process| process.context == context)
        .ok_or(ESRCH)?;
    process.evictor.request(fence);
    Ok(())
}

/// Undoes [`evict_mm`].
pub(crate) fn restore_mm(mm: MmId) -> Result {
    of_mm(mm).ok_or(ESRCH)?.restore()
}

/// Calls `act` with the process and the device whose VM has this pasid. May sleep.
pub(crate) fn with_pasid<R>(
    pasid: Pasid,
    act: impl FnOnce(&Process, &Arc<ProcessDevice>) -> R,
) -> Option<R> {
    let process = {
        let table = REGISTRY.get()?.table.lock();
        let mut all = table.values();
        all.find(|process| process.device_with(pasid).is_some())
            .cloned()?
    };
    let device = process.device_with(pasid)?;
    Some(act(&process, device))
}
