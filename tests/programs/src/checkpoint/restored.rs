// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process that becomes another one, which was saved.

use super::image::{is_exported, Read_};
use super::{held, named, outcome, restore, ring, twice, How, SEED};
use crate::raw::ioctl;
use crate::running::{moves, pattern, say, PATIENCE};
use crate::waves::GROUP;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Kfd};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// What `--renamed` adds to the numbers of GPUs: they stay 16 bits.
const RENAMED: u32 = 0x1000_0000;

fn word(address: u64) -> &'static AtomicU32 {
    // SAFETY: the caller names a word of memory that was mapped for good.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

/// Maps memory of its own where the saved process had some.
pub fn own_memory(read: &Read_) -> Result<()> {
    for (address, bytes) in &read.saved.own {
        // SAFETY: nothing is mapped there, or it fails.
        unsafe {
            mmap_anonymous(
                *address as *mut _,
                *bytes as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
            )
            .context("its own memory")?;
        }
        fill(read, *address)?;
    }
    Ok(())
}

/// Writes what was there.
fn fill(read: &Read_, address: u64) -> Result<()> {
    let held = read.contents.iter().find(|(it, _)| *it == address);
    let (_, held) = held.context("no contents")?;
    for (at, bytes) in (0u64..).step_by(8).zip(held.chunks_exact(8)) {
        // SAFETY: it was mapped by the caller, as large as it is.
        let word = unsafe { AtomicU64::from_ptr((address + at) as *mut u64) };
        word.store(u64::from_le_bytes(bytes.try_into()?), Ordering::Relaxed);
    }
    Ok(())
}

fn map_file(file: BorrowedFd<'_>, address: u64, bytes: u64, offset: u64) -> Result<()> {
    // SAFETY: nothing is mapped there, or it fails.
    unsafe {
        mmap(
            address as *mut _,
            bytes as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
            file,
            offset,
        )
        .with_context(|| format!("mmap {address:#x}"))?;
    }
    Ok(())
}

/// Opens a render node for each GPU, and says so in what is to be restored. `renamed`: GPUs get
/// other numbers there and in each object that names one.
pub fn open_devices(read: &mut Read_) -> Result<Vec<OwnedFd>> {
    let nodes = topology::gpus()?;
    let mut files = Vec::new();
    for device in &mut read.saved.checkpoint.devices {
        let node = nodes
            .iter()
            .find(|node| node.gpu_id == device.actual_gpu_id);
        let node = node.context("the GPU is not there")?;
        let path = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
        let file = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        device.drm_fd = file.as_raw_fd() as u32;
        files.push(file);
    }
    Ok(files)
}

/// Has the process call its GPUs by other numbers: each word of what is restored that is one.
fn rename(read: &mut Read_) {
    let kept = &mut read.saved.checkpoint;
    let names: Vec<u32> = kept.devices.iter().map(|it| it.actual_gpu_id).collect();
    let known = |id: u32| names.contains(&id);
    kept.devices
        .iter_mut()
        .for_each(|it| it.user_gpu_id += RENAMED);
    kept.buffers.iter_mut().for_each(|it| it.gpu_id += RENAMED);
    // In what only the kernel understands the numbers stand as words, and nothing else is as large.
    for bytes in kept.private.chunks_exact_mut(4) {
        let id = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if known(id) {
            bytes.copy_from_slice(&(id + RENAMED).to_le_bytes());
        }
    }
}

