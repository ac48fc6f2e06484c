// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Warm starts: a machine without a GPU, saved once and restored for every run. Most are saved with
//! amdgpu, since loading its 48 MB takes as long as the boot; those that are to have none, or one
//! with parameters, without. The cache holds one snapshot for each machine, under a key of all it
//! depends on.

use crate::image;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::place::Place;
use crate::run::load_amdgpu;
use crate::scratch::Scratch;
use crate::session::{Session, Start};
use anyhow::{Context, Result};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// TIMEOUT: 300 MB to or from a file.
const TRANSFER: Duration = Duration::from_secs(120);
/// How often the lock of whoever makes a snapshot is tried.
const TURN: Duration = Duration::from_millis(100);
/// What of the cache was not used for so long is removed when a new snapshot is made.
const UNUSED: Duration = Duration::from_secs(3 * 24 * 3600);
const SUFFIX: &str = "snapshot";

pub struct Snapshot {
    path: PathBuf,
}

/// The machine's snapshot, with or without amdgpu, made now if there is none. One maker at a time;
/// others wait for it.
pub fn obtain(machine: &Machine<'_>, amdgpu: bool, scratch: &Scratch) -> Result<Snapshot> {
    let without = if amdgpu { "" } else { "-bare" };
    let path = machine
        .assets
        .cache
        .join(format!("{}{without}.{SUFFIX}", machine.key()?));
    if !path.exists() {
        let lock = path.with_extension("lock");
        let lock = File::create(&lock).with_context(|| lock.display().to_string())?;
        wait_for_turn(&lock, &scratch.interrupt)?;
        if !path.exists() {
            remove_unused(&machine.assets.cache);
            make(machine, amdgpu, scratch, &path).context("making a snapshot")?;
        }
    }
    Ok(Snapshot { path })
}

/// Waits until no other kfd-vm makes the same snapshot or disk, or until a signal comes.
pub fn wait_for_turn(lock: &File, interrupt: &Interrupt) -> Result<()> {
    loop {
        interrupt.check()?;
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => sleep(TURN),
            Err(errno) => return Err(errno).context("locking it"),
        }
    }
}

fn make(machine: &Machine<'_>, amdgpu: bool, scratch: &Scratch, path: &Path) -> Result<()> {
    say!("kfd-vm: making a snapshot for this kind of machine (once, under a minute)");
    let mut session = Session::start(Start::new(machine, scratch)?)?;
    let release = session.hello()?;
    scratch.note(&format!("booted {release}"));
    if amdgpu {
        load_amdgpu(&mut session, "", scratch)?;
    }
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
        keep(&self.path);
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

/// The time of last use keeps a file in the cache. A container's image has a cache that nothing is
/// removed from: there, a new time would have the file copied first.
pub fn keep(file: &Path) {
    if Place::find().fixed().is_some() {
        return;
    }
    let file = File::options().append(true).open(file);
    let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes snapshots, initramfs files and disks of own images that nobody uses any more.
pub fn remove_unused(cache: &Path) {
    if Place::find().fixed().is_some() {
        return;
    }
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = path.extension().is_some_and(|suffix| {
            [SUFFIX, "part", "cpio", "lock", image::SUFFIX, "json"]
                .iter()
                .any(|ours| suffix == *ours)
        });
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
    fn only_what_is_old_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        make("old.snapshot", UNUSED * 2);
        make("new.snapshot", Duration::ZERO);
        make("old.cpio", UNUSED * 2);
        make("kept.cpio", UNUSED * 2);
        make("old.lock", UNUSED * 2);
        make("old.other", UNUSED * 2);
        keep(&dir.path().join("kept.cpio"));
        remove_unused(dir.path());
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["kept.cpio", "new.snapshot", "old.other"]);
    }

    #[test]
    fn a_signal_ends_the_waiting_for_another_maker() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = || File::create(file.path()).unwrap();
        let (theirs, ours) = (lock(), lock());
        let interrupt = Interrupt::default();
        wait_for_turn(&theirs, &interrupt).unwrap();
        interrupt.set(15);
        assert!(wait_for_turn(&ours, &interrupt).is_err());
        drop(theirs);
        wait_for_turn(&ours, &Interrupt::default()).unwrap();
    }
}
