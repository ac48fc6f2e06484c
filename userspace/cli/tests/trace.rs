// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl trace` and the programs that it traces: they do what they do without it. No GPU is
//! needed: opening a /dev/kfd that is not there is a call, too.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `kfdctl trace OPTIONS -- bash -c SCRIPT`.
fn trace(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfdctl"));
    command
        .arg("trace")
        .args(options)
        .args(["--", "bash", "-c", script]);
    command.stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("kfdctl starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn calls_are_seen_and_the_status_is_the_programs() {
    let (status, out, trace) = output(trace(&[], "echo out; true </dev/kfd; exit 7"));
    assert_eq!((status, out.as_str()), (Some(7), "out\n"));
    assert!(trace.contains("path=/dev/kfd"), "{trace}");
}

#[test]
fn real_time_signals_reach_the_program() {
    let script = "trap 'echo got' RTMIN+3; kill -RTMIN+3 $$; echo end";
    assert_eq!(
        output(trace(&[], script)),
        (Some(0), "got\nend\n".into(), "".into())
    );
    let (status, _, _) = output(trace(&[], "kill -RTMIN $$; sleep 60"));
    assert_eq!(status, Some(128 + 34));
}

#[test]
fn a_full_disk_does_not_kill_the_program() {
    let script = "for i in 1 2 3; do true </dev/kfd; done 2>/dev/null; echo end";
    let (status, out, said) = output(trace(&["-o", "/dev/full"], script));
    assert_eq!((status, out.as_str()), (Some(1), "end\n"));
    assert!(
        said.contains("/dev/full") && said.contains("No space left"),
        "{said}"
    );
}

#[test]
fn a_reader_that_leaves_does_not_kill_the_program() {
    let mut command = trace(
        &[],
        "exec 2>/dev/null; for i in 1 2 3; do true </dev/kfd; sleep 0.1; done; exit 5",
    );
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("kfdctl starts");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}

/// A program of `trace OPTIONS` which has said that it runs, and what comes of it after `signals`.
fn told(options: &[&str], script: &str, signals: &[&str]) -> (Option<i32>, String) {
    let child = trace(options, script).stdout(Stdio::piped()).spawn();
    let mut child = Stopped(child.expect("kfdctl starts"));
    let mut out = BufReader::new(child.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("it runs");
    for (number, signal) in signals.iter().enumerate() {
        std::thread::sleep(Duration::from_millis(if number == 0 { 100 } else { 1500 }));
        let pid = child.0.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill starts").success());
    }
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("its output");
    (child.0.wait().expect("it ends").code(), rest)
}

#[test]
fn a_signal_to_the_tracer_ends_the_program_as_the_program_wants() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let line = directory.path().join("line");
    let script =
        "true </dev/kfd; trap 'echo got; exit 7' TERM HUP; echo; while :; do sleep 0.1; done";
    for signal in ["TERM", "HUP"] {
        let options = ["--perfetto", line.to_str().expect("text")];
        assert_eq!(told(&options, script, &[signal]), (Some(7), "got\n".into()));
        assert!(line.metadata().expect("a timeline").len() > 0);
    }
    assert_eq!(told(&[], "echo; sleep 60", &["TERM"]).0, Some(128 + 15));
}

#[test]
fn a_signal_before_there_is_a_program_ends_the_tracer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let name = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("text")
            .to_owned()
    };
    let (line, ran) = (name("line"), name("ran"));
    let made = Command::new("mkfifo").arg(&line).status();
    assert!(made.expect("mkfifo starts").success());
    // Nobody reads it.
    let child = trace(&["--perfetto", &line], &format!("touch {ran}")).spawn();
    let mut child = Stopped(child.expect("kfdctl starts"));
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.0.id().to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(sent.expect("kill starts").success());
    let status = child.0.wait().expect("it ends");
    assert_eq!(status.signal(), Some(15), "{status}");
    assert!(!std::path::Path::new(&ran).exists());
}

#[test]
fn a_timeline_goes_to_who_reads_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let line = directory.path().join("line");
    let line = line.to_str().expect("text");
    let made = Command::new("mkfifo").arg(line).status();
    assert!(made.expect("mkfifo starts").success());
    let reader = Command::new("cat").arg(line).stdout(Stdio::piped()).spawn();
    let reader = reader.expect("cat starts");
    let (status, ..) = output(trace(&["--perfetto", line], "true </dev/kfd; exit 4"));
    assert_eq!(status, Some(4));
    let read = reader.wait_with_output().expect("it ends");
    assert!(!read.stdout.is_empty());
}

