// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ring against consumers of this test's own, which do what a command processor does.

use super::*;
use crate::BarrierAnd;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;

/// A ring in ordinary memory.
#[repr(C)]
struct Fake {
    packets: Vec<UnsafeCell<Packet>>,
    write: AtomicU64,
    read: AtomicU64,
    doorbell: AtomicU64,
}

// SAFETY: packets are used under the ring's protocol, which is what is tested.
unsafe impl Sync for Fake {}

impl Fake {
    fn new(capacity: u64) -> (Arc<Self>, Ring) {
        let fake = Arc::new(Self {
            packets: (0..capacity)
                .map(|_| UnsafeCell::new(Packet([0; 16])))
                .collect(),
            write: AtomicU64::new(0),
            read: AtomicU64::new(0),
            doorbell: AtomicU64::new(u64::MAX),
        });
        let packets = NonNull::from(&fake.packets[..]).cast();
        // SAFETY: each test keeps `fake` longer than the ring.
        let ring = unsafe {
            Ring::new(
                packets,
                capacity,
                NonNull::from(&fake.write),
                NonNull::from(&fake.read),
                NonNull::from(&fake.doorbell),
            )
        };
        (fake, ring)
    }

    /// Takes the packet at the read index, if it is there, as the command processor does.
    fn take(&self) -> Option<Packet> {
        let index = self.read.load(Ordering::Relaxed);
        let place = index as usize % self.packets.len();
        let packet = self.packets[place].get();
        // SAFETY: only ever an atomic.
        let header = unsafe { &*packet.cast::<AtomicU32>() };
        if header.load(Ordering::Acquire) & 0xff == INVALID {
            return None;
        }
        // SAFETY: the header says that the producer is done with it.
        let taken = unsafe { packet.read_volatile() };
        header.store(INVALID, Ordering::Relaxed);
        self.read.store(index + 1, Ordering::Release);
        Some(taken)
    }
}

/// A packet that says who made it, in a way that does not survive tearing.
fn marked(producer: u64, sequence: u64) -> Packet {
    let mix = |at: u64| (producer << 48 | sequence).wrapping_mul(2 * at + 3) ^ at;
    BarrierAnd {
        dependencies: [0, 1, 2, 3, 4].map(mix),
        completion: producer << 48 | sequence,
    }
    .into()
}

fn long(packet: &Packet, at: usize) -> u64 {
    u64::from(packet.0[at]) | u64::from(packet.0[at + 1]) << 32
}

/// `AQL_PACKETS` packets (100,000 if it is not set; the long test says 10 million) of eight
/// producers.
#[test]
fn eight_producers_lose_and_tear_nothing() {
    const PRODUCERS: u64 = 8;
    let wanted = std::env::var("AQL_PACKETS").map_or(100_000, |text| {
        text.parse::<u64>().expect("AQL_PACKETS is a number")
    });
    let each = wanted / PRODUCERS;
    let (fake, ring) = Fake::new(256);
    let mut next = [0; PRODUCERS as usize];
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let ring = &ring;
            scope.spawn(move || {
                for sequence in 0..each {
                    let packet = marked(producer, sequence);
                    ring.submit(&packet).expect("the consumer takes all");
                }
            });
        }
        for _ in 0..each * PRODUCERS {
            let packet = loop {
                match fake.take() {
                    Some(packet) => break packet,
                    None => std::thread::yield_now(),
                }
            };
            let name = long(&packet, 14);
            let (producer, sequence) = (name >> 48, name & ((1 << 48) - 1));
            assert_eq!(packet, marked(producer, sequence), "a torn packet");
            assert_eq!(next[producer as usize], sequence, "of producer {producer}");
            next[producer as usize] += 1;
        }
    });
    assert_eq!(next, [each; PRODUCERS as usize]);
    assert!(fake.take().is_none());
    assert_eq!(ring.indices(), (each * PRODUCERS, each * PRODUCERS));
    println!("{} packets of {PRODUCERS} producers", each * PRODUCERS);
}

#[test]
fn the_doorbell_rings_after_the_last_of_several() {
    let (fake, ring) = Fake::new(64);
    let packets: Vec<_> = (0..5).map(|sequence| marked(0, sequence)).collect();
    assert_eq!(ring.submit_all(&packets).ok(), Some(4));
    assert_eq!(fake.doorbell.load(Ordering::Relaxed), 4);
    let taken: Vec<_> = std::iter::from_fn(|| fake.take()).collect();
    assert_eq!(taken, packets);
}

