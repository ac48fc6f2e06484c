// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shared virtual memory: attributes, faults that GPUs repeat (XNACK), pages that are taken away,
//! and pages that move.

use super::footprint::{self, Slab};
use super::Meter;
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, SvmAttribute};
use kfd_aql::Queue;
use kfd_uapi as uapi;
use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

const PAGE: usize = 4096;
/// What moves and is mapped together by default.
const GRANULE: usize = 2 << 20;
const LARGE: usize = 1 << 30;
const MOVED: usize = 64 << 20;
/// Ranges that are there already.
const RANGES: usize = 10_000;
/// CPU threads that touch pages of a GPU's, and how often they do.
const THREADS: usize = 8;
const ROUNDS: usize = 9;

/// What happens at once after the same.
const NEXT: &str = "fault of 2 MiB right after another, they stay";

/// Attributes of linux/kfd_ioctl.h.
const ACCESS: u32 = uapi::KFD_IOCTL_SVM_ATTR_ACCESS;
const PREFERRED: u32 = uapi::KFD_IOCTL_SVM_ATTR_PREFERRED_LOC;
const PREFETCH: u32 = uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC;
const GRANULARITY: u32 = uapi::KFD_IOCTL_SVM_ATTR_GRANULARITY;
/// `KFD_IOCTL_SVM_LOCATION_SYSMEM`.
const SYSTEM: u32 = 0;

/// What a process that has not opened `/dev/kfd` yet measures.
pub(super) fn all(meter: &Meter) -> Result<()> {
    let bench = Bench::new()?;
    bench.calls(meter, "small", Area::new)?;
    bench.calls(meter, "large", |size, _| Area::large(size))?;
    bench.many_ranges(meter)?;
    bench.prefetch(meter, "small", Area::new(MOVED, true)?)?;
    bench.prefetch(meter, "large", Area::large(MOVED)?)?;
    bench.without_xnack(meter)?;
    bench.xnack(true)?;
    let gpu = Gpu::on(bench.device.clone(), 4)?;
    let waves = Waves::new(&gpu)?;
    bench.faults(meter, &waves)?;
    bench.with_xnack(meter, &waves)
}

/// Bytes of the kernel's memory for a GiB, by process: one that has it mapped, one that has it
/// registered.
pub(super) fn footprint() -> Result<()> {
    let slab = Slab::new()?;
    let bench = Bench::new()?;
    let access = [bench.of_gpu(ACCESS)];
    // The first range brings what a process needs once.
    let first = Area::new(GRANULE, true)?;
    bench.set(&first, &access)?;
    let area = Area::new(LARGE, true)?;
    let (bytes, pages) = vmalloc_too(&slab, || bench.set(&area, &access))?;
    footprint::row("bytes of 1 GiB that a GPU sees, XNACK off", bytes + pages);
    drop(area);
    bench.xnack(true)?;
    let area = Area::new(LARGE, true)?;
    let (bytes, pages) = vmalloc_too(&slab, || bench.set(&area, &access))?;
    footprint::row("bytes of 1 GiB registered, XNACK on", bytes + pages);
    Ok(())
}

/// Bytes that `act` leaves: objects of the slab allocators, and pages of vmalloc.
fn vmalloc_too(slab: &Slab, act: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let before = vmalloc_used()?;
    let bytes = slab.more(act)?;
    Ok((bytes, vmalloc_used()?.saturating_sub(before)))
}

fn vmalloc_used() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("VmallocUsed:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.context("no VmallocUsed")?.parse::<u64>()? * 1024)
}

