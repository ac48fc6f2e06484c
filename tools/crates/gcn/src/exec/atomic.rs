// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What atomics compute, in LDS and in memory alike.

use crate::float::{half, min_max, soft, Format, Fp, F16, F32, F64};
use crate::op::AtomicOp;
use crate::Target;

/// How floats count in an atomic.
#[derive(Clone, Copy)]
pub(super) struct Floats {
    single: Fp,
    /// Halves, and of doubles what is compared.
    other: Fp,
}

/// Subnormal numbers count.
pub(super) const PLAIN: Floats = Floats {
    single: Fp::PLAIN,
    other: Fp::PLAIN,
};

/// In memory: the mode there is its own. gfx90a's knows no subnormal singles, while halves and
/// doubles keep theirs (LLVM: `fpModeMatchesGlobalFPAtomicMode`, and no
/// `memory-atomic-fadd-f32-denormal-support`).
pub(super) fn in_memory(target: Target) -> Floats {
    let keeps = target != Target::Gfx90a;
    let single = Fp {
        denorm_in: keeps,
        denorm_out: keeps,
        ..Fp::PLAIN
    };
    Floats { single, ..PLAIN }
}

/// In LDS: MODE says whether subnormals count, and not how to round (LLVM: "DS FP atomics do
/// respect the denormal mode, but the rounding mode is fixed to round-to-nearest-even"; the ISA
/// guide, 9.2.2). Sums of doubles keep them.
pub(super) fn in_lds(mode: u32) -> Floats {
    let [single, other] = [Fp::single(mode), Fp::other(mode)].map(|fp| Fp {
        denorm_in: fp.denorm_in,
        denorm_out: fp.denorm_out,
        ..Fp::PLAIN
    });
    Floats { single, other }
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
/// operand).
pub(super) fn apply32(op: AtomicOp, floats: Floats, old: u32, data: u32, second: u32) -> u32 {
    use AtomicOp::*;
    let Floats { single, other } = floats;
    match op {
        AddFloat => soft::add(F32, single, old.into(), data.into()) as u32,
        MinFloat => chosen(F32, single, false, old.into(), data.into()) as u32,
        MaxFloat => chosen(F32, single, true, old.into(), data.into()) as u32,
        CmpSwapFloat => {
            let [found, wanted, data] =
                [old, second, data].map(|bits| flushed(F32, single, bits.into()) as u32);
            let swaps = f32::from_bits(found) == f32::from_bits(wanted);
            if swaps {
                data
            } else {
                old
            }
        }
        Smin => (old as i32).min(data as i32) as u32,
        Smax => (old as i32).max(data as i32) as u32,
        PkAddF16 => halves(old, data, |a, b| {
            soft::add(F16, other, a.into(), b.into()) as u16
        }),
        PkAddBf16 => halves(old, data, |a, b| {
            let [a, b] = [a, b].map(|bits| half::bf16_to_f32(short(other.denorm_in, bits)));
            short(other.denorm_out, half::bf16_from_f32(a + b))
        }),
        Sub => old.wrapping_sub(data),
        Rsub => data.wrapping_sub(old),
        Add => old.wrapping_add(data),
        // The rest does not depend on the width.
        _ => unsigned(op, old.into(), data.into(), second.into()) as u32,
    }
}

/// The 64-bit sibling of [`apply32`].
pub(super) fn apply64(op: AtomicOp, floats: Floats, old: u64, data: u64, second: u64) -> u64 {
    use AtomicOp::*;
    let Floats { other, .. } = floats;
    match op {
        AddFloat => soft::add(F64, Fp::PLAIN, old, data),
        MinFloat => chosen(F64, other, false, old, data),
        MaxFloat => chosen(F64, other, true, old, data),
        CmpSwapFloat => {
            let [found, wanted, data] = [old, second, data].map(|bits| flushed(F64, other, bits));
            let swaps = f64::from_bits(found) == f64::from_bits(wanted);
            if swaps {
                data
            } else {
                old
            }
        }
        Smin => (old as i64).min(data as i64) as u64,
        Smax => (old as i64).max(data as i64) as u64,
        Sub => old.wrapping_sub(data),
        Rsub => data.wrapping_sub(old),
        Add => old.wrapping_add(data),
        _ => unsigned(op, old, data, second),
    }
}

/// A source, as MODE has it.
fn flushed(format: Format, fp: Fp, bits: u64) -> u64 {
    match fp.denorm_in {
        true => bits,
        false => format.flush(bits),
    }
}

/// A bfloat16, without a subnormal value unless they are kept.
fn short(keeps: bool, bits: u16) -> u16 {
    match bits & 0x7f80 {
        0 if !keeps => bits & 0x8000,
        _ => bits,
    }
}

/// The lesser or the greater: flushed to be compared, but "the actual result returned is the
/// selected non-flushed input" (the ISA guide, 9.2.2).
fn chosen(format: Format, fp: Fp, maximum: bool, old: u64, data: u64) -> u64 {
    let [a, b] = [old, data].map(|bits| flushed(format, fp, bits));
    match min_max(format, true, maximum, a, b) {
        found if found == a => old,
        found if found == b => data,
        quieted => quieted,
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
        assert_eq!(apply32(Inc, PLAIN, 4, 5, 0), 5);
        assert_eq!(apply32(Inc, PLAIN, 5, 5, 0), 0);
        assert_eq!(apply32(Dec, PLAIN, 0, 5, 0), 5);
        assert_eq!(apply32(Dec, PLAIN, 9, 5, 0), 5);
        assert_eq!(apply64(Dec, PLAIN, 3, 5, 0), 2);
        assert_eq!(apply32(Wrap, PLAIN, 7, 5, 100), 2);
        assert_eq!(apply32(Wrap, PLAIN, 3, 5, 100), 103);
    }

    #[test]
    fn signs_and_widths_matter() {
        assert_eq!(apply32(Smin, PLAIN, 0xffff_ffff, 1, 0), 0xffff_ffff);
        assert_eq!(apply32(Umin, PLAIN, 0xffff_ffff, 1, 0), 1);
        assert_eq!(apply32(Add, PLAIN, 0xffff_ffff, 1, 0), 0);
        assert_eq!(apply64(Add, PLAIN, 0xffff_ffff, 1, 0), 0x1_0000_0000);
        assert_eq!(apply32(CmpSwap, PLAIN, 7, 9, 7), 9);
        assert_eq!(apply32(CmpSwap, PLAIN, 8, 9, 7), 8);
        assert_eq!(
            apply32(AddFloat, PLAIN, 1f32.to_bits(), 2f32.to_bits(), 0),
            3f32.to_bits()
        );
        assert_eq!(
            apply32(PkAddF16, PLAIN, 0x3c00_3c00, 0x3c00_4000, 0),
            0x4000_4200
        );
    }

    #[test]
    fn subnormal_numbers_are_flushed_to_be_compared() {
        let flushing = in_lds(0);
        let one = 1f32.to_bits();
        assert_eq!(apply32(MinFloat, flushing, one, 5, 0), 5);
        assert_eq!(apply32(MaxFloat, flushing, 1 << 31 | 5, 0, 0), 0);
        assert_eq!(
            apply32(MinFloat, flushing, 1 << 31 | 5, 1 << 31 | 9, 0),
            1 << 31 | 5
        );
        assert_eq!(
            apply32(MinFloat, PLAIN, 1 << 31 | 5, 1 << 31 | 9, 0),
            1 << 31 | 9
        );
        assert_eq!(apply32(CmpSwapFloat, flushing, 5, one, 9), one);
        assert_eq!(apply32(CmpSwapFloat, PLAIN, 5, one, 9), 5);
        assert_eq!(apply32(CmpSwapFloat, flushing, 0, 7, 0), 0);
        assert_eq!(apply64(CmpSwapFloat, flushing, 5, 1 << 62, 9), 1 << 62);
        assert_eq!(apply64(AddFloat, flushing, 5, 4, 0), 9);
        for op in [PkAddF16, PkAddBf16] {
            assert_eq!(apply32(op, PLAIN, 0x0005_0001, 0x0003_0001, 0), 0x0008_0002);
            assert_eq!(apply32(op, flushing, 0x0005_0001, 0x0003_0001, 0), 0);
        }
    }
}
