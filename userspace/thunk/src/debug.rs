// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Debugger`]: what the KFD offers those who debug a process on its GPUs (DBG_TRAP).
//!
//! For the process itself, or one that traces it. What changes the hardware (all but exceptions and
//! snapshots) needs the debugged process to have called [`Kfd::enable_runtime`].

use crate::ioctl::call_once;
use crate::{Errno, Error, Kfd, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, BorrowedFd};

use std::sync::Arc;

type Operation = uapi::kfd_ioctl_dbg_trap_args__bindgen_ty_1;

bitflags::bitflags! {
    /// A set of exceptions: the bit of `EC_*` (of the header) number n is n - 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Exceptions: u64 {
        /// `EC_QUEUE_WAVE_TRAP`: a wave came to a trap.
        const WAVE_TRAP = mask(uapi::EC_QUEUE_WAVE_TRAP);
        /// `EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION`.
        const ILLEGAL_INSTRUCTION = mask(uapi::EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION);
        /// `EC_QUEUE_WAVE_MEMORY_VIOLATION`.
        const WAVE_MEMORY_VIOLATION = mask(uapi::EC_QUEUE_WAVE_MEMORY_VIOLATION);
        /// `EC_QUEUE_NEW`: a queue that the debugger has not seen.
        const QUEUE_NEW = mask(uapi::EC_QUEUE_NEW);
        /// `EC_DEVICE_MEMORY_VIOLATION`.
        const MEMORY_VIOLATION = mask(uapi::EC_DEVICE_MEMORY_VIOLATION);
        /// `EC_PROCESS_RUNTIME`: the process enabled or disabled its runtime.
        const RUNTIME = mask(uapi::EC_PROCESS_RUNTIME);
        // The header's other codes.
        const _ = !0;
    }
}

const fn mask(code: u32) -> u64 {
    1 << (code - 1)
}

/// How new waves start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchMode {
    /// They run.
    Normal,
    /// They halt before their first instruction.
    Halt,
    /// They run, and each instruction traps.
    Debug,
}

/// Which accesses a watch point catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Reads.
    Read,
    /// Writes and atomics.
    NonRead,
    /// Atomics.
    Atomic,
    /// All.
    All,
}

/// A watch point, to be given back to [`Debugger::unwatch`].
#[derive(Debug)]
pub struct Watch {
    gpu_id: u32,
    id: u32,
}

/// What became of one of several queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueReport {
    /// It was done.
    Done,
    /// The hardware failed.
    Failed,
    /// There is no such queue, or none that this can be done to.
    Invalid,
}

/// A process that is being debugged, until this is dropped.
#[derive(Debug)]
pub struct Debugger {
    kfd: Arc<Kfd>,
    pid: u32,
    runtime: uapi::kfd_runtime_info,
}

impl Debugger {
    /// Begins to debug `pid`; a byte is written to `news` for each of `exceptions` that is raised.
    pub fn attach(
        kfd: &Arc<Kfd>,
        pid: u32,
        exceptions: Exceptions,
        news: BorrowedFd<'_>,
    ) -> Result<Self> {
        let mut runtime = uapi::kfd_runtime_info::default();
        let enable = uapi::kfd_ioctl_dbg_trap_enable_args {
            exception_mask: exceptions.bits(),
            rinfo_ptr: std::ptr::from_mut(&mut runtime) as u64,
            rinfo_size: size_of_val(&runtime) as u32,
            dbg_fd: news.as_raw_fd() as u32,
        };
        // SAFETY: the pointer is to `rinfo_size` bytes, which live until after the call.
        unsafe {
            trap(
                kfd,
                pid,
                uapi::KFD_IOC_DBG_TRAP_ENABLE,
                &mut Operation { enable },
            )?
        };
        let kfd = kfd.clone();
        Ok(Self { kfd, pid, runtime })
    }

    /// What the process had set of its runtime when the debugger came.
    pub fn runtime(&self) -> uapi::kfd_runtime_info {
        self.runtime
    }

