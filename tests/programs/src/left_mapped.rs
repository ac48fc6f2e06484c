// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process is killed while copy engines, which write its page tables, stand still; another one
//! has the file of its render node, and a job in the same VM. What the first has shared is somebody
//! else's memory by then: the job must wait until it is taken out.

use crate::late_update::{share, APART};
use crate::opener::render_node;
use crate::raw::ioctl;
use crate::render_job::Job;
use crate::same_gpu::create_in;
use anyhow::{bail, ensure, Context, Result};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd, Memory};
use kfd_uapi as uapi;
use nix::libc;
use nix::sys::{signal, wait};
use nix::unistd::Pid;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mm::munmap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kill a process at /tmp/go-kill, give its VM a job at /tmp/go-job, and wait for that at
/// /tmp/go-wait.
#[derive(clap::Args)]
pub struct LeftMapped {
    /// Close a handle of the file before the job.
    #[arg(long)]
    close: bool,
    /// At /tmp/go-kill unmap what the program itself shares. The job is refused until engines have
    /// gone on, from /tmp/go-wait.
    #[arg(long, conflicts_with = "close")]
    living: bool,
}

const PAGE: usize = 4096;
const MARK: u32 = 0x5eed_0031;
/// How long a job that need not wait takes, with room to spare.
const AT_ONCE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(30);

impl LeftMapped {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let job = Job::prepare(render_node(node)?)?;
        if self.living {
            return unmap_while_late(node, &job);
        }
        let unused = create_in(&job.render, uapi::AMDGPU_GEM_DOMAIN_GTT, PAGE)?;
        // SAFETY: there is no other thread.
        let child = match unsafe { libc::fork() } {
            0 => {
                if let Err(error) = be_killed(node, &job.render) {
                    println!("{error:#}");
                }
                std::process::exit(1);
            }
            child => Pid::from_raw(child),
        };
        ensure!(
            child.as_raw() > 0,
            "fork: {}",
            std::io::Error::last_os_error()
        );
        await_file("/tmp/go-kill");
        signal::kill(child, signal::Signal::SIGKILL)?;
        wait::waitpid(child, None)?;
        say("killed")?;
        await_file("/tmp/go-job");
        if self.close {
            let mut args = uapi::drm_gem_close {
                handle: unused,
                pad: 0,
            };
            ioctl(&job.render, uapi::IOC_DRM_GEM_CLOSE, &mut args).context("GEM_CLOSE")?;
        }
        let number = job.submit(job.own_word(), MARK)?;
        match job.ends(number, AT_ONCE)? {
            true => say("not ok - the job runs before")?,
            false => say("ok - the job waits")?,
        }
        await_file("/tmp/go-wait");
        ensure!(job.ends(number, PATIENCE)?, "it does not end");
        ensure!(job.read_own_word() == MARK, "it has not run");
        say("ok - the job runs behind")
    }
}

pub(crate) fn await_file(name: &str) {
    while !Path::new(name).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn say(text: &str) -> Result<()> {
    println!("{text}");
    Ok(std::io::stdout().flush()?)
}

fn unmap_while_late(node: &Node, job: &Job) -> Result<()> {
    const PAGES: usize = 64;
    let kfd = Kfd::open()?;
    let device = Device::acquire_by(&kfd, node, job.render.try_clone()?)?;
    let _memory = Memory::gtt(&device, PAGE)?;
    let shared = share(&device, PAGES)?;
    say("waiting")?;
    await_file("/tmp/go-kill");
    // SAFETY: nobody has a reference to it.
    unsafe { munmap(shared as *mut _, PAGES * APART)? };
    say("unmapped")?;
    await_file("/tmp/go-job");
    let late = |error: &anyhow::Error| error.downcast_ref() == Some(&Errno::NOMEM);
    match job.submit(job.own_word(), MARK) {
        Err(error) if late(&error) => say("ok - a job is refused")?,
        other => say(&format!("not ok - a job: {other:?}"))?,
    }
    await_file("/tmp/go-wait");
    let start = Instant::now();
    let number = loop {
        match job.submit(job.own_word(), MARK) {
            Err(error) if late(&error) && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(100));
            }
            number => break number?,
        }
    };
    ensure!(job.ends(number, PATIENCE)?, "it does not end");
    ensure!(job.read_own_word() == MARK, "it has not run");
    say("ok - the job runs behind")
}

/// Shares pages with the GPU by the file's VM, and has a buffer there, until it is killed.
fn be_killed(node: &Node, render: &OwnedFd) -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire_by(&kfd, node, render.try_clone()?)?;
    let _memory = Memory::gtt(&device, PAGE)?;
    share(&device, 64)?;
    say("waiting")?;
    std::thread::sleep(Duration::from_secs(500));
    bail!("it was not killed");
}
