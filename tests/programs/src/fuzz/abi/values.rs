// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What calls may return: ids of the ranges that there are, addresses within what they belong to,
//! counts that are not more than was asked for.

use super::{Fields, Kind, Request, EVENTS, OTHER_EVENTS, QUEUES};
use rustix::time::{clock_gettime, ClockId};
use std::collections::BTreeMap;

/// The highest errno that user space knows (`EHWPOISON`); above are the kernel's own.
const LAST_ERRNO: i32 = 133;
/// One of the kernel's own that either KFD tells all the same (`ENOTSUPP`: a queue of no known
/// type).
const UNSUPPORTED: i32 = 524;
/// The bytes of a process's doorbells on a GPU, and of one.
const DOORBELLS: u64 = 8192;
const DOORBELL: u64 = 8;
/// The types of mappings in an offset: `KFD_MMAP_TYPE_DOORBELL`, `_EVENTS`.
const TYPE: u32 = 62;
const OF_DOORBELLS: u64 = 3;
const OF_EVENTS: u64 = 2;
const GPU: u32 = 46;

/// What the machine has.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Each GPU that the process has acquired, and its memory in bytes.
    pub gpus: BTreeMap<u32, u64>,
    /// How many the machine has.
    pub all_gpus: usize,
}

/// What calls have returned so far.
#[derive(Default)]
pub struct Values {
    facts: Facts,
    clock: u64,
}

/// An errno that no program may see.
pub fn errno(errno: i32) -> Option<String> {
    let known = (0..=LAST_ERRNO).contains(&errno) || errno == UNSUPPORTED;
    (!known).then(|| format!("errno {errno} is the kernel's own"))
}

type Check = fn(&mut Values, &Request<'_>, Fields<'_>) -> Option<String>;

const CHECKS: &[(&str, Check)] = &[
    ("ALLOC_MEMORY_OF_GPU", Values::buffer),
    ("IMPORT_DMABUF", Values::buffer),
    ("CREATE_QUEUE", Values::queue),
    ("CREATE_EVENT", Values::event),
    ("WAIT_EVENTS", Values::wait),
    ("MAP_MEMORY_TO_GPU", Values::mapped),
    ("UNMAP_MEMORY_FROM_GPU", Values::mapped),
    ("AVAILABLE_MEMORY", Values::available),
    ("GET_CLOCK_COUNTERS", Values::clock),
    ("GET_VERSION", Values::version),
    ("GET_PROCESS_APERTURES_NEW", Values::apertures),
    ("GET_DMABUF_INFO", Values::dmabuf),
    ("EXPORT_DMABUF", Values::exported),
    ("SMI_EVENTS", Values::listener),
    ("GET_QUEUE_WAVE_STATE", Values::wave_state),
];

impl Values {
    pub fn new(facts: Facts) -> Self {
        Self { facts, clock: 0 }
    }

    /// Whether there can be such an id.
    pub fn can_be(&self, kind: Kind, id: u64) -> bool {
        match kind {
            Kind::Buffer => self.facts.gpus.contains_key(&((id >> 32) as u32)),
            Kind::Queue => id < QUEUES,
            Kind::Event => id < EVENTS || (OTHER_EVENTS..1 << 32).contains(&id),
        }
    }

    /// What is impossible in the answer to `request`, which succeeded.
    pub fn look_at(&mut self, request: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (_, check) = CHECKS.iter().find(|(call, _)| *call == request.call)?;
        check(self, request, answer)
    }

    fn buffer(&mut self, request: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (gpu, handle) = (request.fields.get("gpu_id")?, answer.get("handle")?);
        let offset = answer.get("mmap_offset").unwrap_or(0);
        if handle >> 32 != gpu {
            return Some(format!("handle {handle:#x} is not of GPU {gpu}"));
        }
        let user = kfd_uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR;
        let is_user = request.fields.get("flags").unwrap_or(0) & u64::from(user) != 0;
        (offset % 4096 != 0 && !is_user).then(|| format!("mmap_offset {offset:#x}"))
    }

