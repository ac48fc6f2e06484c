// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`News`]: the pipe that a debugger is told through.

use anyhow::{bail, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use std::time::Duration;

/// TIMEOUT: what comes does so at once.
const COMES: Duration = Duration::from_secs(30);
/// What must not come has this long to do so.
const DOES_NOT: Duration = Duration::from_millis(300);

pub struct News {
    read: OwnedFd,
    write: Option<OwnedFd>,
    other: Vec<OwnedFd>,
}

impl News {
    pub fn new() -> Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            read,
            write: Some(write),
            other: Vec::new(),
        })
    }

    /// A file by name, as DBG_TRAP is told it.
    pub fn file(&mut self, which: &str) -> Result<u32> {
        let file = match which {
            "pipe" => match &self.write {
                Some(write) => return Ok(write.as_raw_fd() as u32),
                None => bail!("the pipe is closed"),
            },
            "none" => return Ok(u32::MAX),
            "unused" => return Ok(1000),
            // Only the other end can be written to.
            "reading" => return Ok(self.read.as_raw_fd() as u32),
            // The same pipe, which whoever opens it by name may have to wait for.
            "again" => match &self.write {
                Some(write) => {
                    let path = format!("/proc/self/fd/{}", write.as_raw_fd());
                    std::fs::OpenOptions::new().write(true).open(path)?.into()
                }
                None => bail!("the pipe is closed"),
            },
            "socket" => {
                let (one, other) = std::os::unix::net::UnixStream::pair()?;
                self.other.push(other.into());
                OwnedFd::from(one)
            }
            _ => bail!("no file is called {which}"),
        };
        let number = file.as_raw_fd() as u32;
        self.other.push(file);
        Ok(number)
    }

    /// Closes the end that is written to, or the one that is read.
    pub fn close(&mut self) {
        self.write = None;
    }

    /// Whether something came, and now no more.
    pub fn told(&self, comes: bool) -> Result<String> {
        let limit = if comes { COMES } else { DOES_NOT };
        let mut wanted = [PollFd::new(&self.read, PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec::try_from(limit)?))?;
        if !wanted[0].revents().contains(PollFlags::IN) {
            return Ok("nothing".into());
        }
        let mut bytes = [0u8; 64];
        let mut right = true;
        loop {
            match rustix::io::read(&self.read, &mut bytes) {
                Ok(count) => right &= bytes[..count].iter().all(|byte| *byte == b'.'),
                Err(Errno::AGAIN) => break,
                Err(errno) => bail!(errno),
            }
        }
        Ok(if right { "told" } else { "told something else" }.into())
    }
}
