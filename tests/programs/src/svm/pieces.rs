// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Large pages that are in VRAM and mapped piece by piece: threads give single pages of them up,
//! change what may be done with them, touch them, have them moved and shown to the GPU, and have
//! amdgpu look for them as for a buffer's, all at once.

use super::attribute::parse;
use super::world::{roam, World, BASE, LARGE, PAGE};
use crate::fuzz::Random;
use crate::raw::ioctl;
use anyhow::{ensure, Context, Result};
use rustix::io::Errno;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Large pages.
const COUNT: u64 = 2;
const SIZE: u64 = COUNT * LARGE;
const PAGES: usize = (SIZE / PAGE) as usize;
/// How long the threads are at work each time.
const ROUND: Duration = Duration::from_millis(400);
/// Who takes pages away lets others go on.
const PAUSE: Duration = Duration::from_millis(2);

/// `DRM_IOCTL_AMDGPU_GEM_USERPTR` and its argument.
pub(crate) const USERPTR: u32 = 0xc018_6451;
#[repr(C)]
#[derive(Default)]
pub(crate) struct Userptr {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) handle: u32,
}
/// Only read; looked for at once; for as long as they stay where they are.
const FLAGS: u32 = 1 | 4 | 8;
/// `DRM_IOCTL_GEM_CLOSE`, which takes a handle and nothing.
const CLOSE: u32 = 0x4008_6409;

/// Held for writing while a buffer of the program's memory is closed, for reading while pages of it
/// may go: amdgpu does not exclude one from the other, and corrupts its lists (uapi.md).
static CLOSING: RwLock<()> = RwLock::new(());

fn nobody_closes() -> RwLockReadGuard<'static, ()> {
    CLOSING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it came to anything: pieces of mappings come and go beside it.
type Step = fn(&World, &mut Random) -> Result<bool>;

fn some(random: &mut Random, most: usize) -> [u64; 2] {
    let first = random.below(PAGES);
    let count = (1 + random.below(most)).min(PAGES - first);
    [BASE + first as u64 * PAGE, count as u64 * PAGE]
}

fn give_up(world: &World, random: &mut Random) -> Result<bool> {
    sleep(PAUSE);
    let _beside = nobody_closes();
    let [start, size] = some(random, 4);
    world.advise(start, size, "dontneed")??;
    Ok(true)
}

fn protect(world: &World, random: &mut Random) -> Result<bool> {
    sleep(PAUSE);
    let _beside = nobody_closes();
    let [start, size] = some(random, 64);
    world.protect(start, size, "r")?;
    world.protect(start, size, "rw")?;
    Ok(true)
}

fn touch(world: &World, random: &mut Random) -> Result<bool> {
    let _beside = nobody_closes();
    let page = random.below(PAGES);
    // In the middle of the page: it is zero, and nobody writes there.
    let word = world.word(BASE + page as u64 * PAGE + PAGE / 2);
    ensure!(word == 0, "page {page} has {word:#x} in its middle");
    Ok(true)
}

fn fetch(world: &World, random: &mut Random) -> Result<bool> {
    let to = random.pick(&["fetch=G0", "fetch=G0", "fetch=cpu"]);
    change(world, some(random, PAGES), to)
}

fn show(world: &World, random: &mut Random) -> Result<bool> {
    let access = random.pick(&["access=G0", "inplace=G0", "set=0x8", "clear=0x8"]);
    change(world, some(random, 64), access)
}

fn change(world: &World, range: [u64; 2], attribute: &str) -> Result<bool> {
    let _beside = nobody_closes();
    let mut attribute = [parse(attribute, &world.gpus)?];
    match world.svm(super::interpreter::SET, range, [1, 24 + 8], &mut attribute) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::BUSY | Errno::FAULT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn look(world: &World, random: &mut Random) -> Result<bool> {
    let [address, size] = some(random, 64);
    let mut args = Userptr {
        address,
        size,
        flags: FLAGS,
        handle: 0,
    };
    let file = world.devices[0].render();
    // Pages may be taken away meanwhile, again and again; of two mappings it is refused.
    if ioctl(file, USERPTR, &mut args).is_err() {
        return Ok(false);
    }
    let _alone = CLOSING.write().unwrap_or_else(PoisonError::into_inner);
    ioctl(file, CLOSE, &mut [args.handle, 0])?;
    Ok(true)
}

const STEPS: [(&str, Step); 6] = [
    ("give up", give_up),
    ("protect", protect),
    ("touch", touch),
    ("fetch", fetch),
    ("show", show),
    ("look", look),
];

/// How many large pages this process has, wherever they are.
pub fn huge() -> Result<u64> {
    let smaps = fs::read_to_string("/proc/self/smaps_rollup")?;
    let mut lines = smaps
        .lines()
        .filter_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = lines.next().context("AnonHugePages")?;
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024 / LARGE)
}

/// How many of them are in VRAM: the driver says how many pages are there. This process alone has
/// any.
pub fn large_in_vram() -> Result<u64> {
    let svm = fs::read_to_string("/sys/kernel/debug/amdkfd/svm")?;
    let mut pages = 0;
    for (_, rest) in svm.lines().filter_map(|line| line.split_once(" vram ")) {
        let number = rest.split(' ').next().context("a number")?;
        pages += number.parse::<u64>()?;
    }
    Ok(huge()?.min(pages * PAGE / LARGE))
}

/// Does that so many times, each time with new large pages.
pub fn run(xnack: bool, seed: u64, rounds: u32) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    roam();
    let counts = [const { AtomicU32::new(0) }; STEPS.len()];
    let (mut kept, mut large) = (0, 0);
    for round in 0..rounds {
        world.clear()?;
        world.map(BASE, SIZE, "rw", "private")??;
        world.advise(BASE, SIZE, "hugepage")??;
        for page in 0..PAGES {
            world.poke(BASE + page as u64 * PAGE, 1 + page as u32)?;
        }
        let mut both = [
            parse("access=G0", &world.gpus)?,
            parse("fetch=G0", &world.gpus)?,
        ];
        world.svm(
            super::interpreter::SET,
            [BASE, SIZE],
            [2, 24 + 16],
            &mut both,
        )?;
        large += large_in_vram()?;
        let over = AtomicBool::new(false);
        scope(|scope| -> Result<()> {
            let (world, over, counts) = (&world, &over, &counts);
            let work = |number: usize| {
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
                .map(|number| scope.spawn(move || -> Result<()> { work(number) }))
                .collect();
            sleep(ROUND);
            over.store(true, Relaxed);
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a thread"))
        })?;
        for page in 0..PAGES {
            let word = world.word(BASE + page as u64 * PAGE);
            ensure!(
                word == 0 || word == 1 + page as u32,
                "page {page} has {word:#x} in round {round}"
            );
            kept += u32::from(word != 0);
        }
    }
    world.clear()?;
    for ((name, _), count) in STEPS.iter().zip(&counts) {
        let count = count.load(Relaxed);
        ensure!(count > 0, "{name} has never come to anything");
        println!("{name}: {count}");
    }
    ensure!(large > 0, "no large page was in VRAM");
    println!("large pages: {large} of {}", u64::from(rounds) * COUNT);
    println!("pages that were not given up: {kept}");
    Ok(())
}
