// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SDMA rings as the kernel and user queues use them.

use std::sync::atomic::Ordering;

use gcn::Target;

use crate::flat::Rig;
use crate::nbio::GPU_HDP_FLUSH_REQ;
use crate::processor::copy::{CopyEngines, Filter, RlcQueue};
use crate::processor::lock;
use crate::processor::runner::Mode;

const GFX: u32 = 0x80;
const RLC0: u32 = 0x130;
/// The rings that the first user queue of an engine gets, and the second one.
const RLC7: u32 = RLC0 + 7 * 0x58;
const RLC6: u32 = RLC0 + 6 * 0x58;
const RING: u64 = 0x20_0000;
const DOORBELL: u32 = 0x200;
const AT: u64 = 0x30_0000;

/// Brings up the GFX ring of an engine as sdma_v4_4_2_gfx_resume() does.
fn start(rig: &Rig, engine: u8) {
    let set = |at: u32, value: u32| assert!(rig.sdma.reg_write(engine, GFX + at, value));
    let rptr_report = RING + 0x8000;
    set(0x08, 0);
    set(0x09, rptr_report as u32);
    set(0x01, (RING >> 8) as u32);
    set(0x12, 1 << 28);
    set(0x2b, DOORBELL << 2);
    rig.sdma.reg_write(engine, 0x6d, 1);
    set(0x00, 1 | 10 << 1 | 1 << 12);
}

fn rig() -> Rig {
    let rig = Rig::sync();
    start(&rig, 0);
    rig
}

/// Appends packets; pointers are in bytes. The test's copy of the write pointer is behind the ring.
fn submit(rig: &Rig, packets: &[u32]) {
    let at = rig.read64(RING + 0x9000);
    for (n, dword) in (at / 4..).zip(packets) {
        rig.write(RING + n % 1024 * 4, &[*dword]);
    }
    let wptr = at + 4 * packets.len() as u64;
    rig.write64(RING + 0x9000, wptr);
    assert!(rig.sdma.doorbell(u64::from(DOORBELL) * 4, wptr, 8));
}

#[test]
fn a_fault_of_the_model_costs_the_kernels_ring_and_not_the_doorbells_thread() {
    let rig = rig();
    rig.runner.poll();
    *lock(&rig.flat.breaks) = AT..AT + 1;
    submit(&rig, &[5, AT as u32, 0, 42]);
    assert_eq!(rig.stats.get("steps of a queue that panicked"), 1);
    *lock(&rig.flat.breaks) = 0..0;
    submit(&rig, &[5, AT as u32 + 4, 0, 43]);
    assert_eq!([rig.read(AT), rig.read(AT + 4)], [42, 43]);
}

#[test]
fn write_fence_and_trap() {
    let rig = rig();
    submit(&rig, &[2, AT as u32, 0, 1, 0xdead_beef, 5]);
    submit(&rig, &[5, AT as u32 + 16, 0, 42, 6, 0xabc]);
    assert_eq!(
        [rig.read(AT), rig.read(AT + 4), rig.read(AT + 16)],
        [0xdead_beef, 5, 42]
    );
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    let trap = interrupts[0];
    assert_eq!((trap.client, trap.source, trap.ring_id), (8, 224, 0));
    assert_eq!(trap.data[0], 0xabc);
    assert_eq!(rig.read64(RING + 0x8000), 48, "read pointer in bytes");
}

/// SDMA_CNTL is 0 after a reset: the driver enables its interrupts again.
#[test]
fn a_reset_disables_traps() {
    let rig = rig();
    rig.sdma.reset(Some(0));
    let set = |at: u32, value: u32| assert!(rig.sdma.reg_write(0, GFX + at, value));
    set(0x01, (RING >> 8) as u32);
    set(0x2b, DOORBELL << 2);
    set(0x12, 1 << 28);
    set(0x00, 1 | 10 << 1 | 1 << 12);
    submit(&rig, &[6, 0xabc]);
    assert!(rig.interrupts().is_empty());
    rig.sdma.reg_write(0, 0x6d, 1);
    submit(&rig, &[6, 0xabd]);
    assert_eq!(rig.interrupts().len(), 1);
}

