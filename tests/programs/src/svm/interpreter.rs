// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Interpreter`]: does what the lines of a script say, and prints each with what it came to.
//! Places are relative to the area, in pages: see `World::bytes`. Those of GPUs: `effects.rs`.
//!
//!     set PLACE LENGTH ATTRIBUTE...        SET_ATTR
//!     get PLACE LENGTH [ATTRIBUTE...]      GET_ATTR, of everything
//!     runs PLACE LENGTH [STEP]             GET_ATTR of each page, or of each STEP
//!     sized OP TOLD BYTES PLACE LENGTH ATTRIBUTE...    a call that need not make sense
//!     map PLACE LENGTH [ACCESS [KIND]]     unmap PLACE LENGTH     protect PLACE LENGTH ACCESS
//!     advise PLACE LENGTH ADVICE           write PLACE LENGTH WORD     read PLACE LENGTH
//!     move PLACE LENGTH TO                 keep PLACE LENGTH TO     resize PLACE LENGTH NEW
//!     alloc NAME KIND PLACE LENGTH [MEMORY]     release NAME     show NAME PLACE LENGTH
//!     room NAME KIND PLACE LENGTH          alloc of what needs the room of shared memory
//!     on NAME GPU...                       off NAME GPU...
//!     try NAME GPU...                      on, unless memory there may have got attributes
//!     file primary|again|context           own (a child gets the GPUs for itself)
//!     fork ... end                         by a child     orphan ... end     when its parent ended
//!     thp off                              no large pages for the process
//!     gpus NUMBER                          the rest needs so many
//!     xnack on|off                         the rest needs that

use super::attribute::{everything, number, parse, show};
use super::effects::Saved;
use super::stage::Stage;
use super::world::{World, BASE, PAGE};
use crate::bench::name;
use crate::kill::is_ours;
use crate::raw::Outcome;
use anyhow::{bail, ensure, Context, Result};
use kfd::SvmAttribute;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::Write;
use std::time::Duration;

/// Bytes of the call's struct without attributes.
const HEAD: u32 = 24;
pub const SET: u32 = 0;
pub const GET: u32 = 1;

pub struct Interpreter {
    pub world: World,
    xnack: bool,
    /// Before each line: whose it is.
    prefix: &'static str,
    /// Whether memory may be in VRAM.
    vram: bool,
    /// The GPU that steps use, with its number.
    pub stages: Vec<(usize, Stage)>,
    pub saved: Option<Saved>,
    /// A file of SMI events.
    pub listener: Option<OwnedFd>,
    /// A file through which missing pages are supplied.
    pub expected: Option<OwnedFd>,
    /// What sysfs counted when it was looked at first.
    pub first_usage: Option<i64>,
}

/// What the driver's worker needs after memory came back from VRAM: when a range is split before it
/// ran, the C driver uses memory that it has freed.
const WORKER: Duration = Duration::from_millis(5);

/// What the driver's worker needs to restore what was evicted.
const RESTORE: Duration = Duration::from_millis(200);

pub fn say(outcome: &Outcome) -> String {
    match outcome {
        Ok(()) => "0".into(),
        Err(errno) => name(*errno),
    }
}

impl Interpreter {
    /// `stack` is a place of three pages on it.
    pub fn new(xnack: bool, stack: u64) -> Result<Self> {
        Ok(Self {
            world: World::new(xnack, stack)?,
            xnack,
            prefix: "",
            vram: false,
            stages: Vec::new(),
            saved: None,
            listener: None,
            expected: None,
            first_usage: None,
        })
    }

    /// A case from an empty area on, unless it is for other machines.
    pub fn case(&mut self, name: &str, lines: &[&str]) -> Result<()> {
        if !lines.iter().all(|line| self.is_for(line)) {
            return Ok(());
        }
        self.world
            .clear()
            .with_context(|| format!("before {name}"))?;
        self.vram = false;
        println!("case {name}");
        self.lines(lines).with_context(|| format!("case {name}"))
    }

