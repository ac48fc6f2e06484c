// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the fuzzer calls a failure: a report in the kernel's log, something left behind, a process
//! that does not end.

use super::shared::Tally;
use crate::kill::counters;
use anyhow::{Context, Result};
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::fs::{open, seek, Mode, OFlags, SeekFrom};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the driver may take to clean up behind processes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Words with which the kernel begins a report; the rest of its log is what a fuzzer must expect.
const REPORTS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "INFO: task",
    "INFO: rcu",
    "rcu: INFO",
    "Oops",
    "general protection fault",
    "kernel BUG at",
    "KASAN:",
    "UBSAN:",
    "refcount_t:",
    "ODEBUG:",
    "list_add corruption",
    "list_del corruption",
    "possible circular locking",
    "possible recursive locking",
    "inconsistent lock state",
    "suspicious RCU usage",
    "sleeping function called",
    "scheduling while atomic",
    "soft lockup",
    "panicked at",
    "kmemleak:",
];

/// Whether this line of the log begins a report.
fn is_report(line: &str) -> bool {
    // kmemleak also says that it is there, and KCSAN tells of all of the kernel.
    let of_others = line.contains("KCSAN:") && !line.contains("[amdkfd]");
    let begins = line.contains("kmemleak: Kernel memory leak");
    REPORTS.iter().any(|word| line.contains(word)) && !begins && !of_others
}

/// The kernel's log from now on.
pub struct Log(OwnedFd);

impl Log {
    pub fn new() -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open("/dev/kmsg", flags, Mode::empty()).context("/dev/kmsg")?;
        seek(&file, SeekFrom::End(0))?;
        // A warning that comes only once comes again.
        let _ = fs::write("/sys/kernel/debug/clear_warn_once", "1");
        Ok(Self(file))
    }

    /// The reports that have come since the last call, a line of each.
    pub fn reports(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut record = [0; 8192];
        loop {
            match rustix::io::read(&self.0, &mut record) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&record[..bytes]);
                    let first = text.lines().next().unwrap_or_default();
                    let said = first.split_once(';').map_or(first, |(_, said)| said);
                    if is_report(said) {
                        found.push(said.to_owned());
                    }
                }
                // Records were lost: the rest is there.
                Err(rustix::io::Errno::PIPE) => {}
                Err(_) => return found,
            }
        }
    }
}

/// What our driver counts, where it is the one that runs, and amdgpu's memory.
pub type Counts = BTreeMap<String, u64>;

/// What of `now` is more than `before`.
fn more(before: &Counts, now: &Counts) -> Vec<String> {
    let old = |name: &str| before.get(name).copied().unwrap_or(0);
    now.iter()
        .filter(|(name, value)| **value > old(name))
        .map(|(name, value)| format!("{name}: {value} instead of {}", old(name)))
        .collect()
}

/// What is left behind though the driver was given time.
pub fn left_behind(before: &Counts) -> Result<Vec<String>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = more(before, &counters()?);
        if left.is_empty() || Instant::now() > end {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until all children and their children have ended, at most `patience`; then kills them.
/// What had to be killed is returned, with what the kernel says of where it was, and what does not
/// even then end.
pub fn reap(patience: Duration, groups: &[i32], tally: &Tally) -> Vec<String> {
    if ended_within(patience, tally) {
        return Vec::new();
    }
    let mut failures = stuck();
    groups.iter().for_each(|group| kill(*group));
    if !ended_within(PATIENCE, tally) {
        failures.extend(
            stuck()
                .iter()
                .map(|it| format!("SIGKILL does not end {it}")),
        );
    }
    failures
}

/// SIGKILL to a process of the program and the children that it has.
pub fn kill(group: i32) {
    // SAFETY: a signal to the fuzzer's own children.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Whether no child is left; the fuzzer inherits those whose parents have ended.
fn ended_within(patience: Duration, tally: &Tally) -> bool {
    let end = Instant::now() + patience;
    loop {
        let mut status = 0;
        // SAFETY: it only takes what there is.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) } {
            0 if Instant::now() > end => return false,
            0 => std::thread::sleep(Duration::from_millis(2)),
            -1 => return true,
            _ if libc::WIFSIGNALED(status) => {
                tally.count("KILLED", libc::WTERMSIG(status) == libc::SIGKILL);
            }
            _ => {}
        }
    }
}

/// This process's descendants that have not ended, and where they are.
fn stuck() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut words = rest.split(' ');
        let (state, parent) = (words.next(), words.next());
        if parent == Some(&std::process::id().to_string()) && state != Some("Z") {
            found.push(format!(
                "{name}), in state {} at {}",
                state.unwrap_or("?"),
                stack(&entry.path())
            ));
        }
    }
    found
}

fn stack(process: &Path) -> String {
    let mut text = String::new();
    for task in fs::read_dir(process.join("task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        text += &fs::read_to_string(task.path().join("stack")).unwrap_or_default();
    }
    text.lines().take(12).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_told_from_the_rest() {
        for line in [
            "BUG: KASAN: slab-use-after-free in x",
            "WARNING: CPU: 1 PID: 7 at mm/x.c:1 x+0x1/0x2",
            "WARNING: possible circular locking dependency detected",
            "INFO: task kfd-tests:77 blocked for more than 120 seconds.",
            "kmemleak: 3 new suspected memory leaks",
            "BUG: KCSAN: data-race in x [amdkfd] / y",
        ] {
            assert!(is_report(line), "{line}");
        }
        for line in [
            "amdgpu 0000:00:10.0: [gfxhub0] no-retry page fault (src_id:0 ring:8 vmid:8 pasid:1)",
            "amdkfd: a queue did not stop",
            "BUG: KCSAN: data-race in ksys_read / ksys_write",
            "kmemleak: Kernel memory leak detector initialized (mem pool available: 15679)",
        ] {
            assert!(!is_report(line), "{line}");
        }
    }

    #[test]
    fn only_what_is_more_is_left_behind() {
        let counts =
            |values: [u64; 2]| Counts::from([("a".into(), values[0]), ("b".into(), values[1])]);
        assert!(more(&counts([3, 4]), &counts([3, 1])).is_empty());
        assert_eq!(
            more(&counts([3, 4]), &counts([3, 5])),
            ["b: 5 instead of 4"]
        );
        assert_eq!(more(&Counts::new(), &counts([0, 1])), ["b: 1 instead of 0"]);
    }
}
