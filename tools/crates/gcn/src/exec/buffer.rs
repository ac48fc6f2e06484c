// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Buffer descriptors: where MUBUF and MTBUF find the lanes' data, and what is out of bounds. After
//! the CDNA4 ISA guide, 9.1.5; LLVM ("excluded from bounds checking and swizzling", of SOFFSET in
//! IntrinsicsAMDGPU) agrees.
//!
//! Not known, and chosen here: what is neither of the guide's three kinds of buffers is checked as
//! bytes.

use super::places::Place;
use super::typed::Format;
use super::Machine;
use crate::inst::MemInst;
use crate::op::{AtomicOp, MemOp};
use crate::wave::LANES;

/// What NUM_RECORDS is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bounds {
    /// Nothing: a private buffer, with ADD_TID and without IDXEN.
    None,
    /// The offset of VGPR and instruction: a raw buffer.
    Bytes,
    /// The index: a structured buffer, with a stride and IDXEN.
    Records,
}

/// A lane's data, in bounds or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// So many dwords, or a part of one: each is in bounds if it begins there.
    Dwords(u8),
    /// So many bytes, all or nothing: atomics and what goes through the format converter.
    Whole(u64),
}

/// Where a lane looks.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// VADDR's index, 0 without IDXEN.
    index: u64,
    /// VADDR's and the instruction's offsets, in bytes.
    offset: u64,
    number: u64,
}

/// A buffer descriptor, as an instruction reads it.
struct Buffer {
    base: u64,
    stride: u64,
    records: u64,
    swizzle: bool,
    index_stride: u64,
    add_tid: bool,
    bounds: Bounds,
}

impl Buffer {
    fn new(words: [u32; 4], mem: &MemInst) -> Buffer {
        let add_tid = words[3] >> 23 & 1 != 0;
        let typed = matches!(mem.op, MemOp::Format(..));
        // DATA_FORMAT is of no use there.
        let more = match add_tid && !typed {
            true => words[3] >> 15 & 0xf,
            false => 0,
        };
        let stride = u64::from(words[1] >> 16 & 0x3fff | more << 14);
        Buffer {
            base: u64::from(words[0]) | u64::from(words[1] & 0xffff) << 32,
            stride,
            records: words[2].into(),
            swizzle: words[1] >> 31 != 0,
            index_stride: 8 << (words[3] >> 21 & 3),
            add_tid,
            bounds: match mem.idxen {
                false if add_tid => Bounds::None,
                true if stride != 0 => Bounds::Records,
                _ => Bounds::Bytes,
            },
        }
    }

    fn place(&self, lane: Lane, soffset: u64, extent: Extent) -> Place {
        let Lane { offset, number, .. } = lane;
        let index = lane.index + if self.add_tid { number } else { 0 };
        let linear = if self.swizzle {
            let (block, within) = (index / self.index_stride, index % self.index_stride);
            (block * self.stride + offset / 4 * 4) * self.index_stride + within * 4 + offset % 4
        } else {
            index * self.stride + offset
        };
        let address = self.base.wrapping_add(soffset).wrapping_add(linear);
        let left = self.records.saturating_sub(offset);
        match (self.bounds, extent) {
            (Bounds::None, _) => Place::Memory(address),
            (Bounds::Records, _) if index < self.records => Place::Memory(address),
            (Bounds::Bytes, Extent::Whole(bytes)) if bytes <= left => Place::Memory(address),
            (Bounds::Bytes, Extent::Dwords(dwords)) => match left.div_ceil(4) {
                0 => Place::Nowhere,
                inside if inside < dwords.into() => Place::Part(address, inside as u8),
                _ => Place::Memory(address),
            },
            _ => Place::Nowhere,
        }
    }
}

