// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One running machine: QEMU, the three sockets to it, and the conversation with its agent.

use crate::args::Share;
use crate::background::Held;
use crate::child::{self, Reaped};
use crate::gpus::Ended;
use crate::guest::{read_frames, Console, News, WAITING};
use crate::input;
use crate::interrupt::Interrupt;
use crate::machine::{Machine, Wiring};
use crate::output::Sink;
use crate::qmp::Monitor;
use crate::run::BOOT;
use crate::scratch::Scratch;
use crate::terminal::{self, Terminal};
use anyhow::{bail, Context, Result};
use kfd_vm_protocol::{Credit, Frame, Reply, Request, INPUT_WINDOW, MAX_PAYLOAD};
use serde_json::{json, Value};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// TIMEOUT: QEMU ends at once on `quit`.
const QUIT: Duration = Duration::from_secs(5);
/// TIMEOUT: a guest that takes nothing from its port for so long hangs.
const LISTEN: Duration = Duration::from_secs(60);
/// How soon a signal to this process is noticed.
const SIGNAL_POLL: Duration = Duration::from_millis(100);
/// How long the kernel takes to print stacks.
const DUMP: Duration = Duration::from_secs(1);
const TAIL_LINES: usize = 60;

/// Why a machine, not its command, failed.
#[derive(Debug)]
pub enum Failure {
    /// The user's command took too long; what the machine itself does is a crash then.
    Timeout(String),
    Crash(String),
    Signal(i32),
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout(what) => write!(f, "timeout: {what}"),
            Failure::Crash(what) => write!(f, "{what}"),
            Failure::Signal(number) => write!(f, "ended by signal {number}"),
        }
    }
}

/// How long the guest may take for something.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub total: Duration,
    /// The longest time for which the command may print nothing.
    pub silence: Option<Duration>,
}

impl From<Duration> for Limit {
    fn from(total: Duration) -> Self {
        Self {
            total,
            silence: None,
        }
    }
}

/// What a limit leaves.
struct Clock {
    limit: Limit,
    begun: Instant,
    heard: Instant,
}

impl Clock {
    fn start(limit: Limit) -> Self {
        let now = Instant::now();
        Self {
            limit,
            begun: now,
            heard: now,
        }
    }

    /// The command prints something.
    fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// How long it may take yet; an error says what was too long.
    fn left(&self) -> Result<Duration, String> {
        let total = self.left_in_all()?;
        Ok(match self.limit.silence {
            Some(silence) => total.min(Self::of(silence, self.heard, "printed nothing for")?),
            None => total,
        })
    }

    /// The same for what is no silence: it wants to print, and nobody takes it.
    fn left_in_all(&self) -> Result<Duration, String> {
        Self::of(self.limit.total, self.begun, "took longer than")
    }

    fn of(limit: Duration, since: Instant, what: &str) -> Result<Duration, String> {
        let left = limit.saturating_sub(since.elapsed());
        let seconds = limit.as_secs_f32();
        (!left.is_zero())
            .then_some(left)
            .ok_or_else(|| format!("{what} {seconds} s"))
    }
}

/// How a machine starts.
pub struct Start<'a> {
    pub machine: &'a Machine<'a>,
    pub share: Share,
    /// What answers the network card, if there is to be one.
    pub network: Option<String>,
    /// Devices beyond the machine's own.
    pub devices: Vec<Value>,
    /// Wait for a snapshot instead of booting.
    pub incoming: bool,
    pub console_log: Option<File>,
    pub kernel_log: Option<Box<dyn Write>>,
    /// QEMU's own messages.
    pub messages: File,
    pub messages_path: PathBuf,
    pub interrupt: Interrupt,
    pub models: Vec<Ended>,
}

impl<'a> Start<'a> {
    /// A plain boot with nothing shared; the caller changes what differs.
    pub fn new(machine: &'a Machine<'a>, scratch: &Scratch) -> Result<Self> {
        let messages_path = scratch.path().join("qemu.log");
        let share = Share {
            directory: scratch.path().join("nothing"),
            read_only: true,
        };
        fs::create_dir_all(&share.directory)?;
        Ok(Self {
            machine,
            share,
            network: None,
            devices: Vec::new(),
            incoming: false,
            console_log: None,
            kernel_log: None,
            messages: File::create(&messages_path)?,
            messages_path,
            interrupt: scratch.interrupt.clone(),
            models: Vec::new(),
        })
    }
}

