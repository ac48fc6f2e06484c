// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Vector ALU instructions as text.

use super::{destination, flag, join, option, scalar_register, source};
use crate::inst::{Dpp, Form, Sdwa, Sel, Src, Unused, Valu, ValuOp};
use crate::op::{Ty, Vop1, Vop2, Vop3, Vop3p};
use crate::Target;

pub(super) fn text(v: &Valu, target: Target) -> String {
    let mnemonic = match v.scales {
        Some(_) => v.op.mnemonic().replace("v_mfma", "v_mfma_scale"),
        None => match v.op {
            ValuOp::Packed(op) => op.spelled(target),
            op => op.mnemonic() + suffix(v),
        },
    };
    // The table's types, not the instruction's: an implicit accumulator is not spelled.
    let types = match v.op {
        ValuOp::Packed(op) if op.is_mixed() => v.types,
        op => op.types(),
    };
    let mut operands = vec![destination(v.dst, types[0].dwords())];
    if let Some(mask) = scalar_result(v) {
        operands.push(mask);
    }
    for (index, src) in v.src.iter().enumerate() {
        if types[index + 1] != Ty::N {
            operands.push(modified(v, index, *src, types[index + 1]));
        }
    }
    for (register, _) in v.scales.iter().flatten() {
        operands.push(source(*register, Ty::F32));
    }
    join(&mnemonic, &operands) + &scale_bytes(v) + &modifiers(v, target)
}

/// Which byte of their registers the scales are: the low bit in OP_SEL, the high one in OP_SEL_HI.
fn scale_bytes(v: &Valu) -> String {
    let Some([(_, a), (_, b)]) = v.scales else {
        return String::new();
    };
    let (low, high) = (a & 1 | b << 1 & 2, a >> 1 | b & 2);
    list("op_sel", low, 3, 0) + &list("op_sel_hi", high, 3, 7)
}

/// What distinguishes VOP1, VOP2 and VOPC forms.
fn suffix(v: &Valu) -> &'static str {
    use Vop2::*;
    match (v.form, v.op) {
        (_, ValuOp::Three(_) | ValuOp::Packed(_)) => "",
        (Form::Sdwa, _) => "_sdwa",
        (Form::Dpp, _) => "_dpp",
        (
            _,
            ValuOp::One(
                Vop1::v_nop
                | Vop1::v_clrexcp
                | Vop1::v_readfirstlane_b32
                | Vop1::v_swap_b32
                | Vop1::v_accvgpr_mov_b32,
            )
            | ValuOp::Two(v_fmamk_f32 | v_fmaak_f32 | v_madmk_f16 | v_madak_f16)
            | ValuOp::Two(v_madmk_f32 | v_madak_f32),
        ) => "",
        (Form::E32, _) => "_e32",
        (Form::E64, _) => "_e64",
    }
}

fn scalar_result(v: &Valu) -> Option<String> {
    use Vop2::*;
    use Vop3::{v_div_scale_f32, v_div_scale_f64, v_mad_i64_i32, v_mad_u64_u32};
    let has = matches!(
        v.op,
        ValuOp::Two(
            v_add_co_u32
                | v_sub_co_u32
                | v_subrev_co_u32
                | v_addc_co_u32
                | v_subb_co_u32
                | v_subbrev_co_u32
        ) | ValuOp::Three(v_div_scale_f32 | v_div_scale_f64 | v_mad_u64_u32 | v_mad_i64_i32)
    );
    has.then(|| scalar_register(v.sdst, 2))
}

/// Packed operations, whose `neg` and `abs` fields mean something else.
fn is_packed(v: &Valu) -> bool {
    matches!(v.op, ValuOp::Packed(op) if !op.is_mix())
}

fn modified(v: &Valu, index: usize, src: Src, ty: Ty) -> String {
    let text = source(src, ty);
    if is_packed(v) {
        return text;
    }
    let text = match v.sdwa {
        Some(sdwa) if index < 2 && sdwa.sext[index] => format!("sext({text})"),
        _ => text,
    };
    let text = if v.mods.abs >> index & 1 != 0 {
        format!("|{text}|")
    } else {
        text
    };
    match v.mods.neg >> index & 1 != 0 {
        true if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            format!("neg({text})")
        }
        true => format!("-{text}"),
        false => text,
    }
}

fn modifiers(v: &Valu, target: Target) -> String {
    let clamp = flag("clamp", v.mods.clamp);
    let omod = match v.mods.omod {
        1 => " mul:2",
        2 => " mul:4",
        3 => " div:2",
        _ => "",
    };
    match (v.op, v.form) {
        (ValuOp::Packed(op), _) if op.is_matrix() => matrix(v, op, target),
        (ValuOp::Packed(Vop3p::v_accvgpr_read_b32 | Vop3p::v_accvgpr_write_b32), _) => {
            String::new()
        }
        (ValuOp::Packed(Vop3p::v_mfma_ld_scale_b32), _) => String::new(),
        (ValuOp::Packed(_), _) => packed(v) + &clamp,
        (_, Form::Sdwa) => clamp + omod + &v.sdwa.map_or_else(String::new, |s| sdwa(v, s)),
        (_, Form::Dpp) => v.dpp.map_or_else(String::new, dpp),
        (ValuOp::One(Vop1::v_permlane16_swap_b32 | Vop1::v_permlane32_swap_b32), _) => {
            flag("bound_ctrl:1", v.mods.op_sel & 2 != 0) + &flag("fi:1", v.mods.op_sel & 1 != 0)
        }
        (ValuOp::Three(Vop3::v_bitop3_b16 | Vop3::v_bitop3_b32), _) => {
            truth_table(v.mods.bitop3) + &op_sel(v)
        }
        _ => op_sel(v) + &clamp + omod,
    }
}

