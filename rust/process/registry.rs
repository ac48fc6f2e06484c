// SPDX-License-Identifier: GPL-2.0-only

//! All processes, by address space, and what they share. One for the module.
//!
//! The table is under an interrupt-safe spinlock, because an eviction fence asks for a process with
//! interrupts off and reclaim asks for one too. Nothing is allocated under it: the node of a new
//! process is made before. Making a process is serialised by `creation`, which is held across
//! allocations and which nobody takes that reclaim could wait for. The lock of the address space
//! (mmap_lock), which a new process needs, is taken before: its holder may be waiting for a
//! program. Of what registering the notifier takes, `i_mmap` of the files that the opener maps, the
//! same is true; it is taken within, as by any first notifier of an address space.

use super::{
    debugger,
    ends::Ends,
    pasids::Pasids,
    power,
    turns::Turns,
    MmId,
    Process,
    ProcessDevice,
    ProcessName,
    ProcessRef,
    PRIMARY_CONTEXT, //
};
use crate::{
    gpu::{
        gate,
        Node, //
    },
    ids::Pasid,
    kgd::gpu_warn,
    linux::{
        mmu_notifier,
        module::Global,
        spinlock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
        task::answerable_user,
        users::Users,
        workqueue::OwnedQueue, //
    },
    smi::Trigger,
    svm::{
        self,
        places::Places,
        Fault, //
    },
};
use core::ops::RangeInclusive;
use kernel::{
    mm::MmWithUser,
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
    task::Task,
    time::Delta,
};

static REGISTRY: Global<Registry> = Global::new();

/// Contexts of an address space beside its primary process. Each costs the kernel memory and
/// directories in sysfs, and the others a look under the table's lock, interrupts off, when one
/// more is made.
const MAX_CONTEXTS: u16 = 256;

/// How long the others wait for a process whose buffers are brought back. It takes some 0.1 s for
/// a gigabyte.
const RESTORE_LIMIT: Delta = Delta::from_millis(500);

/// The processes of the module.
#[pin_data]
pub(super) struct Registry {
    /// The module, which each process keeps loaded.
    module: &'static ThisModule,
    #[pin]
    table: IrqSpinLock<RBTree<ProcessName, ProcessRef>>,
    /// Whose VM has which pasid.
    #[pin]
    pasids: Pasids,
    #[pin]
    creation: Mutex<()>,
    /// One at a time puts all processes to sleep, or wakes them (`power.rs`).
    #[pin]
    pub(super) power: Mutex<()>,
    /// Where exceptions are told. It writes into memory of processes, which may take a while:
    /// nothing else waits for it.
    exceptions: OwnedQueue,
    /// Where a process's memory is written while somebody waits for that: one item for each process
    /// at most.
    errands: OwnedQueue,
    /// Where debuggers' files are written to, which may take as long as their readers like.
    notices: OwnedQueue,
    outboxes: Arc<Users<()>>,
    /// Where processes are taken off the GPUs for others' sake: amdgpu wants their buffers.
    evictions: OwnedQueue,
    /// Where is done what interrupts ask for: memory faults, and events that are looked for.
    interrupts: OwnedQueue,
    /// Where processes are dropped. The end of one takes as long as its user likes, so nobody else
    /// waits for work that is behind it. Declared behind those whose work lets processes go.
    teardown: OwnedQueue,
    ends: Arc<Ends>,
    /// Where processes are shown in sysfs. Declared behind `teardown`, whose work waits for it.
    files: OwnedQueue,
    /// Where evicted processes are restored. Declared behind `teardown`, whose work waits for it.
    restoring: OwnedQueue,
    /// Whose buffers are brought back.
    #[pin]
    restore_turns: Turns,
    /// Where shared virtual memory is put right that the system has changed.
    pages: OwnedQueue,
    /// Who has how many workers there.
    places: Places,
    /// Where blocks of VRAM are emptied and freed: amdgpu waits for that, in whoever needs their
    /// room. Declared behind `teardown`, whose work lets them go.
    blocks: OwnedQueue,
}

