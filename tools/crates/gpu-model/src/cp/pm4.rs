// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Executing PM4 packets: of a ring and of indirect buffers (IBs), also those that AQL packets
//! point to.
//!
//! In order and one at a time: a dispatch runs to its end before the next packet, so an end-of-pipe
//! event finds nothing to wait for. A packet that must wait (WAIT_REG_MEM) leaves everything as it
//! is and is tried again.

pub mod memory;
pub mod shader;
pub use shader::{cu_masks, scratch_ring, share};

use super::launch::Launch;
use super::layout::{
    indirect_buffer as ib, pred_exec as pred, register_space as space, set_uconfig_reg,
};
use super::packet::{self, Header, Run};
use super::queue::{Body, Ib, Kind, Queue};
use crate::engine::Progress;
use crate::limited::warn_limited;
use crate::nbio::GPU_HDP_FLUSH_REQ;
use crate::processor::bus::{Fault, Space, View};

/// Packets of one slice.
const SLICE_PACKETS: usize = 1024;
/// Nested indirect buffers: IB1 and IB2 of the hardware, and what an AQL packet adds.
const IB_DEPTH: usize = 3;

/// What a packet came to.
pub enum Flow {
    /// Done; the next one.
    Next,
    /// Not yet; try again later.
    Wait,
    /// Done; skip this many dwords after it.
    Skip(u64),
    /// Go into an indirect buffer.
    Call(Ib),
    /// Leave this indirect buffer for another.
    Chain(Ib),
    /// Run a kernel.
    Launch(Box<Launch>),
    /// The queue cannot go on.
    Hang(String),
}

/// A packet's answer, or the memory that refused.
pub type Outcome = Result<Flow, Fault>;

/// Where packets come from and what they may do.
#[derive(Clone, Copy)]
pub struct Source {
    /// Whose memory they access.
    pub space: Space,
    /// Whether they may write registers.
    pub privileged: bool,
    /// Whether it is an indirect buffer.
    pub in_ib: bool,
}

/// One packet at its execution.
pub struct Cx<'a> {
    /// The queue.
    pub queue: &'a Queue,
    /// Its state.
    pub body: &'a mut Body,
    /// Where the packet is from.
    pub source: Source,
}

impl Cx<'_> {
    /// The memory that the packet's addresses mean.
    pub fn view(&self) -> View<'_> {
        View {
            bus: &*self.queue.shared.bus,
            space: self.source.space,
        }
    }

    /// Whether the queue is one of the scheduler's.
    fn schedules(&self) -> bool {
        matches!(self.queue.kind, Kind::Kiq | Kind::Hiq)
    }

    fn reg_read(&self, offset: u32) -> u32 {
        self.queue.shared.bus.reg_read(self.queue.slot.xcc, offset)
    }

    /// Writes a register if the packet may; otherwise raises the privileged register interrupt.
    fn reg_write(&self, offset: u32, value: u32) {
        if self.source.privileged || is_open_register(offset) {
            self.queue.shared.reg_write(self.queue.slot, offset, value);
        } else {
            let (stats, slot) = (&self.queue.shared.stats, self.queue.slot);
            stats.count("CP_PRIV_REG_FAULT");
            let whose = slot.number();
            warn_limited!(
                stats.limited,
                whose,
                ?slot,
                offset,
                value,
                "register write refused"
            );
            self.queue
                .shared
                .raise_error(self.queue, super::SOURCE_PRIV_REG, 0);
        }
    }
}

/// Registers that unprivileged packets may write: UCONFIG space from its beginning (gc_gfxudec of
/// `gc_9_4_3_offset.h`) to the performance counters (up to gc_utcl2_l2tlbpldec), and the HDP flush.
/// What follows is RLC's, the power management's and the hypervisor's.
const fn is_open_register(offset: u32) -> bool {
    matches!(offset, 0xc000..=0xdfff | GPU_HDP_FLUSH_REQ)
}

