// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A copy on a queue of its own, which the GPU model does not let end.

use crate::running::say;
use crate::waves::Gpu;
use anyhow::Result;
use kfd::Memory;
use kfd_aql::CopyQueue;
use std::time::Duration;

const BYTES: usize = 4096;

pub fn run() -> Result<()> {
    let gpu = Gpu::open(1)?;
    let queue = CopyQueue::new(gpu.device())?;
    let [from, to] = [
        Memory::gtt(gpu.device(), BYTES)?,
        Memory::gtt(gpu.device(), BYTES)?,
    ];
    let done = gpu.signal()?;
    queue.copy(from.address(), to.address(), BYTES as u64, &done)?;
    say("copies")?;
    let end = queue.wait(&done, Duration::from_secs(600));
    say(&format!("the copy: {end:?}"))
}
