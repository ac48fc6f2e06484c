// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! VOP3: what exists in the long form only.

use super::convert::{signed_norm, unsigned_norm};
use super::operand::clamp as limited;
use super::{Done, Machine};
use crate::float::graphics::{self, Cube};
use crate::float::narrow::Narrow;
use crate::float::small::Small;
use crate::float::{divide, fma32, half, least, min_max, soft, Fp, Round, F16, F32, F64};
use crate::inst::{Dst, Inst, Src, Valu};
use crate::op::Vop3;
use crate::wave::LANES;

/// Each bit of the result is the one of the table that the operands' bits name, the first one's
/// highest.
fn by_table(table: u8, operands: [u32; 3]) -> u32 {
    let [a, b, c] = operands;
    (0..8)
        .filter(|row| table >> row & 1 != 0)
        .map(|row| {
            let bit = |value: u32, at: u32| if row >> at & 1 != 0 { value } else { !value };
            bit(a, 2) & bit(b, 1) & bit(c, 0)
        })
        .fold(0, |all, some| all | some)
}

impl Machine<'_> {
    pub(super) fn vop3(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        use Vop3::*;
        match op {
            v_lshl_add_u32 => self.map3(v, |a, b, c| (a << (b & 31)).wrapping_add(c)),
            v_add_lshl_u32 => self.map3(v, |a, b, c| a.wrapping_add(b) << (c & 31)),
            v_add3_u32 => self.map3(v, |a, b, c| a.wrapping_add(b).wrapping_add(c)),
            v_lshl_or_b32 => self.map3(v, |a, b, c| a << (b & 31) | c),
            v_and_or_b32 => self.map3(v, |a, b, c| a & b | c),
            v_or3_b32 => self.map3(v, |a, b, c| a | b | c),
            v_xad_u32 => self.map3(v, |a, b, c| (a ^ b).wrapping_add(c)),
            v_bfe_u32 => self.map3(v, |a, b, c| a >> (b & 31) & ((1 << (c & 31)) - 1)),
            v_bfe_i32 => self.map3(v, signed_field),
            v_bfi_b32 => self.map3(v, |a, b, c| a & b | !a & c),
            v_bfm_b32 => self.map2(v, |a, b| ((1 << (a & 31)) - 1) << (b & 31)),
            v_alignbit_b32 => self.map3(v, |a, b, c| (join(a, b) >> (c & 31)) as u32),
            v_alignbyte_b32 => self.map3(v, |a, b, c| (join(a, b) >> (8 * (c & 3))) as u32),
            v_perm_b32 => self.map3(v, permute),
            v_bcnt_u32_b32 => self.map2(v, |a, b| a.count_ones().wrapping_add(b)),
            v_mbcnt_lo_u32_b32 | v_mbcnt_hi_u32_b32 => self.masked_count(v, op),
            v_readlane_b32 => self.read_lane(v),
            v_writelane_b32 => self.write_lane(v),
            v_lshlrev_b64 => self.wide2(v, |a, b| b << (a & 63)),
            v_lshrrev_b64 => self.wide2(v, |a, b| b >> (a & 63)),
            v_ashrrev_i64 => self.wide2(v, |a, b| (b as i64 >> (a & 63)) as u64),
            v_lshl_add_u64 => self.wide3(v, |a, b, c| {
                // "The design treats unsupported shift counts as a shift of zero."
                let by = if b & 7 > 4 { 0 } else { b & 7 };
                (a << by).wrapping_add(c)
            }),
            v_bitop3_b32 => {
                let table = v.mods.bitop3;
                self.map3(v, |a, b, c| by_table(table, [a, b, c]))
            }
            v_bitop3_b16 => {
                let table = v.mods.bitop3;
                self.map16(v, |a, b, c| by_table(table, [a, b, c]))
            }
            v_ashr_pk_i8_i32 => self.shift_bytes(v, -128, 127),
            v_ashr_pk_u8_i32 => self.shift_bytes(v, 0, 255),
            _ => self.vop3_product(inst, v, op),
        }
    }

    /// Two numbers shifted right and limited to bytes, into the half that OP_SEL says.
    fn shift_bytes(&mut self, v: &Valu, low: i32, high: i32) -> Done {
        let mut hold = [[0; LANES]; 3];
        let [hold_a, hold_b, hold_c] = &mut hold;
        let a = self.src32(v, 0, hold_a);
        let b = self.src32(v, 1, hold_b);
        let c = self.src32(v, 2, hold_c);
        let byte =
            |value: u32, by: u32| u32::from((value as i32 >> (by & 31)).clamp(low, high) as u8);
        let d = std::array::from_fn(|i| byte(a[i], c[i]) | byte(b[i], c[i]) << 8);
        let shift = 16 * u32::from(v.mods.op_sel >> 3 & 1);
        self.put_part(v, &d, shift, 0xffff << shift)
    }

    fn vop3_product(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        use Vop3::*;
        let clamp = v.mods.clamp;
        match op {
            v_mul_lo_u32 => self.map2(v, u32::wrapping_mul),
            v_mul_hi_u32 => self.map2(v, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            v_mul_hi_i32 => self.map2(v, |a, b| {
                ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
            }),
            v_mad_u32_u24 => self.map3(v, |a, b, c| {
                let product = u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff);
                unsigned(clamp, product + u64::from(c))
            }),
            v_mad_i32_i24 => self.map3(v, |a, b, c| {
                let [a, b] = [a, b].map(|x| i64::from((x << 8) as i32 >> 8));
                signed(clamp, a * b + i64::from(c as i32))
            }),
            v_mad_u64_u32 => self.mad_wide(v, |a, b, c| {
                let (sum, carry) = (u64::from(a) * u64::from(b)).overflowing_add(c);
                (if carry && clamp { u64::MAX } else { sum }, carry)
            }),
            v_mad_i64_i32 => self.mad_wide(v, |a, b, c| {
                let product = i64::from(a as i32) * i64::from(b as i32);
                let sum = product.wrapping_add(c as i64);
                let limited = product.saturating_add(c as i64);
                // Bit 64 of the exact sum, which is its sign.
                let top = i128::from(product) + i128::from(c as i64) < 0;
                (if clamp { limited } else { sum } as u64, top)
            }),
            v_add_i32 => self.signed_sum(v, i32::wrapping_add, i32::saturating_add),
            v_sub_i32 => self.signed_sum(v, i32::wrapping_sub, i32::saturating_sub),
            v_mad_u32_u16 => self.mad_short(v, |a, b, c| {
                unsigned(clamp, u64::from(a) * u64::from(b) + u64::from(c))
            }),
            v_mad_i32_i16 => self.mad_short(v, |a, b, c| {
                let [a, b] = [a, b].map(|x| i64::from(x as i16));
                signed(clamp, a * b + i64::from(c as i32))
            }),
            _ => self.vop3_choice(inst, v, op),
        }
    }

    fn vop3_choice(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        use Vop3::*;
        match op {
            v_min3_i32 => self.map3(v, |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32),
            v_max3_i32 => self.map3(v, |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32),
            v_med3_i32 => self.map3(v, |a, b, c| middle(a as i32, b as i32, c as i32) as u32),
            v_min3_u32 => self.map3(v, |a, b, c| a.min(b).min(c)),
            v_max3_u32 => self.map3(v, |a, b, c| a.max(b).max(c)),
            v_med3_u32 => self.map3(v, middle),
            v_min3_u16 => self.map16(v, |a, b, c| a.min(b).min(c)),
            v_max3_u16 => self.map16(v, |a, b, c| a.max(b).max(c)),
            v_med3_u16 => self.map16(v, middle),
            v_min3_i16 => self.map16(v, |a, b, c| (a as i16).min(b as i16).min(c as i16) as u32),
            v_max3_i16 => self.map16(v, |a, b, c| (a as i16).max(b as i16).max(c as i16) as u32),
            v_med3_i16 => self.map16(v, |a, b, c| middle(a as i16, b as i16, c as i16) as u32),
            v_min3_f32 => self.float_bits(v, |fp, a, b, c| three(F32, fp, false, a, b, c)),
            v_max3_f32 => self.float_bits(v, |fp, a, b, c| three(F32, fp, true, a, b, c)),
            v_minimum3_f32 => self.float_bits(v, |_, a, b, c| least(F32, false, [a, b, c])),
            v_maximum3_f32 => self.float_bits(v, |_, a, b, c| least(F32, true, [a, b, c])),
            v_med3_f32 => self.float_bits(v, |fp, a, b, c| median(F32, fp, a, b, c)),
            v_min3_f16 => self.half_bits(v, |fp, a, b, c| three(F16, fp, false, a, b, c)),
            v_max3_f16 => self.half_bits(v, |fp, a, b, c| three(F16, fp, true, a, b, c)),
            v_med3_f16 => self.half_bits(v, |fp, a, b, c| median(F16, fp, a, b, c)),
            v_min_f64 => self.double_bits(v, |fp, a, b, _| min_max(F64, fp.ieee, false, a, b)),
            v_max_f64 => self.double_bits(v, |fp, a, b, _| min_max(F64, fp.ieee, true, a, b)),
            _ => self.vop3_float(inst, v, op),
        }
    }

    fn vop3_float(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        use Vop3::*;
        match op {
            v_fma_f32 => self.float3(v, soft::fma, fma32),
            v_fma_f64 => self.double_fma(v),
            v_add_f64 => self.double2(v, soft::add, |a, b| a + b),
            v_mul_f64 => self.double2(v, soft::mul, |a, b| a * b),
            v_mul_legacy_f32 => self.float_bits(v, |fp, a, b, _| legacy_mul(F32, fp, a, b)),
            v_mad_f32 => self.single_mad(v, soft::mul),
            v_mad_legacy_f32 => self.single_mad(v, legacy_mul),
            v_ldexp_f32 => self.ldexp_single(v),
            v_ldexp_f64 => self.ldexp_double(v),
            v_fma_f16 | v_fma_legacy_f16 => self.half_fma(v),
            v_mad_f16 | v_mad_legacy_f16 => self.half_mad(v),
            v_div_fixup_f32 => self.float_bits(v, |_, a, b, c| divide::fixup(F32, a, b, c)),
            v_div_fixup_f64 => self.double_bits(v, |_, a, b, c| divide::fixup(F64, a, b, c)),
            v_div_fixup_f16 | v_div_fixup_legacy_f16 => {
                self.half_bits(v, |_, a, b, c| divide::fixup(F16, a, b, c))
            }
            v_div_scale_f32 | v_div_scale_f64 => self.div_scale(v),
            v_div_fmas_f32 => self.div_fmas_single(v),
            v_div_fmas_f64 => self.div_fmas_double(v),
            _ => self.vop3_pack(inst, v, op),
        }
    }

    fn vop3_pack(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        use Vop3::*;
        let pair = |low: u32, high: u32| low & 0xffff | high << 16;
        match op {
            v_cvt_pkrtz_f16_f32 => {
                let fp = Fp {
                    round: Round::Zero,
                    ..self.other()
                };
                self.map2(v, |a, b| {
                    let half = |bits: u32| {
                        let half = soft::convert(F32, F16, fp, bits.into());
                        match v.mods.clamp {
                            true => {
                                limited(half::to_f32(half as u16).into(), half, fp, 0x3c00) as u32
                            }
                            false => half as u32,
                        }
                    };
                    pair(half(a), half(b))
                })
            }
            // MODE does not say how these two round.
            v_cvt_pk_f16_f32 if v.mods.omod == 0 && !v.mods.clamp => {
                let fp = Fp {
                    round: Round::Nearest,
                    ..self.other()
                };
                self.map2(v, |a, b| {
                    let half = |bits| u32::from(half::round_f32(f32::from_bits(bits), fp));
                    pair(half(a), half(b))
                })
            }
            v_cvt_pk_bf16_f32 if v.mods.omod == 0 && !v.mods.clamp => self.map2(v, |a, b| {
                let half = |bits| u32::from(half::bf16_from_f32(f32::from_bits(bits)));
                pair(half(a), half(b))
            }),
            v_cvt_pknorm_i16_f32 => self.map2(v, |a, b| {
                pair(
                    signed_norm(f32::from_bits(a)),
                    signed_norm(f32::from_bits(b)),
                )
            }),
            v_cvt_pknorm_u16_f32 => self.map2(v, |a, b| {
                pair(
                    unsigned_norm(f32::from_bits(a)),
                    unsigned_norm(f32::from_bits(b)),
                )
            }),
            v_cvt_pknorm_i16_f16 => self.pack_halves(v, |a| signed_norm(half::to_f32(a))),
            v_cvt_pknorm_u16_f16 => self.pack_halves(v, |a| unsigned_norm(half::to_f32(a))),
            v_pack_b32_f16 => self.pack_halves(v, u32::from),
            v_cvt_pk_u16_u32 => self.map2(v, |a, b| pair(a.min(0xffff), b.min(0xffff))),
            v_cvt_pk_i16_i32 => self.map2(v, |a, b| {
                let short = |x: u32| (x as i32).clamp(-32768, 32767) as u32;
                pair(short(a), short(b))
            }),
            v_cvt_pk_u8_f32 => self.map3(v, |a, b, c| {
                let shift = 8 * (b & 3);
                let byte = f32::from_bits(a).round_ties_even() as u8;
                c & !(0xff << shift) | u32::from(byte) << shift
            }),
            _ => self.vop3_short(inst, v, op),
        }
    }

    fn vop3_short(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        use Vop3::*;
        let clamp = v.mods.clamp;
        let short = |value: i32| match clamp {
            true => value.clamp(-32768, 32767) as u32,
            false => value as u32,
        };
        let unsigned_short = |value: u64| match clamp {
            true => value.min(0xffff) as u32,
            false => value as u32,
        };
        let total = |sum: u64, add: u32| unsigned(clamp, sum + u64::from(add));
        let extend = |value: u32| i32::from(value as i16);
        match op {
            v_add_i16 => self.map16(v, |a, b, _| short(extend(a) + extend(b))),
            v_sub_i16 => self.map16(v, |a, b, _| short(extend(a) - extend(b))),
            v_mad_u16 | v_mad_legacy_u16 => self.map16(v, |a, b, c| {
                unsigned_short(u64::from(a) * u64::from(b) + u64::from(c))
            }),
            v_mad_i16 | v_mad_legacy_i16 => {
                self.map16(v, |a, b, c| short(extend(a) * extend(b) + extend(c)))
            }
            v_lerp_u8 => self.map3(v, |a, b, c| {
                bytes(|i| (byte(a, i) + byte(b, i) + (byte(c, i) & 1)) >> 1)
            }),
            v_sad_u8 => self.map3(v, |a, b, c| total(sad(a, b).into(), c)),
            v_sad_hi_u8 => self.map3(v, |a, b, c| total(u64::from(sad(a, b)) << 16, c)),
            v_sad_u16 => self.map3(v, |a, b, c| {
                let low = (a & 0xffff).abs_diff(b & 0xffff);
                total((low + (a >> 16).abs_diff(b >> 16)).into(), c)
            }),
            v_sad_u32 => self.map3(v, |a, b, c| total(a.abs_diff(b).into(), c)),
            v_msad_u8 => self.map3(v, |a, b, c| total(masked_sad(a, b).into(), c)),
            v_qsad_pk_u16_u8 => self.wide3(v, |a, b, c| quad_sad(sad, a, b as u32, c, clamp)),
            v_mqsad_pk_u16_u8 => {
                self.wide3(v, |a, b, c| quad_sad(masked_sad, a, b as u32, c, clamp))
            }
            v_mqsad_u32_u8 => self.quad_sad_wide(v),
            v_cubeid_f32 => self.cube(v, |cube| cube.id),
            v_cubesc_f32 => self.cube(v, |cube| cube.sc),
            v_cubetc_f32 => self.cube(v, |cube| cube.tc),
            v_cubema_f32 => self.cube(v, |cube| cube.ma),
            v_trig_preop_f64 => self.wide2(v, |a, b| graphics::trig_preop(a, b as u32).to_bits()),
            v_cvt_pk_fp8_f32 => self.pack_small(v, Small::fp8(self.target)),
            v_cvt_pk_bf8_f32 => self.pack_small(v, Small::bf8(self.target)),
            v_cvt_sr_fp8_f32 => self.round_small(v, Small::fp8(self.target)),
            v_cvt_sr_bf8_f32 => self.round_small(v, Small::bf8(self.target)),
            v_cvt_sr_f16_f32 => self.round_half(v, Narrow::F16),
            v_cvt_sr_bf16_f32 => self.round_half(v, Narrow::BF16),
            _ => self.convert_scaled(inst, v, op),
        }
    }

    fn cube(&mut self, v: &Valu, part: impl Fn(Cube) -> f32) -> Done {
        self.float_bits(v, |_, x, y, z| {
            let [x, y, z] = [x, y, z].map(|bits| f32::from_bits(bits as u32));
            part(Cube::new(x, y, z)).to_bits().into()
        })
    }

    /// `v_mqsad_u32_u8`: four masked sums over a window that slides by bytes, a register for each.
    fn quad_sad_wide(&mut self, v: &Valu) -> Done {
        let window = self.src64(v, 0);
        let mut hold = [0; LANES];
        let reference = *self.src32(v, 1, &mut hold);
        let mask = self.wave.exec();
        let sums: [crate::wave::Vgpr; 4] = std::array::from_fn(|index| {
            let add = match v.src[2] {
                Src::Vgpr(number) => self.wave.vgpr[usize::from(number) + index],
                constant => [self.scalar32(constant); LANES],
            };
            std::array::from_fn(|lane| {
                let bytes = (window[lane] >> (8 * index)) as u32;
                let sum = u64::from(masked_sad(bytes, reference[lane]));
                unsigned(v.mods.clamp, sum + u64::from(add[lane]))
            })
        });
        if let Dst::Vgpr(dst) = v.dst {
            for (index, sum) in sums.iter().enumerate() {
                super::merge(&mut self.wave.vgpr[usize::from(dst) + index], sum, mask);
            }
        }
        Ok(())
    }

    /// Two 8-bit floats into the half of the destination that OP_SEL says.
    fn pack_small(&mut self, v: &Valu, kind: Small) -> Done {
        let saturate = self.other().fp16_ovfl;
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        let small = |bits: u32| u32::from(kind.from_f32(f32::from_bits(bits), saturate));
        let d = std::array::from_fn(|i| small(a[i]) | small(b[i]) << 8);
        let shift = 16 * u32::from(v.mods.op_sel >> 3 & 1);
        self.put_part(v, &d, shift, 0xffff << shift)
    }

    /// One 8-bit float, rounded at random, into the byte that OP_SEL says.
    fn round_small(&mut self, v: &Valu, kind: Small) -> Done {
        let saturate = self.other().fp16_ovfl;
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, random) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        let d = std::array::from_fn(|i| {
            let value = f32::from_bits(a[i]);
            kind.from_f32_stochastic(value, saturate, random[i]).into()
        });
        let shift = 8 * u32::from(v.mods.op_sel >> 2 & 3);
        self.put_part(v, &d, shift, 0xff << shift)
    }

    /// Writes some bits of the destination and keeps the others.
    pub(super) fn put_part(
        &mut self,
        v: &Valu,
        d: &crate::wave::Vgpr,
        shift: u32,
        mask: u32,
    ) -> Done {
        let Dst::Vgpr(number) = v.dst else {
            return Ok(());
        };
        let old = self.wave.vgpr[usize::from(number)];
        self.put32(
            v,
            &std::array::from_fn(|i| old[i] & !mask | d[i] << shift & mask),
        );
        Ok(())
    }

    #[inline(always)]
    fn signed_sum(
        &mut self,
        v: &Valu,
        wrap: fn(i32, i32) -> i32,
        clamp: fn(i32, i32) -> i32,
    ) -> Done {
        let f = if v.mods.clamp { clamp } else { wrap };
        self.map2(v, |a, b| f(a as i32, b as i32) as u32)
    }

    /// 16 × 16 + 32 bits: OP_SEL chooses the factors' halves, which `f` gets with zeros above.
    #[inline(always)]
    fn mad_short(&mut self, v: &Valu, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let (a, b) = (self.src16(v, 0), self.src16(v, 1));
        let mut hold = [0; LANES];
        let c = self.src32(v, 2, &mut hold);
        let d = std::array::from_fn(|i| f(a[i], b[i], c[i]));
        self.put32(v, &d);
        Ok(())
    }

    /// 32 × 32 + 64 bits; the lane mask SDST takes bit 64.
    #[inline(always)]
    fn mad_wide(&mut self, v: &Valu, f: impl Fn(u32, u32, u64) -> (u64, bool)) -> Done {
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let (a, b) = (self.src32(v, 0, hold_a), self.src32(v, 1, hold_b));
        let c = self.src64(v, 2);
        let mut d = [0; LANES];
        let mut carries = 0;
        for i in 0..LANES {
            let (sum, carry) = f(a[i], b[i], c[i]);
            d[i] = sum;
            carries |= u64::from(carry) << i;
        }
        let exec = self.wave.exec();
        self.put64(v, &d);
        self.set64(v.sdst, carries & exec);
        Ok(())
    }

    fn pack_halves(&mut self, v: &Valu, f: impl Fn(u16) -> u32) -> Done {
        let (a, b) = (self.src16(v, 0), self.src16(v, 1));
        let d = std::array::from_fn(|i| f(a[i] as u16) & 0xffff | f(b[i] as u16) << 16);
        self.put32(v, &d);
        Ok(())
    }

    fn ldexp_single(&mut self, v: &Valu) -> Done {
        self.float_bits(v, |fp, a, b, _| soft::scale(F32, fp, a, b as u32 as i32))
    }

    fn ldexp_double(&mut self, v: &Valu) -> Done {
        let fp = self.other();
        let a = self.double_src(v, 0, fp);
        let mut hold = [0; LANES];
        let b = self.src32(v, 1, &mut hold);
        let mut d = std::array::from_fn(|i| soft::scale(F64, fp, a[i], b[i] as i32));
        self.finish64(v, &mut d, fp);
        Ok(())
    }

    fn div_scale(&mut self, v: &Valu) -> Done {
        let single = v.op == crate::inst::ValuOp::Three(Vop3::v_div_scale_f32);
        let format = if single { F32 } else { F64 };
        let [a, b, c] = [0, 1, 2].map(|index| self.src_any(v, index));
        let mut d = [0; LANES];
        let mut flags = 0;
        for i in 0..LANES {
            let (scaled, flag) = divide::scale(format, a[i], b[i], c[i]);
            d[i] = scaled;
            flags |= u64::from(flag) << i;
        }
        let exec = self.wave.exec();
        if single {
            self.put32(v, &d.map(|bits| bits as u32));
        } else {
            self.put64(v, &d);
        }
        self.set64(v.sdst, flags & exec);
        Ok(())
    }

    /// The ISA guide: "Input denormals are not flushed but output flushing is allowed."
    fn div_fmas_single(&mut self, v: &Valu) -> Done {
        let vcc = self.wave.vcc();
        let fp = Fp {
            denorm_in: true,
            ..self.single()
        };
        let [a, b, c] = [0, 1, 2].map(|index| self.src_any(v, index));
        let mut d = std::array::from_fn(|i| {
            divide::fmas(F32, fp, [a[i], b[i], c[i]], vcc >> i & 1 != 0) as u32
        });
        self.finish32(v, &mut d, fp);
        Ok(())
    }

    fn div_fmas_double(&mut self, v: &Valu) -> Done {
        let vcc = self.wave.vcc();
        let fp = Fp {
            denorm_in: true,
            ..self.other()
        };
        let [a, b, c] = [0, 1, 2].map(|index| self.src64(v, index));
        let mut d =
            std::array::from_fn(|i| divide::fmas(F64, fp, [a[i], b[i], c[i]], vcc >> i & 1 != 0));
        self.finish64(v, &mut d, fp);
        Ok(())
    }
}