/// Runs a slice of a PM4 queue.
pub fn step(queue: &Queue, body: &mut Body) -> Progress {
    for _ in 0..SLICE_PACKETS {
        if body.flight.hung.is_some() {
            return Progress::Idle;
        }
        if let Some(progress) = step_flight(queue, body) {
            return progress;
        }
        let advance = std::mem::take(&mut body.flight.advance);
        if advance != 0 {
            let rptr = (body.rptr + advance) % queue.hqd.ring_dwords();
            queue.advance(body, rptr);
        }
        if queue.should_stop() {
            return Progress::Busy;
        }
        match ring_packet(queue, body) {
            Ok(None) => return Progress::Idle,
            Ok(Some(true)) => {}
            Ok(Some(false)) => return Progress::Polling,
            Err(fault) => queue.fault(body, fault),
        }
    }
    Progress::Busy
}

/// Goes on with the dispatch and the indirect buffers in flight. None: there are none (any more).
pub fn step_flight(queue: &Queue, body: &mut Body) -> Option<Progress> {
    for _ in 0..SLICE_PACKETS {
        if body.flight.hung.is_some() {
            return Some(Progress::Idle);
        }
        if let Some(progress) = body.step_launch(queue) {
            return Some(progress);
        }
        let ib = *body.flight.ibs.last()?;
        if queue.should_stop() {
            return Some(Progress::Busy);
        }
        if ib.at >= ib.dwords {
            body.flight.ibs.pop();
            continue;
        }
        match ib_packet(queue, body, ib) {
            Ok(true) => {}
            Ok(false) => return Some(Progress::Polling),
            Err(fault) => queue.fault(body, fault),
        }
    }
    Some(Progress::Busy)
}

/// Executes the ring's next packet. None: the ring is empty. False: it waits.
fn ring_packet(queue: &Queue, body: &mut Body) -> Result<Option<bool>, Fault> {
    let size = queue.hqd.ring_dwords();
    let pending = queue.wptr().wrapping_sub(body.rptr) % size;
    if pending == 0 {
        return Ok(None);
    }
    if queue.hangs(body) {
        return Ok(Some(false));
    }
    let header = ring_dwords(queue, body.rptr, 1)?[0];
    let source = Source {
        space: queue.space,
        privileged: queue.hqd.is_privileged(),
        in_ib: false,
    };
    let (take, dwords) = match Header::decode(header) {
        // A packet beyond the write pointer is not complete yet.
        Header::Type3 { body: count, .. } if count as u64 >= pending => return Ok(None),
        Header::Type3 { body: count, .. } => (
            1 + count as u64,
            ring_dwords(queue, body.rptr + 1, count as u64)?,
        ),
        _ => (1, Vec::new()),
    };
    let flow = execute(
        Cx {
            queue,
            body,
            source,
        },
        header,
        &dwords,
    )?;
    let skip = |more: u64| (take + more).min(pending);
    body.flight.advance = match flow {
        Flow::Wait => return Ok(Some(false)),
        Flow::Skip(more) => skip(more),
        _ => take,
    };
    follow(body, flow);
    Ok(Some(true))
}

fn ring_dwords(queue: &Queue, from: u64, count: u64) -> Result<Vec<u32>, Fault> {
    let size = queue.hqd.ring_dwords();
    let from = from % size;
    let first = count.min(size - from);
    let base = queue.hqd.ring_base();
    let mut dwords = queue
        .view()
        .dwords(base.wrapping_add(4 * from), first as usize)?;
    if first < count {
        dwords.extend(queue.view().dwords(base, (count - first) as usize)?);
    }
    Ok(dwords)
}

