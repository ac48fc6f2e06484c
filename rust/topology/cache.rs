// SPDX-License-Identifier: GPL-2.0-only

//! The caches of a GPU node: computed from what the discovery table says of the graphics core and
//! from which compute units (CU) work.
//!
//! Core-only. A first-level cache serves a block of neighbouring CUs of one shader array, and there
//! is a [`Cache`] for each block in which a CU works; the levels above serve the whole node.

use super::{
    Cache,
    SiblingMap,
    CACHE_DATA,
    CACHE_GPU,
    CACHE_INSTRUCTION, //
};
use crate::gfx::{
    CacheLines,
    CacheSizes, //
};

/// Which compute units of a node work. All counts are of one XCC.
#[derive(Clone, Copy)]
pub(crate) struct ComputeUnits<'a> {
    /// By logical XCC, shader engine modulo 4, and shader array plus 1 for each 4 engines.
    pub(crate) bitmap: &'a [[[u32; 4]; 4]],
    /// The node's logical XCCs: neighbours.
    pub(crate) xcc_mask: u32,
    pub(crate) engines: u32,
    pub(crate) arrays_per_engine: u32,
    /// Of the largest shader array, working or not.
    pub(crate) cus_per_array: u32,
}

impl ComputeUnits<'_> {
    /// The working CUs of each shader array of the node.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        let first = self.xcc_mask.trailing_zeros() as usize;
        let count = self.xcc_mask.count_ones() as usize;
        let xccs = self.bitmap.iter().skip(first).take(count);
        xccs.flat_map(move |xcc| {
            let arrays = self.arrays_per_engine as usize;
            (0..self.engines as usize).flat_map(move |engine| {
                let row = &xcc[engine % 4];
                (0..arrays).map(move |array| row.get(array + engine / 4).copied().unwrap_or(0))
            })
        })
    }
}

/// A kind of cache.
pub(crate) struct CacheKind {
    pub(crate) level: u32,
    /// KiB; 0: there is none.
    pub(crate) size: u32,
    /// Bytes of a line.
    pub(crate) line: u32,
    /// What it is for: `CACHE_DATA` and such bits.
    pub(crate) content: u32,
    /// CUs of a shader array that share one.
    pub(crate) shared_by: u32,
}

/// From the first level to the last.
pub(crate) fn kinds(sizes: &CacheSizes, lines: &CacheLines, cus_per_array: u32) -> [CacheKind; 5] {
    let kind = |level, size, line, content, shared_by| CacheKind {
        level,
        size,
        line,
        content: content | CACHE_GPU,
        shared_by,
    };
    let of_second = match sizes.cus_of_second {
        0 => cus_per_array,
        cus => cus,
    };
    let last = sizes.last / sizes.memory_partitions.max(1);
    [
        kind(1, sizes.vector, lines.vector, CACHE_DATA, 1),
        kind(
            1,
            sizes.instruction,
            lines.instruction,
            CACHE_INSTRUCTION,
            sizes.cus_per_sequencer,
        ),
        kind(
            1,
            sizes.scalar,
            lines.scalar,
            CACHE_DATA,
            sizes.cus_per_sequencer,
        ),
        kind(2, sizes.second, lines.second, CACHE_DATA, of_second),
        kind(3, last, lines.last, CACHE_DATA, cus_per_array),
    ]
}

/// The lowest `bits` bits.
fn low_bits(bits: u32) -> u32 {
    1u32.checked_shl(bits).unwrap_or(0).wrapping_sub(1)
}

/// Hands every cache of a node to `each`, in the order in which user space lists them. The node's
/// first CU has the number `base`.
pub(crate) fn caches<E>(
    cus: &ComputeUnits<'_>,
    (sizes, lines): (&CacheSizes, &CacheLines),
    base: u32,
    mut each: impl FnMut(Cache) -> Result<(), E>,
) -> Result<(), E> {
    for kind in kinds(sizes, lines, cus.cus_per_array)
        .iter()
        .filter(|kind| kind.size != 0)
    {
        if kind.level == 1 {
            blocks(cus, kind, base, &mut each)?;
        } else if let Some(cache) = shared(cus, kind, base) {
            each(cache)?;
        }
    }
    Ok(())
}

/// A first-level cache for each block of CUs with a working one.
fn blocks<E>(
    cus: &ComputeUnits<'_>,
    kind: &CacheKind,
    base: u32,
    each: &mut impl FnMut(Cache) -> Result<(), E>,
) -> Result<(), E> {
    let per_block = kind.shared_by.max(1);
    for (array, working) in (0u32..).zip(cus.arrays()) {
        let base = base.wrapping_add(array.wrapping_mul(cus.cus_per_array));
        for first in (0..cus.cus_per_array).step_by(per_block as usize) {
            let block = working.checked_shr(first).unwrap_or(0) & low_bits(per_block);
            if block != 0 {
                let siblings = core::iter::once(block >> block.trailing_zeros());
                let first = base
                    .wrapping_add(first)
                    .wrapping_add(block.trailing_zeros());
                each(kind.cache(first, SiblingMap::new(siblings)))?;
            }
        }
    }
    Ok(())
}