pub struct Session {
    pub monitor: Monitor,
    agent: Arc<Mutex<UnixStream>>,
    /// Room for the command's input, while there is one that reads.
    input: Option<Arc<Credit>>,
    news: Receiver<News>,
    console: Console,
    kernel_log: Option<Box<dyn Write>>,
    messages_path: PathBuf,
    interrupt: Interrupt,
    models: Vec<Ended>,
    qemu: Reaped,
}

impl Session {
    pub fn start(start: Start<'_>) -> Result<Self> {
        let (agent, agent_theirs) = UnixStream::pair()?;
        let (monitor, monitor_theirs) = UnixStream::pair()?;
        let (console, console_theirs) = UnixStream::pair()?;
        let wiring = Wiring {
            agent: agent_theirs.as_raw_fd(),
            monitor: monitor_theirs.as_raw_fd(),
            console: console_theirs.as_raw_fd(),
            share: start.share.clone(),
            network: start.network.clone(),
            plugin: start.machine.args.plugin.clone(),
        };
        let theirs = [agent_theirs, monitor_theirs, console_theirs];
        let qemu = spawn(&start, &wiring, &theirs)?;
        drop(theirs);
        agent.set_write_timeout(Some(LISTEN))?;
        let (sender, news) = sync_channel(WAITING);
        read_frames(agent.try_clone()?, sender);
        let console = Console::read(console, start.console_log)?;
        let monitor = Monitor::connect(monitor, start.interrupt.clone()).map_err(|error| {
            error.context(format!(
                "QEMU did not start: {}",
                last_lines(&start.messages_path)
            ))
        })?;
        let (kernel_log, messages_path) = (start.kernel_log, start.messages_path);
        let (interrupt, models) = (start.interrupt, start.models);
        Ok(Self {
            monitor,
            agent: Arc::new(Mutex::new(agent)),
            input: None,
            news,
            console,
            kernel_log,
            messages_path,
            interrupt,
            models,
            qemu,
        })
    }

    /// Sends a request of our own and passes output to `sink` until the reply comes.
    fn request(
        &mut self,
        request: &Request,
        limit: Duration,
        sink: &mut dyn Sink,
    ) -> Result<Reply> {
        self.send(Frame::Request(request.clone()))?;
        self.reply(request, limit.into(), sink)
            .map_err(of_the_machine)
    }

    /// The same for the user's command, which may read what this process reads.
    pub fn run(&mut self, request: &Request, limit: Limit, sink: &mut dyn Sink) -> Result<Reply> {
        self.send(Frame::Request(request.clone()))?;
        if let Request::Run { input: false, .. } = request {
            return self.reply(request, limit, sink);
        }
        let credit = Arc::new(Credit::new(INPUT_WINDOW));
        self.input = Some(credit.clone());
        // Before anything is typed.
        let terminal = match request {
            Request::Run {
                terminal: Some(_), ..
            } => {
                terminal::tell_size(self.agent.clone())?;
                Terminal::raw()?
            }
            _ => None,
        };
        input::pass_on(input::Standard, self.agent.clone(), credit);
        let reply = self.reply(request, limit, sink);
        drop(terminal);
        if let Some(credit) = self.input.take() {
            credit.close();
        }
        reply
    }

