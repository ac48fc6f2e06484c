// SPDX-License-Identifier: GPL-2.0-only

//! SMI events (system management interface): a process can read what happens to a GPU and its
//! processes.
//!
//! SMI_EVENTS opens a file for one GPU. Writing a mask to it selects events, one bit each; reading
//! it returns lines of text in the formats of `<linux/kfd_ioctl.h>` (`KFD_EVENT_FMT_*`). A file
//! keeps a limited number of bytes: while it is full, events are dropped.
//!
//! Events of a process go to files that this process opened, and to those that were opened with
//! CAP_SYS_ADMIN. Events of the GPU go to all. A file may outlive its process, or the program that
//! opened it: it is told of that one's address space, and not of whoever has the pid next.
//!
//! One [`Listeners`] for each node; a file owns its [`Subscription`]. Telling takes two locks, the
//! second for each listener, and is legal wherever a spinlock is; so the first is let go after each
//! [`BATCH`], and users have only so many files. Who polls a file is woken by a worker: any number
//! may, and it takes as long as they are many.

mod inbox;

use crate::{
    ids::Serial,
    kgd::{
        TaskName,
        VmTask, //
    },
    linux::{
        anon_file::{
            self,
            AnonFile,
            Operations, //
        },
        spinlock::{
            new_irq_spinlock,
            IrqSpinLock, //
        },
        task::{
            answerable_user,
            capable,
            Capability, //
        },
        timekeeping::boot_nanoseconds,
        workqueue::OwnedQueue,
    },
    uapi, //
};
use core::fmt::{
    self,
    Write, //
};
use inbox::Inbox;
use kernel::{
    alloc::kvec::PushError,
    new_poll_condvar, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::PollCondVar,
        Arc,
        SetOnce, //
    },
    task::Kuid,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// `KFD_MAX_KFIFO_SIZE` (kfd_smi_events.c): bytes that a file keeps.
const ROOM: usize = 8192;

/// How many files of a user may listen to a node, unless it was privileged (CAP_SYS_ADMIN) when it
/// opened them: so no user takes the files from the others, and none from the monitors.
const MAX_OF_A_USER: usize = 64;

/// How many may of all such users: each takes memory, and is looked at when there is something to
/// tell.
const MAX_OF_ALL_USERS: usize = 1024;

/// How many listeners are looked at in one go, interrupts off.
const BATCH: usize = 16;

/// What a file does. Made before the module serves anybody.
static OPERATIONS: SetOnce<Operations<Subscription>> = SetOnce::new();

/// Makes this file usable. Once, before [`Listeners::open`].
pub(crate) fn prepare(module: &'static ThisModule) {
    OPERATIONS.populate(Operations::new(module));
}

/// Why queues leave the hardware: `enum KFD_QUEUE_EVICTION_TRIGGERS`, as amdgpu passes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger(u32);

impl Trigger {
    /// amdgpu wants to move buffers.
    pub(crate) const TTM: Self =
        Self(uapi::KFD_QUEUE_EVICTION_TRIGGERS_KFD_QUEUE_EVICTION_TRIGGER_TTM);
    /// The GPU goes to sleep.
    pub(crate) const SUSPEND: Self =
        Self(uapi::KFD_QUEUE_EVICTION_TRIGGERS_KFD_QUEUE_EVICTION_TRIGGER_SUSPEND);

    /// Pages of shared virtual memory are taken away.
    pub(crate) const SVM: Self =
        Self(uapi::KFD_QUEUE_EVICTION_TRIGGERS_KFD_QUEUE_EVICTION_TRIGGER_SVM);

    /// A checkpoint of the process is to be made.
    pub(crate) const CHECKPOINT: Self =
        Self(uapi::KFD_QUEUE_EVICTION_TRIGGERS_KFD_QUEUE_EVICTION_CRIU_CHECKPOINT);
    /// It is restored of one.
    pub(crate) const RESTORE: Self =
        Self(uapi::KFD_QUEUE_EVICTION_TRIGGERS_KFD_QUEUE_EVICTION_CRIU_RESTORE);

