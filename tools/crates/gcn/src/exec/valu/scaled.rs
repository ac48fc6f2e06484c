// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! gfx950's conversions between floats of 32 or 16 bits and those of 8, 6 or 4 bits with a scale
//! (`v_cvt_scalef32_*`), and the randomly rounded ones to 16 bits (`v_cvt_sr_*`).
//!
//! The scale is a power of two: the exponent field of a single, of which 255 makes NaNs. Smaller
//! floats are multiplied by it, larger ones divided.
//!
//! Source: "AMD Instinct CDNA4 Instruction Set Architecture", 12.11 and 7.3. What a sign or a
//! magnitude of a packed source would mean it does not say: such an instruction is not executed.

use super::vop1::prng;
use super::{Done, Machine};
use crate::exec::unsupported;
use crate::float::format::Format;
use crate::float::narrow::{Narrow, Rounding};
use crate::float::F32;
use crate::inst::{Inst, Src, Valu};
use crate::op::{Ty, Vop3};
use crate::wave::{Vgpr, LANES};

/// What a mnemonic says.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    /// Rounded by a random number, which is source 1.
    random: bool,
    /// Values converted: 1, 2 or 32.
    count: usize,
    /// They come from sources 0 and 1 in turn.
    two_sources: bool,
    to: Format,
    from: Format,
}

impl Conversion {
    /// `v_cvt_scalef32_[sr_][pk_|pk32_|2xpk16_]TO_FROM`.
    fn parse(mnemonic: &str) -> Option<Self> {
        let mut words = mnemonic
            .strip_prefix("v_cvt_scalef32_")?
            .split('_')
            .peekable();
        let random = words.next_if_eq(&"sr").is_some();
        let packed = words.next_if(|word| word.contains("pk"));
        let (to, from) = (Format::parse(words.next()?)?, Format::parse(words.next()?)?);
        let count = match packed {
            None => 1,
            Some("pk") => 2,
            Some(_) => 32,
        };
        Some(Self {
            random,
            count,
            two_sources: packed == Some("2xpk16") || count == 2 && from == Format::F32 && !random,
            to,
            from,
        })
    }

    fn narrows(self) -> bool {
        self.to.bits() < self.from.bits()
    }

    /// Which source is the scale.
    fn scale(self) -> usize {
        1 + usize::from(self.random || self.two_sources)
    }

    /// Bits of all results.
    fn width(self) -> usize {
        self.count * self.to.bits()
    }
}

