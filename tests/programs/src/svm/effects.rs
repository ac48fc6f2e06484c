// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The steps that use GPUs, and those that only they need:
//!
//! ```text
//! gwrite PLACE LENGTH WORD [GPU]       gread PLACE LENGTH [GPU]     each page's first word
//! gtry PLACE LENGTH WORD               as gwrite, which may never end
//! gfill PLACE LENGTH SEED [GPU]        gcheck PLACE LENGTH SEED [GPU]     words of a pattern
//! fill PLACE LENGTH SEED               check PLACE LENGTH SEED      the same by the CPU
//! threads NUMBER PLACE LENGTH SEED     threads check it, and write the pattern of SEED + 1
//! launch PLACE LENGTH WORD             as gwrite, without waiting
//! count PLACE                          starts a kernel that counts there
//! counts PLACE     stands PLACE        what it does now           stop     ends it
//! queue PLACE                          CREATE_QUEUE that saves its waves there
//! reach FILE     await FILE            makes a file, and waits until there is one
//! sleep MILLISECONDS     compact       merge NUMBER (until so many pages are merged)
//! exit                                 the process ends here, as it is
//! close                                closes all files
//! cut PLACE LENGTH NEW                 the file mapped there gets that length
//! expect PLACE LENGTH                  missing pages are to be supplied (userfaultfd)
//! supply PLACE LENGTH WORD             they are, and begin with that
//! say WORD                             at once, and to who reads the errors
//! kill                                 the process is killed
//! ```

use super::interpreter::{say, together, Interpreter};
use super::merged;
use super::stage::{mixed, Stage};
use super::supply::{cut, expect, supply};
use super::world::{World, PAGE};
use crate::bench::{name, Bench};
use crate::raw::ioctl;
use anyhow::{bail, ensure, Context, Result};
use kfd_uapi as uapi;
use std::fs;
use std::time::{Duration, Instant};

/// Runs each case as `kfd-tests svm WHAT --case NAME`, and prints what it says and how it ends.
pub fn run_each<'a>(what: &str, names: impl Iterator<Item = &'a str>, xnack: bool) -> Result<()> {
    let mut failed = false;
    for name in names {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(["svm", what, "--case", name]);
        if xnack {
            command.arg("--xnack");
        }
        let output = command.output()?;
        let text = [output.stdout, output.stderr].concat();
        print!("{}", String::from_utf8_lossy(&text));
        if !text.is_empty() {
            println!("case {name}: {}", output.status);
        }
        // One that ends otherwise has a step that cannot be done, and shows nothing.
        failed |= !matches!(output.status.code(), None | Some(0));
    }
    ensure!(!failed, "a case ended before its end");
    Ok(())
}

/// A queue whose waves are saved to a range.
pub struct Saved {
    bench: Bench,
}

impl Saved {
    fn create(&self, context: u64) -> std::result::Result<(), rustix::io::Errno> {
        let mut args = self.bench.queue();
        args.ctx_save_restore_address = context;
        ioctl(self.bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut args)
    }
}

impl Interpreter {
    fn stage(&mut self, gpu: &str) -> Result<&mut Stage> {
        let number: usize = gpu
            .strip_prefix('G')
            .context("a GPU is G0 or G1")?
            .parse()?;
        let device = self.world.devices.get(number).context("no such GPU")?;
        let known = self.stages.iter().position(|(it, _)| *it == number);
        let place = known.unwrap_or(self.stages.len());
        if known.is_none() {
            let stage = match self.stages.first() {
                None => Stage::new(device)?,
                Some((_, first)) => Stage::beside(device, first)?,
            };
            self.stages.push((number, stage));
        }
        Ok(&mut self.stages[place].1)
    }

