// SPDX-License-Identifier: GPL-2.0-only

//! How often the kernel's log is written to (`include/linux/ratelimit.h`).

use super::ffi;

/// Whether to say once more what a user can bring about as often as it likes: ten times in 5 s, for
/// all such messages of the module together. Legal in any context.
pub(crate) fn may_complain() -> bool {
    ffi::amdkfd_may_complain()
}

#[kernel::macros::kunit_tests(amdkfd_ratelimit)]
mod tests {
    use super::*;

    #[test]
    fn who_complains_without_end_is_not_heard() {
        let heard = (0..1000).filter(|_| may_complain()).count();
        // As many again where it takes longer than that.
        assert!(heard <= 40);
    }
}
