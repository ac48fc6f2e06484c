// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The scratch directory of a run: locked while its process lives, and removed by the next run if
//! that process was killed.

use crate::interrupt::Interrupt;
use anyhow::{Context, Result};
use rustix::fs::{flock, FlockOperation};
use rustix::process::getuid;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

/// What lasts as long as the run and is removed with it.
pub struct Scratch {
    dir: TempDir,
    /// Held as long as the process lives, however it ends.
    _lock: File,
    pub interrupt: Interrupt,
    verbose: bool,
    started: Instant,
}

impl Scratch {
    pub fn new(verbose: bool) -> Result<Self> {
        // First, so that no signal leaves the directory behind.
        let interrupt = Interrupt::install()?;
        remove_left(&std::env::temp_dir());
        let dir = tempfile::Builder::new()
            .prefix(SCRATCH)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .context("a scratch directory")?;
        Ok(Self {
            _lock: lock(dir.path())?,
            dir,
            interrupt,
            verbose,
            started: Instant::now(),
        })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// With --verbose, says what has been reached and when.
    pub fn note(&self, what: &str) {
        if self.verbose {
            say!(
                "kfd-vm: {:6.2} s  {what}",
                self.started.elapsed().as_secs_f32()
            );
        }
    }
}

const SCRATCH: &str = "kfd-vm-";
const LOCK: &str = "lock";

/// A locked file that gets its name when it is locked: nobody finds one whose lock is free and
/// whose owner is alive.
fn lock(dir: &Path) -> Result<File> {
    let unnamed = dir.join("lock.new");
    let lock = File::create(&unnamed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).context("a scratch directory")?;
    fs::rename(&unnamed, dir.join(LOCK)).context("a scratch directory")?;
    Ok(lock)
}

/// Removes what processes that were killed have left: scratch directories of this user's whose lock
/// nobody holds.
fn remove_left(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(SCRATCH)
            && entry.metadata().is_ok_and(|data| {
                data.is_dir() && data.uid() == getuid().as_raw() && data.mode() & 0o077 == 0
            });
        // Without a lock it may be one that is just being made.
        let lock = ours.then(|| File::open(entry.path().join(LOCK)));
        if let Some(Ok(lock)) = lock {
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt;

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, locked: bool| {
            let path = dir.path().join(name);
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            let file = File::create(path.join(LOCK)).unwrap();
            if locked {
                flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            }
            locked.then_some(file)
        };
        let _held = make("kfd-vm-held", true);
        make("kfd-vm-left", false);
        make("other", false);
        fs::create_dir(dir.path().join("kfd-vm-new")).unwrap();
        remove_left(dir.path());
        let entries = fs::read_dir(dir.path()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["kfd-vm-held", "kfd-vm-new", "other"]);
    }

    #[test]
    fn a_scratch_directory_that_is_being_made_stays() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = |name: String| {
            let path = dir.path().join(name);
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            path
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    remove_left(dir.path());
                }
            });
            for number in 0..2000 {
                let path = scratch(format!("kfd-vm-{number}"));
                let held = lock(&path).map(|held| (held, path.exists()));
                if number == 1999 || !held.as_ref().is_ok_and(|(_, exists)| *exists) {
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                    assert!(held.unwrap().1, "{number}");
                }
            }
        });
    }
}