    /// Runs what the clients of `held` want, until somebody asks for the end: returns who.
    pub fn hold(&mut self, held: &Held) -> Result<UnixStream> {
        held.listen(self.agent.clone())?;
        loop {
            self.interrupt.check()?;
            self.check_models()?;
            if held.clients().is_broken() {
                return Err(self.crash("the guest does not listen"));
            }
            if let Some(ender) = held.is_to_end() {
                return Ok(ender);
            }
            match self.news.recv_timeout(SIGNAL_POLL) {
                Ok(News::Frame(Frame::Of(channel, frame))) => held.clients().pass(channel, *frame),
                Ok(News::Frame(frame)) => {
                    self.take(frame, &mut Captured::default(), &mut || true)?;
                }
                Ok(News::Gone(reason)) => return Err(self.crash(&reason)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.crash("the machine stopped"))
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn send(&mut self, frame: Frame) -> Result<()> {
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        let written = frame.write(&mut *agent);
        drop(agent);
        match written {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Failure::Crash(format!(
                "timeout: the guest does not listen\n{}",
                self.console.tail(TAIL_LINES)
            ))
            .into()),
            Err(_) => Err(self.crash("the machine stopped")),
            Ok(()) => Ok(()),
        }
    }

    fn reply(&mut self, request: &Request, limit: Limit, sink: &mut dyn Sink) -> Result<Reply> {
        let mut clock = Clock::start(limit);
        // What is there when the limit is over counts, however late this process is: what waits,
        // and what the thread that reads has in its hand. More would be without an end, if the
        // guest prints as fast as it is read.
        let mut late = WAITING + 1;
        loop {
            self.interrupt.check()?;
            self.check_models()?;
            let left = clock.left();
            let wait = left.as_ref().map_or(Duration::ZERO, |left| *left);
            match self.news.recv_timeout(wait.min(SIGNAL_POLL)) {
                Ok(News::Frame(frame)) => {
                    if let Err(what) = left {
                        if late == 0 {
                            return Err(self.timeout(request, &what));
                        }
                        late -= 1;
                    }
                    let is_output = matches!(frame, Frame::Stdout(_) | Frame::Stderr(_));
                    let interrupt = self.interrupt.clone();
                    let mut waits = || interrupt.check().is_ok() && clock.left_in_all().is_ok();
                    match self.take(frame, sink, &mut waits) {
                        Ok(Some(reply)) => return Ok(reply),
                        Ok(None) => {}
                        Err(error) => return Err(self.not_taken(request, &clock, error)),
                    }
                    if is_output {
                        clock.hear();
                    }
                }
                Ok(News::Gone(reason)) => return Err(self.crash(&reason)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.crash("the machine stopped"))
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(what) = left {
                        return Err(self.timeout(request, &what));
                    }
                }
            }
        }
    }

    /// Why output was not taken, if it was that: nobody waits on for that after a signal, or
    /// longer than the command may take.
    fn not_taken(
        &mut self,
        request: &Request,
        clock: &Clock,
        error: anyhow::Error,
    ) -> anyhow::Error {
        let kind = error.downcast_ref().map(io::Error::kind);
        if kind != Some(ErrorKind::TimedOut) {
            return error;
        }
        match (self.interrupt.check(), clock.left_in_all()) {
            (Err(signal), _) => signal,
            (Ok(()), Err(what)) => {
                let why = format!("{what}, and nobody reads what it prints");
                self.timeout(request, &why)
            }
            (Ok(()), Ok(_)) => error,
        }
    }

    /// Passes output on; returns what ends a request.
    fn take(
        &mut self,
        frame: Frame,
        sink: &mut dyn Sink,
        waits: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Reply>> {
        match frame {
            Frame::Stdout(bytes) => sink.stdout(&bytes, waits)?,
            Frame::Stderr(bytes) => sink.stderr(&bytes, waits)?,
            Frame::Log(bytes) => {
                if let Some(log) = &mut self.kernel_log {
                    log.write_all(&bytes).context("writing the kernel's log")?;
                }
            }
            Frame::Reply(reply) => return Ok(Some(reply)),
            Frame::Taken(count) => {
                if let Some(credit) = &self.input {
                    credit.add(count as usize);
                }
            }
            Frame::Request(_)
            | Frame::Data(_)
            | Frame::Stdin(_)
            | Frame::Resize(_)
            | Frame::Signal(_)
            | Frame::Hangup => bail!("the agent sends a host's frame"),
            Frame::Of(channel, _) => bail!("the agent answers on channel {channel}, which is none"),
        }
        Ok(None)
    }

    fn crash(&mut self, reason: &str) -> anyhow::Error {
        // The console's last lines may still be on their way.
        self.qemu.wait_for(QUIT);
        std::thread::sleep(SIGNAL_POLL);
        let what = if self.console.has_crash() {
            "the guest crashed"
        } else {
            reason
        };
        let words = [
            self.console.tail(TAIL_LINES),
            last_lines(&self.messages_path),
        ]
        .join("\n");
        Failure::Crash(format!("{what}; its last words:\n{}", words.trim())).into()
    }

    /// A model that ended leaves a guest that waits for ever.
    fn check_models(&self) -> Result<()> {
        match self.models.iter().position(Ended::is_set) {
            Some(number) => {
                let what = format!("the model of GPU {number} ended while the machine ran");
                Err(Failure::Crash(what).into())
            }
            None => Ok(()),
        }
    }

    /// Has the kernel print what waits (SysRq-w) and what runs (SysRq-l): a break and a letter.
    fn stacks(&mut self) -> String {
        for letter in [b"w", b"l"] {
            let console = json!({ "id": "console" });
            let broken = self.monitor.execute("chardev-send-break", console);
            if broken.is_ok() && self.console.type_in(letter).is_ok() {
                std::thread::sleep(DUMP);
            }
        }
        self.console.tail(TAIL_LINES)
    }

    fn timeout(&mut self, request: &Request, why: &str) -> anyhow::Error {
        let what = match request {
            Request::Run { argv, .. } => format!("`{}`", argv.join(" ")),
            Request::Hello => "the boot".into(),
            other => format!("{other:?}"),
        };
        let tail = self.stacks();
        Failure::Timeout(format!("{what} {why}; the console:\n{tail}")).into()
    }

    /// Waits until the guest answers, and says which kernel it runs.
    pub fn hello(&mut self) -> Result<String> {
        match self.request(&Request::Hello, BOOT, &mut Captured::default())? {
            Reply::Ready { release } => Ok(release),
            other => bail!("unexpected reply {other:?}"),
        }
    }

    /// A request whose only good answer is "done".
    pub fn ask(&mut self, request: &Request, limit: Duration) -> Result<()> {
        match self.request(request, limit, &mut Captured::default())? {
            Reply::Done => Ok(()),
            Reply::Failed { message } => bail!("in the guest: {message}"),
            other => bail!("unexpected reply {other:?}"),
        }
    }

    /// Loads a module: a file of the guest's, or one of the kernel's.
    pub fn load_module(&mut self, name: &str, parameters: &str, limit: Duration) -> Result<()> {
        let request = Request::LoadModule {
            name: name.into(),
            parameters: parameters.into(),
        };
        self.ask(&request, limit)
    }

    /// Runs a command of our own in the guest, which must succeed, and returns what it says.
    pub fn run_quietly(&mut self, argv: &[&str], limit: Duration) -> Result<String> {
        let output = self.output_of(argv, limit)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// The same for what says more than text.
    pub fn output_of(&mut self, argv: &[&str], limit: Duration) -> Result<Vec<u8>> {
        let request = Request::Run {
            argv: argv.iter().map(|word| word.to_string()).collect(),
            env: Vec::new(),
            cwd: "/".into(),
            input: false,
            terminal: None,
        };
        let mut output = Captured::default();
        match self.request(&request, limit, &mut output)? {
            Reply::Exit { status: 0 } => Ok(output.0),
            reply => {
                let reason = match reply {
                    Reply::Failed { message } => message,
                    _ => String::from_utf8_lossy(&output.0).trim().to_string(),
                };
                bail!("`{}` failed in the guest: {reason}", argv.join(" "))
            }
        }
    }

    pub fn write_file(
        &mut self,
        path: &str,
        mode: u32,
        data: &[u8],
        limit: Duration,
    ) -> Result<()> {
        let request = Request::WriteFile {
            path: path.into(),
            mode,
            size: data.len() as u64,
        };
        self.send(Frame::Request(request.clone()))?;
        for piece in data.chunks(MAX_PAYLOAD) {
            self.send(Frame::Data(piece.to_vec()))?;
        }
        let reply = self.reply(&request, limit.into(), &mut Captured::default());
        match reply.map_err(of_the_machine)? {
            Reply::Done => Ok(()),
            other => bail!("writing {path} in the guest: {other:?}"),
        }
    }

    /// Switches the machine off; nothing of it has to be kept.
    pub fn quit(mut self) {
        let _ = self.monitor.execute("quit", json!({}));
        self.qemu.wait_for(QUIT);
    }
}

/// An error of a request of our own: that it takes too long says nothing of the user's command.
fn of_the_machine(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Failure::Timeout(_)) => Failure::Crash(error.to_string()).into(),
        _ => error,
    }
}

/// Output of commands of our own, shown only when they fail.
#[derive(Default)]
struct Captured(Vec<u8>);

impl Sink for Captured {
    fn stdout(&mut self, bytes: &[u8], _: &mut dyn FnMut() -> bool) -> io::Result<()> {
        self.0.extend(bytes);
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
        self.stdout(bytes, waits)
    }
}

fn spawn(start: &Start<'_>, wiring: &Wiring, theirs: &[UnixStream]) -> Result<Reaped> {
    let (loader, words, (name, value)) = start.machine.assets.qemu.command_line();
    let mut command = child::command(loader);
    command
        .args(words)
        .args(start.machine.arguments(wiring))
        .env(name, value);
    for device in &start.devices {
        command.arg("-device").arg(device.to_string());
    }
    if start.incoming {
        command.args(["-incoming", "defer"]);
    }
    command.stdin(Stdio::null());
    command
        .stdout(start.messages.try_clone()?)
        .stderr(start.messages.try_clone()?);
    for stream in theirs {
        child::inherit(stream)?;
    }
    Ok(Reaped::new(command.spawn().context("starting QEMU")?))
}

fn last_lines(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    // QEMU 11.1 wants a newer option, which 10.1 does not have.
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.contains("is deprecated"))
        .collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with an agent that takes all and answers nothing; QEMU's monitor is gone.
    fn silent() -> (Session, [UnixStream; 2]) {
        let (agent, guest) = UnixStream::pair().unwrap();
        let (console, port) = UnixStream::pair().unwrap();
        let (monitor, mut qemu) = UnixStream::pair().unwrap();
        qemu.write_all(b"{\"QMP\": {}}\n{\"return\": {}}\n")
            .unwrap();
        let (sender, news) = sync_channel(WAITING);
        read_frames(agent.try_clone().unwrap(), sender);
        let session = Session {
            monitor: Monitor::connect(monitor, Interrupt::default()).unwrap(),
            agent: Arc::new(Mutex::new(agent)),
            input: None,
            news,
            console: Console::read(console, None).unwrap(),
            kernel_log: None,
            messages_path: PathBuf::new(),
            interrupt: Interrupt::default(),
            models: Vec::new(),
            qemu: Reaped::new(std::process::Command::new("true").spawn().unwrap()),
        };
        (session, [guest, port])
    }