#[test]
fn copies_and_fills_are_of_bytes() {
    let rig = rig();
    rig.write(AT, &[0x0403_0201, 0x0807_0605]);
    submit(&rig, &[1, 5 - 1, 0, AT as u32, 0, AT as u32 + 64, 0]);
    assert_eq!(rig.read64(AT + 64), 0x05_0403_0201);
    submit(&rig, &[11, AT as u32 + 128, 0, 0x1111_2222, 8 - 1]);
    assert_eq!(rig.read64(AT + 128), 0x1111_2222_1111_2222);
    submit(&rig, &[11 | 2 << 30, AT as u32 + 256, 0, 7, 4]);
    assert_eq!(rig.read64(AT + 256), 7 << 32 | 7);
    assert_eq!(rig.read(AT + 264), 0);
}

#[test]
fn a_window_is_copied_row_by_row() {
    let rig = rig();
    for n in 0..16u32 {
        rig.write(AT + 4 * u64::from(n), &[n]);
    }
    // Elements of 4 bytes; source 4 wide, the 2x2 box at (1, 1) to an array 2 wide.
    let to = AT as u32 + 0x100;
    let packet = [
        1 | 4 << 8 | 2 << 29,
        AT as u32,
        0,
        1 | 1 << 16,
        3 << 13,
        15,
        to,
        0,
        0,
        1 << 13,
        3,
        1 | 1 << 16,
        0,
    ];
    submit(&rig, &packet);
    let copied = [0, 4, 8, 12].map(|at| rig.read(u64::from(to) + at));
    assert_eq!(copied, [5, 6, 9, 10]);
}

#[test]
fn page_table_entries_are_generated() {
    let rig = rig();
    submit(&rig, &[12, AT as u32, 0, 0x71, 0, 0x1000, 0, 0x1000, 0, 2]);
    let entries = [0, 8, 16, 24].map(|at| rig.read64(AT + at));
    assert_eq!(entries, [0x1071, 0x2071, 0x3071, 0]);
}

#[test]
fn polls_atomics_conditions_and_registers() {
    let rig = rig();
    // POLL_REGMEM of memory, == 3.
    submit(&rig, &[8 | 3 << 28 | 1 << 31, AT as u32, 0, 3, 0xff, 0]);
    submit(
        &rig,
        &[
            10 | 0x2f << 25,
            AT as u32 + 8,
            0,
            u32::MAX,
            u32::MAX,
            0,
            0,
            0,
        ],
    );
    rig.runner.poll();
    assert_eq!(rig.read64(AT + 8), 0);
    rig.write(AT, &[0x103]);
    rig.runner.poll();
    assert_eq!(rig.read64(AT + 8), u64::MAX);
    // COND_EXE: skips the 4 dwords of a FENCE unless the dword is 1.
    submit(&rig, &[9, AT as u32, 0, 1, 4, 5, AT as u32 + 32, 0, 9]);
    assert_eq!(rig.read(AT + 32), 0);
    // SRBM_WRITE of the low half, then POLL_REGMEM of the register.
    submit(&rig, &[14 | 3 << 28, 0x1234, 0xffff_5678]);
    submit(&rig, &[8 | 3 << 28, 0x1234 << 2, 0, 0x5678, u32::MAX, 0]);
    submit(&rig, &[5, AT as u32 + 32, 0, 9]);
    assert_eq!(rig.read(AT + 32), 9);
    submit(&rig, &[13 | 2 << 8, AT as u32 + 40, 0]);
    assert_eq!(rig.read64(AT + 40), 1234);
}

/// The high half of the operand is not compared.
#[test]
fn an_atomic_of_a_dword_that_loops_ends() {
    let rig = rig();
    rig.write(AT, &[5]);
    // CMPSWAP_RTN_32 until it is 5.
    let packet = [10 | 1 << 16 | 8 << 25, AT as u32, 0, 6, 0, 5, u32::MAX, 20];
    submit(&rig, &packet);
    submit(&rig, &[5, AT as u32 + 8, 0, 9]);
    assert_eq!([rig.read(AT), rig.read(AT + 8)], [6, 9]);
}

#[test]
fn indirect_buffers_choose_their_vmid() {
    let rig = rig();
    lock(&rig.flat.bases)[5] = 0x40_0000;
    rig.write(0x40_0100, &[5, 0x2000, 0, 3, 0, 0, 0, 0]);
    submit(&rig, &[4 | 5 << 16, 0x100, 0, 8, 0, 0]);
    assert_eq!(rig.read(0x40_2000), 3);
}

