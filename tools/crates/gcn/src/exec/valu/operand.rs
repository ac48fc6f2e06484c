// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Operands of the vector ALU: fetching them with their modifiers, writing results under EXEC.

use super::{blank, Machine, Wide};
use crate::float::{Fp, F16, F32, F64};
use crate::inst::{Dpp, Dst, Form, Sel, Src, Unused, Valu, ValuOp};
use crate::op::{Ty, Vop3};
use crate::wave::{Vgpr, LANES};

impl Valu {
    fn negates(&self, index: usize) -> bool {
        self.mods.neg >> index & 1 != 0
    }

    fn takes_magnitude(&self, index: usize) -> bool {
        self.mods.abs >> index & 1 != 0
    }

    fn is_modified(&self, index: usize) -> bool {
        self.sdwa.is_some()
            || self.dpp.is_some() && index == 0
            || (self.mods.neg | self.mods.abs) >> index & 1 != 0
    }
}

/// All ones for each set bit of a nibble.
const SPREAD: [[u32; 4]; 16] = {
    let mut table = [[0; 4]; 16];
    let mut nibble = 0;
    while nibble < 16 {
        let mut bit = 0;
        while bit < 4 {
            if nibble >> bit & 1 != 0 {
                table[nibble][bit] = u32::MAX;
            }
            bit += 1;
        }
        nibble += 1;
    }
    table
};

/// Copies the lanes of `mask`.
#[inline]
pub(in crate::exec) fn merge(to: &mut Vgpr, from: &Vgpr, mask: u64) {
    if mask == u64::MAX {
        *to = *from;
        return;
    }
    for quad in 0..LANES / 4 {
        let keep = &SPREAD[(mask >> (4 * quad) & 0xf) as usize];
        for (bit, keep) in keep.iter().enumerate() {
            let lane = 4 * quad + bit;
            to[lane] = from[lane] & keep | to[lane] & !keep;
        }
    }
}