/// Executes the next packet of the innermost indirect buffer. False: it waits.
fn ib_packet(queue: &Queue, body: &mut Body, ib: Ib) -> Result<bool, Fault> {
    let view = View {
        bus: &*queue.shared.bus,
        space: ib.space,
    };
    let at = |dword: u64| ib.address.wrapping_add(4 * dword);
    let header = view.read32(at(ib.at))?;
    let left = ib.dwords - ib.at - 1;
    let count = match Header::decode(header) {
        Header::Type3 { body, .. } => body as u64,
        _ => 0,
    };
    if count > left {
        body.flight.hung = Some(format!(
            "packet {header:#x} reaches beyond its indirect buffer"
        ));
        return Ok(true);
    }
    let dwords = view.dwords(at(ib.at + 1), count as usize)?;
    let source = Source {
        space: ib.space,
        privileged: ib.privileged,
        in_ib: true,
    };
    let flow = execute(
        Cx {
            queue,
            body,
            source,
        },
        header,
        &dwords,
    )?;
    let more = match flow {
        Flow::Wait => return Ok(false),
        Flow::Skip(more) => more,
        _ => 0,
    };
    if let Some(ib) = body.flight.ibs.last_mut() {
        ib.at = (ib.at + 1 + count + more).min(ib.dwords);
    }
    follow(body, flow);
    Ok(true)
}

/// Does what a packet asked for after it.
fn follow(body: &mut Body, flow: Flow) {
    match flow {
        Flow::Call(ib) if body.flight.ibs.len() < IB_DEPTH => body.flight.ibs.push(ib),
        Flow::Call(_) => body.flight.hung = Some("indirect buffers nested too deeply".into()),
        Flow::Chain(ib) => {
            body.flight.ibs.pop();
            body.flight.ibs.push(ib);
        }
        Flow::Launch(launch) => body.flight.launch = Some(launch),
        Flow::Hang(why) => body.flight.hung = Some(why),
        Flow::Next | Flow::Wait | Flow::Skip(_) => {}
    }
}

/// Executes one packet.
pub fn execute(mut cx: Cx<'_>, header: u32, body: &[u32]) -> Outcome {
    let Header::Type3 { op, .. } = Header::decode(header) else {
        return Ok(match Header::decode(header) {
            Header::Type2 => Flow::Next,
            _ => bad_opcode(&cx, header),
        });
    };
    let known = packet::find(op);
    tracing::trace!(
        target: "pm4",
        "{:?} {} {:x?}",
        cx.queue.slot,
        known.map_or("illegal", |packet| packet.name),
        &body[..body.len().min(16)]
    );
    let Some(packet) = known else {
        return Ok(bad_opcode(&cx, header));
    };
    if !packet.fits(body) {
        let (limited, slot) = (&cx.queue.shared.stats.limited, cx.queue.slot);
        warn_limited!(limited, slot.number(), ?slot, header, "packet too short");
        return Ok(bad_opcode(&cx, header));
    }
    match packet.run {
        Run::Executes(run) => run(&mut cx, body),
        Run::Schedules(run) if cx.schedules() => run(&mut cx, body),
        Run::Schedules(_) => Ok(refuse(&cx, packet.name)),
        Run::Lacks => Ok(bad_opcode(&cx, header)),
    }
}

/// A packet that leaves the model nothing to do.
pub fn nothing(_cx: &mut Cx<'_>, _body: &[u32]) -> Outcome {
    Ok(Flow::Next)
}

/// ACQUIRE_MEM: what COHER_CNTL says of the caches. Decoded code goes anyway without hostile mode's
/// caches.
pub fn acquire_mem(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    use super::layout::acquire_mem::*;
    let [write_back, vector, scalar, code] = [
        TC_WB_ACTION_ENA,
        TCL1_ACTION_ENA,
        SH_KCACHE_ACTION_ENA,
        SH_ICACHE_ACTION_ENA,
    ]
    .map(|action| action.is_set(body));
    let (caches, xcc) = (cx.queue.shared.bus.caches(), cx.queue.slot.xcc);
    if let Some(caches) = caches {
        caches.invalidate(xcc, [vector, scalar, code]);
        if write_back {
            caches.write_back(xcc);
        }
    }
    if code || caches.is_none() {
        cx.body.invalidate_code();
    }
    Ok(Flow::Next)
}

