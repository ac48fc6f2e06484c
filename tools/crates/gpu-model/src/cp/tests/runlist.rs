// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The HIQ: run lists of processes, VMIDs, preemption, fences; several XCCs; more processes than
//! VMIDs.

use crate::cp::mqd::dw;
use crate::cp::packet::op;
use crate::cp::SOURCE_END_OF_PIPE;
use crate::flat::{pkt, Rig, Setup};
use crate::processor::lock;
use crate::processor::runner::Mode;

pub const HIQ: Setup = Setup {
    mqd: 0x28_0000,
    ring: 0x29_0000,
    order: 10,
    doorbell: 0x20a,
    aql: false,
    privileged: true,
    rptr: 0x28_0880,
    wptr: 0x28_0900,
    silent: false,
};
const IB: u64 = 0x2a_0000;
const FENCE: u64 = 0x2b_0000;

fn p(op: u8, body: u32) -> u32 {
    pkt(op.into(), body)
}

/// A process: PASID `n`, memory from `n` MiB on. Its queue is at the beginning of it.
pub fn process(n: u32, queues: &[u32]) -> Vec<u32> {
    let mut list = vec![
        p(op::MAP_PROCESS, 18),
        n,
        n << 20 | 1,
        0,
        0x6000_5000,
        0x118,
    ];
    list.resize(19, 0);
    for queue in queues {
        list.extend(queue_of(n, *queue));
    }
    list
}

/// MAP_QUEUES of a process's queue; its MQD is seen from VMID 0.
fn queue_of(n: u32, queue: u32) -> [u32; 7] {
    let setup = setup(n, queue);
    let wptr = setup.wptr as u32;
    [
        p(op::MAP_QUEUES, 6),
        1 << 4 | 1 << 29,
        setup.doorbell << 2,
        setup.mqd as u32,
        0,
        wptr,
        0,
    ]
}

/// Where a process's queue is: ring and pointers in its own addresses, the MQD in the kernel's.
pub fn setup(n: u32, queue: u32) -> Setup {
    let at = u64::from(queue) * 0x1000;
    Setup {
        mqd: 0xe0_0000 + (u64::from(n) << 16) + at,
        ring: 0x1_0000 + at,
        order: 8,
        doorbell: 0x1000 + n * 0x100 + queue * 2,
        aql: false,
        privileged: false,
        rptr: 0x2_0080 + at,
        wptr: 0x2_0100 + at,
        silent: false,
    }
}

/// Appends packets to a process's PM4 queue.
pub fn submit(rig: &Rig, n: u32, queue: u32, packets: &[u32]) {
    let setup = setup(n, queue);
    let base = u64::from(n) << 20;
    let at = rig.read64(base + setup.wptr);
    for (n, dword) in (at..).zip(packets) {
        rig.write(base + setup.ring + 4 * (n % 256), &[*dword]);
    }
    let wptr = at + packets.len() as u64;
    rig.write64(base + setup.wptr, wptr);
    rig.cp.doorbell(u64::from(setup.doorbell) * 4, wptr, 8);
}

/// Brings up the HIQ on all XCCs, with VMIDs 8 to 15 and slots of pipes 2 and 3.
pub fn start(rig: &Rig, xccs: u8) {
    for xcc in 0..xccs {
        let mqd = HIQ.mqd + u64::from(xcc) * 0x1000;
        let silent = xcc != 0;
        rig.map_by_kiq(xcc, (0, 0), 1, Setup { mqd, silent, ..HIQ });
    }
    rig.submit(
        HIQ,
        &[
            p(op::SET_RESOURCES, 7),
            0xff00 | 1 << 29,
            0xffff_0000,
            0,
            0,
            0,
            0,
            0,
        ],
    );
}

/// A run list that is chained to its beginning: what does not fit is to have its turn.
pub fn run_chained(rig: &Rig, list: &[u32]) {
    let dwords = list.len() as u32 + 4;
    let chain = [p(op::RUN_LIST, 3), IB as u32, 0, dwords | 1 << 20 | 1 << 23];
    run(rig, &[list, &chain].concat());
}

pub fn run(rig: &Rig, list: &[u32]) {
    rig.write(IB, list);
    let packet = [
        p(op::RUN_LIST, 3),
        IB as u32,
        0,
        list.len() as u32 | 1 << 23,
    ];
    rig.submit(HIQ, &packet);
}

