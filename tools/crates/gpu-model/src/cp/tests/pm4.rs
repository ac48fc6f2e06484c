// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! PM4 packets of the kernel's rings and of user queues.

use crate::cp::packet::op;
use crate::cp::{SOURCE_END_OF_PIPE, SOURCE_PRIV_REG};
use crate::engine::Progress;
use crate::flat::{kernel_ring, pkt, Rig, Setup};
use crate::processor::lock;
use crate::processor::runner::Job;

const RING: Setup = kernel_ring(0x20_0000, 0x10);
const AT: u32 = 0x3_0000;

fn rig() -> Rig {
    let rig = Rig::sync();
    rig.map_by_kiq(0, (0, 0), 0, RING);
    rig
}

fn p(op: u8, body: u32) -> u32 {
    pkt(op.into(), body)
}

#[test]
fn write_data_goes_up_or_stays() {
    let rig = rig();
    rig.submit(RING, &[p(op::WRITE_DATA, 5), 5 << 8, AT, 0, 1, 2]);
    assert_eq!([rig.read(AT.into()), rig.read(AT as u64 + 4)], [1, 2]);
    rig.submit(RING, &[p(op::WRITE_DATA, 5), 5 << 8 | 1 << 16, AT, 0, 3, 4]);
    assert_eq!([rig.read(AT.into()), rig.read(AT as u64 + 4)], [4, 2]);
}

#[test]
fn copy_data_moves_registers_memory_and_the_clock() {
    let rig = rig();
    lock(&rig.flat.registers).insert((0, 0x2345), 99);
    rig.submit(RING, &[p(op::COPY_DATA, 5), 5 << 8, 0x2345, 0, AT, 0]);
    assert_eq!(rig.read(AT.into()), 99);
    rig.submit(
        RING,
        &[p(op::COPY_DATA, 5), 9 | 5 << 8 | 1 << 16, 0, 0, AT, 0],
    );
    assert_eq!(rig.read64(AT.into()), 1234);
    rig.submit(
        RING,
        &[p(op::COPY_DATA, 5), 1 | 5 << 8 | 1 << 16, AT, 0, AT + 8, 0],
    );
    assert_eq!(rig.read64(AT as u64 + 8), 1234);
}

#[test]
fn wait_reg_mem_holds_the_ring_until_it_is_so() {
    let rig = rig();
    rig.submit(
        RING,
        &[p(op::WAIT_REG_MEM, 6), 3 | 1 << 4, AT, 0, 5, 0xff, 4],
    );
    rig.submit(RING, &[p(op::WRITE_DATA, 4), 5 << 8, AT + 4, 0, 1]);
    rig.runner.poll();
    assert_eq!(rig.read(AT as u64 + 4), 0);
    rig.write(AT.into(), &[0x1205]);
    rig.runner.poll();
    assert_eq!(rig.read(AT as u64 + 4), 1);
}

#[test]
fn write_wait_register_pairs_flush_hdp() {
    let rig = rig();
    lock(&rig.flat.registers).insert((0, 0xe27), 4);
    rig.submit(
        RING,
        &[p(op::WAIT_REG_MEM, 6), 3 | 1 << 6, 0xe26, 0xe27, 4, 4, 0x20],
    );
    rig.submit(RING, &[p(op::WRITE_DATA, 4), 5 << 8, AT, 0, 1]);
    assert_eq!(lock(&rig.flat.registers).get(&(0, 0xe26)), Some(&4));
    assert_eq!(rig.read(AT.into()), 1);
}

/// What is written has more bits than what is waited for: `gfx_v9_0.c` flushes TLBs so.
#[test]
fn write_wait_register_pairs_wait_for_the_masks_bits() {
    let rig = rig();
    let pair = [
        p(op::WAIT_REG_MEM, 6),
        3 | 1 << 6,
        0x28b4,
        0x28c6,
        0x7c_0004,
        4,
        0x20,
    ];
    rig.submit(RING, &pair);
    rig.submit(RING, &[p(op::WRITE_DATA, 4), 5 << 8, AT, 0, 1]);
    rig.runner.poll();
    assert_eq!(rig.read(AT.into()), 0);
    lock(&rig.flat.registers).insert((0, 0x28c6), 4);
    rig.runner.poll();
    assert_eq!(
        lock(&rig.flat.registers).get(&(0, 0x28b4)),
        Some(&0x7c_0004)
    );
    assert_eq!(rig.read(AT.into()), 1);
}

