// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A prefetch of pages that a child has as well, in a mapping that is mergeable while ours is not.
//! KSM makes the second of two equal pages that it meets the merged one where it is: ours, too.

use super::merged::{self, ask, away, is_merged, prefetch, scan, until_shared, PATIENCE};
use super::world::{World, BASE, LARGE, PAGE};
use anyhow::{ensure, Result};
use nix::libc;
use nix::sys::signal::{kill, raise, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{alarm, fork, ForkResult, Pid};
use std::fs;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is prefetched, and below it pages of the same contents. What [`scan`] maps is between.
const PAGES: u64 = BASE + 2 * LARGE;
const TWINS: u64 = BASE;
const SMALL: u64 = 64;
const WHOLE: u64 = LARGE / PAGE;
/// How long a notifier takes, and after how much of that something else happens.
const SLOW: &str = "5000";
const MEANWHILE: Duration = Duration::from_secs(1);

/// When KSM merges.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Before.
    Before,
    /// Between the look at the pages and their collection.
    Between,
    /// It is about to: it has its lock, and waits for the child's address space.
    Waits,
}

fn word(page: u64) -> u32 {
    1000 + page as u32
}

/// Whether all are as they were.
fn are_right(world: &World, pages: u64) -> bool {
    let is_right = |page| {
        let at = |start| world.word(start + page * PAGE);
        at(TWINS) == word(page) && at(PAGES) == word(page)
    };
    (0..pages).all(is_right)
}

/// The next collection of this process's pages, or change of what may be done with them, takes a
/// while as long as the file is open.
fn slow_down() -> Result<fs::File> {
    let path = "/sys/kernel/debug/slow_notifier";
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(SLOW.as_bytes())?;
    Ok(file)
}

/// The child: stops when its pages are mergeable, once more when it has done its part, and looks at
/// its pages in the end.
fn be_child(world: &World, stage: Stage, pages: u64) -> Result<bool> {
    for start in [TWINS, PAGES] {
        world.advise(start, pages * PAGE, "mergeable")??;
    }
    raise(Signal::SIGSTOP)?;
    match stage {
        Stage::Before => {}
        Stage::Between => {
            sleep(MEANWHILE);
            let begin = Instant::now();
            ask("run", 1)?;
            println!("KSM had to wait: {}", begin.elapsed() > MEANWHILE);
            raise(Signal::SIGSTOP)?;
        }
        Stage::Waits => {
            let _slow = slow_down()?;
            world.protect(TWINS, pages * PAGE, "r")?;
            raise(Signal::SIGSTOP)?;
        }
    }
    alarm::set(PATIENCE.as_secs() as u32);
    Ok(are_right(world, pages))
}

fn until_stopped(child: Pid) -> Result<()> {
    let status = waitpid(child, Some(WaitPidFlag::WUNTRACED))?;
    let stopped = WaitStatus::Stopped(child, Signal::SIGSTOP);
    ensure!(status == stopped, "the child: {status:?}");
    Ok(())
}

/// Prefetches, with the child beside it.
fn with_child(world: &World, stage: Stage, child: Pid, pages: u64) -> Result<()> {
    merged::hasten()?;
    match stage {
        Stage::Before => {
            ensure!(until_shared(pages)?, "the kernel merges nothing");
            for page in 0..pages {
                ensure!(is_merged(PAGES + page * PAGE)?, "page {page} is not merged");
            }
            prefetch(world, PAGES, pages)
        }
        Stage::Between => {
            let _slow = slow_down()?;
            kill(child, Signal::SIGCONT)?;
            // Without a second thread: KSM would wait for one that waits for the address space.
            prefetch(world, PAGES, pages)?;
            until_stopped(child)
        }
        Stage::Waits => {
            kill(child, Signal::SIGCONT)?;
            sleep(MEANWHILE);
            ask("run", 1)?;
            sleep(MEANWHILE);
            prefetch(world, PAGES, pages)?;
            let now = waitpid(child, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG))?;
            ensure!(now == WaitStatus::StillAlive, "the child goes on: {now:?}");
            until_stopped(child)
        }
    }
}

fn scene(world: &mut World, stage: Stage, pages: u64) -> Result<()> {
    world.clear()?;
    ask("run", 2)?;
    for (start, is_large) in [(TWINS, false), (PAGES, pages == WHOLE)] {
        world.map(start, pages * PAGE, "rw", "private")??;
        let advice = if is_large { "hugepage" } else { "nohugepage" };
        world.advise(start, pages * PAGE, advice)??;
        for page in 0..pages {
            world.store(start + page * PAGE, word(page));
        }
    }
    // SAFETY: there is no other thread.
    let child = match unsafe { fork()? } {
        ForkResult::Child => {
            let status = match be_child(world, stage, pages) {
                Ok(true) => 0,
                _ => 1,
            };
            // SAFETY: nothing of the parent's is dropped.
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => child,
    };
    until_stopped(child)?;
    with_child(world, stage, child, pages)?;
    let (own, its) = (away("self", PAGES, pages)?, away(child, PAGES, pages)?);
    println!("{stage:?}: of {pages} pages {own} went, of the child's {its}");
    scan(world)?;
    alarm::set(PATIENCE.as_secs() as u32);
    ensure!(are_right(world, pages), "pages are not as they were");
    kill(child, Signal::SIGCONT)?;
    let status = waitpid(child, None)?;
    let ended = WaitStatus::Exited(child, 0);
    ensure!(status == ended, "the child: {status:?}");
    ask("run", 2)?;
    alarm::cancel();
    Ok(())
}

/// Does that, in each stage. Ends by SIGALRM if pages cannot be read.
pub fn run(xnack: bool) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    for (stage, pages) in [
        (Stage::Before, SMALL),
        (Stage::Between, SMALL),
        (Stage::Between, WHOLE),
        (Stage::Waits, SMALL),
        (Stage::Waits, WHOLE),
    ] {
        scene(&mut world, stage, pages)?;
    }
    Ok(())
}
