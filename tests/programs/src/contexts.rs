// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A file that becomes another context's (CREATE_PROCESS) while a queue of the first one's rings
//! through a mapping of it, or while one waits for a GPU that does not obey; queues of two; and
//! those of two processes that have one number.

use crate::bench::Bench;
use crate::raw::ioctl;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd};
use kfd_aql::{BarrierAnd, Queue, Signal, Signals};
use kfd_uapi as uapi;
use nix::libc;
use nix::unistd::{fork, ForkResult};
use rustix::fd::AsFd;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Have a file become another context's.
#[derive(Args)]
pub struct Contexts {
    /// Instead: while CREATE_QUEUE waits until the scheduler obeys. Ends when stdin does.
    #[arg(long)]
    beside_a_wait: bool,
    /// Instead: have a queue in the first context, which has been given a packet, and one in
    /// another, with two. Says "ready", and ends when stdin does.
    #[arg(long, conflicts_with = "beside_a_wait")]
    queues: bool,
    /// Instead: the child of a process, which both are number 1, and have events.
    #[arg(long, conflicts_with_all = ["beside_a_wait", "queues"])]
    same_number: bool,
}

impl Contexts {
    pub fn run(&self) -> Result<()> {
        match (self.beside_a_wait, self.queues, self.same_number) {
            (true, ..) => beside_a_wait(),
            (_, true, _) => queues(),
            (.., true) => same_number(),
            _ => ring(),
        }
    }
}

/// Says "waits" when CREATE_QUEUE has not come back, but CREATE_PROCESS beside it has.
fn beside_a_wait() -> Result<()> {
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    let bench = Bench::new(&Device::acquire(&Kfd::open()?, &node)?)?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let came_back = AtomicBool::new(false);
    // It stays: the next one to open /dev/kfd waits for the ends of its user's.
    let other = Kfd::open()?;
    thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            // What becomes of it is not asked.
            let _ = ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut bench.queue());
            came_back.store(true, Ordering::Relaxed);
        });
        thread::sleep(Duration::from_secs(1));
        ioctl(&other, uapi::IOC_CREATE_PROCESS, &mut [0u64; 1]).context("CREATE_PROCESS")?;
        match came_back.load(Ordering::Relaxed) {
            true => println!("does not wait"),
            false => println!("waits"),
        }
        while std::io::stdin().read_line(&mut line)? != 0 {}
        Ok(())
    })
}

fn queues() -> Result<()> {
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    let mut queues = Vec::new();
    for (packets, kfd) in [(1, Kfd::open()?), (2, Kfd::open_secondary()?)] {
        let queue = Queue::new(&Device::acquire(&kfd, &node)?, 64)?;
        for _ in 0..packets {
            queue.submit(BarrierAnd::default())?;
        }
        queues.push(queue);
    }
    println!("ready");
    while std::io::stdin().read_line(&mut String::new())? != 0 {}
    Ok(())
}

/// A queue has its doorbell mapped, and rings it only when the file is the other context's: prints
/// whether it was heard.
fn ring() -> Result<()> {
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    let device = Device::acquire(&Kfd::open()?, &node)?;
    let signals = Signals::new(&device, 1)?;
    let queue = Queue::new(&device, 64)?;
    let done = signals.signal(1)?;
    ioctl(
        device.kfd().as_fd(),
        uapi::IOC_CREATE_PROCESS,
        &mut [0u64; 1],
    )
    .context("CREATE_PROCESS")?;
    queue.submit(BarrierAnd {
        completion: done.address(),
        ..Default::default()
    })?;
    match done.wait_busy(Duration::from_secs(10)) {
        Ok(()) => println!("the queue was rung"),
        Err(error) => println!("the queue was not rung: {error}"),
    }
    // What ends here would be asked of the other context.
    std::process::exit(0)
}

/// A child that has its parent's number, since it is the first of a PID namespace as its parent is,
/// has a page of events of its own: it sleeps until the GPU is done.
fn same_number() -> Result<()> {
    ensure!(std::process::id() == 1, "to be run by unshare --pid --fork");
    let parents = computes()?;
    // SAFETY: no pointers; it concerns children that are forked from now on.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWPID) };
    ensure!(
        unshared == 0,
        "a PID namespace: {}",
        std::io::Error::last_os_error()
    );
    // SAFETY: this process has one thread.
    match unsafe { fork()? } {
        ForkResult::Child => {
            let said = computes().map(|_| std::process::id());
            println!("the child: {said:?}");
            std::io::stdout().flush()?;
            // SAFETY: what it has inherited is not dropped.
            unsafe { libc::_exit(said.is_err().into()) }
        }
        ForkResult::Parent { child } => {
            nix::sys::wait::waitpid(child, None)?;
        }
    }
    drop(parents);
    Ok(())
}

/// A packet that a signal's event tells the end of.
fn computes() -> Result<(Queue, Signal)> {
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    let device = Device::acquire(&Kfd::open()?, &node)?;
    let done = Signals::new(&device, 1)?.signal(1)?;
    let queue = Queue::new(&device, 64)?;
    queue.submit(BarrierAnd {
        completion: done.address(),
        ..Default::default()
    })?;
    done.wait_interrupt(Duration::from_secs(20))?;
    Ok((queue, done))
}