fn bad_opcode(cx: &Cx<'_>, header: u32) -> Flow {
    let opcode = (header >> 8) as u8;
    let known = if header >> 30 == 3 {
        packet::find(opcode).map(|packet| packet.name)
    } else {
        None
    };
    let (stats, slot) = (&cx.queue.shared.stats, cx.queue.slot);
    let (limited, whose) = (&stats.limited, slot.number());
    match known {
        Some(name) => warn_limited!(limited, whose, ?slot, name, "PM4 packet not modelled"),
        None => warn_limited!(limited, whose, ?slot, header, "illegal PM4 packet"),
    }
    stats.count(known.unwrap_or("illegal PM4 opcode"));
    if known.is_some() {
        return Flow::Next;
    }
    cx.queue.shared.raise_error(
        cx.queue,
        super::SOURCE_BAD_OPCODE,
        cx.queue.hqd.doorbell_id(),
    );
    match cx.queue.kind {
        // The scheduler's firmware stops at nonsense in its orders, for good.
        Kind::Hiq => Flow::Hang("illegal packet".into()),
        _ => Flow::Next,
    }
}

/// INDIRECT_BUFFER: base low, base high, size 19:0, CHAIN 20, VALID 23, VMID 27:24.
pub fn indirect_buffer(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let vmid = ib::VMID.of(body) as u8;
    // The kernel's rings choose the VMID of each buffer; a user's queue has its own only.
    let chooses = cx.source.privileged && !cx.source.in_ib && vmid != 0;
    let space = if chooses {
        Space {
            vmid,
            ..cx.source.space
        }
    } else {
        cx.source.space
    };
    let buffer = Ib {
        space,
        address: ib::IB_BASE_LO.wide(body),
        dwords: ib::IB_SIZE.of(body).into(),
        at: 0,
        privileged: cx.source.privileged && !chooses,
    };
    Ok(match (ib::CHAIN.is_set(body), cx.source.in_ib) {
        (true, true) => Flow::Chain(buffer),
        _ => Flow::Call(buffer),
    })
}

/// PRED_EXEC: the next EXEC_COUNT dwords are for the XCCs in VIRTUAL_XCC_ID_SELECT only.
pub fn pred_exec(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let selected = pred::VIRTUAL_XCC_ID_SELECT.of(body) >> cx.queue.xcc.index.min(7) & 1 != 0;
    Ok(if selected {
        Flow::Next
    } else {
        Flow::Skip(pred::EXEC_COUNT.of(body).into())
    })
}

/// SET_UCONFIG_REG: REG_OFFSET from 0xc000, values.
pub fn set_uconfig_reg(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let first = space::UCONFIG_REG_START + set_uconfig_reg::REG_OFFSET.of(body);
    Ok(set_registers(cx, first, body))
}

/// SET_CONFIG_REG: REG_OFFSET, values. Both spellings are in use: relative to the space, and
/// absolute (gfx_v9_4_3_ring_emit_ib_compute).
pub fn set_config_reg(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let first = match body[0] & 0xffff {
        offset @ space::CONFIG_REG_START.. => offset,
        offset => space::CONFIG_REG_START + offset,
    };
    Ok(set_registers(cx, first, body))
}

fn set_registers(cx: &Cx<'_>, first: u32, body: &[u32]) -> Flow {
    for (register, value) in (first..).zip(&body[1..]) {
        cx.reg_write(register, *value);
    }
    Flow::Next
}

/// RUN_CLEANER_SHADER clears LDS and registers, which only in hostile mode are not clear anyway. Of
/// the kernel's rings and the scheduling queues.
pub fn run_cleaner_shader(cx: &mut Cx<'_>, _body: &[u32]) -> Outcome {
    Ok(if cx.source.privileged || cx.schedules() {
        let queue = cx.queue;
        queue.shared.leftovers.clean(queue.slot.xcc, None);
        Flow::Next
    } else {
        refuse(cx, "RUN_CLEANER_SHADER")
    })
}

/// A packet of the scheduling queues on another.
fn refuse(cx: &Cx<'_>, name: &str) -> Flow {
    let shared = &cx.queue.shared;
    shared.stats.count("scheduler packet outside KIQ and HIQ");
    let slot = cx.queue.slot;
    warn_limited!(
        shared.stats.limited,
        slot.number(),
        ?slot,
        name,
        "scheduler packet refused"
    );
    shared.raise_error(cx.queue, super::SOURCE_BAD_OPCODE, 0);
    Flow::Next
}