#[test]
fn a_full_ring_is_told() {
    let (fake, ring) = Fake::new(64);
    for sequence in 0..64 {
        assert_eq!(ring.try_submit(&marked(0, sequence)), Some(sequence));
    }
    assert_eq!(ring.try_submit(&marked(0, 64)), None);
    assert!(fake.take().is_some());
    assert_eq!(ring.try_submit(&marked(0, 64)), Some(64));
    assert_eq!(ring.try_submit(&marked(0, 65)), None);
}

#[test]
fn who_gives_up_has_taken_no_place() {
    let (fake, ring) = Fake::new(4);
    let ring = ring.watched(Duration::from_millis(300), || true);
    for sequence in 0..4 {
        assert!(ring.submit(&marked(0, sequence)).is_ok());
    }
    let start = Instant::now();
    assert!(matches!(ring.submit(&marked(0, 9)), Err(Error::Lost)));
    assert!(start.elapsed() >= Duration::from_millis(300));
    let several = [4, 5, 6, 7, 8].map(|sequence| marked(0, sequence));
    assert!(matches!(ring.submit_all(&several), Err(Error::Lost)));
    assert_eq!(ring.indices(), (4, 0));
    // It was only slow: what comes now is read.
    for sequence in 0..4 {
        assert_eq!(fake.take(), Some(marked(0, sequence)));
    }
    assert_eq!(ring.submit(&marked(0, 4)).ok(), Some(4));
    assert_eq!(fake.take(), Some(marked(0, 4)));
    assert_eq!(fake.take(), None);
}

#[test]
fn more_than_the_ring_holds_goes_in_parts() {
    let (fake, ring) = Fake::new(4);
    let packets: Vec<_> = (0..10).map(|sequence| marked(0, sequence)).collect();
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| ring.submit_all(&packets));
        for packet in &packets {
            let taken = loop {
                match fake.take() {
                    Some(taken) => break taken,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(taken, *packet);
        }
        assert_eq!(producer.join().expect("no panic").ok(), Some(9));
    });
}

#[test]
fn a_deadline_is_all_the_patience_there_is() {
    let (fake, ring) = Fake::new(4);
    let ring = ring.watched(Duration::from_millis(100), || true);
    let four = [0, 1, 2, 3].map(|sequence| marked(0, sequence));
    assert!(ring.submit_all(&four).is_ok());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(600));
            assert!(std::iter::from_fn(|| fake.take()).eq(four));
        });
        let deadline = Deadline::after(Duration::from_secs(60));
        assert_eq!(ring.submit_by(&four, deadline).ok(), Some(7));
    });
}

#[test]
fn what_there_is_no_room_for_in_time_is_not_there() {
    let (fake, ring) = Fake::new(64);
    for sequence in 0..63 {
        assert!(ring.submit(&marked(0, sequence)).is_ok());
    }
    let three = [63, 64, 65].map(|sequence| marked(0, sequence));
    let try_once = || ring.submit_by(&three, Deadline::after(Duration::from_millis(150)));
    std::thread::scope(|scope| {
        // One that takes something all the while is no reason to wait for longer.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            assert!(fake.take().is_some());
        });
        let start = Instant::now();
        assert!(matches!(try_once(), Err(Error::Timeout(_))));
        assert!(start.elapsed() < Duration::from_secs(10));
    });
    assert_eq!(ring.indices(), (63, 1));
    assert!(fake.take().is_some());
    assert_eq!(try_once().ok(), Some(65));
    assert_eq!(fake.doorbell.load(Ordering::Relaxed), 65);
}

#[test]
fn a_slow_consumer_does_not_lose_it() {
    let (fake, ring) = Fake::new(64);
    let ring = ring.watched(Duration::from_secs(3), || true);
    for sequence in 0..64 {
        assert!(ring.submit(&marked(0, sequence)).is_ok());
    }
    std::thread::scope(|scope| {
        let packets: Vec<_> = (64..74).map(|sequence| marked(0, sequence)).collect();
        let ring = &ring;
        let producer = scope.spawn(move || ring.submit_all(&packets));
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(400));
            assert!(fake.take().is_some());
        }
        let last = producer.join().expect("no panic");
        assert_eq!(last.ok(), Some(73), "4 s in all, 0.4 s for each");
    });
}

