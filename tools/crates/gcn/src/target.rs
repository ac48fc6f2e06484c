// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Which instruction set, and what of a compute unit goes with it.
//!
//! Sources: LLVM's "User Guide for AMDGPU Backend" (GRANULATED_LDS_SIZE of
//! `compute_pgm_rsrc2`), and linux:drivers/gpu/drm/amd/amdkfd/cwsr_trap_handler_gfx9.asm
//! (`LDS_RESTORE_GRANULARITY_BYTES`).

/// A processor by LLVM's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Target {
    /// CDNA 2: MI200. Its 16-bit matrix products take and leave no subnormal numbers (PyTorch's
    /// "Numerical accuracy" has it from AMD); that its dot products do not either is not modelled.
    /// Where the sums of those products are rounded nobody has published: as on gfx942 here.
    Gfx90a,
    /// CDNA 3: MI300.
    #[default]
    Gfx942,
    /// CDNA 4: MI350.
    Gfx950,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 3] = [Target::Gfx942, Target::Gfx950, Target::Gfx90a];

    /// What LLVM calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Gfx90a => "gfx90a",
            Target::Gfx942 => "gfx942",
            Target::Gfx950 => "gfx950",
        }
    }

    /// Whether waves are launched with the address of their scratch in FLAT_SCRATCH. Without,
    /// kernels make it of what they get in SGPRs, and reach scratch through a buffer, too.
    pub const fn has_architected_scratch(self) -> bool {
        !matches!(self, Target::Gfx90a)
    }

    /// LDS of a compute unit, and the most that a work-group can have: bytes.
    pub const fn lds_bytes(self) -> u32 {
        match self {
            Target::Gfx90a | Target::Gfx942 => 64 << 10,
            Target::Gfx950 => 160 << 10,
        }
    }

    /// LDS is allocated in so many bytes, and COMPUTE_PGM_RSRC2.LDS_SIZE counts them.
    pub const fn lds_granule(self) -> u32 {
        match self {
            Target::Gfx90a | Target::Gfx942 => 128 * 4,
            Target::Gfx950 => 320 * 4,
        }
    }
}
