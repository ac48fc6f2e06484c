// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A signal that kfd-vm was started to ignore does not end it: SIGHUP under nohup.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// A sysroot that sends its parent, kfd-vm, a signal, and fails a while later.
const SYSROOT: &str = "#!/bin/sh\nkill -HUP $PPID\nsleep 1\nexit 1\n";

/// The status of kfd-vm that gets SIGHUP, started by `line` of a shell, which has its name in $1.
fn status(line: &str) -> Option<i32> {
    let project = tempfile::tempdir().unwrap();
    let sysroot = project.path().join("tools/sysroot/sysroot");
    fs::create_dir_all(sysroot.parent().unwrap()).unwrap();
    fs::write(&sysroot, SYSROOT).unwrap();
    fs::set_permissions(&sysroot, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh", env!("CARGO_BIN_EXE_kfd-vm")]);
    command.env("KFD_VM_PROJECT", project.path());
    command.env("TMPDIR", project.path());
    let command = command.stdin(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().code()
}

#[test]
fn an_ignored_signal_ends_nothing() {
    let run = r#"exec "$1" run --kfd none -- true"#;
    assert_eq!(status(run), Some(129));
    assert_eq!(status(&format!("trap '' HUP; {run}")), Some(125));
}
