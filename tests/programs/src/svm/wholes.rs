// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Large pages that go to VRAM and come home while others give them up, touch them, and have
//! children who end with them. What they are mapped by is looked at under no lock of those who move
//! them but the page tables'.

use super::attribute::parse;
use super::interpreter::SET;
use super::pieces::{huge, large_in_vram};
use super::world::{roam, World, BASE, LARGE, PAGE};
use crate::fuzz::Random;
use anyhow::{ensure, Context, Result};
use nix::libc;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Large pages that all of them use.
const COUNT: u64 = 3;
const SIZE: u64 = COUNT * LARGE;
const PAGES: usize = (SIZE / PAGE) as usize;
/// One that is mapped anew and moved, and where to.
const OWN: u64 = BASE + 16 * LARGE;
const AWAY: u64 = OWN + 16 * LARGE;
/// How long the threads are at work each time.
const ROUND: Duration = Duration::from_millis(500);
/// Who takes memory away lets others go on.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether it came to anything.
type Step = fn(&World, &mut Random) -> Result<bool>;

fn one(random: &mut Random) -> u64 {
    BASE + random.below(COUNT as usize) as u64 * LARGE
}

fn prefetch(world: &World, start: u64, to: &str) -> Result<bool> {
    let mut both = [parse("access=G0", &world.gpus)?, parse(to, &world.gpus)?];
    match world.svm(SET, [start, LARGE], [2, 24 + 16], &mut both) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::BUSY | Errno::FAULT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn move_it(world: &World, random: &mut Random) -> Result<bool> {
    let start = one(random);
    Ok(prefetch(world, start, "fetch=G0")? && prefetch(world, start, "fetch=cpu")?)
}

/// The whole: what is in the page directory goes.
fn give_up(world: &World, random: &mut Random) -> Result<bool> {
    sleep(PAUSE);
    world.advise(one(random), LARGE, "dontneed")??;
    Ok(true)
}

/// Each word is zero or its page's number.
fn touch(world: &World, random: &mut Random) -> Result<bool> {
    let page = random.below(PAGES);
    let address = BASE + page as u64 * PAGE;
    let (word, number) = (world.word(address), 1 + page as u32);
    ensure!(word == 0 || word == number, "page {page} has {word:#x}");
    if random.below(2) == 0 {
        world.store(address, number);
    }
    Ok(true)
}

/// A child has all of it, and gives it up where it is.
fn have_child(_: &World, _: &mut Random) -> Result<bool> {
    sleep(10 * PAUSE);
    // SAFETY: the child allocates nothing and takes no lock.
    match unsafe { libc::fork() } {
        // SAFETY: it ends, with its copy of the area.
        0 => unsafe {
            libc::madvise(BASE as *mut _, SIZE as usize / 2, libc::MADV_DONTNEED);
            libc::_exit(0)
        },
        child => {
            let mut status = 0;
            // SAFETY: `status` is ours.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            ensure!(
                child > 0 && waited == child && status == 0,
                "the child {child}: {status:#x}"
            );
            Ok(true)
        }
    }
}

/// One of its own is mapped, moved to another place while in VRAM, and unmapped.
fn remap(world: &World, _: &mut Random) -> Result<bool> {
    world.map(OWN, LARGE, "rw", "private")??;
    world.advise(OWN, LARGE, "hugepage")??;
    world.store(OWN, 77);
    world.store(OWN + LARGE - PAGE, 78);
    let went = prefetch(world, OWN, "fetch=G0")?;
    world.remap(OWN, LARGE, AWAY, LARGE, false)?;
    let words = [world.word(AWAY), world.word(AWAY + LARGE - PAGE)];
    ensure!(words == [77, 78], "what was moved has {words:?}");
    world.unmap(AWAY, LARGE)?;
    Ok(went)
}

const STEPS: [(&str, Step); 6] = [
    ("move", move_it),
    ("move beside it", move_it),
    ("give up", give_up),
    ("touch", touch),
    ("have a child", have_child),
    ("remap", remap),
];

/// All of it is large pages, in system memory.
fn begin(world: &mut World) -> Result<()> {
    world.clear()?;
    world.map(BASE, SIZE, "rw", "private")??;
    world.advise(BASE, SIZE, "hugepage")??;
    for page in 0..PAGES {
        world.store(BASE + page as u64 * PAGE, 1 + page as u32);
    }
    Ok(())
}

/// Does that so many times, each time with new large pages.
pub fn run(xnack: bool, seed: u64, rounds: u32) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    roam();
    let counts = [const { AtomicU32::new(0) }; STEPS.len()];
    let (mut went, mut came) = (0, 0);
    for round in 0..rounds {
        begin(&mut world)?;
        let held = huge()?;
        for place in 0..COUNT {
            prefetch(&world, BASE + place * LARGE, "fetch=G0")?;
        }
        // A page of VRAM that was freed twice is nobody's and in use: none goes there any more.
        let there = large_in_vram()?;
        ensure!(
            there >= held,
            "of {held} large pages {there} go to VRAM in round {round}"
        );
        went += there;
        for place in 0..COUNT {
            prefetch(&world, BASE + place * LARGE, "fetch=cpu")?;
        }
        came += huge()? - large_in_vram()?;
        let over = AtomicBool::new(false);
        scope(|scope| -> Result<()> {
            let (world, over, counts) = (&world, &over, &counts);
            let work = |number: usize| -> Result<()> {
                roam();
                let mut random = Random::new(seed + u64::from(round) * 100 + number as u64);
                while !over.load(Relaxed) {
                    if (STEPS[number].1)(world, &mut random)? {
                        counts[number].fetch_add(1, Relaxed);
                    }
                }
                Ok(())
            };
            let threads: Vec<_> = (0..STEPS.len())
                .map(|number| scope.spawn(move || work(number).context(STEPS[number].0)))
                .collect();
            sleep(ROUND);
            over.store(true, Relaxed);
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a thread"))
        })?;
    }
    world.clear()?;
    for ((name, _), count) in STEPS.iter().zip(&counts) {
        let count = count.load(Relaxed);
        ensure!(count > 0, "{name} has never come to anything");
        println!("{name}: {count}");
    }
    let all = u64::from(rounds) * COUNT;
    println!("large pages that went, and came: {went}, {came} of {all}");
    ensure!(went > 0, "no large page was made");
    ensure!(came > 0, "none has come home as one");
    Ok(())
}
