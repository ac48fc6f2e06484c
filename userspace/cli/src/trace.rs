// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl trace -- CMD`: every call that a program and its children make on a KFD, decoded.

mod call;
mod decode;
mod endings;
mod rules;
mod timeline;
mod tracee;

use crate::clocks::monotonic_ns;
use anyhow::{Context, Result};
use call::{Call, End};
use clap::Args;
use endings::Endings;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use timeline::Recording;
use tracee::{resume, Process, Resume, Stop};

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
    /// Instead of the calls, or beside them with --output, write a timeline for Perfetto: calls,
    /// the driver's tracepoints, and dispatches by the names of their kernels.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
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
        // Not at the end, when all would be lost; nor while signals are held back: who reads it may
        // be waited for.
        let perfetto = self.perfetto.as_deref().map(|path| {
            let file = File::create(path).with_context(|| path.display().to_string());
            file.map(|file| (file, path))
        });
        let perfetto = perfetto.transpose()?;
        let endings = Endings::hold().context("signals")?;
        let recording = perfetto.map(|(file, path)| Recording::start(file, path));
        let recording = recording.transpose()?;
        if let Some(signal) = endings.early() {
            drop(recording);
            return Err(endings.end_by(signal)).context("signals");
        }
        let mut tracer = Tracer {
            first: tracee::start(&self.command, endings.mask())?,
            endings,
            since: monotonic_ns(),
            tasks: HashMap::new(),
            processes: HashMap::new(),
            report: Report {
                output,
                json,
                calls: !self.count && (self.perfetto.is_none() || self.output.is_some()),
                counts: self.count || self.summary,
                totals: BTreeMap::new(),
                failed: None,
            },
            status: None,
            recording,
        };
        tracer.endings.began(tracer.first);
        tracer.follow()?;
        let status = ExitCode::from(tracer.status.unwrap_or(1));
        tracer.recording.take().map_or(Ok(()), Recording::finish)?;
        match tracer.report.finish() {
            // Nobody reads it any more: that was its reader's choice.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(status),
            Err(error) => {
                let file = self.output.as_ref().map(|path| path.display().to_string());
                let file = file.unwrap_or_else(|| "standard error".into());
                let what = format!("{file}: the trace is cut, the program ran on");
                Err(error).context(what)
            }
            Ok(()) => Ok(status),
        }
    }
}

/// One traced thread.
#[derive(Default)]
struct Task {
    call: Option<Call>,
    leader: Option<Pid>,
}

/// All that is traced.
struct Tracer {
    first: Pid,
    endings: Endings,
    /// When it began, in nanoseconds of CLOCK_MONOTONIC.
    since: u64,
    tasks: HashMap<Pid, Task>,
    processes: HashMap<Pid, Process>,
    report: Report,
    status: Option<u8>,
    recording: Option<Recording>,
}