impl Machine<'_> {
    /// A 32-bit source as it is in its register, or spread over all lanes.
    #[inline]
    pub(super) fn raw32<'a>(&'a self, src: Src, hold: &'a mut Vgpr) -> &'a Vgpr {
        match src {
            Src::Vgpr(number) => &self.wave.vgpr[usize::from(number)],
            Src::Acc(number) => &self.wave.acc[usize::from(number)],
            Src::None => hold,
            scalar => {
                *hold = [self.scalar32(scalar); LANES];
                hold
            }
        }
    }

    /// Source `index` with its modifiers, 32 bits.
    #[inline]
    pub(super) fn src32<'a>(&'a self, v: &Valu, index: usize, hold: &'a mut Vgpr) -> &'a Vgpr {
        if !v.is_modified(index) {
            return self.raw32(v.src[index], hold);
        }
        self.modified32(v, index, hold);
        hold
    }

    fn modified32(&self, v: &Valu, index: usize, hold: &mut Vgpr) {
        let mut other = blank();
        let mut lanes = *self.raw32(v.src[index], &mut other);
        if let (Some(dpp), 0) = (v.dpp, index) {
            lanes = self.dpp_read(dpp, &lanes);
        }
        if let (Some(sdwa), 0..=1) = (v.sdwa, index) {
            let (sel, sext) = (sdwa.src[index], sdwa.sext[index]);
            lanes = lanes.map(|value| select(value, sel, sext));
        }
        let sign = match v.types[index + 1] {
            Ty::F32 => 1 << 31,
            Ty::F16 | Ty::Bf16 => 1 << 15,
            _ => 0,
        };
        if v.takes_magnitude(index) {
            lanes = lanes.map(|value| value & !sign);
        }
        if v.negates(index) {
            lanes = lanes.map(|value| value ^ sign);
        }
        *hold = lanes;
    }

    /// A source of an operation on f32; subnormals of that type are zero where MODE says so. An
    /// integer, as `v_ldexp_f32` has, is what it is.
    #[inline]
    pub(super) fn float_src<'a>(
        &'a self,
        v: &Valu,
        index: usize,
        hold: &'a mut Vgpr,
        fp: Fp,
    ) -> &'a Vgpr {
        if fp.denorm_in || v.types[index + 1] != Ty::F32 {
            return self.src32(v, index, hold);
        }
        let mut other = blank();
        let lanes = *self.src32(v, index, &mut other);
        *hold = lanes.map(|bits| F32.flush(bits.into()) as u32);
        hold
    }

    /// A 16-bit source: the half that OP_SEL says, modifiers applied, upper bits zero.
    pub(super) fn src16(&self, v: &Valu, index: usize) -> Vgpr {
        if v.src[index] == Src::None {
            return blank();
        }
        let shift = if v.form == Form::E64 && v.mods.op_sel >> index & 1 != 0 {
            16
        } else {
            0
        };
        if v.form != Form::E64 || shift == 0 {
            let mut hold = blank();
            return self.src32(v, index, &mut hold).map(|value| value & 0xffff);
        }
        let mut hold = blank();
        let lanes = self.raw32(v.src[index], &mut hold);
        let is_float = matches!(v.types[index + 1], Ty::F16 | Ty::Bf16);
        let mask = if v.takes_magnitude(index) && is_float {
            0x7fff
        } else {
            0xffff
        };
        let flip = if v.negates(index) && is_float {
            0x8000
        } else {
            0
        };
        lanes.map(|value| value >> shift & mask ^ flip)
    }

    /// The same of f16.
    pub(super) fn half_src(&self, v: &Valu, index: usize, fp: Fp) -> Vgpr {
        let lanes = self.src16(v, index);
        if fp.denorm_in || v.types[index + 1] != Ty::F16 {
            lanes
        } else {
            lanes.map(|bits| F16.flush(bits.into()) as u32)
        }
    }

    /// A 64-bit source with its modifiers.
    pub(super) fn src64(&self, v: &Valu, index: usize) -> Wide {
        let mut lanes = self.raw64(v.src[index]);
        if let (Some(dpp), 0) = (v.dpp, index) {
            let [low, high] = [0, 32]
                .map(|shift| self.dpp_read(dpp, &lanes.map(|value| (value >> shift) as u32)));
            lanes = join(&low, &high);
        }
        let sign = if v.types[index + 1] == Ty::F64 {
            1 << 63
        } else {
            0
        };
        if v.takes_magnitude(index) {
            lanes = lanes.map(|value| value & !sign);
        }
        if v.negates(index) {
            lanes = lanes.map(|value| value ^ sign);
        }
        lanes
    }

    /// A 64-bit source as it is.
    pub(super) fn raw64(&self, src: Src) -> Wide {
        match src {
            Src::Vgpr(number) => {
                let number = usize::from(number);
                join(&self.wave.vgpr[number], &self.wave.vgpr[number + 1])
            }
            Src::Acc(number) => {
                let number = usize::from(number);
                join(&self.wave.acc[number], &self.wave.acc[number + 1])
            }
            Src::None => [0; LANES],
            scalar => [self.scalar64(scalar); LANES],
        }
    }

    /// The same of f64.
    pub(super) fn double_src(&self, v: &Valu, index: usize, fp: Fp) -> Wide {
        let lanes = self.src64(v, index);
        if fp.denorm_in || v.types[index + 1] != Ty::F64 {
            lanes
        } else {
            lanes.map(|bits| F64.flush(bits))
        }
    }

    /// A source of the width its type says, zero-extended.
    pub(super) fn src_any(&self, v: &Valu, index: usize) -> Wide {
        if v.types[index + 1].dwords() == 2 {
            return self.src64(v, index);
        }
        let mut hold = blank();
        self.src32(v, index, &mut hold).map(u64::from)
    }

    /// Lanes that write.
    #[inline]
    fn write_mask(&self, v: &Valu) -> u64 {
        let exec = self.wave.exec();
        match v.dpp {
            None => exec,
            Some(dpp) => exec & self.dpp_writes(dpp),
        }
    }

    fn register(&mut self, dst: Dst, index: usize) -> Option<&mut Vgpr> {
        match dst {
            Dst::Vgpr(number) => self.wave.vgpr.get_mut(usize::from(number) + index),
            Dst::Acc(number) => self.wave.acc.get_mut(usize::from(number) + index),
            Dst::None | Dst::Scalar(_) => None,
        }
    }

    /// Writes a 32-bit result.
    #[inline]
    pub(super) fn put32(&mut self, v: &Valu, result: &Vgpr) {
        let mask = self.write_mask(v);
        if let Some(sdwa) = v.sdwa {
            let (sel, unused) = (sdwa.dst, sdwa.unused);
            if let Some(register) = self.register(v.dst, 0) {
                let placed = std::array::from_fn(|i| place(register[i], result[i], sel, unused));
                merge(register, &placed, mask);
            }
            return;
        }
        if let Some(register) = self.register(v.dst, 0) {
            merge(register, result, mask);
        }
    }

    /// Writes a result of two registers.
    pub(super) fn put_pair(&mut self, v: &Valu, result: &[Vgpr; 2]) {
        let mask = self.write_mask(v);
        for (half, lanes) in result.iter().enumerate() {
            if let Some(register) = self.register(v.dst, half) {
                merge(register, lanes, mask);
            }
        }
    }

    /// Writes a 64-bit result.
    pub(super) fn put64(&mut self, v: &Valu, result: &Wide) {
        let mask = self.write_mask(v);
        for half in 0..2 {
            if let Some(register) = self.register(v.dst, half) {
                let lanes = result.map(|value| (value >> (32 * half)) as u32);
                merge(register, &lanes, mask);
            }
        }
    }

    /// Writes a 16-bit result to the half that OP_SEL says.
    pub(super) fn put16(&mut self, v: &Valu, result: &Vgpr) {
        if v.sdwa.is_some() || v.form != Form::E64 && !keeps_high_half(v.op) {
            return self.put32(v, result);
        }
        let high = v.form == Form::E64 && v.mods.op_sel & 8 != 0;
        let keep = high || keeps_high_half(v.op);
        let mask = self.write_mask(v);
        if let Some(register) = self.register(v.dst, 0) {
            let placed = std::array::from_fn(|i| match (high, keep) {
                (true, _) => register[i] & 0xffff | result[i] << 16,
                (false, true) => register[i] & 0xffff_0000 | result[i],
                (false, false) => result[i],
            });
            merge(register, &placed, mask);
        }
    }

    /// Output scale and clamp, then writes. The scale works only without subnormal results, which
    /// it cannot make either, and outside IEEE mode.
    #[inline]
    pub(super) fn finish32(&mut self, v: &Valu, d: &mut Vgpr, fp: Fp) {
        if !fp.denorm_out {
            *d = d.map(|bits| F32.flush(bits.into()) as u32);
        }
        if v.mods.omod != 0 && !fp.denorm_out && !fp.ieee {
            let factor = scale_factor(v.mods.omod) as f32;
            let scaled = |bits| (f32::from_bits(bits) * factor).to_bits();
            *d = d.map(|bits| F32.flush(scaled(bits).into()) as u32);
        }
        if v.mods.clamp {
            *d = d.map(|bits| {
                clamp(f32::from_bits(bits).into(), bits.into(), fp, 0x3f80_0000) as u32
            });
        }
        self.put32(v, d);
    }

    pub(super) fn finish64(&mut self, v: &Valu, d: &mut Wide, fp: Fp) {
        if !fp.denorm_out {
            *d = d.map(|bits| F64.flush(bits));
        }
        if v.mods.omod != 0 && !fp.denorm_out && !fp.ieee {
            let factor = scale_factor(v.mods.omod);
            *d = d.map(|bits| F64.flush((f64::from_bits(bits) * factor).to_bits()));
        }
        if v.mods.clamp {
            *d = d.map(|bits| clamp(f64::from_bits(bits), bits, fp, 1f64.to_bits()));
        }
        self.put64(v, d);
    }

    pub(super) fn finish16(&mut self, v: &Valu, d: &mut Vgpr, fp: Fp) {
        use crate::float::half;
        if !fp.denorm_out {
            *d = d.map(|bits| F16.flush(bits.into()) as u32);
        }
        if v.mods.omod != 0 && !fp.denorm_out && !fp.ieee {
            let factor = scale_factor(v.mods.omod) as f32;
            let scaled = |bits: u32| half::from_f32(half::to_f32(bits as u16) * factor);
            *d = d.map(|bits| F16.flush(scaled(bits).into()) as u32);
        }
        if v.mods.clamp {
            *d = d.map(|bits| {
                clamp(half::to_f32(bits as u16).into(), bits.into(), fp, 0x3c00) as u32
            });
        }
        self.put16(v, d);
    }

    /// The instruction with M0's index added to the register numbers that M0\[15:12\] chooses.
    pub(super) fn gpr_indexed(&self, valu: &Valu) -> Valu {
        let m0 = self.wave.m0();
        let mut indexed = valu.clone();
        let moved = |number: u8, dwords: u8, count: usize| {
            let moved = usize::from(number) + (m0 & 0xff) as usize;
            (moved + usize::from(dwords.max(1)) <= count).then_some(moved as u8)
        };
        let (vgprs, accs) = (self.wave.vgpr.len(), self.wave.acc.len());
        for (bit, (src, ty)) in indexed.src.iter_mut().zip(&valu.types[1..]).enumerate() {
            if m0 >> (12 + bit) & 1 == 0 {
                continue;
            }
            *src = match *src {
                Src::Vgpr(number) => {
                    moved(number, ty.dwords(), vgprs).map_or(Src::Vgpr(0), Src::Vgpr)
                }
                Src::Acc(number) => moved(number, ty.dwords(), accs).map_or(Src::Acc(0), Src::Acc),
                other => other,
            };
        }
        if m0 >> 15 & 1 != 0 {
            let dwords = valu.types[0].dwords();
            indexed.dst = match valu.dst {
                Dst::Vgpr(number) => moved(number, dwords, vgprs).map_or(Dst::None, Dst::Vgpr),
                Dst::Acc(number) => moved(number, dwords, accs).map_or(Dst::None, Dst::Acc),
                other => other,
            };
        }
        indexed
    }

    /// What each lane reads through DPP: another lane's value, or zero where there is none.
    fn dpp_read(&self, dpp: Dpp, lanes: &Vgpr) -> Vgpr {
        let exec = self.wave.exec();
        std::array::from_fn(|lane| match dpp_source(dpp.ctrl, lane) {
            Some(source) if exec >> source & 1 != 0 => lanes[source],
            _ => 0,
        })
    }

    /// Lanes that a DPP instruction may write.
    fn dpp_writes(&self, dpp: Dpp) -> u64 {
        let exec = self.wave.exec();
        (0..LANES)
            .filter(|lane| {
                dpp.row_mask >> (lane / 16) & 1 != 0
                    && dpp.bank_mask >> (lane / 4 % 4) & 1 != 0
                    && (dpp.bound_ctrl
                        || dpp_source(dpp.ctrl, *lane)
                            .is_some_and(|source| exec >> source & 1 != 0))
            })
            .fold(0, |mask, lane| mask | 1 << lane)
    }
}