    /// Whether a line that says what it needs has that.
    fn is_for(&self, line: &str) -> bool {
        match line.split_once(' ') {
            Some(("gpus", gpus)) => number(gpus).is_ok_and(|n| self.world.gpus.len() as u64 >= n),
            Some(("xnack", mode)) => (mode == "on") == self.xnack,
            _ => true,
        }
    }

    fn lines(&mut self, lines: &[&str]) -> Result<()> {
        let mut rest = lines.iter();
        while let Some(line) = rest.next() {
            if matches!(*line, "fork" | "orphan") {
                let child: Vec<&str> = rest.by_ref().copied().take_while(|l| *l != "end").collect();
                self.fork(&child, *line == "orphan")?;
            } else {
                self.line(line).with_context(|| line.to_string())?;
            }
        }
        Ok(())
    }

    /// One step.
    pub fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = match words[..] {
            ["gpus" | "xnack", _] => return Ok(()),
            ["file", "primary"] => self.world.primary().map(|()| "0".into())?,
            ["thp", "off"] => say(&self.world.forbid_large()),
            ["own"] => self.own().map(|()| "0".into())?,
            ["file", kind] => self.world.other_file(kind).map(|()| "0".into())?,
            ["sized", op, told, bytes, place, length, ref attributes @ ..] => {
                let [op, told, bytes] = [number(op)?, number(told)?, number(bytes)?];
                let range = self.range(place, length)?;
                self.attributes(op as u32, range, [told as u32, bytes as u32], attributes)?
            }
            ["set", place, length, ref attributes @ ..] => {
                let [start, size] = self.range(place, length)?;
                let sizes = sizes(attributes.len());
                let said = self.attributes(SET, [start, size], sizes, attributes)?;
                if said != name(Errno::ADDRINUSE) {
                    self.world.note_attributes(start, size);
                }
                said
            }
            ["get", place, length] => self.ask(self.range(place, length)?),
            ["get", place, length, ref attributes @ ..] => {
                let range = self.range(place, length)?;
                self.attributes(GET, range, sizes(attributes.len()), attributes)?
            }
            ["runs", place, length] => self.runs(self.range(place, length)?, PAGE),
            ["runs", place, length, step] => {
                let step = self.world.bytes(step, 0)?;
                self.runs(self.range(place, length)?, step)
            }
            ["alloc" | "room" | "release" | "show" | "on" | "try" | "off", ..] => {
                self.buffer(&words)?
            }
            [verb, ..] if MEMORY.contains(&verb) => self.memory(&words)?,
            _ => self.effect(&words)?,
        };
        println!("{}{line}: {said}", self.prefix);
        self.vram |= line.contains("fetch=G") || !self.stages.is_empty();
        if self.vram && !matches!(words[0], "get" | "runs") {
            std::thread::sleep(WORKER);
        }
        Ok(())
    }

    fn place(&self, text: &str) -> Result<u64> {
        self.world.bytes(text, BASE)
    }

    pub fn range(&self, place: &str, length: &str) -> Result<[u64; 2]> {
        // What lies elsewhere has a place without the area.
        let own = ["stack", "heap", "code", "vvar", "vdso"];
        let elsewhere = own.iter().any(|name| place.starts_with(name));
        let base = if elsewhere { 0 } else { BASE };
        Ok([self.world.bytes(place, base)?, self.world.bytes(length, 0)?])
    }

    fn memory(&mut self, words: &[&str]) -> Result<String> {
        let [verb, place, length, ref more @ ..] = words[..] else {
            bail!("a step has a place and a length")
        };
        let [start, size] = self.range(place, length)?;
        let world = &self.world;
        let outcome = match (verb, more) {
            ("map", []) => world.map(start, size, "rw", "private")?,
            ("map", [access]) => world.map(start, size, access, "private")?,
            ("map", [access, kind]) => world.map(start, size, access, kind)?,
            ("unmap", []) => world.unmap(start, size),
            ("protect", [access]) => world.protect(start, size, access),
            ("advise", [advice]) => world.advise(start, size, advice)?,
            ("move", [to]) => world.remap(start, size, self.place(to)?, size, false),
            ("keep", [to]) => world.remap(start, size, self.place(to)?, size, true),
            ("resize", [new]) => {
                let new = world.bytes(new, 0)?;
                world.remap(start, size, start, new, false)
            }
            ("write", [word]) => return self.write(start, size, number(word)? as u32),
            ("read", []) => return Ok(self.read(start, size)),
            _ => bail!("{verb} is no step"),
        };
        Ok(say(&outcome))
    }

    /// The first word of each page; what of it could be written.
    fn write(&self, start: u64, size: u64, word: u32) -> Result<String> {
        let pages = (start..start + size).step_by(PAGE as usize);
        let written = pages.filter(|&page| self.world.poke(page, word).is_ok());
        Ok(format!("{} pages", written.count()))
    }

    /// The first words of the pages, with how many are the same.
    fn read(&self, start: u64, size: u64) -> String {
        let pages = (start..start + size).step_by(PAGE as usize);
        together(pages.map(|page| match self.world.peek(page) {
            Ok(word) => format!("{word:#x}"),
            Err(errno) => name(errno),
        }))
    }

    fn attributes(
        &self,
        op: u32,
        range: [u64; 2],
        sizes: [u32; 2],
        attributes: &[&str],
    ) -> Result<String> {
        let gpus = &self.world.gpus;
        let attributes = attributes.iter().map(|text| parse(text, gpus));
        let mut attributes = attributes.collect::<Result<Vec<_>>>()?;
        let outcome = self.world.svm(op, range, sizes, &mut attributes);
        Ok(match (op, outcome) {
            (GET, Ok(())) => self.told(&attributes),
            (_, outcome) => say(&outcome),
        })
    }

    fn told(&self, attributes: &[SvmAttribute]) -> String {
        let shown = attributes.iter().map(|one| show(one, &self.world.gpus));
        shown.collect::<Vec<_>>().join(" ")
    }

    /// All attributes of a range.
    fn ask(&self, range: [u64; 2]) -> String {
        let mut all = everything(&self.world.gpus);
        let sizes = sizes(all.len());
        match self.world.svm(GET, range, sizes, &mut all) {
            Ok(()) => self.told(&all),
            Err(errno) => name(errno),
        }
    }

    /// All attributes of each `step` bytes of a range.
    fn runs(&self, [start, size]: [u64; 2], step: u64) -> String {
        let places = (start..start + size).step_by(step as usize);
        together(places.map(|place| self.ask([place, step])))
    }

    fn gpu_list(&self, names: &[&str]) -> Result<Vec<u32>> {
        let ids = names.iter().map(|name| {
            let number = name.strip_prefix('G').context("a GPU is G0 or G1")?;
            let id = self.world.gpus.get(number.parse::<usize>()?);
            id.copied().context("no such GPU")
        });
        ids.collect()
    }

    fn buffer(&mut self, words: &[&str]) -> Result<String> {
        let outcome = match *words {
            ["alloc", name, ..] if self.world.has_buffer(name) => return Ok("there is one".into()),
            ["alloc", name, kind, place, length] => {
                self.alloc(name, kind, [place, length, place])?
            }
            ["alloc", name, kind, place, length, memory] => {
                self.alloc(name, kind, [place, length, memory])?
            }
            ["room", name, kind, place, length] => self.room(name, kind, [place, length])?,
            [_, name, ..] if !self.world.has_buffer(name) => return Ok("there is none".into()),
            ["release", name] => self.world.release(name)?,
            ["show", name, place, length] => {
                let [start, size] = self.range(place, length)?;
                self.world.show(name, start, size)?
            }
            // The two drivers differ there, and in all that follows.
            ["try", name, ..] if self.world.is_under_attributes(name) => {
                return Ok("there may be attributes".into())
            }
            ["on" | "try", name, ref gpus @ ..] => {
                let gpus = self.gpu_list(gpus)?;
                self.world.on_gpus(name, &gpus, true)?
            }
            ["off", name, ref gpus @ ..] => {
                let gpus = self.gpu_list(gpus)?;
                self.world.on_gpus(name, &gpus, false)?
            }
            _ => bail!("no such step of a buffer"),
        };
        Ok(say(&outcome))
    }

    fn alloc(&mut self, name: &str, kind: &str, at: [&str; 3]) -> Result<Outcome> {
        let [start, size] = self.range(at[0], at[1])?;
        let memory = match kind {
            "userptr" => self.place(at[2])?,
            _ => 0,
        };
        let gpu = self.world.gpus[0];
        self.world.alloc(name, kind, [start, size, memory], gpu)
    }

    /// The C driver evicts shared memory only where it gets the process's mmap lock at once, and
    /// its own worker, which restores what was evicted before, waits to write it: whether there is
    /// room is chance, so it has more tries. Ours has one.
    fn room(&mut self, name: &str, kind: &str, at: [&str; 2]) -> Result<Outcome> {
        for attempt in 1..=20 {
            let outcome = self.alloc(name, kind, [at[0], at[1], at[0]])?;
            if outcome != Err(Errno::NOMEM) || is_ours() {
                return Ok(outcome);
            }
            let told = format!("kfd-tests: try {attempt} for shared memory's room on C: ENOMEM");
            std::fs::write("/dev/kmsg", told)?;
            std::thread::sleep(RESTORE);
        }
        Ok(Err(Errno::NOMEM))
    }

    /// A child gets the GPUs for itself.
    fn own(&mut self) -> Result<()> {
        self.world = World::new(self.xnack, self.world.stack)?;
        Ok(())
    }

    /// A child does the lines and ends; the process waits for it. An orphan does so after its
    /// parent has ended, which goes on.
    fn fork(&mut self, lines: &[&str], orphan: bool) -> Result<()> {
        let parent = std::process::id();
        std::io::stdout().flush()?;
        // SAFETY: this process has one thread, so that the child can do what it could.
        match unsafe { nix::unistd::fork()? } {
            nix::unistd::ForkResult::Child => {
                self.prefix = "child: ";
                while orphan && nix::unistd::getppid().as_raw() as u32 == parent {
                    std::thread::sleep(WORKER);
                }
                let status = match self.lines(lines) {
                    Ok(()) => 0,
                    Err(error) => {
                        println!("child: {error:#}");
                        1
                    }
                };
                let _ = std::io::stdout().flush();
                // SAFETY: ends the child without running what the parent will run.
                unsafe { nix::libc::_exit(status) }
            }
            nix::unistd::ForkResult::Parent { .. } if orphan => Ok(()),
            nix::unistd::ForkResult::Parent { child } => {
                let status = nix::sys::wait::waitpid(child, None)?;
                let ended = nix::sys::wait::WaitStatus::Exited(child, 0);
                ensure!(status == ended, "the child: {status:?}");
                Ok(())
            }
        }
    }
}

/// The steps about memory.
const MEMORY: [&str; 9] = [
    "map", "unmap", "protect", "advise", "move", "keep", "resize", "write", "read",
];

/// What a call of so many attributes tells of itself.
fn sizes(attributes: usize) -> [u32; 2] {
    let attributes = attributes as u32;
    [attributes, HEAD + 8 * attributes]
}

/// What comes several times in a row, with the places where it does.
pub fn together(items: impl Iterator<Item = String>) -> String {
    let mut runs: Vec<(usize, usize, String)> = Vec::new();
    for (place, item) in items.enumerate() {
        match runs.last_mut() {
            Some((_, count, last)) if *last == item => *count += 1,
            _ => runs.push((place, 1, item)),
        }
    }
    let shown = runs
        .iter()
        .map(|(place, count, item)| format!("{place}+{count} {item}"));
    shown.collect::<Vec<_>>().join(" | ")
}
