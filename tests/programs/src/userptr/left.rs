// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An address space that its process's leader has left for another program: the kernel stops and
//! resumes the queues of who has the memory, and not those of who has the pid.

use super::Bench;
use crate::waves::Gpu;
use anyhow::{ensure, Result};
use nix::libc::{clone, close, read, CLONE_VM, SIGCHLD};
use nix::sys::wait::{wait, WaitStatus};
use rustix::pipe::{pipe_with, PipeFlags};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the child has.
struct Rest {
    bench: Bench,
    /// Ends when the leader runs another program.
    until: RawFd,
    /// The other end of it, to be closed.
    leaders: RawFd,
}

/// Bytes of the child's stack.
const STACK: usize = 1 << 20;

pub fn to_child() -> Result<()> {
    let (until, leaders): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC)?;
    let rest = Box::leak(Box::new(Rest {
        bench: Bench::new()?,
        until: until.as_raw_fd(),
        leaders: leaders.as_raw_fd(),
    }));
    let stack = vec![0u128; STACK / size_of::<u128>()].leak();
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: The stack and what the child gets are its own for good; until this process runs
    // another program, which leaves the memory to the child, that makes system calls only.
    let child = unsafe {
        clone(
            be_child,
            top.cast(),
            CLONE_VM | SIGCHLD,
            (&raw mut *rest).cast(),
        )
    };
    ensure!(child > 0, "no child: {}", std::io::Error::last_os_error());
    let program = std::env::current_exe()?;
    Err(Command::new(program).args(["userptr", "--heir"]).exec())?
}

extern "C" fn be_child(rest: *mut c_void) -> c_int {
    // SAFETY: See `to_child`, which does not look there any more.
    let rest = unsafe { &*rest.cast::<Rest>() };
    let mut byte = 0u8;
    // SAFETY: Descriptors of this process's own, and a byte to read to.
    unsafe {
        close(rest.leaders);
        read(rest.until, (&raw mut byte).cast(), 1);
    }
    let result = rest.bench.protect_for_a_while();
    // /dev/kfd is not the child's: it looks at what the kernel does, and leaves all to its end.
    if result.is_ok() && rest.bench.ticks() {
        return 0;
    }
    eprintln!("the kernel does not go on: {result:?}");
    1
}

pub fn by_leader() -> Result<()> {
    let _gpu = Gpu::open(4)?;
    let status = wait()?;
    ensure!(
        matches!(status, WaitStatus::Exited(_, 0)),
        "the child: {status:?}"
    );
    Ok(())
}