fn join(low: &Vgpr, high: &Vgpr) -> Wide {
    std::array::from_fn(|i| u64::from(low[i]) | u64::from(high[i]) << 32)
}

/// Output modifier: 1 is ×2, 2 is ×4, 3 is ÷2.
fn scale_factor(omod: u8) -> f64 {
    match omod {
        1 => 2.0,
        2 => 4.0,
        _ => 0.5,
    }
}

/// The bits limited to [0, 1].
#[inline(always)]
pub(super) fn clamp(value: f64, bits: u64, fp: Fp, one: u64) -> u64 {
    if value.is_nan() {
        return if fp.dx10_clamp { 0 } else { bits };
    }
    if value <= 0.0 {
        0
    } else if value >= 1.0 {
        one
    } else {
        bits
    }
}

/// The lane that `lane` reads from.
fn dpp_source(ctrl: u16, lane: usize) -> Option<usize> {
    let (row, column) = (lane & !15, lane & 15);
    let by = usize::from(ctrl & 0xf);
    match ctrl {
        0..=0xff => Some(lane & !3 | usize::from(ctrl >> (2 * (lane & 3)) & 3)),
        0x101..=0x10f => (column + by < 16).then_some(lane + by),
        0x111..=0x11f => column.checked_sub(by).map(|column| row | column),
        0x121..=0x12f => Some(row | (column + 16 - by) & 15),
        0x130 => (lane < 63).then_some(lane + 1),
        0x134 => Some((lane + 1) & 63),
        0x138 => lane.checked_sub(1),
        0x13c => Some((lane + 63) & 63),
        0x140 => Some(row | (15 - column)),
        0x141 => Some(lane & !7 | (7 - (lane & 7))),
        0x142 => row.checked_sub(1),
        0x143 => (lane >= 32).then_some(31),
        0x150..=0x15f => Some(row | by),
        _ => None,
    }
}

