// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The virtio-serial port to the host: frames out, a stream of bytes in.
//!
//! Linux 7.3's virtio_console restores its control queue after the host has answered that it is
//! there (virtcons_restore), so after a sleep the port waits for ever for a host that has been
//! connected all along. A thread notices, binds the device to its driver anew and opens the new
//! port; a writer that was blocked goes on with what it had left.

use anyhow::{anyhow, bail, Context, Result};
use kfd_vm_protocol::{Frame, PORT};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// TIMEOUT: the port belongs to a built-in driver; only its node may be late.
const PORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the counts of sleeps are read.
const SLEEPS_INTERVAL: Duration = Duration::from_secs(2);
/// How long a host may be away after a sleep before the device is bound anew.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);
/// The kernel's counts of the times that the machine went to sleep, or did not come to it.
const SLEEPS: [&str; 2] = [
    "/sys/power/suspend_stats/success",
    "/sys/power/suspend_stats/fail",
];
const HOST_POLL: Duration = Duration::from_millis(10);
const PORTS: &str = "/sys/class/virtio-ports";

/// The writing end, whole frames at a time.
#[derive(Clone)]
pub struct Port {
    outgoing: Arc<Mutex<Outgoing>>,
    /// The one that frames are of; 0: of none.
    channel: u32,
}

impl Port {
    /// A port that is a file of any kind.
    #[cfg(test)]
    pub fn of(file: std::os::fd::OwnedFd) -> Self {
        let file = file.into();
        Self::new(Outgoing {
            file,
            replacement: Arc::default(),
        })
    }

    fn new(outgoing: Outgoing) -> Self {
        Self {
            outgoing: Arc::new(Mutex::new(outgoing)),
            channel: 0,
        }
    }

    /// The same port, for frames of that channel.
    pub fn on(&self, channel: u32) -> Self {
        Self {
            channel,
            ..self.clone()
        }
    }

    pub fn send(&self, frame: Frame) -> io::Result<()> {
        let frame = match self.channel {
            0 => frame,
            channel => Frame::Of(channel, Box::new(frame)),
        };
        // A thread that died while writing has cut a frame: nothing after it would be understood.
        let mut outgoing = self
            .outgoing
            .lock()
            .map_err(|_| io::Error::other("the port is broken"))?;
        frame.write(&mut *outgoing)
    }
}

/// Where a port that was opened anew is left for one of its ends.
#[derive(Default)]
struct Replacement {
    file: Mutex<Option<File>>,
    came: Condvar,
}

impl Replacement {
    fn put(&self, file: File) {
        if let Ok(mut place) = self.file.lock() {
            *place = Some(file);
            self.came.notify_all();
        }
    }

    fn take(&self) -> io::Result<File> {
        let broken = |_| io::Error::other("the port is broken");
        let mut place = self.file.lock().map_err(broken)?;
        loop {
            if let Some(file) = place.take() {
                return Ok(file);
            }
            place = self
                .came
                .wait(place)
                .map_err(|_| io::Error::other("the port is broken"))?;
        }
    }
}

struct Outgoing {
    file: File,
    replacement: Arc<Replacement>,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if is_gone(&error) => self.file = self.replacement.take()?,
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The driver answers so once its device is unbound.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// The reading end.
pub struct Incoming {
    file: File,
    replacement: Arc<Replacement>,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                // A port without a host reads as its end.
                Ok(0) => sleep(HOST_POLL),
                Err(error) if is_gone(&error) => self.file = self.replacement.take()?,
                result => return result,
            }
        }
    }
}

/// Opens the port: both its ends.
pub fn open() -> Result<(Incoming, Port)> {
    let file = open_port()?;
    let incoming = Incoming {
        file: file.try_clone()?,
        replacement: Arc::default(),
    };
    let outgoing = Outgoing {
        file: file.try_clone()?,
        replacement: Arc::default(),
    };
    let replacements = [incoming.replacement.clone(), outgoing.replacement.clone()];
    thread::spawn(move || {
        if let Err(error) = keep_attached(file, &replacements) {
            eprintln!("kfd-vm-agent: the port is lost: {error:#}");
        }
    });
    Ok((incoming, Port::new(outgoing)))
}

/// Binds the device anew when the port has lost its host in a sleep. A host that is away without
/// one, while a snapshot is taken, comes back by itself.
///
/// The port is polled after a sleep only: a poll takes back what the host has read, and if it is
/// ahead of the interrupt for that, virtio_console does not wake a writer that waits for room.
fn keep_attached(mut file: File, replacements: &[Arc<Replacement>]) -> Result<()> {
    let mut slept = sleeps();
    loop {
        sleep(SLEEPS_INTERVAL);
        let now = sleeps();
        if now == slept {
            continue;
        }
        if stays_away(&file)? {
            bind_anew()?;
            file = open_port()?;
            for replacement in replacements {
                replacement.put(file.try_clone()?);
            }
        }
        slept = now;
    }
}

/// Whether the port is without a host for so long that none will come.
fn stays_away(file: &File) -> Result<bool> {
    let deadline = Instant::now() + HOST_TIMEOUT;
    loop {
        let mut fds = [PollFd::new(file, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default()))?;
        if !fds[0].revents().contains(PollFlags::HUP) {
            return Ok(false);
        }
        if Instant::now() > deadline {
            return Ok(true);
        }
        sleep(HOST_POLL);
    }
}

fn sleeps() -> [Option<String>; 2] {
    SLEEPS.map(|path| fs::read_to_string(path).ok())
}

fn bind_anew() -> Result<()> {
    let device = fs::canonicalize(find_port()?.join("device"))?;
    let name = device.file_name().ok_or(anyhow!("{device:?}"))?;
    let driver = fs::canonicalize(device.join("driver"))?;
    for file in ["unbind", "bind"] {
        fs::write(driver.join(file), name.as_encoded_bytes())
            .with_context(|| format!("{file} of {name:?}"))?;
    }
    Ok(())
}

fn open_port() -> Result<File> {
    let port = find_port()?;
    let node = PathBuf::from("/dev").join(port.file_name().unwrap_or_default());
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&node)
        .with_context(|| node.display().to_string())
}

/// The port's directory in sysfs.
fn find_port() -> Result<PathBuf> {
    let deadline = Instant::now() + PORT_TIMEOUT;
    loop {
        for entry in fs::read_dir(PORTS).into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim() == PORT {
                return Ok(entry.path());
            }
        }
        if Instant::now() > deadline {
            bail!("no virtio-serial port named {PORT}");
        }
        sleep(Duration::from_millis(5));
    }
}
