// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! User queues that the driver loads and takes off through registers, without the hardware
//! scheduler.

use crate::cp::mqd::dw;
use crate::cp::packet::op;
use crate::cp::reg::CpRegister;
use crate::flat::{pkt, Rig, Setup};
use crate::inject::rule::{Hang, OnUnmap};
use crate::processor::lock;

const VMID: u8 = 9;
const PASID: u16 = 0x42;
const RLC0: u32 = 0x130;
const RLC1: u32 = RLC0 + 0x58;
const RING: u64 = 0x20_0000;
const AT: u64 = 0x30_0000;

const QUEUE: Setup = Setup {
    mqd: 0x28_0000,
    ring: 0x29_0000,
    order: 8,
    doorbell: 0x1200,
    aql: false,
    privileged: false,
    rptr: 0x28_0880,
    wptr: 0x28_0900,
    silent: false,
};

fn rig() -> Rig {
    let rig = Rig::sync();
    lock(&rig.flat.pasids)[usize::from(VMID)] = PASID;
    rig
}

/// Loads the queue as kgd_gfx_v9_4_3_hqd_load() does.
fn load(rig: &Rig) {
    rig.select(0, 1, 2, 3);
    for dword in 128..187 {
        rig.set_hqd(0, dword, rig.read(QUEUE.mqd + 4 * dword as u64));
    }
    rig.set_hqd(0, dw::CP_HQD_VMID, VMID.into());
    rig.set_hqd(0, dw::CP_HQD_PQ_WPTR_POLL_ADDR_LO, QUEUE.wptr as u32);
    rig.cp
        .reg_write(0, CpRegister::CP_PQ_WPTR_POLL_CNTL1, 0, 1 << 19);
    rig.set_hqd(0, dw::CP_HQD_ACTIVE, 1);
    rig.runner.poll();
}

/// A packet with an end-of-pipe interrupt: RELEASE_MEM.
fn end_of_pipe(value: u32) -> [u32; 8] {
    let head = pkt(op::RELEASE_MEM as u32, 7);
    [head, 0x514, 2 << 29 | 2 << 24, AT as u32, 0, value, 0, 7]
}

#[test]
fn a_queue_loaded_by_registers_has_the_pasid_of_its_vmid() {
    let rig = rig();
    rig.write_mqd(QUEUE);
    // Rung before it is loaded: the write pointer is read from memory.
    rig.submit(QUEUE, &end_of_pipe(5));
    load(&rig);
    assert_eq!(rig.read(AT), 5);
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    assert_eq!(
        (interrupts[0].vmid, interrupts[0].pasid),
        (VMID, Some(PASID))
    );
    rig.set_hqd(0, dw::CP_HQD_DEQUEUE_REQUEST, 3);
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 0);
    assert_eq!(rig.read(QUEUE.mqd + 4 * dw::CP_HQD_PQ_RPTR as u64), 8);
}

#[test]
fn translations_of_a_pasid_are_forgotten_in_the_vmid_that_the_driver_gave_it() {
    let rig = rig();
    lock(&rig.flat.flushes).clear();
    let by_pasid = 1 | u32::from(PASID) << 5;
    rig.kiq(0, &[pkt(op::INVALIDATE_TLBS as u32, 1), by_pasid]);
    assert_eq!(*lock(&rig.flat.flushes), [Some(VMID)]);
}

#[test]
fn a_queue_that_hangs_hears_no_dequeue_request() {
    let hangs = [
        (OnUnmap::Works, 0, 0),
        (OnUnmap::Reported, 1, 0),
        (OnUnmap::Waits, 1, 1),
    ];
    for (on_unmap, dequeued, reset) in hangs {
        let rig = rig();
        rig.write_mqd(QUEUE);
        *lock(&rig.flat.hang) = Some(Hang {
            on_unmap,
            ..Hang::default()
        });
        rig.submit(QUEUE, &end_of_pipe(5));
        load(&rig);
        rig.set_hqd(0, dw::CP_HQD_DEQUEUE_REQUEST, 3);
        assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), dequeued, "{on_unmap:?}");
        rig.cp
            .reg_write(0, CpRegister::SPI_COMPUTE_QUEUE_RESET, 0, 1);
        assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), reset, "{on_unmap:?}");
    }
}

