// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `kfd-vm test`: runs commands one after the other in one machine, says which pass, and writes
//! that as JUnit XML, which services for continuous integration read.

use crate::args::TestArgs;
use crate::output::{PassThrough, Sink};
use crate::run::{self, Order};
use crate::session::Failure;
use crate::STATUS_FAILED;
use anyhow::{Context, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

/// A test failed.
const STATUS_TESTS_FAILED: u8 = 1;
/// How much of each stream of a test the report keeps: the end.
const KEPT: usize = 256 << 10;
/// How much of a line that is a case counts.
const LONGEST_LINE: usize = 4 << 10;

const UNREAD: &str = "saying what passed";

/// What came of a test.
struct Outcome {
    name: String,
    ended: Ended,
    time: Duration,
    output: Output,
}

enum Ended {
    /// Its status, as a shell gives it.
    Exited(u8),
    /// The machine did not come to that: a time limit, a crash.
    Broken(String),
}

/// Runs all; a test that the machine does not survive is followed by another machine.
pub fn test(args: &TestArgs) -> Result<u8> {
    // That it can't be written is told before anything runs.
    let file = args.junit.as_ref().map(|path| {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        anyhow::Ok((file, path))
    });
    let file = file.transpose()?;
    let mut outcomes = Vec::new();
    let mut complaints = Vec::new();
    let result = run_all(args, &mut outcomes, &mut complaints);
    if let Err(error) = &result {
        complaints.push(format!("{error:#}"));
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    let passed = outcomes.len() - failed;
    let summary = writeln!(io::stdout(), "{passed} passed, {failed} failed").context(UNREAD);
    if let Some((file, path)) = file {
        let report = report(&outcomes, &complaints);
        let written = report.serialize(BufWriter::new(file));
        written.with_context(|| path.display().to_string())?;
    }
    result.and(summary)?;
    Ok(match failed {
        _ if !complaints.is_empty() => STATUS_FAILED,
        0 => 0,
        _ => STATUS_TESTS_FAILED,
    })
}

/// `complaints` are those of machines that ran their tests to the end.
fn run_all(
    args: &TestArgs,
    outcomes: &mut Vec<Outcome>,
    complaints: &mut Vec<String>,
) -> Result<()> {
    let mut said = Ok(());
    while outcomes.len() < args.tests.len() {
        let before = outcomes.len();
        let ended = run::until_end(&args.options, |run, session| {
            for test in &args.tests[before..] {
                let (mut output, started) = (Output::default(), Instant::now());
                let order = Order::of_test(test, args.timeout);
                let result = run.command(session, &order, &mut output);
                output.cases.end();
                let broken = result.as_ref().err().map(|error| format!("{error:#}"));
                if let Some(Failure::Signal(_)) = result.as_ref().err().and_then(failure) {
                    return result;
                }
                let outcome = Outcome {
                    name: test.clone(),
                    ended: match (&result, broken) {
                        (Ok(status), _) => Ended::Exited(*status),
                        (_, why) => Ended::Broken(why.unwrap_or_default()),
                    },
                    time: started.elapsed(),
                    output,
                };
                said = outcome.say(&mut io::stdout());
                outcomes.push(outcome);
                result?;
                if said.is_err() {
                    break;
                }
            }
            Ok(0)
        });
        match ended {
            Ok(end) => complaints.extend(end.complaints),
            Err(error) if !is_of_a_test(&error, &outcomes[before..]) => return Err(error),
            Err(_) => {}
        }
        // Nobody reads on: what has run is in the report.
        std::mem::replace(&mut said, Ok(())).context(UNREAD)?;
    }
    Ok(())
}

/// Whether a machine's error is in the outcome of a test already; else it is one of the machine
/// itself, before its first test or after its last.
fn is_of_a_test(error: &anyhow::Error, outcomes: &[Outcome]) -> bool {
    let broken = matches!(
        outcomes.last().map(|outcome| &outcome.ended),
        Some(Ended::Broken(_))
    );
    broken && !matches!(failure(error), Some(Failure::Signal(_)))
}

fn failure(error: &anyhow::Error) -> Option<&Failure> {
    error.downcast_ref()
}

impl Outcome {
    fn passed(&self) -> bool {
        matches!(self.ended, Ended::Exited(0)) && !self.said_bad()
    }

    fn said_bad(&self) -> bool {
        self.output.cases.found.iter().any(|(good, _)| !good)
    }

    /// Why it failed, in a line.
    fn why(&self) -> Option<String> {
        match &self.ended {
            Ended::Exited(0) if self.said_bad() => Some("it said \"not ok\"".into()),
            Ended::Exited(0) => None,
            Ended::Exited(status) => Some(format!("it ended with status {status}")),
            Ended::Broken(why) => Some(why.lines().next().unwrap_or_default().into()),
        }
    }

    /// An error: nobody reads it.
    fn say(&self, to: &mut impl Write) -> io::Result<()> {
        let time = self.time.as_secs_f32();
        match self.why() {
            None => writeln!(to, "ok - {} ({time:.1} s)", self.name),
            Some(why) => writeln!(to, "not ok - {} ({time:.1} s): {why}", self.name),
        }
    }

    /// The test as a suite: its own lines "ok - WHAT" and "not ok - WHAT" are cases, and how it
    /// ended is one where they do not say it.
    fn suite(&self) -> TestSuite {
        let mut suite = TestSuite::new(self.name.as_str());
        suite.set_time(self.time);
        suite.set_system_out_lossy(&self.output.stdout.0);
        suite.set_system_err_lossy(&self.output.stderr.0);
        let mut cases = Vec::new();
        for (good, what) in &self.output.cases.found {
            let mut status = TestCaseStatus::success();
            if !good {
                status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(what.as_str());
            }
            cases.push(TestCase::new(what.as_str(), status));
        }
        match &self.ended {
            Ended::Exited(0) if !cases.is_empty() => {}
            Ended::Exited(0) => cases.push(TestCase::new(&*self.name, TestCaseStatus::success())),
            Ended::Exited(_) if self.said_bad() => {}
            Ended::Exited(_) => cases.push(self.own_case(NonSuccessKind::Failure)),
            Ended::Broken(_) => cases.push(self.own_case(NonSuccessKind::Error)),
        }
        for case in &mut cases {
            case.set_classname(self.name.as_str());
        }
        suite.add_test_cases(cases);
        suite
    }

    fn own_case(&self, kind: NonSuccessKind) -> TestCase {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(self.why().unwrap_or_default());
        if let Ended::Broken(why) = &self.ended {
            status.set_description(why.as_str());
        }
        TestCase::new(self.name.as_str(), status)
    }
}

/// All suites; what is not good of a machine is a suite of its own.
fn report(outcomes: &[Outcome], complaints: &[String]) -> Report {
    let mut report = Report::new("kfd-vm");
    report.add_test_suites(outcomes.iter().map(Outcome::suite));
    if !complaints.is_empty() {
        let mut suite = TestSuite::new("kfd-vm");
        for complaint in complaints {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(complaint.as_str());
            suite.add_test_case(TestCase::new("the machine", status));
        }
        report.add_test_suite(suite);
    }
    report.set_time(outcomes.iter().map(|outcome| outcome.time).sum());
    report
}

/// What a test says is passed on and kept.
#[derive(Default)]
struct Output {
    cases: Cases,
    stdout: Kept,
    stderr: Kept,
}

impl Sink for Output {
    fn stdout(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
        self.cases.add(bytes);
        self.stdout.add(bytes);
        PassThrough.stdout(bytes, waits)
    }

    fn stderr(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
        self.stderr.add(bytes);
        PassThrough.stderr(bytes, waits)
    }
}

/// The lines "ok - WHAT" and "not ok - WHAT" of a stream, however long that is.
#[derive(Default)]
struct Cases {
    /// Whether each is a good one, and what it says.
    found: Vec<(bool, String)>,
    /// The line that has no end yet.
    line: Vec<u8>,
}

impl Cases {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LONGEST_LINE.saturating_sub(self.line.len());
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.line.extend(&text[..text.len().min(room)]);
            if text.len() < piece.len() {
                self.end();
            }
        }
    }

    /// The line is over.
    fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if let Some(what) = line.strip_prefix("ok - ") {
            self.found.push((true, what.into()));
        } else if let Some(what) = line.strip_prefix("not ok - ") {
            self.found.push((false, what.into()));
        }
    }
}

