// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Session`]: a debugger's steps. Each is a DBG_TRAP on the process named first, but for the last
//! two; words with "=" change what is asked.
//!
//! ```text
//! enable PID [mask=] [size=] [at=]
//!     [fd=pipe|none|unused|reading|again|socket|blocking|event|nothing|file|fifo|kfd]
//! disable PID             send PID mask= [gpu=] [queue=]      exceptions PID mask=
//! override PID [mode=] [enable=] [support=]       mode PID MODE
//! suspend PID QUEUE... [clear=] [grace=] [count=] [at=]
//! resume PID QUEUE...     `all`: without a list
//! watch PID [address=] [mask=] [mode=] [gpu=]     unwatch PID ID [gpu=]     flags PID FLAGS
//! query PID [clear=]      info PID CODE SOURCE [size=] [clear=] [at=]
//! queues, devices PID [clear=] [count=] [entry=] [at=]
//! await PID queues|devices mask= [entries=]      until so many have these exceptions
//! seen PID                takes a snapshot of queues, so that none is new, and says how many
//! op PID NUMBER           an operation of zeros
//! told, quiet             whether a byte came through the pipe
//! edge                    whether one was written since the last time, by epoll
//! fill, close, deafen     fills the pipe; closes the end that is written to, or read
//! ```
//!
//! `gpu=0` is the first GPU of the topology, `gpu=none` none. `at=` is another place: null, kernel,
//! hole; readonly, odd (at an odd address), edge (its first 8 bytes are there). Waves: `waves.rs`.

use super::event::News;
use super::player::outcome;
use super::words::{code, show_exceptions, Words};
use crate::raw;
use anyhow::{bail, Context, Result};
use kfd::{topology, Kfd};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{mmap_anonymous, mprotect, MapFlags, MprotectFlags, ProtFlags};
use std::sync::Arc;

pub type Operation = uapi::kfd_ioctl_dbg_trap_args__bindgen_ty_1;

/// What a list is filled with before the call, to see what was written.
const UNTOUCHED: u8 = 0xa5;

pub struct Session {
    kfd: Arc<Kfd>,
    news: News,
    gpus: Vec<u32>,
}

/// Where a list of the call lies that is at `good` so far, with as much as `at=` leaves of it.
pub fn place(words: &Words<'_>, good: u64) -> Result<u64> {
    Ok(match words.value("at") {
        None => good,
        Some("null") => 0,
        Some("kernel") => 0xffff_8000_0000_0000,
        Some("hole") => 0x1000,
        Some(kind) => elsewhere(kind, good)?,
    })
}

/// The same words in pages of their own, which stay.
fn elsewhere(kind: &str, good: u64) -> Result<u64> {
    const PAGE: usize = 4096;
    const WORDS: usize = 8;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new mappings where the kernel likes.
    let pages = unsafe {
        mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, access, MapFlags::PRIVATE)?.cast::<u8>()
    };
    let offset = match kind {
        "readonly" => 0,
        "odd" => 1,
        "edge" => PAGE - WORDS,
        _ => bail!("no place is called {kind}"),
    };
    // SAFETY: two words at least lie at `good`, and the pages are new.
    unsafe {
        let at = pages.add(offset);
        at.copy_from_nonoverlapping(good as *const u8, WORDS);
        if kind == "readonly" {
            mprotect(pages.cast(), 2 * PAGE, MprotectFlags::READ)?;
        }
        mprotect(pages.add(PAGE).cast(), PAGE, MprotectFlags::empty())?;
        Ok(at as u64)
    }
}

impl Session {
    pub fn new(kfd: &Arc<Kfd>) -> Result<Self> {
        let gpus = topology::gpus()?.iter().map(|node| node.gpu_id).collect();
        Ok(Self {
            kfd: kfd.clone(),
            news: News::new()?,
            gpus,
        })
    }

