// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms of the LDS's reads and writes of whole dwords. If a lane's are not all inside, or
//! its address and offset wrap around, the reference does it.

use super::operands::{ends, put, spread};
use super::{Aligned, Reg};
use crate::exec::Machine;
use crate::inst::{DsInst, Dst};
use crate::op::Ds;
use crate::wave::{Vgpr, LANES};
use host_simd::{dwords, Level};

/// Lanes that are looked at together.
const GROUP: usize = 16;

/// A read or a write at one or two offsets from each lane's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    address: u8,
    store: bool,
    /// Dwords at each offset.
    dwords: u8,
    /// Offsets, and registers of what is there.
    parts: [(u32, Reg); 2],
    /// How many offsets.
    count: u8,
}

impl Share {
    /// The quick form of an instruction, if it has one.
    pub(super) fn of(ds: &DsInst) -> Option<Share> {
        use Ds::*;
        // Dwords, the unit of two offsets (0: there is one), and whether it writes.
        let (dwords, unit, store) = match ds.op {
            ds_read_b32 => (1, 0, false),
            ds_read_b64 => (2, 0, false),
            ds_read_b96 => (3, 0, false),
            ds_read_b128 => (4, 0, false),
            ds_write_b32 => (1, 0, true),
            ds_write_b64 => (2, 0, true),
            ds_write_b96 => (3, 0, true),
            ds_write_b128 => (4, 0, true),
            ds_read2_b32 => (1, 4, false),
            ds_read2st64_b32 => (1, 256, false),
            ds_read2_b64 => (2, 8, false),
            ds_read2st64_b64 => (2, 512, false),
            ds_write2_b32 => (1, 4, true),
            ds_write2st64_b32 => (1, 256, true),
            ds_write2_b64 => (2, 8, true),
            ds_write2st64_b64 => (2, 512, true),
            _ => return None,
        };
        if ds.gds {
            return None;
        }
        let data = match store {
            true => register(ds.data0, 0)?,
            false => register(ds.dst, 0)?,
        };
        let parts = match (unit, store) {
            (0, _) => [(ds.offset(), data); 2],
            (_, true) => [
                (u32::from(ds.offset0) * unit, data),
                (u32::from(ds.offset1) * unit, register(ds.data1, 0)?),
            ],
            (_, false) => [
                (u32::from(ds.offset0) * unit, data),
                (u32::from(ds.offset1) * unit, register(ds.dst, dwords)?),
            ],
        };
        Some(Share {
            address: ds.addr,
            store,
            dwords,
            parts,
            count: if unit == 0 { 1 } else { 2 },
        })
    }

    /// Executes it. False: it has to go through the reference.
    #[inline(always)]
    pub(super) fn run<L: Level>(
        &self,
        level: L,
        machine: &mut Machine,
        room: &mut [Vgpr; 9],
    ) -> bool {
        match self.dwords {
            1 => self.run_dwords::<L, 1, 4>(level, machine, room),
            2 => self.run_dwords::<L, 2, 8>(level, machine, room),
            3 => self.run_dwords::<L, 3, 12>(level, machine, room),
            _ => self.run_dwords::<L, 4, 16>(level, machine, room),
        }
    }

    #[inline(always)]
    fn run_dwords<L: Level, const D: usize, const BYTES: usize>(
        &self,
        level: L,
        machine: &mut Machine,
        [addresses, next, hold, rows @ ..]: &mut [Vgpr; 9],
    ) -> bool {
        let exec = machine.wave.exec();
        let register = &machine.wave.vgpr[usize::from(self.address)];
        *addresses = *register;
        let active = spread(exec, hold);
        // Where the first lane's would be, if all lanes were active and side by side.
        let (first, last) = ends(exec);
        let start = addresses[first].wrapping_sub((BYTES * first) as u32);
        let mut differs = Aligned::ZEROS;
        let differs = &mut differs.0;
        for i in 0..LANES {
            differs[i] = (addresses[i] ^ start.wrapping_add((BYTES * i) as u32)) & active[i];
        }
        let is_run = !level.any(differs);
        let mut high = addresses[last] & active[last];
        if !is_run || high < addresses[first] & active[first] {
            for i in 0..LANES {
                high = high.max(addresses[i] & active[i]);
            }
        }
        let parts = &self.parts[..usize::from(self.count)];
        let size = machine.lds.len();
        let fits = |offset: u32| high as usize + offset as usize + BYTES <= size;
        if !parts.iter().all(|(offset, _)| fits(*offset)) {
            return false;
        }
        if self.store {
            let is_whole = is_run && exec == u64::MAX;
            self.write::<D, BYTES>(machine, addresses, exec, is_whole);
            return true;
        }
        let mut patterns = (0, 0);
        if !is_run {
            // Idle lanes read from the beginning.
            for i in 0..LANES {
                addresses[i] &= active[i];
            }
            // What was stored just now is not forwarded to loads that begin elsewhere.
            match exec {
                u64::MAX => next[..LANES - 1].copy_from_slice(&register[1..]),
                _ => next[..LANES - 1].copy_from_slice(&addresses[1..]),
            }
            patterns = Self::patterns::<L, BYTES>(level, addresses, next);
        }
        for (offset, data) in parts {
            let offset = *offset as usize;
            let run = start as usize + offset;
            if is_run && run + BYTES * LANES <= size {
                let found = &machine.lds[run..run + BYTES * LANES];
                for i in 0..LANES {
                    for d in 0..D {
                        rows[d][i] = word(found, BYTES * i + 4 * d);
                    }
                }
            } else {
                for i in 0..LANES {
                    addresses[i] &= active[i];
                }
                Self::collect::<D, BYTES>(machine.lds, offset, (addresses, patterns), rows);
            }
            for d in 0..D {
                put(level, data.of(machine.wave, d), &rows[d], exec);
            }
        }
        true
    }