#[test]
fn a_thread_that_becomes_the_program_is_followed() {
    let script = "exec python3 -c 'import os, threading, time\n\
        t = threading.Thread(target=os.execlp, args=(\"bash\", \"bash\", \"-c\", \
        \"true </dev/kfd; exit 5\"))\nt.start()\ntime.sleep(60)'";
    let (status, _, said) = output(trace(&[], script));
    assert_eq!(status, Some(5), "{said}");
    assert!(said.contains("path=/dev/kfd"), "{said}");
}

#[test]
fn a_terminals_signal_is_not_the_tracers() {
    let script = "trap '' INT QUIT; echo; sleep 1; echo end; exit 3";
    assert_eq!(
        told(&[], script, &["QUIT", "INT"]),
        (Some(3), "end\n".into())
    );
}

#[test]
fn a_program_that_does_not_end_is_killed_the_second_time() {
    let script = "trap '' TERM; echo; while :; do sleep 0.1; done";
    assert_eq!(told(&[], script, &["TERM", "TERM"]).0, Some(128 + 9));
}

#[test]
fn what_the_program_is_to_ignore_it_ignores() {
    let traced = format!(
        "trap '' HUP; exec {} trace -- grep SigIgn /proc/self/status",
        env!("CARGO_BIN_EXE_kfdctl")
    );
    let mut command = Command::new("bash");
    command.args(["-c", &traced]);
    let (status, out, said) = output(command);
    assert_eq!(status, Some(0), "{said}");
    // Who runs this in the background has it ignore more.
    let own = std::fs::read_to_string("/proc/self/status").expect("proc");
    let own = own.lines().find(|line| line.starts_with("SigIgn:"));
    let mask = |line: &str| {
        let mask = line.trim().rsplit('\t').next().expect("a mask");
        u64::from_str_radix(mask, 16).expect("hex") & 0b111
    };
    assert_eq!(mask(&out), mask(own.expect("a line")) | 1, "{out}");
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kfdctl"));
    command.args(["trace", "--", "/nonexistent/program"]);
    let (status, _, said) = output(command);
    assert_eq!(status, Some(1));
    assert!(said.contains("/nonexistent/program"), "{said}");
}

/// A static program of i386 that ends with status 7: an ELF header, one segment, and its code.
#[cfg(target_arch = "x86_64")]
fn i386_program() -> Vec<u8> {
    const BASE: u32 = 0x40_0000;
    const HEADERS: u32 = 52 + 32;
    // mov eax, __NR_exit; mov ebx, 7; int 0x80
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let size = HEADERS + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_EXEC of EM_386.
    let halves = |file: &mut Vec<u8>, all: &[u16]| {
        file.extend(all.iter().flat_map(|half| half.to_le_bytes()));
    };
    let words = |file: &mut Vec<u8>, all: &[u32]| {
        file.extend(all.iter().flat_map(|word| word.to_le_bytes()));
    };
    halves(&mut file, &[2, 3]);
    words(&mut file, &[1, BASE + HEADERS, 52, 0, 0]);
    halves(&mut file, &[52, 32, 1, 0, 0, 0]);
    // PT_LOAD, to be read and executed.
    words(&mut file, &[1, 0, BASE, BASE, size, size, 5, 4096]);
    file.extend(code);
    file
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_of_32_bits_run_untraced() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("seven");
    std::fs::write(&program, i386_program()).expect("writable");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("it is ours");
    let path = program.display();
    let alone = Command::new("bash")
        .arg("-c")
        .arg(&*path.to_string())
        .status();
    if alone.expect("bash starts").code() != Some(7) {
        eprintln!("left out: this kernel runs no programs of i386");
        return;
    }
    let (status, out, trace) = output(trace(&[], &format!("{path}; echo $?; true </dev/kfd")));
    assert_eq!(out, "7\n", "{trace}");
    assert!(trace.contains("path=/dev/kfd"), "{status:?} {trace}");
}

/// Kills what a failed test leaves.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stopped_program_stands_until_it_is_told_to_go_on() {
    let script = "echo $$; kill -STOP $$; echo on";
    let child = trace(&[], script).stdout(Stdio::piped()).spawn();
    let mut child = Stopped(child.expect("kfdctl starts"));
    let mut out = BufReader::new(child.0.stdout.take().expect("a pipe"));
    let mut pid = String::new();
    out.read_line(&mut pid).expect("a pid");
    let pid = pid.trim();
    // "t": stopped under a tracer.
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        rest.and_then(|rest| rest.chars().next())
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while state() != Some('t') && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(state(), Some('t'), "it went on by itself");
    let told = Command::new("kill").args(["-CONT", pid]).status();
    assert!(told.expect("kill starts").success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("its output");
    assert_eq!(rest, "on\n");
    assert!(child.0.wait().expect("it ends").success());
}
