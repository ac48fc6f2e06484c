// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! PM4 packets that move or watch data in memory and registers. Layouts: `amdgpu/soc15d.h`, one
//! function a packet.

use super::{Cx, Flow, Outcome};
use crate::cp::layout::{
    atomic_mem as atomic, atomic_mem_command, copy_data as copy, copy_data_dst_sel as copy_to,
    copy_data_src_sel as copy_from, dma_data as dma, release_mem as release,
    release_mem_data_sel as data_sel, release_mem_int_sel as int_sel, wait_reg_mem as polled,
    wait_reg_mem_mem_space, wait_reg_mem_operation, write_data as write, write_data_dst_sel,
};
use crate::cp::SOURCE_END_OF_PIPE;
use crate::inject::rule::FenceKind;
use crate::limited::warn_limited;
use crate::processor::atomic::Atomic;
use crate::processor::bus::{wide, Fault};
use crate::processor::packet::{compare, field};

/// WRITE_DATA.DST_SEL: memory, through GRBM (a comment of `soc15d.h`).
const WRITE_MEMORY_SYNC: u32 = 1;
/// COPY_DATA.DST_SEL: the same.
const COPY_MEMORY_SYNC: u32 = 1;

/// WRITE_DATA: control (DST_SEL 11:8, ADDR_INCR 16), address low, high, data.
pub fn write_data(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let one_address = write::ADDR_INCR.is_set(body);
    let data = &body[3..];
    match write::DST_SEL.of(body) {
        write_data_dst_sel::MEM_MAPPED_REGISTER => {
            let first = write::DST_MMREG_ADDR.of(body);
            for (at, value) in (0..).zip(data) {
                cx.reg_write(if one_address { first } else { first + at }, *value);
            }
        }
        WRITE_MEMORY_SYNC | write_data_dst_sel::TC_L2 | write_data_dst_sel::MEMORY => {
            let first = write::DST_MEM_ADDR_LO.wide(body);
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
    let is_wide = copy::COUNT_SEL.is_set(body);
    let value = match copy::SRC_SEL.of(body) {
        copy_from::MEM_MAPPED_REGISTER | copy_from::PERFCOUNTERS => {
            let register = copy::SRC_REG_OFFSET.of(body);
            let high = if is_wide {
                cx.reg_read(register + 1)
            } else {
                0
            };
            wide(cx.reg_read(register), high)
        }
        copy_from::MEMORY | copy_from::TC_L2 if is_wide => {
            cx.view().read64(copy::SRC_64B_ADDR_LO.wide(body))?
        }
        copy_from::MEMORY | copy_from::TC_L2 => {
            cx.view().read32(copy::SRC_32B_ADDR_LO.wide(body))?.into()
        }
        copy_from::IMMEDIATE_DATA => wide(body[1], body[2]),
        copy_from::GPU_CLOCK_COUNT => cx.queue.shared.bus.realtime(),
        other => {
            unmodelled(cx, "COPY_DATA.SRC_SEL", other);
            return Ok(Flow::Next);
        }
    };
    match copy::DST_SEL.of(body) {
        copy_to::MEM_MAPPED_REGISTER | copy_to::PERFCOUNTERS => {
            let register = copy::DST_REG_OFFSET.of(body);
            cx.reg_write(register, value as u32);
            if is_wide {
                cx.reg_write(register + 1, (value >> 32) as u32);
            }
        }
        COPY_MEMORY_SYNC | copy_to::TC_L2 | copy_to::MEMORY if is_wide => {
            cx.view().write64(copy::DST_64B_ADDR_LO.wide(body), value)?;
        }
        COPY_MEMORY_SYNC | copy_to::TC_L2 | copy_to::MEMORY => {
            let destination = copy::DST_32B_ADDR_LO.wide(body);
            cx.view().write32(destination, value as u32)?;
        }
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
    let memory = polled::MEM_SPACE.of(body) == wait_reg_mem_mem_space::MEMORY_SPACE;
    let (mut reference, mask) = if is_wide {
        (wide(body[3], body[4]), wide(body[5], body[6]))
    } else {
        (body[3].into(), body[4].into())
    };
    let value = if memory {
        let address = polled::MEM_POLL_ADDR_LO.wide(body);
        if is_wide {
            cx.view().read64(address & !7)?
        } else {
            cx.view().read32(address)?.into()
        }
    } else if polled::OPERATION.of(body) == wait_reg_mem_operation::WR_WAIT_WR_REG {
        // Write the reference to the first register, wait on the second until the bits of the mask
        // are the reference's: amdgpu writes an invalidation and waits for its VMID's bit.
        cx.reg_write(polled::REG_WRITE_ADDR1.of(body), reference as u32);
        reference &= mask;
        cx.reg_read(polled::REG_WRITE_ADDR2.of(body)).into()
    } else {
        cx.reg_read(polled::REG_POLL_ADDR.of(body)).into()
    };
    Ok(
        if compare(polled::FUNCTION.of(body), value & mask, reference) {
            Flow::Next
        } else {
            Flow::Wait
        },
    )
}

/// RELEASE_MEM: the caches' actions first, then the data, then the interrupt.
pub fn release_mem(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    if let Some(caches) = cx.queue.shared.bus.caches() {
        let xcc = cx.queue.slot.xcc;
        if release::TC_WB_ACTION_ENA.is_set(body) {
            caches.write_back(xcc);
        }
        let vector = release::TCL1_ACTION_ENA.is_set(body);
        caches.invalidate(xcc, [vector, false, false]);
    }
    let (address, wide_address) = (
        release::ADDRESS_LO_32B.wide(body),
        release::ADDRESS_LO_64B.wide(body),
    );
    let data = release::DATA_LO.wide(body);
    match release::DATA_SEL.of(body) {
        data_sel::NONE => {}
        data_sel::SEND_32_BIT_LOW => fence(cx, address, &(data as u32).to_le_bytes())?,
        data_sel::SEND_64_BIT_DATA => fence(cx, wide_address, &data.to_le_bytes())?,
        data_sel::SEND_GPU_CLOCK_COUNTER | data_sel::SEND_CP_PERFCOUNTER_HI_LO => cx
            .view()
            .write64(wide_address, cx.queue.shared.bus.realtime())?,
        other => unmodelled(cx, "RELEASE_MEM.DATA_SEL", other),
    }
    let send = match release::INT_SEL.of(body) {
        int_sel::SEND_INTERRUPT_ONLY
        | int_sel::SEND_INTERRUPT_AFTER_WRITE_CONFIRM
        | int_sel::UNCONDITIONALLY_SEND_INT_CTXID => true,
        int_sel::CONDITIONALLY_SEND_INT_CTXID_BASED_ON_32_BIT_COMPARE => {
            cx.view().read32(address)? == data as u32
        }
        int_sel::CONDITIONALLY_SEND_INT_CTXID_BASED_ON_64_BIT_COMPARE => {
            cx.view().read64(wide_address)? == data
        }
        _ => false,
    };
    if send {
        let context = release::INT_CTXID.of(body);
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
    let operation = Atomic {
        op: atomic::ATOMIC.of(body),
        address: wide(body[1], body[2]),
        source: wide(body[3], body[4]),
        compare: wide(body[5], body[6]),
    };
    let loops = atomic::COMMAND.of(body) == atomic_mem_command::LOOP_UNTIL_COMPARE_SATISFIED;
    match operation.execute(cx.view())? {
        None => unmodelled(cx, "ATOMIC_MEM.ATOMIC", operation.op),
        Some(old) if loops && !operation.is_satisfied(old) => return Ok(Flow::Wait),
        Some(_) => {}
    }
    Ok(Flow::Next)
}

/// DMA_DATA: control (DST_SEL 21:20, SRC_SEL 30:29), source or data, destination, BYTE_COUNT 25:0.
pub fn dma_data(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let (source, destination) = (wide(body[1], body[2]), wide(body[3], body[4]));
    let count = field(body[5], 0, 26) as usize;
    let mut bytes = vec![0; count];
    match dma::SRC_SEL.of(body) {
        0 | 3 => cx.view().bus.read(cx.source.space, source, &mut bytes)?,
        // DATA
        2 => bytes.chunks_mut(4).for_each(|to| {
            to.copy_from_slice(&body[1].to_le_bytes()[..to.len()]);
        }),
        other => unmodelled(cx, "DMA_DATA.SRC_SEL", other),
    }
    match dma::DST_SEL.of(body) {
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
    let (stats, slot) = (&cx.queue.shared.stats, cx.queue.slot);
    stats.count(what);
    warn_limited!(
        stats.limited,
        slot.number(),
        ?slot,
        what,
        value,
        "not modelled"
    );
}
