// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Programs that open /dev/kfd while another one's end takes a while, and to which something
//! happens meanwhile that no program has to expect from open(): they must get their file.

use crate::closed_evicted::{await_said, HOLD_INFO};
use crate::opener::render_node;
use anyhow::{bail, ensure, Context, Result};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd, Memory};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{kill, sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 5;
/// So long the end of the one before takes from when the opener has begun.
const WAIT: Duration = Duration::from_millis(200);
/// Status of an opener that got its file.
const OPENED: i32 = 200;

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
    let node = topology::gpus()?.into_iter().next().context("no GPU")?;
    for event in [Event::Timer, Event::Stop, Event::Trace] {
        for _ in 0..ROUNDS {
            open_behind_an_end(&node, event).with_context(|| format!("{event:?}"))?;
        }
        println!("{event:?}: {ROUNDS} openers waited and got their file");
    }
    Ok(())
}

/// A process is killed, whose end somebody holds up; an opener waits for it.
fn open_behind_an_end(node: &Node, event: Event) -> Result<()> {
    let render = render_node(node)?;
    let number = render.as_raw_fd().to_string();
    let killed = begin_one(node, render.try_clone()?)?;
    let holder = fork(|| i32::from(fs::write(HOLD_INFO, &number).is_err()))?;
    await_said(&["held"])?;
    kill(killed, Signal::SIGKILL)?;
    await_said(&["waited for"])?;
    let opened = open_disturbed(event);
    if opened.is_err() {
        fs::write(HOLD_INFO, "-1")?;
    }
    waitpid(killed, None)?;
    let held = waitpid(holder, None)?;
    opened?;
    ensure!(
        matches!(held, WaitStatus::Exited(_, 0)),
        "the holder: {held:?}"
    );
    Ok(())
}

/// A process that has memory in the VM of a render node's.
fn begin_one(node: &Node, render: OwnedFd) -> Result<Pid> {
    let (read, write) = rustix::pipe::pipe()?;
    let child = fork(|| {
        let result = hold(node, render);
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
    ensure!(held == [1], "it has no memory");
    Ok(child)
}

fn hold(node: &Node, render: OwnedFd) -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire_by(&kfd, node, render)?;
    std::mem::forget(Memory::gtt(&device, 1 << 20)?);
    Ok(())
}

/// The end goes on some time after the opener has begun, which must have waited for it.
fn open_disturbed(event: Event) -> Result<()> {
    let child = fork(|| open_once(event))?;
    if matches!(event, Event::Trace) {
        ptrace::seize(child, ptrace::Options::empty())?;
    }
    let begin = Instant::now();
    let mut held = true;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL))? {
            WaitStatus::StillAlive => disturb(child, event)?,
            WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..) => ptrace::cont(child, None)?,
            WaitStatus::Exited(_, OPENED) => {
                ensure!(!held, "the opener does not wait");
                return Ok(());
            }
            WaitStatus::Exited(_, errno) => bail!("open: {}", Errno::from_raw(errno)),
            other => bail!("an opener: {other:?}"),
        }
        if held && begin.elapsed() >= WAIT {
            fs::write(HOLD_INFO, "-1")?;
            held = false;
        }
        sleep(Duration::from_millis(1));
    }
}

fn disturb(child: Pid, event: Event) -> Result<()> {
    match event {
        Event::Timer => {}
        Event::Stop => {
            kill(child, Signal::SIGSTOP)?;
            sleep(Duration::from_millis(1));
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

/// Opens /dev/kfd as C programs do: in no loop. Returns [`OPENED`], or an errno.
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
    // SAFETY: the path ends with a zero.
    let file = unsafe {
        let (here, flags) = (libc::AT_FDCWD, libc::O_RDWR | libc::O_CLOEXEC);
        libc::syscall(libc::SYS_openat, here, c"/dev/kfd".as_ptr(), flags)
    };
    match file {
        -1 => Errno::last_raw(),
        _ => OPENED,
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
