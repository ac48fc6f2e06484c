// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Faults of the kernel's making: `/proc/thread-self/fail-nth` lets the Nth allocation, or copy of
//! user memory, of this thread fail. Which kind it was the kernel's log says. On a kernel without
//! fault injection tests/modules/faults.ko has the same file elsewhere.

use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{open, seek, Mode, OFlags, SeekFrom};
use rustix::io::{pread, pwrite, read, Errno};
use std::fs;
use std::path::Path;

const DEBUGFS: &str = "/sys/kernel/debug";
/// The file of faults: the kernel's own, and that of tests/modules/faults.ko.
const NTH: [&str; 2] = ["/proc/thread-self/fail-nth", "/sys/kernel/debug/fail-nth"];

/// What is made to fail by number, and how: all of it, whoever may sleep, of any size. Each fault
/// is a line in the log.
const SETTINGS: &[(&str, &str)] = &[
    ("failslab/ignore-gfp-wait", "N"),
    ("failslab/verbose", "1"),
    ("fail_page_alloc/ignore-gfp-wait", "N"),
    ("fail_page_alloc/ignore-gfp-highmem", "N"),
    ("fail_page_alloc/min-order", "0"),
    ("fail_page_alloc/verbose", "1"),
    ("fail_usercopy/verbose", "1"),
];

/// Whether the kernel itself has faults.
fn has_own() -> bool {
    Path::new(NTH[0]).exists()
}

/// Prepares the kernel's own faults, where it has them.
pub fn prepare() -> Result<()> {
    if !has_own() {
        return Ok(());
    }
    for (name, value) in SETTINGS {
        let file = Path::new(DEBUGFS).join(name);
        fs::write(&file, value).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// What has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An allocation of an object or of pages.
    Memory,
    /// A copy from or to user memory.
    Copy,
}

/// The faults of one thread.
pub struct Injector {
    nth: OwnedFd,
    log: OwnedFd,
}

impl Injector {
    /// Those of the calling thread.
    pub fn new() -> Result<Self> {
        let file = if has_own() { NTH[0] } else { NTH[1] };
        let log = "/dev/kmsg";
        let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Self {
            nth: open(file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context(file)?,
            log: open(log, read, Mode::empty()).context(log)?,
        })
    }

    /// Makes `call` with its `nth` fault, and returns which that was; None: it does not reach as
    /// many.
    pub fn with<T>(&self, nth: u32, call: impl FnOnce() -> T) -> Result<(T, Option<Fault>)> {
        seek(&self.log, SeekFrom::End(0))?;
        let number = nth.to_string();
        pwrite(&self.nth, number.as_bytes(), 0)?;
        let result = call();
        let failed = self.disarm()?;
        Ok((result, if failed { Some(self.which()?) } else { None }))
    }

    /// No more faults. Whether one was made since the last number was written.
    fn disarm(&self) -> Result<bool> {
        let mut text = [0; 16];
        // Where asking would be what fails, nothing has failed before.
        let failed = match pread(&self.nth, &mut text, 0) {
            Ok(bytes) => text[..bytes].trim_ascii() == b"0",
            Err(Errno::FAULT) => false,
            Err(errno) => return Err(errno.into()),
        };
        // A fault that is left may be that of this write; then it was the last.
        if pwrite(&self.nth, b"0", 0).is_err() {
            pwrite(&self.nth, b"0", 0)?;
        }
        Ok(failed)
    }

    /// What the log says of the last fault.
    fn which(&self) -> Result<Fault> {
        let mut found = None;
        let mut record = [0; 8192];
        loop {
            match read(&self.log, &mut record) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&record[..bytes]);
                    found = kind(&text).or(found);
                }
                // Records were lost: the rest is there.
                Err(Errno::PIPE) => {}
                Err(_) => break,
            }
        }
        // Where the allocation asks for silence there is no line.
        Ok(found.unwrap_or(Fault::Memory))
    }
}

/// The kind of a fault, from the line that names it.
fn kind(text: &str) -> Option<Fault> {
    let (_, rest) = text.split_once("name ")?;
    let name = rest.split([',', '\n']).next()?;
    match name {
        "failslab" | "fail_page_alloc" => Some(Fault::Memory),
        "fail_usercopy" => Some(Fault::Copy),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_what_has_failed() {
        let line = |name| {
            format!(
                "5,77,1;FAULT_INJECTION: forcing a failure.\\x0aname {name}, interval 1, times 1"
            )
        };
        assert_eq!(kind(&line("failslab")), Some(Fault::Memory));
        assert_eq!(kind(&line("fail_page_alloc")), Some(Fault::Memory));
        assert_eq!(kind(&line("fail_usercopy")), Some(Fault::Copy));
        assert_eq!(kind(&line("fail_futex")), None);
        assert_eq!(kind("6,1,1;amdkfd: ready"), None);
    }
}
