// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Waits until every GPU is on the bus, or until amdgpu has finished with it: the driver link in
//! sysfs appears before the probe, so the kernel's `bind` event and its message about a failed
//! probe say when it is over.

use anyhow::{bail, Context, Result};
use kfd_vm_protocol::Arrival;
use rustix::net::netlink::{SocketAddrNetlink, KOBJECT_UEVENT};
use rustix::net::{bind, recv, socket_with, AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const VENDOR_AMD: &str = "0x1002";
const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVER: &str = "amdgpu";
const POLL: Duration = Duration::from_millis(10);

pub struct Watch {
    events: OwnedFd,
    kmsg: File,
    /// PCI addresses of which a `bind` event to amdgpu has come.
    bound: HashSet<String>,
    /// What the kernel said of probes that failed.
    failures: Vec<String>,
}

impl Watch {
    pub fn new() -> Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let kind = SocketType::DGRAM;
        let events = socket_with(AddressFamily::NETLINK, kind, flags, Some(KOBJECT_UEVENT))
            .context("opening the kernel's event socket")?;
        bind(&events, &SocketAddrNetlink::new(0, 1))
            .context("binding the kernel's event socket")?;
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let kmsg = OpenOptions::new()
            .read(true)
            .custom_flags(nonblock)
            .open("/dev/kmsg")?;
        Ok(Self {
            events,
            kmsg,
            bound: HashSet::new(),
            failures: Vec::new(),
        })
    }

    /// Waits for `count` of them, for `timeout` at most. Those that amdgpu has [`Arrival::Found`]
    /// are there or will not be.
    pub fn wait(&mut self, count: usize, timeout: Duration, arrival: Arrival) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            self.take_news();
            if !self.failures.is_empty() {
                bail!("{}", self.failures.join("; "));
            }
            let present = amd_devices()?;
            let ready = present
                .iter()
                .filter(|device| self.is_ready(device, arrival))
                .count();
            if ready >= count {
                return Ok(());
            }
            if arrival == Arrival::Found || Instant::now() > deadline {
                let bound = match arrival {
                    Arrival::OnBus => String::new(),
                    Arrival::Found | Arrival::Probed => format!(", {ready} bound to {DRIVER}"),
                };
                bail!("{count} GPUs expected, {} on the bus{bound}", present.len());
            }
            sleep(POLL);
        }
    }

    fn is_ready(&self, device: &Path, arrival: Arrival) -> bool {
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        let driver = fs::read_link(device.join("driver")).unwrap_or_default();
        let is_bound = driver.file_name().is_some_and(|name| name == DRIVER);
        match arrival {
            // The kernel makes it when the device has its addresses, right before it looks for a
            // driver.
            Arrival::OnBus => device.join("resource0").exists(),
            Arrival::Found => is_bound,
            Arrival::Probed => is_bound && self.bound.contains(&*name),
        }
    }

    fn take_news(&mut self) {
        let mut buffer = vec![0; 8192];
        while let Ok((_, count @ 1..)) = recv(&self.events, &mut buffer, RecvFlags::empty()) {
            if let Some(device) = bound_device(&buffer[..count.min(8192)]) {
                self.bound.insert(device);
            }
        }
        while let Ok(count @ 1..) = self.kmsg.read(&mut buffer) {
            let line = crate::kernel_log::log_line(&String::from_utf8_lossy(&buffer[..count]));
            if is_failed_probe(&line) {
                self.failures.push(line.trim().to_string());
            }
        }
    }
}

fn amd_devices() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(DEVICES).context(DEVICES)?;
    let is_amd = |device: &PathBuf| {
        fs::read_to_string(device.join("vendor")).is_ok_and(|vendor| vendor.trim() == VENDOR_AMD)
    };
    Ok(entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_amd)
        .collect())
}

/// The PCI address in an event `bind@/devices/...\0KEY=VALUE\0...` of amdgpu.
fn bound_device(event: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(event);
    let mut fields = text.split('\0');
    let path = fields.next()?.strip_prefix("bind@")?;
    fields
        .any(|field| field.strip_prefix("DRIVER=") == Some(DRIVER))
        .then_some(())?;
    Some(path.rsplit('/').next()?.to_string())
}

fn is_failed_probe(line: &str) -> bool {
    line.contains(DRIVER)
        && line.contains("probe with driver")
        && line.contains("failed with error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_event_names_the_device() {
        let event =
            b"bind@/devices/pci0000:00/0000:00:04.0/0000:01:00.0\0ACTION=bind\0DRIVER=amdgpu\0";
        assert_eq!(bound_device(event).as_deref(), Some("0000:01:00.0"));
        assert_eq!(bound_device(b"bind@/devices/x\0DRIVER=pcieport\0"), None);
        assert_eq!(bound_device(b"add@/devices/x\0DRIVER=amdgpu\0"), None);
    }

    #[test]
    fn a_failed_probe_is_known_by_its_message() {
        let line = "[1.0] amdgpu 0000:01:00.0: probe with driver amdgpu failed with error -22";
        assert!(is_failed_probe(line));
        assert!(!is_failed_probe("[1.0] amdgpu 0000:01:00.0: Fetched VBIOS"));
    }
}
