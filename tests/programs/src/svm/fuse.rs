// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A file system with one file, whose pages do not come any more from some moment on
//! (`linux/fuse.h`).

use super::world::PAGE;
use anyhow::{ensure, Context, Result};
use nix::libc;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{read, write, Errno};
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::thread;

/// `enum fuse_opcode`, those that are answered, or not to be answered.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
/// `FUSE_NOTIFY_INVAL_INODE`
const INVALIDATE: i32 = 2;

/// Of `struct fuse_in_header` and `struct fuse_out_header`.
const HEADER_IN: usize = 40;
const ROOT: u64 = 1;
const FILE: u64 = 2;
const SIZE: u64 = 64 << 20;
/// A year: nothing is asked twice.
const LONG: u64 = 31_536_000;

/// What it has been told, and whether it answers.
#[derive(Default)]
struct State {
    mute: AtomicBool,
    waiting: AtomicUsize,
}

/// The file system, mounted until this is dropped.
pub struct Files {
    device: Arc<OwnedFd>,
    place: PathBuf,
    state: Arc<State>,
}

impl Files {
    /// Mounts it there.
    pub fn new(place: &Path) -> Result<Self> {
        fs::create_dir_all(place)?;
        let device: OwnedFd = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .context("/dev/fuse")?
            .into();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let (path, options) = (
            CString::new(place.to_str().context("a path")?)?,
            CString::new(options)?,
        );
        // SAFETY: strings that end, and live until it returns.
        let mounted = unsafe {
            libc::mount(
                c"kfd-tests".as_ptr(),
                path.as_ptr(),
                c"fuse".as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        ensure!(mounted == 0, "mount: {}", std::io::Error::last_os_error());
        let files = Self {
            device: Arc::new(device),
            place: place.into(),
            state: Arc::default(),
        };
        let (device, state) = (files.device.clone(), files.state.clone());
        thread::spawn(move || serve(&device, &state));
        Ok(files)
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.place.join("file")
    }

    /// From now on no page of it comes, nor are those at these places there any more. None may be
    /// about to come: it would be waited for.
    pub fn be_mute(&self, places: impl Iterator<Item = u64>) -> Result<()> {
        self.state.mute.store(true, SeqCst);
        for place in places {
            let mut what = words(&[FILE, place, PAGE]);
            answer(&self.device, 0, INVALIDATE, &mut what).context("a page is not dropped")?;
        }
        Ok(())
    }

    /// How many requests for pages wait.
    pub fn waiting(&self) -> usize {
        self.state.waiting.load(SeqCst)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(place) = self
            .place
            .to_str()
            .and_then(|place| CString::new(place).ok())
        {
            // What waits fails.
            // SAFETY: a string that ends.
            unsafe { libc::umount2(place.as_ptr(), libc::MNT_FORCE) };
            // SAFETY: as above. Somebody may have the file open still.
            unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Answers, until the file system is gone.
fn serve(device: &OwnedFd, state: &State) {
    let mut request = vec![0; 1 << 17];
    loop {
        match read(device, &mut request) {
            Ok(HEADER_IN..) => (),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            _ => return,
        }
        let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| request[at + byte]));
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let (opcode, unique, node) = (half(4), word(8), word(16));
        if opcode == READ && state.mute.load(SeqCst) {
            state.waiting.fetch_add(1, SeqCst);
            continue;
        }
        let mut said = match opcode {
            FORGET | INTERRUPT | BATCH_FORGET => continue,
            // Version 7.31; so many requests at a time, so many bytes written.
            INIT => words(&[7 | 31 << 32, 0, 64 | 64 << 16 | 4096 << 32, 1, 0, 0, 0, 0]),
            LOOKUP => [words(&[FILE, 0, LONG, LONG, 0]), attributes(FILE)].concat(),
            GETATTR => [words(&[LONG, 0]), attributes(node)].concat(),
            // `FOPEN_KEEP_CACHE`: whoever opens it drops no page.
            OPEN => words(&[1, 2]),
            READ => {
                let left = SIZE.saturating_sub(word(HEADER_IN + 8));
                vec![0; left.min(half(HEADER_IN + 16).into()) as usize]
            }
            RELEASE | FLUSH => Vec::new(),
            _ => {
                let _ = answer(device, unique, -libc::ENOSYS, &mut Vec::new());
                continue;
            }
        };
        let _ = answer(device, unique, 0, &mut said);
    }
}

/// `struct fuse_attr`
fn attributes(node: u64) -> Vec<u8> {
    let mode = match node {
        ROOT => libc::S_IFDIR | 0o755,
        _ => libc::S_IFREG | 0o644,
    };
    // Number, size, blocks, three times; their nanoseconds and the mode; links; no owner.
    words(&[
        node,
        SIZE,
        SIZE / 512,
        0,
        0,
        0,
        0,
        u64::from(mode) << 32,
        1,
        0,
        4096,
    ])
}

fn answer(device: &OwnedFd, unique: u64, error: i32, said: &mut Vec<u8>) -> Result<()> {
    let size = 16 + said.len() as u64;
    // CAST: the bits of a number below zero.
    let mut all = words(&[size | u64::from(error as u32) << 32, unique]);
    all.append(said);
    write(device, &all)?;
    Ok(())
}
