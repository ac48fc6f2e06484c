// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Performance counters of a GPU in partitions: they have one owner, who says for one partition at
//! a time whether queues count there. When it gives them back, or ends, they do not.

use crate::bench::Bench;
use crate::mqd::dumps;
use crate::raw::ioctl;
use crate::running::{say, PATIENCE};
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Have another process count what a queue of this one does, in a partition of a GPU.
#[derive(Args)]
pub struct Counters {
    /// Be the other process.
    #[arg(long, hide = true)]
    owner: bool,
}

/// Where a driver shows the descriptors.
const FILES: [&str; 1] = ["/sys/kernel/debug/amdkfd/mqds"];

/// `struct v9_mqd` (v9_structs.h): compute_perfcount_enable.
const PERFCOUNT_ENABLE: usize = 12;

impl Counters {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let [first, second, ..] = &nodes[..] else {
            bail!("the GPU is not in partitions");
        };
        if self.owner {
            return own(&kfd, first.gpu_id, second.gpu_id);
        }
        let device = Device::acquire(&kfd, second)?;
        let bench = Bench::new(&device)?;
        ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut bench.queue())?;
        ensure!(!counts()?, "it counts before anybody wants that");
        let mut owner = Command::new(std::env::current_exe()?)
            .args(["counters", "--owner"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let result = follow(&mut owner);
        let _ = owner.kill();
        let _ = owner.wait();
        result?;
        let begin = Instant::now();
        while counts()? {
            ensure!(
                begin.elapsed() < PATIENCE,
                "it counts though the owner has ended"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("it counts no more when the owner has ended");
        Ok(())
    }
}

/// What the owner does, step by step, and whether the queue counts then.
fn follow(owner: &mut Child) -> Result<()> {
    let mut lines = BufReader::new(owner.stdout.take().context("no pipe")?).lines();
    for expected in [
        ("taken", true),
        ("given back", false),
        ("taken again", true),
    ] {
        let step = lines.next().context("the owner has failed")??;
        let counts = counts()?;
        println!(
            "{step}: {}",
            if counts {
                "it counts"
            } else {
                "it does not count"
            }
        );
        ensure!((step.as_str(), counts) == expected, "that is wrong");
        writeln!(owner.stdin.as_mut().context("no pipe")?)?;
    }
    Ok(())
}

/// The owner, until it is killed.
fn own(kfd: &Kfd, first: u32, second: u32) -> Result<()> {
    let set = |gpu_id, lock: bool, count: bool| {
        let mut args = uapi::kfd_ioctl_profiler_args {
            op: uapi::KFD_IOC_PROFILER_PMC,
            ..Default::default()
        };
        args.__bindgen_anon_1.pmc = uapi::kfd_ioctl_pmc_settings {
            gpu_id,
            lock: lock.into(),
            perfcount_enable: count.into(),
        };
        ioctl(kfd, uapi::IOC_PROFILER, &mut args)
    };
    let mut line = String::new();
    set(second, true, true)?;
    say("taken")?;
    std::io::stdin().read_line(&mut line)?;
    // Another partition of the same GPU is named.
    set(first, false, false)?;
    say("given back")?;
    std::io::stdin().read_line(&mut line)?;
    set(second, true, true)?;
    say("taken again")?;
    std::thread::sleep(PATIENCE);
    Ok(())
}

/// Whether the only queue that there is counts.
fn counts() -> Result<bool> {
    let descriptors = dumps(&FILES)?;
    ensure!(!descriptors.is_empty(), "no descriptor");
    let words = descriptors.iter().map(|words| words.get(PERFCOUNT_ENABLE));
    let set: Option<Vec<bool>> = words.map(|word| word.map(|word| *word != 0)).collect();
    let set = set.context("a short descriptor")?;
    ensure!(
        set.iter().all(|it| *it == set[0]),
        "its descriptors differ: {set:?}"
    );
    Ok(set[0])
}
