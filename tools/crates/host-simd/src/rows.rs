// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Rows of dwords that begin where the widest vectors do: an access that crosses a line of the
//! host's cache costs twice.

use crate::LANES;
use std::ops::{Deref, DerefMut};

/// A row and its alignment.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
struct Row([u32; LANES]);

/// So many rows, each aligned to 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Rows of zeros.
    pub fn new(count: usize) -> Rows {
        Rows(vec![Row([0; LANES]); count])
    }
}

impl Deref for Rows {
    type Target = [[u32; LANES]];

    #[inline(always)]
    fn deref(&self) -> &[[u32; LANES]] {
        const { assert!(size_of::<Row>() == size_of::<[u32; LANES]>()) };
        // SAFETY: each of the vector's rows is an array of dwords at its beginning, and nothing
        // more; the slice borrows the vector.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len()) }
    }
}

impl DerefMut for Rows {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [[u32; LANES]] {
        // SAFETY: as in `deref`; any dwords are a row, and the vector is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len()) }
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Rows {
    type Item = &'a [u32; LANES];
    type IntoIter = std::slice::Iter<'a, [u32; LANES]>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Rows {
    type Item = &'a mut [u32; LANES];
    type IntoIter = std::slice::IterMut<'a, [u32; LANES]>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_and_keep_what_is_written() {
        let mut rows = Rows::new(3);
        rows[1][63] = 5;
        rows[2] = [7; LANES];
        assert_eq!(rows.as_ptr().align_offset(64), 0);
        let copy = rows.clone();
        assert_eq!(copy.as_ptr().align_offset(64), 0);
        assert_eq!(copy, rows);
        let sums: Vec<u32> = copy.iter().map(|row| row.iter().sum()).collect();
        assert_eq!(sums, [0, 5, 7 * 64]);
    }

    #[test]
    fn there_may_be_no_row() {
        assert!(Rows::new(0).is_empty());
    }
}
