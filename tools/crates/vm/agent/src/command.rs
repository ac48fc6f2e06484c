// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Runs one command and sends its output while it runs.

use crate::incoming::Input;
use crate::port::Port;
use anyhow::{bail, Result};
use kfd_vm_protocol::Frame;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long nothing may come after the command's end before its output is taken to have ended: a
/// process it left behind in the background may hold the pipe for ever.
const QUIET: Duration = Duration::from_millis(500);
/// The most that is passed on after the command's end: what it has left in the pipe, and last words
/// of a background process, but not all that one has to say.
const REST: usize = 16 << 20;
/// How soon a pump notices the command's end.
const NOTICE: Duration = Duration::from_millis(20);
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Returns the exit status as a shell would.
pub fn run(
    port: &Port,
    argv: &[String],
    env: &[(String, String)],
    cwd: &str,
    input: Option<Input>,
) -> Result<i32> {
    let [program, args @ ..] = argv else {
        bail!("an empty command")
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(cwd)
        .env_clear()
        .envs(environment());
    command.envs(env.iter().map(|(key, value)| (key, value)));
    command
        .stdin(match input {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return refuse(port, program, cwd, &error),
    };
    if let (Some(pipe), Some(input)) = (child.stdin.take(), input) {
        let port = port.clone();
        thread::spawn(move || feed(pipe, &input, &port));
    }
    let over = Arc::new(AtomicBool::new(false));
    let pumps = [
        child
            .stdout
            .take()
            .map(|pipe| pump(pipe, port, Frame::Stdout, &over)),
        child
            .stderr
            .take()
            .map(|pipe| pump(pipe, port, Frame::Stderr, &over)),
    ];
    let status = child.wait()?;
    over.store(true, Ordering::Release);
    for pump in pumps.into_iter().flatten() {
        let _ = pump.join();
    }
    Ok(shell_status(status))
}

fn environment() -> [(&'static str, &'static str); 6] {
    [
        ("PATH", PATH),
        ("HOME", "/root"),
        ("USER", "root"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
    ]
}

fn refuse(port: &Port, program: &str, cwd: &str, error: &std::io::Error) -> Result<i32> {
    let text = format!("kfd-vm: cannot run {program} in {cwd}: {error}\n");
    port.send(&Frame::Stderr(text.into_bytes()))?;
    Ok(if error.kind() == std::io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    })
}

/// Gives the command its input, and the host room for more. A command that reads no more is none.
fn feed(pipe: ChildStdin, input: &Input, port: &Port) {
    let mut pipe = Some(pipe);
    for bytes in input {
        if bytes.is_empty() {
            return;
        }
        pipe = pipe.filter(|mut pipe| pipe.write_all(&bytes).is_ok());
        if port.send(&Frame::Taken(bytes.len() as u32)).is_err() {
            return;
        }
    }
}

/// Passes a pipe's bytes on until it ends, or until the command is over and it is quiet.
fn pump<R: Read + AsFd + Send + 'static>(
    mut pipe: R,
    port: &Port,
    frame: fn(Vec<u8>) -> Frame,
    over: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let (port, over) = (port.clone(), over.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        let mut rest = REST;
        while rest > 0 {
            let is_over = over.load(Ordering::Acquire);
            match wait_readable(&pipe, if is_over { QUIET } else { NOTICE }) {
                Ok(true) => {}
                Ok(false) if is_over => return,
                Ok(false) => continue,
                Err(_) => return,
            }
            let Ok(count @ 1..) = pipe.read(&mut buffer) else {
                return;
            };
            if is_over {
                rest = rest.saturating_sub(count);
            }
            if port.send(&frame(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    })
}

/// Whether bytes or the end come within `limit`.
fn wait_readable(pipe: &impl AsFd, limit: Duration) -> rustix::io::Result<bool> {
    let time = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&time)) {
        Err(Errno::INTR) => Ok(false),
        ready => ready.map(|count| count > 0),
    }
}

fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// Runs a script and collects what comes back until its end.
    fn script(text: &str, input: Option<Input>, slow: Duration) -> (i32, Vec<u8>, u64) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let host = thread::spawn(move || {
            let (mut out, mut taken) = (Vec::new(), 0);
            while let Ok(Some(frame)) = Frame::read(&mut theirs) {
                thread::sleep(slow);
                match frame {
                    Frame::Stdout(bytes) => out.extend(bytes),
                    Frame::Taken(count) => taken += u64::from(count),
                    other => panic!("{other:?}"),
                }
            }
            (out, taken)
        });
        let port = Port::of(ours.into());
        let argv = ["sh", "-c", text].map(String::from);
        let status = run(&port, &argv, &[], "/", input).unwrap();
        drop(port);
        let (out, taken) = host.join().unwrap();
        (status, out, taken)
    }

    #[test]
    fn output_is_whole_however_slow_the_host_is() {
        let start = Instant::now();
        let slow = Duration::from_millis(100);
        let (status, out, _) = script("head -c 1000000 /dev/zero; exit 3", None, slow);
        assert_eq!((status, out.len()), (3, 1_000_000));
        assert!(start.elapsed() > 2 * QUIET, "it was not slow");
    }

    #[test]
    fn a_process_left_behind_is_not_waited_for() {
        let start = Instant::now();
        let (status, out, _) = script("sleep 60 & echo x", None, Duration::ZERO);
        assert_eq!((status, out.as_slice()), (0, &b"x\n"[..]));
        assert!(start.elapsed() < Duration::from_secs(20));
        // One that writes for ever, neither.
        let (status, out, _) = script("yes & sleep 0.1", None, Duration::ZERO);
        assert_eq!(status, 0);
        assert!(!out.is_empty());
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn input_reaches_the_command_and_ends() {
        let (sender, input) = channel();
        for piece in [&b"hi\n"[..], b"ho\n", b""] {
            sender.send(piece.to_vec()).unwrap();
        }
        let (status, out, _) = script("cat; echo end", Some(input), Duration::ZERO);
        assert_eq!((status, out.as_slice()), (0, &b"hi\nho\nend\n"[..]));
    }

    #[test]
    fn input_that_nobody_reads_is_taken_all_the_same() {
        let (sender, input) = channel();
        let feeder = thread::spawn(move || {
            for _ in 0..64 {
                let _ = sender.send(vec![b'x'; 65536]);
            }
            let _ = sender.send(Vec::new());
        });
        let (status, _, taken) = script("exec <&-; sleep 0.5", Some(input), Duration::ZERO);
        feeder.join().unwrap();
        assert_eq!((status, taken), (0, 64 * 65536));
    }
}
