// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! kfd-vm's own words, where nobody reads them.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// The status of a command that has something to complain of.
fn status(stderr: Stdio) -> Option<i32> {
    let nothing = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-vm"));
    command.args(["exec", "--name", "none", "--", "true"]);
    command
        .env("XDG_RUNTIME_DIR", nothing.path())
        .stderr(stderr);
    command.status().unwrap().code()
}

#[test]
fn who_only_looks_for_machines_makes_no_directory() {
    let nothing = tempfile::tempdir().unwrap();
    for words in [&["ps"][..], &["down"], &["exec", "--", "true"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kfd-vm"));
        command.args(words).env("XDG_RUNTIME_DIR", nothing.path());
        let expected = if words == ["ps"] { 0 } else { 125 };
        assert_eq!(
            command.status().unwrap().code(),
            Some(expected),
            "{words:?}"
        );
        assert_eq!(nothing.path().read_dir().unwrap().count(), 0, "{words:?}");
    }
}

#[test]
fn a_complaint_that_nobody_reads_changes_no_status() {
    assert_eq!(status(Stdio::null()), Some(125));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    assert_eq!(status(writer.into()), Some(125));
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert_eq!(status(full.into()), Some(125));
}
