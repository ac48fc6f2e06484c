// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The kernel's messages, for the host.

use crate::port::Port;
use kfd_vm_protocol::Frame;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long [`KernelLog::catch_up`] takes at most, where messages come faster than they are read.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How soon it tries again while a message is being sent.
const LOCK_POLL: Duration = Duration::from_millis(1);

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
        Self::of(file, port)
    }

    fn of(file: File, port: Port) -> io::Result<Self> {
        Ok(Self {
            awaited: file.try_clone()?,
            file: Mutex::new(file),
            port,
        })
    }

    /// Sends messages as they come; ends with the port.
    pub fn stream(&self) -> Option<()> {
        loop {
            // Locked for one message at a time: the kernel may never be silent.
            while self.send_next(&mut self.file.lock().unwrap_or_else(PoisonError::into_inner))? {}
            let readable = PollFd::new(&self.awaited, PollFlags::IN);
            match poll(&mut [readable], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends what the kernel has said until now, within [`CATCH_UP`]. It never waits for the lock,
    /// which is not fair: whoever has it sends messages as well.
    pub fn catch_up(&self) {
        let until = Instant::now() + CATCH_UP;
        while Instant::now() < until {
            let sent = match self.file.try_lock() {
                Ok(mut file) => self.send_next(&mut file),
                Err(TryLockError::Poisoned(error)) => self.send_next(&mut error.into_inner()),
                Err(TryLockError::WouldBlock) => {
                    sleep(LOCK_POLL);
                    continue;
                }
            };
            if sent != Some(true) {
                return;
            }
        }
    }

    /// Sends one message; false: there is none yet.
    fn send_next(&self, file: &mut File) -> Option<bool> {
        let mut record = [0; 8192];
        match file.read(&mut record) {
            Ok(count) => {
                let line = log_line(&String::from_utf8_lossy(&record[..count]));
                self.port.send(Frame::Log(line.into_bytes())).ok()?;
                Some(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(false),
            // Messages were overwritten before they could be read: go on with the oldest
            // there is.
            Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => Some(true),
            Err(_) => None,
        }
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
    use super::*;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn kernel_messages_look_like_dmesg() {
        let record = "6,339,5140900,-;amdgpu: loaded\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n";
        assert_eq!(log_line(record), "[    5.140900] amdgpu: loaded\n");
        assert_eq!(log_line("odd"), "[    0.000000] odd\n");
    }

    #[test]
    fn a_kernel_that_never_stops_holds_nobody_up() {
        let (port, host) = UnixStream::pair().unwrap();
        // Never without something to read, as /dev/kmsg in a storm.
        let kernel = File::open("/dev/zero").unwrap();
        let log = KernelLog::of(kernel, Port::of(port.into())).unwrap();
        let (sender, caught_up) = channel();
        thread::scope(|scope| {
            scope.spawn(|| io::copy(&mut &host, &mut io::sink()));
            scope.spawn(|| log.stream());
            // The stream is at it.
            sleep(Duration::from_millis(50));
            scope.spawn(|| {
                log.catch_up();
                sender.send(()).unwrap();
            });
            let result = caught_up.recv_timeout(5 * CATCH_UP);
            host.shutdown(Shutdown::Both).unwrap();
            assert!(result.is_ok(), "it waits for the kernel's silence");
        });
    }
}