/// Nanoseconds in which threads touch pages that are in VRAM, each all of its own granule: of one
/// thread for all granules, and of one for each. Meant for a guest with processors for them.
pub(super) fn threads() -> Result<()> {
    let bench = Bench::new()?;
    let area = Area::new(THREADS * GRANULE, false)?;
    bench.set(&area, &[bench.of_gpu(ACCESS)])?;
    for (name, count) in [("1 thread", 1), ("8 threads", THREADS)] {
        let mut samples = Vec::new();
        for _ in 0..ROUNDS {
            bench.set(&area, &[bench.of_gpu(PREFETCH)])?;
            samples.push(touch_all(&area, count));
        }
        samples.sort_unstable();
        let (min, median) = (samples[0], samples[ROUNDS / 2]);
        let p90 = samples[ROUNDS - 1];
        let operation = format!("CPU faults on 8 granules in VRAM, {name}");
        print!(r#"{{"operation":"{operation}","n":{ROUNDS},"#);
        println!(r#""min":{min},"median":{median},"p90":{p90}}}"#);
    }
    Ok(())
}

/// So many threads touch all pages of an area; returns the nanoseconds.
fn touch_all(area: &Area, threads: usize) -> u64 {
    let barrier = Barrier::new(threads + 1);
    let share = area.size / threads;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|index| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    area.touch(index * share, share);
                })
            })
            .collect();
        barrier.wait();
        let begun = Instant::now();
        for worker in workers {
            let _ = worker.join();
        }
        begun.elapsed().as_nanos() as u64
    })
}

/// Ordinary memory of this process that GPUs may get.
struct Area {
    start: *mut c_void,
    mapped: usize,
    at: usize,
    size: usize,
}

// SAFETY: the mapping is the value's own, and is accessed volatile.
unsafe impl Sync for Area {}

impl Area {
    /// So many bytes of small pages, which begin with a granule. `populated`: by the CPU, before
    /// anything else.
    fn new(size: usize, populated: bool) -> Result<Self> {
        Self::with(size, populated, Advice::LinuxNoHugepage)
    }

    /// The same, of large pages where the kernel has them.
    fn large(size: usize) -> Result<Self> {
        Self::with(size, true, Advice::LinuxHugepage)
    }

    fn with(size: usize, populated: bool, pages: Advice) -> Result<Self> {
        let mapped = size + GRANULE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping.
        let start = unsafe { mmap_anonymous(null_mut(), mapped, access, flags)? };
        // SAFETY: the mapping just made.
        unsafe { madvise(start, mapped, pages)? };
        let area = Self {
            at: (start as usize).next_multiple_of(GRANULE),
            start,
            mapped,
            size,
        };
        if populated {
            area.touch(0, size);
        }
        Ok(area)
    }

    /// Writes to all pages of a part of it. Not inlined: QEMU may translate a mark for its plugin
    /// together with the access, and come by again when that has faulted.
    #[inline(never)]
    fn touch(&self, offset: usize, size: usize) {
        for page in (offset..offset + size).step_by(PAGE) {
            // SAFETY: in the mapping; GPUs may write too.
            unsafe { ((self.at + page) as *mut u32).write_volatile(1) };
        }
    }

    /// Has the kernel take the pages of a part of it.
    fn drop_pages(&self, offset: usize, size: usize) -> Result<()> {
        let place = (self.at + offset) as *mut c_void;
        // SAFETY: in the mapping; what was in it is nobody's.
        unsafe { madvise(place, size, Advice::LinuxDontNeed) }?;
        Ok(())
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; nothing refers to it any more.
        let _ = unsafe { munmap(self.start, self.mapped) };
    }
}

/// A process with one GPU.
struct Bench {
    kfd: Arc<Kfd>,
    device: Arc<Device>,
}

