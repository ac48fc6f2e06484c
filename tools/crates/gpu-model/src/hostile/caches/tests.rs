// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Each mistake beside what is right.

use super::*;
use crate::memory::HeapMemory;

const X: Place = Place {
    at: Physical {
        memory: Memory::Vram,
        address: 0x1000,
    },
    length: 0x1000,
    mtype: Mtype::Rw,
};

struct Gpu {
    memory: Arc<HeapMemory>,
    caches: Caches,
}

impl Gpu {
    fn new() -> Self {
        let memory = Arc::new(HeapMemory::new(1 << 20));
        let (vram, hostile) = (memory.clone(), Arc::new(Hostile::new(1)));
        Self {
            caches: Caches::new(hostile, vram.clone(), vram, 2),
            memory,
        }
    }

    fn load(&self, by: Client, through: Through, scope: Scope) -> u64 {
        let mut bytes = [0; 8];
        let through = (through, scope);
        let from = (X.at, || true);
        let loaded = self.caches.load(by, through, from, &mut bytes);
        loaded.unwrap().unwrap();
        u64::from_le_bytes(bytes)
    }

    fn store(&self, by: Client, scope: Scope, mtype: Mtype, value: u64) {
        let to = Place { mtype, ..X };
        let bytes = value.to_le_bytes();
        let stored = self.caches.store(by, scope, (to, || true), &bytes);
        stored.unwrap().unwrap();
    }

    fn memory(&self) -> u64 {
        self.memory.read_u64(X.at.address).unwrap()
    }
}

/// Compute unit `unit` of an XCC, of two or alone.
fn wave(xcc: u8, unit: u16, shared: bool) -> Client {
    Client { xcc, unit, shared }
}

/// In how many of 100 changes of memory a wave loads what was there before.
fn stale(through: Through, scope: Scope, after: impl Fn(&Caches)) -> usize {
    let gpu = Gpu::new();
    let by = wave(0, 0, false);
    let is_stale = |n: &u64| {
        gpu.load(by, through, scope);
        gpu.memory.write_u64(X.at.address, *n).unwrap();
        after(&gpu.caches);
        gpu.load(by, through, scope) != *n
    };
    (1..=100).filter(is_stale).count()
}

#[test]
fn lines_stay_until_their_cache_is_invalidated() {
    use Through::{Code, Scalar, Vector};
    let invalidate = |which| move |caches: &Caches| caches.invalidate(0, which);
    for (through, own) in [
        (Vector, [true, false, false]),
        (Scalar, [false, true, false]),
        (Code, [false, false, true]),
    ] {
        assert_eq!(stale(through, Scope::Wave, invalidate(own)), 0);
        let others = stale(through, Scope::Wave, invalidate(own.map(|it| !it)));
        assert!(others > 80, "{through:?}: {others}");
        assert!(stale(through, Scope::Wave, |_| ()) > 80, "{through:?}");
        assert!(stale(through, Scope::Wave, |it| it.invalidate(1, own)) > 80);
        assert_eq!(stale(through, Scope::Wave, |it| it.flush(0)), 0);
    }
}

#[test]
fn scopes_and_instructions_decide_what_a_load_finds() {
    let by = wave(0, 0, false);
    let control = |control| move |caches: &Caches| caches.control(by, control);
    let loads = |scope| stale(Through::Vector, scope, |_| ());
    assert!(loads(Scope::Group) > 80);
    assert_eq!([loads(Scope::Device), loads(Scope::System)], [0; 2]);
    let after = |it| stale(Through::Vector, Scope::Wave, control(it));
    assert_eq!(after(CacheControl::Invalidate(Scope::Device)), 0);
    assert!(after(CacheControl::Invalidate(Scope::Wave)) > 80);
    assert!(after(CacheControl::WriteBack(Scope::System)) > 80);
    assert!(after(CacheControl::InvalidateScalar) > 80);
    let scalar = |it| stale(Through::Scalar, Scope::Wave, control(it));
    assert_eq!(scalar(CacheControl::InvalidateScalar), 0);
    assert!(scalar(CacheControl::Invalidate(Scope::System)) > 80);
    let elsewhere = CacheControl::Invalidate(Scope::Device);
    let other = stale(Through::Vector, Scope::Wave, |it| {
        it.control(wave(0, 1, false), elsewhere);
    });
    assert!(other > 80, "another compute unit's: {other}");
}