#[test]
fn the_second_engine_has_its_own_client_and_wraps() {
    let rig = Rig::sync();
    start(&rig, 1);
    for _ in 0..3 {
        let mut packets = vec![0; 500];
        packets.extend([6, 1]);
        submit(&rig, &packets);
    }
    let clients: Vec<u8> = rig.interrupts().iter().map(|trap| trap.client).collect();
    assert_eq!(clients, [9, 9, 9]);
    assert_eq!(rig.read64(RING + 0x8000), 3 * 502 * 4);
}

#[test]
fn no_doorbell_is_lost_between_threads() {
    let rig = Rig::new(Mode::Threads(2), 1);
    start(&rig, 0);
    for n in 1..=20_000 {
        submit(&rig, &[5, AT as u32, 0, n]);
        // As soon as the fence is there the ring may still be on its way to rest.
        rig.wait("fence", |rig| rig.read(AT) == n);
    }
}

#[test]
fn no_packet_panics() {
    let rig = rig();
    let mut seed = 7u32;
    for header in 0..=0xffffu32 {
        let mut packet = [header; 16];
        for dword in &mut packet[1..] {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *dword = seed >> (seed & 31);
        }
        if header % 16 == 0 || header < 0x800 {
            submit(&rig, &packet);
            // Stop and start: what hung is gone.
            rig.sdma.reg_write(0, GFX, 0);
            rig.sdma.reg_write(0, GFX + 3, 0);
            rig.sdma.reg_write(0, GFX + 5, 0);
            rig.write64(RING + 0x9000, 0);
            rig.sdma.reg_write(0, GFX, 1 | 10 << 1 | 1 << 12);
        }
    }
    submit(&rig, &[5, AT as u32, 0, 42]);
    assert_eq!(rig.read(AT), 42);
    assert_eq!(rig.stats.get("steps of a queue that panicked"), 0);
}

#[test]
fn a_doorbell_does_not_wait_for_a_large_box_of_single_bytes() {
    let rig = Rig::new(Mode::Threads(1), 1);
    start(&rig, 0);
    let to = AT as u32 + 0x1_0000;
    let rows = [0x3fff << 16, 0x7ff];
    let window = [
        1 | 4 << 8,
        AT as u32,
        0,
        0,
        0,
        0,
        to,
        0,
        0,
        0,
        0,
        rows[0],
        rows[1],
    ];
    submit(&rig, &window);
    // Each of 2^25 rows is two of them.
    let accesses = rig.flat.accesses.load(Ordering::Relaxed);
    assert!(
        (1 << 12..1 << 23).contains(&accesses),
        "{accesses} accesses"
    );
}

const MQD: u64 = 0x50_0000;

fn user_queue(rig: &Rig) -> RlcQueue {
    // Seen from VMID 9 the memory begins at 6 MiB: ring at 0, pointers at 0x8000 and 0x9000.
    lock(&rig.flat.bases)[9] = 0x60_0000;
    let mut mqd = [0; 43];
    mqd[0] = 10 << 1 | 1 << 12;
    mqd[9] = 0x8000;
    mqd[22] = 0x300 << 2;
    rig.write(MQD, &mqd);
    rig.sdma.reg_write(0, 0x6d, 1);
    RlcQueue {
        mqd: MQD,
        wptr: 0x9000,
        doorbell: 0x300,
        vmid: 9,
        pasid: 0x8001,
        xcc: 0,
    }
}

