// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Another thread asks for RESUME all the time, so that one comes just before RESTORE: it is
//! refused, or gives the process its shared virtual memory as well.

use super::image::Read_;
use super::restore;
use super::restored::{in_children, open_devices, own_memory, put};
use anyhow::{ensure, Context, Result};
use kfd::Kfd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often: one seldom comes in time.
const ROUNDS: usize = 12;

pub fn run(file: &Path) -> Result<()> {
    in_children((0..ROUNDS).map(|round| (format!("round {round}"), || once(file))))
}

fn once(file: &Path) -> Result<()> {
    let mut read = Read_::read(file)?;
    // Without retries RESUME maps all that GPUs see.
    put(&mut read.saved.checkpoint, 4, 0);
    own_memory(&read)?;
    let kfd = Kfd::open()?;
    let _files = open_devices(&mut read)?;
    let pid = std::process::id();
    let failed = AtomicBool::new(false);
    let restored = std::thread::scope(|scope| {
        let resumes = || while kfd.resume(pid).is_err() && !failed.load(Ordering::Relaxed) {};
        scope.spawn(resumes);
        let restored = restore(&kfd, &read.saved.checkpoint);
        failed.store(restored.is_err(), Ordering::Relaxed);
        restored
    });
    restored.context("RESTORE")?;
    let objects = || -> Result<u32> {
        let sizes = kfd.pause()?;
        kfd.unpause()?;
        Ok(sizes.objects)
    };
    let before = objects()?;
    // Nothing is left for it to give.
    let again = kfd.resume(pid).err().and_then(|error| error.errno());
    let again = again.map(|errno| errno.raw());
    ensure!(
        again == Some(nix::libc::EINVAL),
        "another RESUME: {again:?}"
    );
    let after = objects()?;
    ensure!(
        before == after,
        "{before} objects when it goes on, and {after} in the end"
    );
    Ok(())
}
