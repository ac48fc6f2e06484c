// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What atomics compute, in LDS and in memory alike.

use crate::float::{half, min_max, soft, Fp, F16, F32, F64};
use crate::op::AtomicOp;
use crate::Target;

/// How sums of singles in memory count: the mode there is its own. gfx90a's knows no subnormal
/// singles, while halves and doubles keep theirs (LLVM: `fpModeMatchesGlobalFPAtomicMode`, and no
/// `memory-atomic-fadd-f32-denormal-support`).
pub(super) fn in_memory(target: Target) -> Fp {
    let keeps = target != Target::Gfx90a;
    Fp {
        denorm_in: keeps,
        denorm_out: keeps,
        ..Fp::PLAIN
    }
}

/// The same in LDS: MODE says whether subnormals count, and not how to round (LLVM: "DS FP atomics
/// do respect the denormal mode, but the rounding mode is fixed to round-to-nearest-even").
pub(super) fn in_lds(mode: u32) -> Fp {
    let Fp {
        denorm_in,
        denorm_out,
        ..
    } = Fp::single(mode);
    Fp {
        denorm_in,
        denorm_out,
        ..Fp::PLAIN
    }
}

/// Whether memory has to do the operation, and PCIe has not it. A scope of the system (SC1) takes
/// one to memory; LLVM makes those of gfx942 loops of compare-and-swap where PCIe has them not.
/// gfx90a's of floats it makes so at all scopes in memory that is fine-grained
/// (`SITargetLowering::shouldExpandAtomicRMWInIR`; AMDGPUUsage: "Agent scoped atomic operations,
/// excluding those directly supported by PCIe (integer add, exchange, compare-and-swap), are
/// functional for allocations in host memory").
pub(super) fn exceeds_pcie(op: AtomicOp, target: Target, sc1: bool) -> bool {
    use AtomicOp::*;
    match op {
        Swap | CmpSwap | Add => false,
        AddFloat | MinFloat | MaxFloat | PkAddF16 | PkAddBf16 if target == Target::Gfx90a => true,
        _ => sc1 && target != Target::Gfx90a,
    }
}

/// The value that replaces `old`. `data` is the operand, `second` the comparison (or DS's second
/// operand); `fp` is for sums of singles.
pub(super) fn apply32(op: AtomicOp, fp: Fp, old: u32, data: u32, second: u32) -> u32 {
    use AtomicOp::*;
    match op {
        AddFloat => soft::add(F32, fp, old.into(), data.into()) as u32,
        MinFloat => min_max(F32, true, false, old.into(), data.into()) as u32,
        MaxFloat => min_max(F32, true, true, old.into(), data.into()) as u32,
        CmpSwapFloat if f32::from_bits(old) == f32::from_bits(second) => data,
        CmpSwapFloat => old,
        Smin => (old as i32).min(data as i32) as u32,
        Smax => (old as i32).max(data as i32) as u32,
        PkAddF16 => halves(old, data, |a, b| {
            soft::add(F16, Fp::PLAIN, a.into(), b.into()) as u16
        }),
        PkAddBf16 => halves(old, data, |a, b| {
            half::bf16_from_f32(half::bf16_to_f32(a) + half::bf16_to_f32(b))
        }),
        Sub => old.wrapping_sub(data),
        Rsub => data.wrapping_sub(old),
        Add => old.wrapping_add(data),
        // The rest does not depend on the width.
        _ => unsigned(op, old.into(), data.into(), second.into()) as u32,
    }
}

/// The 64-bit sibling of [`apply32`].
pub(super) fn apply64(op: AtomicOp, old: u64, data: u64, second: u64) -> u64 {
    use AtomicOp::*;
    match op {
        AddFloat => soft::add(F64, Fp::PLAIN, old, data),
        MinFloat => min_max(F64, true, false, old, data),
        MaxFloat => min_max(F64, true, true, old, data),
        CmpSwapFloat if f64::from_bits(old) == f64::from_bits(second) => data,
        CmpSwapFloat => old,
        Smin => (old as i64).min(data as i64) as u64,
        Smax => (old as i64).max(data as i64) as u64,
        Sub => old.wrapping_sub(data),
        Rsub => data.wrapping_sub(old),
        Add => old.wrapping_add(data),
        _ => unsigned(op, old, data, second),
    }
}

fn unsigned(op: AtomicOp, old: u64, data: u64, second: u64) -> u64 {
    use AtomicOp::*;
    match op {
        Swap => data,
        CmpSwap if old == second => data,
        CmpSwap => old,
        Umin => old.min(data),
        Umax => old.max(data),
        And => old & data,
        Or => old | data,
        Xor => old ^ data,
        Inc if old >= data => 0,
        Inc => old + 1,
        Dec if old == 0 || old > data => data,
        Dec => old - 1,
        MskOr => old & !data | second,
        Wrap if old >= data => old - data,
        Wrap => old.wrapping_add(second),
        Add | Sub | Rsub | Smin | Smax | AddFloat | MinFloat | MaxFloat | CmpSwapFloat
        | PkAddF16 | PkAddBf16 => old,
    }
}

fn halves(old: u32, data: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    let low = f(old as u16, data as u16);
    let high = f((old >> 16) as u16, (data >> 16) as u16);
    u32::from(low) | u32::from(high) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use AtomicOp::*;

    #[test]
    fn counters_wrap_where_they_are_told() {
        assert_eq!(apply32(Inc, Fp::PLAIN, 4, 5, 0), 5);
        assert_eq!(apply32(Inc, Fp::PLAIN, 5, 5, 0), 0);
        assert_eq!(apply32(Dec, Fp::PLAIN, 0, 5, 0), 5);
        assert_eq!(apply32(Dec, Fp::PLAIN, 9, 5, 0), 5);
        assert_eq!(apply64(Dec, 3, 5, 0), 2);
        assert_eq!(apply32(Wrap, Fp::PLAIN, 7, 5, 100), 2);
        assert_eq!(apply32(Wrap, Fp::PLAIN, 3, 5, 100), 103);
    }

    #[test]
    fn signs_and_widths_matter() {
        assert_eq!(apply32(Smin, Fp::PLAIN, 0xffff_ffff, 1, 0), 0xffff_ffff);
        assert_eq!(apply32(Umin, Fp::PLAIN, 0xffff_ffff, 1, 0), 1);
        assert_eq!(apply32(Add, Fp::PLAIN, 0xffff_ffff, 1, 0), 0);
        assert_eq!(apply64(Add, 0xffff_ffff, 1, 0), 0x1_0000_0000);
        assert_eq!(apply32(CmpSwap, Fp::PLAIN, 7, 9, 7), 9);
        assert_eq!(apply32(CmpSwap, Fp::PLAIN, 8, 9, 7), 8);
        assert_eq!(
            apply32(AddFloat, Fp::PLAIN, 1f32.to_bits(), 2f32.to_bits(), 0),
            3f32.to_bits()
        );
        assert_eq!(
            apply32(PkAddF16, Fp::PLAIN, 0x3c00_3c00, 0x3c00_4000, 0),
            0x4000_4200
        );
    }
}