impl Machine<'_> {
    /// The buffer descriptor of an access.
    pub(super) fn descriptor(&self, mem: &MemInst) -> [u32; 4] {
        let first = usize::from(mem.srsrc & 0x7c);
        [0, 1, 2, 3].map(|index| self.wave.scalar[first + index])
    }

    /// Bytes that a lane accesses.
    pub(super) fn lane_bytes(&self, mem: &MemInst) -> u64 {
        let size = 4 * u64::from(mem.op.data_dwords().max(1));
        match mem.op {
            MemOp::LoadNarrow { bytes, .. } | MemOp::StoreNarrow { bytes, .. } => bytes.into(),
            MemOp::LoadLds(bytes, _) => bytes.into(),
            MemOp::Atomic(AtomicOp::CmpSwap, _) => size / 2,
            MemOp::Format(..) => {
                Format::of(mem, self.descriptor(mem)).map_or(4, |format| format.bytes() as u64)
            }
            _ => size,
        }
    }

    /// MUBUF and MTBUF: base, index × stride and offsets, checked against the descriptor's bounds.
    #[inline(always)]
    pub(super) fn buffer_places(&self, mem: &MemInst) -> [Place; LANES] {
        let buffer = Buffer::new(self.descriptor(mem), mem);
        let soffset = u64::from(self.scalar32(mem.soffset));
        let extent = match mem.op {
            MemOp::Atomic(..) | MemOp::Format(..) => Extent::Whole(self.lane_bytes(mem)),
            op => Extent::Dwords(op.data_dwords().max(1)),
        };
        std::array::from_fn(|number| {
            let index = match mem.idxen {
                true => self.vaddr(mem, 0)[number].into(),
                false => 0,
            };
            let own = match mem.offen {
                true => self.vaddr(mem, usize::from(mem.idxen))[number].into(),
                false => 0,
            };
            let lane = Lane {
                index,
                offset: own + mem.offset as u64,
                number: number as u64,
            };
            buffer.place(lane, soffset, extent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::inst::Body;

    /// `buffer_load_dwordx4 v[4:7], v[0:1], s[8:11], 0` with these of IDXEN (1 << 13) and OFFEN.
    fn load(bits: u32) -> MemInst {
        let inst = decode(0, &[0xe05c_0000 | bits, 0x8002_0400]).unwrap();
        match inst.body {
            Body::Mem(mem) => mem,
            other => panic!("{other:?}"),
        }
    }

    const OFFEN: u32 = 1 << 12;
    const IDXEN: u32 = 1 << 13;

    fn at(index: u64, offset: u64) -> Lane {
        Lane {
            index,
            offset,
            number: 5,
        }
    }

    #[test]
    fn records_are_counted_with_an_index_bytes_without() {
        let words = [0x1000, 16 << 16, 4, 0];
        let structured = Buffer::new(words, &load(IDXEN | OFFEN));
        let one = Extent::Dwords(1);
        assert_eq!(structured.place(at(3, 4), 0, one), Place::Memory(0x1034));
        assert_eq!(structured.place(at(3, 40), 0, one), Place::Memory(0x1058));
        assert_eq!(structured.place(at(4, 0), 0, one), Place::Nowhere);
        let raw = Buffer::new(words, &load(OFFEN));
        assert_eq!(raw.place(at(0, 0), 0, one), Place::Memory(0x1000));
        assert_eq!(raw.place(at(0, 4), 0, one), Place::Nowhere);
    }

    #[test]
    fn each_dword_is_in_bounds_or_not_without_soffset() {
        let raw = Buffer::new([0x1000, 0, 40, 0], &load(OFFEN));
        let four = Extent::Dwords(4);
        assert_eq!(raw.place(at(0, 24), 0, four), Place::Memory(0x1018));
        assert_eq!(raw.place(at(0, 32), 0, four), Place::Part(0x1020, 2));
        assert_eq!(raw.place(at(0, 40), 0, four), Place::Nowhere);
        assert_eq!(raw.place(at(0, 24), 64, four), Place::Memory(0x1058));
        assert_eq!(raw.place(at(0, u64::MAX / 2), 0, four), Place::Nowhere);
        assert_eq!(raw.place(at(0, 32), 0, Extent::Whole(16)), Place::Nowhere);
        let whole = Extent::Whole(8);
        assert_eq!(raw.place(at(0, 32), 0, whole), Place::Memory(0x1020));
    }

    #[test]
    fn private_buffers_have_no_bounds_and_long_strides() {
        let words = [0x1000, 16 << 16, 4, 1 << 23 | 1 << 15];
        let private = Buffer::new(words, &load(OFFEN));
        let place = private.place(at(0, 100), 0, Extent::Dwords(1));
        assert_eq!(place, Place::Memory(0x1000 + 5 * (1 << 14 | 16) + 100));
    }
}