/// Calls `act`, with nothing locked, with what has these names, one after the other; what comes or
/// goes meanwhile may be among it or not.
fn each_between<V: Clone>(
    table: &IrqSpinLock<RBTree<ProcessName, V>>,
    names: RangeInclusive<ProcessName>,
    mut act: impl FnMut(&V),
) {
    let (mut from, last) = names.into_inner();
    loop {
        let next = {
            let table = table.lock();
            let cursor = table.cursor_lower_bound(&from);
            cursor.and_then(|cursor| {
                let (name, found) = cursor.current();
                (*name <= last).then(|| (*name, found.clone()))
            })
        };
        let Some(((mm, context), found)) = next else {
            return;
        };
        act(&found);
        if (mm, context) >= last {
            return;
        }
        from = match context.checked_add(1) {
            Some(context) => (mm, context),
            None => (MmId(mm.0 + 1), 0),
        };
    }
}

impl Registry {
    pub(super) fn new(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            module,
            table <- new_irq_spinlock!(RBTree::new(), "amdkfd::Registry::table"),
            pasids <- Pasids::new(),
            creation <- new_mutex!((), "amdkfd::Registry::creation"),
            power <- new_mutex!((), "amdkfd::Registry::power"),
            exceptions: OwnedQueue::unbound(c"amdkfd_exceptions")?,
            errands: OwnedQueue::unbound(c"amdkfd_errands")?,
            notices: OwnedQueue::unbound(c"amdkfd_notices")?,
            outboxes: debugger::outboxes()?,
            evictions: OwnedQueue::unbound(c"amdkfd_evict")?,
            interrupts: OwnedQueue::unbound(c"amdkfd_interrupts")?,
            teardown: OwnedQueue::unbound(c"amdkfd_teardown")?,
            ends: Ends::new()?,
            files: OwnedQueue::unbound(c"amdkfd_files")?,
            restoring: OwnedQueue::unbound_freezable(c"amdkfd_restore")?,
            restore_turns <- Turns::new(RESTORE_LIMIT),
            pages: OwnedQueue::unbound_freezable(c"amdkfd_svm")?,
            places: Places::new()?,
            blocks: OwnedQueue::unbound(c"amdkfd_blocks")?,
        })
    }

    /// The module.
    pub(super) fn module(&self) -> &'static ThisModule {
        self.module
    }

    /// Whose VM has which pasid.
    pub(super) fn pasids(&self) -> &Pasids {
        &self.pasids
    }

    /// Where processes are dropped.
    pub(super) fn teardown(&'static self) -> &'static OwnedQueue {
        &self.teardown
    }

    /// Where processes are taken off the GPUs because amdgpu wants their buffers.
    pub(super) fn evictions(&self) -> &OwnedQueue {
        &self.evictions
    }

    /// The ends of all processes.
    pub(super) fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// Where evicted processes are restored: not while the machine goes to sleep, for which their
    /// buffers leave VRAM.
    pub(super) fn restoring(&self) -> &OwnedQueue {
        &self.restoring
    }

    /// Whose buffers are brought back.
    pub(super) fn restore_turns(&self) -> &Turns {
        &self.restore_turns
    }

    /// Where a process's memory is written while somebody waits for that.
    pub(super) fn errands(&self) -> &OwnedQueue {
        &self.errands
    }

    /// Where debuggers' files are written to.
    pub(super) fn notices(&self) -> &OwnedQueue {
        &self.notices
    }

    /// Who has how many outboxes, from which debuggers are told.
    pub(super) fn outboxes(&self) -> &Arc<Users<()>> {
        &self.outboxes
    }

    /// Where shared virtual memory is put right: not while the machine goes to sleep.
    pub(super) fn pages(&'static self) -> &'static OwnedQueue {
        &self.pages
    }

    /// Who has how many workers there.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Where blocks of VRAM are emptied and freed, also while the machine goes to sleep.
    pub(super) fn blocks(&'static self) -> &'static OwnedQueue {
        &self.blocks
    }

    /// The processes one after the other; one that comes or goes meanwhile may be among them or
    /// not.
    pub(super) fn each(&self, act: impl FnMut(&ProcessRef)) {
        let all = (MmId(0), 0)..=(MmId(usize::MAX), u16::MAX);
        each_between(&self.table, all, act);
    }

    /// Waits until those are made, or not, that are being made.
    pub(super) fn settle_creation(&self) {
        drop(self.creation.lock());
    }

    /// Calls `act` when no process is on its way into the table: who comes later sees what it did.
    pub(super) fn between(&self, act: impl FnOnce()) {
        let _table = self.table.lock();
        act();
    }

    fn find(&self, mm: MmId) -> Option<ProcessRef> {
        self.find_context(mm, PRIMARY_CONTEXT)
    }

    fn find_context(&self, mm: MmId, context: u16) -> Option<ProcessRef> {
        self.table.lock().get(&(mm, context)).cloned()
    }

    /// The lowest number that no context of the address space has. `ENOSPC`: it has as many as may
    /// be.
    fn free_context(&self, mm: MmId) -> Result<u16> {
        let table = self.table.lock();
        let taken = |context: &u16| table.get(&(mm, *context)).is_some();
        (0..MAX_CONTEXTS)
            .find(|context| !taken(context))
            .ok_or(ENOSPC)
    }

    /// The process of a task that runs in `mm`, made unless somebody else is faster. Apart from
    /// what a process does that has one, and does often.
    #[cold]
    fn make(&self, lead: &Task, mm: &MmWithUser) -> Result<ProcessRef> {
        let id = MmId::new(mm.as_raw());
        // What an ended process still holds is given back before the next one asks for more.
        self.ends.settle(&answerable_user(lead))?;
        // First: its holder may be waiting for a program, and `creation` is everybody's.
        let space = mmu_notifier::LockedSpace::new(mm)?;
        let creation = self.creation.lock();
        if let Some(process) = self.find(id) {
            return Ok(process);
        }
        let process = Process::new(lead, mm, None)?;
        self.insert(&process)?;
        // SAFETY: The process is new.
        let watched = unsafe { mmu_notifier::watch(&space, process.clone()) };
        if let Err(error) = watched {
            forget(&process);
            return Err(error);
        }
        process.set_watched();
        process.files().changed();
        drop(creation);
        Ok(process)
    }

    /// Makes a process known, unless all are asleep (`EAGAIN`). The caller holds `creation`.
    fn insert(&self, process: &ProcessRef) -> Result {
        let name = (process.mm, process.context);
        let node = RBTreeNode::new(name, process.clone(), GFP_KERNEL)?;
        let mut table = self.table.lock();
        if power::is_suspended() {
            drop(table);
            return Err(EAGAIN);
        }
        let before = table.insert(node);
        drop(table);
        // Creation is serialised, so nothing was there; if it was, it goes outside the lock.
        drop(before);
        Ok(())
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
    /// into this module any more.
    pub(crate) unsafe fn new(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: By this function's own contract.
        unsafe { REGISTRY.init(Registry::new(module)) }?;
        Ok(Self(()))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        mmu_notifier::synchronize();
        // A queue that goes waits for its work, but not for work whose time has not come.
        svm::block::settle();
        // SAFETY: By the contract of `new`. Dropping the queue runs what is left on it.
        unsafe { REGISTRY.exit() };
    }
}

/// Where processes are shown in sysfs; it is finished before the module goes.
pub(super) fn files_queue() -> Option<&'static OwnedQueue> {
    Some(&REGISTRY.get()?.files)
}

/// Where is done what interrupts ask for and must not do themselves; it is finished before the
/// module goes.
pub(crate) fn interrupt_queue() -> Option<&'static OwnedQueue> {
    Some(&REGISTRY.get()?.interrupts)
}

/// Where processes are taken off the GPUs, and orders given again that amdgpu kept from them; it is
/// finished before the module goes.
pub(crate) fn eviction_queue() -> Option<&'static OwnedQueue> {
    Some(&REGISTRY.get()?.evictions)
}

