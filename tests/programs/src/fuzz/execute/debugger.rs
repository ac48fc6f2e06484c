// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Words of a program that are about debugging: who traces whom, and who looks after it.
//!
//! A process's lines run in threads of their own; what others trace is the thread that waits for
//! these. So a trace keeps no line from being run: it keeps the process from ending, as long as its
//! tracer does not let a stop go on. A thread does so between its lines, and its end is the end of
//! its traces.

use super::super::shared::Shared;
use super::{Thread, World, MOMENT};
use kfd_uapi as uapi;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a call of the process's may wait for a debugger, which may be this process itself.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at that.
const PAUSE: Duration = Duration::from_millis(25);

/// Calls that wait for a debugger as long as there is one.
const WAITING: &[&str] = &["RUNTIME_ENABLE", "DESTROY_QUEUE"];

/// How many calls of a process have begun and ended that may wait for its debugger.
#[derive(Default)]
pub struct Waits {
    begun: AtomicU32,
    ended: AtomicU32,
    /// All lines are over.
    over: AtomicBool,
}

impl Waits {
    /// Around a call of that name.
    pub fn during<T>(&self, call: &str, act: impl FnOnce() -> T) -> T {
        if !WAITING.contains(&call) {
            return act();
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        let outcome = act();
        self.ended.fetch_add(1, Ordering::Relaxed);
        outcome
    }

    /// No line is left.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// How many have ended, if more have begun.
    fn waits(&self) -> Option<u32> {
        let ended = self.ended.load(Ordering::Relaxed);
        (self.begun.load(Ordering::Relaxed) != ended).then_some(ended)
    }
}

impl World<'_> {
    /// Ends the process's session when a call waits too long for its debugger, which may be this
    /// process itself, and until no line is left.
    pub fn attend(&self) {
        let mut since: Option<(u32, Instant)> = None;
        while !self.waits.over.load(Ordering::Relaxed) {
            since = match (self.waits.waits(), since) {
                (Some(ended), Some((before, begin))) if ended == before => {
                    if begin.elapsed() > PATIENCE {
                        self.end_own_session();
                    }
                    Some((before, begin))
                }
                (Some(ended), _) => Some((ended, Instant::now())),
                (None, _) => None,
            };
            std::thread::sleep(PAUSE);
        }
    }

    fn end_own_session(&self) {
        let pid = std::process::id();
        let mut args = uapi::kfd_ioctl_dbg_trap_args {
            pid,
            op: uapi::KFD_IOC_DBG_TRAP_DISABLE,
            ..Default::default()
        };
        self.shared.turns(pid).begin();
        // SAFETY: the argument is the call's own.
        unsafe { libc::ioctl(self.kfd(), uapi::IOC_DBG_TRAP.into(), &mut args) };
    }

    /// `$pid3`: the id of process 3 of the program, which may be about to be made.
    pub fn pid(&self, number: usize) -> u64 {
        let end = Instant::now() + MOMENT;
        loop {
            let pid = self.shared.pid(number);
            if pid != 0 || Instant::now() > end {
                return pid.into();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Thread<'_> {
    /// TRACE: from now on this thread traces the leader of a process.
    pub fn trace(&mut self, number: usize) {
        let pid = Pid::from_raw(self.world.pid(number) as i32);
        let traced = ptrace::seize(pid, ptrace::Options::empty()).is_ok();
        self.world.shared.tally.count("TRACE", traced);
        if traced {
            self.traces.push(pid);
        }
    }

    /// UNTRACE: no more. Only what stands can be let go.
    pub fn untrace(&mut self, number: usize) {
        let pid = Pid::from_raw(self.world.pid(number) as i32);
        if !self.traces.contains(&pid) || ptrace::interrupt(pid).is_err() {
            return;
        }
        let end = Instant::now() + MOMENT;
        while self.traces.contains(&pid) && Instant::now() < end {
            self.attend_to(pid, |pid| ptrace::detach(pid, None).is_ok());
            std::thread::sleep(Duration::from_millis(1));
        }
        let gone = !self.traces.contains(&pid);
        self.world.shared.tally.count("UNTRACE", gone);
    }

    /// Whether this thread traces the process with that id.
    pub fn traces(&self, pid: u32) -> bool {
        self.traces
            .iter()
            .any(|traced| traced.as_raw() as u32 == pid)
    }

    /// Lets go on what has stopped, with the signal that it stopped for.
    pub fn attend_traces(&mut self) {
        for pid in self.traces.clone() {
            self.attend_to(pid, |_| false);
        }
    }

    /// The same for one process; `let_go` may end the trace of one that stands.
    fn attend_to(&mut self, pid: Pid, let_go: impl FnOnce(Pid) -> bool) {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        let gone = match waitpid(pid, Some(flags)) {
            Ok(WaitStatus::Stopped(_, signal)) => {
                let gone = let_go(pid);
                if !gone {
                    // It may have been killed meanwhile.
                    let _ = ptrace::cont(pid, Some(signal));
                }
                gone
            }
            Ok(WaitStatus::PtraceEvent(..)) => {
                let gone = let_go(pid);
                if !gone {
                    let _ = ptrace::cont(pid, None);
                }
                gone
            }
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => true,
            _ => false,
        };
        if gone {
            self.traces.retain(|traced| *traced != pid);
        }
    }
}

/// Lets others of the same user trace this process, which a change of users has ended.
pub fn may_be_traced() {
    // SAFETY: it changes a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
}

/// What the processes of a round know of each other's sessions.
#[derive(Default)]
pub struct Turns(AtomicU32);

impl Turns {
    /// A call that may begin or end a session of the process is about to be made.
    pub fn begin(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How many have begun.
    pub fn begun(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// What is known of the sessions of the process with that id; of others, of nobody.
    pub fn turns(&self, pid: u32) -> &Turns {
        let pids = &self.processes.pids;
        let at = pids.iter().position(|it| it.load(Ordering::Relaxed) == pid);
        &self.processes.turns[at.unwrap_or(pids.len())]
    }
}