#[test]
fn release_mem_writes_and_interrupts() {
    let rig = rig();
    let release = p(op::RELEASE_MEM, 7);
    rig.submit(
        RING,
        &[release, 0x514, 2 << 29 | 2 << 24, AT, 0, 7, 8, 0x1ab],
    );
    assert_eq!(rig.read64(AT.into()), 7 | 8 << 32);
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    assert_eq!(interrupts[0].source, SOURCE_END_OF_PIPE);
    assert_eq!(interrupts[0].data[0], 0x1ab);
    assert_eq!(interrupts[0].ring_id, 1 << 2, "ME 1, pipe 0, queue 0");
    rig.submit(RING, &[release, 0x514, 3 << 29, AT, 0, 0, 0, 0]);
    assert_eq!(rig.read64(AT.into()), 1234);
    assert!(rig.interrupts().is_empty());
}

#[test]
fn indirect_buffers_run_in_their_own_vmid_and_chain() {
    let rig = rig();
    lock(&rig.flat.bases)[3] = 0x40_0000;
    rig.write(0x40_1000, &[p(op::WRITE_DATA, 4), 5 << 8, 0x2000, 0, 5]);
    let chain = [p(op::INDIRECT_BUFFER, 3), 0x1800, 0, 5 | 1 << 20 | 1 << 23];
    rig.write(0x40_1014, &chain);
    rig.write(0x40_1800, &[p(op::WRITE_DATA, 4), 5 << 8, 0x2004, 0, 6]);
    rig.submit(
        RING,
        &[p(op::INDIRECT_BUFFER, 3), 0x1000, 0, 9 | 1 << 23 | 3 << 24],
    );
    assert_eq!([rig.read(0x40_2000), rig.read(0x40_2004)], [5, 6]);
}

#[test]
fn atomics_and_dma_work_on_memory() {
    let rig = rig();
    rig.write64(AT.into(), 10);
    rig.submit(
        RING,
        &[
            p(op::ATOMIC_MEM, 8),
            0x2f,
            AT,
            0,
            u32::MAX,
            u32::MAX,
            0,
            0,
            0,
        ],
    );
    assert_eq!(rig.read64(AT.into()), 9);
    rig.submit(RING, &[p(op::DMA_DATA, 6), 0, AT, 0, AT + 64, 0, 8]);
    assert_eq!(rig.read64(AT as u64 + 64), 9);
}

/// A slice of a queue is 1024 packets; whoever changes the run list may come right after it.
#[test]
fn the_last_packet_before_a_preemption_is_executed_once() {
    const LONG: Setup = Setup { order: 11, ..RING };
    let rig = Rig::sync();
    rig.map_by_kiq(0, (0, 0), 0, LONG);
    let nothing = 2 << 30;
    let mut packets = vec![nothing; 1023];
    packets.extend([p(op::ATOMIC_MEM, 8), 0x2f, AT, 0, 1, 0, 0, 0, 0, nothing]);
    rig.write(LONG.ring, &packets);
    rig.write64(LONG.wptr, packets.len() as u64);
    let queue = rig.cp.shared.at_doorbell(LONG.doorbell).remove(0).queue;
    queue.ring(packets.len() as u64);
    assert_eq!(queue.step(), Progress::Busy);
    assert_eq!(rig.read64(AT.into()), 1);
    let unmap = [p(op::UNMAP_QUEUES, 5), 1 << 29, LONG.doorbell << 2, 0, 0, 0];
    rig.kiq(0, &unmap);
    assert_eq!(rig.read(LONG.rptr), 1023 + 9);
    let (mqd, wptr) = (LONG.mqd as u32, LONG.wptr as u32);
    let map = [
        p(op::MAP_QUEUES, 6),
        1 << 29,
        LONG.doorbell << 2,
        mqd,
        0,
        wptr,
        0,
    ];
    rig.kiq(0, &map);
    rig.runner.poll();
    assert_eq!((rig.read64(AT.into()), rig.read(LONG.rptr)), (1, 1023 + 10));
}

#[test]
fn cond_exec_skips() {
    let rig = rig();
    let write = [p(op::WRITE_DATA, 4), 5 << 8, AT + 8, 0, 1];
    rig.submit(RING, &[p(op::COND_EXEC, 4), AT, 0, 0, 5]);
    rig.submit(RING, &write);
    // The skip ends with what the ring held when it was met.
    assert_eq!(rig.read(AT as u64 + 8), 1);
    rig.write(AT as u64 + 8, &[0]);
    let mut both = vec![p(op::COND_EXEC, 4), AT, 0, 0, 5];
    both.extend(write);
    rig.submit(RING, &both);
    assert_eq!(rig.read(AT as u64 + 8), 0);
}