/// In how many of 100 stores memory does not have the value after it.
fn unwritten(by: Client, scope: Scope, mtype: Mtype, after: impl Fn(&Caches)) -> usize {
    let gpu = Gpu::new();
    let is_unwritten = |n: &u64| {
        gpu.store(by, scope, mtype, *n);
        assert_eq!(gpu.load(by, Through::Vector, Scope::Wave), *n);
        after(&gpu.caches);
        gpu.memory() != *n
    };
    (1..=100).filter(is_unwritten).count()
}

#[test]
fn local_memory_is_stored_when_it_is_written_back() {
    let (alone, shared) = (wave(0, 0, false), wave(0, 0, true));
    let stores = |by, scope, mtype| unwritten(by, scope, mtype, |_| ());
    assert!(stores(alone, Scope::Wave, Mtype::Rw) > 80);
    assert!(stores(alone, Scope::Device, Mtype::Rw) > 80);
    assert_eq!(stores(shared, Scope::Device, Mtype::Rw), 0);
    assert_eq!(stores(alone, Scope::System, Mtype::Rw), 0);
    for mtype in [Mtype::Uc, Mtype::Cc] {
        assert_eq!(stores(alone, Scope::Wave, mtype), 0);
    }
    let written = |by, scope| {
        unwritten(by, Scope::Wave, Mtype::Rw, |caches| {
            caches.control(by, CacheControl::WriteBack(scope));
        })
    };
    assert_eq!(
        [
            written(alone, Scope::System),
            written(shared, Scope::Device)
        ],
        [0; 2]
    );
    assert!(written(alone, Scope::Device) > 80);
    assert!(written(shared, Scope::Group) > 80);
    let back = |xcc| {
        unwritten(alone, Scope::Wave, Mtype::Rw, |it: &Caches| {
            it.write_back(xcc)
        })
    };
    assert_eq!(back(0), 0);
    assert!(back(1) > 80);
}

#[test]
fn another_xcc_sees_it_when_it_is_written_back_and_its_own_at_once() {
    let gpu = Gpu::new();
    let (one, other) = (wave(0, 0, true), wave(1, 0, true));
    gpu.store(one, Scope::Wave, Mtype::Rw, 5);
    assert_eq!(gpu.load(wave(0, 1, true), Through::Vector, Scope::Wave), 5);
    assert_eq!(gpu.load(other, Through::Vector, Scope::Device), 0);
    gpu.caches
        .control(one, CacheControl::WriteBack(Scope::Device));
    assert_eq!(gpu.load(other, Through::Vector, Scope::Device), 5);
}

#[test]
fn what_others_write_wins_over_what_the_l2_has() {
    let by = wave(0, 0, false);
    let gpu = Gpu::new();
    for (n, told) in (1..=20).zip([false, true].iter().cycle()) {
        gpu.store(by, Scope::Wave, Mtype::Rw, n);
        if *told {
            gpu.caches.probe(X.at, 4);
        }
        gpu.memory.write_u32(X.at.address, 100 + n as u32).unwrap();
        assert_eq!(gpu.load(by, Through::Vector, Scope::Device), 100 + n);
        gpu.caches.write_back(0);
        assert_eq!(gpu.memory(), 100 + n);
    }
    gpu.store(by, Scope::Wave, Mtype::Rw, 7);
    gpu.caches.before_atomic(by, X.at, 8);
    assert_eq!(gpu.memory(), 7);
    assert_eq!(gpu.caches.hostile.stale_lines.load(Ordering::Relaxed), 0);
}