/// A part of a dword, extended.
fn select(value: u32, sel: Sel, signed: bool) -> u32 {
    let (shift, bits) = sel_bits(sel);
    let part = value >> shift;
    match (bits, signed) {
        (8, true) => part as i8 as u32,
        (8, false) => part & 0xff,
        (16, true) => part as i16 as u32,
        (16, false) => part & 0xffff,
        _ => part,
    }
}

fn sel_bits(sel: Sel) -> (u32, u32) {
    match sel {
        Sel::Byte0 => (0, 8),
        Sel::Byte1 => (8, 8),
        Sel::Byte2 => (16, 8),
        Sel::Byte3 => (24, 8),
        Sel::Word0 => (0, 16),
        Sel::Word1 => (16, 16),
        Sel::Dword => (0, 32),
    }
}

/// `old` with the low bits of `result` in a part of it.
fn place(old: u32, result: u32, sel: Sel, unused: Unused) -> u32 {
    let (shift, bits) = sel_bits(sel);
    if bits == 32 {
        return result;
    }
    let mask = ((1 << bits) - 1) << shift;
    let placed = result << shift & mask;
    match unused {
        Unused::Pad => placed,
        Unused::Preserve => old & !mask | placed,
        Unused::Sext => ((placed << (32 - shift - bits)) as i32 >> (32 - shift - bits)) as u32,
    }
}

