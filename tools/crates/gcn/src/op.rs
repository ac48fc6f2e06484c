// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The opcode tables, one enum per encoding. A variant is the mnemonic verbatim, its value the
//! opcode field.
//!
//! Opcode numbers and operand widths are those LLVM's disassembler answers with; the test
//! `tests/toolchain.rs` asks it again, for every opcode.

pub mod ds;
pub mod mem;
pub mod smem;
pub mod sop;
pub mod vop;
pub mod vop3p;
pub mod vopc;

pub use ds::Ds;
pub use mem::{AtomicOp, MemOp};
pub use smem::Smem;
pub use sop::{Sop1, Sop2, Sopc, Sopk, Sopp};
pub use vop::{Vop1, Vop2, Vop3};
pub use vop3p::Vop3p;
pub use vopc::Vopc;

/// How an operand's bits are read: its width, what inline constants mean, what `neg` and `abs`
/// touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// No operand.
    N,
    /// 16-bit integer.
    B16,
    /// Half precision.
    F16,
    /// 32 bits.
    B32,
    /// Single precision.
    F32,
    /// 64 bits in two registers.
    B64,
    /// Double precision.
    F64,
    /// Two 16-bit integers.
    P16,
    /// Two halves.
    PF16,
    /// Two singles in two registers.
    PF32,
    /// bfloat16.
    Bf16,
    /// Two bfloat16.
    PBf16,
    /// Three registers.
    B96,
    /// Four registers.
    B128,
    /// Six registers.
    B192,
    /// Eight registers.
    B256,
    /// Sixteen registers.
    B512,
    /// Thirty-two registers.
    B1024,
}

impl Ty {
    /// Registers that an operand of this type takes.
    pub const fn dwords(self) -> u8 {
        match self {
            Ty::N => 0,
            Ty::B16 | Ty::F16 | Ty::B32 | Ty::F32 | Ty::P16 | Ty::PF16 | Ty::Bf16 | Ty::PBf16 => 1,
            Ty::B64 | Ty::F64 | Ty::PF32 => 2,
            Ty::B96 => 3,
            Ty::B128 => 4,
            Ty::B192 => 6,
            Ty::B256 => 8,
            Ty::B512 => 16,
            Ty::B1024 => 32,
        }
    }

    /// Whether `neg` and `abs` mean something.
    pub const fn is_float(self) -> bool {
        use Ty::*;
        matches!(self, F16 | F32 | F64 | PF16 | PF32 | Bf16 | PBf16)
    }
}

/// Defines the opcode enum of an encoding: `code mnemonic [destination source0 source1 source2]`,
/// and the targets that have it unless all have.
macro_rules! ops {
    ($(#[$doc:meta])* $name:ident {
        $($code:literal $op:ident [$($ty:ident)*] $($only:ident)*,)*
    }) => {
        $(#[$doc])*
        #[expect(non_camel_case_types, reason = "mnemonics verbatim")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum $name {
            $(#[doc = concat!("`", stringify!($op), "`")] $op = $code,)*
        }

        impl $name {
            /// All opcodes.
            pub const ALL: &'static [$name] = &[$($name::$op),*];

            /// The opcode of this code.
            pub fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some($name::$op),)*
                    _ => None,
                }
            }

            /// Its name.
            pub fn mnemonic(self) -> &'static str {
                match self {
                    $($name::$op => stringify!($op),)*
                }
            }

            /// Whether a processor has it.
            pub fn is_on(self, target: crate::Target) -> bool {
                match self {
                    $($name::$op => {
                        const ONLY: &[crate::Target] = &[$(crate::Target::$only),*];
                        ONLY.is_empty() || ONLY.contains(&target)
                    })*
                }
            }

            /// Types of destination and sources.
            pub fn types(self) -> [crate::op::Ty; 4] {
                match self {
                    $($name::$op => const { crate::op::signature(&[$(crate::op::Ty::$ty),*]) },)*
                }
            }
        }
    };
}
pub(crate) use ops;

/// A row's types, filled up with [`Ty::N`].
const fn signature(types: &[Ty]) -> [Ty; 4] {
    let mut all = [Ty::N; 4];
    let mut index = 0;
    while index < types.len() {
        all[index] = types[index];
        index += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_opcodes_agree() {
        for op in Vop3::ALL {
            assert_eq!(Vop3::from_code(*op as u32), Some(*op));
        }
        assert_eq!(Sop2::from_code(127), None);
        assert_eq!(
            Vop3::v_mad_u64_u32.types(),
            [Ty::B64, Ty::B32, Ty::B32, Ty::B64]
        );
        assert_eq!(Vop1::v_nop.types(), [Ty::N; 4]);
    }
}
