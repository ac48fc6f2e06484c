// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SDMA packets: how long each is and what it does ([`PACKETS`]). Layouts and names:
//! `amdgpu/vega10_sdma_pkt_open.h`.

use super::layout::{
    atomic, cond_exe, constant_fill, copy_linear as linear, copy_window as window, fence, header,
    indirect, nop, op, poll_reg_write_mem as reg_write_mem, poll_regmem as poll, ptepde_copy,
    srbm_write, sub, timestamp_get, trap, write, write_incr,
};
use super::ring::{Ib, Ring};
use crate::inject::rule::FenceKind;
use crate::layout::Field;
use crate::limited::warn_limited;
use crate::nbio::GPU_HDP_FLUSH_REQ;
use crate::processor::atomic::Atomic;
use crate::processor::bus::{Bus, Fault, Space, View};
use crate::processor::packet::compare;
use crate::processor::stats::Stats;

/// Bytes that a copy or fill moves before it looks whether it is to stop.
const CHUNK: u64 = 1 << 20;
/// And no more rows of a box: each is an access of its own, however short it is.
const MOST_ROWS: u64 = 1 << 12;
/// The address by which a user's POLL_REGMEM asks for a flush of the HDP cache: what ROCr sends
/// (`SDMA_PKT_HDP_FLUSH`).
const HDP_FLUSH_ADDRESS: u64 = 1 << 63;

/// CONST_FILL.FILLSIZE: whole dwords (sdma_v4_4_2.c names none of its values; ROCr's is 2).
const FILLSIZE_DWORD: u32 = 2;

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

