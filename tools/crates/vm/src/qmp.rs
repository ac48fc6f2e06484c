// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A client for QEMU's machine protocol: one command at a time, events passed over.

use crate::interrupt::Interrupt;
use anyhow::{anyhow, bail, Context, Result};
use serde_json::{json, Value};
use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// TIMEOUT: QEMU answers at once unless its main loop waits for something: a vfio-user server.
const ANSWER: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// How soon a signal to this process is noticed.
const NOTICE: Duration = Duration::from_millis(100);

pub struct Monitor {
    input: BufReader<UnixStream>,
    output: UnixStream,
    interrupt: Interrupt,
}

impl Monitor {
    /// Takes QEMU's greeting, which comes as soon as the machine is built.
    pub fn connect(stream: UnixStream, interrupt: Interrupt) -> Result<Self> {
        stream.set_read_timeout(Some(NOTICE))?;
        let mut monitor = Self {
            interrupt,
            output: stream.try_clone()?,
            input: BufReader::new(stream),
        };
        let greeting = monitor.receive()?;
        if greeting.get("QMP").is_none() {
            bail!("QEMU greets with {greeting}");
        }
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.output
            .write_all(line.as_bytes())
            .context("QEMU is gone")?;
        loop {
            let mut message = self
                .receive()
                .with_context(|| format!("waiting for {command}"))?;
            if let Some(error) = message.get("error") {
                bail!(
                    "QEMU refuses {command}: {}",
                    error["desc"].as_str().unwrap_or_default()
                );
            }
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    /// Starts a migration with `command` and waits until it is complete.
    pub fn migrate(&mut self, command: &str, file: &str, limit: Duration) -> Result<()> {
        let on = json!({ "capabilities": [{ "capability": "mapped-ram", "state": true }] });
        self.execute("migrate-set-capabilities", on)?;
        self.execute(command, json!({ "uri": format!("file:{file}") }))?;
        let deadline = Instant::now() + limit;
        loop {
            self.interrupt.check()?;
            let state = self.execute("query-migrate", json!({}))?;
            match state["status"].as_str().unwrap_or_default() {
                "completed" => return Ok(()),
                "failed" | "cancelled" => {
                    bail!(
                        "{command} failed: {}",
                        state["error-desc"].as_str().unwrap_or("no reason given")
                    )
                }
                _ if Instant::now() > deadline => bail!("{command} took longer than {limit:?}"),
                _ => sleep(POLL),
            }
        }
    }

    /// The next line; a signal to this process ends the waiting.
    fn receive(&mut self) -> Result<Value> {
        let deadline = Instant::now() + ANSWER;
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            match self.input.read_until(b'\n', &mut line) {
                Ok(0) => return Err(anyhow!("QEMU closed its monitor")),
                Ok(_) => {}
                // What has come of the line is kept.
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {
                    self.interrupt.check()?;
                    if Instant::now() > deadline {
                        bail!("QEMU does not answer");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        serde_json::from_slice(&line)
            .with_context(|| format!("QEMU says {:?}", String::from_utf8_lossy(&line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Failure;

    /// A monitor whose QEMU has said `lines` beforehand.
    fn scripted(lines: &[&str]) -> (Result<Monitor>, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in lines {
            writeln!(theirs, "{line}").unwrap();
        }
        (Monitor::connect(ours, Interrupt::default()), theirs)
    }

    #[test]
    fn events_are_passed_over_and_errors_told() {
        let (monitor, _theirs) = scripted(&[
            r#"{"QMP": {"version": {}}}"#,
            r#"{"return": {}}"#,
            r#"{"event": "STOP"}"#,
            r#"{"return": {"status": "running"}}"#,
            r#"{"error": {"class": "GenericError", "desc": "no such bus"}}"#,
        ]);
        let mut monitor = monitor.unwrap();
        let status = monitor.execute("query-status", json!({})).unwrap();
        assert_eq!(status["status"], "running");
        let error = monitor.execute("device_add", json!({})).unwrap_err();
        assert_eq!(error.to_string(), "QEMU refuses device_add: no such bus");
    }

    #[test]
    fn a_signal_ends_the_waiting_for_qemu() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in [r#"{"QMP": {}}"#, r#"{"return": {}}"#, r#"{"return": {}}"#] {
            writeln!(theirs, "{line}").unwrap();
        }
        let interrupt = Interrupt::default();
        let mut monitor = Monitor::connect(ours, interrupt.clone()).unwrap();
        let signal = std::thread::spawn(move || {
            sleep(Duration::from_millis(300));
            interrupt.set(2);
        });
        let start = Instant::now();
        let limit = Duration::from_secs(60);
        let error = monitor
            .migrate("migrate", "/nonexistent", limit)
            .unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(error.downcast_ref::<Failure>().is_some(), "{error:#}");
        signal.join().unwrap();
    }

    #[test]
    fn an_answer_may_come_in_pieces() {
        let (monitor, mut theirs) = scripted(&[r#"{"QMP": {}}"#, r#"{"return": {}}"#]);
        let mut monitor = monitor.unwrap();
        let qemu = std::thread::spawn(move || {
            for piece in [r#"{"ret"#, r#"urn": {"#, "}}\n"] {
                sleep(2 * NOTICE);
                theirs.write_all(piece.as_bytes()).unwrap();
            }
            theirs
        });
        assert_eq!(monitor.execute("cont", json!({})).unwrap(), json!({}));
        qemu.join().unwrap();
    }

    #[test]
    fn a_qemu_that_ends_is_an_error() {
        let (monitor, theirs) = scripted(&[r#"{"QMP": {}}"#, r#"{"return": {}}"#]);
        drop(theirs);
        assert!(monitor.unwrap().execute("cont", json!({})).is_err());
    }
}
