// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms of the LDS's reads and writes of whole dwords. If a lane's are not all inside, the
//! reference does it.

use super::operands::{put, spread};
use super::Reg;
use crate::exec::Machine;
use crate::inst::{DsInst, Dst};
use crate::op::Ds;
use crate::wave::{Vgpr, LANES};

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
    pub(super) fn run(&self, machine: &mut Machine) -> bool {
        match self.dwords {
            1 => self.run_dwords::<1, 4>(machine),
            2 => self.run_dwords::<2, 8>(machine),
            3 => self.run_dwords::<3, 12>(machine),
            _ => self.run_dwords::<4, 16>(machine),
        }
    }

    #[inline(always)]
    fn run_dwords<const D: usize, const BYTES: usize>(&self, machine: &mut Machine) -> bool {
        let exec = machine.wave.exec();
        let addresses = machine.wave.vgpr[usize::from(self.address)];
        let mut hold = [0; LANES];
        let active = spread(exec, &mut hold);
        let mut high = 0;
        let mut differs = 0;
        for i in 0..LANES {
            high = high.max(addresses[i] & active[i]);
            differs |= addresses[i] ^ addresses[0].wrapping_add((BYTES * i) as u32);
        }
        let parts = &self.parts[..usize::from(self.count)];
        let size = machine.lds.len();
        let fits = |offset: u32| high as usize + offset as usize + BYTES <= size;
        if !parts.iter().all(|(offset, _)| fits(*offset)) {
            return false;
        }
        // All lanes side by side.
        let is_run = differs == 0 && exec == u64::MAX;
        if self.store {
            self.write::<D, BYTES>(machine, &addresses, exec, is_run);
            return true;
        }
        let mut results = [[[0; LANES]; D]; 2];
        for ((offset, _), results) in parts.iter().zip(&mut results) {
            let offset = *offset as usize;
            if is_run {
                let first = addresses[0] as usize + offset;
                let found = &machine.lds[first..first + BYTES * LANES];
                for i in 0..LANES {
                    for d in 0..D {
                        results[d][i] = word(found, BYTES * i + 4 * d);
                    }
                }
                continue;
            }
            for i in 0..LANES {
                // Idle lanes read from the beginning.
                let at = (addresses[i] & active[i]) as usize + offset;
                let found = &machine.lds[at..at + BYTES];
                for d in 0..D {
                    results[d][i] = word(found, 4 * d);
                }
            }
        }
        for ((_, data), results) in parts.iter().zip(&results) {
            for (d, result) in results.iter().enumerate() {
                put(data.of(machine.wave, d), result, exec);
            }
        }
        true
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
        let mut rows = [[[0; LANES]; D]; 2];
        for ((_, data), rows) in self.parts.iter().zip(&mut rows) {
            for (d, row) in rows.iter_mut().enumerate() {
                *row = *data.of(machine.wave, d);
            }
        }
        let [(first, _), (second, _)] = self.parts;
        if is_run && self.count == 1 {
            let first = addresses[0] as usize + first as usize;
            let to = &mut machine.lds[first..first + BYTES * LANES];
            for i in 0..LANES {
                for d in 0..D {
                    to[BYTES * i + 4 * d..][..4].copy_from_slice(&rows[0][d][i].to_le_bytes());
                }
            }
            return;
        }
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
