// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Shared`]: what the processes of one round and the fuzzer have in common. One per round.

use super::execute::{mailbox, Turns};
use super::program::Line;
use anyhow::{Context, Result};
use kfd_uapi::IOCTLS;
use rustix::fd::OwnedFd;
use rustix::fs::{open, Mode, OFlags};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What else is counted than ioctls.
const WORDS: &[&str] = &[
    "SETUP", "OPEN", "MMAP", "MUNMAP", "TOUCH", "POKE", "DISCARD", "SEND", "RECEIVE", "FORK",
    "LAUNCH", "AWAIT", "DIE", "KILLED", "END", "CLEAN", "TRACE", "UNTRACE",
];

/// The most processes of a program.
const PROCESSES: usize = 64;

pub struct Shared {
    /// Where files for process N are sent to, and where it takes them from.
    pub outboxes: Vec<OwnedFd>,
    pub inboxes: Vec<OwnedFd>,
    pub tally: &'static Tally,
    pub processes: &'static Processes,
    /// A line goes there before it is begun, so that it is there whatever becomes of the kernel.
    record: Option<OwnedFd>,
    /// What is wrong in the processes' eyes.
    complaints: OwnedFd,
    /// How long a call may take.
    bound: Duration,
}

impl Shared {
    /// For a round of so many processes.
    pub fn new(
        processes: u8,
        tally: &'static Tally,
        record: Option<&Path>,
        complaints: &Path,
        bound: Duration,
    ) -> Result<Self> {
        let boxes: Vec<_> = (0..processes)
            .map(|_| mailbox())
            .collect::<Result<_, _>>()?;
        let (outboxes, inboxes) = boxes.into_iter().unzip();
        Ok(Self {
            outboxes,
            inboxes,
            tally,
            processes: shared(Processes::default())?,
            record: record.map(appended).transpose()?,
            complaints: appended(complaints)?,
            bound,
        })
    }

    /// This is process `number`.
    pub fn is(&self, number: u8) {
        if let Some(pid) = self.processes.pids.get(usize::from(number)) {
            pid.store(std::process::id(), Ordering::Relaxed);
        }
    }

    /// The id of process `number`; 0: there is none yet.
    pub fn pid(&self, number: usize) -> u32 {
        let pid = self.processes.pids.get(number);
        pid.map_or(0, |pid| pid.load(Ordering::Relaxed))
    }

    /// Whether that is the id of a process of the program.
    pub fn knows(&self, pid: u32) -> bool {
        let mut pids = self.processes.pids.iter();
        pid != 0 && pids.any(|it| it.load(Ordering::Relaxed) == pid)
    }

    /// Notes that `line` begins.
    pub fn record(&self, line: &Line) {
        if let Some(record) = &self.record {
            write(record, &line.to_string());
        }
    }

    /// `line` has taken `time`.
    pub fn took(&self, line: &Line, time: Duration) {
        self.tally.took(&line.call, time);
        if time > self.bound {
            self.complain(&format!("{:.1} s for: {line}", time.as_secs_f64()));
        }
    }

    /// A failure that a process sees.
    pub fn complain(&self, what: &str) {
        write(&self.complaints, what);
    }
}

fn appended(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::TRUNC | OFlags::CLOEXEC;
    open(path, flags, Mode::from_raw_mode(0o644)).with_context(|| path.display().to_string())
}

/// In one write: lines of several processes do not mix.
fn write(file: &OwnedFd, line: &str) {
    // A full disk must not keep a program from being run.
    let _ = rustix::io::write(file, format!("{line}\n").as_bytes());
}

/// The processes of a round, in memory that all share.
pub struct Processes {
    /// Their ids.
    pub pids: [AtomicU32; PROCESSES],
    /// Calls that may change their sessions; behind them those about anybody else.
    pub turns: [Turns; PROCESSES + 1],
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            pids: [const { AtomicU32::new(0) }; PROCESSES],
            turns: std::array::from_fn(|_| Turns::default()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let at = std::ptr::from_ref(self.processes).cast_mut().cast();
        // SAFETY: `shared` mapped it for this round, of which nobody runs any more.
        let _ = unsafe { munmap(at, size_of::<Processes>()) };
    }
}

