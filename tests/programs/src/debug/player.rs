// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process of a case: does what the lines of stdin say, and says what each came to.
//!
//! ```text
//! open, secondary         opens /dev/kfd, or another context of this process
//! trace, attach, detach, interrupt, go PID     ptrace: seize, attach, and so on
//! pass, reap              waits for a traced process: passes a signal on, or sees it end
//! children                makes a child, which sleeps
//! thread                  makes a thread, which sleeps
//! apart STEP              a debugger's step, by a thread that ends then
//! ```
//!
//! More: `session.rs` has a debugger's steps, `target.rs` a debugged process's.

use super::session::Session;
use super::target::Target;
use super::words::Words;
use crate::bench::name;
use anyhow::{anyhow, bail, Context, Result};
use kfd::Kfd;
use nix::sys::ptrace;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::Signal;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

/// What a process of a case has.
#[derive(Default)]
struct Player {
    session: Option<Session>,
    target: Option<Target>,
    kfd: Option<Arc<Kfd>>,
}

pub fn run() -> Result<()> {
    let mut player = Player::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let said = player.step(&Words::of(&line));
        let said = said.unwrap_or_else(|error| format!("error: {error:#}"));
        println!("{said}");
        std::io::stdout().flush()?;
    }
    // Without taking anything back.
    std::process::exit(0)
}

/// What an errno or a success is printed as.
pub fn outcome<T>(result: Result<T, Errno>) -> String {
    match result {
        Ok(_) => "0".into(),
        Err(errno) => name(errno),
    }
}

fn traced(result: nix::Result<()>) -> String {
    outcome(result.map_err(|errno| Errno::from_raw_os_error(errno as i32)))
}

impl Player {
    fn step(&mut self, words: &Words<'_>) -> Result<String> {
        match words.word(0)? {
            "open" => self.open(Kfd::open()?),
            "secondary" => self.open(Kfd::open_secondary()?),
            "trace" | "attach" | "detach" | "interrupt" | "go" => ptraced(words),
            "pass" | "reap" => waited(words),
            "children" => children(),
            "thread" => {
                std::thread::spawn(std::thread::park);
                Ok("0".into())
            }
            "pause" => {
                std::thread::sleep(Duration::from_millis(words.number(1)?));
                Ok("0".into())
            }
            "apart" => {
                let session = self.session.as_mut().context("/dev/kfd is not open")?;
                let rest = words.rest();
                std::thread::scope(|scope| scope.spawn(|| session.step(&rest)).join())
                    .map_err(|_| anyhow!("the thread failed"))?
            }
            verb => {
                let kfd = self.kfd.as_ref().context("/dev/kfd is not open")?;
                if Target::KNOWS.contains(&verb) {
                    let target = self.target.get_or_insert_with(|| Target::new(kfd));
                    return target.step(words);
                }
                let session = self.session.as_mut().context("/dev/kfd is not open")?;
                session.step(words)
            }
        }
    }

    fn open(&mut self, kfd: Arc<Kfd>) -> Result<String> {
        self.session = Some(Session::new(&kfd)?);
        self.kfd = Some(kfd);
        Ok("0".into())
    }
}

fn process(words: &Words<'_>) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(words.number(1)?)?))
}

fn ptraced(words: &Words<'_>) -> Result<String> {
    let pid = process(words)?;
    Ok(traced(match words.word(0)? {
        "trace" => ptrace::seize(pid, ptrace::Options::empty()),
        "attach" => ptrace::attach(pid),
        "interrupt" => ptrace::interrupt(pid),
        "go" => ptrace::cont(pid, None),
        // Only a stopped process can be let go.
        _ => stop(pid).and_then(|()| ptrace::detach(pid, None)),
    }))
}

fn stop(pid: Pid) -> nix::Result<()> {
    ptrace::interrupt(pid)?;
    waitpid(pid, Some(WaitPidFlag::__WALL)).map(drop)
}

/// Waits for a stop or the end of a traced process.
fn waited(words: &Words<'_>) -> Result<String> {
    let pid = process(words)?;
    Ok(match waitpid(pid, Some(WaitPidFlag::__WALL))? {
        WaitStatus::Stopped(_, signal) => {
            // An attach's own is not passed on.
            let passed = Some(signal).filter(|signal| *signal != nix::sys::signal::SIGSTOP);
            ptrace::cont(pid, passed)?;
            format!("{signal}")
        }
        WaitStatus::Exited(_, code) => format!("exit {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("killed by {signal}"),
        WaitStatus::PtraceEvent(..) => {
            ptrace::cont(pid, None)?;
            "event".into()
        }
        other => bail!("{other:?}"),
    })
}

/// A child that keeps copies of the files, and sleeps.
fn children() -> Result<String> {
    // SAFETY: the child makes system calls only.
    match unsafe { nix::unistd::fork()? } {
        nix::unistd::ForkResult::Child => {
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            loop {
                nix::unistd::pause();
            }
        }
        nix::unistd::ForkResult::Parent { .. } => Ok("0".into()),
    }
}
