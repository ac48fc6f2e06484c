// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Machines in the background: `up` starts one, `exec` runs commands in it, `ps` lists them and
//! `down` ends one.
//!
//! A machine is held by a process of its own, which has a lock, a socket and a log of the machine's
//! name in a directory of the user's. On the socket frames go as on the agent's port: a connection
//! begins with a request, and one that runs a command is a channel of the port.

use crate::args::{DownArgs, ExecArgs, Name, UpArgs};
use crate::input;
use crate::interrupt::Interrupt;
use crate::output::{PassThrough, Sink};
use crate::run::{self, Order};
use crate::session::Failure;
use crate::terminal::{self, Terminal};
use anyhow::{anyhow, bail, Context, Result};
use kfd_vm_protocol::{Credit, Frame, Reply, Request, INPUT_WINDOW, OUTPUT_WINDOW};
use rustix::fs::{flock, FlockOperation};
use rustix::process::{getuid, setsid, Pid};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand of the process that holds a machine.
pub const HOLD: &str = "hold";
/// How soon a signal to this process is noticed.
const POLL: Duration = Duration::from_millis(100);
/// TIMEOUT: a machine ends within seconds.
const END: Duration = Duration::from_secs(60);
/// TIMEOUT: whoever holds a machine answers at once.
const ANSWER: Duration = Duration::from_secs(10);

/// Where a machine's files are.
struct Files {
    directory: PathBuf,
    name: Name,
}

impl Files {
    /// Of a machine that may be up; where this user has had none, there is no directory, either.
    fn of(name: &Name) -> Result<Self> {
        Ok(Self {
            directory: directory()?,
            name: name.clone(),
        })
    }

    /// Of one that is to come up.
    fn of_new(name: &Name) -> Result<Self> {
        let files = Self::of(name)?;
        let created = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&files.directory);
        created.with_context(|| files.directory.display().to_string())?;
        // Somebody else may have made it meanwhile.
        Self::of(name)
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}.{suffix}", self.name))
    }

    /// Takes the machine's lock; `None`: it runs.
    fn lock(&self) -> Result<Option<File>> {
        let path = self.path("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options
            .open(&path)
            .with_context(|| path.display().to_string())?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    fn connect(&self) -> Result<UnixStream> {
        let stream = UnixStream::connect(self.path("socket"));
        stream.map_err(|_| anyhow!("no machine {} is up; see kfd-vm up --help", self.name))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// A directory that is this user's alone, or is not there.
fn directory() -> Result<PathBuf> {
    let user = getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let directory = directory_of(runtime, std::env::temp_dir(), user);
    match fs::symlink_metadata(&directory) {
        Ok(found) if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 => {
            bail!("{} is not this user's alone", directory.display())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| directory.display().to_string())
        }
        _ => Ok(directory),
    }
}

/// In the user's runtime directory, else in that for temporary files. `su` and `sudo -E` leave the
/// variable with another user's: what root made in there its owner could not use.
fn directory_of(runtime: Option<OsString>, temporary: PathBuf, user: u32) -> PathBuf {
    let runtime = runtime.filter(|path| fs::metadata(path).is_ok_and(|found| found.uid() == user));
    match runtime {
        Some(path) => PathBuf::from(path).join("kfd-vm"),
        None => temporary.join(format!("kfd-vm.{user}")),
    }
}

/// Starts a machine, and returns when commands can run in it.
pub fn up(args: &UpArgs) -> Result<u8> {
    let name = &args.name;
    let files = Files::of_new(name)?;
    // Given free again for the process that will hold it.
    let is_free = || match files.lock()? {
        Some(_) => Ok(()),
        None => bail!("the machine {name} is up already"),
    };
    is_free()?;
    // Here, not by the holder: the first time it takes 20 minutes, and says so.
    let interrupt = Interrupt::install()?;
    run::locate(
        &args.options.machine,
        &interrupt,
        args.options.has_network(),
    )?;
    // Meanwhile another one may have started it.
    is_free()?;
    let log = File::create(files.path("log"))?;
    let mut command = Command::new("/proc/self/exe");
    // `up` and its options, which are those of `hold`.
    command.arg(HOLD).args(std::env::args_os().skip(2));
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut child = command.spawn().context("starting what holds the machine")?;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!(
                "the machine did not come up ({status}):\n{}",
                files.log().trim_end()
            );
        }
        if files.connect().is_ok() {
            // It is up whether anybody reads that or not.
            let _ = writeln!(
                io::stdout(),
                "{name} is up; kfd-vm exec --name {name} -- COMMAND"
            );
            return Ok(0);
        }
        if let Err(error) = interrupt.check() {
            let pid = Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
            return Err(error);
        }
        thread::sleep(POLL);
    }
}

