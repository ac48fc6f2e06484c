// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An UNMAP_MEMORY that has to wait, as hold_fence.ko lets it, for what seems to move the page
//! tables, and is stopped meanwhile (somebody else has to: SIGSTOP, once it waits). What it
//! unmapped must be gone from the page tables, as its memory is somebody else's afterwards.

use crate::opener::{reads_on, MIB, OWN};
use crate::running::{vram_and_ticks, wrong_pages};
use crate::waves::Gpu;
use anyhow::{anyhow, ensure, Context, Result};
use rustix::fd::AsRawFd;
use std::fs;

/// Of hold_fence.ko.
const HOLD_FENCE: &str = "/sys/kernel/debug/hold_fence";

pub fn run() -> Result<()> {
    let gpu = Gpu::open(4)?;
    let device = gpu.device();
    let (memory, _) = vram_and_ticks(device, MIB, OWN)?;
    let wrong = wrong_pages(&gpu, &memory, OWN)?;
    ensure!(wrong == 0, "{wrong} pages are wrong before");
    fs::write(HOLD_FENCE, device.render().as_raw_fd().to_string()).context("hold_fence")?;
    // This thread gets the signals: the other's are blocked.
    std::thread::scope(|scope| scope.spawn(|| reads_on(&gpu, memory)).join())
        .map_err(|_| anyhow!("a thread failed"))?
}
