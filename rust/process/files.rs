// SPDX-License-Identifier: GPL-2.0-only

//! A process in sysfs: `/sys/devices/virtual/kfd/kfd/proc/<pid>`, user ABI that monitors read.
//!
//! One [`ProcessFiles`] for each process, owned by it. Names, modes and formats are the C driver's.
//! A file holds what it needs to answer, so a reader takes none of the process's outer locks. A
//! secondary process is a directory of its primary one's.
//!
//! Making and taking away directories of sysfs costs more than all else that opening /dev/kfd or
//! CREATE_QUEUE does, so a worker does it a few milliseconds later ([`DELAY`]): a queue that is
//! gone by then is never shown. Only the end of a process takes its files away at once.
//!
//! Two processes may have one pid: after execve the program before lives on in a child that has its
//! file, or its address space. The newest has the name, and the others are not shown, nor are
//! contexts beside them: what these have in debugfs would keep the name.
//!
//! `counters_<gpu_id>` is there only where processes have shared virtual memory (SVM), whose faults
//! and migrations it counts.

use super::{
    debug::Pasids,
    devices::Devices,
    registry,
    ProcessDevice,
    PRIMARY_CONTEXT, //
};
use crate::{
    ids::{
        QueueId,
        Serial, //
    },
    linux::{
        kobject::{
            self,
            Directory,
            Output,
            Show, //
        },
        task::PresentMemory,
        workqueue::flush_delayed, //
    },
    svm::{
        self,
        Counters, //
    },
};
use core::fmt::Write;
use kernel::{
    device::Device,
    mm::Mm,
    new_delayed_work, new_mutex,
    prelude::*,
    rbtree::{
        CursorMut,
        RBTree, //
    },
    sync::{
        aref::ARef,
        global_lock,
        Arc,
        GlobalGuard,
        Mutex, //
    },
    task::Task,
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};

/// How long what has changed may not be seen in sysfs yet, but for the worker's own time.
const DELAY: Msecs = 4;

global_lock! {
    // SAFETY: `prepare` below runs before anything else in the module.
    unsafe(uninit) static ROOT: Mutex<Option<Root>> = None;
}

