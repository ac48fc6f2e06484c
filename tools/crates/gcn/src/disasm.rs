// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Instructions as text, spelled as LLVM's assembler spells them. For traces and messages.

mod memory;
mod scalar;
mod vector;

use crate::decode;
use crate::inst::{Body, Dst, Inst, Special, Src};
use crate::op::Ty;
use std::fmt;

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match &self.body {
            Body::Sop2 { .. }
            | Body::Sop1 { .. }
            | Body::Sopc { .. }
            | Body::Sopk { .. }
            | Body::Sopp { .. } => scalar::text(&self.body, self.target),
            Body::Smem(smem) => memory::smem(smem),
            Body::Valu(valu) => vector::text(valu, self.target),
            Body::Mem(mem) => memory::vector(mem, self.target),
            Body::Ds(ds) => memory::ds(ds),
        };
        f.write_str(&text)
    }
}

/// A mnemonic with its operands.
fn join(mnemonic: &str, operands: &[String]) -> String {
    let operands: Vec<&str> = operands
        .iter()
        .map(String::as_str)
        .filter(|operand| !operand.is_empty())
        .collect();
    if operands.is_empty() {
        return mnemonic.to_string();
    }
    format!("{mnemonic} {}", operands.join(", "))
}

/// `dwords` registers of a file from `first` on.
fn range(file: &str, first: u32, dwords: u8) -> String {
    match dwords {
        0 | 1 => format!("{file}{first}"),
        _ => format!("{file}[{first}:{}]", first + u32::from(dwords) - 1),
    }
}

/// A scalar register (or what shares its codes), `dwords` wide.
fn scalar_register(code: u8, dwords: u8) -> String {
    let pair = |name: &str| match dwords {
        2 => name.to_string(),
        _ => format!("{name}_lo"),
    };
    match code {
        0..=101 => range("s", code.into(), dwords),
        102 => pair("flat_scratch"),
        103 => "flat_scratch_hi".to_string(),
        104 => pair("xnack_mask"),
        105 => "xnack_mask_hi".to_string(),
        106 => pair("vcc"),
        107 => "vcc_hi".to_string(),
        108..=123 => range("ttmp", u32::from(code) - 108, dwords),
        124 => "m0".to_string(),
        126 => pair("exec"),
        127 => "exec_hi".to_string(),
        _ => format!("scalar{code}"),
    }
}

fn destination(dst: Dst, dwords: u8) -> String {
    match dst {
        Dst::None => String::new(),
        Dst::Vgpr(number) => range("v", number.into(), dwords),
        Dst::Acc(number) => range("a", number.into(), dwords),
        Dst::Scalar(code) => scalar_register(code, dwords),
    }
}

fn source(src: Src, ty: Ty) -> String {
    match src {
        Src::None => String::new(),
        Src::Vgpr(number) => range("v", number.into(), ty.dwords()),
        Src::Acc(number) => range("a", number.into(), ty.dwords()),
        Src::Scalar(code) => scalar_register(code, ty.dwords()),
        Src::Special(special) => special_name(special).to_string(),
        Src::Inline(code, _) => inline(code, ty),
        Src::Literal(word, _) => format!("0x{word:x}"),
    }
}

fn special_name(special: Special) -> &'static str {
    match special {
        Special::SharedBase => "src_shared_base",
        Special::SharedLimit => "src_shared_limit",
        Special::PrivateBase => "src_private_base",
        Special::PrivateLimit => "src_private_limit",
        Special::PopsExitingWaveId => "src_pops_exiting_wave_id",
        Special::Vccz => "src_vccz",
        Special::Execz => "src_execz",
        Special::Scc => "src_scc",
        Special::LdsDirect => "src_lds_direct",
    }
}

fn inline(code: u8, ty: Ty) -> String {
    const FLOATS: [&str; 8] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"];
    match code {
        128..=192 => (i32::from(code) - 128).to_string(),
        193..=208 => (192 - i32::from(code)).to_string(),
        // LLVM's way to write it, though these get the single's bits.
        240..=248 if ty == Ty::B16 => format!("0x{:x}", decode::HALF[usize::from(code - 240)]),
        240..=247 => FLOATS[usize::from(code - 240)].to_string(),
        248 => match ty {
            Ty::F64 | Ty::B64 => "0.15915494309189532".to_string(),
            _ => "0.15915494".to_string(),
        },
        _ => format!("constant{code}"),
    }
}

/// ` name:value`, or nothing for the default.
fn option<T: PartialEq + fmt::Display>(name: &str, value: T, default: T) -> String {
    if value == default {
        String::new()
    } else {
        format!(" {name}:{value}")
    }
}

/// ` name` if it is on.
fn flag(name: &str, on: bool) -> String {
    if on {
        format!(" {name}")
    } else {
        String::new()
    }
}
