// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl events`: SMI events (system management interface), as they come.

use crate::output::shown;
use anyhow::{ensure, Result};
use clap::Args;
use kfd::{topology, Kfd, SmiEvents};
use std::io::Write;
use std::time::{Duration, Instant};

/// Which events, and for how long.
#[derive(Args)]
pub struct Events {
    /// Only events of these names, such as vmfault,process_start; default: all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Also those of other users' processes; for root.
    #[arg(long)]
    all: bool,
    /// End after so many seconds.
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
}

/// A flag of the mask and no event: those of all processes.
const ALL_PROCESS: &str = "ALL_PROCESS";

impl Events {
    /// Prints events until it is interrupted or the time is over.
    pub fn run(&self, json: bool) -> Result<()> {
        let kfd = Kfd::open()?;
        let numbers = self.numbers()?;
        let gpus = topology::gpus()?;
        ensure!(!gpus.is_empty(), "the KFD serves no GPU");
        let mut streams = gpus
            .iter()
            .map(|node| SmiEvents::open(&kfd, node.gpu_id, &numbers))
            .collect::<kfd::Result<Vec<_>>>()?;
        let start = Instant::now();
        let over = |now: Duration| self.seconds.is_some_and(|end| now.as_secs_f64() >= end);
        // With several GPUs each is waited for in turn, for not longer than anybody notices.
        let turn = Duration::from_millis(200 / streams.len() as u64 + 1);
        eprintln!("listening to {} GPU(s)", streams.len());
        while !over(start.elapsed()) {
            for stream in &mut streams {
                let gpu_id = stream.gpu_id();
                for event in stream.read(turn)? {
                    let time = start.elapsed().as_secs_f64();
                    if json {
                        let line = serde_json::json!({
                            "time": time, "gpu_id": gpu_id, "event": event.name,
                            "number": event.number, "text": event.text,
                        });
                        outln!("{line}");
                    } else {
                        outln!(
                            "{time:10.3}  GPU {gpu_id}  {:<18} {}",
                            event.name,
                            // The names of processes are in it.
                            shown(&event.text)
                        );
                    }
                    std::io::stdout().flush()?;
                }
            }
        }
        Ok(())
    }

    fn numbers(&self) -> Result<Vec<u32>> {
        let known: Vec<_> = kfd_uapi::reflect::constants("KFD_SMI_EVENT_")
            .filter(|(name, _)| !["NONE", "MSG_SIZE"].contains(name))
            .collect();
        let wanted: Vec<_> = self.only.iter().map(|name| name.to_uppercase()).collect();
        for name in &wanted {
            let names = known.iter().map(|(name, _)| name.to_lowercase());
            let names: Vec<_> = names.filter(|name| name != "all_process").collect();
            ensure!(
                name != ALL_PROCESS,
                "all_process is no event, but those of all processes: that is --all"
            );
            ensure!(
                known.iter().any(|(known, _)| known == name),
                "no event is called {name}; there are: {}",
                names.join(", ")
            );
        }
        let chosen = |name: &str| match name {
            ALL_PROCESS => self.all,
            _ => wanted.is_empty() || wanted.iter().any(|wanted| wanted == name),
        };
        let numbers = known.into_iter().filter(|(name, _)| chosen(name));
        Ok(numbers.map(|(_, number)| number).collect())
    }
}

/// A time that ends.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| format!("{text:?} is no number of seconds such as 1.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_an_end() {
        assert_eq!((seconds("1.5"), seconds("0")), (Ok(1.5), Ok(0.0)));
        for text in ["nan", "inf", "-1", "soon", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn events_are_chosen_by_name() {
        let events = |only: &[&str], all| Events {
            only: only.iter().map(|name| (*name).to_owned()).collect(),
            all,
            seconds: None,
        };
        let numbers = events(&["vmfault"], true).numbers().expect("known");
        assert_eq!(
            numbers,
            [
                kfd_uapi::KFD_SMI_EVENT_VMFAULT,
                kfd_uapi::KFD_SMI_EVENT_ALL_PROCESS
            ]
        );
        assert!(events(&["nothing"], false).numbers().is_err());
        assert!(events(&["all_process"], false).numbers().is_err());
        assert!(events(&["vmfault", "all_process"], true).numbers().is_err());
        let all = events(&[], false).numbers().expect("all are known");
        assert!(!all.contains(&kfd_uapi::KFD_SMI_EVENT_ALL_PROCESS));
        assert!(all.len() >= 13);
    }
}