#[test]
fn processors_read_through_their_l2_and_others_do_not() {
    let gpu = Gpu::new();
    gpu.store(wave(1, 0, false), Scope::Wave, Mtype::Rw, 9);
    let read = |xcc| {
        let mut bytes = [0; 8];
        gpu.caches.read(xcc, X.at, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!([read(Some(0)), read(Some(1)), read(None)], [0, 9, 0]);
    assert_eq!(gpu.caches.hostile.unwritten.load(Ordering::Relaxed), 1);
    gpu.caches.reset();
    assert_eq!(read(Some(1)), 0);
}

#[test]
fn there_is_room_for_so_many_lines_and_bytes_may_cross_them() {
    let gpu = Gpu::new();
    let by = wave(0, 0, false);
    let data: Vec<u8> = (0..=250).cycle().take(0x3f00).collect();
    let at = |address| Physical { address, ..X.at };
    let to = |address| Place {
        at: at(address),
        ..X
    };
    for turn in 0..60 {
        let to = (to(0x40 + turn * 0x4000), || true);
        let stored = gpu.caches.store(by, Scope::Wave, to, &data);
        stored.unwrap().unwrap();
        let mut out = vec![0; data.len()];
        let through = (Through::Vector, Scope::Wave);
        let loaded = gpu.caches.load(by, through, (to.0.at, || true), &mut out);
        loaded.unwrap().unwrap();
        assert!(out == data);
        assert!(gpu.caches.xcc(0).l2.len() <= ROOM);
    }
    gpu.caches.write_back(0);
    let mut out = vec![0; data.len()];
    gpu.memory.read(0x40 + 0x4000, &mut out).unwrap();
    assert!(out == data && gpu.memory.read_u32(0x4000 + 0x40 + 0x3f00) == Ok(0));
    assert!(gpu
        .caches
        .store(by, Scope::Wave, (to(1 << 20), || true), &[1])
        .is_err());
}

/// Memory whose readers see zeros until it is renewed, as through an HDP.
struct Older(HeapMemory, std::sync::atomic::AtomicBool);

impl PhysicalMemory for Older {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        if self.1.load(Ordering::Relaxed) {
            return self.0.read(address, out);
        }
        out.fill(0);
        Ok(())
    }

    fn newest(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.0.read(address, out)
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError> {
        self.0.write(address, data)
    }

    fn update32(&self, at: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError> {
        self.0.update32(at, change)
    }

    fn update64(&self, at: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError> {
        self.0.update64(at, change)
    }
}

#[test]
fn a_cpus_older_write_that_comes_to_sight_takes_nothing_away() {
    let memory = Arc::new(Older(HeapMemory::new(1 << 20), false.into()));
    let caches = Caches::new(Arc::new(Hostile::new(1)), memory.clone(), memory.clone(), 1);
    memory.0.write_u64(X.at.address, 5).unwrap();
    let (by, to) = (wave(0, 0, false), (X, || true));
    let stored = caches.store(by, Scope::Wave, to, &7u64.to_le_bytes());
    stored.unwrap().unwrap();
    memory.1.store(true, Ordering::Relaxed);
    caches.write_back(0);
    assert_eq!(memory.0.read_u64(X.at.address), Ok(7));
}

#[test]
fn a_translation_that_is_none_any_more_moves_nothing() {
    let gpu = Gpu::new();
    let (by, mut out) = (wave(0, 0, false), [1; 8]);
    let stored = gpu.caches.store(by, Scope::Wave, (X, || false), &[7; 8]);
    let through = (Through::Vector, Scope::Wave);
    let loaded = gpu.caches.load(by, through, (X.at, || false), &mut out);
    assert!(stored.unwrap().is_err() && loaded.unwrap().is_err());
    gpu.caches.write_back(0);
    assert_eq!((gpu.memory(), out), (0, [1; 8]));
}
