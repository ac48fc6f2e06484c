// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The steps that look at what others hear of the memory:
//!
//! ```text
//! listen       opens the GPU's file of SMI events     told       what it has told since
//! listen modest       the same by who may hear of his own processes only
//! counters     what sysfs counts of the process on the GPU
//! usage        how much more memory in VRAM sysfs counts of the process than at first
//! usage KIB    the same as soon as it is that: a block goes when a worker comes to it
//! gauge NAME   how many there are in the driver
//! gauge NAME NUMBER   the same as soon as there are as many: a worker forgets what is unmapped
//! ```

use super::interpreter::Interpreter;
use super::world::{BASE, PAGE};
use crate::raw::ioctl;
use crate::running::PATIENCE;
use anyhow::{Context, Result};
use kfd_uapi as uapi;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{FromRawFd, OwnedFd};
use std::fs;
use std::time::{Duration, Instant};

/// Migrations, faults of pages, pages that GPUs lose (`enum kfd_smi_event`: 5 to 8, 11).
const MASK: u64 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10;

/// Nothing comes any more.
const QUIET: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};

impl Interpreter {
    /// `modest`: without privileges.
    pub fn listen(&mut self, modest: bool) -> Result<String> {
        const NOBODY: u32 = 65534;
        if modest {
            nix::unistd::seteuid(NOBODY.into())?;
        }
        let opened = self.open_listener();
        if modest {
            nix::unistd::seteuid(0.into())?;
        }
        self.listener = Some(opened?);
        Ok("0".into())
    }

    fn open_listener(&self) -> Result<OwnedFd> {
        let mut args = uapi::kfd_ioctl_smi_events_args {
            gpuid: self.world.gpus[0],
            anon_fd: 0,
        };
        ioctl(self.world.kfd(), uapi::IOC_SMI_EVENTS, &mut args)?;
        // SAFETY: the kernel has just made it for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) };
        rustix::io::write(&fd, &MASK.to_ne_bytes())?;
        Ok(fd)
    }

    /// The events, without their times; pages are those of the area. Those of other processes are
    /// `foreign`.
    pub fn heard(&self) -> Result<String> {
        let fd = self.listener.as_ref().context("nobody listens")?;
        let (mut text, mut room) = (String::new(), [0u8; 4096]);
        loop {
            let mut fds = [PollFd::new(fd, PollFlags::IN)];
            if poll(&mut fds, Some(&QUIET))? == 0 {
                break;
            }
            let bytes = rustix::io::read(fd, &mut room)?;
            text.push_str(&String::from_utf8_lossy(&room[..bytes]));
        }
        let mine = format!("-{}", std::process::id());
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (number, _time, pid) = (words.next()?, words.next()?, words.next()?);
            let rest: Vec<_> = words.map(|word| self.relative(word)).collect();
            let whose = if pid == mine { "" } else { "foreign " };
            Some(format!("{whose}{number} {}", rest.join(" ")))
        });
        Ok(lines.collect::<Vec<_>>().join(" | "))
    }

    /// An event's word: pages from the area's first on, GPUs by number.
    fn relative(&self, word: &str) -> String {
        let gpu = format!("{:x}", self.world.gpus[0]);
        let word = word.replace(&gpu, "G0");
        let Some((page, rest)) = word.strip_prefix('@').and_then(|word| word.split_once('('))
        else {
            return word;
        };
        let page = u64::from_str_radix(page, 16).unwrap_or(0);
        format!("@{}({rest}", page.wrapping_sub(BASE / PAGE))
    }

    pub fn usage(&mut self) -> Result<String> {
        Ok(format!("{} KiB more", self.more_used()?))
    }

    /// The same when it has become `kib`, or what it is after a long time.
    pub fn usage_becomes(&mut self, kib: i64) -> Result<String> {
        Ok(format!("{} KiB more", becomes(kib, || self.more_used())?))
    }

    fn more_used(&mut self) -> Result<i64> {
        let (pid, gpu) = (std::process::id(), self.world.gpus[0]);
        let file = format!("/sys/devices/virtual/kfd/kfd/proc/{pid}/vram_{gpu}");
        let now: i64 = fs::read_to_string(file)?.trim().parse()?;
        let first = *self.first_usage.get_or_insert(now);
        Ok((now - first) >> 10)
    }

    pub fn gauge(&self, name: &str) -> Result<String> {
        Ok(number_of(name)?.to_string())
    }

    /// The same when it has become `number`, or what it is after a long time.
    pub fn gauge_becomes(&self, name: &str, number: u64) -> Result<String> {
        Ok(becomes(number, || number_of(name))?.to_string())
    }

    pub fn counters(&self) -> Result<String> {
        let (pid, gpu) = (std::process::id(), self.world.gpus[0]);
        let folder = format!("/sys/devices/virtual/kfd/kfd/proc/{pid}/counters_{gpu}");
        let read = |name: &str| -> Result<String> {
            let text = fs::read_to_string(format!("{folder}/{name}"))?;
            Ok(format!("{name} {}", text.trim()))
        };
        let all = ["faults", "page_in", "page_out"].map(read);
        let all: Result<Vec<_>> = all.into_iter().collect();
        Ok(all?.join(", "))
    }
}

/// How many there are in the driver.
fn number_of(name: &str) -> Result<u64> {
    let all = fs::read_to_string("/sys/kernel/debug/amdkfd/counts")?;
    let mut lines = all.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(counted, _)| *counted == name);
    Ok(found.context("no such gauge")?.1.parse()?)
}

/// What `look` sees as soon as that is `wanted`, or after a long time.
fn becomes<T: PartialEq>(wanted: T, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        let seen = look()?;
        if seen == wanted || begin.elapsed() > PATIENCE {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
