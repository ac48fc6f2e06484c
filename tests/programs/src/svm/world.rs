// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`World`]: the process that the scripts act in. It has GPUs, an area of address space that the
//! kernel gives to nobody by itself, buffers, and a file to call.

use super::attribute::number;
use crate::raw::{ioctl, ioctl_at, resized, Outcome};
use anyhow::{Context, Result};
use kfd::{topology, Device, Kfd, SvmAttribute};
use kfd_uapi as uapi;
use nix::libc;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

pub const PAGE: u64 = 4096;
/// The driver's granule by default.
pub const LARGE: u64 = 2 << 20;
/// Where the area begins: the kernel's own choices are far above and below.
pub const BASE: u64 = 0x6000_0000_0000;
/// Bytes of it.
const AREA: u64 = 2 << 30;
/// The largest request that has a size of its own.
const REQUEST: usize = 1 << 14;

/// A buffer of the driver's, by the name that a script gave it.
struct Buffer {
    name: String,
    handle: u64,
    offset: u64,
    start: u64,
    size: u64,
    /// Whether memory where it is may have attributes since.
    under: bool,
}

pub struct World {
    kfd: Arc<Kfd>,
    pub devices: Vec<Arc<Device>>,
    /// The GPUs' ids, in the order of the topology.
    pub gpus: Vec<u32>,
    /// What the calls go to.
    file: OwnedFd,
    buffers: Vec<Buffer>,
    pipe: (OwnedFd, OwnedFd),
    /// A page of the heap.
    heap: Vec<u8>,
    /// A place on the stack, of three pages.
    pub stack: u64,
}

/// What a call of libc came to.
fn outcome(result: c_int) -> Outcome {
    match result {
        -1 => Err(last()),
        _ => Ok(()),
    }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// As scripts say it: `rw`, `r`, `w`, `x`, `rwx` or `none`.
fn protection(text: &str) -> c_int {
    let one = |letter, flag| if text.contains(letter) { flag } else { 0 };
    match text {
        "none" => libc::PROT_NONE,
        _ => one('r', libc::PROT_READ) | one('w', libc::PROT_WRITE) | one('x', libc::PROT_EXEC),
    }
}

/// A new thread of it may be on any.
pub fn roam() {
    // SAFETY: the kernel reads the bits of as many CPUs as there are.
    unsafe {
        let all: libc::cpu_set_t = std::mem::transmute([0xffu8; size_of::<libc::cpu_set_t>()]);
        libc::sched_setaffinity(0, size_of_val(&all), &all);
    }
}

/// On one CPU: while the process sleeps, what it made the driver schedule there gets to run.
fn stay() -> Outcome {
    // SAFETY: an empty set is all zeros; the kernel reads one CPU's bit of it.
    outcome(unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one)
    })
}

/// Where the kernel says that the mapping of that name begins.
fn mapping(name: &str) -> Result<u64> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with(name));
    let line = line.with_context(|| format!("no mapping {name}"))?;
    let start = line.split('-').next().context("a line without a start")?;
    Ok(u64::from_str_radix(start, 16)?)
}

impl World {
    pub fn new(xnack: bool, stack: u64) -> Result<Self> {
        stay()?;
        let kfd = Kfd::open()?;
        // SAFETY: kernels are given addresses of the area, and of buffers.
        unsafe { kfd.set_xnack(xnack)? };
        let mut devices = Vec::new();
        for node in topology::gpus()? {
            devices.push(Device::acquire(&kfd, &node)?);
        }
        Ok(Self {
            file: kfd.as_fd().try_clone_to_owned()?,
            gpus: devices.iter().map(|device| device.gpu_id()).collect(),
            kfd,
            devices,
            buffers: Vec::new(),
            pipe: rustix::pipe::pipe()?,
            heap: vec![0; 3 * PAGE as usize],
            stack,
        })
    }

    /// Nothing is left in the area.
    /// Closes all files but the standard ones and those that memory is read through.
    pub fn close_all(&self) -> Result<String> {
        let kept = [self.pipe.0.as_raw_fd(), self.pipe.1.as_raw_fd()];
        for file in (3..1024).filter(|file| !kept.contains(file)) {
            // SAFETY: nobody in this process uses them any more: it is a child that was told so.
            unsafe { libc::close(file) };
        }
        Ok("0".into())
    }

