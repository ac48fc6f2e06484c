// SPDX-License-Identifier: GPL-2.0

//! A process in sysfs: `/sys/devices/virtual/kfd/kfd/proc/<pid>`, user ABI that monitors read.
//!
//! One [`Files`] for each process. Names, modes and formats are the C driver's. A file holds what it
//! needs to answer, so a reader takes none of the process's outer locks. A secondary process is a
//! directory of its primary one's.
//!
//! There is no `counters_<gpu_id>`: it counts the faults and migrations of shared virtual memory (SVM),
//! and is there in C only where that is.

use super::{
    Process,
    ProcessDevice,
    PRIMARY_CONTEXT, //
};
use crate::{
    ids::QueueId,
    linux::kobject::{
        self,
        Directory,
        Output,
        Show, //
    },
    linux::task::read_memory,
};
use core::fmt::Write;
use kernel::{
    device::Device,
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        global_lock,
        Arc,
        Mutex, //
    },
    task::Task,
};

global_lock! {
    // SAFETY: `prepare` below runs before anything else in the module.
    unsafe(uninit) static ROOT: Mutex<Option<Directory<Content>>> = None;
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
    let root = Directory::below_device(device, format_args!("proc"), kobject::Files::new())?;
    *ROOT.lock() = Some(root);
    Ok(())
}

/// Retracts it.
pub(crate) fn exit() {
    let root = ROOT.lock().take();
    drop(root);
}

/// `SDMA_ACTIVITY_DIVISOR` (kfd_priv.h): copy engines count time at 100 MHz, the file in microseconds.
const TICKS_PER_MICROSECOND: u64 = 100;

/// What a file shows.
enum Content {
    /// Always 0: a process has one for each VM.
    Pasid,
    Vram(Arc<ProcessDevice>),
    /// How long copy queues have been busy. They count in the process's memory.
    Sdma(Arc<ProcessDevice>, ARef<Task>),
    EvictedMs(Arc<ProcessDevice>),
    CuOccupancy(Arc<ProcessDevice>),
    QueueGpu(u32),
    QueueSize(Arc<ProcessDevice>, QueueId),
    QueueType(Arc<ProcessDevice>, QueueId),
}

impl Show for Content {
    fn show(&self, out: &mut Output<'_>) -> Result {
        let written = match self {
            Self::Pasid => writeln!(out, "0"),
            Self::Vram(device) => writeln!(out, "{}", device.buffers().vram_usage()),
            Self::Sdma(device, task) => writeln!(out, "{}", sdma_microseconds(device, task)?),
            Self::EvictedMs(device) => writeln!(out, "{}", device.queues().evicted_ms()),
            Self::CuOccupancy(device) => writeln!(out, "{}", device.queues().occupied_cus(device)),
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

/// The time that the process's copy queues on this GPU have been busy, those included that are gone.
fn sdma_microseconds(device: &ProcessDevice, task: &Task) -> Result<u64> {
    let (past, counters) = device.queues().sdma_counters()?;
    let present = counters
        .iter()
        .filter_map(|&address| read_memory(task, address).ok());
    Ok(present.fold(past, u64::wrapping_add) / TICKS_PER_MICROSECOND)
}

/// The files of a process. Fields are dropped from top to bottom: what lies in a directory first.
struct Published {
    queues: KVec<(QueueId, Directory<Content>)>,
    queue_directory: Directory<Content>,
    _process: Directory<Content>,
}

/// The files of a process, while they are published.
#[pin_data]
pub(crate) struct Files {
    #[pin]
    published: Mutex<Option<Published>>,
}

impl Files {
    /// None as yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self { published <- new_mutex!(None, "amdkfd::Files") })
    }

    /// Publishes them. A process works without them too.
    pub(super) fn publish(&self, process: &Process, primary: Option<&Process>) {
        let made = match primary {
            None => {
                let pid = process.lead.pid();
                let root = ROOT.lock();
                root.as_ref()
                    .ok_or(ENODEV)
                    .and_then(|root| root.own_child(format_args!("{pid}"), top_files(process)?))
            }
            Some(primary) => {
                let published = primary.files.published.lock();
                published.as_ref().ok_or(ENODEV).and_then(|files| {
                    let name = process.context;
                    let parent = &files._process;
                    parent.own_child(format_args!("context_{name}"), top_files(process)?)
                })
            }
        };
        match made.and_then(|directory| Published::new(directory, process)) {
            Ok(published) => *self.published.lock() = Some(published),
            Err(error) => pr_warn!("a process is not shown in sysfs ({error:?})\n"),
        }
    }

    /// Takes them away, and waits for readers.
    pub(super) fn retract(&self) {
        let published = self.published.lock().take();
        drop(published);
    }

    /// A queue begins.
    pub(crate) fn add_queue(&self, device: &Arc<ProcessDevice>, id: QueueId) {
        let mut published = self.published.lock();
        let Some(published) = &mut *published else {
            return;
        };
        if let Err(error) = published.add_queue(device, id) {
            pr_warn!("a queue is not shown in sysfs ({error:?})\n");
        }
    }

    /// A queue has ended.
    pub(crate) fn remove_queue(&self, id: QueueId) {
        let mut published = self.published.lock();
        let gone = (*published)
            .as_mut()
            .and_then(|published| published.take_queue(id));
        drop(published);
        drop(gone);
    }
}

fn top_files(process: &Process) -> Result<kobject::Files<Content>> {
    let mut files = kobject::Files::new();
    files.add(c"pasid", Content::Pasid)?;
    for device in &process.devices {
        let gpu = device.gpu_id().raw();
        let vram = Content::Vram(device.clone());
        files.add_named(format_args!("vram_{gpu}"), vram)?;
        let sdma = Content::Sdma(device.clone(), process.lead.clone());
        files.add_named(format_args!("sdma_{gpu}"), sdma)?;
    }
    Ok(files)
}

impl Published {
    fn new(mut directory: Directory<Content>, process: &Process) -> Result<Self> {
        for device in &process.devices {
            let mut files = kobject::Files::new();
            files.add(c"evicted_ms", Content::EvictedMs(device.clone()))?;
            files.add(c"cu_occupancy", Content::CuOccupancy(device.clone()))?;
            directory.child(format_args!("stats_{}", device.gpu_id().raw()), files)?;
        }
        let queue_directory = directory.own_child(format_args!("queues"), kobject::Files::new())?;
        Ok(Self {
            queues: KVec::new(),
            queue_directory,
            _process: directory,
        })
    }

    fn take_queue(&mut self, id: QueueId) -> Option<(QueueId, Directory<Content>)> {
        let place = self.queues.iter().position(|(other, _)| *other == id)?;
        self.queues.remove(place).ok()
    }

    fn add_queue(&mut self, device: &Arc<ProcessDevice>, id: QueueId) -> Result {
        let mut files = kobject::Files::new();
        files.add(c"gpuid", Content::QueueGpu(device.gpu_id().raw()))?;
        files.add(c"size", Content::QueueSize(device.clone(), id))?;
        files.add(c"type", Content::QueueType(device.clone(), id))?;
        self.queues.reserve(1, GFP_KERNEL)?;
        let name = id.raw();
        let directory = self
            .queue_directory
            .own_child(format_args!("{name}"), files)?;
        Ok(self.queues.push((id, directory), GFP_KERNEL)?)
    }
}

const _: () = assert!(PRIMARY_CONTEXT == u16::MAX);
