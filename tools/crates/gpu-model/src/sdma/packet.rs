// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SDMA packets: how long each is and what it does ([`PACKETS`]). Layouts and names:
//! `amdgpu/vega10_sdma_pkt_open.h`.

use super::ring::{Ib, Ring};
use crate::inject::rule::FenceKind;
use crate::processor::atomic::Atomic;
use crate::processor::bus::{wide, Bus, Fault, Space, View};
use crate::processor::packet::{compare, field};
use crate::processor::stats::Stats;

/// Bytes that a copy or fill moves before it looks whether it is to stop.
const CHUNK: u64 = 1 << 20;

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

/// Dwords of a packet.
enum Length {
    Fixed(u64),
    /// By its first dwords, of which there are up to four.
    By(fn(&[u32]) -> u64),
}
use Length::*;

/// All that there is to know of a packet before it is executed.
pub struct Packet {
    /// Header 7:0, SDMA_OP_*.
    op: u32,
    /// Header 15:8, SDMA_SUBOP_*. None: any.
    sub: Option<u32>,
    /// AMD's name, of the opcode or of what it is together with the other one.
    #[cfg_attr(not(test), expect(dead_code, reason = "the document has it"))]
    name: &'static str,
    dwords: Length,
    run: fn(&Cx<'_>, &[u32]) -> Result<Flow, Fault>,
}

/// Declares the packets: `op sub NAME[length] => function;`, for any sub-opcode `op _`.
macro_rules! packets {
    (@sub _) => { None };
    (@sub $sub:literal) => { Some($sub) };
    ($($op:literal $sub:tt $name:ident[$dwords:expr] => $run:ident;)*) => {
        /// All packets; others stop the ring. `Documentation/packets.md` says who sends them.
        static PACKETS: &[Packet] = &[
            $(Packet {
                op: $op,
                sub: packets!(@sub $sub),
                name: stringify!($name),
                dwords: $dwords,
                run: |cx, p| cx.$run(p),
            },)*
        ];
    };
}

packets! {
    0 _ NOP[By(nop_dwords)] => nothing;
    1 0 COPY_LINEAR[By(copy_dwords)] => copy_linear;
    1 4 COPY_LINEAR_SUB_WIND[Fixed(13)] => copy_window;
    2 0 WRITE_LINEAR[By(write_dwords)] => write;
    4 _ INDIRECT[Fixed(6)] => indirect;
    5 _ FENCE[Fixed(4)] => fence;
    6 _ TRAP[Fixed(2)] => trap;
    8 0 POLL_REGMEM[Fixed(6)] => poll;
    8 1 POLL_REG_WRITE_MEM[Fixed(4)] => copy_register;
    9 _ COND_EXE[Fixed(5)] => skip;
    10 _ ATOMIC[Fixed(8)] => atomic;
    11 0 CONST_FILL[Fixed(5)] => fill;
    12 0 PTEPDE_GEN[Fixed(10)] => generate_entries;
    12 1 PTEPDE_COPY[Fixed(8)] => copy_entries;
    13 _ TIMESTAMP[Fixed(3)] => timestamp;
    14 _ SRBM_WRITE[Fixed(3)] => write_register;
    // The next packets are for the engines that DEV_SEL names; there is one.
    15 _ PRE_EXE[Fixed(2)] => nothing;
    16 _ DUMMY_TRAP[Fixed(2)] => nothing;
}

fn nop_dwords(head: &[u32]) -> u64 {
    1 + u64::from(field(head[0], 16, 14))
}

/// BROADCAST 27: two destinations.
fn copy_dwords(head: &[u32]) -> u64 {
    if field(head[0], 27, 1) != 0 {
        9
    } else {
        7
    }
}

fn write_dwords(head: &[u32]) -> u64 {
    match head.get(3) {
        Some(count) => 5 + u64::from(field(*count, 0, 20)),
        None => 4,
    }
}

/// The packet of a header. None: it is unknown.
pub fn find(header: u32) -> Option<&'static Packet> {
    let (op, sub) = (header & 0xff, field(header, 8, 8));
    let is_it = |packet: &&Packet| packet.op == op && packet.sub.is_none_or(|it| it == sub);
    PACKETS.iter().find(is_it)
}

impl Packet {
    /// Dwords of the packet that begins with `head`: its first dwords, as many as there are, but
    /// the header at least.
    pub fn dwords(&self, head: &[u32]) -> u64 {
        match self.dwords {
            Fixed(dwords) => dwords,
            By(dwords) => dwords(head),
        }
    }

    /// Executes a whole packet.
    pub fn execute(&self, cx: &Cx<'_>, p: &[u32]) -> Result<Flow, Fault> {
        (self.run)(cx, p)
    }
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

