// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Typed buffer accesses: `tbuffer_*` (MTBUF), whose format is in the instruction, and
//! `buffer_load_format_*` and its siblings, whose format is in the descriptor. Memory holds up to
//! four components of a few bits; registers get f32, halves or integers.
//!
//! Not known, and chosen here: integers that do not fit are cut off when they are stored.

use super::lds::{high_half, lanes};
use super::places::{Place, Places};
use super::{unsupported, Done, Machine};
use crate::float::half;
use crate::inst::{Inst, MemInst};
use crate::op::MemOp;
use crate::wave::LANES;

/// How a component's bits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Unorm,
    Snorm,
    Uscaled,
    Sscaled,
    Uint,
    Sint,
    Float,
}

/// A component: its lowest bit and width.
type Field = (u32, u32);

/// A format of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    fields: [Field; 4],
    count: usize,
    number: Number,
    /// What each register gets: a component (4 and up), 0 or 1.
    select: [u32; 4],
}

/// Widths of the components of each data format, lowest first.
fn widths(data: u32) -> Option<&'static [u32]> {
    Some(match data {
        1 => &[8],
        2 => &[16],
        3 => &[8, 8],
        4 => &[32],
        5 => &[16, 16],
        6 => &[11, 11, 10],
        7 => &[10, 11, 11],
        8 => &[2, 10, 10, 10],
        9 => &[10, 10, 10, 2],
        10 => &[8, 8, 8, 8],
        11 => &[32, 32],
        12 => &[16, 16, 16, 16],
        13 => &[32, 32, 32],
        14 => &[32, 32, 32, 32],
        _ => return None,
    })
}

impl Format {
    /// From BUF_DATA_FORMAT and BUF_NUM_FORMAT.
    fn new(data: u32, number: u32, select: [u32; 4]) -> Option<Format> {
        let widths = widths(data)?;
        let number = match number {
            0 => Number::Unorm,
            1 => Number::Snorm,
            2 => Number::Uscaled,
            3 => Number::Sscaled,
            4 => Number::Uint,
            5 => Number::Sint,
            7 => Number::Float,
            _ => return None,
        };
        let mut fields = [(0, 0); 4];
        let mut at = 0;
        for (field, width) in fields.iter_mut().zip(widths) {
            *field = (at, *width);
            at += width;
        }
        Some(Format {
            fields,
            count: widths.len(),
            number,
            select,
        })
    }

    /// The instruction's own, or the descriptor's.
    pub(super) fn of(mem: &MemInst, descriptor: [u32; 4]) -> Option<Format> {
        const IDENTITY: [u32; 4] = [4, 5, 6, 7];
        if let Some((data, number)) = mem.format {
            return Format::new(data.into(), number.into(), IDENTITY);
        }
        let word = descriptor[3];
        let select = [0, 3, 6, 9].map(|shift| word >> shift & 7);
        Format::new(word >> 15 & 15, word >> 12 & 7, select)
    }

    /// Bytes of an element.
    pub(super) fn bytes(&self) -> usize {
        let (at, width) = self.fields[self.count - 1];
        (at + width) as usize / 8
    }

    fn is_integer(&self) -> bool {
        matches!(self.number, Number::Uint | Number::Sint)
    }

    /// A component of an element, as a register of 32 bits has it.
    fn load(&self, element: u128, index: usize) -> u32 {
        let (at, width) = self.fields[index];
        let bits = (element >> at) as u32 & mask(width);
        let signed = ((bits << (32 - width)) as i32) >> (32 - width);
        let most = |bits: u32| mask(bits) as f32;
        match self.number {
            Number::Uint => bits,
            Number::Sint => signed as u32,
            Number::Uscaled => (bits as f32).to_bits(),
            Number::Sscaled => (signed as f32).to_bits(),
            Number::Unorm => (bits as f32 / most(width)).to_bits(),
            Number::Snorm => (signed as f32 / most(width - 1)).max(-1.0).to_bits(),
            Number::Float => match width {
                32 => bits,
                16 => half::to_f32(bits as u16).to_bits(),
                // No sign: the exponent of a half, and 6 or 5 bits of fraction.
                _ => half::to_f32((bits << (15 - width)) as u16).to_bits(),
            },
        }
    }

    /// A register's value as a component's bits.
    fn store(&self, value: u32, index: usize) -> u128 {
        let (at, width) = self.fields[index];
        let float = f32::from_bits(value);
        let bits = match self.number {
            Number::Uint | Number::Sint => value,
            Number::Uscaled => float as u32,
            Number::Sscaled => float as i32 as u32,
            Number::Unorm => (float.clamp(0.0, 1.0) * mask(width) as f32).round_ties_even() as u32,
            Number::Snorm => {
                let scaled = float.clamp(-1.0, 1.0) * mask(width - 1) as f32;
                scaled.round_ties_even() as i32 as u32
            }
            Number::Float => match width {
                32 => value,
                16 => half::from_f32(float).into(),
                _ => u32::from(half::from_f32(float.max(0.0))) >> (15 - width),
            },
        };
        u128::from(bits & mask(width)) << at
    }

    /// What register `index` of a load gets. Components that the format lacks are 0, the last 1.
    fn selected(&self, element: u128, index: usize) -> u32 {
        let one = if self.is_integer() { 1 } else { 1f32.to_bits() };
        match self.select[index] {
            4.. => match (self.select[index] - 4) as usize {
                component if component < self.count => self.load(element, component),
                3 => one,
                _ => 0,
            },
            1 => one,
            _ => 0,
        }
    }
}

fn mask(width: u32) -> u32 {
    u32::MAX >> (32 - width)
}