    /// The lanes whose next one has the same address, and those whose next one's is their
    /// neighbour's: `next` has each lane's next.
    #[inline(always)]
    fn patterns<L: Level, const BYTES: usize>(
        level: L,
        addresses: &Vgpr,
        next: &Vgpr,
    ) -> (u64, u64) {
        let (mut same, mut neighbours) = (Aligned::ZEROS, Aligned::ZEROS);
        let (same, neighbours) = (&mut same.0, &mut neighbours.0);
        for i in 0..LANES {
            let found = next[i].wrapping_sub(addresses[i]);
            same[i] = if found == 0 { u32::MAX } else { 0 };
            neighbours[i] = if found == BYTES as u32 { u32::MAX } else { 0 };
        }
        (level.mask(same), level.mask(neighbours))
    }

    /// Reads from all lanes' addresses, which lie inside: groups of lanes at once that have the
    /// same one, or neighbouring ones, as those that share a row or a column of a tile do.
    #[inline(always)]
    fn collect<const D: usize, const BYTES: usize>(
        lds: &[u8],
        offset: usize,
        (addresses, (same, neighbours)): (&Vgpr, (u64, u64)),
        rows: &mut [Vgpr; 6],
    ) {
        for first in (0..LANES).step_by(GROUP) {
            let all = ((1 << (GROUP - 1)) - 1) << first;
            let at = addresses[first] as usize + offset;
            if same & all == all {
                let found = &lds[at..at + BYTES];
                for d in 0..D {
                    rows[d][first..first + GROUP].fill(word(found, 4 * d));
                }
            } else if neighbours & all == all {
                let found = &lds[at..at + BYTES * GROUP];
                if let (1, Some(found)) = (D, found.first_chunk()) {
                    rows[0][first..first + GROUP].copy_from_slice(&dwords(found));
                    continue;
                }
                for i in 0..GROUP {
                    for d in 0..D {
                        rows[d][first + i] = word(found, BYTES * i + 4 * d);
                    }
                }
            } else {
                for i in first..first + GROUP {
                    let at = addresses[i] as usize + offset;
                    let found = &lds[at..at + BYTES];
                    for d in 0..D {
                        rows[d][i] = word(found, 4 * d);
                    }
                }
            }
        }
    }

    /// Lane by lane, both offsets of one before the next.
    #[inline(always)]
    fn write<const D: usize, const BYTES: usize>(
        &self,
        machine: &mut Machine,
        addresses: &Vgpr,
        exec: u64,
        is_run: bool,
    ) {
        let [(first, data), (second, other)] = self.parts;
        if is_run && self.count == 1 {
            let first = addresses[0] as usize + first as usize;
            let to = &mut machine.lds[first..first + BYTES * LANES];
            let rows: [&Vgpr; D] = data.rows(machine.wave);
            for i in 0..LANES {
                for d in 0..D {
                    to[BYTES * i + 4 * d..][..4].copy_from_slice(&rows[d][i].to_le_bytes());
                }
            }
            return;
        }
        let wave = &*machine.wave;
        let rows: [[&Vgpr; D]; 2] = [data.rows(wave), other.rows(wave)];
        for i in 0..LANES {
            if exec >> i & 1 == 0 {
                continue;
            }
            for (offset, rows) in [first, second].iter().zip(&rows).take(self.count.into()) {
                let at = addresses[i] as usize + *offset as usize;
                let to = &mut machine.lds[at..at + BYTES];
                for d in 0..D {
                    to[4 * d..][..4].copy_from_slice(&rows[d][i].to_le_bytes());
                }
            }
        }
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn register(dst: Dst, index: u8) -> Option<Reg> {
    match dst {
        Dst::Vgpr(number) => Some(Reg::Vgpr(number.checked_add(index)?)),
        Dst::Acc(number) => Some(Reg::Acc(number.checked_add(index)?)),
        Dst::None | Dst::Scalar(_) => None,
    }
}
