// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SMEM, DS, FLAT (with SCRATCH and GLOBAL) and MUBUF.

use super::{DecodeError, Reader, Result};
use crate::inst::{Body, DsInst, Dst, MemInst, SmemInst, Src};
use crate::op::mem::{Part, Segment};
use crate::op::{Ds, MemOp, Smem, Ty};
use crate::Target;

/// SADDR's code for "off".
const OFF: u32 = 0x7f;

fn sign_extend(value: u32, bits: u32) -> i32 {
    (value << (32 - bits)) as i32 >> (32 - bits)
}

pub(super) fn smem(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Smem::from_code(word >> 18 & 0xff).ok_or(DecodeError::Unknown("SMEM"))?;
    let second = reader.next()?;
    let imm = word >> 17 & 1 != 0;
    let soffset_en = word >> 14 & 1 != 0;
    let register = match (imm, soffset_en) {
        (_, true) => Some(second >> 25),
        (false, false) => Some(second & 0x7f),
        (true, false) => None,
    };
    Ok(Body::Smem(SmemInst {
        op,
        data: (word >> 6 & 0x7f) as u8,
        base: (word << 1 & 0x7e) as u8,
        offset: if imm {
            sign_extend(second & 0x1f_ffff, 21)
        } else {
            0
        },
        soffset: register.map(|code| Src::Scalar(code as u8)),
        glc: word >> 16 & 1 != 0,
    }))
}

fn file(number: u32, acc: bool) -> Dst {
    let number = number as u8;
    if acc {
        Dst::Acc(number)
    } else {
        Dst::Vgpr(number)
    }
}

pub(super) fn ds(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Ds::from_code(word >> 17 & 0xff)
        .filter(|op| op.is_on(reader.target))
        .ok_or(DecodeError::Unknown("DS"))?;
    let second = reader.next()?;
    let acc = word >> 25 & 1 != 0;
    let types = op.types();
    let operand = |ty: Ty, shift: u32| match ty {
        Ty::N => Dst::None,
        _ => file(second >> shift & 0xff, acc),
    };
    // The one operand of ds_gws_* sits in ADDR.
    let gws = op.mnemonic().starts_with("ds_gws");
    Ok(Body::Ds(DsInst {
        op,
        dst: operand(types[0], 24),
        addr: second as u8,
        data0: operand(types[1], if gws { 0 } else { 8 }),
        data1: operand(types[2], 16),
        offset0: word as u8,
        offset1: (word >> 8) as u8,
        gds: word >> 16 & 1 != 0,
    }))
}

pub(super) fn flat(word: u32, reader: &mut Reader) -> Result<Body> {
    let segment = match word >> 14 & 3 {
        0 => Segment::Flat,
        1 => Segment::Scratch,
        2 => Segment::Global,
        _ => return Err(DecodeError::Unknown("FLAT segment")),
    };
    let code = word >> 18 & 0x7f;
    let (name, op) = segment
        .from_code(reader.target, code)
        .ok_or(DecodeError::Unknown("FLAT"))?;
    let op = match reader.target {
        Target::Gfx90a if segment != Segment::Flat && word >> 13 & 1 != 0 => to_lds(op)?,
        _ => op,
    };
    let second = reader.next()?;
    let acc = second >> 23 & 1 != 0;
    let sc0 = word >> 16 & 1 != 0;
    let saddr = second >> 16 & 0x7f;
    // Before gfx942 an address is a VGPR or an SGPR.
    let lanes_address = segment != Segment::Scratch
        || match reader.target {
            Target::Gfx90a => saddr == OFF,
            _ => word >> 13 & 1 != 0,
        };
    let (dst, data) = operands(op, second >> 24, second >> 8 & 0xff, acc, sc0);
    Ok(Body::Mem(MemInst {
        segment,
        name,
        op,
        dst,
        data,
        vaddr: lanes_address.then_some(second as u8),
        saddr: (segment != Segment::Flat && saddr != OFF).then_some(saddr as u8),
        offset: match segment {
            Segment::Flat => (word & 0xfff) as i32,
            _ => sign_extend(word & 0x1fff, 13),
        },
        format: None,
        srsrc: 0,
        soffset: Src::None,
        idxen: false,
        offen: false,
        lds: matches!(op, MemOp::LoadLds(..)),
        sc0,
        sc1: word >> 25 & 1 != 0,
        nt: word >> 17 & 1 != 0,
    }))
}

