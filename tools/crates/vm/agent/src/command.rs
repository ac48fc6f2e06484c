// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Runs one command and sends its output while it runs.

use crate::incoming::{Line, Word};
use crate::port::Port;
use anyhow::{bail, Context, Result};
use kfd_vm_protocol::{Credit, Frame, Window};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{open, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{ioctl_tiocsctty, kill_process_group, setsid, Pid, Signal};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, SpecialCodeIndex, Winsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The agent's own first argument that makes it [`become_on_terminal`].
pub const ON_TERMINAL: &str = "on-terminal";
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

/// What is to be run.
pub struct Task<'a> {
    pub argv: &'a [String],
    pub env: &'a [(String, String)],
    pub cwd: &'a str,
    pub terminal: Option<Window>,
}

/// Returns the exit status as a shell would.
pub fn run(port: &Port, task: &Task<'_>, line: Line) -> Result<i32> {
    let Line {
        channel,
        words,
        output,
    } = line;
    let (mut child, ends) = match task.start(channel != 0, words.is_some())? {
        Ok(started) => started,
        Err(error) => return refuse(port, &task.argv[0], task.cwd, &error),
    };
    let over = Arc::new(AtomicBool::new(false));
    if let Some(words) = words {
        let resized = ends.terminal.as_ref().map(File::try_clone).transpose()?;
        let listener = Listener {
            input: feeder(ends.input, port.clone()),
            terminal: resized,
            group: (channel != 0 || task.terminal.is_some()).then(|| Pid::from_child(&child)),
            over: over.clone(),
        };
        thread::spawn(move || listener.listen(&words));
    }
    let to = |frame| Outlet {
        port: port.clone(),
        frame,
        credit: output.clone(),
        over: over.clone(),
    };
    let mut pumps = Vec::new();
    pumps.extend(ends.terminal.map(|end| to(Frame::Stdout).pump(end)));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    pumps.extend(out.map(|pipe| to(Frame::Stdout).pump(pipe)));
    pumps.extend(err.map(|pipe| to(Frame::Stderr).pump(pipe)));
    let status = child.wait()?;
    over.store(true, Ordering::Release);
    for pump in pumps {
        let _ = pump.join();
    }
    Ok(shell_status(status))
}

/// Our ends of what a command reads and writes; those of pipes for output are its [`Child`]'s.
struct Ends {
    input: Option<Feed>,
    /// What is written to a terminal.
    terminal: Option<File>,
}

/// Where a command's input goes.
enum Feed {
    Pipe(ChildStdin),
    Terminal(File),
}

impl Task<'_> {
    /// Starts it, in a process group of its own if `apart`; the inner error is of the command.
    fn start(&self, apart: bool, input: bool) -> Result<std::io::Result<(Child, Ends)>> {
        let [program, args @ ..] = self.argv else {
            bail!("an empty command")
        };
        let mut ends = Ends {
            input: None,
            terminal: None,
        };
        let mut command;
        if let Some(window) = self.terminal {
            let (ours, theirs) = terminal(window)?;
            command = Command::new("/proc/self/exe");
            command.arg(ON_TERMINAL).arg(program);
            command
                .stdin(theirs.try_clone()?)
                .stdout(theirs.try_clone()?)
                .stderr(theirs);
            ends.input = Some(Feed::Terminal(ours.try_clone()?));
            ends.terminal = Some(ours);
        } else {
            command = Command::new(program);
            command
                .stdin(if input { Stdio::piped() } else { Stdio::null() })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            if apart {
                command.process_group(0);
            }
        }
        command
            .args(args)
            .current_dir(self.cwd)
            .env_clear()
            .envs(environment())
            .envs(self.env.iter().map(|(key, value)| (key, value)));
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(error)),
        };
        ends.input = ends.input.or(child.stdin.take().map(Feed::Pipe));
        Ok(Ok((child, ends)))
    }
}

/// A pseudo-terminal: our end and the command's.
fn terminal(window: Window) -> Result<(File, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .context("a terminal")?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = open(name.as_c_str(), flags, Mode::empty()).context("the terminal's other end")?;
    resize(&ours, window)?;
    Ok((ours.into(), theirs))
}

fn resize(terminal: impl AsFd, window: Window) -> rustix::io::Result<()> {
    let size = Winsize {
        ws_row: window.rows,
        ws_col: window.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size)
}