/// UNMAP_QUEUES and QUERY_STATUS; true if the fence was written.
pub fn unmap(rig: &Rig, select: u32, action: u32, pasid: u32) -> bool {
    rig.write64(FENCE, 10);
    let mut packets = vec![p(op::UNMAP_QUEUES, 5), action | select << 4, pasid, 0, 0, 0];
    packets.extend([p(op::QUERY_STATUS, 6), 2 << 30, 0, FENCE as u32, 0, 100, 0]);
    rig.submit(HIQ, &packets);
    rig.read64(FENCE) == 100
}

fn rig(xccs: u8) -> Rig {
    let rig = Rig::new(Mode::Sync, xccs);
    start(&rig, xccs);
    for n in 3..14 {
        for queue in 0..4 {
            rig.write_mqd(setup(n, queue));
        }
    }
    rig
}

fn write_at(address: u32, value: u32) -> [u32; 5] {
    [p(op::WRITE_DATA, 4), 5 << 8, address, 0, value]
}

#[test]
fn two_processes_run_side_by_side_each_in_its_memory() {
    let rig = rig(1);
    run(&rig, &[process(3, &[0, 1]), process(4, &[0])].concat());
    submit(&rig, 3, 0, &write_at(0x4000, 33));
    submit(&rig, 3, 1, &write_at(0x4004, 34));
    submit(&rig, 4, 0, &write_at(0x4000, 44));
    assert_eq!(
        [
            rig.read(0x30_4000),
            rig.read(0x30_4004),
            rig.read(0x40_4000)
        ],
        [33, 34, 44]
    );
    submit(
        &rig,
        4,
        0,
        &[p(op::RELEASE_MEM, 7), 0x514, 2 << 24, 0, 0, 0, 0, 9],
    );
    let interrupt = rig.interrupts()[0];
    assert_eq!(
        (interrupt.source, interrupt.data[0]),
        (SOURCE_END_OF_PIPE, 9)
    );
    assert_eq!((interrupt.pasid, interrupt.vmid), (Some(4), 9));
    // The read pointer that the process polls wraps.
    assert_eq!(rig.read(0x40_0000 + 0x2_0080), 5 + 8);
}

#[test]
fn a_queue_listens_on_each_xcc_while_it_is_mapped() {
    let rig = rig(2);
    let (own, other) = (setup(3, 0).doorbell, setup(4, 0).doorbell);
    for _ in 0..2 {
        run(&rig, &[process(3, &[0]), process(4, &[0])].concat());
        assert_eq!([own, other].map(|at| rig.listeners(at)), [2, 2]);
        // Run lists replace each other.
        run(&rig, &process(4, &[0]));
        assert_eq!([own, other].map(|at| rig.listeners(at)), [0, 2]);
        assert!(unmap(&rig, 2, 0, 0));
        assert_eq!([own, other].map(|at| rig.listeners(at)), [0, 0]);
    }
    run(&rig, &process(3, &[0]));
    rig.cp.reset();
    assert_eq!([own, HIQ.doorbell].map(|at| rig.listeners(at)), [0, 0]);
}

#[test]
fn the_master_alone_answers_for_a_partition() {
    let rig = rig(4);
    rig.interrupts();
    // COMMAND 0: an interrupt and nothing else.
    rig.submit(HIQ, &[p(op::QUERY_STATUS, 6), 7, 0, 0, 0, 0, 0]);
    assert_eq!(rig.interrupts().len(), 1);
}

#[test]
fn unmapped_queues_stand_still_and_go_on() {
    let rig = rig(1);
    run(&rig, &process(3, &[0]));
    submit(&rig, 3, 0, &write_at(0x4000, 1));
    assert!(unmap(&rig, 2, 0, 0));
    submit(&rig, 3, 0, &write_at(0x4000, 2));
    assert_eq!(rig.read(0x30_4000), 1);
    let mqd = setup(3, 0).mqd;
    assert_eq!(rig.read(mqd + 4 * dw::CP_HQD_PQ_RPTR as u64), 5);
    run(&rig, &process(3, &[0]));
    assert_eq!(rig.read(0x30_4000), 2);
}

