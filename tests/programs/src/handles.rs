// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The kernel's own names of buffers (GEM handles), which those of all processes on a GPU have in
//! one table: who frees a buffer that was imported frees nobody else's name, and does not come by
//! another process's memory that way. And a buffer that is of two kinds at once is refused.

use crate::raw::ioctl;
use crate::running::say;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Free what was exported and imported, in all orders, beside a process that allocates.
#[derive(Args)]
pub struct Handles {
    /// Be that process.
    #[arg(long, hide = true)]
    victim: bool,
}

const PAGE: usize = 4096;
/// What the victim has in its buffers, and what the other process has.
const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;
const OWN: u64 = 0x0123_4567_89ab_cdef;
/// What the other process writes through the dma-buf of its own buffer.
const LATER: u64 = 0xfedc_ba98_7654_3210;
const BUFFERS: usize = 8;

impl Handles {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
        if self.victim {
            return victim(&device);
        }
        for order in Order::ALL {
            attempt(&device, order)?;
        }
        two_kinds(&device);
        Ok(())
    }
}

/// Doorbells and registers that are memory as well: amdgpu would treat the one as the other.
fn two_kinds(device: &Arc<Device>) {
    let kinds = [
        ("USERPTR", uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR),
        ("VRAM", uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM),
        ("GTT", uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT),
    ];
    let shown = [
        (
            "doorbells",
            uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL,
            2 * PAGE,
        ),
        ("registers", uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP, PAGE),
    ];
    for (what, flag, size) in shown {
        for (kind, memory) in kinds {
            let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
                va_addr: 1 << 40,
                size: size as u64,
                mmap_offset: 1 << 40,
                gpu_id: device.gpu_id(),
                flags: flag | memory,
                ..Default::default()
            };
            let outcome = ioctl(device.kfd(), uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut args);
            let verdict = if outcome == Err(Errno::INVAL) {
                "ok"
            } else {
                "not ok"
            };
            println!("{verdict} - {what} that are {kind}: {outcome:?}");
        }
    }
}

/// Who frees its share of a buffer first.
#[derive(Clone, Copy, Debug)]
enum Order {
    Exporter,
    Importer,
    /// Of two importers, while the exporter has it still.
    FirstOfTwo,
}

impl Order {
    const ALL: [Self; 3] = [Self::Exporter, Self::Importer, Self::FirstOfTwo];
}

/// A buffer is freed by all who have it, and one that was allocated in between stays what it was.
fn attempt(device: &Arc<Device>, order: Order) -> Result<()> {
    let exported = Memory::gtt(device, PAGE)?;
    let file = exported.export()?;
    let import = || Memory::import(device, file.as_fd());
    let (first, last) = match order {
        Order::Exporter => {
            let imported = import()?;
            (vec![exported], vec![imported])
        }
        Order::Importer => (vec![import()?], vec![exported]),
        Order::FirstOfTwo => {
            let imported = import()?;
            (vec![imported], vec![import()?, exported])
        }
    };
    drop(first);
    // It has the name that was just given back.
    let own = Memory::gtt(device, PAGE)?;
    own.write(0, &[OWN; PAGE / 8]);
    drop(last);
    drop(file);
    let mut victim = Victim::start()?;
    let seen = own
        .export()
        .and_then(|file| Memory::import(device, file.as_fd()));
    match seen {
        Err(error) => check(false, order, &format!("its own buffer is lost: {error}")),
        Ok(seen) => {
            let word = seen.read::<u64>(0, 1)[0];
            check(
                word == OWN,
                order,
                &format!("it reads {word:#x} of its own"),
            );
            seen.write(0, &[LATER]);
            let same = own.read::<u64>(0, 1)[0] == LATER;
            check(same, order, "what it writes is in its own buffer");
        }
    }
    let state = victim.end()?;
    check(state == "whole", order, &format!("the victim is {state}"));
    Ok(())
}

fn check(right: bool, order: Order, what: &str) {
    let verdict = if right { "ok" } else { "not ok" };
    println!("{verdict} - {order:?} frees first: {what}");
}

/// The process that only allocates.
struct Victim {
    child: Child,
    hear: BufReader<std::process::ChildStdout>,
}

impl Victim {
    fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["handles", "--victim"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let hear = BufReader::new(child.stdout.take().context("it has an output")?);
        let mut victim = Self { child, hear };
        ensure!(victim.line()? == "ready", "the victim is not ready");
        Ok(victim)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// What has become of it.
    fn end(&mut self) -> Result<String> {
        let mut say = self.child.stdin.take().context("it has an input")?;
        writeln!(say, "end")?;
        let state = self.line()?;
        drop(say);
        let status = self.child.wait()?;
        ensure!(status.success(), "the victim failed: {status}");
        Ok(state)
    }
}

fn victim(device: &Arc<Device>) -> Result<()> {
    let mut buffers = Vec::new();
    for _ in 0..BUFFERS {
        let buffer = Memory::gtt(device, PAGE)?;
        buffer.write(0, &[SECRET; PAGE / 8]);
        buffers.push(buffer);
    }
    say("ready")?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let whole = |buffer: &Memory| {
        buffer
            .read::<u64>(0, PAGE / 8)
            .iter()
            .all(|word| *word == SECRET)
    };
    // Its own names lead to its own memory, too.
    let named = |buffer: &Memory| -> Result<bool> {
        let file = buffer.export()?;
        Ok(whole(&Memory::import(device, file.as_fd())?))
    };
    let mut state = "whole";
    for buffer in &buffers {
        if !whole(buffer) || !named(buffer).unwrap_or(false) {
            state = "changed";
        }
    }
    say(state)
}