    /// As amdgpu says.
    pub(crate) const fn from_raw(trigger: u32) -> Self {
        Self(trigger)
    }
}

/// What there is to tell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SmiEvent<'a> {
    /// A memory access of a process's failed.
    VmFault { of: Serial, task: &'a VmTask },
    /// The GPU slows down for heat, for these reasons and for that many times so far.
    Throttle { reasons: u64, count: u64 },
    /// The n-th reset begins, and why; or it is over.
    Reset {
        over: bool,
        number: u32,
        cause: &'a str,
    },
    /// Queues of a process leave the GPU. `pid` is what its own pid namespace calls it, `of` what
    /// nobody else is ever called.
    Eviction {
        pid: i32,
        of: Serial,
        gpu: u32,
        trigger: Trigger,
    },
    /// They come back; or cannot yet.
    Restore {
        pid: i32,
        of: Serial,
        gpu: u32,
        postponed: bool,
    },
    /// A process got a VM on the GPU, or lost it.
    Process {
        ends: bool,
        of: Serial,
        task: &'a VmTask,
    },
    /// Something happened to a process's shared virtual memory.
    Memory {
        pid: i32,
        of: Serial,
        event: MemoryEvent,
    },
}

/// What happened to shared virtual memory. Pages are numbers; GPUs are ids, and 0 is the system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoryEvent {
    /// A GPU misses a page, and waits for it.
    FaultBegins { gpu: u32, page: u64, write: bool },
    /// It has it, or never will; whether pages were moved for it.
    FaultEnds { gpu: u32, page: u64, moved: bool },
    /// Pages begin to move.
    MigrationBegins {
        page: u64,
        count: u64,
        from: u32,
        to: u32,
        prefetch: u32,
        preferred: u32,
        trigger: u32,
    },
    /// They have moved, or (an errno) have not.
    MigrationEnds {
        page: u64,
        count: u64,
        from: u32,
        to: u32,
        trigger: u32,
        error: i32,
    },
    /// A GPU does not see pages any more.
    Unmapped {
        gpu: u32,
        page: u64,
        count: u64,
        trigger: u32,
    },
}

