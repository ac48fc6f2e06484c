// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! PM4 packets that set up and start kernels: COMPUTE_* registers and DISPATCH_*. A kernel's launch
//! is made here.

use super::{Cx, Flow, Outcome};
use crate::cp::launch::{Launch, Order, ScratchRing, Shape, Share};
use crate::cp::layout::{
    compute, dispatch_initiator as start, num_thread, pgm_rsrc2, register_space, set_sh_reg,
    tmpring_size,
};
use crate::cp::mqd::{SH_DWORDS, STATIC_THREAD_MGMT};
use crate::cp::queue::Queue;
use crate::cp::reg::SEGMENTS;
use crate::processor::bus::wide;

/// Where the COMPUTE_* registers are among the dwords that SET_SH_REG can set.
const COMPUTE_START: usize =
    SEGMENTS[0] as usize + compute::DISPATCH_INITIATOR - register_space::SH_REG_START as usize;

/// The place of a COMPUTE_* register among them.
const fn at(register: usize) -> usize {
    register - compute::DISPATCH_INITIATOR
}

/// SET_SH_REG: REG_OFFSET from 0x2c00, values. COMPUTE_* registers are the queue's own.
pub fn set_sh_reg(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let first = set_sh_reg::REG_OFFSET.of(body) as usize;
    for (offset, value) in (first..).zip(&body[1..]) {
        match offset
            .checked_sub(COMPUTE_START)
            .and_then(|at| cx.body.sh.get_mut(at))
        {
            Some(register) => *register = *value,
            None => cx
                .queue
                .shared
                .stats
                .count("SET_SH_REG of a graphics register"),
        }
    }
    Ok(Flow::Next)
}

/// DISPATCH_INDIRECT: the dimensions are in memory.
pub fn dispatch_indirect(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let (address, initiator) = match body {
        [low, high, initiator, ..] => (wide(*low, *high), *initiator),
        _ => return Ok(Flow::Hang("DISPATCH_INDIRECT needs an address".into())),
    };
    let dim = cx.view().dwords(address & !3, 3)?;
    Ok(dispatch(cx, [dim[0], dim[1], dim[2], initiator]))
}

/// DISPATCH_DIRECT: DIM_X, DIM_Y, DIM_Z, initiator.
pub fn dispatch_direct(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    Ok(dispatch(cx, [body[0], body[1], body[2], body[3]]))
}

fn dispatch(cx: &mut Cx<'_>, body: [u32; 4]) -> Flow {
    let [x, y, z, initiator] = body;
    if start::COMPUTE_SHADER_EN.pick(initiator) == 0 {
        return Flow::Next;
    }
    let sh = &cx.body.sh;
    let shape = shape(sh.as_slice(), [x, y, z], initiator);
    if shape.size.contains(&0) || shape.size.iter().map(|n| u64::from(*n)).product::<u64>() > 1024 {
        return Flow::Hang(format!("work-group of {:?} work-items", shape.size));
    }
    if shape
        .last
        .iter()
        .zip(&shape.size)
        .any(|(last, size)| last > size)
    {
        return Flow::Hang(format!(
            "last work-group of {:?} work-items where others have {:?}",
            shape.last, shape.size
        ));
    }
    let rsrc2 = sh[at(compute::PGM_RSRC2)];
    let (process, pgm) = (&cx.queue.process, at(compute::PGM_LO));
    let traps = cx.queue.has_handler() || pgm_rsrc2::TRAP_PRESENT.pick(rsrc2) != 0;
    let target = cx.queue.shared.bus.cores().target;
    let lds_bytes = pgm_rsrc2::LDS_SIZE.pick(rsrc2) * target.lds_granule();
    if lds_bytes > target.lds_bytes() {
        return Flow::Hang(format!("work-group with {lds_bytes} bytes of LDS"));
    }
    let dispatch = gcn::Dispatch {
        target,
        entry: wide(sh[pgm], sh[pgm + 1] & 0xff) << 8,
        pgm_rsrc1: sh[at(compute::PGM_RSRC1)],
        pgm_rsrc2: rsrc2,
        pgm_rsrc3: sh[at(compute::PGM_RSRC3)],
        user_sgprs: sh[at(compute::USER_DATA_0)..][..16].to_vec(),
        workgroup_size: shape.size,
        lds_bytes,
        apertures: super::super::apertures(process),
        tba: if traps { process.tba } else { 0 },
        tma: if traps { process.tma } else { 0 },
    };
    let scratch_base = at(compute::DISPATCH_SCRATCH_BASE_LO);
    let scratch = scratch_ring(
        sh[at(compute::TMPRING_SIZE)],
        wide(sh[scratch_base], sh[scratch_base + 1] & 0xff) << 8,
    );
    if shape.groups() == 0 {
        return Flow::Next;
    }
    let order = Order {
        dispatch,
        shape,
        share: share(cx.queue),
        scratch,
        packet: cx.body.rptr,
        cu_masks: cu_masks(sh),
    };
    Flow::Launch(Box::new(Launch::new(cx.queue, order)))
}

/// The queue's share of a grid.
pub fn share(queue: &Queue) -> Share {
    let (index, chunk) = queue.share;
    Share {
        chunk,
        index,
        of: queue.xcc.of.into(),
    }
}

/// The compute units that the queue may use, by shader engine.
pub fn cu_masks(sh: &[u32; SH_DWORDS]) -> [u32; 4] {
    STATIC_THREAD_MGMT.map(|dword| sh[dword - 1])
}

/// COMPUTE_TMPRING_SIZE: WAVES 11:0, WAVESIZE 24:12 in KiB.
pub fn scratch_ring(tmpring: u32, base: u64) -> ScratchRing {
    ScratchRing {
        base,
        wave_bytes: u64::from(tmpring_size::WAVESIZE.pick(tmpring)) * 1024,
        waves: tmpring_size::WAVES.pick(tmpring),
    }
}

/// The grid: NUM_THREAD_* hold the full size in 15:0 and that of the last group in 31:16.
fn shape(sh: &[u32], dim: [u32; 3], initiator: u32) -> Shape {
    let threads = |d: usize| sh[at(compute::NUM_THREAD_X) + d];
    let size = [0, 1, 2].map(|d| num_thread::NUM_THREAD_FULL.pick(threads(d)));
    if start::USE_THREAD_DIMENSIONS.pick(initiator) != 0 && !size.contains(&0) {
        return Shape::of_items(dim, size);
    }
    let has_partial = start::PARTIAL_TG_EN.pick(initiator) != 0;
    let partial = |d: usize| match num_thread::NUM_THREAD_PARTIAL.pick(threads(d)) {
        last if has_partial && last != 0 => last,
        _ => size[d],
    };
    let from_zero = start::FORCE_START_AT_000.pick(initiator) != 0;
    let first = |d: usize| {
        if from_zero {
            0
        } else {
            sh[at(compute::START_X) + d]
        }
    };
    Shape {
        start: [0, 1, 2].map(first),
        end: dim,
        size,
        last: [0, 1, 2].map(partial),
    }
}
