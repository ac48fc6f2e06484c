// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What PM4 and SDMA packets have in common: bit fields and comparisons. Pure.

/// A field of a packet dword: `width` bits from `shift` on.
pub const fn field(dword: u32, shift: u32, width: u32) -> u32 {
    (dword >> shift) & (u32::MAX >> (32 - width))
}

/// WAIT_REG_MEM.FUNCTION and SDMA POLL_REGMEM.FUNC: whether `value` compares as asked to
/// `reference`.
pub const fn compare(function: u32, value: u64, reference: u64) -> bool {
    match function {
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        6 => value > reference,
        _ => true,
    }
}
