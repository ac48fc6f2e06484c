// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Debugging through DBG_TRAP: scripts in which processes debug each other's use of the GPU.
//!
//! A case is played by processes of one letter, which come to be with their first line:
//!
//!     d: enable @t        has `d` do that (`player.rs`), with the id of `t` for `@t`, and prints
//!                         the line and what it came to; `@t/1` is the id of t's second thread
//!     t~ runtime on       the same; prints "waits" when it is not done within half a second
//!     t? runtime          waits for what that came to
//!     kill t, end t       kills it, or has it exit; prints nothing but the line
//!
//! `u` and later letters are another user. What is left at the end of a case is killed. Addresses
//! are printed as A1, A2 and so on, in the order in which the case shows them.

mod event;
mod player;
mod session;
mod snapshot;
mod stage;
mod target;
mod words;

use crate::cases::of_script;
use anyhow::{ensure, Context, Result};
use clap::Args;
use stage::Stage;

/// Which case, or whom to be in one.
#[derive(Args)]
pub struct Debug {
    /// This case alone.
    #[arg(long)]
    case: Option<String>,
    /// Be a process of a case: do what the lines of stdin say.
    #[arg(long, hide = true)]
    player: bool,
}

const SCRIPTS: &[&str] = &[
    include_str!("debug/rules.txt"),
    include_str!("debug/events.txt"),
    include_str!("debug/snapshots.txt"),
    include_str!("debug/queues.txt"),
    include_str!("debug/waves.txt"),
    include_str!("debug/runtime.txt"),
    include_str!("debug/exits.txt"),
];

impl Debug {
    pub fn run(&self) -> Result<()> {
        if self.player {
            return player::run();
        }
        let (mut played, mut failed) = (0, 0);
        for (name, lines) in SCRIPTS.iter().flat_map(|script| of_script(script)) {
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
        stage.line(line).with_context(|| (*line).to_owned())?;
    }
    Ok(())
}