/// `proc`. Fields are dropped from top to bottom.
struct Root {
    directory: Directory<ProcessFile>,
    /// Whose directory has which name, until it is gone.
    names: RBTree<i32, Arc<ProcessFiles>>,
    /// Which contexts beside others have directories, until these are gone: each by the one beside
    /// which it is, and its own.
    contexts: RBTree<(Serial, Serial), Arc<ProcessFiles>>,
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn prepare() {
    // SAFETY: By this function's own contract.
    unsafe { ROOT.init() };
}

/// Publishes `proc` below the device, without processes.
pub(crate) fn init(device: &Device) -> Result {
    let directory = Directory::below_device(device, format_args!("proc"), kobject::Files::new())?;
    *ROOT.lock() = Some(Root {
        directory,
        names: RBTree::new(),
        contexts: RBTree::new(),
    });
    Ok(())
}

/// Retracts it.
pub(crate) fn exit() {
    let root = ROOT.lock().take();
    drop(root);
}

/// `SDMA_ACTIVITY_DIVISOR` (kfd_priv.h): copy engines count time at 100 MHz, the file in
/// microseconds.
const TICKS_PER_MICROSECOND: u64 = 100;

/// What a file shows.
enum ProcessFile {
    /// Always 0: a process has one for each VM.
    Pasid,
    Vram(Arc<ProcessDevice>),
    /// How long copy queues have been busy. They count in the process's memory.
    Sdma(Arc<ProcessDevice>, ARef<Mm>),
    Faults(Arc<Counters>),
    PageIn(Arc<Counters>),
    PageOut(Arc<Counters>),
    EvictedMs(Arc<ProcessDevice>),
    CuOccupancy(Arc<ProcessDevice>),
    QueueGpu(u32),
    QueueSize(Arc<ProcessDevice>, QueueId),
    QueueType(Arc<ProcessDevice>, QueueId),
}

impl Show for ProcessFile {
    fn show(&self, out: &mut Output<'_>) -> Result {
        let written = match self {
            Self::Pasid => writeln!(out, "0"),
            Self::Vram(device) => writeln!(out, "{}", device.vram_usage()),
            Self::Sdma(device, mm) => writeln!(out, "{}", sdma_microseconds(device, mm)?),
            Self::Faults(counters) => writeln!(out, "{}", counters.faults()),
            Self::PageIn(counters) => writeln!(out, "{}", counters.page_in()),
            Self::PageOut(counters) => writeln!(out, "{}", counters.page_out()),
            Self::EvictedMs(device) => writeln!(out, "{}", device.queues().evicted_ms()),
            Self::CuOccupancy(device) => {
                writeln!(out, "{}", device.queues().occupied_cus(&**device))
            }
            // The files of a queue end without a line feed.
            Self::QueueGpu(id) => write!(out, "{id}"),
            Self::QueueSize(device, id) => {
                write!(out, "{}", device.queues().facts_of(*id)?.ring_bytes)
            }
            Self::QueueType(device, id) => write!(out, "{}", device.queues().facts_of(*id)?.kind),
        };
        written.map_err(|_| EFBIG)
    }
}

/// The time that the process's copy queues on this GPU have been busy, those included that are
/// gone.
fn sdma_microseconds(device: &ProcessDevice, mm: &Mm) -> Result<u64> {
    let mut counters = device.queues().sdma_counters()?;
    // Of a process that is about to end nothing is there.
    let memory = PresentMemory::new(mm).ok();
    if let Some(memory) = &memory {
        for counter in counters.iter_mut() {
            counter.counted = memory.read(counter.address).unwrap_or(0);
        }
    }
    Ok(device.queues().sdma_total(&counters) / TICKS_PER_MICROSECOND)
}

/// Which queues a process has, and on which GPUs.
type QueueDevices = RBTree<QueueId, Arc<ProcessDevice>>;

/// Those that have directories.
type ShownQueues = RBTree<QueueId, (Arc<ProcessDevice>, Directory<ProcessFile>)>;

/// The files of a process. Fields are dropped from top to bottom: what lies in a directory first.
struct PublishedProcess {
    /// In debugfs. A process may be without.
    pasids: Option<Pasids>,
    queues: ShownQueues,
    queue_directory: Directory<ProcessFile>,
    process: Directory<ProcessFile>,
}

/// What of a process is shown.
enum Shown {
    NotYet,
    Yes(KBox<PublishedProcess>),
    /// It could not be, or the process has ended: it never is again.
    No,
}

/// The files of a process, and the work that makes them.
#[pin_data]
pub(crate) struct ProcessFiles {
    #[pin]
    work: DelayedWork<ProcessFiles>,
    devices: Devices,
    lead: ARef<Task>,
    /// The leader's pid at the beginning, which is the directory's name: it has another one when a
    /// thread of it has called execve.
    pid: i32,
    /// The order in which they began.
    serial: Serial,
    /// The address space. The leader may leave it for another program while others use it on.
    mm: ARef<Mm>,
    context: u16,
    /// Those of the process beside which this is another context.
    primary: Option<Arc<ProcessFiles>>,
    /// Who has it shows the process as it is now. Taken before `ROOT`, and not by who takes the
    /// files away.
    #[pin]
    settling: Mutex<()>,
    /// Changed with `ROOT` locked only: the worker is not the only one who settles.
    #[pin]
    shown: Mutex<Shown>,
}

/// The first of the contexts that are beside the process of that serial.
fn first_beside<V: Clone>(contexts: &RBTree<(Serial, Serial), V>, primary: Serial) -> Option<V> {
    // They began after it.
    let cursor = contexts.cursor_lower_bound(&(primary, primary))?;
    let ((beside, _), context) = cursor.current();
    (*beside == primary).then(|| context.clone())
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for ProcessFiles { self.work }
}

impl WorkItem for ProcessFiles {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.settle();
    }
}

impl ProcessFiles {
    /// None as yet, for a process on these devices.
    pub(super) fn new(
        devices: Devices,
        (lead, mm): (ARef<Task>, ARef<Mm>),
        context: u16,
        primary: Option<&Arc<ProcessFiles>>,
    ) -> Result<Arc<Self>> {
        let files = pin_init!(Self {
            work <- new_delayed_work!("amdkfd::ProcessFiles"),
            devices,
            pid: lead.pid(),
            serial: Serial::next(),
            lead,
            mm,
            context,
            primary: primary.cloned(),
            settling <- new_mutex!((), "amdkfd::ProcessFiles::settling"),
            shown <- new_mutex!(Shown::NotYet, "amdkfd::ProcessFiles"),
        });
        Arc::pin_init(files, GFP_KERNEL_ACCOUNT)
    }

