// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Runs one command and sends its output while it runs.

use crate::port::Port;
use anyhow::{bail, Result};
use kfd_vm_protocol::Frame;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long output may still come after the command's end: a process it left behind in the
/// background may hold the pipe for ever.
const DRAIN: Duration = Duration::from_millis(500);
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Returns the exit status as a shell would.
pub fn run(port: &Port, argv: &[String], env: &[(String, String)], cwd: &str) -> Result<i32> {
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
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return refuse(port, program, cwd, &error),
    };
    let (done, ended) = channel();
    pump(child.stdout.take(), port, Frame::Stdout, &done);
    pump(child.stderr.take(), port, Frame::Stderr, &done);
    drop(done);
    let status = child.wait()?;
    drain(&ended);
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

fn pump<R: Read + Send + 'static>(
    pipe: Option<R>,
    port: &Port,
    frame: fn(Vec<u8>) -> Frame,
    done: &Sender<()>,
) {
    let Some(mut pipe) = pipe else { return };
    let (port, done) = (port.clone(), done.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if port.send(&frame(buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        drop(done);
    });
}

/// Waits until both pumps have ended, or for [`DRAIN`].
fn drain(ended: &Receiver<()>) {
    let deadline = Instant::now() + DRAIN;
    // Nothing is ever sent: the channel closes with the last pump.
    let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