    /// Which exceptions are reported from now on.
    pub fn set_exceptions(&self, exceptions: Exceptions) -> Result<()> {
        let set_exceptions_enabled = uapi::kfd_ioctl_dbg_trap_set_exceptions_enabled_args {
            exception_mask: exceptions.bits(),
        };
        let mut operation = Operation {
            set_exceptions_enabled,
        };
        self.plain(
            uapi::KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED,
            &mut operation,
        )
    }

    /// Raises `exceptions` to the process's runtime, as those of a GPU or a queue; `RUNTIME` lets a
    /// process go on that waits in [`Kfd::enable_runtime`] for its debugger.
    ///
    /// # Safety
    /// The kernel sets the bits of a queue's exceptions in the debugged process's memory, which may
    /// be this one's, wherever the queue's save area says, whether or not there is a runtime: see
    /// [`Kfd::enable_runtime`]. So that must be where nobody believes anything to be their own.
    ///
    /// ```compile_fail,E0133
    /// # fn of(debugger: &kfd::Debugger, queue: &kfd::Queue) -> kfd::Result<()> {
    /// debugger.send(kfd::Exceptions::WAVE_TRAP, 0, queue.id())
    /// # }
    /// ```
    pub unsafe fn send(&self, exceptions: Exceptions, gpu_id: u32, queue_id: u32) -> Result<()> {
        let send_runtime_event = uapi::kfd_ioctl_dbg_trap_send_runtime_event_args {
            exception_mask: exceptions.bits(),
            gpu_id,
            queue_id,
        };
        let mut operation = Operation { send_runtime_event };
        self.plain(uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT, &mut operation)
    }

    /// Exceptions that were raised at one GPU or queue (their ids follow), if any are; `clear`
    /// forgets those.
    pub fn raised(&self, clear: Exceptions) -> Result<Option<(Exceptions, u32, u32)>> {
        let query_debug_event = uapi::kfd_ioctl_dbg_trap_query_debug_event_args {
            exception_mask: clear.bits(),
            ..Default::default()
        };
        let mut operation = Operation { query_debug_event };
        match self.plain(uapi::KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT, &mut operation) {
            Err(error) if error.errno() == Some(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                // SAFETY: all of the union is numbers, and this is what the kernel has written.
                let found = unsafe { operation.query_debug_event };
                let raised = Exceptions::from_bits_retain(found.exception_mask);
                Ok(Some((raised, found.gpu_id, found.queue_id)))
            }
        }
    }

