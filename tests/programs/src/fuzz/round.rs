// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Rounds`]: runs programs one after the other and looks at the driver after each. One per
//! fuzzer.

use super::execute;
use super::program::Program;
use super::shared::{Shared, Tally};
use super::watch::{kill, left_behind, reap, Counts, Log};
use crate::kill::settled;
use anyhow::{bail, Context, Result};
use nix::unistd::{fork, setpgid, ForkResult, Pid};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the processes of a round may go on: nothing that is generated waits longer than a
/// moment.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Rounds {
    log: Log,
    before: Counts,
    pub tally: &'static Tally,
    record: Option<PathBuf>,
    complaints: PathBuf,
    bound: Duration,
    /// Whether processes are killed instead of awaited.
    killing: bool,
}

impl Rounds {
    /// Counts what there is before the first program, as `warm` leaves it.
    pub fn new(
        record: Option<PathBuf>,
        bound: Duration,
        killing: bool,
        warm: &Program,
    ) -> Result<Self> {
        // What outlives its parent is this process's to wait for.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        open_to_all()?;
        let complaints = format!("kfd-fuzz.{}", std::process::id());
        let mut rounds = Self {
            log: Log::new()?,
            before: Counts::new(),
            tally: Tally::new()?,
            record,
            complaints: std::env::temp_dir().join(complaints),
            bound,
            killing: false,
        };
        // amdgpu keeps some of what it once had for a process.
        let failures = rounds.processes(warm)?;
        if !failures.is_empty() {
            bail!("before anything was fuzzed: {}", failures.join("; "));
        }
        rounds.before = settled()?;
        rounds.killing = killing;
        Ok(rounds)
    }

    /// Runs `program` to the end of all of its processes. What failed, in words; nothing where all
    /// is well.
    pub fn run(&self, program: &Program) -> Result<Vec<String>> {
        let mut failures = self.processes(program)?;
        let begin = Instant::now();
        failures.extend(left_behind(&self.before)?);
        self.tally.took("CLEAN", begin.elapsed());
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
        let (ready, launched) = (self.tally.good("SETUP"), self.tally.good("LAUNCH"));
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
        if self.killing {
            let processes = u64::from(program.processes());
            self.until("SETUP", ready + processes);
            self.until("LAUNCH", launched + processes);
            // One after the other, each a little further in its lines than the one before.
            for (number, group) in (0..).zip(&groups) {
                std::thread::sleep(Duration::from_millis(number % 4 * 7));
                kill(*group);
            }
        }
        let begin = Instant::now();
        let mut failures = reap(PATIENCE, &groups, self.tally);
        self.tally.took("END", begin.elapsed());
        let complaints = fs::read_to_string(&self.complaints)?;
        failures.extend(complaints.lines().map(str::to_owned));
        Ok(failures)
    }

    /// Waits until `name` was good so often, or a moment has passed: some may have failed.
    fn until(&self, name: &str, times: u64) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.tally.good(name) < times && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Lets processes of every user open the driver's files: programs have some of two.
fn open_to_all() -> Result<()> {
    let mut files = vec![PathBuf::from("/dev/kfd")];
    for entry in fs::read_dir("/dev/dri").context("/dev/dri")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("renderD")) {
            files.push(path);
        }
    }
    for file in files {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))
            .with_context(|| file.display().to_string())?;
    }
    Ok(())
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // A temporary file that is gone already is no loss.
        let _ = fs::remove_file(&self.complaints);
    }
}
