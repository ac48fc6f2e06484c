// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms of loads and stores of whole dwords: GLOBAL, FLAT, SCRATCH with one offset for all
//! lanes, and MUBUF without indices.
//!
//! Lanes' addresses are a base and 32 bits of each lane. One access to memory serves all: a window
//! that holds all lanes' dwords, no wider than the reference's, or a run of lanes for a store. What
//! memory refuses is done again by the reference, which tells the fault.

use super::operands::{put, spread};
use super::{Bytes, Reg};
use crate::exec::places::{SPARSE, WINDOW};
use crate::exec::Machine;
use crate::inst::{Dst, MemInst, Src};
use crate::memory::Scope;
use crate::op::mem::Segment;
use crate::op::MemOp;
use crate::wave::{Vgpr, Wave, LANES};

/// Where the lanes' addresses come from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// A pair of scalar registers and a VGPR.
    Base { scalar: u8, vgpr: u8 },
    /// A pair of VGPRs, which for FLAT may lead elsewhere.
    Pair { vgpr: u8, flat: bool },
    /// The lanes' dwords of scratch at one offset.
    Scratch { scalar: Option<u8> },
    /// A buffer descriptor, a VGPR and a scalar offset.
    Buffer {
        descriptor: u8,
        vgpr: Option<u8>,
        offset: Option<u8>,
        constant: u32,
    },
}

/// A load or a store of 1 to 4 dwords.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    from: Origin,
    offset: i32,
    dwords: u8,
    store: bool,
    data: Reg,
}

/// The lanes' addresses: a base, and what each lane adds.
struct Addresses<'a> {
    base: u64,
    lanes: &'a Vgpr,
}

/// No lane adds anything.
const NOTHING: Vgpr = [0; LANES];

impl Access {
    /// The quick form of an instruction, if it has one.
    pub(super) fn of(mem: &MemInst) -> Option<Access> {
        if mem.lds || Scope::of(mem.sc0, mem.sc1) != Scope::Wave {
            return None;
        }
        let (store, dwords, data) = match mem.op {
            MemOp::Load(dwords) => (false, dwords, mem.dst),
            MemOp::Store(dwords) => (true, dwords, mem.data),
            _ => return None,
        };
        let data = match data {
            Dst::Vgpr(number) => Reg::Vgpr(number),
            Dst::Acc(number) => Reg::Acc(number),
            Dst::None | Dst::Scalar(_) => return None,
        };
        Some(Access {
            from: Origin::of(mem)?,
            offset: mem.offset,
            dwords,
            store,
            data,
        })
        .filter(|_| (1..=4).contains(&dwords))
    }

    /// Executes it. False: it has to go through the reference.
    #[inline(always)]
    pub(super) fn run(&self, machine: &mut Machine, window: &mut Bytes) -> bool {
        let exec = machine.wave.exec();
        if exec == 0 {
            return false;
        }
        if let Origin::Scratch { scalar } = self.from {
            return self.rows(machine, exec, scalar, &mut window.bytes);
        }
        match (self.store, self.dwords) {
            (false, 1) => self.load::<1>(machine, exec, window),
            (false, 2) => self.load::<2>(machine, exec, window),
            (false, 3) => self.load::<3>(machine, exec, window),
            (false, _) => self.load::<4>(machine, exec, window),
            (true, 1) => self.store::<1>(machine, exec, window),
            (true, 2) => self.store::<2>(machine, exec, window),
            (true, 3) => self.store::<3>(machine, exec, window),
            (true, _) => self.store::<4>(machine, exec, window),
        }
    }

    #[inline(always)]
    fn load<const D: usize>(&self, machine: &mut Machine, exec: u64, window: &mut Bytes) -> bool {
        let Bytes { bytes, words } = window;
        let Some(at) = self.addresses(machine, exec) else {
            return false;
        };
        if let Some(start) = run_of_all::<D>(at.lanes, exec) {
            let Some(first) = at.base.checked_add(start.into()) else {
                return false;
            };
            let length = 4 * D * LANES;
            let is_last = first.checked_add(length as u64).is_none();
            if is_last || !self.is_memory(machine, first, length as u64) {
                return false;
            }
            if machine.memory.read(first, &mut bytes[..length]).is_err() {
                return false;
            }
            for d in 0..D {
                let register = self.data.of(machine.wave, d);
                for i in 0..LANES {
                    register[i] = word(bytes, 4 * (D * i + d));
                }
            }
            return true;
        }
        let (mut hold, mut index) = ([0; LANES], [0; LANES]);
        let active = spread(exec, &mut hold);
        let (low, high) = bounds(at.lanes, active);
        let length = u64::from(high - low) + 4 * D as u64;
        let asked = u64::from(exec.count_ones()) * 4 * D as u64;
        let Some(first) = at.base.checked_add(low.into()) else {
            return false;
        };
        let is_near = length <= (SPARSE * asked).min(WINDOW as u64);
        if !is_near
            || first.checked_add(length).is_none()
            || !self.is_memory(machine, first, length)
        {
            return false;
        }
        let mut odd = 0;
        for i in 0..LANES {
            let offset = at.lanes[i].wrapping_sub(low);
            odd |= offset & active[i];
            index[i] = offset / 4;
        }
        if odd & 3 != 0 {
            return false;
        }
        if machine
            .memory
            .read(first, &mut bytes[..length as usize])
            .is_err()
        {
            return false;
        }
        for i in 0..WINDOW / 4 {
            words[i] = word(bytes, 4 * i);
        }
        for d in 0..D {
            let mut result = [0; LANES];
            for i in 0..LANES {
                result[i] = words[index[i].wrapping_add(d as u32) as usize % (WINDOW / 4)];
            }
            put(self.data.of(machine.wave, d), &result, exec);
        }
        true
    }

