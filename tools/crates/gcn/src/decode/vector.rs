// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! VOP1, VOP2, VOPC with their SDWA and DPP forms; VOP3 and VOP3P.

use super::{DecodeError, Reader, Result};
use crate::inst::{Body, Dpp, Dst, Form, Mods, Sdwa, Sel, Src, Unused, Valu, ValuOp};
use crate::op::{Ty, Vop1, Vop2, Vop3, Vop3p, Vopc};
use crate::wave::sreg;
use crate::Target;

const SDWA: u32 = 249;
const DPP: u32 = 250;
const VCC: u8 = sreg::VCC as u8;

/// VOP1, VOP2 and VOPC.
pub(super) fn short(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = short_op(word, reader.target)?;
    if !op.is_on(reader.target) {
        return Err(DecodeError::Unknown("VOP"));
    }
    let dst = match op {
        ValuOp::Compare(_) => Dst::Scalar(VCC),
        _ => destination(op, (word >> 17 & 0xff) as u8),
    };
    let types = op.types();
    let mut valu = Valu {
        op,
        form: Form::E32,
        types,
        dst,
        sdst: VCC,
        src: [Src::None; 3],
        mods: Mods::default(),
        sdwa: None,
        dpp: None,
        scales: None,
    };
    let vsrc1 = word >> 9 & 0xff;
    let mut second = 256 + vsrc1;
    match word & 0x1ff {
        SDWA => {
            let control = reader.next()?;
            sdwa(&mut valu, control)?;
            // Either source can be scalar here.
            let vector = |scalar: u32| if scalar & 1 != 0 { 0 } else { 256 };
            let first = control & 0xff | vector(control >> 23);
            valu.src[0] = reader.long_source(first, types[1])?;
            second = vsrc1 | vector(control >> 31);
        }
        DPP => dpp(&mut valu, reader.next()?),
        code if types[1] != Ty::N => valu.src[0] = reader.source(code, types[1])?,
        _ => {}
    }
    if types[2] != Ty::N {
        let ty = constant_type(op, 1);
        valu.src[1] = match valu.form {
            Form::E32 => reader.source(second, ty)?,
            _ => reader.long_source(second, ty)?,
        };
    }
    third_source(&mut valu, reader)?;
    accumulators(&mut valu);
    accumulate(&mut valu);
    Ok(Body::Valu(valu))
}

/// The type by which a constant is read as source `index`. The exponent of `v_ldexp_f16` is an
/// integer, but "has a format of f16" (the ISA guide): LLVM, too, encodes 0x3c00 as 1.0.
fn constant_type(op: ValuOp, index: usize) -> Ty {
    match (op, index) {
        (ValuOp::Two(Vop2::v_ldexp_f16), 1) => Ty::F16,
        _ => op.types()[index + 1],
    }
}

fn short_op(word: u32, target: Target) -> Result<ValuOp> {
    match word >> 25 {
        0x3f => Vop1::from_code(word >> 9 & 0xff)
            .map(ValuOp::One)
            .ok_or(DecodeError::Unknown("VOP1")),
        0x3e => Vopc::from_code(word >> 17 & 0xff)
            .map(ValuOp::Compare)
            .ok_or(DecodeError::Unknown("VOPC")),
        code => Vop2::of(target, code)
            .map(ValuOp::Two)
            .ok_or(DecodeError::Unknown("VOP2")),
    }
}

/// What the short forms leave implicit: VCC as carry or mask, a literal as factor or addend.
fn third_source(valu: &mut Valu, reader: &mut Reader) -> Result<()> {
    use Vop2::*;
    if has_constant(valu.op) && valu.form != Form::E32 {
        return Err(DecodeError::Unknown("SDWA or DPP with a literal"));
    }
    match valu.op {
        ValuOp::Two(v_fmamk_f32 | v_madmk_f16 | v_madmk_f32) => {
            let constant = reader.source(255, valu.types[2])?;
            valu.src[2] = std::mem::replace(&mut valu.src[1], constant);
        }
        ValuOp::Two(v_fmaak_f32 | v_madak_f16 | v_madak_f32) => {
            valu.src[2] = reader.source(255, valu.types[3])?;
        }
        ValuOp::Two(_) if valu.types[3] == Ty::B64 => valu.src[2] = Src::Scalar(VCC),
        _ => {}
    }
    Ok(())
}