/// Declares the packets: `op, (sub), NAME[length] => function;`, for any sub-opcode `_`.
macro_rules! packets {
    (@sub _) => { None };
    (@sub $sub:tt) => { Some($sub) };
    ($($op:path, $sub:tt, $name:ident[$dwords:expr] => $run:ident;)*) => {
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

/// Sub-opcode of a packet whose opcode has others, too, but which has no name for its own.
const NO_SUB: u32 = 0;

packets! {
    op::NOP, _, NOP[By(nop_dwords)] => nothing;
    op::COPY, (sub::COPY_LINEAR), COPY_LINEAR[By(copy_dwords)] => copy_linear;
    op::COPY, (sub::COPY_LINEAR_SUB_WIND), COPY_LINEAR_SUB_WIND[Fixed(13)] => copy_window;
    op::WRITE, (sub::WRITE_LINEAR), WRITE_LINEAR[By(write_dwords)] => write;
    op::INDIRECT, _, INDIRECT[Fixed(6)] => indirect;
    op::FENCE, _, FENCE[Fixed(4)] => fence;
    op::TRAP, _, TRAP[Fixed(2)] => trap;
    op::POLL_REGMEM, (NO_SUB), POLL_REGMEM[Fixed(6)] => poll;
    op::POLL_REGMEM, (sub::POLL_REG_WRITE_MEM), POLL_REG_WRITE_MEM[Fixed(4)] => copy_register;
    op::COND_EXE, _, COND_EXE[Fixed(5)] => skip;
    op::ATOMIC, _, ATOMIC[Fixed(8)] => atomic;
    op::CONST_FILL, (NO_SUB), CONST_FILL[Fixed(5)] => fill;
    op::PTEPDE, (sub::PTEPDE_GEN), PTEPDE_GEN[Fixed(10)] => generate_entries;
    op::PTEPDE, (sub::PTEPDE_COPY), PTEPDE_COPY[Fixed(8)] => copy_entries;
    op::TIMESTAMP, _, TIMESTAMP[Fixed(3)] => timestamp;
    op::SRBM_WRITE, _, SRBM_WRITE[Fixed(3)] => write_register;
    // The next packets are for the engines that DEV_SEL names; there is one.
    op::PRE_EXE, _, PRE_EXE[Fixed(2)] => nothing;
    op::DUMMY_TRAP, _, DUMMY_TRAP[Fixed(2)] => nothing;
}

fn nop_dwords(head: &[u32]) -> u64 {
    1 + u64::from(nop::COUNT.of(head))
}

/// BROADCAST 27: two destinations.
fn copy_dwords(head: &[u32]) -> u64 {
    if linear::BROADCAST.is_set(head) {
        9
    } else {
        7
    }
}

fn write_dwords(head: &[u32]) -> u64 {
    let before = write::DATA0.dword as u64;
    match head.get(write::COUNT.dword) {
        Some(count) => before + 1 + u64::from(write::COUNT.pick(*count)),
        None => before,
    }
}

/// The packet of a header. None: it is unknown.
pub fn find(header: u32) -> Option<&'static Packet> {
    let (op, sub) = (header::OP.pick(header), header::SUB_OP.pick(header));
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
    /// Of the kernel's ring, and not of a process's buffer on it: may write registers and choose
    /// VMIDs.
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
        let to = write::DST_ADDR_31_0.wide(p) & !3;
        self.view().write_dwords(to, &p[write::DATA0.dword..])?;
        Ok(Flow::Next)
    }

    /// FENCE: address, value.
    fn fence(&self, p: &[u32]) -> Result<Flow, Fault> {
        let address = fence::ADDR_31_0.wide(p) & !3;
        let value = fence::DATA.of(p).to_le_bytes();
        self.bus
            .write_fence(FenceKind::Sdma, self.space, address, &value)?;
        Ok(Flow::Next)
    }

    /// TRAP: INT_CONTEXT 27:0.
    fn trap(&self, p: &[u32]) -> Result<Flow, Fault> {
        let context = trap::INT_CONTEXT.of(p);
        self.ring.trap(self.space, self.pasid, context);
        Ok(Flow::Next)
    }

    /// POLL_REG_WRITE_MEM: register in bytes, destination.
    fn copy_register(&self, p: &[u32]) -> Result<Flow, Fault> {
        let value = self.bus.reg_read(0, reg_write_mem::ADDR_31_2.of(p));
        let to = reg_write_mem::ADDR_31_0.wide(p) & !3;
        self.view().write32(to, value)?;
        Ok(Flow::Next)
    }

    /// COND_EXE: address, reference, EXEC_COUNT 13:0.
    fn skip(&self, p: &[u32]) -> Result<Flow, Fault> {
        let condition = self.view().read32(cond_exe::ADDR_31_0.wide(p) & !3)?;
        let skips = condition != cond_exe::REFERENCE.of(p);
        Ok(if skips {
            Flow::Skip(cond_exe::EXEC_COUNT.of(p).into())
        } else {
            Flow::Next
        })
    }

    /// TIMESTAMP: sub-opcode 0 sets the clock, the others store it.
    fn timestamp(&self, p: &[u32]) -> Result<Flow, Fault> {
        if header::SUB_OP.of(p) == sub::TIMESTAMP_SET {
            self.stats.count("SDMA TIMESTAMP.SET");
        } else {
            self.view()
                .write64(timestamp_get::WRITE_ADDR_31_3.wide(p), self.bus.realtime())?;
        }
        Ok(Flow::Next)
    }

    /// COPY_LINEAR: count - 1 (30 bits on 4.4.2), parameters, source, destination (BROADCAST: two
    /// of them).
    fn copy_linear(&self, p: &[u32]) -> Result<Flow, Fault> {
        let total = u64::from(linear::COUNT.of(p)) + 1;
        let source = linear::SRC_ADDR_31_0.wide(p);
        let second = linear::BROADCAST
            .is_set(p)
            .then_some(linear::DST2_ADDR_31_0);
        let destinations = [linear::DST_ADDR_31_0].into_iter().chain(second);
        let count = CHUNK.min(total - self.moved.min(total));
        let mut bytes = vec![0; count as usize];
        self.bus
            .read(self.space, source.wrapping_add(self.moved), &mut bytes)?;
        for destination in destinations {
            let to = destination.wide(p).wrapping_add(self.moved);
            self.bus.write(self.space, to, &bytes)?;
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
        let count = u64::from(constant_fill::COUNT.of(p));
        let total = if constant_fill::FILLSIZE.of(p) == FILLSIZE_DWORD {
            (count & !3) + 4
        } else {
            count + 1
        };
        let destination = constant_fill::DST_ADDR_31_0.wide(p);
        let value = constant_fill::SRC_DATA_31_0.of(p);
        let chunk = CHUNK.min(total - self.moved.min(total));
        if value == 0 {
            self.bus
                .zero(self.space, destination.wrapping_add(self.moved), chunk)?;
            return Ok(self.progress(total, chunk));
        }
        let mut bytes = value.to_le_bytes().repeat(chunk.div_ceil(4) as usize);
        bytes.truncate(chunk as usize);
        self.bus
            .write(self.space, destination.wrapping_add(self.moved), &bytes)?;
        Ok(self.progress(total, chunk))
    }

    /// COPY_LINEAR_SUB_WIND: a box out of a pitched array into another; a row at a time.
    fn copy_window(&self, p: &[u32]) -> Result<Flow, Fault> {
        let element = 1u64 << window::ELEMENTSIZE.of(p);
        let side = |address: Field, [x, y, z, pitch, slice]: [Field; 5]| {
            let pitch = u64::from(pitch.of(p)) + 1;
            let slice = u64::from(slice.of(p)) + 1;
            let [x, y, z] = [x, y, z].map(|at| u64::from(at.of(p)));
            let origin = z * slice + y * pitch + x;
            (
                address.wide(p).wrapping_add(origin * element),
                pitch * element,
                slice * element,
            )
        };
        let (from, from_pitch, from_slice) = side(
            window::SRC_ADDR_31_0,
            [
                window::SRC_X,
                window::SRC_Y,
                window::SRC_Z,
                window::SRC_PITCH,
                window::SRC_SLICE_PITCH,
            ],
        );
        let (to, to_pitch, to_slice) = side(
            window::DST_ADDR_31_0,
            [
                window::DST_X,
                window::DST_Y,
                window::DST_Z,
                window::DST_PITCH,
                window::DST_SLICE_PITCH,
            ],
        );
        let width = (u64::from(window::RECT_X.of(p)) + 1) * element;
        let rows = u64::from(window::RECT_Y.of(p)) + 1;
        let total = rows * (u64::from(window::RECT_Z.of(p)) + 1);
        let mut bytes = vec![0; width as usize];
        // A packet that was written over while it ran may be shorter than what has been moved.
        let first = self.moved.min(total);
        let last = total.min(first + (CHUNK / width).clamp(1, MOST_ROWS));
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
        let vmid = indirect::VMID.of(p) as u8;
        let space = if self.privileged {
            Space { vmid, ..self.space }
        } else {
            self.space
        };
        Ok(Flow::Call(Ib {
            space,
            address: indirect::IB_BASE_31_0.wide(p) & !0x1f,
            dwords: indirect::IB_SIZE.of(p).into(),
            at: 0,
        }))
    }

    /// POLL_REGMEM: HDP_FLUSH 26, FUNC 30:28, MEM_POLL 31; address, reference, mask. A user's may
    /// write the HDP flush alone.
    fn poll(&self, p: &[u32]) -> Result<Flow, Fault> {
        let (reference, mask) = (poll::VALUE.of(p), poll::MASK.of(p));
        let value = if poll::MEM_POLL.is_set(p) {
            self.view().read32(poll::ADDR_31_0.wide(p) & !3)?
        } else {
            if poll::HDP_FLUSH.is_set(p) {
                // The first register says done, the second one takes the request.
                let request = poll::ADDR_63_32.of(p) >> 2;
                if !self.privileged && request != GPU_HDP_FLUSH_REQ {
                    self.stats.count("SDMA POLL_REGMEM by a user");
                    self.refuse(request);
                    return Ok(Flow::Next);
                }
                self.bus.reg_write(0, request, reference);
            } else if poll::ADDR_31_0.wide(p) == HDP_FLUSH_ADDRESS {
                self.bus.reg_write(0, GPU_HDP_FLUSH_REQ, 1);
                return Ok(Flow::Next);
            }
            self.bus.reg_read(0, poll::ADDR_31_0.of(p) >> 2)
        };
        let holds = compare(poll::FUNC.of(p), (value & mask).into(), reference.into());
        Ok(if holds { Flow::Next } else { Flow::Wait })
    }

    /// ATOMIC: LOOP 16, ATOMIC_OP 31:25; address, source, compare.
    fn atomic(&self, p: &[u32]) -> Result<Flow, Fault> {
        let operation = Atomic {
            op: atomic::ATOMIC_OP.of(p),
            address: atomic::ADDR_31_0.wide(p),
            source: atomic::SRC_DATA_31_0.wide(p),
            compare: atomic::CMP_DATA_31_0.wide(p),
        };
        Ok(match operation.execute(self.view())? {
            None => {
                self.stats.count("SDMA ATOMIC_OP");
                let (op, whose) = (operation.op, self.space.vmid.into());
                warn_limited!(self.stats.limited, whose, op, "SDMA atomic not modelled");
                Flow::Next
            }
            Some(old) if atomic::LOOP.is_set(p) && !operation.is_satisfied(old) => Flow::Wait,
            Some(_) => Flow::Next,
        })
    }

    /// PTEPDE_GEN: destination, mask, first value, increment, count - 1: writes (value + n *
    /// increment) | mask.
    fn generate_entries(&self, p: &[u32]) -> Result<Flow, Fault> {
        let mask = write_incr::MASK_DW0.wide(p);
        let value = write_incr::INIT_DW0.wide(p);
        let increment = write_incr::INCR_DW0.wide(p);
        let count = u64::from(write_incr::COUNT.of(p)) + 1;
        let entry = |n: u64| value.wrapping_add(n.wrapping_mul(increment)) | mask;
        let bytes: Vec<u8> = (0..count).flat_map(|n| entry(n).to_le_bytes()).collect();
        let to = write_incr::DST_ADDR_31_0.wide(p) & !7;
        self.bus.write(self.space, to, &bytes)?;
        Ok(Flow::Next)
    }

    /// PTEPDE_COPY: source, destination, mask to set, count - 1.
    fn copy_entries(&self, p: &[u32]) -> Result<Flow, Fault> {
        let mask = ptepde_copy::MASK_DW0.wide(p).to_le_bytes();
        let count = ptepde_copy::COUNT.of(p) as usize + 1;
        let (from, to) = (ptepde_copy::SRC_ADDR_31_0, ptepde_copy::DST_ADDR_31_0);
        let mut bytes = vec![0; count * 8];
        self.bus.read(self.space, from.wide(p) & !7, &mut bytes)?;
        for entry in bytes.chunks_exact_mut(8) {
            entry
                .iter_mut()
                .zip(mask)
                .for_each(|(byte, mask)| *byte |= mask);
        }
        self.bus.write(self.space, to.wide(p) & !7, &bytes)?;
        Ok(Flow::Next)
    }

    fn refuse(&self, register: u32) {
        let (limited, whose) = (&self.stats.limited, self.space.vmid.into());
        warn_limited!(
            limited,
            whose,
            register,
            "register write by a user's SDMA queue refused"
        );
    }

    /// SRBM_WRITE: BYTE_EN 31:28, register in dwords, data.
    fn write_register(&self, p: &[u32]) -> Result<Flow, Fault> {
        let offset = srbm_write::ADDR.of(p);
        if !self.privileged {
            self.stats.count("SDMA SRBM_WRITE by a user");
            self.refuse(offset);
            return Ok(Flow::Next);
        }
        let lanes = (0..4).filter(|lane| srbm_write::BYTE_EN.of(p) >> lane & 1 != 0);
        let mask = lanes.fold(0u32, |mask, lane| mask | 0xff << (8 * lane));
        let old = if mask == u32::MAX {
            0
        } else {
            self.bus.reg_read(0, offset)
        };
        self.bus
            .reg_write(0, offset, old & !mask | srbm_write::DATA.of(p) & mask);
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
