// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SOP1, SOP2, SOPC, SOPK, SOPP.

use super::{DecodeError, Reader, Result};
use crate::inst::{Body, Src};
use crate::op::{Sop1, Sop2, Sopc, Sopk, Sopp};

pub(super) fn decode(word: u32, reader: &mut Reader) -> Result<Body> {
    match word >> 23 {
        0b1_0111_1101 => sop1(word, reader),
        0b1_0111_1110 => sopc(word, reader),
        0b1_0111_1111 => sopp(word),
        _ if word >> 28 == 0b1011 => sopk(word, reader),
        _ => sop2(word, reader),
    }
}

fn sdst(word: u32) -> u8 {
    (word >> 16 & 0x7f) as u8
}

fn sop1(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Sop1::from_code(word >> 8 & 0xff).ok_or(DecodeError::Unknown("SOP1"))?;
    let src = reader.source(word & 0xff, op.types()[1])?;
    Ok(Body::Sop1 {
        op,
        dst: sdst(word),
        src,
    })
}

fn sop2(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Sop2::from_code(word >> 23 & 0x7f).ok_or(DecodeError::Unknown("SOP2"))?;
    let types = op.types();
    let src = [
        reader.source(word & 0xff, types[1])?,
        reader.source(word >> 8 & 0xff, types[2])?,
    ];
    Ok(Body::Sop2 {
        op,
        dst: sdst(word),
        src,
    })
}

fn sopc(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Sopc::from_code(word >> 16 & 0x7f).ok_or(DecodeError::Unknown("SOPC"))?;
    let types = op.types();
    let first = reader.source(word & 0xff, types[1])?;
    let second = word >> 8 & 0xff;
    let second = match op {
        // Here the field is the value itself.
        Sopc::s_set_gpr_idx_on => Src::Literal(second, second.into()),
        _ => reader.source(second, types[2])?,
    };
    Ok(Body::Sopc {
        op,
        src: [first, second],
    })
}

fn sopk(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Sopk::from_code(word >> 23 & 0x1f).ok_or(DecodeError::Unknown("SOPK"))?;
    let literal = if op == Sopk::s_setreg_imm32_b32 {
        reader.next()?
    } else {
        0
    };
    Ok(Body::Sopk {
        op,
        dst: sdst(word),
        imm: word as u16,
        literal,
    })
}

fn sopp(word: u32) -> Result<Body> {
    let op = Sopp::from_code(word >> 16 & 0x7f).ok_or(DecodeError::Unknown("SOPP"))?;
    Ok(Body::Sopp {
        op,
        imm: word as u16,
    })
}
