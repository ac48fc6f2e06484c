// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Which instructions have quick forms: those without DPP, SDWA, output modifiers and operands that
//! are neither registers nor constants. Nor trap temporaries, which only the trap handler has.

use super::compare::Compare;
use super::lanes::{Int, Single, Wide};
use super::lds::Share;
use super::matrix::Matrix;
use super::memory::Access;
use super::scalar::Scalar;
use super::{Form, Lanes, Quick, Reg, Row, Signs};
use crate::exec::is_trap_temporary;
use crate::inst::{Body, Dst, Inst, Src, Valu, ValuOp};
use crate::op::{Sopp, Vop1, Vop2, Vop3, Vop3p};

impl Quick {
    /// The quick form of an instruction, if it has one.
    pub(super) fn decode(&mut self, inst: &Inst) -> Option<Form> {
        match &inst.body {
            _ if names_trap_temporaries(&inst.body) => None,
            Body::Valu(valu) if valu.flushes(inst.target) => None,
            Body::Valu(valu) => self.valu(valu),
            Body::Mem(mem) => Access::of(mem).map(Form::Memory),
            Body::Ds(ds) => Share::of(ds).map(Form::Share),
            Body::Sopp {
                op: Sopp::s_nop | Sopp::s_waitcnt | Sopp::s_setprio,
                ..
            } => Some(Form::Nop),
            _ => Scalar::of(inst).map(Form::Scalar),
        }
    }

    fn valu(&mut self, v: &Valu) -> Option<Form> {
        if v.sdwa.is_some() || v.dpp.is_some() || v.mods.clamp || v.mods.omod != 0 {
            return None;
        }
        if let ValuOp::Packed(op) = v.op {
            return self.packed(v, op);
        }
        if v.mods.op_sel | v.mods.op_sel_hi != 0 {
            return None;
        }
        let signs = Signs {
            negated: v.mods.neg,
            magnitude: v.mods.abs,
        };
        if let ValuOp::Compare(op) = v.op {
            let Dst::Scalar(dst) = v.dst else { return None };
            let src = [pair(v, 0)?, pair(v, 1)?];
            let to = (dst & 0x7e, op.write_exec);
            return Compare::new(op.compared, op.condition, src, signs, to).map(Form::Compare);
        }
        if let Some(op) = Single::of(v.op) {
            return Some(Form::Single {
                op,
                dst: register(v.dst)?,
                src: three(v)?,
                signs,
            });
        }
        if let Some(op) = Wide::of(v.op) {
            if !op.is_float() && signs != Signs::default() {
                return None;
            }
            return Some(Form::Wide {
                op,
                dst: register(v.dst)?,
                src: [pair(v, 0)?, pair(v, 1)?, pair(v, 2)?],
                signs,
            });
        }
        if signs != Signs::default() {
            return None;
        }
        Self::integers(v)
    }

    fn integers(v: &Valu) -> Option<Form> {
        use Vop2::*;
        if let Some(op) = Int::of(v.op) {
            let mut src = three(v)?;
            match op {
                Int::v_mbcnt_lo_u32_b32 => src[2] = Lanes::Row(Row::BelowLow),
                Int::v_mbcnt_hi_u32_b32 => src[2] = Lanes::Row(Row::BelowHigh),
                _ => {}
            }
            let dst = register(v.dst)?;
            return Some(Form::Int { op, dst, src });
        }
        match v.op {
            ValuOp::Two(v_cndmask_b32) => {
                let Src::Scalar(mask) = v.src[2] else {
                    return None;
                };
                Some(Form::Select {
                    dst: register(v.dst)?,
                    src: [narrow(v.src[0])?, narrow(v.src[1])?],
                    mask: mask & 0x7e,
                })
            }
            ValuOp::Two(op) => Self::carry(v, op),
            ValuOp::Three(Vop3::v_mad_u64_u32) => Some(Form::Multiply {
                dst: register(v.dst)?,
                src: [narrow(v.src[0])?, narrow(v.src[1])?],
                addend: pair(v, 2)?,
                out: v.sdst & 0x7e,
            }),
            ValuOp::One(Vop1::v_readfirstlane_b32) => match (v.dst, v.src[0]) {
                (Dst::Scalar(dst), Src::Vgpr(src)) => Some(Form::FirstLane {
                    dst: dst & 0x7f,
                    src,
                }),
                _ => None,
            },
            _ => None,
        }
    }

    fn carry(v: &Valu, op: Vop2) -> Option<Form> {
        use Vop2::*;
        let (subtracts, swapped, takes) = match op {
            v_add_co_u32 => (false, false, false),
            v_addc_co_u32 => (false, false, true),
            v_sub_co_u32 => (true, false, false),
            v_subrev_co_u32 => (true, true, false),
            v_subb_co_u32 => (true, false, true),
            v_subbrev_co_u32 => (true, true, true),
            _ => return None,
        };
        let from = match (takes, v.src[2]) {
            (false, _) => None,
            (true, Src::Scalar(code)) => Some(code & 0x7e),
            (true, _) => return None,
        };
        let [a, b] = [narrow(v.src[0])?, narrow(v.src[1])?];
        Some(Form::Carry {
            subtracts,
            dst: register(v.dst)?,
            src: if swapped { [b, a] } else { [a, b] },
            from,
            out: v.sdst & 0x7e,
        })
    }

