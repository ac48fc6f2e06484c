// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! PM4 packets that move or watch data in memory and registers. Layouts: `amdgpu/soc15d.h`, one
//! function a packet.

use super::{Cx, Flow, Outcome};
use crate::cp::SOURCE_END_OF_PIPE;
use crate::inject::rule::FenceKind;
use crate::processor::atomic::Atomic;
use crate::processor::bus::{wide, Fault};
use crate::processor::packet::{compare, field};

/// WRITE_DATA: control (DST_SEL 11:8, ADDR_INCR 16), address low, high, data.
pub fn write_data(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let one_address = field(body[0], 16, 1) != 0;
    let data = &body[3..];
    match field(body[0], 8, 4) {
        // mem_mapped_register
        0 => {
            let first = body[1] & 0x3ffff;
            for (at, value) in (0..).zip(data) {
                cx.reg_write(if one_address { first } else { first + at }, *value);
            }
        }
        // memory_sync, tc_l2, memory
        1 | 2 | 5 => {
            let first = wide(body[1], body[2]) & !3;
            if one_address {
                data.iter()
                    .try_for_each(|value| cx.view().write32(first, *value))?;
            } else if let [value] = data {
                cx.view().write32(first, *value)?;
            } else {
                cx.view().write_dwords(first, data)?;
            }
        }
        other => unmodelled(cx, "WRITE_DATA.DST_SEL", other),
    }
    Ok(Flow::Next)
}

/// COPY_DATA: control (SRC_SEL 3:0, DST_SEL 11:8, COUNT_SEL 16), source low, high, destination low,
/// high.
pub fn copy_data(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let is_wide = field(body[0], 16, 1) != 0;
    let source = wide(body[1], body[2]);
    let value = match field(body[0], 0, 4) {
        // mem_mapped_register, perfcounters
        0 | 4 => {
            let register = body[1] & 0x3ffff;
            let high = if is_wide {
                cx.reg_read(register + 1)
            } else {
                0
            };
            wide(cx.reg_read(register), high)
        }
        1 | 2 if is_wide => cx.view().read64(source & !7)?,
        1 | 2 => cx.view().read32(source & !3)?.into(),
        // immediate_data
        5 => source,
        // gpu_clock_count
        9 => cx.queue.shared.bus.realtime(),
        other => {
            unmodelled(cx, "COPY_DATA.SRC_SEL", other);
            return Ok(Flow::Next);
        }
    };
    let destination = wide(body[3], body[4]);
    match field(body[0], 8, 4) {
        0 | 4 => {
            cx.reg_write(body[3] & 0x3ffff, value as u32);
            if is_wide {
                cx.reg_write((body[3] & 0x3ffff) + 1, (value >> 32) as u32);
            }
        }
        1 | 2 | 5 if is_wide => cx.view().write64(destination & !7, value)?,
        1 | 2 | 5 => cx.view().write32(destination & !3, value as u32)?,
        other => unmodelled(cx, "COPY_DATA.DST_SEL", other),
    }
    Ok(Flow::Next)
}

/// WAIT_REG_MEM: control (FUNCTION 2:0, MEM_SPACE 5:4, OPERATION 7:6), address, reference, mask,
/// interval.
pub fn wait_reg_mem(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    wait(cx, body, false)
}

/// WAIT_REG_MEM64: the same with reference and mask of 64 bits.
pub fn wait_reg_mem64(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    wait(cx, body, true)
}

fn wait(cx: &Cx<'_>, body: &[u32], is_wide: bool) -> Outcome {
    let memory = field(body[0], 4, 2) == 1;
    let (reference, mask) = if is_wide {
        (wide(body[3], body[4]), wide(body[5], body[6]))
    } else {
        (body[3].into(), body[4].into())
    };
    let polled = if memory {
        let address = wide(body[1], body[2]);
        if is_wide {
            cx.view().read64(address & !7)?
        } else {
            cx.view().read32(address & !3)?.into()
        }
    } else if field(body[0], 6, 2) == 1 {
        // wr_wait_wr_reg: write the reference to the first register, wait on the second.
        cx.reg_write(body[1] & 0x3ffff, reference as u32);
        cx.reg_read(body[2] & 0x3ffff).into()
    } else {
        cx.reg_read(body[1] & 0x3ffff).into()
    };
    Ok(if compare(field(body[0], 0, 3), polled & mask, reference) {
        Flow::Next
    } else {
        Flow::Wait
    })
}

