// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! From dwords to instructions. Stateless; the code cache calls it once for each address.

mod memory;
mod scalar;
mod vector;

use crate::inst::{Body, Dst, Inst, Special, Src};
use crate::op::{AtomicOp, MemOp, Ty};
use crate::Target;

/// Why dwords are no instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// More dwords are needed to say.
    Short,
    /// Not an instruction of the processor: the encoding's name.
    Unknown(&'static str),
}

type Result<T> = std::result::Result<T, DecodeError>;

/// Decodes gfx942's instruction that starts with `words\[0\]`, at address `pc`.
pub fn decode(pc: u64, words: &[u32]) -> Result<Inst> {
    decode_for(Target::Gfx942, pc, words)
}

/// The same for any processor.
pub fn decode_for(target: Target, pc: u64, words: &[u32]) -> Result<Inst> {
    let mut reader = Reader {
        target,
        words,
        used: 1,
    };
    let first = *words.first().ok_or(DecodeError::Short)?;
    let body = match first >> 26 {
        _ if first >> 31 == 0 => vector::short(first, &mut reader)?,
        0b110000 => memory::smem(first, &mut reader)?,
        0b110100 if first >> 23 & 7 == 7 => vector::vop3p(first, &mut reader)?,
        0b110100 => vector::vop3(first, &mut reader)?,
        0b110110 => memory::ds(first, &mut reader)?,
        0b110111 => memory::flat(first, &mut reader)?,
        0b111000 => memory::mubuf(first, &mut reader)?,
        0b111010 => memory::mtbuf(first, &mut reader)?,
        0b111100 => return Err(DecodeError::Unknown("MIMG")),
        _ if first >> 30 == 0b10 => scalar::decode(first, &mut reader)?,
        _ => return Err(DecodeError::Unknown("reserved")),
    };
    let (vgprs, accs) = needs(&body);
    Ok(Inst {
        target,
        pc,
        dwords: words[..reader.used].to_vec(),
        body,
        vgprs,
        accs,
    })
}

/// The dwords of one instruction, as far as they were needed.
struct Reader<'a> {
    target: Target,
    words: &'a [u32],
    used: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u32> {
        let word = *self.words.get(self.used).ok_or(DecodeError::Short)?;
        self.used += 1;
        Ok(word)
    }

    /// The 9-bit source operand `code`; a literal is read once and shared.
    fn source(&mut self, code: u32, ty: Ty) -> Result<Src> {
        Ok(match code {
            0..=127 => Src::Scalar(code as u8),
            128..=208 | 240..=248 => Src::Inline(code as u8, inline(code, ty)),
            235 => Src::Special(Special::SharedBase),
            236 => Src::Special(Special::SharedLimit),
            237 => Src::Special(Special::PrivateBase),
            238 => Src::Special(Special::PrivateLimit),
            239 => Src::Special(Special::PopsExitingWaveId),
            251 => Src::Special(Special::Vccz),
            252 => Src::Special(Special::Execz),
            253 => Src::Special(Special::Scc),
            254 => Src::Special(Special::LdsDirect),
            255 => {
                let word = if self.used > 1 {
                    self.words[1]
                } else {
                    self.next()?
                };
                Src::Literal(word, literal(word, ty))
            }
            256..=511 => Src::Vgpr((code - 256) as u8),
            _ => return Err(DecodeError::Unknown("source operand")),
        })
    }

    /// The same in an instruction of two dwords, which on gfx9 has no literal behind it.
    fn long_source(&mut self, code: u32, ty: Ty) -> Result<Src> {
        if code == 255 {
            return Err(DecodeError::Unknown("two dwords with a literal"));
        }
        self.source(code, ty)
    }
}

/// A literal dword as an operand of this type: upper half of a double, low bits of everything else.
fn literal(word: u32, ty: Ty) -> u64 {
    match ty {
        Ty::F64 => u64::from(word) << 32,
        _ => u64::from(word),
    }
}

/// Bits of the inline constant `code` (0 to 64, -1 to -16, and nine floats) as an operand of this
/// type. Of the floats, 16-bit integers get the single's bits, pairs of them its two halves; halves
/// get the half's, with zeroes above (LLVM, AMDGPUBaseInfo.cpp, `getInlineEncodingV216`).
fn inline(code: u32, ty: Ty) -> u64 {
    let integer = match code {
        128..=192 => i64::from(code) - 128,
        193..=208 => 192 - i64::from(code),
        _ => return float_constant(code, ty),
    };
    match ty {
        Ty::B64 | Ty::F64 => integer as u64,
        _ => u64::from(integer as u32),
    }
}

/// The float constants' halves.
pub(crate) const HALF: [u16; 9] = [
    0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118,
];

/// The float constants: ±0.5, ±1, ±2, ±4 and 1/(2π), in each precision.
fn float_constant(code: u32, ty: Ty) -> u64 {
    const SINGLE: [u32; 9] = [
        0x3f00_0000,
        0xbf00_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x4000_0000,
        0xc000_0000,
        0x4080_0000,
        0xc080_0000,
        0x3e22_f983,
    ];
    const INV_2PI: u64 = 0x3fc4_5f30_6dc9_c882;
    let index = (code - 240) as usize;
    match ty {
        // The upper half of a single.
        Ty::Bf16 | Ty::PBf16 => u64::from(SINGLE[index] >> 16),
        Ty::F16 | Ty::PF16 => u64::from(HALF[index]),
        Ty::F64 | Ty::B64 if code == 248 => INV_2PI,
        Ty::F64 | Ty::B64 => f64::from(f32::from_bits(SINGLE[index])).to_bits(),
        _ => u64::from(SINGLE[index]),
    }
}