/// A VDST field, which some instructions use for an SGPR.
fn destination(op: ValuOp, code: u8) -> Dst {
    match op {
        ValuOp::One(Vop1::v_readfirstlane_b32) | ValuOp::Three(Vop3::v_readlane_b32) => {
            Dst::Scalar(code & 0x7f)
        }
        ValuOp::Compare(_) => Dst::Scalar(code & 0x7f),
        ValuOp::One(Vop1::v_nop | Vop1::v_clrexcp) => Dst::None,
        _ => Dst::Vgpr(code),
    }
}

/// Moves between the register files name accumulators by plain register fields.
fn accumulators(valu: &mut Valu) {
    let to_acc = |src: &mut Src| {
        if let Src::Vgpr(number) = *src {
            *src = Src::Acc(number);
        }
    };
    match (valu.op, valu.dst) {
        (ValuOp::One(Vop1::v_accvgpr_mov_b32), Dst::Vgpr(number)) => {
            valu.dst = Dst::Acc(number);
            to_acc(&mut valu.src[0]);
        }
        (ValuOp::Packed(Vop3p::v_accvgpr_read_b32), _) => to_acc(&mut valu.src[0]),
        (ValuOp::Packed(Vop3p::v_accvgpr_write_b32), Dst::Vgpr(number)) => {
            valu.dst = Dst::Acc(number);
        }
        _ => {}
    }
}

fn sel(code: u32) -> Result<Sel> {
    const SELS: [Sel; 7] = [
        Sel::Byte0,
        Sel::Byte1,
        Sel::Byte2,
        Sel::Byte3,
        Sel::Word0,
        Sel::Word1,
        Sel::Dword,
    ];
    SELS.get((code & 7) as usize)
        .copied()
        .ok_or(DecodeError::Unknown("SDWA"))
}

/// The SDWA dword's selections and modifiers.
fn sdwa(valu: &mut Valu, word: u32) -> Result<()> {
    valu.form = Form::Sdwa;
    let compare = matches!(valu.op, ValuOp::Compare(_));
    if compare {
        let explicit = word >> 15 & 1 != 0;
        valu.dst = Dst::Scalar(if explicit {
            (word >> 8 & 0x7f) as u8
        } else {
            VCC
        });
    } else {
        valu.mods.clamp = word >> 13 & 1 != 0;
        valu.mods.omod = (word >> 14 & 3) as u8;
    }
    valu.sdwa = Some(Sdwa {
        dst: if compare { Sel::Dword } else { sel(word >> 8)? },
        unused: match word >> 11 & 3 {
            0 => Unused::Pad,
            1 => Unused::Sext,
            2 => Unused::Preserve,
            _ if compare => Unused::Pad,
            _ => return Err(DecodeError::Unknown("SDWA")),
        },
        src: [
            sel(word >> 16)?,
            if valu.types[2] == Ty::N {
                Sel::Dword
            } else {
                sel(word >> 24)?
            },
        ],
        sext: [word >> 19 & 1 != 0, word >> 27 & 1 != 0],
    });
    valu.mods.neg = (word >> 20 & 1 | word >> 27 & 2) as u8;
    valu.mods.abs = (word >> 21 & 1 | word >> 28 & 2) as u8;
    Ok(())
}

/// Sources that `neg` and `abs` apply to.
fn signed_sources(types: &[Ty; 4]) -> u8 {
    (0..3)
        .filter(|index| types[index + 1].is_float())
        .fold(0, |mask, index| mask | 1 << index)
}