impl Bench {
    fn new() -> Result<Self> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
        ensure!(
            device.node().has_svm(),
            "the driver has no shared virtual memory"
        );
        Ok(Self { kfd, device })
    }

    fn xnack(&self, retry: bool) -> Result<()> {
        // SAFETY: kernels are given addresses of areas and of buffers only.
        unsafe { self.kfd.set_xnack(retry) }?;
        Ok(())
    }

    /// An attribute that names the GPU.
    fn of_gpu(&self, type_: u32) -> SvmAttribute {
        let value = self.device.gpu_id();
        SvmAttribute { type_, value }
    }

    fn set(&self, area: &Area, attributes: &[SvmAttribute]) -> Result<()> {
        self.set_part(area, 0, area.size, attributes)
    }

    fn set_part(
        &self,
        area: &Area,
        offset: usize,
        size: usize,
        attributes: &[SvmAttribute],
    ) -> Result<()> {
        let start = (area.at + offset) as u64;
        // SAFETY: the area's pages are accessed volatile only.
        unsafe { self.kfd.set_svm(start, size as u64, attributes) }?;
        Ok(())
    }

    fn get(&self, area: &Area, offset: usize, size: usize) -> Result<()> {
        let mut asked = [SvmAttribute {
            type_: GRANULARITY,
            value: 0,
        }];
        let start = (area.at + offset) as u64;
        Ok(self.kfd.svm_attributes(start, size as u64, &mut asked)?)
    }

    /// One range, of which a GPU sees 2 MiB from the call on.
    fn calls(
        &self,
        meter: &Meter,
        pages: &str,
        area: impl Fn(usize, bool) -> Result<Area>,
    ) -> Result<()> {
        let mut rows = ["SET_ATTR access to 2 MiB", "GET_ATTR", "munmap of 2 MiB"]
            .map(|name| meter.row(format!("{name}, {pages} pages, XNACK off")));
        for _ in 0..10 {
            let area = area(GRANULE, true)?;
            rows[0].sample(|| self.set(&area, &[self.of_gpu(ACCESS)]))?;
            rows[1].sample(|| self.get(&area, 0, PAGE))?;
            rows[2].sample(|| {
                drop(area);
                Ok(())
            })?;
        }
        rows.into_iter().for_each(super::Row::print);
        Ok(())
    }

    /// Calls with many ranges present: every other page is one.
    fn many_ranges(&self, meter: &Meter) -> Result<()> {
        let area = Area::new(2 * RANGES * PAGE, false)?;
        let granularity = |value| SvmAttribute {
            type_: GRANULARITY,
            value,
        };
        for range in 0..RANGES {
            self.set_part(&area, 2 * range * PAGE, PAGE, &[granularity(1)])?;
        }
        let mut new = meter.row("SET_ATTR of a new page, 10,000 ranges");
        let mut old = meter.row("SET_ATTR of one of 10,000 ranges");
        let mut one = meter.row("GET_ATTR of one of 10,000 ranges");
        for sample in 0..20 {
            let place = 2 * (sample * RANGES / 20) * PAGE;
            one.sample(|| self.get(&area, place, PAGE))?;
            old.sample(|| self.set_part(&area, place, PAGE, &[granularity(2)]))?;
            new.sample(|| self.set_part(&area, place + PAGE, PAGE, &[granularity(3)]))?;
        }
        for row in [new, old, one] {
            row.print();
        }
        meter.measure("GET_ATTR of all 10,000 ranges", 5, || {
            self.get(&area, 0, area.size)
        })?;
        // Once: afterwards it may be one.
        meter.measure("SET_ATTR of all 10,000 ranges", 1, || {
            self.set(&area, &[granularity(4)])
        })
    }

    /// To VRAM, and back; by a call, and by the CPU.
    fn prefetch(&self, meter: &Meter, pages: &str, area: Area) -> Result<()> {
        let mut rows = [
            "64 MiB prefetched to VRAM",
            "64 MiB prefetched to system memory",
            "CPU fault on a granule in VRAM",
        ]
        .map(|name| meter.row(format!("{name}, {pages} pages")));
        self.set(&area, &[self.of_gpu(ACCESS)])?;
        let home = SvmAttribute {
            type_: PREFETCH,
            value: SYSTEM,
        };
        for _ in 0..3 {
            rows[0].sample(|| self.set(&area, &[self.of_gpu(PREFETCH)]))?;
            rows[1].sample(|| self.set(&area, &[home]))?;
        }
        self.set(&area, &[self.of_gpu(PREFETCH)])?;
        for granule in 0..10 {
            rows[2].sample(|| {
                area.touch(granule * GRANULE, PAGE);
                Ok(())
            })?;
        }
        rows.into_iter().for_each(super::Row::print);
        Ok(())
    }

    /// The kernel takes 1 page of 1 GiB that the GPU sees, and the driver brings it back.
    fn without_xnack(&self, meter: &Meter) -> Result<()> {
        let area = Area::new(LARGE, true)?;
        self.set(&area, &[self.of_gpu(ACCESS)])?;
        // It stops and goes on.
        let _queue = Queue::new(&self.device, 64)?;
        let mut taken = meter.row("1 page of 1 GiB taken, XNACK off");
        let mut back = meter.row("the same until it is back, XNACK off");
        for sample in 0..5usize {
            let page = (sample * 101 + 7) * GRANULE;
            let idle = super::elapsed(spin)?;
            taken.sample(|| area.drop_pages(page, PAGE))?;
            spin()?;
            area.touch(page, PAGE);
            back.sample_less(idle, || {
                area.drop_pages(page, PAGE)?;
                spin()
            })?;
        }
        taken.print();
        back.print();
        Ok(())
    }

    /// The same where the GPU comes again for what it misses.
    fn with_xnack(&self, meter: &Meter, waves: &Waves<'_>) -> Result<()> {
        let area = Area::new(LARGE, true)?;
        let system = SvmAttribute {
            type_: PREFERRED,
            value: SYSTEM,
        };
        self.set(&area, &[self.of_gpu(ACCESS), system])?;
        let granules = (0..8).map(|index| index * 61 * GRANULE);
        for granule in granules.clone() {
            waves.write(area.at + granule)?;
        }
        let mut taken = meter.row("1 page of 1 GiB taken, XNACK on");
        for granule in granules {
            taken.sample(|| area.drop_pages(granule, PAGE))?;
        }
        taken.print();
        Ok(())
    }

    /// A GPU misses a page, and gets it: how much longer a kernel takes that writes there.
    fn faults(&self, meter: &Meter, waves: &Waves<'_>) -> Result<()> {
        const SAMPLES: usize = 10;
        let kinds = [
            ("fault of 1 page, it stays", SYSTEM, 0),
            ("fault of 2 MiB, they stay", SYSTEM, 9),
            ("fault of 1 page, it moves to VRAM", self.device.gpu_id(), 0),
            ("fault of 2 MiB, they move to VRAM", self.device.gpu_id(), 9),
            (NEXT, SYSTEM, 9),
        ];
        for (name, preferred, granularity) in kinds {
            let area = Area::new(SAMPLES * GRANULE, true)?;
            let attributes = [(ACCESS, self.device.gpu_id()), (PREFERRED, preferred)];
            let attributes = [attributes[0], attributes[1], (GRANULARITY, granularity)];
            let attributes = attributes.map(|(type_, value)| SvmAttribute { type_, value });
            self.set(&area, &attributes)?;
            let mut row = meter.row(name);
            for sample in 0..SAMPLES {
                let place = area.at + sample * GRANULE;
                let launch = waves.launch(place)?;
                let again = waves.launch(place)?;
                // C takes what comes within 2 ms of the last one for a repetition of it.
                if name != NEXT {
                    spin()?;
                }
                row.sample(|| waves.run(&launch))?;
                // Now it is there.
                let known = super::elapsed(|| waves.run(&again))?;
                row.reduce(known);
            }
            row.print();
        }
        Ok(())
    }
}