/// How many VGPRs and accumulation VGPRs an instruction touches.
fn needs(body: &Body) -> (u16, u16) {
    let mut need = Need::default();
    match body {
        Body::Valu(valu) => {
            need.dst(valu.dst, valu.types[0].dwords());
            for (src, ty) in valu.src.iter().zip(&valu.types[1..]) {
                need.src(*src, ty.dwords());
            }
            for (src, _) in valu.scales.iter().flatten() {
                need.src(*src, 1);
            }
        }
        Body::Mem(mem) => {
            // A compare-and-swap has two operands and one result.
            let result = match mem.op {
                MemOp::Atomic(AtomicOp::CmpSwap, dwords) => dwords,
                op => op.data_dwords(),
            };
            need.dst(mem.dst, result);
            need.dst(mem.data, mem.op.data_dwords());
            if let Some(vaddr) = mem.vaddr {
                need.src(Src::Vgpr(vaddr), mem.address_dwords());
            }
        }
        Body::Ds(ds) => {
            let types = ds.op.types();
            need.dst(ds.dst, types[0].dwords());
            need.dst(ds.data0, types[1].dwords());
            need.dst(ds.data1, types[2].dwords());
            need.src(Src::Vgpr(ds.addr), 1);
        }
        _ => {}
    }
    (need.vgprs, need.accs)
}

#[derive(Default)]
struct Need {
    vgprs: u16,
    accs: u16,
}

impl Need {
    fn dst(&mut self, dst: Dst, dwords: u8) {
        let end = |first: u8| u16::from(first) + u16::from(dwords.max(1));
        match dst {
            Dst::Vgpr(first) => self.vgprs = self.vgprs.max(end(first)),
            Dst::Acc(first) => self.accs = self.accs.max(end(first)),
            Dst::None | Dst::Scalar(_) => {}
        }
    }

    fn src(&mut self, src: Src, dwords: u8) {
        match src {
            Src::Vgpr(first) => self.dst(Dst::Vgpr(first), dwords),
            Src::Acc(first) => self.dst(Dst::Acc(first), dwords),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_follow_the_operand_type() {
        assert_eq!(inline(193, Ty::B64), u64::MAX);
        assert_eq!(inline(193, Ty::B32), 0xffff_ffff);
        assert_eq!(inline(242, Ty::F64), 1f64.to_bits());
        assert_eq!(inline(245, Ty::F16), 0xc000);
        assert_eq!(inline(248, Ty::F32), u64::from((0.15915494f32).to_bits()));
        assert_eq!(inline(244, Ty::PF16), 0x4000);
        assert_eq!(inline(244, Ty::P16), 0x4000_0000);
        assert_eq!(inline(242, Ty::B16), 0x3f80_0000);
        assert_eq!(inline(193, Ty::P16), 0xffff_ffff);
        assert_eq!(literal(0x3ff0_0000, Ty::F64), 1f64.to_bits());
    }

    #[test]
    fn reserved_encodings_are_refused_and_short_ones_ask_for_more() {
        assert_eq!(
            decode(0, &[0xf000_0000, 0]),
            Err(DecodeError::Unknown("MIMG"))
        );
        assert_eq!(decode(0, &[0xd28f_0002]), Err(DecodeError::Short));
        assert_eq!(decode(0, &[0x8004_ff00]), Err(DecodeError::Short));
    }

    #[test]
    fn two_dwords_have_no_literal_behind_them() {
        let is_none = |words: [u32; 2], good: u32| {
            assert!(decode(0, &[words[0], good]).is_ok(), "{words:08x?}");
            let refused = decode(0, &words);
            assert!(
                matches!(refused, Err(DecodeError::Unknown(_))),
                "{words:08x?}"
            );
        };
        // v_mov_b32_sdwa v0, s16; buffer_load_dword and tbuffer_load_format_x, off, s[4:7], 0.
        is_none([0x7e00_02f9, 0x0086_06ff], 0x0086_0610);
        is_none([0xe050_0000, 0xff01_0000], 0x8001_0000);
        is_none([0xe870_0000, 0xff01_0000], 0x8001_0000);
        // v_add_f32_sdwa v2, v3, and source 1; VOP2's literals have no such forms.
        let refused = |words: [u32; 2]| {
            let result = decode(0, &words);
            assert!(
                matches!(result, Err(DecodeError::Unknown(_))),
                "{words:08x?}"
            );
        };
        refused([0x0205_fef9, 0x8606_0603]);
        for op in [23, 24, 36, 37] {
            refused([op << 25 | 0x0004_06f9, 0x0606_0603]);
            refused([op << 25 | 0x0004_06fa, 0xff00_e403]);
        }
    }

    #[test]
    fn a_64_bit_source_needs_both_registers() {
        // v_lshlrev_b64 v[2:3], v4, v[6:7]
        let inst = decode(0, &[0xd28f_0002, 0x0002_0d04]).unwrap();
        assert_eq!((inst.vgprs, inst.accs), (8, 0));
        assert_eq!(inst.next(), 8);
    }
}