fn dpp(valu: &mut Valu, word: u32) {
    valu.form = Form::Dpp;
    valu.src[0] = Src::Vgpr((word & 0xff) as u8);
    // Integers have no sign to change.
    let floats = signed_sources(&valu.types);
    valu.mods.neg = (word >> 20 & 1 | word >> 21 & 2) as u8 & floats;
    valu.mods.abs = (word >> 21 & 1 | word >> 22 & 2) as u8 & floats;
    valu.dpp = Some(Dpp {
        ctrl: (word >> 8 & 0x1ff) as u16,
        bound_ctrl: word >> 19 & 1 != 0,
        bank_mask: (word >> 24 & 0xf) as u8,
        row_mask: (word >> 28) as u8,
    });
}

/// VOP3: everything, with all modifiers.
pub(super) fn vop3(word: u32, reader: &mut Reader) -> Result<Body> {
    let code = word >> 16 & 0x3ff;
    let op = match code {
        0..=0xff => Vopc::from_code(code).map(ValuOp::Compare),
        0x100..=0x13f => Vop2::of(reader.target, code - 0x100).map(ValuOp::Two),
        0x140..=0x1bf => Vop1::from_code(code - 0x140).map(ValuOp::One),
        _ => Vop3::from_code(code).map(ValuOp::Three),
    };
    let op = op
        .filter(|op| has_long_form(*op) && op.is_on(reader.target))
        .ok_or(DecodeError::Unknown("VOP3"))?;
    let second = reader.next()?;
    let types = op.types();
    let mut src = [Src::None; 3];
    for (index, src) in src.iter_mut().enumerate() {
        if types[index + 1] != Ty::N {
            let ty = constant_type(op, index);
            *src = reader.long_source(second >> (9 * index) & 0x1ff, ty)?;
        }
    }
    let carries = has_scalar_result(op);
    let selects = types.iter().any(|ty| matches!(ty, Ty::B16 | Ty::F16)) || is_small_float(op);
    let short = matches!(op, ValuOp::Three(op) if !op.mnemonic().contains("legacy"));
    let selects = selects && short || selects_parts(op);
    let table = matches!(op, ValuOp::Three(Vop3::v_bitop3_b16 | Vop3::v_bitop3_b32));
    let floats = signed_sources(&types);
    let mods = Mods {
        neg: (second >> 29) as u8 & floats,
        abs: if carries {
            0
        } else {
            (word >> 8 & 7) as u8 & floats
        },
        op_sel: if selects { (word >> 11 & 0xf) as u8 } else { 0 },
        op_sel_hi: 0,
        omod: if table { 0 } else { (second >> 27 & 3) as u8 },
        clamp: word >> 15 & 1 != 0,
        bitop3: if table {
            (second >> 29 | (word >> 8 & 7) << 3 | (second >> 27 & 3) << 6) as u8
        } else {
            0
        },
    };
    let mut valu = Valu {
        op,
        form: Form::E64,
        types,
        dst: destination(op, (word & 0xff) as u8),
        sdst: if carries {
            (word >> 8 & 0x7e) as u8
        } else {
            VCC
        },
        src,
        mods,
        sdwa: None,
        dpp: None,
        scales: None,
    };
    accumulate(&mut valu);
    Ok(Body::Valu(valu))
}

/// Some VOP2 add to their destination: it becomes source 2.
fn accumulate(valu: &mut Valu) {
    use Vop2::*;
    let accumulates = matches!(
        valu.op,
        ValuOp::Two(
            v_fmac_f32
                | v_fmac_f64
                | v_mac_f16
                | v_mac_f32
                | v_pk_fmac_f16
                | v_dot2c_f32_f16
                | v_dot2c_f32_bf16
                | v_dot2c_i32_i16
                | v_dot4c_i32_i8
                | v_dot8c_i32_i4
        )
    );
    if let (true, Dst::Vgpr(number)) = (accumulates, valu.dst) {
        valu.src[2] = Src::Vgpr(number);
        valu.types[3] = valu.types[0];
    }
}