/// Where exceptions are reported; it is finished before the module goes.
pub(crate) fn exception_queue() -> Option<&'static OwnedQueue> {
    Some(&REGISTRY.get()?.exceptions)
}

/// The current task's process, made if there is none. `EINVAL` if the task has no address space, or
/// there is no GPU; `EBUSY` if ended processes of its user still hold what they had.
pub(crate) fn open() -> Result<ProcessRef> {
    let current = kernel::current!();
    let mm = current.mm().ok_or(EINVAL)?;
    open_for(current.group_leader(), mm)
}

/// The process of a task that the current one traces, which runs in `mm`; made if there is none.
/// `EINVAL`: the leader of its thread group does not run there, or there is no GPU.
///
/// A process that is made so has the GPUs that the current task may use: the kernel does not say
/// what the device cgroup of another task allows.
pub(super) fn open_traced(task: &Task, mm: &MmWithUser) -> Result<ProcessRef> {
    if gate::is_closed() {
        return Err(EAGAIN);
    }
    open_for(&*debugger::leader_in(task, MmId::new(mm.as_raw()))?, mm)
}

#[inline]
fn open_for(lead: &Task, mm: &MmWithUser) -> Result<ProcessRef> {
    let registry = get()?;
    if power::is_suspended() {
        return Err(EAGAIN);
    }
    // One that nobody watches yet may be forgotten again; its maker holds `creation` until then.
    let known = registry.find(MmId::new(mm.as_raw()));
    match known.filter(|process| process.is_watched()) {
        Some(process) => Ok(process),
        None => registry.make(lead, mm),
    }
}

