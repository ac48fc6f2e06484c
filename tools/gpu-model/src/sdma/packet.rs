// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SDMA packets: how long each is and what it does. Layouts: `amdgpu/vega10_sdma_pkt_open.h`.

use super::ring::{Ib, Ring};
use crate::inject::rule::FenceKind;
use crate::processor::atomic::Atomic;
use crate::processor::bus::{wide, Bus, Fault, Space, View};
use crate::processor::packet::{compare, field};
use crate::processor::stats::Stats;

/// Bytes that a copy or fill moves before it looks whether it is to stop.
const CHUNK: u64 = 1 << 20;

/// Opcodes (header 7:0), SDMA_OP_*.
mod op {
    pub const NOP: u32 = 0;
    pub const COPY: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const INDIRECT: u32 = 4;
    pub const FENCE: u32 = 5;
    pub const TRAP: u32 = 6;
    pub const POLL_REGMEM: u32 = 8;
    pub const COND_EXE: u32 = 9;
    pub const ATOMIC: u32 = 10;
    pub const CONST_FILL: u32 = 11;
    pub const PTEPDE: u32 = 12;
    pub const TIMESTAMP: u32 = 13;
    pub const SRBM_WRITE: u32 = 14;
    pub const PRE_EXE: u32 = 15;
    pub const DUMMY_TRAP: u32 = 16;
}

/// SDMA_SUBOP_COPY_LINEAR_SUB_WIND.
const SUB_WINDOW: u32 = 4;

/// What a packet came to.
pub enum Flow {
    /// Done.
    Next,
    /// Not yet; try again later.
    Wait,
    /// So many bytes of it are done; go on.
    Partly(u64),
    /// Done; skip this many dwords after it.
    Skip(u64),
    /// Go into an indirect buffer.
    Call(Ib),
}

/// Dwords of the packet that begins with `head` (its first dwords, as many as there are). None:
/// unknown packet.
pub fn dwords(head: &[u32]) -> Option<u64> {
    let header = *head.first()?;
    let sub = field(header, 8, 8);
    Some(match (header & 0xff, sub) {
        (op::NOP, _) => 1 + u64::from(field(header, 16, 14)),
        (op::COPY, 0) => {
            if field(header, 27, 1) != 0 {
                9
            } else {
                7
            }
        }
        (op::COPY, SUB_WINDOW) => 13,
        (op::WRITE, 0) => match head.get(3) {
            Some(count) => 5 + u64::from(field(*count, 0, 20)),
            None => 4,
        },
        (op::INDIRECT, _) => 6,
        (op::FENCE, _) => 4,
        (op::TRAP | op::DUMMY_TRAP, _) => 2,
        (op::POLL_REGMEM, 0) => 6,
        (op::POLL_REGMEM, 1) => 4,
        (op::COND_EXE, _) => 5,
        (op::ATOMIC, _) => 8,
        (op::CONST_FILL, 0) => 5,
        (op::PTEPDE, 0) => 10,
        (op::PTEPDE, 1) => 8,
        (op::TIMESTAMP, _) => 3,
        (op::SRBM_WRITE, _) => 3,
        (op::PRE_EXE, _) => 2,
        _ => return None,
    })
}

/// A packet at its execution.
pub struct Cx<'a> {
    /// The ring.
    pub ring: &'a Ring,
    /// The GPU.
    pub bus: &'a dyn Bus,
    /// Burndown.
    pub stats: &'a Stats,
    /// Whose memory.
    pub space: Space,
    /// Whose process.
    pub pasid: u16,
    /// Of the kernel's ring: may write registers and choose VMIDs.
    pub privileged: bool,
    /// Bytes that it moved in earlier slices.
    pub moved: u64,
}