#[test]
fn a_consumer_that_is_gone_is_not_waited_for() {
    let (fake, ring) = Fake::new(64);
    let ring = ring.watched(Duration::MAX, || false);
    for sequence in 0..64 {
        assert!(ring.submit(&marked(0, sequence)).is_ok());
    }
    assert!(matches!(ring.submit(&marked(0, 64)), Err(Error::Lost)));
    // Who does not look at that asks no more: each would wait for the next time to ask.
    let begin = Instant::now();
    for sequence in 65..1065 {
        assert!(matches!(
            ring.submit(&marked(0, sequence)),
            Err(Error::Lost)
        ));
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
    drop(fake);
}

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn submitting_allocates_nothing() {
    let (fake, ring) = Fake::new(4096);
    let before = ALLOCATIONS.with(Cell::get);
    for sequence in 0..4096 {
        assert!(ring.submit(&marked(0, sequence)).is_ok());
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    drop(fake);
    drop(vec![0u8; 64]);
    assert_ne!(ALLOCATIONS.with(Cell::get), before, "the counter counts");
}

/// A child that may only read, write and exit submits packets; any other call would kill it.
#[test]
fn submitting_makes_no_system_call() {
    use nix::libc;
    let (fake, ring) = Fake::new(4096);
    // SAFETY: the child calls nothing but what is safe after a fork, and ends by itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no pointers; after it only `exit` is called.
        unsafe {
            if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT, 0, 0, 0) != 0 {
                libc::_exit(2);
            }
            for sequence in 0..4096 {
                if ring.submit(&marked(0, sequence)).is_err() {
                    libc::syscall(libc::SYS_exit, 3);
                }
            }
            libc::syscall(libc::SYS_exit, 0);
        }
        unreachable!("exit does not return");
    }
    let mut status = 0;
    // SAFETY: the pointer is to a local.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((waited, status), (child, 0), "killed for a system call");
    drop(fake);
}

/// The protocol, in every order that the memory model allows.
mod model {
    use super::super::{try_submit, Shared, INVALID};
    use crate::Packet;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use loom::sync::Arc;
    use loom::thread;

    /// A ring whose bodies tell loom of every access: one that is not ordered is a failure.
    struct Model {
        headers: Vec<AtomicU32>,
        bodies: Vec<UnsafeCell<u32>>,
        write: AtomicU64,
        read: AtomicU64,
        doorbell: AtomicU64,
    }

    impl Model {
        fn new(capacity: usize) -> Arc<Self> {
            Arc::new(Self {
                headers: (0..capacity).map(|_| AtomicU32::new(INVALID)).collect(),
                bodies: (0..capacity).map(|_| UnsafeCell::new(0)).collect(),
                write: AtomicU64::new(0),
                read: AtomicU64::new(0),
                doorbell: AtomicU64::new(u64::MAX),
            })
        }

        /// Waits for the next packet and takes it.
        fn consume(&self) -> u32 {
            let index = self.read.load(Ordering::Relaxed);
            let place = index as usize % self.headers.len();
            while self.headers[place].load(Ordering::Acquire) == INVALID {
                thread::yield_now();
            }
            // SAFETY: loom fails the test if a producer can be writing.
            let body = self.bodies[place].with(|body| unsafe { *body });
            self.headers[place].store(INVALID, Ordering::Relaxed);
            self.read.store(index + 1, Ordering::Release);
            body
        }
    }

    impl Shared for Model {
        fn capacity(&self) -> u64 {
            self.headers.len() as u64
        }

        fn take_if(
            &self,
            index: u64,
            count: u64,
            order: Ordering,
        ) -> std::result::Result<u64, u64> {
            self.write
                .compare_exchange_weak(index, index + count, order, order)
        }

        fn written(&self, order: Ordering) -> u64 {
            self.write.load(order)
        }

        fn read(&self, order: Ordering) -> u64 {
            self.read.load(order)
        }

        // SAFETY: asks no more of the caller than the trait does.
        unsafe fn fill(&self, place: u64, packet: &Packet) {
            // SAFETY: loom fails the test if anyone else can be at it.
            self.bodies[place as usize].with_mut(|body| unsafe { *body = packet.0[1] });
        }

        fn publish(&self, place: u64, header: u32, order: Ordering) {
            self.headers[place as usize].store(header, order);
        }

        fn ring(&self, index: u64) {
            self.doorbell.store(index, Ordering::Release);
        }
    }

    /// Waits for room for as long as it takes.
    fn submit(model: &Model, packets: &[Packet]) -> Option<u64> {
        super::super::submit(model, packets, || {
            thread::yield_now();
            true
        })
    }

