// SPDX-License-Identifier: GPL-2.0-only

//! SMI events (system management interface): a process can read what happens to a GPU and its
//! processes.
//!
//! SMI_EVENTS opens a file for one GPU. Writing a mask to it selects events, one bit each; reading
//! it returns lines of text in the formats of `<linux/kfd_ioctl.h>` (`KFD_EVENT_FMT_*`). A file
//! keeps a limited number of bytes: while it is full, events are dropped.
//!
//! Events of a process go to files that this process opened, and to those that were opened with
//! CAP_SYS_ADMIN. Events of the GPU go to all.
//!
//! One [`Listeners`] for each node; a file owns its [`Subscription`]. Telling takes two locks, the
//! second for each listener, and is legal wherever a spinlock is; so there are at most
//! [`MAX_LISTENERS`].

use crate::{
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
            capable,
            system_thread_group_id,
            Capability, //
        },
        timekeeping::boot_nanoseconds,
    },
    uapi, //
};
use core::fmt::{
    self,
    Write, //
};
use kernel::{
    new_poll_condvar,
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
};

/// `KFD_MAX_KFIFO_SIZE` (kfd_smi_events.c): bytes that a file keeps.
const ROOM: usize = 8192;

/// How many files may listen to a node: each is looked at, interrupts off, when there is something
/// to tell.
const MAX_LISTENERS: usize = 1024;

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

    /// As amdgpu says.
    pub(crate) const fn from_raw(trigger: u32) -> Self {
        Self(trigger)
    }
}

