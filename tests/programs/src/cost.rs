// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What each operation costs, as one JSON object a line. `tools/kfd-bench` runs this on both
//! drivers.
//!
//! A sample is the difference of two readings of CLOCK_MONOTONIC. In a guest with `--icount` a
//! nanosecond is one instruction, and what runs on the CPU alone repeats to a few instructions.

mod event;
mod footprint;
mod many;
mod memory;
mod process;
mod queue;
mod svm;
mod work;

pub use process::CostChild;

use crate::bench::Bench;
use crate::marks::Marks;
use crate::raw;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::time::{clock_gettime, ClockId};
use std::cell::RefCell;
use std::fs::OpenOptions;
use std::sync::Arc;

/// What to measure.
#[derive(Args)]
pub struct Cost {
    /// The groups of operations [default: all].
    #[arg(value_enum)]
    groups: Vec<Group>,
    /// Write a mark to the GPU's scratch register before and after one more run of each operation,
    /// so that the model's trace shows what the operation does to the hardware.
    #[arg(long)]
    mark: bool,
    /// Tell QEMU's plugin (tools/crates/count-plugin) of the third run of each operation.
    #[arg(long)]
    count: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Calls that only ask or note something.
    Small,
    Event,
    Memory,
    Queue,
    /// Opening, the life of a process, and queues with many processes live.
    Process,
    /// As many queues as a process can have; only when asked for.
    Many,
    /// The kernel's memory, in bytes; only when asked for.
    Footprint,
    /// Shared virtual memory; only when asked for, as the two that follow.
    Svm,
    /// The kernel's memory for a GiB of it, in bytes.
    SvmFootprint,
    /// Threads that touch what is in VRAM, in nanoseconds of time.
    SvmThreads,
}

impl Cost {
    /// Measures, and prints a row for each operation.
    pub fn run(&self) -> Result<()> {
        let meter = Meter::new(self.mark, self.count)?;
        self.measure(&meter)?;
        for operation in meter.counted.take() {
            println!(r#"{{"counted":"{operation}"}}"#);
        }
        Ok(())
    }

    fn measure(&self, meter: &Meter) -> Result<()> {
        let wanted = |group| self.groups.is_empty() || self.groups.contains(&group);
        match self.groups[..] {
            [Group::Footprint] => return footprint::all(),
            [Group::Svm] => return svm::all(meter),
            [Group::SvmFootprint] => return svm::footprint(),
            [Group::SvmThreads] => return svm::threads(),
            _ => (),
        }
        // Before this process has the GPU: what a new one pays.
        if wanted(Group::Process) {
            process::all(meter)?;
        }
        let kfd = Kfd::open()?;
        if self.groups == [Group::Many] {
            return many::all(meter, &kfd);
        }
        let nodes = topology::gpus()?;
        let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
        let bench = Bench::new(&device)?;
        small(meter, &kfd, &device)?;
        if wanted(Group::Event) {
            event::all(meter, &bench)?;
        }
        if wanted(Group::Memory) {
            memory::all(meter, &device)?;
        }
        if wanted(Group::Queue) {
            queue::all(meter, &bench)?;
            work::all(meter, &bench)?;
        }
        Ok(())
    }
}

/// Reads the clock, and knows what reading it costs.
struct Meter {
    empty: u64,
    marks: Option<Marks>,
    count: bool,
    /// What has been counted, in this order. Told at the end: the console's interrupts would be
    /// counted too.
    counted: RefCell<Vec<String>>,
}

impl Meter {
    fn new(mark: bool, count: bool) -> Result<Self> {
        let mut samples: Vec<_> = (0..200)
            .map(|_| elapsed(|| Ok(())))
            .collect::<Result<_>>()?;
        samples.sort_unstable();
        Ok(Self {
            empty: samples[samples.len() / 2],
            marks: if mark { Some(Marks::open()?) } else { None },
            count,
            counted: RefCell::new(Vec::new()),
        })
    }

    fn row(&self, operation: impl Into<String>) -> Row<'_> {
        Row {
            meter: self,
            operation: operation.into(),
            samples: Vec::new(),
        }
    }

    /// A row of `count` samples of the same thing.
    fn measure(
        &self,
        operation: impl Into<String>,
        count: usize,
        mut act: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut row = self.row(operation);
        for _ in 0..count {
            row.sample(&mut act)?;
        }
        row.print();
        Ok(())
    }
}

/// Runs `act` between two marks for QEMU's plugin, if it is to be `counted`.
fn counted(counted: bool, act: impl FnOnce() -> Result<()>) -> Result<()> {
    if !counted {
        return act();
    }
    count_mark();
    let result = act();
    count_mark();
    result
}

/// The instruction that QEMU's plugin knows: it does nothing.
fn count_mark() {
    // SAFETY: a no-operation.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0xef, 0xbe, 0xad, 0xde",
            options(nomem, nostack)
        )
    };
}

fn elapsed(act: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = now();
    act()?;
    Ok(now() - before)
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The samples of one operation.
struct Row<'a> {
    meter: &'a Meter,
    operation: String,
    samples: Vec<u64>,
}

