// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Numbers for tests.

/// Numbers of 56 bits that are the same at each run.
pub fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }
}
