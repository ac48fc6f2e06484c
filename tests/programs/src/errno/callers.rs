// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cases of who calls: another process than the opener, its tracer, one without rights.

use super::{another_process, cookie, doorbells, map, show, succeeds};
use crate::bench::Bench;
use crate::raw::{self, ioctl};
use anyhow::Result;
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use nix::sys::ptrace;
use nix::unistd::{getppid, setuid, Uid};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{major, makedev, mknodat, open, stat, unlink, FileType, Mode, OFlags, CWD};
use std::os::unix::process::CommandExt;
use std::process::Command;

// Of linux/capability.h.
const CAP_PERFMON: i32 = 38;
const CAP_CHECKPOINT_RESTORE: i32 = 40;

/// `nobody`.
const NOBODY: Uid = Uid::from_raw(65534);

pub(super) fn openers(bench: &Bench) -> Result<()> {
    for (case, flags) in [
        ("read only", OFlags::RDONLY),
        ("write only", OFlags::WRONLY),
    ] {
        let outcome = open("/dev/kfd", flags, Mode::empty());
        show(
            &format!("open {case}"),
            outcome.as_ref().map(drop).map_err(|errno| *errno),
        );
        if let Ok(fd) = outcome {
            show(
                &format!("GET_VERSION on a file {case}"),
                ioctl(&fd, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
            );
        }
    }
    if raw::has_compat() {
        let outcome = raw::open_compat("/dev/kfd").map(drop);
        show("open by a 32-bit program", outcome);
    } else {
        println!("open by a 32-bit program: this kernel runs none");
    }
    other_minors()?;
    // Another process that holds the same file: it is not the opener.
    let inherited = rustix::io::dup(bench.kfd())?;
    another_process(&[
        "not-opener".into(),
        inherited.as_raw_fd().to_string(),
        bench.gpu_id().to_string(),
    ])?;
    another_process(&["before-exec".into(), bench.gpu_id().to_string()])?;
    another_process(&["without-rights".into()])?;
    with_one_right()
}

/// Of the rights to count performance and to checkpoint the general one, CAP_SYS_ADMIN, is enough.
fn with_one_right() -> Result<()> {
    let mut again = Command::new(std::env::current_exe()?);
    again.args(["without-rights", "--general"]);
    let drop_special = || {
        for right in [CAP_PERFMON, CAP_CHECKPOINT_RESTORE] {
            // SAFETY: it takes numbers.
            if unsafe { nix::libc::prctl(nix::libc::PR_CAPBSET_DROP, right) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: after the fork only system calls are made.
    succeeds(unsafe { again.pre_exec(drop_special) })
}

/// Device nodes of KFD's major number that are not `/dev/kfd`.
fn other_minors() -> Result<()> {
    let number = major(stat("/dev/kfd")?.st_rdev);
    let path = "/dev/kfd-of-a-test";
    for minor in [1, 255, 256] {
        let node = makedev(number, minor);
        mknodat(CWD, path, FileType::CharacterDevice, Mode::RWXU, node)?;
        let outcome = open(path, OFlags::RDWR, Mode::empty());
        unlink(path)?;
        show(&format!("open minor {minor}"), outcome.map(drop));
    }
    Ok(())
}

/// What a process sees on a file that its parent opened and passed on.
pub fn not_opener(fd: i32, gpu_id: u32) -> Result<()> {
    // SAFETY: the parent left it open for this process; if not, the calls say EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    show(
        "GET_VERSION by a child",
        ioctl(fd, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
    );
    show(
        "unknown ioctl by a child",
        ioctl(
            fd,
            raw::renumbered(uapi::IOC_GET_VERSION, 0x77),
            &mut [0u64; 2],
        ),
    );
    show(
        "mmap of doorbells by a child",
        map(fd, doorbells(gpu_id), 8192),
    );
    // Checkpoints are what a tracer may make; this is a step of one that nobody knows: the first
    // one that there is would stop the queues.
    let checkpoint = |case: &str| {
        let mut args = uapi::kfd_ioctl_criu_args {
            op: 77,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_CRIU_OP, &mut args);
        show(&format!("CRIU_OP that nobody knows, {case}"), outcome);
    };
    checkpoint("by a child");
    ptrace::seize(getppid(), ptrace::Options::empty())?;
    checkpoint("by a tracer");
    show(
        "GET_VERSION by a tracer",
        ioctl(fd, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
    );
    setuid(NOBODY)?;
    checkpoint("by a tracer without rights");
    Ok(())
}

/// Opens the device, and becomes another program that has the file.
pub fn before_exec(gpu_id: u32) -> Result<()> {
    // Not closed by execve.
    let file = open("/dev/kfd", OFlags::RDWR, Mode::empty())?;
    let mut program = Command::new(std::env::current_exe()?);
    program.args([
        "after-exec",
        &file.as_raw_fd().to_string(),
        &gpu_id.to_string(),
    ]);
    Err(program.exec().into())
}

/// What a program sees on the file that the one before it opened.
pub fn after_exec(fd: i32, gpu_id: u32) -> Result<()> {
    // SAFETY: the program before left it open; if not, the calls say EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    show(
        "GET_VERSION after execve",
        ioctl(fd, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
    );
    show(
        "mmap of MMIO after execve",
        map(fd, cookie(0, gpu_id), 4096),
    );
    Ok(())
}

/// What a process may that is nobody's, or one that has the general right only.
pub fn without_rights(general: bool) -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, &topology::gpus()?[0])?;
    if !general {
        setuid(NOBODY)?;
    }
    let who = if general {
        "with the general right"
    } else {
        "without rights"
    };
    let mut counters = [0u32; 32];
    counters[1] = device.node().gpu_id;
    counters[2] = 1;
    show(
        &format!("PROFILER counters {who}"),
        ioctl(kfd.as_fd(), uapi::IOC_PROFILER, &mut counters),
    );
    // Given back at once, if it has them: C locks itself out when who has them ends while others
    // have queues.
    counters[2] = 0;
    let _ = ioctl(kfd.as_fd(), uapi::IOC_PROFILER, &mut counters);
    let mut checkpoint = uapi::kfd_ioctl_criu_args {
        op: 77,
        ..Default::default()
    };
    show(
        &format!("CRIU_OP that nobody knows, {who}"),
        ioctl(kfd.as_fd(), uapi::IOC_CRIU_OP, &mut checkpoint),
    );
    Ok(())
}