    pub fn step(&mut self, words: &Words<'_>) -> Result<String> {
        match words.word(0)? {
            "told" => return self.news.told(true),
            "quiet" => return self.news.told(false),
            "edge" => return self.news.edge(),
            "fill" => return self.news.fill(),
            "close" => {
                self.news.close();
                return Ok("0".into());
            }
            "deafen" => {
                self.news.deafen();
                return Ok("0".into());
            }
            _ => {}
        }
        let pid = words.number(1)? as u32;
        match words.word(0)? {
            "enable" => self.enable(pid, words),
            "disable" => Ok(self.plain(pid, uapi::KFD_IOC_DBG_TRAP_DISABLE)),
            "op" => Ok(self.plain(pid, words.number(2)? as u32)),
            "send" => self.send(pid, words),
            "exceptions" => self.exceptions(pid, words),
            "override" => self.launch_override(pid, words),
            "mode" => self.mode(pid, words),
            "suspend" => self.suspend(pid, words),
            "resume" => self.resume(pid, words),
            "watch" => self.watch(pid, words),
            "unwatch" => self.unwatch(pid, words),
            "flags" => self.flags(pid, words),
            "query" => self.query(pid, words),
            "info" => self.info(pid, words),
            "queues" | "devices" => self.snapshot(pid, words),
            "await" => self.exceptions_come(pid, words),
            "seen" => self.seen(pid),
            "catch" => self.catch(pid, words),
            "waves" => self.waves(pid, words),
            "change" => self.change(pid, words),
            verb => bail!("no step is called {verb}"),
        }
    }

    /// One call.
    pub fn trap(&self, pid: u32, op: u32, operation: &mut Operation) -> Result<i32, Errno> {
        let mut args = uapi::kfd_ioctl_dbg_trap_args {
            pid,
            op,
            __bindgen_anon_1: *operation,
        };
        let result = raw::value(self.kfd.as_fd(), uapi::IOC_DBG_TRAP, &mut args);
        *operation = args.__bindgen_anon_1;
        result
    }

    /// An operation of zeros.
    fn plain(&self, pid: u32, op: u32) -> String {
        let mut operation = Operation {
            query_exception_info: Default::default(),
        };
        outcome(self.trap(pid, op, &mut operation))
    }

    fn gpu(&self, words: &Words<'_>) -> Result<u32> {
        match words.value("gpu").unwrap_or("0") {
            "none" => Ok(1),
            at => Ok(*self
                .gpus
                .get(at.parse::<usize>()?)
                .context("there is no such GPU")?),
        }
    }

    /// A GPU's id by its place in the topology.
    pub fn name_of(&self, gpu_id: u32) -> String {
        match self.gpus.iter().position(|id| *id == gpu_id) {
            Some(at) => format!("G{at}"),
            None => gpu_id.to_string(),
        }
    }

    fn enable(&mut self, pid: u32, words: &Words<'_>) -> Result<String> {
        let mut info = [uapi::kfd_runtime_info {
            r_debug: u64::MAX,
            runtime_state: u32::MAX,
            ttmp_setup: u32::MAX,
        }; 2];
        let enable = uapi::kfd_ioctl_dbg_trap_enable_args {
            exception_mask: words.exceptions("mask", u64::MAX)?,
            rinfo_ptr: place(words, info.as_mut_ptr() as u64)?,
            rinfo_size: words.or("size", 16)? as u32,
            dbg_fd: self.news.file(words.value("fd").unwrap_or("pipe"))?,
        };
        let mut operation = Operation { enable };
        let result = self.trap(pid, uapi::KFD_IOC_DBG_TRAP_ENABLE, &mut operation);
        // SAFETY: all of the union is numbers.
        let size = unsafe { operation.enable.rinfo_size };
        let told = match info[0] {
            uapi::kfd_runtime_info {
                r_debug,
                runtime_state,
                ttmp_setup,
            } if runtime_state != u32::MAX => {
                format!("r_debug {r_debug:#x}, state {runtime_state}, ttmp {ttmp_setup}")
            }
            uapi::kfd_runtime_info { r_debug, .. } if r_debug != u64::MAX => "half of it".into(),
            _ => "no information".into(),
        };
        let beyond = if info[1].r_debug == u64::MAX {
            ""
        } else {
            ", and beyond"
        };
        Ok(format!("{}, size {size}, {told}{beyond}", outcome(result)))
    }