impl Cx<'_> {
    fn view(&self) -> View<'_> {
        View {
            bus: self.bus,
            space: self.space,
        }
    }

    /// Executes a whole packet.
    pub fn execute(&self, p: &[u32]) -> Result<Flow, Fault> {
        match (p[0] & 0xff, field(p[0], 8, 8)) {
            (op::COPY, SUB_WINDOW) => return self.copy_window(p),
            (op::COPY, _) => return self.copy_linear(p),
            (op::CONST_FILL, _) => return self.fill(p),
            (op::WRITE, _) => self.view().write_dwords(wide(p[1], p[2]) & !3, &p[4..])?,
            (op::INDIRECT, _) => return Ok(self.indirect(p)),
            (op::FENCE, _) => {
                let (address, value) = (wide(p[1], p[2]) & !3, p[3].to_le_bytes());
                self.bus
                    .write_fence(FenceKind::Sdma, self.space, address, &value)?;
            }
            (op::TRAP, _) => self.ring.trap(self.space, self.pasid, p[1] & 0xfff_ffff),
            (op::POLL_REGMEM, 0) => return self.poll(p),
            (op::POLL_REGMEM, _) => {
                let value = self.bus.reg_read(0, p[1] >> 2);
                self.view().write32(wide(p[2], p[3]) & !3, value)?;
            }
            (op::COND_EXE, _) => {
                let condition = self.view().read32(wide(p[1], p[2]) & !3)?;
                let skips = condition != p[3];
                return Ok(if skips {
                    Flow::Skip(field(p[4], 0, 14).into())
                } else {
                    Flow::Next
                });
            }
            (op::ATOMIC, _) => return self.atomic(p),
            (op::PTEPDE, 0) => self.generate_entries(p)?,
            (op::PTEPDE, _) => self.copy_entries(p)?,
            (op::TIMESTAMP, 0) => self.stats.count("SDMA TIMESTAMP.SET"),
            (op::TIMESTAMP, _) => self
                .view()
                .write64(wide(p[1], p[2]) & !7, self.bus.realtime())?,
            (op::SRBM_WRITE, _) => self.write_register(p),
            // PRE_EXE: the next packets are for the engines that DEV_SEL names; there is one.
            _ => {}
        }
        Ok(Flow::Next)
    }

    /// COPY_LINEAR: count - 1 (30 bits on 4.4.2), parameters, source, destination (BROADCAST: two
    /// of them).
    fn copy_linear(&self, p: &[u32]) -> Result<Flow, Fault> {
        let total = u64::from(field(p[1], 0, 30)) + 1;
        let source = wide(p[3], p[4]);
        let destinations: Vec<u64> = p[5..]
            .chunks_exact(2)
            .map(|at| wide(at[0], at[1]))
            .collect();
        let count = CHUNK.min(total - self.moved.min(total));
        let mut bytes = vec![0; count as usize];
        self.bus
            .read(self.space, source.wrapping_add(self.moved), &mut bytes)?;
        for destination in destinations {
            self.bus
                .write(self.space, destination.wrapping_add(self.moved), &bytes)?;
        }
        Ok(self.progress(total, count))
    }

    fn progress(&self, total: u64, count: u64) -> Flow {
        let moved = self.moved + count;
        if moved >= total {
            Flow::Next
        } else {
            Flow::Partly(moved)
        }
    }

    /// CONST_FILL: destination, data, count - 1 in bytes; FILLSIZE 2 counts whole dwords.
    fn fill(&self, p: &[u32]) -> Result<Flow, Fault> {
        let count = u64::from(field(p[4], 0, 30));
        let total = if field(p[0], 30, 2) == 2 {
            (count & !3) + 4
        } else {
            count + 1
        };
        let destination = wide(p[1], p[2]);
        let chunk = CHUNK.min(total - self.moved.min(total));
        if p[3] == 0 {
            self.bus
                .zero(self.space, destination.wrapping_add(self.moved), chunk)?;
            return Ok(self.progress(total, chunk));
        }
        let mut bytes = p[3].to_le_bytes().repeat(chunk.div_ceil(4) as usize);
        bytes.truncate(chunk as usize);
        self.bus
            .write(self.space, destination.wrapping_add(self.moved), &bytes)?;
        Ok(self.progress(total, chunk))
    }

    /// COPY_LINEAR_SUB_WIND: a box out of a pitched array into another; a row at a time.
    fn copy_window(&self, p: &[u32]) -> Result<Flow, Fault> {
        let element = 1u64 << field(p[0], 29, 3);
        let side = |address: u64, xy: u32, z_pitch: u32, slice: u32| {
            let pitch = u64::from(field(z_pitch, 13, 19)) + 1;
            let slice = u64::from(field(slice, 0, 28)) + 1;
            let (x, y, z) = (field(xy, 0, 14), field(xy, 16, 14), field(z_pitch, 0, 11));
            let origin = u64::from(z) * slice + u64::from(y) * pitch + u64::from(x);
            (
                address.wrapping_add(origin * element),
                pitch * element,
                slice * element,
            )
        };
        let (from, from_pitch, from_slice) = side(wide(p[1], p[2]), p[3], p[4], p[5]);
        let (to, to_pitch, to_slice) = side(wide(p[6], p[7]), p[8], p[9], p[10]);
        let width = (u64::from(field(p[11], 0, 14)) + 1) * element;
        let rows = u64::from(field(p[11], 16, 14)) + 1;
        let total = rows * (u64::from(field(p[12], 0, 11)) + 1);
        let mut bytes = vec![0; width as usize];
        let first = self.moved;
        let last = total.min(first + (CHUNK / width).max(1));
        for row in first..last {
            let (y, z) = (row % rows, row / rows);
            self.bus.read(
                self.space,
                from.wrapping_add(y * from_pitch + z * from_slice),
                &mut bytes,
            )?;
            self.bus.write(
                self.space,
                to.wrapping_add(y * to_pitch + z * to_slice),
                &bytes,
            )?;
        }
        Ok(self.progress(total, last - first))
    }

    /// INDIRECT: VMID 19:16, base, size. The kernel's rings choose the VMID, a user's has its own.
    fn indirect(&self, p: &[u32]) -> Flow {
        let vmid = field(p[0], 16, 4) as u8;
        let space = if self.privileged {
            Space { vmid, ..self.space }
        } else {
            self.space
        };
        Flow::Call(Ib {
            space,
            address: wide(p[1], p[2]) & !0x1f,
            dwords: field(p[3], 0, 20).into(),
            at: 0,
        })
    }

    /// POLL_REGMEM: HDP_FLUSH 26, FUNC 30:28, MEM_POLL 31; address, reference, mask.
    fn poll(&self, p: &[u32]) -> Result<Flow, Fault> {
        let value = if field(p[0], 31, 1) != 0 {
            self.view().read32(wide(p[1], p[2]) & !3)?
        } else if field(p[0], 26, 1) != 0 {
            // The first register says done, the second one takes the request.
            self.bus.reg_write(0, p[2] >> 2, p[3]);
            self.bus.reg_read(0, p[1] >> 2)
        } else {
            self.bus.reg_read(0, p[1] >> 2)
        };
        let function = field(p[0], 28, 3);
        let holds = compare(function, (value & p[4]).into(), p[3].into());
        Ok(if holds { Flow::Next } else { Flow::Wait })
    }

    /// ATOMIC: LOOP 16, ATOMIC_OP 31:25; address, source, compare.
    fn atomic(&self, p: &[u32]) -> Result<Flow, Fault> {
        let atomic = Atomic {
            op: field(p[0], 25, 7),
            address: wide(p[1], p[2]),
            source: wide(p[3], p[4]),
            compare: wide(p[5], p[6]),
        };
        Ok(match atomic.execute(self.view())? {
            None => {
                self.stats.count("SDMA ATOMIC_OP");
                tracing::warn!(op = atomic.op, "SDMA atomic not modelled");
                Flow::Next
            }
            Some(old) if field(p[0], 16, 1) != 0 && old != atomic.compare => Flow::Wait,
            Some(_) => Flow::Next,
        })
    }

    /// PTEPDE_GEN: destination, mask, first value, increment, count - 1: writes (value + n *
    /// increment) | mask.
    fn generate_entries(&self, p: &[u32]) -> Result<(), Fault> {
        let (mask, value, increment) = (wide(p[3], p[4]), wide(p[5], p[6]), wide(p[7], p[8]));
        let count = u64::from(field(p[9], 0, 19)) + 1;
        let entry = |n: u64| value.wrapping_add(n.wrapping_mul(increment)) | mask;
        let bytes: Vec<u8> = (0..count).flat_map(|n| entry(n).to_le_bytes()).collect();
        self.bus.write(self.space, wide(p[1], p[2]) & !7, &bytes)
    }

    /// PTEPDE_COPY: source, destination, mask to set, count - 1.
    fn copy_entries(&self, p: &[u32]) -> Result<(), Fault> {
        let mask = wide(p[5], p[6]).to_le_bytes();
        let count = field(p[7], 0, 19) as usize + 1;
        let mut bytes = vec![0; count * 8];
        self.bus
            .read(self.space, wide(p[1], p[2]) & !7, &mut bytes)?;
        for entry in bytes.chunks_exact_mut(8) {
            entry
                .iter_mut()
                .zip(mask)
                .for_each(|(byte, mask)| *byte |= mask);
        }
        self.bus.write(self.space, wide(p[3], p[4]) & !7, &bytes)
    }

    /// SRBM_WRITE: BYTE_EN 31:28, register in dwords, data.
    fn write_register(&self, p: &[u32]) {
        let offset = field(p[1], 0, 18);
        if !self.privileged || self.space.vmid != 0 {
            self.stats.count("SDMA SRBM_WRITE by a user");
            tracing::warn!(offset, "register write by a user's SDMA queue refused");
            return;
        }
        let lanes = (0..4).filter(|lane| field(p[0], 28, 4) >> lane & 1 != 0);
        let mask = lanes.fold(0u32, |mask, lane| mask | 0xff << (8 * lane));
        let old = if mask == u32::MAX {
            0
        } else {
            self.bus.reg_read(0, offset)
        };
        self.bus.reg_write(0, offset, old & !mask | p[2] & mask);
    }
}