#[test]
fn a_run_list_replaces_the_one_before() {
    let rig = rig(1);
    run(&rig, &process(3, &[0]));
    run(&rig, &process(4, &[0]));
    submit(&rig, 3, 0, &write_at(0x4000, 1));
    submit(&rig, 4, 0, &write_at(0x4000, 1));
    assert_eq!([rig.read(0x30_4000), rig.read(0x40_4000)], [0, 1]);
}

#[test]
fn nonsense_hangs_the_scheduler() {
    let rig = rig(1);
    assert!(unmap(&rig, 2, 0, 0));
    rig.submit(HIQ, &[0x5555_5555; 7]);
    assert!(!unmap(&rig, 2, 0, 0));
}

#[test]
fn unmap_by_pasid_leaves_the_others() {
    let rig = rig(1);
    run(&rig, &[process(3, &[0]), process(4, &[0])].concat());
    assert!(unmap(&rig, 1, 0, 3));
    submit(&rig, 3, 0, &write_at(0x4000, 1));
    submit(&rig, 4, 0, &write_at(0x4000, 1));
    assert_eq!([rig.read(0x30_4000), rig.read(0x40_4000)], [0, 1]);
}

#[test]
fn static_queues_stay_when_the_dynamic_ones_go() {
    let rig = rig(1);
    let mut list = process(3, &[0, 1]);
    // QUEUE_TYPE of the second: normal_latency_static_queue.
    let at = list.len() - 6;
    list[at] |= 2 << 21;
    run(&rig, &list);
    assert!(unmap(&rig, 3, 0, 0));
    submit(&rig, 3, 0, &write_at(0x4000, 1));
    submit(&rig, 3, 1, &write_at(0x4004, 1));
    assert_eq!([rig.read(0x30_4000), rig.read(0x30_4004)], [0, 1]);
}

#[test]
fn an_mqd_that_does_not_look_like_one_is_told() {
    let rig = rig(1);
    run(&rig, &process(3, &[0]));
    assert_eq!(rig.stats.all(), []);
    rig.write(setup(3, 0).mqd, &[0]);
    run(&rig, &process(3, &[0]));
    assert_eq!(rig.stats.get("MQD without its header"), 1);
}

#[test]
fn a_compute_queue_with_a_doorbell_of_the_copy_engines_is_told() {
    let told = "compute queue with a copy engine's doorbell";
    let rig = rig(1);
    // DOORBELL 0x1300 and 0x1302, in a page 0x300 and 0x302.
    *lock(&rig.flat.sdma_doorbells) = vec![0x2ec..0x300, 0x302..0x316];
    run(&rig, &process(3, &[0]));
    assert_eq!(rig.stats.get(told), 0);
    run(&rig, &process(3, &[0, 1]));
    assert_eq!(rig.stats.get(told), 1);
}

#[test]
fn registers_survive_preemption_in_the_mqd() {
    let rig = rig(1);
    run(&rig, &process(3, &[0]));
    // COMPUTE_USER_DATA_3
    submit(&rig, 3, 0, &[p(op::SET_SH_REG, 2), 0x243, 0xabcd]);
    assert!(unmap(&rig, 2, 0, 0));
    assert_eq!(rig.read(setup(3, 0).mqd + 4 * (65 + 3)), 0xabcd);
}

#[test]
fn a_waiting_packet_does_not_hold_up_the_unmap() {
    let rig = rig(1);
    run(&rig, &process(3, &[0]));
    let mut packets = vec![p(op::WAIT_REG_MEM, 6), 3 | 1 << 4, 0x5000, 0, 1, 1, 4];
    packets.extend(write_at(0x4000, 7));
    submit(&rig, 3, 0, &packets);
    assert!(unmap(&rig, 2, 0, 0));
    rig.write(0x30_5000, &[1]);
    rig.runner.poll();
    assert_eq!(rig.read(0x30_4000), 0);
    run(&rig, &process(3, &[0]));
    assert_eq!(rig.read(0x30_4000), 7);
}

