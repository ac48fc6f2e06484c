// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A server that a signal ends leaves its report and no socket.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that listens.
fn serve(dir: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-model-server"));
    command.args(["serve", "--vram", "256M", "--socket"]);
    command
        .arg(dir.join("socket"))
        .arg("--report")
        .arg(dir.join("report"));
    command.args(more).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening "), "{line}");
    child
}

fn kill(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let status = Command::new("kill")
        .args([&format!("-{signal}"), &id])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn signals_end_it_in_order() {
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = serve(dir.path(), &[]);
        assert!(dir.path().join("socket").exists());
        kill(&child, signal);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(number), "{status}");
        assert!(dir.path().join("report").exists(), "{signal}: no report");
        assert!(
            !dir.path().join("socket").exists(),
            "{signal}: a socket is left"
        );
    }
}

#[test]
fn with_rules_sighup_reads_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules");
    std::fs::write(&rules, "").unwrap();
    let mut child = serve(dir.path(), &["--inject", rules.to_str().unwrap()]);
    kill(&child, "HUP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    kill(&child, "TERM");
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}
