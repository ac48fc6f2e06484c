// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Opcodes of vector memory. FLAT, GLOBAL, SCRATCH and MUBUF number their common operations alike:
//! one table serves all.

use crate::Target;

/// What an atomic does to memory; D is the data operand, C the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// D
    Swap,
    /// D if memory equals C (C is the data's upper half)
    CmpSwap,
    /// memory + D
    Add,
    /// memory - D
    Sub,
    /// D - memory (DS only)
    Rsub,
    /// signed minimum
    Smin,
    /// unsigned minimum
    Umin,
    /// signed maximum
    Smax,
    /// unsigned maximum
    Umax,
    /// and
    And,
    /// or
    Or,
    /// exclusive or
    Xor,
    /// 0 if memory >= D, else memory + 1
    Inc,
    /// D if memory is 0 or > D, else memory - 1
    Dec,
    /// Single or double precision sum, by width
    AddFloat,
    /// Minimum of floats
    MinFloat,
    /// Maximum of floats
    MaxFloat,
    /// D if memory equals C as floats (DS only)
    CmpSwapFloat,
    /// (memory & !D) | D1 (DS only)
    MskOr,
    /// memory - D if memory >= D, else memory + D1 (DS only)
    Wrap,
    /// Two halves
    PkAddF16,
    /// Two bfloat16
    PkAddBf16,
}

/// Which 16 bits of a register a narrow access means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All 32, extended.
    Whole,
    /// 15:0, the rest kept.
    Low,
    /// 31:16, the rest kept.
    High,
}

/// One operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemOp {
    /// 1 or 2 bytes into a register.
    LoadNarrow {
        /// 1 or 2.
        bytes: u8,
        /// Sign-extended.
        signed: bool,
        /// Where it goes.
        part: Part,
    },
    /// This many dwords.
    Load(u8),
    /// 1 or 2 bytes from a register.
    StoreNarrow {
        /// 1 or 2.
        bytes: u8,
        /// Where it comes from.
        part: Part,
    },
    /// This many dwords.
    Store(u8),
    /// Straight to LDS: bytes, sign-extended.
    LoadLds(u8, bool),
    /// Read-modify-write of this many dwords (1 or 2).
    Atomic(AtomicOp, u8),
    /// Through the format converter (MUBUF only): store?, D16?, components.
    Format(bool, bool, u8),
    /// A dword from LDS to memory (MUBUF only).
    StoreLds,
    /// Cache control.
    Cache,
}

/// Encodings that share this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// FLAT: the address says which memory.
    Flat,
    /// Scratch.
    Scratch,
    /// Global.
    Global,
    /// MUBUF: through a buffer descriptor.
    Buffer,
    /// MTBUF.
    Typed,
}

