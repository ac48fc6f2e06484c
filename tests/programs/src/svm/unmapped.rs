// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Pages that are unmapped and mapped again and again while the driver's workers wait for others:
//! of one user's they wait for files whose pages do not come, and so nobody forgets attributes.

use super::attribute::{parse, show};
use super::fuse::Files;
use super::world::{World, BASE, PAGE};
use anyhow::{ensure, Context, Result};
use nix::libc;
use rustix::fd::AsRawFd;
use std::fs;
use std::io::{stdin, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// As many as a user has workers (`Places` of the driver).
const PROCESSES: usize = 16;
/// Pages of the area, and the two that are unmapped by turns.
const PAGES: u64 = 128;
const TWO: [u64; 2] = [8, 64];
/// What one process has of the file.
const SHARE: u64 = 1 << 20;

/// One of the processes: the GPU sees a page of the file.
pub fn kept(file: &Path, number: u64) -> Result<()> {
    let world = World::new(false, 0)?;
    let file = fs::File::open(file)?;
    let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED);
    let offset = (number * SHARE) as libc::off_t;
    // SAFETY: in the area, where nothing else lies.
    let place = unsafe {
        libc::mmap(
            BASE as *mut _,
            PAGE as usize,
            access,
            flags,
            file.as_raw_fd(),
            offset,
        )
    };
    ensure!(
        place != libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    // Read alone: whoever drops the pages waits for each further on that is being read.
    // SAFETY: it is this page.
    let alone = unsafe { libc::madvise(BASE as *mut _, PAGE as usize, libc::MADV_RANDOM) };
    ensure!(alone == 0, "{}", std::io::Error::last_os_error());
    world.svm(
        0,
        [BASE, PAGE],
        [1, 24 + 8],
        &mut [parse("access=G0", &world.gpus)?],
    )?;
    println!("seen");
    // Until who began it ends.
    stdin().read_line(&mut String::new())?;
    Ok(())
}

fn begin(file: &Path, number: usize) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["svm", "unmapped", "--seed", &number.to_string(), "--case"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().context("a pipe")?).read_line(&mut said)?;
    ensure!(said == "seen\n", "process {number}: {said:?}");
    Ok(child)
}

/// KiB of the kernel's memory that nobody gets back.
fn slab() -> Result<i64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("SUnreclaim:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.context("no SUnreclaim")?.parse()?)
}

/// What GET_ATTR says of pages.
fn said(world: &World, first: u64, count: u64) -> Result<String> {
    let range = [BASE + first * PAGE, count * PAGE];
    let mut asked = [parse("gran", &world.gpus)?];
    world.svm(1, range, [1, 24 + 8], &mut asked)?;
    Ok(show(&asked[0], &world.gpus))
}

/// Unmaps and maps that many times, and says what became of memory and attributes.
pub fn run(times: u32) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let files = Files::new(Path::new("/tmp/mute"))?;
    let children = (1..=PROCESSES).map(|number| begin(&files.file(), number));
    let mut children: Vec<_> = children.collect::<Result<_>>()?;
    files.be_mute((1..=PROCESSES as u64).map(|number| number * SHARE))?;
    let begun = Instant::now();
    while files.waiting() < PROCESSES {
        ensure!(begun.elapsed() < PATIENCE, "{} wait", files.waiting());
        sleep(Duration::from_millis(20));
    }
    println!("{} processes wait for pages", files.waiting());
    let world = World::new(true, 0)?;
    world.map(BASE, PAGES * PAGE, "rw", "private")??;
    let mut five = [parse("gran=5", &world.gpus)?];
    world.svm(0, [BASE, PAGES * PAGE], [1, 24 + 8], &mut five)?;
    let replace = || -> Result<()> {
        for page in TWO {
            let start = BASE + page * PAGE;
            world.unmap(start, PAGE)?;
            world.map(start, PAGE, "rw", "private")??;
        }
        Ok(())
    };
    // What comes with the first of them is there.
    (0..1000).try_for_each(|_| replace())?;
    let before = slab()?;
    (0..times).try_for_each(|_| replace())?;
    println!("grown: {} KiB", slab()? - before);
    ensure!(files.waiting() >= PROCESSES, "they have gone on");
    let [one, other] = TWO;
    for [first, end] in [
        [0, one],
        [one, one + 1],
        [one + 1, other],
        [other, other + 1],
        [other + 1, PAGES],
    ] {
        println!("{first} to {end}: {}", said(&world, first, end - first)?);
    }
    drop(files);
    for child in &mut children {
        drop(child.stdin.take());
        child.wait()?;
    }
    Ok(())
}
