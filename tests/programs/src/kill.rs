// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kill -9` in the middle of a dispatch: the driver must be as it was before.

use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often, and what.
#[derive(Args)]
pub struct Kill {
    /// How many processes.
    #[arg(default_value_t = 50)]
    count: u32,
    /// The program to kill: it says "running" when its dispatch is on the GPU.
    #[arg(long, default_value = "kfdctl")]
    kfdctl: PathBuf,
}

/// How long the driver may take to clean up.
const PATIENCE: Duration = Duration::from_secs(60);

impl Kill {
    /// Kills `count` processes one after the other, each after a different time, then looks at what
    /// is left.
    pub fn run(&self) -> Result<()> {
        // The first process makes what amdgpu keeps (page table pools, say).
        self.one(0)?;
        let before = settled()?;
        for round in 0..self.count {
            self.one(round)?;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let after = counters()?;
            if after == before {
                println!(
                    "{} killed, {} counters as before: {:?}",
                    self.count,
                    after.len(),
                    after
                );
                return Ok(());
            }
            if Instant::now() > end {
                bail!("left behind: before {before:?}, after {after:?}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn one(&self, round: u32) -> Result<()> {
        let mut child = Command::new(&self.kfdctl)
            .args(["run", "spin", "-n", "1000000000", "--timeout", "600"])
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| self.kfdctl.display().to_string())?;
        let started = wait_until_running(&mut child);
        std::thread::sleep(Duration::from_millis(u64::from(round % 7) * 5));
        let early = child.try_wait()?;
        child.kill()?;
        child.wait()?;
        started?;
        ensure!(early.is_none(), "the dispatch ended by itself: {early:?}");
        Ok(())
    }
}

/// Until the process sleeps in WAIT_EVENTS: its dispatch has been submitted then.
fn wait_until_running(child: &mut Child) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let channel = PathBuf::from(format!("/proc/{}/wchan", child.id()));
    while Instant::now() < end {
        let place = std::fs::read_to_string(&channel).unwrap_or_default();
        if ["wait_event", "schedule_timeout", "kfd", "wait"]
            .iter()
            .any(|name| place.contains(name))
            && has_queue(child.id())
        {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended before it was killed: {status}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("no dispatch after {PATIENCE:?}")
}

/// Whether the process maps doorbells: /dev/kfd appears in its memory map.
fn has_queue(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("/dev/kfd"))
}

/// The counters once they no longer change, and ours has no process: what went before may still be
/// cleaned up, and stand still for a while meanwhile.
pub fn settled() -> Result<BTreeMap<String, u64>> {
    let end = Instant::now() + PATIENCE;
    let mut last = counters()?;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = counters()?;
        if is_rest(&last, &now) {
            return Ok(now);
        }
        ensure!(
            Instant::now() < end,
            "no rest within {PATIENCE:?}: {last:?}, then {now:?}"
        );
        last = now;
    }
}

fn is_rest(last: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> bool {
    now == last && now.get("processes").is_none_or(|count| *count == 0)
}

/// What our driver counts; not to be read elsewhere.
const COUNTS: &str = "/sys/kernel/debug/amdkfd/counts";
/// "serving" where it is ours that runs.
const STATE: &str = "/sys/module/amdkfd/parameters/state";

/// Whether it is our driver that serves.
pub fn is_ours() -> bool {
    std::fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "serving")
}

/// amdgpu's memory counters, and those of our driver where it is the one that runs: there they must
/// be.
pub fn counters() -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/sys/class/drm")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        for file in ["mem_info_vram_used", "mem_info_gtt_used"] {
            if let Ok(text) = std::fs::read_to_string(entry.path().join("device").join(file)) {
                if name.starts_with("card") {
                    found.insert(format!("{name} {file}"), text.trim().parse()?);
                }
            }
        }
    }
    ensure!(!found.is_empty(), "no GPU of amdgpu's");
    found.extend(ours(std::fs::read_to_string(COUNTS), is_ours())?);
    Ok(found)
}

/// What our driver counts, of the text of its file.
fn ours(text: std::io::Result<String>, is_ours: bool) -> Result<BTreeMap<String, u64>> {
    let text = match text {
        Err(_) if !is_ours => return Ok(BTreeMap::new()),
        text => text.context(COUNTS)?,
    };
    let counts = text.lines().map(|line| {
        let (name, value) = line
            .split_once(' ')
            .with_context(|| format!("counts: {line}"))?;
        Ok((name.to_owned(), value.trim().parse()?))
    });
    let counts: BTreeMap<_, _> = counts.collect::<Result<_>>()?;
    ensure!(!counts.is_empty(), "{COUNTS} has nothing in it");
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_no_rest() {
        let counts = |text: &str| ours(Ok(text.into()), true).expect("counts");
        let (one, none) = (counts("processes 1\n"), counts("processes 0\n"));
        assert!(!is_rest(&one, &one) && !is_rest(&one, &none) && is_rest(&none, &none));
        // The C driver's.
        assert!(is_rest(&BTreeMap::new(), &BTreeMap::new()));
    }

    #[test]
    fn our_driver_has_counts() {
        let gone = || Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert!(ours(gone(), false).is_ok_and(|counts| counts.is_empty()));
        assert!(ours(gone(), true).is_err());
        assert!(ours(Ok(String::new()), true).is_err());
        let counts = ours(Ok("queues 3\nevents 5\n".into()), true);
        assert_eq!(counts.expect("two").get("events"), Some(&5));
    }
}
