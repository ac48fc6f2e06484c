// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The traced program: started under a system-call filter, so that it stops at the few calls that
//! could concern a KFD and runs at full speed otherwise.

use super::decode::Memory;
use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Stops the caller at: opens, ioctls of type 'K', mmaps of a file.
fn filter() -> Result<BpfProgram> {
    let kfds = Compare::MaskedEq(0xff00);
    let ioctls = Condition::new(1, Length::Dword, kfds, u64::from(b'K') << 8)?;
    let files = Condition::new(4, Length::Dword, Compare::Ne, u32::MAX.into())?;
    let mut calls = BTreeMap::from([
        (libc::SYS_ioctl, vec![Rule::new(vec![ioctls])?]),
        (libc::SYS_mmap, vec![Rule::new(vec![files])?]),
        (libc::SYS_openat, Vec::new()),
        (libc::SYS_openat2, Vec::new()),
    ]);
    #[cfg(target_arch = "x86_64")]
    calls.insert(libc::SYS_open, Vec::new());
    let (stop, pass) = (SeccompAction::Trace(0), SeccompAction::Allow);
    let filter = SeccompFilter::new(calls, pass, stop, std::env::consts::ARCH.try_into()?)?;
    others_pass(filter.try_into()?)
}

/// seccompiler has each call of another architecture, such as i386's, kill the process: that is the
/// third instruction, behind the comparison of the architecture. Such a call may pass here: the
/// KFD refuses 32-bit programs, and what starts them is traced.
fn others_pass(mut program: BpfProgram) -> Result<BpfProgram> {
    let end = program.get_mut(2).context("a filter without a beginning")?;
    ensure!(
        u32::from(end.code) == libc::BPF_RET | libc::BPF_K
            && end.k == libc::SECCOMP_RET_KILL_PROCESS,
        "a filter with another beginning than seccompiler 0.5's"
    );
    end.k = libc::SECCOMP_RET_ALLOW;
    Ok(program)
}

/// Starts `command`, with the signals of `mask` blocked, and traces it. It is stopped at its first
/// instruction, or soon is.
///
/// It is seized, not a child that asks to be traced: so SIGSTOP stops it and SIGCONT lets it go on.
/// Between fork and exec it waits until that is done.
pub fn start(command: &[OsString], mask: SigSet) -> Result<Pid> {
    let (program, arguments) = command.split_first().context("no command to trace")?;
    let name = || program.to_string_lossy().into_owned();
    let filter = filter()?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: between fork and exec only system calls are made, nothing is allocated.
    unsafe { command.pre_exec(move || prepare(&filter, mask, &theirs)) };
    std::thread::scope(|scope| {
        // It returns when the child has become the program, or could not.
        let spawned = scope.spawn(move || {
            let child = command.spawn();
            // Its end of the sockets goes with it: a child that never came says nothing.
            drop(command);
            child
        });
        let mut pid = [0; 4];
        let seized = match ours.read_exact(&mut pid) {
            Ok(()) => {
                let pid = Pid::from_raw(i32::from_ne_bytes(pid));
                ptrace::seize(pid, options())
                    .map(|()| pid)
                    .context("tracing the program")
            }
            Err(_) => Err(anyhow!("it did not start")),
        };
        if seized.is_ok() {
            ours.write_all(&[1])?;
        }
        // A child that has heard nothing by then gives up.
        let _ = ours.shutdown(Shutdown::Write);
        let spawned = spawned.join().map_err(|_| anyhow!("the start panicked"))?;
        match (spawned, seized) {
            (Err(error), Ok(_)) => Err(error).with_context(name),
            (_, seized) => seized.with_context(name),
        }
    })
}

/// In the child: say the pid, wait to be traced, and stop where the filter says.
fn prepare(filter: &BpfProgram, mask: SigSet, mut tracer: &UnixStream) -> std::io::Result<()> {
    mask.thread_set_mask()?;
    tracer.write_all(&std::process::id().to_ne_bytes())?;
    tracer.read_exact(&mut [0])?;
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the program lies in this frame and in a vector; the kernel copies it.
    let install = || unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            mode,
            std::ptr::from_ref(&program),
            0,
            0,
        )
    };
    if install() == 0 {
        return Ok(());
    }
    // Without CAP_SYS_ADMIN a filter is for those only who can't gain rights by exec.
    // SAFETY: no pointers.
    let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if promised == 0 && install() == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

