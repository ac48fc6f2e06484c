// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The grid of a dispatch, and which of its work-groups are an XCC's. Pure; one of each per
//! dispatch.

/// The grid in work-groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// First group of each dimension.
    pub start: [u32; 3],
    /// End (exclusive) of each dimension.
    pub end: [u32; 3],
    /// Work-items of a full group.
    pub size: [u32; 3],
    /// Work-items of the last group of each dimension.
    pub last: [u32; 3],
}

impl Shape {
    /// A grid of `items` work-items in groups of `size`; both at least 1 in each dimension.
    pub fn of_items(items: [u32; 3], size: [u32; 3]) -> Self {
        let groups = |d: usize| items[d].div_ceil(size[d]);
        let last = |d: usize| items[d] - (groups(d).max(1) - 1) * size[d];
        Shape {
            start: [0; 3],
            end: [0, 1, 2].map(groups),
            size,
            last: [0, 1, 2].map(last),
        }
    }

    /// How many groups there are.
    pub fn groups(&self) -> u64 {
        (0..3)
            .map(|d| u64::from(self.end[d].saturating_sub(self.start[d])))
            .fold(1, u64::saturating_mul)
    }

    /// Id and size of the `index`-th group, x fastest.
    pub fn group(&self, index: u64) -> ([u32; 3], [u32; 3]) {
        let mut rest = index;
        let mut id = [0; 3];
        let mut size = self.size;
        for d in 0..3 {
            let count = u64::from((self.end[d] - self.start[d]).max(1));
            id[d] = self.start[d] + (rest % count) as u32;
            rest /= count;
            if id[d] + 1 == self.end[d] {
                size[d] = self.last[d];
            }
        }
        (id, size)
    }
}

/// The part of a grid that an XCC runs: every `of`-th chunk from `index` on. Source:
/// COMPUTE_TG_CHUNK_SIZE and COMPUTE_CURRENT_LOGIC_XCC_ID of the MQD (`v9_structs.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Groups of a chunk; 0 = the XCC runs the whole grid.
    pub chunk: u32,
    /// Which chunk is its first.
    pub index: u32,
    /// XCCs that share the grid.
    pub of: u32,
}

impl Share {
    /// The whole grid.
    pub const ALL: Share = Share {
        chunk: 0,
        index: 0,
        of: 1,
    };

    /// The index in the grid of the XCC's `own`-th group.
    pub fn group(&self, own: u64) -> u64 {
        if self.chunk == 0 || self.of <= 1 {
            return own;
        }
        let (chunk, of) = (u64::from(self.chunk), u64::from(self.of));
        let index = u64::from(self.index % self.of);
        (own / chunk * of + index)
            .saturating_mul(chunk)
            .saturating_add(own % chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_edge_of_a_grid_has_smaller_groups() {
        let shape = Shape::of_items([130, 3, 1], [64, 2, 1]);
        assert_eq!(shape.groups(), 6);
        assert_eq!(shape.group(0), ([0, 0, 0], [64, 2, 1]));
        assert_eq!(shape.group(2), ([2, 0, 0], [2, 2, 1]));
        assert_eq!(shape.group(5), ([2, 1, 0], [2, 1, 1]));
    }

    #[test]
    fn shares_cover_a_grid_once() {
        for (chunk, of) in [(1, 4), (2, 3), (0, 1), (5, 1)] {
            let mut seen = vec![0; 50];
            for index in 0..of {
                let share = Share { chunk, index, of };
                (0..)
                    .map(|own| share.group(own) as usize)
                    .take_while(|group| *group < 50)
                    .for_each(|group| seen[group] += 1);
            }
            assert!(
                seen.iter().all(|count| *count == 1),
                "{chunk} {of} {seen:?}"
            );
        }
        let second = Share {
            chunk: 1,
            index: 1,
            of: 4,
        };
        assert_eq!([0, 1, 2].map(|own| second.group(own)), [1, 5, 9]);
    }
}
