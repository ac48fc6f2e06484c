// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages that the kernel has merged (KSM), and a prefetch of them while it goes on. Device pages
//! must not come into its tree of merged pages: it reads what is there, and forgets who has them.

use super::attribute::parse;
use super::interpreter::SET;
use super::world::{World, BASE, LARGE, PAGE};
use anyhow::{ensure, Context, Result};
use nix::unistd::alarm;
use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Equal pages: those that are prefetched, and as many that are written then.
const PAGES: u64 = 64;
const LATER: u64 = BASE + LARGE;
/// What each begins with.
const WORD: u32 = 77;
/// Enough for all scans, and for who reads the pages.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Scans, in which KSM meets each address, and forgets those that it does not see.
const SCANS: u64 = 10;
const TRIES: u32 = 20;

fn file(name: &str) -> String {
    format!("/sys/kernel/mm/ksm/{name}")
}

pub fn ask(name: &str, value: u64) -> Result<()> {
    fs::write(file(name), value.to_string()).with_context(|| file(name))
}

fn count(name: &str) -> Result<u64> {
    Ok(fs::read_to_string(file(name))?.trim().parse()?)
}

/// Waits until it is so, and says whether it is.
fn awaited(is_so: impl Fn() -> Result<bool>) -> Result<bool> {
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// Has the kernel merge equal pages soon, once it does.
pub fn hasten() -> Result<()> {
    ask("sleep_millisecs", 1)?;
    ask("pages_to_scan", 10000)
}

/// Has the kernel merge equal pages from now on. Whether so many are shared soon.
pub fn until_shared(pages: u64) -> Result<bool> {
    hasten()?;
    ask("run", 1)?;
    awaited(|| Ok(count("pages_sharing")? >= pages))
}

/// Equal pages that may be merged.
fn mergeable(world: &World, start: u64, pages: u64) -> Result<()> {
    world.map(start, pages * PAGE, "rw", "private")??;
    world.advise(start, pages * PAGE, "mergeable")??;
    for page in 0..pages {
        world.store(start + page * PAGE, WORD);
    }
    Ok(())
}

/// Pages that are as they were.
fn with(world: &World, start: u64, pages: u64) -> usize {
    let words = (0..pages).map(|page| world.word(start + page * PAGE));
    words.filter(|it| *it == WORD).count()
}

/// What the pagemap of a process says of pages.
fn entries(process: impl Display, start: u64, pages: u64) -> Result<Vec<u64>> {
    let mut bytes = vec![0; 8 * pages as usize];
    let map = fs::File::open(format!("/proc/{process}/pagemap"))?;
    map.read_exact_at(&mut bytes, start / PAGE * 8)?;
    let words = bytes.chunks_exact(8).map(|it| it.try_into());
    Ok(words
        .map(|it| it.map(u64::from_ne_bytes))
        .collect::<Result<_, _>>()?)
}

/// Pages that the processor has no page for: in VRAM.
pub fn away(process: impl Display, start: u64, pages: u64) -> Result<usize> {
    const PRESENT: u64 = 1 << 63;
    let entries = entries(process, start, pages)?;
    Ok(entries.iter().filter(|it| **it & PRESENT == 0).count())
}

/// Whether a page is one that KSM has merged.
pub fn is_merged(address: u64) -> Result<bool> {
    const KSM: u64 = 1 << 21;
    let number = entries("self", address, 1)?[0] & ((1 << 55) - 1);
    let mut flags = [0; 8];
    fs::File::open("/proc/kpageflags")?.read_exact_at(&mut flags, number * 8)?;
    Ok(u64::from_ne_bytes(flags) & KSM != 0)
}

/// Without access, so that no GPU wants to write, for which the kernel copies what is merged.
pub fn prefetch(world: &World, start: u64, pages: u64) -> Result<()> {
    let mut attributes = [parse("fetch=G0", &world.gpus)?];
    Ok(world.svm(SET, [start, pages * PAGE], [1, 24 + 8], &mut attributes)?)
}

/// Has KSM meet each address some times, beside new equal pages.
pub fn scan(world: &World) -> Result<()> {
    ask("run", 1)?;
    mergeable(world, LATER, PAGES)?;
    let scanned = count("full_scans")?;
    let enough = || Ok(count("full_scans")? >= scanned + SCANS);
    ensure!(awaited(enough)?, "the kernel scans no more");
    Ok(())
}

/// Does that so many times. Ends by SIGALRM if the pages cannot be read.
pub fn run(xnack: bool, rounds: u32) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    let mut out = 0;
    for _ in 0..rounds {
        world.clear()?;
        mergeable(&world, BASE, PAGES)?;
        ensure!(until_shared(PAGES - 1)?, "the kernel merges nothing");
        ensure!(is_merged(BASE)?, "the kernel has merged others");
        prefetch(&world, BASE, PAGES)?;
        out += away("self", BASE, PAGES)?;
        scan(&world)?;
        alarm::set(PATIENCE.as_secs() as u32);
        let equal = with(&world, BASE, PAGES) + with(&world, LATER, PAGES);
        ensure!(equal as u64 == 2 * PAGES, "{equal} pages are as they were");
        // So that none is merged when the next round begins.
        ask("run", 2)?;
        alarm::cancel();
    }
    println!("{rounds} times: {out} pages went");
    Ok(())
}

