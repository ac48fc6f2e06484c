// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! AQL queues without kernels: barriers, signals, events, PM4 jumps, and packets that are wrong.

use gcn::Target;

use super::runlist;
use crate::cp::packet::op;
use crate::cp::{SOURCE_BAD_OPCODE, SOURCE_END_OF_PIPE};
use crate::flat::{pkt, Rig, Setup};
use crate::processor::runner::Mode;

/// Process 3, whose memory begins at 3 MiB. Addresses below are its own.
pub const BASE: u64 = 3 << 20;
pub const RING: u64 = 0x1_0000;
/// amd_queue_t: read index at 128, write index at 56, the offset of the read index at 136.
pub const AMD_QUEUE: u64 = 0x2_0000;
const INACTIVE: u64 = 0x2_1000;
const MAILBOX: u64 = 0x2_2000;
const SIGNALS: u64 = 0x3_0000;

pub const QUEUE: Setup = Setup {
    mqd: 0xe3_0000,
    ring: RING,
    order: 10,
    doorbell: 0x1300,
    aql: true,
    privileged: false,
    rptr: AMD_QUEUE + 128,
    wptr: AMD_QUEUE + 56,
    silent: false,
};

pub fn rig_in(mode: Mode) -> Rig {
    let rig = Rig::new(mode, 1);
    runlist::start(&rig, 1);
    rig.write_mqd(QUEUE);
    rig.write(BASE + AMD_QUEUE + 136, &[128]);
    rig.write64(BASE + AMD_QUEUE + 192, INACTIVE);
    for slot in 0..64 {
        rig.write(BASE + RING + 64 * slot, &[1]);
    }
    map(&rig);
    rig
}

pub fn rig() -> Rig {
    rig_in(Mode::Sync)
}

pub fn map(rig: &Rig) {
    let mut list = runlist::process(3, &[]);
    list.extend(map_packet());
    runlist::run(rig, &list);
}

/// MAP_QUEUES of the queue.
pub fn map_packet() -> [u32; 7] {
    let (mqd, wptr) = (QUEUE.mqd as u32, QUEUE.wptr as u32);
    let control = 1 << 4 | 1 << 29;
    [pkt(0xa2, 6), control, QUEUE.doorbell << 2, mqd, 0, wptr, 0]
}

/// Address of a signal in the process; value 1, and an event id that is its number.
pub fn signal(rig: &Rig, n: u32, mailbox: bool) -> u32 {
    let at = SIGNALS + 64 * u64::from(n);
    rig.write64(BASE + at + 8, 1);
    rig.write64(
        BASE + at + 16,
        if mailbox {
            MAILBOX + 8 * u64::from(n)
        } else {
            0
        },
    );
    rig.write(BASE + at + 24, &[n]);
    at as u32
}

pub fn value(rig: &Rig, signal: u32) -> i64 {
    rig.read64(BASE + u64::from(signal) + 8) as i64
}

/// Puts a packet into the next slot, header last, and rings as ROCr does: with the packet's own
/// index.
pub fn send(rig: &Rig, packet: [u32; 16]) -> u64 {
    let index = rig.read64(BASE + QUEUE.wptr);
    rig.write64(BASE + QUEUE.wptr, index + 1);
    let slot = BASE + RING + 64 * (index % 64);
    rig.write(slot + 4, &packet[1..]);
    rig.write(slot, &packet[..1]);
    rig.cp.doorbell(u64::from(QUEUE.doorbell) * 4, index, 8);
    index
}

pub fn read_index(rig: &Rig) -> u64 {
    rig.read64(BASE + AMD_QUEUE + 128)
}

pub fn barrier(kind: u32, signals: &[u32], completion: u32) -> [u32; 16] {
    let mut packet = [0; 16];
    packet[0] = kind | 1 << 8 | 2 << 9 | 2 << 11;
    for (n, signal) in signals.iter().enumerate() {
        packet[2 + 2 * n] = *signal;
    }
    packet[14] = completion;
    packet
}

#[test]
fn mi200_reports_the_read_index_of_every_queue() {
    for (target, reported) in [(Target::Gfx90a, 1), (Target::Gfx942, 0)] {
        let rig = Rig::sync();
        assert!(rig.flat.target.set(target).is_ok());
        runlist::start(&rig, 1);
        rig.write_mqd(Setup {
            silent: true,
            ..QUEUE
        });
        map(&rig);
        let done = signal(&rig, 5, false);
        send(&rig, barrier(3, &[], done));
        assert_eq!(value(&rig, done), 0);
        assert_eq!(read_index(&rig), reported);
    }
}