/// 16-bit instructions that came with gfx9 keep the other half of their destination; older ones
/// clear it, and so do the minimum, maximum and median of three halves, and the multiply-adds of
/// two operands: LLVM counts on it (AMDGPUISelDAGToDAG, `fp16SrcZerosHighBits`), and where the ISA
/// guide says "hi 16 bits are preserved" of others it has `{ 16'0, ... }` or nothing of them.
fn keeps_high_half(op: ValuOp) -> bool {
    match op {
        ValuOp::Three(op) => !matches!(
            op,
            Vop3::v_mad_legacy_f16
                | Vop3::v_mad_legacy_u16
                | Vop3::v_mad_legacy_i16
                | Vop3::v_fma_legacy_f16
                | Vop3::v_div_fixup_legacy_f16
                | Vop3::v_min3_f16
                | Vop3::v_max3_f16
                | Vop3::v_med3_f16
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpp_lanes_are_where_the_isa_says() {
        assert_eq!(dpp_source(0xb1, 4), Some(5)); // quad_perm:[1,0,3,2]
        assert_eq!(dpp_source(0x101, 15), None); // row_shl:1 at the row's end
        assert_eq!(dpp_source(0x111, 17), Some(16)); // row_shr:1
        assert_eq!(dpp_source(0x121, 16), Some(31)); // row_ror:1
        assert_eq!(dpp_source(0x142, 20), Some(15)); // row_bcast:15
        assert_eq!(dpp_source(0x142, 3), None);
        assert_eq!(dpp_source(0x143, 40), Some(31));
        assert_eq!(dpp_source(0x140, 18), Some(29));
        assert_eq!(dpp_source(0x141, 1), Some(6));
    }

    #[test]
    fn parts_are_selected_and_placed() {
        assert_eq!(select(0x1280_3456, Sel::Byte2, true), 0xffff_ff80);
        assert_eq!(select(0x1280_3456, Sel::Word1, false), 0x1280);
        assert_eq!(
            place(0x1111_1111, 0xabcd, Sel::Byte1, Unused::Preserve),
            0x1111_cd11
        );
        assert_eq!(place(0x1111_1111, 0xabcd, Sel::Byte1, Unused::Pad), 0xcd00);
        assert_eq!(
            place(0x1111_1111, 0xabcd, Sel::Byte1, Unused::Sext),
            0xffff_cd00
        );
    }

    #[test]
    fn merging_keeps_other_lanes() {
        let mut to = [1; LANES];
        merge(&mut to, &[2; LANES], 0x8000_0000_0000_0005);
        assert_eq!((to[0], to[1], to[2], to[3], to[63]), (2, 1, 2, 1, 2));
    }
}