/// The low dword of an exact result; with CLAMP the nearest that a dword has. So the ISA guide has
/// CLAMP of integers: to the largest and smallest values of the result's type.
fn unsigned(clamp: bool, value: u64) -> u32 {
    match clamp {
        true => value.min(u32::MAX.into()) as u32,
        false => value as u32,
    }
}

/// The same of a signed one.
fn signed(clamp: bool, value: i64) -> u32 {
    match clamp {
        true => value.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
        false => value as u32,
    }
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn signed_field(value: u32, offset: u32, width: u32) -> u32 {
    let (offset, width) = (offset & 31, width & 31);
    if width == 0 {
        return 0;
    }
    let shifted = value as i32 >> offset;
    // A field that reaches past the top is the sign there.
    let spare = 32 - width;
    (shifted << spare >> spare) as u32
}

/// `v_perm_b32`: each selector byte picks a byte of `high:low`, a sign, 0x00 or 0xff.
fn permute(high: u32, low: u32, selector: u32) -> u32 {
    let all = join(high, low);
    bytes(|i| match byte(selector, i) {
        index @ 0..=7 => (all >> (8 * index)) as u32 & 0xff,
        sign @ 8..=11 => 0xff * (all >> (16 * (sign - 8) + 15) & 1) as u32,
        12 => 0,
        _ => 0xff,
    })
}

fn byte(value: u32, index: u32) -> u32 {
    value >> (8 * index) & 0xff
}

fn bytes(f: impl Fn(u32) -> u32) -> u32 {
    (0..4).fold(0, |value, index| value | (f(index) & 0xff) << (8 * index))
}

/// Sum of absolute differences of bytes.
fn sad(a: u32, b: u32) -> u32 {
    (0..4)
        .map(|index| byte(a, index).abs_diff(byte(b, index)))
        .sum()
}

/// Bytes of the reference `b` that are zero do not count.
fn masked_sad(a: u32, b: u32) -> u32 {
    (0..4)
        .filter(|index| byte(b, *index) != 0)
        .map(|index| byte(a, index).abs_diff(byte(b, index)))
        .sum()
}

/// Four sums over a window that slides by bytes, each added to a 16-bit field: the ISA guide has
/// "truncate each result to 16 bits", but for CLAMP.
fn quad_sad(sad: fn(u32, u32) -> u32, window: u64, by: u32, add: u64, clamp: bool) -> u64 {
    (0..4).fold(0, |result, index| {
        let sum = u64::from(sad((window >> (8 * index)) as u32, by));
        let sum = sum + (add >> (16 * index) & 0xffff);
        let sum = if clamp { sum.min(0xffff) } else { sum & 0xffff };
        result | sum << (16 * index)
    })
}

fn middle<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.max(b).min(a.min(b).max(c))
}