    fn packed(&mut self, v: &Valu, op: Vop3p) -> Option<Form> {
        if let Some(op) = Int::of(v.op) {
            return Some(Form::Int {
                op,
                dst: register(v.dst)?,
                src: three(v)?,
            });
        }
        if op.is_matrix() {
            let [a, b, dst] = [source(v.src[0])?, source(v.src[1])?, register(v.dst)?];
            let matrix = Matrix::new(v, op, [a, b, dst], addend(v)?)?;
            self.matrices.push(matrix);
            return Some(Form::Matrix(u16::try_from(self.matrices.len() - 1).ok()?));
        }
        if !matches!(
            op,
            Vop3p::v_pk_fma_f32 | Vop3p::v_pk_mul_f32 | Vop3p::v_pk_add_f32
        ) {
            return None;
        }
        let both = [(v.mods.op_sel, v.mods.neg), (v.mods.op_sel_hi, v.mods.abs)];
        let mut src = [[Lanes::Row(Row::Zeros); 3]; 2];
        for (src, (select, _)) in src.iter_mut().zip(both) {
            for (index, src) in src.iter_mut().enumerate() {
                *src = halves(v.src[index])?[usize::from(select >> index & 1)];
            }
        }
        Some(Form::Packed {
            op: Single::of(v.op)?,
            dst: register(v.dst)?,
            src,
            signs: both.map(|(_, negated)| Signs {
                negated,
                magnitude: 0,
            }),
        })
    }
}

/// Whether it computes with trap temporaries, or into one.
fn names_trap_temporaries(body: &Body) -> bool {
    let is_one = |code: u8| is_trap_temporary(code & 0x7f);
    let reads = |src: &Src| matches!(src, Src::Scalar(code) if is_one(*code));
    match body {
        Body::Valu(v) => {
            let writes = matches!(v.dst, Dst::Scalar(code) if is_one(code));
            writes || is_one(v.sdst) || v.src.iter().any(reads)
        }
        Body::Sop2 { dst, src, .. } => is_one(*dst) || src.iter().any(reads),
        Body::Sop1 { dst, src, .. } => is_one(*dst) || reads(src),
        Body::Sopc { src, .. } => src.iter().any(reads),
        Body::Sopk { dst, .. } => is_one(*dst),
        Body::Sopp { .. } | Body::Smem(_) | Body::Mem(_) | Body::Ds(_) => false,
    }
}

/// C of a matrix product, in registers or a constant of one or two dwords.
fn addend(v: &Valu) -> Option<[Lanes; 2]> {
    match v.src[2] {
        Src::Vgpr(number) => Some([Lanes::Vgpr(number); 2]),
        Src::Acc(number) => Some([Lanes::Acc(number); 2]),
        constant @ Src::Inline(..) => halves(constant),
        _ => None,
    }
}

/// Sources of one dword.
fn three(v: &Valu) -> Option<[Lanes; 3]> {
    let [a, b, c] = v.src;
    Some([narrow(a)?, narrow(b)?, narrow(c)?])
}

fn narrow(src: Src) -> Option<Lanes> {
    match src {
        Src::None => Some(Lanes::Row(Row::Zeros)),
        Src::Vgpr(number) => Some(Lanes::Vgpr(number)),
        Src::Acc(number) => Some(Lanes::Acc(number)),
        Src::Scalar(code) => Some(Lanes::Scalar(code & 0x7f)),
        Src::Inline(_, bits) | Src::Literal(_, bits) => Some(constant(bits as u32)),
        Src::Special(_) => None,
    }
}

/// A source's low and high dword; of one of 32 bits the high one is zero.
fn pair(v: &Valu, index: usize) -> Option<[Lanes; 2]> {
    if v.types[index + 1].dwords() == 2 {
        return halves(v.src[index]);
    }
    Some([narrow(v.src[index])?, Lanes::Row(Row::Zeros)])
}

/// The low and the high dword of a source of 64 bits.
fn halves(src: Src) -> Option<[Lanes; 2]> {
    match src {
        Src::None => Some([Lanes::Row(Row::Zeros); 2]),
        Src::Vgpr(number) => Some([number, number.checked_add(1)?].map(Lanes::Vgpr)),
        Src::Acc(number) => Some([number, number.checked_add(1)?].map(Lanes::Acc)),
        Src::Scalar(code) => Some([code & 0x7e, code & 0x7e | 1].map(Lanes::Scalar)),
        Src::Inline(_, bits) | Src::Literal(_, bits) => {
            Some([bits as u32, (bits >> 32) as u32].map(constant))
        }
        Src::Special(_) => None,
    }
}

/// A constant operand.
fn constant(value: u32) -> Lanes {
    match value {
        0 => Lanes::Row(Row::Zeros),
        _ => Lanes::Constant(value),
    }
}

fn source(src: Src) -> Option<Reg> {
    match src {
        Src::Vgpr(number) => Some(Reg::Vgpr(number)),
        Src::Acc(number) => Some(Reg::Acc(number)),
        _ => None,
    }
}

fn register(dst: Dst) -> Option<Reg> {
    match dst {
        Dst::Vgpr(number) => Some(Reg::Vgpr(number)),
        Dst::Acc(number) => Some(Reg::Acc(number)),
        Dst::None | Dst::Scalar(_) => None,
    }
}