#[test]
fn a_user_queue_goes_on_where_it_was() {
    let rig = Rig::sync();
    let queue = user_queue(&rig);
    rig.write(0x60_0000, &[5, 0x4000, 0, 1, 6, 3]);
    rig.write64(0x60_9000, 24);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    rig.runner.poll();
    assert_eq!(rig.read(0x60_4000), 1, "rung while unmapped");
    assert_eq!(rig.listeners(queue.doorbell), 1);
    let trap = rig.interrupts()[0];
    assert_eq!((trap.pasid, trap.vmid, trap.ring_id), (Some(0x8001), 9, 9));
    assert_eq!(
        rig.sdma.reg_read(0, RLC7),
        Some(1 | 10 << 1 | 1 << 12 | 9 << 24)
    );
    rig.sdma.unmap(None, Filter::Pasid(0x8002), true);
    assert_eq!(
        rig.sdma.reg_read(0, RLC7 + 0x2b),
        Some(0x300 << 2),
        "another process's"
    );
    rig.sdma.unmap(None, Filter::Pasid(0x8001), true);
    assert_eq!(rig.sdma.reg_read(0, RLC7 + 0x2b), Some(0));
    assert_eq!(rig.listeners(queue.doorbell), 0);
    assert_eq!([rig.read64(MQD + 12), rig.read64(MQD + 20)], [24, 24]);
    rig.write(0x60_0018, &[5, 0x4000, 0, 2]);
    rig.write64(0x60_9000, 40);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    rig.runner.poll();
    assert_eq!(rig.read(0x60_4000), 2);
    assert!(rig.interrupts().is_empty(), "nothing is replayed");
}

#[test]
fn a_long_copy_can_be_preempted_in_its_middle() {
    let rig = Rig::new(Mode::Threads(1), 1);
    let queue = user_queue(&rig);
    // 64 fills of 4 MiB each, then a fence.
    let fill = [11 | 2 << 30, 0x10_0000, 0, 7, (4 << 20) - 4];
    let mut ring: Vec<u32> = fill.repeat(64);
    ring.extend([5, 0x4000, 0, 1]);
    rig.write(0x60_0000, &ring);
    rig.write64(0x60_9000, 4 * ring.len() as u64);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    let mut turns = 0;
    while rig.read(0x60_4000) == 0 {
        rig.sdma.unmap(None, Filter::All, true);
        let before = rig.read64(MQD + 12);
        assert_eq!(
            before,
            rig.read64(MQD + 12),
            "off the hardware it stands still"
        );
        assert_eq!(rig.sdma.map(0, queue), Ok(true));
        turns += 1;
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(turns < 10_000);
    }
    assert_eq!(rig.read(0x70_0000), 7);
}

