// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Vector memory: FLAT, GLOBAL, SCRATCH and MUBUF. Lanes that lie side by side go to memory as one
//! access.

use super::lds::{high_half, lanes, low_half};
use super::places::{Place, Places, Run, Window, WINDOW};
use super::{atomic, unsupported, Done, Machine, Stop};
use crate::inst::{Dst, Inst, MemInst};
use crate::memory::{CacheControl, Fault, Scope};
use crate::op::mem::{Part, Segment};
use crate::op::{AtomicOp, MemOp};
use crate::wave::{Vgpr, LANES};
use crate::Target;

impl Machine<'_> {
    pub(super) fn vector_memory(&mut self, inst: &Inst, mem: &MemInst) -> Done {
        let scope = Scope::of(mem.sc0, mem.sc1);
        if mem.op == MemOp::Cache {
            self.memory.control(match mem.name {
                "wbl2" => CacheControl::WriteBack(scope),
                "inv" => CacheControl::Invalidate(scope),
                _ => CacheControl::Invalidate(Scope::Group),
            });
            return Ok(());
        }
        if scope == Scope::Wave {
            return self.vector_access(inst, mem);
        }
        self.memory.set_scope(scope);
        let done = self.vector_access(inst, mem);
        self.memory.set_scope(Scope::Wave);
        done
    }

    fn vector_access(&mut self, inst: &Inst, mem: &MemInst) -> Done {
        let places = self.places(mem);
        match mem.op {
            _ if mem.lds => self.load_to_lds(inst, mem, &places),
            MemOp::Load(dwords) => self.load(mem, &places, dwords.into()),
            MemOp::Store(dwords) => self.store(mem, &places, dwords.into()),
            MemOp::LoadNarrow {
                bytes,
                signed,
                part,
            } => self.load_narrow(mem, &places, bytes.into(), signed, part),
            MemOp::StoreNarrow { bytes, part } => {
                self.store_narrow(mem, &places, bytes.into(), part)
            }
            MemOp::Atomic(op, dwords) => self.atomic(mem, &places, op, dwords),
            MemOp::Format(..) => self.typed(inst, mem, &places),
            MemOp::LoadLds(..) | MemOp::StoreLds | MemOp::Cache => Err(unsupported(inst)),
        }
    }

    /// Where the lanes find their data.
    #[inline(always)]
    pub(super) fn places(&self, mem: &MemInst) -> Places {
        match mem.segment {
            Segment::Global => Places::Memory(self.global_addresses(mem)),
            Segment::Flat => Places::Mixed(self.flat_places(mem)),
            Segment::Scratch => Places::Mixed(self.scratch_places(mem)),
            Segment::Buffer | Segment::Typed => Places::Mixed(self.buffer_places(mem)),
        }
    }

    pub(super) fn vaddr(&self, mem: &MemInst, index: usize) -> &Vgpr {
        &self.wave.vgpr[usize::from(mem.vaddr.unwrap_or(0)) + index]
    }

    fn vaddr64(&self, mem: &MemInst, lane: usize) -> u64 {
        u64::from(self.vaddr(mem, 0)[lane]) | u64::from(self.vaddr(mem, 1)[lane]) << 32
    }

    #[inline(always)]
    fn global_addresses(&self, mem: &MemInst) -> [u64; LANES] {
        let offset = i64::from(mem.offset) as u64;
        let low = self.vaddr(mem, 0);
        match mem.saddr {
            Some(saddr) => {
                let base = self
                    .wave
                    .scalar64(usize::from(saddr & 0x7e))
                    .wrapping_add(offset);
                low.map(|lane| base.wrapping_add(lane.into()))
            }
            None => {
                let high = self.vaddr(mem, 1);
                std::array::from_fn(|lane| {
                    let base = u64::from(low[lane]) | u64::from(high[lane]) << 32;
                    base.wrapping_add(offset)
                })
            }
        }
    }

    /// Addresses in the shared or the private window mean LDS or scratch.
    #[inline(always)]
    fn flat_places(&self, mem: &MemInst) -> [Place; LANES] {
        let (shared, private) = (self.apertures.shared, self.apertures.private);
        let inside = |address: u64, base: u64| base != 0 && address >> 32 == base >> 32;
        std::array::from_fn(|lane| {
            let address = self
                .vaddr64(mem, lane)
                .wrapping_add_signed(mem.offset.into());
            if inside(address, shared) {
                Place::Lds(address - shared)
            } else if inside(address, private) {
                Place::Scratch(address - private)
            } else {
                Place::Memory(address)
            }
        })
    }

    #[inline(always)]
    fn scratch_places(&self, mem: &MemInst) -> [Place; LANES] {
        let saddr = mem
            .saddr
            .map_or(0, |saddr| self.wave.scalar[usize::from(saddr & 0x7f)]);
        let base = saddr.wrapping_add_signed(mem.offset);
        std::array::from_fn(|lane| {
            let own = if mem.vaddr.is_some() {
                self.vaddr(mem, 0)[lane]
            } else {
                0
            };
            Place::Scratch(base.wrapping_add(own).into())
        })
    }

    /// Where byte `offset` of a lane's scratch lies: dwords of the lanes are interleaved.
    pub(super) fn scratch_address(&self, offset: u64, lane: usize) -> u64 {
        let swizzled = offset / 4 * 4 * LANES as u64 + 4 * lane as u64 + offset % 4;
        self.wave.scratch_base().wrapping_add(swizzled)
    }

    pub(super) fn read(
        &mut self,
        place: Place,
        lane: usize,
        bytes: &mut [u8],
    ) -> Result<(), Fault> {
        match place {
            Place::Memory(address) => self.memory.read(address, bytes),
            Place::Lds(address) => {
                self.lds_bytes(address, bytes);
                Ok(())
            }
            Place::Scratch(offset) => {
                let mut offset = offset;
                for part in scratch_parts(bytes, offset) {
                    let address = self.scratch_address(offset, lane);
                    offset += part.len() as u64;
                    self.memory.read(address, part)?;
                }
                Ok(())
            }
            Place::Part(address, dwords) => {
                let (inside, outside) = parted(bytes, dwords);
                outside.fill(0);
                self.memory.read(address, inside)
            }
            Place::Nowhere => {
                bytes.fill(0);
                Ok(())
            }
        }
    }

    pub(super) fn write(
        &mut self,
        place: Place,
        lane: usize,
        bytes: &mut [u8],
    ) -> Result<(), Fault> {
        match place {
            Place::Memory(address) => self.memory.write(address, bytes),
            Place::Lds(address) => {
                self.lds_store(address, bytes);
                Ok(())
            }
            Place::Scratch(offset) => {
                let mut offset = offset;
                for part in scratch_parts(bytes, offset) {
                    let address = self.scratch_address(offset, lane);
                    offset += part.len() as u64;
                    self.memory.write(address, part)?;
                }
                Ok(())
            }
            Place::Part(address, dwords) => self.memory.write(address, parted(bytes, dwords).0),
            Place::Nowhere => Ok(()),
        }
    }

    fn load(&mut self, mem: &MemInst, places: &Places, dwords: usize) -> Done {
        match dwords {
            1 => self.load_dwords::<1, 4>(mem, places),
            2 => self.load_dwords::<2, 8>(mem, places),
            3 => self.load_dwords::<3, 12>(mem, places),
            _ => self.load_dwords::<4, 16>(mem, places),
        }
    }

    /// `BYTES` is 4 · `DWORDS`.
    fn load_dwords<const DWORDS: usize, const BYTES: usize>(
        &mut self,
        mem: &MemInst,
        places: &Places,
    ) -> Done {
        let exec = self.wave.exec();
        let mut result = [[0; LANES]; DWORDS];
        if let Some(addresses) = places.addresses(exec) {
            self.read_lanes::<DWORDS, BYTES>(&addresses, exec, &mut result)?;
        } else if let Some(offsets) = places.scratch(exec) {
            for (index, register) in result.iter_mut().enumerate() {
                let row = self.scratch_row(&offsets, index);
                self.read_lanes::<1, 4>(&row, exec, std::array::from_mut(register))?;
            }
        } else {
            for lane in lanes(exec) {
                let mut bytes = [0; BYTES];
                self.read(places.of(lane), lane, &mut bytes)?;
                spread(&mut result, lane, &bytes);
            }
        }
        for (index, register) in result.iter().enumerate() {
            self.put_data(mem.dst, index, register, exec);
        }
        Ok(())
    }

    /// Reads `BYTES` bytes for each active lane: with one access if they lie near enough, or with
    /// one for each run of lanes.
    fn read_lanes<const DWORDS: usize, const BYTES: usize>(
        &mut self,
        addresses: &[u64; LANES],
        exec: u64,
        result: &mut [Vgpr; DWORDS],
    ) -> Done {
        if exec == 0 {
            return Ok(());
        }
        let run = Run::first(addresses, exec, BYTES as u64);
        if run.rest(exec) == 0 {
            let mut block = [[0; BYTES]; LANES];
            self.memory
                .read(run.address, block[..run.count].as_flattened_mut())?;
            for (index, chunk) in block[..run.count].iter().enumerate() {
                spread(result, run.first + index, chunk);
            }
        } else if let Some(window) = Window::find(addresses, exec, BYTES as u64) {
            let mut block = [0; WINDOW];
            self.memory
                .read(window.address, &mut block[..window.length])?;
            for lane in lanes(exec) {
                let at = (addresses[lane] - window.address) as usize;
                let mut bytes = [0; BYTES];
                bytes.copy_from_slice(&block[at..at + BYTES]);
                spread(result, lane, &bytes);
            }
        } else {
            // As lanes that share a row of a tile do: each row is a run.
            let mut block = [[0; BYTES]; LANES];
            let mut left = exec;
            while left != 0 {
                let run = Run::first(addresses, left, BYTES as u64);
                let block = &mut block[..run.count];
                self.memory.read(run.address, block.as_flattened_mut())?;
                for (index, chunk) in block.iter().enumerate() {
                    spread(result, run.first + index, chunk);
                }
                left = run.rest(left);
            }
        }
        Ok(())
    }

    /// Where dword `index` after each lane's scratch offset lies.
    fn scratch_row(&self, offsets: &[u64; LANES], index: usize) -> [u64; LANES] {
        std::array::from_fn(|lane| self.scratch_address(offsets[lane] + 4 * index as u64, lane))
    }

    fn store(&mut self, mem: &MemInst, places: &Places, dwords: usize) -> Done {
        let exec = self.lanes_left();
        let size = 4 * dwords;
        let mut registers = [[0; LANES]; 4];
        for (index, register) in registers.iter_mut().enumerate().take(dwords) {
            *register = self.data_register(mem.data, index);
        }
        let registers = &registers[..dwords];
        if let Some(addresses) = places.addresses(exec) {
            return self.scatter(&addresses, exec, size, |lane, chunk| {
                collect(registers, lane, chunk);
            });
        }
        if let Some(offsets) = places.scratch(exec) {
            for (index, register) in registers.iter().enumerate() {
                let row = self.scratch_row(&offsets, index);
                let done = self.scatter(&row, exec, 4, |lane, chunk| {
                    chunk.copy_from_slice(&register[lane].to_le_bytes());
                });
                if done.is_err() {
                    // The lanes that are done with this dword have others to come.
                    self.wave.set_replay(exec);
                    return done;
                }
            }
            return Ok(());
        }
        let mut block = [0; 16];
        for lane in lanes(exec) {
            collect(registers, lane, &mut block[..size]);
            let written = self.write(places.of(lane), lane, &mut block[..size]);
            self.unless_refused(written, exec & !0 << lane)?;
        }
        self.wave.set_replay(0);
        Ok(())
    }

    /// Register `index` of an operand.
    fn data_register(&self, data: Dst, index: usize) -> Vgpr {
        match data {
            Dst::Vgpr(number) => self.wave.vgpr[usize::from(number) + index],
            Dst::Acc(number) => self.wave.acc[usize::from(number) + index],
            Dst::None | Dst::Scalar(_) => [0; LANES],
        }
    }

    /// Writes `size` bytes, which `fill` makes, for each active lane, with one access for each run
    /// of lanes.
    #[inline(always)]
    fn scatter(
        &mut self,
        addresses: &[u64; LANES],
        exec: u64,
        size: usize,
        fill: impl Fn(usize, &mut [u8]),
    ) -> Done {
        let mut block = [0; WINDOW];
        let mut left = exec;
        while left != 0 {
            let run = Run::first(addresses, left, size as u64);
            let bytes = &mut block[..run.count * size];
            for (index, chunk) in bytes.chunks_exact_mut(size).enumerate() {
                fill(run.first + index, chunk);
            }
            let written = self.memory.write(run.address, bytes);
            self.unless_refused(written, left)?;
            left = run.rest(left);
        }
        self.wave.set_replay(0);
        Ok(())
    }

    fn load_narrow(
        &mut self,
        mem: &MemInst,
        places: &Places,
        bytes: usize,
        signed: bool,
        part: Part,
    ) -> Done {
        let exec = self.wave.exec();
        let mut values = [0; LANES];
        let mut block = [0; WINDOW];
        let addresses = places.addresses(exec);
        let window = addresses.and_then(|them| Window::find(&them, exec, bytes as u64));
        if let (Some(addresses), Some(window)) = (addresses, window) {
            self.memory
                .read(window.address, &mut block[..window.length])?;
            for lane in lanes(exec) {
                let at = (addresses[lane] - window.address) as usize;
                values[lane] = extend(&block[at..at + bytes], signed);
            }
        } else {
            for lane in lanes(exec) {
                self.read(places.of(lane), lane, &mut block[..bytes])?;
                values[lane] = extend(&block[..bytes], signed);
            }
        }
        let result = match part {
            Part::Whole => values,
            Part::Low => values.map(low_half),
            Part::High => values.map(high_half),
        };
        self.put_data(mem.dst, 0, &result, exec);
        Ok(())
    }

    fn store_narrow(&mut self, mem: &MemInst, places: &Places, bytes: usize, part: Part) -> Done {
        let exec = self.lanes_left();
        let shift = if part == Part::High { 16 } else { 0 };
        if let Some(addresses) = places.addresses(exec) {
            let register = self.data_register(mem.data, 0);
            return self.scatter(&addresses, exec, bytes, |lane, chunk| {
                let value = register[lane] >> shift;
                chunk.copy_from_slice(&value.to_le_bytes()[..bytes]);
            });
        }
        for lane in lanes(exec) {
            let mut value = (self.data(mem.data, 0, lane) >> shift).to_le_bytes();
            let written = self.write(places.of(lane), lane, &mut value[..bytes]);
            self.unless_refused(written, exec & !0 << lane)?;
        }
        self.wave.set_replay(0);
        Ok(())
    }

    /// The lanes of a store or an atomic: those that have not had their turn, if memory refused it
    /// in the middle and the instruction is repeated (XNACK).
    fn lanes_left(&self) -> u64 {
        let exec = self.wave.exec();
        match self.wave.replay() & exec {
            0 => exec,
            left => left,
        }
    }

    /// Keeps in mind which lanes are left if memory refuses one.
    fn unless_refused<T>(&mut self, done: Result<T, Fault>, left: u64) -> Result<T, Stop> {
        if done.is_err() {
            self.wave.set_replay(left);
        }
        Ok(done?)
    }

    fn atomic(&mut self, mem: &MemInst, places: &Places, op: AtomicOp, dwords: u8) -> Done {
        let exec = self.lanes_left();
        check_alignment(places, exec, 4 * u64::from(dwords))?;
        let mut result = [[0; LANES]; 2];
        let wide = dwords == 2;
        let second = usize::from(dwords);
        let mut refused = Ok(());
        let mut left = exec;
        let exceeds = atomic::exceeds_pcie(op, self.target, mem.sc1);
        for lane in lanes(exec) {
            let dword = |index| u64::from(self.data(mem.data, index, lane));
            let operand = |index| dword(index) | if wide { dword(index + 1) << 32 } else { 0 };
            let compared = if op == AtomicOp::CmpSwap {
                operand(second)
            } else {
                0
            };
            let operands = [operand(0), compared];
            let place = places.of(lane);
            let is_done = match place {
                Place::Memory(address) if exceeds => self.memory.goes_beyond_pcie(address),
                _ => Ok(true),
            };
            let old = match is_done {
                Ok(true) => self.atomic_lane(place, lane, wide, op, operands),
                Ok(false) => Ok(0),
                Err(fault) => Err(fault),
            };
            match old {
                Ok(old) => {
                    result[0][lane] = old as u32;
                    result[1][lane] = (old >> 32) as u32;
                    left &= !(1 << lane);
                }
                Err(fault) => {
                    refused = Err(fault);
                    break;
                }
            }
        }
        for (index, register) in result.iter().enumerate().take(dwords.into()) {
            self.put_data(mem.dst, index, register, exec & !left);
        }
        self.wave.set_replay(left);
        Ok(refused?)
    }

    fn atomic_lane(
        &mut self,
        place: Place,
        lane: usize,
        wide: bool,
        op: AtomicOp,
        [data, second]: [u64; 2],
    ) -> Result<u64, Fault> {
        let floats = match place {
            Place::Lds(_) => atomic::in_lds(self.wave.mode),
            _ => atomic::in_memory(self.target),
        };
        let mut narrow_update =
            |old: u32| atomic::apply32(op, floats, old, data as u32, second as u32);
        let mut wide_update = |old: u64| atomic::apply64(op, floats, old, data, second);
        let address = match place {
            Place::Memory(address) => address,
            // A lane's scratch is its own, and LDS belongs to the work-group, of which one wave
            // runs at a time.
            _ => {
                let mut bytes = [0; 8];
                let bytes = &mut bytes[..if wide { 8 } else { 4 }];
                self.read(place, lane, bytes)?;
                let old = bytes
                    .iter()
                    .rev()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte));
                let new = if wide {
                    wide_update(old)
                } else {
                    narrow_update(old as u32).into()
                };
                bytes.copy_from_slice(&new.to_le_bytes()[..bytes.len()]);
                self.write(place, lane, bytes)?;
                return Ok(old);
            }
        };
        match wide {
            true => self.memory.update64(address, &mut wide_update),
            false => self
                .memory
                .update32(address, &mut narrow_update)
                .map(u64::from),
        }
    }

    /// Loads whose data goes to LDS, lane after lane, from M0's address on, which the instruction's
    /// signed offset moves as it moves memory's. Lanes whose place is not in the work-group's LDS
    /// read nothing (the ISA guide, 9.1.9.1: "Set the active-mask to limit buffer reads to those
    /// threads that return data to a legal LDS location").
    fn load_to_lds(&mut self, inst: &Inst, mem: &MemInst, places: &Places) -> Done {
        let (bytes, signed) = match mem.op {
            MemOp::LoadLds(bytes, signed) => (usize::from(bytes), signed),
            MemOp::Load(1) => (4, false),
            MemOp::Load(dwords @ 3..=4) if self.target == Target::Gfx950 => {
                (4 * usize::from(dwords), false)
            }
            MemOp::LoadNarrow { bytes, signed, .. } => (usize::from(bytes), signed),
            _ => return Err(unsupported(inst)),
        };
        // As many bits as an address in LDS has.
        let mask = (self.target.lds_bytes().next_power_of_two() - 1) & !3;
        let base = i64::from(self.wave.m0() & mask) + i64::from(mem.offset);
        // Three dwords have the room of four.
        let room = bytes.max(4).next_power_of_two();
        for lane in lanes(self.wave.exec()) {
            let Ok(to) = u64::try_from(base + (room * lane) as i64) else {
                continue;
            };
            if to + bytes.max(4) as u64 > self.lds.len() as u64 {
                continue;
            }
            let mut data = [0; 16];
            self.read(places.of(lane), lane, &mut data[..bytes])?;
            if bytes < 4 {
                let value = extend(&data[..bytes], signed);
                data[..4].copy_from_slice(&value.to_le_bytes());
            }
            self.lds_store(to, &data[..bytes.max(4)]);
        }
        Ok(())
    }
}