#[test]
fn users_do_not_write_registers() {
    let rig = Rig::sync();
    let ring = Setup {
        privileged: false,
        ..RING
    };
    rig.map_by_kiq(0, (0, 0), 0, ring);
    rig.submit(ring, &[p(op::WRITE_DATA, 4), 0, 0x2894, 0, 1]);
    assert_eq!(lock(&rig.flat.registers).get(&(0, 0x2894)), None);
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    assert_eq!(interrupts[0].source, SOURCE_PRIV_REG);
}

/// Whether a user's queue goes on after a dispatch of one work-group, with these registers set.
fn goes_on_after(set: &[u32], initiator: u32) -> bool {
    let ring = Setup {
        privileged: false,
        ..RING
    };
    let rig = Rig::sync();
    rig.map_by_kiq(0, (0, 0), 0, ring);
    rig.write(0, &[0xbf81_0000]); // s_endpgm
    let threads = [p(op::SET_SH_REG, 4), 0x207, 1, 1, 1];
    let dispatch = [p(op::DISPATCH_DIRECT, 4), 1, 1, 1, initiator];
    let after = [p(op::WRITE_DATA, 4), 5 << 8, AT, 0, 1];
    rig.submit(ring, &[&threads, set, &dispatch, &after].concat());
    rig.read(AT.into()) == 1
}

/// COMPUTE_NUM_THREAD_X.NUM_THREAD_PARTIAL has 16 bits in each dimension: without a look at them
/// one group may be millions of waves.
#[test]
fn a_partial_work_group_that_is_larger_than_a_full_one_stops_the_queue() {
    let set = |partial: u32| [p(op::SET_SH_REG, 2), 0x207, partial << 16 | 1];
    // COMPUTE_SHADER_EN, PARTIAL_TG_EN, FORCE_START_AT_000.
    assert!(goes_on_after(&set(1), 0b111));
    assert!(!goes_on_after(&set(2), 0b111));
}

#[test]
fn more_lds_than_there_is_stops_the_queue() {
    // COMPUTE_PGM_RSRC2.LDS_SIZE, in 512 bytes.
    let set = |size: u32| [p(op::SET_SH_REG, 2), 0x213, size << 15];
    assert!(goes_on_after(&set(128), 0b101));
    assert!(!goes_on_after(&set(129), 0b101));
}

#[test]
fn users_write_perf_counters_and_not_what_lies_behind_them() {
    let rig = Rig::sync();
    let ring = Setup {
        privileged: false,
        ..RING
    };
    rig.map_by_kiq(0, (0, 0), 0, ring);
    let set = |at: u32| rig.submit(ring, &[p(op::SET_UCONFIG_REG, 2), at - 0xc000, 1]);
    let is_set = |at: u32| lock(&rig.flat.registers).contains_key(&(0, at));
    // SCRATCH_REG0, the last one of SQ's counters (SQ_PERFCOUNTER_CTRL2).
    for at in [0xc040, 0xd9e2] {
        set(at);
        assert!(is_set(at), "{at:#x}");
    }
    assert!(rig.interrupts().is_empty());
    // RLC_CP_SCHEDULERS, CP_HYP_XCP_CTL.
    for at in [0xecaa, 0xf828] {
        set(at);
        assert!(!is_set(at), "{at:#x}");
        let interrupts = rig.interrupts();
        assert_eq!(interrupts.len(), 1);
        assert_eq!(interrupts[0].source, SOURCE_PRIV_REG);
    }
}

#[test]
fn a_fault_stops_the_queue_and_is_reported_once() {
    let rig = rig();
    rig.submit(RING, &[p(op::WRITE_DATA, 4), 5 << 8, 0, 0x7f, 1]);
    rig.submit(RING, &[p(op::WRITE_DATA, 4), 5 << 8, AT, 0, 1]);
    assert_eq!(rig.faults().len(), 1);
    assert_eq!(rig.read(AT.into()), 0);
}

#[test]
fn unmodelled_packets_are_counted_by_name() {
    let rig = rig();
    rig.submit(RING, &[p(0x39, 2), 0, 0]);
    rig.submit(RING, &[p(0xee, 1), 0]);
    assert_eq!(rig.stats.get("MEM_SEMAPHORE"), 1);
    assert_eq!(rig.stats.get("illegal PM4 opcode"), 1);
    assert_eq!(
        rig.interrupts().len(),
        1,
        "only the illegal one is an error"
    );
}