/// To 8-bit floats: OP_SEL says which byte or half of the destination.
fn is_small_float(op: ValuOp) -> bool {
    use Vop3::{v_cvt_pk_bf8_f32, v_cvt_pk_fp8_f32, v_cvt_sr_bf8_f32, v_cvt_sr_fp8_f32};
    matches!(
        op,
        ValuOp::Three(v_cvt_pk_fp8_f32 | v_cvt_pk_bf8_f32 | v_cvt_sr_fp8_f32 | v_cvt_sr_bf8_f32)
    )
}

/// What takes a part of its sources by OP_SEL, or leaves one of its destination, although none of
/// them is 16 bits wide.
fn selects_parts(op: ValuOp) -> bool {
    match op {
        ValuOp::One(Vop1::v_permlane16_swap_b32 | Vop1::v_permlane32_swap_b32) => true,
        ValuOp::Three(op) => matches!(op as u16, 565..=593 | 613 | 614 | 617 | 618 | 678 | 679),
        _ => false,
    }
}

/// Whether a literal is an operand of every such instruction.
fn has_constant(op: ValuOp) -> bool {
    use Vop2::*;
    matches!(
        op,
        ValuOp::Two(v_fmaak_f32 | v_fmamk_f32 | v_madak_f16 | v_madmk_f16)
            | ValuOp::Two(v_madak_f32 | v_madmk_f32)
    )
}

fn has_long_form(op: ValuOp) -> bool {
    !has_constant(op)
        && !matches!(
            op,
            ValuOp::Two(Vop2::v_pk_fmac_f16)
                | ValuOp::One(
                    Vop1::v_readfirstlane_b32 | Vop1::v_swap_b32 | Vop1::v_accvgpr_mov_b32
                )
        )
}

/// Whether the instruction's long form is VOP3B: with an SGPR pair as second destination.
fn has_scalar_result(op: ValuOp) -> bool {
    use Vop2::*;
    use Vop3::{v_div_scale_f32, v_div_scale_f64, v_mad_i64_i32, v_mad_u64_u32};
    matches!(
        op,
        ValuOp::Two(
            v_add_co_u32
                | v_sub_co_u32
                | v_subrev_co_u32
                | v_addc_co_u32
                | v_subb_co_u32
                | v_subbrev_co_u32
        ) | ValuOp::Three(v_div_scale_f32 | v_div_scale_f64 | v_mad_u64_u32 | v_mad_i64_i32)
    )
}

/// VOP3P: packed arithmetic, and the matrix core's instructions, which reuse modifier fields.
pub(super) fn vop3p(word: u32, reader: &mut Reader) -> Result<Body> {
    let op = Vop3p::of(reader.target, word >> 16 & 0x7f).ok_or(DecodeError::Unknown("VOP3P"))?;
    let second = reader.next()?;
    if let Some(scaled) = scaled(op, [word, second], reader) {
        return scaled;
    }
    let types = op.types();
    let op_sel_hi = (second >> 27 & 3 | word >> 12 & 4) as u8;
    let mut src = [Src::None; 3];
    for (index, src) in src.iter_mut().enumerate() {
        if types[index + 1] != Ty::N {
            let ty = match op.is_mix() && op_sel_hi >> index & 1 != 0 {
                true => Ty::F16,
                false => types[index + 1],
            };
            *src = reader.long_source(second >> (9 * index) & 0x1ff, ty)?;
        }
    }
    let mut valu = Valu {
        op: ValuOp::Packed(op),
        form: Form::E64,
        types,
        dst: Dst::Vgpr((word & 0xff) as u8),
        sdst: VCC,
        src,
        mods: Mods {
            neg: (second >> 29) as u8,
            abs: (word >> 8 & 7) as u8,
            op_sel: (word >> 11 & 7) as u8,
            op_sel_hi,
            omod: 0,
            clamp: word >> 15 & 1 != 0,
            bitop3: 0,
        },
        sdwa: None,
        dpp: None,
        scales: None,
    };
    if op.is_matrix() {
        matrix(&mut valu, word, second);
    }
    if op.is_mixed() {
        valu.types[1] = mixed(valu.mods.abs);
        valu.types[2] = mixed(valu.mods.neg);
    }
    accumulators(&mut valu);
    Ok(Body::Valu(valu))
}

