// SPDX-License-Identifier: GPL-2.0-only

//! Where a process sees what on a GPU: arithmetic on addresses only.
//!
//! A shader's flat address is sent to local data share (LDS), to scratch or to memory by its upper
//! bits. The LDS and scratch apertures lie in the hole of the 48-bit address space, so that no
//! address of memory can fall into them; SH_MEM_BASES tells the hardware their upper 16 bits, and
//! their size of 4 GiB is fixed.

use crate::gfx::ApertureBases;

/// A span of addresses as the user ABI states it: first and last address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aperture {
    /// First address.
    pub(crate) base: u64,
    /// Last address.
    pub(crate) limit: u64,
}

impl Aperture {
    /// The 4 GiB that begin at `base`, which is a multiple of 4 GiB.
    const fn four_gib(base: u64) -> Self {
        Self {
            base,
            limit: base | 0xffff_ffff,
        }
    }
}

/// The apertures of one process on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Apertures {
    /// Local data share.
    pub(crate) lds: Aperture,
    /// Scratch (private) memory.
    pub(crate) scratch: Aperture,
    /// Addresses that user space may give to memory.
    pub(crate) gpuvm: Aperture,
    /// Where the driver puts the trap handler: out of the user's reach, in the upper half.
    pub(crate) trap: u64,
}

/// `AMDGPU_VA_RESERVED_BOTTOM` (amdgpu_vm.h).
const RESERVED_BOTTOM: u64 = 64 << 10;
/// `AMDGPU_VA_RESERVED_CSA_SIZE`, `AMDGPU_VA_RESERVED_SEQ64_SIZE` and
/// `AMDGPU_VA_RESERVED_TRAP_SIZE` (amdgpu_vm.h), from the top of the address space downwards.
const RESERVED_TOP: [u64; 3] = [2 << 20, 2 << 20, 64 << 10];

/// Bytes of a GPU page: `AMDGPU_GPU_PAGE_SIZE`.
const GPU_PAGE: u64 = 4096;

impl Apertures {
    /// The apertures of a process on a GPU whose LDS and scratch begin at `bases`.
    ///
    /// `gpuvm_size` is the size of the address space left to compute, `max_pfn` the number of GPU
    /// pages of the whole of it (`amdgpu_vm_manager.max_pfn`).
    pub(crate) const fn new(bases: ApertureBases, gpuvm_size: u64, max_pfn: u64) -> Self {
        let top = max_pfn.saturating_mul(GPU_PAGE);
        let reserved = RESERVED_TOP[0] + RESERVED_TOP[1] + RESERVED_TOP[2];
        Self {
            lds: Aperture::four_gib(bases.lds),
            scratch: Aperture::four_gib(bases.scratch),
            gpuvm: Aperture {
                base: RESERVED_BOTTOM,
                limit: gpuvm_size.saturating_sub(1),
            },
            trap: top.saturating_sub(reserved),
        }
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_apertures))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;
    use crate::gfx::testing::mi300x;

    /// 48 bits of address, of which user space gets the lower half.
    fn gfx9() -> Apertures {
        Apertures::new(mi300x().chip.apertures, 1 << 47, 1 << 36)
    }

    #[test]
    fn lds_and_scratch_lie_in_the_address_hole() {
        for aperture in [gfx9().lds, gfx9().scratch] {
            assert!(aperture.base >= 1 << 47);
            assert!(aperture.limit < 0xffff_8000_0000_0000);
        }
    }

    #[test]
    fn lds_and_scratch_are_four_gib_each() {
        assert_eq!(
            gfx9().lds,
            Aperture {
                base: 1 << 48,
                limit: 0x1_0000_ffff_ffff
            }
        );
        assert_eq!(
            gfx9().scratch,
            Aperture {
                base: 2 << 48,
                limit: 0x2_0000_ffff_ffff
            }
        );
    }

    #[test]
    fn their_upper_sixteen_bits_are_what_sh_mem_bases_gets() {
        assert_eq!((gfx9().lds.base >> 48, gfx9().scratch.base >> 48), (1, 2));
        assert_eq!(gfx9().lds.base << 16, 0);
        assert_eq!(gfx9().scratch.base << 16, 0);
    }

    #[test]
    fn user_memory_leaves_out_the_lowest_64_kib() {
        assert_eq!(
            gfx9().gpuvm,
            Aperture {
                base: 0x10000,
                limit: 0x7fff_ffff_ffff
            }
        );
    }

    #[test]
    fn the_trap_handler_is_below_what_amdgpu_reserves_at_the_top() {
        assert_eq!(gfx9().trap, (1 << 48) - (4 << 20) - (64 << 10));
        assert_eq!(gfx9().trap % GPU_PAGE, 0);
    }

    #[test]
    fn nonsense_facts_do_not_overflow() {
        assert_eq!(Apertures::new(mi300x().chip.apertures, 0, 0).gpuvm.limit, 0);
        assert_eq!(Apertures::new(mi300x().chip.apertures, 0, 0).trap, 0);
        assert_eq!(
            Apertures::new(mi300x().chip.apertures, 0, u64::MAX).trap,
            u64::MAX - (4 << 20) - (64 << 10)
        );
    }
}
