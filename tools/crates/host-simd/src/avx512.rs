// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the compiler does not make of loops: masks of lanes, which AVX-512 has registers for.
//!
//! Vectors are made of arrays and become arrays again by value: the intrinsics that take pointers
//! copy through the stack where debug assertions are on.
#![expect(
    clippy::incompatible_msrv,
    reason = "build.rs leaves this out where the compiler is older than 1.89"
)]
#![allow(
    clippy::needless_range_loop,
    clippy::explicit_counter_loop,
    reason = "iterators and closures are functions that are not always inlined, and then not \
              compiled for the level"
)]

use crate::{LANES, TABLE};
use std::arch::x86_64::*;
use std::mem::transmute;

/// Dwords of a vector.
const DWORDS: usize = 16;

/// A vector's dwords.
type Dwords = [u32; DWORDS];

#[target_feature(enable = "avx512f")]
#[inline]
fn vector(dwords: &Dwords) -> __m512i {
    // SAFETY: both are 64 bytes, of which any is a value.
    unsafe { transmute::<Dwords, __m512i>(*dwords) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn floats(dwords: &Dwords) -> __m512 {
    // SAFETY: as above.
    unsafe { transmute::<Dwords, __m512>(*dwords) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn dwords(vector: __m512i) -> Dwords {
    // SAFETY: as above.
    unsafe { transmute::<__m512i, Dwords>(vector) }
}

/// Vectors of a row.
const COUNT: usize = LANES / DWORDS;

/// The lanes' mask of a vector.
#[inline(always)]
fn part(mask: u64, index: usize) -> __mmask16 {
    (mask >> (DWORDS * index)) as __mmask16
}

#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
pub(crate) fn mask(flags: &[u32; LANES]) -> u64 {
    let (flags, mut mask) = (flags.as_chunks().0, 0);
    for index in 0..COUNT {
        mask |= u64::from(_mm512_movepi32_mask(vector(&flags[index]))) << (DWORDS * index);
    }
    mask
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn any(lanes: &[u32; LANES]) -> bool {
    let mut any = _mm512_setzero_si512();
    for lanes in lanes.as_chunks().0 {
        any = _mm512_or_si512(any, vector(lanes));
    }
    _mm512_test_epi32_mask(any, any) != 0
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn put(to: &mut [u32; LANES], from: &[u32; LANES], mask: u64) {
    let (to, from) = (to.as_chunks_mut().0, from.as_chunks().0);
    for index in 0..COUNT {
        let (old, new) = (vector(&to[index]), vector(&from[index]));
        to[index] = dwords(_mm512_mask_blend_epi32(part(mask, index), old, new));
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn select(
    to: &mut [u32; LANES],
    [unset, set]: [&[u32; LANES]; 2],
    mask: u64,
    active: u64,
) {
    let (to, unset, set) = (to.as_chunks_mut().0, unset.as_chunks().0, set.as_chunks().0);
    for index in 0..COUNT {
        let old = vector(&to[index]);
        let (unset, set) = (vector(&unset[index]), vector(&set[index]));
        let value = _mm512_mask_blend_epi32(part(mask, index), unset, set);
        to[index] = dwords(_mm512_mask_blend_epi32(part(active, index), old, value));
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn any_nan(values: &[u32; LANES]) -> bool {
    let mut found = 0;
    for values in values.as_chunks().0 {
        let values = floats(values);
        found |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    }
    found != 0
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn look_up(table: &[[u32; TABLE]], index: &[u32; LANES], to: &mut [u32; LANES]) {
    const { assert!(TABLE == 2 * DWORDS) };
    let (to, index) = (to.as_chunks_mut().0, index.as_chunks().0);
    let mut found = [_mm512_setzero_si512(); COUNT];
    let mut here = 0;
    for part in table {
        let (low, high) = (
            vector(&part.as_chunks().0[0]),
            vector(&part.as_chunks().0[1]),
        );
        for lane in 0..COUNT {
            // Of two vectors the low five bits of an index choose.
            let index = vector(&index[lane]);
            let value = _mm512_permutex2var_epi32(low, index, high);
            let number = _mm512_srli_epi32::<5>(index);
            let is_here = _mm512_cmpeq_epi32_mask(number, _mm512_set1_epi32(here));
            found[lane] = _mm512_mask_blend_epi32(is_here, found[lane], value);
        }
        here += 1;
    }
    for lane in 0..COUNT {
        to[lane] = dwords(found[lane]);
    }
}
