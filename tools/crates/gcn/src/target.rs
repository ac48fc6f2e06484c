// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Which instruction set, and what of a compute unit goes with it.
//!
//! Sources: LLVM's "User Guide for AMDGPU Backend" (GRANULATED_LDS_SIZE of
//! `compute_pgm_rsrc2`), and linux:drivers/gpu/drm/amd/amdkfd/cwsr_trap_handler_gfx9.asm
//! (`LDS_RESTORE_GRANULARITY_BYTES`).

/// A processor by LLVM's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Target {
    /// CDNA 3: MI300.
    #[default]
    Gfx942,
    /// CDNA 4: MI350.
    Gfx950,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::Gfx942, Target::Gfx950];

    /// What LLVM calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Gfx942 => "gfx942",
            Target::Gfx950 => "gfx950",
        }
    }

    /// LDS of a compute unit, and the most that a work-group can have: bytes.
    pub const fn lds_bytes(self) -> u32 {
        match self {
            Target::Gfx942 => 64 << 10,
            Target::Gfx950 => 160 << 10,
        }
    }

    /// LDS is allocated in so many bytes, and COMPUTE_PGM_RSRC2.LDS_SIZE counts them.
    pub const fn lds_granule(self) -> u32 {
        match self {
            Target::Gfx942 => 128 * 4,
            Target::Gfx950 => 320 * 4,
        }
    }
}