/// Another context of the current task's address space, beside `primary`, which is of the same. It
/// is its own process in all but that, and lasts as long as the file that it is made for.
pub(crate) fn open_context(primary: &ProcessRef) -> Result<ProcessRef> {
    let registry = get()?;
    // The caller runs in its address space, so the primary process has not ended, and finds this
    // one when it does. Nobody waits for a GPU with this lock: all who open /dev/kfd wait for it.
    let _creation = registry.creation.lock();
    let context = registry.free_context(primary.mm)?;
    let current = kernel::current!();
    let mm = current.mm().ok_or(EINVAL)?;
    let lead = current.group_leader();
    let process = Process::new(lead, mm, Some((primary.clone(), context)))?;
    registry.insert(&process)?;
    process.files().changed();
    Ok(process)
}

/// From now on performance counters count the queues that there are on a node, or do not.
pub(crate) fn count_performance(node: &Node, count: bool) {
    let Some(registry) = REGISTRY.get() else {
        return;
    };
    registry.each(|process| {
        let Some(device) = process.device_of(node.id()) else {
            return;
        };
        if let Err(error) = device.queues().count_performance(count) {
            let (pid, name) = (process.lead().pid(), node.pci_name());
            gpu_warn!(
                name,
                "process {pid}: performance counters miss its queues: {error:?}\n"
            );
        }
    });
    node.notify_resets();
}

/// Calls `act` with the processes one after the other: see [`Registry::each`].
pub(crate) fn each(act: impl FnMut(&ProcessRef)) {
    if let Some(registry) = REGISTRY.get() {
        registry.each(act);
    }
}

/// The contexts of an address space that are there beside its primary process.
pub(super) fn contexts_of(mm: MmId, act: impl FnMut(&ProcessRef)) {
    let Some(registry) = REGISTRY.get() else {
        return;
    };
    // The address spaces of all others are not looked at.
    each_between(&registry.table, (mm, 0)..=(mm, PRIMARY_CONTEXT - 1), act);
}

/// The process can no longer be found.
pub(super) fn forget(process: &ProcessRef) {
    let Some(registry) = REGISTRY.get() else {
        return;
    };
    let mut table = registry.table.lock();
    let name = (process.mm, process.context);
    let same = table
        .get(&name)
        .is_some_and(|found| ProcessRef::ptr_eq(found, process));
    let node = if same { table.remove_node(&name) } else { None };
    drop(table);
    drop(node);
}

/// The primary process of an address space. Legal in any context.
pub(crate) fn of_mm(mm: MmId) -> Option<ProcessRef> {
    REGISTRY.get()?.find(mm)
}

/// The process of that context. Legal in any context.
pub(super) fn of_context(mm: MmId, context: u16) -> Option<ProcessRef> {
    REGISTRY.get()?.find_context(mm, context)
}

/// amdgpu takes memory of `mm` away: its queues leave the GPUs before this returns, be it in a
/// reset of a GPU that does not obey ([`Process::await_eviction`]). `ESRCH` if the address space
/// has no process. May run under reclaim.
///
/// Its primary process is meant: others have no memory of the address space's (`USERPTR`).
pub(crate) fn evict_mm(mm: MmId, trigger: Trigger) -> Result {
    let process = of_mm(mm).ok_or(ESRCH)?;
    let result = process.evict(trigger);
    process.await_eviction();
    result
}

