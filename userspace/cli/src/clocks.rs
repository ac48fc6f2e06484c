// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl clocks`: what each GPU's clock shows at which moment of the system's, so that times of
//! both lie on one line. A program of its own: whoever asks a KFD is a process of it from then on,
//! and `kfdctl trace` is not to be one.

use anyhow::{Context, Result};
use kfd::Kfd;
use nix::time::{clock_gettime, ClockId};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Of so many the one that took the shortest is taken.
const SAMPLES: usize = 9;

/// One moment of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The GPU.
    pub gpu_id: u32,
    /// Its clock's ticks.
    pub ticks: u64,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// How long both took to be read, in nanoseconds.
    pub within_ns: u64,
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    now(ClockId::CLOCK_MONOTONIC)
}

fn now(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Prints a moment of each GPU as JSON.
pub fn print() -> Result<()> {
    let kfd = Kfd::open()?;
    let mut moments = Vec::new();
    for gpu in kfd::topology::gpus()? {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            samples.push(sample(&kfd, gpu.gpu_id)?);
        }
        moments.extend(samples.into_iter().min_by_key(|moment| moment.within_ns));
    }
    outln!("{}", serde_json::to_string(&moments)?);
    Ok(())
}

/// The kernel reads the GPU's clock, then CLOCK_BOOTTIME.
fn sample(kfd: &Kfd, gpu_id: u32) -> Result<Moment> {
    let (boot, before) = (now(ClockId::CLOCK_BOOTTIME), monotonic_ns());
    let clocks = kfd.clocks(gpu_id)?;
    let within_ns = monotonic_ns() - before;
    Ok(Moment {
        gpu_id,
        ticks: clocks.gpu_clock_counter,
        monotonic_ns: before + clocks.system_clock_counter.saturating_sub(boot),
        within_ns,
    })
}

/// A moment of each GPU, asked for by another process.
pub fn moments() -> Result<Vec<Moment>> {
    let program = std::env::current_exe().context("this program's path")?;
    let mut command = Command::new(program);
    let output = command.arg("clocks").stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        anyhow::bail!("{}", why.strip_prefix("kfdctl: ").unwrap_or(&why));
    }
    serde_json::from_slice(&output.stdout).context("the clocks")
}