    pub fn kfd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn clear(&mut self) -> Result<()> {
        self.primary()?;
        while let Some(name) = self.buffers.last().map(|buffer| buffer.name.clone()) {
            let gpus = self.gpus.clone();
            let _ = self.on_gpus(&name, &gpus, false)?;
            self.release(&name)?.context("FREE_MEMORY_OF_GPU")?;
        }
        self.unmap(BASE, AREA)?;
        Ok(())
    }

    pub fn primary(&mut self) -> Result<()> {
        self.file = self.kfd.as_fd().try_clone_to_owned()?;
        Ok(())
    }

    /// Calls go to another open `/dev/kfd`: `again`, or one with a `context` of its own.
    pub fn other_file(&mut self, kind: &str) -> Result<()> {
        let other = match kind {
            "context" => Kfd::open_secondary()?,
            _ => Kfd::open()?,
        };
        self.file = other.as_fd().try_clone_to_owned()?;
        Ok(())
    }

    /// A place or a length: pages, `2m` (of 2 MiB), `b8` (bytes), or the name of a mapping, added
    /// up; `=0x1000` stands for itself.
    pub fn bytes(&self, text: &str, base: u64) -> Result<u64> {
        if let Some(absolute) = text.strip_prefix('=') {
            return number(absolute);
        }
        let mut sum = base;
        for term in text.split('+') {
            sum = match term {
                "stack" => self.stack.next_multiple_of(PAGE),
                "heap" => (self.heap.as_ptr() as u64).next_multiple_of(PAGE),
                "code" => (mapping as fn(&str) -> Result<u64> as usize as u64) & !(PAGE - 1),
                "vvar" => mapping("[vvar]")?,
                "vdso" => mapping("[vdso]")?,
                _ => match (term.strip_suffix('m'), term.strip_prefix('b')) {
                    (Some(large), _) => sum + number(large)? * LARGE,
                    (_, Some(bytes)) => sum + number(bytes)?,
                    _ => sum + number(term)? * PAGE,
                },
            };
        }
        Ok(sum)
    }