impl MemoryEvent {
    /// `enum kfd_smi_event`.
    const fn number(&self) -> u32 {
        match self {
            Self::FaultBegins { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_PAGE_FAULT_START,
            Self::FaultEnds { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_PAGE_FAULT_END,
            Self::MigrationBegins { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_MIGRATE_START,
            Self::MigrationEnds { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_MIGRATE_END,
            Self::Unmapped { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_UNMAP_FROM_GPU,
        }
    }

    /// `KFD_EVENT_FMT_*`, behind the process.
    fn write(&self, line: &mut Line) -> fmt::Result {
        match self {
            Self::FaultBegins { gpu, page, write } => {
                let access = if *write { 'W' } else { 'R' };
                write!(line, "@{page:x}({gpu:x}) {access}")
            }
            Self::FaultEnds { gpu, page, moved } => {
                let update = if *moved { 'M' } else { 'U' };
                write!(line, "@{page:x}({gpu:x}) {update}")
            }
            Self::MigrationBegins {
                page,
                count,
                from,
                to,
                prefetch,
                preferred,
                trigger,
            } => write!(
                line,
                "@{page:x}({count:x}) {from:x}->{to:x} {prefetch:x}:{preferred:x} {trigger}"
            ),
            Self::MigrationEnds {
                page,
                count,
                from,
                to,
                trigger,
                error,
            } => write!(
                line,
                "@{page:x}({count:x}) {from:x}->{to:x} {trigger} {error}"
            ),
            Self::Unmapped {
                gpu,
                page,
                count,
                trigger,
            } => write!(line, "@{page:x}({count:x}) {gpu:x} {trigger}"),
        }
    }
}

impl SmiEvent<'_> {
    /// `enum kfd_smi_event`.
    const fn number(&self) -> u32 {
        match self {
            Self::VmFault { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_VMFAULT,
            Self::Throttle { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_THERMAL_THROTTLE,
            Self::Reset { over: false, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_GPU_PRE_RESET,
            Self::Reset { over: true, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_GPU_POST_RESET,
            Self::Eviction { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_QUEUE_EVICTION,
            Self::Restore { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_QUEUE_RESTORE,
            Self::Process { ends: false, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_PROCESS_START,
            Self::Process { ends: true, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_PROCESS_END,
            Self::Memory { event, .. } => event.number(),
        }
    }

    /// The process that the event is about; `None`: it is about the GPU.
    const fn process(&self) -> Option<Serial> {
        match self {
            Self::Eviction { of, .. } | Self::Restore { of, .. } => Some(*of),
            Self::Memory { of, .. } => Some(*of),
            Self::VmFault { of, .. } | Self::Process { of, .. } => Some(*of),
            Self::Throttle { .. } | Self::Reset { .. } => None,
        }
    }

    /// It would name a task of which amdgpu knows nothing, as it had no memory for that: C does not
    /// tell such an event either.
    const fn names_nobody(&self) -> bool {
        match self {
            Self::VmFault { task, .. } | Self::Process { task, .. } => task.pid == 0,
            _ => false,
        }
    }

    /// The line that is read.
    fn line(&self) -> Line {
        let mut line = Line::default();
        // What does not fit is left out, as in C.
        let _ = self.write(&mut line);
        line
    }

    fn write(&self, line: &mut Line) -> fmt::Result {
        write!(line, "{:x} ", self.number())?;
        match self {
            Self::VmFault { task, .. } => {
                write!(line, "{:x}:", task.pid)?;
                line.push_name(&task.name);
            }
            Self::Throttle { reasons, count } => write!(line, "{reasons:x}:{count:x}")?,
            Self::Reset { number, cause, .. } => write!(line, "{number:x} {cause}")?,
            Self::Eviction {
                pid, gpu, trigger, ..
            } => {
                write!(line, "{} -{pid} {gpu:x} {}", boot_nanoseconds(), trigger.0)?;
            }
            Self::Restore {
                pid,
                gpu,
                postponed,
                ..
            } => {
                let mark = if *postponed { 'R' } else { '0' };
                write!(line, "{} -{pid} {gpu:x} {mark}", boot_nanoseconds())?;
            }
            Self::Process { task, .. } => {
                write!(line, "{:x} ", task.pid)?;
                line.push_name(&task.name);
            }
            Self::Memory { pid, event, .. } => {
                write!(line, "{} -{pid} ", boot_nanoseconds())?;
                event.write(line)?;
            }
        }
        line.write_str("\n")
    }
}

/// A line: `KFD_SMI_EVENT_MSG_SIZE` bytes, with the zero that C puts behind it.
struct Line {
    bytes: [u8; uapi::KFD_SMI_EVENT_MSG_SIZE as usize - 1],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; uapi::KFD_SMI_EVENT_MSG_SIZE as usize - 1],
            length: 0,
        }
    }
}

impl Line {
    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }

    fn push_name(&mut self, name: &TaskName) {
        let end = name.0.iter().position(|&byte| byte == 0);
        self.push(name.0.get(..end.unwrap_or(name.0.len())).unwrap_or(&[]));
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Somebody who wants to be told.
#[pin_data]
struct Listener {
    #[pin]
    inbox: IrqSpinLock<Inbox>,
    #[pin]
    arrived: PollCondVar,
    /// Wakes who waits for that.
    #[pin]
    waking: Work<Listener>,
    /// Bit n - 1: event n.
    wanted: Atomic<u64>,
    /// The process that opened it. No number of the system's would do, which may be another one's
    /// when its first owner has ended, and execve keeps.
    of: Serial,
    user: Kuid,
    privileged: bool,
}

impl_has_work! {
    impl HasWork<Self> for Listener { self.waking }
}

impl WorkItem for Listener {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.arrived.notify_all();
    }
}

impl Listener {
    /// For the current task, which is of that process. Wants nothing as yet.
    fn new(of: Serial) -> Result<Arc<Self>> {
        let inbox = Inbox {
            ring: KVec::from_elem(0, ROOM, GFP_KERNEL)?,
            first: 0,
            length: 0,
        };
        let listener = pin_init!(Self {
            inbox <- new_irq_spinlock!(inbox, "amdkfd::smi::Listener"),
            arrived <- new_poll_condvar!("amdkfd::smi::arrived"),
            waking <- new_work!("amdkfd::smi::Listener"),
            wanted: Atomic::new(0),
            of,
            user: answerable_user(kernel::current!()),
            privileged: capable(Capability::SysAdmin),
        });
        Arc::pin_init(listener, GFP_KERNEL)
    }

    fn wants(&self, event: &SmiEvent<'_>) -> bool {
        let may = match event.process() {
            Some(of) => of == self.of || self.privileged,
            None => true,
        };
        let wanted = self.wanted.load(Relaxed) >> (event.number() - 1) & 1 != 0;
        may && wanted && !event.names_nobody()
    }

    /// Leaves a line for its reader, whom a worker of `wakers` wakes.
    fn notify(self: &Arc<Self>, line: &Line, wakers: &OwnedQueue) {
        if self.inbox.lock().put(line.bytes()) {
            // If the worker is on its way already, who is woken finds this line too.
            let _ = wakers.enqueue(self.clone());
        } else {
            pr_debug!("a reader of SMI events is too slow: an event is lost\n");
        }
    }
}

/// Listeners at places that do not change. One that is gone leaves its place to the next.
struct ListenerList(KVec<Option<Arc<Listener>>>);

impl ListenerList {
    /// Whether one more may be added.
    fn may_add(&self, new: &Listener) -> bool {
        let unprivileged = || self.0.iter().flatten().filter(|known| !known.privileged);
        let of_its_user = unprivileged().filter(|known| known.user == new.user);
        let full =
            || of_its_user.count() >= MAX_OF_A_USER || unprivileged().count() >= MAX_OF_ALL_USERS;
        new.privileged || !full()
    }

    /// Adds one without allocating. It comes back if there is no room.
    fn put(&mut self, listener: Arc<Listener>) -> Result<(), Arc<Listener>> {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(listener);
            return Ok(());
        }
        match self.0.push_within_capacity(Some(listener)) {
            Ok(()) => Ok(()),
            Err(PushError(listener)) => listener.map_or(Ok(()), Err),
        }
    }

    /// Moves into a larger room. What is not needed comes back, to be freed outside the lock.
    fn grow(&mut self, mut larger: KVec<Option<Arc<Listener>>>) -> KVec<Option<Arc<Listener>>> {
        if larger.capacity() > self.0.capacity() {
            for listener in self.0.iter_mut() {
                // Cannot fail: there is more room than before.
                let _ = larger.push_within_capacity(listener.take());
            }
            core::mem::swap(&mut self.0, &mut larger);
        }
        larger
    }
}

/// The listeners to the events of one node.
#[pin_data]
pub(crate) struct Listeners {
    #[pin]
    list: IrqSpinLock<ListenerList>,
    /// How many there are, to be read without the lock.
    count: Atomic<usize>,
    resets: Atomic<u32>,
    /// Where readers are woken. It may let go of a listener last.
    wakers: OwnedQueue,
}

impl Listeners {
    /// None.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let listeners = try_pin_init!(Self {
            list <- new_irq_spinlock!(ListenerList(KVec::new()), "amdkfd::smi::Listeners"),
            count: Atomic::new(0),
            resets: Atomic::new(0),
            wakers: OwnedQueue::unbound(c"amdkfd_smi")?,
        });
        Arc::pin_init(listeners, GFP_KERNEL)
    }

    /// Tells all who want to know. Never sleeps.
    pub(crate) fn notify(&self, event: SmiEvent<'_>) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let line = event.line();
        let mut next = Some(0);
        while let Some(first) = next {
            next = self.notify_batch(first, &event, &line);
        }
    }

    /// Tells those at the [`BATCH`] places from `first` on. Returns the next place, if there is
    /// one.
    fn notify_batch(&self, first: usize, event: &SmiEvent<'_>, line: &Line) -> Option<usize> {
        let list = self.list.lock();
        let end = list.0.len().min(first + BATCH);
        for listener in list.0.get(first..end)?.iter().flatten() {
            if listener.wants(event) {
                listener.notify(line, &self.wakers);
            }
        }
        (end < list.0.len()).then_some(end)
    }

    /// Tells of a reset: that it begins, and why; or that it is over. They are counted.
    pub(crate) fn notify_reset(&self, over: bool, cause: &str) {
        if !over {
            self.resets.fetch_add(1, Relaxed);
        }
        let number = self.resets.load(Relaxed);
        self.notify(SmiEvent::Reset {
            over,
            number,
            cause,
        });
    }

    /// SMI_EVENTS: a file that tells the current task, which is of that process, of the node.
    /// `ENOSPC`: its user has [`MAX_OF_A_USER`], or all have [`MAX_OF_ALL_USERS`].
    pub(crate) fn open(self: &Arc<Self>, of: Serial) -> Result<i32> {
        let operations = OPERATIONS.as_ref().ok_or(ENODEV)?;
        let listener = Listener::new(of)?;
        self.add(listener.clone())?;
        let subscription = Subscription {
            listener,
            listeners: self.clone(),
        };
        anon_file::open(
            c"kfd_smi_ev",
            operations,
            Arc::new(subscription, GFP_KERNEL)?,
        )
    }

    fn add(&self, mut listener: Arc<Listener>) -> Result {
        loop {
            let mut list = self.list.lock();
            if !list.may_add(&listener) {
                return Err(ENOSPC);
            }
            match list.put(listener) {
                Ok(()) => {
                    let _: usize = self.count.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Err(back) => listener = back,
            }
            let capacity = list.0.capacity();
            drop(list);
            let larger = KVec::with_capacity((capacity * 2).max(4), GFP_KERNEL)?;
            let surplus = self.list.lock().grow(larger);
            drop(surplus);
        }
    }

    fn remove(&self, listener: &Arc<Listener>) {
        let mut list = self.list.lock();
        let is_it = |place: &&mut Option<Arc<Listener>>| {
            let known = place.as_ref();
            known.is_some_and(|other| Arc::ptr_eq(other, listener))
        };
        let gone = list.0.iter_mut().find(is_it).and_then(Option::take);
        drop(list);
        if gone.is_some() {
            let _: usize = self.count.fetch_sub(1, Relaxed);
        }
        // Its last owner may sleep.
        drop(gone);
    }
}

/// An open file: a listener, until it is closed.
struct Subscription {
    listener: Arc<Listener>,
    listeners: Arc<Listeners>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.listeners.remove(&self.listener);
    }
}

impl AnonFile for Subscription {
    fn read(&self, bytes: usize) -> Result<KVec<u8>> {
        let mut buffer = KVec::from_elem(0, bytes.min(ROOM), GFP_KERNEL)?;
        let count = self.listener.inbox.lock().take(&mut buffer);
        if count == 0 {
            return Err(EAGAIN);
        }
        buffer.truncate(count);
        Ok(buffer)
    }

    fn write(&self, word: u64) {
        self.listener.wanted.store(word, Relaxed);
    }

    fn waits_on(&self) -> &PollCondVar {
        &self.listener.arrived
    }

    fn is_readable(&self) -> bool {
        self.listener.inbox.lock().length != 0
    }
}

/// For tests: what a privileged reader that wants all events finds.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) struct TestReader(Arc<Listener>);

#[cfg(CONFIG_KUNIT = "y")]
impl TestReader {
    /// Whether these bytes, and no others, have come since the last call.
    pub(crate) fn has_read(&self, text: &[u8]) -> bool {
        let mut bytes = [0; 256];
        let count = self.0.inbox.lock().take(&mut bytes);
        bytes.get(..count) == Some(text)
    }
}

#[cfg(CONFIG_KUNIT = "y")]
impl Listeners {
    /// One more reader, who is never removed.
    pub(crate) fn read_all_events(&self) -> Result<TestReader> {
        let listener = Listener::new(Serial::next())?;
        listener.wanted.store(u64::MAX, Relaxed);
        self.add(listener.clone())?;
        Ok(TestReader(listener))
    }
}

mod tests;
