// SPDX-License-Identifier: GPL-2.0-only

//! A bit field of a 32-bit hardware word, under the name AMD's headers give it.
//!
//! Formats declare their fields as constants in a module named like the register or packet, so that
//! `cp_hqd_pq_control::QUEUE_SIZE.of(9)` can be searched for in `gc_9_4_3_sh_mask.h` as it stands.

/// Bits `shift .. shift + width` of a 32-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    shift: u32,
    width: u32,
}

impl Field {
    /// The field from bit `low` up to and including bit `high`, as the headers' masks show it.
    pub(crate) const fn bits(high: u32, low: u32) -> Self {
        Self {
            shift: low,
            width: high - low + 1,
        }
    }

    /// The one-bit field at `bit`.
    pub(crate) const fn bit(bit: u32) -> Self {
        Self::bits(bit, bit)
    }

    /// The field's bits within the word; the `…_MASK` of the headers.
    pub(crate) const fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.width)) << self.shift
    }

    /// `value` at the field's place, zeroes elsewhere. Bits that do not fit are a caller's mistake
    /// and are cut off rather than spilt into the next field.
    pub(crate) const fn of(self, value: u32) -> u32 {
        debug_assert!(value & !(u32::MAX >> (32 - self.width)) == 0);
        (value << self.shift) & self.mask()
    }

    /// A one-bit field, set or clear.
    pub(crate) const fn flag(self, set: bool) -> u32 {
        self.of(set as u32)
    }

    /// The field's value in `word`.
    pub(crate) const fn get(self, word: u32) -> u32 {
        (word & self.mask()) >> self.shift
    }

    /// `word` with this field replaced by `value`.
    pub(crate) const fn replace(self, word: u32, value: u32) -> u32 {
        (word & !self.mask()) | self.of(value)
    }
}

/// The low half of a 64-bit address, as the hardware's `…_lo` words take it.
pub(crate) const fn lo(value: u64) -> u32 {
    value as u32
}

/// The high half of a 64-bit address, as the hardware's `…_hi` words take it.
pub(crate) const fn hi(value: u64) -> u32 {
    (value >> 32) as u32
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx_field))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn field_is_placed_and_read_back() {
        let field = Field::bits(13, 8);
        assert_eq!(field.mask(), 0x3f00);
        assert_eq!(field.of(5), 0x500);
        assert_eq!(field.get(0xffff_c5ff), 5);
        assert_eq!(field.replace(0xffff_ffff, 0), 0xffff_c0ff);
    }

    #[test]
    fn whole_word_and_top_bit_have_masks() {
        assert_eq!(Field::bits(31, 0).mask(), u32::MAX);
        assert_eq!(Field::bit(31).flag(true), 0x8000_0000);
        assert_eq!(Field::bit(31).flag(false), 0);
    }

    #[test]
    fn address_halves() {
        assert_eq!(lo(0x1234_5678_9abc_def0), 0x9abc_def0);
        assert_eq!(hi(0x1234_5678_9abc_def0), 0x1234_5678);
    }
}