/// The end of a stream.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        // Not each time: what is kept moves.
        if self.0.len() > 2 * KEPT {
            self.0.drain(..self.0.len() - KEPT);
        }
    }
}

/// The worst that a machine which came up and ended may have to say.
const _: () = assert!(STATUS_TESTS_FAILED < STATUS_FAILED);

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, ended: Ended, stdout: &str) -> Outcome {
        let mut output = Output::default();
        output.stdout.add(stdout.as_bytes());
        output.cases.add(stdout.as_bytes());
        output.cases.end();
        Outcome {
            name: name.into(),
            ended,
            time: Duration::from_millis(1500),
            output,
        }
    }

    fn written(outcomes: &[Outcome], complaints: &[String]) -> String {
        report(outcomes, complaints).to_string().unwrap()
    }

    #[test]
    fn a_status_or_the_lines_of_a_test_are_cases() {
        let xml = written(
            &[
                outcome("a", Ended::Exited(0), "words\n"),
                outcome("b <&>", Ended::Exited(3), "\x1b[1m\u{1}"),
                outcome("c", Ended::Exited(1), "ok - one\nnot ok - two\n"),
                outcome("d", Ended::Exited(1), "ok - one\n"),
                outcome("e", Ended::Broken("timeout: e\nmore".into()), ""),
            ],
            &[],
        );
        let first = xml.lines().nth(1).unwrap();
        for part in [
            r#"tests="7""#,
            r#"failures="3""#,
            r#"errors="1""#,
            r#"time="7.500""#,
        ] {
            assert!(first.contains(part), "{part}: {xml}");
        }
        for part in [
            r#"name="b &lt;&amp;&gt;""#,
            r#"message="it ended with status 3""#,
            r#"message="timeout: e""#,
            r#"name="two""#,
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
        assert!(!xml.contains(['\u{1}', '\u{1b}']), "no XML has these");
    }

    #[test]
    fn a_machine_that_fails_is_in_the_report() {
        let xml = written(&[], &["no machine".into()]);
        assert!(
            xml.contains(r#"errors="1""#) && xml.contains("no machine"),
            "{xml}"
        );
    }

    #[test]
    fn an_error_after_the_last_test_is_the_machines() {
        let error = anyhow::anyhow!("the guest crashed");
        let good = || outcome("a", Ended::Exited(0), "");
        let broken = || outcome("b", Ended::Broken("x".into()), "");
        assert!(!is_of_a_test(&error, &[]));
        assert!(!is_of_a_test(&error, &[good()]));
        assert!(is_of_a_test(&error, &[good(), broken()]));
        let signal = Failure::Signal(15).into();
        assert!(!is_of_a_test(&signal, &[broken()]));
    }

    #[test]
    fn a_test_that_says_not_ok_failed() {
        assert!(!outcome("a", Ended::Exited(0), "ok - x\nnot ok - y").passed());
        assert!(outcome("a", Ended::Exited(0), "ok - x\nis not ok - y\n").passed());
    }

    #[test]
    fn cases_are_found_however_the_output_comes() {
        let mut cases = Cases::default();
        let text = "not ok - first\r\nok - second\n".to_string()
            + &"x".repeat(3 * KEPT)
            + "ok - not a line\nnot ok - last";
        text.as_bytes().chunks(7).for_each(|piece| cases.add(piece));
        cases.end();
        let wanted = [(false, "first"), (true, "second"), (false, "last")];
        assert_eq!(cases.found, wanted.map(|(good, what)| (good, what.into())));
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let mut kept = Kept::default();
        for number in 0..100_000u32 {
            kept.add(format!("{number:9}\n").as_bytes());
        }
        assert!(kept.0.len() <= 2 * KEPT && kept.0.ends_with(b"    99999\n"));
    }
}
