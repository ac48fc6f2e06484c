// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Warm starts: a machine with amdgpu loaded and no GPU, saved once and restored for every run.
//! Loading the 48 MB amdgpu takes most of a boot. The cache holds one snapshot for each machine,
//! under a key of all it depends on.

use crate::machine::Machine;
use crate::run::{load_amdgpu, Scratch};
use crate::session::{Session, Start};
use anyhow::{Context, Result};
use rustix::fs::{flock, FlockOperation};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// TIMEOUT: 300 MB to or from a file.
const TRANSFER: Duration = Duration::from_secs(120);
/// Snapshots that were not used for so long are removed when a new one is made.
const UNUSED: Duration = Duration::from_secs(3 * 24 * 3600);
const SUFFIX: &str = "snapshot";

pub struct Snapshot {
    path: PathBuf,
}

/// The machine's snapshot, made now if there is none. One maker at a time; others wait for it.
pub fn obtain(machine: &Machine<'_>, scratch: &Scratch) -> Result<Snapshot> {
    let path = machine
        .assets
        .cache
        .join(format!("{}.{SUFFIX}", machine.key()?));
    if !path.exists() {
        let lock = path.with_extension("lock");
        let lock = File::create(&lock).with_context(|| lock.display().to_string())?;
        flock(&lock, FlockOperation::LockExclusive).context("locking the snapshot")?;
        if !path.exists() {
            remove_unused(&machine.assets.cache);
            make(machine, scratch, &path).context("making a snapshot")?;
        }
    }
    Ok(Snapshot { path })
}

fn make(machine: &Machine<'_>, scratch: &Scratch, path: &Path) -> Result<()> {
    eprintln!("kfd-vm: making a snapshot for this kind of machine (once, under a minute)");
    let mut session = Session::start(Start::new(machine, scratch)?)?;
    let release = session.hello()?;
    scratch.note(&format!("booted {release}"));
    load_amdgpu(&mut session, "", scratch)?;
    let part = tempfile::Builder::new()
        .suffix(".part")
        .tempfile_in(&machine.assets.cache)?;
    let name = part.path().display().to_string();
    session.monitor.execute("stop", json!({}))?;
    session.monitor.migrate("migrate", &name, TRANSFER)?;
    session.quit();
    part.persist(path).context("storing the snapshot")?;
    scratch.note("saved");
    Ok(())
}

impl Snapshot {
    /// Fills a machine that waits for it, and lets it run.
    pub fn restore(&self, session: &mut Session) -> Result<()> {
        // The time of last use keeps the file in the cache.
        let _ = File::options()
            .append(true)
            .open(&self.path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        session.monitor.migrate(
            "migrate-incoming",
            &self.path.display().to_string(),
            TRANSFER,
        )?;
        session.monitor.execute("cont", json!({}))?;
        session.hello().map(drop)
    }

    /// Removes a snapshot that cannot be restored.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn remove_unused(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = path
            .extension()
            .is_some_and(|suffix| suffix == SUFFIX || suffix == "part");
        let used = entry.metadata().and_then(|data| data.modified());
        let age = used
            .ok()
            .and_then(|time| time.elapsed().ok())
            .unwrap_or_default();
        if ours && age > UNUSED {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_snapshots_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        make("old.snapshot", UNUSED * 2);
        make("new.snapshot", Duration::ZERO);
        make("old.cpio", UNUSED * 2);
        remove_unused(dir.path());
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["new.snapshot", "old.cpio"]);
    }
}
