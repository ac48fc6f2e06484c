// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Threads bring large pages home by touching them, each its own, while copies take long, and
//! another one says something of memory beside them, in the same region.

use super::attribute::parse;
use super::interpreter::SET;
use super::pieces::{huge, large_in_vram};
use super::world::{roam, World, BASE, LARGE};
use anyhow::{ensure, Result};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const READERS: u64 = 8;
/// Large pages of each.
const EACH: u64 = 2;
const SIZE: u64 = READERS * EACH * LARGE;
const BESIDE: u64 = BASE + 2 * SIZE;
/// The script has a copy take that long.
const COPY: Duration = Duration::from_secs(1);

fn set(world: &World, start: u64, attributes: [&str; 2]) -> Result<()> {
    let mut both = [
        parse(attributes[0], &world.gpus)?,
        parse(attributes[1], &world.gpus)?,
    ];
    Ok(world.svm(SET, [start, LARGE], [2, 24 + 16], &mut both)?)
}

/// Until the script has had copies take long.
fn stage() -> Result<()> {
    fs::write("/tmp/svm-out", "")?;
    while !Path::new("/tmp/svm-over").exists() {
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub fn run(xnack: bool) -> Result<()> {
    let mut world = World::new(xnack, 0)?;
    roam();
    world.clear()?;
    world.map(BASE, SIZE, "rw", "private")??;
    world.advise(BASE, SIZE, "hugepage")??;
    world.map(BESIDE, LARGE, "rw", "private")??;
    let places = || (BASE..BASE + SIZE).step_by(LARGE as usize);
    for (place, number) in places().zip(1..) {
        world.store(place, number);
    }
    world.store(BESIDE, 77);
    let held = huge()?;
    for place in places() {
        set(&world, place, ["access=G0", "fetch=G0"])?;
    }
    let there = large_in_vram()?;
    ensure!(
        there >= READERS * EACH,
        "of {held} large pages {there} go to VRAM"
    );
    set(&world, BESIDE, ["access=G0", "set=0x40"])?;
    let left = AtomicU64::new(READERS);
    // Threads are made before and end behind it: that changes the address space, and whoever does
    // that waits for copies, and the others for him.
    let [all_here, all_done] = [(); 2].map(|()| Barrier::new(READERS as usize + 1));
    let mut begun = Instant::now();
    let mut longest = Duration::ZERO;
    let (mut calls, mut failed) = (0, None);
    scope(|scope| -> Result<()> {
        let (world, left, all_here, all_done) = (&world, &left, &all_here, &all_done);
        let read = move |reader: u64| {
            roam();
            all_here.wait();
            let pages = reader * EACH..(reader + 1) * EACH;
            let right = pages
                .into_iter()
                .all(|page| u64::from(world.word(BASE + page * LARGE)) == page + 1);
            left.fetch_sub(1, Relaxed);
            all_done.wait();
            right
        };
        let readers: Vec<_> = (0..READERS)
            .map(|reader| scope.spawn(move || read(reader)))
            .collect();
        stage()?;
        begun = Instant::now();
        all_here.wait();
        while left.load(Relaxed) > 0 {
            let one = Instant::now();
            let flags = ["set=0x42", "clear=0x2"][calls % 2];
            // An error would leave the others waiting.
            let said = set(world, BESIDE, ["access=G0", flags]);
            if let Err(error) = said {
                failed = Some(error);
            }
            longest = longest.max(one.elapsed());
            calls += 1;
            sleep(Duration::from_millis(5));
        }
        all_done.wait();
        for reader in readers {
            ensure!(reader.join().expect("a thread"), "a word is wrong");
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), Err)?;
    let took = begun.elapsed();
    println!("the longest of {calls} calls: {longest:?}; all were at home after {took:?}");
    ensure!(took >= COPY, "no copy took long");
    world.clear()?;
    Ok(())
}
