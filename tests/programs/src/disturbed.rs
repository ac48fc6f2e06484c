// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Programs that open /dev/kfd while another one's end takes a while, and to which something
//! happens meanwhile that no program has to expect from open(): they must get their file.

use anyhow::{bail, ensure, Context, Result};
use kfd::topology;
use kfd::{Device, Kfd, Memory};
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{kill, sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// What the one that ends has. It takes some 0.1 s for a gigabyte.
const BYTES: usize = 768 << 20;
/// The first ones come before the end has begun; no more come when one has waited for it.
const OPENERS: u32 = 100;
const ROUNDS: u32 = 5;
/// Who has waited for an end, not only for a processor.
const A_WHILE: Duration = Duration::from_millis(20);
/// Statuses of an opener that got its file: at once; when it had waited.
const AT_ONCE: i32 = 200;
const WAITED: i32 = 201;

/// What happens to an opener.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A timer of its own, whose handler restarts system calls.
    Timer,
    /// It is stopped, and continued.
    Stop,
    /// A tracer stops it, and lets it go on.
    Trace,
}

pub fn run() -> Result<()> {
    for event in [Event::Timer, Event::Stop, Event::Trace] {
        let mut waited = 0;
        for _ in 0..ROUNDS {
            end_one()?;
            for _ in 0..OPENERS {
                if open_beside(event).with_context(|| format!("{event:?}"))? {
                    waited += 1;
                    break;
                }
            }
        }
        println!("{event:?}: in {waited} of {ROUNDS} rounds an opener waited");
        ensure!(waited > 0, "nobody waited");
    }
    Ok(())
}

/// A process that is killed with memory of the GPU's.
fn end_one() -> Result<()> {
    let (read, write) = rustix::pipe::pipe()?;
    let child = fork(|| {
        let result = hold();
        if let Err(error) = &result {
            println!("{error:#}");
        }
        let _ = rustix::io::write(&write, &[u8::from(result.is_ok())]);
        loop {
            std::thread::park();
        }
    })?;
    let mut held = [0];
    rustix::io::read(&read, &mut held)?;
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    ensure!(held == [1], "it has no memory");
    Ok(())
}

fn hold() -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    std::mem::forget(Memory::gtt(&device, BYTES)?);
    Ok(())
}

/// Whether an opener waited.
fn open_beside(event: Event) -> Result<bool> {
    let child = fork(|| open_once(event))?;
    if matches!(event, Event::Trace) {
        ptrace::seize(child, ptrace::Options::empty())?;
    }
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL))? {
            WaitStatus::StillAlive => disturb(child, event)?,
            WaitStatus::Exited(_, status @ (AT_ONCE | WAITED)) => return Ok(status == WAITED),
            WaitStatus::Exited(_, errno) => bail!("open: {}", nix::Error::from_raw(errno)),
            WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..) => ptrace::cont(child, None)?,
            other => bail!("an opener: {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn disturb(child: Pid, event: Event) -> Result<()> {
    match event {
        Event::Timer => {}
        Event::Stop => {
            kill(child, Signal::SIGSTOP)?;
            std::thread::sleep(Duration::from_millis(1));
            kill(child, Signal::SIGCONT)?;
        }
        // It may have ended.
        Event::Trace => {
            let _ = ptrace::interrupt(child);
        }
    }
    Ok(())
}

extern "C" fn on_alarm(_: libc::c_int) {}

/// Opens /dev/kfd as C programs do: in no loop. Returns a status, or an errno.
fn open_once(event: Event) -> i32 {
    if matches!(event, Event::Timer) {
        let handler = SigHandler::Handler(on_alarm);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        let period = libc::timeval {
            tv_sec: 0,
            tv_usec: 1000,
        };
        let timer = libc::itimerval {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: the handler does nothing; the timer's old value is not asked for.
        unsafe {
            let _ = sigaction(Signal::SIGALRM, &action);
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
    }
    let begin = Instant::now();
    // SAFETY: the path ends with a zero.
    let file = unsafe {
        let (here, flags) = (libc::AT_FDCWD, libc::O_RDWR | libc::O_CLOEXEC);
        libc::syscall(libc::SYS_openat, here, c"/dev/kfd".as_ptr(), flags)
    };
    match file {
        -1 => nix::Error::last_raw(),
        _ if begin.elapsed() < A_WHILE => AT_ONCE,
        _ => WAITED,
    }
}

/// The child ends with the status that is returned to it.
fn fork(child: impl FnOnce() -> i32) -> Result<Pid> {
    // SAFETY: there is no other thread.
    match unsafe { libc::fork() } {
        // SAFETY: as a child ends that runs nothing of its parent's.
        0 => unsafe { libc::_exit(child()) },
        pid => {
            ensure!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            Ok(Pid::from_raw(pid))
        }
    }
}