/// As long as it takes for what was taken away to come back, and longer.
fn spin() -> Result<()> {
    for round in 0..20_000_000u64 {
        std::hint::black_box(round);
    }
    Ok(())
}

/// Kernels of one work-group that write a word.
struct Waves<'a> {
    queue: Queue,
    gpu: &'a Gpu,
}

impl<'a> Waves<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self> {
        let queue = Queue::new(gpu.device(), 64)?;
        Ok(Self { queue, gpu })
    }

    fn launch(&self, place: usize) -> Result<(kfd_aql::Launch, kfd_aql::Signal)> {
        let mut arguments = (place as u64).to_le_bytes().to_vec();
        for word in [1u32, 7, 1] {
            arguments.extend(word.to_le_bytes());
        }
        let launch = self
            .gpu
            .launch("scatter", crate::waves::GROUP, &arguments)?;
        Ok((launch, self.gpu.signal()?))
    }

    /// Runs a kernel to its end, which the CPU looks out for.
    fn run(&self, (launch, done): &(kfd_aql::Launch, kfd_aql::Signal)) -> Result<()> {
        launch.submit(&self.queue, done)?;
        let mut patience = 10_000_000u32;
        while done.load() != 0 {
            patience -= 1;
            ensure!(patience > 0, "the kernel does not end");
            thread::yield_now();
        }
        Ok(())
    }

    fn write(&self, place: usize) -> Result<()> {
        self.run(&self.launch(place)?)
    }
}