/// Becomes the process of the file, whose kernel goes on and ends.
pub fn from(file: &Path, how: &How) -> Result<()> {
    let mut read = Read_::read(file)?;
    if how.renamed {
        rename(&mut read);
    }
    if how.late {
        // Without retries RESUME maps all that GPUs see.
        put(&mut read.saved.checkpoint, 4, 0);
    }
    own_memory(&read)?;
    let kfd = Kfd::open()?;
    let files = open_devices(&mut read)?;
    let restored = restore(&kfd, &read.saved.checkpoint).context("RESTORE")?;
    for buffer in restored.buffers.iter().filter(|it| is_exported(it)) {
        let place = restored
            .devices
            .iter()
            .position(|it| it.user_gpu_id == buffer.gpu_id);
        let file = files.get(place.context("no GPU")?).context("no file")?;
        map_file(
            file.as_fd(),
            buffer.addr,
            buffer.size,
            buffer.restored_offset,
        )?;
        fill(&read, buffer.addr)?;
    }
    let places = read.saved.places;
    let before = word(places.ticks).load(Ordering::Relaxed);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let now = word(places.ticks).load(Ordering::Relaxed);
    ensure!(now == before, "its kernel runs before it is resumed");
    if how.twice {
        twice::refused(&kfd, &read.saved.checkpoint).context("before it is resumed")?;
    }
    if how.held {
        let gpu = read.saved.checkpoint.devices.first().context("no GPU")?;
        held::goes(gpu.actual_gpu_id, places.ticks)?;
        held::waits_not(files.first().context("no GPU")?, word(places.ticks))?;
    } else if how.late {
        let (area, _) = read.saved.own.first().context("no memory of its own")?;
        held::not_without(&kfd, *area).context("RESUME")?;
    } else {
        kfd.resume(std::process::id()).context("RESUME")?;
    }
    println!("resumed twice: {}", outcome(kfd.resume(std::process::id())));
    ensure!(
        moves(|| word(places.ticks).load(Ordering::Relaxed)),
        "its kernel stands still"
    );
    say("goes on there")?;
    if how.twice {
        twice::refused(&kfd, &read.saved.checkpoint).context("when it was resumed")?;
        ring::back(&kfd, &read.saved.checkpoint)?;
        ensure!(
            moves(|| word(places.ticks).load(Ordering::Relaxed)),
            "its kernel stands still after it"
        );
    }
    word(places.flag).store(1, Ordering::Relaxed);
    let begin = Instant::now();
    // `amd_signal_t.value`.
    while word(places.done + 8).load(Ordering::Acquire) != 0 {
        ensure!(begin.elapsed() < PATIENCE, "its kernel does not end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for item in 0..GROUP {
        let got = word(places.out + 4 * u64::from(item)).load(Ordering::Relaxed);
        ensure!(got == item * 3 + 1, "item {item} has {got}");
    }
    for page in 0..(1 << 20) / 4096 {
        let got = word(places.vram + 4096 * page as u64).load(Ordering::Relaxed);
        ensure!(
            got == pattern(page, SEED),
            "page {page} of VRAM has {got:x}"
        );
    }
    again(&kfd)?;
    if how.debugged {
        named::by_debugger(&kfd, &read.saved.checkpoint).context("a memory violation")?;
    }
    say("ended there")
}

/// What is restored is saved again.
fn again(kfd: &Arc<Kfd>) -> Result<()> {
    let sizes = kfd.pause().context("a second PROCESS_INFO")?;
    let saved = kfd.checkpoint(sizes).context("a second CHECKPOINT")?;
    println!("saved again: {} objects", saved.objects);
    kfd.unpause().context("a second UNPAUSE")?;
    Ok(())
}

/// How a checkpoint is spoilt.
type Spoil = fn(&mut kfd::Checkpoint);

/// Where buffers' private data begin.
pub fn buffers_at(kept: &kfd::Checkpoint) -> usize {
    8 + 8 * kept.devices.len()
}

pub fn objects_at(kept: &kfd::Checkpoint) -> usize {
    buffers_at(kept) + 272 * kept.buffers.len()
}

pub fn put(kept: &mut kfd::Checkpoint, at: usize, value: u32) {
    if let Some(place) = kept.private.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// A copy queue brings a word of a control stack.
fn stack_of_copies(kept: &mut kfd::Checkpoint) {
    const SDMA: u32 = 1;
    let queues = ring::queues(kept).unwrap_or_default();
    if let Some(queue) = queues.iter().find(|queue| queue.kind == SDMA) {
        let (begin, end) = (queue.place.start, queue.place.end);
        kept.private.splice(end..end, [0; 4]);
        put(kept, begin + 108, 4);
    }
}

/// Each in a process of its own: one that has a VM is not restored once more. What is spoilt, and
/// the errno.
const SPOILT: &[(&str, Spoil, i32)] = &[
    ("another version", |it| put(it, 0, 2), nix::libc::EINVAL),
    (
        "a device less",
        |it| {
            it.devices.pop();
        },
        nix::libc::EINVAL,
    ),
    (
        "a device of no name",
        |it| it.devices[0].user_gpu_id = 0,
        nix::libc::EINVAL,
    ),
    (
        "a device that is not there",
        |it| it.devices[0].actual_gpu_id = 1,
        nix::libc::EINVAL,
    ),
    (
        "no render node",
        |it| it.devices[0].drm_fd = u32::MAX,
        nix::libc::EINVAL,
    ),
    (
        "another file",
        |it| it.devices[0].drm_fd = 0,
        nix::libc::EINVAL,
    ),
    (
        "a buffer of no GPU",
        |it| it.buffers[0].gpu_id = 1,
        nix::libc::ENODEV,
    ),
    (
        "a huge buffer",
        |it| it.buffers[0].size = 1 << 60,
        nix::libc::ENOMEM,
    ),
    (
        "a buffer without bytes",
        |it| it.buffers[0].size = 0,
        nix::libc::EINVAL,
    ),
    (
        "a huge number",
        |it| put(it, buffers_at(it) + 8, u32::MAX),
        nix::libc::EINVAL,
    ),
    (
        "a large number",
        |it| put(it, buffers_at(it) + 8, 1 << 30),
        nix::libc::ENOMEM,
    ),
    (
        "two of a number",
        |it| put(it, buffers_at(it) + 272 + 8, 0),
        nix::libc::ENOMEM,
    ),
    (
        "seen by no GPU",
        |it| put(it, buffers_at(it) + 12, 1),
        nix::libc::EINVAL,
    ),
    (
        "a type of object",
        |it| put(it, objects_at(it), 3),
        nix::libc::EINVAL,
    ),
    (
        "a queue of no GPU",
        |it| put(it, objects_at(it) + 64, 1),
        nix::libc::EINVAL,
    ),
    (
        "a queue of no type",
        |it| put(it, objects_at(it) + 68, 9),
        nix::libc::EINVAL,
    ),
    (
        "a queue's huge id",
        |it| put(it, objects_at(it) + 76, 1 << 20),
        nix::libc::EINVAL,
    ),
    (
        "a queue's huge doorbell",
        |it| put(it, objects_at(it) + 88, 1 << 20),
        nix::libc::EINVAL,
    ),
    (
        "a huge control stack",
        |it| put(it, objects_at(it) + 108, 1 << 30),
        nix::libc::EINVAL,
    ),
    (
        "a short descriptor",
        |it| put(it, objects_at(it) + 112, 4),
        nix::libc::EINVAL,
    ),
    (
        "a copy queue's control stack",
        stack_of_copies,
        nix::libc::EINVAL,
    ),
    ("an object less", |it| it.objects -= 1, nix::libc::EINVAL),
    ("an object more", |it| it.objects += 1, nix::libc::EINVAL),
    (
        "too short",
        |it| {
            it.private.pop();
        },
        nix::libc::EINVAL,
    ),
    ("too long", |it| it.private.push(0), nix::libc::EINVAL),
    ("no devices", |it| it.devices.clear(), nix::libc::EINVAL),
    (
        "no private data",
        |it| it.private.clear(),
        nix::libc::EINVAL,
    ),
];

/// Each is refused, and the process is as before but for its VMs.
pub fn spoilt(file: &Path) -> Result<()> {
    let each = SPOILT.iter().map(|(what, spoil, errno)| {
        let one = move || one_spoilt(file, *spoil, *errno);
        ((*what).to_string(), one)
    });
    in_children(each)
}

/// Calls each in a process of its own, and says which fail.
pub fn in_children<F>(each: impl Iterator<Item = (String, F)>) -> Result<()>
where
    F: FnOnce() -> Result<()>,
{
    let mut right = true;
    for (what, call) in each {
        // SAFETY: there is one thread, and the child ends by itself.
        match unsafe { nix::unistd::fork()? } {
            nix::unistd::ForkResult::Child => {
                let failed = call();
                if let Err(error) = &failed {
                    println!("{what}: {error:#}");
                }
                std::process::exit(i32::from(failed.is_err()));
            }
            nix::unistd::ForkResult::Parent { child } => {
                let ended = nix::sys::wait::waitpid(child, None)?;
                right &= ended == nix::sys::wait::WaitStatus::Exited(child, 0);
            }
        }
    }
    ensure!(right, "not each came to what it should");
    Ok(())
}

/// Whether PROCESS_INFO is all that keeps the process's queues off.
pub fn is_balanced(kfd: &Arc<Kfd>) -> Result<bool> {
    const STEP: u64 = 20;
    let gpu_id = topology::gpus()?.first().context("no GPU")?.gpu_id;
    let pid = std::process::id();
    let evicted = || -> Result<u64> {
        let file = format!("/sys/class/kfd/kfd/proc/{pid}/stats_{gpu_id}/evicted_ms");
        let begin = Instant::now();
        // It comes a moment after the VM.
        while !Path::new(&file).exists() && begin.elapsed() < PATIENCE {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        Ok(text.trim().parse()?)
    };
    let before = evicted()?;
    kfd.pause()?;
    std::thread::sleep(std::time::Duration::from_millis(STEP));
    kfd.unpause()?;
    // What was kept off before counts, too, when that ends.
    Ok(evicted()? >= before + STEP / 2)
}

fn one_spoilt(file: &Path, spoil: Spoil, errno: i32) -> Result<()> {
    let mut read = Read_::read(file)?;
    own_memory(&read)?;
    let kfd = Kfd::open()?;
    let files = open_devices(&mut read)?;
    let gpus: Vec<u32> = read
        .saved
        .checkpoint
        .devices
        .iter()
        .map(|it| it.actual_gpu_id)
        .collect();
    spoil(&mut read.saved.checkpoint);
    let error = restore(&kfd, &read.saved.checkpoint)
        .err()
        .context("it was restored")?;
    let came = error.errno().map(|it| it.raw());
    ensure!(came == Some(errno), "{error:#}, and not errno {errno}");
    let sizes = kfd.pause()?;
    let left = (sizes.buffers, sizes.objects);
    ensure!(
        left == (0, 0),
        "{} buffers and {} objects are left",
        left.0,
        left.1
    );
    kfd.unpause()?;
    // For what has no VM no time is counted.
    for (gpu_id, file) in gpus.into_iter().zip(&files) {
        let drm_fd = file.as_fd().as_raw_fd() as u32;
        let mut args = uapi::kfd_ioctl_acquire_vm_args { drm_fd, gpu_id };
        // It may have one.
        let _ = ioctl(kfd.as_fd(), uapi::IOC_ACQUIRE_VM, &mut args);
    }
    // A worker of amdgpu's does that.
    let begin = Instant::now();
    while !is_balanced(&kfd)? {
        ensure!(begin.elapsed() < PATIENCE, "its queues stay off");
    }
    let resumed = kfd
        .resume(std::process::id())
        .err()
        .and_then(|it| it.errno());
    let resumed = resumed.map(|it| it.raw());
    ensure!(resumed == Some(nix::libc::EINVAL), "resumed: {resumed:?}");
    Ok(())
}