/// A value in memory that processes made later share.
fn shared<T: Sync>(value: T) -> Result<&'static T> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel likes.
    let at = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            size_of::<T>(),
            access,
            MapFlags::SHARED,
        )?
    };
    let at = at.cast::<T>();
    // SAFETY: the mapping is as large and aligned to a page.
    unsafe {
        at.write(value);
        Ok(&*at)
    }
}

/// What became of each call, by its name; in memory that all processes share.
pub struct Tally {
    counts: [Count; 64],
}

/// What became of one call. Times in microseconds.
#[derive(Default)]
struct Count {
    good: AtomicU64,
    refused: AtomicU64,
    time: AtomicU64,
    longest: AtomicU64,
}

/// A call's name and what became of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub name: &'static str,
    pub good: u64,
    pub refused: u64,
    /// Spent in all of them, and in the one that took longest.
    pub time: Duration,
    pub longest: Duration,
}

impl Tally {
    /// A new one, for the rest of the program.
    pub fn new() -> Result<&'static Self> {
        let counts = std::array::from_fn(|_| Count::default());
        shared(Self { counts })
    }

    fn names() -> impl Iterator<Item = &'static str> {
        IOCTLS
            .iter()
            .map(|ioctl| ioctl.name)
            .chain(WORDS.iter().copied())
    }

    fn of(&self, name: &str) -> Option<&Count> {
        let index = Self::names().position(|known| known == name)?;
        self.counts.get(index)
    }

    /// One more call of `name`.
    pub fn count(&self, name: &str, good: bool) {
        if let Some(count) = self.of(name) {
            let outcome = if good { &count.good } else { &count.refused };
            outcome.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A call of `name` has taken `time`.
    pub fn took(&self, name: &str, time: Duration) {
        if let Some(count) = self.of(name) {
            let time = time.as_micros() as u64;
            count.time.fetch_add(time, Ordering::Relaxed);
            count.longest.fetch_max(time, Ordering::Relaxed);
        }
    }

    /// How often `name` was good.
    pub fn good(&self, name: &str) -> u64 {
        self.of(name)
            .map_or(0, |count| count.good.load(Ordering::Relaxed))
    }

    /// All names.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(name, count): (_, &Count)| Row {
            name,
            good: count.good.load(Ordering::Relaxed),
            refused: count.refused.load(Ordering::Relaxed),
            time: Duration::from_micros(count.time.load(Ordering::Relaxed)),
            longest: Duration::from_micros(count.longest.load(Ordering::Relaxed)),
        };
        Self::names().zip(&self.counts).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_own_count() {
        let tally = Tally::new().unwrap();
        assert!(Tally::names().count() <= tally.counts.len());
        tally.count("GET_VERSION", true);
        tally.count("DIE", false);
        tally.count("DIE", false);
        tally.count("nothing", true);
        for milliseconds in [3, 5, 4] {
            tally.took("DIE", Duration::from_millis(milliseconds));
        }
        let rows = tally.rows();
        assert_eq!((tally.good("GET_VERSION"), tally.good("DIE")), (1, 0));
        let first = rows.first().unwrap();
        assert_eq!(
            (first.name, first.good, first.refused),
            ("GET_VERSION", 1, 0)
        );
        let die = rows.iter().find(|row| row.name == "DIE").unwrap();
        assert_eq!((die.good, die.refused), (0, 2));
        assert_eq!((die.time.as_millis(), die.longest.as_millis()), (12, 5));
        assert_eq!(
            rows.iter().map(|row| row.good + row.refused).sum::<u64>(),
            3
        );
    }
}