    fn send(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let send_runtime_event = uapi::kfd_ioctl_dbg_trap_send_runtime_event_args {
            exception_mask: words.exceptions("mask", 0)?,
            gpu_id: self.gpu(words)?,
            queue_id: words.or("queue", 0)? as u32,
        };
        let mut operation = Operation { send_runtime_event };
        let op = uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT;
        Ok(outcome(self.trap(pid, op, &mut operation)))
    }

    fn exceptions(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let set_exceptions_enabled = uapi::kfd_ioctl_dbg_trap_set_exceptions_enabled_args {
            exception_mask: words.exceptions("mask", 0)?,
        };
        let mut operation = Operation {
            set_exceptions_enabled,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED;
        Ok(outcome(self.trap(pid, op, &mut operation)))
    }

    fn launch_override(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let launch_override = uapi::kfd_ioctl_dbg_trap_set_wave_launch_override_args {
            override_mode: words.or("mode", 0)? as u32,
            enable_mask: words.or("enable", 0)? as u32,
            support_request_mask: words.or("support", 0)? as u32,
            pad: 0,
        };
        let mut operation = Operation { launch_override };
        let op = uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE;
        let result = self.trap(pid, op, &mut operation);
        // SAFETY: as in `enable`.
        let told = unsafe { operation.launch_override };
        Ok(format!(
            "{}, before {:#x}, supported {:#x}",
            outcome(result),
            told.enable_mask,
            told.support_request_mask
        ))
    }

    fn mode(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let launch_mode = uapi::kfd_ioctl_dbg_trap_set_wave_launch_mode_args {
            launch_mode: words.number(2)? as u32,
            pad: 0,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE;
        Ok(outcome(self.trap(pid, op, &mut Operation { launch_mode })))
    }

    /// What a list of queues is after the call: ids, and what became of them.
    fn reports(result: Result<i32, Errno>, ids: &[u32]) -> String {
        let reports: Vec<String> = ids
            .iter()
            .map(|id| {
                let number = id & !(uapi::KFD_DBG_QUEUE_ERROR_MASK | KFD_DBG_QUEUE_INVALID_MASK);
                let error = id & uapi::KFD_DBG_QUEUE_ERROR_MASK != 0;
                let invalid = id & KFD_DBG_QUEUE_INVALID_MASK != 0;
                let marks = match (error, invalid) {
                    (false, false) => "",
                    (true, false) => " error",
                    (false, true) => " invalid",
                    (true, true) => " error invalid",
                };
                format!("{number}{marks}")
            })
            .collect();
        let count = result.map_or_else(|errno| outcome::<i32>(Err(errno)), |n| n.to_string());
        format!("{count} [{}]", reports.join(", "))
    }

    fn suspend(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let mut ids = with_room(words.numbers(2)?);
        let named = words.numbers(2)?.len();
        let suspend_queues = uapi::kfd_ioctl_dbg_trap_suspend_queues_args {
            exception_mask: words.exceptions("clear", 0)?,
            queue_array_ptr: place(words, ids.as_mut_ptr() as u64)?,
            num_queues: words.or("count", named as u64)? as u32,
            grace_period: words.or("grace", 0)? as u32,
        };
        let mut operation = Operation { suspend_queues };
        let op = uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES;
        let result = self.trap(pid, op, &mut operation);
        Ok(Self::reports(result, &ids[..named]))
    }

    fn resume(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let all = words.word(2).is_ok_and(|word| word == "all");
        let named = if all { Vec::new() } else { words.numbers(2)? };
        let (mut ids, named) = (with_room(named.clone()), named.len());
        let good = if all { 0 } else { ids.as_mut_ptr() as u64 };
        let resume_queues = uapi::kfd_ioctl_dbg_trap_resume_queues_args {
            queue_array_ptr: place(words, good)?,
            num_queues: words.or("count", named as u64)? as u32,
            pad: 0,
        };
        let mut operation = Operation { resume_queues };
        let op = uapi::KFD_IOC_DBG_TRAP_RESUME_QUEUES;
        let result = self.trap(pid, op, &mut operation);
        Ok(Self::reports(result, &ids[..named]))
    }

    fn watch(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let set_node_address_watch = uapi::kfd_ioctl_dbg_trap_set_node_address_watch_args {
            address: words.or("address", 0x1000)?,
            mode: words.or("mode", 3)? as u32,
            mask: words.or("mask", 0xffff_ff80)? as u32,
            gpu_id: self.gpu(words)?,
            id: 99,
        };
        let mut operation = Operation {
            set_node_address_watch,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH;
        let result = self.trap(pid, op, &mut operation);
        // SAFETY: as in `enable`.
        let id = unsafe { operation.set_node_address_watch.id };
        Ok(format!("{}, id {}", outcome(result), id as i32))
    }

    fn unwatch(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let clear_node_address_watch = uapi::kfd_ioctl_dbg_trap_clear_node_address_watch_args {
            gpu_id: self.gpu(words)?,
            id: words.number(2)? as u32,
        };
        let mut operation = Operation {
            clear_node_address_watch,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH;
        Ok(outcome(self.trap(pid, op, &mut operation)))
    }

    fn flags(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let set_flags = uapi::kfd_ioctl_dbg_trap_set_flags_args {
            flags: words.number(2)? as u32,
            pad: 0,
        };
        let mut operation = Operation { set_flags };
        let result = self.trap(pid, uapi::KFD_IOC_DBG_TRAP_SET_FLAGS, &mut operation);
        // SAFETY: as in `enable`.
        let before = unsafe { operation.set_flags.flags };
        Ok(format!("{}, before {before:#x}", outcome(result)))
    }

    fn query(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let query_debug_event = uapi::kfd_ioctl_dbg_trap_query_debug_event_args {
            exception_mask: words.exceptions("clear", 0)?,
            ..Default::default()
        };
        let mut operation = Operation { query_debug_event };
        let op = uapi::KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT;
        Ok(match self.trap(pid, op, &mut operation) {
            Err(errno) => outcome::<i32>(Err(errno)),
            Ok(_) => {
                // SAFETY: as in `enable`.
                let found = unsafe { operation.query_debug_event };
                let raised = show_exceptions(found.exception_mask);
                let gpu = self.name_of(found.gpu_id);
                format!("0, {raised} of GPU {gpu}, queue {}", found.queue_id)
            }
        })
    }

    fn info(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let mut info = [UNTOUCHED; 256];
        let source_id = match words.word(3)? {
            "gpu" => self.gpu(words)?,
            _ => words.number(3)? as u32,
        };
        let query_exception_info = uapi::kfd_ioctl_dbg_trap_query_exception_info_args {
            info_ptr: place(words, info.as_mut_ptr() as u64)?,
            info_size: words.or("size", 256)? as u32,
            source_id,
            exception_code: code(words.word(2)?)?,
            clear_exception: words.or("clear", 0)? as u32,
        };
        let mut operation = Operation {
            query_exception_info,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO;
        let result = self.trap(pid, op, &mut operation);
        // SAFETY: as in `enable`.
        let size = unsafe { operation.query_exception_info.info_size };
        let written = 256
            - info
                .iter()
                .rev()
                .take_while(|byte| **byte == UNTOUCHED)
                .count();
        let word =
            |at: usize| u32::from_le_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        let told = match written {
            0 => "nothing".into(),
            16 => format!(
                "r_debug {:#x}, state {}, ttmp {}",
                word(0),
                word(8),
                word(12)
            ),
            // struct kfd_hsa_memory_exception_data
            32 => format!(
                "not present {}, read only {}, no execute {}, imprecise {}, at {:x}{:08x}, GPU {}, \
                type {}",
                word(0),
                word(4),
                word(8),
                word(12),
                word(20),
                word(16),
                self.name_of(word(24)),
                word(28)
            ),
            bytes => format!("{bytes} bytes"),
        };
        Ok(format!("{}, size {size}, {told}", outcome(result)))
    }
}

/// The list with room behind it.
fn with_room(mut ids: Vec<u32>) -> Vec<u32> {
    ids.resize(ids.len() + 2, 0);
    ids
}

/// `KFD_DBG_QUEUE_INVALID_MASK` is negative as the header writes it.
const KFD_DBG_QUEUE_INVALID_MASK: u32 = 1 << uapi::KFD_DBG_QUEUE_INVALID_BIT;