impl Machine<'_> {
    /// The format that an access goes by; descriptors of no valid format are unsupported.
    fn format(&self, inst: &Inst, mem: &MemInst) -> Result<Format, super::Stop> {
        Format::of(mem, self.descriptor(mem)).ok_or_else(|| unsupported(inst))
    }

    pub(super) fn typed(&mut self, inst: &Inst, mem: &MemInst, places: &Places) -> Done {
        let format = self.format(inst, mem)?;
        let MemOp::Format(stores, short, count) = mem.op else {
            return Err(unsupported(inst));
        };
        // The upper half of one register.
        let high = mem.name.contains("_hi_");
        let access = Access {
            format,
            count: count.into(),
            short,
            high,
        };
        if stores {
            self.typed_store(mem, places, &access)
        } else {
            self.typed_load(mem, places, &access)
        }
    }

    fn typed_load(&mut self, mem: &MemInst, places: &Places, access: &Access) -> Done {
        let exec = self.wave.exec();
        let mut result = [[0; LANES]; 4];
        let size = access.format.bytes();
        for lane in lanes(exec) {
            let mut bytes = [0; 16];
            let place = places.of(lane);
            self.read(place, lane, &mut bytes[..size])?;
            let element = u128::from_le_bytes(bytes);
            for (index, register) in result.iter_mut().enumerate().take(access.count) {
                register[lane] = match place {
                    Place::Nowhere => 0,
                    _ => access.format.selected(element, index),
                };
            }
        }
        if access.short {
            result = access.packed(&result);
        }
        if access.high {
            self.put_data(mem.dst, 0, &result[0].map(high_half), exec);
            return Ok(());
        }
        let registers = usize::from(mem.op.data_dwords());
        for (index, register) in result.iter().enumerate().take(registers) {
            self.put_data(mem.dst, index, register, exec);
        }
        Ok(())
    }

    fn typed_store(&mut self, mem: &MemInst, places: &Places, access: &Access) -> Done {
        let size = access.format.bytes();
        for lane in lanes(self.wave.exec()) {
            let mut element = 0;
            for index in 0..access.count.min(access.format.count) {
                let value = if access.short {
                    let word = self.data(mem.data, index / 2, lane);
                    let upper = access.high || index % 2 == 1;
                    access.widened((if upper { word >> 16 } else { word }) as u16)
                } else {
                    self.data(mem.data, index, lane)
                };
                element |= access.format.store(value, index);
            }
            let mut bytes = element.to_le_bytes();
            self.write(places.of(lane), lane, &mut bytes[..size])?;
        }
        Ok(())
    }
}

/// One access: its format and how registers hold the components.
struct Access {
    format: Format,
    count: usize,
    /// 16 bits each, two to a register.
    short: bool,
    /// In the upper half.
    high: bool,
}

impl Access {
    /// A component of 16 bits as one of 32.
    fn widened(&self, bits: u16) -> u32 {
        match self.format.number {
            Number::Uint => bits.into(),
            Number::Sint => bits as i16 as u32,
            _ => half::to_f32(bits).to_bits(),
        }
    }

    /// Components of 32 bits as 16 bits each.
    fn packed(&self, wide: &[[u32; LANES]; 4]) -> [[u32; LANES]; 4] {
        let narrow = |value: u32| match self.format.is_integer() {
            true => value & 0xffff,
            false => half::from_f32(f32::from_bits(value)).into(),
        };
        let mut result = [[0; LANES]; 4];
        for (index, register) in wide.iter().enumerate().take(self.count) {
            for lane in 0..LANES {
                result[index / 2][lane] |= narrow(register[lane]) << (16 * (index % 2));
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: [u32; 4] = [4, 5, 6, 7];

    #[test]
    fn components_are_taken_apart_and_put_together() {
        let format = Format::new(10, 0, IDENTITY).unwrap();
        assert_eq!(format.bytes(), 4);
        let values: Vec<f32> = (0..4)
            .map(|index| f32::from_bits(format.selected(0xff80_3300, index)))
            .collect();
        assert_eq!(values, [0.0, 0.2, 128.0 / 255.0, 1.0]);
        let back: u128 = (0..4)
            .map(|index| format.store(values[index].to_bits(), index))
            .sum();
        assert_eq!(back, 0xff80_3300);
    }

    #[test]
    fn signs_scales_and_small_floats() {
        let signed = Format::new(5, 1, IDENTITY).unwrap();
        assert_eq!(f32::from_bits(signed.selected(0x8000_7fff, 0)), 1.0);
        assert_eq!(f32::from_bits(signed.selected(0x8000_7fff, 1)), -1.0);
        let scaled = Format::new(3, 3, IDENTITY).unwrap();
        assert_eq!(f32::from_bits(scaled.selected(0xff05, 1)), -1.0);
        let small = Format::new(6, 7, IDENTITY).unwrap();
        // 1.5 in 11 bits, 1 in 10.
        let element = 0x3e0 | 0x1e0 << 22;
        assert_eq!(f32::from_bits(small.selected(element, 0)), 1.5);
        assert_eq!(f32::from_bits(small.selected(element, 2)), 1.0);
        // Components that are not there.
        assert_eq!(scaled.selected(0, 2), 0);
        assert_eq!(f32::from_bits(scaled.selected(0, 3)), 1.0);
        let integers = Format::new(1, 5, [4, 0, 1, 7]).unwrap();
        let all: Vec<u32> = (0..4).map(|index| integers.selected(0x80, index)).collect();
        assert_eq!(all, [0xffff_ff80, 0, 1, 1]);
        assert!(Format::new(0, 0, IDENTITY).is_none());
    }
}
