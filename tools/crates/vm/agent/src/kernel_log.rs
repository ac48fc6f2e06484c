// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The kernel's messages, for the host.

use crate::port::Port;
use kfd_vm_protocol::Frame;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long [`KernelLog::catch_up`] takes at most, where messages come faster than they are read.
const CATCH_UP: Duration = Duration::from_secs(2);

/// What the kernel has said since it began, and goes on to say.
pub struct KernelLog {
    /// Where /dev/kmsg has been read to. Held while what was read is sent, so that messages stay in
    /// their order.
    file: Mutex<File>,
    /// For poll, which must not wait with the lock held; never read.
    awaited: File,
    port: Port,
}

impl KernelLog {
    pub fn open(port: Port) -> io::Result<Self> {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nonblock)
            .open("/dev/kmsg")?;
        Ok(Self {
            awaited: file.try_clone()?,
            file: Mutex::new(file),
            port,
        })
    }

    /// Sends messages as they come; ends with the port.
    pub fn stream(&self) -> Option<()> {
        loop {
            self.send_up_to(None)?;
            let readable = PollFd::new(&self.awaited, PollFlags::IN);
            match poll(&mut [readable], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends what the kernel has said until now.
    pub fn catch_up(&self) {
        let _ = self.send_up_to(Some(Instant::now() + CATCH_UP));
    }

    fn send_up_to(&self, until: Option<Instant>) -> Option<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = vec![0; 8192];
        while until.is_none_or(|until| Instant::now() < until) {
            match file.read(&mut record) {
                Ok(count) => {
                    let line = log_line(&String::from_utf8_lossy(&record[..count]));
                    self.port.send(Frame::Log(line.into_bytes())).ok()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Messages were overwritten before they could be read: go on with the oldest
                // there is.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }
}

/// A /dev/kmsg record, `level,number,microseconds,flags;text`, as dmesg shows it.
pub fn log_line(record: &str) -> String {
    let (head, text) = record.split_once(';').unwrap_or(("", record));
    let text = text.lines().next().unwrap_or_default();
    let micros: u64 = head
        .split(',')
        .nth(2)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0);
    format!(
        "[{:5}.{:06}] {text}\n",
        micros / 1_000_000,
        micros % 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::log_line;

    #[test]
    fn kernel_messages_look_like_dmesg() {
        let record = "6,339,5140900,-;amdgpu: loaded\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n";
        assert_eq!(log_line(record), "[    5.140900] amdgpu: loaded\n");
        assert_eq!(log_line("odd"), "[    0.000000] odd\n");
    }
}
