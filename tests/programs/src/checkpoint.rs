// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process that computes is saved while its kernel runs, and another process is made of that,
//! where the kernel goes on (CRIU_OP). What is saved can be printed, so that both drivers' can be
//! compared.

mod early;
mod held;
mod image;
mod named;
mod pending;
mod restored;
mod ring;
mod text;
mod twice;

use crate::bench::name;
use crate::running::{moves, say, Running};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use clap::{Args, Subcommand};
use image::{Places, Saved};
use kfd::{topology, Checkpoint, CheckpointSizes, Device, Kfd, Managed, Memory, MemoryFlags};
use kfd::{QueueKind, QueueMemory};
use nix::libc;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Save a process, make one of what was saved, or print what there is to save.
#[derive(Args)]
pub struct Save {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Save a process in the middle of a kernel, which goes on then.
    To { file: PathBuf },
    /// Become that process, and see its kernel end.
    From {
        file: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// Print what is saved of a process with one of each, and what bad calls come to.
    Print,
    /// Become that process with parts of it spoilt, one after the other: each is refused, and
    /// leaves nothing. Not for C, which crashes.
    Spoilt { file: PathBuf },
    /// Become that process while another thread asks for RESUME all the time. Not for C.
    Early { file: PathBuf },
    /// Ask for RESUME of a process that was not restored, while its buffers are locked
    /// (hold_info.ko). Not for C, which waits.
    Held,
    /// RESUME of a process; ends by the errno.
    #[command(hide = true)]
    Resume { pid: u32 },
    /// Have that fail while memory of its own comes and goes. Needs two GPUs. Not for C, which
    /// leaves the queues off.
    Pending { file: PathBuf },
}

impl Save {
    pub fn run(&self) -> Result<()> {
        let becomes = matches!(
            self.what,
            What::From { .. } | What::Spoilt { .. } | What::Early { .. } | What::Pending { .. }
        );
        if becomes {
            elsewhere()?;
        }
        match &self.what {
            What::To { file } => to(file),
            What::From { file, how } => restored::from(file, how),
            What::Print => print(),
            What::Spoilt { file } => restored::spoilt(file),
            What::Early { file } => early::run(file),
            What::Held => held::not_restored(),
            What::Resume { pid } => held::resume(*pid),
            What::Pending { file } => pending::run(file),
        }
    }
}

/// Begins anew as a process whose own memory is nowhere where a saved one has some: with the old
/// layout the kernel maps upwards from a third of the address space.
fn elsewhere() -> Result<()> {
    const LAYOUT: libc::c_ulong = libc::ADDR_COMPAT_LAYOUT as libc::c_ulong;
    // SAFETY: it asks, or has the kernel lay out the next program so.
    let kept = unsafe { libc::personality(0xffff_ffff) } as libc::c_ulong;
    if kept & LAYOUT != 0 {
        return Ok(());
    }
    // SAFETY: as above.
    let set = unsafe { libc::personality(kept | LAYOUT) };
    ensure!(set >= 0, "personality: {}", std::io::Error::last_os_error());
    let mut anew = std::process::Command::new(std::env::current_exe()?);
    Err(anew.args(std::env::args_os().skip(1)).exec().into())
}

/// How a process becomes another one.
#[derive(Args)]
pub struct How {
    /// Call the GPUs by other numbers than they have.
    #[arg(long)]
    renamed: bool,
    /// Ask for it once more, which is refused and changes nothing. Not for C, which does not let
    /// its queues run any more.
    #[arg(long)]
    twice: bool,
    /// Have it debug itself when its kernel has ended, and pass on a memory violation.
    #[arg(long)]
    debugged: bool,
    /// Have a page go before RESUME, and that not wait for who has its buffers locked
    /// (hold_info.ko). Not for C, which tells nobody, and waits.
    #[arg(long)]
    held: bool,
    /// Have a page of shared virtual memory missing at first, so that RESUME is to be repeated. Not
    /// for C, where what is repeated does nothing.
    #[arg(long)]
    late: bool,
}

/// Words that VRAM has.
pub(crate) const SEED: u32 = 0x5eed_0001;

/// A queue that has nothing to do.
fn idle_queue(device: &Arc<Device>, kind: QueueKind) -> Result<kfd::Queue> {
    let memory = QueueMemory {
        ring: Memory::gtt(device, 4096)?.into(),
        ring_size: 4096,
        indices: Memory::gtt(device, 4096)?.into(),
        write_index: 0,
        read_index: 64,
    };
    Ok(kfd::Queue::create(device, kind, memory)?)
}

/// A MiB of managed memory that does not lie across a multiple of 2 MiB: C makes two ranges, so two
/// objects, of what lies across a multiple of its largest range (`svm_range_set_max_pages`), which
/// is a power of two, at least 2 MiB.
fn managed(device: &Arc<Device>) -> kfd::Result<Managed> {
    const LARGEST: u64 = 2 << 20;
    // What does not fit stays until one that fits is found, or it would be found again.
    let mut unfit = Vec::new();
    loop {
        let memory = Managed::new(std::slice::from_ref(device), 1 << 20)?;
        if memory.address() % LARGEST + memory.size() as u64 <= LARGEST {
            return Ok(memory);
        }
        unfit.push(memory);
    }
}

/// Saves this process while a kernel counts in memory of its own.
fn to(file: &std::path::Path) -> Result<()> {
    let gpu = Gpu::open(4)?;
    let device = gpu.device();
    let vram = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
    let vram = Memory::allocate(device, 1 << 20, vram)?;
    crate::running::fill(&vram, SEED);
    let ticks = Memory::userptr(device, 4096)?;
    ticks.write(0, &[0u32]);
    let managed = managed(device).ok();
    let running = Running::start(&gpu, ticks.address())?;
    let others = [
        idle_queue(device, QueueKind::Pm4)?,
        idle_queue(device, QueueKind::Sdma)?,
        idle_queue(device, QueueKind::Sdma)?,
    ];
    ring::set(device.kfd(), others[0].id(), 0).context("a queue without a ring")?;
    let count = || ticks.read::<u32>(0, 1)[0];
    ensure!(moves(count), "the kernel does not run");
    let kfd = device.kfd();
    let sizes = kfd.pause()?;
    let before = count();
    std::thread::sleep(Duration::from_millis(50));
    ensure!(count() == before, "the kernel runs although it is paused");
    let checkpoint = kfd.checkpoint(sizes)?;
    let (flag, done, out) = running.places();
    let saved = Saved {
        places: Places {
            flag,
            done,
            out,
            ticks: ticks.address(),
            vram: vram.address(),
        },
        own: managed
            .iter()
            .map(|it| (it.address(), it.size() as u64))
            .chain([(ticks.address(), 4096)])
            .collect(),
        checkpoint,
    };
    // SAFETY: the thunk has mapped all of its buffers, which stay until the end.
    unsafe { saved.write(file)? };
    kfd.unpause()?;
    ensure!(moves(count), "the kernel does not go on");
    running.finish()?;
    say("saved, and goes on")
}

/// What `result` came to.
pub(crate) fn outcome<T>(result: kfd::Result<T>) -> String {
    match result {
        Ok(_) => "0".into(),
        Err(error) => error.errno().map_or(error.to_string(), |errno| {
            name(rustix::io::Errno::from_raw_os_error(errno.raw())).to_string()
        }),
    }
}

/// A process with one of each, and what is saved of it.
fn print() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    println!("nothing yet: {}", outcome(kfd.pause()));
    println!("go on: {}", outcome(kfd.unpause()));
    println!("go on again: {}", outcome(kfd.unpause()));
    let device = Device::acquire(&kfd, nodes.first().context("there is no GPU")?)?;
    let queue = |kind| idle_queue(&device, kind);
    let (aql, pm4) = (queue(QueueKind::Aql)?, queue(QueueKind::Pm4)?);
    let sdma = queue(QueueKind::Sdma)?;
    pm4.update(50, 11)?;
    aql.set_cu_mask(&[0x0f])?;
    let vram = Memory::vram(&device, 3 * 4096)?;
    let user = Memory::userptr(&device, 4096)?;
    let events = kfd::Events::new(&device)?;
    let event = kfd::Event::new(&events, kfd::EventKind::Signal, false)?;
    event.set()?;
    let _memory = kfd::Event::new(&events, kfd::EventKind::Memory, true)?;
    let _reset = kfd::Event::new(&events, kfd::EventKind::HardwareException, true)?;
    let none = CheckpointSizes::default();
    println!("without a pause: {}", outcome(kfd.checkpoint(none)));
    let sizes = kfd.pause()?;
    let again = kfd.pause()?;
    println!("twice the same: {}", again == sizes);
    println!(
        "{} GPUs, {} buffers, {} objects, own pid: {}",
        sizes.devices,
        sizes.buffers,
        sizes.objects,
        sizes.pid == std::process::id()
    );
    println!("other sizes: {}", outcome(kfd.checkpoint(none)));
    let saved = kfd.checkpoint(sizes)?;
    let stacks = text::print(&saved, device.gpu_id())?;
    println!("control stacks: {stacks} bytes");
    println!("{} bytes beside them", sizes.private - stacks as u64);
    println!("into a used process: {}", outcome(restore(&kfd, &saved)));
    println!("not restored: {}", outcome(kfd.resume(u32::MAX)));
    println!("go on: {}", outcome(kfd.unpause()));
    drop((aql, pm4, sdma, vram, user));
    Ok(())
}

/// The same checkpoint, to be restored: its files are not.
fn again(saved: &Checkpoint) -> Checkpoint {
    let mut copy = Checkpoint::default();
    copy.devices.clone_from(&saved.devices);
    copy.buffers.clone_from(&saved.buffers);
    copy.private.clone_from(&saved.private);
    copy.objects = saved.objects;
    copy
}

pub(crate) fn restore(kfd: &Arc<Kfd>, saved: &Checkpoint) -> kfd::Result<Checkpoint> {
    let mut copy = again(saved);
    // SAFETY: it is what a kernel has told, or is refused; what is spoilt names no memory but what
    // was the process's.
    unsafe { kfd.restore(&mut copy)? };
    Ok(copy)
}