    /// The process's devices, in topology order.
    #[inline]
    pub(super) fn devices(&self) -> &[Arc<ProcessDevice>] {
        &self.devices
    }

    /// The leader of the process's thread group.
    pub(super) fn lead(&self) -> &Task {
        &self.lead
    }

    /// The process's address space. It may have ended.
    pub(super) fn address_space(&self) -> &Mm {
        &self.mm
    }

    /// The process begins, or one of its queues has begun or ended: a worker will show it.
    pub(crate) fn changed(self: &Arc<Self>) {
        if let Some(queue) = registry::files_queue() {
            // If it is queued already, it will see this change too.
            // SAFETY: `retract` flushes it, before the process is gone.
            let _ = unsafe { queue.enqueue_delayed(self.clone(), msecs_to_jiffies(DELAY)) };
        }
    }

    /// Shows the process as it is now. A process works without that too.
    pub(crate) fn settle(self: &Arc<Self>) {
        if let Some(primary) = &self.primary {
            primary.settle();
        }
        // Two that settle do not show what was before last.
        let _turn = self.settling.lock();
        // `ROOT` is everybody's: nobody has it who waits for queues, which a GPU that does not obey
        // may keep locked. So they are asked before, and what is gone of them goes behind it.
        let queues = self.queues();
        let gone = {
            let mut root = self.lock_root();
            self.show_unless_shown(root.as_mut());
            match (&mut *self.shown.lock(), &queues) {
                (Shown::Yes(published), Ok(queues)) => published.take_gone(queues),
                _ => RBTree::new(),
            }
        };
        drop(gone);
        let root = ROOT.lock();
        if let Shown::Yes(published) = &mut *self.shown.lock() {
            if let Err(error) = queues.and_then(|queues| published.show_queues(&queues)) {
                let pid = self.pid;
                pr_warn!("process {pid}: a queue is not shown in sysfs: {error:?}\n");
            }
        }
        drop(root);
    }

    /// The queues that there are now.
    fn queues(&self) -> Result<QueueDevices> {
        let mut queues = RBTree::new();
        for device in self.devices.iter() {
            for id in device.queues().ids()? {
                queues.try_create_and_insert(id, device.clone(), GFP_KERNEL)?;
            }
        }
        Ok(queues)
    }

    /// Shows the process, without its queues, if it was not tried before.
    fn show_unless_shown(self: &Arc<Self>, root: Option<&mut Root>) {
        if matches!(*self.shown.lock(), Shown::NotYet) {
            let made = self.make_known(root);
            *self.shown.lock() = made.map_or_else(
                |error| {
                    let pid = self.pid;
                    // Beside a process that is shown no more it cannot be.
                    if error != ESRCH {
                        pr_warn!("process {pid} is not shown in sysfs: {error:?}\n");
                    }
                    Shown::No
                },
                Shown::Yes,
            );
        }
    }

    /// Locks `proc`. A process before of the same pid is shown no more then; after a later one this
    /// one never is.
    fn lock_root(&self) -> GlobalGuard<ROOT> {
        loop {
            let root = ROOT.lock();
            if self.primary.is_some() || !matches!(*self.shown.lock(), Shown::NotYet) {
                return root;
            }
            let named = root.as_ref().and_then(|root| root.names.get(&self.pid));
            let Some(before) = named.cloned() else {
                return root;
            };
            if before.serial > self.serial {
                *self.shown.lock() = Shown::No;
                return root;
            }
            drop(root);
            if !before.hide() {
                // TIMEOUT: none. Who takes it away waits for readers, each of which is bounded.
                fsleep(Delta::from_millis(1));
            }
        }
    }