    fn queue(&mut self, request: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (gpu, offset) = (
            request.fields.get("gpu_id")?,
            answer.get("doorbell_offset")?,
        );
        let inside = offset & ((1 << GPU) - 1);
        let right = offset >> TYPE == OF_DOORBELLS
            && offset >> GPU & 0xffff == gpu & 0xffff
            && inside < DOORBELLS
            && inside % DOORBELL == 0;
        (!right).then(|| format!("doorbell_offset {offset:#x} on GPU {gpu}"))
    }

    fn event(&mut self, request: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let kind = request.fields.get("event_type")? as u32;
        let signal = kfd_uapi::KFD_IOC_EVENT_SIGNAL;
        let has_slot = [signal, kfd_uapi::KFD_IOC_EVENT_DEBUG_EVENT].contains(&kind);
        let id = answer.get("event_id")?;
        if has_slot != (id < EVENTS) {
            return Some(format!("event {id:#x} of type {kind}"));
        }
        if answer.get("event_trigger_data")? != id {
            return Some(format!("event {id:#x} is triggered by another number"));
        }
        let offset = answer.get("event_page_offset")?;
        if has_slot && answer.get("event_slot_index")? != id {
            return Some(format!("event {id:#x} has another slot"));
        }
        (has_slot && offset != OF_EVENTS << TYPE).then(|| format!("event_page_offset {offset:#x}"))
    }

    fn wait(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        use kfd_uapi::{KFD_IOC_WAIT_RESULT_COMPLETE, KFD_IOC_WAIT_RESULT_TIMEOUT};
        let result = answer.get("wait_result")? as u32;
        let known = [KFD_IOC_WAIT_RESULT_COMPLETE, KFD_IOC_WAIT_RESULT_TIMEOUT];
        (!known.contains(&result)).then(|| format!("wait_result {result}"))
    }

    fn mapped(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (done, all) = (answer.get("n_success")?, answer.get("n_devices")?);
        (done != all).then(|| format!("{done} of {all} GPUs, and no error"))
    }

    fn available(&mut self, request: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (gpu, free) = (request.fields.get("gpu_id")?, answer.get("available")?);
        let all = self.facts.gpus.get(&(gpu as u32))?;
        (free > *all).then(|| format!("{free} of {all} bytes are free"))
    }

    fn clock(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let told = answer.get("cpu_clock_counter")?;
        let now = clock_gettime(ClockId::MonotonicRaw);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        if told > now {
            return Some(format!("cpu_clock_counter {told} is yet to come"));
        }
        let rate = answer.get("system_clock_freq")?;
        // Calls of two threads end in any order: a second is more than one takes.
        let back = told.saturating_add(rate) < self.clock;
        self.clock = self.clock.max(told);
        if back {
            return Some(format!("cpu_clock_counter goes back to {told}"));
        }
        (rate != 1_000_000_000).then(|| format!("system_clock_freq {rate}"))
    }

    fn version(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let major = answer.get("major_version")?;
        (major != u64::from(kfd_uapi::KFD_IOCTL_MAJOR_VERSION)).then(|| format!("major {major}"))
    }

    fn apertures(&mut self, request: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (asked, told) = (
            request.fields.get("num_of_nodes")?,
            answer.get("num_of_nodes")?,
        );
        let all = self.facts.all_gpus as u64;
        let wanted = if asked == 0 { all } else { asked.min(all) };
        (told != wanted).then(|| format!("{told} nodes of {all}, asked for {asked}"))
    }

    fn dmabuf(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        let (size, gpu) = (answer.get("size")?, answer.get("gpu_id")?);
        if size == 0 || size % 4096 != 0 {
            return Some(format!("a dma-buf of {size} bytes"));
        }
        (gpu == 0).then(|| "a dma-buf of no GPU".to_owned())
    }

    fn exported(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        file(answer.get("dmabuf_fd")?)
    }

    fn listener(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        file(answer.get("anon_fd")?)
    }

    fn wave_state(&mut self, _: &Request<'_>, answer: Fields<'_>) -> Option<String> {
        /// More than the save area of any GPU.
        const MOST: u64 = 1 << 30;
        let used = [
            answer.get("ctl_stack_used_size")?,
            answer.get("save_area_used_size")?,
        ];
        used.iter()
            .any(|it| *it > MOST)
            .then(|| format!("{used:?} bytes of wave state"))
    }
}

fn file(number: u64) -> Option<String> {
    (number as u32 as i32 <= 2).then(|| format!("file {number:#x}"))
}