/// A load straight to LDS, which a bit says before gfx942, not the opcode.
fn to_lds(op: MemOp) -> Result<MemOp> {
    match op {
        MemOp::LoadNarrow {
            bytes,
            signed,
            part: Part::Whole,
        } => Ok(MemOp::LoadLds(bytes, signed)),
        MemOp::Load(1) => Ok(MemOp::LoadLds(4, false)),
        _ => Err(DecodeError::Unknown("FLAT to LDS")),
    }
}

/// Destination and data of an operation whose VDST and DATA fields are these.
fn operands(op: MemOp, vdst: u32, data: u32, acc: bool, returns: bool) -> (Dst, Dst) {
    match op {
        MemOp::Load(_) | MemOp::LoadNarrow { .. } | MemOp::Format(false, ..) => {
            (file(vdst, acc), Dst::None)
        }
        MemOp::Store(_) | MemOp::StoreNarrow { .. } | MemOp::Format(true, ..) => {
            (Dst::None, file(data, acc))
        }
        MemOp::Atomic(..) if returns => (file(vdst, acc), file(data, acc)),
        MemOp::Atomic(..) => (Dst::None, file(data, acc)),
        MemOp::LoadLds(..) | MemOp::StoreLds | MemOp::Cache => (Dst::None, Dst::None),
    }
}

pub(super) fn mubuf(word: u32, reader: &mut Reader) -> Result<Body> {
    let code = word >> 18 & 0x7f;
    let (name, op) = Segment::Buffer
        .from_code(reader.target, code)
        .ok_or(DecodeError::Unknown("MUBUF"))?;
    let second = reader.next()?;
    let sc0 = word >> 14 & 1 != 0;
    let acc = second >> 23 & 1 != 0;
    let lds = word >> 16 & 1 != 0;
    let vdata = second >> 8 & 0xff;
    let (dst, data) = if lds {
        (Dst::None, Dst::None)
    } else {
        operands(op, vdata, vdata, acc, sc0)
    };
    let (offen, idxen) = (word >> 12 & 1 != 0, word >> 13 & 1 != 0);
    let cache = op == MemOp::Cache;
    Ok(Body::Mem(MemInst {
        segment: Segment::Buffer,
        name,
        op,
        dst,
        data,
        vaddr: ((offen || idxen) && !cache).then_some(second as u8),
        saddr: None,
        offset: (word & 0xfff) as i32,
        format: None,
        srsrc: (second >> 14 & 0x7c) as u8,
        soffset: if cache {
            Src::None
        } else {
            reader.long_source(second >> 24, Ty::B32)?
        },
        idxen,
        offen,
        lds,
        sc0,
        sc1: word >> 15 & 1 != 0,
        nt: word >> 17 & 1 != 0,
    }))
}

/// MTBUF: always formatted; the format is in the instruction.
pub(super) fn mtbuf(word: u32, reader: &mut Reader) -> Result<Body> {
    let (name, op) = Segment::Typed
        .from_code(reader.target, word >> 15 & 15)
        .ok_or(DecodeError::Unknown("MTBUF"))?;
    let second = reader.next()?;
    let acc = second >> 23 & 1 != 0;
    let vdata = second >> 8 & 0xff;
    let (dst, data) = operands(op, vdata, vdata, acc, false);
    let (offen, idxen) = (word >> 12 & 1 != 0, word >> 13 & 1 != 0);
    Ok(Body::Mem(MemInst {
        segment: Segment::Typed,
        name,
        op,
        dst,
        data,
        vaddr: (offen || idxen).then_some(second as u8),
        saddr: None,
        offset: (word & 0xfff) as i32,
        format: Some(((word >> 19 & 15) as u8, (word >> 23 & 7) as u8)),
        srsrc: (second >> 14 & 0x7c) as u8,
        soffset: reader.long_source(second >> 24, Ty::B32)?,
        idxen,
        offen,
        lds: false,
        sc0: word >> 14 & 1 != 0,
        sc1: second >> 21 & 1 != 0,
        nt: second >> 22 & 1 != 0,
    }))
}

impl MemInst {
    /// Registers of the address.
    pub(crate) fn address_dwords(&self) -> u8 {
        match self.segment {
            Segment::Flat => 2,
            Segment::Global => {
                if self.saddr.is_some() {
                    1
                } else {
                    2
                }
            }
            Segment::Scratch => 1,
            Segment::Buffer | Segment::Typed => u8::from(self.idxen) + u8::from(self.offen),
        }
    }
}