/// Somebody wants a job in a VM of the process's, and pages that are to be gone are in his way:
/// they are taken out now.
pub(crate) fn hurry(mm: MmId) {
    if let Some(svm) = of_mm(mm).as_ref().and_then(|process| process.svm()) {
        svm.hurry_owed();
    }
}

/// amdgpu finds no room to undo that, and will try again.
pub(crate) fn restore_postponed(mm: MmId) {
    if let Some(process) = of_mm(mm) {
        process.notify_restore(true);
    }
}

/// amdgpu wants to move buffers of the process, and waits until its eviction fence is signalled:
/// that is left to a worker. `ESRCH`: nothing of the process is on a GPU, nor ever will be, and the
/// buffers may go. Legal in any context.
///
/// A process that ends signals the fence when its queues are off, and not before.
pub(crate) fn schedule_eviction(mm: MmId, context: u16, fence: u64) -> Result {
    let process = of_context(mm, context).ok_or(ESRCH)?;
    if process.is_off() {
        return Err(ESRCH);
    }
    process.evictor().ok_or(ESRCH)?.request(fence);
    Ok(())
}

/// Undoes [`evict_mm`]: nothing is left to undo where the process is gone.
pub(crate) fn restore_mm(mm: MmId) -> Result {
    of_mm(mm).map_or(Ok(()), |process| process.restore())
}

/// Calls `act` with the process and the device whose VM has this pasid. May sleep.
pub(crate) fn with_pasid<R>(
    pasid: Pasid,
    act: impl FnOnce(&Process, &Arc<ProcessDevice>) -> R,
) -> Option<R> {
    let registry = REGISTRY.get()?;
    let (mm, context) = registry.pasids.find(pasid)?;
    let process = registry.find_context(mm, context)?;
    let device = process.device_with(pasid)?;
    Some(act(&process, device))
}

/// A GPU misses a page of the process whose VM has this pasid, and tries again until it has it.
/// After an error it must not. May sleep.
pub(crate) fn page_fault(pasid: u32, fault: Fault) -> Result {
    let serve = |process: &Process, device: &Arc<ProcessDevice>| {
        // A GPU does not retry what is beyond its page tables. If one did, amdgpu would write an
        // entry to make it cease, without asking whether there is one.
        if fault.page >= device.node().facts().max_pfn {
            return Ok(());
        }
        let svm = process.svm().ok_or(EFAULT)?;
        svm.fault(process.place_of(device).ok_or(EFAULT)?, fault)
    };
    // Without a process it is nobody's.
    match Pasid::new(pasid).and_then(|pasid| with_pasid(pasid, serve)) {
        Some(result) => result,
        None if svm::is_enabled() => Ok(()),
        None => Err(EFAULT),
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_registry)]
mod tests {
    use super::*;
    use core::cell::Cell;

    struct Counted(Arc<Cell<u32>>, ProcessName);

    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.0.set(self.0.get() + 1);
            Self(self.0.clone(), self.1)
        }
    }

    #[test]
    fn only_what_is_asked_for_is_looked_at() {
        let looks = Arc::new(Cell::new(0), GFP_KERNEL).unwrap();
        let mut tree = RBTree::new();
        for mm in [MmId(1), MmId(2), MmId(3), MmId(usize::MAX)] {
            for context in [0, 1, 7, PRIMARY_CONTEXT] {
                let (name, looks) = ((mm, context), looks.clone());
                let node = RBTreeNode::new(name, Counted(looks, name), GFP_KERNEL).unwrap();
                tree.insert(node);
            }
        }
        let init = new_irq_spinlock!(tree, "amdkfd::test");
        let table = KBox::pin_init(init, GFP_KERNEL).unwrap();
        let mut found = KVec::new();
        let names = (MmId(2), 0)..=(MmId(2), PRIMARY_CONTEXT - 1);
        each_between(&table, names, |it| {
            found.push(it.1, GFP_KERNEL).unwrap();
        });
        let (mm, looked) = (MmId(2), looks.replace(0));
        assert_eq!((&found[..], looked), (&[(mm, 0), (mm, 1), (mm, 7)][..], 3));
        let all = (MmId(0), 0)..=(MmId(usize::MAX - 1), u16::MAX);
        each_between(&table, all, |_| ());
        assert_eq!(looks.get(), 12);
    }
}