    /// Takes them away for good, and waits for readers. Another process may be shown by its name
    /// from here on. False: there is nothing, or somebody else is taking it away.
    pub(super) fn hide(&self) -> bool {
        let root = ROOT.lock();
        let shown = core::mem::replace(&mut *self.shown.lock(), Shown::No);
        drop(root);
        let Shown::Yes(published) = shown else {
            return false;
        };
        self.hide_contexts();
        // Not under the lock: a reader may take its time, and is nobody else's.
        drop(published);
        let mut root = ROOT.lock();
        let (name, context) = match (root.as_mut(), &self.primary) {
            (Some(root), None) => (root.names.remove_node(&self.pid), None),
            (Some(root), Some(primary)) => {
                let name = (primary.serial, self.serial);
                (None, root.contexts.remove_node(&name))
            }
            (None, _) => (None, None),
        };
        drop(root);
        drop((name, context));
        true
    }

    /// Takes away those of the contexts beside it. No others come: it is shown no more.
    fn hide_contexts(&self) {
        if self.primary.is_some() {
            // A context has none.
            return;
        }
        loop {
            let root = ROOT.lock();
            let context = root
                .as_ref()
                .and_then(|root| first_beside(&root.contexts, self.serial));
            drop(root);
            match context {
                None => return,
                Some(context) if context.hide() => (),
                // TIMEOUT: none, as in `lock_root`.
                Some(_) => fsleep(Delta::from_millis(1)),
            }
        }
    }

    /// The same at the end of the process: no work of theirs is left.
    pub(super) fn retract(&self) {
        self.hide();
        flush_delayed(&self.work);
    }

    /// Makes the directory of the process, without its queues. A primary one's has a name that
    /// nobody else has then.
    fn make_known(self: &Arc<Self>, root: Option<&mut Root>) -> Result<KBox<PublishedProcess>> {
        let root = root.ok_or(ENODEV)?;
        let published = self.make(&root.directory)?;
        if let Some(primary) = &self.primary {
            let name = (primary.serial, self.serial);
            root.contexts
                .try_create_and_insert(name, self.clone(), GFP_KERNEL)?;
        } else {
            root.names
                .try_create_and_insert(self.pid, self.clone(), GFP_KERNEL)?;
        }
        Ok(published)
    }

    fn make(&self, root: &Directory<ProcessFile>) -> Result<KBox<PublishedProcess>> {
        let (directory, pasids) = match &self.primary {
            None => {
                let pid = self.pid;
                let directory = root.own_child(format_args!("{pid}"), self.top()?)?;
                let pasids = Pasids::new(format_args!("{pid}"), None, &self.devices);
                (directory, pasids.ok())
            }
            Some(primary) => match &*primary.shown.lock() {
                Shown::Yes(parent) => {
                    let files = self.top()?;
                    let context = self.context;
                    let directory = &parent.process;
                    let directory =
                        directory.own_child(format_args!("context_{context}"), files)?;
                    let pasids = parent.pasids.as_ref().and_then(|beside| {
                        Pasids::new(
                            format_args!("context_{context}"),
                            Some(beside),
                            &self.devices,
                        )
                        .ok()
                    });
                    (directory, pasids)
                }
                Shown::NotYet | Shown::No => return Err(ESRCH),
            },
        };
        let published = PublishedProcess::new(directory, pasids, &self.devices)?;
        Ok(KBox::new(published, GFP_KERNEL)?)
    }

    /// The files in it.
    fn top(&self) -> Result<kobject::Files<ProcessFile>> {
        let mut files = kobject::Files::new();
        files.add(c"pasid", ProcessFile::Pasid)?;
        for device in self.devices.iter() {
            let gpu = device.gpu_id().raw();
            let vram = ProcessFile::Vram(device.clone());
            files.add_named(format_args!("vram_{gpu}"), vram)?;
            let sdma = ProcessFile::Sdma(device.clone(), self.mm.clone());
            files.add_named(format_args!("sdma_{gpu}"), sdma)?;
        }
        Ok(files)
    }
}