impl Tracer {
    fn follow(&mut self) -> Result<()> {
        while let Some((task, stop)) = Stop::next()? {
            // A task that is killed at the same time answers ESRCH, and its end follows.
            match self.stopped(task, stop) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno).context("tracing the program"),
            }
        }
        Ok(())
    }

    fn stopped(&mut self, task: Pid, stop: Stop) -> nix::Result<()> {
        if !matches!(stop, Stop::Ended(_)) {
            self.endings.has(task);
        }
        match stop {
            Stop::Entry => self.enter(task),
            Stop::CallEnd => self.leave(task),
            Stop::Exec => {
                // The address space is another now, and the thread has the leader's id.
                let former = tracee::former(task)?;
                if former != task {
                    self.endings.ended(former);
                    self.tasks.remove(&former);
                }
                self.processes.remove(&task);
                self.tasks.entry(task).or_default().call = None;
                resume(task, Resume::Run, 0)
            }
            Stop::Group => resume(task, Resume::Listen, 0),
            Stop::Passing => self.go_on(task, 0),
            Stop::Signal(signal) => self.go_on(task, signal),
            Stop::Ended(status) => {
                self.ended(task, status);
                Ok(())
            }
        }
    }

    /// Lets a task go on as it went before, with a signal or 0.
    fn go_on(&mut self, task: Pid, signal: i32) -> nix::Result<()> {
        let how = match self.tasks.entry(task).or_default().call {
            Some(_) => Resume::ToCallEnd,
            None => Resume::Run,
        };
        resume(task, how, signal)
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

    fn leader(&self, task: Pid) -> Pid {
        let leader = self.tasks.get(&task).and_then(|known| known.leader);
        leader.unwrap_or(task)
    }

    fn enter(&mut self, task: Pid) -> nix::Result<()> {
        let entry = tracee::entry(task)?;
        let call = Call::enter(task, self.process(task), &entry);
        let leader = self.leader(task);
        if let (Some(recording), Some(call)) = (&mut self.recording, &call) {
            recording.begins(leader, call);
        }
        self.tasks.entry(task).or_default().call = call;
        self.go_on(task, 0)
    }

    fn leave(&mut self, task: Pid) -> nix::Result<()> {
        let call = self
            .tasks
            .get_mut(&task)
            .and_then(|known| known.call.take());
        if let Some(call) = call {
            let end = call.leave(self.process(task), tracee::outcome(task)?);
            self.write(task, &call, &end);
        }
        resume(task, Resume::Run, 0)
    }

    fn ended(&mut self, task: Pid, status: u8) {
        self.endings.ended(task);
        if task == self.first {
            self.status = Some(status);
        }
        let gone = self
            .tasks
            .get_mut(&task)
            .and_then(|known| known.call.take());
        if let Some(call) = gone {
            let end = call.unfinished();
            self.write(task, &call, &end);
        }
        self.tasks.remove(&task);
        self.processes.remove(&task);
    }

    fn write(&mut self, task: Pid, call: &Call, end: &End) {
        let leader = self.leader(task);
        if let Some(recording) = &mut self.recording {
            recording.ended(task, leader, call, end);
        }
        self.report.call(task, leader, self.since, call, end);
    }
}

/// Where calls are written to.
struct Report {
    output: Box<dyn Write>,
    json: bool,
    calls: bool,
    counts: bool,
    totals: BTreeMap<String, Total>,
    /// Why nothing more is written. The program runs on: it is not to notice that it is traced.
    failed: Option<std::io::Error>,
}

/// What all calls of one name came to.
#[derive(Default)]
struct Total {
    calls: u64,
    errors: u64,
    time: Duration,
}

impl Report {
    fn call(&mut self, task: Pid, leader: Pid, since: u64, call: &Call, end: &End) {
        let total = self.totals.entry(call.name.clone()).or_default();
        total.calls += 1;
        total.errors += u64::from(matches!(end.outcome, Some(Err(_))));
        total.time += end.time;
        if !self.calls || self.failed.is_some() {
            return;
        }
        let line = match self.json {
            true => call.json(task, leader, since, end).to_string(),
            false => call.text(task, since, end),
        };
        self.failed = writeln!(self.output, "{line}").err();
    }

    fn finish(self) -> io::Result<()> {
        let Self {
            mut output, failed, ..
        } = self;
        if let Some(error) = failed {
            return Err(error);
        }
        if self.counts {
            write_totals(&mut output, self.json, &self.totals)?;
        }
        output.flush()
    }
}

fn write_totals(
    output: &mut dyn Write,
    json: bool,
    totals: &BTreeMap<String, Total>,
) -> io::Result<()> {
    let mut totals: Vec<_> = totals.iter().collect();
    totals.sort_by_key(|(_, total)| std::cmp::Reverse(total.time));
    if json {
        let all: Vec<_> = totals
            .iter()
            .map(|(name, total)| total.json(name))
            .collect();
        return writeln!(output, "{}", serde_json::Value::from(all));
    }
    writeln!(output, "  seconds  us/call    calls   errors  call")?;
    for (name, total) in totals {
        let seconds = total.time.as_secs_f64();
        let each = seconds * 1e6 / total.calls as f64;
        writeln!(
            output,
            "{seconds:9.6} {each:8.0} {:8} {:8}  {name}",
            total.calls, total.errors
        )?;
    }
    Ok(())
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