#[test]
fn tlbs_are_invalidated_by_pasid() {
    let rig = rig(1);
    run(&rig, &[process(3, &[0]), process(4, &[0])].concat());
    lock(&rig.flat.flushes).clear();
    rig.kiq(0, &[p(op::INVALIDATE_TLBS, 1), 1 | 4 << 5]);
    rig.kiq(0, &[p(op::INVALIDATE_TLBS, 1), 1 | 77 << 5]);
    assert_eq!(*lock(&rig.flat.flushes), [Some(9)]);
    assert_eq!(rig.stats.all(), []);
    // What other selections name nobody says.
    rig.kiq(0, &[p(op::INVALIDATE_TLBS, 1), 2 | 4 << 5]);
    let by_other = "INVALIDATE_TLBS.DST_SEL other than by PASID";
    assert_eq!(rig.stats.get(by_other), 1);
}

#[test]
fn destroying_the_hiq_through_the_kiq_works() {
    let rig = rig(1);
    let packet = [
        p(op::UNMAP_QUEUES, 5),
        1 | 1 << 29,
        HIQ.doorbell << 2,
        0,
        0,
        0,
    ];
    rig.kiq(0, &packet);
    assert!(!rig.cp.doorbell(u64::from(HIQ.doorbell) * 4, 0, 8));
}

#[test]
fn the_first_xcc_runs_what_all_four_have_mapped() {
    let rig = rig(4);
    let mqd = setup(3, 0).mqd;
    for xcc in 0..4 {
        rig.write_mqd(Setup {
            mqd: mqd + 0x400 * xcc,
            ..setup(3, 0)
        });
        rig.write(
            mqd + 0x400 * xcc + 4 * dw::CP_MQD_STRIDE_SIZE as u64,
            &[0x400],
        );
    }
    run(&rig, &process(3, &[0]));
    for xcc in 0..4 {
        rig.select(xcc, 1, 2, 0);
        assert_eq!(rig.hqd(xcc, dw::CP_HQD_ACTIVE), 1, "XCC {xcc}");
        assert_eq!(
            rig.hqd(xcc, dw::CP_MQD_BASE_ADDR_LO),
            mqd as u32 + 0x400 * u32::from(xcc)
        );
    }
    rig.write64(0x30_5000, 0);
    submit(
        &rig,
        3,
        0,
        &[p(op::ATOMIC_MEM, 8), 0x2f, 0x5000, 0, 1, 0, 0, 0, 0],
    );
    assert_eq!(rig.read64(0x30_5000), 1, "once");
    assert!(unmap(&rig, 2, 0, 0));
    for xcc in 0..4 {
        rig.select(xcc, 1, 2, 0);
        assert_eq!(rig.hqd(xcc, dw::CP_HQD_ACTIVE), 0, "XCC {xcc}");
    }
}

#[test]
fn more_processes_than_vmids_take_turns() {
    let rig = rig(1);
    let list: Vec<u32> = (3..14).flat_map(|n| process(n, &[0])).collect();
    run_chained(&rig, &list);
    for n in 3..14 {
        submit(&rig, n, 0, &write_at(0x4000, n));
    }
    let base = |n: u32| (u64::from(n) << 20) + 0x4000;
    rig.wait("all have had a turn", |rig| {
        (3..14).all(|n| rig.read(base(n)) == n)
    });
    assert!(unmap(&rig, 2, 0, 0));
    rig.runner.poll();
    assert!(rig.runner.is_idle(), "nothing rotates any more");
}

#[test]
fn what_does_not_fit_a_run_list_that_is_not_chained_never_runs() {
    let told = "run list that does not fit and is not chained";
    let rig = rig(1);
    // VMIDs 8 to 15, and 16 slots.
    let fits: Vec<u32> = (3..11).flat_map(|n| process(n, &[0, 1])).collect();
    run(&rig, &fits);
    assert_eq!(rig.stats.all(), []);
    let list: Vec<u32> = (3..12).flat_map(|n| process(n, &[0])).collect();
    run(&rig, &list);
    assert_eq!(rig.stats.get(told), 1);
    let many: Vec<u32> = (3..11).flat_map(|n| process(n, &[0, 1, 2])).collect();
    run(&rig, &many);
    assert_eq!(rig.stats.get(told), 2);
    submit(&rig, 3, 0, &write_at(0x4000, 1));
    submit(&rig, 10, 0, &write_at(0x4000, 1));
    rig.runner.poll();
    assert!(rig.runner.is_idle(), "nothing rotates");
    assert_eq!([rig.read(0x30_4000), rig.read(0xa0_4000)], [1, 0]);
}