/// QUEUE_SIZE 63 is what a driver makes of size 0; a ring of 8 dwords has no room for a packet.
#[test]
fn a_ring_of_an_impossible_size_is_told_and_does_no_harm() {
    for (aql, order) in [(false, 64), (true, 64), (true, 3)] {
        let rig = Rig::sync();
        runlist::start(&rig, 1);
        rig.write_mqd(Setup {
            order,
            aql,
            ..QUEUE
        });
        map(&rig);
        let mut dispatch = [0; 16];
        dispatch[0] = 2 | 1 << 8 | 1 << 16;
        dispatch[1..6].copy_from_slice(&[1 << 16 | 1, 1, 1, 1, 1]);
        dispatch[8] = 0x6_0000;
        send(&rig, dispatch);
        rig.runner.poll();
        assert_eq!(rig.stats.get("ring of an impossible size"), 1);
        assert_eq!(rig.stats.get("steps of a queue that panicked"), 0);
    }
}

#[test]
fn a_barrier_completes_its_signal_and_tells_the_event() {
    let rig = rig();
    let done = signal(&rig, 5, true);
    send(&rig, barrier(3, &[], done));
    assert_eq!(value(&rig, done), 0);
    assert_eq!(rig.read64(BASE + MAILBOX + 40), 5);
    let interrupts = rig.interrupts();
    assert_eq!(interrupts.len(), 1);
    let end = interrupts[0];
    assert_eq!(
        (end.source, end.data[0], end.pasid),
        (SOURCE_END_OF_PIPE, 5, Some(3))
    );
    assert_eq!(read_index(&rig), 1);
    assert_eq!(
        rig.read(BASE + RING) & 0xffff,
        1,
        "the slot is INVALID again"
    );
    // Without a mailbox there is no interrupt.
    let silent = signal(&rig, 6, false);
    send(&rig, barrier(3, &[], silent));
    assert_eq!(value(&rig, silent), 0);
    assert!(rig.interrupts().is_empty());
}

#[test]
fn barrier_and_waits_for_all_and_barrier_or_for_one() {
    let rig = rig();
    let [a, b, c] = [0, 1, 2].map(|n| signal(&rig, n, false));
    let [all, any] = [3, 4].map(|n| signal(&rig, n, false));
    send(&rig, barrier(3, &[a, b], all));
    rig.write64(BASE + u64::from(a) + 8, 0);
    rig.runner.poll();
    assert_eq!(value(&rig, all), 1);
    rig.write64(BASE + u64::from(b) + 8, 0);
    rig.runner.poll();
    assert_eq!(value(&rig, all), 0);
    rig.write64(BASE + u64::from(a) + 8, 1);
    send(&rig, barrier(5, &[a, c], any));
    assert_eq!(value(&rig, any), 1);
    rig.write64(BASE + u64::from(c) + 8, 0);
    rig.runner.poll();
    assert_eq!(value(&rig, any), 0);
}

#[test]
fn profiled_queues_stamp_their_signals() {
    let rig = rig();
    let done = signal(&rig, 0, false);
    send(&rig, barrier(3, &[], done));
    assert_eq!(rig.read64(BASE + u64::from(done) + 32), 0);
    rig.write(BASE + AMD_QUEUE + 180, &[1 << 3]);
    send(&rig, barrier(3, &[], done));
    assert_eq!(rig.read64(BASE + u64::from(done) + 32), 1234);
    assert_eq!(rig.read64(BASE + u64::from(done) + 40), 1234);
}

#[test]
fn a_packet_without_a_header_is_waited_for() {
    let rig = rig();
    let done = signal(&rig, 0, false);
    let index = rig.read64(BASE + QUEUE.wptr);
    rig.write64(BASE + QUEUE.wptr, index + 1);
    rig.cp.doorbell(u64::from(QUEUE.doorbell) * 4, index, 8);
    assert_eq!(read_index(&rig), 0);
    let packet = barrier(3, &[], done);
    rig.write(BASE + RING + 4, &packet[1..]);
    rig.write(BASE + RING, &packet[..1]);
    rig.runner.poll();
    assert_eq!((read_index(&rig), value(&rig, done)), (1, 0));
}

#[test]
fn the_ring_wraps() {
    let rig = rig();
    let done = signal(&rig, 0, false);
    rig.write64(BASE + u64::from(done) + 8, 200);
    for _ in 0..200 {
        send(&rig, barrier(3, &[], done));
    }
    assert_eq!((read_index(&rig), value(&rig, done)), (200, 0));
}

#[test]
fn a_vendor_packet_jumps_to_pm4() {
    let rig = rig();
    let done = signal(&rig, 0, false);
    rig.write(
        BASE + 0x5000,
        &[pkt(op::WRITE_DATA.into(), 4), 5 << 8, 0x4000, 0, 99],
    );
    let mut packet = [0; 16];
    packet[0] = 1 << 16;
    packet[1..5].copy_from_slice(&[pkt(op::INDIRECT_BUFFER.into(), 3), 0x5000, 0, 5 | 1 << 23]);
    packet[5] = 10;
    packet[14] = done;
    send(&rig, packet);
    assert_eq!((rig.read(BASE + 0x4000), value(&rig, done)), (99, 0));
}

