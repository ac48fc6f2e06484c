// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A first run, for which sysroot makes 15 GiB: what it says is seen, and a signal ends it whole.

use rustix::process::{kill_process, Pid, Signal};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// A sysroot that takes its time, in a child of its shell.
const SYSROOT: &str = r#"#!/bin/sh
echo "making the roots" >&2
( sh -c 'echo $$ >"$0.part"; mv "$0.part" "$0.pid"; exec sleep 60' "$0"; : )
"#;
/// TIMEOUT: all of it is over in a second, on an idle machine.
const TENTHS: usize = 300;

/// What comes within [`TENTHS`].
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..TENTHS).find_map(|_| {
        sleep(Duration::from_millis(100));
        look()
    })
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    soon(|| child.try_wait().unwrap())
}

/// Whether a process runs: one that is only not reaped yet does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !stat.is_empty() && !state.starts_with('Z')
}

fn is_told_and_ended(project: &Path, args: &[&str]) {
    let pid_file = project.join("tools/sysroot/sysroot.pid");
    let _ = fs::remove_file(&pid_file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-vm"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
        .env("KFD_VM_PROJECT", project)
        .env("TMPDIR", project);
    command.env("XDG_RUNTIME_DIR", project);
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (sender, lines) = channel();
    spawn(move || {
        stderr
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    let pid = soon(|| fs::read_to_string(&pid_file).ok()).expect("sysroot runs");
    let line = lines.recv_timeout(Duration::from_secs(20));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = ended(&mut child);
    let left = soon(|| (!runs(pid.trim())).then_some(())).is_none();
    let _ = child.kill();
    assert_eq!(line.as_deref(), Ok("making the roots"), "{args:?}");
    assert_eq!(
        status.and_then(|status| status.code()),
        Some(143),
        "{args:?}"
    );
    assert!(!left, "{args:?}: what sysroot started is left");
}

#[test]
fn a_first_run_says_what_it_makes_and_a_signal_ends_it_whole() {
    let project = tempfile::tempdir().unwrap();
    let sysroot = project.path().join("tools/sysroot/sysroot");
    fs::create_dir_all(sysroot.parent().unwrap()).unwrap();
    fs::write(&sysroot, SYSROOT).unwrap();
    fs::set_permissions(&sysroot, Permissions::from_mode(0o755)).unwrap();
    for args in [
        ["run", "--kfd", "none", "--", "true"].as_slice(),
        &["up", "--kfd", "none"],
    ] {
        is_told_and_ended(project.path(), args);
    }
}