    fn packet(body: u32) -> Packet {
        let mut words = [0; 16];
        (words[0], words[1]) = (3, body);
        Packet(words)
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    // One thread waits at most in each model: loom can't tell waiters that wait for each other from
    // an endless loop.

    /// A place is used again only when the consumer has done with it.
    #[test]
    fn a_place_is_used_again_after_the_consumer() {
        check(|| {
            let model = Model::new(1);
            assert!(submit(&model, &[packet(1)]).is_some());
            let producers: Vec<_> = (2..=3)
                .map(|body| {
                    let model = model.clone();
                    thread::spawn(move || try_submit(&*model, &[packet(body)]).map(|_| body))
                })
                .collect();
            assert_eq!(model.consume(), 1);
            let done = producers
                .into_iter()
                .map(|one| one.join().expect("no panic"));
            let put: Vec<_> = done.flatten().collect();
            assert!(put.len() <= 1, "room for one: {put:?}");
            for body in put {
                assert_eq!(model.consume(), body);
            }
        });
    }

    /// A producer that finds the ring full goes on when the consumer has moved.
    #[test]
    fn a_full_ring_is_waited_for() {
        check(|| {
            let model = Model::new(1);
            assert!(submit(&model, &[packet(1)]).is_some());
            let producer = {
                let model = model.clone();
                thread::spawn(move || submit(&model, &[packet(2)]))
            };
            assert_eq!(model.consume(), 1);
            assert_eq!(producer.join().expect("no panic"), Some(1));
            assert_eq!(model.consume(), 2);
        });
    }

    /// A producer that gives up at any point leaves no place that the consumer would wait at.
    #[test]
    fn who_gives_up_leaves_no_hole() {
        check(|| {
            let model = Model::new(1);
            assert!(submit(&model, &[packet(1)]).is_some());
            let hasty = {
                let model = model.clone();
                thread::spawn(move || super::super::submit(&*model, &[packet(2)], || false))
            };
            let other = {
                let model = model.clone();
                thread::spawn(move || try_submit(&*model, &[packet(3)]))
            };
            assert_eq!(model.consume(), 1);
            let put = [hasty, other].map(|one| one.join().expect("no panic"));
            let put = put.iter().flatten().count() as u64;
            assert_eq!(model.write.load(Ordering::Relaxed), 1 + put);
            for _ in 0..put {
                model.consume();
            }
            assert_eq!(try_submit(&*model, &[packet(4)]), Some(1 + put));
            assert_eq!(model.consume(), 4);
        });
    }

    /// Packets of one call lie one after the other, whatever others do, and come whole.
    #[test]
    fn packets_of_one_call_stay_together() {
        check(|| {
            let model = Model::new(4);
            let pair = {
                let model = model.clone();
                thread::spawn(move || submit(&model, &[packet(1), packet(2)]))
            };
            let single = {
                let model = model.clone();
                thread::spawn(move || submit(&model, &[packet(9)]))
            };
            let got = [model.consume(), model.consume(), model.consume()];
            assert!(got == [1, 2, 9] || got == [9, 1, 2], "{got:?}");
            pair.join().expect("no panic");
            single.join().expect("no panic");
        });
    }

    /// What does not wait has room for all of it or puts in nothing.
    #[test]
    fn two_places_are_taken_together() {
        check(|| {
            let model = Model::new(2);
            let pair = {
                let model = model.clone();
                thread::spawn(move || try_submit(&*model, &[packet(1), packet(2)]))
            };
            let single = try_submit(&*model, &[packet(9)]);
            let pair = pair.join().expect("no panic");
            assert!(single.is_some() != pair.is_some(), "{single:?}, {pair:?}");
            let got = match single {
                Some(_) => vec![model.consume()],
                None => vec![model.consume(), model.consume()],
            };
            assert!(got == [9] || got == [1, 2], "{got:?}");
            let taken = model.write.load(Ordering::Relaxed);
            assert_eq!(taken, got.len() as u64);
        });
    }

    /// What does not wait takes a place or none, never half of one.
    #[test]
    fn a_place_is_taken_once() {
        loom::model(|| {
            let model = Model::new(1);
            let other = {
                let model = model.clone();
                thread::spawn(move || try_submit(&*model, &[packet(1)]))
            };
            let mine = try_submit(&*model, &[packet(2)]);
            let theirs = other.join().expect("no panic");
            let taken = [mine, theirs].iter().flatten().count() as u64;
            assert_eq!(model.write.load(Ordering::Relaxed), taken);
            assert_eq!(taken, 1, "room for one");
            let body = model.consume();
            assert_eq!(body, if mine.is_some() { 2 } else { 1 });
        });
    }
}