    /// SET_ATTR (0), GET_ATTR (1) or another number, with so many attributes told of, and so many
    /// bytes.
    pub fn svm(
        &self,
        op: u32,
        [start, size]: [u64; 2],
        [told, bytes]: [u32; 2],
        attributes: &mut [SvmAttribute],
    ) -> Outcome {
        let mut words = vec![0u64; 2 * REQUEST / 8];
        let request = resized(uapi::IOC_SVM, bytes);
        let mut result = Err(Errno::AGAIN);
        // The kernel may say that it could not finish just now.
        for _ in 0..1000 {
            words[..3].copy_from_slice(&[start, size, u64::from(op) | u64::from(told) << 32]);
            for (word, attribute) in words[3..].iter_mut().zip(attributes.iter()) {
                *word = u64::from(attribute.type_) | u64::from(attribute.value) << 32;
            }
            // SAFETY: there is room for as many bytes as a request can say; the addresses in it
            // are ranges whose attributes change. GPUs get to write to memory of the area only.
            match unsafe { ioctl_at(self.file.as_fd(), request, words.as_mut_ptr() as u64) } {
                Err(Errno::INTR | Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
                other => {
                    result = other;
                    break;
                }
            }
        }
        result?;
        for (word, attribute) in words[3..].iter().zip(attributes) {
            attribute.type_ = *word as u32;
            attribute.value = (*word >> 32) as u32;
        }
        Ok(())
    }

    /// Maps what `kind` says: `private`, `shared`, `memfd` or `file` memory.
    pub fn map(&self, start: u64, size: u64, access: &str, kind: &str) -> Result<Outcome> {
        let fixed = libc::MAP_FIXED;
        let file = match kind {
            "memfd" => Some(rustix::fs::memfd_create(
                "svm",
                rustix::fs::MemfdFlags::CLOEXEC,
            )?),
            "file" => Some(fs::File::open(std::env::current_exe()?)?.into()),
            _ => None,
        };
        if let (Some(file), "memfd") = (&file, kind) {
            rustix::fs::ftruncate(file, size)?;
        }
        let flags = match kind {
            "memfd" => libc::MAP_SHARED,
            "file" => libc::MAP_PRIVATE,
            "shared" => libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            _ => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        };
        let fd = file.as_ref().map_or(-1, |file: &OwnedFd| file.as_raw_fd());
        // SAFETY: in the area, where only what the scripts map lies.
        let place = unsafe {
            libc::mmap(
                start as *mut c_void,
                size as usize,
                protection(access),
                flags | fixed,
                fd,
                0,
            )
        };
        Ok(match place == libc::MAP_FAILED {
            true => Err(last()),
            false => Ok(()),
        })
    }

    pub fn unmap(&self, start: u64, size: u64) -> Outcome {
        // SAFETY: in the area, as in `map`.
        outcome(unsafe { libc::munmap(start as *mut c_void, size as usize) })
    }

    pub fn protect(&self, start: u64, size: u64, access: &str) -> Outcome {
        let access = protection(access);
        // SAFETY: in the area, as in `map`.
        outcome(unsafe { libc::mprotect(start as *mut c_void, size as usize, access) })
    }

    pub fn advise(&self, start: u64, size: u64, advice: &str) -> Result<Outcome> {
        let advice = match advice {
            "dontneed" => libc::MADV_DONTNEED,
            "free" => libc::MADV_FREE,
            "remove" => libc::MADV_REMOVE,
            "hugepage" => libc::MADV_HUGEPAGE,
            "nohugepage" => libc::MADV_NOHUGEPAGE,
            "mergeable" => libc::MADV_MERGEABLE,
            "unmergeable" => libc::MADV_UNMERGEABLE,
            "dontfork" => libc::MADV_DONTFORK,
            "dofork" => libc::MADV_DOFORK,
            "wipeonfork" => libc::MADV_WIPEONFORK,
            "cold" => libc::MADV_COLD,
            "pageout" => libc::MADV_PAGEOUT,
            "collapse" => libc::MADV_COLLAPSE,
            _ => anyhow::bail!("{advice} is no advice"),
        };
        // SAFETY: in the area, as in `map`.
        Ok(outcome(unsafe {
            libc::madvise(start as *mut c_void, size as usize, advice)
        }))
    }

    /// The process gets no large pages.
    pub fn forbid_large(&self) -> Outcome {
        // SAFETY: of numbers.
        outcome(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) })
    }

    /// Moves what is mapped, or makes it longer or shorter; `keep` leaves an empty mapping behind.
    pub fn remap(&self, start: u64, size: u64, to: u64, new: u64, keep: bool) -> Outcome {
        let flags = match (start == to, keep) {
            (true, _) => 0,
            (_, false) => libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            (_, true) => libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP,
        };
        let place = start as *mut c_void;
        // SAFETY: both in the area, as in `map`.
        let now = unsafe {
            match flags {
                0 => libc::mremap(place, size as usize, new as usize, 0),
                _ => libc::mremap(place, size as usize, new as usize, flags, to),
            }
        };
        match now == libc::MAP_FAILED {
            true => Err(last()),
            false => Ok(()),
        }
    }

    /// Writes the first word of a page. EFAULT where it cannot be written.
    pub fn poke(&self, address: u64, word: u32) -> Outcome {
        rustix::io::write(&self.pipe.1, &word.to_le_bytes())?;
        // SAFETY: the kernel checks the address, which is the area's.
        let result = unsafe { libc::read(self.pipe.0.as_raw_fd(), address as *mut c_void, 4) };
        if result == 4 {
            return Ok(());
        }
        let errno = last();
        self.drain()?;
        Err(errno)
    }

    /// The first word of a page.
    pub fn peek(&self, address: u64) -> std::result::Result<u32, Errno> {
        // SAFETY: the kernel checks the address.
        let result = unsafe { libc::write(self.pipe.1.as_raw_fd(), address as *const c_void, 4) };
        if result != 4 {
            return Err(last());
        }
        let mut word = [0; 4];
        rustix::io::read(&self.pipe.0, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    /// The word at an address of the area that is mapped, as a load finds it.
    pub fn word(&self, address: u64) -> u32 {
        assert!((BASE..BASE + AREA - 3).contains(&address) && address % 4 == 0);
        // SAFETY: in the area, which nobody has references to; the caller has mapped it.
        unsafe { (address as *const u32).read_volatile() }
    }

    /// What the kernel could not take out of the pipe goes out of it.
    /// Writes a word there, as a store does.
    pub fn store(&self, address: u64, word: u32) {
        assert!((BASE..BASE + AREA - 3).contains(&address) && address % 4 == 0);
        // SAFETY: as in `word`.
        unsafe { (address as *mut u32).write_volatile(word) };
    }

    fn drain(&self) -> Outcome {
        let mut rest = [0; 4];
        rustix::io::read(&self.pipe.0, &mut rest).map(drop)
    }

    /// ALLOC_MEMORY_OF_GPU: `vram`, `gtt`, `ring` (GTT that is mapped twice in a row, of half the
    /// size), or `userptr` of the memory at `memory`.
    pub fn alloc(&mut self, name: &str, kind: &str, at: [u64; 3], gpu: u32) -> Result<Outcome> {
        let [start, size, memory] = at;
        let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
            | match kind {
                "vram" => uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM,
                "gtt" => uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
                "ring" => {
                    uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM
                }
                "userptr" => uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
                _ => anyhow::bail!("{kind} is no buffer"),
            };
        let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr: start,
            size,
            mmap_offset: memory,
            gpu_id: gpu,
            flags,
            ..Default::default()
        };
        let outcome = ioctl(self.file.as_fd(), uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut args);
        if outcome.is_ok() {
            self.buffers.push(Buffer {
                name: name.into(),
                handle: args.handle,
                offset: args.mmap_offset,
                start,
                size,
                under: false,
            });
        }
        Ok(outcome)
    }

    fn buffer(&self, name: &str) -> Option<&Buffer> {
        self.buffers.iter().find(|buffer| buffer.name == name)
    }

    pub fn has_buffer(&self, name: &str) -> bool {
        self.buffer(name).is_some()
    }

    /// Memory has attributes, perhaps.
    pub fn note_attributes(&mut self, start: u64, size: u64) {
        for buffer in &mut self.buffers {
            buffer.under |= start < buffer.start + buffer.size && buffer.start < start + size;
        }
    }

    /// Whether memory where a buffer is may have attributes that it had not when that was made.
    pub fn is_under_attributes(&self, name: &str) -> bool {
        self.buffer(name).is_some_and(|buffer| buffer.under)
    }

    /// MAP_MEMORY_TO_GPU or UNMAP_MEMORY_FROM_GPU.
    pub fn on_gpus(&self, name: &str, gpus: &[u32], map: bool) -> Result<Outcome> {
        let handle = self.buffer(name).context("no such buffer")?.handle;
        let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
            handle,
            device_ids_array_ptr: gpus.as_ptr() as u64,
            n_devices: gpus.len() as u32,
            n_success: 0,
        };
        let request = match map {
            true => uapi::IOC_MAP_MEMORY_TO_GPU,
            false => uapi::IOC_UNMAP_MEMORY_FROM_GPU,
        };
        Ok(ioctl(self.file.as_fd(), request, &mut args))
    }

    pub fn release(&mut self, name: &str) -> Result<Outcome> {
        let handle = self.buffer(name).context("no such buffer")?.handle;
        let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
        let outcome = ioctl(self.file.as_fd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut args);
        if outcome.is_ok() {
            self.buffers.retain(|buffer| buffer.name != name);
        }
        Ok(outcome)
    }

    /// Maps a buffer for the CPU: a mapping of the device's.
    pub fn show(&self, name: &str, start: u64, size: u64) -> Result<Outcome> {
        let buffer = self.buffer(name).context("no such buffer")?;
        // SAFETY: in the area, as in `map`.
        let place = unsafe {
            libc::mmap(
                start as *mut c_void,
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                self.devices[0].render().as_raw_fd(),
                buffer.offset as libc::off_t,
            )
        };
        Ok(match place == libc::MAP_FAILED {
            true => Err(last()),
            false => Ok(()),
        })
    }
}