/// The 16 bytes of a scaled matrix instruction: `words` load the scales, and the next two are the
/// product. `None`: these are something else.
fn scaled(op: Vop3p, words: [u32; 2], reader: &mut Reader) -> Option<Result<Body>> {
    /// ABID of the product: it is scaled.
    const SCALED: u32 = 1 << 11;
    if op != Vop3p::v_mfma_ld_scale_b32 {
        return None;
    }
    let third = match reader.words.get(reader.used) {
        Some(word) => *word,
        None => return Some(Err(DecodeError::Short)),
    };
    let product = Vop3p::from_code(third >> 16 & 0x7f).filter(|op| op.is_mixed());
    if third >> 23 != 0b1_1010_0111 || product.is_none() || third & SCALED == 0 {
        return None;
    }
    let [first, second] = words;
    let mut scale = |index: u32| {
        let select = first >> (11 + index) & 1 | (second >> (27 + index) & 1) << 1;
        let source = reader.long_source(second >> (9 * index) & 0x1ff, Ty::F32)?;
        Ok((source, select as u8))
    };
    let scales = match (scale(0), scale(1)) {
        (Ok(a), Ok(b)) => [a, b],
        (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
    };
    reader.used += 1;
    let body = vop3p(third & !SCALED, reader);
    Some(body.map(|body| match body {
        Body::Valu(valu) => Body::Valu(Valu {
            scales: Some(scales),
            ..valu
        }),
        other => other,
    }))
}

/// MFMA: ACC and ACC_CD choose the register file; CBSZ is in `abs`, ABID in `op_sel`, BLGP in
/// `neg`.
fn matrix(valu: &mut Valu, word: u32, second: u32) {
    let accumulate = word >> 15 & 1 != 0;
    valu.mods.clamp = false;
    valu.mods.op_sel = (word >> 11 & 0xf) as u8;
    valu.mods.op_sel_hi = 0;
    let sparse = matches!(valu.op, ValuOp::Packed(op) if op.mnemonic().starts_with("v_smfmac"));
    let files = [
        second >> 27 & 1 != 0,
        second >> 28 & 1 != 0,
        accumulate && !sparse,
    ];
    for (src, acc) in valu.src.iter_mut().zip(files) {
        if let (Src::Vgpr(number), true) = (*src, acc) {
            *src = Src::Acc(number);
        }
    }
    if let (Dst::Vgpr(number), true) = (valu.dst, accumulate) {
        valu.dst = Dst::Acc(number);
    }
    let double = matches!(valu.op, ValuOp::Packed(op) if op.mnemonic().ends_with("f64"));
    if let (Src::Inline(code, _), true) = (valu.src[2], double) {
        valu.src[2] = Src::Inline(code, super::inline(code.into(), Ty::F64));
    }
}

/// Registers of a matrix by CBSZ or BLGP of the mixed formats: FP8, BF8, FP6, BF6, FP4.
fn mixed(format: u8) -> Ty {
    match format {
        0 | 1 => Ty::B256,
        2 | 3 => Ty::B192,
        _ => Ty::B128,
    }
}

impl Vop3p {
    /// Whether OP_SEL_HI says which of its sources are halves, constants too; the others are
    /// singles.
    pub fn is_mix(self) -> bool {
        matches!(
            self,
            Vop3p::v_fma_mix_f32 | Vop3p::v_fma_mixlo_f16 | Vop3p::v_fma_mixhi_f16
        )
    }

    /// Whether CBSZ and BLGP say what A and B are.
    pub fn is_mixed(self) -> bool {
        self.mnemonic().ends_with("f8f6f4")
    }

    /// Whether it runs on the matrix core.
    pub fn is_matrix(self) -> bool {
        let name = self.mnemonic();
        let product = name.starts_with("v_mfma") && self != Vop3p::v_mfma_ld_scale_b32;
        product || name.starts_with("v_smfmac")
    }
}