/// Atomics are at multiples of their size.
fn check_alignment(places: &Places, exec: u64, size: u64) -> Done {
    let misaligned = lanes(exec).find_map(|lane| match places.of(lane) {
        Place::Memory(address) => Some(address).filter(|address| address % size != 0),
        _ => None,
    });
    misaligned.map_or(Ok(()), |address| Err(Stop::Misaligned(address)))
}

/// A lane's dwords as bytes.
#[inline(always)]
fn collect(registers: &[Vgpr], lane: usize, bytes: &mut [u8]) {
    for (register, dword) in registers.iter().zip(bytes.chunks_exact_mut(4)) {
        dword.copy_from_slice(&register[lane].to_le_bytes());
    }
}

#[inline(always)]
fn spread<const DWORDS: usize, const BYTES: usize>(
    result: &mut [Vgpr; DWORDS],
    lane: usize,
    bytes: &[u8; BYTES],
) {
    for (register, dword) in result.iter_mut().zip(bytes.chunks_exact(4)) {
        register[lane] = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
    }
}

fn extend(bytes: &[u8], signed: bool) -> u32 {
    match (bytes, signed) {
        ([byte], true) => *byte as i8 as u32,
        ([byte], false) => (*byte).into(),
        ([low, high], true) => i16::from_le_bytes([*low, *high]) as u32,
        ([low, high], false) => u16::from_le_bytes([*low, *high]).into(),
        _ => 0,
    }
}

/// The first so many dwords, and what is behind them.
fn parted(bytes: &mut [u8], dwords: u8) -> (&mut [u8], &mut [u8]) {
    let inside = bytes.len().min(4 * usize::from(dwords));
    bytes.split_at_mut(inside)
}

/// The bytes cut where scratch dwords end.
fn scratch_parts(bytes: &mut [u8], offset: u64) -> impl Iterator<Item = &mut [u8]> {
    let mut rest = bytes;
    let mut room = 4 - (offset % 4) as usize;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let all = std::mem::take(&mut rest);
        let length = all.len().min(room);
        let (part, after) = all.split_at_mut(length);
        rest = after;
        room = 4;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_accesses_are_cut_at_dwords() {
        let mut bytes = [0; 7];
        let sizes: Vec<usize> = scratch_parts(&mut bytes, 3)
            .map(|part| part.len())
            .collect();
        assert_eq!(sizes, [1, 4, 2]);
    }
}
