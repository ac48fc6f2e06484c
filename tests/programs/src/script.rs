// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One operation after the other, each between two marks in the model's trace, so that it can be
//! said what the GPU was given for each. `compare/packets` compares the two drivers by it.

use crate::bench::{name, Bench};
use crate::marks::Marks;
use crate::raw::ioctl;
use crate::waves::{Gpu, GROUP};
use anyhow::{Context, Result};
use kfd::Memory;
use kfd_aql::{Queue, Signal};
use kfd_uapi as uapi;
use rustix::mm::{madvise, Advice};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A kernel is soon done.
const PATIENCE: Duration = Duration::from_secs(60);
/// What comes by itself after an operation, as a process that is restored: amdgpu begins after a
/// millisecond, and tries again when it has to.
const AFTERWARDS: Duration = Duration::from_millis(1500);

type Request = uapi::kfd_ioctl_create_queue_args;

/// Does all of it.
pub fn all() -> Result<()> {
    let gpu = Gpu::open(4)?;
    // The process's page of events is that of its first one: the GPU's signals are to be in it.
    let done = gpu.signal()?;
    let bench = Bench::new(gpu.device())?;
    let script = Script {
        marks: Marks::open()?,
        bench: &bench,
    };
    let good = bench.queue();
    let [aql, pm4, sdma] = [
        uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
        uapi::KFD_IOC_QUEUE_TYPE_COMPUTE,
        uapi::KFD_IOC_QUEUE_TYPE_SDMA,
    ]
    .map(|queue_type| Request { queue_type, ..good });
    let first = script.create("the first queue", aql)?;
    let second = script.create("a second queue", aql)?;
    script.update("a queue stops", &aql, first, 0, 7)?;
    script.update("a stopped queue goes on", &aql, first, 100, 7)?;
    script.update("a queue's priority", &aql, first, 100, 11)?;
    script.cu_mask("a queue's compute units", second)?;
    let of_pm4 = script.create("a queue of PM4", pm4)?;
    let of_copies = script.create("a copy queue", sdma)?;
    let idle = script.create(
        "a queue that does not run",
        Request {
            queue_percentage: 0,
            ..aql
        },
    )?;
    script.destroy("the end of one that does not run", idle)?;
    script.destroy("the end of a copy queue", of_copies)?;
    script.destroy("the end of a queue of PM4", of_pm4)?;
    script.destroy("the end of a queue", second)?;
    script.dispatch(&gpu, &done)?;
    script.evict(&gpu)?;
    script.child("another process exits", |child| {
        drop(child.stdin.take());
        Ok(())
    })?;
    script.child("another process is killed", Child::kill)?;
    script.destroy("the end of the last queue", first)
}

struct Script<'a> {
    marks: Marks,
    bench: &'a Bench,
}

impl Script<'_> {
    /// An operation between marks; what it came to is printed.
    fn step(&self, title: &str, act: impl FnOnce() -> rustix::io::Result<()>) -> Result<()> {
        println!("operation: {title}");
        self.marks.begin()?;
        let outcome = act();
        self.marks.end()?;
        println!("{}", outcome.map_or_else(name, |()| "done".into()));
        Ok(())
    }

    fn create(&self, title: &str, request: Request) -> Result<u32> {
        let mut args = request;
        self.step(title, || {
            ioctl(self.bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut args)
        })?;
        Ok(args.queue_id)
    }

    fn destroy(&self, title: &str, queue_id: u32) -> Result<()> {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id,
            ..Default::default()
        };
        self.step(title, || {
            ioctl(self.bench.kfd(), uapi::IOC_DESTROY_QUEUE, &mut args)
        })
    }

    fn update(&self, title: &str, of: &Request, id: u32, share: u32, priority: u32) -> Result<()> {
        let mut args = uapi::kfd_ioctl_update_queue_args {
            ring_base_address: of.ring_base_address,
            queue_id: id,
            ring_size: of.ring_size,
            queue_percentage: share,
            queue_priority: priority,
        };
        self.step(title, || {
            ioctl(self.bench.kfd(), uapi::IOC_UPDATE_QUEUE, &mut args)
        })
    }

    fn cu_mask(&self, title: &str, queue_id: u32) -> Result<()> {
        let bits = [1u32];
        let mut args = uapi::kfd_ioctl_set_cu_mask_args {
            queue_id,
            num_cu_mask: u32::BITS,
            cu_mask_ptr: bits.as_ptr() as u64,
        };
        self.step(title, || {
            ioctl(self.bench.kfd(), uapi::IOC_SET_CU_MASK, &mut args)
        })
    }

    /// A kernel runs: no driver is on its way.
    fn dispatch(&self, gpu: &Gpu, done: &Signal) -> Result<()> {
        let queue = Queue::new(gpu.device(), 64)?;
        let out = Memory::gtt(gpu.device(), 4 * GROUP as usize)?;
        let mut arguments = out.address().to_le_bytes().to_vec();
        arguments.extend([1u32, 1].map(u32::to_le_bytes).concat());
        let launch = gpu.launch("churn", GROUP, &arguments)?;
        let mut waited = None;
        self.step("a dispatch", || {
            let submitted = launch.submit(&queue, done);
            waited = Some(submitted.and_then(|_| done.wait(PATIENCE)));
            Ok(())
        })?;
        waited.context("it was not waited for")??;
        Ok(())
    }

    /// The kernel takes memory away that the GPU may reach: the process's queues stop for that
    /// time, and go on.
    fn evict(&self, gpu: &Gpu) -> Result<()> {
        let memory = Memory::userptr(gpu.device(), 2 << 20)?;
        memory.write(0, &[1u32]);
        self.step("memory goes, and the queues stop and go on", || {
            // SAFETY: nothing but this function knows the memory, and nothing is read of it.
            let gone = unsafe { madvise(memory.as_ptr().as_ptr().cast(), memory.size(), GOES) };
            std::thread::sleep(AFTERWARDS);
            gone
        })
    }

    /// A process that has a queue is made to end.
    fn child(&self, title: &str, end: fn(&mut Child) -> std::io::Result<()>) -> Result<()> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["runlist-child", "aql"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.as_mut().context("no output")?;
        BufReader::new(said).read_line(&mut String::new())?;
        let mut ended = Ok(());
        self.step(title, || {
            ended = end(&mut child).and_then(|()| child.wait().map(drop));
            std::thread::sleep(AFTERWARDS);
            Ok(())
        })?;
        Ok(ended?)
    }
}

/// What becomes of the memory.
const GOES: Advice = Advice::LinuxDontNeed;
