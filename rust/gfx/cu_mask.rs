// SPDX-License-Identifier: GPL-2.0-only

//! Which compute units (CU) a queue may use: from user space's row of bits to the hardware's masks.
//!
//! User space numbers the CUs of a node round robin over its XCCs, then over shader engines, then
//! over the shader arrays of an engine, so that a queue with few CUs has them spread evenly.
//! Hardware wants, for each engine of each XCC, a bit for each CU that works; one array has the low
//! half of the word, the other the high half.

use super::CuMask;

/// Shader engines of an XCC that the mask has a word for.
const ENGINES: usize = 8;

/// Shader arrays of an engine that a word has a half for.
const ARRAYS: usize = 2;

/// CUs of a shader array that a half word has a bit for.
const CUS: u32 = 16;

/// How an XCC's CUs are grouped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShaderEngines {
    /// Shader engines of an XCC.
    pub(crate) count: u32,
    /// Shader arrays of an engine.
    pub(crate) arrays: u32,
    /// Work-groups run on pairs of CUs: two neighbouring bits are one.
    pub(crate) pairs: bool,
}

/// Whose bits are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// The XCC, within the node.
    pub(crate) xcc: u32,
    /// XCCs of the node.
    pub(crate) xccs: u32,
    /// CUs of the node that work.
    pub(crate) cus: u32,
}

/// Whether both of each two neighbouring bits are set, or none: what hardware wants that runs
/// work-groups on pairs of CUs.
pub(crate) fn has_whole_pairs(user: &[u32]) -> bool {
    const FIRSTS: u32 = 0x5555_5555;
    user.iter().all(|word| (word ^ word >> 1) & FIRSTS == 0)
}

/// The masks of one XCC for the bits of `user`, of which those beyond the node's CUs mean nothing.
///
/// `present` says which CUs of an array work, by engine modulo `SE`, and by array, one further for
/// each `SE` engines (`gfx_v9_0_get_cu_info`). The hardware counts only those: the first of them
/// has the lowest bit.
pub(crate) fn spread<const SE: usize, const SH: usize>(
    user: &[u32],
    present: &[[u32; SH]; SE],
    engines: ShaderEngines,
    share: Share,
) -> CuMask {
    let bits = (user.len() as u32 * 32).min(share.cus);
    let arrays = (engines.arrays as usize).min(ARRAYS).min(SH);
    let count = (engines.count as usize).min(ENGINES);
    let works = |engine: usize, array: usize| {
        let row = present.get(engine % SE);
        let units = row.and_then(|row| row.get(array + engine / SE));
        units.map_or(0, |units| units.count_ones())
    };
    let (step, unit) = if engines.pairs { (2, 3) } else { (1, 1) };
    let mut mask = [0; ENGINES];
    let places = (0..CUS)
        .step_by(step)
        .flat_map(|cu| (0..arrays).map(move |array| (cu, array)))
        .flat_map(|(cu, array)| (0..count).map(move |engine| (cu, array, engine)))
        .filter(|&(cu, array, engine)| works(engine, array) > cu);
    let mine = (share.xcc..bits).step_by(share.xccs.max(1) as usize * step);
    for ((cu, array, engine), bit) in places.zip(mine) {
        let word = user.get(bit as usize / 32).copied().unwrap_or(0);
        if word & unit << (bit % 32) != 0 {
            mask[engine] |= unit << (cu + CUS * array as u32);
        }
    }
    mask
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx_cu_mask))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    const ONE_ARRAY: ShaderEngines = ShaderEngines {
        count: 4,
        arrays: 1,
        pairs: false,
    };

    #[test]
    fn bits_go_round_the_engines() {
        let present = [[0x3ff, 0]; 4];
        let share = Share {
            xcc: 0,
            xccs: 1,
            cus: 40,
        };
        assert_eq!(
            spread(&[0b10_0011], &present, ONE_ARRAY, share),
            [1, 3, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_second_array_has_the_high_half() {
        let present = [[0x3, 0x3]; 4];
        let engines = ShaderEngines {
            count: 4,
            arrays: 2,
            pairs: false,
        };
        let share = Share {
            xcc: 0,
            xccs: 1,
            cus: 16,
        };
        assert_eq!(
            spread(&[0x0010], &present, engines, share),
            [1 << 16, 0, 0, 0, 0, 0, 0, 0]
        );
        let all = spread(&[0xffff], &present, engines, share);
        assert_eq!(all[..4], [0x3_0003; 4]);
        assert_eq!(all[4..], [0; 4]);
    }

    #[test]
    fn pairs_go_together() {
        let present = [[0xf, 0xf], [0x3, 0x3], [0; 2], [0; 2]];
        let engines = ShaderEngines {
            count: 2,
            arrays: 2,
            pairs: true,
        };
        let share = Share {
            xcc: 0,
            xccs: 1,
            cus: 12,
        };
        // Array 0 of both engines, array 1 of both, then what engine 0 has more.
        let of = |user| spread(&[user], &present, engines, share);
        assert_eq!(of(0b11), [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(0b1100), [0, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(0b11_0000), [3 << 16, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(0b11_0000_0000), [0b1100, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn half_a_pair_is_seen_wherever_it_is() {
        assert!(has_whole_pairs(&[0, 0xc000_0003, u32::MAX]));
        for bit in 0..64 {
            let mut user = [0; 2];
            user[bit / 32] = 1u32 << (bit % 32);
            assert!(!has_whole_pairs(&user));
        }
        // Neighbours of two pairs.
        assert!(!has_whole_pairs(&[0b110]));
    }

    #[test]
    fn every_xcc_has_its_own_bits() {
        let present = [[0x3ff, 0]; 4];
        let of = |xcc| {
            let share = Share {
                xcc,
                xccs: 4,
                cus: 160,
            };
            spread(&[0b0001_0010], &present, ONE_ARRAY, share)
        };
        assert_eq!(of(0), [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(1), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(2), [0; 8]);
    }

    #[test]
    fn broken_units_are_not_counted() {
        // Engine 1 has only two units that work, whichever they are.
        let present = [[0xf, 0], [0x9, 0], [0xf, 0], [0xf, 0]];
        let share = Share {
            xcc: 0,
            xccs: 1,
            cus: 14,
        };
        assert_eq!(
            spread(&[u32::MAX], &present, ONE_ARRAY, share),
            [0xf, 0x3, 0xf, 0xf, 0, 0, 0, 0]
        );
    }

    #[test]
    fn engines_beyond_the_fourth_have_the_next_column() {
        let mut present = [[0; 4]; 4];
        present
            .iter_mut()
            .for_each(|row| row[..2].copy_from_slice(&[0x3, 0x1]));
        let engines = ShaderEngines {
            count: 8,
            arrays: 1,
            pairs: false,
        };
        let share = Share {
            xcc: 0,
            xccs: 1,
            cus: 12,
        };
        assert_eq!(
            spread(&[0b1010_1111_0001], &present, engines, share),
            [1, 2, 0, 2, 1, 1, 1, 1]
        );
    }

    #[test]
    fn bits_beyond_the_node_mean_nothing() {
        let present = [[0xf, 0]; 4];
        let share = Share {
            xcc: 0,
            xccs: 1,
            cus: 6,
        };
        assert_eq!(
            spread(&[u32::MAX, u32::MAX], &present, ONE_ARRAY, share),
            [3, 3, 1, 1, 0, 0, 0, 0]
        );
        assert_eq!(spread(&[], &present, ONE_ARRAY, share), [0; 8]);
    }
}
