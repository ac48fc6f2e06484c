// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the compiler does not make of loops: masks of lanes, which AVX-512 has registers for.
#![expect(
    clippy::incompatible_msrv,
    reason = "build.rs leaves this out where the compiler is older than 1.89"
)]

use crate::LANES;
use std::arch::x86_64::*;

/// Dwords of a vector.
const DWORDS: usize = 16;

/// # Safety
/// The machine must have AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(crate) unsafe fn mask(flags: &[i8; LANES]) -> u64 {
    // SAFETY: 64 bytes, at any address.
    _mm512_movepi8_mask(unsafe { _mm512_loadu_si512(flags.as_ptr().cast()) })
}

/// # Safety
/// The machine must have AVX-512 F.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) unsafe fn put(to: &mut [u32; LANES], from: &[u32; LANES], mask: u64) {
    for index in 0..LANES / DWORDS {
        let (to, from) = (&mut to[DWORDS * index..], &from[DWORDS * index..]);
        assert!(to.len() >= DWORDS && from.len() >= DWORDS);
        // SAFETY: both have 16 dwords, at any address.
        unsafe {
            let value = _mm512_loadu_si512(from.as_ptr().cast());
            let lanes = (mask >> (DWORDS * index)) as __mmask16;
            _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), lanes, value);
        }
    }
}

/// # Safety
/// The machine must have AVX-512 F.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) unsafe fn any_nan(values: &[u32; LANES]) -> bool {
    let mut found = 0;
    for values in values.chunks_exact(DWORDS) {
        // SAFETY: a chunk has 16 dwords, at any address.
        let values = unsafe { _mm512_loadu_ps(values.as_ptr().cast()) };
        found |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    }
    found != 0
}
