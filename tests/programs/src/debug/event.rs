// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`News`]: the pipe that a debugger is told through.

use anyhow::{bail, Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{epoll, eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{mknodat, FileType, Mode, CWD};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use std::time::Duration;

/// TIMEOUT: what comes does so at once.
const COMES: Duration = Duration::from_secs(30);
/// What must not come has this long to do so.
const DOES_NOT: Duration = Duration::from_millis(300);

pub struct News {
    read: Option<OwnedFd>,
    write: Option<OwnedFd>,
    /// What waits for the pipe by epoll, each byte anew.
    edges: Option<OwnedFd>,
    other: Vec<OwnedFd>,
}

impl News {
    pub fn new() -> Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            read: Some(read),
            write: Some(write),
            edges: None,
            other: Vec::new(),
        })
    }

    /// A file by name, as DBG_TRAP is told it.
    pub fn file(&mut self, which: &str) -> Result<u32> {
        let file = match which {
            "pipe" => return Ok(self.write()?.as_raw_fd() as u32),
            "none" => return Ok(u32::MAX),
            "unused" => return Ok(1000),
            // Only the other end can be written to.
            "reading" => return Ok(self.read()?.as_raw_fd() as u32),
            // The same pipe, opened by name.
            "again" => {
                let path = format!("/proc/self/fd/{}", self.write()?.as_raw_fd());
                std::fs::OpenOptions::new().write(true).open(path)?.into()
            }
            // A writer to it waits when it is full; its reader stays.
            "blocking" => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                self.other.push(read);
                write
            }
            // As above, by another name.
            "fifo" => {
                let path = std::env::temp_dir().join(format!("debug.{}", std::process::id()));
                mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0)?;
                let file = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&path)?;
                std::fs::remove_file(path)?;
                file.into()
            }
            // Which cannot be written. ROCr names it for its own core dumps.
            "kfd" => {
                let mut file = std::fs::OpenOptions::new();
                file.read(true).write(true).open("/dev/kfd")?.into()
            }
            "event" => eventfd(0, EventfdFlags::CLOEXEC)?,
            "nothing" => {
                let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
                null?.into()
            }
            "file" => {
                let path = std::env::temp_dir().join(format!("debug.{}", std::process::id()));
                let file = std::fs::File::create(&path)?;
                std::fs::remove_file(path)?;
                file.into()
            }
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

    fn read(&self) -> Result<&OwnedFd> {
        self.read.as_ref().context("the pipe is not read")
    }

    fn write(&self) -> Result<&OwnedFd> {
        self.write.as_ref().context("the pipe is closed")
    }

    /// Closes the end that is written to.
    pub fn close(&mut self) {
        self.write = None;
    }

    /// Closes the end that is read.
    pub fn deafen(&mut self) {
        self.read = None;
    }

    /// Writes until there is no room for a byte.
    pub fn fill(&self) -> Result<String> {
        loop {
            match rustix::io::write(self.write()?, b".") {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok("full".into()),
                Err(errno) => bail!(errno),
            }
        }
    }

    /// Whether something was written since the last time, whatever lies in the pipe.
    pub fn edge(&mut self) -> Result<String> {
        let edges = match self.edges.take() {
            Some(edges) => edges,
            None => {
                let edges = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                epoll::add(&edges, self.read()?, epoll::EventData::new_u64(0), flags)?;
                edges
            }
        };
        let mut found = Vec::with_capacity(1);
        let limit = Timespec::try_from(DOES_NOT)?;
        epoll::wait(&edges, spare_capacity(&mut found), Some(&limit))?;
        self.edges = Some(edges);
        Ok(if found.is_empty() { "none" } else { "written" }.into())
    }

    /// Whether something came, and now no more.
    pub fn told(&self, comes: bool) -> Result<String> {
        let limit = if comes { COMES } else { DOES_NOT };
        let read = self.read()?;
        let mut wanted = [PollFd::new(read, PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec::try_from(limit)?))?;
        if !wanted[0].revents().contains(PollFlags::IN) {
            return Ok("nothing".into());
        }
        let mut bytes = [0u8; 64];
        let mut right = true;
        loop {
            match rustix::io::read(read, &mut bytes) {
                Ok(count) => right &= bytes[..count].iter().all(|byte| *byte == b'.'),
                Err(Errno::AGAIN) => break,
                Err(errno) => bail!(errno),
            }
        }
        Ok(if right { "told" } else { "told something else" }.into())
    }
}