/// The socket of a machine that is held, with what its clients have to be told.
pub struct Held {
    files: Files,
    lock: File,
    clients: Arc<Clients>,
    /// Whoever asks for the machine's end waits for the other end of one of these.
    enders: Receiver<UnixStream>,
    ending: Sender<UnixStream>,
}

/// Who runs commands.
pub struct Clients {
    by_channel: Mutex<HashMap<u32, Sender<Frame>>>,
    last: AtomicU32,
    /// Where commands run that do not say.
    cwd: String,
    description: String,
    over: AtomicBool,
    /// A frame could not be sent: the agent would understand none behind it.
    broken: AtomicBool,
}

impl Clients {
    fn new(cwd: String, description: String) -> Self {
        Self {
            by_channel: Mutex::default(),
            last: AtomicU32::new(0),
            cwd,
            description,
            over: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// Whether the way to the agent is lost.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// A frame of a channel goes to whoever is there; nobody has to be.
    pub fn pass(&self, channel: u32, frame: Frame) {
        let is_last = matches!(frame, Frame::Reply(_));
        let mut clients = self.lock();
        if let Some(client) = clients.get(&channel) {
            let _ = client.send(frame);
        }
        if is_last {
            clients.remove(&channel);
        }
    }

    /// The machine is gone: whoever still waits is told.
    fn end(&self, message: &str) {
        self.over.store(true, Ordering::Release);
        for (_, client) in self.lock().drain() {
            let message = message.into();
            let _ = client.send(Frame::Reply(Reply::Failed { message }));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Sender<Frame>>> {
        self.by_channel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Becomes the holder of the machine of that name: leaves the terminal and takes the lock.
    pub fn new(name: &Name, cwd: String, description: String) -> Result<Self> {
        let files = Files::of_new(name)?;
        let Some(lock) = files.lock()? else {
            bail!("the machine {name} is up already");
        };
        // It fails only for who leads a session already.
        let _ = setsid();
        let (ending, enders) = channel();
        Ok(Self {
            files,
            lock,
            clients: Arc::new(Clients::new(cwd, description)),
            enders,
            ending,
        })
    }

    pub fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// Whether somebody has asked for the end.
    pub fn is_to_end(&self) -> Option<UnixStream> {
        self.enders.try_recv().ok()
    }

    /// Takes connections from now on, whose frames go to the agent.
    pub fn listen(&self, agent: Arc<Mutex<UnixStream>>) -> Result<()> {
        let path = self.files.path("socket");
        // One that a killed holder has left behind; the lock is ours.
        let _ = fs::remove_file(&path);
        // Nobody finds a socket that nobody listens to.
        let fresh = self.files.path("new");
        let _ = fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh).context("the machine's socket")?;
        fs::rename(&fresh, &path)?;
        let (clients, ending) = (self.clients.clone(), self.ending.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (clients, agent, ending) = (clients.clone(), agent.clone(), ending.clone());
                thread::spawn(move || {
                    // A client that breaks off or says what it must not is its own affair.
                    let _ = serve(stream, &clients, &agent, &ending);
                });
            }
        });
        Ok(())
    }

    /// The machine has ended, for that reason.
    pub fn end(self, message: &str) {
        self.clients.end(message);
        // Not the lock's file, which the next one may hold.
        let _ = fs::remove_file(self.files.path("socket"));
        // The name is free when this process is gone.
        std::mem::forget(self.lock);
    }
}

/// One connection.
fn serve(
    stream: UnixStream,
    clients: &Arc<Clients>,
    agent: &Mutex<UnixStream>,
    ending: &Sender<UnixStream>,
) -> io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let Some(first) = Frame::read(&mut input)? else {
        return Ok(());
    };
    let mut request = match first {
        Frame::Request(Request::Hello) => {
            let release = clients.description.clone();
            return Frame::Reply(Reply::Ready { release }).write(&mut &stream);
        }
        Frame::Hangup => {
            let _ = ending.send(stream);
            return Ok(());
        }
        Frame::Request(request @ Request::Run { .. }) => request,
        other => return Err(io::Error::other(format!("{other:?}"))),
    };
    if let Request::Run { cwd, .. } = &mut request {
        if cwd.is_empty() {
            *cwd = clients.cwd.clone();
        }
    }
    let number = clients.last.fetch_add(1, Ordering::Relaxed) + 1;
    let (sender, frames) = channel();
    clients.lock().insert(number, sender);
    let to_agent = |frame: Frame| {
        let mut agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = Frame::Of(number, Box::new(frame)).write(&mut *agent);
        // Of a frame that is too long nothing has been written.
        if sent
            .as_ref()
            .is_err_and(|e| e.kind() != ErrorKind::InvalidData)
        {
            clients.broken.store(true, Ordering::Release);
        }
        sent
    };
    if let Err(error) = to_agent(Frame::Request(request)) {
        clients.lock().remove(&number);
        let message = format!("the command and its variables: {error}");
        return Frame::Reply(Reply::Failed { message }).write(&mut &stream);
    }
    // How much waits here is limited by the channel's window.
    let writer = thread::spawn(move || -> io::Result<()> {
        let mut out = &stream;
        for frame in frames {
            frame.write(&mut out)?;
        }
        stream.shutdown(std::net::Shutdown::Both)
    });
    if clients.over.load(Ordering::Acquire) {
        clients.end("the machine has ended");
    }
    let result = loop {
        match Frame::read(&mut input) {
            Ok(Some(
                frame @ (Frame::Stdin(_)
                | Frame::Resize(_)
                | Frame::Signal(_)
                | Frame::Taken(_)
                | Frame::Hangup),
            )) => {
                if let Err(error) = to_agent(frame) {
                    break Err(error);
                }
            }
            Ok(Some(other)) => break Err(io::Error::other(format!("{other:?}"))),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // Unless the command has ended, nobody hears of it any more.
    if clients.lock().remove(&number).is_some() {
        to_agent(Frame::Hangup)?;
    }
    let _ = writer.join();
    result
}

/// Runs a command in a machine that is up, and returns its status.
pub fn exec(args: &ExecArgs) -> Result<u8> {
    let files = Files::of(&args.name)?;
    let stream = files.connect()?;
    let order = Order::of_exec(args);
    let interrupt = Interrupt::install()?;
    let agent = Arc::new(Mutex::new(stream.try_clone()?));
    let request = order.request(args.cwd.clone().unwrap_or_default(), &args.env);
    Frame::Request(request)
        .write(&mut &stream)
        .context("the command and its variables")?;
    let credit = Arc::new(Credit::new(INPUT_WINDOW));
    let terminal = if order.has_terminal() {
        terminal::tell_size(agent.clone())?;
        Terminal::raw()?
    } else {
        None
    };
    input::pass_on(input::Standard, agent.clone(), credit.clone());
    let frames = read_frames(stream);
    let deadline = Instant::now() + order.limit();
    let mut sink = PassThrough;
    // What is on its way when the limit is over counts, and no more.
    let mut late = OUTPUT_WINDOW;
    let over = || {
        tell(&agent, &Frame::Hangup);
        Err(Failure::Timeout(format!("`{}`", args.command.join(" "))).into())
    };
    let pass_signal = || {
        if let Some(number) = interrupt.take() {
            // The command may take its time to end, or ignore it.
            tell(&agent, &Frame::Signal(number as u8));
        }
    };
    let reply = loop {
        pass_signal();
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waits = || {
            pass_signal();
            Instant::now() < deadline
        };
        let (taken, count) = match frames.recv_timeout(left.min(POLL)) {
            Ok(Frame::Stdout(bytes)) => (sink.stdout(&bytes, &mut waits), bytes.len()),
            Ok(Frame::Stderr(bytes)) => (sink.stderr(&bytes, &mut waits), bytes.len()),
            Ok(Frame::Taken(count)) => {
                credit.add(count as usize);
                continue;
            }
            Ok(Frame::Reply(reply)) => break reply,
            Ok(other) => bail!("the machine's holder sends {other:?}"),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return over(),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => bail!("the machine {} is gone", args.name),
        };
        match taken {
            Err(error) if error.kind() == ErrorKind::TimedOut && Instant::now() >= deadline => {
                return over();
            }
            // Who reads our output no longer reads the command's.
            taken => taken?,
        }
        if left.is_zero() {
            late = late.saturating_sub(count);
            if late == 0 {
                return over();
            }
        }
        tell(&agent, &Frame::Taken(count as u32));
    };
    credit.close();
    drop(terminal);
    match reply {
        Reply::Exit { status } => Ok(status as u8),
        Reply::Failed { message } => Err(Failure::Crash(message).into()),
        other => bail!("unexpected reply {other:?}"),
    }
}

/// That the command has ended, or the machine, is seen in what comes back.
fn tell(agent: &Mutex<UnixStream>, frame: &Frame) {
    let mut agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = frame.write(&mut *agent);
}

fn read_frames(stream: impl Read + Send + 'static) -> Receiver<Frame> {
    let (sender, frames) = channel();
    thread::spawn(move || {
        let mut input = BufReader::new(stream);
        while let Ok(Some(frame)) = Frame::read(&mut input) {
            if sender.send(frame).is_err() {
                return;
            }
        }
    });
    frames
}

/// Lists this user's machines.
pub fn ps() -> Result<u8> {
    let found = match fs::read_dir(directory()?) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    let mut names: Vec<Name> = found
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(".socket")?.parse().ok()
        })
        .collect();
    names.sort();
    for name in names {
        if let Some(description) = describe(&name) {
            writeln!(io::stdout(), "{name}\t{description}").context("the list")?;
        }
    }
    Ok(0)
}

/// `None`: it is gone, or about to go.
fn describe(name: &Name) -> Option<String> {
    let stream = Files::of(name).ok()?.connect().ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    Frame::Request(Request::Hello).write(&mut &stream).ok()?;
    match Frame::read(&mut &stream) {
        Ok(Some(Frame::Reply(Reply::Ready { release }))) => Some(release),
        _ => None,
    }
}

/// Ends a machine, and returns when nothing of it is left.
pub fn down(args: &DownArgs) -> Result<u8> {
    let files = Files::of(&args.name)?;
    let stream = files.connect()?;
    Frame::Hangup.write(&mut &stream)?;
    stream.set_read_timeout(Some(END))?;
    let answer = Frame::read(&mut &stream).context("waiting for the machine's end")?;
    let deadline = Instant::now() + END;
    // Its holder has the lock as long as it lives.
    while files.lock()?.is_none() {
        if Instant::now() > deadline {
            bail!("the process that holds the machine does not end");
        }
        thread::sleep(POLL);
    }
    match answer {
        Some(Frame::Reply(Reply::Done)) | None => Ok(0),
        Some(Frame::Reply(Reply::Failed { message })) => bail!("{message}"),
        Some(other) => bail!("unexpected {other:?}"),
    }
}

/// Answers who has asked for the end.
pub fn answer(ender: UnixStream, reply: Reply) {
    let _ = Frame::Reply(reply).write(&mut &ender);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_vm_protocol::MAX_PAYLOAD;

    #[test]
    fn the_runtime_directory_of_another_user_is_left_alone() {
        let runtime = tempfile::tempdir().unwrap();
        let user = fs::metadata(runtime.path()).unwrap().uid();
        let of = |path: &str, user| directory_of(Some(path.into()), "/tmp".into(), user);
        let path = runtime.path().to_str().unwrap();
        assert_eq!(of(path, user), runtime.path().join("kfd-vm"));
        let other = user + 1;
        let temporary = PathBuf::from(format!("/tmp/kfd-vm.{other}"));
        assert_eq!(of(path, other), temporary);
        assert_eq!(of("", other), temporary);
        assert_eq!(directory_of(None, "/tmp".into(), other), temporary);
    }

    #[test]
    fn what_a_channel_says_reaches_its_client_until_the_reply() {
        let clients = Clients::new("/".into(), String::new());
        let (sender, frames) = channel();
        clients.lock().insert(4, sender);
        clients.pass(4, Frame::Stdout(b"a".to_vec()));
        clients.pass(5, Frame::Stdout(b"nobody's".to_vec()));
        clients.pass(4, Frame::Reply(Reply::Exit { status: 2 }));
        clients.pass(4, Frame::Stdout(b"late".to_vec()));
        let got: Vec<Frame> = frames.iter().collect();
        let exit = Frame::Reply(Reply::Exit { status: 2 });
        assert_eq!(got, [Frame::Stdout(b"a".to_vec()), exit]);
    }

    #[test]
    fn a_client_is_told_of_the_end() {
        let clients = Clients::new("/".into(), String::new());
        let (sender, frames) = channel();
        clients.lock().insert(1, sender);
        clients.end("why");
        let message = "why".to_string();
        assert_eq!(frames.recv(), Ok(Frame::Reply(Reply::Failed { message })));
        assert!(frames.recv().is_err());
    }

    #[test]
    fn a_client_whose_frame_the_agent_cannot_be_sent_leaves_nothing_behind() {
        let clients = Arc::new(Clients::new("/".into(), String::new()));
        let (client, stream) = UnixStream::pair().unwrap();
        let (agent, guest) = UnixStream::pair().unwrap();
        let (ending, _enders) = channel();
        let known = clients.clone();
        let serving = thread::spawn(move || serve(stream, &known, &Mutex::new(agent), &ending));
        let request = Request::Run {
            argv: vec!["cat".into()],
            env: Vec::new(),
            cwd: String::new(),
            input: true,
            terminal: None,
        };
        Frame::Request(request).write(&mut &client).unwrap();
        // With the channel's number around it, it is too long.
        let most = Frame::Stdin(vec![0; MAX_PAYLOAD]);
        most.write(&mut &client).unwrap();
        assert!(serving.join().unwrap().is_err());
        assert!(clients.lock().is_empty() && !clients.is_broken());
        let mut guest = BufReader::new(guest);
        let mut of_channel = || match Frame::read(&mut guest).unwrap() {
            Some(Frame::Of(1, frame)) => Some(*frame),
            other => panic!("{other:?}"),
        };
        assert!(matches!(
            of_channel(),
            Some(Frame::Request(Request::Run { .. }))
        ));
        assert_eq!(of_channel(), Some(Frame::Hangup));
    }
}
