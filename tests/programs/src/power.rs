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

const PATIENCE: Duration = Duration::from_secs(30);

/// The GPU's file in sysfs.
fn file(render_minor: u64) -> PathBuf {
    format!("/sys/class/drm/renderD{render_minor}/device/power/runtime_usage").into()
}

fn usage(file: &PathBuf) -> Result<i64> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(text.trim().parse()?)
}

/// The count that stays, and is `wanted`; the last one, if that does not come. amdgpu holds a
/// reference for a moment when a render node is opened, is used or closes.
fn at_rest(file: &PathBuf, wanted: Option<i64>) -> Result<i64> {
    let begin = Instant::now();
    let (mut last, mut unchanged) = (usage(file)?, 1);
    while unchanged < 10 || wanted.is_some_and(|wanted| wanted != last) {
        if begin.elapsed() > PATIENCE {
            eprintln!("no rest within {PATIENCE:?}");
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        let now = usage(file)?;
        unchanged = if now == last { unchanged + 1 } else { 1 };
        last = now;
    }
    Ok(last)
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
        let before = at_rest(&file, None)?;
        let show = |what: &str| -> Result<()> {
            println!("{what}: {:+}", at_rest(&file, None)? - before);
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
        // The end of a process is not waited for, but it comes.
        let after = at_rest(&file, Some(before + 1))? - before;
        println!("after a visitor ({status}): {after:+}");
        Ok(())
    }
}
