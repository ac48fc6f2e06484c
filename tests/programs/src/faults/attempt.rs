// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One operation, once: without a fault, or with its Nth.

use super::inject::{Fault, Injector};
use super::operations::Operation;
use super::stage::{Answer, Call, Stage};
use super::Report;
use crate::bench::name;
use crate::kill::counters;
use anyhow::{bail, ensure, Result};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long what the call began may go on behind it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What our driver counts: amdgpu's memory is looked at when the process has ended.
type Counts = BTreeMap<String, u64>;

/// What an operation comes to without a fault.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its error, where it has one even then.
    pub clean: Option<Errno>,
    /// What of it counts.
    pub change: BTreeMap<String, i64>,
}

fn counts() -> Result<Counts> {
    let mut all = counters()?;
    all.retain(|name, _| !name.contains("mem_info"));
    ensure!(!all.is_empty(), "the driver that serves counts nothing");
    Ok(all)
}

/// Whether the counts are soon what is expected.
fn becomes(expected: &Counts) -> Result<bool> {
    let end = Instant::now() + PATIENCE;
    loop {
        if counts()? == *expected {
            return Ok(true);
        }
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The counts when they stay the same for a while.
fn at_rest() -> Result<Counts> {
    let end = Instant::now() + PATIENCE;
    let mut last = counts()?;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = counts()?;
        if now == last {
            return Ok(now);
        }
        ensure!(Instant::now() < end, "no rest: {last:?}, then {now:?}");
        last = now;
    }
}

/// `counts` with `change`.
fn with(counts: &Counts, change: &BTreeMap<String, i64>) -> Counts {
    let mut all = counts.clone();
    for (name, value) in &mut all {
        *value = value.wrapping_add_signed(change.get(name).copied().unwrap_or(0));
    }
    all
}

/// Without a fault.
pub fn clean(operation: &Operation, stage: &mut Stage, report: &mut Report) -> Result<Known> {
    let begin = counts()?;
    let mut call = (operation.ready)(stage)?;
    let before = counts()?;
    let answer = call.make();
    let after = match call {
        // A worker forgets what was unmapped: all that was made ready.
        Call::Renew(_) if becomes(&begin)? => begin.clone(),
        Call::Renew(_) => bail!("{:?} is left instead of {begin:?}", counts()?),
        _ if operation.undone => at_rest()?,
        _ => counts()?,
    };
    let change = |(name, value): (&String, &u64)| {
        let old = before.get(name).copied().unwrap_or(0);
        (name.clone(), *value as i64 - old as i64)
    };
    let known = Known {
        clean: answer.err(),
        change: after
            .iter()
            .map(change)
            .filter(|(_, change)| *change != 0)
            .collect(),
    };
    (operation.over)(stage, &call, answer.ok())?;
    if !operation.once && !becomes(&begin)? {
        report.wrong.push(format!(
            "even without a fault {:?} instead of {begin:?}",
            counts()?
        ));
    }
    Ok(known)
}

/// With the `nth` fault. False: the call reaches fewer.
pub fn attempt(
    operation: &Operation,
    stage: &mut Stage,
    injector: &Injector,
    nth: u32,
    known: &Known,
    report: &mut Report,
) -> Result<bool> {
    let begin = counts()?;
    let mut call = (operation.ready)(stage)?;
    let mut repeated = call.clone();
    let before = counts()?;
    let (mut answer, fault) = injector.with(nth, || call.make())?;
    let Some(fault) = fault else {
        (operation.over)(stage, &call, answer.ok())?;
        return Ok(false);
    };
    let mut end = begin;
    if answer.err() == known.clean {
        report.count(format!("{} that it does without", what(fault)));
    } else {
        let kept = failed(operation, &before, fault, answer, nth, known, report)?;
        if let (false, Err(error)) = (kept, (operation.intact)(stage)) {
            report
                .wrong
                .push(format!("fault {nth} ({}): {error:#}", what(fault)));
        }
        answer = repeated.make();
        call = repeated;
        let done_already =
            (kept || operation.keeps) && answer.is_err() && answer.err() == operation.again;
        if answer.err() != known.clean && !done_already {
            report
                .wrong
                .push(format!("fault {nth}: then, without one, {}", told(answer)));
        }
        // What a call has made that could not say so goes with the process.
        if kept
            && !operation.undone
            && !done_already
            && known.change.values().all(|change| *change > 0)
        {
            end = with(&end, &known.change);
        }
    }
    (operation.over)(stage, &call, answer.ok())?;
    if !operation.once && !becomes(&end)? {
        report.wrong.push(format!(
            "fault {nth}: {:?} is left instead of {end:?}",
            counts()?
        ));
    }
    Ok(true)
}

/// The call failed where it does not without a fault: with the right error, and with everything as
/// before. True: it was done, and only its answer could not be written.
fn failed(
    operation: &Operation,
    before: &Counts,
    fault: Fault,
    answer: Answer,
    nth: u32,
    known: &Known,
    report: &mut Report,
) -> Result<bool> {
    let right = match fault {
        Fault::Memory => Errno::NOMEM,
        Fault::Copy => Errno::FAULT,
    };
    report.count(format!("{}: {}", what(fault), told(answer)));
    let allowed = fault == Fault::Memory && answer.err() == operation.also;
    if answer != Err(right) && !allowed {
        report
            .wrong
            .push(format!("fault {nth} ({}): {}", what(fault), told(answer)));
    }
    let done = with(before, &known.change);
    let now = counts()?;
    // What changes when it is done is not known of what a process can do once; its end shows
    // whether all was right.
    let is_done = now == done || operation.once && now != *before;
    if fault == Fault::Copy && is_done {
        return Ok(true);
    }
    if operation.keeps && is_part(before, &now, &done) {
        return Ok(false);
    }
    if !becomes(before)? {
        report.wrong.push(format!(
            "fault {nth} ({}): {:?} instead of {before:?}",
            what(fault),
            counts()?
        ));
    }
    Ok(false)
}

/// Whether these counts are on the way from the first to the last.
fn is_part(before: &Counts, now: &Counts, done: &Counts) -> bool {
    let each = before.iter().zip(now).zip(done);
    each.into_iter()
        .all(|((before, now), done)| (before.1.min(done.1)..=before.1.max(done.1)).contains(&now.1))
}

fn what(fault: Fault) -> &'static str {
    match fault {
        Fault::Memory => "allocations",
        Fault::Copy => "copies",
    }
}

fn told(answer: Answer) -> String {
    answer.map_or_else(name, |_| "success".into())
}
