// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Endings`]: signals that would end the tracer, and with it all that it traces and has gathered.
//! They are the program's: the tracer ends when that does.

use super::tracee;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{kill, raise, SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A terminal sends these to the program as well.
const FROM_TERMINALS: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
/// These are passed on, since only the tracer may have got them.
const PASSED_ON: [Signal; 2] = [Signal::SIGHUP, Signal::SIGTERM];
/// Who sends one to the tracer and to its group sends it twice.
const TWICE: Duration = Duration::from_secs(1);

/// Signals that are held back from this process while there is something to trace.
#[derive(Debug)]
pub struct Endings {
    traced: Arc<Mutex<Traced>>,
    /// What was blocked before.
    mask: SigSet,
}

#[derive(Debug, Default)]
struct Traced {
    first: Option<Pid>,
    tasks: BTreeSet<Pid>,
    /// One that came before there was a program.
    early: Option<Signal>,
    /// When one was passed on.
    told: Option<Instant>,
}

impl Endings {
    /// Begins, before there are other threads. What the program is to ignore, since this process
    /// does, stays so.
    pub fn hold() -> std::io::Result<Self> {
        let mut held = SigSet::empty();
        let all = FROM_TERMINALS.into_iter().chain(PASSED_ON);
        all.filter(|signal| !is_ignored(*signal))
            .for_each(|signal| held.add(signal));
        let mask = held.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let traced = Arc::new(Mutex::new(Traced::default()));
        let heard = traced.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || loop {
                match held.wait() {
                    Ok(signal) => lock(&heard).hear(signal),
                    Err(Errno::EINTR) => {}
                    Err(_) => return,
                }
            })?;
        Ok(Self { traced, mask })
    }

    /// What a program that is started is to have blocked: this process has inherited it.
    pub fn mask(&self) -> SigSet {
        self.mask
    }

    /// What has come while there is no program yet: this process is meant.
    pub fn early(&self) -> Option<Signal> {
        lock(&self.traced).early
    }

    /// Ends this process by that signal, or says why it goes on.
    pub fn end_by(self, signal: Signal) -> std::io::Error {
        let unblocked = self.mask.thread_set_mask();
        match unblocked.and_then(|()| raise(signal)) {
            Ok(()) => std::io::Error::other(format!("{signal} does not end it")),
            Err(errno) => errno.into(),
        }
    }

    /// The program is there.
    pub fn began(&self, first: Pid) {
        let mut traced = lock(&self.traced);
        traced.first = Some(first);
        traced.tasks.insert(first);
        if let Some(signal) = traced.early.take() {
            traced.hear(signal);
        }
    }

    /// A task is traced.
    pub fn has(&self, task: Pid) {
        lock(&self.traced).tasks.insert(task);
    }

    /// It has ended.
    pub fn ended(&self, task: Pid) {
        lock(&self.traced).tasks.remove(&task);
    }
}

impl Traced {
    fn hear(&mut self, signal: Signal) {
        let Some(first) = self.first else {
            self.early = Some(signal);
            return;
        };
        if !PASSED_ON.contains(&signal) {
            return;
        }
        match self.told {
            Some(at) if at.elapsed() < TWICE => {}
            // Who says so again wants it to end.
            Some(_) => self.tell(first, Signal::SIGKILL),
            None => {
                self.told = Some(Instant::now());
                self.tell(first, signal);
            }
        }
    }

    /// The program, or what it has left.
    fn tell(&self, first: Pid, signal: Signal) {
        let whom = match self.tasks.contains(&first) {
            true => BTreeSet::from([first]),
            false => self
                .tasks
                .iter()
                .map(|task| tracee::leader(*task))
                .collect(),
        };
        for process in whom {
            // It may have ended: that is what was wanted.
            let _ = kill(process, signal);
        }
    }
}

fn lock(traced: &Mutex<Traced>) -> MutexGuard<'_, Traced> {
    traced.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_ignored(signal: Signal) -> bool {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only asks; the pointer is to a local, of which all bytes are set.
    unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), old.as_mut_ptr()) == 0
            && old.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