fn matrix(v: &Valu, op: Vop3p, target: Target) -> String {
    let double = matches!(
        op,
        Vop3p::v_mfma_f64_16x16x4_f64 | Vop3p::v_mfma_f64_4x4x4_4b_f64
    );
    let last = if double && target != Target::Gfx90a {
        list("neg", v.mods.neg, 3, 0)
    } else {
        option("blgp", v.mods.neg, 0)
    };
    option("cbsz", v.mods.abs, 0) + &option("abid", v.mods.op_sel, 0) + &last
}

fn count(v: &Valu) -> usize {
    v.op.types()[1..].iter().filter(|ty| **ty != Ty::N).count()
}

fn list(name: &str, bits: u8, count: usize, default: u8) -> String {
    let mask = (1 << count) - 1;
    if bits & mask == default & mask {
        return String::new();
    }
    let bits: Vec<String> = (0..count)
        .map(|bit| (bits >> bit & 1).to_string())
        .collect();
    format!(" {name}:[{}]", bits.join(","))
}

/// LLVM spells small numbers in decimal.
fn truth_table(table: u8) -> String {
    match table {
        0..=9 => option("bitop3", table, 0),
        _ => format!(" bitop3:0x{table:x}"),
    }
}

fn op_sel(v: &Valu) -> String {
    if let ValuOp::Three(
        Vop3::v_cvt_sr_fp8_f32
        | Vop3::v_cvt_sr_bf8_f32
        | Vop3::v_cvt_scalef32_pk_fp4_f16
        | Vop3::v_cvt_scalef32_pk_fp4_bf16,
    ) = v.op
    {
        return list("op_sel", v.mods.op_sel, 4, 0);
    }
    let count = count(v);
    // The destination's bit is spelled last.
    let low = (1 << count) - 1;
    let bits = v.mods.op_sel & low | (v.mods.op_sel >> 3 & 1) << count;
    list("op_sel", bits, count + 1, 0)
}

fn packed(v: &Valu) -> String {
    let count = count(v);
    let mix = matches!(v.op, ValuOp::Packed(op) if op.is_mix());
    let high = list(
        "op_sel_hi",
        v.mods.op_sel_hi,
        count,
        if mix { 0 } else { 7 },
    );
    let selects = list("op_sel", v.mods.op_sel, count, 0) + &high;
    if mix {
        return selects;
    }
    selects + &list("neg_lo", v.mods.neg, count, 0) + &list("neg_hi", v.mods.abs, count, 0)
}

fn sel(sel: Sel) -> &'static str {
    match sel {
        Sel::Byte0 => "BYTE_0",
        Sel::Byte1 => "BYTE_1",
        Sel::Byte2 => "BYTE_2",
        Sel::Byte3 => "BYTE_3",
        Sel::Word0 => "WORD_0",
        Sel::Word1 => "WORD_1",
        Sel::Dword => "DWORD",
    }
}

fn sdwa(v: &Valu, sdwa: Sdwa) -> String {
    let unused = match sdwa.unused {
        Unused::Pad => "UNUSED_PAD",
        Unused::Sext => "UNUSED_SEXT",
        Unused::Preserve => "UNUSED_PRESERVE",
    };
    let mut text = match v.op {
        ValuOp::Compare(_) => String::new(),
        // What reads 8-bit floats writes whole registers.
        ValuOp::One(
            Vop1::v_cvt_f32_fp8
            | Vop1::v_cvt_f32_bf8
            | Vop1::v_cvt_pk_f32_fp8
            | Vop1::v_cvt_pk_f32_bf8,
        ) => String::new(),
        _ => format!(" dst_sel:{} dst_unused:{unused}", sel(sdwa.dst)),
    };
    for (index, part) in sdwa.src.iter().enumerate() {
        if v.op.types()[index + 1] != Ty::N {
            text += &format!(" src{index}_sel:{}", sel(*part));
        }
    }
    text
}

fn dpp(dpp: Dpp) -> String {
    let by = dpp.ctrl & 0xf;
    let lanes = match dpp.ctrl {
        0..=0xff => {
            let quad: Vec<String> = (0..4)
                .map(|i| (dpp.ctrl >> (2 * i) & 3).to_string())
                .collect();
            format!("quad_perm:[{}]", quad.join(","))
        }
        0x101..=0x10f => format!("row_shl:{by}"),
        0x111..=0x11f => format!("row_shr:{by}"),
        0x121..=0x12f => format!("row_ror:{by}"),
        0x130 => "wave_shl:1".to_string(),
        0x134 => "wave_rol:1".to_string(),
        0x138 => "wave_shr:1".to_string(),
        0x13c => "wave_ror:1".to_string(),
        0x140 => "row_mirror".to_string(),
        0x141 => "row_half_mirror".to_string(),
        0x142 => "row_bcast:15".to_string(),
        0x143 => "row_bcast:31".to_string(),
        0x150..=0x15f => format!("row_newbcast:{by}"),
        other => format!("dpp_ctrl:0x{other:x}"),
    };
    let bound = if dpp.bound_ctrl { " bound_ctrl:1" } else { "" };
    format!(
        " {lanes} row_mask:0x{:x} bank_mask:0x{:x}{bound}",
        dpp.row_mask, dpp.bank_mask
    )
}
