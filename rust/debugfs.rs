// SPDX-License-Identifier: GPL-2.0-only

//! What a tester may look at: /sys/kernel/debug/amdkfd.
//!
//! `counts` says how many there are of what must not leak, one `name value` a line; `rls` and `mqds`
//! show run lists and descriptors as the hardware sees them, in the form in which the C driver shows
//! its own, `hqds` the registers of all queue slots, and `mem_limit` amdgpu's account of the memory that processes
//! may have. `proc/<pid>` has the pasids of a process, a file for each GPU. Whoever writes a `gpu_id` to `hang_hws` hangs
//! that GPU's scheduler, which is found out at once and ends in a reset. `queues` tells of every queue whose it is and
//! where its ring and indices lie, for tools that watch programs (`kfdctl top`). One [`Debugfs`], owned by the module.

use crate::{
    doorbell,
    event,
    gfx::Words,
    gpu,
    ids::GpuId,
    kgd::Register,
    memory,
    process::{
        self,
        ProcessDevice, //
    },
    queue, //
};
use core::sync::atomic::{
    AtomicUsize,
    Ordering, //
};
use kernel::{
    c_str,
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    str::CString,
    sync::{
        global_lock,
        Arc, //
    },
    uaccess::UserSliceReader, //
};

global_lock! {
    // SAFETY: `prepare` below runs before anything else in the module.
    unsafe(uninit) static PROC: Mutex<Option<Dir>> = None;
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn prepare() {
    // SAFETY: By this function's own contract.
    unsafe { PROC.init() };
}

/// How many there are of something, for the whole module.
pub(crate) struct Gauge(AtomicUsize);

/// One of what a [`Gauge`] counts.
pub(crate) struct Held(&'static Gauge);

impl Gauge {
    /// None.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// One more, until what is returned is dropped.
    pub(crate) fn hold(&'static self) -> Held {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What `counts` shows.
static GAUGES: [(&str, &Gauge); 6] = [
    ("processes", &process::PROCESSES),
    ("process_devices", &process::device::DEVICES),
    ("events", &event::EVENTS),
    ("queues", &queue::QUEUES),
    ("doorbells", &doorbell::TAKEN),
    ("buffers", &memory::BUFFERS),
];

/// Words as `seq_hex_dump` writes them: eight a line, after their offset in bytes.
pub(crate) fn dump(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    words: &dyn Words,
    count: usize,
) -> fmt::Result {
    for start in (0..count).step_by(8) {
        write!(f, "{indent}{:08x}:", start * size_of::<u32>())?;
        for dword in start..count.min(start + 8) {
            write!(f, " {:08x}", words.get(dword))?;
        }
        f.write_str("\n")?;
    }
    Ok(())
}

/// Registers, eight a line as long as each follows the one before, after the first one's offset.
pub(crate) fn dump_registers(f: &mut fmt::Formatter<'_>, registers: &[Register]) -> fmt::Result {
    // CAST: 4.
    let next = |before: &Register| before.offset.wrapping_add(size_of::<u32>() as u32);
    for run in registers.chunk_by(|one, other| next(one) == other.offset) {
        for line in run.chunks(8) {
            write!(
                f,
                "    {:08x}:",
                line.first().map_or(0, |first| first.offset)
            )?;
            for register in line {
                write!(f, " {:08x}", register.value)?;
            }
            f.write_str("\n")?;
        }
    }
    Ok(())
}

/// Hangs the scheduler of the GPU whose decimal `gpu_id` is written. `EINVAL`: there is none.
fn hang(reader: &mut UserSliceReader) -> Result {
    let mut text = [0u8; 16];
    let length = reader.len();
    reader.read_slice(text.get_mut(..length).ok_or(EINVAL)?)?;
    let text = core::str::from_utf8(text.get(..length).unwrap_or(&[])).map_err(|_| EINVAL)?;
    let id = text.trim().parse().map_err(|_| EINVAL)?;
    let node = GpuId::new(id).and_then(gpu::node).ok_or(EINVAL)?;
    node.queues().hang()
}

/// Calls `show` for each node, after a line with its name.
fn each_node(
    f: &mut fmt::Formatter<'_>,
    show: fn(&queue::NodeQueues, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let nodes = gpu::nodes().map_err(|_| fmt::Error)?;
    for node in nodes.iter() {
        writeln!(f, "GPU {:x}:", node.id().raw())?;
        show(node.queues(), f)?;
    }
    Ok(())
}

/// The pasids of a process, one for each GPU: a directory. Fields are dropped from top to bottom.
pub(crate) struct Pasids {
    _files: KVec<Pin<KBox<File<Arc<ProcessDevice>>>>>,
    directory: Dir,
}

impl Pasids {
    /// Shows those of `devices` in a directory of this name, which is in `parent` or in `proc`.
    pub(crate) fn new(
        name: fmt::Arguments<'_>,
        parent: Option<&Self>,
        devices: &[Arc<ProcessDevice>],
    ) -> Result<Self> {
        let name = CString::try_from_fmt(name)?;
        let directory = match parent {
            Some(parent) => parent.directory.subdir(&name),
            None => PROC.lock().as_ref().ok_or(ENODEV)?.subdir(&name),
        };
        let mut files = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        for device in devices {
            let name = CString::try_from_fmt(fmt!("pasid_{}", device.gpu_id().raw()))?;
            let show: &'static _ = &|device: &Arc<ProcessDevice>, f: &mut fmt::Formatter<'_>| {
                // Without a VM it has none yet.
                writeln!(f, "{}", device.vm().map_or(0, |vm| vm.pasid().raw()))
            };
            let file = directory.read_callback_file(&name, device.clone(), show);
            files.push(KBox::pin_init(file, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(Self {
            _files: files,
            directory,
        })
    }
}

/// Amdgpu's account of the memory that processes may have.
fn show_memory_limits(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let nodes = gpu::nodes().map_err(|_| fmt::Error)?;
    let Some(node) = nodes.first() else {
        return Ok(());
    };
    let mut text = [0; 256];
    let length = node.kgd().memory_limits(&mut text);
    let text = core::str::from_utf8(text.get(..length).unwrap_or(&[]));
    f.write_str(text.map_err(|_| fmt::Error)?)
}

/// The directory and its files.
#[pin_data(PinnedDrop)]
pub(crate) struct Debugfs {
    #[pin]
    counts: File<()>,
    #[pin]
    rls: File<()>,
    #[pin]
    mqds: File<()>,
    #[pin]
    hqds: File<()>,
    #[pin]
    mem_limit: File<()>,
    #[pin]
    hang_hws: File<()>,
    #[pin]
    queues: File<()>,
}

impl Debugfs {
    /// Makes the directory; where there is no debugfs this does nothing.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        let dir = Dir::new(c_str!("amdkfd"));
        *PROC.lock() = Some(dir.subdir(c_str!("proc")));
        KBox::pin_init(
            try_pin_init!(Self {
                counts <- dir.read_callback_file(c_str!("counts"), (), &|(), f| {
                    GAUGES.iter().try_for_each(|(name, gauge)| {
                        writeln!(f, "{name} {}", gauge.0.load(Ordering::Relaxed))
                    })
                }),
                rls <- dir.read_callback_file(c_str!("rls"), (), &|(), f| {
                    each_node(f, queue::NodeQueues::show_run_list)
                }),
                mqds <- dir.read_callback_file(c_str!("mqds"), (), &|(), f| {
                    each_node(f, queue::NodeQueues::show_descriptors)
                }),
                hqds <- dir.read_callback_file(c_str!("hqds"), (), &|(), f| {
                    each_node(f, queue::NodeQueues::show_slots)
                }),
                mem_limit <- dir.read_callback_file(c_str!("mem_limit"), (), &|(), f| {
                    show_memory_limits(f)
                }),
                hang_hws <- dir.read_write_callback_file(
                    c_str!("hang_hws"),
                    (),
                    &|(), f| f.write_str("echo gpu_id > hang_hws\n"),
                    &|(), reader| hang(reader),
                ),
                queues <- dir.read_callback_file(c_str!("queues"), (), &|(), f| {
                    let processes = process::all().map_err(|_| fmt::Error)?;
                    processes.iter().try_for_each(|process| {
                        // Who has read this finds the same in sysfs.
                        process.files().settle();
                        process.show_queues(f)
                    })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[pinned_drop]
impl PinnedDrop for Debugfs {
    fn drop(self: Pin<&mut Self>) {
        let proc = PROC.lock().take();
        drop(proc);
    }
}
