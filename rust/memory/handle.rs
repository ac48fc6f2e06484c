// SPDX-License-Identifier: GPL-2.0-only

//! How user space names a buffer: the GPU where it was allocated, and a number there.
//!
//! Core-only.

/// A buffer's name: `gpu_id` in the upper half, in the lower the number (`MAKE_HANDLE` in C). What
/// a user passes may name nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(u64);

impl Handle {
    /// Buffer `index` of the GPU that the process calls so.
    pub(crate) const fn new(gpu_id: u32, index: u32) -> Self {
        Self((gpu_id as u64) << 32 | index as u64)
    }

    /// As a user passes it.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// As a user gets it.
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// The GPU it says.
    pub(crate) const fn gpu_id(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number it says.
    pub(crate) const fn index(self) -> u32 {
        // CAST: the lower half.
        self.0 as u32
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_memory_handle))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn a_handle_is_what_c_makes_of_it() {
        assert_eq!(Handle::new(35969, 7).raw(), 35969 << 32 | 7);
    }

    #[test]
    fn a_users_handle_comes_apart_into_halves() {
        let handle = Handle::from_raw(0x8c81_ffff_ffff);
        assert_eq!((handle.gpu_id(), handle.index()), (0x8c81, u32::MAX));
        assert_eq!(Handle::from_raw(u64::MAX).gpu_id(), u32::MAX);
        assert_eq!(Handle::from_raw(5).gpu_id(), 0);
    }
}
