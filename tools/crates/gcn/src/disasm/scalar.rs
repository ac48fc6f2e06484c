// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SOP1, SOP2, SOPC, SOPK, SOPP as text.

use super::{join, scalar_register, source};
use crate::inst::{Body, Src};
use crate::op::{Sop1, Sop2, Sopc, Sopk, Sopp};
use crate::Target;

pub(super) fn text(body: &Body, target: Target) -> String {
    match body {
        Body::Sop2 { op, dst, src } => sop2(*op, *dst, *src),
        Body::Sop1 { op, dst, src } => sop1(*op, *dst, *src),
        Body::Sopc { op, src } => sopc(*op, *src),
        Body::Sopk {
            op,
            dst,
            imm,
            literal,
        } => sopk(*op, *dst, *imm, *literal, target),
        Body::Sopp { op, imm } => sopp(*op, *imm),
        _ => String::new(),
    }
}

fn sop2(op: Sop2, dst: u8, src: [Src; 2]) -> String {
    let types = op.types();
    let dst = match types[0].dwords() {
        0 => String::new(),
        dwords => scalar_register(dst, dwords),
    };
    join(
        op.mnemonic(),
        &[dst, source(src[0], types[1]), source(src[1], types[2])],
    )
}

fn sop1(op: Sop1, dst: u8, src: Src) -> String {
    let types = op.types();
    let dst = match types[0].dwords() {
        0 => String::new(),
        dwords => scalar_register(dst, dwords),
    };
    let src = if types[1].dwords() == 0 {
        String::new()
    } else {
        source(src, types[1])
    };
    join(op.mnemonic(), &[dst, src])
}

fn sopc(op: Sopc, src: [Src; 2]) -> String {
    let types = op.types();
    let second = match (op, src[1]) {
        (Sopc::s_set_gpr_idx_on, Src::Literal(modes, _)) if modes < 16 => gpr_index(modes),
        _ => source(src[1], types[2]),
    };
    join(op.mnemonic(), &[source(src[0], types[1]), second])
}

/// Which operands VGPR indexing moves.
fn gpr_index(modes: u32) -> String {
    let names = ["SRC0", "SRC1", "SRC2", "DST"];
    let set: Vec<&str> = (0..4)
        .filter(|bit| modes >> bit & 1 != 0)
        .map(|bit| names[bit])
        .collect();
    format!("gpr_idx({})", set.join(","))
}

fn sopk(op: Sopk, dst: u8, imm: u16, literal: u32, target: Target) -> String {
    let hwreg = |imm| hwreg(imm, target);
    let register = scalar_register(dst, op.types()[0].dwords());
    let operands = match op {
        Sopk::s_getreg_b32 => [register, hwreg(imm)],
        Sopk::s_setreg_b32 => [hwreg(imm), register],
        Sopk::s_setreg_imm32_b32 if literal <= 64 => [hwreg(imm), literal.to_string()],
        Sopk::s_setreg_imm32_b32 => [hwreg(imm), format!("0x{literal:x}")],
        Sopk::s_call_b64 | Sopk::s_cbranch_i_fork => [register, imm.to_string()],
        _ => [register, format!("0x{imm:x}")],
    };
    join(op.mnemonic(), &operands)
}

/// Names of hardware registers that a processor's assembler knows.
fn hwreg(imm: u16, target: Target) -> String {
    let name = match imm & 0x3f {
        20..=24 if target == Target::Gfx90a => "",
        1 => "HW_REG_MODE",
        2 => "HW_REG_STATUS",
        3 => "HW_REG_TRAPSTS",
        4 => "HW_REG_HW_ID",
        5 => "HW_REG_GPR_ALLOC",
        6 => "HW_REG_LDS_ALLOC",
        7 => "HW_REG_IB_STS",
        15 => "HW_REG_SH_MEM_BASES",
        16 => "HW_REG_TBA_LO",
        17 => "HW_REG_TBA_HI",
        18 => "HW_REG_TMA_LO",
        19 => "HW_REG_TMA_HI",
        20 => "HW_REG_XCC_ID",
        21 => "HW_REG_SQ_PERF_SNAPSHOT_DATA",
        22 => "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
        23 => "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
        24 => "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
        _ => "",
    };
    let name = if name.is_empty() {
        (imm & 0x3f).to_string()
    } else {
        name.to_string()
    };
    match (imm >> 6 & 0x1f, (imm >> 11) + 1) {
        (0, 32) => format!("hwreg({name})"),
        (offset, width) => format!("hwreg({name}, {offset}, {width})"),
    }
}

