// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! SMI events: causes each of them, and prints what the file has. Times are left
//! out, and who is meant is named, so that the lines of both drivers can be compared.

use crate::bench::{name, Bench};
use crate::raw::ioctl;
use crate::running::{Running, PATIENCE};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Event, EventKind, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// Print what the GPU's file tells of a process that comes and goes, of one that errs, of memory
/// that moves, of a reset, of a GPU that throttles.
#[derive(Args)]
pub struct Smi {
    /// Only get a VM on the GPU, and end.
    #[arg(long)]
    visit: bool,
    /// Get a VM, and have a kernel write where nothing is.
    #[arg(long)]
    fault: bool,
    /// Reset the GPU too.
    #[arg(long)]
    reset: bool,
    /// Only say when the file is open, and what it then tells of a GPU that throttles.
    #[arg(long)]
    throttle: bool,
}

/// How a line of `KFD_SMI_EVENT_VMFAULT` begins.
const FAULT: &str = "1 ";

/// A file of events.
struct File {
    fd: OwnedFd,
    gpu: String,
    children: Vec<u32>,
}

impl File {
    fn open(kfd: &Kfd, gpu_id: u32, mask: u64) -> Result<Self> {
        let mut args = uapi::kfd_ioctl_smi_events_args {
            gpuid: gpu_id,
            anon_fd: 0,
        };
        ioctl(kfd.as_fd(), uapi::IOC_SMI_EVENTS, &mut args)?;
        // SAFETY: the kernel has just made it for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) };
        ensure!(
            rustix::io::write(&fd, &mask.to_ne_bytes())? == 8,
            "the mask was not taken"
        );
        Ok(Self {
            fd,
            gpu: format!("{gpu_id:x}"),
            children: Vec::new(),
        })
    }

    /// Prints the lines that are told until the event with the number `last`, in hexadecimal, has
    /// come `count` times, or nothing comes for some seconds. Faults that repeat the one before are
    /// left out: a wave may err again before it is stopped.
    fn show(&self, case: &str, last: &str, count: usize) -> Result<()> {
        let mut text = String::new();
        let mut room = [0u8; 4096];
        let is_last = |line: &&str| line.split(' ').next() == Some(last);
        while text.lines().filter(is_last).count() < count {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let wait = Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            };
            if poll(&mut fds, Some(&wait))? == 0 {
                break;
            }
            let bytes = rustix::io::read(&self.fd, &mut room)?;
            text.push_str(&String::from_utf8_lossy(&room[..bytes]));
        }
        let mut lines: Vec<String> = text.lines().map(|line| self.compared(line)).collect();
        lines.dedup_by(|line, before| line == before && line.starts_with(FAULT));
        for line in &lines {
            println!("{case}: {line}");
        }
        println!("{case}: {} lines", lines.len());
        Ok(())
    }

    /// A line without times, with names for who is meant.
    fn compared(&self, line: &str) -> String {
        let own = std::process::id();
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let times = matches!(words.first().map(String::as_str), Some("9" | "a"));
        for (index, word) in words.iter_mut().enumerate() {
            if times && index == 1 {
                *word = "TIME".into();
            } else if *word == format!("-{own}") || *word == format!("{own:x}") {
                *word = "OWN".into();
            } else if self.is_child(word) {
                *word = "CHILD".into();
            } else if *word == self.gpu {
                *word = "GPU".into();
            } else if let Some((pid, name)) = word.split_once(':') {
                if self.is_child(pid) {
                    *word = format!("CHILD:{name}");
                }
            }
        }
        words.join(" ")
    }

    fn is_child(&self, pid: &str) -> bool {
        self.children
            .iter()
            .any(|child| format!("{child:x}") == pid)
    }
}

impl Smi {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let kfd = Kfd::open()?;
        if self.visit {
            Device::acquire(&kfd, node)?;
            return Ok(());
        }
        if self.fault {
            return fault();
        }
        if self.throttle {
            let file = File::open(&kfd, node.gpu_id, u64::MAX)?;
            println!("listening");
            return file.show("a GPU that throttles", "2", 1);
        }
        let mut file = File::open(&kfd, node.gpu_id, u64::MAX)?;
        let silent = File::open(&kfd, node.gpu_id, 0)?;
        let mut others = File::open(&kfd, node.gpu_id, 1 << 11)?;
        let device = Device::acquire(&kfd, node)?;
        file.show("a VM of our own", "c", 1)?;
        self.child(&mut file, "--visit", "a visitor")?;
        self.child(&mut file, "--fault", "a visitor that errs")?;
        moved_memory(&Bench::new(&device)?, &file)?;
        if self.reset {
            reset(&device, &file)?;
        }
        let mut room = [0u8; 4096];
        let told = rustix::io::read(&silent.fd, &mut room).map(drop);
        println!("without a mask: {:?}", told.map_err(name));
        others.children = file.children;
        others.show("starts only", "c", 3)
    }

    /// Another process has a VM for a moment, of which events tell.
    fn child(&self, file: &mut File, what: &str, case: &str) -> Result<()> {
        let mut child = std::process::Command::new(std::env::current_exe()?)
            .args(["smi", what])
            .spawn()?;
        file.children.push(child.id());
        ensure!(child.wait()?.success(), "{case} failed");
        file.show(case, "d", 1)
    }
}

/// An access where nothing is: the process gets an event, and its queue is off from then on.
fn fault() -> Result<()> {
    // Beyond all that the process has of the GPU, and canonical.
    const NOWHERE: u64 = 0x1000;
    let gpu = Gpu::open(2)?;
    let done = gpu.signal()?;
    let faults = Event::new(done.event().events(), EventKind::Memory, false)?;
    let running = Running::start(&gpu, NOWHERE)?;
    ensure!(faults.wait(Some(PATIENCE))?, "no fault is told");
    // It goes with the process.
    std::mem::forget(running);
    Ok(())
}

/// Memory of the process's that the GPU sees goes away under it: its queues stop until that is
/// settled.
fn moved_memory(bench: &Bench, file: &File) -> Result<()> {
    let memory = Memory::userptr(&bench.device, 1 << 20)?;
    memory.write(0, &[1u64; 16]);
    let mut queue = bench.queue();
    ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut queue)?;
    // SAFETY: the range is the buffer's own; what was in it is lost, and nobody minds.
    unsafe {
        rustix::mm::madvise(
            memory.as_ptr().as_ptr().cast(),
            memory.size(),
            rustix::mm::Advice::LinuxDontNeed,
        )?;
    }
    file.show("memory that moves", "a", 1)?;
    let mut destroy = uapi::kfd_ioctl_destroy_queue_args {
        queue_id: queue.queue_id,
        ..Default::default()
    };
    ioctl(bench.kfd(), uapi::IOC_DESTROY_QUEUE, &mut destroy)?;
    Ok(())
}

/// amdgpu resets the GPU when it is asked to.
fn reset(device: &Device, file: &File) -> Result<()> {
    let minor = device.node().property("drm_render_minor");
    let ask: PathBuf = format!("/sys/kernel/debug/dri/{minor}/amdgpu_gpu_recover").into();
    std::fs::read_to_string(&ask).with_context(|| ask.display().to_string())?;
    file.show("a reset", "4", 1)
}
