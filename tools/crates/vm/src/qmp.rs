// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A client for QEMU's machine protocol: one command at a time, events passed over.

use anyhow::{anyhow, bail, Context, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// TIMEOUT: QEMU answers at once unless its main loop waits for something: a vfio-user server.
const ANSWER: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

pub struct Monitor {
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Monitor {
    /// Takes QEMU's greeting, which comes as soon as the machine is built.
    pub fn connect(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(ANSWER))?;
        let mut monitor = Self {
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

    fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Err(anyhow!("QEMU closed its monitor"));
        }
        serde_json::from_str(&line).with_context(|| format!("QEMU says {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor whose QEMU has said `lines` beforehand.
    fn scripted(lines: &[&str]) -> (Result<Monitor>, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in lines {
            writeln!(theirs, "{line}").unwrap();
        }
        (Monitor::connect(ours), theirs)
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
    fn a_qemu_that_ends_is_an_error() {
        let (monitor, theirs) = scripted(&[r#"{"QMP": {}}"#, r#"{"return": {}}"#]);
        drop(theirs);
        assert!(monitor.unwrap().execute("cont", json!({})).is_err());
    }
}
