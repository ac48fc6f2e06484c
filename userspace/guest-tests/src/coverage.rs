// SPDX-License-Identifier: GPL-2.0 OR MIT

//! [`Kcov`]: which places of our module a thread comes by, on a kernel with KCOV and with a module that was built
//! for it (`tools/build-module --kasan`; nothing else of that kernel is instrumented). One for each thread that asks.
//!
//! `--coverage FILE` of any subcommand writes where its main thread came by in calls of [`crate::raw`];
//! `tools/coverage` reads it.

use anyhow::{Context, Result};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const DEVICE: &str = "/sys/kernel/debug/kcov";
const SECTIONS: &str = "/sys/module/amdkfd/sections";

/// `KCOV_INIT_TRACE`: `_IOR('c', 1, unsigned long)`.
const INIT_TRACE: u64 = 0x8008_6301;
/// `KCOV_ENABLE`: `_IO('c', 100)`; its argument `KCOV_TRACE_PC` is 0.
const ENABLE: u64 = 0x6364;

/// Addresses of code.
pub type Places = BTreeSet<u64>;

/// The record of one thread: a count, and that many addresses.
pub struct Kcov {
    _file: OwnedFd,
    area: *mut AtomicU64,
    words: usize,
}

impl Kcov {
    /// Begins for the calling thread, with room for `words` between two [`Kcov::take`]. None: this kernel has none.
    pub fn begin(words: usize) -> Result<Option<Self>> {
        if !Path::new(DEVICE).exists() {
            return Ok(None);
        }
        let file = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context(DEVICE)?;
        control(&file, INIT_TRACE, words)?;
        // SAFETY: a new mapping of the size that has just been asked for.
        let area = unsafe {
            mmap(
                std::ptr::null_mut(),
                words * size_of::<u64>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        control(&file, ENABLE, 0)?;
        Ok(Some(Self {
            _file: file,
            area: area.cast(),
            words,
        }))
    }

    /// Forgets what was recorded so far.
    pub fn forget(&self) {
        self.word(0).store(0, Ordering::Relaxed);
    }

    /// Adds what was recorded since the last call to `places`.
    pub fn take(&self, places: &mut Places) {
        let count = self.word(0).load(Ordering::Relaxed) as usize;
        let recorded = 1..=count.min(self.words - 1);
        places.extend(recorded.map(|index| self.word(index).load(Ordering::Relaxed)));
        self.forget();
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words);
        // SAFETY: within the mapping, which lives as long as `self`.
        unsafe { &*self.area.add(index) }
    }
}

impl Drop for Kcov {
    fn drop(&mut self) {
        // SAFETY: nobody else has the mapping. The thread's recording ends with the file.
        let _ = unsafe { munmap(self.area.cast(), self.words * size_of::<u64>()) };
    }
}

fn control(file: &OwnedFd, request: u64, argument: usize) -> Result<()> {
    // SAFETY: KCOV's requests take a number, no pointer.
    let result = unsafe { nix::libc::ioctl(file.as_raw_fd(), request, argument) };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("kcov"),
    }
}

/// Where the module's code lies: `(address, section)`.
fn sections() -> Result<Vec<(u64, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(SECTIONS).context(SECTIONS)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".text") {
            let text = fs::read_to_string(entry.path())?;
            let address = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16)?;
            found.push((address, name));
        }
    }
    found.sort();
    Ok(found)
}

/// Lines `KIND SECTION OFFSET` of these addresses.
pub fn lines(kind: &str, places: &Places) -> Result<String> {
    let sections = sections()?;
    let mut text = String::new();
    for place in places {
        let Some((start, name)) = sections.iter().rev().find(|(start, _)| start <= place) else {
            continue;
        };
        writeln!(text, "{kind} {name} {:x}", place - start)?;
    }
    Ok(text)
}

/// What `--coverage` asks for.
struct Recorder {
    kcov: Kcov,
    places: Places,
    file: PathBuf,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// From now on, calls of this thread are recorded for `file`.
pub fn record(file: &Path) -> Result<()> {
    let kcov = Kcov::begin(1 << 20)?.context("this kernel has no KCOV")?;
    let recorder = Recorder {
        kcov,
        places: Places::new(),
        file: file.into(),
    };
    RECORDER.set(Some(recorder));
    Ok(())
}

/// A call has been made: what it came by is kept, and there is room again.
pub fn called() {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.kcov.take(&mut recorder.places);
        }
    });
}

/// Writes what was recorded, if anything was to be.
pub fn write() -> Result<()> {
    called();
    match RECORDER.take() {
        Some(recorder) => {
            let text = lines("plain", &recorder.places)?;
            fs::write(&recorder.file, text).with_context(|| recorder.file.display().to_string())
        }
        None => Ok(()),
    }
}