/// What there is to tell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SmiEvent<'a> {
    /// A memory access of a process's failed.
    VmFault(&'a VmTask),
    /// The GPU slows down for heat, for these reasons and for that many times so far.
    Throttle { reasons: u64, count: u64 },
    /// The n-th reset begins, and why; or it is over.
    Reset {
        over: bool,
        number: u32,
        cause: &'a str,
    },
    /// Queues of a process leave the GPU. `pid` is what its own pid namespace calls it, `tgid`
    /// what the whole system does.
    Eviction {
        pid: i32,
        tgid: i32,
        gpu: u32,
        trigger: Trigger,
    },
    /// They come back; or cannot yet.
    Restore {
        pid: i32,
        tgid: i32,
        gpu: u32,
        postponed: bool,
    },
    /// A process got a VM on the GPU, or lost it.
    Process { ends: bool, task: &'a VmTask },
}

impl SmiEvent<'_> {
    /// `enum kfd_smi_event`.
    const fn number(&self) -> u32 {
        match self {
            Self::VmFault(_) => uapi::kfd_smi_event_KFD_SMI_EVENT_VMFAULT,
            Self::Throttle { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_THERMAL_THROTTLE,
            Self::Reset { over: false, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_GPU_PRE_RESET,
            Self::Reset { over: true, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_GPU_POST_RESET,
            Self::Eviction { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_QUEUE_EVICTION,
            Self::Restore { .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_QUEUE_RESTORE,
            Self::Process { ends: false, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_PROCESS_START,
            Self::Process { ends: true, .. } => uapi::kfd_smi_event_KFD_SMI_EVENT_PROCESS_END,
        }
    }

    /// The thread group of the process that the event is about; `None`: it is about the GPU.
    const fn process(&self) -> Option<i32> {
        match self {
            Self::Eviction { tgid, .. } | Self::Restore { tgid, .. } => Some(*tgid),
            Self::VmFault(task) | Self::Process { task, .. } => Some(task.tgid),
            Self::Throttle { .. } | Self::Reset { .. } => None,
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
            Self::VmFault(task) => {
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

/// Bytes that wait for a reader.
struct Inbox {
    ring: KVec<u8>,
    first: usize,
    length: usize,
}

impl Inbox {
    /// Where the n-th byte that waits lies, or would.
    fn place(&self, offset: usize) -> usize {
        (self.first + offset)
            .checked_rem(self.ring.len())
            .unwrap_or(0)
    }

    /// Takes a line, or leaves it if there is no room for all of it.
    fn put(&mut self, line: &[u8]) -> bool {
        if self.ring.len() - self.length < line.len() {
            return false;
        }
        for (offset, &byte) in line.iter().enumerate() {
            let place = self.place(self.length + offset);
            if let Some(place) = self.ring.get_mut(place) {
                *place = byte;
            }
        }
        self.length += line.len();
        true
    }

    /// Moves as many bytes as there are room and bytes for. Returns how many.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = self.length.min(into.len());
        for (offset, byte) in into.iter_mut().take(count).enumerate() {
            *byte = self.ring.get(self.place(offset)).copied().unwrap_or(0);
        }
        self.first = self.place(count);
        self.length -= count;
        count
    }
}

/// Somebody who wants to be told.
#[pin_data]
struct Listener {
    #[pin]
    inbox: IrqSpinLock<Inbox>,
    #[pin]
    arrived: PollCondVar,
    /// Bit n - 1: event n.
    wanted: Atomic<u64>,
    /// The thread group that opened it, as the whole system numbers it: two pid namespaces may
    /// have the same number.
    tgid: i32,
    privileged: bool,
}

impl Listener {
    /// For the current task. Wants nothing as yet.
    fn new() -> Result<Arc<Self>> {
        let inbox = Inbox {
            ring: KVec::from_elem(0, ROOM, GFP_KERNEL)?,
            first: 0,
            length: 0,
        };
        let listener = pin_init!(Self {
            inbox <- new_irq_spinlock!(inbox, "amdkfd::smi::Listener"),
            arrived <- new_poll_condvar!("amdkfd::smi::arrived"),
            wanted: Atomic::new(0),
            tgid: system_thread_group_id(kernel::current!()),
            privileged: capable(Capability::SysAdmin),
        });
        Arc::pin_init(listener, GFP_KERNEL)
    }

    fn wants(&self, event: &SmiEvent<'_>) -> bool {
        let may = match event.process() {
            Some(tgid) => tgid == self.tgid || self.privileged,
            None => true,
        };
        may && self.wanted.load(Relaxed) >> (event.number() - 1) & 1 != 0
    }

    fn notify(&self, line: &Line) {
        if self.inbox.lock().put(line.bytes()) {
            self.arrived.notify_all();
        } else {
            pr_debug!("a reader of SMI events is too slow: an event is lost\n");
        }
    }
}

/// The listeners to the events of one node.
#[pin_data]
pub(crate) struct Listeners {
    #[pin]
    list: IrqSpinLock<KVec<Arc<Listener>>>,
    /// How many there are, to be read without the lock.
    count: Atomic<usize>,
    resets: Atomic<u32>,
}

impl Listeners {
    /// None.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let listeners = pin_init!(Self {
            list <- new_irq_spinlock!(KVec::new(), "amdkfd::smi::Listeners"),
            count: Atomic::new(0),
            resets: Atomic::new(0),
        });
        Arc::pin_init(listeners, GFP_KERNEL)
    }

    /// Tells all who want to know. Never sleeps.
    pub(crate) fn notify(&self, event: SmiEvent<'_>) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let line = event.line();
        for listener in self.list.lock().iter() {
            if listener.wants(&event) {
                listener.notify(&line);
            }
        }
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

    /// SMI_EVENTS: a file that tells the current task of the node. `ENOSPC`: there are
    /// [`MAX_LISTENERS`].
    pub(crate) fn open(self: &Arc<Self>) -> Result<i32> {
        let operations = OPERATIONS.as_ref().ok_or(ENODEV)?;
        let listener = Listener::new()?;
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

    fn add(&self, listener: Arc<Listener>) -> Result {
        loop {
            let wanted = self.count.load(Relaxed) + 1;
            if wanted > MAX_LISTENERS {
                return Err(ENOSPC);
            }
            let mut longer = KVec::with_capacity(wanted, GFP_KERNEL)?;
            let mut list = self.list.lock();
            if list.len() + 1 > longer.capacity() {
                // Somebody else came in between.
                continue;
            }
            for old in list.iter() {
                // There is room: nothing is allocated.
                longer.push(old.clone(), GFP_ATOMIC)?;
            }
            longer.push(listener, GFP_ATOMIC)?;
            self.count.store(longer.len(), Relaxed);
            let old = core::mem::replace(&mut *list, longer);
            drop(list);
            drop(old);
            return Ok(());
        }
    }

    fn remove(&self, listener: &Arc<Listener>) {
        let mut list = self.list.lock();
        let place = list.iter().position(|other| Arc::ptr_eq(other, listener));
        let gone = place.and_then(|place| list.remove(place).ok());
        self.count.store(list.len(), Relaxed);
        drop(list);
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
        let listener = Listener::new()?;
        listener.wanted.store(u64::MAX, Relaxed);
        self.add(listener.clone())?;
        Ok(TestReader(listener))
    }
}

#[kernel::macros::kunit_tests(amdkfd_smi)]
mod tests {
    use super::*;

    fn reads(event: SmiEvent<'_>, text: &str) -> bool {
        event.line().bytes() == text.as_bytes()
    }

    fn task(pid: i32, name: &str) -> VmTask {
        let mut task = VmTask {
            pid,
            tgid: pid * 10,
            ..VmTask::default()
        };
        for (to, from) in task.name.0.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        task
    }

    fn listener(tgid: i32, privileged: bool, wanted: u64) -> Arc<Listener> {
        let inbox = Inbox {
            ring: KVec::from_elem(0, 64, GFP_KERNEL).unwrap(),
            first: 0,
            length: 0,
        };
        let listener = pin_init!(Listener {
            inbox <- new_irq_spinlock!(inbox, "test"),
            arrived <- new_poll_condvar!("test"),
            wanted: Atomic::new(wanted),
            tgid,
            privileged,
        });
        Arc::pin_init(listener, GFP_KERNEL).unwrap()
    }

    const EVICTION: SmiEvent<'static> = SmiEvent::Eviction {
        pid: 7,
        tgid: 70,
        gpu: 0x89d1,
        trigger: Trigger::TTM,
    };

    #[test]
    fn lines_read_as_user_space_parses_them() {
        let task = task(0x1a2, "name");
        assert!(reads(SmiEvent::VmFault(&task), "1 1a2:name\n"));
        let throttle = SmiEvent::Throttle {
            reasons: 0x20,
            count: 0x11,
        };
        assert!(reads(throttle, "2 20:11\n"));
        let reset = |over, cause| SmiEvent::Reset {
            over,
            number: 10,
            cause,
        };
        assert!(reads(reset(false, "job hang"), "3 a job hang\n"));
        assert!(reads(reset(true, ""), "4 a \n"));
        assert!(reads(
            SmiEvent::Process {
                ends: false,
                task: &task
            },
            "c 1a2 name\n"
        ));
        assert!(reads(
            SmiEvent::Process {
                ends: true,
                task: &task
            },
            "d 1a2 name\n"
        ));
        let line = EVICTION.line();
        assert!(line.bytes().starts_with(b"9 "));
        assert!(line.bytes().ends_with(b" -7 89d1 2\n"));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let cause = "0123456789012345678901234567890123456789012345678901234567890123456789\
            0123456789012345678901234567890123456789";
        let event = SmiEvent::Reset {
            over: false,
            number: 1,
            cause,
        };
        assert_eq!(event.line().bytes().len(), 95);
    }

    #[test]
    fn events_of_a_process_are_its_own_or_the_privileged_ones() {
        let all = u64::MAX;
        assert!(listener(70, false, all).wants(&EVICTION));
        // The same number in another pid namespace.
        assert!(!listener(7, false, all).wants(&EVICTION));
        assert!(listener(7, true, all).wants(&EVICTION));
        assert!(!listener(70, true, 1 << 7).wants(&EVICTION));
        assert!(listener(70, true, 1 << 8).wants(&EVICTION));
        let task = task(7, "name");
        for event in [
            SmiEvent::VmFault(&task),
            SmiEvent::Process {
                ends: false,
                task: &task,
            },
        ] {
            assert!(listener(70, false, all).wants(&event));
            assert!(!listener(7, false, all).wants(&event));
            assert!(listener(7, true, all).wants(&event));
        }
        let of_the_gpu = SmiEvent::Throttle {
            reasons: 0,
            count: 0,
        };
        assert!(listener(8, false, 2).wants(&of_the_gpu));
    }

    #[test]
    fn an_inbox_keeps_whole_lines_in_order() {
        let listener = listener(1, true, 0);
        let mut inbox = listener.inbox.lock();
        let mut out = [0; 64];
        for round in 0..10u8 {
            assert!(inbox.put(&[round; 30]) && inbox.put(&[round + 1; 30]));
            assert!(!inbox.put(&[0; 5]));
            assert_eq!(inbox.take(&mut out[..40]), 40);
            assert!(out[..30] == [round; 30] && out[30..40] == [round + 1; 10]);
            assert_eq!(inbox.take(&mut out), 20);
            assert_eq!(inbox.take(&mut out), 0);
        }
    }

    #[test]
    fn there_are_only_so_many() {
        let listeners = Listeners::new().unwrap();
        let one = listener(1, true, 0);
        for _ in 0..MAX_LISTENERS {
            listeners.add(one.clone()).unwrap();
        }
        assert_eq!(listeners.add(one.clone()), Err(ENOSPC));
        listeners.remove(&one);
        assert_eq!(listeners.add(one.clone()), Ok(()));
    }

    #[test]
    fn who_is_removed_is_not_told() {
        let listeners = Listeners::new().unwrap();
        let first = listener(1, true, u64::MAX);
        let second = listener(2, true, u64::MAX);
        listeners.add(first.clone()).unwrap();
        listeners.add(second.clone()).unwrap();
        listeners.remove(&first);
        listeners.notify_reset(false, "x");
        assert_eq!(first.inbox.lock().length, 0);
        assert_eq!(second.inbox.lock().length, "3 1 x\n".len());
    }
}