fn sopp(op: Sopp, imm: u16) -> String {
    use Sopp::*;
    let operand = match op {
        s_waitcnt => waitcnt(imm),
        s_sendmsg | s_sendmsghalt => sendmsg(imm),
        s_set_gpr_idx_mode if imm < 16 => gpr_index(imm.into()),
        s_endpgm if imm == 0 => String::new(),
        s_endpgm
        | s_branch
        | s_cbranch_scc0
        | s_cbranch_scc1
        | s_cbranch_vccz
        | s_cbranch_vccnz
        | s_cbranch_execz
        | s_cbranch_execnz
        | s_cbranch_cdbgsys
        | s_cbranch_cdbguser
        | s_cbranch_cdbgsys_or_user
        | s_cbranch_cdbgsys_and_user => imm.to_string(),
        s_barrier
        | s_wakeup
        | s_icache_inv
        | s_ttracedata
        | s_set_gpr_idx_off
        | s_endpgm_saved
        | s_endpgm_ordered_ps_done => String::new(),
        _ if imm <= 64 => imm.to_string(),
        _ => format!("0x{imm:x}"),
    };
    join(op.mnemonic(), &[operand])
}

/// The counters that are waited for; all of them if none is.
fn waitcnt(imm: u16) -> String {
    let counters = [
        ("vmcnt", imm & 0xf | imm >> 10 & 0x30, 63),
        ("expcnt", imm >> 4 & 7, 7),
        ("lgkmcnt", imm >> 8 & 0xf, 15),
    ];
    let none = counters.iter().all(|(_, value, most)| value == most);
    let waits: Vec<String> = counters
        .iter()
        .filter(|(_, value, most)| none || value != most)
        .map(|(name, value, _)| format!("{name}({value})"))
        .collect();
    waits.join(" ")
}

/// A message by its name where it has one, whatever the bits say that no field has; LLVM does so.
fn sendmsg(imm: u16) -> String {
    let (id, operation, stream) = (imm & 0xf, imm >> 4 & 7, imm >> 8 & 3);
    let geometry = ["GS_OP_CUT", "GS_OP_EMIT", "GS_OP_EMIT_CUT"];
    let name = match (id, operation, stream) {
        (1, 0, 0) => "MSG_INTERRUPT",
        (3, 0, 0) => "MSG_GS_DONE, GS_OP_NOP",
        (4, 0, 0) => "MSG_SAVEWAVE",
        (5, 0, 0) => "MSG_STALL_WAVE_GEN",
        (6, 0, 0) => "MSG_HALT_WAVES",
        (7, 0, 0) => "MSG_ORDERED_PS_DONE",
        (8, 0, 0) => "MSG_EARLY_PRIM_DEALLOC",
        (9, 0, 0) => "MSG_GS_ALLOC_REQ",
        (10, 0, 0) => "MSG_GET_DOORBELL",
        (15, 1, 0) => "MSG_SYSMSG, SYSMSG_OP_ECC_ERR_INTERRUPT",
        (15, 2, 0) => "MSG_SYSMSG, SYSMSG_OP_REG_RD",
        (15, 4, 0) => "MSG_SYSMSG, SYSMSG_OP_TTRACE_PC",
        (2 | 3, 1..=3, _) => {
            let name = ["MSG_GS", "MSG_GS_DONE"][usize::from(id - 2)];
            let operation = geometry[usize::from(operation - 1)];
            return format!("sendmsg({name}, {operation}, {stream})");
        }
        _ if imm & 0xfc80 != 0 => return imm.to_string(),
        _ => return format!("sendmsg({id}, {operation}, {stream})"),
    };
    format!("sendmsg({name})")
}