/// What the tracer stops at, and that the program ends with it.
fn options() -> ptrace::Options {
    ptrace::Options::PTRACE_O_TRACESYSGOOD
        | ptrace::Options::PTRACE_O_TRACESECCOMP
        | ptrace::Options::PTRACE_O_TRACECLONE
        | ptrace::Options::PTRACE_O_TRACEFORK
        | ptrace::Options::PTRACE_O_TRACEVFORK
        | ptrace::Options::PTRACE_O_TRACEEXEC
        | ptrace::Options::PTRACE_O_EXITKILL
}

/// The number that a task had before the exec at which it stands: a thread that is not the first
/// gets the leader's then, and nobody hears of its own any more.
pub fn former(task: Pid) -> nix::Result<Pid> {
    ptrace::getevent(task).map(|number| Pid::from_raw(number as i32))
}

/// What became of a task. Signals are numbers: nix's have no real-time ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It enters a call that the filter names.
    Entry,
    /// A call ends that was to be seen to its end.
    CallEnd,
    /// It is another program now.
    Exec,
    /// It stands still until SIGCONT.
    Group,
    /// Something that it need not wait for: its first stop, a clone, SIGCONT.
    Passing,
    /// A signal is about to reach it.
    Signal(i32),
    /// It has exited with this status, or was killed and has what a shell says of that.
    Ended(u8),
}

impl Stop {
    /// The next stop of any task; nothing when there is none left.
    pub fn next() -> Result<Option<(Pid, Self)>> {
        loop {
            let mut status = 0;
            // SAFETY: the pointer is to a local.
            let task = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
            match Errno::result(task) {
                Ok(task) => return Ok(Some((Pid::from_raw(task), Self::of(status)))),
                Err(Errno::ECHILD) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("waiting for the program"),
            }
        }
    }

    /// What a status of `waitpid` says.
    fn of(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Ended(libc::WEXITSTATUS(status) as u8);
        }
        if libc::WIFSIGNALED(status) {
            return Self::Ended(128 + libc::WTERMSIG(status) as u8);
        }
        let signal = libc::WSTOPSIG(status);
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => Self::Entry,
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_STOP if stops.contains(&signal) => Self::Group,
            0 if signal == libc::SIGTRAP | 0x80 => Self::CallEnd,
            0 => Self::Signal(signal),
            _ => Self::Passing,
        }
    }
}

/// How a task goes on.
#[derive(Clone, Copy, Debug)]
pub enum Resume {
    /// To the next call that the filter names.
    Run,
    /// To the end of its call.
    ToCallEnd,
    /// Not at all, but SIGCONT is told.
    Listen,
}

