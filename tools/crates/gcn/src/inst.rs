// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A decoded instruction: what `decode` makes, `exec` runs and `disasm` prints. Immutable; owned by
//! the code cache.

use crate::op::mem::Segment;
use crate::op::{Ds, MemOp, Smem, Sop1, Sop2, Sopc, Sopk, Sopp, Ty, Vop1, Vop2, Vop3, Vop3p, Vopc};
use crate::Target;

/// A source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    /// Not used by the instruction.
    None,
    /// A vector register.
    Vgpr(u8),
    /// An accumulation register.
    Acc(u8),
    /// Index into [`Wave::scalar`](crate::Wave::scalar).
    Scalar(u8),
    /// A read-only value of the wave.
    Special(Special),
    /// An inline constant (its operand code) and its bits for the operand's type.
    Inline(u8, u64),
    /// A literal: the dword and its bits for the operand's type.
    Literal(u32, u64),
}

/// Operand codes that are neither register nor constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// SRC_SHARED_BASE (235): flat address of LDS.
    SharedBase,
    /// SRC_SHARED_LIMIT.
    SharedLimit,
    /// SRC_PRIVATE_BASE: flat address of scratch.
    PrivateBase,
    /// SRC_PRIVATE_LIMIT.
    PrivateLimit,
    /// SRC_POPS_EXITING_WAVE_ID: graphics only, reads 0.
    PopsExitingWaveId,
    /// VCCZ: VCC is zero.
    Vccz,
    /// EXECZ: EXEC is zero.
    Execz,
    /// SCC.
    Scc,
    /// LDS_DIRECT: a dword of LDS at M0.
    LdsDirect,
}

/// A vector ALU opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuOp {
    /// From VOP1.
    One(Vop1),
    /// From VOP2.
    Two(Vop2),
    /// From VOP3 alone.
    Three(Vop3),
    /// From VOP3P.
    Packed(Vop3p),
    /// From VOPC.
    Compare(Vopc),
}

impl ValuOp {
    /// Its name without encoding suffix.
    pub fn mnemonic(self) -> String {
        match self {
            ValuOp::One(op) => op.mnemonic().to_string(),
            ValuOp::Two(op) => op.mnemonic().to_string(),
            ValuOp::Three(op) => op.mnemonic().to_string(),
            ValuOp::Packed(op) => op.mnemonic().to_string(),
            ValuOp::Compare(op) => op.mnemonic(),
        }
    }

    /// Whether a processor has it.
    pub fn is_on(self, target: Target) -> bool {
        match self {
            ValuOp::One(op) => op.is_on(target),
            ValuOp::Two(op) => op.is_on(target),
            ValuOp::Three(op) => op.is_on(target),
            ValuOp::Packed(op) => op.is_on(target),
            ValuOp::Compare(_) => true,
        }
    }

    /// Types of destination and sources.
    pub fn types(self) -> [Ty; 4] {
        match self {
            ValuOp::One(op) => op.types(),
            ValuOp::Two(op) => op.types(),
            ValuOp::Three(op) => op.types(),
            ValuOp::Packed(op) => op.types(),
            ValuOp::Compare(op) => op.types(),
        }
    }
}

/// Which encoding a vector ALU instruction came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// VOP1, VOP2 or VOPC: 32 bits.
    E32,
    /// VOP3 (or VOP3P): 64 bits.
    E64,
    /// Sub-dword addressing.
    Sdwa,
    /// Data-parallel primitives: lanes read other lanes.
    Dpp,
}

/// Where a vector ALU result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dst {
    /// Nowhere.
    None,
    /// Vector registers from this one on.
    Vgpr(u8),
    /// Accumulation registers.
    Acc(u8),
    /// Scalar register(s): compares and lane reads.
    Scalar(u8),
}

/// Part of a dword, for SDWA.
#[expect(missing_docs, reason = "the names are the assembler's")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sel {
    Byte0,
    Byte1,
    Byte2,
    Byte3,
    Word0,
    Word1,
    Dword,
}

/// What SDWA does with the bits around its destination part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// Zero.
    Pad,
    /// Sign above, zero below.
    Sext,
    /// Keep.
    Preserve,
}

/// SDWA's selections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdwa {
    /// Part of the destination.
    pub dst: Sel,
    /// The rest of the destination.
    pub unused: Unused,
    /// Parts of the sources.
    pub src: [Sel; 2],
    /// Whether they are sign-extended.
    pub sext: [bool; 2],
}

/// DPP's control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpp {
    /// Where lanes read source 0 from.
    pub ctrl: u16,
    /// Lanes without a source read 0 (otherwise they do not write).
    pub bound_ctrl: bool,
    /// Banks (lane / 4 % 4) that write.
    pub bank_mask: u8,
    /// Rows (lane / 16) that write.
    pub row_mask: u8,
}

/// Modifiers that not all vector ALU instructions have. Bit `n` of a mask is source `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mods {
    /// Negated sources (VOP3P: in the low half).
    pub neg: u8,
    /// Sources by magnitude (VOP3P: negated in the high half).
    pub abs: u8,
    /// Sources by their high half; bit 3 is the destination.
    pub op_sel: u8,
    /// VOP3P: sources whose high half takes the high half.
    pub op_sel_hi: u8,
    /// Output scale: 1 doubles, 2 quadruples, 3 halves.
    pub omod: u8,
    /// `v_bitop3`: the truth table.
    pub bitop3: u8,
    /// The result is limited to the unit range (floats) or saturates (integers).
    pub clamp: bool,
}

