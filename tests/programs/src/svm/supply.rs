// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory whose pages cannot be had for a while: a file is cut and made longer again, or a program
//! is to bring them in (userfaultfd).

use super::world::PAGE;
use crate::raw::{ioctl, Outcome};
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs;

/// `_IOWR(UFFDIO, ...)` of `linux/userfaultfd.h`, with `struct uffdio_api`, `uffdio_register` and
/// `uffdio_copy`, in words of 64 bits.
const API: u32 = 0xc018_aa3f;
const REGISTER: u32 = 0xc020_aa00;
const COPY: u32 = 0xc028_aa03;
/// `UFFD_API` and `UFFDIO_REGISTER_MODE_MISSING`.
const VERSION: u64 = 0xaa;
const MISSING: u64 = 1;

/// The file that is mapped at a range gets that size.
pub fn cut([start, size]: [u64; 2], bytes: u64) -> Result<Outcome> {
    let path = format!("/proc/self/map_files/{start:x}-{:x}", start + size);
    let file = fs::OpenOptions::new().write(true).open(&path);
    let file = file.with_context(|| format!("{path}: no mapping of a file"))?;
    Ok(rustix::fs::ftruncate(file, bytes))
}

/// From now on whoever touches a page of a range that is not there waits until it is supplied.
pub fn expect([start, size]: [u64; 2]) -> Result<OwnedFd> {
    // SAFETY: what is to wait is the area's, which the script alone touches.
    let file = unsafe { rustix::mm::userfaultfd(rustix::mm::UserfaultfdFlags::CLOEXEC) };
    let file = file.context("userfaultfd")?;
    ioctl(&file, API, &mut [VERSION, 0, 0]).context("UFFDIO_API")?;
    ioctl(&file, REGISTER, &mut [start, size, MISSING, 0]).context("UFFDIO_REGISTER")?;
    Ok(file)
}

/// Supplies the pages of a range, which begin with a word; how many could be.
pub fn supply(file: &OwnedFd, [start, size]: [u64; 2], word: u32) -> Result<String> {
    let mut page = vec![0u32; PAGE as usize / 4];
    page[0] = word;
    let places = (start..start + size).step_by(PAGE as usize);
    let supplied = places.filter(|place| bring(file, *place, &page).is_ok());
    let supplied = supplied.count();
    Ok(format!("{supplied} pages"))
}

/// Supplies one page.
///
/// # Panics
/// When there are fewer.
pub fn bring(file: &OwnedFd, place: u64, words: &[u32]) -> Result<(), Errno> {
    assert!(size_of_val(words) as u64 >= PAGE);
    let mut words = [place, words.as_ptr() as u64, PAGE, 0, 0];
    ioctl(file, COPY, &mut words)
}