/// RELEASE_MEM: event (EOP_TC_WB_ACTION_EN 15, EOP_TCL1_ACTION_EN 16), control (DST_SEL 17:16, INT_SEL 26:24, DATA_SEL 31:29), address, data,
/// INT_CTXID.
pub fn release_mem(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    if let Some(caches) = cx.queue.shared.bus.caches() {
        let xcc = cx.queue.slot.xcc;
        if field(body[0], 15, 1) != 0 {
            caches.write_back(xcc);
        }
        caches.invalidate(xcc, [field(body[0], 16, 1) != 0, false, false]);
    }
    let address = wide(body[2], body[3]);
    match field(body[1], 29, 3) {
        0 => {}
        1 => fence(cx, address & !3, &body[4].to_le_bytes())?,
        2 => fence(cx, address & !7, &wide(body[4], body[5]).to_le_bytes())?,
        // GPU clock counter, CP performance counter
        3 | 4 => cx
            .view()
            .write64(address & !7, cx.queue.shared.bus.realtime())?,
        other => unmodelled(cx, "RELEASE_MEM.DATA_SEL", other),
    }
    let data = wide(body[4], body[5]);
    let send = match field(body[1], 24, 3) {
        // send_interrupt_only, _after_write_confirm, unconditionally_send_int_ctxid
        1 | 2 | 4 => true,
        5 => u64::from(cx.view().read32(address & !3)?) == data & 0xffff_ffff,
        6 => cx.view().read64(address & !7)? == data,
        _ => false,
    };
    if send {
        let context = body.get(6).copied().unwrap_or(0);
        cx.queue
            .shared
            .end_of_pipe(cx.queue, SOURCE_END_OF_PIPE, context);
    }
    Ok(Flow::Next)
}

fn fence(cx: &Cx<'_>, address: u64, bytes: &[u8]) -> Result<(), Fault> {
    let bus = cx.view().bus;
    bus.write_fence(FenceKind::ReleaseMem, cx.source.space, address, bytes)
}

/// ATOMIC_MEM: control (ATOMIC 6:0, COMMAND 11:8), address, source, compare, interval.
pub fn atomic_mem(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let atomic = Atomic {
        op: field(body[0], 0, 7),
        address: wide(body[1], body[2]),
        source: wide(body[3], body[4]),
        compare: wide(body[5], body[6]),
    };
    match atomic.execute(cx.view())? {
        None => unmodelled(cx, "ATOMIC_MEM.ATOMIC", atomic.op),
        // loop_until_compare_satisfied
        Some(old) if field(body[0], 8, 4) == 1 && old != atomic.compare => return Ok(Flow::Wait),
        Some(_) => {}
    }
    Ok(Flow::Next)
}

/// DMA_DATA: control (DST_SEL 21:20, SRC_SEL 30:29), source or data, destination, BYTE_COUNT 25:0.
pub fn dma_data(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let (source, destination) = (wide(body[1], body[2]), wide(body[3], body[4]));
    let count = field(body[5], 0, 26) as usize;
    let mut bytes = vec![0; count];
    match field(body[0], 29, 2) {
        0 | 3 => cx.view().bus.read(cx.source.space, source, &mut bytes)?,
        // DATA
        2 => bytes.chunks_mut(4).for_each(|to| {
            to.copy_from_slice(&body[1].to_le_bytes()[..to.len()]);
        }),
        other => unmodelled(cx, "DMA_DATA.SRC_SEL", other),
    }
    match field(body[0], 20, 2) {
        0 | 3 => cx.view().bus.write(cx.source.space, destination, &bytes)?,
        other => unmodelled(cx, "DMA_DATA.DST_SEL", other),
    }
    Ok(Flow::Next)
}

/// COND_EXEC: address, control, EXEC_COUNT 13:0: skips that many dwords if the dword is zero.
pub fn cond_exec(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let condition = cx.view().read32(wide(body[0], body[1]) & !3)?;
    let count = u64::from(field(body[3], 0, 14));
    Ok(if condition == 0 {
        Flow::Skip(count)
    } else {
        Flow::Next
    })
}

fn unmodelled(cx: &Cx<'_>, what: &'static str, value: u32) {
    cx.queue.shared.stats.count(what);
    tracing::warn!(slot = ?cx.queue.slot, what, value, "not modelled");
}
