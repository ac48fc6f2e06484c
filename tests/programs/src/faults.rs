// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Faults in every call: for each operation on the KFD, from a prepared state, the first allocation
//! or copy of user memory fails, then the second, and so on until the call comes by no more of
//! them. After each one, the driver's counts are what they were before the call, the error is the
//! fault's own, and the same call, made once more, comes to what it comes to without faults. When
//! the process has ended, nothing of it is left.
//!
//! What the kernel's checkers report of it is for who runs this to look at
//! (`tests/guest/faults.test`).

mod attempt;
mod inject;
mod operations;
mod stage;

use crate::fuzz::left_behind;
use crate::kill::{counters, settled};
use anyhow::{bail, ensure, Result};
use attempt::{attempt, clean, Known};
use clap::Args;
use inject::Injector;
use operations::Operation;
use rustix::fd::OwnedFd;
use stage::{Needs, Stage};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};

/// More faults than any call comes by: something repeats itself.
const MOST: u32 = 3000;
/// What is wrong so often need not be looked at further.
const ENOUGH: usize = 4;

/// Which, and what to write.
#[derive(Args)]
pub struct Faults {
    /// Only operations whose name begins so.
    #[arg(long, default_value = "")]
    only: String,
    /// Only say what the operations are.
    #[arg(long)]
    list: bool,
}

/// What is known of an operation, from the processes that have done it.
#[derive(Default)]
pub struct Report {
    /// How often a fault of a kind came to what.
    tally: BTreeMap<String, u32>,
    /// What is wrong.
    wrong: Vec<String>,
    /// The call came by no further fault.
    over: bool,
}

impl Faults {
    pub fn run(&self) -> Result<()> {
        let operations = operations::all();
        let mut wanted = operations
            .iter()
            .filter(|it| it.name.starts_with(&self.only));
        if self.list {
            wanted.for_each(|operation| println!("{}", operation.name));
            return Ok(());
        }
        inject::prepare()?;
        // What amdgpu makes with its first process stays.
        in_process(|_| Stage::new(Needs::Bench).map(drop))?;
        let mut all = Report::default();
        let good = wanted.try_fold(true, |good, operation| {
            let report = whole(operation)?;
            tell(operation, &report);
            let right = report.wrong.is_empty();
            all.add(report);
            anyhow::Ok(good && right)
        })?;
        println!("figure: {} faults in all", all.faults());
        ensure!(good, "not all operations did well");
        Ok(())
    }
}

fn tell(operation: &Operation, report: &Report) {
    let came: Vec<String> = report
        .tally
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    let came = came.join(", ");
    match report.wrong.as_slice() {
        [] => println!(
            "ok - {}: {} faults: {came}",
            operation.name,
            report.faults()
        ),
        wrong => println!(
            "not ok - {}: {} (of {came})",
            operation.name,
            wrong.join("; ")
        ),
    }
}

/// All faults of one operation.
fn whole(operation: &Operation) -> Result<Report> {
    let before = settled()?;
    let mut report = if operation.once {
        each_in_its_own(operation)?
    } else {
        in_process(|report| all_in_one(operation, report))?
    };
    report.wrong.extend(left_behind(&before)?);
    if report.faults() == 0 {
        report
            .wrong
            .push("it comes by nothing that can fail".into());
    }
    Ok(report)
}

/// In one process: without a fault, then with the first, the second, and so on.
fn all_in_one(operation: &Operation, report: &mut Report) -> Result<()> {
    let mut stage = Stage::new(operation.needs)?;
    let injector = Injector::new()?;
    let known = clean(operation, &mut stage, report)?;
    for nth in 1..=MOST {
        if !attempt(operation, &mut stage, &injector, nth, &known, report)? {
            report.over = true;
            return Ok(());
        }
        if report.wrong.len() >= ENOUGH {
            return Ok(());
        }
    }
    bail!("there is no end to its faults");
}

/// A process for each.
fn each_in_its_own(operation: &Operation) -> Result<Report> {
    // Each has a process of its own, so what counts of it does not matter.
    let known = Known::default();
    let mut all = in_process(|report| {
        let mut stage = Stage::new(operation.needs)?;
        let known = clean(operation, &mut stage, report)?;
        ensure!(
            known.clean.is_none(),
            "without a fault it fails: {:?}",
            known.clean
        );
        Ok(())
    })?;
    for nth in 1..=MOST {
        let before = counters()?;
        let mut report = in_process(|report| {
            let mut stage = Stage::new(operation.needs)?;
            let injector = Injector::new()?;
            let injected = attempt(operation, &mut stage, &injector, nth, &known, report)?;
            report.over = !injected;
            Ok(())
        })?;
        let left = left_behind(&before)?;
        report
            .wrong
            .extend(left.into_iter().map(|what| format!("fault {nth}: {what}")));
        let over = report.over || all.wrong.len() >= ENOUGH;
        all.add(report);
        if over {
            return Ok(all);
        }
    }
    all.wrong.push("there is no end to its faults".into());
    Ok(all)
}

/// What `work` reports in a process of its own, which begins without any file of the KFD's.
fn in_process(work: impl FnOnce(&mut Report) -> Result<()>) -> Result<Report> {
    let (reader, writer) = rustix::pipe::pipe()?;
    std::io::stdout().flush()?;
    // SAFETY: this process has one thread, so the child may do as it likes.
    let child = unsafe { nix::libc::fork() };
    ensure!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        drop(reader);
        report_to(writer, work);
        // SAFETY: it ends the child, with all that it has: that is tested.
        unsafe { nix::libc::_exit(0) }
    }
    drop(writer);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text)?;
    let mut status = 0;
    // SAFETY: it takes the child's status and nothing else.
    unsafe { nix::libc::waitpid(child, &mut status, 0) };
    let mut report = Report::parse(&text);
    if status != 0 {
        report
            .wrong
            .push(format!("the process ended with status {status:#x}"));
    }
    Ok(report)
}

fn report_to(pipe: OwnedFd, work: impl FnOnce(&mut Report) -> Result<()>) {
    let mut report = Report::default();
    if let Err(error) = work(&mut report) {
        report.wrong.push(format!("{error:#}"));
    }
    // Who waits misses what does not arrive.
    let _ = File::from(pipe).write_all(report.text().as_bytes());
}

impl Report {
    /// One more fault, and what it came to.
    fn count(&mut self, what: String) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn faults(&self) -> u32 {
        self.tally.values().sum()
    }

    fn add(&mut self, other: Self) {
        for (what, count) in other.tally {
            *self.tally.entry(what).or_default() += count;
        }
        self.wrong.extend(other.wrong);
        self.over |= other.over;
    }

    /// As lines.
    fn text(&self) -> String {
        let mut text = String::new();
        for (what, count) in &self.tally {
            let _ = writeln!(text, "tally {count} {what}");
        }
        for what in &self.wrong {
            let _ = writeln!(text, "wrong {}", what.replace('\n', " "));
        }
        if self.over {
            text.push_str("over\n");
        }
        text
    }

    fn parse(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "tally" => {
                    let (count, what) = rest.split_once(' ').unwrap_or((rest, ""));
                    report.tally.insert(what.into(), count.parse().unwrap_or(0));
                }
                "wrong" => report.wrong.push(rest.into()),
                "over" => report.over = true,
                _ => report.wrong.push(format!("unreadable: {line}")),
            }
        }
        report
    }
}
