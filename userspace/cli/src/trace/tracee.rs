// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The traced program: started under a system-call filter, so that it stops at the few calls that
//! could concern a KFD and runs at full speed otherwise.

use super::decode::Memory;
use anyhow::{Context, Result};
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// One instruction of a filter (`struct sock_filter`).
const fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
/// `AUDIT_ARCH_X86_64` of `<linux/audit.h>`.
const X86_64: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data`: the call's number, the architecture, an argument's low half.
const NR: u32 = 0;
const ARCH: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// Stops the caller at: opens, ioctls of type 'K', mmaps of a file.
static FILTER: [libc::sock_filter; 15] = [
    op(LOAD, ARCH, 0, 0),
    op(EQUAL, X86_64, 0, 11),
    op(LOAD, NR, 0, 0),
    op(EQUAL, libc::SYS_ioctl as u32, 4, 0),
    op(EQUAL, libc::SYS_mmap as u32, 6, 0),
    op(EQUAL, libc::SYS_openat as u32, 8, 0),
    op(EQUAL, libc::SYS_open as u32, 7, 0),
    op(EQUAL, libc::SYS_openat2 as u32, 6, 5),
    op(LOAD, argument(1), 0, 0),
    op(AND, 0xff00, 0, 0),
    op(EQUAL, (b'K' as u32) << 8, 3, 2),
    op(LOAD, argument(4), 0, 0),
    op(EQUAL, u32::MAX, 0, 1),
    op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    op(RETURN, libc::SECCOMP_RET_TRACE, 0, 0),
];

/// Starts `command`, which is stopped before its first instruction when this returns.
pub fn start(command: &[OsString]) -> Result<Pid> {
    let (program, arguments) = command.split_first().context("no command to trace")?;
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: between fork and exec only system calls are made, nothing is allocated.
    unsafe { command.pre_exec(prepare) };
    let child = command
        .spawn()
        .with_context(|| program.to_string_lossy().into_owned())?;
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

/// In the child: be traced, and stop where [`FILTER`] says.
fn prepare() -> std::io::Result<()> {
    ptrace::traceme()?;
    let program = libc::sock_fprog {
        len: FILTER.len() as u16,
        filter: FILTER.as_ptr().cast_mut(),
    };
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the program lies in this frame and in a static; the kernel copies it.
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
pub fn options() -> ptrace::Options {
    ptrace::Options::PTRACE_O_TRACESYSGOOD
        | ptrace::Options::PTRACE_O_TRACESECCOMP
        | ptrace::Options::PTRACE_O_TRACECLONE
        | ptrace::Options::PTRACE_O_TRACEFORK
        | ptrace::Options::PTRACE_O_TRACEVFORK
        | ptrace::Options::PTRACE_O_TRACEEXEC
        | ptrace::Options::PTRACE_O_EXITKILL
}

/// A system call as it is entered.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its number.
    pub nr: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What `task`, stopped at the entry of a call, calls.
pub fn entry(task: Pid) -> nix::Result<Entry> {
    let registers = ptrace::getregs(task)?;
    Ok(Entry {
        nr: registers.orig_rax as i64,
        arguments: [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ],
    })
}

/// What `task`, stopped at the end of a call, gets: a value, or an errno.
pub fn outcome(task: Pid) -> nix::Result<Result<u64, i32>> {
    let value = ptrace::getregs(task)?.rax;
    // -4095 to -1 are errnos.
    Ok(match value as i64 {
        errno @ -4095..=-1 => Err(-errno as i32),
        _ => Ok(value),
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
