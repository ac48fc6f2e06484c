// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Child processes that never outlive this one: QEMU and a model server for each GPU.

use anyhow::{bail, Context, Result};
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::process::{kill_process, set_parent_process_death_signal, Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A command that starts `program` through [`exec`], in a process group of its own so that the
/// terminal's ^C reaches only us and the end comes in order.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = in_our_group(program);
    command.process_group(0);
    command
}

/// The same for one that our terminal is for as well.
pub fn in_our_group(program: impl AsRef<OsStr>) -> Command {
    // The link, not the path: it still leads here when a newer build has taken the path.
    let mut command = Command::new("/proc/self/exe");
    let parent = std::process::id().to_string();
    command.args(["exec-child", &parent]).arg(program);
    command
}

/// The child's side: asks the kernel to be killed with the parent, which is process number
/// `parent`, then becomes the program.
pub fn exec(parent: i32, program: &OsStr, args: &[OsString]) -> Result<u8> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("binding to the parent")?;
    // It may have gone before. Number 1 is a parent like others: a container's entry point.
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(parent) {
        bail!("the parent is gone");
    }
    Err(Command::new(program).args(args).exec())
        .with_context(|| program.to_string_lossy().into_owned())
}

/// Lets the next child inherit a file descriptor. The caller drops its own copy after the start.
pub fn inherit(fd: impl AsFd) -> Result<()> {
    fcntl_setfd(fd, FdFlags::empty()).context("passing a file descriptor on")
}

/// A child that is killed and reaped when dropped.
pub struct Reaped(Child);

impl Reaped {
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        // It fails only for a child that has ended meanwhile.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
    }

    /// Waits for it to end by itself.
    pub fn wait_for(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        // Both fail only for a child that has been reaped already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_is_gone() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let mut reaped = Reaped::new(child);
        assert!(reaped.wait_for(Duration::from_millis(10)).is_none());
        drop(reaped);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