/// Loads a copy ring as kgd_gfx_v9_4_3_hqd_sdma_load() does, up to RB_CNTL.
fn load_ring(rig: &Rig, wptr: u32) {
    let set = |at: u32, value: u32| assert!(rig.sdma.reg_write(0, RLC1 + at, value));
    let cntl = 10 << 1 | 1 << 12 | u32::from(VMID) << 24;
    rig.sdma.reg_write(0, 0x6d, 1);
    set(0x00, cntl);
    assert_eq!(status(rig) & 4, 4);
    set(0x2b, 0x1300 << 2);
    set(0x12, 1 << 28);
    set(0x35, 1);
    set(0x05, wptr);
    set(0x35, 0);
    set(0x01, (RING >> 8) as u32);
    set(0x09, (RING + 0x8000) as u32);
    set(0x00, cntl | 1);
    rig.runner.poll();
}

fn status(rig: &Rig) -> u32 {
    rig.sdma.reg_read(0, RLC1 + 0x11).unwrap()
}

#[test]
fn a_copy_ring_loaded_by_registers_has_the_pasid_of_its_vmid() {
    let rig = rig();
    rig.write(RING, &[6, 0xabc]);
    load_ring(&rig, 8);
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    let trap = interrupts[0];
    assert_eq!(
        (trap.vmid, trap.pasid, trap.ring_id),
        (VMID, Some(PASID), 3)
    );
    // As kgd_gfx_v9_4_3_hqd_sdma_destroy() leaves it: enabled, but without a doorbell nothing is
    // fetched.
    let cntl = rig.sdma.reg_read(0, RLC1).unwrap();
    rig.sdma.reg_write(0, RLC1, cntl & !1);
    assert_eq!(status(&rig) & 4, 4);
    rig.sdma.reg_write(0, RLC1 + 0x12, 0);
    rig.sdma.reg_write(0, RLC1, cntl);
    rig.write(RING + 8, &[6, 0xabc]);
    rig.sdma.reg_write(0, RLC1 + 5, 16);
    rig.runner.poll();
    assert_eq!(rig.sdma.reg_read(0, RLC1 + 3), Some(8));
    assert!(rig.interrupts().is_empty());
}

#[test]
fn a_copy_ring_in_an_indirect_buffer_ends_it_before_it_is_idle() {
    let rig = rig();
    // The buffer polls memory for a 1, then traps.
    let poll = [
        8 | 1 << 31 | 3 << 28,
        AT as u32,
        0,
        1,
        u32::MAX,
        0xfff << 16 | 4,
    ];
    rig.write(AT + 0x100, &poll);
    rig.write(AT + 0x100 + 24, &[6, 0x123]);
    rig.write(RING, &[4, (AT + 0x100) as u32, 0, 8, 0, 0, 6, 0xabc]);
    load_ring(&rig, 32);
    assert_eq!(status(&rig) & 5, 1);
    let cntl = rig.sdma.reg_read(0, RLC1).unwrap();
    rig.sdma.reg_write(0, RLC1, cntl & !1);
    assert_eq!(status(&rig) & 5, 1, "not idle before the buffer's end");
    rig.write(AT, &[1]);
    rig.wait("idle", |rig| status(rig) & 4 != 0);
    let traps: Vec<u32> = rig.interrupts().iter().map(|it| it.data[0]).collect();
    assert_eq!(traps, [0x123], "the packet after it waits");
    assert_eq!(rig.sdma.reg_read(0, RLC1 + 3), Some(24));
}