    #[inline(always)]
    fn store<const D: usize>(&self, machine: &mut Machine, exec: u64, window: &mut Bytes) -> bool {
        let Bytes { bytes, words } = window;
        // One run of lanes, and not the rest of a store that was interrupted.
        let first = exec.trailing_zeros() as usize % LANES;
        let count = exec.count_ones() as usize;
        if (exec >> first).trailing_ones() as usize != count || machine.wave.replay() & exec != 0 {
            return false;
        }
        let Some(at) = self.addresses(machine, exec) else {
            return false;
        };
        let start = at.lanes[first];
        let length = 4 * D * count;
        let mut hold = [0; LANES];
        let active = spread(exec, &mut hold);
        let mut differs = 0;
        for i in 0..LANES {
            let expected = start
                .wrapping_add((4 * D * i) as u32)
                .wrapping_sub((4 * D * first) as u32);
            differs |= (at.lanes[i] ^ expected) & active[i];
        }
        let address = at.base.checked_add(start.into());
        let ends = start.checked_add(length as u32).is_some();
        let Some(address) = address.filter(|it| ends && it.checked_add(length as u64).is_some())
        else {
            return false;
        };
        if differs != 0 || !self.is_memory(machine, address, length as u64) {
            return false;
        }
        for d in 0..D {
            let register: &Vgpr = self.data.of(machine.wave, d);
            for i in 0..LANES {
                words[D * i + d] = register[i];
            }
        }
        for i in 0..LANES * D {
            let word = words[i].to_le_bytes();
            bytes[4 * i] = word[0];
            bytes[4 * i + 1] = word[1];
            bytes[4 * i + 2] = word[2];
            bytes[4 * i + 3] = word[3];
        }
        let from = 4 * D * first;
        let done = machine.memory.write(address, &bytes[from..from + length]);
        if done.is_ok() {
            machine.wave.set_replay(0);
        }
        done.is_ok()
    }

    /// Scratch, whose dwords lie row by row: one access for each.
    #[inline(always)]
    fn rows(
        &self,
        machine: &mut Machine,
        exec: u64,
        scalar: Option<u8>,
        bytes: &mut [u8; WINDOW],
    ) -> bool {
        let own = scalar.map_or(0, |code| machine.wave.scalar[usize::from(code & 0x7f)]);
        let offset = u64::from(own.wrapping_add_signed(self.offset));
        if exec != u64::MAX || offset % 4 != 0 || machine.wave.replay() != 0 {
            return false;
        }
        let mut result = [[0; LANES]; 4];
        for (index, result) in result.iter_mut().enumerate().take(self.dwords.into()) {
            let Some(row) = (offset / 4 + index as u64)
                .checked_mul(4 * LANES as u64)
                .and_then(|row| row.checked_add(machine.wave.scratch_base()))
                .filter(|row| row.checked_add(4 * LANES as u64).is_some())
            else {
                return false;
            };
            let row_bytes = &mut bytes[..4 * LANES];
            if !self.store {
                if machine.memory.read(row, row_bytes).is_err() {
                    return false;
                }
                words(row_bytes, result);
                continue;
            }
            let register: &Vgpr = self.data.of(machine.wave, index);
            for i in 0..LANES {
                row_bytes[4 * i..][..4].copy_from_slice(&register[i].to_le_bytes());
            }
            if machine.memory.write(row, row_bytes).is_err() {
                return false;
            }
        }
        if self.store {
            machine.wave.set_replay(0);
            return true;
        }
        for (index, result) in result.iter().enumerate().take(self.dwords.into()) {
            *self.data.of(machine.wave, index) = *result;
        }
        true
    }