fn three(format: crate::float::Format, fp: Fp, maximum: bool, a: u64, b: u64, c: u64) -> u64 {
    min_max(
        format,
        fp.ieee,
        maximum,
        min_max(format, fp.ieee, maximum, a, b),
        c,
    )
}

/// The middle one; with a NaN the minimum.
fn median(format: crate::float::Format, fp: Fp, a: u64, b: u64, c: u64) -> u64 {
    let pick = |maximum, a, b| min_max(format, fp.ieee, maximum, a, b);
    if [a, b, c].iter().any(|bits| format.is_nan(*bits)) {
        return pick(false, pick(false, a, b), c);
    }
    pick(false, pick(true, a, b), pick(true, pick(false, a, b), c))
}

/// Zero times anything is zero.
fn legacy_mul(format: crate::float::Format, fp: Fp, a: u64, b: u64) -> u64 {
    if format.is_zero(a) || format.is_zero(b) {
        return 0;
    }
    soft::mul(format, fp, a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_selects_bytes_signs_and_constants() {
        assert_eq!(permute(0x8877_6655, 0x4433_2211, 0x0706_0504), 0x8877_6655);
        assert_eq!(permute(0x8877_6655, 0x4433_2211, 0x0001_0203), 0x1122_3344);
        assert_eq!(permute(0x8000_0000, 0x0000_8000, 0x0b0a_0908), 0xff00_00ff);
        assert_eq!(permute(0, 0, 0x0c0d_0cff), 0x00ff_00ff);
    }

    #[test]
    fn fields_sign_extend_and_stop_at_the_top() {
        assert_eq!(signed_field(0xf0, 4, 4), u32::MAX);
        assert_eq!(signed_field(0x8000_0000, 28, 8), 0xffff_fff8);
        assert_eq!(signed_field(5, 0, 0), 0);
    }

    #[test]
    fn the_middle_is_neither_end() {
        for [a, b, c] in [[1, 2, 3], [3, 1, 2], [2, 3, 1], [2, 2, 1]] {
            assert_eq!(middle(a, b, c), 2);
        }
        let [one, two, three] = [1f32, 2.0, 3.0].map(|x| u64::from(x.to_bits()));
        assert_eq!(median(F32, Fp::PLAIN, three, one, two), two);
    }
}
