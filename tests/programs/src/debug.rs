// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Debugging through DBG_TRAP: scripts in which processes debug each other's use of the GPU.
//!
//! A case is played by processes of one letter, which come to be with their first line:
//!
//! ```text
//! d: enable @t        has `d` do that (`player.rs`), with the id of `t` for `@t`, and prints
//!                     the line and what it came to; `@t/1` is the id of t's second thread
//! t~ runtime on       the same; prints "waits" when it is not done within half a second
//! t? runtime          waits for what that came to
//! kill t, end t       kills it, or has it exit; prints nothing but the line
//! ends refused        the case is over if the last call failed: the GPU cannot do what it is about
//! ```
//!
//! `u` and later letters are another user. What is left at the end of a case is killed. Addresses
//! are printed as A1, A2 and so on, in the order in which the case shows them.

mod event;
mod held;
mod player;
mod session;
mod snapshot;
mod stage;
mod target;
mod waves;
mod words;

pub use held::enable as debug_itself;

use crate::cases::of_script;
use crate::kill::{counters, settled};
use anyhow::{ensure, Context, Result};
use clap::Args;
use stage::Stage;
use std::time::{Duration, Instant};

/// Which case, or whom to be in one.
#[derive(Args)]
pub struct Debug {
    /// This case alone.
    #[arg(long)]
    case: Option<String>,
    /// The cases of these scripts alone.
    #[arg(long, value_parser = SCRIPTS.map(|(name, _)| name))]
    script: Vec<String>,
    /// The cases of machines with two GPUs.
    #[arg(long)]
    gpus: bool,
    /// Kill the debugger, its target, and both, at each point of a session, and see that the driver
    /// has no more afterwards than before.
    #[arg(long, conflicts_with = "case")]
    kill: bool,
    /// Debug this process, and end when a child keeps the lock of the debugger's pipe for ever.
    #[arg(long, conflicts_with = "case")]
    held: bool,
    /// Be a process of a case: do what the lines of stdin say.
    #[arg(long, hide = true)]
    player: bool,
}

/// TIMEOUT: how long the driver may take to clean up, on a loaded host.
const CLEANS_UP: Duration = Duration::from_secs(60);

const SCRIPTS: [(&str, &str); 8] = [
    ("rules", include_str!("debug/rules.txt")),
    ("events", include_str!("debug/events.txt")),
    ("passing", include_str!("debug/passing.txt")),
    ("snapshots", include_str!("debug/snapshots.txt")),
    ("queues", include_str!("debug/queues.txt")),
    ("waves", include_str!("debug/waves.txt")),
    ("runtime", include_str!("debug/runtime.txt")),
    ("exits", include_str!("debug/exits.txt")),
];

const OF_TWO_GPUS: &[(&str, &str)] = &[("gpus", include_str!("debug/gpus.txt"))];

impl Debug {
    pub fn run(&self) -> Result<()> {
        if self.player {
            return player::run();
        }
        if self.kill {
            return killed();
        }
        if self.held {
            return held::run();
        }
        let scripts = if self.gpus { OF_TWO_GPUS } else { &SCRIPTS };
        let wanted = |name: &str| self.script.is_empty() || self.script.iter().any(|it| it == name);
        let scripts = scripts.iter().filter(|(name, _)| wanted(name));
        let (mut played, mut failed) = (0, 0);
        for (name, lines) in scripts.flat_map(|(_, script)| of_script(script)) {
            if self.case.as_deref().is_none_or(|wanted| wanted == name) {
                println!("case {name}");
                played += 1;
                if let Err(error) = play(&lines) {
                    println!("broken off: {error:#}");
                    failed += 1;
                }
            }
        }
        ensure!(played > 0, "there is no such case");
        ensure!(failed == 0, "{failed} of {played} cases were broken off");
        Ok(())
    }
}

/// One case.
fn play(lines: &[&str]) -> Result<()> {
    let mut stage = Stage::default();
    for line in lines {
        if !stage.line(line).with_context(|| (*line).to_owned())? {
            break;
        }
    }
    Ok(())
}

/// The session of `killed.txt`, played to each of its points by processes that are killed there.
fn killed() -> Result<()> {
    let script = of_script(include_str!("debug/killed.txt"));
    let (_, lines) = script.first().context("the script has a case")?;
    let points: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("point "))
        .collect();
    // The first makes what amdgpu keeps (page table pools, say).
    kill_at(lines, &["d", "t"])?;
    let before = settled()?;
    for at in points {
        for who in [&["d"][..], &["t"], &["d", "t"], &["t", "d"]] {
            let what = format!("{}: {} killed", lines[at], who.join(" and "));
            kill_at(&lines[..at], who).with_context(|| what.clone())?;
            let begin = Instant::now();
            while counters()? != before {
                let now = counters()?;
                ensure!(
                    begin.elapsed() < CLEANS_UP,
                    "{what}: before {before:?}, after {now:?}"
                );
                std::thread::sleep(Duration::from_millis(50));
            }
            println!("{what}: nothing is left");
        }
    }
    Ok(())
}

/// Plays so many lines, and kills these processes, then all that are left.
fn kill_at(lines: &[&str], who: &[&str]) -> Result<()> {
    let mut stage = Stage::quiet();
    for line in lines.iter().filter(|line| !line.starts_with("point ")) {
        stage.line(line).with_context(|| (*line).to_owned())?;
    }
    for name in who {
        stage.line(&format!("kill {name}"))?;
    }
    Ok(())
}
