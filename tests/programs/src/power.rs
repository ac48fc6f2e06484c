// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who keeps a GPU awake: a process does that uses it, to its end, and nothing else of it does.

use anyhow::{Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Print how many references to the GPU's runtime power a process adds, step by step.
#[derive(Args)]
pub struct Power {
    /// Be a process that has a VM on the GPU, and end without giving it back.
    #[arg(long)]
    visit: bool,
}

/// The GPU's file in sysfs.
fn file(render_minor: u64) -> PathBuf {
    format!("/sys/class/drm/renderD{render_minor}/device/power/runtime_usage").into()
}

fn usage(file: &PathBuf) -> Result<i64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(text.trim().parse()?)
}

impl Power {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let file = file(node.property("drm_render_minor"));
        if self.visit {
            Device::acquire(&Kfd::open()?, node)?;
            return Ok(());
        }
        let before = usage(&file)?;
        let show = |what: &str| -> Result<()> {
            println!("{what}: {:+}", usage(&file)? - before);
            Ok(())
        };
        let kfd = Kfd::open()?;
        show("/dev/kfd open")?;
        let device = Device::acquire(&kfd, node)?;
        show("a VM")?;
        let memory = Memory::gtt(&device, 4096)?;
        show("a buffer")?;
        let more: Vec<_> = (0..3).map(|_| Kfd::open()).collect::<Result<_, _>>()?;
        show("more files")?;
        drop((memory, device, kfd, more));
        show("all files closed, the process still there")?;
        let status = std::process::Command::new(std::env::current_exe()?)
            .args(["power", "--visit"])
            .status()?;
        // The end of a process is not waited for, but it comes. amdgpu holds a reference for a
        // moment when a render node is opened, is used or closes: the count that stays is meant.
        let begin = Instant::now();
        let mut unchanged = 0;
        while unchanged < 10 && begin.elapsed() < Duration::from_secs(30) {
            unchanged = if usage(&file)? == before + 1 { unchanged + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(20));
        }
        show(&format!("after a visitor ({status})"))
    }
}
