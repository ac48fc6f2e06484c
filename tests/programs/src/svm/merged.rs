// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages that the kernel has merged (KSM), and a prefetch of them while it goes on. Device pages
//! must not come into its tree of merged pages: it reads what is there, and forgets who has them.

use super::attribute::parse;
use super::interpreter::SET;
use super::world::{World, BASE, LARGE, PAGE};
use anyhow::{ensure, Context, Result};
use nix::unistd::alarm;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Equal pages: those that are prefetched, and as many that are written then.
const PAGES: u64 = 64;
const LATER: u64 = BASE + LARGE;
/// Enough for all scans, and for who reads the pages.
const PATIENCE: Duration = Duration::from_secs(60);
/// Scans, in which KSM meets each address, and forgets those that it does not see.
const SCANS: u64 = 10;

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

/// Has the kernel merge equal pages from now on. Whether so many are shared soon.
pub fn until_shared(pages: u64) -> Result<bool> {
    ask("sleep_millisecs", 1)?;
    ask("pages_to_scan", 10000)?;
    ask("run", 1)?;
    awaited(|| Ok(count("pages_sharing")? >= pages))
}

/// Equal pages that may be merged.
fn mergeable(world: &World, start: u64) -> Result<()> {
    world.map(start, PAGES * PAGE, "rw", "private")??;
    world.advise(start, PAGES * PAGE, "mergeable")??;
    for page in 0..PAGES {
        world.store(start + page * PAGE, 77);
    }
    Ok(())
}

/// Pages of which each has the word.
fn with(world: &World, start: u64, word: u32) -> usize {
    let words = (0..PAGES).map(|page| world.word(start + page * PAGE));
    words.filter(|it| *it == word).count()
}

/// Pages that the processor has no page for: in VRAM.
fn away(start: u64) -> Result<usize> {
    const PRESENT: u64 = 1 << 63;
    let mut entries = [0; 8 * PAGES as usize];
    fs::File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, start / PAGE * 8)?;
    let entries = entries.chunks_exact(8).map(|it| it.try_into());
    let entries: Vec<[u8; 8]> = entries.collect::<Result<_, _>>()?;
    let is_away = |it: &&[u8; 8]| u64::from_ne_bytes(**it) & PRESENT == 0;
    Ok(entries.iter().filter(is_away).count())
}

/// Does that so many times. Ends by SIGALRM if the pages cannot be read.
pub fn run(xnack: bool, rounds: u32) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    let mut out = 0;
    for _ in 0..rounds {
        world.clear()?;
        mergeable(&world, BASE)?;
        ensure!(until_shared(PAGES - 1)?, "the kernel merges nothing");
        let mut attributes = [parse("fetch=G0", &world.gpus)?];
        // Without access, so that no GPU wants to write, for which the kernel copies what is merged.
        world.svm(SET, [BASE, PAGES * PAGE], [1, 24 + 8], &mut attributes)?;
        out += away(BASE)?;
        mergeable(&world, LATER)?;
        let scanned = count("full_scans")?;
        let enough = || Ok(count("full_scans")? >= scanned + SCANS);
        ensure!(awaited(enough)?, "the kernel scans no more");
        alarm::set(PATIENCE.as_secs() as u32);
        let equal = with(&world, BASE, 77) + with(&world, LATER, 77);
        ensure!(equal as u64 == 2 * PAGES, "{equal} pages are as they were");
        alarm::cancel();
        ask("run", 0)?;
    }
    println!("{rounds} times: {out} pages went");
    Ok(())
}
