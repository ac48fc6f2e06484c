// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Inferior`]: the debugged program, all of whose threads are traced.

use super::client::Breakpoint;
use super::library::{Library, Process};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// TIMEOUT: a program of HIP starts in seconds, on a loaded host in tens.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Inferior {
    id: u32,
    /// What this program has started.
    pub own: Option<Own>,
    heard: Vec<u8>,
    traced: bool,
    /// How it ended.
    pub ended: Option<String>,
}

pub struct Own {
    pub child: Child,
    hear: ChildStdout,
}

/// Has what is started be killed when this program ends first: nobody would let it go on, and who
/// waits for what this program says would wait for it as well.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let end = move || -> std::io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have ended before.
        match rustix::process::getppid() {
            Some(now) if now.as_raw_nonzero().get() as u32 == parent => Ok(()),
            _ => Err(std::io::ErrorKind::NotConnected.into()),
        }
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(end) };
}

fn options() -> Options {
    Options::PTRACE_O_TRACECLONE
}

impl Inferior {
    /// Starts the program; `traced`: it stops before its first instruction, and is traced.
    pub fn start(program: &str, arguments: &[&str], traced: bool) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        end_with_parent(&mut command);
        if traced {
            // SAFETY: between fork and exec only a system call is made.
            unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
        }
        let mut child = command.spawn().with_context(|| program.to_owned())?;
        let hear = child.stdout.take().context("it has an output")?;
        let inferior = Self {
            id: child.id(),
            own: Some(Own { child, hear }),
            heard: Vec::new(),
            traced,
            ended: None,
        };
        if traced {
            waitpid(inferior.pid(), None)?;
            ptrace::setoptions(inferior.pid(), options())?;
        }
        Ok(inferior)
    }

    /// One that another program has started.
    pub fn of_another(id: u32) -> Self {
        Self {
            id,
            own: None,
            heard: Vec::new(),
            traced: false,
            ended: None,
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id as i32)
    }

    /// Lets a program go on that was traced from its beginning.
    pub fn begin(&self) -> Result<()> {
        go_on(self.pid(), None)
    }

    fn own(&mut self) -> Result<&mut Own> {
        self.own.as_mut().context("another has started it")
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.own()?.child.wait()?)
    }

    /// Traces all threads of the running program.
    pub fn trace(&mut self) -> Result<()> {
        for thread in self.threads()? {
            ptrace::seize(thread, options())?;
        }
        self.traced = true;
        Ok(())
    }

    fn threads(&self) -> Result<Vec<Pid>> {
        let list = std::fs::read_dir(format!("/proc/{}/task", self.id))?;
        let ids = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Ok(ids.map(Pid::from_raw).collect())
    }

    /// Lets all threads go.
    pub fn let_go(&mut self) -> Result<()> {
        for thread in self.threads()? {
            // One that ends meanwhile is gone.
            if ptrace::interrupt(thread).is_ok() {
                waitpid(thread, Some(WaitPidFlag::__WALL))?;
                ptrace::detach(thread, None)?;
            }
        }
        self.traced = false;
        Ok(())
    }

    /// Ends what this program has started, if it has not ended yet.
    pub fn kill(&mut self) {
        if let (Some(own), None) = (&mut self.own, &self.ended) {
            let _ = own.child.kill();
            // The leader's end is told when all traced threads have been waited for.
            while waitpid(None::<Pid>, Some(WaitPidFlag::__WALL)).is_ok() {}
            self.ended = Some("killed".to_owned());
        }
    }

    pub fn say(&mut self, line: &str) -> Result<()> {
        let say = self.own()?.child.stdin.as_mut();
        let say = say.context("it has an input")?;
        Ok(writeln!(say, "{line}")?)
    }

    /// Its next line, if it has said one.
    pub fn line(&mut self) -> Result<Option<String>> {
        let pause = Duration::from_millis(2);
        if let Some(Own { hear, .. }) = &self.own {
            let mut wanted = [PollFd::new(hear, PollFlags::IN)];
            poll(&mut wanted, Some(&Timespec::try_from(pause)?))?;
            if wanted[0].revents().contains(PollFlags::IN) {
                let mut bytes = [0; 4096];
                let count = rustix::io::read(hear, &mut bytes)?;
                self.heard.extend_from_slice(&bytes[..count]);
            }
        } else {
            std::thread::sleep(pause);
        }
        let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }

    /// Waits for its next line; nobody debugs it meanwhile.
    pub fn wait_line(&mut self) -> Result<String> {
        let begin = Instant::now();
        loop {
            if let Some(line) = self.line()? {
                return Ok(line);
            }
            ensure!(begin.elapsed() < PATIENCE, "the program says nothing");
        }
    }

    /// Sees to what happened to its threads. Whether anything did.
    pub fn attend(&mut self, library: &Library, process: Option<Process>) -> Result<bool> {
        if !self.traced {
            return Ok(false);
        }
        let any = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        let status = match waitpid(None::<Pid>, Some(any)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(false),
            other => other?,
        };
        match status {
            WaitStatus::Stopped(thread, Signal::SIGTRAP) => {
                self.at_breakpoint(library, process, thread)?;
            }
            // The kernel's own, of a new thread.
            WaitStatus::Stopped(thread, Signal::SIGSTOP) => go_on(thread, None)?,
            WaitStatus::Stopped(thread, signal) => go_on(thread, Some(signal))?,
            WaitStatus::PtraceEvent(thread, ..) => go_on(thread, None)?,
            WaitStatus::Exited(thread, code) if thread == self.pid() => {
                self.ended = Some(format!("exit {code}"));
            }
            WaitStatus::Signaled(thread, signal, _) if thread == self.pid() => {
                self.ended = Some(format!("killed by {signal}"));
            }
            _ => {}
        }
        Ok(true)
    }

    /// A thread that came to a breakpoint of the library's goes past it when the library says so:
    /// at once, or by an event later.
    fn at_breakpoint(
        &self,
        library: &Library,
        process: Option<Process>,
        thread: Pid,
    ) -> Result<()> {
        let known = Breakpoint::at(self.id, ptrace::getregs(thread)?.rip - 1);
        let (Some((id, _)), Some(_)) = (known, process) else {
            // The stop after exec, or a trap of the program's own.
            return go_on(thread, None);
        };
        if library.breakpoint_hit(id, thread.as_raw() as u32)? {
            self.go_past(thread)?;
        }
        Ok(())
    }

    /// Has a thread at a breakpoint execute what should be there, and go on.
    pub fn go_past(&self, thread: Pid) -> Result<()> {
        let mut registers = ptrace::getregs(thread)?;
        registers.rip -= 1;
        ptrace::setregs(thread, registers)?;
        if let Some((_, breakpoint)) = Breakpoint::at(self.id, registers.rip) {
            breakpoint.set(false)?;
            ptrace::step(thread, None)?;
            waitpid(thread, Some(WaitPidFlag::__WALL))?;
            breakpoint.set(true)?;
        }
        // The library may have taken it away meanwhile.
        go_on(thread, None)
    }
}

/// A thread that is killed at the same time is gone.
fn go_on(thread: Pid, signal: Option<Signal>) -> Result<()> {
    match ptrace::cont(thread, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno).context("PTRACE_CONT"),
    }
}

impl Drop for Inferior {
    fn drop(&mut self) {
        self.kill();
    }
}
