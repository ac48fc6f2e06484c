// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `kfd-vm run --perfetto FILE`: the command runs under `kfdctl trace --perfetto`, and what the
//! models traced meanwhile is laid beside it.

use crate::args::RunArgs;
use crate::place::Place;
use crate::run::BOOT;
use crate::session::Session;
use anyhow::{bail, Context, Result};
use kfd_timeline::{model, read, Timeline};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the guest has the tracer, and what it wrote.
const KFDCTL: &str = "/run/amdkfd/kfdctl";
const TIMELINE: &str = "/run/amdkfd/timeline";
/// The guest's writer has number 1 in the file.
const FIRST_WRITER: u32 = 2;

/// What the run needs for it.
pub struct Perfetto {
    file: PathBuf,
    kfdctl: Vec<u8>,
}

impl Perfetto {
    /// What `--perfetto` asks for; a file that can't be written, or no kfdctl, is said before a
    /// boot.
    pub fn new(args: &RunArgs) -> Result<Option<Self>> {
        let Some(file) = &args.perfetto else {
            return Ok(None);
        };
        if args.model_args.contains("--trace") {
            bail!("--perfetto has the models traced: leave --trace out of --model-args");
        }
        let path = Place::find().kfdctl(std::env::current_exe()?);
        let kfdctl = fs::read(&path);
        let kfdctl =
            kfdctl.with_context(|| format!("{}: --perfetto needs kfdctl", path.display()))?;
        fs::write(file, []).with_context(|| file.display().to_string())?;
        Ok(Some(Self {
            file: file.clone(),
            kfdctl,
        }))
    }

    /// Brings the tracer into the guest.
    pub fn equip(&self, session: &mut Session) -> Result<()> {
        session.write_file(KFDCTL, 0o755, &self.kfdctl, BOOT)
    }

    /// The command, traced.
    pub fn command(&self, command: &[String]) -> Vec<String> {
        let tracer = [KFDCTL, "trace", "--perfetto", TIMELINE, "--"];
        let tracer = tracer.iter().map(|word| word.to_string());
        tracer.chain(command.iter().cloned()).collect()
    }

    /// The guest's part of the timeline.
    pub fn fetch(&self, session: &mut Session) -> Result<Vec<u8>> {
        session.output_of(&["cat", TIMELINE], BOOT)
    }

    /// Writes the file, after the models have ended.
    pub fn write(&self, guest: Vec<u8>, scratch: &Path, gpus: usize) -> Result<()> {
        let known = model::Guest::of(&read(&guest)?);
        let mut file = guest;
        for number in 0..gpus {
            // The topology lists GPUs in the order in which they were plugged in.
            let Some((gpu_id, clocks)) = known.gpus.get(number) else {
                say!("kfd-vm: not in the timeline: GPU {number}, whose clock is not known");
                continue;
            };
            let path = trace(scratch, number);
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            let text = String::from_utf8_lossy(&text);
            let mut timeline = Timeline::new(FIRST_WRITER + number as u32);
            let name = format!("model of GPU {gpu_id}");
            let added = model::add(&mut timeline, &name, &text, clocks, &known.kernels);
            if let Err(why) = added {
                bail!("the model of GPU {number}: {why}");
            }
            file.extend(timeline.encode());
        }
        fs::write(&self.file, file).with_context(|| self.file.display().to_string())
    }
}

/// The arguments with which the model of GPU `number` is traced.
pub fn model_arguments(args: &RunArgs, scratch: &Path, number: usize) -> Vec<String> {
    if args.perfetto.is_none() {
        return Vec::new();
    }
    let path = trace(scratch, number).display().to_string();
    let words = ["--trace", &path, "--trace-only", model::TARGETS];
    words.map(String::from).to_vec()
}

fn trace(scratch: &Path, number: usize) -> PathBuf {
    scratch.join(format!("gpu{number}.trace"))
}
