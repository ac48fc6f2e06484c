// SPDX-License-Identifier: GPL-2.0-only

//! Words as sets: bit n says whether n is in it.

/// The numbers of the bits that are set in `word`, in order.
pub(crate) fn set_bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        (bit < 64).then(|| {
            word &= word - 1;
            bit
        })
    })
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_bits))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn set_bits_come_in_order() {
        let mut bits = set_bits(1 | 1 << 5 | 1 << 63);
        assert_eq!(
            (bits.next(), bits.next(), bits.next()),
            (Some(0), Some(5), Some(63))
        );
        assert_eq!(bits.next(), None);
        assert_eq!(set_bits(0).count(), 0);
        assert_eq!(set_bits(u64::MAX).count(), 64);
    }
}