#[test]
fn a_barrier_on_a_value_compares_signed() {
    let rig = rig();
    let (watched, done) = (signal(&rig, 0, false), signal(&rig, 1, false));
    let mut packet = [0; 16];
    packet[0] = 2 << 16;
    packet[2] = watched;
    // value < 0
    packet[6..8].fill(u32::MAX);
    packet[8] = 2;
    packet[14] = done;
    send(&rig, packet);
    assert_eq!(value(&rig, done), 1);
    rig.write64(BASE + u64::from(watched) + 8, -1i64 as u64);
    rig.runner.poll();
    assert_eq!(value(&rig, done), 0);
}

#[test]
fn wrong_packets_stop_the_queue_and_say_why() {
    // Header, setup and sizes; the code in the inactive signal; the code in the interrupt.
    let dispatch = |dimensions: u32, size: u32, lds: u32, kernel: u32| {
        let mut packet = [0; 16];
        packet[0] = 2 | dimensions << 16;
        packet[1] = size;
        packet[2] = 1;
        packet[3..6].fill(64);
        packet[7] = lds;
        packet[8] = kernel;
        packet
    };
    let agent = barrier(4, &[], 0);
    let mut unknown_vendor = [0; 16];
    unknown_vendor[0] = 0x77 << 16;
    let cases = [
        (dispatch(0, 1 << 16 | 64, 0, 0x6000), 2, 16),
        (dispatch(3, 64, 0, 0x6000), 2, 16),
        (dispatch(3, 1 << 16 | 2048, 0, 0x6000), 64, 21),
        (dispatch(3, 1 << 16 | 64, 1 << 20, 0x6000), 4, 17),
        (dispatch(3, 1 << 16 | 64, 0, 0), 8, 18),
        (agent, 32, 20),
        (unknown_vendor, 256, 23),
    ];
    for (packet, code, exception) in cases {
        let rig = rig();
        rig.write64(BASE + INACTIVE + 16, MAILBOX);
        rig.write(BASE + INACTIVE + 24, &[77]);
        send(&rig, packet);
        assert_eq!(rig.read64(BASE + INACTIVE + 8), code);
        assert_eq!(read_index(&rig), 0);
        let interrupts = rig.interrupts();
        let bad = interrupts
            .iter()
            .find(|at| at.source == SOURCE_BAD_OPCODE)
            .expect("error");
        assert_eq!(bad.data[0], QUEUE.doorbell >> 1 & 0x3ff | exception << 10);
        assert!(
            interrupts.iter().any(|at| at.data[0] == 77),
            "the signal's event"
        );
        // The runtime lifts it: the queue tries again and finds a good packet.
        let done = signal(&rig, 0, false);
        rig.write(BASE + RING, &barrier(3, &[], done));
        rig.write64(BASE + INACTIVE + 8, 0);
        rig.runner.poll();
        assert_eq!(value(&rig, done), 0);
    }
}

#[test]
fn a_packet_is_refused_once() {
    let rig = rig();
    send(&rig, barrier(4, &[], 0));
    for _ in 0..5 {
        rig.write64(BASE + INACTIVE + 8, 0);
        rig.runner.poll();
        assert!(runlist::unmap(&rig, 2, 0, 0));
        map(&rig);
    }
    let interrupts = rig.interrupts();
    let bad = interrupts
        .iter()
        .filter(|at| at.source == SOURCE_BAD_OPCODE);
    assert_eq!((bad.count(), read_index(&rig)), (1, 0));
}

#[test]
fn preemption_loses_and_repeats_nothing() {
    let rig = rig();
    let [gate, done] = [0, 1].map(|n| signal(&rig, n, false));
    rig.write64(BASE + u64::from(done) + 8, 10);
    for n in 0..10 {
        send(
            &rig,
            barrier(3, if n == 4 { &[0x3_0000] } else { &[] }, done),
        );
    }
    assert_eq!(value(&rig, done), 6);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    rig.write64(BASE + u64::from(gate) + 8, 0);
    rig.runner.poll();
    assert_eq!(value(&rig, done), 6);
    map(&rig);
    assert_eq!((read_index(&rig), value(&rig, done)), (10, 0));
}

/// From the doorbell to the completed signal, as the thread that rings sees it.
#[test]
fn a_barrier_takes_the_time_of_its_own_packet() {
    const TRIES: u32 = 5;
    const ROUNDS: u32 = 400;
    let rig = rig_in(Mode::Threads(2));
    let round = |_| {
        let done = signal(&rig, 0, false);
        let start = std::time::Instant::now();
        send(&rig, barrier(3, &[], done));
        while value(&rig, done) != 0 {
            std::hint::spin_loop();
        }
        start.elapsed()
    };
    let median = |_| {
        let mut times: Vec<_> = (0..ROUNDS).map(round).collect();
        times.sort();
        times[times.len() / 2]
    };
    // Both threads may have to share a CPU for the length of a try.
    let median = (0..TRIES).map(median).min().expect("a try");
    println!("figure: barrier round trip in the model, median {median:?}");
    assert_eq!(read_index(&rig), u64::from(TRIES * ROUNDS));
    assert!(median.as_micros() < 100, "{median:?}");
}
