// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl driver`: which driver serves `/dev/kfd`, and which one is to.

mod boot;
mod kmsg;
pub mod machine;
pub mod module;
mod obstacles;
pub mod secure;
mod status;
mod switch;
mod users;

use crate::output::unless_closed;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use machine::{Machine, Serving};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use switch::Outcome;

/// What to do about the driver.
#[derive(Args)]
#[command(after_help = STATUSES)]
pub struct Driver {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Look at this amdkfd.ko instead of the installed one.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

const STATUSES: &str = "\
Exit status:
  0  done, or as it was asked for already
  1  it could not be tried
  2  wrong arguments
  3  something stands in the way; nothing was changed
  4  the kernel refused; its messages are shown";

#[derive(Subcommand)]
enum Verb {
    /// Have one of the two drivers serve /dev/kfd, after a look at what stands in the way.
    #[command(after_help = STATUSES)]
    Use {
        /// Which one.
        driver: Choice,
        /// Load this amdkfd.ko instead of the installed one.
        #[arg(long, value_name = "FILE")]
        module: Option<PathBuf>,
        /// As the unit of at-boot does: wait for amdgpu, and say how it came out in one line.
        #[arg(long)]
        boot: bool,
    },
    /// Choose the driver that serves after each boot.
    #[command(after_help = STATUSES)]
    AtBoot {
        /// Which one: rust enables amdkfd-rs.service, c (the default) disables it.
        driver: Choice,
    },
}

/// One of the two drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// amdkfd.ko
    Rust,
    /// The amdkfd in amdgpu.ko
    C,
}

/// Where amdkfd.ko comes from.
pub enum Source {
    /// What is installed for the running kernel.
    Installed,
    /// A file.
    File(PathBuf),
}

impl Source {
    fn of(file: &Option<PathBuf>) -> Self {
        file.clone().map_or(Self::Installed, Self::File)
    }
}

/// Something stands in the way.
const IN_THE_WAY: u8 = 3;
/// The kernel refused.
const REFUSED: u8 = 4;

impl Driver {
    /// Does it.
    pub fn run(&self, json: bool) -> Result<ExitCode> {
        let machine = Machine::here();
        match &self.verb {
            None => status::show(&machine, &Source::of(&self.module), json),
            Some(Verb::Use {
                driver,
                module,
                boot,
            }) => {
                let source = Source::of(module.as_ref().map_or(&self.module, |_| module));
                use_driver(&machine, *driver, &source, *boot, json)
            }
            Some(Verb::AtBoot { driver }) => {
                boot::set(&machine, *driver)?;
                outln!("after each boot: {}", status::at_boot(*driver));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn use_driver(
    machine: &Machine,
    driver: Choice,
    source: &Source,
    boot: bool,
    json: bool,
) -> Result<ExitCode> {
    if boot && !boot::wait_for_amdgpu(machine) {
        eprintln!("amdgpu does not end its initialisation: the driver stays as it is");
        return Ok(ExitCode::from(IN_THE_WAY));
    }
    if !boot {
        boot::leave_to_hand(machine);
    }
    let outcome = switch::switch(machine, driver, source)?;
    if boot && !json {
        eprintln!("{}", line(machine.serving(), &outcome));
        return Ok(ExitCode::from(status_of(&outcome)));
    }
    status(&outcome, tell(&outcome, json)).map(ExitCode::from)
}

/// How it came out, whether or not anybody has read it.
fn status(outcome: &Outcome, told: Result<()>) -> Result<u8> {
    unless_closed(told).map(|()| status_of(outcome))
}

fn status_of(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Serves { .. } => 0,
        Outcome::InTheWay { .. } => IN_THE_WAY,
        Outcome::Refused { .. } => REFUSED,
    }
}

fn tell(outcome: &Outcome, json: bool) -> Result<()> {
    match outcome {
        _ if json => outln!("{}", serde_json::to_string(outcome)?),
        Outcome::Serves { what, .. } => outln!("{what}"),
        Outcome::InTheWay { obstacles } => {
            eprintln!("nothing is changed:");
            for obstacle in obstacles {
                eprintln!("  {}\n    -> {}", obstacle.what, obstacle.remedy);
            }
        }
        Outcome::Refused { why, hint, kernel } => {
            eprintln!("{why}");
            for line in kernel {
                eprintln!("  kernel: {line}");
            }
            if let Some(hint) = hint {
                eprintln!("  -> {hint}");
            }
        }
    }
    Ok(())
}

/// All of it in one line, for the journal.
fn line(serving: Serving, outcome: &Outcome) -> String {
    let reasons = match outcome {
        Outcome::Serves { what, .. } => return what.clone(),
        Outcome::InTheWay { obstacles } => {
            let all: Vec<_> = obstacles
                .iter()
                .map(|obstacle| obstacle.what.as_str())
                .collect();
            all.join("; ")
        }
        Outcome::Refused { why, kernel, .. } => {
            // The kernel's first line is the reason; the rest follows from it.
            kernel.first().unwrap_or(why).clone()
        }
    };
    format!("{}: {reasons}", status::serving(serving, None))
}

#[cfg(test)]
mod tests {
    use super::obstacles::Obstacle;
    use super::*;

    #[test]
    fn the_journal_gets_one_line() {
        let obstacle = |what: &str| Obstacle {
            what: what.into(),
            remedy: "x".into(),
        };
        let in_the_way = Outcome::InTheWay {
            obstacles: vec![obstacle("one"), obstacle("two")],
        };
        assert_eq!(
            line(Serving::C, &in_the_way),
            "the C driver in amdgpu serves /dev/kfd: one; two"
        );
        let gone = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let status = status(&in_the_way, Err(gone.into()));
        assert_eq!(status.ok(), Some(IN_THE_WAY), "nobody has read it");
        let refused = Outcome::Refused {
            why: "No such device".into(),
            hint: None,
            kernel: vec!["amdkfd: no".into(), "amdkfd: more".into()],
        };
        assert_eq!(
            line(Serving::Nobody, &refused),
            "nobody serves /dev/kfd: amdkfd: no"
        );
    }
}
