// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Conversions: VOP1's `v_cvt_*`. Float to integer truncates and saturates, NaN becomes 0 — as
//! Rust's `as` does.

use super::{Done, Machine};
use crate::exec::unsupported;
use crate::float::small::Small;
use crate::float::{half, soft, Fp, Round, F16, F32, F64};
use crate::inst::{Inst, Valu};
use crate::op::Vop1;
use crate::wave::LANES;

/// Whether `op` is converted here.
pub(super) fn is_conversion(op: Vop1) -> bool {
    op.mnemonic().starts_with("v_cvt_")
}

impl Machine<'_> {
    pub(super) fn convert(&mut self, inst: &Inst, v: &Valu, op: Vop1) -> Done {
        use Vop1::*;
        match op {
            // The upper half of a single.
            v_cvt_f32_bf16 => self.single_result(v, |_, a| a << 16),
            v_cvt_f32_i32 => self.single_result(v, |fp, a| from_i64(fp, i64::from(a as i32))),
            v_cvt_f32_u32 => self.single_result(v, |fp, a| from_i64(fp, i64::from(a))),
            v_cvt_f32_ubyte0 => self.single_result(v, |_, a| ((a & 0xff) as f32).to_bits()),
            v_cvt_f32_ubyte1 => self.single_result(v, |_, a| ((a >> 8 & 0xff) as f32).to_bits()),
            v_cvt_f32_ubyte2 => self.single_result(v, |_, a| ((a >> 16 & 0xff) as f32).to_bits()),
            v_cvt_f32_ubyte3 => self.single_result(v, |_, a| ((a >> 24) as f32).to_bits()),
            v_cvt_off_f32_i4 => self.single_result(v, |_, a| {
                // A signed nibble in sixteenths.
                (((a << 28) as i32 >> 28) as f32 / 16.0).to_bits()
            }),
            v_cvt_u32_f32 => self.single_source(v, |a| a as u32),
            v_cvt_i32_f32 => self.single_source(v, |a| a as i32 as u32),
            v_cvt_rpi_i32_f32 => self.single_source(v, |a| (a + 0.5).floor() as i32 as u32),
            v_cvt_flr_i32_f32 => self.single_source(v, |a| a.floor() as i32 as u32),
            v_cvt_f64_i32 => self.widen(v, |a| f64::from(a as i32).to_bits()),
            v_cvt_f64_u32 => self.widen(v, |a| f64::from(a).to_bits()),
            v_cvt_i32_f64 => self.narrow(v, |a| f64::from_bits(a) as i32 as u32),
            v_cvt_u32_f64 => self.narrow(v, |a| f64::from_bits(a) as u32),
            v_cvt_f64_f32 => self.single_to_double(v),
            v_cvt_f32_f64 => self.double_to_single(v),
            v_cvt_f32_f16 => self.half_to_single(v),
            v_cvt_f16_f32 => self.single_to_half(v),
            _ => self.convert_small(inst, v, op),
        }
    }

    fn convert_small(&mut self, inst: &Inst, v: &Valu, op: Vop1) -> Done {
        use Vop1::*;
        let (fp8, bf8) = (Small::fp8(self.target), Small::bf8(self.target));
        match op {
            v_cvt_f16_u16 => self.half_bits(v, |fp, a, _, _| soft::from_integer(F16, fp, a as i64)),
            v_cvt_f16_i16 => self.half_bits(v, |fp, a, _, _| {
                soft::from_integer(F16, fp, i64::from(a as i16))
            }),
            v_cvt_u16_f16 => self.map16(v, |a, _, _| half::to_f32(a as u16) as u16 as u32),
            v_cvt_i16_f16 => self.map16(v, |a, _, _| half::to_f32(a as u16) as i16 as u32),
            v_cvt_norm_i16_f16 => self.map16(v, |a, _, _| signed_norm(half::to_f32(a as u16))),
            v_cvt_norm_u16_f16 => self.map16(v, |a, _, _| unsigned_norm(half::to_f32(a as u16))),
            v_cvt_f32_fp8 => self.single_result(v, |_, a| fp8.to_f32(a as u8).to_bits()),
            v_cvt_f32_bf8 => self.single_result(v, |_, a| bf8.to_f32(a as u8).to_bits()),
            v_cvt_pk_f32_fp8 => self.widen(v, |a| pair(fp8, a)),
            v_cvt_pk_f32_bf8 => self.widen(v, |a| pair(bf8, a)),
            _ => Err(unsupported(inst)),
        }
    }

    /// Bits to an f32's bits.
    #[inline(always)]
    fn single_result(&mut self, v: &Valu, f: impl Fn(Fp, u32) -> u32) -> Done {
        let fp = self.single();
        let mut hold = [0; LANES];
        let a = self.src32(v, 0, &mut hold);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = f(fp, a[i]);
        }
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    #[inline(always)]
    fn single_source(&mut self, v: &Valu, f: impl Fn(f32) -> u32) -> Done {
        self.map1(v, |a| f(f32::from_bits(a)))
    }

    fn single_to_double(&mut self, v: &Valu) -> Done {
        let (single, other) = (self.single(), self.other());
        let mut hold = [0; LANES];
        let a = self.float_src(v, 0, &mut hold, single);
        let mut d = a.map(|bits| soft::convert(F32, F64, Fp::PLAIN, bits.into()));
        self.finish64(v, &mut d, other);
        Ok(())
    }

    fn double_to_single(&mut self, v: &Valu) -> Done {
        let (single, other) = (self.single(), self.other());
        let a = self.double_src(v, 0, other);
        let mut d = a.map(|bits| soft::convert(F64, F32, single, bits) as u32);
        self.finish32(v, &mut d, single);
        Ok(())
    }

    fn half_to_single(&mut self, v: &Valu) -> Done {
        let (single, other) = (self.single(), self.other());
        let a = self.half_src(v, 0, other);
        let mut d = [0; LANES];
        for i in 0..LANES {
            let value = half::to_f32(a[i] as u16);
            let quiet = u32::from(value.is_nan()) << 22;
            d[i] = value.to_bits() | quiet;
        }
        self.finish32(v, &mut d, single);
        Ok(())
    }

    fn single_to_half(&mut self, v: &Valu) -> Done {
        let (single, other) = (self.single(), self.other());
        let mut hold = [0; LANES];
        let a = self.float_src(v, 0, &mut hold, single);
        let mut d = [0; LANES];
        for i in 0..LANES {
            d[i] = half::round_f32(f32::from_bits(a[i]), other).into();
        }
        self.finish16(v, &mut d, other);
        Ok(())
    }
}

#[inline(always)]
fn from_i64(fp: Fp, value: i64) -> u32 {
    if fp.round == Round::Nearest {
        return (value as f32).to_bits();
    }
    soft::from_integer(F32, fp, value) as u32
}

/// [-1, 1] in units of 1/32767.
pub(super) fn signed_norm(value: f32) -> u32 {
    (value.clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 as u32 & 0xffff
}

/// [0, 1] in units of 1/65535.
pub(super) fn unsigned_norm(value: f32) -> u32 {
    (value.clamp(0.0, 1.0) * 65535.0).round_ties_even() as u16 as u32
}

fn pair(kind: Small, bits: u32) -> u64 {
    let single = |bits: u32| u64::from(kind.to_f32(bits as u8).to_bits());
    single(bits) | single(bits >> 8) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_saturate() {
        assert_eq!(signed_norm(-2.0), 0x8001);
        assert_eq!(unsigned_norm(0.5), 32768);
        assert_eq!(signed_norm(f32::NAN), 0);
    }
}
