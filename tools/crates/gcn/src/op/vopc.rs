// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Opcodes of VOPC: vector compares. Their code is regular: type, condition, and whether EXEC is
//! written too (`v_cmpx`).

use super::Ty;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Signed 16 bits.
    I16,
    /// Unsigned 16 bits.
    U16,
    /// Signed 32 bits.
    I32,
    /// Unsigned 32 bits.
    U32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 64 bits.
    U64,
}

/// One vector compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vopc {
    /// `v_cmpx`: EXEC takes the result as well.
    pub write_exec: bool,
    /// What is compared.
    pub compared: Compared,
    /// How.
    pub condition: Condition,
}

/// When a lane's bit is set. `N…` are the negations, true for unordered operands.
#[expect(missing_docs, reason = "the names are the mnemonics'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    F,
    Lt,
    Eq,
    Le,
    Gt,
    /// Less or greater: ordered and different.
    Lg,
    Ge,
    /// Ordered.
    O,
    /// Unordered.
    U,
    Nge,
    Nlg,
    Ngt,
    Nle,
    Neq,
    Nlt,
    T,
    /// Integers: different.
    Ne,
    /// Member of the classes in the second operand's mask.
    Class,
}

use Condition::*;

const FLOAT: [Condition; 16] = [
    F, Lt, Eq, Le, Gt, Lg, Ge, O, U, Nge, Nlg, Ngt, Nle, Neq, Nlt, T,
];
const INTEGER: [Condition; 8] = [F, Lt, Eq, Le, Gt, Ne, Ge, T];

impl Vopc {
    /// The compare of this opcode.
    pub fn from_code(code: u32) -> Option<Self> {
        use Compared::*;
        let float = |compared, base: u32| Vopc {
            write_exec: code & 0x10 != base & 0x10,
            compared,
            condition: FLOAT[(code & 0xf) as usize],
        };
        let integer = |signed, unsigned| Vopc {
            write_exec: code & 0x10 != 0,
            compared: if code & 8 == 0 { signed } else { unsigned },
            condition: INTEGER[(code & 7) as usize],
        };
        let class = |compared| Vopc {
            write_exec: code & 1 != 0,
            compared,
            condition: Class,
        };
        match code {
            0x10..=0x11 => Some(class(F32)),
            0x12..=0x13 => Some(class(F64)),
            0x14..=0x15 => Some(class(F16)),
            0x20..=0x3f => Some(float(F16, 0x20)),
            0x40..=0x5f => Some(float(F32, 0x40)),
            0x60..=0x7f => Some(float(F64, 0x60)),
            0xa0..=0xbf => Some(integer(I16, U16)),
            0xc0..=0xdf => Some(integer(I32, U32)),
            0xe0..=0xff => Some(integer(I64, U64)),
            _ => None,
        }
    }

    /// Its name.
    pub fn mnemonic(self) -> String {
        let exec = if self.write_exec { "x" } else { "" };
        let is_float = self.source_type().is_float();
        let condition = match self.condition {
            T if is_float => "tru".to_string(),
            other => format!("{other:?}").to_lowercase(),
        };
        let compared = format!("{:?}", self.compared).to_lowercase();
        format!("v_cmp{exec}_{condition}_{compared}")
    }

    fn source_type(self) -> Ty {
        match self.compared {
            Compared::F16 => Ty::F16,
            Compared::F32 => Ty::F32,
            Compared::F64 => Ty::F64,
            Compared::I16 | Compared::U16 => Ty::B16,
            Compared::I32 | Compared::U32 => Ty::B32,
            Compared::I64 | Compared::U64 => Ty::B64,
        }
    }

    /// Types of destination (a lane mask) and sources.
    pub fn types(self) -> [Ty; 4] {
        let source = self.source_type();
        let second = if self.condition == Class {
            Ty::B32
        } else {
            source
        };
        [Ty::B64, source, second, Ty::N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_codes_have_their_names() {
        let name = |code| Vopc::from_code(code).unwrap().mnemonic();
        assert_eq!(name(0x10), "v_cmp_class_f32");
        assert_eq!(name(0x4e), "v_cmp_nlt_f32");
        assert_eq!(name(0x7f), "v_cmpx_tru_f64");
        assert_eq!(name(0xc2), "v_cmp_eq_i32");
        assert_eq!(name(0xfd), "v_cmpx_ne_u64");
        assert_eq!(Vopc::from_code(0x16), None);
    }
}