/// In a process of its own, whose standard input is a terminal: makes that the terminal of a new
/// session, and becomes the program. Returns the status that a shell gives when it cannot.
pub fn become_on_terminal(program: &str, args: &[String]) -> i32 {
    if let Err(error) = setsid().and_then(|_| ioctl_tiocsctty(rustix::stdio::stdin())) {
        eprintln!("kfd-vm: no terminal for {program}: {error}");
        return NOT_EXECUTABLE;
    }
    let error = Command::new(program).args(args).exec();
    eprintln!("kfd-vm: cannot run {program}: {error}");
    refusal(&error)
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
    port.send(Frame::Stderr(text.into_bytes()))?;
    Ok(refusal(error))
}

fn refusal(error: &std::io::Error) -> i32 {
    match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// Feeds a command on a thread of its own, for it may not read: what is sent is written; nothing at
/// all is the end. What it no longer reads is taken as well.
fn feeder(mut feed: Option<Feed>, port: Port) -> Sender<Vec<u8>> {
    let (sender, pieces) = channel::<Vec<u8>>();
    thread::spawn(move || {
        for piece in pieces {
            if piece.is_empty() {
                feed = feed.and_then(Feed::end);
                continue;
            }
            feed = feed.and_then(|feed| feed.give(&piece));
            if port.send(Frame::Taken(piece.len() as u32)).is_err() {
                return;
            }
        }
    });
    sender
}

impl Feed {
    /// `None`: nobody reads it any more.
    fn give(mut self, bytes: &[u8]) -> Option<Self> {
        let given = match &mut self {
            Self::Pipe(pipe) => pipe.write_all(bytes),
            Self::Terminal(terminal) => terminal.write_all(bytes),
        };
        given.ok().map(|()| self)
    }

    /// A pipe is closed; at a terminal the end is typed.
    fn end(self) -> Option<Self> {
        let Self::Terminal(mut terminal) = self else {
            return None;
        };
        let end = tcgetattr(&terminal).map(|it| it.special_codes[SpecialCodeIndex::VEOF]);
        let _ = terminal.write_all(&[end.unwrap_or(b'D' - b'@')]);
        Some(Self::Terminal(terminal))
    }
}

/// Does what a running command's host says.
struct Listener {
    input: Sender<Vec<u8>>,
    terminal: Option<File>,
    /// Whom signals go to; `None`: to nobody.
    group: Option<Pid>,
    over: Arc<AtomicBool>,
}

impl Listener {
    /// Until the command is over.
    fn listen(self, words: &Receiver<Word>) {
        loop {
            let word = match words.recv_timeout(QUIET) {
                Ok(word) => word,
                Err(RecvTimeoutError::Timeout) if !self.over.load(Ordering::Acquire) => continue,
                Err(_) => return,
            };
            match word {
                Word::Input(bytes) => {
                    if self.input.send(bytes).is_err() {
                        return;
                    }
                }
                Word::Resize(window) => {
                    if let Some(terminal) = &self.terminal {
                        let _ = resize(terminal, window);
                    }
                }
                Word::Signal(number) => self.signal(Signal::from_named_raw(number.into())),
                Word::Hangup => {
                    self.signal(Some(Signal::HUP));
                    return;
                }
            }
        }
    }

    fn signal(&self, signal: Option<Signal>) {
        // The number of a group that has ended may be another's by now.
        if self.over.load(Ordering::Acquire) {
            return;
        }
        if let (Some(group), Some(signal)) = (self.group, signal) {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Where a command's output goes.
struct Outlet {
    port: Port,
    frame: fn(Vec<u8>) -> Frame,
    credit: Arc<Credit>,
    over: Arc<AtomicBool>,
}

impl Outlet {
    /// Passes a pipe's bytes on until it ends, or until the command is over and it is quiet, or
    /// nobody reads them any more.
    fn pump<R: Read + AsFd + Send + 'static>(self, mut pipe: R) -> JoinHandle<()> {
        thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            let mut rest = REST;
            while rest > 0 {
                let is_over = self.over.load(Ordering::Acquire);
                match wait_readable(&pipe, if is_over { QUIET } else { NOTICE }) {
                    Ok(true) => {}
                    Ok(false) if is_over => return,
                    Ok(false) => continue,
                    Err(_) => return,
                }
                let Some(room) = self.credit.take(buffer.len()) else {
                    return;
                };
                let count = pipe.read(&mut buffer[..room]).unwrap_or(0);
                self.credit.add(room - count);
                if count == 0 {
                    return;
                }
                if is_over {
                    rest = rest.saturating_sub(count);
                }
                let frame = (self.frame)(buffer[..count].to_vec());
                if self.port.send(frame).is_err() {
                    return;
                }
            }
        })
    }
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
    fn script(text: &str, words: Option<Receiver<Word>>, slow: Duration) -> (i32, Vec<u8>, u64) {
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
        let task = Task {
            argv: &argv,
            env: &[],
            cwd: "/",
            terminal: None,
        };
        let line = Line {
            channel: 0,
            words,
            output: Arc::new(Credit::new(usize::MAX)),
        };
        let status = run(&port, &task, line).unwrap();
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
            sender.send(Word::Input(piece.to_vec())).unwrap();
        }
        let (status, out, _) = script("cat; echo end", Some(input), Duration::ZERO);
        assert_eq!((status, out.as_slice()), (0, &b"hi\nho\nend\n"[..]));
    }

    #[test]
    fn input_that_nobody_reads_is_taken_all_the_same() {
        let (sender, input) = channel();
        let feeder = thread::spawn(move || {
            for _ in 0..64 {
                let _ = sender.send(Word::Input(vec![b'x'; 65536]));
            }
            let _ = sender.send(Word::Input(Vec::new()));
        });
        let (status, _, taken) = script("exec <&-; sleep 0.5", Some(input), Duration::ZERO);
        feeder.join().unwrap();
        assert_eq!((status, taken), (0, 64 * 65536));
    }

    /// Runs a command with these words, and then SIGTERM; what comes back after its end.
    fn terminated(argv: &[&str], before: Vec<Word>) -> (i32, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let argv: Vec<_> = argv.iter().map(ToString::to_string).collect();
        let task = Task {
            argv: &argv,
            env: &[],
            cwd: "/",
            terminal: None,
        };
        let (sender, words) = channel();
        for word in before.into_iter().chain([Word::Signal(15)]) {
            sender.send(word).unwrap();
        }
        let line = Line {
            channel: 7,
            words: Some(words),
            output: Arc::new(Credit::new(10)),
        };
        (
            run(&Port::of(ours.into()).on(7), &task, line).unwrap(),
            theirs,
        )
    }

    #[test]
    fn a_signal_reaches_a_command_that_does_not_read_its_input() {
        let start = Instant::now();
        // More than a pipe holds.
        let input = (0..3).map(|_| Word::Input(vec![b'x'; 32 << 10]));
        let (status, _) = terminated(&["sleep", "60"], input.collect());
        assert_eq!(status, 128 + 15);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_signal_reaches_the_whole_group_of_a_channels_command() {
        let (status, mut theirs) = terminated(&["sh", "-c", "sleep 60; echo survived"], Vec::new());
        assert_eq!(status, 128 + 15);
        assert!(!matches!(Frame::read(&mut theirs), Ok(Some(_))));
    }

    #[test]
    fn output_stays_in_its_window() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let credit = Arc::new(Credit::new(1000));
        let line = Line {
            channel: 3,
            words: None,
            output: credit.clone(),
        };
        let host = thread::spawn(move || {
            let (mut theirs, mut sizes) = (theirs, Vec::new());
            while let Ok(Some(Frame::Of(3, frame))) = Frame::read(&mut theirs) {
                let Frame::Stdout(bytes) = *frame else {
                    panic!("{frame:?}")
                };
                sizes.push(bytes.len());
                thread::sleep(Duration::from_millis(20));
                credit.add(bytes.len());
            }
            sizes
        });
        let port = Port::of(ours.into()).on(3);
        let argv = ["head", "-c", "5000", "/dev/zero"].map(String::from);
        let task = Task {
            argv: &argv,
            env: &[],
            cwd: "/",
            terminal: None,
        };
        assert_eq!(run(&port, &task, line).unwrap(), 0);
        drop(port);
        let sizes = host.join().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 5000);
        assert!(sizes.iter().all(|size| *size <= 1000), "{sizes:?}");
    }
}
