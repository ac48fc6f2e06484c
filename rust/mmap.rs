// SPDX-License-Identifier: GPL-2.0-only

//! The offset cookie of `mmap` on /dev/kfd: which thing of ours a mapping shows.
//!
//! User space never computes one: it gets the cookie from an ioctl and hands it back to `mmap`. The
//! layout is nevertheless fixed, because old user space builds doorbell cookies itself
//! (`KFD_MMAP_*` in kfd_priv.h): bits 63:62 are the type, bits 61:46 a gpu_id, and what lies below
//! is the offset within the thing.

use crate::ids::GpuId;

/// `KFD_MMAP_TYPE_SHIFT`.
const TYPE_SHIFT: u32 = 62;
/// `KFD_MMAP_GPU_ID_SHIFT`.
const GPU_ID_SHIFT: u32 = 46;
/// `KFD_MMAP_GPU_ID_MASK`, shifted down: a gpu_id has `KFD_GPU_ID_HASH_WIDTH` bits.
const GPU_ID_MASK: u64 = 0xffff;

/// `KFD_MMAP_TYPE_MMIO`.
const MMIO: u64 = 0;
/// `KFD_MMAP_TYPE_RESERVED_MEM`: the context-save area of old APUs.
const RESERVED_MEMORY: u64 = 1;
/// `KFD_MMAP_TYPE_EVENTS`.
const EVENTS: u64 = 2;

/// What a mapping of /dev/kfd shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MmapTarget {
    /// The page of a GPU's registers that user space may write (HDP flush).
    Mmio(GpuId),
    /// The signal page: one 64-bit slot for each signal event of the process. CREATE_EVENT still
    /// gives the cookie out; it cannot be mapped, for the page is a buffer of the process's.
    Events,
    /// The doorbells of the process on one GPU.
    Doorbell(GpuId),
}

/// Why a cookie stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadCookie {
    /// It is of a type that is no longer supported.
    Unsupported,
    /// It names no GPU, and its type needs one.
    NoGpu,
}

impl MmapTarget {
    /// What `offset`, in bytes, stands for.
    pub(crate) const fn from_offset(offset: u64) -> Result<Self, BadCookie> {
        // CAST: 16 bits.
        let gpu = GpuId::new(((offset >> GPU_ID_SHIFT) & GPU_ID_MASK) as u32);
        match (offset >> TYPE_SHIFT, gpu) {
            (RESERVED_MEMORY, _) => Err(BadCookie::Unsupported),
            (EVENTS, _) => Ok(Self::Events),
            (_, None) => Err(BadCookie::NoGpu),
            (MMIO, Some(gpu)) => Ok(Self::Mmio(gpu)),
            (_, Some(gpu)) => Ok(Self::Doorbell(gpu)),
        }
    }

    /// The cookie to give to user space.
    pub(crate) const fn to_offset(self) -> u64 {
        match self {
            Self::Mmio(gpu) => MMIO << TYPE_SHIFT | Self::gpu_bits(gpu),
            Self::Events => EVENTS << TYPE_SHIFT,
            Self::Doorbell(gpu) => 3 << TYPE_SHIFT | Self::gpu_bits(gpu),
        }
    }

    const fn gpu_bits(gpu: GpuId) -> u64 {
        (gpu.raw() as u64 & GPU_ID_MASK) << GPU_ID_SHIFT
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_mmap))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;

    fn targets(gpu: u32) -> Option<[MmapTarget; 3]> {
        let gpu = GpuId::new(gpu)?;
        Some([
            MmapTarget::Mmio(gpu),
            MmapTarget::Events,
            MmapTarget::Doorbell(gpu),
        ])
    }

    #[test]
    fn cookies_survive_the_round_trip() {
        for target in [1, 35969, 0xffff].into_iter().filter_map(targets).flatten() {
            assert_eq!(MmapTarget::from_offset(target.to_offset()), Ok(target));
        }
    }

    #[test]
    fn the_types_are_those_of_the_abi() {
        let cookies = targets(1).map(|targets| targets.map(MmapTarget::to_offset));
        let expected = [
            0x0000_4000_0000_0000,
            0x8000_0000_0000_0000,
            0xc000_4000_0000_0000,
        ];
        assert_eq!(cookies, Some(expected));
    }

    #[test]
    fn reserved_memory_is_refused_whatever_its_gpu() {
        assert_eq!(
            MmapTarget::from_offset(1 << 62),
            Err(BadCookie::Unsupported)
        );
        assert_eq!(
            MmapTarget::from_offset(1 << 62 | 7 << 46),
            Err(BadCookie::Unsupported)
        );
    }

    #[test]
    fn the_offset_within_a_target_is_ignored() {
        for target in targets(0xffff).into_iter().flatten() {
            let inside = target.to_offset() | 0x3fff_ffff_f000;
            assert_eq!(MmapTarget::from_offset(inside), Ok(target));
        }
    }

    #[test]
    fn a_cookie_that_needs_a_gpu_must_name_one() {
        assert_eq!(MmapTarget::from_offset(3 << 62), Err(BadCookie::NoGpu));
        assert_eq!(MmapTarget::from_offset(0), Err(BadCookie::NoGpu));
        assert_eq!(MmapTarget::from_offset(2 << 62), Ok(MmapTarget::Events));
    }
}
