// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl trace -- CMD`: every call that a program and its children make on a KFD, decoded.

mod call;
mod decode;
mod rules;
mod tracee;

use anyhow::{Context, Result};
use call::{Call, End};
use clap::Args;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracee::Process;

/// What to trace, and where to write it.
#[derive(Args)]
pub struct Trace {
    /// Write to FILE instead of standard error.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Instead of the calls, print how often each was made, how long they took, and how many
    /// failed.
    #[arg(long, short = 'c')]
    count: bool,
    /// After the calls, print what `--count` prints.
    #[arg(long, short = 'C', conflicts_with = "count")]
    summary: bool,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Trace {
    /// Runs the command to its end and returns its exit status.
    pub fn run(&self, json: bool) -> Result<ExitCode> {
        let output: Box<dyn Write> = match &self.output {
            Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
            None => Box::new(std::io::stderr()),
        };
        let mut tracer = Tracer {
            first: tracee::start(&self.command)?,
            since: Instant::now(),
            tasks: HashMap::new(),
            processes: HashMap::new(),
            report: Report {
                output,
                json,
                calls: !self.count,
                counts: self.count || self.summary,
                totals: BTreeMap::new(),
            },
            status: None,
        };
        // Ctrl-C is for the program; the tracer ends when the program does.
        // SAFETY: ignoring a signal runs no code.
        unsafe {
            nix::sys::signal::signal(Signal::SIGINT, nix::sys::signal::SigHandler::SigIgn)?;
        }
        tracer.follow()?;
        tracer.report.finish()?;
        Ok(ExitCode::from(tracer.status.unwrap_or(1)))
    }
}

/// One traced thread.
#[derive(Default)]
struct Task {
    call: Option<Call>,
    leader: Option<Pid>,
    /// Whether it has been seen stopped: its first stop is the kernel's own SIGSTOP.
    begun: bool,
}

/// All that is traced.
struct Tracer {
    first: Pid,
    since: Instant,
    tasks: HashMap<Pid, Task>,
    processes: HashMap<Pid, Process>,
    report: Report,
    status: Option<u8>,
}

impl Tracer {
    fn follow(&mut self) -> Result<()> {
        // The stop after exec; only now can options be set.
        waitpid(self.first, Some(WaitPidFlag::__WALL)).context("waiting for the program")?;
        ptrace::setoptions(self.first, tracee::options()).context("tracing the program")?;
        self.tasks.entry(self.first).or_default().begun = true;
        ptrace::cont(self.first, None)?;
        loop {
            match waitpid(None::<Pid>, Some(WaitPidFlag::__WALL)) {
                Ok(status) => self.stopped(status)?,
                Err(Errno::ECHILD) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("waiting for the program"),
            }
        }
    }

    /// Handles one stop; a task that is killed at the same time answers ESRCH, and its end follows.
    fn stopped(&mut self, status: WaitStatus) -> Result<()> {
        let handled = match status {
            WaitStatus::PtraceEvent(task, _, libc::PTRACE_EVENT_SECCOMP) => self.enter(task),
            WaitStatus::PtraceEvent(task, _, event) => {
                if event == libc::PTRACE_EVENT_EXEC {
                    // The address space is another now, and the thread has the leader's id.
                    self.processes.remove(&task);
                    self.tasks.entry(task).or_default().call = None;
                }
                ptrace::cont(task, None)
            }
            WaitStatus::PtraceSyscall(task) => self.leave(task)?,
            WaitStatus::Stopped(task, signal) => self.signal(task, signal),
            WaitStatus::Exited(task, code) => self.ended(task, code as u8)?,
            WaitStatus::Signaled(task, signal, _) => self.ended(task, 128 + signal as u8)?,
            _ => Ok(()),
        };
        match handled {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno).context("tracing the program"),
        }
    }

    fn process(&mut self, task: Pid) -> &mut Process {
        let known = self.tasks.entry(task).or_default();
        let leader = *known.leader.get_or_insert_with(|| tracee::leader(task));
        self.processes.entry(leader).or_insert_with(|| {
            let mut process = Process::new(leader);
            process.refresh();
            process
        })
    }