/// The one cache of a higher level.
///
/// Its map is user ABI with a quirk: it begins with the first array that has a working CU, counted
/// from that CU, then come all arrays from the first on, and for lack of room the last one is left
/// out.
fn shared(cus: &ComputeUnits<'_>, kind: &CacheKind, base: u32) -> Option<Cache> {
    let arrays = cus
        .arrays()
        .map(|working| working & low_bits(kind.shared_by));
    let first = arrays.clone().find(|&working| working != 0)?;
    let siblings = core::iter::once(first >> first.trailing_zeros()).chain(arrays.clone());
    let siblings = SiblingMap::new(siblings.take(arrays.count()));
    Some(kind.cache(base.wrapping_add(first.trailing_zeros()), siblings))
}

impl CacheKind {
    fn cache(&self, processor_id_low: u32, sibling_map: SiblingMap) -> Cache {
        Cache {
            processor_id_low,
            level: self.level,
            size: self.size,
            cache_line_size: self.line,
            kind: self.content,
            sibling_map,
        }
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology_cache))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;
    use crate::gfx::testing::mi300x;

    /// A graphics core as the discovery table of MI300X states it.
    const SIZES: CacheSizes = CacheSizes {
        vector: 32,
        instruction: 64,
        scalar: 16,
        cus_per_sequencer: 2,
        second: 4096,
        cus_of_second: 0,
        last: 256 << 10,
        memory_partitions: 1,
    };

    const BASE: u32 = 0x8000_1000;

    fn cus(bitmap: &[[[u32; 4]; 4]], xcc_mask: u32) -> ComputeUnits<'_> {
        ComputeUnits {
            bitmap,
            xcc_mask,
            engines: 4,
            arrays_per_engine: 1,
            cus_per_array: 10,
        }
    }

    /// The caches of one kind: how many, and the first.
    fn listed(
        cus: &ComputeUnits<'_>,
        sizes: &CacheSizes,
        pick: (u32, u32),
    ) -> (u32, Option<Cache>) {
        let (mut count, mut first) = (0, None);
        let done = caches::<()>(cus, (sizes, &mi300x().chip.cache_lines), BASE, |cache| {
            if (cache.level, cache.kind) == pick {
                count += 1;
                first = first.or(Some(cache));
            }
            Ok(())
        });
        assert!(done.is_ok());
        (count, first)
    }

    #[test]
    fn a_block_without_working_units_has_no_cache() {
        let bitmap = [[[0b11_0000_0110, 0, 0, 0], [0; 4], [0; 4], [0; 4]]];
        let cus = cus(&bitmap, 1);
        let (count, first) = listed(&cus, &SIZES, (1, CACHE_INSTRUCTION | CACHE_GPU));
        assert_eq!(count, 3);
        let first = first.map(|cache| (cache.processor_id_low, cache.sibling_map.words()[0]));
        assert_eq!(first, Some((BASE + 1, 1)));
    }

    #[test]
    fn every_array_takes_its_numbers_whether_its_units_work_or_not() {
        let bitmap = [[[0; 4], [0; 4], [1, 0, 0, 0], [0; 4]]];
        let (count, first) = listed(&cus(&bitmap, 1), &SIZES, (2, CACHE_DATA | CACHE_GPU));
        assert_eq!(
            (count, first.map(|cache| cache.processor_id_low)),
            (1, Some(BASE))
        );
        let (count, first) = listed(
            &cus(&bitmap, 1),
            &CacheSizes { scalar: 0, ..SIZES },
            (1, CACHE_DATA | CACHE_GPU),
        );
        assert_eq!(
            (count, first.map(|cache| cache.processor_id_low)),
            (1, Some(BASE + 20))
        );
    }

    #[test]
    fn a_partition_has_the_caches_of_its_own_dies() {
        let bitmap = [[[0x3ff, 0, 0, 0]; 4]; 8];
        let all = listed(
            &cus(&bitmap, 0xff),
            &SIZES,
            (1, CACHE_INSTRUCTION | CACHE_GPU),
        )
        .0;
        let half = listed(
            &cus(&bitmap, 0xf0),
            &SIZES,
            (1, CACHE_INSTRUCTION | CACHE_GPU),
        )
        .0;
        assert_eq!((all, half), (8 * 4 * 5, 4 * 4 * 5));
    }

    #[test]
    fn the_map_of_a_shared_cache_has_the_quirk() {
        let bitmap = [[[0b1100, 0, 0, 0], [7, 0, 0, 0], [8, 0, 0, 0], [9, 0, 0, 0]]];
        let (_, cache) = listed(&cus(&bitmap, 1), &SIZES, (3, CACHE_DATA | CACHE_GPU));
        let map = cache.map(|cache| cache.sibling_map);
        assert_eq!(
            map.as_ref().map(SiblingMap::words),
            Some(&[0b11, 0b1100, 7, 8][..])
        );
    }

    #[test]
    fn the_last_level_is_split_with_the_memory() {
        let bitmap = [[[0x3ff, 0, 0, 0]; 4]; 8];
        let sizes = CacheSizes {
            memory_partitions: 4,
            ..SIZES
        };
        let (_, last) = listed(&cus(&bitmap, 0xff), &sizes, (3, CACHE_DATA | CACHE_GPU));
        assert_eq!(last.map(|cache| cache.size), Some(64 << 10));
    }

    #[test]
    fn a_sequencer_without_a_count_is_not_an_endless_loop() {
        let bitmap = [[[1, 0, 0, 0]; 4]];
        let sizes = CacheSizes {
            cus_per_sequencer: 0,
            ..SIZES
        };
        assert_eq!(
            listed(&cus(&bitmap, 1), &sizes, (1, CACHE_INSTRUCTION | CACHE_GPU)).0,
            4
        );
    }
}
