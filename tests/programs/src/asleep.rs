// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process that computes while the machine goes to sleep and wakes up.

use crate::running::{moves, say, vram_and_ticks, wrong_pages, Running};
use crate::waves::Gpu;
use anyhow::{ensure, Result};
use clap::Args;

/// What the process has.
#[derive(Args)]
pub struct Asleep {
    /// MiB of VRAM.
    #[arg(long, default_value_t = 64)]
    mib: usize,
}

impl Asleep {
    pub fn run(&self) -> Result<()> {
        let gpu = Gpu::open(4)?;
        let seed = std::process::id();
        let (memory, ticks) = vram_and_ticks(gpu.device(), self.mib, seed)?;
        let running = Running::start(&gpu, ticks.address())?;
        let look = || -> Result<()> {
            ensure!(
                moves(|| ticks.read::<u32>(0, 1)[0]),
                "the kernel stands still"
            );
            let wrong = wrong_pages(&gpu, &memory, seed)?;
            ensure!(wrong == 0, "{wrong} pages of VRAM are not what they were");
            Ok(())
        };
        look()?;
        say("running")?;
        for line in std::io::stdin().lines() {
            line?;
            look()?;
            say("goes on")?;
        }
        running.finish()?;
        say("ended")
    }
}