/// Lets a stopped task go on, with a signal or 0.
pub fn resume(task: Pid, how: Resume, signal: i32) -> nix::Result<()> {
    let request = match how {
        Resume::Run => libc::PTRACE_CONT,
        Resume::ToCallEnd => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let signal = libc::c_long::from(signal);
    // SAFETY: none of these requests takes a pointer.
    Errno::result(unsafe { libc::ptrace(request, task.as_raw(), nothing, signal) }).map(drop)
}

/// A system call as it is entered.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its number.
    pub nr: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What the kernel says of the call that `task` is stopped in, on any architecture.
fn call_info(task: Pid) -> nix::Result<libc::ptrace_syscall_info> {
    // SAFETY: it is plain numbers.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    let request = libc::PTRACE_GET_SYSCALL_INFO;
    // SAFETY: the pointer is to as many bytes as are said.
    Errno::result(unsafe { libc::ptrace(request, task.as_raw(), size, &raw mut info) })?;
    Ok(info)
}

/// What `task`, stopped at the entry of a call, calls.
pub fn entry(task: Pid) -> nix::Result<Entry> {
    let info = call_info(task)?;
    if info.op != libc::PTRACE_SYSCALL_INFO_SECCOMP {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `op` says that it is this one.
    let call = unsafe { info.u.seccomp };
    Ok(Entry {
        nr: call.nr as i64,
        arguments: call.args,
    })
}

/// What `task`, stopped at the end of a call, gets: a value, or an errno.
pub fn outcome(task: Pid) -> nix::Result<Result<u64, i32>> {
    let info = call_info(task)?;
    if info.op != libc::PTRACE_SYSCALL_INFO_EXIT {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `op` says that it is this one.
    let end = unsafe { info.u.exit };
    Ok(match end.is_error {
        0 => Ok(end.sval as u64),
        _ => Err(-end.sval as i32),
    })
}

/// A traced process: its memory, its files, and what was seen of it.
#[derive(Debug)]
pub struct Process {
    task: Pid,
    memory: Option<std::fs::File>,
    event_types: RefCell<HashMap<u32, u32>>,
}

impl Process {
    /// The process of `task`.
    pub fn new(task: Pid) -> Self {
        Self {
            task,
            memory: None,
            event_types: RefCell::default(),
        }
    }

    /// Makes sure that memory is read from what the process is now: exec replaces it.
    pub fn refresh(&mut self) {
        self.memory = std::fs::File::open(format!("/proc/{}/mem", self.task)).ok();
    }

    /// Notes that event `id` is of type `kind`.
    pub fn created_event(&self, id: u32, kind: u32) {
        self.event_types.borrow_mut().insert(id, kind);
    }

    /// The text at `address`, up to its end or 4096 bytes.
    pub fn text(&self, address: u64) -> Option<PathBuf> {
        let mut bytes = Vec::new();
        // Not beyond the page: the next may not be there.
        let mut next = address;
        while bytes.len() < 4096 {
            let part = self.read(next, 4096 - (next % 4096) as usize)?;
            let end = part.iter().position(|byte| *byte == 0);
            bytes.extend_from_slice(&part[..end.unwrap_or(part.len())]);
            if end.is_some() {
                break;
            }
            next += part.len() as u64;
        }
        Some(PathBuf::from(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Memory for Process {
    fn read(&self, address: u64, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size];
        self.memory
            .as_ref()?
            .read_exact_at(&mut bytes, address)
            .ok()?;
        Some(bytes)
    }

    fn event_type(&self, id: u32) -> Option<u32> {
        self.event_types.borrow().get(&id).copied()
    }
}

/// The process that `task` is a thread of.
pub fn leader(task: Pid) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    id.and_then(|id| id.trim().parse().ok())
        .map_or(task, Pid::from_raw)
}

/// What descriptor `fd` of `task` is open on.
pub fn path_of(task: Pid, fd: i32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{task}/fd/{fd}")).ok()?;
    let text = link.to_str()?;
    // A driver that has gone and come back leaves files of a device that is deleted.
    Some(text.strip_suffix(" (deleted)").unwrap_or(text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_told_from_each_other() {
        let stopped = |signal: i32, event: i32| Stop::of(0x7f | signal << 8 | event << 16);
        assert_eq!(Stop::of(3 << 8), Stop::Ended(3));
        assert_eq!(Stop::of(libc::SIGKILL), Stop::Ended(137));
        // SIGRTMIN and more, which are no signals to nix.
        assert_eq!(stopped(34, 0), Stop::Signal(34));
        assert_eq!(Stop::of(64), Stop::Ended(192));
        assert_eq!(stopped(libc::SIGSTOP, 0), Stop::Signal(libc::SIGSTOP));
        assert_eq!(stopped(libc::SIGSTOP, libc::PTRACE_EVENT_STOP), Stop::Group);
        assert_eq!(
            stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP),
            Stop::Passing
        );
        assert_eq!(stopped(libc::SIGTRAP | 0x80, 0), Stop::CallEnd);
        assert_eq!(
            stopped(libc::SIGTRAP, libc::PTRACE_EVENT_SECCOMP),
            Stop::Entry
        );
    }
}