impl Row<'_> {
    /// Runs `act` and keeps how long it took.
    fn sample(&mut self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let marks = self.meter.marks.as_ref().filter(|_| self.is_third());
        if let Some(marks) = marks {
            // Which operation it is stands on stdout, in the same order.
            println!(r#"{{"mark":"{}"}}"#, self.operation);
            marks.begin()?;
        }
        let count = self.is_counted();
        let taken = elapsed(|| counted(count, act)).with_context(|| self.operation.clone())?;
        if let Some(marks) = marks {
            marks.end()?;
        }
        self.samples.push(taken.saturating_sub(self.meter.empty));
        Ok(())
    }

    /// As [`Self::sample`]; so much of it is not the operation's.
    fn sample_less(&mut self, other: u64, act: impl FnOnce() -> Result<()>) -> Result<()> {
        self.sample(act)?;
        self.reduce(other);
        Ok(())
    }

    /// So much of the last sample was not the operation's.
    fn reduce(&mut self, other: u64) {
        if let Some(last) = self.samples.last_mut() {
            *last = last.saturating_sub(other);
        }
    }

    /// Whether the next sample is the one that is looked at closely: the first ones may still set
    /// something up.
    fn is_third(&self) -> bool {
        self.samples.len() == 2
    }

    /// Whether QEMU's plugin shall count the next sample; remembers that.
    fn is_counted(&self) -> bool {
        let counted = self.meter.count && self.is_third();
        if counted {
            self.meter.counted.borrow_mut().push(self.operation.clone());
        }
        counted
    }

    /// Prints the row, unless nothing was measured.
    fn print(mut self) {
        self.samples.sort_unstable();
        let Some(last) = self.samples.len().checked_sub(1) else {
            return;
        };
        println!(
            r#"{{"operation":"{}","n":{},"min":{},"median":{},"p90":{}}}"#,
            self.operation,
            self.samples.len(),
            self.samples[0],
            self.samples[last / 2],
            self.samples[last * 9 / 10],
        );
    }
}

/// One call, without the thunk between.
fn call<T>(kfd: &Kfd, request: u32, args: &mut T) -> Result<()> {
    assert_eq!((request >> 16) as usize & 0x3fff, size_of::<T>());
    // SAFETY: `args` is as large as the request says; pointers in it are the caller's own memory.
    unsafe { raw::ioctl_at(kfd.as_fd(), request, std::ptr::from_mut(args) as u64)? };
    Ok(())
}

/// A request of the KFD's type that no driver knows: what any ioctl costs at least.
const UNKNOWN: u32 = 0xc008_4bff;

fn small(meter: &Meter, kfd: &Kfd, device: &Arc<Device>) -> Result<()> {
    let gpu_id = device.gpu_id();
    meter.measure("floor: an ioctl rejected at once", 300, || {
        // SAFETY: nothing is behind this request.
        unsafe { raw::ioctl_at(kfd.as_fd(), UNKNOWN, 0) }
            .err()
            .context("it was known")?;
        Ok(())
    })?;
    meter.measure("GET_VERSION", 300, || {
        call(
            kfd,
            uapi::IOC_GET_VERSION,
            &mut uapi::kfd_ioctl_get_version_args::default(),
        )
    })?;
    meter.measure("GET_CLOCK_COUNTERS", 100, || {
        let mut args = uapi::kfd_ioctl_get_clock_counters_args {
            gpu_id,
            ..Default::default()
        };
        call(kfd, uapi::IOC_GET_CLOCK_COUNTERS, &mut args)
    })?;
    meter.measure("GET_PROCESS_APERTURES_NEW", 200, || {
        let mut room = [uapi::kfd_process_device_apertures::default(); 1];
        let mut args = uapi::kfd_ioctl_get_process_apertures_new_args {
            kfd_process_device_apertures_ptr: room.as_mut_ptr() as u64,
            num_of_nodes: room.len() as u32,
            ..Default::default()
        };
        call(kfd, uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut args)
    })?;
    meter.measure("AVAILABLE_MEMORY", 200, || {
        let mut args = uapi::kfd_ioctl_get_available_memory_args {
            gpu_id,
            ..Default::default()
        };
        call(kfd, uapi::IOC_AVAILABLE_MEMORY, &mut args)
    })?;
    meter.measure("SET_MEMORY_POLICY", 200, || {
        let apertures = device.apertures();
        let mut args = uapi::kfd_ioctl_set_memory_policy_args {
            gpu_id,
            alternate_aperture_base: apertures.gpuvm.0,
            ..Default::default()
        };
        call(kfd, uapi::IOC_SET_MEMORY_POLICY, &mut args)
    })?;
    let mut open = meter.row("open /dev/kfd (the process exists)");
    let mut close = meter.row("close /dev/kfd (not the last)");
    for _ in 0..200 {
        let mut file = None;
        open.sample(|| {
            file = Some(OpenOptions::new().read(true).write(true).open("/dev/kfd")?);
            Ok(())
        })?;
        close.sample(|| {
            drop(file);
            Ok(())
        })?;
    }
    open.print();
    close.print();
    Ok(())
}
