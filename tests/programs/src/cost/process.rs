// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The life of a process, and queues with many processes live. Each is a child that runs this
//! program again, so that it has an address space of its own, and prints what it measured.

use super::{call, counted, elapsed, queue::Other, Meter};
use crate::bench::Bench;
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How many processes with two queues each are live when a queue is measured.
const LIVE: [usize; 5] = [1, 8, 16, 32, 64];

pub(super) fn all(meter: &Meter) -> Result<()> {
    let mut open = meter.row("open /dev/kfd (makes the process)");
    let mut acquire = meter.row("ACQUIRE_VM");
    for _ in 0..10 {
        let count = open.is_counted() && acquire.is_counted();
        let mut child = Running::start("vm", count)?;
        open.samples.push(child.next()?);
        acquire.samples.push(child.next()?);
        child.end()?;
    }
    open.print();
    acquire.print();
    life(meter, "fork, exec, exit, wait", "nothing")?;
    life(meter, "fork, exec, open /dev/kfd, exit, wait", "open")?;
    crowd(meter)
}

fn life(meter: &Meter, operation: &str, until: &str) -> Result<()> {
    let program = std::env::current_exe()?;
    meter.measure(operation, 10, || {
        let status = Command::new(&program)
            .args(["cost-child", until])
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "{status}");
        Ok(())
    })
}

/// The newest of many processes makes and destroys its second queue.
fn crowd(meter: &Meter) -> Result<()> {
    let mut live: Vec<Running> = Vec::new();
    for count in LIVE {
        while live.len() + 1 < count {
            let mut child = Running::start("queues", false)?;
            child.next()?;
            child.next()?;
            live.push(child);
        }
        let mut create = meter.row(format!("CREATE_QUEUE AQL processes={count}"));
        let mut destroy = meter.row(format!("DESTROY_QUEUE AQL processes={count}"));
        for _ in 0..5 {
            let count = create.is_counted() && destroy.is_counted();
            let mut newest = Running::start("queues", count)?;
            create.samples.push(newest.next()?);
            destroy.samples.push(newest.next()?);
            newest.end()?;
        }
        create.print();
        destroy.print();
    }
    live.into_iter().try_for_each(Running::end)
}

/// A child that has done all it does and waits for its stdin to end.
struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(until: &str, count: bool) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["cost-child", until])
            .args(count.then_some("--count"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            child,
            stdin: stdin.context("stdin")?,
            stdout: BufReader::new(stdout.context("stdout")?),
        })
    }

    /// The next figure that it prints.
    fn next(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.trim()
            .parse()
            .with_context(|| format!("a child said {line:?}"))
    }

    fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

/// What a child does.
#[derive(Args)]
pub struct CostChild {
    /// How far it goes: nothing, open, vm, queues.
    until: String,
    /// Tell QEMU's plugin of each operation.
    #[arg(long)]
    count: bool,
}

impl CostChild {
    /// Goes that far, prints what it measured, and waits for its stdin to end.
    pub fn run(&self) -> Result<()> {
        let empty = Meter::new(false, false)?.empty;
        match self.until.as_str() {
            "nothing" => return Ok(()),
            "open" => drop(open_first(empty, self.count)?),
            "vm" => vm(empty, self.count)?,
            "queues" => return queues(empty, self.count),
            other => bail!("{other} is not known"),
        }
        Ok(())
    }
}

/// The open that makes the process.
fn open_first(empty: u64, count: bool) -> Result<File> {
    let mut kfd = None;
    let open = || {
        kfd = Some(OpenOptions::new().read(true).write(true).open("/dev/kfd")?);
        Ok(())
    };
    let taken = elapsed(|| counted(count, open))?;
    say(taken - empty)?;
    kfd.context("open")
}

fn vm(empty: u64, count: bool) -> Result<()> {
    let _first = open_first(empty, count)?;
    let (kfd, nodes) = (Kfd::open()?, topology::gpus()?);
    let node = nodes.first().context("no GPU")?;
    let render = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
    let render = OpenOptions::new().read(true).write(true).open(render)?;
    let mut args = uapi::kfd_ioctl_acquire_vm_args {
        drm_fd: render.as_raw_fd() as u32,
        gpu_id: node.gpu_id,
    };
    let acquire = || call(&kfd, uapi::IOC_ACQUIRE_VM, &mut args);
    say(elapsed(|| counted(count, acquire))? - empty)?;
    wait_for_end();
    Ok(())
}

/// What its second queue costs; it keeps two.
fn queues(empty: u64, count: bool) -> Result<()> {
    let (kfd, nodes) = (Kfd::open()?, topology::gpus()?);
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let bench = Bench::new(&device)?;
    let _first = Other::new(&bench)?;
    let mut queue = bench.queue();
    let create = || call(&kfd, uapi::IOC_CREATE_QUEUE, &mut queue);
    say(elapsed(|| counted(count, create))? - empty)?;
    let mut end = uapi::kfd_ioctl_destroy_queue_args {
        queue_id: queue.queue_id,
        pad: 0,
    };
    let destroy = || call(&kfd, uapi::IOC_DESTROY_QUEUE, &mut end);
    say(elapsed(|| counted(count, destroy))? - empty)?;
    let _second = Other::new(&bench)?;
    wait_for_end();
    Ok(())
}

fn wait_for_end() {
    std::io::stdin().lines().for_each(drop);
}

fn say(figure: u64) -> Result<()> {
    println!("{figure}");
    std::io::stdout().flush()?;
    Ok(())
}