/// A vector ALU instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valu {
    /// Opcode.
    pub op: ValuOp,
    /// Encoding.
    pub form: Form,
    /// Its table row's types.
    pub types: [Ty; 4],
    /// Destination.
    pub dst: Dst,
    /// Carry, flag or second destination, an SGPR pair.
    pub sdst: u8,
    /// Sources.
    pub src: [Src; 3],
    /// Modifiers.
    pub mods: Mods,
    /// SDWA.
    pub sdwa: Option<Sdwa>,
    /// DPP.
    pub dpp: Option<Dpp>,
    /// Of a scaled matrix instruction: registers of A's and B's scales, and which of their bytes.
    pub scales: Option<[(Src, u8); 2]>,
}

/// A scalar memory instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmemInst {
    /// Opcode.
    pub op: Smem,
    /// First data SGPR.
    pub data: u8,
    /// First base SGPR.
    pub base: u8,
    /// Immediate offset, bytes.
    pub offset: i32,
    /// Offset register.
    pub soffset: Option<Src>,
    /// GLC.
    pub glc: bool,
}

/// A vector memory instruction: FLAT, SCRATCH, GLOBAL or MUBUF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemInst {
    /// Encoding.
    pub segment: Segment,
    /// Name after the segment's prefix.
    pub name: &'static str,
    /// Operation.
    pub op: MemOp,
    /// Loaded or returned data.
    pub dst: Dst,
    /// Stored data.
    pub data: Dst,
    /// Address VGPR, unless off.
    pub vaddr: Option<u8>,
    /// Address SGPR (FLAT's family).
    pub saddr: Option<u8>,
    /// Immediate offset.
    pub offset: i32,
    /// MTBUF: data format and number format.
    pub format: Option<(u8, u8)>,
    /// MUBUF: first SGPR of the descriptor.
    pub srsrc: u8,
    /// MUBUF: offset operand.
    pub soffset: Src,
    /// MUBUF: VADDR has an index.
    pub idxen: bool,
    /// MUBUF: VADDR has an offset.
    pub offen: bool,
    /// Loads go to LDS.
    pub lds: bool,
    /// SC0: for atomics, return the old value.
    pub sc0: bool,
    /// SC1.
    pub sc1: bool,
    /// NT.
    pub nt: bool,
}

/// A DS instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DsInst {
    /// Opcode.
    pub op: Ds,
    /// Result.
    pub dst: Dst,
    /// Address VGPR.
    pub addr: u8,
    /// First data.
    pub data0: Dst,
    /// Second data.
    pub data1: Dst,
    /// OFFSET0.
    pub offset0: u8,
    /// OFFSET1.
    pub offset1: u8,
    /// GDS, not LDS.
    pub gds: bool,
}

impl DsInst {
    /// OFFSET1:OFFSET0.
    pub fn offset(&self) -> u32 {
        u32::from(self.offset1) << 8 | u32::from(self.offset0)
    }
}

/// An instruction by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "encodings and their fields by their names in the ISA guide"
)]
pub enum Body {
    Sop2 {
        op: Sop2,
        dst: u8,
        src: [Src; 2],
    },
    Sop1 {
        op: Sop1,
        dst: u8,
        src: Src,
    },
    Sopc {
        op: Sopc,
        src: [Src; 2],
    },
    Sopk {
        op: Sopk,
        dst: u8,
        imm: u16,
        literal: u32,
    },
    Sopp {
        op: Sopp,
        imm: u16,
    },
    Smem(SmemInst),
    Valu(Valu),
    Mem(MemInst),
    Ds(DsInst),
}

/// One instruction at its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inst {
    /// Whose it is.
    pub target: Target,
    /// Where it is.
    pub pc: u64,
    /// Its dwords.
    pub dwords: Vec<u32>,
    /// What it is.
    pub body: Body,
    /// VGPRs it needs: highest number it touches + 1.
    pub vgprs: u16,
    /// Accumulation VGPRs it needs.
    pub accs: u16,
}

impl Inst {
    /// Address of the next instruction.
    pub fn next(&self) -> u64 {
        self.pc + 4 * self.dwords.len() as u64
    }

    /// Whether control may not fall through to the next instruction, or the decoder should not look
    /// past it.
    pub fn ends_block(&self) -> bool {
        use crate::op::sop::{Sop1 as O, Sopk as K, Sopp as P};
        match self.body {
            Body::Sopp { op, .. } => !matches!(
                op,
                P::s_nop
                    | P::s_waitcnt
                    | P::s_setprio
                    | P::s_incperflevel
                    | P::s_decperflevel
                    | P::s_ttracedata
            ),
            Body::Sop1 { op, .. } => matches!(op, O::s_setpc_b64 | O::s_swappc_b64 | O::s_rfe_b64),
            Body::Sopk { op, .. } => matches!(op, K::s_call_b64),
            _ => false,
        }
    }
}
