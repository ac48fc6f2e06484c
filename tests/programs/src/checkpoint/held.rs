// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! RESUME of a process while somebody has the lock of all its buffers, as a thread of its that
//! waits for a program may (hold_info.ko).

use crate::running::PATIENCE;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd};
use rustix::fd::{AsFd, AsRawFd};
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Of hold_info.ko.
const HOLD_INFO: &str = "/sys/kernel/debug/hold_info";

/// What must not come has this long to do so.
const DOES_NOT: Duration = Duration::from_millis(300);

/// A thread that holds the lock until this is let go.
struct Held(JoinHandle<std::io::Result<()>>);

impl Held {
    /// `render` is the file of one of the process's VMs.
    fn start(render: &impl AsFd) -> Result<Self> {
        let text = render.as_fd().as_raw_fd().to_string();
        let thread = std::thread::spawn(move || std::fs::write(HOLD_INFO, text));
        std::thread::sleep(DOES_NOT);
        if thread.is_finished() {
            thread.join().map_err(|_| anyhow::anyhow!("panic"))??;
            anyhow::bail!("nothing is held");
        }
        Ok(Self(thread))
    }

    fn let_go(self) -> Result<()> {
        std::fs::write(HOLD_INFO, "-1")?;
        let outcome = self.0.join();
        Ok(outcome.map_err(|_| anyhow::anyhow!("a thread failed"))??)
    }
}

/// Another process that asks for RESUME of this one, and says so by how it ends.
fn resume_from_beside() -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["checkpoint", "resume"]);
    command.arg(std::process::id().to_string());
    Ok(command.spawn()?)
}

/// Whether it ends in time.
fn ends(child: &mut Child, patience: Duration) -> Result<bool> {
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > patience {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// It waits, and can be killed.
pub fn waits(render: &impl AsFd) -> Result<()> {
    let held = Held::start(render)?;
    let mut beside = resume_from_beside()?;
    ensure!(!ends(&mut beside, DOES_NOT)?, "RESUME did not wait");
    beside.kill()?;
    ensure!(ends(&mut beside, PATIENCE)?, "RESUME cannot be killed");
    held.let_go()
}

/// Of a process that was not restored it is refused at once.
pub fn not_restored() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("there is no GPU")?)?;
    let held = Held::start(&device.render())?;
    let mut beside = resume_from_beside()?;
    let ended = ends(&mut beside, 4 * DOES_NOT)?;
    held.let_go()?;
    ensure!(ended, "RESUME waits for the lock");
    let code = beside.wait()?.code();
    ensure!(code == Some(nix::libc::EINVAL), "it came to {code:?}");
    Ok(())
}

/// RESUME of a process; ends by the errno.
pub fn resume(pid: u32) -> Result<()> {
    let Err(error) = Kfd::open()?.resume(pid) else {
        return Ok(());
    };
    let errno = error.errno().context("no errno")?;
    std::process::exit(errno.raw())
}