    fn nothing(&self, _p: &[u32]) -> Result<Flow, Fault> {
        Ok(Flow::Next)
    }

    /// WRITE_LINEAR: destination, count - 1, data.
    fn write(&self, p: &[u32]) -> Result<Flow, Fault> {
        self.view().write_dwords(wide(p[1], p[2]) & !3, &p[4..])?;
        Ok(Flow::Next)
    }

    /// FENCE: address, value.
    fn fence(&self, p: &[u32]) -> Result<Flow, Fault> {
        let (address, value) = (wide(p[1], p[2]) & !3, p[3].to_le_bytes());
        self.bus
            .write_fence(FenceKind::Sdma, self.space, address, &value)?;
        Ok(Flow::Next)
    }

    /// TRAP: INT_CONTEXT 27:0.
    fn trap(&self, p: &[u32]) -> Result<Flow, Fault> {
        self.ring.trap(self.space, self.pasid, p[1] & 0xfff_ffff);
        Ok(Flow::Next)
    }

    /// POLL_REG_WRITE_MEM: register in bytes, destination.
    fn copy_register(&self, p: &[u32]) -> Result<Flow, Fault> {
        let value = self.bus.reg_read(0, p[1] >> 2);
        self.view().write32(wide(p[2], p[3]) & !3, value)?;
        Ok(Flow::Next)
    }

    /// COND_EXE: address, reference, EXEC_COUNT 13:0.
    fn skip(&self, p: &[u32]) -> Result<Flow, Fault> {
        let condition = self.view().read32(wide(p[1], p[2]) & !3)?;
        let skips = condition != p[3];
        Ok(if skips {
            Flow::Skip(field(p[4], 0, 14).into())
        } else {
            Flow::Next
        })
    }

    /// TIMESTAMP: sub-opcode 0 sets the clock, the others store it.
    fn timestamp(&self, p: &[u32]) -> Result<Flow, Fault> {
        if field(p[0], 8, 8) == 0 {
            self.stats.count("SDMA TIMESTAMP.SET");
        } else {
            self.view()
                .write64(wide(p[1], p[2]) & !7, self.bus.realtime())?;
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
    fn indirect(&self, p: &[u32]) -> Result<Flow, Fault> {
        let vmid = field(p[0], 16, 4) as u8;
        let space = if self.privileged {
            Space { vmid, ..self.space }
        } else {
            self.space
        };
        Ok(Flow::Call(Ib {
            space,
            address: wide(p[1], p[2]) & !0x1f,
            dwords: field(p[3], 0, 20).into(),
            at: 0,
        }))
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
    fn generate_entries(&self, p: &[u32]) -> Result<Flow, Fault> {
        let (mask, value, increment) = (wide(p[3], p[4]), wide(p[5], p[6]), wide(p[7], p[8]));
        let count = u64::from(field(p[9], 0, 19)) + 1;
        let entry = |n: u64| value.wrapping_add(n.wrapping_mul(increment)) | mask;
        let bytes: Vec<u8> = (0..count).flat_map(|n| entry(n).to_le_bytes()).collect();
        self.bus.write(self.space, wide(p[1], p[2]) & !7, &bytes)?;
        Ok(Flow::Next)
    }

    /// PTEPDE_COPY: source, destination, mask to set, count - 1.
    fn copy_entries(&self, p: &[u32]) -> Result<Flow, Fault> {
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
        self.bus.write(self.space, wide(p[3], p[4]) & !7, &bytes)?;
        Ok(Flow::Next)
    }

    /// SRBM_WRITE: BYTE_EN 31:28, register in dwords, data.
    fn write_register(&self, p: &[u32]) -> Result<Flow, Fault> {
        let offset = field(p[1], 0, 18);
        if !self.privileged || self.space.vmid != 0 {
            self.stats.count("SDMA SRBM_WRITE by a user");
            tracing::warn!(offset, "register write by a user's SDMA queue refused");
            return Ok(Flow::Next);
        }
        let lanes = (0..4).filter(|lane| field(p[0], 28, 4) >> lane & 1 != 0);
        let mask = lanes.fold(0u32, |mask, lane| mask | 0xff << (8 * lane));
        let old = if mask == u32::MAX {
            0
        } else {
            self.bus.reg_read(0, offset)
        };
        self.bus.reg_write(0, offset, old & !mask | p[2] & mask);
        Ok(Flow::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::packet::check_documented;

    #[test]
    fn packets_are_documented_as_they_are() {
        let table = PACKETS.iter().map(|it| (it.name, true));
        check_documented("SDMA", &table.collect::<Vec<_>>());
    }
}
