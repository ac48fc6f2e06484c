// SPDX-License-Identifier: GPL-2.0 OR MIT

//! [`Rounds`]: runs programs one after the other and looks at the driver after each. One per fuzzer.

use super::execute;
use super::program::Program;
use super::shared::{Shared, Tally};
use super::watch::{left_behind, reap, Counts, Log};
use crate::kill::settled;
use anyhow::{bail, Context, Result};
use nix::unistd::{fork, setpgid, ForkResult, Pid};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How long the processes of a round may go on before they are killed.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Rounds {
    log: Log,
    before: Counts,
    pub tally: &'static Tally,
    record: Option<PathBuf>,
    complaints: PathBuf,
    bound: Duration,
}

impl Rounds {
    /// Counts what there is before the first program, as `warm` leaves it.
    pub fn new(record: Option<PathBuf>, bound: Duration, warm: &Program) -> Result<Self> {
        // What outlives its parent is this process's to wait for.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let complaints = format!("kfd-fuzz.{}", std::process::id());
        let mut rounds = Self {
            log: Log::new()?,
            before: Counts::new(),
            tally: Tally::new()?,
            record,
            complaints: std::env::temp_dir().join(complaints),
            bound,
        };
        // amdgpu keeps some of what it once had for a process.
        let failures = rounds.processes(warm)?;
        if !failures.is_empty() {
            bail!("before anything was fuzzed: {}", failures.join("; "));
        }
        rounds.before = settled()?;
        Ok(rounds)
    }

    /// Runs `program` to the end of all of its processes. What failed, in words; nothing where all is well.
    pub fn run(&self, program: &Program) -> Result<Vec<String>> {
        let mut failures = self.processes(program)?;
        failures.extend(left_behind(&self.before)?);
        failures.extend(self.log.reports());
        Ok(failures)
    }

    fn processes(&self, program: &Program) -> Result<Vec<String>> {
        let shared = Shared::new(
            program.processes(),
            self.tally,
            self.record.as_deref(),
            &self.complaints,
            self.bound,
        )?;
        let mut groups = Vec::new();
        for process in 0..program.processes() {
            // SAFETY: this process has one thread.
            match unsafe { fork() }.context("fork")? {
                ForkResult::Child => execute::process(program, process, &shared),
                ForkResult::Parent { child } => {
                    // The child may have ended already.
                    let _ = setpgid(child, Pid::from_raw(0));
                    groups.push(child.as_raw());
                }
            }
        }
        let mut failures = reap(PATIENCE, &groups);
        let complaints = fs::read_to_string(&self.complaints)?;
        failures.extend(complaints.lines().map(str::to_owned));
        Ok(failures)
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // A temporary file that is gone already is no loss.
        let _ = fs::remove_file(&self.complaints);
    }
}