    /// The lanes' addresses, unless their upper halves differ or some lie outside of a buffer.
    #[inline(always)]
    fn addresses<'a>(&self, machine: &'a Machine, exec: u64) -> Option<Addresses<'a>> {
        let wave: &Wave = machine.wave;
        let offset = i64::from(self.offset) as u64;
        match self.from {
            Origin::Base { scalar, vgpr } => Some(Addresses {
                base: wave.scalar64(usize::from(scalar)).wrapping_add(offset),
                lanes: &wave.vgpr[usize::from(vgpr)],
            }),
            Origin::Pair { vgpr, .. } => {
                let [lanes, upper] = [0, 1].map(|half| &wave.vgpr[usize::from(vgpr) + half]);
                let high = upper[exec.trailing_zeros() as usize % LANES];
                let mut hold = [0; LANES];
                let active = spread(exec, &mut hold);
                let mut differs = 0;
                for i in 0..LANES {
                    differs |= (upper[i] ^ high) & active[i];
                }
                let base = (u64::from(high) << 32).wrapping_add(offset);
                (differs == 0).then_some(Addresses { base, lanes })
            }
            Origin::Buffer {
                descriptor,
                vgpr,
                offset,
                constant,
            } => {
                let soffset = match offset {
                    Some(code) => wave.scalar[usize::from(code & 0x7f)],
                    None => constant,
                };
                let first = usize::from(descriptor);
                let words = [0, 1, 2, 3].map(|index| wave.scalar[first + index]);
                let lanes = vgpr.map_or(&NOTHING, |vgpr| &wave.vgpr[usize::from(vgpr)]);
                self.buffer(words, lanes, soffset, exec)
            }
            Origin::Scratch { .. } => None,
        }
    }

    /// Addresses by a descriptor, for lanes without an index.
    #[inline(always)]
    fn buffer<'a>(
        &self,
        words: [u32; 4],
        lanes: &'a Vgpr,
        soffset: u32,
        exec: u64,
    ) -> Option<Addresses<'a>> {
        let base = u64::from(words[0]) | u64::from(words[1] & 0xffff) << 32;
        let (stride, records) = (words[1] >> 16 & 0x3fff, u64::from(words[2]));
        let (swizzles, adds_thread) = (words[1] >> 31 != 0, words[3] >> 23 & 1 != 0);
        let fixed = u64::from(soffset).wrapping_add(i64::from(self.offset) as u64);
        let mut hold = [0; LANES];
        let (_, high) = bounds(lanes, spread(exec, &mut hold));
        let end = u64::from(high)
            .wrapping_add(fixed)
            .wrapping_add(4 * u64::from(self.dwords));
        let outside = match stride {
            0 => end > records,
            _ => records == 0,
        };
        (!swizzles && !adds_thread && !outside && self.offset >= 0).then_some(Addresses {
            base: base.wrapping_add(fixed),
            lanes,
        })
    }

    /// Whether FLAT addresses from here on are those of memory.
    #[inline(always)]
    fn is_memory(&self, machine: &Machine, first: u64, length: u64) -> bool {
        let Origin::Pair { flat: true, .. } = self.from else {
            return true;
        };
        let windows = [machine.apertures.shared, machine.apertures.private];
        let ends = [first, first.wrapping_add(length)].map(|address| address >> 32);
        windows
            .iter()
            .all(|base| *base == 0 || !ends.contains(&(base >> 32)))
    }
}

impl Origin {
    fn of(mem: &MemInst) -> Option<Origin> {
        match (mem.segment, mem.saddr, mem.vaddr) {
            (Segment::Global, Some(scalar), vgpr) => Some(Origin::Base {
                scalar: scalar & 0x7e,
                vgpr: vgpr.unwrap_or(0),
            }),
            (Segment::Global | Segment::Flat, None, vgpr) => Some(Origin::Pair {
                vgpr: vgpr.unwrap_or(0),
                flat: mem.segment == Segment::Flat,
            }),
            (Segment::Scratch, scalar, None) => Some(Origin::Scratch { scalar }),
            (Segment::Buffer, _, vgpr) if !mem.idxen => {
                let (offset, constant) = match mem.soffset {
                    Src::Scalar(code) => (Some(code), 0),
                    Src::Inline(_, bits) | Src::Literal(_, bits) => (None, bits as u32),
                    Src::None => (None, 0),
                    Src::Special(_) | Src::Vgpr(_) | Src::Acc(_) => return None,
                };
                Some(Origin::Buffer {
                    descriptor: mem.srsrc & 0x7c,
                    vgpr: mem.offen.then_some(vgpr.unwrap_or(0)),
                    offset,
                    constant,
                })
            }
            _ => None,
        }
    }
}

/// The first lane's address, if all lanes are active and have neighbouring ones.
#[inline(always)]
fn run_of_all<const D: usize>(lanes: &Vgpr, exec: u64) -> Option<u32> {
    let start = lanes[0];
    if exec != u64::MAX || start.checked_add((4 * D * LANES) as u32).is_none() {
        return None;
    }
    let mut differs = 0;
    for i in 0..LANES {
        differs |= lanes[i] ^ start.wrapping_add((4 * D * i) as u32);
    }
    (differs == 0).then_some(start)
}

#[inline(always)]
fn word(bytes: &[u8; WINDOW], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The least and the greatest of the lanes that are all ones in `active`.
#[inline(always)]
fn bounds(lanes: &Vgpr, active: &Vgpr) -> (u32, u32) {
    let (mut low, mut high) = (u32::MAX, 0);
    for i in 0..LANES {
        low = low.min(lanes[i] | !active[i]);
        high = high.max(lanes[i] & active[i]);
    }
    (low, high)
}

/// Bytes as dwords.
#[inline(always)]
fn words(bytes: &[u8], words: &mut Vgpr) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
}