    #[test]
    fn only_the_users_command_runs_out_of_time() {
        let (mut session, _ends) = silent();
        let limit = Duration::from_millis(10);
        let crash = |error: anyhow::Error| match error.downcast_ref() {
            Some(Failure::Crash(what)) => what.starts_with("timeout: "),
            _ => false,
        };
        assert!(crash(session.ask(&Request::Hello, limit).unwrap_err()));
        assert!(crash(session.load_module("x", "", limit).unwrap_err()));
        assert!(crash(session.write_file("x", 0, b"", limit).unwrap_err()));
        assert!(crash(session.run_quietly(&["x"], limit).unwrap_err()));
        let command = Request::Run {
            argv: vec!["x".into()],
            env: Vec::new(),
            cwd: String::new(),
            input: false,
            terminal: None,
        };
        let mut sink = Captured::default();
        let error = session.run(&command, limit.into(), &mut sink).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Failure::Timeout(_))));
    }

    #[test]
    fn silence_has_a_limit_of_its_own() {
        let limit = |total, silence: Option<u64>| Limit {
            total: Duration::from_millis(total),
            silence: silence.map(Duration::from_millis),
        };
        let mut clock = Clock::start(limit(60_000, Some(40)));
        assert!(clock.left().is_ok_and(|left| left.as_millis() <= 40));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(clock.left().unwrap_err(), "printed nothing for 0.04 s");
        clock.hear();
        assert!(clock.left().is_ok());
        let mut clock = Clock::start(limit(10, Some(60_000)));
        std::thread::sleep(Duration::from_millis(20));
        clock.hear();
        assert_eq!(clock.left().unwrap_err(), "took longer than 0.01 s");
        let clock = Clock::start(limit(60_000, None));
        assert!(clock.left().is_ok_and(|left| left.as_secs() > 50));
    }

    #[test]
    fn the_last_lines_of_a_missing_file_are_empty() {
        assert_eq!(last_lines(Path::new("/nonexistent/file")), "");
    }
}
