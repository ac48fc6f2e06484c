// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The KIQ: bring-up through registers, ring test, fences, mapping and unmapping the kernel's
//! rings.

use crate::cp::mqd::dw;
use crate::cp::packet::op;
use crate::cp::reg::{offset, CpRegister};
use crate::flat::{kernel_ring, pkt, Rig};
use crate::ih::client;
use crate::processor::lock;
use crate::processor::runner::Mode;

const SCRATCH_REG0: u32 = 0xc040;

fn scratch(rig: &Rig, xcc: u8) -> Option<u32> {
    lock(&rig.flat.registers).get(&(xcc, SCRATCH_REG0)).copied()
}

/// SET_UCONFIG_REG of SCRATCH_REG0, as gfx_v9_4_3_ring_test_ring() does.
pub const RING_TEST: [u32; 3] = [pkt(op::SET_UCONFIG_REG as u32, 2), 0x40, 0xdead_beef];

#[test]
fn ring_test_reaches_the_register_of_its_own_xcc() {
    let rig = Rig::new(Mode::Sync, 2);
    rig.kiq(1, &RING_TEST);
    assert_eq!(scratch(&rig, 1), Some(0xdead_beef));
    assert_eq!(scratch(&rig, 0), None);
}

#[test]
fn the_ring_wraps_and_the_read_pointer_is_reported() {
    let rig = Rig::sync();
    for _ in 0..5 {
        let mut packets = vec![0xffff_1000; 251];
        packets.extend(RING_TEST);
        rig.kiq(0, &packets);
    }
    assert_eq!(scratch(&rig, 0), Some(0xdead_beef));
    assert_eq!(rig.read(0x10_0880), 5 * 254 % 1024);
    rig.select(0, 1, 1, 0);
    assert_eq!(rig.hqd(0, dw::CP_HQD_PQ_RPTR), 5 * 254 % 1024);
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 1);
}

#[test]
fn a_fence_writes_memory_and_raises_interrupt_178() {
    let rig = Rig::sync();
    let write = pkt(op::WRITE_DATA as u32, 4);
    rig.kiq(0, &[write, 5 << 8 | 1 << 20, 0x2_0000, 0, 77]);
    let int_status = offset(CpRegister::CPC_INT_STATUS);
    rig.kiq(0, &[write, 1 << 20, int_status, 0, 0x2000_0000]);
    assert_eq!(rig.read(0x2_0000), 77);
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    assert_eq!(
        (interrupts[0].client, interrupts[0].source),
        (client::GRBM_CP, 178)
    );
    assert_eq!(interrupts[0].ring_id, 1 << 2 | 1);
}

#[test]
fn kernel_rings_are_mapped_run_and_unmapped() {
    let rig = Rig::sync();
    let ring = kernel_ring(0x20_0000, 0x10);
    rig.map_by_kiq(0, (2, 1), 0, ring);
    rig.select(0, 1, 2, 1);
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 1);
    rig.submit(ring, &RING_TEST);
    assert_eq!(scratch(&rig, 0), Some(0xdead_beef));
    rig.kiq(
        0,
        &[pkt(op::UNMAP_QUEUES as u32, 5), 1 << 29, 0x10 << 2, 0, 0, 0],
    );
    assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 0);
    assert_eq!(
        rig.read(ring.mqd + 4 * dw::CP_HQD_PQ_RPTR as u64),
        3,
        "saved in the MQD"
    );
    assert!(!rig.cp.doorbell(0x10 * 4, 4, 8), "nobody listens any more");
}

#[test]
fn what_was_rung_while_unmapped_runs_at_map() {
    let rig = Rig::sync();
    let ring = kernel_ring(0x20_0000, 0x10);
    rig.submit(ring, &RING_TEST);
    assert_eq!(scratch(&rig, 0), None);
    let wptr = rig.read64(ring.wptr);
    assert_eq!(wptr, 3);
    rig.map_by_kiq(0, (0, 0), 0, ring);
    assert_eq!(scratch(&rig, 0), Some(0xdead_beef));
}

#[test]
fn a_slot_that_a_reset_left_occupied_takes_the_new_queue() {
    let rig = Rig::sync();
    let ring = kernel_ring(0x20_0000, 0x10);
    rig.map_by_kiq(0, (2, 1), 0, ring);
    rig.submit(ring, &RING_TEST);
    // The driver forgets it and writes its MQD and pointers anew.
    rig.write64(ring.wptr, 0);
    rig.map_by_kiq(0, (2, 1), 0, ring);
    lock(&rig.flat.registers).clear();
    rig.submit(ring, &RING_TEST);
    assert_eq!(scratch(&rig, 0), Some(0xdead_beef));
    assert_eq!(rig.read(ring.rptr), 3);
    assert_eq!(rig.stats.all(), []);
}

#[test]
fn dequeue_request_and_queue_reset_free_the_slot() {
    let rig = Rig::sync();
    let ring = kernel_ring(0x20_0000, 0x10);
    for reset in [false, true] {
        rig.map_by_kiq(0, (0, 3), 0, ring);
        rig.select(0, 1, 0, 3);
        assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 1);
        if reset {
            rig.cp
                .reg_write(0, CpRegister::SPI_COMPUTE_QUEUE_RESET, 0, 1);
        } else {
            rig.set_hqd(0, dw::CP_HQD_DEQUEUE_REQUEST, 1);
        }
        assert_eq!(rig.hqd(0, dw::CP_HQD_ACTIVE), 0);
        rig.select(0, 0, 0, 0);
    }
}

#[test]
fn an_mqd_that_is_not_there_is_a_fault_and_nothing_else() {
    let rig = Rig::sync();
    let lost = 0xff00_0000;
    rig.kiq(
        0,
        &[pkt(op::MAP_QUEUES as u32, 6), 1 << 29, 0x40, lost, 0, 0, 0],
    );
    assert_eq!(rig.faults().len(), 1);
    rig.kiq(0, &RING_TEST);
    assert_eq!(scratch(&rig, 0), Some(0xdead_beef), "the KIQ goes on");
}

#[test]
fn no_packet_panics() {
    let rig = Rig::sync();
    let ring = kernel_ring(0x20_0000, 0x10);
    let mut seed = 1u32;
    for opcode in 0..=255 {
        rig.map_by_kiq(0, (0, 0), 0, ring);
        let mut packet = vec![pkt(opcode, 20)];
        packet.extend((0..20).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Small enough to be an address now and then.
            seed >> (seed & 31)
        }));
        rig.submit(ring, &packet);
        for short in 1..6 {
            rig.submit(ring, &[pkt(opcode, short), 1, 2, 3, 4, 5, 6]);
        }
        rig.kiq(
            0,
            &[
                pkt(op::UNMAP_QUEUES as u32, 5),
                1 | 1 << 29,
                0x10 << 2,
                0,
                0,
                0,
            ],
        );
        rig.write64(ring.wptr, 0);
    }
    rig.kiq(0, &RING_TEST);
    assert_eq!(scratch(&rig, 0), Some(0xdead_beef));
    assert_eq!(rig.stats.get("steps of a queue that panicked"), 0);
}