#[test]
fn a_packet_that_is_written_over_while_it_runs_does_no_harm() {
    // Fills of 8 MiB, in pieces of 1 MiB: most likely one is taken off the hardware inside.
    let fill = [11 | 2 << 30, 0x10_0000, 0, 7, (8 << 20) - 4];
    let window = [
        1 | 4 << 8,
        0x10_0000,
        0,
        0,
        0,
        0,
        0x10_1000,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let mut inside = 0;
    // One try in five or three is inside.
    for _ in 0..300 {
        let rig = Rig::new(Mode::Threads(1), 1);
        let queue = user_queue(&rig);
        let ring: Vec<u32> = fill.repeat(100);
        rig.write(0x60_0000, &ring);
        rig.write64(0x60_9000, 4 * ring.len() as u64);
        assert_eq!(rig.sdma.map(0, queue), Ok(true));
        while rig.read64(0x60_8000) == 0 {
            std::thread::yield_now();
        }
        rig.sdma.unmap(None, Filter::All, true);
        let at = rig.read64(MQD + 12);
        if at >= 4 * 5 * 95 {
            continue;
        }
        // A window of one element, where more than that has been moved already.
        rig.write(0x60_0000 + at, &[0; 25]);
        rig.write(0x60_0000 + at, &window);
        rig.write(0x60_0000 + at + 4 * 13, &[5, 0x4000, 0, 1]);
        assert_eq!(rig.sdma.map(0, queue), Ok(true));
        // Between two packets the pointer is the last one's still: it goes on behind that, with
        // words that are no packet.
        let begin = std::time::Instant::now();
        while rig.read(0x60_4000) != 1 && begin.elapsed().as_millis() < 300 {
            std::thread::yield_now();
        }
        let panicked = |(what, _): &(&str, u64)| what.contains("panicked");
        assert!(!rig.stats.all().iter().any(panicked));
        inside += u32::from(rig.read(0x60_4000) == 1);
        if inside == 3 {
            return;
        }
    }
    panic!("it was always quicker than this test");
}

#[test]
fn a_users_packet_writes_no_register_but_the_hdp_flush() {
    let rig = Rig::sync();
    let queue = user_queue(&rig);
    let flush = 4 * GPU_HDP_FLUSH_REQ;
    let ring = [
        [8 | 1 << 26, 0, 4 * 0x1234, 5, 0, 0],
        [8 | 1 << 26, 0, flush, 3, 0, 0],
    ];
    let register = |offset| lock(&rig.flat.registers).get(&(0, offset)).copied();
    rig.write(0x60_0000, &ring.concat());
    rig.write64(0x60_9000, 48);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    rig.runner.poll();
    assert_eq!(rig.read64(0x60_8000), 48);
    assert_eq!(
        (register(0x1234), register(GPU_HDP_FLUSH_REQ)),
        (None, Some(3))
    );
    assert_eq!(rig.stats.all(), [("SDMA POLL_REGMEM by a user", 1)]);
    // As ROCr asks for it: by an address.
    rig.write(0x60_0000 + 48, &[8, 0, 0x8000_0000, 0, 0, 0]);
    rig.write64(0x60_9000, 72);
    assert!(rig.sdma.doorbell(0x300 * 4, 72, 8));
    rig.runner.poll();
    assert_eq!(register(GPU_HDP_FLUSH_REQ), Some(1));
}

/// amdgpu puts a process's command buffer into its own ring, with the process's VMID.
#[test]
fn nor_does_a_users_buffer_on_the_kernels_ring() {
    let rig = rig();
    lock(&rig.flat.bases)[8] = 0x40_0000;
    let flush = 4 * GPU_HDP_FLUSH_REQ;
    let packets = [
        [8 | 1 << 26, 0, 4 * 0x1234, 5, 0, 0],
        [8 | 1 << 26, 0, flush, 3, 0, 0],
    ];
    let register = |offset| lock(&rig.flat.registers).get(&(0, offset)).copied();
    rig.write(0x40_0100, &packets.concat());
    submit(&rig, &[4 | 8 << 16, 0x100, 0, 12, 0, 0]);
    assert_eq!(
        (register(0x1234), register(GPU_HDP_FLUSH_REQ)),
        (None, Some(3))
    );
    assert_eq!(rig.stats.all(), [("SDMA POLL_REGMEM by a user", 1)]);
    submit(&rig, &[4, 0x40_0100, 0, 12, 0, 0]);
    assert_eq!(register(0x1234), Some(5));
}

#[test]
fn all_slots_taken_says_so() {
    let rig = Rig::sync();
    let queue = user_queue(&rig);
    for n in 0..8 {
        let queue = RlcQueue {
            doorbell: 0x300 + 2 * n,
            ..queue
        };
        assert_eq!(rig.sdma.map(0, queue), Ok(true));
    }
    assert_eq!(rig.sdma.map(0, queue), Ok(false));
}

#[test]
fn a_doorbell_that_is_sent_to_another_engine_is_told() {
    let wrong = "SDMA queue with a doorbell that is not its engine's";
    let by_shaders = "SDMA queue whose doorbell shaders ring another engine with";
    for (engine, doorbell, target, told) in [
        (0, 0x300, Target::Gfx942, None),
        // The odd queues' are a page further on.
        (0, 0x700, Target::Gfx942, None),
        (1, 0x300, Target::Gfx942, Some(wrong)),
        (0, 0x314, Target::Gfx942, Some(wrong)),
        (1, 0x314, Target::Gfx942, Some(by_shaders)),
        (1, 0x318, Target::Gfx942, None),
        (1, 0x314, Target::Gfx90a, None),
    ] {
        let rig = Rig::sync();
        assert!(rig.flat.target.set(target).is_ok());
        *lock(&rig.flat.sdma_doorbells) = vec![0x300..0x314, 0x314..0x328];
        let queue = RlcQueue {
            doorbell,
            ..user_queue(&rig)
        };
        assert_eq!(rig.sdma.map(engine, queue), Ok(true));
        let told: Vec<_> = told.map(|name| (name, 1)).into_iter().collect();
        assert_eq!(rig.stats.all(), told, "{engine} {doorbell:#x} {target:?}");
        // The same by registers.
        rig.sdma.unmap(None, Filter::All, true);
        let set = |at: u32, value: u32| rig.sdma.reg_write(engine, RLC0 + at, value);
        set(0x2b, doorbell << 2);
        set(0x12, 1 << 28);
        set(0x00, 1 | 10 << 1);
        let told: Vec<_> = told.iter().map(|(name, _)| (*name, 2)).collect();
        assert_eq!(rig.stats.all(), told, "{engine} {doorbell:#x} by registers");
    }
}

/// CONTEXT_STATUS: SELECTED, IDLE.
const CONTEXT_STATUS: u32 = 0x11;
const SELECTED: u32 = 1;
const IDLE: u32 = 4;

#[test]
fn a_queue_can_wait_and_go_on() {
    let rig = Rig::sync();
    let queue = user_queue(&rig);
    rig.write(0x60_0000, &[5, 0x4000, 0, 1]);
    rig.write64(0x60_9000, 16);
    *lock(&rig.flat.hang) = Some(crate::inject::rule::Hang {
        passes: true,
        ..Default::default()
    });
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    rig.runner.poll();
    assert_eq!(rig.read(0x60_4000), 0);
    *lock(&rig.flat.hang) = None;
    rig.runner.poll();
    assert_eq!(rig.read(0x60_4000), 1);
}

#[test]
fn a_queue_can_stay_though_its_unmapping_is_confirmed() {
    let rig = Rig::sync();
    let queue = user_queue(&rig);
    let status = |ring: u32| rig.sdma.reg_read(0, ring + CONTEXT_STATUS);
    let doorbell = |ring: u32| rig.sdma.reg_read(0, ring + 0x2b);
    rig.write(0x60_0000, &[5, 0x4000, 0, 1]);
    rig.write64(0x60_9000, 16);
    *lock(&rig.flat.hang) = Some(crate::inject::rule::Hang {
        on_unmap: crate::inject::rule::OnUnmap::Confirmed,
        ..Default::default()
    });
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    rig.runner.poll();
    *lock(&rig.flat.hang) = None;
    assert!(!rig.sdma.has_stuck(0), "the scheduler does not wait for it");
    rig.sdma.unmap(None, Filter::All, true);
    assert_eq!(
        (status(RLC7), doorbell(RLC7)),
        (Some(SELECTED), Some(0x300 << 2)),
        "what sdma_has_hang() looks at"
    );
    assert_eq!(rig.listeners(queue.doorbell), 1);
    // Another queue of that engine finds it taken; the other engine's goes on.
    let others = [(0, 0x302), (1, 0x304)];
    for (engine, doorbell) in others {
        let other = RlcQueue { doorbell, ..queue };
        assert_eq!(rig.sdma.map(engine, other), Ok(true));
        rig.runner.poll();
        assert_eq!(rig.read(0x60_4000), engine.into());
    }
    assert_eq!(status(RLC6), Some(0), "work, and not selected");
    rig.sdma.reset(Some(0));
    assert_eq!([status(RLC7), status(RLC6)], [Some(IDLE); 2]);
    assert_eq!(doorbell(RLC7), Some(0));
    rig.write(0x60_4000, &[0]);
    rig.write64(MQD + 12, 0);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    rig.runner.poll();
    assert_eq!(rig.read(0x60_4000), 1);
}

/// Waits until memory has refused three more times.
fn refused(rig: &Rig) {
    rig.faults();
    rig.wait("accesses are repeated", |rig| {
        lock(&rig.flat.faults).len() >= 3
    });
}

#[test]
fn a_copy_waits_for_its_page_and_goes_on() {
    let rig = Rig::new(Mode::Threads(2), 1);
    let queue = user_queue(&rig);
    *lock(&rig.flat.retries) = true;
    *lock(&rig.flat.missing) = 0x5000..0x6000;
    rig.write(0x60_4000, &[1, 2, 3]);
    let packets = [1, 11, 0, 0x4000, 0, 0x5000, 0, 5, 0x7000, 0, 9];
    rig.write(0x60_0000, &packets);
    rig.write64(0x60_9000, 4 * packets.len() as u64);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    refused(&rig);
    rig.sdma.unmap(None, Filter::Pasid(0x8001), true);
    rig.faults();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(rig.faults(), []);
    assert_eq!(rig.sdma.map(0, queue), Ok(true));
    refused(&rig);
    assert_eq!(rig.read(0x60_7000), 0, "the fence waits behind the copy");
    *lock(&rig.flat.missing) = 0..0;
    rig.wait("the fence", |rig| rig.read(0x60_7000) == 9);
    assert_eq!(rig.read(0x60_5008), 3);
    assert_eq!(rig.stats.all(), []);
}
