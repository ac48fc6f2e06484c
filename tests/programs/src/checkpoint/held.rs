// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! RESUME of a process while somebody has the lock of all its buffers, as a thread of its that
//! waits for a program may (hold_info.ko), and what goes of its memory before that.

use crate::pressure::told;
use crate::running::PATIENCE;
use crate::svm::supply;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, SmiEvent};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd};
use rustix::mm::{madvise, Advice};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Of hold_info.ko.
const HOLD_INFO: &str = "/sys/kernel/debug/hold_info";

/// What must not come has this long to do so.
const DOES_NOT: Duration = Duration::from_millis(300);
/// What must come back beside the lock, which is held for a minute, has this long to do so, its own
/// start being in it.
const COMES_BACK: Duration = Duration::from_secs(20);

/// A thread that holds the lock until this is let go.
struct Held(JoinHandle<std::io::Result<()>>);

impl Held {
    /// `render` is the file of one of the process's VMs.
    fn start(render: &impl AsFd) -> Result<Self> {
        let text = render.as_fd().as_raw_fd().to_string();
        let thread = std::thread::spawn(move || std::fs::write(HOLD_INFO, text));
        std::thread::sleep(DOES_NOT);
        if thread.is_finished() {
            thread.join().map_err(|_| anyhow::anyhow!("panic"))??;
            anyhow::bail!("nothing is held");
        }
        Ok(Self(thread))
    }

    fn let_go(self) -> Result<()> {
        std::fs::write(HOLD_INFO, "-1")?;
        let outcome = self.0.join();
        Ok(outcome.map_err(|_| anyhow::anyhow!("a thread failed"))??)
    }
}

/// Another process that asks for RESUME of this one, and says so by how it ends.
fn resume_from_beside() -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["checkpoint", "resume"]);
    command.arg(std::process::id().to_string());
    Ok(command.spawn()?)
}

/// Whether it ends in time.
fn ends(child: &mut Child, patience: Duration) -> Result<bool> {
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > patience {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// It does not wait, but for that what `word` counts stands still. Then that goes on.
pub fn waits_not(render: &impl AsFd, word: &AtomicU32) -> Result<()> {
    let held = Held::start(render)?;
    let mut beside = resume_from_beside()?;
    let ended = ends(&mut beside, COMES_BACK)?;
    let before = word.load(Ordering::Relaxed);
    std::thread::sleep(DOES_NOT);
    let after = word.load(Ordering::Relaxed);
    held.let_go()?;
    ensure!(ended, "RESUME waits for the lock");
    let code = beside.wait()?.code();
    ensure!(code == Some(0), "it came to {code:?}");
    ensure!(
        before == after,
        "it runs while nobody can look at its memory"
    );
    Ok(())
}

/// A page of the process's own that a GPU knows goes before RESUME: that is an eviction of its own.
pub fn goes(gpu_id: u32, page: u64) -> Result<()> {
    let mut told = told(gpu_id)?;
    // SAFETY: a page of the process's own, of which nobody has a reference.
    unsafe { madvise(page as *mut _, 4096, Advice::LinuxDontNeed)? };
    let trigger = uapi::KFD_QUEUE_EVICTION_TRIGGER_USERPTR.to_string();
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let events = told.read(DOES_NOT)?;
        let is_it = |event: &SmiEvent| {
            event.name == "QUEUE_EVICTION" && event.text.split(' ').next_back() == Some(&trigger)
        };
        if events.iter().any(is_it) {
            return Ok(());
        }
    }
    anyhow::bail!("nobody is told of a page that goes before RESUME")
}

/// While a page of shared virtual memory cannot be had that RESUME has to map, that is refused,
/// each time anew: the queues do not run without. `area` is such memory.
pub fn not_without(kfd: &Arc<Kfd>, area: u64) -> Result<()> {
    const PAGE: usize = 4096;
    // SAFETY: a page of the process's own, of which nobody has a reference.
    unsafe { madvise(area as *mut _, PAGE, Advice::LinuxDontNeed)? };
    let missing = supply::expect([area, PAGE as u64])?;
    for time in ["first", "second"] {
        let came = kfd.resume(std::process::id()).err();
        let errno = came.and_then(|error| error.errno()).map(|it| it.raw());
        ensure!(
            errno == Some(nix::libc::EFAULT),
            "the {time} RESUME came to {errno:?}"
        );
    }
    supply::bring(&missing, area, &[0; PAGE / 4])?;
    Ok(kfd.resume(std::process::id())?)
}

/// Of a process that was not restored it is refused at once.
pub fn not_restored() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("there is no GPU")?)?;
    let held = Held::start(&device.render())?;
    let mut beside = resume_from_beside()?;
    let ended = ends(&mut beside, COMES_BACK)?;
    held.let_go()?;
    ensure!(ended, "RESUME waits for the lock");
    let code = beside.wait()?.code();
    ensure!(code == Some(nix::libc::EINVAL), "it came to {code:?}");
    Ok(())
}

/// RESUME of a process; ends by the errno.
pub fn resume(pid: u32) -> Result<()> {
    let Err(error) = Kfd::open()?.resume(pid) else {
        return Ok(());
    };
    let errno = error.errno().context("no errno")?;
    std::process::exit(errno.raw())
}