    /// A step of this file.
    pub fn effect(&mut self, words: &[&str]) -> Result<String> {
        match *words {
            [verb @ ("gwrite" | "gfill" | "gcheck"), place, length, word] => {
                self.by_gpu(verb, [place, length], word, "G0")
            }
            [verb @ ("gwrite" | "gfill" | "gcheck"), place, length, word, gpu] => {
                self.by_gpu(verb, [place, length], word, gpu)
            }
            ["gtry", place, length, word] => {
                let (range, word) = (self.range(place, length)?, word.parse()?);
                self.stage("G0")?.attempt(range, word)
            }
            ["gread", place, length] => self.gpu_reads([place, length], "G0"),
            ["gread", place, length, gpu] => self.gpu_reads([place, length], gpu),
            ["launch", place, length, word] => {
                let (range, word) = (self.range(place, length)?, word.parse()?);
                self.stage("G0")?.start(range, word, false)?;
                Ok("0".into())
            }
            ["fill", place, length, seed] => {
                fill(&self.world, self.range(place, length)?, seed.parse()?)
            }
            ["check", place, length, seed] => {
                check(&self.world, self.range(place, length)?, seed.parse()?)
            }
            ["threads", number, place, length, seed] => {
                threads(number.parse()?, self.range(place, length)?, seed.parse()?)
            }
            ["count", place] => {
                let [place, _] = self.range(place, "1")?;
                self.stage("G0")?.count(place).map(|()| "0".into())
            }
            [verb @ ("counts" | "stands"), place] => self.counting(verb, place),
            ["stop"] => self.stage("G0")?.end(),
            ["queue", place] => self.queue(place),
            ["close"] => self.world.close_all(),
            ["listen"] => self.listen(false),
            ["listen", "modest"] => self.listen(true),
            ["usage"] => self.usage(),
            ["usage", kib] => self.usage_becomes(kib.parse()?),
            ["gauge", name] => self.gauge(name),
            ["gauge", name, number] => self.gauge_becomes(name, number.parse()?),
            ["say", said] => {
                eprintln!("{said}");
                Ok("0".into())
            }
            ["told"] => self.heard(),
            ["counters"] => self.counters(),
            ["reach", file] => {
                fs::write(file, "")?;
                Ok("0".into())
            }
            ["await", file] => await_file(file),
            ["sleep", time] => {
                std::thread::sleep(Duration::from_millis(time.parse()?));
                Ok("0".into())
            }
            ["cut", place, length, new] => {
                let (range, new) = (self.range(place, length)?, self.world.bytes(new, 0)?);
                Ok(say(&cut(range, new)?))
            }
            ["expect", place, length] => {
                self.expected = Some(expect(self.range(place, length)?)?);
                Ok("0".into())
            }
            ["supply", place, length, word] => {
                let (range, word) = (self.range(place, length)?, word.parse()?);
                supply(self.expected.as_ref().context("nobody waits")?, range, word)
            }
            ["compact"] => {
                fs::write("/proc/sys/vm/compact_memory", "1")?;
                Ok("0".into())
            }
            ["merge", pages] => merge(pages.parse()?),
            // SAFETY: ends the process without running what would end its queues in order.
            ["exit"] => unsafe { nix::libc::_exit(0) },
            ["kill"] => {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)?;
                bail!("it lives")
            }
            _ => bail!("no such step"),
        }
    }

    fn by_gpu(&mut self, verb: &str, at: [&str; 2], word: &str, gpu: &str) -> Result<String> {
        let (range, word) = (self.range(at[0], at[1])?, word.parse()?);
        let stage = self.stage(gpu)?;
        match verb {
            "gwrite" => stage.write(range, word, false),
            "gfill" => stage.write(range, word, true),
            _ => Ok(match stage.read(range)? {
                Ok(words) => {
                    let pages = words.iter().enumerate();
                    let wrong = pages.filter(|(page, got)| **got != mixed(*page, word));
                    format!("{} wrong", wrong.count())
                }
                Err(said) => said,
            }),
        }
    }

    fn gpu_reads(&mut self, at: [&str; 2], gpu: &str) -> Result<String> {
        let range = self.range(at[0], at[1])?;
        Ok(match self.stage(gpu)?.read(range)? {
            Ok(words) => together(words.iter().map(|word| format!("{word:#x}"))),
            Err(said) => said,
        })
    }

    fn counting(&mut self, verb: &str, place: &str) -> Result<String> {
        let [place, _] = self.range(place, "1")?;
        let mut stages = std::mem::take(&mut self.stages);
        let world = &self.world;
        let read = || world.peek(place).ok();
        let (_, stage) = stages.first_mut().context("nothing was started")?;
        let said = match verb {
            "counts" => stage.counts(read),
            _ => stage.stands(read),
        };
        self.stages = stages;
        said
    }

    /// A queue more with the save area at that place.
    fn queue(&mut self, place: &str) -> Result<String> {
        let [place, _] = self.range(place, "1")?;
        if self.saved.is_none() {
            let bench = Bench::new(&self.world.devices[0])?;
            self.saved = Some(Saved { bench });
        }
        let saved = self.saved.as_ref().context("there is a bench")?;
        Ok(match saved.create(place) {
            Ok(()) => "0".into(),
            Err(errno) => name(errno),
        })
    }
}

/// Waits until somebody makes a file. Whoever waits for long looks seldom: it is to be idle.
fn await_file(file: &str) -> Result<String> {
    const PATIENCE: Duration = Duration::from_secs(200);
    let begin = Instant::now();
    while !fs::exists(file)? {
        let waited = begin.elapsed();
        ensure!(waited < PATIENCE, "{file} does not come");
        std::thread::sleep((waited / 20).max(Duration::from_millis(20)));
    }
    Ok("0".into())
}

/// The CPU writes the pattern.
fn fill(world: &World, [start, size]: [u64; 2], seed: u32) -> Result<String> {
    let pages = (start..start + size).step_by(PAGE as usize).enumerate();
    let written = pages.filter(|(page, at)| world.poke(*at, mixed(*page, seed)).is_ok());
    Ok(format!("{} pages", written.count()))
}

/// The CPU looks for it.
fn check(world: &World, [start, size]: [u64; 2], seed: u32) -> Result<String> {
    let pages = (start..start + size).step_by(PAGE as usize).enumerate();
    let wrong = pages.filter(|(page, at)| world.peek(*at) != Ok(mixed(*page, seed)));
    Ok(format!("{} wrong", wrong.count()))
}

/// So many threads, on any CPU, share the pages: each looks for the pattern, and writes the next.
fn threads(number: usize, [start, size]: [u64; 2], seed: u32) -> Result<String> {
    let pages = (size / PAGE) as usize;
    let each = pages.div_ceil(number);
    let work = |thread: usize| -> usize {
        super::world::roam();
        let own = thread * each..((thread + 1) * each).min(pages);
        own.filter(|&page| {
            let word = (start + page as u64 * PAGE) as *mut u32;
            // SAFETY: the script mapped it, and each page is one thread's.
            let got = unsafe { word.read_volatile() };
            // SAFETY: as above.
            unsafe { word.write_volatile(mixed(page, seed + 1)) };
            got != mixed(page, seed)
        })
        .count()
    };
    let wrong: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..number)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|wrong| wrong.unwrap_or(usize::MAX)).sum()
    });
    Ok(format!("{wrong} wrong"))
}

/// Has the kernel merge equal pages, until there are so many.
fn merge(pages: u64) -> Result<String> {
    let merged = merged::until_shared(pages)?;
    merged::ask("run", 0)?;
    Ok(format!("at least {pages}: {merged}"))
}
