// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms of loads and stores of whole dwords: GLOBAL, FLAT, SCRATCH with one offset for all
//! lanes, and MUBUF without indices.
//!
//! Lanes' addresses are a base and 32 bits of each lane. One access to memory serves all, the same
//! as the reference makes: a window that holds all lanes' dwords, or a run of lanes for a store.
//! Memory is asked when nothing can send the instruction to the reference any more. To be asked has
//! effects even where it refuses: a fault that is injected so many times would be used up.

use super::operands::{ends, put, spread};
use super::{Aligned, Bytes, Reg};
use crate::exec::places::{SPARSE, WINDOW};
use crate::exec::Machine;
use crate::inst::{Dst, MemInst, Src};
use crate::memory::{Fault, Scope};
use crate::op::mem::Segment;
use crate::op::MemOp;
use crate::wave::{Vgpr, Wave, LANES};
use host_simd::{Level, TABLE};

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

    /// Executes it. False: it has to go through the reference, and memory was not asked.
    #[inline(always)]
    pub(super) fn run<L: Level>(
        &self,
        level: L,
        machine: &mut Machine,
        (window, room): (&mut Bytes, &mut [Vgpr; 9]),
    ) -> Result<bool, Fault> {
        let exec = machine.wave.exec();
        if exec == 0 {
            return Ok(false);
        }
        if let Origin::Scratch { scalar } = self.from {
            return self.rows(level, machine, (exec, scalar), (&mut window.bytes, room));
        }
        match (self.store, self.dwords) {
            (false, 1) => self.load::<L, 1>(level, machine, exec, window),
            (false, 2) => self.load::<L, 2>(level, machine, exec, window),
            (false, 3) => self.load::<L, 3>(level, machine, exec, window),
            (false, _) => self.load::<L, 4>(level, machine, exec, window),
            (true, 1) => self.store::<L, 1>(level, machine, exec, window),
            (true, 2) => self.store::<L, 2>(level, machine, exec, window),
            (true, 3) => self.store::<L, 3>(level, machine, exec, window),
            (true, _) => self.store::<L, 4>(level, machine, exec, window),
        }
    }

    #[inline(always)]
    fn load<L: Level, const D: usize>(
        &self,
        level: L,
        machine: &mut Machine,
        exec: u64,
        window: &mut Bytes,
    ) -> Result<bool, Fault> {
        let Bytes { bytes, words } = window;
        let Some(at) = self.addresses(machine, exec) else {
            return Ok(false);
        };
        let (mut hold, mut index) = (Aligned::ZEROS, Aligned::ZEROS);
        let index = &mut index.0;
        let active = spread(exec, &mut hold.0);
        let (lane, last) = ends(exec);
        if are_neighbours::<L, D>(level, at.lanes, active, lane) {
            let (start, length) = (at.lanes[lane], 4 * D * (last - lane + 1));
            let Some(first) = at.base.checked_add(start.into()) else {
                return Ok(false);
            };
            let ends = first.checked_add(length as u64).is_none();
            if !is_near::<D>(length as u64, exec) || ends {
                return Ok(false);
            }
            if !self.is_memory(machine, first, length as u64) {
                return Ok(false);
            }
            let window = &mut bytes[4 * D * lane..][..length];
            machine.memory.read(first, window)?;
            self.take::<L, D>(level, machine.wave, exec, bytes);
            return Ok(true);
        }
        let (low, high) = bounds(at.lanes, active);
        let length = u64::from(high - low) + 4 * D as u64;
        let Some(first) = at.base.checked_add(low.into()) else {
            return Ok(false);
        };
        if first.checked_add(length).is_none() || !self.is_memory(machine, first, length) {
            return Ok(false);
        }
        let mut odd = 0;
        for i in 0..LANES {
            // Idle lanes' are from the beginning.
            index[i] = at.lanes[i].wrapping_sub(low) & active[i];
            odd |= index[i];
        }
        if !is_near::<D>(length, exec) {
            return self.load_runs::<L, D>(level, machine, (exec, first, &*index), bytes);
        }
        let length = length as usize;
        machine.memory.read(first, &mut bytes[..length])?;
        if odd % 4 != 0 {
            for d in 0..D {
                let mut result = Aligned::ZEROS;
                let result = &mut result.0;
                for i in 0..LANES {
                    let at = index[i] as usize + 4 * d;
                    result[i] = dword(&bytes[at..at + 4]);
                }
                put(level, self.data.of(machine.wave, d), result, exec);
            }
            return Ok(true);
        }
        // What lies behind the window in the last part is of no lane.
        let table = &mut words[..length.div_ceil(4 * TABLE)];
        for part in 0..table.len() {
            for i in 0..TABLE {
                table[part][i] = word(bytes, 4 * (TABLE * part + i));
            }
        }
        for i in 0..LANES {
            index[i] /= 4;
        }
        for d in 0..D {
            let mut result = Aligned::ZEROS;
            let result = &mut result.0;
            level.look_up(table, index, result);
            put(level, self.data.of(machine.wave, d), result, exec);
            for i in 0..LANES {
                index[i] = index[i].wrapping_add(1);
            }
        }
        Ok(true)
    }

    /// Loads lanes whose offsets from `base` are far apart: one access for each run of neighbours,
    /// as lanes that share a row of a tile are.
    #[inline(always)]
    fn load_runs<L: Level, const D: usize>(
        &self,
        level: L,
        machine: &mut Machine,
        (exec, base, offsets): (u64, u64, &Vgpr),
        bytes: &mut [u8; WINDOW],
    ) -> Result<bool, Fault> {
        let mut next = Aligned::ZEROS;
        let next = &mut next.0;
        next[..LANES - 1].copy_from_slice(&offsets[1..]);
        let mut follows = Aligned::ZEROS;
        let follows = &mut follows.0;
        for i in 0..LANES {
            let is_next = next[i].wrapping_sub(offsets[i]) == 4 * D as u32;
            follows[i] = if is_next & (next[i] > offsets[i]) {
                u32::MAX
            } else {
                0
            };
        }
        // Lanes whose next one goes on where they end.
        let follows = level.mask(follows) & exec & exec >> 1;
        let mut left = exec;
        while left != 0 {
            let first = left.trailing_zeros() as usize % LANES;
            let count = (follows >> first).trailing_ones() as usize + 1;
            let address = base.wrapping_add(offsets[first].into());
            machine
                .memory
                .read(address, &mut bytes[4 * D * first..][..4 * D * count])?;
            left &= !(u64::MAX >> (LANES - count) << first);
        }
        self.take::<L, D>(level, machine.wave, exec, bytes);
        Ok(true)
    }

    /// What was read for the lanes, one after the other, to their registers.
    #[inline(always)]
    fn take<L: Level, const D: usize>(
        &self,
        level: L,
        wave: &mut Wave,
        exec: u64,
        bytes: &[u8; WINDOW],
    ) {
        for d in 0..D {
            let mut result = Aligned::ZEROS;
            let result = &mut result.0;
            for i in 0..LANES {
                result[i] = word(bytes, 4 * (D * i + d));
            }
            put(level, self.data.of(wave, d), result, exec);
        }
    }

    #[inline(always)]
    fn store<L: Level, const D: usize>(
        &self,
        level: L,
        machine: &mut Machine,
        exec: u64,
        window: &mut Bytes,
    ) -> Result<bool, Fault> {
        let Bytes { bytes, words } = window;
        let words = words.as_flattened_mut();
        // One run of lanes, and not the rest of a store that was interrupted.
        let first = exec.trailing_zeros() as usize % LANES;
        let count = exec.count_ones() as usize;
        if (exec >> first).trailing_ones() as usize != count || machine.wave.replay() & exec != 0 {
            return Ok(false);
        }
        let Some(at) = self.addresses(machine, exec) else {
            return Ok(false);
        };
        let start = at.lanes[first];
        let length = 4 * D * count;
        let mut hold = Aligned::ZEROS;
        let active = spread(exec, &mut hold.0);
        let mut differs = Aligned::ZEROS;
        let differs = &mut differs.0;
        let zero = start.wrapping_sub((4 * D * first) as u32);
        for i in 0..LANES {
            let expected = zero.wrapping_add((4 * D * i) as u32);
            differs[i] = (at.lanes[i] ^ expected) & active[i];
        }
        let address = at.base.checked_add(start.into());
        let ends = start.checked_add(length as u32).is_some();
        let Some(address) = address.filter(|it| ends && it.checked_add(length as u64).is_some())
        else {
            return Ok(false);
        };
        if level.any(differs) || !self.is_memory(machine, address, length as u64) {
            return Ok(false);
        }
        if D == 1 {
            put_words(bytes, self.data.of(machine.wave, 0));
        } else {
            for d in 0..D {
                let register: &Vgpr = self.data.of(machine.wave, d);
                for i in 0..LANES {
                    words[D * i + d] = register[i];
                }
            }
            put_words(bytes, &words[..LANES * D]);
        }
        let from = 4 * D * first;
        let done = machine.memory.write(address, &bytes[from..from + length]);
        // All lanes are left if it is refused.
        machine.wave.set_replay(if done.is_ok() { 0 } else { exec });
        done.map(|()| true)
    }

    /// Scratch, whose dwords lie row by row: one access for each.
    #[inline(always)]
    fn rows<L: Level>(
        &self,
        level: L,
        machine: &mut Machine,
        (exec, scalar): (u64, Option<u8>),
        (bytes, result): (&mut [u8; WINDOW], &mut [Vgpr; 9]),
    ) -> Result<bool, Fault> {
        let own = scalar.map_or(0, |code| machine.wave.scalar[usize::from(code & 0x7f)]);
        let offset = u64::from(own.wrapping_add_signed(self.offset));
        let whole = exec == u64::MAX && machine.wave.replay() == 0;
        let (first, last) = ends(exec);
        let length = 4 * (last - first + 1);
        if offset % 4 != 0 || self.store && !whole || !is_near::<1>(length as u64, exec) {
            return Ok(false);
        }
        // The rows' bytes, all below 2^64.
        let row_length = 4 * LANES as u64;
        let Some(start) = (offset / 4 * row_length)
            .checked_add(machine.wave.scratch_base())
            .filter(|start| start.checked_add(4 * row_length).is_some())
        else {
            return Ok(false);
        };
        for (index, result) in result.iter_mut().enumerate().take(self.dwords.into()) {
            let row = start + row_length * index as u64;
            if !self.store {
                let address = row + 4 * first as u64;
                machine
                    .memory
                    .read(address, &mut bytes[4 * first..][..length])?;
                for i in 0..LANES {
                    result[i] = word(bytes, 4 * i);
                }
                continue;
            }
            let register: &Vgpr = self.data.of(machine.wave, index);
            let row_bytes = &mut bytes[..4 * LANES];
            for i in 0..LANES {
                row_bytes[4 * i..][..4].copy_from_slice(&register[i].to_le_bytes());
            }
            if let Err(fault) = machine.memory.write(row, row_bytes) {
                // The lanes that are done with this dword have others to come.
                machine.wave.set_replay(exec);
                return Err(fault);
            }
        }
        if self.store {
            machine.wave.set_replay(0);
            return Ok(true);
        }
        for (index, result) in result.iter().enumerate().take(self.dwords.into()) {
            put(level, self.data.of(machine.wave, index), result, exec);
        }
        Ok(true)
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
                let mut hold = Aligned::ZEROS;
                let active = spread(exec, &mut hold.0);
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
        let records = u64::from(words[2]);
        let (swizzles, adds_thread) = (words[1] >> 31 != 0, words[3] >> 23 & 1 != 0);
        let offset = i64::from(self.offset) as u64;
        let mut hold = Aligned::ZEROS;
        let (_, high) = bounds(lanes, spread(exec, &mut hold.0));
        // SOFFSET is not checked, and without an index NUM_RECORDS counts bytes.
        let end = u64::from(high)
            .wrapping_add(offset)
            .wrapping_add(4 * u64::from(self.dwords));
        let inside = end <= records && self.offset >= 0;
        (!swizzles && !adds_thread && inside).then_some(Addresses {
            base: base.wrapping_add(offset).wrapping_add(soffset.into()),
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

/// Whether the active lanes' addresses are neighbours as the lanes are, `first` being the first.
#[inline(always)]
fn are_neighbours<L: Level, const D: usize>(
    level: L,
    lanes: &Vgpr,
    active: &Vgpr,
    first: usize,
) -> bool {
    let start = lanes[first].wrapping_sub((4 * D * first) as u32);
    let mut differs = Aligned::ZEROS;
    let differs = &mut differs.0;
    for i in 0..LANES {
        differs[i] = (lanes[i] ^ start.wrapping_add((4 * D * i) as u32)) & active[i];
    }
    // None beyond 32 bits.
    !level.any(differs) && lanes[first].checked_add((4 * D * LANES) as u32).is_some()
}

/// Whether one access of this length may serve the active lanes.
#[inline(always)]
fn is_near<const D: usize>(length: u64, exec: u64) -> bool {
    let asked = u64::from(exec.count_ones()) * 4 * D as u64;
    length <= (SPARSE * asked).min(WINDOW as u64)
}

#[inline(always)]
fn word(bytes: &[u8; WINDOW], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn dword(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Dwords as bytes.
#[inline(always)]
fn put_words(bytes: &mut [u8; WINDOW], words: &[u32]) {
    for i in 0..words.len().min(WINDOW / 4) {
        let word = words[i].to_le_bytes();
        bytes[4 * i] = word[0];
        bytes[4 * i + 1] = word[1];
        bytes[4 * i + 2] = word[2];
        bytes[4 * i + 3] = word[3];
    }
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