#[test]
fn processes_that_firmware_keeps_apart_need_a_chained_run_list() {
    let rig = rig(1);
    let with = |n: u32, dword: usize, value: u32| {
        let mut list = process(n, &[0]);
        list[1 + dword] = value;
        list
    };
    // NUM_GWS; SH_MEM_CONFIG.RETRY_DISABLE.
    let gws = [with(3, 12, 64), with(4, 12, 64)].concat();
    let xnack = [with(3, 4, 0x1118), with(4, 4, 0x118)].concat();
    run_chained(&rig, &gws);
    run_chained(&rig, &xnack);
    // Firmware was not asked to look at it.
    run(&rig, &xnack);
    assert_eq!(rig.stats.all(), []);
    run(&rig, &gws);
    let told = "run list of several processes with GWS that is not chained";
    assert_eq!(rig.stats.get(told), 1);
    let resources = 0xff00 | 1 << 28 | 1 << 29;
    let packet = [resources, 0xffff_0000, 0, 0, 0, 0, 0];
    rig.submit(HIQ, &[&[p(op::SET_RESOURCES, 7)][..], &packet].concat());
    run_chained(&rig, &xnack);
    assert_eq!(rig.stats.all().len(), 1);
    run(&rig, &xnack);
    let told = "run list of both XNACK modes that is not chained";
    assert_eq!(rig.stats.get(told), 1);
}

#[test]
fn a_dispatch_of_a_process_without_the_settings_of_all_is_told() {
    for (config, told) in [
        (0x118, None),
        (
            0x100,
            Some("dispatch with SH_MEM_CONFIG.ALIGNMENT_MODE other than UNALIGNED"),
        ),
        (0x18, Some("dispatch without SH_MEM_CONFIG.F8_MODE")),
    ] {
        let rig = rig(1);
        let mut list = process(3, &[0]);
        list[5] = config;
        run(&rig, &list);
        rig.write(0x30_0000, &[0xbf81_0000]); // s_endpgm
        let threads = [p(op::SET_SH_REG, 4), 0x207, 1, 1, 1];
        let dispatch = [p(op::DISPATCH_DIRECT, 4), 1, 1, 1, 0b101];
        submit(&rig, 3, 0, &[&threads[..], &dispatch].concat());
        let told: Vec<_> = told.map(|name| (name, 1)).into_iter().collect();
        assert_eq!(rig.stats.all(), told, "{config:#x}");
    }
}

/// An engine has eight rings for users' queues, and `amdkfd` gives out no ninth.
#[test]
fn a_copy_queue_without_a_ring_is_told_and_gets_no_turn() {
    let rig = rig(1);
    let of_engine = |queues: u32, engine: u32| -> Vec<u32> {
        let map = |queue: u32| {
            let (mqd, doorbell) = (0xe3_8000 + 0x1000 * queue, 0x1380 + 2 * queue);
            [
                p(op::MAP_QUEUES, 6),
                1 << 2 | engine << 26 | 1 << 29,
                doorbell << 2,
                mqd,
                0,
                0,
                0,
            ]
        };
        (0..queues).flat_map(map).collect()
    };
    let told = "run list with more SDMA queues of an engine than it has rings";
    run(
        &rig,
        &[process(3, &[]), of_engine(8, 0), of_engine(1, 1)].concat(),
    );
    assert_eq!(rig.stats.all(), []);
    run(&rig, &[process(3, &[]), of_engine(9, 0)].concat());
    assert_eq!(rig.stats.all(), [(told, 1)]);
    assert!(rig.runner.is_idle(), "nothing is rotated");
}

#[test]
fn a_run_list_that_lies_does_no_harm() {
    let rig = rig(1);
    run(
        &rig,
        &[
            p(op::MAP_QUEUES, 6),
            0,
            0,
            0,
            0,
            0,
            0,
            p(op::MAP_PROCESS, 18),
            3,
        ],
    );
    assert_eq!(rig.stats.get("run list packet beyond its buffer"), 1);
    // MQD nowhere; process without a page table.
    let mut list = process(3, &[0]);
    let at = list.len() - 4;
    list[at] = 0xfff0_0000;
    run(&rig, &list);
    assert!(!rig.faults().is_empty());
    run(&rig, &process(4, &[0]));
    submit(&rig, 4, 0, &write_at(0x4000, 1));
    assert_eq!(rig.read(0x40_4000), 1);
}