impl Machine<'_> {
    pub(super) fn convert_scaled(&mut self, inst: &Inst, v: &Valu, op: Vop3) -> Done {
        let Some(conversion) = Conversion::parse(op.mnemonic()) else {
            return Err(unsupported(inst));
        };
        let packed = matches!(v.types[1], Ty::PF16 | Ty::PBf16 | Ty::PF32);
        if packed && (v.mods.neg | v.mods.abs) & 1 != 0 {
            return Err(unsupported(inst));
        }
        let mut hold = [0; LANES];
        let scales = *self.src32(v, conversion.scale(), &mut hold);
        let mut hold = [0; LANES];
        let mut seeds = match conversion.random {
            true => *self.src32(v, 1, &mut hold),
            false => [0; LANES],
        };
        let narrow = conversion.to.narrow(self.target, self.other().fp16_ovfl);
        let mut d = [[0; LANES]; 32];
        for index in 0..conversion.count {
            let values = self.scaled_source(v, conversion, index);
            let at = index * conversion.to.bits();
            for lane in 0..LANES {
                let rounding = match conversion.random {
                    true => Rounding::Random(seeds[lane]),
                    false => Rounding::Nearest,
                };
                let value = times(values[lane], scales[lane], conversion.narrows());
                let bits = u64::from(narrow.round(value, rounding)) << (at % 32);
                d[at / 32][lane] |= bits as u32;
                // Six bits may lie in two registers.
                if bits >> 32 != 0 {
                    d[at / 32 + 1][lane] |= (bits >> 32) as u32;
                }
                seeds[lane] = prng(seeds[lane]);
            }
        }
        self.put_scaled(v, conversion, &d)
    }

    /// Element `index` of all lanes.
    fn scaled_source(&self, v: &Valu, conversion: Conversion, index: usize) -> [f64; LANES] {
        let (from, bits) = (conversion.from, conversion.from.bits());
        let (which, item) = match conversion.two_sources {
            true => (index % 2, index / 2),
            false => (0, index),
        };
        let mut hold = [0; LANES];
        let lanes: Vgpr = match v.types[which + 1] {
            Ty::F32 => *self.src32(v, which, &mut hold),
            Ty::F16 | Ty::Bf16 => self.src16(v, which),
            _ => {
                let at = part(conversion, v.mods.op_sel) + item * bits;
                std::array::from_fn(|lane| self.field(v.src[which], at, bits, lane))
            }
        };
        let flushes = from == Format::F32 && !self.single().denorm_in;
        let flush = |bits: u32| match flushes {
            true => F32.flush(bits.into()) as u32,
            false => bits,
        };
        std::array::from_fn(|lane| from.value(self.target, flush(lanes[lane])).into())
    }

    /// `bits` bits from bit `at` of an operand on.
    fn field(&self, src: Src, at: usize, bits: usize, lane: usize) -> u32 {
        let register = |index: usize| match src {
            Src::Vgpr(number) => self.wave.vgpr[usize::from(number) + index][lane],
            Src::Acc(number) => self.wave.acc[usize::from(number) + index][lane],
            // Pairs begin at even registers, single ones anywhere.
            scalar if bits == 32 => (self.scalar64(scalar) >> (32 * (index & 1))) as u32,
            scalar => self.scalar32(scalar),
        };
        let low = u64::from(register(at / 32));
        let high = match at % 32 + bits > 32 {
            true => u64::from(register(at / 32 + 1)) << 32,
            false => 0,
        };
        ((low | high) >> (at % 32) & ((1 << bits) - 1)) as u32
    }

    fn put_scaled(&mut self, v: &Valu, conversion: Conversion, d: &[Vgpr; 32]) -> Done {
        let op_sel = u32::from(v.mods.op_sel);
        match conversion.width() {
            8 => {
                let shift = 8 * (op_sel >> 2 & 3);
                self.put_part(v, &d[0], shift, 0xff << shift)
            }
            16 => {
                let shift = 16 * (op_sel >> 3 & 1);
                self.put_part(v, &d[0], shift, 0xffff << shift)
            }
            width => {
                let exec = self.wave.exec();
                for (index, register) in d[..width / 32].iter().enumerate() {
                    self.put_data(v.dst, index, register, exec);
                }
                Ok(())
            }
        }
    }

    /// `v_cvt_sr_f16_f32` and `v_cvt_sr_bf16_f32`. FP16_OVFL is taken to concern halves only.
    pub(super) fn round_half(&mut self, v: &Valu, kind: Narrow) -> Done {
        let (single, saturate) = (self.single(), self.other().fp16_ovfl);
        let mut hold = [[0; LANES]; 2];
        let [hold_a, hold_b] = &mut hold;
        let a = self.float_src(v, 0, hold_a, single);
        let random = self.src32(v, 1, hold_b);
        let d = std::array::from_fn(|lane| {
            let value = f64::from(f32::from_bits(a[lane]));
            let kind = match saturate && kind == Narrow::F16 {
                true => kind.saturating(value),
                false => kind,
            };
            kind.round(value, Rounding::Random(random[lane]))
        });
        let shift = 16 * u32::from(v.mods.op_sel >> 3 & 1);
        self.put_part(v, &d, shift, 0xffff << shift)
    }
}

/// Where OP_SEL has the small floats begin that do not fill a register: a byte or a half.
fn part(conversion: Conversion, op_sel: u8) -> usize {
    let part = usize::from(op_sel);
    match conversion.count * conversion.from.bits() {
        8 if !conversion.narrows() => 8 * (part & 3),
        16 if !conversion.narrows() => 16 * (part & 1),
        _ => 0,
    }
}

/// The value times the scale, or divided by it; a NaN keeps the value's sign.
fn times(value: f64, scale: u32, narrows: bool) -> f64 {
    match (scale >> 23 & 0xff) as i32 {
        255 => f64::NAN.copysign(value),
        exponent if narrows => value * 2f64.powi(127 - exponent),
        exponent => value * 2f64.powi(exponent - 127),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mnemonic_is_read_and_agrees_with_its_operands() {
        let ops = Vop3::ALL
            .iter()
            .filter(|op| op.mnemonic().starts_with("v_cvt_scalef32_"));
        assert_eq!(ops.clone().count(), 49);
        for op in ops {
            let conversion = Conversion::parse(op.mnemonic()).unwrap();
            let types = op.types();
            let dwords = |bits: usize| bits.div_ceil(32);
            assert_eq!(
                dwords(conversion.width()),
                types[0].dwords().into(),
                "{op:?}"
            );
            let sources = 1 + usize::from(conversion.two_sources);
            let from = conversion.count / sources * conversion.from.bits();
            assert_eq!(dwords(from), types[1].dwords().into(), "{op:?}");
            let used = types[1..].iter().filter(|ty| ty.dwords() != 0).count();
            assert_eq!(conversion.scale(), used - 1, "{op:?}");
        }
    }
}