/// Has the second of two merged pages in the swap, but in its cache as well, while its mapping
/// ceases to be mergeable: what is touched then is a merged page still. Whether it is: not if it
/// was written so soon that nothing was left in the cache.
fn keep_merged(world: &mut World) -> Result<bool> {
    world.clear()?;
    ask("run", 2)?;
    mergeable(world, BASE, 2)?;
    ensure!(until_shared(1)?, "the kernel merges nothing");
    ask("run", 0)?;
    let second = BASE + PAGE;
    // Copied: the second page is the only one that has the merged page, or it would not go.
    world.store(BASE, 1);
    world.advise(second, PAGE, "pageout")??;
    ensure!(
        away("self", second, 1)? == 1,
        "the page does not go to the swap"
    );
    world.advise(BASE, 2 * PAGE, "unmergeable")??;
    let word = world.word(second);
    ensure!(word == WORD, "the page has {word}");
    is_merged(second)
}

/// A prefetch of memory of which each second page is in the swap: how often pages are collected,
/// and how many are in VRAM or in the swap then.
fn halves(world: &mut World) -> Result<(u32, usize)> {
    world.clear()?;
    world.map(BASE, LARGE, "rw", "private")??;
    world.advise(BASE, LARGE, "nohugepage")??;
    let pages = LARGE / PAGE;
    for page in 0..pages {
        world.store(BASE + page * PAGE, WORD);
    }
    let is_out = || {
        for page in (0..pages).step_by(2) {
            world.advise(BASE + page * PAGE, PAGE, "pageout")??;
        }
        Ok(away("self", BASE, pages)? as u64 == pages / 2)
    };
    ensure!(awaited(is_out)?, "pages do not go to the swap");
    let path = "/sys/kernel/debug/slow_notifier";
    let mut file = fs::File::options().read(true).write(true).open(path)?;
    file.write_all(b"0")?;
    prefetch(world, BASE, pages)?;
    let mut times = String::new();
    file.read_to_string(&mut times)?;
    let out = away("self", BASE, pages)?;
    let equal = with(world, BASE, pages);
    ensure!(equal as u64 == pages, "{equal} pages are as they were");
    Ok((times.trim().parse()?, out))
}

/// A prefetch of such a page. Needs a swap whose writes take a moment.
pub fn swapped(xnack: bool) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    let mut tries = 1;
    while !keep_merged(&mut world)? {
        ensure!(tries < TRIES, "nothing stays in the swap's cache");
        tries += 1;
    }
    let second = BASE + PAGE;
    prefetch(&world, BASE, 2)?;
    println!(
        "the first went: {}, the second: {}",
        away("self", BASE, 1)?,
        away("self", second, 1)?
    );
    scan(&world)?;
    alarm::set(PATIENCE.as_secs() as u32);
    let words = [world.word(BASE), world.word(second)];
    ensure!(words == [1, WORD], "they have {words:?}");
    ask("run", 2)?;
    alarm::cancel();
    let (times, out) = halves(&mut world)?;
    println!("half in the swap: {times} collections, {out} pages out");
    Ok(())
}
