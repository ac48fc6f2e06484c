// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process that has shared virtual memory, for tools that look at it.

use anyhow::{Context, Result};
use kfd::{topology, Device, Kfd, Location, Managed, ManagedFlags};
use std::io::{stdin, stdout, Write};

const PAGE: usize = 4096;

/// Has memory in VRAM and in system memory, tells where, and goes on with each line of standard
/// input: first it touches what is in VRAM, then it ends.
pub fn run() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let devices = [device.clone()];
    let far = Managed::new(&devices, 4 << 20)?;
    let near = Managed::new(&devices, 1 << 20)?;
    for page in (0..far.size()).step_by(PAGE) {
        far.write(page, &[page as u32]);
    }
    far.prefetch(Location::Gpu(&device))?;
    near.prefer(Some(Location::System))?;
    near.advise(ManagedFlags::READ_ONLY, true)?;
    say(&format!(
        "far {:#x} near {:#x}",
        far.address(),
        near.address()
    ))?;
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    say(&format!("touched {:#x}", far.read::<u32>(PAGE, 1)[0]))?;
    stdin().read_line(&mut line)?;
    Ok(())
}

fn say(text: &str) -> Result<()> {
    println!("{text}");
    Ok(stdout().flush()?)
}
