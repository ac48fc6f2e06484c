// SPDX-License-Identifier: GPL-2.0-only

//! What waits for one reader of SMI events.

use core::ops::Range;
use kernel::prelude::*;

/// Bytes that wait for a reader.
pub(super) struct Inbox {
    pub(super) ring: KVec<u8>,
    pub(super) first: usize,
    pub(super) length: usize,
}

impl Inbox {
    /// Where `count` bytes lie behind the first `offset` that wait: in one or two pieces.
    fn places(&self, offset: usize, count: usize) -> [Range<usize>; 2] {
        let size = self.ring.len();
        let first = (self.first + offset).checked_rem(size).unwrap_or(0);
        let head = count.min(size - first);
        [first..first + head, 0..count - head]
    }

    /// Takes a line, or leaves it if there is no room for all of it.
    pub(super) fn put(&mut self, line: &[u8]) -> bool {
        if self.ring.len() - self.length < line.len() {
            return false;
        }
        let mut left = line;
        for place in self.places(self.length, line.len()) {
            let (piece, rest) = left.split_at(place.len());
            if let Some(to) = self.ring.get_mut(place) {
                to.copy_from_slice(piece);
            }
            left = rest;
        }
        self.length += line.len();
        true
    }

    /// Moves as many bytes as there are room and bytes for. Returns how many.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let count = self.length.min(into.len());
        let [one, other] = self.places(0, count);
        let (head, tail) = into.split_at_mut(one.len());
        if let (Some(one), Some(other), Some(tail)) = (
            self.ring.get(one),
            self.ring.get(other.clone()),
            tail.get_mut(..other.len()),
        ) {
            head.copy_from_slice(one);
            tail.copy_from_slice(other);
        }
        self.first = (self.first + count)
            .checked_rem(self.ring.len())
            .unwrap_or(0);
        self.length -= count;
        count
    }
}
