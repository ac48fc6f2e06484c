// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The vector ALU: dispatch by opcode table, and the loops over lanes that all operations share.
//!
//! An operation is a closure on one lane's operands. The loops run over all 64 lanes of plain
//! arrays, so that the compiler vectorises them; EXEC comes in only when the result is written.

mod compare;
mod convert;
mod cross;
mod dot;
mod exceptions;
pub(super) mod matrix;
mod operand;
mod packed;
mod scaled;
mod vop1;
mod vop2;
mod vop3;

pub(super) use operand::merge;

use super::{Done, Machine};
use crate::float::{half, settle32, settle64, soft, Fp, Round, F16, F32, F64};
use crate::inst::{Inst, Valu, ValuOp};
use crate::wave::{mode, Vgpr, LANES};

/// A double-width register for each lane.
type Wide = [u64; LANES];

/// An exact operation, for rounding modes that the host has not.
type Exact2 = fn(crate::float::Format, Fp, u64, u64) -> u64;
type Exact3 = fn(crate::float::Format, Fp, u64, u64, u64) -> u64;

impl Machine<'_> {
    pub(super) fn valu(&mut self, inst: &Inst, valu: &Valu) -> Done {
        if self.wave.mode & (mode::GPR_IDX_EN | mode::VSKIP) != 0 {
            if self.wave.mode & mode::VSKIP != 0 {
                return Ok(());
            }
            let indexed = self.gpr_indexed(valu);
            return self.valu_op(inst, &indexed);
        }
        self.valu_op(inst, valu)
    }

    fn valu_op(&mut self, inst: &Inst, valu: &Valu) -> Done {
        match valu.op {
            ValuOp::One(op) => self.vop1(inst, valu, op),
            ValuOp::Two(op) => self.vop2(inst, valu, op),
            ValuOp::Three(op) => self.vop3(inst, valu, op),
            ValuOp::Packed(op) => self.vop3p(inst, valu, op),
            ValuOp::Compare(op) => {
                self.compare(valu, op);
                Ok(())
            }
        }
    }

    #[inline(always)]
    fn map1(&mut self, v: &Valu, f: impl Fn(u32) -> u32) -> Done {
        let mut hold = [0; LANES];
        let a = self.src32(v, 0, &mut hold);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i]);
        }
        self.put32(v, &d);
        Ok(())
    }

    #[inline(always)]
    fn map2(&mut self, v: &Valu, f: impl Fn(u32, u32) -> u32) -> Done {
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i], b[i]);
        }
        self.put32(v, &d);
        Ok(())
    }

    #[inline(always)]
    fn map3(&mut self, v: &Valu, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let mut hold = [[0; LANES]; 3];
        let [hold_a, hold_b, hold_c] = &mut hold;
        let a = self.src32(v, 0, hold_a);
        let b = self.src32(v, 1, hold_b);
        let c = self.src32(v, 2, hold_c);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i], b[i], c[i]);
        }
        self.put32(v, &d);
        Ok(())
    }

    /// 16-bit integers.
    #[inline(always)]
    fn map16(&mut self, v: &Valu, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let [a, b, c] = [self.src16(v, 0), self.src16(v, 1), self.src16(v, 2)];
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i], b[i], c[i]) & 0xffff;
        }
        self.put16(v, &d);
        Ok(())
    }

    /// 32-bit sources of any number, a double-width result.
    #[inline(always)]
    fn widen(&mut self, v: &Valu, f: impl Fn(u32) -> u64) -> Done {
        let mut hold = [0; LANES];
        let a = self.src32(v, 0, &mut hold);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i]);
        }
        self.put64(v, &d);
        Ok(())
    }

    /// A double-width source, a single-width result.
    #[inline(always)]
    fn narrow(&mut self, v: &Valu, f: impl Fn(u64) -> u32) -> Done {
        let a = self.src64(v, 0);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i]);
        }
        self.put32(v, &d);
        Ok(())
    }

    #[inline(always)]
    fn wide1(&mut self, v: &Valu, f: impl Fn(u64) -> u64) -> Done {
        let a = self.src64(v, 0);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i]);
        }
        self.put64(v, &d);
        Ok(())
    }

    #[inline(always)]
    fn wide2(&mut self, v: &Valu, f: impl Fn(u64, u64) -> u64) -> Done {
        let (a, b) = (self.src_any(v, 0), self.src_any(v, 1));
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i], b[i]);
        }
        self.put64(v, &d);
        Ok(())
    }

    #[inline(always)]
    fn wide3(&mut self, v: &Valu, f: impl Fn(u64, u64, u64) -> u64) -> Done {
        let [a, b, c] = [self.src_any(v, 0), self.src_any(v, 1), self.src_any(v, 2)];
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(a[i], b[i], c[i]);
        }
        self.put64(v, &d);
        Ok(())
    }

    fn single(&self) -> Fp {
        Fp::single(self.wave.mode)
    }

    fn other(&self) -> Fp {
        Fp::other(self.wave.mode)
    }

    /// One f32 operand, result without need of rounding modes.
    #[inline(always)]
    fn float1(&mut self, v: &Valu, f: impl Fn(f32) -> f32) -> Done {
        let fp = self.single();
        let mut hold = [0; LANES];
        let a = self.float_src(v, 0, &mut hold, fp);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = settle32(f(f32::from_bits(a[i])), [a[i], 0, 0]);
        }
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    #[inline(always)]
    fn float2(&mut self, v: &Valu, exact: Exact2, f: impl Fn(f32, f32) -> f32) -> Done {
        let fp = self.single();
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let a = self.float_src(v, 0, hold_a, fp);
        let b = self.float_src(v, 1, hold_b, fp);
        let mut d = [0; LANES];
        if fp.round == Round::Nearest {
            for i in 0..LANES {
                let result = f(f32::from_bits(a[i]), f32::from_bits(b[i]));
                d[i] = settle32(result, [a[i], b[i], 0]);
            }
        } else {
            for i in 0..LANES {
                d[i] = exact(F32, fp, a[i].into(), b[i].into()) as u32;
            }
        }
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    #[inline(always)]
    fn float3(&mut self, v: &Valu, exact: Exact3, f: impl Fn(f32, f32, f32) -> f32) -> Done {
        let fp = self.single();
        let mut hold = [[0; LANES]; 3];
        let [hold_a, hold_b, hold_c] = &mut hold;
        let a = self.float_src(v, 0, hold_a, fp);
        let b = self.float_src(v, 1, hold_b, fp);
        let c = self.float_src(v, 2, hold_c, fp);
        let mut d = [0; LANES];
        if fp.round == Round::Nearest {
            for i in 0..LANES {
                let [x, y, z] = [a[i], b[i], c[i]].map(f32::from_bits);
                d[i] = settle32(f(x, y, z), [a[i], b[i], c[i]]);
            }
        } else {
            for i in 0..LANES {
                d[i] = exact(F32, fp, a[i].into(), b[i].into(), c[i].into()) as u32;
            }
        }
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    /// f32 operands as bits (up to three), result as bits: minimum, maximum and what picks one
    /// operand.
    #[inline(always)]
    fn float_bits(&mut self, v: &Valu, f: impl Fn(Fp, u64, u64, u64) -> u64) -> Done {
        let fp = self.single();
        let mut hold = [[0; LANES]; 3];
        let [hold_a, hold_b, hold_c] = &mut hold;
        let a = self.float_src(v, 0, hold_a, fp);
        let b = self.float_src(v, 1, hold_b, fp);
        let c = self.float_src(v, 2, hold_c, fp);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(fp, a[i].into(), b[i].into(), c[i].into()) as u32;
        }
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    #[inline(always)]
    fn double1(&mut self, v: &Valu, f: impl Fn(f64) -> f64) -> Done {
        let fp = self.other();
        let a = self.double_src(v, 0, fp);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = settle64(f(f64::from_bits(a[i])), [a[i], 0, 0]);
        }
        self.finish64(v, &mut d, fp);
        Ok(())
    }

    #[inline(always)]
    fn double2(&mut self, v: &Valu, exact: Exact2, f: impl Fn(f64, f64) -> f64) -> Done {
        let fp = self.other();
        let (a, b) = (self.double_src(v, 0, fp), self.double_src(v, 1, fp));
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = match fp.round {
                Round::Nearest => settle64(
                    f(f64::from_bits(a[i]), f64::from_bits(b[i])),
                    [a[i], b[i], 0],
                ),
                _ => exact(F64, fp, a[i], b[i]),
            };
        }
        self.finish64(v, &mut d, fp);
        Ok(())
    }

    #[inline(always)]
    fn double_bits(&mut self, v: &Valu, f: impl Fn(Fp, u64, u64, u64) -> u64) -> Done {
        let fp = self.other();
        let [a, b, c] = [
            self.double_src(v, 0, fp),
            self.double_src(v, 1, fp),
            self.double_src(v, 2, fp),
        ];
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(fp, a[i], b[i], c[i]);
        }
        self.finish64(v, &mut d, fp);
        Ok(())
    }

    fn double_fma(&mut self, v: &Valu) -> Done {
        self.double_bits(v, |fp, a, b, c| {
            if fp.round != Round::Nearest {
                return soft::fma(F64, fp, a, b, c);
            }
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            settle64(x.mul_add(y, z), [a, b, c])
        })
    }

    /// f16 operands as bits, result as bits.
    #[inline(always)]
    fn half_bits(&mut self, v: &Valu, f: impl Fn(Fp, u64, u64, u64) -> u64) -> Done {
        let fp = self.other();
        let [a, b, c] = [
            self.half_src(v, 0, fp),
            self.half_src(v, 1, fp),
            self.half_src(v, 2, fp),
        ];
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(fp, a[i].into(), b[i].into(), c[i].into()) as u32;
        }
        self.finish16(v, &mut d, fp);
        Ok(())
    }

    /// f16 operands by their values: the result is computed in f32, where it is exact or rounds
    /// harmlessly, and then rounded to f16.
    #[inline(always)]
    fn half1(&mut self, v: &Valu, f: impl Fn(f32) -> f32) -> Done {
        self.half_bits(v, |fp, a, _, _| {
            half_result(fp, f(half::to_f32(a as u16)), [a, 0, 0])
        })
    }

    #[inline(always)]
    fn half2(&mut self, v: &Valu, exact: Exact2, f: impl Fn(f32, f32) -> f32) -> Done {
        self.half_bits(v, |fp, a, b, _| {
            if fp.round != Round::Nearest {
                return exact(F16, fp, a, b);
            }
            half_result(
                fp,
                f(half::to_f32(a as u16), half::to_f32(b as u16)),
                [a, b, 0],
            )
        })
    }

    fn half_fma(&mut self, v: &Valu) -> Done {
        self.half_bits(v, half_fma)
    }

    /// A multiply-add of singles that rounds twice, and knows no subnormal numbers.
    fn single_mad(&mut self, v: &Valu, multiply: Exact2) -> Done {
        self.float_bits(v, |fp, a, b, c| {
            let fp = Fp {
                denorm_in: false,
                denorm_out: false,
                ..fp
            };
            let product = multiply(F32, fp, a, b);
            soft::add(F32, fp, product, c)
        })
    }

    /// Unfused: the product is rounded too. Of `v_mad_f16` the ISA guide says "denormals are
    /// flushed" (LLVM uses it only where MODE has them so); the others are what LLVM makes of
    /// `llvm.amdgcn.fmad.ftz.f16`, whatever MODE says, and the guide's notes have denormals of sums
    /// and products, not of these.
    fn half_mad(&mut self, v: &Valu) -> Done {
        self.half_bits(v, |fp, a, b, c| {
            let fp = Fp {
                denorm_in: false,
                denorm_out: false,
                ..fp
            };
            let product = soft::mul(F16, fp, a, b);
            soft::add(F16, fp, product, c)
        })
    }
}

/// Bits of a half from its value in f32, or the operands' NaN.
#[inline(always)]
fn half_result(fp: Fp, value: f32, operands: [u64; 3]) -> u64 {
    if value.is_nan() {
        return soft::nan_of(F16, &operands).unwrap_or(F16.nan());
    }
    u64::from(half::round_f32(value, fp))
}

/// f16 fused multiply-add. In f64 product and sum are exact wherever the result is finite.
#[inline(always)]
fn half_fma(fp: Fp, a: u64, b: u64, c: u64) -> u64 {
    if fp.round != Round::Nearest || fp.fp16_ovfl {
        return soft::fma(F16, fp, a, b, c);
    }
    let [x, y, z] = [a, b, c].map(|bits| f64::from(half::to_f32(bits as u16)));
    let value = x * y + z;
    if value.is_nan() {
        return soft::nan_of(F16, &[a, b, c]).unwrap_or(F16.nan());
    }
    soft::convert(F64, F16, fp, value.to_bits())
}

fn blank() -> Vgpr {
    [0; LANES]
}
