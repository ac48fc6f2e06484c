// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a process is told in figures which differ from run to run: how much memory there is, what
//! the clocks show, how long copy queues were busy. Each is held against what is known of it, so
//! that what is printed is the same on every driver.

use crate::bench::Bench;
use crate::raw::ioctl;
use crate::running::PATIENCE;
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::time::{clock_gettime, ClockId};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is taken of the VRAM, in bytes: whole pages of any size that the driver counts in.
const TAKEN: usize = 64 << 20;
/// How fast the GPU's clock runs, in hertz: 100 MHz on all chips of this generation.
const GPU_HERTZ: f64 = 1e8;
/// How long the clocks are watched.
const WATCHED: Duration = Duration::from_millis(500);
/// Ticks of a copy queue's counter in a microsecond (`SDMA_ACTIVITY_DIVISOR`, kfd_priv.h).
const SDMA_TICKS: u64 = 100;
/// Behind the read index (`sdma_activity_counter` in kfd_process.c).
const SDMA_COUNTER: usize = 8;

/// Prints what each figure came to.
pub fn all() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let bench = Bench::new(&device)?;
    available(&device)?;
    clocks(&bench)?;
    copies(&bench)
}

/// AVAILABLE_MEMORY: as much less as is taken, and then as much more.
fn available(device: &Arc<Device>) -> Result<()> {
    let gpu = format!("renderD{}", device.node().property("drm_render_minor"));
    let total = fs::read_to_string(format!("/sys/class/drm/{gpu}/device/mem_info_vram_total"))?;
    let total: u64 = total.trim().parse()?;
    let before = device.available_memory()?;
    let memory = Memory::vram(device, TAKEN)?;
    let meanwhile = device.available_memory()?;
    drop(memory);
    let after = device.available_memory()?;
    println!(
        "available memory: most of the VRAM: {}",
        (total / 2..total).contains(&before)
    );
    let less = before as i64 - meanwhile as i64;
    println!("available memory: {less} less where {TAKEN} are taken");
    println!("available memory: as before: {}", after == before);
    Ok(())
}

/// One look at the clocks: what the call said, and the system's own before and after it.
struct Look {
    told: uapi::kfd_ioctl_get_clock_counters_args,
    boot: [u64; 2],
    raw: [u64; 2],
}

impl Look {
    fn take(bench: &Bench) -> Result<Self> {
        let mut told = uapi::kfd_ioctl_get_clock_counters_args {
            gpu_id: bench.gpu_id(),
            ..Default::default()
        };
        let clocks = || [ClockId::Boottime, ClockId::MonotonicRaw].map(nanoseconds);
        let before = clocks();
        ioctl(bench.kfd(), uapi::IOC_GET_CLOCK_COUNTERS, &mut told)?;
        let after = clocks();
        Ok(Self {
            told,
            boot: [before[0], after[0]],
            raw: [before[1], after[1]],
        })
    }

    fn is_right(&self) -> [bool; 2] {
        let within = |[from, to]: [u64; 2], time| (from..=to).contains(&time);
        [
            within(self.raw, self.told.cpu_clock_counter),
            within(self.boot, self.told.system_clock_counter),
        ]
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// GET_CLOCK_COUNTERS: the system's clocks as the process reads them itself, and the GPU's has run
/// as far as time has passed between two looks, by a tenth.
fn clocks(bench: &Bench) -> Result<()> {
    let first = Look::take(bench)?;
    std::thread::sleep(WATCHED);
    let second = Look::take(bench)?;
    let [raw, boot] = [first.is_right(), second.is_right()]
        .into_iter()
        .fold([true; 2], |all, look| [all[0] & look[0], all[1] & look[1]]);
    println!("clocks: the CPU's is the raw one: {raw}");
    println!("clocks: the system's is that since boot: {boot}");
    let ticks = second
        .told
        .gpu_clock_counter
        .wrapping_sub(first.told.gpu_clock_counter);
    let seconds = ticks as f64 / GPU_HERTZ;
    let least = (second.boot[0] - first.boot[1]) as f64 / 1e9;
    let most = (second.boot[1] - first.boot[0]) as f64 / 1e9;
    let right = seconds > 0.9 * least && seconds < 1.1 * most;
    println!("clocks: the GPU's has 100 MHz: {right}");
    if !right {
        eprintln!("{ticks} ticks of the GPU in {least} to {most} s");
    }
    Ok(())
}

/// `proc/<pid>/sdma_<gpu>`: what copy queues count there is of queues and of those that are gone.
fn copies(bench: &Bench) -> Result<()> {
    let path = format!(
        "/sys/class/kfd/kfd/proc/{}/sdma_{}",
        std::process::id(),
        bench.gpu_id()
    );
    let begin = Instant::now();
    while !Path::new(&path).exists() {
        ensure!(begin.elapsed() < PATIENCE, "there is no {path}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let shown = || -> Result<String> { Ok(fs::read_to_string(&path)?.trim().to_owned()) };
    println!("copy queues: {} us without one", shown()?);
    // Both have the same counter: one at a time.
    let counter = bench.queue().read_pointer_address - bench.indices.address();
    let count = |microseconds: u64| {
        let ticks = microseconds * SDMA_TICKS;
        bench
            .indices
            .write(counter as usize + SDMA_COUNTER, &[ticks]);
    };
    for microseconds in [12_345, 1_000] {
        count(0);
        let mut queue = uapi::kfd_ioctl_create_queue_args {
            queue_type: uapi::KFD_IOC_QUEUE_TYPE_SDMA,
            ..bench.queue()
        };
        ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut queue)?;
        println!("copy queues: {} us with a new one", shown()?);
        count(microseconds);
        println!("copy queues: {} us when it has counted", shown()?);
        let mut destroy = uapi::kfd_ioctl_destroy_queue_args {
            queue_id: queue.queue_id,
            ..Default::default()
        };
        ioctl(bench.kfd(), uapi::IOC_DESTROY_QUEUE, &mut destroy)?;
        count(0);
        println!("copy queues: {} us when it is gone", shown()?);
    }
    Ok(())
}