impl PublishedProcess {
    fn new(
        mut directory: Directory<ProcessFile>,
        pasids: Option<Pasids>,
        devices: &[Arc<ProcessDevice>],
    ) -> Result<Self> {
        for device in devices {
            let mut files = kobject::Files::new();
            files.add(c"evicted_ms", ProcessFile::EvictedMs(device.clone()))?;
            files.add(c"cu_occupancy", ProcessFile::CuOccupancy(device.clone()))?;
            directory.child(format_args!("stats_{}", device.gpu_id().raw()), files)?;
            if svm::is_enabled() && svm::is_supported(&**device.node().kgd()) {
                let (mut files, counters) = (kobject::Files::new(), device.shared_counters());
                files.add(c"faults", ProcessFile::Faults(counters.clone()))?;
                files.add(c"page_in", ProcessFile::PageIn(counters.clone()))?;
                files.add(c"page_out", ProcessFile::PageOut(counters.clone()))?;
                directory.child(format_args!("counters_{}", device.gpu_id().raw()), files)?;
            }
        }
        let queue_directory = directory.own_child(format_args!("queues"), kobject::Files::new())?;
        Ok(Self {
            pasids,
            queues: RBTree::new(),
            queue_directory,
            process: directory,
        })
    }

    /// Takes those away that are not among the queues that there are. Dropping them waits for
    /// readers, who may wait for queues.
    fn take_gone(&mut self, present: &QueueDevices) -> ShownQueues {
        let mut all = RBTree::new();
        let mut cursor = self.queues.cursor_front_mut();
        while let Some(at) = cursor {
            let (id, (device, _)) = at.current();
            let same = |now: &Arc<ProcessDevice>| Arc::ptr_eq(now, device);
            cursor = if present.get(id).is_some_and(same) {
                CursorMut::move_next(at)
            } else {
                let (next, gone) = at.remove_current();
                all.insert(gone);
                next
            };
        }
        all
    }

    /// Shows those of these queues that are not shown.
    fn show_queues(&mut self, present: &QueueDevices) -> Result {
        for (id, device) in present.iter() {
            if self.queues.get(id).is_none() {
                let directory = self.queue(device, *id)?;
                let shown = (device.clone(), directory);
                self.queues.try_create_and_insert(*id, shown, GFP_KERNEL)?;
            }
        }
        Ok(())
    }

    fn queue(&self, device: &Arc<ProcessDevice>, id: QueueId) -> Result<Directory<ProcessFile>> {
        let mut files = kobject::Files::new();
        files.add(c"gpuid", ProcessFile::QueueGpu(device.gpu_id().raw()))?;
        files.add(c"size", ProcessFile::QueueSize(device.clone(), id))?;
        files.add(c"type", ProcessFile::QueueType(device.clone(), id))?;
        let name = id.raw();
        self.queue_directory
            .own_child(format_args!("{name}"), files)
    }
}

const _: () = assert!(PRIMARY_CONTEXT == u16::MAX);

#[kernel::macros::kunit_tests(amdkfd_process_files)]
mod tests {
    use super::*;
    use crate::{
        gpu::{
            gate::Gate,
            Gpu,
            NoSink,
            Node, //
        },
        ids::GpuId,
        kgd::fake::Fake,
        linux::{
            test_space,
            users::user_of,
            workqueue::OwnedQueue, //
        },
    };

    #[test]
    fn queues_that_are_locked_keep_only_their_own_process() {
        const STEPS: u32 = 100;
        test_space::attach();
        let gpu = Gpu::new(Fake::new().unwrap(), Gate::new().unwrap()).unwrap();
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let node = Node::new(gpu, 0, GpuId::new(1).unwrap(), sink).unwrap();
        let devices = Devices::choose(&[node], user_of(1)).unwrap();
        let current = kernel::current!();
        let space: &Mm = current.mm().unwrap();
        let place = (ARef::from(current.group_leader()), ARef::from(space));
        let files = ProcessFiles::new(devices, place, PRIMARY_CONTEXT, None).unwrap();
        let (device, settled) = (files.devices()[0].clone(), files.clone());
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let free = device.queues().while_locked(|| {
            queue
                .try_spawn(GFP_KERNEL, move || settled.settle())
                .unwrap();
            fsleep(Delta::from_millis(50));
            // Who shows others has it for moments.
            (0..STEPS).any(|_| {
                fsleep(Delta::from_millis(1));
                ROOT.try_lock().is_some()
            })
        });
        drop(queue);
        // It was shown only where there is a `proc`.
        let _ = files.hide();
        assert!(free);
    }
}
