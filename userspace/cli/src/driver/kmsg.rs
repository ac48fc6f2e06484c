// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the kernel says while something is done: `/dev/kmsg`.

use rustix::fs::{open, seek, Mode, OFlags, SeekFrom};
use rustix::io::{read, Errno};
use std::os::fd::OwnedFd;

/// The kernel's messages from now on.
pub struct Messages(Option<OwnedFd>);

impl Messages {
    /// From this moment. Without the right to read them there are none.
    pub fn from_now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open("/dev/kmsg", flags, Mode::empty()).ok();
        Self(file.filter(|file| seek(file, SeekFrom::End(0)).is_ok()))
    }

    /// Those about amdkfd.ko since the last look.
    pub fn of_ours(&self) -> Vec<String> {
        let Some(file) = &self.0 else {
            return Vec::new();
        };
        let mut found = Vec::new();
        // The kernel gives one record a read.
        let mut record = [0; 8192];
        loop {
            match read(file, &mut record) {
                Ok(0) => return found,
                Ok(length) => found.extend(of_ours(&String::from_utf8_lossy(&record[..length]))),
                // Records were overwritten before we came to read them; the next read goes on.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(_) => return found,
            }
        }
    }
}

/// The text of a record, if it is about amdkfd.ko or about loading modules.
fn of_ours(record: &str) -> Option<String> {
    let (_, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let starts = ["amdkfd: ", "amdkfd.ko: ", "Lockdown: ", "Loading of "];
    // Every module that is not the distribution's is told to taint the kernel: that explains
    // nothing.
    let wanted = starts.iter().any(|start| text.starts_with(start)) && !text.contains("taint");
    wanted.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_the_module_is_shown() {
        let said = of_ours("3,812,5140900,-;amdkfd: built for amdgpu 01; it; is\n SUBSYSTEM=x\n");
        assert_eq!(said.as_deref(), Some("amdkfd: built for amdgpu 01; it; is"));
        let lockdown = "5,9,1,-;Lockdown: modprobe: unsigned module loading is restricted\n";
        assert!(of_ours(lockdown).is_some());
        assert_eq!(of_ours("6,1,2,-;amdgpu: amdkfd: none of ours\n"), None);
        assert_eq!(
            of_ours("4,1,2,-;amdkfd: loading out-of-tree module taints kernel.\n"),
            None
        );
        assert_eq!(of_ours("nonsense"), None);
    }
}