    /// The bytes that the kernel keeps of the exception `code` (`EC_*`) of the GPU or queue
    /// `source`; `clear` forgets it.
    pub fn exception_info(&self, code: u32, source: u32, clear: bool) -> Result<Vec<u8>> {
        let mut info = vec![0u8; 256];
        let query_exception_info = uapi::kfd_ioctl_dbg_trap_query_exception_info_args {
            info_ptr: info.as_mut_ptr() as u64,
            info_size: info.len() as u32,
            source_id: source,
            exception_code: code,
            clear_exception: clear.into(),
        };
        let mut operation = Operation {
            query_exception_info,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO;
        // SAFETY: the pointer is to `info_size` bytes, which live until after the call.
        unsafe { trap(&self.kfd, self.pid, op, &mut operation)? };
        // SAFETY: as in `raised`.
        info.truncate(unsafe { operation.query_exception_info.info_size } as usize);
        Ok(info)
    }

    /// The process's queues; the exceptions in `clear` that they have raised are forgotten, and
    /// told here.
    pub fn queues(&self, clear: Exceptions) -> Result<Vec<uapi::kfd_queue_snapshot_entry>> {
        let op = uapi::KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT;
        use uapi::kfd_queue_snapshot_entry as Entry;
        let told = |entry: &mut Entry, before: &Entry| {
            if entry.queue_id == before.queue_id {
                entry.exception_status |= before.exception_status & clear.bits();
            }
        };
        self.snapshot(
            op,
            |snapshot_buf_ptr, num_queues, entry_size| Operation {
                queue_snapshot: uapi::kfd_ioctl_dbg_trap_queue_snapshot_args {
                    exception_mask: clear.bits(),
                    snapshot_buf_ptr,
                    num_queues,
                    entry_size,
                },
            },
            told,
        )
    }

    /// The process's GPUs; the exceptions in `clear` that they have raised are forgotten, and told
    /// here.
    pub fn devices(&self, clear: Exceptions) -> Result<Vec<uapi::kfd_dbg_device_info_entry>> {
        let op = uapi::KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT;
        use uapi::kfd_dbg_device_info_entry as Entry;
        let told = |entry: &mut Entry, before: &Entry| {
            if entry.gpu_id == before.gpu_id {
                entry.exception_status |= before.exception_status & clear.bits();
            }
        };
        self.snapshot(
            op,
            |snapshot_buf_ptr, num_devices, entry_size| Operation {
                device_snapshot: uapi::kfd_ioctl_dbg_trap_device_snapshot_args {
                    exception_mask: clear.bits(),
                    snapshot_buf_ptr,
                    num_devices,
                    entry_size,
                },
            },
            told,
        )
    }

    /// Both snapshots, by `make` of where there is room, for how many entries of which size; `told`
    /// as for [`all`].
    fn snapshot<T: Copy + Default>(
        &self,
        op: u32,
        make: impl Fn(u64, u32, u32) -> Operation,
        told: impl Fn(&mut T, &T),
    ) -> Result<Vec<T>> {
        let ask = |entries: &mut [T]| {
            let (room, at) = (entries.len() as u32, entries.as_mut_ptr() as u64);
            let mut operation = make(at, room, size_of::<T>() as u32);
            // SAFETY: the pointer is to `room` entries, which live until after the call.
            unsafe { trap(&self.kfd, self.pid, op, &mut operation)? };
            // SAFETY: both snapshots have their number in the same place, which the kernel has
            // written.
            Ok(unsafe { operation.queue_snapshot.num_queues } as usize)
        };
        all(ask, told)
    }

    /// How new waves start.
    pub fn set_launch_mode(&self, mode: LaunchMode) -> Result<()> {
        let launch_mode = uapi::kfd_ioctl_dbg_trap_set_wave_launch_mode_args {
            launch_mode: match mode {
                LaunchMode::Normal => uapi::KFD_DBG_TRAP_WAVE_LAUNCH_MODE_NORMAL,
                LaunchMode::Halt => uapi::KFD_DBG_TRAP_WAVE_LAUNCH_MODE_HALT,
                LaunchMode::Debug => uapi::KFD_DBG_TRAP_WAVE_LAUNCH_MODE_DEBUG,
            },
            pad: 0,
        };
        self.plain(
            uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE,
            &mut Operation { launch_mode },
        )
    }

    /// Has what `KFD_DBG_TRAP_MASK_*` names trap in new waves, instead of or beside what they ask
    /// for themselves. Returns what was so before, and which of `support` this GPU can.
    pub fn set_launch_override(
        &self,
        replace: bool,
        enable: u32,
        support: u32,
    ) -> Result<(u32, u32)> {
        let launch_override = uapi::kfd_ioctl_dbg_trap_set_wave_launch_override_args {
            override_mode: if replace {
                uapi::KFD_DBG_TRAP_OVERRIDE_REPLACE
            } else {
                uapi::KFD_DBG_TRAP_OVERRIDE_OR
            },
            enable_mask: enable,
            support_request_mask: support,
            pad: 0,
        };
        let mut operation = Operation { launch_override };
        self.plain(
            uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE,
            &mut operation,
        )?;
        // SAFETY: as in `raised`.
        let told = unsafe { operation.launch_override };
        Ok((told.enable_mask, told.support_request_mask))
    }

    /// Sets `KFD_DBG_TRAP_FLAG_*`; returns what was set before.
    pub fn set_flags(&self, flags: u32) -> Result<u32> {
        let set_flags = uapi::kfd_ioctl_dbg_trap_set_flags_args { flags, pad: 0 };
        let mut operation = Operation { set_flags };
        self.plain(uapi::KFD_IOC_DBG_TRAP_SET_FLAGS, &mut operation)?;
        // SAFETY: as in `raised`.
        Ok(unsafe { operation.set_flags.flags })
    }

    /// Catches accesses to `address` on a GPU; the bits that are not in `mask` do not count.
    pub fn watch(&self, gpu_id: u32, address: u64, mask: u32, mode: WatchMode) -> Result<Watch> {
        let set_node_address_watch = uapi::kfd_ioctl_dbg_trap_set_node_address_watch_args {
            address,
            mode: match mode {
                WatchMode::Read => uapi::KFD_DBG_TRAP_ADDRESS_WATCH_MODE_READ,
                WatchMode::NonRead => uapi::KFD_DBG_TRAP_ADDRESS_WATCH_MODE_NONREAD,
                WatchMode::Atomic => uapi::KFD_DBG_TRAP_ADDRESS_WATCH_MODE_ATOMIC,
                WatchMode::All => uapi::KFD_DBG_TRAP_ADDRESS_WATCH_MODE_ALL,
            },
            mask,
            gpu_id,
            id: 0,
        };
        let mut operation = Operation {
            set_node_address_watch,
        };
        self.plain(
            uapi::KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH,
            &mut operation,
        )?;
        // SAFETY: as in `raised`.
        let id = unsafe { operation.set_node_address_watch.id };
        Ok(Watch { gpu_id, id })
    }

    /// Takes a watch point away.
    pub fn unwatch(&self, watch: Watch) -> Result<()> {
        let clear_node_address_watch = uapi::kfd_ioctl_dbg_trap_clear_node_address_watch_args {
            gpu_id: watch.gpu_id,
            id: watch.id,
        };
        let mut operation = Operation {
            clear_node_address_watch,
        };
        self.plain(
            uapi::KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH,
            &mut operation,
        )
    }

    /// Takes queues off the hardware, their waves saved, after `grace` (in thousands of GPU
    /// clocks); the exceptions in `clear` are forgotten. Says for each what became of it.
    pub fn suspend(
        &self,
        queues: &[u32],
        grace: u32,
        clear: Exceptions,
    ) -> Result<Vec<QueueReport>> {
        let mut ids = queues.to_vec();
        let suspend_queues = uapi::kfd_ioctl_dbg_trap_suspend_queues_args {
            exception_mask: clear.bits(),
            queue_array_ptr: ids.as_mut_ptr() as u64,
            num_queues: ids.len() as u32,
            grace_period: grace,
        };
        let mut operation = Operation { suspend_queues };
        // SAFETY: the pointer is to `num_queues` ids, which live until after the call.
        unsafe {
            trap(
                &self.kfd,
                self.pid,
                uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES,
                &mut operation,
            )?
        };
        Ok(ids.into_iter().map(QueueReport::of).collect())
    }

    /// Lets suspended queues go on; none named means all. Says for each named what became of it.
    pub fn resume(&self, queues: &[u32]) -> Result<Vec<QueueReport>> {
        let mut ids = queues.to_vec();
        let resume_queues = uapi::kfd_ioctl_dbg_trap_resume_queues_args {
            queue_array_ptr: if ids.is_empty() {
                0
            } else {
                ids.as_mut_ptr() as u64
            },
            num_queues: ids.len() as u32,
            pad: 0,
        };
        let mut operation = Operation { resume_queues };
        // SAFETY: the pointer is to `num_queues` ids, which live until after the call, or to
        // nothing.
        unsafe {
            trap(
                &self.kfd,
                self.pid,
                uapi::KFD_IOC_DBG_TRAP_RESUME_QUEUES,
                &mut operation,
            )?
        };
        Ok(ids.into_iter().map(QueueReport::of).collect())
    }

    /// An operation without pointers, or one for whose effect the caller's caller answers.
    fn plain(&self, op: u32, operation: &mut Operation) -> Result<()> {
        // SAFETY: the callers' operations hold no pointer.
        unsafe { trap(&self.kfd, self.pid, op, operation).map(drop) }
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        let mut nothing = Operation {
            set_flags: Default::default(),
        };
        // A failure leaves it to the exit of either process.
        let _ = self.plain(uapi::KFD_IOC_DBG_TRAP_DISABLE, &mut nothing);
    }
}

/// How many more entries there is room for than there were a moment ago.
const MORE: usize = 16;

/// All entries of a list that may grow: `ask` fills a slice with the first ones, and says how many
/// there are, which it is asked until there is room for all.
///
/// What an answer shows may be forgotten with that, even though more entries have come than there
/// was room for: `told` adds to an entry what another one, of an answer before, has said, if they
/// are of the same thing.
fn all<T: Copy + Default>(
    mut ask: impl FnMut(&mut [T]) -> Result<usize>,
    told: impl Fn(&mut T, &T),
) -> Result<Vec<T>> {
    let (mut entries, mut before) = (Vec::new(), Vec::<T>::new());
    loop {
        let found = ask(&mut entries)?;
        for entry in entries.iter_mut().take(found) {
            before.iter().for_each(|before| told(entry, before));
        }
        if found <= entries.len() {
            entries.truncate(found);
            return Ok(entries);
        }
        before.append(&mut entries);
        entries.resize(found + MORE, T::default());
    }
}

impl QueueReport {
    /// From an id as the kernel has marked it.
    fn of(id: u32) -> Self {
        match id {
            _ if id >> uapi::KFD_DBG_QUEUE_INVALID_BIT & 1 != 0 => Self::Invalid,
            _ if id >> uapi::KFD_DBG_QUEUE_ERROR_BIT & 1 != 0 => Self::Failed,
            _ => Self::Done,
        }
    }
}

/// One operation on `pid`. EAGAIN is an answer here, not to be tried again.
///
/// # Safety
/// Every pointer in `operation` must be valid for what the kernel does with it.
unsafe fn trap(kfd: &Kfd, pid: u32, op: u32, operation: &mut Operation) -> Result<i32> {
    let mut args = uapi::kfd_ioctl_dbg_trap_args {
        pid,
        op,
        __bindgen_anon_1: *operation,
    };
    // SAFETY: passed on.
    let done = unsafe { call_once(kfd, &mut args) };
    *operation = args.__bindgen_anon_1;
    done.map_err(Error::of(
        "DBG_TRAP",
        format!("process {pid}, operation {op}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_the_headers_masks() {
        assert_eq!(Exceptions::WAVE_TRAP.bits(), 2);
        assert_eq!(Exceptions::RUNTIME.bits(), 1 << 47);
    }

    #[test]
    fn a_marked_id_tells_what_became_of_the_queue() {
        assert_eq!(QueueReport::of(7), QueueReport::Done);
        assert_eq!(QueueReport::of(7 | 1 << 30), QueueReport::Failed);
        assert_eq!(QueueReport::of(7 | 1 << 31), QueueReport::Invalid);
    }

    /// An answer clears what it shows, also where it has no room for all.
    #[test]
    fn what_an_answer_told_that_had_no_room_for_all_is_kept() {
        // Of each queue, the newest first: its number, and what it has raised.
        let mut raised = vec![(1u32, 0b10u64), (0, 0b100)];
        let mut rooms = Vec::new();
        let ask = |entries: &mut [(u32, u64)]| {
            rooms.push(entries.len());
            for (entry, queue) in entries.iter_mut().zip(&mut raised) {
                *entry = *queue;
                queue.1 = 0;
            }
            let found = raised.len();
            if rooms.len() == 1 {
                // More come than anybody has expected.
                raised.splice(..0, (2..19).rev().map(|number| (number, 1)));
            }
            Ok(found)
        };
        let queues = all(ask, |entry, before| {
            if entry.0 == before.0 {
                entry.1 |= before.1;
            }
        });
        let new = (2..19).rev().map(|number| (number, 1));
        let all: Vec<_> = new.chain([(1, 0b10), (0, 0b100)]).collect();
        assert_eq!(queues.expect("it answers"), all);
        assert_eq!(rooms, [0, 2 + MORE, 19 + MORE]);
    }

    #[test]
    fn both_snapshots_have_their_number_in_one_place() {
        use std::mem::offset_of;
        assert_eq!(
            offset_of!(uapi::kfd_ioctl_dbg_trap_queue_snapshot_args, num_queues),
            offset_of!(uapi::kfd_ioctl_dbg_trap_device_snapshot_args, num_devices)
        );
    }
}
