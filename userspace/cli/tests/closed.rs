// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What came of it is told by the exit status, whether or not anybody reads the output.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// The status of `kfdctl doctor` with such an output.
fn doctor(output: Stdio) -> Option<i32> {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_kfdctl"));
    let doctor = doctor.arg("doctor").stdout(output).stderr(Stdio::null());
    doctor.status().expect("it runs").code()
}

#[test]
fn a_reader_that_leaves_makes_nothing_good() {
    let (reader, writer) = UnixStream::pair().expect("a pair of sockets");
    drop(reader);
    let read = doctor(Stdio::null());
    assert_eq!(doctor(OwnedFd::from(writer).into()), read);
    if !std::path::Path::new("/dev/kfd").exists() {
        assert_eq!(read, Some(1), "there is no KFD");
    }
}
