// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Pool`]: memory for kernels' arguments in pieces, so that a launch costs no call of the kernel.

use crate::Result;
use kfd::{Device, Memory, Plain};
use std::sync::{Arc, Mutex, PoisonError};

/// What arguments are aligned to: a cache line, of which no two launches have a part each.
const LINE: usize = 64;
/// Bytes of a buffer, but for arguments that are larger.
const PAGE: usize = 4096;

/// Buffers of system memory of which pieces are handed out.
#[derive(Debug)]
pub(crate) struct Pool {
    device: Arc<Device>,
    pages: Mutex<Vec<Arc<Page>>>,
}

/// One buffer, and which of its lines are taken.
#[derive(Debug)]
struct Page {
    memory: Memory,
    taken: Mutex<Vec<bool>>,
}

impl Page {
    /// Takes `lines` lines that lie together; the first one's number.
    fn take(&self, lines: usize) -> Option<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = first_fit(&taken, lines)?;
        taken[first..first + lines].fill(true);
        Some(first)
    }
}

/// Where as many places are free one after the other.
fn first_fit(taken: &[bool], lines: usize) -> Option<usize> {
    let mut free = 0;
    for (index, is_taken) in taken.iter().enumerate() {
        free = if *is_taken { 0 } else { free + 1 };
        if free == lines {
            return Some(index + 1 - lines);
        }
    }
    None
}

impl Pool {
    /// One without memory yet.
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self {
            device: device.clone(),
            pages: Mutex::default(),
        }
    }

    /// A piece of at least `bytes`, all zeros.
    pub(crate) fn take(&self, bytes: usize) -> Result<Piece> {
        let lines = bytes.div_ceil(LINE).max(1);
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let found = pages
            .iter()
            .find_map(|page| Some((page.clone(), page.take(lines)?)));
        let (page, first) = match found {
            Some(found) => found,
            None => {
                let size = (lines * LINE).max(PAGE);
                let memory = Memory::gtt(&self.device, size)?;
                let mut taken = vec![false; memory.size() / LINE];
                taken[..lines].fill(true);
                let page = Arc::new(Page {
                    memory,
                    taken: Mutex::new(taken),
                });
                pages.push(page.clone());
                (page, 0)
            }
        };
        let piece = Piece { page, first, lines };
        piece.write(0, &vec![0u8; lines * LINE]);
        Ok(piece)
    }
}

/// A part of a buffer, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    page: Arc<Page>,
    first: usize,
    lines: usize,
}

impl Piece {
    /// Its address.
    pub(crate) fn address(&self) -> u64 {
        self.page.memory.address() + self.offset() as u64
    }

    /// Copies values to a byte of it.
    ///
    /// # Panics
    /// When they don't fit.
    pub(crate) fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        let end = offset + size_of_val(values);
        assert!(end <= self.lines * LINE, "beyond the arguments");
        self.page.memory.write(self.offset() + offset, values);
    }

    fn offset(&self) -> usize {
        self.first * LINE
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let taken = &self.page.taken;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken[self.first..self.first + self.lines].fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_is_large_enough() {
        let [o, x] = [false, true];
        assert_eq!(first_fit(&[o, o], 1), Some(0));
        assert_eq!(first_fit(&[x, o, x, o, o, x], 2), Some(3));
        assert_eq!(first_fit(&[x, o, x, o, o], 3), None);
        assert_eq!(first_fit(&[], 1), None);
    }
}