    fn enter(&mut self, task: Pid) -> nix::Result<()> {
        let entry = tracee::entry(task)?;
        let call = Call::enter(task, self.process(task), &entry);
        let interesting = call.is_some();
        self.tasks.entry(task).or_default().call = call;
        if interesting {
            ptrace::syscall(task, None)
        } else {
            ptrace::cont(task, None)
        }
    }

    fn leave(&mut self, task: Pid) -> Result<nix::Result<()>> {
        let call = self
            .tasks
            .get_mut(&task)
            .and_then(|known| known.call.take());
        if let Some(call) = call {
            let outcome = match tracee::outcome(task) {
                Ok(outcome) => outcome,
                Err(errno) => return Ok(Err(errno)),
            };
            let end = call.leave(self.process(task), outcome);
            self.write(task, &call, &end)?;
        }
        Ok(ptrace::cont(task, None))
    }

    fn signal(&mut self, task: Pid, signal: Signal) -> nix::Result<()> {
        let known = self.tasks.entry(task).or_default();
        let first = !std::mem::replace(&mut known.begun, true);
        if first && signal == Signal::SIGSTOP {
            return ptrace::cont(task, None);
        }
        // A stop that has no signal's data is the group's, which has been delivered before.
        let pass = ptrace::getsiginfo(task).is_ok().then_some(signal);
        if known.call.is_some() {
            ptrace::syscall(task, pass)
        } else {
            ptrace::cont(task, pass)
        }
    }

    fn ended(&mut self, task: Pid, status: u8) -> Result<nix::Result<()>> {
        if task == self.first {
            self.status = Some(status);
        }
        let gone = self
            .tasks
            .get_mut(&task)
            .and_then(|known| known.call.take());
        if let Some(call) = gone {
            let end = call.unfinished();
            self.write(task, &call, &end)?;
        }
        self.tasks.remove(&task);
        self.processes.remove(&task);
        Ok(Ok(()))
    }

    fn write(&mut self, task: Pid, call: &Call, end: &End) -> Result<()> {
        let leader = self.tasks.get(&task).and_then(|known| known.leader);
        self.report
            .call(task, leader.unwrap_or(task), self.since, call, end)
    }
}

/// Where calls are written to.
struct Report {
    output: Box<dyn Write>,
    json: bool,
    calls: bool,
    counts: bool,
    totals: BTreeMap<String, Total>,
}

/// What all calls of one name came to.
#[derive(Default)]
struct Total {
    calls: u64,
    errors: u64,
    time: Duration,
}

impl Report {
    fn call(
        &mut self,
        task: Pid,
        leader: Pid,
        since: Instant,
        call: &Call,
        end: &End,
    ) -> Result<()> {
        let total = self.totals.entry(call.name.clone()).or_default();
        total.calls += 1;
        total.errors += u64::from(matches!(end.outcome, Some(Err(_))));
        total.time += end.time;
        if !self.calls {
            return Ok(());
        }
        if self.json {
            writeln!(self.output, "{}", call.json(task, leader, since, end))?;
        } else {
            writeln!(self.output, "{}", call.text(task, since, end))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if !self.counts {
            return Ok(self.output.flush()?);
        }
        let mut totals: Vec<_> = self.totals.iter().collect();
        totals.sort_by_key(|(_, total)| std::cmp::Reverse(total.time));
        if self.json {
            let all: Vec<_> = totals
                .iter()
                .map(|(name, total)| total.json(name))
                .collect();
            writeln!(self.output, "{}", serde_json::Value::from(all))?;
            return Ok(self.output.flush()?);
        }
        writeln!(self.output, "  seconds  us/call    calls   errors  call")?;
        for (name, total) in totals {
            let seconds = total.time.as_secs_f64();
            let each = seconds * 1e6 / total.calls as f64;
            writeln!(
                self.output,
                "{seconds:9.6} {each:8.0} {:8} {:8}  {name}",
                total.calls, total.errors
            )?;
        }
        Ok(self.output.flush()?)
    }
}

impl Total {
    fn json(&self, name: &str) -> serde_json::Value {
        serde_json::json!({
            "call": name,
            "calls": self.calls,
            "errors": self.errors,
            "seconds": self.time.as_secs_f64(),
        })
    }
}