/// Code, mnemonic without its prefix, operation.
type Row = (u8, &'static str, MemOp);

const fn narrow(bytes: u8, signed: bool, part: Part) -> MemOp {
    MemOp::LoadNarrow {
        bytes,
        signed,
        part,
    }
}

const fn store(bytes: u8, part: Part) -> MemOp {
    MemOp::StoreNarrow { bytes, part }
}

use AtomicOp::*;
use MemOp::{Atomic, Cache, Format, Load, LoadLds, Store, StoreLds};
use Part::{High, Low, Whole};

/// Common to FLAT, SCRATCH, GLOBAL and MUBUF.
const COMMON: &[Row] = &[
    (16, "load_ubyte", narrow(1, false, Whole)),
    (17, "load_sbyte", narrow(1, true, Whole)),
    (18, "load_ushort", narrow(2, false, Whole)),
    (19, "load_sshort", narrow(2, true, Whole)),
    (20, "load_dword", Load(1)),
    (21, "load_dwordx2", Load(2)),
    (22, "load_dwordx3", Load(3)),
    (23, "load_dwordx4", Load(4)),
    (24, "store_byte", store(1, Whole)),
    (25, "store_byte_d16_hi", store(1, High)),
    (26, "store_short", store(2, Whole)),
    (27, "store_short_d16_hi", store(2, High)),
    (28, "store_dword", Store(1)),
    (29, "store_dwordx2", Store(2)),
    (30, "store_dwordx3", Store(3)),
    (31, "store_dwordx4", Store(4)),
    (32, "load_ubyte_d16", narrow(1, false, Low)),
    (33, "load_ubyte_d16_hi", narrow(1, false, High)),
    (34, "load_sbyte_d16", narrow(1, true, Low)),
    (35, "load_sbyte_d16_hi", narrow(1, true, High)),
    (36, "load_short_d16", narrow(2, false, Low)),
    (37, "load_short_d16_hi", narrow(2, false, High)),
];

/// SCRATCH and GLOBAL: straight to LDS.
const LDS: &[Row] = &[
    (38, "load_lds_ubyte", LoadLds(1, false)),
    (39, "load_lds_sbyte", LoadLds(1, true)),
    (40, "load_lds_ushort", LoadLds(2, false)),
    (41, "load_lds_sshort", LoadLds(2, true)),
    (42, "load_lds_dword", LoadLds(4, false)),
];

/// FLAT, GLOBAL and MUBUF.
const ATOMICS: &[Row] = &[
    (64, "atomic_swap", Atomic(Swap, 1)),
    (65, "atomic_cmpswap", Atomic(CmpSwap, 1)),
    (66, "atomic_add", Atomic(Add, 1)),
    (67, "atomic_sub", Atomic(Sub, 1)),
    (68, "atomic_smin", Atomic(Smin, 1)),
    (69, "atomic_umin", Atomic(Umin, 1)),
    (70, "atomic_smax", Atomic(Smax, 1)),
    (71, "atomic_umax", Atomic(Umax, 1)),
    (72, "atomic_and", Atomic(And, 1)),
    (73, "atomic_or", Atomic(Or, 1)),
    (74, "atomic_xor", Atomic(Xor, 1)),
    (75, "atomic_inc", Atomic(Inc, 1)),
    (76, "atomic_dec", Atomic(Dec, 1)),
    (77, "atomic_add_f32", Atomic(AddFloat, 1)),
    (78, "atomic_pk_add_f16", Atomic(PkAddF16, 1)),
    (79, "atomic_add_f64", Atomic(AddFloat, 2)),
    (80, "atomic_min_f64", Atomic(MinFloat, 2)),
    (81, "atomic_max_f64", Atomic(MaxFloat, 2)),
    (96, "atomic_swap_x2", Atomic(Swap, 2)),
    (97, "atomic_cmpswap_x2", Atomic(CmpSwap, 2)),
    (98, "atomic_add_x2", Atomic(Add, 2)),
    (99, "atomic_sub_x2", Atomic(Sub, 2)),
    (100, "atomic_smin_x2", Atomic(Smin, 2)),
    (101, "atomic_umin_x2", Atomic(Umin, 2)),
    (102, "atomic_smax_x2", Atomic(Smax, 2)),
    (103, "atomic_umax_x2", Atomic(Umax, 2)),
    (104, "atomic_and_x2", Atomic(And, 2)),
    (105, "atomic_or_x2", Atomic(Or, 2)),
    (106, "atomic_xor_x2", Atomic(Xor, 2)),
    (107, "atomic_inc_x2", Atomic(Inc, 2)),
    (108, "atomic_dec_x2", Atomic(Dec, 2)),
];

/// FLAT and GLOBAL.
const BFLOAT: &[Row] = &[(82, "atomic_pk_add_bf16", Atomic(PkAddBf16, 1))];

/// GLOBAL, of gfx950: straight to LDS, wider.
const WIDE_LDS: &[Row] = &[
    (125, "load_lds_dwordx4", LoadLds(16, false)),
    (126, "load_lds_dwordx3", LoadLds(12, false)),
];

/// MUBUF and MTBUF.
const FORMATS: &[Row] = &[
    (0, "load_format_x", Format(false, false, 1)),
    (1, "load_format_xy", Format(false, false, 2)),
    (2, "load_format_xyz", Format(false, false, 3)),
    (3, "load_format_xyzw", Format(false, false, 4)),
    (4, "store_format_x", Format(true, false, 1)),
    (5, "store_format_xy", Format(true, false, 2)),
    (6, "store_format_xyz", Format(true, false, 3)),
    (7, "store_format_xyzw", Format(true, false, 4)),
    (8, "load_format_d16_x", Format(false, true, 1)),
    (9, "load_format_d16_xy", Format(false, true, 2)),
    (10, "load_format_d16_xyz", Format(false, true, 3)),
    (11, "load_format_d16_xyzw", Format(false, true, 4)),
    (12, "store_format_d16_x", Format(true, true, 1)),
    (13, "store_format_d16_xy", Format(true, true, 2)),
    (14, "store_format_d16_xyz", Format(true, true, 3)),
    (15, "store_format_d16_xyzw", Format(true, true, 4)),
];

/// MUBUF.
const BUFFER: &[Row] = &[
    (38, "load_format_d16_hi_x", Format(false, true, 1)),
    (39, "store_format_d16_hi_x", Format(true, true, 1)),
    (40, "wbl2", Cache),
];

/// MUBUF, since gfx942.
const INVALIDATE: &[Row] = &[(41, "inv", Cache)];

/// The same of gfx90a.
const INVALIDATE_L2: &[Row] = &[(41, "invl2", Cache)];

/// MUBUF, but not of gfx950.
const OLD_BUFFER: &[Row] = &[
    (61, "store_lds_dword", StoreLds),
    (62, "wbinvl1", Cache),
    (63, "wbinvl1_vol", Cache),
];

impl Segment {
    /// What all processors have, and gfx90a.
    fn tables(self) -> [&'static [Row]; 4] {
        match self {
            Segment::Flat | Segment::Global => [COMMON, ATOMICS, &[], &[]],
            Segment::Scratch => [COMMON, &[], &[], &[]],
            Segment::Buffer => [COMMON, ATOMICS, BUFFER, FORMATS],
            Segment::Typed => [FORMATS, &[], &[], &[]],
        }
    }

    /// What some of them have.
    fn more(self, target: Target) -> [&'static [Row]; 3] {
        match (target, self) {
            (Target::Gfx90a, Segment::Buffer) => [INVALIDATE_L2, OLD_BUFFER, &[]],
            (Target::Gfx90a, _) => [&[]; 3],
            (Target::Gfx950, Segment::Global) => [LDS, BFLOAT, WIDE_LDS],
            (Target::Gfx950, Segment::Buffer) => [INVALIDATE, BFLOAT, &[]],
            (Target::Gfx942, Segment::Buffer) => [INVALIDATE, OLD_BUFFER, &[]],
            (_, Segment::Flat) => [BFLOAT, &[], &[]],
            (_, Segment::Scratch) => [LDS, &[], &[]],
            (Target::Gfx942, Segment::Global) => [LDS, BFLOAT, &[]],
            (_, Segment::Typed) => [&[]; 3],
        }
    }

    /// The prefix of its mnemonics.
    pub fn prefix(self) -> &'static str {
        match self {
            Segment::Flat => "flat_",
            Segment::Scratch => "scratch_",
            Segment::Global => "global_",
            Segment::Buffer => "buffer_",
            Segment::Typed => "tbuffer_",
        }
    }

    /// Mnemonic (without prefix) and operation of an opcode.
    pub fn from_code(self, target: Target, code: u32) -> Option<(&'static str, MemOp)> {
        // Singles and pairs of halves are added in buffers and global memory only.
        if (target, self) == (Target::Gfx90a, Segment::Flat) && matches!(code, 77 | 78) {
            return None;
        }
        self.tables()
            .into_iter()
            .chain(self.more(target))
            .flat_map(<[Row]>::iter)
            .find(|row| u32::from(row.0) == code)
            .map(|row| (row.1, row.2))
    }
}

impl MemOp {
    /// Registers of data: loaded ones or stored ones.
    pub fn data_dwords(self) -> u8 {
        match self {
            MemOp::LoadNarrow { .. } | MemOp::StoreNarrow { .. } => 1,
            MemOp::Load(n) | MemOp::Store(n) => n,
            MemOp::Atomic(AtomicOp::CmpSwap, n) => 2 * n,
            MemOp::Atomic(_, n) => n,
            MemOp::Format(_, false, n) => n,
            MemOp::Format(_, true, n) => n.div_ceil(2),
            MemOp::LoadLds(..) | MemOp::StoreLds | MemOp::Cache => 0,
        }
    }

    /// Whether VDST is written without being asked for.
    pub fn is_load(self) -> bool {
        matches!(
            self,
            MemOp::Load(_) | MemOp::LoadNarrow { .. } | MemOp::Format(false, ..)
        )
    }
}
